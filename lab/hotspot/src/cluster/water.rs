//! Keys that a leader knows of its own partition: highest, lowest and middle; and random ones.
//!
//! Invariant: a returned key lies inside the partition.

use partita_load::{At, Random};

use super::{Cluster, Table};
use crate::streams::Op;
use crate::workload::Source;

/// Distance from the end of a partition's load, as a share of it.
const EDGE: f64 = 1e-9;

/// Shares of a source's operations below a range and below its end.
pub(super) fn span(source: &Source, at_us: u64, low: &[u8], high: Option<&[u8]>) -> (f64, f64) {
    (source.law.below(at_us, low), high.map_or(1.0, |key| source.law.below(at_us, key)))
}

/// Draws an operation on a range; false if none falls into it now.
pub(super) fn draw(
    table: &Table,
    at_us: u64,
    (low, high): (&[u8], Option<&[u8]>),
    random: &mut Random,
    op: &mut Op,
) -> bool {
    let sources = &table.load.sources;
    let weight = |source: &Source| {
        let (start, end) = span(source, at_us, low, high);
        source.rate.at(at_us) * source.cost * (end - start).max(0.0)
    };
    let total: f64 = sources.iter().map(weight).sum();
    if total <= 0.0 {
        return false;
    }
    let mut spot = random.unit() * total;
    let chosen = sources.iter().find(|source| {
        spot -= weight(source);
        spot < 0.0
    });
    let Some(source) = chosen.or(sources.last()) else { return false };
    source.draw(at_us, span(source, at_us, low, high), random, op);
    op.end.is_some() || (*op.key >= *low && high.is_none_or(|high| *op.key < *high))
}

impl Cluster {
    /// The key of a cut, and the share of the bytes left of it.
    pub(super) fn cut_key(&mut self, id: u32, cut: &At) -> Option<(Box<[u8]>, f64)> {
        let part = &self.parts[id as usize];
        let at_us = self.at_us();
        let table = &self.tables[part.table as usize];
        let writes = table.load.sources.iter().find(|source| source.is_write());
        let source = writes.or(table.load.sources.first())?;
        let (start, end) = span(source, at_us, &part.low, part.high.as_deref());
        let (spot, left_share) = match cut {
            At::Key(key) => {
                let key_share = source.law.below(at_us, key);
                let left_share = if end > start {
                    ((key_share - start) / (end - start)).clamp(0.0, 1.0)
                } else {
                    0.5
                };
                return self.inside(id, key.clone()).map(|key| (key, left_share));
            }
            At::HighWater => (end - (end - start) * EDGE, 1.0),
            At::LowWater => (start + (end - start) * EDGE, 0.0),
            At::Middle => (f64::midpoint(start, end), 0.5),
        };
        if end <= start {
            return None;
        }
        let mut key = Vec::new();
        source.law.draw(at_us, spot, spot, &mut self.random, &mut key);
        if matches!(cut, At::HighWater) {
            key.push(0);
        }
        self.inside(id, key.into()).map(|key| (key, left_share))
    }

    fn inside(&self, id: u32, key: Box<[u8]>) -> Option<Box<[u8]>> {
        let part = &self.parts[id as usize];
        (key > part.low && part.high.as_ref().is_none_or(|high| key < *high)).then_some(key)
    }
}
