//! Dates and timestamps as text, in UTC, in the proleptic Gregorian calendar.
//!
//! Invariants:
//! - every `i64` of ticks and every `i32` of days has a text, and parsing that text returns the same number;
//! - parsing never rounds: digits finer than a nanosecond are reported as a remainder, so that the caller can decide
//!   how to treat a bound between two ticks.
//!
//! Years that do not fit four digits are written with a sign, as ISO 8601 has it (`+10000-01-01`).

use crate::schema::Unit;

const SECONDS_PER_DAY: i64 = 86_400;
/// Years in a cycle of the calendar.
const CYCLE_YEARS: i64 = 400;
const CYCLE_DAYS: i64 = 146_097;
/// Days from 0000-03-01, the start of the cycles, to 1970-01-01.
const EPOCH_OFFSET_DAYS: i64 = 719_468;
/// Maximum digits of a year: enough for the years that 64 bits of seconds reach (292,277,026,596).
const YEAR_DIGITS_MAX: usize = 12;

/// A parsed point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    /// Seconds since 1970-01-01T00:00:00Z, rounded down.
    pub(crate) seconds: i128,
    /// Nanoseconds after that.
    pub(crate) nanos: u32,
    /// True if the text had nonzero digits below a nanosecond.
    pub(crate) finer: bool,
}

impl Moment {
    /// The tick at or before this moment; true if it is exactly the moment. `i128`, because a far year has no tick in
    /// 64 bits at a fine unit.
    pub(crate) fn ticks(self, unit: Unit) -> (i128, bool) {
        let nanos_per_tick = 1_000_000_000 / unit.per_second();
        let nanos = i64::from(self.nanos);
        let ticks =
            self.seconds * i128::from(unit.per_second()) + i128::from(nanos / nanos_per_tick);
        (ticks, nanos % nanos_per_tick == 0 && !self.finer)
    }

    /// The day at or before this moment; true if the moment is exactly its midnight.
    pub(crate) fn days(self) -> (i128, bool) {
        let day = i128::from(SECONDS_PER_DAY);
        let exact = self.seconds.rem_euclid(day) == 0 && self.nanos == 0 && !self.finer;
        (self.seconds.div_euclid(day), exact)
    }
}

/// Ticks at a day's midnight.
pub(crate) fn day_ticks(days: i32, unit: Unit) -> i128 {
    i128::from(days) * i128::from(SECONDS_PER_DAY) * i128::from(unit.per_second())
}

/// Formats days since 1970-01-01 as `YYYY-MM-DD`.
pub(crate) fn format_date(days: i64) -> String {
    let (year, month, day) = civil(days);
    if (0..=9999).contains(&year) {
        format!("{year:04}-{month:02}-{day:02}")
    } else {
        format!("{year:+05}-{month:02}-{day:02}")
    }
}

/// Formats ticks as `YYYY-MM-DD HH:MM:SS`, with the unit's fractional digits unless they are all zero, and `Z` at the
/// end for a timestamp with time zone.
pub(crate) fn format_timestamp(ticks: i64, unit: Unit, utc: bool) -> String {
    let seconds = ticks.div_euclid(unit.per_second());
    let fraction = ticks.rem_euclid(unit.per_second());
    let date = format_date(seconds.div_euclid(SECONDS_PER_DAY));
    let second = seconds.rem_euclid(SECONDS_PER_DAY);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let mut text = format!("{date} {hour:02}:{minute:02}:{second:02}");
    if fraction != 0 {
        text.push_str(&format!(".{fraction:0width$}", width = usize::from(unit.digits())));
    }
    if utc {
        text.push('Z');
    }
    text
}

/// Parses a date, a date and a time, or RFC 3339; without an offset it is UTC. `None` for any other text, or a date
/// that does not exist in the calendar.
pub(crate) fn parse(text: &str) -> Option<Moment> {
    let mut rest = text.trim();
    let negative = rest.starts_with('-');
    let signed = negative || rest.starts_with('+');
    if signed {
        rest = &rest[1..];
    }
    let width = rest.bytes().take_while(u8::is_ascii_digit).count();
    // Without a sign a year has four digits, so that a bare number is not parsed as a year.
    if !(4..=YEAR_DIGITS_MAX).contains(&width) || (!signed && width != 4) {
        return None;
    }
    let year: i64 = rest[..width].parse().ok()?;
    let year = if negative { -year } else { year };
    rest = rest[width..].strip_prefix('-')?;
    let month = two_digits(&mut rest)?;
    rest = rest.strip_prefix('-')?;
    let day = two_digits(&mut rest)?;
    if !(1..=12).contains(&month) || !(1..=days_in_month(year, month)).contains(&day) {
        return None;
    }
    let midnight = i128::from(days_from_civil(year, month, day)) * i128::from(SECONDS_PER_DAY);
    if rest.is_empty() {
        return Some(Moment { seconds: midnight, nanos: 0, finer: false });
    }
    rest = rest.strip_prefix([' ', 'T', 't'])?;
    let (second_of_day, nanos, finer) = parse_time(&mut rest)?;
    let offset = parse_offset(rest)?;
    Some(Moment { seconds: midnight + i128::from(second_of_day - offset), nanos, finer })
}

