//! Reports of collectors: each GPU-second once, whatever happens on the way.

use std::fmt::Write;

use gpuledger::workflows::collector_tokens::{self, NewToken};
use gpuledger::workflows::ingest::settle_old_heads;
use gpuledger::workflows::reconcile::{FindingKind, reconcile};
use gpuledger::workflows::{counted, roll_up, statements};
use gpuledger_db::catalogue::CatalogueKind;
use gpuledger_db::{Db, check, period, reported_segment, usage};
use gpuledger_domain::calendar::{BillingCalendar, Month};
use gpuledger_domain::metering::{Disagreement, State};
use gpuledger_domain::time::{HOUR_US, Instant};
use gpuledger_domain::units::Fraction;
use gpuledger_wire::{Outcome, RecordCode, Report, Unit, UnitKind};

use crate::support::jobs::{apply_text, import};
use crate::support::reports::{SECOND_US, at, full, ingest, job, report, segment, take};
use crate::support::{Books, on_both};

const TEAMS: &str = "[[team]]\ncode = \"a\"\nname = \"A\"\n[[team]]\ncode = \"b\"\nname = \"B\"\n";
const RULES: &str = "[[rule]]\nname = \"r\"\nteam_from = \"account\"\n";
const PRICES: &str =
    "[[sku]]\ncode = \"h100/full\"\naliases = [\"H100/full\"]\n[[price]]\nsku = \"h100/full\"\nrate = \"7.00\"\n";

pub fn catalogues(db: &mut Db, calendar: &BillingCalendar) {
    for (kind, text) in [(CatalogueKind::Teams, TEAMS), (CatalogueKind::Prices, PRICES), (CatalogueKind::Rules, RULES)]
    {
        apply_text(db, calendar, kind, text).unwrap();
    }
}

/// Everything that was summed of a month, in words that no number decides, and the drafts' totals.
pub fn told(db: &mut Db, calendar: &BillingCalendar, month: &str, now: Instant) -> String {
    counted::settle_days(db, calendar, now).unwrap();
    roll_up::roll_up(db, calendar, None).unwrap();
    let month = Month::parse(month).unwrap();
    let mut text = String::new();
    let skus = gpuledger_db::dimensions::skus(db).unwrap();
    let nodes = gpuledger_db::dimensions::machines(db).unwrap();
    let names = gpuledger_db::allocation::names_with_usage(db, calendar.period(month).interval).unwrap();
    let mut lines: Vec<String> = usage::of_interval(db, calendar.period(month).interval)
        .unwrap()
        .iter()
        .map(|usage| {
            let job = names.get(&usage.key.job).map_or("", |(_, name)| name.source_id.as_str());
            format!(
                "{} {} {job} {} {:?} {} {} {} {}",
                usage.key.slot,
                nodes.get(&usage.key.node).map_or("pool", |(_, name)| name.as_str()),
                skus[&usage.key.sku].code,
                usage.key.state,
                usage.share_us,
                usage.active_us,
                usage.estimated_us,
                usage.segments
            )
        })
        .collect();
    lines.sort();
    for line in lines {
        writeln!(text, "{line}").unwrap();
    }
    let reconciled = reconcile(db, calendar, calendar.period(month).interval, now).unwrap();
    assert!(reconciled.days.iter().all(|day| day.difference_us == 0), "{reconciled:?}");
    text += &gpuledger::export::reconciliation::json(&reconciled).unwrap();
    let views = statements::of_period(db, calendar, month, now).unwrap();
    for view in views.statements {
        let csv = gpuledger::export::csv::statement(&view).unwrap();
        text += &String::from_utf8(csv.into()).unwrap();
    }
    text
}

