//! `gpuledger cost`

use gpuledger_domain::calendar::Month;
use gpuledger_domain::ids::TeamCode;

use super::{Context, print};
use crate::error::{AppError, Outcome};
use crate::export;
use crate::workflows::open_month::open_month;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The month, such as 2026-11
    #[arg(long, value_name = "YYYY-MM", value_parser = Month::parse)]
    period: Month,
    /// Only what this team pays
    #[arg(long, value_name = "CODE", value_parser = TeamCode::parse)]
    team: Option<TeamCode>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(context: &Context, arguments: &Arguments) -> Result<Outcome, AppError> {
    let mut db = context.db()?;
    let month = open_month(&mut db, &context.config.calendar, arguments.period, arguments.team.as_ref())?;
    print(&if arguments.json { export::open_month::json(&month)? } else { export::open_month::text(&month)? })?;
    Ok(Outcome::Done)
}
