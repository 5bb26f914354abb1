//! `gpuledger import`

use std::io::IsTerminal;
use std::path::PathBuf;

use gpuledger_domain::ids::LENGTH_BYTES_MAX;
use gpuledger_domain::time::Instant;
use indicatif::{ProgressBar, ProgressStyle};

use super::{Context, actor, print, tell};
use crate::error::{AppError, Outcome};
use crate::files::{SourceText, mapping};
use crate::import::InputFile;
use crate::import::job_list::RefusedLine;
use crate::workflows::import_jobs::{ImportJobs, ImportWatcher, import_jobs};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Import a list of jobs as CSV, plain or packed by gzip or zstd
    Jobs(Arguments),
    /// Import a list of nodes that were out of service, as `sacctmgr show event -P` writes it
    Events(super::import_events::Arguments),
}

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Says which column is what, in which units and zone
    #[arg(long, value_name = "FILE")]
    mapping: PathBuf,
    /// Refuse the whole list if one line is bad
    #[arg(long)]
    strict: bool,
    /// Let a line count also where it tells an earlier end of a job than is known
    #[arg(long)]
    restate: bool,
    /// When the list was written, RFC 3339: jobs that still ran are charged until then, and their later end replaces it
    #[arg(long, value_name = "INSTANT")]
    as_of: Option<String>,
    /// The list; - is standard input
    file: String,
}

/// Shows progress on a terminal, and refused lines everywhere.
struct Watcher {
    bar: Option<ProgressBar>,
    file: String,
}

impl ImportWatcher for Watcher {
    fn progress(&mut self, bytes: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(bytes);
        }
    }

    fn refused(&mut self, line: &RefusedLine) {
        let field = if line.field.is_empty() { String::new() } else { format!("{}: ", line.field) };
        let text = format!("{}:{}: {field}{}", self.file, line.line, line.reason);
        match &self.bar {
            Some(bar) => bar.suspend(|| tell(&text)),
            None => tell(&text),
        }
    }
}

pub(super) fn run(context: &Context, command: &Command) -> Result<Outcome, AppError> {
    let arguments = match command {
        Command::Jobs(arguments) => arguments,
        Command::Events(arguments) => return super::import_events::run(context, arguments),
    };
    let mapping = mapping::parse(&SourceText::read(&arguments.mapping)?)?;
    let file = InputFile::open(&arguments.file)?;
    let mut db = context.db()?;
    let bar = std::io::stderr().is_terminal().then(|| progress_bar(file.size_bytes * 2));
    let mut watcher = Watcher { bar, file: file.name.clone() };
    let as_of = arguments.as_of.as_deref().map(Instant::parse).transpose();
    let as_of = as_of.map_err(|message| AppError::Refused(format!("--as-of: {message}")))?;
    let ask =
        ImportJobs { mapping: &mapping, strict: arguments.strict, restate: arguments.restate, as_of, actor: &actor() };
    let imported = import_jobs(&mut db, &context.config.calendar, &file, &ask, &mut watcher, crate::clock::now)?;
    if let Some(bar) = watcher.bar {
        bar.finish_and_clear();
    }
    let counts = imported.counts;
    let mut text = format!(
        "{}: {} lines: {} new, {} known, {} revised, {} without GPU-time, {} still running, {} refused\n",
        file.name,
        counts.lines,
        counts.added,
        counts.known,
        counts.revised,
        counts.without_gpu_time,
        counts.running,
        counts.refused
    );
    if counts.running > 0 {
        text += "Jobs that still run are charged when a later list tells their end, or up to --as-of INSTANT. Import them before their month is closed.\n";
    }
    if imported.outdated > 0 {
        text += &format!(
            "{} of the known lines tell an earlier end than is known, or what was superseded once, and changed nothing; if they are right, give --restate.\n",
            imported.outdated
        );
    }
    if imported.cut_facts > 0 {
        text += &format!("{} facts had more than {LENGTH_BYTES_MAX} bytes and were cut.\n", imported.cut_facts);
    }
    print(&text)?;
    Ok(if counts.refused > 0 { Outcome::DoneWithRefusals } else { Outcome::Done })
}

fn progress_bar(bytes: u64) -> ProgressBar {
    let bar = ProgressBar::new(bytes);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {percent} %  {elapsed_precise}, {eta} left") {
        bar.set_style(style);
    }
    bar
}
