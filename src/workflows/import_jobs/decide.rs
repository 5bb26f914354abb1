//! What a line tells beyond what is known of its attempt, and how much of that may be written.
//!
//! What an attempt held within a closed month never changes. A telling of a job that still ran when its month closed
//! counts for the time outside; one that would change what was final in a closed month is refused.

use std::collections::BTreeMap;
use std::ops::Bound;

use gpuledger_db::allocation::{AttemptName, Telling};
use gpuledger_domain::calendar::Period;
use gpuledger_domain::time::{Instant, Interval};
use sha2::{Digest, Sha256};

use super::interned::Holding;
use super::kept::whole_hours;
use super::told::Told;

/// What is known of an attempt while a chunk is decided.
pub(super) struct Known<'t> {
    pub(super) interval: Option<Interval>,
    pub(super) sha256: Vec<u8>,
    pub(super) holding: Holding,
    pub(super) placements: String,
    pub(super) suspended_us: i64,
    pub(super) submit: Option<Instant>,
    pub(super) end_state: String,
    pub(super) provisional: bool,
    /// Whether this very list told it.
    pub(super) of_this_list: bool,
    /// What the database holds.
    pub(super) stored: Option<Telling>,
    /// The line that tells more than the database holds, and what of it counts.
    pub(super) newest: Option<(&'t Told, Taken)>,
    /// Whether a line of this chunk takes the place of this one, which is of a part of what it tells.
    pub(super) taken_back: bool,
    /// Whether it holds nothing because another telling took its place, now or in an earlier chunk or import.
    pub(super) displaced: bool,
}

/// The SHA-256 of the telling by which an attempt held nothing since another took the place of what it told.
pub(super) fn displaced_sha256(sha256: &[u8]) -> Vec<u8> {
    let mut hash = Sha256::new_with_prefix(b"taken back");
    hash.update(sha256);
    hash.finalize().to_vec()
}

/// All that is known of the attempts of a chunk.
pub(super) type KnownAttempts<'t> = BTreeMap<&'t AttemptName, Known<'t>>;

/// What of a line counts.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    /// When the attempt holds its GPUs.
    pub(super) interval: Option<Interval>,
    /// Whether its end is still to be told.
    pub(super) provisional: bool,
    /// The closed periods that the attempt touches: within them, what was held stays as it is.
    pub(super) closed: Vec<Interval>,
    /// Whether the line tells other of a closed period than stays.
    pub(super) kept: bool,
}

/// What a line tells beyond what is known.
pub(super) enum News {
    Nothing,
    /// An earlier end than is known, what was told once and superseded, or a part of what is known.
    Outdated,
    /// Another attempt of the job stands in the way, as far as is known yet.
    Overlap(String),
    NoGpuTime,
    /// With the tellings that it is the whole of.
    Told(Taken, Vec<AttemptName>),
    Refused(String),
}

/// How lines are weighed against what is known.
pub(super) struct Judge<'a> {
    /// Whether a line counts also where it tells an earlier end than is known.
    pub(super) restate: bool,
    /// Whether lines may tell only a part of an attempt.
    pub(super) clips: bool,
    /// The closed ones among the periods that the lines touch.
    pub(super) closed: &'a [Period],
}

impl Known<'_> {
    /// What the database holds of it.
    pub(super) fn stored(telling: &Telling, import_id: i64) -> Known<'static> {
        let Telling { node, sku, facts, .. } = *telling;
        let displaced = telling.superseded.last().is_some_and(|last| displaced_sha256(last) == telling.sha256);
        Known {
            interval: telling.interval,
            sha256: telling.sha256.clone(),
            holding: Holding { node, sku, facts },
            placements: telling.placements.clone(),
            suspended_us: telling.suspended_us,
            submit: telling.submit,
            end_state: telling.end_state.clone(),
            provisional: telling.provisional,
            of_this_list: telling.import_id == import_id,
            stored: Some(telling.clone()),
            newest: None,
            taken_back: false,
            displaced,
        }
    }

    /// Whether a line tells what the books held once and was superseded: it is not news again, whatever it says.
    fn superseded(&self, told: &Told) -> bool {
        self.stored.as_ref().is_some_and(|stored| stored.superseded.contains(&told.sha256))
    }

    /// Whether a line tells the same GPUs for the same facts.
    fn holds_as(&self, told: &Told, holding: &Holding) -> bool {
        self.holding == *holding && self.placements == told.placements
    }
}

