//! `to_char` with PostgreSQL's patterns, of times, intervals and numbers (`number_text.rs`).
//!
//! DataFusion's function takes chrono's formats (`%Y-%m-%d`) and returns `YYYY-MM-DD` unchanged, a text that looks like
//! a result. Here a format without `%` is read as in PostgreSQL (`time_pattern.rs`).
//!
//! Invariant: formats with `%`, and their results for times, are DataFusion's.

use std::fmt::Write as _;
use std::hash::Hash;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::functions::datetime::to_char;
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use crate::civil::{date_of, day_of, per_second};
use crate::error::{INVALID_DATETIME, SqlError};
use crate::number_text::{ordinal, written};
use crate::plain::{Texts, is_text, texts};
use crate::time_pattern::{DAYS, Field, Letters, MONTHS, Part, Pattern, ROMAN};
use crate::value_text::{interval_parts, ticks};
use crate::zone::Zone;

const SECONDS_PER_DAY: i64 = 86_400;
/// Days from 4714-11-24 BC to 1970-01-01.
pub(crate) const JULIAN_EPOCH: i64 = 2_440_588;

/// The function to register, under DataFusion's name.
pub(crate) fn function() -> ScalarUDF {
    let signature = Signature::user_defined(Volatility::Immutable);
    ScalarUDF::from(ToChar { inner: to_char(), signature })
}

/// A time or an interval, split into the fields of a calendar.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields {
    is_span: bool,
    /// Year; the year before 1 is 0.
    year: i64,
    month: i64,
    day: i64,
    hour: i64,
    minute: i64,
    second: i64,
    micros: i64,
    /// Days since 1970.
    days: i64,
    /// Seconds east of Greenwich, and the zone's abbreviation; only for instants.
    zone: Option<(i64, String)>,
}

impl Fields {
    fn of_time(seconds: i64, micros: i64) -> Self {
        let days = seconds.div_euclid(SECONDS_PER_DAY);
        let clock = seconds.rem_euclid(SECONDS_PER_DAY);
        let (year, month, day) = date_of(days);
        let (hour, minute, second) = (clock / 3600, clock / 60 % 60, clock % 60);
        Self { year, month, day, hour, minute, second, micros, days, ..Self::default() }
    }

    fn of_span(months: i32, days: i32, micros: i64) -> Self {
        let seconds = micros / 1_000_000;
        Self {
            is_span: true,
            year: i64::from(months / 12),
            month: i64::from(months % 12),
            day: days.into(),
            hour: seconds / 3600,
            minute: seconds / 60 % 60,
            second: seconds % 60,
            micros: micros % 1_000_000,
            ..Self::default()
        }
    }

    fn day_of_year(&self) -> i64 {
        self.days - day_of(self.year, 1, 1) + 1
    }

    /// Days since Sunday.
    fn day_of_week(&self) -> i64 {
        (self.days + 4).rem_euclid(7)
    }

    /// Year and week of ISO 8601, and the day of that year.
    fn iso(&self) -> (i64, i64, i64) {
        let weekday = (self.day_of_week() + 6) % 7;
        let thursday = self.days - weekday + 3;
        let (year, ..) = date_of(thursday);
        let first = first_iso_day(year);
        (year, (self.days - first) / 7 + 1, self.days - first + 1)
    }
}

/// Monday of the first week of a year of ISO 8601, in days since 1970.
pub(crate) fn first_iso_day(year: i64) -> i64 {
    let fourth = day_of(year, 1, 4);
    fourth - (fourth + 3).rem_euclid(7)
}

/// The year without its era: year 0 is 1 BC.
fn called(year: i64) -> i64 {
    if year <= 0 { 1 - year } else { year }
}

/// Writes a number with leading zeros, which follow a sign.
fn padded(output: &mut String, number: i64, width: usize, bare: bool) {
    let width = if bare { 0 } else { width + usize::from(number < 0) };
    let _written: std::fmt::Result = write!(output, "{number:0width$}");
}

fn cased(name: &str, letters: Letters) -> String {
    match letters {
        Letters::Upper => name.to_ascii_uppercase(),
        Letters::Lower => name.to_ascii_lowercase(),
        Letters::Capital => name.to_owned(),
    }
}

impl Pattern {
    /// Formats a time.
    pub(crate) fn write(&self, fields: &Fields) -> Result<String, SqlError> {
        let mut output = String::new();
        for part in &self.parts {
            match part {
                Part::Separator(letter) | Part::Text(letter) => output.push(*letter),
                Part::Field { field, letters, name, bare, ordinal: ends } => {
                    let start = output.len();
                    write_field(&mut output, fields, *field, (*letters, name, *bare))?;
                    if let Some(upper) = ends {
                        let ending = ordinal(&output[start..], *upper);
                        output.push_str(ending);
                    }
                }
            }
        }
        Ok(output)
    }
}

