//! Bringing a database to the schema of this version, and tying it to its billing zone.

use gpuledger_db::{Database, Db, catalogue, migrations};
use gpuledger_domain::calendar::BillingCalendar;

use crate::error::AppError;

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migrated {
    /// The migrations that were run; empty if the schema was current.
    pub migrations: Vec<String>,
    /// The zone of the books.
    pub zone: String,
}

/// Runs the migrations that are missing, and stores the billing zone of books that have none.
///
/// # Errors
/// The database's; [`AppError::Refused`] where the books have another zone than the settings.
pub fn migrate(database: &Database, calendar: &BillingCalendar) -> Result<Migrated, AppError> {
    let mut db = database.create()?;
    let migrations = migrations::run(&mut db)?;
    if catalogue::billing_zone(&mut db)?.is_none() {
        catalogue::set_first_billing_zone(&mut db, calendar.zone_name())?;
    }
    require_zone(&mut db, calendar)?;
    Ok(Migrated { migrations, zone: calendar.zone_name().to_owned() })
}

/// Opens books whose schema and zone fit.
///
/// # Errors
/// The database's; [`AppError::Refused`] where the books have another zone than the settings.
pub fn open(database: &Database, calendar: &BillingCalendar) -> Result<Db, AppError> {
    let mut db = database.open()?;
    require_zone(&mut db, calendar)?;
    Ok(db)
}

fn require_zone(db: &mut Db, calendar: &BillingCalendar) -> Result<(), AppError> {
    match catalogue::billing_zone(db)? {
        Some(zone) if zone == calendar.zone_name() => Ok(()),
        Some(zone) => Err(AppError::Refused(format!(
            "the books are kept in the zone {zone}, the settings say {}; set billing_zone (GPULEDGER_BILLING_ZONE) to {zone}",
            calendar.zone_name()
        ))),
        None => Err(AppError::Refused("the books have no billing zone yet; run `gpuledger migrate`".into())),
    }
}
