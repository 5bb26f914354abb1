//! What open months come to beside reports: always what pricing them now would say, each day done once.

use std::collections::BTreeMap;

use gpuledger::workflows::close::close;
use gpuledger::workflows::open_month::{OpenRowKey, open_month};
use gpuledger::workflows::price_period::price_period;
use gpuledger::workflows::reprice::Repricer;
use gpuledger::workflows::{books::Books as Catalogues, recompute, roll_up};
use gpuledger_db::catalogue::CatalogueKind;
use gpuledger_db::open_cost::{self, CostDay};
use gpuledger_db::{Db, check};
use gpuledger_domain::calendar::{BillingCalendar, Month};
use gpuledger_domain::ids::TeamCode;
use gpuledger_domain::time::Instant;
use gpuledger_wire::Report;

use crate::reports::catalogues;
use crate::support::jobs::{apply_text, import};
use crate::support::reports::{at, ingest, job, report, segment, take};
use crate::support::{Books, on_both};

const MAPPING: &str = "[columns]\nid = \"id\"\nstart = \"start\"\nend = \"end\"\naccount = \"account\"\nuser = \"user\"\nend_state = \"state\"\nsku = \"sku\"\n[constants]\ngpus = \"1\"\ncluster = \"c\"\npool = \"p\"\n";
const PRICES: &str = "[[sku]]\ncode = \"h100/full\"\naliases = [\"H100/full\"]\n[[price]]\nsku = \"h100/full\"\nrate = \"7.00\"\n[[end_causes]]\nplatform_pays = [\"node failure\"]\n";

fn march() -> Month {
    Month::parse("2025-03").unwrap()
}

fn now() -> Instant {
    at("2025-04-02T00:00:00Z")
}

/// What pricing the month now says, by the rows of the open month.
fn priced_now(db: &mut Db, calendar: &BillingCalendar, month: Month) -> BTreeMap<OpenRowKey, (i128, i128)> {
    let books = Catalogues::in_force(db, calendar).unwrap();
    let priced = price_period(db, calendar, &calendar.period(month), &books).unwrap();
    let mut sums: BTreeMap<OpenRowKey, (i128, i128)> = BTreeMap::new();
    for charge in &priced.charges {
        let key = OpenRowKey {
            team: priced.words.teams[&charge.payer.team].clone(),
            kind: charge.kind,
            workload: charge.payer.workload,
            sku: priced.words.skus[&charge.sku].code.clone(),
        };
        let sum = sums.entry(key).or_default();
        sum.0 += i128::from(charge.share_us);
        sum.1 += i128::from(charge.amount.0);
    }
    sums
}

fn held_now(db: &mut Db, calendar: &BillingCalendar, month: Month) -> BTreeMap<OpenRowKey, (i128, i128)> {
    let open = open_month(db, calendar, month, None).unwrap();
    assert_eq!(open.waiting, 0);
    open.rows.into_iter().map(|(key, sums)| (key, (sums.share_us, sums.micros))).collect()
}

/// Brings the open cost up to date and compares it with what pricing says.
fn agrees(db: &mut Db, calendar: &BillingCalendar, month: Month) -> usize {
    roll_up::roll_up(db, calendar, None).unwrap();
    let days = Repricer::default().reprice(db, calendar, now).unwrap();
    assert_eq!(held_now(db, calendar, month), priced_now(db, calendar, month));
    assert_eq!(Repricer::default().reprice(db, calendar, now).unwrap(), 0, "nothing is left to price");
    days
}

fn with_jobs(books: Books) -> (Books, BillingCalendar) {
    let books = books.migrated("UTC");
    let (mut db, calendar) = (books.db(), BillingCalendar::new("UTC").unwrap());
    catalogues(&mut db, &calendar);
    apply_text(&mut db, &calendar, CatalogueKind::Prices, PRICES).unwrap();
    let list = "id,start,end,account,user,state,sku\n1,2025-03-10T22:00:00Z,2025-03-12T05:00:00Z,a,u,COMPLETED,H100/full\n2,2025-03-10T00:00:00Z,2025-03-10T05:00:00Z,b,v,NODE_FAIL,H100/full\n3,2025-02-28T22:00:00Z,2025-03-01T01:00:00Z,b,w,NODE_FAIL,H100/full\n";
    import(&mut db, &calendar, MAPPING, list.as_bytes());
    (books, calendar)
}

