//! openraft's own tests of a log storage, over ours.

use std::io;
use std::sync::Arc;

use futures::Stream;
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::{OptionalSend, StorageError};
use partita_proto::id::{GroupId, ReplicaId};

use super::recorder::Recorder;
use crate::log::simulated::SimulatedDisk;
use crate::log::{Log, LogOptions};
use crate::state::{Gate, MetaType, SnapshotBuilder, SnapshotContent, SnapshotType, StateMachine};
use crate::store::GroupStore;
use crate::types::{RaftLogId, RaftStoredMembership, Types};

/// The state machine with what the suite needs beyond ours: it installs snapshots, which hold nothing here.
struct Installing(StateMachine);

impl RaftStateMachine<Types> for Installing {
    type SnapshotData = SnapshotContent;
    type SnapshotBuilder = SnapshotBuilder;

    async fn applied_state(
        &mut self,
    ) -> Result<(Option<RaftLogId>, RaftStoredMembership), io::Error> {
        self.0.applied_state().await
    }

    async fn apply<Strm>(&mut self, entries: Strm) -> Result<(), io::Error>
    where
        Strm: Stream<Item = Result<EntryResponder<Types>, io::Error>> + Unpin + OptionalSend,
    {
        self.0.apply(entries).await
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotBuilder {
        self.0.get_snapshot_builder().await
    }

    async fn install_snapshot(
        &mut self,
        meta: &MetaType,
        _snapshot: SnapshotContent,
    ) -> Result<(), io::Error> {
        self.0.replace(meta);
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<SnapshotType>, io::Error> {
        self.0.get_current_snapshot().await
    }
}

struct Builder;

impl StoreBuilder<Types, GroupStore, Installing> for Builder {
    async fn build(&self) -> Result<((), GroupStore, Installing), StorageError<Types>> {
        let options =
            LogOptions { segment_bytes: 64 << 10, budget_bytes: 1 << 20, cache_bytes: 512 };
        let log = Log::open(Arc::new(SimulatedDisk::default()), options).unwrap();
        let group = GroupId(1);
        log.create(group, ReplicaId(0)).await.unwrap();
        let machine = Recorder::lenient();
        Ok((
            (),
            GroupStore::new(log, group),
            Installing(StateMachine::new(group, machine, Gate::default())),
        ))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_passes_openrafts_suite() {
    Suite::test_all(Builder).await.unwrap();
}
