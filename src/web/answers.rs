//! What every answer carries, and how failures look.

use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use actix_web::middleware::Next;
use actix_web::{HttpResponse, ResponseError};

use crate::error::AppError;

/// Headers of every answer. Nothing is inline, so that the policy needs no exception.
const HEADERS: [(HeaderName, &str); 5] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; \
         form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (header::CACHE_CONTROL, "no-store"),
];

/// Refuses requests for any other name than loopback's, such as a page of another site could cause whose name was made
/// to lead here, and sets the headers that every answer carries.
///
/// # Errors
/// Those of the handler.
pub async fn secure(
    request: ServiceRequest,
    next: Next<impl MessageBody>,
) -> Result<ServiceResponse<EitherBody<impl MessageBody>>, actix_web::Error> {
    let mut response = if is_loopback_name(request.headers()) {
        next.call(request).await?.map_into_left_body()
    } else {
        let refused =
            HttpResponse::build(StatusCode::MISDIRECTED_REQUEST).body("This server answers on loopback only.\n");
        request.into_response(refused).map_into_right_body()
    };
    add_headers(&mut response);
    Ok(response)
}

/// Whether a request is for a name of loopback.
pub(super) fn is_loopback_name(headers: &HeaderMap) -> bool {
    // The header itself: what a proxy adds beside it, any page could add too.
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("");
    let name = host
        .rsplit_once(':')
        .filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()))
        .map_or(host, |(name, _)| name);
    ["127.0.0.1", "localhost", "[::1]"].iter().any(|own| own.eq_ignore_ascii_case(name))
}

/// Sets the headers that every answer carries, also those of the service, which answers to any name.
///
/// # Errors
/// Those of the handler.
pub(super) async fn guarded(
    request: ServiceRequest,
    next: Next<impl MessageBody>,
) -> Result<ServiceResponse<impl MessageBody>, actix_web::Error> {
    let mut response = next.call(request).await?;
    add_headers(&mut response);
    Ok(response)
}

fn add_headers<B>(response: &mut ServiceResponse<B>) {
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
}

/// A failure as an answer: what went wrong in words, and nothing of the inside.
#[derive(Debug)]
pub(super) enum Failure {
    /// There is nothing at the address.
    NothingHere,
    /// Who asks may not see it.
    NotYours,
    /// It failed; the log says why.
    Failed,
}

impl From<AppError> for Failure {
    fn from(error: AppError) -> Failure {
        match error {
            AppError::Missing(_) => Failure::NothingHere,
            error => {
                tracing::error!(%error, "a page failed");
                Failure::Failed
            }
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Failure::NothingHere => "There is nothing at this address. The statements are listed at /statements.\n",
            Failure::NotYours => {
                "Open the link that `gpuledger serve` printed last; each link opens the pages to one browser.\n"
            }
            Failure::Failed => "The page could not be made. Nothing was changed; the log says why.\n",
        })
    }
}

impl ResponseError for Failure {
    fn status_code(&self) -> StatusCode {
        match self {
            Failure::NothingHere => StatusCode::NOT_FOUND,
            Failure::NotYours => StatusCode::UNAUTHORIZED,
            Failure::Failed => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn error_response(&self) -> HttpResponse {
        HttpResponse::build(self.status_code()).content_type("text/plain; charset=utf-8").body(self.to_string())
    }
}
