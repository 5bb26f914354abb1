//! What comes of a month after it was closed. What stands stays; the difference is charged in the earliest open month
//! after it, as corrections that name what they correct.

use std::collections::BTreeSet;

use gpuledger_db::reported_segment::{self, AsideReason, RecordAside};
use gpuledger_db::usage::{self, Mark};
use gpuledger_db::{Db, allocation, dimensions, late_usage, period};
use gpuledger_domain::calendar::{BillingCalendar, Month, Period, slots};
use gpuledger_domain::ids::JobId;
use gpuledger_domain::metering::{EntryKind, State, Usage, UsageEntry, corrections, usage_by_slot};
use gpuledger_domain::time::{Instant, Interval};

use super::counted;
use crate::error::AppError;

/// What came of a closed month since it was, and where it is charged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateFact {
    /// The closed month.
    pub month: Month,
    /// The month that charges it, or will when it is closed.
    pub corrected_in: Month,
    /// Whether that month is closed too.
    pub is_charged: bool,
    /// How it corrects.
    pub entry: EntryKind,
    /// The slot in which the time was held.
    pub slot: Interval,
    /// The node, or the stand-in for a pool.
    pub node: String,
    /// The cluster of the job, and what its source calls it; `None` for time that no job held.
    pub job: Option<(String, String)>,
    /// The SKU, as the source calls it.
    pub sku: String,
    /// What the unit was doing. Only what was held is charged.
    pub state: State,
    /// Wall time × share × count, in microseconds; less than zero where it is taken back.
    pub share_us: i64,
}

/// All that came of closed months, charged or not, by slot, node, job and SKU.
///
/// # Errors
/// The database's.
pub fn list(db: &mut Db, calendar: &BillingCalendar) -> Result<Vec<LateFact>, AppError> {
    let states = period::all(db)?;
    let found = late_usage::all(db)?;
    let jobs: BTreeSet<JobId> = found.iter().map(|(_, entry)| entry.usage.key.job).collect();
    let names = allocation::names(db, &jobs.into_iter().collect::<Vec<_>>())?;
    let skus = dimensions::skus(db)?;
    let open_after = |month: Month| {
        let mut next = month.next();
        while states.iter().any(|state| state.period.month == next && state.closing.is_some()) {
            next = next.next();
        }
        next
    };
    let mut late = Vec::with_capacity(found.len());
    for (closing_id, UsageEntry { kind, usage }) in found {
        let month = calendar.period_of(usage.key.slot.start()).month;
        let charged = closing_id.and_then(|id| states.iter().find(|state| state.closing == Some(id)));
        late.push(LateFact {
            month,
            corrected_in: charged.map_or_else(|| open_after(month), |state| state.period.month),
            is_charged: charged.is_some(),
            entry: kind,
            slot: usage.key.slot,
            node: dimensions::node_name(db, usage.key.node)?,
            job: names
                .get(&usage.key.job)
                .filter(|_| usage.key.job.0 != 0)
                .map(|(cluster, name)| (cluster.clone(), name.source_id.clone())),
            sku: skus.get(&usage.key.sku).map(|sku| sku.code.to_string()).unwrap_or_default(),
            state: usage.key.state,
            share_us: usage.share_us,
        });
    }
    Ok(late)
}

/// A record of a collector that does not count as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptAside {
    /// Why.
    pub reason: &'static str,
    /// The cluster of its node.
    pub cluster: String,
    /// The node.
    pub node: String,
    /// The hour of its identity.
    pub hour: Instant,
    /// The epoch of its identity.
    pub epoch: i64,
    /// The number of its identity.
    pub number: i64,
    /// When it came first.
    pub received_at: Instant,
    /// As it was reported, as JSON.
    pub body: String,
}

/// The records that are kept aside, by node, epoch, hour and number.
///
/// # Errors
/// The database's.
pub fn kept_aside(db: &mut Db) -> Result<Vec<KeptAside>, AppError> {
    let (machines, clusters) = (dimensions::machines(db)?, dimensions::clusters(db)?);
    let read = |aside: RecordAside| {
        let (cluster, node) = machines.get(&aside.key.node).map(|(cluster, node)| (*cluster, node.clone())).unzip();
        KeptAside {
            reason: match aside.reason {
                AsideReason::OtherContent => "other content under an identity that is held",
                AsideReason::ClockOff if aside.replaced_at.is_some() => "the node's clock was off; re-placed since",
                AsideReason::ClockOff => "the node's clock was off",
            },
            cluster: cluster.and_then(|id| clusters.get(&id)).map(ToString::to_string).unwrap_or_default(),
            node: node.unwrap_or_default(),
            hour: aside.key.hour.start(),
            epoch: aside.key.epoch,
            number: aside.key.number,
            received_at: aside.received_at,
            body: aside.body,
        }
    };
    Ok(reported_segment::all_aside(db)?.into_iter().map(read).collect())
}