fn rel_01_a_batch_that_is_sent_again_cut_differently_counts_once(books: Books) {
    let books = books.migrated("UTC");
    let (mut db, calendar) = (books.db(), BillingCalendar::new("UTC").unwrap());
    let mut ingest = ingest(&calendar);
    let (start, now) = (at("2025-03-01T10:00:00Z"), at("2025-03-01T11:00:00Z"));
    let ten_minutes = |number: u32| {
        let from = start.plus_micros(i64::from(number - 1) * 600 * SECOND_US).unwrap();
        segment(number, Some(0), from, from.plus_micros(600 * SECOND_US).unwrap())
    };
    let batch = |node: &str, numbers: &[u32]| {
        let jobs = vec![job("1", "a", start)];
        let segments = numbers.iter().map(|number| ten_minutes(*number)).collect();
        Report { jobs, segments, ..report(node, 1_000, 1, now) }
    };
    let mut outcomes = |report: &Report| -> Vec<Outcome> {
        take(&mut db, &mut ingest, report, now).records.into_iter().map(|answer| answer.outcome).collect()
    };
    use Outcome::{Accepted, Conflict, Known};
    assert_eq!(outcomes(&batch("node-a", &[1, 2, 3])), [Accepted, Accepted, Accepted]);
    assert_eq!(outcomes(&batch("node-a", &[1, 2])), [Known, Known]);
    assert_eq!(outcomes(&batch("node-a", &[3, 4])), [Known, Accepted]);
    let mut other = batch("node-a", &[2]);
    other.segments[0].end_us += 300 * SECOND_US;
    other.segments[0].share_us += 300 * SECOND_US;
    assert_eq!(outcomes(&other), [Conflict]);
    assert_eq!(outcomes(&other), [Conflict]);
    let mut small = batch("node-b", &[1]);
    small.segments[0].end_us -= 300 * SECOND_US;
    small.segments[0].share_us -= 300 * SECOND_US;
    assert_eq!(outcomes(&small), [Accepted]);
    assert_eq!(reported_segment::all_aside(&mut db).unwrap().len(), 1);
    counted::settle_days(&mut db, &calendar, now).unwrap();
    roll_up::roll_up(&mut db, &calendar, None).unwrap();
    let month = calendar.period_of(start).interval;
    let held = usage::of_interval(&mut db, month).unwrap();
    let held: i64 = held.iter().filter(|u| u.key.state == State::Held).map(|u| u.share_us).sum();
    assert_eq!(held, 2_700 * SECOND_US);
}

const MAPPING: &str = "[time]\nformat = \"unix-seconds\"\n[columns]\nid = \"id\"\nstart = \"start\"\nend = \"end\"\ngpus_per_node = \"gpus\"\naccount = \"account\"\nsku = \"sku\"\nnodes = \"node\"\n[constants]\ncluster = \"c\"\npool = \"p\"\n";

fn a_job_of_a_list_and_of_a_report_is_charged_once_whichever_came_first(books: Books) {
    let postgres = books.schema().is_some();
    drop(books);
    let calendar = BillingCalendar::new("UTC").unwrap();
    let (start, end, now) = (at("2025-03-01T10:00:00Z"), at("2025-03-01T10:30:00Z"), at("2025-03-03T00:00:00Z"));
    let (first, last) = (start.micros() / SECOND_US, end.micros() / SECOND_US);
    let list = format!(
        "id,start,end,gpus,account,sku,node\n7,{first},{last},1,a,H100/full,n1\n8,{first},{last},1,b,H100/full,n2\n"
    );
    // The same list with nodes and without.
    let without_nodes = MAPPING.replace("nodes = \"node\"\n", "").replace("gpus_per_node", "gpus");
    let reported = Report {
        jobs: vec![job("7", "a", start)],
        segments: vec![segment(1, Some(0), start, end)],
        ..report("n1", 1_000, 1, now)
    };
    for mapping in [MAPPING, &without_nodes] {
        let mut texts = Vec::new();
        for list_first in [true, false] {
            let books = if postgres { Books::postgres() } else { Books::sqlite() }.migrated("UTC");
            let mut db = books.db();
            catalogues(&mut db, &calendar);
            let cluster = gpuledger_domain::ids::ClusterName::parse("c").unwrap();
            let wanted = NewToken { cluster: &cluster, node: "", note: "", actor: "test" };
            collector_tokens::create(&mut db, &wanted, &mut |_| Ok(()), now).unwrap();
            let mut ingest = ingest(&calendar);
            for step in [list_first, !list_first] {
                if step {
                    let (counts, refused) = import(&mut db, &calendar, mapping, list.as_bytes());
                    assert_eq!((counts.added, refused.len()), (2, 0));
                } else {
                    take(&mut db, &mut ingest, &reported, now);
                }
                roll_up::roll_up(&mut db, &calendar, None).unwrap();
            }
            let text = told(&mut db, &calendar, "2025-03", now);
            let whole = calendar.period_of(start).interval;
            let held = usage::of_interval(&mut db, whole).unwrap();
            let held: i64 = held.iter().filter(|u| u.key.state == State::Held).map(|u| u.share_us).sum();
            assert_eq!(held, 2 * 1_800 * SECOND_US);
            texts.push(text);
        }
        assert_eq!(texts[0], texts[1]);
    }
}

