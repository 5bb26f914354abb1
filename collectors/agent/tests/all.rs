//! Who held what, from samples, and what the program says of it. ATT, MIG, SHR and REL are public cases from bug reports.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

#[path = "all/binary.rs"]
mod binary;
#[path = "all/cases.rs"]
mod cases;
#[path = "all/law.rs"]
mod law;
#[path = "all/machine.rs"]
mod machine;
#[path = "all/memory.rs"]
mod memory;
#[path = "all/sending.rs"]
mod sending;
#[path = "all/waiting.rs"]
mod waiting;

use std::collections::BTreeMap;

use gpuledger_agent::attribute::{Attributor, Piece, Rules};
use gpuledger_agent::sample::{GpuSample, Layout, Sample, Seen, UNATTRIBUTED, UnitSample, UnitShape, Use};
use gpuledger_agent::segments::{HOUR_US, Named, Segments, cuts_between};
use gpuledger_agent::sharing::Sharing;
use gpuledger_wire::{Gpu, State};

const S: i64 = 1_000_000;

fn rules(interval_seconds: i64) -> Rules {
    Rules { interval_us: interval_seconds * S, sharing: Sharing::default() }
}

fn gpu(uuid: &str) -> Gpu {
    Gpu { uuid: uuid.into(), model: "H100".into(), compute_slices: 7, memory_slices: 8 }
}

