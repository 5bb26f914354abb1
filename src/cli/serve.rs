//! `gpuledger serve`

use std::net::SocketAddr;

use super::{Context, print};
use crate::error::{AppError, Outcome};
use crate::web::{Service, listen_at, run_service};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Where to take reports, as ADDRESS:PORT; 0.0.0.0:8080 is every address of this machine
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// How many threads take requests
    #[arg(long, value_name = "NUMBER", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..))]
    workers: u8,
}

pub(super) fn run(context: &Context, arguments: &Arguments) -> Result<Outcome, AppError> {
    // Before the work: books that cannot be used are better told at once.
    drop(context.db()?);
    let listener = listen_at(arguments.listen)?;
    let address = listener.local_addr().map_err(|error| AppError::file("port", error))?;
    print(&format!("Taking reports at http://{address}/api/v1/reports   (Ctrl-C ends)\n"))?;
    run_service(Service { config: context.config.clone(), listener, workers: arguments.workers.into() })?;
    Ok(Outcome::Done)
}
