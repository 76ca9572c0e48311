//! Weather balloons that measure once a minute, and their rows under each pattern.
//!
//! ```text
//!   us-west2#3698#pressure#week1        "94558" = ""      1  a new column for each event, the value in its name
//!   us-west2#3698#week1                 pressure = 94558  2  a new cell of a column for each event
//!   us-west2#3698#2021-03-05-1200       blob = ..         3  a row for each event, serialized
//!   us-west2#3698#2021-03-05-1200       pressure = 94558  4  a row for each event, a column for each measurement
//!   us-west2#3698#week1                 blob = ..         5  a new cell for each event, serialized
//! ```
//!
//! Beside them is an ordinary table of the same events. An event is all that a balloon measures in a minute.
//!
//! Invariants: an event follows from the seed, its balloon and its minute, so all patterns store the same measurements;
//! all measurements of pressure are from 94,122 to 96,025.

use std::fmt::Write as _;

use clap::ValueEnum;
use prost::Message;
use serde::Serialize;

use crate::civil::spaced;
use crate::random::Random;

/// Time of the first minute: Monday, 2021-03-01 00:00 UTC, in seconds since 1970.
const START_S: i64 = 1_614_556_800;
const MINUTE_S: i64 = 60;
/// Minutes of a day.
const DAY: u64 = 1_440;
/// Minutes of a week, which is the bucket of patterns 1, 2 and 5.
pub(super) const WEEK: u64 = 10_080;
/// Id of the first balloon.
const FIRST_ID: u32 = 3_698;
const LOCATIONS: [&str; 10] = [
    "us-west2",
    "asia-south2",
    "asia-southeast1",
    "europe-north1",
    "europe-west4",
    "me-central1",
    "southamerica-east1",
    "us-central1",
    "us-east1",
    "australia-southeast1",
];
pub(super) const METRICS: [&str; 4] = ["pressure", "temperature", "humidity", "altitude"];
/// Column family of all cells.
pub(super) const FAMILY: &str = "measurements";
/// Column of serialized events.
const BLOB: &str = "measurements_blob";

/// A way to store events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Pattern {
    /// Time buckets, a new column for each event.
    #[value(name = "1")]
    NewColumns,
    /// Time buckets, a new cell for each event.
    #[value(name = "2")]
    NewCells,
    /// Single timestamps, serialized.
    #[value(name = "3")]
    Serialized,
    /// Single timestamps, not serialized.
    #[value(name = "4")]
    Unserialized,
    /// Time buckets of serialized events.
    #[value(name = "5")]
    SerializedCells,
    /// An ordinary table, a row for each event.
    #[value(name = "table")]
    Table,
}

impl Pattern {
    pub(super) const ALL: [Self; 6] = [
        Self::NewColumns,
        Self::NewCells,
        Self::Serialized,
        Self::Unserialized,
        Self::SerializedCells,
        Self::Table,
    ];

    /// Name in reports.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::NewColumns => "1 new columns",
            Self::NewCells => "2 new cells",
            Self::Serialized => "3 serialized",
            Self::Unserialized => "4 unserialized",
            Self::SerializedCells => "5 serialized cells",
            Self::Table => "ordinary table",
        }
    }

    /// Table of the pattern.
    pub(super) fn table(self) -> &'static str {
        match self {
            Self::NewColumns => "lab_patterns_1",
            Self::NewCells => "lab_patterns_2",
            Self::Serialized => "lab_patterns_3",
            Self::Unserialized => "lab_patterns_4",
            Self::SerializedCells => "lab_patterns_5",
            Self::Table => "lab_patterns_table",
        }
    }

    /// True if a row holds all events of a week.
    pub(super) fn has_buckets(self) -> bool {
        matches!(self, Self::NewColumns | Self::NewCells | Self::SerializedCells)
    }

    /// True if an event is one value.
    pub(super) fn is_serialized(self) -> bool {
        matches!(self, Self::Serialized | Self::SerializedCells)
    }

    /// Cells that an event becomes; those of an ordinary row are its fields.
    pub(super) fn cells_per_event(self) -> u64 {
        if self.is_serialized() { 1 } else { METRICS.len() as u64 }
    }
}

/// Order of the parts of row keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum KeyOrder {
    /// Location and balloon, then the time.
    Balloon,
    /// The time, then location and balloon.
    Time,
}

