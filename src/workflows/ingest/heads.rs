//! Heads: what is still open on a node. The newest head of the newest epoch stands; what stands no more and was not
//! finished by its collector becomes provisional segments.

use gpuledger_db::head::{self, Head};
use gpuledger_db::reported_segment;
use gpuledger_db::{Db, dimensions};
use gpuledger_domain::calendar::BillingCalendar;
use gpuledger_domain::time::{HOUR_US, Instant};
use gpuledger_wire::{Outcome, RecordAnswer, RecordCode, Report};

use super::interned::Interned;
use super::pending::{Context, Pending};
use super::records::days;
use super::{AGE_MAX_US, answer, held};
use crate::error::AppError;
use crate::import::report::{NodeReport, read_stored};

/// How long a head may stand before its collector counts as gone.
const HEAD_AGE_MAX_US: i64 = 2 * HOUR_US;

/// Puts a report's head in the place of the one before, or says why not.
/// `known` is the epoch and sequence of the node's head, where they are remembered.
pub(super) fn take(
    db: &mut Db,
    pending: &mut Pending,
    context: &Context<'_>,
    known: Option<(i64, i64)>,
) -> Result<Option<RecordAnswer>, AppError> {
    let report = context.report;
    // The next one of the same epoch needs no look at the one before.
    let follows = known.is_some_and(|(epoch, sequence)| epoch == report.epoch && sequence < report.sequence);
    let before = match pending.heads.get(&context.node) {
        Some(head) => Some(head.clone()),
        None if follows => None,
        None => head::find(db, context.node)?,
    };
    let newest = before.as_ref().map(|head| (head.epoch, head.sequence));
    if newest.is_some_and(|newest| newest >= (report.epoch, report.sequence)) {
        if before.is_some_and(|head| head.epoch > report.epoch) {
            provisional(db, pending, context)?;
        }
        let message = "a later head is in force";
        return Ok((!report.head.is_empty()).then(|| answer(None, RecordCode::Superseded, message)));
    }
    if let Some(before) = before.filter(|head| head.epoch < report.epoch) {
        settle(db, pending, context.calendar, &before, context.now)?;
    }
    let wrong = report.head.iter().find_map(|record| record.content.as_ref().err());
    if let Some((code, message)) = wrong {
        return Ok(Some(answer(None, *code, message)));
    }
    let oldest = context.now.micros().saturating_sub(AGE_MAX_US);
    let told = report.head.iter().filter_map(|record| record.content.as_ref().ok());
    if told.map(|content| content.interval.start().micros()).any(|start| start < oldest) {
        return Ok(Some(answer(None, RecordCode::TooOld, "it is older than segments are kept")));
    }
    let told = Report { segments: Vec::new(), ..report.told.clone() };
    let body = serde_json::to_string(&told).map_err(|error| AppError::Refused(format!("a head: {error}")))?;
    let (epoch, sequence) = (report.epoch, report.sequence);
    let head = Head { node: context.node, epoch, sequence, received_at: context.now, body };
    pending.heads.insert(context.node, head);
    Ok((!report.head.is_empty()).then(|| held(None, Outcome::Accepted)))
}

/// Stores the open segments of a report as provisional ones, where nothing finished has their identity.
fn provisional(db: &mut Db, pending: &mut Pending, context: &Context<'_>) -> Result<(), AppError> {
    let closed = pending.closed_months(db, context)?;
    for (day, _) in days(context.calendar, context.report.head.iter(), context.now) {
        pending.mark_books(db, context, day)?;
    }
    for record in &context.report.head {
        let Ok(content) = &record.content else { continue };
        let Some(segment) = context.segment(record, content, true) else { continue };
        let key = segment.segment.key;
        let of_key = (key.node, key.epoch, key.hour);
        let stored = match pending.segments.get(&key) {
            Some(stored) => Some(stored.clone()),
            None => reported_segment::held(db, of_key, (key.number, key.number))?.remove(&key.number),
        };
        match stored {
            None => pending.put(db, context, segment, (&closed, false))?,
            // Of two heads the one that saw more.
            Some(stored) if stored.provisional && stored.segment.interval.end() < content.interval.end() => {
                pending.put(db, context, segment, (&closed, true))?;
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// Writes a stored head as provisional segments.
fn settle(
    db: &mut Db,
    pending: &mut Pending,
    calendar: &BillingCalendar,
    before: &Head,
    now: Instant,
) -> Result<(), AppError> {
    let report: NodeReport = match read_stored(&before.body) {
        Ok(report) => report,
        Err(refusal) => {
            // It must not keep the node's next reports, or other nodes' heads, from being taken.
            tracing::error!(node = before.node.0, reason = %refusal.message, "a head cannot be read and is lost");
            return Ok(());
        }
    };
    let cluster = dimensions::intern_cluster(db, &report.cluster)?;
    let numbers = Interned::default().of_report(db, before.node, &report)?;
    provisional(db, pending, &Context { calendar, cluster, node: before.node, report: &report, numbers: &numbers, now })
}

/// Writes heads that nobody replaced for two hours as provisional segments, and removes them; how many there were.
///
/// # Errors
/// The database's. Heads done before stay done.
pub fn settle_old_heads(db: &mut Db, calendar: &BillingCalendar, now: Instant) -> Result<usize, AppError> {
    let oldest = now.plus_micros(-HEAD_AGE_MAX_US).unwrap_or(now);
    let mut settled = 0;
    for found in head::older_than(db, oldest)? {
        settled += usize::from(db.transaction(|db| {
            // A report may have come meanwhile.
            let Some(current) = head::find(db, found.node)?.filter(|current| *current == found) else {
                return Ok::<bool, AppError>(false);
            };
            let mut pending = Pending::default();
            settle(db, &mut pending, calendar, &current, now)?;
            pending.write(db)?;
            head::remove(db, &current)?;
            Ok(true)
        })?);
    }
    Ok(settled)
}
