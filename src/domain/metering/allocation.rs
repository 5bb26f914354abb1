//! One attempt of a job as a scheduler's books tell it: so many GPUs of one SKU from start to end.

use super::{Segment, SegmentKey, Source, State};
use crate::ids::{FactSetId, JobId, NodeId, SkuId, UnitId};
use crate::time::Interval;
use crate::units::Overflow;

/// So many GPUs on one node, or on nodes that the books do not name ([`NodeId`] 0).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placement {
    /// The node, or 0.
    pub on_node: NodeId,
    /// How many of the SKU are held there.
    pub count: i32,
}

/// An attempt whose holding is uniform from start to end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Allocation {
    /// The attempt.
    pub job: JobId,
    /// Which telling of it this is, from 1; a newer one supersedes the older.
    pub revision: i32,
    /// The stand-in for the pool.
    pub node: NodeId,
    /// What was held.
    pub sku: SkuId,
    /// The facts by which rules find the team.
    pub facts: FactSetId,
    /// From start to end.
    pub interval: Interval,
    /// Where, and how many.
    pub placements: Vec<Placement>,
}

/// Bits of a segment's number that count the placements of an imported allocation.
const PLACEMENT_BITS: u32 = 20;

impl Allocation {
    /// Its segments: one for each UTC hour and placement.
    ///
    /// The epoch of their keys is the job, the number is revision × 2²⁰ + placement, so that the segments of two
    /// tellings never share a key. A billing day that begins within an hour does not cut them: the holding is
    /// uniform, so [`super::usage_by_slot`] cuts it exactly.
    ///
    /// # Errors
    /// [`Overflow`] where an hour's GPU-time does not fit.
    pub fn segments(&self) -> Result<Vec<Segment>, Overflow> {
        let mut segments = Vec::new();
        for (hour, interval) in self.interval.by_hour() {
            for (number, placement) in (i64::from(self.revision) << PLACEMENT_BITS..).zip(&self.placements) {
                segments.push(Segment {
                    key: SegmentKey { hour, node: self.node, epoch: self.job.0, number },
                    on_node: placement.on_node,
                    unit: UnitId(0),
                    sku: self.sku,
                    job: self.job,
                    facts: self.facts,
                    state: State::Held,
                    source: Source::Scheduler,
                    interval,
                    count: placement.count,
                    share_us: interval.length_us().checked_mul(placement.count.into()).ok_or(Overflow)?,
                    active_us: None,
                    estimated_us: 0,
                    suspended_us: 0,
                });
            }
        }
        Ok(segments)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::time::Instant;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn segments_conserve_the_time_of_their_allocation(
            start in 0i64..2_000_000_000_000_000, length in 1i64..500_000_000_000,
            counts in prop::collection::vec(1i32..100, 1..5),
        ) {
            let interval = Interval::new(Instant::from_micros(start), Instant::from_micros(start + length)).unwrap();
            let placements = counts.iter().map(|&count| Placement { on_node: NodeId(count), count }).collect();
            let allocation = Allocation { job: JobId(7), revision: 3, node: NodeId(1), sku: SkuId(1),
                facts: FactSetId(1), interval, placements };
            let segments = allocation.segments().unwrap();
            let gpus: i64 = counts.iter().map(|&count| i64::from(count)).sum();
            prop_assert_eq!(segments.iter().map(|segment| segment.share_us).sum::<i64>(), length * gpus);
            let mut keys: Vec<_> = segments.iter().map(|segment| segment.key).collect();
            keys.sort_unstable();
            keys.dedup();
            prop_assert_eq!(keys.len(), segments.len());
        }
    }
}
