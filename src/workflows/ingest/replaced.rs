//! Records of nodes whose clock was off, re-placed in time.
//!
//! A report has two clocks, read together: the wall clock, which was wrong, and the boot-time clock, which only counts. Once
//! a later report of the same boot has a right wall clock, the difference of the two says where the earlier ones belong.

use gpuledger_db::Db;
use gpuledger_db::head;
use gpuledger_db::reported_segment::{self, AsideReason, RecordAside};
use gpuledger_domain::ids::{ClusterName, NodeId};
use gpuledger_domain::time::{HOUR_US, Instant};
use gpuledger_wire::{Clocks, Epoch, Job, Report, Segment, Total, Unit};
use serde::Deserialize;

use super::Ingest;
use super::interned::Interned;
use super::pending::{Context, Pending};
use super::{earliest, records};
use crate::error::AppError;
use crate::import::report::{NodeReport, read_stored};

/// Above every epoch that a collector tells: what was re-placed never wins over what was told of its time.
const REPLACED_EPOCH: i64 = 1 << 62;
/// Bits of an epoch below its milliseconds.
const EPOCH_RANDOM_BITS: u32 = 20;

/// Records of one transaction.
const AT_ONCE: i64 = 1_000;

/// A record as it was kept aside.
#[derive(Debug, Deserialize)]
struct Kept {
    record: Content,
    clocks: Clocks,
}

#[derive(Debug, Deserialize)]
struct Content {
    segment: Option<Segment>,
    unit: Option<Unit>,
    job: Option<Job>,
    boot_id: String,
}

impl Ingest {
    /// Stores the records that were kept aside because their node's clock was off, where it is right by now and the
    /// node was not booted since; how many there were. They stay listed, as re-placed.
    ///
    /// # Errors
    /// The database's. What fails of one node is logged, and the others are done.
    pub fn replace_in_time(&mut self, db: &mut Db, now: Instant) -> Result<usize, AppError> {
        let mut done = 0;
        for node in reported_segment::nodes_aside(db, AsideReason::ClockOff)? {
            match self.replace_for_node(db, node, now) {
                Ok(replaced) => done += replaced,
                // One node's records must not keep those of others where they are.
                Err(error) => tracing::error!(%error, node = node.0, "a node's records could not be re-placed in time"),
            }
        }
        if done > 0 {
            tracing::info!(records = done, "records of nodes whose clock was off were re-placed in time");
        }
        Ok(done)
    }

    /// Re-places what is kept of a node, some of it in each transaction.
    fn replace_for_node(&mut self, db: &mut Db, node: NodeId, now: Instant) -> Result<usize, AppError> {
        let Some(head) = head::find(db, node)? else { return Ok(0) };
        let Ok(right) = read_stored(&head.body) else { return Ok(0) };
        let (mut done, mut after) = (0, None);
        loop {
            let kept = reported_segment::not_replaced(db, (node, AsideReason::ClockOff), after.as_ref(), AT_ONCE)?;
            let Some(last) = kept.last().cloned() else { return Ok(done) };
            let replaced = db.transaction(|db| self.replace_of_node(db, &right, &kept, now));
            if replaced.is_err() {
                // What this transaction numbered is gone with it.
                self.interned = Interned::default();
            }
            done += replaced?;
            after = Some(last);
        }
    }

    fn replace_of_node(
        &mut self,
        db: &mut Db,
        right: &NodeReport,
        kept: &[RecordAside],
        now: Instant,
    ) -> Result<usize, AppError> {
        let mut done = 0;
        let mut pending = Pending::default();
        for aside in kept {
            let Some(report) = replaced(&right.cluster, &right.node, &right.told, aside) else { continue };
            let (cluster, node) = self.interned.node(db, &report, (&self.calendar, &self.default_pool))?;
            let numbers = self.interned.of_report(db, node, &report)?;
            let context = Context { calendar: &self.calendar, cluster, node, report: &report, numbers: &numbers, now };
            for (day, _) in records::days(&self.calendar, report.segments.iter(), now) {
                pending.mark_books(db, &context, day)?;
            }
            if let Some(changed) = numbers.changed_from {
                pending.mark_from(&self.calendar, node, changed, now);
            }
            let records = records::take(db, &mut pending, &context, false)?;
            if let Some(from) = earliest(&report, &super::Taken { records, head: None }) {
                self.interned.watch(db, node, from)?;
            }
            reported_segment::note_replaced(db, aside, now)?;
            done += 1;
        }
        pending.write(db)?;
        Ok(done)
    }
}

