//! `gpuledger config`

use super::{Context, print};
use crate::error::{AppError, Outcome};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Check the settings, and show each with where it comes from
    Check,
}

pub(super) fn run(context: &Context, command: &Command) -> Result<Outcome, AppError> {
    let Command::Check = command;
    let mut table = crate::export::table::Table::new(&["setting", "value", "from"]);
    for (name, value, origin) in &context.config.origins {
        table.row([(*name).to_owned(), value.clone(), origin.clone()]);
    }
    print(&table.text())?;
    Ok(Outcome::Done)
}
