//! What collectors saw of a unit, each instant counted once, and what nobody saw.
//!
//! Several collectors may have told of the same time: a second one was started, one was installed anew, or a clock
//! was set back. Each start of a collector is an epoch, and of several epochs the lowest counts, whatever arrived
//! first. Within one epoch, holders of a unit share it, and their shares with the idle share sum to the time.

use std::collections::BTreeMap;

use super::{Segment, SegmentKey, Source, State};
use crate::ids::{FactSetId, JobId, NodeId, SkuId, UnitId};
use crate::money::apportion;
use crate::time::Interval;
use crate::units::{Fraction, Overflow};

/// A unit and the part of its life that is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnitLife {
    /// The unit.
    pub unit: UnitId,
    /// Its SKU.
    pub sku: SkuId,
    /// When it existed; no longer than one hour, inside one UTC hour.
    pub interval: Interval,
}

/// Why what was seen of a unit does not stand as it was told.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Disagreement {
    /// A lower epoch tells of this time too, so that a part of the segment does not count.
    Overlap,
    /// The shares of the unit's holders, with the idle share, are more or less than the time.
    Shares,
    /// The unit is not known to have existed then; the time does not count.
    OutsideLife,
    /// A scheduler's books tell of more units of a job than it was seen to hold and than were free; the excess does not
    /// count.
    AllocatedMore,
    /// A job was seen to hold more units than a scheduler's books tell.
    SeenMore,
    /// Another node tells of the same GPU at this time, and has it; the time does not count here.
    OtherNode,
    /// A scheduler's books tell of another user or account than the collector; the books' count.
    OtherFacts,
}

/// Something that a person should look at.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Finding {
    /// The unit; 0 where it is about a job on any.
    pub unit: UnitId,
    /// When.
    pub interval: Interval,
    /// The segment, or the first of those that do not fit together.
    pub key: SegmentKey,
    /// The job, where it is about one; else 0.
    pub job: JobId,
    /// What is wrong.
    pub what: Disagreement,
}

/// The time of units, each instant once.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Observed {
    /// What counts, by unit and time; what nobody saw is in it, in the state [`State::Unobserved`].
    pub segments: Vec<Segment>,
    /// What does not stand as it was told, in the same order.
    pub findings: Vec<Finding>,
}

/// What counts of the segments of one node in one hour. The order of the segments does not matter.
///
/// `segments` are those of collectors; `lives` are the units of the node, each at most once. What was seen and what was
/// not sum to the life of each unit, to the microsecond, wherever no finding says [`Disagreement::Shares`].
///
/// # Errors
/// [`Overflow`] where a total cannot be divided.
pub fn observed(node: NodeId, segments: &[Segment], lives: &[UnitLife]) -> Result<Observed, Overflow> {
    let mut by_unit: BTreeMap<UnitId, Vec<&Segment>> = BTreeMap::new();
    for segment in segments {
        by_unit.entry(segment.unit).or_default().push(segment);
    }
    let mut lives: Vec<&UnitLife> = lives.iter().collect();
    lives.sort_by_key(|life| life.unit);
    let mut all = Observed::default();
    for life in &lives {
        let mut told = by_unit.remove(&life.unit).unwrap_or_default();
        told.sort_by_key(|segment| segment.key);
        of_unit(node, life, &told, &mut all)?;
    }
    for (unit, told) in by_unit {
        let unknown = |segment: &&Segment| Finding {
            unit,
            interval: segment.interval,
            key: segment.key,
            job: JobId(0),
            what: Disagreement::OutsideLife,
        };
        all.findings.extend(told.iter().map(unknown));
    }
    all.findings.sort_unstable();
    Ok(all)
}

fn of_unit(node: NodeId, life: &UnitLife, told: &[&Segment], all: &mut Observed) -> Result<(), Overflow> {
    let mut covered: Vec<Interval> = Vec::new();
    let mut counted: Vec<Segment> = Vec::new();
    for epoch in told.chunk_by(|a, b| a.key.epoch == b.key.epoch) {
        let mut free: Vec<Interval> = Vec::new();
        for segment in epoch {
            let mut find = |what| {
                all.findings.push(Finding {
                    unit: life.unit,
                    interval: segment.interval,
                    key: segment.key,
                    job: JobId(0),
                    what,
                });
            };
            let within = segment.interval.intersection(life.interval);
            if within != Some(segment.interval) {
                find(Disagreement::OutsideLife);
            }
            let Some(within) = within else { continue };
            let parts = without(within, &covered);
            if parts != [within] {
                find(Disagreement::Overlap);
            }
            free.extend(parts);
        }
        let free = union(free);
        let shares_fit = shares_fit(epoch);
        if !shares_fit && let Some(first) = epoch.first() {
            let (unit, key, interval) = (life.unit, first.key, first.interval);
            all.findings.push(Finding { unit, interval, key, job: JobId(0), what: Disagreement::Shares });
        }
        counted.extend(parts(epoch, &free, shares_fit)?);
        covered.extend(free);
        covered = union(covered);
    }
    let unseen = without(life.interval, &covered);
    counted.extend(unseen.into_iter().map(|interval| unobserved(node, life, interval)));
    counted.sort_by_key(|segment| (segment.interval, segment.key));
    all.segments.append(&mut counted);
    Ok(())
}

