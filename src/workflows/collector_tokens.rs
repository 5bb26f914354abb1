//! Tokens of collectors: made and shown once, looked up by their public part, revoked.
//!
//! A token is `gpul_ID_SECRET_SUM`: a prefix by which scanners of leaked secrets know it, a public id, 32 random bytes,
//! and a CRC-32 of all before it, so that a scanner can tell a token from a text that looks like one. Of the secret only the
//! SHA-256 is stored; a slow hash is for secrets that can be guessed.

use gpuledger_db::audit::{self, Change};
use gpuledger_db::collector_token::{self, CollectorToken};
use gpuledger_db::{Db, dimensions};
use gpuledger_domain::ids::{ClusterName, checked_fact};
use gpuledger_domain::time::Instant;
use sha2::{Digest, Sha256};

use crate::error::AppError;

const PREFIX: &str = "gpul";
/// Bytes of the public part.
const ID_BYTES: usize = 8;
/// Bytes of the secret part.
const SECRET_BYTES: usize = 32;

/// What is asked of a new token.
#[derive(Clone, Copy, Debug)]
pub struct NewToken<'a> {
    /// The cluster it may report for.
    pub cluster: &'a ClusterName,
    /// The node it may report for; empty for any of the cluster.
    pub node: &'a str,
    /// What it is for.
    pub note: &'a str,
    /// Who makes it.
    pub actor: &'a str,
}

/// Random bytes, from the operating system outside tests.
pub type Random<'a> = &'a mut dyn FnMut(&mut [u8]) -> Result<(), AppError>;

/// Makes a token. The text is the only copy of its secret.
///
/// # Errors
/// [`AppError::Refused`] where a name cannot be; the database's.
pub fn create(
    db: &mut Db,
    wanted: &NewToken<'_>,
    random: Random<'_>,
    now: Instant,
) -> Result<(CollectorToken, String), AppError> {
    for (what, text) in [("node", wanted.node), ("note", wanted.note)] {
        checked_fact(text).map_err(|reason| AppError::Refused(format!("the {what}: {reason}")))?;
    }
    let (mut id, mut secret) = ([0u8; ID_BYTES], [0u8; SECRET_BYTES]);
    random(&mut id)?;
    random(&mut secret)?;
    let (id, secret) = (hex(&id), hex(&secret));
    let body = format!("{PREFIX}_{id}_{secret}");
    let text = format!("{body}_{}", sum(&body));
    let token = CollectorToken {
        id,
        cluster: wanted.cluster.to_string(),
        node: wanted.node.to_owned(),
        secret_sha256: Sha256::digest(secret.as_bytes()).to_vec(),
        note: wanted.note.to_owned(),
        created_at: now,
        created_by: wanted.actor.to_owned(),
        revoked_at: None,
        last_used_at: None,
    };
    db.transaction(|db| {
        let cluster = dimensions::intern_cluster(db, wanted.cluster)?;
        collector_token::insert(db, cluster, &token)?;
        let after = format!("for {}", scope(&token));
        tell_audit(db, (wanted.actor, "token create"), &token, ("", &after), now)
    })?;
    Ok((token, text))
}

/// Makes a token void.
///
/// # Errors
/// [`AppError::Missing`] where there is none of this id, [`AppError::Refused`] where it is void already; the database's.
pub fn revoke(db: &mut Db, id: &str, actor: &str, now: Instant) -> Result<CollectorToken, AppError> {
    db.transaction(|db| {
        let token = collector_token::find(db, id)?;
        let token = token
            .ok_or_else(|| AppError::Missing(format!("there is no token {id}; `gpuledger token list` shows them")))?;
        if !collector_token::revoke(db, id, now)? {
            return Err(AppError::Refused(format!("the token {id} is revoked already")));
        }
        let before = format!("for {}", scope(&token));
        tell_audit(db, (actor, "token revoke"), &token, (&before, "revoked"), now)?;
        Ok(token)
    })
}

/// What a token may report for, in words.
#[must_use]
pub fn scope(token: &CollectorToken) -> String {
    if token.node.is_empty() {
        format!("any node of cluster {}", token.cluster)
    } else {
        format!("node {} of cluster {}", token.node, token.cluster)
    }
}

/// The public part of a token and the SHA-256 of its secret; `None` for a text that is no token.
#[must_use]
pub fn parts(text: &str) -> Option<(&str, Vec<u8>)> {
    let (body, told_sum) = text.rsplit_once('_')?;
    let mut parts = body.split('_');
    let (prefix, id, secret) = (parts.next()?, parts.next()?, parts.next()?);
    let whole =
        parts.next().is_none() && prefix == PREFIX && id.len() == 2 * ID_BYTES && secret.len() == 2 * SECRET_BYTES;
    (whole && told_sum == sum(body)).then(|| (id, Sha256::digest(secret.as_bytes()).to_vec()))
}

/// Whether a token is the one that `secret_sha256` was made from, and good. Takes the same time wherever they differ.
#[must_use]
pub fn is_good(token: &CollectorToken, secret_sha256: &[u8]) -> bool {
    let same = token.secret_sha256.len() == secret_sha256.len()
        && token.secret_sha256.iter().zip(secret_sha256).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0;
    same && token.revoked_at.is_none()
}

fn tell_audit(
    db: &mut Db,
    (actor, action): (&str, &str),
    token: &CollectorToken,
    (before, after): (&str, &str),
    at: Instant,
) -> Result<(), AppError> {
    let object = format!("token {}", token.id);
    Ok(audit::append(db, &Change { at, actor, action, object: &object, before, after })?)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sum(body: &str) -> String {
    format!("{:08x}", crc32fast::hash(body.as_bytes()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_a_token_only_with_its_sum() {
        let body = format!("gpul_{}_{}", "0".repeat(16), "a".repeat(64));
        let token = format!("{body}_{}", sum(&body));
        assert_eq!(parts(&token).unwrap().0, "0".repeat(16));
        let (last, flipped) = (token.chars().last().unwrap(), if token.ends_with('0') { '1' } else { '0' });
        let wrong = [token.replacen("aa", "ab", 1), token.trim_end_matches(last).to_owned() + &flipped.to_string()];
        for bad in wrong.iter().map(String::as_str).chain(["", "gpul", "gpul_1_2_3", "x_", &body]) {
            assert!(parts(bad).is_none(), "{bad}");
        }
    }
}
