//! Every address, on one page.

use actix_web::web::{ServiceConfig, get};

use super::pages;

/// | address | answers |
/// |---|---|
/// | `/` | goes to `/statements` |
/// | `/statements` | the statements of all closed months |
/// | `/statements/{number}` | one statement |
/// | `/statements/{number}.csv` | its lines |
/// | `/static/{name}` | style and font |
pub(super) fn all(service: &mut ServiceConfig) {
    service
        .route("/", get().to(pages::home))
        .route("/statements", get().to(pages::list))
        .route("/statements/{number}.csv", get().to(pages::statement_csv))
        .route("/statements/{number}", get().to(pages::statement))
        .route("/static/{name}", get().to(pages::asset))
        .default_service(get().to(pages::nothing_here));
}
