//! Parsing of intervals as in PostgreSQL: `3 days 04:05:06`, `-1 day +02:03`, `1-2`, `P1Y2M3DT4H`, `1 hour ago`.
//!
//! Arrow reads only numbers with units. This file adds the forms that PostgreSQL prints and those of the SQL standard
//! and of ISO 8601 (PostgreSQL 15, "Interval Input"). [`ReadIntervals`] replaces casts of texts by a function; literals
//! are read while a statement is parsed.
//!
//! Invariants:
//! - a fraction of a unit goes to the smaller units: a year has 12 months, a month 30 days, a day 24 hours;
//! - fractions of microseconds are rounded, except in nanoseconds, which PostgreSQL does not have;
//! - an interval that does not fit is not parsed.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, IntervalMonthDayNanoArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalUnit};
use arrow::error::ArrowError;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, exec_err};
use datafusion::config::ConfigOptions;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::{
    Cast, ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};

use crate::checked::cannot_cast;
use crate::differences::OF_DIFFERENCE;
use crate::error::SqlError;
use crate::functions::REGISTRY;
use crate::times_of_day::INTERVAL_OF_TIME;
use crate::value_text::interval_parts;

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);
/// Name of the function; nodes know it too.
const NAME: &str = "interval_from_text";

const NANOS_OF_SECOND: f64 = 1e9;
const NANOS_OF_MICRO: f64 = 1e3;
const SECONDS_OF_DAY: f64 = 86_400.0;
const DAYS_OF_MONTH: f64 = 30.0;
const MONTHS_OF_YEAR: f64 = 12.0;

/// Parses an interval; `None` if the text is not one.
pub fn parse(text: &str) -> Option<IntervalMonthDayNano> {
    let text = text.trim();
    let mut sum = Sum::default();
    match text.strip_prefix(['P', 'p']) {
        Some(iso) => sum.add_iso(iso)?,
        None => sum.add_words(text)?,
    }
    sum.whole()
}

/// Formats an interval so that Arrow can parse it.
pub fn written(interval: IntervalMonthDayNano) -> String {
    let IntervalMonthDayNano { months, days, nanoseconds } = interval;
    let mut parts = Vec::new();
    if months != 0 {
        parts.push(format!("{months} months"));
    }
    if days != 0 {
        parts.push(format!("{days} days"));
    }
    if nanoseconds != 0 || parts.is_empty() {
        parts.push(format!("{nanoseconds} nanoseconds"));
    }
    parts.join(" ")
}

/// A unit of time.
#[derive(Clone, Copy)]
enum Unit {
    /// A number of months.
    Months(f64),
    /// A number of days.
    Days(f64),
    /// A number of nanoseconds.
    Nanos(f64),
}

impl Unit {
    /// Looks up a unit by its name: singular, plural or abbreviated.
    fn named(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        Some(match name.as_str() {
            "ns" | "nanosecond" | "nanoseconds" => Self::Nanos(1.0),
            "us" | "usec" | "usecs" | "usecond" | "useconds" | "microsecond" | "microseconds" => {
                Self::Nanos(1e3)
            }
            "ms" | "msec" | "msecs" | "msecond" | "mseconds" | "millisecond" | "milliseconds" => {
                Self::Nanos(1e6)
            }
            "s" | "sec" | "secs" | "second" | "seconds" => Self::Nanos(NANOS_OF_SECOND),
            "m" | "min" | "mins" | "minute" | "minutes" => Self::Nanos(60.0 * NANOS_OF_SECOND),
            "h" | "hr" | "hrs" | "hour" | "hours" => Self::Nanos(3_600.0 * NANOS_OF_SECOND),
            "d" | "day" | "days" => Self::Days(1.0),
            "w" | "week" | "weeks" => Self::Days(7.0),
            "mon" | "mons" | "month" | "months" => Self::Months(1.0),
            "y" | "yr" | "yrs" | "year" | "years" => Self::Months(MONTHS_OF_YEAR),
            "dec" | "decs" | "decade" | "decades" => Self::Months(10.0 * MONTHS_OF_YEAR),
            "c" | "cent" | "century" | "centuries" => Self::Months(100.0 * MONTHS_OF_YEAR),
            "mil" | "mils" | "millennium" | "millennia" => Self::Months(1_000.0 * MONTHS_OF_YEAR),
            _ => return None,
        })
    }

