//! The law of time, checked: for each pool, node and billing day on which collectors report, what was held, idle,
//! stranded, unobserved and out of service is the time that its units existed, to the microsecond.
//!
//! The two sides are found in two ways: the sum from usage, as it is stored and priced; the existence from the lives of
//! the units.

use std::collections::BTreeMap;

use gpuledger_db::{Db, allocation, dimensions, late_usage, node_watch, unit, usage};
use gpuledger_domain::calendar::{BillingCalendar, slots};
use gpuledger_domain::ids::{ClusterName, GpuId, JobId, NodeId, PoolName, SkuId};
use gpuledger_domain::metering::{Disagreement, Finding, State, UnitLife};
use gpuledger_domain::pricing::Sku;
use gpuledger_domain::time::{Instant, Interval};
use gpuledger_domain::units::{Fraction, Overflow};

use super::books::Books;
use super::{counted, roll_up};
use crate::error::AppError;

/// A node's day in a pool, in GPU-equivalent microseconds: each unit times its part of its GPU's compute slices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReconciledDay {
    /// The billing day.
    pub day: Interval,
    /// The pool.
    pub pool: PoolName,
    /// The node's cluster.
    pub cluster: ClusterName,
    /// The node's name.
    pub node: String,
    /// How long units existed.
    pub exists_us: Fraction,
    /// By state, in the order of [`STATES`].
    pub states_us: [Fraction; 5],
    /// Σ states − existence over all units, each counted whole; 0 where the law holds.
    pub difference_us: i128,
}

/// The states, in the order in which they are shown.
pub const STATES: [State; 5] = [State::Held, State::Idle, State::Stranded, State::Unobserved, State::OutOfService];

/// What a person should look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReconcileFinding {
    /// The node's name.
    pub node: String,
    /// The UUID of the GPU, and the place of the unit in it; empty for the whole GPU.
    pub gpu: String,
    /// See [`gpuledger_domain::metering::KnownUnit::place`].
    pub place: String,
    /// The job, as its source calls it, where it is about one; else empty.
    pub job: String,
    /// When.
    pub interval: Interval,
    /// What is wrong.
    pub what: FindingKind,
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    /// Something that was told does not stand.
    Told(Disagreement),
    /// The units of a GPU are more or less than the GPU.
    Layout,
}

/// The reconciliation of an interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reconciliation {
    /// The billing days, whole.
    pub interval: Interval,
    /// By day, pool, cluster and node.
    pub days: Vec<ReconciledDay>,
    /// By node, unit and time.
    pub findings: Vec<ReconcileFinding>,
}

impl Reconciliation {
    /// Whether the law holds everywhere and nothing is to be looked at.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty() && self.days.iter().all(|day| day.difference_us == 0)
    }
}

/// Sums what is marked, and compares.
///
/// # Errors
/// The database's, or a sum that does not fit.
pub fn reconcile(
    db: &mut Db,
    calendar: &BillingCalendar,
    interval: Interval,
    now: Instant,
) -> Result<Reconciliation, AppError> {
    counted::settle_days(db, calendar, now)?;
    roll_up::roll_up(db, calendar, None)?;
    let words = Words::load(db, calendar)?;
    let (mut days, mut findings) = (Vec::new(), Vec::new());
    let asked = calendar.days(interval);
    for day in &asked {
        let mut by_node: BTreeMap<NodeId, Vec<usage::SummedShare>> = BTreeMap::new();
        let late = late_usage::shares_of_day(db, *day)?;
        for share in usage::shares_of_day(db, *day)?.into_iter().chain(late) {
            by_node.entry(share.node).or_default().push(share);
        }
        for watch in node_watch::all(db)? {
            let shares = by_node.remove(&watch.node).unwrap_or_default();
            let lives = counted::lives_of_day(db, watch.node, *day)?;
            if !shares.is_empty() || !lives.is_empty() {
                days.extend(words.day(watch.node, *day, &shares, &lives)?);
            }
            findings.extend(words.findings(db, watch.node, *day, &lives)?);
        }
    }
    days.sort_by(|a, b| (a.day, &a.pool, &a.cluster, &a.node).cmp(&(b.day, &b.pool, &b.cluster, &b.node)));
    let place = |found: &ReconcileFinding| {
        (found.node.clone(), found.gpu.clone(), found.place.clone(), found.interval, found.job.clone(), found.what)
    };
    findings.sort_by_cached_key(place);
    let whole = asked.first().zip(asked.last()).and_then(|(first, last)| Interval::new(first.start(), last.end()));
    Ok(Reconciliation { interval: whole.unwrap_or(interval), days, findings })
}

/// What numbers stand for.
struct Words {
    memberships: dimensions::Memberships,
    changes: Vec<Instant>,
    pools: BTreeMap<gpuledger_domain::ids::PoolId, PoolName>,
    skus: BTreeMap<SkuId, Sku>,
    clusters: BTreeMap<dimensions::ClusterId, ClusterName>,
    machines: BTreeMap<NodeId, (dimensions::ClusterId, String)>,
    gpus: BTreeMap<GpuId, String>,
}

impl Words {
    fn load(db: &mut Db, calendar: &BillingCalendar) -> Result<Words, AppError> {
        let memberships = dimensions::memberships(db)?;
        Ok(Words {
            changes: Books::in_force(db, calendar)?.changes(&memberships),
            memberships,
            pools: dimensions::pools(db)?,
            skus: dimensions::skus(db)?,
            clusters: dimensions::clusters(db)?,
            machines: dimensions::machines(db)?,
            gpus: unit::gpu_uuids(db)?,
        })
    }

