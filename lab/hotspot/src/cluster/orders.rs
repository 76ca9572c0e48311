//! Orders of the scheduler (or of another policy): their duration, and their effect.
//!
//! Invariants: an order ends exactly once, with success or failure; the partitions of a table always tile its key
//! space.

use partita_load::{Action, ActionId, At, Done, Failed, HashOf, SplitWhy, Step};

use super::Cluster;
use super::events::Event;
use super::parts::Partition;
use crate::number::whole;
use crate::workload::{Design, Source, Spread, keys};

/// Duration of a merge.
const MERGE_MS: u64 = 2_000;
/// Duration of a repartition, which only records another placement.
const REKEY_MS: u64 = 1_000;
/// First number of orders that do not come from the scheduler.
const FOREIGN: u64 = 1 << 40;

impl Cluster {
    pub(super) fn on_tick(&mut self) {
        self.events.add(self.now_ms + self.pace_ms, Event::Tick);
        self.forecast();
        let actions = self.scheduler.tick(self.now_ms, &mut self.pickers);
        self.scheduler.take_outcomes();
        for action in actions {
            self.begin_order(action);
        }
    }

    fn begin_order(&mut self, action: Action) {
        let takes_ms = match &action.step {
            Step::Split { .. } => self.options.split_ms.0,
            Step::Merge { .. } => MERGE_MS,
            Step::TransferLeader { .. } => self.options.transfer_ms.0,
            Step::MoveReplica { partition, .. } => {
                let bytes = self.parts[Self::slot(*partition) as usize].bytes;
                1_000 + whole(bytes / self.options.move_bytes_per_s * 1_000.0)
            }
            Step::Rekey { .. } => REKEY_MS,
        };
        let number = action.id.0;
        self.note(&[1, number, takes_ms]);
        self.events.add(self.now_ms + takes_ms, Event::End { order: number });
        self.under_way.insert(action.id, action);
    }

    /// Begins a split by load that the scheduler has not proposed.
    pub(super) fn begin_foreign_split(&mut self, id: u32, key: Box<[u8]>) {
        let busy = self
            .under_way
            .values()
            .any(|action| action.step.partitions().contains(&Self::partition_id(id)));
        if busy {
            return;
        }
        let step = Step::Split {
            partition: Self::partition_id(id),
            at: At::Key(key),
            why: SplitWhy::Load,
            verdict: None,
            predicted_share: None,
            right_leader: None,
        };
        self.next_order += 1;
        self.begin_order(Action { id: ActionId(self.next_order), step });
    }

    pub(super) fn on_end(&mut self, id: ActionId) {
        let Some(action) = self.under_way.remove(&id) else { return };
        let foreign = id.0 > FOREIGN;
        let ended = self.carry_out(&action.step);
        self.note(&[2, id.0, u64::from(ended.is_ok())]);
        match ended {
            Ok(Done::Split { right }) if foreign => {
                if let Step::Split { partition, .. } = action.step {
                    self.scheduler.split_by_hand(partition, right, self.now_ms);
                }
            }
            Ok(effect) => self.scheduler.done(id, effect, self.now_ms),
            Err(failed) => self.scheduler.failed(id, failed, self.now_ms),
        }
        if let (Step::Rekey { table, .. }, true) = (&action.step, ended.is_ok()) {
            // The keys mean something else now.
            self.forecaster.forget(*table);
            let table = table.0 as usize;
            self.scheduler.set_table(Self::table_id(table), self.tables[table].load.facts.clone());
            self.tell_partitions(table);
        }
    }

