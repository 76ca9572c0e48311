//! CREATE TABLE: the statements of other stores' manuals, and what is refused.

use std::time::Duration;

use partita_proto::placement::Placement;
use partita_proto::range::Bound;
use partita_proto::schema::{
    ColumnType, HotspotRemedy, JsonType, MergeMode, Partitioning, Semantic, TextLength, Unit,
};
use partita_proto::value::Value;

use super::{create, new_table};
use crate::notice::Severity;

/// As they stand in the manual that many schemas were copied from.
pub(super) const LOGS: &[(&str, &str)] = &[
    (
        "http_logs",
        "CREATE TABLE http_logs (
  access_time TIMESTAMP TIME INDEX,
  application STRING,
  remote_addr STRING,
  http_status STRING,
  http_method STRING,
  http_refer STRING,
  user_agent STRING,
  request_id STRING,
  request STRING,
) with ('append_mode'='true');",
    ),
    (
        "http_logs_v2",
        "CREATE TABLE http_logs_v2 (
  access_time TIMESTAMP TIME INDEX,
  application STRING,
  remote_addr STRING,
  http_status STRING,
  http_method STRING,
  http_refer STRING,
  user_agent STRING,
  request_id STRING,
  request STRING,
  PRIMARY KEY(application),
) with ('append_mode'='true');",
    ),
    (
        "http_logs_v3",
        "CREATE TABLE http_logs_v3 (
  access_time TIMESTAMP TIME INDEX,
  application STRING,
  remote_addr STRING,
  http_status STRING,
  http_method STRING INVERTED INDEX,
  http_refer STRING,
  user_agent STRING,
  request_id STRING,
  request STRING,
  PRIMARY KEY(application),
) with ('append_mode'='true');",
    ),
    (
        "http_logs_v4",
        "CREATE TABLE http_logs_v4 (
  access_time TIMESTAMP TIME INDEX,
  application STRING,
  remote_addr STRING,
  http_status STRING,
  http_method STRING INVERTED INDEX,
  http_refer STRING,
  user_agent STRING,
  request_id STRING SKIPPING INDEX,
  request STRING,
  PRIMARY KEY(application),
) with ('append_mode'='true');",
    ),
    (
        "raw_logs",
        "CREATE TABLE IF NOT EXISTS `raw_logs` (
  message STRING NULL FULLTEXT INDEX WITH(analyzer = 'English', case_sensitive = 'false'),
  ts TIMESTAMP(9) NOT NULL,
  TIME INDEX (ts),
) with ('append_mode'='true');",
    ),
    (
        "system_metrics",
        "CREATE TABLE IF NOT EXISTS system_metrics (
  host STRING,
  cpu_util DOUBLE,
  memory_util DOUBLE,
  disk_util DOUBLE,
  ts TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
  PRIMARY KEY(host),
  TIME INDEX(ts)
);",
    ),
];

fn state(sql: &str) -> (String, String) {
    let error = new_table(sql).expect_err(sql);
    (error.sqlstate, error.message)
}

#[track_caller]
fn refused(sql: &str, sqlstate: &str, says: &str) {
    let (found, message) = state(sql);
    assert_eq!(found, sqlstate, "{sql}: {message}");
    assert!(message.contains(says), "{sql}: {message}");
}

#[test]
fn tables_of_log_stores_are_taken_unchanged() {
    for (name, sql) in LOGS {
        let (table, notices) = new_table(sql).unwrap();
        assert_eq!(table.name, *name);
        assert_eq!(table.schema.options.append_mode, *name != "system_metrics");
        let (warnings, said): (Vec<_>, Vec<_>) =
            notices.iter().partition(|notice| notice.severity == Severity::Warning);
        assert!(warnings.is_empty(), "{name}: {warnings:?}");
        // Those without a primary key begin with the time; a TIMESTAMP that says no digits has three.
        let imprecise = sql.matches(" TIMESTAMP ").count() + sql.matches(" TIMESTAMP,").count();
        let expected = imprecise + usize::from(table.schema.key.len() == 1);
        assert_eq!(said.len(), expected, "{name}: {said:?}");
    }
    let (table, notices) = new_table(LOGS[2].1).unwrap();
    assert_eq!(
        notices[0].message,
        "TIMESTAMP without a precision has milliseconds; TIMESTAMP(6) has microseconds"
    );
    let key: Vec<_> = table.schema.key_columns().map(|column| column.name.as_str()).collect();
    assert_eq!(key, ["application", "access_time"]);
    assert_eq!(table.schema.columns[0].semantic, Semantic::TimeIndex);
    assert!(!table.schema.columns[0].nullable);
    assert_eq!(table.schema.columns[1].semantic, Semantic::Tag);
    assert!(table.schema.columns[1].nullable);
    let (raw, _) = new_table(LOGS[4].1).unwrap();
    assert_eq!(raw.schema.columns[1].column_type, ColumnType::Timestamp(Unit::Nanosecond, false));
    let (metrics, _) = new_table(LOGS[5].1).unwrap();
    assert_eq!(metrics.schema.columns[4].default.as_deref(), Some("now()"));
}

