//! Everything that is known of one job: its attempts, the tasks of its array, the parts of a heterogeneous job.

use gpuledger_db::allocation::{self, KnownAttempt};
use gpuledger_db::{Db, dimensions};
use gpuledger_domain::ids::ClusterName;
use gpuledger_domain::pricing::EndCause;
use gpuledger_domain::units::{Fraction, Overflow};

use crate::error::AppError;

/// One attempt.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// As the books tell it.
    pub known: KnownAttempt,
    /// Why it ended, as far as the source's word says.
    pub end_cause: Option<EndCause>,
    /// Instances × time, in microseconds; a slice is one instance.
    pub instance_us: Fraction,
}

/// The attempts of a job by its id, or by what people call it: `7400` finds every task of the array 7400, and
/// `8100` every part of the heterogeneous job 8100. In the order of their starts.
///
/// # Errors
/// [`AppError::Missing`] where there is no such cluster or job; the database's.
pub fn job_history(db: &mut Db, cluster: &ClusterName, id: &str) -> Result<Vec<Attempt>, AppError> {
    let missing = || {
        AppError::Missing(format!(
            "no job {id} of cluster {cluster} is known; import a list that tells it, and look for a slip in the id"
        ))
    };
    let cluster_id = dimensions::find_cluster(db, cluster)?.ok_or_else(missing)?;
    let found = allocation::attempts(db, cluster_id, id)?;
    if found.is_empty() {
        return Err(missing());
    }
    found.into_iter().map(attempt).collect()
}

fn attempt(known: KnownAttempt) -> Result<Attempt, AppError> {
    let end_cause = if known.provisional { None } else { EndCause::of_source(&known.end_state) };
    let length = known.interval.map_or(0, |interval| i128::from(interval.length_us()));
    // A placement that begins later than the attempt is one that moved to another pool: each GPU counts once.
    let placements = known.placements.split(',').filter(|placement| !placement.contains(" >"));
    let counts = placements
        .filter_map(|placement| placement.rsplit_once('='))
        .map(|(_, rest)| rest.split(' ').next().unwrap_or_default().parse::<i128>().map_err(|_| Overflow));
    let gpus: i128 = counts.sum::<Result<i128, Overflow>>()?;
    Ok(Attempt { end_cause, instance_us: Fraction::whole(length.checked_mul(gpus).ok_or(Overflow)?), known })
}
