//! What is kept on disk until it is acknowledged, and how it is sent.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gpuledger_agent::delivery::{Delivery, Failure, Step, delay};
use gpuledger_agent::outbox::Outbox;
use gpuledger_agent::segments::name_of;
use gpuledger_agent::spool::{Found, Spool};
use gpuledger_wire::{
    Answer, Clocks, Epoch, Facts, Job, Outcome, PROTOCOL, RecordAnswer, RecordCode, RecordName, Report, Segment,
    Settings, State, Telemetry, Unit, UnitKind,
};

use super::{HOUR_US, S, gpu};

const BOOTED_FOR_US: i64 = 5_000 * S;
const HOUR: i64 = 480_000 * HOUR_US;

/// A segment of ten seconds.
fn segment(number: u32) -> Segment {
    let start_us = HOUR + i64::from(number) * 10 * S;
    Segment {
        number,
        unit: 0,
        job: Some(0),
        state: State::Held,
        start_us,
        end_us: start_us + 10 * S,
        share_us: 10 * S,
        active_us: Some(10 * S),
        estimated_us: 0,
        suspended_us: 0,
        telemetry: Telemetry::default(),
    }
}

/// A report with these finished and open segments. Each job is named by its segment.
fn report(sequence: u64, finished: &[u32], open: &[u32]) -> Report {
    let jobs: Vec<Job> = finished
        .iter()
        .chain(open)
        .map(|number| Job { source_id: format!("job-{number}"), start_us: HOUR, facts: Facts::default() })
        .collect();
    let told = |(place, number): (usize, &u32)| Segment { job: u32::try_from(place).ok(), ..segment(*number) };
    let mut segments: Vec<Segment> = finished.iter().chain(open).enumerate().map(told).collect();
    let head = segments.split_off(finished.len());
    Report {
        protocol: PROTOCOL,
        cluster: "c".into(),
        node: "gpu01".into(),
        boot_id: "b-1".into(),
        epoch: Epoch { start_us: HOUR, random: 7 },
        sequence,
        clocks: Clocks { wall_us: HOUR + 600 * S, boot_us: BOOTED_FOR_US + 600 * S },
        collector: String::new(),
        units: vec![Unit {
            gpu: gpu("GPU-A"),
            kind: UnitKind::Full,
            uuid: String::new(),
            profile: String::new(),
            compute_slices: 7,
            memory_slices: 8,
            birth_us: HOUR,
            death_us: None,
        }],
        jobs,
        segments,
        head,
    }
}

fn opened(folder: &Path) -> (Spool, Found) {
    Spool::open(folder, 64 << 20).unwrap()
}

/// The numbers of the finished segments on disk, report by report.
fn numbers(spool: &Spool) -> Vec<Vec<u32>> {
    let mut all = Vec::new();
    let mut place = spool.after(None);
    while let Some(at) = place {
        let report = spool.read(at).unwrap().unwrap();
        assert!(report.head.is_empty() && report.segments.iter().all(|told| told.job.is_some()));
        all.push(report.segments.iter().map(|told| told.number).collect());
        place = spool.after(place);
    }
    all
}

/// The files of a folder that end so.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let all = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.to_str().unwrap().ends_with(ending)).collect()
}

/// A folder with three reports in one file, and the bytes of the file.
fn three(folder: &Path) -> (PathBuf, Vec<u8>) {
    let (mut spool, _) = opened(folder);
    for (sequence, number) in [(1, 0), (2, 1), (3, 2)] {
        assert!(spool.put(&report(sequence, &[number], &[])).finished);
    }
    let file = files(folder, ".spool").pop().unwrap();
    let bytes = fs::read(&file).unwrap();
    (file, bytes)
}

#[test]
fn what_is_kept_is_there_after_the_next_start_until_it_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("agent/spool");
    let (mut spool, found) = opened(&at);
    assert_eq!(found, Found::default());
    assert!(Spool::open(&at, 64 << 20).unwrap_err().to_string().contains("another agent"));
    assert!(spool.put(&report(4, &[0, 1], &[2])).finished);
    assert!(spool.put(&report(5, &[2], &[3])).finished);
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&at), mode(&at.join("open")), mode(&files(&at, ".spool")[0])), (0o700, 0o600, 0o600));
    drop(spool);
    // What was open at the end is finished.
    let (mut spool, found) = opened(&at);
    assert_eq!(found, Found { reports: 3, ..Found::default() });
    assert_eq!(numbers(&spool), [vec![0, 1], vec![2], vec![3]]);
    let first = spool.after(None).unwrap();
    assert_eq!(spool.read(first).unwrap().unwrap().sequence, 3, "a report without a head takes the place of none");
    spool.done(first).unwrap();
    drop(spool);
    // A file goes with its last report.
    let (mut spool, _) = opened(&at);
    assert_eq!(numbers(&spool), [vec![0, 1], vec![2], vec![3]]);
    while let Some(place) = spool.after(None) {
        spool.done(place).unwrap();
    }
    assert_eq!((spool.bytes(), files(&at, ".spool").len()), (0, 0));
}

