//! A chunk of lines, decided and stored.
//!
//! What is known of an attempt changes only by a line that tells more: another content with the same or a later end.
//! No line changes what an attempt held within a closed month.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use foldhash::fast::RandomState;
use gpuledger_db::allocation::{self, AttemptName, NewTelling, Telling, TellingDetails, TellingOf};
use gpuledger_db::dimensions::{self, ClusterId};
use gpuledger_db::usage::{self, Mark};
use gpuledger_db::{Db, period, segment};
use gpuledger_domain::calendar::{BillingCalendar, Period};
use gpuledger_domain::ids::{ClusterName, JobId, NodeId};
use gpuledger_domain::metering::{Allocation, Placement, Segment};
use gpuledger_domain::time::{Hour, Instant, Interval};
use gpuledger_domain::units::Overflow;

use super::ImportJobs;
use super::decide::{Judge, Known, KnownAttempts, News, Taken, displaced_sha256, last_moment};
use super::fresh::Fresh;
use super::interned::{Holding, Interned};
use super::kept::{Kept, outside, whole_hours};
use super::told::Told;
use super::watched::WatchedNodes;
use crate::error::AppError;
use crate::import::job_record::RefusedLine;
use crate::workflows::reprice;

/// Most segments of one insert: they are sorted together, and held in memory.
const CHUNK_SEGMENTS: usize = 50_000;

/// An import under way: what it has met so far.
pub(super) struct Import<'a> {
    calendar: &'a BillingCalendar,
    ask: &'a ImportJobs<'a>,
    import_id: i64,
    clusters: HashMap<String, ClusterId>,
    interned: Interned,
    fresh: Fresh,
}

/// What came of a chunk.
#[derive(Default)]
pub(super) struct Decided {
    pub(super) added: i64,
    pub(super) known: i64,
    pub(super) revised: i64,
    pub(super) without_gpu_time: i64,
    /// Of the known ones, those that tell an earlier end than is known, or what was superseded once.
    pub(super) outdated: u64,
    /// Of the revised ones, those that tell other of closed months than stays.
    pub(super) kept: u64,
    pub(super) refused: Vec<RefusedLine>,
}

/// What is to be written of a chunk.
#[derive(Default)]
struct Writing {
    marks: BTreeSet<Mark>,
    /// The day that was marked last.
    last: Option<(NodeId, Interval)>,
    tellings: Vec<NewTelling>,
    segments: Vec<Segment>,
    /// Periods in which an attempt ends otherwise than it was told to.
    other_ends: BTreeSet<Period>,
    watched: WatchedNodes,
}

