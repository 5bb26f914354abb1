//! Public cases from bug reports, from the driver's C interface and a host's files to time by holder.

use std::collections::BTreeMap;
use std::fs;

use gpuledger_agent::attribute::Rules;
use gpuledger_agent::node::{Node, Place};
use gpuledger_agent::sharing::{Limit, Limited, Sharing, Weight};
use gpuledger_wire::{Clocks, Facts, State};

use super::S;
use super::machine::{BOOTED_FOR, Machine, WALL, clocks, devices, state};

const POD: &str = "2f1c0a9e-5b7d-4c1e-9a55-0d3b7a9c1e42";

/// Seconds of whole GPUs by holder, as what is held by sevenths.
fn seconds(of: &[(&str, i64)]) -> BTreeMap<String, i64> {
    of.iter().map(|(holder, seconds)| ((*holder).to_owned(), seconds * S * 7)).collect()
}

fn as_is(_: &mut Place, _: &mut Rules) {}

#[test]
fn att_01_the_newcomer_under_an_old_number_is_charged_from_its_start() {
    let machine = Machine::new(&devices(&[&(state(0, "", &[4242]) + &state(40, "", &[]))]));
    let group = |job| format!("0::/system.slice/slurmstepd.scope/job_{job}/step_0/user/task_0");
    machine.process_in(4242, "python", &group(9001), 88_010_000);
    let mut node = machine.node(10, as_is);
    let mut held = machine.held(&mut node, &[0, 10]);
    machine.process_in(4242, "python", &group(9002), 88_014_155);
    for (job, us) in machine.held(&mut node, &[20, 30, 40]) {
        *held.entry(job).or_insert(0) += us;
    }
    let wanted = [("9001", 16_550_000), ("9002", 23_450_000)];
    assert_eq!(held, wanted.map(|(job, us)| (job.to_owned(), us * 7)).into());
}

#[test]
fn att_02_only_the_hosts_numbers_are_those_of_the_driver() {
    let machine = Machine::new(&devices(&[&state(0, "", &[2101, 31007])]));
    machine.process(2101, "9101", -1_000);
    let hex = "a".repeat(64);
    let pod = POD.replace('-', "_");
    machine.process_in(
        31007,
        "python",
        &format!(
            "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{pod}.slice/cri-containerd-{hex}.scope"
        ),
        1,
    );
    assert_eq!(machine.held(&mut machine.node(10, as_is), &[0, 10]), seconds(&[("9101", 5), (POD, 5)]));
    // The same driver, but the numbers of a container: one is the collector's own, the other nobody's.
    machine.set_namespace("pid:[4026532201]");
    machine.process_in(2101, "gpuledger-agent", "0::/", 1);
    fs::remove_dir_all(machine.file("proc/31007")).unwrap();
    let mut node = machine.node(10, as_is);
    assert_eq!(machine.held(&mut node, &[0, 10]), seconds(&[("unattributed", 10)]));
    assert!(node.counts().probe_failures["host"] >= 2);
}

#[test]
fn att_03_a_list_of_another_layout_gives_the_time_to_nobody() {
    let bytes = "ed130000 00000000 00000040 00000000 ffffffff ffffffff 00000000 00000000 ee130000 00000000 00000040 00000000 ffffffff ffffffff 00000000 00000000 ef130000 00000000 00000040 00000000 ffffffff ffffffff 00000000 00000000";
    let machine = Machine::new(&devices(&[&state(0, &format!("raw = {{ count = 3, bytes = \"{bytes}\" }}"), &[])]));
    machine.process(5101, "9001", -1_000);
    let mut node = machine.node(10, as_is);
    assert_eq!(machine.held(&mut node, &[0, 10]), seconds(&[("unattributed", 10)]));
    assert_eq!(node.counts().rejected_readings, 2);
}

#[test]
fn att_04_a_list_that_grows_while_it_is_read_names_each_once() {
    let pids = [6001, 6002, 6003, 6004];
    let machine = Machine::new(&devices(&[&state(0, "hidden = [2, 1]", &pids)]));
    pids.iter().for_each(|pid| machine.process(*pid, &pid.to_string(), -1_000));
    let held = machine.held(&mut machine.node(10, as_is), &[0, 10]);
    assert_eq!(held, pids.map(|pid| (pid.to_string(), 2_500_000 * 7)).into());
}

