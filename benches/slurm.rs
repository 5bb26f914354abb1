//! How fast lists of Slurm's accounting are taken in, beside `sqlite3 .import` of the same file into a bare table.
//!
//! Three lists: one as a cluster gives it, with steps, and with six jobs of ten that held no GPU; the same without steps
//! (`-X`); and one of jobs that all held GPUs, a line each, which is the hardest there is. Lines by
//! `GPULEDGER_BENCH_LINES`, a million unless given. Run by `./test bench`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, missing_docs)]
#![allow(clippy::float_arithmetic, clippy::cast_precision_loss)]

use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const HEADING: &str = "JobID|JobIDRaw|Cluster|User|Account|Partition|QOS|State|Submit|Start|End|ElapsedRaw|Suspended|AllocTRES|NNodes|NodeList|JobName";

/// Pseudo-random numbers, the same in every run (Knuth's MMIX constants).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

fn time(second: u64) -> String {
    let at = gpuledger_domain::time::Instant::from_micros((1_735_689_600 + i64::try_from(second).unwrap()) * 1_000_000);
    at.to_string().trim_end_matches('Z').to_owned()
}

/// Writes so many lines: a year of a cluster, jobs of about 13 minutes, 600 people; with two steps a job or none, and of
/// ten jobs so many without GPUs.
fn write(path: &Path, lines: u64, (with_steps, without_gpus): (bool, u64)) {
    let mut file = BufWriter::new(std::fs::File::create(path).unwrap());
    writeln!(file, "{HEADING}").unwrap();
    let mut random = Random(7);
    let (mut line, mut id) = (0, 1_000_000u64);
    let jobs = if with_steps { lines / 3 } else { lines };
    while line < lines {
        id += 1;
        let start = (id - 1_000_000) * 31_000_000 / jobs.max(1);
        let length = 60 + random.below(50) * random.below(60);
        let user = random.below(600);
        let gpus = if random.below(10) < without_gpus { 0 } else { 1 << random.below(4) };
        let tres = if gpus == 0 {
            "billing=8,cpu=8,mem=32G,node=1".to_owned()
        } else {
            format!("billing=8,cpu=8,gres/gpu:h100={gpus},gres/gpu={gpus},mem=32G,node=1")
        };
        let (submit, begin, end) = (time(start.saturating_sub(30)), time(start), time(start + length));
        let (account, state) =
            (user % 40, ["COMPLETED", "COMPLETED", "FAILED", "TIMEOUT"][usize::try_from(random.below(4)).unwrap()]);
        let (node, name) = (random.below(500), random.below(8));
        let people = format!("u{user}|a{account}|gpu|normal");
        let mut tell = |step: &str, people: &str, name: &str| {
            writeln!(file, "{id}{step}|{id}{step}|bench|{people}|{state}|{submit}|{begin}|{end}|{length}|00:00:00|{tres}|1|n{node:04}|{name}").unwrap();
            line += 1;
        };
        tell("", &people, &format!("train-{name}"));
        if with_steps {
            tell(".batch", "|a||", "batch");
            tell(".extern", "|a||", "extern");
        }
    }
    file.flush().unwrap();
}

/// Runs a command; seconds, and the most memory it held, in MiB.
fn run(command: &mut Command) -> (f64, f64) {
    let begun = Instant::now();
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak_kib = 0.0f64;
    let ended = loop {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().split(' ').next()?.parse().ok()).unwrap_or(0.0);
        peak_kib = peak_kib.max(kib);
        if let Some(ended) = child.try_wait().unwrap() {
            break ended;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(ended.success());
    (begun.elapsed().as_secs_f64(), peak_kib / 1024.0)
}

fn ours(url: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuledger"));
    command.env("GPULEDGER_DATABASE_URL", url).env("GPULEDGER_BILLING_ZONE", "UTC");
    command
}

fn measure(folder: &Path, name: &str, lines: u64, (with_steps, without_gpus): (bool, u64)) {
    let list = folder.join("list.txt");
    write(&list, lines, (with_steps, without_gpus));
    let bytes = std::fs::metadata(&list).unwrap().len();
    let bare = folder.join("bare.db");
    let columns = HEADING.split('|').map(|name| format!("{name} text")).collect::<Vec<_>>().join(", ");
    let script = format!(
        "CREATE TABLE bare ({columns});\n.mode list\n.separator \"|\"\n.import --skip 1 {} bare\n",
        list.display()
    );
    let mut sqlite3 = Command::new("sqlite3");
    sqlite3.arg(&bare).stdin(Stdio::piped());
    let begun = Instant::now();
    let mut child = sqlite3.stdout(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    let theirs = begun.elapsed().as_secs_f64();
    let url = format!("sqlite://{}", folder.join("books.db").display());
    run(ours(&url).arg("migrate"));
    let import = ["import", "sacct", "--zone", "UTC", "--pool", "p", "--no-roll-up"];
    let (seconds, mib) = run(ours(&url).args(import).arg(&list));
    let (again, _) = run(ours(&url).args(import).arg(&list));
    let one_line = folder.join("one.txt");
    write(&one_line, 1, (false, 0));
    let (roll_up, roll_up_mib) = run(ours(&url).args(&import[..import.len() - 1]).arg(&one_line));
    let rate = |seconds: f64| lines as f64 / seconds;
    println!(
        "{name}, {lines} lines, {} MiB: import {seconds:.1} s, {:.0} lines/s, {mib:.0} MiB; the same again {again:.1} s, {:.0} lines/s; \
         sqlite3 .import {theirs:.1} s, {:.0} lines/s; ratio {:.2}; summing usage {roll_up:.1} s, {roll_up_mib:.0} MiB",
        bytes >> 20,
        rate(seconds),
        rate(again),
        rate(theirs),
        theirs / seconds
    );
    for file in ["list.txt", "bare.db", "books.db", "books.db-wal", "books.db-shm"] {
        let _ = std::fs::remove_file(folder.join(file));
    }
}

fn main() {
    let lines = std::env::var("GPULEDGER_BENCH_LINES").ok().and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    let folder = tempfile::tempdir().unwrap();
    measure(folder.path(), "a cluster's list with steps", lines, (true, 6));
    measure(folder.path(), "a cluster's list without steps", lines, (false, 6));
    measure(folder.path(), "jobs with GPUs alone", lines, (false, 0));
}
