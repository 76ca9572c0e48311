//! The lowest and the highest key that a partition is known to hold, from the bounds of its files.
//!
//! No file is read. Keys in memtables are not counted, nor keys of which only the range of a file tells: where a file
//! reaches beyond the range that counts, the first keys of its row groups are taken.

use bytes::Bytes;

use crate::file::FileEntry;
use crate::state::partition::Partition;

impl Partition {
    /// The lowest and the highest encoded key that are known from files; `None` if none is.
    pub fn edges(&self) -> Option<(Bytes, Bytes)> {
        let version = self.version();
        let range = &version.layout.range;
        let keys = version.files.values().flat_map(held).filter(|key| range.contains(key));
        let mut edges: Option<(&Bytes, &Bytes)> = None;
        for key in keys {
            let (low, high) = edges.unwrap_or((key, key));
            edges = Some((low.min(key), high.max(key)));
        }
        edges.map(|(low, high)| (low.clone(), high.clone()))
    }
}

/// Keys that a file holds: first keys of its row groups, and both ends unless its range has cut them off.
fn held(entry: &FileEntry) -> impl Iterator<Item = &Bytes> {
    let is_cut_low = entry.is_clipped() && entry.first == entry.range.start;
    let first = (!is_cut_low).then_some(&entry.first);
    let last = entry.range.contains(&entry.last).then_some(&entry.last);
    let splits = entry.splits.iter().filter(move |key| entry.range.contains(key));
    first.into_iter().chain(last).chain(splits)
}
