//! Finished segments: stored, known, in conflict, kept aside or rejected; each by itself.

use std::collections::{BTreeMap, BTreeSet};

use gpuledger_db::dimensions::{self, ClusterId};
use gpuledger_db::reported_segment::{self, AsideReason, RecordAside, ReportedSegment};
use gpuledger_db::usage::{self, Mark};
use gpuledger_db::{Db, period, segment};
use gpuledger_domain::calendar::BillingCalendar;
use gpuledger_domain::ids::{FactSetId, JobId, NodeId};
use gpuledger_domain::metering::{Segment, SegmentKey, Source};
use gpuledger_domain::time::{Hour, Instant, Interval};
use gpuledger_wire::{Outcome, RecordAnswer, RecordCode};
use sha2::{Digest, Sha256};

use super::interned::ReportNumbers;
use super::{AGE_MAX_US, answer, held};
use crate::error::AppError;
use crate::import::report::{NodeReport, Record, RecordContent};

/// What a report is taken with.
pub(super) struct Context<'a> {
    pub(super) calendar: &'a BillingCalendar,
    pub(super) cluster: ClusterId,
    pub(super) node: NodeId,
    pub(super) report: &'a NodeReport,
    pub(super) numbers: &'a ReportNumbers,
    pub(super) now: Instant,
}

impl Context<'_> {
    pub(super) fn key(&self, record: &Record) -> SegmentKey {
        SegmentKey {
            hour: Instant::from_micros(record.name.hour_us).hour(),
            node: self.node,
            epoch: self.report.epoch,
            number: record.name.number.into(),
        }
    }

    /// The segment that a record tells of.
    pub(super) fn segment(
        &self,
        record: &Record,
        content: &RecordContent,
        provisional: bool,
    ) -> Option<ReportedSegment> {
        let (unit, sku) = *self.numbers.units.get(content.unit)?;
        let (job, facts) = match content.job {
            Some(job) => *self.numbers.jobs.get(job)?,
            None => (JobId(0), FactSetId(0)),
        };
        let segment = Segment {
            key: self.key(record),
            on_node: self.node,
            unit,
            sku,
            job,
            facts,
            state: content.state,
            source: Source::Agent,
            interval: content.interval,
            count: 1,
            share_us: content.share_us,
            active_us: content.active_us,
            estimated_us: content.estimated_us,
            suspended_us: content.suspended_us,
        };
        Some(ReportedSegment { segment, measurements: content.measurements, provisional })
    }
}

/// Stores what a report brings of finished segments.
pub(super) fn take(db: &mut Db, context: &Context<'_>) -> Result<Vec<RecordAnswer>, AppError> {
    let mut known = known(db, context)?;
    let closed = closed_months(db, context)?;
    let mut answers = Vec::with_capacity(context.report.segments.len());
    let (mut new, mut aside) = (Vec::new(), Vec::new());
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
        if segment.segment.interval.start().micros() < context.now.micros().saturating_sub(AGE_MAX_US) {
            answers.push(answer(name, RecordCode::TooOld, "it is older than segments are kept"));
            continue;
        }
        let key = segment.segment.key;
        match known.get(&key) {
            Some(stored) if *stored == segment => {
                answers.push(held(name, Outcome::Known));
                continue;
            }
            Some(stored) if !stored.provisional => {
                tracing::warn!(node = %context.report.node, hour = %key.hour.start(), number = key.number, "a record is in conflict");
                aside.push(aside_of(context, place, key, AsideReason::OtherContent)?);
                answers.push(answer(name, RecordCode::OtherContent, "its identity is held with other content"));
                continue;
            }
            _ if closed.iter().any(|month| month.intersection(content.interval).is_some()) => {
                aside.push(aside_of(context, place, key, AsideReason::MonthClosed)?);
                answers.push(answer(name, RecordCode::MonthClosed, "its month is closed; it waits for a correction"));
                continue;
            }
            Some(_) => reported_segment::remove_provisional(db, key)?,
            None => {}
        }
        known.insert(key, segment.clone());
        new.push(segment);
        answers.push(held(name, Outcome::Accepted));
    }
    reported_segment::keep_aside(db, &aside)?;
    store(db, context, new)?;
    Ok(answers)
}

