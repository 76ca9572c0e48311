//! Reads rows: scans, the sources that they merge, and the readers of files below.
//!
//! ```text
//!   scan ── plan ── source ── reader ── (every byte checked) ── file
//!    ├── candidates ──┘          ├── indexed ── questions: rows of a file by its indexes
//!    ├── collected: cells of wide tables without garbage
//!    └── newest ── series ───────┴── wanted: rows of a file by their series
//!   sketch, measures: series and columns of a partition, from footers; edges: its lowest and highest key
//! ```

pub(crate) mod candidates;
pub(crate) mod collected;
pub(crate) mod edges;
pub(crate) mod indexed;
pub(crate) mod measures;
pub(crate) mod nearest;
pub(crate) mod newest;
pub(crate) mod ordered;
pub(crate) mod plan;
pub(crate) mod questions;
pub(crate) mod reader;
pub(crate) mod scan;
pub(crate) mod series;
pub(crate) mod sketch;
pub(crate) mod source;
pub(crate) mod wanted;
