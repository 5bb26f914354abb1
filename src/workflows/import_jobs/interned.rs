//! What lines refer to, interned once an import: nodes, SKUs and facts.

use std::collections::HashMap;

use gpuledger_db::Db;
use gpuledger_db::dimensions::{self, ClusterId, NodeKind};
use gpuledger_domain::ids::{FactSetId, NodeId, SkuId};
use gpuledger_domain::metering::Placement;
use gpuledger_domain::pricing::{Sku, SkuSlices};
use gpuledger_domain::rules::JobFacts;

use crate::error::AppError;
use crate::import::job_list::JobRecord;
use crate::workflows::job_facts;

/// Distinct sets of facts kept in memory.
const FACT_SETS_MAX: usize = 65_536;

/// What an attempt holds all its time.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Holding {
    pub(super) node: NodeId,
    pub(super) sku: SkuId,
    pub(super) facts: FactSetId,
    pub(super) placements: String,
}

/// The numbers that were looked up or given so far.
#[derive(Default)]
pub(super) struct Interned {
    nodes: HashMap<(ClusterId, String), NodeId>,
    skus: HashMap<String, SkuId>,
    fact_sets: HashMap<JobFacts, FactSetId>,
}

impl Interned {
    /// What a line says its job holds.
    pub(super) fn holding(&mut self, db: &mut Db, cluster: ClusterId, record: &JobRecord) -> Result<Holding, AppError> {
        let stand_in = (cluster, format!("pool:{}", record.pool));
        let node = match self.nodes.get(&stand_in) {
            Some(id) => *id,
            None => {
                let id = dimensions::intern_pool_stand_in(db, cluster, &record.pool)?;
                self.nodes.insert(stand_in, id);
                id
            }
        };
        let sku = match self.skus.get(record.sku.as_str()) {
            Some(id) => *id,
            None => {
                // What the source calls it; the price book says later what it means.
                let id = dimensions::intern_sku(db, &Sku { code: record.sku.clone(), slices: SkuSlices::FULL })?;
                self.skus.insert(record.sku.to_string(), id);
                id
            }
        };
        let facts = self.fact_set(db, &record.facts)?;
        Ok(Holding { node, sku, facts, placements: placements_text(record) })
    }

    /// Where a line says the GPUs are, and how many.
    pub(super) fn placements(
        &mut self,
        db: &mut Db,
        cluster: ClusterId,
        record: &JobRecord,
    ) -> Result<Vec<Placement>, AppError> {
        let mut placements = Vec::with_capacity(record.placements.len());
        for (name, count) in record.placements.iter().filter(|(_, count)| *count > 0) {
            let key = (cluster, name.clone());
            let on_node = match self.nodes.get(&key) {
                _ if name.is_empty() => NodeId(0),
                Some(id) => *id,
                None => {
                    let id = dimensions::intern_node(db, cluster, name, NodeKind::Machine)?;
                    self.nodes.insert(key, id);
                    id
                }
            };
            placements.push(Placement { on_node, count: *count });
        }
        Ok(placements)
    }

    fn fact_set(&mut self, db: &mut Db, facts: &JobFacts) -> Result<FactSetId, AppError> {
        if let Some(id) = self.fact_sets.get(facts) {
            return Ok(*id);
        }
        let (body, sha256) = job_facts::to_body(facts)?;
        let id = dimensions::intern_fact_set(db, &sha256, &body)?;
        if self.fact_sets.len() >= FACT_SETS_MAX {
            self.fact_sets.clear();
        }
        self.fact_sets.insert(facts.clone(), id);
        Ok(id)
    }
}

/// `NODE=COUNT` by comma, as tellings store it.
pub(super) fn placements_text(record: &JobRecord) -> String {
    let texts: Vec<String> = record.placements.iter().map(|(node, count)| format!("{node}={count}")).collect();
    texts.join(",")
}
