//! Bound parameters as values.
//!
//! A parameter in the text format is parsed as the type that the statement expects; one in the binary format is read as
//! the type that the client declared (or that was described to it), and cast to the type that the statement expects.

mod binary;
mod numeric;

use arrow::datatypes::{DataType, Field, IntervalUnit, TimeUnit};
use arrow::error::ArrowError;
use datafusion::scalar::ScalarValue;
use partita_frontend::moments::{Moment, parse_date, ticks};
use partita_frontend::sql::bytes::{parse_bytea, sent_text};
use partita_frontend::sql::statement::Statement;
use partita_frontend::{Prepared, SqlError, Zone, elements_of, interval_text, time_of, uuid_of};
use partita_proto::schema::UUID;
use pgwire::api::Type;
use pgwire::api::portal::Portal;
use pgwire::api::results::FieldFormat;
use pgwire::api::stmt::StoredStatement;
use pgwire::error::PgWireResult;
use std::sync::Arc;

use crate::error::{protocol, to_wire};
use crate::types;

/// Scale of a numeric whose type is not known better.
const NUMERIC_SCALE: i8 = 10;
const NUMERIC_PRECISION: u8 = 38;

/// The types that a client declared, as far as they are specific.
pub(crate) fn declared(types: &[Option<Type>]) -> Vec<Option<DataType>> {
    types.iter().map(|declared| declared.as_ref().and_then(to_arrow)).collect()
}

/// The Arrow type of a declared type; `None` leaves the choice to the statement.
fn to_arrow(declared: &Type) -> Option<DataType> {
    Some(match *declared {
        Type::BOOL => DataType::Boolean,
        Type::INT2 => DataType::Int16,
        Type::INT4
        | Type::OID
        | Type::REGCLASS
        | Type::REGTYPE
        | Type::REGPROC
        | Type::REGNAMESPACE => DataType::Int32,
        Type::INT8 => DataType::Int64,
        Type::FLOAT4 => DataType::Float32,
        Type::FLOAT8 => DataType::Float64,
        Type::VARCHAR
        | Type::TEXT
        | Type::BPCHAR
        | Type::NAME
        | Type::CHAR
        | Type::JSON
        | Type::JSONB => DataType::Utf8View,
        Type::BYTEA => DataType::BinaryView,
        Type::UUID => UUID,
        // The number of digits follows from the value.
        Type::NUMERIC => DataType::Decimal128(NUMERIC_PRECISION, NUMERIC_SCALE),
        Type::DATE => DataType::Date32,
        Type::TIME => DataType::Time64(TimeUnit::Microsecond),
        Type::TIMESTAMP => DataType::Timestamp(TimeUnit::Microsecond, None),
        Type::TIMESTAMPTZ => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        _ => {
            // An array has one scale, which depends on its use.
            let item = to_arrow(types::element(declared).filter(|item| **item != Type::NUMERIC)?)?;
            DataType::List(Arc::new(Field::new_list_field(item, true)))
        }
    })
}

/// The types that the statement expects of its parameters.
pub(crate) fn types(prepared: &Prepared) -> Vec<Type> {
    prepared.parameter_types.iter().map(types::of_arrow).collect()
}

/// The types that are described to a client: those it declared itself, which it may compare with the description, and
/// the server's choice for the others.
pub(crate) fn described(statement: &StoredStatement<Arc<Prepared>>) -> Vec<Type> {
    let declared = |index: usize| statement.parameter_types.get(index).cloned().flatten();
    let chosen = types(&statement.statement).into_iter().enumerate();
    chosen.map(|(index, expected)| declared(index).filter(is_known).unwrap_or(expected)).collect()
}

/// Returns true if a declared type is specific: 0 leaves the choice to the server.
fn is_known(declared: &Type) -> bool {
    declared.oid() != 0 && *declared != Type::UNKNOWN
}

