//! Links within one process, for tests: they delay, break and fall silent as configured, at random from a seed.
//!
//! Frames are encoded and decoded, as they would be between processes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use parking_lot::Mutex;
use partita_proto::id::NodeId;
use partita_proto::wire::pb::RaftFrame;
use partita_proto::wire::pb::raft_message::Body;
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::{FRAMES_WAITING, Link, Transport};
use crate::error::RaftError;
use crate::host::Host;

/// Faults of links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Maximum delay of a frame.
    pub delay_max: Duration,
    /// Frames per million that break their link; both ends learn of it.
    pub breaks: u32,
    /// Frames per million that are lost together with everything after them; neither end learns of it.
    pub silences: u32,
}

/// Fate of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Arrives { delay: Duration },
    Breaks,
    Lost,
}

struct State {
    hosts: BTreeMap<NodeId, Weak<Host>>,
    /// Number of times that each node was detached; links from an earlier life have broken.
    lives: BTreeMap<NodeId, u64>,
    /// Directions in which nothing arrives.
    cut: BTreeSet<(NodeId, NodeId)>,
    faults: Faults,
    /// Frames per million that carry a wrong term.
    implausible: u32,
    random: u64,
}

impl State {
    /// The next number of the seed's sequence (splitmix64).
    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn life(&self, node: NodeId) -> u64 {
        self.lives.get(&node).copied().unwrap_or_default()
    }

    fn is_live(&self, end: End) -> bool {
        self.life(end.node) == end.life
    }

    fn fate(&mut self, sender: NodeId, receiver: NodeId) -> Fate {
        if self.cut.contains(&(sender, receiver)) {
            return Fate::Lost;
        }
        let draw = self.next() % 1_000_000;
        let (breaks, silences) = (u64::from(self.faults.breaks), u64::from(self.faults.silences));
        if draw < breaks {
            Fate::Breaks
        } else if draw < breaks + silences {
            Fate::Lost
        } else {
            let longest = u64::try_from(self.faults.delay_max.as_micros()).unwrap_or(u64::MAX);
            let micros = if longest == 0 { 0 } else { self.next() % longest };
            Fate::Arrives { delay: Duration::from_micros(micros) }
        }
    }

    /// Term that replaces those in the next frame; `None` for a frame that arrives as it was sent.
    fn wrong_term(&mut self) -> Option<u64> {
        // Nothing is drawn without this fault, so that the others stay those of the seed.
        if self.implausible == 0 || self.next() % 1_000_000 >= u64::from(self.implausible) {
            return None;
        }
        Some(u64::MAX - self.next() % 2)
    }
}

/// Puts a term into every vote of a frame, as a node with a bad bit in its memory would.
fn replace_terms(frame: &mut RaftFrame, term: u64) {
    for body in frame.messages.iter_mut().filter_map(|message| message.body.as_mut()) {
        let vote = match body {
            Body::Append(append) => append.vote.as_mut(),
            Body::Vote(request) | Body::PreVote(request) => request.vote.as_mut(),
            Body::Voted(answer) => answer.vote.as_mut(),
            _ => None,
        };
        if let Some(vote) = vote {
            vote.term = term;
        }
    }
}

/// A network of hosts in one process.
pub struct MemoryNetwork {
    state: Mutex<State>,
}

impl MemoryNetwork {
    /// A network without faults. If faults are set later, the seed decides what they do to each message.
    #[must_use]
    pub fn new(seed: u64) -> Arc<Self> {
        let state = State {
            hosts: BTreeMap::new(),
            lives: BTreeMap::new(),
            cut: BTreeSet::new(),
            faults: Faults::default(),
            implausible: 0,
            random: seed,
        };
        Arc::new(Self { state: Mutex::new(state) })
    }

    /// The transport of a node in this network.
    #[must_use]
    pub fn transport(self: &Arc<Self>, node: NodeId) -> Arc<dyn Transport> {
        let life = self.state.lock().life(node);
        Arc::new(Port { network: Arc::clone(self), node, life })
    }

