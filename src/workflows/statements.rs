//! Statements to look at: issued ones as they were frozen, and drafts of open months as they would be now.

use std::collections::{BTreeMap, BTreeSet};

use gpuledger_db::closing::{self, Inputs};
use gpuledger_db::statement::{self, IssuedLine, IssuedStatement, StoredSums};
use gpuledger_db::{Db, period};
use gpuledger_domain::calendar::{BillingCalendar, Month, Period};
use gpuledger_domain::ids::{JobId, SkuCode, TeamId};
use gpuledger_domain::money::{CreditRate, Printed, Rate};
use gpuledger_domain::pricing::{Charge, ChargeKind};
use gpuledger_domain::statements::{
    Change, CreditRates, MonthCost, SkuCost, Statement, Sums, change, in_currency, rounding_row,
};
use gpuledger_domain::time::Instant;
use gpuledger_domain::units::{Fraction, Overflow};

use super::books::Books;
use super::ends::{EndRow, SuspendedRow, ends, suspended};
use super::price_period::{PricedPeriod, UnpricedUsage, Words, price_period};
use crate::error::AppError;

/// Where a period is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Its month is not over.
    Open,
    /// Its month is over; late data still counts.
    InReview,
    /// Its charges are frozen.
    Closed {
        /// Since when.
        at: Instant,
    },
}

/// The statements of a period.
#[derive(Clone, Debug)]
pub struct PeriodStatements {
    /// Which.
    pub period: Period,
    /// Where it is in its life.
    pub life: Life,
    /// By team code; without numbers while the period is not closed.
    pub statements: Vec<StatementView>,
    /// What the list lacks to add up.
    pub rounding: RoundingRow,
    /// Σ quantity × rate over all statements, exact.
    pub exact: Fraction,
}

/// The row that makes a list of statements add up: each is rounded by itself, their sum once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundingRow {
    /// In credits, to two places.
    pub amount: Printed<2>,
    /// In credits, to six places.
    pub amount_exact: Printed<6>,
    /// In GPU-seconds.
    pub gpu_seconds: Printed<0>,
    /// In GPU-seconds, to six places.
    pub gpu_seconds_exact: Printed<6>,
    /// In currency, where the period has one.
    pub currency_amount: Option<Printed<2>>,
}

/// A statement with its lines.
#[derive(Clone, Debug)]
pub struct StatementView {
    /// Header and totals.
    pub head: IssuedStatement,
    /// By kind, workload, SKU, pool, class and rate.
    pub lines: Vec<IssuedLine>,
    /// What has no price; always empty once issued.
    pub unpriced: Vec<UnpricedUsage>,
}

/// What stands on a statement besides its lines.
#[derive(Clone, Debug)]
pub struct StatementDetails {
    /// The same total by experiment, "none named" last.
    pub experiments: Vec<ExperimentRow>,
    /// The same total by how jobs ended, "not told" last; empty where no end is told.
    pub ends: Vec<EndRow>,
    /// What was charged of jobs that were suspended, by cluster.
    pub suspended: Vec<SuspendedRow>,
    /// Why it changed from last month.
    pub change: ChangeFromLastMonth,
    /// What it was made from.
    pub inputs: Inputs,
    /// Where its period is in its life.
    pub life: Life,
}

/// A row of the table by experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExperimentRow {
    /// Its name; `None` for jobs that name none.
    pub name: Option<String>,
    /// How many jobs.
    pub jobs: usize,
    /// GPU-equivalent time, in microseconds.
    pub gpu_us: Fraction,
    /// In credits.
    pub amount: Printed<2>,
    /// In currency.
    pub currency_amount: Option<Printed<2>>,
}

/// Why a statement changed from last month, or why that cannot be said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeFromLastMonth {
    /// By driver.
    Drivers(Change),
    /// Last month is closed, and the team had no charges in it.
    NoChargesThen,
    /// Last month was not closed when the statement was issued.
    NotClosed,
}

