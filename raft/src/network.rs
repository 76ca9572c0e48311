//! openraft's requests to the other replicas of a group, over the links between their nodes.
//!
//! Invariants:
//! - `stream_append` itself never fails; errors come inside the stream. openraft backs off only from the latter; after
//!   the former it would call again at once, for ever;
//! - requests of one stream are sent in order, and answered in order;
//! - any reply that is not an answer of the other replica becomes an error that says so: it never counts as a vote.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use openraft::errors::{
    NetworkError, RPCError, ReplicationClosed, StreamingError, Timeout, Unreachable,
};
use openraft::network::{Backoff, RPCOption, RPCTypes, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use partita_proto::id::{GroupId, ReplicaId};
use partita_proto::wire::pb::raft_message::Body;

use crate::error::RaftError;
use crate::hold::{Awaited, hold_commits};
use crate::machine::Machine;
use crate::peer::{CallError, Lane, Peer, Peers, Route};
use crate::planted::{self, Plant};
use crate::sense;
use crate::snapshot::{self, Outgoing};
use crate::state::{SnapshotContent, SnapshotType};
use crate::types::{Member, RaftVoteType, Types};
use crate::wire::{self, AppendSpan};

/// Maximum in-flight appends of one stream.
const APPENDS_UNDER_WAY: usize = 64;
/// Maximum time that a replica may take to put entries on its disk. A dead link is detected sooner.
const APPEND_WAIT: Duration = Duration::from_secs(5);
/// Initial backoff between attempts to reach a replica; doubled with every failure.
const RETRY_MIN: Duration = Duration::from_millis(50);
/// The same where the node answers that the replica is not there: after a split its group begins in a moment.
const REFUSED_MIN: Duration = Duration::from_millis(1);
const RETRY_MAX: Duration = Duration::from_secs(1);

/// Factory of the connections of one group.
pub(crate) struct Net {
    pub(crate) peers: Arc<Peers>,
    pub(crate) group: GroupId,
    pub(crate) replica: ReplicaId,
    pub(crate) machine: Arc<dyn Machine>,
    pub(crate) outgoing: Arc<Outgoing>,
    pub(crate) awaited: Arc<Awaited>,
}

/// A connection to one replica.
pub(crate) struct Connection {
    peer: Arc<Peer>,
    route: Route,
    machine: Arc<dyn Machine>,
    outgoing: Arc<Outgoing>,
    awaited: Arc<Awaited>,
    /// True if the last append that failed was refused by the other node.
    refused: AtomicBool,
}

impl RaftNetworkFactory<Types> for Net {
    type Network = Connection;

    async fn new_client(&mut self, target: u64, node: &Member) -> Connection {
        let route = Route { group: self.group, from: self.replica, to: ReplicaId(target) };
        Connection {
            peer: self.peers.peer(node.node),
            route,
            machine: Arc::clone(&self.machine),
            outgoing: Arc::clone(&self.outgoing),
            awaited: Arc::clone(&self.awaited),
            refused: AtomicBool::new(false),
        }
    }
}

/// Translates a failure for openraft, which backs off from an unreachable replica and treats other failures as
/// transient.
fn failed(error: CallError, route: Route, action: RPCTypes) -> RPCError<Types> {
    match error {
        CallError::Unreachable(_) | CallError::Refused(_) => Unreachable::from_string(error).into(),
        CallError::Broken(_) => NetworkError::from_string(error).into(),
        CallError::TimedOut(timeout) => {
            Timeout { action, id: route.from.0, target: route.to.0, timeout }.into()
        }
    }
}

/// Waits between attempts to reach a replica.
fn waits(refused: bool) -> impl Iterator<Item = Duration> + Send + 'static {
    let first = if refused { REFUSED_MIN } else { RETRY_MIN };
    std::iter::successors(Some(first), |wait| Some((*wait * 2).min(RETRY_MAX)))
}

/// Error for an answer that makes no sense; the other node may run another version.
fn malformed(error: RaftError) -> RPCError<Types> {
    Unreachable::from_string(error).into()
}

impl Connection {
    async fn call(
        &self,
        lane: Lane,
        body: Body,
        wait: Duration,
        action: RPCTypes,
    ) -> Result<Body, RPCError<Types>> {
        let term = sense::term_of(&body);
        let reply = self.peer.call(lane, self.route, body, wait).await;
        let reply = reply.map_err(|error| failed(error, self.route, action))?;
        sense::check(&reply, term.unwrap_or_default()).map_err(malformed)?;
        Ok(reply)
    }
}

