//! Killed at any moment, then run again: the same end as a run that nobody disturbed.

use std::process::Stdio;
use std::time::Duration;

use crate::support::{Books, command, on_both, project_file};

/// Numbers that follow from a seed, for moments that look random and can be had again.
pub struct Moments(u64);

impl Moments {
    pub fn from_environment() -> Moments {
        let of_now = || u64::try_from(gpuledger::clock::now().micros()).unwrap();
        let seed = std::env::var("GPULEDGER_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(of_now);
        println!("GPULEDGER_TEST_SEED={seed}");
        Moments(seed | 1)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Every fifth line of the trace, with teams, prices and rules.
fn prepare(books: &Books) {
    use std::io::Read;
    let folder = project_file("docs/examples/philly");
    let packed = std::fs::read(folder.join("philly.csv.gz")).unwrap();
    let mut text = String::new();
    flate2::read::GzDecoder::new(packed.as_slice()).read_to_string(&mut text).unwrap();
    let some: Vec<&str> = text.lines().enumerate().filter(|(line, _)| line % 5 == 0).map(|(_, line)| line).collect();
    std::fs::write(books.path("jobs.csv"), some.join("\n")).unwrap();
    std::fs::copy(folder.join("mapping.toml"), books.path("mapping.toml")).unwrap();
    command::run(books, &["migrate"]).good();
    for kind in ["teams", "prices", "rules"] {
        let file = folder.join(format!("{kind}.toml"));
        command::run(books, &[kind, "apply", command::text(&file)]).good();
    }
}

const IMPORT: &[&str] = &["import", "jobs", "--mapping", "mapping.toml", "jobs.csv"];
const CLOSE: &[&str] = &["close", "2017-10"];

/// What must be the same: all facts, all usage, all that was issued. Not how often it was tried.
fn end_state(books: &Books) -> String {
    let mut db = books.db();
    let mut state = command::run(books, &["statement", "list", "--period", "2017-10", "--csv"]).good();
    for table in
        ["job", "segment", "usage", "charge", "statement", "statement_line", "statement_counter", "roll_up_mark"]
    {
        state += &format!("{table}: {}\n", gpuledger_db::check::rows(&mut db, table).unwrap());
    }
    for number in [1, 5, 11] {
        state += &command::run(books, &["statement", "show", &format!("ST-2017-10-{number:04}"), "--csv"]).good();
    }
    assert_eq!(gpuledger_db::check::orphans(&mut db).unwrap(), []);
    state
}

/// Runs a command and kills it after some milliseconds; whether it was killed before it ended.
fn killed(books: &Books, arguments: &[&str], after: Duration) -> bool {
    let mut child =
        command::command(books, "UTC", arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let begun = std::time::Instant::now();
    while begun.elapsed() < after {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    true
}

fn killed_at_any_moment_and_run_again_it_ends_the_same(books: Books) {
    let calm = Books::sqlite();
    prepare(&calm);
    let begun = std::time::Instant::now();
    command::run(&calm, IMPORT).good();
    let import_ms = u64::try_from(begun.elapsed().as_millis()).unwrap();
    let begun = std::time::Instant::now();
    command::run(&calm, CLOSE).good();
    let close_ms = u64::try_from(begun.elapsed().as_millis()).unwrap();
    let wanted = end_state(&calm);

    prepare(&books);
    let mut moments = Moments::from_environment();
    let mut kills = 0;
    for _ in 0..12 {
        kills += u32::from(killed(&books, IMPORT, Duration::from_millis(moments.below(import_ms * 2 / 3))));
    }
    command::run(&books, IMPORT).good();
    for _ in 0..12 {
        kills += u32::from(killed(&books, CLOSE, Duration::from_millis(moments.below(close_ms * 2 / 3))));
    }
    command::run(&books, CLOSE).good();
    assert!(kills >= 6, "only {kills} runs were killed in time");
    assert_eq!(end_state(&books), wanted);
}

/// Several closers at once: each ends in the closed month or says that another took over; one set of statements.
fn closers_at_once_issue_one_set_of_statements(books: Books) {
    prepare(&books);
    command::run(&books, IMPORT).good();
    let closers: Vec<_> = (0..4)
        .map(|_| command::command(&books, "UTC", CLOSE).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
        .collect();
    let ends: Vec<_> = closers.into_iter().map(|child| command::ran(child.wait_with_output().unwrap())).collect();
    assert!(ends.iter().any(|end| end.code == 0));
    for end in &ends {
        assert!(end.code == 0 || end.err.contains("took over"), "{}", end.err);
    }
    let again = command::run(&books, CLOSE).good();
    assert!(again.starts_with("2017-10 was closed already; nothing changed: 11 statements"), "{again}");
    let mut db = books.db();
    assert_eq!(gpuledger_db::check::rows(&mut db, "statement").unwrap(), 11);
    assert_eq!(gpuledger_db::check::orphans(&mut db).unwrap(), []);
}

/// Two imports of overlapping lists at once: each job once.
fn imports_at_once_take_each_job_once(books: Books) {
    prepare(&books);
    let imports: Vec<_> = (0..2)
        .map(|_| command::command(&books, "UTC", IMPORT).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
        .collect();
    for child in imports {
        command::ran(child.wait_with_output().unwrap()).good();
    }
    command::run(&books, CLOSE).good();
    let calm = Books::sqlite();
    prepare(&calm);
    command::run(&calm, IMPORT).good();
    command::run(&calm, CLOSE).good();
    assert_eq!(end_state(&books), end_state(&calm));
}

on_both!(
    killed_at_any_moment_and_run_again_it_ends_the_same,
    closers_at_once_issue_one_set_of_statements,
    imports_at_once_take_each_job_once,
);
