//! Encodes result rows as messages.
//!
//! The columns of a batch are prepared once: each becomes a function that writes the value of a row. The rows of a
//! batch are then written into one buffer, and each message takes its part of it. A batch is encoded when the previous
//! one has been sent.

mod binary;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::buffer::NullBuffer;
use arrow::datatypes::Schema;
use arrow::record_batch::RecordBatch;
use bytes::{BufMut, BytesMut};
use futures::{StreamExt, stream};
use partita_frontend::padded;
use partita_frontend::sql::shown_names::shown_name;
use partita_frontend::value_text::{self, ValueWriter, plain};
use partita_frontend::{RowStream, SqlError, Zone};
use pgwire::api::portal::Format;
use pgwire::api::results::{FieldFormat, FieldInfo, QueryResponse};
use pgwire::error::{PgWireError, PgWireResult};
use pgwire::messages::data::DataRow;

use crate::error::{protocol, to_wire};
use crate::types;

#[cfg(test)]
pub(crate) use self::binary::numeric;

/// Bytes by which a batch's buffer grows.
const BUFFER_BYTES: usize = 64 * 1024;

/// The columns of a result, with PostgreSQL's types.
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
    let field = |(index, field): (usize, &Arc<arrow::datatypes::Field>)| {
        let data_type = types::of_field(field);
        let size = types::size(&data_type);
        FieldInfo::new(
            shown_name(field).to_owned(),
            None,
            None,
            data_type,
            format.format_for(index),
        )
        .with_type_size(size)
        .with_type_modifier(types::modifier_of(field))
    };
    Ok(schema.fields().iter().enumerate().map(field).collect())
}

/// Response with the columns of a result and its rows, encoded as they arrive.
pub(crate) fn response(
    schema: &Schema,
    rows: RowStream,
    format: &Format,
    zone: Zone,
) -> PgWireResult<QueryResponse> {
    let fields = Arc::new(fields(schema, format)?);
    let row_fields = Arc::clone(&fields);
    let rows = rows.flat_map(move |batch| {
        let encoded = batch
            .map_err(to_wire)
            .and_then(|batch| BatchRows::new(&batch, &row_fields, zone).map_err(to_wire));
        match encoded {
            Ok(rows) => stream::iter(rows).left_stream(),
            Err(error) => stream::iter([Err::<DataRow, PgWireError>(error)]).right_stream(),
        }
    });
    Ok(QueryResponse::new(fields, rows))
}

/// Positions of the NULLs; `None` if there are none.
fn nulls(array: &ArrayRef) -> Option<NullBuffer> {
    array.logical_nulls().filter(|nulls| nulls.null_count() > 0)
}

/// One column of a batch, ready to be written.
struct Column {
    nulls: Option<NullBuffer>,
    write: ValueWriter,
}

impl Column {
    fn new(array: &ArrayRef, format: FieldFormat, zone: Zone) -> Result<Self, SqlError> {
        let array = plain(array)?;
        let write = match format {
            FieldFormat::Text => value_text::writer(&array, zone)?,
            FieldFormat::Binary => binary::writer(&array, zone)?,
        };
        Ok(Self { nulls: nulls(&array), write })
    }

    /// A column with the type and the format that were described to the client.
    fn described(array: &ArrayRef, field: &FieldInfo, zone: Zone) -> Result<Self, SqlError> {
        if field.format() == FieldFormat::Text {
            return Self::new(array, FieldFormat::Text, zone);
        }
        Self::binary(array, field.datatype(), zone)
    }

    /// A column in the binary format of a type.
    fn binary(
        array: &ArrayRef,
        data_type: &pgwire::api::Type,
        zone: Zone,
    ) -> Result<Self, SqlError> {
        let array = plain(array)?;
        let write = binary::writer_of(&array, data_type, zone)?;
        Ok(Self { nulls: nulls(&array), write })
    }

    fn is_null(&self, row: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }

    /// Writes the length of a value, and the value.
    fn put(&self, row: usize, buffer: &mut BytesMut) -> Result<(), SqlError> {
        if self.is_null(row) {
            buffer.put_i32(-1);
            return Ok(());
        }
        let start = buffer.len();
        buffer.put_i32(0);
        (self.write)(row, buffer)?;
        let length = i32::try_from(buffer.len() - start - 4)
            .map_err(|_| SqlError::new("54000", "a value is larger than 2 GiB"))?;
        buffer[start..start + 4].copy_from_slice(&length.to_be_bytes());
        Ok(())
    }
}

