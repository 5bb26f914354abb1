//! What is behind an amount: the charges of a statement, and the segments of a charge.

use std::collections::BTreeSet;

use gpuledger_db::allocation::{self, AttemptName};
use gpuledger_db::catalogue::{self, CatalogueKind};
use gpuledger_db::{Db, DbError, closing, dimensions, late_usage};
use gpuledger_domain::calendar::BillingCalendar;
use gpuledger_domain::ids::{JobId, PoolName};
use gpuledger_domain::metering::{EntryKind, Segment};
use gpuledger_domain::pricing::{Charge, Sku};
use gpuledger_domain::time::{Instant, Interval};
use gpuledger_domain::units::{Fraction, Overflow};

use super::counted;
use super::price_period::Words;
use super::statements::StatementView;
use crate::error::AppError;
use crate::files::{SourceText, prices};

/// A charge with the words behind its numbers.
#[derive(Clone, Debug)]
pub struct ChargeEvidence {
    /// Its number within the closing.
    pub number: i64,
    /// The charge.
    pub charge: Charge,
    /// The cluster of its job.
    pub cluster: String,
    /// What the source calls the attempt.
    pub attempt: AttemptName,
    /// Of what.
    pub sku: Sku,
    /// In which pool.
    pub pool: PoolName,
    /// The experiment, if one is named.
    pub experiment: Option<String>,
}

/// The part of a segment that lies in the slot of a charge, with the name of its node.
#[derive(Clone, Debug)]
pub struct SegmentEvidence {
    /// The segment.
    pub segment: Segment,
    /// What of it lies in the slot.
    pub interval: Interval,
    /// Its share of the segment's time, by wall time, in microseconds.
    pub share_us: Fraction,
    /// Of it, while the job was suspended.
    pub suspended_us: Fraction,
    /// The node, or the stand-in for the pool where the source names none.
    pub node: String,
}

fn lost(what: &str) -> AppError {
    AppError::Database(DbError::Inconsistent(format!("{what} is missing")))
}

/// The charges of an issued statement, in their order. They sum to its charged amount.
///
/// # Errors
/// The database's.
pub fn charges(db: &mut Db, view: &StatementView) -> Result<Vec<ChargeEvidence>, AppError> {
    let head = &view.head;
    let words = Words::load(db)?;
    let charges = closing::charges(db, head.closing_id, head.first_charge, head.last_charge)?;
    let jobs: BTreeSet<JobId> = charges.iter().map(|charge| charge.job).collect();
    let names = allocation::names(db, &jobs.into_iter().collect::<Vec<_>>())?;
    let evidence = (head.first_charge..).zip(charges).map(|(number, charge)| {
        let (cluster, attempt) = names.get(&charge.job).cloned().ok_or_else(|| lost("the job of a charge"))?;
        Ok(ChargeEvidence {
            number,
            cluster,
            attempt,
            sku: words.skus.get(&charge.sku).cloned().ok_or_else(|| lost("the SKU of a charge"))?,
            pool: words.pools.get(&charge.payer.pool).cloned().ok_or_else(|| lost("the pool of a charge"))?,
            experiment: words.experiments.get(&charge.payer.experiment).map(|(_, name)| name.clone()),
            charge,
        })
    });
    evidence.collect()
}