    /// Looks up a unit by its letter in ISO 8601, before or after the `T`.
    fn lettered(letter: char, is_time: bool) -> Option<Self> {
        Self::named(match (letter.to_ascii_uppercase(), is_time) {
            ('Y', false) => "year",
            ('M', false) => "month",
            ('W', false) => "week",
            ('D', false) => "day",
            ('H', true) => "hour",
            ('M', true) => "minute",
            ('S', true) => "second",
            _ => return None,
        })
    }
}

/// A number split at its point, so that whole units are exact.
#[derive(Clone, Copy)]
struct Number {
    is_negative: bool,
    whole: i64,
    /// At least 0 and less than 1.
    fraction: f64,
}

impl Number {
    /// Parses `[+-]digits[.digits]`, with at least one digit.
    fn parse(text: &str) -> Option<Self> {
        let (is_negative, digits) = signed(text);
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.len() + fraction.len() == 0 || !are_digits(whole) || !are_digits(fraction) {
            return None;
        }
        Some(Self {
            is_negative,
            whole: if whole.is_empty() { 0 } else { whole.parse().ok()? },
            fraction: if fraction.is_empty() {
                0.0
            } else {
                format!("0.{fraction}").parse().ok()?
            },
        })
    }
}

/// Splits off the sign of a number; the flag is true for a minus.
fn signed(text: &str) -> (bool, &str) {
    match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    }
}

/// Sum of the parts parsed so far.
#[derive(Default)]
struct Sum {
    months: i64,
    days: i64,
    nanos: i128,
}

