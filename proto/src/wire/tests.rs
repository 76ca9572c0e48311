//! Every form is encoded and decoded, and arbitrary bytes are decoded.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::arbitrary;
use crate::catalog::{Database, Table};
use crate::id::{
    ColumnId, DatabaseId, Epoch, NodeId, PartitionId, ReplicaId, RoleId, SchemaVersion, TableId,
};
use crate::index::{Analyzer, Backend, Blooms, Fulltext, Index, IndexKind, IndexOptions};
use crate::key::KeyCodec;
use crate::materialized::{CopyOf, CopyState, Position, Rekeying};
use crate::placement::Placement;
use crate::range::{Bound, TypedRange};
use crate::reshape::{Absorb, Freeze, Reshape, Split};
use crate::route::PartitionMap;
use crate::rule::{Comparison, Rule};
use crate::samples;
use crate::schema::{
    Check, Column, ColumnType, HotspotRemedy, JsonType, MergeMode, Partitioning, Semantic,
    TableOptions, TableSchema, TextLength, Unit,
};
use crate::service::{
    Condition, Ddl, NamedObject, NewTable, PartitionSpec, RequestId, TableChange, WriteKind,
};
use crate::stored_view::{RelationName, ViewDefinition};
use crate::value::Value;
use crate::wide::{Aggregate, DroppedFamily, Family, FamilyChange, GcRule, Wide};

fn name() -> impl Strategy<Value = String> {
    "[a-zé\"]{0,6}"
}

fn duration() -> impl Strategy<Value = Duration> {
    (any::<u64>(), 0..1_000_000_000_u32).prop_map(|(s, ns)| Duration::new(s, ns))
}

fn any_value() -> impl Strategy<Value = Value> {
    arbitrary::column_type().prop_flat_map(samples::value)
}

fn text_length() -> impl Strategy<Value = TextLength> {
    (any::<u32>(), any::<bool>()).prop_map(|(characters, fixed)| TextLength { characters, fixed })
}

fn column() -> impl Strategy<Value = Column> {
    let semantic =
        prop_oneof![Just(Semantic::Tag), Just(Semantic::Field), Just(Semantic::TimeIndex)];
    let texts = (name(), name(), option::of(name()), option::of(name()), option::of(name()));
    let types = arbitrary::column_type()
        .prop_flat_map(|column_type| (Just(column_type), option::of(samples::value(column_type))));
    let length = text_length();
    let json = prop_oneof![Just(JsonType::Json), Just(JsonType::Jsonb)];
    let types = (types, option::of(length), option::of(json), vec(index(), 0..3));
    (any::<u32>(), texts, types, any::<bool>(), semantic).prop_map(
        |(
            id,
            (name, storage_name, default, generated, comment),
            ((column_type, missing), length, json, indexes),
            nullable,
            semantic,
        )| {
            Column {
                id: ColumnId(id),
                name,
                storage_name,
                column_type,
                nullable,
                semantic,
                default,
                generated,
                missing,
                length,
                json,
                indexes,
                comment,
            }
        },
    )
}

fn index_kind() -> impl Strategy<Value = IndexKind> {
    proptest::sample::select(IndexKind::ALL.to_vec())
}

fn index_options() -> impl Strategy<Value = IndexOptions> {
    let blooms = || {
        any::<(u32, u32)>().prop_map(|(granularity, false_positives_ppm)| Blooms {
            granularity,
            false_positives_ppm,
        })
    };
    let analyzer = prop_oneof![Just(Analyzer::English), Just(Analyzer::Chinese)];
    let backend = prop_oneof![Just(Backend::Inverted), blooms().prop_map(Backend::Bloom)];
    let fulltext =
        (analyzer, any::<bool>(), backend).prop_map(|(analyzer, case_sensitive, backend)| {
            Fulltext { analyzer, case_sensitive, backend }
        });
    prop_oneof![
        Just(IndexOptions::Inverted),
        blooms().prop_map(IndexOptions::Skipping),
        fulltext.prop_map(IndexOptions::Fulltext),
    ]
}

fn index() -> impl Strategy<Value = Index> {
    (name(), index_options()).prop_map(|(name, options)| Index { name, options })
}

