//! Runs tasks: every frontend looks for due windows, and meta gives the lease of a window to one of them.
//!
//! ```text
//!   catalog (tasks, leases) ── turn.rs ──▶ step ──▶ meta ── recorded ──▶ runner.rs ──▶ session of the owner
//!                                                                            │              │
//!                                                               Renew, End ◀─┘     fence.rs: write or refuse
//! ```
//!
//! What holds whatever fails:
//! - meta records the end of a run from the holder of the newest lease only, and no window is run again after that;
//! - a holder begins no write later than [`turn::HOLD_MAX`] after it sent its last recorded renewal, by its own clock;
//! - another frontend takes a lease away only after it has seen no new beat for [`turn::SILENCE_MAX`], by its own clock;
//!   clocks need not show the same time, only run at about the same speed;
//! - a window of which a run was broken off is run again from its start. Rows that were written already are written again
//!   under the same keys; a table in append mode then has them twice.
//!
//! A write that was sent before and is still on its way, or a process that was stopped between the last check and the
//! sending, may reach a node after the lease was lost. It has rows of the same window.

pub(crate) mod fence;
mod lines;
pub(crate) mod outlet;
pub(crate) mod runner;
pub(crate) mod tables;
pub(crate) mod turn;
