//! Injected faults: nodes that crash and return, and slow nodes.
//!
//! Invariant: three seconds after a crash the node leads nothing for which another voter is up.

use partita_load::NodeFacts;

use super::Cluster;
use super::events::Event;

/// Time until other nodes lead what a dead node led.
const ELECTION_MS: u64 = 3_000;

/// A crash, a return, or a change of speed of a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultKind {
    /// The node stops.
    Crash,
    /// The node returns.
    Return,
    /// The node runs at this share of its speed (1: normal). The scheduler does not know it.
    Speed(f64),
}

/// A fault of a node, at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fault {
    /// Seconds since the begin.
    pub at_s: u64,
    /// Index of the node, from 0.
    pub node: u32,
    /// Kind of the fault.
    pub kind: FaultKind,
}

impl Cluster {
    pub(super) fn on_fault(&mut self, number: u32) {
        let fault = self.options.faults[number as usize];
        let Some(node) = self.nodes.get_mut(fault.node as usize) else { return };
        let new_state = match fault.kind {
            FaultKind::Crash => Some(false),
            FaultKind::Return => Some(true),
            FaultKind::Speed(speed) => {
                node.speed = speed.max(0.01);
                None
            }
        };
        self.note(&[3, u64::from(fault.node), u64::from(number)]);
        let Some(up) = new_state else { return };
        self.nodes[fault.node as usize].up = up;
        let facts = NodeFacts { up, capacity: self.options.cores, ..NodeFacts::default() };
        self.scheduler.set_node(Self::node_id(fault.node), facts);
        if !up {
            self.events.add(self.now_ms + ELECTION_MS, Event::Elect { node: fault.node });
        }
    }

    pub(super) fn on_elect(&mut self, node: u32) {
        if self.nodes[node as usize].up {
            return;
        }
        let led: Vec<u32> = self.nodes[node as usize]
            .live
            .iter()
            .chain(&self.nodes[node as usize].still)
            .copied()
            .collect();
        for id in led {
            let next =
                self.parts[id as usize].voters().find(|voter| self.nodes[*voter as usize].up);
            if let Some(next) = next {
                self.elect(id, next);
            }
        }
    }

    /// Makes a voter the leader.
    pub(super) fn elect(&mut self, id: u32, voter: u32) {
        let live = self.tables[self.parts[id as usize].table as usize].live;
        self.join_nodes(id, live, -1.0);
        self.parts[id as usize].lead(voter, self.now_ms);
        self.join_nodes(id, live, 1.0);
        self.note(&[4, u64::from(id), u64::from(voter)]);
    }
}