fn options() -> impl Strategy<Value = TableOptions> {
    let merge_mode = prop_oneof![Just(MergeMode::LastRow), Just(MergeMode::LastNonNull)];
    let times = (option::of(duration()), option::of(duration()));
    let advice = (vec("A[0-9]{2}", 0..3), vec("[a-z]{1,5}=[0-9]", 0..3));
    let more = (option::of(any::<u32>()), partitioning(), advice, option::of(wide()));
    (any::<bool>(), merge_mode, times, option::of(name()), more).prop_map(
        |(append_mode, merge_mode, (ttl, time_window), comment, more)| TableOptions {
            append_mode,
            merge_mode,
            ttl,
            time_window,
            comment,
            replication_factor: more.0,
            partitioning: more.1,
            advice_off: more.2.0,
            advice_thresholds: more.2.1,
            wide: more.3,
        },
    )
}

fn gc_rule() -> impl Strategy<Value = GcRule> {
    let leaf = prop_oneof![
        (1_u32..9).prop_map(GcRule::MaxVersions),
        (1_u64..1 << 40).prop_map(|millis| GcRule::MaxAge(Duration::from_millis(millis))),
    ];
    leaf.prop_recursive(4, 12, 3, |rule| {
        prop_oneof![
            vec(rule.clone(), 1..3).prop_map(GcRule::Union),
            vec(rule, 1..3).prop_map(GcRule::Intersection),
        ]
    })
}

fn wide() -> impl Strategy<Value = Wide> {
    let aggregate = option::of(proptest::sample::select(Aggregate::ALL.to_vec()));
    let family = (name(), option::of(gc_rule()), aggregate)
        .prop_map(|(name, gc, aggregate)| Family { name, gc, aggregate });
    let dropped = (name(), any::<u32>())
        .prop_map(|(name, version)| DroppedFamily { name, version: SchemaVersion(version) });
    (vec(family, 0..3), vec(dropped, 0..2), any::<u64>(), any::<u64>()).prop_map(
        |(families, dropped, row_bytes_warn, row_bytes_max)| Wide {
            families,
            dropped,
            row_bytes_warn,
            row_bytes_max,
        },
    )
}

fn partitioning() -> impl Strategy<Value = Partitioning> {
    let remedy = prop_oneof![
        Just(HotspotRemedy::Off),
        Just(HotspotRemedy::Advise),
        Just(HotspotRemedy::Auto)
    ];
    let later = any::<(u32, u32, bool)>();
    (any::<(bool, bool, u32, u32, u32, u32)>(), remedy, later).prop_map(
        |(
            (by_load, by_size, partition_size_mb, min_partitions, max_partitions, keep_together),
            hotspot_remedy,
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
    )
}

fn schema() -> impl Strategy<Value = TableSchema> {
    let numbers = (any::<u32>(), vec(any::<u32>(), 0..3), any::<u32>(), any::<bool>());
    let more = (option::of(view()), vec(check(), 0..3));
    (vec(column(), 0..4), options(), numbers, more).prop_map(
        |(columns, options, (version, key, next_column, schema_on_write), (view, checks))| {
            TableSchema {
                version: SchemaVersion(version),
                columns,
                key: key.into_iter().map(ColumnId).collect(),
                options,
                next_column: ColumnId(next_column),
                schema_on_write,
                checks,
                view,
            }
        },
    )
}

fn check() -> impl Strategy<Value = Check> {
    (name(), name()).prop_map(|(name, expression)| Check { name, expression })
}

fn view() -> impl Strategy<Value = ViewDefinition> {
    let read = (name(), name()).prop_map(|(database, name)| RelationName { database, name });
    (name(), name(), vec(read, 0..3)).prop_map(|(query, database, reads)| ViewDefinition {
        query,
        database,
        reads,
    })
}

fn comparison() -> impl Strategy<Value = Comparison> {
    proptest::sample::select(vec![
        Comparison::Equal,
        Comparison::NotEqual,
        Comparison::Less,
        Comparison::LessOrEqual,
        Comparison::Greater,
        Comparison::GreaterOrEqual,
    ])
}

fn rule() -> impl Strategy<Value = Rule> {
    let leaf = (any::<u32>(), comparison(), any_value()).prop_map(|(column, comparison, value)| {
        Rule::Compare { column: ColumnId(column), comparison, value }
    });
    leaf.prop_recursive(4, 16, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Rule::And),
            vec(inner, 0..3).prop_map(Rule::Or)
        ]
    })
}

