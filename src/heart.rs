//! A node's heartbeat: once a second it reports its liveness and its replicas to meta.
//!
//! A heartbeat that fails is not sent again, since the next one is newer. A node that was removed from the cluster,
//! or whose data directory another process runs a copy of, gets an error and sends no more heartbeats.

use std::sync::Arc;
use std::time::Duration;

use partita_datanode::Datanode;
use partita_datanode::generation::GenerationKeeper;
use partita_proto::error::Error;
use partita_proto::generation::Renewal;
use partita_proto::id::NodeId;
use partita_proto::member::{Heartbeat, Registration};
use partita_proto::service::{ClusterService, DataService};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

/// Interval between heartbeats.
const BEAT_INTERVAL: Duration = Duration::from_secs(1);
/// Timeout of a heartbeat.
const BEAT_WAIT: Duration = Duration::from_secs(3);
/// Timeout for recording a generation: it delays a heartbeat or a stop by no more than this.
const RENEW_WAIT: Duration = Duration::from_secs(1);

/// Sends heartbeats until `stop`, and has meta record new generations of the data directory from time to time.
///
/// # Errors
/// Meta's final refusal of this node.
pub(crate) async fn beat(
    number: NodeId,
    me: Registration,
    meta: Arc<dyn ClusterService>,
    node: Arc<Datanode>,
    mut generations: Option<GenerationKeeper>,
    stop: CancellationToken,
) -> Result<(), Error> {
    let mut tick = interval(BEAT_INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // At the stop, a last generation is recorded; then the loop ends.
    let mut reachable = true;
    let renew = |renewal: Renewal| meta.renew(renewal);
    loop {
        tokio::select! {
            () = stop.cancelled() => {
                // No copy of the directory that was made while the process ran has this generation.
                if let Some(generations) = &mut generations
                    && let Err(error) = in_time(generations.renew(renew)).await
                {
                    info!(%error, "no generation of the data directory was recorded at the stop");
                }
                return Ok(());
            }
            _ = tick.tick() => {}
        }
        if let Some(generations) = &mut generations {
            match in_time(generations.renew_when_due(renew)).await {
                Err(error @ Error::InvalidInput(_)) => return Err(error),
                // The heartbeat is sent in spite of that; the next round tries again.
                Err(error) if reachable => {
                    warn!(%error, "no new generation of the data directory was recorded");
                }
                Ok(()) | Err(_) => {}
            }
        }
        let sending = async {
            let heartbeat = Heartbeat {
                node: number,
                identity: me.identity,
                address: me.address.clone(),
                replicas: node.status().await?,
                loads: node.loads(),
                labels: me.labels.clone(),
                cpu_ms: cpu_ms(),
                claim: generations.as_ref().map(GenerationKeeper::claim).unwrap_or_default(),
                follower_reads: node.follower_reads(),
                names_leader: true,
            };
            meta.heartbeat(heartbeat).await
        };
        let outcome = timeout(BEAT_WAIT, sending).await;
        let outcome =
            outcome.unwrap_or_else(|_| Err(Error::Timeout("meta did not answer".to_owned())));
        if let Err(Error::InvalidInput(_)) = &outcome {
            return outcome;
        }
        match (&outcome, reachable) {
            (Ok(()), false) => info!("heartbeats reach meta again"),
            // Logged each time: it does not recover by itself.
            (Err(Error::NotFound { kind: "node", .. }), _) => error!(
                node = %number,
                "meta does not know this node's data directory: it belongs to another cluster, or meta's \
                 own data was lost; nothing is removed here"
            ),
            (Err(error), true) => warn!(%error, "a heartbeat did not reach meta"),
            (Ok(()), true) | (Err(_), false) => {}
        }
        reachable = outcome.is_ok();
    }
}

/// Adds the timeout `RENEW_WAIT`.
async fn in_time(renewal: impl Future<Output = Result<(), Error>>) -> Result<(), Error> {
    let recorded = timeout(RENEW_WAIT, renewal).await;
    recorded.unwrap_or_else(|_| Err(Error::Timeout("meta did not answer".to_owned())))
}

/// CPU time of this process so far, in milliseconds.
fn cpu_ms() -> Option<u64> {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let (seconds, nanos) = (u64::try_from(used.tv_sec).ok()?, u64::try_from(used.tv_nsec).ok()?);
    Some(seconds * 1_000 + nanos / 1_000_000)
}
