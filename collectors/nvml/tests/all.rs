//! What the real bindings read from the fake driver. ATT, MIG and REL are public cases from bug reports.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::fs;
use std::path::{Path, PathBuf};

use gpuledger_nvml::{
    Activity, Condition, Device, Driver, EndedProcess, Event, EventKind, InstanceIds, MigState, Placement, Processes,
    Since, SliceCounts, SmSample, Sweep,
};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
const SECOND_US: u64 = 1_000_000;

/// A node with a copy of the fake driver's library, which plays what is beside it, at the time that is set.
struct Node(TempDir);

impl Node {
    fn new(scenario: &str) -> Node {
        let node = Node(tempfile::tempdir().unwrap());
        // Cargo builds it beside the tests.
        let built = std::env::current_exe().unwrap().with_file_name("libnvidia_ml.so");
        fs::copy(built, node.library()).unwrap();
        fs::write(node.library().with_extension("toml"), scenario).unwrap();
        node.set_second(0);
        node
    }

    fn of_file(name: &str) -> Node {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fake-nvml/scenarios");
        Node::new(&fs::read_to_string(folder.join(name)).unwrap())
    }

    fn library(&self) -> PathBuf {
        self.0.path().join("node.so")
    }

    fn set_second(&self, second: u64) {
        fs::write(self.library().with_extension("clock"), (second * SECOND_US).to_string()).unwrap();
    }

    fn driver(&self) -> Driver {
        Driver::load(Some(&self.library())).unwrap()
    }
}

fn since(after_us: u64, until_us: u64) -> Since {
    Since { after_us, until_us, pid_max: Some(4_194_304) }
}

fn look(driver: &mut Driver) -> Sweep {
    driver.look(since(0, 0))
}

fn pids(device: &Device) -> Vec<u32> {
    match &device.processes {
        Processes::Read(processes) => processes.iter().map(|process| process.pid).collect(),
        other => panic!("{other:?}"),
    }
}

/// `count` devices of a plain kind, named `GPU-0` and so on, each with the lines of its states.
fn devices(states: &[&str]) -> String {
    let mut text = String::from("driver = \"590.48.01\"\n");
    for (index, state) in states.iter().enumerate() {
        text += &format!(
            "[[device]]\nname = \"NVIDIA A10\"\nuuid = \"GPU-{index}\"\npci = \"00000000:0{index}:00.0\"\nmemory_mib = 23028\n{state}\n"
        );
    }
    text
}

#[test]
fn the_captured_h100_is_read_with_its_slices_and_processes() {
    let node = Node::of_file("h100-mig.toml");
    node.set_second(30);
    let sweep = look(&mut node.driver());
    assert_eq!((sweep.driver.as_str(), sweep.failures.as_slice(), sweep.reload), ("590.48.01", &[][..], false));
    let device = &sweep.devices[0];
    assert_eq!(device.identity.model, "NVIDIA H100 80GB HBM3");
    assert_eq!(device.identity.pci_address, "00000000:00:09.0");
    assert_eq!(device.identity.slices, SliceCounts { compute: 7, memory: 8 });
    let MigState::On { instances, has_room } = &device.mig else { panic!("{:?}", device.mig) };
    assert!(!has_room, "seven of seven compute slices are taken");
    let read: Vec<_> = instances
        .iter()
        .map(|one| {
            (
                one.ids.gpu_instance,
                one.ids.compute_instance,
                one.profile.as_str(),
                one.compute_slices,
                one.placement.size,
            )
        })
        .collect();
    assert_eq!(
        read,
        [(2, 0, "3g.40gb", 3, 4), (3, 0, "2g.20gb", 2, 2), (9, 0, "1g.10gb", 1, 1), (10, 0, "1g.10gb", 1, 1)]
    );
    assert_eq!(instances[0].memory_bytes, Some(40_448 * MIB));
    assert_eq!(instances[0].memory_used_bytes, Some(11_091 * MIB));
    assert_eq!(instances[1].uuid, "MIG-00000001-0000-0000-0000-000000000001");
    assert_eq!(instances[1].placement, Placement { start: 0, size: 2 });
    let Processes::Read(processes) = &device.processes else { panic!("{:?}", device.processes) };
    let ids = Some(InstanceIds { gpu_instance: 2, compute_instance: 0 });
    let read: Vec<_> = processes.iter().map(|one| (one.pid, one.instance, one.memory_bytes.unwrap() / MIB)).collect();
    assert_eq!(read, [(21180, ids, 2296), (21181, ids, 1272), (21198, ids, 7484)]);
    assert_eq!((device.utilisation_percent, device.power_mw), (None, Some(432_210)), "MIG has no utilisation");
    assert_eq!(device.energy_mj, Some(30 * 432_210));
}

