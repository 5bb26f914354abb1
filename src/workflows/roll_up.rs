//! Segments become usage, a marked billing day of a node at a time.
//!
//! Each day is one transaction: take the mark, read the segments, write only the usage that differs, count the
//! change in the period, clear the mark. It may be repeated, interrupted or run twice at once and gives the same.

use gpuledger_db::usage::{self, Mark};
use gpuledger_db::{Db, catalogue, dimensions, period};
use gpuledger_domain::calendar::{BillingCalendar, slots};
use gpuledger_domain::metering::usage_by_slot;
use gpuledger_domain::time::{Instant, Interval};

use super::books::Books;
use super::{counted, late_facts};
use crate::error::AppError;

/// Rolls up every marked day, or those that begin in `within`; how many were done.
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
    if marks.is_empty() {
        return Ok(0);
    }
    let mut cuts = Cuts::default();
    let mut done = 0;
    for mark in marks {
        done += usize::from(db.transaction(|db| roll_up_day(db, calendar, mark, &mut cuts))?);
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

/// Locks in the order that everyone keeps: catalogues, period, mark; else two could wait for each other.
fn roll_up_day(db: &mut Db, calendar: &BillingCalendar, mark: Mark, cuts: &mut Cuts) -> Result<bool, AppError> {
    catalogue::hold(db, catalogue::Hold::ToUse)?;
    let period = calendar.period_of(mark.day_start);
    period::ensure(db, &period)?;
    let state = period::find_locked(db, period.month)?;
    // What was charged stays what it is made from; what came since is a correction in a later month.
    let is_closed = state.is_some_and(|state| state.closing.is_some());
    let corrected_in = if is_closed { Some(late_facts::open_month_after(db, calendar, period.month)?) } else { None };
    if !usage::take_mark(db, mark)? {
        return Ok(false);
    }
    if let Some(corrected_in) = corrected_in {
        let changes = cuts.current(db, calendar)?.to_vec();
        late_facts::sum_day(db, calendar, mark, &changes, &corrected_in)?;
        usage::clear_mark(db, mark)?;
        return Ok(true);
    }
    let day = calendar.day_of(mark.day_start);
    let segments = counted::of_day(db, mark.node, day, counted::NOW)?;
    let wanted = usage_by_slot(&segments, &slots(day, cuts.current(db, calendar)?))?;
    if usage::replace_day(db, mark.node, day, &wanted)? {
        period::count_usage_change(db, &period)?;
    }
    usage::clear_mark(db, mark)?;
    Ok(true)
}
