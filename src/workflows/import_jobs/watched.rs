//! Nodes on which collectors report: what a list tells of them fills what nobody saw, so that their days are summed again.

use std::collections::BTreeSet;

use gpuledger_db::dimensions::ClusterId;
use gpuledger_db::usage::Mark;
use gpuledger_db::{Db, DbError, node_watch, segment};
use gpuledger_domain::calendar::BillingCalendar;
use gpuledger_domain::ids::{JobId, NodeId};
use gpuledger_domain::time::{Instant, Interval};

/// The watched nodes of a cluster, and of when a list told of them.
#[derive(Default)]
pub(super) struct WatchedNodes {
    nodes: BTreeSet<NodeId>,
    touched: BTreeSet<(NodeId, Interval)>,
    /// When a list told of nodes that it does not name: they may be any.
    unnamed: BTreeSet<Interval>,
}

impl WatchedNodes {
    pub(super) fn of(db: &mut Db, cluster: ClusterId) -> Result<WatchedNodes, DbError> {
        let nodes = node_watch::of_cluster(db, cluster)?.into_iter().collect();
        Ok(WatchedNodes { nodes, ..WatchedNodes::default() })
    }

    /// Notes that a list tells of a node; where it names none ([`NodeId`] 0), it may be any.
    pub(super) fn touch(&mut self, node: NodeId, interval: Interval) {
        if node.0 == 0 && !self.nodes.is_empty() {
            self.unnamed.insert(interval);
        } else if self.nodes.contains(&node) {
            self.touched.insert((node, interval));
        }
    }

    /// Notes the nodes of an attempt's segments, before they are removed.
    pub(super) fn touch_those_of(
        &mut self,
        db: &mut Db,
        stand_in: NodeId,
        job: JobId,
        interval: Interval,
    ) -> Result<(), DbError> {
        if !self.nodes.is_empty() {
            for node in segment::named_nodes(db, stand_in, job, interval)? {
                self.touch(node, interval);
            }
        }
        Ok(())
    }

    /// The days to sum again.
    pub(super) fn marks(&self, calendar: &BillingCalendar) -> BTreeSet<Mark> {
        let days = |interval: &Interval| calendar.days(*interval).into_iter().map(Interval::start);
        let named = self.touched.iter().flat_map(|(node, interval)| days(interval).map(|start| (*node, start)));
        let unnamed: BTreeSet<Instant> = self.unnamed.iter().flat_map(days).collect();
        let any = unnamed.iter().flat_map(|start| self.nodes.iter().map(|node| (*node, *start)));
        named.chain(any).map(|(node, day_start)| Mark { day_start, node }).collect()
    }
}
