//! What came too late to count where it belongs, as text and JSON.

use gpuledger_db::closing::entry_word;
use gpuledger_domain::calendar::BillingCalendar;
use gpuledger_domain::money::Printed;
use gpuledger_domain::units::Fraction;
use serde_json::{Value, json};

use super::table::Table;
use crate::error::AppError;
use crate::workflows::late_facts::{KeptAside, LateFact};
use crate::workflows::statements::seconds;

/// For people: corrections of closed months, then records that are kept aside.
///
/// # Errors
/// A number that cannot be held.
pub fn text(calendar: &BillingCalendar, late: &[LateFact], aside: &[KeptAside]) -> Result<String, AppError> {
    let mut text = String::new();
    if late.is_empty() {
        text += "Nothing came of months that were closed.\n";
    } else {
        let mut table =
            Table::new(&["month", "charged in", "", "entry", "day", "node", "job", "SKU", "state", "seconds held"]);
        for fact in late {
            table.row([
                fact.month.to_string(),
                fact.corrected_in.to_string(),
                if fact.is_charged { "closed" } else { "open" }.to_owned(),
                entry_word(fact.entry).to_owned(),
                calendar.date_text(fact.slot.start()),
                fact.node.clone(),
                fact.job.as_ref().map_or_else(String::new, |(_, id)| id.clone()),
                fact.sku.clone(),
                fact.state.as_str().to_owned(),
                held(fact)?,
            ]);
        }
        text += &table.text();
    }
    if !aside.is_empty() {
        let mut table = Table::new(&["kept aside because", "cluster", "node", "hour", "number", "came"]);
        for record in aside {
            let key = [&record.cluster, &record.node, &record.hour.to_string(), &record.number.to_string()];
            let mut row = vec![record.reason.to_owned()];
            row.extend(key.map(Clone::clone));
            row.push(record.received_at.to_string());
            table.row(row);
        }
        text += &format!("\n{}", table.text());
    }
    Ok(text)
}

/// For programs.
///
/// # Errors
/// A number that cannot be held.
pub fn json(late: &[LateFact], aside: &[KeptAside]) -> Result<String, AppError> {
    let corrections = late.iter().map(|fact| {
        Ok(json!({
            "month": fact.month.to_string(),
            "corrected_in": fact.corrected_in.to_string(),
            "charged": fact.is_charged,
            "entry": entry_word(fact.entry),
            "slot_start": fact.slot.start().to_string(),
            "slot_end": fact.slot.end().to_string(),
            "node": fact.node,
            "cluster": fact.job.as_ref().map(|(cluster, _)| cluster),
            "job": fact.job.as_ref().map(|(_, id)| id),
            "sku": fact.sku,
            "state": fact.state.as_str(),
            "held_seconds": held(fact)?,
        }))
    });
    let aside: Vec<Value> = aside
        .iter()
        .map(|record| {
            json!({
                "reason": record.reason,
                "cluster": record.cluster,
                "node": record.node,
                "hour": record.hour.to_string(),
                "epoch": record.epoch,
                "number": record.number,
                "received_at": record.received_at.to_string(),
                "record": serde_json::from_str::<Value>(&record.body).unwrap_or(Value::Null),
            })
        })
        .collect();
    let corrections = corrections.collect::<Result<Vec<Value>, AppError>>()?;
    Ok(super::json::pretty(&json!({ "corrections": corrections, "kept_aside": aside })))
}

fn held(fact: &LateFact) -> Result<String, AppError> {
    Ok(Printed::<6>::rounded(seconds(Fraction::whole(fact.share_us.into()))?)?.to_string())
}
