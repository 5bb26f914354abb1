//! The usage of a period becomes charges: rules say whose, the price book says how much.
//!
//! Used by everything that needs amounts: closing a month, looking at an open one, and asking what a changed price
//! would do. The walk from a GPU-second to its charge: [`price`] → [`charge`].

use std::collections::{BTreeMap, BTreeSet};

use gpuledger_db::{Db, allocation, dimensions, late_usage, period, usage};
use gpuledger_domain::calendar::{BillingCalendar, Month, Period};
use gpuledger_domain::ids::{ExperimentId, FactSetId, JobId, PoolId, PoolName, SkuId, TeamCode, TeamId};
use gpuledger_domain::metering::{State, Usage, UsageEntry};
use gpuledger_domain::pricing::{Charge, Payer, Sku, SkuSlices, SuspendedTime, Terms, Unpriced, charge};
use gpuledger_domain::rules::{Attribution, JobFacts, ServiceClass};
use gpuledger_domain::statements::Names;
use gpuledger_domain::time::{Instant, Interval};
use gpuledger_domain::units::{Fraction, Overflow};

use super::adjustments::TakenOver;
use super::books::Books;
use super::{job_facts, late_facts, roll_up};
use crate::error::AppError;

mod corrections;
mod new_words;

pub use new_words::NewWords;
use new_words::Numbers;

/// The words behind the numbers in charges.
#[derive(Clone, Debug, Default)]
pub struct Words {
    /// SKUs by number, as the sources call them and as the price book does.
    pub skus: BTreeMap<SkuId, Sku>,
    /// Pools by number.
    pub pools: BTreeMap<PoolId, PoolName>,
    /// Teams by number.
    pub teams: BTreeMap<TeamId, TeamCode>,
    /// Experiments by number, with their team.
    pub experiments: BTreeMap<ExperimentId, (TeamId, String)>,
}

/// Usage that cannot be priced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnpricedUsage {
    /// Whose.
    pub team: TeamId,
    /// Of what.
    pub sku: Sku,
    /// In which pool.
    pub pool: PoolName,
    /// The numbers of both.
    pub numbers: (SkuId, PoolId),
    /// On what terms.
    pub service_class: ServiceClass,
    /// From the first slot to the last.
    pub interval: Interval,
    /// How much: microseconds × share × count.
    pub share_us: i128,
    /// GPU-equivalent time, in microseconds.
    pub gpu_us: Fraction,
    /// Which jobs.
    pub jobs: BTreeSet<JobId>,
    /// Why.
    pub reason: Unpriced,
}

/// What is charged in a period.
#[derive(Clone, Copy, Debug)]
pub struct Chargeable<'a> {
    /// Its own usage.
    pub usages: &'a [Usage],
    /// What came of earlier months after they were closed.
    pub late: &'a [UsageEntry],
}

/// A period's usage, priced.
#[derive(Clone, Debug)]
pub struct PricedPeriod {
    /// Which.
    pub period: Period,
    /// The version of the usage that was priced.
    pub usage_version: i64,
    /// The closed months before it that are corrected in it.
    pub corrected: Option<Interval>,
    /// In the order of natural keys: team, slot, job, SKU, pool, class, workload, experiment, facts.
    pub charges: Vec<Charge>,
    /// What has no price, by team, SKU, pool, class and reason.
    pub unpriced: Vec<UnpricedUsage>,
    /// The words behind the numbers.
    pub words: Words,
    /// Earlier months that are open, of which the platform takes charges over.
    pub adjusts_open_months: BTreeSet<Month>,
}

/// Usage, priced.
#[derive(Clone, Debug)]
pub struct PricedUsage {
    /// In the order of natural keys: team, slot, job, SKU, pool, class, workload, experiment, facts.
    pub charges: Vec<Charge>,
    /// What has no price, by team, SKU, pool, class and reason.
    pub unpriced: Vec<UnpricedUsage>,
    /// The words behind the numbers.
    pub words: Words,
    /// Earlier months that are open, of which the platform takes charges over.
    pub adjusts_open_months: BTreeSet<Month>,
}

impl PricedPeriod {
    /// The time whose days were summed for it: its own, and that of the closed months that it corrects.
    #[must_use]
    pub fn rolled_up(&self) -> Interval {
        rolled_up(&self.period, self.corrected)
    }
}

