//! Writes files from the rows of a merge.
//!
//! ```text
//!   rewrite ── writer ── row_group (`parquet/`)
//!                 └── sink ── store
//! ```

pub(crate) mod rewrite;
pub(crate) mod sink;
pub(crate) mod writer;
