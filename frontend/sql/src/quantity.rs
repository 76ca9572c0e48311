//! Lengths of time and sizes as options have them: `7d`, `1h30m`, `90 days`; `100MiB`.

use std::time::Duration;

use super::identifier::fold;

const SECOND: u64 = 1;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
/// As in PostgreSQL's intervals, a month has 30 days and a year 365 (and a quarter, to GreptimeDB).
const MONTH: u64 = 30 * DAY;
const YEAR: u64 = 365 * DAY;

const KIB: u64 = 1024;
/// Units of sizes, by the texts that name them; without one a size is in bytes.
const SIZES: [(&str, u64); 8] = [
    ("", 1),
    ("b", 1),
    ("kb", KIB),
    ("kib", KIB),
    ("mb", KIB * KIB),
    ("mib", KIB * KIB),
    ("gb", KIB * KIB * KIB),
    ("gib", KIB * KIB * KIB),
];

/// Parses a length of time: `7d`, `1h30m`, `90 days`, `'500ms'`.
pub(super) fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    let mut total = Duration::ZERO;
    // Parts of a number and a unit; their sum must not overflow.
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        rest = rest[digits..].trim_start();
        let letters = rest.find(|c: char| !c.is_alphabetic()).unwrap_or(rest.len());
        let part = match &rest[..letters] {
            "ns" | "nsec" => Duration::from_nanos(number),
            "us" | "usec" => Duration::from_micros(number),
            "ms" | "msec" | "millis" => Duration::from_millis(number),
            unit => Duration::from_secs(number.checked_mul(match unit {
                "s" | "sec" | "secs" | "second" | "seconds" => SECOND,
                "m" | "min" | "mins" | "minute" | "minutes" => MINUTE,
                "h" | "hr" | "hrs" | "hour" | "hours" => HOUR,
                "d" | "day" | "days" => DAY,
                "w" | "week" | "weeks" => 7 * DAY,
                "month" | "months" => MONTH,
                "y" | "year" | "years" => YEAR,
                _ => return None,
            })?),
        };
        total = total.checked_add(part)?;
        rest = rest[letters..].trim_start();
    }
    Some(total)
}

/// Formats a length of time so that [`parse_duration`] reads it back: in the largest unit that divides it.
pub(super) fn format_duration(duration: Duration) -> String {
    let nanos = duration.subsec_nanos();
    let seconds = duration.as_secs();
    if nanos != 0 {
        let (number, unit) = match nanos {
            n if n % 1_000_000 == 0 => (n / 1_000_000, "ms"),
            n if n % 1_000 == 0 => (n / 1_000, "us"),
            n => (n, "ns"),
        };
        return if seconds == 0 {
            format!("{number}{unit}")
        } else {
            format!("{seconds}s{number}{unit}")
        };
    }
    let (unit, name) = [(DAY, "d"), (HOUR, "h"), (MINUTE, "m")]
        .into_iter()
        .find(|(unit, _)| seconds != 0 && seconds.is_multiple_of(*unit))
        .unwrap_or((SECOND, "s"));
    format!("{}{name}", seconds / unit)
}

/// The number of bytes of a size such as `100MiB` or `4096`; `None` if it is none.
pub(super) fn parse_size(text: &str) -> Option<u64> {
    let text = fold(text.trim());
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let (_, bytes) = SIZES.iter().find(|(name, _)| *name == unit.trim())?;
    number.parse::<u64>().ok()?.checked_mul(*bytes).filter(|bytes| *bytes > 0)
}

/// A number of bytes as a size that [`parse_size`] reads back: in the largest unit that divides it.
pub(super) fn format_size(bytes: u64) -> String {
    let units = [(KIB * KIB * KIB, "GiB"), (KIB * KIB, "MiB"), (KIB, "KiB")];
    let unit = units.into_iter().find(|(unit, _)| bytes > 0 && bytes.is_multiple_of(*unit));
    match unit {
        Some((unit, name)) => format!("{}{name}", bytes / unit),
        None => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_read_in_the_ways_people_write_them() {
        let seconds = |text| parse_duration(text).map(|duration| duration.as_secs());
        assert_eq!(seconds("7d"), Some(604_800));
        assert_eq!(seconds("1h30m"), Some(5_400));
        assert_eq!(seconds("1 h 30 m"), Some(5_400));
        assert_eq!(seconds("90 days"), Some(7_776_000));
        assert_eq!(seconds("2w"), Some(1_209_600));
        assert_eq!(seconds("0s"), Some(0));
        for wrong in ["", "7", "d", "7x", "-1d", "99999999999999999999d", "18446744073709551615y"] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn sizes_have_units() {
        for (text, bytes) in
            [("100MB", 104_857_600), ("1 GiB", 1 << 30), ("4096", 4096), ("7kb", 7168)]
        {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
            assert_eq!(parse_size(&format_size(bytes)), Some(bytes), "{text}");
        }
        for wrong in ["", "0", "MB", "-1", "1.5MB", "1TBX", "99999999999GB"] {
            assert_eq!(parse_size(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn durations_round_trip(seconds: u64, nanos in 0u32..1_000_000_000) {
            let duration = Duration::new(seconds, nanos);
            prop_assert_eq!(parse_duration(&format_duration(duration)), Some(duration));
        }

        #[test]
        fn sizes_are_read_back_as_they_are_printed(bytes in 1_u64..) {
            prop_assert_eq!(parse_size(&format_size(bytes)), Some(bytes));
        }
    }
}
