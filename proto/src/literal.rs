//! Literals and column types: conversion of a value to a column's type, and its text form; the text of a bound.
//!
//! `Fit` relates a literal to a column: either the column's type has exactly that value, or the literal lies strictly
//! between two values of the type or beyond its ends. [`Value::coerce`] accepts only the first case, so it never
//! changes the result of a comparison; a [`crate::domain::Domain`] uses the others too, to compare `x < 2.5` with an
//! integer column.
//!
//! Text counts as the value it represents: `'10'` is a number to a numeric column, `'2024-01-01'` a moment to a
//! timestamp column. A float represents the decimal number that it is written as: 9.99 is 9.99 in a DECIMAL(10, 2)
//! column. The value of a UUID is its bytes, that of a TIME its microseconds.

use crate::calendar;
use crate::error::Error;
use crate::neighbour::{
    decimal_max, integer, integer_range, integer_value, narrow, predecessor, widen,
};
use crate::schema::ColumnType;
use crate::time_of_day;
use crate::uuid::{self, UUID_BYTES};
use crate::value::Value;

/// Position of a literal among the values of a type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fit {
    /// Equal to this value.
    Exact(Value),
    /// After this value and before the next one.
    After(Value),
    /// Before all values.
    Below,
    /// After all values.
    Above,
}

/// Maximum decimal digits of a number in text, zeros of its exponent included; an f64 needs 767.
const DIGITS_MAX: usize = 1100;

impl Value {
    /// Converts the value to the same value of this type. NULL is a value of every type.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] when the type has no such value: it is out of range, between two values (0.1 is not a
    /// REAL, nor 2.5 a BIGINT), or text that does not parse.
    pub fn coerce(self, column_type: ColumnType) -> Result<Self, Error> {
        if self.is_null() || self.is_of(column_type) {
            return Ok(self);
        }
        match fit(&self, column_type)? {
            Fit::Exact(value) => Ok(value),
            Fit::After(_) => Err(Error::InvalidInput(format!(
                "{self} is not exactly representable as {}",
                column_type.sql()
            ))),
            Fit::Below | Fit::Above => Err(Error::InvalidInput(format!(
                "{self} is out of range for {}",
                column_type.sql()
            ))),
        }
    }

    /// Converts the value for assignment to a column of this type, as INSERT does: like [`Value::coerce`], but a value
    /// between two values of the type is rounded to the nearest for REAL and DOUBLE, and cut to the column's digits for
    /// DECIMAL and TIMESTAMP.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] when it is out of range, text that does not parse, or would lose its fraction to an
    /// integer.
    pub fn assign(self, column_type: ColumnType) -> Result<Self, Error> {
        if self.is_null() || self.is_of(column_type) {
            return Ok(self);
        }
        match (&self, column_type) {
            (Self::Float(v), ColumnType::Float32) => {
                let nearest = narrow(*v);
                if nearest.is_infinite() && v.is_finite() {
                    return Err(Error::InvalidInput(format!("{v} is out of range for REAL")));
                }
                Ok(Self::Float(widen(nearest)))
            }
            (Self::Int(_) | Self::UInt(_), ColumnType::Float32 | ColumnType::Float64) => {
                // Via text, which rounds once, to the nearest.
                Self::String(self.to_string()).coerce(column_type)
            }
            (_, ColumnType::Decimal(..) | ColumnType::Timestamp(..)) => {
                match fit(&self, column_type)? {
                    Fit::Exact(value) => Ok(value),
                    Fit::After(value) => Ok(towards_zero(value)),
                    Fit::Below | Fit::Above => self.coerce(column_type),
                }
            }
            _ => self.coerce(column_type),
        }
    }