/// Returns true if a field needs a date, and does not apply to intervals.
fn is_of_dates(field: Field) -> bool {
    matches!(
        field,
        Field::Era
            | Field::DayName
            | Field::DayShort
            | Field::DayOfWeek
            | Field::IsoDay
            | Field::IsoDayOfYear
            | Field::IsoWeek
            | Field::IsoYear(_)
            | Field::ZoneName
            | Field::ZoneHour
            | Field::ZoneMinute
            | Field::Offset
    )
}

/// Writes the offset of a zone from UTC, or a part of it.
fn write_offset(output: &mut String, fields: &Fields, field: Field) {
    let east = fields.zone.as_ref().map_or(0, |(east, _)| *east);
    let (sign, size) = (if east < 0 { '-' } else { '+' }, east.abs());
    let (hours, minutes) = (size / 3600, size / 60 % 60);
    let _written: std::fmt::Result = match field {
        Field::ZoneMinute => write!(output, "{minutes:02}"),
        Field::Offset if minutes != 0 => write!(output, "{sign}{hours:02}:{minutes:02}"),
        _ => write!(output, "{sign}{hours:02}"),
    };
}

/// Writes one field in the form that the pattern gives it.
fn write_field(
    output: &mut String,
    fields: &Fields,
    field: Field,
    (letters, name, bare): (Letters, &str, bool),
) -> Result<(), SqlError> {
    // An interval has no date.
    if fields.is_span && is_of_dates(field) {
        let message = "invalid format specification for an interval value";
        return Err(SqlError::new(INVALID_DATETIME, message)
            .with_hint("Intervals are not tied to specific calendar dates."));
    }
    let year = if fields.is_span { fields.year } else { called(fields.year) };
    // Writers of names, of pairs such as AM and PM, and of shortened years.
    let word = |output: &mut String, text: &str, width: usize| {
        let width = if bare { 0 } else { width };
        let text = cased(text, letters);
        let _written: std::fmt::Result = write!(output, "{text:<width$}");
    };
    let pair = |output: &mut String, second: bool, words: (&str, &str)| {
        let text = if second { words.1 } else { words.0 };
        let dotted = name.contains('.').then(|| format!("{}.{}.", &text[..1], &text[1..]));
        output.push_str(&cased(dotted.as_deref().unwrap_or(text), letters));
    };
    let modulo = |year: i64, digits: usize| match digits {
        1 => year % 10,
        2 => year % 100,
        3 => year % 1000,
        _ => year,
    };
    match field {
        Field::Era => pair(output, fields.year <= 0, ("AD", "BC")),
        Field::HalfDay => pair(output, fields.hour.rem_euclid(24) >= 12, ("AM", "PM")),
        Field::Century => {
            let century = match fields.year {
                year if fields.is_span => year / 100,
                year if year > 0 => (year - 1) / 100 + 1,
                year => year / 100 - 1,
            };
            padded(output, century, 2, bare);
        }
        Field::DayName => word(output, DAYS[index(fields.day_of_week())], 9),
        Field::DayShort => word(output, &DAYS[index(fields.day_of_week())][..3], 0),
        Field::MonthName | Field::MonthShort if fields.month == 0 => {}
        Field::MonthName => word(output, MONTHS[index(fields.month - 1)], 9),
        Field::MonthShort => word(output, &MONTHS[index(fields.month - 1)][..3], 0),
        Field::Roman if fields.month == 0 => {}
        Field::Roman => word(output, ROMAN[index((fields.month - 1).rem_euclid(12))], 4),
        Field::DayOfYear if fields.is_span => {
            padded(output, fields.year * 360 + fields.month * 30 + fields.day, 3, bare);
        }
        Field::DayOfYear => padded(output, fields.day_of_year(), 3, bare),
        Field::IsoDayOfYear => padded(output, fields.iso().2, 3, bare),
        Field::DayOfMonth => padded(output, fields.day, 2, bare),
        Field::DayOfWeek => padded(output, fields.day_of_week() + 1, 1, bare),
        Field::IsoDay => padded(output, (fields.day_of_week() + 6) % 7 + 1, 1, bare),
        Field::Fraction(digits) => {
            let divisor = 10_i64.pow(u32::try_from(6 - digits.min(6)).unwrap_or(0));
            padded(output, fields.micros / divisor, digits, false);
        }
        Field::Hour24 => padded(output, fields.hour, 2, bare),
        Field::Hour12 => {
            let hour = fields.hour % 12;
            padded(output, if hour == 0 { 12 } else { hour }, 2, bare);
        }
        Field::Minute => padded(output, fields.minute, 2, bare),
        Field::Second => padded(output, fields.second, 2, bare),
        Field::SecondOfDay => {
            padded(output, (fields.hour * 60 + fields.minute) * 60 + fields.second, 1, true);
        }
        Field::IsoWeek => padded(output, fields.iso().1, 2, bare),
        Field::IsoYear(digits) => {
            padded(output, modulo(called(fields.iso().0), digits), digits, bare)
        }
        Field::Julian => padded(output, fields.days + JULIAN_EPOCH, 1, true),
        Field::Month => padded(output, fields.month, 2, bare),
        Field::Quarter if fields.month == 0 => {}
        Field::Quarter => padded(output, (fields.month - 1) / 3 + 1, 1, bare),
        Field::WeekOfYear => {
            let day = if fields.is_span {
                fields.year * 360 + fields.month * 30 + fields.day
            } else {
                fields.day_of_year()
            };
            padded(output, (day - 1) / 7 + 1, 2, bare);
        }
        Field::WeekOfMonth => padded(output, (fields.day - 1) / 7 + 1, 1, bare),
        Field::YearWithComma => {
            let _written: std::fmt::Result =
                write!(output, "{},{:03}", year / 1000, (year % 1000).abs());
        }
        Field::Year(digits) => padded(output, modulo(year, digits), digits, bare),
        Field::ZoneName => {
            if let Some((_, abbreviation)) = &fields.zone {
                // Offsets have no letters, and stay the same.
                output.push_str(&match letters {
                    Letters::Lower => abbreviation.to_lowercase(),
                    _ => abbreviation.clone(),
                });
            }
        }
        Field::ZoneHour | Field::ZoneMinute | Field::Offset => write_offset(output, fields, field),
    }
    Ok(())
}

