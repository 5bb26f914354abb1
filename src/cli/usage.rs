//! `gpuledger usage`

use gpuledger_domain::money::Printed;
use gpuledger_domain::time::{Instant, Interval};
use gpuledger_domain::units::Fraction;
use serde_json::json;

use super::{Context, print};
use crate::error::{AppError, Outcome};
use crate::export::json::pretty;
use crate::export::table::Table;
use crate::workflows::books::Books;
use crate::workflows::statements::seconds;
use crate::workflows::usage_report::{Dimension, UsageRow, usage_report};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// From when, RFC 3339, such as 2026-11-30T17:00:00Z
    #[arg(long, value_name = "INSTANT")]
    from: String,
    /// Until when, RFC 3339; this instant is not in it
    #[arg(long, value_name = "INSTANT")]
    to: String,
    /// What to sum by: any of cluster, pool, account, user, partition, qos, name, sku
    #[arg(long, value_delimiter = ',', value_name = "WORDS", default_value = "account,user,sku")]
    by: Vec<String>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(context: &Context, arguments: &Arguments) -> Result<Outcome, AppError> {
    let instant = |flag: &str, text: &str| {
        Instant::parse(text).map_err(|message| AppError::Refused(format!("{flag}: {message}")))
    };
    let (from, to) = (instant("--from", &arguments.from)?, instant("--to", &arguments.to)?);
    let interval = Interval::new(from, to)
        .ok_or_else(|| AppError::Refused(format!("--to {to} is not after --from {from}; give a later instant")))?;
    let by = arguments.by.iter().map(|word| Dimension::parse(word)).collect::<Result<Vec<_>, _>>();
    let by = by.map_err(|message| AppError::Refused(format!("--by: {message}")))?;
    let mut db = context.db()?;
    let books = Books::in_force(&mut db, &context.config.calendar)?;
    let rows = usage_report(&mut db, &context.config.calendar, &books.prices, interval, &by)?;
    if arguments.json {
        print_json(arguments, interval, &rows)?
    } else {
        print_text(arguments, &rows)?
    }
    Ok(Outcome::Done)
}

fn print_json(arguments: &Arguments, interval: Interval, rows: &[UsageRow]) -> Result<(), AppError> {
    let mut values = Vec::new();
    for row in rows {
        let mut value = serde_json::Map::new();
        for (word, text) in arguments.by.iter().zip(&row.key) {
            value.insert(word.clone(), json!(text));
        }
        value.insert("attempts".into(), json!(row.attempts));
        value.insert("instance_seconds".into(), json!(exact_seconds(row.instance_us)?));
        let gpu = row.gpu_us.map(exact_seconds).transpose()?;
        value.insert("gpu_seconds".into(), json!(gpu));
        value.insert("suspended_seconds".into(), json!(exact_seconds(row.suspended_us)?));
        values.push(serde_json::Value::Object(value));
    }
    let (from, to) = (interval.start().to_string(), interval.end().to_string());
    print(&pretty(&json!({"from": from, "to": to, "rows": values})))
}

fn print_text(arguments: &Arguments, rows: &[UsageRow]) -> Result<(), AppError> {
    let words = arguments.by.iter().map(String::as_str);
    let headings: Vec<&str> = words.chain(["attempts", "instance-seconds", "GPU-seconds", "suspended"]).collect();
    let mut table = Table::new(&headings);
    let mut total = Fraction::ZERO;
    for row in rows {
        total = total.plus(row.instance_us)?;
        let gpu = row.gpu_us.map_or(Ok("not known".to_owned()), exact_seconds)?;
        let numbers =
            [row.attempts.to_string(), exact_seconds(row.instance_us)?, gpu, exact_seconds(row.suspended_us)?];
        table.row(row.key.iter().cloned().chain(numbers));
    }
    print(&format!("{}{} instance-seconds in all\n", table.text(), exact_seconds(total)?))
}

/// Seconds as a decimal, to the microsecond: all that sources tell. Finer parts, which only divided slices have, are
/// rounded.
pub(super) fn exact_seconds(us: Fraction) -> Result<String, AppError> {
    let (whole, part) = Printed::<6>::rounded(seconds(us)?)?.digits();
    let text = format!("{whole}.{part:06}");
    Ok(text.trim_end_matches('0').trim_end_matches('.').to_owned())
}
