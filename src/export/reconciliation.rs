//! The reconciliation of time as text and as JSON.

use gpuledger_domain::metering::Disagreement;
use gpuledger_domain::units::Fraction;
use serde_json::json;

use super::json::pretty;
use super::screen::{grouped, hours};
use super::table::Table;
use crate::error::AppError;
use crate::workflows::reconcile::{FindingKind, ReconcileFinding, Reconciliation};

/// Findings that the text shows; JSON has all.
const SHOWN_MAX: usize = 20;

/// As text: GPU-hours, each row rounded so that it adds up.
///
/// # Errors
/// A number that cannot be held.
pub fn text(report: &Reconciliation) -> Result<String, AppError> {
    let mut text = format!("{}\n\n", report.interval);
    if report.days.is_empty() {
        return Ok(text + "No collector told of any node then. For nodes without one, see `gpuledger capacity`.\n");
    }
    let mut table = Table::new(&[
        "day",
        "pool",
        "node",
        "GPU-hours exist",
        "held",
        "idle",
        "stranded",
        "unobserved",
        "out of service",
        "difference µs",
    ]);
    for day in &report.days {
        let column = hours(&day.states_us)?;
        let exists = if day.difference_us == 0 { column.total } else { hours(&[day.exists_us])?.total };
        let words = [day.day.start().to_string(), day.pool.to_string(), format!("{}/{}", day.cluster, day.node)];
        let states = column.parts.into_iter().map(grouped);
        let numbers = std::iter::once(grouped(exists)).chain(states).chain([day.difference_us.to_string()]);
        table.row(words.into_iter().chain(numbers));
    }
    text += &table.text();
    let broken = report.days.iter().filter(|day| day.difference_us != 0).count();
    text += &match broken {
        0 => "\nThe law of time holds: in each row the states sum to what existed, to the microsecond.\n".to_owned(),
        count => format!("\nThe law of time is broken in {count} rows: their difference is not 0.\n"),
    };
    for finding in report.findings.iter().take(SHOWN_MAX) {
        text += &shown(finding);
    }
    if report.findings.len() > SHOWN_MAX {
        text += &format!("and {} more\n", report.findings.len() - SHOWN_MAX);
    }
    Ok(text)
}

fn shown(finding: &ReconcileFinding) -> String {
    let place = if finding.place.is_empty() { String::new() } else { format!(" {}", finding.place) };
    let job = if finding.job.is_empty() { String::new() } else { format!(" job {}", finding.job) };
    let gpu = if finding.gpu.is_empty() { String::new() } else { format!(" {}", finding.gpu) };
    format!("{}{gpu}{place}{job}, {}: {}\n", finding.node, finding.interval, sentence(finding.what))
}

fn sentence(what: FindingKind) -> &'static str {
    match what {
        FindingKind::Told(Disagreement::Overlap) => {
            "two starts of a collector told of this time; that of the earlier counts. Does a second collector run?"
        }
        FindingKind::Told(Disagreement::Shares) => {
            "the shares told of this unit are more or less than the time; mend the collector"
        }
        FindingKind::Told(Disagreement::OutsideLife) => {
            "told of time in which the unit did not exist, so that it does not count"
        }
        FindingKind::Told(Disagreement::AllocatedMore) => {
            "the scheduler's list tells of more GPUs than the job was seen to hold and than were free; the excess is not charged"
        }
        FindingKind::Told(Disagreement::SeenMore) => {
            "the job was seen on more GPUs than the scheduler's list tells; all of them are charged"
        }
        FindingKind::Told(Disagreement::OtherFacts) => {
            "the scheduler's list tells of another user or account than the collector; the list's count"
        }
        FindingKind::Told(Disagreement::OtherNode) => {
            "another node tells of this GPU at this time and has it, so that it does not count here; was a node renamed or copied?"
        }
        FindingKind::Layout => "the units told of this GPU are more or less than the GPU; mend the collector",
    }
}

fn code(what: FindingKind) -> &'static str {
    match what {
        FindingKind::Told(Disagreement::Overlap) => "overlap",
        FindingKind::Told(Disagreement::Shares) => "shares",
        FindingKind::Told(Disagreement::OutsideLife) => "outside-life",
        FindingKind::Told(Disagreement::AllocatedMore) => "allocated-more",
        FindingKind::Told(Disagreement::SeenMore) => "seen-more",
        FindingKind::Told(Disagreement::OtherFacts) => "other-facts",
        FindingKind::Layout => "layout",
        FindingKind::Told(Disagreement::OtherNode) => "two-nodes",
    }
}

/// As JSON. GPU-time is in seconds as exact fractions; the difference in microseconds.
///
/// # Errors
/// A number that cannot be held.
pub fn json(report: &Reconciliation) -> Result<String, AppError> {
    let seconds = |us: Fraction| -> Result<String, AppError> { Ok(us.over(Fraction::whole(1_000_000))?.to_string()) };
    let mut days = Vec::with_capacity(report.days.len());
    for day in &report.days {
        let [held, idle, stranded, unobserved, out_of_service] = day.states_us;
        days.push(json!({
            "day": day.day.start().to_string(),
            "pool": day.pool.as_str(),
            "cluster": day.cluster.as_str(),
            "node": day.node,
            "exists_gpu_seconds": seconds(day.exists_us)?,
            "held_gpu_seconds": seconds(held)?,
            "idle_gpu_seconds": seconds(idle)?,
            "stranded_gpu_seconds": seconds(stranded)?,
            "unobserved_gpu_seconds": seconds(unobserved)?,
            "out_of_service_gpu_seconds": seconds(out_of_service)?,
            "difference_us": day.difference_us.to_string(),
        }));
    }
    let findings: Vec<_> = report
        .findings
        .iter()
        .map(|finding| {
            json!({
                "node": finding.node,
                "gpu": finding.gpu,
                "place": finding.place,
                "job": finding.job,
                "interval": [finding.interval.start().to_string(), finding.interval.end().to_string()],
                "code": code(finding.what),
            })
        })
        .collect();
    let interval = [report.interval.start().to_string(), report.interval.end().to_string()];
    Ok(pretty(&json!({ "interval": interval, "days": days, "findings": findings })))
}
