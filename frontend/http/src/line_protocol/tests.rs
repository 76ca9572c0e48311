//! The reader against the published parser, against the rules, and against bytes of any kind.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Float64Type, Int64Type, TimestampNanosecondType, UInt64Type};
use influxdb_line_protocol::{FieldValue, parse_lines};
use partita_proto::catalog::{Catalog, Database};
use partita_proto::wire::{Wire, pb};
use proptest::prelude::*;

use super::*;

const NOW: i64 = 1_600_000_000_123_456_789;

fn options(catalog: &Catalog) -> ReadOptions<'_> {
    ReadOptions {
        catalog,
        database: "public",
        precision: Precision::Nanosecond,
        now: NOW,
        time_column: "time",
        columns_max: 200,
        string_bytes_max: 64 * 1024,
    }
}

fn read_text(text: &str) -> Lines {
    read(text, &options(&Catalog::default())).unwrap()
}

/// One row as plain text: measurement, time, tags, fields.
type Row = (String, i64, BTreeMap<String, String>, BTreeMap<String, String>);

fn rows(lines: &Lines) -> Vec<Row> {
    let mut rows = Vec::new();
    for table in &lines.tables {
        let batch = &table.batch;
        let times = batch.column_by_name("time").unwrap().as_primitive::<TimestampNanosecondType>();
        for row in 0..batch.num_rows() {
            let (mut tags, mut fields) = (BTreeMap::new(), BTreeMap::new());
            for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
                if column.is_null(row) || field.name() == "time" {
                    continue;
                }
                let value = match column.data_type() {
                    DataType::Float64 => {
                        format!("f{}", column.as_primitive::<Float64Type>().value(row).to_bits())
                    }
                    DataType::Int64 => {
                        format!("i{}", column.as_primitive::<Int64Type>().value(row))
                    }
                    DataType::UInt64 => {
                        format!("u{}", column.as_primitive::<UInt64Type>().value(row))
                    }
                    DataType::Boolean => format!("b{}", column.as_boolean().value(row)),
                    _ => format!("s{}", column.as_string_view().value(row)),
                };
                if table.new_tags.contains(field.name()) {
                    tags.insert(field.name().clone(), value[1..].to_owned());
                } else {
                    fields.insert(field.name().clone(), value);
                }
            }
            rows.push((table.name.clone(), times.value(row), tags, fields));
        }
    }
    rows
}

/// What the published parser and the rules on top of it make of a text, in the reader's terms.
struct Oracle {
    columns: BTreeMap<(String, String), &'static str>,
    rows: Vec<Row>,
    rejected: usize,
}

fn oracle(text: &str) -> Oracle {
    let mut oracle = Oracle { columns: BTreeMap::new(), rows: Vec::new(), rejected: 0 };
    for line in influxdb_line_protocol::split_lines(text) {
        // It refuses spaces at the end of a line without a timestamp; servers do not.
        for parsed in parse_lines(line) {
            let retried = parse_lines(line.trim_end_matches(' ')).next();
            let parsed = parsed.or_else(|error| retried.unwrap_or(Err(error)));
            // It lets a comma behind the first field pass, if it is the only one.
            let comma = line.trim_end_matches(|c: char| c.is_ascii_digit() || " -".contains(c));
            let parsed = parsed.ok().filter(|_| !comma.ends_with(','));
            match parsed.and_then(|line| accept(&oracle.columns, &line)) {
                Some((row, columns)) => {
                    oracle.columns.extend(columns);
                    oracle.rows.push(row);
                }
                None => oracle.rejected += 1,
            }
        }
    }
    // The reader groups rows by measurement.
    let mut order: Vec<String> = Vec::new();
    for row in &oracle.rows {
        if !order.contains(&row.0) {
            order.push(row.0.clone());
        }
    }
    oracle.rows.sort_by_key(|row| order.iter().position(|name| *name == row.0));
    oracle
}