#[test]
fn a_kill_between_the_two_writes_finishes_nothing_twice() {
    let folder = tempfile::tempdir().unwrap();
    let open = folder.path().join("open");
    let (mut spool, _) = opened(folder.path());
    spool.put(&report(1, &[], &[0, 1]));
    let before = fs::read(&open).unwrap();
    spool.put(&report(2, &[0], &[1, 2]));
    drop(spool);
    fs::write(&open, before).unwrap();
    assert_eq!(numbers(&opened(folder.path()).0), [vec![0], vec![1]]);
    assert!(!open.exists());
}

#[test]
fn a_file_that_was_cut_off_at_any_length_keeps_the_reports_before() {
    let folder = tempfile::tempdir().unwrap();
    let (file, bytes) = three(folder.path());
    let ends: Vec<usize> =
        (0..=bytes.len()).filter(|at| bytes[*at..].starts_with(b"GLS1") || *at == bytes.len()).collect();
    for length in 0..=bytes.len() {
        fs::write(&file, &bytes[..length]).unwrap();
        let (spool, found) = opened(folder.path());
        let whole = ends.iter().filter(|end| **end <= length).count() - 1;
        assert_eq!(numbers(&spool), [vec![0], vec![1], vec![2]][..whole], "{length}");
        let torn = u64::try_from(length - ends[whole]).unwrap();
        assert_eq!(found, Found { reports: whole, torn_bytes: torn, damaged_bytes: 0 }, "{length}");
    }
}

#[test]
fn a_byte_that_is_wrong_costs_its_report_alone_and_is_kept_to_be_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let (file, bytes) = three(folder.path());
    let starts: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(b"GLS1")).collect();
    let ends: Vec<usize> = starts[1..].iter().copied().chain([bytes.len()]).collect();
    for at in 0..bytes.len() {
        let mut wrong = bytes.clone();
        wrong[at] ^= 0x10;
        fs::write(&file, &wrong).unwrap();
        let (spool, found) = opened(folder.path());
        let hit = ends.iter().position(|end| at < *end).unwrap();
        let mut left = vec![vec![0], vec![1], vec![2]];
        left.remove(hit);
        assert_eq!(numbers(&spool), left, "{at}");
        let length = ends[hit] - starts[hit];
        assert_eq!(found.torn_bytes + found.damaged_bytes, u64::try_from(length).unwrap(), "{at}");
        // At the end, a length that is too long looks as if the rest had not been written.
        assert!(found.torn_bytes == 0 || hit == 2, "{at}");
        assert_eq!(files(folder.path(), ".damaged").len(), usize::from(found.damaged_bytes > 0), "{at}");
        files(folder.path(), ".damaged").iter().for_each(|path| fs::remove_file(path).unwrap());
    }
}

#[test]
fn a_full_spool_says_so_keeps_what_it_has_and_goes_on_when_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let (mut spool, _) = Spool::open(folder.path(), 1_000).unwrap();
    let mut sequence = 0;
    let kept = loop {
        sequence += 1;
        let kept = spool.put(&report(sequence, &[u32::try_from(sequence).unwrap()], &[]));
        if !kept.finished {
            break kept;
        }
    };
    assert!(kept.failures[0].contains("may not hold more"), "{kept:?}");
    let fitted = spool.reports();
    assert!(fitted >= 1 && spool.bytes() <= 1_000);
    // What did not fit is in the other file: an end loses nothing of it.
    drop(spool);
    let (mut spool, found) = opened(folder.path());
    assert_eq!(found.reports, fitted + 1);
    assert_eq!(numbers(&spool).concat(), (1..=u32::try_from(sequence).unwrap()).collect::<Vec<_>>());
    while let Some(place) = spool.after(None) {
        spool.done(place).unwrap();
    }
    assert!(spool.put(&report(99, &[99], &[])).finished);
}

