//! Jobs from a list become allocations and segments, each once, however often the list or parts of it come.
//!
//! Two passes over the file. The first reads every line and finds rows that repeat; the second takes some thousands of
//! lines at a time, each such chunk one transaction with the marks for its roll-up, so that a crash between two loses
//! nothing and the same command goes on. A strict import is one transaction as a whole: all of the list, or nothing.

mod interned;
mod store;

use gpuledger_db::import_log::{self, ImportCounts};
use gpuledger_db::{Db, audit, catalogue};
use gpuledger_domain::calendar::BillingCalendar;
use gpuledger_domain::time::Instant;

use super::roll_up;
use crate::diagnostics::Diagnostics;
use crate::error::AppError;
use crate::files::SourceText;
use crate::files::mapping::Mapping;
use crate::import::job_list::{JobIdentity, JobListReader, JobRecord, RefusedLine};
use crate::import::{InputFile, Ordinals, RepeatFinder};
use store::Import;

/// What is asked of an import.
#[derive(Clone, Copy, Debug)]
pub struct ImportJobs<'a> {
    /// Which column is what.
    pub mapping: &'a Mapping,
    /// Whether one bad line refuses the whole list.
    pub strict: bool,
    /// Whether a line counts also where it tells an earlier end than is known.
    pub restate: bool,
    /// When the list was written: jobs that still ran then held their GPUs until then.
    pub as_of: Option<Instant>,
    /// Who imports.
    pub actor: &'a str,
}

/// Who watches an import.
pub trait ImportWatcher {
    /// So many packed bytes were read, of all those to read in both passes.
    fn progress(&mut self, bytes: u64);
    /// A line was refused.
    fn refused(&mut self, line: &RefusedLine);
}

/// What came of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Imported {
    /// What came of the lines.
    pub counts: ImportCounts,
    /// Facts that were too long and were cut.
    pub cut_facts: u64,
    /// Of the known lines, those that tell an earlier end than is known, or what was superseded once.
    pub outdated: u64,
}

/// Lines of one transaction.
const CHUNK_LINES: usize = 8_192;
/// Past this many mistakes people mend the first before they read on.
const DIAGNOSTICS_MAX: usize = 1_000;

/// Imports a list of jobs.
///
/// # Errors
/// The file's or the database's; with `strict`, every bad line. Without `strict`, chunks done before stay done, and
/// the same command goes on from there.
pub fn import_jobs(
    db: &mut Db,
    calendar: &BillingCalendar,
    file: &InputFile,
    ask: &ImportJobs<'_>,
    watcher: &mut impl ImportWatcher,
    clock: impl Fn() -> Instant,
) -> Result<Imported, AppError> {
    let now = clock();
    if let Some(as_of) = ask.as_of.filter(|as_of| *as_of > now) {
        return Err(AppError::Refused(format!("the list cannot be as of {as_of}, which is still to come")));
    }
    let ordinals = first_pass(file, ask, watcher)?;
    let imported = if ask.strict {
        db.transaction(|db| {
            // So long a transaction marks days while catalogues could change: it waits its turn with them.
            catalogue::hold(db, catalogue::Hold::ToUse)?;
            second_pass(db, calendar, file, ask, watcher, ordinals, now)
        })?
    } else {
        second_pass(db, calendar, file, ask, watcher, ordinals, now)?
    };
    let ImportCounts { lines, added, known, revised, refused, .. } = imported.counts;
    tracing::info!(file = %file.name, lines, added, known, revised, refused, "imported");
    let days = roll_up::roll_up(db, calendar, None)?;
    tracing::info!(days, "usage summed");
    Ok(imported)
}

