//! Nodes that report through a bad network to a service that dies at any statement, against an oracle that knows what
//! happened and shares no code with the product. The seed is printed; the same seed is the same run.
//!
//! `GPULEDGER_SIMULATED_NODE_HOURS` says how long, `GPULEDGER_SIMULATION_SEED` which.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use gpuledger::workflows::close::close;
use gpuledger::workflows::ingest::{Ingest, Taken, settle_old_heads};
use gpuledger::workflows::reconcile::reconcile;
use gpuledger::workflows::reprice::Repricer;
use gpuledger::workflows::{counted, open_month::open_month, recompute, roll_up, statements};
use gpuledger_db::simulation::Died;
use gpuledger_db::{Db, allocation, dimensions, late_usage, period, usage};
use gpuledger_domain::calendar::{BillingCalendar, Month};
use gpuledger_domain::metering::{State, Usage};
use gpuledger_domain::time::{HOUR_US, Instant};
use gpuledger_wire::{Epoch, Outcome, RecordName, Report};

use crate::reports::catalogues;
use crate::support::reports::{SECOND_US, at, full, ingest, job, read, report, segment};
use crate::support::{Books, on_both};

const DAY_US: i64 = 24 * HOUR_US;
const MINUTE_US: i64 = 60 * SECOND_US;
/// How often a node reports here.
const TICK_US: i64 = 10 * MINUTE_US;
const NODES: usize = 6;

/// SplitMix64, of Sebastiano Vigna (public domain): a seed gives the same numbers everywhere.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: i64) -> i64 {
        i64::try_from(self.next() % u64::try_from(bound).unwrap()).unwrap()
    }

    fn percent(&mut self, percent: i64) -> bool {
        self.below(100) < percent
    }
}

/// A stretch of a GPU's time as a collector tells it, inside one hour.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    start: i64,
    end: i64,
    gpu: usize,
    /// The job that held it, of its node's jobs.
    holder: Option<usize>,
    name: RecordName,
}

/// A collector from its start on. What it has finished it sends until it is answered, also after its end.
struct Collector {
    epoch: Epoch,
    start: i64,
    stretches: Vec<Stretch>,
    sequence: u64,
    answered: BTreeSet<RecordName>,
}

struct Node {
    name: String,
    gpus: usize,
    collectors: Vec<Collector>,
    /// When the network does not reach the service.
    cut_off: Vec<(i64, i64)>,
}

fn team(job: usize) -> &'static str {
    if job.is_multiple_of(2) { "a" } else { "b" }
}

/// Who held each GPU, from `from` to `until`, in pieces of any length.
fn truth(chance: &mut Chance, from: i64, until: i64) -> Vec<(i64, i64, Option<usize>)> {
    let mut pieces = Vec::new();
    let mut at = from;
    while at < until {
        let longest = if chance.percent(30) { MINUTE_US } else { 8 * HOUR_US };
        let end = (at + 1 + chance.below(longest)).min(until);
        let holder = chance.percent(70).then(|| usize::try_from(chance.below(5)).unwrap());
        pieces.push((at, end, holder));
        at = end;
    }
    pieces
}

fn node(chance: &mut Chance, number: usize, (from, change, until): (i64, i64, i64)) -> Node {
    let gpus = usize::try_from(1 + chance.below(3)).unwrap();
    let truths: Vec<_> = (0..gpus).map(|_| truth(chance, from, until)).collect();
    let mut collectors = Vec::new();
    let mut start = from;
    while start < until {
        let end = (start + HOUR_US + chance.below(4 * DAY_US)).min(until);
        // Some are wrong about who held what: another may tell the same time in another way.
        let blind = chance.percent(15);
        let random = u32::try_from(chance.below(1 << 20)).unwrap();
        let mut collector = Collector {
            epoch: Epoch { start_us: start, random },
            start,
            stretches: Vec::new(),
            sequence: 0,
            answered: BTreeSet::new(),
        };
        let mut numbers: BTreeMap<i64, u32> = BTreeMap::new();
        for (gpu, pieces) in truths.iter().enumerate() {
            for (from, until, holder) in pieces {
                let (mut from, until) = ((*from).max(start), (*until).min(end));
                while from < until {
                    let hour = from.div_euclid(HOUR_US) * HOUR_US;
                    let end = until.min(hour + HOUR_US);
                    let number = numbers.entry(hour).or_insert(0);
                    *number += 1;
                    let name = RecordName { hour_us: hour, number: *number };
                    let holder = if blind { None } else { *holder };
                    collector.stretches.push(Stretch { start: from, end, gpu, holder, name });
                    from = end;
                }
            }
        }
        collectors.push(collector);
        // The next is started after a while, or while this one still runs.
        start = if chance.percent(70) { end + chance.below(6 * HOUR_US) } else { end - chance.below(HOUR_US) };
    }
    let cut_off = (0..3).map(|_| {
        let at = from + chance.below(until - from);
        (at, at + chance.below(2 * DAY_US))
    });
    let mut cut_off: Vec<(i64, i64)> = cut_off.collect();
    if number.is_multiple_of(3) {
        // Over the close of the month.
        cut_off.push((change - chance.below(DAY_US), change + DAY_US + chance.below(DAY_US)));
    }
    Node { name: format!("n{number}"), gpus, collectors, cut_off }
}

