//! Result rows as bytes of the formats that HTTP clients ask for.
//!
//! An [`Encoder`] is given batch after batch and hands out bytes as they become ready, so that a
//! result of any size streams through bounded memory. The exceptions say so: a table drawn for people
//! needs all its rows to know its widths, and is bounded.

mod greptime;
mod influx;
mod shown;
mod stream;

use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;

pub(crate) use greptime::{GreptimeRows, InfluxV1Rows};
pub(crate) use influx::{Csv, CsvNames, IpcStream, JsonArray, JsonLines, Parquet, Pretty};
pub(crate) use stream::{Encoded, body_of, first_batch};

/// Makes bytes of batches.
pub(crate) trait Encoder: Send {
    /// What comes before the first row.
    fn begin(&mut self, schema: &SchemaRef) -> Result<Vec<u8>, ArrowError>;
    /// Rows.
    fn rows(&mut self, batch: &RecordBatch) -> Result<Vec<u8>, ArrowError>;
    /// What comes behind the last row.
    fn end(&mut self) -> Result<Vec<u8>, ArrowError>;
}
