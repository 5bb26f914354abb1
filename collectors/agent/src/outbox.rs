//! What waits between looking and sending: the spool, the newest report of what is open, and what the service answered.
//!
//! One thread looks and puts; another sends and takes. Neither waits for the other longer than for a write to the disk, so that an
//! outage of the service changes nothing at the looks.

use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gpuledger_wire::{Answer, Clocks, Report};

use crate::spool::{Kept, Place, Spool, Stored};

/// What waits.
#[derive(Debug)]
pub struct Outbox {
    boot_id: String,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    spool: Spool,
    head: Option<Report>,
    answers: Vec<Answer>,
    tally: Tally,
    puts: u64,
    ends: bool,
}

/// What came of reports since the start, and what waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Reports that the service took.
    pub reports_taken: u64,
    /// Reports that it did not take, or that did not reach it.
    pub reports_failed: u64,
    /// Finished segments that the service refused or holds with other content. They are dead letters.
    pub records_refused: u64,
    /// When the last report was taken, in microseconds since the boot.
    pub last_taken_us: Option<i64>,
    /// Reports on disk.
    pub spool_reports: u64,
    /// Bytes of them.
    pub spool_bytes: u64,
    /// Writes to the disk that failed.
    pub spool_failures: u64,
}

impl Outbox {
    /// What waits on a node, in this boot.
    #[must_use]
    pub fn new(spool: Spool, boot_id: impl Into<String>) -> Outbox {
        let state = State { spool, head: None, answers: Vec::new(), tally: Tally::default(), puts: 0, ends: false };
        Outbox { boot_id: boot_id.into(), state: Mutex::new(state), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is whole before anything can fail.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a report, on disk as far as the disk takes it, and wakes who sends. `clock_is_off` is what the service last said of the clock
    /// by which it is placed.
    pub fn put(&self, mut report: Report, clock_is_off: bool) -> Kept {
        let mut state = self.state();
        let kept = state.spool.put(&report, clock_is_off);
        state.tally.spool_failures += count(kept.failures.len());
        if kept.finished {
            report.segments = Vec::new();
        }
        state.head = Some(report);
        state.puts += 1;
        drop(state);
        self.changed.notify_all();
        kept
    }

    /// Says that nothing more is put.
    pub fn end(&self) {
        self.state().ends = true;
        self.changed.notify_all();
    }

    /// Whether nothing more is put.
    pub fn ends(&self) -> bool {
        self.state().ends
    }

    /// Waits until something is put, or the end.
    pub fn wait(&self) {
        let state = self.state();
        let puts = state.puts;
        let nothing = |state: &mut State| state.puts == puts && !state.ends && state.head.is_none();
        drop(self.changed.wait_while(state, nothing));
    }

    /// Waits for as long, or until the end.
    pub fn pause(&self, delay: Duration) {
        let until = Instant::now() + delay;
        let mut state = self.state();
        while !state.ends {
            let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) else {
                return;
            };
            state = match self.changed.wait_timeout(state, left) {
                Ok((state, _)) => state,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }

    /// What the service answered since this was last asked. It has the records of segments that are in memory alone.
    pub fn answers(&self) -> Vec<Answer> {
        std::mem::take(&mut self.state().answers)
    }

    /// What came of reports, and what waits.
    pub fn tally(&self) -> Tally {
        let state = self.state();
        Tally { spool_reports: count(state.spool.reports()), spool_bytes: state.spool.bytes(), ..state.tally.clone() }
    }

    /// The first report on disk after a place.
    pub(crate) fn after(&self, place: Option<Place>) -> Option<Place> {
        self.state().spool.after(place)
    }

    /// A report on disk, with the clocks of now; and whether the service is to keep it aside, if it takes its clock to be off. Of an
    /// earlier boot whose clock was right it is the clock of now that is off: nobody would move it to its place afterwards.
    pub(crate) fn read(&self, place: Place, now: Clocks) -> io::Result<Result<(Report, bool), String>> {
        let stored = self.state().spool.read(place)?;
        // The clocks of an earlier boot that was off are all that tells of it: they say so again.
        let as_made = |stored: &Stored| stored.clock_is_off && !self.is_of_this_boot(&stored.report);
        Ok(stored.map(|stored| {
            let may_be_aside = stored.clock_is_off || self.is_of_this_boot(&stored.report);
            (if as_made(&stored) { stored.report } else { self.at(stored.report, now) }, may_be_aside)
        }))
    }

    /// The newest report of what is open, with the clocks of now; nobody else gets it.
    pub(crate) fn take_head(&self, now: Clocks) -> Option<Report> {
        self.state().head.take().map(|report| self.at(report, now))
    }

    /// Gives back what could not be sent, unless there is a newer one.
    pub(crate) fn return_head(&self, report: Report) {
        self.state().head.get_or_insert(report);
    }

    /// A report as if it were made now: the service looks at its clocks to see whether the node's are right. The segments of a boot
    /// are placed by one difference between the two clocks; of an earlier boot nothing but it is left.
    ///
    /// What was told last may lie ahead of the wall clock of now, where a clock within the service's bounds was ahead and was set since.
    fn at(&self, report: Report, now: Clocks) -> Report {
        let offset = report.clocks.wall_us.saturating_sub(report.clocks.boot_us);
        let clocks = if self.is_of_this_boot(&report) {
            Clocks { wall_us: now.boot_us.saturating_add(offset), boot_us: now.boot_us }
        } else {
            let ends = report.segments.iter().map(|segment| segment.end_us);
            let wall_us = ends.fold(now.wall_us, i64::max);
            Clocks { wall_us, boot_us: wall_us.saturating_sub(offset) }
        };
        Report { clocks, ..report }
    }

    /// Whether a report was made in this boot.
    fn is_of_this_boot(&self, report: &Report) -> bool {
        report.boot_id == self.boot_id
    }

    /// Notes that a report was taken.
    pub(crate) fn taken(&self, answer: Answer, boot_us: i64) {
        let mut state = self.state();
        state.tally.reports_taken += 1;
        state.tally.last_taken_us = Some(boot_us);
        // Of what needs no acknowledgement, the newest settings are enough.
        state.answers.retain(|before| !before.records.is_empty());
        state.answers.push(answer);
    }

    /// Notes that a report was not taken.
    pub(crate) fn failed(&self) {
        self.state().tally.reports_failed += 1;
    }

    /// Lets go of a report on disk that was answered.
    pub(crate) fn done(&self, place: Place) -> io::Result<()> {
        self.state().spool.done(place)
    }

    /// Lets go of one that cannot be read.
    pub(crate) fn put_aside(&self, place: Place) -> io::Result<()> {
        self.state().spool.put_aside(place)
    }

    /// Keeps what the service did not take for people to look at.
    pub(crate) fn dead_letter(&self, line: &str) -> io::Result<()> {
        let mut state = self.state();
        state.tally.records_refused += 1;
        state.spool.dead_letter(line)
    }
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
