//! `gpuledger demo`

use std::net::TcpListener;
use std::path::PathBuf;

use gpuledger_domain::ids::ClusterName;
use gpuledger_domain::money::Printed;

use super::token::random;
use super::{Context, print, tell};
use crate::config::Config;
use crate::error::{AppError, Outcome};
use crate::export::{screen, text};
use crate::import::job_record::RefusedLine;
use crate::workflows::collector_tokens::{NewToken, create};
use crate::workflows::import_jobs::ImportWatcher;
use crate::{clock, demo, web};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Where to keep the books; must not exist yet [default: a temporary file, removed at the end]
    #[arg(long, value_name = "FILE")]
    database: Option<PathBuf>,
    /// Where to serve the statements, on this machine only; 0 is any free port [default: 8080, or any if that is taken]
    #[arg(long)]
    port: Option<u16>,
    /// End when the months are closed, and serve nothing
    #[arg(long)]
    no_serve: bool,
    /// Add a scripted node, which reports while you watch, and a page that shows it
    #[arg(long, conflicts_with = "no_serve")]
    live: bool,
}

struct Silent;

impl ImportWatcher for Silent {
    fn progress(&mut self, _: u64) {}

    fn refused(&mut self, line: &RefusedLine) {
        tell(&format!("line {}: {}", line.line, line.reason));
    }
}

pub(super) fn run(context: &Context, arguments: &Arguments) -> Result<Outcome, AppError> {
    let begun = std::time::Instant::now();
    let folder = tempfile::tempdir().map_err(|error| AppError::file("temporary folder", error))?;
    let path = arguments.database.clone().unwrap_or_else(|| folder.path().join("demo.db"));
    if path.exists() {
        return Err(AppError::file(
            &path,
            "it is there already, and the demonstration begins from nothing; name another file",
        ));
    }
    // Before the work: a taken port is better told at once.
    let listener = if arguments.no_serve { None } else { Some(listener(arguments.port)?) };
    tell("importing 82,247 jobs of the Philly trace, and closing its months …");
    let config = demo::prepare(&context.config, &path, arguments.live, &mut Silent, clock::now)?;
    let mut october = String::new();
    for (month, period) in demo::months(&config, clock::now())? {
        let total = Printed::<2>::rounded(period.exact)?;
        print(&format!(
            "{month}: {} statements, {} {}\n",
            period.statements.len(),
            screen::grouped(total),
            config.credit.name
        ))?;
        if month.to_string() == "2017-10" {
            october = text::list(&period)?;
        }
    }
    print(&format!("\nOctober 2017\n{october}\nReady after {}. {}\n", clock::seconds_since(begun), demo::NOTICE))?;
    let Some(listener) = listener else { return Ok(Outcome::Done) };
    let address = listener.local_addr().map_err(|error| AppError::file("port", error))?;
    if arguments.live {
        return live(config, listener);
    }
    print(&format!("\nThe statements: http://{address}/statements   (Ctrl-C ends)\n"))?;
    web::serve(listener, config, web::Door::open())?;
    Ok(Outcome::Done)
}

/// Takes reports beside the pages, and lets the scripted node report.
fn live(config: Config, pages: TcpListener) -> Result<Outcome, AppError> {
    let address = pages.local_addr().map_err(|error| AppError::file("port", error))?;
    let reports = web::listen(0)?;
    let taking = reports.local_addr().map_err(|error| AppError::file("port", error))?;
    let cluster = ClusterName::parse(demo::live::CLUSTER).map_err(AppError::Refused)?;
    let wanted =
        NewToken { cluster: &cluster, node: demo::live::NODE, note: "the demonstration's script", actor: "demo" };
    let (_, token) = create(&mut config.database.open()?, &wanted, &mut random, clock::now())?;
    let url = format!("http://{taking}/api/v1/reports");
    demo::live::run(url, token, clock::now, tell)?;
    print(&format!(
        "\n{}\nThe scripted node: http://{address}/live\nThe statements: http://{address}/statements   (Ctrl-C ends)\n",
        demo::LIVE_NOTICE
    ))?;
    let pages = Some((pages, web::Door::open()));
    web::run_service(web::Service { config, listener: reports, tls: None, pages, workers: 1 })?;
    Ok(Outcome::Done)
}

/// The port asked for; where none is, the usual one or any free one.
fn listener(port: Option<u16>) -> Result<TcpListener, AppError> {
    match port {
        Some(port) => web::listen(port),
        None => web::listen(8080).or_else(|_| web::listen(0)),
    }
}
