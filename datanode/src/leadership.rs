//! Hands leadership over before the node stops: its groups then have a leader at once, instead of after an election
//! timeout.

use futures::{StreamExt, stream};
use tracing::warn;

use crate::node::Datanode;
use crate::replica::Replica;

/// Maximum number of groups that change their leader at the same time.
const HAND_OVERS_MAX: usize = 16;

impl Datanode {
    /// Hands the leadership of every partition that this node leads to another replica, if one can take it. A group
    /// whose leadership cannot be handed over elects a leader later.
    pub async fn hand_over(&self) {
        let replicas = self.replicas();
        let handed = stream::iter(replicas).map(|replica| async move { give_away(&replica).await });
        handed.buffer_unordered(HAND_OVERS_MAX).collect::<()>().await;
    }
}

/// Hands the leadership of one partition to another replica, if this one leads and another can take it.
pub(crate) async fn give_away(replica: &Replica) {
    if !replica.leads() {
        return;
    }
    let partition = replica.id();
    for node in replica.other_voters() {
        match replica.transfer_leader(node).await {
            Ok(()) => return,
            Err(error) => warn!(%partition, %node, %error, "leadership was not transferred"),
        }
    }
}