    fn carry_out(&mut self, step: &Step) -> Result<Done, Failed> {
        let ids: Vec<u32> = step.partitions().into_iter().map(Self::slot).collect();
        for id in &ids {
            let part = self.parts.get(*id as usize).ok_or(Failed::Other)?;
            if part.gone || !self.nodes[part.leader as usize].up {
                return Err(Failed::Other);
            }
        }
        match step {
            Step::Split { at: cut, why, right_leader, .. } => {
                let right = self.split(ids[0], cut, *why, right_leader.map(Self::node_index))?;
                return Ok(Done::Split { right: Self::partition_id(right) });
            }
            Step::Merge { .. } => self.merge(ids[0], ids[1])?,
            Step::TransferLeader { to: target, .. } => {
                self.transfer(ids[0], Self::node_index(*target))?
            }
            Step::MoveReplica { from: source, to: target, .. } => {
                self.move_replica(ids[0], Self::node_index(*source), Self::node_index(*target))?
            }
            Step::Rekey { table, buckets, hash, .. } => {
                self.rekey(table.0 as usize, *buckets, *hash)?
            }
        }
        Ok(Done::AsProposed)
    }

    fn split(
        &mut self,
        id: u32,
        cut: &At,
        why: SplitWhy,
        leader: Option<u32>,
    ) -> Result<u32, Failed> {
        let (key, left_share) = self.cut_key(id, cut).ok_or(Failed::AtEdge)?;
        let now_ms = self.now_ms;
        let table = self.parts[id as usize].table;
        let live = self.tables[table as usize].live;
        self.join_nodes(id, live, -1.0);
        self.parts[id as usize].count(now_ms);
        let mut right_part: Partition = self.parts[id as usize].clone();
        let left_part = &mut self.parts[id as usize];
        (left_part.high, right_part.low) = (Some(key.clone()), key.clone());
        let bytes = left_part.bytes;
        (left_part.bytes, right_part.bytes) = (bytes * left_share, bytes * (1.0 - left_share));
        right_part.begin(now_ms);
        let up = |node: &u32| self.nodes[*node as usize].up && right_part.voters.contains(node);
        right_part.leader = leader.filter(up).unwrap_or(right_part.leader);
        for part in [&mut *left_part, &mut right_part] {
            part.stall_ms = part.stall_ms.max(self.options.split_ms.1);
            if matches!(why, SplitWhy::Load | SplitWhy::IsolateKey) {
                part.cut_by_load_ms = now_ms;
            }
            // Approximate values until the next second of load.
            (part.offered, part.busy, part.served_rows) =
                (part.offered / 2.0, part.busy / 2.0, part.served_rows / 2.0);
        }
        let (low, high) = (left_part.low.clone(), right_part.high.clone());
        self.join_nodes(id, live, 1.0);
        let new = self.add_part(right_part, live);
        let entry = &mut self.tables[table as usize];
        if let Some(index) = entry.order.iter().position(|candidate| *candidate == id) {
            entry.order.insert(index + 1, new);
        }
        self.pickers.forget_both([id, new]);
        if table == 0 {
            self.books.was_split(now_ms, why, low, key, high);
        }
        Ok(new)
    }

    fn merge(&mut self, left_id: u32, right_id: u32) -> Result<(), Failed> {
        let table = self.parts[left_id as usize].table as usize;
        let live = self.tables[table].live;
        let entry = &mut self.tables[table];
        // Partitions of an older placement may be merged, too.
        let list = if entry.order.contains(&left_id) { &mut entry.order } else { &mut entry.past };
        let index = list.iter().position(|candidate| *candidate == left_id).ok_or(Failed::Other)?;
        if list.get(index + 1) != Some(&right_id) {
            return Err(Failed::Other);
        }
        list.remove(index + 1);
        for id in [left_id, right_id] {
            self.join_nodes(id, live, -1.0);
            self.parts[id as usize].count(self.now_ms);
        }
        let right_part = &mut self.parts[right_id as usize];
        right_part.gone = true;
        let (high, bytes, busy, rows, offered) = (
            right_part.high.take(),
            right_part.bytes,
            right_part.busy,
            right_part.served_rows,
            right_part.offered,
        );
        let cut_ms = right_part.cut_by_load_ms;
        let left_part = &mut self.parts[left_id as usize];
        left_part.high = high;
        left_part.bytes += bytes;
        left_part.busy += busy;
        left_part.served_rows += rows;
        left_part.offered += offered;
        let cut_ms = left_part.cut_by_load_ms.max(cut_ms);
        let key = left_part.low.clone();
        self.join_nodes(left_id, live, 1.0);
        self.pickers.forget_both([left_id, right_id]);
        if table == 0 {
            self.books.was_merged(self.now_ms, cut_ms, &key);
        }
        Ok(())
    }