#[expect(clippy::type_complexity, reason = "a row and its columns")]
fn accept(
    columns: &BTreeMap<(String, String), &'static str>,
    line: &influxdb_line_protocol::ParsedLine<'_>,
) -> Option<(Row, BTreeMap<(String, String), &'static str>)> {
    let measurement = line.series.measurement.to_string();
    let mut own = BTreeMap::new();
    let (mut tags, mut fields) = (BTreeMap::new(), BTreeMap::new());
    let mut add = |name: &str, column_type: &'static str| {
        let key = (measurement.clone(), name.to_owned());
        let fits = columns.get(&key).is_none_or(|known| *known == column_type);
        let odd = name == "time" || name.starts_with("__") || name.chars().any(char::is_control);
        (fits && !odd && own.insert(key, column_type).is_none()).then_some(())
    };
    if measurement.chars().any(char::is_control) {
        return None;
    }
    for (key, value) in line.series.tag_set.iter().flatten() {
        add(&key.to_string(), "tag")?;
        tags.insert(key.to_string(), value.to_string());
    }
    for (key, value) in &line.field_set {
        let (column_type, value) = match value {
            FieldValue::F64(value) if !value.is_finite() => return None,
            FieldValue::F64(value) => ("f", format!("f{}", value.to_bits())),
            FieldValue::I64(value) => ("i", format!("i{value}")),
            FieldValue::U64(value) => ("u", format!("u{value}")),
            FieldValue::Boolean(value) => ("b", format!("b{value}")),
            FieldValue::String(value) => ("s", format!("s{value}")),
        };
        add(&key.to_string(), column_type)?;
        fields.insert(key.to_string(), value);
    }
    Some(((measurement, line.timestamp.unwrap_or(NOW), tags, fields), own))
}

fn assert_equal_to_oracle(text: &str) {
    let lines = read_text(text);
    let oracle = oracle(text);
    assert_eq!(rows(&lines), oracle.rows, "rows of {text:?}");
    assert_eq!(lines.rejected, oracle.rejected, "rejections of {text:?}: {:?}", lines.rejections);
    assert_eq!(lines.accepted, oracle.rows.len());
}

/// Names, mostly ordinary ones so that lines share columns.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => "[a-d]",
        1 => "[a-c=\"é#]{1,4}",
        1 => "[a-b]\\\\[ ,=\\\\nb][a-b]",
        1 => Just("time".to_owned()),
        1 => "a,b",
    ]
}

fn field_value() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => "-?[0-9]{1,4}(\\.[0-9]{1,4})?",
        2 => "-?[0-9]{1,20}i",
        1 => "[0-9]{1,21}u",
        1 => "[0-9]{1,2}(\\.[0-9])?[eE][+-]?[0-9]{1,3}",
        2 => "(t|T|true|True|TRUE|f|F|false|False|FALSE|nan|tr|truex)",
        4 => "\"[a-c =,\\n#é]{0,6}\"",
        2 => "\"([a-b]|\\\\\"|\\\\\\\\|\\\\n){0,4}\"",
        1 => "(\\.5|5\\.|\\+1|-|-1u|0x1|1\\.0i|)",
    ]
}

fn line() -> impl Strategy<Value = String> {
    let tags = prop::collection::vec((name(), name()), 0..4);
    let fields = prop::collection::vec((name(), field_value()), 0..5);
    let time = prop_oneof![3 => "", 5 => " [0-9]{1,19}", 1 => " -[0-9]{1,4}", 1 => "  [0-9]{20} ",
        1 => " "];
    (name(), tags, fields, time, prop_oneof![9 => Just(" "), 1 => Just("  "), 1 => Just("")])
        .prop_map(|(measurement, tags, fields, time, gap)| {
            let mut line = measurement;
            for (key, value) in tags {
                line.push_str(&format!(",{key}={value}"));
            }
            line.push_str(gap);
            let fields: Vec<_> =
                fields.iter().map(|(key, value)| format!("{key}={value}")).collect();
            line + &fields.join(",") + &time
        })
}