impl RaftNetworkV2<Types> for Connection {
    type SnapshotData = SnapshotContent;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Types>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        let span = AppendSpan::of(&request);
        let body = wire::append_out(request);
        let reply = self.call(Lane::Bulk, body, APPEND_WAIT, RPCTypes::AppendEntries).await?;
        Ok(wire::appended_in(reply, &span).map_err(malformed)?.into())
    }

    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        _option: RPCOption,
    ) -> BoxFuture<
        's,
        Result<BoxStream<'s, Result<StreamAppendResult<Types>, RPCError<Types>>>, RPCError<Types>>,
    >
    where
        S: Stream<Item = AppendEntriesRequest<Types>> + Send + Unpin + 'static,
    {
        let (peer, route, refused) = (&self.peer, self.route, &self.refused);
        let fail = move |error: CallError| {
            refused.store(matches!(error, CallError::Refused(_)), Ordering::Relaxed);
            failed(error, route, RPCTypes::AppendEntries)
        };
        // Send the requests in order. `span` and `term` stay here, to check the answer.
        let calls =
            hold_commits(input, Arc::clone(&self.awaited)).then(move |request| async move {
                let span = AppendSpan::of(&request);
                let body = wire::append_out(request);
                let term = sense::term_of(&body).unwrap_or_default();
                let waiting =
                    tokio::time::timeout(APPEND_WAIT, peer.send(Lane::Bulk, route, body)).await;
                (span, term, waiting.unwrap_or(Err(CallError::TimedOut(APPEND_WAIT))))
            });
        // Await the answers in the same order, up to a limit of appends in flight.
        let answers = calls.map(move |(span, term, waiting)| async move {
            let reply = match waiting {
                Ok(waiting) => waiting.reply(APPEND_WAIT).await,
                Err(error) => Err(error),
            };
            if reply.is_err() && planted::is(Plant::EarlyAck) {
                return Ok(span.taken());
            }
            let reply = reply.map_err(fail)?;
            sense::check(&reply, term).map_err(malformed)?;
            wire::appended_in(reply, &span).map_err(malformed)
        });
        let answers = answers.buffered(APPENDS_UNDER_WAY).boxed();
        Box::pin(async move { Ok(answers) })
    }

    async fn vote(
        &mut self,
        request: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        let body = Body::Vote(wire::vote_request_out(&request));
        let reply = self.call(Lane::Control, body, option.soft_ttl(), RPCTypes::Vote).await?;
        wire::voted_in(reply).map_err(malformed)
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        let body = Body::PreVote(wire::vote_request_out(&request));
        let reply = self.call(Lane::Control, body, option.soft_ttl(), RPCTypes::Vote).await?;
        wire::voted_in(reply).map_err(malformed)
    }

    /// Sends the machine's current durable state, which may be newer than the one that openraft names: that was current
    /// when the transfer began.
    async fn full_snapshot(
        &mut self,
        vote: RaftVoteType,
        _snapshot: SnapshotType,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        let machine = self.machine.as_ref();
        snapshot::send(&self.outgoing, &self.peer, self.route, machine, vote, cancel).await
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<Types>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<Types>, RPCError<Types>> {
        let body = wire::transfer_out(&request);
        let action = RPCTypes::TransferLeader;
        let reply = self.call(Lane::Control, body, option.soft_ttl(), action).await?;
        wire::transferred_in(reply, &request).map_err(malformed)
    }

    fn backoff(&self) -> Option<Backoff> {
        Some(Backoff::new(waits(self.refused.load(Ordering::Relaxed))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_that_is_about_to_begin_is_asked_again_sooner_than_one_that_is_away() {
        let milliseconds = |refused: bool, count: usize| {
            waits(refused).take(count).map(|wait| wait.as_millis()).collect::<Vec<_>>()
        };
        assert_eq!(milliseconds(true, 5), [1, 2, 4, 8, 16]);
        assert_eq!(milliseconds(false, 3), [50, 100, 200]);
        assert_eq!(waits(true).nth(30), Some(RETRY_MAX));
        assert_eq!(waits(false).nth(30), Some(RETRY_MAX));
    }
}
