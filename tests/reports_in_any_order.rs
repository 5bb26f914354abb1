//! The law of idempotence, on random stories: whatever the order, the batching and the repetition of reports, and
//! wherever a collector is started anew, the books are the same, and no instant of a GPU is lost or doubled.

use gpuledger_db::usage;
use gpuledger_domain::calendar::BillingCalendar;
use gpuledger_domain::time::{Instant, Interval};
use gpuledger_wire::{Outcome, Report};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::reports::{catalogues, told};
use crate::support::reports::{SECOND_US, at, full, ingest, job, report, segment, take};
use crate::support::{Books, on_both};

/// What happened on a node: who held its GPU when, told by collectors of one epoch or two.
#[derive(Clone, Debug)]
struct Story {
    /// Lengths in seconds, and who held it: nobody, a job of a or of b, or nobody told.
    pieces: Vec<(i64, u8)>,
    /// Where the collector was started anew, as an index of a piece; it tells the piece before once more.
    restart: usize,
}

fn story() -> impl Strategy<Value = Story> {
    (prop::collection::vec((1i64..5_000, 0u8..4), 1..12), 0usize..14)
        .prop_map(|(pieces, restart)| Story { pieces, restart })
}

/// One report for each segment, whole hours cut.
fn reports(node: &str, story: &Story, from: Instant, now: Instant) -> Vec<Report> {
    let mut reports = Vec::new();
    let (mut time, mut numbers) = (from, std::collections::BTreeMap::new());
    let jobs = [job(&format!("{node}-1"), "a", from), job(&format!("{node}-2"), "b", from)];
    let mut second_sight = from;
    for (index, (seconds, who)) in story.pieces.iter().enumerate() {
        let end = time.plus_micros(seconds * SECOND_US).unwrap();
        let epochs: &[i64] = match index.cmp(&story.restart) {
            std::cmp::Ordering::Less => &[1_000],
            // The new collector tells of the time in which the old one still did.
            std::cmp::Ordering::Equal => {
                second_sight = time;
                &[1_000, 9_000_000]
            }
            std::cmp::Ordering::Greater => &[9_000_000],
        };
        for epoch in epochs {
            for (hour, part) in Interval::new(time, end).unwrap().by_hour() {
                let number = numbers.entry((*epoch, hour.number())).or_insert(0u32);
                *number += 1;
                let holder = match who {
                    0 => None,
                    1 | 2 => Some(0),
                    _ => continue,
                };
                let jobs = if *who == 0 { Vec::new() } else { vec![jobs[usize::from(*who) - 1].clone()] };
                let segments = vec![segment(*number, holder, part.start(), part.end())];
                // Each collector tells of a birth when it saw the GPU first.
                let birth = if *epoch == 1_000 { from } else { second_sight };
                let units = vec![full(node, birth.micros())];
                reports.push(Report { units, jobs, segments, ..report(node, *epoch, u64::from(*number), now) });
            }
        }
        time = end;
    }
    reports
}

/// Joins reports of one epoch into one where `joins` says so.
fn batched(reports: Vec<Report>, joins: &[bool]) -> Vec<Report> {
    let mut batched: Vec<Report> = Vec::new();
    for (report, join) in reports.into_iter().zip(joins.iter().cycle()) {
        match batched.last_mut() {
            Some(last)
                if *join && (&last.node, last.epoch, &last.units) == (&report.node, report.epoch, &report.units) =>
            {
                let before = u32::try_from(last.jobs.len()).unwrap();
                last.jobs.extend(report.jobs);
                let moved = |segment: gpuledger_wire::Segment| gpuledger_wire::Segment {
                    job: segment.job.map(|job| job + before),
                    ..segment
                };
                last.segments.extend(report.segments.into_iter().map(moved));
            }
            _ => batched.push(report),
        }
    }
    batched
}

fn any_order_batching_and_repetition_of_reports_leaves_the_same_books(books: Books) {
    let postgres = books.schema().is_some();
    drop(books);
    let cases = if postgres { 8 } else { 24 };
    let mut runner = TestRunner::new(ProptestConfig { cases, ..ProptestConfig::default() });
    let strategy = (
        [story(), story()],
        prop::collection::vec(any::<prop::sample::Index>(), 1..40),
        prop::collection::vec(any::<bool>(), 1..10),
        prop::sample::select(vec!["UTC", "Asia/Kolkata", "Europe/Berlin"]),
    );
    let ran = runner.run(&strategy, |(stories, order, joins, zone)| {
        let calendar = BillingCalendar::new(zone).unwrap();
        let (from, now) = (at("2025-03-30T22:10:00Z"), at("2025-04-02T05:00:00Z"));
        let straight: Vec<Report> =
            stories.iter().zip(["n1", "n2"]).flat_map(|(story, node)| reports(node, story, from, now)).collect();
        prop_assume!(!straight.is_empty());
        let mut mixed = straight.clone();
        // Some come twice, and all in another order.
        for index in &order {
            let report = mixed[index.index(mixed.len())].clone();
            let place = index.index(mixed.len() + 1);
            mixed.insert(place, report);
        }
        for (place, index) in order.iter().enumerate() {
            let other = index.index(mixed.len());
            let place = place % mixed.len();
            mixed.swap(place, other);
        }
        let mixed = batched(mixed, &joins);
        let mut texts = Vec::new();
        for reports in [straight, mixed] {
            let books = if postgres { Books::postgres() } else { Books::sqlite() }.migrated(zone);
            let mut db = books.db();
            catalogues(&mut db, &calendar);
            let mut ingest = ingest(&calendar);
            for report in &reports {
                let taken = take(&mut db, &mut ingest, report, now);
                prop_assert!(
                    taken.records.iter().all(|answer| matches!(answer.outcome, Outcome::Accepted | Outcome::Known))
                );
            }
            let text = told(&mut db, &calendar, "2025-03", now) + &told(&mut db, &calendar, "2025-04", now);
            // The law of time: from the first instant of which a node told to the end of its last whole day.
            let whole = Interval::new(Instant::from_micros(0), now).unwrap();
            let summed: i64 = usage::of_interval(&mut db, whole).unwrap().iter().map(|usage| usage.share_us).sum();
            let mut existed = 0;
            for watch in gpuledger_db::node_watch::all(&mut db).unwrap() {
                let last = reports.iter().flat_map(|r| &r.segments).map(|s| s.end_us).max().unwrap();
                prop_assert!(last < watch.settled_until.micros());
                existed += watch.settled_until.micros() - watch.from.micros();
            }
            prop_assert_eq!(summed, existed);
            texts.push(text);
        }
        prop_assert_eq!(&texts[0], &texts[1]);
        Ok(())
    });
    if let Err(failed) = ran {
        panic!("{failed}");
    }
}

on_both!(any_order_batching_and_repetition_of_reports_leaves_the_same_books);
