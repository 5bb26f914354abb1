//! Jobs from a list become allocations and segments, each once, however often the list or parts of it come.
//!
//! Two passes over the file. The first reads every line, so that `strict` can refuse the whole before anything is
//! written, and finds rows that repeat. The second takes some thousands of lines at a time, each such chunk one
//! transaction with the marks for its roll-up; a crash between two loses nothing, and the same command goes on.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use gpuledger_db::allocation::{self, NewTelling, Telling, TellingDetails};
use gpuledger_db::dimensions::{self, ClusterId, NodeKind};
use gpuledger_db::import_log::{self, ImportCounts};
use gpuledger_db::usage::{self, Mark};
use gpuledger_db::{Db, audit, period, segment};
use gpuledger_domain::calendar::{BillingCalendar, Period};
use gpuledger_domain::ids::{FactSetId, JobId, NodeId, SkuId};
use gpuledger_domain::metering::{Allocation, Placement, Segment};
use gpuledger_domain::pricing::{Sku, SkuSlices};
use gpuledger_domain::rules::JobFacts;
use gpuledger_domain::time::{Instant, Interval};
use sha2::{Digest, Sha256};

use super::{job_facts, roll_up};
use crate::error::AppError;
use crate::files::Diagnostics;
use crate::files::mapping::Mapping;
use crate::import::job_list::{JobIdentity, JobListReader, JobRecord, RefusedLine};
use crate::import::{InputFile, Ordinals, RepeatFinder};

/// What is asked of an import.
#[derive(Clone, Copy, Debug)]
pub struct ImportJobs<'a> {
    /// Which column is what.
    pub mapping: &'a Mapping,
    /// Whether one bad line refuses the whole list.
    pub strict: bool,
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

/// Lines of one transaction.
const CHUNK_LINES: usize = 8_192;
/// Most segments of one insert: they are sorted together, and held in memory.
const CHUNK_SEGMENTS: usize = 50_000;
/// Distinct sets of facts kept in memory.
const FACT_SETS_MAX: usize = 65_536;

/// Imports a list of jobs.
///
/// # Errors
/// The file's or the database's; with `strict`, every bad line. Chunks done before stay done, and the same command
/// goes on from there.
pub fn import_jobs(
    db: &mut Db,
    calendar: &BillingCalendar,
    file: &InputFile,
    ask: &ImportJobs<'_>,
    watcher: &mut impl ImportWatcher,
    clock: impl Fn() -> Instant,
) -> Result<ImportCounts, AppError> {
    let ordinals = first_pass(file, ask, watcher)?;
    let import_id = db.transaction(|db| import_log::begin(db, &file.name, ask.actor, clock()))?;
    let mut import = Import {
        calendar,
        ask,
        import_id,
        ordinals,
        counts: ImportCounts::default(),
        clusters: HashMap::new(),
        nodes: HashMap::new(),
        skus: HashMap::new(),
        fact_sets: HashMap::new(),
    };
    let mut reader = JobListReader::open(file, ask.mapping)?;
    let mut chunk = Vec::with_capacity(CHUNK_LINES);
    loop {
        let line = reader.next();
        let end = line.is_none();
        match line {
            Some(Ok(record)) => chunk.push(record),
            Some(Err(refused)) => import.refuse(&refused, watcher),
            None => {}
        }
        if chunk.len() == CHUNK_LINES || end {
            import.take_chunk(db, &chunk, watcher)?;
            chunk.clear();
            watcher.progress(file.size_bytes + reader.bytes_read());
        }
        if end {
            break;
        }
    }
    let counts = import.counts;
    roll_up::roll_up(db, calendar, None)?;
    db.transaction(|db| {
        let at = clock();
        import_log::finish(db, import_id, &counts, at)?;
        let after = format!(
            "{} lines: {} new, {} known, {} revised, {} refused",
            counts.lines, counts.added, counts.known, counts.revised, counts.refused
        );
        audit::append(
            db,
            &audit::Change {
                at,
                actor: ask.actor,
                action: "import jobs",
                object: &file.name,
                before: "",
                after: &after,
            },
        )
    })?;
    Ok(counts)
}

