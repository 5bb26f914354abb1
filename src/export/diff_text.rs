//! What a catalogue would change, as text for a terminal.

use gpuledger_domain::money::{CreditRate, Printed, Rate};
use gpuledger_domain::statements::StatementLine;
use gpuledger_domain::units::{Fraction, Ratio};

use super::screen::{grouped, hours, rate_text, signed};
use super::table::Table;
use super::text::life;
use crate::error::AppError;
use crate::workflows::diff_catalogue::{
    Amount, Amounts, CatalogueDiff, ExperimentDiff, LineDiff, Money, MonthDiff, NowThen, StatementDiff, UnpricedDiff,
};
use crate::workflows::statements::seconds;

/// Where there is nothing.
const NONE: &str = "–";

/// All that would change, month by month.
///
/// # Errors
/// A number that cannot be held.
pub fn diff(diff: &CatalogueDiff) -> Result<String, AppError> {
    if diff.in_force {
        return Ok("nothing would change\n".into());
    }
    if diff.months.is_empty() {
        return Ok("no open month holds GPU-time, so no statement would change\n".into());
    }
    diff.months.iter().map(month).collect()
}

fn month(month: &MonthDiff) -> Result<String, AppError> {
    let head = format!("\n{}, {}", month.month, life(month.life));
    if !month.changes() {
        return Ok(format!("{head}: nothing would change\n"));
    }
    let mut text = format!("{head}\n{}", totals(month)?);
    if month.credit_rate.now != month.credit_rate.then {
        let rate = |of: &Option<CreditRate>| {
            of.as_ref().map_or_else(|| "none".into(), |rate| format!("{} {}", rate.rate, rate.currency))
        };
        let (now, then) = (rate(&month.credit_rate.now), rate(&month.credit_rate.then));
        text += &format!("a credit is worth: {now} → {then}\n");
    }
    text += &hold(month)?;
    for diff in &month.statements {
        text += &statement(month, diff)?;
    }
    Ok(text)
}

/// What the columns of currency are called; all of them empty where a month has none.
struct Currencies<'a> {
    of: NowThen<Option<&'a str>>,
}

impl Currencies<'_> {
    fn of(month: &MonthDiff) -> Currencies<'_> {
        let currency = month.credit_rate.as_ref().map(|rate| rate.as_ref().map(|rate| rate.currency.as_str()));
        Currencies { of: currency }
    }

    fn headings(&self) -> Vec<String> {
        let now = self.of.now.map(|currency| format!("{currency} now"));
        let then = self.of.then.map(|currency| format!("{currency} then"));
        let difference = (self.of.now.is_some() && self.of.now == self.of.then).then(|| "difference".to_owned());
        now.into_iter().chain(then).chain(difference).collect()
    }

    fn cells(&self, amounts: &Amounts) -> Vec<String> {
        let now = self.of.now.map(|_| in_currency(&amounts.of.now));
        let then = self.of.then.map(|_| in_currency(&amounts.of.then));
        let difference = amounts.difference.and_then(|money| money.currency).map(signed).unwrap_or_default();
        let difference = (self.of.now.is_some() && self.of.now == self.of.then).then_some(difference);
        now.into_iter().chain(then).chain(difference).collect()
    }
}

/// The table of totals: statements that change, the others together, what lacks, and the sum.
fn totals(month: &MonthDiff) -> Result<String, AppError> {
    let currencies = Currencies::of(month);
    let mut headings: Vec<String> = ["team", "name", "now", "then", "difference"].map(str::to_owned).into();
    headings.extend(currencies.headings());
    let amount_columns: Vec<usize> = (2..headings.len()).collect();
    headings.push(String::new());
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let mut table = Table::new(&headings).right(&amount_columns);
    let mut row = |team: &str, name: &str, amounts: &Amounts, note: &str| {
        let mut cells = vec![team.to_owned(), name.to_owned()];
        cells.extend([credits(&amounts.of.now), credits(&amounts.of.then)]);
        cells.push(amounts.difference.map(|money| signed(money.credits)).unwrap_or_default());
        cells.extend(currencies.cells(amounts));
        cells.push(note.to_owned());
        table.row(cells);
    };
    for diff in &month.statements {
        row(&diff.team, &diff.name, &diff.amounts, note(diff));
    }
    if month.unchanged > 0 {
        row("others", &format!("{} unchanged", month.unchanged), &month.unchanged_amounts, "");
    }
    let lacks = |amount: Amount| match amount {
        Amount::Of(money) => money.credits.0 != 0 || money.currency.is_some_and(|printed| printed.0 != 0),
        Amount::NoStatement | Amount::Unpriced => false,
    };
    if lacks(month.rounding.of.now) || lacks(month.rounding.of.then) {
        row("rounding", "", &month.rounding, "");
    }
    row("total", "", &month.total, below_printed(&month.total));
    Ok(table.text())
}

