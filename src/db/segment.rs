//! Segments: the units of record.

use diesel::prelude::*;
use gpuledger_domain::ids::{FactSetId, JobId, NodeId, SkuId, UnitId};
use gpuledger_domain::metering::{Segment, SegmentKey, Source, State};
use gpuledger_domain::time::{Hour, Instant, Interval};

use crate::codes::Code;
use crate::schema::segment;
use crate::{Db, DbError, insert_prepared, on_db};

/// A row of the table.
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
}

const COLUMNS: usize = 18;

/// Most values PostgreSQL binds in one statement.
const POSTGRES_BINDS_MAX: usize = 65_535;

impl From<&Segment> for Row {
    fn from(segment: &Segment) -> Row {
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
        }
    }
}

impl TryFrom<Row> for Segment {
    type Error = DbError;

    fn try_from(row: Row) -> Result<Segment, DbError> {
        let interval = Interval::new(Instant::from_micros(row.start_us), Instant::from_micros(row.end_us))
            .ok_or_else(|| DbError::Inconsistent(format!("a segment of job {} ends before it begins", row.job_id)))?;
        Ok(Segment {
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
        })
    }
}

/// Stores segments; those whose key is held already are left as they are. Fastest when sorted by key, since the key
/// is the order of the table.
///
/// # Errors
/// What the database says.
pub fn insert(db: &mut Db, segments: &[Segment]) -> Result<(), DbError> {
    use diesel::result::{DatabaseErrorKind, Error};
    let rows: Vec<Row> = segments.iter().map(Row::from).collect();
    if let Db::Pg(connection) = db {
        make_months(connection, segments.iter().map(|segment| segment.key.hour))?;
        // Straight in, by COPY: new rows are the usual case, and several times as fast.
        let straight = connection.transaction(|connection| {
            diesel::copy_from(segment::table).from_insertable(rows.as_slice()).execute(connection)
        });
        match straight {
            Err(Error::DatabaseError(DatabaseErrorKind::UniqueViolation, _)) => {}
            other => return Ok(other.map(|_| ())?),
        }
    }
    match db {
        Db::Lite(connection) => insert_prepared!(connection, segment::table, rows, on_conflict_do_nothing),
        Db::Pg(connection) => {
            for rows in rows.chunks(POSTGRES_BINDS_MAX / COLUMNS) {
                diesel::insert_into(segment::table).values(rows).on_conflict_do_nothing().execute(connection)?;
            }
            Ok(())
        }
    }
}

/// Makes the months that segments of these hours need.
pub(crate) fn make_months(connection: &mut PgConnection, hours: impl Iterator<Item = Hour>) -> Result<(), DbError> {
    #[derive(QueryableByName)]
    struct Month {
        #[diesel(sql_type = diesel::sql_types::BigInt)]
        end_hour: i64,
    }
    let mut hours: Vec<i64> = hours.map(Hour::number).collect();
    hours.sort_unstable();
    let mut made_until = i64::MIN;
    for hour in hours {
        if hour >= made_until {
            let month: Month = diesel::sql_query("SELECT end_hour FROM make_segment_month($1)")
                .bind::<diesel::sql_types::BigInt, _>(hour)
                .get_result(connection)?;
            made_until = month.end_hour;
        }
    }
    Ok(())
}

/// What was known at an instant: not what came later for a month that was closed, but what that took the place of.
/// With [`Instant::MAX`] what is known now, with [`Instant::MIN`] what months were closed with.
macro_rules! known_by {
    ($instant:expr) => {{
        let instant = $instant.micros();
        let late = segment::late_at_us.is_null().or(segment::late_at_us.le(instant));
        late.and(segment::superseded_at_us.is_null().or(segment::superseded_at_us.gt(instant)))
    }};
}

