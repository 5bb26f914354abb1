//! Laws, on random books: time and cost are conserved, order and repetition change nothing.

use gpuledger::workflows::{close, evidence, statements};
use gpuledger_db::catalogue::CatalogueKind;
use gpuledger_domain::calendar::{BillingCalendar, Month};
use gpuledger_domain::time::Instant;
use gpuledger_domain::units::Fraction;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::support::jobs::{apply_text, import, now};
use crate::support::{Books, on_both};

const MAPPING: &str = "[time]\nformat = \"unix-seconds\"\n[columns]\nid = \"id\"\nstart = \"start\"\nend = \"end\"\ngpus = \"gpus\"\naccount = \"account\"\nsku = \"sku\"\n[constants]\ncluster = \"c\"\npool = \"p\"\n";
const TEAMS: &str = "[[team]]\ncode = \"a\"\nname = \"A\"\n[[team]]\ncode = \"b\"\nname = \"B\"\n";
const RULES: &str = "[[rule]]\nname = \"r\"\nteam_from = \"account\"\n";

/// 2025-05-15T00:00:00Z and some days around the first of June in any zone.
const FROM: i64 = 1_747_267_200;

#[derive(Clone, Debug)]
struct Job {
    start: i64,
    length: i64,
    gpus: i64,
    account: usize,
    slice: bool,
}

const ACCOUNTS: [&str; 3] = ["a", "b", "nobody"];

fn job() -> impl Strategy<Value = Job> {
    (0i64..20 * 86_400, 1i64..6 * 86_400, 1i64..9, 0usize..3, any::<bool>())
        .prop_map(|(start, length, gpus, account, slice)| Job { start: FROM + start, length, gpus, account, slice })
}

fn list(jobs: &[(usize, &Job)]) -> Vec<u8> {
    let mut text = String::from("id,start,end,gpus,account,sku\n");
    for (id, job) in jobs {
        let sku = if job.slice { "x/3g" } else { "x" };
        text +=
            &format!("{id},{},{},{},{},{sku}\n", job.start, job.start + job.length, job.gpus, ACCOUNTS[job.account]);
    }
    text.into_bytes()
}

/// What May and June must cost a team, in 7 × 3,600 × hundredths of credits: rate 7.01 before the change, 3.50 after.
fn oracle(jobs: &[Job], account: usize, (from, until): (i64, i64), change: i64) -> i64 {
    let overlap = |job: &Job, from: i64, until: i64| ((job.start + job.length).min(until) - job.start.max(from)).max(0);
    let cost = |job: &Job| {
        let slices = if job.slice { 3 } else { 7 };
        let before = overlap(job, from, until.min(change).max(from));
        let after = overlap(job, from.max(change).min(until), until);
        (before * 701 + after * 350) * job.gpus * slices
    };
    jobs.iter().filter(|job| job.account == account).map(cost).sum()
}

/// Charges sum to what the statement charged, segments to what their charge holds.
fn assert_evidence_adds_up(db: &mut gpuledger_db::Db, calendar: &BillingCalendar, view: &statements::StatementView) {
    let charges = evidence::charges(db, view).unwrap();
    assert_eq!(charges.iter().map(|charge| charge.charge.amount.0).sum::<i64>(), view.head.sums.charged_micros);
    for charge in charges {
        let segments = evidence::segments(db, calendar, view, charge.number).unwrap();
        let held = Fraction::sum(segments.iter().map(|segment| segment.share_us)).unwrap();
        assert_eq!(held, Fraction::whole(charge.charge.share_us.into()));
    }
}

