//! Rate of operations as a function of time.
//!
//! Invariants: never negative; the same for the same time.

use super::part::SECOND_US;
use super::stamp::BEGIN_US;

const DAY_US: u64 = 86_400 * SECOND_US;

/// Operations (rows, for writes) per second over time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// Always the same.
    Steady(f64),
    /// A daily cycle: from the minimum to `times` that and back, in `period_us`.
    Diurnal {
        /// Rate at night.
        least: f64,
        /// Factor at noon.
        times: f64,
        /// Length of a day, microseconds.
        period_us: u64,
    },
    /// A peak at the same time of every day (UTC).
    Daily {
        /// Rate at other times.
        base: f64,
        /// Factor of the peak.
        times: f64,
        /// Begin of the peak, in microseconds of the day.
        from_us: u64,
        /// Time for which it lasts, in microseconds.
        for_us: u64,
        /// Days without it, one bit each; the day in which the run begins is the lowest.
        holidays: u64,
    },
    /// A flash crowd.
    Flash {
        /// Rate before and after.
        base: f64,
        /// Factor while it lasts.
        times: f64,
        /// Begin of the crowd, in microseconds since the begin of the run.
        at_us: u64,
        /// Time in which it grows, in microseconds.
        within_us: u64,
        /// Time for which it lasts, in microseconds.
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
            Self::Daily { base, times, from_us, for_us, holidays } => {
                let day = (BEGIN_US + at_us) / DAY_US - BEGIN_US / DAY_US;
                let is_peak = (from_us..from_us + for_us).contains(&((BEGIN_US + at_us) % DAY_US));
                let is_holiday = day < 64 && (holidays >> day) & 1 == 1;
                if is_peak && !is_holiday { base * times } else { base }
            }
            Self::Flash { base, times, at_us: begin_us, within_us, for_us } => {
                if at_us < begin_us || at_us >= begin_us + for_us {
                    return base;
                }
                let grown = ((at_us - begin_us) as f64 / within_us.max(1) as f64).min(1.0);
                base * (1.0 + (times - 1.0) * grown)
            }
        }
    }

    /// The same shape, multiplied by a factor.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        match self {
            Self::Steady(rate) => Self::Steady(rate * factor),
            Self::Diurnal { least, times, period_us } => {
                Self::Diurnal { least: least * factor, times, period_us }
            }
            Self::Daily { base, times, from_us, for_us, holidays } => {
                Self::Daily { base: base * factor, times, from_us, for_us, holidays }
            }
            Self::Flash { base, times, at_us, within_us, for_us } => {
                Self::Flash { base: base * factor, times, at_us, within_us, for_us }
            }
        }
    }

    /// True if the rate is constant.
    #[must_use]
    pub fn still(&self) -> bool {
        matches!(self, Self::Steady(_))
    }
}

/// A flash crowd twenty times as large within ten seconds, for five minutes.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daily_peak_comes_at_its_time_except_on_holidays() {
        let rate = Rate::Daily {
            base: 10.0,
            times: 5.0,
            from_us: 9 * 3_600 * SECOND_US,
            for_us: 3_600 * SECOND_US,
            holidays: 0b100,
        };
        let midnight_us = DAY_US - BEGIN_US % DAY_US;
        let at = |day: u64, hour: u64| {
            rate.at(midnight_us + (day - 1) * DAY_US + hour * 3_600 * SECOND_US)
        };
        assert_eq!([at(1, 8), at(1, 9), at(1, 10)], [10.0, 50.0, 10.0]);
        assert_eq!([at(2, 9), at(3, 9)], [10.0, 50.0]);
        assert_eq!(rate.scaled(2.0).at(0), 20.0);
        assert!(!rate.still());
    }
}
