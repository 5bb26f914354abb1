//! Who may see pages: until people can sign in, whoever opened the link that the service printed.
//!
//! The link is for one use, and the next one is printed when it was used. It gives the browser a session, which ends with
//! the process. Pages of the demonstration are open to whoever is at this machine.

use std::future::{Ready, ready};
use std::sync::{Mutex, PoisonError};

use actix_web::cookie::{Cookie, SameSite};
use actix_web::dev::Payload;
use actix_web::http::header;
use actix_web::web::{Data, Path};
use actix_web::{FromRequest, HttpRequest, HttpResponse};
use sha2::{Digest, Sha256};

use super::answers::Failure;
use crate::error::AppError;

/// The name of the cookie that holds a session.
const SESSION: &str = "gpuledger_session";
/// How many sessions are kept; the oldest goes first.
const SESSIONS_MAX: usize = 64;

/// What lets people in.
pub struct Door {
    secrets: Option<Mutex<Secrets>>,
}

struct Secrets {
    /// The hash of the link that can be used now.
    link: [u8; 32],
    /// The hashes of sessions, oldest first.
    sessions: Vec<[u8; 32]>,
    print: Print,
}

/// What is done with the secret part of a new link.
type Print = Box<dyn Fn(&str) + Send>;

impl std::fmt::Debug for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Nothing of its secrets.
        f.write_str(if self.secrets.is_some() { "Door by link" } else { "Door, open" })
    }
}

impl Door {
    /// Open to whoever is at this machine.
    #[must_use]
    pub const fn open() -> Door {
        Door { secrets: None }
    }

    /// Opened by a link, of which `print` is given the secret part each time there is a new one.
    ///
    /// # Errors
    /// The operating system's, where it has no random numbers.
    pub fn by_link(print: Box<dyn Fn(&str) + Send>) -> Result<Door, AppError> {
        let link = secret()?;
        print(&link);
        Ok(Door { secrets: Some(Mutex::new(Secrets { link: hash(&link), sessions: Vec::new(), print })) })
    }

    /// Takes a link: a session for it, if it is the one that can be used now.
    fn enter(&self, link: &str) -> Result<Option<String>, AppError> {
        let Some(secrets) = &self.secrets else { return Ok(None) };
        let mut secrets = secrets.lock().unwrap_or_else(PoisonError::into_inner);
        if hash(link) != secrets.link {
            return Ok(None);
        }
        let (session, next) = (secret()?, secret()?);
        secrets.link = hash(&next);
        if secrets.sessions.len() >= SESSIONS_MAX {
            secrets.sessions.remove(0);
        }
        secrets.sessions.push(hash(&session));
        (secrets.print)(&next);
        Ok(Some(session))
    }

    fn admits(&self, request: &HttpRequest) -> bool {
        let Some(secrets) = &self.secrets else { return true };
        let Some(cookie) = request.cookie(SESSION) else { return false };
        let secrets = secrets.lock().unwrap_or_else(PoisonError::into_inner);
        secrets.sessions.contains(&hash(cookie.value()))
    }
}

/// 256 bits that nobody can guess, as text.
fn secret() -> Result<String, AppError> {
    let mut bytes = [0u8; 32];
    getrandom::fill(&mut bytes).map_err(|error| AppError::file("random numbers", std::io::Error::other(error)))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Hashes are compared, not secrets: how long it takes says nothing of these.
fn hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

/// Somebody who may see pages. A handler of a page takes one as its first argument, so that it is not reached without.
pub(super) struct Visitor;

impl FromRequest for Visitor {
    type Error = Failure;
    type Future = Ready<Result<Visitor, Failure>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let admitted = request.app_data::<Data<Door>>().is_some_and(|door| door.admits(request));
        ready(if admitted { Ok(Visitor) } else { Err(Failure::NotYours) })
    }
}

/// Opens the pages to a browser that has the link.
pub(super) async fn enter(door: Data<Door>, link: Path<String>) -> Result<HttpResponse, Failure> {
    let session = door.enter(&link)?.ok_or(Failure::NotYours)?;
    let cookie = Cookie::build(SESSION, session).path("/").http_only(true).same_site(SameSite::Strict).finish();
    Ok(HttpResponse::SeeOther().cookie(cookie).insert_header((header::LOCATION, "/statements")).finish())
}
