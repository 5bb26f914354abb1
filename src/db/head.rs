//! What is still open on nodes: one head each, replaced whole by every report.

use diesel::prelude::*;
use diesel::query_dsl::methods::FilterDsl;
use diesel::upsert::excluded;
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

/// Inserts a row or rows, or puts them in the place of earlier ones.
macro_rules! upsert {
    ($connection:expr, $rows:expr) => {{
        let newer = excluded(head::epoch)
            .gt(head::epoch)
            .or(excluded(head::epoch).eq(head::epoch).and(excluded(head::sequence).gt(head::sequence)));
        let statement = diesel::insert_into(head::table).values($rows).on_conflict(head::node_id).do_update().set((
            head::epoch.eq(excluded(head::epoch)),
            head::sequence.eq(excluded(head::sequence)),
            head::received_at_us.eq(excluded(head::received_at_us)),
            head::body.eq(excluded(head::body)),
        ));
        FilterDsl::filter(statement, newer).execute($connection)
    }};
}

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

/// Stores heads, one of each node, in the place of those before, as far as these are of earlier epochs or reports.
///
/// # Errors
/// What the database says.
pub fn replace(db: &mut Db, wanted: &[Head]) -> Result<(), DbError> {
    let row = |wanted: &Head| {
        (
            head::node_id.eq(wanted.node.0),
            head::epoch.eq(wanted.epoch),
            head::sequence.eq(wanted.sequence),
            head::received_at_us.eq(wanted.received_at.micros()),
            head::body.eq(wanted.body.clone()),
        )
    };
    let rows: Vec<_> = wanted.iter().map(row).collect();
    match db {
        Db::Lite(c) => {
            for row in rows {
                upsert!(c, row)?;
            }
        }
        Db::Pg(c) if !rows.is_empty() => upsert!(c, rows).map(drop)?,
        Db::Pg(_) => {}
    }
    Ok(())
}

/// Removes a head, if it is still the node's.
///
/// # Errors
/// What the database says.
pub fn remove(db: &mut Db, found: &Head) -> Result<(), DbError> {
    let this = head::epoch.eq(found.epoch).and(head::sequence.eq(found.sequence));
    on_db!(db, c => FilterDsl::filter(diesel::delete(head::table.find(found.node.0)), this).execute(c))?;
    Ok(())
}
