//! Teams, prices, rules and the inventory come into force: a new version, with its audit entry, or nothing.
//!
//! A change that would alter a closed month is refused: the month is priced again with the changed books, and every
//! charge must come out as it was frozen. Open months follow at once. The inventory decides no amount and changes none.

use std::collections::{BTreeMap, BTreeSet};

use gpuledger_db::catalogue::{self, CatalogueKind, CatalogueVersion, Hold};
use gpuledger_db::usage::{self, Mark};
use gpuledger_db::{Db, audit, closing, dimensions, late_usage, open_cost, period};
use gpuledger_domain::calendar::{BillingCalendar, Period, slots};
use gpuledger_domain::metering::{Usage, usage_by_slot};
use gpuledger_domain::pricing::{Charge, Unpriced};
use gpuledger_domain::time::{Instant, Interval};
use sha2::{Digest, Sha256};

use super::books::Books;
use super::price_period::{Chargeable, NewWords, UnpricedUsage};
use super::{counted, price_period, roll_up};
use crate::error::AppError;
use crate::files::{SourceText, rules};

/// What applying came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The version now in force.
    pub version: i32,
    /// Whether it is new; not so if the same text was in force already.
    pub changed: bool,
}

/// A catalogue that someone wants in force.
#[allow(missing_debug_implementations)]
pub struct Wanted<'a> {
    /// Which.
    pub kind: CatalogueKind,
    /// Reads it into its place among the books in force; gives its whole text.
    pub read: &'a dyn Fn(&mut Books) -> Result<String, AppError>,
    /// Who wants it.
    pub actor: &'a str,
}

/// A catalogue that passed every check, beside what it would take the place of.
pub(super) struct Checked {
    /// The version it would be.
    pub(super) version: CatalogueVersion,
    /// The books in force.
    pub(super) in_force: Books,
    /// The books with it.
    pub(super) books: Books,
    /// Every change of the books in force.
    pub(super) before: Vec<Instant>,
    /// Every change of the books with it.
    pub(super) after: Vec<Instant>,
}

/// Puts a catalogue in force.
///
/// # Errors
/// [`AppError::Input`] where it holds mistakes; [`AppError::Refused`] where it would change a closed month, leave a hole
/// in the prices of used SKUs, or take away teams that rules name; the database's. Nothing is changed then.
pub fn apply(db: &mut Db, calendar: &BillingCalendar, wanted: &Wanted<'_>, now: Instant) -> Result<Applied, AppError> {
    let applied = db.transaction(|db| {
        catalogue::hold(db, Hold::ToChange)?;
        let (current, checked) = check(db, calendar, wanted, NewWords::Interned)?;
        let Some(checked) = checked else {
            return Ok(Applied { version: current.version, changed: false });
        };
        for (code, _) in checked.books.teams.all() {
            dimensions::intern_team(db, code)?;
        }
        catalogue::append(db, wanted.kind, &checked.version, now, wanted.actor)?;
        mark_changed_cuts(db, calendar, &checked.before, &checked.after)?;
        open_cost::mark_priced(db)?;
        tell_audit(db, wanted, &current, &checked.version, now)?;
        Ok::<Applied, AppError>(Applied { version: checked.version.version, changed: true })
    })?;
    tracing::info!(kind = wanted.kind.as_str(), version = applied.version, changed = applied.changed, "applied");
    roll_up::roll_up(db, calendar, None)?;
    Ok(applied)
}

