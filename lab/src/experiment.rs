//! `partita lab experiment`: what others have published of hot partitions, repeated on a cluster of ours.
//!
//! ```text
//!   hash-index        CockroachDB's RFC: what a hash before the key costs reads, and gives to writes
//!   overloaded-shard  YDB's walk-through: one partition under load, before and after it is split
//!   scaling           cockroachdb#38160: more writers on a key that only grows
//!
//!   site (a cluster) <── clients (closed loops) ── experiment ─▶ told: figures beside theirs, claims, JSON
//!                                                      └─ claim: does the shape hold?
//! ```
//!
//! Machines differ, so that figures stand beside each other and only their *shape* is asserted: ratios, growth, what stays
//! flat. Where it does not hold, the command says which claim failed and ends with an error.
//!
//! Invariants: what is claimed is judged by what was measured in this run; what cannot be told is said to be open, and
//! what the store does not do is said to be so; a cluster that ran before is left without the tables of the
//! experiment, whatever becomes of it; who stops it is told that they may be there.

mod clients;
mod hash_index;
mod overloaded;
mod scaling;
mod site;
mod told;

use anyhow::bail;

use crate::stop::stopped;

/// Which experiment.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Experiment {
    /// What hashing a sequential key costs point reads, where the bucket follows from the predicate and where it does
    /// not, and what it gives to writes (CockroachDB's RFC of hash-sharded indexes).
    HashIndex(Box<hash_index::Options>),
    /// One partition under more load than it takes, before and after it is split (YDB's walk-through).
    OverloadedShard(Box<overloaded::Options>),
    /// Throughput of a key that only grows and of a hashed one, by the number of writers (cockroachdb#38160).
    Scaling(Box<scaling::Options>),
}

/// Runs one, prints it, and checks its shape.
///
/// # Errors
/// When the cluster cannot be started or reached, something is refused for good, or the shape does not hold.
pub(crate) async fn run(experiment: &Experiment) -> anyhow::Result<()> {
    let done = async {
        match experiment {
            Experiment::HashIndex(options) => Box::pin(hash_index::run(options)).await,
            Experiment::OverloadedShard(options) => Box::pin(overloaded::run(options)).await,
            Experiment::Scaling(options) => Box::pin(scaling::run(options)).await,
        }
    };
    tokio::select! {
        done = Box::pin(done) => done,
        stopped = stopped() => {
            stopped?;
            bail!("stopped; nothing was reported, and a cluster that ran before may still have the tables lab_experiment_*");
        }
    }
}
