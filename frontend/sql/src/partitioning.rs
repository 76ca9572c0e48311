//! The options of automatic partitioning, with YDB's names, and the bounds of `UNIFORM_PARTITIONS`.
//!
//! Invariants: each option has one name, which SHOW CREATE TABLE prints; shorter names are accepted for it; an option
//! that is not set, or is UNSET, has the value of [`Partitioning::default`].

use std::time::Duration;

use partita_proto::placement::Placement;
use partita_proto::range::Bound;
use partita_proto::schema::{ColumnType, HotspotRemedy, Partitioning, TableSchema};
use partita_proto::value::Value;

use super::identifier::fold;
use super::options::{OptionPair, OptionValue};
use super::quantity::{format_duration, parse_duration};
use crate::error::SqlError;

const BY_LOAD: &str = "auto_partitioning_by_load";
const BY_SIZE: &str = "auto_partitioning_by_size";
const PARTITION_SIZE_MB: &str = "auto_partitioning_partition_size_mb";
const MIN_PARTITIONS: &str = "auto_partitioning_min_partitions_count";
const MAX_PARTITIONS: &str = "auto_partitioning_max_partitions_count";
const HOTSPOT_REMEDY: &str = "hotspot_remedy";
const KEEP_TOGETHER: &str = "keep_together";
const MERGE_AFTER: &str = "auto_partitioning_merge_after";
const PIN_EXPIRY: &str = "pin_expiry";
const FORECAST: &str = "forecast";

/// Shorter names, with the names that they stand for.
const SHORT: [(&str, &str); 5] = [
    ("partition_size_mb", PARTITION_SIZE_MB),
    ("min_partitions_count", MIN_PARTITIONS),
    ("min_partitions", MIN_PARTITIONS),
    ("max_partitions_count", MAX_PARTITIONS),
    ("max_partitions", MAX_PARTITIONS),
];

/// One of the options of automatic partitioning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitioningOption {
    /// `AUTO_PARTITIONING_BY_LOAD`.
    ByLoad(bool),
    /// `AUTO_PARTITIONING_BY_SIZE`.
    BySize(bool),
    /// `AUTO_PARTITIONING_PARTITION_SIZE_MB`, MiB.
    PartitionSizeMb(u32),
    /// `AUTO_PARTITIONING_MIN_PARTITIONS_COUNT`.
    MinPartitions(u32),
    /// `AUTO_PARTITIONING_MAX_PARTITIONS_COUNT`; 0: no limit.
    MaxPartitions(u32),
    /// `hotspot_remedy`: off, advise or auto.
    HotspotRemedy(HotspotRemedy),
    /// `keep_together`, the number of leading key columns; 0: rows may be split anywhere.
    KeepTogether(u32),
    /// `AUTO_PARTITIONING_MERGE_AFTER`, seconds.
    MergeAfter(u32),
    /// `pin_expiry`, seconds; 0: never.
    PinExpiry(u32),
    /// `forecast`, on or off.
    Forecast(bool),
}

impl PartitioningOption {
    pub(super) fn apply(self, partitioning: &mut Partitioning) {
        match self {
            Self::ByLoad(enabled) => partitioning.by_load = enabled,
            Self::BySize(enabled) => partitioning.by_size = enabled,
            Self::PartitionSizeMb(size) => partitioning.partition_size_mb = size,
            Self::MinPartitions(number) => partitioning.min_partitions = number,
            Self::MaxPartitions(number) => partitioning.max_partitions = number,
            Self::HotspotRemedy(remedy) => partitioning.hotspot_remedy = remedy,
            Self::KeepTogether(columns) => partitioning.keep_together = columns,
            Self::MergeAfter(seconds) => partitioning.merge_after_s = seconds,
            Self::PinExpiry(seconds) => partitioning.pin_expiry_s = seconds,
            Self::Forecast(enabled) => partitioning.forecast = enabled,
        }
    }