/// The segments of a node in these hours, as far as they were known by an instant ([`Instant::MAX`]: all; [`Instant::MIN`]:
/// those that closed months were closed with). Read by equality on each hour, so that the key finds them.
///
/// # Errors
/// What the database says.
pub fn of_hours(db: &mut Db, node: NodeId, hours: &[Hour], known_by: Instant) -> Result<Vec<Segment>, DbError> {
    let hours: Vec<i64> = hours.iter().map(|hour| hour.number()).collect();
    let rows: Vec<Row> = on_db!(db, c => segment::table
        .filter(segment::hour.eq_any(&hours).and(segment::node_id.eq(node.0)).and(known_by!(known_by)))
        .select(Row::as_select())
        .load(c))?;
    rows.into_iter().map(Segment::try_from).collect()
}

/// What schedulers' books tell of a node in these hours: the segments of these stand-ins for pools that name it.
///
/// # Errors
/// What the database says.
pub fn of_books_on(db: &mut Db, stand_ins: &[NodeId], node: NodeId, hours: &[Hour]) -> Result<Vec<Segment>, DbError> {
    let hours: Vec<i64> = hours.iter().map(|hour| hour.number()).collect();
    let stand_ins: Vec<i32> = stand_ins.iter().map(|node| node.0).collect();
    let rows: Vec<Row> = on_db!(db, c => segment::table
        .filter(segment::hour.eq_any(&hours).and(segment::node_id.eq_any(&stand_ins)))
        .filter(segment::on_node_id.eq(node.0).and(segment::source.eq(Source::Scheduler.code())))
        .select(Row::as_select())
        .load(c))?;
    rows.into_iter().map(Segment::try_from).collect()
}

/// The nodes that the segments of an imported attempt name.
///
/// # Errors
/// What the database says.
pub fn named_nodes(db: &mut Db, stand_in: NodeId, job: JobId, interval: Interval) -> Result<Vec<NodeId>, DbError> {
    let hours: Vec<i64> = interval.hours().map(Hour::number).collect();
    let mut nodes = std::collections::BTreeSet::new();
    for hours in hours.chunks(8_192) {
        let rows: Vec<i32> = on_db!(db, c => segment::table
            .filter(segment::hour.eq_any(hours).and(segment::node_id.eq(stand_in.0)).and(segment::epoch.eq(job.0)))
            .select(segment::on_node_id)
            .distinct()
            .load(c))?;
        nodes.extend(rows.into_iter().map(NodeId));
    }
    Ok(nodes.into_iter().collect())
}

/// The jobs of which collectors told on these nodes in a billing day, in the order of their numbers.
///
/// # Errors
/// What the database says.
pub fn reported_jobs(db: &mut Db, nodes: &[NodeId], day: Interval, known_by: Instant) -> Result<Vec<JobId>, DbError> {
    let hours: Vec<i64> = day.hours().map(Hour::number).collect();
    let within = segment::start_us.lt(day.end().micros()).and(segment::end_us.gt(day.start().micros()));
    let mut jobs = std::collections::BTreeSet::new();
    for nodes in nodes.chunks(8_192) {
        let nodes: Vec<i32> = nodes.iter().map(|node| node.0).collect();
        let rows: Vec<i64> = on_db!(db, c => segment::table
            .filter(segment::hour.eq_any(&hours).and(segment::node_id.eq_any(&nodes)))
            .filter(segment::source.eq(Source::Agent.code()).and(segment::job_id.ne(0)).and(within))
            .filter(known_by!(known_by))
            .select(segment::job_id)
            .distinct()
            .load(c))?;
        jobs.extend(rows.into_iter().map(JobId));
    }
    Ok(jobs.into_iter().collect())
}

/// Whether a collector told of a node in a billing day.
///
/// # Errors
/// What the database says.
pub fn has_reports(db: &mut Db, node: NodeId, day: Interval, known_by: Instant) -> Result<bool, DbError> {
    let hours: Vec<i64> = day.hours().map(Hour::number).collect();
    // A day that begins off the hour shares its first hour with the day before.
    let within = segment::start_us.lt(day.end().micros()).and(segment::end_us.gt(day.start().micros()));
    let found: Option<i64> = on_db!(db, c => segment::table
        .filter(segment::hour.eq_any(&hours).and(segment::node_id.eq(node.0)))
        .filter(segment::source.eq(Source::Agent.code()).and(within).and(known_by!(known_by)))
        .select(segment::number)
        .first(c)
        .optional())?;
    Ok(found.is_some())
}

