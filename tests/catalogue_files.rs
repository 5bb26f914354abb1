//! A file with a mistake: the error names file, line, field and remedy, the exit code is not 0, nothing is changed.

use crate::support::{Books, command, on_both};

/// File name, content, command, and what the error must say.
const MISTAKES: &[(&str, &str, &[&str], &[&str])] = &[
    (
        "t.toml",
        "[[team]]\ncode = \"a b\"\nname = \"A\"\n",
        &["teams", "apply"],
        &["t.toml:2:8: code:", "may hold only"],
    ),
    (
        "t.toml",
        "[[team]]\ncode = \"a\"\nname = \"=A\"\n",
        &["teams", "apply"],
        &["t.toml:3:8: name:", "letter or digit"],
    ),
    (
        "t.toml",
        "[[team]]\ncode = \"a\"\nname = \"A\"\n[[team]]\ncode = \"a\"\nname = \"A\"\n",
        &["teams", "apply"],
        &["t.toml:5:8: team:", "twice for the same time"],
    ),
    (
        "t.toml",
        "[[team]]\ncode = \"a\"\nname = \"A\"\nparent = \"z\"\n",
        &["teams", "apply"],
        &["t.toml:2:8: team:", "parent “z”"],
    ),
    (
        "t.toml",
        "[[team]]\ncode = \"a\"\nname = \"A\"\nowners = [{ name = \"M\", email = \"m at x\" }]\n",
        &["teams", "apply"],
        &["t.toml:4:33: owners.email:", "like a@example.org"],
    ),
    (
        "t.toml",
        "[[team]]\ncode = \"a\"\nname = \"A\"\nfrom = \"2025-02-01\"\nuntil = \"2025-01-01\"\n",
        &["teams", "check"],
        &["t.toml:5:9: until:", "after `from`"],
    ),
    ("t.toml", "[[team]]\ncode = \"a\"\n", &["teams", "apply"], &["t.toml:1:1:", "name"]),
    ("t.toml", "[[teem]]\n", &["teams", "apply"], &["t.toml:1:3:", "unknown field `teem`"]),
    (
        "r.toml",
        "[[rule]]\nname = \"r\"\nteam = \"nobody\"\n",
        &["rules", "apply"],
        &["r.toml:3:8: team:", "gpuledger teams apply"],
    ),
    (
        "r.toml",
        "[[rule]]\nname = \"r\"\nwhen = { gpus = { least = 3 } }\nteam = \"x\"\n",
        &["rules", "apply"],
        &["r.toml:3:17: when.gpus:", "at_least"],
    ),
    (
        "p.toml",
        "[[price]]\nsku = \"a\"\nrate = \"1\"\n[[price]]\nsku = \"a\"\nrate = \"2\"\n",
        &["prices", "apply"],
        &["p.toml:5:7: price:", "keep one of the two"],
    ),
    (
        "p.toml",
        "[[credit_rate]]\nfrom = \"2025-01-15\"\ncurrency = \"usd\"\nrate = \"1\"\n",
        &["prices", "apply"],
        &["p.toml:2:8: from:", "like 2017-10", "p.toml:3:12: currency:", "like USD"],
    ),
    (
        "p.toml",
        "[[sku]]\ncode = \"a/1g.5gb\"\ncompute = \"9/7\"\nmemory = \"1/8\"\n",
        &["prices", "apply"],
        &["p.toml:3:11: compute:", "like \"3/7\""],
    ),
    (
        "r.toml",
        "[[rule]]\nname = \"r\"\nteam = \"a\"\nwhen = { label.x = [] }\n",
        &["rules", "apply"],
        &["r.toml:4:10: when.label:", "an empty list never matches"],
    ),
    (
        "p.toml",
        "[[price]]\nsku = \"h\"\nrate = \"1\"\n[[sku]]\ncode = \"a\"\naliases = [\"h\"]\n",
        &["prices", "apply"],
        &["p.toml:6:12: aliases:", "“h” is itself the SKU h/full"],
    ),
    ("p.csv", "sku,rate,from\na,1;5,2025-01-01\n", &["prices", "apply"], &["p.csv:2:1: row 1, rate:", "like 2.50"]),
    ("p.csv", "sku;rate;from\na;1;2025-01-01\n", &["prices", "apply"], &["p.csv:1:1: heading:", "no column “sku”"]),
    (
        "m.toml",
        "[columns]\nstart = \"start\"\n",
        &["import", "jobs", "jobs.csv", "--mapping"],
        &["m.toml: columns:", "which column is the end?"],
    ),
    (
        "m.toml",
        "[columns]\nstart = \"begin\"\nend = \"end\"\ngpus = \"gpus\"\n[constants]\ncluster = \"c\"\npool = \"p\"\nsku = \"a\"\n",
        &["import", "jobs", "jobs.csv", "--mapping"],
        &["jobs.csv: line 1:", "“begin”", "found start, end, gpus"],
    ),
];

