//! Closing a month: its charges are frozen and its statements issued, all of it or nothing, once.
//!
//! Charges are staged in chunks that nobody sees; then one short transaction checks that nothing they were made from
//! has changed, writes the statements with their numbers and seals. A closer that dies leaves staged charges that
//! the next one sweeps. Of two closers at once the later has the lease, and the earlier cannot seal.

use gpuledger_db::catalogue::{self, CatalogueKind};
use gpuledger_db::closing::{self, Inputs};
use gpuledger_db::{Db, allocation, audit, late_usage, period, statement, usage};
use gpuledger_domain::calendar::{BillingCalendar, Month, Period};
use gpuledger_domain::ids::checked_fact;
use gpuledger_domain::time::Instant;
use gpuledger_domain::units::{Fraction, Overflow};

use super::books::Books;
use super::capacity::capacity;
use super::price_period::{PricedPeriod, UnpricedUsage, price_period};
use super::statements::{StatementView, drafts};
use super::{counted, inventory};
use crate::error::AppError;

/// What closing came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closed {
    /// Just now.
    Now,
    /// Before; nothing was changed.
    Before,
}

/// Charges of one staging transaction.
const CHUNK_CHARGES: usize = 20_000;
/// How often a closing begins again because something it was made from changed under it.
const ATTEMPTS_MAX: usize = 5;

/// Contradictions that a refusal names.
const SHOWN_MAX: usize = 3;

/// Closes a month in which lists and inventory do not contradict each other.
///
/// # Errors
/// As [`close_accepting`].
pub fn close(
    db: &mut Db,
    calendar: &BillingCalendar,
    month: Month,
    actor: &str,
    clock: impl Fn() -> Instant,
) -> Result<Closed, AppError> {
    close_accepting(db, calendar, month, None, actor, clock)
}

/// Closes a month; with a reason also one in which more was held than exists.
///
/// # Errors
/// [`AppError::Refused`] where the month is not over, holds nothing, holds what has no price, contradicts the inventory
/// and no reason is given, or another closer took over; the database's. Nothing is changed then.
pub fn close_accepting(
    db: &mut Db,
    calendar: &BillingCalendar,
    month: Month,
    reason: Option<&str>,
    actor: &str,
    clock: impl Fn() -> Instant,
) -> Result<Closed, AppError> {
    if let Some(reason) = reason {
        let said = if reason.trim().is_empty() { Err("say why".to_owned()) } else { checked_fact(reason) };
        said.map_err(|message| AppError::Refused(format!("the reason for accepting contradictions: {message}")))?;
    }
    let period = calendar.period(month);
    if clock() < period.interval.end() {
        return Err(AppError::Refused(format!("{month} is not over: it ends at {}", period.interval.end())));
    }
    for _ in 0..ATTEMPTS_MAX {
        if db.transaction(|db| closed_before(db, &period))? {
            return Ok(Closed::Before);
        }
        // Silence of the month's last days counts, too.
        counted::settle_days(db, calendar, clock())?;
        let books = Books::in_force(db, calendar)?;
        if let Some(missing) = books.never_applied() {
            return Err(AppError::Refused(format!(
                "no {missing} were ever applied, and a close cannot be undone; apply them first with `gpuledger {missing} apply`"
            )));
        }
        let priced = match price_period(db, calendar, &period, &books) {
            Err(AppError::Changed(_)) => continue,
            priced => priced?,
        };
        refuse_unpriced(&priced)?;
        if priced.charges.is_empty() {
            return Err(AppError::Refused(format!(
                "no GPU-time of {month} is known, so there is nothing to close; import jobs that ran in it first"
            )));
        }
        refuse_adjusting_open_months(&priced)?;
        let in_part = told_in_part(db, &period, reason)?;
        let mut checked = match contradictions(db, calendar, &period, reason, clock()) {
            Err(AppError::Changed(_)) => continue,
            checked => checked?,
        };
        let accepted: Vec<String> = checked.accepted.into_iter().chain(in_part).collect();
        checked.accepted = (!accepted.is_empty()).then(|| accepted.join("; "));
        let views = drafts(&priced, &books)?;
        let Some(closing_id) = stage(db, &priced, &books, actor, clock())? else { continue };
        let closer = Closer { actor, checked };
        match db.transaction(|db| seal(db, &priced, &books, closing_id, &views, &closer, clock()))? {
            Sealed::Done => {
                tracing::info!(%month, closing_id, statements = views.len(), charges = priced.charges.len(), "closed");
                return Ok(Closed::Now);
            }
            Sealed::Stale => tracing::info!(%month, closing_id, "something changed meanwhile; closing begins again"),
            Sealed::TakenOver if db.transaction(|db| closed_before(db, &period))? => return Ok(Closed::Before),
            Sealed::TakenOver => {
                return Err(AppError::Refused(format!(
                    "another close of {month} took over; look with `gpuledger statement list --period {month}`"
                )));
            }
        }
    }
    Err(AppError::Refused(format!(
        "usage, teams, prices or rules of {month} kept changing; try again when imports and changes are done"
    )))
}

