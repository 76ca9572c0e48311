//! Parameters in the binary format.

use arrow::datatypes::{DataType, IntervalMonthDayNano};
use bytes::Buf;
use datafusion::scalar::ScalarValue;
use partita_frontend::civil::{EPOCH_DAYS, EPOCH_MICROS};
use partita_frontend::sql::bytes::sent_text;
use partita_frontend::{SqlError, Zone, as_instants};
use pgwire::api::Type;

use super::numeric::not_finite;
use super::{NUMERIC_PRECISION, NUMERIC_SCALE, list_of, out_of_range};
use crate::types;

/// The name of a type whose binary form the bytes do not have.
pub(super) struct Malformed(pub(super) String);

const NUMERIC_NEGATIVE: u16 = 0x4000;
/// Maximum weight of a numeric parameter: 10,000 digits before the point.
const NUMERIC_GROUPS_MAX: i16 = 2_500;

/// A parameter of its declared type, cast to the type that the statement expects.
pub(super) fn value(
    bytes: &[u8],
    wire: &Type,
    target: &DataType,
    zone: Zone,
) -> Result<ScalarValue, SqlError> {
    let mut value = natural(bytes, wire, target, zone)?;
    if matches!(target, DataType::Timestamp(_, Some(_))) {
        // A local time is one of the session's zone.
        value = ScalarValue::try_from_array(&as_instants(&value.to_array()?, zone)?, 0)?;
    }
    if value.data_type() == *target {
        return Ok(value);
    }
    let options =
        arrow::compute::CastOptions { safe: false, ..arrow::compute::CastOptions::default() };
    let array = value.to_array()?;
    let cast = arrow::compute::cast_with_options(&array, target, &options)
        .map_err(|error| out_of_range(&error, &value, target))?;
    Ok(ScalarValue::try_from_array(&cast, 0)?)
}

/// The bytes as an array, if there are exactly N of them.
fn exactly<const N: usize>(bytes: &[u8], wire: &Type) -> Result<[u8; N], Malformed> {
    bytes.try_into().map_err(|_| Malformed(wire.name().to_owned()))
}

/// The value in its own type.
fn natural(
    bytes: &[u8],
    wire: &Type,
    target: &DataType,
    zone: Zone,
) -> Result<ScalarValue, SqlError> {
    Ok(match *wire {
        Type::BOOL => ScalarValue::Boolean(Some(exactly::<1>(bytes, wire)? != [0])),
        Type::INT2 => ScalarValue::Int16(Some(i16::from_be_bytes(exactly(bytes, wire)?))),
        Type::INT4 => ScalarValue::Int32(Some(i32::from_be_bytes(exactly(bytes, wire)?))),
        Type::OID | Type::REGCLASS | Type::REGTYPE | Type::REGPROC | Type::REGNAMESPACE => {
            // Object ids are signed in `pg_catalog`; all of them are small.
            ScalarValue::Int32(Some(i32::from_be_bytes(exactly(bytes, wire)?)))
        }
        Type::INT8 => ScalarValue::Int64(Some(i64::from_be_bytes(exactly(bytes, wire)?))),
        Type::FLOAT4 => ScalarValue::Float32(Some(f32::from_be_bytes(exactly(bytes, wire)?))),
        Type::FLOAT8 => ScalarValue::Float64(Some(f64::from_be_bytes(exactly(bytes, wire)?))),
        Type::TEXT
        | Type::VARCHAR
        | Type::BPCHAR
        | Type::NAME
        | Type::CHAR
        | Type::UNKNOWN
        | Type::JSON => ScalarValue::Utf8View(Some(sent_text(bytes)?.to_owned())),
        Type::JSONB => match bytes.split_first() {
            Some((&types::JSONB_VERSION, text)) => {
                ScalarValue::Utf8View(Some(sent_text(text)?.to_owned()))
            }
            _ => return Err(Malformed(wire.name().to_owned()).into()),
        },
        Type::BYTEA => ScalarValue::BinaryView(Some(bytes.to_vec())),
        Type::UUID => ScalarValue::FixedSizeBinary(16, Some(exactly::<16>(bytes, wire)?.to_vec())),
        Type::DATE => {
            let days = i32::from_be_bytes(exactly(bytes, wire)?);
            if matches!(days, i32::MIN | i32::MAX) {
                return Err(infinite());
            }
            ScalarValue::Date32(Some(days.checked_add(EPOCH_DAYS).ok_or_else(infinite)?))
        }
        Type::TIME => {
            ScalarValue::Time64Microsecond(Some(i64::from_be_bytes(exactly(bytes, wire)?)))
        }
        Type::TIMESTAMP => ScalarValue::TimestampMicrosecond(Some(micros(bytes, wire)?), None),
        Type::TIMESTAMPTZ => {
            // Cast to a type without a time zone, it is the time in UTC.
            ScalarValue::TimestampMicrosecond(Some(micros(bytes, wire)?), Some("UTC".into()))
        }
        Type::INTERVAL => {
            let parts = exactly::<16>(bytes, wire)?;
            let mut parts = parts.as_slice();
            let nanos = parts
                .get_i64()
                .checked_mul(1_000)
                .ok_or_else(|| SqlError::new("22015", "interval out of range"))?;
            let (days, months) = (parts.get_i32(), parts.get_i32());
            ScalarValue::IntervalMonthDayNano(Some(IntervalMonthDayNano::new(months, days, nanos)))
        }
        Type::NUMERIC => numeric(bytes, target)?,
        _ => match types::element(wire) {
            Some(element) => array(bytes, wire, element, (target, zone))?,
            None => {
                return Err(SqlError::unsupported(format!(
                    "a binary parameter of type {}",
                    wire.name()
                )));
            }
        },
    })
}

