//! The segments that count. What is stored is what was told; of the same GPU and time, several may have told.
//!
//! On a node on which a collector reports, its segments count, each instant once, and what nobody saw is unobserved
//! (`observed`). What a scheduler's books say of such a node is not added for a billing day of which the collector told:
//! the two describe the same time. It fills what nobody was seen to hold (`NodeBooks`), and its attempts and facts
//! take the place of the collector's where they are of one job. On every other node and day the books count.

use std::collections::{BTreeMap, BTreeSet};

use gpuledger_db::node_watch::{self, NodeWatch};
use gpuledger_db::usage::{self, Mark};
use gpuledger_db::{Db, allocation, attempt, dimensions, segment, unit};
use gpuledger_domain::calendar::BillingCalendar;
use gpuledger_domain::ids::{JobId, NodeId, UnitId};
use gpuledger_domain::metering::{Finding, Life, Observed, Segment, Source, UnitLife, lives};
use gpuledger_domain::time::{Hour, Instant, Interval};

use crate::error::AppError;

mod books;
mod owners;

use books::NodeBooks;
use owners::Owners;

/// Everything that is known now, and not only what was by some instant.
pub const NOW: Instant = Instant::MAX;
/// What closed months were closed with.
pub const AT_CLOSE: Instant = Instant::MIN;

/// The segments of a node that count in a billing day, and that overlap it, by what was known at an instant: [`NOW`],
/// [`AT_CLOSE`], or when a later month was closed that corrected this one.
///
/// # Errors
/// The database's, or a total that cannot be divided.
pub fn of_day(db: &mut Db, node: NodeId, day: Interval, known_by: Instant) -> Result<Vec<Segment>, AppError> {
    Ok(counted_of_day(db, node, day, known_by)?.0)
}

/// As [`of_day`], with what does not stand as it was told, and where a scheduler's books tell of other things.
///
/// # Errors
/// The database's, or a total that cannot be divided.
pub fn told_of_day(
    db: &mut Db,
    node: NodeId,
    day: Interval,
    known_by: Instant,
) -> Result<(Vec<Segment>, Vec<Finding>), AppError> {
    let (segments, mut findings, books) = counted_of_day(db, node, day, known_by)?;
    if let Some(books) = books {
        findings.extend(books.other_facts(db)?);
    }
    Ok((segments, findings))
}

type Counted = (Vec<Segment>, Vec<Finding>, Option<NodeBooks>);

fn counted_of_day(db: &mut Db, node: NodeId, day: Interval, known_by: Instant) -> Result<Counted, AppError> {
    let hours: Vec<Hour> = day.hours().collect();
    let told = segment::of_hours(db, node, &hours, known_by)?;
    match node_watch::find(db, node)? {
        None => Ok((of_books(db, told, day, known_by)?, Vec::new(), None)),
        Some(watch) => of_collector(db, &watch, &told, (day, known_by)),
    }
}

/// Those of a scheduler's segments that count: on nodes of which no collector told in that day. Where the books name no
/// node, it is the job of which no collector told.
///
/// # Errors
/// The database's.
pub fn of_books(db: &mut Db, told: Vec<Segment>, day: Interval, known_by: Instant) -> Result<Vec<Segment>, AppError> {
    let named: BTreeSet<NodeId> = told.iter().map(|segment| segment.on_node).filter(|node| node.0 != 0).collect();
    let mut reported = BTreeSet::new();
    for node in named {
        if node_watch::find(db, node)?.is_some() && segment::has_reports(db, node, day, known_by)? {
            reported.insert(node);
        }
    }
    let stand_ins = told.iter().filter(|segment| segment.on_node.0 == 0).map(|segment| segment.key.node);
    let mut jobs = BTreeSet::new();
    for stand_in in stand_ins.collect::<BTreeSet<NodeId>>() {
        jobs.extend(reported_jobs(db, stand_in, (day, known_by), &told)?);
    }
    let counts = |segment: &Segment| match segment.on_node.0 {
        0 => !jobs.contains(&segment.job),
        _ => !reported.contains(&segment.on_node),
    };
    Ok(told.into_iter().filter(counts).collect())
}

