//! The identity of a process of the cluster, and mutual TLS with others by role.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use rustls::client::Resumption;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::certificate;
use crate::error::TlsError;
use crate::files::{self, Certificates};
use crate::options::{TlsOptions, provider};
use crate::reload::Certified;
use crate::role::Role;
use crate::verifier::RoleVerifier;

/// Bundle of the authorities that are trusted.
pub(crate) const AUTHORITIES_FILE: &str = "ca.pem";
/// Certificate of the process, and those between it and the authority.
pub(crate) const CERTIFICATE_FILE: &str = "cert.pem";
/// Private key of the process.
pub(crate) const KEY_FILE: &str = "key.pem";

/// Files of an identity, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityFiles {
    /// Authorities that are trusted.
    pub authorities: PathBuf,
    /// Certificate of the process, followed by those between it and its authority.
    pub certificate: PathBuf,
    /// Private key of the process.
    pub key: PathBuf,
}

impl IdentityFiles {
    /// The files `ca.pem`, `cert.pem` and `key.pem` of a directory.
    #[must_use]
    pub fn of(dir: &Path) -> Self {
        Self {
            authorities: dir.join(AUTHORITIES_FILE),
            certificate: dir.join(CERTIFICATE_FILE),
            key: dir.join(KEY_FILE),
        }
    }
}

/// Authorities, certificate and private key of a process. Two are equal when their files have the same contents.
#[derive(Debug, PartialEq, Eq)]
pub struct Identity {
    authorities: Certificates,
    chain: Certificates,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    /// Reads `ca.pem`, `cert.pem` and `key.pem` of a directory. An expired certificate is no error here: peers refuse
    /// it.
    ///
    /// # Errors
    /// If a file is missing or malformed, the key does not match the certificate, or other users can read the key.
    pub fn load(dir: &Path) -> Result<Self, TlsError> {
        Self::read(&IdentityFiles::of(dir))
    }

    /// Reads files wherever they are.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn read(files: &IdentityFiles) -> Result<Self, TlsError> {
        let authorities = files::authorities(&files.authorities)?;
        let (chain, key) = files::pair(&files.certificate, &files.key)?;
        Ok(Self { authorities, chain, key })
    }

    /// Certificate of the process.
    #[must_use]
    pub fn certificate(&self) -> Option<&CertificateDer<'static>> {
        self.chain.first()
    }

    /// Role of the process, if its certificate has exactly one.
    #[must_use]
    pub fn role(&self) -> Option<Role> {
        self.certificate().and_then(Role::of)
    }

    /// End of the certificate's validity.
    #[must_use]
    pub fn expires(&self) -> Option<DateTime<Utc>> {
        Some(certificate::fields(self.certificate()?)?.expires)
    }

    /// Configuration of a server: clients need a certificate of the cluster and one of the allowed roles.
    ///
    /// Sessions are never resumed: each connection verifies the certificate anew.
    ///
    /// # Errors
    /// If rustls refuses the certificates.
    pub fn server_config(
        &self,
        allowed: &[Role],
        options: &TlsOptions,
    ) -> Result<Arc<ServerConfig>, TlsError> {
        let roots = Arc::new(files::roots(&self.authorities)?);
        let chain = WebPkiClientVerifier::builder_with_provider(roots, provider())
            .build()
            .map_err(|error| rustls::Error::General(error.to_string()))?;
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(options.versions())?
            .with_client_cert_verifier(Arc::new(RoleVerifier::new(chain, allowed)))
            .with_single_cert(self.chain.clone(), self.key.clone_key())?;
        config.alpn_protocols.clone_from(&options.alpn);
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }

    /// Configuration of a client of servers with one role.
    ///
    /// # Errors
    /// If rustls refuses the certificates.
    pub fn client_config(&self, peer: Role, options: &TlsOptions) -> Result<ClientTls, TlsError> {
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(options.versions())?
            .with_root_certificates(files::roots(&self.authorities)?)
            .with_client_auth_cert(self.chain.clone(), self.key.clone_key())?;
        config.alpn_protocols.clone_from(&options.alpn);
        config.resumption = Resumption::disabled();
        Ok(ClientTls { config: Arc::new(config), server_name: peer.server_name() })
    }
}

impl Certified for Identity {
    fn certificate(&self) -> Option<&CertificateDer<'static>> {
        self.chain.first()
    }
}

/// Configuration of a client, with the name that the server has to prove.
#[derive(Clone, Debug)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
    server_name: ServerName<'static>,
}

impl ClientTls {
    /// Configuration without the name. It is safe only together with [`Self::server_name`].
    #[must_use]
    pub fn config(&self) -> &Arc<ClientConfig> {
        &self.config
    }

    /// Name of the peer's role.
    #[must_use]
    pub fn server_name(&self) -> &ServerName<'static> {
        &self.server_name
    }

    /// Makes a connection a TLS connection.
    ///
    /// With TLS 1.3 this ends before the server has verified the client: a refusal is the error of the first read.
    ///
    /// # Errors
    /// If the connection breaks, or the server does not prove its role.
    pub async fn connect<S>(&self, stream: S) -> std::io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let connector = TlsConnector::from(Arc::clone(&self.config));
        connector.connect(self.server_name.clone(), stream).await
    }
}
