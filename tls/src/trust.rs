//! TLS of a tool that calls a door: the server proves its host name by an authority in a file.

use std::path::Path;
use std::sync::Arc;

use rustls::ClientConfig;

use crate::error::TlsError;
use crate::files;
use crate::options::{TlsOptions, provider};

/// Configuration of a client without a certificate. Servers are verified in full: authority, validity and host name.
/// TLS 1.2 is always accepted.
///
/// # Errors
/// If the file is missing or malformed.
pub fn door_client(
    authorities: &Path,
    options: &TlsOptions,
) -> Result<Arc<ClientConfig>, TlsError> {
    let roots = files::roots(&files::authorities(authorities)?)?;
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(rustls::ALL_VERSIONS)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols.clone_from(&options.alpn);
    Ok(Arc::new(config))
}
