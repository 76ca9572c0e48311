//! A disk that can lose power, for tests and simulations.
//!
//! It keeps written and synced content apart. After a power cut, [`SimulatedDisk::survivor`] gives a new disk with
//! everything that was synced and, in blocks of 512 bytes, a random part of what was only written.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::disk::{Disk, DiskFile};

const BLOCK: usize = 512;

#[derive(Clone, Default)]
struct Content {
    synced: Vec<u8>,
    written: Vec<u8>,
    /// Blocks written since the last sync.
    dirty: BTreeSet<usize>,
}

#[derive(Default)]
struct State {
    files: BTreeMap<u64, Content>,
    names: BTreeMap<String, u64>,
    synced_names: BTreeMap<String, u64>,
    next_file: u64,
    /// Maximum bytes of all files together.
    space: Option<u64>,
    off: bool,
    /// Operations until the power cut.
    operations_left: Option<u64>,
    /// True if syncs fail.
    broken: bool,
    /// Number of syncs that failed because of `broken`.
    syncs_failed: u64,
    /// True if no file can be opened or created.
    out_of_files: bool,
    /// Number of opens and creations that failed because of `out_of_files`.
    refused: u64,
    /// True if writes into existing files fail for lack of space, as on file systems that allocate on write.
    unwritable: bool,
    syncs: u64,
    pause: Duration,
}

impl State {
    fn operate(&mut self) -> io::Result<()> {
        if let Some(remaining) = &mut self.operations_left {
            if *remaining == 0 {
                self.off = true;
            } else {
                *remaining -= 1;
            }
        }
        if self.off { Err(io::Error::other("the power is off")) } else { Ok(()) }
    }

    fn check_files(&mut self) -> io::Result<()> {
        if self.out_of_files {
            self.refused += 1;
            // EMFILE.
            return Err(io::Error::from_raw_os_error(24));
        }
        Ok(())
    }

    fn used(&self) -> u64 {
        self.names.values().map(|file| self.files[file].written.len() as u64).sum()
    }
}

/// A disk in memory. Clones share its content.
#[derive(Clone, Default)]
pub struct SimulatedDisk(Arc<Mutex<State>>);

impl SimulatedDisk {
    /// Cuts the power: every later operation fails.
    pub fn cut(&self) {
        self.0.lock().off = true;
    }

    /// Cuts the power after that many operations.
    pub fn cut_after(&self, operations: u64) {
        self.0.lock().operations_left = Some(operations);
    }

    /// Makes all later syncs fail.
    pub fn break_syncs(&self) {
        self.0.lock().broken = true;
    }

    /// Number of syncs that failed because of [`SimulatedDisk::break_syncs`].
    #[must_use]
    pub fn syncs_failed(&self) -> u64 {
        self.0.lock().syncs_failed
    }

    /// Makes opening and creating files fail, or succeed again.
    pub fn set_out_of_files(&self, out_of_files: bool) {
        self.0.lock().out_of_files = out_of_files;
    }

    /// Number of opens and creations that failed because of [`SimulatedDisk::set_out_of_files`].
    #[must_use]
    pub fn files_refused(&self) -> u64 {
        self.0.lock().refused
    }

    /// Makes all writes fail for lack of space, also those into existing files, or succeed again.
    pub fn set_unwritable(&self, unwritable: bool) {
        self.0.lock().unwritable = unwritable;
    }

    /// Limits the space, or lifts the limit.
    pub fn set_space(&self, bytes: Option<u64>) {
        self.0.lock().space = bytes;
    }

    /// Sets the delay of each write, where time is simulated.
    pub fn set_pause(&self, pause: Duration) {
        self.0.lock().pause = pause;
    }

    /// Bytes of all files together.
    pub fn used(&self) -> u64 {
        self.0.lock().used()
    }

    /// Number of syncs so far.
    pub fn syncs(&self) -> u64 {
        self.0.lock().syncs
    }

    /// A disk with the content that survives a power cut; `keep` decides for each unsynced block, and for the unsynced
    /// names as a whole, whether they survive.
    #[must_use]
    pub fn survivor(&self, mut keep: impl FnMut() -> bool) -> Self {
        let state = self.0.lock();
        let names = if keep() { &state.names } else { &state.synced_names };
        let mut survivor = State { next_file: state.next_file, ..State::default() };
        for (name, id) in names {
            let content = &state.files[id];
            let mut bytes = content.synced.clone();
            bytes.resize(content.written.len(), 0);
            for block in &content.dirty {
                if keep() {
                    let range = block * BLOCK..((block + 1) * BLOCK).min(bytes.len());
                    bytes[range.clone()].copy_from_slice(&content.written[range]);
                }
            }
            let content = Content { synced: bytes.clone(), written: bytes, dirty: BTreeSet::new() };
            survivor.files.insert(*id, content);
            survivor.names.insert(name.clone(), *id);
        }
        survivor.synced_names = survivor.names.clone();
        Self(Arc::new(Mutex::new(survivor)))
    }

    /// A copy of the disk as a crashed process would leave it: everything written is there.
    #[must_use]
    pub fn copy(&self) -> Self {
        self.survivor(|| true)
    }

