//! The catalog that this node follows: the newest one from which it has accepted an order, stored on disk.
//!
//! Invariants:
//! - an order is carried out only after the position of its catalog is on disk, so that a catalog without the effects
//!   of that order is recognized as older than the one followed, even after a crash;
//! - a node that follows a catalog refuses orders that do not name their catalog.

use std::fmt::Write;
use std::sync::Arc;

use parking_lot::Mutex;
use partita_proto::catalog_history::{CatalogHistory, CatalogPosition};
use partita_proto::error::Error;
use partita_raft::planted::{self, Plant};
use tracing::{error, info};

use crate::files::Files;

/// Instruction for an operator who wants the node to follow another catalog.
const TO_FOLLOW_ANOTHER: &str = "to have this node follow it all the same, stop the node and remove the file CATALOG in its data directory";

/// The position that the node has followed in its catalog.
pub(crate) struct Followed {
    files: Arc<dyn Files>,
    position: Mutex<Option<CatalogPosition>>,
}

impl Followed {
    /// Reads the position from disk.
    ///
    /// # Errors
    /// [`Error::Corrupted`] when the file does not parse; those of the disk.
    pub(crate) fn open(files: Arc<dyn Files>) -> Result<Self, Error> {
        let position = files.followed()?.as_deref().map(parse).transpose()?;
        Ok(Self { files, position: Mutex::new(position) })
    }

    /// Records the catalog of an order, durably, before the order is carried out.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] when the catalog does not continue the one followed, or the order does not name its
    /// catalog; those of the disk.
    pub(crate) fn recognize(&self, catalog: Option<&CatalogHistory>) -> Result<(), Error> {
        let mut position = self.position.lock();
        let Some(catalog) = catalog else {
            return match *position {
                None => Ok(()),
                Some(_) => Err(Error::InvalidInput(
                    "the order lacks its catalog's history: this node takes orders from its cluster's meta only"
                        .to_owned(),
                )),
            };
        };
        let next = match catalog.follow(position.as_ref()) {
            Ok(next) => next,
            Err(_) if planted::is(Plant::AnyCatalog) => return Ok(()),
            Err(refusal) => {
                error!(%refusal, "refused an order of meta; nothing was changed on this node. {TO_FOLLOW_ANOTHER}");
                return Err(refusal);
            }
        };
        if *position == Some(next) {
            return Ok(());
        }
        self.files.keep_followed(&print(&next))?;
        if position.is_none() {
            info!(cluster = format!("{:016x}", next.cluster), "this node has joined a cluster");
        }
        *position = Some(next);
        Ok(())
    }
}

fn print(position: &CatalogPosition) -> String {
    let CatalogPosition { cluster, version, term, nonce } = *position;
    let mut text = format!(
        "cluster {cluster:016x}\nversion {version}\nterm {term}\nleadership {nonce:016x}\n"
    );
    let checksum = crc32c::crc32c(text.as_bytes());
    // Writing to a string cannot fail.
    writeln!(text, "checksum {checksum:08x}").ok();
    text
}

fn parse(text: &str) -> Result<CatalogPosition, Error> {
    let position = || {
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        let hex = |name: &str| u64::from_str_radix(field(name)?, 16).ok();
        let position = CatalogPosition {
            cluster: hex("cluster ")?,
            version: field("version ")?.parse().ok()?,
            term: field("term ")?.parse().ok()?,
            nonce: hex("leadership ")?,
        };
        (print(&position) == text).then_some(position)
    };
    position().ok_or_else(|| {
        Error::Corrupted(format!(
            "the file CATALOG in the data directory, which names the cluster that this node belongs to, is damaged; if \
             meta's data was never restored from a copy, it is safe to remove the file: {TO_FOLLOW_ANOTHER}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_reads_back_and_damage_is_noticed() {
        let position = CatalogPosition { cluster: u64::MAX, version: 77, term: 5, nonce: 3 };
        let text = print(&position);
        // Data directories hold this text: it never changes.
        let golden = "cluster ffffffffffffffff\nversion 77\nterm 5\nleadership 0000000000000003\nchecksum d52f0923\n";
        assert_eq!(text, golden);
        assert_eq!(parse(&text), Ok(position));
        for place in 0..text.len() {
            let mut damaged = text.clone().into_bytes();
            damaged[place] ^= 1;
            let damaged = String::from_utf8(damaged).unwrap();
            assert!(matches!(parse(&damaged), Err(Error::Corrupted(_))), "{damaged}");
            assert!(parse(&text[..place]).is_err());
        }
    }
}
