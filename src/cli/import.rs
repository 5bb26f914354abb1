//! `gpuledger import`

use std::io::IsTerminal;
use std::path::PathBuf;

use gpuledger_domain::ids::{ClusterName, LENGTH_BYTES_MAX, PoolName};
use gpuledger_domain::inventory::Inventory;
use gpuledger_domain::time::Instant;
use indicatif::{ProgressBar, ProgressStyle};

use super::{Context, actor, print, tell};
use crate::error::{AppError, Outcome};
use crate::files::{SourceText, mapping};
use crate::import::InputFile;
use crate::import::job_record::{JobList, RefusedLine};
use crate::import::sacct::{SacctList, SacctOptions};
use crate::workflows::import_jobs::{ImportJobs, ImportWatcher, Imported, import_jobs};
use crate::workflows::inventory;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Import a list of jobs as CSV, plain or packed by gzip or zstd
    Jobs(JobsArguments),
    /// Import Slurm's accounting: `sacct` as text or JSON, answers of slurmrestd; plain or packed by gzip or zstd
    Sacct(SacctArguments),
    /// Import a list of nodes that were out of service, as `sacctmgr show event -P` writes it
    Events(super::import_events::Arguments),
}

#[derive(Debug, clap::Args)]
struct Common {
    /// Refuse the whole list if one line is bad
    #[arg(long)]
    strict: bool,
    /// Let a line count also where it tells an earlier end of a job than is known
    #[arg(long)]
    restate: bool,
    /// When the list was written, RFC 3339: jobs that still ran are charged until then, and their later end replaces it
    #[arg(long, value_name = "INSTANT")]
    as_of: Option<String>,
    /// Leave the summing of usage to whoever looks at it next: for many lists one after the other
    #[arg(long)]
    no_roll_up: bool,
    /// The list; - is standard input
    file: String,
}

#[derive(Debug, clap::Args)]
pub(super) struct JobsArguments {
    /// Says which column is what, in which units and zone
    #[arg(long, value_name = "FILE")]
    mapping: PathBuf,
    #[command(flatten)]
    common: Common,
}

/// What is said of a list of Slurm's accounting besides what it says itself.
#[derive(Debug, clap::Args)]
pub(super) struct SacctForm {
    /// The cluster, where the list does not name it
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// The time zone in which times without an offset were written, such as UTC or Europe/Berlin
    #[arg(long, value_name = "ZONE")]
    zone: Option<String>,
    /// What stands between columns, where the heading does not show it; \t and \x1f are understood
    #[arg(long, value_name = "TEXT")]
    delimiter: Option<String>,
    /// The fields of a list without a heading, by comma and in order, as `sacct --format` takes them
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    fields: Option<Vec<String>>,
}

#[derive(Debug, clap::Args)]
pub(super) struct SacctArguments {
    #[command(flatten)]
    form: SacctForm,
    /// The pool of jobs of which the inventory does not know one
    #[arg(long, value_name = "NAME")]
    pool: Option<String>,
    #[command(flatten)]
    common: Common,
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

impl SacctForm {
    /// As the reader takes it.
    pub(super) fn options(&self) -> Result<SacctOptions, AppError> {
        let cluster = self.cluster.as_deref().map(ClusterName::parse).transpose();
        let cluster = cluster.map_err(|message| AppError::Refused(format!("--cluster: {message}")))?;
        let delimiter = self.delimiter.as_deref().map(|text| text.replace("\\t", "\t").replace("\\x1f", "\u{1f}"));
        if delimiter.as_deref() == Some("") {
            return Err(AppError::Refused("--delimiter is empty; give what stands between columns".into()));
        }
        let fields = self.fields.clone();
        Ok(SacctOptions { cluster, zone: self.zone.clone(), delimiter, fields })
    }
}

pub(super) fn run(context: &Context, command: &Command) -> Result<Outcome, AppError> {
    match command {
        Command::Events(arguments) => super::import_events::run(context, arguments),
        Command::Jobs(arguments) => {
            let mapping = mapping::parse(&SourceText::read(&arguments.mapping)?)?;
            let file = InputFile::open(&arguments.common.file)?;
            let nothing = Inventory::default();
            import(
                context,
                &arguments.common,
                &file,
                &Listed { list: &mapping, inventory: &nothing, pool: None, action: "import jobs" },
            )
        }
        Command::Sacct(arguments) => {
            let pool = arguments.pool.as_deref().map(PoolName::parse).transpose();
            let pool = pool.map_err(|message| AppError::Refused(format!("--pool: {message}")))?;
            let file = InputFile::open(&arguments.common.file)?;
            let list = SacctList::of_file(&file, arguments.form.options()?)?;
            let inventory = inventory::in_force(&mut context.db()?)?;
            import(
                context,
                &arguments.common,
                &file,
                &Listed { list: &list, inventory: &inventory, pool: pool.as_ref(), action: "import sacct" },
            )
        }
    }
}

/// A list and what places its jobs.
struct Listed<'a> {
    list: &'a dyn JobList,
    inventory: &'a Inventory,
    pool: Option<&'a PoolName>,
    action: &'a str,
}

fn import(context: &Context, common: &Common, file: &InputFile, listed: &Listed<'_>) -> Result<Outcome, AppError> {
    let mut db = context.db()?;
    let passes = if common.strict || listed.list.identifies_by_content() { 2 } else { 1 };
    let bar = std::io::stderr().is_terminal().then(|| progress_bar(file.size_bytes * passes));
    let mut watcher = Watcher { bar, file: file.name.clone() };
    let as_of = common.as_of.as_deref().map(Instant::parse).transpose();
    let as_of = as_of.map_err(|message| AppError::Refused(format!("--as-of: {message}")))?;
    let ask = ImportJobs {
        list: listed.list,
        inventory: listed.inventory,
        pool: listed.pool,
        strict: common.strict,
        restate: common.restate,
        as_of,
        roll_up: !common.no_roll_up,
        action: listed.action,
        actor: &actor(),
    };
    let imported = import_jobs(&mut db, &context.config.calendar, file, &ask, &mut watcher, crate::clock::now)?;
    if let Some(bar) = watcher.bar {
        bar.finish_and_clear();
    }
    print(&summary(file, &imported))?;
    Ok(if imported.counts.refused > 0 { Outcome::DoneWithRefusals } else { Outcome::Done })
}

fn summary(file: &InputFile, imported: &Imported) -> String {
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
    if imported.kept > 0 {
        text += &format!(
            "{} of the revised lines tell other of closed months than was charged; there, it stays as it is.\n",
            imported.kept
        );
    }
    if imported.cut_facts > 0 {
        text += &format!("{} facts had more than {LENGTH_BYTES_MAX} bytes and were cut.\n", imported.cut_facts);
    }
    for notice in &imported.notices {
        text += &format!("{notice}\n");
    }
    text
}

fn progress_bar(bytes: u64) -> ProgressBar {
    let bar = ProgressBar::new(bytes);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {percent} %  {elapsed_precise}, {eta} left") {
        bar.set_style(style);
    }
    bar
}