#[test]
fn devices_that_are_not_cut_are_read_whole() {
    for (file, model, pid) in [("h100.toml", "NVIDIA H100 80GB HBM3", 11327), ("h200.toml", "NVIDIA H200", 10291)] {
        let node = Node::of_file(file);
        let sweep = look(&mut node.driver());
        let device = &sweep.devices[0];
        assert_eq!((device.identity.model.as_str(), &device.mig, pids(device)[0]), (model, &MigState::Off, pid));
        assert_eq!(device.utilisation_percent, Some(100));
        assert_eq!(sweep.failures, [""; 0]);
    }
}

#[test]
fn rel_02_one_lost_device_and_codes_that_are_no_disasters_leave_the_others_alone() {
    let fine = "[[device.state]]\nat = 0\nutilisation = 50\npower_mw = 100000\n[[device.state.process]]\npid = 100\n";
    let mig = "mig_devices_max = 7\n[[device.state]]\nat = 0\nmig = true\n[[device.state.instance]]\nuuid = \"MIG-1\"\ngi = 0\nci = 0\nprofile = \"7g.80gb\"\ngi_slices = 7\nci_slices = 7\nplacement = [0, 8]\nmultiprocessors = 98\nmemory_mib = 80000\n[[device.state.process]]\npid = 101\ngi = 0\nci = 0\n";
    let lost =
        "[[device.state]]\nat = 0\n[[device.state.process]]\npid = 102\n[[device.state]]\nat = 30\nlost = true\n";
    let no_power = "[[device.state]]\nat = 0\nutilisation = 0\npower_mw = 1\nerrors = { nvmlDeviceGetPowerUsage = 21 }\n[[device.state.process]]\npid = 103\n";
    let node = Node::new(&devices(&[fine, mig, lost, no_power]));
    let mut driver = node.driver();
    for second in [0, 10, 20, 30, 40, 50] {
        node.set_second(second);
        let sweep = look(&mut driver);
        assert_eq!(sweep.devices.len(), 4);
        assert!(!sweep.reload);
        for (index, pid) in [(0, 100), (1, 101), (3, 103)] {
            assert_eq!((&sweep.devices[index].condition, pids(&sweep.devices[index])), (&Condition::Fine, vec![pid]));
        }
        assert_eq!(sweep.devices[0].sm_samples, [], "nothing new is no error");
        assert_eq!(sweep.devices[1].utilisation_percent, None);
        assert_eq!(sweep.devices[3].power_mw, None);
        let gone = &sweep.devices[2];
        assert_eq!(gone.identity.uuid, "GPU-2");
        if second < 30 {
            assert_eq!((pids(gone), sweep.failures.len()), (vec![102], 0));
        } else {
            assert!(matches!(gone.condition, Condition::Lost(_)) && matches!(gone.processes, Processes::Failed(_)));
            assert_eq!(sweep.failures.len(), 1, "{:?}", sweep.failures);
            assert!(sweep.failures[0].starts_with("GPU-2 (device 2): "), "{:?}", sweep.failures);
        }
    }
}

