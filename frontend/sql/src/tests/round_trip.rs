//! SHOW CREATE TABLE prints what makes the same table.

use std::time::Duration;

use partita_proto::id::{BOOTSTRAP_ROLE, ColumnId, SchemaVersion};
use partita_proto::index::{
    Analyzer, Backend, Blooms, Fulltext, GRANULARITY_MAX, Index, IndexKind, IndexOptions,
    default_name,
};
use partita_proto::key::KeyCodec;
use partita_proto::placement::Placement;
use partita_proto::range::Bound;
use partita_proto::route::{hash_cuts, ranges_between, rule_cuts};
use partita_proto::rule::{Comparison, Rule};
use partita_proto::schema::{
    Column, ColumnType, HotspotRemedy, MergeMode, Partitioning, Semantic, TableOptions,
    TableSchema, TextLength, Unit,
};
use partita_proto::service::NewTable;
use partita_proto::value::Value;
use proptest::prelude::*;

use super::{made, new_table, table};
use crate::show::create_table_sql;

fn units() -> impl Strategy<Value = Unit> {
    prop::sample::select(vec![Unit::Second, Unit::Millisecond, Unit::Microsecond, Unit::Nanosecond])
}

fn types() -> impl Strategy<Value = ColumnType> {
    use ColumnType as T;
    let plain = vec![
        T::Bool,
        T::Int8,
        T::Int16,
        T::Int32,
        T::Int64,
        T::UInt8,
        T::UInt16,
        T::UInt32,
        T::UInt64,
        T::Float32,
        T::Float64,
        T::String,
        T::Binary,
        T::Date,
        T::Time,
        T::Uuid,
    ];
    prop_oneof![
        4 => prop::sample::select(plain),
        1 => (1_u8..=38).prop_flat_map(|p| (Just(p), 0..=i8::try_from(p).unwrap()))
            .prop_map(|(p, s)| T::Decimal(p, s)),
        1 => (units(), any::<bool>()).prop_map(|(unit, utc)| T::Timestamp(unit, utc)),
    ]
}

/// A value of a type that is not NULL.
fn values(of: ColumnType) -> BoxedStrategy<Value> {
    use ColumnType as T;
    match of {
        T::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        T::Int8 => any::<i8>().prop_map(|v| Value::Int(v.into())).boxed(),
        T::Int16 => any::<i16>().prop_map(|v| Value::Int(v.into())).boxed(),
        T::Int32 => any::<i32>().prop_map(|v| Value::Int(v.into())).boxed(),
        T::Int64 => any::<i64>().prop_map(Value::Int).boxed(),
        T::UInt8 => any::<u8>().prop_map(|v| Value::UInt(v.into())).boxed(),
        T::UInt16 => any::<u16>().prop_map(|v| Value::UInt(v.into())).boxed(),
        T::UInt32 => any::<u32>().prop_map(|v| Value::UInt(v.into())).boxed(),
        T::UInt64 => any::<u64>().prop_map(Value::UInt).boxed(),
        T::Float32 => any::<f32>().prop_map(|v| Value::Float(v.into())).boxed(),
        T::Float64 => any::<f64>().prop_map(Value::Float).boxed(),
        T::Decimal(precision, _) => {
            let max = 10_i128.pow(precision.into());
            (1 - max..max).prop_map(Value::Decimal).boxed()
        }
        T::String => ".{0,6}".prop_map(Value::String).boxed(),
        T::Binary => any::<Vec<u8>>().prop_map(Value::Binary).boxed(),
        T::Date => any::<i32>().prop_map(Value::Date).boxed(),
        T::Time => (0..86_400_000_000_i64).prop_map(Value::Int).boxed(),
        T::Uuid => any::<[u8; 16]>().prop_map(|v| Value::Binary(v.to_vec())).boxed(),
        T::Timestamp(..) => any::<i64>().prop_map(Value::Timestamp).boxed(),
        T::Array(_) | T::Interval => unreachable!("they are no values of defaults"),
    }
}

fn blooms() -> impl Strategy<Value = Blooms> {
    let some = (1_u32..=GRANULARITY_MAX, 1_u32..=500_000)
        .prop_map(|(granularity, false_positives_ppm)| Blooms { granularity, false_positives_ppm });
    prop_oneof![Just(Blooms::default()), some]
}

