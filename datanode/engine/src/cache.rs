//! What is known of files and kept in memory: bounded, the least recently used goes first.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::file::FileId;

/// Something that is kept for each of some files.
#[derive(Debug)]
pub(crate) struct FileCache<T> {
    bytes_max: u64,
    entries: Mutex<Entries<T>>,
}

#[derive(Debug)]
struct Entries<T> {
    by_file: HashMap<FileId, Entry<T>>,
    bytes: u64,
    uses: u64,
}

#[derive(Debug)]
struct Entry<T> {
    value: Arc<T>,
    bytes: u64,
    used: u64,
}

impl<T> FileCache<T> {
    pub(crate) fn new(bytes_max: u64) -> Self {
        let entries = Entries { by_file: HashMap::new(), bytes: 0, uses: 0 };
        Self { bytes_max, entries: Mutex::new(entries) }
    }

    /// The most bytes that are kept.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// What is kept for a file.
    pub(crate) fn get(&self, file: FileId) -> Option<Arc<T>> {
        let mut entries = self.entries.lock();
        entries.uses += 1;
        let now = entries.uses;
        let entry = entries.by_file.get_mut(&file)?;
        entry.used = now;
        Some(Arc::clone(&entry.value))
    }

    /// Keeps a value of so many bytes in place of what was kept for the file.
    pub(crate) fn insert(&self, file: FileId, value: Arc<T>, bytes: u64) {
        let mut entries = self.entries.lock();
        entries.remove(file);
        if bytes > self.bytes_max {
            return;
        }
        entries.uses += 1;
        let used = entries.uses;
        entries.by_file.insert(file, Entry { value, bytes, used });
        entries.bytes += bytes;
        while entries.bytes > self.bytes_max {
            let oldest = entries.by_file.iter().min_by_key(|(_, entry)| entry.used);
            let Some(oldest) = oldest.map(|(file, _)| *file) else { return };
            entries.remove(oldest);
        }
    }

    /// Forgets a file.
    pub(crate) fn remove(&self, file: FileId) {
        self.entries.lock().remove(file);
    }
}

impl<T> Entries<T> {
    fn remove(&mut self, file: FileId) {
        if let Some(entry) = self.by_file.remove(&file) {
            self.bytes -= entry.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_last_stays_within_the_bound() {
        let cache = FileCache::new(10);
        for file in 1..=3 {
            cache.insert(file, Arc::new(file), 3);
        }
        assert_eq!(cache.get(1).as_deref(), Some(&1));
        cache.insert(4, Arc::new(4), 3);
        assert!(cache.get(2).is_none(), "it was used the longest ago");
        assert!([1, 3, 4].iter().all(|file| cache.get(*file).is_some()));
        cache.insert(5, Arc::new(5), 11);
        assert!([1, 3, 4].iter().all(|file| cache.get(*file).is_some()), "it would not fit");
        assert!(cache.get(5).is_none());
        cache.insert(5, Arc::new(5), 10);
        assert!((1..5).all(|file| cache.get(file).is_none()), "nothing fits beside it");
        assert_eq!(cache.get(5).as_deref(), Some(&5));
        cache.insert(6, Arc::new(6), 10);
        cache.insert(6, Arc::new(7), 9);
        assert_eq!(cache.get(6).as_deref(), Some(&7));
        cache.remove(6);
        assert!(cache.get(6).is_none());
    }
}
