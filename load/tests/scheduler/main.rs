//! The scheduler in a cluster whose load is a fluid.

#![allow(clippy::unwrap_used, reason = "what a test cannot go on without, it fails by")]

mod balance;
mod chaos;
mod flows;
mod fluid;
mod splits;
mod tides;