#[test]
fn types_of_many_dialects_are_known() {
    use ColumnType as T;
    for (sql, expected) in [
        ("BOOLEAN", T::Bool),
        ("bool", T::Bool),
        ("TINYINT", T::Int8),
        ("SMALLINT", T::Int16),
        ("INT2", T::Int16),
        ("Int16", T::Int16),
        ("INT", T::Int32),
        ("INTEGER", T::Int32),
        ("INT(11)", T::Int32),
        ("int4", T::Int32),
        ("INT32", T::Int32),
        ("BIGINT", T::Int64),
        ("INT8", T::Int64),
        ("INT64", T::Int64),
        ("TINYINT UNSIGNED", T::UInt8),
        ("SMALLINT UNSIGNED", T::UInt16),
        ("INT UNSIGNED", T::UInt32),
        ("BIGINT UNSIGNED", T::UInt64),
        ("BIGINT(20) UNSIGNED", T::UInt64),
        ("UINT8", T::UInt8),
        ("UINT16", T::UInt16),
        ("UINT32", T::UInt32),
        ("UINT64", T::UInt64),
        ("REAL", T::Float32),
        ("FLOAT4", T::Float32),
        ("FLOAT32", T::Float32),
        ("FLOAT", T::Float64),
        ("FLOAT(24)", T::Float32),
        ("FLOAT(53)", T::Float64),
        ("FLOAT8", T::Float64),
        ("FLOAT64", T::Float64),
        ("DOUBLE", T::Float64),
        ("DOUBLE PRECISION", T::Float64),
        ("DECIMAL", T::Decimal(38, 10)),
        ("DECIMAL(10)", T::Decimal(10, 0)),
        ("NUMERIC(10, 2)", T::Decimal(10, 2)),
        ("STRING", T::String),
        ("TEXT", T::String),
        ("VARCHAR(20)", T::String),
        ("CHARACTER VARYING(5)", T::String),
        ("CHAR(1)", T::String),
        ("BPCHAR", T::String),
        ("BYTEA", T::Binary),
        ("VARBINARY", T::Binary),
        ("BINARY", T::Binary),
        ("BLOB", T::Binary),
        ("DATE", T::Date),
        ("UUID", T::Uuid),
        ("TIME", T::Time),
        ("TIME(6) WITHOUT TIME ZONE", T::Time),
        ("TIMESTAMP", T::Timestamp(Unit::Millisecond, false)),
        ("TIMESTAMP(0)", T::Timestamp(Unit::Second, false)),
        ("TIMESTAMP(6)", T::Timestamp(Unit::Microsecond, false)),
        ("TIMESTAMP(9) WITH TIME ZONE", T::Timestamp(Unit::Nanosecond, true)),
        ("TIMESTAMP(3) WITHOUT TIME ZONE", T::Timestamp(Unit::Millisecond, false)),
        ("TIMESTAMP WITH TIME ZONE", T::Timestamp(Unit::Microsecond, true)),
        ("TIMESTAMPTZ", T::Timestamp(Unit::Microsecond, true)),
        ("TIMESTAMPTZ(3)", T::Timestamp(Unit::Millisecond, true)),
        ("DATETIME", T::Timestamp(Unit::Microsecond, false)),
        ("TIMESTAMP_S", T::Timestamp(Unit::Second, false)),
        ("timestamp_ms", T::Timestamp(Unit::Millisecond, false)),
        ("TIMESTAMP_NS", T::Timestamp(Unit::Nanosecond, false)),
        ("TimestampMillisecond", T::Timestamp(Unit::Millisecond, false)),
        ("TimestampMicrosecond", T::Timestamp(Unit::Microsecond, false)),
    ] {
        let table = create(&format!("CREATE TABLE t (v {sql} NULL, k INT PRIMARY KEY)"));
        assert_eq!(table.unwrap().columns[0].column_type, expected, "{sql}");
    }
}

#[test]
fn columns_of_json_are_texts_that_are_shown_as_json() {
    let sql = "CREATE TABLE t (k INT PRIMARY KEY, j JSON, b JSONB DEFAULT '{}'::jsonb)";
    let columns = create(sql).unwrap().columns;
    let types: Vec<String> = columns.iter().map(|column| column.column_type.sql()).collect();
    assert_eq!(types, ["INT", "STRING", "STRING"]);
    let json: Vec<_> = columns.iter().map(|column| column.json.map(JsonType::sql)).collect();
    assert_eq!(json, [None, Some("JSON"), Some("JSONB")]);
    assert_eq!(columns[2].default.as_deref(), Some("'{}'"));
}

