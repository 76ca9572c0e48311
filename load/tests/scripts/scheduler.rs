//! The scripts of `testscripts/scheduler`: tables, nodes, loads and verdicts in, actions out.
//!
//! A script's cluster reports once a second and carries out every action at once. The load of a split partition is
//! divided as the verdict says, or as `actual` says when the verdict is wrong; what grows at an edge keeps growing there.
//!
//! ```text
//!   nodes 1 2 3                    also: zone=1, capacity=4, draining=true
//!   table 1                        also: by_load=false, by_size=false, split_mb=512, min=1, max=4096, tail=right,
//!                                  append_only=true, remedy=auto, hashed=series (or key), buckets=8, together=true,
//!                                  moves_rows=true, merge_after_min=60
//!   partition 1 on 1 2 3 rho=0.6   appended to the table; the first node leads. rho: busy share of the write lane;
//!                                  also: reads=0.1 (cores), refused=0.02 (share), rows=1000 (a second), mb=100,
//!                                  grows=5 (MB a second), age_min=60, waiting=9 (requests), epoch=1, table=1,
//!                                  pinned_h=5 (hours for which it is not merged with its left neighbour)
//!   load 1 rho=0.1                 changes the load of a partition
//!   verdict 1 static_range cut=m share=0.6        what the detector says of a partition; also: actual=0.95,
//!                                  divisions="c:0.25 m:0.5 t:0.75" (keys, with the share of the load before each)
//!   verdict 1 hot_key key=m share=0.7             also: series=0.7, top=0.01 (shares of a series, and of a full key)
//!   ahead 1 cut=m share=0.5        a peak is expected on a partition; also: load=1.6 (cores), min=90 (until its end)
//!   rotating 1 true                the load of a table rotates over its partitions, or does no longer
//!   fail 1                         splits of the partition find no place
//!   run s=15                       the actions of the next seconds; also: min=10, h=2
//!   hot                            the partitions that are hot, and why they are not split
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;

use goldenscript::{ArgumentConsumer, Command, Context, Runner};
use partita_load::{
    Action, At, Counters, Cut, Division, Done, Evidence, Failed, HashOf, MoveWhy, NoSplit,
    NodeFacts, NodeId, Options, PartitionFacts, PartitionId, PartitionReport, Planned, PlannedCut,
    Remedy, Rotation, Scheduler, SplitWhy, Step, TableFacts, TableId, Tail, Verdict,
};

use crate::detector::{class, name};
use crate::run;

/// Beginning of a script, milliseconds: late enough for partitions of any age.
const START_MS: u64 = 1_000_000_000_000;
const SECOND_MS: u64 = 1_000;
const MB: f64 = 1_048_576.0;

/// Load of a partition.
#[derive(Clone, Debug, Default)]
struct Load {
    rho: f64,
    reads: f64,
    refused: f64,
    rows: f64,
    mb: f64,
    grows: f64,
    waiting: u32,
}

/// A partition of a script's cluster.
#[derive(Clone, Debug)]
struct Part {
    id: u64,
    table: u32,
    voters: Vec<u64>,
    leader: u64,
    load: Load,
    counters: Counters,
    since_ms: u64,
    born_ms: u64,
    key_epoch: u16,
    pinned_until_ms: u64,
    stuck: bool,
}

/// What the detector says of a partition, and what is true.
#[derive(Clone, Debug)]
struct Judgement {
    verdict: Verdict,
    actual: f64,
}

struct Script {
    scheduler: Scheduler,
    now_ms: u64,
    tables: BTreeMap<u32, TableFacts>,
    parts: Vec<Part>,
    verdicts: BTreeMap<u64, Judgement>,
    /// What the forecast asks for, by table.
    planned: BTreeMap<u32, Planned>,
}

/// Counts, of which the scripts have no fractions that matter.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small and positive in every script"
)]
fn whole(value: f64) -> u64 {
    value.max(0.0).round() as u64
}