/// Parses `HH:MM[:SS[.f]]`: seconds of the day, nanoseconds, and true if there are nonzero digits below those.
fn parse_time(rest: &mut &str) -> Option<(i64, u32, bool)> {
    let hour = two_digits(rest)?;
    *rest = rest.strip_prefix(':')?;
    let minute = two_digits(rest)?;
    let mut second = 0;
    let (mut nanos, mut finer) = (0_u32, false);
    if let Some(tail) = rest.strip_prefix(':') {
        *rest = tail;
        second = two_digits(rest)?;
        if let Some(tail) = rest.strip_prefix('.') {
            let width = tail.bytes().take_while(u8::is_ascii_digit).count();
            let digits = &tail[..width];
            if digits.is_empty() {
                return None;
            }
            let significant = &digits[..width.min(9)];
            let missing = u32::try_from(9 - significant.len()).ok()?;
            nanos = significant.parse::<u32>().ok()? * 10_u32.pow(missing);
            finer = digits[significant.len()..].bytes().any(|digit| digit != b'0');
            *rest = &tail[width..];
        }
    }
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    Some((hour * 3600 + minute * 60 + second, nanos, finer))
}

/// Parses an empty text, `Z`, `+HH`, `+HHMM` or `+HH:MM`: seconds east of UTC.
fn parse_offset(rest: &str) -> Option<i64> {
    let rest = rest.trim_start();
    if rest.is_empty() || rest.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let (sign, mut rest) = if let Some(rest) = rest.strip_prefix('+') {
        (1, rest)
    } else {
        (-1, rest.strip_prefix('-')?)
    };
    let hour = two_digits(&mut rest)?;
    let mut minute = 0;
    if !rest.is_empty() {
        rest = rest.strip_prefix(':').unwrap_or(rest);
        minute = two_digits(&mut rest)?;
    }
    (rest.is_empty() && hour <= 23 && minute <= 59).then_some(sign * (hour * 3600 + minute * 60))
}

fn two_digits(rest: &mut &str) -> Option<i64> {
    let digits = rest.get(..2)?;
    if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    *rest = &rest[2..];
    digits.parse().ok()
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % CYCLE_YEARS == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01. Years are counted from March, which puts the leap day at their end.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (cycle, year) = (year.div_euclid(CYCLE_YEARS), year.rem_euclid(CYCLE_YEARS));
    let month = (month + 9) % 12;
    // Months from March on have 31 30 31 30 31 | 31 30 31 30 31 | 31 days: 153 in every five.
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    let day_of_cycle = year * 365 + year / 4 - year / 100 + day_of_year;
    cycle * CYCLE_DAYS + day_of_cycle - EPOCH_OFFSET_DAYS
}

/// Year, month and day of a number of days since 1970-01-01.
pub(crate) fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + EPOCH_OFFSET_DAYS;
    let (cycle, day_of_cycle) = (days.div_euclid(CYCLE_DAYS), days.rem_euclid(CYCLE_DAYS));
    // Subtract the leap days so far: one in 4 years (1,461 days), none in 100 (36,524), one in 400.
    let year = (day_of_cycle - day_of_cycle / 1_460 + day_of_cycle / 36_524
        - day_of_cycle / 146_096)
        / 365;
    let day_of_year = day_of_cycle - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = cycle * CYCLE_YEARS + year + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ticks(text: &str, unit: Unit) -> i128 {
        parse(text).unwrap().ticks(unit).0
    }

    #[test]
    fn known_moments_parse() {
        assert_eq!(ticks("1970-01-01", Unit::Second), 0);
        assert_eq!(ticks("2000-02-29", Unit::Second), 951_782_400);
        assert_eq!(ticks("2024-01-02 03:04:05.678", Unit::Millisecond), 1_704_164_645_678);
        assert_eq!(ticks("2024-01-02T03:04:05.678Z", Unit::Millisecond), 1_704_164_645_678);
        assert_eq!(ticks("2024-01-02T05:34:05+02:30", Unit::Second), 1_704_164_645);
        assert_eq!(ticks("2024-01-01 22:04:05-0500", Unit::Second), 1_704_164_645);
        assert_eq!(ticks("1969-12-31 23:59:59.5", Unit::Millisecond), -500);
        assert_eq!(ticks("2024-01-02 03:04", Unit::Second), 1_704_164_640);
    }

    #[test]
    fn what_is_no_moment_is_refused() {
        for text in [
            "",
            "now",
            "2024",
            "2024-13-01",
            "2023-02-29",
            "2024-01-00",
            "2024-1-1",
            "2024-01-01 24:00:00",
            "2024-01-01 00:00:60",
            "2024-01-01 00:00:00.",
            "2024-01-01 00:00:00+1",
            "2024-01-01 00:00:00 UTC+1",
            "2024-01-01x",
            "2024-01-0é",
            "+123456789012345-01-01",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn digits_below_the_unit_are_reported() {
        let moment = parse("1969-12-31 23:59:59.9999999995").unwrap();
        assert_eq!(moment.ticks(Unit::Nanosecond), (-1, false));
        assert_eq!(moment.ticks(Unit::Second), (-1, false));
        assert_eq!(parse("2024-01-01 00:00:00.500").unwrap().days(), (19_723, false));
    }

    proptest! {
        #[test]
        fn every_timestamp_has_a_text_that_parses_to_it(
            value in any::<i64>(),
            unit in prop::sample::select(vec![
                Unit::Second, Unit::Millisecond, Unit::Microsecond, Unit::Nanosecond,
            ]),
            utc in any::<bool>(),
        ) {
            let text = format_timestamp(value, unit, utc);
            prop_assert_eq!(parse(&text).unwrap().ticks(unit), (i128::from(value), true));
        }

        #[test]
        fn every_date_has_a_text_that_parses_to_it(value in any::<i32>()) {
            let text = format_date(i64::from(value));
            prop_assert_eq!(parse(&text).unwrap().days(), (i128::from(value), true));
        }
    }
}
