//! Settings: defaults, then a file, then the environment; read once into a typed value.
//!
//! The file is `gpuledger.toml` in the working directory, or the one that `--config` or `GPULEDGER_CONFIG` names.
//! An environment variable wins over the file: `GPULEDGER_DATABASE_URL` over `database_url`, and so on.

use std::path::{Path, PathBuf};

use gpuledger_db::Database;
use gpuledger_domain::calendar::BillingCalendar;
use gpuledger_domain::ids::PoolName;
use serde::Deserialize;
use toml::Spanned;

use crate::diagnostics::Diagnostics;
use crate::error::AppError;
use crate::files::SourceText;

/// All settings.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the books are.
    pub database: Database,
    /// The billing calendar.
    pub calendar: BillingCalendar,
    /// What the internal unit is called.
    pub credit: CreditWords,
    /// Who issues statements.
    pub issuer: Issuer,
    /// The pool of nodes on which collectors report and that the inventory does not know.
    pub default_pool: PoolName,
    /// How much is logged, in the words of the `RUST_LOG` convention.
    pub log: String,
    /// Whether log lines are JSON.
    pub log_json: bool,
    /// A sentence printed on every page, for books that are not real.
    pub notice: Option<String>,
    /// Whether there is a page of what is held now: of the demonstration's scripted node.
    pub live: bool,
    /// Where each setting comes from, in order, as (name, value fit for showing, source).
    pub origins: Vec<(&'static str, String, String)>,
}

/// What the internal unit is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreditWords {
    /// Many of them, such as `credits`.
    pub name: String,
    /// Before or after an amount on pages, such as `◆`.
    pub symbol: String,
}

/// Who issues statements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issuer {
    /// Its name, such as `Compute Platform`.
    pub name: String,
    /// Its cost centre; empty for none.
    pub cost_centre: String,
    /// Whom to ask; empty for none.
    pub contact: String,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct ConfigFile {
    database_url: Option<Spanned<String>>,
    billing_zone: Option<Spanned<String>>,
    credit_name: Option<Spanned<String>>,
    credit_symbol: Option<Spanned<String>>,
    issuer_name: Option<Spanned<String>>,
    issuer_cost_centre: Option<Spanned<String>>,
    issuer_contact: Option<Spanned<String>>,
    default_pool: Option<Spanned<String>>,
    log: Option<Spanned<String>>,
    log_format: Option<Spanned<String>>,
}

/// Where a setting was found, to point at when it is wrong.
struct Found {
    value: String,
    origin: String,
    span: Option<std::ops::Range<usize>>,
}

/// Every setting as it was found.
struct Settings {
    database_url: Found,
    billing_zone: Found,
    credit_name: Found,
    credit_symbol: Found,
    issuer_name: Found,
    issuer_cost_centre: Found,
    issuer_contact: Found,
    default_pool: Found,
    log: Found,
    log_format: Found,
}

type Origins = Vec<(&'static str, String, String)>;

impl Settings {
    /// Each from the environment, else the file, else its default.
    fn find(
        file: ConfigFile,
        source: Option<&SourceText>,
        environment: impl Fn(&str) -> Option<String>,
    ) -> (Settings, Origins) {
        let mut origins = Vec::new();
        let mut setting = |name: &'static str, from_file: Option<Spanned<String>>, default: &str| {
            let variable = format!("GPULEDGER_{}", name.to_uppercase());
            let found = match (environment(&variable), from_file) {
                (Some(value), _) => Found { value, origin: variable, span: None },
                (None, Some(value)) => {
                    let origin = source.map_or_else(String::new, |source| source.name.clone());
                    Found { span: Some(value.span()), value: value.into_inner(), origin }
                }
                (None, None) => Found { value: default.to_owned(), origin: "default".into(), span: None },
            };
            origins.push((name, found.value.clone(), found.origin.clone()));
            found
        };
        let database_url = setting("database_url", file.database_url, "sqlite://gpuledger.db");
        let billing_zone = setting("billing_zone", file.billing_zone, "UTC");
        let credit_name = setting("credit_name", file.credit_name, "credits");
        let credit_symbol = setting("credit_symbol", file.credit_symbol, "◆");
        let issuer_name = setting("issuer_name", file.issuer_name, "Compute Platform");
        let issuer_cost_centre = setting("issuer_cost_centre", file.issuer_cost_centre, "");
        let issuer_contact = setting("issuer_contact", file.issuer_contact, "");
        let default_pool = setting("default_pool", file.default_pool, "default");
        let log = setting("log", file.log, "warn");
        let log_format = setting("log_format", file.log_format, "text");
        let settings = Settings {
            database_url,
            billing_zone,
            credit_name,
            credit_symbol,
            issuer_name,
            issuer_cost_centre,
            issuer_contact,
            default_pool,
            log,
            log_format,
        };
        (settings, origins)
    }
}