impl Script {
    fn new() -> Self {
        Self {
            scheduler: Scheduler::new(Options::default(), 1),
            now_ms: START_MS,
            tables: BTreeMap::new(),
            parts: Vec::new(),
            verdicts: BTreeMap::new(),
            planned: BTreeMap::new(),
        }
    }

    fn part(&mut self, id: u64) -> Result<&mut Part, Box<dyn Error>> {
        let part = self.parts.iter_mut().find(|part| part.id == id);
        part.ok_or_else(|| format!("no partition {id}").into())
    }

    fn position(&self, id: PartitionId) -> usize {
        self.parts.iter().position(|part| part.id == id.0).unwrap_or_default()
    }

    /// Adds a table, or changes its options.
    fn table(&mut self, arguments: &mut ArgumentConsumer<'_>) -> Result<(), Box<dyn Error>> {
        let id = arguments.next_pos().ok_or("the table is missing")?.parse()?;
        let mut facts = self.tables.get(&id).cloned().unwrap_or_default();
        facts.by_load = run::take(arguments, "by_load", facts.by_load)?;
        facts.by_size = run::take(arguments, "by_size", facts.by_size)?;
        let mb = run::take(arguments, "split_mb", facts.partition_bytes >> 20)?;
        facts.partition_bytes = mb << 20;
        facts.partitions_min = run::take(arguments, "min", facts.partitions_min)?;
        facts.partitions_max = run::take(arguments, "max", facts.partitions_max)?;
        facts.append_only = run::take(arguments, "append_only", facts.append_only)?;
        facts.moves_rows = run::take(arguments, "moves_rows", facts.moves_rows)?;
        facts.buckets = run::take(arguments, "buckets", facts.buckets)?;
        facts.keeps_together = run::take(arguments, "together", facts.keeps_together)?;
        match arguments.take_key("hashed") {
            Some("series") => facts.hash_of = Some(HashOf::Series),
            Some("key") => facts.hash_of = Some(HashOf::Key),
            Some(other) => return Err(format!("no hash of {other}").into()),
            None => {}
        }
        let minutes = run::take(arguments, "merge_after_min", facts.merge_after_ms / 60_000)?;
        facts.merge_after_ms = minutes * 60_000;
        match arguments.take_key("tail") {
            Some("right") => facts.tail = Tail::Right,
            Some("left") => facts.tail = Tail::Left,
            Some(other) => return Err(format!("no tail {other}").into()),
            None => {}
        }
        match arguments.take_key("remedy") {
            Some("auto") => facts.remedy = Remedy::Auto,
            Some("advise") => facts.remedy = Remedy::Advise,
            Some("off") => facts.remedy = Remedy::Off,
            Some(other) => return Err(format!("no remedy {other}").into()),
            None => {}
        }
        self.scheduler.set_table(TableId(id), facts.clone());
        self.tables.insert(id, facts);
        Ok(())
    }

    fn nodes(&mut self, arguments: &mut ArgumentConsumer<'_>) -> Result<(), Box<dyn Error>> {
        let facts = NodeFacts {
            up: true,
            draining: run::take(arguments, "draining", false)?,
            capacity: run::take(arguments, "capacity", 4.0)?,
            zone: arguments.take_key("zone").map(str::parse).transpose()?,
        };
        while let Some(node) = arguments.next_pos() {
            self.scheduler.set_node(NodeId(node.parse()?), facts.clone());
        }
        Ok(())
    }

