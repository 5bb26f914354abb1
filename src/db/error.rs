//! What can go wrong with the books.

use std::fmt;

use gpuledger_domain::units::Overflow;

/// Why a query gave no answer. Nothing it was to change has changed.
#[derive(Debug)]
pub enum DbError {
    /// The address cannot be used.
    Address(String),
    /// The database cannot be reached or opened.
    Connection(String),
    /// The schema is not the one this version needs.
    Schema(String),
    /// Another process holds the database for too long.
    Busy(String),
    /// What is stored contradicts itself; a bug or a damaged file.
    Inconsistent(String),
    /// A sum does not fit.
    Overflow,
    /// Anything else the database says.
    Query(diesel::result::Error),
}

impl fmt::Display for DbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DbError::Address(text) | DbError::Connection(text) | DbError::Schema(text) | DbError::Busy(text) => {
                f.write_str(text)
            }
            DbError::Inconsistent(text) => write!(f, "the database contradicts itself: {text}"),
            DbError::Overflow => write!(f, "{Overflow}"),
            DbError::Query(error) => write!(f, "the database says: {error}"),
        }
    }
}

impl std::error::Error for DbError {}

impl DbError {
    /// Whether another writer was in the way, so that the same transaction may succeed if it is tried again.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        use diesel::result::{DatabaseErrorKind, Error};
        match self {
            DbError::Busy(_) => true,
            DbError::Query(Error::DatabaseError(kind, information)) => {
                matches!(kind, DatabaseErrorKind::SerializationFailure | DatabaseErrorKind::UniqueViolation)
                    || information.message() == "deadlock detected"
            }
            _ => false,
        }
    }
}

impl From<diesel::result::Error> for DbError {
    fn from(error: diesel::result::Error) -> DbError {
        match &error {
            diesel::result::Error::DatabaseError(_, information) if information.message() == "database is locked" => {
                DbError::Busy("another process is writing to the database; try again when it is done".into())
            }
            _ => DbError::Query(error),
        }
    }
}

impl From<Overflow> for DbError {
    fn from(_: Overflow) -> DbError {
        DbError::Overflow
    }
}

/// A value that must be there and is not.
pub(crate) fn missing(what: impl fmt::Display) -> DbError {
    DbError::Inconsistent(format!("{what} is missing"))
}
