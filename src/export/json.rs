//! Statements as JSON for scripts. Amounts are texts, so that no reader turns them into inexact numbers.

use gpuledger_domain::calendar::BillingCalendar;
use gpuledger_domain::money::Printed;
use gpuledger_domain::units::Fraction;
use serde_json::{Value, json};

use super::csv::{six, unpriced_seconds};
use crate::error::AppError;
use crate::workflows::statements::{ChangeFromLastMonth, PeriodStatements, StatementDetails, StatementView, seconds};

/// JSON with line breaks, for people who look.
#[must_use]
pub fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

/// A whole number of seconds, as a JSON number.
fn whole_seconds(us: Fraction) -> Result<Value, AppError> {
    number(Printed::<0>::rounded(seconds(us)?)?.0)
}

fn number(whole: i128) -> Result<Value, AppError> {
    Ok(json!(i64::try_from(whole).map_err(|_| gpuledger_domain::units::Overflow)?))
}

/// The list of a period's statements; the last element, `rounding`, makes it add up.
///
/// # Errors
/// A number that cannot be held.
pub fn list(period: &PeriodStatements) -> Result<String, AppError> {
    let mut rows = Vec::new();
    for view in &period.statements {
        let head = &view.head;
        let sums = &head.sums;
        let priced = view.unpriced.is_empty();
        let amount = |text: String| if priced { Value::String(text) } else { Value::Null };
        rows.push(json!({
            "team": head.team_code,
            "name": head.team_name,
            "cost_centre": head.cost_centre,
            "number": if head.number.is_empty() { Value::Null } else { json!(head.number) },
            "version": if head.version == 0 { Value::Null } else { json!(head.version) },
            "jobs": sums.jobs,
            "held_seconds": whole_seconds(Fraction::whole(sums.share_us.into()))?,
            "gpu_seconds": whole_seconds(sums.gpu_us)?,
            "gpu_seconds_exact": six(seconds(sums.gpu_us)?)?,
            "credits": amount(sums.amount.to_string()),
            "credits_exact": amount(six(sums.exact)?),
            "currency": head.credit_rate.as_ref().map(|(currency, _)| currency),
            "currency_amount": sums.currency_amount.map_or(Value::Null, |printed| amount(printed.to_string())),
            "unpriced_gpu_seconds": whole_seconds(Fraction::sum(view.unpriced.iter().map(|unpriced| unpriced.gpu_us))?)?,
        }));
    }
    let rounding = &period.rounding;
    rows.push(json!({
        "team": "rounding",
        "number": null,
        "gpu_seconds": number(rounding.gpu_seconds.0)?,
        "gpu_seconds_exact": rounding.gpu_seconds_exact.to_string(),
        "credits": rounding.amount.to_string(),
        "credits_exact": rounding.amount_exact.to_string(),
        "currency_amount": rounding.currency_amount.map(|printed| printed.to_string()),
    }));
    Ok(pretty(&Value::Array(rows)))
}

/// One statement with its lines and tables.
///
/// # Errors
/// A number that cannot be held.
pub fn statement(
    calendar: &BillingCalendar,
    view: &StatementView,
    details: &StatementDetails,
) -> Result<String, AppError> {
    let head = &view.head;
    let period = calendar.period_of(head.period_start);
    let lines = view.lines.iter().map(|line| {
        Ok(json!({
            "kind": super::text::kind(line.kind),
            "workload": line.workload.as_str(),
            "sku": line.sku_code.as_str(),
            "pool": line.pool.as_str(),
            "class": line.service_class.as_str(),
            "end_cause": line.end_cause.map(|cause| cause.as_str()),
            "corrected_month": line.corrects.map(|month| month.to_string()),
            "rate": line.rate.to_string(),
            "weight": line.weight.to_string(),
            "figures": figures(&line.sums)?,
        }))
    });
    Ok(pretty(&json!({
        "number": head.number,
        "version": head.version,
        "period": period.month.to_string(),
        "zone": calendar.zone_name(),
        "start": period.interval.start().to_string(),
        "end": period.interval.end().to_string(),
        "team": head.team_code,
        "name": head.team_name,
        "cost_centre": head.cost_centre,
        "currency": head.credit_rate.as_ref().map(|(currency, _)| currency),
        "credit_rate": head.credit_rate.as_ref().map(|(_, rate)| rate.to_string()),
        "prices_version": details.inputs.prices,
        "rules_version": details.inputs.rules,
        "total": figures(&head.sums)?,
        "lines": lines.collect::<Result<Vec<_>, AppError>>()?,
        "experiments": experiments(details)?,
        "ends": ends(details)?,
        "suspended": suspended(details)?,
        "change": change(&details.change),
        "unpriced_gpu_seconds": six(unpriced_seconds(view)?)?,
    })))
}

fn experiments(details: &StatementDetails) -> Result<Vec<Value>, AppError> {
    let rows = details.experiments.iter().map(|row| {
        Ok(json!({
            "experiment": row.name,
            "jobs": row.jobs,
            "gpu_seconds_exact": six(seconds(row.gpu_us)?)?,
            "credits": row.amount.to_string(),
            "currency_amount": row.currency_amount.map(|printed| printed.to_string()),
        }))
    });
    rows.collect()
}

fn ends(details: &StatementDetails) -> Result<Vec<Value>, AppError> {
    let rows = details.ends.iter().map(|row| {
        Ok(json!({
            "end_cause": row.cause.map(|cause| cause.as_str()),
            "paid_by": row.paid_by.as_str(),
            "jobs": row.jobs,
            "gpu_seconds_exact": six(seconds(row.gpu_us)?)?,
            "credits": row.amount.to_string(),
            "currency_amount": row.currency_amount.map(|printed| printed.to_string()),
        }))
    });
    rows.collect()
}

fn suspended(details: &StatementDetails) -> Result<Vec<Value>, AppError> {
    let rows = details.suspended.iter().map(|row| {
        let held_seconds = six(seconds(Fraction::whole(row.instance_us))?)?;
        Ok(json!({"cluster": row.cluster, "charge": row.charged.as_str(), "held_seconds": held_seconds}))
    });
    rows.collect()
}

fn change(change: &ChangeFromLastMonth) -> Value {
    match change {
        ChangeFromLastMonth::Drivers(change) => json!({
            "from": change.from.to_string(), "gpu_hours": change.hours.to_string(), "mix": change.mix.to_string(),
            "rates": change.rates.to_string(), "paid_by_platform": change.taken_over.to_string(),
            "corrections": change.corrections.to_string(), "to": change.to.to_string(),
        }),
        ChangeFromLastMonth::NoChargesThen | ChangeFromLastMonth::NotClosed => Value::Null,
    }
}

fn figures(sums: &gpuledger_db::statement::StoredSums) -> Result<Value, AppError> {
    Ok(json!({
        "jobs": sums.jobs,
        "held_seconds": six(seconds(Fraction::whole(sums.share_us.into()))?)?,
        "gpu_seconds": six(seconds(sums.gpu_us)?)?,
        "estimated_seconds": six(seconds(Fraction::whole(sums.estimated_us.into()))?)?,
        "credits": sums.amount.to_string(),
        "credits_exact": six(sums.exact)?,
        "currency_amount": sums.currency_amount.map(|printed| printed.to_string()),
    }))
}
