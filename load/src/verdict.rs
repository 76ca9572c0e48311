//! The verdict on a hot partition, with its evidence.
//!
//! Invariant: a class is text only where it is shown or leaves the process; [`Class::named`] is the way back.

use std::fmt;

/// The class of a partition's load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Too few samples, or a class that only a newer version knows.
    #[default]
    Unknown,
    /// A cut divides the load, and will still do so later.
    StaticRange,
    /// As [`Class::StaticRange`]: keys are appended, but at many places (behind many leading prefixes).
    MultiTail,
    /// One key, or one series, has at least half of the load.
    HotKey,
    /// Keys are appended at the right edge: all load goes to the right of any cut.
    MovingRight,
    /// The mirror image: keys are appended at the left edge.
    MovingLeft,
    /// Keys are appended between existing ones: all load goes to one gap, and moves on with it.
    MovingWithin,
    /// A few keys bear the load of a moment, and others that of the next one: averages hide it.
    Rotating,
    /// Existing keys are visited in order: a sorted load, a table scan.
    Sweep,
    /// Most of the load are scans that no cut separates.
    ScanBound,
    /// No cut divides the load well enough, for the reasons in the evidence.
    Unsplittable,
    /// Reads of few keys, or of keys that move, have most of the load, and no cut divides them.
    ReadHot,
}

impl Class {
    /// All classes.
    pub const ALL: [Self; 12] = [
        Self::Unknown,
        Self::StaticRange,
        Self::MultiTail,
        Self::HotKey,
        Self::MovingRight,
        Self::MovingLeft,
        Self::MovingWithin,
        Self::Rotating,
        Self::Sweep,
        Self::ScanBound,
        Self::Unsplittable,
        Self::ReadHot,
    ];

    /// Name of the class in tables, messages and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "UNKNOWN",
            Self::StaticRange => "STATIC_RANGE",
            Self::MultiTail => "MULTI_TAIL",
            Self::HotKey => "HOT_KEY",
            Self::MovingRight => "MOVING_RIGHT",
            Self::MovingLeft => "MOVING_LEFT",
            Self::MovingWithin => "MOVING_WITHIN",
            Self::Rotating => "ROTATING",
            Self::Sweep => "SWEEP",
            Self::ScanBound => "SCAN_BOUND",
            Self::Unsplittable => "UNSPLITTABLE",
            Self::ReadHot => "READ_HOT",
        }
    }

    /// The class of this name; `None` if no class has it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.name() == name)
    }

    /// True if all load is at one place of the keys and moves on with it.
    #[must_use]
    pub const fn is_moving(self) -> bool {
        matches!(self, Self::MovingRight | Self::MovingLeft | Self::MovingWithin)
    }

    /// True if a hash before the key spreads the load, where no cut does.
    #[must_use]
    pub const fn is_spread_by_hash(self) -> bool {
        self.is_moving() || matches!(self, Self::Rotating)
    }

    /// True if the class says something of the load.
    #[must_use]
    pub const fn is_finding(self) -> bool {
        !matches!(self, Self::Unknown)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A split key, with its predicted effect.
#[derive(Clone, Debug, PartialEq)]
pub struct Cut {
    /// First key of the right half.
    pub key: Box<[u8]>,
    /// Share of the larger half, judged on samples from which the cut was not chosen; 0.5 to 1.
    pub larger_share: f64,
}

/// A place at which the load can be divided, one of several.
#[derive(Clone, Debug, PartialEq)]
pub struct Division {
    /// First key behind the place.
    pub key: Box<[u8]>,
    /// Share of the load before it, judged on samples from which it was not chosen.
    pub left_share: f64,
}

/// The numbers behind a verdict.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    /// Samples in the older and in the newer half of the window.
    pub samples: (u32, u32),
    /// Length of the window, seconds.
    pub window_s: u32,
    /// Larger share of the best cut, chosen on the older half, judged on the newer.
    pub p_out: f64,
    /// The same for the minute to come, if the motion between the halves (beyond chance) continues.
    pub predicted: f64,
    /// The largest change of the share right of some place from the older to the newer half; near 0 when keys do not
    /// move.
    pub shift: f64,
    /// Probability that a newer key is greater than an older one; 0.5 when keys do not move.
    pub auc: f64,
    /// The same for values behind the first column, or behind the same series: whichever moves most.
    pub tail: f64,
    /// Share of operations on keys above all keys before them.
    pub append_high: f64,
    /// Share of operations on keys below all keys before them.
    pub append_low: f64,
    /// Share of the most frequent full key.
    pub top_key: f64,
    /// Share of the most frequent value of each leading prefix of columns, shortest first.
    pub top_prefix: Vec<f64>,
    /// Distinct values of each leading prefix among the samples, shortest first.
    pub distinct_prefix: Vec<u32>,
    /// Share of operations that are scans across the best cut (or, where scans leave no useful cut, across the most
    /// crossed one).
    pub contained: f64,
    /// Share of the hot key (whole, or a leading part) that the verdict names.
    pub hot_share: f64,
    /// Share of the newest third of the samples above all of the oldest third.
    pub lead: f64,
    /// Share of the newer half in one gap between neighbouring keys of the older half, beyond chance.
    pub front: f64,
    /// Time until the front of a moving load reaches the edge of the known keys, seconds; `None` if the edge is unknown
    /// or will not be reached.
    pub passes_in_s: Option<f64>,
    /// Mean over seconds of the share of the busiest of 20 parts of the keys with equal load; 0 if there are too few
    /// samples a second.
    pub concentration: f64,
    /// True if the verdict is on reads.
    pub reads: bool,
}

/// The detector's verdict on a partition.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Class of the load.
    pub class: Class,
    /// Split key, for classes that a cut helps.
    pub cut: Option<Cut>,
    /// Places that divide a load that stays in place into about sixteen equal parts, ascending by key and share; fewer
    /// where keys have more than that each. Empty for other loads.
    pub divisions: Vec<Division>,
    /// The hot key (or leading part of one), for [`Class::HotKey`].
    pub hot_key: Option<Box<[u8]>>,
    /// Numbers behind the verdict.
    pub evidence: Evidence,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_found_by_the_name_that_is_shown() {
        for class in Class::ALL {
            assert_eq!(Class::named(&class.to_string()), Some(class));
        }
        assert_eq!(Class::named("moving_right"), None);
        assert_eq!(Class::named(""), None);
    }

    #[test]
    fn a_hash_spreads_what_moves_and_what_rotates() {
        let spread: Vec<Class> =
            Class::ALL.into_iter().filter(|class| class.is_spread_by_hash()).collect();
        let expected =
            [Class::MovingRight, Class::MovingLeft, Class::MovingWithin, Class::Rotating];
        assert_eq!(spread, expected);
        assert!(!Class::Unknown.is_finding() && Class::ReadHot.is_finding());
    }
}
