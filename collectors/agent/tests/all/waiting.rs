//! What is kept on disk until it is acknowledged.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use gpuledger_agent::spool::{Found, Spool};
use gpuledger_wire::{Clocks, Epoch, Facts, Job, PROTOCOL, Report, Segment, State, Telemetry, Unit, UnitKind};

use super::{HOUR_US, S, gpu};

pub(crate) const BOOTED_FOR_US: i64 = 5_000 * S;
pub(crate) const HOUR: i64 = 480_000 * HOUR_US;

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
pub(crate) fn report(sequence: u64, finished: &[u32], open: &[u32]) -> Report {
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

pub(crate) fn opened(folder: &Path) -> (Spool, Found) {
    Spool::open(folder, 64 << 20).unwrap()
}

/// The numbers of the finished segments on disk, report by report.
pub(crate) fn numbers(spool: &Spool) -> Vec<Vec<u32>> {
    let mut all = Vec::new();
    let mut place = spool.after(None);
    while let Some(at) = place {
        let report = spool.read(at).unwrap().unwrap().report;
        assert!(report.head.is_empty() && report.segments.iter().all(|told| told.job.is_some()));
        all.push(report.segments.iter().map(|told| told.number).collect());
        place = spool.after(place);
    }
    all
}

/// The files of a folder that end so.
pub(crate) fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let all = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.to_str().unwrap().ends_with(ending)).collect()
}

/// A folder with three reports in one file, and the bytes of the file.
fn three(folder: &Path) -> (PathBuf, Vec<u8>) {
    let (mut spool, _) = opened(folder);
    for (sequence, number) in [(1, 0), (2, 1), (3, 2)] {
        assert!(spool.put(&report(sequence, &[number], &[]), false).finished);
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
    assert!(spool.put(&report(4, &[0, 1], &[2]), false).finished);
    assert!(spool.put(&report(5, &[2], &[3]), false).finished);
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&at), mode(&at.join("open")), mode(&files(&at, ".spool")[0])), (0o700, 0o600, 0o600));
    drop(spool);
    // What was open at the end is finished.
    let (mut spool, found) = opened(&at);
    assert_eq!(found, Found { reports: 3, ..Found::default() });
    assert_eq!(numbers(&spool), [vec![0, 1], vec![2], vec![3]]);
    let first = spool.after(None).unwrap();
    assert_eq!(
        spool.read(first).unwrap().unwrap().report.sequence,
        3,
        "a report without a head takes the place of none"
    );
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
    spool.put(&report(1, &[], &[0, 1]), false);
    let before = fs::read(&open).unwrap();
    spool.put(&report(2, &[0], &[1, 2]), false);
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
        assert_eq!(found, Found { reports: whole, torn_bytes: torn, ..Found::default() }, "{length}");
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
        let kept = spool.put(&report(sequence, &[u32::try_from(sequence).unwrap()], &[]), false);
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
    assert!(spool.put(&report(99, &[99], &[]), false).finished);
}

#[test]
fn a_start_on_a_full_spool_keeps_what_was_open_for_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let (mut spool, _) = opened(folder.path());
    spool.put(&report(1, &[0], &[1]), false);
    let full = spool.bytes();
    drop(spool);
    for sequence in [2, 3] {
        // It starts all the same, and what is open then takes nobody's place.
        let (mut spool, found) = Spool::open(folder.path(), full).unwrap();
        assert_eq!((found.reports, numbers(&spool)), (1, vec![vec![0]]));
        spool.put(&report(sequence, &[], &[u32::try_from(sequence).unwrap()]), false);
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
    let kept = spool.put(&report(1, &[0], &[]), false);
    assert!(!kept.finished && !reserve.exists(), "{kept:?}");
    fs::remove_dir(folder.path().join(format!("{:020}.spool", 0))).unwrap();
    assert!(spool.put(&report(2, &[0], &[]), false).finished);
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
    spool.put(&report(1, &[0], &[1]), false);
    // Others take what is left, a page at a time.
    let mut filler = fs::File::create(folder.join("filler")).unwrap();
    while std::io::Write::write_all(&mut filler, &[1; 4_096]).is_ok() {}
    // The reserve is given up, and takes reports until it is full, too.
    let (mut sequence, mut kept) = (1, 1);
    let why = loop {
        sequence += 1;
        let numbers: Vec<u32> = (sequence..sequence + 40).map(|number| number * 40).collect();
        let put = spool.put(&report(u64::from(sequence), &numbers, &[1]), false);
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
    assert!(spool.put(&report(9_999, &[7], &[]), false).finished);
    while let Some(place) = spool.after(None) {
        spool.done(place).unwrap();
    }
    assert!(folder.join("spool/reserve").metadata().is_ok_and(|held| held.len() == 1 << 20));
}
