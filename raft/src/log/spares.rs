//! Files that stand ready to become segments, and the thread that prepares them.
//!
//! A segment is written whole before the log needs it, so that a full disk is found while the current segment still
//! has room for everything that was already accepted, and so that syncing a record never has to sync metadata.
//!
//! Invariants:
//! - `disk_full` is set from the first failed attempt until a file stands ready again;
//! - any other failure is final.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use partita_proto::blocking;

use super::disk::Disk;
use super::recovery::{spare_name, unfinished_name};
use crate::error::RaftError;

/// Files kept ready. One is enough to hide the preparation; a second one saves the writing when segments are
/// reclaimed in bunches.
const READY_MAX: usize = 2;
/// A full disk is tried again after this long.
pub(crate) const RETRY_AFTER: Duration = Duration::from_millis(200);

#[derive(Default)]
struct State {
    ready: Vec<String>,
    disk_full: Option<String>,
    failed: Option<RaftError>,
    /// Nobody waits for space any more.
    closing: bool,
    stop: bool,
}

/// The files that stand ready.
pub(crate) struct Spares {
    disk: Arc<dyn Disk>,
    segment_bytes: u32,
    state: Mutex<State>,
    changed: Condvar,
}

impl Spares {
    pub(crate) fn new(disk: Arc<dyn Disk>, segment_bytes: u32, ready: Vec<String>) -> Self {
        let state = State { ready, ..State::default() };
        Self { disk, segment_bytes, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Says what is wrong while no file can be prepared for lack of space.
    pub(crate) fn disk_full(&self) -> Option<String> {
        self.state.lock().disk_full.clone()
    }

    /// Whether [`Spares::take`] would return at once.
    pub(crate) fn is_ready(&self) -> bool {
        !self.state.lock().ready.is_empty()
    }

    /// Gives a file the name `to`; waits until one is ready. The name is not synced yet.
    pub(crate) fn take(&self, to: &str) -> Result<(), RaftError> {
        let mut state = self.state.lock();
        loop {
            // Renamed under the lock, so that nobody gives the old name to another file in between.
            if let Some(name) = state.ready.pop() {
                self.changed.notify_all();
                return self.disk.rename(&name, to).map_err(|error| {
                    RaftError::io(format!("rename {}", self.disk.describe(&name)), error)
                });
            }
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            if let Some(why) = &state.disk_full
                && (state.closing || blocking::is_in_place())
            {
                return Err(RaftError::DiskFull(why.clone()));
            }
            if blocking::is_in_place() {
                // Nobody else does.
                let created = self.create();
                self.note(&mut state, created);
                continue;
            }
            self.changed.wait(&mut state);
        }
    }

    /// Gives a file that is no longer needed.
    pub(crate) fn give(&self, name: &str, number: u32) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.ready.len() >= READY_MAX {
            return self.disk.remove(name);
        }
        let spare = spare_name(number);
        self.disk.rename(name, &spare)?;
        state.ready.push(spare);
        state.disk_full = None;
        self.changed.notify_all();
        Ok(())
    }

    /// Lets takers go with an error, instead of waiting, if there is no space.
    pub(crate) fn close(&self) {
        self.state.lock().closing = true;
        self.changed.notify_all();
    }

    /// Ends [`Spares::prepare`].
    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_all();
    }

    /// Keeps one file ready until stopped. Runs on a thread of its own.
    pub(crate) fn prepare(&self) {
        let mut state = self.state.lock();
        loop {
            if state.stop || state.failed.is_some() {
                return;
            }
            if !state.ready.is_empty() {
                self.changed.wait(&mut state);
                continue;
            }
            drop(state);
            let created = self.create();
            state = self.state.lock();
            self.note(&mut state, created);
            if state.disk_full.is_some() && !state.stop {
                self.changed.wait_for(&mut state, RETRY_AFTER);
            }
        }
    }

    /// Sees to it in the caller's thread that a file is ready. False while there is no space for it and somebody may
    /// still wait.
    pub(crate) fn prepare_now(&self) -> bool {
        let mut state = self.state.lock();
        if state.ready.is_empty() && state.failed.is_none() {
            let created = self.create();
            self.note(&mut state, created);
        }
        state.disk_full.is_none() || state.closing
    }

    fn create(&self) -> io::Result<()> {
        self.disk.create(&unfinished_name(), u64::from(self.segment_bytes)).map(drop)
    }

    /// Takes note of how the creation of a file went.
    fn note(&self, state: &mut State, created: io::Result<()>) {
        match created.and_then(|()| self.name_finished(&state.ready)) {
            Ok(name) => {
                state.ready.push(name);
                if state.disk_full.take().is_some() {
                    tracing::info!("the log has space again");
                }
            }
            Err(error) if is_full(&error) => {
                let why = format!(
                    "no space for the next {} bytes of {}: {error}",
                    self.segment_bytes,
                    self.disk.describe("")
                );
                if state.disk_full.is_none() {
                    tracing::error!(%why, "the log accepts nothing until there is space again");
                }
                state.disk_full = Some(why);
            }
            Err(error) => {
                state.failed = Some(RaftError::io("prepare a segment of the log", error));
            }
        }
        self.changed.notify_all();
    }

    /// Prepares a file in the caller's thread, under the name `to`.
    pub(crate) fn prepare_as(&self, to: &str) -> Result<(), RaftError> {
        let unfinished = unfinished_name();
        let result = self
            .disk
            .create(&unfinished, u64::from(self.segment_bytes))
            .and_then(|_| self.disk.rename(&unfinished, to));
        result.map_err(|error| {
            let what =
                format!("prepare the {} bytes of {}", self.segment_bytes, self.disk.describe(to));
            if is_full(&error) {
                RaftError::DiskFull(format!("{what}: {error}"))
            } else {
                RaftError::io(what, error)
            }
        })
    }

    /// Gives the file that was just prepared a name that no other has. Numbers of segments start low, so these start
    /// high.
    fn name_finished(&self, ready: &[String]) -> io::Result<String> {
        let mut names = (0..=u32::MAX).rev().map(spare_name);
        let name = names.find(|name| !ready.contains(name)).ok_or(io::ErrorKind::AlreadyExists)?;
        self.disk.rename(&unfinished_name(), &name)?;
        Ok(name)
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
