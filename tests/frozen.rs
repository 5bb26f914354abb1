//! What is sealed stays as it is, whatever SQL comes: each attempt must fail, and no byte may differ after it.

use gpuledger::workflows::close;
use gpuledger_db::catalogue::CatalogueKind;
use gpuledger_db::{Backend, Db};
use gpuledger_domain::calendar::{BillingCalendar, Month};

use crate::support::jobs::{apply_text, import, now};
use crate::support::{Books, on_both};

const MAPPING: &str = "[columns]\nid = \"id\"\nstart = \"start\"\nend = \"end\"\naccount = \"account\"\n[constants]\ngpus = \"1\"\nsku = \"A100\"\ncluster = \"c\"\npool = \"p\"\n";

/// Books with April closed and May open.
pub fn closed_april(books: Books) -> Books {
    let books = books.migrated("UTC");
    let calendar = BillingCalendar::new("UTC").unwrap();
    let mut db = books.db();
    apply_text(
        &mut db,
        &calendar,
        CatalogueKind::Teams,
        "[[team]]\ncode = \"a\"\nname = \"A\"\n[[team]]\ncode = \"b\"\nname = \"B\"\n",
    )
    .unwrap();
    apply_text(&mut db, &calendar, CatalogueKind::Prices, "[[price]]\nsku = \"A100\"\nrate = \"2\"\n").unwrap();
    apply_text(
        &mut db,
        &calendar,
        CatalogueKind::Rules,
        "[[rule]]\nname = \"r\"\nteam_from = \"account\"\nexperiment = \"x\"\n",
    )
    .unwrap();
    let jobs = "id,start,end,account\n1,2025-04-10T00:00:00Z,2025-04-12T05:00:00Z,a\n2,2025-04-10T00:00:00Z,2025-04-10T05:00:00Z,b\n3,2025-05-10T00:00:00Z,2025-05-10T05:00:00Z,b\n";
    import(&mut db, &calendar, MAPPING, jobs.as_bytes());
    close::close(&mut db, &calendar, Month::parse("2025-04").unwrap(), "test", now).unwrap();
    books
}

/// All rows of the frozen tables, as the database itself prints them.
fn dump(db: &mut Db) -> String {
    use gpuledger_db::check::rows_as_text;
    let tables = [
        "period",
        "closing",
        "charge",
        "statement",
        "statement_line",
        "catalogue_version",
        "audit_log",
        "team",
        "experiment",
        "sku",
        "pool",
        "fact_set",
        "job",
    ];
    tables.map(|table| rows_as_text(db, table).unwrap().join("\n")).join("\n--\n")
}

