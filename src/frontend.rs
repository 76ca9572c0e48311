//! `partita frontend`: the doors of a cluster. It stores nothing; its state comes from meta.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use partita_frontend::Frontend;
use partita_proto::health::Well;
use partita_proto::id::NodeId;
use partita_proto::service::{DataNodes, MetaService};
use partita_rpc::{Directory, MetaClient};
use partita_tls::Role;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::certificates;
use crate::doors;
use crate::password;

/// Interval between warnings while the frontend waits for meta.
const COMPLAIN_AFTER: Duration = Duration::from_secs(10);

/// Options of `partita frontend`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Addresses of meta's members.
    #[arg(long, env = "PARTITA_META", value_delimiter = ',', required = true)]
    meta: Vec<String>,
    #[command(flatten)]
    doors: doors::Options,
    /// Directory for temporary files of queries that exceed their memory.
    #[arg(long, env = "PARTITA_SPILL_DIR")]
    spill_dir: Option<PathBuf>,
}

/// Runs until a signal stops it.
///
/// # Errors
/// If it cannot start.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let links = options.doors.certificates.links(Some(Role::Frontend))?;
    let (doors, password) = options.doors.take()?;
    let outlet = options.doors.outlet.open()?;
    let stop = CancellationToken::new();
    certificates::follow(&links, stop.clone());
    let addresses = options.meta.join(", ");
    let meta = MetaClient::connect(&links, options.meta, stop.clone());
    tokio::select! {
        () = meta.ready() => {}
        () = complain(&addresses) => {}
        signal = doors::signalled() => return signal,
    }
    // Before any client is served.
    let prepared = async {
        password::until_superuser(&*meta).await?;
        password.set(&*meta).await
    };
    tokio::select! {
        prepared = prepared => prepared?,
        signal = doors::signalled() => return signal,
    }
    let is_own = options.spill_dir.is_none();
    let spill = options.spill_dir.unwrap_or_else(|| {
        std::env::temp_dir().join(format!("partita-spill-{}", std::process::id()))
    });
    let nodes: Arc<dyn DataNodes> = Arc::new(Directory::new(links, meta.members()));
    let service: Arc<dyn MetaService> = meta;
    let frontend =
        Frontend::new(options.doors.frontend(NodeId::default(), spill.clone()), service, nodes)?;
    let doors = doors.open(&frontend, Arc::new(Well))?;
    let tasks = tokio::spawn(Arc::clone(&frontend).run_tasks(outlet, stop.clone()));
    let copies = tokio::spawn(Arc::clone(&frontend).run_copies(stop.clone()));
    let teller = tokio::spawn(Arc::clone(&frontend).tell_causes(stop.clone()));
    let greeter = tokio::spawn(Arc::clone(&frontend).meet_nodes(stop.clone()));
    doors::signalled().await?;
    info!("stopping: finishing requests");
    let closed = doors.close().await;
    stop.cancel();
    for task in [tasks, teller, greeter] {
        if let Err(error) = task.await {
            warn!(%error, "a background task failed");
        }
    }
    if let Err(error) = copies.await {
        warn!(%error, "the work for materialized copies failed");
    }
    frontend.remove_spilled();
    // A directory that was given stays; the name of this one has the number of the process.
    if is_own && let Err(error) = std::fs::remove_dir_all(&spill) {
        warn!(%error, dir = %spill.display(), "cannot remove the spill directory");
    }
    info!("stopped");
    closed
}

/// Logs a warning at intervals, for ever, that meta has no leader.
async fn complain(addresses: &str) {
    loop {
        tokio::time::sleep(COMPLAIN_AFTER).await;
        warn!("waiting for meta, which has no leader at {addresses}; clients cannot connect yet");
    }
}