/// Whether the shares of an epoch sum to the time that it tells of.
fn shares_fit(epoch: &[&Segment]) -> bool {
    let time: i64 = union(epoch.iter().map(|segment| segment.interval).collect()).iter().map(|i| i.length_us()).sum();
    epoch.iter().map(|segment| i128::from(segment.share_us)).sum::<i128>() == i128::from(time)
}

/// What counts of an epoch's segments: all of them as they are where nothing is in their way. Else they are cut
/// where anything begins or ends, and their totals are divided by wall time and estimated. Where the shares fitted
/// before, those of the holders of each piece are then scaled to it, so that they fit it too.
fn parts(epoch: &[&Segment], free: &[Interval], shares_fit: bool) -> Result<Vec<Segment>, Overflow> {
    if epoch.iter().all(|segment| without(segment.interval, free).is_empty()) {
        return Ok(epoch.iter().map(|segment| (*segment).clone()).collect());
    }
    let bounds = epoch.iter().map(|segment| segment.interval).chain(free.iter().copied());
    let mut edges: Vec<_> = bounds.flat_map(|interval| [interval.start(), interval.end()]).collect();
    edges.sort_unstable();
    edges.dedup();
    let mut by_piece: BTreeMap<Interval, Vec<Segment>> = BTreeMap::new();
    for segment in epoch {
        for part in segment.divided_at(&edges)? {
            if without(part.interval, free).is_empty() {
                by_piece.entry(part.interval).or_default().push(part);
            }
        }
    }
    for (piece, holders) in &mut by_piece {
        if shares_fit {
            scale(*piece, holders)?;
        }
        for part in holders {
            let most = part.share_us;
            part.active_us = part.active_us.map(|active| active.min(most));
            part.suspended_us = part.suspended_us.min(most);
            part.estimated_us = most;
        }
    }
    Ok(by_piece.into_values().flatten().collect())
}

/// Scales the shares of those who hold a piece of time to its length; equally where none has a share of it.
fn scale(piece: Interval, holders: &mut [Segment]) -> Result<(), Overflow> {
    let sum: i128 = holders.iter().map(|holder| i128::from(holder.share_us)).sum();
    let weight = |holder: &Segment| if sum == 0 { 1 } else { i128::from(holder.share_us) };
    let count = i128::try_from(holders.len()).map_err(|_| Overflow)?;
    let whole = if sum == 0 { count } else { sum };
    let exact = |holder: &Segment| Fraction::new(weight(holder) * i128::from(piece.length_us()), whole).ok_or(Overflow);
    let exact: Vec<Fraction> = holders.iter().map(exact).collect::<Result<_, _>>()?;
    for (holder, share) in holders.iter_mut().zip(apportion(piece.length_us().into(), &exact)) {
        holder.share_us = i64::try_from(share).map_err(|_| Overflow)?;
    }
    Ok(())
}

fn unobserved(node: NodeId, life: &UnitLife, interval: Interval) -> Segment {
    Segment {
        key: SegmentKey { hour: interval.start().hour(), node, epoch: 0, number: 0 },
        on_node: node,
        unit: life.unit,
        sku: life.sku,
        job: JobId(0),
        facts: FactSetId(0),
        state: State::Unobserved,
        source: Source::Agent,
        interval,
        count: 1,
        share_us: interval.length_us(),
        active_us: None,
        estimated_us: 0,
        suspended_us: 0,
    }
}

/// Intervals that touch or overlap become one; in order.
#[must_use]
pub fn union(mut intervals: Vec<Interval>) -> Vec<Interval> {
    intervals.sort_unstable();
    let mut joined: Vec<Interval> = Vec::with_capacity(intervals.len());
    for interval in intervals {
        match joined.last_mut() {
            Some(last) if interval.start() <= last.end() => {
                let end = last.end().max(interval.end());
                *last = Interval::new(last.start(), end).unwrap_or(*last);
            }
            _ => joined.push(interval),
        }
    }
    joined
}

