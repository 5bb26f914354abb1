//! Who held what between two looks at a node. Pure: samples in, pieces of time out.
//!
//! What is seen at a look holds until the next one. A job ends at the first look that misses it. One that is new began when its
//! first process did, but not before the look before; where it is alone, those that are gone ended when it began. So no two hold
//! the same time, and each microsecond of each unit is in pieces whose shares, with those of its idle time, sum to it.
//!
//! Where looks are further apart than three intervals there is a gap. A job that is on the unit before and after it held it
//! throughout, estimated; of anything else nothing is said.

use std::collections::{BTreeMap, BTreeSet};

use gpuledger_wire::{Gpu, State, Telemetry, Total};

use crate::counter::Counter;
use crate::sample::{Activity, GpuSample, JobId, Layout, Sample, Seen, UNATTRIBUTED, UnitSample, UnitShape, Use};
use crate::sharing::{Sharing, split};

/// A unit, from its making to its end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnitKey {
    /// The UUID of its GPU.
    pub gpu: String,
    /// What it is.
    pub shape: UnitShape,
    /// When it was first seen, in microseconds since the boot. With the shape, this is its identity.
    pub birth_us: i64,
}

/// A piece of a unit's time, with one holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The unit.
    pub unit: UnitKey,
    /// Who held it; `None` where nobody did.
    pub job: Option<JobId>,
    /// What it was doing.
    pub state: State,
    /// From when, in microseconds since the boot.
    pub start_us: i64,
    /// Until when.
    pub end_us: i64,
    /// Time × share.
    pub share_us: i64,
    /// Of it, with a process of the job on the unit.
    pub active_us: i64,
    /// Of it, inferred over a gap.
    pub estimated_us: i64,
    /// Of it, while the job was suspended.
    pub suspended_us: i64,
    /// What was measured meanwhile.
    pub telemetry: Telemetry,
}

/// What came of a look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributed {
    /// Time since the look before, by GPU and unit, in the order of time.
    pub pieces: Vec<Piece>,
    /// Units that are seen for the first time.
    pub born: Vec<(UnitKey, Gpu)>,
    /// Units that are gone, since this look.
    pub died: Vec<UnitKey>,
    /// Readings that cannot be, which were left out.
    pub rejected_readings: u64,
}

/// How to attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// How far looks are apart, in microseconds.
    pub interval_us: i64,
    /// How jobs on one GPU share it.
    pub sharing: Sharing,
}

/// Remembers the look before.
#[derive(Clone, Debug)]
pub struct Attributor {
    rules: Rules,
    gpus: BTreeMap<String, Watched>,
}

/// A GPU, as of the last look at it.
#[derive(Clone, Debug)]
struct Watched {
    at_us: i64,
    lost: bool,
    /// Whether a look since could not read it, so that what was measured since the last one is not of all the time.
    skipped: bool,
    units: Vec<(UnitKey, UnitSample)>,
    /// When it last was cut so that more of it was in no slice.
    freed_us: Option<i64>,
    /// Since when it waits for a reset.
    pending_us: Option<i64>,
    energy: Counter,
}

/// How many intervals between two looks are a gap, if there are more.
const GAP_INTERVALS: i64 = 3;
/// How long a part that is in no slice is being cut anew, and no longer.
const CUTTING_US: i64 = 600_000_000;
const PERCENT: i64 = 100;

/// A span of time between two looks, with who is there.
struct Span<'a> {
    unit: &'a UnitKey,
    start_us: i64,
    end_us: i64,
    users: BTreeMap<JobId, Use>,
    estimated: bool,
}

impl Attributor {
    /// Begins without a look.
    #[must_use]
    pub const fn new(rules: Rules) -> Attributor {
        Attributor { rules, gpus: BTreeMap::new() }
    }

