//! What schedulers' books say of attempts: jobs by key, and each telling as a revision.

use std::collections::BTreeMap;

use diesel::prelude::*;
use gpuledger_domain::ids::{FactSetId, JobId, NodeId, SkuId};
use gpuledger_domain::time::{Instant, Interval};

use crate::dimensions::ClusterId;
use crate::schema::{allocation, job};
use crate::{Db, DbError, insert_all, on_db};

/// The newest telling of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Telling {
    /// The attempt.
    pub job: JobId,
    /// Which telling, from 1.
    pub revision: i32,
    /// When the attempt held its GPUs; `None` where it was told to have held none.
    pub interval: Option<Interval>,
    /// The SHA-256 of each telling before this one.
    pub superseded: Vec<Vec<u8>>,
    /// The SHA-256 of all that the books say of it.
    pub sha256: Vec<u8>,
    /// The stand-in for the pool that it was in.
    pub node: NodeId,
    /// What it held.
    pub sku: SkuId,
    /// The facts of the job.
    pub facts: FactSetId,
    /// Where, and how many: `NODE=COUNT` by comma, with what differs from the first behind each.
    pub placements: String,
    /// How it ended, in the source's word; empty where not known.
    pub end_state: String,
    /// Whether it still ran, so that its end is only when the list was written.
    pub provisional: bool,
    /// When it was submitted, if known.
    pub submit: Option<Instant>,
    /// For how long it was suspended, in microseconds.
    pub suspended_us: i64,
    /// Which import brought it.
    pub import_id: i64,
}

/// What a source calls an attempt.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AttemptName {
    /// The job's id, or what stands for it.
    pub source_id: String,
    /// When the attempt began: a job that was requeued has several, none of which overlap.
    pub start: Instant,
}

/// A telling to be stored.
#[derive(Clone, Debug, PartialEq, Eq, Insertable)]
#[diesel(table_name = allocation, treat_none_as_default_value = false)]
pub struct NewTelling {
    job_id: i64,
    revision: i32,
    node_id: i32,
    sku_id: i32,
    fact_set_id: i32,
    start_us: i64,
    end_us: i64,
    submit_us: Option<i64>,
    placements: String,
    end_state: String,
    provisional: i16,
    sha256: Vec<u8>,
    import_id: i64,
    listed_id: Option<String>,
    suspended_us: Option<i64>,
}

/// Which telling, of what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TellingOf {
    /// The attempt.
    pub job: JobId,
    /// From 1.
    pub revision: i32,
    /// The stand-in for the pool.
    pub node: NodeId,
    /// What it held.
    pub sku: SkuId,
    /// The facts of the job.
    pub facts: FactSetId,
}

/// What the books say besides when, where and what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TellingDetails {
    /// When it was submitted, if known.
    pub submit: Option<Instant>,
    /// `NODE=COUNT` by comma, with what differs from the first behind each; the node is empty where the books name none.
    pub placements: String,
    /// How it ended, in the source's word; empty where not known.
    pub end_state: String,
    /// Whether it still ran, so that its end is only when the list was written.
    pub provisional: bool,
    /// The SHA-256 of all that the books say of it.
    pub sha256: Vec<u8>,
    /// Which import brought it.
    pub import_id: i64,
    /// What people call the attempt, where that is not its id.
    pub listed_id: Option<String>,
    /// For how long it was suspended, in microseconds.
    pub suspended_us: i64,
}

impl NewTelling {
    /// A telling of an attempt that began at `start`; `None` for what it holds where it is told to hold nothing.
    #[must_use]
    pub fn new(attempt: &TellingOf, interval: Option<Interval>, start: Instant, details: TellingDetails) -> NewTelling {
        NewTelling {
            job_id: attempt.job.0,
            revision: attempt.revision,
            node_id: attempt.node.0,
            sku_id: attempt.sku.0,
            fact_set_id: attempt.facts.0,
            start_us: interval.map_or(start, Interval::start).micros(),
            end_us: interval.map_or(start, Interval::end).micros(),
            submit_us: details.submit.map(Instant::micros),
            placements: details.placements,
            end_state: details.end_state,
            provisional: details.provisional.into(),
            sha256: details.sha256,
            import_id: details.import_id,
            listed_id: details.listed_id,
            suspended_us: (details.suspended_us > 0).then_some(details.suspended_us),
        }
    }
}

