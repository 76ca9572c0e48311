//! The nodes of the cluster: who is heard of, what they have, and what follows from it.
//!
//! ```text
//!   heartbeats ─▶ presence ─┐
//!   state ──────────────────┴─▶ View ─▶ plan() ─▶ steps ─▶ recorded moves, changes of leaders, removals
//! ```
//!
//! What nodes say is kept in memory by the member of meta's group that leads, and by no other. A new
//! leader takes every node for live until it has had the time to be heard of.

mod merge;
mod mover;
mod plan;
mod presence;
mod reshape;
mod reshaper;
mod supervisor;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use self::merge::bearer;
pub(crate) use self::mover::Mover;
pub(crate) use self::presence::{Presence, Reports};
pub(crate) use self::reshaper::Reshaper;
pub(crate) use self::supervisor::Supervisor;
