//! What comes of a month after it was closed: the month stays as it is, and the difference is charged later, once.

use gpuledger::workflows::close::close;
use gpuledger::workflows::reconcile::reconcile;
use gpuledger::workflows::statements::{self, PeriodStatements, StatementView};
use gpuledger::workflows::{evidence, late_facts, roll_up};
use gpuledger_db::catalogue::CatalogueKind;
use gpuledger_db::{Backend, Db, reported_segment};
use gpuledger_domain::calendar::{BillingCalendar, Month};
use gpuledger_domain::metering::{EntryKind, State};
use gpuledger_domain::pricing::ChargeKind;
use gpuledger_domain::time::Instant;
use gpuledger_domain::units::Fraction;
use gpuledger_wire::{Outcome, Report};

use crate::support::jobs::{apply_text, import};
use crate::support::reports::{SECOND_US, at, ingest, job, report, segment, take};
use crate::support::{Books, on_both};

const TEAMS: &str = "[[team]]\ncode = \"team-a\"\nname = \"A\"\n[[team]]\ncode = \"team-b\"\nname = \"B\"\n";
const RULES: &str = "[[rule]]\nname = \"r\"\nteam_from = \"account\"\n";
const PRICES: &str = r#"
[[sku]]
code = "h100/full"
aliases = ["H100/full"]
[[price]]
sku = "h100/full"
rate = "1.50"
[[price]]
sku = "h100/full"
rate = "2.00"
from = "2025-02-01"
[[credit_rate]]
from = "2025-01"
currency = "USD"
rate = "2"
[[credit_rate]]
from = "2025-02"
currency = "USD"
rate = "3"
"#;
const MAPPING: &str = "[columns]\nid = \"id\"\nstart = \"start\"\nend = \"end\"\naccount = \"account\"\nsku = \"sku\"\nnodes = \"node\"\n[constants]\ngpus_per_node = \"1\"\ncluster = \"c\"\npool = \"p\"\n";

fn month(text: &str) -> Month {
    Month::parse(text).unwrap()
}

fn books_with_january(books: Books, list: &str) -> (Books, BillingCalendar) {
    let books = books.migrated("UTC");
    let (mut db, calendar) = (books.db(), BillingCalendar::new("UTC").unwrap());
    for (kind, text) in [(CatalogueKind::Teams, TEAMS), (CatalogueKind::Prices, PRICES), (CatalogueKind::Rules, RULES)]
    {
        apply_text(&mut db, &calendar, kind, text).unwrap();
    }
    if !list.is_empty() {
        let list = format!("id,start,end,account,sku,node\n{list}");
        import(&mut db, &calendar, MAPPING, list.as_bytes());
    }
    (books, calendar)
}

fn of(db: &mut Db, calendar: &BillingCalendar, text: &str, now: Instant) -> PeriodStatements {
    statements::of_period(db, calendar, month(text), now).unwrap()
}

/// A statement as it is exported, every byte that people get.
fn csv(view: &StatementView) -> String {
    String::from_utf8(gpuledger::export::csv::statement(view).unwrap().into()).unwrap()
}

fn whole(period: &PeriodStatements) -> String {
    period.statements.iter().map(csv).collect()
}

/// Each charge of a statement is what its segments say, and the statement is what its charges say.
fn evidence_sums(db: &mut Db, calendar: &BillingCalendar, view: &StatementView) {
    let charges = evidence::charges(db, view).unwrap();
    let charged: i64 = charges.iter().map(|charge| charge.charge.amount.0).sum();
    assert_eq!(charged, view.head.sums.charged_micros);
    for charge in charges {
        let segments = evidence::segments(db, calendar, view, charge.number).unwrap();
        let sum = Fraction::sum(segments.iter().map(|segment| segment.share_us)).unwrap();
        assert_eq!(sum, Fraction::whole(charge.charge.share_us.into()), "{charge:?} {segments:?}");
    }
}

fn examine_finds_nothing_wrong(books: &Books, calendar: &BillingCalendar) -> bool {
    let now = at("2025-04-03T00:00:00Z");
    let findings = gpuledger::workflows::examine::examine(&books.database(), calendar, now).unwrap();
    findings.iter().all(|found| found.weight != gpuledger::workflows::examine::Weight::Fault)
}

