//! Entries that correct the usage of closed months, and the closings of later months that charged them.

use diesel::prelude::*;
use gpuledger_domain::ids::{FactSetId, JobId, NodeId, SkuId};
use gpuledger_domain::metering::{EntryKind, Usage, UsageEntry, UsageKey};
use gpuledger_domain::time::{Instant, Interval};

use crate::codes::Code;
use crate::schema::{closing, late_usage};
use crate::usage::SummedShare;
use crate::{Db, DbError, insert_all, on_db};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Queryable, Insertable)]
#[diesel(table_name = late_usage, treat_none_as_default_value = false)]
struct Row {
    closing_id: i64,
    slot_start_us: i64,
    node_id: i32,
    job_id: i64,
    fact_set_id: i32,
    sku_id: i32,
    state: i16,
    entry: i16,
    slot_end_us: i64,
    share_us: i64,
    active_us: i64,
    active_measured_us: i64,
    estimated_us: i64,
    suspended_us: i64,
    segments: i32,
}

impl Code for EntryKind {
    const NAME: &'static str = "kind of entry";
    const CODES: &'static [(i16, EntryKind)] =
        &[(1, EntryKind::Addition), (2, EntryKind::Reversal), (3, EntryKind::Reentry)];
}

/// The row of an entry that no closing has charged yet.
fn open_row(entry: &UsageEntry) -> Row {
    let usage = &entry.usage;
    Row {
        closing_id: 0,
        slot_start_us: usage.key.slot.start().micros(),
        node_id: usage.key.node.0,
        job_id: usage.key.job.0,
        fact_set_id: usage.key.facts.0,
        sku_id: usage.key.sku.0,
        state: usage.key.state.code(),
        entry: entry.kind.code(),
        slot_end_us: usage.key.slot.end().micros(),
        share_us: usage.share_us,
        active_us: usage.active_us,
        active_measured_us: usage.active_measured_us,
        estimated_us: usage.estimated_us,
        suspended_us: usage.suspended_us,
        segments: usage.segments,
    }
}

impl TryFrom<Row> for UsageEntry {
    type Error = DbError;

    fn try_from(row: Row) -> Result<UsageEntry, DbError> {
        let slot = Interval::new(Instant::from_micros(row.slot_start_us), Instant::from_micros(row.slot_end_us))
            .ok_or_else(|| DbError::Inconsistent(format!("a slot of node {} ends before it begins", row.node_id)))?;
        let key = UsageKey {
            slot,
            node: NodeId(row.node_id),
            job: JobId(row.job_id),
            facts: FactSetId(row.fact_set_id),
            sku: SkuId(row.sku_id),
            state: Code::from_code(row.state)?,
        };
        Ok(UsageEntry {
            kind: Code::from_code(row.entry)?,
            usage: Usage {
                key,
                share_us: row.share_us,
                active_us: row.active_us,
                active_measured_us: row.active_measured_us,
                estimated_us: row.estimated_us,
                suspended_us: row.suspended_us,
                segments: row.segments,
            },
        })
    }
}

fn entries(rows: Vec<Row>) -> Result<Vec<UsageEntry>, DbError> {
    rows.into_iter().map(UsageEntry::try_from).collect()
}

/// The entries that no closing has charged yet, for slots that begin in the interval, in key order.
///
/// # Errors
/// What the database says.
pub fn open(db: &mut Db, interval: Interval) -> Result<Vec<UsageEntry>, DbError> {
    let within = late_usage::slot_start_us
        .ge(interval.start().micros())
        .and(late_usage::slot_start_us.lt(interval.end().micros()));
    entries(on_db!(db, c => late_usage::table
        .filter(late_usage::closing_id.eq(0).and(within))
        .order((late_usage::slot_start_us, late_usage::node_id, late_usage::job_id, late_usage::fact_set_id,
            late_usage::sku_id, late_usage::state, late_usage::entry))
        .load(c))?)
}

/// The entries that a closing charged, in key order.
///
/// # Errors
/// What the database says.
pub fn charged_by(db: &mut Db, closing_id: i64) -> Result<Vec<UsageEntry>, DbError> {
    entries(on_db!(db, c => late_usage::table
        .filter(late_usage::closing_id.eq(closing_id))
        .order((late_usage::slot_start_us, late_usage::node_id, late_usage::job_id, late_usage::fact_set_id,
            late_usage::sku_id, late_usage::state, late_usage::entry))
        .load(c))?)
}

