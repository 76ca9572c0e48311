//! Key designs of a table that is loaded unevenly: which one carries the load, and the statements that lead to it.
//!
//! ```text
//!   meta's report (load, sampled keys) ─┐
//!   statements of the table ────────────┴─ replay: samples as rows ─▶ designs, ranked (partita-load)
//!                                          ddl: a design as statements  ◀──┘
//!   verdict ─▶ words: meaning and remedy of a class
//! ```
//!
//! EXPLAIN HOTSPOT, `sys.hot_partitions`, `sys.advice`, errors of overload and the console say the same, because all of
//! them ask here.
//!
//! Invariants: pure functions of the table, the report and the statements; every printed statement is accepted by this
//! version, and loses no row beside writers.

mod ddl;
mod replay;
pub mod words;

pub use self::ddl::{bound_text, clauses, placed, qualified_statements, split, statements};
pub use self::replay::{Found, mean_cost, replay, today};
pub use crate::ddl::Script;
