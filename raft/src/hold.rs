//! Merges commit notifications into the next append, instead of sending them in messages of their own.
//!
//! openraft notifies the followers of every commit at once. Under a steady load the next entries, which carry the
//! commit index too, follow within the time that a client needs to write again; the message between them costs both
//! nodes as much as the entries do.
//!
//! Invariants:
//! - every request with entries is sent in its place and without delay;
//! - a request without entries is left out only when the next request carries all of its information; it waits at most
//!   [`HOLD`], or [`HOLD_AWAITED`] while followers serve reads, and not at all for [`HURRY`] after a command that
//!   followers should apply at once;
//! - when the stream ends, no request is held back.

use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use openraft::raft::AppendEntriesRequest;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};

use crate::types::Types;

/// Maximum delay of the notification that a follower's last entries are committed. Longer than a client takes to write
/// again; short compared with a change of leader.
const HOLD: Duration = Duration::from_millis(20);
/// The same while followers wait for commits in order to answer reads.
const HOLD_AWAITED: Duration = Duration::from_millis(2);
/// Time for which a follower's question for a commit that it lacks shortens the delay.
const AWAITED_FOR: Duration = Duration::from_secs(1);
/// Time for which no commit is held back after a command that followers should apply at once. Longer than its commit
/// takes.
const HURRY: Duration = Duration::from_secs(2);

type Request = AppendEntriesRequest<Types>;

/// Who waits for a group's commits; shared by the streams to all its followers.
#[derive(Debug, Default)]
pub(crate) struct Awaited {
    /// Last time when a follower asked for a read point that it had yet to apply.
    asked: Mutex<Option<Instant>>,
    /// Time until which commits are announced at once.
    hurried_until: Mutex<Option<Instant>>,
}

impl Awaited {
    /// Records a follower's question for a read point that it has yet to apply.
    pub(crate) fn note(&self) {
        *self.asked.lock() = Some(Instant::now());
    }

    /// Announces commits at once for a while.
    pub(crate) fn hurry(&self) {
        *self.hurried_until.lock() = Some(Instant::now() + HURRY);
    }

    fn is_hurried(&self) -> bool {
        self.hurried_until.lock().is_some_and(|end| Instant::now() < end)
    }

    /// Maximum delay of a notification that is to be sent now.
    fn hold(&self) -> Duration {
        hold_at(*self.asked.lock(), Instant::now())
    }
}

/// Maximum delay at `time`, if a follower asked last at `last_ask`.
fn hold_at(last_ask: Option<Instant>, time: Instant) -> Duration {
    let is_recent =
        last_ask.is_some_and(|instant| time.saturating_duration_since(instant) < AWAITED_FOR);
    if is_recent { HOLD_AWAITED } else { HOLD }
}

/// True if `next` carries all information of `request`, so that `request` need not be sent.
fn says_all(next: &Request, request: &Request) -> bool {
    request.entries.is_empty()
        && next.vote == request.vote
        && next.prev_log_id == request.prev_log_id
        && next.leader_commit >= request.leader_commit
}

