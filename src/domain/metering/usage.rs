//! Usage by slot: segments summed where everything that decides an amount is the same.

use std::collections::BTreeMap;

use super::{Segment, Source, State};
use crate::ids::{FactSetId, JobId, NodeId, SkuId};
use crate::time::Interval;
use crate::units::Overflow;

/// What is the same for all the time summed in a usage.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct UsageKey {
    /// The slot: no price, rule, team or pool changes within it.
    pub slot: Interval,
    /// The node, or the stand-in for the pool.
    pub node: NodeId,
    /// The job; 0 for none.
    pub job: JobId,
    /// Its facts.
    pub facts: FactSetId,
    /// The SKU with its slice counts.
    pub sku: SkuId,
    /// What the units were doing.
    pub state: State,
}

/// GPU-time of one key, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usage {
    /// What it is the time of.
    pub key: UsageKey,
    /// Wall time × share × count.
    pub share_us: i64,
    /// Of it, with a process on the unit, where that was measured.
    pub active_us: i64,
    /// How much of it was measured for `active_us`.
    pub active_measured_us: i64,
    /// Of it, inferred over a gap.
    pub estimated_us: i64,
    /// Of it, while the job was suspended.
    pub suspended_us: i64,
    /// From how many segments.
    pub segments: i32,
}

/// Sums segments by slot and key, in key order.
///
/// A segment that crosses the edge of a slot is divided by wall time: exactly where its holding is uniform, as in
/// a scheduler's books; else by largest remainder, and marked estimated. Time outside all slots is left out.
///
/// # Errors
/// [`Overflow`] where a sum does not fit; nothing may be charged then.
pub fn usage_by_slot<'a>(
    segments: impl IntoIterator<Item = &'a Segment>,
    slots: &[Interval],
) -> Result<Vec<Usage>, Overflow> {
    let mut sums: BTreeMap<UsageKey, Usage> = BTreeMap::new();
    for segment in segments {
        for part in parts_by_slot(segment, slots)? {
            match sums.entry(part.key) {
                std::collections::btree_map::Entry::Vacant(entry) => {
                    entry.insert(part);
                }
                std::collections::btree_map::Entry::Occupied(mut entry) => entry.get_mut().add(&part)?,
            }
        }
    }
    Ok(sums.into_values().collect())
}

impl Usage {
    /// Adds the totals of another usage; what it is the time of stays.
    ///
    /// # Errors
    /// [`Overflow`] where a sum does not fit.
    pub fn add(&mut self, other: &Usage) -> Result<(), Overflow> {
        let sum = |a: i64, b: i64| a.checked_add(b).ok_or(Overflow);
        self.share_us = sum(self.share_us, other.share_us)?;
        self.active_us = sum(self.active_us, other.active_us)?;
        self.active_measured_us = sum(self.active_measured_us, other.active_measured_us)?;
        self.estimated_us = sum(self.estimated_us, other.estimated_us)?;
        self.suspended_us = sum(self.suspended_us, other.suspended_us)?;
        self.segments = self.segments.checked_add(other.segments).ok_or(Overflow)?;
        Ok(())
    }

    /// The same with negative totals: what takes this one back.
    ///
    /// # Errors
    /// [`Overflow`] where a total has no negative.
    pub fn negated(&self) -> Result<Usage, Overflow> {
        let negative = |total: i64| total.checked_neg().ok_or(Overflow);
        Ok(Usage {
            key: self.key,
            share_us: negative(self.share_us)?,
            active_us: negative(self.active_us)?,
            active_measured_us: negative(self.active_measured_us)?,
            estimated_us: negative(self.estimated_us)?,
            suspended_us: negative(self.suspended_us)?,
            segments: self.segments.checked_neg().ok_or(Overflow)?,
        })
    }
}

fn parts_by_slot(segment: &Segment, slots: &[Interval]) -> Result<Vec<Usage>, Overflow> {
    let first = slots.partition_point(|slot| slot.end() <= segment.interval.start());
    let mut touched =
        slots.get(first..).unwrap_or_default().iter().take_while(|slot| slot.start() < segment.interval.end());
    let slot = touched.next().copied();
    match (slot, touched.next()) {
        (None, _) => Ok(Vec::new()),
        (Some(slot), None) if slot.intersection(segment.interval) == Some(segment.interval) => {
            Ok(vec![usage_of(segment, slot, false)])
        }
        _ => divided(segment, slots),
    }
}