    /// How to attribute from now on.
    pub fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
    }

    /// From when on a look at this sample tells of time: the last reading of the GPU that was read longest ago, of those that it reads.
    #[must_use]
    pub fn tells_from_us(&self, sample: &Sample) -> Option<i64> {
        let read = sample.gpus.iter().filter(|(_, gpu)| gpu.seen != Seen::NotRead);
        read.filter_map(|(uuid, _)| Some(self.gpus.get(uuid)?.at_us)).min()
    }

    /// From when on any later look may tell of time.
    #[must_use]
    pub fn may_tell_from_us(&self) -> Option<i64> {
        self.gpus.values().map(|watched| watched.at_us).min()
    }

    /// Attributes the time since the look before. No piece crosses one of `cuts_us`, instants since the boot in ascending order.
    pub fn look(&mut self, sample: &Sample, cuts_us: &[i64]) -> Attributed {
        let mut out = Attributed::default();
        for (uuid, gpu) in &sample.gpus {
            if gpu.seen == Seen::NotRead {
                if let Some(watched) = self.gpus.get_mut(uuid) {
                    watched.skipped = true;
                }
                continue;
            }
            let before = self.gpus.remove(uuid);
            let now = watch(uuid, sample.at_us, gpu, before.as_ref(), &mut out);
            if let Some(before) = &before {
                self.between(before, &now, gpu, cuts_us, &mut out);
            }
            self.gpus.insert(uuid.clone(), now);
        }
        out
    }

    /// The pieces between two looks at a GPU.
    fn between(&self, before: &Watched, now: &Watched, sample: &GpuSample, cuts_us: &[i64], out: &mut Attributed) {
        let (start_us, end_us) = (before.at_us, now.at_us);
        if end_us <= start_us {
            return;
        }
        let gap = end_us.saturating_sub(start_us) > self.rules.interval_us.saturating_mul(GAP_INTERVALS);
        let first = out.pieces.len();
        for (unit, was) in &before.units {
            let is =
                now.units.iter().find(|(key, _)| key == unit).map(|(_, sample)| &sample.users).filter(|_| !now.lost);
            let none = BTreeMap::new();
            let spans = match (gap, before.lost) {
                (true, true) => Vec::new(),
                (true, false) => stayed(unit, (start_us, end_us), &was.users, is.unwrap_or(&none)),
                (false, true) => vec![Span { unit, start_us, end_us, users: BTreeMap::new(), estimated: false }],
                (false, false) => {
                    // Accounts of processes tell the GPU and not the slice.
                    let brief: &[(i64, i64)] = if unit.shape == UnitShape::Full { &sample.brief_us } else { &[] };
                    spans(unit, (start_us, end_us), (&was.users, is.unwrap_or(&none)), brief)
                }
            };
            for span in spans.into_iter().flat_map(|span| cut(span, cuts_us)) {
                self.pieces(before, was, &span, out);
            }
        }
        let pieces = out.pieces.get_mut(first..).unwrap_or_default();
        if let Some(percent) = sample.utilisation_percent.filter(|_| !before.lost && !gap) {
            for piece in pieces.iter_mut().filter(|piece| piece.unit.shape == UnitShape::Full) {
                let total = i128::from(piece.share_us) * i128::from(percent) / i128::from(PERCENT);
                piece.telemetry.utilisation = total_of(total, piece.share_us);
            }
        }
        if !before.lost && !before.skipped && !gap {
            for piece in pieces.iter_mut().filter(|piece| piece.state == State::Held) {
                let unit = now.units.iter().find(|(key, _)| *key == piece.unit).map(|(_, unit)| unit);
                if let Some(activity) = unit.and_then(|unit| unit.activity) {
                    note_activity(piece, activity);
                }
            }
        }
        if let Some(energy) = now.energy.since_last().filter(|_| !before.lost && !gap) {
            spread_energy(energy, pieces, &sample.gpu);
        }
    }

    /// The pieces of a span: one for each job, and what is left.
    fn pieces(&self, gpu: &Watched, unit: &UnitSample, span: &Span<'_>, out: &mut Attributed) {
        let length_us = span.end_us - span.start_us;
        let shares = match span.unit.shape {
            UnitShape::Full => self.rules.sharing.shares(&span.users),
            // Slices are the shares; several jobs on one share it equally.
            UnitShape::Slice { .. } | UnitShape::Remainder { .. } => Sharing::default().shares(&span.users),
        };
        let weights: Vec<u64> = shares.parts.iter().map(|(_, weight)| *weight).collect();
        let mut left_us = length_us;
        for ((job, _), share_us) in shares.parts.into_iter().zip(split(length_us, &weights, shares.whole)) {
            left_us -= share_us;
            let usage = span.users.get(&job);
            if share_us > 0 {
                let part = |is: bool| if is { share_us } else { 0 };
                out.pieces.push(Piece {
                    active_us: part(usage.is_some_and(|usage| usage.active)),
                    estimated_us: part(span.estimated),
                    suspended_us: part(usage.is_some_and(|usage| usage.suspended)),
                    telemetry: Telemetry {
                        peak_memory_bytes: usage.and_then(|usage| usage.memory_bytes),
                        ..Telemetry::default()
                    },
                    ..piece(span.unit, Some(job), State::Held, (span.start_us, span.end_us), share_us)
                });
            }
        }
        if left_us == 0 || span.estimated {
            return;
        }
        if !span.users.is_empty() {
            out.pieces.push(piece(span.unit, None, State::Idle, (span.start_us, span.end_us), left_us));
            return;
        }
        // Nobody is there: it is being cut anew for a while, and then idle or stranded.
        let until_us = gpu.out_until(&span.unit.shape).clamp(span.start_us, span.end_us);
        let later = if !unit.has_room && matches!(span.unit.shape, UnitShape::Remainder { .. }) {
            State::Stranded
        } else {
            State::Idle
        };
        for (state, start, end) in [(State::OutOfService, span.start_us, until_us), (later, until_us, span.end_us)] {
            if end > start {
                out.pieces.push(piece(span.unit, None, state, (start, end), end - start));
            }
        }
    }
}

