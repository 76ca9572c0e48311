//! How many partitions a query touches, for the six kinds of queries that people ask of such tables.
//!
//! A query that names the leading columns of the key (or, with hash buckets, all that is hashed) touches the partitions of
//! that range; any other touches all. Averages and 99 % are over sampled entities.
//!
//! Invariant: between 1 and the number of partitions.

use partita_load::Random;
use serde::Serialize;

use crate::cluster::Cluster;
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

impl Cluster {
    /// The fan-out of the first table as it is cut now; nothing for a table without entity and time.
    #[must_use]
    pub fn fan_out(&self) -> Option<FanOut> {
        let events = self.load().events.as_ref()?;
        let design = if self.tables[0].key_epoch > 0 { Design::HashAll } else { events.design };
        let all = self.tables[0].order.len();
        let widths = &self.load().shape.widths;
        let bounds = self.bounds();
        let touched = |low: &[u64], high: &[u64]| {
            let key = |columns: &[u64]| {
                let mut key = Vec::new();
                for (column, width) in columns.iter().zip(widths) {
                    key.extend_from_slice(&column.to_be_bytes()[8 - width..]);
                }
                key
            };
            let (low, high) = (key(low), key(high));
            let from = bounds.partition_point(|bound| **bound <= *low).max(1);
            let to = bounds.partition_point(|bound| **bound < *high);
            (to + 1 - from.min(to)) as f64
        };
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
        let every = all as f64;
        for _ in 0..ENTITIES {
            let mut drawn = Vec::new();
            let source = &self.load().sources[0];
            source.law.draw(self.at_us(), 0.0, 1.0, &mut random, &mut drawn);
            let columns = columns_of(&drawn, widths);
            let at = |name: &str| self.load().shape.names.iter().position(|own| own == name);
            let entity = at(events.entity).and_then(|at| columns.get(at)).copied().unwrap_or(0);
            let bucket = bucket_of(entity);
            counts.push(match design {
                Design::TsUid => {
                    let range = touched(&[old], &[new]);
                    [every, range, range, every, 1.0, every]
                }
                Design::UidTs | Design::Single => {
                    let own = touched(&[entity], &[entity.saturating_add(1)]);
                    let recent = touched(&[entity, old], &[entity, new]);
                    let last = touched(&[entity, new - 1], &[entity, new]);
                    [own, every, recent, last, every, every]
                }
                Design::HashUid => {
                    let own = touched(&[bucket, entity], &[bucket, entity.saturating_add(1)]);
                    let recent = touched(&[bucket, entity, old], &[bucket, entity, new]);
                    let last = touched(&[bucket, entity, new - 1], &[bucket, entity, new]);
                    [own, every, recent, last, every, every]
                }
                // The time is hashed too: where a user's rows are, nobody knows.
                Design::HashAll => [every; 6],
            });
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
