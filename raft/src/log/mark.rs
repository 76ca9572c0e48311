//! Records how far the log was synced, in a small file beside the segments.
//!
//! ```text
//! SYNCED   slot 0: sector 0    slot 1: sector 1      written in turn, so that one is whole at any time
//!          0 crc32c u32 of what follows   4 "psm1"   8 sequence u64   16 segment u32   20 offset u32
//! ```
//!
//! A bad record at the end of the log was either never written whole, or was damaged later. The mark tells the two
//! apart: everything before it had been synced, and may have been acknowledged.
//!
//! Invariants:
//! - the mark is written after the sync that it records, and before any answer: it never claims too much;
//! - it is synced now and then only, so a power cut may leave an older one, which covers less. A process that is killed
//!   leaves the newest;
//! - without disk space or open files for its file the log goes on with the older mark, and each sync tries again. Any
//!   other failure is final, as that of a write of the log is.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use super::disk::{Disk, DiskFile};
use super::spares::{is_full, is_out_of_files};
use crate::error::RaftError;

/// Name of the file.
pub(crate) const MARK_FILE: &str = "SYNCED";
const UNFINISHED: &str = "SYNCED.new";
const MAGIC: [u8; 4] = *b"psm1";
/// A slot has the size that a disk writes atomically.
const SLOT_BYTES: usize = 512;
const SLOTS: u64 = 2;
const USED_BYTES: usize = 24;

/// A place in the log before which everything had been synced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Synced {
    pub(crate) segment: u32,
    pub(crate) offset: u32,
}

impl Synced {
    /// Covers every place: where the log ends is not known.
    pub(crate) const EVERYTHING: Self = Self { segment: u32::MAX, offset: u32::MAX };

    /// True if the place lies before the mark, so that its content had been synced.
    pub(crate) fn covers(self, segment: u32, offset: usize) -> bool {
        segment < self.segment || (segment == self.segment && offset < self.offset as usize)
    }
}

/// Reads the mark; `None` if the file does not exist. One slot is whole at any time, so a file without a whole slot is
/// damaged, and everything may have been synced ([`Synced::EVERYTHING`]): a bad record then counts as damage, not as an
/// incomplete write.
pub(crate) fn read(disk: &dyn Disk, names: &[String]) -> Result<Option<Synced>, RaftError> {
    if names.iter().all(|name| name != MARK_FILE) {
        return Ok(None);
    }
    let load = || -> io::Result<Vec<u8>> {
        let file = disk.open(MARK_FILE)?;
        let bytes = file.bytes()?.min(SLOTS * SLOT_BYTES as u64);
        let mut data = vec![0; usize::try_from(bytes).map_err(io::Error::other)?];
        file.read(&mut data, 0)?;
        Ok(data)
    };
    let data = load()
        .map_err(|error| RaftError::io(format!("read {}", disk.describe(MARK_FILE)), error))?;
    let newest = data.chunks_exact(SLOT_BYTES).filter_map(decode).max();
    Ok(Some(newest.map_or(Synced::EVERYTHING, |(_, synced)| synced)))
}

fn encode(sequence: u64, synced: Synced) -> [u8; USED_BYTES] {
    let mut slot = [0; USED_BYTES];
    slot[4..8].copy_from_slice(&MAGIC);
    slot[8..16].copy_from_slice(&sequence.to_le_bytes());
    slot[16..20].copy_from_slice(&synced.segment.to_le_bytes());
    slot[20..24].copy_from_slice(&synced.offset.to_le_bytes());
    let crc = crc32c::crc32c(&slot[4..]);
    slot[..4].copy_from_slice(&crc.to_le_bytes());
    slot
}

fn decode(slot: &[u8]) -> Option<(u64, Synced)> {
    let number =
        |offset: usize| Some(u32::from_le_bytes(slot.get(offset..offset + 4)?.try_into().ok()?));
    let whole = slot.get(4..8)? == MAGIC && number(0)? == crc32c::crc32c(slot.get(4..USED_BYTES)?);
    let sequence = u64::from(number(8)?) | u64::from(number(12)?) << 32;
    whole.then_some((sequence, Synced { segment: number(16)?, offset: number(20)? }))
}

/// The mark of an open log.
pub(crate) struct Marker {
    disk: Arc<dyn Disk>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// `None` if there was no disk space for the file, or no file could be opened.
    file: Option<Arc<dyn DiskFile>>,
    sequence: u64,
    unsynced: bool,
    /// True if a warning says why there is no file.
    is_reported: bool,
}

impl Marker {
    pub(crate) fn new(disk: Arc<dyn Disk>) -> Self {
        Self { disk, state: Mutex::default() }
    }

