//! Gives leadership away when the node is to stop: its groups then have a leader at once, and not only
//! when the others have noticed that this one is gone.

use futures::{StreamExt, stream};
use tracing::warn;

use crate::node::Datanode;
use crate::replica::Replica;

/// Groups that change their leader at once.
const HAND_OVERS_MAX: usize = 16;

impl Datanode {
    /// Hands the leadership of every partition that this node leads to another replica, if there is one
    /// that can take it. What cannot be handed over is left: its group elects somebody later.
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
            Err(error) => warn!(%partition, %node, %error, "leadership was not handed over"),
        }
    }
}