/// Makes imports wait for each other until the end of the transaction. On SQLite there is one writer anyway.
///
/// # Errors
/// What the database says.
pub fn lock_imports(db: &mut Db) -> Result<(), DbError> {
    match db {
        Db::Lite(_) => Ok(()),
        Db::Pg(_) => db.execute("SELECT pg_advisory_xact_lock(hashtext('import into ' || current_schema()))"),
    }
}

/// The newest tellings of all attempts of these jobs.
///
/// # Errors
/// What the database says.
pub fn newest(db: &mut Db, cluster: ClusterId, source_ids: &[&str]) -> Result<BTreeMap<AttemptName, Telling>, DbError> {
    type Row = (
        String,
        i64,
        (i64, i32, i64, i64, Vec<u8>, i32, i32, i32, String, String, i16, (i64, Option<i64>, Option<i64>)),
    );
    let mut known = BTreeMap::new();
    for source_ids in source_ids.chunks(8_192) {
        let rows: Vec<Row> = on_db!(db, c => job::table
            .inner_join(allocation::table.on(allocation::job_id.eq(job::id)))
            .filter(job::cluster_id.eq(cluster).and(job::source_id.eq_any(source_ids)))
            .order((job::id, allocation::revision))
            .select((job::source_id, job::start_us, (job::id, allocation::revision, allocation::start_us, allocation::end_us,
                allocation::sha256, allocation::node_id, allocation::sku_id, allocation::fact_set_id, allocation::placements,
                allocation::end_state, allocation::provisional,
                (allocation::import_id, allocation::suspended_us, allocation::submit_us))))
            .load(c))?;
        for (
            source_id,
            attempt_start,
            (job, revision, start, end, sha256, node, sku, facts, placements, end_state, provisional, more),
        ) in rows
        {
            let interval = Interval::new(Instant::from_micros(start), Instant::from_micros(end));
            let name = AttemptName { source_id, start: Instant::from_micros(attempt_start) };
            let (node, sku, facts) = (NodeId(node), SkuId(sku), FactSetId(facts));
            let before: Option<Telling> = known.remove(&name);
            let superseded = before.map_or_else(Vec::new, |before| [before.superseded, vec![before.sha256]].concat());
            known.insert(
                name,
                Telling {
                    job: JobId(job),
                    revision,
                    interval,
                    superseded,
                    sha256,
                    node,
                    sku,
                    facts,
                    placements,
                    end_state,
                    provisional: provisional != 0,
                    submit: more.2.map(Instant::from_micros),
                    suspended_us: more.1.unwrap_or(0),
                    import_id: more.0,
                },
            );
        }
    }
    Ok(known)
}

/// Whether any job of a cluster is known.
///
/// # Errors
/// What the database says.
pub fn has_jobs(db: &mut Db, cluster: ClusterId) -> Result<bool, DbError> {
    let found: Option<i64> = on_db!(db, c => job::table
        .filter(job::cluster_id.eq(cluster)).select(job::id).first(c).optional())?;
    Ok(found.is_some())
}

/// The number that the next new attempt gets: it is larger as soon as anybody made one.
///
/// # Errors
/// What the database says.
pub fn next_job(db: &mut Db) -> Result<i64, DbError> {
    use crate::schema::id_counter;
    let next: Option<i64> =
        on_db!(db, c => id_counter::table.find("job").select(id_counter::next).first(c).optional())?;
    Ok(next.unwrap_or(0))
}

/// The numbers of attempts that no list told of yet, in their order: new ones, or those that a collector told of first.
///
/// # Errors
/// What the database says; an attempt that a list told of is an error.
pub fn insert_jobs(db: &mut Db, cluster: ClusterId, attempts: &[&AttemptName]) -> Result<Vec<JobId>, DbError> {
    if attempts.is_empty() {
        return Ok(Vec::new());
    }
    let reported = reported_jobs(db, cluster, attempts)?;
    let is_new = |attempt: &&&AttemptName| !reported.contains_key(**attempt);
    let count = i64::try_from(attempts.iter().filter(is_new).count()).map_err(|_| DbError::Overflow)?;
    let mut next = if count == 0 { 0 } else { db.take_ids("job", count)? };
    let mut ids = Vec::with_capacity(attempts.len());
    let mut rows = Vec::with_capacity(attempts.len());
    for attempt in attempts {
        if let Some(id) = reported.get(*attempt) {
            ids.push(*id);
            continue;
        }
        rows.push((
            job::id.eq(next),
            job::cluster_id.eq(cluster),
            job::source_id.eq(attempt.source_id.clone()),
            job::start_us.eq(attempt.start.micros()),
        ));
        ids.push(JobId(next));
        next += 1;
    }
    insert_all!(db, job::table, rows.as_slice())?;
    Ok(ids)
}