#[test]
fn types_that_do_not_exist_are_refused_by_name() {
    for (sql, sqlstate, says) in [
        ("JSON2", "0A000", "type JSON2"),
        ("INTERVAL[]", "0A000", "an array of INTERVAL"),
        ("TIME(3)", "0A000", "a TIME of other than 6 digits"),
        ("TIME WITH TIME ZONE", "0A000", "TIME WITH TIME ZONE"),
        ("TIMETZ", "0A000", "type TIMETZ"),
        ("INT[][]", "0A000", "an array of several dimensions"),
        ("VARCHAR(3)[]", "0A000", "an array of VARCHAR(3)"),
        ("JSONB[]", "0A000", "an array of JSONB"),
        ("TINYINT UNSIGNED[]", "0A000", "an array of TINYINT UNSIGNED"),
        ("INT[a]", "42601", "a number"),
        ("TIMESTAMP(4)", "0A000", "other than 0, 3, 6 or 9"),
        ("DECIMAL(39)", "22023", "DECIMAL"),
        ("DECIMAL(3, 4)", "22023", "DECIMAL"),
        ("frobnicate", "42704", "\"frobnicate\""),
        ("TIMESTAMP_S(3)", "42601", "unit"),
    ] {
        refused(&format!("CREATE TABLE t (k INT PRIMARY KEY, v {sql})"), sqlstate, says);
    }
}

#[test]
fn the_key_keeps_a_time_index_where_its_owner_put_it() {
    let key = |sql: &str| {
        let (table, _) = new_table(sql).unwrap();
        let names = table.schema.key_columns().map(|column| column.name.clone());
        names.collect::<Vec<_>>().join(",")
    };
    assert_eq!(key("CREATE TABLE t (ts TIMESTAMP TIME INDEX, a INT)"), "ts");
    assert_eq!(key("CREATE TABLE t (ts TIMESTAMP TIME INDEX, u INT, PRIMARY KEY (ts, u))"), "ts,u");
    assert_eq!(key("CREATE TABLE t (ts TIMESTAMP TIME INDEX, u INT PRIMARY KEY)"), "u,ts");
    // Without a TIME INDEX a timestamp in the key is a tag like any other.
    let (table, _) =
        new_table("CREATE TABLE t (ts TIMESTAMP, u INT, PRIMARY KEY (ts, u))").unwrap();
    assert!(table.schema.time_index().is_none());
    assert_eq!(table.schema.columns[0].semantic, Semantic::Tag);
}

#[test]
fn names_of_the_grammar_stay_names_of_columns() {
    let (table, _) = new_table(
        "CREATE TABLE time (time TIMESTAMP TIME INDEX, index INT, key TEXT, ttl INT, \
         comment TEXT, engine TEXT, \"Select\" INT, `b``q` INT, PRIMARY KEY (key, index))",
    )
    .unwrap();
    let names: Vec<_> = table.schema.columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["time", "index", "key", "ttl", "comment", "engine", "Select", "b`q"]);
}

