//! The inventory in force. It decides no amount, so that it stands beside the books and not in them.

use gpuledger_db::Db;
use gpuledger_db::catalogue::{self, CatalogueKind};
use gpuledger_domain::calendar::BillingCalendar;
use gpuledger_domain::inventory::Inventory;

use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::error::AppError;
use crate::files::{SourceText, inventory};

/// The inventory in force; an empty one where none was ever applied.
///
/// # Errors
/// The database's; also where the stored text cannot be read by this version.
pub fn in_force(db: &mut Db) -> Result<Inventory, AppError> {
    let stored = catalogue::current(db, CatalogueKind::Inventory)?;
    // Its days begin where the books' do.
    let zone = catalogue::billing_zone(db)?.filter(|_| stored.version > 0);
    let Some(zone) = zone else { return Ok(Inventory::default()) };
    let calendar = BillingCalendar::new(&zone)
        .map_err(|message| Diagnostics::of(Diagnostic::of_setting("the stored billing zone", message)))?;
    let name = format!("{} version {}", CatalogueKind::Inventory.as_str(), stored.version);
    Ok(inventory::parse(&SourceText::new(&name, &stored.body), &calendar)?)
}
