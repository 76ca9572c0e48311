//! The TSBS cpu-only data set: its rows, and their forms on the wire.
//!
//! ```text
//!   random ──> cpu (rows) ──> encode (line protocol, COPY, CSV, Arrow)
//!                                └─ civil (times as people write them)
//! ```
//!
//! Everything follows from a seed and is the same on every machine. Nothing here does I/O, or knows a server: the
//! lab loads these rows into servers, and the benchmarks of the crates below take them to pieces.

pub mod civil;
pub mod cpu;
pub mod encode;
pub mod random;