    /// Makes a host reachable under its node's id, until it is dropped.
    pub fn attach(&self, host: &Arc<Host>) {
        self.state.lock().hosts.insert(host.node(), Arc::downgrade(host));
    }

    /// Detaches a node from the network, as if its power failed: frames on their way are lost, and all its links break.
    /// It comes back with a new [`MemoryNetwork::transport`] and a new host.
    pub fn detach(&self, node: NodeId) {
        let mut state = self.state.lock();
        state.hosts.remove(&node);
        *state.lives.entry(node).or_default() += 1;
    }

    /// True if frames sent from one node to the other may arrive.
    #[must_use]
    pub fn is_open(&self, sender: NodeId, receiver: NodeId) -> bool {
        !self.state.lock().cut.contains(&(sender, receiver))
    }

    /// Drops everything that is sent from one node to the other. Links that lose a frame stay silent even after
    /// [`MemoryNetwork::heal`], until their ends close them.
    pub fn cut(&self, sender: NodeId, receiver: NodeId) {
        self.state.lock().cut.insert((sender, receiver));
    }

    /// Cuts a node off from all others, in both directions.
    pub fn isolate(&self, node: NodeId) {
        let mut state = self.state.lock();
        let peers: Vec<NodeId> = state.hosts.keys().copied().filter(|peer| *peer != node).collect();
        for peer in peers {
            state.cut.insert((node, peer));
            state.cut.insert((peer, node));
        }
    }

    /// Removes all cuts.
    pub fn heal(&self) {
        self.state.lock().cut.clear();
    }

    /// Sets the faults of links.
    pub fn set_faults(&self, faults: Faults) {
        self.state.lock().faults = faults;
    }

    /// Sets how many frames per million carry a term that no node has reached, in place of the right one.
    pub fn set_implausible(&self, per_million: u32) {
        self.state.lock().implausible = per_million;
    }

    /// Carries frames in one direction until either end is gone or the link breaks.
    async fn carry(
        self: Arc<Self>,
        (sender, receiver): (End, End),
        mut frames: mpsc::Receiver<RaftFrame>,
        arriving: mpsc::Sender<Result<RaftFrame, RaftError>>,
    ) {
        let mut silent = false;
        // A link that has lost a frame delivers nothing more, but does not break.
        while let Some(mut frame) = frames.recv().await {
            if silent {
                continue;
            }
            let fate = {
                let mut state = self.state.lock();
                if state.is_live(sender) && state.is_live(receiver) {
                    state.fate(sender.node, receiver.node)
                } else {
                    Fate::Breaks
                }
            };
            match fate {
                Fate::Arrives { delay } => tokio::time::sleep(delay).await,
                Fate::Breaks => return,
                Fate::Lost => {
                    silent = true;
                    continue;
                }
            }
            let wrong_term = self.state.lock().wrong_term();
            if let Some(term) = wrong_term {
                replace_terms(&mut frame, term);
            }
            let frame = RaftFrame::decode(frame.encode_to_vec().as_slice())
                .map_err(|error| RaftError::Corrupted(format!("a frame does not parse: {error}")));
            if arriving.send(frame).await.is_err() {
                return;
            }
        }
    }
}

/// One node's access to the network.
struct Port {
    network: Arc<MemoryNetwork>,
    node: NodeId,
    life: u64,
}

/// One end of a link.
#[derive(Clone, Copy)]
struct End {
    node: NodeId,
    life: u64,
}

