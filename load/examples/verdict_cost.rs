//! What a verdict costs: `cargo run -p partita-load --release --example verdict_cost`.

#![allow(clippy::print_stdout, reason = "a program that prints its result")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use partita_hotspot::picker::{Detector, Picker};
use partita_hotspot::streams::{Op, SECOND_US, all, prefix_ends};
use partita_load::Columns;

fn main() {
    for kind in all() {
        let widths = kind.columns;
        let columns: Columns = Arc::new(move |key| prefix_ends(widths, key));
        let mut detector = Detector::new(1, columns, kind.options);
        let mut stream = kind.stream(1);
        let mut op = Op::default();
        for at in (0..70 * SECOND_US).step_by(1_000) {
            if stream.draw(at, &mut op) {
                detector.observe(at, &op);
            }
        }
        // Others use this machine too: the quickest is the least disturbed one.
        let mut quickest = Duration::MAX;
        for _ in 0..10 {
            let begin = Instant::now();
            detector.poll(70 * SECOND_US);
            quickest = quickest.min(begin.elapsed());
        }
        let class = detector.verdicts().last().map(|verdict| verdict.class);
        println!("{:24} {:>9.1?} {:?}", kind.name, quickest, class);
    }
}