#[test]
fn a_start_on_a_full_spool_keeps_what_was_open_for_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let (mut spool, _) = opened(folder.path());
    spool.put(&report(1, &[0], &[1]));
    let full = spool.bytes();
    drop(spool);
    for sequence in [2, 3] {
        // It starts all the same, and what is open then takes nobody's place.
        let (mut spool, found) = Spool::open(folder.path(), full).unwrap();
        assert_eq!((found.reports, numbers(&spool)), (1, vec![vec![0]]));
        spool.put(&report(sequence, &[], &[u32::try_from(sequence).unwrap()]));
    }
    let mut all = numbers(&opened(folder.path()).0);
    all.sort();
    assert_eq!(all, [[0], [1], [2], [3]]);
}

#[test]
fn space_in_reserve_is_used_when_the_disk_takes_no_more_and_taken_again_later() {
    let folder = tempfile::tempdir().unwrap();
    let reserve = folder.path().join("reserve");
    let (mut spool, _) = opened(folder.path());
    assert_eq!(reserve.metadata().unwrap().len(), 1 << 20);
    // The next file cannot be made while something else has its name, which is what a write that fails looks like here.
    fs::create_dir(folder.path().join(format!("{:020}.spool", 0))).unwrap();
    let kept = spool.put(&report(1, &[0], &[]));
    assert!(!kept.finished && !reserve.exists(), "{kept:?}");
    fs::remove_dir(folder.path().join(format!("{:020}.spool", 0))).unwrap();
    assert!(spool.put(&report(2, &[0], &[])).finished);
    spool.done(spool.after(None).unwrap()).unwrap();
    assert!(reserve.exists());
}

/// Names a folder on a disk of three MiB for a run of the test below within itself.
const SMALL_DISK: &str = "GPULEDGER_TEST_SMALL_DISK";

/// Runs this test again where it may mount a disk of its own: in a namespace in which it is root.
fn on_a_small_disk() {
    let folder = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=3m tmpfs \"$0\" && exec \"$@\"";
    let output = std::process::Command::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-c", script])
        .arg(folder.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "waiting::a_disk_that_fills_loses_nothing_that_was_kept_and_stops_nothing"])
        .env(SMALL_DISK, folder.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{output:?}");
}

#[test]
fn a_disk_that_fills_loses_nothing_that_was_kept_and_stops_nothing() {
    let Some(folder) = std::env::var_os(SMALL_DISK).map(PathBuf::from) else { return on_a_small_disk() };
    let (mut spool, _) = opened(&folder.join("spool"));
    spool.put(&report(1, &[0], &[1]));
    // Others take what is left, a page at a time.
    let mut filler = fs::File::create(folder.join("filler")).unwrap();
    while std::io::Write::write_all(&mut filler, &[1; 4_096]).is_ok() {}
    // The reserve is given up, and takes reports until it is full, too.
    let (mut sequence, mut kept) = (1, 1);
    let why = loop {
        sequence += 1;
        let numbers: Vec<u32> = (sequence..sequence + 40).map(|number| number * 40).collect();
        let put = spool.put(&report(u64::from(sequence), &numbers, &[1]));
        if !put.finished {
            break put.failures;
        }
        kept += 1;
    };
    assert!(kept > 100 && why[0].contains("No space left"), "{kept}: {why:?}");
    assert_eq!(spool.reports(), kept);
    drop(spool);
    // It starts on the full disk, and everything that was kept can be read.
    let (mut spool, found) = opened(&folder.join("spool"));
    assert!(found.damaged_bytes == 0 && found.reports >= kept, "{found:?} of {kept}");
    assert_eq!(numbers(&spool).len(), found.reports);
    drop(filler);
    fs::remove_file(folder.join("filler")).unwrap();
    assert!(spool.put(&report(9_999, &[7], &[])).finished);
    while let Some(place) = spool.after(None) {
        spool.done(place).unwrap();
    }
    assert!(folder.join("spool/reserve").metadata().is_ok_and(|held| held.len() == 1 << 20));
}

/// A service that answers as it is told to: why it does not take a report, where it does not.
struct Service<F> {
    sent: Vec<Report>,
    rule: F,
}

impl<F: FnMut(&Report) -> Option<Failure>> Service<F> {
    fn new(rule: F) -> Service<F> {
        Service { sent: Vec::new(), rule }
    }

    fn take(&mut self, report: &Report) -> Result<Answer, Failure> {
        self.sent.push(report.clone());
        match (self.rule)(report) {
            Some(failure) => Err(failure),
            None => Ok(answer(report, |_| Outcome::Accepted)),
        }
    }

    /// The numbers of what was taken or refused, report by report; those of a head are negative.
    fn numbers(&self) -> Vec<Vec<i64>> {
        let of = |report: &Report| {
            let finished = report.segments.iter().map(|told| i64::from(told.number));
            finished.chain(report.head.iter().map(|told| -i64::from(told.number))).collect()
        };
        self.sent.iter().map(of).collect()
    }
}