/// Those of these attempts that are numbered already, in a cluster of whose nodes collectors tell.
fn reported_jobs(
    db: &mut Db,
    cluster: ClusterId,
    attempts: &[&AttemptName],
) -> Result<BTreeMap<AttemptName, JobId>, DbError> {
    use crate::schema::collector_token;
    // No collector reports without a token, and tokens are never removed.
    let token: Option<String> = on_db!(db, c => collector_token::table
        .filter(collector_token::cluster_id.eq(cluster)).select(collector_token::id).first(c).optional())?;
    let mut reported = BTreeMap::new();
    if token.is_none() {
        return Ok(reported);
    }
    for attempts in attempts.chunks(8_192) {
        let source_ids: Vec<&str> = attempts.iter().map(|attempt| attempt.source_id.as_str()).collect();
        let rows: Vec<(String, i64, i64)> = on_db!(db, c => job::table
            .filter(job::cluster_id.eq(cluster).and(job::source_id.eq_any(source_ids)))
            .select((job::source_id, job::start_us, job::id))
            .load(c))?;
        reported.extend(
            rows.into_iter().map(|(source_id, start, id)| {
                (AttemptName { source_id, start: Instant::from_micros(start) }, JobId(id))
            }),
        );
    }
    Ok(reported)
}

/// The number of an attempt, new if it was not known.
///
/// # Errors
/// What the database says.
pub fn intern_job(db: &mut Db, cluster: ClusterId, source_id: &str, start: Instant) -> Result<JobId, DbError> {
    let key = job::cluster_id.eq(cluster).and(job::source_id.eq(source_id)).and(job::start_us.eq(start.micros()));
    let found: Option<i64> = on_db!(db, c => job::table.filter(key).select(job::id).first(c).optional())?;
    if let Some(id) = found {
        return Ok(JobId(id));
    }
    let id = db.take_ids("job", 1)?;
    let values = (job::cluster_id.eq(cluster), job::source_id.eq(source_id), job::start_us.eq(start.micros()));
    let inserted = on_db!(db, c => diesel::insert_into(job::table)
        .values((job::id.eq(id), values)).on_conflict_do_nothing().execute(c))?;
    match inserted {
        1 => Ok(JobId(id)),
        // Another process was first; its row is the one.
        _ => Ok(JobId(on_db!(db, c => job::table.filter(key).select(job::id).first(c))?)),
    }
}

/// Stores tellings.
///
/// # Errors
/// What the database says; a revision that is held already is an error.
pub fn insert_tellings(db: &mut Db, tellings: &[NewTelling]) -> Result<(), DbError> {
    insert_all!(db, allocation::table, tellings)
}

/// What attempts that have usage between two instants are called, with their cluster, by number.
///
/// # Errors
/// What the database says.
pub fn names_with_usage(db: &mut Db, interval: Interval) -> Result<BTreeMap<JobId, (String, AttemptName)>, DbError> {
    use crate::schema::{cluster, usage};
    let used = usage::slot_start_us.ge(interval.start().micros()).and(usage::slot_start_us.lt(interval.end().micros()));
    let rows: Vec<(i64, String, String, i64)> = on_db!(db, c => job::table
        .inner_join(cluster::table.on(cluster::id.eq(job::cluster_id)))
        .filter(job::id.eq_any(usage::table.filter(used).select(usage::job_id)))
        .select((job::id, cluster::name, job::source_id, job::start_us))
        .load(c))?;
    let name = |(id, cluster, source_id, start): (i64, String, String, i64)| {
        (JobId(id), (cluster, AttemptName { source_id, start: Instant::from_micros(start) }))
    };
    Ok(rows.into_iter().map(name).collect())
}

