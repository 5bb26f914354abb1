//! Segments become usage, a marked billing day of a node at a time.
//!
//! Each day is one transaction: take the mark, read the segments, write only the usage that differs, count the
//! change in the period, clear the mark. It may be repeated, interrupted or run twice at once and gives the same.

use gpuledger_db::usage::{self, Mark};
use std::collections::BTreeSet;

use gpuledger_db::{Db, catalogue, dimensions, open_cost, period, unit};
use gpuledger_domain::calendar::{BillingCalendar, slots};
use gpuledger_domain::ids::NodeId;
use gpuledger_domain::metering::usage_by_slot;
use gpuledger_domain::time::{Instant, Interval};

use super::books::Books;
use super::{counted, late_facts, reprice};
use crate::error::AppError;

/// Rolls up every marked day, or those that begin in `within`; how many were done. Days that are only to be checked are
/// not among them.
///
/// # Errors
/// The database's, or a sum that does not fit. Days done before stay done.
pub fn roll_up(db: &mut Db, calendar: &BillingCalendar, within: Option<Interval>) -> Result<usize, AppError> {
    roll_up_between(db, calendar, within, || {})
}

/// As [`roll_up`], with something to do between two days, such as to let others write.
///
/// # Errors
/// As [`roll_up`].
pub fn roll_up_between(
    db: &mut Db,
    calendar: &BillingCalendar,
    within: Option<Interval>,
    between_days: impl Fn(),
) -> Result<usize, AppError> {
    let marks = usage::marks(db, within)?;
    Ok(sum(db, calendar, marks, between_days)?.days)
}

/// What came of checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// How many days were worked out again.
    pub days: usize,
    /// How many of them were not what they should be. They were mended.
    pub differences: usize,
}

/// Sums at most so many of the days that are only to be checked, and compares.
///
/// # Errors
/// As [`roll_up`].
pub fn check(db: &mut Db, calendar: &BillingCalendar, most: i64, between_days: impl Fn()) -> Result<Checked, AppError> {
    let marks = usage::checks(db, most)?;
    sum(db, calendar, marks, between_days)
}

fn sum(
    db: &mut Db,
    calendar: &BillingCalendar,
    marks: Vec<Mark>,
    between_days: impl Fn(),
) -> Result<Checked, AppError> {
    let mut cuts = Cuts::default();
    let mut done = Checked::default();
    for mark in marks {
        if let Some(differs) = db.transaction(|db| roll_up_day(db, calendar, mark, &mut cuts))? {
            done.days += 1;
            done.differences += usize::from(differs);
        }
        between_days();
    }
    Ok(done)
}

/// The instants at which something that decides an amount changes, and the versions they are of.
#[derive(Default)]
struct Cuts {
    /// Of the catalogues, and how many times nodes came into pools.
    versions: Option<([i32; 3], i64)>,
    changes: Vec<Instant>,
}

impl Cuts {
    /// Those of the catalogues as they are in this transaction, which holds them.
    fn current(&mut self, db: &mut Db, calendar: &BillingCalendar) -> Result<&[Instant], AppError> {
        let versions = (catalogue::versions(db)?, dimensions::membership_count(db)?);
        if self.versions != Some(versions) {
            let memberships = dimensions::memberships(db)?;
            self.changes = Books::in_force(db, calendar)?.changes(&memberships);
            self.versions = Some(versions);
        }
        Ok(&self.changes)
    }
}

/// Sums a day: whether it differed though it was only to be checked; `None` where another process has it.
///
/// Locks in the order that everyone keeps: catalogues, period, mark; else two could wait for each other.
fn roll_up_day(db: &mut Db, calendar: &BillingCalendar, mark: Mark, cuts: &mut Cuts) -> Result<Option<bool>, AppError> {
    catalogue::hold(db, catalogue::Hold::ToUse)?;
    let period = calendar.period_of(mark.day_start);
    period::ensure(db, &period)?;
    let state = period::find_locked(db, period.month)?;
    // What was charged stays what it is made from; what came since is a correction in a later month.
    let is_closed = state.is_some_and(|state| state.closing.is_some());
    let corrected_in = if is_closed { Some(late_facts::open_month_after(db, calendar, period.month)?) } else { None };
    let Some(touches) = usage::take_mark(db, mark)? else { return Ok(None) };
    let day = calendar.day_of(mark.day_start);
    let changed = if let Some(corrected_in) = corrected_in {
        let changes = cuts.current(db, calendar)?.to_vec();
        let changed = late_facts::sum_day(db, calendar, mark, &changes, &corrected_in)?;
        if changed {
            open_cost::mark(db, &[reprice::of_earlier_months(&corrected_in)])?;
        }
        changed
    } else {
        let segments = counted::of_day(db, mark.node, day, counted::NOW)?;
        let wanted = usage_by_slot(&segments, &slots(day, cuts.current(db, calendar)?))?;
        let changed = usage::replace_day(db, mark.node, day, &wanted)?;
        if changed {
            period::count_usage_change(db, &period)?;
            reprice::mark_day(db, &period, day)?;
        }
        changed
    };
    if changed {
        // Another node that tells of one of its GPUs has it, or has it not, by what this one tells.
        let others: BTreeSet<NodeId> = unit::shared_with(db, mark.node)?.into_iter().map(|(node, _)| node).collect();
        let others: Vec<Mark> = others.into_iter().map(|node| Mark { node, ..mark }).collect();
        usage::mark(db, &others)?;
    }
    usage::clear_mark(db, mark)?;
    let differs = changed && touches == 0;
    if differs {
        tracing::error!(node = mark.node.0, day = %day.start(), "the usage of a day was not what its segments sum to; it is mended");
    }
    Ok(Some(differs))
}
