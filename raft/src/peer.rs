//! The connection from this node to another one: calls of all groups share one link.
//!
//! ```text
//!   call -> control lane \                               / reader -> the caller who waits
//!   call -> bulk lane    -> frames of many -> Link <-----
//!                                                        \ watchdog: ends a link that owes replies for too long
//! ```
//!
//! Invariants:
//! - calls on one lane are sent in the order in which they were made;
//! - a call ends in one of four ways: a reply, a refusal, its deadline, or the end of the link. No call waits for a
//!   node that is known to be unreachable;
//! - a link is opened for the first call, and not before: a node without calls costs nothing;
//! - calls whose caller has given up are not sent.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt;
use parking_lot::Mutex;
use partita_proto::id::{GroupId, NodeId, ReplicaId};
use partita_proto::wire::pb::raft_message::Body;
use partita_proto::wire::pb::{RaftBeat, RaftFrame, RaftMessage};
use prost::Message;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use crate::error::RaftError;
use crate::greeting::Manners;
use crate::transport::{Frames, Link, Transport, VERSION};

/// Maximum calls that wait on a lane.
const LANE_LEN: usize = 1024;
/// Maximum bytes of calls that wait for the link, in units of [`SPACE_UNIT`].
const WAITING_BYTES_MAX: usize = 16 << 20;
const SPACE_UNIT: usize = 1024;
/// Size at which a frame is closed; small, because votes wait for the frame before them.
const FRAME_BYTES: usize = 1 << 20;
/// Maximum time to open a link, greeting included.
const OPEN_WAIT: Duration = Duration::from_secs(2);
/// Maximum time that a link may owe replies without delivering any; then it is closed: the node hangs, or the network
/// has dropped it silently.
const SILENCE_MAX: Duration = Duration::from_secs(3);
/// Interval between these checks.
const WATCH_INTERVAL: Duration = Duration::from_millis(500);
/// Age at which a link counts as good: after its end the next one is opened without backoff.
const GOOD_LINK: Duration = Duration::from_secs(1);
/// Initial backoff between attempts to open a link; doubled with every failure.
const RETRY_MIN: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(2);

/// Reason why a call brought no reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallError {
    /// Not sent: there is no link.
    Unreachable(String),
    /// Possibly delivered; the link ended before the reply.
    Broken(String),
    /// Possibly delivered; there was no reply in time.
    TimedOut(Duration),
    /// Delivered, and not carried out.
    Refused(String),
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(why) => write!(f, "unreachable: {why}"),
            Self::Broken(why) => write!(f, "the link broke: {why}"),
            Self::TimedOut(wait) => write!(f, "no reply within {} ms", wait.as_millis()),
            Self::Refused(why) => write!(f, "refused: {why}"),
        }
    }
}

/// Queue of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Small messages that must not wait: votes, beats.
    Control,
    /// Entries and snapshot files.
    Bulk,
}

/// Group, sender and receiver of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    pub(crate) group: GroupId,
    pub(crate) from: ReplicaId,
    pub(crate) to: ReplicaId,
}

struct Call {
    message: RaftMessage,
    bytes: usize,
    reply: oneshot::Sender<Result<Body, CallError>>,
    _space: OwnedSemaphorePermit,
}

impl Call {
    fn fail(self, error: CallError) {
        // The caller may have given up.
        self.reply.send(Err(error)).ok();
    }
}

/// A call that is in flight.
pub(crate) struct Waiting(oneshot::Receiver<Result<Body, CallError>>);

impl Waiting {
    pub(crate) async fn reply(self, wait: Duration) -> Result<Body, CallError> {
        match timeout(wait, self.0).await {
            Ok(Ok(Ok(Body::Refused(refused)))) => Err(CallError::Refused(refused.why)),
            Ok(Ok(reply)) => reply,
            Ok(Err(_)) => Err(CallError::Broken("this node shuts down".to_owned())),
            Err(_) => Err(CallError::TimedOut(wait)),
        }
    }
}

