//! Hot partitions in a virtual cluster: the decisions of a real cluster under simulated load, so that an hour of a
//! thousand nodes takes seconds.
//!
//! Invariants: no network, no threads, and a clock only to report the duration of a run; a run follows from its
//! options and its seed, and its event log always has the same hash.

pub mod cluster;
pub mod metrics;
mod number;
pub mod report;
pub mod sim;
pub mod workload;