fn index_options(kind: IndexKind) -> BoxedStrategy<IndexOptions> {
    match kind {
        IndexKind::Inverted => Just(IndexOptions::Inverted).boxed(),
        IndexKind::Skipping => blooms().prop_map(IndexOptions::Skipping).boxed(),
        IndexKind::Fulltext => {
            let analyzers = prop::sample::select(vec![Analyzer::English, Analyzer::Chinese]);
            let backends = prop_oneof![Just(Backend::Inverted), blooms().prop_map(Backend::Bloom)];
            (analyzers, any::<bool>(), backends)
                .prop_map(|(analyzer, case_sensitive, backend)| {
                    IndexOptions::Fulltext(Fulltext { analyzer, case_sensitive, backend })
                })
                .boxed()
        }
    }
}

/// Indexes for a column of a type, without names.
fn indexes(of: ColumnType) -> impl Strategy<Value = Vec<IndexOptions>> {
    let kinds = IndexKind::ALL
        .into_iter()
        .filter(|kind| *kind != IndexKind::Fulltext || of == ColumnType::String)
        .map(|kind| prop::option::weighted(0.2, index_options(kind)))
        .collect::<Vec<_>>();
    kinds.prop_map(|options| options.into_iter().flatten().collect())
}

fn columns() -> impl Strategy<Value = Vec<Column>> {
    let name = prop_oneof![
        "[a-z][a-z0-9_]{0,5}",
        "[A-Za-zäß \"'`.;-]{1,6}",
        prop::sample::select(vec!["select", "time", "index", "primary", "key", "default", "user"])
            .prop_map(str::to_owned),
    ];
    let length = (1_u32..100, any::<bool>())
        .prop_map(|(characters, fixed)| TextLength { characters, fixed });
    let length = prop::option::of(length);
    let column =
        (name, types(), length, any::<bool>(), prop::option::of("[a-z' ]{1,5}"), any::<bool>());
    let column = column.prop_flat_map(|(name, of, length, nullable, comment, has_default)| {
        let length = length.filter(|_| of == ColumnType::String);
        let default =
            if has_default { values(of).prop_map(Some).boxed() } else { Just(None).boxed() };
        (Just((name, of, length, nullable, comment)), default, indexes(of))
    });
    prop::collection::vec(column, 1..8).prop_map(|drafts| {
        let mut columns: Vec<Column> = Vec::new();
        for ((name, column_type, length, nullable, comment), default, indexes) in drafts {
            if name.starts_with("__") || columns.iter().any(|column| column.name == name) {
                continue;
            }
            // Every other index has no name yet.
            let named = |(position, options): (usize, IndexOptions)| Index {
                name: match position % 2 {
                    0 => String::new(),
                    _ => format!("of \"{name}\" {position}"),
                },
                options,
            };
            let indexes = indexes.into_iter().enumerate().map(named).collect();
            columns.push(Column {
                id: ColumnId(u32::try_from(columns.len()).unwrap()),
                storage_name: name.clone(),
                name,
                column_type,
                nullable,
                semantic: Semantic::Field,
                default: default.map(|value| value.display(column_type)),
                generated: None,
                missing: None,
                length,
                json: None,
                indexes,
                comment,
            });
        }
        columns
    })
}

fn options() -> impl Strategy<Value = TableOptions> {
    let time = || prop::option::of((1_u64..1 << 40).prop_map(Duration::from_millis));
    let replicas = prop::option::of(1_u32..=9);
    let comment = prop::option::of("[a-z' ]{1,9}");
    let rules = prop::collection::btree_set("A[0-9]{2}", 0..3);
    let thresholds = prop::collection::btree_map("[a-z_]{1,9}", 0_u32..1000, 0..3);
    let advice = (rules, thresholds);
    let flags = (any::<bool>(), any::<bool>());
    (flags, time(), time(), comment, replicas, partitioning(), advice).prop_map(
        |(flags, ttl, time_window, comment, replication_factor, partitioning, advice)| {
            let (append_mode, non_null) = flags;
            let (rules, thresholds) = advice;
            let threshold =
                |(name, value): (String, u32)| format!("{name}={}", f64::from(value) / 8.0);
            TableOptions {
                append_mode,
                merge_mode: if non_null && !append_mode {
                    MergeMode::LastNonNull
                } else {
                    MergeMode::LastRow
                },
                ttl,
                time_window,
                comment,
                replication_factor,
                partitioning,
                advice_off: rules.into_iter().collect(),
                advice_thresholds: thresholds.into_iter().map(threshold).collect(),
                wide: None,
            }
        },
    )
}

