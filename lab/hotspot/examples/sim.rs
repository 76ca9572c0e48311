//! `partita lab sim` alone: quick to build.
//!
//! ```text
//! cargo run --release -p partita-hotspot --example sim -- --nodes 1000 --partitions 100000 --hours 1
//! ```

#![expect(clippy::print_stdout, reason = "the example prints its results")]

use clap::Parser;

/// Run a workload in a virtual cluster.
#[derive(Parser)]
#[command(name = "sim", max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    options: partita_hotspot::sim::Options,
}

fn main() -> anyhow::Result<()> {
    println!("{}", partita_hotspot::sim::run(&Cli::parse().options)?);
    Ok(())
}
