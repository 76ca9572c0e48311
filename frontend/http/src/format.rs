//! Encodes result rows in the formats of HTTP clients.
//!
//! An [`Encoder`] gets one batch after another and returns bytes as they are complete, so that results of any size
//! stream through bounded memory. Exceptions are documented: a table drawn as text needs all its rows to compute the
//! widths, and is bounded.

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

/// Encodes batches as bytes.
pub(crate) trait Encoder: Send {
    /// The bytes before the first row.
    fn begin(&mut self, schema: &SchemaRef) -> Result<Vec<u8>, ArrowError>;
    /// Encodes the rows of a batch.
    fn rows(&mut self, batch: &RecordBatch) -> Result<Vec<u8>, ArrowError>;
    /// The bytes after the last row.
    fn end(&mut self) -> Result<Vec<u8>, ArrowError>;
}