    /// Creates the file anew, with this mark. Without disk space or open files the older mark stays until the next call.
    pub(crate) fn begin(&self, synced: Synced) -> Result<(), RaftError> {
        let mut state = self.state.lock();
        if state.file.is_some() {
            return Ok(());
        }
        let make = || -> io::Result<Arc<dyn DiskFile>> {
            let file = self.disk.create(UNFINISHED, SLOTS * SLOT_BYTES as u64)?;
            file.write(&encode(1, synced), SLOT_BYTES as u64)?;
            file.sync()?;
            self.disk.rename(UNFINISHED, MARK_FILE)?;
            self.disk.sync_names()?;
            Ok(file)
        };
        match make() {
            Ok(file) => *state = State { file: Some(file), sequence: 1, ..State::default() },
            Err(error) if is_full(&error) || is_out_of_files(&error) => {
                if !state.is_reported {
                    tracing::warn!(%error, "cannot make the mark of the synced position yet");
                }
                state.is_reported = true;
            }
            Err(error) => return Err(self.failed("make", error)),
        }
        Ok(())
    }

    /// Notes that everything before that place is synced.
    pub(crate) fn note(&self, synced: Synced) -> Result<(), RaftError> {
        let mut state = self.state.lock();
        let Some(file) = &state.file else { return Ok(()) };
        let sequence = state.sequence + 1;
        let slot = (sequence % SLOTS) * SLOT_BYTES as u64;
        file.write(&encode(sequence, synced), slot).map_err(|error| self.failed("write", error))?;
        state.sequence = sequence;
        state.unsynced = true;
        Ok(())
    }

    /// Makes the mark durable, if it is not. Only a power cut can lose it, so an error here does not fail the log.
    pub(crate) fn sync(&self) {
        let file = {
            let mut state = self.state.lock();
            if !std::mem::take(&mut state.unsynced) {
                return;
            }
            state.file.clone()
        };
        if let Some(Err(error)) = file.map(|file| file.sync()) {
            tracing::error!(%error, "cannot sync the mark of the synced position");
        }
    }

    fn failed(&self, action: &str, error: io::Error) -> RaftError {
        RaftError::io(format!("{action} {}", self.disk.describe(MARK_FILE)), error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::simulated::SimulatedDisk;

    fn read_back(disk: &SimulatedDisk) -> Option<Synced> {
        read(disk, &disk.names().unwrap()).unwrap()
    }

    #[test]
    fn a_mark_never_changes_its_bytes() {
        let hex: String = encode(0x0102_0304_0506_0708, Synced { segment: 3, offset: 4096 })
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(hex, "8755c41970736d3108070605040302010300000000100000");
    }

    #[test]
    fn a_mark_comes_back_also_when_its_newest_slot_is_bad() {
        let disk = SimulatedDisk::default();
        assert_eq!(read_back(&disk), None);
        let marker = Marker::new(Arc::new(disk.clone()));
        let place = |offset| Synced { segment: 3, offset };
        marker.begin(place(1)).unwrap();
        assert_eq!(read_back(&disk), Some(place(1)));
        for offset in 2..10 {
            marker.note(place(offset)).unwrap();
            assert_eq!(read_back(&disk), Some(place(offset)));
        }
        let whole = disk.content(MARK_FILE);
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            disk.overwrite(MARK_FILE, bytes);
            let found = read_back(&disk);
            assert!(found == Some(place(9)) || found == Some(place(8)), "bit {bit}: {found:?}");
        }
    }

    #[test]
    fn a_mark_waits_for_space_and_for_files_to_open() {
        let disk = SimulatedDisk::default();
        let marker = Marker::new(Arc::new(disk.clone()));
        let place = |offset| Synced { segment: 3, offset };
        let note = |offset| marker.begin(place(offset)).and_then(|()| marker.note(place(offset)));
        disk.set_space(Some(0));
        note(1).unwrap();
        disk.set_space(None);
        disk.set_out_of_files(true);
        note(2).unwrap();
        assert_eq!(read_back(&disk), None);
        disk.set_out_of_files(false);
        note(3).unwrap();
        assert_eq!(read_back(&disk), Some(place(3)));
        // It is open now.
        disk.set_out_of_files(true);
        note(4).unwrap();
        disk.set_out_of_files(false);
        assert_eq!(read_back(&disk), Some(place(4)));
    }

    #[test]
    fn a_mark_that_cannot_be_synced_is_an_error() {
        let disk = SimulatedDisk::default();
        disk.break_syncs();
        let error = Marker::new(Arc::new(disk)).begin(Synced::default()).unwrap_err();
        assert!(matches!(error, RaftError::Io { .. }) && !error.is_retryable(), "{error}");
    }

    #[test]
    fn a_mark_without_a_whole_slot_covers_everything() {
        let disk = SimulatedDisk::default();
        Marker::new(Arc::new(disk.clone())).begin(Synced { segment: 3, offset: 1 }).unwrap();
        for bytes in [disk.content(MARK_FILE).iter().map(|byte| !byte).collect(), Vec::new()] {
            disk.overwrite(MARK_FILE, bytes);
            assert_eq!(read_back(&disk), Some(Synced::EVERYTHING));
            assert!(Synced::EVERYTHING.covers(7, 1 << 30));
        }
    }

    #[test]
    fn a_mark_covers_what_lies_before_it() {
        let mark = Synced { segment: 3, offset: 100 };
        assert!(mark.covers(2, 5000) && mark.covers(3, 99));
        assert!(!mark.covers(3, 100) && !mark.covers(4, 0));
    }
}
