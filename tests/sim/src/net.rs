//! The network over which clients, metas and datanodes call each other.
//!
//! Replication has its own links (raft's memory network); cuts are the same for both. A call's request and answer are
//! each delayed by their own draw, so calls overtake each other, and each may be lost.
//!
//! Invariants:
//! - what a node was asked goes on there whether the caller still waits or not, until the node's power goes;
//! - an answer of a life of a node that is over never arrives.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use partita_proto::error::Error;
use partita_proto::id::NodeId;
use partita_raft::transport::memory::{Faults, MemoryNetwork};

use crate::random::Random;

/// How calls fare.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    pub(crate) delay_max: Duration,
    /// Of a thousand requests, and of as many answers, so many are lost.
    pub(crate) lost: u64,
}

impl Weather {
    pub(crate) const FAIR: Self = Self { delay_max: Duration::from_millis(3), lost: 0 };
}

struct State {
    random: Random,
    weather: Weather,
    /// Which life a node is in; absent: its power is off.
    lives: BTreeMap<NodeId, u64>,
    next_life: u64,
    cuts: BTreeMap<(NodeId, NodeId), u64>,
}

/// The network.
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

    /// A node, or a client, is there from now on.
    pub(crate) fn join(&self, node: NodeId) {
        let mut state = self.state.lock();
        let life = state.next_life;
        state.next_life += 1;
        state.lives.insert(node, life);
    }

    /// Its power goes.
    pub(crate) fn leave(&self, node: NodeId) {
        self.state.lock().lives.remove(&node);
        self.raft.detach(node);
    }

    pub(crate) fn set_weather(&self, weather: Weather, links: Faults) {
        self.state.lock().weather = weather;
        self.raft.set_faults(links);
    }

    /// Nothing arrives on this way any more.
    pub(crate) fn cut(&self, from: NodeId, to: NodeId) {
        self.raft.cut(from, to);
        self.state.lock().cuts.insert((from, to), 0);
    }

    /// Cuts a node off from everybody.
    pub(crate) fn isolate(&self, node: NodeId) {
        let others: Vec<NodeId> =
            self.state.lock().lives.keys().copied().filter(|other| *other != node).collect();
        for other in others {
            self.cut(node, other);
            self.cut(other, node);
        }
    }

    pub(crate) fn heal(&self) {
        self.raft.heal();
        self.state.lock().cuts.clear();
    }

    /// How long a message takes, if it arrives.
    fn passage(&self, from: NodeId, to: NodeId) -> Option<Duration> {
        let mut state = self.state.lock();
        let Weather { delay_max, lost } = state.weather;
        let micros = u64::try_from(delay_max.as_micros()).unwrap_or(u64::MAX).max(1);
        let delay = Duration::from_micros(state.random.below(micros));
        let is_lost = state.random.below(1000) < lost;
        (!is_lost && !state.cuts.contains_key(&(from, to))).then_some(delay)
    }

    /// Which life a node is in, if it is in any.
    pub(crate) fn life(&self, node: NodeId) -> Option<u64> {
        self.state.lock().lives.get(&node).copied()
    }

    /// Has a node do something, and waits so long for the answer.
    pub(crate) async fn call<T: Send + 'static>(
        self: &Arc<Self>,
        from: NodeId,
        to: NodeId,
        wait: Duration,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let net = Arc::clone(self);
        let called = async move {
            let Some(delay) = net.passage(from, to) else { return std::future::pending().await };
            tokio::time::sleep(delay).await;
            let Some(life) = net.life(to) else {
                return Err(Error::Unavailable(format!("node {to} refuses the connection")));
            };
            let answer = tokio::spawn(work).await;
            let Some(delay) = net.passage(to, from) else { return std::future::pending().await };
            tokio::time::sleep(delay).await;
            if net.life(to) != Some(life) {
                return Err(Error::Timeout(format!("the connection to node {to} broke")));
            }
            answer.unwrap_or_else(|error| Err(Error::Internal(format!("node {to}: {error}"))))
        };
        let called = tokio::time::timeout(wait, called).await;
        called.unwrap_or_else(|_| Err(Error::Timeout(format!("node {to} did not answer"))))
    }
}
