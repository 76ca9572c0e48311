//! Who makes or removes the files of which partition.
//!
//! Invariants:
//! - one at a time for each partition;
//! - whoever holds a [`Hold`] waits for no group, and for space on the disk as long as it takes: an order waits for a
//!   hold for a moment only, because dropping another partition may be what makes space.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use partita_proto::error::Error;
use partita_proto::id::PartitionId;
use tokio::sync::OwnedMutexGuard;

/// How long an order waits for whoever makes or removes the same partition.
const MOMENT: Duration = Duration::from_secs(2);

/// The partitions whose files are being made or removed.
#[derive(Default)]
pub(crate) struct Making {
    held: Mutex<BTreeMap<PartitionId, Weak<tokio::sync::Mutex<()>>>>,
}

/// Nobody else makes or removes the files of a partition as long as this is there.
pub(crate) struct Hold {
    _guard: OwnedMutexGuard<()>,
}

impl Making {
    /// Waits until nobody else makes or removes the files of a partition.
    pub(crate) async fn hold(&self, partition: PartitionId) -> Hold {
        Hold { _guard: self.of(partition).lock_owned().await }
    }

    /// As [`Making::hold`], for orders.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when somebody else is at it for longer than a moment.
    pub(crate) async fn hold_soon(&self, partition: PartitionId) -> Result<Hold, Error> {
        let held = tokio::time::timeout(MOMENT, self.hold(partition)).await;
        held.map_err(|_elapsed| {
            Error::Unavailable(format!(
                "partition {partition} is being cut off or taken over here, which may wait for space on the disk"
            ))
        })
    }

    fn of(&self, partition: PartitionId) -> Arc<tokio::sync::Mutex<()>> {
        let mut held = self.held.lock();
        if let Some(lock) = held.get(&partition).and_then(Weak::upgrade) {
            return lock;
        }
        held.retain(|_, lock| lock.strong_count() > 0);
        let lock = Arc::default();
        held.insert(partition, Arc::downgrade(&lock));
        lock
    }
}