/// Measurements of an event, as they are serialized.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Measurements {
    /// Pascals.
    #[prost(uint32, tag = "1")]
    pressure: u32,
    /// Tenths of a degree Celsius.
    #[prost(uint32, tag = "2")]
    temperature_tenths: u32,
    /// Percent.
    #[prost(uint32, tag = "3")]
    humidity: u32,
    /// Metres.
    #[prost(uint32, tag = "4")]
    altitude: u32,
}

impl Measurements {
    /// Texts in the order of [`METRICS`].
    fn texts(&self) -> [String; 4] {
        [
            self.pressure.to_string(),
            format!("{}.{}", self.temperature_tenths / 10, self.temperature_tenths % 10),
            self.humidity.to_string(),
            self.altitude.to_string(),
        ]
    }
}

/// The report of one balloon at one minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) balloon: u32,
    /// Minutes since the first one.
    pub(super) minute: u64,
}

/// Balloons and their minutes.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Data {
    pub(super) balloons: u32,
    pub(super) minutes: u64,
    pub(super) seed: u64,
    pub(super) key_order: KeyOrder,
    /// Partitions of each table, at most.
    pub(super) partitions: u32,
}

/// Location of a balloon.
pub(super) fn location(balloon: u32) -> &'static str {
    LOCATIONS[balloon as usize % LOCATIONS.len()]
}

/// Location and id of a balloon, as row keys have them.
pub(super) fn balloon_key(balloon: u32) -> String {
    format!("{}#{}", location(balloon), FIRST_ID + balloon)
}

/// Time of a minute in SQL.
pub(super) fn moment(minute: u64) -> String {
    spaced(START_S.saturating_add(minute.cast_signed().saturating_mul(MINUTE_S)))
}

/// Time of a minute in row keys, such as `2021-03-05-1204`.
pub(super) fn stamp(minute: u64) -> String {
    let moment = moment(minute);
    format!("{}-{}{}", &moment[..10], &moment[11..13], &moment[14..16])
}

/// Name of the bucket of a minute.
pub(super) fn bucket(minute: u64) -> String {
    format!("week{}", minute / WEEK + 1)
}

impl Data {
    /// Number of events.
    pub(super) fn events(&self) -> u64 {
        self.minutes * u64::from(self.balloons)
    }

    /// The event with this number: minute by minute, all balloons in each.
    pub(super) fn event(&self, number: u64) -> Event {
        let balloons = u64::from(self.balloons);
        let balloon = u32::try_from(number % balloons).unwrap_or_default();
        Event { balloon, minute: number / balloons }
    }

    /// Balloons at a location.
    pub(super) fn balloons_at(&self, name: &str) -> u64 {
        (0..self.balloons).filter(|balloon| location(*balloon) == name).count() as u64
    }

    /// A day's wave and some noise.
    pub(super) fn measure(&self, event: Event) -> Measurements {
        let stream = event.minute.wrapping_mul(1 << 20) ^ u64::from(event.balloon);
        let mut random = Random::new(self.seed, stream);
        let wave = (event.minute % DAY).abs_diff(DAY / 2);
        let mut value = |base: u64, step: u64, noise: u64| {
            u32::try_from(base + step + random.below(noise)).unwrap_or(u32::MAX)
        };
        Measurements {
            pressure: value(94_122, wave * 2, 464),
            temperature_tenths: value(60, wave / 10, 10),
            humidity: value(50, wave / 40, 5),
            altitude: value(590, wave / 30, 16),
        }
    }

    /// Key of the row that has an event, or this measurement of it.
    pub(super) fn row_key(&self, pattern: Pattern, event: Event, metric: &str) -> String {
        let mut entity = balloon_key(event.balloon);
        if pattern == Pattern::NewColumns {
            entity = format!("{entity}#{metric}");
        }
        let time = if pattern.has_buckets() { bucket(event.minute) } else { stamp(event.minute) };
        match self.key_order {
            KeyOrder::Balloon => format!("{entity}#{time}"),
            KeyOrder::Time => format!("{time}#{entity}"),
        }
    }

