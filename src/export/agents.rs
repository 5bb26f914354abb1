//! Collectors as text and JSON.

use gpuledger_domain::time::Instant;
use gpuledger_domain::units::Fraction;
use serde_json::json;

use super::json::pretty;
use super::screen::{grouped, hours};
use super::table::Table;
use crate::error::AppError;
use crate::workflows::agents::AgentSeen;

const US_PER_SECOND: i64 = 1_000_000;

/// For people: a line each, those that were not heard for longest first.
///
/// # Errors
/// A number that cannot be held.
pub fn text(agents: &[AgentSeen], now: Instant) -> Result<String, AppError> {
    if agents.is_empty() {
        return Ok("No collector reported yet. A token for one: gpuledger token create --cluster NAME\n".into());
    }
    let mut table = Table::new(&[
        "node",
        "heard",
        "collector",
        "clock ahead, ms",
        "open segments",
        "GPU-hours summed today",
        "unobserved",
        "findings",
    ])
    .right(&[3, 4, 5, 6, 7]);
    let mut by_silence: Vec<&AgentSeen> = agents.iter().collect();
    by_silence.sort_by_key(|agent| agent.last.as_ref().map(|last| last.received_at));
    for agent in by_silence {
        let last = agent.last.as_ref();
        let ago = |at: Instant| format!("{} s ago", now.micros().saturating_sub(at.micros()) / US_PER_SECOND);
        table.row([
            format!("{}/{}", agent.cluster, agent.node),
            last.map_or_else(|| "not for two hours".to_owned(), |last| ago(last.received_at)),
            last.map(|last| last.collector.clone()).unwrap_or_default(),
            last.map(|last| (last.clock_ahead_us / 1_000).to_string()).unwrap_or_default(),
            last.map(|last| last.open_segments.to_string()).unwrap_or_default(),
            grouped(hours(&[agent.exists_us])?.total),
            grouped(hours(&[agent.unobserved_us])?.total),
            agent.findings.to_string(),
        ]);
    }
    Ok(table.text())
}

/// For programs. GPU-time is in seconds as exact fractions.
///
/// # Errors
/// A number that cannot be held.
pub fn json(agents: &[AgentSeen]) -> Result<String, AppError> {
    let seconds = |us: Fraction| -> Result<String, AppError> { Ok(us.over(Fraction::whole(1_000_000))?.to_string()) };
    let agents = agents.iter().map(|agent| {
        let last = agent.last.as_ref().map(|last| {
            json!({
                "received_at": last.received_at.to_string(),
                "collector": last.collector,
                "clock_ahead_us": last.clock_ahead_us,
                "open_segments": last.open_segments,
            })
        });
        Ok(json!({
            "cluster": agent.cluster.as_str(),
            "node": agent.node,
            "last_report": last,
            "exists_today_gpu_seconds": seconds(agent.exists_us)?,
            "unobserved_today_gpu_seconds": seconds(agent.unobserved_us)?,
            "findings_today": agent.findings,
        }))
    });
    Ok(pretty(&json!({ "agents": agents.collect::<Result<Vec<_>, AppError>>()? })))
}
