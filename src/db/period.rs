//! Periods: billing months and where they are in their life.

use diesel::prelude::*;
use gpuledger_domain::calendar::{Month, Period};
use gpuledger_domain::time::{Instant, Interval};

use crate::schema::period;
use crate::{Db, DbError, on_db};

/// A period as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeriodState {
    /// Which month, from when to when.
    pub period: Period,
    /// Counts every change of its usage.
    pub usage_version: i64,
    /// The closing that holds the lease; 0 for none.
    pub closer: i64,
    /// The sealed closing in force; `None` while the period is open.
    pub closing: Option<i64>,
}

type Row = (i64, i64, String, i64, i64, i64);

fn state((start, end, name, usage_version, closer, closing): Row) -> Result<PeriodState, DbError> {
    let month = Month::parse(&name).map_err(DbError::Inconsistent)?;
    let interval = Interval::new(Instant::from_micros(start), Instant::from_micros(end))
        .ok_or_else(|| DbError::Inconsistent(format!("period {name} ends before it begins")))?;
    Ok(PeriodState {
        period: Period { month, interval },
        usage_version,
        closer,
        closing: (closing != 0).then_some(closing),
    })
}

/// Makes sure that a period is stored.
///
/// # Errors
/// What the database says.
pub fn ensure(db: &mut Db, wanted: &Period) -> Result<(), DbError> {
    on_db!(db, c => diesel::insert_into(period::table)
        .values((
            period::start_us.eq(wanted.interval.start().micros()),
            period::end_us.eq(wanted.interval.end().micros()),
            period::name.eq(wanted.month.to_string()),
            period::usage_version.eq(0),
            period::closer.eq(0),
            period::current_closing_id.eq(0),
        ))
        .on_conflict_do_nothing()
        .execute(c))?;
    Ok(())
}

/// A period by its month, if any usage or closing ever touched it.
///
/// # Errors
/// What the database says.
pub fn find(db: &mut Db, month: Month) -> Result<Option<PeriodState>, DbError> {
    let row: Option<Row> =
        on_db!(db, c => period::table.filter(period::name.eq(month.to_string())).first(c).optional())?;
    row.map(state).transpose()
}

/// As [`find`], held against other writers until the end of the transaction.
///
/// # Errors
/// What the database says.
pub fn find_locked(db: &mut Db, month: Month) -> Result<Option<PeriodState>, DbError> {
    let name = month.to_string();
    let row: Option<Row> = match db {
        Db::Lite(c) => period::table.filter(period::name.eq(name)).first(c).optional()?,
        Db::Pg(c) => period::table.filter(period::name.eq(name)).for_update().first(c).optional()?,
    };
    row.map(state).transpose()
}

/// Makes sure that periods are stored, and keeps them from being closed until the end of the transaction.
///
/// # Errors
/// What the database says.
pub fn hold_open(db: &mut Db, wanted: &[Period]) -> Result<Vec<PeriodState>, DbError> {
    for period in wanted {
        ensure(db, period)?;
    }
    let starts: Vec<i64> = wanted.iter().map(|period| period.interval.start().micros()).collect();
    let rows: Vec<Row> = match db {
        Db::Lite(c) => period::table.filter(period::start_us.eq_any(&starts)).order(period::start_us).load(c)?,
        Db::Pg(c) => {
            period::table.filter(period::start_us.eq_any(&starts)).order(period::start_us).for_share().load(c)?
        }
    };
    rows.into_iter().map(state).collect()
}

/// All periods, earliest first.
///
/// # Errors
/// What the database says.
pub fn all(db: &mut Db) -> Result<Vec<PeriodState>, DbError> {
    let rows: Vec<Row> = on_db!(db, c => period::table.order(period::start_us).load(c))?;
    rows.into_iter().map(state).collect()
}

/// Counts a change of a period's usage.
///
/// # Errors
/// What the database says.
pub fn count_usage_change(db: &mut Db, changed: &Period) -> Result<(), DbError> {
    ensure(db, changed)?;
    on_db!(db, c => diesel::update(period::table.find(changed.interval.start().micros()))
        .set(period::usage_version.eq(period::usage_version + 1))
        .execute(c))?;
    Ok(())
}
