//! The round that relieves busy nodes: leaders move first, and replicas only where that cannot help.
//!
//! Invariants: as in `rounds.rs`; within a round a node's load includes the decisions made so far; a tail keeps its
//! leader while its node has less than [`TAIL_STAYS_BELOW`] times the mean load; a move never puts a replica closer, by
//! zone, to the others of its partition.

use super::heat::Heat;
use super::places::{BUSY, LIVE, NO_NODE, NONE, NodeState, micro};
use super::{REPLICA_MOVES_MAX, Scheduler, TRANSFERS_MAX};
use crate::action::{Action, MoveWhy, Step};
use crate::balance::{self, Candidate, NodeLoad, TOO_BUSY_FOR_MS};
use crate::facts::NodeId;
use crate::verdict::Class;

/// Maximum leaders that leave one node in one tick; their effect is measured before the next ones go.
pub(super) const TRANSFERS_A_TICK: usize = 4;
/// Maximum nodes that are relieved in one tick: with four transfers each, the maximum in progress.
const RELIEVED_A_TICK: usize = 16;
/// Multiple of the mean load up to which a node keeps its tails' leaders, because a tail moves on by itself at its next
/// split.
const TAIL_STAYS_BELOW: f64 = 1.5;
/// Time for transfers to relieve a node before replicas move.
const REPLICAS_AFTER_MS: u64 = 2 * TOO_BUSY_FOR_MS;
/// Number of least used nodes that are targets for a replica.
const COOLEST: usize = 8;
/// Reciprocal of the part of all partitions that one tick searches for replicas ...
const SEARCH_PARTS: usize = 32;
/// ... and the minimum number of partitions.
const SEARCH_MIN: usize = 4_096;
/// Seconds of its budget by which moves of replicas may run ahead.
const MOVE_BURST_S: f64 = 60.0;
/// Minimum interval of balancing.
const BALANCE_EVERY_MS: u64 = 1_000;

impl Scheduler {
    fn node_loads(&self) -> Vec<NodeLoad> {
        let load_of = |node: &NodeState| NodeLoad {
            load: node.load(),
            capacity: node.capacity(),
            open: node.open(),
        };
        self.places.nodes.iter().map(load_of).collect()
    }

    /// Records which nodes have more than their share of load, and since when.
    pub(super) fn measure_nodes(&mut self, now_ms: u64) {
        let nodes = self.node_loads();
        self.mean_used = balance::mean(&nodes);
        for (state, node) in self.places.nodes.iter_mut().zip(&nodes) {
            if balance::too_busy(node, self.mean_used) {
                state.busy_since_ms.get_or_insert(now_ms);
            } else {
                state.busy_since_ms = None;
            }
        }
    }

    /// Moves leaders, and where that cannot help replicas, off nodes that have been too busy for long.
    pub(super) fn balance(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        if self.balanced_ms.is_some_and(|last| now_ms < last + BALANCE_EVERY_MS) {
            return;
        }
        self.balanced_ms = Some(now_ms);
        let mut nodes = self.node_loads();
        let mut busy: Vec<(u16, u64)> = Vec::new();
        for (index, node) in self.places.nodes.iter().enumerate() {
            let for_ms = node.busy_since_ms.map_or(0, |start_ms| now_ms.saturating_sub(start_ms));
            if for_ms >= TOO_BUSY_FOR_MS {
                busy.push((u16::try_from(index).unwrap_or(NO_NODE), for_ms));
            }
        }
        busy.sort_by(|a, b| {
            nodes[usize::from(b.0)].used().total_cmp(&nodes[usize::from(a.0)].used())
        });
        let mut stuck: Vec<u16> = Vec::new();
        for (index, for_ms) in busy.into_iter().take(RELIEVED_A_TICK) {
            let transferred = self.transfer_from(now_ms, index, &mut nodes, actions);
            if transferred == 0 && for_ms >= REPLICAS_AFTER_MS && !self.is_being_left(index) {
                stuck.push(index);
            }
        }
        if !stuck.is_empty() {
            self.move_replicas(now_ms, &stuck, &mut nodes, actions);
        }
    }