    /// The INSERT of some events.
    pub(super) fn insert(&self, pattern: Pattern, events: impl Iterator<Item = Event>) -> String {
        let columns = match pattern {
            Pattern::Table => "balloon, ts, pressure, temperature, humidity, altitude",
            _ => "row_key, family, qualifier, cell_ts, value",
        };
        let mut statement = format!("INSERT INTO {} ({columns}) VALUES ", pattern.table());
        for (number, event) in events.enumerate() {
            if number > 0 {
                statement.push_str(", ");
            }
            self.append(pattern, event, &mut statement);
        }
        statement
    }

    /// Appends the tuples of an event.
    fn append(&self, pattern: Pattern, event: Event, statement: &mut String) {
        let (measured, time) = (self.measure(event), moment(event.minute));
        // Writing to a string cannot fail.
        if pattern == Pattern::Table {
            let (key, texts) = (balloon_key(event.balloon), measured.texts().join(", "));
            let _ok = write!(statement, "('{key}', '{time}', {texts})");
            return;
        }
        if pattern.is_serialized() {
            let key = self.row_key(pattern, event, "");
            let _ok = write!(statement, "('{key}', '{FAMILY}', '{BLOB}', '{time}', X'");
            for byte in measured.encode_to_vec() {
                let _ok = write!(statement, "{byte:02x}");
            }
            statement.push_str("')");
            return;
        }
        for (number, (metric, text)) in METRICS.iter().zip(measured.texts()).enumerate() {
            let separator = if number > 0 { ", " } else { "" };
            let key = self.row_key(pattern, event, metric);
            let (qualifier, value) = match pattern {
                Pattern::NewColumns => (text.as_str(), ""),
                _ => (*metric, text.as_str()),
            };
            let _ok = write!(
                statement,
                "{separator}('{key}', '{FAMILY}', '{qualifier}', '{time}', '{value}')"
            );
        }
    }

    /// The CREATE TABLE of a pattern.
    pub(super) fn create(&self, pattern: Pattern) -> String {
        let (name, splits) = (pattern.table(), self.splits(pattern));
        if pattern != Pattern::Table {
            let splits: Vec<String> = splits.iter().map(|key| format!("'{key}'")).collect();
            let clause = match splits.is_empty() {
                true => String::new(),
                false => format!(" SPLIT AT ({})", splits.join(", ")),
            };
            return format!(
                "CREATE TABLE {name} WIDE (ROW KEY STRING) FAMILIES ({FAMILY}){clause}"
            );
        }
        let (first, key) = match self.key_order {
            KeyOrder::Balloon => ("balloon", "balloon, ts"),
            KeyOrder::Time => ("ts", "ts, balloon"),
        };
        let splits: Vec<String> = splits.iter().map(|key| format!("('{key}')")).collect();
        let clause = match splits.is_empty() {
            true => String::new(),
            false => format!(" PARTITION BY RANGE ({first}) SPLIT AT ({})", splits.join(", ")),
        };
        format!(
            "CREATE TABLE {name} (balloon STRING, ts TIMESTAMP(6) TIME INDEX, pressure BIGINT, temperature DOUBLE, humidity BIGINT, altitude BIGINT, PRIMARY KEY ({key})){clause}"
        )
    }