impl<'a> Import<'a> {
    pub(super) fn new(calendar: &'a BillingCalendar, ask: &'a ImportJobs<'a>, import_id: i64) -> Import<'a> {
        let (clusters, interned) = (HashMap::new(), Interned::default());
        Import { calendar, ask, import_id, clusters, interned, fresh: Fresh::default() }
    }

    /// Stores the lines of a chunk, those of each cluster in one transaction.
    pub(super) fn take_chunk(&mut self, db: &mut Db, chunk: &[Told]) -> Result<Decided, AppError> {
        let mut decided = Decided::default();
        let mut by_cluster: BTreeMap<&ClusterName, Vec<&Told>> = BTreeMap::new();
        for told in chunk {
            by_cluster.entry(&told.cluster).or_default().push(told);
        }
        for (cluster, told) in &by_cluster {
            let stored = db.transaction(|db| self.store(db, cluster, told))?;
            decided.added += stored.added;
            decided.known += stored.known;
            decided.revised += stored.revised;
            decided.without_gpu_time += stored.without_gpu_time;
            decided.outdated += stored.outdated;
            decided.kept += stored.kept;
            decided.refused.extend(stored.refused);
        }
        Ok(decided)
    }

    /// Stores lines of one cluster; whatever they need is interned in the same transaction.
    fn store(&mut self, db: &mut Db, cluster_name: &ClusterName, told: &[&Told]) -> Result<Decided, AppError> {
        allocation::lock_imports(db)?;
        let cluster = self.cluster(db, cluster_name)?;
        Interned::take_facts(db, told)?;
        let stored = self.stored(db, cluster, told)?;
        let closed = self.closed_periods(db, told, &stored)?;
        let judge = Judge { restate: self.ask.restate, clips: self.ask.list.clips(), closed: &closed };
        let mut decided = Decided::default();
        let (alone, told_again) = split_by_what_is_known(told, &stored);
        let mut written = Vec::with_capacity(told.len());
        for told in alone {
            match judge.news_of_an_unknown_job(told) {
                News::Told(taken, _) => {
                    let holding = self.interned.holding(db, cluster, told)?;
                    written.push(Written { told, taken, holding, stored: None });
                }
                News::Refused(reason) => decided.refused.push(refusal(told, reason)),
                _ => decided.without_gpu_time += 1,
            }
        }
        let known = stored.iter().map(|(name, telling)| (name, Known::stored(telling, self.import_id)));
        let mut known: KnownAttempts<'_> = known.collect();
        self.weigh(db, cluster, &judge, told_again, &mut known, &mut decided)?;
        let (taken_back, known): (Vec<Known<'_>>, Vec<Known<'_>>) =
            known.into_values().partition(|known| known.taken_back);
        let news = known.into_iter().filter_map(|Known { newest, holding, stored, .. }| {
            newest.map(|(told, taken)| Written { told, taken, holding, stored })
        });
        written.extend(news);
        let taken_back = taken_back.into_iter().filter_map(|known| known.stored).collect();
        self.write(db, cluster, written, taken_back, &mut decided)?;
        self.fresh.note_written(db, cluster, told)?;
        Ok(decided)
    }

    /// Weighs lines against what is known and against each other.
    fn weigh<'t>(
        &mut self,
        db: &mut Db,
        cluster: ClusterId,
        judge: &Judge<'_>,
        told: Vec<&'t Told>,
        known: &mut KnownAttempts<'t>,
        decided: &mut Decided,
    ) -> Result<(), AppError> {
        // A line that stands in another's way may be followed by one that shortens it: such lines are asked again.
        let (mut waiting, mut settled): (Vec<&Told>, bool) = (told, false);
        while !settled {
            let asked = waiting.len();
            let mut again = Vec::new();
            for told in waiting {
                let holding = self.interned.holding(db, cluster, told)?;
                match judge.news(known, told, &holding) {
                    News::Overlap(_) => again.push(told),
                    news => settle(known, decided, told, holding, news),
                }
            }
            settled = again.is_empty() || again.len() == asked;
            waiting = again;
        }
        for told in waiting {
            let holding = self.interned.holding(db, cluster, told)?;
            if let News::Overlap(reason) = judge.news(known, told, &holding) {
                decided.refused.push(refusal(told, reason));
            }
        }
        Ok(())
    }

    /// What the database holds of the jobs of these lines.
    fn stored(
        &mut self,
        db: &mut Db,
        cluster: ClusterId,
        told: &[&Told],
    ) -> Result<BTreeMap<AttemptName, Telling>, AppError> {
        let mut source_ids: Vec<&str> = told.iter().map(|told| told.name.source_id.as_str()).collect();
        self.fresh.keep_those_that_may_be_known(db, cluster, &mut source_ids)?;
        source_ids.sort_unstable();
        source_ids.dedup();
        Ok(allocation::newest(db, cluster, &source_ids)?)
    }

    fn cluster(&mut self, db: &mut Db, name: &ClusterName) -> Result<ClusterId, AppError> {
        if let Some(id) = self.clusters.get(name.as_str()) {
            return Ok(*id);
        }
        let id = dimensions::intern_cluster(db, name)?;
        let wanted = self.ask.list.identity();
        let (columns, zone) = allocation::identity(db, id, &wanted.columns, &wanted.zone)?;
        // Times with an offset mean the same in every list; the content of a row does not.
        let by_id = wanted.columns.ends_with("ids");
        let told_later = zone.is_empty() && wanted.with_offsets_elsewhere;
        let other_zone = zone != wanted.zone && (!by_id || !wanted.zone.is_empty() && !told_later);
        if columns != wanted.columns || other_zone {
            return Err(AppError::Refused(format!(
                "jobs of cluster “{name}” were told apart by [{columns}], times without an offset in [{zone}]; this list tells \
                 them apart by [{}], times in [{}]. Jobs that are known already would be charged a second time: import as before",
                wanted.columns, wanted.zone
            )));
        }
        if told_later && !wanted.zone.is_empty() {
            allocation::note_zone(db, id, &wanted.zone)?;
        }
        self.clusters.insert(name.to_string(), id);
        Ok(id)
    }