fn days_that_begin_within_an_hour_are_told_apart(books: Books) {
    let books = books.migrated("Asia/Kolkata");
    let (mut db, calendar) = (books.db(), BillingCalendar::new("Asia/Kolkata").unwrap());
    catalogues(&mut db, &calendar);
    let mut ingest = ingest(&calendar);
    // The second day begins at 18:30.
    let (start, middle, now) = (at("2025-03-01T18:00:00Z"), at("2025-03-01T18:30:00Z"), at("2025-03-03T20:00:00Z"));
    let end = at("2025-03-01T19:00:00Z");
    let (first, last) = (start.micros() / SECOND_US, end.micros() / SECOND_US);
    let list = format!("id,start,end,gpus,account,sku,node\n7,{first},{last},1,a,H100/full,n1\n");
    import(&mut db, &calendar, MAPPING, list.as_bytes());
    let held = |db: &mut Db| -> i64 {
        roll_up::roll_up(db, &calendar, None).unwrap();
        let usages = usage::of_interval(db, calendar.period_of(start).interval).unwrap();
        usages.iter().filter(|u| u.key.state == State::Held).map(|u| u.share_us).sum()
    };
    assert_eq!(held(&mut db), HOUR_US);
    // The collector saw ten minutes of each half.
    for (sequence, from) in [(1u64, start), (2, middle)] {
        let until = from.plus_micros(600 * SECOND_US).unwrap();
        let number = u32::try_from(sequence).unwrap();
        let jobs = vec![job("other", "b", start)];
        let part = Report {
            jobs,
            segments: vec![segment(number, Some(0), from, until)],
            ..report("n1", 1_000, sequence, now)
        };
        take(&mut db, &mut ingest, &part, now);
        // Of the second half the list counts until a collector tells of it; then the list fills the first half, all of
        // which is known to have been.
        let of_list = if sequence == 1 { HOUR_US / 2 } else { 1_200 * SECOND_US };
        assert_eq!(held(&mut db), of_list + i64::from(number) * 600 * SECOND_US);
    }
    // Once the day is over, all of the hour is held: by the job that was seen, and else by the one that the list knows.
    counted::settle_days(&mut db, &calendar, now).unwrap();
    assert_eq!(held(&mut db), HOUR_US);
}