fn placement() -> impl Strategy<Value = Placement> {
    let columns = || {
        vec(any::<u32>(), 0..3).prop_map(|ids| ids.into_iter().map(ColumnId).collect::<Vec<_>>())
    };
    prop_oneof![
        Just(Placement::Range),
        columns().prop_map(|columns| Placement::Hash { columns }),
        (columns(), vec(rule(), 0..3))
            .prop_map(|(columns, rules)| Placement::Rules { columns, rules }),
    ]
}

fn bound() -> impl Strategy<Value = Bound> {
    (option::of(any::<u16>()), vec(any_value(), 0..4))
        .prop_map(|(placement, key)| Bound { placement, key })
}

fn range() -> impl Strategy<Value = TypedRange> {
    (bound(), bound()).prop_map(|(start, end)| TypedRange { start, end })
}

fn replicas() -> impl Strategy<Value = BTreeMap<ReplicaId, NodeId>> {
    proptest::collection::btree_map(
        any::<u64>().prop_map(ReplicaId),
        any::<u64>().prop_map(NodeId),
        0..4,
    )
}

fn spec() -> impl Strategy<Value = PartitionSpec> {
    let number = || 0..=1_u64 << 62;
    let ids = (number(), any::<u32>(), number(), number());
    (ids, replicas(), range(), placement(), schema(), any::<bool>()).prop_map(
        |((partition, table, epoch, replica), members, range, placement, schema, join)| {
            PartitionSpec {
                partition: PartitionId(partition),
                table: TableId(table),
                epoch: Epoch(epoch),
                replica: ReplicaId(replica),
                members,
                range,
                placement,
                schema: Arc::new(schema),
                join,
            }
        },
    )
}

fn new_table() -> impl Strategy<Value = NewTable> {
    let cuts = vec(bound(), 0..3);
    let ids = (any::<u32>(), option::of(1..=u32::MAX), any::<bool>());
    let sequences = vec(sequence::of_table(), 0..3);
    (name(), name(), schema(), placement(), (cuts, sequences), ids).prop_map(
        |(database, name, schema, placement, (cuts, sequences), ids)| NewTable {
            database,
            name,
            schema,
            placement,
            cuts,
            owner: RoleId(ids.0),
            copy_of: ids.1.map(TableId),
            rekeys: ids.2,
            sequences,
        },
    )
}

fn change() -> impl Strategy<Value = TableChange> {
    prop_oneof![
        (vec(column(), 0..3), any::<bool>()).prop_map(|(columns, if_not_exists)| {
            TableChange::AddColumns { columns, if_not_exists }
        }),
        name().prop_map(TableChange::DropColumn),
        (name(), name()).prop_map(|(from, to)| TableChange::RenameColumn { from, to }),
        (name(), option::of(name()))
            .prop_map(|(column, default)| TableChange::SetDefault { column, default }),
        options().prop_map(|options| TableChange::SetOptions(Box::new(options))),
        (options().prop_map(Box::new), options().prop_map(Box::new))
            .prop_map(|(base, next)| TableChange::ChangeOptions { base, next }),
        name().prop_map(TableChange::Rename),
        any::<u32>().prop_map(|replaced| TableChange::TakePlace(TableId(replaced))),
        wide().prop_map(|wide| {
            let changes = wide.families.into_iter().flat_map(|family| {
                let name = family.name.clone();
                [
                    FamilyChange::Update(family.clone()),
                    FamilyChange::Drop(name),
                    FamilyChange::Create(family),
                ]
            });
            let cleared = wide.dropped.into_iter().map(FamilyChange::Cleared);
            TableChange::ChangeFamilies(changes.chain(cleared).collect())
        }),
        (placement(), vec(bound(), 0..3))
            .prop_map(|(placement, cuts)| TableChange::Repartition { placement, cuts }),
        (name(), index(), any::<bool>()).prop_map(|(column, index, if_not_exists)| {
            TableChange::SetIndex { column, index, if_not_exists }
        }),
        (name(), index_kind()).prop_map(|(column, kind)| TableChange::DropIndex { column, kind }),
        (vec(column(), 0..3), view().prop_map(Box::new))
            .prop_map(|(columns, definition)| TableChange::SetView { columns, definition }),
        (name(), option::of(name()))
            .prop_map(|(column, comment)| TableChange::SetComment { column, comment }),
        (name(), option::of(name()))
            .prop_map(|(column, after)| TableChange::MoveColumn { column, after }),
        (name(), arbitrary::column_type(), option::of(text_length())).prop_map(
            |(column, column_type, length)| TableChange::SetType { column, column_type, length }
        ),
        name().prop_map(TableChange::DropNotNull),
        check().prop_map(TableChange::AddCheck),
        name().prop_map(TableChange::DropCheck),
    ]
}