impl Judge<'_> {
    /// What a line tells beyond what is known.
    pub(super) fn news(&self, known: &KnownAttempts<'_>, told: &Told, holding: &Holding) -> News {
        let before = known.get(&told.name);
        match before {
            // To take back what is not known is no news.
            None if told.interval.is_none() => return News::NoGpuTime,
            Some(before) if before.sha256 == told.sha256 => return News::Nothing,
            Some(before) if told.interval.is_none() && !self.restate && !before.provisional => return News::NoGpuTime,
            Some(before) if contradict(before, told, holding) => {
                return News::Refused(
                    "an earlier line of this list tells other GPUs for the same job; if both are held, map a component column, else remove one".into(),
                );
            }
            Some(before) if self.is_older(before, told) => return News::Outdated,
            Some(before) if tells_less(before, told, holding) => return News::Nothing,
            _ => {}
        }
        let parts = match self.others(known, told) {
            Ok(parts) => parts,
            Err(news) => return news,
        };
        let taken_back = parts.iter().filter_map(|name| known.get(name)).filter_map(|part| part.interval);
        if let Some(refused) = self.refused(&taken_back.collect::<Vec<_>>()) {
            return refused;
        }
        match self.taken(before, told, holding) {
            Ok(taken) => News::Told(taken, parts),
            Err(refused) => refused,
        }
    }

    /// What a line tells of a job of which nothing else is known or told.
    pub(super) fn news_of_an_unknown_job(&self, told: &Told) -> News {
        match told.interval {
            None => News::NoGpuTime,
            Some(interval) => self.refused(&[interval]).unwrap_or_else(|| News::Told(self.all_of(told), Vec::new())),
        }
    }

    /// The line as it stands.
    fn all_of(&self, told: &Told) -> Taken {
        Taken { interval: told.interval, provisional: told.provisional, closed: Vec::new(), kept: false }
    }

    /// The refusal of a change in a closed month, if any of it lies in one.
    fn refused(&self, changed: &[Interval]) -> Option<News> {
        let touched = |closed: &&Period| changed.iter().any(|part| part.intersection(closed.interval).is_some());
        self.closed.iter().find(touched).map(|month| {
            News::Refused(format!(
                "it changes what the job held in {}, which is closed; nothing of the line was imported",
                month.month
            ))
        })
    }

    /// What of a line counts: all of it where no closed month is touched.
    fn taken(&self, before: Option<&Known<'_>>, told: &Told, holding: &Holding) -> Result<Taken, News> {
        let was = before.and_then(|before| before.interval);
        let touched: Vec<Interval> = was.into_iter().chain(told.interval).collect();
        let closed: Vec<Interval> = self
            .closed
            .iter()
            .map(|period| period.interval)
            .filter(|closed| touched.iter().any(|part| part.intersection(*closed).is_some()))
            .collect();
        let (Some(before), Some(was), false) = (before, was, closed.is_empty()) else {
            return match self.refused(&touched) {
                Some(refused) => Err(refused),
                None => Ok(self.all_of(told)),
            };
        };
        if let Some(refused) = self.splits_a_kept_hour(was, before, told, holding) {
            return Err(refused);
        }
        let in_closed = |part: Interval| closed.iter().any(|closed| closed.intersection(part).is_some());
        if !before.provisional {
            return match self.refused(&changed(before, told, holding)) {
                Some(refused) => Err(refused),
                None => Ok(Taken { closed, ..self.all_of(told) }),
            };
        }
        // It still ran when its month closed: within closed months it holds what it was charged for.
        let ends_in_closed = told.interval.and_then(last_moment).is_none_or(in_closed);
        let other_time = changed_time(was, told.interval).into_iter().any(in_closed);
        let kept =
            ends_in_closed || other_time || !before.holds_as(told, holding) || before.suspended_us != told.suspended_us;
        if !ends_in_closed {
            return Ok(Taken { closed, kept, ..self.all_of(told) });
        }
        // Open months before the one in which it ends hold all of it.
        let frozen_ends = closed.iter().filter_map(|closed| closed.intersection(was)).map(Interval::end);
        let last = told.interval.and_then(last_moment);
        let closed_before_end = closed.iter().filter(|closed| last.is_some_and(|last| closed.contains(last.start())));
        let end = frozen_ends.chain(closed_before_end.map(|closed| closed.start())).max();
        let interval = end.and_then(|end| Interval::new(was.start(), end));
        // Its end is told, but belongs to a month that is closed: who pays for it was decided without it.
        Ok(Taken { interval, provisional: true, closed, kept })
    }

    /// A month may begin within a UTC hour. A segment over the edge of a closed month stays as it is, so that its part in
    /// the open month cannot change either.
    fn splits_a_kept_hour(&self, was: Interval, before: &Known<'_>, told: &Told, holding: &Holding) -> Option<News> {
        let same = before.holds_as(told, holding);
        for month in self.closed {
            for edge in [month.interval.start(), month.interval.end()] {
                let hour = Interval::new(edge, Instant::from_micros(edge.micros() + 1)).and_then(whole_hours);
                let kept = hour.filter(|hour| hour.start() != edge).and_then(|hour| hour.intersection(was));
                let Some(kept) = kept.filter(|kept| kept.start() < edge && edge < kept.end()) else { continue };
                if !same || told.interval.and_then(|is| is.intersection(kept)) != Some(kept) {
                    return Some(News::Refused(format!(
                        "it changes what the job held in the hour of {edge}, in which {} begins or ends, which is closed; nothing of the line was imported",
                        month.month
                    )));
                }
            }
        }
        None
    }

    /// Attempts of one job follow each other; one that lies across another is the same with another start. Where
    /// lists are clipped, one within another is a part of it: those that this line is the whole of. No telling of a job
    /// that still ran stands against one of its end.
    fn others(&self, known: &KnownAttempts<'_>, told: &Told) -> Result<Vec<AttemptName>, News> {
        let Some(interval) = told.interval else { return Ok(Vec::new()) };
        let from = AttemptName { source_id: told.name.source_id.clone(), start: Instant::MIN };
        let others = known
            .range::<AttemptName, _>((Bound::Included(&from), Bound::Unbounded))
            .take_while(|(name, _)| name.source_id == told.name.source_id)
            .filter(|(name, _)| ***name != told.name);
        let overlapping = others.filter_map(|(name, other)| {
            let theirs = other.interval?;
            interval.intersection(theirs).map(|both| (*name, other, theirs, both))
        });
        let mut parts = Vec::new();
        for (name, other, theirs, both) in overlapping {
            let (final_in_running, running_over_final) =
                (other.provisional && !told.provisional, told.provisional && !other.provisional);
            // A start that moved: what ran was told by the start of an earlier look, the end by the true one.
            let moved = self.clips && final_in_running && told.submit.is_some() && told.submit == other.submit;
            if self.clips && both == interval && !final_in_running {
                return Err(News::Outdated);
            }
            if !moved && (!(self.clips && both == theirs) || running_over_final) {
                let clipped = if self.clips {
                    ". Of lists that were clipped to windows by -T, the windows may follow each other or lie one within the other"
                } else {
                    ""
                };
                return Err(News::Overlap(format!(
                    "the job holds its GPUs already in {theirs}, under another start; a job is charged once, so this line was left out{clipped}"
                )));
            }
            parts.push(name.clone());
        }
        Ok(parts)
    }

    /// Whether a line tells what is older than what is known.
    fn is_older(&self, before: &Known<'_>, told: &Told) -> bool {
        // Told to have ended in a closed month, it goes on to hold what was charged there; it does not run on for that.
        if self.clips && told.provisional && before.provisional && !before.end_state.is_empty() {
            return true;
        }
        match (before.provisional, told.provisional) {
            // An end that is told stands against any that was only the time of a list, whenever it was told.
            (true, false) => return false,
            (false, true) => return true,
            _ => {}
        }
        // A job that was taken back stays so. One whose place was taken may be the whole of what took it.
        let earlier = before.interval.is_none() && !before.displaced
            || before.interval.map(Interval::end) > told.interval.map(Interval::end);
        !self.restate && (earlier || before.superseded(told))
    }
}