#[test]
fn contradictions_are_refused() {
    for (sql, sqlstate, says) in [
        (
            "CREATE TABLE t (a TIMESTAMP TIME INDEX, b TIMESTAMP TIME INDEX)",
            "42P16",
            "one TIME INDEX",
        ),
        (
            "CREATE TABLE t (a TIMESTAMP TIME INDEX, b TIMESTAMP, TIME INDEX (b))",
            "42P16",
            "one TIME INDEX",
        ),
        ("CREATE TABLE t (a INT TIME INDEX)", "42P16", "must be a TIMESTAMP"),
        ("CREATE TABLE t (a TIMESTAMP NULL TIME INDEX)", "42P16", "NOT NULL"),
        ("CREATE TABLE t (a INT, __row BYTEA)", "42P16", "two underscores"),
        ("CREATE TABLE t (__row BYTEA PRIMARY KEY)", "42P16", "two underscores"),
        ("CREATE TABLE t (a INT) PARTITION BY HASH (a) PARTITIONS 2", "42P16", "without a key"),
        ("CREATE TABLE t (a INT) SPLIT AT ((1))", "42P16", "without a key"),
        ("CREATE TABLE t (a INT, PRIMARY KEY (b))", "42703", "\"b\" named in PRIMARY KEY"),
        ("CREATE TABLE t (a INT, TIME INDEX (b))", "42703", "\"b\" named in TIME INDEX"),
        (
            "CREATE TABLE t (a INT, a INT, PRIMARY KEY (a))",
            "42701",
            "\"a\" specified more than once",
        ),
        ("CREATE TABLE t (a INT, PRIMARY KEY (a, a))", "42701", "twice"),
        ("CREATE TABLE t (a INT PRIMARY KEY, b INT PRIMARY KEY)", "42P16", "multiple primary keys"),
        ("CREATE TABLE t (a INT NULL NOT NULL PRIMARY KEY)", "42601", "conflicting"),
        (
            "CREATE TABLE t (a INT PRIMARY KEY) WITH (frob = 1)",
            "22023",
            "unrecognized table option key: 'frob'",
        ),
        ("CREATE TABLE t (a INT PRIMARY KEY) WITH (append_mode = maybe)", "22023", "'append_mode'"),
        (
            "CREATE TABLE t (a INT PRIMARY KEY) WITH (append_mode=true, append_mode=true)",
            "42601",
            "more than once",
        ),
        (
            "CREATE TABLE t (a INT PRIMARY KEY) WITH (append_mode = true, merge_mode = last_row)",
            "42P16",
            "'merge_mode' cannot be set",
        ),
        (
            "CREATE TABLE t (a INT PRIMARY KEY) WITH (append_mode = true, merge_mode = last_non_null)",
            "42P16",
            "'merge_mode' cannot be set",
        ),
        (
            "CREATE TABLE t (a INT PRIMARY KEY) WITH (ttl = '7d')",
            "42P16",
            "'ttl' needs a TIME INDEX",
        ),
        ("CREATE TABLE t (a INT PRIMARY KEY) WITH (hash_buckets = 4)", "0A000", "'hash_buckets'"),
        ("CREATE TABLE t (a INT PRIMARY KEY) ENGINE=innodb", "0A000", "ENGINE = innodb"),
        ("CREATE TABLE t (a INT UNIQUE, PRIMARY KEY (a))", "0A000", "UNIQUE"),
        ("CREATE TABLE t (a INT PRIMARY KEY, CHECK (b > 1))", "42703", "\"b\""),
        (
            "CREATE TABLE t (a INT PRIMARY KEY CHECK (a IN (SELECT 1)))",
            "42P17",
            "a subquery cannot be part of a check constraint",
        ),
        (
            "CREATE TABLE t (a INT PRIMARY KEY, CONSTRAINT c CHECK (a > 1), CONSTRAINT c CHECK (a > 2))",
            "42710",
            "constraint \"c\"",
        ),
        ("CREATE TABLE t (a INT PRIMARY KEY, CHECK (a > 1) NO INHERIT)", "0A000", "NO INHERIT"),
        (
            "CREATE TABLE t (a INT PRIMARY KEY, FOREIGN KEY (a) REFERENCES u (a))",
            "0A000",
            "FOREIGN KEY",
        ),
        ("CREATE TABLE t (a INT REFERENCES u (a))", "0A000", "REFERENCES"),
        ("CREATE TABLE t (LIKE u)", "0A000", "LIKE here"),
        ("CREATE TABLE t (LIKE u INCLUDING nonsense)", "42601", "\"nonsense\""),
        ("CREATE TABLE t LIKE u (a INT)", "42601", "at or near \"(\""),
        (
            "CREATE TABLE t (u INT, PRIMARY KEY (HASH(u), u))",
            "0A000",
            "an expression in PRIMARY KEY",
        ),
        ("CREATE TABLE t (a INT PRIMARY KEY) nonsense", "42601", "at or near \"nonsense\""),
        ("CREATE TABLE t (a INT PRIMARY KEY", "42601", "end of input"),
        ("CREATE TABLE t (__a INT PRIMARY KEY)", "42P16", "two underscores"),
        ("CREATE TABLE t (a INT DEFAULT 'x' PRIMARY KEY)", "42804", "`'x'` does not fit"),
        ("CREATE TABLE t (a TINYINT DEFAULT 300 PRIMARY KEY)", "42804", "does not fit"),
        ("CREATE TABLE t (a INT DEFAULT 1 + 1 PRIMARY KEY)", "0A000", "the default `1 + 1`"),
        ("CREATE TABLE t (a INT DEFAULT now() PRIMARY KEY)", "42804", "now()"),
        ("CREATE TABLE other.cat.t (a INT PRIMARY KEY)", "0A000", "another catalog"),
    ] {
        refused(sql, sqlstate, says);
    }
}

#[test]
fn options_of_partitioning_are_checked() {
    for (sql, sqlstate, says) in [
        (
            "CREATE TABLE t (a INT PRIMARY KEY) WITH (auto_partitioning_by_load = perhaps)",
            "22023",
            "takes ENABLED or DISABLED, not 'perhaps'",
        ),
        (
            "CREATE TABLE t (a INT PRIMARY KEY) WITH (PARTITION_SIZE_MB = 0)",
            "22023",
            "a whole number from 1 on",
        ),
        (
            "CREATE TABLE t (a INT PRIMARY KEY) WITH (hotspot_remedy = 'pray')",
            "22023",
            "'off', 'advise' or 'auto'",
        ),
        (
            "CREATE TABLE t (a INT PRIMARY KEY) WITH (auto_partitioning_merge_after = '0s')",
            "22023",
            "a time such as '1h'",
        ),
        (
            "CREATE TABLE t (a INT PRIMARY KEY) WITH (pin_expiry = 'soon')",
            "22023",
            "a time such as '30d', or 'never'",
        ),
        (
            "CREATE TABLE t (a INT PRIMARY KEY) WITH (forecast = 'rain')",
            "22023",
            "takes ENABLED or DISABLED",
        ),
        (
            "CREATE TABLE t (a INT PRIMARY KEY) WITH (MIN_PARTITIONS = 4, AUTO_PARTITIONING_MIN_PARTITIONS_COUNT = 4)",
            "42601",
            "more than once",
        ),
        (
            "CREATE TABLE t (a STRING PRIMARY KEY) WITH (UNIFORM_PARTITIONS = 4)",
            "42P16",
            "\"a\" is STRING",
        ),
        (
            "CREATE TABLE t (a INT PRIMARY KEY) SPLIT AT ((1)) WITH (UNIFORM_PARTITIONS = 4)",
            "42601",
            "more than once",
        ),
    ] {
        refused(sql, sqlstate, says);
    }
}

