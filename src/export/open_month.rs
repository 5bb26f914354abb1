//! What an open month comes to so far, as text and JSON.

use gpuledger_domain::money::Printed;
use gpuledger_domain::units::Fraction;
use serde_json::json;

use super::json::pretty;
use super::screen::{grouped, hours};
use super::table::Table;
use crate::error::AppError;
use crate::workflows::open_month::OpenMonth;
use crate::workflows::statements::seconds;

/// For people.
///
/// # Errors
/// A number that cannot be held.
pub fn text(month: &OpenMonth) -> Result<String, AppError> {
    let mut text = String::new();
    let held = hours(&month.rows.values().map(|sums| Fraction::whole(sums.share_us)).collect::<Vec<_>>())?;
    let exact: Vec<Fraction> = month.rows.values().map(|sums| sums.amount().fraction()).collect();
    let credits = Printed::<2>::column(&exact)?;
    let mut table = Table::new(&["team", "kind", "workload", "SKU", "hours held", "credits"]);
    let figures = held.parts.iter().zip(&credits.parts);
    for ((key, sums), (held, amount)) in month.rows.iter().zip(figures) {
        table.row([
            key.team.to_string(),
            super::text::kind(key.kind).to_owned(),
            key.workload.as_str().to_owned(),
            key.sku.to_string(),
            grouped(*held),
            if sums.lacks_a_price { "unpriced".to_owned() } else { grouped(*amount) },
        ]);
    }
    let unpriced = month.rows.values().any(|sums| sums.lacks_a_price);
    let total = if unpriced { "unpriced".to_owned() } else { grouped(credits.total) };
    table.row(["total".to_owned(), String::new(), String::new(), String::new(), grouped(held.total), total]);
    text += &table.text();
    text += &match month.priced_at {
        None => format!(
            "Nothing of {} was priced yet; `gpuledger recompute` does it, or `gpuledger serve` as it goes.\n",
            month.month
        ),
        Some(at) => format!("Estimates by today's rules and prices, each day as of {at} or later.\n"),
    };
    if month.waiting > 0 {
        text += &format!("Days that changed since and wait to be priced: {}.\n", month.waiting);
    }
    Ok(text)
}

/// For programs.
///
/// # Errors
/// A number that cannot be held.
pub fn json(month: &OpenMonth) -> Result<String, AppError> {
    let mut rows = Vec::with_capacity(month.rows.len());
    for (key, sums) in &month.rows {
        let six = |us: i128| -> Result<String, AppError> {
            Ok(Printed::<6>::rounded(seconds(Fraction::whole(us))?)?.to_string())
        };
        rows.push(json!({
            "team": key.team.as_str(),
            "kind": super::text::kind(key.kind),
            "workload": key.workload.as_str(),
            "sku": key.sku.as_str(),
            "held_seconds": six(sums.share_us)?,
            "estimated_seconds": six(sums.estimated_us)?,
            "credits": (!sums.lacks_a_price).then(|| sums.amount().to_string()),
        }));
    }
    Ok(pretty(&json!({
        "period": month.month.to_string(),
        "priced_at": month.priced_at.map(|at| at.to_string()),
        "days_waiting": month.waiting,
        "rows": rows,
    })))
}
