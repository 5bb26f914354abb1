//! The schema: proven in both directions, the same in both databases, and true to its rules.

use std::collections::BTreeSet;

use gpuledger_db::{Db, check, migrations};

use crate::support::{Books, on_both};

/// Everything the database says of its schema.
fn described(db: &mut Db) -> String {
    format!("{:#?}\n{:#?}", check::columns(db).unwrap(), check::unique_keys(db).unwrap())
}

fn every_migration_can_be_undone(books: Books) {
    let mut db = books.database().create().unwrap();
    assert_eq!(migrations::run(&mut db).unwrap().len(), 7);
    let made = described(&mut db);
    assert!(made.contains("charge"));
    migrations::require_current(&mut db).unwrap();
    migrations::revert_all(&mut db).unwrap();
    assert_eq!(described(&mut db), "[]\n[]");
    assert!(migrations::require_current(&mut db).is_err());
    migrations::run(&mut db).unwrap();
    assert_eq!(described(&mut db), made);
    assert!(migrations::run(&mut db).unwrap().is_empty());
}

fn no_column_is_inexact_and_no_key_is_nullable(books: Books) {
    let books = books.migrated("UTC");
    let mut db = books.db();
    let columns = check::columns(&mut db).unwrap();
    assert!(columns.len() > 200);
    for column in &columns {
        assert!(["integer", "text", "bytes"].contains(&column.column_type.as_str()), "{column:?}");
    }
    let nullable: BTreeSet<(&str, &str)> = columns
        .iter()
        .filter(|column| column.nullable)
        .map(|column| (column.table.as_str(), column.name.as_str()))
        .collect();
    for key in check::unique_keys(&mut db).unwrap() {
        let (table, names) = key.trim_end_matches(')').split_once('(').unwrap();
        assert!(names.split(", ").all(|name| !nullable.contains(&(table, name))), "{key} may be null");
    }
    let tables: BTreeSet<&str> = columns.iter().map(|column| column.table.as_str()).collect();
    for table in &tables {
        assert!(
            columns.iter().any(|column| column.table == *table && column.key_place == 1),
            "{table} has no primary key"
        );
        let count = columns.iter().filter(|column| column.table == *table).count();
        assert!(count <= 32, "{table} has {count} columns");
    }
    // Money is never without what it is money of.
    for table in ["statement", "entry_line"] {
        assert!(columns.iter().any(|column| column.table == table && column.name == "currency" && !column.nullable));
    }
}

on_both!(every_migration_can_be_undone, no_column_is_inexact_and_no_key_is_nullable);

#[test]
fn both_databases_have_the_same_schema() {
    let (lite, pg) = (Books::sqlite().migrated("UTC"), Books::postgres().migrated("UTC"));
    assert_eq!(described(&mut lite.db()), described(&mut pg.db()));
}

#[test]
fn the_queries_schema_is_the_databases() {
    let text = std::fs::read_to_string(crate::support::project_file("src/db/schema.rs")).unwrap();
    let books = Books::sqlite().migrated("UTC");
    for column in check::columns(&mut books.db()).unwrap() {
        let table = text.split("diesel::table!").find(|table| table.contains(&format!("    {} (", column.table)));
        let table = table.unwrap_or_else(|| panic!("{} is not in src/db/schema.rs", column.table));
        let line = table.lines().find(|line| line.trim().starts_with(&format!("{} ->", column.name)));
        let line = line.unwrap_or_else(|| panic!("{column:?} is not in src/db/schema.rs"));
        let wanted = match column.column_type.as_str() {
            "text" => vec!["Text"],
            "bytes" => vec!["Binary"],
            _ => vec!["BigInt", "Integer", "SmallInt"],
        };
        assert!(
            wanted.iter().any(|word| line.contains(word)) && line.contains("Nullable") == column.nullable,
            "{column:?}: {line}"
        );
    }
}

#[test]
fn segments_are_stored_by_month_and_read_from_one_month_only() {
    let books = crate::frozen::closed_april(Books::postgres());
    let mut db = books.db();
    let months = check::segment_months(&mut db).unwrap();
    assert_eq!(months, ["segment_2025_04", "segment_2025_05"]);
    let [plan, of_usage] = check::roll_up_plans(&mut db, 484_488, 1).unwrap();
    assert!(plan.contains("segment_2025_04") && !plan.contains("segment_2025_05"), "{plan}");
    assert!(plan.contains("Index") && of_usage.contains("usage_pkey"), "{plan}\n{of_usage}");
    let lite = crate::frozen::closed_april(Books::sqlite());
    let [plan, of_usage] = check::roll_up_plans(&mut lite.db(), 484_488, 1).unwrap();
    assert!(plan.contains("USING PRIMARY KEY (hour=? AND node_id=?)"), "{plan}");
    assert!(of_usage.contains("USING PRIMARY KEY (slot_start_us=? AND node_id=?)"), "{of_usage}");
}
