//! Addresses of the cluster's nodes: as published by meta, or until then as stored at the last run.
//!
//! Without stored addresses, a restarted cluster would have to wait for meta first, and a node that returns while
//! meta has no leader could not join its groups. An outdated address does no harm: the process that answers there
//! reports which node it is.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use partita_proto::id::NodeId;
use partita_proto::member::Members;
use partita_raft::transport::grpc::Addresses;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::data_dir;

/// The file in the data directory: a node number and an address per line.
const FILE: &str = "PEERS";

type Book = BTreeMap<NodeId, String>;

/// Opens the stored addresses, and stores changed ones in the data directory until `stop`.
///
/// # Errors
/// If the stored addresses cannot be read.
pub(crate) fn open(
    dir: &Path,
    members: watch::Receiver<Arc<Members>>,
    stop: CancellationToken,
) -> anyhow::Result<Addresses> {
    let book = read(dir)?;
    tokio::spawn(keep(dir.to_owned(), book.clone(), members.clone(), stop));
    Ok(Arc::new(move |node| {
        let members = members.borrow();
        let address = members.get(&node).map(|member| &member.address);
        address.or(book.get(&node)).filter(|address| !address.is_empty()).cloned()
    }))
}

fn read(dir: &Path) -> anyhow::Result<Book> {
    let path = dir.join(FILE);
    let text = match std::fs::read(&path) {
        // A damaged line counts as missing: meta will publish the address again.
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Book::new()),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let entry = |line: &str| {
        let (node, address) = line.split_once(' ')?;
        Some((NodeId(node.parse().ok()?), address.to_owned()))
    };
    Ok(text.lines().filter_map(entry).collect())
}

/// Stores the addresses whenever they have changed.
async fn keep(
    dir: PathBuf,
    mut book: Book,
    mut members: watch::Receiver<Arc<Members>>,
    stop: CancellationToken,
) {
    loop {
        let current: Book = members
            .borrow_and_update()
            .iter()
            .map(|(node, member)| (*node, member.address.clone()))
            .collect();
        // Nothing was published yet, or nothing has changed.
        if !current.is_empty() && current != book {
            let text: String =
                current.iter().map(|(node, address)| format!("{node} {address}\n")).collect();
            let folder = dir.clone();
            let written = tokio::task::spawn_blocking(move || {
                data_dir::write(&folder, &folder.join(FILE), &text)
            });
            match written.await {
                Ok(Ok(())) => book = current,
                Ok(Err(error)) => warn!(%error, "cannot store the addresses of the nodes"),
                Err(error) => warn!(%error, "cannot store the addresses of the nodes"),
            }
        }
        tokio::select! {
            changed = members.changed() => if changed.is_err() { return },
            () = stop.cancelled() => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use partita_proto::member::Member;

    use super::*;

    #[tokio::test]
    async fn addresses_outlive_the_process_and_follow_what_meta_says() {
        let dir = tempfile::tempdir().unwrap();
        let (sender, members) = watch::channel(Arc::new(Members::new()));
        let stop = CancellationToken::new();
        let addresses = open(dir.path(), members, stop.clone()).unwrap();
        assert_eq!(addresses(NodeId(1)), None);
        let members_at = |address: &str| {
            let member = Member { address: address.to_owned(), ..Member::default() };
            Arc::new(Members::from([(NodeId(1), member)]))
        };
        sender.send_replace(members_at("a:1"));
        assert_eq!(addresses(NodeId(1)).as_deref(), Some("a:1"));
        while !dir.path().join(FILE).exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        stop.cancel();
        let (sender, members) = watch::channel(Arc::new(Members::new()));
        let addresses = open(dir.path(), members, CancellationToken::new()).unwrap();
        assert_eq!(addresses(NodeId(1)).as_deref(), Some("a:1"));
        sender.send_replace(members_at("b:2"));
        assert_eq!(addresses(NodeId(1)).as_deref(), Some("b:2"));
    }

    #[tokio::test]
    async fn a_damaged_line_is_one_that_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), b"1 a:1\n\xb2 b:2\n3 c:3\n").unwrap();
        let (_sender, members) = watch::channel(Arc::new(Members::new()));
        let addresses = open(dir.path(), members, CancellationToken::new()).unwrap();
        assert_eq!(addresses(NodeId(1)).as_deref(), Some("a:1"));
        assert_eq!(addresses(NodeId(2)), None);
        assert_eq!(addresses(NodeId(3)).as_deref(), Some("c:3"));
    }
}