fn open_cost_is_what_pricing_says_whatever_changes(books: Books) {
    let (books, calendar) = with_jobs(books);
    let mut db = books.db();
    // Job 3 is taken back in March for its time in February, which is open still.
    assert_eq!(agrees(&mut db, &calendar, march()), 6);
    let list =
        "id,start,end,account,user,state,sku\n4,2025-03-20T00:00:00Z,2025-03-20T05:00:00Z,a,u,COMPLETED,H100/full\n";
    import(&mut db, &calendar, MAPPING, list.as_bytes());
    assert_eq!(agrees(&mut db, &calendar, march()), 1, "only the day that changed is priced again");
    // A price from the middle of a day on, other rules, other teams.
    let dearer = format!("{PRICES}[[price]]\nsku = \"h100/full\"\nrate = \"9\"\nfrom = \"2025-03-11T07:30:00Z\"\n");
    apply_text(&mut db, &calendar, CatalogueKind::Prices, &dearer).unwrap();
    assert!(agrees(&mut db, &calendar, march()) >= 5);
    apply_text(&mut db, &calendar, CatalogueKind::Rules, "[[rule]]\nname = \"r\"\nteam = \"b\"\n").unwrap();
    agrees(&mut db, &calendar, march());
    // Something without a price.
    let list = "id,start,end,account,user,state,sku\n5,2025-03-20T00:00:00Z,2025-03-20T05:00:00Z,a,u,COMPLETED,other\n";
    import(&mut db, &calendar, MAPPING, list.as_bytes());
    roll_up::roll_up(&mut db, &calendar, None).unwrap();
    Repricer::default().reprice(&mut db, &calendar, now).unwrap();
    let team = TeamCode::parse("b").unwrap();
    let open = open_month(&mut db, &calendar, march(), Some(&team)).unwrap();
    let lacking: Vec<&OpenRowKey> =
        open.rows.iter().filter(|(_, sums)| sums.lacks_a_price).map(|(key, _)| key).collect();
    assert_eq!(lacking.iter().map(|key| key.sku.as_str()).collect::<Vec<_>>(), ["other"]);
    let text = gpuledger::export::open_month::text(&open).unwrap();
    assert!(text.contains("unpriced") && text.contains("each day as of 2025-04-02T00:00:00Z"), "{text}");
    assert!(gpuledger::export::open_month::json(&open).unwrap().contains("\"credits\": null"));
    let dearer = format!("{dearer}[[price]]\nsku = \"other\"\nrate = \"1\"\n");
    apply_text(&mut db, &calendar, CatalogueKind::Prices, &dearer).unwrap();
    agrees(&mut db, &calendar, march());

    // February is closed; a node tells of it afterwards, and March charges that. Then March is closed as well.
    let february = Month::parse("2025-02").unwrap();
    agrees(&mut db, &calendar, february);
    close(&mut db, &calendar, february, "test", now).unwrap();
    let (start, end) = (at("2025-02-10T10:00:00Z"), at("2025-02-10T11:00:00Z"));
    let late = Report {
        jobs: vec![job("9", "a", start)],
        segments: vec![segment(1, Some(0), start, end)],
        ..report("n1", 1_000, 1, now())
    };
    take(&mut db, &mut ingest(&calendar), &late, now());
    agrees(&mut db, &calendar, march());
    assert!(open_month(&mut db, &calendar, february, None).unwrap_err().to_string().contains("2025-02 is closed"));
    let done = recompute::recompute(&mut db, &calendar, now).unwrap();
    assert_eq!((done.usage.differences, done.cost.differences), (0, 0), "{done:?}");
    assert!(done.usage.days > 3 && done.cost.days > 3, "{done:?}");
    close(&mut db, &calendar, march(), "test", now).unwrap();
    Repricer::default().reprice(&mut db, &calendar, now).unwrap();
    assert_eq!(check::rows(&mut db, "open_cost").unwrap(), 0, "a closed month has statements instead");
}

