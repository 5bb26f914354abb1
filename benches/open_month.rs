//! What it takes to keep open months beside reports: a simulated hour of many nodes (what is written, how long sums and
//! prices take), and how fast a team's open month is read where it holds millions of rows of usage. Run by `./test bench`;
//! the numbers of nodes and of rows can be set.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, missing_docs)]
#![allow(clippy::float_arithmetic, clippy::cast_precision_loss)]

use std::time::Instant as Watch;

use gpuledger::import::report::{NodeReport, read_report};
use gpuledger::workflows::apply_catalogue::{Wanted, apply};
use gpuledger::workflows::books::Books;
use gpuledger::workflows::ingest::Ingest;
use gpuledger::workflows::open_month::open_month;
use gpuledger::workflows::reprice::{Repricer, mark_unpriced};
use gpuledger::workflows::{migrate, roll_up};
use gpuledger_db::catalogue::CatalogueKind;
use gpuledger_db::dimensions::{self, NodeKind};
use gpuledger_db::{Database, Db, allocation, check, period, usage};
use gpuledger_domain::calendar::{BillingCalendar, Month};
use gpuledger_domain::ids::{ClusterName, FactSetId, JobId, PoolName, SkuCode, TeamCode};
use gpuledger_domain::metering::{State, Usage, UsageKey};
use gpuledger_domain::pricing::{Sku, SkuSlices};
use gpuledger_domain::time::{HOUR_US, Instant};
use gpuledger_wire::{Clocks, Epoch, Facts, Gpu, Job, PROTOCOL, Report, Segment, Telemetry, Unit, UnitKind};

const GPUS: u32 = 8;
const MINUTE_US: i64 = 60_000_000;
const TEAMS: usize = 40;

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn now() -> Instant {
    Instant::parse("2025-04-01T00:00:00Z").unwrap()
}

fn applied(db: &mut Db, calendar: &BillingCalendar, kind: CatalogueKind, body: &str) {
    use gpuledger::files::{SourceText, prices, rules, teams};
    let source = SourceText::new("bench.toml", body);
    let read = |books: &mut Books| {
        match kind {
            CatalogueKind::Teams => books.teams = teams::parse(&source, calendar)?,
            CatalogueKind::Prices => books.prices = prices::parse(&source, calendar, prices::Checks::All)?,
            _ => books.rules = rules::parse(&source, calendar)?,
        }
        Ok(body.to_owned())
    };
    apply(db, calendar, &Wanted { kind, actor: "bench", read: &read }, now()).unwrap();
}

fn books(db: &mut Db, calendar: &BillingCalendar) {
    let teams: String =
        (0..TEAMS).map(|team| format!("[[team]]\ncode = \"t{team}\"\nname = \"Team {team}\"\n")).collect();
    applied(db, calendar, CatalogueKind::Teams, &teams);
    let prices =
        "[[sku]]\ncode = \"h100/full\"\naliases = [\"H100/full\"]\n[[price]]\nsku = \"h100/full\"\nrate = \"2.50\"\n";
    applied(db, calendar, CatalogueKind::Prices, prices);
    let rules = "[[rule]]\nname = \"r\"\nteam_from = \"account\"\nexperiment_from = \"name\"\n";
    applied(db, calendar, CatalogueKind::Rules, rules);
}