fn rel_03_usage_after_the_close_is_a_correction_at_the_old_price(books: Books) {
    let list = "8,2025-01-10T00:00:00Z,2025-01-10T06:40:00Z,team-a,H100/full,n2\n9,2025-02-10T00:00:00Z,2025-02-10T01:00:00Z,team-a,H100/full,n2\n";
    let (books, calendar) = books_with_january(books, list);
    let mut db = books.db();
    let closed_on = at("2025-02-03T00:00:00Z");
    close(&mut db, &calendar, month("2025-01"), "test", || closed_on).unwrap();
    let january = whole(&of(&mut db, &calendar, "2025-01", closed_on));
    assert!(january.contains(",10.00,10.000000,20.00,"), "{january}");

    let now = at("2025-02-05T00:00:00Z");
    let (start, end) = (at("2025-01-30T10:00:00Z"), at("2025-01-30T12:00:00Z"));
    let middle = at("2025-01-30T11:00:00Z");
    let late = Report {
        jobs: vec![job("1", "team-a", start)],
        segments: vec![segment(1, Some(0), start, middle), segment(1, Some(0), middle, end)],
        ..report("n1", 1_000, 1, now)
    };
    let mut ingest = ingest(&calendar);
    for outcome in [Outcome::Accepted, Outcome::Known] {
        let taken = take(&mut db, &mut ingest, &late, now);
        assert!(taken.records.iter().all(|record| record.outcome == outcome), "{taken:?}");
        let february = of(&mut db, &calendar, "2025-02", now);
        let [view] = february.statements.as_slice() else { panic!("{february:?}") };
        let told: Vec<_> = view
            .lines
            .iter()
            .map(|line| {
                (line.kind, line.corrects, line.sums.amount.to_string(), line.sums.currency_amount.unwrap().to_string())
            })
            .collect();
        let usage = (ChargeKind::Usage, None, "2.00".to_owned(), "6.00".to_owned());
        let correction = (ChargeKind::Correction, Some(month("2025-01")), "3.00".to_owned(), "6.00".to_owned());
        assert_eq!(told, [usage, correction]);
        assert_eq!(
            (view.head.sums.amount.to_string(), february.rounding.currency_amount.unwrap().0),
            ("5.00".into(), 0)
        );
        assert_eq!(view.head.sums.currency_amount.unwrap().to_string(), "12.00");
        let draft = gpuledger::export::text::draft(month("2025-02"), view).unwrap();
        assert!(draft.contains("correction for January 2025: other"), "{draft}");
        assert_eq!(whole(&of(&mut db, &calendar, "2025-01", now)), january);
    }
    // By the date of use, January has what it should have had.
    let january_time = calendar.period(month("2025-01")).interval;
    let prices = gpuledger::workflows::books::Books::in_force(&mut db, &calendar).unwrap().prices;
    let rows =
        gpuledger::workflows::usage_report::usage_report(&mut db, &calendar, &prices, january_time, &[]).unwrap();
    assert_eq!(rows[0].gpu_us, Some(Fraction::whole(31_200 * i128::from(SECOND_US))));
    let reconciled = reconcile(&mut db, &calendar, january_time, now).unwrap();
    assert!(reconciled.days.iter().all(|day| day.difference_us == 0), "{reconciled:?}");

    // February is closed with it; what comes then goes to March, and neither month moves.
    close(&mut db, &calendar, month("2025-02"), "test", || at("2025-03-02T00:00:00Z")).unwrap();
    let february = of(&mut db, &calendar, "2025-02", now);
    evidence_sums(&mut db, &calendar, &february.statements[0]);
    let charges = evidence::charges(&mut db, &february.statements[0]).unwrap();
    let corrected = charges.iter().find_map(|charge| charge.charge.corrects).unwrap();
    assert_eq!((corrected.month, corrected.entry, corrected.charge), (month("2025-01"), EntryKind::Addition, 0));
    let then = at("2025-03-05T00:00:00Z");
    let more = Report {
        jobs: vec![job("1", "team-a", start)],
        segments: vec![segment(2, Some(0), end, end.plus_micros(1_800 * SECOND_US).unwrap())],
        ..report("n1", 1_000, 2, then)
    };
    take(&mut db, &mut ingest, &more, then);
    let march = of(&mut db, &calendar, "2025-03", then);
    assert_eq!(march.statements[0].head.sums.amount.to_string(), "0.75");
    for (text, was) in [("2025-01", &january), ("2025-02", &whole(&february))] {
        assert_eq!(&whole(&of(&mut db, &calendar, text, then)), was);
    }
    let january = of(&mut db, &calendar, "2025-01", then);
    evidence_sums(&mut db, &calendar, &january.statements[0]);
    close(&mut db, &calendar, month("2025-03"), "test", || at("2025-04-02T00:00:00Z")).unwrap();
    let march = of(&mut db, &calendar, "2025-03", then);
    evidence_sums(&mut db, &calendar, &march.statements[0]);
    // What was charged is frozen, whoever tries.
    for sql in [
        "UPDATE late_usage SET share_us = 0",
        "UPDATE late_usage SET closing_id = 0",
        "DELETE FROM late_usage",
        "INSERT INTO late_usage SELECT * FROM late_usage WHERE true ON CONFLICT DO NOTHING; UPDATE late_usage SET segments = 9",
        "UPDATE charge SET corrected_month = '2025-02'",
        "UPDATE statement_line SET credit_rate = '1'",
    ] {
        assert!(db.execute(sql).is_err(), "{sql}");
    }
    let replace = "INSERT OR REPLACE INTO late_usage SELECT * FROM late_usage";
    assert!(db.backend() == Backend::Postgres || db.execute(replace).is_err());
    assert!(examine_finds_nothing_wrong(&books, &calendar));
    // It names the months it corrects, and prices of closed months stay what corrections were made with.
    let wrong = PRICES.replace("1.50", "1.60");
    assert!(
        apply_text(&mut db, &calendar, CatalogueKind::Prices, &wrong).unwrap_err().contains("2025-01, which is closed")
    );
    let right = format!("{PRICES}[[price]]\nsku = \"h100/full\"\nrate = \"9\"\nfrom = \"2025-05-01\"\n");
    apply_text(&mut db, &calendar, CatalogueKind::Prices, &right).unwrap();
    let listed = late_facts::list(&mut db, &calendar).unwrap();
    let held = listed.iter().filter(|late| late.state == State::Held);
    let charged: Vec<_> = held.map(|late| (late.month, late.corrected_in, late.is_charged)).collect();
    let (january, february) = (month("2025-01"), month("2025-02"));
    assert_eq!(charged.iter().filter(|late| **late == (january, february, true)).count(), 1, "{listed:?}");
    assert_eq!(charged.iter().filter(|late| **late == (january, month("2025-03"), true)).count(), 1, "{listed:?}");
}