/// A report of one record where it belongs; `None` where that cannot be said.
fn replaced(cluster: &ClusterName, node: &str, right: &Report, aside: &RecordAside) -> Option<NodeReport> {
    let Kept { record, clocks } = serde_json::from_str(&aside.body).ok()?;
    if record.boot_id != right.boot_id {
        return None;
    }
    let offset = right.clocks.wall_us.checked_sub(right.clocks.boot_us)?;
    let shift = offset.checked_sub(clocks.wall_us.checked_sub(clocks.boot_us)?)?;
    let moved = |at: i64| at.checked_add(shift);
    let mut unit = record.unit?;
    unit.birth_us = moved(unit.birth_us)?;
    if let Some(death) = unit.death_us {
        unit.death_us = Some(moved(death)?);
    }
    let mut jobs: Vec<Job> = record.job.into_iter().collect();
    for job in &mut jobs {
        job.start_us = moved(job.start_us)?;
    }
    let segment = record.segment?;
    let (start_us, end_us) = (moved(segment.start_us)?, moved(segment.end_us)?);
    // Numbers that began anew each hour must be told apart where two such hours share one now.
    let odd_hour = u32::from(aside.key.hour.number() % 2 != 0);
    let number = segment.number.checked_mul(4)?.checked_add(odd_hour * 2)?;
    let job = (!jobs.is_empty()).then_some(0);
    let segment = Segment { number, unit: 0, job, start_us, end_us, ..segment };
    // It was before the report that tells the right time; a later one will do.
    if end_us > right.clocks.wall_us {
        return None;
    }
    let start_of_epoch = (aside.key.epoch >> EPOCH_RANDOM_BITS).checked_mul(1_000)?;
    let random = u32::try_from(aside.key.epoch & ((1 << EPOCH_RANDOM_BITS) - 1)).ok()?;
    let report = Report {
        cluster: cluster.to_string(),
        node: node.to_owned(),
        epoch: Epoch { start_us: start_of_epoch, random },
        clocks: Clocks { wall_us: right.clocks.wall_us, boot_us: 0 },
        units: vec![unit],
        jobs,
        segments: by_hour(segment)?,
        head: Vec::new(),
        ..right.clone()
    };
    let mut read = read_stored(&serde_json::to_string(&report).ok()?).ok()?;
    read.epoch = read.epoch.checked_add(REPLACED_EPOCH)?;
    Some(read)
}

/// A segment of at most an hour, cut where a UTC hour begins within it. Its totals are divided by wall time.
fn by_hour(segment: Segment) -> Option<Vec<Segment>> {
    let (start, end) = (segment.start_us, segment.end_us);
    let edge = start.div_euclid(HOUR_US).checked_add(1)?.checked_mul(HOUR_US)?;
    let length = end.checked_sub(start)?;
    if end <= edge {
        return Some(vec![segment]);
    }
    let part = |total: i64| {
        let first = i128::from(total) * i128::from(edge - start) / i128::from(length.max(1));
        i64::try_from(first).unwrap_or(total)
    };
    let total = |of: Option<Total>, take: &dyn Fn(i64) -> i64| {
        of.map(|of| Total {
            total: u64::try_from(take(i64::try_from(of.total).unwrap_or(i64::MAX))).unwrap_or(of.total),
            measured_us: take(of.measured_us),
        })
    };
    let taken = |take: &dyn Fn(i64) -> i64| Segment {
        share_us: take(segment.share_us),
        active_us: segment.active_us.map(take),
        estimated_us: take(segment.estimated_us),
        suspended_us: take(segment.suspended_us),
        telemetry: gpuledger_wire::Telemetry {
            utilisation: total(segment.telemetry.utilisation, take),
            energy_mj: total(segment.telemetry.energy_mj, take),
            peak_memory_bytes: segment.telemetry.peak_memory_bytes,
            sm_activity: total(segment.telemetry.sm_activity, take),
            sm_occupancy: total(segment.telemetry.sm_occupancy, take),
            tensor: total(segment.telemetry.tensor, take),
            memory_activity: total(segment.telemetry.memory_activity, take),
        },
        ..segment.clone()
    };
    let first = Segment { end_us: edge, ..taken(&part) };
    let second =
        Segment { start_us: edge, number: segment.number.checked_add(1)?, ..taken(&|total| total - part(total)) };
    Some(vec![first, second])
}