/// The values of a portal's parameters.
pub(crate) fn values(portal: &Portal<Arc<Prepared>>, zone: Zone) -> PgWireResult<Vec<ScalarValue>> {
    let statement = &portal.statement;
    let prepared = &statement.statement;
    let expected = prepared.parameter_types.len();
    if portal.parameter_len() != expected {
        return Err(protocol(
            "08P01",
            format!(
                "bind message supplies {} parameters, but prepared statement \"{}\" requires {expected}",
                portal.parameter_len(),
                crate::extended::shown_name(&statement.id)
            ),
        ));
    }
    check_formats(portal)?;
    prepared
        .parameter_types
        .iter()
        .enumerate()
        .map(|(index, target)| {
            let Some(bytes) = portal.parameters.get(index).and_then(Option::as_ref) else {
                return ScalarValue::try_from(target).map_err(SqlError::from);
            };
            let declared = statement.parameter_types.get(index).and_then(Option::as_ref);
            // A column that is inserted into has a scale of its own.
            let is_exact = declared == Some(&Type::NUMERIC)
                && matches!(target, DataType::Decimal128(..))
                && !matches!(prepared.statement, Statement::Insert(_));
            match portal.parameter_format.format_for(index) {
                FieldFormat::Text if is_exact => numeric::exact(sent_text(bytes)?),
                FieldFormat::Text => text(bytes, target, zone),
                FieldFormat::Binary if is_exact => numeric::exact(&binary::digits(bytes)?),
                FieldFormat::Binary => {
                    let expected_type = types::of_arrow(target);
                    let wire = declared.filter(|declared| is_known(declared));
                    binary::value(bytes, wire.unwrap_or(&expected_type), target, zone)
                }
            }
            .map_err(|error| in_parameter(error, index))
        })
        .collect::<Result<_, SqlError>>()
        .map_err(to_wire)
}

fn check_formats(portal: &Portal<Arc<Prepared>>) -> PgWireResult<()> {
    match &portal.parameter_format {
        pgwire::api::portal::Format::Individual(formats)
            if formats.len() != portal.parameter_len() =>
        {
            Err(protocol(
                "08P01",
                format!(
                    "bind message has {} parameter formats but {} parameters",
                    formats.len(),
                    portal.parameter_len()
                ),
            ))
        }
        _ => Ok(()),
    }
}

fn in_parameter(error: SqlError, index: usize) -> SqlError {
    match error.detail {
        Some(_) => error,
        None => error.with_detail(format!("in parameter ${}", index + 1)),
    }
}

fn invalid(target: &DataType, text: &str) -> SqlError {
    let (sqlstate, name) = match target {
        DataType::Timestamp(..) | DataType::Date32 | DataType::Time64(_) | DataType::Time32(_) => {
            ("22007", types::of_arrow(target).name().to_owned())
        }
        _ => ("22P02", types::of_arrow(target).name().to_owned()),
    };
    SqlError::new(sqlstate, format!("invalid input syntax for type {name}: \"{text}\""))
}

/// A parameter in the text format.
fn text(bytes: &[u8], target: &DataType, zone: Zone) -> Result<ScalarValue, SqlError> {
    from_text(sent_text(bytes)?, target, zone)
}

/// Parses an integer; one that is out of range is a different error than one that is malformed.
fn whole<T: std::str::FromStr<Err = std::num::ParseIntError>>(
    text: &str,
    target: &DataType,
) -> Result<Option<T>, SqlError> {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    match text.trim().parse() {
        Ok(number) => Ok(Some(number)),
        Err(error) if matches!(error.kind(), PosOverflow | NegOverflow) => {
            let name = types::of_arrow(target).name().to_owned();
            Err(SqlError::new("22003", format!("value \"{text}\" is out of range for type {name}")))
        }
        Err(_) => Err(invalid(target, text)),
    }
}

fn boolean(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "t" | "true" | "y" | "yes" | "on" | "1" => Some(true),
        "f" | "false" | "n" | "no" | "off" | "0" => Some(false),
        _ => None,
    }
}

