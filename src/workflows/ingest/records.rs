//! Finished segments: stored, known, in conflict, kept aside or rejected; each by itself.

use std::collections::{BTreeMap, BTreeSet};

use gpuledger_db::Db;
use gpuledger_db::reported_segment::{self, AsideReason, RecordAside, ReportedSegment};
use gpuledger_domain::calendar::BillingCalendar;
use gpuledger_domain::ids::NodeId;
use gpuledger_domain::metering::SegmentKey;
use gpuledger_domain::time::{Hour, Instant, Interval};
use gpuledger_wire::{Outcome, RecordAnswer, RecordCode};
use sha2::{Digest, Sha256};

use super::pending::{Context, Pending};
use super::{AGE_MAX_US, answer, held};
use crate::error::AppError;
use crate::import::report::{NodeReport, Record};

/// Stores what a report brings of finished segments.
/// Where `are_new` says that none of their identities can be held, nobody looks for them; if one is held after all,
/// the database refuses the group, and it is tried again without that.
pub(super) fn take(
    db: &mut Db,
    pending: &mut Pending,
    context: &Context<'_>,
    are_new: bool,
) -> Result<Vec<RecordAnswer>, AppError> {
    let known = if are_new { BTreeMap::new() } else { known(db, context)? };
    let closed = pending.closed_months(db, context)?;
    let mut answers = Vec::with_capacity(context.report.segments.len());
    for (place, record) in context.report.segments.iter().enumerate() {
        let name = Some(record.name);
        let content = match &record.content {
            Ok(content) => content,
            Err((code, message)) => {
                answers.push(answer(name, *code, message));
                continue;
            }
        };
        let Some(segment) = context.segment(record, content, false) else {
            answers.push(answer(name, RecordCode::NoUnit, "the report has no such unit"));
            continue;
        };
        if is_too_old(segment.segment.interval.start(), context.now) {
            answers.push(answer(name, RecordCode::TooOld, "it is older than segments are kept"));
            continue;
        }
        let key = segment.segment.key;
        let stored = pending.segments.get(&key).or_else(|| known.get(&key));
        let replaces = stored.is_some();
        match stored {
            Some(stored) if *stored == segment => {
                answers.push(held(name, Outcome::Known));
                continue;
            }
            Some(stored) if !stored.provisional => {
                tracing::warn!(node = %context.report.node, hour = %key.hour.start(), number = key.number, "a record is in conflict");
                pending.aside.push(aside_of(context, place, key, AsideReason::OtherContent));
                answers.push(answer(name, RecordCode::OtherContent, "its identity is held with other content"));
                continue;
            }
            _ => {}
        }
        pending.put(db, context, segment, (&closed, replaces))?;
        answers.push(held(name, Outcome::Accepted));
    }
    Ok(answers)
}

/// The billing days of which these records tell, with the places of the jobs that held something in each. What is older than
/// segments are kept tells of nothing.
pub(super) fn days<'a>(
    calendar: &BillingCalendar,
    records: impl Iterator<Item = &'a Record>,
    now: Instant,
) -> Vec<(Interval, BTreeSet<usize>)> {
    let mut days: BTreeMap<Instant, (Interval, BTreeSet<usize>)> = BTreeMap::new();
    for content in records.filter_map(|record| record.content.as_ref().ok()) {
        let start = content.interval.start();
        if is_too_old(start, now) {
            continue;
        }
        let known = days.range(..=start).next_back().map(|(first, (day, _))| (*first, *day));
        let (first, day) = known.filter(|(_, day)| day.contains(start)).unwrap_or_else(|| {
            let day = calendar.day_of(start);
            (day.start(), day)
        });
        days.entry(first).or_insert_with(|| (day, BTreeSet::new())).1.extend(content.job);
    }
    days.into_values().collect()
}

/// Whether a record that begins so early is not kept any more.
pub(super) fn is_too_old(start: Instant, now: Instant) -> bool {
    start.micros() < now.micros().saturating_sub(AGE_MAX_US)
}

