//! Teams, prices, rules and the inventory as they were applied: whole texts, versioned, never changed.

use diesel::prelude::*;
use gpuledger_domain::time::Instant;

use crate::schema::{billing_zone, catalogue_version};
use crate::{Db, DbError, on_db};

/// Which catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CatalogueKind {
    /// Who pays.
    Teams,
    /// What it costs.
    Prices,
    /// Who is charged for which job.
    Rules,
    /// Which GPUs exist.
    Inventory,
}

impl CatalogueKind {
    const fn code(self) -> i16 {
        match self {
            CatalogueKind::Teams => 1,
            CatalogueKind::Prices => 2,
            CatalogueKind::Rules => 3,
            CatalogueKind::Inventory => 4,
        }
    }

    /// The word in commands and texts.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            CatalogueKind::Teams => "teams",
            CatalogueKind::Prices => "prices",
            CatalogueKind::Rules => "rules",
            CatalogueKind::Inventory => "inventory",
        }
    }
}

/// A catalogue as it was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogueVersion {
    /// Its number, from 1; 0 where nothing was ever applied.
    pub version: i32,
    /// The SHA-256 of its text.
    pub sha256: Vec<u8>,
    /// Its text.
    pub body: String,
}

/// The version in force; version 0 with an empty text where nothing was ever applied.
///
/// # Errors
/// What the database says.
pub fn current(db: &mut Db, kind: CatalogueKind) -> Result<CatalogueVersion, DbError> {
    let row: Option<(i32, Vec<u8>, String)> = on_db!(db, c => catalogue_version::table
        .filter(catalogue_version::kind.eq(kind.code()))
        .order(catalogue_version::version.desc())
        .select((catalogue_version::version, catalogue_version::sha256, catalogue_version::body))
        .first(c)
        .optional())?;
    let (version, sha256, body) = row.unwrap_or_default();
    Ok(CatalogueVersion { version, sha256, body })
}

/// One version by its number.
///
/// # Errors
/// What the database says; [`DbError::Inconsistent`] where there is no such version.
pub fn version(db: &mut Db, kind: CatalogueKind, version: i32) -> Result<CatalogueVersion, DbError> {
    if version == 0 {
        return Ok(CatalogueVersion { version: 0, sha256: Vec::new(), body: String::new() });
    }
    let row: Option<(Vec<u8>, String)> = on_db!(db, c => catalogue_version::table
        .find((kind.code(), version))
        .select((catalogue_version::sha256, catalogue_version::body))
        .first(c)
        .optional())?;
    let (sha256, body) = row.ok_or_else(|| crate::error::missing(format!("{} version {version}", kind.as_str())))?;
    Ok(CatalogueVersion { version, sha256, body })
}

/// Who asks for the catalogues to stay as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Who uses them: others may use them too.
    ToUse,
    /// Who changes them: alone.
    ToChange,
}

/// Keeps catalogues from being changed, or used, by others until the end of the transaction. Taken before any row.
///
/// # Errors
/// What the database says.
pub fn hold(db: &mut Db, hold: Hold) -> Result<(), DbError> {
    match (db, hold) {
        // One writer at a time anyway.
        (Db::Lite(_), _) => Ok(()),
        (db, Hold::ToUse) => {
            db.execute("SELECT pg_advisory_xact_lock_shared(hashtext('catalogue of ' || current_schema()))")
        }
        (db, Hold::ToChange) => {
            db.execute("SELECT pg_advisory_xact_lock(hashtext('catalogue of ' || current_schema()))")
        }
    }
}

/// The numbers of the versions in force: teams, prices, rules.
///
/// # Errors
/// What the database says.
pub fn versions(db: &mut Db) -> Result<[i32; 3], DbError> {
    let mut version = |kind: CatalogueKind| -> Result<i32, DbError> {
        let newest: Option<i32> = on_db!(db, c => catalogue_version::table
            .filter(catalogue_version::kind.eq(kind.code()))
            .select(diesel::dsl::max(catalogue_version::version))
            .first(c))?;
        Ok(newest.unwrap_or(0))
    };
    Ok([version(CatalogueKind::Teams)?, version(CatalogueKind::Prices)?, version(CatalogueKind::Rules)?])
}

/// Adds a version after `before`.
///
/// # Errors
/// What the database says; a version that another process added meanwhile is an error of its key.
pub fn append(
    db: &mut Db,
    kind: CatalogueKind,
    added: &CatalogueVersion,
    at: Instant,
    actor: &str,
) -> Result<(), DbError> {
    on_db!(db, c => diesel::insert_into(catalogue_version::table).values((
        catalogue_version::kind.eq(kind.code()),
        catalogue_version::version.eq(added.version),
        catalogue_version::sha256.eq(&added.sha256),
        catalogue_version::applied_at_us.eq(at.micros()),
        catalogue_version::applied_by.eq(actor),
        catalogue_version::body.eq(&added.body),
    )).execute(c))?;
    Ok(())
}

/// The time zone of billing days and months, if one was ever set.
///
/// # Errors
/// What the database says.
pub fn billing_zone(db: &mut Db) -> Result<Option<String>, DbError> {
    Ok(on_db!(db, c => billing_zone::table
        .order(billing_zone::from_us.desc())
        .select(billing_zone::zone)
        .first(c)
        .optional())?)
}

/// Sets the time zone of books that have none yet.
///
/// # Errors
/// What the database says.
pub fn set_first_billing_zone(db: &mut Db, zone: &str) -> Result<(), DbError> {
    on_db!(db, c => diesel::insert_into(billing_zone::table)
        .values((billing_zone::from_us.eq(Instant::MIN.micros()), billing_zone::zone.eq(zone)))
        .execute(c))?;
    Ok(())
}