    fn transfer(&mut self, id: u32, target: u32) -> Result<(), Failed> {
        if !self.nodes[target as usize].up || !self.parts[id as usize].voters.contains(&target) {
            return Err(Failed::Other);
        }
        self.elect(id, target);
        let part = &mut self.parts[id as usize];
        part.stall_ms = part.stall_ms.max(self.options.transfer_ms.1);
        let (is_measured, key) = (part.table == 0, part.low.clone());
        self.books.was_transferred(self.now_ms, id, target, is_measured.then_some(&*key));
        Ok(())
    }

    fn move_replica(&mut self, id: u32, source: u32, target: u32) -> Result<(), Failed> {
        let part = &self.parts[id as usize];
        let place = part.voters.iter().position(|voter| *voter == source).ok_or(Failed::Other)?;
        if !self.nodes[target as usize].up || part.voters.contains(&target) {
            return Err(Failed::Other);
        }
        let live = self.tables[part.table as usize].live;
        self.join_nodes(id, live, -1.0);
        let now_ms = self.now_ms;
        let part = &mut self.parts[id as usize];
        part.voters[place] = target;
        if part.leader == source {
            part.lead(target, now_ms);
        }
        let (is_measured, key, bytes) = (part.table == 0, part.low.clone(), part.bytes);
        self.join_nodes(id, live, 1.0);
        self.books.was_moved(now_ms, id, target, bytes, is_measured.then_some(&*key));
        Ok(())
    }

    /// Places new rows into this many buckets; existing rows stay where they are.
    fn rekey(&mut self, table: usize, buckets: u32, hash: HashOf) -> Result<(), Failed> {
        let now_ms = self.now_ms;
        let entry = &mut self.tables[table];
        let events = entry.load.events.clone().ok_or(Failed::Other)?;
        let (law, shape) = keys(afterwards(hash), events.entity, &events.entities, events.time);
        let old: Vec<u32> = std::mem::take(&mut entry.order);
        entry.past.extend(&old);
        entry.key_epoch += 1;
        for source in &mut entry.load.sources {
            *source = Source { law: law.clone(), ..source.clone() };
        }
        (entry.load.facts.tail, entry.load.facts.buckets) = (shape.tail, buckets);
        entry.load.facts.hash_of = Some(hash);
        entry.load.facts.partitions_min = buckets as usize;
        // A table with a former table cannot be repartitioned again.
        entry.load.facts.append_only = false;
        entry.load.shape = shape;
        let row_bytes = entry.load.row_bytes;
        for id in old {
            let part = &mut self.parts[id as usize];
            part.count(now_ms);
            (part.offered, part.busy, part.served_rows) = (0.0, 0.0, 0.0);
        }
        for bucket in 0..buckets {
            let cut = |number: u32| -> Option<Box<[u8]>> {
                let value = u64::from(number) * (1 << 16) / u64::from(buckets);
                (number > 0 && number < buckets).then(|| value.to_be_bytes()[6..].into())
            };
            let voters = self.voters(table as u64, now_ms ^ u64::from(bucket), Spread::Even);
            let low = cut(bucket).unwrap_or_default();
            let mut part =
                Partition::new(crate::number::small(table), low, cut(bucket + 1), voters, now_ms);
            (part.row_bytes, part.lane_rows_per_s) = (row_bytes, self.options.lane_rows_per_s);
            let id = self.add_part(part, true);
            self.tables[table].order.push(id);
        }
        self.books.was_rekeyed((now_ms - super::BEGIN_MS) / 1_000, buckets);
        Ok(())
    }
}

/// Placement after a repartition, the same as meta's: by a hash of the key without the time, or of the whole key.
pub(crate) const fn afterwards(hash: HashOf) -> Design {
    match hash {
        HashOf::Series => Design::HashUid,
        HashOf::Key => Design::HashAll,
    }
}
