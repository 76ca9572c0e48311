//! Parsing of times.
//!
//! A text may contain an offset or a zone; without one it is a local time in the reader's zone.

use std::borrow::Cow;

use arrow::compute::kernels::cast_utils::{Parser, string_to_datetime};
use arrow::datatypes::{Date32Type, TimeUnit};
use chrono::FixedOffset;

use crate::civil::per_second;
use crate::zone::Zone;

const NANOS_PER_SECOND: i128 = 1_000_000_000;

/// A parsed time, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// A local time of an unspecified zone.
    Local(i128),
    /// A point in time.
    Instant(i128),
}

impl Moment {
    /// Parses a text; `None` if it is not a time.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim_ascii();
        // Arrow slices the text at byte positions.
        if !text.is_ascii() {
            return None;
        }
        if let Some(moment) = with_offset(text) {
            return Some(moment);
        }
        // The text ends with the name of a zone; a local time may occur twice there, or never.
        let (time, zone) = text.rsplit_once(' ')?;
        if !zone.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return None;
        }
        match (with_offset(time)?, Zone::named(zone)?) {
            (Self::Local(nanos), zone) => Some(Self::Instant(instant(nanos, zone))),
            (Self::Instant(_), _) => None,
        }
    }

    /// Nanoseconds of the instant; a local time is taken in the zone.
    pub fn instant(self, zone: Zone) -> i128 {
        match self {
            Self::Local(nanos) => instant(nanos, zone),
            Self::Instant(nanos) => nanos,
        }
    }

    /// Nanoseconds of the local time in the zone.
    pub fn local(self, zone: Zone) -> i128 {
        match self {
            Self::Local(nanos) => nanos,
            Self::Instant(nanos) => {
                nanos + i128::from(zone.offset_at(seconds(nanos))) * NANOS_PER_SECOND
            }
        }
    }
}

/// Days of a date since 1970-01-01; a time or an offset after the date is ignored, as in PostgreSQL. `None` if the text
/// is not a date.
pub fn parse_date(text: &str) -> Option<i32> {
    let text = text.trim_ascii();
    if !text.is_ascii() {
        return None;
    }
    Date32Type::parse(text).or_else(|| {
        let (date, rest) = text.split_once([' ', 'T'])?;
        let is_more = Moment::parse(text).is_some() || Zone::named(rest).is_some();
        is_more.then(|| Date32Type::parse(date)).flatten()
    })
}

/// Converts nanoseconds to ticks of a unit, rounding toward the past; `None` if they do not fit.
pub fn ticks(nanos: i128, unit: TimeUnit) -> Option<i64> {
    let nanos_per_tick = NANOS_PER_SECOND / i128::from(per_second(unit));
    i64::try_from(nanos.div_euclid(nanos_per_tick)).ok()
}

fn seconds(nanos: i128) -> i64 {
    let seconds = nanos.div_euclid(NANOS_PER_SECOND);
    i64::try_from(seconds).unwrap_or(if seconds < 0 { i64::MIN } else { i64::MAX })
}

fn instant(local: i128, zone: Zone) -> i128 {
    local - i128::from(zone.offset_of_local(seconds(local))) * NANOS_PER_SECOND
}

/// Adds seconds, which Arrow requires, after hours and minutes.
fn with_seconds(text: &str) -> Cow<'_, str> {
    let Some(begin) = text.find([' ', 'T']).map(|blank| blank + 1) else { return text.into() };
    let clock = &text[begin..];
    let end = clock.find(|c: char| !c.is_ascii_digit() && c != ':').unwrap_or(clock.len());
    let is_short = end >= 4 && clock[..end].bytes().filter(|c| *c == b':').count() == 1;
    if !is_short || clock[end..].starts_with('.') {
        return text.into();
    }
    format!("{}:00{}", &text[..begin + end], &clock[end..]).into()
}