fn a_head_that_nobody_replaced_counts_until_its_final_segment_comes(books: Books) {
    let books = books.migrated("UTC");
    let (mut db, calendar) = (books.db(), BillingCalendar::new("UTC").unwrap());
    let mut ingest = ingest(&calendar);
    let (start, now) = (at("2025-03-01T10:00:00Z"), at("2025-03-01T10:20:00Z"));
    let jobs = vec![job("1", "a", start)];
    let open =
        Report { jobs: jobs.clone(), head: vec![segment(1, Some(0), start, now)], ..report("n1", 1_000, 5, now) };
    assert_eq!(take(&mut db, &mut ingest, &open, now).head.unwrap().outcome, Outcome::Accepted);
    // An older head of the epoch changes nothing.
    let older = Report { sequence: 4, ..open.clone() };
    assert_eq!(take(&mut db, &mut ingest, &older, now).head.unwrap().code, Some(RecordCode::Superseded));
    let held = |db: &mut Db| -> i64 {
        roll_up::roll_up(db, &calendar, None).unwrap();
        let usages = usage::of_interval(db, calendar.period_of(start).interval).unwrap();
        usages.iter().filter(|u| u.key.state == State::Held).map(|u| u.share_us).sum()
    };
    assert_eq!(held(&mut db), 0);
    let soon = now.plus_micros(HOUR_US).unwrap();
    assert_eq!(settle_old_heads(&mut db, &calendar, soon).unwrap(), 0);
    let later = now.plus_micros(3 * HOUR_US).unwrap();
    assert_eq!(settle_old_heads(&mut db, &calendar, later).unwrap(), 1);
    assert_eq!(settle_old_heads(&mut db, &calendar, later).unwrap(), 0);
    assert_eq!(held(&mut db), 1_200 * SECOND_US);
    let end = at("2025-03-01T10:40:00Z");
    let finished = Report { jobs, segments: vec![segment(1, Some(0), start, end)], ..report("n1", 1_000, 6, later) };
    assert_eq!(take(&mut db, &mut ingest, &finished, later).records[0].outcome, Outcome::Accepted);
    assert_eq!(take(&mut db, &mut ingest, &finished, later).records[0].outcome, Outcome::Known);
    assert_eq!(held(&mut db), 2_400 * SECOND_US);
    // What people chose is cut, so that a head is never too large to be read again.
    let minute = end.plus_micros(60 * SECOND_US).unwrap();
    let mut large = Report { sequence: 7, head: vec![segment(2, Some(0), end, minute)], ..open.clone() };
    large.clocks.wall_us = later.micros();
    large.jobs[0].facts.name = "x".repeat(5 << 20);
    assert_eq!(take(&mut db, &mut ingest, &large, later).head.unwrap().outcome, Outcome::Accepted);
    assert_eq!(settle_old_heads(&mut db, &calendar, later.plus_micros(3 * HOUR_US).unwrap()).unwrap(), 1);
    assert_eq!(held(&mut db), 2_460 * SECOND_US);
    // A head that comes after the final segment of its identity changes nothing.
    let late = Report {
        epoch: gpuledger_wire::Epoch { start_us: 99_000, random: 1 },
        jobs: vec![],
        head: vec![],
        ..open.clone()
    };
    take(&mut db, &mut ingest, &late, now);
    take(&mut db, &mut ingest, &open, now);
    assert_eq!(held(&mut db), 2_460 * SECOND_US);
}

fn what_the_parts_of_a_unit_did_is_kept_with_its_segment(books: Books) {
    let books = books.migrated("UTC");
    let (mut db, calendar) = (books.db(), BillingCalendar::new("UTC").unwrap());
    let mut ingest = ingest(&calendar);
    let (start, end) = (at("2025-03-01T10:00:00Z"), at("2025-03-01T10:30:00Z"));
    let measured = |total: u64| Some(gpuledger_wire::Total { total, measured_us: 1_700 * SECOND_US });
    let telemetry = gpuledger_wire::Telemetry { sm_activity: measured(7), tensor: measured(0), ..Default::default() };
    let told = gpuledger_wire::Segment { telemetry, ..segment(1, Some(0), start, end) };
    let jobs = vec![job("1", "a", start)];
    let reported = |segments, sequence| Report { jobs: jobs.clone(), segments, ..report("n1", 1_000, sequence, end) };
    let outcome = |db: &mut Db, ingest: &mut _, report: &Report| take(db, ingest, report, end).records[0].outcome;
    assert_eq!(outcome(&mut db, &mut ingest, &reported(vec![told.clone()], 1)), Outcome::Accepted);
    assert_eq!(outcome(&mut db, &mut ingest, &reported(vec![told.clone()], 2)), Outcome::Known);
    let mut other = told.clone();
    other.telemetry.memory_activity = measured(1);
    assert_eq!(outcome(&mut db, &mut ingest, &reported(vec![other.clone()], 3)), Outcome::Conflict);
    // More than the time it was measured for cannot be.
    other.number = 2;
    other.telemetry.sm_occupancy = measured(u64::MAX >> 1);
    let refused = take(&mut db, &mut ingest, &reported(vec![other], 4), end);
    assert_eq!(refused.records[0].code, Some(RecordCode::BadTotals));
    assert_eq!(check::rows(&mut db, "segment_activity").unwrap(), 1);
    // That of a head is replaced together with what the head became.
    let open = gpuledger_wire::Segment { number: 3, ..told.clone() };
    let head = Report { jobs: jobs.clone(), head: vec![open.clone()], ..report("n1", 1_000, 5, end) };
    assert_eq!(take(&mut db, &mut ingest, &head, end).head.unwrap().outcome, Outcome::Accepted);
    let later = end.plus_micros(3 * HOUR_US).unwrap();
    assert_eq!(settle_old_heads(&mut db, &calendar, later).unwrap(), 1);
    assert_eq!(check::rows(&mut db, "segment_activity").unwrap(), 2);
    let finished = gpuledger_wire::Segment { telemetry: gpuledger_wire::Telemetry::default(), ..open };
    assert_eq!(outcome(&mut db, &mut ingest, &reported(vec![finished], 6)), Outcome::Accepted);
    assert_eq!(check::rows(&mut db, "segment_activity").unwrap(), 1);
    assert_eq!(check::orphans(&mut db).unwrap(), []);
}

