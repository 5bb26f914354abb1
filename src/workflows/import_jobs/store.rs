//! A chunk of lines, decided and stored.
//!
//! What is known of an attempt changes only by a line that tells more: another content with the same or a later end.
//! No line changes what an attempt held within a closed month.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;

use gpuledger_db::allocation::{self, AttemptName, NewTelling, Telling, TellingDetails, TellingOf};
use gpuledger_db::dimensions::{self, ClusterId};
use gpuledger_db::usage::{self, Mark};
use gpuledger_db::{Db, period, segment};
use gpuledger_domain::calendar::{BillingCalendar, Period};
use gpuledger_domain::ids::{ClusterName, JobId, NodeId};
use gpuledger_domain::metering::{Allocation, Segment};
use gpuledger_domain::time::{HOUR_US, Instant, Interval};
use sha2::{Digest, Sha256};

use super::ImportJobs;
use super::interned::{Holding, Interned, placements_text};
use crate::error::AppError;
use crate::import::Ordinals;
use crate::import::job_list::{Held, JobIdentity, JobRecord, RefusedLine};
use crate::workflows::job_facts;

/// Most segments of one insert: they are sorted together, and held in memory.
const CHUNK_SEGMENTS: usize = 50_000;
/// Most segments of one attempt: past it, a date is a slip.
const ATTEMPT_SEGMENTS_MAX: i64 = 2_000_000;

/// An import under way: what it has met so far.
pub(super) struct Import<'a> {
    calendar: &'a BillingCalendar,
    ask: &'a ImportJobs<'a>,
    import_id: i64,
    ordinals: Ordinals,
    now: Instant,
    clusters: HashMap<String, ClusterId>,
    interned: Interned,
}

/// What came of a chunk.
#[derive(Default)]
pub(super) struct Decided {
    pub(super) added: i64,
    pub(super) known: i64,
    pub(super) revised: i64,
    pub(super) without_gpu_time: i64,
    pub(super) running: i64,
    /// Of the known ones, those that tell an earlier end than is known, or what was superseded once.
    pub(super) outdated: u64,
    pub(super) refused: Vec<RefusedLine>,
}

/// A line with the name of its attempt and the hash of its content.
struct Told<'r> {
    record: &'r JobRecord,
    /// `None` where a restated job is to have held nothing.
    interval: Option<Interval>,
    name: AttemptName,
    sha256: Vec<u8>,
}

impl Known<'_> {
    /// Whether a line tells what the books held once and was superseded: it is not news again, whatever it says.
    fn superseded(&self, told: &Told<'_>) -> bool {
        self.stored.as_ref().is_some_and(|stored| stored.superseded.contains(&told.sha256))
    }
}

impl Told<'_> {
    /// Whether the attempt still ran, so that its end is only when the list was written.
    fn provisional(&self) -> bool {
        matches!(self.record.held, Held::Running(_))
    }
}

/// What is known of an attempt while a chunk is decided.
struct Known<'t> {
    interval: Option<Interval>,
    sha256: Vec<u8>,
    holding: Holding,
    provisional: bool,
    /// Whether this very list told it.
    of_this_list: bool,
    /// What the database holds.
    stored: Option<Telling>,
    /// The line that tells more than the database holds.
    newest: Option<&'t Told<'t>>,
}

