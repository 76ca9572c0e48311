//! Values of one column, appended one by one and turned into an Arrow array of the column's type.
//!
//! The scanner of VALUES and the decoders of COPY share it, so that a text means the same in both: the inputs are those
//! that PostgreSQL accepts for the type, the values those that an Arrow cast gives.
//!
//! Invariants:
//! - a value that does not fit is an error and appends nothing; the only lossy conversions are those of SQL: decimals
//!   round half away from zero, REAL rounds, timestamps drop finer digits;
//! - timestamps are ticks since 1970. In a column with a time zone they are instants, and a text without an offset is
//!   read in the session's zone; in a column without one they are local times of that zone, whatever offset the text
//!   has.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BinaryViewBuilder, BooleanBuilder,
    FixedSizeBinaryBuilder, ListArray, PrimitiveArray, PrimitiveBuilder, StringViewBuilder,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, Time64MicrosecondType,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use datafusion::common::ScalarValue;
use partita_proto::schema::{ColumnType, Element, Unit};
use partita_proto::time_of_day::{self, DAY_MICROS, TimeError};
use partita_proto::uuid;
use partita_worker::moments::{Moment, parse_date};
use partita_worker::zoned::as_instants;
use partita_worker::{Zone, elements_of, interval_text, time_out_of_range};

use super::decimal::{DecimalError, parse_decimal};
use crate::error::{
    DATATYPE_MISMATCH, INVALID_DATETIME, INVALID_TEXT, NUMERIC_OUT_OF_RANGE, SqlError,
};
use partita_worker::bytes::parse_bytea;

/// SQLSTATE of a timestamp that the type cannot hold.
pub(super) const DATETIME_OVERFLOW: &str = "22008";

/// Bytes of a UUID, as Arrow counts them.
const UUID_WIDTH: i32 = 16;

/// Values appended so far.
pub(super) struct ColumnBuilder {
    column_type: ColumnType,
    zone: Zone,
    values: Values,
}

enum Values {
    Bool(BooleanBuilder),
    Int8(PrimitiveBuilder<Int8Type>),
    Int16(PrimitiveBuilder<Int16Type>),
    Int32(PrimitiveBuilder<Int32Type>),
    Int64(PrimitiveBuilder<Int64Type>),
    UInt8(PrimitiveBuilder<UInt8Type>),
    UInt16(PrimitiveBuilder<UInt16Type>),
    UInt32(PrimitiveBuilder<UInt32Type>),
    UInt64(PrimitiveBuilder<UInt64Type>),
    Float32(PrimitiveBuilder<Float32Type>),
    Float64(PrimitiveBuilder<Float64Type>),
    Decimal(PrimitiveBuilder<Decimal128Type>),
    String(StringViewBuilder),
    Binary(BinaryViewBuilder),
    Date(PrimitiveBuilder<Date32Type>),
    /// Ticks; the unit is the column type's.
    Timestamp(PrimitiveBuilder<Int64Type>),
    Uuid(FixedSizeBinaryBuilder),
    Time(PrimitiveBuilder<Time64MicrosecondType>),
    Interval(PrimitiveBuilder<IntervalMonthDayNanoType>),
    Arrays(Box<Arrays>),
}

/// Arrays: their elements one after another, and how many each has.
struct Arrays {
    element: Element,
    elements: ColumnBuilder,
    lengths: Vec<usize>,
    valid: Vec<bool>,
}

impl Arrays {
    fn new(element: Element, zone: Zone) -> Self {
        let elements = ColumnBuilder::new(element.column_type(), zone);
        Self { element, elements, lengths: Vec::new(), valid: Vec::new() }
    }

    fn append_null(&mut self) {
        self.lengths.push(0);
        self.valid.push(false);
    }

    /// Appends an array by its elements.
    fn append(&mut self, elements: &dyn Array) -> Result<(), SqlError> {
        self.elements.append_array(elements)?;
        self.lengths.push(elements.len());
        self.valid.push(true);
        Ok(())
    }