/// A report of a node at a minute of the hour: the jobs of its GPUs change once within it, each at another minute.
fn report(node: usize, minute: i64, hour: Instant) -> Report {
    let (from, wall) = (hour.micros(), hour.micros() + minute * MINUTE_US);
    let unit = |gpu: u32| Unit {
        gpu: Gpu { uuid: format!("GPU-{node}-{gpu}"), model: "H100".into(), compute_slices: 7, memory_slices: 8 },
        kind: UnitKind::Full,
        uuid: String::new(),
        profile: String::new(),
        compute_slices: 7,
        memory_slices: 8,
        birth_us: from,
        death_us: None,
    };
    let job = |gpu: u32, turn: usize| Job {
        source_id: format!("{node}-{gpu}-{turn}"),
        start_us: from,
        facts: Facts {
            account: format!("t{}", (node + turn) % TEAMS),
            user: format!("u{}", node % 500),
            name: format!("e{}", node % 20),
            ..Facts::default()
        },
    };
    let segment = |gpu: u32, turn: usize, start: i64, end: i64| Segment {
        number: gpu * 2 + u32::try_from(turn).unwrap(),
        unit: gpu,
        job: Some(gpu * 2 + u32::try_from(turn).unwrap()),
        state: gpuledger_wire::State::Held,
        start_us: start,
        end_us: end,
        share_us: end - start,
        active_us: Some(end - start),
        estimated_us: 0,
        suspended_us: 0,
        telemetry: Telemetry::default(),
    };
    let (mut finished, mut head) = (Vec::new(), Vec::new());
    for gpu in 0..GPUS {
        let change = 1 + i64::try_from(node).unwrap().wrapping_mul(7).wrapping_add(i64::from(gpu) * 13) % 58;
        let changed = from + change * MINUTE_US;
        match minute {
            60 => finished.push(segment(gpu, 1, changed, from + HOUR_US)),
            minute if minute == change => {
                finished.push(segment(gpu, 0, from, changed));
            }
            minute if minute < change => head.push(segment(gpu, 0, from, wall)),
            _ => head.push(segment(gpu, 1, changed, wall)),
        }
    }
    Report {
        protocol: PROTOCOL,
        cluster: "bench".into(),
        node: format!("n{node}"),
        boot_id: "b".into(),
        epoch: Epoch { start_us: from, random: 1 },
        sequence: u64::try_from(minute).unwrap(),
        clocks: Clocks { wall_us: wall, boot_us: 0 },
        collector: "bench/1".into(),
        units: (0..GPUS).map(unit).collect(),
        jobs: (0..GPUS).flat_map(|gpu| [job(gpu, 0), job(gpu, 1)]).collect(),
        segments: finished,
        head,
    }
}

fn read(report: &Report) -> NodeReport {
    read_report(&serde_json::to_vec(report).unwrap(), "").unwrap()
}

/// What this process wrote to disk; or what the server's log of changes grew to.
fn written(db: &mut Db) -> i64 {
    match db {
        Db::Lite(_) => {
            let io = std::fs::read_to_string("/proc/self/io").unwrap();
            io.lines().find_map(|line| line.strip_prefix("write_bytes: ")).unwrap().parse().unwrap()
        }
        Db::Pg(_) => {
            // Counted in mebibytes, as rows.
            let grown = "generate_series(1, ((pg_current_wal_lsn() - '0/0'::pg_lsn) / 1048576)::bigint) AS mebibytes";
            check::rows(db, grown).unwrap() * 1_048_576
        }
    }
}

fn an_hour(name: &str, db: &mut Db, calendar: &BillingCalendar, nodes: usize) {
    let hour = Instant::parse("2025-03-31T10:00:00Z").unwrap();
    let mut ingest = Ingest::new(calendar.clone(), PoolName::parse("p").unwrap());
    let mut repricer = Repricer::default();
    let before = written(db);
    let (mut took, mut slowest, mut dearest) = (0.0, 0.0f64, 0.0f64);
    for minute in 1..=60 {
        let at = hour.plus_micros(minute * MINUTE_US).unwrap();
        for group in (0..nodes).collect::<Vec<_>>().chunks(64) {
            let reports: Vec<NodeReport> = group.iter().map(|node| read(&report(*node, minute, hour))).collect();
            let watch = Watch::now();
            ingest.take(db, &reports, at).unwrap();
            took += watch.elapsed().as_secs_f64();
        }
        let watch = Watch::now();
        roll_up::roll_up(db, calendar, None).unwrap();
        slowest = slowest.max(watch.elapsed().as_secs_f64());
        let watch = Watch::now();
        repricer.reprice(db, calendar, || at).unwrap();
        dearest = dearest.max(watch.elapsed().as_secs_f64());
    }
    let bytes = written(db) - before;
    println!(
        "{name}: an hour of {nodes} nodes: {:.2} GB written, {:.0} GB a day; stored in {took:.0} s; all marked days summed in {slowest:.1} s and priced in {dearest:.1} s at the longest",
        bytes as f64 / 1e9,
        bytes as f64 * 24.0 / 1e9,
    );
}

