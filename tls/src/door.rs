//! TLS of a door: the server proves its host name; clients may prove their name by a certificate.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};

use crate::certificate;
use crate::error::TlsError;
use crate::files::{self, Certificates};
use crate::identity::{CERTIFICATE_FILE, KEY_FILE};
use crate::options::{TlsOptions, provider};
use crate::reload::Certified;

/// Files of a door, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoorFiles {
    /// Certificate of the server, followed by those between it and its authority.
    pub certificate: PathBuf,
    /// Private key of the server.
    pub key: PathBuf,
    /// Authorities of client certificates; without it no client is asked for one.
    pub client_authorities: Option<PathBuf>,
}

impl DoorFiles {
    /// The files `cert.pem` and `key.pem` of a directory, without authorities of clients.
    #[must_use]
    pub fn of(dir: &Path) -> Self {
        Self {
            certificate: dir.join(CERTIFICATE_FILE),
            key: dir.join(KEY_FILE),
            client_authorities: None,
        }
    }
}

/// Certificate and private key of a door, and the authorities of its clients. Two are equal when their files have the
/// same contents.
#[derive(Debug, PartialEq, Eq)]
pub struct Door {
    chain: Certificates,
    key: PrivateKeyDer<'static>,
    client_authorities: Certificates,
}

impl Door {
    /// Reads the files of a door.
    ///
    /// # Errors
    /// If a file is missing or malformed, the key does not match the certificate, or other users can read the key.
    pub fn load(files: &DoorFiles) -> Result<Self, TlsError> {
        let authorities =
            files.client_authorities.as_deref().map(files::authorities).transpose()?;
        let (chain, key) = files::pair(&files.certificate, &files.key)?;
        Ok(Self { chain, key, client_authorities: authorities.unwrap_or_default() })
    }

    /// Certificate of the server. SCRAM binds a channel to its hash.
    #[must_use]
    pub fn certificate(&self) -> Option<&CertificateDer<'static>> {
        self.chain.first()
    }

    /// Configuration of the server. A client without a certificate is accepted, one with an invalid certificate is
    /// not.
    ///
    /// # Errors
    /// If rustls refuses the certificates.
    pub fn server_config(&self, options: &TlsOptions) -> Result<Arc<ServerConfig>, TlsError> {
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(options.versions())?;
        let (chain, key) = (self.chain.clone(), self.key.clone_key());
        let mut config = if self.client_authorities.is_empty() {
            builder.with_no_client_auth().with_single_cert(chain, key)?
        } else {
            let roots = Arc::new(files::roots(&self.client_authorities)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
                .allow_unauthenticated()
                .build()
                .map_err(|error| rustls::Error::General(error.to_string()))?;
            let mut config =
                builder.with_client_cert_verifier(verifier).with_single_cert(chain, key)?;
            // A resumed session would not verify the client's certificate again.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
            config
        };
        config.alpn_protocols.clone_from(&options.alpn);
        Ok(Arc::new(config))
    }
}

impl Certified for Door {
    fn certificate(&self) -> Option<&CertificateDer<'static>> {
        self.chain.first()
    }
}

/// First common name of a verified certificate's subject: the user that PostgreSQL's method `cert` logs in.
#[must_use]
pub fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    certificate::fields(certificate)?.common_name
}
