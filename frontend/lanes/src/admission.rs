//! Places for statements that compute.
//!
//! There are two classes, each with a semaphore that serves in order of arrival. A statement begins with a short
//! place. After [`crate::LaneOptions::short_time`] it takes a long place, if one is free, and returns the short
//! one.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The class of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The statement has just begun.
    Short,
    /// The statement runs for longer than [`crate::LaneOptions::short_time`].
    Long,
}

/// The places of both classes.
#[derive(Debug)]
pub(crate) struct Places {
    short: Arc<Semaphore>,
    long: Arc<Semaphore>,
    max: (usize, usize),
}

/// A place that a statement holds while it computes.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) class: Class,
    _permit: OwnedSemaphorePermit,
}

impl Places {
    pub(crate) fn new(short: usize, long: usize) -> Self {
        let (short, long) = (short.max(1), long.max(1));
        Self {
            short: Arc::new(Semaphore::new(short)),
            long: Arc::new(Semaphore::new(long)),
            max: (short, long),
        }
    }

    /// Waits for a place. Dropping the future leaves the queue.
    pub(crate) async fn take(&self, class: Class) -> Option<Place> {
        let semaphore = match class {
            Class::Short => &self.short,
            Class::Long => &self.long,
        };
        let permit = Arc::clone(semaphore).acquire_owned().await.ok()?;
        Some(Place { class, _permit: permit })
    }

    /// A long place, if one is free.
    pub(crate) fn try_long(&self) -> Option<Place> {
        let permit = Arc::clone(&self.long).try_acquire_owned().ok()?;
        Some(Place { class: Class::Long, _permit: permit })
    }

    /// Numbers of statements that hold a place: short, long.
    pub(crate) fn taken(&self) -> (usize, usize) {
        (self.max.0 - self.short.available_permits(), self.max.1 - self.long.available_permits())
    }
}
