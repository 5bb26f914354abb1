//! What a catalogue would change, as JSON for scripts. Amounts are texts.

use gpuledger_domain::money::{CreditRate, Rate};
use gpuledger_domain::statements::{StatementLine, Sums};
use gpuledger_domain::units::{Fraction, Ratio};
use serde_json::{Value, json};

use super::csv::six;
use super::json::pretty;
use super::text::{kind, life};
use crate::error::AppError;
use crate::workflows::diff_catalogue::{
    Amount, Amounts, CatalogueDiff, ExperimentDiff, LineDiff, Money, MonthDiff, NowThen, StatementDiff, UnpricedDiff,
};
use crate::workflows::price_period::UnpricedUsage;
use crate::workflows::statements::seconds;

/// All that would change.
///
/// # Errors
/// A number that cannot be held.
pub fn diff(diff: &CatalogueDiff) -> Result<String, AppError> {
    Ok(pretty(&json!({
        "catalogue": diff.kind.as_str(),
        "version": diff.version,
        "in_force": diff.in_force,
        "months": diff.months.iter().map(month).collect::<Result<Vec<_>, _>>()?,
    })))
}

fn month(month: &MonthDiff) -> Result<Value, AppError> {
    let rate = |rate: &Option<CreditRate>| {
        rate.as_ref().map(|rate| json!({ "currency": rate.currency, "rate": rate.rate.to_string() }))
    };
    Ok(json!({
        "period": month.month.to_string(),
        "life": life(month.life),
        "credit_rate": { "now": rate(&month.credit_rate.now), "then": rate(&month.credit_rate.then) },
        "total": amounts(&month.total)?,
        "rounding": amounts(&month.rounding)?,
        "unchanged": { "statements": month.unchanged, "amount": amount(&month.unchanged_amounts.of.then)? },
        "unpriced_gpu_seconds": both(month.unpriced_gpu_us.as_ref().map(|us| us_text(*us)))?,
        "statements": month.statements.iter().map(statement).collect::<Result<Vec<_>, _>>()?,
    }))
}

fn statement(diff: &StatementDiff) -> Result<Value, AppError> {
    let words =
        diff.words.iter().map(|word| json!({ "word": word.what, "now": word.words.now, "then": word.words.then }));
    Ok(json!({
        "team": diff.team,
        "name": diff.name,
        "amount": amounts(&diff.amounts)?,
        "words": words.collect::<Vec<_>>(),
        "lines": diff.lines.iter().map(line).collect::<Result<Vec<_>, _>>()?,
        "experiments": diff.experiments.iter().map(experiment).collect::<Result<Vec<_>, _>>()?,
        "unpriced": diff.unpriced.iter().map(unpriced).collect::<Result<Vec<_>, _>>()?,
    }))
}

fn both(of: NowThen<Result<Value, AppError>>) -> Result<Value, AppError> {
    Ok(json!({ "now": of.now?, "then": of.then? }))
}

fn us_text(us: Fraction) -> Result<Value, AppError> {
    Ok(Value::String(six(seconds(us)?)?))
}

fn amounts(amounts: &Amounts) -> Result<Value, AppError> {
    Ok(json!({
        "now": amount(&amounts.of.now)?,
        "then": amount(&amounts.of.then)?,
        "difference": amounts.difference.as_ref().map(money).transpose()?,
    }))
}

/// Null where there is no statement; an amount without figures where something has no price.
fn amount(amount: &Amount) -> Result<Value, AppError> {
    match amount {
        Amount::NoStatement => Ok(Value::Null),
        Amount::Unpriced => Ok(json!({ "credits": null, "credits_exact": null, "currency_amount": null })),
        Amount::Of(of) => money(of),
    }
}

fn money(money: &Money) -> Result<Value, AppError> {
    Ok(json!({
        "credits": money.credits.to_string(),
        "credits_exact": six(money.exact)?,
        "currency_amount": money.currency.map(|printed| printed.to_string()),
    }))
}

fn line(diff: &LineDiff) -> Result<Value, AppError> {
    let key = diff.lines.as_ref().map(Option::as_ref).newest().map(|line| &line.key);
    Ok(json!({
        "kind": key.map(|key| kind(key.kind)),
        "workload": key.map(|key| key.workload.as_str()),
        "sku": key.map(|key| key.sku.code.as_str()),
        "pool": key.map(|key| key.pool.as_str()),
        "class": key.map(|key| key.service_class.as_str()),
        "now": diff.lines.now.as_ref().map(line_figures).transpose()?,
        "then": diff.lines.then.as_ref().map(line_figures).transpose()?,
    }))
}

fn line_figures(line: &StatementLine) -> Result<Value, AppError> {
    let money = Money { credits: line.amount, exact: line.sums.exact, currency: line.currency_amount };
    figures(Some((line.key.rate, line.key.weight)), &line.sums, &money)
}

fn figures(terms: Option<(Rate, Ratio)>, sums: &Sums, of: &Money) -> Result<Value, AppError> {
    let mut value = money(of)?;
    if let Some(fields) = value.as_object_mut() {
        if let Some((rate, weight)) = terms {
            fields.insert("rate".into(), json!(rate.to_string()));
            fields.insert("weight".into(), json!(weight.to_string()));
        }
        fields.insert("jobs".into(), json!(sums.jobs.len()));
        fields.insert("held_seconds".into(), us_text(Fraction::whole(sums.share_us))?);
        fields.insert("gpu_seconds".into(), us_text(sums.gpu_us)?);
    }
    Ok(value)
}

fn experiment(diff: &ExperimentDiff) -> Result<Value, AppError> {
    let side = |line: &Option<gpuledger_domain::statements::ExperimentLine>| {
        let Some(line) = line else { return Ok(Value::Null) };
        let money = Money { credits: line.amount, exact: line.sums.exact, currency: line.currency_amount };
        figures(None, &line.sums, &money)
    };
    Ok(json!({ "experiment": diff.name, "now": side(&diff.lines.now)?, "then": side(&diff.lines.then)? }))
}

fn unpriced(diff: &UnpricedDiff) -> Result<Value, AppError> {
    let side = |usage: &Option<UnpricedUsage>| {
        let Some(usage) = usage else { return Ok::<Value, AppError>(Value::Null) };
        Ok(json!({
            "jobs": usage.jobs.len(),
            "gpu_seconds": us_text(usage.gpu_us)?,
            "reason": usage.reason.to_string(),
        }))
    };
    Ok(json!({
        "sku": diff.sku.as_str(),
        "pool": diff.pool.as_str(),
        "class": diff.service_class.as_str(),
        "now": side(&diff.usage.now)?,
        "then": side(&diff.usage.then)?,
    }))
}
