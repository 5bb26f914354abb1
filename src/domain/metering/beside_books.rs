//! What a scheduler's books say of a node on which a collector reports. The two describe the same time and are never
//! added: what the collector saw counts, and where it saw nobody, the books say who held what.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::{Disagreement, Finding, Segment, Source, State};
use crate::ids::{JobId, SkuId, UnitId};
use crate::time::{Instant, Interval};
use crate::units::{Fraction, Overflow};

/// The units of a node that jobs can be given, and which of them to take first.
#[derive(Clone, Debug, Default)]
pub struct UnitOrder {
    /// The place of each unit in the order of GPU and place within it. What is not here, such as a remainder, is given
    /// to no job.
    pub ranks: BTreeMap<UnitId, usize>,
    /// For a SKU as the books call it, the SKUs of units that it means; where there are none, any.
    pub meant: BTreeMap<SkuId, BTreeSet<SkuId>>,
}

/// When a job held a unit last.
pub type LastHeld = BTreeMap<(JobId, UnitId), Instant>;

/// What counts of a node in an hour, and where the two tell of different things.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BesideBooks {
    /// The time of all units, each instant once.
    pub segments: Vec<Segment>,
    /// Where the books tell of more or less than was seen.
    pub findings: Vec<Finding>,
}

/// A stretch of a unit's time that the books give to a job: from when to when, and the place of the books' segment.
type Given = (Interval, usize);

/// Turns time of units that nobody was seen to hold into held time, as far as the books tell of more units of a job than
/// were seen: the unit that the job held last, else the first in order. Such time is estimated.
///
/// `seen` is what counts of a collector in one hour; its jobs are those of the books where they are the same. `books` are
/// the books' segments of this node and hour, in an order that does not hang on numbers. Of a unit that several shared,
/// nothing is given away. `last_held` goes on from hour to hour.
///
/// # Errors
/// [`Overflow`] where a total cannot be divided.
pub fn beside_books(
    seen: Vec<Segment>,
    books: &[Segment],
    order: &UnitOrder,
    last_held: &mut LastHeld,
) -> Result<BesideBooks, Overflow> {
    let mut given: BTreeMap<UnitId, Vec<Given>> = BTreeMap::new();
    let mut findings = Vec::new();
    for piece in pieces(&seen, books) {
        let now: Vec<&Segment> = seen.iter().filter(|segment| segment.interval.contains(piece.start())).collect();
        let mut taken: BTreeSet<UnitId> = BTreeSet::new();
        for (place, book) in books.iter().enumerate().filter(|(_, book)| book.interval.contains(piece.start())) {
            let holds = |segment: &&&Segment| segment.state == State::Held && segment.job == book.job;
            let held: BTreeSet<UnitId> = now.iter().filter(holds).map(|segment| segment.unit).collect();
            let wanted = usize::try_from(book.count).unwrap_or(0);
            let missing = wanted.saturating_sub(held.len());
            let chosen = choose(&now, book, order, last_held, &taken);
            let chosen: Vec<UnitId> = chosen.into_iter().take(missing).collect();
            if held.len() > wanted {
                findings.push(finding(book, piece, Disagreement::SeenMore));
            } else if chosen.len() < missing {
                findings.push(finding(book, piece, Disagreement::AllocatedMore));
            }
            for unit in chosen {
                taken.insert(unit);
                last_held.insert((book.job, unit), piece.end());
                give(given.entry(unit).or_default(), piece, place);
            }
        }
        for segment in now.iter().filter(|segment| segment.state == State::Held) {
            last_held.insert((segment.job, segment.unit), piece.end());
        }
    }
    let mut segments = Vec::with_capacity(seen.len());
    for segment in seen {
        match given.get(&segment.unit).filter(|_| is_free(&segment)) {
            Some(given) => segments.extend(divided(&segment, given, books)?),
            None => segments.push(segment),
        }
    }
    Ok(BesideBooks { segments, findings: joined(findings) })
}

