//! How others pick split keys, as far as their documents and sources tell: built anew from the descriptions, to be
//! compared with ours on the same streams. They are not the products: thresholds that start them are left out (the
//! partition is taken to be hot), and all are asked about writes, though one of them looks at reads only.
//!
//! | here | like | picks from |
//! |---|---|---|
//! | [`SizeOnly`] | any store that splits by size | the median of the stored keys |
//! | [`KeySample`] | YDB's row tables | the median of 100 keys of a minute, by the shortest prefix that divides them |
//! | [`Recorder`] | TiKV's read split | the best of 20 sampled ranges' ends, judged on the same 200 samples |
//! | [`Finder`] | CockroachDB's load split | the best of 20 sampled keys, judged on the requests after each of them |
//!
//! What the matrix shows of them: medians that are judged on their own sample split every stream that grows, in vain.
//! The finder refuses one in perfect order; with 50 ms of disorder at 3,000 operations a second it is fooled in two of
//! three runs within two seconds of looking (and goes on looking), with 500 ms in all.
//!
//! Invariants: bounded memory; each repeats by its seed.

mod finder;
mod key_sample;
mod recorder;
mod size_only;

pub use finder::Finder;
pub use key_sample::KeySample;
pub use recorder::Recorder;
pub use size_only::SizeOnly;

use crate::streams::Op;

/// Where an operation lies as seen from a cut.
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

/// Operations left of a cut, right of it, and across it.
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

    /// How unequal the sides are: 0 to 1; 1 if there is nothing on either.
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
