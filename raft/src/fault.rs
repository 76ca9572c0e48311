//! What a process is told when its log has failed.
//!
//! After a write or a sync that failed nobody knows what is on the disk, and the log takes nothing more. A process that
//! goes on would look healthy and serve nothing, and where others could lead they would wait for it. So whoever opens
//! the log says how the process ends: at once, for a supervisor to start it again over what is really on the disk.

use std::fmt;
use std::sync::Arc;

use crate::error::RaftError;

type Act = dyn Fn(&RaftError) + Send + Sync;

/// Called once, on the thread that writes the log, with the error after which the log takes nothing more.
///
/// A disk without space is no such error: the log waits for space and goes on.
#[derive(Clone)]
pub struct OnLogFailure(Arc<Act>);

impl OnLogFailure {
    /// Calls `act`, which must not block for long: everybody who waits for the log waits for it.
    pub fn new(act: impl Fn(&RaftError) + Send + Sync + 'static) -> Self {
        Self(Arc::new(act))
    }

    pub(crate) fn call(&self, error: &RaftError) {
        (self.0)(error);
    }
}

impl Default for OnLogFailure {
    /// Does nothing: every request is answered with the error from then on.
    fn default() -> Self {
        Self::new(|_| {})
    }
}

impl fmt::Debug for OnLogFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnLogFailure")
    }
}
