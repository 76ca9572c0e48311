//! One group's view of the shared log, as openraft's log storage.
//!
//! Invariant: a read never brings more than a few MiB into memory, however long the log is.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use futures::Stream;
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::{LogState, OptionalSend, RaftLogReader};
use partita_proto::id::GroupId;

use crate::error::RaftError;
use crate::log::Log;
use crate::types::{
    RaftEntryType, RaftLogId, RaftVoteType, Types, log_id, position, raft_entry, raft_vote,
    stored_entry, stored_vote,
};

/// Maximum bytes of entries in one read.
const READ_BYTES_MAX: u64 = 4 << 20;
/// Maximum bytes of entries sent at once to another replica: few enough that heartbeats do not wait long behind them.
const SEND_BYTES_MAX: u64 = 1 << 20;

/// The log of one group.
#[derive(Clone)]
pub(crate) struct GroupStore {
    log: Arc<Log>,
    group: GroupId,
}

impl GroupStore {
    pub(crate) fn new(log: Arc<Log>, group: GroupId) -> Self {
        Self { log, group }
    }

    async fn read(
        &self,
        start: u64,
        end: u64,
        bytes_max: u64,
    ) -> Result<Vec<RaftEntryType>, io::Error> {
        let entries = self.log.read(self.group, start, end, bytes_max).await;
        let entries = entries.map_err(RaftError::into_io)?;
        entries.into_iter().map(|entry| raft_entry(entry).map_err(RaftError::into_io)).collect()
    }
}

/// Any range as `[start, end)`.
fn limits(range: &impl RangeBounds<u64>) -> (u64, u64) {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(previous) => previous.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => u64::MAX,
    };
    (start, end)
}

impl RaftLogReader<Types> for GroupStore {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> Result<Vec<RaftEntryType>, io::Error>
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let (mut start, end) = limits(&range);
        let mut entries = Vec::new();
        while start < end {
            let more = self.read(start, end, READ_BYTES_MAX).await?;
            let Some(last) = more.last() else { break };
            start = last.log_id.index + 1;
            entries.extend(more);
        }
        Ok(entries)
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<RaftEntryType>, io::Error> {
        self.read(start, end, SEND_BYTES_MAX).await
    }

    async fn entries_stream<RB>(
        &mut self,
        range: RB,
    ) -> impl Stream<Item = Result<RaftEntryType, io::Error>> + OptionalSend
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let (start, end) = limits(&range);
        let store = self.clone();
        let chunks =
            futures::stream::try_unfold((store, start), move |(store, start)| async move {
                if start >= end {
                    return Ok::<_, io::Error>(None);
                }
                let entries = store.read(start, end, READ_BYTES_MAX).await?;
                let Some(last) = entries.last() else { return Ok(None) };
                let next = last.log_id.index + 1;
                let chunk = futures::stream::iter(entries.into_iter().map(Ok::<_, io::Error>));
                Ok(Some((chunk, (store, next))))
            });
        Box::pin(futures::TryStreamExt::try_flatten(chunks))
    }

    async fn read_vote(&mut self) -> Result<Option<RaftVoteType>, io::Error> {
        let view = self.log.view(self.group).map_err(RaftError::into_io)?;
        Ok(view.vote.map(raft_vote))
    }
}

impl RaftLogStorage<Types> for GroupStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, io::Error> {
        let view = self.log.view(self.group).map_err(RaftError::into_io)?;
        Ok(LogState {
            last_purged_log_id: view.purged.map(log_id),
            last_log_id: view.last.map(log_id),
        })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &RaftVoteType) -> Result<(), io::Error> {
        self.log.save_vote(self.group, stored_vote(vote)).await.map_err(RaftError::into_io)
    }

    async fn save_committed(&mut self, committed: Option<RaftLogId>) -> Result<(), io::Error> {
        self.log
            .save_committed(self.group, committed.as_ref().map(position))
            .map_err(RaftError::into_io)
    }

    async fn read_committed(&mut self) -> Result<Option<RaftLogId>, io::Error> {
        let view = self.log.view(self.group).map_err(RaftError::into_io)?;
        Ok(view.committed.map(log_id))
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<Types>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = RaftEntryType> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries = entries.into_iter().map(stored_entry).collect();
        let on_durable = Box::new(move |result: Result<(), RaftError>| {
            callback.io_completed(result.map_err(RaftError::into_io));
        });
        self.log.append(self.group, entries, on_durable).await.map_err(RaftError::into_io)
    }

    async fn truncate_after(&mut self, last_log_id: Option<RaftLogId>) -> Result<(), io::Error> {
        self.log
            .truncate(self.group, last_log_id.as_ref().map(position))
            .await
            .map_err(RaftError::into_io)
    }

    async fn purge(&mut self, upto: RaftLogId) -> Result<(), io::Error> {
        self.log.purge(self.group, position(&upto)).await.map_err(RaftError::into_io)
    }
}
