//! The service: takes reports on any address, and sums usage beside that. Its pages are for who is at this machine, until
//! people can sign in, and have a server of their own on loopback.

use std::net::{SocketAddr, TcpListener};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use actix_web::http::header;
use actix_web::middleware::from_fn;
use actix_web::web::{Data, ServiceConfig, block, get, post, resource, to};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer};

use gpuledger_db::Db;

use super::answers::{guarded, secure};
use super::collectors::Tokens;
use super::door::Door;
use super::ingest_queue::IngestQueue;
use super::metrics::{self, Metrics};
use super::tls::{TlsFiles, server_config};
use super::{answers, reports, routes};
use crate::clock;
use crate::config::Config;
use crate::error::AppError;
use crate::workflows::ingest::Ingest;
use crate::workflows::reprice::{Repricer, mark_unpriced};
use crate::workflows::{counted, ingest, migrate, recompute, roll_up};

/// How often marked days are summed, in seconds.
const ROLL_UP_SECONDS: u64 = 10;
/// How long the writer of reports is let in between two days: on SQLite one may write at a time, and who waits for that
/// asks again and again, and never in turn.
const PAUSE: Duration = Duration::from_millis(1);
/// How many days of each kind are checked at once, so that what comes meanwhile does not wait for the night's comparison.
const CHECKS_MAX: i64 = 1_000;
/// How long requests that are under way may take when the service is told to end, in seconds.
const SHUTDOWN_SECONDS: u64 = 30;

/// What the service runs with.
#[derive(Debug)]
pub struct Service {
    /// The settings.
    pub config: Config,
    /// Where it takes reports.
    pub listener: TcpListener,
    /// Certificate and key, where reports come encrypted.
    pub tls: Option<TlsFiles>,
    /// Where it shows pages, on loopback, and what opens them.
    pub pages: Option<(TcpListener, Door)>,
    /// How many threads take requests.
    pub workers: usize,
}

/// A listener at an address.
///
/// # Errors
/// [`AppError::File`] where it is taken, or not this machine's.
pub fn listen_at(address: SocketAddr) -> Result<TcpListener, AppError> {
    TcpListener::bind(address).map_err(|error| AppError::file(address.to_string(), error))
}

/// Runs until the process is told to end: then it takes no more requests, finishes those it has, and stores what waits.
///
/// # Errors
/// The database's at the start; [`AppError::File`] where the server cannot run.
pub fn run_service(service: Service) -> Result<(), AppError> {
    let Service { config, listener, workers, tls, pages } = service;
    let tls = tls.as_ref().map(server_config).transpose()?;
    let metrics = Metrics::new()?;
    mark_unpriced(&mut migrate::open(&config.database, &config.calendar)?, &config.calendar)?;
    let (queue, writer) = IngestQueue::start(config.clone(), Arc::clone(&metrics))?;
    let ending = Arc::new(AtomicBool::new(false));
    let roller = Roller {
        repricer: Repricer::default(),
        config: config.clone(),
        ending: Arc::clone(&ending),
        metrics: Arc::clone(&metrics),
    };
    let roller = std::thread::Builder::new().name("roll-up".into()).spawn(move || roller.run());
    let roller = roller.map_err(|error| AppError::file("thread", error))?;
    let shown = pages.map(|(listener, door)| (listener, Data::new(config.clone()), Data::new(door)));
    let (queue, config, tokens) = (Data::new(queue), Data::new(config), Data::new(Tokens::default()));
    let metrics = Data::from(metrics);
    let app = move || {
        App::new()
            .app_data(queue.clone())
            .app_data(config.clone())
            .app_data(tokens.clone())
            .app_data(metrics.clone())
            .wrap(from_fn(guarded))
            .configure(addresses)
            .default_service(actix_web::web::to(nothing_here))
    };
    let run = async {
        let taking = HttpServer::new(app).workers(workers).shutdown_timeout(SHUTDOWN_SECONDS);
        let taking = match tls {
            Some(tls) => taking.listen_rustls_0_23(listener, tls)?,
            None => taking.listen(listener)?,
        };
        let taking = taking.run();
        let Some((listener, config, door)) = shown else { return taking.await };
        let app = move || {
            let app = App::new().app_data(config.clone()).app_data(door.clone());
            app.wrap(from_fn(secure)).configure(routes::all)
        };
        let showing = HttpServer::new(app).workers(1).shutdown_timeout(SHUTDOWN_SECONDS).listen(listener)?.run();
        // Each ends by itself when the process is told to end.
        let (taken, shown) = tokio::join!(taking, showing);
        taken.and(shown)
    };
    let ran = actix_web::rt::System::new().block_on(run).map_err(|error| AppError::file("server", error));
    ending.store(true, Ordering::Relaxed);
    roller.thread().unpark();
    // The last way to the writer went with the server.
    for thread in [writer, roller] {
        if thread.join().is_err() {
            tracing::error!("a thread of the service failed");
        }
    }
    ran
}