/// Reads the whole list without using it.
fn first_pass(file: &InputFile, ask: &ImportJobs<'_>, watcher: &mut impl ImportWatcher) -> Result<Ordinals, AppError> {
    let temporary = |error| AppError::file("temporary file", error);
    let mut repeats = RepeatFinder::new().map_err(temporary)?;
    let mut wrong = Diagnostics::default();
    let mut reader = JobListReader::open(file, ask.mapping)?;
    let mut lines = 0usize;
    while let Some(line) = reader.next() {
        match line {
            Ok(JobRecord { identity: JobIdentity::Row(hash), .. }) => repeats.take(&hash).map_err(temporary)?,
            Err(refused) if ask.strict => note(&mut wrong, file, &refused),
            Ok(_) | Err(_) => {}
        }
        lines += 1;
        if lines.is_multiple_of(CHUNK_LINES) {
            watcher.progress(reader.bytes_read());
        }
    }
    wrong.into_result()?;
    repeats.finish().map_err(temporary)
}

fn note(wrong: &mut Diagnostics, file: &InputFile, refused: &RefusedLine) {
    if wrong.count() < DIAGNOSTICS_MAX {
        let line = usize::try_from(refused.line).unwrap_or(0);
        wrong.push(SourceText::new(&file.name, "").at_line(line, &refused.field, refused.reason.clone()));
    }
}

/// Reads the list and stores it.
fn second_pass(
    db: &mut Db,
    calendar: &BillingCalendar,
    file: &InputFile,
    ask: &ImportJobs<'_>,
    watcher: &mut impl ImportWatcher,
    ordinals: Ordinals,
    now: Instant,
) -> Result<Imported, AppError> {
    let import_id = db.transaction(|db| import_log::begin(db, &file.name, ask.actor, now))?;
    let mut import = Import::new(calendar, ask, import_id, ordinals, now);
    let mut counts = ImportCounts::default();
    let mut reader = JobListReader::open(file, ask.mapping)?;
    let mut chunk = Vec::with_capacity(CHUNK_LINES);
    let mut wrong = Diagnostics::default();
    let mut refused: Vec<RefusedLine> = Vec::new();
    let mut outdated = 0;
    let mut end = false;
    while !end {
        match reader.next() {
            Some(Ok(record)) => chunk.push(record),
            Some(Err(line)) => refused.push(line),
            None => end = true,
        }
        if chunk.len() + refused.len() < CHUNK_LINES && !end {
            continue;
        }
        counts.lines += i64::try_from(chunk.len() + refused.len()).unwrap_or(0);
        let decided = import.take_chunk(db, &chunk)?;
        counts.added += decided.added;
        counts.known += decided.known;
        counts.revised += decided.revised;
        counts.without_gpu_time += decided.without_gpu_time;
        counts.running += decided.running;
        outdated += decided.outdated;
        refused.extend(decided.refused);
        counts.refused += i64::try_from(refused.len()).unwrap_or(0);
        refused.sort_by_key(|line| line.line);
        refused.iter().for_each(|line| told(ask, &mut wrong, file, watcher, line));
        refused.clear();
        chunk.clear();
        watcher.progress(file.size_bytes + reader.bytes_read());
    }
    wrong.into_result()?;
    db.transaction(|db| finish(db, file, ask, import_id, &counts, now))?;
    Ok(Imported { counts, cut_facts: reader.cut_facts(), outdated })
}

/// A strict import keeps refused lines for its error; any other tells them as they come.
fn told(
    ask: &ImportJobs<'_>,
    wrong: &mut Diagnostics,
    file: &InputFile,
    watcher: &mut impl ImportWatcher,
    line: &RefusedLine,
) {
    if ask.strict {
        note(wrong, file, line);
    } else {
        watcher.refused(line);
    }
}

fn finish(
    db: &mut Db,
    file: &InputFile,
    ask: &ImportJobs<'_>,
    import_id: i64,
    counts: &ImportCounts,
    at: Instant,
) -> Result<(), AppError> {
    import_log::finish(db, import_id, counts, at)?;
    let after = format!(
        "{} lines: {} new, {} known, {} revised, {} refused",
        counts.lines, counts.added, counts.known, counts.revised, counts.refused
    );
    let (action, object) = ("import jobs", file.name.as_str());
    Ok(audit::append(db, &audit::Change { at, actor: ask.actor, action, object, before: "", after: &after })?)
}
