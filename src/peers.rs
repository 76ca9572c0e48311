//! How a process of a cluster serves its peers: one gRPC port with its service, raft's links and the
//! health check.

use std::net::SocketAddr;

use partita_rpc::serve;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use crate::doors;

/// Where a process listens to its peers.
#[derive(clap::Args)]
// Flattened into the options of a role: their groups would have one name.
#[group(skip)]
pub(crate) struct Options {
    /// Address for the other processes of the cluster. They are not asked who they are: it belongs
    /// into a network of its own.
    #[arg(long, env = "PARTITA_LISTEN")]
    pub(crate) listen: SocketAddr,
}

impl Options {
    /// Takes the address.
    ///
    /// # Errors
    /// When it is taken.
    pub(crate) async fn listen(&self) -> anyhow::Result<TcpListener> {
        doors::listen(self.listen, "--listen").await
    }
}

/// Serves routes, and the health check, in a task.
pub(crate) async fn start(
    listener: TcpListener,
    routes: Routes,
    stop: CancellationToken,
) -> JoinHandle<()> {
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_service_status("", tonic_health::ServingStatus::Serving).await;
    let routes = routes.add_service(health);
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
