//! Scheduled start times of requests.
//!
//! **Closed loop**: a worker sends when its last request is answered. **Open loop**: requests start at fixed times,
//! and latency counts from there, so that a request that waited behind a slow one shows that wait (no coordinated
//! omission). The timer has a resolution of a millisecond, which is part of open-loop latencies.

use std::time::Duration;

use tokio::time::Instant;

/// Units of work per second, or as many as possible.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    start: Instant,
    per_second: Option<f64>,
}

impl Pace {
    /// Starts now; `per_second` units of work in an open loop, which must be more than 0.
    pub(crate) fn new(per_second: Option<f64>) -> Self {
        Self { start: Instant::now(), per_second }
    }

    /// Waits until the work after `units_before` units is due; returns the time from which its latency counts.
    pub(crate) async fn due(&self, units_before: f64) -> Instant {
        let Some(per_second) = self.per_second else { return Instant::now() };
        let due = self.start + Duration::from_secs_f64(units_before / per_second);
        tokio::time::sleep_until(due).await;
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn latency_counts_from_when_work_was_due() {
        let start = Instant::now().checked_sub(Duration::from_secs(2)).unwrap();
        let pace = Pace { start, per_second: Some(100.0) };
        // Late: due long ago, and started at once.
        assert_eq!(pace.due(100.0).await, start + Duration::from_secs(1));
        let due = pace.due(205.0).await;
        assert_eq!(due, start + Duration::from_millis(2_050));
        assert!(Instant::now() >= due);
    }

    #[tokio::test]
    async fn a_closed_loop_waits_for_nothing() {
        let start = Instant::now();
        let due = Pace::new(None).due(1e300).await;
        assert!(start <= due && due <= Instant::now());
    }
}
