//! What schedulers' books say of attempts: jobs by key, and each telling as a revision.

use std::collections::BTreeMap;

use diesel::prelude::*;
use gpuledger_domain::ids::{JobId, NodeId};
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
    /// When the attempt began and ended.
    pub interval: Interval,
    /// The SHA-256 of all that the books say of it.
    pub sha256: Vec<u8>,
    /// The stand-in for the pool that it was in.
    pub node: NodeId,
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
    sha256: Vec<u8>,
    import_id: i64,
}

/// What the books say besides when, where and what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TellingDetails {
    /// When it was submitted, if known.
    pub submit: Option<Instant>,
    /// `NODE=COUNT` by comma; the node is empty where the books name none.
    pub placements: String,
    /// How it ended, in the source's word; empty where not known.
    pub end_state: String,
    /// The SHA-256 of all that the books say of it.
    pub sha256: Vec<u8>,
    /// Which import brought it.
    pub import_id: i64,
}

impl NewTelling {
    /// A telling of an attempt.
    #[must_use]
    pub fn new(allocation: &gpuledger_domain::metering::Allocation, details: TellingDetails) -> NewTelling {
        NewTelling {
            job_id: allocation.job.0,
            revision: allocation.revision,
            node_id: allocation.node.0,
            sku_id: allocation.sku.0,
            fact_set_id: allocation.facts.0,
            start_us: allocation.interval.start().micros(),
            end_us: allocation.interval.end().micros(),
            submit_us: details.submit.map(Instant::micros),
            placements: details.placements,
            end_state: details.end_state,
            sha256: details.sha256,
            import_id: details.import_id,
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
        Db::Pg(_) => db.execute("SELECT pg_advisory_xact_lock(hashtext('import'))"),
    }
}

/// The newest tellings of those attempts that are known, by key.
///
/// # Errors
/// What the database says.
pub fn newest(db: &mut Db, cluster: ClusterId, keys: &[&str]) -> Result<BTreeMap<String, Telling>, DbError> {
    let mut known = BTreeMap::new();
    for keys in keys.chunks(8_192) {
        type Row = (String, i64, i32, i64, i64, Vec<u8>, i32);
        let rows: Vec<Row> = on_db!(db, c => job::table
            .inner_join(allocation::table.on(allocation::job_id.eq(job::id)))
            .filter(job::cluster_id.eq(cluster).and(job::key.eq_any(keys)))
            .order((job::id, allocation::revision))
            .select((job::key, job::id, allocation::revision, allocation::start_us, allocation::end_us,
                allocation::sha256, allocation::node_id))
            .load(c))?;
        for (key, job, revision, start, end, sha256, node) in rows {
            let interval = Interval::new(Instant::from_micros(start), Instant::from_micros(end))
                .ok_or_else(|| DbError::Inconsistent(format!("allocation of job {job} ends before it begins")))?;
            known.insert(key, Telling { job: JobId(job), revision, interval, sha256, node: NodeId(node) });
        }
    }
    Ok(known)
}

/// Gives numbers to attempts that are not known yet, in the order of `keys`.
///
/// # Errors
/// What the database says; a key that is known already is an error.
pub fn insert_jobs(db: &mut Db, cluster: ClusterId, keys: &[&str]) -> Result<Vec<JobId>, DbError> {
    let count = i64::try_from(keys.len()).map_err(|_| DbError::Overflow)?;
    if count == 0 {
        return Ok(Vec::new());
    }
    let first = db.take_ids("job", count)?;
    let rows: Vec<_> =
        (first..).zip(keys).map(|(id, key)| (job::id.eq(id), job::cluster_id.eq(cluster), job::key.eq(*key))).collect();
    insert_all!(db, job::table, 3, rows.as_slice())?;
    Ok((first..first + count).map(JobId).collect())
}

/// Stores tellings.
///
/// # Errors
/// What the database says; a revision that is held already is an error.
pub fn insert_tellings(db: &mut Db, tellings: &[NewTelling]) -> Result<(), DbError> {
    insert_all!(db, allocation::table, 12, tellings)
}

/// The key of an attempt, as its source calls it.
///
/// # Errors
/// What the database says.
pub fn job_key(db: &mut Db, id: JobId) -> Result<Option<String>, DbError> {
    Ok(on_db!(db, c => job::table.find(id.0).select(job::key).first(c).optional())?)
}

/// What attempts that have usage between two instants are called: cluster and key, by number.
///
/// # Errors
/// What the database says.
pub fn names_with_usage(db: &mut Db, interval: Interval) -> Result<BTreeMap<JobId, (String, String)>, DbError> {
    use crate::schema::{cluster, usage};
    let used = usage::slot_start_us.ge(interval.start().micros()).and(usage::slot_start_us.lt(interval.end().micros()));
    let rows: Vec<(i64, String, String)> = on_db!(db, c => job::table
        .inner_join(cluster::table.on(cluster::id.eq(job::cluster_id)))
        .filter(job::id.eq_any(usage::table.filter(used).select(usage::job_id)))
        .select((job::id, cluster::name, job::key))
        .load(c))?;
    Ok(rows.into_iter().map(|(id, cluster, key)| (JobId(id), (cluster, key))).collect())
}

/// By which columns rows without a job id are told apart in a cluster: sets them if none are set, and gives those in
/// force. Rows told apart by other columns would be other jobs, and every second would be charged twice.
///
/// # Errors
/// What the database says.
pub fn row_identity(db: &mut Db, cluster: ClusterId, columns: &str) -> Result<String, DbError> {
    use crate::schema::row_identity::dsl;
    on_db!(db, c => diesel::insert_into(dsl::row_identity)
        .values((dsl::cluster_id.eq(cluster), dsl::column_names.eq(columns)))
        .on_conflict_do_nothing()
        .execute(c))?;
    Ok(on_db!(db, c => dsl::row_identity.find(cluster).select(dsl::column_names).first(c))?)
}
