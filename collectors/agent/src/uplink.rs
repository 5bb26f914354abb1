//! The way to the service: one report, one answer or the reason for none.

use std::sync::Arc;
use std::time::Duration;

use gpuledger_wire::{Answer, Refusal, RefusalCode, Report};
use ureq::tls::{RootCerts, TlsConfig};

use crate::config::Config;
use crate::delivery::Failure;

/// The way to the service.
#[derive(Debug)]
pub struct Uplink {
    client: ureq::Agent,
    url: String,
    token_file: std::path::PathBuf,
}

/// How long a report may take, from first byte to last.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The longest that a service may ask for: an hour. Longer is taken for a mistake.
const RETRY_AFTER_SECONDS_MAX: u64 = 3_600;

impl Uplink {
    /// The way that the settings name; `None` where they name none.
    ///
    /// # Errors
    /// A text that says which file of certificates cannot be read, and why.
    pub fn new(config: &Config) -> Result<Option<Uplink>, String> {
        let (Some(service), Some(token_file)) = (&config.service, &config.token_file) else { return Ok(None) };
        let mut tls =
            TlsConfig::builder().unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()));
        if let Some(path) = &config.ca_file {
            let pem = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
            let mut certificates = Vec::new();
            for item in ureq::tls::parse_pem(&pem) {
                match item {
                    Ok(ureq::tls::PemItem::Certificate(certificate)) => certificates.push(certificate),
                    Ok(_) => {}
                    Err(error) => return Err(format!("{}: {error}", path.display())),
                }
            }
            if certificates.is_empty() {
                return Err(format!("{}: it holds no certificate", path.display()));
            }
            tls = tls.root_certs(RootCerts::Specific(Arc::new(certificates)));
        } else if service.starts_with("https://") {
            return Err(
                "ca_file is missing: who signed the service's certificate, such as /etc/ssl/certs/ca-certificates.crt"
                    .into(),
            );
        }
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .http_status_as_error(false)
            .tls_config(tls.build());
        let url = format!("{}/api/v1/reports", service.trim_end_matches('/'));
        Ok(Some(Uplink { client: config.build().into(), url, token_file: token_file.clone() }))
    }

    /// Sends a report. The token is read anew each time.
    ///
    /// # Errors
    /// Why it was not taken.
    pub fn send(&self, report: &Report) -> Result<Answer, Failure> {
        let later = |why: String| Failure::Later { after: None, why };
        let named = |error: &dyn std::fmt::Display| later(format!("{}: {error}", self.url));
        let token = std::fs::read_to_string(&self.token_file)
            .map_err(|error| later(format!("{}: {error}", self.token_file.display())))?;
        let body = serde_json::to_vec(report).map_err(|error| Failure::Never(error.to_string()))?;
        let packed = zstd::encode_all(body.as_slice(), 3).map_err(|error| named(&error))?;
        let sent = self
            .client
            .post(&self.url)
            .header("Authorization", format!("Bearer {}", token.trim()))
            .header("Content-Type", "application/json")
            .header("Content-Encoding", "zstd")
            .send(packed.as_slice());
        let mut response = sent.map_err(|error| named(&error))?;
        let status = response.status().as_u16();
        let header = response.headers().get("Retry-After").and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let after = header.map(|seconds: u64| Duration::from_secs(seconds.min(RETRY_AFTER_SECONDS_MAX)));
        let text = response.body_mut().read_to_string().map_err(|error| named(&error))?;
        if status == 200 {
            return serde_json::from_str(&text).map_err(|error| named(&format!("the answer cannot be read: {error}")));
        }
        let refusal = serde_json::from_str::<Refusal>(&text).ok();
        let message = refusal.as_ref().map(|refusal| format!(": {}", refusal.message)).unwrap_or_default();
        let why = format!("{}: the service answers {status}{message}", self.url);
        Err(failure(status, refusal.map(|refusal| refusal.code), after, why))
    }
}

/// What a refusal means for the report.
fn failure(status: u16, code: Option<RefusalCode>, after: Option<Duration>, why: String) -> Failure {
    match (code, status) {
        (Some(RefusalCode::TooLarge | RefusalCode::TooMany | RefusalCode::BadReport | RefusalCode::BadValue), _)
        | (None, 413) => Failure::Never(why),
        // Of another name of the node, or harmed on its way.
        (
            Some(
                RefusalCode::WrongCluster | RefusalCode::WrongNode | RefusalCode::BadEncoding | RefusalCode::Truncated,
            ),
            _,
        ) => Failure::Held(why),
        // A token that is to be changed, a service that is too old or too busy, or something between that is no service.
        _ => Failure::Later { after, why },
    }
}
