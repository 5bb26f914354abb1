//! Pages over HTTP. So far they are for the person at this machine only: [`serve`] listens on loopback and nowhere
//! else, answers requests for loopback's own names only, and every page is read only.

mod answers;
mod collectors;
mod ingest_queue;
mod metrics;
mod pages;
mod reports;
mod routes;
mod service;

pub use answers::secure;
pub use service::{OPENAPI, Service, listen_at, run_service};

use std::net::{Ipv4Addr, TcpListener};

use actix_web::{App, HttpServer, web::Data};

use crate::config::Config;
use crate::error::AppError;

/// A listener on loopback, on a free port if `port` is 0.
///
/// # Errors
/// [`AppError::File`] where the port is taken.
pub fn listen(port: u16) -> Result<TcpListener, AppError> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(|error| AppError::file(format!("port {port}"), error))
}

/// Serves pages until the process is told to stop.
///
/// # Errors
/// [`AppError::File`] where the server cannot run.
pub fn serve(listener: TcpListener, config: Config) -> Result<(), AppError> {
    let state = Data::new(config);
    let app =
        move || App::new().app_data(state.clone()).wrap(actix_web::middleware::from_fn(secure)).configure(routes::all);
    let run = async { HttpServer::new(app).workers(2).listen(listener)?.run().await };
    actix_web::rt::System::new().block_on(run).map_err(|error| AppError::file("server", error))
}
