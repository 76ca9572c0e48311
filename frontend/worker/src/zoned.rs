//! Functions that depend on a time zone and take it as an argument.
//!
//! ```text
//!   timezone(zone, t)                     AT TIME ZONE: converts an instant to a local time, or back
//!   instant_of_text(text, zone)           parses a TIMESTAMPTZ
//!   instant_plus(t, interval, zone)       adds months and days in the local calendar, then the rest
//!   instant_minus(t, interval, zone)
//! ```
//!
//! The frontend inserts them where a session's zone matters; statements can only call `timezone` by its name.
//!
//! Invariant: the type of an instant has the zone UTC, that of a local time has none.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
};
use arrow::error::ArrowError;
use datafusion::common::{ScalarValue, cast::as_string_array, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::civil::{date_of, day_of, per_second};
use crate::error::{SqlError, datetime_overflow};
use crate::moments::{Moment, ticks};
use crate::zone::Zone;

const DAY: i64 = 86_400;
/// Unit of times parsed from texts.
const OF_TEXT: TimeUnit = TimeUnit::Microsecond;

/// Zone in the type of instants.
const UTC: &str = "UTC";

/// The functions to register.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    let kinds = [Kind::Timezone, Kind::OfText, Kind::Plus, Kind::Minus];
    kinds.into_iter().map(|kind| ScalarUDF::from(Zoned::new(kind)))
}

/// `timezone(zone, t)`.
pub fn timezone() -> ScalarUDF {
    Zoned::new(Kind::Timezone).into()
}

/// `instant_of_text(text, zone)`.
pub fn instant_of_text() -> ScalarUDF {
    Zoned::new(Kind::OfText).into()
}

/// `instant_plus(t, interval, zone)`.
pub fn instant_plus() -> ScalarUDF {
    Zoned::new(Kind::Plus).into()
}

