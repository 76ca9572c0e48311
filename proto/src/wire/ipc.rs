//! Rows as bytes: one Arrow IPC stream, in logs and between nodes.
//!
//! A stream is one schema and any number of batches of it, uncompressed. Columns have the types of tables
//! ([`ColumnType`]), each in one layout: strings and bytes are views, arrays are lists of nullable items, dictionaries
//! are unpacked when encoded. Metadata of schemas and fields is not kept.
//!
//! Arrow's decoder trusts the stream and panics on false statements; every message is checked here before arrow sees
//! it, and arrow checks the arrays as they are built.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, GenericByteViewArray};
use arrow::buffer::Buffer;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{ByteViewType, DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::reader::RecordBatchDecoder;
use arrow::ipc::writer::{IpcWriteOptions, StreamWriter};
use arrow::ipc::{self, Endianness, MessageHeader, MetadataVersion};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use bytes::Bytes;

use crate::error::Error;
use crate::lists::gathered;
use crate::schema::{ColumnType, Element, UUID, Unit};
use crate::uuid::UUID_BYTES;

/// Batches with fewer rows than this have buffers padded to 8 bytes, others to 16, which views and decimals need to be
/// used in place. (Arrow's default of 64 makes a row of ten columns three times as large.)
const SMALL_ROWS: usize = 32;
/// Mark at the beginning of each message of a stream.
const CONTINUATION: u32 = u32::MAX;
/// Bytes of a view of a string or of bytes.
const VIEW_BYTES: usize = 16;
/// Bytes of an offset of a list.
const OFFSET_BYTES: usize = 4;
/// Maximum bytes of a value inside its view; longer values lie in a buffer.
const INLINE_BYTES: u32 = 12;

/// Encodes batches, which have the same columns.
///
/// # Errors
/// [`Error::InvalidInput`] when there is none, their columns differ, or one has a type that tables do not have.
pub fn encode(batches: &[RecordBatch]) -> Result<Bytes, Error> {
    let Some(first) = batches.first() else {
        return Err(Error::InvalidInput("no rows to encode".to_owned()));
    };
    let schema = canonical(&first.schema())?;
    let rows = batches.iter().map(RecordBatch::num_rows).max().unwrap_or(0);
    let alignment = if rows < SMALL_ROWS { 8 } else { 16 };
    let options =
        IpcWriteOptions::try_new(alignment, false, MetadataVersion::V5).map_err(encoding)?;
    let mut writer =
        StreamWriter::try_new_with_options(Vec::new(), &schema, options).map_err(encoding)?;
    for batch in batches {
        let same = canonical(&batch.schema())? == schema;
        if !same {
            return Err(Error::InvalidInput("batches of one stream differ in columns".to_owned()));
        }
        let columns = batch
            .columns()
            .iter()
            .zip(schema.fields())
            .map(|(column, field)| compact(column, field.data_type()))
            .collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&schema), columns, &options);
        writer.write(&batch.map_err(encoding)?).map_err(encoding)?;
    }
    writer.finish().map_err(encoding)?;
    Ok(writer.into_inner().map_err(encoding)?.into())
}

/// Decodes batches. Their buffers share the given bytes wherever these are aligned for it.
///
/// # Errors
/// [`Error::Corrupted`] when the bytes are not a stream as [`encode`] writes it.
pub fn decode(bytes: Bytes) -> Result<Vec<RecordBatch>, Error> {
    let mut stream = Buffer::from(bytes);
    let mut schema = None;
    let mut batches = Vec::new();
    loop {
        // Each message: mark, length of the metadata (zero at the end of the stream), metadata, body.
        let mark = take(&mut stream, 8)?;
        let (mark, length) = mark.split_at(4);
        let number = |bytes: &[u8]| bytes.try_into().map_or(0, u32::from_le_bytes);
        if number(mark) != CONTINUATION {
            return Err(corrupted("a message without its mark"));
        }
        let length = number(length);
        if length == 0 {
            break;
        }
        let length = usize::try_from(length).map_err(|_| corrupted("a message too large"))?;
        let metadata = take(&mut stream, length)?;
        let message = ipc::root_as_message(&metadata)
            .map_err(|error| corrupted(&format!("a malformed message ({error})")))?;
        if message.version() != MetadataVersion::V5 {
            return Err(corrupted("another metadata version"));
        }
        let body = usize::try_from(message.bodyLength())
            .map_err(|_| corrupted("a body of negative length"))?;
        let body = take(&mut stream, body)?;
        // The schema comes first, then batches, and nothing else.
        match (&schema, message.header_type()) {
            (None, MessageHeader::Schema) => {
                let header = message.header_as_schema().ok_or_else(|| corrupted("no schema"))?;
                schema = Some(decode_schema(header)?);
            }
            (Some(schema), MessageHeader::RecordBatch) => {
                let header =
                    message.header_as_record_batch().ok_or_else(|| corrupted("no batch"))?;
                batches.push(decode_batch(&body, header, schema)?);
            }
            _ => return Err(corrupted("a message out of place")),
        }
    }
    if schema.is_none() || !stream.is_empty() {
        return Err(corrupted("an end out of place"));
    }
    Ok(batches)
}

