//! A table of one partition, and what the scheduler makes of it.
//!
//! Invariants: partitions are in the order of their keys, and cover all of them; after a change to buckets by hash, rows
//! go to buckets, and nothing more is decided.

use std::sync::Arc;

use partita_load::{
    Action, At, Class, Columns, Counters, Done, Failed, NodeFacts, NodeId, Options, PartitionFacts,
    PartitionId, PartitionReport, Remedy, Rotation, Scheduler, SplitWhy, Step, TableFacts, TableId,
    Verdict, confirm, mix, of_reads, rotating, rotation,
};

use crate::picker::{Detector, Picker};
use crate::streams::{Kind, Op, SECOND_US, prefix_ends};

const TABLE: TableId = TableId(1);
const NODE: NodeId = NodeId(1);
/// Share of the operations from which a table is relieved.
const RELIEVED_MIN: f64 = 0.95;
const FIRST: PartitionId = PartitionId(1);
/// Beginning of the clock, milliseconds.
const START_MS: u64 = 1_700_000_000_000;
/// Maximum number of partitions.
const PARTITIONS_MAX: usize = 64;
/// Interval of looks for rotation, seconds.
const ROTATION_EVERY_S: u64 = 5;
/// Seconds in which a verdict on the first partition counts.
const VERDICT_WITHIN_S: u64 = 60;

struct Part {
    id: PartitionId,
    /// First key; empty: all keys before the next partition.
    start: Vec<u8>,
    detector: Detector,
    born_ms: u64,
    counters: Counters,
    /// Operations of the present second.
    asked: u64,
    /// Operations by second.
    seconds: Vec<(u64, u64)>,
}

pub(super) struct World {
    kind: Kind,
    columns: Columns,
    seed: u64,
    capacity: u64,
    scheduler: Scheduler,
    parts: Vec<Part>,
    /// Operations of the present second in each bucket, once rows are placed by hash.
    buckets: Option<Vec<u64>>,
    next: u64,
    rotation: Option<Rotation>,
    first_verdict: Option<(Class, u64)>,
    has_acted: bool,
    cuts: usize,
    in_vain: usize,
    /// Served and offered operations of the last seconds.
    served: (u64, u64),
    /// The last second in which less than [`RELIEVED_MIN`] was served.
    strained: Option<u64>,
}

impl World {
    pub(super) fn new(kind: &Kind, seed: u64, capacity: u64) -> Self {
        let widths = kind.columns;
        let columns: Columns = Arc::new(move |key| prefix_ends(widths, key));
        let mut scheduler = Scheduler::new(Options { balance: false, ..Options::default() }, seed);
        scheduler.set_node(NODE, NodeFacts::default());
        let facts = TableFacts {
            by_size: false,
            append_only: true,
            partitions_max: PARTITIONS_MAX,
            remedy: Remedy::Auto,
            ..TableFacts::default()
        };
        scheduler.set_table(TABLE, facts);
        let mut world = Self {
            kind: *kind,
            columns,
            seed,
            capacity,
            scheduler,
            parts: Vec::new(),
            buckets: None,
            next: FIRST.0,
            rotation: None,
            first_verdict: None,
            has_acted: false,
            cuts: 0,
            in_vain: 0,
            served: (0, 0),
            strained: None,
        };
        let mut first = world.part(Vec::new(), START_MS);
        if let Some((low, high)) = kind.edges() {
            first.detector.set_edges(&low, &high);
        }
        world.parts.push(first);
        world.name_partitions();
        world
    }

    fn part(&mut self, start: Vec<u8>, born_ms: u64) -> Part {
        let id = PartitionId(self.next);
        self.next += 1;
        Part {
            id,
            start,
            detector: self.detector(id),
            born_ms,
            counters: Counters::default(),
            asked: 0,
            seconds: Vec::new(),
        }
    }

