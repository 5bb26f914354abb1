//! When nodes were out of service, as a scheduler tells.

use diesel::prelude::*;
use gpuledger_domain::ids::NodeId;
use gpuledger_domain::time::{Instant, Interval};

use crate::schema::node_event;
use crate::{Db, DbError, on_db};

/// A node that was out of service, or still is. Node and start are its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEvent {
    /// The node.
    pub node: NodeId,
    /// Since when.
    pub start: Instant,
    /// Until when; `None` while it is still so.
    pub end: Option<Instant>,
    /// The scheduler's word for it.
    pub state: String,
    /// Why; empty where nobody said.
    pub reason: String,
}

type Row = (i32, i64, Option<i64>, String, String);

fn event((node, start, end, state, reason): Row) -> NodeEvent {
    NodeEvent {
        node: NodeId(node),
        start: Instant::from_micros(start),
        end: end.map(Instant::from_micros),
        state,
        reason,
    }
}

/// The event of this node and start.
///
/// # Errors
/// What the database says.
pub fn find(db: &mut Db, node: NodeId, start: Instant) -> Result<Option<NodeEvent>, DbError> {
    let row: Option<Row> = on_db!(db, c => node_event::table
        .find((node.0, start.micros()))
        .select((node_event::node_id, node_event::start_us, node_event::end_us, node_event::state, node_event::reason))
        .first(c)
        .optional())?;
    Ok(row.map(event))
}

/// Stores an event, in the place of the one with its key if there is one.
///
/// # Errors
/// What the database says.
pub fn store(db: &mut Db, wanted: &NodeEvent, import_id: i64) -> Result<(), DbError> {
    let told = (
        node_event::end_us.eq(wanted.end.map(Instant::micros)),
        node_event::state.eq(&wanted.state),
        node_event::reason.eq(&wanted.reason),
        node_event::import_id.eq(import_id),
    );
    on_db!(db, c => diesel::insert_into(node_event::table)
        .values((node_event::node_id.eq(wanted.node.0), node_event::start_us.eq(wanted.start.micros()), told))
        .on_conflict((node_event::node_id, node_event::start_us))
        .do_update()
        .set(told)
        .execute(c))?;
    Ok(())
}

/// The events that touch an interval, by node and start. One that is not over lasts until the node's next one begins,
/// or for ever.
///
/// # Errors
/// What the database says.
pub fn within(db: &mut Db, interval: Interval) -> Result<Vec<(NodeId, Interval)>, DbError> {
    let ends_later = node_event::end_us.is_null().or(node_event::end_us.gt(interval.start().micros()));
    let rows: Vec<(i32, i64, Option<i64>)> = on_db!(db, c => node_event::table
        .filter(node_event::start_us.lt(interval.end().micros()).and(ends_later))
        .select((node_event::node_id, node_event::start_us, node_event::end_us))
        .order((node_event::node_id, node_event::start_us))
        .load(c))?;
    let mut events = Vec::new();
    for (node, start, end) in rows {
        let end = match end {
            Some(end) => end,
            None => next_start(db, node, start)?.unwrap_or(Instant::MAX.micros()),
        };
        let lasted = Interval::new(Instant::from_micros(start), Instant::from_micros(end));
        events.extend(lasted.and_then(|lasted| lasted.intersection(interval)).map(|part| (NodeId(node), part)));
    }
    Ok(events)
}

fn next_start(db: &mut Db, node: i32, start: i64) -> Result<Option<i64>, DbError> {
    Ok(on_db!(db, c => node_event::table
        .filter(node_event::node_id.eq(node).and(node_event::start_us.gt(start)))
        .select(diesel::dsl::min(node_event::start_us))
        .first(c))?)
}
