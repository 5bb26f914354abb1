//! The numbers of what reports name, so that each is looked for once. They hold for good once the transaction that
//! gave them is committed; if it is not, all are forgotten.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;
use gpuledger_db::dimensions::{self, ClusterId, NodeKind};
use gpuledger_db::{Db, allocation, node_watch, unit};
use gpuledger_domain::calendar::BillingCalendar;
use gpuledger_domain::ids::{ClusterName, FactSetId, GpuId, JobId, NodeId, PoolName, SkuId, UnitId};
use gpuledger_domain::pricing::Sku;
use gpuledger_domain::rules::JobFacts;
use gpuledger_domain::time::Instant;

use super::pending::Context;
use crate::error::AppError;
use crate::import::report::{NodeReport, ReportedJob, ReportedUnit};
use crate::workflows::{job_facts, pools};

type Numbers<K, V> = HashMap<K, V, RandomState>;

/// Most jobs, and most sets of facts, that are remembered; past it they are looked for again.
const REMEMBERED_MAX: usize = 200_000;

#[derive(Debug, Default)]
pub(super) struct Interned {
    clusters: Numbers<ClusterName, ClusterId>,
    nodes: Numbers<(ClusterId, String), NodeId>,
    watched: Numbers<NodeId, Instant>,
    gpus: Numbers<String, GpuId>,
    skus: Numbers<Sku, SkuId>,
    units: Numbers<(NodeId, ReportedUnit), UnitId>,
    jobs: Numbers<(ClusterId, String, Instant), JobId>,
    facts: Numbers<JobFacts, FactSetId>,
    /// Billing days of nodes, by their start, of which a collector told.
    pub(super) reported_days: HashSet<(NodeId, Instant), RandomState>,
    /// Jobs of which a collector told, by billing day.
    pub(super) reported_jobs: HashSet<(JobId, Instant), RandomState>,
    /// The highest identity that was met of a node and epoch, as hour and number.
    newest: Numbers<(NodeId, i64), (i64, i64)>,
    /// Epoch and sequence of the heads that were written.
    heads: Numbers<NodeId, (i64, i64)>,
}

/// The numbers of a report's units and jobs, in its order.
#[derive(Debug, Default)]
pub(super) struct ReportNumbers {
    pub(super) units: Vec<(UnitId, SkuId)>,
    pub(super) jobs: Vec<(JobId, FactSetId)>,
    /// From when on the node has other units than was known.
    pub(super) changed_from: Option<Instant>,
}

impl Interned {
    /// The node of a report. A new one is put into its pool.
    pub(super) fn node(
        &mut self,
        db: &mut Db,
        report: &NodeReport,
        (calendar, default_pool): (&BillingCalendar, &PoolName),
    ) -> Result<(ClusterId, NodeId), AppError> {
        let cluster = self.cluster(db, &report.cluster)?;
        let key = (cluster, report.node.clone());
        if let Some(node) = self.nodes.get(&key) {
            return Ok((cluster, *node));
        }
        let node = dimensions::intern_node(db, cluster, &report.node, NodeKind::Machine)?;
        pools::place(db, calendar, node, (&report.cluster, &report.node), default_pool)?;
        self.nodes.insert(key, node);
        Ok((cluster, node))
    }

    fn cluster(&mut self, db: &mut Db, name: &ClusterName) -> Result<ClusterId, AppError> {
        if let Some(cluster) = self.clusters.get(name) {
            return Ok(*cluster);
        }
        let cluster = dimensions::intern_cluster(db, name)?;
        self.clusters.insert(name.clone(), cluster);
        Ok(cluster)
    }

    /// Whether all finished segments of a report come after what was met of its node and epoch, so that none of them
    /// can be held unless another process stored them.
    pub(super) fn are_new(&self, context: &Context<'_>) -> bool {
        let newest = self.newest.get(&(context.node, context.report.epoch));
        let place = |record| {
            let key = context.key(record);
            (key.hour.number(), key.number)
        };
        newest.is_some_and(|newest| context.report.segments.iter().all(|record| place(record) > *newest))
    }

    /// Remembers the highest identity of a report.
    pub(super) fn note_newest(&mut self, context: &Context<'_>) {
        if self.newest.len() > REMEMBERED_MAX {
            self.newest.clear();
        }
        let places = context.report.segments.iter().map(|record| context.key(record));
        if let Some(newest) = places.map(|key| (key.hour.number(), key.number)).max() {
            let known = self.newest.entry((context.node, context.report.epoch)).or_insert(newest);
            *known = newest.max(*known);
        }
    }