fn usage_of(segment: &Segment, slot: Interval, estimated: bool) -> Usage {
    Usage {
        key: UsageKey {
            slot,
            node: segment.key.node,
            job: segment.job,
            facts: segment.facts,
            sku: segment.sku,
            state: segment.state,
        },
        share_us: segment.share_us,
        active_us: segment.active_us.unwrap_or(0),
        active_measured_us: segment.active_us.map_or(0, |_| segment.share_us),
        estimated_us: if estimated { segment.share_us } else { segment.estimated_us },
        suspended_us: segment.suspended_us,
        segments: 1,
    }
}

/// The segment's totals divided by wall time at every edge of a slot inside it.
fn divided(segment: &Segment, slots: &[Interval]) -> Result<Vec<Usage>, Overflow> {
    let mut edges: Vec<_> = slots.iter().flat_map(|slot| [slot.start(), slot.end()]).collect();
    edges.sort_unstable();
    edges.dedup();
    let mut usages = Vec::new();
    for part in segment.divided_at(&edges)? {
        let Some(slot) = slots.iter().find(|slot| slot.contains(part.interval.start())) else { continue };
        usages.push(usage_of(&part, *slot, segment.source == Source::Agent));
    }
    Ok(usages)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::ids::UnitId;
    use crate::metering::SegmentKey;
    use crate::time::{HOUR_US, Hour, Instant};
    use proptest::prelude::*;

    fn segment(hour: i64, start: i64, end: i64, share_us: i64, source: Source) -> Segment {
        let at = |offset| Instant::from_micros(hour * HOUR_US + offset);
        Segment {
            key: SegmentKey { hour: Hour::from_number(hour), node: NodeId(1), epoch: 1, number: start },
            on_node: NodeId(0),
            unit: UnitId(0),
            sku: SkuId(1),
            job: JobId(1),
            facts: FactSetId(1),
            state: State::Held,
            source,
            interval: Interval::new(at(start), at(end)).unwrap(),
            count: 1,
            share_us,
            active_us: (source == Source::Agent).then_some(share_us / 2),
            estimated_us: 0,
            suspended_us: share_us / 5,
        }
    }

    #[test]
    fn a_cut_within_the_hour_divides_a_uniform_holding_exactly_and_estimates_an_observed_one() {
        let hour = Interval::new(Instant::from_micros(0), Instant::from_micros(HOUR_US)).unwrap();
        let slots = hour.cut_at(&[Instant::from_micros(HOUR_US / 2)]);
        let imported = segment(0, 0, HOUR_US, 2 * HOUR_US, Source::Scheduler);
        let usages = usage_by_slot([&imported], &slots).unwrap();
        assert_eq!(
            usages.iter().map(|usage| (usage.share_us, usage.estimated_us)).collect::<Vec<_>>(),
            [(HOUR_US, 0), (HOUR_US, 0)]
        );
        let observed = segment(0, 0, HOUR_US, HOUR_US, Source::Agent);
        let usages = usage_by_slot([&observed], &slots).unwrap();
        assert!(usages.iter().all(|usage| usage.estimated_us == usage.share_us));
    }

    proptest! {
        #[test]
        fn usage_conserves_time_whatever_the_slots_and_the_order(
            pieces in prop::collection::vec((0i64..48, 0i64..HOUR_US - 1, 1i64..HOUR_US, 1i64..5_000_000_000, any::<bool>()), 0..30),
            mut cuts in prop::collection::vec(0i64..48 * HOUR_US, 0..6), rotate in 0usize..30,
        ) {
            let day = Interval::new(Instant::from_micros(0), Instant::from_micros(48 * HOUR_US)).unwrap();
            cuts.sort_unstable();
            let cuts: Vec<_> = cuts.into_iter().map(Instant::from_micros).collect();
            let slots = day.cut_at(&cuts);
            let segments: Vec<Segment> = pieces.iter().map(|&(hour, start, length, share, agent)| segment(hour, start,
                (start + length).min(HOUR_US), share, if agent { Source::Agent } else { Source::Scheduler })).collect();
            let usages = usage_by_slot(&segments, &slots).unwrap();
            let total = |of: fn(&Segment) -> i64| segments.iter().map(of).sum::<i64>();
            prop_assert_eq!(usages.iter().map(|usage| usage.share_us).sum::<i64>(), total(|s| s.share_us));
            prop_assert_eq!(usages.iter().map(|usage| usage.active_us).sum::<i64>(), total(|s| s.active_us.unwrap_or(0)));
            prop_assert_eq!(usages.iter().map(|usage| usage.suspended_us).sum::<i64>(), total(|s| s.suspended_us));
            let mut turned: Vec<&Segment> = segments.iter().collect();
            if !turned.is_empty() {
                let by = rotate % turned.len();
                turned.rotate_left(by);
            }
            prop_assert_eq!(usage_by_slot(turned, &slots).unwrap(), usages);
        }
    }
}
