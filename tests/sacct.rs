//! What the books make of Slurm's accounting, against what Slurm itself says.

use std::collections::BTreeMap;

use gpuledger::import::InputFile;
use gpuledger::import::sacct::{SacctList, SacctOptions};
use gpuledger::workflows::usage_report::{Dimension, usage_report};
use gpuledger_domain::ids::ClusterName;
use gpuledger_domain::pricing::PriceBook;
use gpuledger_domain::time::{Instant, Interval, SECOND_US};
use gpuledger_domain::units::Fraction;
use proptest::prelude::*;

use crate::support::sacct::{import, list_of, utc};
use crate::support::{Books, on_both, project_file};

type Cells = BTreeMap<(String, String, String), i64>;

fn at(text: &str) -> Instant {
    Instant::parse(text).unwrap()
}

/// GPU-seconds by account, user and type in the books.
fn cells(books: &Books, from: &str, to: &str) -> Cells {
    let interval = Interval::new(at(from), at(to)).unwrap();
    let by = [Dimension::Account, Dimension::User, Dimension::Sku];
    let rows = usage_report(&mut books.db(), &utc(), &PriceBook::default(), interval, &by).unwrap();
    let seconds = |us: Fraction| {
        let seconds = us.over(Fraction::whole(SECOND_US.into())).unwrap();
        assert_eq!(seconds, Fraction::whole(seconds.rounded()), "a part of a second");
        i64::try_from(seconds.rounded()).unwrap()
    };
    let key = |key: &[String]| (key[0].clone(), key[1].clone(), key[2].clone());
    rows.into_iter().map(|row| (key(&row.key), seconds(row.instance_us))).collect()
}

/// The cells of users in a report of `sreport`, which sums by type and over types: every one must be met.
fn assert_equals_sreport(cells: &Cells, report: &str, types: &[&str]) -> usize {
    let mut compared = 0;
    for line in report.lines() {
        let columns: Vec<&str> = line.split('|').collect();
        let [_, account, login, _, resource, used] = columns.as_slice() else { continue };
        let Some(kind) = resource.strip_prefix("gres/gpu").filter(|_| !login.is_empty()) else { continue };
        let cell = |kind: &str| {
            cells.get(&((*account).to_owned(), (*login).to_owned(), kind.to_owned())).copied().unwrap_or(0)
        };
        let ours = match kind.strip_prefix(':') {
            Some(kind) => cell(kind),
            None => types.iter().map(|kind| cell(kind)).sum(),
        };
        assert_eq!(ours.to_string(), *used, "{account}, {login}, {resource}");
        compared += 1;
    }
    compared
}

/// Suspended time counts as held, a slice as one; each form that carries the facts gives the same.
fn each_form_equals_sreport(make: impl Fn() -> Books) {
    let report =
        std::fs::read_to_string(project_file("tests/data/sacct-local/sreport-AccountUtilizationByUser-17.txt"));
    let report = report.unwrap();
    let forms = [
        "sacct-P-D-with-steps.txt",
        "sacct-P-D-X-allocations.txt",
        "sacct-P-D-X-us-delimiter.txt",
        "sacct-P-D-X-noheader-short.txt",
        "sacct-units-G.txt",
        "sacct.json",
    ];
    for form in forms {
        let books = make().migrated("UTC");
        let path = project_file("tests/data/sacct-local").join(form);
        let file = InputFile::open(path.to_str().unwrap()).unwrap();
        let fields = "JobID,Account,User,State,Elapsed,AllocTRES,Start,End";
        let options = SacctOptions {
            cluster: ClusterName::parse("gpulab").ok(),
            zone: Some("UTC".into()),
            delimiter: None,
            fields: form.contains("noheader").then(|| fields.split(',').map(str::to_owned).collect()),
        };
        let (_, refused) = import(&books, &SacctList::of_file(&file, options).unwrap(), &file, "p");
        assert_eq!(refused, [], "{form}");
        let cells = cells(&books, "2026-11-30T17:00:00Z", "2026-11-30T18:00:00Z");
        assert_eq!(assert_equals_sreport(&cells, &report, &["h100", "a100_3g.20gb"]), 12, "{form}");
    }
}

#[test]
fn every_form_equals_sreport_on_sqlite() {
    each_form_equals_sreport(Books::sqlite);
}

#[test]
fn every_form_equals_sreport_on_postgres() {
    each_form_equals_sreport(Books::postgres);
}

/// The kept run of a real Slurm: an export while jobs ran, then the whole one, in any form and order.
fn a_kept_evening_of_a_real_slurm_equals_what_was_counted_apart(books: Books) {
    let books = books.migrated("UTC");
    let text = std::fs::read_to_string(project_file("tests/data/slurm-lab/expected.csv")).unwrap();
    for form in ["sacct-running-1f.txt", "sacct.json", "sacct-steps.txt", "sacct-1f.txt", "sacct-no-duplicates.txt"] {
        let path = project_file("tests/data/slurm-lab").join(form);
        let file = InputFile::open(path.to_str().unwrap()).unwrap();
        let options = SacctOptions { zone: Some("UTC".into()), ..SacctOptions::default() };
        let (_, refused) = import(&books, &SacctList::of_file(&file, options).unwrap(), &file, "p");
        assert_eq!(refused, [], "{form}");
    }
    let mut wanted: BTreeMap<(String, String), Cells> = BTreeMap::new();
    for line in text.lines().skip(1) {
        let columns: Vec<&str> = line.split(',').collect();
        let [from, to, account, user, sku, seconds] = columns.as_slice() else { panic!("{line}") };
        let key = ((*account).to_owned(), (*user).to_owned(), (*sku).to_owned());
        let cells = wanted.entry(((*from).to_owned(), (*to).to_owned())).or_default();
        cells.insert(key, seconds.parse().unwrap());
    }
    assert_eq!(wanted.len(), 3);
    for ((from, to), mut wanted) in wanted {
        wanted.retain(|_, seconds| *seconds > 0);
        assert_eq!(cells(&books, &from, &to), wanted, "{from} to {to}");
    }
}

