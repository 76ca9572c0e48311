//! How much comes, as a function of the time.
//!
//! Invariants: never negative; the same for the same time.

use super::part::SECOND_US;

/// Operations (rows, for writes) a second over time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// Always the same.
    Steady(f64),
    /// Like the day: from the least to `times` that and back, in `period_us`.
    Diurnal {
        /// At night.
        least: f64,
        /// By noon.
        times: f64,
        /// Length of a day, microseconds.
        period_us: u64,
    },
    /// A crowd that comes at once.
    Flash {
        /// Before and after.
        base: f64,
        /// While it is there.
        times: f64,
        /// When it comes, microseconds since the begin.
        at_us: u64,
        /// How long it takes to grow.
        within_us: u64,
        /// How long it stays.
        for_us: u64,
    },
}

impl Rate {
    /// The rate at a time (microseconds since the begin).
    #[must_use]
    pub fn at(&self, at_us: u64) -> f64 {
        match *self {
            Self::Steady(rate) => rate,
            Self::Diurnal { least, times, period_us } => {
                let turn = (at_us % period_us) as f64 / period_us as f64 * std::f64::consts::TAU;
                least * (1.0 + (times - 1.0) * (1.0 - turn.cos()) / 2.0)
            }
            Self::Flash { base, times, at_us: from, within_us, for_us } => {
                if at_us < from || at_us >= from + for_us {
                    return base;
                }
                let grown = ((at_us - from) as f64 / within_us.max(1) as f64).min(1.0);
                base * (1.0 + (times - 1.0) * grown)
            }
        }
    }

    /// The same shape at a multiple of the height.
    #[must_use]
    pub fn scaled(self, by: f64) -> Self {
        match self {
            Self::Steady(rate) => Self::Steady(rate * by),
            Self::Diurnal { least, times, period_us } => {
                Self::Diurnal { least: least * by, times, period_us }
            }
            Self::Flash { base, times, at_us, within_us, for_us } => {
                Self::Flash { base: base * by, times, at_us, within_us, for_us }
            }
        }
    }

    /// Whether it is always the same.
    #[must_use]
    pub fn still(&self) -> bool {
        matches!(self, Self::Steady(_))
    }
}

/// A crowd twenty times as large within ten seconds, for five minutes.
#[must_use]
pub(super) fn flash_crowd(base: f64, at_s: u64) -> Rate {
    Rate::Flash {
        base,
        times: 20.0,
        at_us: at_s * SECOND_US,
        within_us: 10 * SECOND_US,
        for_us: 300 * SECOND_US,
    }
}