    fn finish(&mut self) -> Result<ArrayRef, SqlError> {
        let elements = self.elements.finish()?;
        if i32::try_from(elements.len()).is_err() {
            return Err(SqlError::new("54000", "the arrays have more than 2147483647 elements"));
        }
        let offsets = OffsetBuffer::from_lengths(std::mem::take(&mut self.lengths));
        let nulls = NullBuffer::from(std::mem::take(&mut self.valid));
        let item = Arc::new(self.element.field());
        Ok(Arc::new(ListArray::try_new(item, offsets, elements, Some(nulls))?))
    }
}

/// Evaluates an expression with the builder, of whichever type, or another one with that of arrays.
macro_rules! each {
    ($values:expr, $builder:ident => $body:expr, $arrays:ident => $array_body:expr) => {
        match $values {
            Values::Bool($builder) => $body,
            Values::Int8($builder) => $body,
            Values::Int16($builder) => $body,
            Values::Int32($builder) => $body,
            Values::Int64($builder) => $body,
            Values::UInt8($builder) => $body,
            Values::UInt16($builder) => $body,
            Values::UInt32($builder) => $body,
            Values::UInt64($builder) => $body,
            Values::Float32($builder) => $body,
            Values::Float64($builder) => $body,
            Values::Decimal($builder) => $body,
            Values::String($builder) => $body,
            Values::Binary($builder) => $body,
            Values::Date($builder) => $body,
            Values::Timestamp($builder) => $body,
            Values::Uuid($builder) => $body,
            Values::Time($builder) => $body,
            Values::Interval($builder) => $body,
            Values::Arrays($arrays) => $array_body,
        }
    };
}

/// An integer of any type, as sign and magnitude.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Integer {
    /// True if it is below zero.
    pub(super) negative: bool,
    /// Absolute value.
    pub(super) magnitude: u64,
}

impl Integer {
    fn signed(self) -> i128 {
        let magnitude = i128::from(self.magnitude);
        if self.negative { -magnitude } else { magnitude }
    }
}

impl From<i64> for Integer {
    fn from(value: i64) -> Self {
        Self { negative: value < 0, magnitude: value.unsigned_abs() }
    }
}

impl ColumnBuilder {
    /// An empty builder that grows with its values: most statements have one row, and Arrow's builders would allocate
    /// room for a thousand.
    pub(super) fn new(column_type: ColumnType, zone: Zone) -> Self {
        let values = match column_type {
            ColumnType::Bool => Values::Bool(BooleanBuilder::with_capacity(1)),
            ColumnType::Int8 => Values::Int8(PrimitiveBuilder::with_capacity(1)),
            ColumnType::Int16 => Values::Int16(PrimitiveBuilder::with_capacity(1)),
            ColumnType::Int32 => Values::Int32(PrimitiveBuilder::with_capacity(1)),
            ColumnType::Int64 => Values::Int64(PrimitiveBuilder::with_capacity(1)),
            ColumnType::UInt8 => Values::UInt8(PrimitiveBuilder::with_capacity(1)),
            ColumnType::UInt16 => Values::UInt16(PrimitiveBuilder::with_capacity(1)),
            ColumnType::UInt32 => Values::UInt32(PrimitiveBuilder::with_capacity(1)),
            ColumnType::UInt64 => Values::UInt64(PrimitiveBuilder::with_capacity(1)),
            ColumnType::Float32 => Values::Float32(PrimitiveBuilder::with_capacity(1)),
            ColumnType::Float64 => Values::Float64(PrimitiveBuilder::with_capacity(1)),
            ColumnType::Decimal(..) => Values::Decimal(PrimitiveBuilder::with_capacity(1)),
            ColumnType::String => Values::String(StringViewBuilder::with_capacity(1)),
            ColumnType::Binary => Values::Binary(BinaryViewBuilder::with_capacity(1)),
            ColumnType::Date => Values::Date(PrimitiveBuilder::with_capacity(1)),
            ColumnType::Timestamp(..) => Values::Timestamp(PrimitiveBuilder::with_capacity(1)),
            ColumnType::Time => Values::Time(PrimitiveBuilder::with_capacity(1)),
            ColumnType::Uuid => Values::Uuid(FixedSizeBinaryBuilder::with_capacity(1, UUID_WIDTH)),
            ColumnType::Interval => Values::Interval(PrimitiveBuilder::with_capacity(1)),
            ColumnType::Array(element) => Values::Arrays(Box::new(Arrays::new(element, zone))),
        };
        Self { column_type, zone, values }
    }