impl Watched {
    /// Until when a unit that nobody holds is out of service.
    fn out_until(&self, shape: &UnitShape) -> i64 {
        if self.lost {
            return i64::MAX;
        }
        let freed = self.freed_us.filter(|_| matches!(shape, UnitShape::Remainder { .. }));
        [freed, self.pending_us].into_iter().flatten().max().map_or(i64::MIN, |since| since.saturating_add(CUTTING_US))
    }
}

fn piece(unit: &UnitKey, job: Option<JobId>, state: State, (start_us, end_us): (i64, i64), share_us: i64) -> Piece {
    Piece {
        unit: unit.clone(),
        job,
        state,
        start_us,
        end_us,
        share_us,
        active_us: 0,
        estimated_us: 0,
        suspended_us: 0,
        telemetry: Telemetry::default(),
    }
}

/// What is remembered of a GPU after a look: units that were there keep their birth.
fn watch(uuid: &str, at_us: i64, gpu: &GpuSample, before: Option<&Watched>, out: &mut Attributed) -> Watched {
    let mut energy = before.map(|before| before.energy).unwrap_or_default();
    let was_lost = before.is_some_and(|before| before.lost);
    out.rejected_readings += u64::from(energy.take(gpu.energy_mj, was_lost).is_err());
    let Seen::Units(layout) = &gpu.seen else {
        let units = before.map(|before| before.units.clone()).unwrap_or_default();
        let (freed_us, pending_us) = before.map_or((None, None), |before| (before.freed_us, before.pending_us));
        return Watched { at_us, lost: true, skipped: false, units, freed_us, pending_us, energy };
    };
    let known = |shape: &UnitShape| before?.units.iter().map(|(key, _)| key).find(|key| key.shape == *shape).cloned();
    let mut units = Vec::new();
    for unit in &layout.units {
        let key = known(&unit.shape).unwrap_or_else(|| {
            let key = UnitKey { gpu: uuid.to_owned(), shape: unit.shape.clone(), birth_us: at_us };
            out.born.push((key.clone(), gpu.gpu.clone()));
            key
        });
        units.push((key, unit.clone()));
    }
    let here: BTreeSet<&UnitKey> = units.iter().map(|(key, _)| key).collect();
    let gone = before.iter().flat_map(|before| &before.units).map(|(key, _)| key).filter(|key| !here.contains(key));
    out.died.extend(gone.cloned());
    let pending_us = layout.mode_pending.then(|| before.and_then(|before| before.pending_us).unwrap_or(at_us));
    Watched { at_us, lost: false, skipped: false, freed_us: freed(at_us, layout, before), units, pending_us, energy }
}

/// When more of a GPU came to be in no slice. At the first look it is taken to have been so for long.
fn freed(at_us: i64, layout: &Layout, before: Option<&Watched>) -> Option<i64> {
    let before = before?;
    let remainder = |shape: &UnitShape| match shape {
        UnitShape::Remainder { slices } => *slices,
        UnitShape::Full | UnitShape::Slice { .. } => (0, 0),
    };
    let most = |shapes: &mut dyn Iterator<Item = &UnitShape>| shapes.map(remainder).max().unwrap_or((0, 0));
    let was = most(&mut before.units.iter().map(|(key, _)| &key.shape));
    let is = most(&mut layout.units.iter().map(|unit| &unit.shape));
    if is > was { Some(at_us) } else { before.freed_us }
}

