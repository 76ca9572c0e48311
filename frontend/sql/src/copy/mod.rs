//! The formats in which COPY transfers rows: text, CSV, binary and NDJSON, input and output.
//!
//! ```text
//!   CopyData ── buffer ── text | csv | binary | ndjson ── Rows (column builders) ── batches of 8,192 rows
//!   batches  ── encode ── one message for each row
//! ```
//!
//! Data arrives in chunks that end anywhere: in the middle of a row, of a quote, of a number's bytes. A decoder keeps
//! an incomplete row, up to [`ROW_BYTES_MAX`]. Errors are PostgreSQL's, with the line and the column. Nothing is
//! skipped: the first wrong row ends the COPY.

mod binary;
mod binary_out;
mod csv;
mod ndjson;
mod numeric;
mod rows;
mod text;
mod text_out;

#[cfg(test)]
mod tests;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use bytes::{Buf, Bytes, BytesMut};
use partita_proto::catalog::Table;
use partita_worker::Zone;

use self::binary::BinaryDecoder;
use self::binary_out::BinaryEncoder;
use self::csv::CsvDecoder;
use self::ndjson::{NdjsonDecoder, NdjsonEncoder};
use self::rows::Rows;
use self::text::TextDecoder;
use self::text_out::TextEncoder;
use super::statement::{CopyFormat, CopyOptions};
use crate::error::SqlError;

/// Maximum bytes of a row: twice the limit for stored rows, to allow for quotes and escapes.
pub const ROW_BYTES_MAX: usize = 32 << 20;

/// SQLSTATE of data that does not have the specified format.
const BAD_COPY_FORMAT: &str = "22P04";

/// The result of decoding the start of the buffer.
enum Decoded {
    /// This many bytes were consumed.
    Used(usize),
    /// The row is incomplete.
    Partial,
    /// The end-of-data mark, of this many bytes.
    End(usize),
}

/// Decodes the bytes of COPY FROM STDIN into batches of a table's columns.
pub struct CopyDecoder {
    form: Form,
    rows: Rows,
    buffer: BytesMut,
    ended: bool,
}

enum Form {
    Text(TextDecoder),
    Csv(CsvDecoder),
    Binary(BinaryDecoder),
    Ndjson(NdjsonDecoder),
}

impl CopyDecoder {
    /// A decoder of rows with these columns of a table, in this order; times without an offset are times in `zone`.
    ///
    /// # Errors
    /// When the table has no such column, or the format is that of a file.
    pub fn new(
        table: &Table,
        columns: &[String],
        format: CopyFormat,
        options: &CopyOptions,
        zone: Zone,
    ) -> Result<Self, SqlError> {
        let form = match format {
            CopyFormat::Text => Form::Text(TextDecoder::new(options)),
            CopyFormat::Csv => Form::Csv(CsvDecoder::new(options, columns)),
            CopyFormat::Binary => Form::Binary(BinaryDecoder::default()),
            CopyFormat::Ndjson => Form::Ndjson(NdjsonDecoder::new(columns)),
            CopyFormat::Parquet => return Err(of_files("parquet")),
        };
        let rows = Rows::new(table, columns, zone)?;
        Ok(Self { form, rows, buffer: BytesMut::new(), ended: false })
    }

    /// Adds bytes; returns the full batches.
    ///
    /// # Errors
    /// The first wrong row. The decoder must not be used afterwards.
    pub fn push(&mut self, data: &[u8]) -> Result<Vec<RecordBatch>, SqlError> {
        self.buffer.extend_from_slice(data);
        self.decode(false)?;
        if self.buffer.len() > ROW_BYTES_MAX {
            return Err(self
                .rows
                .located(SqlError::new("54000", format!("a row exceeds {ROW_BYTES_MAX} bytes"))));
        }
        Ok(self.rows.take_full())
    }

    /// Ends the data; returns the remaining batches.
    ///
    /// # Errors
    /// The first wrong or incomplete row.
    pub fn finish(&mut self) -> Result<Vec<RecordBatch>, SqlError> {
        self.decode(true)?;
        if !self.ended
            && let Form::Binary(_) = self.form
        {
            return Err(self
                .rows
                .located(SqlError::new(BAD_COPY_FORMAT, "unexpected EOF in COPY data")));
        }
        self.rows.take_all()
    }

    /// After an error: the rows before the wrong one that were not returned yet.
    ///
    /// # Errors
    /// When their values do not make a batch.
    pub fn rows_before_error(&mut self) -> Result<Vec<RecordBatch>, SqlError> {
        self.rows.take_all()
    }