    pub(super) fn column_type(&self) -> ColumnType {
        self.column_type
    }

    pub(super) fn append_null(&mut self) {
        each!(
            &mut self.values,
            builder => builder.append_null(),
            arrays => arrays.append_null()
        );
    }

    pub(super) fn append_bool(&mut self, value: bool) -> Result<(), SqlError> {
        match &mut self.values {
            Values::Bool(builder) => builder.append_value(value),
            _ => return Err(self.mismatch("a boolean")),
        }
        Ok(())
    }

    /// Appends an integer; for a timestamp it is a number of ticks.
    pub(super) fn append_integer(&mut self, value: Integer) -> Result<(), SqlError> {
        fn push<T>(builder: &mut PrimitiveBuilder<T>, value: Integer) -> bool
        where
            T: ArrowPrimitiveType,
            T::Native: TryFrom<i128>,
        {
            let fitted = T::Native::try_from(value.signed());
            fitted.is_ok_and(|fitted| {
                builder.append_value(fitted);
                true
            })
        }
        let fits = match &mut self.values {
            Values::Int8(builder) => push(builder, value),
            Values::Int16(builder) => push(builder, value),
            Values::Int32(builder) => push(builder, value),
            Values::Int64(builder) | Values::Timestamp(builder) => push(builder, value),
            Values::UInt8(builder) => push(builder, value),
            Values::UInt16(builder) => push(builder, value),
            Values::UInt32(builder) => push(builder, value),
            Values::UInt64(builder) => push(builder, value),
            Values::Float64(builder) => {
                // Rounds to the nearest, as a cast of the integer does; the result is never -0.
                let magnitude = value.magnitude as f64;
                let negative = value.negative && value.magnitude != 0;
                builder.append_value(if negative { -magnitude } else { magnitude });
                true
            }
            Values::Float32(builder) => {
                let magnitude = value.magnitude as f32;
                let negative = value.negative && value.magnitude != 0;
                builder.append_value(if negative { -magnitude } else { magnitude });
                true
            }
            Values::Decimal(builder) => {
                let ColumnType::Decimal(precision, scale) = self.column_type else {
                    return Err(self.mismatch("a number"));
                };
                let ten = |power: u32| 10_i128.checked_pow(power);
                let unscaled = u32::try_from(scale)
                    .ok()
                    .and_then(ten)
                    .and_then(|factor| value.signed().checked_mul(factor))
                    .filter(|unscaled| ten(precision.into()).is_some_and(|m| unscaled.abs() < m));
                unscaled.is_some_and(|unscaled| {
                    builder.append_value(unscaled);
                    true
                })
            }
            Values::Bool(_)
            | Values::String(_)
            | Values::Binary(_)
            | Values::Date(_)
            | Values::Uuid(_)
            | Values::Time(_)
            | Values::Interval(_)
            | Values::Arrays(_) => return Err(self.mismatch("a number")),
        };
        if fits { Ok(()) } else { Err(self.out_of_range(value.signed())) }
    }

    /// Appends a number as it is written in SQL: digits, an optional point, an optional exponent.
    pub(super) fn append_number(&mut self, text: &str) -> Result<(), SqlError> {
        match &mut self.values {
            Values::Float64(builder) => match text.parse::<f64>() {
                Ok(value) if value.is_finite() => builder.append_value(value),
                _ => return Err(self.out_of_range(text)),
            },
            // In two steps, because a literal in a plan is a DOUBLE first.
            Values::Float32(builder) => match text.parse::<f64>().map(narrow) {
                Ok(value) if value.is_finite() => builder.append_value(value),
                _ => return Err(self.out_of_range(text)),
            },
            Values::Decimal(builder) => match (parse_decimal(text, self.column_type), text) {
                (Ok(value), _) => builder.append_value(value),
                (Err(_), text) => return Err(self.out_of_range(text)),
            },
            _ => return Err(self.out_of_range(text)),
        }
        Ok(())
    }