    /// True if it is a value of the type already, so that coercion is not needed. Must not be called for NULL.
    pub(crate) fn is_of(&self, column_type: ColumnType) -> bool {
        match (self, column_type) {
            (Self::Bool(_), ColumnType::Bool)
            | (Self::Int(_), ColumnType::Int64 | ColumnType::Time)
            | (Self::UInt(_), ColumnType::UInt64)
            | (Self::Float(_), ColumnType::Float64)
            | (Self::String(_), ColumnType::String)
            | (Self::Binary(_), ColumnType::Binary)
            | (Self::Date(_), ColumnType::Date)
            | (Self::Timestamp(_), ColumnType::Timestamp(..)) => true,
            (Self::Float(v), ColumnType::Float32) => widen(narrow(*v)).to_bits() == v.to_bits(),
            (Self::Binary(v), ColumnType::Uuid) => v.len() == UUID_BYTES,
            (Self::Decimal(v), ColumnType::Decimal(precision, _)) => {
                v.unsigned_abs() <= decimal_max(precision).unsigned_abs()
            }
            (Self::Int(v), ColumnType::Int8 | ColumnType::Int16 | ColumnType::Int32) => {
                integer_range(column_type)
                    .is_some_and(|(min, max)| (min..=max).contains(&i128::from(*v)))
            }
            (Self::UInt(v), ColumnType::UInt8 | ColumnType::UInt16 | ColumnType::UInt32) => {
                integer_range(column_type).is_some_and(|(_, max)| i128::from(*v) <= max)
            }
            _ => false,
        }
    }

    /// The text of the value in SQL, as a literal for a column of this type; it parses back.
    pub fn display(&self, column_type: ColumnType) -> String {
        match (self, column_type) {
            (Self::Timestamp(ticks), ColumnType::Timestamp(unit, utc)) => {
                format!("'{}'", calendar::format_timestamp(*ticks, unit, utc))
            }
            (Self::Date(days), _) => format!("'{}'", calendar::format_date(i64::from(*days))),
            (Self::Decimal(unscaled), ColumnType::Decimal(_, scale)) => {
                display_decimal(*unscaled, scale)
            }
            (Self::Int(micros), ColumnType::Time) => format!("'{}'", time_of_day::text(*micros)),
            (Self::Binary(bytes), ColumnType::Uuid) => format!("'{}'", uuid::text(bytes)),
            (Self::Float(v), _) if !v.is_finite() => {
                let sign = if v.is_sign_negative() { "-" } else { "" };
                format!("'{sign}{}'", if v.is_nan() { "NaN" } else { "Infinity" })
            }
            // The shortest digits that distinguish it among 32-bit floats.
            (Self::Float(v), ColumnType::Float32) => format!("{:?}", narrow(*v)),
            (Self::Float(v), _) => format!("{v:?}"),
            _ => self.to_string(),
        }
    }
}

/// Text of a bound for people and for SQL, with its placement first: `(3, 'a')`. It has no control characters and
/// parses back: a bound whose last text ends in the one NUL that makes it the successor of a value is written as
/// `AFTER (3, 'a')`, other control characters as in `U&'a\0009'`.
#[must_use]
pub fn printable(values: &[(&Value, ColumnType)], placement: Option<u16>) -> String {
    let mut cells: Vec<String> = placement.iter().map(ToString::to_string).collect();
    cells.extend(values.iter().map(|(value, column_type)| cell(value, *column_type)));
    let lower = values.last().and_then(|(value, _)| predecessor_text(value));
    if let Some((lower, last)) = lower.zip(cells.last_mut()) {
        *last = text_cell(lower);
        return format!("AFTER ({})", cells.join(", "));
    }
    format!("({})", cells.join(", "))
}

/// The text whose successor is this value; `None` for a value that is best shown as it is.
fn predecessor_text(value: &Value) -> Option<&str> {
    let Value::String(text) = value else { return None };
    text.strip_suffix('\0').filter(|lower| !lower.contains('\0'))
}

fn cell(value: &Value, column_type: ColumnType) -> String {
    match value {
        Value::String(text) => text_cell(text),
        value => value.display(column_type),
    }
}

/// A text as an SQL literal without control characters.
fn text_cell(text: &str) -> String {
    if !text.contains(|character: char| character < ' ') {
        return format!("'{}'", text.replace('\'', "''"));
    }
    let mut literal = "U&'".to_owned();
    for character in text.chars() {
        match character {
            '\'' => literal.push_str("''"),
            '\\' => literal.push_str("\\\\"),
            '\0'..='\u{1F}' => {
                let code = format!("\\{:04X}", u32::from(character));
                literal.push_str(&code);
            }
            printed => literal.push(printed),
        }
    }
    literal.push('\'');
    literal
}

