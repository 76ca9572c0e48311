//! Lives of sessions: a session ends, with its statements and cursors, when its identity is no longer valid.
//!
//! ```text
//!   meta ── catalog with other roles ──┐
//!   clock ── every half second ────────┴─▶ Lives::review ─▶ Life::end ─▶ running statements, streams, cursors
//! ```
//!
//! Statements are checked when they start; this is for those that run already, and for cursors that wait. The clock
//! ends identities with an expiry.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use partita_proto::catalog::Catalog;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::viewer::Viewer;
use crate::error::SqlError;

/// Time between two reviews without a change: identities with an expiry end within it.
const REVIEW_INTERVAL: Duration = Duration::from_millis(500);

/// Life of one session.
pub(crate) struct Life {
    id: u64,
    viewer: Arc<Viewer>,
    lives: Weak<Lives>,
    token: CancellationToken,
    /// Reason of the end, set before the token is cancelled.
    end: OnceLock<SqlError>,
}

impl Drop for Life {
    fn drop(&mut self) {
        if let Some(lives) = self.lives.upgrade() {
            lives.open.lock().remove(&self.id);
        }
    }
}

impl Life {
    /// Token of one statement, which is cancelled at the end of the session too.
    pub(crate) fn child_token(&self) -> CancellationToken {
        self.token.child_token()
    }

    /// Token that is cancelled at the end of the session.
    pub(crate) fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// Reason why the session ended; `None` while it is open.
    pub(crate) fn end_error(&self) -> Option<SqlError> {
        self.end.get().cloned()
    }

    /// Error of a cancelled statement: the reason why its session ended, or else a cancel request of its user.
    pub(crate) fn cancellation(&self) -> SqlError {
        self.end_error().unwrap_or_else(SqlError::canceled)
    }

    /// Ends the session if its identity is no longer valid.
    fn review(&self) {
        if self.end.get().is_none()
            && let Err(error) = self.viewer.check(&[])
            && self.end.set(error).is_ok()
        {
            self.token.cancel();
        }
    }
}

/// Lives of all sessions of a frontend.
#[derive(Default)]
pub(crate) struct Lives {
    next_id: AtomicU64,
    open: Mutex<HashMap<u64, Weak<Life>>>,
}

impl Lives {
    /// Begins the life of a session.
    pub(crate) fn begin(self: &Arc<Self>, viewer: Arc<Viewer>) -> Arc<Life> {
        let life = Arc::new(Life {
            id: self.next_id.fetch_add(1, Ordering::Relaxed),
            viewer,
            lives: Arc::downgrade(self),
            token: CancellationToken::new(),
            end: OnceLock::new(),
        });
        self.open.lock().insert(life.id, Arc::downgrade(&life));
        life
    }

    fn review(&self) {
        // Outside the lock: the last reference to a life may be dropped here, which takes the lock.
        let open: Vec<Arc<Life>> = self.open.lock().values().filter_map(Weak::upgrade).collect();
        for life in open {
            life.review();
        }
    }

    /// Reviews all lives when roles or tokens have changed, and regularly, until the frontend is dropped.
    pub(crate) fn follow(
        self: &Arc<Self>,
        mut catalog: watch::Receiver<Arc<Catalog>>,
        home: &Handle,
    ) {
        let lives = Arc::downgrade(self);
        home.spawn(async move {
            let mut reviewed = Arc::clone(&catalog.borrow_and_update().access);
            let mut clock = tokio::time::interval(REVIEW_INTERVAL);
            clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut is_published = true;
            loop {
                tokio::select! {
                    _ = clock.tick() => {}
                    changed = catalog.changed(), if is_published => {
                        // Without a publisher, only the clock ends identities.
                        is_published = changed.is_ok();
                        let newest = Arc::clone(&catalog.borrow_and_update().access);
                        if Arc::ptr_eq(&newest, &reviewed) {
                            continue;
                        }
                        reviewed = newest;
                    }
                }
                let Some(lives) = lives.upgrade() else { return };
                lives.review();
            }
        });
    }
}
