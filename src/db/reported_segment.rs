//! Segments as collectors report them: with what was measured, and perhaps only provisional. And records that are kept
//! aside, because they cannot count as they are.

use std::collections::BTreeMap;

use diesel::prelude::*;
use gpuledger_domain::ids::{FactSetId, JobId, NodeId, SkuId, UnitId};
use gpuledger_domain::metering::{Activity, Measured, Measurements, Segment, SegmentKey, Source};
use gpuledger_domain::time::{Hour, Instant, Interval};

use crate::codes::Code;
use crate::schema::{record_aside, segment};
use crate::segment_activity;
use crate::{Db, DbError, insert_all, on_db};

/// A segment of a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedSegment {
    /// What counts.
    pub segment: Segment,
    /// What was measured meanwhile.
    pub measurements: Measurements,
    /// Whether it was made from a head, so that a finished one takes its place.
    pub provisional: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable, Insertable)]
#[diesel(table_name = segment, treat_none_as_default_value = false)]
struct Row {
    hour: i64,
    node_id: i32,
    epoch: i64,
    number: i64,
    on_node_id: i32,
    unit_id: i32,
    sku_id: i32,
    job_id: i64,
    fact_set_id: i32,
    state: i16,
    source: i16,
    start_us: i64,
    end_us: i64,
    count: i32,
    share_us: i64,
    active_us: Option<i64>,
    estimated_us: i64,
    suspended_us: i64,
    busy_us: Option<i64>,
    busy_measured_us: Option<i64>,
    energy_mj: Option<i64>,
    energy_measured_us: Option<i64>,
    peak_memory_bytes: Option<i64>,
    provisional: Option<i16>,
    late_at_us: Option<i64>,
}

impl Row {
    fn new(reported: &ReportedSegment, late_at: Option<Instant>) -> Row {
        let ReportedSegment { segment, measurements, provisional } = reported;
        Row {
            hour: segment.key.hour.number(),
            node_id: segment.key.node.0,
            epoch: segment.key.epoch,
            number: segment.key.number,
            on_node_id: segment.on_node.0,
            unit_id: segment.unit.0,
            sku_id: segment.sku.0,
            job_id: segment.job.0,
            fact_set_id: segment.facts.0,
            state: segment.state.code(),
            source: segment.source.code(),
            start_us: segment.interval.start().micros(),
            end_us: segment.interval.end().micros(),
            count: segment.count,
            share_us: segment.share_us,
            active_us: segment.active_us,
            estimated_us: segment.estimated_us,
            suspended_us: segment.suspended_us,
            busy_us: measurements.busy_us.map(|busy| busy.total),
            busy_measured_us: measurements.busy_us.map(|busy| busy.measured_us),
            energy_mj: measurements.energy_mj.map(|energy| energy.total),
            energy_measured_us: measurements.energy_mj.map(|energy| energy.measured_us),
            peak_memory_bytes: measurements.peak_memory_bytes,
            provisional: provisional.then_some(1),
            late_at_us: late_at.map(Instant::micros),
        }
    }
}

impl TryFrom<Row> for ReportedSegment {
    type Error = DbError;

    fn try_from(row: Row) -> Result<ReportedSegment, DbError> {
        let interval = Interval::new(Instant::from_micros(row.start_us), Instant::from_micros(row.end_us))
            .ok_or_else(|| DbError::Inconsistent(format!("a segment of node {} ends before it begins", row.node_id)))?;
        let measured = |total: Option<i64>, measured_us: Option<i64>| {
            total.zip(measured_us).map(|(total, measured_us)| Measured { total, measured_us })
        };
        Ok(ReportedSegment {
            segment: Segment {
                key: SegmentKey {
                    hour: Hour::from_number(row.hour),
                    node: NodeId(row.node_id),
                    epoch: row.epoch,
                    number: row.number,
                },
                on_node: NodeId(row.on_node_id),
                unit: UnitId(row.unit_id),
                sku: SkuId(row.sku_id),
                job: JobId(row.job_id),
                facts: FactSetId(row.fact_set_id),
                state: Code::from_code(row.state)?,
                source: Code::from_code(row.source)?,
                interval,
                count: row.count,
                share_us: row.share_us,
                active_us: row.active_us,
                estimated_us: row.estimated_us,
                suspended_us: row.suspended_us,
            },
            measurements: Measurements {
                busy_us: measured(row.busy_us, row.busy_measured_us),
                energy_mj: measured(row.energy_mj, row.energy_measured_us),
                peak_memory_bytes: row.peak_memory_bytes,
                activity: Activity::default(),
            },
            provisional: row.provisional == Some(1),
        })
    }
}

