//! The nodes of the cluster: which are live, which replicas they have, and what has to change.
//!
//! ```text
//!   heartbeats ─▶ presence ─┐
//!   state ──────────────────┴─▶ View ─▶ plan() ─▶ steps ─▶ recorded moves, changes of leaders, removals
//! ```
//!
//! Only the leader of meta's group keeps the nodes' reports, in memory. A new leader takes every node for live for
//! a lease after it began to lead.

mod mover;
mod plan;
mod presence;
mod supervisor;
#[cfg(test)]
mod tests;

pub(crate) use self::mover::Mover;
pub(crate) use self::presence::{Presence, Reports};
pub(crate) use self::supervisor::Supervisor;
