//! Parts of queries that run where the rows are.
//!
//! ```text
//!   frontend: operators over a scan ── encode ── bytes ──┐
//!                                                        │ FragmentRequest { scan, bytes }
//!   a partition's leader: Worker ── decode ── scan ── operators over each of its streams ── rows
//! ```
//!
//! A **fragment** is a chain of operators over the scan of one partition. Each operator works on one stream at a time:
//! filters, projections, partial aggregates, the first rows in an order, limits. Operators that need all streams (final
//! aggregates, merges, joins) run at the frontend.
//!
//! Invariants:
//! - only those operators run, over one scan, with functions that the node knows: never a file, never a volatile
//!   function;
//! - a decoded fragment is bounded in size and depth, and bytes that are not a fragment are an error;
//! - both ends have the same version, because names and encodings of DataFusion's operators may change;
//! - errors are the same as at the frontend.
//!
//! The crate also has what both ends share: SQL functions and the error of the SQL surface.

#![recursion_limit = "256"]

mod adjusted;
mod aggregates;
pub mod apart;
mod array_nulls;
mod array_texts;
mod arrays;
mod blanks;
mod bounded;
mod buckets;
mod bytea;
pub mod bytes;
pub mod casts;
mod checked;
pub mod civil;
mod clock;
mod concatenation;
mod dates;
mod decimals;
mod differences;
mod digits;
mod division;
mod doubles;
mod encodings;
pub mod error;
mod extremes;
mod float_arithmetic;
mod float_division;
mod folded;
mod fragment;
pub mod functions;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod gathered;
mod group_runs;
mod inner;
mod interval_average;
mod interval_order;
pub mod interval_text;
mod interval_trunc;
mod intervals;
pub mod json;
mod leaf;
mod listed;
mod made_times;
pub mod moments;
mod named_types;
mod number_division;
mod number_text;
mod numbers;
mod only_row;
mod overlaps;
pub mod padded;
mod parts;
mod plain;
mod positions;
mod quoting;
mod regular;
mod renamed;
mod run;
mod runs;
mod service;
mod similar;
mod sleep;
mod sliding;
mod spans;
mod steps;
mod ticks;
mod time_pattern;
mod time_read;
mod times_of_day;
mod to_char;
mod uuids;
pub mod value_text;
mod value_texts;
mod whole;
mod wide;
mod window_keys;
mod words;
mod zone;
pub mod zoned;

pub use partita_lanes as lanes;

pub use adjusted::AdjustedCalls;
pub use array_nulls::ArrayNulls;
pub use array_texts::{ArrayTexts, elements_of, lists_of};
pub use arrays::{AT_FRACTION, MOST_FREQUENT};
pub use bytea::{ByteaLiterals, ByteaTexts, bytes_of};
pub use casts::RoundedCasts;
pub use checked::Checked;
pub use clock::{IN_MICROSECONDS, NOW_ZONE};
pub use concatenation::BoundedConcatenation;
pub use dates::DateArithmetic;
pub use differences::SummedDifferences;
pub use doubles::{ExactNumbers, NearestDoubles, nearest_floats};
pub use encodings::like_pattern;
pub use error::SqlError;
pub use float_arithmetic::OneNan;
pub use float_division::CheckedDivision;
pub use folded::with_bounded_folding;
pub use fragment::{Fragment, encode};
pub use group_runs::GroupRuns;
pub use interval_order::{IntervalOrder, IntervalWindows, total as interval_nanoseconds};
pub use interval_text::ReadIntervals;
pub use intervals::{ROUNDED_INTERVAL, ScaledIntervals};
pub use json::JsonOperators;
pub use leaf::{LeafExec, Renamed};
pub use listed::{ListedValues, NAME as LISTED_VALUE};
pub use only_row::only_row;
pub use padded::FilledTexts;
pub use parts::ExactParts;
pub use regular::pattern as regular_pattern;
pub use service::{MEMORY_BYTES, Worker};
pub use spans::IntervalTexts;
pub use steps::in_utc;
pub use times_of_day::{ROUNDED_TIME, ReadTimes, time_of, time_out_of_range, times_of};
pub use uuids::{UuidFunction, UuidTexts, uuid_of, uuid_texts, uuids_of};
pub use value_texts::{OutputTexts, call_with_zone, cast_texts, text_of};
pub use wide::bounded as with_bounded_constants;
pub use window_keys::{EqualZeros, OrderedZeros};
pub use zone::Zone;

#[cfg(test)]
mod tests;