fn answer(report: &Report, outcome: impl Fn(RecordName) -> Outcome) -> Answer {
    let records = report.segments.iter().map(name_of);
    let records = records.map(|record| RecordAnswer {
        record: Some(record),
        outcome: outcome(record),
        code: (outcome(record) == Outcome::Conflict).then_some(RecordCode::OtherContent),
        message: String::new(),
    });
    let settings =
        Settings { version: "1".into(), cuts_us: Vec::new(), sample_interval_us: 10 * S, report_interval_us: 60 * S };
    Answer { protocol: PROTOCOL, records: records.collect(), head: None, settings }
}

fn clocks(second: i64) -> Clocks {
    Clocks { wall_us: HOUR + second * S, boot_us: BOOTED_FOR_US + second * S }
}

fn later(why: &str) -> Failure {
    Failure::Later { after: None, why: why.into() }
}

/// Steps until nothing is left to send or it waits.
fn steps(
    delivery: &mut Delivery,
    outbox: &Outbox,
    second: i64,
    service: &mut Service<impl FnMut(&Report) -> Option<Failure>>,
) -> Step {
    loop {
        match delivery.step(outbox, clocks(second), 0, |report| service.take(report)) {
            Step::Went(_) => {}
            other => return other,
        }
    }
}

#[test]
fn the_oldest_goes_first_and_what_is_open_last_and_an_answer_is_the_end_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let outbox = Outbox::new(opened(folder.path()).0, "b-1");
    for (sequence, finished, open) in [(1, vec![0], vec![1]), (2, vec![1], vec![2]), (3, vec![], vec![2, 3])] {
        assert!(outbox.put(report(sequence, &finished, &open)).finished);
    }
    let mut service = Service::new(|_| None);
    assert_eq!(steps(&mut Delivery::default(), &outbox, 700, &mut service), Step::Nothing);
    assert_eq!(service.numbers(), [vec![0], vec![1], vec![-2, -3]]);
    // Clocks are those of now, by the difference by which segments were placed.
    assert!(service.sent.iter().all(|report| report.clocks == clocks(700)));
    let tally = outbox.tally();
    assert_eq!((tally.reports_taken, tally.spool_reports, tally.spool_bytes), (3, 0, 0));
    assert_eq!(outbox.answers().len(), 1, "settings, once");
    assert_eq!(steps(&mut Delivery::default(), &outbox, 760, &mut service), Step::Nothing);
}

#[test]
fn an_outage_is_waited_out_with_growing_pauses_and_what_the_service_asks_for() {
    let folder = tempfile::tempdir().unwrap();
    let outbox = Outbox::new(opened(folder.path()).0, "b-1");
    outbox.put(report(1, &[0], &[1]));
    let mut delivery = Delivery::default();
    let mut waits = Vec::new();
    for _ in 0..10 {
        let mut down = Service::new(|_| Some(later("nobody listens")));
        let Step::Wait { delay, why } = steps(&mut delivery, &outbox, 0, &mut down) else { panic!() };
        assert_eq!(why, "nobody listens");
        waits.push(delay.as_millis());
        outbox.put(report(2, &[], &[1]));
    }
    assert_eq!(waits, [500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]);
    assert_eq!((delay(1, u32::MAX), delay(40, u32::MAX)), (Duration::from_secs(1), Duration::from_secs(120)));
    let busy = |_: &Report| Some(Failure::Later { after: Some(Duration::from_secs(300)), why: "busy".into() });
    let waits = steps(&mut delivery, &outbox, 0, &mut Service::new(busy));
    assert_eq!(waits, Step::Wait { delay: Duration::from_secs(300), why: "busy".into() });
    let mut up = Service::new(|_| None);
    assert_eq!(steps(&mut delivery, &outbox, 1_000, &mut up), Step::Nothing);
    assert!(up.numbers().contains(&vec![-1]), "{:?}", up.numbers());
    assert_eq!(outbox.tally().reports_failed, 11);
}

