//! A file's text, places in it, and reading values out of it with the mistakes noted.

use std::path::Path;

use gpuledger_domain::calendar::BillingCalendar;
use gpuledger_domain::time::{Instant, Validity};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::Spanned;

use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::error::AppError;

/// Largest file of teams, prices, rules or mappings that is read, in bytes.
const LENGTH_BYTES_MAX: u64 = 16 << 20;

/// The text of a file and what to call it.
#[derive(Clone, Debug)]
pub struct SourceText {
    /// As the person named it.
    pub name: String,
    /// All of it, without a byte-order mark.
    pub text: String,
}

/// An instant in a file: `2025-04-01` is the start of that billing day, else RFC 3339; in quotes or not.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum When {
    /// In quotes.
    Text(String),
    /// A date of TOML itself.
    Date(toml::value::Datetime),
}

impl SourceText {
    /// Reads a file.
    ///
    /// # Errors
    /// [`AppError::File`] where it cannot be read, is too large or is not UTF-8.
    pub fn read(path: impl AsRef<Path>) -> Result<SourceText, AppError> {
        let path = path.as_ref();
        let size = std::fs::metadata(path).map_err(|error| AppError::file(path, error))?.len();
        if size > LENGTH_BYTES_MAX {
            return Err(AppError::file(path, format!("it has {size} bytes; at most {LENGTH_BYTES_MAX} are read")));
        }
        let bytes = std::fs::read(path).map_err(|error| AppError::file(path, error))?;
        let text = String::from_utf8(bytes).map_err(|error| {
            AppError::file(
                path,
                format!("byte {} is not UTF-8; save the file as UTF-8", error.utf8_error().valid_up_to() + 1),
            )
        })?;
        Ok(SourceText::new(&path.display().to_string(), &text))
    }

    /// A text that comes from elsewhere.
    #[must_use]
    pub fn new(name: &str, text: &str) -> SourceText {
        SourceText { name: name.to_owned(), text: text.strip_prefix('\u{feff}').unwrap_or(text).to_owned() }
    }

    /// Reads it as TOML.
    ///
    /// # Errors
    /// The first mistake.
    pub fn parse_toml<T: DeserializeOwned>(&self) -> Result<T, Diagnostics> {
        toml::from_str(&self.text).map_err(|error| {
            let offset = error.span().map_or(0, |span| span.start);
            Diagnostics::of(self.at(offset, "", error.message().replace('\n', " ")))
        })
    }

    /// A mistake at a byte of the text.
    #[must_use]
    pub fn at(&self, offset: usize, field: &str, message: impl Into<String>) -> Diagnostic {
        let before = self.text.get(..offset).unwrap_or(&self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        Diagnostic::new(&self.name, Some((line, column)), field, message)
    }

    /// A mistake at a line, from 1.
    #[must_use]
    pub fn at_line(&self, line: usize, field: &str, message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(&self.name, Some((line, 1)), field, message)
    }

    /// A mistake of the file as a whole.
    #[must_use]
    pub fn whole(&self, field: &str, message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(&self.name, None, field, message)
    }
}

/// Reading values out of files: what is wrong is noted where it stands, and reading goes on.
impl Diagnostics {
    /// Takes a value, or notes the mistake at a place and gives `None`.
    pub fn note<T>(&mut self, source: &SourceText, offset: usize, field: &str, value: Result<T, String>) -> Option<T> {
        value.map_err(|message| self.push(source.at(offset, field, message))).ok()
    }

    /// Takes a text in its place through a check.
    pub fn check<T>(
        &mut self,
        source: &SourceText,
        field: &str,
        text: &Spanned<String>,
        check: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        self.note(source, text.span().start, field, check(text.get_ref()))
    }

    /// Takes `from` and `until` as a validity.
    pub fn validity(
        &mut self,
        source: &SourceText,
        calendar: &BillingCalendar,
        from: Option<&Spanned<When>>,
        until: Option<&Spanned<When>>,
    ) -> Option<Validity> {
        let from = self.instant(source, calendar, "from", from)?;
        let until_at = until.map_or(0, |until| until.span().start);
        let until = self.instant(source, calendar, "until", until)?;
        let message = || "it ends before it begins; `until` must be after `from`".to_owned();
        self.note(source, until_at, "until", Validity::new(from, until).ok_or_else(message))
    }

    /// Takes an instant that may be absent; `None` after a mistake.
    #[allow(clippy::option_option)]
    pub fn instant(
        &mut self,
        source: &SourceText,
        calendar: &BillingCalendar,
        field: &str,
        when: Option<&Spanned<When>>,
    ) -> Option<Option<Instant>> {
        match when {
            None => Some(None),
            Some(when) => self.note(source, when.span().start, field, when.get_ref().instant(calendar)).map(Some),
        }
    }
}

impl When {
    /// The instant it means in this calendar.
    ///
    /// # Errors
    /// A sentence that says how to write it.
    pub fn instant(&self, calendar: &BillingCalendar) -> Result<Instant, String> {
        match self {
            When::Text(text) => instant(text, calendar),
            When::Date(date) => instant(&date.to_string(), calendar),
        }
    }
}

/// Reads `2025-04-01` as the start of that billing day, else RFC 3339.
///
/// # Errors
/// A sentence that says how to write it.
pub(super) fn instant(text: &str, calendar: &BillingCalendar) -> Result<Instant, String> {
    let wrong = |_| {
        format!(
            "“{text}” is ambiguous or no instant; write a billing day like 2025-04-01 or an instant like 2025-04-01T00:00:00Z"
        )
    };
    if text.len() <= 10 { calendar.parse_day(text).map_err(wrong) } else { Instant::parse(text).map_err(wrong) }
}
