//! Conversion between times and their usual text form: `2016-01-01T00:00:00Z`. UTC only, no leap seconds.

use anyhow::{Context, bail};
use chrono::{DateTime, NaiveDateTime, Utc};

/// Nanoseconds in a second.
pub const SECOND_NS: i64 = 1_000_000_000;

/// Form of [`rfc3339`] without its zone.
const FORMAT: &str = "%Y-%m-%dT%H:%M:%S";
const EXAMPLE: &str = "2016-01-01T00:00:00Z";

fn formatted(seconds: i64, format: &str) -> String {
    // Times beyond the calendar's years become its last one.
    let time = DateTime::from_timestamp(seconds, 0).unwrap_or(DateTime::<Utc>::MAX_UTC);
    time.format(format).to_string()
}

/// Seconds since 1970 as `2016-01-01 00:00:00`.
pub fn spaced(seconds: i64) -> String {
    formatted(seconds, "%Y-%m-%d %H:%M:%S")
}

/// Seconds since 1970 as `2016-01-01T00:00:00Z`.
pub fn rfc3339(seconds: i64) -> String {
    formatted(seconds, FORMAT) + "Z"
}

/// Parses `2016-01-01T00:00:00Z`; the `Z` may be missing, and a space may replace the `T`.
///
/// # Errors
/// If it is not such a time.
pub fn parse(text: &str) -> anyhow::Result<i64> {
    let bare = text.trim_end_matches('Z').replace(' ', "T");
    let time = NaiveDateTime::parse_from_str(&bare, FORMAT);
    let seconds = time.map(|time| time.and_utc().timestamp()).ok();
    // The parser also accepts numbers without leading zeros, and a 61st second.
    let seconds = seconds.filter(|seconds| formatted(*seconds, FORMAT) == bare);
    seconds.with_context(|| format!("{text} is not a time like {EXAMPLE}"))
}

/// Parses a span of time: `24h`, `10m`, `30s`, `2d`.
///
/// # Errors
/// If it is not such a span, or is empty.
pub fn parse_span(text: &str) -> anyhow::Result<std::time::Duration> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => bail!("{text} is not a span like 30s, 10m, 24h or 2d"),
    };
    let number: u32 = digits.parse().with_context(|| format!("{digits} is not a number"))?;
    if number == 0 {
        bail!("{text} is an empty span");
    }
    Ok(std::time::Duration::from_secs(u64::from(number) * unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_written() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (1_451_606_400, "2016-01-01T00:00:00Z"),
            (1_456_790_399, "2016-02-29T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
        ] {
            assert_eq!(rfc3339(seconds), text);
            assert_eq!(parse(text).unwrap(), seconds);
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "2016-02-30T00:00:00Z",
            "2016-01-01",
            "2016-01-01T25:00:00Z",
            "2016-1-1T00:00:00Z",
            "2016-06-30T23:59:60Z",
            "now",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn spans_have_a_unit() {
        assert_eq!(parse_span("24h").unwrap().as_secs(), 86_400);
        assert_eq!(parse_span("10m").unwrap().as_secs(), 600);
        for text in ["24", "h", "0s", "1w"] {
            assert!(parse_span(text).is_err(), "{text}");
        }
    }
}
