//! `gpuledger agents`

use super::{Context, print};
use crate::error::{AppError, Outcome};
use crate::export;
use crate::workflows::agents::agents;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// As JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(context: &Context, arguments: &Arguments) -> Result<Outcome, AppError> {
    let now = crate::clock::now();
    let agents = agents(&mut context.db()?, &context.config.calendar, now)?;
    print(&if arguments.json { export::agents::json(&agents)? } else { export::agents::text(&agents, now)? })?;
    Ok(Outcome::Done)
}
