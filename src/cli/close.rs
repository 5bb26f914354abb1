//! `gpuledger close`

use gpuledger_domain::calendar::Month;

use super::{Context, actor, print};
use crate::error::{AppError, Outcome};
use crate::workflows::close::{Closed, close_accepting};
use crate::workflows::statements;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The month, such as 2017-10
    month: String,
    /// Close also where more was held than the inventory has, or jobs are told in part only; why is written to the audit log
    #[arg(long, value_name = "REASON")]
    accept_contradictions: Option<String>,
}

pub(super) fn run(context: &Context, arguments: &Arguments) -> Result<Outcome, AppError> {
    let month = Month::parse(&arguments.month).map_err(AppError::Refused)?;
    let calendar = &context.config.calendar;
    let mut db = context.db()?;
    let accepted = arguments.accept_contradictions.as_deref();
    let closed = close_accepting(&mut db, calendar, month, accepted, &actor(), crate::clock::now)?;
    let issued = statements::of_period(&mut db, calendar, month, crate::clock::now())?;
    let what = match closed {
        Closed::Now => "closed",
        Closed::Before => "was closed already; nothing changed",
    };
    print(&format!("{month} {what}: {} statements\n{}", issued.statements.len(), crate::export::text::list(&issued)?))?;
    Ok(Outcome::Done)
}
