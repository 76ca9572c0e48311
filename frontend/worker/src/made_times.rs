//! Times and intervals built from parts: `make_date` and its like, `age`, `justify_days` and its like.
//!
//! Invariants, as in PostgreSQL: justified intervals have months of 30 days and days of 24 hours; the age of two times
//! is in years, months and days of the calendar; `age` of one time counts to midnight of the current day, which the
//! frontend adds as an argument.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Date32Array, Int64Array, IntervalMonthDayNanoArray,
    Time64MicrosecondArray, TimestampMicrosecondArray,
};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Int32Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
    TimestampMicrosecondType,
};
use datafusion::error::Result;
use datafusion::logical_expr::ScalarUDF;

use crate::civil::{date_of, day_of};
use crate::error::{INVALID_PARAMETER_VALUE, SqlError};
use crate::plain::{Plain, doubles, is_number, is_text, is_whole, texts, wholes};
use crate::zone::Zone;

const MICROS_PER_SECOND: i64 = 1_000_000;
const MICROS_PER_DAY: i64 = 86_400_000_000;
const DAYS_PER_MONTH: i32 = 30;
const SPAN: DataType = DataType::Interval(IntervalUnit::MonthDayNano);
const TIME: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);
/// The last year of PostgreSQL's calendar.
const YEAR_MAX: i64 = 5_874_897;

/// The functions to register.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    [
        &AGE,
        &JUSTIFY_DAYS,
        &JUSTIFY_HOURS,
        &JUSTIFY_INTERVAL,
        &MAKE_DATE,
        &MAKE_TIME,
        &MAKE_TIMESTAMP,
        &MAKE_TIMESTAMPTZ,
        &MAKE_INTERVAL,
        &IS_FINITE,
    ]
    .into_iter()
    .map(Plain::function)
}

fn instants() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

fn span(_: &[DataType]) -> DataType {
    SPAN
}

fn out_of_range(kind: &str) -> SqlError {
    SqlError::new("22008", format!("{kind} out of range"))
}

static AGE: Plain = Plain {
    name: "age",
    takes: |types| match types {
        [end, start] => {
            let time = |data_type: &DataType| {
                matches!(data_type, DataType::Timestamp(..) | DataType::Date32 | DataType::Date64)
                    || is_text(data_type)
            };
            // Both are local times of the session's zone (`frontend/src/zoned.rs`).
            (time(end) && time(start)).then(|| vec![TIME, TIME])
        }
        _ => None,
    },
    gives: span,
    run: |arguments| {
        let (ends, starts) = (
            arguments[0].as_primitive::<TimestampMicrosecondType>(),
            arguments[1].as_primitive::<TimestampMicrosecondType>(),
        );
        let ages = ends.iter().zip(starts).map(|(end, start)| Some(age(end?, start?)));
        Ok(Arc::new(ages.collect::<IntervalMonthDayNanoArray>()))
    },
};

/// Years, months, days and microseconds between two times.
fn age(end: i64, start: i64) -> IntervalMonthDayNano {
    if end < start {
        let back = age(start, end);
        return IntervalMonthDayNano::new(-back.months, -back.days, -back.nanoseconds);
    }
    let parts = |micros: i64| {
        let (year, month, day) = date_of(micros.div_euclid(MICROS_PER_DAY));
        (year * 12 + month - 1, day, micros.rem_euclid(MICROS_PER_DAY))
    };
    let (end, start) = (parts(end), parts(start));
    let (mut months, mut days, mut micros) = (end.0 - start.0, end.1 - start.1, end.2 - start.2);
    if micros < 0 {
        micros += MICROS_PER_DAY;
        days -= 1;
    }
    if days < 0 {
        // The days of the month in which the earlier time lies.
        let (year, month) = (start.0.div_euclid(12), start.0.rem_euclid(12) + 1);
        days += day_of(year + month / 12, month % 12 + 1, 1) - day_of(year, month, 1);
        months -= 1;
    }
    let narrow = |number: i64| i32::try_from(number).unwrap_or(i32::MAX);
    IntervalMonthDayNano::new(narrow(months), narrow(days), micros * 1_000)
}

