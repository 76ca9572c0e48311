//! Time zones: names as in PostgreSQL, and the instants of local times.
//!
//! A TIMESTAMPTZ is an instant, and its type always says UTC. The zone of a session is an argument of the functions
//! that depend on it (`zoned.rs`), so that they have the same result at a node.
//!
//! Invariants:
//! - every local time has one instant: the later one of two when clocks go back; a time that is skipped when clocks go
//!   forward has the offset from before;
//! - the tz database's rules apply forever, as in PostgreSQL, although the compiled tables end;
//! - offsets in names have POSIX's sign, as in PostgreSQL: `UTC+5` is west of Greenwich. A number alone, and an
//!   interval, count hours east.

use std::fmt;
use std::str::FromStr;

use arrow::array::timezone::Tz;
use chrono::{DateTime, MappedLocalTime, NaiveDateTime, Offset, TimeZone};
use chrono_tz::OffsetName;

use crate::civil::{date_of, day_of};

const DAY: i64 = 86_400;
const HOUR: i64 = 3_600;
/// Length of a stretch of time in which offsets are cached; today's offsets change at multiples of it. Only a hint for
/// where to look.
const SLOT: i64 = 900;
/// The last year of the tables. The 28 years before its end begin on every day of the week, leap years included.
const LAST_YEAR: i64 = 2_099;
const YEARS_OF_ALL_KINDS: i64 = 28;
/// Offsets are less than a day.
const MINUTES_OF_DAY: f64 = 1_440.0;

/// A time zone.
#[derive(Clone, Copy, Debug)]
pub enum Zone {
    /// Seconds east of Greenwich.
    Fixed(i32),
    /// A zone of the tz database.
    Named(Tz),
}

impl Zone {
    /// Universal time.
    pub const UTC: Self = Self::Fixed(0);

    /// Looks up a zone as SET TIME ZONE does: like [`Self::named`], or by hours east of Greenwich.
    pub fn of_setting(text: &str) -> Option<Self> {
        match text.trim().parse::<f64>() {
            Ok(hours) => {
                let minutes = (hours * 60.0).round();
                #[expect(clippy::cast_possible_truncation, reason = "less than a day")]
                (minutes.abs() < MINUTES_OF_DAY).then_some(Self::Fixed(minutes as i32 * 60))
            }
            Err(_) => Self::named(text),
        }
    }

    /// Looks up a zone as AT TIME ZONE does: by its name in the tz database, in any case, or by an optional
    /// abbreviation and an offset with POSIX's sign (`UTC+5`, `<+05:30>-05:30`).
    pub fn named(text: &str) -> Option<Self> {
        let text = text.trim();
        if ["utc", "gmt", "z", "etc/utc", "zulu"].iter().any(|utc| text.eq_ignore_ascii_case(utc)) {
            return Some(Self::UTC);
        }
        // Arrow's parser reads offsets with the opposite sign.
        let is_name = text.starts_with(|c: char| c.is_ascii_alphabetic());
        let written = || [text.to_owned(), text.to_ascii_uppercase(), capitalized(text)];
        let database_zone = is_name
            .then(|| written().iter().find_map(|name| Tz::from_str(name).ok()))
            .flatten()
            .map(Self::Named);
        database_zone.or_else(|| posix(text))
    }

    /// Parses a zone of Arrow's types, where an offset has ISO's sign.
    pub fn of_arrow(text: &str) -> Option<Self> {
        match text.strip_prefix(['+', '-']) {
            Some(offset) => {
                let east = clock(offset)?;
                Some(Self::Fixed(if text.starts_with('-') { -east } else { east }))
            }
            None if text == "UTC" => Some(Self::UTC),
            None => Tz::from_str(text).ok().map(Self::Named),
        }
    }

