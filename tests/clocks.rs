//! Nodes whose clock was off: what they told counts where it belongs once the clock is right, and is never doubled.

use gpuledger::workflows::reconcile::reconcile;
use gpuledger::workflows::{late_facts, roll_up};
use gpuledger_db::{Db, allocation, usage};
use gpuledger_domain::calendar::BillingCalendar;
use gpuledger_domain::metering::State;
use gpuledger_domain::time::{Instant, Interval};
use gpuledger_wire::{Clocks, Outcome, RecordCode, Report};

use crate::agent::{Machine, clocks, sends_whatever_comes_of_it};
use crate::reports::catalogues;
use crate::support::reports::{SECOND_US, at, full, ingest, job, report, segment, take};
use crate::support::{Books, on_both};

/// Seconds that each job held in each day, by its id.
fn held(db: &mut Db, calendar: &BillingCalendar) -> Vec<(String, String, i64)> {
    roll_up::roll_up(db, calendar, None).unwrap();
    let whole = Interval::new(Instant::from_micros(0), Instant::MAX).unwrap();
    let usages = usage::of_interval(db, whole).unwrap();
    let jobs: Vec<_> = usages.iter().map(|usage| usage.key.job).collect();
    let names = allocation::names(db, &jobs).unwrap();
    let mut held: Vec<_> = usages
        .iter()
        .filter(|usage| usage.key.state == State::Held)
        .map(|usage| {
            let day = calendar.date_text(usage.key.slot.start());
            (day, names[&usage.key.job].1.source_id.clone(), usage.share_us / SECOND_US)
        })
        .collect();
    held.sort();
    held
}

fn what_came_under_a_wrong_clock_counts_where_it_belongs_once_it_is_right(books: Books) {
    let books = books.migrated("UTC");
    let (mut db, calendar) = (books.db(), BillingCalendar::new("UTC").unwrap());
    catalogues(&mut db, &calendar);
    let mut ingest = ingest(&calendar);
    // The node booted at 8:00. Its clock is twenty minutes and a day ahead: what it calls 10:50 to 11:00 and 11:00 to 11:40
    // tomorrow is 10:30 to 11:20 today.
    let booted = at("2025-03-01T08:00:00Z").micros();
    let ahead = (86_400 + 1_200) * SECOND_US;
    let wrong = |text: &str| Instant::from_micros(at(text).micros() + ahead);
    let clocks = |now: Instant, off: i64| Clocks { wall_us: now.micros() + off, boot_us: now.micros() - booted };
    let now = at("2025-03-01T11:30:00Z");
    let first = segment(3, Some(0), wrong("2025-03-01T10:30:00Z"), wrong("2025-03-01T10:40:00Z"));
    let second = segment(3, Some(0), wrong("2025-03-01T10:40:00Z"), wrong("2025-03-01T11:20:00Z"));
    let off = Report {
        clocks: clocks(now, ahead),
        units: vec![full("n1", wrong("2025-03-01T08:00:00Z").micros())],
        jobs: vec![job("7", "a", wrong("2025-03-01T10:30:00Z"))],
        segments: vec![first, second],
        ..report("n1", 2_000, 1, now)
    };
    let taken = take(&mut db, &mut ingest, &off, now);
    let codes: Vec<_> = taken.records.iter().map(|record| (record.outcome, record.code)).collect();
    assert_eq!(codes, [(Outcome::Quarantined, Some(RecordCode::ClockOff)); 2]);
    assert_eq!(ingest.replace_in_time(&mut db, now).unwrap(), 0, "nobody knows yet where it belongs");
    // A collector that was started before, and saw ten minutes of the same time by a right clock, has the last word of them.
    let before = Report {
        clocks: clocks(now, 0),
        boot_id: "another".into(),
        jobs: vec![job("6", "b", at("2025-03-01T09:00:00Z"))],
        segments: vec![segment(1, Some(0), at("2025-03-01T10:50:00Z"), at("2025-03-01T11:00:00Z"))],
        ..report("n1", 1_000, 1, now)
    };
    take(&mut db, &mut ingest, &before, now);
    assert_eq!(ingest.replace_in_time(&mut db, now).unwrap(), 0, "the clock of another boot says nothing");
    let later = at("2025-03-01T11:40:00Z");
    let right = Report { clocks: clocks(later, 0), ..report("n1", 2_000, 2, later) };
    take(&mut db, &mut ingest, &right, later);
    assert_eq!(ingest.replace_in_time(&mut db, later).unwrap(), 2);
    let wanted = [("1 March 2025".into(), "6".into(), 600), ("1 March 2025".into(), "7".into(), 2_400)];
    assert_eq!(held(&mut db, &calendar), wanted);
    // It is told again by the wrong clock, and re-placed by another process: still once.
    take(&mut db, &mut ingest, &off, later);
    let mut other = crate::support::reports::ingest(&calendar);
    assert_eq!(other.replace_in_time(&mut db, later).unwrap(), 0);
    assert_eq!(held(&mut db, &calendar), wanted);
    let kept = late_facts::kept_aside(&mut db).unwrap();
    assert!(kept.len() == 2 && kept.iter().all(|kept| kept.reason == "the node's clock was off; re-placed since"));
}