fn a_mistake_in_a_file_changes_nothing(books: Books) {
    let books = crate::frozen::closed_april(books);
    std::fs::write(books.path("jobs.csv"), "start,end,gpus\n2025-01-01T00:00:00Z,2025-01-02T00:00:00Z,1\n").unwrap();
    let all = |books: &Books| {
        let mut db = books.db();
        ["catalogue_version", "team", "segment", "usage", "allocation", "audit_log", "import", "sku", "roll_up_mark"]
            .map(|table| gpuledger_db::check::rows_as_text(&mut db, table).unwrap())
    };
    let before = all(&books);
    for (name, content, arguments, says) in MISTAKES {
        std::fs::write(books.path(name), content).unwrap();
        let ran = command::run(&books, &[arguments, &[*name][..]].concat());
        assert_eq!(ran.code, 1, "{content}: {}{}", ran.out, ran.err);
        for part in *says {
            assert!(ran.err.contains(part), "{content}\nsaid: {}\nlacks: {part}", ran.err);
        }
        assert_eq!(all(&books), before, "{content}");
    }
    // Not UTF-8, a folder, and a file that is not there.
    std::fs::write(books.path("t.toml"), b"[[team]]\nname = \"\xff\"\n").unwrap();
    assert!(command::run(&books, &["teams", "apply", "t.toml"]).err.contains("save the file as UTF-8"));
    assert_eq!(command::run(&books, &["prices", "apply", "."]).code, 1);
    assert_eq!(command::run(&books, &["rules", "apply", "none.toml"]).code, 1);
    assert_eq!(all(&books), before);
}

fn a_team_that_is_gone_leaves_its_jobs_unassigned_in_open_months_only(books: Books) {
    let books = crate::frozen::closed_april(books);
    std::fs::write(books.path("t.toml"), "[[team]]\ncode = \"a\"\nname = \"A\"\n").unwrap();
    let ran = command::run(&books, &["teams", "apply", "t.toml"]);
    assert_eq!(ran.code, 1);
    assert!(
        ran.err.contains(
            "this would change 2025-04, which is closed. Keep each entry as it was and add the change with from = \"2025-05-01\""
        ),
        "{}",
        ran.err
    );
    std::fs::write(
        books.path("t.toml"),
        "[[team]]\ncode = \"a\"\nname = \"A\"\n[[team]]\ncode = \"b\"\nname = \"B\"\nuntil = \"2025-05-01\"\n",
    )
    .unwrap();
    command::run(&books, &["teams", "apply", "t.toml"]).good();
    let list = command::run(&books, &["statement", "list", "--period", "2025-05"]).good();
    assert!(list.contains("unassigned"), "{list}");
}

fn a_gap_in_the_prices_of_a_used_sku_is_refused(books: Books) {
    let books = crate::frozen::closed_april(books);
    let price = |from: &str, until: &str| format!("[[price]]\nsku = \"A100\"\nrate = \"2\"\n{from}{until}");
    let gap = format!("{}{}", price("", "until = \"2025-05-01\"\n"), price("from = \"2025-06-01\"\n", ""));
    std::fs::write(books.path("p.toml"), gap).unwrap();
    let ran = command::run(&books, &["prices", "apply", "p.toml"]);
    assert_eq!(ran.code, 1);
    assert!(
        ran.err.contains(
            "A100/full, on-demand has no price in [2025-05-01T00:00:00Z, 2025-06-01T00:00:00Z), and was used then"
        ),
        "{}",
        ran.err
    );
}