#[test]
fn att_03_a_list_of_another_layout_is_rejected_whole() {
    let bytes: String = [0x13ed_u32, 0x13ee, 0x13ef]
        .iter()
        .map(|pid| {
            let pid: String = pid.to_le_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{pid}00000000 0000004000000000 ffffffffffffffff 0000000000000000 ")
        })
        .collect();
    let state = format!("[[device.state]]\nat = 0\nraw = {{ count = 3, bytes = \"{bytes}\" }}\n");
    let sweep = look(&mut Node::new(&devices(&[&state])).driver());
    assert!(matches!(&sweep.devices[0].processes, Processes::Rejected(why) if why.contains("process 0")));
    assert!(sweep.failures[0].contains("its list of processes is rejected"), "{:?}", sweep.failures);
}

#[test]
fn att_04_a_list_that_grows_while_it_is_read_is_read_again() {
    let processes: String = (6001..=6020).map(|pid| format!("[[device.state.process]]\npid = {pid}\n")).collect();
    // Two counts that are too low by more than the bindings leave room for, then the right one.
    let grows = format!("[[device.state]]\nat = 0\nhidden = [18, 10]\n{processes}");
    let sweep = look(&mut Node::new(&devices(&[&grows])).driver());
    assert_eq!(pids(&sweep.devices[0]), (6001..=6020).collect::<Vec<_>>());
    // It never stops growing.
    let forever = format!("[[device.state]]\nat = 0\nhidden = [{}]\n{processes}", ["10"; 100].join(", "));
    let sweep = look(&mut Node::new(&devices(&[&forever])).driver());
    assert!(matches!(sweep.devices[0].processes, Processes::Failed(_)));
    assert_eq!(sweep.failures.len(), 1, "{:?}", sweep.failures);
}

#[test]
fn shr_03_impossible_utilisation_is_no_measurement() {
    let now = 1_750_000_000 * SECOND_US;
    let leftovers = "{ pid = 41001, percent = 37200, at_us = 217000000000001 }, { pid = 41002, percent = 38100, at_us = 158000000000001 }, { pid = 41003, percent = 0, at_us = 49000 }, { pid = 0, percent = 0, at_us = 0 }, { pid = 41001, percent = 4294967295, at_us = 1749999999000000 }";
    let valid = "{ pid = 41001, percent = 60, at_us = 1749999998000000 }, { pid = 41002, percent = 20, at_us = 1749999999000000 }";
    let node = Node::new(&devices(&[&format!(
        "[[device.state]]\nat = 0\nsm = [{leftovers}]\n[[device.state]]\nat = 10\nsm = [{valid}]\n"
    )]));
    let mut driver = node.driver();
    assert_eq!(driver.look(since(now - 10 * SECOND_US, now)).devices[0].sm_samples, []);
    node.set_second(10);
    let sample = |pid, percent, at_us| SmSample { pid, percent, at_us };
    assert_eq!(
        driver.look(since(now - 10 * SECOND_US, now)).devices[0].sm_samples,
        [sample(41001, 60, now - 2 * SECOND_US), sample(41002, 20, now - SECOND_US)]
    );
    assert_eq!(driver.look(since(now - SECOND_US, now)).devices[0].sm_samples, [], "they were seen before");
}

