//! The lab's claims in a short and deterministic form: workloads have their stated densities, and a virtual cluster
//! reacts to them as a real one should.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod claims;
mod repeats;
mod score;
mod traces;
mod week;
mod workloads;

use partita_hotspot::cluster::{Cluster, Options, Policy};
use partita_hotspot::metrics::Summary;
use partita_hotspot::workload::{Design, Knobs, find};

/// Ten nodes, 10,000 users with a mild skew, three lanes' worth of rows.
pub(crate) fn knobs(design: Design) -> Knobs {
    Knobs::of(design, 60_000.0)
}

/// A cluster under a workload.
pub(crate) fn cluster(name: &str, knobs: &Knobs, policy: Policy, seed: u64) -> Cluster {
    let options = Options { nodes: 10, policy, seed, ..Options::default() };
    Cluster::new(options, find(name).unwrap().tables(knobs))
}

/// Result of a workload after some seconds.
pub(crate) fn outcome(name: &str, knobs: &Knobs, policy: Policy, seconds: u64) -> Summary {
    let mut cluster = cluster(name, knobs, policy, 1);
    cluster.run(seconds);
    Summary::of(&cluster)
}