/// The requests of a stream, without those that the next request makes redundant.
pub(crate) fn hold_commits<S>(
    requests: S,
    awaited: Arc<Awaited>,
) -> impl Stream<Item = Request> + Send + 'static
where
    S: Stream<Item = Request> + Send + Unpin + 'static,
{
    // The state has the request that was read ahead of the one that was sent.
    let state = (requests.fuse(), None, awaited);
    stream::unfold(state, |(mut requests, lookahead, awaited)| async move {
        let mut request: Request = match lookahead {
            Some(request) => request,
            None => requests.next().await?,
        };
        let deadline = Instant::now() + awaited.hold();
        while request.entries.is_empty() && !awaited.is_hurried() {
            match timeout_at(deadline, requests.next()).await {
                Ok(Some(next)) if says_all(&next, &request) => request = next,
                // The next request does not replace this one, or the stream has ended.
                Ok(lookahead) => return Some((request, (requests, lookahead, awaited))),
                // The deadline has passed.
                Err(_) => break,
            }
        }
        Some((request, (requests, None, awaited)))
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures::FutureExt;
    use openraft::EntryPayload;
    use openraft::entry::RaftEntry;
    use tokio::sync::mpsc;
    use tokio_stream::wrappers::ReceiverStream;

    use super::*;
    use crate::log::{Position, Vote};
    use crate::types::{Command, RaftEntryType, RaftLogId, log_id, raft_vote};

    fn id(index: u64) -> RaftLogId {
        log_id(Position { term: 1, leader: 7, index })
    }

    /// Entries after `previous` up to `last`, with the news that `committed` is.
    fn request(previous: u64, last: u64, committed: u64) -> Request {
        let payload = || EntryPayload::Normal(Command(Bytes::new()));
        let entries = previous + 1..=last;
        Request {
            vote: raft_vote(Vote { term: 1, leader: 7, committed: true }),
            prev_log_id: Some(id(previous)),
            leader_commit: Some(id(committed)),
            entries: entries.map(|index| RaftEntryType::new(id(index), payload())).collect(),
        }
    }

    fn held(receiver: mpsc::Receiver<Request>) -> impl Stream<Item = Request> + Unpin {
        held_for(receiver, Arc::default())
    }

    fn held_for(
        receiver: mpsc::Receiver<Request>,
        awaited: Arc<Awaited>,
    ) -> impl Stream<Item = Request> + Unpin {
        Box::pin(hold_commits(ReceiverStream::new(receiver), awaited))
    }

    fn shape(request: &Request) -> (u64, usize, u64) {
        let index = |id: &Option<RaftLogId>| id.as_ref().map_or(0, |id| id.index);
        (index(&request.prev_log_id), request.entries.len(), index(&request.leader_commit))
    }

    /// Items that the stream yields without waiting.
    fn at_once(held: &mut (impl Stream<Item = Request> + Unpin)) -> Option<(u64, usize, u64)> {
        held.next().now_or_never().flatten().as_ref().map(shape)
    }

    #[tokio::test]
    async fn a_commit_goes_with_the_entries_that_follow_at_once() {
        let (sender, receiver) = mpsc::channel(8);
        let mut held = held(receiver);
        for one in [request(4, 5, 4), request(5, 5, 5), request(5, 7, 5), request(7, 7, 6)] {
            sender.try_send(one).unwrap();
        }
        assert_eq!(at_once(&mut held), Some((4, 1, 4)));
        assert_eq!(at_once(&mut held), Some((5, 2, 5)));
        sender.try_send(request(7, 7, 7)).unwrap();
        let last = held.next().await.unwrap();
        assert_eq!(shape(&last), (7, 0, 7), "of two commits the later one");
    }

    #[tokio::test]
    async fn a_commit_that_nothing_follows_is_told_alone_and_soon() {
        let (sender, receiver) = mpsc::channel(8);
        let mut held = held(receiver);
        let begun = Instant::now();
        sender.try_send(request(5, 5, 5)).unwrap();
        assert_eq!(shape(&held.next().await.unwrap()), (5, 0, 5));
        assert!(begun.elapsed() >= HOLD);
        sender.try_send(request(5, 6, 5)).unwrap();
        assert_eq!(at_once(&mut held), Some((5, 1, 5)));
    }

    #[test]
    fn a_commit_that_a_follower_asked_for_waits_less() {
        let asked = Instant::now();
        assert_eq!(hold_at(None, asked), HOLD);
        assert_eq!(hold_at(Some(asked), asked), HOLD_AWAITED);
        assert_eq!(hold_at(Some(asked), asked + AWAITED_FOR / 2), HOLD_AWAITED);
        assert_eq!(hold_at(Some(asked), asked + AWAITED_FOR), HOLD);
    }

    #[tokio::test]
    async fn a_commit_in_haste_waits_for_nothing() {
        let (sender, receiver) = mpsc::channel(8);
        let awaited = Arc::<Awaited>::default();
        let mut held = held_for(receiver, Arc::clone(&awaited));
        sender.try_send(request(5, 5, 5)).unwrap();
        assert_eq!(at_once(&mut held), None, "it is held back");
        awaited.hurry();
        // The one that is held back goes with the entries, and their commit at once.
        for one in [request(5, 6, 5), request(6, 6, 6)] {
            sender.try_send(one).unwrap();
        }
        assert_eq!(at_once(&mut held), Some((5, 1, 5)));
        assert_eq!(at_once(&mut held), Some((6, 0, 6)));
    }

    #[tokio::test]
    async fn what_says_something_else_does_not_replace_a_commit() {
        let (sender, receiver) = mpsc::channel(8);
        let mut held = held(receiver);
        sender.try_send(request(5, 5, 5)).unwrap();
        sender.try_send(request(3, 5, 5)).unwrap();
        sender.try_send(request(5, 5, 5)).unwrap();
        drop(sender);
        let shapes: Vec<_> = std::iter::from_fn(|| at_once(&mut held)).collect();
        assert_eq!(shapes, [(5, 0, 5), (3, 2, 5), (5, 0, 5)], "a stream that ends keeps nothing");
    }
}
