//! The command line: arguments are read here, each command has a file of its own.

mod agents;
mod capacity;
mod catalogue;
mod close;
mod config;
mod cost;
mod demo;
mod doctor;
mod import;
mod import_events;
mod job;
mod late;
mod migrate;
mod recompute;
mod reconcile;
mod retire_node;
mod rules_test;
mod serve;
mod statement;
mod token;
mod usage;
mod window;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use gpuledger_db::Db;
use gpuledger_db::catalogue::CatalogueKind;

use crate::config::Config;
use crate::error::{AppError, Outcome};
use crate::workflows;

/// GPU chargeback: every GPU-second priced exactly, on a statement with its evidence.
#[derive(Debug, Parser)]
#[command(version, about, propagate_version = true)]
struct Arguments {
    /// Settings file [default: gpuledger.toml, if it is there]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make the database, or bring it to the schema of this version
    Migrate(migrate::Arguments),
    /// Import jobs, and nodes out of service, from other systems' lists
    #[command(subcommand)]
    Import(import::Command),
    /// Teams: who pays
    #[command(subcommand)]
    Teams(catalogue::Command),
    /// Prices: what it costs
    #[command(subcommand)]
    Prices(catalogue::Command),
    /// Rules: who is charged for which job
    #[command(subcommand)]
    Rules(RulesCommand),
    /// The inventory: which GPUs exist, for clusters without agents
    #[command(subcommand)]
    Inventory(catalogue::Command),
    /// What existed, was held, was idle or out of service; and where lists and inventory contradict each other
    Capacity(capacity::Arguments),
    /// Whether held, idle, stranded, unobserved and out of service sum to what existed, by pool, node and day
    Reconcile(reconcile::Arguments),
    /// What an open month comes to so far, by team, as it was worked out last
    Cost(cost::Arguments),
    /// Work out everything of open months again, and compare it with what is held
    Recompute(recompute::Arguments),
    /// What came of months after they were closed and where it is charged; and records that cannot count as they are
    Late(late::Arguments),
    /// Close a month: freeze its charges and issue its statements
    Close(close::Arguments),
    /// Statements: list, show, render
    #[command(subcommand)]
    Statement(statement::Command),
    /// GPU-time held in any interval, summed by account, user, SKU or other facts
    Usage(usage::Arguments),
    /// What is known of a job: its attempts, the tasks of its array, the parts of a heterogeneous job
    Job(job::Arguments),
    /// Take reports of collectors, sum usage as it comes
    Serve(serve::Arguments),
    /// Tokens by which collectors are known
    #[command(subcommand)]
    Token(token::Command),
    /// Collectors as they were heard last: version, clock, and how much of today each accounts for
    Agents(agents::Arguments),
    /// Nodes on which collectors report
    #[command(subcommand)]
    Node(retire_node::Command),
    /// Settings
    #[command(subcommand)]
    Config(config::Command),
    /// Show a real month: import a published trace, close its months, serve the statements on this machine
    Demo(demo::Arguments),
    /// Look whether all is well with the books
    Doctor(doctor::Arguments),
}

#[derive(Debug, Subcommand)]
enum RulesCommand {
    #[command(flatten)]
    Catalogue(catalogue::Command),
    /// Say which rules decide about a job, and why the others do not
    Test(rules_test::Arguments),
}

/// Everything a command needs.
struct Context {
    config: Config,
}

impl Context {
    /// Opens the books.
    fn db(&self) -> Result<Db, AppError> {
        workflows::migrate::open(&self.config.database, &self.config.calendar)
    }
}

/// Runs the command that the process was started with.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are asked for; anything else is a wrong use, with exit code 2.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    match run(arguments) {
        Ok(outcome) => ExitCode::from(outcome.exit_code()),
        Err(error) => {
            tell(&format!("gpuledger: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<Outcome, AppError> {
    let config = Config::load(arguments.config.as_deref(), |name| std::env::var(name).ok())?;
    start_log(&config);
    let context = Context { config };
    tracing::info!(database = %context.config.database.without_secret(), "start");
    match arguments.command {
        Command::Migrate(arguments) => migrate::run(&context, &arguments),
        Command::Import(command) => import::run(&context, &command),
        Command::Teams(command) => catalogue::run(&context, CatalogueKind::Teams, &command),
        Command::Prices(command) => catalogue::run(&context, CatalogueKind::Prices, &command),
        Command::Rules(RulesCommand::Catalogue(command)) => catalogue::run(&context, CatalogueKind::Rules, &command),
        Command::Rules(RulesCommand::Test(arguments)) => rules_test::run(&context, &arguments),
        Command::Inventory(command) => catalogue::run(&context, CatalogueKind::Inventory, &command),
        Command::Capacity(arguments) => capacity::run(&context, &arguments),
        Command::Reconcile(arguments) => reconcile::run(&context, &arguments),
        Command::Cost(arguments) => cost::run(&context, &arguments),
        Command::Recompute(arguments) => recompute::run(&context, &arguments),
        Command::Agents(arguments) => agents::run(&context, &arguments),
        Command::Late(arguments) => late::run(&context, &arguments),
        Command::Close(arguments) => close::run(&context, &arguments),
        Command::Statement(command) => statement::run(&context, &command),
        Command::Usage(arguments) => usage::run(&context, &arguments),
        Command::Job(arguments) => job::run(&context, &arguments),
        Command::Serve(arguments) => serve::run(&context, &arguments),
        Command::Token(command) => token::run(&context, &command),
        Command::Node(command) => retire_node::run(&context, &command),
        Command::Config(command) => config::run(&context, &command),
        Command::Demo(arguments) => demo::run(&context, &arguments),
        Command::Doctor(arguments) => doctor::run(&context, &arguments),
    }
}

/// Log lines go to standard error, so that output stays clean; as text for people or JSON for machines.
fn start_log(config: &Config) {
    let filter = tracing_subscriber::EnvFilter::new(&config.log);
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = if config.log_json { builder.json().try_init() } else { builder.try_init() };
    // Another log is there already only where commands run inside a test.
    drop(started);
}

/// The operating system's name for whoever runs this, for the audit log.
fn actor() -> String {
    let uid = nix::unistd::getuid();
    let name = nix::unistd::User::from_uid(uid).ok().flatten().map(|user| user.name);
    name.unwrap_or_else(|| format!("uid {uid}"))
}

/// Prints to standard output. A reader that went away early, such as `head`, is not an error.
fn print(text: &str) -> Result<(), AppError> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(AppError::file("standard output", error)),
        _ => Ok(()),
    }
}

/// Tells the person who watches, beside the output.
fn tell(text: &str) {
    // There is nobody to tell where standard error is closed.
    // What stands in a file must not speak to the terminal.
    let shown: String = text.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect();
    let _ = writeln!(std::io::stderr(), "{shown}");
}
