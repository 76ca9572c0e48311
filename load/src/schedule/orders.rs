//! Actions in progress: their expected effects, their ends, and the watch over splits.
//!
//! Invariants: an order holds its partitions (flag `BUSY`) from its proposal to its end, and its expected effect on
//! nodes' loads is counted for exactly as long; an order whose end is not reported expires after [`EXPIRES_MS`] (moves
//! of replicas: [`MOVE_EXPIRES_MS`]) as if it had failed.

use super::Scheduler;
use super::past::{
    MERGE_RETRY_MS, MOVE_REST_MS, NO_PLACE_MS, Past, SPLIT_REST_MS, SPLIT_RETRY_MS,
    TABLE_MERGE_RETRY_MS,
};
use super::places::{BUSY, FULL, NO_NODE, WATCHED};
use crate::action::{Action, ActionId, At, Done, Failed, SplitOutcome, SplitWhy, Step};
use crate::facts::{NodeId, PartitionFacts, PartitionId, TableId};
use crate::feedback::{JUDGED_AFTER_MS, Judgement, judge};
use crate::merge::{AFTER_LOAD_SPLIT_MS, hold_after_split};
use crate::plan::Plan;
use crate::split::Isolation;
use crate::window::seconds;

/// Time after which orders expire, milliseconds: a split or a transfer takes a second, a merge a few.
pub(super) const EXPIRES_MS: u64 = 2 * 60_000;
/// The same for moves of replicas, which copy bytes.
pub(super) const MOVE_EXPIRES_MS: u64 = 60 * 60_000;
/// Minimum interval between re-keys of one table.
const REKEY_AGAIN_MS: u64 = 60 * 60_000;
/// Tokens that a useful split returns to its table's budget: its own, and another one. A table of one partition
/// that needs 64 thus doubles every minute rather than growing by two.
const USEFUL_GIVES: f64 = 2.0;

/// An action in progress.
#[derive(Clone, Debug)]
pub(super) struct Order {
    pub(super) step: Step,
    pub(super) table: TableId,
    pub(super) expires_ms: u64,
    /// Expected gain or loss of nodes, millionths of a core.
    pub(super) expected: Vec<(u16, i64)>,
}

/// A split whose parts are watched for a minute.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    table: TableId,
    left: PartitionId,
    right: PartitionId,
    why: SplitWhy,
    predicted_share: Option<f64>,
    done_ms: u64,
    /// Work of both sides since, seconds of cores.
    work_s: [f64; 2],
}

impl Scheduler {
    /// Starts an action: marks its partitions and counts its expected effect.
    pub(super) fn propose(
        &mut self,
        now_ms: u64,
        table: TableId,
        step: Step,
        expected: Vec<(u16, i64)>,
    ) -> Action {
        let id = self.new_action();
        for slot in self.slots(&step) {
            self.places.part_mut(slot).flags |= BUSY;
        }
        for (node, cores) in &expected {
            self.places.expect(*node, *cores);
        }
        let for_ms =
            if matches!(step, Step::MoveReplica { .. }) { MOVE_EXPIRES_MS } else { EXPIRES_MS };
        if let Some(table) = self.places.table_mut(table) {
            match step {
                Step::Split { .. } => table.splitting += 1,
                Step::Merge { .. } => table.merging = true,
                Step::Rekey { .. } => {
                    table.rekey_ready_ms = now_ms + REKEY_AGAIN_MS;
                    table.spreading_until_ms = now_ms + EXPIRES_MS;
                }
                Step::TransferLeader { .. } | Step::MoveReplica { .. } => {}
            }
        }
        let order = Order { step: step.clone(), table, expires_ms: now_ms + for_ms, expected };
        self.orders.insert(id, order);
        self.totals.proposed += 1;
        Action { id, step }
    }

    fn slots(&self, step: &Step) -> Vec<u32> {
        step.partitions().into_iter().filter_map(|id| self.places.slot(id)).collect()
    }

    /// Removes an order from the list and releases its partitions.
    fn end(&mut self, id: ActionId) -> Option<Order> {
        let order = self.orders.remove(&id)?;
        for slot in self.slots(&order.step) {
            self.places.part_mut(slot).flags &= !BUSY;
        }
        for (node, cores) in &order.expected {
            self.places.expect(*node, -*cores);
        }
        if let Some(table) = self.places.table_mut(order.table) {
            match order.step {
                Step::Split { .. } => table.splitting = table.splitting.saturating_sub(1),
                Step::Merge { .. } => table.merging = false,
                Step::TransferLeader { .. } | Step::MoveReplica { .. } | Step::Rekey { .. } => {}
            }
        }
        Some(order)
    }

