//! The formats of InfluxDB 3's query endpoints: JSON, JSON lines, CSV, Parquet and a table drawn as text; and Arrow's
//! stream.
//!
//! JSON omits NULLs; timestamps are written without a zone (they are UTC), as in InfluxDB 3.

use std::io::Write;
use std::sync::Arc;

use arrow::csv;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::writer::StreamWriter;
use arrow::json::{ArrayWriter, LineDelimitedWriter};
use arrow::record_batch::RecordBatch;
use arrow::util::pretty::pretty_format_batches;
use parking_lot::Mutex;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use partita_proto::size::batch_bytes;

use super::Encoder;
use super::shown::{check_shown, with_array_texts, with_texts};

/// Maximum memory of the rows of one drawn table.
const PRETTY_BYTES_MAX: usize = 32 << 20;
/// Rows of a row group in a Parquet response; rows of an unfinished group are in memory.
const ROW_GROUP_ROWS: usize = 128 << 10;

/// `[{...},{...}]`.
#[derive(Default)]
pub(crate) struct JsonArray {
    rows_before: bool,
}

impl Encoder for JsonArray {
    fn begin(&mut self, _: &SchemaRef) -> Result<Vec<u8>, ArrowError> {
        Ok(b"[".to_vec())
    }

    fn rows(&mut self, batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
        check_shown(batch)?;
        let batch = &with_texts(batch)?;
        let mut writer = ArrayWriter::new(Vec::new());
        writer.write(batch)?;
        writer.finish()?;
        let mut bytes = writer.into_inner();
        // The writer makes an array of each batch: the brackets are removed, and a comma joins the batches.
        if bytes.pop() != Some(b']') || bytes.first() != Some(&b'[') {
            return Ok(Vec::new());
        }
        if self.rows_before {
            bytes[0] = b',';
        } else {
            bytes.remove(0);
        }
        self.rows_before = true;
        Ok(bytes)
    }

    fn end(&mut self) -> Result<Vec<u8>, ArrowError> {
        Ok(b"]".to_vec())
    }
}

/// One object per line.
#[derive(Default)]
pub(crate) struct JsonLines;

impl Encoder for JsonLines {
    fn begin(&mut self, _: &SchemaRef) -> Result<Vec<u8>, ArrowError> {
        Ok(Vec::new())
    }

    fn rows(&mut self, batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
        check_shown(batch)?;
        let batch = &with_texts(batch)?;
        let mut writer = LineDelimitedWriter::new(Vec::new());
        writer.write(batch)?;
        writer.finish()?;
        Ok(writer.into_inner())
    }

    fn end(&mut self) -> Result<Vec<u8>, ArrowError> {
        Ok(Vec::new())
    }
}

/// The header of a CSV response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CsvNames {
    /// No header.
    None,
    /// The names of the columns.
    Names,
}

/// Comma-separated values.
pub(crate) struct Csv(pub(crate) CsvNames);

impl Csv {
    fn write(batch: &RecordBatch, header: bool) -> Result<Vec<u8>, ArrowError> {
        let mut bytes = Vec::new();
        let mut writer = csv::WriterBuilder::new().with_header(header).build(&mut bytes);
        writer.write(&with_array_texts(batch)?)?;
        drop(writer);
        Ok(bytes)
    }
}

impl Encoder for Csv {
    fn begin(&mut self, schema: &SchemaRef) -> Result<Vec<u8>, ArrowError> {
        if self.0 == CsvNames::None {
            return Ok(Vec::new());
        }
        Self::write(&RecordBatch::new_empty(Arc::clone(schema)), true)
    }

    fn rows(&mut self, batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
        check_shown(batch)?;
        Self::write(&with_texts(batch)?, false)
    }

    fn end(&mut self) -> Result<Vec<u8>, ArrowError> {
        Ok(Vec::new())
    }
}

/// A buffer that a writer fills and an encoder empties.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Shared {
    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.lock())
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A Parquet file.
#[derive(Default)]
pub(crate) struct Parquet {
    buffer: Shared,
    writer: Option<ArrowWriter<Shared>>,
}

impl Encoder for Parquet {
    fn begin(&mut self, schema: &SchemaRef) -> Result<Vec<u8>, ArrowError> {
        let properties = WriterProperties::builder()
            .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
            .set_compression(parquet::basic::Compression::SNAPPY)
            .build();
        let writer =
            ArrowWriter::try_new(self.buffer.clone(), Arc::clone(schema), Some(properties))?;
        self.writer = Some(writer);
        Ok(self.buffer.take())
    }

    fn rows(&mut self, batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
        if let Some(writer) = &mut self.writer {
            writer.write(batch)?;
        }
        Ok(self.buffer.take())
    }

    fn end(&mut self) -> Result<Vec<u8>, ArrowError> {
        if let Some(writer) = self.writer.take() {
            writer.close()?;
        }
        Ok(self.buffer.take())
    }
}

/// Arrow's stream format.
#[derive(Default)]
pub(crate) struct IpcStream {
    buffer: Shared,
    writer: Option<StreamWriter<Shared>>,
}

impl Encoder for IpcStream {
    fn begin(&mut self, schema: &SchemaRef) -> Result<Vec<u8>, ArrowError> {
        self.writer = Some(StreamWriter::try_new(self.buffer.clone(), schema)?);
        Ok(self.buffer.take())
    }

    fn rows(&mut self, batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
        if let Some(writer) = &mut self.writer {
            writer.write(batch)?;
        }
        Ok(self.buffer.take())
    }

    fn end(&mut self) -> Result<Vec<u8>, ArrowError> {
        if let Some(mut writer) = self.writer.take() {
            writer.finish()?;
        }
        Ok(self.buffer.take())
    }
}

/// A table drawn with lines, for terminals.
#[derive(Default)]
pub(crate) struct Pretty {
    batches: Vec<RecordBatch>,
    bytes: usize,
}

impl Encoder for Pretty {
    fn begin(&mut self, schema: &SchemaRef) -> Result<Vec<u8>, ArrowError> {
        self.batches.push(with_texts(&RecordBatch::new_empty(Arc::<Schema>::clone(schema)))?);
        Ok(Vec::new())
    }

    fn rows(&mut self, batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
        check_shown(batch)?;
        self.bytes += batch_bytes(batch);
        if self.bytes > PRETTY_BYTES_MAX {
            return Err(ArrowError::InvalidArgumentError(
                "the result is too large for the table format; use LIMIT or another format"
                    .to_owned(),
            ));
        }
        self.batches.push(with_texts(batch)?);
        Ok(Vec::new())
    }

    fn end(&mut self) -> Result<Vec<u8>, ArrowError> {
        let mut text = pretty_format_batches(&self.batches)?.to_string();
        text.push('\n');
        Ok(text.into_bytes())
    }
}
