//! Where the books are, and connections to them.

use std::path::{Path, PathBuf};

use diesel::connection::{AnsiTransactionManager, SimpleConnection, TransactionManager};
use diesel::prelude::*;

use crate::DbError;

/// Where the books are. The scheme of the address alone decides the backend; nothing is tried in turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Database {
    /// A file: `sqlite:///var/lib/gpuledger/books.db`.
    Lite(PathBuf),
    /// A server: `postgres://user@host/name`.
    Pg(String),
}

/// Which database program holds the books.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// SQLite, within this process.
    Sqlite,
    /// PostgreSQL.
    Postgres,
}

/// One connection to the books.
#[allow(missing_debug_implementations)]
pub enum Db {
    /// To a file.
    Lite(SqliteConnection),
    /// To a server.
    Pg(PgConnection),
}

/// SQLite's settings: readers never wait, what is committed survives a power cut, space comes back in pieces.
const SQLITE_SETTINGS: &str =
    "PRAGMA busy_timeout = 60000; PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL;
    PRAGMA synchronous = FULL; PRAGMA cache_size = -32768; PRAGMA temp_store = MEMORY;";

impl Database {
    /// Reads an address.
    ///
    /// # Errors
    /// [`DbError::Address`] with the two forms that are understood.
    pub fn parse(url: &str) -> Result<Database, DbError> {
        match url.split_once("://") {
            Some(("sqlite", path)) if !path.is_empty() => Ok(Database::Lite(PathBuf::from(path))),
            Some(("postgres" | "postgresql", rest)) if is_escaped(rest) => Ok(Database::Pg(url.to_owned())),
            Some(("postgres" | "postgresql", _)) => Err(DbError::Address(
                "user or password in the database address hold a character that must be escaped: % as %25, / as %2F, ? as %3F, @ as %40".into(),
            )),
            _ => Err(DbError::Address(
                "the database address must look like sqlite:///path/to/file.db or postgres://user@host/name".into(),
            )),
        }
    }

    /// The address without its password, fit for logs and pages.
    #[must_use]
    pub fn without_secret(&self) -> String {
        match self {
            Database::Lite(path) => format!("sqlite://{}", path.display()),
            Database::Pg(url) => masked(url),
        }
    }

    /// Which program holds the books.
    #[must_use]
    pub const fn backend(&self) -> Backend {
        match self {
            Database::Lite(_) => Backend::Sqlite,
            Database::Pg(_) => Backend::Postgres,
        }
    }

    /// Opens a connection, and on SQLite makes the file if there is none. For `migrate`; others use [`Database::open`].
    ///
    /// # Errors
    /// [`DbError::Connection`] with what the database says.
    pub fn create(&self) -> Result<Db, DbError> {
        match self {
            Database::Lite(path) => {
                make_private(path)?;
                let mut connection = SqliteConnection::establish(&path.to_string_lossy())
                    .map_err(|error| DbError::Connection(format!("cannot open {}: {error}", path.display())))?;
                connection
                    .batch_execute(SQLITE_SETTINGS)
                    .map_err(|error| DbError::Connection(format!("cannot use {}: {error}", path.display())))?;
                Ok(Db::Lite(connection))
            }
            Database::Pg(url) => {
                let mut connection = PgConnection::establish(url)
                    .map_err(|error| DbError::Connection(format!("cannot reach {}: {error}", self.without_secret())))?;
                connection.batch_execute("SET client_min_messages = warning; SET timezone = 'UTC'")?;
                Ok(Db::Pg(connection))
            }
        }
    }

    /// Opens a connection to books that exist and have the schema of this version.
    ///
    /// # Errors
    /// [`DbError::Connection`] where there are none, [`DbError::Schema`] where they need `gpuledger migrate`.
    pub fn open(&self) -> Result<Db, DbError> {
        if let Database::Lite(path) = self {
            require_file(path)?;
        }
        let mut db = self.create()?;
        crate::migrations::require_current(&mut db)?;
        Ok(db)
    }
}