fn rolled_up(period: &Period, corrected: Option<Interval>) -> Interval {
    let both = corrected.and_then(|corrected| Interval::new(corrected.start(), period.interval.end()));
    both.unwrap_or(period.interval)
}

impl Names for Words {
    fn sku(&self, id: SkuId) -> Option<&Sku> {
        self.skus.get(&id)
    }

    fn pool(&self, id: PoolId) -> Option<&PoolName> {
        self.pools.get(&id)
    }

    fn experiment(&self, id: ExperimentId) -> Option<&str> {
        self.experiments.get(&id).map(|(_, name)| name.as_str())
    }
}

impl Words {
    /// All words the database knows.
    ///
    /// # Errors
    /// The database's.
    pub fn load(db: &mut Db) -> Result<Words, AppError> {
        Ok(Words {
            skus: dimensions::skus(db)?,
            pools: dimensions::pools(db)?,
            teams: dimensions::teams(db)?,
            experiments: dimensions::experiments(db)?,
        })
    }
}

/// Brings a period's usage up to date and prices it by the books in force.
///
/// # Errors
/// The database's, or a sum that does not fit.
pub fn price_period(
    db: &mut Db,
    calendar: &BillingCalendar,
    period: &Period,
    books: &Books,
) -> Result<PricedPeriod, AppError> {
    let corrected = late_facts::corrected_in(db, calendar, period)?;
    roll_up::roll_up(db, calendar, Some(rolled_up(period, corrected)))?;
    // The version first: usage that changes after it makes the seal refuse, never the other way round.
    let usage_version = period::find(db, period.month)?.map_or(0, |state| state.usage_version);
    let usages = usage::of_interval(db, period.interval)?;
    let late = corrected.map(|corrected| late_usage::open(db, corrected)).transpose()?.unwrap_or_default();
    let changes = books.changes(&dimensions::memberships(db)?);
    if let Some(cut) = usages.iter().find_map(|usage| cut_inside(usage.key.slot, &changes)) {
        return Err(AppError::Changed(format!("usage is not yet summed by the change at {cut}; try again")));
    }
    let PricedUsage { charges, unpriced, words, adjusts_open_months } =
        price(db, calendar, period, books, Chargeable { usages: &usages, late: &late }, NewWords::Interned)?;
    Ok(PricedPeriod { period: *period, usage_version, corrected, charges, unpriced, words, adjusts_open_months })
}

/// A change strictly inside a slot, at whose start alone it would be priced.
fn cut_inside(slot: Interval, changes: &[Instant]) -> Option<Instant> {
    let next = changes.partition_point(|change| *change <= slot.start());
    changes.get(next).copied().filter(|change| *change < slot.end())
}

/// Prices the usage of a period by these books, with what the platform pays of it. Nothing is written but new words,
/// where they are to be interned.
///
/// # Errors
/// The database's, or a sum that does not fit.
pub fn price(
    db: &mut Db,
    calendar: &BillingCalendar,
    period: &Period,
    books: &Books,
    chargeable: Chargeable<'_>,
    new_words: NewWords,
) -> Result<PricedUsage, AppError> {
    let Chargeable { usages, late } = chargeable;
    let taken_over = TakenOver::find(db, calendar, period, books, chargeable)?;
    let earlier = taken_over.usages_of_open_months(db, calendar, books)?;
    let all = usages.iter().chain(&earlier).chain(late.iter().map(|entry| &entry.usage));
    let facts = all.map(|usage| usage.key.facts).collect();
    let mut pricer = Pricer::load(db, books, &facts, Numbers::new(new_words))?;
    let mut priced = pricer.price(db, usages)?;
    let (earlier, _) = pricer.price(db, &earlier)?;
    let corrections = pricer.corrections(db, calendar, late)?;
    priced.0.extend(corrections.0);
    priced.1.extend(corrections.1);
    let adjustments = taken_over.adjustments(db, &priced.0, &earlier)?;
    priced.0.extend(adjustments);
    let Pricer { words, .. } = pricer;
    sort(db, &mut priced.0, &words)?;
    let adjusts_open_months = taken_over.open_months();
    Ok(PricedUsage { charges: priced.0, unpriced: priced.1, words, adjusts_open_months })
}

