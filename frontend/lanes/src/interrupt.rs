//! The interruption of a statement, and the check for it inside of computations.
//!
//! A thread of a lane finds its lane in a thread-local, so that code far below (an expression of a join, a rule of
//! the optimizer, a hook of the parser) can check without a parameter. Outside of lanes the check passes.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::lane::Shared;

/// The cause of an interruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The client canceled the statement, disconnected, or dropped the rows.
    Canceled,
    /// The statement exceeded its time limit.
    TimedOut,
    /// The process is short of memory.
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
    /// Raises a reason; an earlier one stays.
    pub(crate) fn raise(&self, reason: Reason) {
        let code = match reason {
            Reason::Canceled => 1,
            Reason::TimedOut => 2,
            Reason::OutOfMemory => 3,
        };
        // Only the first transition counts, so a failed exchange needs no answer.
        self.0.compare_exchange(0, code, Ordering::AcqRel, Ordering::Acquire).ok();
    }

    /// Removes the reason, for the next statement.
    pub(crate) fn clear(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// The reason raised, if any.
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

/// Makes this thread one of the lane's threads.
pub(crate) fn enter_thread(lane: Arc<Shared>) {
    CURRENT.with_borrow_mut(|current| *current = Some(lane));
}

/// The lane that this thread belongs to.
pub(crate) fn current() -> Option<Arc<Shared>> {
    CURRENT.with_borrow(|current| current.as_ref().map(Arc::clone))
}

/// Checks that the statement of this thread's lane may continue; passes outside of lanes. Cheap enough for every
/// batch and every node of a plan.
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