/// `instant_minus(t, interval, zone)`.
pub fn instant_minus() -> ScalarUDF {
    Zoned::new(Kind::Minus).into()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Timezone,
    OfText,
    Plus,
    Minus,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Zoned {
    kind: Kind,
    signature: Signature,
}

impl Zoned {
    fn new(kind: Kind) -> Self {
        let signature = match kind {
            Kind::Timezone => Signature::user_defined(Volatility::Immutable),
            Kind::OfText => Signature::any(2, Volatility::Immutable),
            Kind::Plus | Kind::Minus => Signature::any(3, Volatility::Immutable),
        };
        Self { kind, signature }
    }
}

fn instants(unit: TimeUnit) -> DataType {
    DataType::Timestamp(unit, Some(UTC.into()))
}

fn out_of_range() -> ArrowError {
    datetime_overflow("timestamp")
}

fn zone_of(name: &str) -> Result<Zone> {
    let unknown = || SqlError::new("22023", format!("time zone \"{name}\" not recognized")).into();
    Zone::named(name).ok_or_else(unknown)
}

/// Ticks of times, and their unit.
fn ticks_of(times: &ArrayRef) -> Result<(Int64Array, TimeUnit)> {
    let DataType::Timestamp(unit, _) = times.data_type() else {
        return exec_err!("a time was expected, not {}", times.data_type());
    };
    Ok((cast(times, &DataType::Int64)?.as_primitive::<Int64Type>().clone(), *unit))
}

/// Converts between an instant and a zone's local time.
fn moved(ticks: i64, unit: TimeUnit, zone: Zone, to_local: bool) -> Option<i64> {
    let per = per_second(unit);
    let seconds = ticks.div_euclid(per);
    let offset = if to_local { zone.offset_at(seconds) } else { -zone.offset_of_local(seconds) };
    ticks.checked_add(offset.checked_mul(per)?)
}

/// `timezone`; the zone of adjacent rows with the same name is looked up once.
fn timezones(zones: &StringArray, times: &ArrayRef) -> Result<ArrayRef> {
    // A zone in the type makes the times instants.
    let to_local = matches!(times.data_type(), DataType::Timestamp(_, Some(_)));
    let (ticks, unit) = ticks_of(times)?;
    let mut cached: Option<(&str, Zone)> = None;
    let mut offsets = Zone::UTC.offsets();
    let per = per_second(unit);
    let mut shifted_ticks = Vec::with_capacity(ticks.len());
    for (name, ticks) in zones.iter().zip(&ticks) {
        let Some((name, ticks)) = name.zip(ticks) else {
            shifted_ticks.push(None);
            continue;
        };
        let zone = match cached {
            Some((cached_name, zone)) if cached_name == name => zone,
            _ => {
                let zone = zone_of(name)?;
                cached = Some((name, zone));
                offsets = zone.offsets();
                zone
            }
        };
        let shifted = if to_local {
            let offset = offsets.at(ticks.div_euclid(per));
            offset.checked_mul(per).and_then(|offset| ticks.checked_add(offset))
        } else {
            moved(ticks, unit, zone, false)
        };
        shifted_ticks.push(Some(shifted.ok_or_else(out_of_range)?));
    }
    let data_type = if to_local { DataType::Timestamp(unit, None) } else { instants(unit) };
    Ok(cast(&Int64Array::from(shifted_ticks), &data_type)?)
}

/// Parses texts as instants.
fn of_text(texts: &ArrayRef, zone: Zone) -> Result<ArrayRef> {
    let texts = cast(texts, &DataType::Utf8)?;
    let read = |text: &str| {
        let moment = Moment::parse(text).ok_or_else(|| {
            let type_name = "timestamp with time zone";
            SqlError::new("22007", format!("invalid input syntax for type {type_name}: \"{text}\""))
        })?;
        ticks(moment.instant(zone), OF_TEXT)
            .ok_or_else(|| SqlError::new("22008", format!("timestamp out of range: \"{text}\"")))
    };
    let texts = as_string_array(&texts)?.iter();
    let read: Int64Array =
        texts.map(|text| text.map(read).transpose()).collect::<Result<_, SqlError>>()?;
    Ok(cast(&read, &instants(OF_TEXT))?)
}

/// Moves an instant by an interval: first months, where a missing day becomes the last day of the month, then days,
/// both in the local calendar; then the rest.
fn shifted(
    ticks: i64,
    unit: TimeUnit,
    interval: IntervalMonthDayNano,
    (zone, sign): (Zone, i64),
) -> Option<i64> {
    let per = per_second(unit);
    let mut ticks = ticks;
    if interval.months != 0 || interval.days != 0 {
        let (seconds, part) = (ticks.div_euclid(per), ticks.rem_euclid(per));
        let local = seconds.checked_add(zone.offset_at(seconds))?;
        let (mut day, clock) = (local.div_euclid(DAY), local.rem_euclid(DAY));
        if interval.months != 0 {
            let (year, month, of_month) = date_of(day);
            let months = year * 12 + month - 1 + sign * i64::from(interval.months);
            let (year, month) = (months.div_euclid(12), months.rem_euclid(12) + 1);
            let next = day_of(year + month / 12, month % 12 + 1, 1);
            let first = day_of(year, month, 1);
            day = (first + of_month - 1).min(next - 1);
        }
        day += sign * i64::from(interval.days);
        let local = day.checked_mul(DAY)?.checked_add(clock)?;
        let seconds = local.checked_sub(zone.offset_of_local(local))?;
        ticks = seconds.checked_mul(per)?.checked_add(part)?;
    }
    let nanos_per_tick = 1_000_000_000 / per;
    let rest = (interval.nanoseconds / nanos_per_tick).checked_mul(sign)?;
    ticks.checked_add(rest)
}

fn all_shifted(times: &ArrayRef, intervals: &ArrayRef, zone: Zone, sign: i64) -> Result<ArrayRef> {
    let (ticks, unit) = ticks_of(times)?;
    let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>();
    let shift = |(ticks, interval): (Option<i64>, Option<IntervalMonthDayNano>)| {
        let Some((ticks, interval)) = ticks.zip(interval) else { return Ok(None) };
        shifted(ticks, unit, interval, (zone, sign)).map(Some).ok_or_else(out_of_range)
    };
    let results: Int64Array =
        ticks.iter().zip(intervals).map(shift).collect::<std::result::Result<_, ArrowError>>()?;
    Ok(cast(&results, times.data_type())?)
}

impl ScalarUDFImpl for Zoned {
    fn name(&self) -> &str {
        match self.kind {
            Kind::Timezone => "timezone",
            Kind::OfText => "instant_of_text",
            Kind::Plus => "instant_plus",
            Kind::Minus => "instant_minus",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let [zone, time] = types else {
            return exec_err!("timezone takes a time zone and a time");
        };
        let is_text = |data_type: &DataType| data_type.is_string() || *data_type == DataType::Null;
        if !is_text(zone) {
            return exec_err!("a time zone is a text, not {zone}");
        }
        let time = match time {
            DataType::Timestamp(..) => time.clone(),
            // As in PostgreSQL, an argument of an ambiguous type is an instant.
            DataType::Date32 | DataType::Date64 => instants(OF_TEXT),
            _ if is_text(time) => instants(OF_TEXT),
            _ => return exec_err!("AT TIME ZONE takes a time, not {time}"),
        };
        Ok(vec![DataType::Utf8, time])
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match (self.kind, types) {
            (Kind::Timezone, [_, DataType::Timestamp(unit, Some(_))]) => {
                Ok(DataType::Timestamp(*unit, None))
            }
            (Kind::Timezone, [_, DataType::Timestamp(unit, None)]) => Ok(instants(*unit)),
            (Kind::OfText, _) => Ok(instants(OF_TEXT)),
            (
                Kind::Plus | Kind::Minus,
                [
                    data_type @ DataType::Timestamp(..),
                    DataType::Interval(IntervalUnit::MonthDayNano),
                    _,
                ],
            ) => Ok(data_type.clone()),
            _ => exec_err!("{} does not take {types:?}", self.name()),
        }
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { args.number_rows };
        let arrays: Vec<ArrayRef> =
            args.args.iter().map(|arg| arg.to_array(rows)).collect::<Result<_>>()?;
        let zone = |position: usize| match args.args.get(position) {
            Some(ColumnarValue::Scalar(zone)) => {
                zone.try_as_str().flatten().map_or(Ok(Zone::UTC), zone_of)
            }
            _ => exec_err!("{}: the time zone must be a constant", self.name()),
        };
        let results = match (self.kind, arrays.as_slice()) {
            (Kind::Timezone, [zones, times]) => {
                let zones = cast(zones, &DataType::Utf8)?;
                timezones(as_string_array(&zones)?, times)?
            }
            (Kind::OfText, [texts, _]) => of_text(texts, zone(1)?)?,
            (Kind::Plus, [times, intervals, _]) => all_shifted(times, intervals, zone(2)?, 1)?,
            (Kind::Minus, [times, intervals, _]) => all_shifted(times, intervals, zone(2)?, -1)?,
            _ => return exec_err!("unexpected number of arguments for {}()", self.name()),
        };
        if constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&results, 0)?));
        }
        Ok(ColumnarValue::Array(results))
    }
}