impl Node {
    /// What a collector sends at an instant: what it has finished and nobody answered, and what is open.
    fn report(&mut self, chance: &mut Chance, place: usize, now: i64, first: i64) -> Option<Report> {
        let most = usize::try_from(1 + chance.below(60)).unwrap();
        let collector = &mut self.collectors[place];
        if now < collector.start {
            return None;
        }
        let sent = |stretch: &&Stretch| stretch.end <= now && !collector.answered.contains(&stretch.name);
        let finished: Vec<Stretch> = collector.stretches.iter().filter(sent).take(most).copied().collect();
        let open: Vec<Stretch> =
            collector.stretches.iter().filter(|stretch| stretch.start < now && now < stretch.end).copied().collect();
        if finished.is_empty() && open.is_empty() {
            return None;
        }
        collector.sequence += 1;
        let holders: BTreeSet<usize> = finished.iter().chain(&open).filter_map(|stretch| stretch.holder).collect();
        let places: BTreeMap<usize, u32> = holders.iter().copied().zip(0..).collect();
        let name = self.name.clone();
        let told = |stretch: &Stretch, end: i64| gpuledger_wire::Segment {
            unit: u32::try_from(stretch.gpu).unwrap(),
            ..segment(
                stretch.name.number,
                stretch.holder.map(|holder| places[&holder]),
                Instant::from_micros(stretch.start),
                Instant::from_micros(end),
            )
        };
        let unit = |gpu: usize| {
            let mut unit = full(&name, collector.start);
            unit.gpu.uuid = format!("GPU-{name}-{gpu}");
            unit
        };
        let started = Instant::from_micros(first);
        Some(Report {
            epoch: collector.epoch,
            units: (0..self.gpus).map(unit).collect(),
            jobs: holders.iter().map(|holder| job(&format!("{name}-{holder}"), team(*holder), started)).collect(),
            segments: finished.iter().map(|stretch| told(stretch, stretch.end)).collect(),
            head: open.iter().map(|stretch| told(stretch, now)).collect(),
            ..report(&name, 0, collector.sequence, Instant::from_micros(now))
        })
    }

    fn answered(&mut self, place: usize, taken: &Taken) {
        for answer in &taken.records {
            let done = matches!(answer.outcome, Outcome::Accepted | Outcome::Known);
            assert!(done || answer.outcome == Outcome::Quarantined, "{answer:?}");
            if done {
                self.collectors[place].answered.extend(answer.record);
            }
        }
    }
}

/// The service, which may die at any statement and is then started anew.
struct Service {
    books: Books,
    calendar: BillingCalendar,
    /// None only while it is started anew: the operating system has ended its connection by then.
    db: Option<Db>,
    ingest: Ingest,
    deaths: u64,
}

impl Service {
    fn new(books: Books) -> Service {
        let books = books.migrated("UTC");
        let calendar = BillingCalendar::new("UTC").unwrap();
        let mut db = books.db();
        catalogues(&mut db, &calendar);
        Service { ingest: ingest(&calendar), books, calendar, db: Some(db), deaths: 0 }
    }

