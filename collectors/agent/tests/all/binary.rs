//! The program itself, on a machine of files.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use gpuledger_wire::{Report, State};
use serde_json::Value;
use tempfile::TempDir;

struct Machine(TempDir);

impl Machine {
    fn new(scenario: &str, second: u64) -> Machine {
        let machine = Machine(tempfile::tempdir().unwrap());
        fs::create_dir_all(machine.file("proc/1/ns")).unwrap();
        symlink("pid:[4026531836]", machine.file("proc/1/ns/pid")).unwrap();
        fs::create_dir_all(machine.file("proc/sys/kernel/random")).unwrap();
        fs::write(machine.file("proc/sys/kernel/random/boot_id"), "b-1\n").unwrap();
        fs::write(machine.file("proc/sys/kernel/hostname"), "gpu01\n").unwrap();
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fake-nvml/scenarios");
        fs::copy(folder.join(scenario), machine.file("node.toml")).unwrap();
        fs::copy(std::env::current_exe().unwrap().with_file_name("libnvidia_ml.so"), machine.file("node.so")).unwrap();
        fs::write(machine.file("node.clock"), (second * 1_000_000).to_string()).unwrap();
        machine.settings("");
        machine
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn settings(&self, more: &str) {
        fs::write(self.file("agent.toml"), format!("cluster = \"c\"\nsample_seconds = 1\nreport_seconds = 1\n{more}"))
            .unwrap();
    }

    fn process(&self, pid: u32, job: &str) {
        let folder = self.file(&format!("proc/{pid}"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("stat"), format!("{pid} (memhog) R 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 1 0 0\n"))
            .unwrap();
        fs::write(folder.join("cgroup"), format!("0::/system.slice/slurmstepd.scope/job_{job}/step_0\n")).unwrap();
        fs::write(folder.join("environ"), "").unwrap();
        fs::write(folder.join("status"), "Uid:\t1500\t1500\t1500\t1500\n").unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpuledger-agent"));
        command.arg("--config").arg(self.file("agent.toml")).arg("--nvml-library").arg(self.file("node.so"));
        command.arg("--proc").arg(self.file("proc")).args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }
}

#[test]
fn one_look_at_the_captured_h100_shows_its_slices_and_who_is_on_them() {
    let machine = Machine::new("h100-mig.toml", 60);
    for pid in [21180, 21181, 21198] {
        machine.process(pid, "9001");
    }
    let output = machine.run(&["--once", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
    let gpu = &seen["gpus"][0];
    assert_eq!((gpu["model"].as_str(), gpu["mig"].as_bool()), (Some("NVIDIA H100 80GB HBM3"), Some(true)));
    let units = gpu["units"].as_array().unwrap();
    let told: Vec<_> = units
        .iter()
        .map(|unit| {
            let number = |name: &str| unit[name].as_u64().unwrap();
            assert_eq!(unit["parent"], gpu["uuid"]);
            let ids = (number("gpu_instance"), number("compute_instance"));
            (
                unit["profile"].as_str().unwrap(),
                ids,
                number("compute_slices"),
                number("memory_bytes") >> 20,
                unit["state"].as_str().unwrap(),
            )
        })
        .collect();
    let wanted = [
        ("3g.40gb", (2, 0), 3, 40_448, "held"),
        ("2g.20gb", (3, 0), 2, 20_096, "idle"),
        ("1g.10gb", (9, 0), 1, 9_984, "idle"),
        ("1g.10gb", (10, 0), 1, 9_984, "idle"),
    ];
    assert_eq!(told, wanted);
    let pids: Vec<u64> =
        units[0]["processes"].as_array().unwrap().iter().map(|one| one["pid"].as_u64().unwrap()).collect();
    assert_eq!((pids, &units[0]["jobs"]), (vec![21180, 21181, 21198], &serde_json::json!(["9001"])));
}

#[test]
fn att_02_outside_the_hosts_namespace_nobody_is_billed_and_it_says_so() {
    let machine = Machine::new("h100-mig.toml", 60);
    machine.process(21180, "of-the-container");
    fs::remove_file(machine.file("proc/1/ns/pid")).unwrap();
    symlink("pid:[4026532201]", machine.file("proc/1/ns/pid")).unwrap();
    let output = machine.run(&["--once"]);
    assert_eq!(output.status.code(), Some(2));
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(seen["gpus"][0]["units"][0]["jobs"], serde_json::json!(["unattributed"]));
    assert!(seen["findings"][0].as_str().unwrap().starts_with("not in the host's namespace of processes"));
}

#[test]
fn a_dry_run_prints_reports_and_ends_in_order_when_it_is_told_to() {
    let machine = Machine::new("h100.toml", 0);
    for pid in [11327, 11328, 11345] {
        machine.process(pid, "9001");
    }
    let mut command = machine.command(&["--dry-run"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    // It reports each second; a signal lets it finish what is open.
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.by_ref().take(2).count() == 2);
    Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    let last: Report = serde_json::from_str(&lines.last().unwrap()).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!((last.node.as_str(), last.boot_id.as_str(), last.head.len()), ("gpu01", "b-1", 0));
    assert!(last.segments.iter().all(|segment| segment.state == State::Held && segment.job == Some(0)));
    assert_eq!(last.jobs[0].source_id, "9001");
    let held: i64 = last.segments.iter().map(|segment| segment.share_us).sum();
    assert!(held > 0 && last.units.len() == 1, "{last:?}");
}

#[test]
fn wrong_settings_say_what_and_how_to_mend_it() {
    let machine = Machine::new("h100.toml", 0);
    let cases = [
        ("sample_second = 1\n", "unknown field `sample_second`"),
        ("service = \"http://far.example\"\n", "must begin with https://"),
        ("service = \"https://far.example\"\n", "token_file is missing"),
        ("service = \"https://far.example\"\ntoken_file = \"/t\"\n", "ca_file is missing"),
        ("[sharing]\nreplicas = 0\n", "sharing.replicas is 0"),
        ("", "the settings name no service"),
    ];
    for (more, wanted) in cases {
        machine.settings(more);
        let output = machine.run(&[]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(wanted), "{said}");
    }
    machine.settings("");
    let checked = machine.run(&["--check"]);
    assert!(String::from_utf8_lossy(&checked.stdout).contains("1 GPUs are seen; no service is named"), "{checked:?}");
}
