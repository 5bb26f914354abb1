//! A collector and a scheduler's list tell of the same node: nothing is charged twice, nothing that the list knows is
//! lost, and what differs is named.

use gpuledger::workflows::close::close;
use gpuledger::workflows::reconcile::{FindingKind, reconcile};
use gpuledger::workflows::{evidence, statements};
use gpuledger_db::catalogue::CatalogueKind;
use gpuledger_db::{Db, usage};
use gpuledger_domain::calendar::{BillingCalendar, Month};
use gpuledger_domain::metering::Disagreement;
use gpuledger_domain::pricing::ChargeKind;
use gpuledger_domain::time::{HOUR_US, Instant};
use gpuledger_domain::units::Fraction;
use gpuledger_wire::Report;

use crate::reports::{catalogues, told};
use crate::support::jobs::{apply_text, import};
use crate::support::reports::{at, full, ingest, job, report, segment, take};
use crate::support::{Books, on_both};

const MAPPING: &str = "[columns]\nid = \"id\"\nstart = \"start\"\nend = \"end\"\naccount = \"account\"\nuser = \"user\"\nsku = \"sku\"\nnodes = \"node\"\ngpus_per_node = \"gpus\"\nend_state = \"state\"\n[constants]\ncluster = \"c\"\npool = \"p\"\n";
const HEAD: &str = "id,start,end,account,user,sku,node,gpus,state\n";

/// A node with two GPUs, the second named after the first.
fn two_gpus(epoch: i64, sequence: u64, wall: Instant) -> Report {
    let mut second = full("n1", 0);
    second.gpu.uuid = "GPU-n1-b".into();
    Report { units: vec![full("n1", 0), second], ..report("n1", epoch, sequence, wall) }
}

/// What each job held by account, in seconds, seen or not, and how much of it is estimated.
fn held(db: &mut Db, calendar: &BillingCalendar, month: &str, now: Instant) -> Vec<(String, i64, i64)> {
    let period = statements::of_period(db, calendar, Month::parse(month).unwrap(), now).unwrap();
    let sums = |view: &statements::StatementView| {
        let sums = &view.head.sums;
        (view.head.team_code.clone(), sums.share_us / 1_000_000, sums.estimated_us / 1_000_000)
    };
    period.statements.iter().map(sums).collect()
}

fn what_a_collector_did_not_see_is_filled_from_the_list_whichever_came_first(books: Books) {
    let postgres = books.schema().is_some();
    drop(books);
    let calendar = BillingCalendar::new("UTC").unwrap();
    let (start, seen) = (at("2025-03-01T10:00:00Z"), at("2025-03-01T10:20:00Z"));
    let now = at("2025-03-03T00:00:00Z");
    // One GPU of two was seen for twenty minutes; the list tells of two for an hour, from 9:50 on, and of the account.
    let reported = Report {
        jobs: vec![job("7", "b", start)],
        segments: vec![segment(1, Some(0), start, seen)],
        ..two_gpus(1_000, 1, now)
    };
    let list = format!(
        "{HEAD}7,2025-03-01T09:50:00Z,2025-03-01T10:50:00Z,a,u,H100/full,n1,2,COMPLETED\n8,2025-03-01T10:00:00Z,2025-03-01T11:00:00Z,b,u,H100/full,n1,1,COMPLETED\n"
    );
    let mut texts = Vec::new();
    for list_first in [true, false] {
        let books = if postgres { Books::postgres() } else { Books::sqlite() }.migrated("UTC");
        let mut db = books.db();
        catalogues(&mut db, &calendar);
        let mut ingest = ingest(&calendar);
        for step in [list_first, !list_first] {
            if step {
                let (counts, refused) = import(&mut db, &calendar, MAPPING, list.as_bytes());
                assert_eq!((counts.added, refused.len()), (2, 0));
            } else {
                take(&mut db, &mut ingest, &reported, now);
            }
            told(&mut db, &calendar, "2025-03", now);
        }
        let text = told(&mut db, &calendar, "2025-03", now);
        // The node is known from 10:00 on. Job 7 has both GPUs until 10:50, of which 20 minutes of one were seen; job 8
        // has the ten minutes of one GPU that are left.
        let held = held(&mut db, &calendar, "2025-03", now);
        assert_eq!(held, [("a".into(), 6_000, 4_800), ("b".into(), 600, 600)]);
        let reconciled = reconcile(&mut db, &calendar, calendar.period_of(start).interval, now).unwrap();
        let found: Vec<_> = reconciled.findings.iter().map(|found| (found.job.as_str(), found.what)).collect();
        use Disagreement::{AllocatedMore, OtherFacts};
        assert_eq!(found, [("8", FindingKind::Told(AllocatedMore)), ("7", FindingKind::Told(OtherFacts))]);
        texts.push(text);
    }
    assert_eq!(texts[0], texts[1]);
}

