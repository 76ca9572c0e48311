//! Shared code of the micro-benchmarks of all crates: the measurements and the rows.
//!
//! ```text
//!   benches/ of a crate ── criterion (cpu | wall) ──> target/criterion/<group>/<name>/new/estimates.json
//!          └─ sample: batches of the TSBS data set              └─ `partita lab stages` adds them up
//! ```
//!
//! Each bench is in the crate that owns the measured piece; a group is named after the piece, and its throughput is
//! in rows. [`sample::BATCH_ROWS`] rows are one request of `partita lab ingest`, so that the figures can be
//! compared with those of a whole load.
//!
//! These helpers panic on errors, for the developer who runs a bench.

mod cpu_time;
pub mod sample;

use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{Criterion, SamplingMode, Throughput};

pub use cpu_time::CpuTime;

/// Warm-up time of a bench: until the allocator and the CPU's caches are in a steady state.
const WARM_UP: Duration = Duration::from_millis(500);
/// Measurement time of a bench. With about fifty benches, all of them take three minutes.
const MEASUREMENT: Duration = Duration::from_secs(2);
/// Number of samples; criterion's minimum is 10.
const SAMPLES: usize = 20;

/// Criterion that counts the CPU time of the whole process: including the work of other threads, excluding other
/// processes.
pub fn cpu() -> Criterion<CpuTime> {
    configured(Criterion::default().with_measurement(CpuTime))
}

/// Criterion that counts wall time: the latency that a caller sees.
pub fn wall() -> Criterion<WallTime> {
    configured(Criterion::default())
}

fn configured<M: criterion::measurement::Measurement + 'static>(
    criterion: Criterion<M>,
) -> Criterion<M> {
    criterion
        .sample_size(SAMPLES)
        .warm_up_time(WARM_UP)
        .measurement_time(MEASUREMENT)
        .configure_from_args()
}

/// Measures a piece of work on `rows` rows, as `group/name`. `set_up` before each run and the dropping of the
/// result are not counted.
///
/// `work` may take long: every sample is one run or a few.
pub fn stage<M: criterion::measurement::Measurement + 'static, I, O>(
    criterion: &mut Criterion<M>,
    (group, name): (&str, &str),
    rows: usize,
    mut set_up: impl FnMut() -> I,
    mut work: impl FnMut(I) -> O,
) {
    let mut group = criterion.benchmark_group(group);
    group.throughput(Throughput::Elements(rows as u64));
    group.sampling_mode(SamplingMode::Flat);
    group.bench_function(name, |bencher| {
        bencher.iter_batched(&mut set_up, &mut work, criterion::BatchSize::PerIteration);
    });
    group.finish();
}
