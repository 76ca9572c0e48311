//! Keys of time buckets, for row keys that hold all events of a minute, an hour, a day, a week, a month or a year.
//!
//! | bucket | key | begins |
//! |---|---|---|
//! | year | `2026` | 2026-01-01 00:00 |
//! | month | `2026-11` | 2026-11-01 00:00 |
//! | week | `2026-W48` | on a Monday, 2026-11-23 00:00; the years and weeks of ISO 8601 |
//! | day | `2026-11-28` | 2026-11-28 00:00 |
//! | hour | `2026-11-28T07` | 2026-11-28 07:00 |
//! | minute | `2026-11-28T07:55` | 2026-11-28 07:55 |
//!
//! Invariants: keys of one kind are in the order of time; a key names its kind, so `bucket_start` and `bucket_end` need
//! no other argument, and the bucket with a key is exactly the times from the one up to the other.

use std::sync::Arc;

use arrow::array::{Array, AsArray, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, TimeUnit, TimestampMicrosecondType};
use datafusion::error::Result;
use datafusion::logical_expr::ScalarUDF;

use crate::civil::{date_of, day_of};
use crate::error::{INVALID_PARAMETER_VALUE, SqlError};
use crate::plain::{Plain, is_text, texts};

const MICROS_PER_MINUTE: i64 = 60_000_000;
const MICROS_PER_HOUR: i64 = 60 * MICROS_PER_MINUTE;
const MICROS_PER_DAY: i64 = 24 * MICROS_PER_HOUR;
const TIME: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);
/// SQLSTATE of a time that has no key: its year has not four digits.
const OUT_OF_RANGE: &str = "22008";
/// SQLSTATE of a text that is no key.
const INVALID_DATETIME: &str = "22007";

/// The functions to register.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    [&BUCKET_KEY, &BUCKET_START, &BUCKET_END].into_iter().map(Plain::function)
}

/// Kind of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bucket {
    Year,
    Month,
    Week,
    Day,
    Hour,
    Minute,
}

/// Kinds by name.
const BUCKETS: [(&str, Bucket); 6] = [
    ("minute", Bucket::Minute),
    ("hour", Bucket::Hour),
    ("day", Bucket::Day),
    ("week", Bucket::Week),
    ("month", Bucket::Month),
    ("year", Bucket::Year),
];

impl Bucket {
    fn named(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        BUCKETS.iter().find(|(candidate, _)| *candidate == name).map(|(_, bucket)| *bucket)
    }

    /// Key of the bucket of a time, in microseconds since 1970; `None` for years of other than four digits.
    fn key(self, time: i64) -> Option<String> {
        let days = time.div_euclid(MICROS_PER_DAY);
        let (year, month, day) = date_of(days);
        let minutes = time.rem_euclid(MICROS_PER_DAY) / MICROS_PER_MINUTE;
        let (hour, minute) = (minutes / 60, minutes % 60);
        let (week_year, week) = week_of(days);
        let year = if self == Self::Week { week_year } else { year };
        if !(0..=9999).contains(&year) {
            return None;
        }
        Some(match self {
            Self::Year => format!("{year:04}"),
            Self::Month => format!("{year:04}-{month:02}"),
            Self::Week => format!("{year:04}-W{week:02}"),
            Self::Day => format!("{year:04}-{month:02}-{day:02}"),
            Self::Hour => format!("{year:04}-{month:02}-{day:02}T{hour:02}"),
            Self::Minute => format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}"),
        })
    }

    /// End of a bucket that begins at a time: the beginning of the next one.
    fn end(self, start: i64) -> i64 {
        let (year, month, _) = date_of(start.div_euclid(MICROS_PER_DAY));
        match self {
            Self::Year => day_of(year + 1, 1, 1) * MICROS_PER_DAY,
            Self::Month if month == 12 => day_of(year + 1, 1, 1) * MICROS_PER_DAY,
            Self::Month => day_of(year, month + 1, 1) * MICROS_PER_DAY,
            Self::Week => start + 7 * MICROS_PER_DAY,
            Self::Day => start + MICROS_PER_DAY,
            Self::Hour => start + MICROS_PER_HOUR,
            Self::Minute => start + MICROS_PER_MINUTE,
        }
    }
}