    /// Name of the zone in Arrow's types.
    pub fn arrow(&self) -> String {
        match self {
            Self::Fixed(0) => "UTC".to_owned(),
            Self::Fixed(east) => {
                let sign = if *east < 0 { '-' } else { '+' };
                let (hours, minutes) = (east.abs() / 3_600, east.abs() % 3_600 / 60);
                format!("{sign}{hours:02}:{minutes:02}")
            }
            Self::Named(zone) => zone.to_string(),
        }
    }

    /// Returns true for universal time.
    pub fn is_utc(&self) -> bool {
        matches!(self, Self::Fixed(0))
    }

    /// Seconds by which local time is ahead of UTC at an instant, which is in seconds since 1970.
    pub fn offset_at(&self, instant: i64) -> i64 {
        match self {
            Self::Fixed(east) => (*east).into(),
            Self::Named(zone) => {
                let instant = within_tables(instant);
                zone.offset_from_utc_datetime(&naive(instant)).fix().local_minus_utc().into()
            }
        }
    }

    /// Seconds by which a local time, in seconds since 1970, is ahead of UTC.
    pub fn offset_of_local(&self, local: i64) -> i64 {
        let zone = match self {
            Self::Fixed(east) => return (*east).into(),
            Self::Named(zone) => zone,
        };
        match zone.offset_from_local_datetime(&naive(within_tables(local))) {
            MappedLocalTime::Single(offset) => offset.fix().local_minus_utc().into(),
            MappedLocalTime::Ambiguous(first, second) => {
                first.fix().local_minus_utc().min(second.fix().local_minus_utc()).into()
            }
            // No offset is a day long, so this instant is before the clocks went forward.
            MappedLocalTime::None => self.offset_at(local.saturating_sub(DAY)),
        }
    }

    /// Abbreviation of the zone at an instant in seconds since 1970 (`CET`, `CEST`), or its offset where the tz
    /// database has none.
    pub(crate) fn abbreviation_at(&self, instant: i64) -> String {
        match self {
            Self::Fixed(0) => "UTC".to_owned(),
            Self::Fixed(_) => self.arrow(),
            Self::Named(zone) => match chrono_tz::Tz::from_str(&zone.to_string()) {
                Ok(zone) => {
                    let offset = zone.offset_from_utc_datetime(&naive(within_tables(instant)));
                    offset.abbreviation().map_or_else(|| offset.fix().to_string(), str::to_owned)
                }
                Err(_) => self.arrow(),
            },
        }
    }

    /// A cache of offsets for times that are close together.
    pub fn offsets(self) -> Offsets {
        Offsets { zone: self, slot: None, offset: 0 }
    }
}

/// Formatted so that [`Zone::named`] can parse it.
impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(0) => f.write_str("UTC"),
            Self::Fixed(east) => write!(f, "<{}>{}", short(*east), short(-east)),
            Self::Named(zone) => zone.fmt(f),
        }
    }
}

/// Cache of a zone's offset, for instants that are mostly close together.
#[derive(Clone, Copy, Debug)]
pub struct Offsets {
    zone: Zone,
    /// Number of the stretch of time in which the offset is constant.
    slot: Option<i64>,
    offset: i64,
}

impl Offsets {
    /// Same as [`Zone::offset_at`].
    pub fn at(&mut self, instant: i64) -> i64 {
        let slot = instant.div_euclid(SLOT);
        if self.slot == Some(slot) {
            return self.offset;
        }
        self.offset = self.zone.offset_at(instant);
        let (first, last) = (slot.saturating_mul(SLOT), slot.saturating_mul(SLOT) + (SLOT - 1));
        let is_same =
            self.zone.offset_at(first) == self.offset && self.zone.offset_at(last) == self.offset;
        self.slot = is_same.then_some(slot);
        self.offset
    }
}

