//! `gpuledger serve`

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;

use super::{Context, print};
use crate::error::{AppError, Outcome};
use crate::web::{Door, Service, TlsFiles, listen, listen_at, run_service, server_config};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Where to take reports, as ADDRESS:PORT; 0.0.0.0:8080 is every address of this machine
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// How many threads take requests
    #[arg(long, value_name = "NUMBER", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..))]
    workers: u8,
    /// Encrypt reports with this certificate, and those that lead to one that collectors trust, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// The certificate's key, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// Where to show pages, on this machine only; 0 is any free port
    #[arg(long, value_name = "PORT", default_value_t = 8081)]
    pages: u16,
    /// Show no pages
    #[arg(long, conflicts_with = "pages")]
    no_pages: bool,
}

pub(super) fn run(context: &Context, arguments: &Arguments) -> Result<Outcome, AppError> {
    // Before the work: books that cannot be used are better told at once.
    drop(context.db()?);
    let tls = arguments.tls_certificate.clone().zip(arguments.tls_key.clone());
    let tls = tls.map(|(certificates, key)| TlsFiles { certificates, key });
    if let Some(files) = &tls {
        server_config(files)?;
    }
    let listener = listen_at(arguments.listen)?;
    let address = listener.local_addr().map_err(|error| AppError::file("port", error))?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let pages = if arguments.no_pages { None } else { Some(pages(arguments.pages)?) };
    print(&format!("Taking reports at {scheme}://{address}/api/v1/reports   (Ctrl-C ends)\n"))?;
    let pages = match pages {
        None => None,
        Some(listener) => {
            let port = listener.local_addr().map_err(|error| AppError::file("port", error))?.port();
            let shown = move |link: &str| {
                // A terminal that is gone is no reason to end.
                let _ = print(&format!("Pages, for one browser: http://127.0.0.1:{port}/open/{link}\n"));
            };
            Some((listener, Door::by_link(Box::new(shown))?))
        }
    };
    let (config, workers) = (context.config.clone(), arguments.workers.into());
    run_service(Service { config, listener, tls, pages, workers })?;
    Ok(Outcome::Done)
}

/// A listener for pages: at the port that was asked for, or any if that is taken.
fn pages(port: u16) -> Result<TcpListener, AppError> {
    listen(port).or_else(|error| if port == 8081 { listen(0) } else { Err(error) })
}
