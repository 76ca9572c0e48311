//! `partita lab` without the server: quick to build, for the machine that generates the load.
//!
//! ```text
//! cargo run --release -p partita-lab --example lab -- ingest --help
//! ```

use std::process::ExitCode;

use clap::Parser;

/// Generate data sets and load, run queries against Partita and its peers, and measure.
#[derive(Parser)]
#[command(name = "lab", max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: partita_lab::Command,
}

#[tokio::main]
#[expect(clippy::print_stderr, reason = "a command reports its error on its terminal")]
async fn main() -> ExitCode {
    match partita_lab::run(Cli::parse().command).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}
