//! The picture of a table's load over keys and time.
//!
//! ```text
//!   Report, Event, Finding ──▶ History ──view──▶ Heatmap ──▶ ansi | svg | png | page | JSON
//! ```
//!
//! A [`History`] takes the load of every partition in, second by second, with what is known of where in the partition it
//! lay, keeps it for two weeks in about 7 MB, and gives pictures of any part of it. A [`Heatmap`] is such a picture, on
//! its own: it can be sent as JSON, and every renderer takes it.
//!
//! Invariants: nothing here reads a clock or speaks to anybody; load is neither lost nor made up when columns are added
//! up and rows are cut; what a renderer writes depends on the picture and its options only. What keys mean is known to the
//! callers, who pass a function from a key to SQL values.

mod ansi;
mod colour;
mod intensity;
mod matrix;
mod metric;
mod number;

mod page;
mod picture;
mod png;
mod scene;
mod svg;
mod wording;

pub use ansi::{Ansi, Ink, ansi};
pub use colour::{Rgb, Theme};
pub use intensity::Mode;
pub use matrix::{
    Event, Finding, History, Key, LAYERS, Layer, MarkKind, PartitionLoad, ROWS_MAX, Report, Shares,
    View, key_of_hex,
};
pub use metric::{METRICS, Metric};

pub use page::page;
pub use picture::{Balance, Bound, Heatmap, Mark, Row, TableList, TableSummary, VerdictNote};
pub use png::{PngError, png};
pub use scene::Style;
pub use svg::svg;
