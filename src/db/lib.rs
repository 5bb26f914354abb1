//! The only home of SQL.
//!
//! [`Database`] says where the books are, [`Db`] is one connection to them. Every query is written once, for both
//! SQLite and PostgreSQL; where the two need different words, the difference stays inside one function here. No
//! row type leaves this crate: functions take and give values of `gpuledger-domain`, or small records of their own.
//! Functions take a connection, never open one; callers decide what is one transaction.

pub mod allocation;
pub mod audit;
pub mod catalogue;
pub mod check;
pub mod closing;
mod codes;
mod connection;
pub mod dimensions;
mod error;
pub mod import_log;
pub mod migrations;
pub mod node_event;
pub mod period;
mod schema;
pub mod segment;
pub mod statement;
pub mod usage;

pub use connection::{Backend, Database, Db};
pub use error::DbError;

/// Runs one query text on whichever connection `$db` holds.
macro_rules! on_db {
    ($db:expr, $connection:ident => $query:expr) => {
        match $db {
            $crate::Db::Lite($connection) => $query,
            $crate::Db::Pg($connection) => $query,
        }
    };
}
pub(crate) use on_db;

/// Inserts many rows as fast as the backend can: statements of many rows on SQLite, COPY on PostgreSQL. A row whose
/// key exists is an error, and nothing is inserted.
macro_rules! insert_all {
    ($db:expr, $table:expr, $columns:expr, $rows:expr) => {
        match $db {
            $crate::Db::Lite(connection) => {
                for rows in $rows.chunks($crate::SQLITE_BINDS_MAX / $columns) {
                    diesel::insert_into($table).values(rows).execute(connection)?;
                }
                Ok::<(), $crate::DbError>(())
            }
            $crate::Db::Pg(connection) => {
                if !$rows.is_empty() {
                    diesel::copy_from($table).from_insertable($rows).execute(connection)?;
                }
                Ok(())
            }
        }
    };
}
pub(crate) use insert_all;

/// Most values SQLite binds in one statement.
pub(crate) const SQLITE_BINDS_MAX: usize = 32_766;