/// Comments end with their line here but not in the published parser; no test text starts one.
fn without_comments(text: &str) -> String {
    text.split('\n')
        .map(|line| if line.trim_start().starts_with('#') { "" } else { line })
        .collect::<Vec<_>>()
        .join("\n")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn the_reader_agrees_with_the_published_parser(lines in prop::collection::vec(line(), 1..8)) {
        assert_equal_to_oracle(&without_comments(&lines.join("\n")));
    }

    #[test]
    fn the_reader_agrees_on_damaged_lines(
        lines in prop::collection::vec(line(), 1..5),
        edits in prop::collection::vec((any::<prop::sample::Index>(), "[ ,=\"\\\\\\n\\tatiu0.#é-]?"), 1..4),
    ) {
        let mut text: Vec<char> = lines.join("\n").chars().collect();
        for (at, with) in edits {
            let at = at.index(text.len());
            text.splice(at..=at, with.chars());
            if text.is_empty() { text.push(' '); }
        }
        let text = without_comments(&text.into_iter().collect::<String>());
        assert_equal_to_oracle(&text);
    }

    #[test]
    fn any_text_is_read_without_panic(text in "\\PC*|[ab ,=\\\\\"\\n\\r\\t#0-9.iute-]{0,60}") {
        let lines = read_text(&text);
        prop_assert_eq!(lines.rejections.len(), lines.rejected.min(REJECTIONS_MAX));
    }
}

#[test]
fn series_are_the_same_whether_their_tags_are_named_like_the_last_ones_or_not() {
    let tags = [
        ",a=1,b=2", ",a=3,b=4", ",b=5,a=6", ",a=7", "", ",a=8,c=9", ",a=9,c=1", ",a=1,a=2",
        ",a=2,b=3",
    ];
    for first in tags {
        for second in tags {
            for third in tags {
                assert_equal_to_oracle(&format!("m{first} v=1 1\nm{second} v=2 2\nm{third} v=3 3"));
            }
        }
    }
}

fn only_rejection(text: &str) -> Rejection {
    let lines = read_text(text);
    assert_eq!(lines.rejected, 1, "{lines:?}");
    lines.rejections.into_iter().next().unwrap()
}

#[test]
fn fields_keep_their_five_types() {
    let lines = read_text("m a=1i,b=1u,c=1,d=\"s\",e=t 7");
    let types: Vec<_> = lines.tables[0]
        .batch
        .schema()
        .fields()
        .iter()
        .map(|field| (field.name().clone(), field.data_type().clone()))
        .collect();
    let expected = [
        ("time", DataType::Timestamp(arrow::datatypes::TimeUnit::Nanosecond, None)),
        ("a", DataType::Int64),
        ("b", DataType::UInt64),
        ("c", DataType::Float64),
        ("d", DataType::Utf8View),
        ("e", DataType::Boolean),
    ];
    assert_eq!(types, expected.map(|(name, data_type)| (name.to_owned(), data_type)));
}

#[test]
fn what_is_named_twice_is_rejected() {
    assert!(only_rejection("m,host=a host=1").message.contains("host"));
    assert!(only_rejection("m,host=a,host=b v=1").message.contains("more than once"));
    assert_eq!(
        only_rejection("m v=1,v=2").message,
        "invalid line protocol - multiple instances of 'v' field found"
    );
    assert_eq!(only_rejection("m v=1 1\nm v=1,v=2").line, 2);
    // A tag of an earlier line, then a field.
    assert_eq!(
        only_rejection("m,host=a v=1\nm host=2").message,
        "invalid column type for column 'host', expected iox::column_type::tag, got \
         iox::column_type::field::float"
    );
}

#[test]
fn time_is_no_name_for_tags_and_fields() {
    assert!(only_rejection("m,time=a v=1").message.contains("time column"));
    assert!(only_rejection("m time=1").message.contains("time column"));
}