fn one_span(types: &[DataType]) -> Option<Vec<DataType>> {
    let is_span = |data_type: &DataType| {
        matches!(data_type, DataType::Interval(_) | DataType::Duration(_)) || is_text(data_type)
    };
    crate::plain::all(types, 1, is_span, &SPAN)
}

fn justified(
    arguments: &[ArrayRef],
    justify: fn(IntervalMonthDayNano) -> Option<IntervalMonthDayNano>,
) -> Result<ArrayRef> {
    let spans = cast(&arguments[0], &SPAN)?;
    let intervals = spans.as_primitive::<IntervalMonthDayNanoType>().iter().map(|span| {
        span.map(|span| justify(span).ok_or_else(|| out_of_range("interval"))).transpose()
    });
    Ok(Arc::new(intervals.collect::<Result<IntervalMonthDayNanoArray, SqlError>>()?))
}

static JUSTIFY_DAYS: Plain = Plain {
    name: "justify_days",
    takes: one_span,
    gives: span,
    run: |arguments| justified(arguments, justify_days),
};

static JUSTIFY_HOURS: Plain = Plain {
    name: "justify_hours",
    takes: one_span,
    gives: span,
    run: |arguments| justified(arguments, justify_hours),
};

static JUSTIFY_INTERVAL: Plain = Plain {
    name: "justify_interval",
    takes: one_span,
    gives: span,
    run: |arguments| justified(arguments, justify_interval),
};

const NANOS_PER_DAY: i64 = MICROS_PER_DAY * 1_000;

fn justify_days(interval: IntervalMonthDayNano) -> Option<IntervalMonthDayNano> {
    let (mut months, mut days) = (
        interval.months.checked_add(interval.days / DAYS_PER_MONTH)?,
        interval.days % DAYS_PER_MONTH,
    );
    if months > 0 && days < 0 {
        (months, days) = (months - 1, days + DAYS_PER_MONTH);
    } else if months < 0 && days > 0 {
        (months, days) = (months + 1, days - DAYS_PER_MONTH);
    }
    Some(IntervalMonthDayNano::new(months, days, interval.nanoseconds))
}

fn justify_hours(interval: IntervalMonthDayNano) -> Option<IntervalMonthDayNano> {
    let whole = i32::try_from(interval.nanoseconds / NANOS_PER_DAY).ok()?;
    let (mut days, mut nanos) =
        (interval.days.checked_add(whole)?, interval.nanoseconds % NANOS_PER_DAY);
    if days > 0 && nanos < 0 {
        (days, nanos) = (days - 1, nanos + NANOS_PER_DAY);
    } else if days < 0 && nanos > 0 {
        (days, nanos) = (days + 1, nanos - NANOS_PER_DAY);
    }
    Some(IntervalMonthDayNano::new(interval.months, days, nanos))
}

fn justify_interval(interval: IntervalMonthDayNano) -> Option<IntervalMonthDayNano> {
    let whole = i32::try_from(interval.nanoseconds / NANOS_PER_DAY).ok()?;
    let days = interval.days.checked_add(whole)?;
    let mut nanos = interval.nanoseconds % NANOS_PER_DAY;
    let mut months = interval.months.checked_add(days / DAYS_PER_MONTH)?;
    let mut days = days % DAYS_PER_MONTH;
    if months > 0 && (days < 0 || days == 0 && nanos < 0) {
        (months, days) = (months - 1, days + DAYS_PER_MONTH);
    } else if months < 0 && (days > 0 || days == 0 && nanos > 0) {
        (months, days) = (months + 1, days - DAYS_PER_MONTH);
    }
    if days > 0 && nanos < 0 {
        (days, nanos) = (days - 1, nanos + NANOS_PER_DAY);
    } else if days < 0 && nanos > 0 {
        (days, nanos) = (days + 1, nanos - NANOS_PER_DAY);
    }
    Some(IntervalMonthDayNano::new(months, days, nanos))
}

