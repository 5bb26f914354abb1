//! `gpuledger close`

use gpuledger_domain::calendar::Month;

use super::{Context, actor, print};
use crate::error::{AppError, Outcome};
use crate::workflows::close::{Closed, close};
use crate::workflows::statements;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The month, such as 2017-10
    month: String,
}

pub(super) fn run(context: &Context, arguments: &Arguments) -> Result<Outcome, AppError> {
    let month = Month::parse(&arguments.month).map_err(AppError::Refused)?;
    let calendar = &context.config.calendar;
    let mut db = context.db()?;
    let closed = close(&mut db, calendar, month, &actor(), crate::clock::now)?;
    let issued = statements::of_period(&mut db, calendar, month, crate::clock::now())?;
    let what = match closed {
        Closed::Now => "closed",
        Closed::Before => "was closed already; nothing changed",
    };
    print(&format!("{month} {what}: {} statements\n{}", issued.statements.len(), crate::export::text::list(&issued)?))?;
    Ok(Outcome::Done)
}
