//! `POST /api/v1/reports`: unpacks a report, sees that its token may send it, and waits until it is stored.

use std::fmt;

use actix_web::http::StatusCode;
use actix_web::http::header;
use actix_web::web::{Data, Payload, block};
use actix_web::{HttpRequest, HttpResponse, ResponseError};
use gpuledger_wire::{Answer, PACKED_BYTES_MAX, Refusal, RefusalCode};
use tokio::sync::Semaphore;

use super::collectors::Collector;
use super::ingest_queue::IngestQueue;
use super::metrics::Metrics;
use crate::clock;
use crate::import::report::{NodeReport, read_report};

/// Bodies above this are unpacked where that holds up no other request.
const UNPACKED_HERE_BYTES_MAX: usize = 64 << 10;
/// Most bodies that are unpacked at once: each may take some hundred MiB for a moment.
static UNPACKING: Semaphore = Semaphore::const_new(4);
/// When to try again, in seconds.
const RETRY_AFTER: &str = "2";

/// Why a report was not taken, as an answer.
#[derive(Clone, Debug)]
pub(super) struct Refused(Refusal);

impl Refused {
    pub(super) fn of(code: RefusalCode, message: &str) -> Refused {
        Refused(Refusal { code, message: message.to_owned() })
    }

    /// The code, as it is written.
    fn code(&self) -> String {
        let code = serde_json::to_value(self.0.code).ok();
        code.and_then(|code| Some(code.as_str()?.to_owned())).unwrap_or_default()
    }

    /// The log says why.
    pub(super) fn failed() -> Refused {
        Refused::of(RefusalCode::Failed, "the report could not be stored; the service's log says why. Send it again")
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Refused {
        Refused(refusal)
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl ResponseError for Refused {
    fn status_code(&self) -> StatusCode {
        match self.0.code {
            RefusalCode::BadToken => StatusCode::UNAUTHORIZED,
            RefusalCode::WrongCluster | RefusalCode::WrongNode => StatusCode::FORBIDDEN,
            RefusalCode::TooLarge | RefusalCode::TooMany => StatusCode::PAYLOAD_TOO_LARGE,
            RefusalCode::BadEncoding => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            RefusalCode::Truncated | RefusalCode::BadReport | RefusalCode::BadValue | RefusalCode::BadProtocol => {
                StatusCode::BAD_REQUEST
            }
            RefusalCode::Busy => StatusCode::SERVICE_UNAVAILABLE,
            RefusalCode::Failed => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn error_response(&self) -> HttpResponse {
        let mut response = HttpResponse::build(self.status_code());
        match self.0.code {
            RefusalCode::BadToken => drop(response.insert_header((header::WWW_AUTHENTICATE, "Bearer"))),
            RefusalCode::Busy => drop(response.insert_header((header::RETRY_AFTER, RETRY_AFTER))),
            _ => {}
        }
        response.json(&self.0)
    }
}

pub(super) async fn take(
    collector: Result<Collector, Refused>,
    request: HttpRequest,
    body: Payload,
    queue: Data<IngestQueue>,
    metrics: Data<Metrics>,
) -> Result<HttpResponse, Refused> {
    let answer = match collector {
        Ok(collector) => stored(&collector, &request, body, &queue).await,
        Err(refused) => Err(refused),
    };
    match &answer {
        Ok(answer) => metrics.taken(answer),
        Err(refused) => metrics.refused(&refused.code()),
    }
    Ok(HttpResponse::Ok().json(answer?))
}

/// The answer to a report of a collector whose token is good.
async fn stored(
    collector: &Collector,
    request: &HttpRequest,
    body: Payload,
    queue: &IngestQueue,
) -> Result<Answer, Refused> {
    let encoding =
        request.headers().get(header::CONTENT_ENCODING).map(|value| value.to_str().unwrap_or("?").to_owned());
    let encoding = encoding.unwrap_or_default();
    let body = body
        .to_bytes_limited(PACKED_BYTES_MAX)
        .await
        .map_err(|_| Refused::of(RefusalCode::TooLarge, &format!("the body has more than {PACKED_BYTES_MAX} bytes")))?;
    let body = body.map_err(|error| {
        tracing::info!(%error, "a body ended early");
        Refused::of(RefusalCode::Truncated, "the body ended early")
    })?;
    let report = if body.len() > UNPACKED_HERE_BYTES_MAX || !encoding.is_empty() {
        let _turn = UNPACKING.acquire().await.map_err(|_| Refused::failed())?;
        block(move || read_report(&body, &encoding)).await.map_err(|_| Refused::failed())?
    } else {
        read_report(&body, &encoding)
    }?;
    may_send(collector, &report)?;
    let report = NodeReport { received_at: Some(clock::now()), ..report };
    queue.store(report).await
}

/// A token is good for its cluster, and for its node where it names one.
fn may_send(collector: &Collector, report: &NodeReport) -> Result<(), Refused> {
    let token = &collector.token;
    let wrong = if token.cluster != report.cluster.as_str() {
        Some((RefusalCode::WrongCluster, "the token is for another cluster"))
    } else if !token.node.is_empty() && token.node != report.node {
        Some((RefusalCode::WrongNode, "the token is for another node"))
    } else {
        None
    };
    match wrong {
        None => Ok(()),
        Some((code, message)) => {
            tracing::warn!(token = %token.id, cluster = %report.cluster, node = %report.node, message);
            Err(Refused::of(code, message))
        }
    }
}