/// SQL that would change something frozen. `{LITE}` and `{PG}` mark what only one database understands.
const ATTEMPTS: &[&str] = &[
    "UPDATE charge SET amount_micros = 0",
    "UPDATE charge SET amount_micros = amount_micros + 1 WHERE number = 2",
    "UPDATE charge SET closing_id = 99 WHERE number = 1",
    "DELETE FROM charge WHERE number = 1",
    "INSERT INTO charge SELECT closing_id, 1000, kind, slot_start_us, slot_end_us, team_id, job_id, fact_set_id, sku_id, pool_id, service_class, workload, experiment_id, share_us, active_us, active_measured_us, estimated_us, suspended_us, segments, rate, weight_part, weight_whole, amount_micros, corrects_closing_id, corrects_number, reason FROM charge WHERE number = 1",
    "INSERT INTO charge SELECT * FROM charge WHERE number = 1 ON CONFLICT (closing_id, number) DO UPDATE SET amount_micros = 0",
    "UPDATE closing SET sealed_at_us = NULL",
    "UPDATE closing SET exact_amount = '0/1'",
    "UPDATE closing SET version = 7",
    "DELETE FROM closing",
    "INSERT INTO closing SELECT * FROM closing WHERE true ON CONFLICT (id) DO UPDATE SET sealed_at_us = NULL",
    "UPDATE statement SET amount_hundredths = 0",
    "DELETE FROM statement",
    "INSERT INTO statement SELECT * FROM statement WHERE true ON CONFLICT (id) DO UPDATE SET amount_hundredths = 0",
    "UPDATE statement_line SET amount_hundredths = 0",
    "DELETE FROM statement_line",
    "INSERT INTO statement_line SELECT * FROM statement_line WHERE true ON CONFLICT (statement_id, line) DO UPDATE SET rate = '0'",
    "UPDATE catalogue_version SET body = ''",
    "DELETE FROM catalogue_version",
    "UPDATE audit_log SET actor = 'nobody'",
    "DELETE FROM audit_log",
    "UPDATE period SET current_closing_id = 0 WHERE current_closing_id <> 0",
    "UPDATE period SET end_us = end_us + 1 WHERE current_closing_id <> 0",
    "UPDATE period SET name = '1999-01' WHERE current_closing_id <> 0",
    "DELETE FROM period WHERE current_closing_id <> 0",
    "UPDATE experiment SET name = 'other' WHERE id <> 0",
    "UPDATE team SET code = 'other' WHERE code = 'a'",
    "UPDATE sku SET code = 'other'",
    "UPDATE pool SET name = 'other' WHERE id <> 0",
    "UPDATE fact_set SET body = '{}' WHERE id <> 0",
    "UPDATE job SET source_id = 'other' WHERE id <> 0",
    "UPDATE node SET name = 'other' WHERE id <> 0",
    "DELETE FROM team",
    "DELETE FROM experiment",
    "DELETE FROM sku",
    "DELETE FROM pool",
    "DELETE FROM fact_set",
    "INSERT INTO statement_line SELECT 99, line, kind, workload, sku_id, sku_code, pool_name, service_class, rate, weight_part, weight_whole, jobs, share_us, gpu_us, estimated_us, exact_amount, charged_micros, amount_hundredths, currency_hundredths FROM statement_line",
    "DELETE FROM job WHERE id = 1",
    "{LITE}INSERT OR REPLACE INTO period SELECT start_us, end_us, name, 9, 0, 0 FROM period WHERE current_closing_id <> 0",
    "{LITE}UPDATE OR REPLACE period SET name = '2025-04' WHERE name = '2025-05'",
    "{LITE}INSERT OR REPLACE INTO charge SELECT * FROM charge WHERE number = 1",
    "{LITE}REPLACE INTO charge SELECT closing_id, number, kind, slot_start_us, slot_end_us, team_id, job_id, fact_set_id, sku_id, pool_id, service_class, workload, experiment_id, share_us, active_us, active_measured_us, estimated_us, suspended_us, segments, rate, weight_part, weight_whole, 0, corrects_closing_id, corrects_number, reason FROM charge WHERE number = 1",
    "{LITE}UPDATE OR REPLACE charge SET number = 2 WHERE number = 1",
    "{LITE}INSERT OR REPLACE INTO closing SELECT * FROM closing",
    "{LITE}INSERT OR REPLACE INTO closing SELECT 77, period_start_us, version, actor, started_at_us, NULL, usage_version, teams_version, prices_version, rules_version, charges, exact_amount, charged_micros FROM closing",
    "{LITE}INSERT OR REPLACE INTO statement SELECT * FROM statement",
    "{LITE}INSERT OR REPLACE INTO statement SELECT 77, 78, team_id, number, version, period_start_us, team_code, team_name, cost_centre, owner_name, first_charge, last_charge, jobs, share_us, gpu_us, estimated_us, exact_amount, charged_micros, 0, currency, credit_rate, currency_hundredths FROM statement WHERE team_code = 'a'",
    "{LITE}INSERT OR REPLACE INTO statement_line SELECT * FROM statement_line",
    "{LITE}INSERT OR REPLACE INTO audit_log SELECT * FROM audit_log",
    "{LITE}INSERT OR REPLACE INTO catalogue_version SELECT * FROM catalogue_version",
    "{PG}TRUNCATE period",
    "{PG}TRUNCATE charge",
    "{PG}TRUNCATE closing CASCADE",
    "{PG}TRUNCATE statement",
    "{PG}TRUNCATE statement_line",
    "{PG}TRUNCATE catalogue_version",
    "{PG}TRUNCATE audit_log",
    "{PG}MERGE INTO charge USING (SELECT 1) AS one ON charge.number = 1 WHEN MATCHED THEN UPDATE SET amount_micros = 0",
    "{PG}MERGE INTO charge USING (SELECT 1) AS one ON charge.number = 1 WHEN MATCHED THEN DELETE",
    "{PG}WITH gone AS (DELETE FROM charge RETURNING 1) SELECT count(*) FROM gone",
];

