//! Serves incoming links: passes requests to their groups, and returns each answer when it is ready.
//!
//! Invariants:
//! - requests reach a group in order of arrival, though they are answered in order of completion;
//! - the in-flight requests of a link are bounded in number and bytes; over the bound the link is not read;
//! - no message creates a group. A message for a replica that is not on this node is refused;
//! - implausible numbers are refused before the group sees them (`sense.rs`).

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use partita_proto::id::{GroupId, NodeId, ReplicaId};
use partita_proto::wire::pb::raft_message::Body;
use partita_proto::wire::pb::{RaftDone, RaftFrame, RaftMessage, RaftReadPoint, RaftRefused};
use prost::Message;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use crate::error::RaftError;
use crate::group::Group;
use crate::host::Host;
use crate::sense;
use crate::snapshot::INSTALL_WAIT;
use crate::transport::{Frames, VERSION};
use crate::wire;

/// Maximum time that a node may take to greet after opening a link.
const HELLO_WAIT: Duration = Duration::from_secs(2);
/// Maximum in-flight requests of one link.
const UNDER_WAY_MAX: usize = 4096;
/// Maximum bytes of the in-flight requests of one link.
const UNDER_WAY_BYTES_MAX: usize = 64 << 20;
/// Maximum number of answers in one frame.
const FRAME_LEN_MAX: usize = 1024;
/// Maximum time that a group may take to answer. The caller has given up by then.
const ANSWER_WAIT: Duration = Duration::from_secs(10);

/// Idle time after which a link is closed: its other end may have lost power unnoticed. A live node opens another link
/// for its next call.
const IDLE_MAX: Duration = Duration::from_secs(120);

type UnderWay = FuturesUnordered<BoxFuture<'static, (usize, RaftMessage)>>;

/// Serves a link until the link ends or the host stops.
pub(crate) async fn serve(host: Arc<Host>, mut incoming: Frames, replies: mpsc::Sender<RaftFrame>) {
    let mut stopped = host.stopped();
    let serving = async {
        match greet(&host, &mut incoming, &replies).await {
            Ok(peer) => answer_all(&host, peer, &mut incoming, &replies).await,
            Err(error) => tracing::warn!(%error, "a link was refused"),
        }
    };
    tokio::select! {
        _ = stopped.wait_for(|stopped| *stopped) => {}
        () = serving => {}
    }
}

/// Exchanges greetings: checks that the other side addresses this node and speaks the same version.
async fn greet(
    host: &Host,
    incoming: &mut Frames,
    replies: &mpsc::Sender<RaftFrame>,
) -> Result<NodeId, RaftError> {
    let silent =
        || RaftError::Unavailable("the node that opened a link sent no greeting".to_owned());
    let first = timeout(HELLO_WAIT, incoming.next()).await.map_err(|_| silent())?;
    let hello = first.ok_or_else(silent)??.hello.ok_or_else(silent)?;
    // Answer before anything is refused, so that the other side learns the reason.
    let refusal = host.manners().refusal(&hello);
    let greeting = host.manners().hello(hello.node, refusal.as_ref());
    replies
        .send(RaftFrame { hello: Some(greeting), messages: Vec::new() })
        .await
        .map_err(|_| silent())?;
    if hello.version != VERSION {
        return Err(RaftError::Incompatible(format!(
            "node {} speaks version {} of the replication protocol, this node version {VERSION}",
            hello.node, hello.version
        )));
    }
    if hello.peer != host.node().0 {
        return Err(RaftError::InvalidInput(format!(
            "node {} looks for node {} here, but this is node {}",
            hello.node,
            hello.peer,
            host.node()
        )));
    }
    if let Some(refusal) = refusal {
        let text = format!("refused node {}: {}", hello.node, refusal.why);
        return Err(RaftError::InvalidInput(text));
    }
    Ok(NodeId(hello.node))
}

async fn answer_all(
    host: &Host,
    peer: NodeId,
    incoming: &mut Frames,
    replies: &mpsc::Sender<RaftFrame>,
) {
    let mut under_way = UnderWay::new();
    let mut bytes = 0;
    let mut answers = Vec::new();
    let mut last_frame = Instant::now();
    loop {
        let room = under_way.len() < UNDER_WAY_MAX && bytes < UNDER_WAY_BYTES_MAX;
        tokio::select! {
            biased;
            Some((size, answer)) = under_way.next() => {
                bytes -= size;
                answers.push(answer);
            }
            frame = incoming.next(), if room => match frame {
                Some(Ok(frame)) => {
                    last_frame = Instant::now();
                    for message in frame.messages {
                        let size = message.encoded_len();
                        let mut answering = begin(host, peer, message, size);
                        // The first poll hands the request to its group, before the next request is begun.
                        match futures::poll!(&mut answering) {
                            std::task::Poll::Ready((_, answer)) => answers.push(answer),
                            std::task::Poll::Pending => {
                                bytes += size;
                                under_way.push(answering);
                            }
                        }
                    }
                }
                Some(Err(error)) => {
                    tracing::debug!(%peer, %error, "a link ended");
                    return;
                }
                None => return,
            },
            () = sleep_until(last_frame + IDLE_MAX), if under_way.is_empty() => return,
        }
        while answers.len() < FRAME_LEN_MAX
            && let Some(Some((size, answer))) = under_way.next().now_or_never()
        {
            bytes -= size;
            answers.push(answer);
        }
        if !answers.is_empty() {
            let frame = RaftFrame { hello: None, messages: std::mem::take(&mut answers) };
            if replies.send(frame).await.is_err() {
                return;
            }
        }
    }
}