    pub(super) fn expire_orders(&mut self, now_ms: u64) {
        let late: Vec<ActionId> = self
            .orders
            .iter()
            .filter(|(_, order)| now_ms >= order.expires_ms)
            .map(|(id, _)| *id)
            .collect();
        for id in late {
            self.failed(id, Failed::Other, now_ms);
        }
    }

    /// Reports that an action was carried out. Unknown numbers (ended before, or expired) are ignored: their effect
    /// arrives with [`Scheduler::set_partitions`].
    pub fn done(&mut self, id: ActionId, result: Done, now_ms: u64) {
        let Some(order) = self.end(id) else { return };
        match (order.step, result) {
            (
                Step::Split { partition, at: cut, why, predicted_share, right_leader, .. },
                Done::Split { right },
            ) => {
                let watch = Watch {
                    table: order.table,
                    left: partition,
                    right,
                    why,
                    predicted_share,
                    done_ms: now_ms,
                    work_s: [0.0; 2],
                };
                self.was_split(id, watch, Some(&cut), right_leader);
            }
            (Step::Merge { left: owner, right, .. }, _) => self.was_merged(now_ms, owner, right),
            (Step::TransferLeader { partition, to: target, .. }, _) => {
                self.totals.transfers += 1;
                self.was_moved(now_ms, partition, target, None);
            }
            (Step::MoveReplica { partition, from: source, to: target, .. }, _) => {
                self.totals.replica_moves += 1;
                self.was_moved(now_ms, partition, target, Some(source));
            }
            (Step::Rekey { .. }, _) => self.totals.rekeys += 1,
            // A split without a right part: the next list of partitions has it.
            (Step::Split { .. }, Done::AsProposed) => {}
        }
    }

    /// Reports that an action had no effect.
    pub fn failed(&mut self, id: ActionId, failed: Failed, now_ms: u64) {
        let Some(order) = self.end(id) else { return };
        self.totals.failed += 1;
        match order.step {
            Step::Split { partition, at: cut, why, .. } => {
                let Some(slot) = self.places.slot(partition) else { return };
                let rest_ms = if failed == Failed::AtEdge { NO_PLACE_MS } else { SPLIT_RETRY_MS };
                let past = self.past_mut(slot);
                past.split_ready_ms = past.split_ready_ms.max(now_ms + rest_ms);
                past.plan = Plan::default();
                if why == SplitWhy::IsolateKey {
                    past.isolation = match (&past.isolation, cut, failed) {
                        // No key lies before the hot one: the cut behind it is next, and at once.
                        (Isolation::None, At::Key(key), Failed::AtEdge) => {
                            past.split_ready_ms = now_ms;
                            Isolation::Before(key)
                        }
                        (Isolation::None, ..) => Isolation::None,
                        (Isolation::Before(_) | Isolation::Done, ..) => Isolation::Done,
                    };
                }
            }
            Step::Merge { left: owner, .. } => {
                if let Some(table) = self.places.table_mut(order.table) {
                    table.merge_ready_ms = now_ms + TABLE_MERGE_RETRY_MS;
                }
                if let Some(slot) = self.places.slot(owner) {
                    let past = self.past_mut(slot);
                    past.merge_ready_ms = past.merge_ready_ms.max(now_ms + MERGE_RETRY_MS);
                }
            }
            Step::TransferLeader { partition, .. } | Step::MoveReplica { partition, .. } => {
                if let Some(slot) = self.places.slot(partition) {
                    self.past_mut(slot).move_ready_ms = now_ms + MOVE_REST_MS;
                }
            }
            Step::Rekey { .. } => {
                if let Some(table) = self.places.table_mut(order.table) {
                    table.spreading_until_ms = 0;
                }
            }
        }
    }

    /// Reports a split that was not proposed here (by hand): both parts inherit the state of the whole, and are watched
    /// like others.
    pub fn split_by_hand(&mut self, partition: PartitionId, right: PartitionId, now_ms: u64) {
        let Some(slot) = self.places.slot(partition) else { return };
        let id = self.new_action();
        let watch = Watch {
            table: self.places.table_of(slot).id,
            left: partition,
            right,
            why: SplitWhy::Size,
            predicted_share: None,
            done_ms: now_ms,
            work_s: [0.0; 2],
        };
        self.was_split(id, watch, None, None);
    }

