//! Ticks the clocks of a node's groups, tells other nodes which groups sleep, and notices a group whose task has
//! panicked.
//!
//! One message per beat and pair of nodes, however many groups they share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Weak;
use std::time::Duration;

use partita_proto::id::{GroupId, NodeId, ReplicaId};
use partita_proto::wire::pb::raft_message::Body;
use partita_proto::wire::pb::{RaftAsleep, RaftBeat};

use crate::fault::OnFailure;
use crate::group::Group;
use crate::host::Host;
use crate::peer::{Lane, Route};
use crate::settings::HEARTBEAT_MS;

const INTERVAL: Duration = Duration::from_millis(HEARTBEAT_MS);
/// A beat belongs to no group.
const ROUTE: Route = Route { group: GroupId(0), from: ReplicaId(0), to: ReplicaId(0) };

/// Runs a beat for all groups at a fixed interval, until the host is dropped.
pub(crate) async fn keep_pace(host: Weak<Host>, on_panic: OnFailure) {
    let mut panicked = BTreeSet::new();
    loop {
        tokio::time::sleep(INTERVAL).await;
        let Some(host) = host.upgrade() else { return };
        if *host.stopped().borrow() {
            return;
        }
        let mut asleep: BTreeMap<NodeId, Vec<RaftAsleep>> = BTreeMap::new();
        let filling = host.log_is_filling();
        for group in host.running() {
            note_panic(&host, &group, &mut panicked, &on_panic);
            if filling && let Err(error) = group.give_up_flushed().await {
                tracing::debug!(group = %group.id(), %error, "cannot purge the log of a group");
            }
            if let Some((notice, nodes)) = group.pace().step() {
                for node in nodes {
                    asleep.entry(node).or_default().push(notice);
                }
            }
        }
        for (node, asleep) in asleep {
            let peer = host.peers().peer(node);
            let body = Body::Beat(RaftBeat { asleep });
            // Not awaited: a node that hangs must not delay the beat to the others. The next beat follows soon.
            tokio::spawn(async move {
                if let Err(error) = peer.call(Lane::Control, ROUTE, body, INTERVAL).await {
                    tracing::debug!(%node, %error, "a beat was not answered");
                }
            });
        }
    }
}

/// Reports a panic of a group's task to the process, once per replica.
fn note_panic(
    host: &Host,
    group: &Group,
    panicked: &mut BTreeSet<(GroupId, ReplicaId)>,
    on_panic: &OnFailure,
) {
    let Some(error) = group.panic() else { return };
    // A process that ends cancels its tasks, which looks the same.
    if !*host.stopped().borrow() && panicked.insert((group.id(), group.replica())) {
        tracing::error!(group = %group.id(), %error, "the group stops");
        on_panic.call(&error);
    }
}
