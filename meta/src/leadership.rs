//! Leaderships of this process, as recorded in the catalog.
//!
//! Invariant: a process sends orders only while the newest leadership in the catalog is its own; nodes use
//! leaderships as an order's position in the catalog's past ([`partita_proto::catalog_history`]).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use partita_proto::catalog_history::CatalogHistory;
use partita_proto::error::Error;
use partita_proto::id::BOOTSTRAP_ROLE;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::core::{Core, raft_error};
use crate::transition::Command;

/// Name of the bootstrap superuser.
const SUPERUSER: &str = "partita";
/// Backoff before the process tries again to record its leadership.
const RECORD_PAUSE: Duration = Duration::from_millis(500);

/// The newest leadership of this process.
#[derive(Debug, Default)]
pub(crate) struct OwnLeadership {
    /// Number of leaderships begun by this process.
    count: AtomicU64,
    /// Nonce of the newest leadership; 0: none.
    nonce: AtomicU64,
}

impl OwnLeadership {
    /// Begins another leadership. Returns its nonce, derived from a random number and the count.
    fn begin(&self, chance: u64) -> u64 {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let nonce = mixed(chance.wrapping_add(mixed(count)));
        self.nonce.store(nonce, Ordering::Relaxed);
        nonce
    }
}

/// Mixes a number (splitmix64): one changed bit changes about half of the result's bits. Never 0.
pub(crate) fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)).max(1)
}

impl Core {
    /// Records in the catalog that this process leads. Also done on a nearly full disk, since it is needed to free
    /// space.
    async fn record_leadership(&self) -> Result<(), Error> {
        let chance = mixed(self.options.incarnation).wrapping_add(self.options.identity);
        let nonce = self.leadership.begin(chance);
        let cluster = mixed(nonce);
        let term = self.group.status().term;
        let command = Command::Lead { cluster, term, nonce };
        self.group.propose(command.encode()).await.map_err(raft_error).map(drop)
    }

    /// Records the leadership, and makes the superuser of a cluster that has none.
    ///
    /// # Errors
    /// Those of the log.
    pub(crate) async fn begin_leadership(&self) -> Result<(), Error> {
        self.record_leadership().await?;
        if self.has_superuser() {
            return Ok(());
        }
        let superuser = SUPERUSER.to_owned();
        let command = Command::Bootstrap { superuser, secrets: self.options.secrets };
        self.group.propose(command.encode()).await.map_err(raft_error).map(drop)
    }

    fn has_superuser(&self) -> bool {
        // The state is not locked while roles are being loaded.
        let access = self.machine.state().access().clone();
        access.role(BOOTSTRAP_ROLE).is_some()
    }

    /// Retries until the leadership of this process is recorded, or another process leads. Returns when `end` is
    /// cancelled.
    pub(crate) async fn keep_leadership_recorded(&self, end: &CancellationToken) {
        let work = async {
            while self.catalog_history().is_err() || !self.has_superuser() {
                tokio::time::sleep(RECORD_PAUSE).await;
                if let Err(error) = self.begin_leadership().await {
                    warn!(%error, "recording the leadership of meta failed; no orders are sent until it is recorded");
                }
            }
            end.cancelled().await;
        };
        tokio::select! {
            () = end.cancelled() => {}
            () = work => {}
        }
    }

    /// The catalog's past, as orders to nodes carry it.
    ///
    /// # Errors
    /// [`Error::Unavailable`] while the newest leadership in the catalog is not this process's.
    pub(crate) fn catalog_history(&self) -> Result<CatalogHistory, Error> {
        let nonce = self.leadership.nonce.load(Ordering::Relaxed);
        let history = self.machine.state().history();
        let is_own = |history: &CatalogHistory| {
            history.leaderships.last().is_some_and(|last| last.nonce == nonce)
        };
        history.filter(is_own).ok_or_else(|| {
            Error::Unavailable(
                "this process has not recorded its leadership of meta yet".to_owned(),
            )
        })
    }
}
