//! The way to the service: one report, one answer.

use std::sync::Arc;
use std::time::Duration;

use gpuledger_wire::{Answer, Refusal, Report};
use ureq::tls::{RootCerts, TlsConfig};

use crate::config::Config;

/// The way to the service.
#[derive(Debug)]
pub struct Uplink {
    client: ureq::Agent,
    url: String,
    token_file: std::path::PathBuf,
}

/// How long a report may take, from first byte to last.
const TIMEOUT: Duration = Duration::from_secs(30);

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

    /// Sends a report.
    ///
    /// # Errors
    /// A text that says why it was not taken. It is to be sent again.
    pub fn send(&self, report: &Report) -> Result<Answer, String> {
        let token = std::fs::read_to_string(&self.token_file)
            .map_err(|error| format!("{}: {error}", self.token_file.display()))?;
        let body = serde_json::to_vec(report).map_err(|error| error.to_string())?;
        let packed = zstd::encode_all(body.as_slice(), 3).map_err(|error| error.to_string())?;
        let sent = self
            .client
            .post(&self.url)
            .header("Authorization", format!("Bearer {}", token.trim()))
            .header("Content-Type", "application/json")
            .header("Content-Encoding", "zstd")
            .send(packed.as_slice());
        let mut response = sent.map_err(|error| format!("{}: {error}", self.url))?;
        let status = response.status().as_u16();
        let text = response.body_mut().read_to_string().map_err(|error| format!("{}: {error}", self.url))?;
        if status == 200 {
            return serde_json::from_str(&text)
                .map_err(|error| format!("{}: the answer cannot be read: {error}", self.url));
        }
        let why = serde_json::from_str::<Refusal>(&text)
            .map_or_else(|_| String::new(), |refusal| format!(": {}", refusal.message));
        Err(format!("{}: the service answers {status}{why}", self.url))
    }
}