    /// The option with another value.
    pub(super) fn other(self) -> Self {
        match self {
            Self::ByLoad(enabled) => Self::ByLoad(!enabled),
            Self::BySize(enabled) => Self::BySize(!enabled),
            Self::PartitionSizeMb(size) => Self::PartitionSizeMb(!size),
            Self::MinPartitions(number) => Self::MinPartitions(!number),
            Self::MaxPartitions(number) => Self::MaxPartitions(!number),
            Self::HotspotRemedy(HotspotRemedy::Off) => Self::HotspotRemedy(HotspotRemedy::Advise),
            Self::HotspotRemedy(_) => Self::HotspotRemedy(HotspotRemedy::Off),
            Self::KeepTogether(columns) => Self::KeepTogether(!columns),
            Self::MergeAfter(seconds) => Self::MergeAfter(!seconds),
            Self::PinExpiry(seconds) => Self::PinExpiry(!seconds),
            Self::Forecast(enabled) => Self::Forecast(!enabled),
        }
    }
}

/// The full name of an option's key.
pub(super) fn canonical(key: String) -> String {
    match SHORT.iter().find(|(short, _)| *short == key) {
        Some((_, name)) => (*name).to_owned(),
        None => key,
    }
}

impl OptionPair {
    /// The partitioning option of the pair; `None` for other keys. NULL is the default.
    pub(super) fn partitioning_option(&self) -> Result<Option<PartitioningOption>, SqlError> {
        // NULL and UNSET restore the default.
        let default = Partitioning::default();
        let null = matches!(self.value, OptionValue::Null);
        Ok(Some(match self.key.as_str() {
            BY_LOAD if null => PartitioningOption::ByLoad(default.by_load),
            BY_SIZE if null => PartitioningOption::BySize(default.by_size),
            PARTITION_SIZE_MB if null => {
                PartitioningOption::PartitionSizeMb(default.partition_size_mb)
            }
            MIN_PARTITIONS if null => PartitioningOption::MinPartitions(default.min_partitions),
            MAX_PARTITIONS if null => PartitioningOption::MaxPartitions(default.max_partitions),
            HOTSPOT_REMEDY if null => PartitioningOption::HotspotRemedy(default.hotspot_remedy),
            KEEP_TOGETHER if null => PartitioningOption::KeepTogether(default.keep_together),
            MERGE_AFTER if null => PartitioningOption::MergeAfter(default.merge_after_s),
            PIN_EXPIRY if null => PartitioningOption::PinExpiry(default.pin_expiry_s),
            FORECAST if null => PartitioningOption::Forecast(default.forecast),
            // Values have types and lower bounds.
            BY_LOAD => PartitioningOption::ByLoad(self.enabled()?),
            BY_SIZE => PartitioningOption::BySize(self.enabled()?),
            PARTITION_SIZE_MB => PartitioningOption::PartitionSizeMb(self.small(1)?),
            MIN_PARTITIONS => PartitioningOption::MinPartitions(self.small(1)?),
            MAX_PARTITIONS => PartitioningOption::MaxPartitions(self.small(0)?),
            KEEP_TOGETHER => PartitioningOption::KeepTogether(self.small(0)?),
            MERGE_AFTER => PartitioningOption::MergeAfter(self.seconds("a time such as '1h'")?),
            PIN_EXPIRY => PartitioningOption::PinExpiry(match fold(self.text()?).as_str() {
                "never" | "forever" => 0,
                _ => self.seconds("a time such as '30d', or 'never'")?,
            }),
            FORECAST => PartitioningOption::Forecast(self.enabled()?),
            HOTSPOT_REMEDY => {
                PartitioningOption::HotspotRemedy(match fold(self.text()?).as_str() {
                    "off" => HotspotRemedy::Off,
                    "advise" => HotspotRemedy::Advise,
                    "auto" => HotspotRemedy::Auto,
                    _ => return Err(self.wrong("'off', 'advise' or 'auto'")),
                })
            }
            _ => return Ok(None),
        }))
    }

    fn enabled(&self) -> Result<bool, SqlError> {
        match self.text().map(fold).as_deref() {
            Ok("enabled" | "true" | "on") => Ok(true),
            Ok("disabled" | "false" | "off") => Ok(false),
            _ => Err(self.wrong("ENABLED or DISABLED")),
        }
    }

    /// The value as a length of time in whole seconds, at least one.
    fn seconds(&self, expected: &str) -> Result<u32, SqlError> {
        let length = parse_duration(&fold(self.text()?));
        let seconds =
            length.filter(|length| length.subsec_nanos() == 0).map(|length| length.as_secs());
        let seconds = seconds.and_then(|seconds| u32::try_from(seconds).ok());
        seconds.filter(|seconds| *seconds > 0).ok_or_else(|| self.wrong(expected))
    }