on_both!(
    a_mistake_in_a_file_changes_nothing,
    a_team_that_is_gone_leaves_its_jobs_unassigned_in_open_months_only,
    a_gap_in_the_prices_of_a_used_sku_is_refused,
);

#[test]
fn each_change_names_the_operating_systems_user_in_the_audit_log() {
    let books = crate::frozen::closed_april(Books::sqlite());
    std::fs::write(books.path("p.csv"), "sku,rate,from\nB200,9,2026-01-01\nA100,2,2000-01-01\n").unwrap();
    command::run(&books, &["prices", "apply", "p.csv"]).good();
    let entry = gpuledger_db::audit::all(&mut books.db()).unwrap().pop().unwrap();
    let me = String::from_utf8(std::process::Command::new("id").arg("-un").output().unwrap().stdout).unwrap();
    assert_eq!((entry.actor.as_str(), entry.action.as_str()), (me.trim(), "prices apply"));
    assert!(entry.before.starts_with("version 1, SHA-256 ") && entry.after.starts_with("version 2, SHA-256 "));
}

#[test]
fn a_table_of_prices_never_makes_the_books_unreadable() {
    let books = crate::frozen::closed_april(Books::sqlite());
    std::fs::write(books.path("p.csv"), "sku,rate,from\nA100,2,2000-01-01\nA100/3g.40gb,1,2026-01-01\n").unwrap();
    let ran = command::run(&books, &["prices", "apply", "p.csv"]);
    assert!(ran.code == 1 && ran.err.contains("A100/3g.40gb is a slice, but nothing says of how much"), "{}", ran.err);
    command::run(&books, &["statement", "list", "--period", "2025-05"]).good();
    let described = "[[sku]]\ncode = \"A100/3g.40gb\"\ncompute = \"3/7\"\nmemory = \"4/8\"\n[[price]]\nsku = \"A100\"\nrate = \"2\"\n";
    std::fs::write(books.path("p.toml"), described).unwrap();
    command::run(&books, &["prices", "apply", "p.toml"]).good();
    command::run(&books, &["prices", "apply", "p.csv"]).good();
    command::run(&books, &["statement", "list", "--period", "2025-05"]).good();
    std::fs::write(books.path("dear.csv"), "sku,rate,from\nA100,2,2000-01-01\nA100/3g.40gb,1.01,2026-01-01\n").unwrap();
    let ran = command::run(&books, &["prices", "apply", "dear.csv"]);
    assert!(ran.code == 1 && ran.err.contains("dear.csv: price: 2 × A100/3g.40gb would cost more"), "{}", ran.err);
}

#[test]
fn a_newer_schema_is_left_alone() {
    let books = Books::sqlite().migrated("UTC");
    books.db().execute("INSERT INTO __diesel_schema_migrations (version) VALUES ('9999')").unwrap();
    for arguments in [&["migrate"][..], &["close", "2025-01"]] {
        let ran = command::run(&books, arguments);
        assert!(ran.code == 1 && ran.err.contains("a newer schema (9999) than this program knows"), "{}", ran.err);
    }
}

#[test]
fn books_of_another_zone_are_refused() {
    let books = Books::sqlite().migrated("Asia/Kolkata");
    for arguments in [&["migrate"][..], &["close", "2025-01"], &["doctor"]] {
        let ran = command::run(&books, arguments);
        assert_ne!(ran.code, 0);
        let said = format!("{}{}", ran.out, ran.err);
        assert!(said.contains("set billing_zone (GPULEDGER_BILLING_ZONE) to Asia/Kolkata"), "{said}");
    }
}

#[test]
fn wrong_use_and_missing_books_are_told_apart() {
    let books = Books::sqlite();
    assert_eq!(command::run(&books, &["closee"]).code, 2);
    assert_eq!(command::run(&books, &["statement", "list"]).code, 2);
    let ran = command::run(&books, &["close", "2025-01"]);
    assert!(ran.code == 1 && ran.err.contains("make it with `gpuledger migrate`"), "{}", ran.err);
    assert!(!books.path("books.db").exists(), "no file is made on the way");
    let checked = command::run(&books, &["config", "check"]).good();
    assert!(checked.contains("GPULEDGER_DATABASE_URL") && checked.contains("default"), "{checked}");
}
