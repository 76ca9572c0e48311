//! Schedules: the moments at which the windows of a task end.
//!
//! ```text
//! schedule = moments [offset duration]
//! moments  = every duration | minute hour day month weekday | @hourly | @daily | @weekly | @monthly | @yearly
//! duration = one or more numbers with a unit: s, m, h, d, w; such as 1h30m
//! ```
//!
//! All moments are in UTC. `every` counts from 1970-01-01, so that a schedule has the same moments whenever it was
//! made: `every 1h` has every full hour. In cron's fields there are `*`, numbers, lists, ranges and steps, and names of
//! months and days of the week; if both days are restricted, either suffices. The offset delays the run of a window and
//! not the window.
//!
//! Invariants:
//! - a schedule has infinitely many moments, at whole seconds;
//! - moments follow from the text alone: the same text has the same moments for ever.

use std::fmt;
use std::ops::RangeInclusive;

use crate::calendar::civil;
use crate::error::Error;

const SECOND_MS: i64 = 1_000;
const MINUTE_MS: i64 = 60 * SECOND_MS;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const DAY_MS: i64 = 24 * HOUR_MS;
const MINUTES_PER_DAY: i64 = 24 * 60;
/// Days within which a cron schedule must have a moment: leap days may be eight years apart.
const DAYS_MAX: i64 = 8 * 366;
/// Maximum interval and offset.
const INTERVAL_MS_MAX: i64 = 366 * DAY_MS;
const OFFSET_MS_MAX: i64 = 7 * DAY_MS;
/// Maximum bytes of a schedule's text.
const TEXT_BYTES_MAX: usize = 256;

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// Moments at which the windows of a task end, and the delay of its runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    text: String,
    moments: Moments,
    offset_ms: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Moments {
    /// Multiples of an interval in milliseconds.
    Every(i64),
    Cron(Cron),
}

/// Sets of numbers, as bits.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cron {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// True if only days that are in both sets count; otherwise days in either.
    needs_both_days: bool,
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Schedule {
    /// Parses a schedule, without regard to case.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for a text that is no schedule, or that has no moment.
    pub fn parse(text: &str) -> Result<Self, Error> {
        if text.len() > TEXT_BYTES_MAX {
            let message = format!("a schedule must have at most {TEXT_BYTES_MAX} bytes");
            return Err(Error::InvalidInput(message));
        }
        let invalid = |reason: &str| Error::InvalidInput(format!("schedule \"{text}\": {reason}"));
        let lower = text.to_ascii_lowercase();
        let words: Vec<&str> = lower.split_ascii_whitespace().collect();
        let (words, offset_ms) = match words.as_slice() {
            [words @ .., "offset", offset] => {
                let offset_ms = duration_ms(offset).filter(|offset| *offset <= OFFSET_MS_MAX);
                let reason = "the offset must be a duration of at most 7d";
                (words, offset_ms.ok_or_else(|| invalid(reason))?)
            }
            words => (words, 0),
        };
        let moments = match words {
            ["every", interval] => {
                let interval = duration_ms(interval)
                    .filter(|interval| (SECOND_MS..=INTERVAL_MS_MAX).contains(interval));
                let reason = "the interval must be a duration from 1s to 366d";
                Moments::Every(interval.ok_or_else(|| invalid(reason))?)
            }
            ["@hourly"] => Moments::Cron(Cron::hourly()),
            ["@daily" | "@midnight"] => Moments::Cron(Cron { hours: 1, ..Cron::hourly() }),
            ["@weekly"] => Moments::Cron(Cron { hours: 1, weekdays: 1, ..Cron::hourly() }),
            ["@monthly"] => Moments::Cron(Cron { hours: 1, days: 0b10, ..Cron::hourly() }),
            ["@yearly" | "@annually"] => {
                Moments::Cron(Cron { hours: 1, days: 0b10, months: 0b10, ..Cron::hourly() })
            }
            [minute, hour, day, month, weekday] => {
                let cron = Cron::parse(minute, hour, day, month, weekday);
                Moments::Cron(cron.ok_or_else(|| invalid("a field of it is not valid in cron"))?)
            }
            _ => {
                return Err(invalid(
                    "it must be \"every\" and a duration, or the five fields of cron, such as \
                     \"every 5m offset 10s\" or \"0 3 * * *\"",
                ));
            }
        };
        let mut line = words.join(" ");
        if offset_ms > 0 {
            line = format!("{line} offset {}", shown_duration(offset_ms));
        }
        let schedule = Self { text: line, moments, offset_ms };
        if schedule.after(0).is_none() {
            return Err(invalid("there is no such day"));
        }
        Ok(schedule)
    }

    /// Time from the end of a window to its run, in milliseconds.
    #[must_use]
    pub fn offset_ms(&self) -> i64 {
        self.offset_ms
    }

    /// The last moment at or before a time, in milliseconds since 1970; `None` beyond the range of 64 bits.
    #[must_use]
    pub fn at_or_before(&self, time_ms: i64) -> Option<i64> {
        match &self.moments {
            Moments::Every(interval) => time_ms.checked_sub(time_ms.rem_euclid(*interval)),
            Moments::Cron(cron) => {
                let (today, minute) = day_and_minute(time_ms);
                let mut distances = 0..DAYS_MAX;
                distances.find_map(|distance| {
                    let day = Some(today - distance).filter(|day| cron.has_day(*day))?;
                    let last = if distance == 0 { minute } else { MINUTES_PER_DAY - 1 };
                    let minute = (0..=last).rev().find(|minute| cron.has_minute(*minute))?;
                    moment_ms(day, minute)
                })
            }
        }
    }

    /// The first moment after a time, in milliseconds since 1970; `None` beyond the range of 64 bits.
    #[must_use]
    pub fn after(&self, time_ms: i64) -> Option<i64> {
        match &self.moments {
            Moments::Every(interval) => self.at_or_before(time_ms)?.checked_add(*interval),
            Moments::Cron(cron) => {
                let (today, minute) = day_and_minute(time_ms);
                let mut distances = 0..DAYS_MAX;
                distances.find_map(|distance| {
                    let day = Some(today + distance).filter(|day| cron.has_day(*day))?;
                    let first = if distance == 0 { minute + 1 } else { 0 };
                    let mut minutes = first..MINUTES_PER_DAY;
                    let minute = minutes.find(|minute| cron.has_minute(*minute))?;
                    moment_ms(day, minute)
                })
            }
        }
    }
}

