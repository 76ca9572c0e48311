//! Bytes of the forms that are kept in logs and files. They never change: what was written once must be read for ever.
//! A new field adds a line to `durable.golden`; a line that differs is a mistake, or needs a new version of the format.

use super::*;
use crate::element::Element;
use crate::materialized::{Capture, CaptureOrder, Ship};

/// The numbers of types that came after the tables of `durable.golden`.
#[test]
fn later_types_keep_their_numbers() {
    assert_eq!(ColumnType::Uuid.encode_wire().to_vec(), [8, 17]);
    assert_eq!(ColumnType::Time.encode_wire().to_vec(), [8, 18]);
    assert_eq!(ColumnType::Interval.encode_wire().to_vec(), [8, 20]);
    // The kind of an array, the parts of its elements' type, and the kind of these.
    let array = |element| ColumnType::Array(element).encode_wire().to_vec();
    assert_eq!(array(Element::Int32), [8, 19, 48, 4]);
    assert_eq!(array(Element::Decimal(20, 4)), [8, 19, 16, 20, 24, 8, 48, 12]);
    let instants = array(Element::Timestamp(Unit::Microsecond, true));
    assert_eq!(instants, [8, 19, 32, 3, 40, 1, 48, 16]);
    assert_eq!(array(Element::Uuid), [8, 19, 48, 17]);
    assert_eq!(
        ColumnType::decode_wire(instants.into()).unwrap(),
        ColumnType::Array(Element::Timestamp(Unit::Microsecond, true))
    );
    // Arrays of arrays, of bytes, and of nothing.
    for form in [vec![8_u8, 19, 48, 19], vec![8, 19, 48, 14], vec![8, 19]] {
        assert!(ColumnType::decode_wire(form.into()).is_err());
    }
}

#[test]
fn aggregates_of_families_keep_their_numbers() {
    for (aggregate, number) in [(Aggregate::Sum, 1), (Aggregate::Min, 2), (Aggregate::Max, 3)] {
        let family = Family { name: "n".to_owned(), gc: None, aggregate: Some(aggregate) };
        let bytes = family.encode_wire().to_vec();
        assert_eq!(bytes, [10, 1, b'n', 24, number]);
        assert_eq!(Family::decode_wire(bytes.into()).unwrap(), family);
    }
    // A family of bytes has no number, and one that this version does not know is refused.
    let plain = Family { name: "n".to_owned(), gc: None, aggregate: None };
    assert_eq!(plain.encode_wire().to_vec(), [10, 1, b'n']);
    assert!(Family::decode_wire(vec![10_u8, 1, b'n', 24, 4].into()).is_err());
}

/// A column with every field set.
fn column(id: u32, name: &str, column_type: ColumnType, semantic: Semantic) -> Column {
    Column {
        id: ColumnId(id),
        name: name.to_owned(),
        storage_name: format!("{name}_{id}"),
        column_type,
        nullable: semantic != Semantic::TimeIndex,
        semantic,
        default: Some("1 + 1".to_owned()),
        generated: Some("upper(a)".to_owned()),
        missing: Some(Value::Int(-7)),
        length: Some(TextLength { characters: 5, fixed: true }),
        json: None,
        indexes: Vec::new(),
        comment: Some("a comment".to_owned()),
    }
}

fn schema() -> TableSchema {
    TableSchema {
        version: SchemaVersion(3),
        columns: vec![
            column(1, "host", ColumnType::String, Semantic::Tag),
            column(2, "ts", ColumnType::Timestamp(Unit::Microsecond, true), Semantic::TimeIndex),
            column(3, "n", ColumnType::Decimal(20, 4), Semantic::Field),
        ],
        key: vec![ColumnId(1), ColumnId(2)],
        options: TableOptions {
            append_mode: true,
            merge_mode: MergeMode::LastNonNull,
            ttl: Some(Duration::from_secs(3600)),
            time_window: Some(Duration::from_secs(86_400)),
            comment: Some("a table".to_owned()),
            replication_factor: Some(3),
            partitioning: Partitioning {
                by_load: true,
                by_size: false,
                partition_size_mb: 512,
                min_partitions: 2,
                max_partitions: 9,
                hotspot_remedy: HotspotRemedy::Auto,
                keep_together: 1,
                ..Partitioning::default()
            },
            advice_off: Vec::new(),
            advice_thresholds: Vec::new(),
            wide: None,
        },
        next_column: ColumnId(4),
        schema_on_write: true,
        checks: Vec::new(),
        view: None,
    }
}