fn ddl() -> impl Strategy<Value = Ddl> {
    let object = prop_oneof![
        any::<u32>().prop_map(|id| NamedObject::Database(DatabaseId(id))),
        any::<u32>().prop_map(|id| NamedObject::Table(TableId(id))),
    ];
    (body(), option::of(object)).prop_map(|(ddl, object)| match object {
        Some(object) => ddl.checked(object),
        None => ddl,
    })
}

fn body() -> impl Strategy<Value = Ddl> {
    prop_oneof![
        (name(), any::<bool>(), option::of(duration()), any::<u32>()).prop_map(
            |(name, if_not_exists, ttl, owner)| {
                Ddl::CreateDatabase { name, if_not_exists, ttl, owner: RoleId(owner) }
            }
        ),
        access::change().prop_map(|change| Ddl::Access(Box::new(change))),
        task::change().prop_map(|change| Ddl::Task(Box::new(change))),
        sequence::change().prop_map(|change| Ddl::Sequence(Box::new(change))),
        (name(), option::of(duration())).prop_map(|(name, ttl)| Ddl::AlterDatabase { name, ttl }),
        name().prop_map(|name| Ddl::MakeExplicit { name }),
        (name(), option::of(name()))
            .prop_map(|(name, comment)| Ddl::CommentDatabase { name, comment }),
        (name(), any::<bool>()).prop_map(|(name, if_exists)| Ddl::DropDatabase { name, if_exists }),
        (new_table(), any::<bool>()).prop_map(|(table, if_not_exists)| Ddl::CreateTable {
            table: Box::new(table),
            if_not_exists
        }),
        (name(), name(), any::<(bool, bool)>()).prop_map(
            |(database, name, (if_exists, cascade))| Ddl::DropTable {
                database,
                name,
                if_exists,
                cascade
            }
        ),
        materialized::copy_change().prop_map(Ddl::Copy),
        (name(), name()).prop_map(|(database, name)| Ddl::TruncateTable { database, name }),
        (name(), name(), change()).prop_map(|(database, name, change)| Ddl::AlterTable {
            database,
            name,
            change
        }),
    ]
}

