//! CPU time as a criterion measurement.
//!
//! It counts user and system time of all threads of the process. Criterion also uses wall time: to decide how often
//! a sample runs.

use std::time::Duration;

use cpu_time::ProcessTime;
use criterion::measurement::{Measurement, ValueFormatter, WallTime};

/// CPU time of this process.
#[derive(Clone, Copy, Debug)]
pub struct CpuTime;

/// Formats durations.
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

    fn add(&self, first: &Duration, second: &Duration) -> Duration {
        *first + *second
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
