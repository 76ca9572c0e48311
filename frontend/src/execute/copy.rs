//! COPY: rows from the client or for it, and files below the server's directory for them.
//!
//! ```text
//!   file ─┬─ text, CSV, binary, NDJSON ── CopyDecoder ─┬─ Intake ── Frontend::ingest_for
//!         └─ Parquet ── batches ───────────────────────┘
//!   query ── batches ──┬─ CopyEncoder ──┬─ new file ── rename
//!                      └─ ArrowWriter ──┘
//! ```
//!
//! COPY FROM is not one transaction: batches take effect as they are read. When a row is refused, all rows before it are
//! stored, and the error's detail has its number and theirs.

use std::fs::File;
use std::io::{BufWriter, ErrorKind, Read, Write};
use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use futures::StreamExt;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::arrow::{ArrowWriter, ProjectionMask};
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use partita_proto::access::{Action, Need};
use partita_proto::catalog::Table;
use partita_proto::schema::{Column, ColumnType};
use partita_sql::copy::{CopyDecoder, CopyEncoder};
use partita_sql::shown_names::shown_name;
use partita_sql::statement::{CopyFormat, CopyFrom, CopyTo};

use super::assigned::assignable;
use super::executed::Executed;
use super::insert::target_columns;
use super::observe::CopyLog;
use crate::copies::refused::check_no_copy;
use crate::error::{DATATYPE_MISMATCH, INVALID_PARAMETER_VALUE, SqlError};
use crate::files::{self, CopyDirectory, NewFile};
use crate::output::{CopyIn, CopyOut, Output, with_stored_rows};
use crate::session::Session;

/// Command tag, and kind of the cause of rows.
const COPY: &str = "COPY";
/// Bytes of a file that are read or written at a time.
const CHUNK_BYTES: usize = 256 << 10;
/// Rows of Parquet that are decoded at a time.
const BATCH_ROWS: usize = 4096;
/// Rows of a row group of a file that is written.
const ROW_GROUP_ROWS: usize = 1 << 20;
/// Bytes after which a row group is written, whatever its number of rows.
const ROW_GROUP_BYTES: usize = 64 << 20;
/// SQLSTATE of a file that does not have the specified format.
const BAD_COPY_FORMAT: &str = "22P04";
/// The trailer of the binary format: a row of -1 columns.
const BINARY_TRAILER: [u8; 2] = [0xff, 0xff];

impl Session {
    /// Asks the client for rows, or stores those of a file.
    pub(super) async fn copy_from(&self, copy: &CopyFrom) -> Result<Output, SqlError> {
        let table = self.table(&copy.table)?;
        check_no_copy(&self.catalog(), &table)?;
        let columns = target_columns(&table, copy.columns.as_deref())?;
        let Some(path) = &copy.file else {
            return Ok(Output::CopyIn(CopyIn {
                columns: columns.into_iter().map(|column| column.name.clone()).collect(),
                format: copy.format,
                options: copy.options.clone(),
                zone: self.zone(),
                log: CopyLog::default(),
                viewer: Arc::clone(self.viewer()),
                table,
            }));
        };
        let file = self.copy_directory()?.open(path)?;
        let mut intake = Intake { session: self, table: &table, text: &copy.text, rows: 0 };
        let result = if copy.format == CopyFormat::Parquet {
            let columns = copy.columns.is_some().then_some(columns.as_slice());
            Box::pin(intake.take_parquet(file, path, columns)).await
        } else {
            Box::pin(intake.take_stream(file, path, copy, &columns)).await
        };
        match result {
            Ok(()) => Ok(Output::affected(COPY, intake.rows)),
            Err(error) => Err(with_stored_rows(error, intake.rows)),
        }
    }

    /// Sends the rows of a query to the client, or writes them into a file.
    pub(super) async fn copy_to(&self, copy: &CopyTo) -> Result<Executed, SqlError> {
        // A file that cannot be written costs no query.
        let target = match &copy.file {
            Some(path) => Some(self.copy_directory()?.create(path)?),
            None => None,
        };
        let executed = Box::pin(self.query(&copy.query)).await?;
        let Output::Rows { schema, mut stream } = executed.output else {
            return Err(SqlError::internal("a query without rows"));
        };
        let (plan, usage) = (executed.plan, executed.usage);
        let Some((new, file)) = target else {
            let (format, options) = (copy.format, copy.options.clone());
            let output =
                Output::CopyOut(CopyOut { schema, stream, format, options, zone: self.zone() });
            return Ok(Executed { output, plan, usage });
        };
        let mut writer = if copy.format == CopyFormat::Parquet {
            FileWriter::parquet(&schema, file)?
        } else {
            let encoder = CopyEncoder::new(&schema, copy.format, &copy.options, self.zone())?;
            let has_trailer = copy.format == CopyFormat::Binary;
            let file = BufWriter::with_capacity(CHUNK_BYTES, file);
            FileWriter::Stream { encoder: Box::new(encoder), file, has_trailer }
        };
        let mut rows = 0;
        while let Some(batch) = stream.next().await {
            let batch = batch?;
            writer.write(&batch)?;
            rows += batch.num_rows() as u64;
        }
        writer.finish(new)?;
        Ok(Executed { output: Output::affected(COPY, rows), plan, usage })
    }

