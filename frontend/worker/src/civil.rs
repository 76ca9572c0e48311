//! Days and seconds as PostgreSQL writes dates and times (ISO), in a time zone.

use std::fmt::Write;

use arrow::datatypes::TimeUnit;
use bytes::BytesMut;
use chrono::{DateTime, Utc};

use crate::zone::Zone;

const SECONDS_PER_DAY: i64 = 86_400;
/// Days from 1970-01-01 to 2000-01-01, PostgreSQL's epoch.
pub const EPOCH_DAYS: i32 = 10_957;
/// The same in microseconds.
pub const EPOCH_MICROS: i64 = 10_957 * SECONDS_PER_DAY * 1_000_000;

/// Ticks in a second.
pub const fn per_second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

/// Returns true if the calendar has a date for the time: from the year -262143 to 262142.
pub fn has_date(ticks: i64, unit: TimeUnit) -> bool {
    let (first, last) = (DateTime::<Utc>::MIN_UTC, DateTime::<Utc>::MAX_UTC);
    (first.timestamp()..=last.timestamp()).contains(&ticks.div_euclid(per_second(unit)))
}

/// Year, month and day of a day counted from 1970-01-01 (the proleptic Gregorian calendar; the
/// year begins in March, so that the leap day is the last). There is a year 0.
pub fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let cycle = days.div_euclid(146_097);
    let day = days.rem_euclid(146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (year + cycle * 400 + next, month, day)
}

/// The day of a date, counted from 1970-01-01: the inverse of [`date_of`].
pub fn day_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let cycle = year.div_euclid(400);
    let year = year.rem_euclid(400);
    let day_of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    cycle * 146_097 + year * 365 + year / 4 - year / 100 + day_of_year - 719_468
}

// Writing into a BytesMut cannot fail; it grows.
fn put(buffer: &mut BytesMut, text: std::fmt::Arguments<'_>) {
    let written = buffer.write_fmt(text);
    debug_assert!(written.is_ok(), "a buffer that grows takes everything");
}

/// A two-digit number.
fn two(buffer: &mut BytesMut, number: i64) {
    let digit = |value: i64| b'0' + u8::try_from(value.rem_euclid(10)).unwrap_or(0);
    buffer.extend_from_slice(&[digit(number / 10), digit(number)]);
}

/// Writes the date without " BC", and returns true if " BC" must follow.
fn date_part(buffer: &mut BytesMut, days: i64) -> bool {
    let (year, month, day) = date_of(days);
    let is_bc = year <= 0;
    let year = if is_bc { 1 - year } else { year };
    if year < 10_000 {
        two(buffer, year / 100);
        two(buffer, year % 100);
    } else {
        put(buffer, format_args!("{year}"));
    }
    buffer.extend_from_slice(b"-");
    two(buffer, month);
    buffer.extend_from_slice(b"-");
    two(buffer, day);
    is_bc
}

fn clock_part(buffer: &mut BytesMut, second: i64, fraction: i64, unit: TimeUnit) {
    two(buffer, second / 3600);
    buffer.extend_from_slice(b":");
    two(buffer, second / 60 % 60);
    buffer.extend_from_slice(b":");
    two(buffer, second % 60);
    if fraction == 0 {
        return;
    }
    // PostgreSQL writes fractions without trailing zeros.
    let mut fraction = fraction;
    let mut digits = match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => 9,
    };
    while fraction % 10 == 0 {
        fraction /= 10;
        digits -= 1;
    }
    put(buffer, format_args!(".{fraction:0digits$}"));
}

/// `YYYY-MM-DD`.
pub fn date(buffer: &mut BytesMut, days: i64) {
    if date_part(buffer, days) {
        buffer.extend_from_slice(b" BC");
    }
}

/// `HH:MM:SS`, and a fraction if there is one.
pub fn time(buffer: &mut BytesMut, ticks: i64, unit: TimeUnit) {
    clock_part(
        buffer,
        ticks.div_euclid(per_second(unit)),
        ticks.rem_euclid(per_second(unit)),
        unit,
    );
}

/// `YYYY-MM-DD HH:MM:SS`, a fraction if there is one, and the zone's offset if there is a zone.
pub fn timestamp(buffer: &mut BytesMut, ticks: i64, unit: TimeUnit, zone: Option<Zone>) {
    let seconds = ticks.div_euclid(per_second(unit));
    let fraction = ticks.rem_euclid(per_second(unit));
    let offset = zone.map_or(0, |zone| zone.offset_at(seconds));
    let local = seconds.saturating_add(offset);
    let is_bc = date_part(buffer, local.div_euclid(SECONDS_PER_DAY));
    buffer.extend_from_slice(b" ");
    clock_part(buffer, local.rem_euclid(SECONDS_PER_DAY), fraction, unit);
    if zone.is_some() {
        buffer.extend_from_slice(if offset < 0 { b"-" } else { b"+" });
        let offset = offset.abs();
        two(buffer, offset / 3600);
        if offset % 3600 != 0 {
            buffer.extend_from_slice(b":");
            two(buffer, offset / 60 % 60);
        }
        if offset % 60 != 0 {
            buffer.extend_from_slice(b":");
            two(buffer, offset % 60);
        }
    }
    if is_bc {
        buffer.extend_from_slice(b" BC");
    }
}

/// An interval in PostgreSQL's own style: `1 year 2 mons -3 days +04:05:06.789`. A positive part after a negative one
/// has a sign.
pub fn interval(buffer: &mut BytesMut, months: i32, days: i32, micros: i64) {
    let start = buffer.len();
    let mut is_before = false;
    let mut part = |number: i32, unit: &str| {
        if number != 0 {
            let space = if buffer.len() > start { " " } else { "" };
            let sign = if is_before && number > 0 { "+" } else { "" };
            let plural = if number == 1 { "" } else { "s" };
            put(buffer, format_args!("{space}{sign}{number} {unit}{plural}"));
            is_before = number < 0;
        }
    };
    // Years, months and days, without those that are zero.
    part(months / 12, "year");
    part(months % 12, "mon");
    part(days, "day");
    // The time of day, which an interval of zero has too.
    if micros != 0 || buffer.len() == start {
        if buffer.len() > start {
            buffer.extend_from_slice(b" ");
        }
        if micros < 0 {
            buffer.extend_from_slice(b"-");
        } else if is_before {
            buffer.extend_from_slice(b"+");
        }
        let micros = micros.unsigned_abs();
        let (seconds, fraction) = (micros / 1_000_000, micros % 1_000_000);
        let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        put(buffer, format_args!("{hours:02}:{minutes:02}:{seconds:02}"));
        // PostgreSQL writes fractions without trailing zeros.
        if fraction != 0 {
            let text = format!("{fraction:06}");
            put(buffer, format_args!(".{}", text.trim_end_matches('0')));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{date_of, day_of};

    #[test]
    fn a_day_has_the_date_that_it_is_of() {
        assert_eq!(date_of(0), (1970, 1, 1));
        assert_eq!(date_of(-719_162), (1, 1, 1));
        assert_eq!(date_of(11_016), (2000, 2, 29));
        for days in (-2_000_000..2_000_000).step_by(37) {
            let (year, month, day) = date_of(days);
            assert_eq!(day_of(year, month, day), days);
        }
    }
}
