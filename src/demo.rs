//! A real month from nothing: the published Philly trace, imported, priced and closed, its statements served.

pub mod live;

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
const LIVE_PRICES: &str = include_str!("../docs/examples/live/prices.toml");
const LIVE_RULES: &str = include_str!("../docs/examples/live/rules.toml");

/// What is printed on every page of the demonstration.
pub const NOTICE: &str = "This is a demonstration. Start, length, GPU count and virtual cluster of each job are those of the \
    published Philly trace (Microsoft, 2017). Price, worth of a credit, cost centres and the GPU's name are invented; \
    the trace names no experiments, so that jobs are grouped by size.";

/// What is printed besides where a scripted node is in it.
pub const LIVE_NOTICE: &str = "All of the cluster live-demo is invented: its one node is a script that reports through the same \
    address as real nodes do.";

/// Fresh books with the trace in them, every month of it closed. With `live`, they know prices and rules for the scripted node, too.
///
/// # Errors
/// The database's. The file at `path` must not exist yet.
pub fn prepare(
    config: &Config,
    path: &Path,
    live: bool,
    watcher: &mut impl ImportWatcher,
    clock: impl Fn() -> Instant,
) -> Result<Config, AppError> {
    let mut config = config.clone();
    config.database = Database::Lite(PathBuf::from(path));
    // The figures that the documents tell are those of UTC, whatever the settings of this folder say.
    config.calendar = BillingCalendar::new("UTC").map_err(AppError::Refused)?;
    config.notice = Some(if live { format!("{NOTICE} {LIVE_NOTICE}") } else { NOTICE.to_owned() });
    config.live = live;
    migrate::migrate(&config.database, &config.calendar)?;
    let mut db = config.database.open()?;
    let actor = "demo";
    let with = |text: &str, more: &str| if live { format!("{text}\n{more}") } else { text.to_owned() };
    let catalogues = [
        (CatalogueKind::Teams, TEAMS.to_owned()),
        (CatalogueKind::Prices, with(PRICES, LIVE_PRICES)),
        (CatalogueKind::Rules, with(RULES, LIVE_RULES)),
    ];
    for (kind, text) in catalogues {
        let source = SourceText::new(kind.as_str(), &text);
        let read = |books: &mut Books| {
            match kind {
                CatalogueKind::Teams => books.teams = teams::parse(&source, &config.calendar)?,
                CatalogueKind::Prices => books.prices = prices::parse(&source, &config.calendar, prices::Checks::All)?,
                CatalogueKind::Rules => books.rules = rules::parse(&source, &config.calendar)?,
                // The trace has none.
                CatalogueKind::Inventory => {}
            }
            Ok(text.clone())
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
