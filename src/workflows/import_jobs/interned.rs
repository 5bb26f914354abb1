//! What lines refer to, interned once an import: nodes, SKUs and facts.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::RandomState;
use gpuledger_db::Db;
use gpuledger_db::dimensions::{self, ClusterId, NodeKind};
use gpuledger_domain::ids::{FactSetId, NodeId, SkuId};
use gpuledger_domain::metering::Placement;
use gpuledger_domain::pricing::{Sku, SkuSlices};

use super::told::{FactSet, Told};
use crate::error::AppError;

/// What the first piece of an attempt holds; all pieces stand in its placements.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Holding {
    pub(super) node: NodeId,
    pub(super) sku: SkuId,
    pub(super) facts: FactSetId,
}

type Numbers<K, V> = HashMap<K, V, RandomState>;

/// The numbers that were looked up or given so far.
#[derive(Default)]
pub(super) struct Interned {
    machines: Numbers<ClusterId, Numbers<String, NodeId>>,
    stand_ins: Numbers<ClusterId, Numbers<String, NodeId>>,
    skus: Numbers<String, SkuId>,
}

impl Interned {
    /// Gives numbers to the facts of these lines that have none yet, all at once.
    pub(super) fn take_facts(db: &mut Db, told: &[&Told]) -> Result<(), AppError> {
        let unknown = told.iter().flat_map(|told| told.facts.iter()).filter(|facts| facts.id.get().is_none());
        let missing: BTreeMap<&[u8], Vec<&FactSet>> = unknown.fold(BTreeMap::new(), |mut missing, facts| {
            missing.entry(facts.sha256.as_slice()).or_insert_with(Vec::new).push(facts);
            missing
        });
        let wanted: Vec<(&[u8], &str)> = missing
            .iter()
            .filter_map(|(sha256, facts)| facts.first().map(|facts| (*sha256, facts.body.as_str())))
            .collect();
        let ids = dimensions::intern_fact_sets(db, &wanted)?;
        for (facts, id) in missing.values().zip(ids) {
            // It may have its number already where lines share it.
            for facts in facts {
                let _ = facts.id.set(id);
            }
        }
        Ok(())
    }

    /// What a line says its job holds.
    pub(super) fn holding(&mut self, db: &mut Db, cluster: ClusterId, told: &Told) -> Result<Holding, AppError> {
        let (Some(piece), Some(facts)) = (told.pieces.first(), told.facts.first()) else {
            return Err(AppError::Refused(format!("line {} holds nothing", told.line)));
        };
        let node = self.stand_in(db, cluster, &piece.pool)?;
        let sku = self.sku(db, &piece.sku)?;
        Ok(Holding { node, sku, facts: Interned::facts(db, facts)? })
    }

    /// Where a line says the GPUs are, and how many.
    pub(super) fn placements(
        &mut self,
        db: &mut Db,
        cluster: ClusterId,
        told: &Told,
    ) -> Result<Vec<Placement>, AppError> {
        let mut placements = Vec::with_capacity(told.pieces.len());
        for (piece, facts) in told.pieces.iter().zip(&told.facts).filter(|(piece, _)| piece.count > 0) {
            placements.push(Placement {
                interval: piece.interval,
                node: self.stand_in(db, cluster, &piece.pool)?,
                on_node: self.machine(db, cluster, &piece.node)?,
                sku: self.sku(db, &piece.sku)?,
                count: piece.count,
                facts: Interned::facts(db, facts)?,
            });
        }
        Ok(placements)
    }

    fn machine(&mut self, db: &mut Db, cluster: ClusterId, name: &str) -> Result<NodeId, AppError> {
        if name.is_empty() {
            return Ok(NodeId(0));
        }
        let known = self.machines.entry(cluster).or_default();
        if let Some(id) = known.get(name) {
            return Ok(*id);
        }
        let id = dimensions::intern_node(db, cluster, name, NodeKind::Machine)?;
        known.insert(name.to_owned(), id);
        Ok(id)
    }

    fn stand_in(
        &mut self,
        db: &mut Db,
        cluster: ClusterId,
        pool: &gpuledger_domain::ids::PoolName,
    ) -> Result<NodeId, AppError> {
        let known = self.stand_ins.entry(cluster).or_default();
        if let Some(id) = known.get(pool.as_str()) {
            return Ok(*id);
        }
        let id = dimensions::intern_pool_stand_in(db, cluster, pool)?;
        known.insert(pool.to_string(), id);
        Ok(id)
    }

    fn sku(&mut self, db: &mut Db, code: &gpuledger_domain::ids::SkuCode) -> Result<SkuId, AppError> {
        if let Some(id) = self.skus.get(code.as_str()) {
            return Ok(*id);
        }
        // What the source calls it; the price book says later what it means.
        let id = dimensions::intern_sku(db, &Sku { code: code.clone(), slices: SkuSlices::FULL })?;
        self.skus.insert(code.to_string(), id);
        Ok(id)
    }

    fn facts(db: &mut Db, facts: &FactSet) -> Result<FactSetId, AppError> {
        match facts.id.get() {
            Some(id) => Ok(*id),
            None => Ok(dimensions::intern_fact_set(db, &facts.sha256, &facts.body)?),
        }
    }
}