    fn detector(&self, partition: PartitionId) -> Detector {
        let seed = mix(self.seed ^ mix(partition.0));
        Detector::new(seed, Arc::clone(&self.columns), self.kind.options)
            .with_reads(self.kind.reads)
    }

    fn name_partitions(&mut self) {
        let facts = |part: &Part| PartitionFacts {
            id: part.id,
            voters: vec![NODE],
            leader: Some(NODE),
            born_ms: part.born_ms,
            ..PartitionFacts::default()
        };
        let facts: Vec<PartitionFacts> = self.parts.iter().map(facts).collect();
        self.scheduler.set_partitions(TABLE, &facts);
    }

    /// Takes an operation at a time, microseconds.
    pub(super) fn observe(&mut self, at_us: u64, op: &Op) {
        if let Some(buckets) = &mut self.buckets {
            let hash = op.key.chunks(8).fold(0, |hash, bytes| {
                let value =
                    bytes.iter().fold(1, |value: u64, byte| (value << 8) | u64::from(*byte));
                mix(hash ^ value)
            });
            let bucket = hash % buckets.len() as u64;
            if let Some(count) =
                usize::try_from(bucket).ok().and_then(|index| buckets.get_mut(index))
            {
                *count += 1;
            }
            return;
        }
        let place = self.parts.partition_point(|part| part.start <= op.key).saturating_sub(1);
        let part = &mut self.parts[place];
        part.asked += 1;
        part.detector.observe(at_us, op);
    }

    /// Ends a second: lanes serve, leaders report, the scheduler decides. `is_counted`: the served share is taken.
    pub(super) fn end_second(&mut self, second: u64, is_counted: bool) {
        let capacity = self.capacity;
        let now_ms = START_MS + (second + 1) * 1_000;
        let mut sums = (0, 0);
        if let Some(buckets) = &mut self.buckets {
            for count in buckets.iter_mut() {
                sums = (sums.0 + (*count).min(capacity), sums.1 + *count);
                *count = 0;
            }
        } else {
            for part in &mut self.parts {
                sums = (sums.0 + part.asked.min(capacity), sums.1 + part.asked);
                let report = part.report(&self.kind, capacity, now_ms);
                part.seconds.push((second, part.asked));
                part.asked = 0;
                self.scheduler.observe(now_ms, NODE, &report);
            }
        }
        if (sums.0 as f64) < RELIEVED_MIN * sums.1 as f64 {
            self.strained = Some(second);
        }
        if is_counted {
            self.served = (self.served.0 + sums.0, self.served.1 + sums.1);
        }
        if self.buckets.is_none() {
            self.think(second, now_ms);
        }
    }

    fn think(&mut self, second: u64, now_ms: u64) {
        if second.is_multiple_of(ROTATION_EVERY_S) {
            let members: Vec<(PartitionId, Vec<(u64, u64)>)> =
                self.parts.iter().map(|part| (part.id, part.seconds.clone())).collect();
            self.rotation = rotation(&members, second + 1);
            self.scheduler.set_rotating(TABLE, self.rotation);
        }
        let Self { parts, kind, rotation, first_verdict, has_acted, .. } = self;
        let mut judge = |partition: PartitionId, _: u64| {
            let part = parts.iter_mut().find(|part| part.id == partition)?;
            let verdict = part.verdict(kind, rotation.as_ref(), second);
            let counts = partition == FIRST && !*has_acted && second < VERDICT_WITHIN_S;
            let class = verdict.class;
            let is_new = first_verdict.is_none_or(|(previous, _)| previous != class);
            if counts && class != Class::Unknown && is_new {
                *first_verdict = Some((class, second + 1));
            }
            Some(verdict)
        };
        let actions = self.scheduler.tick(now_ms, &mut judge);
        for outcome in self.scheduler.take_outcomes() {
            self.in_vain += usize::from(outcome.in_vain);
        }
        for action in actions {
            self.act(action, now_ms);
        }
    }

