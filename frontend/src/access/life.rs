//! Lives of sessions: a session ends, with its statements and cursors, when its identity is no longer valid.
//!
//! ```text
//!   meta ── catalog with other roles ──┐
//!   clock ── every half second ────────┴─▶ Lives::review ─▶ Life::end ─▶ running statements, streams, cursors
//! ```
//!
//! Statements are checked when they start; this is for those that run already, and for cursors that wait. The clock
//! ends identities with an expiry.
//!
//! By its number, a session is also found by others that cancel its statement or terminate it. They find those that they
//! see: sessions of the same role and token, and all with the right MONITOR. Sessions of others need the right ADMIN.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use partita_proto::access::{Action, Identity, Need, Object};
use partita_proto::catalog::Catalog;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::viewer::Viewer;
use crate::activity::{Activity, SessionActivity, SharedState};
use crate::error::{ADMIN_SHUTDOWN, SqlError};

/// Time between two reviews without a change: identities with an expiry end within it.
const REVIEW_INTERVAL: Duration = Duration::from_millis(500);

/// SQLSTATE of an action that is not permitted.
const INSUFFICIENT_PRIVILEGE: &str = "42501";

/// What one session does to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Signal {
    /// Cancels the running statement.
    Cancel,
    /// Ends the session.
    Terminate,
}

/// Life of one session.
pub(crate) struct Life {
    /// Number of the session, positive, which no other open session has.
    pid: i32,
    viewer: Arc<Viewer>,
    lives: Weak<Lives>,
    token: CancellationToken,
    /// Token of the last statement.
    running: Mutex<CancellationToken>,
    activity: Activity,
    /// Reason of the end, set before the token is cancelled.
    end: OnceLock<SqlError>,
}

impl Drop for Life {
    fn drop(&mut self) {
        if let Some(lives) = self.lives.upgrade() {
            lives.open.lock().remove(&self.pid);
        }
    }
}

impl Life {
    /// Number of the session.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// Signals another session of the frontend, or this one, as [`Lives::signal`].
    pub(crate) fn signal(&self, pid: i32, signal: Signal) -> Result<bool, SqlError> {
        match self.lives.upgrade() {
            Some(lives) => lives.signal(&self.viewer, pid, signal),
            None => Ok(false),
        }
    }

    /// Statements of the session.
    pub(crate) fn activity(&self) -> &Activity {
        &self.activity
    }

    /// Starts a statement. Its token is cancelled by [`Self::cancel`], and at the end of the session too.
    pub(crate) fn start(self: &Arc<Self>, text: &str) -> (CancellationToken, Running) {
        let token = self.token.child_token();
        *self.running.lock() = token.clone();
        self.activity.begin(text);
        (token, Running(Arc::clone(self)))
    }

    /// Cancels the running statement.
    pub(crate) fn cancel(&self) {
        self.running.lock().cancel();
    }

    /// Ends the session at the request of another one.
    fn terminate(&self) {
        let message = "terminating connection due to administrator command";
        if self.end.set(SqlError::new(ADMIN_SHUTDOWN, message)).is_ok() {
            self.token.cancel();
        }
    }

    /// True if an identity began its session as the same role, and with the same token or none.
    fn is_of(&self, identity: &Identity) -> bool {
        let owner = self.viewer.identity();
        (owner.login, owner.token) == (identity.login, identity.token)
    }

    /// Checks that a viewer may cancel and terminate the session, which it sees.
    fn check_signal(&self, viewer: &Viewer) -> Result<(), SqlError> {
        let (owner, identity) = (self.viewer.identity(), viewer.identity());
        if self.is_of(&identity) {
            return Ok(());
        }
        // What it permits is done by the caller, on the session that this check is about.
        let _permit = viewer.check(&[Need::new(Action::Admin, Object::Cluster)])?;
        let access = viewer.access();
        let is_superuser = |role| access.role(role).is_some_and(|role| role.superuser);
        if is_superuser(owner.login) && !is_superuser(identity.acting.unwrap_or(identity.login)) {
            let message = "must be a superuser to signal a process of a superuser";
            return Err(SqlError::new(INSUFFICIENT_PRIVILEGE, message));
        }
        Ok(())
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

/// A statement that runs, until this is dropped.
pub(crate) struct Running(Arc<Life>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.activity.end();
    }
}

/// Lives of all sessions of a frontend.
#[derive(Default)]
pub(crate) struct Lives {
    last_pid: AtomicI32,
    open: Mutex<HashMap<i32, Weak<Life>>>,
}

impl Lives {
    /// Begins the life of a session.
    pub(crate) fn begin(self: &Arc<Self>, viewer: Arc<Viewer>, state: SharedState) -> Arc<Life> {
        let mut open = self.open.lock();
        let mut pid = self.next_pid();
        // Numbers come again after two billion sessions, when an old one may still be open.
        while open.contains_key(&pid) {
            pid = self.next_pid();
        }
        let life = Arc::new(Life {
            pid,
            viewer,
            lives: Arc::downgrade(self),
            token: CancellationToken::new(),
            running: Mutex::new(CancellationToken::new()),
            activity: Activity::new(state),
            end: OnceLock::new(),
        });
        open.insert(pid, Arc::downgrade(&life));
        life
    }

    /// The number after the last one, from 1 to the greatest number.
    fn next_pid(&self) -> i32 {
        let successor = |last: i32| Some(last.checked_add(1).unwrap_or(1));
        let last = self.last_pid.fetch_update(Ordering::Relaxed, Ordering::Relaxed, successor);
        successor(last.unwrap_or_default()).unwrap_or(1)
    }

    /// Sessions that a viewer sees, by number.
    pub(crate) fn activities(&self, viewer: &Viewer) -> Vec<SessionActivity> {
        let (identity, sees_all) = (viewer.identity(), viewer.monitors());
        // Outside the lock: the last reference to a life may be dropped here, which takes the lock.
        let open: Vec<Arc<Life>> = self.open.lock().values().filter_map(Weak::upgrade).collect();
        let visible = open.iter().filter(|life| sees_all || life.is_of(&identity));
        let mut rows: Vec<SessionActivity> = visible
            .map(|life| {
                let origin = life.viewer.origin();
                let owner = origin.identity;
                life.activity.row(life.pid, (owner.login, owner.door), origin.peer)
            })
            .collect();
        rows.sort_unstable_by_key(|row| row.pid);
        rows
    }

    /// Signals a session; false when there is none with this number that the viewer sees.
    ///
    /// # Errors
    /// 42501 when the viewer sees it and may not signal it.
    pub(crate) fn signal(
        &self,
        viewer: &Viewer,
        pid: i32,
        signal: Signal,
    ) -> Result<bool, SqlError> {
        let life = self.open.lock().get(&pid).and_then(Weak::upgrade);
        let is_seen = |life: &Arc<Life>| life.is_of(&viewer.identity()) || viewer.monitors();
        let Some(life) = life.filter(is_seen) else { return Ok(false) };
        life.check_signal(viewer)?;
        match signal {
            Signal::Cancel => life.cancel(),
            Signal::Terminate => life.terminate(),
        }
        Ok(true)
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
