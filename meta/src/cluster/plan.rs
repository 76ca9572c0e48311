//! Plans changes of replica placement and leadership: a pure function of a view.
//!
//! In this order: replicas that are not in the catalog are removed; lost replicas, and those of draining nodes, are
//! recreated elsewhere; partitions with too few or too many replicas get the wanted number. Only if none of that is
//! left to do, replicas that share a zone needlessly are moved apart, and replicas and leaders are spread evenly.
//!
//! Invariants:
//! - a partition's replicas are changed by one step at a time, and a step never takes away more than the group can
//!   spare: a working replica is removed only if a working one replaces it, or if there are more than wanted;
//! - two replicas of a partition are never put on one node;
//! - a replica that was created and lost gets a new number before it is created again, also one that is to become a
//!   member;
//! - a partition that is being split or merged keeps its replicas and its leader; if one of them is lost, the split
//!   or merge is given up first;
//! - zones decide where a replica goes, never whether: with too few of them, replicas share one;
//! - a plan that was carried out leaves nothing to balance: a move reduces the imbalance, never reverses it, and
//!   never brings replicas of a partition into one zone (see `balance.rs`).

mod balance;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use partita_proto::id::{NodeId, PartitionId, ReplicaId};

use crate::zones::Zones;

/// Maximum changes of replicas under way, over all partitions.
const MOVES_MAX: usize = 8;
/// Maximum leader transfers in one plan.
const TRANSFERS_MAX: usize = 16;

/// A node as the plan sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeView {
    /// Heard from within the lease.
    pub(crate) live: bool,
    /// Silent for so long that it is given up.
    pub(crate) lost: bool,
    pub(crate) draining: bool,
    /// The zone that its labels name.
    pub(crate) zone: Option<String>,
    /// Replicas that the node reports.
    pub(crate) has: BTreeMap<PartitionId, ReplicaId>,
    /// True if the node has reported since this process began to lead.
    pub(crate) reported: bool,
}

/// A partition as the plan sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartitionView {
    pub(crate) id: PartitionId,
    pub(crate) replicas: BTreeMap<ReplicaId, NodeId>,
    /// Wanted replicas, while they are being changed.
    pub(crate) target: Option<BTreeMap<ReplicaId, NodeId>>,
    /// Wanted number of replicas.
    pub(crate) wanted: usize,
    /// Replicas that a live node has not reported as working for a while.
    pub(crate) missing: BTreeSet<ReplicaId>,
    /// New replicas of the target that were created, and that a live node has not reported as working for a while.
    pub(crate) vanished: BTreeSet<ReplicaId>,
    /// Node that leads, or is about to.
    pub(crate) leader: Option<NodeId>,
    /// The leader was moved a moment ago and stays for now.
    pub(crate) settling: bool,
    pub(crate) bytes: u64,
    /// True if the replicas may be changed, now or after the split or merge under way.
    pub(crate) in_use: bool,
    /// In a split or a merge.
    pub(crate) reshaping: bool,
}

impl PartitionView {
    /// True if replicas and leader may be changed at will.
    fn is_free(&self) -> bool {
        self.in_use && !self.reshaping && self.target.is_none()
    }
}

/// Input of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) nodes: BTreeMap<NodeId, NodeView>,
    pub(crate) partitions: Vec<PartitionView>,
    /// Replicas of partitions that a split is creating: nodes may have them before the catalog records them.
    pub(crate) child_replicas: BTreeSet<(PartitionId, ReplicaId, NodeId)>,
    /// Live nodes that do not report one of their replicas yet. It may be the child of a split that the parent's
    /// replica on that node has not applied yet: if the parent's replica left now, the child's would never be created.
    pub(crate) awaited: BTreeSet<NodeId>,
}

/// Reason for a change of a partition's replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// A node or its data is lost.
    Lost,
    /// A node is being drained.
    Draining,
    /// Fewer replicas than wanted.
    TooFew,
    /// More replicas than wanted.
    TooMany,
    /// Shares a zone with another replica needlessly.
    Zone,
    /// One node holds more than others.
    Balance,
}

/// One change of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Changes a partition's replicas.
    Move { partition: PartitionId, add: Vec<NodeId>, remove: Vec<ReplicaId>, why: Why },
    /// Gives new numbers to new replicas of a partition's target that were lost after they had been created.
    Renumber { partition: PartitionId, replicas: Vec<ReplicaId> },
    /// Hands a partition's leadership to another node.
    Transfer { partition: PartitionId, from: NodeId, to: NodeId },
    /// Gives up the split or merge that a partition takes part in, because a replica has to be recreated.
    GiveUp { partition: PartitionId },
    /// Removes a replica that the catalog does not know.
    Remove { partition: PartitionId, replica: ReplicaId, node: NodeId },
}

/// Plans the next changes.
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
            Step::Renumber { .. }
            | Step::Transfer { .. }
            | Step::GiveUp { .. }
            | Step::Remove { .. } => None,
        })
        .collect();
    steps.extend(transfers(view, &moved));
    steps
}

