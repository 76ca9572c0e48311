//! Line protocol: text in, Arrow columns out, one batch per measurement.
//!
//! ```text
//!   text -- reader --> scan, number (grammar)     where things are, what they are worth
//!             '------> line --> check (schema)    does the line fit its table?
//!                        '----> table (columns)   store it whole
//! ```
//!
//! Nothing here does I/O. The reader gets the catalog, so that every line is checked against the types of its table,
//! and reports missing columns; the write path (`write.rs`) creates them.

mod check;
mod line;
mod number;
mod precision;
mod reader;
mod reject;
mod scan;
mod table;
#[cfg(test)]
mod tests;

use partita_proto::schema::TableSchema;

pub use precision::{Precision, UnknownPrecision};
pub use reader::{Lines, REJECTIONS_MAX, ReadOptions, SERIES_BYTES_MAX, read};
pub use reject::{Kind, Rejection};
pub use table::TableRows;

impl TableRows {
    /// Returns true if the rows, which were read for an older schema of their table, can be written with this one.
    pub fn fits(&self, schema: &TableSchema) -> bool {
        check::still_fits(schema, self)
    }
}
