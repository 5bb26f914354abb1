//! What the platform pays: attempts that ended by a cause for which the price book says so.
//!
//! Usage is always charged. Where the platform pays, each charge of the attempt is taken back by an adjustment of the
//! same amount, in the period in which the attempt ends, also where the time itself lies in an earlier one.

use std::collections::{BTreeMap, BTreeSet};

use gpuledger_db::allocation::{self, AttemptEnd};
use gpuledger_db::{Db, closing, period, usage};
use gpuledger_domain::calendar::{BillingCalendar, Month, Period};
use gpuledger_domain::ids::JobId;
use gpuledger_domain::pricing::{Charge, ChargeKind, EndCause};
use gpuledger_domain::time::{Instant, Interval};

use super::books::Books;
use super::price_period::price_usage;
use super::roll_up;
use crate::error::AppError;

/// The adjustments of a period.
#[derive(Clone, Debug, Default)]
pub struct Adjustments {
    /// One for each charge that is taken back.
    pub charges: Vec<Charge>,
    /// Earlier months that are open, whose charges are taken back as they would be now.
    pub of_open_months: BTreeSet<Month>,
}

/// The adjustments for attempts that end in a period, whose own charges are these.
///
/// # Errors
/// The database's, or an amount that does not fit.
pub fn adjustments(
    db: &mut Db,
    calendar: &BillingCalendar,
    of: &Period,
    books: &Books,
    charges: &[Charge],
) -> Result<Adjustments, AppError> {
    let mut made = Adjustments::default();
    if books.prices.end_causes.entries().all(|(_, causes)| causes.is_empty()) {
        return Ok(made);
    }
    let jobs: BTreeSet<JobId> = charges.iter().map(|charge| charge.job).collect();
    let mut taken_over: BTreeMap<JobId, EndCause> = BTreeMap::new();
    let mut earlier: BTreeMap<Month, (Period, BTreeSet<JobId>)> = BTreeMap::new();
    for end in allocation::ends(db, &jobs.into_iter().collect::<Vec<_>>())? {
        let Some(cause) = platform_pays(books, of, &end) else { continue };
        taken_over.insert(end.job, cause);
        for before in calendar_before(calendar, end.interval, of.interval.start()) {
            earlier.entry(before.month).or_insert_with(|| (before, BTreeSet::new())).1.insert(end.job);
        }
    }
    take_over(&mut made.charges, charges, &taken_over)?;
    for (month, (before, jobs)) in earlier {
        let jobs: Vec<JobId> = jobs.into_iter().collect();
        let frozen = period::find(db, month)?.and_then(|state| state.closing);
        let then = match frozen {
            Some(closing_id) => closing::charges_of_jobs(db, closing_id, &jobs)?,
            None => {
                roll_up::roll_up(db, calendar, Some(before.interval))?;
                let usages = usage::of_jobs(db, before.interval, &jobs)?;
                made.of_open_months.insert(month);
                price_usage(db, books, &usages)?.charges
            }
        };
        take_over(&mut made.charges, &then, &taken_over)?;
    }
    Ok(made)
}

/// The cause by which an attempt ended in the period, if the platform pays for it.
fn platform_pays(books: &Books, of: &Period, end: &AttemptEnd) -> Option<EndCause> {
    let last = Instant::from_micros(end.interval.end().micros() - 1);
    let cause = EndCause::of_source(&end.end_state).filter(|_| !end.provisional && of.interval.contains(last))?;
    books.prices.end_causes.platform_pays(last)?.contains(&cause).then_some(cause)
}

/// The periods of an attempt's time that begin before an instant.
fn calendar_before(calendar: &BillingCalendar, attempt: Interval, until: Instant) -> Vec<Period> {
    let mut periods = Vec::new();
    let mut at = attempt.start();
    while at < until {
        let period = calendar.period_of(at);
        at = period.interval.end();
        periods.push(period);
    }
    periods
}

fn take_over(
    adjustments: &mut Vec<Charge>,
    charges: &[Charge],
    taken_over: &BTreeMap<JobId, EndCause>,
) -> Result<(), AppError> {
    for charge in charges.iter().filter(|charge| charge.kind == ChargeKind::Usage) {
        if let Some(cause) = taken_over.get(&charge.job) {
            adjustments.push(charge.taken_over(*cause)?);
        }
    }
    Ok(())
}
