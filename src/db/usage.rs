//! Usage by slot, and the marks that say where it must be summed again.

use std::collections::{BTreeMap, BTreeSet};

use diesel::prelude::*;
use gpuledger_domain::ids::{FactSetId, JobId, NodeId, SkuId};
use gpuledger_domain::metering::{State, Usage, UsageKey};
use gpuledger_domain::time::{Instant, Interval};

use crate::codes::Code;
use crate::schema::{roll_up_mark, usage};
use crate::{Db, DbError, insert_all, on_db};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Queryable, Insertable)]
#[diesel(table_name = usage, treat_none_as_default_value = false)]
struct Row {
    slot_start_us: i64,
    node_id: i32,
    job_id: i64,
    fact_set_id: i32,
    sku_id: i32,
    state: i16,
    slot_end_us: i64,
    share_us: i64,
    active_us: i64,
    active_measured_us: i64,
    estimated_us: i64,
    suspended_us: i64,
    segments: i32,
}

impl From<&Usage> for Row {
    fn from(usage: &Usage) -> Row {
        Row {
            slot_start_us: usage.key.slot.start().micros(),
            node_id: usage.key.node.0,
            job_id: usage.key.job.0,
            fact_set_id: usage.key.facts.0,
            sku_id: usage.key.sku.0,
            state: usage.key.state.code(),
            slot_end_us: usage.key.slot.end().micros(),
            share_us: usage.share_us,
            active_us: usage.active_us,
            active_measured_us: usage.active_measured_us,
            estimated_us: usage.estimated_us,
            suspended_us: usage.suspended_us,
            segments: usage.segments,
        }
    }
}

impl TryFrom<Row> for Usage {
    type Error = DbError;

    fn try_from(row: Row) -> Result<Usage, DbError> {
        let slot = Interval::new(Instant::from_micros(row.slot_start_us), Instant::from_micros(row.slot_end_us))
            .ok_or_else(|| DbError::Inconsistent(format!("a slot of node {} ends before it begins", row.node_id)))?;
        Ok(Usage {
            key: UsageKey {
                slot,
                node: NodeId(row.node_id),
                job: JobId(row.job_id),
                facts: FactSetId(row.fact_set_id),
                sku: SkuId(row.sku_id),
                state: Code::from_code(row.state)?,
            },
            share_us: row.share_us,
            active_us: row.active_us,
            active_measured_us: row.active_measured_us,
            estimated_us: row.estimated_us,
            suspended_us: row.suspended_us,
            segments: row.segments,
        })
    }
}

/// A billing day of a node whose usage must be summed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// The first instant of the day.
    pub day_start: Instant,
    /// The node.
    pub node: NodeId,
}

/// Inserts a mark or marks, none twice, or touches those that are there.
macro_rules! touch {
    ($connection:expr, $marks:expr) => {
        diesel::insert_into(roll_up_mark::table)
            .values($marks)
            .on_conflict((roll_up_mark::node_id, roll_up_mark::day_start_us))
            .do_update()
            .set(roll_up_mark::touches.eq(roll_up_mark::touches + 1))
            .execute($connection)
    };
}

/// Marks days of nodes, none twice, in the transaction that changes their segments.
///
/// A mark that is there is touched, not left alone: on PostgreSQL this waits for a roll-up that is just working on
/// it, which read the segments before this change.
///
/// # Errors
/// What the database says.
pub fn mark(db: &mut Db, marks: &[Mark]) -> Result<(), DbError> {
    let row = |mark: &Mark| {
        (
            roll_up_mark::node_id.eq(mark.node.0),
            roll_up_mark::day_start_us.eq(mark.day_start.micros()),
            roll_up_mark::touches.eq(1i64),
        )
    };
    match db {
        Db::Lite(c) => {
            for mark in marks {
                touch!(c, row(mark))?;
            }
        }
        Db::Pg(c) => {
            for marks in marks.chunks(8_192) {
                touch!(c, marks.iter().map(row).collect::<Vec<_>>())?;
            }
        }
    }
    Ok(())
}