/// Reads a wanted catalogue and checks all that may refuse it: the version in force, and what was checked unless the
/// text is in force already.
pub(super) fn check(
    db: &mut Db,
    calendar: &BillingCalendar,
    wanted: &Wanted<'_>,
    new_words: NewWords,
) -> Result<(CatalogueVersion, Option<Checked>), AppError> {
    let current = catalogue::current(db, wanted.kind)?;
    let in_force = Books::in_force(db, calendar)?;
    let mut books = in_force.clone();
    let body = (wanted.read)(&mut books)?;
    let sha256 = Sha256::digest(body.as_bytes()).to_vec();
    if current.sha256 == sha256 {
        return Ok((current, None));
    }
    let memberships = dimensions::memberships(db)?;
    let (before, after) = (in_force.changes(&memberships), books.changes(&memberships));
    // The inventory decides no amount.
    if wanted.kind != CatalogueKind::Inventory {
        check_rules_find_their_teams(db, calendar, wanted.kind, &books)?;
        refuse_changes_of_closed_months(db, calendar, &books, &after, new_words)?;
    }
    if wanted.kind == CatalogueKind::Prices {
        refuse_gaps(db, calendar, &books, &after, new_words)?;
    }
    let version = CatalogueVersion { version: current.version + 1, sha256, body };
    Ok((current, Some(Checked { version, in_force, books, before, after })))
}

fn tell_audit(
    db: &mut Db,
    wanted: &Wanted<'_>,
    before: &CatalogueVersion,
    after: &CatalogueVersion,
    at: Instant,
) -> Result<(), AppError> {
    let describe = |version: &CatalogueVersion| match version.version {
        0 => String::new(),
        number => {
            let hex: String = version.sha256.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("version {number}, SHA-256 {hex}")
        }
    };
    let (object, action) = (wanted.kind.as_str(), format!("{} apply", wanted.kind.as_str()));
    let (before, after) = (describe(before), describe(after));
    let change = audit::Change { at, actor: wanted.actor, action: &action, object, before: &before, after: &after };
    Ok(audit::append(db, &change)?)
}

/// Rules in force must not name teams that are gone, nor new rules teams that are not there.
fn check_rules_find_their_teams(
    db: &mut Db,
    calendar: &BillingCalendar,
    kind: CatalogueKind,
    books: &Books,
) -> Result<(), AppError> {
    if kind != CatalogueKind::Teams {
        return Ok(());
    }
    let rules = catalogue::current(db, CatalogueKind::Rules)?;
    let source = SourceText::new("rules in force", &rules.body);
    Ok(rules::check_teams(&source, calendar, &books.teams)?)
}

/// Where a day gains or loses a cut inside it, its usage must be summed by the new slots.
fn mark_changed_cuts(
    db: &mut Db,
    calendar: &BillingCalendar,
    before: &[Instant],
    after: &[Instant],
) -> Result<(), AppError> {
    let (before, after): (BTreeSet<_>, BTreeSet<_>) = (before.iter().collect(), after.iter().collect());
    let mut marks = BTreeSet::new();
    for cut in before.symmetric_difference(&after) {
        let day = calendar.day_of(**cut);
        if day.start() != **cut {
            let nodes = usage::nodes_of_interval(db, day)?;
            marks.extend(nodes.into_iter().map(|node| Mark { day_start: day.start(), node }));
        }
    }
    Ok(usage::mark(db, &marks.into_iter().collect::<Vec<_>>())?)
}

/// A time without a price between two prices of a SKU is a slip where the SKU was used in it; to leave it unpriced on
/// purpose, there is an empty price.
fn refuse_gaps(
    db: &mut Db,
    calendar: &BillingCalendar,
    books: &Books,
    changes: &[Instant],
    new_words: NewWords,
) -> Result<(), AppError> {
    let gaps = books.prices.gaps();
    if gaps.is_empty() {
        return Ok(());
    }
    for state in period::all(db)?.into_iter().filter(|state| state.closing.is_none()) {
        let usages = usage_with_cuts(db, calendar, &state.period, changes, counted::NOW)?;
        for gap in gaps.iter().filter(|gap| gap.interval.intersection(state.period.interval).is_some()) {
            let within: Vec<Usage> =
                usages.iter().copied().filter(|usage| gap.interval.contains(usage.key.slot.start())).collect();
            let unpriced = price_period::unpriced(db, books, &within, new_words)?;
            let hit = |unpriced: &UnpricedUsage| {
                unpriced.reason == Unpriced::NoPrice
                    && unpriced.sku.code == gap.key.sku
                    && unpriced.service_class == gap.key.service_class
                    && gap.key.pool.as_ref().is_none_or(|pool| *pool == unpriced.pool)
            };
            if unpriced.iter().any(hit) {
                return Err(AppError::Refused(format!(
                    "{} has no price in {}, and was used then; let the earlier price go on, or give it an empty price to leave it unpriced",
                    gap.key, gap.interval
                )));
            }
        }
    }
    Ok(())
}

