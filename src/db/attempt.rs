//! Attempts as both schedulers' lists and collectors tell of them: by the id that their source gives them.

use std::collections::BTreeMap;

use diesel::prelude::*;
use gpuledger_domain::ids::{FactSetId, JobId};
use gpuledger_domain::time::{Instant, Interval};

use crate::schema::{allocation, job};
use crate::{Db, DbError, on_db};

/// An attempt as a list tells of it, newest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedAttempt {
    /// The attempt.
    pub job: JobId,
    /// By which facts.
    pub facts: FactSetId,
    /// When it held its GPUs.
    pub interval: Interval,
}

/// The jobs of each of these jobs' cluster that have its id, itself included, in the order of their numbers.
///
/// # Errors
/// What the database says.
pub fn of_same_id(db: &mut Db, jobs: &[JobId]) -> Result<BTreeMap<JobId, Vec<JobId>>, DbError> {
    let mut by_name: BTreeMap<(i32, String), Vec<JobId>> = BTreeMap::new();
    for jobs in jobs.chunks(8_192) {
        let ids: Vec<i64> = jobs.iter().map(|job| job.0).collect();
        let rows: Vec<(i64, i32, String)> = on_db!(db, c => job::table
            .filter(job::id.eq_any(&ids).and(job::id.ne(0)))
            .select((job::id, job::cluster_id, job::source_id))
            .load(c))?;
        for (id, cluster, source_id) in rows {
            by_name.entry((cluster, source_id)).or_default().push(JobId(id));
        }
    }
    let mut clusters: BTreeMap<i32, Vec<&str>> = BTreeMap::new();
    for (cluster, source_id) in by_name.keys() {
        clusters.entry(*cluster).or_default().push(source_id);
    }
    let mut found: BTreeMap<JobId, Vec<JobId>> = BTreeMap::new();
    for (cluster, ids) in clusters {
        for ids in ids.chunks(8_192) {
            let rows: Vec<(i64, String)> = on_db!(db, c => job::table
                .filter(job::cluster_id.eq(cluster).and(job::source_id.eq_any(ids)))
                .order(job::id)
                .select((job::id, job::source_id))
                .load(c))?;
            for (id, source_id) in rows {
                for of in by_name.get(&(cluster, source_id)).into_iter().flatten() {
                    found.entry(*of).or_default().push(JobId(id));
                }
            }
        }
    }
    Ok(found)
}

/// What lists tell of these attempts, by start; nothing of those that no list tells of, or that held nothing.
///
/// # Errors
/// What the database says.
pub fn listed(db: &mut Db, jobs: &[JobId]) -> Result<Vec<ListedAttempt>, DbError> {
    type Row = (i64, i32, i32, i64, i64);
    let mut newest: BTreeMap<i64, (i32, i64, i64)> = BTreeMap::new();
    for jobs in jobs.chunks(8_192) {
        let ids: Vec<i64> = jobs.iter().map(|job| job.0).collect();
        let rows: Vec<Row> = on_db!(db, c => allocation::table
            .filter(allocation::job_id.eq_any(&ids))
            .order((allocation::job_id, allocation::revision))
            .select((allocation::job_id, allocation::revision, allocation::fact_set_id, allocation::start_us,
                allocation::end_us))
            .load(c))?;
        // The newest revision comes last.
        newest.extend(rows.into_iter().map(|(job, _, facts, start, end)| (job, (facts, start, end))));
    }
    let mut attempts: Vec<ListedAttempt> = newest
        .into_iter()
        .filter_map(|(job, (facts, start, end))| {
            let interval = Interval::new(Instant::from_micros(start), Instant::from_micros(end))?;
            Some(ListedAttempt { job: JobId(job), facts: FactSetId(facts), interval })
        })
        .collect();
    attempts.sort_by_key(|attempt| (attempt.interval, attempt.job));
    Ok(attempts)
}