/// Marks days of nodes to be compared with what is held, where they are not marked already.
///
/// # Errors
/// What the database says.
pub fn mark_to_check(db: &mut Db, marks: &[Mark]) -> Result<(), DbError> {
    let row = |mark: &Mark| {
        (
            roll_up_mark::node_id.eq(mark.node.0),
            roll_up_mark::day_start_us.eq(mark.day_start.micros()),
            roll_up_mark::touches.eq(0i64),
        )
    };
    for marks in marks.chunks(8_192) {
        match db {
            Db::Lite(c) => {
                for mark in marks {
                    diesel::insert_into(roll_up_mark::table).values(row(mark)).on_conflict_do_nothing().execute(c)?;
                }
            }
            Db::Pg(c) => {
                let rows: Vec<_> = marks.iter().map(row).collect();
                diesel::insert_into(roll_up_mark::table).values(rows).on_conflict_do_nothing().execute(c)?;
            }
        }
    }
    Ok(())
}

/// The marks whose day begins in the interval, earliest first; all marks without one. Those that are only to be checked
/// are not among them.
///
/// # Errors
/// What the database says.
pub fn marks(db: &mut Db, interval: Option<Interval>) -> Result<Vec<Mark>, DbError> {
    let (from, until) = interval.map_or((Instant::MIN, Instant::MAX), |interval| (interval.start(), interval.end()));
    let rows: Vec<(i32, i64)> = on_db!(db, c => roll_up_mark::table
        .filter(roll_up_mark::day_start_us.ge(from.micros()).and(roll_up_mark::day_start_us.lt(until.micros())))
        .filter(roll_up_mark::touches.gt(0))
        .select((roll_up_mark::node_id, roll_up_mark::day_start_us))
        .order((roll_up_mark::day_start_us, roll_up_mark::node_id))
        .load(c))?;
    Ok(rows.into_iter().map(mark_of).collect())
}

/// At most so many of the marks that are only to be checked, earliest first.
///
/// # Errors
/// What the database says.
pub fn checks(db: &mut Db, most: i64) -> Result<Vec<Mark>, DbError> {
    let rows: Vec<(i32, i64)> = on_db!(db, c => roll_up_mark::table
        .filter(roll_up_mark::touches.eq(0))
        .select((roll_up_mark::node_id, roll_up_mark::day_start_us))
        .order((roll_up_mark::day_start_us, roll_up_mark::node_id))
        .limit(most)
        .load(c))?;
    Ok(rows.into_iter().map(mark_of).collect())
}

fn mark_of((node, day): (i32, i64)) -> Mark {
    Mark { node: NodeId(node), day_start: Instant::from_micros(day) }
}

/// Takes a mark for the length of the transaction: how often it was touched, 0 where the day is only to be checked;
/// `None` if it is gone or another process works on it.
///
/// # Errors
/// What the database says.
pub fn take_mark(db: &mut Db, mark: Mark) -> Result<Option<i64>, DbError> {
    let key = (mark.node.0, mark.day_start.micros());
    Ok(match db {
        Db::Lite(c) => roll_up_mark::table.find(key).select(roll_up_mark::touches).first(c).optional()?,
        Db::Pg(c) => roll_up_mark::table
            .find(key)
            .select(roll_up_mark::touches)
            .for_update()
            .skip_locked()
            .first(c)
            .optional()?,
    })
}

/// Clears a mark that was taken.
///
/// # Errors
/// What the database says.
pub fn clear_mark(db: &mut Db, mark: Mark) -> Result<(), DbError> {
    on_db!(db, c => diesel::delete(roll_up_mark::table.find((mark.node.0, mark.day_start.micros()))).execute(c))?;
    Ok(())
}

/// GPU-time of a node in a slot, by SKU and state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SummedShare {
    /// The node.
    pub node: NodeId,
    /// The slot.
    pub slot: Interval,
    /// The SKU.
    pub sku: SkuId,
    /// What the units were doing.
    pub state: State,
    /// Wall time × share × count, in microseconds.
    pub share_us: i128,
}

/// The GPU-time of all nodes in a billing day, by node, slot, SKU and state.
///
/// # Errors
/// What the database says.
pub fn shares_of_day(db: &mut Db, day: Interval) -> Result<Vec<SummedShare>, DbError> {
    let mut sums: BTreeMap<(NodeId, Interval, SkuId, State), i128> = BTreeMap::new();
    for found in of_interval(db, day)? {
        let key = (found.key.node, found.key.slot, found.key.sku, found.key.state);
        *sums.entry(key).or_default() += i128::from(found.share_us);
    }
    let share = |((node, slot, sku, state), share_us)| SummedShare { node, slot, sku, state, share_us };
    Ok(sums.into_iter().map(share).collect())
}

