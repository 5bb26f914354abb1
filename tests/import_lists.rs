//! Job lists in the forms they come in, and what must never be counted twice.

use std::io::Write;

use gpuledger_db::check;
use gpuledger_domain::calendar::BillingCalendar;

use crate::support::jobs::import;
use crate::support::{Books, command, on_both};

const ROWS: &str = "[columns]\nstart = \"start\"\nduration = \"seconds\"\ngpus = \"gpus\"\n[constants]\ncluster = \"c\"\npool = \"p\"\nsku = \"a\"\n";

fn utc() -> BillingCalendar {
    BillingCalendar::new("UTC").unwrap()
}

fn equal_rows_are_distinct_jobs_and_a_second_import_adds_none(books: Books) {
    let books = books.migrated("UTC");
    let list = "start,seconds,gpus\n2025-01-01T00:00:00Z,60,1\n2025-01-01T00:00:00Z,60,1\n2025-01-01T00:00:00Z,60,2\n2025-01-01T00:00:00Z,0,1\n2025-01-01T00:00:00Z,60,0\n";
    let (counts, _) = import(&mut books.db(), &utc(), ROWS, list.as_bytes());
    assert_eq!((counts.lines, counts.added, counts.known, counts.without_gpu_time), (5, 3, 0, 2));
    let (counts, _) = import(&mut books.db(), &utc(), ROWS, list.as_bytes());
    assert_eq!((counts.added, counts.known), (0, 3));
    assert_eq!(check::rows(&mut books.db(), "segment").unwrap(), 3);
    assert!(check::orphans(&mut books.db()).unwrap().is_empty());
}

fn other_columns_would_make_other_jobs_and_are_refused(books: Books) {
    let books = books.migrated("UTC");
    std::fs::write(books.path("a.toml"), ROWS).unwrap();
    std::fs::write(books.path("b.toml"), ROWS.replace("gpus = \"gpus\"", "gpus = \"gpus\"\nuser = \"user\"")).unwrap();
    std::fs::write(books.path("jobs.csv"), "start,seconds,gpus,user\n2025-01-01T00:00:00Z,60,1,u\n").unwrap();
    command::run(&books, &["import", "jobs", "--mapping", "a.toml", "jobs.csv"]).good();
    let ran = command::run(&books, &["import", "jobs", "--mapping", "b.toml", "jobs.csv"]);
    assert!(ran.code == 1 && ran.err.contains("would be charged a second time: import as before"), "{}", ran.err);
    assert_eq!(check::rows(&mut books.db(), "segment").unwrap(), 1);
}

fn a_price_change_meanwhile_is_never_missed(books: Books) {
    use crate::support::jobs::{apply_text, now};
    use gpuledger_db::catalogue::CatalogueKind;
    // Usage that was summed without a cut, as by a roll-up that began before the change: it must not be priced.
    let books = crate::frozen::closed_april(books);
    let mut db = books.db();
    let prices = "[[price]]\nsku = \"A100\"\nrate = \"2\"\n[[price]]\nsku = \"A100\"\nrate = \"3\"\nfrom = \"2025-05-10T02:00:00Z\"\n";
    apply_text(&mut db, &utc(), CatalogueKind::Prices, prices).unwrap();
    let may = gpuledger_domain::calendar::Month::parse("2025-05").unwrap();
    let total = |db: &mut gpuledger_db::Db| {
        let period =
            gpuledger::workflows::statements::of_period(db, &utc(), may, now()).map_err(|error| error.to_string())?;
        Ok::<_, String>(period.statements[0].head.sums.amount.to_string())
    };
    assert_eq!(total(&mut db).unwrap(), "13.00");
    db.execute("DELETE FROM usage WHERE slot_start_us = 1746842400000000").unwrap();
    db.execute("UPDATE usage SET slot_end_us = 1746921600000000 WHERE slot_start_us = 1746835200000000").unwrap();
    assert!(total(&mut db).unwrap_err().contains("not yet summed by the change at 2025-05-10T02:00:00Z"));
}

