//! What `diff` says of a catalogue is what statements say once it is applied, and saying it changes nothing.

use gpuledger::export::csv;
use gpuledger::files::{SourceText, prices, rules, teams};
use gpuledger::workflows::apply_catalogue::Wanted;
use gpuledger::workflows::books::Books as Catalogues;
use gpuledger::workflows::diff_catalogue::{Amount, CatalogueDiff, NowThen, diff};
use gpuledger::workflows::statements::{self, RoundingRow, StatementView};
use gpuledger_db::catalogue::CatalogueKind;
use gpuledger_db::usage::{Mark, mark};
use gpuledger_db::{Db, check, usage};
use gpuledger_domain::calendar::{BillingCalendar, Month};
use gpuledger_domain::statements::{StatementLine, Sums};
use gpuledger_domain::time::Instant;
use gpuledger_domain::units::Fraction;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::support::jobs::{apply_text, import, now};
use crate::support::{Books, command, on_both};

const MAPPING: &str = "[time]\nformat = \"unix-seconds\"\n[columns]\nid = \"id\"\nstart = \"start\"\nend = \"end\"\ngpus = \"gpus\"\naccount = \"account\"\nsku = \"sku\"\n[constants]\ncluster = \"c\"\npool = \"p\"\n";

/// Every row of every table, as the database itself prints them.
fn dump(db: &mut Db) -> Vec<(String, Vec<String>)> {
    let mut tables: Vec<String> = check::columns(db).unwrap().into_iter().map(|column| column.table).collect();
    tables.dedup();
    assert!(tables.len() > 15, "{tables:?}");
    tables.into_iter().map(|table| (table.clone(), check::rows_as_text(db, &table).unwrap())).collect()
}

fn diff_text(
    db: &mut Db,
    calendar: &BillingCalendar,
    kind: CatalogueKind,
    body: &str,
) -> Result<CatalogueDiff, String> {
    let source = SourceText::new("file.toml", body);
    let read = |books: &mut Catalogues| {
        match kind {
            CatalogueKind::Teams => books.teams = teams::parse(&source, calendar)?,
            CatalogueKind::Prices => books.prices = prices::parse(&source, calendar, prices::Checks::All)?,
            CatalogueKind::Rules => books.rules = rules::parse(&source, calendar)?,
            CatalogueKind::Inventory => {}
        }
        Ok(body.to_owned())
    };
    diff(db, calendar, &Wanted { kind, read: &read, actor: "test" }, now()).map_err(|error| error.to_string())
}

const MONTHS: [&str; 2] = ["2025-05", "2025-06"];

type Views = Vec<(Month, Vec<StatementView>, Option<RoundingRow>)>;

/// The statements of both months; none where nothing is known of one.
fn views(db: &mut Db, calendar: &BillingCalendar) -> Views {
    let of = |text: &str| {
        let month = Month::parse(text).unwrap();
        let found = statements::of_period(db, calendar, month, now());
        found.map_or((month, Vec::new(), None), |found| (month, found.statements, Some(found.rounding)))
    };
    MONTHS.map(of).into()
}

/// All that a statement says, and what it was charged to the micro-credit.
fn said(view: &StatementView) -> String {
    let head = &view.head;
    let unpriced: Vec<_> = view
        .unpriced
        .iter()
        .map(|row| (&row.sku, &row.pool, row.service_class, row.share_us, row.gpu_us, &row.jobs, &row.reason))
        .collect();
    let words = (&head.team_code, &head.team_name, &head.cost_centre, &head.owner_name, &head.credit_rate);
    format!("{}{words:?}{:?}{unpriced:?}", csv::statement(view).unwrap(), head.sums)
}

fn amount(view: Option<&StatementView>) -> Amount {
    use gpuledger::workflows::diff_catalogue::Money;
    let Some(view) = view else { return Amount::NoStatement };
    let sums = &view.head.sums;
    match view.unpriced.is_empty() {
        true => Amount::Of(Money { credits: sums.amount, exact: sums.exact, currency: sums.currency_amount }),
        false => Amount::Unpriced,
    }
}

/// A line of a diff must be a line of the statement.
fn assert_line_of(view: Option<&StatementView>, line: Option<&StatementLine>) {
    let Some(line) = line else { return };
    let Sums { share_us, gpu_us, exact, .. } = line.sums;
    let found = view.unwrap().lines.iter().any(|stored| {
        let same = (stored.workload, &stored.sku_code, &stored.pool, stored.rate, stored.weight)
            == (line.key.workload, &line.key.sku.code, &line.key.pool, line.key.rate, line.key.weight);
        let sums = &stored.sums;
        same && (i128::from(sums.share_us), sums.gpu_us, sums.exact) == (share_us, gpu_us, exact)
            && (sums.amount, sums.currency_amount) == (line.amount, line.currency_amount)
    });
    assert!(found, "{line:?}");
}

