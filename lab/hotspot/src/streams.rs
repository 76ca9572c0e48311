//! Streams of operations on one partition, of every kind that is known to mislead split detectors.
//!
//! They test the detector (`load/tests/`). A stream is a function from the time to an
//! operation, so that it can be sampled at any rate: a uniform sample at a tenth of the rate has the distribution of
//! the stream itself, which makes long runs cheap.
//!
//! Invariants: a stream is reproducible by its seed and the times at which it is sampled. Keys are columns of fixed
//! width, each in big-endian order, so that bytes compare as values do; [`Kind::columns`] gives their widths.

mod catalogue;
mod scored;

pub use catalogue::all;
pub use scored::scored;

use partita_load::{Class, DetectOptions, Random};

/// One second, in the unit of stream times.
pub const SECOND_US: u64 = 1_000_000;

/// One operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Op {
    /// The key of a row or of a point read, or the start of a scan.
    pub key: Vec<u8>,
    /// The end (exclusive) of a scan; empty for "to the end".
    pub end: Option<Vec<u8>>,
}

impl Op {
    /// Makes it an operation on the key that consists of these columns; reuses the memory.
    pub fn point(&mut self, columns: &[u64], widths: &[usize]) {
        encode(&mut self.key, columns, widths);
        self.end = None;
    }

    /// Makes it a scan; fewer columns than widths give a bound on the leading ones.
    pub fn scan(&mut self, start: &[u64], end: &[u64], widths: &[usize]) {
        encode(&mut self.key, start, widths);
        encode(self.end.get_or_insert_default(), end, widths);
    }
}

fn encode(key: &mut Vec<u8>, columns: &[u64], widths: &[usize]) {
    key.clear();
    for (column, width) in columns.iter().zip(widths) {
        let bytes = column.to_be_bytes();
        key.extend_from_slice(&bytes[bytes.len() - width.min(&bytes.len())..]);
    }
}

/// Correct decision for a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truth {
    /// A cut halves the load, and lastingly so.
    Cut,
    /// No cut helps: none may be proposed.
    Stay,
    /// Several answers are acceptable, or the load changes during the observation and is unpredictable.
    Open,
}

/// From microseconds since the beginning to an operation; false if there is none at that time.
type Draw = Box<dyn FnMut(u64, &mut Random, &mut Op) -> bool + Send>;

/// A kind of stream.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// A short, unique name.
    pub name: &'static str,
    /// Description of the load that it represents.
    pub about: &'static str,
    /// Correct decision.
    pub truth: Truth,
    /// Correct classes; empty if any is acceptable.
    pub classes: &'static [Class],
    /// Widths of the columns of a key, bytes.
    pub columns: &'static [usize],
    /// Options that the detector gets for the key.
    pub options: DetectOptions,
    /// Lowest and highest first column of the keys that the partition holds, if they are known beforehand.
    pub first_columns: Option<(u64, u64)>,
    /// True if the operations are reads.
    pub reads: bool,
    /// Makes the function that draws operations; its first draws are parameters that differ from seed to seed.
    make: fn(&mut Random) -> Draw,
}

impl Kind {
    /// A stream of this kind.
    #[must_use]
    pub fn stream(&self, seed: u64) -> Stream {
        let mut random = Random::new(seed);
        let draw = (self.make)(&mut random);
        Stream { random, draw }
    }

    /// The lowest and the highest key that the partition holds, if they are known beforehand.
    #[must_use]
    pub fn edges(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        let (low, high) = self.first_columns?;
        let (mut low_key, mut high_key) = (Vec::new(), Vec::new());
        encode(&mut low_key, &[low], self.columns);
        encode(&mut high_key, &[high], self.columns);
        high_key.resize(self.columns.iter().sum(), u8::MAX);
        Some((low_key, high_key))
    }

    /// The ends of the columns of a key (or a leading part of one).
    #[must_use]
    pub fn prefix_ends(&self, key: &[u8]) -> Vec<usize> {
        prefix_ends(self.columns, key)
    }
}

/// As [`Kind::prefix_ends`], by the widths of the columns.
#[must_use]
pub fn prefix_ends(columns: &[usize], key: &[u8]) -> Vec<usize> {
    let ends = columns.iter().scan(0, |end, width| {
        *end += width;
        Some(*end)
    });
    ends.take_while(|end| *end <= key.len()).collect()
}

/// A running stream.
pub struct Stream {
    random: Random,
    draw: Draw,
}

impl Stream {
    /// Draws the operation at a time (microseconds since the beginning); false if there is none then. Times must not
    /// decrease.
    pub fn draw(&mut self, at_us: u64, op: &mut Op) -> bool {
        (self.draw)(at_us, &mut self.random, op)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_repeats_by_its_seed() {
        for kind in all() {
            let draw = |seed| {
                let mut stream = kind.stream(seed);
                let mut ops = vec![Op::default(); 50];
                for (at, op) in (0..).step_by(20_011).zip(&mut ops) {
                    let drawn = stream.draw(at, op);
                    let pauses = ["bursts", "ramp"].iter().any(|word| kind.name.contains(word));
                    assert!(drawn || pauses, "{}", kind.name);
                }
                ops
            };
            assert_eq!(draw(3), draw(3), "{}", kind.name);
        }
    }

    #[test]
    fn keys_are_as_wide_as_their_columns() {
        for kind in all() {
            let width: usize = kind.columns.iter().sum();
            let mut op = Op::default();
            let mut stream = kind.stream(1);
            for at in 0..200 {
                if !stream.draw(at * 1_003, &mut op) {
                    continue;
                }
                assert!(op.key.len() == width || op.end.is_some(), "{} {op:?}", kind.name);
                let empty = op.end.as_ref().is_some_and(|end| !end.is_empty() && *end <= op.key);
                assert!(!empty, "{} scans nothing: {op:?}", kind.name);
            }
        }
    }

    #[test]
    fn known_edges_enclose_all_keys() {
        for kind in all() {
            let Some((low, high)) = kind.edges() else { continue };
            let mut op = Op::default();
            let mut stream = kind.stream(1);
            for at in 0..600 {
                stream.draw(at * 100_003, &mut op);
                assert!(low <= op.key && op.key <= high, "{} {op:?}", kind.name);
            }
        }
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = all().iter().map(|kind| kind.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all().len());
    }
}
