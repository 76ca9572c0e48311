//! Moves that are made although nothing is lost: replicas that share a zone needlessly, and replicas of nodes that
//! hold more than others.
//!
//! Invariants:
//! - a move apart leaves fewer pairs of a partition's replicas in one zone; a move that balances leaves no more of
//!   them, and reduces the sum of the squares of what nodes hold. So the two never undo each other, and they end;
//! - a partition whose group has no quorum is left alone.

use std::collections::BTreeSet;

use partita_proto::id::{NodeId, PartitionId, ReplicaId};

use super::{PartitionView, Planner, Step, Why, nodes_without};

/// Maximum moves at once when nothing is lost: they can wait, and they take resources from queries.
const BALANCING_MAX: usize = 2;
/// Minimum ratio of the difference between two nodes to the weight of what moves; above 1, so that the difference
/// shrinks and nothing moves back and forth.
const GAIN_MIN: f64 = 1.25;
/// Below this many bytes per node, sizes are ignored.
const BYTES_THAT_MATTER: u64 = 64 << 20;

/// Weights of a replica and of a byte, in units of the mean load of a node. Moves do not change them.
struct Scale {
    replica: f64,
    /// Zero if there are few bytes.
    byte: f64,
}

impl Scale {
    fn weight(&self, replicas: u64, bytes: u64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a comparison of sizes")]
        let (replicas, bytes) = (replicas as f64, bytes as f64);
        replicas * self.replica + bytes * self.byte
    }
}

impl<'a> Planner<'a> {
    /// Moves replicas apart that share a zone, then from the fullest nodes to the emptiest, as long as that reduces
    /// the difference.
    pub(super) fn balance_replicas(&mut self) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut moved = BTreeSet::new();
        let scale = self.scale();
        while steps.len() < BALANCING_MAX {
            let next = self.move_apart(&moved).or_else(|| self.best_move(&scale, &moved));
            let Some((partition, replica, source, destination, why)) = next else { break };
            if let Some((replicas, bytes)) = self.load.get_mut(&source) {
                *replicas -= 1;
                *bytes = bytes.saturating_sub(partition.bytes);
            }
            self.put(destination, partition.bytes);
            moved.insert(partition.id);
            let (add, remove) = (vec![destination], vec![replica]);
            steps.push(Step::Move { partition: partition.id, add, remove, why });
        }
        steps
    }

    /// Partitions that may be moved and are not moved already.
    fn movable(&self, moved: &BTreeSet<PartitionId>) -> impl Iterator<Item = &'a PartitionView> {
        let partitions = self.view.partitions.iter();
        partitions.filter(|partition| {
            partition.is_free() && !moved.contains(&partition.id) && self.can_decide(partition)
        })
    }

    /// The first move that gives a replica fewer neighbours in its zone.
    fn move_apart(&self, moved: &BTreeSet<PartitionId>) -> Option<Move<'a>> {
        self.movable(moved).find_map(|partition| {
            let nodes: Vec<NodeId> = partition.replicas.values().copied().collect();
            // The most crowded replica; among equals a follower, on the fullest node.
            let crowded = partition.replicas.iter().filter_map(|(replica, node)| {
                let load = self.load.get(node)?;
                let leads = partition.leader == Some(*node);
                Some((self.zones.company(*node, &nodes), !leads, *load, *replica, *node))
            });
            let (company, _, _, replica, source) = crowded.max()?;
            if company == 0 {
                return None;
            }
            let neighbours = nodes_without(partition, &[(replica, source)]);
            let destination = self.best_place(&nodes.into_iter().collect(), &neighbours)?;
            let improves = self.zones.company(destination, &neighbours) < company;
            improves.then_some((partition, replica, source, destination, Why::Zone))
        })
    }

    /// The best move from the fullest node that can give something to the emptiest node that can take it.
    fn best_move(&self, scale: &Scale, moved: &BTreeSet<PartitionId>) -> Option<Move<'a>> {
        // Nodes in ascending order of weight.
        let full = |(node, (replicas, bytes)): (&NodeId, &(u64, u64))| {
            (scale.weight(*replicas, *bytes), *node)
        };
        let mut nodes: Vec<(f64, NodeId)> = self.load.iter().map(full).collect();
        nodes.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let least = GAIN_MIN * scale.weight(1, 0);
        let (emptiest, _) = *nodes.first()?;
        for (fullness, source) in nodes.iter().rev().copied() {
            if fullness - emptiest <= least {
                break;
            }
            // Replicas of this node that may be moved.
            let movable: Vec<_> = self
                .movable(moved)
                .filter_map(|partition| {
                    let mut replicas = partition.replicas.iter();
                    let (replica, _) = replicas.find(|(_, node)| **node == source)?;
                    Some((partition, *replica))
                })
                .collect();
            let candidates =
                nodes.iter().copied().take_while(|(weight, _)| fullness - weight > least);
            for (weight, destination) in candidates {
                let best =
                    self.best_between(scale, &movable, (source, destination), fullness - weight);
                if let Some((partition, replica)) = best {
                    return Some((partition, replica, source, destination, Why::Balance));
                }
            }
        }
        None
    }

    /// The replica whose move leaves the smallest difference between two nodes.
    fn best_between(
        &self,
        scale: &Scale,
        movable: &[(&'a PartitionView, ReplicaId)],
        (source, destination): (NodeId, NodeId),
        gap: f64,
    ) -> Option<(&'a PartitionView, ReplicaId)> {
        let mut best: Option<(f64, &PartitionView, ReplicaId)> = None;
        for (partition, replica) in movable.iter().copied() {
            if partition.replicas.values().any(|node| *node == destination) {
                continue;
            }
            let weight = scale.weight(1, partition.bytes);
            // Difference after the move.
            let difference = (gap - 2.0 * weight).abs();
            let better = best.is_none_or(|(best, ..)| difference < best);
            if gap > GAIN_MIN * weight
                && better
                && self.stays_apart(partition, (replica, source), destination)
            {
                best = Some((difference, partition, replica));
            }
        }
        best.map(|(_, partition, replica)| (partition, replica))
    }

    /// True if a replica has no more neighbours in the other node's zone than in its own.
    fn stays_apart(
        &self,
        partition: &PartitionView,
        place: (ReplicaId, NodeId),
        destination: NodeId,
    ) -> bool {
        let neighbours = nodes_without(partition, &[place]);
        self.zones.company(destination, &neighbours) <= self.zones.company(place.1, &neighbours)
    }

    #[expect(clippy::cast_precision_loss, reason = "a comparison of sizes")]
    fn scale(&self) -> Scale {
        let nodes = self.load.len() as f64;
        let total: u64 = self.load.values().map(|(replicas, _)| *replicas).sum();
        let bytes: u64 = self.load.values().map(|(_, bytes)| *bytes).sum();
        let matters = bytes >= BYTES_THAT_MATTER * self.load.len() as u64 && bytes > 0;
        let byte = if matters { nodes / bytes as f64 } else { 0.0 };
        Scale { replica: nodes / total.max(1) as f64, byte }
    }
}

/// Partition, replica, present node, new node, reason.
type Move<'a> = (&'a PartitionView, ReplicaId, NodeId, NodeId, Why);
