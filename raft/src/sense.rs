//! Checks that the numbers in a message of another node are plausible.
//!
//! Terms and indexes only grow, so one message with the largest term would end the group: no replica could be elected
//! in a later term, and the vote is on disk. They grow by one at a time, so a number far beyond the local one comes
//! from a fault or an attack, and is refused before anything is stored.

use partita_proto::wire::pb;
use partita_proto::wire::pb::raft_appended::Result as Appended;
use partita_proto::wire::pb::raft_message::Body;
use partita_proto::wire::pb::raft_transferred::Result as Transferred;

use crate::error::RaftError;
use crate::planted::{self, Plant};

/// Maximum distance of a term beyond the local one. With ten elections a second it takes 13 years to come so far.
const TERM_JUMP_MAX: u64 = 1 << 32;
/// Maximum index, and maximum id of a replica.
const NUMBER_MAX: u64 = 1 << 62;
/// Maximum number of files in one snapshot.
const FILES_MAX: usize = 1 << 20;
/// Maximum bytes of one file of a snapshot.
const FILE_BYTES_MAX: u64 = 1 << 50;

/// Term of a request: the term of the replica that sends it. `None` for messages without a term.
pub(crate) fn term_of(body: &Body) -> Option<u64> {
    let vote = match body {
        Body::Append(append) => append.vote,
        Body::Vote(request) | Body::PreVote(request) => request.vote,
        Body::Transfer(request) => request.leader,
        Body::End(end) => end.vote,
        _ => None,
    };
    vote.map(|vote| vote.term)
}

/// Refuses a message (request or reply) whose numbers are implausible for a replica in `term`.
///
/// # Errors
/// [`RaftError::InvalidInput`].
pub(crate) fn check(body: &Body, term: u64) -> Result<(), RaftError> {
    if planted::is(Plant::TrustNumbers) {
        return Ok(());
    }
    let limit = Limit { term_max: term.saturating_add(TERM_JUMP_MAX).min(NUMBER_MAX) };
    // Each kind of message has its own numbers; the kinds at the end have none that openraft stores.
    match body {
        Body::Append(append) => limit.append(append),
        Body::Vote(request) | Body::PreVote(request) => {
            limit.vote(request.vote.as_ref())?;
            limit.position(request.last.as_ref())
        }
        Body::Transfer(request) => {
            limit.vote(request.leader.as_ref())?;
            limit.number(request.to, "replica")?;
            limit.position(request.last.as_ref())
        }
        Body::Offer(offer) => {
            if offer.files.len() > FILES_MAX {
                return Err(refused(format!("{} files", offer.files.len())));
            }
            match offer.files.iter().find(|file| file.bytes > FILE_BYTES_MAX) {
                Some(file) => Err(refused(format!("a file of {} bytes", file.bytes))),
                None => Ok(()),
            }
        }
        Body::End(end) => limit.vote(end.vote.as_ref()),
        Body::Voted(answer) => {
            limit.vote(answer.vote.as_ref())?;
            limit.position(answer.last.as_ref())
        }
        Body::Appended(answer) => match &answer.result {
            Some(Appended::Higher(vote)) => limit.vote(Some(vote)),
            Some(Appended::Conflict(position)) => limit.position(Some(position)),
            Some(Appended::Stored(_)) | None => Ok(()),
        },
        Body::Transferred(answer) => match &answer.result {
            Some(Transferred::Changed(vote)) => limit.vote(Some(vote)),
            Some(Transferred::Behind(position)) => limit.position(Some(position)),
            Some(Transferred::Accepted(_) | Transferred::Empty(_)) | None => Ok(()),
        },
        Body::ReadIndex(question) => limit.number(question.applied, "index"),
        Body::ReadPoint(point) => limit.number(point.index, "index"),
        Body::Chunk(_) | Body::Beat(_) | Body::Wanted(_) | Body::Done(_) | Body::Refused(_) => {
            Ok(())
        }
    }
}

/// Bounds for the numbers of a message.
struct Limit {
    term_max: u64,
}

impl Limit {
    fn vote(&self, vote: Option<&pb::RaftVote>) -> Result<(), RaftError> {
        let Some(vote) = vote else { return Ok(()) };
        self.term(vote.term)?;
        self.number(vote.leader, "replica")
    }

    fn position(&self, position: Option<&pb::RaftPosition>) -> Result<(), RaftError> {
        let Some(position) = position else { return Ok(()) };
        self.term(position.term)?;
        self.number(position.leader, "replica")?;
        self.number(position.index, "index")
    }

    /// Checks that the entries of a leader follow each other, and that none has a later term than the leader's.
    fn append(&self, append: &pb::RaftAppend) -> Result<(), RaftError> {
        self.vote(append.vote.as_ref())?;
        self.position(append.previous.as_ref())?;
        self.position(append.committed.as_ref())?;
        let leader_term = append.vote.as_ref().map_or(0, |vote| vote.term);
        let mut next = append.previous.as_ref().map(|previous| previous.index + 1);
        for entry in &append.entries {
            let Some(position) = entry.position.as_ref() else {
                return Err(refused("an entry without a position".to_owned()));
            };
            self.position(Some(position))?;
            if position.term > leader_term {
                return Err(refused(format!(
                    "an entry of term {} from a leader in term {leader_term}",
                    position.term
                )));
            }
            if next.is_some_and(|next| next != position.index) {
                return Err(refused(format!("entry {} does not follow", position.index)));
            }
            next = Some(position.index + 1);
        }
        Ok(())
    }