/// Days since Monday.
fn weekday(days: i64) -> i64 {
    // 1970-01-01 was a Thursday.
    (days + 3).rem_euclid(7)
}

/// Year and number of the week of a day: the year of its Thursday, and the Thursdays of that year up to it.
fn week_of(days: i64) -> (i64, i64) {
    let thursday = days - weekday(days) + 3;
    let (year, _, _) = date_of(thursday);
    (year, (thursday - day_of(year, 1, 1)) / 7 + 1)
}

/// First day of a week.
fn first_of_week(year: i64, week: i64) -> i64 {
    // The fourth of January is always in the first week.
    let fourth = day_of(year, 1, 4);
    fourth - weekday(fourth) + (week - 1) * 7
}

/// Kind and beginning of the bucket with a key; `None` if the text is no key.
fn bucket_of(key: &str) -> Option<(Bucket, i64)> {
    let (bucket, start) = match key.split_once("-W") {
        Some((year, week)) => {
            (Bucket::Week, first_of_week(number(year, 4)?, number(week, 2)?) * MICROS_PER_DAY)
        }
        None => dated(key)?,
    };
    // Dates and times that do not exist have another key.
    (bucket.key(start)? == key).then_some((bucket, start))
}

/// Kind and beginning of a bucket whose key is the beginning of a date and time.
fn dated(key: &str) -> Option<(Bucket, i64)> {
    let (date, time) = key.split_once('T').map_or((key, None), |(date, time)| (date, Some(time)));
    let mut parts = date.split('-');
    let year = number(parts.next()?, 4)?;
    let month = parts.next().map(|month| number(month, 2));
    let day = parts.next().map(|day| number(day, 2));
    let start_of = |month: i64, day: i64| day_of(year, month, day) * MICROS_PER_DAY;
    let in_range = |month: i64, day: i64| (1..=12).contains(&month) && (1..=31).contains(&day);
    match (month, day, time, parts.next()) {
        (None, None, None, None) => Some((Bucket::Year, start_of(1, 1))),
        (Some(month), None, None, None) => {
            let month = month.filter(|month| in_range(*month, 1))?;
            Some((Bucket::Month, start_of(month, 1)))
        }
        (Some(month), Some(day), time, None) => {
            let (month, day) = month.zip(day).filter(|(month, day)| in_range(*month, *day))?;
            let start = start_of(month, day);
            let Some(time) = time else { return Some((Bucket::Day, start)) };
            match time.split_once(':') {
                None => Some((Bucket::Hour, start + number(time, 2)? * MICROS_PER_HOUR)),
                Some((hour, minute)) => {
                    let offset =
                        number(hour, 2)? * MICROS_PER_HOUR + number(minute, 2)? * MICROS_PER_MINUTE;
                    Some((Bucket::Minute, start + offset))
                }
            }
        }
        _ => None,
    }
}