/// Each statement that the diff names was and became what it says; each other one is the same, but for how slots cut
/// its charges.
fn assert_true(diff: &CatalogueDiff, before: &Views, after: &Views) {
    for ((month, was, rounding), (_, became, rounding_then)) in before.iter().zip(after) {
        let found = diff.months.iter().find(|found| found.month == *month);
        assert_eq!(found.is_none(), was.is_empty() || diff.in_force, "{month}");
        let changed = found.map(|month| month.statements.as_slice()).unwrap_or_default();
        let of = |views: &[StatementView], team: &str| views.iter().find(|view| view.head.team_code == team).cloned();
        for diff in changed {
            let (was, became) = (of(was, &diff.team), of(became, &diff.team));
            let views = NowThen { now: was.as_ref(), then: became.as_ref() };
            assert_eq!(diff.amounts.of, views.map(amount), "{month} {}", diff.team);
            // Experiments, and which jobs are behind a line, are not in these words.
            let unseen = !diff.experiments.is_empty() || !diff.lines.is_empty();
            assert!(unseen || views.now.map(said) != views.then.map(said), "{month} {}", diff.team);
            for line in &diff.lines {
                assert_line_of(views.now, line.lines.now.as_ref());
                assert_line_of(views.then, line.lines.then.as_ref());
            }
        }
        let mut unchanged = 0;
        for view in became.iter().filter(|view| !changed.iter().any(|diff| diff.team == view.head.team_code)) {
            let mut then = view.clone();
            let now = of(was, &view.head.team_code).unwrap();
            then.head.sums.charged_micros = now.head.sums.charged_micros;
            assert_eq!(said(&now), said(&then), "{month}");
            unchanged += 1;
        }
        assert_eq!(found.map_or(0, |month| month.unchanged), if diff.in_force { 0 } else { unchanged });
        if let Some(found) = found {
            let total = |views: &[StatementView]| {
                views.iter().try_fold(Fraction::ZERO, |sum, view| {
                    view.unpriced.is_empty().then(|| sum.plus(view.head.sums.exact).unwrap())
                })
            };
            let exact = |amount: Amount| match amount {
                Amount::Of(money) => Some(money.exact),
                _ => None,
            };
            // The row `rounding` is that of the list, where the list has a total.
            for (row, of) in [(rounding, found.rounding.of.now), (rounding_then, found.rounding.of.then)] {
                let Amount::Of(money) = of else { continue };
                let row = row.unwrap();
                assert_eq!((money.credits, money.currency), (row.amount, row.currency_amount));
            }
            let unpriced = |views: &[StatementView]| {
                Fraction::sum(views.iter().flat_map(|view| &view.unpriced).map(|row| row.gpu_us)).unwrap()
            };
            assert_eq!(found.unpriced_gpu_us, NowThen { now: unpriced(was), then: unpriced(became) });
            assert_eq!((exact(found.total.of.now), exact(found.total.of.then)), (total(was), total(became)));
        }
    }
}

/// 2025-05-15T00:00:00Z and some days around the first of June in any zone.
const FROM: i64 = 1_747_267_200;

fn list() -> impl Strategy<Value = String> {
    let job = (0i64..20 * 86_400, 1i64..6 * 86_400, 1i64..9, 0usize..4, 0usize..3);
    prop::collection::vec(job, 1..12).prop_map(|jobs| {
        let mut text = String::from("id,start,end,gpus,account,sku\n");
        for (id, (start, length, gpus, account, sku)) in jobs.into_iter().enumerate() {
            let (account, sku) = (["a", "b", "c", "nobody"][account], ["x", "x/3g", "y"][sku]);
            text += &format!("{id},{},{},{gpus},{account},{sku}\n", FROM + start, FROM + start + length);
        }
        text
    })
}

fn price_text() -> impl Strategy<Value = String> {
    let rates = prop::sample::select(vec!["7.01", "3.5", "0.000001", "0", ""]);
    let worth = prop::sample::select(vec!["", "EUR\"\nrate = \"0.85", "EUR\"\nrate = \"0.9", "USD\"\nrate = \"1"]);
    (rates.clone(), rates.clone(), rates, 0i64..20 * 86_400, any::<bool>(), worth).prop_map(
        |(x, later, y, change, y_is_priced, worth)| {
            let at = Instant::from_micros((FROM + change) * 1_000_000);
            let mut text = format!(
                "[[sku]]\ncode = \"x/3g\"\ncompute = \"3/7\"\nmemory = \"4/8\"\n[[price]]\nsku = \"x\"\nrate = \"{x}\"\n[[price]]\nsku = \"x\"\nrate = \"{later}\"\nfrom = \"{at}\"\n"
            );
            if y_is_priced {
                text += &format!("[[price]]\nsku = \"y\"\nrate = \"{y}\"\n");
            }
            if !worth.is_empty() {
                text += &format!("[[credit_rate]]\nfrom = \"2025-06\"\ncurrency = \"{worth}\"\n");
            }
            text
        },
    )
}