#[async_trait]
impl Transport for Port {
    async fn connect(&self, node: NodeId) -> Result<Link, RaftError> {
        let (host, remote) = {
            let state = self.network.state.lock();
            let is_cut =
                state.cut.contains(&(self.node, node)) || state.cut.contains(&(node, self.node));
            let host = if is_cut { None } else { state.hosts.get(&node).and_then(Weak::upgrade) };
            let live = state.is_live(End { node: self.node, life: self.life });
            let host = host.filter(|host| live && !*host.stopped().borrow());
            (host, End { node, life: state.life(node) })
        };
        let host = host.ok_or_else(|| {
            RaftError::Unavailable(format!("node {node} cannot be reached from node {}", self.node))
        })?;
        let (requests, outgoing) = mpsc::channel(FRAMES_WAITING);
        let (arriving, arrived) = mpsc::channel(FRAMES_WAITING);
        let answers = host.accept(ReceiverStream::new(arrived).boxed());
        let (returning, replies) = mpsc::channel(FRAMES_WAITING);
        let local = End { node: self.node, life: self.life };
        let (forward, back) = ((local, remote), (remote, local));
        // A link breaks as a whole: when one direction ends, so does the other.
        let network = Arc::clone(&self.network);
        tokio::spawn(async move {
            tokio::select! {
                () = Arc::clone(&network).carry(forward, outgoing, arriving) => {}
                () = Arc::clone(&network).carry(back, answers, returning) => {}
            }
        });
        Ok(Link { requests, replies: ReceiverStream::new(replies).boxed() })
    }
}

#[cfg(test)]
mod tests {
    use partita_proto::wire::pb::{RaftMessage, RaftVote, RaftVoteRequest};

    use super::*;

    #[test]
    fn some_frames_carry_a_term_that_no_node_has_reached() {
        let network = MemoryNetwork::new(7);
        let wrong = |per_million| {
            network.set_implausible(per_million);
            (0..1000).filter_map(|_| network.state.lock().wrong_term()).collect::<Vec<_>>()
        };
        assert!(wrong(0).is_empty());
        let terms = wrong(100_000);
        assert!((50..150).contains(&terms.len()), "{}", terms.len());
        assert!(terms.iter().all(|term| *term >= u64::MAX - 1));
        let vote = Some(RaftVote { term: 3, leader: 1, committed: false });
        let body = Body::Vote(RaftVoteRequest { vote, last: None, transfer: false });
        let messages = vec![RaftMessage { body: Some(body), ..RaftMessage::default() }];
        let mut frame = RaftFrame { hello: None, messages };
        replace_terms(&mut frame, u64::MAX);
        let Some(Body::Vote(request)) = &frame.messages[0].body else { panic!("{frame:?}") };
        assert_eq!(request.vote.map(|vote| vote.term), Some(u64::MAX));
    }

    #[test]
    fn a_seed_decides_what_happens_to_every_frame() {
        let fates = |seed| {
            let network = MemoryNetwork::new(seed);
            let delay_max = Duration::from_millis(5);
            network.set_faults(Faults { delay_max, breaks: 100_000, silences: 50_000 });
            let mut state = network.state.lock();
            (0..1000).map(|_| state.fate(NodeId(1), NodeId(2))).collect::<Vec<_>>()
        };
        assert_eq!(fates(1), fates(1));
        assert_ne!(fates(1), fates(2));
        let count = |fate| fates(3).iter().filter(|other| **other == fate).count();
        assert!((50..150).contains(&count(Fate::Breaks)), "{}", count(Fate::Breaks));
        assert!((20..90).contains(&count(Fate::Lost)), "{}", count(Fate::Lost));
    }

    #[test]
    fn a_node_that_was_taken_off_has_no_part_in_its_old_links() {
        let network = MemoryNetwork::new(7);
        let old = End { node: NodeId(1), life: 0 };
        assert!(network.state.lock().is_live(old));
        network.detach(NodeId(1));
        let state = network.state.lock();
        assert!(!state.is_live(old));
        assert!(state.is_live(End { node: NodeId(1), life: 1 }));
    }

    #[test]
    fn nothing_arrives_over_a_cut_until_it_is_healed() {
        let network = MemoryNetwork::new(7);
        let (one, two) = (NodeId(1), NodeId(2));
        network.cut(one, two);
        assert_eq!(network.state.lock().fate(one, two), Fate::Lost);
        assert_ne!(network.state.lock().fate(two, one), Fate::Lost, "the other way is open");
        network.heal();
        assert_ne!(network.state.lock().fate(one, two), Fate::Lost);
    }
}
