//! The cause of a hot table and the DDL against it: `EXPLAIN HOTSPOT`, and the advice of `sys.hot_partitions`.
//!
//! ```text
//!   meta's report (standing, verdict, evidence, samples, causes) ─┬─ shown ─▶ EXPLAIN HOTSPOT
//!   statements of the table ──────────────────────────────────────┴─ cure ──▶ advice
//!                                  partita-advice: designs, words, DDL  ▲
//! ```
//!
//! Invariants: pure functions of the table, the report and the statements; the standing decides if a table is hot, and
//! only a hot one gets advice; every advised statement is accepted by this version, and is safe beside writers.

mod causes;
mod cure;
pub(crate) mod shown;

pub(crate) use partita_advice::designs::words as class;

pub(crate) use self::causes::cause_text;
pub(crate) use self::cure::{advice, unless_rekeyed};
pub(crate) use self::shown::{evidence_json, explain_hotspot};