/// What must not change of a closed month, whatever its slots: how much time of which job is charged to whom as what.
type Substance = BTreeMap<String, i128>;

fn refuse_changes_of_closed_months(
    db: &mut Db,
    calendar: &BillingCalendar,
    books: &Books,
    changes: &[Instant],
    new_words: NewWords,
) -> Result<(), AppError> {
    for state in period::all(db)? {
        let Some(closing_id) = state.closing else { continue };
        let frozen = closing::charges(db, closing_id, 1, i64::MAX)?;
        let usages = usage_with_cuts(db, calendar, &state.period, changes, counted::AT_CLOSE)?;
        let late = late_usage::charged_by(db, closing_id)?;
        let priced = price_period::price(
            db,
            calendar,
            &state.period,
            books,
            Chargeable { usages: &usages, late: &late },
            new_words,
        )?;
        let rate_changed = credit_rate_changed(db, &state.period, closing_id, books)?;
        if !priced.unpriced.is_empty() || rate_changed || substance(&priced.charges) != substance(&frozen) {
            return Err(AppError::Refused(format!(
                "this would change {}, which is closed. Keep each entry as it was and add the change with from = \"{}-01\"; to end an entry, give it until = \"{}-01\"",
                state.period.month,
                state.period.month.next(),
                state.period.month.next()
            )));
        }
    }
    Ok(())
}

fn credit_rate_changed(db: &mut Db, period: &Period, closing_id: i64, books: &Books) -> Result<bool, AppError> {
    let wanted = books.prices.credit_rate(period.month).map(|rate| (rate.currency.clone(), rate.rate));
    let statements = gpuledger_db::statement::of_closing(db, closing_id)?;
    Ok(statements.iter().any(|statement| statement.credit_rate != wanted))
}

/// The usage of a period as it would be with these cuts: days that gain one are summed again, in memory.
fn usage_with_cuts(
    db: &mut Db,
    calendar: &BillingCalendar,
    period: &Period,
    changes: &[Instant],
    known_by: Instant,
) -> Result<Vec<Usage>, AppError> {
    let mut usages = usage::of_interval(db, period.interval)?;
    let edges: BTreeSet<Instant> = usages.iter().map(|usage| usage.key.slot.start()).collect();
    let inner = changes.iter().filter(|cut| period.interval.contains(**cut) && !edges.contains(cut));
    let days: BTreeSet<Interval> = inner.map(|cut| calendar.day_of(*cut)).collect();
    for day in days {
        usages.retain(|usage| !day.contains(usage.key.slot.start()));
        for node in usage::nodes_of_interval(db, day)? {
            let segments = counted::of_day(db, node, day, known_by)?;
            usages.extend(usage_by_slot(&segments, &slots(day, changes))?);
        }
    }
    Ok(usages)
}

fn substance(charges: &[Charge]) -> Substance {
    let mut substance = Substance::new();
    for charge in charges {
        let key = format!(
            "{:?} {:?} {:?} {:?} {} {} {:?}",
            charge.kind, charge.end_cause, charge.job, charge.sku, charge.rate, charge.weight, charge.payer
        );
        *substance.entry(key).or_default() += i128::from(charge.share_us);
    }
    substance
}
