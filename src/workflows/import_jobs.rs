//! Jobs from a list become allocations and segments, each once, however often the list or parts of it come.
//!
//! One thread reads lines and makes them ready, another decides about some thousands of them at a time and stores them.
//! Each such chunk is one transaction with the marks for its roll-up, so that a crash between two loses nothing and the
//! same command goes on. A strict import is one transaction as a whole: all of the list, or nothing. A list whose rows
//! have no ids is read once before, to find rows that repeat.

mod decide;
mod fresh;
mod interned;
mod kept;
mod places;
mod store;
mod told;
mod watched;

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use gpuledger_db::import_log::{self, ImportCounts};
use gpuledger_db::{Db, audit, catalogue};
use gpuledger_domain::calendar::BillingCalendar;
use gpuledger_domain::ids::PoolName;
use gpuledger_domain::inventory::Inventory;
use gpuledger_domain::time::Instant;

use super::roll_up;
use crate::diagnostics::Diagnostics;
use crate::error::AppError;
use crate::files::SourceText;
use crate::import::job_record::{JobIdentity, JobList, JobRecord, RefusedLine};
use crate::import::{InputFile, Ordinals, RepeatFinder};
use places::Places;
use store::Import;
use told::{Prepared, Preparer, Told};

/// What is asked of an import.
#[derive(Clone, Copy)]
#[allow(missing_debug_implementations)]
pub struct ImportJobs<'a> {
    /// How the list is read.
    pub list: &'a dyn JobList,
    /// Which node is in which pool, for lists that do not say it.
    pub inventory: &'a Inventory,
    /// The pool of jobs of which neither the list nor the inventory says one.
    pub pool: Option<&'a PoolName>,
    /// Whether one bad line refuses the whole list.
    pub strict: bool,
    /// Whether a line counts also where it tells an earlier end than is known.
    pub restate: bool,
    /// When the list was written: jobs that still ran then held their GPUs until then.
    pub as_of: Option<Instant>,
    /// Whether usage is summed at once; else whoever looks at it next does it.
    pub roll_up: bool,
    /// What the audit log calls it.
    pub action: &'a str,
    /// Who imports.
    pub actor: &'a str,
}

/// Who watches an import.
pub trait ImportWatcher {
    /// So many packed bytes were read, of all those to read in all passes.
    fn progress(&mut self, bytes: u64);
    /// A line was refused.
    fn refused(&mut self, line: &RefusedLine);
}

/// What came of an import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// What came of the lines.
    pub counts: ImportCounts,
    /// Facts that were too long and were cut.
    pub cut_facts: u64,
    /// Of the known lines, those that tell an earlier end than is known, or what was superseded once.
    pub outdated: u64,
    /// Of the revised lines, those that tell other of closed months than stays.
    pub kept: u64,
    /// What to know of the list as a whole.
    pub notices: Vec<String>,
}

/// Lines of one transaction.
const CHUNK_LINES: usize = 8_192;
/// Lines read before a chunk is handed on although few of them tell anything.
const CHUNK_LINES_READ: i64 = 65_536;
/// Chunks that may wait for the database.
const CHUNKS_AHEAD: usize = 3;
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
    let twice = ask.strict || ask.list.identifies_by_content();
    let ordinals = if twice { first_pass(file, ask, watcher)? } else { Ordinals::default() };
    let bytes_before = if twice { file.size_bytes } else { 0 };
    let mut preparer = Preparer::new(Places { inventory: ask.inventory, pool: ask.pool }, ordinals, now);
    (preparer.restate, preparer.as_of) = (ask.restate, ask.as_of);
    let store = |db: &mut Db| second_pass(db, calendar, file, ask, watcher, preparer, bytes_before);
    let imported = if ask.strict {
        let mut store = Some(store);
        db.transaction(|db| {
            // So long a transaction marks days while catalogues could change: it waits its turn with them.
            catalogue::hold(db, catalogue::Hold::ToUse)?;
            let store = store.take().ok_or_else(|| AppError::Changed("the database asked twice; try again".into()))?;
            store(db)
        })?
    } else {
        store(db)?
    };
    let ImportCounts { lines, added, known, revised, refused, .. } = imported.counts;
    tracing::info!(file = %file.name, lines, added, known, revised, refused, "imported");
    if ask.roll_up {
        let days = roll_up::roll_up(db, calendar, None)?;
        tracing::info!(days, "usage summed");
    }
    Ok(imported)
}

