//! Times, and spans between them, from their parts: `make_date` and its like, `age`, `justify_days` and its like.
//!
//! Invariants, as in PostgreSQL: a month is 30 days and a day 24 hours where spans are justified; the age of two times is
//! in years, months and days of the calendar; `age` with one time looks back from the midnight of today, which the
//! frontend writes as the other.

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
/// The last year that PostgreSQL has dates of.
const YEAR_MAX: i64 = 5_874_897;

/// The functions.
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

fn out_of_range(what: &str) -> SqlError {
    SqlError::new("22008", format!("{what} out of range"))
}

static AGE: Plain = Plain {
    name: "age",
    takes: |of| match of {
        [left, right] => {
            let time = |of: &DataType| {
                matches!(of, DataType::Timestamp(..) | DataType::Date32 | DataType::Date64)
                    || is_text(of)
            };
            // Both are times of the calendar of the session's zone (`frontend/src/zoned.rs`).
            (time(left) && time(right)).then(|| vec![TIME, TIME])
        }
        _ => None,
    },
    gives: span,
    run: |of| {
        let (later, earlier) = (
            of[0].as_primitive::<TimestampMicrosecondType>(),
            of[1].as_primitive::<TimestampMicrosecondType>(),
        );
        let ages = later.iter().zip(earlier).map(|(later, earlier)| Some(age(later?, earlier?)));
        Ok(Arc::new(ages.collect::<IntervalMonthDayNanoArray>()))
    },
};

/// Years, months, days and microseconds of a day between two times.
fn age(later: i64, earlier: i64) -> IntervalMonthDayNano {
    if later < earlier {
        let back = age(earlier, later);
        return IntervalMonthDayNano::new(-back.months, -back.days, -back.nanoseconds);
    }
    let parts = |micros: i64| {
        let (year, month, day) = date_of(micros.div_euclid(MICROS_PER_DAY));
        (year * 12 + month - 1, day, micros.rem_euclid(MICROS_PER_DAY))
    };
    let (later, earlier) = (parts(later), parts(earlier));
    let (mut months, mut days, mut micros) =
        (later.0 - earlier.0, later.1 - earlier.1, later.2 - earlier.2);
    if micros < 0 {
        micros += MICROS_PER_DAY;
        days -= 1;
    }
    if days < 0 {
        // The days of the month in which the earlier time lies.
        let (year, month) = (earlier.0.div_euclid(12), earlier.0.rem_euclid(12) + 1);
        days += day_of(year + month / 12, month % 12 + 1, 1) - day_of(year, month, 1);
        months -= 1;
    }
    let narrow = |number: i64| i32::try_from(number).unwrap_or(i32::MAX);
    IntervalMonthDayNano::new(narrow(months), narrow(days), micros * 1_000)
}

fn one_span(of: &[DataType]) -> Option<Vec<DataType>> {
    let is_span =
        |of: &DataType| matches!(of, DataType::Interval(_) | DataType::Duration(_)) || is_text(of);
    crate::plain::all(of, 1, is_span, &SPAN)
}

fn justified(
    of: &[ArrayRef],
    justify: fn(IntervalMonthDayNano) -> Option<IntervalMonthDayNano>,
) -> Result<ArrayRef> {
    let spans = cast(&of[0], &SPAN)?;
    let made = spans.as_primitive::<IntervalMonthDayNanoType>().iter().map(|span| {
        span.map(|span| justify(span).ok_or_else(|| out_of_range("interval"))).transpose()
    });
    Ok(Arc::new(made.collect::<Result<IntervalMonthDayNanoArray, SqlError>>()?))
}

static JUSTIFY_DAYS: Plain = Plain {
    name: "justify_days",
    takes: one_span,
    gives: span,
    run: |of| justified(of, justify_days),
};

static JUSTIFY_HOURS: Plain = Plain {
    name: "justify_hours",
    takes: one_span,
    gives: span,
    run: |of| justified(of, justify_hours),
};

static JUSTIFY_INTERVAL: Plain = Plain {
    name: "justify_interval",
    takes: one_span,
    gives: span,
    run: |of| justified(of, justify_interval),
};

const NANOS_PER_DAY: i64 = MICROS_PER_DAY * 1_000;

fn justify_days(of: IntervalMonthDayNano) -> Option<IntervalMonthDayNano> {
    let (mut months, mut days) =
        (of.months.checked_add(of.days / DAYS_PER_MONTH)?, of.days % DAYS_PER_MONTH);
    if months > 0 && days < 0 {
        (months, days) = (months - 1, days + DAYS_PER_MONTH);
    } else if months < 0 && days > 0 {
        (months, days) = (months + 1, days - DAYS_PER_MONTH);
    }
    Some(IntervalMonthDayNano::new(months, days, of.nanoseconds))
}

