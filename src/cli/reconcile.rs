//! `gpuledger reconcile`

use super::window::Window;
use super::{Context, print};
use crate::error::{AppError, Outcome};
use crate::export;
use crate::workflows::reconcile::reconcile;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    window: Window,
    /// As JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(context: &Context, arguments: &Arguments) -> Result<Outcome, AppError> {
    let interval = arguments.window.interval(context)?;
    let report = reconcile(&mut context.db()?, &context.config.calendar, interval, crate::clock::now())?;
    let text =
        if arguments.json { export::reconciliation::json(&report)? } else { export::reconciliation::text(&report)? };
    print(&text)?;
    Ok(if report.is_clean() { Outcome::Done } else { Outcome::Findings })
}
