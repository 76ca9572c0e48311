//! Changes of a partition's files (flush, compaction) and of its range (split, absorption of a neighbour).
//!
//! ```text
//!   memtables ── flush ──▶ files ── compaction ──▶ fewer files
//!
//!   settled: all rows ──┬── split ───▶ parent and child, which share files
//!   are in files        └── absorb ──▶ one partition with the files of both
//! ```
//!
//! `window` has the bounds in time at which files are cut, `middle` chooses the key of a split. Neither split nor
//! absorption copies a row.

pub(crate) mod absorb;
pub(crate) mod compaction;
pub(crate) mod flush;
pub(crate) mod middle;
pub(crate) mod settled;
pub(crate) mod split;
pub(crate) mod window;
