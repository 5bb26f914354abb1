//! What is still open on nodes: one head each, replaced whole by every report.

use diesel::prelude::*;
use diesel::query_dsl::methods::FilterDsl;
use gpuledger_domain::ids::NodeId;
use gpuledger_domain::time::Instant;

use crate::schema::head;
use crate::{Db, DbError, on_db};

/// The head of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The node.
    pub node: NodeId,
    /// The epoch that reported it.
    pub epoch: i64,
    /// Which report of the epoch.
    pub sequence: i64,
    /// When it came.
    pub received_at: Instant,
    /// Units, jobs and open segments, as JSON.
    pub body: String,
}

type Row = (i32, i64, i64, i64, String);

fn head((node, epoch, sequence, received, body): Row) -> Head {
    Head { node: NodeId(node), epoch, sequence, received_at: Instant::from_micros(received), body }
}

/// The head of a node, if it has one.
///
/// # Errors
/// What the database says.
pub fn find(db: &mut Db, node: NodeId) -> Result<Option<Head>, DbError> {
    let row: Option<Row> = on_db!(db, c => head::table.find(node.0).first(c).optional())?;
    Ok(row.map(head))
}

/// The heads that came before an instant, by node.
///
/// # Errors
/// What the database says.
pub fn older_than(db: &mut Db, instant: Instant) -> Result<Vec<Head>, DbError> {
    let rows: Vec<Row> = on_db!(db, c => QueryDsl::filter(head::table, head::received_at_us.lt(instant.micros()))
        .order(head::node_id)
        .load(c))?;
    Ok(rows.into_iter().map(head).collect())
}

/// Stores a head in the place of the one before, if that is of an earlier epoch or report.
///
/// # Errors
/// What the database says.
pub fn replace(db: &mut Db, wanted: &Head) -> Result<(), DbError> {
    let values = (
        head::epoch.eq(wanted.epoch),
        head::sequence.eq(wanted.sequence),
        head::received_at_us.eq(wanted.received_at.micros()),
        head::body.eq(&wanted.body),
    );
    let newer = head::epoch.lt(wanted.epoch).or(head::epoch.eq(wanted.epoch).and(head::sequence.lt(wanted.sequence)));
    on_db!(db, c => {
        let statement = diesel::insert_into(head::table)
            .values((head::node_id.eq(wanted.node.0), values))
            .on_conflict(head::node_id)
            .do_update()
            .set(values);
        FilterDsl::filter(statement, newer).execute(c)
    })?;
    Ok(())
}

/// Removes the head of a node.
///
/// # Errors
/// What the database says.
pub fn remove(db: &mut Db, node: NodeId) -> Result<(), DbError> {
    on_db!(db, c => diesel::delete(head::table.find(node.0)).execute(c))?;
    Ok(())
}
