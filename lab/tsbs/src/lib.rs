//! The TSBS cpu-only data set: its rows, and their forms on the wire.
//!
//! ```text
//!   random ──> cpu (rows) ──> encode (line protocol, COPY, CSV, Arrow)
//!                                └─ civil (times as people write them)
//! ```
//!
//! Everything follows from a seed and is the same on every machine. There is no I/O and no knowledge of servers
//! here: the lab loads these rows into servers, and the benchmarks of other crates use them as input.

pub mod civil;
pub mod cpu;
pub mod encode;
pub mod random;
