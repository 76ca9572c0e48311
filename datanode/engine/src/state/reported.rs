//! Reports about a version of a partition, which hold until the partition changes.

use std::sync::{Arc, Weak};

use super::version::Version;

/// A report with the version from which it was made.
pub(crate) struct Reported<T> {
    version: Weak<Version>,
    report: Arc<T>,
}

impl<T> Reported<T> {
    pub(crate) fn new(version: &Arc<Version>, report: &Arc<T>) -> Self {
        Self { version: Arc::downgrade(version), report: Arc::clone(report) }
    }

    /// The report, if it was made from this version.
    pub(crate) fn of(&self, version: &Arc<Version>) -> Option<&Arc<T>> {
        // No other version gets the address of one that is referred to.
        std::ptr::eq(self.version.as_ptr(), Arc::as_ptr(version)).then_some(&self.report)
    }
}
