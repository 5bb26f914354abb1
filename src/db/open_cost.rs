//! What open months come to by billing day, and the marks that say which days must be priced again.

use std::collections::{BTreeMap, BTreeSet};

use diesel::prelude::*;
use gpuledger_domain::ids::{ExperimentId, PoolId, SkuId, TeamId};
use gpuledger_domain::money::MicroCredits;
use gpuledger_domain::pricing::{ChargeKind, Payer};
use gpuledger_domain::time::Instant;

use crate::codes::Code;
use crate::schema::{open_cost, open_cost_day, period, price_mark};
use crate::{Db, DbError, insert_all, on_db};

/// A billing day of an open month; or what the month charges of earlier ones, as the day that begins one microsecond
/// before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CostDay {
    /// The first instant of the month.
    pub period_start: Instant,
    /// The first instant of the day.
    pub day_start: Instant,
}

/// What is the same for all charges in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenCostKey {
    /// Who pays, and as what.
    pub payer: Payer,
    /// Of what.
    pub sku: SkuId,
    /// Why.
    pub kind: ChargeKind,
    /// Who submitted the jobs; empty where that is not known.
    pub user: String,
}

/// What charges of a day come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenCost {
    /// What is the same for them.
    pub key: OpenCostKey,
    /// Wall time × share × count, in microseconds.
    pub share_us: i64,
    /// Of it, inferred over gaps.
    pub estimated_us: i64,
    /// Σ of the charges' amounts.
    pub amount: MicroCredits,
    /// Whether all of the time has a price.
    pub priced: bool,
}

/// What the cost of a day was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// When.
    pub priced_at: Instant,
    /// Of the month's usage.
    pub usage: i64,
    /// Of teams, prices and rules.
    pub catalogues: [i32; 3],
    /// How many times nodes had come into pools.
    pub pools: i64,
}

type Key = (i32, i32, i32, i16, i16, i16, i32, String);
type Sums = (i64, i64, i64, i16);

#[derive(Clone, Debug, PartialEq, Eq, Insertable, Queryable)]
#[diesel(table_name = open_cost, treat_none_as_default_value = false)]
struct Row {
    period_start_us: i64,
    day_start_us: i64,
    team_id: i32,
    pool_id: i32,
    sku_id: i32,
    service_class: i16,
    kind: i16,
    workload: i16,
    experiment_id: i32,
    user_name: String,
    share_us: i64,
    estimated_us: i64,
    amount_micros: i64,
    priced: i16,
}

fn row(day: CostDay, cost: &OpenCost) -> Row {
    let payer = &cost.key.payer;
    Row {
        period_start_us: day.period_start.micros(),
        day_start_us: day.day_start.micros(),
        team_id: payer.team.0,
        pool_id: payer.pool.0,
        sku_id: cost.key.sku.0,
        service_class: payer.service_class.code(),
        kind: cost.key.kind.code(),
        workload: payer.workload.code(),
        experiment_id: payer.experiment.0,
        user_name: cost.key.user.clone(),
        share_us: cost.share_us,
        estimated_us: cost.estimated_us,
        amount_micros: cost.amount.0,
        priced: i16::from(cost.priced),
    }
}

fn cost(row: Row) -> Result<(CostDay, OpenCost), DbError> {
    let (period_start, day_start) = (Instant::from_micros(row.period_start_us), Instant::from_micros(row.day_start_us));
    let payer = Payer {
        team: TeamId(row.team_id),
        pool: PoolId(row.pool_id),
        service_class: Code::from_code(row.service_class)?,
        workload: Code::from_code(row.workload)?,
        experiment: ExperimentId(row.experiment_id),
    };
    let key = OpenCostKey { payer, sku: SkuId(row.sku_id), kind: Code::from_code(row.kind)?, user: row.user_name };
    let (share_us, estimated_us, amount) = (row.share_us, row.estimated_us, MicroCredits(row.amount_micros));
    let cost = OpenCost { key, share_us, estimated_us, amount, priced: row.priced != 0 };
    Ok((CostDay { period_start, day_start }, cost))
}

fn key(row: &Row) -> Key {
    let Row { team_id, pool_id, sku_id, service_class, kind, workload, experiment_id, user_name, .. } = row.clone();
    (team_id, pool_id, sku_id, service_class, kind, workload, experiment_id, user_name)
}

fn sums(row: &Row) -> Sums {
    (row.share_us, row.estimated_us, row.amount_micros, row.priced)
}

