//! Importing Slurm's accounting without a process.

use gpuledger::import::InputFile;
use gpuledger::import::job_record::RefusedLine;
use gpuledger::import::sacct::{SacctList, SacctOptions};
use gpuledger::workflows::import_jobs::{ImportJobs, Imported, import_jobs};
use gpuledger_domain::calendar::BillingCalendar;
use gpuledger_domain::ids::PoolName;
use gpuledger_domain::inventory::Inventory;
use gpuledger_domain::time::Instant;

use super::Books;
use super::jobs::Refused;

pub fn utc() -> BillingCalendar {
    BillingCalendar::new("UTC").unwrap()
}

/// The day after the newest of the lists.
fn now() -> Instant {
    Instant::parse("2026-12-01T00:00:00Z").unwrap()
}

/// A list that names its cluster, in UTC where it does not say it itself.
pub fn list_of(file: &InputFile) -> SacctList {
    SacctList::of_file(file, SacctOptions { zone: Some("UTC".into()), ..SacctOptions::default() }).unwrap()
}

pub fn import(books: &Books, list: &SacctList, file: &InputFile, pool: &str) -> (Imported, Vec<RefusedLine>) {
    let pool = PoolName::parse(pool).unwrap();
    let mut refused = Refused::default();
    let ask = ImportJobs {
        list,
        inventory: &Inventory::default(),
        pool: Some(&pool),
        strict: false,
        restate: false,
        as_of: None,
        roll_up: true,
        action: "import sacct",
        actor: "test",
    };
    let imported = import_jobs(&mut books.db(), &utc(), file, &ask, &mut refused, now).unwrap();
    (imported, refused.0)
}
