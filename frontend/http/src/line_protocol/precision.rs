//! The unit of the timestamp at the end of a line.

use std::str::FromStr;

/// The unit of a request's timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// Guessed from the size of each timestamp, as in InfluxDB 3.
    Auto,
    /// `ns`, `n`, `nanosecond`.
    Nanosecond,
    /// `us`, `u`, `µ`, `microsecond`.
    Microsecond,
    /// `ms`, `millisecond`.
    Millisecond,
    /// `s`, `second`.
    Second,
    /// `m`, `minute`.
    Minute,
    /// `h`, `hour`.
    Hour,
}

/// The error of an unknown precision.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown precision \"{0}\"; use ns, us, ms, s, m, h, nanosecond, microsecond, \
     millisecond, second or auto"
)]
pub struct UnknownPrecision(String);

impl FromStr for Precision {
    type Err = UnknownPrecision;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "auto" => Self::Auto,
            "ns" | "n" | "nanosecond" | "nanoseconds" => Self::Nanosecond,
            "us" | "u" | "µ" | "µs" | "microsecond" | "microseconds" => Self::Microsecond,
            "ms" | "millisecond" | "milliseconds" => Self::Millisecond,
            "s" | "second" | "seconds" => Self::Second,
            "m" | "minute" | "minutes" => Self::Minute,
            "h" | "hour" | "hours" => Self::Hour,
            _ => return Err(UnknownPrecision(text.to_owned())),
        })
    }
}

const SECOND: i64 = 1_000_000_000;

impl Precision {
    /// Nanoseconds of one tick; for [`Precision::Auto`], those that the size of the timestamp suggests.
    fn nanoseconds(self, timestamp: i64) -> i64 {
        match self {
            Self::Nanosecond => 1,
            Self::Microsecond => 1_000,
            Self::Millisecond => 1_000_000,
            Self::Second => SECOND,
            Self::Minute => 60 * SECOND,
            Self::Hour => 3_600 * SECOND,
            // 5e9 seconds is the year 2128; the same time in milliseconds is 5e12, and so on.
            Self::Auto => match timestamp.unsigned_abs() / 1_000_000_000 {
                0..5 => SECOND,
                5..5_000 => 1_000_000,
                5_000..5_000_000 => 1_000,
                _ => 1,
            },
        }
    }

    /// A timestamp in nanoseconds; `None` when it overflows.
    pub(super) fn scale(self, timestamp: i64) -> Option<i64> {
        timestamp.checked_mul(self.nanoseconds(timestamp))
    }

    /// A time in nanoseconds, truncated to this precision.
    pub(super) fn truncate(self, now_ns: i64) -> i64 {
        match self {
            Self::Auto => now_ns,
            _ => now_ns - now_ns.rem_euclid(self.nanoseconds(now_ns)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_tells_the_unit_by_size() {
        let auto = |timestamp| Precision::Auto.scale(timestamp);
        let moment = 1_700_000_000 * SECOND;
        assert_eq!(auto(1_700_000_000), Some(moment));
        assert_eq!(auto(1_700_000_000_000), Some(moment));
        assert_eq!(auto(1_700_000_000_000_000), Some(moment));
        assert_eq!(auto(moment), Some(moment));
        assert_eq!(auto(-5), Some(-5 * SECOND));
    }

    #[test]
    fn scaling_that_overflows_is_refused() {
        assert_eq!(Precision::Second.scale(i64::MAX / 1_000), None);
        assert_eq!(Precision::Hour.scale(i64::MIN), None);
        assert_eq!(Precision::Nanosecond.scale(i64::MIN), Some(i64::MIN));
    }

    #[test]
    fn the_server_time_is_cut_to_the_precision() {
        assert_eq!(Precision::Second.truncate(1_999_999_999), 1_000_000_000);
        assert_eq!(Precision::Second.truncate(-1), -SECOND);
        assert_eq!(Precision::Nanosecond.truncate(7), 7);
    }
}