/// Marks days to be priced again, in the transaction that changes what they come to.
///
/// # Errors
/// What the database says.
pub fn mark(db: &mut Db, days: &[CostDay]) -> Result<(), DbError> {
    // In one order, so that two that mark several do not wait for each other.
    let days: BTreeSet<&CostDay> = days.iter().collect();
    for day in days {
        on_db!(db, c => diesel::insert_into(price_mark::table)
            .values((
                price_mark::period_start_us.eq(day.period_start.micros()),
                price_mark::day_start_us.eq(day.day_start.micros()),
                price_mark::touches.eq(1i64),
            ))
            .on_conflict((price_mark::period_start_us, price_mark::day_start_us))
            .do_update()
            .set(price_mark::touches.eq(price_mark::touches + 1))
            .execute(c))?;
    }
    Ok(())
}

/// Marks all days of open months that were ever priced.
///
/// # Errors
/// What the database says.
pub fn mark_priced(db: &mut Db) -> Result<(), DbError> {
    let days: Vec<CostDay> = priced_days(db)?.into_keys().collect();
    mark(db, &days)
}

/// Marks days to be compared with what is held, where they are not marked already.
///
/// # Errors
/// What the database says.
pub fn mark_to_check(db: &mut Db, days: &[CostDay]) -> Result<(), DbError> {
    for day in days {
        on_db!(db, c => diesel::insert_into(price_mark::table)
            .values((
                price_mark::period_start_us.eq(day.period_start.micros()),
                price_mark::day_start_us.eq(day.day_start.micros()),
                price_mark::touches.eq(0i64),
            ))
            .on_conflict_do_nothing()
            .execute(c))?;
    }
    Ok(())
}

/// The marked days, newest first. Those that are only to be checked are not among them.
///
/// # Errors
/// What the database says.
pub fn marks(db: &mut Db) -> Result<Vec<CostDay>, DbError> {
    let rows: Vec<(i64, i64)> = on_db!(db, c => price_mark::table
        .filter(price_mark::touches.gt(0))
        .order((price_mark::period_start_us.desc(), price_mark::day_start_us.desc()))
        .select((price_mark::period_start_us, price_mark::day_start_us))
        .load(c))?;
    Ok(rows.into_iter().map(cost_day).collect())
}

/// At most so many of the days that are only to be checked, earliest first.
///
/// # Errors
/// What the database says.
pub fn checks(db: &mut Db, most: i64) -> Result<Vec<CostDay>, DbError> {
    let rows: Vec<(i64, i64)> = on_db!(db, c => price_mark::table
        .filter(price_mark::touches.eq(0))
        .order((price_mark::period_start_us, price_mark::day_start_us))
        .select((price_mark::period_start_us, price_mark::day_start_us))
        .limit(most)
        .load(c))?;
    Ok(rows.into_iter().map(cost_day).collect())
}

fn cost_day((period, day): (i64, i64)) -> CostDay {
    CostDay { period_start: Instant::from_micros(period), day_start: Instant::from_micros(day) }
}

#[derive(QueryableByName)]
struct Lock {
    #[diesel(sql_type = diesel::sql_types::Bool)]
    free: bool,
}

/// Takes a day for the length of the transaction: how often it was touched; `None` if it is not marked any more or
/// another process prices it. Whoever marks it meanwhile does not wait.
///
/// # Errors
/// What the database says.
pub fn take(db: &mut Db, day: CostDay) -> Result<Option<i64>, DbError> {
    let key = (day.period_start.micros(), day.day_start.micros());
    // A lock beside the mark, which others must be able to touch meanwhile. Such locks are the whole database's, so that its
    // name holds the schema.
    if let Db::Pg(c) = db
        && !diesel::sql_query(
            "SELECT pg_try_advisory_xact_lock(hashtextextended(\
             'price ' || $1 || ' ' || $2 || ' of ' || current_schema(), 0)) AS free",
        )
        .bind::<diesel::sql_types::BigInt, _>(key.0)
        .bind::<diesel::sql_types::BigInt, _>(key.1)
        .get_result::<Lock>(c)?
        .free
    {
        return Ok(None);
    }
    Ok(on_db!(db, c => price_mark::table.find(key).select(price_mark::touches).first(c).optional())?)
}