/// The entries of a node for slots that begin in a day and that are charged already.
///
/// # Errors
/// What the database says.
pub fn charged_of_day(db: &mut Db, node: NodeId, day: Interval) -> Result<Vec<UsageEntry>, DbError> {
    let within =
        late_usage::slot_start_us.ge(day.start().micros()).and(late_usage::slot_start_us.lt(day.end().micros()));
    entries(on_db!(db, c => late_usage::table
        .filter(late_usage::node_id.eq(node.0).and(within).and(late_usage::closing_id.ne(0)))
        .order((late_usage::closing_id, late_usage::slot_start_us, late_usage::job_id, late_usage::fact_set_id,
            late_usage::sku_id, late_usage::state, late_usage::entry))
        .load(c))?)
}

/// Makes the entries of a node and day that are not charged yet be exactly `wanted`; whether anything changed.
///
/// # Errors
/// What the database says.
pub fn replace_open(db: &mut Db, node: NodeId, day: Interval, wanted: &[UsageEntry]) -> Result<bool, DbError> {
    let within =
        late_usage::slot_start_us.ge(day.start().micros()).and(late_usage::slot_start_us.lt(day.end().micros()));
    let of_day = late_usage::closing_id.eq(0).and(late_usage::node_id.eq(node.0)).and(within);
    let mut held: Vec<Row> = on_db!(db, c => late_usage::table.filter(of_day).load(c))?;
    let mut wanted: Vec<Row> = wanted.iter().map(open_row).collect();
    let key =
        |row: &Row| (row.slot_start_us, row.node_id, row.job_id, row.fact_set_id, row.sku_id, row.state, row.entry);
    held.sort_by_key(key);
    wanted.sort_by_key(key);
    if held == wanted {
        return Ok(false);
    }
    on_db!(db, c => diesel::delete(late_usage::table.filter(of_day)).execute(c))?;
    insert_all!(db, late_usage::table, wanted.as_slice())?;
    Ok(true)
}

/// Notes that a closing charged the open entries for slots that begin in the interval. Call it in the transaction that
/// seals the closing.
///
/// # Errors
/// What the database says.
pub fn note_charged(db: &mut Db, interval: Interval, closing_id: i64) -> Result<(), DbError> {
    let within = late_usage::slot_start_us
        .ge(interval.start().micros())
        .and(late_usage::slot_start_us.lt(interval.end().micros()));
    on_db!(db, c => diesel::update(late_usage::table.filter(late_usage::closing_id.eq(0).and(within)))
        .set(late_usage::closing_id.eq(closing_id))
        .execute(c))?;
    Ok(())
}

/// When the closings were sealed that charged entries of a job for a slot, earliest first, with their numbers.
///
/// # Errors
/// What the database says.
pub fn charged_at(db: &mut Db, job: JobId, slot: Interval) -> Result<Vec<(i64, Instant)>, DbError> {
    let rows: Vec<(i64, Option<i64>)> = on_db!(db, c => closing::table
        .filter(closing::id.eq_any(late_usage::table
            .filter(late_usage::slot_start_us.eq(slot.start().micros()).and(late_usage::job_id.eq(job.0)))
            .select(late_usage::closing_id)))
        .order((closing::sealed_at_us, closing::id))
        .select((closing::id, closing::sealed_at_us))
        .load(c))?;
    Ok(rows.into_iter().filter_map(|(id, at)| Some((id, Instant::from_micros(at?)))).collect())
}

/// All entries for slots that begin in a billing day, charged or not, each as what it adds to the node's usage.
///
/// # Errors
/// What the database says.
pub fn shares_of_day(db: &mut Db, day: Interval) -> Result<Vec<SummedShare>, DbError> {
    let within =
        late_usage::slot_start_us.ge(day.start().micros()).and(late_usage::slot_start_us.lt(day.end().micros()));
    let rows: Vec<Row> = on_db!(db, c => late_usage::table.filter(within).load(c))?;
    let share = |entry: UsageEntry| SummedShare {
        node: entry.usage.key.node,
        slot: entry.usage.key.slot,
        sku: entry.usage.key.sku,
        state: entry.usage.key.state,
        share_us: entry.usage.share_us.into(),
    };
    Ok(entries(rows)?.into_iter().map(share).collect())
}

/// Every entry, charged or not, with the closing that charged it: by slot, node, job, facts, SKU and state.
///
/// # Errors
/// What the database says.
pub fn all(db: &mut Db) -> Result<Vec<(Option<i64>, UsageEntry)>, DbError> {
    let rows: Vec<Row> = on_db!(db, c => late_usage::table
        .order((late_usage::slot_start_us, late_usage::node_id, late_usage::job_id, late_usage::fact_set_id,
            late_usage::sku_id, late_usage::state, late_usage::closing_id, late_usage::entry))
        .load(c))?;
    let read = |row: Row| Ok(((row.closing_id != 0).then_some(row.closing_id), UsageEntry::try_from(row)?));
    rows.into_iter().map(read).collect()
}
