//! What the parts of a unit did during segments, where that was measured: a row beside the segment's, with its key.

use diesel::prelude::*;
use gpuledger_domain::ids::NodeId;
use gpuledger_domain::metering::{Activity, Measured, SegmentKey};
use gpuledger_domain::time::Hour;

use crate::reported_segment::ReportedSegment;
use crate::schema::segment_activity;
use crate::{Db, DbError, insert_all, on_db};

#[derive(Clone, Debug, Queryable, Selectable, Insertable)]
#[diesel(table_name = segment_activity, treat_none_as_default_value = false)]
struct Row {
    hour: i64,
    node_id: i32,
    epoch: i64,
    number: i64,
    sm_activity_us: Option<i64>,
    sm_activity_measured_us: Option<i64>,
    sm_occupancy_us: Option<i64>,
    sm_occupancy_measured_us: Option<i64>,
    tensor_us: Option<i64>,
    tensor_measured_us: Option<i64>,
    memory_activity_us: Option<i64>,
    memory_activity_measured_us: Option<i64>,
}

impl Row {
    fn new(key: SegmentKey, activity: Activity) -> Row {
        let Activity { sm_activity, sm_occupancy, tensor, memory_activity } = activity;
        let total = |measured: Option<Measured>| measured.map(|measured| measured.total);
        let measured_us = |measured: Option<Measured>| measured.map(|measured| measured.measured_us);
        Row {
            hour: key.hour.number(),
            node_id: key.node.0,
            epoch: key.epoch,
            number: key.number,
            sm_activity_us: total(sm_activity),
            sm_activity_measured_us: measured_us(sm_activity),
            sm_occupancy_us: total(sm_occupancy),
            sm_occupancy_measured_us: measured_us(sm_occupancy),
            tensor_us: total(tensor),
            tensor_measured_us: measured_us(tensor),
            memory_activity_us: total(memory_activity),
            memory_activity_measured_us: measured_us(memory_activity),
        }
    }

    fn activity(&self) -> Activity {
        let measured = |total: Option<i64>, measured_us: Option<i64>| {
            total.zip(measured_us).map(|(total, measured_us)| Measured { total, measured_us })
        };
        Activity {
            sm_activity: measured(self.sm_activity_us, self.sm_activity_measured_us),
            sm_occupancy: measured(self.sm_occupancy_us, self.sm_occupancy_measured_us),
            tensor: measured(self.tensor_us, self.tensor_measured_us),
            memory_activity: measured(self.memory_activity_us, self.memory_activity_measured_us),
        }
    }
}

/// Stores that of segments that have some.
pub(crate) fn insert(db: &mut Db, segments: &[ReportedSegment]) -> Result<(), DbError> {
    let measured = segments.iter().filter(|reported| reported.measurements.activity != Activity::default());
    let rows: Vec<Row> =
        measured.map(|reported| Row::new(reported.segment.key, reported.measurements.activity)).collect();
    insert_all!(db, segment_activity::table, rows.as_slice())
}

/// That of segments of one node, epoch and hour, by number, from a first to a last.
pub(crate) fn between(
    db: &mut Db,
    (node, epoch, hour): (NodeId, i64, Hour),
    (first, last): (i64, i64),
) -> Result<Vec<(i64, Activity)>, DbError> {
    let of_hour = segment_activity::hour.eq(hour.number()).and(segment_activity::node_id.eq(node.0));
    let rows: Vec<Row> = on_db!(db, c => segment_activity::table
        .filter(of_hour.and(segment_activity::epoch.eq(epoch)).and(segment_activity::number.between(first, last)))
        .select(Row::as_select())
        .load(c))?;
    Ok(rows.iter().map(|row| (row.number, row.activity())).collect())
}

/// Removes that of a segment.
pub(crate) fn remove(db: &mut Db, key: SegmentKey) -> Result<(), DbError> {
    let key = (key.hour.number(), key.node.0, key.epoch, key.number);
    on_db!(db, c => diesel::delete(segment_activity::table.find(key)).execute(c))?;
    Ok(())
}

/// Gives that of a segment another number, as the segment gets.
pub(crate) fn renumber(db: &mut Db, key: SegmentKey, number: i64) -> Result<(), DbError> {
    let key = (key.hour.number(), key.node.0, key.epoch, key.number);
    on_db!(db, c => diesel::update(segment_activity::table.find(key))
        .set(segment_activity::number.eq(number))
        .execute(c))?;
    Ok(())
}