    /// The closed ones among the periods that these lines touch; none of them closes before the transaction ends.
    fn closed_periods(
        &self,
        db: &mut Db,
        told: &[&Told],
        stored: &BTreeMap<AttemptName, Telling>,
    ) -> Result<Vec<Period>, AppError> {
        let intervals = told.iter().map(|told| told.interval).chain(stored.values().map(|telling| telling.interval));
        let intervals = intervals.flatten();
        let mut touched: BTreeSet<Period> = BTreeSet::new();
        let mut last: Option<Period> = None;
        for interval in intervals {
            if last.is_some_and(|last| last.interval.intersection(interval) == Some(interval)) {
                continue;
            }
            let mut period = self.calendar.period_of(interval.start());
            touched.insert(period);
            while period.interval.end() < interval.end() {
                period = self.calendar.period_of(period.interval.end());
                touched.insert(period);
            }
            last = Some(period);
        }
        let states = period::hold_open(db, &touched.into_iter().collect::<Vec<_>>())?;
        Ok(states.into_iter().filter(|state| state.closing.is_some()).map(|state| state.period).collect())
    }

    fn write(
        &mut self,
        db: &mut Db,
        cluster: ClusterId,
        mut written: Vec<Written<'_>>,
        taken_back: Vec<Telling>,
        decided: &mut Decided,
    ) -> Result<(), AppError> {
        let mut writing = Writing { watched: WatchedNodes::of(db, cluster)?, ..Writing::default() };
        for telling in taken_back {
            self.remove(db, cluster, &mut writing, &telling, &[])?;
            writing.tellings.push(self.nothing(&telling));
        }
        // In the order of time, so that numbers and segments go where the keys are.
        written.sort_by_key(|written| (written.told.interval, written.told.line));
        let new: Vec<&AttemptName> =
            written.iter().filter(|written| written.stored.is_none()).map(|written| &written.told.name).collect();
        let mut new_ids = allocation::insert_jobs(db, cluster, &new)?.into_iter();
        writing.tellings.reserve(written.len());
        for Written { told, taken, holding, stored } in written {
            let (job, revision) = match &stored {
                Some(telling) => (telling.job, telling.revision + 1),
                None => (new_ids.next().unwrap_or(JobId(0)), 1),
            };
            match &stored {
                Some(telling) => {
                    decided.revised += 1;
                    decided.kept += u64::from(taken.kept);
                    let other_end = telling.end_state != told.end_state || telling.provisional != taken.provisional;
                    let end = taken.interval.filter(|_| other_end).and_then(last_moment);
                    writing.other_ends.extend(end.map(|end| self.calendar.period_of(end.start())));
                }
                None => decided.added += 1,
            }
            self.add(db, cluster, &mut writing, (told, &taken), stored.as_ref(), (job, revision))?;
            let Holding { node, sku, facts } = holding;
            let telling = TellingOf { job, revision, node, sku, facts };
            let details = TellingDetails { provisional: taken.provisional, ..self.details(told) };
            writing.tellings.push(NewTelling::new(&telling, taken.interval, told.name.start, details));
            if writing.segments.len() >= CHUNK_SEGMENTS {
                insert_sorted(db, &mut writing.segments)?;
            }
        }
        insert_sorted(db, &mut writing.segments)?;
        allocation::insert_tellings(db, &writing.tellings)?;
        writing.marks.extend(writing.watched.marks(self.calendar));
        usage::mark(db, &writing.marks.into_iter().collect::<Vec<_>>())?;
        for period in &writing.other_ends {
            // Who pays for an attempt may hang on how it ended.
            period::count_usage_change(db, period)?;
            reprice::mark_month(db, period)?;
        }
        Ok(())
    }

