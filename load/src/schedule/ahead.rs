//! The rounds that prepare for peaks: partitions are cut, and leaders are placed, before the load comes.
//!
//! ```text
//!   forecast ── set_forecast ──▶ cuts to be made, expected loads, partitions to be kept
//!                                     │                │
//!                                split_ahead      place_ahead: a node that would be half used hands leaders over
//! ```
//!
//! Invariants: as in `rounds.rs`; a cut ahead of a peak needs all that a split by load needs (the table's option and
//! budget, the limits of partitions and of splits in progress), except the load; what is hot is left to its verdict.

use std::collections::BTreeMap;

use super::index::mix;
use super::moves::TRANSFERS_A_TICK;
use super::places::{BUSY, NO_NODE};
use super::{SPLITS_MAX, Scheduler, TRANSFERS_MAX};
use crate::action::{Action, At, MoveWhy, SplitWhy, Step};
use crate::facts::TableId;
use crate::forecast::{Planned, PlannedCut};
use crate::plan::Plan;
use crate::split::{HOT_SECONDS_MIN, Ruling};

/// Expected use of a node's capacity from which leaders are placed elsewhere before the peak.
const PLACED_FROM: f64 = 0.5;
/// Expected load of a partition that is worth a transfer, cores.
const PLACED_LOAD_MIN: f64 = 0.1;
/// Maximum expected use of the new leader's node after a transfer, relative to the old one's before.
const PLACED_GAIN: f64 = 0.8;

/// Requests of the forecast, by partition.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// Cuts to be made, each with the larger share that it leaves.
    cuts: BTreeMap<u32, (Box<[u8]>, f64)>,
    /// Expected loads, cores.
    expects: BTreeMap<u32, f64>,
    /// Expected loads of parts of cuts in progress, by the node that will lead them.
    promised: BTreeMap<u16, f64>,
}

impl Ahead {
    /// Removes a partition.
    pub(super) fn forget(&mut self, slot: u32) {
        self.cuts.remove(&slot);
        self.expects.remove(&slot);
    }
}

impl Scheduler {
    /// Sets what the expected peaks of a table ask for; replaces what was set before. To be called again whenever a
    /// forecast was made ([`crate::STEP_MS`]).
    pub fn set_forecast(&mut self, table: TableId, planned: &Planned) {
        for slot in self.places.slots_of(table) {
            self.ahead.forget(slot);
        }
        self.ahead.promised.clear();
        for PlannedCut { partition, key, larger_share } in &planned.cuts {
            if let Some(slot) = self.places.slot(*partition) {
                self.ahead.cuts.insert(slot, (key.clone(), *larger_share));
            }
        }
        for (partition, load) in &planned.expects {
            if let Some(slot) = self.places.slot(*partition) {
                self.ahead.expects.insert(slot, *load);
            }
        }
        for (partition, until_ms) in &planned.holds {
            if let Some(slot) = self.places.slot(*partition) {
                let past = self.past_mut(slot);
                past.merge_ready_ms = past.merge_ready_ms.max(*until_ms);
            }
        }
    }

    /// Makes the cuts that expected peaks ask for.
    pub(super) fn split_ahead(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        let slots: Vec<u32> = self.ahead.cuts.keys().copied().collect();
        for slot in slots {
            let part = self.places.part(slot);
            let table = self.places.table_of(slot);
            let may_split = table.facts.by_load
                && table.count + table.splitting < table.facts.partitions_max
                && !self.rotating.contains_key(&table.id);
            let is_resting = part.is(BUSY)
                || self.failed.contains(&part.id)
                || part.window.hot_seconds() >= HOT_SECONDS_MIN
                || self.past(slot).is_some_and(|past| now_ms < past.split_ready_ms);
            if !may_split
                || is_resting
                || self.splits_under_way() >= SPLITS_MAX
                || !self.take_split_token(now_ms, slot, false)
            {
                continue;
            }
            let Some((key, larger_share)) = self.ahead.cuts.remove(&slot) else { continue };
            let ruling = Ruling {
                at: At::Key(key),
                why: SplitWhy::Forecast,
                predicted_share: Some(larger_share),
                plan: Plan::default(),
            };
            let action = self.propose_split(now_ms, slot, ruling);
            // The right part's load counts for the node that will lead it.
            let moved = self.ahead.expects.get(&slot).copied().unwrap_or(0.0) / 2.0;
            if let Step::Split { right_leader: Some(leader), .. } = &action.step
                && let Some(node) = self.places.node_index(*leader)
            {
                if let Some(load) = self.ahead.expects.get_mut(&slot) {
                    *load -= moved;
                }
                *self.ahead.promised.entry(node).or_default() += moved;
            }
            actions.push(action);
        }
    }