fn day_and_minute(time_ms: i64) -> (i64, i64) {
    (time_ms.div_euclid(DAY_MS), time_ms.rem_euclid(DAY_MS) / MINUTE_MS)
}

fn moment_ms(day: i64, minute: i64) -> Option<i64> {
    day.checked_mul(DAY_MS)?.checked_add(minute * MINUTE_MS)
}

impl Cron {
    /// The first minute of every hour.
    fn hourly() -> Self {
        Self {
            minutes: 1,
            hours: u64::MAX,
            days: u64::MAX,
            months: u64::MAX,
            weekdays: u64::MAX,
            needs_both_days: true,
        }
    }

    fn parse(minute: &str, hour: &str, day: &str, month: &str, weekday: &str) -> Option<Self> {
        let weekdays = set(weekday, 0..=7, &WEEKDAYS)?;
        Some(Self {
            minutes: set(minute, 0..=59, &[])?,
            hours: set(hour, 0..=23, &[])?,
            days: set(day, 1..=31, &[])?,
            months: set(month, 1..=12, &MONTHS)?,
            // Sunday is 0 and 7.
            weekdays: weekdays | (weekdays >> 7),
            needs_both_days: day.starts_with('*') || weekday.starts_with('*'),
        })
    }

    fn has_minute(&self, minute: i64) -> bool {
        contains(self.hours, minute / 60) && contains(self.minutes, minute % 60)
    }

    fn has_day(&self, days: i64) -> bool {
        let (_, month, day) = civil(days);
        // 1970-01-01 was a Thursday.
        let weekday = (days + 4).rem_euclid(7);
        let (by_day, by_weekday) = (contains(self.days, day), contains(self.weekdays, weekday));
        let is_day = if self.needs_both_days { by_day && by_weekday } else { by_day || by_weekday };
        contains(self.months, month) && is_day
    }
}

fn contains(set: u64, number: i64) -> bool {
    u32::try_from(number)
        .is_ok_and(|number| set.checked_shr(number).is_some_and(|bits| bits & 1 == 1))
}

/// Parses a field of cron: items between commas, each `*`, a number or a range, perhaps with a step.
fn set(text: &str, range: RangeInclusive<u32>, names: &[&str]) -> Option<u64> {
    let number = |text: &str| {
        let entry = names.iter().zip(*range.start()..).find(|(name, _)| **name == text);
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let parsed = if is_number { text.parse().ok() } else { None };
        entry.map(|(_, number)| number).or(parsed).filter(|number| range.contains(number))
    };
    let mut numbers = 0;
    for item in text.split(',') {
        let (span, step) = match item.split_once('/') {
            Some((span, step)) => {
                (span, Some(step.parse::<usize>().ok().filter(|step| *step > 0)?))
            }
            None => (item, None),
        };
        let (first, last) = match span.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None if span == "*" => (*range.start(), *range.end()),
            None => {
                let first = number(span)?;
                (first, if step.is_some() { *range.end() } else { first })
            }
        };
        if first > last {
            return None;
        }
        for number in (first..=last).step_by(step.unwrap_or(1)) {
            numbers |= 1 << number;
        }
    }
    Some(numbers)
}

/// Parses a duration such as `1h30m`.
fn duration_ms(text: &str) -> Option<i64> {
    let mut total: i64 = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: i64 = rest[..end].parse().ok()?;
        let unit = rest[end..].chars().next()?;
        let (_, unit_ms) = UNITS.iter().find(|(name, _)| *name == unit)?;
        total = total.checked_add(number.checked_mul(*unit_ms)?)?;
        rest = &rest[end + unit.len_utf8()..];
    }
    Some(total).filter(|_| !text.is_empty())
}

/// Units of durations, longest first.
const UNITS: [(char, i64); 5] =
    [('w', 7 * DAY_MS), ('d', DAY_MS), ('h', HOUR_MS), ('m', MINUTE_MS), ('s', SECOND_MS)];

/// A duration of whole seconds, as [`duration_ms`] reads it.
fn shown_duration(duration: i64) -> String {
    let mut rest = duration;
    let mut text = String::new();
    for (unit, unit_ms) in UNITS {
        let count = rest / unit_ms;
        rest %= unit_ms;
        if count > 0 {
            text.push_str(&format!("{count}{unit}"));
        }
    }
    text
}
