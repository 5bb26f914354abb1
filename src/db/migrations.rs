//! The schema: bringing a database to it, taking it back, and refusing to work on another.

use diesel::migration::MigrationSource;
use diesel::{OptionalExtension, QueryableByName, RunQueryDsl};
use diesel_migrations::{EmbeddedMigrations, MigrationHarness, embed_migrations};

use crate::{Db, DbError, on_db};

const LITE: EmbeddedMigrations = embed_migrations!("../../migrations/sqlite");
const PG: EmbeddedMigrations = embed_migrations!("../../migrations/postgres");

fn source(db: &Db) -> EmbeddedMigrations {
    match db {
        Db::Lite(_) => LITE,
        Db::Pg(_) => PG,
    }
}

fn failed(error: &(dyn std::error::Error + Send + Sync)) -> DbError {
    DbError::Schema(format!("a migration failed and was undone: {error}"))
}

/// Brings the schema to this version; the names of the migrations that were run.
///
/// # Errors
/// [`DbError::Schema`] with the migration that failed.
pub fn run(db: &mut Db) -> Result<Vec<String>, DbError> {
    // A newer schema is nothing to migrate to.
    if matches!(standing(db)?, Standing::Newer(_)) {
        return require_current(db).map(|()| Vec::new());
    }
    // One at a time: two would make the same tables.
    if let Db::Pg(_) = db {
        db.execute("SELECT pg_advisory_lock(hashtext('gpuledger migrate'))")?;
    }
    let source = source(db);
    let versions = on_db!(db, connection => connection.run_pending_migrations(source)).map_err(|error| failed(&*error));
    let versions = versions.map(|versions| versions.into_iter().map(|version| version.to_string()).collect());
    if let Db::Pg(_) = db {
        db.execute("SELECT pg_advisory_unlock(hashtext('gpuledger migrate'))")?;
    }
    versions
}

/// Takes the schema back to nothing. For tests: there is no command for it.
///
/// # Errors
/// [`DbError::Schema`] with the migration that failed.
pub fn revert_all(db: &mut Db) -> Result<(), DbError> {
    let source = source(db);
    on_db!(db, connection => connection.revert_all_migrations(source)).map_err(|error| failed(&*error))?;
    Ok(())
}

/// How the schema stands to this version's.
enum Standing {
    Current,
    None,
    Older,
    Newer(String),
}

fn standing(db: &mut Db) -> Result<Standing, DbError> {
    #[derive(QueryableByName)]
    struct Version {
        #[diesel(sql_type = diesel::sql_types::Text)]
        version: String,
    }
    // Asked for by hand: diesel's own question would make the table, which the service's role may not.
    let sql = "SELECT version FROM __diesel_schema_migrations";
    let run: Result<Vec<Version>, _> = on_db!(db, connection => diesel::sql_query(sql).load(connection));
    let wanted = match db {
        Db::Lite(_) => names::<diesel::sqlite::Sqlite>(&LITE),
        Db::Pg(_) => names::<diesel::pg::Pg>(&PG),
    }?;
    // No such table is no schema.
    let run: Vec<String> = run.map(|run| run.into_iter().map(|row| row.version).collect()).unwrap_or_default();
    Ok(match run.iter().find(|name| !wanted.contains(name)) {
        Some(newer) => Standing::Newer(newer.clone()),
        None if run.is_empty() => Standing::None,
        None if wanted.iter().all(|name| run.contains(name)) => Standing::Current,
        None => Standing::Older,
    })
}

/// Checks that the schema is the one of this version.
///
/// # Errors
/// [`DbError::Schema`] with what to run.
pub fn require_current(db: &mut Db) -> Result<(), DbError> {
    let message = match standing(db)? {
        Standing::Current => return Ok(()),
        Standing::None => "the database has no schema yet; make it with `gpuledger migrate`".to_owned(),
        Standing::Older => "the database has an older schema; bring it up to date with `gpuledger migrate`".to_owned(),
        Standing::Newer(name) => {
            format!("the database has a newer schema ({name}) than this program knows; use the newer program")
        }
    };
    Err(DbError::Schema(message))
}

fn names<B: diesel::backend::Backend>(source: &EmbeddedMigrations) -> Result<Vec<String>, DbError> {
    let migrations = MigrationSource::<B>::migrations(source).map_err(|error| failed(&*error))?;
    Ok(migrations.iter().map(|migration| migration.name().version().to_string()).collect())
}

/// On PostgreSQL, gives a role what the service needs and no more: it owns nothing, and may not change, empty or
/// alter what is frozen.
///
/// # Errors
/// What the database says; [`DbError::Address`] where there is no such role.
pub fn grant_service_role(db: &mut Db, role: &str) -> Result<(), DbError> {
    #[derive(QueryableByName)]
    struct Quoted {
        #[diesel(sql_type = diesel::sql_types::Text)]
        quoted: String,
    }
    match db {
        Db::Lite(_) => Err(DbError::Address("SQLite has no roles; protect the file with its permissions".into())),
        Db::Pg(connection) => {
            // A role that exists, by its exact name: PUBLIC and the like are none.
            let sql = "SELECT quote_ident(rolname) AS quoted FROM pg_roles WHERE rolname = $1";
            let found: Option<Quoted> =
                diesel::sql_query(sql).bind::<diesel::sql_types::Text, _>(role).get_result(connection).optional()?;
            let missing = || DbError::Address(format!("there is no role {role:?}; make it with CREATE ROLE first"));
            let quoted = found.ok_or_else(missing)?.quoted;
            let grants = include_str!("../../migrations/postgres/service_role.sql");
            db.execute(&grants.replace("SERVICE_ROLE", &quoted))
        }
    }
}
