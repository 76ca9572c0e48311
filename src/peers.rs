//! Serving peers in a cluster: one gRPC port with the process's service, raft's links and the health check.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::bail;
use partita_proto::health::Health;
use partita_rpc::serve;
use partita_tls::Links;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use crate::certificates;
use crate::doors;
use crate::health;

/// Address for peers.
#[derive(clap::Args)]
// Flattened into the options of several roles: the groups would have the same name.
#[group(skip)]
pub(crate) struct Options {
    /// Address for the other processes of the cluster.
    #[arg(long, env = "PARTITA_LISTEN")]
    pub(crate) listen: SocketAddr,
    /// Listen beyond loopback without a certificate: whoever reaches the port controls this process.
    #[arg(long, env = "PARTITA_INSECURE")]
    pub(crate) insecure: bool,
    #[command(flatten)]
    pub(crate) certificates: certificates::Options,
}

impl Options {
    /// Binds the address and listens.
    ///
    /// # Errors
    /// If it is in use, or reachable from other machines without a certificate and without `--insecure`.
    pub(crate) async fn listen(&self, links: &Links) -> anyhow::Result<TcpListener> {
        if !self.listen.ip().is_loopback() && links.role().is_none() && !self.insecure {
            bail!(
                "{} is reachable from other machines, and without a certificate peers are not authenticated: any \
                 machine in that network could control this process; use --certs with a directory of \"partita certs \
                 issue\", or --insecure if only processes of the cluster are in that network",
                self.listen
            );
        }
        doors::listen(self.listen, "--listen").await
    }
}

/// Serves routes and the health check in a task, until `stop`. The certificate follows its files as long.
pub(crate) fn start(
    listener: TcpListener,
    links: Links,
    routes: Routes,
    health: Arc<dyn Health>,
    stop: CancellationToken,
) -> JoinHandle<()> {
    let routes = routes.add_service(health::server(health));
    certificates::follow(&links, stop.clone());
    tokio::spawn(async move {
        if let Err(error) = serve(listener, links, routes, stop).await {
            tracing::error!(%error, "stopped serving peers");
        }
    })
}

/// Prints on standard output that the process is ready.
#[expect(
    clippy::print_stdout,
    reason = "tells the person, or the test, who started it where it is"
)]
pub(crate) fn announce(text: &str) {
    println!("partita {text}");
}

#[cfg(test)]
mod tests {
    use partita_tls::Role;

    use super::*;
    use crate::certificates::tests::issued;

    #[tokio::test]
    async fn a_port_for_peers_beyond_loopback_needs_a_certificate_or_insecure() {
        let options = |listen: &str, insecure| Options {
            listen: listen.parse().unwrap(),
            insecure,
            certificates: certificates::Options::default(),
        };
        let plain = Links::plain();
        options("127.0.0.1:0", false).listen(&plain).await.unwrap();
        for listen in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
            let refused = options(listen, false).listen(&plain).await.unwrap_err().to_string();
            assert!(refused.contains("--certs") && refused.contains("--insecure"), "{refused}");
        }
        options("0.0.0.0:0", true).listen(&plain).await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let links = issued(dir.path(), Role::Meta).links(Some(Role::Meta)).unwrap();
        options("0.0.0.0:0", false).listen(&links).await.unwrap();
    }
}
