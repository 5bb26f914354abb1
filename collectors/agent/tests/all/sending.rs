//! How what is kept is sent: to services that are away, busy, or refuse.

use std::fs;
use std::time::Duration;

use gpuledger_agent::delivery::{Delivery, Failure, Step, delay};
use gpuledger_agent::outbox::Outbox;
use gpuledger_agent::segments::name_of;
use gpuledger_wire::{Answer, Clocks, Outcome, PROTOCOL, RecordAnswer, RecordCode, RecordName, Report, Settings};

use super::S;
use super::waiting::{BOOTED_FOR_US, HOUR, files, opened, report};

/// A service that answers as it is told to: why it does not take a report, where it does not.
struct Service<F> {
    sent: Vec<Report>,
    rule: F,
}

impl<F: FnMut(&Report) -> Option<Failure>> Service<F> {
    fn new(rule: F) -> Service<F> {
        Service { sent: Vec::new(), rule }
    }

    fn take(&mut self, report: &Report) -> Result<Answer, Failure> {
        self.sent.push(report.clone());
        match (self.rule)(report) {
            Some(failure) => Err(failure),
            None => Ok(answer(report, |_| Outcome::Accepted)),
        }
    }

    /// The numbers of what was taken or refused, report by report; those of a head are negative.
    fn numbers(&self) -> Vec<Vec<i64>> {
        let of = |report: &Report| {
            let finished = report.segments.iter().map(|told| i64::from(told.number));
            finished.chain(report.head.iter().map(|told| -i64::from(told.number))).collect()
        };
        self.sent.iter().map(of).collect()
    }
}

fn answer(report: &Report, outcome: impl Fn(RecordName) -> Outcome) -> Answer {
    let records = report.segments.iter().map(name_of);
    let records = records.map(|record| RecordAnswer {
        record: Some(record),
        outcome: outcome(record),
        code: (outcome(record) == Outcome::Conflict).then_some(RecordCode::OtherContent),
        message: String::new(),
    });
    let settings =
        Settings { version: "1".into(), cuts_us: Vec::new(), sample_interval_us: 10 * S, report_interval_us: 60 * S };
    Answer { protocol: PROTOCOL, records: records.collect(), head: None, settings }
}

fn clocks(second: i64) -> Clocks {
    Clocks { wall_us: HOUR + second * S, boot_us: BOOTED_FOR_US + second * S }
}

fn later(why: &str) -> Failure {
    Failure::Later { after: None, why: why.into() }
}

/// Steps until nothing is left to send or it waits.
fn steps(
    delivery: &mut Delivery,
    outbox: &Outbox,
    second: i64,
    service: &mut Service<impl FnMut(&Report) -> Option<Failure>>,
) -> Step {
    steps_at(delivery, outbox, clocks(second), service)
}

fn steps_at(
    delivery: &mut Delivery,
    outbox: &Outbox,
    now: Clocks,
    service: &mut Service<impl FnMut(&Report) -> Option<Failure>>,
) -> Step {
    loop {
        match delivery.step(outbox, now, 0, |report| service.take(report)) {
            Step::Went(_) => {}
            other => return other,
        }
    }
}

#[test]
fn the_oldest_goes_first_and_what_is_open_last_and_an_answer_is_the_end_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let outbox = Outbox::new(opened(folder.path()).0, "b-1");
    for (sequence, finished, open) in [(1, vec![0], vec![1]), (2, vec![1], vec![2]), (3, vec![], vec![2, 3])] {
        assert!(outbox.put(report(sequence, &finished, &open), false).finished);
    }
    let mut service = Service::new(|_| None);
    assert_eq!(steps(&mut Delivery::default(), &outbox, 700, &mut service), Step::Nothing);
    assert_eq!(service.numbers(), [vec![0], vec![1], vec![-2, -3]]);
    // Clocks are those of now, by the difference by which segments were placed.
    assert!(service.sent.iter().all(|report| report.clocks == clocks(700)));
    let tally = outbox.tally();
    assert_eq!((tally.reports_taken, tally.spool_reports, tally.spool_bytes), (3, 0, 0));
    assert_eq!(outbox.answers().len(), 1, "settings, once");
    assert_eq!(steps(&mut Delivery::default(), &outbox, 760, &mut service), Step::Nothing);
}

