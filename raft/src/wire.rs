//! Translation of openraft's requests and answers to and from their wire form.
//!
//! Invariants:
//! - payloads are passed on as they are in the log, without decoding;
//! - a missing or unknown field is an error, never a default: another version may have sent it.

use openraft::raft::{
    AppendEntriesRequest, StreamAppendError, StreamAppendResult, TransferLeaderRequest,
    VoteRequest, VoteResponse,
};
use openraft::raft::{TransferLeaderError, TransferLeaderResponse};
use partita_proto::wire::pb;
use partita_proto::wire::pb::raft_appended::Result as Appended;
use partita_proto::wire::pb::raft_message::Body;
use partita_proto::wire::pb::raft_transferred::Result as Transferred;

use crate::error::RaftError;
use crate::log::{EntryKind, LogEntry, Position, Vote};
use crate::types::{
    RaftLogId, RaftVoteType, Types, log_id, position, raft_entry, raft_vote, stored_entry,
    stored_vote,
};

fn missing(part: &str) -> RaftError {
    RaftError::Incompatible(format!("a message without {part}"))
}

fn position_out(id: &RaftLogId) -> pb::RaftPosition {
    let Position { term, leader, index } = position(id);
    pb::RaftPosition { term, leader, index }
}

fn position_in(position: pb::RaftPosition) -> RaftLogId {
    log_id(Position { term: position.term, leader: position.leader, index: position.index })
}

pub(crate) fn vote_out(vote: &RaftVoteType) -> pb::RaftVote {
    let Vote { term, leader, committed } = stored_vote(vote);
    pb::RaftVote { term, leader, committed }
}

pub(crate) fn vote_in(vote: Option<pb::RaftVote>) -> Result<RaftVoteType, RaftError> {
    let vote = vote.ok_or_else(|| missing("a vote"))?;
    Ok(raft_vote(Vote { term: vote.term, leader: vote.leader, committed: vote.committed }))
}

fn entry_out(entry: LogEntry) -> pb::RaftEntry {
    let kind = match entry.kind {
        EntryKind::Blank => pb::RaftEntryKind::Blank,
        EntryKind::Command => pb::RaftEntryKind::Command,
        EntryKind::Membership => pb::RaftEntryKind::Membership,
    };
    let Position { term, leader, index } = entry.position;
    pb::RaftEntry {
        position: Some(pb::RaftPosition { term, leader, index }),
        kind: kind.into(),
        payload: entry.payload,
    }
}

fn entry_in(entry: pb::RaftEntry) -> Result<LogEntry, RaftError> {
    let kind = match entry.kind() {
        pb::RaftEntryKind::Blank => EntryKind::Blank,
        pb::RaftEntryKind::Command => EntryKind::Command,
        pb::RaftEntryKind::Membership => EntryKind::Membership,
        pb::RaftEntryKind::Unspecified => return Err(missing("an entry's kind")),
    };
    let position = position(&position_in(entry.position.ok_or_else(|| missing("a position"))?));
    Ok(LogEntry { position, kind, payload: entry.payload })
}

pub(crate) fn append_out(request: AppendEntriesRequest<Types>) -> Body {
    Body::Append(pb::RaftAppend {
        vote: Some(vote_out(&request.vote)),
        previous: request.prev_log_id.as_ref().map(position_out),
        committed: request.leader_commit.as_ref().map(position_out),
        entries: request.entries.into_iter().map(stored_entry).map(entry_out).collect(),
    })
}

pub(crate) fn append_in(request: pb::RaftAppend) -> Result<AppendEntriesRequest<Types>, RaftError> {
    let entries = request.entries.into_iter().map(|entry| raft_entry(entry_in(entry)?));
    Ok(AppendEntriesRequest {
        vote: vote_in(request.vote)?,
        prev_log_id: request.previous.map(position_in),
        leader_commit: request.committed.map(position_in),
        entries: entries.collect::<Result<_, _>>()?,
    })
}

/// Part of the log that an append request covers: the receiver must hold `previous`, and then have all entries up to
/// `last`.
#[derive(Clone, Debug)]
pub(crate) struct AppendSpan {
    previous: Option<RaftLogId>,
    last: Option<RaftLogId>,
}

impl AppendSpan {
    pub(crate) fn of(request: &AppendEntriesRequest<Types>) -> Self {
        let last = request.entries.last().map(|entry| entry.log_id);
        Self { previous: request.prev_log_id, last: last.or(request.prev_log_id) }
    }

