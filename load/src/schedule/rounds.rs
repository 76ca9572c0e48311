//! The rounds of a tick: hot partitions, large ones, tables to re-key, a part of all neighbours (and, in `moves.rs`,
//! busy nodes). Each round builds views, applies a rule, and starts the resulting actions.
//!
//! Invariants: rounds go in the order of slots and of node indexes; an action proposed in a round counts for the next
//! decision of the same round.

use std::collections::BTreeMap;

use super::heat::Heat;
use super::index::mix;
use super::past::Past;
use super::places::{BUSY, HOT, LARGE, LIVE, NO_NODE, NONE, TableState, WATCHED, micro};
use super::{MERGES_MAX, ROUND_S, SPLITS_MAX, Scheduler};
use crate::action::{Action, MergeWhy, SplitWhy, Step};
use crate::advice::buckets_for;
use crate::balance::{EXCESS_MIN, TARGET_MAX};
use crate::facts::{HashOf, Remedy, TableFacts, TableId, Tail};
use crate::merge::{Side, TableView, may_merge};
use crate::offered::{capacity, offered};
use crate::plan::Plan;
use crate::rekey::spread_by;
use crate::split::{HOT_SECONDS_MIN, LoadView, Ruling, SizeView, by_load, by_size, parts_needed};
use crate::verdict::{Class, Verdict};

/// Budget of a table's splits by load (and, separately, by size) per minute: this many ...
const SPLITS_A_MINUTE: f64 = 2.0;
/// ... or this share of its partitions, whichever is more.
const SPLITS_A_MINUTE_SHARE: f64 = 0.05;
/// Time for which a tail, or a rotation, must have been seen before a table is re-keyed automatically: such a change is
/// permanent.
const REKEY_AFTER_MS: u64 = 30_000;
/// The same for a table of which all rows are moved then: a sorted load of some seconds is not worth that.
const MOVE_ROWS_AFTER_MS: u64 = 120_000;

impl Scheduler {
    /// Splits hot partitions, where a split helps.
    pub(super) fn split_hot(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        let slots: Vec<u32> = self.heat.keys().copied().collect();
        let no_plan = Plan::default();
        for slot in slots {
            let part = self.places.part(slot);
            let table = self.places.table_of(slot);
            let empty_past = Past::default();
            let past = self.past(slot).unwrap_or(&empty_past);
            let heat = &self.heat[&slot];
            let is_planned = !past.plan.is_over(now_ms);
            // The rule decides by a view of the partition's load; rests, budgets and the limit of splits in progress
            // come after it.
            let view = LoadView {
                by_load: table.facts.by_load,
                hot_seconds: part.window.hot_seconds(),
                rho: part.window.busy_10(),
                rotates: self.rotating.contains_key(&table.id),
                verdict: heat.verdict.as_ref(),
                isolation: &past.isolation,
                plan: if is_planned { &past.plan } else { &no_plan },
                parts: parts_needed(&part.window.rates(now_ms)),
                spreads: spreads(table, heat.verdict.as_ref(), now_ms),
                partitions: table.count + table.splitting,
                partitions_max: table.facts.partitions_max,
            };
            let resting = part.is(BUSY)
                || self.failed.contains(&part.id)
                || now_ms < past.split_ready_ms
                || (!is_planned && self.on_probation(slot));
            let ruling = by_load(&view);
            // All cuts of a plan are one decision.
            if !resting
                && let Ok(ruling) = &ruling
                && self.splits_under_way() < SPLITS_MAX
                && (is_planned || self.take_split_token(now_ms, slot, false))
            {
                actions.push(self.propose_split(now_ms, slot, ruling.clone()));
            }
            // Show why a hot partition is not split.
            if let Some(heat) = self.heat.get_mut(&slot) {
                heat.refused = ruling.err();
            }
        }
    }

