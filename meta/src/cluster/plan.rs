//! What is to change about where replicas are and who leads: a pure function of a view.
//!
//! In this order: what nodes have that is not theirs is removed; replicas that are lost are made anew
//! elsewhere, and those of draining nodes; partitions with too few or too many replicas get what they
//! should have; then, and only when nothing of that is left, replicas that share a zone for no need are
//! moved apart, and replicas and leaders are spread evenly.
//!
//! Invariants:
//! - a partition's replicas are changed by one step at a time, and a step never takes away more than
//!   it can spare: a replica that works goes only when one that works is to take its place, or when
//!   there are more than wanted;
//! - two replicas of a partition are never put on one node;
//! - a partition that is being split or merged keeps its replicas and its leader; when one of them is lost, the split
//!   or merge is given up first;
//! - zones decide where a replica goes, never whether: with too few of them, replicas share one;
//! - a plan that was carried out leaves nothing to balance: what it moves makes the difference
//!   smaller, never turns it round, and never brings replicas of a partition into one zone (see `balance.rs`).

mod balance;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use partita_proto::id::{NodeId, PartitionId, ReplicaId};

use crate::zones::Zones;

/// Changes of replicas that are under way at once, in all.
const MOVES_MAX: usize = 8;
/// Changes of leaders at once.
const TRANSFERS_MAX: usize = 16;

/// A node as the plan sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeView {
    /// Heard of lately.
    pub(crate) live: bool,
    /// Not heard of for so long that it is given up.
    pub(crate) lost: bool,
    pub(crate) draining: bool,
    /// The zone that its labels name.
    pub(crate) zone: Option<String>,
    /// What it says it has of each partition.
    pub(crate) has: BTreeMap<PartitionId, ReplicaId>,
    /// Whether it said anything.
    pub(crate) reported: bool,
}

/// A partition as the plan sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartitionView {
    pub(crate) id: PartitionId,
    pub(crate) replicas: BTreeMap<ReplicaId, NodeId>,
    /// Those that it is to have, when they are being changed.
    pub(crate) target: Option<BTreeMap<ReplicaId, NodeId>>,
    /// How many it should have.
    pub(crate) wanted: usize,
    /// Replicas that their node, although live, has not had for long.
    pub(crate) missing: BTreeSet<ReplicaId>,
    /// Who leads, or is about to.
    pub(crate) leader: Option<NodeId>,
    /// Its leader was moved a moment ago and is left alone.
    pub(crate) settling: bool,
    pub(crate) bytes: u64,
    /// Whether its replicas may be changed now, or when a split or merge that it is in is over.
    pub(crate) in_use: bool,
    /// It is in a split or a merge.
    pub(crate) reshaping: bool,
}

impl PartitionView {
    /// Whether its replicas and its leader may be changed at will.
    fn is_free(&self) -> bool {
        self.in_use && !self.reshaping && self.target.is_none()
    }
}

/// All that a plan is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) nodes: BTreeMap<NodeId, NodeView>,
    pub(crate) partitions: Vec<PartitionView>,
    /// Replicas of partitions that are being born: nodes may have them before anybody says so.
    pub(crate) unborn: BTreeSet<(PartitionId, ReplicaId, NodeId)>,
    /// Live nodes that do not have a replica yet that they should have. It may be one that is cut off from another
    /// there, which has not come so far: if that one left now, the new one would never be.
    pub(crate) awaited: BTreeSet<NodeId>,
}

/// Why a partition's replicas are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// A node or its data is lost.
    Lost,
    /// A node is being drained.
    Draining,
    /// There are fewer than there should be.
    TooFew,
    /// There are more than there should be.
    TooMany,
    /// It shares a zone with another one, and need not.
    Zone,
    /// A node has more than others.
    Balance,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Changes a partition's replicas.
    Move { partition: PartitionId, add: Vec<NodeId>, remove: Vec<ReplicaId>, why: Why },
    /// Hands a partition's leadership to another node.
    Transfer { partition: PartitionId, from: NodeId, to: NodeId },
    /// Gives up the split or merge that a partition is in: a replica of it is to be made anew.
    GiveUp { partition: PartitionId },
    /// Removes a replica that is nobody's.
    Remove { partition: PartitionId, replica: ReplicaId, node: NodeId },
}

