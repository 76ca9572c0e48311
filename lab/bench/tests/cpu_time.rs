//! The criterion measurement: CPU time of the whole process, not wall time.
//!
//! One test in a process of its own, because the CPU time of parallel tests would count.

use std::time::{Duration, Instant};

use criterion::measurement::Measurement as _;
use partita_bench::CpuTime;

#[test]
fn work_counts_and_waiting_does_not() {
    let start = CpuTime.start();
    std::thread::sleep(Duration::from_millis(200));
    let waited = CpuTime.end(start);
    assert!(waited < Duration::from_millis(150), "{waited:?}");
    let start = CpuTime.start();
    let mut sum = 0_u64;
    let wall_start = Instant::now();
    while CpuTime.end(start) < Duration::from_millis(20) {
        sum = std::hint::black_box(sum.wrapping_mul(3).wrapping_add(1));
        assert!(wall_start.elapsed() < Duration::from_secs(60), "no CPU was counted");
    }
    assert_eq!(CpuTime.add(&CpuTime.zero(), &Duration::from_nanos(7)).as_nanos(), 7);
    assert!((CpuTime.to_f64(&Duration::from_micros(3)) - 3_000.0).abs() < 1e-9);
}