    /// Carries an action out at once.
    fn act(&mut self, action: Action, now_ms: u64) {
        let result = match action.step {
            Step::Split { partition, at: At::Key(key), why, .. } => {
                self.split(partition, &key, now_ms).inspect(|_| {
                    self.has_acted = true;
                    self.cuts += usize::from(matches!(why, SplitWhy::Load | SplitWhy::IsolateKey));
                })
            }
            Step::Rekey { buckets, .. } => {
                self.has_acted = true;
                self.buckets = Some(vec![0; buckets.max(1) as usize]);
                Ok(Done::AsProposed)
            }
            Step::Split { .. }
            | Step::Merge { .. }
            | Step::TransferLeader { .. }
            | Step::MoveReplica { .. } => Err(Failed::Other),
        };
        match result {
            Ok(done) => {
                self.scheduler.done(action.id, done, now_ms);
                self.name_partitions();
            }
            Err(failed) => self.scheduler.failed(action.id, failed, now_ms),
        }
    }

    fn split(&mut self, partition: PartitionId, key: &[u8], now_ms: u64) -> Result<Done, Failed> {
        let place = self.parts.iter().position(|part| part.id == partition);
        let place = place.ok_or(Failed::Other)?;
        let is_below_end = self.parts.get(place + 1).is_none_or(|next| key < next.start.as_slice());
        if key <= self.parts[place].start.as_slice() || !is_below_end {
            return Err(Failed::AtEdge);
        }
        let right = self.part(key.to_vec(), now_ms);
        let id = right.id;
        // Samples from before the cut are of both parts.
        self.parts[place].detector = self.detector(partition);
        self.parts[place].seconds.clear();
        self.parts.insert(place + 1, right);
        Ok(Done::Split { right: id })
    }

    /// The verdict on the first partition before anything was done about it, and the second since which it was the same.
    pub(super) fn heard(&self) -> Option<(Class, u64)> {
        self.first_verdict
    }

    /// The second after the last one in which too little was served; `None` if there was none.
    pub(super) fn relieved_s(&self) -> Option<u64> {
        self.strained.map(|second| second + 1)
    }

    pub(super) fn cuts(&self) -> usize {
        self.cuts
    }

    pub(super) fn in_vain(&self) -> usize {
        self.in_vain
    }

    /// Share of the operations of the counted seconds that were served; 1 without operations.
    pub(super) fn served(&self) -> f64 {
        let (served, offered) = self.served;
        if offered == 0 { 1.0 } else { served as f64 / offered as f64 }
    }
}

impl Part {
    /// Serves a second, and reports all until now.
    fn report(&mut self, kind: &Kind, capacity: u64, now_ms: u64) -> PartitionReport {
        let served = self.asked.min(capacity);
        let busy_ns = served * 1_000_000_000 / capacity.max(1);
        let counters = &mut self.counters;
        if kind.reads {
            counters.read_rows += served;
            counters.point_reads += served;
            counters.scan_ns += busy_ns;
        } else {
            counters.write_rows += served;
            counters.write_batches += served;
            counters.busy_ns += busy_ns;
        }
        counters.rejected += self.asked - served;
        PartitionReport {
            partition: self.id,
            term: 1,
            since_ms: self.born_ms,
            at_ms: now_ms,
            counters: self.counters,
            size_bytes: 0,
            queue_depth: 0,
        }
    }

    /// The verdict after the end of a second.
    fn verdict(&mut self, kind: &Kind, rotation: Option<&Rotation>, second: u64) -> Verdict {
        // The answer of the picker is for comparison with others; the verdict behind it is confirmed here, too.
        self.detector.poll((second + 1) * SECOND_US);
        let verdict = confirm(self.detector.verdicts());
        let verdict = match rotation {
            Some(rotation) => rotating(verdict, rotation),
            None => verdict,
        };
        if kind.reads { of_reads(verdict) } else { verdict }
    }
}