/// Those of the jobs told of a pool's stand-in of which a collector of the cluster told in that day, by the id that their
/// source gives them.
fn reported_jobs(
    db: &mut Db,
    stand_in: NodeId,
    (day, known_by): (Interval, Instant),
    told: &[Segment],
) -> Result<Vec<JobId>, AppError> {
    let cluster = dimensions::cluster_of(db, stand_in)?;
    let watched = node_watch::of_cluster(db, cluster)?;
    if watched.is_empty() {
        return Ok(Vec::new());
    }
    let reported = segment::reported_jobs(db, &watched, day, known_by)?;
    let names = allocation::names(db, &reported)?;
    let reported: BTreeSet<&str> = names.values().map(|(_, name)| name.source_id.as_str()).collect();
    let jobs: BTreeSet<JobId> = told.iter().filter(|s| s.key.node == stand_in).map(|segment| segment.job).collect();
    let told = allocation::names(db, &jobs.into_iter().collect::<Vec<_>>())?;
    let twice = told.into_iter().filter(|(_, (_, name))| reported.contains(name.source_id.as_str()));
    Ok(twice.map(|(job, _)| job).collect())
}

/// The segments of a job that count in a billing day, of all nodes, in the order of their keys.
///
/// # Errors
/// The database's, or a total that cannot be divided.
pub fn of_job(db: &mut Db, job: JobId, day: Interval, known_by: Instant) -> Result<Vec<Segment>, AppError> {
    let hours: Vec<Hour> = day.hours().collect();
    // A collector may have told of it as of another attempt of the same id.
    let same = attempt::of_same_id(db, &[job])?.remove(&job).unwrap_or_else(|| vec![job]);
    let mut told = Vec::new();
    for job in same {
        told.extend(segment::of_job(db, job, &hours, known_by)?);
    }
    let nodes: BTreeSet<NodeId> =
        told.iter().flat_map(|segment| [segment.key.node, segment.on_node]).filter(|node| node.0 != 0).collect();
    let mut counted = Vec::with_capacity(told.len());
    for node in nodes {
        if node_watch::find(db, node)?.is_some() {
            counted.extend(of_day(db, node, day, known_by)?.into_iter().filter(|segment| segment.job == job));
        } else {
            let of_node = told.iter().filter(|segment| segment.key.node == node && segment.job == job);
            counted.extend(of_books(db, of_node.cloned().collect(), day, known_by)?);
        }
    }
    counted.sort_by_key(|segment| (segment.key, segment.interval));
    Ok(counted)
}

fn of_collector(
    db: &mut Db,
    watch: &NodeWatch,
    told: &[Segment],
    (day, known_by): (Interval, Instant),
) -> Result<Counted, AppError> {
    let units = unit::of_node(db, watch.node)?;
    let always = Interval::new(Instant::MIN, Instant::MAX);
    let all = always.map_or_else(Vec::new, |always| lives(&units, always));
    // Whoever told of a unit, it is the one that was told of first.
    let first = all.iter().flat_map(|life| life.sights.iter().map(|sight| (*sight, life.unit.unit)));
    let first: BTreeMap<UnitId, UnitId> = first.collect();
    let seen: Vec<Segment> = told.iter().filter(|segment| segment.source == Source::Agent).cloned().collect();
    let owners = Owners::load(db, watch.node, (day, known_by), &units, &seen)?;
    let reported = seen.iter().any(|segment| segment.interval.intersection(day).is_some());
    let mut books = if reported { Some(NodeBooks::load(db, watch.node, day, &units, &seen)?) } else { None };
    let mut by_hour: BTreeMap<Hour, Vec<Segment>> = BTreeMap::new();
    for segment in seen {
        let unit = first.get(&segment.unit).copied().unwrap_or(segment.unit);
        let segment = Segment { unit, ..segment };
        let segment = match &mut books {
            Some(books) => books.joined(segment),
            None => segment,
        };
        by_hour.entry(segment.key.hour).or_default().push(segment);
    }
    let (mut counted, mut findings) = (Vec::new(), Vec::new());
    for (hour, within) in whole_hours(day) {
        let existed = existed(watch, told, within);
        let lives: Vec<UnitLife> =
            existed.map_or_else(Vec::new, |existed| lives(&units, existed).iter().map(unit_life).collect());
        let of_hour = by_hour.remove(&hour).unwrap_or_default();
        if lives.is_empty() && of_hour.is_empty() {
            continue;
        }
        let Observed { segments, findings: found } = owners.observed(watch.node, &of_hour, &lives)?;
        findings.extend(found);
        let segments = match &mut books {
            Some(books) => {
                let (segments, found) = books.fill(hour, segments)?;
                findings.extend(found);
                segments
            }
            None => segments,
        };
        counted.extend(segments);
    }
    Ok((counted, findings, books))
}

