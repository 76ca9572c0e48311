//! Tests of the log, through restarts, power cuts, damage and a full disk.

mod basics;
mod damage;
mod power;
mod space;

use std::sync::Arc;

use bytes::Bytes;
use partita_proto::id::{GroupId, ReplicaId};
use tokio::sync::oneshot;

use super::simulated::SimulatedDisk;
use super::{EntryKind, Log, LogEntry, LogOptions, Position};
use crate::error::RaftError;

const SEGMENT: u32 = 16 << 10;

fn options() -> LogOptions {
    LogOptions { segment_bytes: SEGMENT, budget_bytes: 1 << 20, cache_bytes: 2048 }
}

fn open(disk: &SimulatedDisk) -> Result<Arc<Log>, RaftError> {
    Log::open(Arc::new(disk.clone()), options())
}

fn entry(term: u64, index: u64, payload: impl Into<Bytes>) -> LogEntry {
    let position = Position { term, leader: 1, index };
    LogEntry { position, kind: EntryKind::Command, payload: payload.into() }
}

/// Entries `[start, end)` of a term, with a payload that tells them apart.
fn entries(term: u64, start: u64, end: u64) -> Vec<LogEntry> {
    (start..end).map(|index| entry(term, index, format!("{term}.{index}"))).collect()
}

/// Queues entries; the receiver hears when they are on disk.
async fn submit(
    log: &Log,
    group: GroupId,
    entries: Vec<LogEntry>,
) -> Result<oneshot::Receiver<Result<(), RaftError>>, RaftError> {
    let (sender, receiver) = oneshot::channel();
    log.append(group, entries, Box::new(move |result| drop(sender.send(result)))).await?;
    Ok(receiver)
}

async fn append(log: &Log, group: GroupId, entries: Vec<LogEntry>) -> Result<(), RaftError> {
    submit(log, group, entries).await?.await.expect("the writer answers")
}

async fn all(log: &Log, group: GroupId) -> Vec<LogEntry> {
    log.read(group, 0, u64::MAX, u64::MAX).await.unwrap()
}

async fn with_group(disk: &SimulatedDisk, group: GroupId) -> Arc<Log> {
    let log = open(disk).unwrap();
    log.create(group, ReplicaId(group.0 * 10)).await.unwrap();
    log
}