/// Converts values of a column to instants: local times and texts are in the zone. Instants, and values of other types,
/// stay as they are.
///
/// # Errors
/// When a text is not a time, or a time is out of range.
pub fn as_instants(values: &ArrayRef, zone: Zone) -> Result<ArrayRef, SqlError> {
    let local = |times: &ArrayRef| {
        let zones = StringArray::from(vec![zone.to_string(); times.len()]);
        timezones(&zones, times)
    };
    Ok(match values.data_type() {
        DataType::Timestamp(_, None) => local(values)?,
        DataType::Date32 => local(&cast(values, &DataType::Timestamp(TimeUnit::Second, None))?)?,
        data_type if data_type.is_string() => of_text(values, zone)?,
        _ => Arc::clone(values),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> i64 {
        ticks(Moment::parse(text).unwrap().instant(Zone::UTC), TimeUnit::Second).unwrap()
    }

    fn interval(months: i32, days: i32, hours: i64) -> IntervalMonthDayNano {
        IntervalMonthDayNano::new(months, days, hours * 3_600_000_000_000)
    }

    #[test]
    fn months_and_days_are_those_of_the_local_calendar() {
        let berlin = Zone::named("Europe/Berlin").unwrap();
        for (time, by, sign, expected) in [
            ("2024-03-30 02:30+01", interval(0, 1, 0), 1, "2024-03-31 03:30+02"),
            ("2024-10-26 02:30+02", interval(0, 1, 0), 1, "2024-10-27 02:30+01"),
            ("2024-10-26 02:30+02", interval(0, 0, 24), 1, "2024-10-27 02:30+02"),
            ("2024-01-31 12:00+01", interval(1, 0, 0), 1, "2024-02-29 12:00+01"),
            ("2024-07-01 00:00+02", interval(6, 1, 1), -1, "2023-12-30 23:00+01"),
            ("2024-12-31 12:00+01", interval(2, 0, 0), 1, "2025-02-28 12:00+01"),
            ("2024-12-31 12:00+01", interval(12, 0, 0), -1, "2023-12-31 12:00+01"),
        ] {
            let shifted = shifted(at(time), TimeUnit::Second, by, (berlin, sign));
            assert_eq!(shifted, Some(at(expected)), "{time} {by:?}");
        }
        let last = shifted(i64::MAX, TimeUnit::Nanosecond, interval(1, 0, 0), (berlin, 1));
        assert_eq!(last, None);
    }

    #[test]
    fn values_become_instants_where_they_are_local() {
        let berlin = Zone::named("Europe/Berlin").unwrap();
        let seconds = |array: &ArrayRef| {
            let seconds = cast(array, &DataType::Timestamp(TimeUnit::Second, None)).unwrap();
            ticks_of(&seconds).unwrap().0.iter().collect::<Vec<_>>()
        };
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("2024-07-01 00:00:00"), None]));
        let instants = as_instants(&texts, berlin).unwrap();
        assert_eq!(seconds(&instants), [Some(at("2024-06-30 22:00")), None]);
        let locals = cast(&texts, &DataType::Timestamp(TimeUnit::Millisecond, None)).unwrap();
        let instants = as_instants(&locals, berlin).unwrap();
        assert_eq!(seconds(&instants), [Some(at("2024-06-30 22:00")), None]);
        let again = as_instants(&instants, berlin).unwrap();
        assert_eq!(&again, &instants);
    }
}
