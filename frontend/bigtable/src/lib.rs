//! Bigtable's gRPC API (google.bigtable.v2 and the tables of google.bigtable.admin.v2) over wide tables.
//!
//! ```text
//!   messages (api) ── filter: the filter language, pure
//! ```
//!
//! Sources of names, numbers and semantics: the .proto files and their comments in googleapis.

pub mod api;
mod cell;
pub mod filter;

pub use cell::{Cell, Row};
