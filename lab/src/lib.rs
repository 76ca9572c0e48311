//! The lab: data sets, load and queries against Partita and its alternatives, measured by one driver.
//!
//! ```text
//! tsbs: cpu (data set) ──> encode (formats) ──> ingest ──> door ──> a server
//!                                               query  ──> door ──>     │
//!                          latency, meter, pace <──────────────────── /proc
//!                          compare, stages: results laid beside each other
//!                          patterns: the same events of balloons as wide rows, by five patterns
//!                          design: the same records under several designs, each on a server started for it
//! ```
//!
//! It uses the servers' own protocols and no knowledge of Partita's implementation, so that it can drive any of
//! them. Everything that it sends follows from a seed.
//!
//! It implements a command: its errors are texts for users, so they are `anyhow`'s.

mod claim;
mod compare;
mod data;
mod design;
mod door;
mod embedded;
mod experiment;
mod generate;
mod hotspot;
mod ingest;
mod latency;
mod meter;
mod pace;
mod patterns;
mod query;
mod report;
mod score;
mod server;
mod stages;
mod statistics;
mod stop;
mod writes;

// The data set, re-exported under the names that it had in this crate.
use partita_tsbs::{civil, cpu, encode, random};

/// Command of the lab.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Write the TSBS cpu-only data set to a file.
    Generate(generate::Options),
    /// Load the TSBS cpu-only data set into a server, and measure it.
    Ingest(Box<ingest::Options>),
    /// Run the fifteen queries of TSBS on a server, and measure them.
    Query(Box<query::Options>),
    /// Write small rows with many concurrent clients, each waiting for its answers, and measure them.
    Writes(writes::Options),
    /// Compare the results of several runs: medians, ratios, equal answers.
    Compare(compare::Options),
    /// Add up the costs of the pieces of the write path, as measured by criterion.
    Stages(stages::Options),
    /// Write the same rows under different key designs on a real cluster, and show the effect of each.
    Hotspot(Box<hotspot::Options>),
    /// Store the data sets of documents about schemas under good and bad designs, ask both the same questions, and
    /// compare the figures with the documents' claims.
    Design(Box<design::Options>),
    /// Store a week of weather balloons under the five patterns of Bigtable's document about time series, and read it.
    Patterns(Box<patterns::Options>),
    /// Repeat a published experiment: compare our figures with the published ones, and check their shape.
    #[command(subcommand)]
    Experiment(experiment::Experiment),
    /// Run a workload in a virtual cluster: the effect of a key design, under our split policy and others.
    Sim(Box<partita_hotspot::sim::Options>),
    /// Score the detector, the scheduler and the advice on all streams in a virtual cluster, and the store on streams and
    /// filed workloads in a real one.
    Score(Box<score::Options>),
    /// Run days with a peak at nine in a virtual cluster: cuts ahead of it, their use, and what was served.
    Week(partita_hotspot::week::Options),
}

/// Runs a command.
///
/// # Errors
/// If it fails, or a server rejected something; results so far are printed before.
pub async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Generate(options) => generate::run(&options),
        Command::Ingest(options) => Box::pin(ingest::run(&options)).await,
        Command::Compare(options) => compare::run(&options),
        Command::Stages(options) => stages::run(&options),
        Command::Writes(options) => Box::pin(writes::run(&options)).await,
        Command::Query(options) => Box::pin(query::run(&options)).await,
        Command::Hotspot(options) => Box::pin(hotspot::run(&options)).await,
        Command::Design(options) => Box::pin(design::run(&options)).await,
        Command::Patterns(options) => Box::pin(patterns::run(&options)).await,
        Command::Experiment(experiment) => Box::pin(experiment::run(&experiment)).await,
        Command::Sim(options) => report::say(&partita_hotspot::sim::run(&options)?),
        Command::Score(options) => Box::pin(score::run(&options)).await,
        Command::Week(options) => report::say(&partita_hotspot::week::run(&options)),
    }
}
