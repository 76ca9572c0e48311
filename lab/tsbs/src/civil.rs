//! Conversion between times and their usual text form: `2016-01-01T00:00:00Z`. UTC only, no leap seconds.

use anyhow::{Context, bail};

/// Nanoseconds in a second.
pub const SECOND_NS: i64 = 1_000_000_000;
const DAY_S: i64 = 86_400;

/// Year, month and day of days since 1970-01-01 (the algorithm of Howard Hinnant's `chrono`, by eras of 400 years
/// that begin in March).
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Seconds since 1970 as `2016-01-01 00:00:00`.
pub fn spaced(seconds: i64) -> String {
    let (year, month, day) = civil(seconds.div_euclid(DAY_S));
    let of_day = seconds.rem_euclid(DAY_S);
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// Seconds since 1970 as `2016-01-01T00:00:00Z`.
pub fn rfc3339(seconds: i64) -> String {
    spaced(seconds).replace(' ', "T") + "Z"
}

/// Parses `2016-01-01T00:00:00Z`; the `Z` may be missing, and a space may replace the `T`.
///
/// # Errors
/// If it is not such a time.
pub fn parse(text: &str) -> anyhow::Result<i64> {
    let numbers: Option<Vec<i64>> = text
        .trim_end_matches('Z')
        .split(['-', 'T', ' ', ':'])
        .map(|part| part.parse().ok().filter(|number| *number >= 0))
        .collect();
    let numbers = numbers.with_context(|| format!("{text} is not a time like {EXAMPLE}"))?;
    let &[year, month, day, hour, minute, second] = numbers.as_slice() else {
        bail!("{text} is not a time like {EXAMPLE}");
    };
    let seconds = days(year, month, day) * DAY_S + hour * 3_600 + minute * 60 + second;
    // A day or an hour that does not exist would be formatted as another one.
    if rfc3339(seconds) != format!("{}Z", text.trim_end_matches('Z').replace(' ', "T")) {
        bail!("{text} is not a time like {EXAMPLE}");
    }
    Ok(seconds)
}

const EXAMPLE: &str = "2016-01-01T00:00:00Z";

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
        for day in -200_000..200_000 {
            let (year, month, of_month) = civil(day);
            assert_eq!(days(year, month, of_month), day);
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in ["2016-02-30T00:00:00Z", "2016-01-01", "2016-01-01T25:00:00Z", "now"] {
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