#[test]
fn a_batch_that_is_always_refused_costs_the_record_to_blame_and_holds_up_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let outbox = Outbox::new(opened(folder.path()).0, "b-1");
    outbox.put(report(1, &[0, 1, 2, 3, 4], &[]));
    outbox.put(report(2, &[5], &[6]));
    let bad = |report: &Report| report.jobs.iter().any(|job| job.source_id == "job-3");
    let mut service = Service::new(|report| bad(report).then(|| Failure::Never("a name cannot be".into())));
    assert_eq!(steps(&mut Delivery::default(), &outbox, 700, &mut service), Step::Nothing);
    let taken = service.sent.iter().filter(|report| !bad(report));
    let numbers: Vec<u32> = taken.flat_map(|report| report.segments.iter().map(|told| told.number)).collect();
    assert_eq!(numbers, [0, 1, 2, 4, 5]);
    let letters = fs::read_to_string(folder.path().join("dead-letters.jsonl")).unwrap();
    assert_eq!((letters.lines().count(), letters.contains("a name cannot be") && letters.contains("job-3")), (1, true));
    let tally = outbox.tally();
    assert_eq!((tally.records_refused, tally.spool_reports), (1, 0));
    // Parts name their own units and jobs alone.
    let alone = service.sent.iter().find(|report| report.segments.len() == 1 && !bad(report)).unwrap();
    assert_eq!((alone.jobs.len(), alone.segments[0].job), (1, Some(0)));
}

#[test]
fn records_that_the_service_holds_otherwise_are_dead_letters() {
    let folder = tempfile::tempdir().unwrap();
    let outbox = Outbox::new(opened(folder.path()).0, "b-1");
    outbox.put(report(1, &[0, 1], &[]));
    let conflict = |name: RecordName| if name.number == 1 { Outcome::Conflict } else { Outcome::Known };
    let step = Delivery::default().step(&outbox, clocks(700), 0, |report| Ok(answer(report, conflict)));
    assert_eq!(step, Step::Went(Some("a record was not taken: OtherContent ".into())));
    let letters = fs::read_to_string(folder.path().join("dead-letters.jsonl")).unwrap();
    assert!(letters.lines().count() == 1 && letters.contains("job-1") && !letters.contains("job-0"), "{letters}");
    assert_eq!(outbox.tally().spool_reports, 0);
}

#[test]
fn what_fails_for_its_own_sake_is_passed_over_and_tried_again_ten_minutes_later() {
    let folder = tempfile::tempdir().unwrap();
    let outbox = Outbox::new(opened(folder.path()).0, "b-1");
    outbox.put(report(1, &[0], &[]));
    outbox.put(Report { node: "old-name".into(), ..report(2, &[1], &[]) });
    outbox.put(report(3, &[2], &[3]));
    let mut delivery = Delivery::default();
    let rule = |report: &Report| match report.segments.first().map(|told| told.number) {
        Some(0) => Some(later("the service failed")),
        Some(1) => Some(Failure::Held("another node's token".into())),
        _ => None,
    };
    let mut service = Service::new(rule);
    for _ in 0..3 {
        assert!(matches!(steps(&mut delivery, &outbox, 0, &mut service), Step::Wait { .. }));
    }
    assert_eq!(steps(&mut delivery, &outbox, 10, &mut service), Step::Nothing);
    assert_eq!(service.numbers(), [vec![0], vec![0], vec![0], vec![1], vec![2], vec![-3]]);
    service.sent.clear();
    assert_eq!(steps(&mut delivery, &outbox, 590, &mut service), Step::Nothing);
    assert!(service.sent.is_empty());
    let mut service = Service::new(|_| None);
    assert_eq!(steps(&mut delivery, &outbox, 620, &mut service), Step::Nothing);
    assert_eq!(service.numbers(), [vec![0], vec![1]]);
}

#[test]
fn an_end_after_the_answer_sends_it_again_and_a_later_boot_places_it_as_before() {
    let folder = tempfile::tempdir().unwrap();
    let outbox = Outbox::new(opened(folder.path()).0, "b-1");
    outbox.put(report(1, &[0], &[1]));
    let copy = tempfile::tempdir().unwrap();
    for path in files(folder.path(), ".spool").into_iter().chain([folder.path().join("open")]) {
        fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
    }
    assert_eq!(steps(&mut Delivery::default(), &outbox, 700, &mut Service::new(|_| None)), Step::Nothing);
    // As if it had ended before the file was gone, and the node had been booted anew.
    let outbox = Outbox::new(opened(copy.path()).0, "b-2");
    let mut service = Service::new(|_| None);
    let now = Clocks { wall_us: HOUR + 9_000 * S, boot_us: 40 * S };
    while !matches!(Delivery::default().step(&outbox, now, 0, |report| service.take(report)), Step::Nothing) {}
    assert_eq!(service.numbers(), [vec![0], vec![1]]);
    let placed = Clocks { wall_us: now.wall_us, boot_us: BOOTED_FOR_US + 9_000 * S };
    assert!(service.sent.iter().all(|report| report.clocks == placed && report.boot_id == "b-1"));
}