/// What is held of the report's identities.
fn known(db: &mut Db, context: &Context<'_>) -> Result<BTreeMap<SegmentKey, ReportedSegment>, AppError> {
    let mut numbers: BTreeMap<Hour, (i64, i64)> = BTreeMap::new();
    for record in context.report.segments.iter().filter(|record| record.content.is_ok()) {
        let key = context.key(record);
        let range = numbers.entry(key.hour).or_insert((key.number, key.number));
        *range = (range.0.min(key.number), range.1.max(key.number));
    }
    let mut known = BTreeMap::new();
    for (hour, range) in numbers {
        let held = reported_segment::held(db, (context.node, context.report.epoch, hour), range)?;
        known.extend(held.into_values().map(|reported| (reported.segment.key, reported)));
    }
    Ok(known)
}

/// Most bytes of what is kept aside of one report: each record is kept with its whole unit and job.
const ASIDE_BYTES_MAX: usize = 16 << 20;
/// Most records of a node that are kept aside and were not re-placed.
const ASIDE_RECORDS_MAX: i64 = 100_000;

/// Keeps the finished segments of a report aside, because the node's clock is off. Those that would be wrong by any clock are
/// rejected, and so is more than can be kept.
///
/// # Errors
/// The database's.
pub(super) fn all_aside(
    db: &mut Db,
    pending: &mut Pending,
    node: NodeId,
    report: &NodeReport,
    (now, message): (Instant, &str),
) -> Result<Vec<RecordAnswer>, AppError> {
    let mut left = ASIDE_RECORDS_MAX.saturating_sub(reported_segment::count_aside(db, node)?);
    let mut bytes = 0;
    let mut answers = Vec::with_capacity(report.segments.len());
    for (place, record) in report.segments.iter().enumerate() {
        if let Err((code, message)) = &record.content {
            answers.push(answer(Some(record.name), *code, message));
            continue;
        }
        let kept = aside(report, place, key_of(node, report, record), AsideReason::ClockOff, now);
        bytes += kept.body.len();
        if left <= 0 || bytes > ASIDE_BYTES_MAX {
            let message =
                format!("{message}; too many records are kept aside already. Send it again once the clock is right");
            let rejected = answer(Some(record.name), RecordCode::ClockOff, &message);
            answers.push(RecordAnswer { outcome: Outcome::Rejected, ..rejected });
            continue;
        }
        left -= 1;
        pending.aside.push(kept);
        answers.push(answer(Some(record.name), RecordCode::ClockOff, message));
    }
    Ok(answers)
}

/// The identity of a record.
pub(super) fn key_of(node: NodeId, report: &NodeReport, record: &Record) -> SegmentKey {
    let hour = Instant::from_micros(record.name.hour_us).hour();
    SegmentKey { hour, node, epoch: report.epoch, number: record.name.number.into() }
}

fn aside_of(context: &Context<'_>, place: usize, key: SegmentKey, reason: AsideReason) -> RecordAside {
    aside(context.report, place, key, reason, context.now)
}

/// A record with its unit, its job and the clocks of its report, as it came.
fn aside(report: &NodeReport, place: usize, key: SegmentKey, reason: AsideReason, now: Instant) -> RecordAside {
    let told = &report.told;
    let segment = told.segments.get(place);
    let at = |index: Option<u32>| index.and_then(|index| usize::try_from(index).ok());
    let unit = segment.and_then(|segment| told.units.get(at(Some(segment.unit))?));
    let job = segment.and_then(|segment| told.jobs.get(at(segment.job)?));
    // The clocks say where it belongs, and differ each time it is sent; they are not what it says.
    let content = serde_json::json!({ "segment": segment, "unit": unit, "job": job, "boot_id": told.boot_id });
    let sha256 = Sha256::digest(content.to_string().as_bytes()).to_vec();
    let body = serde_json::json!({ "record": content, "clocks": told.clocks }).to_string();
    RecordAside { key, sha256, reason, received_at: now, body, replaced_at: None }
}