    /// Appends a timestamp in ticks of the column's unit.
    pub(super) fn append_ticks(&mut self, ticks: i64) -> Result<(), SqlError> {
        match &mut self.values {
            Values::Timestamp(builder) => builder.append_value(ticks),
            _ => return Err(self.mismatch("a timestamp")),
        }
        Ok(())
    }

    /// Appends a time of day in microseconds.
    pub(super) fn append_time(&mut self, micros: i64) -> Result<(), SqlError> {
        match &mut self.values {
            Values::Time(_) if !(0..DAY_MICROS).contains(&micros) => {
                return Err(SqlError::new(DATETIME_OVERFLOW, "time out of range"));
            }
            Values::Time(builder) => builder.append_value(micros),
            _ => return Err(self.mismatch("a time")),
        }
        Ok(())
    }

    /// Appends an interval of months, days and microseconds.
    pub(super) fn append_interval(
        &mut self,
        (months, days, micros): (i32, i32, i64),
    ) -> Result<(), SqlError> {
        let Values::Interval(builder) = &mut self.values else {
            return Err(self.mismatch("an interval"));
        };
        let nanoseconds = micros.checked_mul(1_000);
        let nanoseconds =
            nanoseconds.ok_or_else(|| SqlError::new("22015", "interval out of range"))?;
        builder.append_value(IntervalMonthDayNano { months, days, nanoseconds });
        Ok(())
    }

    /// Appends a day, counted from 1970-01-01.
    pub(super) fn append_day(&mut self, day: i32) -> Result<(), SqlError> {
        match &mut self.values {
            Values::Date(builder) => builder.append_value(day),
            _ => return Err(self.mismatch("a date")),
        }
        Ok(())
    }

    pub(super) fn append_float(&mut self, value: f64) -> Result<(), SqlError> {
        match &mut self.values {
            Values::Float64(builder) => builder.append_value(value),
            Values::Float32(builder) => {
                let narrowed = narrow(value);
                if narrowed.is_infinite() && value.is_finite() {
                    return Err(self.out_of_range(value));
                }
                builder.append_value(narrowed);
            }
            _ => return Err(self.mismatch("a floating point number")),
        }
        Ok(())
    }

    /// Appends an unscaled decimal of the column's scale.
    pub(super) fn append_decimal(&mut self, value: i128) -> Result<(), SqlError> {
        match &mut self.values {
            Values::Decimal(builder) => builder.append_value(value),
            _ => return Err(self.mismatch("a decimal number")),
        }
        Ok(())
    }

    pub(super) fn append_bytes(&mut self, bytes: &[u8]) -> Result<(), SqlError> {
        match &mut self.values {
            Values::Binary(builder) => builder
                .try_append_value(bytes)
                .map_err(|error| SqlError::new("54000", error.to_string()))?,
            Values::Uuid(builder) if bytes.len() == uuid::UUID_BYTES => {
                builder.append_value(bytes)?;
            }
            _ => return Err(self.mismatch("bytes")),
        }
        Ok(())
    }