impl Config {
    /// Reads the settings.
    ///
    /// # Errors
    /// Every setting that is wrong, with file, line and column or the variable's name.
    pub fn load(path: Option<&Path>, environment: impl Fn(&str) -> Option<String>) -> Result<Config, AppError> {
        let named = path.map(Path::to_path_buf).or_else(|| environment("GPULEDGER_CONFIG").map(PathBuf::from));
        let source = match &named {
            Some(path) => Some(SourceText::read(path)?),
            None if Path::new("gpuledger.toml").exists() => Some(SourceText::read("gpuledger.toml")?),
            None => None,
        };
        let file: ConfigFile = match &source {
            Some(source) => source.parse_toml()?,
            None => ConfigFile::default(),
        };
        let (settings, mut origins) = Settings::find(file, source.as_ref(), &environment);
        let Settings {
            database_url,
            billing_zone,
            credit_name,
            credit_symbol,
            issuer_name,
            issuer_cost_centre,
            issuer_contact,
            default_pool,
            log,
            log_format,
        } = settings;
        let mut wrong = Diagnostics::default();
        let mut tell = |name: &str, found: &Found, message: String| match (&source, &found.span) {
            (Some(source), Some(span)) => wrong.push(source.at(span.start, name, message)),
            _ => wrong.push(crate::diagnostics::Diagnostic::of_setting(&found.origin, message)),
        };
        let database = Database::parse(&database_url.value)
            .map_err(|error| tell("database_url", &database_url, error.to_string()));
        let calendar =
            BillingCalendar::new(&billing_zone.value).map_err(|message| tell("billing_zone", &billing_zone, message));
        let pool = PoolName::parse(&default_pool.value).map_err(|message| tell("default_pool", &default_pool, message));
        let texts: [(&str, &Found, Check); 7] = [
            ("credit_name", &credit_name, name),
            ("credit_symbol", &credit_symbol, plain),
            ("issuer_name", &issuer_name, name),
            ("issuer_cost_centre", &issuer_cost_centre, plain),
            ("issuer_contact", &issuer_contact, plain),
            ("log", &log, log_check),
            ("log_format", &log_format, log_format_check),
        ];
        for (field, found, check) in texts {
            if let Err(message) = check(&found.value) {
                tell(field, found, message);
            }
        }
        let (Ok(database), Ok(calendar), Ok(pool)) = (database, calendar, pool) else { return Err(wrong.into()) };
        wrong.into_result()?;
        if let Some((_, value, _)) = origins.first_mut() {
            *value = database.without_secret();
        }
        Ok(Config {
            database,
            calendar,
            credit: CreditWords { name: credit_name.value, symbol: credit_symbol.value },
            issuer: Issuer {
                name: issuer_name.value,
                cost_centre: issuer_cost_centre.value,
                contact: issuer_contact.value,
            },
            default_pool: pool,
            log: log.value,
            log_json: log_format.value == "json",
            notice: None,
            live: false,
            origins,
        })
    }
}

type Check = fn(&str) -> Result<(), String>;

fn name(text: &str) -> Result<(), String> {
    gpuledger_domain::ids::checked_name(text).map(drop)
}

fn plain(text: &str) -> Result<(), String> {
    gpuledger_domain::ids::checked_fact(text).map(drop)
}

fn log_format_check(text: &str) -> Result<(), String> {
    if ["text", "json"].contains(&text) {
        Ok(())
    } else {
        Err(format!("“{text}” is no format; write text or json"))
    }
}

fn log_check(text: &str) -> Result<(), String> {
    let filter = text.parse::<tracing_subscriber::EnvFilter>();
    filter.map(drop).map_err(|_| format!("“{text}” is no log filter; write error, warn, info or debug"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn with(variables: &[(&str, &str)]) -> Result<Config, String> {
        let find = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        Config::load(None, find).map_err(|error| error.to_string())
    }

    #[test]
    fn defaults_need_no_file_and_no_server() {
        let config = with(&[]).unwrap();
        assert_eq!(config.database.without_secret(), "sqlite://gpuledger.db");
        assert_eq!(config.calendar.zone_name(), "UTC");
    }

    #[test]
    fn every_wrong_setting_is_named_with_where_it_stands() {
        let message = with(&[("GPULEDGER_DATABASE_URL", "books.db"), ("GPULEDGER_BILLING_ZONE", "Mars")]).unwrap_err();
        assert!(
            message.contains("GPULEDGER_DATABASE_URL: ") && message.contains("GPULEDGER_BILLING_ZONE: "),
            "{message}"
        );
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "billing_zone = \"UTC\"\nbiling_zone = \"x\"\n").unwrap();
        let message = Config::load(Some(file.path()), |_| None).unwrap_err().to_string();
        assert!(message.contains(":2:1"), "{message}");
    }

    #[test]
    fn no_password_is_shown() {
        let config = with(&[("GPULEDGER_DATABASE_URL", "postgres://u:s3c@h/x")]).unwrap();
        assert!(config.origins.iter().all(|(_, value, _)| !value.contains("s3c")));
    }
}
