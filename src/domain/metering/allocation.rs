//! One attempt of a job as a scheduler's books tell it: so many GPUs from start to end.

use super::{Segment, SegmentKey, Source, State};
use crate::ids::{FactSetId, JobId, NodeId, SkuId, UnitId};
use crate::money::apportion;
use crate::time::Interval;
use crate::units::{Fraction, Overflow};

/// So many GPUs of one SKU on one node, or on nodes that the books do not name ([`NodeId`] 0), for a time in which
/// they are in one pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placement {
    /// When.
    pub interval: Interval,
    /// The stand-in for the pool.
    pub node: NodeId,
    /// The node, or 0.
    pub on_node: NodeId,
    /// What is held there.
    pub sku: SkuId,
    /// How many of the SKU are held there.
    pub count: i32,
    /// The facts by which rules find the team; the pool is one of them.
    pub facts: FactSetId,
}

/// An attempt whose holding is uniform from start to end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Allocation {
    /// The attempt.
    pub job: JobId,
    /// Which telling of it this is, from 1; a newer one supersedes the older.
    pub revision: i32,
    /// What it held, where.
    pub placements: Vec<Placement>,
    /// How much of the instance-time of these placements it was suspended, in microseconds. The books do not say when.
    pub suspended_us: i64,
}

/// Bits of a segment's number that count the placements of an imported allocation.
const PLACEMENT_BITS: u32 = 20;

impl Allocation {
    /// Its segments: one for each UTC hour and placement.
    ///
    /// The epoch of their keys is the job, the number is revision × 2²⁰ + placement, so that the segments of two
    /// tellings never share a key. A billing day that begins within an hour does not cut them: the holding is
    /// uniform, so [`super::usage_by_slot`] cuts it exactly. Suspended time is spread over all of it, by largest
    /// remainder, since the books tell only its sum.
    ///
    /// # Errors
    /// [`Overflow`] where an hour's GPU-time does not fit.
    pub fn segments(&self) -> Result<Vec<Segment>, Overflow> {
        let mut segments = Vec::new();
        for (number, placement) in (i64::from(self.revision) << PLACEMENT_BITS..).zip(&self.placements) {
            for (hour, interval) in placement.interval.by_hour() {
                segments.push(Segment {
                    key: SegmentKey { hour, node: placement.node, epoch: self.job.0, number },
                    on_node: placement.on_node,
                    unit: UnitId(0),
                    sku: placement.sku,
                    job: self.job,
                    facts: placement.facts,
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
        if self.suspended_us > 0 {
            self.spread_suspended(&mut segments)?;
        }
        Ok(segments)
    }

    /// Each segment's part of the suspended time is its part of the time held.
    fn spread_suspended(&self, segments: &mut [Segment]) -> Result<(), Overflow> {
        let held: i128 = segments.iter().map(|segment| i128::from(segment.share_us)).sum();
        let suspended = i128::from(self.suspended_us).min(held);
        let part = |share: i128| Fraction::new(share * suspended, held).ok_or(Overflow);
        let exact = segments.iter().map(|segment| part(segment.share_us.into())).collect::<Result<Vec<_>, _>>()?;
        for (segment, part) in segments.iter_mut().zip(apportion(suspended, &exact)) {
            segment.suspended_us = i64::try_from(part).map_err(|_| Overflow)?;
        }
        Ok(())
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
            counts in prop::collection::vec(1i32..100, 1..5), suspended in 0i64..=100,
        ) {
            let interval = Interval::new(Instant::from_micros(start), Instant::from_micros(start + length)).unwrap();
            let placement = |&count: &i32| Placement { interval, node: NodeId(1), on_node: NodeId(count), sku: SkuId(1),
                count, facts: FactSetId(1) };
            let placements = counts.iter().map(placement).collect();
            let gpus: i64 = counts.iter().map(|&count| i64::from(count)).sum();
            let suspended_us = length * gpus / 100 * suspended;
            let allocation = Allocation { job: JobId(7), revision: 3, placements, suspended_us };
            let segments = allocation.segments().unwrap();
            prop_assert_eq!(segments.iter().map(|segment| segment.share_us).sum::<i64>(), length * gpus);
            prop_assert_eq!(segments.iter().map(|segment| segment.suspended_us).sum::<i64>(), suspended_us);
            prop_assert!(segments.iter().all(|segment| (0..=segment.share_us).contains(&segment.suspended_us)));
            let mut keys: Vec<_> = segments.iter().map(|segment| segment.key).collect();
            keys.sort_unstable();
            keys.dedup();
            prop_assert_eq!(keys.len(), segments.len());
        }
    }
}
