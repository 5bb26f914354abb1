use proptest::prelude::*;

use super::*;
use crate::ids::{FactSetId, NodeId};
use crate::metering::SegmentKey;
use crate::time::Hour;

const MINUTE: i64 = 60_000_000;

fn minutes(from: i64, until: i64) -> Interval {
    Interval::new(Instant::from_micros(from * MINUTE), Instant::from_micros(until * MINUTE)).unwrap()
}

fn seen(unit: i32, state: State, job: i64, (from, until): (i64, i64)) -> Segment {
    let interval = minutes(from, until);
    Segment {
        key: SegmentKey { hour: Hour::from_number(0), node: NodeId(1), epoch: 1, number: from },
        on_node: NodeId(1),
        unit: UnitId(unit),
        sku: SkuId(1),
        job: JobId(job),
        facts: FactSetId(i32::from(job != 0)),
        state,
        source: Source::Agent,
        interval,
        count: 1,
        share_us: interval.length_us(),
        active_us: None,
        estimated_us: 0,
        suspended_us: 0,
    }
}

fn book(job: i64, count: i32, (from, until): (i64, i64)) -> Segment {
    let mut segment = seen(0, State::Held, job, (from, until));
    segment.key = SegmentKey { node: NodeId(9), epoch: job, ..segment.key };
    segment.source = Source::Scheduler;
    segment.facts = FactSetId(7);
    segment.count = count;
    segment.share_us *= i64::from(count);
    segment
}

fn order(units: i32) -> UnitOrder {
    UnitOrder {
        ranks: (1..=units).map(|unit| (UnitId(unit), usize::try_from(unit).unwrap())).collect(),
        meant: BTreeMap::new(),
    }
}

/// Who held what, in minutes: unit, job, from, until, whether by the books.
fn held(made: &BesideBooks) -> Vec<(i32, i64, i64, i64, bool)> {
    let mut held: Vec<_> = made
        .segments
        .iter()
        .filter(|segment| segment.state == State::Held)
        .map(|segment| {
            let minute = |at: Instant| at.micros() / MINUTE;
            let (from, until) = (minute(segment.interval.start()), minute(segment.interval.end()));
            (segment.unit.0, segment.job.0, from, until, segment.source == Source::Scheduler)
        })
        .collect();
    held.sort_unstable();
    held
}

fn of(seen: &[Segment], books: &[Segment], units: i32) -> BesideBooks {
    beside_books(seen.to_vec(), books, &order(units), &mut LastHeld::new()).unwrap()
}

#[test]
fn what_nobody_saw_is_held_by_whom_the_books_say_on_the_unit_it_held_last() {
    let told = [
        seen(1, State::Idle, 0, (0, 60)),
        seen(2, State::Idle, 0, (0, 10)),
        seen(2, State::Held, 5, (10, 20)),
        seen(2, State::Unobserved, 0, (20, 60)),
    ];
    // It held unit 2 last; before it was seen, the first in order is taken.
    let made = of(&told, &[book(5, 1, (5, 30))], 2);
    assert_eq!(held(&made), [(1, 5, 5, 10, true), (2, 5, 10, 20, false), (2, 5, 20, 30, true)]);
    assert!(made.findings.is_empty());
    let estimated: i64 = made.segments.iter().map(|segment| segment.estimated_us).sum();
    assert_eq!(estimated, 15 * MINUTE);
}

#[test]
fn what_others_hold_is_not_given_away_and_excess_is_named() {
    let told =
        [seen(1, State::Held, 4, (0, 60)), seen(2, State::Idle, 0, (0, 60)), seen(3, State::OutOfService, 0, (0, 60))];
    let made = of(&told, &[book(5, 3, (0, 30)), book(4, 0, (30, 60))], 3);
    assert_eq!(held(&made), [(1, 4, 0, 60, false), (2, 5, 0, 30, true)]);
    let found: Vec<_> = made.findings.iter().map(|found| (found.job.0, found.what, found.interval)).collect();
    assert_eq!(found, [(4, Disagreement::SeenMore, minutes(30, 60)), (5, Disagreement::AllocatedMore, minutes(0, 30))]);
    // A unit that is shared is no free one, and a remainder is never given.
    let mut shared = seen(1, State::Idle, 0, (0, 60));
    shared.share_us /= 2;
    assert_eq!(held(&of(&[shared], &[book(5, 1, (0, 60))], 1)), []);
    assert_eq!(held(&of(&[seen(1, State::Idle, 0, (0, 60))], &[book(5, 1, (0, 60))], 0)), []);
}

#[test]
fn suspended_time_of_the_books_goes_with_the_time_that_is_given() {
    let mut suspended = book(5, 2, (0, 60));
    suspended.suspended_us = suspended.share_us / 4;
    let told = [seen(1, State::Unobserved, 0, (0, 60)), seen(2, State::Unobserved, 0, (0, 60))];
    let made = of(&told, &[suspended], 2);
    assert_eq!(made.segments.iter().map(|segment| segment.suspended_us).sum::<i64>(), 30 * MINUTE);
}

fn any_seen() -> impl Strategy<Value = Vec<Segment>> {
    let states = prop::collection::vec((0u8..4, 1i64..4), 4);
    prop::collection::vec(states, 1..4).prop_map(|units| {
        let mut all = Vec::new();
        for (unit, states) in (1..).zip(units) {
            for (quarter, (state, job)) in (0..).zip(states) {
                let (state, job) = match state {
                    0 => (State::Held, job),
                    1 => (State::Idle, 0),
                    2 => (State::Unobserved, 0),
                    _ => (State::OutOfService, 0),
                };
                all.push(seen(unit, state, job, (quarter * 15, quarter * 15 + 15)));
            }
        }
        all
    })
}

proptest! {
    #[test]
    fn time_stays_and_no_job_gets_more_than_its_books_tell(
        told in any_seen(),
        books in prop::collection::vec((1i32..4, 0i64..59, 1i64..60), 0..3),
    ) {
        let books: Vec<Segment> = (1..).zip(books)
            .map(|(job, (count, from, length))| book(job, count, (from, (from + length).min(60))))
            .collect();
        let made = of(&told, &books, 3);
        let time = |segments: &[Segment], unit: UnitId| -> i64 {
            segments.iter().filter(|segment| segment.unit == unit).map(|segment| segment.share_us).sum()
        };
        for unit in (1..4).map(UnitId) {
            prop_assert_eq!(time(&told, unit), time(&made.segments, unit));
        }
        // What was seen to be held, or out of service, stays so.
        for segment in told.iter().filter(|segment| !is_free(segment)) {
            prop_assert!(made.segments.contains(segment));
        }
        for minute in 0..60 {
            let at = Instant::from_micros(minute * MINUTE);
            for book in &books {
                let of_job = |segment: &&Segment| segment.job == book.job && segment.state == State::Held && segment.interval.contains(at);
                let before = told.iter().filter(of_job).count();
                let after = made.segments.iter().filter(of_job).count();
                let allowed = if book.interval.contains(at) { usize::try_from(book.count).unwrap() } else { 0 };
                prop_assert!(after == before || after <= allowed, "{} {} {}", before, after, allowed);
                let free = told.iter().any(|segment| is_free(segment) && segment.interval.contains(at));
                if after < allowed && free && books.len() == 1 {
                    let left = made.segments.iter().any(|segment| is_free(segment) && segment.interval.contains(at));
                    prop_assert!(!left, "a free unit was not given");
                }
            }
        }
    }
}