    /// Splits partitions that are too large.
    pub(super) fn split_large(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        let slots: Vec<u32> = self.large.iter().copied().collect();
        for slot in slots {
            let part = self.places.part(slot);
            let table = self.places.table_of(slot);
            let view = SizeView {
                by_size: table.facts.by_size,
                size_bytes: part.window.size_bytes(),
                partition_bytes: part.cut_at_bytes(&table.facts),
                tail: table.facts.tail,
                first: part.left == NONE,
                last: part.right == NONE,
                class: self.heat.get(&slot).and_then(Heat::class),
                partitions: table.count + table.splitting,
                partitions_max: table.facts.partitions_max,
            };
            if view.size_bytes < view.partition_bytes {
                self.large.remove(&slot);
                self.places.part_mut(slot).flags &= !LARGE;
                continue;
            }
            let resting = part.is(BUSY)
                || self.failed.contains(&part.id)
                || self.past(slot).is_some_and(|past| now_ms < past.split_ready_ms);
            let Some(ruling) = by_size(&view) else { continue };
            // A tail fills at the rate of its writes, which no budget slows down; it is split as it fills.
            let rolls = matches!(ruling.why, SplitWhy::RightEdge | SplitWhy::LeftEdge);
            if !resting
                && self.splits_under_way() < SPLITS_MAX
                && (rolls || self.take_split_token(now_ms, slot, true))
            {
                actions.push(self.propose_split(now_ms, slot, ruling));
            }
        }
    }

    pub(super) fn splits_under_way(&self) -> usize {
        self.orders.values().filter(|order| matches!(order.step, Step::Split { .. })).count()
    }

    pub(super) fn under_way(&self, which: impl Fn(&Step) -> bool) -> usize {
        self.orders.values().filter(|order| which(&order.step)).count()
    }

    pub(super) fn take_split_token(&mut self, now_ms: u64, slot: u32, by_size: bool) -> bool {
        let table = self.places.table_of_mut(slot);
        let a_minute = SPLITS_A_MINUTE.max(table.count as f64 * SPLITS_A_MINUTE_SHARE);
        let tokens = if by_size { &mut table.size_tokens } else { &mut table.load_tokens };
        tokens.refill(now_ms, a_minute / 60.0, a_minute);
        tokens.take_one()
    }

    pub(super) fn propose_split(&mut self, now_ms: u64, slot: u32, ruling: Ruling) -> Action {
        let Ruling { at: cut, why, predicted_share, plan } = ruling;
        let planned_share = plan.next_cut().map(|(_, right_share)| right_share);
        if planned_share.is_some() {
            self.past_mut(slot).plan = plan.decided(now_ms);
        }
        let part = self.places.part(slot);
        let (partition, leader) = (part.id, part.leader);
        // Expected gain of the right part's leader, and loss of the left one's.
        let right_share = match why {
            SplitWhy::RightEdge => 1.0,
            SplitWhy::LeftEdge => 0.0,
            SplitWhy::Load | SplitWhy::Size | SplitWhy::IsolateKey | SplitWhy::Forecast => {
                planned_share.unwrap_or(0.5)
            }
        };
        let moved = part.leadership_load() * right_share;
        let target = match why {
            SplitWhy::RightEdge => self.next_voter(slot, moved),
            SplitWhy::Forecast => self.voter_ahead(slot),
            SplitWhy::Load | SplitWhy::Size | SplitWhy::LeftEdge | SplitWhy::IsolateKey => {
                self.idle_voter(slot)
            }
        };
        let mut expected = Vec::new();
        if leader != NO_NODE && target != leader && target != NO_NODE {
            expected = vec![(leader, -micro(moved)), (target, micro(moved))];
        }
        let step = Step::Split {
            partition,
            at: cut,
            why,
            verdict: self.heat.get(&slot).and_then(|heat| heat.verdict.as_ref()).map(reason),
            predicted_share,
            right_leader: self.places.node_id(target),
        };
        let table = self.places.table_of(slot).id;
        self.propose(now_ms, table, step, expected)
    }

    /// The voter with the least load; among equals one by lot, or all tables would choose the same.
    fn idle_voter(&self, slot: u32) -> u16 {
        let part = self.places.part(slot);
        let lot = |index: u16| mix(self.seed ^ mix(part.id.0 ^ (u64::from(index) << 48)));
        let used = |index: u16| {
            let node = self.places.node(index);
            node.load() / node.capacity()
        };
        let open = part.voters().iter().copied().filter(|index| self.places.node(*index).open());
        open.min_by(|a, b| used(*a).total_cmp(&used(*b)).then_with(|| lot(*a).cmp(&lot(*b))))
            .unwrap_or(part.leader)
    }

