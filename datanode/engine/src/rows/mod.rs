//! Rows in memory, without files: the layout that a schema gives them, sorted runs, the merge of runs, the fold of the
//! versions of one key, and the garbage among the versions of a wide table's cells.

pub(crate) mod collector;
pub(crate) mod fold;
pub(crate) mod layout;
pub(crate) mod memtable;
pub(crate) mod merge;
pub(crate) mod run;
