//! The sampler that a node runs for each partition that it leads, once for writes and once for reads.
//!
//! ```text
//!   observe(second, rows) ──▶ reservoir of the open second ──▶ ring of ticks ──▶ sketch
//!                                         │ when the second is over
//!                                         ├──▶ edges (lowest and highest key so far)
//!                                         └──▶ heavy hitters
//! ```
//!
//! Invariants:
//! - A row that is not sampled costs an addition and a comparison; only the keys of sampled rows are read.
//! - Memory is bounded: [`SAMPLES_PER_SECOND`] keys for each of at most [`RING_ENGAGED_S`] seconds, two edges, and the
//!   heavy hitters.
//! - A sample is compared only with the edges of the seconds before the last one, so that writers who run up to a
//!   second behind each other still count as appending.
//!
//! The edges are taken from the samples, not from all rows. Comparing every key costs 2.8 ns a row, where sampling
//! itself costs 0.03 to 6 depending on the size of batches and the rate (`examples/sampler_cost.rs`), and the error is
//! known: when the load stands still, a key lies above `n` earlier samples by chance in one of `n + 1` cases, and `n`
//! grows by 32 a second; when keys grow, the highest sample lags by 1/32 of a second on average, where a lag of a whole
//! second is intended anyhow. Callers that know the partition's true edges (from its files) set them with
//! [`Sampler::set_edges`]: without them the first pass of a sweep looks like appending.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::heavy::Heavy;
use crate::random::Random;
use crate::reservoir::{Reservoir, Slot};
use crate::sample::{Sample, Sketch, Tick};

/// Number of keys kept of each second: with 320 in ten seconds a share is known to within 0.03 (one standard
/// deviation).
pub const SAMPLES_PER_SECOND: usize = 32;
/// Number of keys of each second that count towards frequent keys: with the memory of [`Heavy`] some 700 at a time.
const HEAVY_PER_SECOND: usize = 16;
/// Seconds that are kept while a partition is watched.
pub const RING_ENGAGED_S: u64 = 60;
/// Seconds that are kept otherwise, so that a verdict has something to begin with.
pub const RING_IDLE_S: u64 = 5;

/// Function from a key to the ends of its columns, ascending.
pub type Columns = Arc<dyn Fn(&[u8]) -> Vec<usize> + Send + Sync>;

/// The lowest and the highest key of a set; the end of a scan "to the end" is not included.
#[derive(Clone, Debug, Default)]
struct Edges {
    low: Option<Vec<u8>>,
    high: Option<Vec<u8>>,
}

impl Edges {
    fn widen(&mut self, low: Option<&[u8]>, high: Option<&[u8]>) {
        if let Some(low) = low
            && self.low.as_deref().is_none_or(|current| low < current)
        {
            self.low = Some(low.to_vec());
        }
        if let Some(high) = high
            && self.high.as_deref().is_none_or(|current| high > current)
        {
            self.high = Some(high.to_vec());
        }
    }
}

/// The highest key that an operation touches; `None` for a scan to the end.
fn far_edge<'s>(key: &'s [u8], end: Option<&'s [u8]>) -> Option<&'s [u8]> {
    end.map_or(Some(key), |end| (!end.is_empty()).then_some(end))
}

/// Samples the operations of one kind on one partition.
#[derive(Clone)]
pub struct Sampler {
    random: Random,
    columns: Option<Columns>,
    /// The current second; `open` is its sample.
    second: u64,
    open: Reservoir,
    /// Completed seconds.
    ring: VecDeque<Tick>,
    ring_s: u64,
    /// Edges of all seconds up to the one before the last.
    known: Edges,
    /// Edges of the last second.
    last: Edges,
    heavy: Heavy,
}

