//! Files ready to become segments, and the thread that prepares them.
//!
//! A segment is written whole before the log needs it, so that a full disk is found while the current segment still has
//! room for everything that was already accepted, and so that syncing a record never has to sync metadata.
//!
//! A ready file is kept open, so that a new segment does not depend on opening a file when the process has reached its
//! limit.
//!
//! Invariants:
//! - a [`Wait`] lasts from the first attempt that failed for lack of space or of open files until one succeeds;
//! - any other failure is final.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use partita_proto::blocking;

use super::disk::{Disk, DiskFile};
use super::mark::Marker;
use super::recovery::{spare_name, unfinished_name};
use crate::error::RaftError;

/// Files kept ready. One is enough to hide the preparation; a second one saves the writing when segments are
/// reclaimed in bunches.
const READY_MAX: usize = 2;
/// Delay before the next attempt on a full disk.
pub(crate) const RETRY_AFTER: Duration = Duration::from_millis(200);

/// Interval between syncs of the mark while it changes.
const MARK_SYNC_INTERVAL: Duration = Duration::from_secs(1);
/// Errors of the operating system for too many open files: of the system (ENFILE) and of the process (EMFILE).
const TOO_MANY_FILES: [i32; 2] = [23, 24];

/// A file that can become a segment.
pub(crate) struct Spare {
    pub(crate) name: String,
    pub(crate) file: Arc<dyn DiskFile>,
}

/// Reason why the log accepts no new commands for now. Nothing is lost or unknown meanwhile.
#[derive(Clone, Debug)]
pub(crate) struct Wait {
    /// True if the disk is full; false if the process or the system may open no more files.
    pub(crate) full: bool,
    why: String,
}

impl Wait {
    /// The error for callers that would write.
    pub(crate) fn error(self) -> RaftError {
        match self.full {
            true => RaftError::DiskFull(self.why),
            false => RaftError::Unavailable(self.why),
        }
    }
}

#[derive(Default)]
struct State {
    ready: Vec<Spare>,
    /// Reason why the next file cannot be prepared.
    wait: Option<Wait>,
    /// Reason why the current segment cannot be written.
    unwritten: Option<Wait>,
    failed: Option<RaftError>,
    /// True once the log is being closed: calls that wait for space fail.
    closing: bool,
    stop: bool,
}

/// The ready files and their state.
pub(crate) struct Spares {
    disk: Arc<dyn Disk>,
    segment_bytes: u32,
    state: Mutex<State>,
    changed: Condvar,
}

impl Spares {
    pub(crate) fn new(disk: Arc<dyn Disk>, segment_bytes: u32, ready: Vec<Spare>) -> Self {
        let state = State { ready, ..State::default() };
        Self { disk, segment_bytes, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Reason why no file can be prepared, or nothing be written, for lack of space or open files; `None` if all is
    /// well.
    pub(crate) fn wait(&self) -> Option<Wait> {
        let state = self.state.lock();
        state.unwritten.as_ref().or(state.wait.as_ref()).cloned()
    }

    /// Waits before a write that found no space is repeated.
    ///
    /// # Errors
    /// [`RaftError::DiskFull`] once the log is being closed.
    pub(crate) fn wait_to_write(&self, why: String) -> Result<(), RaftError> {
        let mut state = self.state.lock();
        let wait = Wait { full: true, why };
        if state.closing || blocking::is_in_place() {
            return Err(wait.error());
        }
        if state.unwritten.is_none() {
            tracing::error!(why = %wait.why, "the log accepts nothing until there is space again");
        }
        state.unwritten = Some(wait);
        self.changed.wait_for(&mut state, RETRY_AFTER);
        Ok(())
    }

    /// Records that a write succeeded.
    pub(crate) fn note_written(&self) {
        self.state.lock().unwritten = None;
    }

    /// True if [`Spares::take`] would return at once.
    pub(crate) fn is_ready(&self) -> bool {
        !self.state.lock().ready.is_empty()
    }

    /// Renames a ready file to `new_name`; waits until there is one. The name is not synced yet.
    pub(crate) fn take(&self, new_name: &str) -> Result<Arc<dyn DiskFile>, RaftError> {
        let mut state = self.state.lock();
        loop {
            // Renamed under the lock, so that no other file gets the old name in between.
            if let Some(Spare { name, file }) = state.ready.pop() {
                self.changed.notify_all();
                return self.disk.rename(&name, new_name).map(|()| file).map_err(|error| {
                    RaftError::io(format!("rename {}", self.disk.describe(&name)), error)
                });
            }
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            if let Some(wait) = &state.wait
                && (state.closing || blocking::is_in_place())
            {
                // Not final: the next process to open the log may find the space.
                return Err(RaftError::DiskFull(wait.why.clone()));
            }
            if blocking::is_in_place() {
                // There is no preparing thread.
                let created = self.create();
                self.note(&mut state, created);
                continue;
            }
            self.changed.wait(&mut state);
        }
    }

    /// Takes back a file that is no longer a segment.
    pub(crate) fn give(&self, name: &str, number: u32, file: Arc<dyn DiskFile>) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.ready.len() >= READY_MAX {
            return self.disk.remove(name);
        }
        let spare = spare_name(number);
        self.disk.rename(name, &spare)?;
        state.ready.push(Spare { name: spare, file });
        state.wait = None;
        self.changed.notify_all();
        Ok(())
    }

    /// Makes calls of [`Spares::take`] fail when there is no space, instead of waiting.
    pub(crate) fn close(&self) {
        self.state.lock().closing = true;
        self.changed.notify_all();
    }

    /// Ends [`Spares::prepare`].
    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_all();
    }

