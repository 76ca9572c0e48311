//! Workloads: the demand on tables, as densities over keys and times, and as streams of operations.
//!
//! ```text
//!   Part (a column) ──▶ Law (a key) ──▶ Source (rate, kind) ──▶ TableLoad ──▶ the fluid:  share of [a, b) at t
//!                                                                        ├──▶ a Stream of operations ──▶ a trace
//!                                                                        └──▶ SQL: CREATE TABLE, INSERT, SELECT
//! ```
//!
//! Invariants: everything follows from names, numbers and a seed; encoded keys compare like their values.

mod catalogue;
mod design;
mod lacking;
mod law;
mod listed;
mod part;
mod rate;
mod shows;
mod source;
mod sql;
mod stamp;
mod table;
mod trace;

pub use crate::streams::Op;
pub use catalogue::{Knobs, RECORDS, Workload, all, background, find, group};
pub use design::{Design, Shape};
pub use lacking::lacking;
pub use part::SECOND_US;
pub use rate::Rate;
pub use source::{Kind, Source, Stream};
pub use sql::{Row, SqlTable};
pub use table::{Events, Mix, Spread, TableLoad};
pub use trace::{Reader, TraceError, Writer};

pub(crate) use catalogue::BEGIN_S;
pub(crate) use design::keys;
pub(crate) use law::columns_of;
pub(crate) use listed::bucket_of;
pub(crate) use stamp::BEGIN_US;