    /// The bytes of a file.
    pub fn content(&self, name: &str) -> Vec<u8> {
        let state = self.0.lock();
        state.files[&state.names[name]].written.clone()
    }

    /// Replaces the bytes of a file, behind the log's back.
    pub fn overwrite(&self, name: &str, bytes: Vec<u8>) {
        let mut state = self.0.lock();
        let id = state.names[name];
        state
            .files
            .insert(id, Content { synced: bytes.clone(), written: bytes, dirty: BTreeSet::new() });
    }

    /// Names of the segments, oldest first.
    pub fn segments(&self) -> Vec<String> {
        let state = self.0.lock();
        state.names.keys().filter(|name| name.starts_with('0')).cloned().collect()
    }

    /// Flips one bit of a segment, and in two of three cases all bits of the next byte; half of the time near the end
    /// of the log. `draw` returns a random number below its argument. Returns the segment's name and the offset.
    pub fn rot(&self, mut draw: impl FnMut(u64) -> u64) -> Option<(String, usize)> {
        let segments = self.segments();
        let near_end = draw(2) == 0;
        let chosen = match near_end {
            true => segments.len().checked_sub(1)?,
            false => usize::try_from(draw(segments.len() as u64)).ok()?,
        };
        let name = segments.get(chosen)?;
        let mut content = self.content(name);
        let used = content.iter().rposition(|byte| *byte != 0)?;
        let range = if near_end { used.min(1024) } else { used };
        let offset = used - usize::try_from(draw(range as u64 + 1)).ok()?;
        content[offset] ^= 1 << draw(8);
        if draw(3) != 0 {
            let second = content.get_mut(offset + 1)?;
            *second = !*second;
        }
        self.overwrite(name, content);
        Some((name.clone(), offset))
    }

    /// Names of all files, sorted.
    pub fn names_of_all(&self) -> Vec<String> {
        self.0.lock().names.keys().cloned().collect()
    }

    /// Removes a file, behind the log's back.
    pub fn lose(&self, name: &str) {
        self.0.lock().names.remove(name);
    }
}

impl Disk for SimulatedDisk {
    fn names(&self) -> io::Result<Vec<String>> {
        let mut state = self.0.lock();
        state.operate()?;
        Ok(state.names.keys().cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.0.lock();
        state.operate()?;
        state.check_files()?;
        let id = *state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(SimulatedFile { disk: self.clone(), id }))
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.0.lock();
        state.operate()?;
        state.check_files()?;
        if state.space.is_some_and(|space| state.used() + bytes > space) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let id = state.next_file;
        state.next_file += 1;
        let zeros = vec![0; usize::try_from(bytes).map_err(io::Error::other)?];
        state
            .files
            .insert(id, Content { synced: zeros.clone(), written: zeros, dirty: BTreeSet::new() });
        state.names.insert(name.to_owned(), id);
        Ok(Arc::new(SimulatedFile { disk: self.clone(), id }))
    }

    fn rename(&self, name: &str, new_name: &str) -> io::Result<()> {
        let mut state = self.0.lock();
        state.operate()?;
        let id = state.names.remove(name).ok_or(io::ErrorKind::NotFound)?;
        state.names.insert(new_name.to_owned(), id);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.0.lock();
        state.operate()?;
        state.names.remove(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut state = self.0.lock();
        state.operate()?;
        state.synced_names = state.names.clone();
        Ok(())
    }

    fn describe(&self, name: &str) -> String {
        format!("/simulated/{name}")
    }

    fn release(&self) {}

    fn pause(&self) -> Duration {
        self.0.lock().pause
    }
}

struct SimulatedFile {
    disk: SimulatedDisk,
    id: u64,
}

impl DiskFile for SimulatedFile {
    fn bytes(&self) -> io::Result<u64> {
        let mut state = self.disk.0.lock();
        state.operate()?;
        Ok(state.files[&self.id].written.len() as u64)
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let mut state = self.disk.0.lock();
        state.operate()?;
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        let content = &state.files[&self.id].written;
        let bytes =
            content.get(offset..offset + buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }

    fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.disk.0.lock();
        let powered = state.operate();
        if state.unwritable {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        let content = state.files.get_mut(&self.id).ok_or(io::ErrorKind::NotFound)?;
        // A write that is cut short by the power failure may still reach the platters in part.
        content.written[offset..offset + data.len()].copy_from_slice(data);
        content.dirty.extend(offset / BLOCK..(offset + data.len()).div_ceil(BLOCK));
        powered
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.0.lock();
        state.operate()?;
        if state.broken {
            state.syncs_failed += 1;
            return Err(io::Error::other("the disk is broken"));
        }
        state.syncs += 1;
        let content = state.files.get_mut(&self.id).ok_or(io::ErrorKind::NotFound)?;
        for block in std::mem::take(&mut content.dirty) {
            let range = block * BLOCK..((block + 1) * BLOCK).min(content.written.len());
            content.synced[range.clone()].copy_from_slice(&content.written[range]);
        }
        Ok(())
    }
}
