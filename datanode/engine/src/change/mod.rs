//! Changes of the files of a partition: flush and compaction; and of its range: split and absorption of a neighbour.
//!
//! ```text
//!   flush ── (rows in memory become files) ── window: bounds in time at which files are cut
//!   compaction ── (few files instead of many)
//!   settled ── split, absorb: files change hands by reference
//!   middle: the key at which to split
//! ```

pub(crate) mod absorb;
pub(crate) mod compaction;
pub(crate) mod flush;
pub(crate) mod middle;
pub(crate) mod settled;
pub(crate) mod split;
pub(crate) mod window;
