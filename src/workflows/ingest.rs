//! Reports of collectors are stored, each record once however often and in whatever order it comes.
//!
//! A group of reports is one transaction: what the answers say is stored when they are given. Nothing here decides
//! an amount: finished segments are kept as they came, days are marked, and the roll-up finds out what counts.

mod heads;
mod interned;
mod pending;
mod records;
mod replaced;

use gpuledger_db::{Db, node_watch};
use gpuledger_domain::calendar::BillingCalendar;
use gpuledger_domain::time::{HOUR_US, Instant};
use gpuledger_wire::{Outcome, RecordAnswer, RecordCode};

use crate::error::AppError;
use crate::import::report::NodeReport;

pub use heads::settle_old_heads;
use interned::Interned;
use pending::{Context, Pending};

/// How far a node's clock may be off, either way, for its records to count.
pub const CLOCK_OFF_MAX_US: i64 = 300_000_000;
/// How old a record may be: segments are kept for thirteen months.
pub const AGE_MAX_US: i64 = 400 * 24 * HOUR_US;
/// How often a group is tried where another replica was in its way.
const TRIES: u32 = 4;

/// What came of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// For each finished segment, in the order of the report.
    pub records: Vec<RecordAnswer>,
    /// For the head, if there was one.
    pub head: Option<RecordAnswer>,
}

/// Takes reports, one group after the other, and remembers the numbers of what it met.
#[derive(Debug)]
pub struct Ingest {
    calendar: BillingCalendar,
    default_pool: gpuledger_domain::ids::PoolName,
    interned: Interned,
}

impl Ingest {
    /// Nodes that the inventory does not know are in `default_pool`.
    #[must_use]
    pub fn new(calendar: BillingCalendar, default_pool: gpuledger_domain::ids::PoolName) -> Ingest {
        Ingest { calendar, default_pool, interned: Interned::default() }
    }

    /// Stores a group of reports in one transaction; what came of each, in their order.
    ///
    /// # Errors
    /// The database's. Nothing of the group is stored then.
    pub fn take(&mut self, db: &mut Db, reports: &[NodeReport], now: Instant) -> Result<Vec<Taken>, AppError> {
        let mut tries = 1;
        loop {
            let taken = db.transaction(|db| {
                let mut pending = Pending::default();
                let taken = reports.iter().map(|report| self.take_one(db, &mut pending, report, now));
                let taken = taken.collect::<Result<Vec<_>, AppError>>()?;
                pending.write(db)?;
                Ok(taken)
            });
            match taken {
                Err(AppError::Database(error)) if tries < TRIES && error.is_passing() => {
                    // What this transaction numbered is gone with it.
                    self.interned = Interned::default();
                    tries += 1;
                }
                Err(error) => {
                    self.interned = Interned::default();
                    return Err(error);
                }
                taken => return taken,
            }
        }
    }

    fn take_one(
        &mut self,
        db: &mut Db,
        pending: &mut Pending,
        report: &NodeReport,
        now: Instant,
    ) -> Result<Taken, AppError> {
        let (cluster, node) = self.interned.node(db, report, (&self.calendar, &self.default_pool))?;
        let received_at = report.received_at.unwrap_or(now);
        let off = report.wall.micros().abs_diff(received_at.micros());
        if off > CLOCK_OFF_MAX_US.unsigned_abs() {
            let message = format!("the node's clock says {}, the service's {received_at}", report.wall);
            tracing::warn!(cluster = %report.cluster, node = %report.node, %message, "records are kept aside");
            let records = records::all_aside(db, pending, node, report, (now, &message))?;
            let head = (!report.head.is_empty()).then(|| answer(None, RecordCode::ClockOff, &message));
            return Ok(Taken { records, head });
        }
        let numbers = self.interned.of_report(db, node, report)?;
        let context = Context { calendar: &self.calendar, cluster, node, report, numbers: &numbers, now };
        for (day, jobs) in records::days(&self.calendar, report.segments.iter(), now) {
            let jobs = jobs.into_iter().filter_map(|job| numbers.jobs.get(job));
            let new_jobs = jobs.filter(|(job, _)| self.interned.reported_jobs.insert((*job, day.start())));
            let is_new = new_jobs.count() > 0;
            if self.interned.reported_days.insert((node, day.start())) || is_new {
                pending.mark_books(db, &context, day)?;
            }
        }
        if let Some(changed) = numbers.changed_from
            && let Some(watch) = node_watch::find(db, node)?
        {
            pending.mark_from(&self.calendar, node, changed.max(watch.from), now);
        }
        let records = records::take(db, pending, &context, self.interned.are_new(&context))?;
        self.interned.note_newest(&context);
        let head = heads::take(db, pending, &context, self.interned.head(node))?;
        if pending.heads.get(&node).is_some_and(|head| (head.epoch, head.sequence) == (report.epoch, report.sequence)) {
            self.interned.note_head(&context);
        }
        let taken = Taken { records, head };
        if let Some(from) = earliest(report, &taken) {
            self.interned.watch(db, node, from)?;
        }
        Ok(taken)
    }
}

/// The earliest instant of which a report tells and that counts.
fn earliest(report: &NodeReport, taken: &Taken) -> Option<Instant> {
    let counts = |answer: &RecordAnswer| matches!(answer.outcome, Outcome::Accepted | Outcome::Known);
    let finished = report.segments.iter().zip(&taken.records).filter(|(_, answer)| counts(answer));
    let in_force = taken.head.as_ref().is_some_and(|answer| answer.outcome == Outcome::Accepted);
    let open = report.head.iter().filter(|_| in_force);
    let told = finished.map(|(record, _)| record).chain(open).filter_map(|record| record.content.as_ref().ok());
    told.map(|content| content.interval.start()).min()
}

/// The answer to a record that is not stored as it was meant.
fn answer(record: Option<gpuledger_wire::RecordName>, code: RecordCode, message: &str) -> RecordAnswer {
    let outcome = match code {
        RecordCode::OtherContent => Outcome::Conflict,
        RecordCode::ClockOff => Outcome::Quarantined,
        RecordCode::Superseded => Outcome::Known,
        _ => Outcome::Rejected,
    };
    RecordAnswer { record, outcome, code: Some(code), message: message.to_owned() }
}

/// The answer to a record that is held now.
fn held(record: Option<gpuledger_wire::RecordName>, outcome: Outcome) -> RecordAnswer {
    RecordAnswer { record, outcome, code: None, message: String::new() }
}