    fn term(&self, term: u64) -> Result<(), RaftError> {
        if term > self.term_max {
            return Err(refused(format!("term {term} is far beyond the local term")));
        }
        Ok(())
    }

    fn number(&self, number: u64, kind: &str) -> Result<(), RaftError> {
        if number > NUMBER_MAX {
            return Err(refused(format!("{kind} {number}")));
        }
        Ok(())
    }
}

fn refused(detail: String) -> RaftError {
    RaftError::InvalidInput(format!("implausible message: {detail}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAR: [u64; 3] = [u64::MAX, u64::MAX - 1, (1 << 32) + 8];

    fn vote(term: u64) -> Option<pb::RaftVote> {
        Some(pb::RaftVote { term, leader: 2, committed: false })
    }

    fn position(term: u64, index: u64) -> pb::RaftPosition {
        pb::RaftPosition { term, leader: 2, index }
    }

    fn entry(term: u64, index: u64) -> pb::RaftEntry {
        pb::RaftEntry { position: Some(position(term, index)), ..pb::RaftEntry::default() }
    }

    fn append(term: u64, previous: Option<u64>, entries: &[(u64, u64)]) -> Body {
        Body::Append(pb::RaftAppend {
            vote: vote(term),
            previous: previous.map(|index| position(1, index)),
            committed: None,
            entries: entries.iter().map(|(term, index)| entry(*term, *index)).collect(),
        })
    }

    #[test]
    fn a_term_far_beyond_the_own_one_is_refused_wherever_it_stands() {
        for term in FAR {
            let request = pb::RaftVoteRequest { vote: vote(term), last: None, transfer: false };
            let late =
                pb::RaftVoteRequest { vote: vote(8), last: Some(position(term, 3)), ..request };
            let voted = pb::RaftVoted { vote: vote(term), last: None, granted: true };
            let higher = pb::RaftAppended { result: vote(term).map(Appended::Higher) };
            let changed = pb::RaftTransferred { result: vote(term).map(Transferred::Changed) };
            let transfer = pb::RaftTransfer { leader: vote(term), to: 1, last: None };
            for body in [
                Body::Vote(request),
                Body::PreVote(request),
                Body::Vote(late),
                append(term, None, &[]),
                append(8, Some(3), &[(term, 4)]),
                Body::Transfer(transfer),
                Body::End(pb::RaftSnapshotEnd { offer: 1, vote: vote(term) }),
                Body::Voted(voted),
                Body::Appended(higher),
                Body::Transferred(changed),
            ] {
                assert!(check(&body, 7).is_err(), "{body:?}");
            }
        }
        // One that was away for long, or begins, is told of terms that are much later.
        for own in [0, 7] {
            let request = pb::RaftVoteRequest { vote: vote(1 << 31), last: None, transfer: false };
            assert!(check(&Body::Vote(request), own).is_ok());
        }
        let last = pb::RaftVoteRequest { vote: vote(u64::MAX), last: None, transfer: false };
        assert!(check(&Body::Vote(last), u64::MAX - 1).is_err());
    }

    #[test]
    fn entries_follow_each_other_and_their_indexes_have_a_next_one() {
        assert!(check(&append(8, Some(3), &[(2, 4), (8, 5)]), 8).is_ok());
        assert!(check(&append(8, None, &[(0, 0), (1, 1)]), 8).is_ok());
        for body in [
            append(8, Some(3), &[(2, 5)]),
            append(8, Some(3), &[(2, 4), (2, 4)]),
            append(8, None, &[(2, 4), (2, 6)]),
            append(8, Some(3), &[(9, 4)]),
            append(8, Some(u64::MAX), &[(2, 0)]),
            append(8, None, &[(2, u64::MAX)]),
        ] {
            assert!(check(&body, 8).is_err(), "{body:?}");
        }
    }

    #[test]
    fn a_read_point_that_no_log_reaches_is_refused() {
        let point = |index| Body::ReadPoint(pb::RaftReadPoint { index });
        assert!(check(&point(7), 1).is_ok());
        assert!(check(&point(u64::MAX), 1).is_err());
        let question = |applied| Body::ReadIndex(pb::RaftReadIndex { applied });
        assert!(check(&question(7), 1).is_ok());
        assert!(check(&question(u64::MAX), 1).is_err());
    }

    #[test]
    fn what_a_snapshot_claims_to_be_is_bounded() {
        let file = |bytes| pb::RaftSnapshotFile { name: "a".to_owned(), bytes };
        let offer = |bytes| {
            Body::Offer(pb::RaftSnapshotOffer {
                files: vec![file(bytes)],
                ..pb::RaftSnapshotOffer::default()
            })
        };
        assert!(check(&offer(1 << 40), 1).is_ok());
        assert!(check(&offer(u64::MAX), 1).is_err());
    }
}