fn rules_text() -> impl Strategy<Value = String> {
    let rule = (0usize..3, 0usize..4, 0usize..3, 0i64..20 * 86_400);
    prop::collection::vec(rule, 0..3).prop_map(|rules| {
        let mut text = String::new();
        for (number, (team, account, says, from)) in rules.into_iter().enumerate() {
            let at = Instant::from_micros((FROM + from) * 1_000_000);
            let (team, account) = (["a", "b", "d"][team], ["a", "b", "c", "*"][account]);
            let says = ["workload = \"serving\"\n", "experiment = \"e\"\n", "class = \"reserved\"\n"][says];
            text += &format!("[[rule]]\nname = \"{number}\"\nwhen = {{ account = \"{account}\" }}\nteam = \"{team}\"\n{says}from = \"{at}\"\n");
        }
        text + "[[rule]]\nname = \"last\"\nteam_from = \"account\"\n"
    })
}

fn teams_text() -> impl Strategy<Value = String> {
    let entry =
        (any::<bool>(), prop::sample::select(vec!["", "from = 2025-05-20\n", "until = \"2025-06-02T10:30:00Z\"\n"]));
    prop::collection::vec(entry, 2).prop_map(|entries| {
        let mut text = String::from("[[team]]\ncode = \"a\"\nname = \"A\"\n[[team]]\ncode = \"d\"\nname = \"D\"\n");
        for (code, (renamed, validity)) in ["b", "c"].iter().zip(entries) {
            let name = if renamed { "Renamed" } else { "Team" };
            text += &format!("[[team]]\ncode = \"{code}\"\nname = \"{name}\"\n{validity}");
        }
        text
    })
}

fn what_a_diff_says_is_what_statements_say_after_the_apply_and_it_changes_nothing(books: Books) {
    let postgres = books.schema().is_some();
    drop(books);
    let cases = if postgres { 16 } else { 48 };
    let mut runner = TestRunner::new(ProptestConfig { cases, ..ProptestConfig::default() });
    let both = |text: BoxedStrategy<String>| (text.clone(), text);
    let zones = prop::sample::select(vec!["UTC", "Asia/Kolkata", "Australia/Lord_Howe"]);
    let texts = (both(teams_text().boxed()), both(price_text().boxed()), both(rules_text().boxed()));
    let ran = runner.run(&(list(), zones, texts, any::<bool>()), |(jobs, zone, texts, lost)| {
        let calendar = BillingCalendar::new(zone).unwrap();
        let books = if postgres { Books::postgres() } else { Books::sqlite() }.migrated(zone);
        let mut db = books.db();
        let kinds = [CatalogueKind::Teams, CatalogueKind::Prices, CatalogueKind::Rules];
        let texts = [texts.0, texts.1, texts.2];
        for (kind, (first, _)) in kinds.iter().zip(&texts) {
            apply_text(&mut db, &calendar, *kind, first).unwrap();
        }
        import(&mut db, &calendar, MAPPING, jobs.as_bytes());
        for (kind, (_, second)) in kinds.iter().zip(&texts) {
            let before = views(&mut db, &calendar);
            if lost {
                forget_sums(&mut db, &calendar);
            }
            let rows = dump(&mut db);
            let told = diff_text(&mut db, &calendar, *kind, second);
            assert_eq!(dump(&mut db), rows);
            match apply_text(&mut db, &calendar, *kind, second) {
                Ok(applied) => {
                    let told = told.unwrap();
                    assert_eq!(applied.changed, !told.in_force);
                    assert_true(&told, &before, &views(&mut db, &calendar));
                }
                Err(refused) => assert_eq!(told.map(|_| ()), Err(refused)),
            }
        }
        Ok(())
    });
    ran.unwrap();
}

/// As if an import had ended before the roll-up: usage is gone, and its days are marked.
fn forget_sums(db: &mut Db, calendar: &BillingCalendar) {
    for month in MONTHS {
        let period = calendar.period(Month::parse(month).unwrap());
        let usages = usage::of_interval(db, period.interval).unwrap();
        let marks = usages
            .iter()
            .map(|usage| Mark { day_start: calendar.day_of(usage.key.slot.start()).start(), node: usage.key.node });
        let marks: std::collections::BTreeSet<Mark> = marks.collect();
        mark(db, &marks.into_iter().collect::<Vec<_>>()).unwrap();
    }
    db.execute("DELETE FROM usage").unwrap();
}

