//! What would change on the statements of open months if a catalogue were applied. Nothing is written.
//!
//! All is read in one snapshot, in which the database refuses writes. It holds no catalogue, period or mark, so that
//! nobody waits for it. Days whose sums are not stored yet, or would be cut otherwise, are summed in memory.

use gpuledger_db::catalogue::CatalogueKind;
use gpuledger_db::{Db, period};
use gpuledger_domain::calendar::{BillingCalendar, Month, Period};
use gpuledger_domain::ids::{PoolName, SkuCode};
use gpuledger_domain::money::{CreditRate, Printed};
use gpuledger_domain::rules::ServiceClass;
use gpuledger_domain::statements::{ExperimentLine, StatementLine};
use gpuledger_domain::time::Instant;
use gpuledger_domain::units::Fraction;

use super::apply_catalogue::{Checked, Wanted, check};
use super::books::Books;
use super::late_facts;
use super::price_period::{Chargeable, NewWords, PricedPeriod, PricedUsage, UnpricedUsage, price};
use super::statements::Life;
use crate::error::AppError;

mod compare;
mod summed;

/// Something as it is and as it would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NowThen<T> {
    /// By the books in force.
    pub now: T,
    /// By the books as they would be.
    pub then: T,
}

impl<T> NowThen<T> {
    /// Both, by reference.
    pub const fn as_ref(&self) -> NowThen<&T> {
        NowThen { now: &self.now, then: &self.then }
    }

    /// The same of both.
    pub fn map<U>(self, of: impl Fn(T) -> U) -> NowThen<U> {
        NowThen { now: of(self.now), then: of(self.then) }
    }
}

impl<T> NowThen<Option<T>> {
    /// The one that would be, or, where there would be none, the one that is.
    pub fn newest(self) -> Option<T> {
        self.then.or(self.now)
    }
}

/// What a catalogue would change.
#[derive(Clone, Debug)]
pub struct CatalogueDiff {
    /// Which.
    pub kind: CatalogueKind,
    /// The version in force; 0 where none ever was.
    pub version: i32,
    /// Whether this very text is in force; no month was looked at then.
    pub in_force: bool,
    /// Every open month that holds usage, earliest first.
    pub months: Vec<MonthDiff>,
}

/// What would change in an open month.
#[derive(Clone, Debug)]
pub struct MonthDiff {
    /// Which.
    pub month: Month,
    /// Where it is in its life.
    pub life: Life,
    /// The statements that would change, by team code.
    pub statements: Vec<StatementDiff>,
    /// How many would not.
    pub unchanged: usize,
    /// What these sum to, now as then.
    pub unchanged_amounts: Amounts,
    /// What the printed amounts lack to add up; no statement where something has no price.
    pub rounding: Amounts,
    /// Of all statements.
    pub total: Amounts,
    /// What a credit is worth.
    pub credit_rate: NowThen<Option<CreditRate>>,
    /// GPU-equivalent time without a price, in microseconds. Above zero, it holds the close.
    pub unpriced_gpu_us: NowThen<Fraction>,
}

/// What would change on a statement.
#[derive(Clone, Debug)]
pub struct StatementDiff {
    /// Whose, by code.
    pub team: String,
    /// What the team would be called, or is where it would have no statement.
    pub name: String,
    /// Its totals.
    pub amounts: Amounts,
    /// Words that would be others.
    pub words: Vec<WordDiff>,
    /// Lines that would be others.
    pub lines: Vec<LineDiff>,
    /// Rows by experiment that would be others; none where no experiment is named.
    pub experiments: Vec<ExperimentDiff>,
    /// What has no price and would have one, or the other way round.
    pub unpriced: Vec<UnpricedDiff>,
}

/// Amounts that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Money {
    /// In credits, as printed.
    pub credits: Printed<2>,
    /// In credits, before any rounding.
    pub exact: Fraction,
    /// In currency, as printed, where there is one.
    pub currency: Option<Printed<2>>,
}

/// What a statement comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// There is none.
    NoStatement,
    /// Something on it has no price.
    Unpriced,
    /// So much.
    Of(Money),
}

