//! Capacity as text and as JSON: what existed, was held, was idle or out of service, and what contradicts itself.

use gpuledger_domain::money::Printed;
use gpuledger_domain::time::Interval;
use gpuledger_domain::units::{Fraction, Overflow};
use serde_json::{Value, json};

use super::screen::{grouped, hours};
use super::table::Table;
use crate::error::AppError;
use crate::workflows::capacity::{CapacityReport, CapacityRow, Contradiction, PoolCoverage, seconds_text};

/// Contradictions that the text shows; JSON has more.
const SHOWN_MAX: usize = 20;

/// The report as text.
///
/// # Errors
/// A number that cannot be held.
pub fn text(report: &CapacityReport) -> Result<String, AppError> {
    let mut text = format!("{}\n\n", report.interval);
    if report.rows.is_empty() {
        text += "The inventory has no GPUs then.\n";
    } else {
        text += &table(report)?.text();
    }
    text += "\n";
    for pool in &report.pools {
        text += &coverage(report.interval, pool);
    }
    for note in &report.notes {
        text += &format!("{}\n", sentence(note));
    }
    if report.contradiction_count == 0 {
        return Ok(text + "No contradiction: no more was held than exists.\n");
    }
    text += &format!(
        "\n{} contradictions; each is an hour in which more was held than exists:\n",
        report.contradiction_count
    );
    for contradiction in report.contradictions.iter().take(SHOWN_MAX) {
        text += &shown(contradiction);
    }
    if report.contradiction_count > SHOWN_MAX {
        text += &format!("and {} more\n", report.contradiction_count - SHOWN_MAX);
    }
    Ok(
        text + "Correct the inventory and apply it, or the list and import it. A name of a SKU may lack its alias in the price book.\n"
    )
}

fn table(report: &CapacityReport) -> Result<Table, Overflow> {
    let mut table = Table::new(&[
        "pool",
        "SKU",
        "hours exist",
        "held",
        "idle",
        "out of service",
        "GPU-hours exist",
        "held",
        "idle",
        "out of service",
    ]);
    for row in &report.rows {
        let instances = cells(row, Some(Fraction::whole(1)))?;
        let gpus = cells(row, row.part)?;
        let words = [row.pool.to_string(), row.sku.to_string()];
        table.row(words.into_iter().chain(instances).chain(gpus));
    }
    Ok(table)
}

/// Exists, held, idle, out of service, in hours × `part`, so rounded that they add up unless more was held than exists.
fn cells(row: &CapacityRow, part: Option<Fraction>) -> Result<[String; 4], Overflow> {
    let Some(part) = part else { return Ok(["–", "–", "–", "–"].map(str::to_owned)) };
    let sums = row.capacity;
    let sized = |us: i128| Fraction::whole(us).times(part);
    let parts = hours(&[sized(sums.held_us)?, sized(sums.idle_us)?, sized(sums.out_of_service_us)?])?;
    let exists = match sums.excess_us {
        0 => parts.total,
        _ => hours(&[sized(sums.exists_us)?])?.total,
    };
    let cell = |index: usize| grouped(parts.parts.get(index).copied().unwrap_or(Printed(0)));
    Ok([grouped(exists), cell(0), cell(1), cell(2)])
}

/// A sentence with a capital letter and a full stop.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

fn coverage(interval: Interval, pool: &PoolCoverage) -> String {
    let name = &pool.pool;
    let said = match pool.known {
        Some(known) if known == interval => return format!("The inventory speaks of pool {name} all the time.\n"),
        Some(known) => format!("The inventory speaks of pool {name} from {} on", known.start()),
        None => format!("The inventory says nothing of pool {name}"),
    };
    match pool.unchecked_us {
        0 => format!("{said}.\n"),
        us => format!("{said}; {} held there were not checked.\n", seconds_text(us)),
    }
}

fn shown(contradiction: &Contradiction) -> String {
    let mut text = format!("{contradiction}; held by\n");
    for job in &contradiction.jobs {
        text += &format!("  {} {}: {} in {}\n", job.cluster, job.id, job.count, job.interval);
    }
    let more = contradiction.job_count - contradiction.jobs.len();
    if more > 0 {
        text += &format!("  and {more} more\n");
    }
    text
}

