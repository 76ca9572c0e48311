//! The nodes of the cluster: who is heard of, what they have, and what follows from it.
//!
//! ```text
//!   heartbeats ─▶ presence ─┐
//!   state ──────────────────┴─▶ View ─▶ plan() ─▶ steps ─▶ recorded moves, changes of leaders, removals
//! ```
//!
//! What nodes say is kept in memory by the member of meta's group that leads, and by no other. A new
//! leader takes every node for live until it has had the time to be heard of.

mod mover;
mod plan;
mod presence;
mod supervisor;
#[cfg(test)]
mod tests;

pub(crate) use self::mover::Mover;
pub(crate) use self::presence::Presence;
pub(crate) use self::supervisor::Supervisor;