/// Maps a time after the tables to one in their last years with the same days of the week and the same length of the
/// year, because rules name days of the week in a month.
fn within_tables(seconds: i64) -> i64 {
    let days = seconds.div_euclid(DAY);
    // Times beyond chrono's calendar are never shown.
    let (year, _, _) = date_of(days.min(i64::MAX / 2));
    if year <= LAST_YEAR {
        return seconds;
    }
    let first = |year: i64| day_of(year, 1, 1);
    let length = |year: i64| first(year + 1) - first(year);
    let mut years = (LAST_YEAR - YEARS_OF_ALL_KINDS + 1..=LAST_YEAR).rev();
    let alike = years.find(|candidate| {
        (first(year) - first(*candidate)) % 7 == 0 && length(year) == length(*candidate)
    });
    alike.map_or(seconds, |alike| seconds - (first(year) - first(alike)) * DAY)
}

/// Date and time of seconds since 1970; times beyond chrono's calendar are moved near its end.
fn naive(seconds: i64) -> NaiveDateTime {
    // Leaves room for offsets that are added to it.
    let last = NaiveDateTime::MAX.and_utc().timestamp() - 2 * DAY;
    let first = NaiveDateTime::MIN.and_utc().timestamp() + 2 * DAY;
    let time = DateTime::from_timestamp(seconds.clamp(first, last), 0);
    time.map(|time| time.naive_utc()).unwrap_or_default()
}

/// Capitalizes `europe/berlin` to `Europe/Berlin`.
fn capitalized(text: &str) -> String {
    let mut begins = true;
    let capitalize = |c: char| {
        let cased = if begins { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() };
        begins = !c.is_ascii_alphabetic();
        cased
    };
    text.chars().map(capitalize).collect()
}

/// Parses `UTC+5` or `<+05:30>-05:30`; zones west of Greenwich have a positive offset.
fn posix(text: &str) -> Option<Zone> {
    let offset = match text.strip_prefix('<') {
        Some(quoted) => quoted.split_once('>')?.1,
        None => text.trim_start_matches(|c: char| c.is_ascii_alphabetic()),
    };
    let west = clock(offset.strip_prefix(['+', '-']).unwrap_or(offset))?;
    Some(Zone::Fixed(if offset.starts_with('-') { west } else { -west }))
}

/// Parses `5` or `05:30` to seconds.
fn clock(text: &str) -> Option<i32> {
    let mut parts = text.split(':');
    let mut part = |end: i32| match parts.next() {
        None => Some(0),
        Some(digits) => {
            let is_number =
                (1..=2).contains(&digits.len()) && digits.bytes().all(|c| c.is_ascii_digit());
            is_number.then(|| digits.parse().ok()).flatten().filter(|number| *number < end)
        }
    };
    let seconds = part(24)? * 3_600 + part(60)? * 60;
    parts.next().is_none().then_some(seconds)
}

