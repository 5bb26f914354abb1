//! Tokens by which collectors are known. Secrets are stored as hashes only.

use diesel::prelude::*;
use gpuledger_domain::time::Instant;

use crate::dimensions::ClusterId;
use crate::schema::{cluster, collector_token};
use crate::{Db, DbError, on_db};

/// A token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorToken {
    /// Its public part.
    pub id: String,
    /// The cluster it may report for.
    pub cluster: String,
    /// The node it may report for; empty where any of the cluster.
    pub node: String,
    /// The SHA-256 of its secret part.
    pub secret_sha256: Vec<u8>,
    /// What it is for, in words.
    pub note: String,
    /// When it was made.
    pub created_at: Instant,
    /// By whom.
    pub created_by: String,
    /// Since when it is void; `None` while it is good.
    pub revoked_at: Option<Instant>,
    /// When it was used last, to within a minute.
    pub last_used_at: Option<Instant>,
}

type Row = (String, String, String, Vec<u8>, String, i64, String, Option<i64>, Option<i64>);

fn token((id, cluster, node, secret_sha256, note, created, created_by, revoked, used): Row) -> CollectorToken {
    CollectorToken {
        id,
        cluster,
        node,
        secret_sha256,
        note,
        created_at: Instant::from_micros(created),
        created_by,
        revoked_at: revoked.map(Instant::from_micros),
        last_used_at: used.map(Instant::from_micros),
    }
}

/// Stores a new token of a cluster.
///
/// # Errors
/// What the database says; an id that is taken is an error.
pub fn insert(db: &mut Db, cluster: ClusterId, token: &CollectorToken) -> Result<(), DbError> {
    on_db!(db, c => diesel::insert_into(collector_token::table)
        .values((
            collector_token::id.eq(&token.id),
            collector_token::cluster_id.eq(cluster),
            collector_token::node_name.eq(&token.node),
            collector_token::secret_sha256.eq(&token.secret_sha256),
            collector_token::note.eq(&token.note),
            collector_token::created_at_us.eq(token.created_at.micros()),
            collector_token::created_by.eq(&token.created_by),
        ))
        .execute(c))?;
    Ok(())
}

/// All tokens, in the order in which they were made.
///
/// # Errors
/// What the database says.
pub fn all(db: &mut Db) -> Result<Vec<CollectorToken>, DbError> {
    let rows: Vec<Row> = on_db!(db, c => collector_token::table
        .inner_join(cluster::table.on(cluster::id.eq(collector_token::cluster_id)))
        .order((collector_token::created_at_us, collector_token::id))
        .select((collector_token::id, cluster::name, collector_token::node_name, collector_token::secret_sha256,
            collector_token::note, collector_token::created_at_us, collector_token::created_by,
            collector_token::revoked_at_us, collector_token::last_used_at_us))
        .load(c))?;
    Ok(rows.into_iter().map(token).collect())
}

/// The token of this id.
///
/// # Errors
/// What the database says.
pub fn find(db: &mut Db, id: &str) -> Result<Option<CollectorToken>, DbError> {
    let row: Option<Row> = on_db!(db, c => collector_token::table
        .inner_join(cluster::table.on(cluster::id.eq(collector_token::cluster_id)))
        .filter(collector_token::id.eq(id))
        .select((collector_token::id, cluster::name, collector_token::node_name, collector_token::secret_sha256,
            collector_token::note, collector_token::created_at_us, collector_token::created_by,
            collector_token::revoked_at_us, collector_token::last_used_at_us))
        .first(c)
        .optional())?;
    Ok(row.map(token))
}

/// Makes a token void; whether it was good until now.
///
/// # Errors
/// What the database says.
pub fn revoke(db: &mut Db, id: &str, at: Instant) -> Result<bool, DbError> {
    let changed = on_db!(db, c => diesel::update(collector_token::table.find(id))
        .filter(collector_token::revoked_at_us.is_null())
        .set(collector_token::revoked_at_us.eq(at.micros()))
        .execute(c))?;
    Ok(changed > 0)
}

/// Notes that a token was used.
///
/// # Errors
/// What the database says.
pub fn note_use(db: &mut Db, id: &str, at: Instant) -> Result<(), DbError> {
    on_db!(db, c => diesel::update(collector_token::table.find(id))
        .set(collector_token::last_used_at_us.eq(at.micros()))
        .execute(c))?;
    Ok(())
}
