//! One cell of a key: a single value in arrow's row format, for bounds.
//!
//! Arrow itself encodes rows, column by column; bounds, of which a predicate may need a thousand, are encoded here
//! without building arrays. Tests check that both give the same bytes.
//!
//! | value | bytes |
//! |---|---|
//! | NULL of a fixed-width type | 0, then as many zeros as the type is wide |
//! | fixed-width | 1, then big-endian; signed: top bit flipped; float: all other bits flipped too if negative; UUID: as it is |
//! | NULL string or bytes | 0 |
//! | empty string or bytes | 1 |
//! | other string or bytes | 2, then blocks (four of 8 bytes, the rest of 32) padded with zeros, each followed by 255, or by the length of its content if it is the last |
//!
//! A cell in descending order has all bytes behind its first one inverted, unless it is NULL.

use crate::error::Error;
use crate::neighbour::{narrow, widen};
use crate::schema::ColumnType;
use crate::uuid::UUID_BYTES;
use crate::value::Value;

const NULL: u8 = 0;
const VALID: u8 = 1;
const EMPTY: u8 = 1;
const NON_EMPTY: u8 = 2;
const CONTINUED: u8 = u8::MAX;

/// Number of small blocks: the first ones are small, so that short strings stay short.
const SMALL_BLOCKS: usize = 4;
const SMALL_BLOCK_BYTES: usize = 8;
const BLOCK_BYTES: usize = 32;

/// True if a value can be encoded without coercion. A decimal with more digits than its column declares can: it is
/// wrong, but it has a place in the order, and rows that contain it need one too.
pub(super) fn fits(value: &Value, column_type: ColumnType) -> bool {
    matches!((value, column_type), (Value::Null, _) | (Value::Decimal(_), ColumnType::Decimal(..)))
        || value.is_of(column_type)
}

/// Type of a column's cells, and their order.
#[derive(Clone, Copy, Debug)]
pub(super) struct CellOrder {
    pub(super) column_type: ColumnType,
    /// True if larger values come first; for types of a fixed width.
    pub(super) descends: bool,
}

/// Appends a value that [`fits`] its type.
pub(super) fn encode(buffer: &mut Vec<u8>, order: CellOrder, value: &Value) -> Result<(), Error> {
    let start = buffer.len();
    encode_ascending(buffer, order.column_type, value)?;
    if order.descends {
        turn(&mut buffer[start..]);
    }
    Ok(())
}

/// Decodes one cell from the front of the input and advances the input.
pub(super) fn decode(input: &mut &[u8], order: CellOrder) -> Result<Value, Error> {
    if !order.descends {
        return decode_ascending(input, order.column_type);
    }
    let bytes = width(order.column_type) + 1;
    let (cell, rest) = input.split_at_checked(bytes).ok_or_else(ends)?;
    let mut turned = cell.to_vec();
    turn(&mut turned);
    let value = decode_ascending(&mut turned.as_slice(), order.column_type)?;
    *input = rest;
    Ok(value)
}

/// Reverses the order of a cell; self-inverse.
fn turn(cell: &mut [u8]) {
    if let Some((mark, content)) = cell.split_first_mut()
        && *mark != NULL
    {
        content.iter_mut().for_each(|byte| *byte = !*byte);
    }
}

/// Appends a value in ascending order.
fn encode_ascending(
    buffer: &mut Vec<u8>,
    column_type: ColumnType,
    value: &Value,
) -> Result<(), Error> {
    let mismatch =
        || Error::InvalidInput(format!("{value} is not a value of type {}", column_type.sql()));
    match (column_type, value) {
        // Text and bytes have no width to which NULL is padded.
        (ColumnType::String | ColumnType::Binary, Value::Null) => buffer.push(NULL),
        (_, Value::Null) => {
            let width = width(column_type);
            buffer.push(NULL);
            buffer.resize(buffer.len() + width, 0);
        }
        (ColumnType::Bool, Value::Bool(v)) => buffer.extend_from_slice(&[VALID, u8::from(*v)]),
        (ColumnType::Int8, Value::Int(v)) => {
            fixed(buffer, i8::try_from(*v).map_err(|_| mismatch())?.to_be_bytes(), true);
        }
        (ColumnType::Int16, Value::Int(v)) => {
            fixed(buffer, i16::try_from(*v).map_err(|_| mismatch())?.to_be_bytes(), true);
        }
        (ColumnType::Int32, Value::Int(v)) => {
            fixed(buffer, i32::try_from(*v).map_err(|_| mismatch())?.to_be_bytes(), true);
        }
        (ColumnType::Int64 | ColumnType::Time, Value::Int(v))
        | (ColumnType::Timestamp(..), Value::Timestamp(v)) => {
            fixed(buffer, v.to_be_bytes(), true);
        }
        (ColumnType::UInt8, Value::UInt(v)) => {
            fixed(buffer, u8::try_from(*v).map_err(|_| mismatch())?.to_be_bytes(), false);
        }
        (ColumnType::UInt16, Value::UInt(v)) => {
            fixed(buffer, u16::try_from(*v).map_err(|_| mismatch())?.to_be_bytes(), false);
        }
        (ColumnType::UInt32, Value::UInt(v)) => {
            fixed(buffer, u32::try_from(*v).map_err(|_| mismatch())?.to_be_bytes(), false);
        }
        (ColumnType::UInt64, Value::UInt(v)) => fixed(buffer, v.to_be_bytes(), false),
        (ColumnType::Float32, Value::Float(v)) => {
            fixed(buffer, turned32(narrow(*v).to_bits()).to_be_bytes(), true);
        }
        (ColumnType::Float64, Value::Float(v)) => {
            fixed(buffer, turned64(v.to_bits()).to_be_bytes(), true);
        }
        (ColumnType::Decimal(..), Value::Decimal(v)) => fixed(buffer, v.to_be_bytes(), true),
        (ColumnType::Date, Value::Date(v)) => fixed(buffer, v.to_be_bytes(), true),
        (ColumnType::String, Value::String(v)) => variable(buffer, v.as_bytes()),
        (ColumnType::Binary, Value::Binary(v)) => variable(buffer, v),
        (ColumnType::Uuid, Value::Binary(v)) => {
            let bytes = <[u8; UUID_BYTES]>::try_from(v.as_slice()).map_err(|_| mismatch())?;
            fixed(buffer, bytes, false);
        }
        _ => return Err(mismatch()),
    }
    Ok(())
}