    fn small(&self, least: u32) -> Result<u32, SqlError> {
        let number = self.number().ok().and_then(|number| u32::try_from(number).ok());
        number
            .filter(|number| *number >= least)
            .ok_or_else(|| self.wrong(&format!("a whole number from {least} on")))
    }
}

/// The options that differ from the default, as SHOW CREATE TABLE prints them.
pub(super) fn non_default(partitioning: &Partitioning) -> Vec<(&'static str, String)> {
    // Destructured, so that a new option cannot be forgotten.
    let Partitioning {
        by_load,
        by_size,
        partition_size_mb,
        min_partitions,
        max_partitions,
        hotspot_remedy,
        keep_together,
        merge_after_s,
        pin_expiry_s,
        forecast,
    } = *partitioning;
    let default = Partitioning::default();
    let switch = |enabled| if enabled { "ENABLED" } else { "DISABLED" }.to_owned();
    let mut options = Vec::new();
    // In the order in which they are documented.
    if by_load != default.by_load {
        options.push((BY_LOAD, switch(by_load)));
    }
    if by_size != default.by_size {
        options.push((BY_SIZE, switch(by_size)));
    }
    if partition_size_mb != default.partition_size_mb {
        options.push((PARTITION_SIZE_MB, partition_size_mb.to_string()));
    }
    if min_partitions != default.min_partitions {
        options.push((MIN_PARTITIONS, min_partitions.to_string()));
    }
    if max_partitions != default.max_partitions {
        options.push((MAX_PARTITIONS, max_partitions.to_string()));
    }
    if hotspot_remedy != default.hotspot_remedy {
        options.push((HOTSPOT_REMEDY, hotspot_remedy.sql().to_owned()));
    }
    if keep_together != default.keep_together {
        options.push((KEEP_TOGETHER, keep_together.to_string()));
    }
    let length = |seconds: u32| format_duration(Duration::from_secs(u64::from(seconds)));
    if merge_after_s != default.merge_after_s {
        options.push((MERGE_AFTER, length(merge_after_s)));
    }
    if pin_expiry_s != default.pin_expiry_s {
        options.push((PIN_EXPIRY, length(pin_expiry_s)));
    }
    if forecast != default.forecast {
        options.push((FORECAST, switch(forecast)));
    }
    options
}

/// The bounds for `UNIFORM_PARTITIONS = n` of a table placed by range: the values of the first key column in n equal
/// parts.
///
/// # Errors
/// When the first key column is not an integer.
pub(super) fn uniform_cuts(
    partitions: u16,
    schema: &TableSchema,
    placement: &Placement,
) -> Result<Vec<Bound>, SqlError> {
    debug_assert!(matches!(placement, Placement::Range), "hashes are cut by PARTITIONS n");
    let first = schema.key_columns().next();
    let width = |bits: u32| Some((bits, first.map(|column| column.column_type)));
    let width_and_type = match first.map(|column| column.column_type) {
        Some(ColumnType::UInt8 | ColumnType::Int8) => width(8),
        Some(ColumnType::UInt16 | ColumnType::Int16) => width(16),
        Some(ColumnType::UInt32 | ColumnType::Int32) => width(32),
        Some(ColumnType::UInt64 | ColumnType::Int64) => width(64),
        _ => None,
    };
    let Some((bits, column_type)) = width_and_type else {
        let column = first.map_or_else(
            || "which the table does not have".to_owned(),
            |column| format!("but \"{}\" is {}", column.name, column.column_type.sql()),
        );
        return Err(SqlError::new(
            "42P16",
            format!("UNIFORM_PARTITIONS requires an integer as first key column, {column}"),
        )
        .with_hint("list the partition boundaries with SPLIT AT or PARTITION_AT_KEYS"));
    };
    let signed = matches!(
        column_type,
        Some(ColumnType::Int8 | ColumnType::Int16 | ColumnType::Int32 | ColumnType::Int64)
    );
    let cut = |part: u16| {
        let offset = (u128::from(part) << bits) / u128::from(partitions);
        let value = if signed {
            let low = -(1_i128 << (bits - 1));
            i128::try_from(offset).ok().and_then(|o| i64::try_from(low + o).ok()).map(Value::Int)
        } else {
            u64::try_from(offset).ok().map(Value::UInt)
        };
        // The offset is below 2^bits, so the value always exists.
        value.map(|value| Bound { placement: None, key: vec![value] })
    };
    Ok((1..partitions).filter_map(cut).collect())
}
