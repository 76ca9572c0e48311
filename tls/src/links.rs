//! Links between the processes of a cluster: mutual TLS by a certificate that follows its files, or plain TCP.
//!
//! ```text
//!   Links::connect(stream, role of the server) ══ TLS 1.3, h2 ══ Links::accept(stream) -> role of the client
//! ```
//!
//! Invariants:
//! - with a certificate there is no way to a plain link: a handshake that fails is an error;
//! - each handshake uses the newest files, and no session is resumed;
//! - a handshake ends within [`HANDSHAKE_WAIT`].

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::error::TlsError;
use crate::identity::{ClientTls, Identity, IdentityFiles};
use crate::options::TlsOptions;
use crate::reload::{RELOAD_INTERVAL, Reloading};
use crate::role::Role;

/// Maximum time of a handshake, on machines that do other things besides.
pub const HANDSHAKE_WAIT: Duration = Duration::from_secs(5);
/// Roles that are servers.
const SERVERS: [Role; 3] = [Role::Meta, Role::Datanode, Role::Frontend];

/// Connection of a link, with TLS or without.
pub trait LinkIo: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> LinkIo for T {}

/// Connection of a link; its type does not depend on whether it has TLS.
pub type LinkStream = Box<dyn LinkIo>;

/// Certificate of a process for its links, or none. Clones share it.
#[derive(Clone, Default)]
pub struct Links {
    secured: Option<Arc<Secured>>,
}

/// Certificate that is in use.
struct Secured {
    role: Role,
    configurations: Arc<Reloading<Arc<Configurations>>>,
}

/// Configurations of one certificate.
struct Configurations {
    server: Arc<ServerConfig>,
    clients: Vec<(Role, ClientTls)>,
}

impl Configurations {
    fn new(identity: &Identity) -> Result<Self, TlsError> {
        let options = TlsOptions { alpn: vec![b"h2".to_vec()], ..TlsOptions::default() };
        let mut clients = Vec::new();
        for server in SERVERS {
            clients.push((server, identity.client_config(server, &options)?));
        }
        // The role decides call by call, not in the handshake.
        Ok(Self { server: identity.server_config(&Role::ALL, &options)?, clients })
    }
}

impl Links {
    /// Links without TLS: everybody who reaches the port is served.
    #[must_use]
    pub fn plain() -> Self {
        Self::default()
    }

    /// Links by the certificate in these files. Without an expected role, any role of the cluster will do.
    ///
    /// # Errors
    /// If the files cannot be used, or the certificate is for another role.
    pub fn load(files: &IdentityFiles, expected: Option<Role>) -> Result<Self, TlsError> {
        let certificate = files.certificate.clone();
        let first = Identity::read(files)?;
        let role = role_of(&first, &certificate, expected)?;
        let files = files.clone();
        let configurations = Reloading::new(
            move || Identity::read(&files),
            move |identity: &Identity| -> Result<_, TlsError> {
                role_of(identity, &certificate, Some(role))?;
                Configurations::new(identity).map(Arc::new)
            },
        )?;
        let secured = Secured { role, configurations: Arc::new(configurations) };
        Ok(Self { secured: Some(Arc::new(secured)) })
    }

    /// Role of this process; none without a certificate.
    #[must_use]
    pub fn role(&self) -> Option<Role> {
        self.secured.as_ref().map(|secured| secured.role)
    }

    /// Looks at the files until `stop`; returns at once without a certificate.
    pub async fn follow(self, stop: CancellationToken) {
        let Some(secured) = self.secured else { return };
        let mut ticks = interval(RELOAD_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Arc::clone(&secured.configurations).follow(ticks, stop).await;
    }

    /// Looks at the files now, and returns whether they have changed.
    ///
    /// # Errors
    /// If the files cannot be used; the previous certificate stays in use.
    pub fn reload(&self) -> Result<bool, TlsError> {
        self.secured.as_ref().map_or(Ok(false), |secured| secured.configurations.reload())
    }

    /// Client's side of a new link to a server with a role.
    ///
    /// A server that refuses this process is seen at the first read: TLS 1.3 ends the client's handshake before.
    ///
    /// # Errors
    /// If the connection breaks, or the server does not prove the role.
    pub async fn connect<S: LinkIo + 'static>(
        &self,
        stream: S,
        server: Role,
    ) -> io::Result<LinkStream> {
        let Some(secured) = &self.secured else { return Ok(Box::new(stream)) };
        let configurations = secured.configurations.current();
        let mut clients = configurations.clients.iter();
        let (_, client) = clients.find(|(role, _)| *role == server).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("role {server} is never a server"))
        })?;
        Ok(Box::new(in_time(client.connect(stream)).await?))
    }

    /// Server's side of a new link, and the client's role; no role without a certificate of this process.
    ///
    /// # Errors
    /// If the connection breaks, or the client does not prove a role.
    pub async fn accept<S: LinkIo + 'static>(
        &self,
        stream: S,
    ) -> io::Result<(LinkStream, Option<Role>)> {
        let Some(secured) = &self.secured else {
            let plain: LinkStream = Box::new(stream);
            return Ok((plain, None));
        };
        let server = Arc::clone(&secured.configurations.current().server);
        let stream = in_time(TlsAcceptor::from(server).accept(stream)).await?;
        let role = Role::of_peer(stream.get_ref().1).ok_or(io::ErrorKind::PermissionDenied)?;
        let secured: LinkStream = Box::new(stream);
        Ok((secured, Some(role)))
    }
}

impl std::fmt::Debug for Links {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Links").field("role", &self.role()).finish()
    }
}

/// Role of an identity, which must be the expected one, if any is.
fn role_of(
    identity: &Identity,
    certificate: &Path,
    expected: Option<Role>,
) -> Result<Role, TlsError> {
    match identity.role() {
        Some(role) if expected.is_none_or(|expected| expected == role) => Ok(role),
        role => {
            Err(TlsError::WrongRole { certificate: certificate.to_owned(), found: role, expected })
        }
    }
}

async fn in_time<T>(handshake: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let silent = |_| io::Error::new(io::ErrorKind::TimedOut, "the TLS handshake took too long");
    timeout(HANDSHAKE_WAIT, handshake).await.map_err(silent)?
}