/// Spans between two looks that are no gap: from who was there to who is. Where nobody was, `brief` tells when processes were
/// that nobody saw.
fn spans<'a>(
    unit: &'a UnitKey,
    (start_us, end_us): (i64, i64),
    (was, is): (&BTreeMap<JobId, Use>, &BTreeMap<JobId, Use>),
    brief: &[(i64, i64)],
) -> Vec<Span<'a>> {
    // A job that is new reaches back to its start.
    let began = |usage: &Use| usage.since_us.unwrap_or(end_us).clamp(start_us, end_us);
    // Those that are gone ended at this look, or when a newcomer began that is alone.
    let alone = match is.iter().next() {
        Some((job, usage)) if is.len() == 1 && !was.contains_key(job) => Some(began(usage)),
        _ => None,
    };
    let mut present: Vec<(&JobId, i64, i64, Use)> = Vec::new();
    for (job, before) in was {
        match is.get(job) {
            Some(now) => present.push((
                job,
                start_us,
                end_us,
                Use { suspended: before.suspended, active: before.active, ..*now },
            )),
            None => present.push((job, start_us, alone.unwrap_or(end_us), *before)),
        }
    }
    for (job, usage) in is.iter().filter(|(job, _)| !was.contains_key(*job)) {
        present.push((job, began(usage), end_us, *usage));
    }
    let mut instants: BTreeSet<i64> = [start_us, end_us].into();
    instants.extend(present.iter().flat_map(|(_, from, until, _)| [*from, *until]));
    instants.extend(brief.iter().flat_map(|(from, until)| [*from, *until]).map(|at| at.clamp(start_us, end_us)));
    let instants: Vec<i64> = instants.into_iter().collect();
    let span = |pair: &[i64]| {
        let &[from, until] = pair else { return None };
        let there = present.iter().filter(|(_, start, end, _)| *start <= from && until <= *end);
        let mut users: BTreeMap<JobId, Use> = there.map(|(job, _, _, usage)| ((*job).clone(), *usage)).collect();
        if users.is_empty() && brief.iter().any(|(start, end)| *start <= from && until <= *end) {
            users.insert(UNATTRIBUTED.into(), SEEN_BY_NOBODY);
        }
        Some(Span { unit, start_us: from, end_us: until, users, estimated: false })
    };
    instants.windows(2).filter_map(span).collect()
}

/// The use of a process that only accounts tell of.
const SEEN_BY_NOBODY: Use =
    Use { since_us: None, active: true, suspended: false, memory_bytes: None, sm_percent: None };

/// Over a gap: who is there before and after it.
fn stayed<'a>(
    unit: &'a UnitKey,
    (start_us, end_us): (i64, i64),
    was: &BTreeMap<JobId, Use>,
    is: &BTreeMap<JobId, Use>,
) -> Vec<Span<'a>> {
    let stayed = was.iter().filter_map(|(job, before)| {
        let now = is.get(job)?;
        // Of the time between nobody knows whether it was suspended.
        Some((job.clone(), Use { suspended: false, active: before.active && now.active, ..*now }))
    });
    let users: BTreeMap<JobId, Use> = stayed.collect();
    if users.is_empty() { Vec::new() } else { vec![Span { unit, start_us, end_us, users, estimated: true }] }
}

/// Cuts a span at instants within it.
fn cut<'a>(span: Span<'a>, cuts_us: &[i64]) -> Vec<Span<'a>> {
    let within = cuts_us.iter().copied().filter(|cut| *cut > span.start_us && *cut < span.end_us);
    let instants: Vec<i64> = std::iter::once(span.start_us).chain(within).chain([span.end_us]).collect();
    let one = |pair: &[i64]| {
        let &[start_us, end_us] = pair else { return None };
        Some(Span { unit: span.unit, start_us, end_us, users: span.users.clone(), estimated: span.estimated })
    };
    instants.windows(2).filter_map(one).collect()
}

fn total_of(total: i128, measured_us: i64) -> Option<Total> {
    Some(Total { total: u64::try_from(total).ok()?, measured_us })
}

/// Spreads a GPU's energy over its pieces by compute slices and share. The parts sum to it.
fn spread_energy(energy_mj: u64, pieces: &mut [Piece], gpu: &Gpu) {
    let weight = |piece: &Piece| {
        let (compute, _) = piece.unit.shape.slices(gpu);
        u64::try_from(piece.share_us).unwrap_or(0).saturating_mul(u64::from(compute))
    };
    let weights: Vec<u64> = pieces.iter().map(weight).collect();
    let whole = weights.iter().fold(0u64, |sum, weight| sum.saturating_add(*weight));
    let Ok(energy) = i64::try_from(energy_mj) else { return };
    if whole == 0 {
        return;
    }
    for (piece, part) in pieces.iter_mut().zip(split(energy, &weights, whole)) {
        piece.telemetry.energy_mj = total_of(i128::from(part), piece.share_us);
    }
}

/// Notes what the parts of a unit did during a piece of its time. Who shares it shares that.
fn note_activity(piece: &mut Piece, activity: Activity) {
    const MILLION: i128 = 1_000_000;
    let share_us = piece.share_us;
    let of = |ppm: Option<u32>| total_of(i128::from(share_us) * i128::from(ppm?) / MILLION, share_us);
    let telemetry = &mut piece.telemetry;
    telemetry.sm_activity = of(activity.sm_ppm);
    telemetry.sm_occupancy = of(activity.occupancy_ppm);
    telemetry.tensor = of(activity.tensor_ppm);
    telemetry.memory_activity = of(activity.memory_ppm);
}