/// Reads the whole list without using it.
fn first_pass(file: &InputFile, ask: &ImportJobs<'_>, watcher: &mut impl ImportWatcher) -> Result<Ordinals, AppError> {
    let temporary = |error| AppError::file("temporary file", error);
    let mut repeats = RepeatFinder::new().map_err(temporary)?;
    let mut wrong = Diagnostics::default();
    let source = crate::files::SourceText::new(&file.name, "");
    let mut reader = JobListReader::open(file, ask.mapping)?;
    let mut lines = 0usize;
    while let Some(line) = reader.next() {
        match line {
            Ok(JobRecord { identity: JobIdentity::Row(hash), .. }) => repeats.take(&hash).map_err(temporary)?,
            Ok(_) => {}
            // Past this many, people mend the first before they read on.
            Err(refused) if ask.strict && wrong.count() < 1_000 => {
                wrong.push(source.at_line(usize::try_from(refused.line).unwrap_or(0), &refused.field, refused.reason));
            }
            Err(_) => {}
        }
        lines += 1;
        if lines.is_multiple_of(CHUNK_LINES) {
            watcher.progress(reader.bytes_read());
        }
    }
    wrong.into_result()?;
    repeats.finish().map_err(temporary)
}

/// An import under way: what it has met so far.
struct Import<'a> {
    calendar: &'a BillingCalendar,
    ask: &'a ImportJobs<'a>,
    import_id: i64,
    ordinals: Ordinals,
    counts: ImportCounts,
    clusters: HashMap<String, ClusterId>,
    nodes: HashMap<(ClusterId, String), NodeId>,
    skus: HashMap<String, SkuId>,
    fact_sets: HashMap<JobFacts, FactSetId>,
}

/// A record with its key and the hash of its content.
struct Keyed<'r> {
    record: &'r JobRecord,
    interval: Interval,
    key: String,
    sha256: Vec<u8>,
}

/// What a chunk's transaction decided, to be counted once it is committed.
#[derive(Default)]
struct Decided {
    added: i64,
    known: i64,
    revised: i64,
    refused: Vec<RefusedLine>,
}