    /// First keys of the second and later partitions, which then have about as many events each.
    pub(super) fn splits(&self, pattern: Pattern) -> Vec<String> {
        let of_minutes =
            |name: fn(u64) -> String| -> Vec<String> { (0..self.minutes).map(name).collect() };
        let mut keys: Vec<String> = match (self.key_order, pattern) {
            (KeyOrder::Time, Pattern::Table) => of_minutes(moment),
            (KeyOrder::Time, pattern) if !pattern.has_buckets() => of_minutes(stamp),
            (KeyOrder::Time, _) => (0..self.balloons)
                .map(|balloon| format!("{}#{}", bucket(0), balloon_key(balloon)))
                .collect(),
            (KeyOrder::Balloon, _) => (0..self.balloons).map(balloon_key).collect(),
        };
        keys.sort_unstable();
        let count = u64::from(self.partitions);
        let position = |part: u64| keys.len() as u64 * part / count.max(1);
        let mut splits: Vec<String> = (1..count)
            .filter_map(|part| usize::try_from(position(part)).ok())
            .filter(|position| *position > 0)
            .filter_map(|position| keys.get(position).cloned())
            .collect();
        splits.dedup();
        splits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(key_order: KeyOrder) -> Data {
        Data { balloons: 40, minutes: WEEK, seed: 1, key_order, partitions: 4 }
    }

    /// Noon of Friday, 2021-03-05.
    const NOON: u64 = 4 * DAY + 720;

    #[test]
    fn row_keys_are_those_of_the_document() {
        let (by_balloon, by_time) = (data(KeyOrder::Balloon), data(KeyOrder::Time));
        let event = Event { balloon: 0, minute: NOON };
        for (pattern, key, reversed) in [
            (Pattern::NewColumns, "us-west2#3698#pressure#week1", "week1#us-west2#3698#pressure"),
            (Pattern::NewCells, "us-west2#3698#week1", "week1#us-west2#3698"),
            (
                Pattern::Unserialized,
                "us-west2#3698#2021-03-05-1200",
                "2021-03-05-1200#us-west2#3698",
            ),
        ] {
            assert_eq!(by_balloon.row_key(pattern, event, "pressure"), key);
            assert_eq!(by_time.row_key(pattern, event, "pressure"), reversed);
        }
        assert_eq!(stamp(NOON + 4), "2021-03-05-1204");
        assert_eq!((bucket(WEEK - 1).as_str(), bucket(WEEK).as_str()), ("week1", "week2"));
    }

    #[test]
    fn an_event_is_four_cells_or_one_and_a_repeated_pressure_is_a_version() {
        let data = data(KeyOrder::Balloon);
        for pattern in Pattern::ALL {
            let statement = data.insert(pattern, [data.event(0), data.event(1)].into_iter());
            let tuples = statement.matches("('").count() as u64;
            let expected = if pattern == Pattern::Table { 1 } else { pattern.cells_per_event() };
            assert_eq!(tuples, 2 * expected, "{statement}");
        }
        // As many cells as minutes, but no more qualifiers than there are pressures.
        let pressures: std::collections::BTreeSet<u32> = (0..data.minutes)
            .map(|minute| data.measure(Event { balloon: 0, minute }).pressure)
            .collect();
        assert!(pressures.len() <= 1_904 && pressures.len() > 1_000, "{}", pressures.len());
        assert!(pressures.iter().all(|pressure| (94_122..=96_025).contains(pressure)));
    }

    #[test]
    fn a_blob_is_read_back_as_it_was_measured() {
        let data = data(KeyOrder::Balloon);
        let measured = data.measure(Event { balloon: 7, minute: 99 });
        assert_eq!(Measurements::decode(&*measured.encode_to_vec()).unwrap(), measured);
        let known =
            Measurements { pressure: 94_558, temperature_tenths: 95, humidity: 65, altitude: 601 };
        assert_eq!(known.texts(), ["94558", "9.5", "65", "601"]);
        assert_eq!(known.encode_to_vec(), b"\x08\xde\xe2\x05\x10\x5f\x18\x41\x20\xd9\x04");
    }

    #[test]
    fn tables_are_split_between_balloons_or_between_times() {
        let by_balloon = data(KeyOrder::Balloon);
        assert_eq!(by_balloon.splits(Pattern::NewCells).len(), 3);
        assert_eq!(by_balloon.splits(Pattern::NewCells), by_balloon.splits(Pattern::Table));
        let single_balloon = Data { balloons: 1, ..by_balloon };
        assert_eq!(single_balloon.splits(Pattern::Unserialized), Vec::<String>::new());
        assert!(!single_balloon.create(Pattern::NewCells).contains("SPLIT"));
        let by_time = data(KeyOrder::Time);
        assert_eq!(by_time.splits(Pattern::Unserialized)[1], "2021-03-04-1200");
        assert!(by_time.splits(Pattern::NewCells)[0].starts_with("week1#"));
        assert!(by_time.create(Pattern::Table).contains("RANGE (ts) SPLIT AT (('2021-03-0"));
    }

    #[test]
    fn events_are_of_all_balloons_minute_by_minute() {
        let data = data(KeyOrder::Balloon);
        assert_eq!(data.event(41), Event { balloon: 1, minute: 1 });
        assert_eq!(data.events(), 40 * WEEK);
        assert_eq!(data.balloons_at("us-west2"), 4);
    }
}
