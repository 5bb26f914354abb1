//! Questions about the books as a whole: for `doctor`, and for tests that hold the schema to its rules.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Text};

use crate::{Db, DbError, on_db};

/// A column as the database describes it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Column {
    /// The table.
    pub table: String,
    /// Its name.
    pub name: String,
    /// Its type, in the words of the schema: `integer`, `text` or `bytes`.
    pub column_type: String,
    /// Whether it may be null.
    pub nullable: bool,
    /// Its place in the primary key from 1; 0 outside.
    pub key_place: i64,
}

#[derive(QueryableByName)]
struct ColumnRow {
    #[diesel(sql_type = Text)]
    table_name: String,
    #[diesel(sql_type = Text)]
    column_name: String,
    #[diesel(sql_type = Text)]
    column_type: String,
    #[diesel(sql_type = Bool)]
    nullable: bool,
    #[diesel(sql_type = BigInt)]
    key_place: i64,
}

#[derive(QueryableByName)]
struct Count {
    #[diesel(sql_type = BigInt)]
    count: i64,
}

#[derive(QueryableByName)]
struct TextRow {
    #[diesel(sql_type = Text)]
    text: String,
}

const LITE_COLUMNS: &str = "SELECT t.name AS table_name, c.name AS column_name, lower(c.type) AS column_type,
    c.\"notnull\" = 0 AS nullable, c.pk AS key_place
    FROM pragma_table_list AS t JOIN pragma_table_info(t.name) AS c
    WHERE t.schema = 'main' AND t.type = 'table' AND t.name NOT LIKE 'sqlite_%' AND t.name NOT LIKE '\\_\\_%' ESCAPE '\\'";

const PG_COLUMNS: &str = "SELECT c.relname::text AS table_name, a.attname::text AS column_name,
    format_type(a.atttypid, a.atttypmod) AS column_type, NOT a.attnotnull AS nullable,
    COALESCE(array_position(i.indkey::int2[], a.attnum) + 1, 0)::bigint AS key_place
    FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_index AS i ON i.indrelid = c.oid AND i.indisprimary
    WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
      AND c.relname NOT LIKE '\\_\\_%'";

/// Every column of every table, by table and name.
///
/// # Errors
/// What the database says.
pub fn columns(db: &mut Db) -> Result<Vec<Column>, DbError> {
    let rows: Vec<ColumnRow> = match db {
        Db::Lite(c) => diesel::sql_query(LITE_COLUMNS).load(c)?,
        Db::Pg(c) => diesel::sql_query(PG_COLUMNS).load(c)?,
    };
    let mut columns: Vec<Column> = rows
        .into_iter()
        .map(|row| Column {
            table: row.table_name,
            name: row.column_name,
            column_type: match row.column_type.as_str() {
                "bigint" | "smallint" | "integer" => "integer".into(),
                "blob" | "bytea" => "bytes".into(),
                _ => row.column_type,
            },
            nullable: row.nullable,
            key_place: row.key_place,
        })
        .collect();
    columns.sort();
    Ok(columns)
}

/// The unique keys of every table, each as `table(column, …)`, the primary ones included.
///
/// # Errors
/// What the database says.
pub fn unique_keys(db: &mut Db) -> Result<Vec<String>, DbError> {
    let rows: Vec<TextRow> = match db {
        Db::Lite(c) => diesel::sql_query(
            "SELECT t.name || '(' || (SELECT group_concat(name, ', ') FROM (SELECT name FROM pragma_index_info(i.name) ORDER BY seqno)) || ')' AS text
             FROM pragma_table_list AS t JOIN pragma_index_list(t.name) AS i ON i.\"unique\" = 1
             WHERE t.schema = 'main' AND t.type = 'table' AND t.name NOT LIKE '\\_\\_%' ESCAPE '\\'
             UNION SELECT t.name || '(' || c.name || ')' FROM pragma_table_list AS t JOIN pragma_table_info(t.name) AS c
             WHERE t.schema = 'main' AND t.type = 'table' AND t.name NOT LIKE '\\_\\_%' ESCAPE '\\' AND t.name NOT LIKE 'sqlite_%'
               AND c.pk = 1 AND (SELECT count(*) FROM pragma_table_info(t.name) WHERE pk > 0) = 1",
        )
        .load(c)?,
        Db::Pg(c) => diesel::sql_query(
            "SELECT c.relname || '(' || (SELECT string_agg(a.attname, ', ' ORDER BY k.place)
                 FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, place)
                 JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = k.attnum) || ')' AS text
             FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indrelid
             WHERE i.indisunique AND c.relnamespace = current_schema()::regnamespace AND NOT c.relispartition
               AND c.relname NOT LIKE '\\_\\_%'",
        )
        .load(c)?,
    };
    let mut keys: Vec<String> = rows.into_iter().map(|row| row.text).collect();
    keys.sort();
    keys.dedup();
    Ok(keys)
}

