//! A real month from nothing: the published Philly trace, imported, priced and closed, its statements served.

use std::path::{Path, PathBuf};

use gpuledger_db::catalogue::CatalogueKind;
use gpuledger_db::{Database, period};
use gpuledger_domain::calendar::{BillingCalendar, Month};
use gpuledger_domain::inventory::Inventory;
use gpuledger_domain::time::Instant;

use crate::config::Config;
use crate::error::AppError;
use crate::files::{SourceText, mapping, prices, rules, teams};
use crate::import::InputFile;
use crate::workflows::apply_catalogue::{Wanted, apply};
use crate::workflows::books::Books;
use crate::workflows::import_jobs::{ImportJobs, ImportWatcher, import_jobs};
use crate::workflows::{close, migrate, statements};

const TRACE: &[u8] = include_bytes!("../docs/examples/philly/philly.csv.gz");
const MAPPING: &str = include_str!("../docs/examples/philly/mapping.toml");
const TEAMS: &str = include_str!("../docs/examples/philly/teams.toml");
const PRICES: &str = include_str!("../docs/examples/philly/prices.toml");
const RULES: &str = include_str!("../docs/examples/philly/rules.toml");

/// What is printed on every page of the demonstration.
pub const NOTICE: &str = "This is a demonstration. Start, length, GPU count and virtual cluster of each job are those of the \
    published Philly trace (Microsoft, 2017). Price, worth of a credit, cost centres and the GPU's name are invented; \
    the trace names no experiments, so that jobs are grouped by size.";

/// Fresh books with the trace in them, every month of it closed.
///
/// # Errors
/// The database's. The file at `path` must not exist yet.
pub fn prepare(
    config: &Config,
    path: &Path,
    watcher: &mut impl ImportWatcher,
    clock: impl Fn() -> Instant,
) -> Result<Config, AppError> {
    let mut config = config.clone();
    config.database = Database::Lite(PathBuf::from(path));
    // The figures that the documents tell are those of UTC, whatever the settings of this folder say.
    config.calendar = BillingCalendar::new("UTC").map_err(AppError::Refused)?;
    config.notice = Some(NOTICE.to_owned());
    migrate::migrate(&config.database, &config.calendar)?;
    let mut db = config.database.open()?;
    let actor = "demo";
    for (kind, text) in [(CatalogueKind::Teams, TEAMS), (CatalogueKind::Prices, PRICES), (CatalogueKind::Rules, RULES)]
    {
        let source = SourceText::new(kind.as_str(), text);
        let read = |books: &mut Books| {
            match kind {
                CatalogueKind::Teams => books.teams = teams::parse(&source, &config.calendar)?,
                CatalogueKind::Prices => books.prices = prices::parse(&source, &config.calendar, prices::Checks::All)?,
                CatalogueKind::Rules => books.rules = rules::parse(&source, &config.calendar)?,
                // The trace has none.
                CatalogueKind::Inventory => {}
            }
            Ok(text.to_owned())
        };
        apply(&mut db, &config.calendar, &Wanted { kind, read: &read, actor }, clock())?;
    }
    let mapping = mapping::parse(&SourceText::new("mapping.toml", MAPPING))?;
    let file = InputFile::of_bytes("philly.csv.gz", TRACE);
    import_jobs(
        &mut db,
        &config.calendar,
        &file,
        &ImportJobs {
            list: &mapping,
            inventory: &Inventory::default(),
            pool: None,
            strict: true,
            restate: false,
            as_of: None,
            roll_up: true,
            action: "import jobs",
            actor,
        },
        watcher,
        &clock,
    )?;
    for state in period::all(&mut db)? {
        close::close(&mut db, &config.calendar, state.period.month, actor, &clock)?;
    }
    Ok(config)
}

/// The closed months of books, earliest first, with their statements.
///
/// # Errors
/// The database's.
pub fn months(config: &Config, now: Instant) -> Result<Vec<(Month, statements::PeriodStatements)>, AppError> {
    let mut db = config.database.open()?;
    let closed = period::all(&mut db)?.into_iter().filter(|state| state.closing.is_some());
    closed
        .map(|state| {
            Ok((state.period.month, statements::of_period(&mut db, &config.calendar, state.period.month, now)?))
        })
        .collect()
}