    /// Answer of a replica that has all of the span.
    pub(crate) fn taken(&self) -> StreamAppendResult<Types> {
        Ok(self.last)
    }
}

pub(crate) fn appended_out(
    answer: openraft::raft::AppendEntriesResponse<Types>,
    previous: Option<pb::RaftPosition>,
) -> Body {
    use openraft::raft::AppendEntriesResponse as Answer;
    let result = match answer {
        Answer::Success | Answer::PartialSuccess(_) => Appended::Stored(pb::RaftDone {}),
        Answer::Conflict => Appended::Conflict(previous.unwrap_or_default()),
        Answer::HigherVote(vote) => Appended::Higher(vote_out(&vote)),
    };
    Body::Appended(pb::RaftAppended { result: Some(result) })
}

pub(crate) fn appended_in(
    answer: Body,
    span: &AppendSpan,
) -> Result<StreamAppendResult<Types>, RaftError> {
    let Body::Appended(answer) = answer else { return Err(missing("an answer to an append")) };
    Ok(match answer.result.ok_or_else(|| missing("a result"))? {
        Appended::Stored(_) => span.taken(),
        Appended::Conflict(_) => {
            let previous = span.previous.ok_or_else(|| missing("a conflicting position"))?;
            Err(StreamAppendError::Conflict(previous))
        }
        Appended::Higher(vote) => Err(StreamAppendError::HigherVote(vote_in(Some(vote))?)),
    })
}

pub(crate) fn vote_request_out(request: &VoteRequest<Types>) -> pb::RaftVoteRequest {
    pb::RaftVoteRequest {
        vote: Some(vote_out(&request.vote)),
        last: request.last_log_id.as_ref().map(position_out),
        transfer: request.leadership_transfer,
    }
}

pub(crate) fn vote_request_in(
    request: pb::RaftVoteRequest,
) -> Result<VoteRequest<Types>, RaftError> {
    let last = request.last.map(position_in);
    let mut vote_request = VoteRequest::new(vote_in(request.vote)?, last);
    vote_request.leadership_transfer = request.transfer;
    Ok(vote_request)
}

pub(crate) fn voted_out(answer: &VoteResponse<Types>) -> Body {
    Body::Voted(pb::RaftVoted {
        vote: Some(vote_out(&answer.vote)),
        last: answer.last_log_id.as_ref().map(position_out),
        granted: answer.vote_granted,
    })
}

pub(crate) fn voted_in(answer: Body) -> Result<VoteResponse<Types>, RaftError> {
    let Body::Voted(answer) = answer else { return Err(missing("an answer to a vote")) };
    let last = answer.last.map(position_in);
    Ok(VoteResponse::new(vote_in(answer.vote)?, last, answer.granted))
}

/// The vote of a replica alone, as the answer to the end of a snapshot.
pub(crate) fn follows_out(vote: &RaftVoteType) -> Body {
    Body::Voted(pb::RaftVoted { vote: Some(vote_out(vote)), last: None, granted: false })
}

pub(crate) fn transfer_out(request: &TransferLeaderRequest<Types>) -> Body {
    Body::Transfer(pb::RaftTransfer {
        leader: Some(vote_out(request.from_leader())),
        to: *request.to_node_id(),
        last: request.last_log_id().map(position_out),
    })
}

pub(crate) fn transfer_in(
    request: pb::RaftTransfer,
) -> Result<TransferLeaderRequest<Types>, RaftError> {
    let last = request.last.map(position_in);
    Ok(TransferLeaderRequest::new(vote_in(request.leader)?, request.to, last))
}

pub(crate) fn transferred_out(answer: TransferLeaderResponse<Types>) -> Body {
    let result = match answer {
        Ok(()) => Transferred::Accepted(pb::RaftDone {}),
        Err(TransferLeaderError::VoteChanged { actual, .. }) => {
            Transferred::Changed(vote_out(&actual))
        }
        Err(TransferLeaderError::LogNotFlushed { actual: Some(actual), .. }) => {
            Transferred::Behind(position_out(&actual))
        }
        Err(TransferLeaderError::LogNotFlushed { actual: None, .. }) => {
            Transferred::Empty(pb::RaftDone {})
        }
    };
    Body::Transferred(pb::RaftTransferred { result: Some(result) })
}