/// The segments behind a charge of an issued statement, as far as they lie in its slot: they sum to what it charges.
///
/// # Errors
/// [`AppError::Missing`] where the statement has no such charge; the database's.
pub fn segments(
    db: &mut Db,
    calendar: &BillingCalendar,
    view: &StatementView,
    number: i64,
) -> Result<Vec<SegmentEvidence>, AppError> {
    let head = &view.head;
    if !(head.first_charge..=head.last_charge).contains(&number) {
        return Err(AppError::Missing(format!(
            "{} has the charges {} to {}; `gpuledger statement charges {}` shows them",
            head.number, head.first_charge, head.last_charge, head.number
        )));
    }
    let found = closing::charges(db, head.closing_id, number, number)?;
    let charge = found.first().ok_or_else(|| lost("a charge"))?;
    let mut evidence = Vec::new();
    let segments = behind(db, calendar, head.closing_id, charge)?;
    let segments = of_sku(db, calendar, view, charge, segments)?;
    for (segment, sign) in segments {
        let within = segment.interval.intersection(charge.slot).filter(|_| segment.facts == charge.facts);
        let Some(interval) = within else { continue };
        let part = Fraction::new(interval.length_us().into(), segment.interval.length_us().into()).ok_or(Overflow)?;
        let of = |total: i64| Fraction::whole(i128::from(total) * sign).times(part);
        let (share_us, suspended_us) = (of(segment.share_us)?, of(segment.suspended_us)?);
        let node = if segment.on_node.0 == 0 { segment.key.node } else { segment.on_node };
        let node = dimensions::node_name(db, node)?;
        evidence.push(SegmentEvidence { segment, interval, share_us, suspended_us, node });
    }
    Ok(evidence)
}

/// A segment, and 1; or −1 where it is taken back.
type Signed = (Segment, i128);

/// The segments of the charge's job that it stands for: those that were known when its month was closed. A correction
/// stands for what came since then, or since a closing corrected that month last. An addition: what is new of it, less
/// what that takes the place of. A reversal: what was known before, taken back. A re-entry: all that was known now.
fn behind(db: &mut Db, calendar: &BillingCalendar, closing_id: i64, charge: &Charge) -> Result<Vec<Signed>, AppError> {
    let day = calendar.day_of(charge.slot.start());
    let Some(corrects) = charge.corrects else {
        return Ok(signed(counted::of_job(db, charge.job, day, counted::AT_CLOSE)?, 1));
    };
    let mut then = counted::AT_CLOSE;
    let mut now = None;
    for (id, sealed_at) in late_usage::charged_at(db, charge.job, charge.slot)? {
        if id == closing_id {
            now = Some(sealed_at);
            break;
        }
        then = sealed_at;
    }
    let now = now.ok_or_else(|| lost("when a correction was charged"))?;
    let mut known_by = |at: Instant| counted::of_job(db, charge.job, day, at);
    Ok(match corrects.entry {
        EntryKind::Reversal => signed(known_by(then)?, -1),
        EntryKind::Reentry => signed(known_by(now)?, 1),
        EntryKind::Addition => {
            let (mut before, mut after) = (known_by(then)?, known_by(now)?);
            let stays: Vec<Segment> = after.iter().filter(|segment| before.contains(segment)).cloned().collect();
            before.retain(|segment| !stays.contains(segment));
            after.retain(|segment| !stays.contains(segment));
            signed(before, -1).into_iter().chain(signed(after, 1)).collect()
        }
    })
}

fn signed(segments: Vec<Segment>, sign: i128) -> Vec<Signed> {
    segments.into_iter().map(|segment| (segment, sign)).collect()
}

/// Those of a job's segments that the charge's SKU was held in: sources call a SKU by other names than the price book,
/// and a job may hold several. The book is the one that the closing was made from.
fn of_sku(
    db: &mut Db,
    calendar: &BillingCalendar,
    view: &StatementView,
    charge: &Charge,
    segments: Vec<Signed>,
) -> Result<Vec<Signed>, AppError> {
    let alike = segments.windows(2).all(|pair| matches!(pair, [(a, _), (b, _)] if a.sku == b.sku));
    if alike {
        return Ok(segments);
    }
    let version = closing::sealed(db, view.head.closing_id)?.inputs.prices;
    let stored = catalogue::version(db, CatalogueKind::Prices, version)?;
    let source = SourceText::new(&format!("prices version {version}"), &stored.body);
    let book = prices::parse(&source, calendar, prices::Checks::Stored)?;
    let words = Words::load(db)?;
    let code = |sku| words.skus.get(&sku).map(|sku: &Sku| sku.code.clone());
    let charged = code(charge.sku);
    let meant = |segment: &Segment| {
        let told = code(segment.sku)?;
        Some(book.sku(told.as_str()).map_or(told, |sku| sku.code))
    };
    Ok(segments.into_iter().filter(|(segment, _)| meant(segment) == charged).collect())
}