    /// Makes the segments of a line in place of those of the telling before, and marks their days. Segments in closed
    /// periods stay; the others share what was suspended beyond them.
    fn add(
        &mut self,
        db: &mut Db,
        cluster: ClusterId,
        writing: &mut Writing,
        (told, taken): (&Told, &Taken),
        stored: Option<&Telling>,
        (job, revision): (JobId, i32),
    ) -> Result<(), AppError> {
        let mut kept = Kept::default();
        if let Some(telling) = stored {
            kept = self.remove(db, cluster, writing, telling, &taken.closed)?;
        }
        let Some(interval) = taken.interval else { return Ok(()) };
        let whole = self.interned.placements(db, cluster, told)?;
        let held = |placements: &[Placement]| -> i128 {
            placements
                .iter()
                .map(|placement| i128::from(placement.interval.length_us()) * i128::from(placement.count))
                .sum()
        };
        let told_length = told.interval.map_or(1, Interval::length_us);
        let suspended = held(&whole) * i128::from(told.suspended_us) / i128::from(told_length.max(1));
        let suspended_us = i64::try_from((suspended - kept.suspended_us).max(0)).map_err(|_| Overflow)?;
        let mut placements = Vec::with_capacity(whole.len());
        for placement in whole {
            let Some(within) = placement.interval.intersection(interval) else { continue };
            let parts = outside(within, taken.closed.iter().chain(&kept.intervals));
            placements.extend(parts.into_iter().map(|interval| Placement { interval, ..placement }));
        }
        for placement in &placements {
            self.mark_days(writing, placement.node, placement.interval);
            writing.watched.touch(placement.on_node, placement.interval);
        }
        let allocation = Allocation { job, revision, placements, suspended_us };
        writing.segments.extend(allocation.segments()?);
        Ok(())
    }

    /// Removes the segments of a telling that is superseded, but for those in closed periods, and marks their days.
    fn remove(
        &self,
        db: &mut Db,
        cluster: ClusterId,
        writing: &mut Writing,
        telling: &Telling,
        closed: &[Interval],
    ) -> Result<Kept, AppError> {
        let Some(was) = telling.interval else { return Ok(Kept::default()) };
        // Where it held GPUs in several pools, any of the cluster's may be among them.
        let several = telling.placements.contains('@');
        let nodes = if several { dimensions::stand_ins(db, cluster)? } else { vec![telling.node] };
        // Whole hours: a segment that reaches out of a closed period stays as it is.
        let kept: Vec<Interval> =
            closed.iter().filter_map(|closed| whole_hours(closed.intersection(was)?)?.intersection(was)).collect();
        // What is kept may be in the pool of an earlier telling.
        let pools = if kept.is_empty() { Vec::new() } else { dimensions::stand_ins(db, cluster)? };
        let mut suspended_us = 0;
        for part in &kept {
            let hours: Vec<Hour> = part.hours().collect();
            let segments = segment::of_attempt(db, &pools, telling.job, &hours)?;
            suspended_us += segments.iter().map(|segment| i128::from(segment.suspended_us)).sum::<i128>();
        }
        for part in outside(was, kept.iter()) {
            for node in &nodes {
                writing.watched.touch_those_of(db, *node, telling.job, part)?;
                segment::remove_superseded(db, *node, telling.job, part)?;
                self.mark_days(writing, *node, part);
            }
        }
        Ok(Kept { intervals: kept, suspended_us })
    }

    /// A telling by which an attempt held nothing, since a telling of the whole takes its place.
    fn nothing(&self, telling: &Telling) -> NewTelling {
        let Telling { job, revision, node, sku, facts, .. } = *telling;
        let details = TellingDetails {
            submit: None,
            placements: telling.placements.clone(),
            end_state: telling.end_state.clone(),
            provisional: false,
            sha256: displaced_sha256(&telling.sha256),
            import_id: self.import_id,
            listed_id: None,
            suspended_us: 0,
        };
        let of = TellingOf { job, revision: revision + 1, node, sku, facts };
        let start = telling.interval.map_or(Instant::from_micros(0), Interval::start);
        NewTelling::new(&of, None, start, details)
    }

