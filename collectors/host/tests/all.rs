//! What real control groups and process folders are read as. JOB-05 and ATT are public cases from bug reports.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use gpuledger_host::{
    Container, Disagreement, Host, Namespace, Owner, Pod, ProcessKey, QosClass, ReadError, RunState, Runtime,
    SlurmStep, owner_of,
};
use serde_json::Value;
use tempfile::TempDir;

const SECOND_US: i64 = 1_000_000;
/// An id of 64 digits, of which nothing matters but its form.
const H: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn step(job: &str, step: Option<&str>, task: Option<&str>) -> SlurmStep {
    let text = |text: Option<&str>| text.map(str::to_owned);
    SlurmStep { job: job.into(), step: text(step), task: text(task), uid: None, slurmd_node: None }
}

fn pod(uid: &str, qos: QosClass, runtime: Option<Runtime>) -> Owner {
    Owner::Pod(Pod { uid: uid.into(), container: Some(H.into()), runtime, qos })
}

fn cgroup_file(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cgroup").join(name)).unwrap()
}

#[test]
fn job_05_each_form_of_a_path_names_its_owner_and_no_other() {
    let uid = "2f1c0a9e-5b7d-4c1e-9a55-0d3b7a9c1e42";
    let other = "7b0d1c22-0a1b-4c3d-8e4f-5a6b7c8d9e0f";
    let containerd = Some(Runtime::Containerd);
    let on_node = SlurmStep { slurmd_node: Some("gpu01".into()), ..step("9402", Some("batch"), Some("0")) };
    let old = SlurmStep { uid: Some(1500), ..step("9403", Some("extern"), None) };
    let old_on_node = SlurmStep { uid: Some(1500), slurmd_node: Some("gpu01".into()), ..step("9404", Some("0"), None) };
    let container = |runtime| Owner::Container(Container { id: H.into(), runtime: Some(runtime) });
    let cases = [
        (
            "0::/system.slice/slurmstepd.scope/job_9401/step_0/user/task_0",
            Owner::Slurm(step("9401", Some("0"), Some("0"))),
        ),
        ("0::/system.slice/gpu01_slurmstepd.scope/job_9402/step_batch/user/task_0", Owner::Slurm(on_node)),
        ("5:devices:/slurm/uid_1500/job_9403/step_extern", Owner::Slurm(old)),
        ("5:devices:/slurm_gpu01/uid_1500/job_9404/step_0", Owner::Slurm(old_on_node)),
        ("0::/system.slice/slurmstepd.scope/job_9405/step_0/user/job_1", Owner::Slurm(step("9405", Some("0"), None))),
        (
            "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod2f1c0a9e_5b7d_4c1e_9a55_0d3b7a9c1e42.slice/cri-containerd-H.scope",
            pod(uid, QosClass::Burstable, containerd),
        ),
        (
            "11:memory:/kubepods/besteffort/pod7b0d1c22-0a1b-4c3d-8e4f-5a6b7c8d9e0f/H",
            pod(other, QosClass::BestEffort, None),
        ),
        (
            "0::/../../kubepods-besteffort.slice/kubepods-besteffort-pod7b0d1c22_0a1b_4c3d_8e4f_5a6b7c8d9e0f.slice/cri-containerd-H.scope",
            pod(other, QosClass::BestEffort, containerd),
        ),
        (
            "0::/kubepods.slice/kubepods-pod5c6d7e8f_1111_4222_8333_944455556666.slice/crio-H.scope",
            pod("5c6d7e8f-1111-4222-8333-944455556666", QosClass::Guaranteed, Some(Runtime::Crio)),
        ),
        (
            "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0123456789abcdef0123456789abcdef.slice/cri-containerd-H.scope",
            pod("0123456789abcdef0123456789abcdef", QosClass::Burstable, containerd),
        ),
        ("0::/system.slice/docker-H.scope", container(Runtime::Docker)),
        ("0::/machine.slice/libpod-H.scope/container", container(Runtime::Podman)),
        ("0::/user.slice/user-1500.slice/session-3.scope", Owner::User { uid: 1500 }),
        ("0::/", Owner::Nobody),
    ];
    for (line, owner) in cases {
        assert_eq!(owner_of(&line.replace('H', H)), owner, "{line}");
    }
    let Owner::Pod(hashed) = owner_of(
        "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0123456789abcdef0123456789abcdef.slice",
    ) else {
        panic!("no pod")
    };
    assert!(hashed.is_static() && hashed.container.is_none());
}