#[test]
fn a_layout_is_read_anew_at_each_look() {
    let node = Node::of_file("h100-mig.toml");
    let mut driver = node.driver();
    let before = look(&mut driver);
    let text = fs::read_to_string(node.library().with_extension("toml")).unwrap();
    assert!(matches!(&before.devices[0].mig, MigState::On { instances, .. } if instances.len() == 4));
    drop(driver);

    // One small instance is left: another of three compute slices would fit.
    let (head, _) = text.split_once("# As it was captured, under load.").unwrap();
    let instance = "[[device.state.instance]]\nuuid = \"MIG-9\"\ngi = 9\nci = 1\nprofile = \"1c.2g.20gb\"\ngi_slices = 2\nci_slices = 1\nplacement = [0, 2]\nmultiprocessors = 16\nmemory_mib = 20096\n";
    let cut = Node::new(&format!(
        "{head}[[device.state]]\nat = 0\nmig = true\nmig_pending = false\n{instance}[[device.state]]\nat = 10\nmig = false\n"
    ));
    let mut driver = cut.driver();
    let sweep = look(&mut driver);
    let MigState::On { instances, has_room } = &sweep.devices[0].mig else { panic!() };
    assert!(*has_room && sweep.devices[0].mode_pending);
    assert_eq!(
        (instances[0].profile.as_str(), instances[0].compute_slices, instances[0].gpu_instance_slices),
        ("1c.2g.20gb", 1, 2)
    );
    cut.set_second(10);
    assert_eq!(look(&mut driver).devices[0].mig, MigState::Off);
}

#[test]
fn a_driver_that_goes_and_comes_is_loaded_again() {
    let state = "[[device.state]]\nat = 0\n[[device.state.process]]\npid = 1\n";
    let node = Node::new(&format!(
        "outages = [{{ from = 0, until = 5 }}, {{ from = 20, until = 30 }}]\n{}",
        devices(&[state])
    ));
    let error = Driver::load(Some(&node.library())).unwrap_err();
    assert!(error.to_string().contains("node.so: "), "{error}");
    node.set_second(5);
    let mut driver = node.driver();
    assert_eq!(pids(&look(&mut driver).devices[0]), [1]);
    node.set_second(20);
    let gone = look(&mut driver);
    assert!(gone.reload && gone.devices.is_empty() && gone.failures.len() == 1, "{gone:?}");
    drop(driver);
    assert!(Driver::load(Some(&node.library())).is_err());
    node.set_second(30);
    assert_eq!(pids(&look(&mut node.driver()).devices[0]), [1]);
    assert!(Driver::load(Some(Path::new("/nonexistent/libnvidia-ml.so"))).is_err());
}

#[test]
fn activity_is_measured_between_two_looks_and_only_where_it_is_one_units_own() {
    let whole = "[[device.state]]\nat = 0\nactivity = { sm = 100000, occupancy = 50000, tensor = 0 }\n[[device.state]]\nat = 20\nactivity = { sm = 300000, occupancy = 50000, tensor = 20002 }\n[[device.state]]\nat = 40\nerrors = { nvmlGpmSampleGet = 999 }\n[[device.state]]\nat = 50\nactivity = { sm = 1, occupancy = 2, tensor = 3, memory = 4 }\n";
    let instance = |ci: u32, gi: u32| {
        format!(
            "[[device.state.instance]]\nuuid = \"MIG-{gi}-{ci}\"\ngi = {gi}\nci = {ci}\nprofile = \"1g\"\ngi_slices = 2\nci_slices = 1\nplacement = [0, 1]\nmultiprocessors = 14\nmemory_mib = 9984\nactivity = {{ sm = 10, occupancy = 20, tensor = 30, memory = 40 }}\n"
        )
    };
    let cut = format!(
        "mig_devices_max = 7\n[[device.state]]\nat = 0\nmig = true\n{}{}{}",
        instance(0, 1),
        instance(0, 2),
        instance(1, 2)
    );
    let node = Node::new(&devices(&[whole, &cut, "[[device.state]]\nat = 0\n"]));
    let mut driver = node.driver();
    let activity = |sm, occupancy, tensor, memory_ppm| {
        Some(Activity { sm_ppm: Some(sm), occupancy_ppm: Some(occupancy), tensor_ppm: Some(tensor), memory_ppm })
    };
    let mut at = |second| {
        node.set_second(second);
        look(&mut driver)
    };
    assert!(at(0).devices.iter().all(|device| device.activity.is_none()), "nothing is known of the time before");
    let sweep = at(10);
    assert_eq!(sweep.devices[0].activity, activity(100_000, 50_000, 0, None));
    let MigState::On { instances, .. } = &sweep.devices[1].mig else { panic!("{sweep:?}") };
    let of_slices: Vec<_> = instances.iter().map(|instance| instance.activity).collect();
    assert_eq!(of_slices, [activity(10, 20, 30, Some(40)), None, None], "two share what is measured of instance 2");
    assert_eq!((sweep.devices[1].activity, sweep.devices[2].activity), (None, None));
    assert_eq!(at(30).devices[0].activity, activity(200_000, 50_000, 10_001, None));
    let sweep = at(40);
    assert_eq!((sweep.devices[0].activity, sweep.failures.len()), (None, 1));
    assert_eq!(at(50).devices[0].activity, None, "what is measured does not reach over what failed");
    assert_eq!(at(60).devices[0].activity, activity(1, 2, 3, Some(4)));
}