/// What is to be done.
pub(crate) fn plan(view: &View) -> Vec<Step> {
    let mut planner = Planner::new(view);
    let mut steps = strangers(view);
    let moves = planner.repairs();
    let balanced = moves.is_empty() && planner.under_way == 0 && view.awaited.is_empty();
    steps.extend(moves);
    if balanced {
        steps.extend(planner.balance_replicas());
    }
    let moved: BTreeSet<PartitionId> = steps
        .iter()
        .filter_map(|step| match step {
            Step::Move { partition, .. } => Some(*partition),
            Step::Transfer { .. } | Step::GiveUp { .. } | Step::Remove { .. } => None,
        })
        .collect();
    steps.extend(transfers(view, &moved));
    steps
}

/// Replicas that nodes have and should not.
fn strangers(view: &View) -> Vec<Step> {
    let known: BTreeMap<PartitionId, &PartitionView> =
        view.partitions.iter().map(|partition| (partition.id, partition)).collect();
    let mut steps = Vec::new();
    for (node, has) in view.nodes.iter().filter(|(_, node)| node.live) {
        for (partition, replica) in &has.has {
            let belongs = known.get(partition).is_some_and(|known| {
                let target = known.target.as_ref().and_then(|target| target.get(replica));
                [known.replicas.get(replica), target].contains(&Some(node))
            });
            // A change that was taken back may have made it a voter already: the group counts on it until it has
            // agreed on those that it is to have now. One that is in the way of another there goes.
            let counted_on = known.get(partition).is_some_and(|known| {
                let mut to_be = known.target.iter().flat_map(BTreeMap::values);
                known.target.is_some() && to_be.all(|at| at != node)
            });
            let (partition, replica, node) = (*partition, *replica, *node);
            let unborn = view.unborn.contains(&(partition, replica, node));
            if !belongs && !counted_on && !unborn {
                steps.push(Step::Remove { partition, replica, node });
            }
        }
    }
    steps
}

/// How full nodes are while a plan is made.
struct Planner<'a> {
    view: &'a View,
    /// Replicas and bytes of each node that may take more.
    load: BTreeMap<NodeId, (u64, u64)>,
    zones: Zones,
    under_way: usize,
}

impl<'a> Planner<'a> {
    fn new(view: &'a View) -> Self {
        let takes = view.nodes.iter().filter(|(_, node)| node.live && !node.draining);
        let mut load: BTreeMap<_, _> = takes.map(|(node, _)| (*node, (0, 0))).collect();
        for partition in &view.partitions {
            for node in partition.target.as_ref().unwrap_or(&partition.replicas).values() {
                if let Some((replicas, bytes)) = load.get_mut(node) {
                    *replicas += 1;
                    *bytes += partition.bytes;
                }
            }
        }
        let zones = view.nodes.iter().map(|(node, seen)| (*node, seen.zone.as_deref()));
        let mut planner = Self { view, load, zones: Zones::new(zones), under_way: 0 };
        // One whose group cannot decide may wait for ever; others need not wait for it.
        let moving = |one: &&PartitionView| one.target.is_some() && planner.can_decide(one);
        planner.under_way = view.partitions.iter().filter(moving).count();
        planner
    }

    /// Whether enough replicas work for the group to agree on anything.
    fn can_decide(&self, partition: &PartitionView) -> bool {
        let works = |(replica, node): &(&ReplicaId, &NodeId)| {
            let live = self.view.nodes.get(node).is_some_and(|node| node.live);
            live && !partition.missing.contains(replica)
        };
        2 * partition.replicas.iter().filter(works).count() > partition.replicas.len()
    }

    /// Why a replica has to go; `None` when it does not.
    fn must_go(&self, partition: &PartitionView, replica: ReplicaId, node: NodeId) -> Option<Why> {
        let lost = self.view.nodes.get(&node).is_none_or(|node| node.lost);
        if lost || partition.missing.contains(&replica) {
            return Some(Why::Lost);
        }
        let draining = self.view.nodes.get(&node).is_some_and(|node| node.draining);
        (draining && !self.view.awaited.contains(&node)).then_some(Why::Draining)
    }