    /// Does a step, unless the service dies in it.
    fn step<T>(
        &mut self,
        dies_at: Option<u64>,
        step: impl FnOnce(&mut Db, &mut Ingest, &BillingCalendar) -> T,
    ) -> Option<T> {
        if let Some(statement) = dies_at {
            self.db.as_mut().unwrap().die_at(statement);
        }
        let (db, ingest_state, calendar) = (self.db.as_mut().unwrap(), &mut self.ingest, &self.calendar);
        let done = catch_unwind(AssertUnwindSafe(|| step(db, ingest_state, calendar)));
        if let Err(payload) = &done {
            assert!(payload.is::<Died>(), "a step failed by itself: {:?}", payload.downcast_ref::<String>());
            self.deaths += 1;
        }
        if dies_at.is_some() {
            drop(self.db.take());
            self.db = Some(self.books.db());
            self.ingest = ingest(&self.calendar);
        }
        done.ok()
    }

    /// What is done beside reports.
    fn beside(&mut self, chance: &mut Chance, now: Instant) {
        let dies_at = chance.percent(20).then(|| chance.next() % 200 + 1);
        self.step(dies_at, |db, _, calendar| {
            settle_old_heads(db, calendar, now).unwrap();
            counted::settle_days(db, calendar, now).unwrap();
            roll_up::roll_up(db, calendar, None).unwrap();
            Repricer::default().reprice(db, calendar, || now).unwrap();
        });
    }
}

/// What each GPU was doing in each billing day: for a job by its id, or for nobody, idle or unseen.
type Told = BTreeMap<(String, i64, String), i64>;

/// Of the collectors that tell of an instant the one that began first counts; what none tells of is unseen.
fn oracle(nodes: &[Node], until: i64) -> Told {
    let mut told = Told::new();
    for node in nodes {
        let first = node.collectors.iter().map(|collector| collector.start).min().unwrap();
        for gpu in 0..node.gpus {
            let of_gpu: Vec<(Epoch, &Stretch)> = node
                .collectors
                .iter()
                .flat_map(|collector| collector.stretches.iter().map(|stretch| (collector.epoch, stretch)))
                .filter(|(_, stretch)| stretch.gpu == gpu)
                .collect();
            let days = (first.div_euclid(DAY_US)..=until.div_euclid(DAY_US)).map(|day| day * DAY_US);
            let mut edges: Vec<i64> = of_gpu.iter().flat_map(|(_, stretch)| [stretch.start, stretch.end]).collect();
            edges.extend(days.chain([first, until]));
            edges.retain(|edge| (first..=until).contains(edge));
            edges.sort_unstable();
            edges.dedup();
            // The stretches that reach over the piece, gone through in the order of their starts.
            let mut sorted = of_gpu;
            sorted.sort_by_key(|(_, stretch)| stretch.start);
            let (mut next, mut active): (usize, Vec<(Epoch, &Stretch)>) = (0, Vec::new());
            for pair in edges.windows(2) {
                let (from, end) = (pair[0], pair[1]);
                while next < sorted.len() && sorted[next].1.start <= from {
                    active.push(sorted[next]);
                    next += 1;
                }
                active.retain(|(_, stretch)| stretch.end > from);
                let who = active
                    .iter()
                    .min_by_key(|(epoch, _)| (epoch.start_us, epoch.random))
                    .map(|(_, stretch)| stretch.holder);
                let what = match who {
                    Some(Some(holder)) => format!("{}-{holder}", node.name),
                    Some(None) => "idle".to_owned(),
                    None => "unobserved".to_owned(),
                };
                *told.entry((node.name.clone(), from.div_euclid(DAY_US) * DAY_US, what)).or_default() += end - from;
            }
        }
    }
    told
}