    /// The voter after the leader, in turn, whose node would hardly be busier with the tail than the leader's node is:
    /// tails that split at one pace thus stay spread, without help of the balancer.
    fn next_voter(&self, slot: u32, moved: f64) -> u16 {
        let part = self.places.part(slot);
        if part.leader == NO_NODE {
            return self.idle_voter(slot);
        }
        let (following, preceding): (Vec<u16>, Vec<u16>) =
            part.voters().iter().partition(|index| **index > part.leader);
        let leader = self.places.node(part.leader);
        let limit = leader.load() / leader.capacity();
        let fits = |index: &u16| {
            let node = self.places.node(*index);
            node.open()
                && (node.load() + moved) / node.capacity() <= limit * TARGET_MAX + EXCESS_MIN
        };
        following
            .into_iter()
            .chain(preceding)
            .filter(|index| *index != part.leader)
            .find(fits)
            .unwrap_or(part.leader)
    }

    /// Gives tables whose load moves, rotates or is that of one part of the key more buckets, if the table's remedy allows
    /// it: append-only ones for new rows, and others for all of their rows.
    pub(super) fn rekey(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        // Offered rows per second of each table, the hash that spreads its load, and the class of the load.
        let mut loads: BTreeMap<TableId, (f64, HashOf, Class)> = BTreeMap::new();
        for (slot, heat) in &self.heat {
            let part = self.places.part(*slot);
            let table = self.places.table_of(*slot);
            let spread = heat
                .verdict
                .as_ref()
                .and_then(|verdict| Some((spread_by(verdict, &table.facts)?, verdict.class)));
            let Some((hash, class)) = spread else { continue };
            let eligible = may_rekey(table, now_ms)
                && !self.rotating.contains_key(&table.id)
                && now_ms >= heat.verdict_since_ms + rekey_after_ms(&table.facts)
                && part.window.hot_seconds() >= HOT_SECONDS_MIN;
            if eligible {
                let load = loads.entry(table.id).or_insert((0.0, hash, class));
                load.0 += offered(&part.window.rates(now_ms)).rows_per_s;
                load.1 = load.1.max(hash);
            }
        }
        // In a load that rotates no partition is hot for long: all of them together count.
        for (id, since_ms) in &mut self.rotating {
            let since_ms = *since_ms.get_or_insert(now_ms);
            let table = self.places.table(*id);
            let eligible = table.is_some_and(|table| {
                may_rekey(table, now_ms) && now_ms >= since_ms + rekey_after_ms(&table.facts)
            });
            if eligible {
                let rates = self.places.rates_of(*id, now_ms);
                let rows: f64 = rates.iter().map(|rates| offered(rates).rows_per_s).sum();
                loads.insert(*id, (rows, HashOf::Series, Class::Rotating));
            }
        }
        let nodes = self.places.nodes.iter().filter(|node| node.open()).count();
        for (id, (rows, hash, class)) in loads {
            let capacity = capacity(&self.places.rates_of(id, now_ms)).rows_per_s;
            let buckets = buckets_for(rows, capacity, nodes);
            let Some(facts) = self.places.table(id).map(|table| &table.facts) else { continue };
            // A hash of more columns helps with as many buckets as before.
            let (buckets, helps) = match hash {
                HashOf::Series => (buckets, buckets >= buckets_min(facts)),
                HashOf::Key => (buckets.max(facts.buckets), true),
            };
            if helps {
                let step = Step::Rekey { table: id, buckets, hash, class };
                actions.push(self.propose(now_ms, id, step, Vec::new()));
            }
        }
    }