    fn repairs(&mut self) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut waiting: Vec<(Why, &PartitionView)> = Vec::new();
        for partition in self.view.partitions.iter().filter(|one| one.in_use) {
            // Somebody that it is to have got lost meanwhile: it is to have somebody else.
            let target_lost = self.target_lost(partition);
            if partition.reshaping {
                if target_lost || self.reason(partition) == Some(Why::Lost) {
                    steps.push(Step::GiveUp { partition: partition.id });
                }
                continue;
            }
            if partition.target.is_some() {
                if target_lost {
                    waiting.push((Why::Lost, partition));
                }
                continue;
            }
            waiting.extend(self.reason(partition).map(|why| (why, partition)));
        }
        // What is lost first; the fewer replicas a partition has left, the sooner.
        waiting.sort_by_key(|(why, partition)| {
            (*why != Why::Lost, partition.replicas.len() - self.bad(partition).len())
        });
        for (why, partition) in waiting {
            let replaces = partition.target.is_some();
            if !replaces && self.under_way >= MOVES_MAX {
                continue;
            }
            if let Some(step) = self.repair(why, partition) {
                self.under_way += usize::from(!replaces);
                steps.push(step);
            }
        }
        steps
    }

    /// Whether what a partition is to have cannot come about any more: a node is lost that it is to get a replica
    /// on, or too few of those that are to stay work for the group to agree on anything afterwards.
    fn target_lost(&self, partition: &PartitionView) -> bool {
        let Some(target) = &partition.target else { return false };
        let lost = |node: &NodeId| self.view.nodes.get(node).is_none_or(|node| node.lost);
        let is_new = |replica: &ReplicaId| !partition.replicas.contains_key(replica);
        let works = |(replica, node): &(&ReplicaId, &NodeId)| {
            !lost(node) && !partition.missing.contains(replica)
        };
        let mut new = target.iter().filter(|(replica, _)| is_new(replica));
        let too_few = 2 * target.iter().filter(works).count() <= target.len();
        new.any(|(_, node)| lost(node)) || (too_few && self.can_decide(partition))
    }

    fn reason(&self, partition: &PartitionView) -> Option<Why> {
        if !self.can_decide(partition) {
            // Its group could not change itself.
            return None;
        }
        let reasons: Vec<_> = partition
            .replicas
            .iter()
            .filter_map(|(replica, node)| self.must_go(partition, *replica, *node))
            .collect();
        if reasons.contains(&Why::Lost) {
            Some(Why::Lost)
        } else if partition.replicas.len() < partition.wanted {
            Some(Why::TooFew)
        } else if !reasons.is_empty() {
            Some(Why::Draining)
        } else {
            (partition.replicas.len() > partition.wanted).then_some(Why::TooMany)
        }
    }

    /// Replicas that have to go.
    fn bad(&self, partition: &PartitionView) -> Vec<(ReplicaId, NodeId)> {
        let all = partition.replicas.iter().map(|(replica, node)| (*replica, *node));
        all.filter(|(replica, node)| self.must_go(partition, *replica, *node).is_some()).collect()
    }

    fn repair(&mut self, why: Why, partition: &PartitionView) -> Option<Step> {
        let mut bad = self.bad(partition);
        // The lost ones first: they are of no use to anybody.
        bad.sort_by_key(|(replica, node)| {
            self.must_go(partition, *replica, *node) != Some(Why::Lost)
        });
        let mut nodes: BTreeSet<NodeId> = partition.replicas.values().copied().collect();
        // Where those are that stay, and those that come.
        let mut stay = nodes_without(partition, &bad);
        let (mut add, mut remove) = (Vec::new(), Vec::new());
        let have = partition.replicas.len();
        for _ in have..partition.wanted {
            let Some(node) = self.best_place(&nodes, &stay) else { break };
            self.put(node, partition.bytes);
            nodes.insert(node);
            stay.push(node);
            add.push(node);
        }
        let spare = have.saturating_sub(partition.wanted);
        for (replica, _) in bad.iter().take(spare) {
            remove.push(*replica);
        }
        for (replica, at) in bad.iter().skip(spare) {
            // One at a time: each change leaves a majority of what was there before.
            if !add.is_empty() {
                break;
            }
            let missing = partition.missing.contains(replica);
            let elsewhere = self.best_place(&nodes, &stay);
            let Some(node) = elsewhere.or_else(|| self.again(partition, *at, missing)) else {
                // One that is there and does not work is in the way of another on the same node.
                if missing && have - bad.len() > partition.wanted / 2 {
                    remove.push(*replica);
                }
                break;
            };
            self.put(node, partition.bytes);
            nodes.insert(node);
            add.push(node);
            remove.push(*replica);
        }
        while remove.len() < spare {
            let Some(replica) = self.most_dispensable(partition, &remove) else { break };
            remove.push(replica);
        }
        if add.is_empty() && !remove.is_empty() && !self.could_decide_without(partition, &remove) {
            return None;
        }
        let changes = !add.is_empty() || !remove.is_empty() || partition.target.is_some();
        changes.then_some(Step::Move { partition: partition.id, add, remove, why })
    }

    /// Whether enough of a partition's other replicas are seen in their places for them to agree on anything. One that
    /// is to be born may never be; a group that came to need it would be lost.
    fn could_decide_without(&self, partition: &PartitionView, gone: &[ReplicaId]) -> bool {
        let stay = || partition.replicas.iter().filter(|(replica, _)| !gone.contains(replica));
        let works = |(replica, node): &(&ReplicaId, &NodeId)| {
            let there = self.view.nodes.get(node).filter(|node| node.live);
            there.is_some_and(|node| node.has.get(&partition.id) == Some(*replica))
                && !partition.missing.contains(replica)
        };
        2 * stay().filter(works).count() > stay().count()
    }

    /// The node that lost a replica, if it can take another instead: it has nothing of it left.
    fn again(&self, partition: &PartitionView, node: NodeId, missing: bool) -> Option<NodeId> {
        let able = missing && self.load.contains_key(&node);
        let empty = self.view.nodes.get(&node).is_some_and(|n| !n.has.contains_key(&partition.id));
        (able && empty).then_some(node)
    }

    fn put(&mut self, node: NodeId, bytes: u64) {
        let (replicas, total) = self.load.entry(node).or_default();
        *replicas += 1;
        *total += bytes;
    }

    /// The node for one more replica: of those that have none yet, one with the fewest others in its zone, and of these
    /// the one with the least.
    fn best_place(&self, taken: &BTreeSet<NodeId>, others: &[NodeId]) -> Option<NodeId> {
        let free = self.load.iter().filter(|(node, _)| !taken.contains(node));
        let cost = |(node, (replicas, bytes)): &(&NodeId, &(u64, u64))| {
            (self.zones.company(**node, others), *replicas, *bytes, **node)
        };
        free.min_by_key(cost).map(|(node, _)| *node)
    }

    /// Which of the replicas that do not go already would be missed least.
    fn most_dispensable(
        &self,
        partition: &PartitionView,
        going: &[ReplicaId],
    ) -> Option<ReplicaId> {
        let stays = || partition.replicas.iter().filter(|(replica, _)| !going.contains(replica));
        let nodes: Vec<NodeId> = stays().map(|(_, node)| *node).collect();
        let worth = |(replica, node): &(&ReplicaId, &NodeId)| {
            // One that its node does not have (yet) is worth less than any other.
            let has = |node: &NodeView| node.has.get(&partition.id) == Some(*replica);
            let held = self.view.nodes.get(*node).is_some_and(has);
            let company = Reverse(self.zones.company(**node, &nodes));
            let leads = partition.leader == Some(**node);
            (held, company, leads, Reverse(self.load.get(*node).copied()), **replica)
        };
        stays().min_by_key(worth).map(|(replica, _)| *replica)
    }
}