/// The same from the books: usage, and what came of months after they were closed.
fn held(db: &mut Db) -> Told {
    let whole = gpuledger_domain::time::Interval::new(Instant::from_micros(0), Instant::MAX).unwrap();
    let late = late_usage::all(db).unwrap().into_iter().map(|(_, entry)| entry.usage);
    let usages: Vec<Usage> = usage::of_interval(db, whole).unwrap().into_iter().chain(late).collect();
    let jobs: BTreeSet<_> = usages.iter().map(|usage| usage.key.job).collect();
    let names = allocation::names(db, &jobs.into_iter().collect::<Vec<_>>()).unwrap();
    let nodes = dimensions::machines(db).unwrap();
    let mut told = Told::new();
    for usage in usages {
        let what = match usage.key.state {
            State::Held => names[&usage.key.job].1.source_id.clone(),
            other => other.as_str().to_owned(),
        };
        let day = usage.key.slot.start().micros();
        *told.entry((nodes[&usage.key.node].1.clone(), day, what)).or_default() += usage.share_us;
    }
    told.retain(|_, share| *share != 0);
    told
}

/// Seven credits an hour, halves away from zero, in micro-credits.
fn price(share_us: i64) -> i128 {
    let (amount, hour) = (i128::from(share_us) * 7_000_000, i128::from(HOUR_US));
    (2 * amount + hour * amount.signum()) / (2 * hour)
}

fn what_nodes_tell_through_faults_is_what_happened(books: Books) {
    let setting =
        |name: &str, default: u64| std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"));
    let node_hours = setting("GPULEDGER_SIMULATED_NODE_HOURS", 600);
    let seed = setting("GPULEDGER_SIMULATION_SEED", 20_250_331);
    println!("seed {seed}, {node_hours} node-hours");
    let mut chance = Chance(seed);
    let march = Month::parse("2025-03").unwrap();
    let hours = i64::try_from(node_hours).unwrap() / i64::try_from(NODES).unwrap();
    // Across the end of a month, which is closed while nodes are still cut off.
    let change = at("2025-04-01T00:00:00Z").micros();
    let from = change - hours * HOUR_US / 2 - chance.below(HOUR_US);
    let until = from + hours * HOUR_US;
    let closes_at = Instant::from_micros(change + 3 * HOUR_US);
    let mut nodes: Vec<Node> = (0..NODES).map(|number| node(&mut chance, number, (from, change, until))).collect();
    let mut service = Service::new(books);
    let mut closed = false;
    // Reports on their way that come later than those after them.
    let mut delayed: Vec<(i64, Report)> = Vec::new();
    let (mut sent, mut lost) = (0u64, 0u64);
    let mut now = from;
    while now < until + DAY_US {
        now += TICK_US;
        let mut arrived: Vec<(Option<(usize, usize)>, Report)> = Vec::new();
        for (number, node) in nodes.iter_mut().enumerate() {
            let cut_off = node.cut_off.iter().any(|(start, end)| (*start..*end).contains(&now)) && now < until;
            for place in 0..node.collectors.len() {
                let Some(report) = node.report(&mut chance, place, now, from) else { continue };
                sent += 1;
                match chance.below(100) {
                    _ if cut_off => lost += 1,
                    0..15 => lost += 1,
                    // Taken, and the answer is lost; or it comes twice; or later.
                    15..30 => arrived.push((None, report)),
                    30..40 => arrived.extend([(None, report.clone()), (Some((number, place)), report)]),
                    40..50 => delayed.push((now + chance.below(40 * MINUTE_US), report)),
                    _ => arrived.push((Some((number, place)), report)),
                }
            }
        }
        let (due, later) = delayed.into_iter().partition(|(at, _)| *at <= now);
        delayed = later;
        let due: Vec<(i64, Report)> = due;
        arrived.extend(due.into_iter().map(|(_, report)| (None, report)));
        for place in (1..arrived.len()).rev() {
            let other = usize::try_from(chance.below(i64::try_from(place).unwrap() + 1)).unwrap();
            arrived.swap(place, other);
        }
        while !arrived.is_empty() {
            let most = usize::try_from(1 + chance.below(8)).unwrap();
            let group: Vec<_> = arrived.drain(..most.min(arrived.len())).collect();
            let reports: Vec<_> = group.iter().map(|(_, report)| read(report)).collect();
            let dies_at = chance.percent(10).then(|| chance.next() % 60 + 1);
            let at = Instant::from_micros(now);
            let taken = service.step(dies_at, |db, ingest, _| ingest.take(db, &reports, at).unwrap());
            for ((from, _), taken) in group.iter().zip(taken.unwrap_or_default()) {
                if let Some((number, place)) = from {
                    nodes[*number].answered(*place, &taken);
                }
            }
        }
        if chance.percent(15) {
            service.beside(&mut chance, Instant::from_micros(now));
        }
        if !closed && Instant::from_micros(now) >= closes_at {
            let dies_at = chance.percent(70).then(|| chance.next() % 400 + 1);
            let at = Instant::from_micros(now);
            let done = service.step(dies_at, |db, _, calendar| close(db, calendar, march, "test", || at).map(drop));
            closed = matches!(done, Some(Ok(())));
        }
    }
    assert!(closed && service.deaths > 0, "{} deaths", service.deaths);
    let end = Instant::from_micros((now.div_euclid(DAY_US) + 2) * DAY_US);
    compare(&mut service, &mut nodes, &mut chance, (from, end, march));
    println!("{sent} reports, {lost} lost, the service died {} times", service.deaths);
}

