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
//! Invariants: all of it is soft state of the process that leads meta's group, bounded, and gone when another leads; that
//! one knows as much again within a minute. What is decided is recorded in meta's log before anybody is told.

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
