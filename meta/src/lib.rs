//! The meta service keeps the catalog: databases, tables and their partition maps, and all ids. It sends orders to
//! the nodes until they have the replicas in the catalog.
//!
//! ```text
//!   frontend ── change(ddl) ──▶ service ── propose ──▶ group 0 of the node's log
//!      ▲                           ▲                        │ committed
//!      │ watch                     │ waits                  ▼
//!   published catalog ◀────────  machine: decide ─▶ edits ─▶ store (sled), copies ─▶ state
//!                                                                             │ pending tables
//!   datanodes ◀── open, drop, alter, truncate ── ddl_driver ◀── plan: orders ─┤
//!       │                                            └── propose: finished, or given up
//!       └── heartbeats ─▶ presence ─▶ supervisor ◀── cluster/plan: moves ────────┘
//!                                        └── propose: to move, moved; to split, split; ...
//! ```
//!
//! Invariants:
//! - the catalog changes by entries of the log only, and the same log makes the same catalog;
//! - a change is recorded before any node gets an order for it, and published after all nodes have carried it out; a
//!   drop is published first;
//! - ids are never used again.
//!
//! The decisions (`transition`, `create`, `alter`, `plan`) are pure; effects are at the edges
//! (`machine`, `ddl_driver`, `service`).

mod admin;
mod alter;
mod catalog;
mod cluster;
mod command;
mod copies;
mod core;
mod create;
mod ddl_driver;
mod error;
mod expression;
mod identities;
mod leadership;
mod load;
mod machine;
mod membership;
mod memory_store;
mod node;
mod opening;
mod orders;
mod patience;
mod plan;
mod progress;
mod publish;
mod record;
mod reshape;
mod service;
mod sled_store;
mod store;
#[cfg(test)]
mod tests;
mod transfer;
mod transition;
mod zones;

pub use self::core::{MetaOptions, TABLES_PER_DATABASE};
pub use error::MetaError;
pub use memory_store::MemoryStore;
pub use node::Meta;
pub use opening::StoreOpening;