    /// Appends a text, parsed by the column's type. With `ticks`, a bare number is a timestamp in ticks.
    pub(super) fn append_text(&mut self, text: &str, ticks: bool) -> Result<(), SqlError> {
        match &mut self.values {
            Values::String(builder) => builder
                .try_append_value(text)
                .map_err(|error| SqlError::new("54000", error.to_string()))?,
            // A number that is too large parses as infinity; only a text that says infinity may
            // become one.
            Values::Float64(builder) => match parse_float::<f64>(text) {
                Some(value) if value.is_finite() || names_infinity(text) => {
                    builder.append_value(value);
                }
                Some(_) => return Err(self.out_of_range(text)),
                None => return Err(self.invalid_text(text)),
            },
            Values::Float32(builder) => match parse_float::<f32>(text) {
                Some(value) if value.is_finite() || names_infinity(text) => {
                    builder.append_value(value);
                }
                Some(_) => return Err(self.out_of_range(text)),
                None => return Err(self.invalid_text(text)),
            },
            Values::Bool(builder) => match parse_bool(text) {
                Some(value) => builder.append_value(value),
                None => return Err(self.invalid_text(text)),
            },
            Values::Decimal(builder) => match parse_decimal(text, self.column_type) {
                Ok(value) => builder.append_value(value),
                Err(DecimalError::OutOfRange) => return Err(self.out_of_range(text)),
                Err(DecimalError::Syntax) => return Err(self.invalid_text(text)),
            },
            // Types with a grammar of their own.
            Values::Binary(builder) => match parse_bytea(text) {
                Some(bytes) => builder
                    .try_append_value(bytes)
                    .map_err(|error| SqlError::new("54000", error.to_string()))?,
                None => return Err(self.invalid_text(text)),
            },
            Values::Time(builder) => match time_of_day::parse(text) {
                Ok(micros) => builder.append_value(micros),
                Err(TimeError::OutOfRange) => return Err(time_out_of_range(text)),
                Err(TimeError::Syntax) => return Err(self.invalid_text(text)),
            },
            Values::Uuid(builder) => match uuid::parse(text) {
                Some(bytes) => builder.append_value(bytes)?,
                None => return Err(self.invalid_text(text)),
            },
            Values::Date(builder) => match parse_date(text) {
                Some(day) => builder.append_value(day),
                None => return Err(self.invalid_text(text)),
            },
            Values::Timestamp(_) => return self.append_moment(text, ticks),
            Values::Interval(builder) => match interval_text::parse(text) {
                Some(interval) => builder.append_value(interval),
                None => return Err(self.invalid_text(text)),
            },
            Values::Arrays(_) => return self.append_texts(&elements_of(text)?),
            // All other types are integers.
            _ => match parse_integer(text) {
                Ok(value) => return self.append_integer(value),
                Err(NotInteger::TooLarge) => return Err(self.out_of_range(text)),
                Err(NotInteger::Syntax) => return Err(self.invalid_text(text)),
            },
        }
        Ok(())
    }

    /// Appends an array of elements that are texts.
    pub(super) fn append_texts(&mut self, texts: &[Option<String>]) -> Result<(), SqlError> {
        self.append_elements(|elements| {
            for text in texts {
                match text {
                    Some(text) => elements.append_text(text, false)?,
                    None => elements.append_null(),
                }
            }
            Ok(())
        })
    }

    /// Appends an array whose elements are appended to a builder of their own.
    pub(super) fn append_elements(
        &mut self,
        append: impl FnOnce(&mut Self) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        let zone = self.zone;
        let Values::Arrays(arrays) = &mut self.values else {
            return Err(self.mismatch("an array"));
        };
        let mut elements = Self::new(arrays.element.column_type(), zone);
        append(&mut elements)?;
        arrays.append(elements.finish()?.as_ref())
    }

    fn append_moment(&mut self, text: &str, ticks: bool) -> Result<(), SqlError> {
        let ColumnType::Timestamp(unit, zoned) = self.column_type else {
            return Err(self.mismatch("a timestamp"));
        };
        if ticks && let Ok(value) = parse_integer(text) {
            return self.append_integer(value);
        }
        let Some(moment) = Moment::parse(text) else { return Err(self.invalid_text(text)) };
        let nanos = if zoned { moment.instant(self.zone) } else { moment.local(self.zone) };
        match rescale(nanos, Unit::Nanosecond, unit) {
            Some(value) => self.append_ticks(value),
            None => Err(SqlError::new(
                DATETIME_OVERFLOW,
                format!("timestamp out of range for {}: \"{text}\"", self.column_type.sql()),
            )),
        }
    }