/// What has no price holds the close, and no flag overrides that.
fn refuse_unpriced(priced: &PricedPeriod) -> Result<(), AppError> {
    if priced.unpriced.is_empty() {
        return Ok(());
    }
    let lines: Result<Vec<String>, AppError> =
        priced.unpriced.iter().map(|unpriced| unpriced_text(priced, unpriced)).collect();
    Err(AppError::Refused(format!(
        "{} cannot be closed: some GPU-time has no price. Add prices for it with `gpuledger prices apply`:\n{}",
        priced.period.month,
        lines?.join("\n")
    )))
}

/// What the platform takes over of an earlier month must be frozen there, or the two could come to differ.
fn refuse_adjusting_open_months(priced: &PricedPeriod) -> Result<(), AppError> {
    let Some(first) = priced.adjusts_open_months.first() else { return Ok(()) };
    Err(AppError::Refused(format!(
        "{} cannot be closed before {first}: jobs that ended in it by a cause for which the platform pays ran in {first} already. Close {first} first",
        priced.period.month
    )))
}

/// A usage without a price, in words.
fn unpriced_text(priced: &PricedPeriod, unpriced: &UnpricedUsage) -> Result<String, AppError> {
    let seconds = gpuledger_domain::money::Printed::<0>::rounded(super::statements::seconds(unpriced.gpu_us)?)?;
    let team = priced.words.teams.get(&unpriced.team).map_or_else(String::new, ToString::to_string);
    Ok(format!(
        "  {}, {}, pool {}, team {team}: {seconds} GPU-seconds within {}: {}",
        unpriced.sku.code,
        unpriced.service_class.as_str(),
        unpriced.pool,
        unpriced.interval,
        unpriced.reason
    ))
}

/// Who closes, and what the month was compared with.
struct Closer<'a> {
    actor: &'a str,
    checked: Checked,
}

/// The version of the inventory, and the contradictions to it that were accepted, in words.
struct Checked {
    inventory: i32,
    accepted: Option<String>,
}

/// Where more was held than the inventory has, the close waits, unless a reason is given; then what was accepted.
fn contradictions(
    db: &mut Db,
    calendar: &BillingCalendar,
    period: &Period,
    reason: Option<&str>,
    now: Instant,
) -> Result<Checked, AppError> {
    // The version first: an inventory that is applied after it makes the seal begin again.
    let inventory = catalogue::current(db, CatalogueKind::Inventory)?.version;
    let checked = |accepted| Checked { inventory, accepted };
    if inventory::in_force(db)?.node_count() == 0 {
        return Ok(checked(None));
    }
    let report = capacity(db, calendar, period.interval, now)?;
    let (count, month) = (report.contradiction_count, period.month);
    match reason {
        _ if count == 0 => Ok(checked(None)),
        Some(reason) => Ok(checked(Some(format!("{count} contradictions accepted: {reason}")))),
        None => {
            let first: Vec<String> =
                report.contradictions.iter().take(SHOWN_MAX).map(|found| format!("  {found}")).collect();
            Err(AppError::Refused(format!(
                "{month} cannot be closed: {count} contradictions between lists and inventory, first:\n{}\nLook with `gpuledger capacity --period {month}`. Then correct the inventory and apply it, or the list and import it; or close with --accept-contradictions \"REASON\"",
                first.join("\n")
            )))
        }
    }
}

/// Jobs that still ran when a list was made within the month, and of which no later list tells more: the rest of their
/// time would be lost with the close. Unless a reason is given, it waits.
fn told_in_part(db: &mut Db, period: &Period, reason: Option<&str>) -> Result<Option<String>, AppError> {
    let jobs = allocation::told_in_part(db, period.interval)?;
    match reason {
        _ if jobs.is_empty() => Ok(None),
        Some(reason) => Ok(Some(format!("{} jobs told in part accepted: {reason}", jobs.len()))),
        None => {
            let first: Vec<String> =
                jobs.iter().take(SHOWN_MAX).map(|(cluster, id)| format!("  {id} of cluster {cluster}")).collect();
            Err(AppError::Refused(format!(
                "{month} cannot be closed: {} jobs still ran when the last list of them was made, within the month, first:\n{}\nImport a list made after the month, which tells their end or that they ran on; or close with --accept-contradictions \"REASON\", and what they held later in {month} is not charged",
                jobs.len(),
                first.join("\n"),
                month = period.month
            )))
        }
    }
}

