//! GPU-time held in any interval, summed by whatever facts are asked for. No rule and no price decides anything here:
//! it is what the sources told.

use std::collections::{BTreeMap, BTreeSet};

use gpuledger_db::{Db, DbError, dimensions, usage};
use gpuledger_domain::calendar::BillingCalendar;
use gpuledger_domain::ids::{FactSetId, JobId, PoolName, SkuId};
use gpuledger_domain::metering::State;
use gpuledger_domain::pricing::{PriceBook, Sku};
use gpuledger_domain::rules::JobFacts;
use gpuledger_domain::time::Interval;
use gpuledger_domain::units::{Fraction, Overflow};

use super::{counted, job_facts};
use crate::error::AppError;

/// By what usage is summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dimension {
    /// The cluster.
    Cluster,
    /// The pool.
    Pool,
    /// The scheduler's account.
    Account,
    /// Who submitted.
    User,
    /// The scheduler's partition.
    Partition,
    /// The scheduler's quality of service.
    Qos,
    /// The job's name.
    Name,
    /// What was held, as the source calls it.
    Sku,
}

impl Dimension {
    /// Every dimension with its word.
    pub const ALL: [(&'static str, Dimension); 8] = [
        ("cluster", Dimension::Cluster),
        ("pool", Dimension::Pool),
        ("account", Dimension::Account),
        ("user", Dimension::User),
        ("partition", Dimension::Partition),
        ("qos", Dimension::Qos),
        ("name", Dimension::Name),
        ("sku", Dimension::Sku),
    ];

    /// Reads the word.
    ///
    /// # Errors
    /// A sentence with the words that may be written.
    pub fn parse(text: &str) -> Result<Dimension, String> {
        let words: Vec<&str> = Dimension::ALL.iter().map(|(word, _)| *word).collect();
        let found = Dimension::ALL.iter().find(|(word, _)| *word == text).map(|(_, dimension)| *dimension);
        found.ok_or_else(|| format!("“{text}” is nothing to sum by; write some of {}", words.join(", ")))
    }
}

/// GPU-time of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageRow {
    /// What is the same for all of it, in the order asked for.
    pub key: Vec<String>,
    /// How many attempts.
    pub attempts: usize,
    /// Instances × time, in microseconds, exactly: a slice is one instance.
    pub instance_us: Fraction,
    /// GPU-equivalent time in microseconds; `None` where the price book does not know a SKU.
    pub gpu_us: Option<Fraction>,
    /// Of the instance time, while the job was suspended.
    pub suspended_us: Fraction,
}

/// Sums the GPU-time held in an interval, ordered by the key.
///
/// # Errors
/// The database's, or a sum that does not fit.
pub fn usage_report(
    db: &mut Db,
    calendar: &BillingCalendar,
    prices: &PriceBook,
    interval: Interval,
    by: &[Dimension],
) -> Result<Vec<UsageRow>, AppError> {
    let mut words = Words::load(db)?;
    let mut rows = Rows::new();
    let mut day = calendar.day_of(interval.start());
    while day.start() < interval.end() {
        for node in usage::nodes_of_interval(db, day)? {
            let pool = words.memberships.pool(node, day.start()).and_then(|pool| words.pools.get(&pool)).cloned();
            let counted = counted::of_day(db, node, day, counted::NOW)?;
            for segment in counted.iter().filter(|segment| segment.state == State::Held) {
                // A day that begins off the hour shares its first hour with the day before.
                let Some(part) = segment.interval.intersection(day).and_then(|part| part.intersection(interval)) else {
                    continue;
                };
                let length = i128::from(segment.interval.length_us());
                let of = |total: i64| {
                    Fraction::new(i128::from(total) * i128::from(part.length_us()), length).ok_or(Overflow)
                };
                let (instance, suspended) = (of(segment.share_us)?, of(segment.suspended_us)?);
                let facts = words.facts(db, segment.facts)?.clone();
                let sku = words.skus.get(&segment.sku).cloned();
                let key = by.iter().map(|by| text(*by, &facts, pool.as_ref(), sku.as_ref())).collect();
                let gpu = match sku.as_ref().and_then(|sku| prices.sku(sku.code.as_str())) {
                    Some(known) => Some(instance.times(known.slices.compute.fraction())?),
                    None => None,
                };
                add(&mut rows, key, segment.job, (instance, gpu, suspended))?;
            }
        }
        day = calendar.day_of(day.end());
    }
    Ok(rows.into_values().map(|(jobs, row)| UsageRow { attempts: jobs.len(), ..row }).collect())
}

type Rows = BTreeMap<Vec<String>, (BTreeSet<JobId>, UsageRow)>;

fn add(
    rows: &mut Rows,
    key: Vec<String>,
    job: JobId,
    (instance, gpu, suspended): (Fraction, Option<Fraction>, Fraction),
) -> Result<(), Overflow> {
    let zero = |key: &Vec<String>| UsageRow {
        key: key.clone(),
        attempts: 0,
        instance_us: Fraction::ZERO,
        gpu_us: Some(Fraction::ZERO),
        suspended_us: Fraction::ZERO,
    };
    let (jobs, row) = rows.entry(key.clone()).or_insert_with(|| (BTreeSet::new(), zero(&key)));
    jobs.insert(job);
    row.instance_us = row.instance_us.plus(instance)?;
    row.suspended_us = row.suspended_us.plus(suspended)?;
    row.gpu_us = match (row.gpu_us, gpu) {
        (Some(sum), Some(gpu)) => Some(sum.plus(gpu)?),
        _ => None,
    };
    Ok(())
}

fn text(by: Dimension, facts: &JobFacts, pool: Option<&PoolName>, sku: Option<&Sku>) -> String {
    match by {
        Dimension::Cluster => facts.cluster.clone(),
        Dimension::Pool => pool.map_or_else(String::new, ToString::to_string),
        Dimension::Account => facts.account.clone(),
        Dimension::User => facts.user.clone(),
        Dimension::Partition => facts.partition.clone(),
        Dimension::Qos => facts.qos.clone(),
        Dimension::Name => facts.name.clone(),
        Dimension::Sku => sku.map_or_else(String::new, |sku| sku.code.to_string()),
    }
}

/// What numbers stand for.
struct Words {
    memberships: dimensions::Memberships,
    pools: BTreeMap<gpuledger_domain::ids::PoolId, PoolName>,
    skus: BTreeMap<SkuId, Sku>,
    facts: BTreeMap<FactSetId, JobFacts>,
}

/// Sets of facts kept in memory.
const FACT_SETS_MAX: usize = 65_536;

impl Words {
    fn load(db: &mut Db) -> Result<Words, AppError> {
        Ok(Words {
            memberships: dimensions::memberships(db)?,
            pools: dimensions::pools(db)?,
            skus: dimensions::skus(db)?,
            facts: BTreeMap::new(),
        })
    }

    fn facts(&mut self, db: &mut Db, id: FactSetId) -> Result<&JobFacts, AppError> {
        if !self.facts.contains_key(&id) {
            if self.facts.len() >= FACT_SETS_MAX {
                self.facts.clear();
            }
            let facts = job_facts::from_body(&dimensions::fact_set_body(db, id)?)?;
            self.facts.insert(id, facts);
        }
        self.facts
            .get(&id)
            .ok_or_else(|| AppError::Database(DbError::Inconsistent(format!("fact set {} is missing", id.0))))
    }
}
