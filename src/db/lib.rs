//! The only home of SQL.
//!
//! [`Database`] says where the books are, [`Db`] is one connection to them. Every query is written once, for both
//! SQLite and PostgreSQL; where the two need different words, the difference stays inside one function here. No
//! row type leaves this crate: functions take and give values of `gpuledger-domain`, or small records of their own.
//! Functions take a connection, never open one; callers decide what is one transaction.

pub mod allocation;
pub mod attempt;
pub mod audit;
pub mod catalogue;
pub mod check;
pub mod closing;
mod codes;
pub mod collector_token;
mod connection;
pub mod dimensions;
mod error;
pub mod head;
pub mod import_log;
pub mod late_usage;
pub mod migrations;
pub mod node_event;
pub mod node_watch;
pub mod open_cost;
pub mod period;
pub mod reported_segment;
mod schema;
pub mod segment;
mod segment_activity;
pub mod simulation;
pub mod statement;
pub mod task;
pub mod unit;
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

/// Inserts many rows as fast as the backend can: prepared statements of [`ROWS_PREPARED`] rows on SQLite, COPY on
/// PostgreSQL. A row whose key exists is an error, and nothing is inserted.
macro_rules! insert_all {
    ($db:expr, $table:expr, $rows:expr) => {
        match $db {
            $crate::Db::Lite(connection) => $crate::insert_prepared!(connection, $table, $rows),
            $crate::Db::Pg(connection) => {
                if !$rows.is_empty() {
                    diesel::copy_from($table).from_insertable($rows).execute(connection)?;
                }
                Ok::<(), $crate::DbError>(())
            }
        }
    };
}
pub(crate) use insert_all;

/// Inserts many rows into SQLite. An array's length is part of its type, so diesel keeps the statement prepared;
/// that of a slice would be written and parsed anew each time. The method named behind the rows, such as
/// `on_conflict_do_nothing`, is called on each statement.
macro_rules! insert_prepared {
    ($connection:expr, $table:expr, $rows:expr $(, $method:ident)?) => {{
        let (whole, rest) = $rows.as_chunks::<{ $crate::ROWS_PREPARED }>();
        for rows in whole {
            diesel::insert_into($table).values(rows)$(.$method())?.execute($connection)?;
        }
        for row in rest {
            diesel::insert_into($table).values(row)$(.$method())?.execute($connection)?;
        }
        Ok::<(), $crate::DbError>(())
    }};
}
pub(crate) use insert_prepared;

/// Rows of one statement that SQLite keeps prepared: enough that the work per statement does not show.
pub(crate) const ROWS_PREPARED: usize = 64;