/// The segments of one job in these hours, in key order: the evidence of a charge.
///
/// # Errors
/// What the database says.
pub fn of_job(db: &mut Db, job: JobId, hours: &[Hour], known_by: Instant) -> Result<Vec<Segment>, DbError> {
    let hours: Vec<i64> = hours.iter().map(|hour| hour.number()).collect();
    let rows: Vec<Row> = on_db!(db, c => segment::table
        .filter(segment::hour.eq_any(&hours).and(segment::job_id.eq(job.0)).and(known_by!(known_by)))
        .order((segment::hour, segment::node_id, segment::epoch, segment::number))
        .select(Row::as_select())
        .load(c))?;
    rows.into_iter().map(Segment::try_from).collect()
}

/// The segments of an imported attempt in these hours, in key order; `nodes` are the stand-ins for pools.
///
/// # Errors
/// What the database says.
pub fn of_attempt(db: &mut Db, nodes: &[NodeId], job: JobId, hours: &[Hour]) -> Result<Vec<Segment>, DbError> {
    let hours: Vec<i64> = hours.iter().map(|hour| hour.number()).collect();
    let nodes: Vec<i32> = nodes.iter().map(|node| node.0).collect();
    let rows: Vec<Row> = on_db!(db, c => segment::table
        .filter(segment::hour.eq_any(&hours).and(segment::node_id.eq_any(&nodes)).and(segment::epoch.eq(job.0)))
        .order((segment::hour, segment::node_id, segment::epoch, segment::number))
        .select(Row::as_select())
        .load(c))?;
    rows.into_iter().map(Segment::try_from).collect()
}

/// What a segment says of who held how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldSegment {
    /// The stand-in for the pool.
    pub node: NodeId,
    /// The node the GPUs are in, or [`NodeId`] 0.
    pub on_node: NodeId,
    /// The SKU with its slice counts.
    pub sku: SkuId,
    /// The job.
    pub job: JobId,
    /// From when to when, inside the hour.
    pub interval: Interval,
    /// How many of the SKU.
    pub count: i32,
    /// Wall time × share × count, in microseconds.
    pub share_us: i64,
}

/// What jobs held in an hour by schedulers' books, in key order.
///
/// # Errors
/// What the database says.
pub fn held_by_schedulers(db: &mut Db, hour: Hour) -> Result<Vec<HeldSegment>, DbError> {
    type Row = (i32, i32, i32, i64, i64, i64, i32, i64);
    let held = segment::hour
        .eq(hour.number())
        .and(segment::state.eq(State::Held.code()))
        .and(segment::source.eq(Source::Scheduler.code()));
    let rows: Vec<Row> = on_db!(db, c => segment::table
        .filter(held)
        .order((segment::node_id, segment::epoch, segment::number))
        .select((segment::node_id, segment::on_node_id, segment::sku_id, segment::job_id, segment::start_us,
            segment::end_us, segment::count, segment::share_us))
        .load(c))?;
    let read = |(node, on_node, sku, job, start, end, count, share_us): Row| {
        let interval = Interval::new(Instant::from_micros(start), Instant::from_micros(end))
            .ok_or_else(|| DbError::Inconsistent(format!("a segment of job {job} ends before it begins")))?;
        let (node, on_node) = (NodeId(node), NodeId(on_node));
        Ok(HeldSegment { node, on_node, sku: SkuId(sku), job: JobId(job), interval, count, share_us })
    };
    rows.into_iter().map(read).collect()
}

/// Removes the segments of an imported attempt, because a newer telling supersedes the one they were made from.
///
/// # Errors
/// What the database says.
pub fn remove_superseded(db: &mut Db, node: NodeId, job: JobId, interval: Interval) -> Result<(), DbError> {
    let hours: Vec<i64> = interval.hours().map(Hour::number).collect();
    for hours in hours.chunks(8_192) {
        on_db!(db, c => diesel::delete(segment::table.filter(
            segment::hour.eq_any(hours).and(segment::node_id.eq(node.0)).and(segment::epoch.eq(job.0))))
            .execute(c))?;
    }
    Ok(())
}
