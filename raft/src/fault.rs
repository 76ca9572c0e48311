//! Reaction of the process to a failure of its log or of a group's task.
//!
//! After a failed write or sync the content of the disk is unknown, and the log accepts nothing more. A process that
//! kept running would look healthy and serve nothing, and replicas elsewhere that could lead would wait for it. So the
//! code that opens the log decides how the process ends: usually at once, for a supervisor to restart it from the
//! actual content of the disk.
//!
//! A group's task panics when openraft or the code below it is in an unexpected state. Then only the content of the
//! disk can be trusted, and the group continues from there when the process is restarted.

use std::fmt;
use std::sync::Arc;

use crate::error::RaftError;

type Act = dyn Fn(&RaftError) + Send + Sync;

/// Callback for a failure after which the log, or a group, accepts nothing more. Called once for the log, on the thread
/// that writes it, and once for each group.
///
/// A full disk is not such a failure: the log waits for space and continues. Neither is an error of a machine: its
/// replica stops and reports the reason.
#[derive(Clone)]
pub struct OnFailure(Arc<Act>);

impl OnFailure {
    /// Calls `act`, which must not block for long: every task that waits for the log waits for it.
    pub fn new(act: impl Fn(&RaftError) + Send + Sync + 'static) -> Self {
        Self(Arc::new(act))
    }

    pub(crate) fn call(&self, error: &RaftError) {
        (self.0)(error);
    }
}

impl Default for OnFailure {
    /// Does nothing: every later request is answered with the error.
    fn default() -> Self {
        Self::new(|_| {})
    }
}

impl fmt::Debug for OnFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnFailure")
    }
}