fn credits(amount: &Amount) -> String {
    match amount {
        Amount::NoStatement => NONE.into(),
        Amount::Unpriced => "unpriced".into(),
        Amount::Of(money) => grouped(money.credits),
    }
}

fn in_currency(amount: &Amount) -> String {
    match amount {
        Amount::Of(money) => money.currency.map(grouped).unwrap_or_default(),
        Amount::NoStatement | Amount::Unpriced => String::new(),
    }
}

/// What a row of totals does not say by its figures.
fn note(diff: &StatementDiff) -> &'static str {
    match (diff.amounts.of.now, diff.amounts.of.then) {
        (Amount::NoStatement, _) => "appears",
        (_, Amount::NoStatement) => "vanishes",
        (Amount::Of(now), Amount::Of(then)) if now == then => {
            let figures = diff.lines.len() + diff.experiments.len() + diff.unpriced.len();
            if figures == 0 && !diff.words.is_empty() { "only words change" } else { "same total" }
        }
        _ => below_printed(&diff.amounts),
    }
}

fn below_printed(amounts: &Amounts) -> &'static str {
    match amounts.difference {
        Some(Money { credits: Printed(0), exact, .. }) if !exact.is_zero() => "changes by less than is printed",
        _ => "",
    }
}

/// What holds the close, now and then.
fn hold(month: &MonthDiff) -> Result<String, AppError> {
    let NowThen { now, then } = month.unpriced_gpu_us;
    if now.is_zero() && then.is_zero() {
        return Ok(String::new());
    }
    let what = match (now.is_zero(), then.is_zero()) {
        (true, _) => "this would hold the close",
        (_, true) => "this would no longer hold the close",
        _ => "this holds the close, and still would",
    };
    let us = month.unpriced_gpu_us.map(Some);
    let text = changed(NowThen { now: gpu_seconds(us.now)?, then: gpu_seconds(us.then)? });
    Ok(format!("without a price: {text} GPU-seconds; {what}\n"))
}

fn gpu_seconds(us: Option<Fraction>) -> Result<Option<String>, AppError> {
    us.map(|us| Ok(grouped(Printed::<0>::rounded(seconds(us)?)?))).transpose()
}

/// One text where both are the same, else both.
fn changed(of: NowThen<Option<String>>) -> String {
    let NowThen { now, then } = of.map(|text| text.unwrap_or_else(|| NONE.into()));
    if now == then { now } else { format!("{now} → {then}") }
}

fn statement(month: &MonthDiff, diff: &StatementDiff) -> Result<String, AppError> {
    let mut text = String::new();
    for word in &diff.words {
        let words = word.words.as_ref().map(|word| Some(word.clone()).filter(|word| !word.is_empty()));
        text += &format!("{}: {}\n", word.what, changed(words));
    }
    if !diff.lines.is_empty() {
        text += &lines(month, &diff.lines)?;
    }
    if !diff.experiments.is_empty() {
        text += &experiments(&diff.experiments);
    }
    for row in &diff.unpriced {
        text += &unpriced(row)?;
    }
    if text.is_empty() {
        return Ok(text);
    }
    let indented: String = text.lines().map(|line| format!("  {line}\n")).collect();
    Ok(format!("\n{} ({})\n{indented}", diff.team, diff.name))
}