    fn partition(&mut self, arguments: &mut ArgumentConsumer<'_>) -> Result<(), Box<dyn Error>> {
        let id: u64 = arguments.next_pos().ok_or("the partition is missing")?.parse()?;
        if arguments.next_pos() != Some("on") {
            return Err("`on` is missing".into());
        }
        let mut voters = Vec::new();
        while let Some(node) = arguments.next_pos() {
            voters.push(node.parse()?);
        }
        let table = run::take(arguments, "table", 1)?;
        let age_min: u64 = run::take(arguments, "age_min", 60)?;
        let key_epoch = run::take(arguments, "epoch", 0)?;
        let pinned_h: u64 = run::take(arguments, "pinned_h", 0)?;
        let pinned_until_ms =
            if pinned_h > 0 { self.now_ms + pinned_h * 3_600 * SECOND_MS } else { 0 };
        let leader = voters.first().copied().ok_or("no nodes")?;
        let load = load_of(&Load::default(), arguments)?;
        self.parts.push(Part {
            id,
            table,
            voters,
            leader,
            load,
            counters: Counters::default(),
            since_ms: self.now_ms,
            born_ms: self.now_ms - age_min * 60 * SECOND_MS,
            key_epoch,
            pinned_until_ms,
            stuck: false,
        });
        let facts: Vec<PartitionFacts> = self
            .parts
            .iter()
            .filter(|part| part.table == table)
            .map(|part| PartitionFacts {
                id: PartitionId(part.id),
                voters: part.voters.iter().map(|node| NodeId(*node)).collect(),
                leader: Some(NodeId(part.leader)),
                born_ms: part.born_ms,
                key_epoch: part.key_epoch,
                pinned_until_ms: part.pinned_until_ms,
                ..PartitionFacts::default()
            })
            .collect();
        self.scheduler.set_partitions(TableId(table), &facts);
        Ok(())
    }

    fn verdict(&mut self, arguments: &mut ArgumentConsumer<'_>) -> Result<(), Box<dyn Error>> {
        let id = arguments.next_pos().ok_or("the partition is missing")?.parse()?;
        let class = class(arguments.next_pos().ok_or("the class is missing")?)?;
        let share = run::take(arguments, "share", 0.5)?;
        let key = |text: &str| Box::<[u8]>::from(text.as_bytes());
        let cut = arguments.take_key("cut").map(|at| Cut { key: key(at), larger_share: share });
        let hot_key = arguments.take_key("key").map(key);
        // Of a hot part of the key: the shares of the most frequent series and of the most frequent full key.
        let series: Option<f64> = arguments.take_key("series").map(str::parse).transpose()?;
        let top_key = run::take(arguments, "top", share)?;
        let top_prefix = series.into_iter().collect();
        let evidence = Evidence { top_key, top_prefix, ..Evidence::default() };
        let actual = run::take(arguments, "actual", share)?;
        let mut divisions = Vec::new();
        for division in arguments.take_key("divisions").unwrap_or_default().split_whitespace() {
            let (at, left_share) = division.split_once(':').ok_or("a division has no share")?;
            divisions.push(Division { key: key(at), left_share: left_share.parse()? });
        }
        let verdict = Verdict { class, cut, divisions, hot_key, evidence };
        self.verdicts.insert(id, Judgement { verdict, actual });
        Ok(())
    }

    /// Adds to what the forecast asks for.
    fn ahead(&mut self, arguments: &mut ArgumentConsumer<'_>) -> Result<(), Box<dyn Error>> {
        let id = arguments.next_pos().ok_or("the partition is missing")?.parse()?;
        let table = self.part(id)?.table;
        let planned = self.planned.entry(table).or_default();
        let partition = PartitionId(id);
        let larger_share = run::take(arguments, "share", 0.5)?;
        if let Some(key) = arguments.take_key("cut") {
            let key = key.as_bytes().into();
            planned.cuts.push(PlannedCut { partition, key, larger_share });
        }
        planned.expects.push((partition, run::take(arguments, "load", 1.0)?));
        let minutes: u64 = run::take(arguments, "min", 0)?;
        planned.holds.push((partition, self.now_ms + minutes * 60 * SECOND_MS));
        self.scheduler.set_forecast(TableId(table), planned);
        Ok(())
    }

