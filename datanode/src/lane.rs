//! Rate limit of one partition's write lane, for experiments: rows pass one after another, each taking its share of a
//! second, as if the lane were that slow.
//!
//! Without it a hot partition is as fast as the machine, and on a small machine everything else slows down with it;
//! with it the difference that a key design makes shows on any machine.
//!
//! Invariants: over any period in which rows wait, the number of rows that pass follows the rate, whatever the timer's
//! resolution; an idle lane saves nothing up.

use std::time::Duration;

use tokio::time::Instant;

/// Minimum lane time of rows that pass together: a timer wakes to the millisecond.
const GRAIN: Duration = Duration::from_millis(10);

/// Rate limit of one write lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lane {
    rows_per_s: f64,
    free: Option<Instant>,
}

impl Lane {
    /// A lane of `rows_per_s` rows per second, which must be more than 0.
    pub(crate) fn new(rows_per_s: f64) -> Self {
        Self { rows_per_s, free: None }
    }

    /// Time until which the lane is closed; `None` if it is open.
    pub(crate) fn closed(&self, time: Instant) -> Option<Instant> {
        self.free.filter(|free| *free > time)
    }

    /// True if that many rows are enough to pass together.
    pub(crate) fn is_enough(&self, rows: usize) -> bool {
        self.time(rows) >= GRAIN
    }

    /// Lets rows pass, the first of which has waited since `waiting_since`; returns the lane time that they take.
    pub(crate) fn pass(&mut self, rows: usize, waiting_since: Instant) -> Duration {
        let took = self.time(rows);
        let start = self.free.map_or(waiting_since, |free| free.max(waiting_since));
        self.free = Some(start + took);
        took
    }

    #[expect(clippy::cast_precision_loss, reason = "rows of one request")]
    fn time(&self, rows: usize) -> Duration {
        Duration::from_secs_f64(rows as f64 / self.rows_per_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_rows_pass_as_the_rate_says_however_late_it_is_looked() {
        let begun = Instant::now();
        let mut lane = Lane::new(1_000.0);
        let (mut now, mut rows) = (begun, 0);
        while now < begun + Duration::from_secs(10) {
            // Rows always wait, and each timer is a millisecond late.
            now = lane.closed(now).map_or(now, |free| free + Duration::from_millis(1));
            assert_eq!(lane.pass(25, begun), Duration::from_millis(25));
            rows += 25;
        }
        assert!((9_975..=10_025).contains(&rows), "{rows}");
    }

    #[test]
    fn a_lane_that_rested_has_saved_nothing_up() {
        let begun = Instant::now();
        let mut lane = Lane::new(100.0);
        lane.pass(10, begun);
        let later = begun + Duration::from_secs(60);
        assert_eq!(lane.closed(later), None);
        lane.pass(100, later);
        assert_eq!(lane.closed(later), Some(later + Duration::from_secs(1)));
    }

    #[test]
    fn rows_of_ten_milliseconds_pass_together() {
        let lane = Lane::new(2_000.0);
        assert!(!lane.is_enough(19) && lane.is_enough(20));
    }
}