/// The earliest month after a closed one that is open. Nobody else closes it, or counts a change of it, until the
/// transaction ends.
///
/// # Errors
/// The database's.
pub(super) fn open_month_after(db: &mut Db, calendar: &BillingCalendar, closed: Month) -> Result<Period, AppError> {
    let mut month = closed.next();
    loop {
        let period = calendar.period(month);
        period::ensure(db, &period)?;
        let is_closed = |state: Option<period::PeriodState>| state.is_some_and(|state| state.closing.is_some());
        // What is closed stays so; only the one that is open is held, since its usage may be about to change.
        if !is_closed(period::find(db, month)?) && !is_closed(period::find_locked(db, month)?) {
            return Ok(period);
        }
        month = month.next();
    }
}

/// The time of the closed months that are corrected in an open one: of all that lie directly before it.
///
/// # Errors
/// The database's.
pub fn corrected_in(
    db: &mut Db,
    calendar: &BillingCalendar,
    corrected_in: &Period,
) -> Result<Option<Interval>, AppError> {
    let closed: BTreeSet<Month> =
        period::all(db)?.into_iter().filter(|state| state.closing.is_some()).map(|state| state.period.month).collect();
    let mut first = corrected_in.month;
    while closed.contains(&first.previous()) {
        first = first.previous();
    }
    Ok(Interval::new(calendar.period(first).interval.start(), corrected_in.interval.start()))
}

/// What is charged in an open month as corrections: what came of closed months since they were.
///
/// # Errors
/// The database's.
pub(super) fn open_entries(
    db: &mut Db,
    calendar: &BillingCalendar,
    period: &Period,
) -> Result<Vec<UsageEntry>, AppError> {
    let corrected = corrected_in(db, calendar, period)?;
    Ok(corrected.map(|corrected| late_usage::open(db, corrected)).transpose()?.unwrap_or_default())
}

/// Compares what is known now of a marked day of a closed month with what stands, and keeps the difference for the
/// earliest open month; whether that changed. Call it in a transaction that holds the closed month.
///
/// # Errors
/// The database's, or a sum that does not fit.
pub(super) fn sum_day(
    db: &mut Db,
    calendar: &BillingCalendar,
    mark: Mark,
    changes: &[Instant],
    corrected_in: &Period,
) -> Result<bool, AppError> {
    let day = calendar.day_of(mark.day_start);
    let charged = late_usage::charged_of_day(db, mark.node, day)?;
    let mut standing = usage::of_node(db, mark.node, day)?;
    standing.extend(charged.iter().map(|entry| entry.usage));
    let segments = counted::of_day(db, mark.node, day, counted::NOW)?;
    let wanted = usage_by_slot(&segments, &slots(day, &standing_cuts(day, &standing, changes)))?;
    let entries = corrections(&standing, &wanted)?;
    let changed = late_usage::replace_open(db, mark.node, day, &entries)?;
    if changed {
        tracing::info!(
            month = %calendar.period_of(day.start()).month, corrected_in = %corrected_in.month, node = mark.node.0,
            entries = entries.len(), "what came late is charged as a correction"
        );
        period::count_usage_change(db, corrected_in)?;
    }
    Ok(changed)
}

/// The cuts of a day as it was summed: what stands must be compared with the same slots, also where a change since
/// then brought a cut by which no amount changed.
fn standing_cuts(day: Interval, standing: &[Usage], changes: &[Instant]) -> Vec<Instant> {
    let slots: BTreeSet<Interval> = standing.iter().map(|usage| usage.key.slot).collect();
    let lies_within = |cut: &Instant| slots.iter().any(|slot| slot.start() < *cut && *cut < slot.end());
    let edges = slots.iter().flat_map(|slot| [slot.start(), slot.end()]).filter(|edge| day.contains(*edge));
    let cuts: BTreeSet<Instant> =
        edges.chain(changes.iter().copied().filter(|cut| day.contains(*cut) && !lies_within(cut))).collect();
    cuts.into_iter().collect()
}