#[test]
fn generated_columns_depend_on_plain_columns_only() {
    let (table, _) = new_table(
        "CREATE TABLE e (h BIGINT UNSIGNED GENERATED ALWAYS AS (hash64(userid)) STORED, userid INT, \
         ts TIMESTAMP, PRIMARY KEY (h, userid, ts))",
    )
    .unwrap();
    assert_eq!(table.schema.columns[0].generated.as_deref(), Some("hash64(userid)"));
    for (sql, sqlstate, says) in [
        ("h INT GENERATED ALWAYS AS (b) STORED", "42703", "\"b\""),
        ("h INT GENERATED ALWAYS AS (h) STORED", "42P17", "generated column \"h\""),
        ("h INT GENERATED ALWAYS AS (now()) STORED", "42P17", "not immutable"),
        ("h INT GENERATED ALWAYS AS ((SELECT 1)) STORED", "42P17", "subquery"),
        ("h INT GENERATED ALWAYS AS (a) VIRTUAL", "0A000", "VIRTUAL"),
        ("h INT GENERATED ALWAYS AS (a) STORED DEFAULT 1", "42601", "cannot have a DEFAULT"),
        ("h DOUBLE GENERATED ALWAYS AS IDENTITY", "22023", "identity column type"),
        ("h SERIAL DEFAULT 1", "42601", "multiple default values"),
        ("h SERIAL NULL", "42601", "conflicting NULL/NOT NULL"),
        ("h INT DEFAULT 1 GENERATED BY DEFAULT AS IDENTITY", "42601", "multiple default values"),
    ] {
        refused(&format!("CREATE TABLE t (a INT PRIMARY KEY, {sql})"), sqlstate, says);
    }
}

#[test]
fn options_say_what_clauses_say() {
    let (table, _) = new_table(
        "CREATE TABLE t (host STRING, ts TIMESTAMP, v DOUBLE) WITH (time_index='ts', \
         primary_key='host', partition_by='hash(host)', partitions=16, 'ttl'='7d', \
         'compaction.twcs.time_window'='1h', merge_mode=last_non_null, 'comment'='it''s')",
    )
    .unwrap();
    assert_eq!(table.cuts.len(), 15);
    assert_eq!(table.cuts[0], Bound::placed(4096));
    assert!(matches!(table.placement, Placement::Hash { .. }));
    assert_eq!(table.schema.options.ttl, Some(Duration::from_secs(7 * 86_400)));
    assert_eq!(table.schema.options.time_window, Some(Duration::from_secs(3600)));
    assert_eq!(table.schema.options.merge_mode, MergeMode::LastNonNull);
    assert_eq!(table.schema.options.comment.as_deref(), Some("it's"));
    for forever in ["'forever'", "''", "'0s'", "NULL"] {
        let sql = format!("CREATE TABLE t (ts TIMESTAMP TIME INDEX) WITH ('ttl'={forever})");
        assert_eq!(new_table(&sql).unwrap().0.schema.options.ttl, None, "{sql}");
    }
}

#[test]
fn options_of_greptimedb_without_effect_are_named_in_one_notice() {
    let (table, notices) = new_table(
        "CREATE TABLE t (ts TIMESTAMP TIME INDEX) WITH ('compaction.type'='twcs', 'ttl'='7d', \
         'memtable.type'='partition_tree', storage='S3')",
    )
    .unwrap();
    assert_eq!(table.schema.options.ttl, Some(Duration::from_secs(7 * 86_400)));
    let messages: Vec<&str> = notices.iter().map(|notice| notice.message.as_str()).collect();
    let expected = "table options without effect: 'compaction.type', 'memtable.type', 'storage'";
    assert!(messages.contains(&expected), "{messages:?}");
    let unknown = "CREATE TABLE t (ts TIMESTAMP TIME INDEX) WITH ('compaction.types'='twcs')";
    assert_eq!(new_table(unknown).unwrap_err().sqlstate, "22023");
}

#[test]
fn a_generated_column_is_stored_without_the_word_too() {
    let (table, _) = new_table(
        "CREATE TABLE t (a INT PRIMARY KEY, b INT GENERATED ALWAYS AS (a + 1), c INT AS (a * 2) NULL)",
    )
    .unwrap();
    let generated = table.schema.columns.iter().filter(|column| column.generated.is_some());
    assert_eq!(generated.count(), 2);
}

