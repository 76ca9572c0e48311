//! What a process is told when its log or a group's task has failed.
//!
//! After a write or a sync that failed nobody knows what is on the disk, and the log takes nothing more. A process that
//! goes on would look healthy and serve nothing, and where others could lead they would wait for it. So whoever opens
//! the log says how the process ends: at once, for a supervisor to start it again over what is really on the disk.
//!
//! A group's task panics when the library or the code below it is wrong about its own state. Only what is on the disk is
//! known to be right then, and the group begins again from there when the process is started again.

use std::fmt;
use std::sync::Arc;

use crate::error::RaftError;

type Act = dyn Fn(&RaftError) + Send + Sync;

/// Called with the error after which the log, or a group, takes nothing more: once for the log, on the thread that
/// writes it, and once for each group.
///
/// A disk without space is no such error: the log waits for space and goes on. Neither is a machine that fails: its
/// replica stops and says why.
#[derive(Clone)]
pub struct OnFailure(Arc<Act>);

impl OnFailure {
    /// Calls `act`, which must not block for long: everybody who waits for the log waits for it.
    pub fn new(act: impl Fn(&RaftError) + Send + Sync + 'static) -> Self {
        Self(Arc::new(act))
    }

    pub(crate) fn call(&self, error: &RaftError) {
        (self.0)(error);
    }
}

impl Default for OnFailure {
    /// Does nothing: every request is answered with the error from then on.
    fn default() -> Self {
        Self::new(|_| {})
    }
}

impl fmt::Debug for OnFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnFailure")
    }
}
