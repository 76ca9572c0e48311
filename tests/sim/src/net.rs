//! The network for calls between clients, metas and datanodes.
//!
//! Replication has its own links (raft's memory network); both networks have the same cuts. The request and the
//! answer of a call are each delayed by a separate random time, so calls overtake each other, and each may be lost.
//!
//! Invariants:
//! - a request continues on its node even if the caller gives up, until the node's power goes;
//! - an answer from an ended life of a node never arrives.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use partita_proto::error::Error;
use partita_proto::id::NodeId;
use partita_raft::transport::memory::{Faults, MemoryNetwork};

use crate::random::Random;

/// Delays and losses of calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    pub(crate) delay_max: Duration,
    /// Lost requests per thousand, and lost answers per thousand.
    pub(crate) lost: u64,
}

impl Weather {
    pub(crate) const FAIR: Self = Self { delay_max: Duration::from_millis(3), lost: 0 };
}

struct State {
    random: Random,
    weather: Weather,
    /// The current life of each node; a node without power is absent.
    lives: BTreeMap<NodeId, u64>,
    next_life: u64,
    cuts: BTreeMap<(NodeId, NodeId), u64>,
}

/// The simulated network.
pub(crate) struct Net {
    pub(crate) raft: Arc<MemoryNetwork>,
    state: Mutex<State>,
}

impl Net {
    pub(crate) fn new(seed: u64) -> Arc<Self> {
        let state = State {
            random: Random::new(seed, 1),
            weather: Weather::FAIR,
            lives: BTreeMap::new(),
            next_life: 1,
            cuts: BTreeMap::new(),
        };
        Arc::new(Self { raft: MemoryNetwork::new(seed), state: Mutex::new(state) })
    }

    /// Connects a node or a client, in a new life.
    pub(crate) fn join(&self, node: NodeId) {
        let mut state = self.state.lock();
        let life = state.next_life;
        state.next_life += 1;
        state.lives.insert(node, life);
    }

    /// Disconnects a node: its power is off.
    pub(crate) fn leave(&self, node: NodeId) {
        self.state.lock().lives.remove(&node);
        self.raft.detach(node);
    }

    pub(crate) fn set_weather(&self, weather: Weather, links: Faults) {
        self.state.lock().weather = weather;
        self.raft.set_faults(links);
    }

    /// Cuts one direction of a link: nothing arrives any more.
    pub(crate) fn cut(&self, sender: NodeId, receiver: NodeId) {
        self.raft.cut(sender, receiver);
        self.state.lock().cuts.insert((sender, receiver), 0);
    }

    /// Cuts a node off from all others, in both directions.
    pub(crate) fn isolate(&self, node: NodeId) {
        let nodes: Vec<NodeId> =
            self.state.lock().lives.keys().copied().filter(|peer| *peer != node).collect();
        for peer in nodes {
            self.cut(node, peer);
            self.cut(peer, node);
        }
    }

    pub(crate) fn heal(&self) {
        self.raft.heal();
        self.state.lock().cuts.clear();
    }

    /// The delay of one message; `None` if it is lost.
    fn passage(&self, sender: NodeId, receiver: NodeId) -> Option<Duration> {
        let mut state = self.state.lock();
        let Weather { delay_max, lost } = state.weather;
        let micros = u64::try_from(delay_max.as_micros()).unwrap_or(u64::MAX).max(1);
        let delay = Duration::from_micros(state.random.below(micros));
        let is_lost = state.random.below(1000) < lost;
        (!is_lost && !state.cuts.contains_key(&(sender, receiver))).then_some(delay)
    }

    /// The current life of a node; `None` if its power is off.
    pub(crate) fn life(&self, node: NodeId) -> Option<u64> {
        self.state.lock().lives.get(&node).copied()
    }

    /// Runs work on a node as a request, and waits for its answer for at most `wait`.
    pub(crate) async fn call<T: Send + 'static>(
        self: &Arc<Self>,
        caller: NodeId,
        callee: NodeId,
        wait: Duration,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let net = Arc::clone(self);
        let called = async move {
            let Some(delay) = net.passage(caller, callee) else {
                return std::future::pending().await;
            };
            tokio::time::sleep(delay).await;
            let Some(life) = net.life(callee) else {
                return Err(Error::Unavailable(format!("node {callee} refuses the connection")));
            };
            let answer = tokio::spawn(work).await;
            let Some(delay) = net.passage(callee, caller) else {
                return std::future::pending().await;
            };
            tokio::time::sleep(delay).await;
            if net.life(callee) != Some(life) {
                return Err(Error::Timeout(format!("the connection to node {callee} broke")));
            }
            answer.unwrap_or_else(|error| Err(Error::Internal(format!("node {callee}: {error}"))))
        };
        let called = tokio::time::timeout(wait, called).await;
        called.unwrap_or_else(|_| Err(Error::Timeout(format!("node {callee} did not answer"))))
    }
}