/// Orders to remove replicas that the catalog does not assign to their node.
fn strangers(view: &View) -> Vec<Step> {
    let partitions: BTreeMap<PartitionId, &PartitionView> =
        view.partitions.iter().map(|partition| (partition.id, partition)).collect();
    let mut steps = Vec::new();
    for (node, has) in view.nodes.iter().filter(|(_, node)| node.live) {
        for (partition, replica) in &has.has {
            let belongs = partitions.get(partition).is_some_and(|record| {
                let target = record.target.as_ref().and_then(|target| target.get(replica));
                [record.replicas.get(replica), target].contains(&Some(node))
            });
            // A change that was taken back may have made it a voter already: the group counts on it until it has
            // agreed on the present target. It is removed if the target has another replica on its node.
            let counted_on = partitions.get(partition).is_some_and(|record| {
                let mut to_be = record.target.iter().flat_map(BTreeMap::values);
                record.target.is_some() && to_be.all(|holder| holder != node)
            });
            let (partition, replica, node) = (*partition, *replica, *node);
            let is_child = view.child_replicas.contains(&(partition, replica, node));
            if !belongs && !counted_on && !is_child {
                steps.push(Step::Remove { partition, replica, node });
            }
        }
    }
    steps
}

/// Fill of the nodes while a plan is made.
struct Planner<'a> {
    view: &'a View,
    /// Replicas and bytes of each node that may take more replicas.
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
        let zones = view.nodes.iter().map(|(node, state)| (*node, state.zone.as_deref()));
        let mut planner = Self { view, load, zones: Zones::new(zones), under_way: 0 };
        // Changes whose group has no quorum may wait for ever; others do not wait for them.
        let moving = |partition: &&PartitionView| {
            partition.target.is_some() && planner.can_decide(partition)
        };
        planner.under_way = view.partitions.iter().filter(moving).count();
        planner
    }

    /// True if the partition has a quorum of working replicas.
    fn can_decide(&self, partition: &PartitionView) -> bool {
        let works = |(replica, node): &(&ReplicaId, &NodeId)| {
            let live = self.view.nodes.get(node).is_some_and(|node| node.live);
            live && !partition.missing.contains(replica)
        };
        2 * partition.replicas.iter().filter(works).count() > partition.replicas.len()
    }

    /// Reason to remove a replica; `None` if it stays.
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
        for partition in self.view.partitions.iter().filter(|partition| partition.in_use) {
            // A node of the target may have been lost meanwhile: then the target is replaced.
            let target_lost = self.target_lost(partition);
            if !target_lost && !partition.vanished.is_empty() {
                let replicas = partition.vanished.iter().copied().collect();
                steps.push(Step::Renumber { partition: partition.id, replicas });
                continue;
            }
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
        // Lost replicas first; the fewer healthy replicas a partition has, the sooner.
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

    /// True if the partition's target cannot be reached any more: a node that is to get a new replica is lost or still
    /// holds the one that it was thought to have lost, or too few of the target's replicas work for a quorum although
    /// the present group has one.
    fn target_lost(&self, partition: &PartitionView) -> bool {
        let Some(target) = &partition.target else { return false };
        let lost = |node: &NodeId| self.view.nodes.get(node).is_none_or(|node| node.lost);
        let is_new = |replica: &ReplicaId| !partition.replicas.contains_key(replica);
        let works = |(replica, node): &(&ReplicaId, &NodeId)| {
            !lost(node) && !partition.missing.contains(replica)
        };
        // A child that was split off late: as long as it is a member it is not removed, and blocks the new one.
        let returned = |node: &NodeId| {
            let replica = self.view.nodes.get(node).and_then(|node| node.has.get(&partition.id));
            replica.is_some_and(|replica| {
                partition.replicas.get(replica) == Some(node) && !target.contains_key(replica)
            })
        };
        let mut new = target.iter().filter(|(replica, _)| is_new(replica));
        let too_few = 2 * target.iter().filter(works).count() <= target.len();
        new.any(|(_, node)| lost(node) || returned(node)) || (too_few && self.can_decide(partition))
    }

    fn reason(&self, partition: &PartitionView) -> Option<Why> {
        if !self.can_decide(partition) {
            // Without a quorum, the group cannot change itself.
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

    /// Replicas that have to be removed.
    fn bad(&self, partition: &PartitionView) -> Vec<(ReplicaId, NodeId)> {
        let replicas = partition.replicas.iter().map(|(replica, node)| (*replica, *node));
        replicas
            .filter(|(replica, node)| self.must_go(partition, *replica, *node).is_some())
            .collect()
    }

    fn repair(&mut self, why: Why, partition: &PartitionView) -> Option<Step> {
        let mut bad = self.bad(partition);
        // Lost replicas first: they contribute nothing.
        bad.sort_by_key(|(replica, node)| {
            self.must_go(partition, *replica, *node) != Some(Why::Lost)
        });
        let mut nodes: BTreeSet<NodeId> = partition.replicas.values().copied().collect();
        // Nodes of the replicas that stay, and of new ones.
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
        for (replica, holder) in bad.iter().skip(spare) {
            // One at a time: each change keeps a majority of the previous members.
            if !add.is_empty() {
                break;
            }
            let missing = partition.missing.contains(replica);
            let elsewhere = self.best_place(&nodes, &stay);
            let Some(node) = elsewhere.or_else(|| self.again(partition, *holder, missing)) else {
                // A replica that is present but does not work blocks a new one on the same node.
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

    /// True if a majority of a partition's remaining replicas are reported as working in their places. A replica
    /// that is still to be created may never exist; a group that came to depend on it would be lost.
    fn could_decide_without(&self, partition: &PartitionView, removed: &[ReplicaId]) -> bool {
        let stay = || partition.replicas.iter().filter(|(replica, _)| !removed.contains(replica));
        let works = |(replica, node): &(&ReplicaId, &NodeId)| {
            let host = self.view.nodes.get(node).filter(|node| node.live);
            host.is_some_and(|node| node.has.get(&partition.id) == Some(*replica))
                && !partition.missing.contains(replica)
        };
        2 * stay().filter(works).count() > stay().count()
    }

    /// The same node again, if it lost its replica and has nothing of the partition left.
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

    /// Node for one more replica: of the nodes without one, those with the fewest `neighbours` in their zone, and of
    /// these the least loaded.
    fn best_place(&self, occupied: &BTreeSet<NodeId>, neighbours: &[NodeId]) -> Option<NodeId> {
        let free = self.load.iter().filter(|(node, _)| !occupied.contains(node));
        let cost = |(node, (replicas, bytes)): &(&NodeId, &(u64, u64))| {
            (self.zones.company(**node, neighbours), *replicas, *bytes, **node)
        };
        free.min_by_key(cost).map(|(node, _)| *node)
    }

    /// Least valuable of the replicas that are not being removed already.
    fn most_dispensable(
        &self,
        partition: &PartitionView,
        going: &[ReplicaId],
    ) -> Option<ReplicaId> {
        let stays = || partition.replicas.iter().filter(|(replica, _)| !going.contains(replica));
        let nodes: Vec<NodeId> = stays().map(|(_, node)| *node).collect();
        let worth = |(replica, node): &(&ReplicaId, &NodeId)| {
            // A replica that its node does not report (yet) is worth less than any other.
            let has = |node: &NodeView| node.has.get(&partition.id) == Some(*replica);
            let present = self.view.nodes.get(*node).is_some_and(has);
            let company = Reverse(self.zones.company(**node, &nodes));
            let leads = partition.leader == Some(**node);
            (present, company, leads, Reverse(self.load.get(*node).copied()), **replica)
        };
        stays().min_by_key(worth).map(|(replica, _)| *replica)
    }
}

/// Nodes of a partition's replicas, except the given ones.
fn nodes_without(partition: &PartitionView, but: &[(ReplicaId, NodeId)]) -> Vec<NodeId> {
    let replicas = partition.replicas.iter().map(|(replica, node)| (*replica, *node));
    replicas.filter(|replica| !but.contains(replica)).map(|(_, node)| node).collect()
}

/// Leader transfers: away from draining nodes, and to spread leaders evenly.
fn transfers(view: &View, moved: &BTreeSet<PartitionId>) -> Vec<Step> {
    let may_lead = |node: &NodeId| {
        view.nodes.get(node).is_some_and(|node| node.live && node.reported && !node.draining)
    };
    // Count the leaders of each node that may lead.
    let mut leaders: BTreeMap<NodeId, usize> =
        view.nodes.keys().filter(|node| may_lead(node)).map(|node| (*node, 0)).collect();
    for node in view.partitions.iter().filter_map(|partition| partition.leader) {
        if let Some(count) = leaders.get_mut(&node) {
            *count += 1;
        }
    }
    let mut steps = Vec::new();
    let stays = |partition: &&PartitionView| {
        partition.is_free() && !partition.settling && !moved.contains(&partition.id)
    };
    for partition in view.partitions.iter().filter(stays) {
        if steps.len() >= TRANSFERS_MAX {
            break;
        }
        let Some(source) = partition.leader else { continue };
        // The target is the follower's node with the fewest leaders.
        let followers = partition.replicas.iter().filter(|(replica, node)| {
            let reported = view.nodes.get(node).and_then(|node| node.has.get(&partition.id));
            **node != source && reported == Some(replica) && leaders.contains_key(node)
        });
        let Some((_, destination)) = followers.min_by_key(|(_, node)| (leaders.get(node), **node))
        else {
            continue;
        };
        let draining = view.nodes.get(&source).is_some_and(|node| node.draining);
        let source_leaders = leaders.get(&source).copied().unwrap_or(0);
        let destination_leaders = leaders.get(destination).copied().unwrap_or(0);
        // The transfer reduces a difference of two or more; a smaller one would only change its sign.
        if draining || source_leaders >= destination_leaders + 2 {
            if let Some(count) = leaders.get_mut(&source) {
                *count -= 1;
            }
            *leaders.entry(*destination).or_default() += 1;
            steps.push(Step::Transfer { partition: partition.id, from: source, to: *destination });
        }
    }
    steps
}