    /// Appends the value of a parameter.
    pub(super) fn append_scalar(&mut self, value: &ScalarValue) -> Result<(), SqlError> {
        if value.is_null() {
            self.append_null();
            return Ok(());
        }
        // Values that have the column's type, or a literal's, are appended without a cast.
        let integer = |value: i64| Integer::from(value);
        match value {
            ScalarValue::Boolean(Some(v)) if self.column_type == ColumnType::Bool => {
                return self.append_bool(*v);
            }
            ScalarValue::Int8(Some(v)) if self.takes_integers() => {
                return self.append_integer(integer((*v).into()));
            }
            ScalarValue::Int16(Some(v)) if self.takes_integers() => {
                return self.append_integer(integer((*v).into()));
            }
            ScalarValue::Int32(Some(v)) if self.takes_integers() => {
                return self.append_integer(integer((*v).into()));
            }
            ScalarValue::Int64(Some(v)) if self.takes_integers() => {
                return self.append_integer(integer(*v));
            }
            ScalarValue::UInt64(Some(v)) if self.takes_integers() => {
                return self.append_integer(Integer { negative: false, magnitude: *v });
            }
            ScalarValue::Float64(Some(v)) if self.takes_floats() => return self.append_float(*v),
            ScalarValue::Float32(Some(v)) if self.takes_floats() => {
                return self.append_float((*v).into());
            }
            ScalarValue::Utf8(Some(text))
            | ScalarValue::LargeUtf8(Some(text))
            | ScalarValue::Utf8View(Some(text)) => return self.append_text(text, false),
            ScalarValue::Binary(Some(bytes))
            | ScalarValue::LargeBinary(Some(bytes))
            | ScalarValue::BinaryView(Some(bytes))
                if self.column_type == ColumnType::Binary =>
            {
                return self.append_bytes(bytes);
            }
            ScalarValue::FixedSizeBinary(_, Some(bytes))
                if self.column_type == ColumnType::Uuid =>
            {
                return self.append_bytes(bytes);
            }
            ScalarValue::FixedSizeBinary(UUID_WIDTH, Some(bytes))
                if self.column_type == ColumnType::String =>
            {
                return self.append_text(&uuid::text(bytes), false);
            }
            ScalarValue::Time64Microsecond(Some(micros))
                if self.column_type == ColumnType::Time =>
            {
                return self.append_time(*micros);
            }
            _ if self.column_type == ColumnType::Time && !is_timely(&value.data_type()) => {
                return Err(self.mismatch(&value.data_type().to_string()));
            }
            _ if self.column_type == ColumnType::Uuid => {
                return Err(self.mismatch(&value.data_type().to_string()));
            }
            _ if self.column_type.is_of_fields_only() => return self.append_field_only(value),
            _ => {}
        }
        // A local time or a date becomes an instant in the session's zone.
        if let ColumnType::Timestamp(_, true) = self.column_type
            && matches!(value.data_type(), DataType::Timestamp(_, None) | DataType::Date32)
            && !self.zone.is_utc()
        {
            let instants = as_instants(&value.to_array()?, self.zone)?;
            return self.append_scalar(&ScalarValue::try_from_array(&instants, 0)?);
        }
        // Other units of time are rescaled, so that overflow is an error of ours.
        if let (Some((ticks, source)), ColumnType::Timestamp(target, _)) =
            (timestamp_of(value), self.column_type)
        {
            return match rescale(ticks.into(), source, target) {
                Some(ticks) => self.append_ticks(ticks),
                None => Err(SqlError::new(
                    DATETIME_OVERFLOW,
                    format!("timestamp out of range for {}: {value}", self.column_type.sql()),
                )),
            };
        }
        // Arrow casts all others.
        let cast = value.cast_to(&self.column_type.arrow())?;
        self.append_array(cast.to_array()?.as_ref())
    }

    /// Appends the value of a parameter to a column of arrays or intervals.
    fn append_field_only(&mut self, value: &ScalarValue) -> Result<(), SqlError> {
        let data_type = value.data_type();
        let is_span = matches!(data_type, DataType::Interval(_) | DataType::Duration(_));
        if self.column_type == ColumnType::Interval && is_span {
            return self.append_array(interval_text::intervals_of(&value.to_array()?)?.as_ref());
        }
        let Some(members) = members_of(value) else {
            return Err(self.mismatch(&data_type.to_string()));
        };
        self.append_elements(|elements| {
            (0..members.len()).try_for_each(|position| {
                elements.append_scalar(&ScalarValue::try_from_array(&members, position)?)
            })
        })
    }

