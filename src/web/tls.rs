//! Encryption of reports on their way.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::error::AppError;

/// Where certificate and key are, as PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The certificate of this service, then those that lead to one that collectors trust.
    pub certificates: PathBuf,
    /// Its key: PKCS #8, PKCS #1 or SEC 1.
    pub key: PathBuf,
}

/// What rustls needs: TLS 1.2 and 1.3 with its default suites; collectors are known by token, not by certificate.
///
/// # Errors
/// [`AppError::File`] with the file that cannot be read, or that does not fit the other.
pub fn server_config(files: &TlsFiles) -> Result<ServerConfig, AppError> {
    let wrong = |path: &Path, error: String| AppError::file(path, error);
    let certificates: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(&files.certificates)
        .and_then(Iterator::collect)
        .map_err(|error| wrong(&files.certificates, format!("it holds no certificate as PEM: {error}")))?;
    if certificates.is_empty() {
        return Err(wrong(&files.certificates, "it holds no certificate as PEM".into()));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|error| wrong(&files.key, format!("it holds no key as PEM: {error}")))?;
    ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|config| config.with_no_client_auth().with_single_cert(certificates, key))
        .map_err(|error| wrong(&files.key, format!("it does not fit the certificate: {error}")))
}