fn a_diff_takes_nothing_that_an_apply_or_an_import_must_wait_for(books: Books) {
    let books = crate::frozen::closed_april(books);
    let calendar = BillingCalendar::new("UTC").unwrap();
    let mut db = books.db();
    let mut other = books.db();
    let body = "[[price]]\nsku = \"A100\"\nrate = \"2\"\n[[price]]\nsku = \"A100\"\nrate = \"5\"\nfrom = 2025-05-01\n";
    let source = SourceText::new("file.toml", body);
    let other = std::cell::RefCell::new(&mut other);
    let read = |books: &mut Catalogues| {
        books.prices = prices::parse(&source, &calendar, prices::Checks::All)?;
        // In the midst of the diff another applies and imports; neither waits, and the diff sees neither.
        let rules = "[[rule]]\nname = \"r\"\nteam_from = \"account\"\nexperiment = \"x\"\nuntil = 2025-05-01\n";
        apply_text(&mut other.borrow_mut(), &calendar, CatalogueKind::Rules, rules).unwrap();
        let jobs = format!("id,start,end,gpus,account,sku\n9,{FROM},{},1,a,A100\n", FROM + 3_600);
        import(&mut other.borrow_mut(), &calendar, MAPPING, jobs.as_bytes());
        Ok(body.to_owned())
    };
    let told = diff(&mut db, &calendar, &Wanted { kind: CatalogueKind::Prices, read: &read, actor: "test" }, now());
    let told = told.unwrap();
    let teams: Vec<&str> = told.months[0].statements.iter().map(|diff| diff.team.as_str()).collect();
    assert_eq!(teams, ["b"]);
    let told = diff_text(&mut db, &calendar, CatalogueKind::Prices, body).unwrap();
    assert_eq!(told.months[0].statements.len(), 1, "job 9 and job 3 are nobody's now");
    assert_eq!(told.months[0].statements[0].team, "unassigned");
}

/// The database itself refuses what a snapshot would write, and takes writes again once it has ended.
fn a_snapshot_refuses_writes(books: Books) {
    let books = books.migrated("UTC");
    let mut db = books.db();
    let write = |db: &mut Db| mark(db, &[Mark { day_start: Instant::from_micros(0), node: Default::default() }]);
    let refused = db.snapshot(write).unwrap_err().to_string();
    assert!(refused.contains("readonly") || refused.contains("read-only"), "{refused}");
    write(&mut db).unwrap();
    assert_eq!(usage::marks(&mut db, None).unwrap().len(), 1);
    assert_eq!(db.snapshot(|db| usage::marks(db, None)).unwrap().len(), 1);
}

/// By the program itself, with words that are new to the books: a team, an experiment, a SKU.
fn the_command_leaves_every_table_as_it_is(books: Books) {
    let books = crate::frozen::closed_april(books);
    let files = [
        (
            "teams",
            "[[team]]\ncode = \"a\"\nname = \"New\"\n[[team]]\ncode = \"b\"\nname = \"B\"\n[[team]]\ncode = \"z\"\nname = \"Z\"\n",
        ),
        (
            "prices",
            "[[price]]\nsku = \"A100\"\nrate = \"2\"\n[[price]]\nsku = \"A100\"\nrate = \"5\"\nfrom = \"2025-05-10T01:30:00Z\"\n[[price]]\nsku = \"N\"\nrate = \"1\"\n",
        ),
        (
            "rules",
            "[[rule]]\nname = \"n\"\nteam = \"a\"\nexperiment = \"new\"\nfrom = 2025-05-01\n[[rule]]\nname = \"r\"\nteam_from = \"account\"\nexperiment = \"x\"\n",
        ),
        ("rules", "[[rule]]\nname = \"n\"\nteam = \"a\"\n"),
    ];
    let rows = dump(&mut books.db());
    for (kind, body) in files {
        std::fs::write(books.path("f.toml"), body).unwrap();
        for form in [&["f.toml"][..], &["f.toml", "--json"]] {
            let ran = command::run(&books, &[&[kind, "diff"], form].concat());
            assert_eq!(dump(&mut books.db()), rows, "{}{}", ran.out, ran.err);
        }
    }
}

on_both!(
    what_a_diff_says_is_what_statements_say_after_the_apply_and_it_changes_nothing,
    a_diff_takes_nothing_that_an_apply_or_an_import_must_wait_for,
    a_snapshot_refuses_writes,
    the_command_leaves_every_table_as_it_is,
);
