//! Serving peers in a cluster: one gRPC port with the process's service, raft's links and the health check.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::bail;
use partita_proto::health::Health;
use partita_rpc::serve;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use crate::doors;
use crate::health;

/// Address for peers.
#[derive(clap::Args)]
// Flattened into the options of several roles: the groups would have the same name.
#[group(skip)]
pub(crate) struct Options {
    /// Address for the other processes of the cluster. There is no authentication: use a separate network.
    #[arg(long, env = "PARTITA_LISTEN")]
    pub(crate) listen: SocketAddr,
    /// Listen beyond loopback although there is no authentication.
    #[arg(long, env = "PARTITA_INSECURE")]
    pub(crate) insecure: bool,
}

impl Options {
    /// Binds the address and listens.
    ///
    /// # Errors
    /// If it is in use, or reachable from other machines without `--insecure`.
    pub(crate) async fn listen(&self) -> anyhow::Result<TcpListener> {
        if !self.listen.ip().is_loopback() && !self.insecure {
            bail!(
                "{} is reachable from other machines, and peers are not authenticated: any machine in that network \
                 could control this process; use --insecure if only processes of the cluster are in that network",
                self.listen
            );
        }
        doors::listen(self.listen, "--listen").await
    }
}

/// Serves routes and the health check in a task, until `stop`.
pub(crate) fn start(
    listener: TcpListener,
    routes: Routes,
    health: Arc<dyn Health>,
    stop: CancellationToken,
) -> JoinHandle<()> {
    let routes = routes.add_service(health::server(health));
    tokio::spawn(async move {
        if let Err(error) = serve(listener, routes, stop).await {
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
    use super::*;

    #[tokio::test]
    async fn a_port_for_peers_beyond_loopback_needs_to_be_said() {
        let options =
            |listen: &str, insecure| Options { listen: listen.parse().unwrap(), insecure };
        options("127.0.0.1:0", false).listen().await.unwrap();
        for listen in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
            let refused = options(listen, false).listen().await.unwrap_err().to_string();
            assert!(refused.contains("--insecure"), "{refused}");
        }
        options("0.0.0.0:0", true).listen().await.unwrap();
    }
}
