//! Nodes on which collectors report: since when, up to where what nobody saw was summed, and until when.

use diesel::prelude::*;
use gpuledger_domain::ids::NodeId;
use gpuledger_domain::time::Instant;

use crate::schema::node_watch;
use crate::{Db, DbError, on_db};

/// A node on which a collector reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeWatch {
    /// The node.
    pub node: NodeId,
    /// The earliest instant of which a collector told.
    pub from: Instant,
    /// Every billing day before this instant was summed once it was over, or is marked.
    pub settled_until: Instant,
    /// From when it is no more.
    pub retired_at: Option<Instant>,
}

type Row = (i32, i64, i64, Option<i64>);

fn watch((node, from, settled, retired): Row) -> NodeWatch {
    NodeWatch {
        node: NodeId(node),
        from: Instant::from_micros(from),
        settled_until: Instant::from_micros(settled),
        retired_at: retired.map(Instant::from_micros),
    }
}

/// The watch of a node, if a collector ever reported on it.
///
/// # Errors
/// What the database says.
pub fn find(db: &mut Db, node: NodeId) -> Result<Option<NodeWatch>, DbError> {
    let row: Option<Row> = on_db!(db, c => node_watch::table.find(node.0).first(c).optional())?;
    Ok(row.map(watch))
}

/// All watches, by node.
///
/// # Errors
/// What the database says.
pub fn all(db: &mut Db) -> Result<Vec<NodeWatch>, DbError> {
    let rows: Vec<Row> = on_db!(db, c => node_watch::table.order(node_watch::node_id).load(c))?;
    Ok(rows.into_iter().map(watch).collect())
}

/// The watched nodes of a cluster.
///
/// # Errors
/// What the database says.
pub fn of_cluster(db: &mut Db, cluster: crate::dimensions::ClusterId) -> Result<Vec<NodeId>, DbError> {
    use crate::schema::node;
    let rows: Vec<i32> = on_db!(db, c => node_watch::table
        .inner_join(node::table.on(node::id.eq(node_watch::node_id)))
        .filter(node::cluster_id.eq(cluster))
        .order(node_watch::node_id)
        .select(node_watch::node_id)
        .load(c))?;
    Ok(rows.into_iter().map(NodeId).collect())
}

/// Watches a node from an instant on, or from an earlier one than so far.
///
/// # Errors
/// What the database says.
pub fn watch_from(db: &mut Db, node: NodeId, from: Instant) -> Result<(), DbError> {
    let micros = from.micros();
    on_db!(db, c => diesel::insert_into(node_watch::table)
        .values((node_watch::node_id.eq(node.0), node_watch::from_us.eq(micros), node_watch::settled_until_us.eq(micros)))
        .on_conflict_do_nothing()
        .execute(c))?;
    on_db!(db, c => diesel::update(node_watch::table.find(node.0))
        .filter(node_watch::from_us.gt(micros))
        .set((node_watch::from_us.eq(micros), node_watch::settled_until_us.eq(micros)))
        .execute(c))?;
    Ok(())
}

/// Notes up to where what nobody saw was marked to be summed.
///
/// # Errors
/// What the database says.
pub fn settle(db: &mut Db, watch: &NodeWatch, until: Instant) -> Result<(), DbError> {
    // Where an earlier instant became known meanwhile, the days from there on are still to be marked.
    on_db!(db, c => diesel::update(node_watch::table.find(watch.node.0))
        .filter(node_watch::settled_until_us.eq(watch.settled_until.micros()))
        .set(node_watch::settled_until_us.eq(until.micros()))
        .execute(c))?;
    Ok(())
}

/// Ends a node's existence, or lets it go on where `at` is `None`.
///
/// # Errors
/// What the database says.
pub fn retire(db: &mut Db, node: NodeId, at: Option<Instant>) -> Result<(), DbError> {
    on_db!(db, c => diesel::update(node_watch::table.find(node.0))
        .set(node_watch::retired_at_us.eq(at.map(Instant::micros)))
        .execute(c))?;
    Ok(())
}
