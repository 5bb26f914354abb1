//! One node has a GPU at an instant, though several may tell of it: a node was copied, renamed, or the GPU was moved.
//!
//! The node that told of the GPU first has it wherever it tells of it, and wherever none does. Another has it where it
//! alone tells of it. Nothing hangs on which told the service first.

use std::collections::BTreeMap;

use gpuledger_db::{Db, dimensions, segment, unit};
use gpuledger_domain::ids::{ClusterName, GpuId, NodeId, UnitId};
use gpuledger_domain::metering::{
    Disagreement, Finding, KnownUnit, Observed, Segment, Source, UnitLife, observed, union, without,
};
use gpuledger_domain::time::{Hour, Instant, Interval};

use crate::error::AppError;

/// When a node has the GPUs of which others tell too; of all other GPUs it has all time.
#[derive(Debug, Default)]
pub(super) struct Owners {
    of_unit: BTreeMap<UnitId, GpuId>,
    owned: BTreeMap<GpuId, Vec<Interval>>,
}

/// A node that tells of a GPU: since when it says that it does, and by which name.
type Teller = (Instant, Option<ClusterName>, String, NodeId);

impl Owners {
    /// What is told of a day; `seen` is what the node itself told.
    pub(super) fn load(
        db: &mut Db,
        node: NodeId,
        (day, known_by): (Interval, Instant),
        units: &[KnownUnit],
        seen: &[Segment],
    ) -> Result<Owners, AppError> {
        let mut owners = Owners::default();
        let shared = unit::shared_with(db, node)?;
        if shared.is_empty() {
            return Ok(owners);
        }
        owners.of_unit = units.iter().map(|unit| (unit.unit, unit.gpu)).collect();
        let hours: Vec<Hour> = day.hours().collect();
        let whole = hours.first().zip(hours.last());
        let Some(whole) = whole.and_then(|(first, last)| Interval::new(first.start(), last.next().start())) else {
            return Ok(owners);
        };
        let mut told: BTreeMap<NodeId, Vec<Segment>> = BTreeMap::new();
        let mut gpus: BTreeMap<GpuId, BTreeMap<NodeId, Vec<&KnownUnit>>> = BTreeMap::new();
        for (other, unit) in &shared {
            if !told.contains_key(other) {
                told.insert(*other, segment::of_hours(db, *other, &hours, known_by)?);
            }
            gpus.entry(unit.gpu).or_default().entry(*other).or_default().push(unit);
        }
        let clusters = dimensions::clusters(db)?;
        for (gpu, mut tellers) in gpus {
            tellers.insert(node, units.iter().filter(|unit| unit.gpu == gpu).collect());
            let mut order: Vec<Teller> = Vec::with_capacity(tellers.len());
            for (teller, units) in &tellers {
                let birth = units.iter().map(|unit| unit.birth).min().unwrap_or(Instant::MAX);
                // By words, not by numbers that the database gave.
                let cluster = clusters.get(&dimensions::cluster_of(db, *teller)?).cloned();
                order.push((birth, cluster, dimensions::node_name(db, *teller)?, *teller));
            }
            order.sort();
            let told_by = |teller: NodeId| {
                let segments = if teller == node { Some(seen) } else { told.get(&teller).map(Vec::as_slice) };
                let of_gpu = |segment: &&Segment| {
                    let units = tellers.get(&teller).map(Vec::as_slice).unwrap_or_default();
                    segment.source == Source::Agent && units.iter().any(|unit| unit.unit == segment.unit)
                };
                let intervals = segments.unwrap_or_default().iter().filter(of_gpu).map(|segment| segment.interval);
                union(intervals.collect())
            };
            owners.owned.insert(gpu, owned(node, whole, &order, told_by));
        }
        Ok(owners)
    }

    /// The parts of lives in which this node has the GPU.
    pub(super) fn lives(&self, lives: Vec<UnitLife>) -> Vec<UnitLife> {
        if self.owned.is_empty() {
            return lives;
        }
        let parts = lives.into_iter().flat_map(|life| match self.of(life.unit) {
            None => vec![life],
            Some(owned) => {
                let parts = owned.iter().filter_map(|interval| interval.intersection(life.interval));
                parts.map(|interval| UnitLife { interval, ..life }).collect()
            }
        });
        parts.collect()
    }

    fn of(&self, unit: UnitId) -> Option<&Vec<Interval>> {
        self.owned.get(self.of_unit.get(&unit)?)
    }

    /// What counts of an hour: of GPUs that others tell of too, only while this node has them.
    pub(super) fn observed(
        &self,
        node: NodeId,
        segments: &[Segment],
        lives: &[UnitLife],
    ) -> Result<Observed, AppError> {
        if self.owned.is_empty() {
            return Ok(observed(node, segments, lives)?);
        }
        let own = |unit: UnitId| self.of(unit).is_none();
        let alone: Vec<Segment> = segments.iter().filter(|segment| own(segment.unit)).cloned().collect();
        let of_alone: Vec<UnitLife> = lives.iter().filter(|life| own(life.unit)).copied().collect();
        let mut all = observed(node, &alone, &of_alone)?;
        let mut cut: BTreeMap<Interval, Vec<Segment>> = BTreeMap::new();
        for segment in segments {
            let Some(owned) = self.of(segment.unit) else { continue };
            let edges: Vec<Instant> = owned.iter().flat_map(|owned| [owned.start(), owned.end()]).collect();
            for part in segment.divided_at(&edges)? {
                match owned.iter().find(|owned| owned.contains(part.interval.start())) {
                    Some(owned) => cut.entry(*owned).or_default().push(part),
                    None => {
                        let (unit, interval, key, job) = (part.unit, part.interval, part.key, part.job);
                        all.findings.push(Finding { unit, interval, key, job, what: Disagreement::OtherNode });
                    }
                }
            }
        }
        let mut pieces: Vec<Interval> = lives
            .iter()
            .filter_map(|life| Some((life, self.of(life.unit)?)))
            .flat_map(|(_, owned)| owned.iter().copied())
            .chain(cut.keys().copied())
            .collect();
        pieces.sort_unstable();
        pieces.dedup();
        for piece in pieces {
            let of_piece: Vec<UnitLife> = lives
                .iter()
                .filter(|life| self.of(life.unit).is_some_and(|owned| owned.contains(&piece)))
                .filter_map(|life| Some(UnitLife { interval: life.interval.intersection(piece)?, ..*life }))
                .collect();
            let segments = cut.remove(&piece).unwrap_or_default();
            let found = observed(node, &segments, &of_piece)?;
            all.segments.extend(found.segments);
            all.findings.extend(found.findings);
        }
        all.findings.sort_unstable();
        Ok(all)
    }
}

/// When a node has a GPU, of those that tell of it, the first first.
fn owned(node: NodeId, whole: Interval, order: &[Teller], told_by: impl Fn(NodeId) -> Vec<Interval>) -> Vec<Interval> {
    let place = order.iter().position(|(.., teller)| *teller == node).unwrap_or(0);
    let told = |tellers: &[Teller]| union(tellers.iter().flat_map(|(.., teller)| told_by(*teller)).collect());
    let own = told_by(node);
    if place == 0 {
        let others = told(order.get(1..).unwrap_or_default());
        let theirs: Vec<Interval> = others.into_iter().flat_map(|interval| without(interval, &own)).collect();
        return without(whole, &union(theirs));
    }
    let before = told(order.get(..place).unwrap_or_default());
    own.into_iter().flat_map(|interval| without(interval, &before)).collect()
}
