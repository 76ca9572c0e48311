//! The way to the other replicas of a group. There is none yet: every peer is unreachable.
//!
//! Groups of one member, which are what exists today, never ask for it.
//!
//! Invariant: `stream_append` itself never fails; errors come inside the stream. openraft backs off only from the
//! latter, and would call again at once, for ever, after the former.

use std::future::Future;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult, VoteRequest,
    VoteResponse,
};

use crate::state::{SnapshotMark, SnapshotType};
use crate::types::{Member, RaftVoteType, Types};

/// Makes the connections of one group.
pub(crate) struct Net;

/// A connection to a replica that cannot be reached.
pub(crate) struct NoPeer {
    target: u64,
    member: Member,
}

impl NoPeer {
    fn unreachable(&self) -> Unreachable<Types> {
        Unreachable::from_string(format!(
            "replica {} on node {}: nodes do not talk to each other in this version",
            self.target, self.member.node
        ))
    }
}

impl RaftNetworkFactory<Types> for Net {
    type Network = NoPeer;

    async fn new_client(&mut self, target: u64, node: &Member) -> NoPeer {
        NoPeer { target, member: *node }
    }
}

impl RaftNetworkV2<Types> for NoPeer {
    type SnapshotData = SnapshotMark;

    async fn append_entries(
        &mut self,
        _rpc: AppendEntriesRequest<Types>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        Err(self.unreachable().into())
    }

    fn stream_append<'s, S>(
        &'s mut self,
        mut input: S,
        _option: RPCOption,
    ) -> BoxFuture<
        's,
        Result<BoxStream<'s, Result<StreamAppendResult<Types>, RPCError<Types>>>, RPCError<Types>>,
    >
    where
        S: Stream<Item = AppendEntriesRequest<Types>> + Send + Unpin + 'static,
    {
        let error = self.unreachable();
        let answers = futures::stream::once(async move {
            // One request must be taken before the refusal: the back-off is computed when the input is polled.
            input.next().await;
            Err(error.into())
        });
        Box::pin(async move { Ok(answers.boxed()) })
    }

    async fn vote(
        &mut self,
        _rpc: VoteRequest<Types>,
        _option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        Err(self.unreachable().into())
    }

    async fn pre_vote(
        &mut self,
        _rpc: VoteRequest<Types>,
        _option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        Err(self.unreachable().into())
    }

    async fn full_snapshot(
        &mut self,
        _vote: RaftVoteType,
        _snapshot: SnapshotType,
        _cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        Err(self.unreachable().into())
    }
}
