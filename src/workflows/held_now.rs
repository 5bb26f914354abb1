//! What nodes told last of what is open on them: who holds which unit at this moment, as far as is known.

use gpuledger_db::{Db, dimensions, head};
use gpuledger_domain::metering::State;
use gpuledger_domain::time::Instant;
use gpuledger_domain::units::Ratio;

use crate::error::AppError;
use crate::import::report::read_stored;

/// A node, as it last told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeNow {
    /// Its name.
    pub node: String,
    /// Until when what it told reaches, by its clock.
    pub until: Instant,
    /// Its units that are held, idle or otherwise, by GPU, in the order in which it told them.
    pub units: Vec<UnitNow>,
}

/// A unit and who holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitNow {
    /// Its GPU's UUID.
    pub gpu: String,
    /// What it is: `full`, a profile, or `remainder`.
    pub profile: String,
    /// Its compute slices, of those of the GPU.
    pub compute: Ratio,
    /// What it is doing.
    pub state: State,
    /// The job that holds it, and the account that it is of.
    pub job: Option<(String, String)>,
    /// Since when, within this hour.
    pub since: Instant,
}

/// All nodes that have something open, by name.
///
/// # Errors
/// The database's.
pub fn held_now(db: &mut Db) -> Result<Vec<NodeNow>, AppError> {
    let names = dimensions::machines(db)?;
    let mut nodes = Vec::new();
    for head in head::older_than(db, Instant::MAX)? {
        // A head that an older program stored otherwise is of no use to people, and is settled by whoever settles heads.
        let Ok(report) = read_stored(&head.body) else { continue };
        let mut units: Vec<UnitNow> = report
            .head
            .iter()
            .filter_map(|record| {
                let content = record.content.as_ref().ok()?;
                let unit = report.units.get(content.unit)?;
                let job = content.job.and_then(|job| report.jobs.get(job));
                Some(UnitNow {
                    gpu: unit.gpu_uuid.clone(),
                    profile: unit.sku.profile().to_owned(),
                    compute: unit.sku.slices.compute,
                    state: content.state,
                    job: job.map(|job| (job.source_id.clone(), job.facts.account.clone())),
                    since: content.interval.start(),
                })
            })
            .collect();
        units.sort_by(|a, b| a.gpu.cmp(&b.gpu));
        let node = names.get(&head.node).map_or_else(String::new, |(_, name)| name.clone());
        nodes.push(NodeNow { node, until: report.wall, units });
    }
    nodes.sort_by(|a, b| a.node.cmp(&b.node));
    Ok(nodes)
}