/// The statements of a period: as issued if it is closed, else as drafts by today's rules and prices.
///
/// # Errors
/// The database's; [`AppError::Refused`] where the books know nothing of the period.
pub fn of_period(
    db: &mut Db,
    calendar: &BillingCalendar,
    month: Month,
    now: Instant,
) -> Result<PeriodStatements, AppError> {
    let state = period::find(db, month)?;
    let period = calendar.period(month);
    let (life, statements) = match state.and_then(|state| state.closing) {
        Some(closing_id) => {
            let sealed = closing::sealed(db, closing_id)?;
            let mut views = Vec::new();
            for head in statement::of_closing(db, closing_id)? {
                let lines = statement::lines(db, &head)?;
                views.push(StatementView { head, lines, unpriced: Vec::new() });
            }
            (Life::Closed { at: sealed.sealed_at }, views)
        }
        None => {
            let (books, priced) = priced_by_books_in_force(db, calendar, &period)?;
            let life = if now < period.interval.end() { Life::Open } else { Life::InReview };
            (life, drafts(&priced, &books)?)
        }
    };
    if statements.is_empty() && state.is_none() {
        return Err(AppError::Refused(format!("no GPU-time of {month} is known; import jobs that ran in it first")));
    }
    let rounding = rounding(&statements)?;
    let exact = Fraction::sum(statements.iter().map(|view| view.head.sums.exact))?;
    Ok(PeriodStatements { period, life, statements, rounding, exact })
}

/// The period by the books in force, asked again where they change meanwhile.
fn priced_by_books_in_force(
    db: &mut Db,
    calendar: &BillingCalendar,
    period: &Period,
) -> Result<(Books, PricedPeriod), AppError> {
    let mut attempts = 0;
    loop {
        let books = Books::in_force(db, calendar)?;
        match price_period(db, calendar, period, &books) {
            Err(AppError::Changed(_)) if attempts < 5 => attempts += 1,
            priced => return Ok((books, priced?)),
        }
    }
}

/// What a list of statements lacks to add up.
pub(super) fn rounding(statements: &[StatementView]) -> Result<RoundingRow, Overflow> {
    let amounts: Vec<Fraction> = statements.iter().map(|view| view.head.sums.exact).collect();
    let seconds = statements.iter().map(|view| seconds(view.head.sums.gpu_us)).collect::<Result<Vec<_>, _>>()?;
    let printed: Vec<Printed<2>> = statements.iter().map(|view| view.head.sums.amount).collect();
    let amount = rounding_row(&amounts, &printed)?;
    let rate = statements.iter().find_map(|view| view.head.credit_rate.as_ref());
    let currency: Vec<Printed<2>> = statements.iter().filter_map(|view| view.head.sums.currency_amount).collect();
    let total = Printed::<2>(amount.0 + printed.iter().map(|printed| printed.0).sum::<i128>());
    let currency_amount = match rate {
        None => None,
        Some((_, rate)) => {
            let lines = statements.iter().flat_map(|view| &view.lines);
            let at_rates = lines.map(|line| (line.sums.amount, line.credit_rate.unwrap_or(*rate)));
            let in_currency = in_currency(total, *rate, at_rates)?;
            Some(Printed(in_currency.0 - currency.iter().map(|printed| printed.0).sum::<i128>()))
        }
    };
    Ok(RoundingRow {
        amount,
        amount_exact: rounding_row(&amounts, &each_rounded(&amounts)?)?,
        gpu_seconds: rounding_row(&seconds, &each_rounded(&seconds)?)?,
        gpu_seconds_exact: rounding_row(&seconds, &each_rounded(&seconds)?)?,
        currency_amount,
    })
}

fn each_rounded<const PLACES: u32>(exact: &[Fraction]) -> Result<Vec<Printed<PLACES>>, Overflow> {
    exact.iter().map(|exact| Printed::rounded(*exact)).collect()
}

/// GPU-time in seconds.
///
/// # Errors
/// [`Overflow`] where it cannot be held exactly.
pub fn seconds(us: Fraction) -> Result<Fraction, Overflow> {
    us.over(Fraction::whole(1_000_000))
}

/// The newest version of an issued statement.
///
/// # Errors
/// The database's; [`AppError::Refused`] where there is none of this number.
pub fn by_number(db: &mut Db, number: &str) -> Result<StatementView, AppError> {
    let head = statement::by_number(db, number)?.ok_or_else(|| {
        AppError::Missing(format!(
            "there is no statement {number}; `gpuledger statement list --period YYYY-MM` shows those of a month"
        ))
    })?;
    let lines = statement::lines(db, &head)?;
    Ok(StatementView { head, lines, unpriced: Vec::new() })
}

