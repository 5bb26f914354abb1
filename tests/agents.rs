//! Collectors, as they were heard last.

use gpuledger::export;
use gpuledger::workflows::agents::agents;
use gpuledger_domain::calendar::BillingCalendar;
use gpuledger_domain::units::Fraction;
use gpuledger_wire::{Clocks, Report};

use crate::reports::catalogues;
use crate::support::reports::{SECOND_US, at, full, ingest, job, report, segment, take};
use crate::support::{Books, command, on_both};

fn each_node_tells_when_it_was_heard_and_how_far_its_clock_is_off(books: Books) {
    let books = books.migrated("UTC");
    let (mut db, calendar) = (books.db(), BillingCalendar::new("UTC").unwrap());
    catalogues(&mut db, &calendar);
    let mut ingest = ingest(&calendar);
    let now = at("2025-03-10T12:00:00Z");
    // Three hours ago, and nothing is open: its last report is settled.
    let held = |hours: [&str; 2]| segment(0, Some(0), at(hours[0]), at(hours[1]));
    let silent = Report {
        units: vec![full("n2", at("2025-03-10T08:00:00Z").micros())],
        jobs: vec![job("2", "a", at("2025-03-10T08:00:00Z"))],
        segments: vec![held(["2025-03-10T08:00:00Z", "2025-03-10T09:00:00Z"])],
        ..report("n2", 1_000, 1, at("2025-03-10T09:00:00Z"))
    };
    take(&mut db, &mut ingest, &silent, at("2025-03-10T09:00:00Z"));
    gpuledger::workflows::ingest::settle_old_heads(&mut db, &calendar, now).unwrap();
    let heard = Report {
        clocks: Clocks { wall_us: now.micros() + 90 * SECOND_US, boot_us: 1_000 },
        units: vec![full("n1", at("2025-03-10T10:00:00Z").micros())],
        jobs: vec![job("1", "a", at("2025-03-10T10:00:00Z"))],
        segments: vec![held(["2025-03-10T10:30:00Z", "2025-03-10T11:00:00Z"])],
        head: vec![held(["2025-03-10T11:00:00Z", "2025-03-10T11:59:00Z"])],
        ..report("n1", 1_000, 1, now)
    };
    take(&mut db, &mut ingest, &heard, now);
    let later = now.plus_micros(20 * SECOND_US).unwrap();
    let found = agents(&mut db, &calendar, later).unwrap();
    let [n1, n2] = found.as_slice() else { panic!("{found:?}") };
    let last = n1.last.as_ref().unwrap();
    assert_eq!((last.received_at, last.clock_ahead_us, last.open_segments), (now, 90 * SECOND_US, 1));
    assert_eq!((last.collector.as_str(), n1.findings), ("test/1", 0));
    assert_eq!((n2.node.as_str(), &n2.last, n2.findings), ("n2", &None, 0));
    // What is open is not summed yet.
    assert_eq!((n1.exists_us, n1.unobserved_us), (Fraction::whole(i128::from(1_800 * SECOND_US)), Fraction::ZERO));
    let text = export::agents::text(&found, later).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[1].starts_with("c/n2  not for two hours") && lines[2].starts_with("c/n1  20 s ago"), "{text}");
    assert!(lines[2].contains("test/1") && lines[2].contains("90000"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&export::agents::json(&found).unwrap()).unwrap();
    assert_eq!(json["agents"][0]["last_report"]["clock_ahead_us"], 90 * SECOND_US);
    assert!(json["agents"][1]["last_report"].is_null());
    assert!(command::run(&books, &["agents"]).good().contains("c/n1"));
}

on_both!(each_node_tells_when_it_was_heard_and_how_far_its_clock_is_off);