fn error() -> impl Strategy<Value = Error> {
    let kind = proptest::sample::select(vec!["table", "database", "column", "partition"]);
    let partition = any::<u64>().prop_map(PartitionId);
    prop_oneof![
        name().prop_map(Error::InvalidInput),
        (kind.clone(), name()).prop_map(|(kind, name)| Error::NotFound { kind, name }),
        (kind, name()).prop_map(|(kind, name)| Error::AlreadyExists { kind, name }),
        name().prop_map(Error::NotAllowed),
        name().prop_map(Error::Unauthenticated),
        name().prop_map(Error::Unsupported),
        (partition.clone(), any::<u64>(), any::<u64>()).prop_map(
            |(partition, requested, current)| Error::StaleRoute {
                partition,
                requested: Epoch(requested),
                current: Epoch(current)
            }
        ),
        any::<u32>().prop_map(|table| Error::StaleSchema { table: TableId(table) }),
        partition.clone().prop_map(|partition| Error::Gap { partition }),
        partition.clone().prop_map(|partition| Error::Changed { partition }),
        partition.clone().prop_map(|partition| Error::NeverTaken { partition }),
        any::<(u64, u64)>()
            .prop_map(|(index, part)| Error::ShipAhead { stored: Position { index, part } }),
        (name(), name()).prop_map(|(message, hint)| Error::Dependents { message, hint }),
        (partition, option::of(any::<u64>().prop_map(NodeId)))
            .prop_map(|(partition, leader)| Error::NotLeader { partition, leader }),
        name().prop_map(Error::Overloaded),
        (name(), name()).prop_map(|(message, hint)| Error::LimitReached { message, hint }),
        name().prop_map(Error::DiskFull),
        name().prop_map(Error::Unavailable),
        name().prop_map(Error::Timeout),
        Just(Error::Cancelled),
        name().prop_map(Error::Corrupted),
        name().prop_map(Error::Internal),
    ]
}

fn request_id() -> impl Strategy<Value = RequestId> {
    any::<(u64, u64)>().prop_map(|(client, sequence)| RequestId { client, sequence })
}

fn reshape() -> impl Strategy<Value = Reshape> {
    let numbers = || (any::<u64>(), any::<u64>(), any::<u64>());
    let replicas = proptest::collection::btree_map(
        any::<u64>().prop_map(NodeId),
        any::<u64>().prop_map(ReplicaId),
        0..4,
    );
    prop_oneof![
        (numbers(), bound(), replicas, option::of(any::<u64>())).prop_map(
            |((partition, epoch, child), at, replicas, leader)| {
                Reshape::Split(Split {
                    partition: PartitionId(partition),
                    epoch: Epoch(epoch),
                    at,
                    child: PartitionId(child),
                    replicas,
                    leader: leader.map(NodeId),
                })
            }
        ),
        (any::<u64>(), any::<u64>(), any::<bool>()).prop_map(|(partition, epoch, on)| {
            Reshape::Freeze(Freeze { partition: PartitionId(partition), epoch: Epoch(epoch), on })
        }),
        (numbers(), any::<u64>(), bound()).prop_map(|((partition, epoch, right), frozen, end)| {
            Reshape::Absorb(Absorb {
                partition: PartitionId(partition),
                epoch: Epoch(epoch),
                right: PartitionId(right),
                frozen,
                end,
            })
        }),
    ]
}

fn condition() -> impl Strategy<Value = Condition> {
    let numbers = (any::<u64>(), any::<u64>(), option::of(any::<u64>()), any::<u32>());
    (numbers, any::<bool>()).prop_map(|((epoch, index, bulk, schema), by_row)| Condition {
        epoch: Epoch(epoch),
        index,
        bulk,
        schema: SchemaVersion(schema),
        by_row,
    })
}

fn command() -> impl Strategy<Value = Command> {
    let kind = prop_oneof![Just(WriteKind::Put), Just(WriteKind::Delete)];
    let ids = (request_id(), vec(request_id(), 0..3));
    let ship = option::of(materialized::ship());
    let part = (ids, kind, any::<u32>(), ship, option::of(condition())).prop_map(
        |((id, earlier), kind, rows, ship, condition)| WritePart {
            id,
            earlier,
            kind,
            rows,
            ship,
            condition,
        },
    );
    let write = (any::<u64>(), vec(part, 0..4), vec(any::<u8>(), 0..20)).prop_map(
        |(epoch, parts, rows)| WriteCommand { epoch: Epoch(epoch), parts, rows: rows.into() },
    );
    prop_oneof![
        write.prop_map(Command::Write),
        schema().prop_map(|schema| Command::Schema(Arc::new(schema))),
        request_id().prop_map(Command::Truncate),
        reshape().prop_map(Command::Reshape),
        materialized::capture_order().prop_map(Command::Copy),
        Just(Command::Track),
    ]
}

fn database() -> impl Strategy<Value = Database> {
    let texts = (name(), option::of(name()));
    (any::<u32>(), texts, option::of(duration()), any::<u32>(), any::<bool>()).prop_map(
        |(id, (name, comment), ttl, owner, explicit)| {
            let (id, owner) = (DatabaseId(id), RoleId(owner));
            Database { id, name, ttl, owner, explicit, comment }
        },
    )
}