#[test]
fn every_real_control_group_is_read_as_expected() {
    let expected: Value = serde_json::from_str(&cgroup_file("expected.json")).unwrap();
    let expected = expected.as_object().unwrap();
    assert_eq!(expected.len(), 14);
    for (file, wanted) in expected {
        let text = |key: &str| wanted[key].as_str().map(str::to_owned);
        let uid = wanted["uid"].as_u64().map(|uid| u32::try_from(uid).unwrap());
        let read = owner_of(&cgroup_file(file));
        match (wanted["kind"].as_str().unwrap(), &read) {
            ("slurm", Owner::Slurm(step)) => {
                assert_eq!(Some(&step.job), text("job_id").as_ref(), "{file}");
                assert_eq!((&step.step, &step.task), (&text("step"), &text("task")), "{file}");
                assert_eq!((step.uid, &step.slurmd_node), (uid, &text("slurmd_node")), "{file}");
            }
            ("k8s", Owner::Pod(pod)) => {
                assert_eq!(Some(&pod.uid), text("pod_uid").as_ref(), "{file}");
                assert_eq!(pod.container, text("container_id"), "{file}");
                assert_eq!(Some(pod.qos.name().to_owned()), text("qos"), "{file}");
                assert_eq!(pod.runtime.map(|runtime| runtime.name().to_owned()), text("runtime"), "{file}");
            }
            ("docker", Owner::Container(container)) => {
                assert_eq!(
                    (Some(&container.id), container.runtime),
                    (text("container_id").as_ref(), Some(Runtime::Docker))
                );
            }
            ("none", Owner::Nobody) => assert_eq!(uid, None, "{file}"),
            ("none", Owner::User { uid: found }) => assert_eq!(Some(*found), uid, "{file}"),
            (kind, read) => panic!("{file}: {kind} was read as {read:?}"),
        }
    }
}

#[test]
fn every_container_of_the_table_of_another_project_is_found() {
    let table: Value = serde_json::from_str(&cgroup_file("elastic_apm_container_metadata_discovery.json")).unwrap();
    let mut read = 0;
    for (name, case) in table.as_object().unwrap() {
        let lines = case["files"]["/proc/self/cgroup"].as_array().unwrap();
        let text: Vec<&str> = lines.iter().map(|line| line.as_str().unwrap()).collect();
        // Seen from outside, a process in a namespace of its own is not at the root of the tree.
        if text == ["0::/"] {
            continue;
        }
        let (container, pod) = match owner_of(&text.join("\n")) {
            Owner::Pod(pod) => (pod.container, Some(pod.uid)),
            Owner::Container(container) => (Some(container.id), None),
            _ => (None, None),
        };
        assert_eq!(container.as_deref(), case["containerId"].as_str(), "{name}");
        assert_eq!(pod.as_deref(), case["podId"].as_str(), "{name}");
        read += 1;
    }
    assert_eq!(read, 5);
}

