//! Days and seconds as PostgreSQL writes dates and times (ISO), in the session's time zone.

use std::fmt::Write;
use std::str::FromStr;

use arrow::array::timezone::Tz;
use arrow::datatypes::TimeUnit;
use bytes::BytesMut;
use chrono::{DateTime, Offset, TimeZone};

const SECONDS_PER_DAY: i64 = 86_400;
/// From 1970-01-01 to 2000-01-01, from where PostgreSQL counts.
pub(crate) const EPOCH_DAYS: i32 = 10_957;
/// The same in microseconds.
pub(crate) const EPOCH_MICROS: i64 = 10_957 * SECONDS_PER_DAY * 1_000_000;

/// The time zone that timestamps with a time zone are shown in.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Zone {
    Utc,
    Named(Tz),
}

impl Zone {
    /// The zone of that name; UTC when there is none, as the session has checked what it was set to.
    pub(crate) fn new(name: &str) -> Self {
        if ["utc", "gmt", "etc/utc", "z"].contains(&name.to_ascii_lowercase().as_str()) {
            return Self::Utc;
        }
        Tz::from_str(name).map_or(Self::Utc, Self::Named)
    }

    /// The zone's distance from UTC at a moment, in seconds.
    fn offset(self, seconds: i64) -> i64 {
        match self {
            Self::Utc => 0,
            Self::Named(zone) => DateTime::from_timestamp(seconds, 0).map_or(0, |at| {
                zone.offset_from_utc_datetime(&at.naive_utc()).fix().local_minus_utc().into()
            }),
        }
    }

    /// The zone's name, as Arrow writes it in types.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Utc => "UTC".to_owned(),
            Self::Named(zone) => zone.to_string(),
        }
    }
}

/// Ticks in a second.
pub(crate) const fn per_second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

/// Year, month and day of a day counted from 1970-01-01 (the proleptic Gregorian calendar; the
/// year begins in March, so that the leap day is the last).
fn civil(days: i64) -> (i64, i64, i64) {
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

// Writing into a BytesMut cannot fail; it grows.
fn put(out: &mut BytesMut, text: std::fmt::Arguments<'_>) {
    let written = out.write_fmt(text);
    debug_assert!(written.is_ok(), "a buffer that grows takes everything");
}

/// A two-digit number.
fn two(out: &mut BytesMut, number: i64) {
    let digit = |value: i64| b'0' + u8::try_from(value.rem_euclid(10)).unwrap_or(0);
    out.extend_from_slice(&[digit(number / 10), digit(number)]);
}

/// The date without " BC"; whether that is to follow.
fn date_part(out: &mut BytesMut, days: i64) -> bool {
    let (year, month, day) = civil(days);
    let before = year <= 0;
    let year = if before { 1 - year } else { year };
    if year < 10_000 {
        two(out, year / 100);
        two(out, year % 100);
    } else {
        put(out, format_args!("{year}"));
    }
    out.extend_from_slice(b"-");
    two(out, month);
    out.extend_from_slice(b"-");
    two(out, day);
    before
}

fn clock_part(out: &mut BytesMut, second: i64, fraction: i64, unit: TimeUnit) {
    two(out, second / 3600);
    out.extend_from_slice(b":");
    two(out, second / 60 % 60);
    out.extend_from_slice(b":");
    two(out, second % 60);
    if fraction == 0 {
        return;
    }
    // Without zeros at the end, as PostgreSQL has it.
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
    put(out, format_args!(".{fraction:0digits$}"));
}

/// `YYYY-MM-DD`.
pub(crate) fn date(out: &mut BytesMut, days: i64) {
    if date_part(out, days) {
        out.extend_from_slice(b" BC");
    }
}

/// `HH:MM:SS`, and a fraction if there is one.
pub(crate) fn time(out: &mut BytesMut, ticks: i64, unit: TimeUnit) {
    clock_part(out, ticks.div_euclid(per_second(unit)), ticks.rem_euclid(per_second(unit)), unit);
}

/// `YYYY-MM-DD HH:MM:SS`, a fraction if there is one, and the zone's offset if there is a zone.
pub(crate) fn timestamp(out: &mut BytesMut, ticks: i64, unit: TimeUnit, zone: Option<Zone>) {
    let seconds = ticks.div_euclid(per_second(unit));
    let fraction = ticks.rem_euclid(per_second(unit));
    let offset = zone.map_or(0, |zone| zone.offset(seconds));
    let local = seconds.saturating_add(offset);
    let before = date_part(out, local.div_euclid(SECONDS_PER_DAY));
    out.extend_from_slice(b" ");
    clock_part(out, local.rem_euclid(SECONDS_PER_DAY), fraction, unit);
    if zone.is_some() {
        out.extend_from_slice(if offset < 0 { b"-" } else { b"+" });
        let offset = offset.abs();
        two(out, offset / 3600);
        if offset % 3600 != 0 {
            out.extend_from_slice(b":");
            two(out, offset / 60 % 60);
        }
        if offset % 60 != 0 {
            out.extend_from_slice(b":");
            two(out, offset % 60);
        }
    }
    if before {
        out.extend_from_slice(b" BC");
    }
}

/// An interval in PostgreSQL's own style: `1 year 2 mons 3 days 04:05:06.789`.
pub(crate) fn interval(out: &mut BytesMut, months: i32, days: i32, micros: i64) {
    let start = out.len();
    let mut part = |number: i32, one: &str, many: &str| {
        if number != 0 {
            let space = if out.len() > start { " " } else { "" };
            let name = if number == 1 { one } else { many };
            put(out, format_args!("{space}{number} {name}"));
        }
    };
    part(months / 12, "year", "years");
    part(months % 12, "mon", "mons");
    part(days, "day", "days");
    if micros != 0 || out.len() == start {
        if out.len() > start {
            out.extend_from_slice(b" ");
        }
        if micros < 0 {
            out.extend_from_slice(b"-");
        }
        let micros = micros.unsigned_abs();
        let (seconds, fraction) = (micros / 1_000_000, micros % 1_000_000);
        let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        put(out, format_args!("{hours:02}:{minutes:02}:{seconds:02}"));
        if fraction != 0 {
            let text = format!("{fraction:06}");
            put(out, format_args!(".{}", text.trim_end_matches('0')));
        }
    }
}
