//! Replicas here that belong to an older copy of the data directory: they may lack later acknowledged writes, and have
//! forgotten votes.
//!
//! On disk: the file `OLDER`, one partition number per line.
//!
//! Invariants:
//! - such a replica neither serves nor votes; it stays until meta has it dropped, because the other replicas have
//!   agreed to do without it, or until its operator accepts it as it is;
//! - a replica is listed before the directory's next generation is recorded, so that none is forgotten.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;

use parking_lot::Mutex;
use partita_proto::error::Error;
use partita_proto::id::PartitionId;

use crate::files::Files;

/// The durable list of these replicas.
pub(crate) struct Older {
    files: Arc<dyn Files>,
    partitions: Mutex<BTreeSet<PartitionId>>,
    /// True if the file does not parse: then any replica may have been listed.
    pub(crate) damaged: bool,
}

impl Older {
    /// Reads the list.
    ///
    /// # Errors
    /// Those of the disk.
    pub(crate) fn open(files: Arc<dyn Files>) -> Result<Self, Error> {
        let parsed = files.older()?.map_or_else(|| Some(BTreeSet::new()), |text| parse(&text));
        let damaged = parsed.is_none();
        Ok(Self { files, partitions: Mutex::new(parsed.unwrap_or_default()), damaged })
    }

    /// True if the replica of the partition is listed.
    pub(crate) fn has(&self, partition: PartitionId) -> bool {
        self.partitions.lock().contains(&partition)
    }

    /// All listed partitions.
    pub(crate) fn all(&self) -> BTreeSet<PartitionId> {
        self.partitions.lock().clone()
    }

    /// Replaces the list, durably.
    ///
    /// # Errors
    /// Those of the disk; the list is unchanged then.
    pub(crate) fn replace(&self, partitions: BTreeSet<PartitionId>) -> Result<(), Error> {
        let mut listed = self.partitions.lock();
        if *listed != partitions || self.damaged {
            self.files.keep_older(&print(&partitions))?;
            *listed = partitions;
        }
        Ok(())
    }

    /// Removes a partition from the list, durably.
    ///
    /// # Errors
    /// As [`Older::replace`].
    pub(crate) fn forget(&self, partition: PartitionId) -> Result<(), Error> {
        let mut partitions = self.all();
        match partitions.remove(&partition) {
            true => self.replace(partitions),
            false => Ok(()),
        }
    }
}

/// Reason that requests to such a replica get.
pub(crate) fn describe(partition: PartitionId) -> String {
    format!(
        "the data directory was put back from an older copy, so this replica may lack what was acknowledged since. Other \
         replicas take its place where there are any; if it is the only one, --accept-damage {partition} serves it as it is"
    )
}

fn print(partitions: &BTreeSet<PartitionId>) -> String {
    let mut text: String = partitions.iter().map(|partition| format!("{partition}\n")).collect();
    let checksum = crc32c::crc32c(text.as_bytes());
    // Writing to a string cannot fail.
    writeln!(text, "checksum {checksum:08x}").ok();
    text
}

fn parse(text: &str) -> Option<BTreeSet<PartitionId>> {
    let numbers = text.lines().take_while(|line| !line.starts_with("checksum "));
    let partitions: Option<BTreeSet<_>> =
        numbers.map(|line| line.parse().ok().map(PartitionId)).collect();
    partitions.filter(|partitions| print(partitions) == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Data directories hold this text: it never changes.
    #[test]
    fn the_text_never_changes() {
        let text = print(&[1000, 7, 8].map(PartitionId).into());
        assert_eq!(text, "7\n8\n1000\nchecksum 4fed7263\n");
    }

    #[test]
    fn a_list_reads_back_and_damage_is_noticed() {
        for list in [vec![], vec![7], vec![7, 8, 1000]] {
            let list: BTreeSet<PartitionId> = list.into_iter().map(PartitionId).collect();
            let text = print(&list);
            assert_eq!(parse(&text), Some(list));
            for place in 0..text.len() {
                let mut damaged = text.clone().into_bytes();
                damaged[place] ^= 1;
                assert_eq!(parse(&String::from_utf8(damaged).unwrap()), None);
                assert_eq!(parse(&text[..place]), None);
            }
        }
    }
}
