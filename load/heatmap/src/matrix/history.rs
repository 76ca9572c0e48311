//! The history of one table's load, in layers: older layers have longer columns; every layer has at most 512 rows
//! over keys.
//!
//! ```text
//!   14 days                    12 h          1 h         12 min      2 min    now
//!   | 2 h each                 | 5 min each  | 30 s each | 5 s each  | 1 s each |
//! ```
//!
//! Invariants: columns ascend by time within a layer, and all columns of a layer are older than those of the finer
//! layer before it. A column that leaves a layer is added to the next one, so the sum is kept until the last layer
//! drops it. The memory is bounded; `bytes` gives the bound: about 7 MB for keys of ordinary length.
//!
//! A history outlives its process as bytes ([`History::to_bytes`]); where they are kept is up to the caller.

mod bytes;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::block::Block;
use super::report::{Key, Report};
use crate::metric::METRICS;

/// Columns that share their rows. With many, the rows fit none of the columns well; with few, the keys of the rows
/// cost as much as the cells.
const BLOCK_COLUMNS: usize = 24;

/// Maximum number of marks kept; the oldest are dropped.
const MARKS_MAX: usize = 2048;

/// Maximum number of findings kept; the oldest are dropped.
const VERDICTS_MAX: usize = 256;

/// Maximum length of each text of a mark or a finding, bytes; the rest is cut off.
const TEXT_MAX: usize = 512;

/// Weight of the newest report in a partition's current rates, which are an exponential moving average: noise of
/// single seconds is smoothed, and a change shows within about five reports.
const NEWEST_WEIGHT: f32 = 0.3;

/// One layer: the length of its columns and the minimum number of columns kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Length of a column in seconds; a multiple of the finer layer's.
    pub step: u32,
    /// Number of columns kept.
    pub columns: usize,
}

/// The layers of two weeks. 666 columns (and a few that wait to be added up) of 512 rows of 4 numbers of 4 bytes
/// are 5.8 MB; their keys, shared by 24 columns each, take about 1 MB more.
pub const LAYERS: [Layer; 5] = [
    Layer { step: 1, columns: 120 },
    Layer { step: 5, columns: 120 },
    Layer { step: 30, columns: 120 },
    Layer { step: 300, columns: 144 },
    Layer { step: 7200, columns: 162 },
];

/// A change to a partition.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum MarkKind {
    /// The partition was split in two.
    Split,
    /// The partition was merged with its neighbour.
    Merge,
    /// A replica moved to another node.
    Move,
    /// Another replica became the leader.
    Transfer,
}

/// A change with its time and key.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Seconds since the Unix epoch.
    pub at: u64,
    /// The key of the split, or the partition's first key.
    pub key: Key,
    /// The kind of change.
    pub kind: MarkKind,
    /// Description for people.
    pub text: String,
}

/// A verdict of the detector about a partition.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The partition's id, if known.
    pub partition: Option<u64>,
    /// Start of the finding, seconds since the Unix epoch.
    pub since: u64,
    /// End of the finding; `None` while it holds.
    pub until: Option<u64>,
    /// The partition's first key at the start of the finding.
    pub start: Key,
    /// The end of the partition's keys, exclusive; `None` if there is none.
    pub end: Option<Key>,
    /// The class as shown to users, for example `MOVING_RIGHT`.
    pub class: String,
    /// The reason, in words and numbers.
    pub evidence: String,
    /// The advice: DDL, if any helps.
    pub advice: String,
}

/// The current state of a partition.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Present {
    pub(crate) id: u64,
    pub(crate) leader: Option<u64>,
    pub(crate) end: Option<Key>,
    pub(crate) rates: [f32; METRICS],
}

/// The history of one table's load; see the head of this module.
#[derive(Clone, Debug)]
pub struct History {
    layers: Vec<(Layer, VecDeque<Block>)>,
    /// Partitions by first key.
    present: BTreeMap<Key, Present>,
    events: VecDeque<Event>,
    findings: VecDeque<Finding>,
}

impl Default for History {
    fn default() -> Self {
        Self::new(&LAYERS)
    }
}

impl History {
    /// An empty history. `layers` are ordered from the finest to the coarsest, and each step must be a multiple of
    /// the step before. Without any layer, there is one with a column per second.
    ///
    /// # Panics
    /// If a step is not a multiple of the one before, or zero.
    #[must_use]
    pub fn new(layers: &[Layer]) -> Self {
        let layers = if layers.is_empty() { &LAYERS[..1] } else { layers };
        for pair in layers.windows(2) {
            assert!(pair[0].step > 0 && pair[1].step % pair[0].step == 0, "steps {pair:?}");
        }
        Self {
            layers: layers.iter().map(|layer| (*layer, VecDeque::new())).collect(),
            present: BTreeMap::new(),
            events: VecDeque::new(),
            findings: VecDeque::new(),
        }
    }

    /// Adds the load of a span of time. Reports must arrive in ascending order. A report older than the newest
    /// column (a clock went back) is added to that column, so that nothing is lost.
    pub fn push(&mut self, report: &Report) {
        self.note_present(report);
        let second = Block::of_report(report);
        let step = u64::from(self.layers[0].0.step);
        let (mut time, end) = (report.from, report.from + u64::from(report.seconds.max(1)));
        while time < end {
            let start = time / step * step;
            let stop = end.min(start + step);
            let mut column = second.clone();
            let share = stop - time;
            for column in &mut column.columns {
                column.from = start;
                column.seconds = self.layers[0].0.step;
                column.covered = u32::try_from(share).unwrap_or(u32::MAX);
                for amount in column.cells.iter_mut().flatten() {
                    *amount *= share as f32;
                }
            }
            self.push_column(&column, start);
            time = stop;
        }
    }