fn partitioning() -> impl Strategy<Value = Partitioning> {
    let remedy =
        prop::sample::select(vec![HotspotRemedy::Off, HotspotRemedy::Advise, HotspotRemedy::Auto]);
    let numbers = (1_u32.., 1_u32..50, prop_oneof![Just(0_u32), 50_u32..]);
    let later = (1_u32.., any::<u32>(), any::<bool>());
    let some = (any::<bool>(), any::<bool>(), numbers, remedy, 0_u32..3, later).prop_map(
        |(
            by_load,
            by_size,
            (partition_size_mb, min_partitions, max_partitions),
            hotspot_remedy,
            keep_together,
            (merge_after_s, pin_expiry_s, forecast),
        )| {
            Partitioning {
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
            }
        },
    );
    prop_oneof![Just(Partitioning::default()), some]
}

/// Schemas: some columns are the key, one may be the time index, in the key or behind it.
fn schemas() -> impl Strategy<Value = TableSchema> {
    (columns(), options(), any::<u64>(), any::<bool>(), any::<bool>()).prop_map(
        |(mut columns, mut options, bits, time_in_key, schema_on_write)| {
            let time = columns
                .iter()
                .position(|column| column.column_type.is_timestamp() && bits & 1 == 0);
            let mut key: Vec<ColumnId> = Vec::new();
            for (at, column) in columns.iter_mut().enumerate() {
                if Some(at) == time {
                    column.semantic = Semantic::TimeIndex;
                    column.nullable = false;
                    if time_in_key {
                        key.push(column.id);
                    }
                } else if bits >> (at + 1) & 1 == 1 {
                    column.semantic = Semantic::Tag;
                    key.push(column.id);
                }
            }
            if let Some(at) = time
                && !time_in_key
            {
                key.push(columns[at].id);
            }
            if time.is_none() {
                options.ttl = None;
            }
            if key.is_empty() {
                options.append_mode = true;
                options.merge_mode = MergeMode::LastRow;
            }
            let next_column = ColumnId(u32::try_from(columns.len()).unwrap());
            TableSchema {
                version: SchemaVersion(1),
                columns,
                key,
                options,
                next_column,
                schema_on_write,
                checks: Vec::new(),
                view: None,
            }
        },
    )
}

/// `column < v0`, `column >= v0 AND column < v1`, ..., `column >= vn`.
fn rules_of(column: &Column, points: &[Value]) -> Vec<Rule> {
    let compare = |comparison, value: &Value| Rule::Compare {
        column: column.id,
        comparison,
        value: value.clone(),
    };
    let mut rules = Vec::new();
    for at in 0..=points.len() {
        let low = at.checked_sub(1).map(|at| compare(Comparison::GreaterOrEqual, &points[at]));
        let high = points.get(at).map(|value| compare(Comparison::Less, value));
        rules.push(match (low, high) {
            (Some(low), Some(high)) => Rule::And(vec![low, high]),
            (Some(only), None) | (None, Some(only)) => only,
            (None, None) => Rule::And(Vec::new()),
        });
    }
    rules
}

fn sorted(mut points: Vec<Value>) -> Vec<Value> {
    points.sort();
    points.dedup();
    points
}

fn tables() -> impl Strategy<Value = NewTable> {
    let name = prop_oneof!["[a-z]{1,6}", "[A-Z \"'.]{1,6}"];
    (schemas(), name, 0..4_u8, 1..9_u16, any::<bool>()).prop_flat_map(
        |(mut schema, name, scheme, partitions, moved)| {
            for column in &mut schema.columns {
                for index in column.indexes.iter_mut().filter(|index| index.name.is_empty()) {
                    index.name = default_name(&name, &column.name, index.options.kind());
                }
            }
            let first = schema.key_columns().next().map(|column| column.column_type);
            let points = match first {
                Some(of) => prop::collection::vec(values(of), 0..4).boxed(),
                None => Just(Vec::new()).boxed(),
            };
            points.prop_map(move |points| {
                let points = sorted(points);
                let first = schema.key_columns().next();
                let (placement, cuts) = match (scheme, first) {
                    (0, Some(column)) => (
                        Placement::Hash { columns: vec![column.id] },
                        // Cut by itself, or as after splits inside of a bucket.
                        if moved {
                            let cut = |value: Value| Bound { placement: Some(7), key: vec![value] };
                            points.into_iter().map(cut).collect()
                        } else {
                            hash_cuts(partitions)
                        },
                    ),
                    (1, Some(column)) if !points.is_empty() => {
                        let rules = rules_of(column, &points);
                        let cuts = rule_cuts(&rules);
                        let cuts = if moved { cuts[..cuts.len() - 1].to_vec() } else { cuts };
                        (Placement::Rules { columns: vec![column.id], rules }, cuts)
                    }
                    (2, Some(_)) => {
                        let cut = |value: Value| Bound { placement: None, key: vec![value] };
                        (Placement::Range, points.into_iter().map(cut).collect())
                    }
                    _ => (Placement::Range, Vec::new()),
                };
                NewTable {
                    database: "public".to_owned(),
                    name: name.clone(),
                    schema: schema.clone(),
                    placement,
                    cuts,
                    owner: BOOTSTRAP_ROLE,
                    copy_of: None,
                    rekeys: false,
                    sequences: Vec::new(),
                }
            })
        },
    )
}

