//! Definitions that Partita's services share: ids, schemas, keys, ranges, routes, the traits by which they call each
//! other, the wire forms of all these, and the one error.
//!
//! ```text
//!   schema ─┬─ key codec ── range ──┐
//!           └─ placement ── rule ───┴─ route (partition map) ── catalog
//!   value ──── domain (what a predicate leaves of a column) ── prunes routes and files
//!   index (of a column, as declared) ── probe (what it is asked) ── text (words, for full-text search)
//!   measure (of the rows of a partition: values, lengths, intervals)
//!   member (the nodes that meta knows), label, load (how busy everything is)
//!   access (who may do what) ── check ── permit
//!   task (statements on a schedule), with the steps of their runs
//!   sequence (counters that are taken in blocks)
//!   wide (rows of cells: families, garbage collection, requests that change a row)
//!   materialized (copies of tables in another order), with the positions of their rows
//!   service (traits) ── wire (prost forms) ── error
//! ```
//!
//! Nothing here does I/O, reads a clock or draws random numbers.

pub mod access;
#[cfg(test)]
mod arbitrary;
pub mod array;
pub mod beat;
pub mod blame;
pub mod blocking;
mod calendar;
pub mod cardinality;
pub mod catalog;
pub mod catalog_history;
pub mod clock;
pub mod domain;
pub mod element;
pub mod error;
pub mod generation;
pub mod hash;
pub mod health;
pub mod history;
pub mod id;
pub mod index;
pub mod json;
pub mod key;
pub mod label;
pub mod lists;
pub mod literal;
pub mod load;
pub mod materialized;
pub mod measure;
pub mod member;
mod neighbour;
mod option_merge;
pub mod partitioning;
pub mod placement;
pub mod probe;
pub mod range;
pub mod reshape;
pub mod retention;
pub mod retype;
pub mod route;
pub mod rule;
#[cfg(test)]
mod samples;
pub mod schema;
pub mod sequence;
pub mod service;
pub mod size;
pub mod stored_view;
pub mod task;
pub mod text;
pub mod time_of_day;
pub mod uuid;
pub mod value;
pub mod wide;
pub mod wire;

pub use error::Error;
