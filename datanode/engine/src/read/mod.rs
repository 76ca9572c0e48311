//! Reads rows: scans, the sources that they merge, and the readers of files below.
//!
//! ```text
//!   scan ── plan ── source ── reader ── (every byte checked) ── file
//!     └── newest ── series ─────┘ └── wanted: rows of a file by their series
//!   sketch: the number of series, from footers
//! ```

pub(crate) mod newest;
pub(crate) mod plan;
pub(crate) mod reader;
pub(crate) mod scan;
pub(crate) mod series;
pub(crate) mod sketch;
pub(crate) mod source;
pub(crate) mod wanted;