    fn copy_directory(&self) -> Result<CopyDirectory, SqlError> {
        CopyDirectory::new(self.frontend().options().copy_directory.as_deref())
    }
}

/// Rows of a file on their way into a table.
struct Intake<'s> {
    session: &'s Session,
    table: &'s Arc<Table>,
    /// Text of the statement.
    text: &'s str,
    /// Rows that are stored.
    rows: u64,
}

impl Intake<'_> {
    /// Takes the rows of a file that is read from its beginning to its end.
    async fn take_stream(
        &mut self,
        mut file: File,
        path: &str,
        copy: &CopyFrom,
        columns: &[&Column],
    ) -> Result<(), SqlError> {
        let names: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
        let zone = self.session.zone();
        let mut decoder = CopyDecoder::new(self.table, &names, copy.format, &copy.options, zone)?;
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let length = match file.read(&mut chunk) {
                Ok(0) => break,
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(files::not_read(path, &error)),
            };
            let decoded = decoder.push(&chunk[..length]);
            self.store_decoded(&mut decoder, decoded).await?;
        }
        let decoded = decoder.finish();
        self.store_decoded(&mut decoder, decoded).await
    }

    /// Stores decoded rows; after an error of the decoder, those before it.
    async fn store_decoded(
        &mut self,
        decoder: &mut CopyDecoder,
        decoded: Result<Vec<RecordBatch>, SqlError>,
    ) -> Result<(), SqlError> {
        let (batches, error) = match decoded {
            Ok(batches) => (batches, None),
            Err(error) => (decoder.rows_before_error()?, Some(error)),
        };
        for batch in batches {
            self.store(batch).await?;
        }
        error.map_or(Ok(()), Err)
    }

    /// Takes the rows of a Parquet file, whose columns are found by name: all of the file's, or those of a list.
    async fn take_parquet(
        &mut self,
        file: File,
        path: &str,
        listed: Option<&[&Column]>,
    ) -> Result<(), SqlError> {
        let unreadable = |error: &dyn std::fmt::Display| {
            let message = format!("could not read file \"{path}\" as Parquet: {error}");
            SqlError::new(BAD_COPY_FORMAT, message)
        };
        let mut builder = ParquetRecordBatchReaderBuilder::try_new(file)
            .map_err(|error| unreadable(&error))?
            .with_batch_size(BATCH_ROWS);
        // Only the listed columns are read.
        if let Some(listed) = listed {
            let mut positions = Vec::with_capacity(listed.len());
            for column in listed {
                let position = builder.schema().index_of(&column.name).map_err(|_| {
                    let message = format!("file \"{path}\" has no column \"{}\"", column.name);
                    SqlError::new(BAD_COPY_FORMAT, message)
                })?;
                positions.push(position);
            }
            let mask = ProjectionMask::roots(builder.parquet_schema(), positions);
            builder = builder.with_projection(mask);
        }
        let batches = builder.build().map_err(|error| unreadable(&error))?;
        let table = self.table;
        for batch in batches {
            let batch = batch.map_err(|error| unreadable(&error))?;
            // The columns in the order of the file.
            let names: Vec<String> =
                batch.schema().fields().iter().map(|field| field.name().clone()).collect();
            let columns = target_columns(table, Some(&names))?;
            let mut waiting = vec![batch];
            while let Some(batch) = waiting.pop() {
                match as_assignable(&batch, &columns, self.session) {
                    Ok(rows) => self.store(rows).await?,
                    Err(error) if batch.num_rows() > 1 && is_of_values(&error) => {
                        waiting.extend(halves(&batch));
                    }
                    Err(error) => return Err(self.located(error)),
                }
            }
        }
        Ok(())
    }

    /// Stores rows. Of rows that are refused together, those before the first wrong one are stored.
    async fn store(&mut self, batch: RecordBatch) -> Result<(), SqlError> {
        let mut waiting = vec![batch];
        while let Some(batch) = waiting.pop() {
            // A right may be revoked while rows are read.
            let viewer = self.session.viewer();
            let need = Need::new(Action::Insert, viewer.object(self.table)?);
            let permit = viewer.check(&[need])?;
            let cause = self.session.cause(COPY, self.text);
            let ingest =
                self.session.frontend().ingest_for(&permit, self.table, batch.clone(), Some(cause));
            match Box::pin(ingest).await {
                Ok(rows) => self.rows += rows,
                Err(error) if !is_of_values(&error) => return Err(error),
                Err(error) if batch.num_rows() <= 1 => return Err(self.located(error)),
                Err(_) => waiting.extend(halves(&batch)),
            }
        }
        Ok(())
    }

    /// Adds the place of the row after the stored ones to an error, as COPY's decoders do for lines.
    fn located(&self, error: SqlError) -> SqlError {
        let place = format!("COPY {}, row {}", self.table.name, self.rows + 1);
        let detail = match &error.detail {
            Some(detail) => format!("{detail}; {place}"),
            None => place,
        };
        error.with_detail(detail)
    }
}

