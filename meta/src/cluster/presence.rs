//! The latest report of each node, and when it came.
//!
//! Invariants: a node counts as live for a lease after its last heartbeat, and after this process began to lead; a
//! heartbeat under another identity than the registered one is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use partita_proto::error::Error;
use partita_proto::generation::Claim;
use partita_proto::id::{NodeId, PartitionId, ReplicaId};
use partita_proto::member::{Heartbeat, Member, Members};
use partita_proto::service::ReplicaStatus;
use tokio::time::Instant;

use crate::catalog::State;
use crate::transition::registered;

/// Minimum interval over which CPU usage is computed.
const CPU_OVER_MIN: Duration = Duration::from_millis(100);

/// Latest heartbeat of one node.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) at: Instant,
    pub(crate) replicas: Arc<Vec<ReplicaStatus>>,
    /// CPU time of the node's process so far, in milliseconds.
    cpu_ms: Option<u64>,
    /// Cores in use, averaged since the heartbeat before.
    pub(crate) cpu_cores: Option<f64>,
    /// True if the node's replicas of a new partition begin under the leader that the split names.
    names_leader: bool,
}

/// Latest heartbeats of all nodes.
#[derive(Debug)]
pub(crate) struct Presence {
    lease: Duration,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Time at which this process began to lead.
    since: Instant,
    reports: BTreeMap<NodeId, Report>,
}

/// A snapshot of all reports.
#[derive(Clone, Debug)]
pub(crate) struct Reports {
    pub(crate) now: Instant,
    pub(crate) since: Instant,
    pub(crate) lease: Duration,
    pub(crate) reports: BTreeMap<NodeId, Report>,
}

impl Report {
    /// Mean number of cores in use since this report. `None` after a restart of the process, when its CPU time is
    /// below the reported one.
    fn cores_until(&self, time: Instant, cpu_ms: u64) -> Option<f64> {
        let used = cpu_ms.checked_sub(self.cpu_ms?)?;
        let passed = time.saturating_duration_since(self.at);
        (passed >= CPU_OVER_MIN).then(|| used as f64 / 1_000.0 / passed.as_secs_f64())
    }
}

impl Presence {
    pub(crate) fn new(lease: Duration) -> Self {
        let inner = Inner { since: Instant::now(), reports: BTreeMap::new() };
        Self { lease, inner: Mutex::new(inner) }
    }

    /// This process begins to lead: earlier reports are dropped.
    pub(crate) fn begin(&self) {
        let mut inner = self.inner.lock();
        inner.since = Instant::now();
        inner.reports.clear();
    }

    /// Records a heartbeat.
    ///
    /// # Errors
    /// [`Error::NotFound`] when the node is not registered under its identity, [`Error::InvalidInput`] when it was
    /// removed, or when another process has started over its data directory or a copy of it.
    pub(crate) fn heard(&self, state: &State, heartbeat: Heartbeat) -> Result<(), Error> {
        let record = registered(state, heartbeat.node, heartbeat.identity)?;
        let tells_one = heartbeat.claim != Claim::default();
        if let Some(recorded) = record.generation.filter(|_| tells_one)
            && heartbeat.claim.is_older(Some(recorded))
        {
            return Err(Error::InvalidInput(format!(
                "another process has started with a copy of the data directory of node {} (generation {recorded}); this \
                 one must exit",
                heartbeat.node
            )));
        }
        let (time, cpu_ms) = (Instant::now(), heartbeat.cpu_ms);
        let mut inner = self.inner.lock();
        let previous = inner.reports.get(&heartbeat.node);
        let cpu_cores = previous.and_then(|previous| previous.cores_until(time, cpu_ms?));
        let (replicas, names_leader) = (Arc::new(heartbeat.replicas), heartbeat.names_leader);
        let report = Report { at: time, replicas, cpu_ms, cpu_cores, names_leader };
        inner.reports.insert(heartbeat.node, report);
        Ok(())
    }

