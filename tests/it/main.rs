//! Tests over real server processes: one test binary, one module for each concern.

#![allow(clippy::unwrap_used, reason = "what a test cannot go on without, it fails by")]

mod added;
mod advised;
mod catalogue;
mod certs;
mod cluster;
mod dumped;
mod faults;
mod former;
mod indexed;
mod kill;
mod limits;
mod schema_advice;
mod scripts;
mod secured;
mod server;
mod shell;
mod start;
mod trust;
