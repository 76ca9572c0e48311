//! Topology and loads: partitions in key order, the nodes of their replicas, and the load of each node.
//!
//! Invariants:
//! - the state per partition has a fixed size ([`Part`], under 200 bytes); state that only few partitions have is kept
//!   elsewhere;
//! - a node's load is the sum of its replicas' charges, in whole millionths of a core, so that charging and taking back
//!   leave no trace however often they are done;
//! - every walk is in key order, in the order of slots, or in that of node indexes.

use std::collections::BTreeMap;

use super::index::Index;
use crate::facts::{NodeFacts, NodeId, PartitionFacts, PartitionId, TableFacts, TableId};
use crate::tokens::Tokens;
use crate::window::{Rates, Window, seconds};

/// Stands for no partition or no node.
pub(super) const NONE: u32 = u32::MAX;
pub(super) const NO_NODE: u16 = u16::MAX;
/// Maximum voters that are considered; others are ignored as targets.
const VOTERS_MAX: usize = 7;
/// Cost of applying a row on a follower, relative to its cost on the leader (to be calibrated on real nodes).
const FOLLOWER_SHARE: f64 = 0.4;
/// Units of charged load per core.
const MICRO: f64 = 1e6;

/// Flag: an action holds the partition.
pub(super) const BUSY: u8 = 1;
/// Flag: in the list of hot partitions.
pub(super) const HOT: u8 = 2;
/// Flag: in the list of large partitions.
pub(super) const LARGE: u8 = 4;
/// Flag: its work is being watched after a split.
pub(super) const WATCHED: u8 = 8;
/// Flag: it has a history.
pub(super) const HAS_PAST: u8 = 16;
/// Flag: the slot holds a partition; a slot without it is free.
pub(super) const LIVE: u8 = 32;
/// Flag: it was split at the edge at which it grew.
pub(super) const FULL: u8 = 64;

/// State of a partition.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) id: PartitionId,
    pub(super) window: Window,
    pub(super) table: u32,
    /// Neighbours in key order.
    pub(super) left: u32,
    pub(super) right: u32,
    /// Position among the partitions that its leader's node leads.
    seat: u32,
    pub(super) born_s: u32,
    voters: [u16; VOTERS_MAX],
    pub(super) leader: u16,
    pub(super) key_epoch: u16,
    voter_count: u8,
    pub(super) flags: u8,
}

impl Part {
    pub(super) fn voters(&self) -> &[u16] {
        &self.voters[..usize::from(self.voter_count)]
    }

    pub(super) fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The size to split it at, bytes. A partition that was split at its edge when it had grown a little beyond the
    /// table's size is full, and must not be split again for that.
    pub(super) fn cut_at_bytes(&self, facts: &TableFacts) -> u64 {
        if self.is(FULL) { facts.partition_bytes.saturating_mul(2) } else { facts.partition_bytes }
    }

    /// Cores that each follower spends.
    pub(super) fn follower_load(&self) -> f64 {
        self.window.rho_60() * FOLLOWER_SHARE
    }

    /// Cores that the leader spends.
    pub(super) fn lead_load(&self) -> f64 {
        self.window.rho_60() + self.window.reads_60()
    }

    /// Cores that move with the leadership: the work that the old leader's replica continues as a follower stays.
    pub(super) fn leadership_load(&self) -> f64 {
        self.window.rho_60() * (1.0 - FOLLOWER_SHARE) + self.window.reads_60()
    }

    /// Charges of the leader and of a follower.
    fn charges(&self) -> (i64, i64) {
        (micro(self.lead_load()), micro(self.follower_load()))
    }
}

/// A node with its load and the partitions that it leads.
#[derive(Clone, Debug)]
pub(super) struct NodeState {
    pub(super) id: NodeId,
    pub(super) facts: NodeFacts,
    /// Load in millionths of a core: measured ...
    load: i64,
    /// ... and expected from orders in progress.
    pending: i64,
    /// Slots of the partitions that it leads.
    pub(super) leads: Vec<u32>,
    /// Time since when it has had more than its share of load.
    pub(super) busy_since_ms: Option<u64>,
}

impl NodeState {
    /// Load in cores, with orders in progress.
    pub(super) fn load(&self) -> f64 {
        (self.load + self.pending).max(0) as f64 / MICRO
    }

    /// Load in cores, as measured.
    pub(super) fn measured(&self) -> f64 {
        self.load.max(0) as f64 / MICRO
    }

