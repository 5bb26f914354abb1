//! A real month: the Philly trace against an oracle that shares nothing with the product but the file.
//!
//! The oracle is whole-number arithmetic on the lines: seconds of overlap with the month × GPUs. It knows no segment,
//! no usage and no calendar; the instants at which months begin are written down here.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use gpuledger::workflows::{close, statements};
use gpuledger_db::catalogue::CatalogueKind;
use gpuledger_domain::calendar::{BillingCalendar, Month};

use crate::support::jobs::{apply_text, import, now};
use crate::support::{Books, on_both, project_file};

const MAPPING: &str = include_str!("../docs/examples/philly/mapping.toml");
const TEAMS: &str = include_str!("../docs/examples/philly/teams.toml");
const PRICES: &str = include_str!("../docs/examples/philly/prices.toml");
const RULES: &str = include_str!("../docs/examples/philly/rules.toml");

/// October 2017 in seconds since the Unix epoch, by zone.
const OCTOBER_UTC: (i64, i64) = (1_506_816_000, 1_509_494_400);
const OCTOBER_KOLKATA: (i64, i64) = (1_506_796_200, 1_509_474_600);
/// Clocks go from +10:30 to +11:00 on 1 October at 02:00, so that the month is half an hour short of 744.
const OCTOBER_LORD_HOWE: (i64, i64) = (1_506_778_200, 1_509_454_800);
/// −02:30 throughout.
const OCTOBER_ST_JOHNS: (i64, i64) = (1_506_825_000, 1_509_503_400);

fn lines() -> (String, Vec<String>) {
    let packed = std::fs::read(project_file("docs/examples/philly/philly.csv.gz")).unwrap();
    let mut text = String::new();
    flate2::read::GzDecoder::new(packed.as_slice()).read_to_string(&mut text).unwrap();
    let mut lines = text.lines().filter(|line| !line.is_empty()).map(str::to_owned);
    (lines.next().unwrap(), lines.collect())
}

/// Days since 1970-01-01 of a date from March 2017 on, by counting.
fn day_number(text: &str) -> i64 {
    let month: i64 = text[5..7].parse().unwrap();
    let day: i64 = text[8..10].parse().unwrap();
    let before: i64 =
        [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][..usize::try_from(month - 1).unwrap()].iter().sum();
    assert_eq!(&text[..4], "2017");
    17_167 + before + day - 1
}

fn start_of(line: &str) -> i64 {
    let number = |range: std::ops::Range<usize>| line[range].parse::<i64>().unwrap();
    day_number(line) * 86_400 + number(11..13) * 3_600 + number(14..16) * 60 + number(17..19)
}

/// GPU-seconds and jobs by virtual cluster, within a month.
fn oracle(lines: &[String], (from, until): (i64, i64)) -> BTreeMap<String, (i64, i64)> {
    let mut teams = BTreeMap::new();
    for line in lines {
        let cells: Vec<&str> = line.split(',').collect();
        let start = start_of(line);
        let end = start + cells[1].strip_suffix(".0").unwrap().parse::<i64>().unwrap();
        let overlap = end.min(until) - start.max(from);
        if overlap > 0 {
            let team: &mut (i64, i64) = teams.entry(cells[4].to_owned()).or_default();
            team.0 += overlap * cells[2].parse::<i64>().unwrap();
            team.1 += 1;
        }
    }
    teams
}

/// `n ÷ 3,600` to so many places, halves up; `n` is not negative.
fn hours(n: i64, places: u32) -> String {
    let one = 10i64.pow(places);
    let rounded = (2 * n * one + 3_600) / 7_200;
    format!("{}.{:0width$}", rounded / one, rounded % one, width = usize::try_from(places).unwrap())
}

fn prepared(books: Books, zone: &str) -> (Books, BillingCalendar) {
    let books = books.migrated(zone);
    let calendar = BillingCalendar::new(zone).unwrap();
    let mut db = books.db();
    for (kind, text) in [(CatalogueKind::Teams, TEAMS), (CatalogueKind::Prices, PRICES), (CatalogueKind::Rules, RULES)]
    {
        apply_text(&mut db, &calendar, kind, text).unwrap();
    }
    (books, calendar)
}

fn packed(heading: &str, lines: &[&String]) -> Vec<u8> {
    let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    writeln!(writer, "{heading}").unwrap();
    lines.iter().for_each(|line| writeln!(writer, "{line}").unwrap());
    writer.finish().unwrap()
}

/// The October statements as the command prints them, as (team, GPU-seconds, jobs, credits, credits exact).
fn october(books: &Books, calendar: &BillingCalendar) -> serde_json::Value {
    let mut db = books.db();
    let october = Month::parse("2017-10").unwrap();
    close::close(&mut db, calendar, october, "test", now).unwrap();
    let period = statements::of_period(&mut db, calendar, october, now()).unwrap();
    serde_json::from_str(&gpuledger::export::json::list(&period).unwrap()).unwrap()
}

fn assert_equals_oracle(rows: &serde_json::Value, teams: &BTreeMap<String, (i64, i64)>) {
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), teams.len() + 1);
    for (row, (team, (seconds, jobs))) in rows.iter().zip(teams) {
        assert_eq!(row["team"], *team.as_str());
        assert_eq!(row["gpu_seconds"], *seconds);
        assert_eq!(row["jobs"], *jobs);
        assert_eq!(row["credits"], hours(*seconds, 2));
        assert_eq!(row["credits_exact"], hours(*seconds, 6));
    }
    let cents = |row: &serde_json::Value| row["credits"].as_str().unwrap().replace('.', "").parse::<i64>().unwrap();
    let total: i64 = teams.values().map(|(seconds, _)| seconds).sum();
    assert_eq!(rows.iter().map(cents).sum::<i64>(), hours(total, 2).replace('.', "").parse::<i64>().unwrap());
}

