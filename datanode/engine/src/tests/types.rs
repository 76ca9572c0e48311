//! Values of every type come back as they were written, and predicates on them neither lose rows to
//! statistics nor let others through.

use arrow::array::{ListBuilder, StringViewBuilder};
use arrow::compute::{concat_batches, sort_to_indices, take_record_batch};
use partita_proto::rule::Comparison;
use partita_proto::schema::Element;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

fn types() -> Vec<(ColumnType, Vec<Value>)> {
    let ints = |low: i64, high: i64| [low, low + 1, -1, 0, 1, 7, high - 1, high].map(int).to_vec();
    let unsigned = |high: u64| [0, 1, 7, high / 2, high / 2 + 1, high].map(Value::UInt).to_vec();
    let floats =
        [f64::NEG_INFINITY, -1.5, -0.0, 0.0, 1.5, f64::MAX, f64::INFINITY, f64::NAN, -f64::NAN];
    let single = [-1.5, -0.0, 0.0, 1.5, f64::INFINITY, f64::NAN];
    let long = |end: &str| format!("{}{end}", "a prefix of more than sixty-four bytes ".repeat(3));
    let texts = ["", "\0", "a", "b", "ä", "\u{10FFFF}"].map(text).to_vec();
    let times = [i64::MIN, -1, 0, 1, i64::MAX].map(ts).to_vec();
    vec![
        (ColumnType::Bool, [false, true].map(Value::Bool).to_vec()),
        (ColumnType::Int8, ints(i8::MIN.into(), i8::MAX.into())),
        (ColumnType::Int16, ints(i16::MIN.into(), i16::MAX.into())),
        (ColumnType::Int32, ints(i32::MIN.into(), i32::MAX.into())),
        (ColumnType::Int64, ints(i64::MIN, i64::MAX)),
        (ColumnType::UInt8, unsigned(u8::MAX.into())),
        (ColumnType::UInt16, unsigned(u16::MAX.into())),
        (ColumnType::UInt32, unsigned(u32::MAX.into())),
        (ColumnType::UInt64, unsigned(u64::MAX)),
        (ColumnType::Float32, single.map(Value::Float).to_vec()),
        (ColumnType::Float64, floats.map(Value::Float).to_vec()),
        (
            ColumnType::Decimal(38, 3),
            [-(10_i128.pow(37)), -1, 0, 1, 10_i128.pow(37)].map(Value::Decimal).to_vec(),
        ),
        (ColumnType::String, texts),
        (ColumnType::String, ["", "x", "y"].map(|end| text(&long(end))).to_vec()),
        (
            ColumnType::Binary,
            [&[][..], &[0], &[0xFF; 70], &[0xFF; 71]]
                .map(|bytes| Value::Binary(bytes.to_vec()))
                .to_vec(),
        ),
        (ColumnType::Date, [i32::MIN, -1, 0, i32::MAX].map(Value::Date).to_vec()),
        (ColumnType::Time, [0, 1, 43_200_000_000, 86_399_999_999].map(int).to_vec()),
        (
            ColumnType::Uuid,
            [[0; 16], [1; 16], [0x7F; 16], [0x80; 16], [0xFF; 16]]
                .map(|bytes| Value::Binary(bytes.to_vec()))
                .to_vec(),
        ),
        (ColumnType::Timestamp(Unit::Second, false), times.clone()),
        (ColumnType::Timestamp(Unit::Nanosecond, true), times),
    ]
}

/// A type, the values of some rows, and a domain over the same values.
fn case() -> impl Strategy<Value = (ColumnType, Vec<Value>, Domain)> {
    select(types()).prop_flat_map(|(column_type, values)| {
        let value = || select(values.clone());
        let row = prop_oneof![4 => value(), 1 => Just(Value::Null)];
        let comparison = select(vec![
            Comparison::Equal,
            Comparison::NotEqual,
            Comparison::Less,
            Comparison::LessOrEqual,
            Comparison::Greater,
            Comparison::GreaterOrEqual,
        ]);
        let compare = || (comparison.clone(), value()).prop_map(|(c, v)| Domain::compare(c, v));
        let domain = prop_oneof![
            compare(),
            (compare(), compare()).prop_map(|(a, b)| a.intersect(&b)),
            prop::collection::vec(value(), 0..3).prop_map(Domain::points),
            Just(Domain::null_only()),
            Just(Domain::not_null()),
        ];
        (Just(column_type), prop::collection::vec(row, 1..40), domain)
    })
}