impl Import<'_> {
    fn refuse(&mut self, line: &RefusedLine, watcher: &mut impl ImportWatcher) {
        self.counts.lines += 1;
        self.counts.refused += 1;
        watcher.refused(line);
    }

    fn take_chunk(
        &mut self,
        db: &mut Db,
        chunk: &[JobRecord],
        watcher: &mut impl ImportWatcher,
    ) -> Result<(), AppError> {
        let mut by_cluster: BTreeMap<String, Vec<Keyed<'_>>> = BTreeMap::new();
        for record in chunk {
            let Some(interval) = record.interval else {
                self.counts.without_gpu_time += 1;
                continue;
            };
            let key = self.key(record, interval);
            let keyed = Keyed { record, interval, key, sha256: content_hash(record, interval)? };
            by_cluster.entry(record.cluster.to_string()).or_default().push(keyed);
        }
        for keyed in by_cluster.values() {
            let decided = db.transaction(|db| self.store(db, keyed))?;
            self.counts.added += decided.added;
            self.counts.known += decided.known;
            self.counts.revised += decided.revised;
            for refused in &decided.refused {
                self.counts.refused += 1;
                watcher.refused(refused);
            }
            if let (true, Some(first)) = (self.ask.strict, decided.refused.first()) {
                return Err(AppError::Refused(format!(
                    "line {}: {}; lines before it are imported",
                    first.line, first.reason
                )));
            }
        }
        self.counts.lines += i64::try_from(chunk.len()).unwrap_or(0);
        Ok(())
    }

    /// What the source calls the attempt: its id and start, or its content and ordinal.
    fn key(&mut self, record: &JobRecord, interval: Interval) -> String {
        match &record.identity {
            JobIdentity::Id(id) => format!("{id}@{}", interval.start()),
            JobIdentity::Row(hash) => {
                let ordinal = self.ordinals.next(hash);
                let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
                format!("row-{hex}-{ordinal}")
            }
        }
    }

    /// Stores records of one cluster; whatever they need is interned in the same transaction.
    fn store(&mut self, db: &mut Db, keyed: &[Keyed<'_>]) -> Result<Decided, AppError> {
        allocation::lock_imports(db)?;
        let Some(cluster) = keyed.first().map(|keyed| keyed.record.cluster.clone()) else {
            return Ok(Decided::default());
        };
        let cluster = match self.clusters.get(cluster.as_str()) {
            Some(id) => *id,
            None => {
                let id = dimensions::intern_cluster(db, &cluster)?;
                self.check_row_identity(db, id, cluster.as_str())?;
                self.clusters.insert(cluster.to_string(), id);
                id
            }
        };
        let keys: Vec<&str> = keyed.iter().map(|keyed| keyed.key.as_str()).collect();
        let known = allocation::newest(db, cluster, &keys)?;
        let closed = self.closed_periods(db, keyed, &known)?;
        let mut decided = Decided::default();
        let mut fresh: BTreeMap<&str, (&Keyed<'_>, Option<&Telling>)> = BTreeMap::new();
        for keyed in keyed {
            let before = known.get(&keyed.key);
            match before {
                Some(telling) if telling.sha256 == keyed.sha256 || telling.interval.end() > keyed.interval.end() => {
                    decided.known += 1
                }
                _ => match closed.iter().find(|period| touches(period, keyed, before)) {
                    Some(period) => decided.refused.push(RefusedLine {
                        line: keyed.record.line,
                        field: String::new(),
                        reason: format!(
                            "the job holds GPUs in {}, which is closed; nothing of it was imported",
                            period.month
                        ),
                    }),
                    None => {
                        if let Some((twice, _)) = fresh.insert(&keyed.key, (keyed, before)) {
                            // The same attempt twice in one chunk: the later end stands, as between two imports.
                            if twice.interval.end() > keyed.interval.end() {
                                fresh.insert(&keyed.key, (twice, before));
                            }
                            decided.known += 1;
                        }
                    }
                },
            }
        }
        self.write(db, cluster, fresh.into_values().collect(), &mut decided)?;
        Ok(decided)
    }

    /// Rows without an id must always be told apart by the same columns, or all would be other jobs.
    fn check_row_identity(&self, db: &mut Db, cluster: ClusterId, name: &str) -> Result<(), AppError> {
        let Some(columns) = self.ask.mapping.row_identity() else { return Ok(()) };
        let held = allocation::row_identity(db, cluster, &columns)?;
        if held == columns {
            return Ok(());
        }
        Err(AppError::Refused(format!(
            "rows of cluster “{name}” have no job id and were told apart by the columns [{held}]; this mapping tells them apart by [{columns}], \
             so that every job would be charged a second time. Use the earlier mapping, or import under another cluster name"
        )))
    }

    /// The closed ones among the periods that these records touch; none of them closes before the transaction ends.
    fn closed_periods(
        &self,
        db: &mut Db,
        keyed: &[Keyed<'_>],
        known: &BTreeMap<String, Telling>,
    ) -> Result<Vec<Period>, AppError> {
        let mut touched: BTreeSet<Period> = BTreeSet::new();
        let intervals = keyed.iter().map(|keyed| keyed.interval).chain(known.values().map(|telling| telling.interval));
        for interval in intervals {
            let mut period = self.calendar.period_of(interval.start());
            while period.interval.start() < interval.end() && touched.insert(period) {
                period = self.calendar.period_of(period.interval.end());
            }
            // Months already met end the walk early; the rest of a long job must still be met.
            while period.interval.start() < interval.end() {
                touched.insert(period);
                period = self.calendar.period_of(period.interval.end());
            }
        }
        let touched: Vec<Period> = touched.into_iter().collect();
        let states = period::hold_open(db, &touched)?;
        Ok(states.into_iter().filter(|state| state.closing.is_some()).map(|state| state.period).collect())
    }

    fn write(
        &mut self,
        db: &mut Db,
        cluster: ClusterId,
        mut fresh: Vec<(&Keyed<'_>, Option<&Telling>)>,
        decided: &mut Decided,
    ) -> Result<(), AppError> {
        // In the order of time, so that numbers and segments go where the keys are.
        fresh.sort_by_key(|(keyed, _)| (keyed.interval, keyed.record.line));
        let new: Vec<&str> =
            fresh.iter().filter(|(_, before)| before.is_none()).map(|(keyed, _)| keyed.key.as_str()).collect();
        let mut new_ids = allocation::insert_jobs(db, cluster, &new)?.into_iter();
        let mut marks: BTreeSet<Mark> = BTreeSet::new();
        let mut tellings = Vec::with_capacity(fresh.len());
        let mut segments: Vec<Segment> = Vec::new();
        for (keyed, before) in fresh {
            let (job, revision) = match before {
                Some(telling) => (telling.job, telling.revision + 1),
                None => (new_ids.next().unwrap_or(JobId(0)), 1),
            };
            if let Some(telling) = before {
                segment::remove_superseded(db, telling.node, telling.job, telling.interval)?;
                self.mark_days(&mut marks, telling.node, telling.interval);
                decided.revised += 1;
            } else {
                decided.added += 1;
            }
            let allocation = self.allocation(db, cluster, keyed, job, revision)?;
            self.mark_days(&mut marks, allocation.node, allocation.interval);
            segments.extend(allocation.segments()?);
            tellings.push(NewTelling::new(&allocation, details(keyed, self.import_id)));
            if segments.len() >= CHUNK_SEGMENTS {
                insert_sorted(db, &mut segments)?;
            }
        }
        insert_sorted(db, &mut segments)?;
        allocation::insert_tellings(db, &tellings)?;
        usage::mark(db, &marks.into_iter().collect::<Vec<_>>())?;
        Ok(())
    }

    fn mark_days(&self, marks: &mut BTreeSet<Mark>, node: NodeId, interval: Interval) {
        let mut day = self.calendar.day_of(interval.start());
        while day.start() < interval.end() {
            marks.insert(Mark { day_start: day.start(), node });
            day = self.calendar.day_of(day.end());
        }
    }

    fn allocation(
        &mut self,
        db: &mut Db,
        cluster: ClusterId,
        keyed: &Keyed<'_>,
        job: JobId,
        revision: i32,
    ) -> Result<Allocation, AppError> {
        let record = keyed.record;
        let stand_in = (cluster, format!("pool:{}", record.pool));
        let node = match self.nodes.get(&stand_in) {
            Some(id) => *id,
            None => {
                let id = dimensions::intern_pool_stand_in(db, cluster, &record.pool)?;
                self.nodes.insert(stand_in, id);
                id
            }
        };
        let sku = match self.skus.get(record.sku.as_str()) {
            Some(id) => *id,
            None => {
                // What the source calls it; the price book says later what it means.
                let id = dimensions::intern_sku(db, &Sku { code: record.sku.clone(), slices: SkuSlices::FULL })?;
                self.skus.insert(record.sku.to_string(), id);
                id
            }
        };
        let facts = self.fact_set(db, &record.facts)?;
        let mut placements = Vec::with_capacity(record.placements.len());
        for (name, count) in record.placements.iter().filter(|(_, count)| *count > 0) {
            placements.push(Placement { on_node: self.on_node(db, cluster, name)?, count: *count });
        }
        Ok(Allocation { job, revision, node, sku, facts, interval: keyed.interval, placements })
    }

    fn on_node(&mut self, db: &mut Db, cluster: ClusterId, name: &str) -> Result<NodeId, AppError> {
        if name.is_empty() {
            return Ok(NodeId(0));
        }
        let key = (cluster, name.to_owned());
        match self.nodes.get(&key) {
            Some(id) => Ok(*id),
            None => {
                let id = dimensions::intern_node(db, cluster, name, NodeKind::Machine)?;
                self.nodes.insert(key, id);
                Ok(id)
            }
        }
    }

    fn fact_set(&mut self, db: &mut Db, facts: &JobFacts) -> Result<FactSetId, AppError> {
        if let Some(id) = self.fact_sets.get(facts) {
            return Ok(*id);
        }
        let (body, sha256) = job_facts::to_body(facts)?;
        let id = dimensions::intern_fact_set(db, &sha256, &body)?;
        if self.fact_sets.len() >= FACT_SETS_MAX {
            self.fact_sets.clear();
        }
        self.fact_sets.insert(facts.clone(), id);
        Ok(id)
    }
}

fn touches(period: &Period, keyed: &Keyed<'_>, before: Option<&Telling>) -> bool {
    let was = before.and_then(|telling| telling.interval.intersection(period.interval));
    was.or_else(|| keyed.interval.intersection(period.interval)).is_some()
}

fn insert_sorted(db: &mut Db, segments: &mut Vec<Segment>) -> Result<(), AppError> {
    segments.sort_unstable_by_key(|segment| segment.key);
    segment::insert(db, segments)?;
    segments.clear();
    Ok(())
}

fn placements_text(record: &JobRecord) -> String {
    let texts: Vec<String> = record.placements.iter().map(|(node, count)| format!("{node}={count}")).collect();
    texts.join(",")
}

fn details(keyed: &Keyed<'_>, import_id: i64) -> TellingDetails {
    TellingDetails {
        submit: keyed.record.submit,
        placements: placements_text(keyed.record),
        end_state: keyed.record.end_state.clone(),
        sha256: keyed.sha256.clone(),
        import_id,
    }
}

/// The SHA-256 of all that a line says of an attempt: the same content again changes nothing.
fn content_hash(record: &JobRecord, interval: Interval) -> Result<Vec<u8>, AppError> {
    let (facts, _) = job_facts::to_body(&record.facts)?;
    let submit = record.submit.map(Instant::micros);
    let mut hash = Sha256::new();
    for part in [
        facts.as_str(),
        record.sku.as_str(),
        &format!("{interval} {submit:?}"),
        &record.end_state,
        &placements_text(record),
    ] {
        hash.update(part.len().to_be_bytes());
        hash.update(part.as_bytes());
    }
    Ok(hash.finalize().to_vec())
}