/// Decodes one cell in ascending order from the front of the input and advances the input.
fn decode_ascending(input: &mut &[u8], column_type: ColumnType) -> Result<Value, Error> {
    // Text and bytes end with their last block; other cells have the width of their type.
    let value = match column_type {
        ColumnType::String => match take_variable(input)? {
            None => Value::Null,
            Some(bytes) => Value::String(
                String::from_utf8(bytes).map_err(|_| corrupted("a string that is not UTF-8"))?,
            ),
        },
        ColumnType::Binary => take_variable(input)?.map_or(Value::Null, Value::Binary),
        ColumnType::Bool => match take_fixed(input, false)? {
            None => Value::Null,
            Some([0]) => Value::Bool(false),
            Some([1]) => Value::Bool(true),
            Some(_) => return Err(corrupted("a boolean that is neither 0 nor 1")),
        },
        ColumnType::Int8 => int(take_fixed(input, true)?.map(i8::from_be_bytes)),
        ColumnType::Int16 => int(take_fixed(input, true)?.map(i16::from_be_bytes)),
        ColumnType::Int32 => int(take_fixed(input, true)?.map(i32::from_be_bytes)),
        ColumnType::Int64 | ColumnType::Time => {
            int(take_fixed(input, true)?.map(i64::from_be_bytes))
        }
        ColumnType::UInt8 => uint(take_fixed(input, false)?.map(u8::from_be_bytes)),
        ColumnType::UInt16 => uint(take_fixed(input, false)?.map(u16::from_be_bytes)),
        ColumnType::UInt32 => uint(take_fixed(input, false)?.map(u32::from_be_bytes)),
        ColumnType::UInt64 => uint(take_fixed(input, false)?.map(u64::from_be_bytes)),
        ColumnType::Float32 => take_fixed(input, true)?.map_or(Value::Null, |bytes| {
            Value::Float(widen(f32::from_bits(turned32(u32::from_be_bytes(bytes)))))
        }),
        ColumnType::Float64 => take_fixed(input, true)?.map_or(Value::Null, |bytes| {
            Value::Float(f64::from_bits(turned64(u64::from_be_bytes(bytes))))
        }),
        ColumnType::Decimal(..) => take_fixed(input, true)?
            .map_or(Value::Null, |bytes| Value::Decimal(i128::from_be_bytes(bytes))),
        ColumnType::Date => take_fixed(input, true)?
            .map_or(Value::Null, |bytes| Value::Date(i32::from_be_bytes(bytes))),
        ColumnType::Timestamp(..) => take_fixed(input, true)?
            .map_or(Value::Null, |bytes| Value::Timestamp(i64::from_be_bytes(bytes))),
        ColumnType::Uuid => take_fixed::<UUID_BYTES>(input, false)?
            .map_or(Value::Null, |bytes| Value::Binary(bytes.to_vec())),
        ColumnType::Array(_) | ColumnType::Interval => {
            return Err(corrupted("a value of a type that keys do not have"));
        }
    };
    Ok(value)
}

/// Skips one cell at the front of the input. Its content is not checked.
pub(super) fn skip(input: &mut &[u8], column_type: ColumnType) -> Result<(), Error> {
    let width = width(column_type);
    let (sentinel, mut rest) = input.split_first().ok_or_else(ends)?;
    if width > 0 {
        *input = rest.get(width..).ok_or_else(ends)?;
        return Ok(());
    }
    if *sentinel == NON_EMPTY {
        let mut block = 0;
        loop {
            let width = block_width(block);
            let (mark, tail) = rest.get(width..).and_then(<[u8]>::split_first).ok_or_else(ends)?;
            rest = tail;
            if *mark != CONTINUED {
                break;
            }
            block += 1;
        }
    }
    *input = rest;
    Ok(())
}

