//! Options of a TLS configuration, and the provider of cryptography.

use std::sync::Arc;

use rustls::SupportedProtocolVersion;
use rustls::crypto::CryptoProvider;

/// Versions without the option `tls12`.
static ONLY_TLS13: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];

/// Options of a TLS configuration. The default is TLS 1.3 without ALPN.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// Accept TLS 1.2 besides TLS 1.3.
    pub tls12: bool,
    /// Protocols of ALPN by preference, such as `h2`. A peer that offers ALPN and none of them is refused.
    pub alpn: Vec<Vec<u8>>,
}

impl TlsOptions {
    pub(crate) fn versions(&self) -> &'static [&'static SupportedProtocolVersion] {
        if self.tls12 { rustls::ALL_VERSIONS } else { ONLY_TLS13 }
    }
}

/// The provider of cryptography of every configuration.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
