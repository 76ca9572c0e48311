//! Estimated latencies: each lane is a queue with exponentially distributed waiting times.
//!
//! A request takes a service time; if the lane is busy for a share `rho` of the time, the mean is `service / (1 -
//! rho)` (M/M/1), and the time of one request is about exponential. A full lane has a queue of bounded length.
//! These are estimates: batches, fsyncs and networks are not modelled.
//!
//! Invariant: percentiles ascend, and never exceed what the queue's bound allows.

/// Service time: a write of a small batch, through a quorum.
const SERVICE_MS: f64 = 2.0;
/// Maximum mean waiting time: the queue's bound.
const MEAN_MAX_MS: f64 = 2_000.0;
/// Number of classes into which lanes are grouped by their mean.
const CLASSES: usize = 48;

/// Served rows of a second, by class of mean latency.
#[derive(Debug)]
pub(crate) struct Latency {
    rows: [f64; CLASSES],
}

impl Latency {
    pub(crate) fn new() -> Self {
        Self { rows: [0.0; CLASSES] }
    }

    fn mean_ms(class: usize) -> f64 {
        SERVICE_MS * (MEAN_MAX_MS / SERVICE_MS).powf((class as f64 + 0.5) / CLASSES as f64)
    }

    /// Adds a lane with its busy share and its served rows.
    pub(crate) fn add(&mut self, busy: f64, rows: f64) {
        let mean = (SERVICE_MS / (1.0 - busy).max(1e-9)).min(MEAN_MAX_MS);
        let place = (mean / SERVICE_MS).ln() / (MEAN_MAX_MS / SERVICE_MS).ln() * CLASSES as f64;
        self.rows[crate::number::index(place).min(CLASSES - 1)] += rows;
    }

    /// Latency percentiles, in milliseconds.
    pub(crate) fn percentiles(&self, shares: [f64; 3]) -> [f64; 3] {
        let total: f64 = self.rows.iter().sum();
        if total <= 0.0 {
            return [0.0; 3];
        }
        shares.map(|share| {
            let (mut low, mut high) = (0.0, MEAN_MAX_MS * 10.0);
            for _ in 0..30 {
                let middle = f64::midpoint(low, high);
                let classes = self.rows.iter().enumerate().filter(|(_, rows)| **rows > 0.0);
                let late: f64 = classes
                    .map(|(class, rows)| rows * (-middle / Self::mean_ms(class)).exp())
                    .sum();
                if late / total > 1.0 - share { low = middle } else { high = middle }
            }
            high
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_lane_has_the_percentiles_of_an_exponential() {
        let mut latency = Latency::new();
        latency.add(0.5, 1_000.0);
        let [p50, p99, _] = latency.percentiles([0.5, 0.99, 0.999]);
        // Mean 4 ms, to the width of a class.
        assert!((p50 / (4.0 * 2_f64.ln()) - 1.0).abs() < 0.16, "{p50}");
        assert!((p99 / p50 - 100_f64.ln() / 2_f64.ln()).abs() < 0.05, "{p99}");
    }

    #[test]
    fn a_full_lane_is_late_but_not_for_ever() {
        let mut latency = Latency::new();
        latency.add(1.0, 1.0);
        let [p50, p99, p999] = latency.percentiles([0.5, 0.99, 0.999]);
        assert!(p50 > 1_000.0 && p50 < p99 && p99 < p999 && p999 < 20_000.0);
    }
}
