//! The request that a statement ends, and the check for it inside of computations.
//!
//! A thread of a lane knows its lane by a thread-local, so that code far below (an expression of a join, a rule
//! of the optimizer, a hook of the parser) can check without being handed anything. Elsewhere the check passes.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::lane::Shared;

/// The cause of an interruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The client asked for it, left, or dropped the rows.
    Canceled,
    /// The statement ran for longer than it may.
    TimedOut,
    /// The process has too little memory left.
    OutOfMemory,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Canceled => "canceled",
            Self::TimedOut => "timed out",
            Self::OutOfMemory => "out of memory",
        })
    }
}

impl std::error::Error for Reason {}

/// An interruption flag: the first reason that is raised stays.
#[derive(Debug, Default)]
pub(crate) struct Flag(AtomicU8);

impl Flag {
    /// Raises a reason; a reason that was raised before stays.
    pub(crate) fn raise(&self, reason: Reason) {
        let code = match reason {
            Reason::Canceled => 1,
            Reason::TimedOut => 2,
            Reason::OutOfMemory => 3,
        };
        // Only the first transition counts, so a failed exchange needs no answer.
        self.0.compare_exchange(0, code, Ordering::AcqRel, Ordering::Acquire).ok();
    }

    /// Forgets the reason, for the next statement.
    pub(crate) fn clear(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// The reason that was raised.
    pub(crate) fn reason(&self) -> Option<Reason> {
        match self.0.load(Ordering::Acquire) {
            0 => None,
            1 => Some(Reason::Canceled),
            2 => Some(Reason::TimedOut),
            _ => Some(Reason::OutOfMemory),
        }
    }
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<Shared>>> = const { RefCell::new(None) };
}

/// Makes this thread one of a lane's.
pub(crate) fn enter_thread(lane: Arc<Shared>) {
    CURRENT.with_borrow_mut(|current| *current = Some(lane));
}

/// The lane that this thread belongs to.
pub(crate) fn current() -> Option<Arc<Shared>> {
    CURRENT.with_borrow(|current| current.as_ref().map(Arc::clone))
}

/// Checks that the statement of this thread's lane may go on; passes outside of lanes. Cheap enough for once a
/// batch or once a node of a plan.
///
/// # Errors
/// The reason for which the statement must end.
pub fn check() -> Result<(), Reason> {
    let reason =
        CURRENT.with_borrow(|current| current.as_ref().and_then(|lane| lane.flag.reason()));
    match reason {
        Some(reason) => Err(reason),
        None => Ok(()),
    }
}