    /// Records a change. Beyond the maximum number, the oldest is dropped.
    pub fn mark(&mut self, mut event: Event) {
        shorten(&mut event.text);
        self.events.push_back(event);
        if self.events.len() > MARKS_MAX {
            self.events.pop_front();
        }
    }

    /// Records a verdict of the detector. It replaces one of the same class that still holds and begins at the same
    /// key, and keeps that one's start.
    pub fn find(&mut self, mut finding: Finding) {
        for text in [&mut finding.class, &mut finding.evidence, &mut finding.advice] {
            shorten(text);
        }
        let same = |candidate: &&mut Finding| {
            candidate.until.is_none()
                && candidate.start == finding.start
                && candidate.class == finding.class
        };
        if let Some(earlier) = self.findings.iter_mut().find(same) {
            finding.since = earlier.since;
            *earlier = finding;
            return;
        }
        self.findings.push_back(finding);
        if self.findings.len() > VERDICTS_MAX {
            self.findings.pop_front();
        }
    }

    /// Ends all open findings about the partition that begins at a key.
    pub fn clear(&mut self, start: &[u8], end: u64) {
        for finding in &mut self.findings {
            if finding.until.is_none() && *finding.start == *start {
                finding.until = Some(end.max(finding.since));
            }
        }
    }

    /// Upper bound of the memory in use, bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let text = |length: usize| length + size_of::<Finding>();
        let events = self.events.iter().map(|event| text(event.text.len() + event.key.len()));
        let findings = self.findings.iter().map(|finding| {
            text(
                finding.class.len()
                    + finding.evidence.len()
                    + finding.advice.len()
                    + finding.start.len(),
            )
        });
        let present = self.present.keys().map(|key| 2 * key.len() + size_of::<(Key, Present)>());
        self.blocks().map(Block::bytes).sum::<usize>()
            + events.sum::<usize>()
            + findings.sum::<usize>()
            + present.sum::<usize>()
    }

    /// End of the newest column, seconds since the Unix epoch; `None` before the first report.
    #[must_use]
    pub fn newest(&self) -> Option<u64> {
        let last = self.blocks().flat_map(|block| block.columns.back());
        last.map(|column| column.from + u64::from(column.seconds)).max()
    }

    /// All blocks, in no particular order.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.layers.iter().flat_map(|(_, blocks)| blocks)
    }

    pub(crate) fn present(&self) -> &BTreeMap<Key, Present> {
        &self.present
    }

    pub(crate) fn events(&self) -> impl Iterator<Item = &Event> {
        self.events.iter()
    }

    pub(crate) fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter()
    }

    fn note_present(&mut self, report: &Report) {
        let mut previous: BTreeMap<u64, Present> = std::mem::take(&mut self.present)
            .into_values()
            .map(|partition| (partition.id, partition))
            .collect();
        for load in &report.partitions {
            let mut rates = load.rates;
            if let Some(partition) = previous.remove(&load.id) {
                for (rate, old) in rates.iter_mut().zip(partition.rates) {
                    *rate = old + NEWEST_WEIGHT * (*rate - old);
                }
            }
            let present =
                Present { id: load.id, leader: load.leader, end: load.end.clone(), rates };
            self.present.insert(Arc::clone(&load.start), present);
        }
    }

    fn push_column(&mut self, column: &Block, start: u64) {
        let blocks = &mut self.layers[0].1;
        let newest = blocks.back().and_then(|block| block.columns.back()).map(|last| last.from);
        match blocks.back_mut() {
            Some(block) if newest.is_some_and(|newest| start <= newest) => block.add(column),
            _ => add_to_layer(blocks, column),
        }
        for layer in 1..self.layers.len() {
            while let Some(older) = self.leave(layer - 1, self.layers[layer].0.step) {
                add_to_layer(&mut self.layers[layer].1, &older);
            }
        }
        if let Some((limit, blocks)) = self.layers.last_mut() {
            while blocks.iter().map(|block| block.columns.len()).sum::<usize>()
                > limit.columns.max(1)
            {
                take_first(blocks);
            }
        }
    }

    /// Removes from a layer with too many columns those that one column of the next layer replaces, and returns
    /// their sum.
    fn leave(&mut self, layer: usize, step: u32) -> Option<Block> {
        let (limit, blocks) = &mut self.layers[layer];
        let count: usize = blocks.iter().map(|block| block.columns.len()).sum();
        let first = blocks.front()?.columns.front()?.from / u64::from(step);
        let columns = blocks.iter().flat_map(|block| &block.columns);
        let group = columns.take_while(|column| column.from / u64::from(step) == first).count();
        if count < limit.columns.max(1) + group {
            return None;
        }
        let mut block = Block::empty();
        for _ in 0..group {
            block.append(&take_first(blocks)?);
        }
        Some(block.compacted(first * u64::from(step), step))
    }
}

/// Removes the oldest column and returns it over its own rows.
fn take_first(blocks: &mut VecDeque<Block>) -> Option<Block> {
    let block = blocks.front_mut()?;
    let column = block.columns.pop_front();
    let single = Block { axis: block.axis.clone(), columns: column.into_iter().collect() };
    if block.columns.is_empty() {
        blocks.pop_front();
    }
    Some(single)
}

fn add_to_layer(blocks: &mut VecDeque<Block>, column: &Block) {
    match blocks.back_mut() {
        Some(block) if block.columns.len() < BLOCK_COLUMNS => block.append(column),
        _ => {
            let mut block = Block::empty();
            block.append(column);
            blocks.push_back(block);
        }
    }
}

fn shorten(text: &mut String) {
    while text.len() > TEXT_MAX {
        text.pop();
    }
}
