//! Result rows as messages.
//!
//! The columns of a batch are looked at once: each becomes a function that writes the value of one
//! row. The rows of a batch are then written into one buffer, from which each message takes its
//! part. A batch is encoded when the one before has been sent.

mod binary;
mod text;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Schema};
use arrow::record_batch::RecordBatch;
use bytes::{BufMut, BytesMut};
use futures::{StreamExt, stream};
use partita_frontend::{RowStream, SqlError};
use pgwire::api::portal::Format;
use pgwire::api::results::{FieldFormat, FieldInfo, QueryResponse};
use pgwire::error::{PgWireError, PgWireResult};
use pgwire::messages::data::DataRow;

use crate::civil::Zone;
use crate::error::{protocol, to_wire};
use crate::types;

/// Bytes that a batch's buffer grows by.
const BUFFER_BYTES: usize = 64 * 1024;

/// Writes the value of one row, which is not NULL.
type Writer = Box<dyn Fn(usize, &mut BytesMut) -> Result<(), SqlError> + Send>;

/// The columns of a result as PostgreSQL types.
pub(crate) fn fields(schema: &Schema, format: &Format) -> PgWireResult<Vec<FieldInfo>> {
    if let Format::Individual(formats) = format
        && formats.len() != schema.fields().len()
    {
        return Err(protocol(
            "08P01",
            format!(
                "bind message has {} result formats but query has {} columns",
                formats.len(),
                schema.fields().len()
            ),
        ));
    }
    let field = |(at, field): (usize, &Arc<arrow::datatypes::Field>)| {
        let of = types::of_field(field);
        let size = types::size(&of);
        FieldInfo::new(field.name().clone(), None, None, of, format.format_for(at))
            .with_type_size(size)
            .with_type_modifier(types::modifier(field.data_type()))
    };
    Ok(schema.fields().iter().enumerate().map(field).collect())
}

/// The rows of a result.
pub(crate) fn response(
    schema: &Schema,
    rows: RowStream,
    format: &Format,
    zone: Zone,
) -> PgWireResult<QueryResponse> {
    let fields = Arc::new(fields(schema, format)?);
    let of_rows = Arc::clone(&fields);
    let rows = rows.flat_map(move |batch| {
        let encoded = batch.map_err(to_wire).and_then(|batch| {
            BatchRows::new(&batch, &of_rows, zone).map_err(to_wire)
        });
        match encoded {
            Ok(rows) => stream::iter(rows).left_stream(),
            Err(error) => stream::iter([Err::<DataRow, PgWireError>(error)]).right_stream(),
        }
    });
    Ok(QueryResponse::new(fields, rows))
}

/// One column of a batch, ready to be written.
struct Column {
    nulls: Option<NullBuffer>,
    write: Writer,
}

impl Column {
    fn new(array: &ArrayRef, format: FieldFormat, zone: Zone) -> Result<Self, SqlError> {
        let array = plain(array)?;
        let nulls = array.logical_nulls().filter(|nulls| nulls.null_count() > 0);
        let write = match format {
            FieldFormat::Text => text::writer(&array, zone)?,
            FieldFormat::Binary => binary::writer(&array, zone)?,
        };
        Ok(Self { nulls, write })
    }

    fn is_null(&self, row: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }

    /// Writes a value behind its length.
    fn put(&self, row: usize, out: &mut BytesMut) -> Result<(), SqlError> {
        if self.is_null(row) {
            out.put_i32(-1);
            return Ok(());
        }
        let start = out.len();
        out.put_i32(0);
        (self.write)(row, out)?;
        let length = i32::try_from(out.len() - start - 4)
            .map_err(|_| SqlError::new("54000", "a value is larger than 2 GiB"))?;
        out[start..start + 4].copy_from_slice(&length.to_be_bytes());
        Ok(())
    }
}

/// The array without dictionaries, runs and views of lists.
fn plain(array: &ArrayRef) -> Result<ArrayRef, SqlError> {
    let to = match array.data_type() {
        DataType::Dictionary(_, values) => values.as_ref().clone(),
        DataType::RunEndEncoded(_, values) => values.data_type().clone(),
        DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _) => DataType::List(Arc::clone(item)),
        _ => return Ok(Arc::clone(array)),
    };
    let array = arrow::compute::cast(array, &to)?;
    // A dictionary's values may be a list of dictionaries.
    plain(&array)
}

