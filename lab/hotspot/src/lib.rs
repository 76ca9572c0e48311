//! Hot partitions in a virtual cluster: the decisions of a real cluster under simulated load, so that an hour of a
//! thousand nodes takes seconds.
//!
//! [`streams`] are loads that mislead detectors of hot partitions, [`baseline`] has detectors like those of other
//! products, and [`picker`] is the interface of those and ours: the tests of partita-load compare them. [`score`] lets the
//! scheduler act on each of these loads, and says how well the advice and the automatic remedy do. [`week`] runs days with
//! a peak at nine, which the forecast is to meet.
//!
//! Invariants: no network, no threads, and a clock only to report the duration of a run; a run follows from its
//! options and its seed, and its event log always has the same hash.

pub mod baseline;
pub mod cluster;
pub mod metrics;
mod number;
pub mod picker;
pub mod report;
pub mod score;
pub mod sim;
pub mod streams;
pub mod week;
pub mod workload;
pub mod zipf;