/// A number of so many digits.
fn number(text: &str, digits: usize) -> Option<i64> {
    let is_number = text.len() == digits && text.bytes().all(|digit| digit.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

static BUCKET_KEY: Plain = Plain {
    name: "bucket_key",
    takes: |types| match types {
        [time, bucket]
            if matches!(time, DataType::Timestamp(..) | DataType::Date32) && is_text(bucket) =>
        {
            Some(vec![TIME, DataType::Utf8])
        }
        _ => None,
    },
    gives: |_| DataType::Utf8,
    run: |arguments| {
        let times = arguments[0].as_primitive::<TimestampMicrosecondType>();
        let buckets = texts(&arguments[1])?;
        let key = |row: usize| {
            if times.is_null(row) || buckets.is_null(row) {
                return Ok::<_, SqlError>(None);
            }
            let name = buckets.value(row);
            let bucket = Bucket::named(name).ok_or_else(|| {
                SqlError::new(INVALID_PARAMETER_VALUE, format!("there is no bucket \"{name}\""))
                    .with_hint("use minute, hour, day, week, month or year")
            })?;
            let key = bucket.key(times.value(row));
            key.map(Some).ok_or_else(|| SqlError::new(OUT_OF_RANGE, "timestamp out of range"))
        };
        let keys = (0..times.len()).map(key);
        Ok(Arc::new(keys.collect::<Result<StringArray, SqlError>>()?))
    },
};

static BUCKET_START: Plain = Plain {
    name: "bucket_start",
    takes: |types| crate::plain::all(types, 1, is_text, &DataType::Utf8),
    gives: |_| TIME,
    run: |arguments| Ok(Arc::new(times_of(&texts(&arguments[0])?, |_, start| start)?)),
};

static BUCKET_END: Plain = Plain {
    name: "bucket_end",
    takes: |types| crate::plain::all(types, 1, is_text, &DataType::Utf8),
    gives: |_| TIME,
    run: |arguments| Ok(Arc::new(times_of(&texts(&arguments[0])?, Bucket::end)?)),
};

/// A time of the bucket with each key.
fn times_of(
    keys: &StringArray,
    time: fn(Bucket, i64) -> i64,
) -> Result<TimestampMicrosecondArray, SqlError> {
    let time_of = |key: Option<&str>| {
        let Some(key) = key else { return Ok::<_, SqlError>(None) };
        let (bucket, start) = bucket_of(key).ok_or_else(|| {
            SqlError::new(INVALID_DATETIME, format!("\"{key}\" is not the key of a time bucket"))
        })?;
        Ok(Some(time(bucket, start)))
    };
    keys.iter().map(time_of).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(year: i64, month: i64, day: i64, minute: i64) -> i64 {
        day_of(year, month, day) * MICROS_PER_DAY + minute * MICROS_PER_MINUTE
    }

    #[test]
    fn keys_name_their_bucket() {
        let time = at(2026, 11, 28, 7 * 60 + 55);
        for (bucket, key, start) in [
            (Bucket::Year, "2026", at(2026, 1, 1, 0)),
            (Bucket::Month, "2026-11", at(2026, 11, 1, 0)),
            (Bucket::Week, "2026-W48", at(2026, 11, 23, 0)),
            (Bucket::Day, "2026-11-28", at(2026, 11, 28, 0)),
            (Bucket::Hour, "2026-11-28T07", at(2026, 11, 28, 420)),
            (Bucket::Minute, "2026-11-28T07:55", time),
        ] {
            assert_eq!(bucket.key(time + 1).as_deref(), Some(key));
            assert_eq!(bucket_of(key), Some((bucket, start)), "{key}");
        }
        // Weeks may begin and end in other years.
        assert_eq!(Bucket::Week.key(at(2021, 1, 3, 0)).as_deref(), Some("2020-W53"));
        assert_eq!(Bucket::Week.key(at(2024, 12, 30, 0)).as_deref(), Some("2025-W01"));
        assert_eq!(Bucket::Day.key(at(12_000, 1, 1, 0)), None);
    }

    #[test]
    fn other_texts_are_no_keys() {
        for text in [
            "",
            "26",
            "2026-",
            "2026-13",
            "2026-1",
            "2026-02-30",
            "2026-W54",
            "2026-W00",
            "2026-11-28T",
            "2026-11-28T24",
            "2026-11-28T07:60",
            "2026-11-28T07:5",
            "2026-11T07",
            "2026-11-28-1",
            "week1",
            "2026-11-28 07",
            "-026",
        ] {
            assert_eq!(bucket_of(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_bucket_is_the_times_from_its_start_to_its_end(
            time in at(0, 1, 10, 0)..at(9999, 12, 20, 0),
            later in 0_i64..40 * MICROS_PER_DAY,
            position in 0..6_usize,
        ) {
            let bucket = BUCKETS[position].1;
            let key = bucket.key(time).unwrap();
            let (found, start) = bucket_of(&key).unwrap();
            prop_assert_eq!(found, bucket);
            let end = bucket.end(start);
            prop_assert!(start <= time && time < end, "{}", key);
            prop_assert_eq!(bucket.key(start), Some(key.clone()));
            prop_assert_eq!(bucket.key(end - 1), Some(key.clone()));
            if let Some(other) = bucket.key(time + later) {
                prop_assert_eq!(other == key, time + later < end);
                prop_assert!(other >= key);
            }
        }
    }
}
