//! How fast final segments are stored, beside what the databases' own loaders do with the same rows.
//!
//! Ours: into the real table, with its key, in transactions of 50,000, each row once however often it comes.
//! Theirs: `sqlite3 .import` and psql's `\copy` into a bare table without a key. Each pair runs in turn, three times;
//! what counts is the median of the ratios. Run by `./test bench`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, missing_docs)]
#![allow(clippy::float_arithmetic, clippy::cast_precision_loss)]

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use gpuledger::workflows::migrate;
use gpuledger_db::{Database, Db, segment};
use gpuledger_domain::calendar::BillingCalendar;
use gpuledger_domain::ids::{FactSetId, JobId, NodeId, SkuId, UnitId};
use gpuledger_domain::metering::{Segment, SegmentKey, Source, State};
use gpuledger_domain::time::{Hour, Interval};

const ROWS: i64 = 500_000;
const ROUNDS: usize = 3;
const BARE: &str = "hour bigint, node_id integer, epoch bigint, number bigint, on_node_id integer, unit_id integer, sku_id integer, job_id bigint, \
    fact_set_id integer, state smallint, source smallint, start_us bigint, end_us bigint, count integer, share_us bigint, active_us bigint, \
    estimated_us bigint, suspended_us bigint";

/// As an agent's would come: 250 jobs in each of 2,000 hours of a quarter.
fn segments() -> Vec<Segment> {
    let first = 420_000;
    (0..ROWS)
        .map(|row| {
            let hour = Hour::from_number(first + row / 250);
            let interval = Interval::new(hour.start(), hour.next().start()).unwrap();
            let job = 1 + row % 250;
            Segment {
                key: SegmentKey { hour, node: NodeId(1), epoch: job, number: 1 << 20 },
                on_node: NodeId(0),
                unit: UnitId(0),
                sku: SkuId(1),
                job: JobId(job),
                facts: FactSetId(1),
                state: State::Held,
                source: Source::Scheduler,
                interval,
                count: 8,
                share_us: 8 * interval.length_us(),
                active_us: None,
                estimated_us: 0,
                suspended_us: 0,
            }
        })
        .collect()
}

fn csv(segments: &[Segment]) -> String {
    let mut text = String::new();
    for s in segments {
        let (key, at) = (s.key, s.interval);
        writeln!(
            text,
            "{},{},{},{},0,0,1,{},1,1,2,{},{},{},{},,0,0",
            key.hour.number(),
            key.node.0,
            key.epoch,
            key.number,
            s.job.0,
            at.start().micros(),
            at.end().micros(),
            s.count,
            s.share_us
        )
        .unwrap();
    }
    text
}

fn seconds(work: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    work();
    begun.elapsed().as_secs_f64()
}

fn store(db: &mut Db, segments: &[Segment]) {
    for chunk in segments.chunks(50_000) {
        db.transaction(|db| segment::insert(db, chunk)).unwrap();
    }
}

fn report(name: &str, theirs_name: &str, rounds: &[(f64, f64)], again: f64) {
    let mut ratios: Vec<f64> = rounds.iter().map(|(ours, theirs)| theirs / ours).collect();
    ratios.sort_by(f64::total_cmp);
    let (ours, theirs) = rounds[rounds.len() / 2];
    let rate = |seconds: f64| ROWS as f64 / seconds / 1_000.0;
    println!(
        "{name}: {:.0} thousand rows/s; {theirs_name} {:.0}; ratio {:.2} (of {ROUNDS}: {:.2} to {:.2}); all rows again {:.0}",
        rate(ours),
        rate(theirs),
        ratios[ratios.len() / 2],
        ratios[0],
        ratios[ratios.len() - 1],
        rate(again)
    );
}

fn sqlite(folder: &Path, list: &Path, segments: &[Segment]) {
    let mut rounds = Vec::new();
    let mut again = 0.0;
    for round in 0..ROUNDS {
        let ours = folder.join(format!("ours-{round}.db"));
        let database = Database::parse(&format!("sqlite://{}", ours.display())).unwrap();
        migrate::migrate(&database, &BillingCalendar::new("UTC").unwrap()).unwrap();
        let mut db = database.open().unwrap();
        let stored = seconds(|| store(&mut db, segments));
        again = seconds(|| store(&mut db, segments));
        let bare = folder.join(format!("bare-{round}.db"));
        let imported = seconds(|| {
            let status = Command::new("sqlite3")
                .arg(&bare)
                .arg(format!("CREATE TABLE bare ({BARE})"))
                .arg(".mode csv")
                .arg(format!(".import {} bare", list.display()))
                .status()
                .expect("sqlite3 is installed");
            assert!(status.success());
        });
        assert_eq!(gpuledger_db::check::rows(&mut db, "segment").unwrap(), ROWS);
        rounds.push((stored, imported));
    }
    report("SQLite", "sqlite3 .import", &rounds, again);
}

fn postgres(list: &Path, segments: &[Segment]) {
    let Ok(server) = std::env::var("GPULEDGER_TEST_POSTGRES_URL") else {
        println!("PostgreSQL: left out, GPULEDGER_TEST_POSTGRES_URL names no server");
        return;
    };
    let mut rounds = Vec::new();
    let mut again = 0.0;
    for _ in 0..ROUNDS {
        let mut admin = Database::parse(&server).unwrap().create().unwrap();
        admin.execute("DROP SCHEMA IF EXISTS bench CASCADE; CREATE SCHEMA bench").unwrap();
        let database = Database::parse(&format!("{server}&options=-csearch_path%3Dbench")).unwrap();
        migrate::migrate(&database, &BillingCalendar::new("UTC").unwrap()).unwrap();
        let mut db = database.open().unwrap();
        let stored = seconds(|| store(&mut db, segments));
        again = seconds(|| store(&mut db, segments));
        db.execute(&format!("CREATE TABLE bare ({BARE})")).unwrap();
        let copied = seconds(|| {
            let copy = format!("\\copy bench.bare FROM '{}' WITH (FORMAT csv)", list.display());
            let status = Command::new("psql").args([&server, "-q", "-c", &copy]).status().expect("psql is installed");
            assert!(status.success());
        });
        assert_eq!(gpuledger_db::check::rows(&mut db, "segment").unwrap(), ROWS);
        rounds.push((stored, copied));
        admin.execute("DROP SCHEMA bench CASCADE").unwrap();
    }
    report("PostgreSQL", "psql \\copy", &rounds, again);
}

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let segments = segments();
    let list = folder.path().join("segments.csv");
    std::fs::write(&list, csv(&segments)).unwrap();
    println!("{ROWS} segments");
    sqlite(folder.path(), &list, &segments);
    postgres(&list, &segments);
}
