//! Is all well with the books? Usage that waits is summed on the way; nothing else is changed.

use gpuledger_db::{Database, Db, check, period, usage};
use gpuledger_domain::calendar::BillingCalendar;
use gpuledger_domain::time::Instant;

use super::books::Books;
use super::capacity::contradiction_count;
use super::price_period::price_period;
use super::{inventory, migrate};
use crate::error::AppError;

/// How a finding weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// As it should be.
    Good,
    /// Worth knowing; nothing is wrong.
    Warning,
    /// Wrong: amounts or closings depend on it.
    Fault,
}

/// One thing looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at.
    pub subject: &'static str,
    /// How it weighs.
    pub weight: Weight,
    /// What was found, and what to do.
    pub text: String,
}

fn finding(subject: &'static str, weight: Weight, text: impl Into<String>) -> Finding {
    Finding { subject, weight, text: text.into() }
}

/// Looks at everything; stops early only where the database cannot be opened.
///
/// # Errors
/// The database's, once it is open.
pub fn examine(database: &Database, calendar: &BillingCalendar, now: Instant) -> Result<Vec<Finding>, AppError> {
    let mut db = match migrate::open(database, calendar) {
        Ok(db) => db,
        Err(error) => return Ok(vec![finding("database", Weight::Fault, error.to_string())]),
    };
    let mut findings = vec![finding(
        "database",
        Weight::Good,
        format!("{}, schema current, zone {}", database.without_secret(), calendar.zone_name()),
    )];
    findings.push(protection(&mut db)?);
    let catalogues = catalogues(&mut db, calendar)?;
    let inventory = inventory_in_force(&mut db)?;
    let readable = [Some(&catalogues), inventory.as_ref()].iter().flatten().all(|found| found.weight != Weight::Fault);
    findings.push(catalogues);
    findings.extend(inventory);
    findings.push(orphans(&mut db)?);
    findings.push(waiting(&mut db)?);
    if readable {
        findings.extend(open_months(&mut db, calendar, now)?);
    }
    Ok(findings)
}

fn protection(db: &mut Db) -> Result<Finding, AppError> {
    let subject = "frozen tables";
    let owns = check::owns_frozen_tables(db)?;
    Ok(match (&db, owns) {
        (Db::Lite(_), _) => finding(
            subject,
            Weight::Good,
            "triggers refuse changes; whoever may write the file could remove them, so guard its permissions",
        ),
        (Db::Pg(_), false) => finding(subject, Weight::Good, "this role does not own them and cannot change them"),
        (Db::Pg(_), true) => finding(
            subject,
            Weight::Warning,
            "this role owns them and could switch their triggers off; run the service as another role, made fit by `gpuledger migrate --service-role NAME`",
        ),
    })
}

fn catalogues(db: &mut Db, calendar: &BillingCalendar) -> Result<Finding, AppError> {
    let subject = "teams, prices, rules";
    Ok(match Books::in_force(db, calendar) {
        Err(AppError::Database(error)) => return Err(error.into()),
        Err(error) => finding(subject, Weight::Fault, error.to_string()),
        Ok(books) => {
            let [teams, prices, rules] = books.versions;
            let missing: Vec<&str> = [("teams", teams), ("prices", prices), ("rules", rules)]
                .into_iter()
                .filter(|(_, version)| *version == 0)
                .map(|(name, _)| name)
                .collect();
            if missing.is_empty() {
                finding(subject, Weight::Good, format!("versions {teams}, {prices}, {rules}"))
            } else {
                finding(
                    subject,
                    Weight::Warning,
                    format!(
                        "none applied yet: {}; see `gpuledger {} apply --help`",
                        missing.join(", "),
                        missing.first().unwrap_or(&"teams")
                    ),
                )
            }
        }
    })
}

/// Nothing is said where no inventory was applied: not everybody needs one.
fn inventory_in_force(db: &mut Db) -> Result<Option<Finding>, AppError> {
    let subject = "inventory";
    Ok(match inventory::in_force(db) {
        Err(AppError::Database(error)) => return Err(error.into()),
        Err(error) => Some(finding(subject, Weight::Fault, error.to_string())),
        Ok(inventory) if inventory.is_empty() => None,
        Ok(inventory) => Some(finding(subject, Weight::Good, format!("{} nodes", inventory.node_count()))),
    })
}

fn orphans(db: &mut Db) -> Result<Finding, AppError> {
    let orphans = check::orphans(db)?;
    let texts: Vec<String> = orphans.iter().map(|(what, count)| format!("{count} {what}")).collect();
    Ok(if texts.is_empty() {
        finding("references", Weight::Good, "every row finds what it refers to")
    } else {
        finding("references", Weight::Fault, format!("{}; restore from a backup and report this", texts.join(", ")))
    })
}

fn waiting(db: &mut Db) -> Result<Finding, AppError> {
    let marks = usage::marks(db, None)?.len();
    Ok(if marks == 0 {
        finding("roll-up", Weight::Good, "usage is up to date")
    } else {
        finding(
            "roll-up",
            Weight::Warning,
            format!("{marks} days wait to be summed, by the next import, close or list"),
        )
    })
}

fn open_months(db: &mut Db, calendar: &BillingCalendar, now: Instant) -> Result<Vec<Finding>, AppError> {
    let books = Books::in_force(db, calendar)?;
    let mut findings = Vec::new();
    for state in period::all(db)?.into_iter().filter(|state| state.closing.is_none()) {
        let month = state.period.month;
        let priced = price_period(db, calendar, &state.period, &books)?;
        if priced.charges.is_empty() && priced.unpriced.is_empty() {
            continue;
        }
        let over = now >= state.period.interval.end();
        let contradictions = contradiction_count(db, calendar, state.period.interval, now)?;
        if contradictions > 0 {
            let weight = if over { Weight::Fault } else { Weight::Warning };
            let text =
                format!("{month}: {contradictions} contradictions; look with `gpuledger capacity --period {month}`");
            findings.push(finding("capacity", weight, text));
        }
        let unassigned = priced.charges.iter().filter(|charge| charge.payer.team.0 == 0).count();
        findings.push(if !priced.unpriced.is_empty() {
            let skus: Vec<String> = priced.unpriced.iter().map(|unpriced| unpriced.sku.code.to_string()).collect();
            let weight = if over { Weight::Fault } else { Weight::Warning };
            finding(
                "open months",
                weight,
                format!(
                    "{month} holds GPU-time without a price ({}) and cannot be closed; add prices for it",
                    skus.join(", ")
                ),
            )
        } else if unassigned > 0 {
            finding(
                "open months",
                Weight::Warning,
                format!("{month}: {unassigned} charges match no rule and go to “unassigned”"),
            )
        } else {
            finding(
                "open months",
                Weight::Good,
                format!(
                    "{month}: {} charges, all priced and assigned{}",
                    priced.charges.len(),
                    if over && contradictions == 0 { "; it can be closed" } else { "" }
                ),
            )
        });
    }
    Ok(findings)
}
