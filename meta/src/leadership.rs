//! The leadership of this process, as it is recorded in the catalog.
//!
//! Invariant: a process gives orders only while the newest leadership in the catalog is its own; nodes take them for the
//! order's place in the catalog's past ([`partita_proto::catalog_history`]).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use partita_proto::catalog_history::CatalogHistory;
use partita_proto::error::Error;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::node::{Core, raft_error};
use crate::transition::Command;

/// Pause before recording a leadership is tried again.
const RECORD_PAUSE: Duration = Duration::from_millis(500);

/// The newest leadership of this process.
#[derive(Debug, Default)]
pub(crate) struct OwnLeadership {
    /// Leaderships that were begun.
    count: AtomicU64,
    /// The random number of the newest; 0: none.
    nonce: AtomicU64,
}

impl OwnLeadership {
    /// Begins another leadership; the number that it is recorded with, which follows from a random one.
    fn begin(&self, chance: u64) -> u64 {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let nonce = mixed(chance.wrapping_add(mixed(count)));
        self.nonce.store(nonce, Ordering::Relaxed);
        nonce
    }
}

/// A number that differs in about half of its bits when the given one differs in any, and is not 0 (splitmix64).
pub(crate) fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)).max(1)
}

impl Core {
    /// Records in the catalog that this process leads. Also on a disk that is nearly full: it makes room for nothing else.
    pub(crate) async fn record_leadership(&self) -> Result<(), Error> {
        let chance = mixed(self.options.incarnation).wrapping_add(self.options.identity);
        let nonce = self.leadership.begin(chance);
        let cluster = mixed(nonce);
        let term = self.group.status().term;
        let command = Command::Lead { cluster, term, nonce };
        self.group.propose(command.encode()).await.map_err(raft_error).map(drop)
    }

    /// Tries again to record that this process leads, until it is recorded or another leads. Returns when `over`.
    pub(crate) async fn keep_leadership_recorded(&self, over: &CancellationToken) {
        let work = async {
            while self.catalog_history().is_err() {
                tokio::time::sleep(RECORD_PAUSE).await;
                if let Err(error) = self.record_leadership().await {
                    warn!(%error, "that this process leads meta is not recorded yet; it gives no orders");
                }
            }
            over.cancelled().await;
        };
        tokio::select! {
            () = over.cancelled() => {}
            () = work => {}
        }
    }

    /// The past of the catalog, as orders bear it.
    ///
    /// # Errors
    /// [`Error::Unavailable`] while the newest leadership in the catalog is not this process's.
    pub(crate) fn catalog_history(&self) -> Result<CatalogHistory, Error> {
        let nonce = self.leadership.nonce.load(Ordering::Relaxed);
        let history = self.machine.state().history();
        let own = |history: &CatalogHistory| {
            history.leaderships.last().is_some_and(|last| last.nonce == nonce)
        };
        history.filter(own).ok_or_else(|| {
            Error::Unavailable("this process has not recorded that it leads meta".to_owned())
        })
    }
}