fn any_order_batching_and_repetition_gives_the_oracles_amounts(books: Books) {
    let postgres = books.schema().is_some();
    drop(books);
    let mut runner =
        TestRunner::new(ProptestConfig { cases: if postgres { 12 } else { 24 }, ..ProptestConfig::default() });
    let zones =
        prop::sample::select(vec!["UTC", "Asia/Kolkata", "Europe/Berlin", "Australia/Lord_Howe", "America/St_Johns"]);
    let strategy = (
        prop::collection::vec(job(), 1..14),
        zones,
        0i64..20 * 86_400,
        prop::collection::vec(any::<prop::sample::Index>(), 14),
    );
    let ran = runner.run(&strategy, |(jobs, zone, change, order)| {
        let calendar = BillingCalendar::new(zone).unwrap();
        let months = ["2025-05", "2025-06"].map(|month| Month::parse(month).unwrap());
        let change = FROM + change;
        let at = Instant::from_micros(change * 1_000_000);
        let prices = format!("[[sku]]\ncode = \"x/3g\"\ncompute = \"3/7\"\nmemory = \"4/8\"\n[[price]]\nsku = \"x\"\nrate = \"7.01\"\n[[price]]\nsku = \"x\"\nrate = \"3.50\"\nfrom = \"{at}\"\n");
        let numbered: Vec<(usize, &Job)> = jobs.iter().enumerate().collect();
        let mut mixed = numbered.clone();
        for (place, index) in order.iter().take(mixed.len()).enumerate() {
            let other = index.index(mixed.len());
            mixed.swap(place, other);
        }
        let mut printed = Vec::new();
        for early_prices in [true, false] {
            let books = if postgres { Books::postgres() } else { Books::sqlite() }.migrated(zone);
            let mut db = books.db();
            apply_text(&mut db, &calendar, CatalogueKind::Teams, TEAMS).unwrap();
            apply_text(&mut db, &calendar, CatalogueKind::Rules, RULES).unwrap();
            if early_prices {
                apply_text(&mut db, &calendar, CatalogueKind::Prices, &prices).unwrap();
                import(&mut db, &calendar, MAPPING, &list(&numbered));
            } else {
                // In pieces, out of order, twice; the price change, within a day, only after the usage is there.
                let (first, second) = mixed.split_at(mixed.len() / 2);
                for piece in [second, first, second] {
                    import(&mut db, &calendar, MAPPING, &list(piece));
                }
                apply_text(&mut db, &calendar, CatalogueKind::Prices, "[[sku]]\ncode = \"x/3g\"\ncompute = \"3/7\"\nmemory = \"4/8\"\n[[price]]\nsku = \"x\"\nrate = \"99\"\n").unwrap();
                apply_text(&mut db, &calendar, CatalogueKind::Prices, &prices).unwrap();
            }
            let mut text = String::new();
            for month in months {
                let interval = calendar.period(month).interval;
                let bounds = (interval.start().micros() / 1_000_000, interval.end().micros() / 1_000_000);
                if close::close(&mut db, &calendar, month, "test", now).is_err() {
                    assert!((0..3).all(|account| oracle(&jobs, account, bounds, change) == 0));
                    continue;
                }
                let period = statements::of_period(&mut db, &calendar, month, now()).unwrap();
                for view in &period.statements {
                    let account = ["a", "b", "unassigned"].iter().position(|code| *code == view.head.team_code).unwrap();
                    let wanted = oracle(&jobs, account, bounds, change);
                    let unit = 7 * 3_600;
                    assert_eq!(view.head.sums.amount.0, i128::from((2 * wanted + unit) / (2 * unit)));
                    assert_eq!(view.lines.iter().map(|line| line.sums.amount.0).sum::<i128>(), view.head.sums.amount.0);
                    let residue = view.head.sums.exact.minus(Fraction::new(view.head.sums.charged_micros.into(), 1_000_000).unwrap()).unwrap();
                    let charges = i128::from(view.head.last_charge - view.head.first_charge + 1);
                    assert!(residue.times(Fraction::whole(2_000_000)).unwrap() <= Fraction::whole(charges));
                }
                period.statements.iter().for_each(|view| assert_evidence_adds_up(&mut db, &calendar, view));
                text += &gpuledger::export::csv::list(&period).unwrap();
                text.extend(period.statements.iter().map(|view| gpuledger::export::csv::statement(view).unwrap()));
            }
            printed.push(text);
        }
        assert_eq!(printed[0], printed[1]);
        Ok(())
    });
    ran.unwrap();
}

on_both!(any_order_batching_and_repetition_gives_the_oracles_amounts);