    /// True if transfers off a node are in progress.
    fn is_being_left(&self, node: u16) -> bool {
        let leaves = |step: &Step| match step {
            Step::TransferLeader { partition, .. } => self
                .places
                .slot(*partition)
                .is_some_and(|slot| self.places.part(slot).leader == node),
            Step::Split { .. }
            | Step::Merge { .. }
            | Step::MoveReplica { .. }
            | Step::Rekey { .. } => false,
        };
        self.under_way(leaves) > 0
    }

    /// Partitions that a node leads and that may be moved now.
    fn movable(&self, now_ms: u64, index: u16) -> Vec<u32> {
        let node = self.places.node(index);
        let used = node.load() / node.capacity();
        let tails_too = used > self.mean_used * TAIL_STAYS_BELOW;
        let mut slots: Vec<u32> = node
            .leads
            .iter()
            .copied()
            .filter(|slot| {
                let class = self.heat.get(slot).and_then(Heat::class);
                let tail = class.is_some_and(Class::is_moving);
                self.is_free(now_ms, *slot) && (tails_too || !tail)
            })
            .collect();
        // The order of leaders on a node depends on the arrival of reports; that of slots does not.
        slots.sort_unstable();
        slots
    }

    fn transfer_from(
        &mut self,
        now_ms: u64,
        source: u16,
        nodes: &mut [NodeLoad],
        actions: &mut Vec<Action>,
    ) -> usize {
        // Candidates are the node's leaders, each with the other voters as targets.
        let mut slots = self.movable(now_ms, source);
        let mut candidates: Vec<Candidate> = slots
            .iter()
            .map(|slot| {
                let part = self.places.part(*slot);
                let targets =
                    part.voters().iter().copied().filter(|voter| *voter != source).collect();
                Candidate { moved: part.leadership_load(), bytes: 0, targets }
            })
            .collect();
        let mut under_way = self.under_way(|step| matches!(step, Step::TransferLeader { .. }));
        let mut count = 0;
        // Choose one after the other: each transfer changes the loads for the next choice.
        while count < TRANSFERS_A_TICK && under_way < TRANSFERS_MAX {
            let Some((index, target)) = balance::pick(source, self.mean_used, nodes, &candidates)
            else {
                break;
            };
            let candidate = candidates.swap_remove(index);
            let slot = slots.swap_remove(index);
            let why = self.move_why(source, target, nodes, candidate.moved);
            let partition = self.places.part(slot).id;
            let step = Step::TransferLeader { partition, to: self.id_of(target), why };
            actions.push(self.move_under_way(
                now_ms,
                slot,
                step,
                source,
                target,
                candidate.moved,
                nodes,
            ));
            count += 1;
            under_way += 1;
        }
        count
    }

