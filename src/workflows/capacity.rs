//! What jobs held against what exists, by pool, SKU and hour: how much was idle or out of service, and where the lists
//! and the inventory contradict each other.
//!
//! It goes hour by hour, so that it needs no more memory for a month than for a day. It changes nothing.

mod jobs;
mod stocks;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use gpuledger_db::{Db, allocation, node_event};
use gpuledger_domain::calendar::BillingCalendar;
use gpuledger_domain::ids::{JobId, PoolName, SkuCode};
use gpuledger_domain::inventory::Inventory;
use gpuledger_domain::metering::{Capacity, Holding, HourCapacity, StockKey, capacity_of_hour};
use gpuledger_domain::money::Printed;
use gpuledger_domain::time::{Instant, Interval};
use gpuledger_domain::units::Fraction;

use super::books::Books;
use super::inventory;
use crate::error::AppError;
use jobs::Jobs;
use stocks::Stocks;

/// The capacity of an interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapacityReport {
    /// When, as far as it is past.
    pub interval: Interval,
    /// By pool and SKU.
    pub rows: Vec<CapacityRow>,
    /// By pool: of what the inventory speaks.
    pub pools: Vec<PoolCoverage>,
    /// In order of time, pool and SKU; at most [`CONTRADICTIONS_MAX`].
    pub contradictions: Vec<Contradiction>,
    /// How many there are.
    pub contradiction_count: usize,
    /// What cannot be said, and why.
    pub notes: Vec<String>,
}

/// The time of a SKU in a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapacityRow {
    /// The pool.
    pub pool: PoolName,
    /// The SKU, as the price book calls it.
    pub sku: SkuCode,
    /// Which part of a GPU it is; `None` where nobody said.
    pub part: Option<Fraction>,
    /// The sums.
    pub capacity: Capacity,
}

/// How much of a pool could be checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolCoverage {
    /// The pool.
    pub pool: PoolName,
    /// The part of the interval in which the inventory speaks of it; `None` for none of it.
    pub known: Option<Interval>,
    /// What was held at other times, in microseconds.
    pub unchecked_us: i128,
}

/// More was held than existed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contradiction {
    /// In which pool.
    pub pool: PoolName,
    /// Of what.
    pub sku: SkuCode,
    /// In which hour, or part of one.
    pub hour: Interval,
    /// The sums of the hour.
    pub capacity: Capacity,
    /// Who held it when there was too little, by cluster, id and time; at most [`JOBS_MAX`].
    pub jobs: Vec<HeldThen>,
    /// How many did.
    pub job_count: usize,
}

/// A job that held something in an hour.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HeldThen {
    /// Its cluster.
    pub cluster: String,
    /// Its id there.
    pub id: String,
    /// When in the hour.
    pub interval: Interval,
    /// How many.
    pub count: i64,
}

/// Contradictions that are told with all they say; others are counted.
pub const CONTRADICTIONS_MAX: usize = 200;
/// Jobs that a contradiction names; others are counted.
pub const JOBS_MAX: usize = 20;

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Capacity { exists_us, held_us, excess_us, .. } = self.capacity;
        write!(f, "{}, {}, hour {}: {} held", self.pool, self.sku, self.hour.start(), seconds_text(held_us))?;
        match exists_us {
            0 => write!(f, ", and the inventory has none there then"),
            _ => write!(f, ", {} exist, {} too many", seconds_text(exists_us), seconds_text(excess_us)),
        }
    }
}

/// Microseconds as seconds, exactly: `3600 s`, `0.5 s`.
#[must_use]
pub fn seconds_text(us: i128) -> String {
    let text = Printed::<6>(us).to_string();
    format!("{} s", text.trim_end_matches('0').trim_end_matches('.'))
}