/// Position of a literal, which is not NULL, among the values of a type.
///
/// # Errors
/// [`Error::InvalidInput`] when the two are not comparable, or for text that does not parse.
pub(crate) fn fit(value: &Value, column_type: ColumnType) -> Result<Fit, Error> {
    if value.is_of(column_type) {
        return Ok(Fit::Exact(value.clone()));
    }
    let fitted = match column_type {
        ColumnType::Bool => fit_bool(value),
        ColumnType::Float32 | ColumnType::Float64 => fit_float(value, column_type),
        ColumnType::Decimal(precision, scale) => fit_decimal(value, precision, scale),
        ColumnType::Date => fit_date(value),
        ColumnType::Timestamp(unit, _) => match value {
            Value::Int(_) | Value::UInt(_) => integer_value(value).map(|n| timestamp(n, true)),
            Value::Date(days) => Some(timestamp(calendar::day_ticks(*days, unit), true)),
            Value::String(text) => calendar::parse(text).map(|moment| {
                let (ticks, exact) = moment.ticks(unit);
                timestamp(ticks, exact)
            }),
            _ => None,
        },
        ColumnType::Uuid => match value {
            Value::String(text) => {
                uuid::parse(text).map(|bytes| Fit::Exact(Value::Binary(bytes.to_vec())))
            }
            _ => None,
        },
        ColumnType::Time => match value {
            Value::String(text) => {
                time_of_day::parse(text).ok().map(|micros| Fit::Exact(Value::Int(micros)))
            }
            _ => None,
        },
        ColumnType::String | ColumnType::Binary => None,
        _ => fit_integer(value, column_type),
    };
    fitted.ok_or_else(|| {
        Error::InvalidInput(format!("invalid value {value} for type {}", column_type.sql()))
    })
}

fn fit_bool(value: &Value) -> Option<Fit> {
    let Value::String(text) = value else { return None };
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "t" => Some(Fit::Exact(Value::Bool(true))),
        "false" | "f" => Some(Fit::Exact(Value::Bool(false))),
        _ => None,
    }
}

fn fit_integer(value: &Value, column_type: ColumnType) -> Option<Fit> {
    let (min, max) = integer_range(column_type)?;
    let scaled = match value {
        Value::Int(_) | Value::UInt(_) => Scaled::Floor(integer_value(value)?, true),
        Value::Float(v) if v.is_nan() || v.is_infinite() => {
            Scaled::Beyond { negative: v.is_sign_negative() }
        }
        Value::Float(v) => scale_decimal(&format!("{v}"), 0)?,
        Value::String(text) => scale_decimal(text, 0)?,
        _ => return None,
    };
    Some(scaled.fit(min, max, |number| integer(number, column_type)))
}

fn fit_decimal(value: &Value, precision: u8, scale: i8) -> Option<Fit> {
    let max = decimal_max(precision);
    let scaled = match value {
        Value::Decimal(unscaled) => Scaled::Floor(*unscaled, true),
        Value::Float(v) if v.is_nan() || v.is_infinite() => {
            Scaled::Beyond { negative: v.is_sign_negative() }
        }
        Value::Int(_) | Value::UInt(_) | Value::Float(_) => {
            scale_decimal(&value.to_string(), scale)?
        }
        Value::String(text) => scale_decimal(text, scale)?,
        _ => return None,
    };
    Some(scaled.fit(-max, max, Value::Decimal))
}

