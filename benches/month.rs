//! How long the Philly trace takes from nothing to closed statements, as whole processes, with their memory.
//! Run by `./test bench`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, missing_docs)]
#![allow(clippy::float_arithmetic, clippy::cast_precision_loss)]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use gpuledger_db::Database;

const ROUNDS: usize = 3;

fn project_file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/examples/philly").join(path)
}

/// Runs the program; seconds, and the most memory it held, in MiB.
fn run(url: &str, arguments: &[&str]) -> (f64, f64) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuledger"));
    command
        .args(arguments)
        .env("GPULEDGER_DATABASE_URL", url)
        .env("GPULEDGER_BILLING_ZONE", "UTC")
        .stdout(Stdio::null());
    let begun = Instant::now();
    let mut child = command.spawn().unwrap();
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
        std::thread::sleep(Duration::from_millis(2));
    };
    assert!(ended.success());
    (begun.elapsed().as_secs_f64(), peak_kib / 1024.0)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn measure(name: &str, fresh: impl Fn(usize) -> String) {
    let (mut imports, mut agains, mut closes, mut memory) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let url = fresh(round);
        run(&url, &["migrate"]);
        for kind in ["teams", "prices", "rules"] {
            run(&url, &[kind, "apply", project_file(&format!("{kind}.toml")).to_str().unwrap()]);
        }
        let (mapping, list) = (project_file("mapping.toml"), project_file("philly.csv.gz"));
        let import = ["import", "jobs", "--mapping", mapping.to_str().unwrap(), list.to_str().unwrap()];
        let (seconds, mib) = run(&url, &import);
        imports.push(seconds);
        memory.push(mib);
        agains.push(run(&url, &import).0);
        closes.push(run(&url, &["close", "2017-10"]).0);
    }
    println!(
        "{name}: import {:.2} s and {:.0} MiB, the same again {:.2} s, close of October with 11 statements {:.2} s (medians of {ROUNDS})",
        median(&mut imports),
        median(&mut memory),
        median(&mut agains),
        median(&mut closes)
    );
}

fn main() {
    let folder = tempfile::tempdir().unwrap();
    measure("SQLite", |round| format!("sqlite://{}", folder.path().join(format!("{round}.db")).display()));
    let Ok(server) = std::env::var("GPULEDGER_TEST_POSTGRES_URL") else {
        println!("PostgreSQL: left out, GPULEDGER_TEST_POSTGRES_URL names no server");
        return;
    };
    measure("PostgreSQL", |_| {
        let mut admin = Database::parse(&server).unwrap().create().unwrap();
        admin.execute("DROP SCHEMA IF EXISTS bench CASCADE; CREATE SCHEMA bench").unwrap();
        format!("{server}&options=-csearch_path%3Dbench")
    });
    Database::parse(&server).unwrap().create().unwrap().execute("DROP SCHEMA IF EXISTS bench CASCADE").unwrap();
}