fn a_comparison_names_and_mends_what_differs(books: Books) {
    let (books, calendar) = with_jobs(books);
    let mut db = books.db();
    agrees(&mut db, &calendar, march());
    let differences = |db: &mut Db| {
        let done = recompute::recompute(db, &calendar, now).unwrap();
        (done.usage.differences, done.cost.differences)
    };
    assert_eq!(differences(&mut db), (0, 0));
    db.execute("UPDATE open_cost SET amount_micros = amount_micros + 1").unwrap();
    assert_eq!(differences(&mut db), (0, 6));
    assert_eq!(differences(&mut db), (0, 0));
    db.execute("UPDATE usage SET share_us = share_us - 1 WHERE job_id = 1").unwrap();
    assert_eq!(differences(&mut db).0, 2);
    assert_eq!(differences(&mut db), (0, 0));
    assert_eq!(held_now(&mut db, &calendar, march()), priced_now(&mut db, &calendar, march()));
    // By the clock it begins once a night, whoever asks.
    let evening = at("2025-04-02T20:00:00Z");
    let mut other = books.db();
    assert!(!recompute::start_if_due(&mut db, &calendar, evening).unwrap());
    let night = at("2025-04-03T02:00:00Z");
    assert!(recompute::start_if_due(&mut db, &calendar, night).unwrap());
    assert!(!recompute::start_if_due(&mut other, &calendar, night).unwrap());
    assert!(!open_cost::checks(&mut db, 100).unwrap().is_empty());
    assert!(open_cost::marks(&mut db).unwrap().is_empty(), "what is only to be checked waits for nothing");
    let done = roll_up::check(&mut db, &calendar, 2, || {}).unwrap();
    assert_eq!((done.days, done.differences), (2, 0));
    roll_up::check(&mut db, &calendar, 100, || {}).unwrap();
    let done = Repricer::default().check(&mut db, &calendar, 100, now).unwrap();
    assert_eq!((done.days > 3, done.differences), (true, 0));
    assert!(recompute::start_if_due(&mut other, &calendar, at("2025-04-04T02:00:01Z")).unwrap());
}

on_both!(open_cost_is_what_pricing_says_whatever_changes, a_comparison_names_and_mends_what_differs);

/// Three replicas at once: each day is priced once. One that dies while it prices leaves the day to the others.
#[test]
fn each_day_is_priced_by_one_replica_and_taken_over_from_one_that_dies() {
    let (books, calendar) = with_jobs(Books::postgres());
    let mut db = books.db();
    roll_up::roll_up(&mut db, &calendar, None).unwrap();
    let marked = open_cost::marks(&mut db).unwrap();
    assert!(marked.len() >= 5);
    let taken: CostDay = marked[0];
    let mut dying = books.db();
    dying.execute("BEGIN").unwrap();
    assert!(open_cost::take(&mut dying, taken).unwrap().is_some());
    let replicas: Vec<_> = (0..3)
        .map(|_| {
            let (mut db, calendar) = (books.db(), calendar.clone());
            std::thread::spawn(move || Repricer::default().reprice(&mut db, &calendar, now).unwrap())
        })
        .collect();
    // Who changes that day again does not wait for the one that prices it.
    open_cost::mark(&mut db, &[taken]).unwrap();
    let counts: Vec<usize> = replicas.into_iter().map(|replica| replica.join().unwrap()).collect();
    assert_eq!(counts.iter().sum::<usize>(), marked.len() - 1, "{counts:?}");
    assert_eq!(open_cost::marks(&mut db).unwrap(), [taken]);
    drop(dying);
    // The server learns of the death only when it reads the closed connection, and rolls back then: until it has, the
    // day is passed over as one that somebody prices.
    let mut repricer = Repricer::default();
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let taken_over = loop {
        let priced = repricer.reprice(&mut db, &calendar, now).unwrap();
        if priced > 0 || std::time::Instant::now() > patience {
            break priced;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    assert_eq!(taken_over, 1);
    assert_eq!(held_now(&mut db, &calendar, march()), priced_now(&mut db, &calendar, march()));
}