/// Handle for calls to one node.
pub(crate) struct Peer {
    next_id: AtomicU64,
    control: mpsc::Sender<Call>,
    bulk: mpsc::Sender<Call>,
    space: Arc<Semaphore>,
}

impl Peer {
    fn start(local: Manners, node: NodeId, transport: Arc<dyn Transport>) -> Arc<Self> {
        let (control, control_calls) = mpsc::channel(LANE_LEN);
        let (bulk, bulk_calls) = mpsc::channel(LANE_LEN);
        let lanes = Lanes { control: control_calls, bulk: bulk_calls };
        tokio::spawn(run(local, node, transport, lanes));
        let space = Arc::new(Semaphore::new(WAITING_BYTES_MAX / SPACE_UNIT));
        Arc::new(Self { next_id: AtomicU64::new(1), control, bulk, space })
    }

    /// Puts a call on its lane; waits while too many bytes are queued.
    pub(crate) async fn send(
        &self,
        lane: Lane,
        route: Route,
        body: Body,
    ) -> Result<Waiting, CallError> {
        let shutting_down = || CallError::Unreachable("this node shuts down".to_owned());
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (group, sender, receiver) = (route.group.0, route.from.0, route.to.0);
        let message = RaftMessage { id, group, from: sender, to: receiver, body: Some(body) };
        let bytes = message.encoded_len();
        let units = bytes.clamp(1, WAITING_BYTES_MAX).div_ceil(SPACE_UNIT);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        let space =
            Arc::clone(&self.space).acquire_many_owned(units).await.map_err(|_| shutting_down())?;
        let (reply, waiting) = oneshot::channel();
        let call = Call { message, bytes, reply, _space: space };
        let result = match lane {
            Lane::Control => self.control.send(call).await,
            Lane::Bulk => self.bulk.send(call).await,
        };
        result.map_err(|_| shutting_down())?;
        Ok(Waiting(waiting))
    }

    /// Sends a call and waits for its reply.
    pub(crate) async fn call(
        &self,
        lane: Lane,
        route: Route,
        body: Body,
        wait: Duration,
    ) -> Result<Body, CallError> {
        match timeout(wait, self.send(lane, route, body)).await {
            Ok(waiting) => waiting?.reply(wait).await,
            Err(_) => Err(CallError::TimedOut(wait)),
        }
    }
}

/// Handles for calls to other nodes, created at the first call to each.
pub(crate) struct Peers {
    local: Manners,
    transport: Arc<dyn Transport>,
    peers: Mutex<BTreeMap<NodeId, Arc<Peer>>>,
}

impl Peers {
    pub(crate) fn new(local: Manners, transport: Arc<dyn Transport>) -> Self {
        Self { local, transport, peers: Mutex::default() }
    }

    pub(crate) fn peer(&self, node: NodeId) -> Arc<Peer> {
        let mut peers = self.peers.lock();
        let peer = peers
            .entry(node)
            .or_insert_with(|| Peer::start(self.local.clone(), node, Arc::clone(&self.transport)));
        Arc::clone(peer)
    }

    /// Opens a link to a node for the greeting only: open links do not repeat the greeting.
    pub(crate) async fn introduce(&self, node: NodeId) -> Result<(), RaftError> {
        let opened = timeout(OPEN_WAIT, open(&self.local, node, self.transport.as_ref())).await;
        let opened = opened.unwrap_or_else(|_| {
            Err(RaftError::Unavailable(format!("node {node} does not answer")))
        });
        opened.map(drop)
    }

    /// Drops all peers; their tasks end when no other handle is left.
    pub(crate) fn clear(&self) {
        self.peers.lock().clear();
    }
}

/// Receiving ends of the lanes, from which the link is fed.
struct Lanes {
    control: mpsc::Receiver<Call>,
    bulk: mpsc::Receiver<Call>,
}

impl Lanes {
    /// The next call; `None` once all senders are gone.
    async fn next(&mut self) -> Option<Call> {
        tokio::select! {
            biased;
            Some(call) = self.control.recv() => Some(call),
            call = self.bulk.recv() => call,
        }
    }