/// Encodes and decodes; truncated or modified bytes give an error or another value, never a panic.
fn round_trip<T: Wire + Debug + PartialEq>(
    value: &T,
    at: prop::sample::Index,
    flip: u8,
) -> Result<(), TestCaseError> {
    let bytes = value.encode_wire();
    prop_assert_eq!(&T::decode_wire(bytes.clone()).unwrap(), value);
    if !bytes.is_empty() {
        let at = at.index(bytes.len());
        drop(T::decode_wire(bytes.slice(..at)));
        let mut changed = bytes.to_vec();
        changed[at] ^= flip;
        drop(T::decode_wire(changed.into()));
    }
    Ok(())
}

macro_rules! round_trips {
    ($($test:ident: $strategy:expr;)*) => {
        proptest! {
            $(
                #[test]
                fn $test(
                    value in $strategy,
                    at in any::<prop::sample::Index>(),
                    flip in 1..=255_u8,
                ) {
                    round_trip(&value, at, flip)?;
                }
            )*
        }
    };
}

mod access;
mod durable;
mod history;
mod load;
mod materialized;
mod sequence;
mod services;
mod task;

round_trips! {
    values_survive: any_value();
    column_types_survive: arbitrary::column_type();
    columns_survive: column();
    options_survive: options();
    kinds_of_indexes_survive: index_kind();
    options_of_indexes_survive: index_options();
    indexes_survive: index();
    schemas_survive: schema();
    rules_survive: rule();
    placements_survive: placement();
    bounds_survive: bound();
    ranges_survive: range();
    partition_specs_survive: spec();
    databases_survive: database();
    new_tables_survive: new_table();
    table_changes_survive: change();
    ddl_survives: ddl();
    errors_survive: error();
    commands_survive: command();
}

proptest! {
    #[test]
    fn tables_survive_with_their_routes(
        (types, placed, mut rows) in samples::keyed_rows(any::<bool>(), 0..5),
        members in replicas(),
        at in any::<prop::sample::Index>(),
        flip in 1..=255_u8,
    ) {
        let schema = samples::schema(&types);
        let placement = samples::placement(placed);
        let codec = KeyCodec::new(&schema, &placement).unwrap();
        rows.sort_by_key(|row| codec.encode_bound(row).unwrap());
        rows.dedup_by_key(|row| codec.encode_bound(row).unwrap());
        let ids = (1..).map(PartitionId);
        let map = PartitionMap::from_cuts(&codec, &rows, ids, Epoch(3)).unwrap();
        let mut routes = map.routes().to_vec();
        routes[0].leader = members.values().next().copied();
        routes[0].replicas = members;
        let table = Table {
            id: TableId(7),
            database: "public".to_owned(),
            name: "t".to_owned(),
            schema: Arc::new(schema),
            placement,
            partitions: Arc::new(PartitionMap::new(routes).unwrap()),
            former: Some(TableId(3)),
            succeeded_by: Some(TableId(4)),
            owner: RoleId(9),
            copy: Some(Arc::new(CopyOf {
                source: TableId(2),
                state: CopyState::Lost,
                filler: u64::MAX,
                beat: 5,
                reason: Some("a reason".to_owned()),
                fills: 6,
                rekeying: Some(Rekeying { is_paused: true, rows_per_second: 7, rows: 8 }),
            })),
        };
        round_trip(&table, at, flip)?;
    }

    #[test]
    fn garbage_never_panics(bytes in vec(any::<u8>(), 0..80)) {
        let bytes = Bytes::from(bytes);
        drop(Command::decode(bytes.clone()));
        drop(Ddl::decode_wire(bytes.clone()));
        drop(Table::decode_wire(bytes.clone()));
        drop(PartitionSpec::decode_wire(bytes.clone()));
        drop(Error::decode_wire(bytes));
    }
}

