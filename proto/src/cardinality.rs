//! The number of series: how many combinations of tag values and fields a table has.
//!
//! ```text
//!   rows ── SeriesSketch (one per file and memtable) ── merge ── per partition, per table ── Cardinality
//! ```
//!
//! A series, as InfluxDB counts them, is a combination of a table, the values of its tags (the key without the time
//! index) and one field that has a value. Tables without a time index have no series. A [`SeriesSketch`] has a bounded
//! size, whatever it has seen, and two of them merge into the sketch of all rows of both. [`Cardinality`] is computed
//! from it without reading a row.

mod distinct;
mod estimate;
mod sketch;

pub use distinct::Distinct;
pub use estimate::{Cardinality, TagCardinality, product};
pub(crate) use sketch::{Partner, SERIES_PRECISION, TagSketch, VALUE_PRECISION};
pub use sketch::{SAMPLED_TAGS_MAX, SeriesSketch, TagSetRows, tag_sets};
