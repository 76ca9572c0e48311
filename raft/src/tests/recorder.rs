//! A machine that records the commands applied to it, and which of them it has flushed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use parking_lot::Mutex;

use crate::{
    Committed, Incoming, Machine, MachineError, Mark, Offer, ReplicaId, Snapshot, SnapshotFile,
};

/// Rows in one file.
const FILE_ROWS: usize = 16;

#[derive(Clone, Default)]
struct Content {
    rows: Vec<(u64, Bytes)>,
    mark: Option<Mark>,
}

/// Files of another replica that have come in, or parts of them.
#[derive(Default)]
struct Staged {
    from: Option<ReplicaId>,
    files: BTreeMap<String, Vec<u8>>,
}

pub(crate) struct Recorder {
    own: Weak<Self>,
    memory: Mutex<Content>,
    files: Mutex<Content>,
    staged: Mutex<Staged>,
    pub(crate) failing: AtomicBool,
    pub(crate) panicking: AtomicBool,
    pub(crate) calls: AtomicU64,
    /// Number of snapshots that replaced the content.
    pub(crate) installed: AtomicU64,
    /// Received bytes of snapshots.
    pub(crate) taken: AtomicU64,
    /// True if the machine, while empty, cannot start from the beginning of the log.
    pub(crate) begins_with_files: AtomicBool,
    /// Number of calls of `begins_with_files`.
    pub(crate) asked: AtomicU64,
    /// Flushes after every apply, and accepts entries with gaps.
    lenient: bool,
}

impl Recorder {
    fn with(content: &Content, lenient: bool) -> Arc<Self> {
        Arc::new_cyclic(|own| Self {
            own: Weak::clone(own),
            memory: Mutex::new(content.clone()),
            files: Mutex::new(content.clone()),
            staged: Mutex::default(),
            failing: AtomicBool::new(false),
            panicking: AtomicBool::new(false),
            calls: AtomicU64::new(0),
            installed: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            begins_with_files: AtomicBool::new(false),
            asked: AtomicU64::new(0),
            lenient,
        })
    }

    pub(crate) fn new() -> Arc<Self> {
        Self::with(&Content::default(), false)
    }

    /// A machine that begins with what another one has, under a mark of its own.
    pub(crate) fn seeded(from: &Self, mark: Mark) -> Arc<Self> {
        let rows = from.memory.lock().rows.clone();
        Self::with(&Content { rows, mark: Some(mark) }, false)
    }

    /// The mark of the last entry applied.
    pub(crate) fn mark(&self) -> Option<Mark> {
        self.memory.lock().mark.clone()
    }

    /// A machine as openraft's suite needs it: nothing stays in memory only, and entries come with gaps.
    pub(crate) fn lenient() -> Arc<Self> {
        Self::with(&Content::default(), true)
    }

    /// The machine after a restart: commands that were not flushed are gone.
    pub(crate) fn restarted(&self) -> Arc<Self> {
        let content = self.files.lock().clone();
        // Marks go through their bytes, as they would on disk.
        let mark = content.mark.map(|mark| Mark::from_bytes(&mark.to_bytes()).unwrap());
        let machine = Self::with(&Content { mark, ..content }, false);
        machine.installed.store(self.installed.load(Ordering::Relaxed), Ordering::Relaxed);
        machine
    }

    pub(crate) fn flush(&self) {
        *self.files.lock() = self.memory.lock().clone();
    }

    pub(crate) fn rows(&self) -> Vec<Bytes> {
        self.memory.lock().rows.iter().map(|(_, row)| row.clone()).collect()
    }

    /// Index of the last entry applied.
    pub(crate) fn applied(&self) -> Option<u64> {
        self.memory.lock().mark.as_ref().map(Mark::index)
    }

    pub(crate) fn contains(&self, row: &Bytes) -> bool {
        self.memory.lock().rows.iter().any(|(_, found)| found == row)
    }
}

#[async_trait]
impl Machine for Recorder {
    fn durable_mark(&self) -> Option<Mark> {
        self.files.lock().mark.clone()
    }