fn block_width(block: usize) -> usize {
    if block < SMALL_BLOCKS { SMALL_BLOCK_BYTES } else { BLOCK_BYTES }
}

fn int(value: Option<impl Into<i64>>) -> Value {
    value.map_or(Value::Null, |v| Value::Int(v.into()))
}

fn uint(value: Option<impl Into<u64>>) -> Value {
    value.map_or(Value::Null, |v| Value::UInt(v.into()))
}

/// Bytes of a fixed-width type; 0 for the others.
fn width(column_type: ColumnType) -> usize {
    match column_type {
        ColumnType::Bool | ColumnType::Int8 | ColumnType::UInt8 => 1,
        ColumnType::Int16 | ColumnType::UInt16 => 2,
        ColumnType::Int32 | ColumnType::UInt32 | ColumnType::Float32 | ColumnType::Date => 4,
        ColumnType::Int64
        | ColumnType::UInt64
        | ColumnType::Float64
        | ColumnType::Time
        | ColumnType::Timestamp(..) => 8,
        ColumnType::Decimal(..) => 16,
        ColumnType::Uuid => UUID_BYTES,
        // Keys have no arrays and no intervals.
        ColumnType::String | ColumnType::Binary | ColumnType::Array(_) | ColumnType::Interval => 0,
    }
}

/// The bits of a float, all but the sign inverted if it is negative, so that they compare as a signed integer;
/// self-inverse.
fn turned32(bits: u32) -> u32 {
    if bits >> 31 == 1 { bits ^ (u32::MAX >> 1) } else { bits }
}

/// As `turned32`, for 64 bits.
fn turned64(bits: u64) -> u64 {
    if bits >> 63 == 1 { bits ^ (u64::MAX >> 1) } else { bits }
}

fn fixed<const N: usize>(buffer: &mut Vec<u8>, mut bytes: [u8; N], signed: bool) {
    if signed && let Some(first) = bytes.first_mut() {
        *first ^= 0x80;
    }
    buffer.push(VALID);
    buffer.extend_from_slice(&bytes);
}

fn take_fixed<const N: usize>(input: &mut &[u8], signed: bool) -> Result<Option<[u8; N]>, Error> {
    let (sentinel, rest) = input.split_first().ok_or_else(ends)?;
    let (bytes, rest) = rest.split_first_chunk::<N>().ok_or_else(ends)?;
    *input = rest;
    let mut bytes = *bytes;
    match *sentinel {
        VALID => {
            if signed && let Some(first) = bytes.first_mut() {
                *first ^= 0x80;
            }
            Ok(Some(bytes))
        }
        NULL if bytes == [0; N] => Ok(None),
        _ => Err(corrupted("an unknown mark")),
    }
}

fn variable(buffer: &mut Vec<u8>, value: &[u8]) {
    if value.is_empty() {
        return buffer.push(EMPTY);
    }
    buffer.push(NON_EMPTY);
    let mut rest = value;
    let mut block = 0;
    loop {
        let width = block_width(block);
        let (content, tail) = rest.split_at(rest.len().min(width));
        buffer.extend_from_slice(content);
        buffer.resize(buffer.len() + width - content.len(), 0);
        if tail.is_empty() {
            #[expect(clippy::cast_possible_truncation, reason = "a block has at most 32 bytes")]
            return buffer.push(content.len() as u8);
        }
        buffer.push(CONTINUED);
        rest = tail;
        block += 1;
    }
}

fn take_variable(input: &mut &[u8]) -> Result<Option<Vec<u8>>, Error> {
    let (sentinel, mut rest) = input.split_first().ok_or_else(ends)?;
    let value = match *sentinel {
        NULL => None,
        EMPTY => Some(Vec::new()),
        NON_EMPTY => {
            // Full blocks are followed by a mark of continuation; the last one by the length of its content, and padded
            // with zeros.
            let mut value = Vec::new();
            let mut block = 0;
            loop {
                let width = block_width(block);
                let (content, tail) = rest.split_at_checked(width).ok_or_else(ends)?;
                let (mark, tail) = tail.split_first().ok_or_else(ends)?;
                rest = tail;
                if *mark == CONTINUED {
                    value.extend_from_slice(content);
                    block += 1;
                    continue;
                }
                let (content, padding) = content
                    .split_at_checked(usize::from(*mark))
                    .filter(|(content, _)| !content.is_empty())
                    .ok_or_else(|| corrupted("an unknown mark"))?;
                if padding.iter().any(|byte| *byte != 0) {
                    return Err(corrupted("padding that is not zero"));
                }
                value.extend_from_slice(content);
                break;
            }
            Some(value)
        }
        _ => return Err(corrupted("an unknown mark")),
    };
    *input = rest;
    Ok(value)
}

fn ends() -> Error {
    Error::Corrupted("a key ends within a column".to_owned())
}

fn corrupted(detail: &str) -> Error {
    Error::Corrupted(format!("a key has {detail}"))
}