/// What some usage lacks a price for, whoever pays. Nothing is written but new words, where they are to be interned.
///
/// # Errors
/// The database's, or a sum that does not fit.
pub fn unpriced(
    db: &mut Db,
    books: &Books,
    usages: &[Usage],
    new_words: NewWords,
) -> Result<Vec<UnpricedUsage>, AppError> {
    let facts = usages.iter().map(|usage| usage.key.facts).collect();
    Ok(Pricer::load(db, books, &facts, Numbers::new(new_words))?.price(db, usages)?.1)
}

fn with_sku(usage: &Usage, sku: SkuId) -> Usage {
    let mut usage = *usage;
    usage.key.sku = sku;
    usage
}

type UnpricedKey = (TeamCode, Sku, PoolName, ServiceClass, Unpriced);

/// What was looked up once and holds for many usages.
struct Pricer<'a> {
    books: &'a Books,
    numbers: Numbers,
    words: Words,
    team_ids: BTreeMap<TeamCode, TeamId>,
    experiment_ids: BTreeMap<(TeamId, String), ExperimentId>,
    memberships: dimensions::Memberships,
    facts: BTreeMap<FactSetId, JobFacts>,
    attributions: BTreeMap<(FactSetId, PoolId, Instant), Attribution>,
    book_skus: BTreeMap<SkuId, SkuId>,
    terms: BTreeMap<(SkuId, PoolId, ServiceClass, Instant), Result<Terms, Unpriced>>,
}

