//! What a command that fails says, and with which exit code it ends.

use std::fmt;

use gpuledger_db::DbError;
use gpuledger_domain::units::Overflow;

use crate::diagnostics::Diagnostics;

/// Why a command did not do what it was asked. Nothing is half done.
#[derive(Debug)]
pub enum AppError {
    /// A file that people write holds mistakes.
    Input(Diagnostics),
    /// What was asked for does not exist.
    Missing(String),
    /// Something changed while it was looked at; asking again helps.
    Changed(String),
    /// What was asked is refused as things stand.
    Refused(String),
    /// A file cannot be read or written.
    File(String),
    /// The database.
    Database(DbError),
}

impl AppError {
    /// A file that cannot be read or written, and why.
    pub fn file(path: impl AsRef<std::path::Path>, error: impl fmt::Display) -> AppError {
        AppError::File(format!("{}: {error}", path.as_ref().display()))
    }
}

impl fmt::Display for AppError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AppError::Input(diagnostics) => write!(f, "{diagnostics}"),
            AppError::Missing(text) | AppError::Changed(text) | AppError::Refused(text) | AppError::File(text) => {
                f.write_str(text)
            }
            AppError::Database(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for AppError {}

impl From<DbError> for AppError {
    fn from(error: DbError) -> AppError {
        AppError::Database(error)
    }
}

impl From<Overflow> for AppError {
    fn from(error: Overflow) -> AppError {
        AppError::Refused(error.to_string())
    }
}

impl From<Diagnostics> for AppError {
    fn from(diagnostics: Diagnostics) -> AppError {
        AppError::Input(diagnostics)
    }
}

/// How a command ended. The numbers are promises to scripts; `docs/guides/platform-engineer.md` lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All was done, or was done already: exit code 0.
    Done,
    /// It was done, but some lines were refused: exit code 3.
    DoneWithRefusals,
    /// A check found something: exit code 4.
    Findings,
}

impl Outcome {
    /// The exit code.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Outcome::Done => 0,
            Outcome::DoneWithRefusals => 3,
            Outcome::Findings => 4,
        }
    }
}
