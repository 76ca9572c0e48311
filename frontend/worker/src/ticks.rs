//! Truncation of times to the start of a step: `date_trunc` and `date_bin` over the ticks of any unit.
//!
//! DataFusion's functions count nanoseconds, which end in 1677 and 2262, even for columns of seconds or milliseconds,
//! and use the zone of a type, which is not the session's.
//!
//! Invariants:
//! - results equal PostgreSQL's: days and longer steps start at local midnight, shorter ones keep the offset of the
//!   time;
//! - a result that the unit cannot represent is an error with SQLSTATE 22008.

use std::cell::RefCell;

use arrow::array::Int64Array;
use arrow::datatypes::{Int64Type, TimeUnit};
use arrow::error::ArrowError;

use crate::civil::{date_of, day_of, per_second};
use crate::error::datetime_overflow;
use crate::zone::Zone;

const DAY: i64 = 86_400;
const NANOS_PER_SECOND: i128 = 1_000_000_000;

/// Step to whose start a time is truncated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// This fraction of a second.
    Part(i64),
    /// This number of seconds, at most an hour.
    Seconds(i64),
    Day,
    Week,
    /// This number of months, at most a year.
    Months(i64),
    /// This number of years, counted from the given first year.
    Years(i64, i64),
}

impl Step {
    /// Looks up a step by its name in `date_trunc`.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name.trim().to_ascii_lowercase().as_str() {
            "microsecond" | "microseconds" | "us" | "usec" => Self::Part(1_000_000),
            "millisecond" | "milliseconds" | "ms" | "msec" => Self::Part(1_000),
            "second" | "seconds" | "sec" | "s" => Self::Seconds(1),
            "minute" | "minutes" | "min" => Self::Seconds(60),
            "hour" | "hours" | "h" => Self::Seconds(3_600),
            "day" | "days" | "d" => Self::Day,
            "week" | "weeks" => Self::Week,
            "month" | "months" | "mon" => Self::Months(1),
            "quarter" | "quarters" | "qtr" => Self::Months(3),
            "year" | "years" | "y" => Self::Years(1, 0),
            "decade" | "decades" => Self::Years(10, 0),
            "century" | "centuries" => Self::Years(100, 1),
            "millennium" | "millennia" => Self::Years(1_000, 1),
            _ => return None,
        })
    }

    /// Returns true if the step is computed from the local date, whatever the offset at the result.
    fn is_of_date(self) -> bool {
        !matches!(self, Self::Part(_) | Self::Seconds(_))
    }

    /// First second of the step that a date belongs to.
    fn of_day(self, days: i64) -> i64 {
        let first = match self {
            Self::Part(_) | Self::Seconds(_) | Self::Day => days,
            // 1970-01-01 was a Thursday.
            Self::Week => days - (days + 3).rem_euclid(7),
            Self::Months(months) => {
                let (year, month, _) = date_of(days);
                day_of(year, (month - 1) / months * months + 1, 1)
            }
            Self::Years(years, first) => {
                let (year, _, _) = date_of(days);
                day_of((year - first).div_euclid(years) * years + first, 1, 1)
            }
        };
        first.saturating_mul(DAY)
    }

    /// Truncates ticks of a unit in the local time of a zone.
    pub(crate) fn cut(
        self,
        ticks: &Int64Array,
        unit: TimeUnit,
        zone: Zone,
    ) -> Result<Int64Array, ArrowError> {
        let per = per_second(unit);
        let offsets = RefCell::new(zone.offsets());
        let cut = |ticks: i64| -> Option<i64> {
            let step = match self {
                Self::Part(parts) => {
                    return ticks.checked_sub(ticks.rem_euclid((per / parts).max(1)));
                }
                Self::Seconds(1) => return ticks.checked_sub(ticks.rem_euclid(per)),
                step => step,
            };
            let seconds = ticks.div_euclid(per);
            let offset = offsets.borrow_mut().at(seconds);
            let local = seconds.checked_add(offset)?;
            let cut = match step {
                Self::Seconds(step) => local - local.rem_euclid(step) - offset,
                step => {
                    let local = step.of_day(local.div_euclid(DAY));
                    local.checked_sub(zone.offset_of_local(local))?
                }
            };
            cut.checked_mul(per)
        };
        each(ticks, cut)
    }

    /// Returns true if days of the zone have one length, so that steps of ascending times always ascend.
    pub(crate) fn is_even(self, zone: Zone) -> bool {
        zone.is_utc() || (matches!(zone, Zone::Fixed(_)) && !self.is_of_date())
    }
}

fn each(ticks: &Int64Array, cut: impl Fn(i64) -> Option<i64>) -> Result<Int64Array, ArrowError> {
    ticks.try_unary::<_, Int64Type, ArrowError>(|ticks| cut(ticks).ok_or_else(out_of_range))
}

fn out_of_range() -> ArrowError {
    datetime_overflow("timestamp")
}

/// Bins of one width that start at an origin, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bins {
    width: i128,
    origin: i128,
}

impl Bins {
    /// `None` when the width is not positive.
    pub(crate) fn new(width: i128, origin: (i64, TimeUnit)) -> Option<Self> {
        let (ticks, unit) = origin;
        let origin = i128::from(ticks) * (NANOS_PER_SECOND / i128::from(per_second(unit)));
        (width > 0).then_some(Self { width, origin })
    }