/// Families with rules of every kind.
fn wide() -> Wide {
    let rule = GcRule::Union(vec![
        GcRule::Intersection(vec![
            GcRule::MaxVersions(3),
            GcRule::MaxAge(Duration::from_secs(3600)),
        ]),
        GcRule::MaxAge(Duration::from_secs(86_400)),
    ]);
    let families = vec![
        Family { name: "stats".to_owned(), gc: Some(rule), aggregate: None },
        Family { name: "meta".to_owned(), gc: None, aggregate: None },
    ];
    Wide { families, dropped: Vec::new(), row_bytes_warn: 300, row_bytes_max: 70_000 }
}

fn index(options: IndexOptions) -> Index {
    Index { name: "i".to_owned(), options }
}

/// An index of each form.
fn indexes() -> [Index; 4] {
    let chinese = Fulltext {
        analyzer: Analyzer::Chinese,
        case_sensitive: true,
        backend: Backend::Bloom(Blooms::default()),
    };
    let english = Fulltext { backend: Backend::Inverted, ..Fulltext::default() };
    [
        index(IndexOptions::Inverted),
        index(IndexOptions::Skipping(Blooms::default())),
        index(IndexOptions::Fulltext(chinese)),
        index(IndexOptions::Fulltext(english)),
    ]
}

fn rules() -> Placement {
    let less = |value| Rule::Compare { column: ColumnId(1), comparison: Comparison::Less, value };
    Placement::Rules {
        columns: vec![ColumnId(1)],
        rules: vec![
            Rule::And(vec![less(Value::String("m".to_owned()))]),
            Rule::Or(vec![less(Value::Bool(true)), less(Value::Float(-0.0))]),
        ],
    }
}

fn bound(placement: Option<u16>, key: Vec<Value>) -> Bound {
    Bound { placement, key }
}

fn part(id: RequestId, earlier: Vec<RequestId>, kind: WriteKind, rows: u32) -> WritePart {
    WritePart { id, earlier, kind, rows, ship: None, condition: None }
}

/// Rows for a copy, in one write.
fn shipped(id: RequestId) -> Command {
    let ship = Ship {
        source: PartitionId(7),
        from: Position { index: 300, part: 0 },
        to: Position { index: 301, part: 2 },
    };
    Command::Write(WriteCommand {
        epoch: Epoch(300),
        parts: vec![WritePart { ship: Some(ship), ..part(id, vec![], WriteKind::Put, 2) }],
        rows: Bytes::from_static(b"an Arrow stream"),
    })
}

/// Rows under a condition, in one write.
fn conditional(id: RequestId, by_row: bool) -> Command {
    let bulk = Some(0x0102_0304_0506_0708);
    let schema = SchemaVersion(3);
    let condition = Some(Condition { epoch: Epoch(300), index: 301, bulk, schema, by_row });
    Command::Write(WriteCommand {
        epoch: Epoch(300),
        parts: vec![WritePart { condition, ..part(id, vec![], WriteKind::Put, 2) }],
        rows: Bytes::from_static(b"an Arrow stream"),
    })
}