/// The stretches of time in which neither what was seen nor the books change, as far as the books tell of anything; and
/// those outside, in which only who held what is noted.
fn pieces(seen: &[Segment], books: &[Segment]) -> Vec<Interval> {
    let bounds = seen.iter().chain(books).map(|segment| segment.interval);
    let mut edges: Vec<Instant> = bounds.flat_map(|interval| [interval.start(), interval.end()]).collect();
    edges.sort_unstable();
    edges.dedup();
    edges
        .windows(2)
        .filter_map(|pair| if let [from, until] = pair { Interval::new(*from, *until) } else { None })
        .collect()
}

/// Whether a segment is the whole of a unit that nobody was seen to hold.
fn is_free(segment: &Segment) -> bool {
    matches!(segment.state, State::Idle | State::Unobserved) && segment.share_us == segment.interval.length_us()
}

/// The units that a job can be given, the best first.
fn choose(
    now: &[&Segment],
    book: &Segment,
    order: &UnitOrder,
    last_held: &LastHeld,
    taken: &BTreeSet<UnitId>,
) -> Vec<UnitId> {
    let meant = order.meant.get(&book.sku).filter(|meant| !meant.is_empty());
    let fits = |segment: &Segment| meant.is_none_or(|meant| meant.contains(&segment.sku));
    let mut free: Vec<(Reverse<Option<Instant>>, usize, UnitId)> = now
        .iter()
        .filter(|segment| is_free(segment) && fits(segment) && !taken.contains(&segment.unit))
        .filter_map(|segment| {
            let rank = order.ranks.get(&segment.unit)?;
            Some((Reverse(last_held.get(&(book.job, segment.unit)).copied()), *rank, segment.unit))
        })
        .collect();
    free.sort_unstable();
    free.dedup();
    free.into_iter().map(|(_, _, unit)| unit).collect()
}

fn give(given: &mut Vec<Given>, piece: Interval, place: usize) {
    if let Some((last, of)) = given.last_mut()
        && *of == place
        && last.end() == piece.start()
        && let Some(both) = Interval::new(last.start(), piece.end())
    {
        *last = both;
        return;
    }
    given.push((piece, place));
}

/// A free segment, cut where it is given to jobs.
fn divided(segment: &Segment, given: &[Given], books: &[Segment]) -> Result<Vec<Segment>, Overflow> {
    let mut edges: Vec<Instant> = given.iter().flat_map(|(stretch, _)| [stretch.start(), stretch.end()]).collect();
    edges.sort_unstable();
    edges.dedup();
    let parts = segment.divided_at(&edges)?;
    let held = |part: Segment| {
        let of = given.iter().find(|(stretch, _)| stretch.contains(part.interval.start()));
        let Some(book) = of.and_then(|(_, place)| books.get(*place)) else { return Ok(part) };
        let suspended = i128::from(part.share_us) * i128::from(book.suspended_us);
        let suspended = Fraction::new(suspended, book.share_us.max(1).into()).ok_or(Overflow)?.rounded();
        Ok(Segment {
            job: book.job,
            facts: book.facts,
            state: State::Held,
            source: Source::Scheduler,
            active_us: None,
            estimated_us: part.share_us,
            suspended_us: i64::try_from(suspended).map_err(|_| Overflow)?.min(part.share_us),
            ..part
        })
    };
    parts.into_iter().map(held).collect()
}

fn finding(book: &Segment, interval: Interval, what: Disagreement) -> Finding {
    Finding { unit: UnitId(0), interval, key: book.key, job: book.job, what }
}

/// Findings of the same about the same that follow each other become one.
fn joined(mut findings: Vec<Finding>) -> Vec<Finding> {
    findings.sort_by_key(|found| (found.key, found.what, found.interval));
    let mut joined: Vec<Finding> = Vec::with_capacity(findings.len());
    for found in findings {
        match joined.last_mut() {
            Some(last)
                if (last.key, last.what) == (found.key, found.what)
                    && last.interval.end() == found.interval.start() =>
            {
                last.interval = Interval::new(last.interval.start(), found.interval.end()).unwrap_or(last.interval);
            }
            _ => joined.push(found),
        }
    }
    joined
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