fn what_cannot_count_now_is_kept_aside(books: Books) {
    let books = books.migrated("UTC");
    let (mut db, calendar) = (books.db(), BillingCalendar::new("UTC").unwrap());
    catalogues(&mut db, &calendar);
    let mut ingest = ingest(&calendar);
    let (start, end) = (at("2025-03-01T10:00:00Z"), at("2025-03-01T10:30:00Z"));
    let reported = |wall: Instant| Report {
        jobs: vec![job("1", "a", start)],
        segments: vec![segment(1, Some(0), start, end)],
        ..report("n1", 1_000, 1, wall)
    };
    let off = take(&mut db, &mut ingest, &reported(at("2025-03-01T12:00:00Z")), at("2025-03-01T12:05:01Z"));
    assert_eq!((off.records[0].outcome, off.records[0].code), (Outcome::Quarantined, Some(RecordCode::ClockOff)));
    assert_eq!(reported_segment::all_aside(&mut db).unwrap().len(), 1);
    // Another node's month is closed; then this comes with its clock right.
    let list = format!(
        "id,start,end,gpus,account,sku,node\n8,{},{},1,b,H100/full,n2\n",
        start.micros() / SECOND_US,
        end.micros() / SECOND_US
    );
    import(&mut db, &calendar, MAPPING, list.as_bytes());
    let march = Month::parse("2025-03").unwrap();
    let now = at("2025-04-01T00:00:00Z");
    gpuledger::workflows::close::close(&mut db, &calendar, march, "test", || now).unwrap();
    assert!(period::find(&mut db, march).unwrap().unwrap().closing.is_some());
    let late = take(&mut db, &mut ingest, &reported(now), now);
    assert_eq!(late.records[0].outcome, Outcome::Accepted);
    let reasons: Vec<_> = reported_segment::all_aside(&mut db).unwrap().into_iter().map(|aside| aside.reason).collect();
    // A unit that was there all the time, told of only now, changes nothing that is closed.
    let state = |db: &mut Db| {
        let usages = usage::of_interval(db, calendar.period(march).interval).unwrap();
        (period::find(db, march).unwrap().unwrap().usage_version, usages)
    };
    let (before, minute) = (state(&mut db), now.plus_micros(60 * SECOND_US).unwrap());
    let april = Report { segments: vec![segment(0, None, now, minute)], ..report("n1", 1_000, 2, minute) };
    take(&mut db, &mut ingest, &april, minute);
    told(&mut db, &calendar, "2025-04", at("2025-04-03T00:00:00Z"));
    assert_eq!(state(&mut db), before);
    // Nor does it where all days of March are summed again.
    let watched = gpuledger_db::node_watch::all(&mut db).unwrap();
    let days = calendar.days(calendar.period(march).interval);
    let marks: Vec<_> = days.iter().map(|day| usage::Mark { day_start: day.start(), node: watched[0].node }).collect();
    usage::mark(&mut db, &marks).unwrap();
    roll_up::roll_up(&mut db, &calendar, None).unwrap();
    assert!(usage::marks(&mut db, None).unwrap().is_empty());
    assert_eq!(state(&mut db), before);
    // It is one record, and the first reason is the one that is kept.
    assert_eq!(reasons, [reported_segment::AsideReason::ClockOff]);
}

