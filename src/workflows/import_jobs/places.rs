//! Where the GPUs of a line are: in which pools, and of which SKU, over its time.

use gpuledger_domain::ids::{ClusterName, PoolName, SkuCode};
use gpuledger_domain::inventory::Inventory;
use gpuledger_domain::time::Interval;

use crate::import::job_record::{Grant, JobRecord};

/// What a source calls a GPU of which it does not say the type.
pub(super) const UNTYPED: &str = "gpu";

/// What is known of places, besides what lists say.
#[derive(Debug)]
pub(super) struct Places<'a> {
    /// Which node is in which pool, over time.
    pub(super) inventory: &'a Inventory,
    /// The pool of jobs of which neither the list nor the inventory says one.
    pub(super) pool: Option<&'a PoolName>,
}

/// GPUs of one SKU on one node, for a time in which it is in one pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) interval: Interval,
    pub(super) pool: PoolName,
    /// Empty where it is not known.
    pub(super) node: String,
    pub(super) sku: SkuCode,
    pub(super) count: i32,
}

impl Places<'_> {
    /// The pieces of a line's grants, in the order of the grants.
    pub(super) fn pieces(&self, record: &JobRecord, interval: Interval) -> Result<Vec<Piece>, String> {
        let mut pieces = Vec::with_capacity(record.grants.len());
        for grant in &record.grants {
            let sku = self.sku(record, grant, interval);
            for (interval, pool) in self.pools(record, grant, interval)? {
                let (node, sku) = (grant.node.clone(), sku.clone());
                pieces.push(Piece { interval, pool, node, sku, count: grant.count });
            }
        }
        Ok(pieces)
    }

    /// A grant without a type is of the type of its nodes, where the inventory knows that they have only one.
    fn sku(&self, record: &JobRecord, grant: &Grant, interval: Interval) -> SkuCode {
        if grant.sku.as_str() != UNTYPED {
            return grant.sku.clone();
        }
        let nodes = nodes_of(record, grant);
        let mut skus = nodes.iter().map(|node| self.inventory.only_sku(&record.cluster, node, interval.start()));
        let first = skus.next().flatten();
        first.filter(|first| skus.all(|sku| sku.as_ref() == Some(first))).unwrap_or_else(|| grant.sku.clone())
    }

    fn pools(
        &self,
        record: &JobRecord,
        grant: &Grant,
        interval: Interval,
    ) -> Result<Vec<(Interval, PoolName)>, String> {
        if let Some(pool) = &record.pool {
            return Ok(vec![(interval, pool.clone())]);
        }
        let otherwise = self.otherwise(&record.cluster, &record.facts.partition);
        let mut nodes = nodes_of(record, grant).into_iter();
        let of_node = |node: &str| self.inventory.pools(&record.cluster, node, interval);
        let first = nodes.next();
        let pools = first.map_or_else(|| vec![(interval, None)], of_node);
        if nodes.any(|node| of_node(node) != pools) {
            return Err(
                "its nodes are in several pools, and the list does not say how many of its GPUs are on each; put these nodes into one pool in the inventory".into(),
            );
        }
        let named = |(interval, pool): (Interval, Option<PoolName>)| {
            let pool = pool.or_else(|| otherwise.cloned()).ok_or_else(|| unknown_pool(record, first))?;
            Ok((interval, pool))
        };
        pools.into_iter().map(named).collect()
    }

    /// The pool of nodes that the inventory does not know.
    fn otherwise(&self, cluster: &ClusterName, partition: &str) -> Option<&PoolName> {
        let entry = self.inventory.cluster(cluster);
        let by_partition = entry.and_then(|entry| entry.partitions.get(partition));
        by_partition.or_else(|| entry.and_then(|entry| entry.pool.as_ref())).or(self.pool)
    }
}

/// The nodes that a grant may be on. A list that tells counts for a job as a whole says only that each node may have its
/// even part; what decides an amount must hold for all of its nodes.
fn nodes_of<'r>(record: &'r JobRecord, grant: &'r Grant) -> Vec<&'r str> {
    match record.nodes.as_slice() {
        [] if grant.node.is_empty() => Vec::new(),
        [] => vec![grant.node.as_str()],
        nodes => nodes.iter().map(String::as_str).collect(),
    }
}

fn unknown_pool(record: &JobRecord, node: Option<&str>) -> String {
    let place = node.map_or_else(String::new, |node| format!("node {node}, "));
    format!(
        "nothing says which pool {place}partition “{}” of cluster {} is in; add it to the inventory, or give --pool NAME",
        record.facts.partition, record.cluster
    )
}