/// The day of a date, counted from 1970-01-01; as in PostgreSQL, the year before 1 is -1. `None` if there is no such
/// date.
fn day(year: i64, month: i64, of_month: i64) -> Option<i64> {
    let year = if year < 0 {
        year + 1
    } else if year == 0 {
        return None;
    } else {
        year
    };
    if !(1..=12).contains(&month) || !(1..=31).contains(&of_month) || year.abs() > YEAR_MAX {
        return None;
    }
    let days = day_of(year, month, of_month);
    (date_of(days) == (year, month, of_month)).then_some(days)
}

/// Microseconds of a time of day; the latest is 24:00, and a second may be 60. `None` if there is no such time.
fn clock(hour: i64, minute: i64, second: f64) -> Option<i64> {
    if !(0..=24).contains(&hour) || !(0..60).contains(&minute) || !(0.0..=60.0).contains(&second) {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, reason = "sixty seconds at most")]
    let micros = (second * 1e6).round_ties_even() as i64;
    let micros = (hour * 60 + minute) * 60 * MICROS_PER_SECOND + micros;
    (micros <= MICROS_PER_DAY).then_some(micros)
}

static MAKE_DATE: Plain = Plain {
    name: "make_date",
    takes: |types| crate::plain::all(types, 3, is_whole, &DataType::Int64),
    gives: |_| DataType::Date32,
    run: |arguments| {
        let [years, months, days] =
            [wholes(&arguments[0])?, wholes(&arguments[1])?, wholes(&arguments[2])?];
        let date = |row: usize| {
            if years.is_null(row) || months.is_null(row) || days.is_null(row) {
                return Ok(None);
            }
            let parts = (years.value(row), months.value(row), days.value(row));
            let days = day(parts.0, parts.1, parts.2).and_then(|days| i32::try_from(days).ok());
            days.map(Some).ok_or_else(|| {
                let text = format!("{}-{:02}-{:02}", parts.0, parts.1, parts.2);
                SqlError::new("22008", format!("date field value out of range: {text}"))
            })
        };
        let dates = (0..years.len()).map(date);
        Ok(Arc::new(dates.collect::<Result<Date32Array, SqlError>>()?))
    },
};

static MAKE_TIME: Plain = Plain {
    name: "make_time",
    takes: |types| match types {
        [hour, minute, second] if is_whole(hour) && is_whole(minute) && is_number(second) => {
            Some(vec![DataType::Int64, DataType::Int64, DataType::Float64])
        }
        _ => None,
    },
    gives: |_| DataType::Time64(TimeUnit::Microsecond),
    run: |arguments| {
        let [hours, minutes] = [wholes(&arguments[0])?, wholes(&arguments[1])?];
        let seconds = doubles(&arguments[2])?;
        let time = |row: usize| {
            if hours.is_null(row) || minutes.is_null(row) || seconds.is_null(row) {
                return Ok(None);
            }
            let parts = (hours.value(row), minutes.value(row), seconds.value(row));
            clock(parts.0, parts.1, parts.2).map(Some).ok_or_else(|| {
                let text = format!("{}:{:02}:{:02}", parts.0, parts.1, parts.2);
                SqlError::new("22008", format!("time field value out of range: {text}"))
            })
        };
        let times = (0..hours.len()).map(time);
        Ok(Arc::new(times.collect::<Result<Time64MicrosecondArray, SqlError>>()?))
    },
};

/// Types of five whole numbers and the seconds.
fn six_parts(types: &[DataType]) -> Option<Vec<DataType>> {
    let (second, rest) = types.split_last()?;
    if rest.len() != 5 || !rest.iter().all(is_whole) || !is_number(second) {
        return None;
    }
    let mut types = vec![DataType::Int64; 5];
    types.push(DataType::Float64);
    Some(types)
}