impl<'a> Import<'a> {
    pub(super) fn new(
        calendar: &'a BillingCalendar,
        ask: &'a ImportJobs<'a>,
        import_id: i64,
        ordinals: Ordinals,
        now: Instant,
    ) -> Import<'a> {
        Import { calendar, ask, import_id, ordinals, now, clusters: HashMap::new(), interned: Interned::default() }
    }

    /// Stores the lines of a chunk, those of each cluster in one transaction.
    pub(super) fn take_chunk(&mut self, db: &mut Db, chunk: &[JobRecord]) -> Result<Decided, AppError> {
        let mut decided = Decided::default();
        let mut by_cluster: BTreeMap<ClusterName, Vec<Told<'_>>> = BTreeMap::new();
        for record in chunk {
            let name = self.name(record);
            match self.interval(record) {
                Ok(Held::Ended(interval)) => {
                    let told = self.told(record, Some(interval), name)?;
                    by_cluster.entry(record.cluster.clone()).or_default().push(told);
                }
                Ok(Held::Never(Some(_))) if self.ask.restate && matches!(record.identity, JobIdentity::Id(_)) => {
                    by_cluster.entry(record.cluster.clone()).or_default().push(self.told(record, None, name)?);
                }
                Ok(Held::Running(_)) => decided.running += 1,
                Ok(Held::Never(_)) => decided.without_gpu_time += 1,
                Err(reason) => decided.refused.push(refusal(record, reason)),
            }
        }
        for (cluster, told) in &by_cluster {
            let stored = db.transaction(|db| self.store(db, cluster, told))?;
            decided.added += stored.added;
            decided.known += stored.known;
            decided.revised += stored.revised;
            decided.without_gpu_time += stored.without_gpu_time;
            decided.outdated += stored.outdated;
            decided.refused.extend(stored.refused);
        }
        Ok(decided)
    }

    fn told<'r>(
        &self,
        record: &'r JobRecord,
        interval: Option<Interval>,
        name: AttemptName,
    ) -> Result<Told<'r>, AppError> {
        Ok(Told { record, interval, name, sha256: content_hash(record, interval)? })
    }

    /// What the source calls the attempt. A row without an id is called by its content and its ordinal, whatever its
    /// start is taken to mean.
    fn name(&mut self, record: &JobRecord) -> AttemptName {
        match &record.identity {
            JobIdentity::Id(id) => {
                let start = match record.held {
                    Held::Ended(interval) => interval.start(),
                    Held::Running(start) => start,
                    Held::Never(start) => start.unwrap_or(Instant::from_micros(0)),
                };
                AttemptName { source_id: id.clone(), start }
            }
            JobIdentity::Row(hash) => {
                let ordinal = self.ordinals.next(hash);
                let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
                AttemptName { source_id: format!("row-{hex}-{ordinal}"), start: Instant::from_micros(0) }
            }
        }
    }

    /// When the attempt held its GPUs, as far as it may be charged.
    fn interval(&self, record: &JobRecord) -> Result<Held, String> {
        let interval = match (record.held, self.ask.as_of) {
            (Held::Ended(interval), _) => interval,
            (Held::Running(start), Some(as_of)) => {
                if matches!(record.identity, JobIdentity::Row(_)) {
                    return Err("it still runs and has no id, so that it would be another job once it ends; map an id, or import it when it has ended".into());
                }
                // Not begun when the list was written: nothing is told of it yet.
                let Some(interval) = Interval::new(start, as_of) else { return Ok(Held::Never(None)) };
                interval
            }
            (held, _) => return Ok(held),
        };
        let placements = i64::try_from(record.placements.len()).unwrap_or(i64::MAX);
        if interval.end() > self.now {
            Err(format!("it ends at {}, which is still to come; correct the line", interval.end()))
        } else if (interval.length_us() / HOUR_US + 2).saturating_mul(placements) > ATTEMPT_SEGMENTS_MAX {
            Err(format!(
                "it holds {placements} nodes from {} to {}; correct the line",
                interval.start(),
                interval.end()
            ))
        } else {
            Ok(Held::Ended(interval))
        }
    }

    /// Stores lines of one cluster; whatever they need is interned in the same transaction.
    fn store(&mut self, db: &mut Db, cluster_name: &ClusterName, told: &[Told<'_>]) -> Result<Decided, AppError> {
        allocation::lock_imports(db)?;
        let cluster = self.cluster(db, cluster_name)?;
        let mut source_ids: Vec<&str> = told.iter().map(|told| told.name.source_id.as_str()).collect();
        source_ids.sort_unstable();
        source_ids.dedup();
        let stored = allocation::newest(db, cluster, &source_ids)?;
        let closed = self.closed_periods(db, told, &stored)?;
        let mut known: BTreeMap<&AttemptName, Known<'_>> = BTreeMap::new();
        for (name, telling) in &stored {
            let Telling { node, sku, facts, placements, .. } = telling.clone();
            let holding = Holding { node, sku, facts, placements };
            let (interval, sha256) = (telling.interval, telling.sha256.clone());
            let (provisional, of_this_list) = (telling.provisional, telling.import_id == self.import_id);
            let stored = Some(telling.clone());
            known.insert(name, Known { interval, sha256, holding, provisional, of_this_list, stored, newest: None });
        }
        let mut decided = Decided::default();
        // A line that stands in another's way may be followed by one that shortens it: such lines are asked again.
        let (mut waiting, mut settled): (Vec<&Told<'_>>, bool) = (told.iter().collect(), false);
        while !settled {
            let asked = waiting.len();
            let mut again = Vec::new();
            for told in waiting {
                let holding = self.interned.holding(db, cluster, told.record)?;
                match self.news(&known, told, &holding, &closed) {
                    News::Nothing => {
                        decided.known += 1;
                        let same = known.get_mut(&told.name).filter(|known| known.sha256 == told.sha256);
                        // Told by this list too: a contradiction further down is one however often the list comes.
                        same.into_iter().for_each(|known| known.of_this_list = true);
                    }
                    News::NoGpuTime => decided.without_gpu_time += 1,
                    News::Outdated => {
                        decided.known += 1;
                        decided.outdated += 1;
                    }
                    News::Overlap(_) => again.push(told),
                    News::Refused(reason) => decided.refused.push(refusal(told.record, reason)),
                    News::Told => {
                        let before = known.remove(&told.name);
                        // A line that a later one of the same chunk outdoes was known for the while.
                        decided.known += i64::from(before.as_ref().is_some_and(|before| before.newest.is_some()));
                        let stored = before.and_then(|before| before.stored);
                        let back = stored.as_ref().is_some_and(|stored| stored.sha256 == told.sha256);
                        decided.known += i64::from(back);
                        let newest = (!back).then_some(told);
                        let (interval, sha256) = (told.interval, told.sha256.clone());
                        let (provisional, of_this_list) = (told.provisional(), true);
                        let now = Known { interval, sha256, holding, provisional, of_this_list, stored, newest };
                        known.insert(&told.name, now);
                    }
                }
            }
            settled = again.is_empty() || again.len() == asked;
            waiting = again;
        }
        for told in waiting {
            let holding = self.interned.holding(db, cluster, told.record)?;
            if let News::Overlap(reason) = self.news(&known, told, &holding, &closed) {
                decided.refused.push(refusal(told.record, reason));
            }
        }
        self.write(db, cluster, known.into_values().collect(), &mut decided)?;
        Ok(decided)
    }

    /// What a line tells beyond what is known.
    fn news(
        &self,
        known: &BTreeMap<&AttemptName, Known<'_>>,
        told: &Told<'_>,
        holding: &Holding,
        closed: &[Period],
    ) -> News {
        let before = known.get(&told.name);
        match before {
            // To take back what is not known is no news.
            None if told.interval.is_none() => return News::NoGpuTime,
            Some(before) if before.sha256 == told.sha256 => return News::Nothing,
            Some(before) if Self::contradict(before, told, holding) => {
                return News::Refused(
                    "an earlier line of this list tells other GPUs for the same job; if both are held, map a component column, else remove one".into(),
                );
            }
            Some(before) if self.is_older(before, told) => {
                return News::Outdated;
            }
            _ => {}
        }
        // Attempts of one job follow each other; one that begins within another is the same with another start.
        let from = AttemptName { source_id: told.name.source_id.clone(), start: Instant::MIN };
        let others = known
            .range::<AttemptName, _>((Bound::Included(&from), Bound::Unbounded))
            .take_while(|(name, _)| name.source_id == told.name.source_id);
        let mut others = others.filter(|(name, _)| ***name != told.name).filter_map(|(_, other)| other.interval);
        let overlaps = |other: &Interval| told.interval.is_some_and(|told| told.intersection(*other).is_some());
        if let Some(other) = others.find(overlaps) {
            return News::Overlap(format!(
                "the job holds its GPUs already in {other}, under another start; a job is charged once, so this line was left out"
            ));
        }
        let changed = changed(before, told, holding);
        let month =
            closed.iter().find(|closed| changed.iter().any(|part| part.intersection(closed.interval).is_some()));
        match month {
            Some(month) => News::Refused(format!(
                "it changes what the job held in {}, which is closed; nothing of the line was imported",
                month.month
            )),
            None => News::Told,
        }
    }

    /// Whether a line tells what is older than what is known.
    fn is_older(&self, before: &Known<'_>, told: &Told<'_>) -> bool {
        match (before.provisional, told.provisional()) {
            // An end that is told stands against any that was only the time of a list, whenever it was told.
            (true, false) => return false,
            (false, true) => return true,
            _ => {}
        }
        // A job that was taken back stays so.
        let earlier =
            before.interval.is_none() || before.interval.map(Interval::end) > told.interval.map(Interval::end);
        !self.ask.restate && (earlier || before.superseded(told))
    }

    /// Whether two lines of one list tell GPUs that one job cannot hold.
    fn contradict(before: &Known<'_>, told: &Told<'_>, holding: &Holding) -> bool {
        let gpus = |holding: &Holding| (holding.node, holding.sku, holding.placements.clone());
        let final_at_last = before.provisional && !told.provisional();
        before.of_this_list && !final_at_last && told.interval.is_some() && gpus(&before.holding) != gpus(holding)
    }

    fn cluster(&mut self, db: &mut Db, name: &ClusterName) -> Result<ClusterId, AppError> {
        if let Some(id) = self.clusters.get(name.as_str()) {
            return Ok(*id);
        }
        let id = dimensions::intern_cluster(db, name)?;
        let wanted = self.ask.mapping.identity();
        let (columns, zone) = allocation::identity(db, id, &wanted.columns, &wanted.zone)?;
        // Times with an offset mean the same in every list; the content of a row does not.
        let other_zone = zone != wanted.zone && (wanted.columns != "job ids" || !wanted.zone.is_empty());
        if columns != wanted.columns || other_zone {
            return Err(AppError::Refused(format!(
                "jobs of cluster “{name}” were told apart by [{columns}], times without an offset in [{zone}]; this mapping tells \
                 them apart by [{}], times in [{}]. Jobs that are known already would be charged a second time: use the earlier mapping",
                wanted.columns, wanted.zone
            )));
        }
        self.clusters.insert(name.to_string(), id);
        Ok(id)
    }

    /// The closed ones among the periods that these lines touch; none of them closes before the transaction ends.
    fn closed_periods(
        &self,
        db: &mut Db,
        told: &[Told<'_>],
        stored: &BTreeMap<AttemptName, Telling>,
    ) -> Result<Vec<Period>, AppError> {
        let intervals = told.iter().map(|told| told.interval).chain(stored.values().map(|telling| telling.interval));
        let intervals = intervals.flatten();
        let mut touched: BTreeSet<Period> = BTreeSet::new();
        for interval in intervals {
            let mut period = self.calendar.period_of(interval.start());
            touched.insert(period);
            while period.interval.end() < interval.end() {
                period = self.calendar.period_of(period.interval.end());
                touched.insert(period);
            }
        }
        let states = period::hold_open(db, &touched.into_iter().collect::<Vec<_>>())?;
        Ok(states.into_iter().filter(|state| state.closing.is_some()).map(|state| state.period).collect())
    }

    fn write(
        &mut self,
        db: &mut Db,
        cluster: ClusterId,
        known: Vec<Known<'_>>,
        decided: &mut Decided,
    ) -> Result<(), AppError> {
        let mut news: Vec<(Known<'_>, &Told<'_>)> =
            known.into_iter().filter_map(|known| known.newest.map(|told| (known, told))).collect();
        // In the order of time, so that numbers and segments go where the keys are.
        news.sort_by_key(|(_, told)| (told.interval, told.record.line));
        let new: Vec<&AttemptName> =
            news.iter().filter(|(known, _)| known.stored.is_none()).map(|(_, told)| &told.name).collect();
        let mut new_ids = allocation::insert_jobs(db, cluster, &new)?.into_iter();
        let mut marks: BTreeSet<Mark> = BTreeSet::new();
        let mut tellings = Vec::with_capacity(news.len());
        let mut segments: Vec<Segment> = Vec::new();
        for (Known { holding, stored, .. }, told) in news {
            let (job, revision) = match &stored {
                Some(telling) => (telling.job, telling.revision + 1),
                None => (new_ids.next().unwrap_or(JobId(0)), 1),
            };
            match &stored {
                Some(_) => decided.revised += 1,
                None => decided.added += 1,
            }
            if let Some((telling, was)) = stored.as_ref().and_then(|telling| telling.interval.map(|was| (telling, was)))
            {
                segment::remove_superseded(db, telling.node, telling.job, was)?;
                self.mark_days(&mut marks, telling.node, was);
            }
            let Holding { node, sku, facts, .. } = holding;
            if let Some(interval) = told.interval {
                let placements = self.interned.placements(db, cluster, told.record)?;
                let allocation = Allocation { job, revision, node, sku, facts, interval, placements };
                self.mark_days(&mut marks, node, interval);
                segments.extend(allocation.segments()?);
            }
            let telling = TellingOf { job, revision, node, sku, facts };
            tellings.push(NewTelling::new(&telling, told.interval, told.name.start, self.details(told)));
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

    fn details(&self, told: &Told<'_>) -> TellingDetails {
        TellingDetails {
            submit: told.record.submit,
            placements: placements_text(told.record),
            end_state: told.record.end_state.clone(),
            provisional: told.provisional(),
            sha256: told.sha256.clone(),
            import_id: self.import_id,
        }
    }
}

/// What a line tells beyond what is known.
enum News {
    Nothing,
    /// An earlier end than is known, or what was told once and superseded.
    Outdated,
    /// Another attempt of the job stands in the way, as far as is known yet.
    Overlap(String),
    NoGpuTime,
    Told,
    Refused(String),
}

/// The time in which an attempt would hold other than it is known to.
fn changed(before: Option<&Known<'_>>, told: &Told<'_>, holding: &Holding) -> Vec<Interval> {
    let (was, is) = (before.and_then(|before| before.interval), told.interval);
    let (Some(was), Some(is)) = (was, is) else { return was.into_iter().chain(is).collect() };
    if before.is_some_and(|before| before.holding != *holding) {
        return vec![was, is];
    }
    let between = |a: Instant, b: Instant| Interval::new(a.min(b), a.max(b));
    between(was.start(), is.start()).into_iter().chain(between(was.end(), is.end())).collect()
}

fn refusal(record: &JobRecord, reason: String) -> RefusedLine {
    RefusedLine { line: record.line, field: String::new(), reason }
}

fn insert_sorted(db: &mut Db, segments: &mut Vec<Segment>) -> Result<(), AppError> {
    segments.sort_unstable_by_key(|segment| segment.key);
    segment::insert(db, segments)?;
    segments.clear();
    Ok(())
}

/// The SHA-256 of all that a line says of an attempt: the same content again changes nothing.
fn content_hash(record: &JobRecord, interval: Option<Interval>) -> Result<Vec<u8>, AppError> {
    let (facts, _) = job_facts::to_body(&record.facts)?;
    let running = matches!(record.held, Held::Running(_));
    let interval = interval.map(|interval| interval.to_string()).unwrap_or_default();
    let when = format!("{interval} {running} {:?}", record.submit.map(Instant::micros));
    let mut hash = Sha256::new();
    for part in [facts.as_str(), record.sku.as_str(), &when, &record.end_state, &placements_text(record)] {
        hash.update(part.len().to_be_bytes());
        hash.update(part.as_bytes());
    }
    Ok(hash.finalize().to_vec())
}