fn from_text(text: &str, target: &DataType, zone: Zone) -> Result<ScalarValue, SqlError> {
    Ok(match target {
        // Types with a parser of their own.
        DataType::Utf8 => ScalarValue::Utf8(Some(text.to_owned())),
        DataType::LargeUtf8 => ScalarValue::LargeUtf8(Some(text.to_owned())),
        DataType::Utf8View => ScalarValue::Utf8View(Some(text.to_owned())),
        DataType::Boolean => {
            ScalarValue::Boolean(Some(boolean(text).ok_or_else(|| invalid(target, text))?))
        }
        DataType::Int8 => ScalarValue::Int8(whole(text, target)?),
        DataType::Int16 => ScalarValue::Int16(whole(text, target)?),
        DataType::Int32 => ScalarValue::Int32(whole(text, target)?),
        DataType::Int64 => ScalarValue::Int64(whole(text, target)?),
        DataType::UInt8 => ScalarValue::UInt8(whole(text, target)?),
        DataType::UInt16 => ScalarValue::UInt16(whole(text, target)?),
        DataType::UInt32 => ScalarValue::UInt32(whole(text, target)?),
        DataType::UInt64 => ScalarValue::UInt64(whole(text, target)?),
        DataType::Float32 => {
            ScalarValue::Float32(Some(text.trim().parse().map_err(|_| invalid(target, text))?))
        }
        DataType::Float64 => {
            ScalarValue::Float64(Some(text.trim().parse().map_err(|_| invalid(target, text))?))
        }
        &UUID => uuid_of(text)?,
        DataType::Time64(TimeUnit::Microsecond) => time_of(text)?,
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let interval = interval_text::parse(text).ok_or_else(|| invalid(target, text))?;
            ScalarValue::IntervalMonthDayNano(Some(interval))
        }
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => {
            let bytes = parse_bytea(text).ok_or_else(|| invalid(target, text))?;
            cast(&ScalarValue::BinaryView(Some(bytes)), target, text)?
        }
        // A timestamp without an offset is a time in the session's zone.
        DataType::Timestamp(unit, zoned) => {
            let moment = Moment::parse(text).ok_or_else(|| invalid(target, text))?;
            let nanos = if zoned.is_some() { moment.instant(zone) } else { moment.local(zone) };
            let ticks = ticks(nanos, *unit).ok_or_else(|| {
                SqlError::new("22008", format!("timestamp out of range: \"{text}\""))
            })?;
            cast(&ScalarValue::Int64(Some(ticks)), target, text)?
        }
        DataType::Date32 => {
            ScalarValue::Date32(Some(parse_date(text).ok_or_else(|| invalid(target, text))?))
        }
        DataType::List(item) => list_from_text(text, item, target, zone)?,
        // Arrow casts all others.
        _ => cast(&ScalarValue::Utf8View(Some(text.trim().to_owned())), target, text)?,
    })
}

fn cast(value: &ScalarValue, target: &DataType, text: &str) -> Result<ScalarValue, SqlError> {
    let cast = value.to_array().map_err(SqlError::from).and_then(|array| {
        let options =
            arrow::compute::CastOptions { safe: false, ..arrow::compute::CastOptions::default() };
        let array = arrow::compute::cast_with_options(&array, target, &options)?;
        Ok(ScalarValue::try_from_array(&array, 0)?)
    });
    cast.map_err(|error| {
        if matches!(error.sqlstate.as_str(), "22003" | "22008" | "0A000") {
            return error;
        }
        invalid(target, text)
    })
}

/// Parses an array: `{1,2,NULL,"a b"}`.
fn list_from_text(
    text: &str,
    item: &Field,
    target: &DataType,
    zone: Zone,
) -> Result<ScalarValue, SqlError> {
    let value = |element: Option<String>| match element {
        Some(word) => from_text(&word, item.data_type(), zone),
        None => Ok(ScalarValue::try_from(item.data_type())?),
    };
    let values = elements_of(text)?.into_iter().map(value).collect::<Result<_, SqlError>>()?;
    list_of(values, target)
}

/// An array of values of one type.
fn list_of(values: Vec<ScalarValue>, target: &DataType) -> Result<ScalarValue, SqlError> {
    let DataType::List(item) = target else {
        return Err(SqlError::new(
            "42804",
            format!("a parameter of type {target} cannot be an array"),
        ));
    };
    Ok(ScalarValue::List(ScalarValue::new_list_nullable(&values, item.data_type())))
}

impl From<binary::Malformed> for SqlError {
    fn from(malformed: binary::Malformed) -> Self {
        Self::new("22P03", format!("incorrect binary data format of type {}", malformed.0))
    }
}

