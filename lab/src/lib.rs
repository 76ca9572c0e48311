//! The lab: data sets, load and queries against Partita and against what people would use instead, all
//! measured by one driver.
//!
//! ```text
//! tsbs: cpu (data set) ──> encode (formats) ──> ingest ──> door ──> a server
//!                                               query  ──> door ──>     │
//!                          latency, meter, pace <──────────────────── /proc
//!                          compare, stages: results laid beside each other
//! ```
//!
//! It speaks the servers' own protocols and knows nothing of how Partita is made, so that it can drive
//! any of them. Everything that is sent follows from a seed.
//!
//! It is the inside of a command: its errors are for a person to read, so they are `anyhow`'s.

mod claim;
mod compare;
mod data;
mod door;
mod embedded;
mod experiment;
mod generate;
mod hotspot;
mod ingest;
mod latency;
mod meter;
mod pace;
mod query;
mod report;
mod server;
mod stages;
mod statistics;
mod stop;
mod writes;

// The data set, under the names that it had here before others needed it.
use partita_tsbs::{civil, cpu, encode, random};

/// What the lab does.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Write the TSBS cpu-only data set into a file.
    Generate(generate::Options),
    /// Load the TSBS cpu-only data set into a server, and measure it.
    Ingest(Box<ingest::Options>),
    /// Ask a server the fifteen queries of TSBS, and measure it.
    Query(Box<query::Options>),
    /// Write small rows by many clients at once, each waited for, and measure it.
    Writes(writes::Options),
    /// Put results of several runs beside each other: medians, ratios, equal answers.
    Compare(compare::Options),
    /// Add up what the pieces of the write path cost, as criterion measured them.
    Stages(stages::Options),
    /// Write the same rows under different key designs, on a real cluster, and show what each does.
    Hotspot(Box<hotspot::Options>),
    /// Repeat a published experiment: our figures beside theirs, and whether the shape is the expected one.
    #[command(subcommand)]
    Experiment(experiment::Experiment),
    /// Run a workload in a virtual cluster: what a key design does, under our rules and under others'.
    Sim(Box<partita_hotspot::sim::Options>),
}

/// Does it.
///
/// # Errors
/// When it cannot be done, or a server refused something; what could be measured is printed before.
pub async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Generate(options) => generate::run(&options),
        Command::Ingest(options) => Box::pin(ingest::run(&options)).await,
        Command::Compare(options) => compare::run(&options),
        Command::Stages(options) => stages::run(&options),
        Command::Writes(options) => Box::pin(writes::run(&options)).await,
        Command::Query(options) => Box::pin(query::run(&options)).await,
        Command::Hotspot(options) => Box::pin(hotspot::run(&options)).await,
        Command::Experiment(experiment) => Box::pin(experiment::run(&experiment)).await,
        Command::Sim(options) => report::say(&partita_hotspot::sim::run(&options)?),
    }
}
