//! What was imported, when, by whom.

use diesel::prelude::*;
use gpuledger_domain::time::Instant;

use crate::schema::import;
use crate::{Db, DbError, on_db};

/// What came of the lines of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportCounts {
    /// Lines read, without the header.
    pub lines: i64,
    /// New attempts.
    pub added: i64,
    /// Attempts already held, with the same content.
    pub known: i64,
    /// Attempts already held, of which this is a newer telling.
    pub revised: i64,
    /// Lines of jobs that held no GPU for any time.
    pub without_gpu_time: i64,
    /// Lines of jobs that still ran, and are charged when a later list tells their end.
    pub running: i64,
    /// Lines refused.
    pub refused: i64,
}

/// Notes that an import begins; its number.
///
/// # Errors
/// What the database says.
pub fn begin(db: &mut Db, file_name: &str, actor: &str, at: Instant) -> Result<i64, DbError> {
    let id = db.take_ids("import", 1)?;
    on_db!(db, c => diesel::insert_into(import::table).values((
        import::id.eq(id), import::file_name.eq(file_name), import::actor.eq(actor),
        import::started_at_us.eq(at.micros()), import::finished_at_us.eq(None::<i64>), import::lines.eq(0),
        import::added.eq(0), import::known.eq(0), import::revised.eq(0), import::without_gpu_time.eq(0),
        import::running.eq(0), import::refused.eq(0),
    )).execute(c))?;
    Ok(id)
}

/// Notes that an import is done.
///
/// # Errors
/// What the database says.
pub fn finish(db: &mut Db, id: i64, counts: &ImportCounts, at: Instant) -> Result<(), DbError> {
    on_db!(db, c => diesel::update(import::table.find(id)).set((
        import::finished_at_us.eq(Some(at.micros())), import::lines.eq(counts.lines), import::added.eq(counts.added),
        import::known.eq(counts.known), import::revised.eq(counts.revised),
        import::without_gpu_time.eq(counts.without_gpu_time),
        import::running.eq(counts.running), import::refused.eq(counts.refused),
    )).execute(c))?;
    Ok(())
}
