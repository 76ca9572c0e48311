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