#[test]
fn names_that_only_look_like_owners_name_nobody() {
    for line in [
        "0::/system.slice/job_1/step_0",
        "0::/system.slice/xslurmstepd.scope/job_1/step_0",
        "0::/system.slice/_slurmstepd.scope/job_1",
        "0::/system.slice/slurmstepd.scope/system",
        "0::/slurm/uid_1500",
        "5:devices:/slurm/uid_x/job_1",
        "0::/system.slice/slurmstepd.scope/job_/step_0",
        "0::/kubepods.slice/kubepods-podxyz.slice",
        "0::/app-pod2f1c0a9e_5b7d_4c1e_9a55_0d3b7a9c1e42.slice",
        "0::/besteffort/pod7b0d1c22-0a1b-4c3d-8e4f-5a6b7c8d9e0f",
        "0::/system.slice/docker-123.scope",
        "no line at all",
        "0:",
        "",
    ] {
        assert_eq!(owner_of(line), Owner::Nobody, "{line}");
    }
}

/// A root like `/proc`, with a host's first process.
struct Root(TempDir);

impl Root {
    fn new() -> Root {
        let root = Root(tempfile::tempdir().unwrap());
        fs::create_dir_all(root.0.path().join("1/ns")).unwrap();
        symlink("pid:[4026531836]", root.0.path().join("1/ns/pid")).unwrap();
        root
    }

    fn process(&self, pid: u32, start_ticks: u64, cgroup: &str, environ: &str) {
        let folder = self.0.path().join(pid.to_string());
        fs::create_dir_all(&folder).unwrap();
        let stat = format!("{pid} (python) S 1 {pid} {pid} 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {start_ticks} 0 0\n");
        fs::write(folder.join("stat"), stat).unwrap();
        fs::write(folder.join("cgroup"), format!("{cgroup}\n")).unwrap();
        fs::write(folder.join("environ"), environ.replace('\n', "\0")).unwrap();
        fs::write(folder.join("status"), "Name:\tpython\nUid:\t1500\t0\t0\t0\n").unwrap();
    }

    fn host(&self) -> Host {
        Host::with_ticks(self.0.path(), 100)
    }
}

fn job_path(job: u32) -> String {
    format!("0::/system.slice/slurmstepd.scope/job_{job}/step_0/user/task_0")
}

fn job_of(owner: &Owner) -> &str {
    match owner {
        Owner::Slurm(step) => &step.job,
        other => panic!("{other:?} is no job"),
    }
}

#[test]
fn att_01_a_number_that_is_used_again_is_another_process() {
    let root = Root::new();
    let mut host = root.host();
    root.process(4242, 88_010_000, &job_path(9001), "");
    let first = host.process(4242, 880_125 * SECOND_US).unwrap().clone();
    assert_eq!(first.key, ProcessKey { pid: 4242, start_us: 880_100 * SECOND_US });
    assert_eq!((job_of(&first.owner), first.uid), ("9001", Some(1500)));

    // Twenty seconds later, well before anything known is read again.
    root.process(4242, 88_014_155, &job_path(9002), "");
    let second = host.process(4242, 880_145 * SECOND_US).unwrap().clone();
    assert_eq!(second.key, ProcessKey { pid: 4242, start_us: 880_141_550_000 });
    assert_eq!(job_of(&second.owner), "9002");

    fs::remove_dir_all(root.0.path().join("4242")).unwrap();
    assert!(matches!(host.process(4242, 880_165 * SECOND_US), Err(ReadError::Gone)));
}

#[test]
fn att_02_only_the_hosts_root_is_the_hosts() {
    let root = Root::new();
    assert_eq!(root.host().namespace(), Namespace::Host);
    fs::remove_file(root.0.path().join("1/ns/pid")).unwrap();
    assert_eq!(root.host().namespace(), Namespace::Unknown);
    symlink("pid:[4026532201]", root.0.path().join("1/ns/pid")).unwrap();
    assert_eq!(root.host().namespace(), Namespace::Container);

    // The host's root, mounted elsewhere, tells of the host's processes.
    let mounted = Root::new();
    mounted.process(2101, 100, &job_path(9101), "");
    let pod = "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod2f1c0a9e_5b7d_4c1e_9a55_0d3b7a9c1e42.slice/cri-containerd-H.scope";
    mounted.process(31007, 100, &pod.replace('H', H), "");
    let mut host = mounted.host();
    assert_eq!(job_of(&host.process(2101, 0).unwrap().owner), "9101");
    assert!(
        matches!(&host.process(31007, 0).unwrap().owner, Owner::Pod(pod) if pod.uid == "2f1c0a9e-5b7d-4c1e-9a55-0d3b7a9c1e42")
    );
}