    /// Keeps one file ready until stopped, and syncs the mark so that it does not fall far behind the log. Runs on a
    /// thread of its own.
    pub(crate) fn prepare(&self, marker: &Marker) {
        let mut state = self.state.lock();
        loop {
            if state.stop || state.failed.is_some() {
                return;
            }
            if !state.ready.is_empty() {
                let waited = self.changed.wait_for(&mut state, MARK_SYNC_INTERVAL);
                if waited.timed_out() {
                    drop(state);
                    marker.sync();
                    state = self.state.lock();
                }
                continue;
            }
            drop(state);
            let created = self.create();
            state = self.state.lock();
            self.note(&mut state, created);
            if state.wait.is_some() && !state.stop {
                self.changed.wait_for(&mut state, RETRY_AFTER);
            }
        }
    }

    /// Prepares a file in the caller's thread, unless one is ready. False while there is no space for it and the log is
    /// not being closed.
    pub(crate) fn prepare_now(&self) -> bool {
        let mut state = self.state.lock();
        if state.ready.is_empty() && state.failed.is_none() {
            let created = self.create();
            self.note(&mut state, created);
        }
        state.wait.is_none() || state.closing
    }

    fn create(&self) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.create(&unfinished_name(), u64::from(self.segment_bytes))
    }

    /// Records the result of creating a file.
    fn note(&self, state: &mut State, created: io::Result<Arc<dyn DiskFile>>) {
        let spare =
            created.and_then(|file| Ok(Spare { name: self.name_finished(&state.ready)?, file }));
        match spare {
            Ok(spare) => {
                state.ready.push(spare);
                if state.wait.take().is_some() {
                    tracing::info!("the log has its next file");
                }
            }
            Err(error) if is_full(&error) || is_out_of_files(&error) => {
                let full = is_full(&error);
                let obstacle = if full { "no space" } else { "no file can be opened" };
                let why = format!(
                    "{obstacle} for the next {} bytes of {}: {error}",
                    self.segment_bytes,
                    self.disk.describe("")
                );
                if state.wait.is_none() {
                    tracing::error!(%why, "the log accepts nothing until it has its next file");
                }
                state.wait = Some(Wait { full, why });
            }
            Err(error) => {
                state.failed = Some(RaftError::io("prepare a segment of the log", error));
            }
        }
        self.changed.notify_all();
    }

    /// Creates a file in the caller's thread, under this name.
    pub(crate) fn prepare_as(&self, name: &str) -> Result<Arc<dyn DiskFile>, RaftError> {
        let unfinished = unfinished_name();
        let result = self
            .disk
            .create(&unfinished, u64::from(self.segment_bytes))
            .and_then(|file| self.disk.rename(&unfinished, name).map(|()| file));
        result.map_err(|error| {
            let action =
                format!("prepare the {} bytes of {}", self.segment_bytes, self.disk.describe(name));
            if is_full(&error) {
                RaftError::DiskFull(format!("{action}: {error}"))
            } else {
                RaftError::io(action, error)
            }
        })
    }

    /// Gives the file that was just prepared a unique name. Segment numbers start low, so these start high.
    fn name_finished(&self, ready: &[Spare]) -> io::Result<String> {
        let mut names = (0..=u32::MAX).rev().map(spare_name);
        let is_free = |name: &String| ready.iter().all(|spare| spare.name != *name);
        let name = names.find(is_free).ok_or(io::ErrorKind::AlreadyExists)?;
        self.disk.rename(&unfinished_name(), &name)?;
        Ok(name)
    }
}

/// True if the error says that the disk or the quota is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// True if the error says that the process or the system may open no more files.
pub(crate) fn is_out_of_files(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|code| TOO_MANY_FILES.contains(&code))
}