#[test]
fn events_name_the_device_and_the_slice_to_blame_and_are_told_once() {
    let state = "[[device.state]]\nat = 0\n[[device.state]]\nat = 10\n[[device.state.event]]\nkind = 8\ndata = 31\ngi = 2\nci = 0\n[[device.state.event]]\nkind = 2\n[[device.state]]\nat = 20\nlost = true\n[[device.state.event]]\nkind = 8\ndata = 79\n";
    let node = Node::new(&devices(&["[[device.state]]\nat = 0\n", state]));
    let mut driver = node.driver();
    let event = |kind, gpu_instance, compute_instance| Event {
        gpu: Some("GPU-1".into()),
        kind,
        gpu_instance,
        compute_instance,
    };
    assert_eq!(look(&mut driver).events, []);
    node.set_second(10);
    let both = [event(EventKind::Xid(31), Some(2), Some(0)), event(EventKind::DoubleBitEcc, None, None)];
    assert_eq!(look(&mut driver).events, both);
    assert_eq!(look(&mut driver).events, []);
    node.set_second(20);
    assert_eq!(look(&mut driver).events, [event(EventKind::Xid(79), None, None)], "a lost device is named, too");
}

#[test]
fn accounts_tell_of_processes_that_began_and_ended_between_two_looks() {
    let began = |second: u64| 1_750_000_000_000_000 + second * SECOND_US;
    let account = |pid: u32, second: u64, ms: Option<u64>| {
        let ms = ms.map(|ms| format!(", ms = {ms}")).unwrap_or_default();
        format!("{{ pid = {pid}, start_us = {}{ms} }}", began(second))
    };
    let state = |at: u64, accounts: &[String]| {
        format!("[[device.state]]\nat = {at}\naccounting = true\naccounts = [{}]\n", accounts.join(", "))
    };
    let old = account(1, 0, Some(500));
    let states = state(0, std::slice::from_ref(&old))
        + &state(10, &[old.clone(), account(2, 13, Some(2_500)), account(3, 14, None), account(0, 14, Some(1))])
        + &state(20, &[old, account(2, 13, Some(2_500)), account(3, 14, Some(8_000)), account(4, 21, Some(90_000))]);
    let node = Node::new(&devices(&[&states, "[[device.state]]\nat = 0\n"]));
    let mut driver = node.driver();
    let mut at = |second: u64, after: u64, until: u64| {
        node.set_second(second);
        driver.look(since(began(after), began(until))).devices[0].ended.clone()
    };
    assert_eq!(at(0, 0, 10), [], "what was there before is of nobody's time");
    let ended = |pid, from, until| EndedProcess { pid, start_us: from, end_us: until };
    assert_eq!(at(10, 10, 20), [ended(2, began(13), began(13) + 2_500_000)]);
    assert_eq!(
        at(20, 20, 30),
        [ended(4, began(21), began(30))],
        "3 was seen while it ran; 4 ends by now at the latest"
    );
    assert_eq!(at(20, 30, 40), []);
}
