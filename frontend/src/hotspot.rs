//! The cause of a hot table and the DDL against it: `EXPLAIN HOTSPOT`, and the advice of `sys.hot_partitions`.
//!
//! ```text
//!   meta's report (verdict, evidence, sampled keys) ─┬─ class: what a verdict means
//!                                                    └─ replay: samples as rows ─▶ designs, ranked (partita-load)
//!                                                       ddl: a design as statements  ◀──┘
//! ```
//!
//! Invariants: pure functions of the table, the report and the samples; every advised statement is accepted by this
//! version.

pub(crate) mod class;
pub(crate) mod ddl;
pub(crate) mod replay;
pub(crate) mod shown;