/// Those of these keys that are held, all of one node, epoch and hour, and their numbers between the first and the last.
///
/// # Errors
/// What the database says.
pub fn held(
    db: &mut Db,
    (node, epoch, hour): (NodeId, i64, Hour),
    (first, last): (i64, i64),
) -> Result<BTreeMap<i64, ReportedSegment>, DbError> {
    let rows: Vec<Row> = on_db!(db, c => segment::table
        .filter(segment::hour.eq(hour.number()).and(segment::node_id.eq(node.0)).and(segment::epoch.eq(epoch)))
        .filter(segment::number.between(first, last).and(segment::source.eq(Source::Agent.code())))
        .select(Row::as_select())
        .load(c))?;
    let mut found: BTreeMap<i64, ReportedSegment> = BTreeMap::new();
    for row in rows {
        found.insert(row.number, ReportedSegment::try_from(row)?);
    }
    if !found.is_empty() {
        for (number, activity) in segment_activity::between(db, (node, epoch, hour), (first, last))? {
            if let Some(reported) = found.get_mut(&number) {
                reported.measurements.activity = activity;
            }
        }
    }
    Ok(found)
}

/// Stores new segments, whose keys are held by none; `late` says when those came of which a month was closed. Fastest when
/// sorted by key.
///
/// # Errors
/// What the database says; a key that is held is an error, and nothing is stored.
pub fn insert(db: &mut Db, segments: &[ReportedSegment], late: &BTreeMap<SegmentKey, Instant>) -> Result<(), DbError> {
    if let Db::Pg(connection) = db {
        crate::segment::make_months(connection, segments.iter().map(|reported| reported.segment.key.hour))?;
    }
    let rows: Vec<Row> =
        segments.iter().map(|reported| Row::new(reported, late.get(&reported.segment.key).copied())).collect();
    insert_all!(db, segment::table, rows.as_slice())?;
    segment_activity::insert(db, segments)
}

/// Removes a provisional segment, since the finished one is there.
///
/// # Errors
/// What the database says.
pub fn remove_provisional(db: &mut Db, key: SegmentKey) -> Result<(), DbError> {
    on_db!(db, c => diesel::delete(segment::table
        .find((key.hour.number(), key.node.0, key.epoch, key.number))
        .filter(segment::provisional.eq(1)))
        .execute(c))?;
    segment_activity::remove(db, key)
}

/// Keeps a provisional segment, if there is one, as what counted until an instant: under a negative number, so that the
/// finished one can have its key.
///
/// # Errors
/// What the database says.
pub fn supersede_provisional(db: &mut Db, key: SegmentKey, at: Instant) -> Result<(), DbError> {
    /// Numbers are below this.
    const NUMBERS: i64 = 1 << 32;
    let of_hour =
        segment::hour.eq(key.hour.number()).and(segment::node_id.eq(key.node.0)).and(segment::epoch.eq(key.epoch));
    let kept: Vec<i64> = on_db!(db, c => segment::table
        .filter(of_hour.and(segment::number.lt(0)))
        .select(segment::number)
        .load(c))?;
    let free = (0..).map(|turn| -1 - key.number - turn * NUMBERS).find(|number| !kept.contains(number));
    let kept = free.unwrap_or(i64::MIN);
    on_db!(db, c => diesel::update(segment::table.filter(of_hour)
        .filter(segment::number.eq(key.number).and(segment::provisional.eq(1))))
        .set((segment::number.eq(kept), segment::superseded_at_us.eq(at.micros())))
        .execute(c))?;
    segment_activity::renumber(db, key, kept)
}

/// Why a record does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AsideReason {
    /// Its identity is held with other content.
    OtherContent,
    /// The node's clock was off.
    ClockOff,
}

impl Code for AsideReason {
    const NAME: &'static str = "reason for keeping a record aside";
    const CODES: &'static [(i16, AsideReason)] = &[(1, AsideReason::OtherContent), (2, AsideReason::ClockOff)];
}

/// A record that is kept aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordAside {
    /// The identity it came with.
    pub key: SegmentKey,
    /// The SHA-256 of its content.
    pub sha256: Vec<u8>,
    /// Why it does not count.
    pub reason: AsideReason,
    /// When it came first.
    pub received_at: Instant,
    /// The record as it was reported, as JSON.
    pub body: String,
    /// When it was stored where it belongs, if it was.
    pub replaced_at: Option<Instant>,
}

