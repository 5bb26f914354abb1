//! What jobs held, in the words of the price book, and what of it the inventory can be asked about.

use std::collections::BTreeMap;

use gpuledger_db::dimensions::{self, ClusterId, Memberships};
use gpuledger_db::segment::{self, HeldSegment};
use gpuledger_db::{Db, DbError};
use gpuledger_domain::ids::{ClusterName, NodeId, PoolId, PoolName, SkuCode, SkuId};
use gpuledger_domain::metering::{Holding, NodeKey, Outage, StockKey};
use gpuledger_domain::pricing::{PriceBook, SkuSlices};
use gpuledger_domain::time::{Hour, Instant, Interval};
use gpuledger_domain::units::Fraction;

use super::stocks::meant;
use crate::error::AppError;

/// The words behind the numbers in segments.
pub(super) struct Jobs {
    skus: BTreeMap<SkuId, SkuCode>,
    /// Which part of a GPU each SKU is, where that is known.
    pub(super) parts: BTreeMap<SkuCode, Fraction>,
    pools: BTreeMap<PoolId, PoolName>,
    memberships: Memberships,
    changes: Vec<Instant>,
    machines: BTreeMap<NodeId, (ClusterId, String)>,
    clusters: BTreeMap<ClusterId, ClusterName>,
}

/// What jobs held in an hour.
pub(super) struct HeldInHour<'a> {
    /// In pools of which the inventory speaks.
    pub(super) holdings: Vec<Holding<'a>>,
    /// In others, in microseconds.
    pub(super) unchecked_us: BTreeMap<&'a PoolName, i128>,
}

impl Jobs {
    pub(super) fn load(db: &mut Db, prices: &PriceBook) -> Result<Jobs, AppError> {
        let (mut skus, mut parts) = (BTreeMap::new(), BTreeMap::new());
        for (id, told) in dimensions::skus(db)? {
            let (code, known) = meant(prices, &told.code);
            // Slices that a device told go before those of the book.
            let part = (told.slices != SkuSlices::FULL).then(|| told.slices.compute.fraction()).or(known);
            parts.extend(part.map(|part| (code.clone(), part)));
            skus.insert(id, code);
        }
        let memberships = dimensions::memberships(db)?;
        let mut changes = memberships.changes();
        changes.sort_unstable();
        Ok(Jobs {
            skus,
            parts,
            pools: dimensions::pools(db)?,
            memberships,
            changes,
            machines: dimensions::machines(db)?,
            clusters: dimensions::clusters(db)?,
        })
    }

    /// What was held in a part of an hour. Where the inventory begins to speak of a pool, a segment is divided.
    pub(super) fn held(
        &self,
        db: &mut Db,
        (hour, within): (Hour, Interval),
        known_from: &BTreeMap<PoolName, Instant>,
    ) -> Result<HeldInHour<'_>, AppError> {
        let mut held = HeldInHour { holdings: Vec::new(), unchecked_us: BTreeMap::new() };
        for told in segment::held_by_schedulers(db, hour)? {
            for part in told.interval.cut_at(&self.changes) {
                let holding = self.holding(&told, part.start())?;
                let pool = holding.key.pool;
                let from = known_from.get(pool).copied().unwrap_or(Instant::MAX);
                let parts = part.cut_at(&[from]);
                for holding in parts.into_iter().filter_map(|part| holding.within(part)?.within(within)) {
                    if holding.interval.start() >= from {
                        held.holdings.push(holding);
                    } else {
                        *held.unchecked_us.entry(pool).or_default() += i128::from(holding.share_us);
                    }
                }
            }
        }
        Ok(held)
    }

    /// The events of a part of an hour, in words. Those of nodes that came meanwhile are left out.
    pub(super) fn outages(&self, events: &[(NodeId, Interval)], within: Interval) -> Vec<Outage<'_>> {
        let outage = |(node, interval): &(NodeId, Interval)| {
            let interval = interval.intersection(within)?;
            Some(Outage { node: self.node(*node)?, interval })
        };
        events.iter().filter_map(outage).collect()
    }

    fn node(&self, node: NodeId) -> Option<NodeKey<'_>> {
        let (cluster, name) = self.machines.get(&node)?;
        Some(NodeKey { cluster: self.clusters.get(cluster)?, node: name })
    }

    fn holding(&self, told: &HeldSegment, at: Instant) -> Result<Holding<'_>, AppError> {
        // An import may bring new ones meanwhile.
        let changed = || AppError::Changed("jobs were imported meanwhile; try again".to_owned());
        let pool = self.memberships.pool(told.node, at).ok_or_else(changed)?;
        let pool = self.pools.get(&pool).ok_or_else(changed)?;
        let sku = self.skus.get(&told.sku).ok_or_else(changed)?;
        let node = match told.on_node {
            NodeId(0) => None,
            node => Some(self.node(node).ok_or_else(changed)?),
        };
        if told.share_us < 0 {
            return Err(DbError::Inconsistent(format!("a segment of job {} is below zero", told.job.0)).into());
        }
        let (interval, count, share_us) = (told.interval, told.count, told.share_us);
        Ok(Holding { key: StockKey { pool, sku }, node, job: told.job, interval, count, share_us })
    }
}