/// Makes the file, if there is none, so that only its owner may read it: it says what everyone costs.
fn make_private(path: &Path) -> Result<(), DbError> {
    use std::os::unix::fs::OpenOptionsExt;
    let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match made {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let message = format!("cannot make {}: its folder is not there; make the folder first", path.display());
            Err(DbError::Connection(message))
        }
        Err(error) => Err(DbError::Connection(format!("cannot make {}: {error}", path.display()))),
    }
}

fn require_file(path: &Path) -> Result<(), DbError> {
    if path.exists() {
        Ok(())
    } else {
        Err(DbError::Connection(format!(
            "there is no database at {}. For new books make it with `gpuledger migrate`; for existing ones set GPULEDGER_DATABASE_URL (an absolute path takes three slashes: sqlite:///var/…)",
            path.display()
        )))
    }
}

/// Whether the address can be read in one way only. Checked here, because the library would print what it cannot read,
/// passwords too.
fn is_escaped(rest: &str) -> bool {
    let authority = rest.split(['/', '?']).next().unwrap_or("");
    let place = rest.get(authority.len()..).unwrap_or("");
    let is_hex = |after: &str| after.get(..2).is_some_and(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
    authority.split('%').skip(1).all(is_hex) && authority.matches('@').count() <= 1 && !place.contains('@')
}

/// `postgres://user:secret@host/name` with the secret as stars. In doubt it hides too much.
fn masked(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return "postgres://…".into() };
    // The last @: a password may hold any other character, unescaped.
    let (user, place) = rest.rsplit_once('@').map_or((None, rest), |(user, place)| (Some(user), place));
    let (host, parameters) = place.split_once('?').unwrap_or((place, ""));
    let user = match user.map(|user| user.split_once(':').map_or((user, ""), |(user, _)| (user, ":***"))) {
        Some((user, secret)) => format!("{user}{secret}@"),
        None => String::new(),
    };
    let parameters = match parameters {
        "" => String::new(),
        secret if secret.to_ascii_lowercase().contains("pass") => "?…".into(),
        plain => format!("?{plain}"),
    };
    format!("{scheme}://{user}{host}{parameters}")
}

/// Whether no transaction is open on the connection.
fn is_outermost(connection: &mut SqliteConnection) -> bool {
    let status =
        <AnsiTransactionManager as TransactionManager<SqliteConnection>>::transaction_manager_status_mut(connection);
    matches!(status.transaction_depth(), Ok(None))
}

impl Db {
    /// Which program this connection leads to.
    #[must_use]
    pub const fn backend(&self) -> Backend {
        match self {
            Db::Lite(_) => Backend::Sqlite,
            Db::Pg(_) => Backend::Postgres,
        }
    }

    /// Runs `work` in one transaction: all of it is kept, or nothing. On SQLite it takes the writer's place at once.
    /// Inside another transaction it is a part of that one, which may fail by itself.
    ///
    /// # Errors
    /// What `work` returns, or what the database says at the commit.
    pub fn transaction<T, E: From<DbError>>(&mut self, work: impl FnOnce(&mut Db) -> Result<T, E>) -> Result<T, E> {
        // Through diesel's own manager, which makes transactions inside this one savepoints of it.
        match self {
            Db::Lite(connection) => match is_outermost(connection) {
                true => AnsiTransactionManager::begin_transaction_sql(connection, "BEGIN IMMEDIATE"),
                false => AnsiTransactionManager::begin_transaction(connection),
            },
            Db::Pg(connection) => AnsiTransactionManager::begin_transaction(connection),
        }
        .map_err(DbError::from)?;
        let outcome = work(self).and_then(|value| {
            crate::on_db!(self, connection => AnsiTransactionManager::commit_transaction(connection))
                .map_err(DbError::from)?;
            Ok(value)
        });
        if outcome.is_err() {
            // The first error is the one to tell; a connection that cannot even roll back is closed by its owner.
            let _ = crate::on_db!(self, connection => AnsiTransactionManager::rollback_transaction(connection));
        }
        outcome
    }