    /// Runs so many seconds; the actions and the outcomes of splits.
    fn run(&mut self, seconds: u64) -> String {
        let mut lines = Vec::new();
        for _ in 0..seconds {
            self.now_ms += SECOND_MS;
            self.report();
            let verdicts = &self.verdicts;
            let mut judge = |partition: PartitionId, _: u64| {
                verdicts.get(&partition.0).map(|judgement| judgement.verdict.clone())
            };
            for action in self.scheduler.tick(self.now_ms, &mut judge) {
                lines.push(format!("{}: {}", self.time(), describe(&action.step)));
                self.carry_out(&action, &mut lines);
            }
            for outcome in self.scheduler.take_outcomes() {
                let Some(share) = outcome.actual_share.filter(|_| outcome.why == SplitWhy::Load)
                else {
                    continue;
                };
                let word = if outcome.in_vain { "in vain" } else { "useful" };
                lines.push(format!(
                    "{}: the split of partition {} was {word}, the busier part has {share:.2} of the load",
                    self.time(),
                    outcome.left.0
                ));
            }
        }
        if lines.is_empty() { "nothing to do".to_owned() } else { lines.join("\n") }
    }

    fn time(&self) -> String {
        let seconds = (self.now_ms - START_MS) / SECOND_MS;
        let (minutes, rest) = (seconds / 60, seconds % 60);
        match (minutes / 60, minutes % 60) {
            (0, 0) => format!("{rest} s"),
            (0, minutes) => format!("{minutes} min {rest} s"),
            (hours, minutes) => format!("{hours} h {minutes} min"),
        }
    }

    fn report(&mut self) {
        for part in &mut self.parts {
            part.load.mb += part.load.grows;
            let load = &part.load;
            let counters = &mut part.counters;
            counters.busy_ns += whole(load.rho * 1e9);
            counters.scan_ns += whole(load.reads * 1e9);
            counters.write_rows += whole(load.rows);
            // A thousand requests a second, some of them refused.
            counters.write_batches += whole(1_000.0 * (1.0 - load.refused));
            counters.rejected += whole(1_000.0 * load.refused);
            let report = PartitionReport {
                partition: PartitionId(part.id),
                term: 1,
                since_ms: part.since_ms,
                at_ms: self.now_ms,
                counters: *counters,
                size_bytes: whole(load.mb * MB),
                queue_depth: load.waiting,
            };
            self.scheduler.observe(self.now_ms, NodeId(part.leader), &report);
        }
    }

    fn carry_out(&mut self, action: &Action, lines: &mut Vec<String>) {
        let (id, now_ms) = (action.id, self.now_ms);
        match &action.step {
            Step::Split { partition, at, why, right_leader, .. } => {
                let position = self.position(*partition);
                if self.parts[position].stuck {
                    lines
                        .push(format!("{}: the split fails, one side would be empty", self.time()));
                    self.scheduler.failed(id, Failed::AtEdge, now_ms);
                    return;
                }
                let right = self.parts.iter().map(|part| part.id).max().unwrap_or_default() + 1;
                let mut new = self.parts[position].clone();
                new.id = right;
                (new.counters, new.since_ms) = (Counters::default(), now_ms);
                new.leader = right_leader.map_or(new.leader, |node| node.0);
                let (load_left, size_left) = self.shares(*partition, at, *why);
                let left = &mut self.parts[position].load;
                let whole = left.clone();
                scale(left, &whole, load_left, size_left);
                scale(&mut new.load, &whole, 1.0 - load_left, 1.0 - size_left);
                self.parts.insert(position + 1, new);
                self.scheduler.done(id, Done::Split { right: PartitionId(right) }, now_ms);
                return;
            }
            Step::Merge { left, right, .. } => {
                let removed = self.parts.remove(self.position(*right)).load;
                let position = self.position(*left);
                let merged = &mut self.parts[position].load;
                merged.rho += removed.rho;
                merged.reads += removed.reads;
                merged.rows += removed.rows;
                merged.mb += removed.mb;
            }
            Step::TransferLeader { partition, to, .. } => {
                let position = self.position(*partition);
                self.parts[position].leader = to.0;
            }
            Step::MoveReplica { partition, from, to, .. } => {
                let position = self.position(*partition);
                let part = &mut self.parts[position];
                part.voters.retain(|node| *node != from.0);
                part.voters.push(to.0);
                if part.leader == from.0 {
                    part.leader = to.0;
                }
            }
            Step::Rekey { table, buckets, hash, .. } => {
                if let Some(facts) = self.tables.get_mut(&table.0) {
                    (facts.buckets, facts.hash_of) = (*buckets, Some(*hash));
                    self.scheduler.set_table(*table, facts.clone());
                }
            }
        }
        self.scheduler.done(id, Done::AsProposed, now_ms);
    }

