//! How many partitions a query touches, for the six kinds of queries that people ask of such tables.
//!
//! A query that names the leading columns of the key (or, with hash buckets, all that is hashed) touches the partitions of
//! that range; any other touches all. Where new rows are placed otherwise than old ones, it touches those of both. Averages
//! and 99 % are over sampled entities.
//!
//! Invariant: between 1 and the number of partitions.

use partita_load::Random;
use serde::Serialize;

use crate::cluster::{AFTERWARDS, Cluster};
use crate::workload::{BEGIN_US, Design, SECOND_US, bucket_of, columns_of};

/// The queries, in the order of [`FanOut::mean`].
pub const QUERIES: [&str; 6] =
    ["by user", "by time range", "by user and time", "last point", "top-n newest", "full scan"];
const ENTITIES: usize = 200;
/// The range that is asked for: the last five minutes.
const RANGE_US: u64 = 300 * SECOND_US;

/// Partitions that each of [`QUERIES`] touches.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FanOut {
    /// On average.
    pub mean: [f64; 6],
    /// In 99 of 100 cases no more than this.
    pub p99: [f64; 6],
}

/// Partitions of one placement: how its keys are made, and the first key of each.
struct Placed<'a> {
    design: Design,
    bounds: Vec<&'a [u8]>,
}

/// What is asked for: an entity, and times from one on and before another.
struct Asked {
    entity: u64,
    from: u64,
    to: u64,
}

impl Placed<'_> {
    /// Partitions between two keys, of which the leading columns are given.
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
        let from = self.bounds.partition_point(|bound| **bound <= *low).max(1);
        let to = self.bounds.partition_point(|bound| **bound < *high);
        (to + 1 - from.min(to)) as f64
    }

    /// Partitions that each of [`QUERIES`] touches.
    fn touched(&self, asked: &Asked) -> [f64; 6] {
        let every = self.bounds.len() as f64;
        let &Asked { entity, from, to } = asked;
        let of = |own: &[u64]| {
            let with = |more: &[u64]| [own, more].concat();
            let next = [&own[..own.len() - 1], &[entity.saturating_add(1)]].concat();
            let recent = self.between(&with(&[from]), &with(&[to]));
            let last = self.between(&with(&[to - 1]), &with(&[to]));
            [self.between(own, &next), every, recent, last, every, every]
        };
        match self.design {
            _ if self.bounds.is_empty() => [0.0; 6],
            Design::TsUid | Design::TsUidAuto => {
                let range = self.between(&[from], &[to]);
                [every, range, range, every, 1.0, every]
            }
            Design::UidTs | Design::Single => of(&[entity]),
            Design::HashUid => of(&[bucket_of(entity), entity]),
            // The time is hashed too: where a user's rows are, nobody knows.
            Design::HashAll => [every; 6],
        }
    }
}

impl Cluster {
    /// The fan-out of the first table as it is cut now; nothing for a table without entity and time.
    #[must_use]
    pub fn fan_out(&self) -> Option<FanOut> {
        let events = self.load().events.as_ref()?;
        let table = &self.tables[0];
        let lows = |ids: &[u32]| ids.iter().map(|id| &*self.parts[*id as usize].low).collect();
        // What is placed otherwise from some time on is read where it was before, too.
        let placed = [
            Placed {
                design: if table.key_epoch > 0 { AFTERWARDS } else { events.design },
                bounds: lows(&table.order),
            },
            Placed { design: events.design, bounds: lows(&table.past) },
        ];
        let now = BEGIN_US + self.at_us();
        let grain = events.time.grain_us;
        let time =
            |us: u64| if events.time.descending { u64::MAX - us / grain } else { us / grain };
        let (mut old, mut new) = (time(now - RANGE_US), time(now));
        if old > new {
            std::mem::swap(&mut old, &mut new);
        }
        let new = new.saturating_add(1);
        let mut random = Random::new(self.options.seed);
        let mut counts: Vec<[f64; 6]> = Vec::with_capacity(ENTITIES);
        let shape = &self.load().shape;
        let entity_at = shape.names.iter().position(|own| own == events.entity);
        for _ in 0..ENTITIES {
            let mut drawn = Vec::new();
            let source = &self.load().sources[0];
            source.law.draw(self.at_us(), 0.0, 1.0, &mut random, &mut drawn);
            let columns = columns_of(&drawn, &shape.widths);
            let entity = entity_at.and_then(|at| columns.get(at)).copied().unwrap_or(0);
            let asked = Asked { entity, from: old, to: new };
            let [ours, before] = placed.each_ref().map(|placed| placed.touched(&asked));
            counts.push(std::array::from_fn(|query| ours[query] + before[query]));
        }
        let mut fan_out = FanOut::default();
        for query in 0..QUERIES.len() {
            let mut own: Vec<f64> = counts.iter().map(|count| count[query]).collect();
            own.sort_unstable_by(f64::total_cmp);
            fan_out.mean[query] = own.iter().sum::<f64>() / own.len() as f64;
            fan_out.p99[query] = own[own.len() * 99 / 100];
        }
        Some(fan_out)
    }
}