    pub(super) fn open(&self) -> bool {
        self.facts.up && !self.facts.draining
    }

    pub(super) fn capacity(&self) -> f64 {
        self.facts.capacity.max(1e-6)
    }
}

/// A table with the budgets and the progress of its splits and merges.
#[derive(Clone, Debug)]
pub(super) struct TableState {
    pub(super) id: TableId,
    pub(super) facts: TableFacts,
    /// First partition in key order.
    pub(super) head: u32,
    pub(super) count: usize,
    /// Number of splits in progress.
    pub(super) splitting: usize,
    pub(super) merging: bool,
    pub(super) merge_ready_ms: u64,
    pub(super) rekey_ready_ms: u64,
    /// Time until which a hash of new rows is being introduced, or has not shown its effect.
    pub(super) spreading_until_ms: u64,
    pub(super) load_tokens: Tokens,
    pub(super) size_tokens: Tokens,
    pub(super) live: bool,
}

/// Converts cores to millionths.
#[expect(clippy::cast_possible_truncation, reason = "clamped to the range before")]
pub(super) fn micro(cores: f64) -> i64 {
    (cores.clamp(0.0, 1e9) * MICRO) as i64
}

/// Partitions, tables and nodes. See the head of the file.
#[derive(Debug, Default)]
pub(super) struct Places {
    pub(super) parts: Vec<Part>,
    free: Vec<u32>,
    index: Index,
    pub(super) tables: Vec<TableState>,
    table_by_id: BTreeMap<TableId, u32>,
    pub(super) nodes: Vec<NodeState>,
    node_by_id: BTreeMap<NodeId, u16>,
}

impl Places {
    pub(super) fn slot(&self, id: PartitionId) -> Option<u32> {
        self.index.get(id, |slot| self.parts[slot as usize].id)
    }

    pub(super) fn part(&self, slot: u32) -> &Part {
        &self.parts[slot as usize]
    }

    pub(super) fn part_mut(&mut self, slot: u32) -> &mut Part {
        &mut self.parts[slot as usize]
    }

    pub(super) fn table_of(&self, slot: u32) -> &TableState {
        &self.tables[self.part(slot).table as usize]
    }

    pub(super) fn table_of_mut(&mut self, slot: u32) -> &mut TableState {
        let table = self.part(slot).table as usize;
        &mut self.tables[table]
    }

    pub(super) fn table(&self, id: TableId) -> Option<&TableState> {
        self.table_by_id.get(&id).map(|index| &self.tables[*index as usize])
    }

    pub(super) fn table_mut(&mut self, id: TableId) -> Option<&mut TableState> {
        self.table_by_id.get(&id).map(|index| &mut self.tables[*index as usize])
    }

    pub(super) fn node_index(&self, id: NodeId) -> Option<u16> {
        self.node_by_id.get(&id).copied()
    }

    pub(super) fn node(&self, index: u16) -> &NodeState {
        &self.nodes[usize::from(index)]
    }

    pub(super) fn node_mut(&mut self, index: u16) -> &mut NodeState {
        &mut self.nodes[usize::from(index)]
    }

    /// True if a replica that moved between these nodes would share its zone with no more of its partition's other
    /// replicas than now.
    pub(super) fn stays_apart(&self, part: &Part, source: u16, target: u16) -> bool {
        let company = |index: u16| {
            let zone = self.node(index).facts.zone;
            let shares_zone =
                |voter: &&u16| **voter != source && self.node(**voter).facts.zone == zone;
            zone.map_or(0, |_| part.voters().iter().filter(shares_zone).count())
        };
        company(target) <= company(source)
    }

    pub(super) fn node_id(&self, index: u16) -> Option<NodeId> {
        self.nodes.get(usize::from(index)).map(|node| node.id)
    }

    /// The node's index; an unknown node is added with default facts. `None` only when there are more nodes than
    /// indexes.
    pub(super) fn know_node(&mut self, id: NodeId) -> Option<u16> {
        if let Some(index) = self.node_index(id) {
            return Some(index);
        }
        let index = u16::try_from(self.nodes.len()).ok().filter(|index| *index != NO_NODE)?;
        let facts = NodeFacts::default();
        self.nodes.push(NodeState {
            id,
            facts,
            load: 0,
            pending: 0,
            leads: Vec::new(),
            busy_since_ms: None,
        });
        self.node_by_id.insert(id, index);
        Some(index)
    }