type Users<'a> = &'a [(&'a str, Option<i64>)];

fn unit(shape: UnitShape, users: Users<'_>) -> UnitSample {
    let usage = |since_us| Use { since_us, active: true, suspended: false, memory_bytes: None, sm_percent: None };
    let users = users.iter().map(|(job, since)| ((*job).to_owned(), usage(*since))).collect();
    UnitSample { shape, has_room: true, users, activity: None }
}

fn slice(number: u32, profile: &str, compute: u32, users: Users<'_>) -> UnitSample {
    let shape = UnitShape::Slice {
        uuid: format!("MIG-{number}"),
        gpu_instance: number,
        compute_instance: 0,
        profile: profile.into(),
        slices: (compute, compute),
    };
    unit(shape, users)
}

fn remainder(compute: u32) -> UnitSample {
    unit(UnitShape::Remainder { slices: (compute, compute + 1) }, &[])
}

fn seen(units: Vec<UnitSample>) -> Seen {
    Seen::Units(Layout { units, mode_pending: false })
}

/// One GPU at a second.
fn at(second: i64, state: Seen) -> Sample {
    let sample =
        GpuSample { gpu: gpu("GPU-A"), seen: state, utilisation_percent: None, energy_mj: None, brief_us: Vec::new() };
    Sample { at_us: second * S, gpus: BTreeMap::from([("GPU-A".to_owned(), sample)]) }
}

fn whole(users: Users<'_>) -> Seen {
    seen(vec![unit(UnitShape::Full, users)])
}

fn pieces_of(samples: &[Sample], interval_seconds: i64) -> Vec<Piece> {
    let mut attributor = Attributor::new(rules(interval_seconds));
    samples.iter().flat_map(|sample| attributor.look(sample, &[]).pieces).collect()
}

fn pieces(samples: &[Sample]) -> Vec<Piece> {
    pieces_of(samples, 10)
}

/// Share by holder or state, in seconds of the unit times its compute slices of seven.
fn sums(pieces: &[Piece]) -> BTreeMap<String, i64> {
    let mut sums = BTreeMap::new();
    for piece in pieces {
        let holder = piece.job.clone().unwrap_or_else(|| format!("{:?}", piece.state));
        let (compute, _) = piece.unit.shape.slices(&gpu("GPU-A"));
        *sums.entry(holder).or_insert(0) += piece.share_us * i64::from(compute);
    }
    sums.values_mut().for_each(|sum| *sum /= S);
    sums
}

fn of(expected: &[(&str, i64)]) -> BTreeMap<String, i64> {
    expected.iter().map(|(holder, seconds)| ((*holder).to_owned(), *seconds)).collect()
}

#[test]
fn att_01_a_newcomer_that_is_alone_begins_when_it_started_and_the_sum_is_forty() {
    // Looked at each ten seconds from 12:00:00; the second process started at 16.55 s.
    let samples = [
        at(0, whole(&[("9001", Some(-25 * S))])),
        at(10, whole(&[("9001", Some(-25 * S))])),
        at(20, whole(&[("9002", Some(16_550_000))])),
        at(30, whole(&[("9002", Some(16_550_000))])),
        at(40, whole(&[])),
    ];
    let found = pieces(&samples);
    let held = |job: &str| found.iter().filter(|p| p.job.as_deref() == Some(job)).map(|p| p.share_us).sum::<i64>();
    assert_eq!((held("9001"), held("9002")), (16_550_000, 23_450_000));
    assert_eq!(held("9001") + held("9002"), 40 * S);
}

#[test]
fn a_newcomer_beside_others_shares_from_its_start_and_one_that_leaves_holds_until_it_is_missed() {
    let samples = [
        at(0, whole(&[("a", Some(0)), ("b", Some(0))])),
        at(10, whole(&[("a", Some(0)), ("c", Some(4 * S))])),
        at(20, whole(&[("a", Some(0))])),
    ];
    // 0 to 4: a, b. 4 to 10: a, b, c. 10 to 20: a, c.
    assert_eq!(sums(&pieces(&samples)), of(&[("a", 7 * 9), ("b", 7 * 4), ("c", 7 * 7)]));
}

#[test]
fn mig_01_an_instance_that_is_made_again_is_another_unit_and_the_time_between_is_out_of_service() {
    let minute = |m: i64, units| at(m * 60, seen(units));
    let first = (0..25).map(|m| minute(m, vec![slice(3, "3g.40gb", 3, &[("a", None)]), remainder(4)]));
    let none = (25..30).map(|m| minute(m, vec![remainder(7)]));
    let second = (30..=60).map(|m| minute(m, vec![slice(3, "1g.10gb", 1, &[("b", None)]), remainder(6)]));
    let mut attributor = Attributor::new(rules(60));
    let (mut found, mut born, mut died) = (Vec::new(), 0, 0);
    for sample in first.chain(none).chain(second) {
        let attributed = attributor.look(&sample, &[]);
        found.extend(attributed.pieces);
        born += attributed.born.len();
        died += attributed.died.len();
    }
    // Of seven: a 1,500 s of 3, b 1,800 s of 1; five minutes of 7 and five of 6 are being cut; the rest is idle.
    let out = 300 * 7 + 300 * 6;
    let idle = 3_600 * 7 - 4_500 - 1_800 - out;
    assert_eq!(sums(&found), of(&[("a", 4_500), ("b", 1_800), ("OutOfService", out), ("Idle", idle)]));
    assert_eq!((born, died), (5, 3));
}

#[test]
fn mig_05_what_a_compute_instance_does_not_use_is_idle() {
    let of_instance = |ci, compute, users: Users<'_>| {
        let shape = UnitShape::Slice {
            uuid: format!("MIG-{ci}"),
            gpu_instance: 1,
            compute_instance: ci,
            profile: format!("{compute}c.3g.40gb"),
            slices: (compute, compute),
        };
        unit(shape, users)
    };
    let at_minute = |minute: i64| {
        let y: Users<'_> = if minute < 30 { &[("Y", None)] } else { &[] };
        at(minute * 60, seen(vec![of_instance(0, 1, &[("X", None)]), of_instance(1, 2, y), remainder(4)]))
    };
    let found = pieces_of(&(0..=60).map(at_minute).collect::<Vec<_>>(), 60);
    assert_eq!(sums(&found), of(&[("X", 3_600), ("Y", 3_600), ("Idle", 3_600 + 4 * 3_600)]));
}

#[test]
fn a_gap_is_held_by_who_is_on_both_sides_and_otherwise_nothing_is_said() {
    let samples = [
        at(0, whole(&[("stays", Some(0)), ("goes", Some(0))])),
        at(40, whole(&[("stays", Some(0)), ("comes", Some(20 * S))])),
        at(100, whole(&[])),
        at(110, whole(&[])),
    ];
    let found = pieces(&samples);
    assert_eq!(sums(&found), of(&[("stays", 7 * 40), ("Idle", 7 * 10)]));
    assert_eq!(found.iter().map(|piece| piece.estimated_us).sum::<i64>(), 40 * S);
    // Three intervals are no gap, and a look that failed is no look.
    let held = || whole(&[("a", None)]);
    let found = pieces(&[at(0, held()), at(10, Seen::NotRead), at(20, Seen::NotRead), at(30, held())]);
    assert_eq!((sums(&found), found[0].estimated_us), (of(&[("a", 7 * 30)]), 0));
}

#[test]
fn rel_02_a_lost_gpu_is_neither_used_nor_idle() {
    let mut samples: Vec<Sample> = [0, 10, 20].iter().map(|second| at(*second, whole(&[("job", None)]))).collect();
    samples.extend([30, 40, 50, 60].iter().map(|second| at(*second, Seen::Lost)));
    samples.push(at(70, whole(&[])));
    assert_eq!(sums(&pieces(&samples)), of(&[("job", 7 * 30), ("OutOfService", 7 * 40)]));
}

#[test]
fn what_waits_for_a_reset_or_has_no_room_is_told_apart() {
    let layout = |has_room, mode_pending| {
        let rest = UnitSample { has_room, ..remainder(1) };
        Seen::Units(Layout { units: vec![slice(1, "6g", 6, &[]), rest], mode_pending })
    };
    // At the first look the rest is taken to have been there for long.
    let samples = [(0, false, false), (10, true, false), (20, true, true), (30, true, true)];
    let found = pieces(&samples.map(|(second, has_room, pending)| at(second, layout(has_room, pending))));
    let states: Vec<(i64, State)> = found.iter().map(|piece| (piece.start_us / S, piece.state)).collect();
    let (idle, out) = (State::Idle, State::OutOfService);
    assert_eq!(states, [(0, idle), (0, State::Stranded), (10, idle), (10, idle), (20, out), (20, out)]);
    let waits = [0, 590, 610].map(|second| at(second, layout(true, true)));
    let found = pieces_of(&waits, 600);
    let of_slice = found.iter().filter(|piece| matches!(piece.unit.shape, UnitShape::Slice { .. }));
    let spans: Vec<_> = of_slice.map(|piece| (piece.start_us / S, piece.end_us / S, piece.state)).collect();
    assert_eq!(spans, [(0, 590, out), (590, 600, out), (600, 610, idle)], "for ten minutes, and no longer");
}

#[test]
fn energy_is_split_by_slices_and_share_and_sums_to_the_counter() {
    let both: Users<'_> = &[("a", None), ("b", None)];
    let units = || seen(vec![slice(1, "3g", 3, both), slice(2, "2g", 2, &[("c", None)]), remainder(2)]);
    let mut samples = [at(0, units()), at(10, units())];
    for (sample, energy) in samples.iter_mut().zip([1_000_000, 1_000_701]) {
        sample.gpus.get_mut("GPU-A").unwrap().energy_mj = Some(energy);
    }
    let energy: Vec<u64> = pieces(&samples).iter().map(|piece| piece.telemetry.energy_mj.unwrap().total).collect();
    assert_eq!(energy.iter().sum::<u64>(), 701);
    // 701 × 3/14, twice, and 701 × 2/7, twice: 150.21, 150.21, 200.29, 200.29.
    assert_eq!(energy, [150, 150, 201, 200]);
}

#[test]
fn use_without_an_owner_is_held_at_once() {
    let found = pieces(&[at(0, whole(&[])), at(10, whole(&[(UNATTRIBUTED, None)])), at(20, whole(&[]))]);
    assert_eq!(sums(&found), of(&[("Idle", 70), (UNATTRIBUTED, 70)]));
}

#[test]
fn segments_end_at_cuts_and_breaks_and_are_numbered_within_their_hour() {
    let mut attributor = Attributor::new(rules(10));
    let mut segments = Segments::default();
    // The node was booted 20 s before an hour.
    let offset = 500_000 * HOUR_US - 20 * S;
    let mut before = None;
    for (job, second) in [("a", 0), ("a", 10), ("a", 20), ("a", 30), ("", 40), ("a", 50), ("a", 60)] {
        let sample = at(second, if job.is_empty() { whole(&[]) } else { whole(&[(job, None)]) });
        let cuts = before.map_or(Vec::new(), |from| cuts_between(from + offset, sample.at_us + offset, None));
        let boot_cuts: Vec<i64> = cuts.iter().map(|cut| cut - offset).collect();
        let pieces = attributor.look(&sample, &boot_cuts).pieces;
        segments.take(&pieces, sample.at_us, offset, &cuts);
        before = Some(sample.at_us);
    }
    let told = |named: &Named| {
        let segment = &named.segment;
        let hour = (named.name.hour_us - offset) / S;
        (hour, named.name.number, named.job.clone(), (segment.start_us - offset) / S, (segment.end_us - offset) / S)
    };
    let a = || Some("a".to_owned());
    let finished: Vec<_> = segments.finished().map(told).collect();
    let hour = 20 - 3_600;
    assert_eq!(finished, [(hour, 0, a(), 0, 20), (20, 0, a(), 20, 40), (20, 1, None, 40, 50)]);
    assert_eq!(segments.open().map(told).collect::<Vec<_>>(), [(20, 2, a(), 50, 60)]);
    let first = segments.finished().next().unwrap().name;
    assert!(segments.acknowledge(first).is_some() && segments.acknowledge(first).is_none());
    segments.finish_all();
    assert_eq!((segments.finished().count(), segments.open().count()), (3, 0));
    let (start, end) = (HOUR_US - S, HOUR_US + HOUR_US / 4 + S);
    assert_eq!(cuts_between(start, end, None), [HOUR_US, HOUR_US * 5 / 4]);
    assert_eq!(cuts_between(start, end, Some(&[HOUR_US + 7])), [HOUR_US, HOUR_US + 7]);
}

#[test]
fn a_gpu_that_is_not_read_beside_an_hours_edge_is_cut_there_and_numbers_of_that_hour_are_kept() {
    let mut attributor = Attributor::new(rules(10));
    let mut segments = Segments::default();
    // The node was booted 20 s before an hour; the GPU is not read for two hours, and held before and after.
    let offset = 500_000 * HOUR_US - 20 * S;
    let two_hours = 2 * 3_600;
    let looks = [(0, true), (10, true), (21, false), (4_000, false), (two_hours, true), (two_hours + 10, true)];
    for (second, read) in looks {
        let sample = at(second, if read { whole(&[("a", Some(0))]) } else { Seen::NotRead });
        let from = attributor.tells_from_us(&sample).unwrap_or(sample.at_us);
        let cuts = cuts_between(from + offset, sample.at_us + offset, Some(&[]));
        let boot_cuts: Vec<i64> = cuts.iter().map(|cut| cut - offset).collect();
        let pieces = attributor.look(&sample, &boot_cuts).pieces;
        segments.take(&pieces, sample.at_us, offset, &cuts);
        segments.forget_hours_before(attributor.may_tell_from_us().unwrap() + offset);
    }
    segments.finish_all();
    let told: Vec<_> = segments
        .finished()
        .map(|named| {
            let (start, end) = (named.segment.start_us - offset, named.segment.end_us - offset);
            assert!(end - start <= HOUR_US && (start + offset) / HOUR_US == (end + offset - 1) / HOUR_US);
            (start / S, end / S, named.name.number)
        })
        .collect();
    // The second piece of the first hour has a number of its own, though the hour was over when it became known.
    assert_eq!(told, [(0, 10, 0), (10, 20, 1), (20, 3_620, 0), (3_620, two_hours + 10, 0)]);
}