/// Lets everything arrive, and holds the books against what happened.
fn compare(service: &mut Service, nodes: &mut [Node], chance: &mut Chance, (from, end, march): (i64, Instant, Month)) {
    for node in nodes.iter_mut() {
        for place in 0..node.collectors.len() {
            while let Some(report) = node.report(chance, place, end.micros(), from) {
                let taken = service.step(None, |db, ingest, _| ingest.take(db, &[read(&report)], end).unwrap());
                node.answered(place, &taken.unwrap()[0]);
            }
        }
    }
    service.step(None, |db, _, calendar| {
        settle_old_heads(db, calendar, end.plus_micros(3 * HOUR_US).unwrap()).unwrap();
        counted::settle_days(db, calendar, end).unwrap();
        roll_up::roll_up(db, calendar, None).unwrap();
        Repricer::default().reprice(db, calendar, || end).unwrap();
    });
    let (db, calendar) = (service.db.as_mut().unwrap(), &service.calendar);
    let (expected, made) = (oracle(nodes, end.micros()), held(db));
    for key in expected.keys().chain(made.keys()) {
        assert_eq!(made.get(key), expected.get(key), "{key:?}");
    }
    // The money: what was charged then, what is corrected, and what is charged now, by team.
    let mut wanted: BTreeMap<&str, (i64, i128, i128)> = BTreeMap::new();
    for ((node, _, what), share) in &expected {
        if let Some(holder) = what.strip_prefix(&format!("{node}-")) {
            let sum = wanted.entry(team(holder.parse().unwrap())).or_default();
            *sum = (sum.0 + share, sum.1 + price(*share), sum.2 + 1);
        }
    }
    let april = march.next();
    let months: Vec<Month> = period::all(db).unwrap().into_iter().map(|state| state.period.month).collect();
    let mut charged: BTreeMap<String, (i64, i128)> = BTreeMap::new();
    for month in &months {
        for view in statements::of_period(db, calendar, *month, end).unwrap().statements {
            let sum = charged.entry(view.head.team_code).or_default();
            *sum = (sum.0 + view.head.sums.share_us, sum.1 + i128::from(view.head.sums.charged_micros));
        }
    }
    let entries = i128::try_from(late_usage::all(db).unwrap().len()).unwrap();
    for (team, (share_us, micros, _)) in &wanted {
        let (held_us, charged) = charged[*team];
        assert_eq!(held_us, *share_us, "team {team}");
        assert!((charged - micros).abs() <= entries, "team {team}: {charged} and not {micros}");
    }
    assert!(entries > 0, "nothing came late");
    println!("{} rows of node, day and holder differ by 0; {entries} entries correct March", expected.len());
    let open: i128 = open_month(db, calendar, april, None).unwrap().rows.values().map(|sums| sums.micros).sum();
    let drafts = statements::of_period(db, calendar, april, end).unwrap().statements;
    assert_eq!(open, drafts.iter().map(|view| i128::from(view.head.sums.charged_micros)).sum::<i128>());
    for month in months {
        let reconciled = reconcile(db, calendar, calendar.period(month).interval, end).unwrap();
        assert!(reconciled.days.iter().all(|day| day.difference_us == 0), "{reconciled:?}");
    }
    let again = recompute::recompute(db, calendar, || end).unwrap();
    assert_eq!((again.usage.differences, again.cost.differences), (0, 0));
}

on_both!(what_nodes_tell_through_faults_is_what_happened);
