//! Number of partitions that a query touches, for six typical kinds of queries on such tables.
//!
//! A query that names the leading columns of the key (or, with hash buckets, all hashed columns) touches the
//! partitions of that range; any other touches all. If new rows are placed differently from old ones, it touches
//! partitions of both placements. Means and 99th percentiles are over sampled entities.
//!
//! Invariant: a value is between 1 and the number of partitions.

use partita_load::Random;
use serde::Serialize;

use crate::cluster::{Cluster, afterwards};
use crate::workload::{BEGIN_US, Design, SECOND_US, bucket_of, columns_of};

/// The queries, in the order of [`FanOut::mean`].
pub const QUERIES: [&str; 6] =
    ["by user", "by time range", "by user and time", "last point", "top-n newest", "full scan"];
const ENTITIES: usize = 200;
/// Time range of the queries: the last five minutes.
const RANGE_US: u64 = 300 * SECOND_US;

/// Partitions that each of [`QUERIES`] touches.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FanOut {
    /// Mean number of partitions, by query.
    pub mean: [f64; 6],
    /// The 99th percentile of the number of partitions, by query.
    pub p99: [f64; 6],
}

/// Partitions of one placement: its key design, and the first key of each.
struct Placed<'a> {
    design: Design,
    bounds: Vec<&'a [u8]>,
}

/// A query: an entity, and a half-open time range.
struct Asked {
    entity: u64,
    from: u64,
    to: u64,
}

impl Placed<'_> {
    /// Number of partitions between two keys, given by their leading columns.
    fn between(&self, low: &[u64], high: &[u64]) -> f64 {
        let key = |columns: &[u64]| {
            let widths = if self.design.hashed() { [2, 8, 8] } else { [8, 8, 8] };
            let mut key = Vec::new();
            for (column, width) in columns.iter().zip(widths) {
                key.extend_from_slice(&column.to_be_bytes()[8 - width..]);
            }
            key
        };
        let (low, high) = (key(low), key(high));
        let first = self.bounds.partition_point(|bound| **bound <= *low).max(1);
        let end = self.bounds.partition_point(|bound| **bound < *high);
        (end + 1 - first.min(end)) as f64
    }

    /// Number of partitions that each of [`QUERIES`] touches.
    fn touched(&self, request: &Asked) -> [f64; 6] {
        let partitions = self.bounds.len() as f64;
        let &Asked { entity, from: start, to: end } = request;
        let touched_by = |prefix: &[u64]| {
            let extended = |more: &[u64]| [prefix, more].concat();
            let next = [&prefix[..prefix.len() - 1], &[entity.saturating_add(1)]].concat();
            let recent = self.between(&extended(&[start]), &extended(&[end]));
            let last = self.between(&extended(&[end - 1]), &extended(&[end]));
            [self.between(prefix, &next), partitions, recent, last, partitions, partitions]
        };
        match self.design {
            _ if self.bounds.is_empty() => [0.0; 6],
            Design::TsUid | Design::TsUidAuto => {
                let range = self.between(&[start], &[end]);
                [partitions, range, range, partitions, 1.0, partitions]
            }
            Design::UidTs | Design::Single => touched_by(&[entity]),
            Design::HashUid => touched_by(&[bucket_of(entity), entity]),
            // The time is hashed, too: an entity's rows may be in any partition.
            Design::HashAll => [partitions; 6],
        }
    }
}

impl Cluster {
    /// Fan-out of the first table with its present partitions; `None` for a table without entity and time.
    #[must_use]
    pub fn fan_out(&self) -> Option<FanOut> {
        let events = self.load().events.as_ref()?;
        let table = &self.tables[0];
        let lows = |ids: &[u32]| ids.iter().map(|id| &*self.parts[*id as usize].low).collect();
        // After a repartition, old rows are read in the former placement.
        let placed = [
            Placed {
                design: match table.load.facts.hash_of {
                    Some(hash) => afterwards(hash),
                    None => events.design,
                },
                bounds: lows(&table.order),
            },
            Placed { design: events.design, bounds: lows(&table.past) },
        ];
        let now_us = BEGIN_US + self.at_us();
        let grain = events.time.grain_us;
        let time =
            |us: u64| if events.time.descending { u64::MAX - us / grain } else { us / grain };
        let (mut old, mut new) = (time(now_us - RANGE_US), time(now_us));
        if old > new {
            std::mem::swap(&mut old, &mut new);
        }
        let new = new.saturating_add(1);
        let mut random = Random::new(self.options.seed);
        let mut counts: Vec<[f64; 6]> = Vec::with_capacity(ENTITIES);
        let shape = &self.load().shape;
        let entity_at = shape.names.iter().position(|name| name == events.entity);
        for _ in 0..ENTITIES {
            let mut drawn = Vec::new();
            let source = &self.load().sources[0];
            source.law.draw(self.at_us(), 0.0, 1.0, &mut random, &mut drawn);
            let columns = columns_of(&drawn, &shape.widths);
            let entity = entity_at.and_then(|index| columns.get(index)).copied().unwrap_or(0);
            let request = Asked { entity, from: old, to: new };
            let [ours, former] = placed.each_ref().map(|placed| placed.touched(&request));
            counts.push(std::array::from_fn(|query| ours[query] + former[query]));
        }
        let mut fan_out = FanOut::default();
        for query in 0..QUERIES.len() {
            let mut values: Vec<f64> = counts.iter().map(|count| count[query]).collect();
            values.sort_unstable_by(f64::total_cmp);
            fan_out.mean[query] = values.iter().sum::<f64>() / values.len() as f64;
            fan_out.p99[query] = values[values.len() * 99 / 100];
        }
        Some(fan_out)
    }
}
