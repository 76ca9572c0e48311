//! Encodes batches as row groups of Parquet.
//!
//! ```text
//!   row_group ── texts (columns of texts, by runs) ── chunk ── hybrid, bounds
//! ```

pub(crate) mod bounds;
pub(crate) mod chunk;
pub(crate) mod hybrid;
pub(crate) mod row_group;
pub(crate) mod spans;
pub(crate) mod texts;