fn a_month(name: &str, db: &mut Db, calendar: &BillingCalendar, rows: usize) {
    let march = Month::parse("2025-03").unwrap();
    let within = calendar.period(march);
    let cluster = dimensions::intern_cluster(db, &ClusterName::parse("bench").unwrap()).unwrap();
    let sku = Sku { code: SkuCode::parse("H100/full").unwrap(), slices: SkuSlices::FULL };
    let sku = dimensions::intern_sku(db, &sku).unwrap();
    let days = calendar.days(within.interval);
    let nodes = 1_000;
    let jobs_a_day = rows / days.len() / nodes;
    let facts: Vec<FactSetId> = (0..4_000)
        .map(|set| {
            let (account, user, name) = (set % TEAMS, set % 500, set % 200);
            let body = format!(
                "{{\"cluster\":\"bench\",\"user\":\"u{user}\",\"account\":\"t{account}\",\"name\":\"e{name}\"}}"
            );
            let sha256: Vec<u8> = (0..32u8).map(|byte| byte ^ u8::try_from(set % 251).unwrap()).collect();
            let sha256 = [&sha256[..24], &u64::try_from(set).unwrap().to_be_bytes()].concat();
            dimensions::intern_fact_set(db, &sha256, &body).unwrap()
        })
        .collect();
    let jobs: Vec<JobId> = (0..20_000)
        .map(|job| allocation::intern_job(db, cluster, &format!("m{job}"), Instant::from_micros(1)).unwrap())
        .collect();
    period::ensure(db, &within).unwrap();
    for node in 0..nodes {
        let id = dimensions::intern_node(db, cluster, &format!("m{node}"), NodeKind::Machine).unwrap();
        dimensions::put_into_pool(db, id, Instant::MIN, &PoolName::parse("p").unwrap()).unwrap();
        db.transaction(|db| {
            for (place, day) in days.iter().enumerate() {
                let mut usages: Vec<Usage> = (0..jobs_a_day)
                    .map(|turn| {
                        let turn = place * 31 + node * jobs_a_day + turn;
                        Usage {
                            key: UsageKey {
                                slot: *day,
                                node: id,
                                job: jobs[turn % jobs.len()],
                                facts: facts[turn % facts.len()],
                                sku,
                                state: State::Held,
                            },
                            share_us: 3_000_000_007,
                            active_us: 0,
                            active_measured_us: 0,
                            estimated_us: 0,
                            suspended_us: 0,
                            segments: 1,
                        }
                    })
                    .collect();
                usages.sort_by_key(|usage| usage.key);
                usages.dedup_by_key(|usage| usage.key);
                usage::replace_day(db, id, *day, &usages)?;
            }
            Ok::<(), gpuledger_db::DbError>(())
        })
        .unwrap();
    }
    mark_unpriced(db, calendar).unwrap();
    let watch = Watch::now();
    let priced = Repricer::default().reprice(db, calendar, now).unwrap();
    let took = watch.elapsed().as_secs_f64();
    let usages = check::rows(db, "usage").unwrap();
    let costs = check::rows(db, "open_cost").unwrap();
    let team = TeamCode::parse("t7").unwrap();
    let mut times: Vec<f64> = (0..21)
        .map(|_| {
            let watch = Watch::now();
            let month = open_month(db, calendar, march, Some(&team)).unwrap();
            assert!(!month.rows.is_empty() && month.waiting == 0);
            watch.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!(
        "{name}: a month of {usages} rows of usage: {priced} days priced in {took:.1} s into {costs} rows; a team's month read in {:.1} ms (median of 21, longest {:.1})",
        times[10], times[20]
    );
}

fn main() {
    let nodes = number("GPULEDGER_BENCH_NODES", 1_000);
    let rows = number("GPULEDGER_BENCH_USAGE_ROWS", 200_000);
    let calendar = BillingCalendar::new("UTC").unwrap();
    let folder = tempfile::tempdir_in(".").unwrap();
    let mut places: Vec<(&str, String, Option<String>)> = ["hour", "month"]
        .map(|file| ("SQLite", format!("sqlite://{}/{file}.db", folder.path().display()), None))
        .into();
    if let Ok(server) = std::env::var("GPULEDGER_TEST_POSTGRES_URL") {
        for part in ["hour", "month"] {
            let schema = format!("bench_open_{part}_{}", std::process::id());
            let joint = if server.contains('?') { "&" } else { "?" };
            let url = format!("{server}{joint}options=-csearch_path%3D{schema}");
            places.push(("PostgreSQL", url, Some(schema)));
        }
    }
    for (place, (name, url, schema)) in places.iter().enumerate() {
        let server = std::env::var("GPULEDGER_TEST_POSTGRES_URL").unwrap_or_default();
        if let Some(schema) = schema {
            Database::parse(&server).unwrap().create().unwrap().execute(&format!("CREATE SCHEMA {schema}")).unwrap();
        }
        let database = Database::parse(url).unwrap();
        migrate::migrate(&database, &calendar).unwrap();
        let mut db = database.open().unwrap();
        books(&mut db, &calendar);
        match place % 2 {
            0 => an_hour(name, &mut db, &calendar, nodes),
            _ => a_month(name, &mut db, &calendar, rows),
        }
        drop(db);
        if let Some(schema) = schema {
            let mut db = Database::parse(&server).unwrap().create().unwrap();
            db.execute(&format!("DROP SCHEMA {schema} CASCADE")).unwrap();
        }
    }
}
