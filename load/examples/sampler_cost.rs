//! What sampling costs a row: `cargo run -p partita-load --release --example sampler_cost`.
//!
//! The rows' keys are made beforehand, so that only the sampler is timed; seconds go on as they would at the rate that
//! is printed, so that each second's first samples and its end are in the figure.

#![allow(clippy::print_stdout, reason = "a program that prints its result")]

use std::sync::Arc;
use std::time::Instant;

use partita_load::{Columns, Random, Sampler};

const KEYS: usize = 1 << 16;
const KEY_LEN: usize = 24;

fn measure(name: &str, keys: &[[u8; KEY_LEN]], rate: usize, batch: usize, seconds: usize) {
    let columns: Columns = Arc::new(|_| vec![8, 16, KEY_LEN]);
    let mut sampler = Sampler::new(1).with_columns(columns);
    sampler.engage(true);
    let mut rows = 0;
    // Others use this machine too: the quickest of many short parts is the least disturbed one.
    let part = (60_000 / rate).max(1);
    let mut best = f64::INFINITY;
    let (mut begin, mut begun_at) = (Instant::now(), 0);
    for second in 0..seconds {
        if second % part == 0 && second > 0 {
            best = best.min(begin.elapsed().as_secs_f64() * 1e9 / (rows - begun_at) as f64);
            (begin, begun_at) = (Instant::now(), rows);
        }
        let mut sent = 0;
        while sent < rate {
            let at = rows % (KEYS - batch);
            sampler.observe(second as u64 + 1, batch, |row| &keys[at + row]);
            sent += batch;
            rows += batch;
        }
    }
    let sketch = sampler.sketch(seconds as u64 + 1, 60);
    println!(
        "{name:>9} keys {rate:>9} rows/s, batches of {batch:>5}: {best:>6.2} ns/row ({} ticks kept)",
        sketch.ticks.len()
    );
}

/// Measures the cost of comparing every key with the lowest and the highest one so far.
fn measure_edges(name: &str, keys: &[[u8; KEY_LEN]]) {
    let mut best = f64::INFINITY;
    let mut edges = (keys[0].as_slice(), keys[0].as_slice());
    for _ in 0..50 {
        let begin = Instant::now();
        for key in std::hint::black_box(keys) {
            if key.as_slice() > edges.1 {
                edges.1 = key;
            } else if key.as_slice() < edges.0 {
                edges.0 = key;
            }
        }
        std::hint::black_box(edges);
        best = best.min(begin.elapsed().as_secs_f64() * 1e9 / keys.len() as f64);
    }
    println!("{name:>9} keys, each compared with the edges: {best:>6.2} ns/row");
}

fn main() {
    let mut random = Random::new(7);
    let mut scattered = vec![[0_u8; KEY_LEN]; KEYS];
    for key in &mut scattered {
        for part in key.chunks_exact_mut(8) {
            part.copy_from_slice(&random.bits().to_be_bytes());
        }
    }
    let mut ascending = scattered.clone();
    ascending.sort_unstable();
    for (rate, seconds) in [(3_000, 2_000), (30_000, 400), (300_000, 60), (1_000_000, 20)] {
        for batch in [1, 100, 5_000] {
            measure("scattered", &scattered, rate, batch, seconds);
        }
    }
    measure("ascending", &ascending, 300_000, 100, 60);
    measure_edges("scattered", &scattered);
    measure_edges("ascending", &ascending);
}