    /// Runs `work` on one state of the books: it sees nothing that others change meanwhile, and nobody waits for it.
    /// What it would write, the database refuses. Not inside a transaction.
    ///
    /// # Errors
    /// What `work` returns, or what the database says.
    pub fn snapshot<T, E: From<DbError>>(&mut self, work: impl FnOnce(&mut Db) -> Result<T, E>) -> Result<T, E> {
        match self {
            Db::Lite(connection) => AnsiTransactionManager::begin_transaction_sql(connection, "BEGIN"),
            Db::Pg(connection) => AnsiTransactionManager::begin_transaction_sql(
                connection,
                "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
            ),
        }
        .map_err(DbError::from)?;
        let outcome = self.refuse_writes(true).map_err(E::from).and_then(|()| work(self));
        let ended = crate::on_db!(self, connection => AnsiTransactionManager::rollback_transaction(connection));
        let ended = ended.map_err(DbError::from).and_then(|()| self.refuse_writes(false));
        outcome.and_then(|value| ended.map(|()| value).map_err(E::from))
    }

    /// On SQLite, where a transaction cannot be declared to be read-only, the connection is.
    fn refuse_writes(&mut self, refuse: bool) -> Result<(), DbError> {
        match self {
            Db::Lite(_) if refuse => self.execute("PRAGMA query_only = ON"),
            Db::Lite(_) => self.execute("PRAGMA query_only = OFF"),
            Db::Pg(_) => Ok(()),
        }
    }

    /// Runs statements that give no rows.
    ///
    /// # Errors
    /// What the database says.
    pub fn execute(&mut self, sql: &str) -> Result<(), DbError> {
        Ok(crate::on_db!(self, connection => connection.batch_execute(sql))?)
    }

    /// The next `count` numbers of a kind of row, as their first. Gone if the transaction is rolled back.
    pub(crate) fn take_ids(&mut self, name: &str, count: i64) -> Result<i64, DbError> {
        use crate::schema::id_counter::dsl;
        let next: i64 = crate::on_db!(self, connection => diesel::insert_into(dsl::id_counter)
            .values((dsl::name.eq(name), dsl::next.eq(1 + count)))
            .on_conflict(dsl::name)
            .do_update()
            .set(dsl::next.eq(dsl::next + count))
            .returning(dsl::next)
            .get_result(connection))?;
        Ok(next - count)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_scheme_alone_decides_the_backend() {
        assert_eq!(Database::parse("sqlite:///a/b.db").unwrap(), Database::Lite("/a/b.db".into()));
        assert_eq!(Database::parse("postgres://h/x").unwrap().backend(), Backend::Postgres);
        for bad in ["", "host=127.0.0.1 dbname=billing", "mysql://x", "sqlite://", "books.db"] {
            assert!(Database::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn no_secret_is_shown() {
        let shown = |url: &str| Database::parse(url).unwrap().without_secret();
        assert_eq!(shown("postgres://u:s3c@h:5/x"), "postgres://u:***@h:5/x");
        assert_eq!(shown("postgres://u@h/x?sslmode=require"), "postgres://u@h/x?sslmode=require");
        assert_eq!(shown("postgres:///x?user=u&password=s3c"), "postgres:///x?…");
        assert_eq!(shown("postgres:///x?Password=s3c"), "postgres:///x?…");
        for bad in ["postgres://u:s%zz@h/x", "postgres://u:s/c@h/x", "postgres://u:s?c@h/x", "postgres://u:s@c@h/x"] {
            let message = Database::parse(bad).unwrap_err().to_string();
            assert!(message.contains("must be escaped") && !message.contains(bad), "{message}");
        }
    }
}
