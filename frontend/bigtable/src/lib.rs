//! Bigtable's gRPC API (google.bigtable.v2 and the tables of google.bigtable.admin.v2) over wide tables.
//!
//! ```text
//!   messages ─┬─ data ──┬─ filter: the filter language     ─┐
//!   (api)     │         ├─ rows: row sets as spans of keys  ├─ pure
//!             │         ├─ chunks: rows as responses        │
//!             │         └─ mutations: checked changes      ─┘
//!             └─ admin ── gc, types: rules and types of families
//!                data, admin ──▶ WideStore (store): tables, families, rows
//! ```
//!
//! The crate translates: who may do what, atomicity and the order of changes are those of a [`WideStore`]. Invariants:
//! - a request is checked as a whole before any of it is stored;
//! - a response has whole rows, in the order of their keys;
//! - a filter is evaluated row by row, without I/O, and a row for which it outputs no cells is not returned. Many cells are
//!   filtered where the store computes ([`WideStore::compute`]), not where requests are received.
//!
//! Sources of names, numbers and semantics: the .proto files and their comments in googleapis.

mod admin;
pub mod api;
mod cell;
pub mod chunks;
mod data;
pub mod filter;
mod gc;
mod mutations;
mod names;
pub mod rows;
mod status;
mod store;
mod types;

#[cfg(test)]
mod memory;
#[cfg(test)]
mod tests;

pub use admin::Admin;
pub use cell::{Cell, Row};
pub use data::Data;
pub use names::TableName;
pub use partita_proto::wide::FamilyChange;
pub use store::{Caller, Check, Computation, KeySample, RowStream, Scan, WideStore, WideTable};