fn october_2017_is_exact(books: Books) {
    let (heading, lines) = lines();
    let teams = oracle(&lines, OCTOBER_UTC);
    // The oracle itself gives the published numbers.
    assert_eq!(lines.len(), 82_247);
    assert_eq!(teams.values().map(|(seconds, _)| seconds).sum::<i64>(), 1_591_443_406);
    assert_eq!(teams.values().map(|(_, jobs)| jobs).sum::<i64>(), 47_365);
    assert_eq!((teams["ee9e8c"].0, teams["6214e9"].0, teams["e13805"].0), (365_063_948, 152_131_436, 11_760_717));

    let (books, calendar) = prepared(books, "UTC");
    let all = packed(&heading, &lines.iter().collect::<Vec<_>>());
    let (counts, _) = import(&mut books.db(), &calendar, MAPPING, &all);
    assert_eq!((counts.added, counts.known, counts.refused), (82_247, 0, 0));
    let (counts, _) = import(&mut books.db(), &calendar, MAPPING, &all);
    assert_eq!((counts.added, counts.known, counts.revised), (0, 82_247, 0), "the same file again changes nothing");

    let rows = october(&books, &calendar);
    assert_equals_oracle(&rows, &teams);
    let last = &rows.as_array().unwrap()[11];
    assert_eq!((&last["team"], &last["credits"]), (&"rounding".into(), &"0.01".into()));
    let row = rows.as_array().unwrap().iter().find(|row| row["team"] == "ee9e8c").unwrap();
    assert_eq!(row["credits"], "101406.65");
    assert_eq!(hours(1_591_443_406, 6), "442067.612778");
    let (counts, _) = import(&mut books.db(), &calendar, MAPPING, &all);
    assert_eq!((counts.known, counts.refused), (82_247, 0), "nor after the month is closed");
}

fn overlapping_exports_in_any_order_give_the_same(books: Books) {
    let (heading, mut lines) = lines();
    let teams = oracle(&lines, OCTOBER_UTC);
    // An order that has nothing to do with time: by a hash of the line's place.
    let mut places: Vec<u64> = (0..u64::try_from(lines.len()).unwrap()).collect();
    places.sort_by_key(|place| place.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17));
    lines = places.into_iter().map(|place| lines[usize::try_from(place).unwrap()].clone()).collect();
    let (books, calendar) = prepared(books, "UTC");
    let mut added = 0;
    // Exports cut by start time, each overlapping its neighbour, the latest first; then two of them once more.
    let cuts = [
        (1_509_000_000, i64::MAX),
        (1_507_000_000, 1_509_300_000),
        (0, 1_507_400_000),
        (1_506_000_000, 1_508_000_000),
        (0, 1_507_400_000),
    ];
    for (from, until) in cuts {
        let part: Vec<&String> = lines.iter().filter(|line| (from..until).contains(&start_of(line))).collect();
        added += import(&mut books.db(), &calendar, MAPPING, &packed(&heading, &part)).0.added;
    }
    assert_eq!(added, 82_247);
    assert_equals_oracle(&october(&books, &calendar), &teams);
}

fn months_that_begin_within_a_utc_hour_are_exact(books: Books) {
    let (heading, lines) = lines();
    let all = packed(&heading, &lines.iter().collect::<Vec<_>>());
    let (books, calendar) = prepared(books, "Australia/Lord_Howe");
    import(&mut books.db(), &calendar, MAPPING, &all);
    assert_equals_oracle(&october(&books, &calendar), &oracle(&lines, OCTOBER_LORD_HOWE));
}

#[test]
fn kolkata_and_st_johns_on_sqlite() {
    let (heading, lines) = lines();
    let all = packed(&heading, &lines.iter().collect::<Vec<_>>());
    for (zone, october_of_zone) in [("Asia/Kolkata", OCTOBER_KOLKATA), ("America/St_Johns", OCTOBER_ST_JOHNS)] {
        let (books, calendar) = prepared(Books::sqlite(), zone);
        import(&mut books.db(), &calendar, MAPPING, &all);
        assert_equals_oracle(&october(&books, &calendar), &oracle(&lines, october_of_zone));
    }
}

#[test]
fn both_databases_give_the_same_csv_byte_for_byte() {
    let (heading, lines) = lines();
    let part: Vec<&String> = lines.iter().step_by(7).collect();
    let list = packed(&heading, &part);
    let csv = |books: Books| {
        let (books, calendar) = prepared(books, "Asia/Kolkata");
        import(&mut books.db(), &calendar, MAPPING, &list);
        let mut db = books.db();
        let october = Month::parse("2017-10").unwrap();
        close::close(&mut db, &calendar, october, "test", now).unwrap();
        let period = statements::of_period(&mut db, &calendar, october, now()).unwrap();
        let each: Vec<String> =
            period.statements.iter().map(|view| gpuledger::export::csv::statement(view).unwrap()).collect();
        format!("{}{}", gpuledger::export::csv::list(&period).unwrap(), each.concat())
    };
    let (lite, pg) = (csv(Books::sqlite()), csv(Books::postgres()));
    assert!(lite.lines().count() > 30);
    assert_eq!(lite, pg);
}

on_both!(
    october_2017_is_exact,
    overlapping_exports_in_any_order_give_the_same,
    months_that_begin_within_a_utc_hour_are_exact
);