pub(crate) fn transferred_in(
    answer: Body,
    request: &TransferLeaderRequest<Types>,
) -> Result<TransferLeaderResponse<Types>, RaftError> {
    let Body::Transferred(answer) = answer else {
        return Err(missing("an answer to a transfer"));
    };
    let not_flushed = |actual| {
        Err(TransferLeaderError::LogNotFlushed { expected: request.last_log_id().copied(), actual })
    };
    Ok(match answer.result.ok_or_else(|| missing("a result"))? {
        Transferred::Accepted(_) => Ok(()),
        Transferred::Changed(actual) => Err(TransferLeaderError::VoteChanged {
            expected: *request.from_leader(),
            actual: vote_in(Some(actual))?,
        }),
        Transferred::Behind(actual) => not_flushed(Some(position_in(actual))),
        Transferred::Empty(_) => not_flushed(None),
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use openraft::EntryPayload;
    use openraft::entry::RaftEntry;

    use super::*;
    use crate::types::{Command, RaftEntryType};

    fn at(index: u64) -> RaftLogId {
        log_id(Position { term: 3, leader: 7, index })
    }

    fn vote(committed: bool) -> RaftVoteType {
        raft_vote(Vote { term: 4, leader: 7, committed })
    }

    #[test]
    fn an_append_arrives_as_it_was_sent() {
        let payload = Bytes::from_static(b"rows");
        let entries = vec![
            RaftEntryType::new(at(6), EntryPayload::Blank),
            RaftEntryType::new(at(7), EntryPayload::Normal(Command(payload))),
        ];
        let request = AppendEntriesRequest {
            vote: vote(true),
            prev_log_id: Some(at(5)),
            leader_commit: Some(at(4)),
            entries: entries.clone(),
        };
        let span = AppendSpan::of(&request);
        let Body::Append(sent) = append_out(request) else { panic!("an append") };
        let arrived = append_in(sent).unwrap();
        assert_eq!(arrived.vote, vote(true));
        assert_eq!(arrived.prev_log_id, Some(at(5)));
        assert_eq!(arrived.leader_commit, Some(at(4)));
        assert_eq!(arrived.entries, entries);

        use openraft::raft::AppendEntriesResponse as Answer;
        let back = |answer| appended_in(appended_out(answer, None), &span).unwrap();
        assert_eq!(back(Answer::Success), Ok(Some(at(7))));
        assert_eq!(back(Answer::Conflict), Err(StreamAppendError::Conflict(at(5))));
        let higher = Answer::HigherVote(vote(false));
        assert_eq!(back(higher), Err(StreamAppendError::HigherVote(vote(false))));
    }

    #[test]
    fn votes_and_transfers_arrive_as_they_were_sent() {
        let mut request = VoteRequest::new(vote(false), Some(at(9)));
        request.leadership_transfer = true;
        assert_eq!(vote_request_in(vote_request_out(&request)).unwrap(), request);
        let answer = VoteResponse::new(vote(true), None, true);
        assert_eq!(voted_in(voted_out(&answer)).unwrap(), answer);

        let request = TransferLeaderRequest::new(vote(true), 8, Some(at(9)));
        let Body::Transfer(sent) = transfer_out(&request) else { panic!("a transfer") };
        assert_eq!(transfer_in(sent).unwrap(), request);
        let behind = |actual| TransferLeaderError::LogNotFlushed { expected: Some(at(9)), actual };
        let changed =
            TransferLeaderError::VoteChanged { expected: vote(true), actual: vote(false) };
        for answer in [Ok(()), Err(changed), Err(behind(Some(at(3)))), Err(behind(None))] {
            let back = transferred_in(transferred_out(answer.clone()), &request).unwrap();
            assert_eq!(back, answer);
        }
    }

    #[test]
    fn what_another_version_left_out_is_an_error() {
        assert!(append_in(pb::RaftAppend::default()).is_err());
        let entries = vec![pb::RaftEntry::default()];
        let vote = Some(vote_out(&vote(true)));
        assert!(append_in(pb::RaftAppend { vote, entries, ..Default::default() }).is_err());
        assert!(vote_request_in(pb::RaftVoteRequest::default()).is_err());
        let span = AppendSpan { previous: None, last: None };
        assert!(appended_in(Body::Appended(pb::RaftAppended::default()), &span).is_err());
        assert!(appended_in(Body::Done(pb::RaftDone {}), &span).is_err());
    }
}