/// The batch without bytes to which no row refers: filters, slices and joins keep the buffers of all rows that were there.
///
/// # Errors
/// None for a batch with the types of tables.
pub fn compacted(batch: &RecordBatch) -> Result<RecordBatch, Error> {
    let columns = batch.columns().iter().map(|column| compact(column, column.data_type()));
    let columns = columns.collect::<Result<Vec<_>, Error>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(batch.schema(), columns, &options).map_err(encoding)
}

/// The schema with each type in its one layout, without metadata.
fn canonical(schema: &Schema) -> Result<SchemaRef, Error> {
    let fields = schema.fields().iter().map(|field| {
        let column_type = ColumnType::from_arrow(field.data_type()).ok_or_else(|| {
            Error::InvalidInput(format!(
                "column \"{}\" has type {}, which tables do not have",
                field.name(),
                field.data_type()
            ))
        })?;
        Ok(Field::new(field.name(), column_type.arrow(), field.is_nullable()))
    });
    Ok(Arc::new(Schema::new(fields.collect::<Result<Vec<_>, Error>>()?)))
}

/// The column in its canonical layout, without bytes to which no row refers.
fn compact(column: &ArrayRef, data_type: &DataType) -> Result<ArrayRef, Error> {
    let column = if column.data_type() == data_type {
        Arc::clone(column)
    } else {
        let options = CastOptions { safe: false, ..CastOptions::default() };
        cast_with_options(column, data_type, &options).map_err(encoding)?
    };
    Ok(match data_type {
        DataType::Utf8View => match collect_views(column.as_string_view()) {
            Some(collected) => Arc::new(collected),
            None => column,
        },
        DataType::BinaryView => match collect_views(column.as_binary_view()) {
            Some(collected) => Arc::new(collected),
            None => column,
        },
        DataType::List(item) if *item.data_type() == DataType::Utf8View => {
            gathered(column.as_list::<i32>())?
        }
        _ => column,
    })
}

/// Copies the bytes to which views refer into new buffers, when more than a quarter of the old ones is unused. (Several
/// views of the same bytes may refer to more bytes in total than there are.)
fn collect_views<T: ByteViewType + ?Sized>(
    column: &GenericByteViewArray<T>,
) -> Option<GenericByteViewArray<T>> {
    let stored: usize = column.data_buffers().iter().map(Buffer::len).sum();
    if stored == 0 {
        return None;
    }
    let referred: usize = column
        .lengths()
        .enumerate()
        .filter(|(row, length)| *length > INLINE_BYTES && column.is_valid(*row))
        .map(|(_, length)| length as usize)
        .sum();
    (referred < stored - stored / 4).then(|| column.gc())
}

fn decode_schema(header: ipc::Schema<'_>) -> Result<SchemaRef, Error> {
    if header.endianness() != Endianness::Little {
        return Err(corrupted("big-endian columns"));
    }
    let fields = header.fields().ok_or_else(|| corrupted("a schema without fields"))?;
    let fields = fields.iter().map(|field| {
        let name = field.name().ok_or_else(|| corrupted("a field without a name"))?;
        let column_type = decode_type(field)
            .ok_or_else(|| corrupted("a field of a type that tables do not have"))?;
        Ok(Field::new(name, column_type.arrow(), field.nullable()))
    });
    Ok(Arc::new(Schema::new(fields.collect::<Result<Vec<_>, Error>>()?)))
}

