//! Rows in memory, without files: the layout that a schema gives them, sorted runs, the merge of runs, and the fold of
//! the versions of one key.

pub(crate) mod fold;
pub(crate) mod layout;
pub(crate) mod memtable;
pub(crate) mod merge;
pub(crate) mod run;