    pub(super) fn set_table(&mut self, id: TableId, facts: TableFacts) {
        if let Some(table) = self.table_mut(id) {
            table.facts = facts;
            return;
        }
        let index = u32::try_from(self.tables.len()).expect("fewer tables than 2^32");
        self.table_by_id.insert(id, index);
        self.tables.push(TableState {
            id,
            facts,
            head: NONE,
            count: 0,
            splitting: 0,
            merging: false,
            merge_ready_ms: 0,
            rekey_ready_ms: 0,
            spreading_until_ms: 0,
            load_tokens: Tokens::default(),
            size_tokens: Tokens::default(),
            live: true,
        });
    }

    /// Removes a table; its partitions must have been removed.
    pub(super) fn drop_table(&mut self, id: TableId) {
        if let Some(index) = self.table_by_id.remove(&id) {
            self.tables[index as usize].live = false;
        }
    }

    /// The slots of a table, in key order.
    pub(super) fn slots_of(&self, id: TableId) -> Vec<u32> {
        let mut slots = Vec::new();
        let mut slot = self.table(id).map_or(NONE, |table| table.head);
        while slot != NONE {
            slots.push(slot);
            slot = self.part(slot).right;
        }
        slots
    }

    /// Rates of a table's partitions, in key order.
    pub(super) fn rates_of(&self, id: TableId, now_ms: u64) -> Vec<Rates> {
        let slots = self.slots_of(id).into_iter();
        slots.map(|slot| self.part(slot).window.rates(now_ms)).collect()
    }

    /// Adds a partition right of `left` (or as the table's first). It has no load until it gets a window.
    pub(super) fn insert(&mut self, table: TableId, left_slot: u32, facts: &PartitionFacts) -> u32 {
        let table = self.table_by_id[&table];
        let right_slot = if left_slot == NONE {
            self.tables[table as usize].head
        } else {
            self.part(left_slot).right
        };
        let part = Part {
            id: facts.id,
            window: Window::default(),
            table,
            left: left_slot,
            right: right_slot,
            seat: 0,
            born_s: seconds(facts.born_ms),
            voters: [NO_NODE; VOTERS_MAX],
            leader: NO_NODE,
            key_epoch: facts.key_epoch,
            voter_count: 0,
            flags: if facts.full { LIVE | FULL } else { LIVE },
        };
        let slot = if let Some(slot) = self.free.pop() {
            *self.part_mut(slot) = part;
            slot
        } else {
            // Not by doubling: a cluster's partitions grow slowly, and half of the memory would be unused.
            if self.parts.len() == self.parts.capacity() {
                self.parts.reserve_exact(self.parts.len() / 16 + 64);
            }
            self.parts.push(part);
            u32::try_from(self.parts.len() - 1).expect("fewer partitions than 2^32")
        };
        let parts = &self.parts;
        self.index.insert(facts.id, slot, |slot| parts[slot as usize].id);
        self.link(table, left_slot, slot);
        self.link(table, slot, right_slot);
        self.tables[table as usize].count += 1;
        self.set_voters(slot, &facts.voters);
        if let Some(leader) = facts.leader.and_then(|leader| self.know_node(leader)) {
            self.set_leader(slot, leader);
        }
        slot
    }

    /// Makes two partitions neighbours.
    fn link(&mut self, table: u32, left_slot: u32, right_slot: u32) {
        if left_slot == NONE {
            self.tables[table as usize].head = right_slot;
        } else {
            self.part_mut(left_slot).right = right_slot;
        }
        if right_slot != NONE {
            self.part_mut(right_slot).left = left_slot;
        }
    }

    pub(super) fn remove(&mut self, slot: u32) {
        self.charge(slot, -1);
        self.unseat(slot);
        let Part { id, table, left: left_slot, right: right_slot, .. } = *self.part(slot);
        self.link(table, left_slot, right_slot);
        let parts = &self.parts;
        self.index.remove(id, |slot| parts[slot as usize].id);
        self.tables[table as usize].count -= 1;
        self.part_mut(slot).flags = 0;
        self.free.push(slot);
    }

    /// Sets the order of a table's partitions.
    pub(super) fn relink(&mut self, table: TableId, slots: &[u32]) {
        let table = self.table_by_id[&table];
        let mut left_slot = NONE;
        for slot in slots {
            self.link(table, left_slot, *slot);
            left_slot = *slot;
        }
        self.link(table, left_slot, NONE);
    }

