//! Replicas that this node never makes again. It gave them up by itself, because their files or their log were damaged:
//! their votes and entries are forgotten. Or it began them empty because a split was skipped, which may come again.
//!
//! On disk: the file `ASIDE`, one line with a partition and a replica for each, and a checksum.
//!
//! Invariants:
//! - a damaged replica is listed before its log is removed, one that begins empty before it runs; both stay listed;
//! - a listed replica is never made again to begin together with other members, or by a split: it would vote a second
//!   time. One that joins is meta's to number: its group hears of it only after it was created for the last time.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;

use parking_lot::Mutex;
use partita_proto::error::Error;
use partita_proto::id::{PartitionId, ReplicaId};
use tracing::error;

use crate::files::Files;

type Replicas = BTreeSet<(PartitionId, ReplicaId)>;

/// The durable list of these replicas.
pub(crate) struct Aside {
    files: Arc<dyn Files>,
    replicas: Mutex<Replicas>,
}

impl Aside {
    /// Reads the list. One that is damaged too is begun anew.
    ///
    /// # Errors
    /// Those of the disk.
    pub(crate) fn open(files: Arc<dyn Files>) -> Result<Self, Error> {
        let parsed = files.aside()?.map_or_else(|| Some(Replicas::new()), |text| parse(&text));
        if parsed.is_none() {
            error!("the list of replicas that are never made again is damaged; it is begun anew");
        }
        Ok(Self { files, replicas: Mutex::new(parsed.unwrap_or_default()) })
    }

    /// True if the replica is listed.
    pub(crate) fn has(&self, partition: PartitionId, replica: ReplicaId) -> bool {
        self.replicas.lock().contains(&(partition, replica))
    }

    /// Lists a replica, durably.
    ///
    /// # Errors
    /// Those of the disk; the list is unchanged then.
    pub(crate) fn add(&self, partition: PartitionId, replica: ReplicaId) -> Result<(), Error> {
        let mut listed = self.replicas.lock();
        let mut replicas = listed.clone();
        if replicas.insert((partition, replica)) {
            self.files.keep_aside(&print(&replicas))?;
            *listed = replicas;
        }
        Ok(())
    }
}

fn print(replicas: &Replicas) -> String {
    let line = |(partition, replica): &(PartitionId, ReplicaId)| format!("{partition} {replica}\n");
    let mut text: String = replicas.iter().map(line).collect();
    let checksum = crc32c::crc32c(text.as_bytes());
    // Writing to a string cannot fail.
    writeln!(text, "checksum {checksum:08x}").ok();
    text
}

fn parse(text: &str) -> Option<Replicas> {
    let lines = text.lines().take_while(|line| !line.starts_with("checksum "));
    let replica = |line: &str| {
        let (partition, replica) = line.split_once(' ')?;
        Some((PartitionId(partition.parse().ok()?), ReplicaId(replica.parse().ok()?)))
    };
    let replicas: Option<Replicas> = lines.map(replica).collect();
    replicas.filter(|replicas| print(replicas) == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(pairs: &[(u64, u64)]) -> Replicas {
        let pairs = pairs.iter();
        pairs.map(|(partition, replica)| (PartitionId(*partition), ReplicaId(*replica))).collect()
    }

    /// Data directories hold this text: it never changes.
    #[test]
    fn the_text_never_changes() {
        let text = print(&list(&[(8, 40), (7, 71), (8, 3)]));
        assert_eq!(text, "7 71\n8 3\n8 40\nchecksum 1c0d8090\n");
    }

    #[test]
    fn a_list_reads_back_and_damage_is_noticed() {
        for pairs in [vec![], vec![(7, 71)], vec![(7, 71), (8, 3), (1000, 12)]] {
            let text = print(&list(&pairs));
            assert_eq!(parse(&text), Some(list(&pairs)));
            for place in 0..text.len() {
                let mut damaged = text.clone().into_bytes();
                damaged[place] ^= 1;
                assert_eq!(parse(&String::from_utf8(damaged).unwrap()), None);
                assert_eq!(parse(&text[..place]), None);
            }
        }
    }
}
