//! The agent's looks at a fake driver and a fake host, through reports, the roll-up and statements: to the microsecond.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use gpuledger::workflows::close::close;
use gpuledger::workflows::ingest::{Ingest, Taken};
use gpuledger::workflows::reconcile::reconcile;
use gpuledger::workflows::{roll_up, statements};
use gpuledger_agent::attribute::Rules;
use gpuledger_agent::node::{Node, Place};
use gpuledger_agent::sharing::Sharing;
use gpuledger_db::catalogue::CatalogueKind;
use gpuledger_db::{Db, allocation, usage};
use gpuledger_domain::calendar::{BillingCalendar, Month};
use gpuledger_domain::metering::State;
use gpuledger_domain::time::{Instant, Interval};
use gpuledger_wire::{Answer, Clocks, Outcome, PROTOCOL, Settings};
use tempfile::TempDir;

use crate::reports::catalogues;
use crate::support::jobs::apply_text;
use crate::support::reports::{SECOND_US, at, ingest, take};
use crate::support::{Books, on_both};

/// Seconds since the boot when the scenario begins.
pub(crate) const BOOTED_FOR: i64 = 1_000;
/// Alone, then beside another job; the number used again by a third; lost; back and idle.
const WHOLE: &str = r#"
[[device]]
name = "NVIDIA A10"
uuid = "GPU-whole"
pci = "00000000:01:00.0"
memory_mib = 23028
[[device.state]]
at = 0
power_mw = 150000
[[device.state.process]]
pid = 100
[[device.state]]
at = 600
power_mw = 150000
[[device.state.process]]
pid = 100
[[device.state.process]]
pid = 200
[[device.state]]
at = 1200
power_mw = 150000
[[device.state.process]]
pid = 100
[[device.state]]
at = 1800
lost = true
[[device.state]]
at = 2400
power_mw = 50000
"#;
/// Two slices, then none for five minutes, then one.
const CUT: &str = r#"
[[device]]
name = "NVIDIA H100 80GB HBM3"
uuid = "GPU-cut"
pci = "00000000:02:00.0"
memory_mib = 81559
mig_devices_max = 7
[[device.profile]]
number = 0
id = 19
slices = 1
most = 7
multiprocessors = 16
memory_mib = 9984
placements = [[0, 1], [1, 1], [2, 1], [3, 1], [4, 1], [5, 1], [6, 1]]
[[device.profile]]
number = 4
id = 0
slices = 7
most = 1
multiprocessors = 132
memory_mib = 81152
placements = [[0, 8]]
[[device.state]]
at = 0
mig = true
[[device.state.instance]]
uuid = "MIG-1"
gi = 1
ci = 0
profile = "4g.40gb"
gi_slices = 4
ci_slices = 4
placement = [0, 4]
multiprocessors = 64
memory_mib = 40448
[[device.state.instance]]
uuid = "MIG-2"
gi = 2
ci = 0
profile = "3g.40gb"
gi_slices = 3
ci_slices = 3
placement = [4, 4]
multiprocessors = 60
memory_mib = 40448
[[device.state.process]]
pid = 300
gi = 2
ci = 0
[[device.state]]
at = 1200
mig = true
[[device.state]]
at = 1500
mig = true
[[device.state.instance]]
uuid = "MIG-1"
gi = 1
ci = 0
profile = "7g.80gb"
gi_slices = 7
ci_slices = 7
placement = [0, 8]
multiprocessors = 132
memory_mib = 81152
[[device.state.process]]
pid = 400
gi = 1
ci = 0
"#;
const PRICES: &str = "[[sku]]\ncode = \"a10/full\"\naliases = [\"NVIDIA A10/full\"]\n[[sku]]\ncode = \"h100/full\"\naliases = [\"NVIDIA H100 80GB HBM3/full\"]\n[[sku]]\ncode = \"h100/3g.40gb\"\naliases = [\"NVIDIA H100 80GB HBM3/3g.40gb\"]\ncompute = \"3/7\"\nmemory = \"4/8\"\n[[sku]]\ncode = \"h100/7g.80gb\"\naliases = [\"NVIDIA H100 80GB HBM3/7g.80gb\"]\ncompute = \"7/7\"\nmemory = \"8/8\"\n[[price]]\nsku = \"a10/full\"\nrate = \"3.60\"\n[[price]]\nsku = \"h100/full\"\nrate = \"7.00\"\n";