    fn was_split(&mut self, id: ActionId, watch: Watch, cut: Option<&At>, leader: Option<NodeId>) {
        let now_ms = watch.done_ms;
        let Some(left_slot) = self.places.slot(watch.left) else { return };
        // The list of partitions may have come before.
        let right_slot = self.places.slot(watch.right).unwrap_or_else(|| {
            let facts =
                PartitionFacts { id: watch.right, born_ms: now_ms, ..PartitionFacts::default() };
            let right_slot = self.places.insert(watch.table, left_slot, &facts);
            self.copy_place(left_slot, right_slot);
            right_slot
        });
        let (load_share, size_share) = match watch.why {
            SplitWhy::RightEdge => (0.0, 1.0),
            SplitWhy::LeftEdge => (1.0, 0.0),
            SplitWhy::Load | SplitWhy::Size | SplitWhy::IsolateKey | SplitWhy::Forecast => {
                (0.5, 0.5)
            }
        };
        let window =
            self.places.change_window(left_slot, |window| window.cut(load_share, size_share));
        self.places.change_window(right_slot, |current| *current = window);
        if let Some(leader) = leader.and_then(|leader| self.places.know_node(leader)) {
            self.places.set_leader(right_slot, leader);
        }
        self.places.part_mut(left_slot).born_s = seconds(now_ms);
        self.split_pasts(now_ms, left_slot, right_slot, watch.why, cut);

        if let Some(heat) = self.heat.get_mut(&left_slot) {
            heat.renounce(now_ms);
            self.engage(right_slot, now_ms);
        }
        let mut sides = self.watched.get(&left_slot).cloned().unwrap_or_default();
        sides.push((id, 1));
        self.watched.insert(right_slot, sides);
        self.watched.entry(left_slot).or_default().push((id, 0));
        for slot in [left_slot, right_slot] {
            self.places.part_mut(slot).flags |= WATCHED;
        }
        match watch.why {
            SplitWhy::RightEdge => self.places.part_mut(left_slot).flags |= FULL,
            SplitWhy::LeftEdge => self.places.part_mut(right_slot).flags |= FULL,
            SplitWhy::Load | SplitWhy::Size | SplitWhy::IsolateKey | SplitWhy::Forecast => {}
        }
        *self.totals.splits.entry(watch.why).or_default() += 1;
        self.watches.insert(id, watch);
    }

    /// Gives a part of a split the replicas, the leader and the placement of the whole.
    fn copy_place(&mut self, source: u32, target: u32) {
        let part = self.places.part(source);
        let (leader, key_epoch) = (part.leader, part.key_epoch);
        let voters: Vec<NodeId> =
            part.voters().iter().filter_map(|index| self.places.node_id(*index)).collect();
        self.places.part_mut(target).key_epoch = key_epoch;
        self.places.set_voters(target, &voters);
        if leader != NO_NODE {
            self.places.set_leader(target, leader);
        }
    }

    fn split_pasts(
        &mut self,
        now_ms: u64,
        left_slot: u32,
        right_slot: u32,
        why: SplitWhy,
        cut: Option<&At>,
    ) {
        let past = self.past(left_slot).cloned().unwrap_or_default();
        let mut child = past.inherited();
        // The next cuts ahead of a peak are known; any other waits for the load of the parts.
        let rest_ms = match why {
            SplitWhy::RightEdge | SplitWhy::LeftEdge | SplitWhy::Forecast => 0,
            SplitWhy::Load | SplitWhy::Size | SplitWhy::IsolateKey => SPLIT_REST_MS,
        };
        child.split_ready_ms = child.split_ready_ms.max(now_ms + rest_ms);
        if matches!(why, SplitWhy::Load | SplitWhy::IsolateKey) {
            child.hold_ms = hold_after_split(now_ms, past.merged_ms, past.hold_ms);
            child.merge_ready_ms = child.merge_ready_ms.max(now_ms + child.hold_ms);
        }
        let (mut left_past, mut right_past) = (child.clone(), child);
        // The left part is the same replica group: it keeps its history of moves.
        left_past.keep_moves(&past);
        // What is left of a plan is cut at once.
        if let (SplitWhy::Load, Some(At::Key(key))) = (why, cut) {
            (left_past.plan, right_past.plan) = past.plan.beside(key);
            for part in [&mut left_past, &mut right_past] {
                if !part.plan.is_over(now_ms) {
                    part.split_ready_ms = now_ms;
                }
            }
        }
        if let (SplitWhy::IsolateKey, Some(At::Key(key))) = (why, cut) {
            match past.isolation {
                Isolation::None => {
                    right_past.isolation = Isolation::Before(key.clone());
                    right_past.split_ready_ms = now_ms;
                }
                Isolation::Before(_) | Isolation::Done => left_past.isolation = Isolation::Done,
            }
        }
        *self.past_mut(left_slot) = left_past;
        *self.past_mut(right_slot) = right_past;
    }