    fn compute(&self, sku: SkuId) -> Fraction {
        self.skus.get(&sku).map_or(Fraction::ZERO, |sku| sku.slices.compute.fraction())
    }

    fn node(&self, node: NodeId) -> Option<(&ClusterName, &str)> {
        let (cluster, name) = self.machines.get(&node)?;
        Some((self.clusters.get(cluster)?, name))
    }

    /// A node's day, once for each pool that it was in.
    fn day(
        &self,
        node: NodeId,
        day: Interval,
        shares: &[usage::SummedShare],
        lives: &[UnitLife],
    ) -> Result<Vec<ReconciledDay>, AppError> {
        let lost = |what: &str| {
            AppError::Database(gpuledger_db::DbError::Inconsistent(format!("{what} of node {} is missing", node.0)))
        };
        let (cluster, name) = self.node(node).ok_or_else(|| lost("the name"))?;
        let mut by_pool: BTreeMap<PoolName, ReconciledDay> = BTreeMap::new();
        for slot in slots(day, &self.changes) {
            let pool = self.memberships.pool(node, slot.start()).and_then(|pool| self.pools.get(&pool));
            let pool = pool.ok_or_else(|| lost("the pool"))?;
            let row = by_pool.entry(pool.clone()).or_insert_with(|| ReconciledDay {
                day,
                pool: pool.clone(),
                cluster: cluster.clone(),
                node: name.to_owned(),
                exists_us: Fraction::ZERO,
                states_us: [Fraction::ZERO; 5],
                difference_us: 0,
            });
            for life in lives {
                let Some(within) = life.interval.intersection(slot) else { continue };
                let length = i128::from(within.length_us());
                row.exists_us = row.exists_us.plus(Fraction::whole(length).times(self.compute(life.sku))?)?;
                row.difference_us -= length;
            }
            for share in shares.iter().filter(|share| slot.contains(share.slot.start())) {
                let of_state = STATES.iter().zip(&mut row.states_us).find(|(state, _)| **state == share.state);
                if let Some((_, sum)) = of_state {
                    *sum = sum.plus(Fraction::whole(share.share_us).times(self.compute(share.sku))?)?;
                }
                row.difference_us += share.share_us;
            }
        }
        let is_empty = |row: &ReconciledDay| row.exists_us == Fraction::ZERO && row.difference_us == 0;
        Ok(by_pool.into_values().filter(|row| !is_empty(row)).collect())
    }

    fn findings(
        &self,
        db: &mut Db,
        node: NodeId,
        day: Interval,
        lives: &[UnitLife],
    ) -> Result<Vec<ReconcileFinding>, AppError> {
        let units = unit::of_node(db, node)?;
        let name = self.node(node).map_or_else(String::new, |(_, name)| name.to_owned());
        let gpu = |id: GpuId| self.gpus.get(&id).cloned().unwrap_or_default();
        let (_, told) = counted::told_of_day(db, node, day, counted::NOW)?;
        let jobs: Vec<JobId> = told.iter().map(|found| found.job).filter(|job| job.0 != 0).collect();
        let jobs = allocation::names(db, &jobs)?;
        let finding = |found: Finding| {
            let known = units.iter().find(|known| known.unit == found.unit);
            ReconcileFinding {
                node: name.clone(),
                gpu: known.map_or_else(String::new, |known| gpu(known.gpu)),
                place: known.map_or_else(String::new, |known| known.place.clone()),
                job: jobs.get(&found.job).map_or_else(String::new, |(_, name)| name.source_id.clone()),
                interval: found.interval,
                what: FindingKind::Told(found.what),
            }
        };
        let mut findings: Vec<ReconcileFinding> = told.into_iter().map(finding).collect();
        let mut by_gpu: BTreeMap<GpuId, Vec<(Interval, Fraction)>> = BTreeMap::new();
        for life in lives {
            if let Some(known) = units.iter().find(|known| known.unit == life.unit) {
                by_gpu.entry(known.gpu).or_default().push((life.interval, self.compute(life.sku)));
            }
        }
        for (id, parts) in by_gpu {
            for interval in not_whole(&parts)? {
                let (node, gpu, place, job) = (name.clone(), gpu(id), String::new(), String::new());
                findings.push(ReconcileFinding { node, gpu, place, job, interval, what: FindingKind::Layout });
            }
        }
        Ok(findings)
    }
}

/// Where the parts of a GPU that exist do not sum to one, between the first and the last of them.
fn not_whole(parts: &[(Interval, Fraction)]) -> Result<Vec<Interval>, Overflow> {
    let mut edges: Vec<Instant> = parts.iter().flat_map(|(life, _)| [life.start(), life.end()]).collect();
    edges.sort_unstable();
    edges.dedup();
    let mut wrong = Vec::new();
    for piece in edges.windows(2) {
        let [from, until] = piece else { continue };
        let there = parts.iter().filter(|(life, _)| life.contains(*from));
        let mut sum = Fraction::ZERO;
        for (_, part) in there {
            sum = sum.plus(*part)?;
        }
        if sum != Fraction::whole(1) && sum != Fraction::ZERO {
            wrong.extend(Interval::new(*from, *until));
        }
    }
    Ok(wrong)
}
