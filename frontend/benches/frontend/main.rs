//! The frontend's pieces: reading rows that come as SQL or COPY, completing and routing them, planning queries.
//!
//! Nodes are those of [`partita_frontend::fake`]: no log, no files, and here they forget what is written.

mod decode;
mod ingest;
mod plan;

use partita_bench::{CpuTime, cpu};

/// Benches that count CPU.
type Criterion = criterion::Criterion<CpuTime>;

fn main() {
    let mut criterion = cpu();
    decode::all(&mut criterion);
    ingest::all(&mut criterion);
    plan::all(&mut criterion);
    criterion.final_summary();
}