/// The capacity of an interval, as far as it is past.
///
/// # Errors
/// [`AppError::Refused`] where all of it is still to come, [`AppError::Changed`] where jobs were imported meanwhile; the
/// database's, or a sum that does not fit.
pub fn capacity(
    db: &mut Db,
    calendar: &BillingCalendar,
    interval: Interval,
    now: Instant,
) -> Result<CapacityReport, AppError> {
    let past = Interval::new(interval.start(), interval.end().min(now));
    let past = past.ok_or_else(|| AppError::Refused(format!("{interval} is still to come")))?;
    let inventory = inventory::in_force(db)?;
    let prices = Books::in_force(db, calendar)?.prices;
    let jobs = Jobs::load(db, &prices)?;
    let stocks = Stocks::of(&inventory, &prices, past)?;
    let known_from = inventory.pools_known_from();
    let events = node_event::within(db, past)?;
    let mut sums = Sums::default();
    for (hour, within) in past.by_hour() {
        let held = jobs.held(db, (hour, within), &known_from)?;
        let outages = jobs.outages(&events, within);
        for (key, of_hour) in capacity_of_hour(&stocks.within(within), &outages, &held.holdings)? {
            sums.take(db, key, within, of_hour, &held.holdings)?;
        }
        for (pool, us) in held.unchecked_us {
            *sums.unchecked_us.entry(pool.clone()).or_default() += us;
        }
    }
    let part = |sku: &SkuCode| stocks.parts.get(sku).or_else(|| jobs.parts.get(sku)).copied();
    let rows = sums.rows.into_iter();
    Ok(CapacityReport {
        interval: past,
        rows: rows.map(|((pool, sku), capacity)| CapacityRow { part: part(&sku), pool, sku, capacity }).collect(),
        pools: coverage(past, &inventory, &sums.unchecked_us),
        contradictions: sums.contradictions,
        contradiction_count: sums.contradiction_count,
        notes: stocks.notes.iter().cloned().collect(),
    })
}

/// How often more was held than exists; 0 where no inventory was applied.
///
/// # Errors
/// As [`capacity`].
pub fn contradiction_count(
    db: &mut Db,
    calendar: &BillingCalendar,
    interval: Interval,
    now: Instant,
) -> Result<usize, AppError> {
    if inventory::in_force(db)?.node_count() == 0 || interval.start() >= now {
        return Ok(0);
    }
    Ok(capacity(db, calendar, interval, now)?.contradiction_count)
}

/// Of which pools the inventory speaks.
fn coverage(interval: Interval, inventory: &Inventory, unchecked_us: &BTreeMap<PoolName, i128>) -> Vec<PoolCoverage> {
    let known_from = inventory.pools_known_from();
    let pools: BTreeSet<&PoolName> = known_from.keys().chain(unchecked_us.keys()).collect();
    let covered = |pool: &PoolName| {
        known_from.get(pool).and_then(|from| Interval::new((*from).max(interval.start()), interval.end()))
    };
    let of_pool = |pool: &PoolName| PoolCoverage {
        pool: pool.clone(),
        known: covered(pool),
        unchecked_us: unchecked_us.get(pool).copied().unwrap_or(0),
    };
    pools.into_iter().map(of_pool).collect()
}

/// What is summed on the way.
#[derive(Default)]
struct Sums {
    rows: BTreeMap<(PoolName, SkuCode), Capacity>,
    unchecked_us: BTreeMap<PoolName, i128>,
    contradictions: Vec<Contradiction>,
    contradiction_count: usize,
}

impl Sums {
    fn take(
        &mut self,
        db: &mut Db,
        key: StockKey<'_>,
        hour: Interval,
        of_hour: HourCapacity,
        holdings: &[Holding<'_>],
    ) -> Result<(), AppError> {
        let sum = self.rows.entry((key.pool.clone(), key.sku.clone())).or_default();
        *sum = sum.plus(of_hour.capacity)?;
        if of_hour.contradicted.is_empty() {
            return Ok(());
        }
        self.contradiction_count += 1;
        if self.contradictions.len() < CONTRADICTIONS_MAX {
            let then = |holding: &&Holding<'_>| {
                holding.key == key
                    && of_hour.contradicted.iter().any(|part| part.intersection(holding.interval).is_some())
            };
            let mut jobs = held_then(db, holdings.iter().filter(then))?;
            let job_count = jobs.len();
            jobs.truncate(JOBS_MAX);
            let (pool, sku) = (key.pool.clone(), key.sku.clone());
            self.contradictions.push(Contradiction { pool, sku, hour, capacity: of_hour.capacity, jobs, job_count });
        }
        Ok(())
    }
}

/// Holdings by job and time, in words and in order.
fn held_then<'a>(db: &mut Db, holdings: impl Iterator<Item = &'a Holding<'a>>) -> Result<Vec<HeldThen>, AppError> {
    let mut counts: BTreeMap<(JobId, Interval), i64> = BTreeMap::new();
    for holding in holdings {
        *counts.entry((holding.job, holding.interval)).or_default() += i64::from(holding.count);
    }
    let ids: BTreeSet<JobId> = counts.keys().map(|(job, _)| *job).collect();
    let names = allocation::names(db, &ids.into_iter().collect::<Vec<_>>())?;
    let mut held: Vec<HeldThen> = counts
        .into_iter()
        .map(|((job, interval), count)| {
            let (cluster, name) = names.get(&job).map_or(("", ""), |(cluster, name)| (cluster, &name.source_id));
            HeldThen { cluster: cluster.to_owned(), id: name.to_owned(), interval, count }
        })
        .collect();
    held.sort();
    Ok(held)
}