#[test]
fn an_outage_is_waited_out_with_growing_pauses_and_what_the_service_asks_for() {
    let folder = tempfile::tempdir().unwrap();
    let outbox = Outbox::new(opened(folder.path()).0, "b-1");
    outbox.put(report(1, &[0], &[1]), false);
    let mut delivery = Delivery::default();
    let mut waits = Vec::new();
    for _ in 0..10 {
        let mut down = Service::new(|_| Some(later("nobody listens")));
        let Step::Wait { delay, why } = steps(&mut delivery, &outbox, 0, &mut down) else { panic!() };
        assert_eq!(why, "nobody listens");
        waits.push(delay.as_millis());
        outbox.put(report(2, &[], &[1]), false);
    }
    assert_eq!(waits, [500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]);
    assert_eq!((delay(1, u32::MAX), delay(40, u32::MAX)), (Duration::from_secs(1), Duration::from_secs(120)));
    let busy = |_: &Report| Some(Failure::Later { after: Some(Duration::from_secs(300)), why: "busy".into() });
    let waits = steps(&mut delivery, &outbox, 0, &mut Service::new(busy));
    assert_eq!(waits, Step::Wait { delay: Duration::from_secs(300), why: "busy".into() });
    let mut up = Service::new(|_| None);
    assert_eq!(steps(&mut delivery, &outbox, 1_000, &mut up), Step::Nothing);
    assert!(up.numbers().contains(&vec![-1]), "{:?}", up.numbers());
    assert_eq!(outbox.tally().reports_failed, 11);
}

#[test]
fn a_batch_that_is_always_refused_costs_the_record_to_blame_and_holds_up_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let outbox = Outbox::new(opened(folder.path()).0, "b-1");
    outbox.put(report(1, &[0, 1, 2, 3, 4], &[]), false);
    outbox.put(report(2, &[5], &[6]), false);
    let bad = |report: &Report| report.jobs.iter().any(|job| job.source_id == "job-3");
    let mut service = Service::new(|report| bad(report).then(|| Failure::Never("a name cannot be".into())));
    assert_eq!(steps(&mut Delivery::default(), &outbox, 700, &mut service), Step::Nothing);
    let taken = service.sent.iter().filter(|report| !bad(report));
    let numbers: Vec<u32> = taken.flat_map(|report| report.segments.iter().map(|told| told.number)).collect();
    assert_eq!(numbers, [0, 1, 2, 4, 5]);
    let letters = fs::read_to_string(folder.path().join("dead-letters.jsonl")).unwrap();
    assert_eq!((letters.lines().count(), letters.contains("a name cannot be") && letters.contains("job-3")), (1, true));
    let tally = outbox.tally();
    assert_eq!((tally.records_refused, tally.spool_reports), (1, 0));
    // Parts name their own units and jobs alone.
    let alone = service.sent.iter().find(|report| report.segments.len() == 1 && !bad(report)).unwrap();
    assert_eq!((alone.jobs.len(), alone.segments[0].job), (1, Some(0)));
}

#[test]
fn records_that_the_service_holds_otherwise_are_dead_letters() {
    let folder = tempfile::tempdir().unwrap();
    let outbox = Outbox::new(opened(folder.path()).0, "b-1");
    outbox.put(report(1, &[0, 1], &[]), false);
    let conflict = |name: RecordName| if name.number == 1 { Outcome::Conflict } else { Outcome::Known };
    let step = Delivery::default().step(&outbox, clocks(700), 0, |report| Ok(answer(report, conflict)));
    assert_eq!(step, Step::Went(Some("a record was not taken: OtherContent ".into())));
    let letters = fs::read_to_string(folder.path().join("dead-letters.jsonl")).unwrap();
    assert!(letters.lines().count() == 1 && letters.contains("job-1") && !letters.contains("job-0"), "{letters}");
    assert_eq!(outbox.tally().spool_reports, 0);
}

