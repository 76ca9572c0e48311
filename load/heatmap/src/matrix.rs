//! The history of a table's load: its input ([`Report`]), its storage ([`History`]), and how a part of it becomes a
//! picture (`view`).

mod axis;
mod block;
mod history;
mod notes;
mod report;
mod rows;
mod view;

#[cfg(test)]
mod tests;

pub use block::ROWS_MAX;
pub use history::{Event, Finding, History, LAYERS, Layer, MarkKind};
pub use report::{Key, PartitionLoad, Report, Shares, key_of_hex};
pub use view::View;
