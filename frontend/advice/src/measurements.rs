//! Figures of tables and statements, which the rules judge.
//!
//! Names of tables are written as `database.table`, or without the database where there is none (lint); names of columns
//! stand alone.

use serde::{Deserialize, Serialize};

/// All that the rules know. A figure that is absent is `None`; a rule that needs it is silent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Measurements {
    /// Time of the measurements, in milliseconds since 1970.
    pub now_ms: i64,
    /// Tables, each with its figures.
    pub tables: Vec<TableFacts>,
    /// Statements by shape: literals aside.
    pub statements: Vec<StatementShape>,
    /// Limits and size of the cluster.
    pub settings: ClusterFacts,
}

/// Limits and size of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterFacts {
    /// Maximum number of columns of a table; 0: not known.
    pub column_limit: u64,
    /// CPU cores of all nodes.
    pub cores: Option<u64>,
    /// Number of nodes that hold rows.
    pub nodes: Option<u64>,
}

/// Placement of a table's rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placed {
    /// By key.
    #[default]
    Range,
    /// By hash.
    Hash {
        /// The hashed columns.
        columns: Vec<String>,
    },
    /// By rules.
    Rules {
        /// Columns that the rules name.
        columns: Vec<String>,
    },
}

/// Definition and figures of one table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TableFacts {
    /// Database name; empty: not known.
    pub database: String,
    /// Table name.
    pub name: String,
    /// Output of SHOW CREATE TABLE.
    pub created: String,
    /// True for a materialized copy, whose rows and definition are those of another table.
    pub is_copy: bool,
    /// Names of its materialized copies.
    pub copies: Vec<String>,
    /// The columns, in SQL's order.
    pub columns: Vec<ColumnFacts>,
    /// Names of the key columns, most significant first, the time index included.
    pub key: Vec<String>,
    /// Name of the time index.
    pub time_index: Option<String>,
    /// True if every row is kept, without deduplication.
    pub append_mode: bool,
    /// `last_row` or `last_non_null`; `None` in append mode.
    pub merge_mode: Option<String>,
    /// Age at which rows expire, in milliseconds; `None`: never.
    pub ttl_ms: Option<u64>,
    /// Ids of rules that the owner has switched off.
    pub advice_off: Vec<String>,
    /// Names and values of the thresholds that the owner has set.
    pub thresholds: Vec<(String, f64)>,
    /// Placement of the rows.
    pub placement: Placed,
    /// The partitions, in the order of their keys.
    pub partitions: Vec<PartitionFacts>,
    /// Size above which a partition is split, in MiB.
    pub partition_size_mb: u64,
    /// Minimum number of partitions that merges leave.
    pub min_partitions: u64,
    /// Maximum number of partitions that splits create; 0: no limit.
    pub max_partitions: u64,
    /// Number of rows.
    pub rows: Option<u64>,
    /// Stored bytes.
    pub bytes: Option<u64>,
    /// Number of deletes.
    pub deletes: Option<u64>,
    /// Versions that merges have dropped since the start of the nodes.
    pub folded: Option<u64>,
    /// Number of series.
    pub series: Option<u64>,
    /// Estimate of the number of series, from the distinct values of the tags that do not depend on others.
    pub series_estimate: Option<u64>,
    /// Growth of the number of series per hour.
    pub series_growth_per_hour: Option<f64>,
    /// Tags that depend on another one, with the other one.
    pub dependent_tags: Vec<(String, String)>,
    /// Sets of fields with a value, and the number of rows of each.
    pub shapes: Vec<(Vec<String>, u64)>,
    /// Rows within a second of the row before of the same tag set, with other fields.
    pub split_rows: Option<u64>,
    /// Intervals between neighbouring rows of a tag set.
    pub intervals: Option<IntervalFacts>,
    /// Movement of the inserted keys towards the end of the key space.
    pub moving_right: Option<MovingFacts>,
    /// Keys with the greatest shares of load, the greatest first.
    pub hot_keys: Vec<HotKey>,
    /// Designs of the key by replayed samples, the best first; empty: too few keys were sampled.
    pub designs: Vec<DesignFacts>,
    /// Cycles of a split and a merge, per day.
    pub split_merge_cycles_per_day: Option<f64>,
    /// Mean number of rows that are kept together by the leading key columns.
    pub versions_per_key: Option<f64>,
    /// Length of a time bucket in the key, in seconds.
    pub bucket_seconds: Option<u64>,
    /// Size of the largest row, in bytes.
    pub row_bytes_max: Option<u64>,
    /// `metric` or `event`, from the table's comment.
    pub label: Option<String>,
}

/// Intervals between neighbouring rows of a tag set, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct IntervalFacts {
    /// Mean of them.
    pub mean_ms: f64,
    /// Standard deviation.
    pub deviation_ms: f64,
}

/// Movement of the inserted keys towards the end of the key space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MovingFacts {
    /// Share of the inserts above all keys before them.
    pub share_above: f64,
    /// Share of the last partition in the table's writes.
    pub last_share: f64,
}

/// A key with much load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HotKey {
    /// The key or its leading part, as text.
    pub key: String,
    /// Share of the partition's operations, 0 to 1.
    pub share: f64,
}

/// A design of a table's key, with its predicted effect.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DesignFacts {
    /// Key and placement in SQL.
    pub clauses: String,
    /// The same without the number of partitions.
    pub placed: String,
    /// Statements that lead to it, safe beside writers; `None`: none are needed.
    pub sql: Option<String>,
    /// Number of equal partitions over which writes would be as concentrated.
    pub n_eff: f64,
    /// Share of the busiest partition in the writes.
    pub max_share: f64,
    /// Mean number of partitions that a read visits.
    pub partitions_per_read: f64,
    /// True if it carries the offered load.
    pub carries: bool,
    /// True for the present design.
    pub is_today: bool,
}

