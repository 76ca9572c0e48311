//! Cache of decoded segments, shared by all partitions of a node.

use std::fmt;
use std::sync::Arc;

use crate::file::cache::Recent;
use crate::index::Segment;

/// Segments of the indexes of files, decoded. A number names a file in the process; entries of files that are gone age
/// out. Cheap to share between all partitions of a node.
pub struct IndexCache(
    /// By file, position of the index in the file's directory, and row group.
    pub(crate) Recent<(u64, u32, u32), Arc<Segment>>,
);

impl IndexCache {
    /// A cache of at most `bytes_max` bytes.
    pub fn new(bytes_max: u64) -> Self {
        Self(Recent::new(bytes_max))
    }
}

impl fmt::Debug for IndexCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IndexCache").field("bytes_max", &self.0.bytes_max()).finish_non_exhaustive()
    }
}