fn infinite() -> SqlError {
    SqlError::new("22008", "date or time out of range")
}

fn micros(bytes: &[u8], wire: &Type) -> Result<i64, SqlError> {
    let micros = i64::from_be_bytes(exactly(bytes, wire)?);
    if matches!(micros, i64::MIN | i64::MAX) {
        return Err(infinite());
    }
    micros.checked_add(EPOCH_MICROS).ok_or_else(infinite)
}

/// The decimal digits of a binary numeric.
pub(super) fn digits(mut bytes: &[u8]) -> Result<String, SqlError> {
    let malformed = || Malformed(Type::NUMERIC.name().to_owned());
    if bytes.len() < 8 {
        return Err(malformed().into());
    }
    let count = bytes.get_i16();
    let weight = bytes.get_i16();
    let sign = bytes.get_u16();
    let scale = bytes.get_i16();
    if !matches!(sign, 0 | NUMERIC_NEGATIVE) {
        return Err(not_finite());
    }
    let expected = usize::try_from(count).map_err(|_| malformed())? * 2;
    if bytes.len() != expected || weight.abs() > NUMERIC_GROUPS_MAX || scale < 0 {
        return Err(malformed().into());
    }
    let mut text = String::new();
    if sign == NUMERIC_NEGATIVE {
        text.push('-');
    }
    let groups: Vec<i16> = (0..count).map(|_| bytes.get_i16()).collect();
    if groups.iter().any(|group| !(0..10_000).contains(group)) {
        return Err(malformed().into());
    }
    let group = |position: i16| -> i16 {
        usize::try_from(position)
            .ok()
            .and_then(|position| groups.get(position).copied())
            .unwrap_or(0)
    };
    if weight < 0 {
        text.push('0');
    }
    for position in 0..=weight {
        text.push_str(&format!("{:04}", group(position)));
    }
    text.push('.');
    // With a negative weight the digits begin after the point; groups before the first are zeros.
    for position in weight + 1..count {
        text.push_str(&format!("{:04}", group(position)));
    }
    Ok(text)
}

/// A numeric, parsed from its digits.
fn numeric(bytes: &[u8], target: &DataType) -> Result<ScalarValue, SqlError> {
    let text = digits(bytes)?;
    let decimal_type = match target {
        DataType::Decimal128(..) | DataType::Decimal256(..) => target.clone(),
        DataType::Float64 | DataType::Float32 => DataType::Float64,
        DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8 => {
            return Ok(ScalarValue::Utf8View(Some(plain(&text))));
        }
        target if target.is_integer() => {
            let text = plain(&text);
            let array = ScalarValue::Utf8View(Some(text.clone())).to_array()?;
            let options = arrow::compute::CastOptions {
                safe: false,
                ..arrow::compute::CastOptions::default()
            };
            let cast = arrow::compute::cast_with_options(&array, target, &options)
                .map_err(|_| super::invalid(target, &text))?;
            return Ok(ScalarValue::try_from_array(&cast, 0)?);
        }
        _ => DataType::Decimal128(NUMERIC_PRECISION, NUMERIC_SCALE),
    };
    super::cast(&ScalarValue::Utf8View(Some(text.clone())), &decimal_type, &text)
}

/// The digits without zeros at either end.
fn plain(text: &str) -> String {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let whole = match whole.trim_start_matches('0') {
        "" => "0",
        whole => whole,
    };
    match fraction.trim_end_matches('0') {
        "" => format!("{sign}{whole}"),
        fraction => format!("{sign}{whole}.{fraction}"),
    }
}

fn array(
    mut bytes: &[u8],
    wire: &Type,
    element_type: &Type,
    (target, zone): (&DataType, Zone),
) -> Result<ScalarValue, SqlError> {
    let malformed = || Malformed(wire.name().to_owned());
    let DataType::List(item) = target else {
        return Err(SqlError::new(
            "42804",
            format!("a parameter of type {target} cannot be an array"),
        ));
    };
    if bytes.len() < 12 {
        return Err(malformed().into());
    }
    let dimensions = bytes.get_i32();
    bytes.advance(8);
    match dimensions {
        0 => return list_of(Vec::new(), target),
        1 if bytes.len() >= 8 => {}
        1 => return Err(malformed().into()),
        _ => return Err(SqlError::unsupported("an array of several dimensions")),
    }
    let count = usize::try_from(bytes.get_i32()).map_err(|_| malformed())?;
    bytes.advance(4);
    // Each element is preceded by its length.
    if bytes.len() / 4 < count {
        return Err(malformed().into());
    }
    let mut values = Vec::with_capacity(count);
    for _ in 0..count {
        if bytes.len() < 4 {
            return Err(malformed().into());
        }
        let length = bytes.get_i32();
        if length == -1 {
            values.push(ScalarValue::try_from(item.data_type())?);
            continue;
        }
        let length = usize::try_from(length).map_err(|_| malformed())?;
        let (element, rest) = bytes.split_at_checked(length).ok_or_else(malformed)?;
        values.push(value(element, element_type, item.data_type(), zone)?);
        bytes = rest;
    }
    list_of(values, target)
}
