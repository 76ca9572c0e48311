//! Locks against concurrent creation and removal of a partition's files.
//!
//! Invariants:
//! - one holder at a time for each partition;
//! - the owner of a [`Hold`] waits for no group, but may wait for disk space without limit. An order therefore waits
//!   for a hold for a moment only: dropping another partition may free the space.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use partita_proto::error::Error;
use partita_proto::id::PartitionId;
use tokio::sync::OwnedMutexGuard;

/// Maximum time that an order waits for the current holder of the same partition.
const MOMENT: Duration = Duration::from_secs(2);

/// Locks of the partitions whose files are being created or removed.
#[derive(Default)]
pub(crate) struct Making {
    held: Mutex<BTreeMap<PartitionId, Weak<tokio::sync::Mutex<()>>>>,
}

/// Exclusive right to create or remove the files of a partition, while it lives.
pub(crate) struct Hold {
    _guard: OwnedMutexGuard<()>,
}

impl Making {
    /// Waits until no other task creates or removes the files of the partition.
    pub(crate) async fn hold(&self, partition: PartitionId) -> Hold {
        Hold { _guard: self.lock_of(partition).lock_owned().await }
    }

    /// As [`Making::hold`], for orders.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when another task holds the partition for longer than a moment.
    pub(crate) async fn hold_soon(&self, partition: PartitionId) -> Result<Hold, Error> {
        let hold = tokio::time::timeout(MOMENT, self.hold(partition)).await;
        hold.map_err(|_elapsed| {
            Error::Unavailable(format!(
                "partition {partition} is being split off or absorbed here, which may be waiting for disk space"
            ))
        })
    }

    fn lock_of(&self, partition: PartitionId) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.held.lock();
        if let Some(lock) = locks.get(&partition).and_then(Weak::upgrade) {
            return lock;
        }
        locks.retain(|_, lock| lock.strong_count() > 0);
        let lock = Arc::default();
        locks.insert(partition, Arc::downgrade(&lock));
        lock
    }
}
