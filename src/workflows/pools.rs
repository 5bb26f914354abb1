//! Which pool a node on which a collector reports is in: the inventory says it, or else it is the default one.

use gpuledger_db::{Db, dimensions};
use gpuledger_domain::ids::{ClusterName, NodeId, PoolName};
use gpuledger_domain::time::{Instant, Interval};

use super::inventory;
use crate::error::AppError;

/// Puts a node into its pools over time, if it is in none yet.
///
/// # Errors
/// The database's; also where the stored inventory cannot be read by this version.
pub fn place(
    db: &mut Db,
    node: NodeId,
    (cluster, name): (&ClusterName, &str),
    default_pool: &PoolName,
) -> Result<(), AppError> {
    if dimensions::is_in_a_pool(db, node)? {
        return Ok(());
    }
    let inventory = inventory::in_force(db)?;
    let cluster_pool = inventory.cluster(cluster).and_then(|entry| entry.pool.clone());
    let Some(always) = Interval::new(Instant::MIN, Instant::MAX) else { return Ok(()) };
    for (within, pool) in inventory.pools(cluster, name, always) {
        let pool = pool.or_else(|| cluster_pool.clone()).unwrap_or_else(|| default_pool.clone());
        dimensions::put_into_pool(db, node, within.start(), &pool)?;
    }
    Ok(())
}