    /// Appends the values of an array of the column's own type.
    fn append_array(&mut self, array: &dyn Array) -> Result<(), SqlError> {
        if array.data_type() != &self.column_type.arrow() {
            return Err(self.mismatch(&array.data_type().to_string()));
        }
        match &mut self.values {
            Values::Bool(builder) => builder.append_array(array.as_boolean()),
            Values::Int8(builder) => builder.append_array(array.as_primitive()),
            Values::Int16(builder) => builder.append_array(array.as_primitive()),
            Values::Int32(builder) => builder.append_array(array.as_primitive()),
            Values::Int64(builder) => builder.append_array(array.as_primitive()),
            Values::UInt8(builder) => builder.append_array(array.as_primitive()),
            Values::UInt16(builder) => builder.append_array(array.as_primitive()),
            Values::UInt32(builder) => builder.append_array(array.as_primitive()),
            Values::UInt64(builder) => builder.append_array(array.as_primitive()),
            Values::Float32(builder) => builder.append_array(array.as_primitive()),
            Values::Float64(builder) => builder.append_array(array.as_primitive()),
            Values::Date(builder) => builder.append_array(array.as_primitive()),
            Values::Decimal(builder) => {
                builder.extend(array.as_primitive::<Decimal128Type>().iter());
            }
            Values::String(builder) => builder.extend(array.as_string_view().iter()),
            Values::Binary(builder) => builder.extend(array.as_binary_view().iter()),
            Values::Time(builder) => builder.append_array(array.as_primitive()),
            Values::Interval(builder) => builder.append_array(array.as_primitive()),
            Values::Uuid(builder) => builder.append_array(array.as_fixed_size_binary())?,
            Values::Arrays(builder) => {
                for list in array.as_list::<i32>().iter() {
                    match list {
                        Some(elements) => builder.append(elements.as_ref())?,
                        None => builder.append_null(),
                    }
                }
            }
            Values::Timestamp(builder) => {
                let ticks = arrow::compute::cast(array, &DataType::Int64)?;
                builder.append_array(ticks.as_primitive());
            }
        }
        Ok(())
    }

    fn takes_integers(&self) -> bool {
        !matches!(
            self.column_type,
            ColumnType::Bool
                | ColumnType::String
                | ColumnType::Binary
                | ColumnType::Date
                | ColumnType::Uuid
                | ColumnType::Time
                | ColumnType::Interval
                | ColumnType::Array(_)
        )
    }

    fn takes_floats(&self) -> bool {
        matches!(self.column_type, ColumnType::Float32 | ColumnType::Float64)
    }

    /// The array of all values, of the column's type; the builder is empty afterwards.
    pub(super) fn finish(&mut self) -> Result<ArrayRef, SqlError> {
        Ok(match (&mut self.values, self.column_type) {
            (Values::Decimal(builder), ColumnType::Decimal(precision, scale)) => {
                Arc::new(builder.finish().with_precision_and_scale(precision, scale)?)
            }
            (Values::Timestamp(builder), ColumnType::Timestamp(unit, zoned)) => {
                timestamps(&builder.finish(), unit, zoned)
            }
            (values, _) => {
                each!(values, builder => Arc::new(builder.finish()), arrays => arrays.finish()?)
            }
        })
    }

    fn mismatch(&self, value: &str) -> SqlError {
        SqlError::new(
            DATATYPE_MISMATCH,
            format!("the column is of type {} but the value is {value}", self.column_type.sql()),
        )
    }

    fn out_of_range(&self, value: impl std::fmt::Display) -> SqlError {
        SqlError::new(
            NUMERIC_OUT_OF_RANGE,
            format!("value \"{value}\" is out of range for type {}", self.column_type.sql()),
        )
    }

    fn invalid_text(&self, text: &str) -> SqlError {
        let sqlstate = match self.column_type {
            ColumnType::Date
            | ColumnType::Time
            | ColumnType::Interval
            | ColumnType::Timestamp(..) => INVALID_DATETIME,
            _ => INVALID_TEXT,
        };
        // Long texts are truncated, because the message is logged.
        let excerpt: String = text.chars().take(100).collect();
        let more = if excerpt.len() < text.len() { "..." } else { "" };
        SqlError::new(
            sqlstate,
            format!(
                "invalid input syntax for type {}: \"{excerpt}{more}\"",
                self.column_type.sql()
            ),
        )
    }
}

