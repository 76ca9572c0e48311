//! Evaluates the load that nodes report: rates, samples of keys, verdicts, and proposals to split, merge and move.
//!
//! ```text
//!   heartbeat ── heard ──▶ ┌────────┐                     catalog ── learn ──▶ (facts)
//!   causes ── blamed ────▶ │ Keeper │ ── tick ──▶ proposals ──▶ driver: recorded, carried out, told back
//!                          └───┬────┘ ── report, forecasts ──▶ sys tables
//!                              └── draw ──▶ pictures ── view ──▶ heatmap
//! ```
//!
//! Invariants: all of it is bounded soft state that every member of meta's group keeps: nodes send heartbeats to
//! all members, so a newly elected leader knows the earlier load. Pictures, history and forecasts outlive a restart in
//! files of each member (`files.rs`). Only the leader decides, and only it knows the actions under way and their latest
//! results; these are lost when the leader changes. Decisions are recorded in meta's log before any order to a node.

mod balances;
mod causes;
mod draw;
mod driver;
mod facts;
mod files;
mod followers;
mod forecasts;
mod history;
mod keeper;
mod kept;
mod key_text;
mod pictures;
mod report;
mod rings;
mod rotations;
mod spread;
mod view;

pub(crate) use self::driver::Driver;
pub(crate) use self::files::LoadFiles;
pub(crate) use self::keeper::Keeper;
pub(crate) use self::kept::restore;
pub(crate) use self::spread::spreading;