/// What an issued statement says besides its lines.
///
/// # Errors
/// The database's.
pub fn details(db: &mut Db, calendar: &BillingCalendar, view: &StatementView) -> Result<StatementDetails, AppError> {
    let head = &view.head;
    let words = Words::load(db)?;
    let charges = closing::charges(db, head.closing_id, head.first_charge, head.last_charge)?;
    let sealed = closing::sealed(db, head.closing_id)?;
    let rate = head.credit_rate.as_ref().map(|(currency, rate)| CreditRate { currency: currency.clone(), rate: *rate });
    let corrected = view.lines.iter().filter_map(|line| line.corrects.zip(line.credit_rate)).collect();
    let made = statement_of(charges.iter(), &words, &CreditRates { own: rate, corrected })?;
    let lines = made.by_experiment(&charges, &words)?.ok_or_else(|| lost("a word behind a charge"))?;
    let experiments = lines.into_iter().map(|line| ExperimentRow {
        name: words.experiments.get(&line.experiment).map(|(_, name)| name.clone()),
        jobs: line.sums.jobs.len(),
        gpu_us: line.sums.gpu_us,
        amount: line.amount,
        currency_amount: line.currency_amount,
    });
    let experiments = experiments.collect();
    Ok(StatementDetails {
        experiments,
        ends: ends(db, calendar.period_of(head.period_start).interval, &made, &charges, &words)?,
        suspended: suspended(db, calendar, sealed.inputs, &charges)?,
        change: change_from_last_month(db, view)?,
        inputs: sealed.inputs,
        life: Life::Closed { at: sealed.sealed_at },
    })
}

fn change_from_last_month(db: &mut Db, view: &StatementView) -> Result<ChangeFromLastMonth, AppError> {
    let Some(closing_id) = view.head.compared_closing else { return Ok(ChangeFromLastMonth::NotClosed) };
    let then = statement::of_closing(db, closing_id)?.into_iter().find(|then| then.team == view.head.team);
    let Some(then) = then else { return Ok(ChangeFromLastMonth::NoChargesThen) };
    let before = month_cost(&statement::lines(db, &then)?)?;
    let after = month_cost(&view.lines)?;
    let drivers = change(&before, &after, then.sums.amount, view.head.sums.amount)?;
    Ok(drivers.map_or(ChangeFromLastMonth::NoChargesThen, ChangeFromLastMonth::Drivers))
}

fn month_cost(lines: &[IssuedLine]) -> Result<MonthCost, Overflow> {
    let mut costs: BTreeMap<SkuCode, SkuCost> = BTreeMap::new();
    let (mut taken_over, mut corrections) = (Fraction::ZERO, Fraction::ZERO);
    for line in lines {
        let apart = match line.kind {
            ChargeKind::Adjustment => Some(&mut taken_over),
            ChargeKind::Correction => Some(&mut corrections),
            _ => None,
        };
        if let Some(sum) = apart {
            *sum = sum.plus(line.sums.exact)?;
            continue;
        }
        let cost =
            costs.entry(line.sku_code.clone()).or_insert(SkuCost { gpu_us: Fraction::ZERO, exact: Fraction::ZERO });
        *cost = SkuCost { gpu_us: cost.gpu_us.plus(line.sums.gpu_us)?, exact: cost.exact.plus(line.sums.exact)? };
    }
    Ok(MonthCost { by_sku: costs, taken_over, corrections })
}

pub(super) fn lost(what: &str) -> AppError {
    AppError::Database(gpuledger_db::DbError::Inconsistent(format!("{what} is missing")))
}

pub(super) fn statement_of<'a>(
    charges: impl Iterator<Item = &'a Charge>,
    words: &Words,
    rates: &CreditRates,
) -> Result<Statement, AppError> {
    Statement::of(charges, words, rates)?.ok_or_else(|| lost("a word behind a charge"))
}

/// The statements that charges make, one per team, in the order of the charges. Nothing is stored: numbers, closing
/// and row are left empty.
///
/// # Errors
/// A sum that does not fit; a word that is missing.
pub fn drafts(priced: &PricedPeriod, books: &Books) -> Result<Vec<StatementView>, AppError> {
    let rates = credit_rates(priced, books);
    let mut views = Vec::new();
    let mut first = 1;
    for charges in priced.charges.chunk_by(|a, b| a.payer.team == b.payer.team) {
        let team = charges.first().map_or(TeamId(0), |charge| charge.payer.team);
        let last = first + i64::try_from(charges.len()).map_err(|_| Overflow)? - 1;
        let made = statement_of(charges.iter(), &priced.words, &rates)?;
        views.push(view(priced, books, team, &made, (first, last))?);
        first = last + 1;
    }
    for unpriced in &priced.unpriced {
        if !views.iter().any(|view| view.head.team == unpriced.team) {
            let made = statement_of([].iter(), &priced.words, &rates)?;
            views.push(view(priced, books, unpriced.team, &made, (0, 0))?);
        }
    }
    for view in &mut views {
        view.unpriced = priced.unpriced.iter().filter(|unpriced| unpriced.team == view.head.team).cloned().collect();
        count_unpriced(view, &priced.charges)?;
    }
    views.sort_by(|a, b| a.head.team_code.cmp(&b.head.team_code));
    Ok(views)
}