#[test]
fn a_type_that_changes_is_a_conflict_of_that_line_only() {
    let lines = read_text("m v=1 1\nm v=2i 2\nm v=3 3\n");
    assert_eq!((lines.accepted, lines.rejected), (2, 1));
    let rejection = &lines.rejections[0];
    assert_eq!((rejection.line, rejection.kind), (2, Kind::Schema));
    assert_eq!(
        rejection.message,
        "invalid column type for column 'v', expected iox::column_type::field::float, got \
         iox::column_type::field::integer"
    );
}

#[test]
fn a_rejected_line_leaves_nothing_behind() {
    let lines = read_text("m,t=a v=1 1\nm,t=b,u=c w=1,v=oops 2\nn x=\n");
    assert_eq!((lines.accepted, lines.rejected), (1, 2));
    assert_eq!(lines.tables.len(), 1);
    assert_eq!(lines.tables[0].new_tags, ["t"]);
    assert_eq!(lines.tables[0].new_fields.len(), 1);
}

#[test]
fn the_column_limit_counts_the_time() {
    let fields =
        |count: usize| (0..count).map(|at| format!("f{at}=1")).collect::<Vec<_>>().join(",");
    assert_eq!(read_text(&format!("m {} 1", fields(199))).rejected, 0);
    let rejection = only_rejection(&format!("m {} 1", fields(200)));
    assert_eq!(rejection.kind, Kind::ColumnLimit);
    assert!(rejection.message.contains("limit of 200 columns"));
    let two = format!("m {} 1\nm f0=1,g=2 2\nm f0=2 3", fields(199));
    let lines = read_text(&two);
    assert_eq!((lines.accepted, lines.rejected), (2, 1));
    // Far too many do not make the reader quadratic.
    assert_eq!(only_rejection(&format!("m {} 1", fields(200_000))).kind, Kind::ColumnLimit);
}

#[test]
fn lines_outside_the_retention_are_rejected() {
    let mut catalog = Catalog::default();
    let form = pb::Database {
        id: 1,
        name: "public".to_owned(),
        ttl: Some(Duration::from_secs(3600).to_wire()),
        ..pb::Database::default()
    };
    let database = Database::from_wire(form).unwrap();
    catalog.databases.insert("public".to_owned(), Arc::new(database));
    let oldest = NOW - 3_600_000_000_000;
    let text = format!("m v=1 {oldest}\nm v=2 {}\nn v=3 {}\nm v=4\n", oldest - 1, oldest - 1);
    let lines = read(&text, &options(&catalog)).unwrap();
    assert_eq!((lines.accepted, lines.rejected, lines.tables.len()), (2, 2, 1));
    assert!(lines.rejections.iter().all(|rejection| rejection.kind == Kind::Retention));
    assert!(lines.rejections[0].message.contains("outside the retention of table \"m\""));
    // The time is also checked after lines whose series is the same.
    let unlimited = read_text(&text);
    assert_eq!((unlimited.accepted, unlimited.rejected), (4, 0));
}

#[test]
fn carriage_returns_blank_lines_and_comments_are_skipped() {
    let lines = read_text("# x=\"\r\n\r\nm v=1 1\r\n   \r\n\tm v=2 2\r\nm v=3\r\n# end\\");
    assert_eq!((lines.accepted, lines.rejected), (3, 0), "{:?}", lines.rejections);
}

#[test]
fn line_numbers_count_newlines_inside_strings() {
    let text = "m v=\"a\nb\" 1\nbad\n\nm v=1 2\n";
    let lines = read_text(text);
    let numbers: Vec<_> = lines.rejections.iter().map(|rejection| rejection.line).collect();
    assert_eq!(numbers, [3, 5]);
    assert_eq!(lines.rejections[0].original, "bad");
}

#[test]
fn the_original_line_is_cut_between_characters() {
    let rejection = only_rejection("ééééééééééééé");
    assert_eq!(rejection.original, "é".repeat(10));
    assert_eq!(only_rejection("xééééééééééééé").original, format!("x{}", "é".repeat(9)));
}

