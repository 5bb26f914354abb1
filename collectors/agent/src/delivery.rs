//! How what waits is brought to the service: the oldest first, then what is open, each again until it is taken.
//!
//! A report that is refused as it is, is sent in halves until the record that is to blame stands alone; that one is a dead letter. One
//! that fails for its own sake is passed over for a while, so that nothing holds up the rest for ever.

use std::collections::BTreeMap;
use std::time::Duration;

use gpuledger_wire::{Answer, Clocks, Outcome, RecordCode, Report, Segment};

use crate::outbox::Outbox;
use crate::spool::Place;

/// Why a report was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The service cannot be reached, or takes nothing now; it may say when to try again.
    Later {
        /// Not before.
        after: Option<Duration>,
        /// In words.
        why: String,
    },
    /// This report is not taken now; others may be.
    Held(String),
    /// It will never be taken as it is.
    Never(String),
}

/// What came of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A report went, or was put aside for what it says.
    Went(Option<String>),
    /// There is nothing to send.
    Nothing,
    /// Nothing can be sent for a while.
    Wait {
        /// For how long.
        delay: Duration,
        /// Why, in words.
        why: String,
    },
}

/// Where the delivery is.
#[derive(Clone, Debug, Default)]
pub struct Delivery {
    /// The last report that was passed over: those after it are next.
    passed: Option<Place>,
    /// When it begins again with those that were passed over, in microseconds since the boot.
    again_us: i64,
    /// At which report it failed last, and how often in a row.
    stuck: Option<(Place, u32)>,
    /// How often in a row nothing was taken.
    failures: u32,
}

/// What was said of a report that went, or for how long at least to wait, and why.
type Went = Result<Option<String>, (Option<Duration>, String)>;

/// How often a report is tried in a row before those after it are.
const TRIES: u32 = 3;
/// How long reports are passed over.
const PASSED_OVER_US: i64 = 600_000_000;
const FIRST_DELAY_MS: u64 = 1_000;
const LONGEST_DELAY_MS: u64 = 120_000;

/// How long to wait after so many failures in a row: twice as long each time, up to two minutes, less a random part of up to half, so
/// that the nodes of a cluster do not all come back at once. ("Equal jitter" of M. Brooker, Exponential backoff and jitter, 2015.)
#[must_use]
pub fn delay(failures: u32, random: u32) -> Duration {
    let doubled = FIRST_DELAY_MS.checked_shl(failures.saturating_sub(1).min(16)).unwrap_or(LONGEST_DELAY_MS);
    let most = doubled.min(LONGEST_DELAY_MS);
    Duration::from_millis(most / 2 + (most / 2 * u64::from(random)) / u64::from(u32::MAX))
}

impl Delivery {
    /// Sends the next report. `random` is drawn anew for each step.
    pub fn step(
        &mut self,
        outbox: &Outbox,
        now: Clocks,
        random: u32,
        mut send: impl FnMut(&Report) -> Result<Answer, Failure>,
    ) -> Step {
        // Those after them come first, however long that takes.
        if self.passed.is_some() && now.boot_us >= self.again_us && outbox.after(self.passed).is_none() {
            self.passed = None;
        }
        let went = match outbox.after(self.passed) {
            Some(place) => self.kept(outbox, place, now, &mut send),
            None => match outbox.take_head(now) {
                Some(head) => self.head(outbox, head, &mut send),
                None => return Step::Nothing,
            },
        };
        match went {
            Ok(said) => {
                self.failures = 0;
                Step::Went(said)
            }
            Err((after, why)) => {
                outbox.failed();
                self.failures = self.failures.saturating_add(1);
                Step::Wait { delay: delay(self.failures, random).max(after.unwrap_or_default()), why }
            }
        }
    }

    /// Sends a report that is on disk.
    fn kept(
        &mut self,
        outbox: &Outbox,
        place: Place,
        now: Clocks,
        send: &mut impl FnMut(&Report) -> Result<Answer, Failure>,
    ) -> Went {
        let (report, may_be_aside) = match outbox.read(place, now) {
            Ok(Ok(read)) => read,
            Ok(Err(why)) => {
                let put =
                    outbox.put_aside(place).map_or_else(|error| error.to_string(), |()| "it was put aside".into());
                return Ok(Some(format!("a report on disk cannot be read: {why}; {put}")));
            }
            Err(error) => {
                outbox.failed();
                self.pass_over(place, now);
                return Ok(Some(format!("a report on disk cannot be read now: {error}")));
            }
        };
        match deliver(outbox, &report, may_be_aside, send) {
            Ok(said) => {
                self.stuck = None;
                // A file that stays is sent again after the next start, and known then.
                let left =
                    outbox.done(place).err().map(|error| format!("a file of the spool cannot be removed: {error}"));
                Ok(left.or(said))
            }
            Err(Failure::Later { after, why }) => {
                let tries = self.stuck.filter(|(stuck, _)| *stuck == place).map_or(1, |(_, tries)| tries + 1);
                self.stuck = Some((place, tries));
                if tries >= TRIES {
                    self.pass_over(place, now);
                }
                Err((after, why))
            }
            Err(Failure::Held(why) | Failure::Never(why)) => {
                outbox.failed();
                self.pass_over(place, now);
                Ok(Some(why))
            }
        }
    }

