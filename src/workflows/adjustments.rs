//! What the platform pays: attempts that ended by a cause for which the price book says so.
//!
//! Usage is always charged. Where the platform pays, each charge of the attempt is taken back by an adjustment of the
//! same amount, in the period in which the attempt ends, also where the time itself lies in an earlier one.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use gpuledger_db::allocation::{self, AttemptEnd};
use gpuledger_db::{Db, closing, dimensions, node_watch, period, segment};
use gpuledger_domain::calendar::{BillingCalendar, Month, Period, slots};
use gpuledger_domain::ids::{JobId, NodeId};
use gpuledger_domain::metering::{Usage, usage_by_slot};
use gpuledger_domain::pricing::{Charge, ChargeKind, EndCause};
use gpuledger_domain::time::{Hour, Instant, Interval};

use super::books::Books;
use super::counted;
use super::price_period::Chargeable;
use crate::error::AppError;

/// The attempts of a period that the platform takes over.
#[derive(Debug, Default)]
pub(super) struct TakenOver {
    causes: BTreeMap<JobId, EndCause>,
    /// The earlier periods in which they held GPUs.
    earlier: BTreeMap<Month, EarlierPeriod>,
}

/// A period before the one in which attempts end.
#[derive(Debug)]
struct EarlierPeriod {
    period: Period,
    /// The closing in force; `None` while it is open.
    closing: Option<i64>,
    attempts: Vec<(JobId, Interval)>,
}

impl TakenOver {
    /// Those among the attempts of a period's usage that end in it by a cause for which the platform pays.
    pub(super) fn find(
        db: &mut Db,
        calendar: &BillingCalendar,
        of: &Period,
        books: &Books,
        chargeable: Chargeable<'_>,
    ) -> Result<TakenOver, AppError> {
        let mut found = TakenOver::default();
        if books.prices.end_causes.entries().all(|(_, causes)| causes.is_empty()) {
            return Ok(found);
        }
        let late: BTreeSet<JobId> = chargeable.late.iter().map(|entry| entry.usage.key.job).collect();
        let jobs: BTreeSet<JobId> = chargeable.usages.iter().map(|usage| usage.key.job).chain(late.clone()).collect();
        for end in allocation::ends(db, &jobs.into_iter().collect::<Vec<_>>())? {
            let ends_in = if late.contains(&end.job) { until(of.interval.end()) } else { Some(of.interval) };
            let Some(cause) = ends_in.and_then(|ends_in| platform_pays(books, ends_in, &end)) else { continue };
            found.causes.insert(end.job, cause);
            // What ended in a closed month was taken over in it, but for what came since.
            let ended_before = end.interval.end() <= of.interval.start();
            let mut at = if ended_before { of.interval.start() } else { end.interval.start() };
            while at < of.interval.start() {
                let period = calendar.period_of(at);
                at = period.interval.end();
                let earlier = match found.earlier.entry(period.month) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(vacant) => {
                        let closing = period::find(db, period.month)?.and_then(|state| state.closing);
                        vacant.insert(EarlierPeriod { period, closing, attempts: Vec::new() })
                    }
                };
                earlier.attempts.push((end.job, end.interval));
            }
        }
        Ok(found)
    }

    /// Earlier months that are open, whose charges are taken over as they would be now.
    pub(super) fn open_months(&self) -> BTreeSet<Month> {
        self.earlier.iter().filter(|(_, earlier)| earlier.closing.is_none()).map(|(month, _)| *month).collect()
    }

    /// What the attempts held in earlier months that are open, summed by the cuts of these books.
    pub(super) fn usages_of_open_months(
        &self,
        db: &mut Db,
        calendar: &BillingCalendar,
        books: &Books,
    ) -> Result<Vec<Usage>, AppError> {
        let mut usages = Vec::new();
        let open: Vec<&EarlierPeriod> = self.earlier.values().filter(|earlier| earlier.closing.is_none()).collect();
        if open.is_empty() {
            return Ok(usages);
        }
        let memberships = dimensions::memberships(db)?;
        let changes = books.changes(&memberships);
        let stand_ins: Vec<NodeId> = memberships.nodes().collect();
        // Where no collector reports, an attempt's segments are found by their key.
        let watched = !node_watch::all(db)?.is_empty();
        for earlier in open {
            for (job, held) in &earlier.attempts {
                let Some(within) = held.intersection(earlier.period.interval) else { continue };
                for day in calendar.days(within) {
                    let segments = if watched {
                        counted::of_job(db, *job, day, counted::NOW)?
                    } else {
                        segment::of_attempt(db, &stand_ins, *job, &day.hours().collect::<Vec<Hour>>())?
                    };
                    usages.extend(usage_by_slot(&segments, &slots(day, &changes))?);
                }
            }
        }
        Ok(usages)
    }

    /// One adjustment for each charge of these attempts: of the period's own, of earlier ones that are open, and of
    /// those that are frozen.
    pub(super) fn adjustments(
        &self,
        db: &mut Db,
        own: &[Charge],
        of_open_months: &[Charge],
    ) -> Result<Vec<Charge>, AppError> {
        let mut frozen = Vec::new();
        for earlier in self.earlier.values() {
            let Some(closing_id) = earlier.closing else { continue };
            let jobs: Vec<JobId> = earlier.attempts.iter().map(|(job, _)| *job).collect();
            let then: Vec<Charge> =
                closing::charges_of_jobs(db, closing_id, &jobs)?.into_iter().map(|(_, charge)| charge).collect();
            // What a closed month took over itself is not taken over again.
            let done: BTreeSet<JobId> =
                then.iter().filter(|charge| charge.kind == ChargeKind::Adjustment).map(|charge| charge.job).collect();
            frozen.extend(then.into_iter().filter(|charge| !done.contains(&charge.job)));
        }
        let charges = own.iter().chain(of_open_months).chain(&frozen);
        let mut adjustments = Vec::new();
        for charge in charges.filter(|charge| matches!(charge.kind, ChargeKind::Usage | ChargeKind::Correction)) {
            if let Some(cause) = self.causes.get(&charge.job) {
                adjustments.push(charge.taken_over(*cause)?);
            }
        }
        Ok(adjustments)
    }
}

/// All time before an instant.
fn until(end: Instant) -> Option<Interval> {
    Interval::new(Instant::MIN, end)
}

/// The cause by which an attempt ended in the interval, if the platform pays for it.
fn platform_pays(books: &Books, ends_in: Interval, end: &AttemptEnd) -> Option<EndCause> {
    let last = Instant::from_micros(end.interval.end().micros() - 1);
    let cause = EndCause::of_source(&end.end_state).filter(|_| !end.provisional && ends_in.contains(last))?;
    books.prices.end_causes.platform_pays(last)?.contains(&cause).then_some(cause)
}
