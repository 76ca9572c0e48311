//! The picture of a table's load over keys and time.
//!
//! ```text
//!   Report, Event, Finding ──▶ History ──view──▶ Heatmap ──▶ ansi | svg | png | page | JSON
//! ```
//!
//! A [`History`] takes in the load of every partition, second by second, with its known distribution inside the
//! partition. It keeps two weeks in about 7 MB and makes pictures of any part of them. A [`Heatmap`] is such a
//! picture and complete by itself: it can be sent as JSON, and every renderer takes it.
//!
//! Invariants: this crate reads no clock and makes no calls; adding up columns and cutting rows neither loses nor
//! adds load; the output of a renderer depends only on the picture and the options. Only callers know the meaning
//! of keys: they pass a function from a key to SQL values.

mod ansi;
mod colour;
mod diagnosis;
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
pub use diagnosis::{Diagnosis, DiagnosisKind};
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
