//! Three nodes and a meta, for splits and merges with all their orders, and a check that all nodes agree in the end.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use partita_proto::history::{ReshapeKind, ReshapeOutcome};
use partita_proto::id::PartitionId;
use partita_proto::service::{AdminOrder, ClusterService, MetaService};
use tokio::task::JoinHandle;

use super::changes::{PATIENCE, Server, hurry, until};
use super::nodes::FakeNodes;
use super::*;
use crate::catalog::PartitionRecord;
use crate::patience::Patience;

/// Three nodes and a meta that gets their heartbeats.
pub(super) struct Site {
    dir: tempfile::TempDir,
    pub(super) nodes: Arc<FakeNodes>,
    pub(super) server: Server,
    patience: Patience,
    beats: JoinHandle<()>,
}

impl Site {
    pub(super) async fn start() -> Self {
        Self::start_patient(hurry()).await
    }

    pub(super) async fn start_patient(patience: Patience) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let nodes = FakeNodes::new(3);
        let (server, beats) = open(dir.path(), &nodes, patience.clone()).await;
        Self { dir, nodes, server, patience, beats }
    }

    /// Kills meta during its work and starts it again.
    pub(super) async fn restart(self) -> Self {
        let patience = self.patience.clone();
        self.restart_patient(patience).await
    }

    /// Like [`Site::restart`], with other time limits from then on.
    pub(super) async fn restart_patient(self, patience: Patience) -> Self {
        let Self { dir, nodes, server, patience: _, beats } = self;
        beats.abort();
        drop(beats.await);
        server.kill().await;
        let (server, beats) = open(dir.path(), &nodes, patience.clone()).await;
        Self { dir, nodes, server, patience, beats }
    }

    pub(super) async fn administer(&self, order: AdminOrder) -> Result<(), Error> {
        self.server.meta.administer(order).await
    }

    /// Repeats an order until `done`: with short time limits, a busy machine may need more than one attempt.
    pub(super) async fn insist(&self, order: AdminOrder, done: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let answer = self.administer(order.clone()).await;
            if done(self) {
                return;
            }
            assert!(answer.is_err(), "{order:?} was answered and is not done");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{order:?} is not done");
    }

    /// Begins an order without waiting for it.
    pub(super) fn begin(&self, order: AdminOrder) -> JoinHandle<Result<(), Error>> {
        let meta = Arc::clone(&self.server.meta);
        tokio::spawn(async move { meta.administer(order).await })
    }

    pub(super) async fn change(&self, ddl: Ddl) -> Result<bool, Error> {
        self.server.meta.change(ddl).await
    }

    /// The partitions of a table in the published catalog.
    pub(super) fn partitions(&self, name: &str) -> Vec<PartitionId> {
        let catalog = self.server.meta.catalog();
        let catalog = catalog.borrow();
        let routes = catalog.table("public", name).map(|table| Arc::clone(&table.partitions));
        routes.iter().flat_map(|map| map.routes()).map(|route| route.partition).collect()
    }

    pub(super) fn record(&self, id: PartitionId) -> Option<Arc<PartitionRecord>> {
        self.server.meta.core.machine.state().partition(id).map(Arc::clone)
    }

    pub(super) fn last_event(&self) -> (ReshapeKind, ReshapeOutcome) {
        let event = self.server.meta.reshape_events().pop().unwrap();
        (event.kind, event.outcome)
    }

    /// Waits until no change is in progress and all nodes have exactly the replicas in the catalog.
    pub(super) async fn agree(&self) {
        until("nothing is under way", || self.disagreement().is_none()).await;
    }

    /// Differences between a participant's view and the catalog.
    pub(super) fn disagreement(&self) -> Option<String> {
        let state = self.server.state();
        let busy = state.reshaping().chain(state.moving()).next();
        if let Some(busy) = busy {
            let leader = self.nodes.one(1).groups.lock().leaders.get(&busy.id).copied();
            let group = self.nodes.group(busy.id);
            return Some(format!("{busy:?} is led by {leader:?}: {group:?}"));
        }
        if let Some(table) = state.pending().next() {
            return Some(format!("{table:?}"));
        }
        let mut expected = BTreeMap::new();
        for partition in state.partitions() {
            let group = self.nodes.group(partition.id)?;
            let same = (group.epoch, &group.range) == (partition.epoch, &partition.range);
            if group.frozen || !same {
                return Some(format!("{partition:?} is {group:?}"));
            }
            for (replica, node) in &partition.replicas {
                expected.insert((*node, partition.id), (*replica, partition.range.clone()));
            }
        }
        let mut found = BTreeMap::new();
        for node in 1..=3 {
            // It says so to itself, as a heartbeat would.
            drop(self.nodes.heartbeats());
            for (id, held) in self.nodes.one(node).held.lock().iter() {
                if held.failure.is_some() {
                    return Some(format!("{held:?}"));
                }
                let spec = &held.spec;
                found.insert((NodeId(node), *id), (spec.replica, spec.range.clone()));
            }
        }
        let leaders = || self.nodes.one(1).groups.lock().leaders.clone();
        (found != expected)
            .then(|| format!("found {found:?}, expected {expected:?}, led by {:?}", leaders()))
    }

    pub(super) async fn end(self) {
        self.beats.abort();
        drop(self.beats.await);
        self.server.stop().await;
    }
}

async fn open(dir: &Path, nodes: &Arc<FakeNodes>, patience: Patience) -> (Server, JoinHandle<()>) {
    let mut server = Server::open_patient(dir, nodes, patience).await;
    server.run();
    let (meta, speaking) = (Arc::clone(&server.meta), Arc::clone(nodes));
    let beats = tokio::spawn(async move {
        loop {
            for heartbeat in speaking.heartbeats() {
                drop(meta.heartbeat(heartbeat).await);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    (server, beats)
}

/// A table of three partitions with three replicas each.
pub(super) fn replicated(name: &str) -> Ddl {
    let mut table = new_table(name);
    table.schema.options.replication_factor = Some(3);
    create(table)
}

pub(super) fn split(partition: PartitionId, user: i64) -> AdminOrder {
    AdminOrder::SplitPartition { partition, at: Some(cut(&[Value::Int(user)])) }
}

pub(super) fn merge(left: PartitionId, right: PartitionId) -> AdminOrder {
    AdminOrder::MergePartitions { left, right }
}

pub(super) fn away() -> Error {
    Error::Unavailable("away".to_owned())
}