/// Columns of a Parquet file under SQL names, in forms that can be assigned to a table's.
fn as_assignable(
    batch: &RecordBatch,
    columns: &[&Column],
    session: &Session,
) -> Result<RecordBatch, SqlError> {
    let schema = batch.schema();
    let is_wrong = |(field, column): &(&Arc<Field>, &&Column)| {
        let is_array = matches!(column.column_type, ColumnType::Array(_));
        field.data_type().is_nested() && !(is_array && field.data_type().is_list())
    };
    if let Some((field, _)) = schema.fields().iter().zip(columns).find(is_wrong) {
        let message = format!("column \"{}\" of the file is nested", field.name());
        return Err(SqlError::new(DATATYPE_MISMATCH, message));
    }
    let values = assignable(batch.columns(), columns, session.zone())?;
    let fields: Vec<Field> = values
        .iter()
        .zip(columns)
        .map(|(values, column)| Field::new(&column.name, values.data_type().clone(), true))
        .collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), values, &options)?)
}

/// True for errors of values, before anything is sent: data exceptions and violated constraints. Nodes report what
/// they refuse as invalid parameters.
fn is_of_values(error: &SqlError) -> bool {
    let is_class = |class: &str| error.sqlstate.starts_with(class);
    (is_class("22") || is_class("23")) && error.sqlstate != INVALID_PARAMETER_VALUE
}

/// The halves of a batch of several rows; the first one is last, to be taken next.
fn halves(batch: &RecordBatch) -> [RecordBatch; 2] {
    let count = batch.num_rows();
    let middle = count / 2;
    [batch.slice(middle, count - middle), batch.slice(0, middle)]
}

/// Writes the rows of a query into a file.
enum FileWriter {
    Stream {
        encoder: Box<CopyEncoder>,
        file: BufWriter<File>,
        has_trailer: bool,
    },
    Parquet {
        /// The columns under the names that clients see.
        schema: SchemaRef,
        writer: Box<ArrowWriter<File>>,
    },
}

impl FileWriter {
    fn parquet(schema: &SchemaRef, file: File) -> Result<Self, SqlError> {
        let renamed =
            |field: &Arc<Field>| Field::clone(field).with_name(shown_name(field).to_owned());
        let fields: Vec<Field> = schema.fields().iter().map(renamed).collect();
        let schema = Arc::new(Schema::new(fields));
        let properties = WriterProperties::builder()
            .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
            .set_compression(Compression::SNAPPY)
            .build();
        let writer = ArrowWriter::try_new(file, Arc::clone(&schema), Some(properties));
        let writer = Box::new(writer.map_err(|error| unwritten(&error))?);
        Ok(Self::Parquet { schema, writer })
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(), SqlError> {
        match self {
            Self::Stream { encoder, file, .. } => {
                for line in encoder.encode(batch)? {
                    file.write_all(&line).map_err(|error| files::not_written(&error))?;
                }
            }
            Self::Parquet { schema, writer } => {
                let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
                let columns = batch.columns().to_vec();
                let batch =
                    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?;
                writer.write(&batch).map_err(|error| unwritten(&error))?;
                if writer.in_progress_size() >= ROW_GROUP_BYTES {
                    writer.flush().map_err(|error| unwritten(&error))?;
                }
            }
        }
        Ok(())
    }

    /// Ends the file and gives it its name.
    fn finish(self, new: NewFile) -> Result<(), SqlError> {
        let file = match self {
            Self::Stream { mut encoder, mut file, has_trailer } => {
                let trailer: &[u8] = if has_trailer { &BINARY_TRAILER } else { &[] };
                let header = encoder.finish().unwrap_or_default();
                let written = file.write_all(&header).and_then(|()| file.write_all(trailer));
                written.map_err(|error| files::not_written(&error))?;
                file.into_inner().map_err(|error| files::not_written(error.error()))?
            }
            Self::Parquet { writer, .. } => {
                writer.into_inner().map_err(|error| unwritten(&error))?
            }
        };
        new.finish(&file)
    }
}

fn unwritten(error: &ParquetError) -> SqlError {
    let source = std::error::Error::source(error);
    match source.and_then(|source| source.downcast_ref::<std::io::Error>()) {
        Some(error) => files::not_written(error),
        None => SqlError::unsupported(format!("a Parquet file of these rows ({error})")),
    }
}