/// Stores new segments and marks their days.
pub(super) fn store(db: &mut Db, context: &Context<'_>, mut new: Vec<ReportedSegment>) -> Result<(), AppError> {
    new.sort_by_key(|reported| reported.segment.key);
    let days = new.iter().map(|reported| context.calendar.day_of(reported.segment.interval.start()).start());
    let days: BTreeSet<Instant> = days.collect();
    reported_segment::insert(db, &new)?;
    let marks: Vec<Mark> = days.into_iter().map(|day_start| Mark { day_start, node: context.node }).collect();
    Ok(usage::mark(db, &marks)?)
}

/// Before the first segments of a node in a day are stored: what schedulers' books say of the node will not count for
/// that day any more, so that the day of what stands for their pools is marked too.
pub(super) fn mark_books(db: &mut Db, context: &Context<'_>, day: Interval) -> Result<(), AppError> {
    if segment::has_reports(db, context.node, &day.hours().collect::<Vec<_>>())? {
        return Ok(());
    }
    let stand_ins = dimensions::stand_ins(db, context.cluster)?.into_iter();
    let marks: Vec<Mark> = stand_ins.map(|node| Mark { day_start: day.start(), node }).collect();
    Ok(usage::mark(db, &marks)?)
}

/// The billing days of which these records tell.
pub(super) fn days<'a>(calendar: &BillingCalendar, records: impl Iterator<Item = &'a Record>) -> BTreeSet<Interval> {
    let told = records.filter_map(|record| record.content.as_ref().ok());
    let mut days: BTreeSet<Interval> = BTreeSet::new();
    for content in told {
        if !days.iter().any(|day| day.contains(content.interval.start())) {
            days.insert(calendar.day_of(content.interval.start()));
        }
    }
    days
}

/// What is held of the report's identities.
fn known(db: &mut Db, context: &Context<'_>) -> Result<BTreeMap<SegmentKey, ReportedSegment>, AppError> {
    let mut numbers: BTreeMap<Hour, (i64, i64)> = BTreeMap::new();
    for record in &context.report.segments {
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

/// The closed ones among the months that the report touches. None of them closes before the transaction ends.
pub(super) fn closed_months(db: &mut Db, context: &Context<'_>) -> Result<Vec<Interval>, AppError> {
    let records = context.report.segments.iter().chain(&context.report.head);
    let starts: BTreeSet<Instant> =
        records.filter_map(|record| Some(record.content.as_ref().ok()?.interval.start())).collect();
    let mut touched = Vec::new();
    for start in starts {
        if touched.last().is_none_or(|last: &gpuledger_domain::calendar::Period| !last.interval.contains(start)) {
            touched.push(context.calendar.period_of(start));
        }
    }
    let states = period::hold_open(db, &touched)?;
    Ok(states.into_iter().filter(|state| state.closing.is_some()).map(|state| state.period.interval).collect())
}

/// Keeps all finished segments of a report aside, because the node's clock is off.
pub(super) fn all_aside(
    db: &mut Db,
    node: NodeId,
    report: &NodeReport,
    now: Instant,
    message: &str,
) -> Result<Vec<RecordAnswer>, AppError> {
    let numbers = ReportNumbers::default();
    let calendar = BillingCalendar::new("UTC").map_err(AppError::Refused)?;
    let context = Context { calendar: &calendar, cluster: 0, node, report, numbers: &numbers, now };
    let mut aside = Vec::with_capacity(report.segments.len());
    for (place, record) in report.segments.iter().enumerate() {
        aside.push(aside_of(&context, place, context.key(record), AsideReason::ClockOff)?);
    }
    reported_segment::keep_aside(db, &aside)?;
    let answers = report.segments.iter().map(|record| answer(Some(record.name), RecordCode::ClockOff, message));
    Ok(answers.collect())
}

/// A record with its unit, its job and the clocks of its report, as it came.
fn aside_of(
    context: &Context<'_>,
    place: usize,
    key: SegmentKey,
    reason: AsideReason,
) -> Result<RecordAside, AppError> {
    let told = &context.report.told;
    let segment = told.segments.get(place);
    let at = |index: Option<u32>| index.and_then(|index| usize::try_from(index).ok());
    let unit = segment.and_then(|segment| told.units.get(at(Some(segment.unit))?));
    let job = segment.and_then(|segment| told.jobs.get(at(segment.job)?));
    // The clocks say where it belongs, and differ each time it is sent; they are not what it says.
    let content = serde_json::json!({ "segment": segment, "unit": unit, "job": job, "boot_id": told.boot_id });
    let sha256 = Sha256::digest(content.to_string().as_bytes()).to_vec();
    let body = serde_json::json!({ "record": content, "clocks": told.clocks }).to_string();
    Ok(RecordAside { key, sha256, reason, received_at: context.now, body })
}