fn silence_is_unobserved_and_a_retired_node_is_no_more(books: Books) {
    let books = books.migrated("UTC");
    let (mut db, calendar) = (books.db(), BillingCalendar::new("UTC").unwrap());
    let mut ingest = ingest(&calendar);
    let (start, end) = (at("2025-03-01T10:00:00Z"), at("2025-03-01T11:00:00Z"));
    let reported = Report { segments: vec![segment(1, None, start, end)], ..report("n1", 1_000, 1, end) };
    take(&mut db, &mut ingest, &reported, end);
    let unobserved = |db: &mut Db, now: Instant| -> i64 {
        counted::settle_days(db, &calendar, now).unwrap();
        roll_up::roll_up(db, &calendar, None).unwrap();
        let usages = usage::of_interval(db, calendar.period_of(start).interval).unwrap();
        usages.iter().filter(|u| u.key.state == State::Unobserved).map(|u| u.share_us).sum()
    };
    // The day is not over: nobody knows yet what is still to come.
    assert_eq!(unobserved(&mut db, at("2025-03-01T20:00:00Z")), 0);
    assert_eq!(unobserved(&mut db, at("2025-03-02T00:00:00Z")), 13 * HOUR_US);
    assert_eq!(unobserved(&mut db, at("2025-03-04T09:00:00Z")), (13 + 48) * HOUR_US);
    gpuledger::workflows::retire_node::retire(
        &mut db,
        &calendar,
        ("c", "n1"),
        Some(at("2025-03-02T06:00:00Z")),
        ("test", at("2025-03-04T10:00:00Z")),
    )
    .unwrap();
    assert_eq!(unobserved(&mut db, at("2025-03-10T09:00:00Z")), (13 + 6) * HOUR_US);
}

/// A slice of the GPU of `full`, or its remainder.
fn part(of: &Unit, uuid: &str, (compute_slices, memory_slices): (u32, u32), birth: Instant) -> Unit {
    let (kind, profile) = if uuid.is_empty() { (UnitKind::Remainder, "") } else { (UnitKind::Slice, "3g.40gb") };
    let (uuid, profile, birth_us) = (uuid.to_owned(), profile.to_owned(), birth.micros());
    Unit { kind, uuid, profile, compute_slices, memory_slices, birth_us, ..of.clone() }
}

fn a_gpu_that_is_cut_in_the_middle_of_an_hour_reconciles_and_a_wrong_collector_is_named(books: Books) {
    let books = books.migrated("UTC");
    let (mut db, calendar) = (books.db(), BillingCalendar::new("UTC").unwrap());
    let mut ingest = ingest(&calendar);
    let minute = |minutes: i64| at("2025-03-01T10:00:00Z").plus_micros(minutes * 60 * SECOND_US).unwrap();
    let whole = full("n1", minute(0).micros());
    let [slice, left] = [("MIG-1", (3, 4)), ("", (4, 4))].map(|(uuid, slices)| part(&whole, uuid, slices, minute(20)));
    let on = |unit: u32, segment: gpuledger_wire::Segment| gpuledger_wire::Segment { unit, ..segment };
    let reported = Report {
        units: vec![whole, slice, left],
        jobs: vec![job("1", "a", minute(0)), job("2", "b", minute(20))],
        segments: vec![
            on(0, segment(0, Some(0), minute(0), minute(20))),
            on(1, segment(1, Some(1), minute(20), minute(55))),
            on(2, segment(2, None, minute(20), minute(60))),
        ],
        ..report("n1", 1_000, 1, minute(60))
    };
    take(&mut db, &mut ingest, &reported, minute(60));
    let day = calendar.day_of(minute(0));
    let ask = |db: &mut Db| reconcile(db, &calendar, day, minute(60)).unwrap();
    let clean = ask(&mut db);
    assert!(clean.is_clean(), "{clean:?}");
    let minutes = |number: i128, part: i128| Fraction::new(number * 60 * i128::from(SECOND_US) * part, 7).unwrap();
    let [held, idle, stranded, unobserved, out] = clean.days[0].states_us;
    assert_eq!(clean.days[0].exists_us, minutes(60, 7));
    assert_eq!(held, minutes(20, 7).plus(minutes(35, 3)).unwrap());
    assert_eq!((idle, stranded, unobserved, out), (minutes(40, 4), Fraction::ZERO, minutes(5, 3), Fraction::ZERO));
    // A collector that tells of one holder too many, and forgets what is left beside a slice.
    let mut doubled = reported.clone();
    doubled.node = "n2".into();
    doubled.units.iter_mut().for_each(|unit| unit.gpu.uuid = "GPU-n2".into());
    doubled.segments[2] = on(0, segment(2, Some(0), minute(0), minute(20)));
    doubled.units.truncate(2);
    take(&mut db, &mut ingest, &doubled, minute(60));
    let found = ask(&mut db);
    assert!(!found.is_clean());
    let whats: Vec<FindingKind> = found.findings.iter().map(|finding| finding.what).collect();
    assert!(
        whats.contains(&FindingKind::Told(Disagreement::Shares)) && whats.contains(&FindingKind::Layout),
        "{whats:?}"
    );
    assert!(found.findings.iter().all(|finding| finding.node == "n2" && finding.gpu == "GPU-n2"));
    // A copy of the first node.
    let copied = Report { node: "n3".into(), ..reported };
    take(&mut db, &mut ingest, &copied, minute(60));
    let copies =
        ask(&mut db).findings.into_iter().filter(|finding| finding.what == FindingKind::Told(Disagreement::OtherNode));
    let copies: Vec<_> = copies.collect();
    assert!(!copies.is_empty() && copies.iter().all(|finding| finding.node == "n3" && finding.gpu == "GPU-n1"));
    let broken: Vec<_> = found.days.iter().filter(|day| day.difference_us != 0).collect();
    assert_eq!((broken.len(), broken[0].node.as_str()), (1, "n2"));
    assert_eq!(broken[0].difference_us, i128::from(20 * 60 * SECOND_US));
    assert!(gpuledger::export::reconciliation::text(&found).unwrap().contains("broken in 1 rows"));
}

