//! Which pool a node on which a collector reports is in: the inventory says it, or else it is the default one.

use gpuledger_db::usage::{self, Mark};
use gpuledger_db::{Db, dimensions, period};
use gpuledger_domain::calendar::BillingCalendar;
use gpuledger_domain::ids::{ClusterName, NodeId, PoolName};
use gpuledger_domain::time::{Instant, Interval};

use super::inventory;
use crate::error::AppError;

/// Puts a node into its pools over time, if it is in none yet. An instant within a billing day at which it changes its
/// pool is a cut for every node, so that such days of open months are summed again.
///
/// # Errors
/// The database's; also where the stored inventory cannot be read by this version.
pub fn place(
    db: &mut Db,
    calendar: &BillingCalendar,
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
        if within.start() == Instant::MIN {
            continue;
        }
        let day = calendar.day_of(within.start());
        let is_open = |state: Option<period::PeriodState>| state.is_some_and(|state| state.closing.is_none());
        if day.start() != within.start() && is_open(period::find(db, calendar.period_of(day.start()).month)?) {
            let nodes = usage::nodes_of_interval(db, day)?.into_iter();
            usage::mark(db, &nodes.map(|node| Mark { day_start: day.start(), node }).collect::<Vec<_>>())?;
        }
    }
    Ok(())
}