/// The elements of an array; `None` for values of other types.
fn members_of(value: &ScalarValue) -> Option<ArrayRef> {
    Some(match value {
        ScalarValue::List(list) => list.value(0),
        ScalarValue::LargeList(list) => list.value(0),
        ScalarValue::FixedSizeList(list) => list.value(0),
        _ => return None,
    })
}

/// True for types whose values have a time of day.
fn is_timely(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Time32(_) | DataType::Time64(_) | DataType::Timestamp(..))
}

fn timestamps(ticks: &PrimitiveArray<Int64Type>, unit: Unit, zoned: bool) -> ArrayRef {
    let zone = zoned.then(|| Arc::<str>::from("UTC"));
    match unit {
        Unit::Second => {
            Arc::new(ticks.reinterpret_cast::<TimestampSecondType>().with_timezone_opt(zone))
        }
        Unit::Millisecond => {
            Arc::new(ticks.reinterpret_cast::<TimestampMillisecondType>().with_timezone_opt(zone))
        }
        Unit::Microsecond => {
            Arc::new(ticks.reinterpret_cast::<TimestampMicrosecondType>().with_timezone_opt(zone))
        }
        Unit::Nanosecond => {
            Arc::new(ticks.reinterpret_cast::<TimestampNanosecondType>().with_timezone_opt(zone))
        }
    }
}

fn timestamp_of(value: &ScalarValue) -> Option<(i64, Unit)> {
    match value {
        ScalarValue::TimestampSecond(Some(ticks), _) => Some((*ticks, Unit::Second)),
        ScalarValue::TimestampMillisecond(Some(ticks), _) => Some((*ticks, Unit::Millisecond)),
        ScalarValue::TimestampMicrosecond(Some(ticks), _) => Some((*ticks, Unit::Microsecond)),
        ScalarValue::TimestampNanosecond(Some(ticks), _) => Some((*ticks, Unit::Nanosecond)),
        _ => None,
    }
}

/// Converts ticks to another unit, rounded towards the past; `None` when they do not fit.
pub(super) fn rescale(ticks: i128, source: Unit, target: Unit) -> Option<i64> {
    let scaled =
        ticks.checked_mul(target.per_second().into())?.div_euclid(source.per_second().into());
    i64::try_from(scaled).ok()
}

fn parse_float<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.trim_ascii().parse().ok()
}

/// Returns true if the text itself says infinity, rather than a number that is too large.
fn names_infinity(text: &str) -> bool {
    text.bytes().all(|byte| !byte.is_ascii_digit())
}

#[expect(clippy::cast_possible_truncation, reason = "rounding to the nearest is what REAL does")]
fn narrow(value: f64) -> f32 {
    value as f32
}

fn parse_bool(text: &str) -> Option<bool> {
    let text = text.trim_ascii();
    let is = |words: &[&str]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    if is(&["t", "true", "tr", "tru", "y", "ye", "yes", "on", "1"]) {
        Some(true)
    } else if is(&["f", "false", "fa", "fal", "fals", "n", "no", "of", "off", "0"]) {
        Some(false)
    } else {
        None
    }
}

/// The reason why a text is no [`Integer`].
enum NotInteger {
    /// It is larger than any type.
    TooLarge,
    /// It is not digits with an optional sign.
    Syntax,
}

fn parse_integer(text: &str) -> Result<Integer, NotInteger> {
    let bytes = text.trim_ascii().as_bytes();
    let (negative, digits) = match bytes {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return Err(NotInteger::Syntax);
    }
    let mut magnitude = 0_u64;
    let mut overflow = false;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return Err(NotInteger::Syntax);
        }
        let next = magnitude.checked_mul(10).and_then(|m| m.checked_add(digit.into()));
        overflow |= next.is_none();
        magnitude = next.unwrap_or(u64::MAX);
    }
    if overflow { Err(NotInteger::TooLarge) } else { Ok(Integer { negative, magnitude }) }
}