/// Whether the role of this connection owns the frozen tables and so could switch their protection off. Always so
/// on SQLite, where the file's permissions are the protection.
///
/// # Errors
/// What the database says.
pub fn owns_frozen_tables(db: &mut Db) -> Result<bool, DbError> {
    match db {
        Db::Lite(_) => Ok(true),
        Db::Pg(c) => {
            let row: Count = diesel::sql_query(
                "SELECT count(*) AS count FROM pg_class WHERE oid = 'charge'::regclass AND pg_has_role(relowner, 'USAGE')",
            )
            .get_result(c)?;
            Ok(row.count > 0)
        }
    }
}

/// The bulk tables have no foreign keys; each of these counts rows whose other side is missing.
const ORPHANS: [(&str, &str); 16] = [
    (
        "segments without their unit",
        "SELECT count(*) AS count FROM segment AS x WHERE NOT EXISTS (SELECT 1 FROM unit WHERE id = x.unit_id)",
    ),
    (
        "lives of units that are not there",
        "SELECT count(*) AS count FROM unit_life AS x WHERE NOT EXISTS (SELECT 1 FROM unit WHERE id = x.unit_id)",
    ),
    (
        "segments without their job",
        "SELECT count(*) AS count FROM segment AS x WHERE NOT EXISTS (SELECT 1 FROM job WHERE id = x.job_id)",
    ),
    (
        "segments without their node",
        "SELECT count(*) AS count FROM segment AS x WHERE NOT EXISTS (SELECT 1 FROM node WHERE id = x.node_id)",
    ),
    (
        "segments without their SKU",
        "SELECT count(*) AS count FROM segment AS x WHERE NOT EXISTS (SELECT 1 FROM sku WHERE id = x.sku_id)",
    ),
    (
        "usage without its facts",
        "SELECT count(*) AS count FROM usage AS x WHERE NOT EXISTS (SELECT 1 FROM fact_set WHERE id = x.fact_set_id)",
    ),
    (
        "late usage without its facts",
        "SELECT count(*) AS count FROM late_usage AS x WHERE NOT EXISTS (SELECT 1 FROM fact_set WHERE id = x.fact_set_id)",
    ),
    (
        "late usage that was charged by no sealed closing",
        "SELECT count(*) AS count FROM late_usage AS x WHERE x.closing_id <> 0
         AND NOT EXISTS (SELECT 1 FROM closing WHERE id = x.closing_id AND sealed_at_us IS NOT NULL)",
    ),
    (
        "allocations without their job",
        "SELECT count(*) AS count FROM allocation AS x WHERE NOT EXISTS (SELECT 1 FROM job WHERE id = x.job_id)",
    ),
    (
        "activity without its segment",
        "SELECT count(*) AS count FROM segment_activity AS x WHERE NOT EXISTS (SELECT 1 FROM segment AS s
         WHERE s.hour = x.hour AND s.node_id = x.node_id AND s.epoch = x.epoch AND s.number = x.number)",
    ),
    (
        "events without their node",
        "SELECT count(*) AS count FROM node_event AS x WHERE NOT EXISTS (SELECT 1 FROM node WHERE id = x.node_id)",
    ),
    (
        "charges without their team",
        "SELECT count(*) AS count FROM charge AS x WHERE NOT EXISTS (SELECT 1 FROM team WHERE id = x.team_id)",
    ),
    (
        "charges without their closing",
        "SELECT count(*) AS count FROM charge AS x WHERE NOT EXISTS (SELECT 1 FROM closing WHERE id = x.closing_id)",
    ),
    (
        "sealed closings whose charges are not those that were sealed",
        "SELECT count(*) AS count FROM closing AS x WHERE x.sealed_at_us IS NOT NULL AND (x.charges <> (SELECT count(*) FROM charge WHERE closing_id = x.id)
         OR x.charged_micros <> (SELECT coalesce(sum(amount_micros), 0) FROM charge WHERE closing_id = x.id))",
    ),
    (
        "sealed closings that no period names",
        "SELECT count(*) AS count FROM closing AS x WHERE x.sealed_at_us IS NOT NULL AND NOT EXISTS (SELECT 1 FROM period WHERE current_closing_id = x.id)",
    ),
    (
        "statements whose lines are not those that were issued",
        "SELECT count(*) AS count FROM statement AS x
         WHERE x.amount_hundredths <> (SELECT coalesce(sum(amount_hundredths), 0) FROM statement_line WHERE statement_id = x.id)
            OR x.share_us <> (SELECT coalesce(sum(share_us), 0) FROM statement_line WHERE statement_id = x.id)",
    ),
];