    /// A call that waits already, if any.
    fn ready(&mut self) -> Option<Call> {
        self.control.try_recv().or_else(|_| self.bulk.try_recv()).ok()
    }
}

/// Backoff after that many failures, with some jitter, so that nodes do not all reconnect at once.
fn retry_after(local: NodeId, node: NodeId, failures: u32) -> Duration {
    let full = RETRY_MIN.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(RETRY_MAX);
    let spread = local.0.wrapping_mul(0x9e37_79b9).wrapping_add(node.0 ^ u64::from(failures)) % 8;
    full - full / 32 * u32::try_from(spread).unwrap_or(0)
}

async fn run(manners: Manners, node: NodeId, transport: Arc<dyn Transport>, mut lanes: Lanes) {
    let local = manners.node;
    let mut failures: u32 = 0;
    while let Some(first) = lanes.next().await {
        // The first call opens the link.
        let opened = timeout(OPEN_WAIT, open(&manners, node, transport.as_ref())).await;
        let opened = opened.unwrap_or_else(|_| {
            let text = format!("node {node} did not answer within {} s", OPEN_WAIT.as_secs());
            Err(RaftError::Unavailable(text))
        });
        let why = match opened {
            Ok(link) => {
                // A link carries calls until it breaks. After one that lasted, the next call opens another without
                // backoff.
                tracing::info!(%node, "linked");
                let started = Instant::now();
                let why = carry(link, first, &mut lanes).await;
                tracing::info!(%node, %why, "the link ended");
                if started.elapsed() >= GOOD_LINK {
                    failures = 0;
                    continue;
                }
                why
            }
            Err(error) => {
                let why = error.to_string();
                if failures == 0 {
                    tracing::warn!(%node, %why, "no link");
                }
                first.fail(CallError::Unreachable(why.clone()));
                why
            }
        };
        // During the backoff every call fails at once: callers decide whether to try again.
        failures = failures.saturating_add(1);
        let deadline = Instant::now() + retry_after(local, node, failures);
        while let Ok(Some(call)) = timeout_at(deadline, lanes.next()).await {
            call.fail(CallError::Unreachable(why.clone()));
        }
    }
}

/// Opens a link and exchanges greetings: both sides check version and identity.
async fn open(
    manners: &Manners,
    node: NodeId,
    transport: &dyn Transport,
) -> Result<Link, RaftError> {
    let mut link = transport.connect(node).await?;
    let frame = RaftFrame { hello: Some(manners.hello(node.0, None)), messages: Vec::new() };
    // Exchange greetings.
    let ended = || RaftError::Unavailable(format!("node {node} closed the link"));
    link.requests.send(frame).await.map_err(|_| ended())?;
    let greeted = link.replies.next().await.ok_or_else(ended)??;
    let hello = greeted.hello.ok_or_else(|| {
        RaftError::Incompatible(format!("node {node} did not state its protocol version"))
    })?;
    // Both sides must speak the same version, have the expected node ids, and accept each other.
    if hello.version != VERSION {
        return Err(RaftError::Incompatible(format!(
            "node {node} speaks version {} of the replication protocol, this node version {VERSION}",
            hello.version
        )));
    }
    if hello.node != node.0 {
        return Err(RaftError::Unavailable(format!(
            "the address of node {node} belongs to node {}",
            hello.node
        )));
    }
    if let Some(why) = manners.refused(node, &hello) {
        return Err(RaftError::Unavailable(format!("node {node} refuses this node: {why}")));
    }
    if let Some(refusal) = manners.refusal(&hello) {
        return Err(RaftError::Unavailable(refusal.why));
    }
    Ok(link)
}

/// Callers that wait for replies on a link.
#[derive(Default)]
struct Owed {
    replies: BTreeMap<u64, oneshot::Sender<Result<Body, CallError>>>,
    /// Time since when replies have been owed and none has arrived.
    since: Option<Instant>,
}