impl Sum {
    fn whole(&self) -> Option<IntervalMonthDayNano> {
        Some(IntervalMonthDayNano::new(
            i32::try_from(self.months).ok()?,
            i32::try_from(self.days).ok()?,
            i64::try_from(self.nanos).ok()?,
        ))
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "a factor is whole and small, and a fraction is of one unit"
    )]
    fn add(&mut self, number: Number, unit: Unit) -> Option<()> {
        let sign = if number.is_negative { -1 } else { 1 };
        match unit {
            Unit::Months(factor) => {
                let whole = number.whole.checked_mul(factor as i64)?;
                let fraction = number.fraction * factor;
                // PostgreSQL rounds fractions of years to months; fractions of months become days.
                let (months, days) = if factor > 1.0 {
                    (fraction.round(), 0.0)
                } else {
                    (0.0, fraction * DAYS_OF_MONTH)
                };
                let months = whole.checked_add(months as i64)?.checked_mul(sign)?;
                self.months = self.months.checked_add(months)?;
                self.add_days(days, sign)
            }
            Unit::Days(factor) => {
                let whole = number.whole.checked_mul(factor as i64)?.checked_mul(sign)?;
                self.days = self.days.checked_add(whole)?;
                self.add_days(number.fraction * factor, sign)
            }
            Unit::Nanos(factor) => {
                let whole = i128::from(number.whole) * (factor as i128);
                let tick = if factor < NANOS_OF_MICRO { 1.0 } else { NANOS_OF_MICRO };
                let ticks = (number.fraction * factor / tick).round_ties_even();
                let part = (ticks * tick) as i128;
                self.nanos = self.nanos.checked_add((whole + part) * i128::from(sign))?;
                Some(())
            }
        }
    }

    /// Adds days with a fraction, both at least 0.
    #[expect(clippy::cast_possible_truncation, reason = "less than a century's days")]
    fn add_days(&mut self, days: f64, sign: i64) -> Option<()> {
        // Rounding removes the error of binary fractions, which is below a microsecond.
        let days = (days * 1e12).round() / 1e12;
        let seconds = days.fract() * SECONDS_OF_DAY;
        let micros = (seconds * 1e6).round() as i128;
        self.days = self.days.checked_add((days.trunc() as i64).checked_mul(sign)?)?;
        self.nanos = self.nanos.checked_add(micros * 1_000 * i128::from(sign))?;
        Some(())
    }

    /// Adds `hours:minutes[:seconds]`; a sign applies to all of them.
    fn add_clock(&mut self, text: &str) -> Option<()> {
        let (is_negative, text) = signed(text);
        let mut parts = text.split(':');
        let (hours, minutes, seconds) = (parts.next()?, parts.next()?, parts.next());
        if parts.next().is_some() {
            return None;
        }
        let units = ["hour", "minute", "second"];
        for (part, name) in [Some(hours), Some(minutes), seconds].into_iter().zip(units) {
            let Some(part) = part else { continue };
            if !part.starts_with(|first: char| first.is_ascii_digit()) {
                return None;
            }
            let number = Number { is_negative, ..Number::parse(part)? };
            let is_whole = name == "second" || !part.contains('.');
            let is_less_than_60 = name == "hour" || number.whole < 60;
            if !is_whole || !is_less_than_60 {
                return None;
            }
            self.add(number, Unit::named(name)?)?;
        }
        Some(())
    }

    /// Adds `years-months`; a sign applies to both.
    fn add_years_and_months(&mut self, text: &str) -> Option<()> {
        let (is_negative, text) = signed(text);
        let (years, months) = text.split_once('-')?;
        let years = Number { is_negative, ..Number::parse(years)? };
        let months = Number { is_negative, ..Number::parse(months)? };
        if years.fraction + months.fraction > 0.0 || months.whole > 11 {
            return None;
        }
        self.add(years, Unit::named("year")?)?;
        self.add(months, Unit::named("month")?)
    }

    /// Adds numbers with units, clock times and `ago`.
    fn add_words(&mut self, text: &str) -> Option<()> {
        let mut words = tokens(text.strip_prefix('@').unwrap_or(text))?.into_iter().peekable();
        words.peek()?;
        while let Some(word) = words.next() {
            // `ago` negates everything before it, and must be last.
            if word.eq_ignore_ascii_case("ago") {
                let (months, days, nanos) = (self.months, self.days, self.nanos);
                *self = Self { months: -months, days: -days, nanos: -nanos };
                return words.next().is_none().then_some(());
            }
            // Clock times, and years with months, need no unit.
            if word.contains(':') {
                self.add_clock(&word)?;
                continue;
            }
            if signed(&word).1.contains('-') {
                self.add_years_and_months(&word)?;
                continue;
            }
            let number = Number::parse(&word)?;
            let unit = match words.peek() {
                // A number before a clock time counts days.
                Some(next) if next.contains(':') => Unit::named("day")?,
                Some(next) if next.starts_with(|first: char| first.is_alphabetic()) => {
                    let unit = Unit::named(next);
                    words.next();
                    unit?
                }
                Some(_) => return None,
                None => Unit::named("second")?,
            };
            self.add(number, unit)?;
        }
        Some(())
    }

    /// Adds what follows the `P` of ISO 8601: numbers with letters, or a date and a time.
    fn add_iso(&mut self, text: &str) -> Option<()> {
        let (date, time) = match text.split_once(['T', 't']) {
            Some((date, time)) => (date, Some(time)),
            None => (text, None),
        };
        if date.is_empty() && time.is_none_or(str::is_empty) {
            return None;
        }
        // The alternative form has a date and a clock time without letters.
        let is_alternative = |text: &str| {
            !text.is_empty() && !text.contains(|letter: char| letter.is_ascii_alphabetic())
        };
        if is_alternative(date) || time.is_some_and(is_alternative) {
            let parts: Vec<&str> =
                if date.is_empty() { Vec::new() } else { date.split('-').collect() };
            if parts.len() > 3 {
                return None;
            }
            for (part, name) in parts.into_iter().zip(["year", "month", "day"]) {
                self.add(Number::parse(part)?, Unit::named(name)?)?;
            }
            return time.map_or(Some(()), |time| self.add_clock(time));
        }
        // In the standard form each number is followed by the letter of its unit.
        for (mut rest, is_time) in [(date, false), (time.unwrap_or(""), true)] {
            while !rest.is_empty() {
                let end = rest.find(|letter: char| letter.is_ascii_alphabetic())?;
                let letter = rest[end..].chars().next()?;
                self.add(Number::parse(&rest[..end])?, Unit::lettered(letter, is_time)?)?;
                rest = &rest[end + letter.len_utf8()..];
            }
        }
        Some(())
    }
}