fn a_provisional_segment_of_a_closed_month_is_corrected_by_the_finished_one(books: Books) {
    let (books, calendar) = books_with_january(books, "");
    let mut db = books.db();
    let mut ingest = ingest(&calendar);
    let (start, seen) = (at("2025-01-31T23:00:00Z"), at("2025-01-31T23:30:00Z"));
    let open = Report {
        jobs: vec![job("1", "team-a", start)],
        head: vec![segment(1, Some(0), start, seen)],
        ..report("n1", 1_000, 1, seen)
    };
    take(&mut db, &mut ingest, &open, seen);
    let later = at("2025-02-01T03:00:00Z");
    assert_eq!(gpuledger::workflows::ingest::settle_old_heads(&mut db, &calendar, later).unwrap(), 1);
    close(&mut db, &calendar, month("2025-01"), "test", || at("2025-02-02T00:00:00Z")).unwrap();
    let january = of(&mut db, &calendar, "2025-01", later);
    assert_eq!(january.statements[0].head.sums.amount.to_string(), "0.75");

    let (end, now) = (at("2025-02-01T00:00:00Z"), at("2025-02-05T00:00:00Z"));
    let finished = Report {
        jobs: vec![job("1", "team-a", start)],
        segments: vec![segment(1, Some(0), start, end)],
        ..report("n1", 1_000, 2, now)
    };
    for outcome in [Outcome::Accepted, Outcome::Known] {
        assert_eq!(take(&mut db, &mut ingest, &finished, now).records[0].outcome, outcome);
    }
    assert!(reported_segment::all_aside(&mut db).unwrap().is_empty());
    let february = of(&mut db, &calendar, "2025-02", now);
    assert_eq!(february.statements[0].head.sums.amount.to_string(), "0.75");
    close(&mut db, &calendar, month("2025-02"), "test", || at("2025-03-02T00:00:00Z")).unwrap();
    for text in ["2025-01", "2025-02"] {
        let issued = of(&mut db, &calendar, text, now);
        evidence_sums(&mut db, &calendar, &issued.statements[0]);
    }
    let february = of(&mut db, &calendar, "2025-02", now);
    let charges = evidence::charges(&mut db, &february.statements[0]).unwrap();
    assert_eq!(charges[0].charge.corrects.map(|corrects| corrects.charge), Some(1), "it names what it corrects");
}

