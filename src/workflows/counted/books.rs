//! What schedulers' books say of a node on which a collector told, and of its jobs.

use std::collections::{BTreeMap, BTreeSet};

use gpuledger_db::attempt::{self, ListedAttempt};
use gpuledger_db::{Db, allocation, dimensions, segment, unit};
use gpuledger_domain::ids::{FactSetId, GpuId, JobId, NodeId, SkuId, UnitId};
use gpuledger_domain::metering::{
    Disagreement, Finding, KnownUnit, LastHeld, REMAINDER, Segment, UnitOrder, beside_books,
};
use gpuledger_domain::time::{Hour, Interval};

use crate::error::AppError;
use crate::workflows::job_facts;

/// The books of one node and billing day.
pub(super) struct NodeBooks {
    by_hour: BTreeMap<Hour, Vec<Segment>>,
    order: UnitOrder,
    last_held: LastHeld,
    /// The attempts that lists tell of, for each job of which the collector told.
    attempts: BTreeMap<JobId, Vec<ListedAttempt>>,
    joined: BTreeMap<(JobId, FactSetId, FactSetId), Segment>,
}

impl NodeBooks {
    /// What is told of a node; `seen` is what its collector told of the day.
    pub(super) fn load(
        db: &mut Db,
        node: NodeId,
        day: Interval,
        units: &[KnownUnit],
        seen: &[Segment],
    ) -> Result<NodeBooks, AppError> {
        let stand_ins = {
            let cluster = dimensions::cluster_of(db, node)?;
            dimensions::stand_ins(db, cluster)?
        };
        let mut books = NodeBooks {
            by_hour: BTreeMap::new(),
            order: UnitOrder::default(),
            last_held: LastHeld::new(),
            attempts: BTreeMap::new(),
            joined: BTreeMap::new(),
        };
        if stand_ins.is_empty() {
            return Ok(books);
        }
        books.attempts = attempts(db, seen)?;
        let told = segment::of_books_on(db, &stand_ins, node, &day.hours().collect::<Vec<_>>())?;
        if told.is_empty() {
            return Ok(books);
        }
        books.order = unit_order(db, units, &told)?;
        for book in in_order(db, told)? {
            books.by_hour.entry(book.key.hour).or_default().push(book);
        }
        Ok(books)
    }

    /// A segment of the collector with the attempt that a list tells of, where one covers the sighting.
    pub(super) fn joined(&mut self, segment: Segment) -> Segment {
        let start = segment.interval.start();
        let found = self
            .attempts
            .get(&segment.job)
            .into_iter()
            .flatten()
            .find(|attempt| attempt.interval.contains(start) && segment.job.0 != 0);
        let Some(attempt) = found else { return segment };
        let pair = (attempt.job, segment.facts, attempt.facts);
        let first = self.joined.entry(pair).or_insert_with(|| segment.clone());
        if (segment.interval, segment.key) < (first.interval, first.key) {
            *first = segment.clone();
        }
        Segment { job: attempt.job, facts: attempt.facts, ..segment }
    }

    /// What counts of an hour: what was seen, and what the books fill.
    pub(super) fn fill(&mut self, hour: Hour, seen: Vec<Segment>) -> Result<(Vec<Segment>, Vec<Finding>), AppError> {
        if self.by_hour.is_empty() {
            return Ok((seen, Vec::new()));
        }
        let books = self.by_hour.remove(&hour).unwrap_or_default();
        let beside = beside_books(seen, &books, &self.order, &mut self.last_held)?;
        // So that later hours know who held what, this goes on until the last hour with books.
        Ok((beside.segments, beside.findings))
    }

    /// Jobs of which the collector told another user or account than the list.
    pub(super) fn other_facts(&self, db: &mut Db) -> Result<Vec<Finding>, AppError> {
        let mut findings = Vec::new();
        for ((job, seen, listed), first) in &self.joined {
            if seen == listed {
                continue;
            }
            let mut facts = |id| job_facts::from_body(&dimensions::fact_set_body(db, id)?);
            let (seen, listed) = (facts(*seen)?, facts(*listed)?);
            let differ = |a: &str, b: &str| !a.is_empty() && !b.is_empty() && a != b;
            if differ(&seen.user, &listed.user) || differ(&seen.account, &listed.account) {
                let (unit, interval, key) = (first.unit, first.interval, first.key);
                findings.push(Finding { unit, interval, key, job: *job, what: Disagreement::OtherFacts });
            }
        }
        Ok(findings)
    }
}

/// The attempts that lists tell of, by the jobs of which a collector told.
fn attempts(db: &mut Db, seen: &[Segment]) -> Result<BTreeMap<JobId, Vec<ListedAttempt>>, AppError> {
    let jobs: BTreeSet<JobId> = seen.iter().map(|segment| segment.job).filter(|job| job.0 != 0).collect();
    let same = attempt::of_same_id(db, &jobs.into_iter().collect::<Vec<_>>())?;
    let all: BTreeSet<JobId> = same.values().flatten().copied().collect();
    let listed = attempt::listed(db, &all.into_iter().collect::<Vec<_>>())?;
    let of = |jobs: Vec<JobId>| listed.iter().filter(|attempt| jobs.contains(&attempt.job)).cloned().collect();
    Ok(same.into_iter().map(|(job, jobs)| (job, of(jobs))).collect())
}

/// Which units of a node to give first, and which of them the books' SKUs mean: those of the same code, whatever the
/// case of its letters.
fn unit_order(db: &mut Db, units: &[KnownUnit], told: &[Segment]) -> Result<UnitOrder, AppError> {
    let gpus: BTreeSet<GpuId> = units.iter().map(|unit| unit.gpu).collect();
    let uuids = unit::uuids_of(db, &gpus.into_iter().collect::<Vec<_>>())?;
    let mut sorted: Vec<(Option<&String>, &str, UnitId)> = units
        .iter()
        .filter(|unit| unit.place != REMAINDER)
        .map(|unit| (uuids.get(&unit.gpu), unit.place.as_str(), unit.unit))
        .collect();
    sorted.sort_unstable();
    let ranks = (0..).zip(sorted).map(|(rank, (_, _, unit))| (unit, rank)).collect();
    let skus = dimensions::skus(db)?;
    let code = |id: &SkuId| skus.get(id).map(|sku| sku.code.as_str().to_lowercase());
    let of_units: BTreeSet<SkuId> = units.iter().map(|unit| unit.sku).collect();
    let meant = |book: SkuId| of_units.iter().filter(|unit| code(unit) == code(&book)).copied().collect();
    let of_books: BTreeSet<SkuId> = told.iter().map(|book| book.sku).collect();
    Ok(UnitOrder { ranks, meant: of_books.into_iter().map(|book| (book, meant(book))).collect() })
}

/// The books' segments by words, not by numbers that the database gave.
fn in_order(db: &mut Db, mut told: Vec<Segment>) -> Result<Vec<Segment>, AppError> {
    let jobs: BTreeSet<JobId> = told.iter().map(|segment| segment.job).collect();
    let names = allocation::names(db, &jobs.into_iter().collect::<Vec<_>>())?;
    told.sort_by(|a, b| {
        let key = |segment: &Segment| {
            (segment.key.hour, names.get(&segment.job), segment.interval, segment.sku, segment.key.number)
        };
        key(a).cmp(&key(b))
    });
    Ok(told)
}
