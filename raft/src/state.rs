//! Applies committed entries to a [`Machine`], as openraft's state machine.
//!
//! Invariants:
//! - the first entry applied after a start is the one right after the machine's durable mark;
//! - a snapshot is the durable mark and nothing else: it costs nothing to build, and allows the log up to it to be
//!   purged. Files are pinned only when they are sent (`snapshot/`);
//! - the state of another replica replaces the local state as a whole, and durably, before the log continues;
//! - an apply that fails or panics stops the group.

use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use futures::{FutureExt, Stream, StreamExt, TryStreamExt};
use openraft::storage::{ApplyResponder, EntryResponder, RaftStateMachine};
use openraft::{EntryPayload, OptionalSend, RaftSnapshotBuilder, SnapshotMeta};
use partita_proto::id::GroupId;

use crate::error::RaftError;
use crate::machine::{Committed, Incoming, Machine};
use crate::types::{Mark, RaftLogId, RaftStoredMembership, Reply, Types, log_id, position};

/// Maximum number of entries that are applied together: enough to batch many small writes, few enough that their
/// replies do not wait long.
const APPLY_LEN_MAX: usize = 1024;

pub(crate) type MetaType =
    SnapshotMeta<openraft::impls::leader_id_adv::LeaderId<u64, u64>, u64, crate::types::Member>;
pub(crate) type SnapshotType = openraft::type_config::alias::SnapshotOf<Types, SnapshotContent>;

/// Files of a snapshot, to be sent or to be installed.
pub(crate) enum SnapshotContent {
    /// This replica's own files.
    Here,
    /// Another replica's state, ready to be installed.
    Received(Box<dyn Incoming>),
}

/// Lets entries through to the machine until it is closed.
///
/// openraft's own shutdown does not wait for an apply that is in progress.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<tokio::sync::Mutex<bool>>);

impl Gate {
    /// Waits for the apply in progress, and lets no other begin.
    pub(crate) async fn close(&self) {
        *self.0.lock().await = true;
    }
}

/// The adapter between openraft and a [`Machine`].
pub(crate) struct StateMachine {
    group: GroupId,
    machine: Arc<dyn Machine>,
    gate: Gate,
    applied: Option<RaftLogId>,
    membership: Arc<RaftStoredMembership>,
    /// Metadata of the last snapshot.
    snapshot: Arc<parking_lot::Mutex<Option<MetaType>>>,
}

impl StateMachine {
    pub(crate) fn new(group: GroupId, machine: Arc<dyn Machine>, gate: Gate) -> Self {
        let mark = machine.durable_mark();
        let applied = mark.as_ref().map(|mark| log_id(mark.position()));
        let membership = Arc::new(mark.map(|mark| mark.membership().clone()).unwrap_or_default());
        Self { group, machine, gate, applied, membership, snapshot: Arc::default() }
    }

    async fn apply_batch(&mut self, batch: Vec<EntryResponder<Types>>) -> Result<(), RaftError> {
        let group = self.group;
        let stopped = |reason: String| RaftError::Stopped { group, reason };
        let gate = self.gate.clone();
        let closed = gate.0.lock().await;
        if *closed {
            return Err(stopped("it was shut down".to_owned()));
        }
        let mut committed = Vec::with_capacity(batch.len());
        let mut responders: Vec<(bool, Option<ApplyResponder<Types>>)> =
            Vec::with_capacity(batch.len());
        for (entry, responder) in batch {
            let payload = match entry.payload {
                EntryPayload::Blank => None,
                EntryPayload::Normal(command) => Some(command.0),
                EntryPayload::Membership(membership) => {
                    self.membership =
                        Arc::new(RaftStoredMembership::new(Some(entry.log_id), membership));
                    None
                }
            };
            responders.push((payload.is_some(), responder));
            let mark = Mark::new(position(&entry.log_id), Arc::clone(&self.membership));
            committed.push(Committed { index: entry.log_id.index, mark, payload });
            self.applied = Some(entry.log_id);
        }
        let commands = responders.iter().filter(|(command, _)| *command).count();
        // A panic would end the applying task and leave the group waiting for it; as an error it stops the group.
        let applied = AssertUnwindSafe(self.machine.apply(committed)).catch_unwind().await;
        let replies = applied
            .map_err(|_panic| stopped("the machine panicked".to_owned()))?
            .map_err(|error| stopped(error.to_string()))?;
        if replies.len() != commands {
            return Err(stopped(format!(
                "the machine gave {} replies to {commands} commands",
                replies.len()
            )));
        }
        let mut replies = replies.into_iter();
        for (command, responder) in responders {
            let reply = if command { replies.next().unwrap_or_default() } else { Bytes::new() };
            if let Some(responder) = responder {
                responder.send(Reply(reply));
            }
        }
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn replace(&mut self, meta: &MetaType) {
        self.applied = meta.last_log_id;
        self.membership = Arc::new(meta.last_membership.clone());
        *self.snapshot.lock() = Some(meta.clone());
    }
}

impl RaftStateMachine<Types> for StateMachine {
    type SnapshotData = SnapshotContent;
    type SnapshotBuilder = SnapshotBuilder;

