//! What an outage of the service of a day costs a node: 8 GPUs of 7 slices each, held throughout, by another job each ten minutes,
//! reported each minute. How large the agent's spool becomes, and how long it takes until the service, on SQLite, has it all.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

use gpuledger_agent::config::Config;
use gpuledger_agent::delivery::{Delivery, Step};
use gpuledger_agent::outbox::Outbox;
use gpuledger_agent::spool::Spool;
use gpuledger_agent::uplink::Uplink;
use gpuledger_wire::{
    Clocks, Epoch, Facts, Gpu, Job, PROTOCOL, Report, Segment, State, Telemetry, Total, Unit, UnitKind,
};

const S: i64 = 1_000_000;
const HOUR_US: i64 = 3_600 * S;
const MINUTES: i64 = 24 * 60;
const MINUTES_OF_A_JOB: i64 = 10;
const SLICES: u32 = 56;

fn units(from_us: i64) -> Vec<Unit> {
    let unit = |slice: u32| Unit {
        gpu: Gpu {
            uuid: format!("GPU-{:08x}-5a5a-5a5a-5a5a-5a5a5a5a5a5a", slice / 7),
            model: "NVIDIA H100 80GB HBM3".into(),
            compute_slices: 7,
            memory_slices: 8,
        },
        kind: UnitKind::Slice,
        uuid: format!("MIG-{slice:08x}-3c3c-3c3c-3c3c-3c3c3c3c3c3c"),
        profile: "1g.10gb".into(),
        compute_slices: 1,
        memory_slices: 1,
        birth_us: from_us,
        death_us: None,
    };
    (0..SLICES).map(unit).collect()
}

/// What the slices were held for in the ten minutes that begin with this one, up to a minute.
fn segments(from_us: i64, first: i64, until: i64) -> Vec<Segment> {
    let (start_us, end_us) = (from_us + first * 60 * S, from_us + until * 60 * S);
    let measured_us = end_us - start_us;
    let turn = u32::try_from(start_us.rem_euclid(HOUR_US) / (MINUTES_OF_A_JOB * 60 * S)).unwrap();
    // Figures that differ, as measured ones do.
    let noise = |slice: u32, most: i64| (i64::from(slice) * 7_919 + start_us / S * 104_729).rem_euclid(most);
    let total = |slice: u32, most: i64| Total { total: u64::try_from(noise(slice, most)).unwrap(), measured_us };
    let segment = |slice: u32| Segment {
        number: turn * SLICES + slice,
        unit: slice,
        job: Some(slice),
        state: State::Held,
        start_us,
        end_us,
        share_us: measured_us,
        active_us: Some(measured_us - noise(slice, S)),
        estimated_us: 0,
        suspended_us: 0,
        telemetry: Telemetry {
            energy_mj: Some(total(slice, 60_000_000)),
            peak_memory_bytes: Some(u64::try_from(noise(slice, 10 << 30)).unwrap()),
            sm_activity: Some(total(slice, measured_us)),
            sm_occupancy: Some(total(slice, measured_us)),
            tensor: Some(total(slice, measured_us)),
            memory_activity: Some(total(slice, measured_us)),
            ..Telemetry::default()
        },
    };
    (0..SLICES).map(segment).collect()
}

/// The report at the end of a minute.
fn report(from_us: i64, minute: i64) -> Report {
    let first = (minute - 1) / MINUTES_OF_A_JOB * MINUTES_OF_A_JOB;
    let ended = minute % MINUTES_OF_A_JOB == 0;
    let job = |slice: u32| Job {
        source_id: format!("{}", 1_000_000 + first * i64::from(SLICES) + i64::from(slice)),
        start_us: from_us + first * 60 * S,
        facts: Facts {
            user: format!("user{}", slice % 9),
            account: "physics".into(),
            partition: "gpu".into(),
            ..Facts::default()
        },
    };
    let told = segments(from_us, first, minute);
    let (segments, head) = if ended { (told, Vec::new()) } else { (Vec::new(), told) };
    Report {
        protocol: PROTOCOL,
        cluster: "bench".into(),
        node: "n1".into(),
        boot_id: "b".into(),
        epoch: Epoch { start_us: from_us, random: 1 },
        sequence: u64::try_from(minute).unwrap(),
        clocks: Clocks { wall_us: from_us + minute * 60 * S, boot_us: minute * 60 * S },
        collector: "bench".into(),
        units: units(from_us),
        jobs: (0..SLICES).map(job).collect(),
        segments,
        head,
    }
}

fn program(url: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuledger"));
    command.args(arguments).env("GPULEDGER_DATABASE_URL", url).env("GPULEDGER_BILLING_ZONE", "UTC");
    command
}

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    // Ends within the last ten minutes, at a turn of jobs.
    let ten_minutes = MINUTES_OF_A_JOB * 60 * S;
    let until_us = gpuledger::clock::now().micros() / ten_minutes * ten_minutes;
    let from_us = until_us - MINUTES * 60 * S;

    let (spool, _) = Spool::open(&file("spool"), 1 << 30).unwrap();
    let outbox = Outbox::new(spool, "b");
    let begun = Instant::now();
    for minute in 1..=MINUTES {
        assert!(outbox.put(report(from_us, minute), false).finished);
    }
    let tally = outbox.tally();
    println!(
        "a day of {SLICES} slices: {} reports of finished segments wait, {} KiB on disk; {} reports kept in {} ms",
        tally.spool_reports,
        tally.spool_bytes >> 10,
        MINUTES,
        begun.elapsed().as_millis()
    );

    let url = format!("sqlite://{}", file("books.db").display());
    assert!(program(&url, &["migrate"]).stdout(Stdio::null()).status().unwrap().success());
    let token = program(&url, &["token", "create", "--cluster", "bench"]).stderr(Stdio::null()).output().unwrap();
    fs::write(file("token"), token.stdout).unwrap();
    let serve = program(&url, &["serve", "--no-pages", "--listen", "127.0.0.1:0"]).stdout(Stdio::piped()).spawn();
    let mut service = serve.unwrap();
    let mut line = String::new();
    BufReader::new(service.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.split("http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
    let token_file = file("token").display().to_string();
    let settings = format!("cluster = \"bench\"\nservice = \"http://{address}\"\ntoken_file = \"{token_file}\"\n");
    fs::write(file("agent.toml"), settings).unwrap();
    let uplink = Uplink::new(&Config::read(&file("agent.toml")).unwrap()).unwrap().unwrap();

    let now_us = gpuledger::clock::now().micros();
    let now = Clocks { wall_us: now_us, boot_us: now_us - from_us };
    let (mut delivery, begun) = (Delivery::default(), Instant::now());
    loop {
        match delivery.step(&outbox, now, 0, |report| uplink.send(report)) {
            Step::Went(None) => {}
            Step::Nothing => break,
            other => panic!("{other:?}"),
        }
    }
    let took = begun.elapsed();
    let tally = outbox.tally();
    assert_eq!((tally.spool_reports, tally.spool_bytes, tally.records_refused), (0, 0, 0));
    println!(
        "the service has it all after {} ms: {} times faster than it came",
        took.as_millis(),
        86_400_000 / took.as_millis().max(1)
    );
    service.kill().unwrap();
    service.wait().unwrap();
}