#[test]
fn ranges_are_cut_where_they_are_told() {
    let (table, _) = new_table(
        "CREATE TABLE t (u INT, s STRING, PRIMARY KEY (u, s)) PARTITION BY RANGE (u) \
         SPLIT AT ((-5), (10, 'abc'), (20))",
    )
    .unwrap();
    let keys: Vec<_> = table.cuts.into_iter().map(|cut| cut.key).collect();
    assert_eq!(
        keys,
        [
            vec![Value::Int(-5)],
            vec![Value::Int(10), Value::String("abc".to_owned())],
            vec![Value::Int(20)]
        ]
    );
    let (ydb, _) = new_table(
        "CREATE TABLE t (u Uint64, s Utf8, PRIMARY KEY (u, s)) WITH (PARTITION_AT_KEYS = \
         ((100, \"abc\"), (200, \"x\")))",
    )
    .unwrap();
    assert_eq!(ydb.cuts[0].key, [Value::UInt(100), Value::String("abc".to_owned())]);
    for (sql, says) in [
        ("PARTITION BY RANGE (s)", "first columns of the key"),
        ("SPLIT AT ((2), (1))", "ascend"),
        ("SPLIT AT ((1), (1))", "ascend"),
        ("SPLIT AT ((1, 'a', 2))", "longer than the key"),
        ("SPLIT AT (('x'))", "does not fit column \"u\""),
        ("SPLIT AT ((u))", "expected a literal"),
    ] {
        let sql = format!("CREATE TABLE t (u INT, s STRING, PRIMARY KEY (u, s)) {sql}");
        assert!(state(&sql).1.contains(says), "{sql}: {}", state(&sql).1);
    }
}

#[test]
fn rules_must_cover_every_row_once_and_be_of_the_key() {
    let rules = |rules: &str| {
        format!(
            "CREATE TABLE t (device_id INT, area STRING, v INT, ts TIMESTAMP(3) TIME INDEX, \
             PRIMARY KEY (device_id, area)) PARTITION ON COLUMNS (device_id, area) ({rules})"
        )
    };
    let (table, notices) = new_table(&rules(
        "device_id < 100 AND area < 'South', device_id < 100 AND area >= 'South', \
         device_id >= 100 AND area <= 'East', device_id >= 100 AND area > 'East',",
    ))
    .unwrap();
    assert_eq!(table.cuts, [Bound::placed(1), Bound::placed(2), Bound::placed(3)]);
    assert!(notices.is_empty());
    refused(&rules("device_id < 100, device_id > 100"), "42P16", "is not covered");
    refused(&rules("device_id <= 100, device_id >= 100"), "42P16", "is covered by both");
    refused(&rules("v < 100, v >= 100"), "42P17", "not listed");
    refused(&rules("device_id < area, TRUE"), "0A000", "`device_id < area`");
    refused(&rules("device_id + 1 < 5, TRUE"), "0A000", "`device_id + 1 < 5`");
    refused(&rules("device_id < NULL, TRUE"), "0A000", "NULL");
    refused(&rules("device_id IS NULL"), "0A000", "`device_id IS NULL`");
    refused(&rules("device_id LIKE 'x'"), "0A000", "LIKE");
    refused(&rules(""), "42601", "at least one expression");
    let by_field = "CREATE TABLE t (a INT, b INT, PRIMARY KEY (a)) PARTITION ON COLUMNS (b) \
                    (b < 1, b >= 1)";
    refused(by_field, "42P16", "not part of the key");
    refused(
        "CREATE TABLE t (a INT, b INT, PRIMARY KEY (a)) PARTITION BY HASH (b) PARTITIONS 2",
        "42P16",
        "not part of the key",
    );
    // A table that keeps every row may be partitioned by whatever it has.
    new_table(&format!("{by_field} WITH (append_mode = true)")).unwrap();
}

#[test]
fn rules_may_be_written_in_several_ways() {
    let sql = "CREATE TABLE t (a INT PRIMARY KEY) PARTITION ON COLUMNS (a) \
               (a BETWEEN 1 AND 5, a IN (7, 8) OR (6 = a), a < 1 OR 8 < a)";
    let (table, _) = new_table(sql).unwrap();
    assert_eq!(table.cuts.len(), 2);
}

#[test]
fn partitioning_by_time_warns() {
    for (sql, says) in [
        ("PARTITION BY RANGE (ts)", "last partition"),
        ("PARTITION ON COLUMNS (ts) (ts < '2024-01-01', ts >= '2024-01-01')", "newest times"),
        ("PARTITION BY HASH (ts) PARTITIONS 4", "scattered"),
    ] {
        let (_, notices) =
            new_table(&format!("CREATE TABLE t (ts TIMESTAMP(3) TIME INDEX, v INT) {sql}"))
                .unwrap();
        assert_eq!(notices.len(), 1, "{sql}");
        assert_eq!(notices[0].severity, Severity::Warning);
        assert!(notices[0].message.contains(says), "{}", notices[0].message);
    }
}

