//! The advisor of schemas: gathers what is known of tables and statements, has the rules of `partita-advice` judge it, and
//! shows the findings (`sys.advice`, `sys.advice_history`, ADVISE, notices of CREATE TABLE). Its thresholds stand in
//! `sys.advice_thresholds`.
//!
//! ```text
//!   catalog, measures ── kept ───────┐
//!   series, load ────────────────────┤
//!   statements, use of indexes ──────┴─ facts ──▶ partita-advice ──▶ table ──▶ sys.advice
//!                                                     │                └─ state: since when, and what was done about it
//!   CREATE TABLE ── notices ──────────────────────────┘
//! ```
//!
//! A look asks each node and meta, and computes again only what has changed: facts of a table when its definition or
//! its measures did (`kept`), its findings when anything did that its rules see ([`partita_advice::Judge`]).

mod facts;
mod kept;
pub(crate) mod notices;
pub(crate) mod state;
pub(crate) mod table;
pub(crate) mod thresholds;

pub(crate) use self::facts::measurements;
