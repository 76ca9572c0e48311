//! Automatic readmission: a member of meta whose log or catalog is damaged rejoins its group as a new one.
//!
//! ```text
//!   damaged ── the others have a leader ─▶ REJOIN: a new identity ─▶ log, meta set aside ─▶ NODE: that identity
//!                                                                      ─▶ start, as with --rejoin
//! ```
//!
//! A member with only part of its data must not vote. So it does what an operator would do with an empty directory:
//! the others agree to remove the old member, admit the new one, and send it the catalog (`partita_meta`,
//! `membership.rs`).
//!
//! Invariants:
//! - nothing is set aside before another member reports that it leads: if all are damaged, all keep what they have;
//! - the new identity is on disk before anything is set aside, and adopted afterwards: after a crash in between, the
//!   next start continues there, and no vote of the old directory is ever cast again;
//! - nothing is deleted.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use partita_proto::id::NodeId;
use partita_proto::member::MetaMember;
use partita_proto::service::MetaService;
use partita_rpc::MetaClient;
use partita_tls::Links;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::data_dir;
use crate::doors;

/// The file with the identity under which a directory is to rejoin.
const MARKER: &str = "REJOIN";
/// Subdirectories that are set aside: all of a member's data.
const PARTS: [&str; 2] = ["log", "meta"];
/// Interval between requests to the other members.
const POLL: Duration = Duration::from_secs(1);

/// True if the directory is to rejoin; completes a readmission that was begun.
///
/// # Errors
/// If its files cannot be read, renamed or written.
pub(crate) fn resume(dir: &Path) -> anyhow::Result<bool> {
    let path = dir.join(MARKER);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let identity = text.trim().strip_prefix("identity ");
    let identity = identity.and_then(|hex| u64::from_str_radix(hex, 16).ok());
    let Some(identity) = identity else {
        bail!("{} has no valid identity to rejoin with; remove it", path.display());
    };
    if data_dir::identity(dir)? == identity {
        return Ok(true);
    }
    for part in PARTS {
        set_aside(dir, part).with_context(|| format!("cannot set {part} aside"))?;
    }
    data_dir::take_identity(dir, identity)?;
    info!(
        identity = format!("{identity:016x}"),
        "this member rejoins meta's group with an empty data directory"
    );
    Ok(true)
}

/// Sets the data of a directory aside, and gives it a new identity. None of the data may be open.
///
/// # Errors
/// As [`resume`].
pub(crate) fn begin(dir: &Path) -> anyhow::Result<()> {
    let identity = data_dir::random().max(1);
    data_dir::write(dir, &dir.join(MARKER), &format!("identity {identity:016x}\n"))
        .with_context(|| format!("cannot write to the data directory {}", dir.display()))?;
    resume(dir).map(drop)
}

fn set_aside(dir: &Path, part: &str) -> std::io::Result<()> {
    let source = dir.join(part);
    let free = (1_u32..).map(|number| dir.join(format!("{part}.damaged-{number}")));
    let Some(target) = free.take(1000).find(|path| !path.exists()) else {
        return Err(std::io::Error::other("too many damaged copies exist"));
    };
    match std::fs::rename(&source, &target) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        renamed => renamed?,
    }
    error!(from = %source.display(), to = %target.display(), "set aside");
    std::fs::File::open(dir)?.sync_all()
}

/// Returns when another member reports that it leads the group.
///
/// # Errors
/// If a signal ends the process.
pub(crate) async fn until_others_lead(
    links: &Links,
    this_node: NodeId,
    peers: &BTreeMap<NodeId, String>,
) -> anyhow::Result<()> {
    let other_peers = peers.iter().filter(|(node, _)| **node != this_node);
    let addresses: Vec<String> = other_peers.map(|(_, address)| address.clone()).collect();
    let stop = CancellationToken::new();
    let _ends = stop.clone().drop_guard();
    let client = MetaClient::connect_without_access(links, addresses, stop);
    info!(
        "waiting for another member to lead meta's group, before rejoining it with an empty data directory"
    );
    let led = async {
        while !client.metas().await.iter().any(leads) {
            sleep(POLL).await;
        }
    };
    tokio::select! {
        () = led => Ok(()),
        signal = doors::signalled() => {
            signal?;
            bail!("stopped while waiting for meta's group")
        }
    }
}

fn leads(member: &MetaMember) -> bool {
    member.standing.as_ref().is_some_and(|standing| standing.leads)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(dir).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn damaged() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for part in PARTS {
            std::fs::create_dir(dir.path().join(part)).unwrap();
            std::fs::write(dir.path().join(part).join("rows"), part).unwrap();
        }
        dir
    }

    #[test]
    fn a_member_that_joins_again_has_nothing_but_a_new_identity() {
        let dir = damaged();
        let dir = dir.path();
        let old = data_dir::identity(dir).unwrap();
        assert!(!resume(dir).unwrap());
        begin(dir).unwrap();
        let first = data_dir::identity(dir).unwrap();
        assert_ne!(first, old);
        assert_eq!(names(dir), ["NODE", "REJOIN", "log.damaged-1", "meta.damaged-1"]);
        // A log that was created since belongs to the new identity.
        std::fs::create_dir(dir.join("log")).unwrap();
        assert!(resume(dir).unwrap());
        assert!(dir.join("log").exists());
        begin(dir).unwrap();
        assert_ne!(data_dir::identity(dir).unwrap(), first);
        assert_eq!(
            names(dir),
            ["NODE", "REJOIN", "log.damaged-1", "log.damaged-2", "meta.damaged-1"]
        );
    }

    #[test]
    fn a_crash_on_the_way_goes_on_at_the_next_start() {
        for count in 0..=PARTS.len() {
            let dir = damaged();
            let dir = dir.path();
            let old = data_dir::identity(dir).unwrap();
            let new = old ^ 5;
            std::fs::write(dir.join(MARKER), format!("identity {new:016x}\n")).unwrap();
            for part in &PARTS[..count] {
                set_aside(dir, part).unwrap();
            }
            assert!(resume(dir).unwrap());
            assert_eq!(data_dir::identity(dir).unwrap(), new);
            assert_eq!(names(dir), ["NODE", "REJOIN", "log.damaged-1", "meta.damaged-1"]);
        }
    }

    #[test]
    fn a_marker_that_makes_no_sense_sets_nothing_aside() {
        let dir = damaged();
        std::fs::write(dir.path().join(MARKER), "rubbish").unwrap();
        resume(dir.path()).unwrap_err();
        assert!(PARTS.iter().all(|part| dir.path().join(part).exists()));
    }
}