impl<'a> Pricer<'a> {
    /// What is known already, and the facts that are used.
    fn load(
        db: &mut Db,
        books: &'a Books,
        used: &BTreeSet<FactSetId>,
        numbers: Numbers,
    ) -> Result<Pricer<'a>, AppError> {
        let words = Words::load(db)?;
        let mut facts = BTreeMap::new();
        for (id, body) in dimensions::fact_sets(db)? {
            if used.contains(&id) {
                facts.insert(id, job_facts::from_body(&body)?);
            }
        }
        Ok(Pricer {
            books,
            numbers,
            team_ids: words.teams.iter().map(|(id, code)| (code.clone(), *id)).collect(),
            experiment_ids: words.experiments.iter().map(|(id, key)| (key.clone(), *id)).collect(),
            words,
            memberships: dimensions::memberships(db)?,
            facts,
            attributions: BTreeMap::new(),
            book_skus: BTreeMap::new(),
            terms: BTreeMap::new(),
        })
    }

    /// Charges for usage that is held, in its order, and what has no price.
    fn price(&mut self, db: &mut Db, usages: &[Usage]) -> Result<(Vec<Charge>, Vec<UnpricedUsage>), AppError> {
        let mut charges = Vec::with_capacity(usages.len());
        let mut unpriced: BTreeMap<UnpricedKey, UnpricedUsage> = BTreeMap::new();
        for usage in self.by_book_sku(db, usages)? {
            let usage = &usage;
            let (payer, sku) = self.payer(db, usage)?;
            match self.terms(sku, payer.pool, payer.service_class, usage.key.slot.start())? {
                Ok(terms) => {
                    let suspended = self.suspended(usage);
                    charges.push(charge(&with_sku(usage, sku), payer, terms, suspended)?);
                }
                Err(reason) => self.note_unpriced(&mut unpriced, usage, payer, sku, reason)?,
            }
        }
        Ok((charges, unpriced.into_values().collect()))
    }

    /// Held usage by the SKUs of the price book: what a job holds under two names of one SKU is one usage.
    fn by_book_sku(&mut self, db: &mut Db, usages: &[Usage]) -> Result<Vec<Usage>, AppError> {
        let holding = |usage: &Usage| (usage.key.slot, usage.key.node, usage.key.job, usage.key.facts, usage.key.state);
        let mut summed = Vec::with_capacity(usages.len());
        for alike in usages.chunk_by(|a, b| holding(a) == holding(b)) {
            let mut by_sku: Vec<Usage> = Vec::with_capacity(alike.len());
            for usage in alike.iter().filter(|usage| usage.key.state == State::Held) {
                let meant = self.book_sku(db, usage.key.sku)?;
                let mut known = None;
                for other in &mut by_sku {
                    if self.book_sku(db, other.key.sku)? == meant {
                        known = Some(other);
                        break;
                    }
                }
                match known {
                    Some(other) => other.add(usage)?,
                    None => by_sku.push(*usage),
                }
            }
            summed.append(&mut by_sku);
        }
        Ok(summed)
    }

    /// Who pays for a usage, and for which SKU of the price book.
    fn payer(&mut self, db: &mut Db, usage: &Usage) -> Result<(Payer, SkuId), AppError> {
        let (slot, key) = (usage.key.slot, usage.key);
        let lost = |what: &str| {
            AppError::Database(gpuledger_db::DbError::Inconsistent(format!("{what} of node {} is missing", key.node.0)))
        };
        let pool = self.memberships.pool(key.node, slot.start()).ok_or_else(|| lost("the pool"))?;
        let attribution = match self.attributions.get(&(key.facts, pool, slot.start())) {
            Some(attribution) => attribution.clone(),
            None => {
                let facts = self.facts.get(&key.facts).ok_or_else(|| lost("a fact set"))?;
                // A collector knows no pool; a node's is what it is in at the time.
                let in_pool = self.words.pools.get(&pool).filter(|_| facts.pool.is_empty());
                let in_pool = in_pool.map(|pool| JobFacts { pool: pool.to_string(), ..facts.clone() });
                let facts = in_pool.as_ref().unwrap_or(facts);
                let attribution = self.books.rules.attribution(facts, slot.start(), &self.books.teams);
                self.attributions.insert((key.facts, pool, slot.start()), attribution.clone());
                attribution
            }
        };
        let team = match self.team_ids.get(&attribution.team) {
            Some(id) => *id,
            None => {
                let id = self.numbers.team(db, &attribution.team)?;
                self.words.teams.insert(id, attribution.team.clone());
                self.team_ids.insert(attribution.team.clone(), id);
                id
            }
        };
        let experiment = self.experiment(db, team, attribution.experiment)?;
        let payer =
            Payer { team, pool, service_class: attribution.service_class, workload: attribution.workload, experiment };
        Ok((payer, self.book_sku(db, key.sku)?))
    }

    fn experiment(&mut self, db: &mut Db, team: TeamId, name: Option<String>) -> Result<ExperimentId, AppError> {
        let Some(name) = name else { return Ok(ExperimentId(0)) };
        let key = (team, name);
        if let Some(id) = self.experiment_ids.get(&key) {
            return Ok(*id);
        }
        let id = self.numbers.experiment(db, team, &key.1)?;
        self.words.experiments.insert(id, key.clone());
        self.experiment_ids.insert(key, id);
        Ok(id)
    }

    /// The SKU of the price book that a source means. Slices that a device told go before those of the book.
    fn book_sku(&mut self, db: &mut Db, id: SkuId) -> Result<SkuId, AppError> {
        if let Some(found) = self.book_skus.get(&id) {
            return Ok(*found);
        }
        let meant = self.words.skus.get(&id).and_then(|told| {
            let slices_told = (told.slices != SkuSlices::FULL).then_some(told.slices);
            let known = self.books.prices.sku(told.code.as_str())?;
            Some(Sku { slices: slices_told.unwrap_or(known.slices), code: known.code })
        });
        let found = match meant {
            None => id,
            Some(sku) => {
                let found = self.numbers.sku(db, &sku, &self.words.skus)?;
                self.words.skus.insert(found, sku);
                found
            }
        };
        self.book_skus.insert(id, found);
        Ok(found)
    }

    fn terms(
        &mut self,
        sku: SkuId,
        pool: PoolId,
        class: ServiceClass,
        at: Instant,
    ) -> Result<Result<Terms, Unpriced>, AppError> {
        if let Some(terms) = self.terms.get(&(sku, pool, class, at)) {
            return Ok(terms.clone());
        }
        let (described, pool_name) = self.sku_and_pool(sku, pool)?;
        let terms = self.books.prices.terms(described, pool_name, class, at);
        self.terms.insert((sku, pool, class, at), terms.clone());
        Ok(terms)
    }

    /// What is charged of the time for which a job of this cluster was suspended.
    fn suspended(&self, usage: &Usage) -> SuspendedTime {
        let cluster = self.facts.get(&usage.key.facts).map_or("", |facts| facts.cluster.as_str());
        self.books.prices.suspended.of(cluster, usage.key.slot.start())
    }

    fn sku_and_pool(&self, sku: SkuId, pool: PoolId) -> Result<(&Sku, &PoolName), AppError> {
        let found = self.words.skus.get(&sku).zip(self.words.pools.get(&pool));
        found.ok_or_else(|| {
            AppError::Database(gpuledger_db::DbError::Inconsistent(format!(
                "SKU {} or pool {} is missing",
                sku.0, pool.0
            )))
        })
    }

    fn note_unpriced(
        &self,
        unpriced: &mut BTreeMap<UnpricedKey, UnpricedUsage>,
        usage: &Usage,
        payer: Payer,
        sku: SkuId,
        reason: Unpriced,
    ) -> Result<(), AppError> {
        let (described, pool) = self.sku_and_pool(sku, payer.pool)?;
        let team = self.words.teams.get(&payer.team).cloned().unwrap_or_else(TeamCode::unassigned);
        let key = (team, described.clone(), pool.clone(), payer.service_class, reason.clone());
        let slot = usage.key.slot;
        let noted = unpriced.entry(key).or_insert_with(|| UnpricedUsage {
            team: payer.team,
            sku: described.clone(),
            pool: pool.clone(),
            numbers: (sku, payer.pool),
            service_class: payer.service_class,
            interval: slot,
            share_us: 0,
            gpu_us: Fraction::ZERO,
            jobs: BTreeSet::new(),
            reason,
        });
        noted.jobs.insert(usage.key.job);
        noted.share_us += i128::from(usage.share_us);
        noted.gpu_us = Fraction::whole(noted.share_us).times(described.slices.compute.fraction())?;
        let (start, end) = (noted.interval.start().min(slot.start()), noted.interval.end().max(slot.end()));
        noted.interval = Interval::new(start, end).ok_or(Overflow)?;
        Ok(())
    }
}

