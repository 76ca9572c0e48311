//! Latencies in a histogram with three significant digits (HdrHistogram).

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Maximum latency that is distinguished; longer ones count as this.
const LONGEST: Duration = Duration::from_secs(600);
const DIGITS: u8 = 3;

/// Latencies of one kind of request.
#[derive(Clone, Debug)]
pub(crate) struct Latencies {
    micros: Histogram<u64>,
}

impl Default for Latencies {
    fn default() -> Self {
        let longest = u64::try_from(LONGEST.as_micros()).unwrap_or(u64::MAX);
        let micros = Histogram::new_with_max(longest, DIGITS).expect("these bounds are valid");
        Self { micros }
    }
}

/// Summary of latencies, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Summary {
    pub(crate) count: u64,
    pub(crate) mean_ms: f64,
    pub(crate) min_ms: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p90_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) p999_ms: f64,
    pub(crate) max_ms: f64,
}

impl Latencies {
    pub(crate) fn record(&mut self, latency: Duration) {
        self.micros.saturating_record(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX));
    }

    /// Adds the latencies of another worker.
    pub(crate) fn add(&mut self, latencies: &Self) {
        self.micros.add(&latencies.micros).expect("all have the same bounds");
    }

    /// Number of latencies.
    pub(crate) fn count(&self) -> u64 {
        self.micros.len()
    }

    /// Quantile for a share from 0 to 1; `None` if there are no latencies.
    pub(crate) fn quantile(&self, share: f64) -> Option<Duration> {
        let has_values = !self.micros.is_empty();
        has_values.then(|| Duration::from_micros(self.micros.value_at_quantile(share)))
    }

    /// Share, from 0 to 1, of latencies up to a limit; `None` if there are none.
    #[expect(clippy::cast_precision_loss, reason = "requests of a run fit 53 bits")]
    pub(crate) fn share_within(&self, limit: Duration) -> Option<f64> {
        let limit = u64::try_from(limit.as_micros()).unwrap_or(u64::MAX);
        let count = self.micros.count_between(0, limit.min(self.micros.high())) as f64;
        (!self.micros.is_empty()).then(|| count / self.micros.len() as f64)
    }

    #[expect(clippy::cast_precision_loss, reason = "microseconds up to ten minutes fit")]
    pub(crate) fn summary(&self) -> Summary {
        let quantile_ms = |quantile: f64| self.micros.value_at_quantile(quantile) as f64 / 1e3;
        if self.micros.is_empty() {
            return Summary::default();
        }
        Summary {
            count: self.micros.len(),
            mean_ms: self.micros.mean() / 1e3,
            min_ms: self.micros.min() as f64 / 1e3,
            p50_ms: quantile_ms(0.5),
            p90_ms: quantile_ms(0.9),
            p99_ms: quantile_ms(0.99),
            p999_ms: quantile_ms(0.999),
            max_ms: self.micros.max() as f64 / 1e3,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_all_workers() {
        let (mut first, mut second) = (Latencies::default(), Latencies::default());
        (1..=500).for_each(|millis| first.record(Duration::from_millis(millis)));
        (501..=1_000).for_each(|millis| second.record(Duration::from_millis(millis)));
        first.add(&second);
        let summary = first.summary();
        assert_eq!(summary.count, 1_000);
        for (measured, real) in
            [(summary.p50_ms, 500.0), (summary.p99_ms, 990.0), (summary.max_ms, 1_000.0)]
        {
            assert!((measured - real).abs() / real < 0.002, "{measured} for {real}");
        }
    }

    #[test]
    fn a_limit_splits_them_where_its_quantile_is() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.share_within(Duration::from_secs(1)), None);
        assert_eq!(latencies.quantile(0.5), None);
        (1..=1_000).for_each(|millis| latencies.record(Duration::from_millis(millis)));
        let limit = latencies.quantile(0.226).unwrap();
        assert!((226..=227).contains(&limit.as_millis()), "{limit:?}");
        let share = latencies.share_within(limit).unwrap();
        assert!((share - 0.226).abs() < 0.002, "{share}");
        assert_eq!(latencies.share_within(Duration::from_secs(1_000)), Some(1.0));
        assert_eq!(latencies.share_within(Duration::ZERO), Some(0.0));
    }

    #[test]
    fn no_latency_is_lost_for_being_long() {
        let mut latencies = Latencies::default();
        latencies.record(Duration::from_secs(100_000));
        assert_eq!(latencies.summary().count, 1);
        assert!(latencies.summary().max_ms >= 600_000.0);
        assert_eq!(Latencies::default().summary(), Summary::default());
    }
}