/// Local times built from their parts.
fn locals(arguments: &[ArrayRef]) -> Result<Int64Array> {
    let parts: Vec<Int64Array> = arguments[..5].iter().map(wholes).collect::<Result<_>>()?;
    let seconds = doubles(&arguments[5])?;
    let time = |row: usize| {
        if seconds.is_null(row) || parts.iter().any(|part| part.is_null(row)) {
            return Ok(None);
        }
        let part = |position: usize| parts[position].value(row);
        let invalid = |field: &str, text: String| {
            SqlError::new("22008", format!("{field} field value out of range: {text}"))
        };
        let days = day(part(0), part(1), part(2))
            .ok_or_else(|| invalid("date", format!("{}-{:02}-{:02}", part(0), part(1), part(2))))?;
        let second = seconds.value(row);
        let clock = clock(part(3), part(4), second)
            .ok_or_else(|| invalid("time", format!("{}:{:02}:{second:02}", part(3), part(4))))?;
        let micros = days.checked_mul(MICROS_PER_DAY).and_then(|day| day.checked_add(clock));
        micros.map(Some).ok_or_else(|| out_of_range("timestamp"))
    };
    Ok((0..seconds.len()).map(time).collect::<Result<Int64Array, SqlError>>()?)
}

static MAKE_TIMESTAMP: Plain = Plain {
    name: "make_timestamp",
    takes: six_parts,
    gives: |_| TIME,
    run: |arguments| Ok(cast(&locals(arguments)?, &TIME)?),
};

/// `make_timestamptz(.., zone)`: the frontend appends the session's zone where a statement omits it.
static MAKE_TIMESTAMPTZ: Plain = Plain {
    name: "make_timestamptz",
    takes: |types| match types.split_last()? {
        (zone, parts) if types.len() == 7 && is_text(zone) => {
            let mut coerced = six_parts(parts)?;
            coerced.push(DataType::Utf8);
            Some(coerced)
        }
        _ => six_parts(types),
    },
    gives: |_| instants(),
    run: |arguments| {
        let locals = locals(arguments)?;
        let zones = arguments.get(6).map(texts).transpose()?;
        let instant = |(row, local): (usize, Option<i64>)| {
            let zone = match &zones {
                Some(zones) if zones.is_null(row) => return Ok(None),
                Some(zones) => {
                    let name = zones.value(row);
                    Zone::named(name).ok_or_else(|| {
                        let message = format!("time zone \"{name}\" not recognized");
                        SqlError::new(INVALID_PARAMETER_VALUE, message)
                    })?
                }
                None => Zone::UTC,
            };
            let Some(local) = local else { return Ok(None) };
            let offset = zone.offset_of_local(local.div_euclid(MICROS_PER_SECOND));
            let instant = local.checked_sub(offset * MICROS_PER_SECOND);
            instant.map(Some).ok_or_else(|| out_of_range("timestamp"))
        };
        let instants = locals.iter().enumerate().map(instant);
        let instants = instants.collect::<Result<TimestampMicrosecondArray, SqlError>>()?;
        Ok(Arc::new(instants.with_timezone("UTC")))
    },
};