    /// Moves replicas, leaders' and followers', off nodes that transfers cannot relieve. Followers are not indexed by
    /// node, so each call searches a part of all partitions.
    fn move_replicas(
        &mut self,
        now_ms: u64,
        stuck: &[u16],
        nodes: &mut [NodeLoad],
        actions: &mut Vec<Action>,
    ) {
        // Refill the budget of bytes, and sort the possible targets by load.
        let a_second = self.options.move_bytes_per_s as f64;
        self.move_tokens.refill(now_ms, a_second, a_second * MOVE_BURST_S);
        let slots_by_node = self.search_replicas(now_ms, stuck);
        let mut coolest: Vec<u16> =
            (0..nodes.len()).filter_map(|node| u16::try_from(node).ok()).collect();
        coolest.retain(|node| nodes[usize::from(*node)].open && !stuck.contains(node));
        coolest.sort_by(|a, b| {
            nodes[usize::from(*a)].used().total_cmp(&nodes[usize::from(*b)].used())
        });
        let mut chosen: Vec<u32> = Vec::new();
        for (source, slots) in stuck.iter().zip(slots_by_node) {
            if self.under_way(|step| matches!(step, Step::MoveReplica { .. })) >= REPLICA_MOVES_MAX
            {
                return;
            }
            // A replica may go to the least used nodes that have none of its partition and do not bring it closer to
            // the others by zone.
            let candidates: Vec<Candidate> = slots
                .iter()
                .map(|slot| {
                    let part = self.places.part(*slot);
                    let fresh = coolest.iter().copied().filter(|node| {
                        !part.voters().contains(node)
                            && self.places.stays_apart(part, *source, *node)
                    });
                    let targets = if chosen.contains(slot) {
                        Vec::new()
                    } else {
                        fresh.take(COOLEST).collect()
                    };
                    let moved = if part.leader == *source {
                        part.lead_load()
                    } else {
                        part.follower_load()
                    };
                    Candidate { moved, bytes: part.window.size_bytes().max(1), targets }
                })
                .collect();
            // One move per node and round, as long as the budget lasts.
            let Some((index, target)) = balance::pick(*source, self.mean_used, nodes, &candidates)
            else {
                continue;
            };
            let candidate = &candidates[index];
            if !self.move_tokens.take_on_credit(candidate.bytes as f64) {
                return;
            }
            let slot = slots[index];
            chosen.push(slot);
            let why = self.move_why(*source, target, nodes, candidate.moved);
            let (source_id, target_id) = (self.id_of(*source), self.id_of(target));
            let step = Step::MoveReplica {
                partition: self.places.part(slot).id,
                from: source_id,
                to: target_id,
                why,
            };
            actions.push(self.move_under_way(
                now_ms,
                slot,
                step,
                *source,
                target,
                candidate.moved,
                nodes,
            ));
        }
    }

    /// Partitions with a replica on each of these nodes that may be moved now, within a part of all partitions.
    fn search_replicas(&mut self, now_ms: u64, nodes: &[u16]) -> Vec<Vec<u32>> {
        let count = self.places.parts.len();
        let mut slots_by_node: Vec<Vec<u32>> = vec![Vec::new(); nodes.len()];
        for _ in 0..(count / SEARCH_PARTS).max(SEARCH_MIN).min(count) {
            self.search = if self.search + 1 >= count { 0 } else { self.search + 1 };
            let slot = u32::try_from(self.search).unwrap_or(NONE);
            let part = self.places.part(slot);
            for (node, slots) in nodes.iter().zip(&mut slots_by_node) {
                if part.is(LIVE) && part.voters().contains(node) && self.is_free(now_ms, slot) {
                    slots.push(slot);
                }
            }
        }
        slots_by_node
    }

    /// True if a partition may be moved now.
    pub(super) fn is_free(&self, now_ms: u64, slot: u32) -> bool {
        !self.places.part(slot).is(BUSY) && self.past(slot).is_none_or(|past| past.may_move(now_ms))
    }

    fn id_of(&self, index: u16) -> NodeId {
        self.places.node(index).id
    }

    fn move_why(&self, source: u16, target: u16, nodes: &[NodeLoad], moved: f64) -> MoveWhy {
        MoveWhy {
            from_load: nodes[usize::from(source)].used(),
            to_load: nodes[usize::from(target)].used(),
            mean_load: self.mean_used,
            moved,
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the two callers' common end")]
    fn move_under_way(
        &mut self,
        now_ms: u64,
        slot: u32,
        step: Step,
        source: u16,
        target: u16,
        moved: f64,
        nodes: &mut [NodeLoad],
    ) -> Action {
        nodes[usize::from(source)].load -= moved;
        nodes[usize::from(target)].load += moved;
        let table = self.places.table_of(slot).id;
        self.propose(now_ms, table, step, vec![(source, -micro(moved)), (target, micro(moved))])
    }
}