/// Definition and figures of one column.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ColumnFacts {
    /// Column name.
    pub name: String,
    /// Type in SQL, without a length.
    pub column_type: String,
    /// `tag`, `field` or `time`.
    pub semantic: String,
    /// True if it may be NULL.
    pub nullable: bool,
    /// True if its values are computed.
    pub generated: bool,
    /// Declared indexes.
    pub indexes: Vec<IndexFacts>,
    /// Number of values that are not NULL.
    pub values: Option<u64>,
    /// Number of NULLs.
    pub nulls: Option<u64>,
    /// Number of distinct values, estimated.
    pub distinct: Option<u64>,
    /// 95th percentile of the length of texts, in bytes.
    pub length_p95: Option<u64>,
    /// Length of the longest text, in bytes.
    pub length_max: Option<u64>,
    /// Share of sampled texts that are numbers or booleans.
    pub numeric_share: Option<f64>,
    /// Bytes of the values, uncompressed.
    pub bytes: Option<u64>,
    /// Bytes in files, compressed.
    pub stored_bytes: Option<u64>,
    /// Least value, as text.
    pub min: Option<String>,
    /// Greatest value, as text.
    pub max: Option<String>,
    /// Some distinct values, as text.
    pub sample: Vec<String>,
    /// Growth of the number of distinct values per hour.
    pub growth_per_hour: Option<f64>,
}

/// An index of a column.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct IndexFacts {
    /// Index name.
    pub name: String,
    /// `inverted`, `skipping` or `fulltext`.
    pub kind: String,
    /// Number of scans that used it.
    pub uses: Option<u64>,
    /// Statements on the table since its last use.
    pub queries_since: Option<u64>,
    /// Bytes in files.
    pub bytes: Option<u64>,
}

/// Figures of one partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PartitionFacts {
    /// Partition id.
    pub id: u64,
    /// Number of rows.
    pub rows: u64,
    /// Bytes, in files and memory.
    pub bytes: u64,
    /// Rows written per second.
    pub writes_per_s: Option<f64>,
    /// Share of time for which the write lane is busy.
    pub busy: Option<f64>,
    /// True if it is hot.
    pub hot: bool,
    /// Node of the leader.
    pub leader: Option<u64>,
}

/// Statements that differ in their literals only, and their cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StatementShape {
    /// Hash of the text without literals.
    pub fingerprint: u64,
    /// Text without literals.
    pub text: String,
    /// Kind of the statement, such as `SELECT`.
    pub kind: String,
    /// Tables that it reads.
    pub tables: Vec<String>,
    /// Number of statements.
    pub calls: u64,
    /// Rows that all of them read.
    pub rows_examined: u64,
    /// Rows that their scans returned.
    pub rows_returned: u64,
    /// Partitions that they read.
    pub partitions_touched: u64,
    /// Partitions of the tables that they read.
    pub partitions_total: u64,
    /// Time that they took.
    pub milliseconds: f64,
    /// Filters of their scans.
    pub filters: Vec<Filter>,
    /// Columns that their scans read, each with its table.
    pub columns: Vec<(String, String)>,
    /// Columns by which they sort, each with its table.
    pub sorts: Vec<(String, String)>,
    /// Their joins.
    pub joins: Vec<Join>,
    /// Kinds of the indexes that they used.
    pub index_used: Option<String>,
    /// Age of the oldest row that they ask for, in milliseconds.
    pub newest_ms: Option<u64>,
}

/// A filter of a scan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filter {
    /// Table of the column.
    pub table: String,
    /// Column name.
    pub column: String,
    /// Class of the test.
    pub class: FilterClass,
}

/// A join of two tables.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Join {
    /// One table.
    pub left: String,
    /// The other table.
    pub right: String,
    /// Columns of this name are equal in both.
    pub on: Vec<String>,
}

/// Class of a test of one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FilterClass {
    /// One value.
    Point,
    /// A list of values.
    Points,
    /// Values between bounds.
    Range,
    /// NULL or not.
    Null,
    /// LIKE or a regular expression.
    Pattern,
    /// Words of a text.
    Terms,
}

impl TableFacts {
    /// The best design, if it is another one than today's.
    pub(crate) fn better_design(&self) -> Option<&DesignFacts> {
        self.designs.first().filter(|design| !design.is_today)
    }

    /// True if today's design is known to carry the load.
    pub(crate) fn carries_today(&self) -> bool {
        self.designs.iter().any(|design| design.is_today && design.carries)
    }
}

impl ColumnFacts {
    /// Number of rows that it was measured in.
    pub(crate) fn rows(&self) -> Option<u64> {
        Some(self.values? + self.nulls.unwrap_or_default())
    }

    /// Distinct values divided by values.
    pub(crate) fn distinct_share(&self) -> Option<f64> {
        let values = self.values.filter(|values| *values > 0)?;
        Some(self.distinct? as f64 / values as f64)
    }

    pub(crate) fn is_text(&self) -> bool {
        self.column_type == "STRING"
    }

    pub(crate) fn is_tag(&self) -> bool {
        self.semantic == "tag"
    }

    pub(crate) fn is_field(&self) -> bool {
        self.semantic == "field"
    }

    /// The index of a kind.
    pub(crate) fn index(&self, kind: &str) -> Option<&IndexFacts> {
        self.indexes.iter().find(|index| index.kind == kind)
    }
}