    /// Sends the newest report of what is open. What it has of finished segments is in memory, and comes again.
    fn head(
        &mut self,
        outbox: &Outbox,
        head: Report,
        send: &mut impl FnMut(&Report) -> Result<Answer, Failure>,
    ) -> Went {
        match send(&head) {
            Ok(answer) => {
                let said = dead_letters(outbox, &head, &answer);
                outbox.taken(answer, head.clocks.boot_us);
                Ok(said)
            }
            Err(Failure::Later { after, why }) => {
                outbox.return_head(head);
                Err((after, why))
            }
            Err(Failure::Held(why) | Failure::Never(why)) => {
                outbox.failed();
                Ok(Some(why))
            }
        }
    }

    fn pass_over(&mut self, place: Place, now: Clocks) {
        if self.passed.is_none() {
            self.again_us = now.boot_us.saturating_add(PASSED_OVER_US);
        }
        (self.passed, self.stuck) = (Some(place), None);
    }
}

/// Sends finished segments, in halves where they are refused together.
fn deliver(
    outbox: &Outbox,
    report: &Report,
    may_be_aside: bool,
    send: &mut impl FnMut(&Report) -> Result<Answer, Failure>,
) -> Result<Option<String>, Failure> {
    match send(report) {
        Ok(answer) if answer.records.iter().any(|record| comes_again(record, may_be_aside)) => {
            Err(Failure::Held("the node's clock is off; reports that this would harm wait until it is right".into()))
        }
        Ok(answer) => {
            let said = dead_letters(outbox, report, &answer);
            outbox.taken(Answer { records: Vec::new(), ..answer }, report.clocks.boot_us);
            Ok(said)
        }
        Err(Failure::Never(_)) if report.segments.len() > 1 => {
            let (first, second) = report.segments.split_at(report.segments.len() / 2);
            let said = deliver(outbox, &part(report, first), may_be_aside, send)?;
            Ok(deliver(outbox, &part(report, second), may_be_aside, send)?.or(said))
        }
        Err(Failure::Never(why)) => {
            let letter = serde_json::json!({ "why": why, "report": report });
            outbox
                .dead_letter(&letter.to_string())
                .map_err(|error| Failure::Held(format!("a dead letter: {error}")))?;
            Ok(Some(why))
        }
        Err(failure) => Err(failure),
    }
}

/// Whether a record was turned away for a reason that passes: because the clock is off, where the service keeps no more of such aside;
/// or where it must not be aside at all.
fn comes_again(record: &gpuledger_wire::RecordAnswer, may_be_aside: bool) -> bool {
    record.code == Some(RecordCode::ClockOff) && (record.outcome == Outcome::Rejected || !may_be_aside)
}

/// Keeps the records that were not taken for people to look at; what is said of the last of them.
fn dead_letters(outbox: &Outbox, report: &Report, answer: &Answer) -> Option<String> {
    let mut said = None;
    for (segment, record) in report.segments.iter().zip(&answer.records) {
        if !matches!(record.outcome, Outcome::Conflict | Outcome::Rejected) {
            continue;
        }
        let report = part(report, std::slice::from_ref(segment));
        let letter = serde_json::json!({ "why": record.message, "answer": record, "report": report });
        let trouble = outbox.dead_letter(&letter.to_string()).err().map(|error| format!(" It is lost: {error}"));
        let code = record.code.map(|code| format!("{code:?}")).unwrap_or_default();
        said = Some(format!("a record was not taken: {code} {}{}", record.message, trouble.unwrap_or_default()));
    }
    said
}

/// The report of some of a report's segments, with the units and jobs that these name and no others.
fn part(report: &Report, segments: &[Segment]) -> Report {
    let (mut units, mut jobs) = (Vec::new(), Vec::new());
    let (mut unit_places, mut job_places) = (BTreeMap::new(), BTreeMap::new());
    let segments = segments.iter().map(|segment| {
        let unit = place(&mut unit_places, &mut units, &report.units, segment.unit);
        let job = segment.job.map(|job| place(&mut job_places, &mut jobs, &report.jobs, job));
        Segment { unit, job, ..segment.clone() }
    });
    let segments = segments.collect();
    Report { units, jobs, segments, head: Vec::new(), ..report.clone() }
}

/// The place of what stands at another in the whole list, added if it is new. What is not there stays so.
fn place<T: Clone>(places: &mut BTreeMap<u32, u32>, some: &mut Vec<T>, all: &[T], at: u32) -> u32 {
    if let Some(place) = places.get(&at) {
        return *place;
    }
    let Some(item) = usize::try_from(at).ok().and_then(|at| all.get(at)) else { return u32::MAX };
    let place = u32::try_from(some.len()).unwrap_or(u32::MAX);
    some.push(item.clone());
    places.insert(at, place);
    place
}
