//! The rows being decoded: a builder for each column, and where in the data we are.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{Field, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use partita_proto::catalog::Table;
use partita_worker::Zone;

use super::BAD_COPY_FORMAT;
use crate::error::SqlError;
use crate::sql::column_builder::ColumnBuilder;

/// Rows of a batch.
const BATCH_ROWS: usize = 8192;
/// Bytes of data after which a batch is full, however few its rows are.
const BATCH_BYTES: usize = 4 << 20;

pub(super) struct Rows {
    table: String,
    names: Vec<String>,
    builders: Vec<ColumnBuilder>,
    schema: SchemaRef,
    /// Rows in the builders.
    count: usize,
    /// Bytes of data in the builders, about.
    bytes: usize,
    total: u64,
    /// The line (of binary: the row) that is being decoded, from 1.
    line: u64,
    full: Vec<RecordBatch>,
}

impl Rows {
    pub(super) fn new(table: &Table, columns: &[String], zone: Zone) -> Result<Self, SqlError> {
        let mut builders = Vec::with_capacity(columns.len());
        let mut fields = Vec::with_capacity(columns.len());
        for name in columns {
            let column = table
                .schema
                .column(name)
                .ok_or_else(|| SqlError::undefined_column(name, &table.name))?;
            builders.push(ColumnBuilder::new(column.column_type, zone));
            fields.push(Field::new(name, column.column_type.arrow(), true));
        }
        Ok(Self {
            table: table.name.clone(),
            names: columns.to_vec(),
            builders,
            schema: Arc::new(Schema::new(fields)),
            count: 0,
            bytes: 0,
            total: 0,
            line: 1,
            full: Vec::new(),
        })
    }

    /// How many columns a row has.
    pub(super) fn width(&self) -> usize {
        self.builders.len()
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

    /// Appends by the builder's own means.
    pub(super) fn append(
        &mut self,
        column: usize,
        with: impl FnOnce(&mut ColumnBuilder) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        match with(&mut self.builders[column]) {
            Ok(()) => Ok(()),
            Err(error) => Err(self.located_at(error, column)),
        }
    }

    /// Ends the row, which took so many bytes and lines.
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

    /// Counts lines that are no rows.
    pub(super) fn skip_lines(&mut self, lines: u64) {
        self.line += lines;
    }

    fn seal(&mut self) -> Result<(), SqlError> {
        let arrays: Vec<ArrayRef> =
            self.builders.iter_mut().map(ColumnBuilder::finish).collect::<Result<_, _>>()?;
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(self.count));
        let schema = Arc::clone(&self.schema);
        self.full.push(RecordBatch::try_new_with_options(schema, arrays, &options)?);
        self.count = 0;
        self.bytes = 0;
        Ok(())
    }

    /// The batches that are full.
    pub(super) fn take_full(&mut self) -> Vec<RecordBatch> {
        std::mem::take(&mut self.full)
    }

    /// All batches.
    pub(super) fn take_all(&mut self) -> Result<Vec<RecordBatch>, SqlError> {
        if self.count > 0 {
            self.seal()?;
        }
        Ok(self.take_full())
    }

    /// An error with where it is.
    pub(super) fn located(&self, error: SqlError) -> SqlError {
        if error.detail.is_some() {
            return error;
        }
        error.with_detail(format!("COPY {}, line {}", self.table, self.line))
    }

    /// An error with where it is, down to the column.
    pub(super) fn located_at(&self, error: SqlError, column: usize) -> SqlError {
        if error.detail.is_some() {
            return error;
        }
        let name = self.names.get(column).map_or("?", String::as_str);
        error.with_detail(format!("COPY {}, line {}, column {name}", self.table, self.line))
    }

    /// The error of a row that ends before its columns do.
    pub(super) fn missing(&self, column: usize) -> SqlError {
        let name = self.names.get(column).map_or("?", String::as_str);
        self.located(SqlError::new(BAD_COPY_FORMAT, format!("missing data for column \"{name}\"")))
    }

    /// The error of a row that goes on behind its columns.
    pub(super) fn extra(&self) -> SqlError {
        self.located(SqlError::new(BAD_COPY_FORMAT, "extra data after last expected column"))
    }

    /// The bytes as text.
    pub(super) fn utf8<'t>(&self, bytes: &'t [u8]) -> Result<&'t str, SqlError> {
        std::str::from_utf8(bytes).map_err(|_| {
            self.located(SqlError::new("22021", "invalid byte sequence for encoding \"UTF8\""))
        })
    }

    /// Checks that a header names the columns.
    pub(super) fn check_header(&self, found: &[String]) -> Result<(), SqlError> {
        if found.len() != self.names.len() {
            return Err(self.located(SqlError::new(
                BAD_COPY_FORMAT,
                format!(
                    "wrong number of fields in header line: got {}, expected {}",
                    found.len(),
                    self.names.len()
                ),
            )));
        }
        match found.iter().zip(&self.names).find(|(found, name)| found != name) {
            None => Ok(()),
            Some((found, name)) => Err(self.located(SqlError::new(
                BAD_COPY_FORMAT,
                format!(
                    "column name mismatch in header line: got \"{found}\", expected \"{name}\""
                ),
            ))),
        }
    }
}
