//! `gpuledger capacity`

use super::window::Window;
use super::{Context, print};
use crate::error::{AppError, Outcome};
use crate::export;
use crate::workflows::capacity::capacity;

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
    let report = capacity(&mut context.db()?, &context.config.calendar, interval, crate::clock::now())?;
    let text = if arguments.json { export::capacity::json(&report)? } else { export::capacity::text(&report)? };
    print(&text)?;
    Ok(if report.contradiction_count > 0 { Outcome::Findings } else { Outcome::Done })
}
