//! What the service does by the clock: each once, whichever replica comes first.

use diesel::prelude::*;
use gpuledger_domain::time::Instant;

use crate::schema::task;
use crate::{Db, DbError, on_db};

/// Makes sure that a task is known, due at an instant if it is new.
///
/// # Errors
/// What the database says.
pub fn ensure(db: &mut Db, name: &str, due_at: Instant) -> Result<(), DbError> {
    on_db!(db, c => diesel::insert_into(task::table)
        .values((task::name.eq(name), task::due_at_us.eq(due_at.micros()), task::done_at_us.eq(None::<i64>)))
        .on_conflict_do_nothing()
        .execute(c))?;
    Ok(())
}

/// Takes a task that is due for the length of the transaction; `false` if it is not due, or another does it.
///
/// # Errors
/// What the database says.
pub fn take_due(db: &mut Db, name: &str, now: Instant) -> Result<bool, DbError> {
    let due = task::due_at_us.le(now.micros());
    let found: Option<String> = match db {
        Db::Lite(c) => task::table.find(name).filter(due).select(task::name).first(c).optional()?,
        Db::Pg(c) => {
            task::table.find(name).filter(due).select(task::name).for_update().skip_locked().first(c).optional()?
        }
    };
    Ok(found.is_some())
}

/// Notes that a task that was taken is done, and when it is due again.
///
/// # Errors
/// What the database says.
pub fn done(db: &mut Db, name: &str, at: Instant, due_at: Instant) -> Result<(), DbError> {
    on_db!(db, c => diesel::update(task::table.find(name))
        .set((task::due_at_us.eq(due_at.micros()), task::done_at_us.eq(at.micros())))
        .execute(c))?;
    Ok(())
}