/// The parts of an interval outside others, which are in order and apart.
#[must_use]
pub fn without(interval: Interval, others: &[Interval]) -> Vec<Interval> {
    let mut free = Vec::new();
    let mut from = interval.start();
    for other in others.iter().filter_map(|other| other.intersection(interval)) {
        free.extend(Interval::new(from, other.start()));
        from = other.end();
    }
    free.extend(Interval::new(from, interval.end()));
    free
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::time::{HOUR_US, Hour, Instant};
    use proptest::prelude::*;

    const NODE: NodeId = NodeId(4);
    const HOUR: i64 = 484_000;

    fn interval(from: i64, until: i64) -> Interval {
        let at = |offset| Instant::from_micros(HOUR * HOUR_US + offset);
        Interval::new(at(from), at(until)).unwrap()
    }

    fn segment(epoch: i64, number: i64, (from, until): (i64, i64), share_us: i64) -> Segment {
        let life = UnitLife { unit: UnitId(1), sku: SkuId(1), interval: interval(from, until) };
        Segment {
            key: SegmentKey { hour: Hour::from_number(HOUR), node: NODE, epoch, number },
            job: JobId(1),
            state: State::Held,
            share_us,
            active_us: Some(share_us / 3),
            ..unobserved(NODE, &life, life.interval)
        }
    }

    fn life(from: i64, until: i64) -> UnitLife {
        UnitLife { unit: UnitId(1), sku: SkuId(1), interval: interval(from, until) }
    }

    #[test]
    fn the_lower_epoch_counts_whatever_arrived_first() {
        let (low, high) = (segment(1, 0, (100, 200), 100), segment(2, 0, (150, 300), 150));
        let seen = observed(NODE, &[high.clone(), low.clone()], &[life(0, 400)]).unwrap();
        assert_eq!(seen, observed(NODE, &[low, high], &[life(0, 400)]).unwrap());
        let told: Vec<(State, i64, i64, i64)> = seen
            .segments
            .iter()
            .map(|s| (s.state, s.interval.start().micros() - HOUR * HOUR_US, s.share_us, s.estimated_us))
            .collect();
        let wanted = [
            (State::Unobserved, 0, 100, 0),
            (State::Held, 100, 100, 0),
            (State::Held, 200, 100, 100),
            (State::Unobserved, 300, 100, 0),
        ];
        assert_eq!(told, wanted);
        assert_eq!(seen.findings.iter().map(|finding| finding.what).collect::<Vec<_>>(), [Disagreement::Overlap]);
    }

    #[test]
    fn shares_that_are_not_the_time_are_found() {
        let halves = [segment(1, 0, (0, 100), 50), segment(1, 1, (0, 100), 50)];
        assert!(observed(NODE, &halves, &[life(0, 100)]).unwrap().findings.is_empty());
        let too_many = [segment(1, 0, (0, 100), 100), segment(1, 1, (0, 100), 50)];
        let found = observed(NODE, &too_many, &[life(0, 100)]).unwrap().findings;
        assert_eq!(found.iter().map(|finding| finding.what).collect::<Vec<_>>(), [Disagreement::Shares]);
    }

    #[test]
    fn what_lies_outside_its_units_life_does_not_count() {
        let seen = observed(NODE, &[segment(1, 0, (0, 100), 100)], &[life(40, 80)]).unwrap();
        assert_eq!(seen.segments.iter().map(|s| s.share_us).sum::<i64>(), 40);
        assert_eq!(seen.findings[0].what, Disagreement::OutsideLife);
        let seen = observed(NODE, &[segment(1, 0, (0, 100), 100)], &[]).unwrap();
        assert!(seen.segments.is_empty());
        assert_eq!(seen.findings[0].what, Disagreement::OutsideLife);
    }

    proptest! {
        #[test]
        fn seen_and_unseen_sum_to_the_life_of_the_unit(
            told in prop::collection::vec((1i64..4, 0i64..1_000, 1i64..400), 0..12),
            (from, length) in (0i64..600, 1i64..900), rotate in 0usize..12, share in 0i64..=100,
        ) {
            let mut segments: Vec<Segment> = Vec::new();
            for (number, (epoch, start, length)) in told.into_iter().enumerate() {
                // Within an epoch one holder at a time, so that shares fit the time.
                let taken: Vec<Interval> = union(segments.iter().filter(|s| s.key.epoch == epoch).map(|s| s.interval).collect());
                for (part, free) in without(interval(start, start + length), &taken).into_iter().enumerate() {
                    let at = |instant: Instant| instant.micros() - HOUR * HOUR_US;
                    let number = i64::try_from(number * 100 + part * 2).unwrap();
                    let (when, length) = ((at(free.start()), at(free.end())), free.length_us());
                    // Two holders share it.
                    let first = length * share / 100;
                    segments.push(segment(epoch, number, when, first));
                    segments.push(segment(epoch, number + 1, when, length - first));
                }
            }
            let life = life(from, from + length);
            let seen = observed(NODE, &segments, &[life]).unwrap();
            prop_assert_eq!(seen.segments.iter().map(|s| s.share_us).sum::<i64>(), length);
            let intervals: Vec<Interval> = seen.segments.iter().map(|s| s.interval).collect();
            prop_assert_eq!(union(intervals), vec![life.interval]);
            prop_assert!(seen.segments.iter().all(|s| s.active_us.unwrap_or(0) <= s.share_us));
            prop_assert!(!seen.findings.iter().any(|finding| finding.what == Disagreement::Shares));
            if !segments.is_empty() {
                let by = rotate % segments.len();
                segments.rotate_left(by);
            }
            prop_assert_eq!(observed(NODE, &segments, &[life]).unwrap(), seen);
        }
    }
}
