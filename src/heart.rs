//! A node's heartbeat: once a second it tells meta that it lives and how its replicas are.
//!
//! A beat that does not get through is not sent again: the next one says more. A node that was removed from the cluster,
//! or over a copy of whose data directory another process has started, is told so, and beats no more.

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

/// How often.
const BEAT_INTERVAL: Duration = Duration::from_secs(1);
/// How long meta may take to hear it.
const BEAT_WAIT: Duration = Duration::from_secs(3);
/// How long meta may take to record a generation: neither a beat nor a stop waits for it any longer.
const RENEW_WAIT: Duration = Duration::from_secs(1);

/// Beats until told to stop, and has a new generation of the data directory recorded from time to time.
///
/// # Errors
/// What meta says to a node that it will never hear again.
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
    let mut heard = true;
    let renew = |renewal: Renewal| meta.renew(renewal);
    loop {
        tokio::select! {
            () = stop.cancelled() => {
                // No copy bears this one that was made while the process ran.
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
                // The beat says how the node is, whatever its disk does; the next one tries again.
                Err(error) if heard => {
                    warn!(%error, "no new generation of the data directory was recorded");
                }
                Ok(()) | Err(_) => {}
            }
        }
        let sent = async {
            let heartbeat = Heartbeat {
                node: number,
                identity: me.identity,
                address: me.address.clone(),
                replicas: node.status().await?,
                loads: node.loads(),
                labels: me.labels.clone(),
                cpu_ms: cpu_ms(),
                claim: generations.as_ref().map(GenerationKeeper::claim).unwrap_or_default(),
            };
            meta.heartbeat(heartbeat).await
        };
        let sent = timeout(BEAT_WAIT, sent).await;
        let sent = sent.unwrap_or_else(|_| Err(Error::Timeout("meta did not answer".to_owned())));
        if let Err(Error::InvalidInput(_)) = &sent {
            return sent;
        }
        match (&sent, heard) {
            (Ok(()), false) => info!("meta hears this node again"),
            // Said each time: nothing will mend it by itself.
            (Err(Error::NotFound { kind: "node", .. }), _) => error!(
                node = %number,
                "meta does not know this node's data directory: it belongs to another cluster, or meta's \
                 own data was lost; nothing is removed here"
            ),
            (Err(error), true) => warn!(%error, "meta does not hear this node"),
            (Ok(()), true) | (Err(_), false) => {}
        }
        heard = sent.is_ok();
    }
}

/// Gives up what takes too long.
async fn in_time(renewal: impl Future<Output = Result<(), Error>>) -> Result<(), Error> {
    let recorded = timeout(RENEW_WAIT, renewal).await;
    recorded.unwrap_or_else(|_| Err(Error::Timeout("meta did not answer".to_owned())))
}

/// CPU time of this process until now.
fn cpu_ms() -> Option<u64> {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let (seconds, nanos) = (u64::try_from(used.tv_sec).ok()?, u64::try_from(used.tv_nsec).ok()?);
    Some(seconds * 1_000 + nanos / 1_000_000)
}
