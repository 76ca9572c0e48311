//! Retention: how long the rows of a database, which is a bucket of InfluxDB's API, are kept.
//!
//! A database's `ttl` applies to each of its tables with a time index that has no `ttl` of its own. A row is outside
//! the retention when its time is older than the present minus the `ttl`: scans leave it out at once, and its file is
//! deleted later.

use std::time::Duration;

use crate::catalog::Database;
use crate::error::Error;
use crate::schema::TableSchema;

/// Shortest retention of a bucket that is made by InfluxDB's API. SQL accepts shorter ones.
pub const BUCKET_RETENTION_MIN: Duration = Duration::from_secs(3600);

/// The `ttl` for a bucket's `everySeconds`; 0 keeps rows for ever.
///
/// # Errors
/// [`Error::InvalidInput`] if it is shorter than an hour.
pub fn bucket_ttl(every_seconds: u64) -> Result<Option<Duration>, Error> {
    let ttl = Duration::from_secs(every_seconds);
    if ttl.is_zero() {
        return Ok(None);
    }
    if ttl < BUCKET_RETENTION_MIN {
        return Err(Error::InvalidInput(format!(
            "retention period of {every_seconds} seconds is shorter than the minimum of {} seconds",
            BUCKET_RETENTION_MIN.as_secs()
        )));
    }
    Ok(Some(ttl))
}

/// The `everySeconds` of a bucket with a `ttl`, rounded up; 0 means for ever.
pub fn bucket_seconds(ttl: Option<Duration>) -> u64 {
    ttl.map_or(0, |ttl| ttl.as_secs().saturating_add(u64::from(ttl.subsec_nanos() > 0)))
}

/// The `ttl` of a table: its own, or its database's if it has a time index. `None` for `schema` is a table that line
/// protocol is about to create.
pub fn table_ttl(database: Option<&Database>, schema: Option<&TableSchema>) -> Option<Duration> {
    let own = schema.and_then(|schema| schema.options.ttl);
    let has_time = schema.is_none_or(|schema| schema.time_index().is_some());
    own.or_else(|| database.filter(|_| has_time)?.ttl)
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
    use crate::id::{BOOTSTRAP_ROLE, ColumnId, DatabaseId, SchemaVersion};
    use crate::schema::{Column, ColumnType, Semantic, TableOptions, Unit};

    #[test]
    fn a_bucket_keeps_rows_for_an_hour_or_more_or_for_ever() {
        assert_eq!(bucket_ttl(0).unwrap(), None);
        assert_eq!(bucket_ttl(3600).unwrap(), Some(Duration::from_secs(3600)));
        assert!(bucket_ttl(3599).unwrap_err().to_string().contains("3600 seconds"));
        for seconds in [0, 3600, 86_400, u64::MAX] {
            assert_eq!(bucket_seconds(bucket_ttl(seconds).unwrap()), seconds);
        }
        assert_eq!(bucket_seconds(Some(Duration::from_millis(1))), 1);
    }

    #[test]
    fn a_table_has_its_own_ttl_or_that_of_its_database() {
        let hour = Some(Duration::from_secs(3600));
        let database =
            Database { id: DatabaseId(1), name: "b".to_owned(), ttl: hour, owner: BOOTSTRAP_ROLE };
        let column = |semantic, column_type| Column {
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
            comment: None,
        };
        let schema = |column| TableSchema {
            version: SchemaVersion(1),
            columns: vec![column],
            key: vec![ColumnId(1)],
            options: TableOptions::default(),
            next_column: ColumnId(2),
            schema_on_write: false,
        };
        let time = ColumnType::Timestamp(Unit::Nanosecond, false);
        let mut timed = schema(column(Semantic::TimeIndex, time));
        let plain = schema(column(Semantic::Tag, ColumnType::String));
        assert_eq!(table_ttl(Some(&database), None), hour);
        assert_eq!(table_ttl(Some(&database), Some(&timed)), hour);
        assert_eq!(table_ttl(Some(&database), Some(&plain)), None);
        assert_eq!(table_ttl(None, Some(&timed)), None);
        timed.options.ttl = Some(Duration::from_secs(1));
        assert_eq!(table_ttl(Some(&database), Some(&timed)), Some(Duration::from_secs(1)));
    }

    #[test]
    fn without_a_ttl_no_time_is_too_old() {
        assert_eq!(oldest_ns(5, None), i64::MIN);
        assert_eq!(oldest_ns(5_000_000_000, Some(Duration::from_secs(3))), 2_000_000_000);
        assert_eq!(oldest_ns(i64::MIN, Some(Duration::MAX)), i64::MIN);
    }
}