fn decode_type(field: ipc::Field<'_>) -> Option<ColumnType> {
    // Tables have neither dictionaries nor nested types but lists.
    if field.dictionary().is_some() {
        return None;
    }
    match field.children().filter(|children| !children.is_empty()) {
        None => decode_flat(field),
        Some(children) if field.type_type() == ipc::Type::List && children.len() == 1 => {
            let item = children.get(0);
            let is_canonical =
                item.name() == Some(Field::LIST_FIELD_DEFAULT_NAME) && item.nullable();
            let element = is_canonical.then_some(item).and_then(decode_type).and_then(Element::of);
            element.map(ColumnType::Array)
        }
        Some(_) => None,
    }
}

fn decode_flat(field: ipc::Field<'_>) -> Option<ColumnType> {
    // Each type in its canonical layout only.
    Some(match field.type_type() {
        ipc::Type::Bool => ColumnType::Bool,
        ipc::Type::Int => {
            let int = field.type_as_int()?;
            match (int.bitWidth(), int.is_signed()) {
                (8, true) => ColumnType::Int8,
                (16, true) => ColumnType::Int16,
                (32, true) => ColumnType::Int32,
                (64, true) => ColumnType::Int64,
                (8, false) => ColumnType::UInt8,
                (16, false) => ColumnType::UInt16,
                (32, false) => ColumnType::UInt32,
                (64, false) => ColumnType::UInt64,
                _ => return None,
            }
        }
        ipc::Type::FloatingPoint => match field.type_as_floating_point()?.precision() {
            ipc::Precision::SINGLE => ColumnType::Float32,
            ipc::Precision::DOUBLE => ColumnType::Float64,
            _ => return None,
        },
        ipc::Type::Decimal => {
            let decimal = field.type_as_decimal()?;
            let precision = u8::try_from(decimal.precision()).ok()?;
            let scale = i8::try_from(decimal.scale()).ok()?;
            if decimal.bitWidth() != 128 {
                return None;
            }
            ColumnType::Decimal(precision, scale)
        }
        ipc::Type::Utf8View => ColumnType::String,
        ipc::Type::BinaryView => ColumnType::Binary,
        ipc::Type::FixedSizeBinary => {
            let bytes = field.type_as_fixed_size_binary()?.byteWidth();
            (usize::try_from(bytes) == Ok(UUID_BYTES)).then_some(ColumnType::Uuid)?
        }
        ipc::Type::Date if field.type_as_date()?.unit() == ipc::DateUnit::DAY => ColumnType::Date,
        ipc::Type::Time => {
            let time = field.type_as_time()?;
            let is_canonical = time.unit() == ipc::TimeUnit::MICROSECOND && time.bitWidth() == 64;
            is_canonical.then_some(ColumnType::Time)?
        }
        ipc::Type::Interval => {
            let unit = field.type_as_interval()?.unit();
            (unit == ipc::IntervalUnit::MONTH_DAY_NANO).then_some(ColumnType::Interval)?
        }
        ipc::Type::Timestamp => {
            let timestamp = field.type_as_timestamp()?;
            let unit = match timestamp.unit() {
                ipc::TimeUnit::SECOND => Unit::Second,
                ipc::TimeUnit::MILLISECOND => Unit::Millisecond,
                ipc::TimeUnit::MICROSECOND => Unit::Microsecond,
                ipc::TimeUnit::NANOSECOND => Unit::Nanosecond,
                _ => return None,
            };
            match timestamp.timezone() {
                None => ColumnType::Timestamp(unit, false),
                Some("UTC") => ColumnType::Timestamp(unit, true),
                Some(_) => return None,
            }
        }
        _ => return None,
    })
}

fn decode_batch(
    body: &Buffer,
    header: ipc::RecordBatch<'_>,
    schema: &SchemaRef,
) -> Result<RecordBatch, Error> {
    check_batch(body.len(), header, schema)?;
    let dictionaries = HashMap::new();
    RecordBatchDecoder::try_new(
        body,
        header,
        Arc::clone(schema),
        &dictionaries,
        &MetadataVersion::V5,
    )
    .and_then(RecordBatchDecoder::read_record_batch)
    .map_err(|error| corrupted(&format!("a wrong batch ({error})")))
}

