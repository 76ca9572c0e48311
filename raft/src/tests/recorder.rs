//! A machine that remembers what was applied to it, and what of that it has flushed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;

use crate::{Committed, Machine, MachineError, Mark};

#[derive(Clone, Default)]
struct Content {
    rows: Vec<(u64, Bytes)>,
    mark: Option<Mark>,
}

#[derive(Default)]
pub(crate) struct Recorder {
    memory: Mutex<Content>,
    files: Mutex<Content>,
    pub(crate) failing: AtomicBool,
    pub(crate) calls: AtomicU64,
    /// Flushes after every apply, and accepts entries with gaps.
    lenient: bool,
}

impl Recorder {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// A machine as openraft's suite needs it: nothing stays in memory only, and entries come with gaps.
    pub(crate) fn lenient() -> Arc<Self> {
        Arc::new(Self { lenient: true, ..Self::default() })
    }

    /// The machine after a restart: what was not flushed is gone.
    pub(crate) fn restarted(&self) -> Arc<Self> {
        let files = Mark::from_bytes;
        let content = self.files.lock().clone();
        // Marks go through their bytes, as they would on disk.
        let mark = content.mark.map(|mark| files(&mark.to_bytes()).unwrap());
        let content = Content { mark, ..content };
        Arc::new(Self {
            memory: Mutex::new(content.clone()),
            files: Mutex::new(content),
            ..Self::default()
        })
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

    async fn apply(&self, entries: Vec<Committed>) -> Result<Vec<Bytes>, MachineError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if self.failing.load(Ordering::Relaxed) {
            return Err(MachineError("the file system is on fire".to_owned()));
        }
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
}