fn nodes_are_named_and_their_gpus_counted_once(books: Books) {
    let books = books.migrated("UTC");
    let mapping = "[columns]\nid = \"id\"\nstart = \"start\"\nend = \"end\"\ngpus = \"gpus\"\nnodes = \"nodes\"\ngpus_per_node = \"each\"\n[constants]\ncluster = \"c\"\npool = \"p\"\nsku = \"a\"\n";
    let list = "id,start,end,gpus,nodes,each\n\
        1,2025-01-01T00:00:00Z,2025-01-01T00:30:00Z,32,\"gpu[01-04]\",8\n\
        2,2025-01-01T00:00:00Z,2025-01-01T00:30:00Z,,\"a,b\",\"1,2\"\n\
        3,2025-01-01T00:00:00Z,2025-01-01T00:30:00Z,6,\"a b\",\n\
        4,2025-01-01T00:00:00Z,2025-01-01T00:30:00Z,5,\"a b\",\n\
        5,2025-01-01T00:00:00Z,2025-01-01T00:30:00Z,9,\"a b\",4\n\
        6,2025-01-01T00:00:00Z,2025-01-01T00:30:00Z,4,\"a[\",4\n";
    let (counts, refused) = import(&mut books.db(), &utc(), mapping, list.as_bytes());
    assert_eq!((counts.added, counts.refused), (3, 3));
    assert_eq!(refused.iter().map(|line| line.line).collect::<Vec<_>>(), [5, 6, 7]);
    let usage = check::rows_as_text(&mut books.db(), "usage").unwrap();
    assert_eq!(usage.len(), 3, "{usage:?}");
    let seconds = [32, 3, 6].map(|gpus: i64| (gpus * 1_800_000_000).to_string());
    assert!(seconds.iter().all(|seconds| usage.iter().any(|row| row.contains(seconds.as_str()))), "{usage:?}");
    assert_eq!(check::rows(&mut books.db(), "segment").unwrap(), 4 + 2 + 2);
}

on_both!(
    equal_rows_are_distinct_jobs_and_a_second_import_adds_none,
    other_columns_would_make_other_jobs_and_are_refused,
    nodes_are_named_and_their_gpus_counted_once,
    a_price_change_meanwhile_is_never_missed,
);

#[test]
fn packed_lists_and_standard_input_are_read_alike() {
    let books = Books::sqlite().migrated("UTC");
    std::fs::write(books.path("m.toml"), ROWS).unwrap();
    let line = |n: u32| format!("start,seconds,gpus\n2025-01-01T00:00:00Z,{n},1\n");
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(line(61).as_bytes()).unwrap();
    std::fs::write(books.path("a.csv.gz"), gzip.finish().unwrap()).unwrap();
    std::fs::write(books.path("b.zst"), zstd::encode_all(line(62).as_bytes(), 3).unwrap()).unwrap();
    std::fs::write(books.path("c.csv"), format!("\u{feff}{}", line(63))).unwrap();
    for file in ["a.csv.gz", "b.zst", "c.csv"] {
        assert!(
            command::run(&books, &["import", "jobs", "--mapping", "m.toml", file]).good().contains(": 1 lines: 1 new")
        );
    }
    let mut child = command::command(&books, "UTC", &["import", "jobs", "--mapping", "m.toml", "-"]);
    let mut child = child.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(line(64).as_bytes()).unwrap();
    assert!(command::ran(child.wait_with_output().unwrap()).good().contains("-: 1 lines: 1 new"));
    std::fs::write(books.path("torn.gz"), &std::fs::read(books.path("a.csv.gz")).unwrap()[..30]).unwrap();
    let torn = command::run(&books, &["import", "jobs", "--mapping", "m.toml", "torn.gz"]);
    assert_ne!(torn.code, 0);
    assert!(torn.err.contains("torn.gz"), "{}", torn.err);
}

#[test]
fn lines_are_numbered_as_an_editor_numbers_them_whatever_ends_them() {
    for end in ["\n", "\r\n"] {
        let books = Books::sqlite().migrated("UTC");
        let list =
            ["start,seconds,gpus", "2025-01-01T00:00:00Z,60,1", "x,60,1", "2025-01-01T00:00:00Z,60,1,9", ""].join(end);
        let (counts, refused) = import(&mut books.db(), &utc(), ROWS, list.as_bytes());
        assert_eq!((counts.added, counts.refused), (1, 2));
        assert_eq!(refused.iter().map(|line| line.line).collect::<Vec<_>>(), [3, 4], "{end:?}");
    }
}

#[test]
fn a_long_fact_is_cut_and_told_and_the_job_is_charged() {
    let books = Books::sqlite().migrated("UTC");
    let mapping = ROWS.replace("[constants]", "name = \"name\"\nlabel.x = \"x\"\n[constants]");
    std::fs::write(books.path("m.toml"), mapping).unwrap();
    std::fs::write(
        books.path("j.csv"),
        format!("start,seconds,gpus,name,x\n2025-01-01T00:00:00Z,60,1,{},y\n", "é".repeat(150)),
    )
    .unwrap();
    let said = command::run(&books, &["import", "jobs", "--mapping", "m.toml", "j.csv"]).good();
    assert!(said.contains("1 new") && said.contains("1 facts had more than 200 bytes and were cut."), "{said}");
    let facts = check::rows_as_text(&mut books.db(), "fact_set").unwrap().join("\n");
    assert!(facts.contains("\"labels\":{\"x\":\"y\"}"), "{facts}");
}