fn fit_float(value: &Value, column_type: ColumnType) -> Option<Fit> {
    let single = column_type == ColumnType::Float32;
    let (nearest, order) = match value {
        Value::Int(_) | Value::UInt(_) => {
            let number = integer_value(value)?;
            let nearest: f64 = number.to_string().parse().ok()?;
            let nearest = if single { f64::from(narrow(nearest)) } else { nearest };
            // At most 2^64, a float that i128 represents exactly.
            (nearest, float_to_integer(nearest)?.cmp(&number))
        }
        // A NaN with more payload than 32 bits hold becomes the 32-bit one with the same leading bits.
        Value::Float(v) if v.is_nan() => return Some(Fit::Exact(Value::Float(widen(narrow(*v))))),
        Value::Float(v) => {
            let nearest = f64::from(narrow(*v));
            (nearest, nearest.total_cmp(v))
        }
        Value::String(text) => {
            let text = text.trim();
            let nearest =
                if single { f64::from(text.parse::<f32>().ok()?) } else { text.parse().ok()? };
            return Some(Fit::Exact(Value::Float(nearest)));
        }
        _ => return None,
    };
    let nearest = Value::Float(nearest);
    Some(match order {
        std::cmp::Ordering::Equal => Fit::Exact(nearest),
        std::cmp::Ordering::Less => Fit::After(nearest),
        std::cmp::Ordering::Greater => Fit::After(predecessor(&nearest, column_type)?),
    })
}

fn fit_date(value: &Value) -> Option<Fit> {
    let Value::String(text) = value else { return None };
    let (day, exact) = calendar::parse(text)?.days();
    let date = |day| Value::Date(i32::try_from(day).expect("within the range of i32"));
    Some(Scaled::Floor(day, exact).fit(i32::MIN.into(), i32::MAX.into(), date))
}

fn timestamp(ticks: i128, exact: bool) -> Fit {
    let value = |n| Value::Timestamp(i64::try_from(n).expect("within the range of i64"));
    Scaled::Floor(ticks, exact).fit(i64::MIN.into(), i64::MAX.into(), value)
}

fn towards_zero(floor: Value) -> Value {
    match floor {
        Value::Decimal(unscaled) if unscaled < 0 => Value::Decimal(unscaled + 1),
        value => value,
    }
}

/// A number in units of a power of ten.
enum Scaled {
    /// The greatest whole number of units that is not above it; true if it equals the number.
    Floor(i128, bool),
    /// The magnitude does not fit.
    Beyond {
        /// True for a negative number.
        negative: bool,
    },
}

impl Scaled {
    fn fit(self, min: i128, max: i128, value: impl Fn(i128) -> Value) -> Fit {
        match self {
            Self::Beyond { negative: true } => Fit::Below,
            Self::Beyond { negative: false } => Fit::Above,
            Self::Floor(number, _) if number < min => Fit::Below,
            Self::Floor(number, exact) if number > max || (number == max && !exact) => Fit::Above,
            Self::Floor(number, true) => Fit::Exact(value(number)),
            Self::Floor(number, false) => Fit::After(value(number)),
        }
    }
}

/// Parses a decimal number and counts it in units of `10^-scale`. `None` if it is not a number.
fn scale_decimal(text: &str, scale: i8) -> Option<Scaled> {
    let text = text.trim();
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits: String = [whole, fraction].concat();
    if digits.is_empty()
        || digits.len() > DIGITS_MAX
        || !digits.bytes().all(|digit| digit.is_ascii_digit())
    {
        return None;
    }
    let shift = i64::from(exponent) + i64::from(scale) - i64::try_from(fraction.len()).ok()?;
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return Some(Scaled::Floor(0, true));
    }
    let length = i64::try_from(digits.len()).ok()?;
    // 39 digits exceed every i128 in question.
    if length + shift > 39 {
        return Some(Scaled::Beyond { negative });
    }
    let kept_digits = usize::try_from((length + shift.min(0)).max(0)).ok()?;
    let exact = digits[kept_digits..].bytes().all(|digit| digit == b'0');
    let zeros = "0".repeat(usize::try_from(shift.max(0)).ok()?);
    let Ok(magnitude) = format!("0{}{zeros}", &digits[..kept_digits]).parse::<i128>() else {
        return Some(Scaled::Beyond { negative });
    };
    let floor = match (negative, exact) {
        (false, _) => magnitude,
        (true, true) => -magnitude,
        (true, false) => -magnitude - 1,
    };
    Some(Scaled::Floor(floor, exact))
}

fn display_decimal(unscaled: i128, scale: i8) -> String {
    let sign = if unscaled < 0 { "-" } else { "" };
    let digits = unscaled.unsigned_abs().to_string();
    let places = usize::from(scale.unsigned_abs());
    if scale < 0 && unscaled != 0 {
        return format!("{sign}{digits}{}", "0".repeat(places));
    }
    if scale <= 0 {
        return format!("{sign}{digits}");
    }
    let digits = format!("{digits:0>width$}", width = places + 1);
    let (whole, fraction) = digits.split_at(digits.len() - places);
    format!("{sign}{whole}.{fraction}")
}

