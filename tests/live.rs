//! The demonstration's scripted node, through the way that real reports go.

use gpuledger::demo::live::LiveNode;
use gpuledger::workflows::held_now::held_now;
use gpuledger::workflows::reconcile::reconcile;
use gpuledger::workflows::roll_up;
use gpuledger_domain::calendar::BillingCalendar;
use gpuledger_domain::metering::State;
use gpuledger_wire::{Answer, Outcome, PROTOCOL, Settings};

use crate::support::reports::{SECOND_US, at, ingest, take};
use crate::support::{Books, on_both};

/// Twenty minutes over the end of an hour; every fifth answer is lost.
fn all_time_of_the_script_is_told_once(books: Books) {
    let books = books.migrated("UTC");
    let (mut db, calendar) = (books.db(), BillingCalendar::new("UTC").unwrap());
    let (mut ingest, from) = (ingest(&calendar), at("2025-03-01T10:52:07.300001Z"));
    let mut node = LiveNode::new(from);
    for turn in 1..=600 {
        let now = from.plus_micros(turn * 2 * SECOND_US + turn % 7 * 31_007).unwrap();
        let taken = take(&mut db, &mut ingest, &node.report(now), now);
        let fine = [Outcome::Accepted, Outcome::Known];
        assert!(taken.records.iter().all(|record| fine.contains(&record.outcome)), "{taken:?}");
        assert_eq!(taken.head.as_ref().unwrap().outcome, Outcome::Accepted);
        if turn % 5 != 0 {
            let settings = Settings {
                version: "1".into(),
                cuts_us: vec![at("2025-03-01T10:55:30Z").micros()],
                sample_interval_us: 1,
                report_interval_us: 1,
            };
            node.answered(now, &Answer { protocol: PROTOCOL, records: taken.records, head: taken.head, settings });
        }
    }
    roll_up::roll_up(&mut db, &calendar, None).unwrap();
    let now = from.plus_micros(1_200 * SECOND_US).unwrap();
    let reconciled = reconcile(&mut db, &calendar, calendar.day_of(from), now).unwrap();
    assert!(reconciled.findings.is_empty(), "{:?}", reconciled.findings);
    assert!(!reconciled.days.is_empty() && reconciled.days.iter().all(|day| day.difference_us == 0), "{reconciled:?}");
    let nodes = held_now(&mut db).unwrap();
    assert_eq!((nodes.len(), nodes[0].node.as_str()), (1, "scripted-node"));
    let units = &nodes[0].units;
    assert!(units.len() >= 2 && units.iter().any(|unit| unit.state == State::Held && unit.job.is_some()), "{units:?}");
}

on_both!(all_time_of_the_script_is_told_once);