/// Parses a text with an offset or without any zone.
fn with_offset(text: &str) -> Option<Moment> {
    let text = with_seconds(text);
    let read = |east: i32| {
        let moment = string_to_datetime(&FixedOffset::east_opt(east)?, &text).ok()?;
        let nanos = i128::from(moment.timestamp_subsec_nanos());
        Some(i128::from(moment.timestamp()) * NANOS_PER_SECOND + nanos)
    };
    let utc_nanos = read(0)?;
    let is_instant = match says_offset(&text) {
        Some(has_offset) => has_offset,
        // A text with an offset is the same instant wherever it is read.
        None => read(3_600)? == utc_nanos,
    };
    Some(if is_instant { Moment::Instant(utc_nanos) } else { Moment::Local(utc_nanos) })
}

/// Returns true if an offset follows a date of ten digits and dashes and its time; `None` if there is no such date.
fn says_offset(text: &str) -> Option<bool> {
    let (date, rest) = text.as_bytes().split_at_checked(10)?;
    let is_date = date[4] == b'-' && date[7] == b'-';
    let is_offset = |byte: &u8| matches!(byte, b'+' | b'-') || byte.is_ascii_alphabetic();
    // The separator before the time may be a letter.
    is_date.then(|| rest.iter().skip(1).any(is_offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_says_its_offset_or_is_read_in_a_zone() {
        let berlin = Zone::named("Europe/Berlin").unwrap();
        for (text, instant, local) in [
            ("2024-07-01 12:00:00", 1_719_828_000, 1_719_835_200),
            ("2024-07-01 10:00:00+00", 1_719_828_000, 1_719_835_200),
            ("2024-07-01T10:00:00Z", 1_719_828_000, 1_719_835_200),
            ("2024-07-01 12:00", 1_719_828_000, 1_719_835_200),
            ("2024-07-01 12:00+02", 1_719_828_000, 1_719_835_200),
            ("2024-07-01T10:00Z", 1_719_828_000, 1_719_835_200),
            ("2024-07-01 15:30:00+05:30", 1_719_828_000, 1_719_835_200),
            ("2024-07-01 06:00 America/New_York", 1_719_828_000, 1_719_835_200),
            ("2024-10-27 02:30 Europe/Berlin", 1_729_992_600, 1_729_996_200),
            ("2024-10-27 02:30", 1_729_992_600, 1_729_996_200),
            ("2024-03-31 02:30", 1_711_848_600, 1_711_852_200),
        ] {
            let moment = Moment::parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(moment.instant(berlin), instant * NANOS_PER_SECOND, "{text}");
            if text != "2024-03-31 02:30" {
                assert_eq!(moment.local(berlin), local * NANOS_PER_SECOND, "{text}");
            }
        }
        for text in [
            "",
            "never",
            "2024-07-01 10:00 Nowhere",
            "2024-07-01 10:00+00 UTC",
            "2024-07-01 1:2.5",
            "30:00",
        ] {
            assert_eq!(Moment::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_date_may_have_a_time_or_an_offset_behind_it() {
        for text in [
            "2024-02-29",
            " 2024-02-29 ",
            "2024-02-29 +00",
            "2024-02-29 12:34:56",
            "2024-02-29T23:00:00+05",
        ] {
            assert_eq!(parse_date(text), Some(19_782), "{text}");
        }
        for text in ["", "2024-02-30", "2024-02-29 x", "never 12:00"] {
            assert_eq!(parse_date(text), None, "{text}");
        }
    }

    #[test]
    fn ticks_are_those_of_a_unit_or_none() {
        assert_eq!(ticks(-1, TimeUnit::Microsecond), Some(-1));
        assert_eq!(ticks(1_999, TimeUnit::Microsecond), Some(1));
        assert_eq!(ticks(i128::from(i64::MAX) + 1, TimeUnit::Nanosecond), None);
        assert_eq!(ticks(i128::from(i64::MAX) + 1, TimeUnit::Second), Some(9_223_372_036));
    }
}