/// The nodes of a partition's replicas but these.
fn nodes_without(partition: &PartitionView, but: &[(ReplicaId, NodeId)]) -> Vec<NodeId> {
    let here = partition.replicas.iter().map(|(replica, node)| (*replica, *node));
    here.filter(|one| !but.contains(one)).map(|(_, node)| node).collect()
}

/// Leaders away from nodes that are being drained, and spread evenly.
fn transfers(view: &View, moved: &BTreeSet<PartitionId>) -> Vec<Step> {
    let may_lead = |node: &NodeId| {
        view.nodes.get(node).is_some_and(|node| node.live && node.reported && !node.draining)
    };
    let mut leaders: BTreeMap<NodeId, usize> =
        view.nodes.keys().filter(|node| may_lead(node)).map(|node| (*node, 0)).collect();
    for node in view.partitions.iter().filter_map(|partition| partition.leader) {
        if let Some(count) = leaders.get_mut(&node) {
            *count += 1;
        }
    }
    let mut steps = Vec::new();
    let stays = |one: &&PartitionView| one.is_free() && !one.settling && !moved.contains(&one.id);
    for partition in view.partitions.iter().filter(stays) {
        if steps.len() >= TRANSFERS_MAX {
            break;
        }
        let Some(from) = partition.leader else { continue };
        let others = partition.replicas.iter().filter(|(replica, node)| {
            let there = view.nodes.get(node).and_then(|node| node.has.get(&partition.id));
            **node != from && there == Some(replica) && leaders.contains_key(node)
        });
        let Some((_, to)) = others.min_by_key(|(_, node)| (leaders.get(node), **node)) else {
            continue;
        };
        let draining = view.nodes.get(&from).is_some_and(|node| node.draining);
        let here = leaders.get(&from).copied().unwrap_or(0);
        let there = leaders.get(to).copied().unwrap_or(0);
        if draining || here >= there + 2 {
            if let Some(count) = leaders.get_mut(&from) {
                *count -= 1;
            }
            *leaders.entry(*to).or_default() += 1;
            steps.push(Step::Transfer { partition: partition.id, from, to: *to });
        }
    }
    steps
}
