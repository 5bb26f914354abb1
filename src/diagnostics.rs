//! What is wrong with something that people wrote: every mistake, where it stands, and the remedy.

use std::fmt;

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    file: String,
    /// From 1; `None` where the mistake is in no file.
    place: Option<(usize, usize)>,
    field: String,
    message: String,
}

/// All mistakes of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnostics(Vec<Diagnostic>);

impl Diagnostic {
    /// A mistake in a field of a file, at a line and column from 1 or in the file as a whole.
    #[must_use]
    pub fn new(file: &str, place: Option<(usize, usize)>, field: &str, message: impl Into<String>) -> Diagnostic {
        Diagnostic { file: file.to_owned(), place, field: field.to_owned(), message: message.into() }
    }

    /// A mistake in a setting that stands in no file.
    #[must_use]
    pub fn of_setting(name: &str, message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(name, None, "", message)
    }
}

impl Diagnostics {
    /// One mistake.
    #[must_use]
    pub fn of(diagnostic: Diagnostic) -> Diagnostics {
        Diagnostics(vec![diagnostic])
    }

    /// Adds a mistake.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.0.push(diagnostic);
    }

    /// `Ok` if there is none.
    ///
    /// # Errors
    /// Itself, if there is any.
    pub fn into_result(self) -> Result<(), Diagnostics> {
        if self.0.is_empty() { Ok(()) } else { Err(self) }
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some((line, column)) = self.place {
            write!(f, ":{line}:{column}")?;
        }
        match self.field.as_str() {
            "" => write!(f, ": {}", self.message),
            field => write!(f, ": {field}: {}", self.message),
        }
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, diagnostic) in self.0.iter().enumerate() {
            write!(f, "{}{diagnostic}", if index > 0 { "\n" } else { "" })?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}