/// Years, months, weeks, days, hours, minutes and seconds; omitted ones are 0.
static MAKE_INTERVAL: Plain = Plain {
    name: "make_interval",
    takes: |types| {
        if types.len() > 7
            || !types.iter().take(6).all(is_whole)
            || !types.iter().skip(6).all(is_number)
        {
            return None;
        }
        let coerced = (0..types.len())
            .map(|position| if position < 6 { DataType::Int32 } else { DataType::Float64 });
        Some(coerced.collect())
    },
    gives: span,
    run: |arguments| {
        let rows = arguments.first().map_or(1, |part| part.len());
        let whole = arguments.iter().take(6).map(|part| part.as_primitive::<Int32Type>());
        let whole: Vec<_> = whole.collect();
        let seconds = arguments.get(6).map(doubles).transpose()?;
        let interval = |row: usize| {
            if arguments.iter().any(|part| part.is_null(row)) {
                return Ok(None);
            }
            let part =
                |position: usize| whole.get(position).map_or(0, |part| i64::from(part.value(row)));
            let second = seconds.as_ref().map_or(0.0, |seconds| seconds.value(row));
            let nanos = (second * 1e6).round_ties_even() * 1e3;
            if !nanos.is_finite() || nanos.abs() > 9e18 {
                return Err(out_of_range("interval"));
            }
            #[expect(clippy::cast_possible_truncation, reason = "checked above")]
            let nanos = nanos as i64;
            let months = i32::try_from(part(0) * 12 + part(1));
            let days = i32::try_from(part(2) * 7 + part(3));
            let clock = (part(4) * 60 + part(5)) * 60;
            let nanos = clock.checked_mul(1_000_000_000).and_then(|clock| clock.checked_add(nanos));
            match (months, days, nanos) {
                (Ok(months), Ok(days), Some(nanos)) => {
                    Ok(Some(IntervalMonthDayNano::new(months, days, nanos)))
                }
                _ => Err(out_of_range("interval")),
            }
        };
        let intervals = (0..rows).map(interval);
        Ok(Arc::new(intervals.collect::<Result<IntervalMonthDayNanoArray, SqlError>>()?))
    },
};

/// `isfinite`: always true, because there are no infinite times here.
static IS_FINITE: Plain = Plain {
    name: "isfinite",
    takes: |types| match types {
        [
            DataType::Timestamp(..)
            | DataType::Date32
            | DataType::Interval(_)
            | DataType::Duration(_),
        ] => Some(types.to_vec()),
        _ => None,
    },
    gives: |_| DataType::Boolean,
    run: |arguments| {
        let trues = arrow::buffer::BooleanBuffer::new_set(arguments[0].len());
        Ok(Arc::new(arrow::array::BooleanArray::new(trues, arguments[0].logical_nulls())))
    },
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moments::{Moment, ticks};

    fn at(text: &str) -> i64 {
        ticks(Moment::parse(text).unwrap().instant(Zone::UTC), TimeUnit::Microsecond).unwrap()
    }

    #[test]
    fn ages_are_in_units_of_the_calendar() {
        for (later, earlier, months, days, hours) in [
            ("2001-04-10", "1957-06-13", 525, 27, 0),
            ("2024-03-31", "2024-02-29", 1, 2, 0),
            ("2024-01-01", "2024-02-01 12:00", -1, 0, -12),
            ("2024-03-01", "2023-02-28", 12, 1, 0),
            ("2024-01-01", "2023-01-01 12:00", 11, 30, 12),
        ] {
            let expected = IntervalMonthDayNano::new(months, days, hours * 3_600_000_000_000);
            assert_eq!(age(at(later), at(earlier)), expected, "{later} {earlier}");
        }
    }

    #[test]
    fn spans_are_justified() {
        let span = |months, days, hours: i64| {
            IntervalMonthDayNano::new(months, days, hours * 3_600_000_000_000)
        };
        assert_eq!(justify_days(span(0, 35, 0)), Some(span(1, 5, 0)));
        assert_eq!(justify_days(span(0, -35, 0)), Some(span(-1, -5, 0)));
        assert_eq!(justify_hours(span(0, 0, 27)), Some(span(0, 1, 3)));
        assert_eq!(justify_interval(span(1, 0, -1)), Some(span(0, 29, 23)));
        assert_eq!(justify_interval(span(0, 33, 25)), Some(span(1, 4, 1)));
    }

    #[test]
    fn dates_and_clocks_are_checked() {
        assert_eq!(day(2013, 2, 30), None);
        assert_eq!(day(0, 1, 1), None);
        assert_eq!(day(-44, 3, 15), Some(day_of(-43, 3, 15)));
        assert_eq!(clock(8, 15, 23.5), Some(29_723_500_000));
        assert_eq!(clock(25, 0, 0.0), None);
        assert_eq!(clock(24, 0, 0.0), Some(MICROS_PER_DAY));
    }
}