    /// Expected loads by the nodes that lead them, cores.
    fn promised(&self) -> BTreeMap<u16, f64> {
        let mut promised = self.ahead.promised.clone();
        for (slot, load) in &self.ahead.expects {
            let leader = self.places.part(*slot).leader;
            if leader != NO_NODE {
                *promised.entry(leader).or_default() += load;
            }
        }
        promised
    }

    /// Expected use of a node's capacity.
    fn expected_use(&self, promised: &BTreeMap<u16, f64>, index: u16) -> f64 {
        let node = self.places.node(index);
        (node.load() + promised.get(&index).copied().unwrap_or(0.0)) / node.capacity()
    }

    /// The voter whose node will have the least load; among equals one by lot.
    pub(super) fn voter_ahead(&self, slot: u32) -> u16 {
        let promised = self.promised();
        let part = self.places.part(slot);
        let lot = |index: u16| mix(self.seed ^ mix(part.id.0 ^ (u64::from(index) << 48)));
        let used = |index: u16| self.expected_use(&promised, index);
        let open = part.voters().iter().copied().filter(|index| self.places.node(*index).open());
        open.min_by(|a, b| used(*a).total_cmp(&used(*b)).then_with(|| lot(*a).cmp(&lot(*b))))
            .unwrap_or(part.leader)
    }

    /// Hands leaders over, from nodes that would be half used by the expected peaks.
    pub(super) fn place_ahead(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        if self.ahead.expects.is_empty() {
            return;
        }
        let mut promised = self.promised();
        let mut slots: Vec<(u32, f64)> =
            self.ahead.expects.iter().map(|(slot, load)| (*slot, *load)).collect();
        slots.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let mut under_way = self.under_way(|step| matches!(step, Step::TransferLeader { .. }));
        let mut count = 0;
        for (slot, load) in slots {
            if count >= TRANSFERS_A_TICK || under_way >= TRANSFERS_MAX || load < PLACED_LOAD_MIN {
                return;
            }
            let part = self.places.part(slot);
            if part.leader == NO_NODE || !self.is_free(now_ms, slot) {
                continue;
            }
            let from_use = self.expected_use(&promised, part.leader);
            if from_use < PLACED_FROM {
                continue;
            }
            let followers = part.voters().iter().copied().filter(|index| *index != part.leader);
            let open = followers.filter(|index| self.places.node(*index).open());
            let used = |index: u16| self.expected_use(&promised, index);
            let Some(target) = open.min_by(|a, b| used(*a).total_cmp(&used(*b))) else { continue };
            let to_use = used(target);
            if to_use + load / self.places.node(target).capacity() > from_use * PLACED_GAIN {
                continue;
            }
            let Some(node) = self.places.node_id(target) else { continue };
            let (partition, source) = (part.id, part.leader);
            let why = MoveWhy {
                from_load: from_use,
                to_load: to_use,
                mean_load: self.mean_used,
                moved: load,
            };
            let table = self.places.table_of(slot).id;
            let step = Step::TransferLeader { partition, to: node, why };
            actions.push(self.propose(now_ms, table, step, Vec::new()));
            *promised.entry(source).or_default() -= load;
            *promised.entry(target).or_default() += load;
            count += 1;
            under_way += 1;
        }
    }
}