/// An amount as it is and as it would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amounts {
    /// Both.
    pub of: NowThen<Amount>,
    /// Then less now, of printed amounts as of exact ones; `None` where either is unpriced. In currency only where it
    /// is the same one.
    pub difference: Option<Money>,
}

/// A word of a statement's head that would be another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WordDiff {
    /// What it is.
    pub what: &'static str,
    /// The words.
    pub words: NowThen<String>,
}

/// A line that would be another, appear or vanish.
#[derive(Clone, Debug)]
pub struct LineDiff {
    /// The lines. Both have the same kind, workload, SKU, pool and class.
    pub lines: NowThen<Option<StatementLine>>,
}

/// A row of the table by experiment that would be another, appear or vanish.
#[derive(Clone, Debug)]
pub struct ExperimentDiff {
    /// Its name; `None` for jobs that name none.
    pub name: Option<String>,
    /// The rows.
    pub lines: NowThen<Option<ExperimentLine>>,
}

/// What has no price, now or then.
#[derive(Clone, Debug)]
pub struct UnpricedDiff {
    /// Of what.
    pub sku: SkuCode,
    /// In which pool.
    pub pool: PoolName,
    /// On what terms.
    pub service_class: ServiceClass,
    /// How much and why.
    pub usage: NowThen<Option<UnpricedUsage>>,
}

impl MonthDiff {
    /// Whether any statement would change.
    #[must_use]
    pub const fn changes(&self) -> bool {
        !self.statements.is_empty()
    }
}

/// What a catalogue would change, were it applied now.
///
/// # Errors
/// Those of `apply`, for the same reasons and in the same words.
pub fn diff(
    db: &mut Db,
    calendar: &BillingCalendar,
    wanted: &Wanted<'_>,
    now: Instant,
) -> Result<CatalogueDiff, AppError> {
    db.snapshot(|db| {
        let (current, checked) = check(db, calendar, wanted, NewWords::Passing)?;
        let mut months = Vec::new();
        if let Some(checked) = &checked {
            for state in period::all(db)?.into_iter().filter(|state| state.closing.is_none()) {
                months.extend(month(db, calendar, &state.period, checked, now)?);
            }
        }
        Ok(CatalogueDiff { kind: wanted.kind, version: current.version, in_force: checked.is_none(), months })
    })
}

/// What would change in a month; `None` where it holds no usage.
fn month(
    db: &mut Db,
    calendar: &BillingCalendar,
    period: &Period,
    checked: &Checked,
    now: Instant,
) -> Result<Option<MonthDiff>, AppError> {
    let changes = NowThen { now: checked.before.as_slice(), then: checked.after.as_slice() };
    let usages = summed::usages(db, calendar, period, changes)?;
    let late = late_facts::open_entries(db, calendar, period)?;
    if usages.now.is_empty() && late.is_empty() {
        return Ok(None);
    }
    let life = if now < period.interval.end() { Life::Open } else { Life::InReview };
    let then = usages.then.as_deref().unwrap_or(&usages.now);
    let priced = NowThen {
        now: priced(db, calendar, period, &checked.in_force, Chargeable { usages: &usages.now, late: &late })?,
        then: priced(db, calendar, period, &checked.books, Chargeable { usages: then, late: &late })?,
    };
    let books = NowThen { now: &checked.in_force, then: &checked.books };
    compare::month(period.month, life, priced.as_ref(), books).map(Some)
}

fn priced(
    db: &mut Db,
    calendar: &BillingCalendar,
    period: &Period,
    books: &Books,
    chargeable: Chargeable<'_>,
) -> Result<PricedPeriod, AppError> {
    let priced = price(db, calendar, period, books, chargeable, NewWords::Passing)?;
    let PricedUsage { charges, unpriced, words, adjusts_open_months } = priced;
    Ok(PricedPeriod {
        period: *period,
        usage_version: 0,
        corrected: None,
        charges,
        unpriced,
        words,
        adjusts_open_months,
    })
}
