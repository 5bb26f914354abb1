//! Reports of collectors, made by hand.

use gpuledger::import::report::{NodeReport, read_report};
use gpuledger::workflows::ingest::{Ingest, Taken};
use gpuledger_db::Db;
use gpuledger_domain::calendar::BillingCalendar;
use gpuledger_domain::ids::PoolName;
use gpuledger_domain::time::Instant;
use gpuledger_wire::{Clocks, Epoch, Facts, Gpu, Job, PROTOCOL, Report, Segment, State, Telemetry, Unit, UnitKind};

pub const SECOND_US: i64 = 1_000_000;

pub fn at(text: &str) -> Instant {
    Instant::parse(text).unwrap()
}

/// A report of a node with one H100 that is not cut, made at `wall`.
pub fn report(node: &str, epoch: i64, sequence: u64, wall: Instant) -> Report {
    Report {
        protocol: PROTOCOL,
        cluster: "c".into(),
        node: node.into(),
        boot_id: "b-1".into(),
        epoch: Epoch { start_us: epoch, random: 7 },
        sequence,
        clocks: Clocks { wall_us: wall.micros(), boot_us: 1_000 },
        collector: "test/1".into(),
        units: vec![full(node, 0)],
        jobs: Vec::new(),
        segments: Vec::new(),
        head: Vec::new(),
    }
}

pub fn full(node: &str, birth_us: i64) -> Unit {
    let (model, compute_slices, memory_slices) = ("H100".to_owned(), 7, 8);
    let gpu = Gpu { uuid: format!("GPU-{node}"), model, compute_slices, memory_slices };
    let (uuid, profile) = (String::new(), String::new());
    Unit { gpu, kind: UnitKind::Full, uuid, profile, compute_slices, memory_slices, birth_us, death_us: None }
}

pub fn job(id: &str, account: &str, start: Instant) -> Job {
    let facts = Facts { account: account.into(), user: "u".into(), ..Facts::default() };
    Job { source_id: id.into(), start_us: start.micros(), facts }
}

/// The whole of the unit 0, for the job of this place or for none.
pub fn segment(number: u32, job: Option<u32>, start: Instant, end: Instant) -> Segment {
    let share_us = end.micros() - start.micros();
    Segment {
        number,
        unit: 0,
        job,
        state: if job.is_some() { State::Held } else { State::Idle },
        start_us: start.micros(),
        end_us: end.micros(),
        share_us,
        active_us: job.map(|_| share_us / 2),
        estimated_us: 0,
        suspended_us: 0,
        telemetry: Telemetry::default(),
    }
}

pub fn read(report: &Report) -> NodeReport {
    let body = zstd::encode_all(serde_json::to_vec(report).unwrap().as_slice(), 1).unwrap();
    read_report(&body, "zstd").unwrap()
}

pub fn ingest(calendar: &BillingCalendar) -> Ingest {
    Ingest::new(calendar.clone(), PoolName::parse("p").unwrap())
}

/// Takes one report; it must be taken.
pub fn take(db: &mut Db, ingest: &mut Ingest, report: &Report, now: Instant) -> Taken {
    ingest.take(db, &[read(report)], now).unwrap().remove(0)
}