#[test]
fn timestamps_scale_or_are_refused() {
    let catalog = Catalog::default();
    let seconds = ReadOptions { precision: Precision::Second, ..options(&catalog) };
    let lines = read("m v=1 2\nm v=1 9223372037\nm v=1\n", &seconds).unwrap();
    let times: Vec<_> = rows(&lines).into_iter().map(|row| row.1).collect();
    assert_eq!(times, [2_000_000_000, 1_600_000_000_000_000_000]);
    assert!(lines.rejections[0].message.contains("out of range"));
}

#[test]
fn long_strings_and_long_series_are_refused() {
    let string = |bytes: usize| format!("m v=\"{}\" 1", "x".repeat(bytes));
    assert_eq!(read_text(&string(64 * 1024)).rejected, 0);
    assert!(only_rejection(&string(64 * 1024 + 1)).message.contains("65537 bytes"));
    let series = format!("m,t={} v=1", "x".repeat(SERIES_BYTES_MAX));
    assert!(only_rejection(&series).message.contains("exceed the limit"));
}

#[test]
fn tags_that_are_absent_are_null_and_distinct_from_each_other() {
    let lines = read_text("m,a=1 v=1 5\nm v=2 5\nm,b=1i v=3 5\n");
    let rows = rows(&lines);
    assert_eq!(rows[0].2, BTreeMap::from([("a".to_owned(), "1".to_owned())]));
    assert!(rows[1].2.is_empty());
    assert_eq!(rows[2].2, BTreeMap::from([("b".to_owned(), "1i".to_owned())]));
}

#[test]
fn an_escaped_spelling_is_the_same_measurement_and_field() {
    let lines = read_text("m\\ x,t\\==1 f\\,g=1 1\nm\\ x,t\\==1 f\\,g=2 2\nm\\ x,t\\==1 f,g=3 3\n");
    assert_eq!(lines.rejected, 0, "{:?}", lines.rejections);
    assert_eq!(lines.tables.len(), 1);
    assert_eq!(lines.tables[0].name, "m x");
    assert_eq!(lines.tables[0].batch.num_columns(), 3);
}

mod with_a_table {
    use partita_proto::id::{BOOTSTRAP_ROLE, ColumnId, Epoch, PartitionId, SchemaVersion, TableId};
    use partita_proto::key::KeyCodec;
    use partita_proto::placement::Placement;
    use partita_proto::route::PartitionMap;
    use partita_proto::schema::{Column, ColumnType, Semantic, TableOptions, TableSchema, Unit};

    use super::*;

    fn column(id: u32, name: &str, column_type: ColumnType, semantic: Semantic) -> Column {
        Column {
            id: ColumnId(id),
            name: name.to_owned(),
            storage_name: name.to_owned(),
            column_type,
            nullable: semantic != Semantic::TimeIndex,
            semantic,
            default: None,
            generated: None,
            missing: None,
            length: None,
            json: None,
            indexes: Vec::new(),
            comment: None,
        }
    }

    fn catalog(columns: Vec<Column>, schema_on_write: bool) -> Catalog {
        let key = columns.iter().filter(|c| c.semantic != Semantic::Field).map(|c| c.id).collect();
        let schema = TableSchema {
            version: SchemaVersion(1),
            next_column: ColumnId(100),
            columns,
            key,
            options: TableOptions::default(),
            schema_on_write,
            checks: Vec::new(),
            view: None,
        };
        schema.validate().unwrap();
        let codec = KeyCodec::new(&schema, &Placement::Range).unwrap();
        let partitions = PartitionMap::from_cuts(&codec, &[], [PartitionId(1)], Epoch(1)).unwrap();
        let table = partita_proto::catalog::Table {
            id: TableId(1),
            database: "public".to_owned(),
            name: "m".to_owned(),
            schema: Arc::new(schema),
            placement: Placement::Range,
            partitions: Arc::new(partitions),
            former: None,
            succeeded_by: None,
            copy: None,
            owner: BOOTSTRAP_ROLE,
        };
        let mut catalog = Catalog::default();
        catalog
            .tables
            .entry("public".to_owned())
            .or_default()
            .insert("m".to_owned(), Arc::new(table));
        catalog
    }