/// The rows of a batch, one message after the other.
struct BatchRows {
    columns: Vec<Column>,
    /// The number of columns, as messages have it.
    count: i16,
    rows: usize,
    next: usize,
    buffer: BytesMut,
}

impl BatchRows {
    fn new(batch: &RecordBatch, fields: &[FieldInfo], zone: Zone) -> Result<Self, SqlError> {
        let count = i16::try_from(fields.len())
            .map_err(|_| SqlError::new("54011", "a result has more than 32767 columns"))?;
        if batch.num_columns() != fields.len() {
            return Err(SqlError::internal(format!(
                "a batch of {} columns for {count} fields",
                batch.num_columns()
            )));
        }
        let columns = batch
            .columns()
            .iter()
            .zip(fields)
            .map(|(array, field)| Column::new(array, field.format(), zone))
            .collect::<Result<_, _>>()?;
        Ok(Self { columns, count, rows: batch.num_rows(), next: 0, buffer: BytesMut::new() })
    }
}

impl Iterator for BatchRows {
    type Item = PgWireResult<DataRow>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next == self.rows {
            return None;
        }
        let row = self.next;
        self.next += 1;
        if self.buffer.capacity() - self.buffer.len() < BUFFER_BYTES / 16 {
            self.buffer.reserve(BUFFER_BYTES);
        }
        for column in &self.columns {
            if let Err(error) = column.put(row, &mut self.buffer) {
                self.next = self.rows;
                return Some(Err(to_wire(error)));
            }
        }
        Some(Ok(DataRow::new(self.buffer.split(), self.count)))
    }
}

/// Months, days and microseconds of an interval.
fn interval_parts(array: &ArrayRef) -> Result<Box<dyn Fn(usize) -> (i32, i32, i64) + Send>, SqlError> {
    use arrow::array::{Array as _, AsArray};
    use arrow::datatypes::{
        IntervalDayTimeType, IntervalMonthDayNanoType, IntervalUnit, IntervalYearMonthType,
    };
    Ok(match array.data_type() {
        DataType::Interval(IntervalUnit::YearMonth) => {
            let array = array.as_primitive::<IntervalYearMonthType>().clone();
            Box::new(move |row| (array.value(row), 0, 0))
        }
        DataType::Interval(IntervalUnit::DayTime) => {
            let array = array.as_primitive::<IntervalDayTimeType>().clone();
            Box::new(move |row| {
                let value = array.value(row);
                (0, value.days, i64::from(value.milliseconds) * 1_000)
            })
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let array = array.as_primitive::<IntervalMonthDayNanoType>().clone();
            Box::new(move |row| {
                let value = array.value(row);
                (value.months, value.days, value.nanoseconds / 1_000)
            })
        }
        DataType::Duration(unit) => {
            let per_second = crate::civil::per_second(*unit);
            let array = arrow::compute::cast(array, &DataType::Int64)?;
            let array = array.as_primitive::<arrow::datatypes::Int64Type>().clone();
            Box::new(move |row| {
                let micros = i128::from(array.value(row)) * 1_000_000 / i128::from(per_second);
                (0, 0, i64::try_from(micros).unwrap_or(if micros < 0 { i64::MIN } else { i64::MAX }))
            })
        }
        other => return Err(SqlError::internal(format!("{other} is no interval"))),
    })
}

/// Writes values as Arrow shows them; for types that PostgreSQL does not have.
fn shown(array: &ArrayRef) -> Result<Writer, SqlError> {
    let array = Arc::clone(array);
    // Checked here, so that a type that cannot be shown is an error of the batch.
    arrow::util::display::ArrayFormatter::try_new(array.as_ref(), &Default::default())?;
    Ok(Box::new(move |row, out| {
        let text = arrow::util::display::array_value_to_string(array.as_ref(), row)?;
        out.extend_from_slice(text.as_bytes());
        Ok(())
    }))
}