/// A job as it truly ran: its start and length in minutes, its GPUs.
#[derive(Clone, Debug)]
struct Truth {
    start: i64,
    length: i64,
    gpus: i64,
}

/// An export: when it was made, and the window it was clipped to.
#[derive(Clone, Debug)]
struct Export {
    as_of: i64,
    clip: Option<(i64, i64)>,
}

fn minute(minute: i64) -> String {
    at("2025-03-01T00:00:00Z").plus_micros(minute * 60 * SECOND_US).unwrap().to_string()
}

/// What `sacct` prints of these jobs: those that had begun, running ones without an end, clipped where asked.
fn printed(jobs: &[Truth], export: &Export) -> String {
    let mut text = "JobID|JobIDRaw|Cluster|Account|State|Submit|Start|End|ElapsedRaw|Suspended|AllocTRES\n".to_owned();
    for (id, job) in jobs.iter().enumerate() {
        let (mut start, mut end) = (job.start, job.start + job.length);
        let ended = end <= export.as_of;
        end = end.min(export.as_of);
        if let Some((from, until)) = export.clip {
            (start, end) = (start.max(from), end.min(until));
        }
        if start >= end {
            continue;
        }
        let (state, shown) =
            if ended || export.clip.is_some() { ("COMPLETED", minute(end)) } else { ("RUNNING", "Unknown".into()) };
        let (begin, submit, elapsed) = (minute(start), minute(job.start), (end - start) * 60);
        let gpus = job.gpus;
        text += &format!("{id}|{id}|c|a|{state}|{submit}|{begin}|{shown}|{elapsed}|00:00:00|gres/gpu={gpus}\n");
    }
    text
}

fn take(books: &Books, text: &str) {
    let file = InputFile::of_bytes("jobs.txt", text.as_bytes());
    import(books, &list_of(&file), &file, "p");
}

/// Exports made while jobs ran, clipped to windows, repeated and in any order: once the whole list has come, before or
/// after them, the books hold exactly what was held.
fn any_order_of_any_exports_gives_what_was_held(books: Books) {
    let books = books.migrated("UTC");
    let job = (0i64..4_000, 1i64..3_000, 1i64..9).prop_map(|(start, length, gpus)| Truth { start, length, gpus });
    let clip = prop::option::of((0i64..5_000, 1i64..3_000).prop_map(|(from, length)| (from, from + length)));
    let export = (0i64..8_000, clip).prop_map(|(as_of, clip)| Export { as_of, clip });
    let exports = prop::collection::vec(export, 0..6);
    let case = (prop::collection::vec(job, 1..8), exports, 0usize..6);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(24));
    let base = std::cell::Cell::new(0);
    let result = runner.run(&case, |(jobs, exports, place)| {
        // Every case is a cluster of its own in the same books.
        base.set(base.get() + 1);
        let cluster = format!("c{}", base.get());
        let whole = printed(&jobs, &Export { as_of: i64::MAX / 2, clip: None });
        let mut texts: Vec<String> = exports.iter().map(|export| printed(&jobs, export)).collect();
        texts.insert(place.min(texts.len()), whole);
        for text in texts {
            take(&books, &text.replace("|c|a|", &format!("|{cluster}|a|")));
        }
        let truth: i64 = jobs.iter().map(|job| job.length * 60 * job.gpus).sum();
        let interval = Interval::new(at("2025-02-01T00:00:00Z"), at("2025-04-01T00:00:00Z")).unwrap();
        let rows =
            usage_report(&mut books.db(), &utc(), &PriceBook::default(), interval, &[Dimension::Cluster]).unwrap();
        let held = rows.iter().find(|row| row.key[0] == cluster).map_or(Fraction::ZERO, |row| row.instance_us);
        prop_assert_eq!(held, Fraction::whole(i128::from(truth * SECOND_US)));
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

/// A clipped list of a job that has ended takes the place of a list from when it ran, and the whole that of both,
/// whether they come one by one or as one list.
fn a_clipped_end_gives_way_to_the_whole_in_any_order(books: Books) {
    let books = books.migrated("UTC");
    let job = [Truth { start: 2_526, length: 2_996, gpus: 1 }];
    let export = |as_of, clip| printed(&job, &Export { as_of, clip });
    let exports = [export(4_117, None), export(4_117, Some((2_527, 2_528))), export(9_000, None)];
    let mut wanted = Cells::new();
    for (number, order) in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]].iter().enumerate() {
        let renamed = |kind: &str, text: &str| text.replace("|c|a|", &format!("|{kind}{number}|{kind}{number}|"));
        for index in order {
            take(&books, &renamed("apart", &exports[*index]));
        }
        let lines: Vec<&str> = order.iter().filter_map(|index| exports[*index].lines().nth(1)).collect();
        let heading = exports[0].lines().next().unwrap();
        take(&books, &renamed("together", &format!("{heading}\n{}\n", lines.join("\n"))));
        for kind in ["apart", "together"] {
            wanted.insert((format!("{kind}{number}"), String::new(), "gpu".to_owned()), 2_996 * 60);
        }
    }
    assert_eq!(cells(&books, "2025-03-01T00:00:00Z", "2025-04-01T00:00:00Z"), wanted);
}

on_both!(
    a_kept_evening_of_a_real_slurm_equals_what_was_counted_apart,
    a_clipped_end_gives_way_to_the_whole_in_any_order,
    any_order_of_any_exports_gives_what_was_held,
);