    fn sql_table() -> Catalog {
        catalog(
            vec![
                column(1, "host", ColumnType::String, Semantic::Tag),
                column(2, "id", ColumnType::Int32, Semantic::Tag),
                column(
                    3,
                    "ts",
                    ColumnType::Timestamp(Unit::Millisecond, true),
                    Semantic::TimeIndex,
                ),
                column(4, "v", ColumnType::Float64, Semantic::Field),
                column(5, "n", ColumnType::Int8, Semantic::Field),
            ],
            false,
        )
    }

    #[test]
    fn rows_take_the_types_of_the_table() {
        let catalog = sql_table();
        let lines = read("m,host=a id=7i,v=1.5,n=-3i 1234567\n", &options(&catalog)).unwrap();
        assert_eq!(lines.rejected, 0, "{:?}", lines.rejections);
        let table = &lines.tables[0];
        let schema = &table.table.as_ref().unwrap().schema;
        assert!(table.fits(schema));
        assert!(table.new_tags.is_empty() && table.new_fields.is_empty());
        let ids = table.batch.column_by_name("id").unwrap();
        assert_eq!(ids.data_type(), &DataType::Int32);
        assert_eq!(
            table.batch.column_by_name("ts").unwrap().data_type(),
            &ColumnType::Timestamp(Unit::Millisecond, true).arrow()
        );
    }

    #[test]
    fn values_that_do_not_fit_are_refused_line_by_line() {
        let catalog = sql_table();
        let text = "m n=1i 1\nm n=300i 2\nm v=1i 3\nm ts=1 4\nm host=\"a\" 5\nm,v=a n=1i 6\n\
                    m x=1 7\nm,y=1 n=1i 8\n";
        let lines = read(text, &options(&catalog)).unwrap();
        assert_eq!((lines.accepted, lines.rejected), (1, 7), "{:?}", lines.rejections);
        assert!(lines.rejections[0].message.contains("out of range for TINYINT"));
        assert!(lines.rejections[5].message.contains("ALTER TABLE"));
    }

    #[test]
    fn the_type_in_the_catalog_decides_not_the_first_line() {
        let catalog = catalog(
            vec![
                column(
                    1,
                    "time",
                    ColumnType::Timestamp(Unit::Nanosecond, false),
                    Semantic::TimeIndex,
                ),
                column(2, "v", ColumnType::Int64, Semantic::Field),
            ],
            true,
        );
        let lines = read("m v=1 1\nm v=2i 2\nm,t=x v=3i,w=1 3\n", &options(&catalog)).unwrap();
        assert_eq!((lines.accepted, lines.rejected), (2, 1));
        assert_eq!(lines.tables[0].new_tags, ["t"]);
        assert_eq!(lines.tables[0].new_fields, [("w".to_owned(), ColumnType::Float64)]);
        assert!(!lines.tables[0].fits(&lines.tables[0].table.as_ref().unwrap().schema));
    }

    #[test]
    fn columns_that_may_not_be_null_must_be_there() {
        let mut required = column(2, "v", ColumnType::Int64, Semantic::Field);
        required.nullable = false;
        let time = ColumnType::Timestamp(Unit::Nanosecond, false);
        let catalog = catalog(vec![column(1, "time", time, Semantic::TimeIndex), required], true);
        let lines = read("m w=1 1\nm v=1i,w=1 2\n", &options(&catalog)).unwrap();
        assert_eq!((lines.accepted, lines.rejected), (1, 1));
        assert!(lines.rejections[0].message.contains("must not be NULL"));
    }
}