    /// Shares of the load and of the bytes that the left part of a split keeps.
    fn shares(&self, partition: PartitionId, at: &At, why: SplitWhy) -> (f64, f64) {
        let actual = self.verdicts.get(&partition.0).map_or(0.5, |judgement| judgement.actual);
        match (at, why) {
            (At::HighWater, _) => (0.0, 1.0),
            (At::LowWater, _) => (1.0, 0.0),
            (At::Middle, _) => (0.5, 0.5),
            // The keys before the hot one, then the hot one.
            (At::Key(_), SplitWhy::IsolateKey) if self.verdicts.contains_key(&partition.0) => {
                ((1.0 - actual) / 2.0, 0.5)
            }
            (At::Key(_), SplitWhy::IsolateKey) => (0.8, 0.0),
            (At::Key(_), _) => (actual, 0.5),
        }
    }

    fn hot(&self) -> String {
        let lines = self.scheduler.hot(self.now_ms).into_iter().map(|hot| {
            let class = hot.verdict.map_or("no verdict", |verdict| name(verdict.class));
            let refused = hot.refused.map_or_else(String::new, |refused| {
                format!(", not split because {}", reason(refused))
            });
            let id = hot.partition.0;
            let rest_ms = hot.resting_until_ms.saturating_sub(self.now_ms);
            let rests = if hot.in_vain > 0 && rest_ms > 0 {
                format!(
                    ", rests for {} s after {} splits in vain",
                    rest_ms / SECOND_MS,
                    hot.in_vain
                )
            } else {
                String::new()
            };
            format!("partition {id}: rho {:.2}, {class}{refused}{rests}", hot.rates.rho_10)
        });
        let lines: Vec<String> = lines.collect();
        if lines.is_empty() { "no hot partitions".to_owned() } else { lines.join("\n") }
    }
}

fn load_of(before: &Load, arguments: &mut ArgumentConsumer<'_>) -> Result<Load, Box<dyn Error>> {
    Ok(Load {
        rho: run::take(arguments, "rho", before.rho)?,
        reads: run::take(arguments, "reads", before.reads)?,
        refused: run::take(arguments, "refused", before.refused)?,
        rows: run::take(arguments, "rows", before.rows)?,
        mb: run::take(arguments, "mb", before.mb)?,
        grows: run::take(arguments, "grows", before.grows)?,
        waiting: run::take(arguments, "waiting", before.waiting)?,
    })
}

fn scale(part: &mut Load, whole: &Load, load: f64, size: f64) {
    part.rho = whole.rho * load;
    part.reads = whole.reads * load;
    part.rows = whole.rows * load;
    part.grows = whole.grows * load;
    part.mb = whole.mb * size;
}

fn reason(refused: NoSplit) -> String {
    match refused {
        NoSplit::Off => "the table does not split by load".to_owned(),
        NoSplit::NotHot => "it is not hot for long enough".to_owned(),
        NoSplit::TooMany => "the table has its maximum of partitions".to_owned(),
        NoSplit::NoVerdict => "there is no verdict".to_owned(),
        NoSplit::Class(class) => format!("no cut helps {}", name(class)),
        NoSplit::LowGain => "the best cut divides too little".to_owned(),
        NoSplit::KeyAlone => "the hot key has too much of the load, or is alone".to_owned(),
    }
}