impl Owed {
    fn settle(&mut self, message: RaftMessage) {
        self.since = Some(Instant::now());
        if let (Some(reply), Some(body)) = (self.replies.remove(&message.id), message.body) {
            reply.send(Ok(body)).ok();
        }
    }

    /// Forgets callers that have given up; true if the rest has waited for too long.
    fn overdue(&mut self) -> bool {
        self.replies.retain(|_, reply| !reply.is_closed());
        if self.replies.is_empty() {
            self.since = None;
        }
        self.since.is_some_and(|start| start.elapsed() > SILENCE_MAX)
    }
}

/// Carries calls and replies until the link ends; returns the reason for its end.
async fn carry(link: Link, first: Call, lanes: &mut Lanes) -> String {
    let owed = Mutex::new(Owed::default());
    let why = tokio::select! {
        why = write(&link.requests, first, lanes, &owed) => why,
        why = read(link.replies, &owed) => why,
        why = watch(&link.requests, &owed) => why,
    };
    for reply in owed.into_inner().replies.into_values() {
        reply.send(Err(CallError::Broken(why.clone()))).ok();
    }
    why
}

async fn write(
    requests: &mpsc::Sender<RaftFrame>,
    first: Call,
    lanes: &mut Lanes,
    owed: &Mutex<Owed>,
) -> String {
    let mut next = Some(first);
    loop {
        let mut messages = Vec::new();
        let mut bytes = 0;
        // The queue's space is free for other calls once the frame is sent.
        let mut spaces = Vec::new();
        while let Some(call) = next.take().or_else(|| lanes.ready()) {
            if !call.reply.is_closed() {
                let mut owed = owed.lock();
                owed.since.get_or_insert_with(Instant::now);
                owed.replies.insert(call.message.id, call.reply);
                bytes += call.bytes;
                messages.push(call.message);
                spaces.push(call._space);
            }
            if bytes >= FRAME_BYTES {
                break;
            }
        }
        if !messages.is_empty() && requests.send(RaftFrame { hello: None, messages }).await.is_err()
        {
            return "closed by the other side".to_owned();
        }
        drop(spaces);
        next = lanes.next().await;
        if next.is_none() {
            return "this node shuts down".to_owned();
        }
    }
}

async fn read(mut replies: Frames, owed: &Mutex<Owed>) -> String {
    loop {
        match replies.next().await {
            Some(Ok(frame)) => {
                let mut owed = owed.lock();
                frame.messages.into_iter().for_each(|message| owed.settle(message));
            }
            Some(Err(error)) => return error.to_string(),
            None => return "closed by the other side".to_owned(),
        }
    }
}

/// Closes a link that delivers no replies. A working node answers a beat at once, however busy it is.
async fn watch(requests: &mpsc::Sender<RaftFrame>, owed: &Mutex<Owed>) -> String {
    loop {
        tokio::time::sleep(WATCH_INTERVAL).await;
        if owed.lock().overdue() {
            return format!("no reply for {} s", SILENCE_MAX.as_secs());
        }
        if owed.lock().since.is_some_and(|start| start.elapsed() > WATCH_INTERVAL) {
            let body = Some(Body::Beat(RaftBeat::default()));
            let messages = vec![RaftMessage { body, ..RaftMessage::default() }];
            // When the queue is full, its calls get replies or not; a probe adds nothing.
            requests.try_send(RaftFrame { hello: None, messages }).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_between_attempts_grow_up_to_a_limit() {
        let (local, node) = (NodeId(1), NodeId(2));
        let waits: Vec<_> = (1..40).map(|failures| retry_after(local, node, failures)).collect();
        assert!(waits[0] > RETRY_MIN / 2 && waits[0] <= RETRY_MIN);
        assert!(waits[4] > 4 * waits[0], "{waits:?}");
        assert!(waits.iter().all(|wait| *wait <= RETRY_MAX));
        assert!(waits[38] > RETRY_MAX / 2);
    }
}
