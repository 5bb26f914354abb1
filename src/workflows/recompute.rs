//! Everything that is worked out of open months is worked out again, and compared with what is held.
//!
//! Once a night, by whichever replica comes first; and whenever somebody asks. Days are marked to be checked, and whoever sums
//! and prices marked days compares. Marks of days on which something changed come first, so that nobody waits for it.

use std::collections::BTreeSet;

use gpuledger_db::open_cost;
use gpuledger_db::usage::{self, Mark};
use gpuledger_db::{Db, period, task};
use gpuledger_domain::calendar::BillingCalendar;
use gpuledger_domain::time::{HOUR_US, Instant};

use super::reprice::{self, Repricer};
use super::roll_up::{self, Checked};
use crate::error::AppError;

/// The name of the task.
const TASK: &str = "recompute";
/// When it is due: at two o'clock UTC, in microseconds from midnight.
const DUE_AT_US: i64 = 2 * HOUR_US;
const DAY_US: i64 = 24 * HOUR_US;

/// What was compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recomputed {
    /// Days of nodes, against their segments.
    pub usage: Checked,
    /// Days of months, against their usage.
    pub cost: Checked,
}

/// Marks all days of open months to be checked, if the night's task is due and nobody else does it; whether it did.
///
/// # Errors
/// The database's.
pub fn start_if_due(db: &mut Db, calendar: &BillingCalendar, now: Instant) -> Result<bool, AppError> {
    let today = now.micros().div_euclid(DAY_US) * DAY_US;
    let next = [today + DUE_AT_US, today + DAY_US + DUE_AT_US].into_iter().find(|due| *due > now.micros());
    let next = Instant::from_micros(next.unwrap_or(today + DAY_US + DUE_AT_US));
    task::ensure(db, TASK, next)?;
    db.transaction(|db| {
        if !task::take_due(db, TASK, now)? {
            return Ok(false);
        }
        mark(db, calendar)?;
        task::done(db, TASK, now, next)?;
        Ok(true)
    })
}

fn mark(db: &mut Db, calendar: &BillingCalendar) -> Result<(), AppError> {
    let open: Vec<_> = period::all(db)?.into_iter().filter(|state| state.closing.is_none()).collect();
    for state in &open {
        for day in calendar.days(state.period.interval) {
            let nodes = usage::nodes_of_interval(db, day)?;
            let marks: Vec<Mark> = nodes.into_iter().map(|node| Mark { day_start: day.start(), node }).collect();
            usage::mark_to_check(db, &marks)?;
        }
    }
    let starts: BTreeSet<Instant> = open.iter().map(|state| state.period.interval.start()).collect();
    let priced = open_cost::priced_days(db)?;
    let days: Vec<_> = priced.into_keys().filter(|day| starts.contains(&day.period_start)).collect();
    Ok(open_cost::mark_to_check(db, &days)?)
}

/// Works out everything of open months again, now.
///
/// # Errors
/// The database's, or a sum that does not fit.
pub fn recompute(db: &mut Db, calendar: &BillingCalendar, clock: impl Fn() -> Instant) -> Result<Recomputed, AppError> {
    // What waits is no difference.
    roll_up::roll_up(db, calendar, None)?;
    reprice::mark_unpriced(db, calendar)?;
    let mut repricer = Repricer::default();
    repricer.reprice(db, calendar, &clock)?;
    db.transaction(|db| mark(db, calendar))?;
    let usage = roll_up::check(db, calendar, i64::MAX, || {})?;
    let cost = repricer.check(db, calendar, i64::MAX, &clock)?;
    repricer.reprice(db, calendar, &clock)?;
    Ok(Recomputed { usage, cost })
}
