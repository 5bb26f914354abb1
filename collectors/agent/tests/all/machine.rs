//! A machine of files: a fake driver with its scenario and clock, and a `/proc`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use gpuledger_agent::attribute::{Piece, Rules};
use gpuledger_agent::node::{Looked, Node, Place};
use gpuledger_agent::sharing::Sharing;
use gpuledger_wire::Clocks;
use tempfile::TempDir;

use super::S;

/// Seconds since the boot when a scenario begins, and then the wall clock's seconds.
pub(crate) const BOOTED_FOR: i64 = 880_125;
pub(crate) const WALL: i64 = 1_750_000_000;

pub(crate) struct Machine(TempDir);

impl Machine {
    pub(crate) fn new(scenario: &str) -> Machine {
        let machine = Machine(tempfile::tempdir().unwrap());
        fs::create_dir_all(machine.file("proc/1/ns")).unwrap();
        machine.set_namespace("pid:[4026531836]");
        fs::create_dir_all(machine.file("proc/sys/kernel/random")).unwrap();
        fs::write(machine.file("proc/sys/kernel/random/boot_id"), "b-1\n").unwrap();
        fs::write(machine.file("proc/sys/kernel/hostname"), "gpu01\n").unwrap();
        fs::write(machine.file("proc/sys/kernel/pid_max"), "4194304\n").unwrap();
        fs::copy(std::env::current_exe().unwrap().with_file_name("libnvidia_ml.so"), machine.file("node.so")).unwrap();
        fs::write(machine.file("node.toml"), scenario).unwrap();
        machine.set_second(0);
        machine
    }

    pub(crate) fn of_file(name: &str) -> Machine {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fake-nvml/scenarios");
        Machine::new(&fs::read_to_string(folder.join(name)).unwrap())
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn set_namespace(&self, name: &str) {
        let link = self.file("proc/1/ns/pid");
        let _ = fs::remove_file(&link);
        symlink(name, link).unwrap();
    }

    pub(crate) fn set_second(&self, second: i64) {
        fs::write(self.file("node.clock"), (second * S).to_string()).unwrap();
    }

    /// A process of a Slurm job, started at a second of the scenario.
    pub(crate) fn process(&self, pid: u32, job: &str, started: i64) {
        let cgroup = format!("0::/system.slice/slurmstepd.scope/job_{job}/step_0/user/task_0");
        self.process_in(pid, "python", &cgroup, (BOOTED_FOR + started) * 100);
    }

    /// A process in a control group, started at a clock tick since the boot.
    pub(crate) fn process_in(&self, pid: u32, command: &str, cgroup: &str, ticks: i64) {
        let folder = self.file(&format!("proc/{pid}"));
        fs::create_dir_all(&folder).unwrap();
        let stat = format!("{pid} ({command}) R 1 {pid} {pid} 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {ticks} 0 0\n");
        fs::write(folder.join("stat"), stat).unwrap();
        fs::write(folder.join("cgroup"), format!("{cgroup}\n")).unwrap();
        fs::write(folder.join("environ"), "").unwrap();
        fs::write(folder.join("status"), "Uid:\t1500\t1500\t1500\t1500\n").unwrap();
    }

    pub(crate) fn node(&self, interval: i64, change: impl FnOnce(&mut Place, &mut Rules)) -> Node {
        let mut place =
            Place { proc: self.file("proc"), nvml_library: Some(self.file("node.so")), ..Place::new("c", "gpu01") };
        let mut rules = Rules { interval_us: interval * S, sharing: Sharing::default() };
        change(&mut place, &mut rules);
        Node::begin(place, rules, clocks(0), 1).unwrap()
    }

    pub(crate) fn look(&self, node: &mut Node, second: i64) -> Looked {
        self.set_second(second);
        node.look(clocks(second))
    }

    /// What came of looks at these seconds, by holder or state, in microseconds of whole GPUs times seven.
    pub(crate) fn held(&self, node: &mut Node, seconds: &[i64]) -> BTreeMap<String, i64> {
        let pieces: Vec<Piece> = seconds.iter().flat_map(|second| self.look(node, *second).attributed.pieces).collect();
        let mut sums = BTreeMap::new();
        for piece in &pieces {
            let holder = piece.job.clone().unwrap_or_else(|| format!("{:?}", piece.state));
            let sevenths = match &piece.unit.shape {
                gpuledger_agent::sample::UnitShape::Full => 7,
                shape => i64::from(shape.slices(&super::gpu("")).0),
            };
            *sums.entry(holder).or_insert(0) += piece.share_us * sevenths;
        }
        sums
    }
}

pub(crate) fn clocks(second: i64) -> Clocks {
    Clocks { wall_us: (WALL + second) * S, boot_us: (BOOTED_FOR + second) * S }
}

/// Devices of a plain kind, named `GPU-0` and so on, each with the lines of its states.
pub(crate) fn devices(states: &[&str]) -> String {
    let mut text = String::from("driver = \"590.48.01\"\n");
    for (index, state) in states.iter().enumerate() {
        text += &format!(
            "[[device]]\nname = \"NVIDIA A10\"\nuuid = \"GPU-{index}\"\npci = \"00000000:0{index}:00.0\"\nmemory_mib = 81920\n{state}\n"
        );
    }
    text
}

/// A state from a second on, with more lines and processes on the whole device.
pub(crate) fn state(at: i64, more: &str, pids: &[u32]) -> String {
    let processes: String = pids.iter().map(|pid| format!("[[device.state.process]]\npid = {pid}\n")).collect();
    format!("[[device.state]]\nat = {at}\n{more}\n{processes}")
}
