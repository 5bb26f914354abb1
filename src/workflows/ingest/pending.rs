//! What a group of reports is to write, until all of them are weighed: then it is written at once. Whoever weighs a report
//! looks here before it looks into the database.

use std::collections::{BTreeMap, BTreeSet};

use gpuledger_db::dimensions::{self, ClusterId};
use gpuledger_db::head::{self, Head};
use gpuledger_db::reported_segment::{self, RecordAside, ReportedSegment};
use gpuledger_db::usage::{self, Mark};
use gpuledger_db::{Db, period};
use gpuledger_domain::calendar::BillingCalendar;
use gpuledger_domain::ids::{FactSetId, JobId, NodeId};
use gpuledger_domain::metering::{Segment, SegmentKey, Source};
use gpuledger_domain::time::{Instant, Interval};

use super::AGE_MAX_US;
use super::interned::ReportNumbers;
use super::records::key_of;
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
        key_of(self.node, self.report, record)
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

/// The last instant before another.
fn last_of(end: Instant) -> Instant {
    end.plus_micros(-1).unwrap_or(end)
}

/// What is to be written.
#[derive(Default)]
pub(super) struct Pending {
    pub(super) segments: BTreeMap<SegmentKey, ReportedSegment>,
    /// When those came of which a month was closed.
    late: BTreeMap<SegmentKey, Instant>,
    pub(super) heads: BTreeMap<NodeId, Head>,
    pub(super) aside: Vec<RecordAside>,
    marks: BTreeSet<Mark>,
    /// The mark that was set last.
    last: Option<Mark>,
    /// The months that were looked at, and whether they are closed. They do not change before the transaction ends.
    months: Vec<(Interval, bool)>,
}

impl Pending {
    /// Stores a segment, perhaps in the place of a provisional one of its identity. Where a month that it lies in
    /// is closed, it is late, and what it takes the place of is kept: the month was closed with that.
    pub(super) fn put(
        &mut self,
        db: &mut Db,
        context: &Context<'_>,
        reported: ReportedSegment,
        (closed, replaces): (&[Interval], bool),
    ) -> Result<(), AppError> {
        let (key, interval) = (reported.segment.key, reported.segment.interval);
        let is_late = closed.iter().any(|month| month.intersection(interval).is_some());
        if is_late {
            self.late.insert(key, context.now);
        }
        match (replaces, is_late) {
            (false, _) => {}
            (true, false) => reported_segment::remove_provisional(db, key)?,
            (true, true) => reported_segment::supersede_provisional(db, key, context.now)?,
        }
        self.store(context.calendar, reported);
        Ok(())
    }

    /// Stores a segment, and marks its day: both days of its hour, where one begins within it, since what counts is
    /// worked out hour by hour.
    fn store(&mut self, calendar: &BillingCalendar, reported: ReportedSegment) {
        let key = reported.segment.key;
        for at in [key.hour.start(), last_of(key.hour.next().start())] {
            let marked = |mark: &Mark| mark.node == key.node && calendar.day_of(mark.day_start).contains(at);
            if !self.last.as_ref().is_some_and(marked) {
                let mark = Mark { day_start: calendar.day_of(at).start(), node: key.node };
                self.last = Some(mark);
                self.marks.insert(mark);
            }
        }
        self.segments.insert(key, reported);
    }

    /// Marks the days of a node from an instant on, because it has other units than it had.
    pub(super) fn mark_from(&mut self, calendar: &BillingCalendar, node: NodeId, from: Instant, until: Instant) {
        let days = Interval::new(from, until).map(|changed| calendar.days(changed)).unwrap_or_default();
        self.marks.extend(days.iter().map(|day| Mark { day_start: day.start(), node }));
    }

    /// Before the first segments of a node, or of a job, in a day are stored: what schedulers' books say of them will not
    /// count for that day any more, so that the day of what stands for their pools is marked too.
    pub(super) fn mark_books(&mut self, db: &mut Db, context: &Context<'_>, day: Interval) -> Result<(), AppError> {
        let stand_ins = dimensions::stand_ins(db, context.cluster)?.into_iter();
        self.marks.extend(stand_ins.map(|node| Mark { day_start: day.start(), node }));
        Ok(())
    }

    /// The closed ones among the months that the report touches. None of them closes before the transaction ends.
    pub(super) fn closed_months(&mut self, db: &mut Db, context: &Context<'_>) -> Result<Vec<Interval>, AppError> {
        let records = context.report.segments.iter().chain(&context.report.head);
        for record in records {
            let Ok(content) = &record.content else { continue };
            for at in [content.interval.start(), last_of(content.interval.end())] {
                let age = context.now.micros().saturating_sub(at.micros());
                if age > AGE_MAX_US || self.months.iter().any(|(month, _)| month.contains(at)) {
                    continue;
                }
                let touched = context.calendar.period_of(at);
                let states = period::hold_open(db, &[touched])?;
                let closed = states.first().is_some_and(|state| state.closing.is_some());
                self.months.push((touched.interval, closed));
            }
        }
        Ok(self.months.iter().filter(|(_, closed)| *closed).map(|(month, _)| *month).collect())
    }

    /// Writes all of it.
    pub(super) fn write(self, db: &mut Db) -> Result<(), AppError> {
        let segments: Vec<ReportedSegment> = self.segments.into_values().collect();
        reported_segment::insert(db, &segments, &self.late)?;
        reported_segment::keep_aside(db, &self.aside)?;
        head::replace(db, &self.heads.into_values().collect::<Vec<_>>())?;
        Ok(usage::mark(db, &self.marks.into_iter().collect::<Vec<_>>())?)
    }
}
