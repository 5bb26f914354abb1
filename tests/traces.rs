//! Published traces that are lists of jobs, each imported by the mapping beside it, and compared with what
//! `tests/data/expected.py` counted apart.

use std::io::Read;
use std::path::PathBuf;

use gpuledger::workflows::usage_report::{Dimension, usage_report};
use gpuledger_domain::pricing::PriceBook;
use gpuledger_domain::time::{Instant, Interval, SECOND_US};
use gpuledger_domain::units::Fraction;
use serde_json::Value;

use crate::support::jobs::import;
use crate::support::sacct::utc;
use crate::support::{Books, project_file};

/// A part of each file's name, its mapping, and its GPU-seconds as told apart from `expected.json` in
/// `tests/data/README.md`.
const TRACES: [(&str, &str, i64); 6] = [
    ("openb", "alibaba-openb-2023", 202_066_462),
    ("chronus", "chronus", 1_336_781_280),
    ("dlrm-like", "alibaba-dlrm-2025", 4_000),
    ("DLRM", "alibaba-dlrm-2025", 206_514_284),
    ("genai-like", "alibaba-genai-2026", 74),
    ("lora_request", "alibaba-genai-2026", 768_899),
];

/// The first pod of openb was scheduled at 0, which in Unix time is “unknown” and refused. It held one GPU this long.
const OPENB_FIRST_POD_SECONDS: i64 = 12_537_496;

/// The file's bytes; of a tar archive, those of its only file.
fn bytes(path: &PathBuf, name: &str) -> Vec<u8> {
    let bytes = std::fs::read(path).unwrap();
    if !name.ends_with(".tar.gz") {
        return bytes;
    }
    let mut archive = Vec::new();
    flate2::read::GzDecoder::new(bytes.as_slice()).read_to_end(&mut archive).unwrap();
    // A header of 512 bytes goes before the content, with its size in octal digits (POSIX ustar).
    let size = std::str::from_utf8(&archive[124..135]).unwrap();
    let size = usize::from_str_radix(size, 8).unwrap();
    archive[512..512 + size].to_vec()
}

fn compare(name: &str, path: &PathBuf, entry: &Value) {
    let (_, mapping, gpu_seconds) = TRACES.iter().find(|(part, ..)| name.contains(part)).unwrap();
    let mapping = project_file("tests/data/traces").join(format!("{mapping}.mapping.toml"));
    let books = Books::sqlite().migrated("UTC");
    let mut db = books.db();
    let (counts, refused) = import(&mut db, &utc(), &std::fs::read_to_string(mapping).unwrap(), &bytes(path, name));
    let number = |what: &Value| what.as_i64().unwrap_or(0);
    // Times finer than a microsecond are refused, not rounded.
    let finer = &entry["with_gpus_and_times_finer_than_a_microsecond"];
    let first_pod = i64::from(name.contains("openb"));
    let held = number(&entry["held_with_gpus"]) - number(&finer["held"]) - first_pod;
    let running = number(&entry["running_with_gpus"]) - number(&finer["running"]);
    let unusable = number(&finer["held"]) + number(&finer["running"]) + first_pod;
    let lines = number(&entry["lines"]);
    let found = (counts.lines, counts.added, counts.running, counts.refused, counts.without_gpu_time);
    assert_eq!(found, (lines, held, running, unusable, lines - held - running - unusable), "{name}");
    assert_eq!(i64::try_from(refused.len()).unwrap(), unusable, "{name}");
    let ever = Interval::new(Instant::from_micros(0), Instant::parse("2026-01-01T00:00:00Z").unwrap()).unwrap();
    let rows = usage_report(&mut db, &utc(), &PriceBook::default(), ever, &[Dimension::Cluster]).unwrap();
    let [row] = rows.as_slice() else { panic!("{name}: {} clusters", rows.len()) };
    let seconds = row.instance_us.over(Fraction::whole(SECOND_US.into())).unwrap().rounded();
    let apart = number(&entry["gpu_seconds"]) - number(&finer["gpu_seconds"]) - first_pod * OPENB_FIRST_POD_SECONDS;
    assert_eq!((i64::try_from(seconds).unwrap(), *gpu_seconds), (apart, apart), "{name}");
}

fn expected() -> Value {
    serde_json::from_str(&std::fs::read_to_string(project_file("tests/data/expected.json")).unwrap()).unwrap()
}

#[test]
fn every_trace_imports_as_counted_apart() {
    let mut traces = 0;
    for (name, entry) in expected().as_object().unwrap() {
        // `philly` has a file of tests of its own.
        if entry["form"] == "trace" && name.starts_with("traces/") {
            compare(name, &project_file("tests/data").join(name), entry);
            traces += 1;
        }
    }
    assert_eq!(traces, 5);
}

/// The traces whose licence forbids a copy, in the folder that `GPULEDGER_TEST_SHARED_DATA` names.
#[test]
fn traces_that_need_the_shared_folder_import_as_counted_apart() {
    let Some(shared) = std::env::var_os("GPULEDGER_TEST_SHARED_DATA").map(PathBuf::from) else { return };
    for (name, entry) in expected().as_object().unwrap() {
        let Some(path) = name.strip_prefix("shared:") else { continue };
        if entry["form"] == "trace" {
            compare(path, &shared.join(path), entry);
        }
    }
}