/// Every address of the service. A test compares them with what [`OPENAPI`] says.
///
/// | address | answers |
/// |---|---|
/// | `POST /api/v1/reports` | what came of a report |
/// | `GET /api/v1/openapi.json` | [`OPENAPI`] |
/// | `GET /health` | the process answers |
/// | `GET /ready` | the books can be used |
/// | `GET /metrics` | counts for Prometheus, on loopback only |
fn addresses(service: &mut ServiceConfig) {
    service
        .service(resource("/api/v1/reports").route(post().to(reports::take)).default_service(to(not_so)))
        .service(resource("/api/v1/openapi.json").route(get().to(openapi)).default_service(to(not_so)))
        .service(resource("/health").route(get().to(health)).default_service(to(not_so)))
        .service(resource("/ready").route(get().to(ready)).default_service(to(not_so)))
        .service(resource("/metrics").route(get().to(metrics::show)).default_service(to(not_so)));
}

/// What the service understands, for programs.
pub const OPENAPI: &str = include_str!("openapi.json");

async fn openapi() -> HttpResponse {
    HttpResponse::Ok().content_type("application/json").body(OPENAPI)
}

/// There is something at the address, and not for this method.
async fn not_so(request: HttpRequest) -> HttpResponse {
    let allowed = if request.path() == "/api/v1/reports" { "POST" } else { "GET" };
    HttpResponse::MethodNotAllowed().insert_header((header::ALLOW, allowed)).finish()
}

/// The process answers.
async fn health() -> HttpResponse {
    HttpResponse::Ok().content_type("text/plain; charset=utf-8").body("ok\n")
}

/// The books can be used.
async fn ready(config: Data<Config>) -> HttpResponse {
    let opened = block(move || migrate::open(&config.database, &config.calendar).map(drop)).await;
    match opened {
        Ok(Ok(())) => HttpResponse::Ok().content_type("text/plain; charset=utf-8").body("ready\n"),
        failed => {
            tracing::warn!(?failed, "not ready");
            HttpResponse::ServiceUnavailable()
                .content_type("text/plain; charset=utf-8")
                .body("The books cannot be used; the log says why.\n")
        }
    }
}

async fn nothing_here() -> Result<HttpResponse, answers::Failure> {
    Err(answers::Failure::NothingHere)
}

/// Sums and prices what was marked, again and again.
struct Roller {
    repricer: Repricer,
    config: Config,
    ending: Arc<AtomicBool>,
    metrics: Arc<Metrics>,
}

impl Roller {
    fn run(mut self) {
        while !self.ending.load(Ordering::Relaxed) {
            // What fails in one step must not keep the others from being done.
            for (what, step) in STEPS {
                match catch_unwind(AssertUnwindSafe(|| step(&mut self))) {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => {
                        tracing::error!(%error, what, "what is done beside reports failed; it is tried again");
                    }
                    // A defect. What was being done is as it was before; what was remembered may be half of it.
                    Err(_) => {
                        self.repricer = Repricer::default();
                        tracing::error!(what, "what is done beside reports ended by a defect; it is tried again");
                    }
                }
            }
            std::thread::park_timeout(Duration::from_secs(ROLL_UP_SECONDS));
        }
    }

    fn db(&self) -> Result<Db, AppError> {
        migrate::open(&self.config.database, &self.config.calendar)
    }

    fn heads(&mut self) -> Result<(), AppError> {
        ingest::settle_old_heads(&mut self.db()?, &self.config.calendar, clock::now()).map(drop)
    }

    fn clocks(&mut self) -> Result<(), AppError> {
        let mut ingest = Ingest::new(self.config.calendar.clone(), self.config.default_pool.clone());
        ingest.replace_in_time(&mut self.db()?, clock::now()).map(drop)
    }

    fn days(&mut self) -> Result<(), AppError> {
        counted::settle_days(&mut self.db()?, &self.config.calendar, clock::now()).map(drop)
    }

    fn usage(&mut self) -> Result<(), AppError> {
        let now = clock::now();
        let days = roll_up::roll_up_between(&mut self.db()?, &self.config.calendar, None, pause)?;
        self.metrics.rolled_up(days, now.micros());
        Ok(())
    }

    fn cost(&mut self) -> Result<(), AppError> {
        let mut db = self.db()?;
        let days = self.repricer.reprice(&mut db, &self.config.calendar, clock::now)?;
        self.metrics.repriced(days);
        Ok(())
    }

    /// Once a night everything is compared, some of it each time.
    fn checks(&mut self) -> Result<(), AppError> {
        let (mut db, calendar) = (self.db()?, &self.config.calendar);
        recompute::start_if_due(&mut db, calendar, clock::now())?;
        let usage = roll_up::check(&mut db, calendar, CHECKS_MAX, pause)?;
        let cost = self.repricer.check(&mut db, calendar, CHECKS_MAX, clock::now)?;
        self.metrics.checked(usage.days + cost.days, usage.differences + cost.differences);
        Ok(())
    }
}

fn pause() {
    std::thread::sleep(PAUSE);
}

type Step = fn(&mut Roller) -> Result<(), AppError>;
/// What is done beside reports, in this order.
const STEPS: [(&str, Step); 6] = [
    ("heads", Roller::heads),
    ("clocks", Roller::clocks),
    ("silent days", Roller::days),
    ("usage", Roller::usage),
    ("cost", Roller::cost),
    ("checks", Roller::checks),
];