    fn begins_with_files(&self) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.begins_with_files.load(Ordering::Relaxed) && self.applied().is_none()
    }

    async fn apply(&self, entries: Vec<Committed>) -> Result<Vec<Bytes>, MachineError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if self.failing.load(Ordering::Relaxed) {
            return Err(MachineError("the file system is on fire".to_owned()));
        }
        assert!(!self.panicking.load(Ordering::Relaxed), "planted");
        let mut replies = Vec::new();
        {
            let mut memory = self.memory.lock();
            for entry in entries {
                let next = memory.mark.as_ref().map_or(0, |mark| mark.index() + 1);
                assert!(
                    self.lenient || entry.index == next,
                    "{} after {next}: entries come once, in order",
                    entry.index
                );
                assert_eq!(entry.mark.index(), entry.index);
                if let Some(payload) = entry.payload {
                    replies.push(Bytes::from(format!("{}:{}", entry.index, payload.len())));
                    memory.rows.push((entry.index, payload));
                }
                memory.mark = Some(entry.mark);
            }
        }
        if self.lenient {
            self.flush();
        }
        Ok(replies)
    }

    async fn snapshot(&self) -> Result<Arc<dyn Snapshot>, MachineError> {
        let Content { rows, mark } = self.files.lock().clone();
        let mark = mark.ok_or_else(|| MachineError("nothing is flushed".to_owned()))?;
        let state = Bytes::from(format!("{} rows", rows.len()));
        let files = rows.chunks(FILE_ROWS).map(pack).collect();
        Ok(Arc::new(Pinned { mark, state, files }))
    }

    async fn receive(&self, offer: Offer) -> Result<Box<dyn Incoming>, MachineError> {
        let machine = self.own.upgrade().unwrap();
        {
            let mut staged = self.staged.lock();
            if staged.from != Some(offer.from) {
                *staged = Staged { from: Some(offer.from), files: BTreeMap::new() };
            }
            staged.files.retain(|name, _| offer.files.iter().any(|file| file.name == *name));
        }
        Ok(Box::new(Arriving { machine, offer }))
    }
}

/// A file: its name tells its rows, for good.
fn pack(rows: &[(u64, Bytes)]) -> (String, Bytes) {
    let mut bytes = BytesMut::new();
    for (index, row) in rows {
        bytes.put_u64(*index);
        bytes.put_u64(row.len() as u64);
        bytes.put_slice(row);
    }
    (format!("{}-{}", rows[0].0, rows[rows.len() - 1].0), bytes.freeze())
}

fn unpack(mut bytes: Bytes, rows: &mut Vec<(u64, Bytes)>) {
    while bytes.has_remaining() {
        let (index, length) = (bytes.get_u64(), bytes.get_u64());
        rows.push((index, bytes.split_to(usize::try_from(length).unwrap())));
    }
}

struct Pinned {
    mark: Mark,
    state: Bytes,
    files: Vec<(String, Bytes)>,
}

#[async_trait]
impl Snapshot for Pinned {
    fn mark(&self) -> Mark {
        self.mark.clone()
    }

    fn state(&self) -> Bytes {
        self.state.clone()
    }

    fn files(&self) -> Vec<SnapshotFile> {
        let file = |(name, bytes): &(String, Bytes)| SnapshotFile {
            name: name.clone(),
            bytes: bytes.len() as u64,
        };
        self.files.iter().map(file).collect()
    }

    async fn read(&self, file: usize, offset: u64, bytes: usize) -> Result<Bytes, MachineError> {
        let offset = usize::try_from(offset).unwrap();
        Ok(self.files[file].1.slice(offset..offset + bytes))
    }
}

struct Arriving {
    machine: Arc<Recorder>,
    offer: Offer,
}

#[async_trait]
impl Incoming for Arriving {
    fn have(&self) -> Vec<u64> {
        let staged = self.machine.staged.lock();
        let have = |file: &SnapshotFile| staged.files.get(&file.name).map_or(0, Vec::len) as u64;
        self.offer.files.iter().map(have).collect()
    }

    async fn write(&mut self, file: usize, offset: u64, data: Bytes) -> Result<(), MachineError> {
        let mut staged = self.machine.staged.lock();
        let staged = staged.files.entry(self.offer.files[file].name.clone()).or_default();
        assert_eq!(staged.len() as u64, offset, "pieces come in order");
        staged.extend_from_slice(&data);
        self.machine.taken.fetch_add(data.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    async fn install(self: Box<Self>) -> Result<(), MachineError> {
        let staged = std::mem::take(&mut *self.machine.staged.lock());
        let mut rows = Vec::new();
        for file in &self.offer.files {
            let bytes = staged.files.get(&file.name).cloned().unwrap_or_default();
            assert_eq!(bytes.len() as u64, file.bytes, "{} is whole", file.name);
            unpack(bytes.into(), &mut rows);
        }
        assert_eq!(self.offer.state, format!("{} rows", rows.len()));
        let content = Content { rows, mark: Some(self.offer.mark) };
        *self.machine.files.lock() = content.clone();
        *self.machine.memory.lock() = content;
        self.machine.installed.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}