/// What these attempts are called, with their cluster, by number.
///
/// # Errors
/// What the database says.
pub fn names(db: &mut Db, jobs: &[JobId]) -> Result<BTreeMap<JobId, (String, AttemptName)>, DbError> {
    use crate::schema::cluster;
    let mut names = BTreeMap::new();
    for jobs in jobs.chunks(8_192) {
        let numbers: Vec<i64> = jobs.iter().map(|job| job.0).collect();
        let rows: Vec<(i64, String, String, i64)> = on_db!(db, c => job::table
            .inner_join(cluster::table.on(cluster::id.eq(job::cluster_id)))
            .filter(job::id.eq_any(&numbers))
            .select((job::id, cluster::name, job::source_id, job::start_us))
            .load(c))?;
        names.extend(rows.into_iter().map(|(id, cluster, source_id, start)| {
            (JobId(id), (cluster, AttemptName { source_id, start: Instant::from_micros(start) }))
        }));
    }
    Ok(names)
}

/// How the jobs of a cluster are told apart: by id, or by which columns; and in which zone its times were written
/// (empty: with an offset). Sets it if nothing is set, and gives what is in force. Jobs told apart in another way
/// would be other jobs, and every second would be charged twice.
///
/// # Errors
/// What the database says.
pub fn identity(db: &mut Db, cluster: ClusterId, columns: &str, zone: &str) -> Result<(String, String), DbError> {
    use crate::schema::row_identity::dsl;
    on_db!(db, c => diesel::insert_into(dsl::row_identity)
        .values((dsl::cluster_id.eq(cluster), dsl::column_names.eq(columns), dsl::zone.eq(zone)))
        .on_conflict_do_nothing()
        .execute(c))?;
    Ok(on_db!(db, c => dsl::row_identity.find(cluster).select((dsl::column_names, dsl::zone)).first(c))?)
}

/// Notes the zone of a cluster's times without an offset, where none was noted.
///
/// # Errors
/// What the database says.
pub fn note_zone(db: &mut Db, cluster: ClusterId, zone: &str) -> Result<(), DbError> {
    use crate::schema::row_identity::dsl;
    on_db!(db, c => diesel::update(dsl::row_identity.find(cluster).filter(dsl::zone.eq("")))
        .set(dsl::zone.eq(zone))
        .execute(c))?;
    Ok(())
}

/// How an attempt ended, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptEnd {
    /// The attempt.
    pub job: JobId,
    /// When it held its GPUs.
    pub interval: Interval,
    /// How it ended, in the source's word; empty where not known.
    pub end_state: String,
    /// Whether it still ran, so that its end is only when the list was written.
    pub provisional: bool,
}

/// How these attempts ended, in the order of their numbers. Those that held nothing are left out.
///
/// # Errors
/// What the database says.
pub fn ends(db: &mut Db, jobs: &[JobId]) -> Result<Vec<AttemptEnd>, DbError> {
    type Row = (i64, i32, i64, i64, String, i16);
    let mut ends: BTreeMap<i64, Option<AttemptEnd>> = BTreeMap::new();
    for jobs in jobs.chunks(8_192) {
        let ids: Vec<i64> = jobs.iter().map(|job| job.0).collect();
        let rows: Vec<Row> = on_db!(db, c => allocation::table
            .filter(allocation::job_id.eq_any(&ids))
            .order((allocation::job_id, allocation::revision))
            .select((allocation::job_id, allocation::revision, allocation::start_us, allocation::end_us,
                allocation::end_state, allocation::provisional))
            .load(c))?;
        // The newest revision comes last.
        ends.extend(rows.into_iter().map(|(job, _, start, end, end_state, provisional)| {
            let interval = Interval::new(Instant::from_micros(start), Instant::from_micros(end));
            let provisional = provisional != 0;
            (job, interval.map(|interval| AttemptEnd { job: JobId(job), interval, end_state, provisional }))
        }));
    }
    Ok(ends.into_values().flatten().collect())
}

