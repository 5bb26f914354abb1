//! Who reports: a handler that takes a [`Collector`] is reached with a good token only.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use actix_web::dev::Payload;
use actix_web::http::header;
use actix_web::web::{Data, block};
use actix_web::{FromRequest, HttpRequest};
use gpuledger_db::Db;
use gpuledger_db::collector_token::{self, CollectorToken};
use gpuledger_domain::time::{Instant, SECOND_US};
use gpuledger_wire::RefusalCode;

use super::reports::Refused;
use crate::clock;
use crate::config::Config;
use crate::error::AppError;
use crate::workflows::{collector_tokens, migrate};

/// How long a token that was looked up is taken to be as it was: so long does a revoked one still work.
const TRUSTED_US: i64 = 5 * SECOND_US;
/// How often it is noted that a token is in use.
const USE_NOTED_US: i64 = 60 * SECOND_US;
/// Most tokens that are remembered.
const REMEMBERED_MAX: usize = 65_536;

/// A collector whose token is good.
#[derive(Debug)]
pub(super) struct Collector {
    pub(super) token: Arc<CollectorToken>,
}

/// Tokens that were looked up lately, and the one connection by which they are: whoever sends texts that only look like
/// tokens keeps no more than that busy.
#[derive(Default)]
pub(super) struct Tokens {
    known: Mutex<HashMap<String, (Arc<CollectorToken>, Instant)>>,
    db: Mutex<Option<Db>>,
}

impl Tokens {
    fn known(&self, id: &str, now: Instant) -> Option<Arc<CollectorToken>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (token, at) = known.get(id)?;
        let fresh = now.micros().saturating_sub(at.micros()) < TRUSTED_US && at.micros() <= now.micros();
        fresh.then(|| Arc::clone(token))
    }

    fn remember(&self, token: &Arc<CollectorToken>, now: Instant) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED_MAX {
            known.clear();
        }
        known.insert(token.id.clone(), (Arc::clone(token), now));
    }
}

impl Tokens {
    /// Looks a token up, and notes at most once a minute that it is in use.
    fn find(
        &self,
        config: &Config,
        id: &str,
        secret_sha256: &[u8],
        now: Instant,
    ) -> Result<Option<CollectorToken>, AppError> {
        let mut kept = self.db.lock().unwrap_or_else(PoisonError::into_inner);
        // A connection that failed is not used again.
        let mut db = match kept.take() {
            Some(db) => db,
            None => migrate::open(&config.database, &config.calendar)?,
        };
        let token = collector_token::find(&mut db, id)?;
        if let Some(token) = token.as_ref().filter(|token| collector_tokens::is_good(token, secret_sha256)) {
            let noted = token.last_used_at.map_or(i64::MIN, Instant::micros);
            if now.micros().saturating_sub(noted) > USE_NOTED_US {
                collector_token::note_use(&mut db, id, now)?;
            }
        }
        *kept = Some(db);
        Ok(token)
    }
}

impl FromRequest for Collector {
    type Error = Refused;
    type Future = Pin<Box<dyn Future<Output = Result<Collector, Refused>>>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let given = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let parts = given.and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            let (id, sha256) =
                collector_tokens::parts(token.trim()).filter(|_| scheme.eq_ignore_ascii_case("bearer"))?;
            Some((id.to_owned(), sha256))
        });
        let state = request.app_data::<Data<Config>>().cloned().zip(request.app_data::<Data<Tokens>>().cloned());
        Box::pin(async move {
            let bad = || Refused::of(RefusalCode::BadToken, "send a good token: Authorization: Bearer gpul_…");
            let (id, sha256) = parts.ok_or_else(bad)?;
            let (config, tokens) = state.ok_or_else(Refused::failed)?;
            let now = clock::now();
            let token = match tokens.known(&id, now) {
                Some(token) => token,
                None => {
                    let (looked_for, kept) = ((id.clone(), sha256.clone()), tokens.clone());
                    let found = block(move || kept.find(&config, &looked_for.0, &looked_for.1, now)).await;
                    let found = found.map_err(|_| Refused::failed())?.map_err(|error| {
                        tracing::error!(%error, "a token could not be looked up");
                        Refused::failed()
                    })?;
                    let token = Arc::new(found.ok_or_else(bad)?);
                    tokens.remember(&token, now);
                    token
                }
            };
            if !collector_tokens::is_good(&token, &sha256) {
                tracing::warn!(token = %id, "a token that is not good was used");
                return Err(bad());
            }
            Ok(Collector { token })
        })
    }
}