fn index(number: i64) -> usize {
    usize::try_from(number).unwrap_or(0)
}

/// Returns the fields of a row of times or intervals.
type FieldReader = Box<dyn Fn(usize) -> Fields>;

/// Makes a reader of times; instants are read in the zone of their type.
fn reader(values: &ArrayRef) -> Result<FieldReader> {
    Ok(match values.data_type() {
        // Ticks of times are split by the zone's offset at each instant.
        DataType::Timestamp(unit, zone) => {
            let per_second = per_second(*unit);
            let zone = zone.as_deref().map(|name| Zone::of_arrow(name).unwrap_or(Zone::UTC));
            let ticks = ticks(values)?;
            Box::new(move |row| {
                let ticks = ticks.value(row);
                let seconds = ticks.div_euclid(per_second);
                let part = i128::from(ticks.rem_euclid(per_second)) * 1_000_000;
                let micros = i64::try_from(part / i128::from(per_second)).unwrap_or(0);
                let east = zone.map_or(0, |zone| zone.offset_at(seconds));
                let mut fields = Fields::of_time(seconds.saturating_add(east), micros);
                fields.zone = zone.map(|zone| (east, zone.abbreviation_at(seconds)));
                fields
            })
        }
        DataType::Date32 | DataType::Date64 => {
            reader(&cast(values, &DataType::Timestamp(TimeUnit::Second, None))?)?
        }
        // Times of day and intervals have no date.
        DataType::Time32(unit) | DataType::Time64(unit) => {
            let per_second = i128::from(per_second(*unit));
            let ticks = ticks(values)?;
            Box::new(move |row| {
                let micros = i128::from(ticks.value(row)) * 1_000_000 / per_second;
                Fields::of_span(0, 0, i64::try_from(micros).unwrap_or(0))
            })
        }
        _ => {
            let parts = interval_parts(values)?;
            Box::new(move |row| {
                let (months, days, micros) = parts(row);
                Fields::of_span(months, days, micros)
            })
        }
    })
}

/// Formats times; the pattern of adjacent rows with the same format is parsed once.
fn shown(values: &ArrayRef, formats: &StringArray) -> Result<ArrayRef> {
    let fields = reader(values)?;
    let mut cached: Option<(&str, Pattern)> = None;
    let mut results = Texts::new("to_char", values.len());
    for row in 0..values.len() {
        // PostgreSQL returns NULL for an empty format.
        if values.is_null(row) || formats.is_null(row) || formats.value(row).is_empty() {
            results.push(None::<&str>)?;
            continue;
        }
        let format = formats.value(row);
        if cached.as_ref().is_none_or(|(text, _)| *text != format) {
            cached = Some((format, Pattern::parse(format)));
        }
        if let Some((_, pattern)) = &cached {
            results.push(Some(pattern.write(&fields(row))?))?;
        }
    }
    Ok(results.finish())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ToChar {
    inner: Arc<ScalarUDF>,
    signature: Signature,
}

/// Returns true for types that PostgreSQL's patterns of times apply to.
fn has_pattern(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Timestamp(..)
            | DataType::Date32
            | DataType::Date64
            | DataType::Time32(_)
            | DataType::Time64(_)
            | DataType::Interval(_)
            | DataType::Duration(_)
    )
}

