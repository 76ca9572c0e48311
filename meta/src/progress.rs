//! Failures of the work on tables, for callers that wait for a change. Kept in memory only; after a restart the
//! work continues, and no caller waits for it.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use partita_proto::error::Error;
use partita_proto::id::TableId;
use tokio::sync::watch;

use crate::catalog::Step;

/// Maximum failures that are kept. A waiting caller reads its own within moments; the bound is for the case that
/// thousands fail at once.
const FAILURES_MAX: usize = 1024;

/// The work on one table at one step.
pub(crate) type Job = (TableId, Step);

/// The latest failure of each job.
#[derive(Debug)]
pub(crate) struct Progress {
    failures: Mutex<BTreeMap<(Step, TableId), Error>>,
    changed: watch::Sender<()>,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self { failures: Mutex::default(), changed: watch::Sender::new(()) }
    }

    /// Changes with every failure.
    pub(crate) fn watch(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Records a failed attempt; the job will be retried or given up.
    pub(crate) fn failed(&self, (table, step): Job, error: Error) {
        let mut failures = self.failures.lock();
        failures.insert((step, table), error);
        while failures.len() > FAILURES_MAX {
            failures.pop_first();
        }
        drop(failures);
        self.changed.send_replace(());
    }

    /// Forgets the failure of a job that succeeded.
    pub(crate) fn succeeded(&self, (table, step): Job) {
        self.failures.lock().remove(&(step, table));
    }

    /// Latest failure of a job.
    pub(crate) fn failure(&self, (table, step): Job) -> Option<Error> {
        self.failures.lock().get(&(step, table)).cloned()
    }
}