/// What a credit is worth on a period's statements.
pub(super) fn credit_rates(priced: &PricedPeriod, books: &Books) -> CreditRates {
    let own = books.prices.credit_rate(priced.period.month).cloned();
    let months = priced.charges.iter().filter_map(|charge| charge.corrects).map(|corrects| corrects.month);
    let of_month = |month: Month| {
        let then = books
            .prices
            .credit_rate(month)
            .filter(|then| Some(&then.currency) == own.as_ref().map(|own| &own.currency));
        then.map(|then| (month, then.rate))
    };
    CreditRates { corrected: months.collect::<BTreeSet<_>>().into_iter().filter_map(of_month).collect(), own }
}

/// A draft's time and jobs are all that its team held, with a price or without; its amount is what has one.
fn count_unpriced(view: &mut StatementView, charges: &[Charge]) -> Result<(), Overflow> {
    if view.unpriced.is_empty() {
        return Ok(());
    }
    let priced_jobs = charges.iter().filter(|charge| charge.payer.team == view.head.team).map(|charge| charge.job);
    let jobs: BTreeSet<JobId> =
        view.unpriced.iter().flat_map(|unpriced| unpriced.jobs.iter().copied()).chain(priced_jobs).collect();
    let sums = &mut view.head.sums;
    sums.jobs = i64::try_from(jobs.len()).map_err(|_| Overflow)?;
    for unpriced in &view.unpriced {
        let share_us = i128::from(sums.share_us) + unpriced.share_us;
        sums.share_us = i64::try_from(share_us).map_err(|_| Overflow)?;
        sums.gpu_us = sums.gpu_us.plus(unpriced.gpu_us)?;
    }
    Ok(())
}

fn view(
    priced: &PricedPeriod,
    books: &Books,
    team: TeamId,
    made: &Statement,
    (first_charge, last_charge): (i64, i64),
) -> Result<StatementView, AppError> {
    let code = priced.words.teams.get(&team).ok_or_else(|| lost("a team"))?;
    // As the team is called at the end of the period, or when it last was.
    let last_instant = Instant::from_micros(priced.period.interval.end().micros() - 1);
    let newest = books.teams.all().filter(|(other, _)| *other == code).map(|(_, terms)| terms).last();
    let terms = books.teams.terms(code, last_instant).or(newest);
    let credit_rate: Option<(String, Rate)> =
        made.credit_rates.own.as_ref().map(|rate| (rate.currency.clone(), rate.rate));
    let head = IssuedStatement {
        id: 0,
        closing_id: 0,
        team,
        number: String::new(),
        version: 0,
        period_start: priced.period.interval.start(),
        team_code: code.to_string(),
        team_name: terms.map_or_else(|| "Unassigned".to_owned(), |terms| terms.name.clone()),
        cost_centre: terms.map_or_else(String::new, |terms| terms.cost_centre.clone()),
        owner_name: terms.and_then(|terms| terms.owners.first()).map_or_else(String::new, |owner| owner.name.clone()),
        first_charge,
        last_charge,
        sums: stored(&made.sums, made.amount, made.currency_amount)?,
        credit_rate,
        compared_closing: None,
    };
    let lines = made.lines.iter().map(|line| {
        let key = &line.key;
        let sku = priced.words.skus.iter().find(|(_, sku)| **sku == key.sku).map(|(id, _)| *id);
        Ok(IssuedLine {
            kind: key.kind,
            workload: key.workload,
            sku: sku.ok_or_else(|| lost("a SKU"))?,
            sku_code: key.sku.code.clone(),
            pool: key.pool.clone(),
            service_class: key.service_class,
            rate: key.rate,
            weight: key.weight,
            end_cause: key.end_cause,
            corrects: key.corrects,
            credit_rate: key.corrects.and_then(|month| made.credit_rates.corrected.get(&month)).copied(),
            sums: stored(&line.sums, line.amount, line.currency_amount)?,
        })
    });
    Ok(StatementView { head, lines: lines.collect::<Result<_, AppError>>()?, unpriced: Vec::new() })
}

fn stored(sums: &Sums, amount: Printed<2>, currency_amount: Option<Printed<2>>) -> Result<StoredSums, Overflow> {
    let small = |sum: i128| i64::try_from(sum).map_err(|_| Overflow);
    Ok(StoredSums {
        jobs: i64::try_from(sums.jobs.len()).map_err(|_| Overflow)?,
        share_us: small(sums.share_us)?,
        gpu_us: sums.gpu_us,
        estimated_us: small(sums.estimated_us)?,
        exact: sums.exact,
        charged_micros: small(sums.charged_micros)?,
        amount,
        currency_amount,
    })
}