#[test]
fn a_partition_whose_numbers_have_no_next_one_is_refused() {
    let refused = |change: fn(&mut pb::PartitionSpec)| {
        let mut message = pb::PartitionSpec::default();
        change(&mut message);
        PartitionSpec::from_wire(message).unwrap_err().to_string()
    };
    for error in [
        refused(|message| message.partition = u64::MAX),
        refused(|message| message.epoch = u64::MAX),
        refused(|message| message.replica = u64::MAX - 1),
    ] {
        assert!(error.contains("epoch or replica is"), "{error}");
    }
}

#[test]
fn a_missing_field_is_corruption_that_names_it() {
    let message = |error: Error| error.to_string();
    let error = TableSchema::from_wire(pb::TableSchema::default()).unwrap_err();
    assert_eq!(message(error), "corrupted data: a message has no options that this version knows");
    let error = Command::decode(Bytes::new()).unwrap_err();
    assert_eq!(message(error), "corrupted data: a message has no command that this version knows");
    let wide = pb::Bound { placement: Some(65536), key: Vec::new() };
    let error = Bound::from_wire(wide).unwrap_err();
    assert_eq!(
        message(error),
        "corrupted data: a message has placement 65536, which is out of range"
    );
}

#[test]
fn an_index_of_an_unknown_kind_is_refused() {
    let refused = |bytes: &'static [u8]| {
        let error = IndexOptions::decode_wire(Bytes::from_static(bytes)).unwrap_err();
        error.to_string()
    };
    assert!(refused(&[]).contains("no kind of index"));
    // A fourth kind of a later version.
    assert!(refused(&[0x22, 0]).contains("no kind of index"));
    assert!(IndexKind::from_wire(0).is_err());
    assert!(IndexKind::from_wire(4).is_err());
}

#[test]
fn a_chain_of_operators_too_deep_to_walk_is_refused() {
    use pb::rule_node::Kind;
    let node = |kind| pb::RuleNode { kind: Some(kind) };
    let mut nodes = vec![node(Kind::And(0))];
    nodes.extend((0..1_000_000).map(|_| node(Kind::Or(1))));
    assert!(matches!(Rule::from_wire(pb::Rule { nodes }), Err(Error::Corrupted(_))));
    let two = vec![node(Kind::And(0)), node(Kind::And(0))];
    assert!(matches!(Rule::from_wire(pb::Rule { nodes: two }), Err(Error::Corrupted(_))));
    let short = vec![node(Kind::And(1))];
    assert!(matches!(Rule::from_wire(pb::Rule { nodes: short }), Err(Error::Corrupted(_))));
}

#[test]
fn rows_of_a_command_are_not_copied() {
    let rows = Bytes::from(vec![7; 1000]);
    let command = Command::Write(WriteCommand { epoch: Epoch(1), parts: Vec::new(), rows });
    let bytes = command.encode();
    let Command::Write(write) = Command::decode(bytes.clone()).unwrap() else {
        panic!("a write stays a write")
    };
    let within = bytes.as_ptr_range();
    assert!(within.contains(&write.rows.as_ptr()));
}

#[test]
fn the_bytes_of_a_command_do_not_change_between_versions() {
    let id = RequestId { client: 0x0102_0304_0506_0708, sequence: 300 };
    let command = Command::Write(WriteCommand {
        epoch: Epoch(5),
        parts: vec![WritePart {
            id,
            earlier: Vec::new(),
            kind: WriteKind::Delete,
            rows: 2,
            ship: None,
            condition: None,
        }],
        rows: Bytes::from_static(b"rows"),
    });
    let expected = [
        0x0a, 0x1c, 0x08, 0x05, 0x12, 0x12, 0x0a, 0x0c, 0x09, 8, 7, 6, 5, 4, 3, 2, 1, 0x10, 0xac,
        0x02, 0x10, 0x02, 0x18, 0x02, 0x1a, 0x04, b'r', b'o', b'w', b's',
    ];
    assert_eq!(command.encode().as_ref(), expected);
    let truncate = Command::Truncate(RequestId { client: 1, sequence: 1 });
    assert_eq!(truncate.encode().as_ref(), [0x1a, 0x0b, 0x09, 1, 0, 0, 0, 0, 0, 0, 0, 0x10, 1]);
}
