//! Split-key pickers of other products, as far as their documents and sources describe them: reimplemented from the
//! descriptions, for comparison with ours on the same streams. They are not the products: thresholds that start them
//! are left out (the partition is assumed to be hot), and all of them judge writes, though one of the products splits by
//! reads only.
//!
//! | here | like | picks from |
//! |---|---|---|
//! | [`SizeOnly`] | any store that splits by size | the median of the stored keys |
//! | [`KeySample`] | YDB's row tables | the median of 100 keys of a minute, by the shortest prefix that divides them |
//! | [`Recorder`] | TiKV's read split | the best of 20 sampled ranges' ends, judged on the same 200 samples |
//! | [`Finder`] | CockroachDB's load split | the best of 20 sampled keys, judged on the requests after each of them |
//!
//! Results of the matrix: medians that are judged on their own sample split every growing stream, in vain. The finder
//! refuses a growing stream in perfect order; with 50 ms of disorder at 3,000 operations a second it is misled in two
//! of three runs within two seconds of looking (and continues to look), with 500 ms in all.
//!
//! Invariants: bounded memory; each is reproducible by its seed.

mod finder;
mod key_sample;
mod recorder;
mod size_only;

pub use finder::Finder;
pub use key_sample::KeySample;
pub use recorder::Recorder;
pub use size_only::SizeOnly;

use crate::streams::Op;

/// Position of an operation relative to a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Left,
    Right,
    Contained,
}

fn side(op: &Op, cut: &[u8]) -> Side {
    if *op.key >= *cut {
        Side::Right
    } else if op.end.as_ref().is_some_and(|end| end.is_empty() || **end > *cut) {
        Side::Contained
    } else {
        Side::Left
    }
}

/// Counts of operations left of a cut, right of it, and across it.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    left: u32,
    right: u32,
    contained: u32,
}

impl Tally {
    fn count(&mut self, side: Side) {
        match side {
            Side::Left => self.left += 1,
            Side::Right => self.right += 1,
            Side::Contained => self.contained += 1,
        }
    }

    fn all(self) -> u32 {
        self.left + self.right + self.contained
    }

    /// Imbalance of the sides, 0 to 1; 1 if both are empty.
    fn imbalance(self) -> f64 {
        let sides = self.left + self.right;
        if sides == 0 { 1.0 } else { f64::from(self.left.abs_diff(self.right)) / f64::from(sides) }
    }

    fn contained_share(self) -> f64 {
        f64::from(self.contained) / f64::from(self.all().max(1))
    }

    fn larger_share(self) -> f64 {
        f64::from(self.left.max(self.right) + self.contained) / f64::from(self.all().max(1))
    }
}
