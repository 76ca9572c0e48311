//! The rows being decoded: a builder for each column, and the current line of the data.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::{Field, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use partita_proto::catalog::Table;
use partita_proto::schema::{ColumnType, JsonType};
use partita_worker::Zone;
use partita_worker::bytes::sent_text;

use super::BAD_COPY_FORMAT;
use crate::column_builder::ColumnBuilder;
use crate::error::SqlError;

/// Maximum rows of a batch.
const BATCH_ROWS: usize = 8192;
/// Bytes of input after which a batch is full, whatever its number of rows.
const BATCH_BYTES: usize = 4 << 20;

pub(super) struct Rows {
    table: String,
    names: Vec<String>,
    builders: Vec<ColumnBuilder>,
    /// Types of the columns that are JSON.
    json: Vec<Option<JsonType>>,
    schema: SchemaRef,
    /// Rows in the builders.
    count: usize,
    /// Approximate bytes of input in the builders.
    bytes: usize,
    total: u64,
    /// The line (in binary: the row) that is being decoded, from 1.
    line: u64,
    full: Vec<RecordBatch>,
}

impl Rows {
    pub(super) fn new(table: &Table, columns: &[String], zone: Zone) -> Result<Self, SqlError> {
        let mut builders = Vec::with_capacity(columns.len());
        let mut fields = Vec::with_capacity(columns.len());
        let mut json = Vec::with_capacity(columns.len());
        for name in columns {
            let column = table
                .schema
                .column(name)
                .ok_or_else(|| SqlError::undefined_column(name, &table.name))?;
            builders.push(ColumnBuilder::new(column.column_type, zone));
            fields.push(Field::new(name, column.column_type.arrow(), true));
            json.push(column.json);
        }
        Ok(Self {
            table: table.name.clone(),
            names: columns.to_vec(),
            builders,
            json,
            schema: Arc::new(Schema::new(fields)),
            count: 0,
            bytes: 0,
            total: 0,
            line: 1,
            full: Vec::new(),
        })
    }

    /// Number of columns.
    pub(super) fn width(&self) -> usize {
        self.builders.len()
    }

    /// True if the column is JSONB.
    pub(super) fn is_jsonb(&self, column: usize) -> bool {
        self.json.get(column) == Some(&Some(JsonType::Jsonb))
    }

    /// True if the column has arrays.
    pub(super) fn is_array(&self, column: usize) -> bool {
        let builder = self.builders.get(column);
        builder.is_some_and(|builder| matches!(builder.column_type(), ColumnType::Array(_)))
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    pub(super) fn append_null(&mut self, column: usize) {
        self.builders[column].append_null();
    }

    pub(super) fn append_text(&mut self, column: usize, text: &str) -> Result<(), SqlError> {
        match self.builders[column].append_text(text, true) {
            Ok(()) => Ok(()),
            Err(error) => Err(self.located_at(error, column)),
        }
    }

    /// Appends a value with a method of the column's builder.
    pub(super) fn append(
        &mut self,
        column: usize,
        append: impl FnOnce(&mut ColumnBuilder) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        match append(&mut self.builders[column]) {
            Ok(()) => Ok(()),
            Err(error) => Err(self.located_at(error, column)),
        }
    }

    /// Ends a row of this many input bytes and lines.
    pub(super) fn end_row(&mut self, bytes: usize, lines: u64) -> Result<(), SqlError> {
        self.count += 1;
        self.total += 1;
        self.bytes += bytes;
        self.line += lines;
        if self.count >= BATCH_ROWS || self.bytes >= BATCH_BYTES {
            self.seal()?;
        }
        Ok(())
    }

    /// Counts lines that are not rows.
    pub(super) fn skip_lines(&mut self, lines: u64) {
        self.line += lines;
    }

    fn seal(&mut self) -> Result<(), SqlError> {
        let mut arrays: Vec<ArrayRef> =
            self.builders.iter_mut().map(ColumnBuilder::finish).collect::<Result<_, _>>()?;
        // The row that ended the data with an error has some of its values.
        for array in arrays.iter_mut().filter(|array| array.len() > self.count) {
            *array = array.slice(0, self.count);
        }
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(self.count));
        let schema = Arc::clone(&self.schema);
        self.full.push(RecordBatch::try_new_with_options(schema, arrays, &options)?);
        self.count = 0;
        self.bytes = 0;
        Ok(())
    }

    /// Removes and returns the full batches.
    pub(super) fn take_full(&mut self) -> Vec<RecordBatch> {
        std::mem::take(&mut self.full)
    }

    /// Removes and returns all batches, the last one included.
    pub(super) fn take_all(&mut self) -> Result<Vec<RecordBatch>, SqlError> {
        if self.count > 0 {
            self.seal()?;
        }
        Ok(self.take_full())
    }

    /// Adds the line to an error.
    pub(super) fn located(&self, error: SqlError) -> SqlError {
        if error.detail.is_some() {
            return error;
        }
        error.with_detail(format!("COPY {}, line {}", self.table, self.line))
    }

    /// Adds the line and the column to an error.
    pub(super) fn located_at(&self, error: SqlError, column: usize) -> SqlError {
        if error.detail.is_some() {
            return error;
        }
        let name = self.names.get(column).map_or("?", String::as_str);
        error.with_detail(format!("COPY {}, line {}, column {name}", self.table, self.line))
    }

    /// The error of a row with too few fields.
    pub(super) fn missing(&self, column: usize) -> SqlError {
        let name = self.names.get(column).map_or("?", String::as_str);
        self.located(SqlError::new(BAD_COPY_FORMAT, format!("missing data for column \"{name}\"")))
    }

    /// The error of a row with too many fields.
    pub(super) fn extra(&self) -> SqlError {
        self.located(SqlError::new(BAD_COPY_FORMAT, "extra data after last expected column"))
    }

    /// The error of a row that names another column.
    pub(super) fn unknown(&self, name: &str) -> SqlError {
        self.located(SqlError::undefined_column(name, &self.table))
    }

    /// The bytes as text.
    pub(super) fn utf8<'t>(&self, bytes: &'t [u8]) -> Result<&'t str, SqlError> {
        sent_text(bytes).map_err(|error| self.located(error))
    }

    /// Checks that a header has the names of the columns.
    pub(super) fn check_header(&self, header: &[String]) -> Result<(), SqlError> {
        if header.len() != self.names.len() {
            return Err(self.located(SqlError::new(
                BAD_COPY_FORMAT,
                format!(
                    "wrong number of fields in header line: got {}, expected {}",
                    header.len(),
                    self.names.len()
                ),
            )));
        }
        match header.iter().zip(&self.names).find(|(name_in_header, name)| name_in_header != name) {
            None => Ok(()),
            Some((name_in_header, name)) => Err(self.located(SqlError::new(
                BAD_COPY_FORMAT,
                format!(
                    "column name mismatch in header line: got \"{name_in_header}\", expected \"{name}\""
                ),
            ))),
        }
    }
}
