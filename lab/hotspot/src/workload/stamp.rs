//! Time column of arriving rows: with some disorder, some late rows, coarse or fine, ascending or descending.
//!
//! Invariants: values are microseconds since the Unix epoch divided by the grain; the newest is never later than
//! now.

use super::part::{SECOND_US, ramp};
use crate::number::whole;

/// Begin of virtual time, in microseconds since the Unix epoch.
pub(crate) const BEGIN_US: u64 = 1_790_000_000 * SECOND_US;
/// Above this grain, in microseconds, a single value has a non-negligible weight.
const GRAIN_FINE_US: u64 = 1_000;

/// Distribution of the time column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    /// Maximum delay between writers.
    pub(crate) disorder_us: u64,
    /// Share of late rows.
    pub(crate) late_share: f64,
    /// Maximum delay of late rows.
    pub(crate) late_us: u64,
    /// Grain: times are rounded down to multiples of it, and counted in it.
    pub(crate) grain_us: u64,
    /// Newest first.
    pub(crate) descending: bool,
}

impl Default for Stamp {
    fn default() -> Self {
        Self { disorder_us: 50_000, late_share: 0.0, late_us: 0, grain_us: 1, descending: false }
    }
}

impl Stamp {
    /// Share of the rows with a time before `time`, in microseconds.
    fn earlier(&self, now_us: u64, time: f64) -> f64 {
        let newest = now_us as f64;
        let ramp_of = |by_us: u64| ramp(time, newest - by_us as f64, newest);
        (1.0 - self.late_share) * ramp_of(self.disorder_us)
            + self.late_share * ramp_of(self.late_us)
    }

    /// Time range of a value: from its first microsecond (inclusive) to the next value's (exclusive), since the
    /// begin.
    fn span(&self, value: u64) -> (f64, f64) {
        let ticks = if self.descending { u64::MAX - value } else { value };
        // Relative to the begin, so that a double is exact to the microsecond.
        let start = ticks as f64 * self.grain_us as f64 - BEGIN_US as f64;
        if self.grain_us == 1 {
            let start = if ticks >= BEGIN_US {
                (ticks - BEGIN_US) as f64
            } else {
                -((BEGIN_US - ticks) as f64)
            };
            return (start, start + 1.0);
        }
        (start, start + self.grain_us as f64)
    }

    pub(crate) fn before(&self, at_us: u64, value: u64) -> (f64, f64) {
        let (start, end) = self.span(value);
        let (low, high) = (self.earlier(at_us, start), self.earlier(at_us, end));
        let share_at = if self.grain_us > GRAIN_FINE_US { high - low } else { 0.0 };
        (if self.descending { 1.0 - high } else { low }, share_at)
    }

    pub(crate) fn place(&self, at_us: u64, u: f64, columns: &mut Vec<u64>) -> Option<f64> {
        let sought = if self.descending { 1.0 - u } else { u };
        let reach = self.disorder_us.max(self.late_us) as f64;
        let (mut low, mut high) = (at_us as f64 - reach, at_us as f64);
        for _ in 0..60 {
            let middle = f64::midpoint(low, high);
            if self.earlier(at_us, middle) <= sought { low = middle } else { high = middle }
        }
        let since_epoch = BEGIN_US as f64 + low;
        let ticks = if self.grain_us == 1 {
            // With integers: a double of this size is off by a quarter of a microsecond.
            if low >= 0.0 { BEGIN_US + whole(low) } else { BEGIN_US - whole(-low) }
        } else {
            whole(since_epoch / self.grain_us as f64)
        };
        let value = if self.descending { u64::MAX - ticks } else { ticks };
        columns.push(value);
        let (share_below, share_at) = self.before(at_us, value);
        (share_at > 0.0).then(|| ((u - share_below) / share_at).clamp(0.0, 1.0))
    }
}