/// Stages the charges; `None` if the month was closed meanwhile.
fn stage(db: &mut Db, priced: &PricedPeriod, books: &Books, actor: &str, at: Instant) -> Result<Option<i64>, AppError> {
    let [teams, prices, rules] = books.versions;
    let inputs = Inputs { usage: priced.usage_version, teams, prices, rules };
    let begun = db.transaction(|db| -> Result<Option<i64>, AppError> {
        period::ensure(db, &priced.period)?;
        if closed_before(db, &priced.period)? {
            return Ok(None);
        }
        Ok(Some(closing::begin(db, &priced.period, inputs, actor, at)?))
    })?;
    let Some(closing_id) = begun else { return Ok(None) };
    let mut first = 1;
    for charges in priced.charges.chunks(CHUNK_CHARGES) {
        // A closing that was swept meanwhile stages no more; its seal will find that another took over.
        db.transaction(|db| closing::stage(db, closing_id, first, charges))?;
        first += i64::try_from(charges.len()).map_err(|_| Overflow)?;
    }
    Ok(Some(closing_id))
}

/// Whether the period is closed, which is then so until the transaction ends. What others left behind is swept.
fn closed_before(db: &mut Db, period: &Period) -> Result<bool, AppError> {
    // The period before its closings, as everywhere.
    let state = period::find_locked(db, period.month)?;
    let closed = state.is_some_and(|state| state.closing.is_some());
    if closed {
        closing::sweep(db, period)?;
    }
    Ok(closed)
}

enum Sealed {
    Done,
    Stale,
    TakenOver,
}

fn seal(
    db: &mut Db,
    priced: &PricedPeriod,
    books: &Books,
    closing_id: i64,
    views: &[StatementView],
    closer: &Closer<'_>,
    at: Instant,
) -> Result<Sealed, AppError> {
    let period = &priced.period;
    catalogue::hold(db, catalogue::Hold::ToUse)?;
    let state = period::find_locked(db, period.month)?;
    let Some(state) = state.filter(|state| state.closer == closing_id && state.closing.is_none()) else {
        return Ok(Sealed::TakenOver);
    };
    let count = i64::try_from(priced.charges.len()).map_err(|_| Overflow)?;
    if state.usage_version != priced.usage_version
        || !usage::marks(db, Some(priced.rolled_up()))?.is_empty()
        || catalogue::versions(db)? != books.versions
        || catalogue::current(db, CatalogueKind::Inventory)?.version != closer.checked.inventory
    {
        return Ok(Sealed::Stale);
    }
    if closing::staged(db, closing_id)? != count {
        return Ok(Sealed::TakenOver);
    }
    // Compared with the month before as it is now, so that closing that month later changes nothing here.
    let compared = period::find(db, period.month.previous())?.and_then(|state| state.closing);
    issue(db, period, closing_id, compared, views)?;
    let exact = Fraction::sum(views.iter().map(|view| view.head.sums.exact))?;
    let charged: i64 =
        views.iter().try_fold(0i64, |sum, view| sum.checked_add(view.head.sums.charged_micros)).ok_or(Overflow)?;
    if let Some(corrected) = priced.corrected {
        late_usage::note_charged(db, corrected, closing_id)?;
    }
    closing::seal(db, period, closing_id, at, count, exact, charged)?;
    let after = format!("closing {closing_id}: {} statements, {count} charges, {exact} credits", views.len());
    let object = period.month.to_string();
    let (actor, object) = (closer.actor, object.as_str());
    audit::append(db, &audit::Change { at, actor, action: "close", object, before: "open", after: &after })?;
    if let Some(accepted) = &closer.checked.accepted {
        let after = format!("closing {closing_id}: {accepted}");
        let action = "close --accept-contradictions";
        audit::append(db, &audit::Change { at, actor, action, object, before: "", after: &after })?;
    }
    Ok(Sealed::Done)
}

/// Numbers the statements and stores them. A year's numbers have no gap: a transaction that fails gives them back.
fn issue(
    db: &mut Db,
    period: &Period,
    closing_id: i64,
    compared_closing: Option<i64>,
    views: &[StatementView],
) -> Result<(), AppError> {
    let year = period.month.year();
    let count = i32::try_from(views.len()).map_err(|_| Overflow)?;
    let first = closing::take_statement_numbers(db, year, count)?;
    for (number, view) in (first..).zip(views) {
        let mut head = view.head.clone();
        head.closing_id = closing_id;
        head.number = format!("ST-{}-{number:04}", period.month);
        head.version = 1;
        head.compared_closing = compared_closing;
        statement::insert(db, &head, &view.lines)?;
    }
    Ok(())
}