/// Rows whose other side is missing, as (what, how many); empty where all is well.
///
/// # Errors
/// What the database says.
pub fn orphans(db: &mut Db) -> Result<Vec<(&'static str, i64)>, DbError> {
    let mut found = Vec::new();
    for (what, sql) in ORPHANS {
        let row: Count = on_db!(db, c => diesel::sql_query(sql).get_result(c))?;
        if row.count > 0 {
            found.push((what, row.count));
        }
    }
    Ok(found)
}

/// How many rows a table has, for tests and benchmarks.
///
/// # Errors
/// What the database says, also where there is no such table.
pub fn rows(db: &mut Db, table: &str) -> Result<i64, DbError> {
    let row: Count =
        on_db!(db, c => diesel::sql_query(format!("SELECT count(*) AS count FROM {table}")).get_result(c))?;
    Ok(row.count)
}

/// Every row of a table as one text each, in order, for tests that compare tables as a whole.
///
/// # Errors
/// What the database says, also where there is no such table.
pub fn rows_as_text(db: &mut Db, table: &str) -> Result<Vec<String>, DbError> {
    let rows: Vec<TextRow> = match db {
        Db::Lite(c) => {
            let columns: Vec<TextRow> = diesel::sql_query(format!(
                "SELECT 'quote(' || name || ')' AS text FROM pragma_table_info('{table}') ORDER BY cid"
            ))
            .load(c)?;
            let columns: Vec<String> = columns.into_iter().map(|row| row.text).collect();
            diesel::sql_query(format!("SELECT {} AS text FROM {table} ORDER BY 1", columns.join(" || ', ' || ")))
                .load(c)?
        }
        Db::Pg(c) => diesel::sql_query(format!("SELECT t::text AS text FROM {table} AS t ORDER BY 1")).load(c)?,
    };
    Ok(rows.into_iter().map(|row| row.text).collect())
}

/// On PostgreSQL, the months of segments that exist, as the names of their tables.
///
/// # Errors
/// What the database says.
pub fn segment_months(db: &mut Db) -> Result<Vec<String>, DbError> {
    match db {
        Db::Lite(_) => Ok(Vec::new()),
        Db::Pg(c) => {
            let rows: Vec<TextRow> = diesel::sql_query(
                "SELECT c.relname::text AS text FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
                 WHERE i.inhparent = 'segment'::regclass ORDER BY 1",
            )
            .load(c)?;
            Ok(rows.into_iter().map(|row| row.text).collect())
        }
    }
}

/// How the database finds what the roll-up of a day reads: the segments of a node in hours, and its usage in slots.
///
/// # Errors
/// What the database says.
pub fn roll_up_plans(db: &mut Db, hour: i64, node: i32) -> Result<[String; 2], DbError> {
    let start = hour * 3_600_000_000;
    let segments = format!("SELECT * FROM segment WHERE hour IN ({hour}, {hour} + 1) AND node_id = {node}");
    let usage = format!("SELECT * FROM usage WHERE slot_start_us IN ({start}, {start} + 1) AND node_id = {node}");
    Ok([plan(db, &segments)?, plan(db, &usage)?])
}

fn plan(db: &mut Db, query: &str) -> Result<String, DbError> {
    #[derive(QueryableByName)]
    struct LitePlan {
        #[diesel(sql_type = Text)]
        detail: String,
    }
    #[derive(QueryableByName)]
    struct PgPlan {
        #[diesel(sql_type = Text, column_name = "QUERY PLAN")]
        plan: String,
    }
    let lines: Vec<String> = match db {
        Db::Lite(c) => {
            let rows: Vec<LitePlan> = diesel::sql_query(format!("EXPLAIN QUERY PLAN {query}")).load(c)?;
            rows.into_iter().map(|row| row.detail).collect()
        }
        Db::Pg(c) => {
            diesel::sql_query("SET enable_seqscan = off").execute(c)?;
            let rows: Vec<PgPlan> = diesel::sql_query(format!("EXPLAIN {query}")).load(c)?;
            diesel::sql_query("RESET enable_seqscan").execute(c)?;
            rows.into_iter().map(|row| row.plan).collect()
        }
    };
    Ok(lines.join("\n"))
}
