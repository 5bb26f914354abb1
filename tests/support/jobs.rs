//! Importing, applying and closing without a process, for tests that do it often.

use gpuledger::files::{SourceText, inventory, mapping, prices, rules, teams};
use gpuledger::import::InputFile;
use gpuledger::import::job_record::RefusedLine;
use gpuledger::workflows::apply_catalogue::{Applied, Wanted, apply};
use gpuledger::workflows::books::Books as Catalogues;
use gpuledger::workflows::import_jobs::{ImportJobs, ImportWatcher, import_jobs};
use gpuledger_db::Db;
use gpuledger_db::catalogue::CatalogueKind;
use gpuledger_db::import_log::ImportCounts;
use gpuledger_domain::calendar::BillingCalendar;
use gpuledger_domain::inventory::Inventory;
use gpuledger_domain::time::Instant;

/// Every test's present: 2026-01-01.
pub fn now() -> Instant {
    Instant::parse("2026-01-01T00:00:00Z").unwrap()
}

#[derive(Default)]
pub struct Refused(pub Vec<RefusedLine>);

impl ImportWatcher for Refused {
    fn progress(&mut self, _: u64) {}
    fn refused(&mut self, line: &RefusedLine) {
        self.0.push(line.clone());
    }
}

pub fn import(
    db: &mut Db,
    calendar: &BillingCalendar,
    mapping_text: &str,
    bytes: &[u8],
) -> (ImportCounts, Vec<RefusedLine>) {
    let mapping = mapping::parse(&SourceText::new("mapping.toml", mapping_text)).unwrap();
    let file = InputFile::of_bytes("jobs.csv", bytes);
    let mut refused = Refused::default();
    let ask = ImportJobs {
        list: &mapping,
        inventory: &Inventory::default(),
        pool: None,
        strict: false,
        restate: false,
        as_of: None,
        roll_up: true,
        action: "import jobs",
        actor: "test",
    };
    let imported = import_jobs(db, calendar, &file, &ask, &mut refused, now).unwrap();
    (imported.counts, refused.0)
}

pub fn apply_text(db: &mut Db, calendar: &BillingCalendar, kind: CatalogueKind, body: &str) -> Result<Applied, String> {
    let source = SourceText::new("file.toml", body);
    let read = |books: &mut Catalogues| {
        match kind {
            CatalogueKind::Teams => books.teams = teams::parse(&source, calendar)?,
            CatalogueKind::Prices => books.prices = prices::parse(&source, calendar, prices::Checks::All)?,
            CatalogueKind::Rules => books.rules = rules::parse(&source, calendar)?,
            CatalogueKind::Inventory => drop(inventory::parse(&source, calendar)?),
        }
        Ok(body.to_owned())
    };
    apply(db, calendar, &Wanted { kind, read: &read, actor: "test" }, now()).map_err(|error| error.to_string())
}
