//! The audit log: who changed what, when, from what, to what. Append only.

use diesel::prelude::*;
use gpuledger_domain::time::Instant;

use crate::schema::audit_log;
use crate::{Db, DbError, on_db};

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Insertable)]
#[diesel(table_name = audit_log, treat_none_as_default_value = false)]
pub struct AuditEntry {
    /// Its number.
    pub id: i64,
    /// When, in microseconds since the Unix epoch, UTC.
    pub at_us: i64,
    /// Who.
    pub actor: String,
    /// Did what, such as `prices apply`.
    pub action: String,
    /// To what.
    pub object: String,
    /// What was before; empty for nothing.
    pub before: String,
    /// What is now.
    pub after: String,
}

/// What to write down about a change.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// When.
    pub at: Instant,
    /// Who.
    pub actor: &'a str,
    /// Did what.
    pub action: &'a str,
    /// To what.
    pub object: &'a str,
    /// What was before.
    pub before: &'a str,
    /// What is now.
    pub after: &'a str,
}

/// Writes a change down, in the transaction that makes it.
///
/// # Errors
/// What the database says.
pub fn append(db: &mut Db, change: &Change<'_>) -> Result<(), DbError> {
    let row = AuditEntry {
        id: db.take_ids("audit_log", 1)?,
        at_us: change.at.micros(),
        actor: change.actor.to_owned(),
        action: change.action.to_owned(),
        object: change.object.to_owned(),
        before: change.before.to_owned(),
        after: change.after.to_owned(),
    };
    on_db!(db, c => diesel::insert_into(audit_log::table).values(&row).execute(c))?;
    Ok(())
}

/// All changes, oldest first.
///
/// # Errors
/// What the database says.
pub fn all(db: &mut Db) -> Result<Vec<AuditEntry>, DbError> {
    Ok(on_db!(db, c => audit_log::table.order(audit_log::id).load(c))?)
}