    /// Epoch and sequence of the head that was written of a node.
    pub(super) fn head(&self, node: NodeId) -> Option<(i64, i64)> {
        self.heads.get(&node).copied()
    }

    /// Remembers the head of a report, if it is later than the one before.
    pub(super) fn note_head(&mut self, context: &Context<'_>) {
        let told = (context.report.epoch, context.report.sequence);
        let known = self.heads.entry(context.node).or_insert(told);
        *known = told.max(*known);
    }

    /// Watches a node from an instant on.
    pub(super) fn watch(&mut self, db: &mut Db, node: NodeId, from: Instant) -> Result<(), AppError> {
        if self.watched.get(&node).is_none_or(|known| from < *known) {
            node_watch::watch_from(db, node, from)?;
            self.watched.insert(node, from);
        }
        Ok(())
    }

    pub(super) fn of_report(
        &mut self,
        db: &mut Db,
        node: NodeId,
        report: &NodeReport,
    ) -> Result<ReportNumbers, AppError> {
        let cluster = self.cluster(db, &report.cluster)?;
        let mut numbers = ReportNumbers::default();
        for unit in &report.units {
            let (unit, sku, changed_from) = self.unit(db, node, unit)?;
            numbers.units.push((unit, sku));
            numbers.changed_from = numbers.changed_from.into_iter().chain(changed_from).min();
        }
        if self.jobs.len() > REMEMBERED_MAX {
            self.jobs.clear();
        }
        if self.facts.len() > REMEMBERED_MAX {
            self.facts.clear();
        }
        if self.units.len() > REMEMBERED_MAX {
            (self.units, self.gpus, self.skus) = (Numbers::default(), Numbers::default(), Numbers::default());
        }
        if self.reported_days.len() + self.reported_jobs.len() > REMEMBERED_MAX {
            self.reported_days.clear();
            self.reported_jobs.clear();
        }
        // Those that no record names are not numbered.
        let records = report.segments.iter().chain(&report.head);
        let used: HashSet<usize> = records.filter_map(|record| record.content.as_ref().ok()?.job).collect();
        for (place, job) in report.jobs.iter().enumerate() {
            numbers.jobs.push(match used.contains(&place) {
                true => (self.job(db, cluster, job)?, self.fact_set(db, &job.facts)?),
                false => (JobId(0), FactSetId(0)),
            });
        }
        Ok(numbers)
    }

    /// The number of a unit, its SKU, and from when on it is news.
    fn unit(
        &mut self,
        db: &mut Db,
        node: NodeId,
        told: &ReportedUnit,
    ) -> Result<(UnitId, SkuId, Option<Instant>), AppError> {
        let sku = match self.skus.get(&told.sku) {
            Some(sku) => *sku,
            None => {
                let sku = dimensions::intern_sku(db, &told.sku)?;
                self.skus.insert(told.sku.clone(), sku);
                sku
            }
        };
        let key = (node, told.clone());
        if let Some(unit) = self.units.get(&key) {
            return Ok((*unit, sku, None));
        }
        let gpu = match self.gpus.get(&told.gpu_uuid) {
            Some(gpu) => *gpu,
            None => {
                let gpu = unit::intern_gpu(db, &told.gpu_uuid, &told.gpu_model)?;
                self.gpus.insert(told.gpu_uuid.clone(), gpu);
                gpu
            }
        };
        let unit = unit::intern_unit(db, gpu, &told.place, told.birth, sku)?;
        let is_news = unit::note_life(db, node, unit, told.death)?;
        self.units.insert(key, unit);
        // A new unit may end others, from its birth on.
        Ok((unit, sku, is_news.then_some(told.birth)))
    }

    fn job(&mut self, db: &mut Db, cluster: ClusterId, job: &ReportedJob) -> Result<JobId, AppError> {
        let key = (cluster, job.source_id.clone(), job.start);
        if let Some(id) = self.jobs.get(&key) {
            return Ok(*id);
        }
        let id = allocation::intern_job(db, cluster, &job.source_id, job.start)?;
        self.jobs.insert(key, id);
        Ok(id)
    }

    fn fact_set(&mut self, db: &mut Db, facts: &JobFacts) -> Result<FactSetId, AppError> {
        if let Some(id) = self.facts.get(facts) {
            return Ok(*id);
        }
        let (body, sha256) = job_facts::to_body(facts)?;
        let id = dimensions::intern_fact_set(db, &sha256, &body)?;
        self.facts.insert(facts.clone(), id);
        Ok(id)
    }
}
