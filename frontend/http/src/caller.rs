//! The client of a request: the peer of its connection, and the identity that the middleware authenticated.

use std::net::{IpAddr, Ipv4Addr};

use partita_proto::access::Identity;

/// Peer of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// Address, by which failed attempts to sign in are limited.
    pub(crate) address: IpAddr,
    /// True if the connection is encrypted.
    pub(crate) tls: bool,
}

impl Default for Peer {
    /// A peer on this machine, without TLS.
    fn default() -> Self {
        Self { address: IpAddr::V4(Ipv4Addr::LOCALHOST), tls: false }
    }
}

/// Authenticated client of a request. Only [`crate::sign_in`] makes one; a handler that needs one and is not behind the
/// middleware fails.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) identity: Identity,
    /// CSRF token of a web session; `None` for a client without a cookie.
    pub(crate) csrf: Option<String>,
}
