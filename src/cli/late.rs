//! `gpuledger late`

use super::{Context, print};
use crate::error::{AppError, Outcome};
use crate::export;
use crate::workflows::{late_facts, roll_up};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// As JSON, with the records that are kept aside as they came
    #[arg(long)]
    json: bool,
}

pub(super) fn run(context: &Context, arguments: &Arguments) -> Result<Outcome, AppError> {
    let (mut db, calendar) = (context.db()?, &context.config.calendar);
    roll_up::roll_up(&mut db, calendar, None)?;
    let (late, aside) = (late_facts::list(&mut db, calendar)?, late_facts::kept_aside(&mut db)?);
    let json = arguments.json;
    print(&if json { export::late::json(&late, &aside)? } else { export::late::text(calendar, &late, &aside)? })?;
    Ok(Outcome::Done)
}