fn justify_hours(of: IntervalMonthDayNano) -> Option<IntervalMonthDayNano> {
    let whole = i32::try_from(of.nanoseconds / NANOS_PER_DAY).ok()?;
    let (mut days, mut nanos) = (of.days.checked_add(whole)?, of.nanoseconds % NANOS_PER_DAY);
    if days > 0 && nanos < 0 {
        (days, nanos) = (days - 1, nanos + NANOS_PER_DAY);
    } else if days < 0 && nanos > 0 {
        (days, nanos) = (days + 1, nanos - NANOS_PER_DAY);
    }
    Some(IntervalMonthDayNano::new(of.months, days, nanos))
}

fn justify_interval(of: IntervalMonthDayNano) -> Option<IntervalMonthDayNano> {
    let whole = i32::try_from(of.nanoseconds / NANOS_PER_DAY).ok()?;
    let days = of.days.checked_add(whole)?;
    let mut nanos = of.nanoseconds % NANOS_PER_DAY;
    let mut months = of.months.checked_add(days / DAYS_PER_MONTH)?;
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

/// The day of a date of PostgreSQL's, in which the year before 1 is -1.
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

/// The microseconds of a time of day; the last may be 24:00, and a second 60.
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
    takes: |of| crate::plain::all(of, 3, is_whole, &DataType::Int64),
    gives: |_| DataType::Date32,
    run: |of| {
        let [years, months, days] = [wholes(&of[0])?, wholes(&of[1])?, wholes(&of[2])?];
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
    takes: |of| match of {
        [hour, minute, second] if is_whole(hour) && is_whole(minute) && is_number(second) => {
            Some(vec![DataType::Int64, DataType::Int64, DataType::Float64])
        }
        _ => None,
    },
    gives: |_| DataType::Time64(TimeUnit::Microsecond),
    run: |of| {
        let [hours, minutes] = [wholes(&of[0])?, wholes(&of[1])?];
        let seconds = doubles(&of[2])?;
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

/// Five whole numbers and the seconds.
fn six_parts(of: &[DataType]) -> Option<Vec<DataType>> {
    let (second, rest) = of.split_last()?;
    if rest.len() != 5 || !rest.iter().all(is_whole) || !is_number(second) {
        return None;
    }
    let mut types = vec![DataType::Int64; 5];
    types.push(DataType::Float64);
    Some(types)
}

/// Times of their parts, without a zone.
fn locals(of: &[ArrayRef]) -> Result<Int64Array> {
    let parts: Vec<Int64Array> = of[..5].iter().map(wholes).collect::<Result<_>>()?;
    let seconds = doubles(&of[5])?;
    let time = |row: usize| {
        if seconds.is_null(row) || parts.iter().any(|part| part.is_null(row)) {
            return Ok(None);
        }
        let part = |at: usize| parts[at].value(row);
        let invalid = |what: &str, text: String| {
            SqlError::new("22008", format!("{what} field value out of range: {text}"))
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
    run: |of| Ok(cast(&locals(of)?, &TIME)?),
};

/// The last argument is the zone; the frontend adds that of the session where a statement says none.
static MAKE_TIMESTAMPTZ: Plain = Plain {
    name: "make_timestamptz",
    takes: |of| match of.split_last()? {
        (zone, parts) if of.len() == 7 && is_text(zone) => {
            let mut types = six_parts(parts)?;
            types.push(DataType::Utf8);
            Some(types)
        }
        _ => six_parts(of),
    },
    gives: |_| instants(),
    run: |of| {
        let locals = locals(of)?;
        let zones = of.get(6).map(texts).transpose()?;
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

/// Years, months, weeks, days, hours, minutes and seconds; those that a call leaves out are 0.
static MAKE_INTERVAL: Plain = Plain {
    name: "make_interval",
    takes: |of| {
        if of.len() > 7 || !of.iter().take(6).all(is_whole) || !of.iter().skip(6).all(is_number) {
            return None;
        }
        let types = (0..of.len())
            .map(|position| if position < 6 { DataType::Int32 } else { DataType::Float64 });
        Some(types.collect())
    },
    gives: span,
    run: |of| {
        let rows = of.first().map_or(1, |part| part.len());
        let whole = of.iter().take(6).map(|part| part.as_primitive::<Int32Type>());
        let whole: Vec<_> = whole.collect();
        let seconds = of.get(6).map(doubles).transpose()?;
        let interval = |row: usize| {
            if of.iter().any(|part| part.is_null(row)) {
                return Ok(None);
            }
            let part = |at: usize| whole.get(at).map_or(0, |part| i64::from(part.value(row)));
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
        let made = (0..rows).map(interval);
        Ok(Arc::new(made.collect::<Result<IntervalMonthDayNanoArray, SqlError>>()?))
    },
};

/// Every time here is: there is no infinite one.
static IS_FINITE: Plain = Plain {
    name: "isfinite",
    takes: |of| match of {
        [
            DataType::Timestamp(..)
            | DataType::Date32
            | DataType::Interval(_)
            | DataType::Duration(_),
        ] => Some(of.to_vec()),
        _ => None,
    },
    gives: |_| DataType::Boolean,
    run: |of| {
        let all = arrow::buffer::BooleanBuffer::new_set(of[0].len());
        Ok(Arc::new(arrow::array::BooleanArray::new(all, of[0].logical_nulls())))
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
