//! Pages and reports over HTTP. Pages are for the person at this machine only: they are listened for on loopback and
//! nowhere else, answer requests for loopback's own names only, and every page is read only. Those of real books are
//! behind a [`Door`].

mod answers;
mod collectors;
mod door;
mod ingest_queue;
mod metrics;
mod pages;
mod reports;
mod routes;
mod service;
mod tls;

pub use answers::secure;
pub use door::Door;
pub use service::{OPENAPI, Service, listen_at, run_service};
pub use tls::{TlsFiles, server_config};

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
pub fn serve(listener: TcpListener, config: Config, door: Door) -> Result<(), AppError> {
    let (state, door) = (Data::new(config), Data::new(door));
    let app = move || {
        App::new()
            .app_data(state.clone())
            .app_data(door.clone())
            .wrap(actix_web::middleware::from_fn(secure))
            .configure(routes::all)
    };
    let run = async { HttpServer::new(app).workers(2).listen(listener)?.run().await };
    actix_web::rt::System::new().block_on(run).map_err(|error| AppError::file("server", error))
}
