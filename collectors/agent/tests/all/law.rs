//! The law of time, for whatever samples: each look accounts for every microsecond of every unit since the one before, once.

use std::collections::BTreeMap;

use gpuledger_agent::attribute::{Attributor, Rules};
use gpuledger_agent::sample::{Activity, Layout, Sample, Seen, UnitSample, UnitShape};
use gpuledger_agent::segments::{HOUR_US, Segments};
use gpuledger_agent::sharing::{Sharing, Weight};
use proptest::prelude::*;

use super::{S, at, gpu, remainder, slice, unit};

const JOBS: [&str; 4] = ["a", "b", "c", "unattributed"];

/// Who is on a unit, by bits, and when they began before the look.
fn users(bits: u8, ago: i64, second: i64) -> Vec<(&'static str, Option<i64>)> {
    let began = |place: usize| (ago % (i64::try_from(place).unwrap() + 2) != 0).then_some(second * S - ago * 100_000);
    let there = JOBS.iter().enumerate().filter(|(place, _)| bits & 1 << place != 0);
    there.map(|(place, job)| (*job, began(place))).collect()
}

fn state(kind: u8, bits: u8, ago: i64, mode_pending: bool, second: i64) -> Seen {
    let there = users(bits, ago, second);
    let units: Vec<UnitSample> = match kind {
        0 => return Seen::Lost,
        1 => return Seen::NotRead,
        2 | 3 => vec![unit(UnitShape::Full, &there)],
        4 => vec![slice(1, "3g.40gb", 3, &there), slice(2, "4g.40gb", 4, &users(bits >> 4, ago, second))],
        5 => vec![slice(1, "3g.40gb", 3, &there), remainder(4)],
        _ => vec![UnitSample { has_room: bits & 1 != 0, ..remainder(7) }],
    };
    Seen::Units(Layout { units, mode_pending })
}

/// Puts a counter of energy and an activity into a sample.
fn measured(sample: &mut Sample, energy_mj: u64, sm_ppm: u32) {
    let watched = sample.gpus.get_mut("GPU-A").unwrap();
    watched.energy_mj = Some(energy_mj);
    if let Seen::Units(layout) = &mut watched.seen {
        let activity = Activity { sm_ppm: Some(sm_ppm), ..Activity::default() };
        layout.units.iter_mut().for_each(|unit| unit.activity = Some(activity));
    }
}

proptest! {
    #[test]
    fn each_microsecond_of_each_unit_is_told_once(
        looks in prop::collection::vec((0u8..8, any::<u8>(), 0i64..300, any::<bool>(), 1i64..45), 2..30),
        replicas in prop::option::of(1u32..5),
        by_sm in any::<bool>(),
        energy in prop::collection::vec(0u64..10_000, 30),
    ) {
        let weight = if by_sm { Weight::Sm } else { Weight::Equal };
        let mut attributor = Attributor::new(Rules { interval_us: 10 * S, sharing: Sharing { replicas, weight } });
        // The hour ends on the way.
        let (mut segments, mut told, mut second) = (Segments::default(), 0, 3_000);
        let (mut before, mut counter, mut cuts, mut was_cut) = (None, 0, vec![HOUR_US], false);
        for ((kind, bits, ago, pending, step), grown) in looks.into_iter().zip(energy) {
            second += step;
            let mut sample = at(second, state(kind, bits, ago, pending, second));
            counter += grown;
            measured(&mut sample, counter, u32::from(bits) * 3_921);
            sample.gpus.get_mut("GPU-A").unwrap().brief_us =
                vec![(second * S - ago * 90_000, second * S - ago * 40_000 + 1)];
            cuts.push(second * S - 300_000);
            cuts.sort_unstable();
            let pieces = attributor.look(&sample, &cuts).pieces;
            for piece in &pieces {
                let length = piece.end_us - piece.start_us;
                prop_assert!(length > 0 && piece.share_us > 0 && piece.share_us <= length);
                prop_assert!(cuts.iter().all(|cut| *cut <= piece.start_us || piece.end_us <= *cut));
                if let Some(sm) = piece.telemetry.sm_activity {
                    prop_assert!(sm.measured_us == piece.share_us && i64::try_from(sm.total).unwrap() <= sm.measured_us);
                }
                let parts = [piece.active_us, piece.estimated_us, piece.suspended_us];
                prop_assert!(parts.iter().all(|part| (0..=piece.share_us).contains(part)));
            }
            // Shares of a unit sum to its time, span by span; over a gap they may be less.
            let mut by_span: BTreeMap<_, i64> = BTreeMap::new();
            for piece in &pieces {
                *by_span.entry((&piece.unit, piece.start_us, piece.end_us)).or_default() += piece.share_us;
            }
            let estimated = pieces.iter().any(|piece| piece.estimated_us > 0);
            for ((_, start, end), share) in &by_span {
                prop_assert!(*share == end - start || estimated && *share < end - start);
            }
            // All units together are the GPU.
            let compute = |shape: &UnitShape| i64::from(shape.slices(&gpu("GPU-A")).0);
            let weighed: i64 = pieces.iter().map(|piece| piece.share_us * compute(&piece.unit.shape)).sum();
            let length = before.map_or(0, |before| sample.at_us - before);
            if sample.gpus["GPU-A"].seen == Seen::NotRead {
                prop_assert_eq!(weighed, 0);
            } else {
                // The first look at a lost GPU does not say into what it is cut.
                let known = pieces.is_empty() == (weighed == 0);
                prop_assert!(known && (weighed == 7 * length || length > 30 * S && weighed < 7 * length || weighed == 0));
                prop_assert!(weighed > 0 || length > 30 * S || !was_cut);
                was_cut |= matches!(sample.gpus["GPU-A"].seen, Seen::Units(_));
                before = Some(sample.at_us);
            }
            let measured: u64 = pieces.iter().filter_map(|piece| piece.telemetry.energy_mj).map(|energy| energy.total).sum();
            prop_assert!(measured <= counter);
            told += pieces.iter().map(|piece| piece.share_us).sum::<i64>();
            segments.take(&pieces, sample.at_us, 0, &cuts);
        }
        segments.finish_all();
        prop_assert_eq!(segments.finished().map(|named| named.segment.share_us).sum::<i64>(), told);
        for named in segments.finished() {
            let segment = &named.segment;
            prop_assert!(segment.share_us <= segment.end_us - segment.start_us);
                        prop_assert_eq!(segment.start_us.div_euclid(HOUR_US), (segment.end_us - 1).div_euclid(HOUR_US));
        }
    }
}