/// The hours of a day, whole also where the day begins within one.
fn whole_hours(day: Interval) -> impl Iterator<Item = (Hour, Interval)> {
    day.hours().filter_map(|hour| Some((hour, Interval::new(hour.start(), hour.next().start())?)))
}

/// The part of an hour in which the node's units exist as far as is known: not before anyone told of it, not after it
/// was retired; in days that are not over, not after what was seen last.
fn existed(watch: &NodeWatch, told: &[Segment], hour: Interval) -> Option<Interval> {
    let seen =
        told.iter().filter(|segment| segment.source == Source::Agent).map(|segment| segment.interval.end()).max();
    let known_until = watch.settled_until.max(seen.unwrap_or(Instant::MIN));
    let until = known_until.min(watch.retired_at.unwrap_or(Instant::MAX));
    Interval::new(watch.from, until)?.intersection(hour)
}

/// Marks the days that are over and were not summed since, so that silence is unobserved time and not nothing; how many
/// there are.
///
/// # Errors
/// The database's.
pub fn settle_days(db: &mut Db, calendar: &BillingCalendar, now: Instant) -> Result<usize, AppError> {
    let today = calendar.day_of(now).start();
    let mut marked = 0;
    for watch in node_watch::all(db)? {
        let until = today.min(watch.retired_at.unwrap_or(Instant::MAX));
        let Some(silent) = Interval::new(watch.settled_until, until) else { continue };
        let days = calendar.days(silent);
        let marks: Vec<Mark> = days.iter().map(|day| Mark { day_start: day.start(), node: watch.node }).collect();
        db.transaction(|db| {
            usage::mark(db, &marks)?;
            node_watch::settle(db, &watch, until)
        })?;
        marked += marks.len();
    }
    Ok(marked)
}

/// The compute parts of all units of a node that lived in an interval, times how long; by unit. What its states must
/// sum to.
///
/// # Errors
/// The database's.
pub fn lives_of_day(db: &mut Db, node: NodeId, day: Interval) -> Result<Vec<UnitLife>, AppError> {
    let Some(watch) = node_watch::find(db, node)? else { return Ok(Vec::new()) };
    let told = segment::of_hours(db, node, &day.hours().collect::<Vec<_>>(), NOW)?;
    let units = unit::of_node(db, node)?;
    let seen: Vec<Segment> = told.iter().filter(|segment| segment.source == Source::Agent).cloned().collect();
    let owners = Owners::load(db, node, (day, NOW), &units, &seen)?;
    let Some(existed) = existed(&watch, &told, day) else { return Ok(Vec::new()) };
    Ok(owners.lives(lives(&units, existed).iter().map(unit_life).collect()))
}

fn unit_life(life: &Life<'_>) -> UnitLife {
    UnitLife { unit: life.unit.unit, sku: life.unit.sku, interval: life.interval }
}