/// The rows of a batch as messages.
struct BatchRows {
    columns: Vec<Column>,
    /// The number of columns, in the width of the protocol.
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
            .map(|(array, field)| match types::letters_of(field) {
                Some(letters) => Column::described(&padded::filled(array, letters)?, field, zone),
                None => Column::described(array, field, zone),
            })
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

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::*;
    use arrow::datatypes::{Int32Type, i256};

    /// The value of row 0 in a format, without its length.
    fn encoded(array: impl Array + 'static, format: FieldFormat) -> Vec<u8> {
        let array: ArrayRef = Arc::new(array);
        let column = Column::new(&array, format, Zone::named("Europe/Berlin").unwrap()).unwrap();
        let mut out = BytesMut::new();
        column.put(0, &mut out).unwrap();
        let length = i32::from_be_bytes(out[..4].try_into().unwrap());
        assert_eq!(usize::try_from(length).unwrap(), out.len() - 4);
        out[4..].to_vec()
    }

    fn text(array: impl Array + 'static) -> String {
        String::from_utf8(encoded(array, FieldFormat::Text)).unwrap()
    }

    fn binary(array: impl Array + 'static) -> Vec<u8> {
        encoded(array, FieldFormat::Binary)
    }

    #[test]
    fn floats_are_written_as_postgres_writes_them() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.5, "1.5"),
            (100_000.0, "100000"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (123_456_789_012_345.0, "123456789012345"),
            (1e15, "1e+15"),
            (-2.5e300, "-2.5e+300"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(text(Float64Array::from(vec![value])), expected);
        }
        assert_eq!(text(Float32Array::from(vec![1e6_f32])), "1e+06");
        assert_eq!(text(Float32Array::from(vec![0.1_f32])), "0.1");
    }

    #[test]
    fn times_are_written_as_postgres_writes_them() {
        let micros = |ticks| TimestampMicrosecondArray::from(vec![ticks]);
        assert_eq!(text(micros(0)), "1970-01-01 00:00:00");
        assert_eq!(text(micros(-1)), "1969-12-31 23:59:59.999999");
        assert_eq!(text(micros(1_719_828_000_500_000)), "2024-07-01 10:00:00.5");
        assert_eq!(
            text(micros(1_719_828_000_500_000).with_timezone("UTC")),
            "2024-07-01 12:00:00.5+02"
        );
        let nanos = TimestampNanosecondArray::from(vec![1]);
        assert_eq!(text(nanos), "1970-01-01 00:00:00.000000001");
        assert_eq!(text(TimestampSecondArray::from(vec![253_402_300_800])), "10000-01-01 00:00:00");
        assert_eq!(text(Date32Array::from(vec![-719_163])), "0001-12-31 BC");
        assert_eq!(text(Date32Array::from(vec![19_782])), "2024-02-29");
        assert_eq!(text(Time64MicrosecondArray::from(vec![3_723_000_001])), "01:02:03.000001");
        assert_eq!(binary(micros(0)), (-946_684_800_000_000_i64).to_be_bytes());
        assert_eq!(
            binary(TimestampNanosecondArray::from(vec![-1])),
            (-946_684_800_000_001_i64).to_be_bytes()
        );
        assert_eq!(binary(Date32Array::from(vec![10_957])), 0_i32.to_be_bytes());
        for array in [
            Arc::new(TimestampSecondArray::from(vec![i64::MAX])) as ArrayRef,
            Arc::new(TimestampSecondArray::from(vec![i64::MIN])),
        ] {
            let column = Column::new(&array, FieldFormat::Binary, Zone::UTC).unwrap();
            let error = column.put(0, &mut BytesMut::new()).unwrap_err();
            assert_eq!(error.sqlstate, "22008");
            // As text every tick has a form.
            let column = Column::new(&array, FieldFormat::Text, Zone::UTC).unwrap();
            column.put(0, &mut BytesMut::new()).unwrap();
        }
    }

    #[test]
    fn numerics_keep_every_digit() {
        let decimal = |value: i128, scale| {
            Decimal128Array::from(vec![value]).with_precision_and_scale(38, scale).unwrap()
        };
        assert_eq!(text(decimal(-1_234_567, 2)), "-12345.67");
        assert_eq!(text(UInt64Array::from(vec![u64::MAX])), "18446744073709551615");
        // Groups, weight of the first, sign, digits behind the point, groups of four digits.
        let parts = |bytes: Vec<u8>| -> Vec<i16> {
            bytes.chunks(2).map(|part| i16::from_be_bytes(part.try_into().unwrap())).collect()
        };
        assert_eq!(parts(binary(decimal(-1_234_567, 2))), [3, 1, 0x4000, 2, 1, 2345, 6700]);
        assert_eq!(parts(binary(decimal(0, 3))), [0, 0, 0, 3]);
        assert_eq!(parts(binary(decimal(1, 5))), [1, -2, 0, 5, 1000]);
        assert_eq!(parts(binary(decimal(10_000, 0))), [1, 1, 0, 0, 1]);
        assert_eq!(parts(binary(UInt64Array::from(vec![100_000_000]))), [1, 2, 0, 0, 1]);
        let wide = Decimal256Array::from(vec![i256::from_i128(15)]).with_precision_and_scale(76, 1);
        assert_eq!(parts(binary(wide.unwrap())), [2, 0, 0, 1, 1, 5000]);
    }

    #[test]
    fn lists_and_bytes_are_quoted_where_they_must_be() {
        let list = ListArray::from_iter_primitive::<Int32Type, _, _>([Some([Some(1), None])]);
        assert_eq!(text(list.clone()), "{1,NULL}");
        let mut expected = Vec::new();
        for word in [1_i32, 1, 23, 2, 1, 4, 1, -1] {
            expected.extend(word.to_be_bytes());
        }
        assert_eq!(binary(list), expected);
        let mut builder = ListBuilder::new(StringBuilder::new());
        for word in ["plain", "", "null", "a \"b\" \\c", "{}"] {
            builder.values().append_value(word);
        }
        builder.append(true);
        assert_eq!(text(builder.finish()), r#"{plain,"","null","a \"b\" \\c","{}"}"#);
        assert_eq!(text(BinaryViewArray::from(vec![b"\x00\xffa".as_slice()])), "\\x00ff61");
    }

    #[test]
    fn dictionaries_and_views_are_what_they_hold() {
        let dictionary: DictionaryArray<Int32Type> = ["a", "b"].into_iter().collect();
        assert_eq!(text(dictionary.clone()), "a");
        assert_eq!(binary(dictionary), b"a");
        assert_eq!(
            text(StringViewArray::from(vec!["longer than twelve bytes"])),
            "longer than twelve bytes"
        );
        assert_eq!(text(BooleanArray::from(vec![true])), "t");
        assert_eq!(binary(UInt32Array::from(vec![u32::MAX])), 4_294_967_295_i64.to_be_bytes());
        assert_eq!(binary(Int8Array::from(vec![-1])), (-1_i16).to_be_bytes());
    }

    #[test]
    fn intervals_are_written_in_postgres_style() {
        use arrow::datatypes::IntervalMonthDayNano;
        let interval = |months, days, nanos| {
            let value = IntervalMonthDayNano::new(months, days, nanos);
            text(IntervalMonthDayNanoArray::from(vec![value]))
        };
        assert_eq!(interval(14, 3, 14_706_789_000_000), "1 year 2 mons 3 days 04:05:06.789");
        assert_eq!(interval(0, 0, 0), "00:00:00");
        assert_eq!(interval(0, -1, -1_000_000_000), "-1 days -00:00:01");
        assert_eq!(text(DurationSecondArray::from(vec![90_061])), "1 day 01:01:01");
    }

    #[test]
    fn jsonb_has_a_version_in_the_binary_format_only() {
        let texts: ArrayRef = Arc::new(StringViewArray::from(vec!["{}"]));
        for (data_type, expected) in [
            (pgwire::api::Type::JSON, b"\x00\x00\x00\x02{}".as_slice()),
            (pgwire::api::Type::JSONB, b"\x00\x00\x00\x03\x01{}"),
        ] {
            let column = Column::binary(&texts, &data_type, Zone::UTC).unwrap();
            let mut buffer = BytesMut::new();
            column.put(0, &mut buffer).unwrap();
            assert_eq!(buffer.as_ref(), expected, "{data_type}");
        }
        assert_eq!(text(StringViewArray::from(vec!["{}"])), "{}");
    }

    #[test]
    fn a_null_has_no_bytes_and_rows_keep_apart() {
        let batch = RecordBatch::try_from_iter([
            ("a", Arc::new(Int32Array::from(vec![Some(1), None])) as ArrayRef),
            ("b", Arc::new(StringArray::from(vec![None, Some("xy")])) as ArrayRef),
        ])
        .unwrap();
        let fields = fields(&batch.schema(), &Format::UnifiedText).unwrap();
        let rows: Vec<_> =
            BatchRows::new(&batch, &fields, Zone::UTC).unwrap().map(Result::unwrap).collect();
        assert_eq!(rows[0].data.as_ref(), b"\x00\x00\x00\x011\xff\xff\xff\xff");
        assert_eq!(rows[1].data.as_ref(), b"\xff\xff\xff\xff\x00\x00\x00\x02xy");
    }
}
