//! Keys of rows of tables that have no key: unique, and ascending with time.
//!
//! ```text
//!   8 bytes: microseconds since 1970, or one more than the last one    8 bytes: random number of this process
//! ```
//!
//! A key is made once for each row, before the row is sent: a row that is sent again has the same one.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use arrow::array::BinaryViewArray;

/// The keys of one process.
struct RowIds {
    process: u64,
    /// Number of the next key.
    next: AtomicU64,
}

/// The keys of this process.
static ROW_IDS: LazyLock<RowIds> = LazyLock::new(|| RowIds {
    // The standard library's hashers are seeded with random keys.
    process: RandomState::new().build_hasher().finish(),
    next: AtomicU64::new(0),
});

/// Keys of so many new rows.
pub(super) fn next(rows: usize) -> BinaryViewArray {
    let age = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    ROW_IDS.take(rows, u64::try_from(age.as_micros()).unwrap_or(u64::MAX / 2))
}

impl RowIds {
    fn take(&self, rows: usize, now_us: u64) -> BinaryViewArray {
        let count = rows as u64;
        let advanced = |next: u64| Some(next.max(now_us).saturating_add(count));
        let (Ok(previous) | Err(previous)) =
            self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, advanced);
        let first = previous.max(now_us);
        let key = |number: u64| {
            let mut key = [0; 16];
            key[..8].copy_from_slice(&number.to_be_bytes());
            key[8..].copy_from_slice(&self.process.to_be_bytes());
            key
        };
        BinaryViewArray::from_iter_values((first..first.saturating_add(count)).map(key))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn ids() -> RowIds {
        RowIds { process: 7, next: AtomicU64::new(0) }
    }

    fn keys(array: &BinaryViewArray) -> Vec<Vec<u8>> {
        array.iter().flatten().map(<[u8]>::to_vec).collect()
    }

    #[test]
    fn keys_ascend_also_when_the_clock_goes_back() {
        let ids = ids();
        let mut all_keys = Vec::new();
        for (rows, now_us) in [(3, 100), (2, 101), (1, 50), (0, 60), (2, 1_000)] {
            all_keys.extend(keys(&ids.take(rows, now_us)));
        }
        assert_eq!(all_keys.len(), 8);
        assert!(all_keys.is_sorted());
        assert_eq!(all_keys.iter().collect::<BTreeSet<_>>().len(), 8);
        assert_eq!(all_keys[0], [0, 0, 0, 0, 0, 0, 0, 100, 0, 0, 0, 0, 0, 0, 0, 7]);
    }

    #[test]
    fn processes_and_threads_have_different_keys() {
        let other_process = RowIds { process: 8, ..ids() };
        assert_ne!(keys(&ids().take(1, 5)), keys(&other_process.take(1, 5)));
        let made_keys: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| keys(&next(1_000)))).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(made_keys.iter().collect::<BTreeSet<_>>().len(), 4_000);
    }
}
