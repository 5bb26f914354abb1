//! `gpuledger migrate`

use super::{Context, print};
use crate::error::{AppError, Outcome};
use crate::workflows::migrate;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// PostgreSQL: let this role do what the service needs, and nothing that could change what is frozen
    #[arg(long, value_name = "NAME")]
    service_role: Option<String>,
}

pub(super) fn run(context: &Context, arguments: &Arguments) -> Result<Outcome, AppError> {
    let config = &context.config;
    let migrated = migrate::migrate(&config.database, &config.calendar)?;
    if let Some(role) = &arguments.service_role {
        gpuledger_db::migrations::grant_service_role(&mut config.database.open()?, role)?;
        print(&format!("the role {role} may now run the service\n"))?;
    }
    let done = match migrated.migrations.as_slice() {
        [] => "schema was current".to_owned(),
        run => format!("ran {}", run.join(", ")),
    };
    print(&format!("{}: {done}; billing zone {}\n", config.database.without_secret(), migrated.zone))?;
    Ok(Outcome::Done)
}