/// A finite float without a fraction, as an integer.
fn float_to_integer(value: f64) -> Option<i128> {
    format!("{value:.0}").parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::arbitrary::{TYPES, column_type, value};
    use crate::schema::Unit;

    const MILLIS: ColumnType = ColumnType::Timestamp(Unit::Millisecond, false);
    const PRICE: ColumnType = ColumnType::Decimal(5, 2);

    fn text(value: &str) -> Value {
        Value::String(value.to_owned())
    }

    #[test]
    fn literals_become_the_same_value_of_the_type() {
        let cases = [
            (Value::Int(5), ColumnType::UInt64, Value::UInt(5)),
            (Value::UInt(5), ColumnType::Int8, Value::Int(5)),
            (Value::Int(-128), ColumnType::Int8, Value::Int(-128)),
            (Value::Int(3), ColumnType::Float64, Value::Float(3.0)),
            (Value::Float(3.0), ColumnType::Int32, Value::Int(3)),
            (Value::Float(-0.0), ColumnType::UInt8, Value::UInt(0)),
            (Value::Float(0.5), ColumnType::Float32, Value::Float(0.5)),
            (Value::Int(5), MILLIS, Value::Timestamp(5)),
            (Value::UInt(5), MILLIS, Value::Timestamp(5)),
            (Value::Date(1), MILLIS, Value::Timestamp(86_400_000)),
            (text("1970-01-02"), MILLIS, Value::Timestamp(86_400_000)),
            (text("1970-01-01T00:00:01.5Z"), MILLIS, Value::Timestamp(1_500)),
            (text("1970-01-01 01:00:00+01:00"), MILLIS, Value::Timestamp(0)),
            (text("1970-01-02"), ColumnType::Date, Value::Date(1)),
            (text("1970-01-02 00:00:00"), ColumnType::Date, Value::Date(1)),
            (Value::Int(-7), PRICE, Value::Decimal(-700)),
            (Value::Float(9.99), PRICE, Value::Decimal(999)),
            (text("9.990"), PRICE, Value::Decimal(999)),
            (text("-1e2"), PRICE, Value::Decimal(-10_000)),
            (Value::Int(700), ColumnType::Decimal(5, -2), Value::Decimal(7)),
            (text("10"), ColumnType::Int8, Value::Int(10)),
            (text(" -10.0 "), ColumnType::Int8, Value::Int(-10)),
            (text("18446744073709551615"), ColumnType::UInt64, Value::UInt(u64::MAX)),
            (text("0.1"), ColumnType::Float32, Value::Float(f64::from(0.1_f32))),
            (text("NaN"), ColumnType::Float64, Value::Float(f64::NAN)),
            (text("TRUE"), ColumnType::Bool, Value::Bool(true)),
            (text(""), ColumnType::String, text("")),
            (
                text("{00010203-0405-0607-0809-0A0B0C0D0E0F}"),
                ColumnType::Uuid,
                Value::Binary((0..16).collect()),
            ),
        ];
        for (literal, column_type, expected) in cases {
            let found = literal.clone().coerce(column_type);
            assert_eq!(found, Ok(expected), "{literal} as {}", column_type.sql());
        }
        for column_type in TYPES {
            assert_eq!(Value::Null.coerce(column_type), Ok(Value::Null));
        }
    }

    #[test]
    fn what_the_type_has_no_value_for_is_named() {
        let cases = [
            (Value::Int(128), ColumnType::Int8, "128 is out of range for TINYINT"),
            (Value::Int(-1), ColumnType::UInt64, "-1 is out of range for BIGINT UNSIGNED"),
            (
                Value::UInt(u64::MAX),
                ColumnType::Int64,
                "18446744073709551615 is out of range for BIGINT",
            ),
            (Value::Float(2.5), ColumnType::Int64, "2.5 is not exactly representable as BIGINT"),
            (Value::Float(f64::NAN), ColumnType::Int8, "NaN is out of range for TINYINT"),
            (
                Value::Int((1 << 53) + 1),
                ColumnType::Float64,
                "9007199254740993 is not exactly representable as DOUBLE",
            ),
            (Value::Float(0.1), ColumnType::Float32, "0.1 is not exactly representable as REAL"),
            (Value::Int(1000), PRICE, "1000 is out of range for DECIMAL(5, 2)"),
            (
                text("2024-01-01 00:00:00.0001"),
                MILLIS,
                "'2024-01-01 00:00:00.0001' is not exactly representable as TIMESTAMP(3)",
            ),
            (text("yesterday"), MILLIS, "invalid value 'yesterday' for type TIMESTAMP(3)"),
            (text("abc"), ColumnType::Int64, "invalid value 'abc' for type BIGINT"),
            (text("1e99999999999"), PRICE, "invalid value '1e99999999999' for type DECIMAL(5, 2)"),
            (text("1e400"), ColumnType::Int64, "'1e400' is out of range for BIGINT"),
            (text("."), PRICE, "invalid value '.' for type DECIMAL(5, 2)"),
            (Value::Int(1), ColumnType::String, "invalid value 1 for type STRING"),
            (Value::Int(1), ColumnType::Bool, "invalid value 1 for type BOOLEAN"),
            (Value::Int(1), ColumnType::Date, "invalid value 1 for type DATE"),
            (Value::Timestamp(1), ColumnType::Int64, "invalid value 1 for type BIGINT"),
            (text("24:00"), ColumnType::Time, "invalid value '24:00' for type TIME"),
            (text("0001"), ColumnType::Uuid, "invalid value '0001' for type UUID"),
            (Value::Binary(vec![1]), ColumnType::Uuid, "invalid value X'01' for type UUID"),
        ];
        for (literal, column_type, message) in cases {
            let error = literal.coerce(column_type).unwrap_err();
            assert_eq!(error, Error::InvalidInput(message.to_owned()));
        }
    }

    #[test]
    fn what_lies_between_two_values_is_known_to() {
        let cases = [
            (Value::Float(-2.5), ColumnType::Int8, Fit::After(Value::Int(-3))),
            (text("127.5"), ColumnType::Int8, Fit::Above),
            (text("-128.5"), ColumnType::Int8, Fit::Below),
            (Value::Float(f64::NEG_INFINITY), PRICE, Fit::Below),
            (text("-0.001"), PRICE, Fit::After(Value::Decimal(-1))),
            (Value::Float(1e-300), PRICE, Fit::After(Value::Decimal(0))),
            (text("1969-12-31 12:00:00"), ColumnType::Date, Fit::After(Value::Date(-1))),
            (
                Value::Float(0.1),
                ColumnType::Float32,
                Fit::After(Value::Float(f64::from(0.1_f32.next_down()))),
            ),
            (
                Value::Float(f64::MAX),
                ColumnType::Float32,
                Fit::After(Value::Float(f64::from(f32::MAX))),
            ),
            (Value::Int(16_777_217), ColumnType::Float32, Fit::After(Value::Float(16_777_216.0))),
            (Value::Date(i32::MAX), ColumnType::Timestamp(Unit::Nanosecond, false), Fit::Above),
        ];
        for (literal, column_type, expected) in cases {
            assert_eq!(fit(&literal, column_type), Ok(expected), "{literal}");
        }
    }

    #[test]
    fn assignment_rounds_where_a_literal_has_no_exact_value() {
        let nearest = Value::Float(f64::from(0.1_f32));
        assert_eq!(Value::Float(0.1).assign(ColumnType::Float32), Ok(nearest));
        assert!(Value::Float(1e300).assign(ColumnType::Float32).is_err());
        let wide = Value::Int((1 << 53) + 1).assign(ColumnType::Float64);
        assert_eq!(wide, Ok(Value::Float(9_007_199_254_740_992.0)));
        assert_eq!(text("-1.239").assign(PRICE), Ok(Value::Decimal(-123)));
        assert_eq!(text("1.239").assign(PRICE), Ok(Value::Decimal(123)));
        let cut = text("1970-01-01 00:00:00.0019").assign(MILLIS);
        assert_eq!(cut, Ok(Value::Timestamp(1)));
        assert!(Value::Float(2.5).assign(ColumnType::Int64).is_err());
        assert!(Value::Int(300).assign(ColumnType::Int8).is_err());
    }

    #[test]
    fn values_are_shown_as_people_write_them() {
        let utc = ColumnType::Timestamp(Unit::Microsecond, true);
        let cases = [
            (Value::Null, MILLIS, "NULL"),
            (Value::Timestamp(1_704_067_200_000), MILLIS, "'2024-01-01 00:00:00'"),
            (Value::Timestamp(-1), MILLIS, "'1969-12-31 23:59:59.999'"),
            (Value::Timestamp(1), utc, "'1970-01-01 00:00:00.000001Z'"),
            (Value::Date(19_723), ColumnType::Date, "'2024-01-01'"),
            (Value::Decimal(-5), PRICE, "-0.05"),
            (Value::Decimal(12_345), PRICE, "123.45"),
            (Value::Decimal(7), ColumnType::Decimal(5, -2), "700"),
            (Value::Float(f64::from(0.1_f32)), ColumnType::Float32, "0.1"),
            (Value::Float(1e300), ColumnType::Float64, "1e300"),
            (Value::Float(-f64::INFINITY), ColumnType::Float64, "'-Infinity'"),
            (text("it's"), ColumnType::String, "'it''s'"),
            (Value::Binary(vec![1, 171]), ColumnType::Binary, "X'01AB'"),
            (Value::Int(3_600_000_001), ColumnType::Time, "'01:00:00.000001'"),
            (
                Value::Binary((0..16).collect()),
                ColumnType::Uuid,
                "'00010203-0405-0607-0809-0a0b0c0d0e0f'",
            ),
        ];
        for (value, column_type, expected) in cases {
            assert_eq!(value.display(column_type), expected);
        }
    }

    #[test]
    fn bounds_are_shown_without_control_characters() {
        let show = |texts: &[&str], placement| {
            let values: Vec<Value> = texts.iter().map(|shown| text(shown)).collect();
            let typed: Vec<_> = values.iter().map(|value| (value, ColumnType::String)).collect();
            printable(&typed, placement)
        };
        assert_eq!(show(&["it's"], None), "('it''s')");
        assert_eq!(show(&["new\0"], Some(3)), "AFTER (3, 'new')");
        assert_eq!(show(&["\0"], None), "AFTER ('')");
        assert_eq!(show(&["a\t\0"], None), "AFTER (U&'a\\0009')");
        assert_eq!(show(&["a\0\0"], None), "(U&'a\\0000\\0000')");
        assert_eq!(show(&["a\0", "b"], None), "(U&'a\\0000', 'b')");
        assert_eq!(show(&["\u{1f}'\\"], None), "(U&'\\001F''\\\\')");
        assert_eq!(show(&[], Some(7)), "(7)");
        assert_eq!(
            printable(&[(&Value::Timestamp(-1), MILLIS)], None),
            "('1969-12-31 23:59:59.999')"
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2048))]

        #[test]
        fn what_is_shown_parses_back(
            (column_type, value) in column_type()
                .prop_flat_map(|column_type| (Just(column_type), value(column_type))),
        ) {
            let shown = value.display(column_type);
            if matches!(column_type, ColumnType::String | ColumnType::Binary) {
                return Ok(());
            }
            let parsed = text(shown.trim_matches('\'')).coerce(column_type).unwrap();
            match (&parsed, &value) {
                (Value::Float(a), Value::Float(b)) if a.is_nan() && b.is_nan() => {}
                _ => prop_assert_eq!(parsed, value),
            }
        }

        #[test]
        fn no_text_makes_parsing_panic(
            literal in prop_oneof![
                any::<String>(), "[-+]?[0-9]{0,60}[.]?[0-9]{0,60}(e[-+]?[0-9]{1,12})?",
                "[-+]?[0-9]{0,13}-[0-9]{1,2}-[0-9é]{1,2}[ T]?[0-9:.+Z-]{0,20}",
            ],
            column_type in column_type(),
        ) {
            let _fitted = fit(&text(&literal), column_type);
        }
    }
}
