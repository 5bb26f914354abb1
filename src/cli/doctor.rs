//! `gpuledger doctor`

use super::{Context, print};
use crate::error::{AppError, Outcome};
use crate::workflows::examine::{Weight, examine};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// As JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(context: &Context, arguments: &Arguments) -> Result<Outcome, AppError> {
    let config = &context.config;
    let findings = examine(&config.database, &config.calendar, crate::clock::now())?;
    let word = |weight| match weight {
        Weight::Good => "good",
        Weight::Warning => "warning",
        Weight::Fault => "fault",
    };
    if arguments.json {
        let rows: Vec<_> = findings
            .iter()
            .map(|finding| serde_json::json!({"subject": finding.subject, "weight": word(finding.weight), "text": finding.text}))
            .collect();
        print(&crate::export::json::pretty(&serde_json::Value::Array(rows)))?;
    } else {
        let lines: Vec<String> = findings
            .iter()
            .map(|finding| format!("{:<8}{}: {}\n", word(finding.weight), finding.subject, finding.text))
            .collect();
        print(&lines.concat())?;
    }
    let worst = findings.iter().map(|finding| finding.weight).max();
    Ok(if worst == Some(Weight::Fault) { Outcome::Findings } else { Outcome::Done })
}