    fn was_merged(&mut self, now_ms: u64, owner: PartitionId, right: PartitionId) {
        self.totals.merges += 1;
        let (Some(owner), Some(right)) = (self.places.slot(owner), self.places.slot(right)) else {
            return;
        };
        let neighbour = self.places.part(right).window.clone();
        let other_past = self.past(right).cloned().unwrap_or_default();
        self.forget(right);
        self.places.change_window(owner, |window| window.absorb(now_ms, &neighbour));
        let part = self.places.part_mut(owner);
        part.born_s = seconds(now_ms);
        part.flags &= !FULL;
        let past: &mut Past = self.past_mut(owner);
        past.join(&other_past);
        past.merged_ms = Some(now_ms);
        past.hold_ms = past.hold_ms.max(AFTER_LOAD_SPLIT_MS);
        self.note_size(owner);
    }

    fn was_moved(
        &mut self,
        now_ms: u64,
        partition: PartitionId,
        target: NodeId,
        source: Option<NodeId>,
    ) {
        let Some(slot) = self.places.slot(partition) else { return };
        let leader = self.places.node_id(self.places.part(slot).leader);
        if let Some(source) = source {
            let part = self.places.part(slot);
            let voters = part.voters().iter().filter_map(|index| self.places.node_id(*index));
            let voters: Vec<NodeId> =
                voters.filter(|voter| *voter != source).chain([target]).collect();
            self.places.set_voters(slot, &voters);
        }
        if let Some(target) = self.places.know_node(target)
            && (source.is_none() || leader == source)
        {
            self.places.set_leader(slot, target);
        }
        self.past_mut(slot).moved(now_ms);
    }

    /// Counts work for the watches over a partition.
    pub(super) fn count_work(&mut self, slot: u32, work_s: f64) {
        for (id, side) in self.watched.get(&slot).into_iter().flatten() {
            if let Some(watch) = self.watches.get_mut(id) {
                watch.work_s[*side] += work_s;
            }
        }
    }

    /// True if a split by load from which this partition comes does not look useful so far. Such a descent waits for
    /// the judgement before it is split again.
    pub(super) fn on_probation(&self, slot: u32) -> bool {
        let doubtful = |(id, _): &(ActionId, usize)| {
            let watch = self.watches.get(id).filter(|watch| watch.why == SplitWhy::Load);
            watch.is_some_and(|watch| {
                let [left_s, right_s] = watch.work_s;
                !matches!(judge(watch.why, left_s, right_s), Judgement::Useful(_))
            })
        };
        self.watched.get(&slot).is_some_and(|sides| sides.iter().any(doubtful))
    }

    /// Removes and returns the watches whose minute is over.
    pub(super) fn due_watches(&mut self, now_ms: u64) -> Vec<(ActionId, Watch)> {
        let is_due = |watch: &Watch| now_ms >= watch.done_ms + JUDGED_AFTER_MS;
        let due: Vec<ActionId> =
            self.watches.iter().filter(|(_, watch)| is_due(watch)).map(|(id, _)| *id).collect();
        due.into_iter().filter_map(|id| self.watches.remove(&id).map(|watch| (id, watch))).collect()
    }

    /// Judges a split: records the outcome, and makes its parts (and theirs) rest or continue. Returns true if it was in
    /// vain.
    pub(super) fn settle(
        &mut self,
        now_ms: u64,
        id: ActionId,
        watch: &Watch,
        parts: &[u32],
    ) -> bool {
        let judgement = judge(watch.why, watch.work_s[0], watch.work_s[1]);
        let in_vain = matches!(judgement, Judgement::InVain(_));
        // A split in vain makes the descent back off; a useful one clears that, and refills the table's budget.
        match judgement {
            Judgement::InVain(_) => {
                self.totals.in_vain += 1;
                for slot in parts {
                    self.past_mut(*slot).was_in_vain(now_ms);
                }
            }
            Judgement::Useful(_) => {
                self.totals.useful += 1;
                for slot in parts {
                    self.past_mut(*slot).in_vain = 0;
                }
                if let Some(table) = self.places.table_mut(watch.table) {
                    let most = table.count as f64 + USEFUL_GIVES;
                    table.load_tokens.give(USEFUL_GIVES, most);
                }
            }
            Judgement::Open(_) => {}
        }
        // Keep the outcome until it is fetched.
        if self.outcomes.len() == super::OUTCOMES_MAX {
            self.outcomes.pop_front();
        }
        self.outcomes.push_back(SplitOutcome {
            action: id,
            table: watch.table,
            left: watch.left,
            right: watch.right,
            why: watch.why,
            done_ms: watch.done_ms,
            predicted_share: watch.predicted_share,
            actual_share: judgement.share(),
            in_vain,
        });
        in_vain
    }
}