    fn mark_days(&self, writing: &mut Writing, node: NodeId, interval: Interval) {
        let within = |day: Interval| day.intersection(interval) == Some(interval);
        if writing.last.is_some_and(|(marked, day)| marked == node && within(day)) {
            return;
        }
        for day in self.calendar.days(interval) {
            writing.marks.insert(Mark { day_start: day.start(), node });
            writing.last = Some((node, day));
        }
    }

    fn details(&self, told: &Told) -> TellingDetails {
        TellingDetails {
            submit: told.submit,
            placements: told.placements.clone(),
            end_state: told.end_state.clone(),
            provisional: told.provisional,
            sha256: told.sha256.clone(),
            import_id: self.import_id,
            listed_id: (!told.listed_id.is_empty()).then(|| told.listed_id.clone()),
            suspended_us: told.suspended_us,
        }
    }
}

/// A line that is written, what it holds, and what the database holds of its attempt.
struct Written<'t> {
    told: &'t Told,
    taken: Taken,
    holding: Holding,
    stored: Option<Telling>,
}

/// Lines of jobs of which nothing is known and that no other line of the chunk tells, which is most of them; and the
/// others, which must be weighed.
fn split_by_what_is_known<'t>(
    told: &[&'t Told],
    stored: &BTreeMap<AttemptName, Telling>,
) -> (Vec<&'t Told>, Vec<&'t Told>) {
    let known: HashSet<&str> = stored.keys().map(|name| name.source_id.as_str()).collect();
    let mut times: HashMap<&str, u32, RandomState> =
        HashMap::with_capacity_and_hasher(told.len(), RandomState::default());
    for told in told {
        *times.entry(told.name.source_id.as_str()).or_default() += 1;
    }
    let alone = |told: &&Told| {
        let id = told.name.source_id.as_str();
        times.get(id) == Some(&1) && !known.contains(id)
    };
    told.iter().copied().partition(|told| alone(told))
}

/// Takes note of what a line told.
fn settle<'t>(known: &mut KnownAttempts<'t>, decided: &mut Decided, told: &'t Told, holding: Holding, news: News) {
    match news {
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
        News::Overlap(reason) | News::Refused(reason) => decided.refused.push(refusal(told, reason)),
        News::Told(taken, parts) => {
            for part in &parts {
                let Some(part) = known.get_mut(part) else { continue };
                (part.taken_back, part.displaced, part.interval, part.newest) = (true, true, None, None);
                // A part that this very chunk told was known for the while.
                decided.known += i64::from(part.stored.is_none());
                decided.revised += i64::from(part.stored.is_some());
            }
            let before = known.remove(&told.name);
            // A line that a later one of the same chunk outdoes was known for the while.
            decided.known += i64::from(before.as_ref().is_some_and(|before| before.newest.is_some()));
            let stored = before.and_then(|before| before.stored);
            let back = stored.as_ref().is_some_and(|stored| stored.sha256 == told.sha256);
            decided.known += i64::from(back);
            let now = Known {
                interval: taken.interval,
                sha256: told.sha256.clone(),
                holding,
                placements: told.placements.clone(),
                suspended_us: told.suspended_us,
                submit: told.submit,
                end_state: told.end_state.clone(),
                provisional: taken.provisional,
                of_this_list: true,
                stored,
                newest: (!back).then_some((told, taken)),
                taken_back: false,
                displaced: false,
            };
            known.insert(&told.name, now);
        }
    }
}

fn refusal(told: &Told, reason: String) -> RefusedLine {
    RefusedLine { line: told.line, field: String::new(), reason }
}

fn insert_sorted(db: &mut Db, segments: &mut Vec<Segment>) -> Result<(), AppError> {
    segments.sort_unstable_by_key(|segment| segment.key);
    segment::insert(db, segments)?;
    segments.clear();
    Ok(())
}