/// The table in the form that it comes back in; none for one that cannot be made.
fn checked(mut new: NewTable) -> Option<NewTable> {
    new.schema.validate().ok()?;
    if let Placement::Rules { rules, .. } = &new.placement {
        partita_proto::rule::check_cover(rules, &new.schema).ok()?;
    }
    let codec = KeyCodec::new(&new.schema, &new.placement).ok()?;
    let ranges = ranges_between(&codec, &new.cuts).ok()?;
    new.cuts = ranges.into_iter().skip(1).map(|range| range.start).collect();
    Some(new)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, max_global_rejects: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn a_shown_table_makes_itself_again(new in tables()) {
        let Some(new) = checked(new) else { return Err(TestCaseError::reject("not a table")) };
        let sql = create_table_sql(&table(&new));
        let (again, _) = match new_table(&sql) {
            Ok(again) => again,
            Err(error) => return Err(TestCaseError::fail(format!("{error}\n{sql}"))),
        };
        prop_assert_eq!(&again.name, &new.name, "{}", sql);
        prop_assert_eq!(&again.schema, &new.schema, "{}", sql);
        prop_assert_eq!(&again.placement, &new.placement, "{}", sql);
        prop_assert_eq!(&again.cuts, &new.cuts, "{}", sql);
        prop_assert_eq!(create_table_sql(&table(&again)), sql);
    }
}

#[test]
fn a_shown_table_reads_well() {
    let shown = create_table_sql(&made(
        "create table Cpu (Host string, region string default 'eu', usage double not null \
         comment 'percent', h bigint unsigned generated always as (hash64(host)) stored, \
         ts timestamp(9) default now() time index, primary key (h, host)) \
         partition by range (h) split at ((100), (200, 'x')) \
         with (ttl = '7 days', merge_mode = 'last_non_null')",
    ));
    assert_eq!(
        shown,
        "CREATE TABLE cpu (
  host STRING NULL,
  region STRING NULL DEFAULT 'eu',
  usage DOUBLE NOT NULL COMMENT 'percent',
  h BIGINT UNSIGNED NULL GENERATED ALWAYS AS (hash64(host)) STORED,
  ts TIMESTAMP(9) NOT NULL DEFAULT now(),
  PRIMARY KEY (h, host),
  TIME INDEX (ts)
)
PARTITION BY RANGE (h, host)
SPLIT AT (
  (100),
  (200, 'x')
)
WITH (
  'merge_mode' = 'last_non_null',
  'ttl' = '7d'
)"
    );
}

#[test]
fn every_kind_of_generated_and_odd_table_round_trips() {
    for sql in [
        "CREATE TABLE t (a INT, b INT GENERATED ALWAYS AS (\"a\" + 1) STORED, PRIMARY KEY (a))",
        "CREATE TABLE \"T \"\"x\" (`select` INT, \"A b\" INT GENERATED ALWAYS AS (`select` * 2) STORED, PRIMARY KEY (`select`))",
        "CREATE TABLE t (d DATE DEFAULT current_date, k INT DEFAULT -5, PRIMARY KEY (k))",
        "CREATE TABLE t (k INT) WITH (append_mode = true)",
        "CREATE TABLE t (a STRING PRIMARY KEY) SPLIT AT (AFTER ('new'), (U&'x\\0000y'), (U&'x\\000Ay'))",
        "CREATE TABLE t (a INT PRIMARY KEY) PARTITION BY HASH (a) PARTITIONS 4 SPLIT AT ((100), (100, 5))",
        "CREATE TABLE t (a INT PRIMARY KEY) PARTITION ON COLUMNS (a) (a < 0 AND a > -5 OR a = 7, a = 0 OR a <= -5, a > 0 AND a <> 7)",
    ] {
        let new = new_table(sql).unwrap().0;
        let shown = create_table_sql(&table(&new));
        let again = new_table(&shown).unwrap().0;
        assert_eq!(again.schema, new.schema, "{shown}");
        assert_eq!(again.placement, new.placement, "{shown}");
        assert_eq!(again.cuts, new.cuts, "{shown}");
    }
}
