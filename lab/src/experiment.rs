//! `partita lab experiment`: repeats published experiments on hot partitions with a Partita cluster.
//!
//! ```text
//!   filed             CockroachDB's issues on hotspots, and YCSB's D and E: the classes that the store names
//!   hash-index        CockroachDB's RFC: cost of a hash before the key for reads, and its benefit for writes
//!   overloaded-shard  YDB's walk-through: one partition under load, before and after it is split
//!   scaling           cockroachdb#38160: more writers on a key that only grows
//!   read-hotspot      our own: reads of one partition, by its leader alone and by all its replicas
//!   streams           the streams of the virtual scoreboard that write rows
//!
//!   site (a cluster) <── clients (closed loops) ── experiment ─▶ told: our figures beside the published ones, claims, JSON
//!                                                      └─ claim: does the shape hold?
//! ```
//!
//! Absolute figures depend on the machine, so they are only shown side by side, and their *shape* is asserted:
//! ratios, growth, flatness. If it does not hold, the command names the failed claim and ends with an error.
//!
//! Invariants: claims are judged only by figures of this run; a claim without enough evidence is open, and
//! unsupported features are named; an experiment removes its tables from a cluster that it did not start, even
//! after an error; if it is interrupted, a message says that they may remain.

mod clients;
pub(crate) mod filed;
mod hash_index;
mod overloaded;
mod read_hotspot;
mod scaling;
mod site;
pub(crate) mod streams;
mod told;
pub(crate) mod trial;

use anyhow::bail;

use crate::stop::stopped;
pub(crate) use site::SiteOptions;

/// The experiment to run.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Experiment {
    /// Hotspots that were filed with CockroachDB (#134561, #134563, #134566, #134576), and YCSB's D and E: which class
    /// the store names, and after how long.
    Filed(Box<filed::Options>),
    /// Cost of hashing a sequential key for point reads, where the bucket follows from the predicate and where it
    /// does not, and its benefit for writes (CockroachDB's RFC of hash-sharded indexes).
    HashIndex(Box<hash_index::Options>),
    /// One partition under more load than it can serve, before and after a split (YDB's walk-through).
    OverloadedShard(Box<overloaded::Options>),
    /// Throughput of a growing key and of a hashed one, by the number of writers (cockroachdb#38160).
    Scaling(Box<scaling::Options>),
    /// Throughput of reads of one partition by CPU: of its leader alone, and of all its replicas.
    ReadHotspot(Box<read_hotspot::Options>),
    /// Streams of the virtual scoreboard that write rows: which class the store names, after how long, and what it serves
    /// at last.
    Streams(Box<streams::Options>),
}

/// Runs an experiment, prints the results, and checks their shape.
///
/// # Errors
/// If the cluster cannot be started or reached, a request fails permanently, or the shape does not hold.
pub(crate) async fn run(experiment: &Experiment) -> anyhow::Result<()> {
    let work = async {
        match experiment {
            Experiment::Filed(options) => Box::pin(filed::run(options)).await,
            Experiment::HashIndex(options) => Box::pin(hash_index::run(options)).await,
            Experiment::OverloadedShard(options) => Box::pin(overloaded::run(options)).await,
            Experiment::Scaling(options) => Box::pin(scaling::run(options)).await,
            Experiment::ReadHotspot(options) => Box::pin(read_hotspot::run(options)).await,
            Experiment::Streams(options) => Box::pin(streams::run(options)).await,
        }
    };
    tokio::select! {
        result = Box::pin(work) => result,
        stopped = stopped() => {
            stopped?;
            bail!("stopped before the report; a cluster that was already running may still have the tables lab_experiment_*");
        }
    }
}