/// Checks that a batch has the nodes and buffers that its columns need, each within the body, large enough for the
/// rows, and of whole values (arrow panics at half a view or decimal).
fn check_batch(body: usize, header: ipc::RecordBatch<'_>, schema: &SchemaRef) -> Result<(), Error> {
    let wrong = || corrupted("a batch that does not fit its schema");
    if header.compression().is_some() {
        return Err(corrupted("compressed columns"));
    }
    let rows = usize::try_from(header.length()).map_err(|_| wrong())?;
    let nodes = header.nodes().ok_or_else(wrong)?;
    let nested = nested(schema);
    if nodes.len() != nested.len() {
        return Err(wrong());
    }
    let mut buffers = header.buffers().ok_or_else(wrong)?.iter();
    // Checks the next buffer: at least `least` bytes, in multiples of `width`.
    let mut next = |least: usize, width: usize| {
        let buffer = buffers.next().ok_or_else(wrong)?;
        let start = usize::try_from(buffer.offset()).map_err(|_| wrong())?;
        let length = usize::try_from(buffer.length()).map_err(|_| wrong())?;
        let end = start.checked_add(length).filter(|end| *end <= body);
        end.filter(|_| length >= least && length.is_multiple_of(width))
            .map(|_| ())
            .ok_or_else(wrong)
    };
    let mut counts = header.variadicBufferCounts().into_iter().flatten();
    // Every column has a node and a bitmap of NULLs, which may be empty without NULLs, and then the buffers of its
    // type.
    for ((data_type, is_column), node) in nested.into_iter().zip(nodes) {
        let nulls = usize::try_from(node.null_count()).map_err(|_| wrong())?;
        // The number of elements is that of the offsets, which arrow checks.
        let count = usize::try_from(node.length()).map_err(|_| wrong())?;
        if is_column && count != rows || nulls > count {
            return Err(wrong());
        }
        let rows = count;
        let bits = rows.div_ceil(8);
        next(if nulls > 0 { bits } else { 0 }, 1)?;
        match data_type {
            DataType::Boolean => next(bits, 1)?,
            // One offset more than rows; none without rows.
            DataType::List(_) => {
                let offsets = if rows == 0 { 0 } else { rows.checked_add(1).ok_or_else(wrong)? };
                next(offsets.checked_mul(OFFSET_BYTES).ok_or_else(wrong)?, OFFSET_BYTES)?;
            }
            DataType::Utf8View | DataType::BinaryView => {
                next(rows.checked_mul(VIEW_BYTES).ok_or_else(wrong)?, VIEW_BYTES)?;
                let count = counts.next().filter(|count| *count >= 0).ok_or_else(wrong)?;
                for _ in 0..count {
                    next(0, 1)?;
                }
            }
            &UUID => next(rows.checked_mul(UUID_BYTES).ok_or_else(wrong)?, UUID_BYTES)?,
            fixed => {
                let width = fixed.primitive_width().ok_or_else(wrong)?;
                next(rows.checked_mul(width).ok_or_else(wrong)?, width)?;
            }
        }
    }
    if counts.next().is_some() || buffers.next().is_some() {
        return Err(wrong());
    }
    Ok(())
}

/// The types of the nodes of a batch: each column's, true, and behind that of a list its elements', false.
fn nested(schema: &SchemaRef) -> Vec<(&DataType, bool)> {
    let mut nested = Vec::with_capacity(schema.fields().len());
    for field in schema.fields() {
        nested.push((field.data_type(), true));
        if let DataType::List(item) = field.data_type() {
            nested.push((item.data_type(), false));
        }
    }
    nested
}

/// Takes bytes from the front of the stream.
fn take(stream: &mut Buffer, length: usize) -> Result<Buffer, Error> {
    if stream.len() < length {
        return Err(corrupted("an end within a message"));
    }
    let front = stream.slice_with_length(0, length);
    stream.advance(length);
    Ok(front)
}

fn corrupted(detail: &str) -> Error {
    Error::Corrupted(format!("a stream of rows has {detail}"))
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn encoding(error: ArrowError) -> Error {
    Error::InvalidInput(format!("rows cannot be encoded: {error}"))
}

#[cfg(test)]
mod tests;