    pub(super) fn set_voters(&mut self, slot: u32, voters: &[NodeId]) {
        self.charge(slot, -1);
        let mut indexes: Vec<u16> = voters.iter().filter_map(|id| self.know_node(*id)).collect();
        indexes.sort_unstable();
        indexes.dedup();
        indexes.truncate(VOTERS_MAX);
        let part = self.part_mut(slot);
        part.voter_count = u8::try_from(indexes.len()).unwrap_or(0);
        part.voters = [NO_NODE; VOTERS_MAX];
        part.voters[..indexes.len()].copy_from_slice(&indexes);
        self.charge(slot, 1);
    }

    pub(super) fn set_leader(&mut self, slot: u32, leader: u16) {
        if self.part(slot).leader == leader {
            return;
        }
        self.charge(slot, -1);
        self.unseat(slot);
        let seat = self.node(leader).leads.len();
        self.node_mut(leader).leads.push(slot);
        let part = self.part_mut(slot);
        part.leader = leader;
        part.seat = u32::try_from(seat).expect("fewer partitions than 2^32");
        self.charge(slot, 1);
    }

    fn unseat(&mut self, slot: u32) {
        let Part { leader, seat, .. } = *self.part(slot);
        if leader == NO_NODE {
            return;
        }
        let leads = &mut self.node_mut(leader).leads;
        leads.swap_remove(seat as usize);
        let moved = leads.get(seat as usize).copied();
        if let Some(moved) = moved {
            self.part_mut(moved).seat = seat;
        }
        self.part_mut(slot).leader = NO_NODE;
    }

    /// Changes a partition's window, and its nodes' charges.
    pub(super) fn change_window<T>(
        &mut self,
        slot: u32,
        change: impl FnOnce(&mut Window) -> T,
    ) -> T {
        let part = &mut self.parts[slot as usize];
        let (lead_before, follow_before) = part.charges();
        let result = change(&mut part.window);
        let (lead, follow) = part.charges();
        let (lead, follow) = (lead - lead_before, follow - follow_before);
        if lead != 0 || follow != 0 {
            add(&mut self.nodes, part, lead, follow);
        }
        result
    }

    /// Charges the nodes for a partition (`sign` 1), or takes the charge back (-1).
    fn charge(&mut self, slot: u32, sign: i64) {
        let part = &self.parts[slot as usize];
        let (lead, follow) = part.charges();
        add(&mut self.nodes, part, sign * lead, sign * follow);
    }

    /// Adds the expected effect of an order on a node's load; negative for relief.
    pub(super) fn expect(&mut self, node: u16, cores_micro: i64) {
        self.node_mut(node).pending += cores_micro;
    }

    /// Bytes of memory that grow with the number of partitions.
    pub(super) fn memory_bytes(&self) -> usize {
        let seats: usize = self.nodes.iter().map(|node| node.leads.capacity() * 4).sum();
        self.parts.capacity() * size_of::<Part>() + self.index.memory_bytes() + seats
    }
}

fn add(nodes: &mut [NodeState], part: &Part, lead: i64, follow: i64) {
    if let Some(leader) = nodes.get_mut(usize::from(part.leader)) {
        leader.load += lead;
    }
    for voter in part.voters().iter().filter(|voter| **voter != part.leader) {
        nodes[usize::from(*voter)].load += follow;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_goes_nowhere_where_it_shares_a_zone_with_more_than_before() {
        let mut places = Places::default();
        // Nodes 0 to 5; the last has no zone.
        for (node, zone) in (0..).zip([Some(1), Some(1), Some(2), Some(2), Some(3), None]) {
            let at = places.know_node(NodeId(node)).unwrap();
            places.node_mut(at).facts.zone = zone;
        }
        places.set_table(TableId(1), TableFacts::default());
        let voters = [0, 2, 5].map(NodeId).to_vec();
        let facts = PartitionFacts { id: PartitionId(1), voters, ..PartitionFacts::default() };
        let slot = places.insert(TableId(1), NONE, &facts);
        let may = |from, to| places.stays_apart(places.part(slot), from, to);
        // Within its zone, to one that has none, but not to that of another.
        assert!(may(0, 1) && may(0, 4) && !may(0, 3));
        assert!(may(2, 3) && !may(2, 1));
        assert!(may(5, 4) && !may(5, 1) && !may(5, 3));
    }
}
