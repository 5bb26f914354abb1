//! `gpuledger job`

use gpuledger_domain::ids::ClusterName;
use gpuledger_domain::time::Instant;
use gpuledger_domain::units::Fraction;
use serde_json::json;

use super::usage::exact_seconds;
use super::{Context, print};
use crate::error::{AppError, Outcome};
use crate::export::json::pretty;
use crate::export::table::Table;
use crate::workflows::job_history::{Attempt, job_history};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The job's id, or that of its array or heterogeneous job
    id: String,
    /// Its cluster
    #[arg(long, value_name = "NAME")]
    cluster: String,
    /// As JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(context: &Context, arguments: &Arguments) -> Result<Outcome, AppError> {
    let cluster = ClusterName::parse(&arguments.cluster);
    let cluster = cluster.map_err(|message| AppError::Refused(format!("--cluster: {message}")))?;
    let attempts = job_history(&mut context.db()?, &cluster, &arguments.id)?;
    if arguments.json {
        print_json(&attempts)?
    } else {
        print_text(&attempts)?
    }
    Ok(Outcome::Done)
}

fn end(attempt: &Attempt) -> String {
    match (attempt.known.interval, attempt.known.provisional) {
        (None, _) => "held nothing".to_owned(),
        (Some(interval), true) => format!("{} so far", interval.end()),
        (Some(interval), false) => interval.end().to_string(),
    }
}

/// The placements as people read them: instants instead of numbers.
fn holds(placements: &str) -> String {
    let readable = |placement: &str| match placement.split_once(" >") {
        Some((head, micros)) => match micros.parse::<i64>() {
            Ok(micros) => format!("{head} from {}", Instant::from_micros(micros)),
            Err(_) => placement.to_owned(),
        },
        None => placement.to_owned(),
    };
    placements.split(',').map(readable).collect::<Vec<_>>().join(", ")
}

fn print_text(attempts: &[Attempt]) -> Result<(), AppError> {
    let mut table = Table::new(&["job", "id", "start", "end", "ended by", "holds", "SKU", "instance-seconds"]);
    let mut total = Fraction::ZERO;
    for attempt in attempts {
        let known = &attempt.known;
        total = total.plus(attempt.instance_us)?;
        table.row([
            known.listed_id.clone().unwrap_or_else(|| known.source_id.clone()),
            known.source_id.clone(),
            known.start.to_string(),
            end(attempt),
            attempt.end_cause.map_or_else(|| "not told".to_owned(), |cause| cause.to_string()),
            holds(&known.placements),
            known.sku.clone(),
            exact_seconds(attempt.instance_us)?,
        ]);
    }
    print(&format!("{}{} attempts, {} instance-seconds\n", table.text(), attempts.len(), exact_seconds(total)?))
}

fn print_json(attempts: &[Attempt]) -> Result<(), AppError> {
    let mut rows = Vec::new();
    for attempt in attempts {
        let known = &attempt.known;
        rows.push(json!({
            "job": known.listed_id.as_ref().unwrap_or(&known.source_id),
            "id": known.source_id,
            "start": known.start.to_string(),
            "end": known.interval.map(|interval| interval.end().to_string()),
            "provisional": known.provisional,
            "end_state": known.end_state,
            "end_cause": attempt.end_cause.map(|cause| cause.as_str()),
            "placements": known.placements,
            "sku": known.sku,
            "instance_seconds": exact_seconds(attempt.instance_us)?,
        }));
    }
    print(&pretty(&serde_json::Value::Array(rows)))
}
