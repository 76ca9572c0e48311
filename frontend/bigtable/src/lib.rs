//! Bigtable's gRPC API (google.bigtable.v2 and the tables of google.bigtable.admin.v2) over wide tables.
//!
//! Sources of names, numbers and semantics: the .proto files and their comments in googleapis.

pub mod api;