#[test]
fn what_fails_for_its_own_sake_is_passed_over_and_tried_again_ten_minutes_later() {
    let folder = tempfile::tempdir().unwrap();
    let outbox = Outbox::new(opened(folder.path()).0, "b-1");
    outbox.put(report(1, &[0], &[]), false);
    outbox.put(Report { node: "old-name".into(), ..report(2, &[1], &[]) }, false);
    outbox.put(report(3, &[2], &[3]), false);
    let mut delivery = Delivery::default();
    let rule = |report: &Report| match report.segments.first().map(|told| told.number) {
        Some(0) => Some(later("the service failed")),
        Some(1) => Some(Failure::Held("another node's token".into())),
        _ => None,
    };
    let mut service = Service::new(rule);
    for _ in 0..3 {
        assert!(matches!(steps(&mut delivery, &outbox, 0, &mut service), Step::Wait { .. }));
    }
    assert_eq!(steps(&mut delivery, &outbox, 10, &mut service), Step::Nothing);
    assert_eq!(service.numbers(), [vec![0], vec![0], vec![0], vec![1], vec![2], vec![-3]]);
    service.sent.clear();
    assert_eq!(steps(&mut delivery, &outbox, 590, &mut service), Step::Nothing);
    assert!(service.sent.is_empty());
    let mut service = Service::new(|_| None);
    assert_eq!(steps(&mut delivery, &outbox, 620, &mut service), Step::Nothing);
    assert_eq!(service.numbers(), [vec![0], vec![1]]);
}

#[test]
fn an_end_after_the_answer_sends_it_again_and_a_later_boot_places_it_as_before() {
    let folder = tempfile::tempdir().unwrap();
    let outbox = Outbox::new(opened(folder.path()).0, "b-1");
    outbox.put(report(1, &[0], &[1]), false);
    let copy = tempfile::tempdir().unwrap();
    for path in files(folder.path(), ".spool").into_iter().chain([folder.path().join("open")]) {
        fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
    }
    assert_eq!(steps(&mut Delivery::default(), &outbox, 700, &mut Service::new(|_| None)), Step::Nothing);
    // As if it had ended before the file was gone, and the node had been booted anew: with a wrong clock at first.
    let outbox = Outbox::new(opened(copy.path()).0, "b-2");
    let now = Clocks { wall_us: HOUR + 9_000 * S, boot_us: 40 * S };
    let off = |record: &mut RecordAnswer| {
        (record.outcome, record.code) = (Outcome::Quarantined, Some(RecordCode::ClockOff));
    };
    let step = Delivery::default().step(&outbox, now, 0, |report| {
        let mut answer = answer(report, |_| Outcome::Accepted);
        answer.records.iter_mut().for_each(off);
        Ok(answer)
    });
    assert!(matches!(step, Step::Went(Some(_))) && outbox.tally().spool_reports == 2, "nobody would move it later");
    let mut service = Service::new(|_| None);
    while !matches!(Delivery::default().step(&outbox, now, 0, |report| service.take(report)), Step::Nothing) {}
    assert_eq!(service.numbers(), [vec![0], vec![1]]);
    let placed = Clocks { wall_us: now.wall_us, boot_us: BOOTED_FOR_US + 9_000 * S };
    assert!(service.sent.iter().all(|report| report.clocks == placed && report.boot_id == "b-1"));
}

#[test]
fn of_an_earlier_boot_whose_clock_was_off_the_clocks_go_as_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let (mut spool, _) = opened(folder.path());
    spool.put(&report(1, &[0], &[1]), true);
    spool.put(&report(2, &[2], &[]), false);
    drop(spool);
    let outbox = Outbox::new(opened(folder.path()).0, "b-2");
    // The clock was set back since: what was told last ends ahead of it.
    let now = Clocks { wall_us: HOUR + 5 * S, boot_us: 40 * S };
    let mut service = Service::new(|_| None);
    assert_eq!(steps_at(&mut Delivery::default(), &outbox, now, &mut service), Step::Nothing);
    let made = report(1, &[], &[]).clocks;
    let ends = Clocks { wall_us: HOUR + 30 * S, boot_us: BOOTED_FOR_US + 30 * S };
    let sent: Vec<Clocks> = service.sent.iter().map(|report| report.clocks).collect();
    assert_eq!(sent, [made, ends]);
}
