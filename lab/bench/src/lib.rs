//! What the micro-benchmarks of all crates share: how they measure, and the rows that they measure with.
//!
//! ```text
//!   benches/ of a crate ── criterion (cpu | wall) ──> target/criterion/<group>/<name>/new/estimates.json
//!          └─ sample: batches of the TSBS data set              └─ `partita lab stages` adds them up
//! ```
//!
//! Each bench lies in the crate that owns the piece; a group is named after the piece, and its throughput is counted in
//! rows. [`sample::BATCH_ROWS`] rows are what one request of `partita lab ingest` brings, so that the figures can be
//! laid beside those of a whole load.
//!
//! Errors are for the one who runs a bench: these helpers panic.

mod cpu_time;
pub mod sample;

use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{Criterion, SamplingMode, Throughput};

pub use cpu_time::CpuTime;

/// How long a bench runs before it counts: until the allocator and the CPU's caches know the work.
const WARM_UP: Duration = Duration::from_millis(500);
/// How long it counts. With some fifty benches, all of them take three minutes.
const MEASUREMENT: Duration = Duration::from_secs(2);
/// In how many samples; the least that criterion takes is 10.
const SAMPLES: usize = 20;

/// Benches that count the CPU that the whole process uses: other threads' work belongs to a piece, and other processes'
/// does not.
pub fn cpu() -> Criterion<CpuTime> {
    configured(Criterion::default().with_measurement(CpuTime))
}

/// Benches that count time: what somebody waits for.
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

/// Measures a piece of work over so many rows, as `group/name`. What `set_up` makes for each run, and the dropping of
/// what the work returns, do not count.
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
