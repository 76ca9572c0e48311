//! What meta makes of the load that nodes report: rates, samples of keys, verdicts, and proposals to split, merge and
//! move.
//!
//! ```text
//!   heartbeat ── heard ──▶ ┌────────┐                     catalog ── learn ──▶ (facts)
//!                          │ Keeper │ ── tick ──▶ proposals ──▶ driver: recorded, carried out, told back
//!                          └───┬────┘ ── report ──▶ sys tables
//!                              └── draw ──▶ pictures ── view ──▶ heatmap
//! ```
//!
//! Invariants: all of it is soft state, bounded, of every member of meta's group: nodes beat to all of them, so that one
//! that is elected knows what the load was. Only the one that leads decides, and knows what it has under way and when what
//! last came of it; that is gone when another leads. What is decided is recorded in meta's log before anybody is told.

mod balances;
mod draw;
mod driver;
mod facts;
mod history;
mod keeper;
mod pictures;
mod report;
mod rings;
mod view;

pub(crate) use self::driver::Driver;
pub(crate) use self::keeper::Keeper;