#[test]
fn hashing_needs_a_number_of_partitions() {
    let sql = |clause: &str| format!("CREATE TABLE t (a INT PRIMARY KEY) {clause}");
    refused(&sql("PARTITION BY HASH (a)"), "42601", "requires PARTITIONS");
    refused(&sql("PARTITIONS 4"), "42601", "require PARTITION BY HASH");
    refused(&sql("PARTITION BY HASH (a) PARTITIONS 0"), "22023", "1 to 65535");
    refused(&sql("PARTITION BY HASH (a) PARTITIONS 5000"), "54000", "4096");
    refused(&sql("PARTITION BY HASH (b) PARTITIONS 5"), "42703", "\"b\"");
    refused(&sql("PARTITION BY LIST (a)"), "0A000", "PARTITION BY LIST");
}

#[test]
fn options_of_partitioning_are_read_in_long_and_short_words() {
    let (table, _) = new_table(
        "CREATE TABLE t (a BIGINT PRIMARY KEY) WITH (AUTO_PARTITIONING_BY_LOAD = DISABLED, \
         auto_partitioning_by_size = 'enabled', PARTITION_SIZE_MB = 64, MIN_PARTITIONS = 3, \
         AUTO_PARTITIONING_MAX_PARTITIONS_COUNT = 9, hotspot_remedy = auto, keep_together = 1, \
         AUTO_PARTITIONING_MERGE_AFTER = '2 hours', pin_expiry = '30d', forecast = off)",
    )
    .unwrap();
    let expected = Partitioning {
        by_load: false,
        by_size: true,
        partition_size_mb: 64,
        min_partitions: 3,
        max_partitions: 9,
        hotspot_remedy: HotspotRemedy::Auto,
        keep_together: 1,
        merge_after_s: 7_200,
        pin_expiry_s: 30 * 86_400,
        forecast: false,
    };
    assert_eq!(table.schema.options.partitioning, expected);
    let sql = "CREATE TABLE t (a INT PRIMARY KEY) WITH (pin_expiry = 'never', forecast = ENABLED)";
    let (table, _) = new_table(sql).unwrap();
    assert_eq!(table.schema.options.partitioning, Partitioning::default());
}

#[test]
fn texts_have_the_length_that_their_type_says() {
    let length = |of: &str| {
        let made = new_table(&format!("CREATE TABLE t (a {of}, b INT PRIMARY KEY)"));
        made.map(|(table, _)| table.schema.columns[0].length.map(TextLength::sql))
    };
    for (of, said) in [
        ("VARCHAR(20)", Some("VARCHAR(20)")),
        ("CHARACTER VARYING(5)", Some("VARCHAR(5)")),
        ("CHAR VARYING(5)", Some("VARCHAR(5)")),
        ("CHAR(7)", Some("CHAR(7)")),
        ("CHARACTER(7)", Some("CHAR(7)")),
        ("CHAR", Some("CHAR(1)")),
        ("VARCHAR", None),
        ("CHARACTER VARYING", None),
        ("BPCHAR", None),
        ("TEXT", None),
    ] {
        assert_eq!(length(of).unwrap().as_deref(), said, "{of}");
    }
    for of in ["VARCHAR(0)", "CHAR(0)", "VARCHAR(10485761)", "CHAR(99999999999)"] {
        assert_eq!(length(of).unwrap_err().sqlstate, "22023", "{of}");
    }
}

#[test]
fn arrays_are_declared_in_several_ways_and_shown_in_one() {
    for (sql, shown) in [
        ("INT[]", "INT[]"),
        ("INTEGER [3]", "INT[]"),
        ("BIGINT ARRAY", "BIGINT[]"),
        ("BOOLEAN ARRAY[4]", "BOOLEAN[]"),
        ("TEXT[]", "STRING[]"),
        ("VARCHAR[]", "STRING[]"),
        ("DOUBLE PRECISION[]", "DOUBLE[]"),
        ("NUMERIC(10, 2)[]", "DECIMAL(10, 2)[]"),
        ("TIMESTAMP(6)[]", "TIMESTAMP(6)[]"),
        ("TIMESTAMPTZ[]", "TIMESTAMP(6) WITH TIME ZONE[]"),
        ("UUID[]", "UUID[]"),
    ] {
        let (table, _) =
            new_table(&format!("CREATE TABLE t (k INT PRIMARY KEY, v {sql})")).unwrap();
        let column_type = table.schema.columns[1].column_type;
        assert_eq!(column_type.sql(), shown, "{sql}");
        let again = format!("CREATE TABLE t (k INT PRIMARY KEY, v {shown} DEFAULT '{{}}')");
        let column = new_table(&again).unwrap().0.schema.columns[1].clone();
        assert_eq!((column.column_type, column.default), (column_type, Some("'{}'".to_owned())));
    }
}