impl Sampler {
    /// A sampler whose choices are reproducible by `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            columns: None,
            second: 0,
            open: Reservoir::new(SAMPLES_PER_SECOND),
            ring: VecDeque::new(),
            ring_s: RING_IDLE_S,
            known: Edges::default(),
            last: Edges::default(),
            heavy: Heavy::default(),
        }
    }

    /// Sets the function of column ends, so that frequent values of leading columns are counted too.
    #[must_use]
    pub fn with_columns(mut self, columns: Columns) -> Self {
        self.columns = Some(columns);
        self
    }

    /// Sets the lowest and the highest key that the partition is known to hold: no key between them counts as appended.
    pub fn set_edges(&mut self, low: Option<&[u8]>, high: Option<&[u8]>) {
        self.known.widen(low, high);
    }

    /// Switches to keeping a minute of samples and counting frequent keys (`true`), or to keeping a few seconds only.
    pub fn engage(&mut self, engaged: bool) {
        self.ring_s = if engaged { RING_ENGAGED_S } else { RING_IDLE_S };
        if !engaged {
            self.heavy = Heavy::default();
        }
        self.trim();
    }

    /// True if a minute of samples is kept, and frequent keys are counted.
    #[must_use]
    pub fn is_engaged(&self) -> bool {
        self.ring_s == RING_ENGAGED_S
    }

    /// Observes `rows` rows (or point reads) in the given second since the Unix epoch; `key` returns the key of the row
    /// with a number, and is called for few of them. A second before the current one counts as the current one.
    #[inline]
    pub fn observe<'k>(&mut self, second: u64, rows: usize, key: impl Fn(usize) -> &'k [u8]) {
        if second > self.second {
            self.close(second);
        }
        self.open.offer(rows as u64, &mut self.random, |row, slot| {
            slot.key.clear();
            slot.key.extend_from_slice(key(usize::try_from(row).unwrap_or(usize::MAX)));
            slot.end = None;
        });
    }

    /// Observes a scan of the keys from `start` to `end` (exclusive; empty for "to the end").
    pub fn observe_scan(&mut self, second: u64, start: &[u8], end: &[u8]) {
        if second > self.second {
            self.close(second);
        }
        self.open.offer(1, &mut self.random, |_, slot| {
            slot.key.clear();
            slot.key.extend_from_slice(start);
            slot.end = Some(end.to_vec());
        });
    }

    /// The samples of the `window_s` seconds before the second `end`, which may be in progress. A heartbeat per second
    /// adds a window of 1 s, see [`Sketch::absorb`].
    #[must_use]
    pub fn sketch(&self, end: u64, window_s: u64) -> Sketch {
        let start = end.saturating_sub(window_s);
        let in_window = |second: u64| (start..end).contains(&second);
        let mut ticks: Vec<Tick> =
            self.ring.iter().filter(|tick| in_window(tick.second)).cloned().collect();
        if in_window(self.second) && self.open.count() > 0 {
            ticks.push(self.tick());
        }
        let edge = |key: &Option<Vec<u8>>| key.as_deref().map(Box::<[u8]>::from);
        let edges = edge(&self.known.low).zip(edge(&self.known.high));
        Sketch { ticks, heavy: self.heavy.shares(), edges }
    }

    /// The tick of the current second so far.
    fn tick(&self) -> Tick {
        let sample = |slot: &Slot| {
            let end = slot.end.as_deref();
            let far = far_edge(&slot.key, end);
            Sample {
                key: slot.key.as_slice().into(),
                end: end.map(Into::into),
                above: far.zip(self.known.high.as_deref()).is_some_and(|(far, edge)| far > edge),
                below: self.known.low.as_deref().is_some_and(|edge| *slot.key < *edge),
            }
        };
        let samples = self.open.in_order().into_iter().map(sample).collect();
        Tick { second: self.second, count: self.open.count(), samples }
    }

    /// Ends the current second, and begins another.
    #[cold]
    fn close(&mut self, next: u64) {
        // From the next second on, the present "last" second counts as known.
        let last = std::mem::take(&mut self.last);
        if self.open.count() > 0 {
            let tick = self.tick();
            let low = tick.samples.iter().map(|sample| &*sample.key).min();
            let high = tick
                .samples
                .iter()
                .filter_map(|sample| far_edge(&sample.key, sample.end.as_deref()))
                .max();
            let mut edges = Edges::default();
            edges.widen(low, high);
            if self.is_engaged() {
                self.count_heavy(&tick);
            }
            if next > self.second + 1 {
                self.known.widen(edges.low.as_deref(), edges.high.as_deref());
            } else {
                self.last = edges;
            }
            self.ring.push_back(tick);
        }
        self.known.widen(last.low.as_deref(), last.high.as_deref());
        self.open.clear();
        self.second = next;
        self.trim();
    }

    fn count_heavy(&mut self, tick: &Tick) {
        let step = tick.samples.len().div_ceil(HEAVY_PER_SECOND).max(1);
        let weight = tick.count as f64 / tick.samples.len().div_ceil(step) as f64;
        for sample in tick.samples.iter().step_by(step).filter(|sample| sample.end.is_none()) {
            let ends = self.columns.as_ref().map(|columns| columns(&sample.key));
            self.heavy.add(tick.second, &sample.key, &ends.unwrap_or_default(), weight);
        }
    }

    fn trim(&mut self) {
        let oldest = self.second.saturating_sub(self.ring_s);
        while self.ring.front().is_some_and(|tick| tick.second < oldest) {
            self.ring.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(sampler: &mut Sampler, second: u64, keys: &[u64]) {
        let keys: Vec<[u8; 8]> = keys.iter().map(|key| key.to_be_bytes()).collect();
        sampler.observe(second, keys.len(), |row| &keys[row]);
    }

    #[test]
    fn a_key_is_above_only_what_came_before_the_last_second() {
        let mut sampler = Sampler::new(1);
        sampler.engage(true);
        write(&mut sampler, 10, &[100]);
        write(&mut sampler, 11, &[50, 200]);
        write(&mut sampler, 12, &[150, 90]);
        write(&mut sampler, 13, &[201, 150, 40]);
        let above = |sketch: &Sketch| -> Vec<Vec<(bool, bool)>> {
            let flags = |tick: &Tick| tick.samples.iter().map(|s| (s.above, s.below)).collect();
            sketch.ticks.iter().map(flags).collect()
        };
        let expected = [
            vec![(false, false)],
            // Nothing is known of the seconds before the last one yet.
            vec![(false, false), (false, false)],
            vec![(true, false), (false, true)],
            vec![(true, false), (false, false), (false, true)],
        ];
        assert_eq!(above(&sampler.sketch(14, 60)), expected);
        assert_eq!(sampler.sketch(13, 2).ticks.len(), 2, "12 and 11");
    }

    #[test]
    fn edges_that_are_set_count_at_once() {
        let mut sampler = Sampler::new(1);
        sampler.set_edges(Some(&10_u64.to_be_bytes()), Some(&20_u64.to_be_bytes()));
        write(&mut sampler, 1, &[15, 25, 5]);
        let sketch = sampler.sketch(2, 60);
        let flags: Vec<_> = sketch.ticks[0].samples.iter().map(|s| (s.above, s.below)).collect();
        assert_eq!(flags, [(false, false), (true, false), (false, true)]);
        let edge = |key: u64| Box::<[u8]>::from(key.to_be_bytes());
        assert_eq!(sketch.edges, Some((edge(10), edge(20))));
    }

    #[test]
    fn the_far_end_of_a_scan_is_what_appends() {
        let mut sampler = Sampler::new(1);
        sampler.engage(true);
        for second in 0..4_u8 {
            sampler.observe_scan(u64::from(second) + 1, &[1], &[10 + second]);
            sampler.observe_scan(u64::from(second) + 1, &[1], &[]);
        }
        let sketch = sampler.sketch(5, 60);
        let flags: Vec<_> = sketch.ticks[3].samples.iter().map(|s| s.above).collect();
        assert_eq!(flags, [true, false]);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut sampler = Sampler::new(3);
        for second in 1..200_u64 {
            sampler.engage(second % 100 > 20);
            let keys: Vec<u64> = (0..second * 7).collect();
            write(&mut sampler, second, &keys);
            assert!(sampler.ring.len() <= usize::try_from(sampler.ring_s).unwrap());
            let sketch = sampler.sketch(second + 1, 60);
            let last = sketch.ticks.last().unwrap();
            assert_eq!(last.count, second * 7, "operations are counted, not estimated");
            assert_eq!(last.samples.len(), keys.len().min(SAMPLES_PER_SECOND));
        }
    }

    #[test]
    fn frequent_leading_columns_are_named() {
        let columns: Columns = Arc::new(|_| vec![1, 2]);
        let mut random = Random::new(6);
        let mut sampler = Sampler::new(4).with_columns(columns);
        sampler.engage(true);
        for second in 1..30_u8 {
            let keys: Vec<[u8; 2]> =
                (0..100_u8).map(|row| [row % 2, random.bits().to_be_bytes()[0]]).collect();
            sampler.observe(u64::from(second), keys.len(), |row| &keys[row]);
        }
        let heavy = sampler.sketch(30, 60).heavy;
        assert_eq!(heavy[0].0.len(), 1);
        assert!((heavy[0].1 - 0.5).abs() < 0.1, "{heavy:?}");
    }
}