fn a_node_that_changes_its_pool_within_a_day_is_priced_in_both_and_cuts_the_day_of_others(books: Books) {
    let books = books.migrated("UTC");
    let (mut db, calendar) = (books.db(), BillingCalendar::new("UTC").unwrap());
    catalogues(&mut db, &calendar);
    let gpus = "[[node.gpu]]\nsku = \"H100/full\"\ncount = 1\n";
    let node = |pool: &str, when: &str| {
        format!("[[node]]\ncluster = \"c\"\nnames = \"n1\"\npool = \"{pool}\"\n{when}\n{gpus}")
    };
    let moves = "2025-03-01T10:15:00Z";
    let text = node("dev", &format!("until = \"{moves}\"")) + &node("training", &format!("from = \"{moves}\""));
    apply_text(&mut db, &calendar, CatalogueKind::Inventory, &text).unwrap();
    let mut ingest = ingest(&calendar);
    let (start, middle, end) = (at("2025-03-01T10:00:00Z"), at(moves), at("2025-03-01T10:30:00Z"));
    let of_other = Report {
        jobs: vec![job("2", "b", start)],
        segments: vec![segment(0, Some(0), start, end)],
        ..report("n2", 1_000, 1, end)
    };
    take(&mut db, &mut ingest, &of_other, end);
    let summed = told(&mut db, &calendar, "2025-03", end);
    assert!(summed.contains("n2 2 H100/full Held 1800000000"), "{summed}");
    let moving = Report {
        jobs: vec![job("1", "a", start)],
        segments: vec![segment(0, Some(0), start, middle), segment(1, Some(0), middle, end)],
        ..report("n1", 1_000, 1, end)
    };
    take(&mut db, &mut ingest, &moving, end);
    let summed = told(&mut db, &calendar, "2025-03", end);
    assert_eq!(summed.matches("1 H100/full Held 900000000").count(), 2, "{summed}");
    assert!(summed.contains("\"pool\": \"dev\"") && summed.contains("\"pool\": \"training\""), "{summed}");
}

on_both!(
    days_that_begin_within_an_hour_are_told_apart,
    a_node_that_changes_its_pool_within_a_day_is_priced_in_both_and_cuts_the_day_of_others,
    a_gpu_that_is_cut_in_the_middle_of_an_hour_reconciles_and_a_wrong_collector_is_named,
    rel_01_a_batch_that_is_sent_again_cut_differently_counts_once,
    a_job_of_a_list_and_of_a_report_is_charged_once_whichever_came_first,
    a_head_that_nobody_replaced_counts_until_its_final_segment_comes,
    what_the_parts_of_a_unit_did_is_kept_with_its_segment,
    what_cannot_count_now_is_kept_aside,
    silence_is_unobserved_and_a_retired_node_is_no_more,
);
