//! One second of load: the demand on each partition, what lanes and nodes can serve of it, and the keys.
//!
//! Invariants: the demand on a table's partitions adds up to the demand on the table (patient clients hold back
//! the part that cannot be served now); a lane serves no more than its capacity, a node no more than its cores.

use super::Cluster;
use super::events::Event;
use super::parts::{NONE, Node, Partition};
use crate::number::whole;

/// Share of its capacity at which a lane counts as full.
const FULL_SHARE: f64 = 1.0 - 1e-9;

/// Share of a lane's full speed that a partition has in this second, given its leader's node and its stalls.
fn capacity(part: &Partition, node: &Node) -> f64 {
    let running = 1.0 - (part.stall_ms.min(1_000) as f64 / 1_000.0);
    if node.up { node.speed * running } else { 0.0 }
}

impl Cluster {
    pub(super) fn on_flow(&mut self) {
        self.events.add(self.now_ms + self.pace_ms, Event::Flow);
        for node in &mut self.nodes {
            node.load = node.still_load.max(0.0);
        }
        for table in 0..self.tables.len() {
            if self.tables[table].live {
                self.set_demand(table);
            }
        }
        for node in &mut self.nodes {
            let cores = self.options.cores * node.speed;
            node.factor = if node.load > cores { cores / node.load } else { 1.0 };
        }
        for table in 0..self.tables.len() {
            if self.tables[table].live {
                self.serve(table);
            }
        }
        self.feed_pickers();
        self.measure();
    }

    /// Computes the current demand on each partition of a table, and adds it to the load of the nodes.
    fn set_demand(&mut self, table: usize) {
        let at_us = self.at_us();
        let entry = &self.tables[table];
        let lane = self.options.lane_rows_per_s;
        let sources = &entry.load.sources;
        let count = entry.order.len();
        let (mut demand, mut written) = (vec![0.0; count], vec![0.0; count]);
        for source in sources {
            let rows = source.rate.at(at_us) * source.cost;
            let mut begin = 0.0;
            for (index, id) in entry.order.iter().enumerate() {
                let part = &self.parts[*id as usize];
                let end = part.high.as_deref().map_or(1.0, |key| source.law.below(at_us, key));
                let part_rows = rows * (end - begin).max(0.0);
                begin = end;
                demand[index] += part_rows;
                written[index] += if source.is_write() { part_rows } else { 0.0 };
            }
        }
        let offered: f64 = demand.iter().sum();
        let (mut held_back, mut patience) = (false, 1.0);
        if self.options.patient && offered > 0.0 {
            let requested = 1.0 + entry.backlog / offered;
            let room = entry.order.iter().zip(&demand).filter(|(_, rows)| **rows > 0.0);
            let room = room.map(|(id, rows)| self.capacity_of(*id) * lane / rows);
            let room = room.fold(f64::INFINITY, f64::min);
            (held_back, patience) = (requested > room, requested.min(room));
        }
        for (index, id) in entry.order.iter().enumerate() {
            let full =
                held_back && demand[index] * patience >= self.capacity_of(*id) * lane * FULL_SHARE;
            let part = &mut self.parts[*id as usize];
            part.count(self.now_ms);
            part.is_waited_for = full;
            part.offered = demand[index] * patience / lane;
            part.written_share =
                if demand[index] > 0.0 { written[index] / demand[index] } else { 1.0 };
            let leader = part.leader;
            let lane_share = part.offered.min(self.nodes[leader as usize].speed);
            for voter in part.voters.into_iter().filter(|voter| *voter != NONE) {
                // Followers apply writes, not reads.
                let weight = if voter == leader {
                    1.0
                } else {
                    self.options.follower_cost * part.written_share
                };
                self.nodes[voter as usize].load += weight * lane_share;
            }
        }
        self.tables[table].offered = offered;
    }

    fn capacity_of(&self, id: u32) -> f64 {
        let part = &self.parts[id as usize];
        capacity(part, &self.nodes[part.leader as usize])
    }

    /// Computes the part of a table's demand that lanes and nodes serve.
    fn serve(&mut self, table: usize) {
        let lane = self.options.lane_rows_per_s;
        for id in &self.tables[table].order {
            let part = &mut self.parts[*id as usize];
            let node = &self.nodes[part.leader as usize];
            let capacity = capacity(part, node) * node.factor;
            part.stall_ms = 0;
            part.served_rows = part.offered.min(capacity) * lane;
            part.busy = if capacity > 0.0 {
                (part.offered / (node.speed * node.factor)).min(1.0)
            } else {
                0.0
            };
        }
        let served: f64 =
            self.tables[table].order.iter().map(|id| self.parts[*id as usize].served_rows).sum();
        if self.options.patient {
            let entry = &mut self.tables[table];
            entry.backlog = (entry.backlog + entry.offered - served).max(0.0);
        }
        self.note(&[5, whole(served)]);
    }
}