/// Puts charges in the order of natural keys, which is the same in every database.
fn sort(db: &mut Db, charges: &mut [Charge], words: &Words) -> Result<(), AppError> {
    let jobs: BTreeSet<JobId> = charges.iter().map(|charge| charge.job).collect();
    let job_names = allocation::names(db, &jobs.into_iter().collect::<Vec<_>>())?;
    let jobs = ranks(job_names.iter().map(|(id, name)| (*id, name)));
    let teams = ranks(words.teams.iter().map(|(id, code)| (*id, code)));
    let skus = ranks(words.skus.iter().map(|(id, sku)| (*id, sku)));
    let pools = ranks(words.pools.iter().map(|(id, name)| (*id, name)));
    let experiments = ranks(words.experiments.iter().map(|(id, (_, name))| (*id, name)));
    let bodies = dimensions::fact_sets(db)?;
    let facts = ranks(bodies.iter().map(|(id, body)| (*id, body)));
    charges.sort_by_cached_key(|charge| {
        let payer = charge.payer;
        (
            (teams.get(&payer.team), charge.slot, jobs.get(&charge.job), skus.get(&charge.sku), pools.get(&payer.pool)),
            (
                payer.service_class,
                (charge.kind, charge.end_cause, charge.corrects),
                payer.workload,
                experiments.get(&payer.experiment),
                facts.get(&charge.facts),
            ),
        )
    });
    Ok(())
}

/// The place of each number when ordered by its word. Equal words have equal places.
fn ranks<I: Ord + Copy + std::hash::Hash, W: Ord>(
    words: impl Iterator<Item = (I, W)>,
) -> std::collections::HashMap<I, usize> {
    let mut words: Vec<(W, I)> = words.map(|(id, word)| (word, id)).collect();
    words.sort();
    let mut ranks = std::collections::HashMap::with_capacity(words.len());
    let mut rank = 0;
    for (index, (word, id)) in words.iter().enumerate() {
        if index > 0 && words.get(index - 1).is_some_and(|(before, _)| before != word) {
            rank = index;
        }
        ranks.insert(*id, rank);
    }
    ranks
}