    /// Drops the report of a removed node.
    pub(crate) fn forget(&self, node: NodeId) {
        self.inner.lock().reports.remove(&node);
    }

    /// A snapshot of all reports, taken now.
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
    /// Time since a node's last heartbeat, or since this process began to lead.
    pub(crate) fn silent_for(&self, node: NodeId) -> Duration {
        let last_contact =
            self.reports.get(&node).map_or(self.since, |report| report.at.max(self.since));
        self.now.saturating_duration_since(last_contact)
    }

    /// True if the node's lease has not expired.
    pub(crate) fn is_live(&self, node: NodeId) -> bool {
        self.silent_for(node) < self.lease
    }

    /// True if a split may name the leader of its new partition, whose replicas these nodes hold: all of them know such
    /// splits; a replica that does not stops where it finds one in its log. During an upgrade there are such replicas.
    pub(crate) fn may_name_leader(&self, nodes: impl IntoIterator<Item = NodeId>) -> bool {
        let knows = |node| self.reports.get(&node).is_some_and(|report| report.names_leader);
        nodes.into_iter().all(knows)
    }

    /// Cores that a live node uses, if known.
    pub(crate) fn cpu_cores(&self, node: NodeId) -> Option<f64> {
        self.reports.get(&node).filter(|_| self.is_live(node))?.cpu_cores
    }

    /// Replicas that a node reported; `None` if it has not reported.
    pub(crate) fn replicas(&self, node: NodeId) -> Option<&[ReplicaStatus]> {
        self.reports.get(&node).map(|report| report.replicas.as_slice())
    }

    /// Partitions whose replica on a live node does not serve all that it should, with the reason.
    pub(crate) fn failed(&self) -> BTreeMap<PartitionId, &str> {
        let live = self.reports.iter().filter(|(node, _)| self.is_live(**node));
        let replicas = live.flat_map(|(_, report)| report.replicas.iter());
        replicas.filter_map(|status| Some((status.partition, status.failure.as_deref()?))).collect()
    }

    /// The nodes as published to all members of the cluster.
    pub(crate) fn members(&self, state: &State) -> Members {
        let mut expected: BTreeMap<NodeId, BTreeSet<(PartitionId, ReplicaId)>> = BTreeMap::new();
        for partition in state.partitions() {
            for (replica, node) in &partition.replicas {
                expected.entry(*node).or_default().insert((partition.id, *replica));
            }
        }
        let nothing = BTreeSet::new();
        let member = |node: &crate::catalog::NodeRecord| {
            let reported = self.replicas(node.id);
            let statuses = reported.unwrap_or_default();
            let mut missing = expected.get(&node.id).unwrap_or(&nothing).clone();
            for status in statuses {
                missing.remove(&(status.partition, status.replica));
            }
            let member = Member {
                address: node.address.clone(),
                live: self.is_live(node.id),
                draining: node.draining,
                replicas: statuses.len() as u64,
                leaders: statuses.iter().filter(|status| status.leader).count() as u64,
                bytes: statuses.iter().map(|status| status.file_bytes).sum(),
                missing: if reported.is_some() { missing.len() as u64 } else { 0 },
                labels: node.labels.clone(),
            };
            (node.id, member)
        };
        state.nodes().map(|node| member(node)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_cpu_time_over_time_and_unknown_when_a_process_began_again() {
        let at = Instant::now();
        let before = Report {
            at,
            replicas: Arc::default(),
            cpu_ms: Some(4_000),
            cpu_cores: None,
            names_leader: true,
        };
        let later = at + Duration::from_secs(2);
        assert_eq!(before.cores_until(later, 7_000), Some(1.5));
        assert_eq!(before.cores_until(later, 3_999), None);
        assert_eq!(before.cores_until(at, 5_000), None, "no time has passed");
        let unknown = Report { cpu_ms: None, ..before };
        assert_eq!(unknown.cores_until(later, 7_000), None);
    }
}
