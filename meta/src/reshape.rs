//! Splits and merges: their records in the catalog, their events, and the task that carries them out.
//!
//! ```text
//!   transition/reshape: start ─▶ state (in the partition's record) ─▶ driver: one task for each change
//!                                  │                                     └─ attempt, merge: orders to the partitions' logs
//!                                  └─▶ events: under way, done, given up     └─▶ transition/reshape: advance
//! ```
//!
//! Invariant: the state of a change is in the catalog, so that the next leader of meta continues it; events and
//! attempts are kept in memory only.

mod attempt;
mod driver;
mod events;
mod merge;
mod record;
mod state;

pub(crate) use self::driver::Reshaper;
pub(crate) use self::events::{Reshapes, steps_before};
pub(crate) use self::merge::{holder, may_go};
pub(crate) use self::record::ReshapingForm;
pub(crate) use self::state::{Merging, Reshaping, Splitting, Stage, check_neighbours, cut_inside};