    /// Examines a part of all partitions: for merges, and for history that no longer matters.
    pub(super) fn walk(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        let passed_ms = self.round_ms.map_or(1_000, |last| now_ms.saturating_sub(last)).min(60_000);
        self.round_ms = Some(now_ms);
        let count = self.places.parts.len();
        let due = (count as u64 * passed_ms / (ROUND_S * 1_000)).max(16).min(count as u64);
        let mut merges = self.under_way(|step| matches!(step, Step::Merge { .. }));
        for _ in 0..due {
            self.cursor = if self.cursor + 1 >= count { 0 } else { self.cursor + 1 };
            let slot = u32::try_from(self.cursor).unwrap_or(NONE);
            if !self.places.part(slot).is(LIVE) {
                continue;
            }
            self.tidy_past(slot, now_ms);
            let right = self.places.part(slot).right;
            if right == NONE || merges >= MERGES_MAX {
                continue;
            }
            if let Some(step) = self.merge_of(now_ms, slot, right) {
                merges += 1;
                let table = self.places.table_of(slot).id;
                actions.push(self.propose(now_ms, table, step, Vec::new()));
            }
        }
    }

    fn merge_of(&self, now_ms: u64, left_slot: u32, right_slot: u32) -> Option<Step> {
        let table = self.places.table_of(left_slot);
        let view = TableView {
            automatic: table.facts.by_load || table.facts.by_size,
            partitions: table.count,
            partitions_min: table.facts.partitions_min,
            partition_bytes: table.facts.partition_bytes,
            merge_after_ms: table.facts.merge_after_ms,
            merging: table.merging || now_ms < table.merge_ready_ms,
        };
        let sides = [left_slot, right_slot].map(|slot| {
            let part = self.places.part(slot);
            Side {
                rho_max: part.window.rho_max(now_ms),
                size_bytes: part.window.size_bytes(),
                quiet_since_ms: u64::from(part.born_s.max(part.window.warm_s())) * 1_000,
                seen_s: part.window.seen_s(),
                busy: part.is(BUSY | WATCHED | HOT | LARGE) || self.failed.contains(&part.id),
                not_before_ms: self.past(slot).map_or(0, |past| past.merge_ready_ms),
                key_epoch: part.key_epoch,
            }
        });
        // The end at which a table grows is not merged with a full partition: it will be hot again.
        let tail = match table.facts.tail {
            Tail::None => false,
            Tail::Right => self.places.part(right_slot).right == NONE,
            Tail::Left => self.places.part(left_slot).left == NONE,
        };
        let is_pinned = self.pins.get(&right_slot).is_some_and(|until_ms| now_ms < *until_ms);
        if tail || is_pinned || !may_merge(now_ms, &view, &sides[0], &sides[1]) {
            return None;
        }
        Some(Step::Merge {
            left: self.places.part(left_slot).id,
            right: self.places.part(right_slot).id,
            why: MergeWhy {
                rho_max: sides[0].rho_max + sides[1].rho_max,
                size_bytes: sides[0].size_bytes + sides[1].size_bytes,
            },
        })
    }
}

/// A verdict as the reason of a cut.
fn reason(verdict: &Verdict) -> Box<Verdict> {
    Box::new(Verdict { divisions: Vec::new(), ..verdict.clone() })
}

/// True if new rows of a table are about to be placed by a hash that spreads the load of a verdict.
fn spreads(table: &TableState, verdict: Option<&Verdict>, now_ms: u64) -> bool {
    let helps = || verdict.is_some_and(|verdict| spread_by(verdict, &table.facts).is_some());
    now_ms < table.spreading_until_ms || (may_rekey(table, now_ms) && helps())
}

/// True if new rows of the table, or all of them, may be placed by hash now.
fn may_rekey(table: &TableState, now_ms: u64) -> bool {
    let facts = &table.facts;
    let is_possible = facts.append_only || facts.moves_rows;
    facts.remedy == Remedy::Auto && is_possible && now_ms >= table.rekey_ready_ms
}

/// Time for which a load must have been seen before a table is re-keyed for it.
fn rekey_after_ms(facts: &TableFacts) -> u64 {
    if facts.append_only { REKEY_AFTER_MS } else { MOVE_ROWS_AFTER_MS }
}

/// Least number of buckets of the same hash that a table is re-keyed for: a few more are not worth a copy of all rows.
fn buckets_min(facts: &TableFacts) -> u32 {
    match facts.append_only {
        true => facts.buckets.saturating_add(1),
        false => facts.buckets.saturating_mul(2),
    }
}