/// Keeps records aside; those that are there already stay as they are.
///
/// # Errors
/// What the database says.
pub fn keep_aside(db: &mut Db, records: &[RecordAside]) -> Result<(), DbError> {
    for record in records {
        on_db!(db, c => diesel::insert_into(record_aside::table)
            .values((
                record_aside::node_id.eq(record.key.node.0),
                record_aside::epoch.eq(record.key.epoch),
                record_aside::hour.eq(record.key.hour.number()),
                record_aside::number.eq(record.key.number),
                record_aside::sha256.eq(&record.sha256),
                record_aside::reason.eq(record.reason.code()),
                record_aside::received_at_us.eq(record.received_at.micros()),
                record_aside::body.eq(&record.body),
            ))
            .on_conflict_do_nothing()
            .execute(c))?;
    }
    Ok(())
}

/// All records that are kept aside, by identity and content.
///
/// # Errors
/// What the database says.
pub fn all_aside(db: &mut Db) -> Result<Vec<RecordAside>, DbError> {
    let rows: Vec<AsideRow> = on_db!(db, c => record_aside::table
        .order((record_aside::node_id, record_aside::epoch, record_aside::hour, record_aside::number, record_aside::sha256))
        .load(c))?;
    rows.into_iter().map(aside).collect()
}

/// The nodes of which records are kept aside for a reason, and were not stored where they belong; in the order of their numbers.
///
/// # Errors
/// What the database says.
pub fn nodes_aside(db: &mut Db, reason: AsideReason) -> Result<Vec<NodeId>, DbError> {
    let nodes: Vec<i32> = on_db!(db, c => record_aside::table
        .filter(record_aside::replaced_at_us.is_null().and(record_aside::reason.eq(reason.code())))
        .select(record_aside::node_id)
        .distinct()
        .order(record_aside::node_id)
        .load(c))?;
    Ok(nodes.into_iter().map(NodeId).collect())
}

/// How many records of a node are kept aside and were not stored where they belong.
///
/// # Errors
/// What the database says.
pub fn count_aside(db: &mut Db, node: NodeId) -> Result<i64, DbError> {
    Ok(on_db!(db, c => record_aside::table
        .filter(record_aside::replaced_at_us.is_null().and(record_aside::node_id.eq(node.0)))
        .count()
        .get_result(c))?)
}

/// At most so many of a node's that are kept aside for a reason and were not stored where they belong, in key order, after one of
/// them.
///
/// # Errors
/// What the database says.
pub fn not_replaced(
    db: &mut Db,
    (node, reason): (NodeId, AsideReason),
    after: Option<&RecordAside>,
    most: i64,
) -> Result<Vec<RecordAside>, DbError> {
    let key = after.map_or((i64::MIN, 0, 0), |after| (after.key.epoch, after.key.hour.number(), after.key.number));
    let (epoch, hour, number) = key;
    let sha256 = after.map(|after| after.sha256.clone()).unwrap_or_default();
    let after = record_aside::epoch.gt(epoch).or(record_aside::epoch.eq(epoch).and(record_aside::hour.gt(hour).or(
        record_aside::hour.eq(hour).and(
            record_aside::number.gt(number).or(record_aside::number.eq(number).and(record_aside::sha256.gt(sha256))),
        ),
    )));
    let rows: Vec<AsideRow> = on_db!(db, c => record_aside::table
        .filter(record_aside::node_id.eq(node.0).and(record_aside::replaced_at_us.is_null()))
        .filter(record_aside::reason.eq(reason.code()).and(after.clone()))
        .order((record_aside::epoch, record_aside::hour, record_aside::number, record_aside::sha256))
        .limit(most)
        .load(c))?;
    rows.into_iter().map(aside).collect()
}

/// Notes that a record was stored where it belongs.
///
/// # Errors
/// What the database says.
pub fn note_replaced(db: &mut Db, of: &RecordAside, at: Instant) -> Result<(), DbError> {
    let key = (of.key.node.0, of.key.epoch, of.key.hour.number(), of.key.number, of.sha256.clone());
    on_db!(db, c => diesel::update(record_aside::table.find(key))
        .set(record_aside::replaced_at_us.eq(at.micros()))
        .execute(c))?;
    Ok(())
}

type AsideRow = (i32, i64, i64, i64, Vec<u8>, i16, i64, String, Option<i64>);

fn aside(row: AsideRow) -> Result<RecordAside, DbError> {
    let (node, epoch, hour, number, sha256, reason, received, body, replaced) = row;
    Ok(RecordAside {
        key: SegmentKey { hour: Hour::from_number(hour), node: NodeId(node), epoch, number },
        sha256,
        reason: Code::from_code(reason)?,
        received_at: Instant::from_micros(received),
        body,
        replaced_at: replaced.map(Instant::from_micros),
    })
}