/// The newest telling of an attempt, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownAttempt {
    /// The scheduler's own id.
    pub source_id: String,
    /// What people call it, where that is not its id.
    pub listed_id: Option<String>,
    /// When it began, by the source's word.
    pub start: Instant,
    /// When it held its GPUs; `None` where it is told to have held none.
    pub interval: Option<Interval>,
    /// `NODE=COUNT` by comma, with what differs from the first behind each.
    pub placements: String,
    /// What the first placement holds, as the source calls it.
    pub sku: String,
    /// How it ended, in the source's word; empty where not known.
    pub end_state: String,
    /// Whether it still ran, so that its end is only when the list was written.
    pub provisional: bool,
    /// How often it was told anew.
    pub revision: i32,
}

/// The attempts of a cluster whose id is `id`, or that people call `id`, `id_…` or `id+…`; in the order of their
/// starts, ids and listed ids.
///
/// # Errors
/// What the database says.
pub fn attempts(db: &mut Db, cluster: ClusterId, id: &str) -> Result<Vec<KnownAttempt>, DbError> {
    use crate::schema::sku;
    type Row = (String, i64, (i64, i32, i64, i64, String, String, i16, Option<String>), String);
    let (tasks, tasks_end) = (format!("{id}_"), format!("{id}`"));
    let (parts, parts_end) = (format!("{id}+"), format!("{id},"));
    let called = allocation::listed_id
        .eq(id)
        .or(allocation::listed_id.ge(&tasks).and(allocation::listed_id.lt(&tasks_end)))
        .or(allocation::listed_id.ge(&parts).and(allocation::listed_id.lt(&parts_end)));
    let called: Vec<i64> = on_db!(db, c => allocation::table.filter(called).select(allocation::job_id).load(c))?;
    let mut newest: BTreeMap<i64, KnownAttempt> = BTreeMap::new();
    let rows: Vec<Row> = on_db!(db, c => job::table
        .inner_join(allocation::table.on(allocation::job_id.eq(job::id)))
        .inner_join(sku::table.on(sku::id.eq(allocation::sku_id)))
        .filter(job::cluster_id.eq(cluster).and(job::source_id.eq(id).or(job::id.eq_any(&called))))
        .order((job::id, allocation::revision))
        .select((job::source_id, job::start_us, (job::id, allocation::revision, allocation::start_us, allocation::end_us,
            allocation::placements, allocation::end_state, allocation::provisional, allocation::listed_id), sku::code))
        .load(c))?;
    for (source_id, start, (job, revision, from, until, placements, end_state, provisional, listed_id), sku) in rows {
        let interval = Interval::new(Instant::from_micros(from), Instant::from_micros(until));
        let start = Instant::from_micros(start);
        let provisional = provisional != 0;
        // The newest revision comes last.
        newest.insert(
            job,
            KnownAttempt { source_id, listed_id, start, interval, placements, sku, end_state, provisional, revision },
        );
    }
    let mut attempts: Vec<KnownAttempt> = newest.into_values().collect();
    attempts.sort_by(|a, b| (a.start, &a.source_id, &a.listed_id).cmp(&(b.start, &b.source_id, &b.listed_id)));
    Ok(attempts)
}

/// Attempts of which the newest telling is that they still ran, and that only part of an interval was told of: their
/// clusters and ids, in order.
///
/// # Errors
/// What the database says.
pub fn told_in_part(db: &mut Db, interval: Interval) -> Result<Vec<(String, String)>, DbError> {
    use crate::schema::cluster;
    let newer = diesel::alias!(allocation as newer);
    let later = newer
        .filter(newer.field(allocation::job_id).eq(allocation::job_id))
        .filter(newer.field(allocation::revision).gt(allocation::revision));
    let within = allocation::end_us.gt(interval.start().micros()).and(allocation::end_us.lt(interval.end().micros()));
    Ok(on_db!(db, c => allocation::table
        .inner_join(job::table.on(job::id.eq(allocation::job_id)))
        .inner_join(cluster::table.on(cluster::id.eq(job::cluster_id)))
        .filter(allocation::provisional.eq(1).and(within).and(allocation::end_us.gt(allocation::start_us)))
        .filter(diesel::dsl::not(diesel::dsl::exists(later)))
        .order((cluster::name, job::source_id, job::start_us))
        .select((cluster::name, job::source_id))
        .load(c))?)
}
