//! Every address, on one page.

use actix_web::guard::{Any, Get, Head};
use actix_web::web::{ServiceConfig, route};
use actix_web::{FromRequest, Handler, Responder, Route};

use super::{door, pages};

/// | address | answers |
/// |---|---|
/// | `/` | goes to `/statements` |
/// | `/open/{link}` | lets in whoever has the link that was printed |
/// | `/live` | what is held now, in the demonstration with a scripted node |
/// | `/statements` | the statements of all closed months |
/// | `/statements/{number}` | one statement |
/// | `/statements/{number}.csv` | its lines |
/// | `/static/{name}` | style and font |
pub(super) fn all(service: &mut ServiceConfig) {
    service
        .route("/", read(pages::home))
        .route("/open/{link}", route().guard(Get()).to(door::enter))
        .route("/live", read(pages::live))
        .route("/statements", read(pages::list))
        .route("/statements/{number}.csv", read(pages::statement_csv))
        .route("/statements/{number}", read(pages::statement))
        .route("/static/{name}", read(pages::asset))
        .default_service(read(pages::nothing_here));
}

/// A page that may be read, and does nothing else.
fn read<F, Args>(handler: F) -> Route
where
    F: Handler<Args>,
    Args: FromRequest + 'static,
    F::Output: Responder + 'static,
{
    route().guard(Any(Get()).or(Head())).to(handler)
}
