//! Purges entries of the log that a machine's files have made superfluous.
//!
//! ```text
//!   purged        flushed       last
//!     |  may go      |  needed    |
//! ----+--------------+------------+
//!                    ^ a group of several keeps what may go as long as there is room: another replica that lags
//!                      behind, or was away, needs it, or else all of the files; a machine may keep more for itself
//! ```
//!
//! Invariant: a group's last entry is never purged, nor an entry that its machine has not made durable or may need
//! again.

use std::time::Duration;

use openraft::async_runtime::WatchReceiver;

use crate::error::RaftError;
use crate::group::Group;

/// Maximum time that a flush waits for its turn in the group.
const FLUSH_WAIT: Duration = Duration::from_secs(10);

impl Group {
    /// Purges the log up to the machine's durable mark. Call it when that mark has moved. A group of one member purges
    /// at once; a larger one keeps what it has room for.
    ///
    /// # Errors
    /// [`RaftError::Unavailable`] if the group did not get to it in time; [`RaftError::Stopped`].
    pub async fn flushed(&self) -> Result<(), RaftError> {
        let Some(mark) = self.machine().durable_mark() else { return Ok(()) };
        let index = mark.index();
        // openraft would ignore a second snapshot while one is being made.
        let _flushing = self.flushing().lock().await;
        let covered = self.raft().metrics().borrow_watched().snapshot.as_ref().map(|id| id.index);
        if covered.is_none_or(|covered| covered < index) {
            self.raft().trigger().snapshot().await.map_err(|fatal| self.fatal(&fatal))?;
            self.until("the durable mark is known", |metrics| {
                metrics.snapshot.as_ref().is_some_and(|id| id.index >= index)
            })
            .await?;
        }
        let sole_member = {
            let metrics = self.raft().metrics();
            let metrics = metrics.borrow_watched();
            metrics.membership_config.membership().nodes().count() <= 1
        };
        if sole_member { self.purge_flushed().await } else { Ok(()) }
    }

    /// Purges the log up to the machine's durable mark, except its last entry, even if another replica still needs the
    /// entries: a replica that is added later starts from files instead. Call it when the machine's durable mark has
    /// moved far enough.
    ///
    /// # Errors
    /// As [`Group::flushed`].
    pub async fn give_up_log(&self) -> Result<(), RaftError> {
        self.flushed().await?;
        self.purge_flushed().await
    }

    async fn purge_flushed(&self) -> Result<(), RaftError> {
        if let Some(upto) = self.give_up_flushed().await? {
            self.until("the log is purged", |metrics| {
                metrics.purged.as_ref().is_some_and(|id| id.index >= upto)
            })
            .await?;
        }
        Ok(())
    }

    /// Purges the log before the durable mark; returns the index purged up to, if anything was purged.
    pub(crate) async fn give_up_flushed(&self) -> Result<Option<u64>, RaftError> {
        let (flushed, purged) = {
            let metrics = self.raft().metrics();
            let metrics = metrics.borrow_watched();
            let index = |id: &Option<crate::types::RaftLogId>| id.as_ref().map(|id| id.index);
            (index(&metrics.snapshot), index(&metrics.purged))
        };
        let spare = self.machine().spare_mark().map(|mark| mark.index());
        // With an empty log the leader would send whole snapshots.
        let Some(upto) = flushed.min(spare).and_then(|spare| spare.checked_sub(1)) else {
            return Ok(None);
        };
        if purged >= Some(upto) {
            return Ok(None);
        }
        self.raft().trigger().purge_log(upto).await.map_err(|fatal| self.fatal(&fatal))?;
        Ok(Some(upto))
    }

    async fn until(
        &self,
        description: &str,
        reached: impl Fn(&openraft::RaftMetrics<crate::types::Types>) -> bool + Send + Sync,
    ) -> Result<(), RaftError> {
        let wait = self.raft().wait(Some(FLUSH_WAIT));
        let waited =
            wait.metrics(|metrics| metrics.running_state.is_err() || reached(metrics), description);
        let metrics = waited
            .await
            .map_err(|error| RaftError::Unavailable(format!("group {}: {error}", self.id())))?;
        metrics.running_state.map_err(|fatal| self.fatal(&fatal))
    }
}