/// A machine of files.
pub(crate) struct Machine(TempDir);

impl Machine {
    pub(crate) fn new(devices: &str) -> Machine {
        let machine = Machine(tempfile::tempdir().unwrap());
        fs::create_dir_all(machine.proc().join("1/ns")).unwrap();
        symlink("pid:[4026531836]", machine.proc().join("1/ns/pid")).unwrap();
        fs::create_dir_all(machine.proc().join("sys/kernel/random")).unwrap();
        fs::write(machine.proc().join("sys/kernel/random/boot_id"), "b-1\n").unwrap();
        fs::write(machine.proc().join("sys/kernel/pid_max"), "4194304\n").unwrap();
        let built = std::env::current_exe().unwrap().with_file_name("libnvidia_ml.so");
        fs::copy(built, machine.library()).unwrap();
        fs::write(machine.library().with_extension("toml"), format!("driver = \"590.48.01\"\n{devices}")).unwrap();
        machine
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn proc(&self) -> PathBuf {
        self.file("proc")
    }

    pub(crate) fn library(&self) -> PathBuf {
        self.file("node.so")
    }

    /// A process of a Slurm job, started at a second of the scenario.
    pub(crate) fn process(&self, pid: u32, job: &str, account: &str, started: i64) {
        let folder = self.proc().join(pid.to_string());
        fs::create_dir_all(&folder).unwrap();
        let ticks = (BOOTED_FOR + started) * 100;
        let stat = format!("{pid} (python) R 1 {pid} {pid} 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {ticks} 0 0\n");
        fs::write(folder.join("stat"), stat).unwrap();
        let cgroup = format!("0::/system.slice/slurmstepd.scope/job_{job}/step_0/user/task_0\n");
        fs::write(folder.join("cgroup"), cgroup).unwrap();
        fs::write(folder.join("environ"), format!("SLURM_JOB_ID={job}\0SLURM_JOB_ACCOUNT={account}\0SECRET=x\0"))
            .unwrap();
        fs::write(folder.join("status"), "Uid:\t1500\t1500\t1500\t1500\n").unwrap();
    }

    pub(crate) fn node(&self, clocks: Clocks) -> Node {
        let place = Place { proc: self.proc(), nvml_library: Some(self.library()), ..Place::new("c", "n1") };
        let rules = Rules { interval_us: 10 * SECOND_US, sharing: Sharing::default() };
        Node::begin(place, rules, clocks, 7).unwrap()
    }
}

pub(crate) fn clocks(from: Instant, second: i64) -> Clocks {
    Clocks { wall_us: from.micros() + second * SECOND_US, boot_us: (BOOTED_FOR + second) * SECOND_US }
}

/// Sends what the node has to tell, and gives it the answer.
fn sends(db: &mut Db, ingest: &mut Ingest, node: &mut Node, clocks: Clocks) {
    let taken = sends_whatever_comes_of_it(db, ingest, node, clocks);
    assert!(taken.records.iter().all(|record| record.outcome == Outcome::Accepted), "{taken:?}");
}

pub(crate) fn sends_whatever_comes_of_it(db: &mut Db, ingest: &mut Ingest, node: &mut Node, clocks: Clocks) -> Taken {
    let report = node.report(clocks.boot_us);
    let taken = take(db, ingest, &report, Instant::from_micros(clocks.wall_us));
    let settings = Settings {
        version: "1".into(),
        cuts_us: Vec::new(),
        sample_interval_us: 10 * SECOND_US,
        report_interval_us: 60 * SECOND_US,
    };
    let Taken { records, head } = taken.clone();
    node.answered(&Answer { protocol: PROTOCOL, records, head, settings });
    taken
}

/// An hour of a node, looked at each ten seconds, reported each minute.
fn an_hour(db: &mut Db, calendar: &BillingCalendar, from: Instant) {
    let machine = Machine::new(&format!("{WHOLE}{CUT}"));
    machine.process(100, "1", "a", -5);
    machine.process(300, "4", "a", -5);
    let (mut node, mut ingest) = (machine.node(clocks(from, 0)), ingest(calendar));
    for second in (0..=3_600).step_by(10) {
        match second {
            600 => machine.process(200, "2", "b", 600),
            // The number is used again five seconds before the look that sees it.
            1_200 => machine.process(100, "3", "b", 1_195),
            1_500 => machine.process(400, "5", "a", 1_500),
            _ => {}
        }
        fs::write(machine.library().with_extension("clock"), (second * SECOND_US).to_string()).unwrap();
        let looked = node.look(clocks(from, second));
        let lost = (1_800..2_400).contains(&second);
        assert_eq!(looked.findings.len(), usize::from(lost), "{second}: {:?}", looked.findings);
        if second % 60 == 0 {
            sends(db, &mut ingest, &mut node, clocks(from, second));
        }
    }
    node.end();
    sends(db, &mut ingest, &mut node, clocks(from, 3_600));
    assert_eq!(node.waiting(), 0);
}

fn an_hour_of_a_node_is_charged_as_an_oracle_says_and_reconciles(books: Books) {
    let books = books.migrated("UTC");
    let (mut db, calendar) = (books.db(), BillingCalendar::new("UTC").unwrap());
    catalogues(&mut db, &calendar);
    apply_text(&mut db, &calendar, CatalogueKind::Prices, PRICES).unwrap();
    let from = at("2025-03-10T10:00:00Z");
    an_hour(&mut db, &calendar, from);
    roll_up::roll_up(&mut db, &calendar, None).unwrap();

    let usages = usage::of_interval(&mut db, Interval::new(Instant::from_micros(0), Instant::MAX).unwrap()).unwrap();
    let jobs: Vec<_> = usages.iter().map(|usage| usage.key.job).collect();
    let names = allocation::names(&mut db, &jobs).unwrap();
    let skus = gpuledger_db::dimensions::skus(&mut db).unwrap();
    let mut found: Vec<(String, String, i64)> = usages
        .iter()
        .map(|usage| {
            let job = names.get(&usage.key.job).map(|(_, name)| name.source_id.clone());
            let holder = if usage.key.state == State::Held { job.unwrap() } else { format!("{:?}", usage.key.state) };
            (skus[&usage.key.sku].code.to_string(), holder, usage.share_us / 1_000)
        })
        .collect();
    found.sort();
    let (a10, h100) = ("NVIDIA A10", "NVIDIA H100 80GB HBM3");
    let row = |gpu: &str, profile: &str, holder: &str, ms: i64| (format!("{gpu}/{profile}"), holder.to_owned(), ms);
    // Alone for ten minutes, then two share until the third, which is alone, began at 1,195 s.
    let mut wanted = vec![
        row(a10, "full", "1", 600_000 + 297_500),
        row(a10, "full", "2", 297_500),
        row(a10, "full", "3", 605_000),
        row(a10, "full", "Idle", 1_200_000),
        row(a10, "full", "OutOfService", 600_000),
        row(h100, "3g.40gb", "4", 1_200_000),
        row(h100, "4g.40gb", "Idle", 1_200_000),
        row(h100, "7g.80gb", "5", 2_100_000),
        row(h100, "remainder", "OutOfService", 300_000),
    ];
    wanted.sort();
    assert_eq!(found, wanted);

    let day = calendar.day_of(from);
    let reconciled = reconcile(&mut db, &calendar, day, from.plus_micros(3_600 * SECOND_US).unwrap()).unwrap();
    assert!(!reconciled.days.is_empty() && reconciled.days.iter().all(|day| day.difference_us == 0), "{reconciled:?}");
    assert!(reconciled.findings.is_empty(), "{:?}", reconciled.findings);

    // 3.60 an hour is a thousandth a second; 7.00 × 3/7 × 1/3 h is 1, and 7.00 × 7/12 h is 4.083333….
    let now = at("2025-04-02T00:00:00Z");
    let month = Month::parse("2025-03").unwrap();
    close(&mut db, &calendar, month, "test", || now).unwrap();
    let issued = statements::of_period(&mut db, &calendar, month, now).unwrap().statements;
    let totals: Vec<String> =
        issued.iter().map(|view| format!("{} {}", view.head.team_code, view.head.sums.amount)).collect();
    assert_eq!(totals, ["a 5.98", "b 0.90"], "0.8975 + 1 + 4.083333, and 0.2975 + 0.605");
}

/// Statements of hours of a node, by team: the processes and their accounts, and looks a minute apart.
fn charged(books: Books, prices: &str, devices: &[&str], processes: &[(u32, &str)], hours: i64) -> Vec<String> {
    let books = books.migrated("UTC");
    let (mut db, calendar) = (books.db(), BillingCalendar::new("UTC").unwrap());
    catalogues(&mut db, &calendar);
    let teams: String = ["a", "b", "c", "d", "e", "f", "g"]
        .map(|team| format!("[[team]]\ncode = \"{team}\"\nname = \"{team}\"\n"))
        .concat();
    apply_text(&mut db, &calendar, CatalogueKind::Teams, &teams).unwrap();
    apply_text(&mut db, &calendar, CatalogueKind::Prices, prices).unwrap();
    let mut ingest = ingest(&calendar);
    // Each scenario is a boot of its own, an hour after the one before.
    for (boot, devices) in devices.iter().enumerate() {
        let machine = Machine::new(devices);
        for (pid, account) in processes {
            machine.process(*pid, &format!("{pid}{boot}"), account, -5);
        }
        let from = at("2025-03-10T10:00:00Z").plus_micros(i64::try_from(boot).unwrap() * 7_200 * SECOND_US).unwrap();
        let mut node = machine.node(clocks(from, 0));
        for second in (0..=3_600 * hours).step_by(20) {
            fs::write(machine.library().with_extension("clock"), (second * SECOND_US).to_string()).unwrap();
            let looked = node.look(clocks(from, second));
            assert_eq!(looked.findings, [""; 0]);
            if second % 600 == 0 {
                sends(&mut db, &mut ingest, &mut node, clocks(from, second));
            }
        }
        node.end();
        sends(&mut db, &mut ingest, &mut node, clocks(from, 3_600 * hours));
    }
    roll_up::roll_up(&mut db, &calendar, None).unwrap();
    let now = at("2025-04-02T00:00:00Z");
    let month = Month::parse("2025-03").unwrap();
    close(&mut db, &calendar, month, "test", || now).unwrap();
    let issued = statements::of_period(&mut db, &calendar, month, now).unwrap().statements;
    issued.iter().map(|view| format!("{} {}", view.head.team_code, view.head.sums.amount)).collect()
}

/// A GPU that is cut: profile with its compute slices, first memory slice and count, and who is on it.
fn cut(uuid: &str, model: &str, slices: u32, instances: &[(&str, u32, (u32, u32), u32)]) -> String {
    let mut text = format!(
        "[[device]]\nname = \"{model}\"\nuuid = \"{uuid}\"\npci = \"00000000:01:00.0\"\nmemory_mib = 98304\nmig_devices_max = {slices}\n[[device.profile]]\nnumber = 4\nid = 0\nslices = {slices}\nmost = 1\nmultiprocessors = 56\nmemory_mib = 98304\nplacements = [[0, {slices}]]\n[[device.state]]\nat = 0\nmig = true\n"
    );
    for (gi, (profile, compute, (first, count), _)) in instances.iter().enumerate() {
        text += &format!(
            "[[device.state.instance]]\nuuid = \"MIG-{uuid}-{gi}\"\ngi = {gi}\nci = 0\nprofile = \"{profile}\"\ngi_slices = {compute}\nci_slices = {compute}\nplacement = [{first}, {count}]\nmultiprocessors = 14\nmemory_mib = 5952\n"
        );
    }
    for (gi, (.., pid)) in instances.iter().enumerate() {
        text += &format!("[[device.state.process]]\npid = {pid}\ngi = {gi}\nci = 0\n");
    }
    text
}

/// A SKU of a model as the driver calls it, by its part of compute and memory; with a rate of its own, or by its part of the GPU's.
fn sku(model: &str, profile: &str, parts: Option<(&str, &str)>, rate: Option<&str>) -> String {
    let code = format!("{}/{profile}", model.to_lowercase().replace(' ', "-"));
    let parts = parts.map(|(compute, memory)| format!("compute = \"{compute}\"\nmemory = \"{memory}\"\n"));
    let rate = rate.map(|rate| format!("[[price]]\nsku = \"{code}\"\nrate = \"{rate}\"\n"));
    format!(
        "[[sku]]\ncode = \"{code}\"\naliases = [\"{model}/{profile}\"]\n{}{}",
        parts.unwrap_or_default(),
        rate.unwrap_or_default()
    )
}

fn mig_02_the_slices_of_a_gpu_are_those_of_its_model(books: Books) {
    let (a30, rtx) = ("NVIDIA A30", "NVIDIA RTX PRO 6000 Blackwell");
    let quarter = Some(("1/4", "1/4"));
    let prices = sku(a30, "full", None, Some("2.00"))
        + &sku(a30, "1g.6gb", quarter, None)
        + &sku(a30, "1g.6gb+me", quarter, None)
        + &sku(a30, "2g.12gb", Some(("2/4", "2/4")), None)
        + &sku(rtx, "full", None, Some("2.00"))
        + &sku(rtx, "1g.24gb", quarter, None);
    let first =
        cut("GPU-a30", a30, 4, &[("1g.6gb", 1, (0, 1), 1), ("1g.6gb+me", 1, (1, 1), 2), ("2g.12gb", 2, (2, 2), 3)]);
    let of_rtx = [4, 5, 6, 7].map(|pid| ("1g.24gb", 1, (pid - 4, 1), pid));
    let both = first + &cut("GPU-rtx", rtx, 4, &of_rtx);
    let processes = [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e"), (6, "f"), (7, "g")];
    let wanted = ["a 0.50", "b 0.50", "c 1.00", "d 0.50", "e 0.50", "f 0.50", "g 0.50"];
    assert_eq!(charged(books, &prices, &[&both], &processes, 1), wanted);
}

fn mig_03_the_whole_name_of_a_profile_is_the_key_of_its_price(books: Books) {
    let h200 = "NVIDIA H200";
    let prices = sku(h200, "full", None, Some("7.00"))
        + &sku(h200, "1g.18gb", Some(("1/7", "1/8")), Some("0.50"))
        + &sku(h200, "1g.18gb+me", Some(("1/7", "1/8")), Some("0.65"))
        + &sku(h200, "1g.35gb", Some(("1/7", "2/8")), Some("0.80"));
    let instances = [("1g.18gb", 1, (0, 1), 1), ("1g.18gb+me", 1, (1, 1), 2), ("1g.35gb", 1, (2, 2), 3)];
    let device = cut("GPU-h200", h200, 7, &instances);
    let wanted = ["a 0.50", "b 0.65", "c 0.80"];
    assert_eq!(charged(books, &prices, &[&device], &[(1, "a"), (2, "b"), (3, "c")], 1), wanted);
}

fn job_07_the_card_that_a_job_was_on_is_charged_before_and_after_a_reboot(books: Books) {
    let card = |model: &str, uuid: &str, process: &str| {
        format!(
            "[[device]]\nname = \"{model}\"\nuuid = \"{uuid}\"\npci = \"00000000:01:00.0\"\nmemory_mib = 24564\n[[device.state]]\nat = 0\n{process}"
        )
    };
    let old = card("Tesla P100", "GPU-p100-01", "");
    let new = card("NVIDIA RTX A5000", "GPU-a5000-02", "[[device.state.process]]\npid = 5001\n");
    let prices = sku("Tesla P100", "full", None, Some("0.30")) + &sku("NVIDIA RTX A5000", "full", None, Some("0.90"));
    // An hour before the reboot and an hour after it, when the cards are counted the other way round.
    let boots = [format!("{old}{new}"), format!("{new}{old}")];
    assert_eq!(charged(books, &prices, &[&boots[0], &boots[1]], &[(5001, "a")], 1), ["a 1.80"]);
}

on_both!(
    an_hour_of_a_node_is_charged_as_an_oracle_says_and_reconciles,
    mig_02_the_slices_of_a_gpu_are_those_of_its_model,
    mig_03_the_whole_name_of_a_profile_is_the_key_of_its_price,
    job_07_the_card_that_a_job_was_on_is_charged_before_and_after_a_reboot,
);