async fn check(column_type: ColumnType, values: &[Value], domain: Domain, in_key: bool) {
    let semantic = if in_key { Semantic::Tag } else { Semantic::Field };
    let schema = TableSchema {
        version: SchemaVersion(1),
        columns: vec![
            column(1, "id", ColumnType::Int64, Semantic::Tag),
            column(2, "v", column_type, semantic),
        ],
        key: if in_key { vec![ColumnId(2), ColumnId(1)] } else { vec![ColumnId(1)] },
        options: last_row(),
        next_column: ColumnId(3),
        schema_on_write: false,
        checks: Vec::new(),
        view: None,
    };
    let mut fixture = Fixture::new(config(schema, Placement::Range)).await;
    let rows: Vec<Row> =
        (0_i64..).zip(values).map(|(id, value)| vec![int(id), value.clone()]).collect();
    fixture.put(&["id", "v"], &rows);
    let wanted = |row: &&Row| domain.contains(&row[1]);
    let expected: Vec<Row> = rows.iter().filter(wanted).cloned().collect();
    for flushed in [false, true] {
        if flushed {
            fixture.flush().await.unwrap();
        }
        assert_eq!(fixture.read(&["id", "v"]).await, rows);
        let found = fixture.read_where(&["id", "v"], &[("v", domain.clone())]).await.unwrap();
        assert_eq!(found, expected, "{domain:?}, flushed: {flushed}");
    }
}

/// Arrays, which are no values of domains: of each row `None`, or texts of any number.
fn texts(rows: &[Option<Vec<Option<&str>>>]) -> ArrayRef {
    let mut builder = ListBuilder::new(StringViewBuilder::new());
    for row in rows {
        match row {
            Some(elements) => {
                for element in elements {
                    builder.values().append_option(*element);
                }
                builder.append(true);
            }
            None => builder.append(false),
        }
    }
    Arc::new(builder.finish())
}

#[tokio::test]
async fn arrays_come_back_from_memory_from_files_and_from_merges() {
    let schema = TableSchema {
        version: SchemaVersion(1),
        columns: vec![
            column(1, "id", ColumnType::Int64, Semantic::Tag),
            column(2, "v", ColumnType::Array(Element::String), Semantic::Field),
        ],
        key: vec![ColumnId(1)],
        options: last_row(),
        next_column: ColumnId(3),
        schema_on_write: false,
        checks: Vec::new(),
        view: None,
    };
    let mut fixture = Fixture::new(config(schema.clone(), Placement::Range)).await;
    let long = "a text that is longer than a view holds";
    let rows = |ids: Vec<Value>, arrays: &[Option<Vec<Option<&str>>>]| {
        let ids = array_of(ColumnType::Int64, &ids).unwrap();
        RecordBatch::try_new(columns(&schema, &["id", "v"]), vec![ids, texts(arrays)]).unwrap()
    };
    let old = [Some(vec![Some("old")]), None, Some(vec![]), Some(vec![None, Some(long)])];
    let written = rows([1, 2, 3, 4].map(int).to_vec(), &old);
    fixture.apply(&[(WriteKind::Put, written)]).unwrap();
    fixture.flush().await.unwrap();
    let new = [Some(vec![Some(long), Some("new")]), Some(vec![None])];
    fixture.apply(&[(WriteKind::Put, rows(vec![int(1), int(5)], &new))]).unwrap();
    let all = [new[0].clone(), old[1].clone(), old[2].clone(), old[3].clone(), new[1].clone()];
    let expected = rows([1, 2, 3, 4, 5].map(int).to_vec(), &all);
    for step in ["memory", "files", "merged", "reopened"] {
        match step {
            "files" => assert!(fixture.flush().await.unwrap()),
            "merged" => assert!(fixture.partition.compact(true).await.unwrap()),
            "reopened" => fixture.reopen().await,
            _ => {}
        }
        for (domain, wanted) in
            [(None, expected.clone()), (Some(Domain::null_only()), expected.slice(1, 1))]
        {
            let domains: Vec<_> = domain.into_iter().map(|domain| ("v", domain)).collect();
            let scanned = fixture.partition.scan(fixture.scan(&["id", "v"], &domains)).unwrap();
            let streams = scanned.streams.into_iter().map(TryStreamExt::try_collect::<Vec<_>>);
            let found = futures::future::try_join_all(streams).await.unwrap().concat();
            let found = concat_batches(&expected.schema(), &found).unwrap();
            let order = sort_to_indices(found.column(0), None, None).unwrap();
            assert_eq!(take_record_batch(&found, &order).unwrap(), wanted, "{step}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn every_type_is_stored_and_pruned_exactly((column_type, mut values, domain) in case(), in_key: bool, clustered: bool) {
        if clustered {
            values.sort();
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(check(column_type, &values, domain, in_key));
    }
}
