//! Segments of pieces: what one unit's holder held within one UTC hour, and their names.
//!
//! A segment goes on as long as the same job holds the same unit without a break, and ends at a cut. Its number counts within
//! its hour, so that hour, node, epoch and number name it for ever. What is still open is the head.

use std::collections::BTreeMap;

use gpuledger_wire::{RecordName, Segment, State, Telemetry, Total};

use crate::attribute::{Piece, UnitKey};
use crate::sample::JobId;

/// An hour, in microseconds.
pub const HOUR_US: i64 = 3_600_000_000;
/// A quarter of an hour: every zone in use is a multiple of it off UTC.
pub const QUARTER_US: i64 = HOUR_US / 4;

/// A segment with what it names in full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its hour and number.
    pub name: RecordName,
    /// Whose time it is.
    pub unit: UnitKey,
    /// Who held it.
    pub job: Option<JobId>,
    /// The segment; its places of unit and job are filled where a report is made.
    pub segment: Segment,
}

/// Open and finished segments of an epoch.
#[derive(Clone, Debug, Default)]
pub struct Segments {
    open: BTreeMap<Key, Named>,
    finished: BTreeMap<RecordName, Named>,
    next: BTreeMap<i64, u32>,
}

/// The name of a segment that is told: its hour is that in which it begins.
#[must_use]
pub const fn name_of(segment: &Segment) -> RecordName {
    RecordName { hour_us: segment.start_us - segment.start_us.rem_euclid(HOUR_US), number: segment.number }
}

type Key = (UnitKey, Option<JobId>, State);

impl Segments {
    /// Takes pieces up to an instant. Instants since the boot and the wall clock's differ by `wall_minus_boot_us`. Pieces do not
    /// cross cuts; `cuts_us`, in wall time, ascending, says where segments end beside the hours.
    pub fn take(&mut self, pieces: &[Piece], until_us: i64, wall_minus_boot_us: i64, cuts_us: &[i64]) {
        for piece in pieces {
            let (start, end) = (piece.start_us + wall_minus_boot_us, piece.end_us + wall_minus_boot_us);
            let key = (piece.unit.clone(), piece.job.clone(), piece.state);
            let goes_on = self.open.get(&key).is_some_and(|open| {
                let cut = cuts_us.contains(&start) || start.rem_euclid(HOUR_US) == 0;
                open.segment.end_us == start && !cut
            });
            if !goes_on {
                self.finish(&key);
                let hour_us = start - start.rem_euclid(HOUR_US);
                let next = self.next.entry(hour_us).or_insert(0);
                let name = RecordName { hour_us, number: *next };
                *next += 1;
                self.open.insert(key.clone(), opened(name, piece, start));
            }
            if let Some(open) = self.open.get_mut(&key) {
                add(&mut open.segment, piece, end);
            }
        }
        let until = until_us + wall_minus_boot_us;
        let ended: Vec<Key> =
            self.open.iter().filter(|(_, open)| open.segment.end_us < until).map(|(key, _)| key.clone()).collect();
        for key in ended {
            self.finish(&key);
        }
    }

    /// Forgets which numbers were given out in hours that ended an hour before an instant of the wall clock, or earlier. Nothing may be
    /// told of them after this.
    pub fn forget_hours_before(&mut self, wall_us: i64) {
        let hour = wall_us - wall_us.rem_euclid(HOUR_US);
        self.next.retain(|known, _| *known >= hour - HOUR_US);
    }

    /// Ends all that is open.
    pub fn finish_all(&mut self) {
        let keys: Vec<Key> = self.open.keys().cloned().collect();
        for key in keys {
            self.finish(&key);
        }
    }

    fn finish(&mut self, key: &Key) {
        if let Some(open) = self.open.remove(key) {
            self.finished.insert(open.name, open);
        }
    }

    /// What is finished and was not acknowledged, by hour and number.
    pub fn finished(&self) -> impl Iterator<Item = &Named> {
        self.finished.values()
    }

    /// What is open.
    pub fn open(&self) -> impl Iterator<Item = &Named> {
        self.open.values()
    }

    /// Forgets a finished segment that was acknowledged; it, if it was there.
    pub fn acknowledge(&mut self, name: RecordName) -> Option<Named> {
        self.finished.remove(&name)
    }
}

fn opened(name: RecordName, piece: &Piece, start_us: i64) -> Named {
    let segment = Segment {
        number: name.number,
        unit: 0,
        job: None,
        state: piece.state,
        start_us,
        end_us: start_us,
        share_us: 0,
        active_us: (piece.state == State::Held).then_some(0),
        estimated_us: 0,
        suspended_us: 0,
        telemetry: Telemetry::default(),
    };
    Named { name, unit: piece.unit.clone(), job: piece.job.clone(), segment }
}

fn add(segment: &mut Segment, piece: &Piece, end_us: i64) {
    segment.end_us = end_us;
    segment.share_us += piece.share_us;
    if let Some(active_us) = &mut segment.active_us {
        *active_us += piece.active_us;
    }
    segment.estimated_us += piece.estimated_us;
    segment.suspended_us += piece.suspended_us;
    let (sum, more) = (&mut segment.telemetry, &piece.telemetry);
    plus(&mut sum.utilisation, more.utilisation);
    plus(&mut sum.energy_mj, more.energy_mj);
    plus(&mut sum.sm_activity, more.sm_activity);
    plus(&mut sum.sm_occupancy, more.sm_occupancy);
    plus(&mut sum.tensor, more.tensor);
    plus(&mut sum.memory_activity, more.memory_activity);
    sum.peak_memory_bytes = sum.peak_memory_bytes.max(more.peak_memory_bytes);
}

fn plus(sum: &mut Option<Total>, more: Option<Total>) {
    let Some(more) = more else { return };
    let sum = sum.get_or_insert(Total { total: 0, measured_us: 0 });
    sum.total = sum.total.saturating_add(more.total);
    sum.measured_us += more.measured_us;
}

/// Hours and other cuts within a time, in ascending order: the instants at which pieces must not go on.
#[must_use]
pub fn cuts_between(start_us: i64, end_us: i64, told: Option<&[i64]>) -> Vec<i64> {
    // Until the service told where to cut, at each quarter.
    let every = if told.is_some() { HOUR_US } else { QUARTER_US };
    let mut cuts: Vec<i64> = Vec::new();
    let mut at = start_us - start_us.rem_euclid(every) + every;
    while at < end_us {
        cuts.push(at);
        at += every;
    }
    cuts.extend(told.unwrap_or_default().iter().copied().filter(|cut| *cut > start_us && *cut < end_us));
    cuts.sort_unstable();
    cuts.dedup();
    cuts
}