    async fn applied_state(
        &mut self,
    ) -> Result<(Option<RaftLogId>, RaftStoredMembership), io::Error> {
        Ok((self.applied, self.membership.as_ref().clone()))
    }

    async fn apply<Strm>(&mut self, entries: Strm) -> Result<(), io::Error>
    where
        Strm: Stream<Item = Result<EntryResponder<Types>, io::Error>> + Unpin + OptionalSend,
    {
        let mut batches = entries.try_ready_chunks(APPLY_LEN_MAX);
        while let Some(batch) = batches.next().await {
            // Entries before the error in the same batch are dropped with it: the group stops anyway.
            let batch = batch.map_err(|error| error.1)?;
            self.apply_batch(batch).await.map_err(RaftError::into_io)?;
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotBuilder {
        SnapshotBuilder { machine: Arc::clone(&self.machine), snapshot: Arc::clone(&self.snapshot) }
    }

    async fn install_snapshot(
        &mut self,
        meta: &MetaType,
        snapshot: SnapshotContent,
    ) -> Result<(), io::Error> {
        let group = self.group;
        let stopped = |reason: String| RaftError::Stopped { group, reason }.into_io();
        let SnapshotContent::Received(incoming) = snapshot else {
            return Err(stopped("it was to install its own snapshot".to_owned()));
        };
        let gate = self.gate.clone();
        let closed = gate.0.lock().await;
        if *closed {
            return Err(stopped("it was shut down".to_owned()));
        }
        incoming.install().await.map_err(|error| stopped(error.to_string()))?;
        self.applied = meta.last_log_id;
        self.membership = Arc::new(meta.last_membership.clone());
        *self.snapshot.lock() = Some(meta.clone());
        tracing::info!(%group, upto = ?meta.last_log_id.map(|id| id.index), "snapshot installed");
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<SnapshotType>, io::Error> {
        let meta = self.snapshot.lock().clone();
        Ok(meta.map(|meta| SnapshotType { meta, snapshot: SnapshotContent::Here }))
    }
}

/// Makes a snapshot, which only records the machine's durable mark.
pub(crate) struct SnapshotBuilder {
    machine: Arc<dyn Machine>,
    snapshot: Arc<parking_lot::Mutex<Option<MetaType>>>,
}

impl RaftSnapshotBuilder<Types> for SnapshotBuilder {
    type SnapshotData = SnapshotContent;

    async fn build_snapshot(&mut self) -> Result<SnapshotType, io::Error> {
        let meta = self.machine.durable_mark().map(|mark| MetaType {
            last_log_id: Some(log_id(mark.position())),
            last_membership: mark.membership().clone(),
        });
        let meta = meta.unwrap_or_default();
        *self.snapshot.lock() = Some(meta.clone());
        Ok(SnapshotType { meta, snapshot: SnapshotContent::Here })
    }
}
