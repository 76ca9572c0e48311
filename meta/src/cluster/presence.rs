//! What nodes said of themselves last, and when.
//!
//! Invariants: a node counts as live for a lease after it was last heard of, and after this process
//! began to lead; one that is not registered under the identity that it gives is not heard at all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use partita_proto::error::Error;
use partita_proto::id::{NodeId, PartitionId, ReplicaId};
use partita_proto::member::{Heartbeat, Member, Members};
use partita_proto::service::ReplicaStatus;
use tokio::time::Instant;

use crate::catalog::State;
use crate::transition::was_removed;

/// What one node said last.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) at: Instant,
    pub(crate) replicas: Arc<Vec<ReplicaStatus>>,
}

/// What all nodes said last.
#[derive(Debug)]
pub(crate) struct Presence {
    lease: Duration,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Since when this process is who they talk to.
    since: Instant,
    reports: BTreeMap<NodeId, Report>,
}

/// All that was said, at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Reports {
    pub(crate) now: Instant,
    pub(crate) since: Instant,
    pub(crate) lease: Duration,
    pub(crate) reports: BTreeMap<NodeId, Report>,
}

impl Presence {
    pub(crate) fn new(lease: Duration) -> Self {
        let inner = Inner { since: Instant::now(), reports: BTreeMap::new() };
        Self { lease, inner: Mutex::new(inner) }
    }

    /// This process begins to lead: what it heard in earlier times counts no more.
    pub(crate) fn begin(&self) {
        let mut inner = self.inner.lock();
        inner.since = Instant::now();
        inner.reports.clear();
    }

    /// Takes what a node says.
    ///
    /// # Errors
    /// [`Error::NotFound`] when the node is not registered under its identity, [`Error::InvalidInput`] when it was
    /// removed.
    pub(crate) fn heard(&self, state: &State, heartbeat: Heartbeat) -> Result<(), Error> {
        let known = state.node(heartbeat.node);
        if known.is_none_or(|known| known.identity != heartbeat.identity) {
            if let Some(removed) = state.removed_of(heartbeat.identity) {
                return Err(was_removed(removed));
            }
            return Err(Error::NotFound { kind: "node", name: heartbeat.node.to_string() });
        }
        let replicas = Arc::new(heartbeat.replicas);
        let report = Report { at: Instant::now(), replicas };
        self.inner.lock().reports.insert(heartbeat.node, report);
        Ok(())
    }

    /// A node was removed: what it said last is of no interest.
    pub(crate) fn forget(&self, node: NodeId) {
        self.inner.lock().reports.remove(&node);
    }

    /// What is known now.
    pub(crate) fn reports(&self) -> Reports {
        let inner = self.inner.lock();
        Reports {
            now: Instant::now(),
            since: inner.since,
            lease: self.lease,
            reports: inner.reports.clone(),
        }
    }
}

impl Reports {
    /// For how long nothing was heard of a node.
    pub(crate) fn silent_for(&self, node: NodeId) -> Duration {
        let heard = self.reports.get(&node).map_or(self.since, |report| report.at.max(self.since));
        self.now.saturating_duration_since(heard)
    }

    /// Whether a node was heard of lately.
    pub(crate) fn is_live(&self, node: NodeId) -> bool {
        self.silent_for(node) < self.lease
    }

    /// What a node said of its replicas, if it said anything.
    pub(crate) fn replicas(&self, node: NodeId) -> Option<&[ReplicaStatus]> {
        self.reports.get(&node).map(|report| report.replicas.as_slice())
    }

    /// The nodes as everybody is told of them.
    pub(crate) fn members(&self, state: &State) -> Members {
        let mut expected: BTreeMap<NodeId, BTreeSet<(PartitionId, ReplicaId)>> = BTreeMap::new();
        for partition in state.partitions() {
            for (replica, node) in &partition.replicas {
                expected.entry(*node).or_default().insert((partition.id, *replica));
            }
        }
        let nothing = BTreeSet::new();
        let member = |node: &crate::catalog::NodeRecord| {
            let said = self.replicas(node.id);
            let all = said.unwrap_or_default();
            let mut missing = expected.get(&node.id).unwrap_or(&nothing).clone();
            for status in all {
                missing.remove(&(status.partition, status.replica));
            }
            let member = Member {
                address: node.address.clone(),
                live: self.is_live(node.id),
                draining: node.draining,
                replicas: all.len() as u64,
                leaders: all.iter().filter(|status| status.leader).count() as u64,
                bytes: all.iter().map(|status| status.file_bytes).sum(),
                missing: if said.is_some() { missing.len() as u64 } else { 0 },
                labels: node.labels.clone(),
            };
            (node.id, member)
        };
        state.nodes().map(|node| member(node)).collect()
    }
}