fn what_was_charged_to_the_wrong_team_is_taken_back_and_entered_again(books: Books) {
    let (books, calendar) = books_with_january(books, "");
    let mut db = books.db();
    let mut ingest = ingest(&calendar);
    let (start, end) = (at("2025-01-20T10:00:00Z"), at("2025-01-20T11:00:00Z"));
    let half = at("2025-01-20T10:30:00Z");
    let second = Report {
        jobs: vec![job("2", "team-b", start)],
        segments: vec![segment(1, Some(0), start, end)],
        ..report("n1", 2_000, 1, end)
    };
    take(&mut db, &mut ingest, &second, end);
    close(&mut db, &calendar, month("2025-01"), "test", || at("2025-02-02T00:00:00Z")).unwrap();
    let january = whole(&of(&mut db, &calendar, "2025-01", end));

    // An earlier epoch held the GPU for the first half, and says so only now.
    let now = at("2025-02-05T00:00:00Z");
    let first = Report {
        jobs: vec![job("1", "team-a", start)],
        segments: vec![segment(1, Some(0), start, half)],
        ..report("n1", 1_000, 1, now)
    };
    take(&mut db, &mut ingest, &first, now);
    let february = of(&mut db, &calendar, "2025-02", now);
    let amounts: Vec<(String, String)> = february
        .statements
        .iter()
        .map(|view| (view.head.team_code.clone(), view.head.sums.amount.to_string()))
        .collect();
    assert_eq!(amounts, [("team-a".into(), "0.75".into()), ("team-b".into(), "-0.75".into())]);
    close(&mut db, &calendar, month("2025-02"), "test", || at("2025-03-02T00:00:00Z")).unwrap();
    let february = of(&mut db, &calendar, "2025-02", now);
    for view in &february.statements {
        evidence_sums(&mut db, &calendar, view);
    }
    let entries: Vec<(EntryKind, i64)> = evidence::charges(&mut db, &february.statements[1])
        .unwrap()
        .iter()
        .filter_map(|charge| charge.charge.corrects.map(|corrects| (corrects.entry, charge.charge.amount.0)))
        .collect();
    assert_eq!(entries, [(EntryKind::Reversal, -1_500_000), (EntryKind::Reentry, 750_000)]);
    assert_eq!(whole(&of(&mut db, &calendar, "2025-01", now)), january);
    let issued = of(&mut db, &calendar, "2025-01", now);
    evidence_sums(&mut db, &calendar, &issued.statements[0]);
    // Nothing is left over: summed again, there is nothing new to correct.
    assert!(late_facts::list(&mut db, &calendar).unwrap().iter().all(|late| late.is_charged));
    roll_up::roll_up(&mut db, &calendar, None).unwrap();
    assert!(late_facts::list(&mut db, &calendar).unwrap().iter().all(|late| late.is_charged));
}

on_both!(
    rel_03_usage_after_the_close_is_a_correction_at_the_old_price,
    a_provisional_segment_of_a_closed_month_is_corrected_by_the_finished_one,
    what_was_charged_to_the_wrong_team_is_taken_back_and_entered_again,
);