impl ScalarUDFImpl for ToChar {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [data_type, format]
                if is_text(format) && (has_pattern(data_type) || data_type.is_numeric()) =>
            {
                Ok(vec![data_type.clone(), DataType::Utf8])
            }
            _ => {
                let field = |data_type: &DataType| {
                    Arc::new(arrow::datatypes::Field::new("argument", data_type.clone(), true))
                };
                let fields: Vec<_> = types.iter().map(field).collect();
                let fields = fields_with_udf(&fields, self.inner.as_ref())?;
                Ok(fields.iter().map(|field| field.data_type().clone()).collect())
            }
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [values, formats] = args.args.as_slice() else {
            return exec_err!("to_char takes a value and a format");
        };
        let of_chrono = match formats {
            ColumnarValue::Scalar(format) => {
                format.try_as_str().flatten().is_some_and(|format| format.contains('%'))
            }
            ColumnarValue::Array(formats) => {
                texts(formats)?.iter().flatten().any(|format| format.contains('%'))
            }
        };
        let data_type = values.data_type();
        // DataFusion has named formats for durations.
        if of_chrono && has_pattern(&data_type) && !matches!(data_type, DataType::Duration(_)) {
            return self.inner.inner().invoke_with_args(args);
        }
        let constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { args.number_rows };
        let (values, formats) = (values.to_array(rows)?, formats.to_array(rows)?);
        let results = if has_pattern(&data_type) {
            shown(&values, &texts(&formats)?)?
        } else if data_type.is_numeric() {
            written(&values, &formats)?
        } else {
            arrow::array::new_null_array(&DataType::Utf8, rows)
        };
        if constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&results, 0)?));
        }
        Ok(ColumnarValue::Array(results))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use datafusion::prelude::SessionContext;

    use super::*;

    async fn answer(of: &str, format: &str) -> std::result::Result<String, String> {
        let context = SessionContext::new();
        context.register_udf(function());
        let sql = format!("SELECT to_char({of}, '{format}')");
        let told = |error| SqlError::from(error).message;
        let batches = context.sql(&sql).await.map_err(told)?.collect().await.map_err(told)?;
        Ok(batches[0].column(0).as_string::<i32>().value(0).to_owned())
    }

    #[tokio::test]
    async fn patterns_are_postgresqls_and_formats_chronos() {
        let at = "TIMESTAMP '2026-03-07 15:04:05.678901'";
        for (format, expected) in [
            ("YYYY-MM-DD", "2026-03-07"),
            ("yyyy-mm-dd hh24:mi:ss", "2026-03-07 15:04:05"),
            ("YYYY-MM-DD\"T\"HH24:MI:SS.MS", "2026-03-07T15:04:05.678"),
            ("HH12:MI:SS.US PM", "03:04:05.678901 PM"),
            ("HH:MI am", "03:04 pm"),
            ("Dy, FMDD Mon YYYY", "Sat, 7 Mar 2026"),
            ("FMDay FMMonth FMMM", "Saturday March 3"),
            ("MONTH|Day|month", "MARCH    |Saturday |march    "),
            ("IYYY-IW-ID, DDD, Q", "2026-10-6, 066, 1"),
            ("DDth DDTH FMDDth", "07th 07TH 7th"),
            ("J W WW CC Y,YYY RM", "2461107 1 10 21 2,026 III "),
            ("A.M. p.m. BC", "P.M. p.m. AD"),
            ("SSSS FF1 FF3", "54245 6 678"),
            ("%d.%m.%Y", "07.03.2026"),
            ("--", "--"),
        ] {
            assert_eq!(answer(at, format).await.as_deref(), Ok(expected), "{format}");
        }
    }

    #[tokio::test]
    async fn spans_and_numbers_have_patterns_too() {
        for (of, format, expected) in [
            ("INTERVAL '15 hours 2 minutes 12 seconds'", "HH24:MI:SS", "15:02:12"),
            ("INTERVAL '100 hours'", "HH24", "100"),
            ("INTERVAL '14 months'", "YYYY-MM", "0001-02"),
            ("485", "999th", " 485th"),
            ("CAST(148.5 AS DOUBLE)", "FM999.00", "148.50"),
        ] {
            assert_eq!(answer(of, format).await.as_deref(), Ok(expected), "{of} {format}");
        }
        let error = answer("INTERVAL '1 day'", "Day").await.unwrap_err();
        assert!(error.contains("interval"), "{error}");
    }
}
