//! Separate threads for each statement, so that no statement can delay anything else.
//!
//! ```text
//!   home runtime: doors, Raft, RPC, health         lanes: one statement each
//!   ┌──────────────────────────────────┐  enter   ┌─────────────────────────────┐
//!   │ read a message, wait, answer     │ ───────▶ │ parse, plan, execute        │
//!   │ time-outs, cancel requests       │ ─ raise ▶│ check() between its steps   │
//!   └──────────────────────────────────┘ ◀─ rows ─└─────────────────────────────┘
//! ```
//!
//! A **lane** is a small tokio runtime. One statement has it to itself from [`Lanes::enter`] until its
//! [`Lane`] is dropped, so a computation that never yields keeps the threads of its own statement busy and no
//! others: the kernel shares the cores between lanes. InfluxDB's IOx and others give DataFusion one runtime
//! for all queries; there two queries that do not yield stop every other query.
//!
//! - **Admission** ([`admission`]): a bounded number of statements computes at a time, the others wait in order. A
//!   statement starts in the short class and moves to the long class after [`LaneOptions::short_time`], so that
//!   long statements do not occupy the places of light ones.
//! - **Priority**: the threads of a long statement get a lower scheduling priority.
//! - **Interruption** ([`interrupt`]): the caller that waits for a statement raises a reason, and code in the lane
//!   calls [`interrupt::check`] between its steps. The caller does not wait for that.
//! - **Stack**: threads of a lane have [`LaneOptions::stack_bytes`] of address space, because planning walks
//!   trees by recursion.
//!
//! Invariants:
//! - two statements never share a lane at a time;
//! - a lane is used again only after all tasks of its former statement have ended;
//! - a statement that waits for its client holds no place.

pub mod admission;
pub mod interrupt;
mod lane;
mod lanes;
mod priority;
#[cfg(test)]
mod tests;

pub use interrupt::Reason;
pub use lane::{Lane, LaneError, Pause, current, pause};
pub use lanes::{LaneOptions, LaneStats, Lanes, Refusal};