/// An offset as in PostgreSQL's names of zones: `+05`, `-03:30`.
fn short(east: i32) -> String {
    let sign = if east < 0 { '-' } else { '+' };
    let (hours, minutes) = (i64::from(east.abs()) / HOUR, i64::from(east.abs()) % HOUR / 60);
    if minutes == 0 {
        format!("{sign}{hours:02}")
    } else {
        format!("{sign}{hours:02}:{minutes:02}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds of a time without a zone.
    fn local(text: &str) -> i64 {
        NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S").unwrap().and_utc().timestamp()
    }

    #[test]
    fn names_are_those_of_postgresql() {
        let east = |text: &str| Zone::of_setting(text).map(|zone| zone.offset_at(1_719_792_000));
        for (text, offset) in [
            ("UTC", Some(0)),
            ("zulu", Some(0)),
            ("Europe/Berlin", Some(7_200)),
            ("europe/berlin", Some(7_200)),
            ("pst8pdt", Some(-7 * 3_600)),
            ("est", Some(-5 * 3_600)),
            ("Etc/GMT+5", Some(-5 * 3_600)),
            ("+05:30", Some(-19_800)),
            ("GMT+05:30", Some(-19_800)),
            ("UTC+5", Some(-5 * 3_600)),
            ("GMT-3", Some(3 * 3_600)),
            ("<+05:30>-05:30", Some(19_800)),
            ("5", Some(5 * 3_600)),
            ("-7.5", Some(-27_000)),
            ("Nowhere", None),
            ("+0530", None),
            ("99", None),
            ("NaN", None),
            ("UTC+25", None),
            ("", None),
        ] {
            assert_eq!(east(text), offset, "{text}");
        }
        assert_eq!(Zone::named("5").map(|zone| zone.offset_at(0)), Some(-5 * 3_600));
    }

    #[test]
    fn a_zone_is_read_as_it_is_written() {
        for (text, written, arrow) in [
            ("utc", "UTC", "UTC"),
            ("asia/tokyo", "Asia/Tokyo", "Asia/Tokyo"),
            ("-7", "<-07>+07", "-07:00"),
            ("5.5", "<+05:30>-05:30", "+05:30"),
            ("GMT+3", "<-03>+03", "-03:00"),
        ] {
            let zone = Zone::of_setting(text).unwrap();
            assert_eq!((zone.to_string(), zone.arrow()), (written.to_owned(), arrow.to_owned()));
            assert_eq!(Zone::named(written).unwrap().to_string(), written);
            assert_eq!(Zone::of_arrow(arrow).unwrap().to_string(), written);
        }
        assert!(Zone::of_arrow("Nowhere").is_none());
    }

    #[test]
    fn a_local_time_that_is_twice_or_never_there_has_one_instant() {
        let berlin = Zone::named("Europe/Berlin").unwrap();
        for (time, hours) in [
            ("2024-07-01 12:00:00", 2),
            ("2024-01-01 12:00:00", 1),
            ("2024-10-27 01:59:59", 2),
            ("2024-10-27 02:00:00", 1),
            ("2024-10-27 02:59:59", 1),
            ("2024-03-31 01:59:59", 1),
            ("2024-03-31 02:00:00", 1),
            ("2024-03-31 02:59:59", 1),
            ("2024-03-31 03:00:00", 2),
        ] {
            assert_eq!(berlin.offset_of_local(local(time)), hours * 3_600, "{time}");
        }
        // Today's rules continue.
        for (time, hours) in [
            ("2099-07-01 12:00:00", 2),
            ("2100-07-01 12:00:00", 2),
            ("2101-01-01 00:00:00", 1),
            ("2104-03-30 01:59:59", 1),
            ("2104-03-30 03:00:00", 2),
            ("2200-06-15 20:45:00", 2),
            ("2200-10-26 03:00:00", 1),
            ("2200-12-31 23:59:59", 1),
            ("9999-08-01 00:00:00", 2),
        ] {
            assert_eq!(berlin.offset_of_local(local(time)), hours * 3_600, "{time}");
            assert_eq!(berlin.offset_at(local(time) - hours * 3_600), hours * 3_600, "{time}");
        }
        // A day that was skipped.
        let apia = Zone::named("Pacific/Apia").unwrap();
        assert_eq!(apia.offset_of_local(local("2011-12-30 12:00:00")), -10 * 3_600);
        for instant in [i64::MIN, i64::MIN / 2, i64::MAX / 2, i64::MAX] {
            berlin.offset_at(instant);
            berlin.offset_of_local(instant);
        }
    }

    #[test]
    fn offsets_of_neighbours_are_those_of_each() {
        for name in ["Europe/Berlin", "Australia/Lord_Howe", "Asia/Kathmandu", "UTC", "+05:30"] {
            let zone = Zone::named(name).unwrap();
            let mut offsets = zone.offsets();
            for instant in (0..400_000).map(|step| 1_679_000_000 + step * 97) {
                assert_eq!(offsets.at(instant), zone.offset_at(instant), "{name} {instant}");
            }
            for instant in (-3_000_000_000..-2_300_000_000).step_by(12_347) {
                assert_eq!(offsets.at(instant), zone.offset_at(instant), "{name} {instant}");
            }
        }
    }
}
