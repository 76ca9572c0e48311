//! Retention: how long the rows of a database, which is a bucket of InfluxDB's API, are kept.
//!
//! A database's `ttl` applies to each of its tables with a time index that has no `ttl` of its own. A row is outside
//! the retention when its time is older than the present minus the `ttl`: scans leave it out at once, and its file is
//! deleted later.

use std::time::Duration;

use crate::schema::TableSchema;

/// The `ttl` of a table: its own, or its database's if it has a time index. `None` for `schema` is a table that line
/// protocol is about to create.
pub fn table_ttl(database_ttl: Option<Duration>, schema: Option<&TableSchema>) -> Option<Duration> {
    let has_time = schema.is_none_or(|schema| schema.time_index().is_some());
    let inherited = database_ttl.filter(|_| has_time);
    schema.and_then(|schema| schema.options.ttl).or(inherited)
}

/// The oldest time in nanoseconds that is inside the retention.
pub fn oldest_ns(now_ns: i64, ttl: Option<Duration>) -> i64 {
    let Some(ttl) = ttl else { return i64::MIN };
    let ttl_ns = i64::try_from(ttl.as_nanos()).unwrap_or(i64::MAX);
    now_ns.saturating_sub(ttl_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{ColumnId, SchemaVersion};
    use crate::schema::{Column, ColumnType, Semantic, TableOptions, Unit};

    fn schema(semantic: Semantic, column_type: ColumnType) -> TableSchema {
        let column = Column {
            id: ColumnId(1),
            name: "c".to_owned(),
            storage_name: "c".to_owned(),
            column_type,
            nullable: false,
            semantic,
            default: None,
            generated: None,
            missing: None,
            length: None,
            json: None,
            indexes: Vec::new(),
            comment: None,
        };
        TableSchema {
            version: SchemaVersion(1),
            columns: vec![column],
            key: vec![ColumnId(1)],
            options: TableOptions::default(),
            next_column: ColumnId(2),
            schema_on_write: false,
            checks: Vec::new(),
            view: None,
        }
    }

    #[test]
    fn a_table_has_its_own_ttl_or_that_of_its_database() {
        let hour = Some(Duration::from_secs(3600));
        let mut timed = schema(Semantic::TimeIndex, ColumnType::Timestamp(Unit::Nanosecond, false));
        let plain = schema(Semantic::Tag, ColumnType::String);
        assert_eq!(table_ttl(hour, None), hour);
        assert_eq!(table_ttl(hour, Some(&timed)), hour);
        assert_eq!(table_ttl(hour, Some(&plain)), None);
        assert_eq!(table_ttl(None, Some(&timed)), None);
        timed.options.ttl = Some(Duration::from_secs(1));
        assert_eq!(table_ttl(hour, Some(&timed)), Some(Duration::from_secs(1)));
    }

    #[test]
    fn without_a_ttl_no_time_is_too_old() {
        assert_eq!(oldest_ns(5, None), i64::MIN);
        assert_eq!(oldest_ns(5_000_000_000, Some(Duration::from_secs(3))), 2_000_000_000);
        assert_eq!(oldest_ns(i64::MIN, Some(Duration::MAX)), i64::MIN);
    }
}