/// Whether two lines of one list tell GPUs that one job cannot hold.
fn contradict(before: &Known<'_>, told: &Told, holding: &Holding) -> bool {
    let other = (before.holding.node, before.holding.sku) != (holding.node, holding.sku)
        || before.placements != told.placements;
    let final_at_last = before.provisional && !told.provisional;
    before.of_this_list && !before.displaced && !final_at_last && told.interval.is_some() && other
}

/// Whether a line tells the same, but not how the job ended, which is known: a list without states takes none away.
fn tells_less(before: &Known<'_>, told: &Told, holding: &Holding) -> bool {
    told.end_state.is_empty()
        && !before.end_state.is_empty()
        && !told.provisional
        && before.interval == told.interval
        && before.suspended_us == told.suspended_us
        && before.holds_as(told, holding)
}

/// The time by which two intervals differ.
fn changed_time(was: Interval, is: Option<Interval>) -> Vec<Interval> {
    let Some(is) = is else { return vec![was] };
    if was.intersection(is).is_none() {
        return vec![was, is];
    }
    let between = |a: Instant, b: Instant| Interval::new(a.min(b), a.max(b));
    between(was.start(), is.start()).into_iter().chain(between(was.end(), is.end())).collect()
}

/// The time in which an attempt whose end was told would hold other than it did, or be paid for by another.
fn changed(before: &Known<'_>, told: &Told, holding: &Holding) -> Vec<Interval> {
    let Some(was) = before.interval else { return told.interval.into_iter().collect() };
    let Some(is) = told.interval else { return vec![was] };
    if !before.holds_as(told, holding) {
        return vec![was, is];
    }
    let mut changed = changed_time(was, Some(is));
    // Who pays for an attempt is decided where it ends.
    if was.end() != is.end() || before.end_state != told.end_state || before.provisional != told.provisional {
        changed.extend(last_moment(was));
        changed.extend(last_moment(is));
    }
    // Suspended time is spread over what is not closed.
    if before.suspended_us != told.suspended_us {
        changed.extend(last_moment(is));
    }
    changed
}

/// The last microsecond of an attempt: what is booked at its end belongs to the period that holds it.
pub(super) fn last_moment(interval: Interval) -> Option<Interval> {
    Interval::new(Instant::from_micros(interval.end().micros() - 1), interval.end())
}