#[test]
fn att_05_memory_that_is_not_known_of_all_is_no_weight_and_the_display_holds_nothing() {
    let entry =
        |pid, list: &str, memory: &str| format!("[[device.state.process]]\npid = {pid}\nlist = \"{list}\"\n{memory}\n");
    let lists = state(0, "", &[])
        + &entry(7001, "compute", "memory_mib = 2048")
        + &entry(7002, "compute", "")
        + &entry(7001, "graphics", "memory_mib = 2048")
        + &entry(7100, "graphics", "memory_mib = 64");
    let machine = Machine::new(&devices(&[&lists]));
    machine.process(7001, "A", -1_000);
    machine.process(7002, "B", -1_000);
    machine.process_in(7100, "Xorg", "0::/system.slice/display-manager.service", 1);
    let mut node = machine.node(10, |place, rules| {
        place.exempt.push("Xorg".into());
        rules.sharing.weight = Weight::Memory;
    });
    assert_eq!(machine.held(&mut node, &[0, 10]), seconds(&[("A", 5), ("B", 5)]));
}

/// GPU instance, compute instance, profile, their slices, first memory slice and count.
type Instance<'a> = (u32, u32, &'a str, u32, (u32, u32));

/// A GPU that is cut.
fn cut(instances: &[Instance<'_>], pids: &[(u32, u32)]) -> String {
    let mut text = String::from(
        "mig_devices_max = 7\n[[device.profile]]\nnumber = 4\nid = 0\nslices = 7\nmost = 1\nmultiprocessors = 98\nmemory_mib = 40000\nplacements = [[0, 8]]\n[[device.state]]\nat = 0\nmig = true\n",
    );
    for (gi, ci, profile, slices, (first, count)) in instances {
        text += &format!(
            "[[device.state.instance]]\nuuid = \"MIG-{gi}-{ci}\"\ngi = {gi}\nci = {ci}\nprofile = \"{profile}\"\ngi_slices = {slices}\nci_slices = {slices}\nplacement = [{first}, {count}]\nmultiprocessors = 14\nmemory_mib = 5000\n"
        );
    }
    for (pid, gi) in pids {
        text += &format!("[[device.state.process]]\npid = {pid}\ngi = {gi}\nci = 0\n");
    }
    text
}

#[test]
fn mig_04_a_process_in_several_instances_holds_each_and_the_whole_gpu_beside() {
    let first = cut(
        &[(3, 0, "2g.20gb", 2, (0, 2)), (5, 0, "1g.10gb", 1, (2, 1)), (9, 0, "1g.10gb", 1, (3, 1))],
        &[(8123, 3), (8123, 5), (8200, 9)],
    );
    let machine = Machine::new(&devices(&[&first, &state(0, "", &[8123])]));
    machine.process(8123, "a", -1_000);
    machine.process(8200, "b", -1_000);
    let held = machine.held(&mut machine.node(60, as_is), &[0, 60]);
    // Of sevenths of a second: 60 × (2 + 1 + 7), 60 × 1, and 60 × 3 that are in no instance.
    let wanted = [("a", 600), ("b", 60), ("Stranded", 180)];
    assert_eq!(held, wanted.map(|(holder, sevenths)| (holder.to_owned(), sevenths * S)).into());
}

#[test]
fn mig_05_each_compute_instance_is_its_own_slices() {
    let mut text = cut(&[], &[]);
    for (ci, slices) in [(0, 1), (1, 2)] {
        text += &format!(
            "[[device.state.instance]]\nuuid = \"MIG-{ci}\"\ngi = 1\nci = {ci}\nprofile = \"{slices}c.3g.40gb\"\ngi_slices = 3\nci_slices = {slices}\nplacement = [0, 4]\nmultiprocessors = 14\nmemory_mib = 40000\n"
        );
    }
    text += "[[device.state.process]]\npid = 1\ngi = 1\nci = 0\n[[device.state.process]]\npid = 2\ngi = 1\nci = 1\n";
    let machine = Machine::new(&devices(&[&text]));
    machine.process(1, "X", -1_000);
    machine.process(2, "Y", -1_000);
    let mut node = machine.node(3_600, as_is);
    let held = machine.held(&mut node, &[0, 3_600]);
    assert_eq!((held["X"], held["Y"]), (3_600 * S, 2 * 3_600 * S));
    let memory: u32 = node.report(clocks_us(3_600)).units.iter().map(|unit| unit.memory_slices).sum();
    assert_eq!(memory, 8, "of the instance's four, by compute slices, and the four that are in none");
}

const fn clocks_us(second: i64) -> i64 {
    (BOOTED_FOR + second) * S
}

#[test]
fn shr_02_clients_of_mps_pay_what_they_were_promised_and_the_server_nothing() {
    let server = "[[device.state.process]]\npid = 4428\nlist = \"compute\"\n";
    let client = |pid| format!("[[device.state.process]]\npid = {pid}\nlist = \"mps\"\n");
    let machine_of = |clients: &[(u32, &str)]| {
        let lists: String = clients.iter().map(|(pid, _)| client(*pid)).collect();
        let machine = Machine::new(&devices(&[&(state(0, "", &[]) + server + &lists)]));
        machine.process_in(4428, "nvidia-cuda-mps", "0::/system.slice/nvidia-mps.service", 1);
        clients.iter().for_each(|(pid, job)| machine.process(*pid, job, -1_000));
        machine
    };
    let limited = |clients: &[(u32, &str)], percents: &[u32]| {
        let machine = machine_of(clients);
        let limits = clients
            .iter()
            .zip(percents)
            .map(|((_, job), percent)| Limit { of: Limited::Job((*job).to_owned()), percent: *percent });
        let mut node = machine.node(600, |place, _| place.limits = limits.collect());
        machine.held(&mut node, &[0, 600, 1_200, 1_800, 2_400, 3_000, 3_600])
    };
    let two = [(4267, "9201"), (4281, "9202")];
    assert_eq!(limited(&two, &[30, 70]), seconds(&[("9201", 1_080), ("9202", 2_520)]));
    assert_eq!(limited(&two, &[20, 30]), seconds(&[("9201", 720), ("9202", 1_080), ("Idle", 1_800)]));
    let three = [(4267, "9201"), (4281, "9202"), (4290, "9203")];
    // A third of each of ten pieces, to the microsecond; together the whole.
    let thirds = limited(&three, &[50, 50, 50]);
    assert!(thirds.values().all(|sevenths| (sevenths / 7 - 1_200 * S).abs() <= 10), "{thirds:?}");
    assert_eq!((thirds.len(), thirds.values().sum::<i64>()), (3, 3_600 * S * 7));
    // The server alone: somebody's work, and nobody knows whose.
    let machine = machine_of(&[]);
    let mut node = machine.node(3_600, as_is);
    assert_eq!(machine.held(&mut node, &[0, 3_600]), seconds(&[("unattributed", 3_600)]));
}

#[test]
fn a_limit_names_a_job_an_account_or_a_user() {
    let labels = BTreeMap::from([("uid".to_owned(), "1500".to_owned())]);
    let facts = Facts { account: "vision".into(), labels, ..Facts::default() };
    let names = |of| Limit { of, percent: 1 }.names("7", &facts);
    assert!(names(Limited::Job("7".into())) && names(Limited::Account("vision".into())) && names(Limited::Uid(1500)));
    assert!(!names(Limited::Job("8".into())) && !names(Limited::Account("v".into())) && !names(Limited::Uid(150)));
}

#[test]
fn shr_03_impossible_samples_are_no_weight_and_those_that_can_be_are() {
    let first = "sm = [{ pid = 41001, percent = 37200, at_us = 217000000000001 }, { pid = 41002, percent = 38100, at_us = 158000000000001 }, { pid = 41003, percent = 0, at_us = 49000 }, { pid = 0, percent = 0, at_us = 0 }]";
    let second = format!(
        "sm = [{{ pid = 41001, percent = 60, at_us = {} }}, {{ pid = 41002, percent = 20, at_us = {} }}]",
        (WALL + 18) * S,
        (WALL + 19) * S
    );
    let states = state(0, first, &[41001, 41002]) + &state(20, &second, &[41001, 41002]);
    let machine = Machine::new(&devices(&[&states]));
    machine.process(41001, "A", -1_000);
    machine.process(41002, "B", -1_000);
    let mut node = machine.node(10, |_, rules| rules.sharing = Sharing { replicas: None, weight: Weight::Sm });
    let held = machine.held(&mut node, &[0, 10, 20]);
    let wanted = [("A", 12_500_000), ("B", 7_500_000)];
    assert_eq!(held, wanted.map(|(job, us)| (job.to_owned(), us * 7)).into());
    // At the first look nothing is too old.
    assert_eq!(node.counts().rejected_readings, 3 + 4);
}

#[test]
fn job_07_a_gpu_is_its_uuid_whatever_its_place_in_a_boot() {
    let named = |uuid: &str, pids: &[u32]| {
        format!(
            "[[device]]\nname = \"x\"\nuuid = \"{uuid}\"\npci = \"00000000:01:00.0\"\nmemory_mib = 24564\n{}",
            state(0, "", pids)
        )
    };
    for order in [["GPU-p100-01", "GPU-a5000-02"], ["GPU-a5000-02", "GPU-p100-01"]] {
        let of = |uuid: &&str| named(uuid, if *uuid == "GPU-a5000-02" { &[5001] } else { &[] });
        let text: String = order.iter().map(of).collect();
        let machine = Machine::new(&format!("driver = \"1\"\n{text}"));
        machine.process(5001, "9601", -1_000);
        fs::write(machine.file("proc/5001/environ"), "SLURM_JOB_ID=9601\0CUDA_VISIBLE_DEVICES=0\0").unwrap();
        let mut node = machine.node(7_200, as_is);
        machine.look(&mut node, 0);
        let pieces = machine.look(&mut node, 7_200).attributed.pieces;
        let held: Vec<_> = pieces.iter().filter(|piece| piece.job.as_deref() == Some("9601")).collect();
        assert!(held.iter().all(|piece| piece.unit.gpu == "GPU-a5000-02"));
        assert_eq!(held.iter().map(|piece| piece.share_us).sum::<i64>(), 7_200 * S);
    }
}

#[test]
fn tim_05_energy_counts_from_zero_after_the_driver_was_loaded_anew() {
    let power = |mw| format!("power_mw = {mw}");
    let states = state(0, &power(100_000), &[1])
        + &state(20, "lost = true\nenergy_restarts = true\npower_mw = 0", &[])
        + &state(30, &power(50_000), &[1]);
    let machine = Machine::new(&devices(&[&states]));
    machine.process(1, "a", -1_000);
    let mut node = machine.node(10, as_is);
    let energy = |node: &mut Node, second| -> Option<u64> {
        let pieces = machine.look(node, second).attributed.pieces;
        let known: Vec<u64> = pieces.iter().filter_map(|piece| piece.telemetry.energy_mj).map(|mj| mj.total).collect();
        (!known.is_empty()).then(|| known.iter().sum())
    };
    let told: Vec<Option<u64>> = [0, 10, 20, 30, 40, 50].map(|second| energy(&mut node, second)).to_vec();
    // What it grew while the device was lost is not known; nothing is ever below zero or counted twice.
    assert_eq!(told, [None, Some(1_000_000), None, None, Some(500_000), Some(500_000)]);
}

#[test]
fn rel_02_one_lost_gpu_and_codes_that_are_no_disasters_take_nothing_from_the_others() {
    let no_samples = state(0, "errors = { nvmlDeviceGetProcessUtilization = 6 }", &[100]);
    let mig = cut(&[(0, 0, "7g.80gb", 7, (0, 8))], &[(101, 0)]);
    let lost = state(0, "", &[102]) + &state(30, "lost = true", &[]);
    let no_power = state(0, "utilisation = 5\nerrors = { nvmlDeviceGetPowerUsage = 1000 }", &[103]);
    let machine = Machine::new(&devices(&[&no_samples, &mig, &lost, &no_power]));
    (100..=103).for_each(|pid| machine.process(pid, &pid.to_string(), -1_000));
    let mut node = machine.node(10, as_is);
    let held = machine.held(&mut node, &[0, 10, 20, 30, 40, 50, 60]);
    let wanted = [("100", 60), ("101", 60), ("102", 30), ("103", 60), ("OutOfService", 30)];
    assert_eq!(held, seconds(&wanted));
    assert_eq!(node.counts().samples, 7);
}

#[test]
fn memory_without_a_process_is_somebodys_and_told_after_two_looks() {
    let states = state(0, "memory_used_mib = 600", &[]) + &state(10, "memory_used_mib = 30000", &[]);
    let machine = Machine::new(&devices(&[&states]));
    let mut node = machine.node(10, as_is);
    let looks: Vec<_> = [0, 10, 20, 30].map(|second| machine.look(&mut node, second)).into();
    let told: Vec<usize> = looks.iter().map(|looked| looked.findings.len()).collect();
    assert_eq!(told, [0, 0, 1, 1]);
    assert_eq!(looks[2].findings, ["GPU-0 is used, and nobody knows by whom: its time goes to the job `unattributed`"]);
    let pieces: Vec<_> = looks.iter().flat_map(|looked| &looked.attributed.pieces).collect();
    let states: Vec<_> = pieces.iter().map(|piece| (piece.job.as_deref(), piece.state, piece.active_us)).collect();
    let nobody = Some("unattributed");
    assert_eq!(states, [(None, State::Idle, 0), (nobody, State::Held, 0), (nobody, State::Held, 0)]);
    assert_eq!(node.counts().unattributed_units, 1);
    // Where a site knows better, it says so.
    let mut node = machine.node(10, |place, _| place.stray_memory_bytes = None);
    assert_eq!(machine.held(&mut node, &[10, 20]), seconds(&[("Idle", 10)]));
}

#[test]
fn processes_that_nobody_saw_are_nobodys_where_no_job_was() {
    let account =
        |pid: u32, second: i64, ms: i64| format!("{{ pid = {pid}, start_us = {}, ms = {ms} }}", (WALL + second) * S);
    let both = format!("accounting = true\naccounts = [{}, {}]", account(7, 12, 3_000), account(8, 14, 4_000));
    let idle = state(0, "accounting = true", &[]) + &state(20, &both, &[]);
    let held = state(0, "accounting = true", &[1]) + &state(20, &both, &[1]);
    let machine = Machine::new(&devices(&[&idle, &held]));
    machine.process(1, "a", -1_000);
    let mut node = machine.node(10, as_is);
    // From 12 to 18: the two overlap. What ran beside a job is taken to be the job's.
    let wanted = [("Idle", 14), ("a", 20), ("unattributed", 6)];
    assert_eq!(machine.held(&mut node, &[0, 10, 20]), seconds(&wanted));
    assert_eq!(node.counts().brief_processes, 4);
}

#[test]
fn an_event_names_the_slice_to_blame_and_who_held_it() {
    let mut text = cut(&[(1, 0, "3g.40gb", 3, (0, 4)), (2, 0, "4g.40gb", 4, (4, 4))], &[(1, 1)]);
    text +=
        "[[device.state.event]]\nkind = 8\ndata = 31\ngi = 1\nci = 0\n[[device.state.event]]\nkind = 8\ndata = 119\n";
    let machine = Machine::new(&devices(&[&text]));
    machine.process(1, "9001", -1_000);
    let mut node = machine.node(10, as_is);
    let told = machine.look(&mut node, 0).findings;
    assert_eq!(told, ["MIG-1-0 (3g.40gb of GPU-0): XID 31, held by 9001", "GPU-0: XID 119"]);
    assert_eq!(node.counts().last_xid["GPU-0"], 119);
}

#[test]
fn gpus_that_slurm_gave_are_held_before_a_process_opens_them() {
    let machine = Machine::new(&devices(&[&state(0, "", &[]), &state(0, "", &[5]), &state(0, "", &[])]));
    machine.process(5, "77", -1_000);
    let group = machine.file("devices/slurm/uid_1500/job_9401");
    fs::create_dir_all(&group).unwrap();
    fs::write(group.join("devices.list"), "c 195:0 rwm\nc 195:1 rwm\nc 195:255 rwm\n").unwrap();
    fs::create_dir_all(machine.file("mapping")).unwrap();
    fs::write(machine.file("mapping/2"), "9402\n").unwrap();
    let mut node = machine.node(10, |place, _| {
        place.cgroup_devices = Some(machine.file("devices"));
        place.job_mapping = Some(machine.file("mapping"));
    });
    machine.look(&mut node, 0);
    let looked = machine.look(&mut node, 10);
    let held: Vec<_> = looked.attributed.pieces.iter().map(|piece| (piece.job.as_deref(), piece.active_us)).collect();
    assert_eq!(held, [(Some("9401"), 0), (Some("9401"), 0), (Some("9402"), 0)]);
    assert_eq!(looked.findings, ["77 uses GPU 1, which was given to job 9401"]);
}

#[test]
fn a_driver_that_is_not_there_yet_or_goes_away_is_waited_for() {
    let text = format!(
        "outages = [{{ from = 0, until = 10 }}, {{ from = 40, until = 50 }}]\n{}",
        devices(&[&state(0, "", &[1])])
    );
    let machine = Machine::new(&text);
    machine.process(1, "a", -1_000);
    let mut node = machine.node(10, as_is);
    let held = machine.held(&mut node, &[0, 10, 20, 30, 40, 50, 60]);
    // Two intervals without an answer are no gap.
    assert_eq!(held, seconds(&[("a", 50)]));
    assert!(node.counts().probe_failures["nvml"] >= 2 && node.counts().samples >= 5);
}

#[test]
fn tim_03_a_clock_that_is_set_changes_no_length_and_is_told() {
    let machine = Machine::new(&devices(&[&state(0, "", &[700])]));
    machine.process(700, "9001", -60);
    let mut node = machine.node(10, |_, _| {});
    let mut told = Vec::new();
    // 12:00:00, 12:00:10, then back by 55 s, on, then forward by two hours.
    for (second, set) in [(0, 0), (10, 0), (20, -55), (30, -55), (40, 7_145)] {
        machine.set_second(second);
        let now = clocks(second);
        told.extend(node.look(Clocks { wall_us: now.wall_us + set * S, ..now }).findings);
    }
    node.end();
    let report = node.report(clocks(40).boot_us);
    let spans: Vec<_> = report.segments.iter().map(|told| (told.start_us, told.end_us, told.share_us)).collect();
    assert_eq!(spans, [(WALL * S, (WALL + 40) * S, 40 * S)]);
    let of = "lengths of time do not depend on it";
    let wanted = ["back by 55000", "forward by 7200000"].map(|by| format!("the wall clock was set {by} ms; {of}"));
    assert_eq!((told, node.counts().clock_steps), (wanted.to_vec(), 2));
}

#[test]
fn a_gpu_that_is_not_read_at_the_look_after_an_hours_edge_is_cut_at_it() {
    // The hour ends at 3,200 s.
    let edge = 3_200;
    assert_eq!((WALL + edge) % 3_600, 0);
    let unread = state(3_195, "errors = { nvmlDeviceGetComputeRunningProcesses = 999 }", &[]);
    let states = [state(0, "", &[700]), unread, state(3_205, "", &[700])].concat();
    let machine = Machine::new(&devices(&[&states, &state(0, "", &[])]));
    machine.process(700, "9001", 0);
    let mut node = machine.node(10, |_, _| {});
    for second in [edge - 10, edge + 1, edge + 10] {
        machine.look(&mut node, second);
    }
    node.end();
    let report = node.report(clocks(edge + 10).boot_us);
    let held = report.segments.iter().filter(|told| told.job.is_some());
    let spans: Vec<_> = held.map(|told| (told.start_us / S - WALL - edge, told.end_us / S - WALL - edge)).collect();
    assert_eq!(spans, [(-10, 0), (0, 10)]);
}
