//! Roles of a cluster's processes, and the names by which certificates prove them.
//!
//! A certificate proves a role by a DNS name below `partita.internal`, a domain that no public authority certifies.

use rustls::CommonState;
use rustls::pki_types::{CertificateDer, DnsName, ServerName};
use webpki::EndEntityCert;

/// Role of a process, or of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Member of the group that keeps the catalog.
    Meta,
    /// Node that stores rows.
    Datanode,
    /// Process that clients connect to.
    Frontend,
    /// Operator's tools. Never a server.
    Admin,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 4] = [Self::Meta, Self::Datanode, Self::Frontend, Self::Admin];

    /// Name in commands and files.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Meta => "meta",
            Self::Datanode => "datanode",
            Self::Frontend => "frontend",
            Self::Admin => "admin",
        }
    }

    /// DNS name in the certificates of the role.
    #[must_use]
    pub fn dns_name(self) -> &'static str {
        match self {
            Self::Meta => "meta.partita.internal",
            Self::Datanode => "datanode.partita.internal",
            Self::Frontend => "frontend.partita.internal",
            Self::Admin => "admin.partita.internal",
        }
    }

    /// Name that a client expects of a server with the role.
    #[must_use]
    pub fn server_name(self) -> ServerName<'static> {
        let name = DnsName::try_from_str(self.dns_name()).expect("a constant DNS name");
        ServerName::DnsName(name)
    }

    /// Role that a certificate proves, if it is exactly one: a wildcard, which would prove all of them, proves none.
    ///
    /// The certificate must have been verified before.
    #[must_use]
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let certificate = EndEntityCert::try_from(certificate).ok()?;
        let mut proved = Self::ALL.into_iter().filter(|role| {
            certificate.verify_is_valid_for_subject_name(&role.server_name()).is_ok()
        });
        let role = proved.next()?;
        proved.next().is_none().then_some(role)
    }

    /// Role of the peer of a connection whose handshake has ended.
    #[must_use]
    pub fn of_peer(connection: &CommonState) -> Option<Self> {
        connection.peer_certificates()?.first().and_then(Self::of)
    }
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Error of a text that names no role.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unrecognized role \"{0}\"; it must be meta, datanode, frontend or admin")]
pub struct UnknownRole(String);

impl std::str::FromStr for Role {
    type Err = UnknownRole;

    fn from_str(text: &str) -> Result<Self, UnknownRole> {
        let role = Self::ALL.into_iter().find(|role| role.as_str() == text);
        role.ok_or_else(|| UnknownRole(text.to_owned()))
    }
}