/// Where slots of a day begin that have any usage, of whichever node: found one after the other, by the key. A node's usage
/// is then read by equality on each; a range would go through that of all nodes.
fn slot_starts(db: &mut Db, day: Interval) -> Result<Vec<i64>, DbError> {
    let mut starts = Vec::new();
    let mut from = day.start().micros();
    loop {
        let next: Option<i64> = on_db!(db, c => usage::table
            .filter(usage::slot_start_us.ge(from).and(usage::slot_start_us.lt(day.end().micros())))
            .select(diesel::dsl::min(usage::slot_start_us))
            .first(c))?;
        let Some(start) = next else { return Ok(starts) };
        starts.push(start);
        from = start + 1;
    }
}

/// Makes the usage of a node in a billing day be exactly `wanted`, writing only what differs; whether anything did.
///
/// # Errors
/// What the database says.
pub fn replace_day(db: &mut Db, node: NodeId, day: Interval, wanted: &[Usage]) -> Result<bool, DbError> {
    type Key = (i64, i32, i64, i32, i32, i16);
    let key =
        |row: &Row| -> Key { (row.slot_start_us, row.node_id, row.job_id, row.fact_set_id, row.sku_id, row.state) };
    let starts = slot_starts(db, day)?;
    let held: Vec<Row> = on_db!(db, c => usage::table
        .filter(usage::slot_start_us.eq_any(&starts).and(usage::node_id.eq(node.0)))
        .load(c))?;
    let mut held: BTreeMap<Key, Row> = held.into_iter().map(|row| (key(&row), row)).collect();
    let mut added = Vec::new();
    for row in wanted.iter().map(Row::from) {
        match held.remove(&key(&row)) {
            Some(same) if same == row => {}
            Some(other) => {
                held.insert(key(&other), other);
                added.push(row);
            }
            None => added.push(row),
        }
    }
    for gone in held.keys() {
        on_db!(db, c => diesel::delete(usage::table.find(*gone)).execute(c))?;
    }
    insert_all!(db, usage::table, added.as_slice())?;
    Ok(!held.is_empty() || !added.is_empty())
}

/// The usage of all slots that begin in the interval, in key order.
///
/// # Errors
/// What the database says.
pub fn of_interval(db: &mut Db, interval: Interval) -> Result<Vec<Usage>, DbError> {
    let rows: Vec<Row> = on_db!(db, c => usage::table
        .filter(usage::slot_start_us.ge(interval.start().micros()).and(usage::slot_start_us.lt(interval.end().micros())))
        .order((usage::slot_start_us, usage::node_id, usage::job_id, usage::fact_set_id, usage::sku_id, usage::state))
        .load(c))?;
    rows.into_iter().map(Usage::try_from).collect()
}

/// The usage of a node in slots that begin in a day, in key order.
///
/// # Errors
/// What the database says.
pub fn of_node(db: &mut Db, node: NodeId, day: Interval) -> Result<Vec<Usage>, DbError> {
    let starts = slot_starts(db, day)?;
    let rows: Vec<Row> = on_db!(db, c => usage::table
        .filter(usage::slot_start_us.eq_any(&starts).and(usage::node_id.eq(node.0)))
        .order((usage::slot_start_us, usage::job_id, usage::fact_set_id, usage::sku_id, usage::state))
        .load(c))?;
    rows.into_iter().map(Usage::try_from).collect()
}

/// The nodes that have usage in slots that begin in the interval, also such that came late, or of which a day of it is marked.
///
/// # Errors
/// What the database says.
pub fn nodes_of_interval(db: &mut Db, interval: Interval) -> Result<Vec<NodeId>, DbError> {
    let rows: Vec<i32> = on_db!(db, c => usage::table
        .filter(usage::slot_start_us.ge(interval.start().micros()).and(usage::slot_start_us.lt(interval.end().micros())))
        .select(usage::node_id).distinct().order(usage::node_id)
        .load(c))?;
    let mut nodes: BTreeSet<NodeId> = rows.into_iter().map(NodeId).collect();
    nodes.extend(crate::late_usage::shares_of_day(db, interval)?.into_iter().map(|share| share.node));
    nodes.extend(marks(db, Some(interval))?.into_iter().map(|mark| mark.node));
    Ok(nodes.into_iter().collect())
}
