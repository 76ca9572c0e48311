//! Workloads: what is asked of tables, as densities over keys and times, and as streams of operations.
//!
//! ```text
//!   Part (a column) ──▶ Law (a key) ──▶ Source (rate, kind) ──▶ TableLoad ──▶ the fluid:  share of [a, b) at t
//!                                                                        └──▶ a Stream of operations ──▶ a trace
//! ```
//!
//! Invariants: everything follows from names, numbers and a seed; keys are encoded so that bytes compare as values do.

mod catalogue;
mod design;
mod law;
mod listed;
mod part;
mod rate;
mod rows;
mod source;
mod stamp;
mod table;
mod trace;

pub use catalogue::{Knobs, Workload, all, background, find};
pub use design::{Design, Shape};
pub use part::SECOND_US;
pub use rate::Rate;
pub use rows::{Cuts, Row, Rows};
pub use source::{Kind, Source, Stream};
pub use table::{Events, Spread, TableLoad};
pub use trace::{Reader, TraceError, Writer};

pub(crate) use catalogue::BEGIN_S;
pub(crate) use design::keys;
pub(crate) use law::columns_of;
pub(crate) use listed::bucket_of;
pub(crate) use stamp::BEGIN_US;