/// SQL by which an owner could lift the protection; the service's own role may do none of it.
const OWNERS_WAYS: &[&str] = &[
    "ALTER TABLE charge DISABLE TRIGGER ALL",
    "DROP TRIGGER charge_frozen ON charge",
    "ALTER TABLE charge RENAME TO other",
    "DROP TABLE charge",
    "SET session_replication_role = replica",
    "CREATE OR REPLACE FUNCTION refuse_frozen() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
    "CREATE TABLE anything (x integer)",
    "TRUNCATE segment",
];

fn try_all(db: &mut Db, attempts: &[&str]) {
    let before = dump(db);
    assert!(before.lines().count() > 12, "{before}");
    let skipped = match db.backend() {
        Backend::Sqlite => "{PG}",
        Backend::Postgres => "{LITE}",
    };
    for attempt in attempts.iter().filter(|attempt| !attempt.starts_with(skipped)) {
        let sql = attempt.trim_start_matches("{LITE}").trim_start_matches("{PG}");
        let outcome = db.execute(sql);
        assert_eq!(dump(db), before, "changed by {sql}");
        assert!(outcome.is_err(), "not refused: {sql}");
    }
}

fn no_sql_changes_a_frozen_row(books: Books) {
    let books = closed_april(books);
    try_all(&mut books.db(), ATTEMPTS);
}

/// What would replace a word is left out, without an error: to insert it again is how words are found.
fn words_are_never_replaced(books: Books) {
    let books = closed_april(books);
    let mut db = books.db();
    let before = dump(&mut db);
    for sql in [
        "INSERT OR REPLACE INTO experiment SELECT id, team_id, 'other' FROM experiment",
        "INSERT OR REPLACE INTO team SELECT id, 'other' FROM team",
        "INSERT OR REPLACE INTO team SELECT 99, code FROM team",
        "INSERT OR REPLACE INTO pool SELECT id, 'other' FROM pool",
        "INSERT OR REPLACE INTO fact_set SELECT id, sha256, '{}' FROM fact_set",
    ] {
        if db.backend() == Backend::Sqlite {
            db.execute(sql).unwrap();
        }
        assert_eq!(dump(&mut db), before, "changed by {sql}");
    }
    assert!(db.execute("INSERT INTO charge SELECT 4711, number, kind, slot_start_us, slot_end_us, team_id, job_id, fact_set_id, sku_id, pool_id, service_class, workload, experiment_id, share_us, active_us, active_measured_us, estimated_us, suspended_us, segments, rate, weight_part, weight_whole, amount_micros, corrects_closing_id, corrects_number, reason FROM charge").is_err());
    assert_eq!(dump(&mut db), before, "a charge of no closing");
}

fn what_is_not_sealed_may_be_swept(books: Books) {
    let books = closed_april(books);
    let mut db = books.db();
    db.execute("INSERT INTO closing SELECT 50, 1, 1, actor, started_at_us, NULL, usage_version, teams_version, prices_version, rules_version, charges, exact_amount, charged_micros FROM closing").unwrap();
    db.execute("UPDATE closing SET charges = 3 WHERE id = 50").unwrap();
    db.execute("DELETE FROM closing WHERE id = 50").unwrap();
}

