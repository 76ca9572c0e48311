//! CPU time as a measurement of criterion.
//!
//! All threads of the process count, user and system. Criterion works in wall time besides: it decides by that how often
//! a sample runs.

use std::time::Duration;

use cpu_time::ProcessTime;
use criterion::measurement::{Measurement, ValueFormatter, WallTime};

/// The CPU that this process uses.
#[derive(Clone, Copy, Debug)]
pub struct CpuTime;

/// What knows how to write durations.
static TIME: WallTime = WallTime;

impl Measurement for CpuTime {
    type Intermediate = ProcessTime;
    type Value = Duration;

    fn start(&self) -> ProcessTime {
        ProcessTime::now()
    }

    fn end(&self, start: ProcessTime) -> Duration {
        start.elapsed()
    }

    fn add(&self, one: &Duration, other: &Duration) -> Duration {
        *one + *other
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    #[expect(clippy::cast_precision_loss, reason = "nanoseconds of a bench fit 53 bits")]
    fn to_f64(&self, value: &Duration) -> f64 {
        value.as_nanos() as f64
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        TIME.formatter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_counts_and_waiting_does_not() {
        let start = CpuTime.start();
        std::thread::sleep(Duration::from_millis(200));
        let waited = CpuTime.end(start);
        assert!(waited < Duration::from_millis(150), "{waited:?}");
        let start = CpuTime.start();
        let mut sum = 0_u64;
        let begun = std::time::Instant::now();
        while CpuTime.end(start) < Duration::from_millis(20) {
            sum = std::hint::black_box(sum.wrapping_mul(3).wrapping_add(1));
            assert!(begun.elapsed() < Duration::from_secs(60), "no CPU was counted");
        }
        assert_eq!(CpuTime.add(&CpuTime.zero(), &Duration::from_nanos(7)).as_nanos(), 7);
        assert!((CpuTime.to_f64(&Duration::from_micros(3)) - 3_000.0).abs() < 1e-9);
    }
}