    /// Starts of the bins that contain the ticks.
    pub(crate) fn cut(&self, ticks: &Int64Array, unit: TimeUnit) -> Result<Int64Array, ArrowError> {
        let nanos = NANOS_PER_SECOND / i128::from(per_second(unit));
        let whole = |value: i128| (value % nanos == 0).then_some(value / nanos);
        let ticks_of = |value: i128| whole(value).and_then(|ticks| i64::try_from(ticks).ok());
        // The usual case, without divisions of 128 bits.
        if let Some((width, origin)) = ticks_of(self.width).zip(ticks_of(self.origin % self.width))
        {
            return each(ticks, |ticks| {
                let elapsed = ticks.checked_sub(origin)?;
                ticks.checked_sub(elapsed.rem_euclid(width))
            });
        }
        each(ticks, |ticks| {
            let elapsed = i128::from(ticks) * nanos - self.origin;
            let begin = elapsed.div_euclid(self.width) * self.width + self.origin;
            i64::try_from(begin / nanos).ok()
        })
    }
}

#[cfg(test)]
mod tests {
    use chrono::NaiveDateTime;

    use super::*;

    /// Seconds of a time in UTC.
    fn at(text: &str) -> i64 {
        NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M").unwrap().and_utc().timestamp()
    }

    fn cut(step: &str, text: &str, zone: Zone) -> i64 {
        let seconds = Int64Array::from(vec![at(text)]);
        Step::named(step).unwrap().cut(&seconds, TimeUnit::Second, zone).unwrap().value(0)
    }

    #[test]
    fn steps_begin_where_those_of_postgresql_do() {
        for (step, time, begin) in [
            ("minute", "2024-02-29 12:34", "2024-02-29 12:34"),
            ("hour", "1600-02-29 12:34", "1600-02-29 12:00"),
            ("day", "2300-01-01 12:34", "2300-01-01 00:00"),
            ("week", "1600-01-01 12:34", "1599-12-27 00:00"),
            ("week", "2024-01-01 00:00", "2024-01-01 00:00"),
            ("month", "1700-03-31 12:34", "1700-03-01 00:00"),
            ("quarter", "2024-06-30 23:59", "2024-04-01 00:00"),
            ("year", "1700-03-31 12:34", "1700-01-01 00:00"),
            ("decade", "1999-05-05 00:00", "1990-01-01 00:00"),
            ("century", "2000-05-05 00:00", "1901-01-01 00:00"),
            ("millennium", "2001-05-05 00:00", "2001-01-01 00:00"),
        ] {
            assert_eq!(cut(step, time, Zone::UTC), at(begin), "{step} {time}");
        }
        assert_eq!(Step::named("fortnight"), None);
    }

    #[test]
    fn steps_of_a_zone_begin_at_its_local_time() {
        let berlin = Zone::named("Europe/Berlin").unwrap();
        for (step, time, begin) in [
            ("day", "2024-07-01 22:30", "2024-07-01 22:00"),
            ("day", "2024-10-27 01:30", "2024-10-26 22:00"),
            ("week", "2024-10-27 01:30", "2024-10-20 22:00"),
            ("month", "2024-06-30 22:30", "2024-06-30 22:00"),
            // An hour that occurs twice is two steps.
            ("hour", "2024-10-27 00:30", "2024-10-27 00:00"),
            ("hour", "2024-10-27 01:30", "2024-10-27 01:00"),
        ] {
            assert_eq!(cut(step, time, berlin), at(begin), "{step} {time}");
        }
        let kolkata = Zone::named("Asia/Kolkata").unwrap();
        assert_eq!(cut("hour", "2024-07-01 12:10", kolkata), at("2024-07-01 11:30"));
    }

    #[test]
    fn bins_begin_at_their_origin_in_every_unit() {
        let second = 1_000_000_000;
        for (unit, per) in [(TimeUnit::Second, 1), (TimeUnit::Millisecond, 1_000)] {
            let time = Int64Array::from(vec![Some(at("1600-01-01 00:30") * per), None]);
            let hours = Bins::new(3_600 * second, (0, TimeUnit::Nanosecond)).unwrap();
            let begin = Some(at("1600-01-01 00:00") * per);
            assert_eq!(hours.cut(&time, unit).unwrap(), Int64Array::from(vec![begin, None]));
            let origin = (at("2000-01-01 00:10"), TimeUnit::Second);
            let hours = Bins::new(3_600 * second, origin).unwrap();
            let begin = Some(at("1600-01-01 00:10") * per);
            assert_eq!(hours.cut(&time, unit).unwrap(), Int64Array::from(vec![begin, None]));
        }
        // Bins of a third of a second begin between the ticks of a unit.
        let thirds = Bins::new(second / 3, (0, TimeUnit::Nanosecond)).unwrap();
        let one = |ticks: i64| Int64Array::from(vec![ticks]);
        assert_eq!(thirds.cut(&one(1_000), TimeUnit::Millisecond).unwrap(), one(999));
        let weeks = Bins::new(7 * 86_400 * second, (0, TimeUnit::Nanosecond)).unwrap();
        assert!(weeks.cut(&one(i64::MIN), TimeUnit::Second).is_err());
        assert!(Bins::new(0, (0, TimeUnit::Nanosecond)).is_none());
    }
}