/// The report as JSON. Times are seconds as texts, exactly; those of GPUs are fractions, and null where unknown.
///
/// # Errors
/// A number that cannot be held.
pub fn json(report: &CapacityReport) -> Result<String, AppError> {
    let rows = report.rows.iter().map(json_row).collect::<Result<Vec<_>, _>>()?;
    let ends = |interval: Interval| json!([interval.start().to_string(), interval.end().to_string()]);
    let pools: Vec<Value> = report
        .pools
        .iter()
        .map(|pool| {
            json!({"pool": pool.pool.as_str(), "known": pool.known.map(ends), "unchecked_seconds": seconds(pool.unchecked_us)})
        })
        .collect();
    let job = |job: &crate::workflows::capacity::HeldThen| json!({"cluster": job.cluster, "id": job.id, "interval": ends(job.interval), "count": job.count});
    let contradictions: Vec<Value> = report
        .contradictions
        .iter()
        .map(|found| {
            json!({
                "pool": found.pool.as_str(),
                "sku": found.sku.as_str(),
                "hour": ends(found.hour),
                "exists_seconds": seconds(found.capacity.exists_us),
                "held_seconds": seconds(found.capacity.held_us),
                "excess_seconds": seconds(found.capacity.excess_us),
                "jobs": found.jobs.iter().map(job).collect::<Vec<_>>(),
                "job_count": found.job_count,
            })
        })
        .collect();
    Ok(super::json::pretty(&json!({
        "interval": ends(report.interval),
        "rows": rows,
        "pools": pools,
        "contradictions": contradictions,
        "contradiction_count": report.contradiction_count,
        "notes": report.notes,
    })))
}

fn seconds(us: i128) -> String {
    Printed::<6>(us).to_string()
}

fn json_row(row: &CapacityRow) -> Result<Value, Overflow> {
    let sums = row.capacity;
    let names = ["exists", "held", "idle", "out_of_service", "excess"];
    let amounts = [sums.exists_us, sums.held_us, sums.idle_us, sums.out_of_service_us, sums.excess_us];
    let mut value = serde_json::Map::new();
    value.insert("pool".to_owned(), json!(row.pool.as_str()));
    value.insert("sku".to_owned(), json!(row.sku.as_str()));
    for (name, us) in names.into_iter().zip(amounts) {
        let gpu_us = row.part.map(|part| Fraction::whole(us).times(part)).transpose()?;
        let gpu_seconds = gpu_us.map(|us| us.over(Fraction::whole(1_000_000))).transpose()?;
        value.insert(format!("{name}_seconds"), json!(seconds(us)));
        value.insert(format!("{name}_gpu_seconds"), json!(gpu_seconds.map(|exact| exact.to_string())));
    }
    Ok(Value::Object(value))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use gpuledger_domain::ids::{PoolName, SkuCode};
    use gpuledger_domain::metering::Capacity;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_printed_adds_up_and_is_never_negative(
            held_us in 0i128..10_000_000_000_000, idle_us in 0i128..10_000_000_000_000, out_of_service_us in 0i128..100_000_000_000,
            seventh in 1i128..8,
        ) {
            let exists_us = held_us + idle_us + out_of_service_us;
            let part = Fraction::new(seventh, 7);
            let capacity = Capacity { exists_us, held_us, idle_us, out_of_service_us, excess_us: 0 };
            let (pool, sku) = (PoolName::parse("p").unwrap(), SkuCode::parse("s").unwrap());
            let row = CapacityRow { pool, sku, part, capacity };
            for part in [part, Some(Fraction::whole(1))] {
                let cells = cells(&row, part).unwrap();
                let hundredths: Vec<i64> = cells.iter().map(|cell| cell.replace([',', '.'], "").parse().unwrap()).collect();
                prop_assert_eq!(hundredths[0], hundredths[1..].iter().sum::<i64>());
                prop_assert!(hundredths.iter().all(|number| *number >= 0));
            }
        }
    }
}
