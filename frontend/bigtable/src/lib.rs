//! Bigtable's gRPC API (google.bigtable.v2 and the tables of google.bigtable.admin.v2) over wide tables.
//!
//! ```text
//!   messages (api) ─┬─ filter: the filter language  ─┐
//!                   ├─ rows: row sets as spans       ├─ pure
//!                   └─ chunks: rows as responses    ─┘
//! ```
//!
//! Sources of names, numbers and semantics: the .proto files and their comments in googleapis.

pub mod api;
mod cell;
pub mod chunks;
pub mod filter;
pub mod rows;

pub use cell::{Cell, Row};
