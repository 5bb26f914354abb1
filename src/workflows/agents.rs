//! Collectors, as they told last: when each node was heard, by what, how far its clock is off, and how much of today it accounts for.

use std::collections::BTreeMap;

use gpuledger_db::{Db, dimensions, head, node_watch};
use gpuledger_domain::calendar::BillingCalendar;
use gpuledger_domain::ids::ClusterName;
use gpuledger_domain::metering::State;
use gpuledger_domain::time::Instant;
use gpuledger_domain::units::Fraction;

use super::reconcile::{self, STATES};
use crate::error::AppError;
use crate::import::report::read_stored;

/// A node on which a collector reports, and what is known of that collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentSeen {
    /// The node's cluster.
    pub cluster: ClusterName,
    /// The node's name.
    pub node: String,
    /// What it told last; `None` where nothing came for two hours.
    pub last: Option<LastReport>,
    /// How long its units existed today, as far as that is summed: what is open is not. In GPU-equivalent microseconds.
    pub exists_us: Fraction,
    /// Of it, unobserved.
    pub unobserved_us: Fraction,
    /// How much of what was told today of nodes of this name does not stand as it was told; see [`reconcile::Reconciliation`].
    pub findings: usize,
}

/// The newest report of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastReport {
    /// When it came.
    pub received_at: Instant,
    /// Who made it: name and version.
    pub collector: String,
    /// By how much the node's clock was ahead of the service's when it came, in microseconds; the way of the report counts, too.
    pub clock_ahead_us: i64,
    /// How many segments it had open.
    pub open_segments: usize,
}

/// All nodes on which collectors report and which are not retired, by cluster and name. What is marked is summed first.
///
/// # Errors
/// The database's, or a sum that does not fit.
pub fn agents(db: &mut Db, calendar: &BillingCalendar, now: Instant) -> Result<Vec<AgentSeen>, AppError> {
    let today = reconcile::reconcile(db, calendar, calendar.day_of(now), now)?;
    let (machines, clusters) = (dimensions::machines(db)?, dimensions::clusters(db)?);
    let mut heads: BTreeMap<_, _> =
        head::older_than(db, Instant::MAX)?.into_iter().map(|head| (head.node, head)).collect();
    let mut agents = Vec::new();
    for watch in node_watch::all(db)?.into_iter().filter(|watch| watch.retired_at.is_none_or(|retired| retired > now)) {
        let Some((cluster, node)) = machines.get(&watch.node).cloned() else { continue };
        let Some(cluster) = clusters.get(&cluster).cloned() else { continue };
        let days: Vec<_> = today.days.iter().filter(|day| (&day.cluster, &day.node) == (&cluster, &node)).collect();
        let exists_us = Fraction::sum(days.iter().map(|day| day.exists_us))?;
        let states = days.iter().flat_map(|day| STATES.iter().zip(day.states_us));
        let unobserved_us = Fraction::sum(states.filter(|(state, _)| **state == State::Unobserved).map(|(_, us)| us))?;
        let last = heads.remove(&watch.node).and_then(|head| {
            let report = read_stored(&head.body).ok()?;
            Some(LastReport {
                received_at: head.received_at,
                clock_ahead_us: report.wall.micros().saturating_sub(head.received_at.micros()),
                collector: report.told.collector,
                open_segments: report.head.len(),
            })
        });
        let findings = today.findings.iter().filter(|finding| finding.node == node).count();
        agents.push(AgentSeen { cluster, node, last, exists_us, unobserved_us, findings });
    }
    agents.sort_by(|a, b| (&a.cluster, &a.node).cmp(&(&b.cluster, &b.node)));
    Ok(agents)
}