/// Makes the cost of a day be exactly `wanted`, with what it was made from, and clears its mark unless it was touched
/// again; whether anything differed.
///
/// # Errors
/// What the database says.
pub fn replace_day(
    db: &mut Db,
    day: CostDay,
    wanted: &[OpenCost],
    stamp: &Stamp,
    touches: i64,
) -> Result<bool, DbError> {
    let (period_start, day_start) = (day.period_start.micros(), day.day_start.micros());
    let of_day = open_cost::period_start_us.eq(period_start).and(open_cost::day_start_us.eq(day_start));
    let held: Vec<Row> = on_db!(db, c => open_cost::table.filter(of_day).load(c))?;
    let mut held: BTreeMap<Key, Sums> = held.iter().map(|row| (key(row), sums(row))).collect();
    let rows: Vec<Row> = wanted.iter().map(|cost| row(day, cost)).collect();
    let same = held.len() == rows.len() && rows.iter().all(|row| held.remove(&key(row)) == Some(sums(row)));
    if !same {
        on_db!(db, c => diesel::delete(open_cost::table.filter(of_day)).execute(c))?;
        insert_all!(db, open_cost::table, rows.as_slice())?;
    }
    let [teams, prices, rules] = stamp.catalogues;
    let made_from = (
        open_cost_day::priced_at_us.eq(stamp.priced_at.micros()),
        open_cost_day::usage_version.eq(stamp.usage),
        open_cost_day::teams_version.eq(teams),
        open_cost_day::prices_version.eq(prices),
        open_cost_day::rules_version.eq(rules),
        open_cost_day::pools_version.eq(stamp.pools),
    );
    let key = (open_cost_day::period_start_us.eq(period_start), open_cost_day::day_start_us.eq(day_start));
    on_db!(db, c => diesel::insert_into(open_cost_day::table)
        .values((key, made_from))
        .on_conflict((open_cost_day::period_start_us, open_cost_day::day_start_us))
        .do_update()
        .set(made_from)
        .execute(c))?;
    clear(db, day, touches)?;
    Ok(!same)
}

fn clear(db: &mut Db, day: CostDay, touches: i64) -> Result<(), DbError> {
    on_db!(db, c => diesel::delete(price_mark::table.find((day.period_start.micros(), day.day_start.micros()))
        .filter(price_mark::touches.le(touches)))
        .execute(c))?;
    Ok(())
}

/// Removes a day of a month that is closed, with its mark.
///
/// # Errors
/// What the database says.
pub fn forget(db: &mut Db, day: CostDay) -> Result<(), DbError> {
    let (period_start, day_start) = (day.period_start.micros(), day.day_start.micros());
    let of_day = open_cost::period_start_us.eq(period_start).and(open_cost::day_start_us.eq(day_start));
    on_db!(db, c => diesel::delete(open_cost::table.filter(of_day)).execute(c))?;
    on_db!(db, c => diesel::delete(open_cost_day::table.find((period_start, day_start))).execute(c))?;
    clear(db, day, i64::MAX)
}

/// The days that are priced, with what they were made from.
///
/// # Errors
/// What the database says.
pub fn priced_days(db: &mut Db) -> Result<BTreeMap<CostDay, Stamp>, DbError> {
    type Found = (i64, i64, i64, i64, i32, i32, i32, i64);
    let rows: Vec<Found> = on_db!(db, c => open_cost_day::table.load(c))?;
    let read = |(period, day, at, usage, teams, prices, rules, pools): Found| {
        let day = CostDay { period_start: Instant::from_micros(period), day_start: Instant::from_micros(day) };
        let catalogues = [teams, prices, rules];
        (day, Stamp { priced_at: Instant::from_micros(at), usage, catalogues, pools })
    };
    Ok(rows.into_iter().map(read).collect())
}

/// The priced days of months that are closed by now.
///
/// # Errors
/// What the database says.
pub fn of_closed_months(db: &mut Db) -> Result<Vec<CostDay>, DbError> {
    let rows: Vec<(i64, i64)> = on_db!(db, c => open_cost_day::table
        .filter(open_cost_day::period_start_us.eq_any(
            period::table.filter(period::current_closing_id.ne(0)).select(period::start_us)))
        .order((open_cost_day::period_start_us, open_cost_day::day_start_us))
        .select((open_cost_day::period_start_us, open_cost_day::day_start_us))
        .load(c))?;
    Ok(rows.into_iter().map(cost_day).collect())
}

/// What a team's open month comes to, in these days; of all teams without one. By day, then in key order. Read by equality
/// on each day, so that the key finds the team.
///
/// # Errors
/// What the database says.
pub fn of_days(db: &mut Db, days: &[CostDay], team: Option<TeamId>) -> Result<Vec<(CostDay, OpenCost)>, DbError> {
    let Some(period_start) = days.first().map(|day| day.period_start.micros()) else { return Ok(Vec::new()) };
    let days: Vec<i64> = days.iter().map(|day| day.day_start.micros()).collect();
    let within = open_cost::period_start_us.eq(period_start).and(open_cost::day_start_us.eq_any(&days));
    let order = (
        open_cost::day_start_us,
        open_cost::team_id,
        open_cost::pool_id,
        open_cost::sku_id,
        open_cost::service_class,
        open_cost::kind,
        open_cost::workload,
        open_cost::experiment_id,
        open_cost::user_name,
    );
    let rows: Vec<Row> = match team {
        Some(team) => on_db!(db, c => open_cost::table
            .filter(within.and(open_cost::team_id.eq(team.0))).order(order).load(c))?,
        None => on_db!(db, c => open_cost::table.filter(within).order(order).load(c))?,
    };
    rows.into_iter().map(cost).collect()
}
