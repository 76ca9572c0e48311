//! How a process of a cluster serves its peers: one gRPC port with its service, raft's links and the
//! health check.

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

/// Where a process listens to its peers.
#[derive(clap::Args)]
// Flattened into the options of a role: their groups would have one name.
#[group(skip)]
pub(crate) struct Options {
    /// Address for the other processes of the cluster. They are not asked who they are: it belongs
    /// into a network of its own.
    #[arg(long, env = "PARTITA_LISTEN")]
    pub(crate) listen: SocketAddr,
    /// Listen beyond loopback although nobody is asked who they are.
    #[arg(long, env = "PARTITA_INSECURE")]
    pub(crate) insecure: bool,
}

impl Options {
    /// Takes the address.
    ///
    /// # Errors
    /// When it is taken, or can be reached from other machines without `--insecure`.
    pub(crate) async fn listen(&self) -> anyhow::Result<TcpListener> {
        if !self.listen.ip().is_loopback() && !self.insecure {
            bail!(
                "{} can be reached from other machines, and whoever reaches it can give this process orders: nobody is \
                 asked who they are; say --insecure if only processes of the cluster are in that network",
                self.listen
            );
        }
        doors::listen(self.listen, "--listen").await
    }
}

/// Serves routes, and the health check, in a task.
pub(crate) fn start(
    listener: TcpListener,
    routes: Routes,
    health: Arc<dyn Health>,
    stop: CancellationToken,
) -> JoinHandle<()> {
    let routes = routes.add_service(health::server(health));
    tokio::spawn(async move {
        if let Err(error) = serve(listener, routes, stop).await {
            tracing::error!(%error, "peers are not served any more");
        }
    })
}

/// Says on standard output that the process serves.
#[expect(
    clippy::print_stdout,
    reason = "tells the person, or the test, who started it where it is"
)]
pub(crate) fn announce(what: &str) {
    println!("partita {what}");
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