    /// Number of decoded rows.
    pub fn rows(&self) -> u64 {
        self.rows.total()
    }

    fn decode(&mut self, last: bool) -> Result<(), SqlError> {
        let mut used = 0;
        let result = loop {
            let rest = &self.buffer[used..];
            if rest.is_empty() {
                break Ok(());
            }
            if self.ended {
                break match &self.form {
                    // As in PostgreSQL: binary data must end at its trailer, text after the mark is ignored.
                    Form::Binary(_) => Err(self.rows.located(SqlError::new(
                        BAD_COPY_FORMAT,
                        "received copy data after EOF marker",
                    ))),
                    Form::Text(_) | Form::Csv(_) | Form::Ndjson(_) => {
                        used = self.buffer.len();
                        Ok(())
                    }
                };
            }
            let result = match &mut self.form {
                Form::Text(text) => text.decode(rest, last, &mut self.rows),
                Form::Csv(csv) => csv.decode(rest, last, &mut self.rows),
                Form::Binary(binary) => binary.decode(rest, &mut self.rows),
                Form::Ndjson(ndjson) => ndjson.decode(rest, last, &mut self.rows),
            };
            match result {
                Ok(Decoded::Used(bytes)) => used += bytes,
                Ok(Decoded::Partial) => break Ok(()),
                Ok(Decoded::End(bytes)) => {
                    used += bytes;
                    self.ended = true;
                }
                Err(error) => break Err(error),
            }
        };
        self.buffer.advance(used);
        result
    }
}

/// Encodes the batches of a query into messages of COPY TO STDOUT.
pub struct CopyEncoder {
    form: OutForm,
    /// Bytes before the first row, until they are sent.
    header: Option<Vec<u8>>,
}

enum OutForm {
    Text(TextEncoder),
    Binary(BinaryEncoder),
    Ndjson(NdjsonEncoder),
}

impl CopyEncoder {
    /// An encoder for rows of a schema; times with a time zone are written in `zone`.
    ///
    /// # Errors
    /// When the binary format has no form for a column's type, or the format is that of a file.
    pub fn new(
        schema: &SchemaRef,
        format: CopyFormat,
        options: &CopyOptions,
        zone: Zone,
    ) -> Result<Self, SqlError> {
        Ok(match format {
            CopyFormat::Text | CopyFormat::Csv => {
                let encoder = TextEncoder::new(schema, format, options, zone);
                let header = encoder.header(schema);
                Self { form: OutForm::Text(encoder), header }
            }
            CopyFormat::Binary => Self {
                form: OutForm::Binary(BinaryEncoder::new(schema)?),
                header: Some(binary::header()),
            },
            CopyFormat::Ndjson => {
                Self { form: OutForm::Ndjson(NdjsonEncoder::new(schema, zone)?), header: None }
            }
            CopyFormat::Parquet => return Err(of_files("parquet")),
        })
    }

    /// One message for each row. A format's header is part of the first row's message, so that messages count rows.
    ///
    /// # Errors
    /// When a value cannot be written in the format.
    pub fn encode(&mut self, batch: &RecordBatch) -> Result<Vec<Bytes>, SqlError> {
        let mut messages = Vec::with_capacity(batch.num_rows());
        let mut row = match &mut self.form {
            OutForm::Text(text) => text.batch(batch)?,
            OutForm::Binary(binary) => binary.batch(batch)?,
            OutForm::Ndjson(ndjson) => ndjson.batch(batch)?,
        };
        for index in 0..batch.num_rows() {
            let mut message = self.header.take().unwrap_or_default();
            row(index, &mut message)?;
            messages.push(Bytes::from(message));
        }
        Ok(messages)
    }

    /// The header, if no row has been sent with it. The binary format's trailer (two bytes 0xFF) is sent by the
    /// protocol library.
    pub fn finish(&mut self) -> Option<Bytes> {
        self.header.take().map(Bytes::from)
    }
}

/// Refuses a format whose end has to be read first.
fn of_files(format: &str) -> SqlError {
    SqlError::unsupported(format!("COPY format \"{format}\" with STDIN or STDOUT")).with_hint(
        "name a file in the directory of --copy-directory, or use partita load and partita dump",
    )
}

/// Appends a row of a batch to a buffer.
type WriteRow<'a> = Box<dyn FnMut(usize, &mut Vec<u8>) -> Result<(), SqlError> + 'a>;