fn describe(step: &Step) -> String {
    let moved = |why: &MoveWhy| {
        format!(
            "{:.2} cores off a node at {:.2} of its capacity to one at {:.2}, mean {:.2}",
            why.moved, why.from_load, why.to_load, why.mean_load
        )
    };
    match step {
        Step::Split { partition, at, why, predicted_share, right_leader, .. } => {
            let place = match at {
                At::Key(key) => format!("at {}", key.escape_ascii()),
                At::Middle => "in the middle of its bytes".to_owned(),
                At::HighWater => "above its highest key".to_owned(),
                At::LowWater => "at its lowest key".to_owned(),
            };
            let why = match why {
                SplitWhy::Load => "to divide its load",
                SplitWhy::Size => "because it is large",
                SplitWhy::RightEdge => "because it is large and grows at its right end",
                SplitWhy::LeftEdge => "because it is large and grows at its left end",
                SplitWhy::IsolateKey => "to isolate a hot key",
                SplitWhy::Forecast => "ahead of a peak",
            };
            let share = predicted_share
                .map_or_else(String::new, |share| format!(", predicted share {share:.2}"));
            let leader = right_leader
                .map_or_else(String::new, |node| format!(", right part led by node {}", node.0));
            format!("split partition {} {place} {why}{share}{leader}", partition.0)
        }
        Step::Merge { left, right, why } => format!(
            "merge partitions {} and {} (rho {:.2}, {} MB)",
            left.0,
            right.0,
            why.rho_max,
            why.size_bytes >> 20
        ),
        Step::TransferLeader { partition, to, why } => {
            format!(
                "transfer the leadership of partition {} to node {}: {}",
                partition.0,
                to.0,
                moved(why)
            )
        }
        Step::MoveReplica { partition, from, to, why } => format!(
            "move the replica of partition {} from node {} to node {}: {}",
            partition.0,
            from.0,
            to.0,
            moved(why)
        ),
        Step::Rekey { table, buckets, hash, class } => format!(
            "place new rows of table {} by hash{} in {buckets} buckets, because of {}",
            table.0,
            if *hash == HashOf::Key { " of the whole key" } else { "" },
            name(*class)
        ),
    }
}

impl Runner for Script {
    type Command = Command;

    fn run(&mut self, command: &Command, _: &Context) -> Result<String, Box<dyn Error>> {
        let mut arguments = command.consume_args();
        let mut output = String::new();
        match command.name.as_str() {
            "nodes" => self.nodes(&mut arguments)?,
            "table" => self.table(&mut arguments)?,
            "partition" => self.partition(&mut arguments)?,
            "verdict" => self.verdict(&mut arguments)?,
            "ahead" => self.ahead(&mut arguments)?,
            "load" => {
                let id = arguments.next_pos().ok_or("the partition is missing")?.parse()?;
                let part = self.part(id)?;
                part.load = load_of(&part.load, &mut arguments)?;
            }
            "rotating" => {
                let id = arguments.next_pos().ok_or("the table is missing")?.parse()?;
                let rotates = arguments.next_pos().ok_or("true or false is missing")?.parse()?;
                let rotation = if rotates { Some(Rotation::default()) } else { None };
                self.scheduler.set_rotating(TableId(id), rotation);
            }
            "fail" => {
                let id = arguments.next_pos().ok_or("the partition is missing")?.parse()?;
                self.part(id)?.stuck = true;
            }
            "incomplete" => {
                let id = arguments.next_pos().ok_or("the partition is missing")?.parse()?;
                self.scheduler.set_failed(BTreeSet::from([PartitionId(id)]));
            }
            "run" => {
                let seconds = run::take(&mut arguments, "s", 0)?
                    + 60 * run::take(&mut arguments, "min", 0)?
                    + 3_600 * run::take(&mut arguments, "h", 0)?;
                output = Self::run(self, seconds);
            }
            "hot" => output = self.hot(),
            other => return Err(format!("unknown command {other}").into()),
        }
        arguments.reject_next()?;
        Ok(output)
    }
}

#[test]
fn scripts() {
    run::run_all("scheduler", Script::new);
}