#[test]
fn defaults_of_arrays_and_intervals_are_texts() {
    let default = |sql: &str| {
        let sql = format!("CREATE TABLE t (k INT PRIMARY KEY, v {sql})");
        new_table(&sql).map(|(table, _)| table.schema.columns[1].default.clone())
    };
    for (sql, expected) in [
        ("INT[] DEFAULT '{1,NULL}'", Some("'{1,NULL}'")),
        ("INT[] DEFAULT '{}'::INT[]", Some("'{}'")),
        ("INT[] DEFAULT ARRAY[]::INT[]", Some("'{}'")),
        ("INT[] DEFAULT ARRAY[1, NULL]", Some("'{\"1\",NULL}'")),
        ("TEXT[] DEFAULT ARRAY['a\"b', 'it''s']", Some("'{\"a\\\"b\",\"it''s\"}'")),
        ("BOOLEAN[] DEFAULT (ARRAY[true])", Some("'{true}'")),
        ("INT[] DEFAULT NULL", None),
        ("INTERVAL DEFAULT '1 day'", Some("'1 day'")),
        ("INTERVAL DEFAULT '1 day'::INTERVAL", Some("'1 day'")),
    ] {
        assert_eq!(default(sql).unwrap().as_deref(), expected, "{sql}");
    }
    for (sql, sqlstate) in [
        ("INT[] DEFAULT '{x}'", "42804"),
        ("INT[] DEFAULT ARRAY['x']", "42804"),
        ("INT[] DEFAULT 1", "42804"),
        ("INT[] DEFAULT ARRAY[1 + 1]", "0A000"),
        ("INTERVAL DEFAULT 'soon'", "42804"),
        ("INTERVAL DEFAULT 1", "42804"),
        ("INTERVAL DEFAULT ARRAY[1]", "0A000"),
    ] {
        assert_eq!(default(sql).unwrap_err().sqlstate, sqlstate, "{sql}");
    }
}

#[test]
fn uniform_partitions_cut_the_type_of_the_first_key_column() {
    let cuts = |of: &str| {
        let sql = format!("CREATE TABLE t (a {of} PRIMARY KEY) WITH (UNIFORM_PARTITIONS = 4)");
        let cuts = new_table(&sql).unwrap().0.cuts;
        cuts.into_iter().flat_map(|cut| cut.key).collect::<Vec<_>>()
    };
    assert_eq!(cuts("TINYINT UNSIGNED"), [Value::UInt(64), Value::UInt(128), Value::UInt(192)]);
    assert_eq!(cuts("TINYINT"), [Value::Int(-64), Value::Int(0), Value::Int(64)]);
    assert_eq!(cuts("BIGINT")[1], Value::Int(0));
    assert_eq!(cuts("BIGINT UNSIGNED")[0], Value::UInt(1 << 62));
    // A hash is cut anyway.
    let (table, _) = new_table(
        "CREATE TABLE t (a STRING PRIMARY KEY) PARTITION BY HASH (a) WITH (UNIFORM_PARTITIONS = 4)",
    )
    .unwrap();
    assert_eq!(table.cuts.len(), 3);
}

#[test]
fn a_key_that_grows_at_its_end_is_noticed_with_cures_that_parse() {
    let notices = |sql: &str| new_table(sql).unwrap().1;
    let said =
        notices("CREATE TABLE t (ts TIMESTAMP(3) TIME INDEX, u INT, v INT, PRIMARY KEY (ts, u))");
    let [notice] = said.as_slice() else { panic!("{said:?}") };
    assert_eq!(notice.severity, Severity::Notice);
    assert!(notice.message.contains("timestamp \"ts\""), "{}", notice.message);
    assert!(notice.message.contains("last partition"), "{}", notice.message);
    let hint = notice.hint.as_deref().unwrap();
    for cure in
        ["PARTITION BY HASH (u) PARTITIONS 16", "PRIMARY KEY (u, ts)", "HASH (ts) PARTITIONS 16"]
    {
        assert!(hint.contains(cure), "{cure} in {hint}");
    }
    for cured in [
        "CREATE TABLE t (ts TIMESTAMP(3) TIME INDEX, u INT, v INT, PRIMARY KEY (ts, u)) PARTITION BY HASH (u) PARTITIONS 16",
        "CREATE TABLE t (ts TIMESTAMP(3) TIME INDEX, u INT, v INT, PRIMARY KEY (u, ts))",
        "CREATE TABLE t (a INT DEFAULT 5 PRIMARY KEY)",
    ] {
        assert!(notices(cured).is_empty(), "{cured}");
    }
    let said = notices("CREATE TABLE t (d DATE PRIMARY KEY, v DOUBLE)");
    assert!(said[0].message.contains("date \"d\""), "{said:?}");
    let of_time = |expression: &str| {
        notices(&format!(
            "CREATE TABLE t (n BIGINT GENERATED ALWAYS AS ({expression}) STORED, ts TIMESTAMP(3) TIME INDEX, \
             u INT, PRIMARY KEY (n, u))"
        ))
    };
    let said = of_time("to_unixtime(ts)");
    assert!(said[0].message.contains("count of time \"n\""), "{said:?}");
    assert!(of_time("hash64(ts) % 100").is_empty());
    assert!(of_time("u + 1").is_empty());
    // A field that could lead the key is named.
    let said = notices("CREATE TABLE t (ts TIMESTAMP(3) TIME INDEX, app STRING)");
    assert!(said[0].hint.as_deref().unwrap().contains("PRIMARY KEY (app, ts)"), "{said:?}");
}
