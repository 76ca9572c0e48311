//! A table under load: its operations, its keys, and its initial partitions.
//!
//! Invariants: cuts ascend and are inside the key space; all sources have keys of the table's shape.

use std::sync::Arc;

use partita_load::{Remedy, TableFacts};

use super::design::{BUCKETS, Design, Shape, keys};
use super::law::encode;
use super::listed::Listed;
use super::part::{Part, SECOND_US};
use super::rate::Rate;
use super::source::{Kind, Source};
use super::stamp::{BEGIN_US, Stamp};

/// Initial placement of the leaders of a table's partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Distributed over the nodes.
    Even,
    /// All on the first node.
    OneNode,
}

/// Operations per second by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mix {
    /// Rows written.
    pub writes: f64,
    /// Keys read.
    pub reads: f64,
    /// Ranges read.
    pub scans: f64,
}

/// A table of entities and times, for which other key designs are possible.
#[derive(Clone, Debug)]
pub struct Events {
    pub(crate) design: Design,
    pub(crate) entity: &'static str,
    pub(crate) entities: Arc<Listed>,
    pub(crate) time: Stamp,
    pub(crate) rate: Rate,
}

/// A table and its load.
#[derive(Clone, Debug)]
pub struct TableLoad {
    /// Table name.
    pub name: String,
    /// Key columns.
    pub shape: Shape,
    /// Sources of operations.
    pub sources: Vec<Source>,
    /// First keys of all partitions except the first.
    pub cuts: Vec<Vec<u8>>,
    /// Options for the scheduler.
    pub facts: TableFacts,
    /// Bytes per row.
    pub row_bytes: f64,
    /// Initial placement of its leaders.
    pub spread: Spread,
    /// Entities, times and design, if the table has an entity and a time.
    pub events: Option<Events>,
    /// Keys that exist before the first operation.
    pub(crate) prior: Option<Part>,
    /// True if its rows are the first table's under another key: one of the two is an index of the other.
    pub mirrors: bool,
}

impl TableLoad {
    /// A table of events under a key design, with this number of initial partitions.
    #[must_use]
    pub fn events(name: &str, events: Events, partitions: u32) -> Self {
        let (law, shape) = keys(events.design, events.entity, &events.entities, events.time);
        let cuts = event_cuts(&events, &shape, partitions);
        let buckets = if events.design.hashed() { partitions } else { 1 };
        let facts = TableFacts {
            append_only: true,
            tail: shape.tail,
            buckets,
            partitions_min: if events.design.hashed() { partitions as usize } else { 1 },
            remedy: if events.design.cures_itself() { Remedy::Auto } else { Remedy::Advise },
            ..TableFacts::default()
        };
        let source = Source { law, rate: events.rate, kind: Kind::Write, cost: 1.0 };
        Self {
            name: name.to_owned(),
            shape,
            sources: vec![source],
            cuts,
            facts,
            row_bytes: 100.0,
            spread: Spread::Even,
            events: Some(events),
            prior: None,
            mirrors: false,
        }
    }

    /// A table of one column, split evenly below `end`.
    #[must_use]
    pub fn records(name: &str, sources: Vec<Source>, end: u64, partitions: u32) -> Self {
        let shape = Shape::single("key");
        Self {
            name: name.to_owned(),
            cuts: even_cuts(end, 8, partitions),
            shape,
            sources,
            facts: TableFacts::default(),
            row_bytes: 1_000.0,
            spread: Spread::Even,
            events: None,
            prior: None,
            mirrors: false,
        }
    }

    /// Share (0 to 1) of all operations on keys from `low` (inclusive) to `high` (exclusive; `None`: the end),
    /// weighted by their cost for the lane.
    #[must_use]
    pub fn share(&self, at_us: u64, low: &[u8], high: Option<&[u8]>) -> f64 {
        let (mut inside, mut total) = (0.0, 0.0);
        for source in &self.sources {
            let load = source.rate.at(at_us) * source.cost;
            let end = high.map_or(1.0, |key| source.law.below(at_us, key));
            inside += load * (end - source.law.below(at_us, low)).max(0.0);
            total += load;
        }
        if total > 0.0 { inside / total } else { 0.0 }
    }

    /// Present demand, in rows written per second (other operations by their cost).
    #[must_use]
    pub fn offered(&self, at_us: u64) -> f64 {
        self.sources.iter().map(|source| source.rate.at(at_us) * source.cost).sum()
    }

    /// Operations per second at a time, by kind.
    #[must_use]
    pub fn mix(&self, at_us: u64) -> Mix {
        let mut mix = Mix::default();
        for source in &self.sources {
            let rate = source.rate.at(at_us);
            match source.kind {
                Kind::Write => mix.writes += rate,
                Kind::Read => mix.reads += rate,
                Kind::ScanAhead(_) | Kind::ScanRecent(_) => mix.scans += rate,
            }
        }
        mix
    }

    /// True if the demand on every partition is constant.
    #[must_use]
    pub fn still(&self) -> bool {
        self.sources.iter().all(|source| source.rate.still() && source.law.still())
    }
}

/// Evenly spaced cuts of a column of `width` bytes below `end`.
pub(crate) fn even_cuts(end: u64, width: usize, partitions: u32) -> Vec<Vec<u8>> {
    let cut = |number: u32| {
        let value = u128::from(end) * u128::from(number) / u128::from(partitions.max(1));
        let value = u64::try_from(value).unwrap_or(u64::MAX);
        value.to_be_bytes()[8 - width..].to_vec()
    };
    (1..partitions).map(cut).collect()
}

fn event_cuts(events: &Events, shape: &Shape, partitions: u32) -> Vec<Vec<u8>> {
    let parts = u64::from(partitions.max(1));
    match events.design {
        Design::HashUid | Design::HashAll => even_cuts(BUCKETS, 2, partitions),
        // Partitions of a table in use for some time: one per hour, the last one growing.
        Design::TsUid | Design::TsUidAuto => {
            let cut = |ago: u64| {
                let ticks = (BEGIN_US - 3_600 * SECOND_US * ago) / events.time.grain_us;
                let value = if events.time.descending { u64::MAX - ticks } else { ticks };
                let mut key = Vec::new();
                encode(&[value], &shape.widths, &mut key);
                key
            };
            let mut cuts: Vec<Vec<u8>> = (1..parts).map(cut).collect();
            cuts.sort();
            cuts
        }
        // Equal ranges of the existing entities.
        Design::UidTs | Design::Single => {
            let values: Vec<u64> = events.entities.values().collect();
            let mut cuts: Vec<Vec<u8>> = (1..parts)
                .filter_map(|part| {
                    values.get(
                        values.len() * crate::number::index(part as f64)
                            / crate::number::index(parts as f64),
                    )
                })
                .map(|value| value.to_be_bytes().to_vec())
                .collect();
            cuts.dedup();
            if cuts
                .first()
                .is_some_and(|cut| values.first().is_some_and(|first| *cut == first.to_be_bytes()))
            {
                cuts.remove(0);
            }
            cuts
        }
    }
}
