//! Hot partitions in a virtual cluster: the same decisions that a real cluster takes, under load that is computed rather
//! than made, so that an hour of a thousand nodes takes seconds.
//!
//! Invariants: no network, no threads, and no clock but to say how long a run took; a run follows from its options and
//! its seed, and its log of events has the same hash each time.

pub mod cluster;
pub mod metrics;
mod number;
pub mod report;
pub mod sim;
pub mod workload;