on_both!(no_sql_changes_a_frozen_row, words_are_never_replaced, what_is_not_sealed_may_be_swept);

/// The service as its own role on PostgreSQL: all of its work, and nothing that lifts the protection.
#[test]
fn the_services_own_role_can_work_but_not_lift_the_protection() {
    let books = closed_april(Books::postgres());
    let schema = books.schema().unwrap().to_owned();
    let role = format!("service_{schema}");
    let mut owner = books.db();
    owner.execute(&format!("CREATE ROLE {role} LOGIN")).unwrap();
    gpuledger_db::migrations::grant_service_role(&mut owner, &role).unwrap();
    let url = books.url.replace("user=postgres", &format!("user={role}"));
    assert_ne!(url, books.url, "the test server's address names user=postgres");
    let database = gpuledger_db::Database::parse(&url).unwrap();
    let calendar = BillingCalendar::new("UTC").unwrap();

    let mut service = database.open().unwrap();
    assert!(!gpuledger_db::check::owns_frozen_tables(&mut service).unwrap());
    assert!(gpuledger_db::check::owns_frozen_tables(&mut owner).unwrap());
    try_all(&mut service, ATTEMPTS);
    try_all(&mut service, OWNERS_WAYS);

    // A temporary table of the same name does not stand in for the real one.
    let before = dump(&mut service);
    for table in [
        "closing(id bigint, sealed_at_us bigint)",
        "statement(id bigint, closing_id bigint)",
        "segment_2024_02(x bigint)",
    ] {
        service.execute(&format!("CREATE TEMPORARY TABLE {table}")).unwrap();
    }
    for sql in ["DELETE FROM charge", "DELETE FROM statement_line", "INSERT INTO charge SELECT * FROM charge"] {
        assert!(service.execute(sql).is_err(), "{sql}");
    }
    service.execute("DROP TABLE pg_temp.closing, pg_temp.statement").unwrap();
    assert_eq!(dump(&mut service), before);

    // A charge on its way in while the closing is sealed: the seal waits, and then finds one too many.
    let mut other = database.open().unwrap();
    other.execute("BEGIN; INSERT INTO closing SELECT 500, 1, 1, actor, started_at_us, NULL, usage_version, teams_version, prices_version, rules_version, charges, exact_amount, charged_micros FROM closing; COMMIT").unwrap();
    other.execute("BEGIN; INSERT INTO charge SELECT 500, number, kind, slot_start_us, slot_end_us, team_id, job_id, fact_set_id, sku_id, pool_id, service_class, workload, experiment_id, share_us, active_us, active_measured_us, estimated_us, suspended_us, segments, rate, weight_part, weight_whole, amount_micros, corrects_closing_id, corrects_number, reason FROM charge").unwrap();
    assert!(service.execute("SET lock_timeout = '200ms'; UPDATE closing SET sealed_at_us = 1 WHERE id = 500").is_err());
    other.execute("ROLLBACK").unwrap();
    service.execute("SET lock_timeout = 0; DELETE FROM closing WHERE id = 500").unwrap();
    drop(other);
    let public = gpuledger_db::migrations::grant_service_role(&mut owner, "PUBLIC").unwrap_err();
    assert!(public.to_string().contains("there is no role"), "{public}");

    // A new month of segments, a new team, a close: the daily work.
    let jobs = "id,start,end,account\n9,2024-02-10T00:00:00Z,2024-02-12T05:00:00Z,a\n";
    assert_eq!(import(&mut service, &calendar, MAPPING, jobs.as_bytes()).0.added, 1);
    apply_text(&mut service, &calendar, CatalogueKind::Teams, "[[team]]\ncode = \"a\"\nname = \"A\"\n[[team]]\ncode = \"b\"\nname = \"B\"\n[[team]]\ncode = \"c\"\nname = \"C\"\n").unwrap();
    close::close(&mut service, &calendar, Month::parse("2025-05").unwrap(), "test", now).unwrap();
    drop(service);
    owner.execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).unwrap();
}