#[test]
fn the_control_group_outranks_what_a_user_wrote() {
    let root = Root::new();
    let mut host = root.host();
    root.process(1001, 5, &job_path(9401), "SLURM_JOB_ID=9401\nSLURM_JOB_ACCOUNT=physics\nHOME=/x\n");
    let honest = host.process(1001, 0).unwrap();
    assert_eq!((honest.slurm.account.as_deref(), &honest.disagreement), (Some("physics"), &None));

    root.process(1002, 5, &job_path(9401), "SLURM_JOB_ID=1\nSLURM_JOB_ACCOUNT=rivals\n");
    let forged = host.process(1002, 0).unwrap();
    assert_eq!((job_of(&forged.owner), forged.slurm.account.as_deref()), ("9401", None));
    let wanted = Disagreement { environment: "1".into(), control_group: Some("9401".into()) };
    assert_eq!(forged.disagreement, Some(wanted));

    root.process(1003, 5, "0::/user.slice/user-1500.slice/session-3.scope", "SLURM_JOB_ID=9401\n");
    let outside = host.process(1003, 0).unwrap();
    assert_eq!(outside.owner, Owner::User { uid: 1500 });
    assert_eq!(outside.disagreement, Some(Disagreement { environment: "9401".into(), control_group: None }));

    // A name instead of a number, which only the scheduler translates.
    root.process(
        1004,
        5,
        "0::/system.slice/slurmstepd.scope/job_s4Fk2/step_0",
        "SLURM_JOB_ID=9406\nSLURM_JOB_USER=eva\n",
    );
    let named = host.process(1004, 0).unwrap();
    assert_eq!((job_of(&named.owner), named.slurm.job.as_deref()), ("s4Fk2", Some("9406")));
    assert_eq!((named.slurm.user.as_deref(), &named.disagreement), (Some("eva"), &None));
}

#[test]
fn a_process_that_is_moved_stopped_or_broken_is_seen_to_be() {
    let root = Root::new();
    let mut host = root.host();
    root.process(7, 5, "0::/user.slice/user-1500.slice/session-3.scope", "");
    assert_eq!(host.process(7, 0).unwrap().owner, Owner::User { uid: 1500 });
    root.process(7, 5, &job_path(9401), "");
    assert_eq!(host.process(7, 59 * SECOND_US).unwrap().owner, Owner::User { uid: 1500 }, "not read again yet");
    assert_eq!(job_of(&host.process(7, 60 * SECOND_US).unwrap().owner), "9401");

    let stat = root.0.path().join("7/stat");
    let text = fs::read_to_string(&stat).unwrap();
    fs::write(&stat, text.replace(") S ", ") T ").replace("python", "py) S (thon")).unwrap();
    let stopped = host.process(7, 61 * SECOND_US).unwrap();
    assert_eq!((stopped.state, stopped.command.as_str()), (RunState::Stopped, "py) S (thon"));
    fs::write(&stat, text.replace(") S ", ") Z ")).unwrap();
    assert!(matches!(host.process(7, 62 * SECOND_US), Err(ReadError::Gone)));
    fs::write(&stat, "7 (python").unwrap();
    let Err(ReadError::Unreadable(message)) = host.process(7, 63 * SECOND_US) else { panic!("it was read") };
    assert!(message.contains("7/stat: it is not of the form"), "{message}");

    // What nobody looked at for a while is read anew.
    fs::write(&stat, text).unwrap();
    host.forget_before(64 * SECOND_US);
    root.process(7, 5, &job_path(9402), "");
    assert_eq!(job_of(&host.process(7, 65 * SECOND_US).unwrap().owner), "9402");
}