/// Begins to answer a request; the future yields the answer.
fn begin(
    host: &Host,
    peer: NodeId,
    message: RaftMessage,
    size: usize,
) -> BoxFuture<'static, (usize, RaftMessage)> {
    let RaftMessage { id, group, from: sender, to: receiver, body } = message;
    let answer =
        move |body| (size, RaftMessage { id, group, from: sender, to: receiver, body: Some(body) });
    // Beats belong to no group and are answered at once.
    if let Some(Body::Beat(beat)) = body {
        for notice in &beat.asleep {
            if let Some(group) = host.group(GroupId(notice.group)) {
                group.pace().heard(notice);
            }
        }
        return std::future::ready(answer(Body::Done(RaftDone {}))).boxed();
    }
    let refuse = |why: String| {
        tracing::debug!(%peer, %why, "refused");
        std::future::ready(answer(Body::Refused(RaftRefused { why }))).boxed()
    };
    let Some(body) = body else {
        return refuse("this version does not know this kind of request".to_owned());
    };
    // The replica that the message names must be the one that runs here.
    let target =
        host.group(GroupId(group)).filter(|target| target.replica() == ReplicaId(receiver));
    let Some(target) = target else {
        return refuse(format!(
            "replica {receiver} of group {group} is not on node {}",
            host.node()
        ));
    };
    async move {
        let wait = if matches!(body, Body::End(_)) { INSTALL_WAIT } else { ANSWER_WAIT };
        let answered = timeout(wait, ask(&target, ReplicaId(sender), body)).await;
        let body = match answered {
            Ok(Ok(body)) => body,
            Ok(Err(error)) => Body::Refused(RaftRefused { why: error.to_string() }),
            Err(_) => Body::Refused(RaftRefused { why: "the group does not answer".to_owned() }),
        };
        answer(body)
    }
    .boxed()
}

/// Passes a request to a group.
async fn ask(group: &Group, sender: ReplicaId, body: Body) -> Result<Body, RaftError> {
    let raft = group.raft();
    let stopped = |error: &dyn std::fmt::Display| RaftError::Stopped {
        group: group.id(),
        reason: error.to_string(),
    };
    sense::check(&body, group.term())?;
    let withheld = |preliminary| match group.pace().withholds_vote(preliminary) {
        Some(why) => Err(RaftError::Unavailable(why.to_owned())),
        None => Ok(()),
    };
    match body {
        Body::Append(append) => {
            group.pace().stir().await;
            let previous = append.previous;
            // A leader whose log is complete purges it once it is ordered to bring this replica up to date.
            if previous.is_none()
                && !append.entries.is_empty()
                && group.machine().begins_with_files()
            {
                let text = format!("this replica of group {} begins with files", group.id());
                return Err(RaftError::Unavailable(text));
            }
            let answer = raft.append_entries(wire::append_in(append)?).await;
            Ok(wire::appended_out(answer.map_err(|error| stopped(&error))?, previous))
        }
        Body::PreVote(request) => {
            let withheld = withheld(true);
            group.pace().stir().await;
            withheld?;
            let answer = raft.pre_vote(wire::vote_request_in(request)?).await;
            Ok(wire::voted_out(&answer.map_err(|error| stopped(&error))?))
        }
        Body::Vote(request) => {
            // An election that the leader itself requested ends the leader's lease: it serves no more reads.
            if !request.transfer {
                withheld(false)?;
            }
            group.pace().stir().await;
            let answer = raft.vote(wire::vote_request_in(request)?).await;
            Ok(wire::voted_out(&answer.map_err(|error| stopped(&error))?))
        }
        Body::Transfer(request) => {
            group.pace().stir().await;
            let answer = raft.handle_transfer_leader(wire::transfer_in(request)?).await;
            Ok(wire::transferred_out(answer.map_err(|error| stopped(&error))?))
        }
        Body::Offer(offer) => {
            group.pace().stir().await;
            group.offered(sender, offer).await
        }
        Body::Chunk(chunk) => group.take_chunk(sender, chunk).await,
        Body::End(end) => group.end_snapshot(sender, end).await,
        Body::ReadIndex(question) => {
            let index = group.read_index(question.applied).await?;
            Ok(Body::ReadPoint(RaftReadPoint { index }))
        }
        _ => Err(RaftError::Incompatible("a request of an unknown kind".to_owned())),
    }
}
