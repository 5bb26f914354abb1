//! What a line tells beyond what is known of its attempt.

use std::collections::BTreeMap;
use std::ops::Bound;

use gpuledger_db::allocation::{AttemptName, Telling};
use gpuledger_domain::calendar::Period;
use gpuledger_domain::time::{Instant, Interval};

use super::interned::Holding;
use super::told::Told;

/// What is known of an attempt while a chunk is decided.
pub(super) struct Known<'t> {
    pub(super) interval: Option<Interval>,
    pub(super) sha256: Vec<u8>,
    pub(super) holding: Holding,
    pub(super) placements: String,
    pub(super) end_state: String,
    pub(super) provisional: bool,
    /// Whether this very list told it.
    pub(super) of_this_list: bool,
    /// What the database holds.
    pub(super) stored: Option<Telling>,
    /// The line that tells more than the database holds.
    pub(super) newest: Option<&'t Told>,
    /// Whether a telling of the whole attempt takes the place of this one, which was of a part of it.
    pub(super) taken_back: bool,
}

/// All that is known of the attempts of a chunk.
pub(super) type KnownAttempts<'t> = BTreeMap<&'t AttemptName, Known<'t>>;

/// What a line tells beyond what is known.
pub(super) enum News {
    Nothing,
    /// An earlier end than is known, what was told once and superseded, or a part of what is known.
    Outdated,
    /// Another attempt of the job stands in the way, as far as is known yet.
    Overlap(String),
    NoGpuTime,
    Told,
    /// The whole of an attempt of which these tellings were parts.
    Whole(Vec<AttemptName>),
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

impl<'t> Known<'t> {
    /// What the database holds of it.
    pub(super) fn stored(telling: &Telling, import_id: i64) -> Known<'t> {
        let Telling { node, sku, facts, .. } = *telling;
        Known {
            interval: telling.interval,
            sha256: telling.sha256.clone(),
            holding: Holding { node, sku, facts },
            placements: telling.placements.clone(),
            end_state: telling.end_state.clone(),
            provisional: telling.provisional,
            of_this_list: telling.import_id == import_id,
            stored: Some(telling.clone()),
            newest: None,
            taken_back: false,
        }
    }

    /// Whether a line tells what the books held once and was superseded: it is not news again, whatever it says.
    fn superseded(&self, told: &Told) -> bool {
        self.stored.as_ref().is_some_and(|stored| stored.superseded.contains(&told.sha256))
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
            Some(before) if contradict(before, told, holding) => {
                return News::Refused(
                    "an earlier line of this list tells other GPUs for the same job; if both are held, map a component column, else remove one".into(),
                );
            }
            Some(before) if self.is_older(before, told) => {
                return News::Outdated;
            }
            _ => {}
        }
        let parts = match self.others(known, told) {
            Ok(parts) => parts,
            Err(news) => return news,
        };
        let mut changed = changed(before, told, holding);
        changed.extend(parts.iter().filter_map(|name| known.get(name)).filter_map(|part| part.interval));
        match self.closed_month(&changed) {
            Some(refused) => refused,
            None if parts.is_empty() => News::Told,
            None => News::Whole(parts),
        }
    }

    /// What a line tells of a job of which nothing else is known or told.
    pub(super) fn news_of_an_unknown_job(&self, told: &Told) -> News {
        match told.interval {
            None => News::NoGpuTime,
            Some(interval) => self.closed_month(&[interval]).unwrap_or(News::Told),
        }
    }

    /// The refusal of a change in a closed month, if any of it lies in one.
    fn closed_month(&self, changed: &[Interval]) -> Option<News> {
        let touched = |closed: &&Period| changed.iter().any(|part| part.intersection(closed.interval).is_some());
        self.closed.iter().find(touched).map(|month| {
            News::Refused(format!(
                "it changes what the job held in {}, which is closed; nothing of the line was imported",
                month.month
            ))
        })
    }

    /// Attempts of one job follow each other; one that lies across another is the same with another start. Where
    /// lists are clipped, one within another is a part of it: those that this line is the whole of.
    fn others(&self, known: &KnownAttempts<'_>, told: &Told) -> Result<Vec<AttemptName>, News> {
        let Some(interval) = told.interval else { return Ok(Vec::new()) };
        let from = AttemptName { source_id: told.name.source_id.clone(), start: Instant::MIN };
        let others = known
            .range::<AttemptName, _>((Bound::Included(&from), Bound::Unbounded))
            .take_while(|(name, _)| name.source_id == told.name.source_id)
            .filter(|(name, _)| ***name != told.name);
        let overlapping = others.filter_map(|(name, other)| {
            let theirs = other.interval?;
            interval.intersection(theirs).map(|both| (*name, theirs, both))
        });
        let mut parts = Vec::new();
        for (name, theirs, both) in overlapping {
            if self.clips && both == interval {
                return Err(News::Outdated);
            }
            if !(self.clips && both == theirs) {
                return Err(News::Overlap(format!(
                    "the job holds its GPUs already in {theirs}, under another start; a job is charged once, so this line was left out"
                )));
            }
            parts.push(name.clone());
        }
        Ok(parts)
    }

    /// Whether a line tells what is older than what is known.
    fn is_older(&self, before: &Known<'_>, told: &Told) -> bool {
        match (before.provisional, told.provisional) {
            // An end that is told stands against any that was only the time of a list, whenever it was told.
            (true, false) => return false,
            (false, true) => return true,
            _ => {}
        }
        // A job that was taken back stays so.
        let earlier =
            before.interval.is_none() || before.interval.map(Interval::end) > told.interval.map(Interval::end);
        !self.restate && (earlier || before.superseded(told))
    }
}

/// Whether two lines of one list tell GPUs that one job cannot hold.
fn contradict(before: &Known<'_>, told: &Told, holding: &Holding) -> bool {
    let other = (before.holding.node, before.holding.sku) != (holding.node, holding.sku)
        || before.placements != told.placements;
    let final_at_last = before.provisional && !told.provisional;
    before.of_this_list && !final_at_last && told.interval.is_some() && other
}

/// The time in which an attempt would hold other than it is known to, or end in another way.
fn changed(before: Option<&Known<'_>>, told: &Told, holding: &Holding) -> Vec<Interval> {
    let (was, is) = (before.and_then(|before| before.interval), told.interval);
    let (Some(was), Some(is)) = (was, is) else { return was.into_iter().chain(is).collect() };
    if before.is_some_and(|before| before.holding != *holding || before.placements != told.placements) {
        return vec![was, is];
    }
    let between = |a: Instant, b: Instant| Interval::new(a.min(b), a.max(b));
    let moved = between(was.start(), is.start()).into_iter().chain(between(was.end(), is.end()));
    let other_end = before.is_some_and(|before| before.end_state != told.end_state);
    moved.chain(other_end.then(|| last_moment(is)).flatten()).collect()
}

/// The last microsecond of an attempt: what is booked at its end belongs to the period that holds it.
pub(super) fn last_moment(interval: Interval) -> Option<Interval> {
    Interval::new(Instant::from_micros(interval.end().micros() - 1), interval.end())
}