fn an_attempt_that_a_collector_saw_ends_as_its_list_tells(books: Books) {
    let books = books.migrated("UTC");
    let (mut db, calendar) = (books.db(), BillingCalendar::new("UTC").unwrap());
    catalogues(&mut db, &calendar);
    let prices = "[[sku]]\ncode = \"h100/full\"\naliases = [\"H100/full\"]\n[[price]]\nsku = \"h100/full\"\nrate = \"7.00\"\n[[end_causes]]\nplatform_pays = [\"node failure\"]\n";
    apply_text(&mut db, &calendar, CatalogueKind::Prices, prices).unwrap();
    let mut ingest = ingest(&calendar);
    let (start, end, now) = (at("2025-03-01T10:00:00Z"), at("2025-03-01T10:30:00Z"), at("2025-03-03T00:00:00Z"));
    // Three GPUs' worth were seen of a job that was given one.
    let reported = Report {
        jobs: vec![job("7", "a", start)],
        segments: vec![
            segment(1, Some(0), start, end),
            gpuledger_wire::Segment { unit: 1, ..segment(2, Some(0), start, end) },
        ],
        ..two_gpus(1_000, 1, now)
    };
    take(&mut db, &mut ingest, &reported, now);
    let list = format!("{HEAD}7,2025-03-01T09:59:30Z,2025-03-01T10:30:00Z,a,u,H100/full,n1,1,NODE_FAIL\n");
    import(&mut db, &calendar, MAPPING, list.as_bytes());
    let march = Month::parse("2025-03").unwrap();
    let period = statements::of_period(&mut db, &calendar, march, now).unwrap();
    let told: Vec<_> =
        period.statements[0].lines.iter().map(|line| (line.kind, line.sums.amount.to_string())).collect();
    assert_eq!(told, [(ChargeKind::Usage, "7.00".into()), (ChargeKind::Adjustment, "-7.00".into())]);
    let reconciled = reconcile(&mut db, &calendar, calendar.period_of(start).interval, now).unwrap();
    let found: Vec<_> = reconciled.findings.iter().map(|found| (found.job.as_str(), found.what)).collect();
    assert_eq!(found, [("7", FindingKind::Told(Disagreement::SeenMore))]);
    let text = gpuledger::export::reconciliation::text(&reconciled).unwrap();
    assert!(text.contains("n1 job 7, [2025-03-01T10:00:00Z"), "{text}");

    // What is behind its charge is what the collector saw, under the list's attempt.
    close(&mut db, &calendar, march, "test", || at("2025-04-01T00:00:00Z")).unwrap();
    let issued = statements::of_period(&mut db, &calendar, march, now).unwrap();
    for charge in evidence::charges(&mut db, &issued.statements[0]).unwrap() {
        let segments = evidence::segments(&mut db, &calendar, &issued.statements[0], charge.number).unwrap();
        let sum = Fraction::sum(segments.iter().map(|segment| segment.share_us)).unwrap();
        let sign = if charge.charge.kind == ChargeKind::Adjustment { -1 } else { 1 };
        assert_eq!(sum, Fraction::whole(i128::from(charge.charge.share_us) * sign), "{segments:?}");
    }
}

fn a_gpu_is_on_one_node_at_an_instant_whoever_told_first(books: Books) {
    let postgres = books.schema().is_some();
    drop(books);
    let calendar = BillingCalendar::new("UTC").unwrap();
    let now = at("2025-03-02T00:00:00Z");
    let hour = |hour: i64| at("2025-03-01T00:00:00Z").plus_micros(hour * HOUR_US).unwrap();
    // A node and its copy, which was started later, tell of one GPU; from twelve to one only the copy.
    let on = |node: &str, account: &str, from: i64, until: i64| {
        let mut unit = full("n1", hour(from).micros());
        unit.gpu.uuid = "GPU-one".into();
        let segments = (from..until).map(|at| segment(1, Some(0), hour(at), hour(at + 1))).collect();
        Report {
            units: vec![unit],
            jobs: vec![job(account, account, hour(from))],
            segments,
            ..report(node, hour(from).micros(), 1, now)
        }
    };
    let reports = [on("n2", "a", 10, 12), on("n1", "b", 11, 13)];
    let mut texts = Vec::new();
    for order in [[0, 1], [1, 0]] {
        let books = if postgres { Books::postgres() } else { Books::sqlite() }.migrated("UTC");
        let mut db = books.db();
        catalogues(&mut db, &calendar);
        let mut ingest = ingest(&calendar);
        for place in order {
            take(&mut db, &mut ingest, &reports[place], now);
            gpuledger::workflows::roll_up::roll_up(&mut db, &calendar, None).unwrap();
        }
        let text = told(&mut db, &calendar, "2025-03", now);
        assert_eq!(held(&mut db, &calendar, "2025-03", now), [("a".into(), 7_200, 0), ("b".into(), 3_600, 0)]);
        let whole = calendar.period_of(now).interval;
        let time: i64 = usage::of_interval(&mut db, whole).unwrap().iter().map(|usage| usage.share_us).sum();
        assert_eq!(time, 14 * HOUR_US, "the GPU existed from ten to midnight, once");
        let reconciled = reconcile(&mut db, &calendar, whole, now).unwrap();
        let found: Vec<_> =
            reconciled.findings.iter().map(|found| (found.node.as_str(), found.interval.start(), found.what)).collect();
        assert_eq!(found, [("n1", hour(11), FindingKind::Told(Disagreement::OtherNode))]);
        texts.push(text);
    }
    assert_eq!(texts[0], texts[1]);
}

on_both!(
    a_gpu_is_on_one_node_at_an_instant_whoever_told_first,
    what_a_collector_did_not_see_is_filled_from_the_list_whichever_came_first,
    an_attempt_that_a_collector_saw_ends_as_its_list_tells,
);
