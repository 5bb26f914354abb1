//! Usage as the roll-up would leave it, by the cuts in force and by those wanted, without storing it.

use std::collections::{BTreeMap, BTreeSet};

use gpuledger_db::{Db, usage};
use gpuledger_domain::calendar::{BillingCalendar, Period, slots};
use gpuledger_domain::ids::NodeId;
use gpuledger_domain::metering::{Usage, usage_by_slot};
use gpuledger_domain::time::{Instant, Interval};

use super::NowThen;
use crate::error::AppError;
use crate::workflows::counted;

/// Billing days by their first instant, and the nodes whose usage is to be summed in them.
type Days = BTreeMap<Instant, (Interval, BTreeSet<NodeId>)>;

/// The usage of a period.
pub(super) struct Usages {
    /// By the cuts in force.
    pub(super) now: Vec<Usage>,
    /// By the cuts wanted; `None` where it is the same.
    pub(super) then: Option<Vec<Usage>>,
}

/// The usage of a period by these cuts. Stored usage is by those in force, but for marked days.
pub(super) fn usages(
    db: &mut Db,
    calendar: &BillingCalendar,
    period: &Period,
    changes: NowThen<&[Instant]>,
) -> Result<Usages, AppError> {
    let stored = usage::of_interval(db, period.interval)?;
    let mut days = Days::new();
    for mark in usage::marks(db, Some(period.interval))? {
        add(&mut days, calendar.day_of(mark.day_start), [mark.node]);
    }
    let now = summed(db, &stored, &days, changes.now)?;
    let mut cut_otherwise = false;
    for day in days_cut_otherwise(calendar, period, changes) {
        cut_otherwise = true;
        add(&mut days, day, usage::nodes_of_interval(db, day)?);
    }
    let then = if cut_otherwise { Some(summed(db, &stored, &days, changes.then)?) } else { None };
    Ok(Usages { now, then })
}

fn add(days: &mut Days, day: Interval, nodes: impl IntoIterator<Item = NodeId>) {
    days.entry(day.start()).or_insert_with(|| (day, BTreeSet::new())).1.extend(nodes);
}

/// The days of a period that would gain or lose a cut inside.
fn days_cut_otherwise(calendar: &BillingCalendar, period: &Period, changes: NowThen<&[Instant]>) -> BTreeSet<Interval> {
    let sets = changes.map(|changes| changes.iter().copied().collect::<BTreeSet<Instant>>());
    let cuts = sets.now.symmetric_difference(&sets.then).filter(|cut| period.interval.contains(**cut));
    let days = cuts.map(|cut| (*cut, calendar.day_of(*cut)));
    days.filter(|(cut, day)| day.start() != *cut).map(|(_, day)| day).collect()
}

/// What is stored, with these days of these nodes summed again.
fn summed(db: &mut Db, stored: &[Usage], days: &Days, changes: &[Instant]) -> Result<Vec<Usage>, AppError> {
    let is_summed_again = |usage: &Usage| {
        let start = usage.key.slot.start();
        let day = days.range(..=start).next_back();
        day.is_some_and(|(_, (day, nodes))| day.contains(start) && nodes.contains(&usage.key.node))
    };
    let mut usages: Vec<Usage> = stored.iter().filter(|usage| !is_summed_again(usage)).copied().collect();
    for (day, nodes) in days.values() {
        let slots = slots(*day, changes);
        for node in nodes {
            usages.extend(usage_by_slot(&counted::of_day(db, *node, *day, counted::NOW)?, &slots)?);
        }
    }
    Ok(usages)
}