/// Reads the whole list without using it.
fn first_pass(file: &InputFile, ask: &ImportJobs<'_>, watcher: &mut impl ImportWatcher) -> Result<Ordinals, AppError> {
    let temporary = |error| AppError::file("temporary file", error);
    let mut repeats = RepeatFinder::new().map_err(temporary)?;
    let mut wrong = Diagnostics::default();
    let mut reader = ask.list.open(file)?;
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

/// Lines that were read and made ready.
#[derive(Default)]
struct Batch {
    told: Vec<Told>,
    refused: Vec<RefusedLine>,
    lines: i64,
    running: i64,
    without_gpu_time: i64,
    bytes_read: u64,
    /// Of the list as a whole, in its last batch.
    cut_facts: u64,
    notices: Vec<String>,
}

impl Batch {
    fn is_full(&self) -> bool {
        self.told.len() + self.refused.len() >= CHUNK_LINES || self.lines >= CHUNK_LINES_READ
    }

    fn take(&mut self, prepared: Prepared) {
        match prepared {
            Prepared::Told(told) => self.told.push(*told),
            Prepared::Running => self.running += 1,
            Prepared::NoGpuTime => self.without_gpu_time += 1,
            Prepared::Refused(line) => self.refused.push(line),
        }
    }
}

/// Reads the list batch by batch, until nobody takes them any more.
fn read_batches(
    file: &InputFile,
    list: &dyn JobList,
    mut preparer: Preparer<'_>,
    batches: &SyncSender<Batch>,
) -> Result<(), AppError> {
    let mut reader = list.open(file)?;
    let mut batch = Batch::default();
    while let Some(line) = reader.next() {
        batch.lines += 1;
        match line {
            Ok(record) => batch.take(preparer.prepare(record)?),
            Err(line) => batch.refused.push(line),
        }
        if batch.is_full() {
            batch.bytes_read = reader.bytes_read();
            if batches.send(std::mem::take(&mut batch)).is_err() {
                return Ok(());
            }
        }
    }
    (batch.bytes_read, batch.cut_facts, batch.notices) = (reader.bytes_read(), reader.cut_facts(), reader.notices());
    // Nobody listens where the other side met an error, which it tells.
    let _ = batches.send(batch);
    Ok(())
}

/// Reads the list and stores it.
fn second_pass(
    db: &mut Db,
    calendar: &BillingCalendar,
    file: &InputFile,
    ask: &ImportJobs<'_>,
    watcher: &mut impl ImportWatcher,
    preparer: Preparer<'_>,
    bytes_before: u64,
) -> Result<Imported, AppError> {
    let now = preparer.now;
    let import_id = db.transaction(|db| import_log::begin(db, &file.name, ask.actor, now))?;
    let import = Import::new(calendar, ask, import_id);
    let imported = std::thread::scope(|scope| {
        let (sender, batches) = sync_channel(CHUNKS_AHEAD);
        let list = ask.list;
        let reading = scope.spawn(move || read_batches(file, list, preparer, &sender));
        let stored = store_batches(db, file, ask, watcher, import, batches, bytes_before);
        let read = reading.join().unwrap_or_else(|_| Err(AppError::Refused("reading the list failed".into())));
        // What stopped the storing is the cause; the reader then only ran out of takers.
        let stored = stored?;
        read.map(|()| stored)
    })?;
    db.transaction(|db| finish(db, (ask.actor, ask.action, &file.name), import_id, &imported.counts, now))?;
    Ok(imported)
}

fn store_batches(
    db: &mut Db,
    file: &InputFile,
    ask: &ImportJobs<'_>,
    watcher: &mut impl ImportWatcher,
    mut import: Import<'_>,
    batches: Receiver<Batch>,
    bytes_before: u64,
) -> Result<Imported, AppError> {
    let mut imported =
        Imported { counts: ImportCounts::default(), cut_facts: 0, outdated: 0, kept: 0, notices: Vec::new() };
    let mut wrong = Diagnostics::default();
    for batch in batches {
        let decided = import.take_chunk(db, &batch.told)?;
        let counts = &mut imported.counts;
        counts.lines += batch.lines;
        counts.added += decided.added;
        counts.known += decided.known;
        counts.revised += decided.revised;
        counts.without_gpu_time += decided.without_gpu_time + batch.without_gpu_time;
        counts.running += batch.running;
        let mut refused = batch.refused;
        refused.extend(decided.refused);
        counts.refused += i64::try_from(refused.len()).unwrap_or(0);
        refused.sort_by_key(|line| line.line);
        refused.iter().for_each(|line| told(ask, &mut wrong, file, watcher, line));
        imported.outdated += decided.outdated;
        imported.kept += decided.kept;
        imported.cut_facts += batch.cut_facts;
        imported.notices.extend(batch.notices);
        watcher.progress(bytes_before + batch.bytes_read);
    }
    wrong.into_result()?;
    Ok(imported)
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

/// Notes what came of an import, and that it ended: `action` is which, `actor` who, `object` what.
pub(super) fn finish(
    db: &mut Db,
    (actor, action, object): (&str, &str, &str),
    import_id: i64,
    counts: &ImportCounts,
    at: Instant,
) -> Result<(), AppError> {
    import_log::finish(db, import_id, counts, at)?;
    let after = format!(
        "{} lines: {} new, {} known, {} revised, {} refused",
        counts.lines, counts.added, counts.known, counts.revised, counts.refused
    );
    Ok(audit::append(db, &audit::Change { at, actor, action, object, before: "", after: &after })?)
}
