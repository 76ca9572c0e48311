//! Reads entries back from the segments.
//!
//! Invariants:
//! - every entry returned has passed its checksum and carries the requested group and index;
//! - no lock is held while the disk is read, so an entry may move or disappear meanwhile: then the whole read is
//!   planned anew.

use std::sync::Arc;

use bytes::Bytes;
use partita_proto::id::GroupId;

use super::disk::DiskFile;
use super::index::{Location, Planned};
use super::record::{LogEntry, Record};
use super::{Shared, record, recovery};
use crate::error::RaftError;

/// Maximum bytes of one read; entries that lie next to each other are read together.
const READ_BYTES_MAX: u32 = 1 << 20;

impl Shared {
    /// Reads planned entries from the disk; `None` if one is no longer at its location. Blocks.
    pub(super) fn fetch(
        &self,
        group: GroupId,
        planned: Vec<Planned>,
    ) -> Result<Option<Vec<LogEntry>>, RaftError> {
        let mut entries = Vec::with_capacity(planned.len());
        let mut position = 0;
        while position < planned.len() {
            match &planned[position] {
                Planned::Cached(entry) => {
                    entries.push(entry.clone());
                    position += 1;
                }
                Planned::Stored { .. } => {
                    let run = adjacent(&planned[position..]);
                    position += run.len();
                    if !self.fetch_run(group, &run, &mut entries)? {
                        return Ok(None);
                    }
                }
            }
        }
        Ok(Some(entries))
    }

    /// Reads entries that lie next to each other with one read; `false` if one is no longer at its location.
    fn fetch_run(
        &self,
        group: GroupId,
        run: &[(u64, Location)],
        entries: &mut Vec<LogEntry>,
    ) -> Result<bool, RaftError> {
        let (Some((_, first)), Some((_, last))) = (run.first(), run.last()) else {
            return Ok(true);
        };
        let name = recovery::segment_name(first.segment);
        let file: Option<Arc<dyn DiskFile>> =
            self.state.lock().segments.get(&first.segment).map(|segment| Arc::clone(&segment.file));
        let Some(file) = file else { return Ok(false) };
        let mut data = vec![0; (last.offset + last.bytes - first.offset) as usize];
        file.read(&mut data, u64::from(first.offset))
            .map_err(|error| RaftError::io(format!("read {}", self.disk.describe(&name)), error))?;
        let data = Bytes::from(data);
        for (index, location) in run {
            let offset = (location.offset - first.offset) as usize;
            let decoded = record::decode(&data, offset, location.segment);
            match decoded.map(|decoded| decoded.record) {
                Some(
                    Record::Append { group: owner, entry }
                    | Record::Moved { group: owner, entry }
                    | Record::Seed { group: owner, entry, .. },
                ) if owner == group && entry.position.index == *index => {
                    entries.push(entry);
                }
                _ => {
                    // This is damage only if the segment has not been given up since the read was planned.
                    if self.state.lock().index.is_at(group, *index, *location) {
                        return Err(RaftError::Corrupted(format!(
                            "{} at offset {} does not hold entry {index} of group {group} any more",
                            self.disk.describe(&name),
                            location.offset
                        )));
                    }
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

/// The longest prefix of `planned` that one read can fetch.
fn adjacent(planned: &[Planned]) -> Vec<(u64, Location)> {
    let mut run: Vec<(u64, Location)> = Vec::new();
    for item in planned {
        let Planned::Stored { index, location } = item else { break };
        if let (Some((_, first)), Some((_, last))) = (run.first(), run.last()) {
            let joins =
                last.segment == location.segment && location.offset >= last.offset + last.bytes;
            // A small gap (records of other groups) is cheaper to read than to skip.
            if !joins || location.offset + location.bytes - first.offset > READ_BYTES_MAX {
                break;
            }
        }
        run.push((*index, *location));
    }
    run
}