/// The error of a cast by Arrow, the same for both formats.
fn out_of_range(error: &ArrowError, value: &ScalarValue, target: &DataType) -> SqlError {
    let name = types::of_arrow(target).name().to_owned();
    SqlError::new("22003", format!("value {value} is out of range for type {name}"))
        .with_detail(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::DataType;
    use bytes::BytesMut;

    fn read(text: &str, target: &DataType) -> Result<ScalarValue, SqlError> {
        from_text(text, target, Zone::named("Europe/Berlin").unwrap())
    }

    fn micros(zone: Option<&str>) -> DataType {
        DataType::Timestamp(TimeUnit::Microsecond, zone.map(Into::into))
    }

    #[test]
    fn text_is_read_as_the_statement_takes_it() {
        assert_eq!(read(" 7 ", &DataType::Int16).unwrap(), ScalarValue::Int16(Some(7)));
        assert_eq!(read("on", &DataType::Boolean).unwrap(), ScalarValue::Boolean(Some(true)));
        assert_eq!(read("NaN", &DataType::Float64).unwrap().to_string(), "NaN");
        assert_eq!(
            read("\\x00ff", &DataType::BinaryView).unwrap(),
            ScalarValue::BinaryView(Some(vec![0, 255]))
        );
        let decimal = read("-1.25", &DataType::Decimal128(10, 2)).unwrap();
        assert_eq!(decimal, ScalarValue::Decimal128(Some(-125), 10, 2));
        assert_eq!(
            read("2024-07-01 10:00:00", &micros(None)).unwrap(),
            ScalarValue::TimestampMicrosecond(Some(1_719_828_000_000_000), None)
        );
        // Without an offset it is the session's time.
        for text in ["2024-07-01 12:00:00", "2024-07-01 10:00:00+00", "2024-07-01 15:30:00+05:30"] {
            assert_eq!(
                read(text, &micros(Some("UTC"))).unwrap(),
                ScalarValue::TimestampMicrosecond(Some(1_719_828_000_000_000), Some("UTC".into())),
                "{text}"
            );
        }
    }

    #[test]
    fn text_that_is_no_value_has_the_sqlstate_of_postgres() {
        let state = |text: &str, target: &DataType| read(text, target).unwrap_err().sqlstate;
        assert_eq!(state("x", &DataType::Int64), "22P02");
        assert_eq!(state("40000", &DataType::Int16), "22003");
        assert_eq!(state("maybe", &DataType::Boolean), "22P02");
        assert_eq!(state("never", &micros(None)), "22007");
        assert_eq!(state("1.x", &DataType::Decimal128(10, 2)), "22P02");
        assert_eq!(state("{1", &list(DataType::Int32)), "22P02");
    }

    fn list(item: DataType) -> DataType {
        DataType::List(Arc::new(Field::new_list_field(item, true)))
    }

    #[test]
    fn arrays_are_read_in_both_formats() {
        let texts = list(DataType::Utf8View);
        let got = read(r#"{a, "b \"c\"" ,NULL,"NULL"}"#, &texts).unwrap();
        let word = |word: &str| ScalarValue::Utf8View(Some(word.to_owned()));
        let expected = [word("a"), word("b \"c\""), ScalarValue::Utf8View(None), word("NULL")];
        assert_eq!(got, list_of(expected.to_vec(), &texts).unwrap());
        let numbers = list(DataType::Int64);
        let mut bytes = Vec::new();
        for part in [1_i32, 1, 23, 2, 1, 4, 7, -1] {
            bytes.extend(part.to_be_bytes());
        }
        let got = binary::value(&bytes, &Type::INT4_ARRAY, &numbers, Zone::UTC).unwrap();
        let expected = vec![ScalarValue::Int64(Some(7)), ScalarValue::Int64(None)];
        assert_eq!(got, list_of(expected, &numbers).unwrap());
        for cut in 0..bytes.len() {
            binary::value(&bytes[..cut], &Type::INT4_ARRAY, &numbers, Zone::UTC).unwrap_err();
        }
    }

    #[test]
    fn a_zero_byte_is_no_part_of_a_text() {
        let state = |read: Result<ScalarValue, SqlError>| read.unwrap_err().sqlstate;
        for bytes in [&b"\0"[..], b"a\0b", b"ab\0"] {
            assert_eq!(state(text(bytes, &DataType::Utf8View, Zone::UTC)), "22021");
            let read = binary::value(bytes, &Type::TEXT, &DataType::Utf8View, Zone::UTC);
            assert_eq!(state(read), "22021");
        }
        // One element `a` and a zero.
        let texts = list(DataType::Utf8View);
        let mut bytes = Vec::new();
        for part in [1_i32, 0, 25, 1, 1, 2] {
            bytes.extend(part.to_be_bytes());
        }
        bytes.extend(b"a\0");
        assert_eq!(state(binary::value(&bytes, &Type::TEXT_ARRAY, &texts, Zone::UTC)), "22021");
        // Bytes may be zero.
        let got = binary::value(b"a\0", &Type::BYTEA, &DataType::BinaryView, Zone::UTC).unwrap();
        assert_eq!(got, ScalarValue::BinaryView(Some(vec![b'a', 0])));
    }

    #[test]
    fn a_uuid_is_read_from_both_formats() {
        let expected = ScalarValue::FixedSizeBinary(16, Some(vec![0xA0; 16]));
        let got = binary::value(&[0xA0; 16], &Type::UUID, &UUID, Zone::UTC).unwrap();
        assert_eq!(got, expected);
        let got = text(b"A0A0A0A0-a0a0-a0a0-a0a0-a0a0a0a0a0a0", &UUID, Zone::UTC).unwrap();
        assert_eq!(got, expected);
        let error = text(b"a0", &UUID, Zone::UTC).unwrap_err();
        assert_eq!(error.sqlstate, "22P02");
        assert_eq!(error.message, "invalid input syntax for type uuid: \"a0\"");
        assert!(binary::value(&[0xA0; 15], &Type::UUID, &UUID, Zone::UTC).is_err());
    }

    #[test]
    fn a_binary_numeric_keeps_every_digit() {
        for text in
            ["0", "1", "-12345.678", "0.00001", "99999999", "10000", "-0.5", "123456789.00001"]
        {
            let mut bytes = BytesMut::new();
            crate::encode::numeric(&mut bytes, text).unwrap();
            let got =
                binary::value(&bytes, &Type::NUMERIC, &DataType::Utf8View, Zone::UTC).unwrap();
            assert_eq!(got, ScalarValue::Utf8View(Some(text.to_owned())));
            let decimal = DataType::Decimal128(30, 5);
            let got = binary::value(&bytes, &Type::NUMERIC, &decimal, Zone::UTC).unwrap();
            assert_eq!(got, read(text, &decimal).unwrap());
        }
        let mut bytes = BytesMut::new();
        crate::encode::numeric(&mut bytes, "18446744073709551615").unwrap();
        let got = binary::value(&bytes, &Type::NUMERIC, &DataType::UInt64, Zone::UTC).unwrap();
        assert_eq!(got, ScalarValue::UInt64(Some(u64::MAX)));
    }

    #[test]
    fn binary_values_are_cast_to_what_the_statement_takes() {
        let got =
            binary::value(&5_i16.to_be_bytes(), &Type::INT2, &DataType::Int64, Zone::UTC).unwrap();
        assert_eq!(got, ScalarValue::Int64(Some(5)));
        let error =
            binary::value(&70_000_i32.to_be_bytes(), &Type::INT4, &DataType::Int16, Zone::UTC);
        assert_eq!(error.unwrap_err().sqlstate, "22003");
        let error = binary::value(&[1, 2], &Type::INT4, &DataType::Int32, Zone::UTC);
        assert_eq!(error.unwrap_err().sqlstate, "22P03");
        let millis = DataType::Timestamp(TimeUnit::Millisecond, None);
        let got =
            binary::value(&0_i64.to_be_bytes(), &Type::TIMESTAMP, &millis, Zone::UTC).unwrap();
        assert_eq!(got, ScalarValue::TimestampMillisecond(Some(946_684_800_000), None));
        let error = binary::value(&i64::MAX.to_be_bytes(), &Type::TIMESTAMP, &millis, Zone::UTC);
        assert_eq!(error.unwrap_err().sqlstate, "22008");
    }
}