#[test]
fn an_unbalanced_quote_loses_no_line_unsaid() {
    let mapping = "[csv]\ndelimiter = \"|\"\n[columns]\nid = \"id\"\nstart = \"start\"\nend = \"end\"\ngpus = \"gpus\"\n[constants]\ncluster = \"c\"\npool = \"p\"\nsku = \"a\"\n";
    let row = |id: u32, name: &str| format!("{id}|2025-04-01T00:00:00Z|2025-04-01T10:00:00Z|8|{name}|DONE\n");
    let list = format!(
        "id|start|end|gpus|name|state\n{}{}{}{}",
        row(1, "ok"),
        row(2, "\"unbalanced"),
        row(3, "ok"),
        row(4, "say \"hi\"")
    );
    let books = Books::sqlite().migrated("UTC");
    let (counts, refused) = import(&mut books.db(), &utc(), mapping, list.as_bytes());
    assert_eq!((counts.added, counts.refused), (4, 0), "{refused:?}");
    // Where quotes do quote, what a stray one swallows is told.
    let list = list.replace('|', ",");
    let books = Books::sqlite().migrated("UTC");
    let (counts, refused) = import(&mut books.db(), &utc(), &mapping.replace('|', ","), list.as_bytes());
    assert_eq!((counts.added, counts.refused), (1, 1));
    assert!(refused[0].line == 3 && refused[0].reason.starts_with("it runs on to line 5"), "{refused:?}");
}

#[test]
fn parts_of_a_job_are_charged_apart_and_contradictions_told() {
    let mapping = "[columns]\nid = \"id\"\ncomponent = \"part\"\nstart = \"start\"\nend = \"end\"\ngpus = \"gpus\"\nsku = \"sku\"\n[constants]\ncluster = \"c\"\npool = \"p\"\n";
    let list = "id,part,start,end,gpus,sku\n\
        1,0,2025-04-01T00:00:00Z,2025-04-01T10:00:00Z,4,h100\n\
        1,1,2025-04-01T00:00:00Z,2025-04-01T10:00:00Z,8,a100\n\
        2,,2025-04-01T00:00:00Z,2025-04-01T10:00:00Z,4,h100\n\
        2,,2025-04-01T00:00:00Z,2025-04-01T10:00:00Z,8,a100\n\
        3,,2025-04-01T00:00:00Z,2025-04-01T10:00:00Z,200000,a100\n";
    let books = Books::sqlite().migrated("UTC");
    let (counts, refused) = import(&mut books.db(), &utc(), mapping, list.as_bytes());
    assert_eq!((counts.added, counts.refused), (3, 2), "{refused:?}");
    assert!(refused[0].line == 5 && refused[0].reason.contains("map a component column"), "{refused:?}");
    assert!(refused[1].line == 6 && refused[1].reason.contains("is no count of GPUs"), "{refused:?}");
}

#[test]
fn an_id_is_never_cut() {
    let books = Books::sqlite().migrated("UTC");
    let mapping = ROWS.replace("[columns]", "[columns]\nid = \"id\"");
    let (long, longer) = ("x".repeat(200), "x".repeat(201));
    let list = format!("id,start,seconds,gpus\n{long},2025-01-01T00:00:00Z,60,1\n{longer},2025-01-01T00:00:00Z,60,1\n");
    let (counts, refused) = import(&mut books.db(), &utc(), &mapping, list.as_bytes());
    assert_eq!((counts.added, counts.refused), (1, 1));
    assert_eq!((refused[0].field.as_str(), refused[0].line), ("id", 3));
}

#[test]
fn a_quote_that_is_not_closed_does_not_swallow_the_file() {
    let books = Books::sqlite().migrated("UTC");
    let mut list = String::from("start,seconds,gpus\n2025-01-01T00:00:00Z,60,1\n\"2025-01-01T00:00:00Z,60,1\n");
    while list.len() < 9 << 20 {
        list.push_str("2025-01-01T00:00:00Z,60,1\n");
    }
    let (counts, refused) = import(&mut books.db(), &utc(), ROWS, list.as_bytes());
    assert_eq!((counts.added, counts.refused), (1, 1));
    assert!(refused[0].reason.contains("a quote is not closed"), "{refused:?}");
}

#[test]
fn names_with_control_characters_are_refused_at_the_edge() {
    let books = Books::sqlite().migrated("UTC");
    let mapping = ROWS.replace("[constants]", "user = \"user\"\n[constants]");
    let list = "start,seconds,gpus,user\n2025-01-01T00:00:00Z,60,1,\"a\nb\"\n2025-01-01T00:00:00Z,60,1,\"=cmd()\"\n2025-01-01T00:00:00Z,60,1,\"a\u{7}\"\n";
    let (counts, refused) = import(&mut books.db(), &utc(), &mapping, list.as_bytes());
    assert_eq!((counts.added, counts.refused), (1, 2));
    assert!(refused[0].reason.starts_with("it runs on to line 3"), "{refused:?}");
    assert!(refused[1].field == "user" && refused[1].reason.contains("control character"), "{refused:?}");
}