fn lines(month: &MonthDiff, diffs: &[LineDiff]) -> Result<String, AppError> {
    let currencies = Currencies::of(month).of;
    let has_currency = currencies.newest().is_some();
    let currency = if has_currency { changed(currencies.map(|of| of.map(str::to_owned))) } else { String::new() };
    let headings = ["workload", "SKU", "pool", "class", "an hour", "GPU-hours", "credits", &currency, ""];
    let mut table = Table::new(&headings);
    for diff in diffs {
        let sides = diff.lines.as_ref().map(Option::as_ref);
        let Some(newest) = sides.newest() else { continue };
        let key = &newest.key;
        let mut cells = vec![
            key.workload.as_str().to_owned(),
            key.sku.code.to_string(),
            key.pool.to_string(),
            key.service_class.as_str().to_owned(),
        ];
        let figures = [
            rates(sides)?,
            each(sides, |line| Ok(grouped(hours(&[line.sums.gpu_us])?.total)))?,
            each(sides, |line| Ok(grouped(line.amount)))?,
            if has_currency {
                each(sides, |line| Ok(line.currency_amount.map_or(NONE.into(), grouped)))?
            } else {
                String::new()
            },
        ];
        let note = match (sides.now, sides.then) {
            (Some(now), Some(then)) if !figures.iter().skip(1).any(|text| text.contains('→')) => unseen(now, then),
            _ => "",
        };
        cells.extend(figures);
        cells.push(note.to_owned());
        table.row(cells);
    }
    Ok(table.text())
}

/// The rate, which a line without a counterpart has alone. Rates that print alike and are not are written out.
fn rates(sides: NowThen<Option<&StatementLine>>) -> Result<String, AppError> {
    let sides = NowThen { now: sides.now.or(sides.then), then: sides.newest() };
    let text = each(sides, |line| Ok(rate_text(line.key.rate, line.key.weight)?))?;
    let terms = sides.map(|line| line.map(|line| (line.key.rate, line.key.weight)));
    match terms.now == terms.then || text.contains('→') {
        true => Ok(text),
        false => Ok(changed(terms.map(|terms| terms.map(exact_rate)))),
    }
}

fn exact_rate((rate, weight): (Rate, Ratio)) -> String {
    if weight == Ratio::ONE { rate.to_string() } else { format!("{rate} × {weight}") }
}

/// What the figures of two lines that print alike do not say.
fn unseen(now: &StatementLine, then: &StatementLine) -> &'static str {
    let (now, then) = (&now.sums, &then.sums);
    if now.exact != then.exact || now.share_us != then.share_us || now.gpu_us != then.gpu_us {
        "changes by less than is printed"
    } else if now.jobs != then.jobs {
        "of other jobs"
    } else {
        ""
    }
}

fn each<T>(sides: NowThen<Option<&T>>, text: impl Fn(&T) -> Result<String, AppError>) -> Result<String, AppError> {
    Ok(changed(NowThen { now: sides.now.map(&text).transpose()?, then: sides.then.map(&text).transpose()? }))
}

fn experiments(diffs: &[ExperimentDiff]) -> String {
    let mut table = Table::new(&["experiment", "credits"]);
    for diff in diffs {
        let name = diff.name.clone().unwrap_or_else(|| "none named".into());
        table.row([name, changed(diff.lines.as_ref().map(|line| line.as_ref().map(|line| grouped(line.amount))))]);
    }
    table.text()
}

fn unpriced(diff: &UnpricedDiff) -> Result<String, AppError> {
    let sides = diff.usage.as_ref().map(Option::as_ref);
    let us = sides.map(|usage| usage.map_or(Fraction::ZERO, |usage| usage.gpu_us)).map(Some);
    let held = changed(NowThen { now: gpu_seconds(us.now)?, then: gpu_seconds(us.then)? });
    let reason = match (sides.now, sides.then) {
        (Some(now), Some(then)) => {
            changed(NowThen { now: &now.reason, then: &then.reason }.map(|why| Some(why.to_string())))
        }
        _ => sides.newest().map(|usage| usage.reason.to_string()).unwrap_or_default(),
    };
    let class = diff.service_class.as_str();
    Ok(format!("unpriced: {}, {class}, pool {}: {held} GPU-seconds: {reason}\n", diff.sku, diff.pool))
}