/// Records that no clock can make right are refused at once, and those of the future wait.
fn what_is_wrong_by_any_clock_is_not_kept(books: Books) {
    let books = books.migrated("UTC");
    let (mut db, calendar) = (books.db(), BillingCalendar::new("UTC").unwrap());
    catalogues(&mut db, &calendar);
    let mut ingest = ingest(&calendar);
    let now = at("2025-03-01T11:30:00Z");
    let clocks = |wall: Instant, boot: i64| Clocks { wall_us: wall.micros(), boot_us: boot * SECOND_US };
    let mut ends_of_time = segment(1, Some(0), at("2025-03-01T10:00:00Z"), at("2025-03-01T10:10:00Z"));
    (ends_of_time.start_us, ends_of_time.end_us) = (i64::MAX - 1, i64::MAX);
    // As its wrong clock tells, ten minutes of the future of the report that comes later.
    let early = segment(2, Some(0), at("2025-03-01T10:00:00Z"), at("2025-03-01T10:10:00Z"));
    let off = Report {
        clocks: clocks(at("2025-03-01T10:20:00Z"), 5_000),
        jobs: vec![job("7", "a", at("2025-03-01T10:00:00Z"))],
        segments: vec![ends_of_time, early],
        ..report("n1", 2_000, 1, now)
    };
    let taken = take(&mut db, &mut ingest, &off, now);
    let outcomes: Vec<_> = taken.records.iter().map(|record| record.outcome).collect();
    assert_eq!(outcomes, [Outcome::Rejected, Outcome::Quarantined]);
    // This boot's right clock says that the record ends after the report: boot-time 4,400 s is 11:31.
    let right = |sequence, boot, wall| Report { clocks: clocks(wall, boot), ..report("n1", 2_000, sequence, wall) };
    let before = right(2, 4_340, now);
    take(&mut db, &mut ingest, &before, now);
    assert_eq!(ingest.replace_in_time(&mut db, now).unwrap(), 0, "it is not there yet");
    assert!(held(&mut db, &calendar).is_empty());
    let later = at("2025-03-01T11:40:00Z");
    take(&mut db, &mut ingest, &right(3, 4_940, later), later);
    assert_eq!(ingest.replace_in_time(&mut db, later).unwrap(), 1);
    assert_eq!(held(&mut db, &calendar), [("1 March 2025".into(), "7".into(), 600)]);
}

const ONE_GPU: &str = "[[device]]\nname = \"NVIDIA A10\"\nuuid = \"GPU-0\"\npci = \"00000000:01:00.0\"\nmemory_mib = 23028\n[[device.state]]\nat = 0\n[[device.state.process]]\npid = 100\n";

fn a_boot_with_the_clock_a_year_back_is_charged_where_it_belongs(books: Books) {
    let books = books.migrated("UTC");
    let (mut db, calendar) = (books.db(), BillingCalendar::new("UTC").unwrap());
    catalogues(&mut db, &calendar);
    let mut ingest = ingest(&calendar);
    let from = at("2025-03-10T10:00:00Z");
    let year = 365 * 86_400 * SECOND_US;
    let machine = Machine::new(ONE_GPU);
    machine.process(100, "7", "a", -5);
    // The time service sets the clock right after ten minutes.
    let seen = |second: i64| {
        let right = clocks(from, second);
        Clocks { wall_us: right.wall_us - if second < 600 { year } else { 0 }, ..right }
    };
    let mut node = machine.node(seen(0));
    let mut starts = 1;
    for second in (0..=1_800).step_by(10) {
        std::fs::write(machine.library().with_extension("clock"), (second * SECOND_US).to_string()).unwrap();
        let looked = node.look(seen(second));
        assert_eq!(looked.findings.len(), usize::from(second == 600), "{second}: {:?}", looked.findings);
        if second % 60 == 0 {
            let misplaced = node.is_misplaced(seen(second));
            if misplaced || second == 1_800 {
                node.end();
            }
            sends_whatever_comes_of_it(&mut db, &mut ingest, &mut node, clocks(from, second));
            if misplaced {
                node.begin_anew(seen(second), 8);
                starts += 1;
            }
        }
    }
    assert_eq!(starts, 2);
    let now = from.plus_micros(1_800 * SECOND_US).unwrap();
    assert!(ingest.replace_in_time(&mut db, now).unwrap() > 0);
    assert_eq!(held(&mut db, &calendar), [("10 March 2025".into(), "7".into(), 1_800)]);
    let reconciled = reconcile(&mut db, &calendar, calendar.day_of(from), now).unwrap();
    assert!(
        reconciled.days.iter().all(|day| day.difference_us == 0) && reconciled.findings.is_empty(),
        "{reconciled:?}"
    );
    let kept = late_facts::kept_aside(&mut db).unwrap();
    assert!(!kept.is_empty() && kept.iter().all(|kept| kept.reason == "the node's clock was off; re-placed since"));
}

on_both!(
    a_boot_with_the_clock_a_year_back_is_charged_where_it_belongs,
    what_is_wrong_by_any_clock_is_not_kept,
    what_came_under_a_wrong_clock_counts_where_it_belongs_once_it_is_right
);