#[test]
fn durable_forms_never_change() {
    let id = |sequence| RequestId { client: 0x0102_0304_0506_0708, sequence };
    let range = TypedRange {
        start: bound(Some(300), vec![Value::String("é".to_owned()), Value::Timestamp(-1)]),
        end: bound(Some(65_535), vec![]),
    };
    let spec = |placement: Placement| PartitionSpec {
        partition: PartitionId(7),
        table: TableId(5),
        epoch: Epoch(300),
        replica: ReplicaId(11),
        members: BTreeMap::from([(ReplicaId(11), NodeId(1)), (ReplicaId(12), NodeId(2))]),
        range: range.clone(),
        placement,
        schema: Arc::new(schema()),
        join: true,
    };
    let keys = [
        bound(None, vec![Value::Null, Value::Bool(true), Value::Int(-300), Value::UInt(u64::MAX)]),
        bound(None, vec![Value::Float(f64::NAN), Value::Decimal(-1), Value::Binary(vec![0, 255])]),
        bound(None, vec![Value::Date(-719_162), Value::Timestamp(i64::MIN)]),
    ];
    let write = Command::Write(WriteCommand {
        epoch: Epoch(300),
        parts: vec![
            part(id(1), vec![], WriteKind::Put, 2),
            part(id(2), vec![id(1)], WriteKind::Delete, 1),
        ],
        rows: Bytes::from_static(b"an Arrow stream"),
    });
    let split = Split {
        partition: PartitionId(7),
        epoch: Epoch(300),
        at: bound(Some(9), vec![]),
        child: PartitionId(8),
        replicas: BTreeMap::from([(NodeId(1), ReplicaId(13)), (NodeId(2), ReplicaId(14))]),
        leader: None,
    };
    let freeze = Freeze { partition: PartitionId(8), epoch: Epoch(2), on: true };
    let absorb = Absorb {
        partition: PartitionId(7),
        epoch: Epoch(2),
        right: PartitionId(8),
        frozen: 4000,
        end: bound(None, vec![Value::Int(9)]),
    };

    let mut forms = String::new();
    let mut line = |name: &str, bytes: Bytes| {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        forms.push_str(&format!("{name} {hex}\n"));
    };
    line("schema", schema().encode_wire());
    for key in keys {
        line("bound", key.encode_wire());
    }
    line("range", range.encode_wire());
    line("partition by range", spec(Placement::Range).encode_wire());
    line("partition by hash", spec(Placement::Hash { columns: vec![ColumnId(1)] }).encode_wire());
    line("partition by rules", spec(rules()).encode_wire());
    line("write", write.encode());
    line("change the schema", Command::Schema(Arc::new(schema())).encode());
    line("truncate", Command::Truncate(id(3)).encode());
    for reshape in [Reshape::Split(split), Reshape::Freeze(freeze), Reshape::Absorb(absorb)] {
        line("reshape", Command::Reshape(reshape.clone()).encode());
        line("reshape order", reshape.encode_wire());
    }
    for index in indexes() {
        line("index", index.encode_wire());
    }
    let mut indexed = column(1, "host", ColumnType::String, Semantic::Tag);
    indexed.indexes.extend(indexes());
    line("column with indexes", indexed.encode_wire());
    let advice_off = vec!["A04".to_owned(), "A18".to_owned()];
    let options = TableOptions { advice_off, ..TableOptions::default() };
    line("options", options.encode_wire());
    let advice_thresholds = vec!["calls=5".to_owned()];
    let options = TableOptions { advice_thresholds, ..TableOptions::default() };
    line("options with thresholds", options.encode_wire());
    let options = TableOptions { wide: Some(wide()), ..TableOptions::default() };
    line("options of a wide table", options.encode_wire());
    let captures = [
        Capture::Begin,
        Capture::Sync,
        Capture::Shipped(300),
        Capture::End,
        Capture::Close,
        Capture::Detach,
        Capture::Reopen,
    ];
    for capture in captures {
        let order = CaptureOrder { copy: TableId(9), capture };
        line("capture", Command::Copy(order).encode());
    }
    line("write to a copy", shipped(id(1)).encode());
    line("write with a condition", conditional(id(1), false).encode());
    line("write with a condition of rows", conditional(id(1), true).encode());
    line("track", Command::Track.encode());
    assert_eq!(forms, include_str!("durable.golden"), "got:\n{forms}");
}

#[test]
fn a_split_that_names_a_leader_is_of_a_kind_that_older_versions_refuse() {
    let form = |leader| {
        let split = Split {
            partition: PartitionId(7),
            epoch: Epoch(2),
            at: bound(Some(9), vec![]),
            child: PartitionId(8),
            replicas: BTreeMap::from([(NodeId(1), ReplicaId(13))]),
            leader,
        };
        let bytes = Command::Reshape(Reshape::Split(split)).encode();
        bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    assert_eq!(form(None), "2210080710021a02080920082a04080d1001");
    assert_eq!(form(Some(NodeId(1))), "4212080710021a02080920082a04080d10013001");
}

#[test]
fn a_column_of_json_has_a_field_more_than_a_text() {
    let text = column(1, "j", ColumnType::String, Semantic::Field);
    let form = text.encode_wire();
    for (json, number) in [(JsonType::Json, 1), (JsonType::Jsonb, 2)] {
        let column = Column { json: Some(json), ..text.clone() };
        let expected = [&form[..], &[13 << 3, number][..]].concat();
        assert_eq!(column.encode_wire(), expected);
        assert_eq!(Column::decode_wire(expected.into()).unwrap(), column);
    }
}

#[test]
fn a_schema_from_before_indexes_has_none() {
    let form = include_str!("durable.golden").lines().next().unwrap();
    let hex = form.strip_prefix("schema ").unwrap();
    let digits = (0..hex.len()).step_by(2).map(|start| &hex[start..start + 2]);
    let bytes: Vec<u8> = digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect();
    assert_eq!(TableSchema::decode_wire(bytes.into()).unwrap(), schema());
}