/// Splits a text into numbers and words, which need no space between them: `1day` is two tokens, `-1 day` too.
fn tokens(text: &str) -> Option<Vec<String>> {
    let mut tokens: Vec<String> = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        // A token ends where letters begin or end, and at whitespace.
        let is_word = first.is_alphabetic();
        let is_other = |letter: char| {
            if is_word {
                !letter.is_alphabetic()
            } else {
                letter.is_alphabetic() || letter.is_whitespace()
            }
        };
        let end = rest.find(is_other).unwrap_or(rest.len());
        let mut token = rest[..end].to_owned();
        rest = rest[end..].trim_start();
        // A sign may be separated from its number.
        if matches!(token.as_str(), "+" | "-") {
            let end = rest.find(|c: char| c.is_alphabetic() || c.is_whitespace());
            let end = end.unwrap_or(rest.len());
            token.push_str(&rest[..end]);
            rest = rest[end..].trim_start();
        }
        tokens.push(token);
    }
    (!tokens.is_empty()).then_some(tokens)
}

/// Function that replaces casts.
pub(crate) fn function() -> ScalarUDF {
    ScalarUDF::from(IntervalFromText { signature: Signature::any(1, Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct IntervalFromText {
    signature: Signature,
}

impl ScalarUDFImpl for IntervalFromText {
    fn name(&self) -> &'static str {
        NAME
    }

    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        match arguments {
            // Named as the cast would be named.
            [argument] => Ok(argument.schema_name().to_string()),
            _ => exec_err!("{NAME} takes one argument"),
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [data_type] if data_type.is_string() => Ok(INTERVAL),
            _ => exec_err!("{NAME} takes a text, not {types:?}"),
        }
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [argument] = args.args.as_slice() else {
            return exec_err!("{NAME} takes one argument");
        };
        match argument {
            ColumnarValue::Array(texts) => Ok(ColumnarValue::Array(read(texts)?)),
            ColumnarValue::Scalar(text) => {
                let read = read(&text.to_array()?)?;
                let value = datafusion::common::ScalarValue::try_from_array(&read, 0)?;
                Ok(ColumnarValue::Scalar(value))
            }
        }
    }
}

/// Intervals from texts, differences of times, and intervals of other units.
///
/// # Errors
/// When a text is not one of an interval, or a value does not fit.
pub fn intervals_of(values: &ArrayRef) -> Result<ArrayRef> {
    if !matches!(values.data_type(), DataType::Interval(_) | DataType::Duration(_)) {
        return read(values);
    }
    let parts = interval_parts(values)?;
    let interval = |row: usize| -> Result<IntervalMonthDayNano, SqlError> {
        let (months, days, micros) = parts(row);
        let nanoseconds = micros.checked_mul(1_000);
        let nanoseconds =
            nanoseconds.ok_or_else(|| SqlError::new("22015", "interval out of range"))?;
        Ok(IntervalMonthDayNano { months, days, nanoseconds })
    };
    let intervals =
        (0..values.len()).map(|row| values.is_valid(row).then(|| interval(row)).transpose());
    Ok(Arc::new(intervals.collect::<Result<IntervalMonthDayNanoArray, SqlError>>()?))
}

/// Parses intervals.
fn read(texts: &ArrayRef) -> Result<ArrayRef> {
    let texts = cast(texts, &DataType::Utf8View)?;
    let interval = |text: Option<&str>| {
        text.map(|text| {
            parse(text).ok_or_else(|| {
                let message = format!("invalid input syntax for type interval: \"{text}\"");
                DataFusionError::from(ArrowError::ParseError(message))
            })
        })
        .transpose()
    };
    let intervals: IntervalMonthDayNanoArray =
        texts.as_string_view().iter().map(interval).collect::<Result<_>>()?;
    Ok(Arc::new(intervals))
}

/// Replaces casts of texts, times of day and differences of times to intervals by functions, and refuses those of
/// numbers; to be applied once types are coerced.
#[derive(Debug)]
pub struct ReadIntervals;

impl FunctionRewrite for ReadIntervals {
    fn name(&self) -> &'static str {
        "read_intervals"
    }

    fn rewrite(
        &self,
        expression: Expr,
        schema: &DFSchema,
        _: &ConfigOptions,
    ) -> Result<Transformed<Expr>> {
        let Expr::Cast(Cast { expr, field }) = expression else {
            return Ok(Transformed::no(expression));
        };
        let name = match expr.get_type(schema) {
            Ok(source) if *field.data_type() == INTERVAL && source.is_string() => NAME,
            Ok(DataType::Time64(_)) if *field.data_type() == INTERVAL => INTERVAL_OF_TIME,
            Ok(DataType::Duration(_)) if *field.data_type() == INTERVAL => OF_DIFFERENCE,
            Ok(source) if *field.data_type() == INTERVAL && source.is_numeric() => {
                return Err(cannot_cast(&source, "interval").into());
            }
            _ => return Ok(Transformed::no(Expr::Cast(Cast { expr, field }))),
        };
        let Some(function) = REGISTRY.scalar.get(name) else {
            return exec_err!("{name} is not registered");
        };
        let call = ScalarFunction::new_udf(Arc::clone(function), vec![*expr]);
        Ok(Transformed::yes(Expr::ScalarFunction(call)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn texts_are_read_as_postgresql_reads_them() {
        // Values of PostgreSQL 15.
        for (text, months, days, nanos) in [
            ("3 days 04:05:06", 0, 3, 14_706 * SECOND),
            ("04:05:06.789", 0, 0, 14_706 * SECOND + 789_000_000),
            ("04:05", 0, 0, 14_700 * SECOND),
            ("-00:00:01", 0, 0, -SECOND),
            ("-1 days +02:03:00", 0, -1, 7_380 * SECOND),
            ("1-2", 14, 0, 0),
            ("-1-2", -14, 0, 0),
            ("1-2 3 04:05:06", 14, 3, 14_706 * SECOND),
            ("1 02:03:04", 0, 1, 7_384 * SECOND),
            ("1 year 2 mons 3 days 04:05:06.789", 14, 3, 14_706 * SECOND + 789_000_000),
            ("@ 1 hour ago", 0, 0, -3_600 * SECOND),
            ("1 day ago", 0, -1, 0),
            ("1.5 days", 0, 1, 43_200 * SECOND),
            ("1.5 months", 1, 15, 0),
            ("0.5 year", 6, 0, 0),
            ("1.5 weeks", 0, 10, 43_200 * SECOND),
            ("-1.5 days", 0, -1, -43_200 * SECOND),
            ("0.1 months", 0, 3, 0),
            ("1day", 0, 1, 0),
            ("2h30m", 0, 0, 9_000 * SECOND),
            ("- 2 hours", 0, 0, -7_200 * SECOND),
            ("5", 0, 0, 5 * SECOND),
            ("1.000001", 0, 0, SECOND + 1_000),
            ("1 decade", 120, 0, 0),
            ("P1Y2M3DT4H5M6S", 14, 3, 14_706 * SECOND),
            ("P1DT2H", 0, 1, 7_200 * SECOND),
            ("PT1.5S", 0, 0, SECOND + 500_000_000),
            ("P0001-02-03T04:05:06", 14, 3, 14_706 * SECOND),
            ("P-1Y", -12, 0, 0),
            ("300 us", 0, 0, 300_000),
            ("7 nanoseconds", 0, 0, 7),
            ("1.2345678 s", 0, 0, 1_234_568_000),
            ("00:00:01.2345674", 0, 0, 1_234_567_000),
            ("-0.0000007 s", 0, 0, -1_000),
        ] {
            let expected = IntervalMonthDayNano::new(months, days, nanos);
            assert_eq!(parse(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn other_texts_are_no_intervals() {
        for text in [
            "",
            "P",
            "PT",
            "x",
            "1 x",
            "1 2",
            "day",
            "1:2:3:4",
            "1:61",
            "1 day ago 2",
            "1.2.3 days",
            "1-13",
            "99999999999999999999 days",
            "3000000000 days",
            "P1X",
            "1:2.5",
            "--1 day",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn arrow_reads_what_is_written() {
        for (months, days, nanos) in [(0, 0, 0), (14, -3, 1), (-1, 0, -SECOND), (0, 9, i64::MAX)] {
            let interval = IntervalMonthDayNano::new(months, days, nanos);
            let text = written(interval);
            assert_eq!(
                arrow::compute::kernels::cast_utils::parse_interval_month_day_nano(&text).unwrap(),
                interval,
                "{text}"
            );
        }
    }
}
