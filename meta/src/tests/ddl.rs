//! Every transition and every refusal, without disk, log or nodes.

use std::time::Duration;

use partita_proto::id::{Epoch, PartitionId, ReplicaId};
use partita_proto::index::{Backend, Blooms, Fulltext, Index, IndexKind, IndexOptions};
use partita_proto::range::TypedRange;
use partita_proto::route::hash_cuts;
use partita_proto::rule::{Comparison, Rule};
use partita_proto::schema::{Check, TextLength};
use partita_proto::wide::{DroppedFamily, Family, FamilyChange};

use super::*;
use crate::catalog::Work;

const DAY: Duration = Duration::from_secs(86_400);

fn world_with(name: &str) -> World {
    let mut world = World::new();
    assert!(world.done(create(new_table(name))).unwrap());
    world
}

fn not_found(kind: &'static str, name: &str) -> Error {
    Error::NotFound { kind, name: name.to_owned() }
}

fn already(kind: &'static str, name: &str) -> Error {
    Error::AlreadyExists { kind, name: name.to_owned() }
}

#[test]
fn a_new_catalog_has_the_public_database() {
    let world = World::new();
    let names: Vec<_> = world.catalog.databases.keys().collect();
    assert_eq!(names, ["public"]);
    assert_eq!(world.catalog.version, 1);
}

#[test]
fn a_table_is_seen_when_its_nodes_have_it() {
    let mut world = World::new();
    let reply = world.change(create(new_table("t"))).unwrap();
    let (table, step) = world.job("t");
    assert_eq!(reply, Reply::Changed { steps: vec![(table, step)] });
    assert_eq!(world.phase("t"), Phase::Creating);
    assert!(!world.visible("t"));
    world.settle();
    assert_eq!(world.phase("t"), Phase::Ready);
    let table = world.catalog.table("public", "t").unwrap();
    let routes = table.partitions.routes();
    assert_eq!(routes.len(), 3);
    let ids: Vec<_> = routes.iter().map(|route| route.partition).collect();
    assert_eq!(ids, [PartitionId(1), PartitionId(2), PartitionId(3)]);
    let replicas: Vec<_> = routes.iter().flat_map(|route| route.replicas.keys().copied()).collect();
    assert_eq!(replicas, [ReplicaId(2), ReplicaId(3), ReplicaId(4)]);
    assert!(routes.iter().all(|route| route.epoch == Epoch(1)));
    assert!(routes.iter().all(|route| route.leader == Some(NodeId(1))));
}

fn create_within(
    world: &mut World,
    database: &str,
    name: &str,
    tables_max: Option<u32>,
) -> Result<Reply, Error> {
    let ddl = create(NewTable { database: database.to_owned(), ..new_table(name) });
    let places = vec![vec![NodeId(1)]; new_partitions(&world.state, &ddl)];
    let reply = world.command(&Command::Change { ddl, places, id: None, tables_max });
    world.settle();
    reply
}

#[test]
fn a_database_has_no_more_tables_than_its_limit() {
    let mut world = World::new();
    create_within(&mut world, "public", "t1", Some(2)).unwrap();
    create_within(&mut world, "public", "t2", Some(2)).unwrap();
    let refused = create_within(&mut world, "public", "t3", Some(2)).unwrap_err();
    assert_eq!(refused.sqlstate(), "54000");
    assert_eq!(refused.to_string(), "database \"public\" has 2 tables, which is the limit");
    // A table that exists is named as that, also at the limit.
    assert_eq!(create_within(&mut world, "public", "t1", Some(2)), Err(already("table", "t1")));
    // Entries of earlier versions have no limit, and a larger one makes room.
    create_within(&mut world, "public", "t3", None).unwrap();
    create_within(&mut world, "public", "t4", Some(4)).unwrap();
    world.done(create_database("other")).unwrap();
    create_within(&mut world, "other", "t1", Some(4)).unwrap();
    world.done(drop_table("t4")).unwrap();
    create_within(&mut world, "public", "t5", Some(4)).unwrap();
}

#[test]
fn a_table_is_created_once() {
    let mut world = world_with("t");
    assert_eq!(world.change(create(new_table("t"))), Err(already("table", "t")));
    let again = Ddl::CreateTable { table: Box::new(new_table("t")), if_not_exists: true };
    assert_eq!(world.change(again), Ok(Reply::Unchanged));
    world.done(create_database("other")).unwrap();
    let elsewhere = NewTable { database: "other".to_owned(), ..new_table("t") };
    assert_eq!(world.done(create(elsewhere.clone())), Ok(true));
    assert_eq!(world.change(create(elsewhere)), Err(already("table", "other.t")));
    let nowhere = NewTable { database: "nowhere".to_owned(), ..new_table("t") };
    assert_eq!(world.change(create(nowhere)), Err(not_found("database", "nowhere")));
}

#[test]
fn a_table_being_created_is_busy() {
    let mut world = World::new();
    world.change(create(new_table("t"))).unwrap();
    let (table, step) = world.job("t");
    let busy = Ok(Reply::Busy { table, step });
    let again = Ddl::CreateTable { table: Box::new(new_table("t")), if_not_exists: true };
    assert_eq!(world.change(again), busy);
    assert_eq!(world.change(create(new_table("t"))), busy);
    assert_eq!(world.change(drop_table("t")), busy);
    assert_eq!(world.change(alter("t", add(vec![field("x")]))), busy);
    world.settle();
    assert_eq!(world.change(create(new_table("t"))), Err(already("table", "t")));
}

#[test]
fn a_table_that_cannot_be_created_goes_and_its_name_is_free() {
    let mut world = World::new();
    world.change(create(new_table("t"))).unwrap();
    let (table, step) = world.job("t");
    world.command(&Command::Abort { table, step }).unwrap();
    assert_eq!(world.state.table(table).unwrap().phase, Phase::Dropping);
    // A late answer to the creation does not bring it back.
    assert_eq!(world.command(&Command::Finish { table, step }), Ok(Reply::Unchanged));
    assert_eq!(world.done(create(new_table("t"))), Ok(true));
    assert_ne!(world.table("t").id, table);
    assert!(world.state.table(table).is_none());
    // Nor is a table that became ready given up.
    let (table, step) = world.job("t");
    assert_eq!(world.command(&Command::Abort { table, step }), Ok(Reply::Unchanged));
}

#[test]
fn a_dropped_table_goes_at_once_and_its_ids_never_come_back() {
    let mut world = world_with("t");
    let old = world.table("t");
    world.change(drop_table("t")).unwrap();
    assert!(!world.visible("t"));
    world.change(create(new_table("t"))).unwrap();
    let new = world.table("t");
    assert!(new.id > old.id);
    assert!(new.partitions.iter().all(|id| !old.partitions.contains(id)));
    world.settle();
    assert!(world.visible("t"));
    assert!(world.state.table(old.id).is_none());
    assert_eq!(world.state.partitions().count(), 3);
    world.done(drop_table("t")).unwrap();
    assert_eq!(world.change(drop_table("t")), Err(not_found("table", "t")));
    let if_exists = Ddl::DropTable {
        database: "public".to_owned(),
        name: "t".to_owned(),
        if_exists: true,
        cascade: false,
    };
    assert_eq!(world.change(if_exists), Ok(Reply::Unchanged));
}

#[test]
fn a_table_in_the_middle_of_an_alter_can_be_dropped() {
    let mut world = world_with("t");
    world.change(alter("t", add(vec![field("x")]))).unwrap();
    let (table, step) = world.job("t");
    assert_eq!(world.change(alter("t", add(vec![field("y")]))), Ok(Reply::Busy { table, step }));
    world.change(drop_table("t")).unwrap();
    assert_eq!(world.command(&Command::Finish { table, step }), Ok(Reply::Unchanged));
    assert!(!world.visible("t"));
    world.settle();
    assert!(world.state.table(table).is_none());
}

#[test]
fn line_protocol_creates_no_table_in_an_explicit_database() {
    let mut world = World::new();
    world.change(create_database("d")).unwrap();
    let explicit = |name: &str| Ddl::MakeExplicit { name: name.to_owned() };
    assert!(matches!(world.change(explicit("d")), Ok(Reply::Changed { .. })));
    assert_eq!(world.change(explicit("d")), Ok(Reply::Unchanged));
    assert!(world.catalog.databases["d"].explicit);
    let mut table = NewTable { database: "d".to_owned(), ..new_table("t") };
    table.schema.schema_on_write = true;
    assert!(world.change(create(table.clone())).is_err());
    table.schema.schema_on_write = false;
    world.done(create(table)).unwrap();
    // A database with tables stays as it is.
    world.done(create(new_table("t"))).unwrap();
    assert!(world.change(explicit("public")).is_err());
    assert!(!world.catalog.databases["public"].explicit);
    assert_eq!(world.change(explicit("no")), Err(not_found("database", "no")));
}

#[test]
fn databases_come_and_go_with_their_tables() {
    let mut world = World::new();
    assert_eq!(world.done(create_database("d")), Ok(true));
    assert_eq!(world.change(create_database("d")), Err(already("database", "d")));
    let again = Ddl::CreateDatabase {
        name: "d".to_owned(),
        if_not_exists: true,
        ttl: None,
        owner: BOOTSTRAP_ROLE,
    };
    assert_eq!(world.change(again), Ok(Reply::Unchanged));
    let table = NewTable { database: "d".to_owned(), ..new_table("t") };
    world.done(create(table.clone())).unwrap();
    // A table that is still being created is dropped, too.
    world.change(create(NewTable { name: "u".to_owned(), ..table.clone() })).unwrap();
    let drop = Ddl::DropDatabase { name: "d".to_owned(), if_exists: false };
    let Ok(Reply::Changed { steps }) = world.change(drop.clone()) else { panic!() };
    assert_eq!(steps.len(), 2);
    assert!(world.catalog.table("d", "t").is_none());
    assert_eq!(world.change(drop), Err(not_found("database", "d")));
    let if_exists = Ddl::DropDatabase { name: "d".to_owned(), if_exists: true };
    assert_eq!(world.change(if_exists), Ok(Reply::Unchanged));
    // The name is free before the nodes have removed the old tables.
    world.change(create_database("d")).unwrap();
    world.change(create(table)).unwrap();
    world.settle();
    assert!(world.catalog.table("d", "t").is_some());
    assert_eq!(world.state.table_count(), 1);
}

#[test]
fn some_database_names_are_taken() {
    let mut world = World::new();
    for name in ["information_schema", "PG_Catalog", "sys"] {
        assert!(invalid(world.change(create_database(name))).contains("reserved"));
    }
    let public = Ddl::DropDatabase { name: "public".to_owned(), if_exists: true };
    assert!(invalid(world.change(public)).contains("cannot be dropped"));
    assert!(invalid(world.change(create_database(""))).contains("empty"));
    assert!(invalid(world.change(create_database(&"x".repeat(200)))).contains("limit"));
}

#[test]
fn names_and_schemas_of_tables_are_checked() {
    let mut world = World::new();
    let named = |name: &str| create(new_table(name));
    assert!(invalid(world.change(named(""))).contains("empty"));
    assert!(invalid(world.change(named("a\nb"))).contains("control"));
    let mut twice = new_table("t");
    twice.schema.columns[2].name = "userid".to_owned();
    assert!(invalid(world.change(create(twice))).contains("more than once"));
    let mut ids = new_table("t");
    ids.schema.columns[2].id = ColumnId(1);
    assert!(invalid(world.change(create(ids))).contains("given twice"));
    let mut next = new_table("t");
    next.schema.next_column = ColumnId(3);
    assert!(invalid(world.change(create(next))).contains("next id 3"));
    let mut zero = new_table("t");
    zero.schema.options.ttl = Some(Duration::ZERO);
    assert!(invalid(world.change(create(zero))).contains("'ttl'"));
}

#[test]
fn cuts_ascend_and_fit_the_key() {
    let mut world = World::new();
    let mut cuts = |cuts: Vec<Bound>| world.change(create(NewTable { cuts, ..new_table("t") }));
    let descending = vec![cut(&[Value::Int(2)]), cut(&[Value::Int(1)])];
    assert!(invalid(cuts(descending)).contains("ascend"));
    let twice = vec![cut(&[Value::Int(2)]), cut(&[Value::Int(2)])];
    assert!(invalid(cuts(twice)).contains("ascend"));
    assert!(invalid(cuts(vec![Bound::default()])).contains("ascend"));
    let long = vec![cut(&[Value::Int(2), Value::Timestamp(1), Value::Int(3)])];
    assert!(invalid(cuts(long)).contains("columns"));
    assert!(cuts(vec![cut(&[Value::String("x".to_owned())])]).is_err());
    assert!(invalid(cuts(vec![Bound::placed(1)])).contains("placement"));
    let many = (0..4096).map(|i| cut(&[Value::Int(i)])).collect();
    assert!(invalid(cuts(many)).contains("4097 partitions exceed the limit of 4096"));
    let most = (0..4095).map(|i| cut(&[Value::Int(i)])).collect();
    assert!(cuts(most).is_ok());
}

#[test]
fn cuts_are_kept_in_the_types_of_the_key() {
    let mut world = World::new();
    let cuts = vec![cut(&[Value::Int(7), Value::Int(5)])];
    world.done(create(NewTable { cuts, ..new_table("t") })).unwrap();
    let table = world.catalog.table("public", "t").unwrap();
    let range = &table.partitions.routes()[0].range;
    assert!(matches!(range.end.key.as_slice(), [Value::Int(7), Value::Timestamp(5)]));
}

#[test]
fn a_table_that_merges_rows_is_placed_by_its_key() {
    let mut world = World::new();
    let value = ColumnId(3);
    let hashed = |columns: Vec<ColumnId>, append_mode| {
        let mut table = new_table("t");
        table.placement = Placement::Hash { columns };
        table.cuts = vec![Bound::placed(1 << 15)];
        table.schema.options.append_mode = append_mode;
        create(table)
    };
    let message = invalid(world.change(hashed(vec![value], false)));
    assert!(message.contains("\"value\" must be part of the PRIMARY KEY"), "{message}");
    assert!(invalid(world.change(hashed(vec![], false))).contains("at least one"));
    assert!(invalid(world.change(hashed(vec![ColumnId(9)], false))).contains("does not exist"));
    let twice = vec![ColumnId(1), ColumnId(1)];
    assert!(invalid(world.change(hashed(twice, false))).contains("more than once"));
    assert_eq!(world.done(hashed(vec![value], true)), Ok(true));
    world.done(drop_table("t")).unwrap();
    assert_eq!(world.done(hashed(vec![ColumnId(1)], false)), Ok(true));
}

fn compare(column: u32, comparison: Comparison, value: i64) -> Rule {
    Rule::Compare { column: ColumnId(column), comparison, value: Value::Int(value) }
}

#[test]
fn rules_cover_every_row_once_and_name_their_columns() {
    let mut world = World::new();
    let ruled = |rules: Vec<Rule>, cuts: Vec<Bound>| {
        let mut table = new_table("t");
        table.placement = Placement::Rules { columns: vec![ColumnId(1)], rules };
        create(NewTable { cuts, ..table })
    };
    let low = compare(1, Comparison::Less, 10);
    let high = compare(1, Comparison::GreaterOrEqual, 10);
    let gap = ruled(vec![low.clone(), compare(1, Comparison::Greater, 10)], vec![]);
    assert!(invalid(world.change(gap)).contains("not covered"));
    let stranger = ruled(vec![low.clone(), compare(3, Comparison::GreaterOrEqual, 10)], vec![]);
    assert!(invalid(world.change(stranger)).contains("\"value\""));
    assert!(invalid(world.change(ruled(vec![], vec![]))).contains("at least one expression"));
    let rules = vec![low, high];
    let too_far = ruled(rules.clone(), vec![Bound::placed(2)]);
    assert!(invalid(world.change(too_far)).contains("placement"));
    let bare = ruled(rules.clone(), vec![cut(&[Value::Int(5)])]);
    assert!(invalid(world.change(bare)).contains("placement"));
    assert_eq!(world.done(ruled(rules, vec![Bound::placed(1)])), Ok(true));
}

#[test]
fn columns_are_added_with_new_ids_and_the_table_shows_them_afterwards() {
    let mut world = world_with("t");
    world.change(alter("t", add(vec![field("x"), field("y")]))).unwrap();
    assert!(world.visible("t"));
    assert!(world.catalog.table("public", "t").unwrap().schema.column("x").is_none());
    world.settle();
    let schema = &world.catalog.table("public", "t").unwrap().schema;
    assert_eq!(schema.version, SchemaVersion(2));
    assert_eq!(schema.column("x").unwrap().id, ColumnId(4));
    assert_eq!(schema.column("y").unwrap().id, ColumnId(5));
    assert_eq!(schema.next_column, ColumnId(6));
}

#[test]
fn columns_that_older_rows_cannot_have_are_refused() {
    let mut world = world_with("t");
    let mut adding = |column: Column| world.change(alter("t", add(vec![column])));
    let required = Column { nullable: false, ..field("x") };
    assert!(invalid(adding(required.clone())).contains("nullable or have a default"));
    let time = ColumnType::Timestamp(Unit::Second, false);
    assert!(invalid(adding(column("x", time, Semantic::TimeIndex))).contains("TIME INDEX"));
    assert!(invalid(adding(Column { nullable: false, ..tag("x") })).contains("NULL in the key"));
    assert!(invalid(adding(field("__seq"))).contains("underscores"));
    let generated = Column { generated: Some("value * 2".to_owned()), ..field("x") };
    assert!(matches!(adding(generated), Err(Error::Unsupported(_))));
    assert_eq!(adding(field("value")), Err(already("column", "value")));
    let default = Some("1".to_owned());
    let missing = Some(Value::Float(1.0));
    assert!(
        invalid(adding(Column { default: default.clone(), ..required.clone() }))
            .contains("have a default")
    );
    let wrong = Some(Value::Bool(true));
    assert!(adding(Column { missing: wrong, ..required.clone() }).is_err());
    assert!(adding(Column { missing: Some(Value::Null), ..required.clone() }).is_err());
    let text = Some(Value::String("x".to_owned()));
    assert!(invalid(adding(Column { missing: text, ..tag("x") })).contains("in the key"));
    assert!(adding(Column { default, missing, ..required }).is_ok());
}

#[test]
fn columns_that_exist_are_left_out_if_they_are_the_same() {
    let mut world = world_with("t");
    let add = |columns| alter("t", TableChange::AddColumns { columns, if_not_exists: true });
    assert_eq!(world.change(add(vec![field("value")])), Ok(Reply::Unchanged));
    assert_eq!(world.done(add(vec![field("value"), field("x"), field("x")])), Ok(true));
    let schema = &world.table("t").schema;
    assert_eq!(schema.columns.len(), 4);
    let other = column("value", ColumnType::Int64, Semantic::Field);
    let message = invalid(world.change(add(vec![other])));
    assert_eq!(
        message,
        "invalid column type for column 'value', expected DOUBLE field, got BIGINT field"
    );
    let message = invalid(world.change(add(vec![tag("value")])));
    assert!(message.ends_with("expected DOUBLE field, got STRING tag"), "{message}");
}

#[test]
fn a_new_tag_comes_before_the_time_and_ranges_stay_what_they_were() {
    let mut world = world_with("t");
    world.done(alter("t", add(vec![tag("host")]))).unwrap();
    let table = world.table("t");
    let names: Vec<_> = table.schema.key_columns().map(|column| column.name.clone()).collect();
    assert_eq!(names, ["userid", "host", "ts"]);
    let ranges: Vec<_> =
        world.state.partitions_of(&table).map(|partition| partition.range.clone()).collect();
    let first = cut(&[Value::Int(100)]);
    let second = cut(&[Value::Int(200), Value::Null, Value::Timestamp(5)]);
    assert_eq!(ranges[0], TypedRange { start: Bound::default(), end: first.clone() });
    assert_eq!(ranges[1], TypedRange { start: first, end: second.clone() });
    assert_eq!(ranges[2], TypedRange { start: second, end: Bound::default() });
}

#[test]
fn a_new_tag_comes_last_when_the_time_is_not() {
    let mut world = World::new();
    let mut table = new_table("t");
    table.schema.key.reverse();
    table.cuts = vec![cut(&[Value::Timestamp(5), Value::Int(1)])];
    world.done(create(table)).unwrap();
    world.done(alter("t", add(vec![tag("host"), tag("rack")]))).unwrap();
    let table = world.table("t");
    let names: Vec<_> = table.schema.key_columns().map(|column| column.name.clone()).collect();
    assert_eq!(names, ["ts", "userid", "host", "rack"]);
}

#[test]
fn a_dropped_columns_storage_is_never_given_to_another() {
    let mut world = world_with("t");
    let storage = |world: &World, name: &str| {
        world.table("t").schema.column(name).unwrap().storage_name.clone()
    };
    world.done(alter("t", TableChange::DropColumn("value".to_owned()))).unwrap();
    world.done(alter("t", add(vec![field("value")]))).unwrap();
    assert_eq!(storage(&world, "value"), "value#4");
    // A renamed column keeps its storage, so its old name is taken too.
    world.done(alter("t", add(vec![field("a")]))).unwrap();
    let rename = TableChange::RenameColumn { from: "a".to_owned(), to: "b".to_owned() };
    world.done(alter("t", rename)).unwrap();
    assert_eq!(storage(&world, "b"), "a");
    world.done(alter("t", add(vec![field("value#7")]))).unwrap();
    world.done(alter("t", add(vec![field("a")]))).unwrap();
    assert_eq!(storage(&world, "a"), "a#7");
    // A column with the name of a suffixed one gets another suffix.
    world.done(alter("t", TableChange::DropColumn("value".to_owned()))).unwrap();
    world.done(alter("t", add(vec![field("value#4")]))).unwrap();
    assert_eq!(storage(&world, "value#4"), "value#4#8");
}

#[test]
fn only_fields_that_nothing_depends_on_are_dropped() {
    let mut world = World::new();
    let mut table = new_table("t");
    table.schema.options.append_mode = true;
    table.schema.columns.push(Column {
        id: ColumnId(4),
        generated: Some("Value * 2".to_owned()),
        ..field("double")
    });
    table.schema.columns.push(Column { id: ColumnId(5), ..field("area") });
    table.schema.next_column = ColumnId(6);
    table.placement = Placement::Hash { columns: vec![ColumnId(5)] };
    table.cuts = vec![];
    world.done(create(table)).unwrap();
    let mut drop = |name: &str| world.done(alter("t", TableChange::DropColumn(name.to_owned())));
    assert!(invalid(drop("userid")).contains("part of the key"));
    assert!(invalid(drop("ts")).contains("part of the key"));
    assert!(invalid(drop("area")).contains("which partition"));
    assert!(invalid(drop("value")).contains("\"double\" is generated from it"));
    assert_eq!(drop("nothing"), Err(not_found("column", "nothing")));
    assert_eq!(drop("double"), Ok(true));
    assert_eq!(drop("value"), Ok(true));
}

#[test]
fn columns_are_renamed_unless_an_expression_names_them() {
    let mut world = World::new();
    let mut table = new_table("t");
    table.schema.columns.push(Column {
        id: ColumnId(4),
        generated: Some("\"value\" * 2".to_owned()),
        ..field("double")
    });
    table.schema.next_column = ColumnId(5);
    world.done(create(table)).unwrap();
    let mut rename = |from: &str, to: &str| {
        let change = TableChange::RenameColumn { from: from.to_owned(), to: to.to_owned() };
        world.done(alter("t", change))
    };
    assert!(invalid(rename("value", "v")).contains("generated from it"));
    assert_eq!(rename("userid", "ts"), Err(already("column", "ts")));
    assert_eq!(rename("nobody", "x"), Err(not_found("column", "nobody")));
    assert!(invalid(rename("userid", "")).contains("empty"));
    assert!(invalid(rename("userid", "__x")).contains("underscores"));
    assert_eq!(rename("userid", "userid"), Ok(false));
    assert_eq!(rename("userid", "user"), Ok(true));
    assert_eq!(world.table("t").schema.column("user").unwrap().storage_name, "userid");
}

#[test]
fn defaults_are_set_and_dropped() {
    let mut world = world_with("t");
    let mut set = |column: &str, default: Option<&str>| {
        let (column, default) = (column.to_owned(), default.map(str::to_owned));
        world.done(alter("t", TableChange::SetDefault { column, default }))
    };
    assert_eq!(set("value", Some("1.5")), Ok(true));
    assert_eq!(set("value", Some("1.5")), Ok(false));
    assert_eq!(set("value", None), Ok(true));
    assert_eq!(set("nobody", None), Err(not_found("column", "nobody")));
}

fn set_index(column: &str, name: &str, options: IndexOptions) -> TableChange {
    let index = Index { name: name.to_owned(), options };
    TableChange::SetIndex { column: column.to_owned(), index, if_not_exists: false }
}

fn drop_index(column: &str, kind: IndexKind) -> TableChange {
    TableChange::DropIndex { column: column.to_owned(), kind }
}

fn indexes(world: &World, column: &str) -> Vec<(String, IndexOptions)> {
    let table = world.table("t");
    let indexes = table.schema.column(column).unwrap().indexes.iter();
    indexes.map(|index| (index.name.clone(), index.options)).collect()
}

#[test]
fn an_index_is_set_replaced_and_dropped_and_partitions_get_the_schema() {
    let mut world = world_with("t");
    let skipping =
        |granularity| IndexOptions::Skipping(Blooms { granularity, ..Blooms::default() });
    let version = |world: &World| world.table("t").schema.version.0;
    let Ok(Reply::Changed { steps }) =
        world.change(alter("t", set_index("value", "a", skipping(10))))
    else {
        panic!("the index was not set")
    };
    assert_eq!(steps.len(), 1, "partitions learn of it");
    world.settle();
    assert_eq!(
        (version(&world), indexes(&world, "value")),
        (2, vec![("a".to_owned(), skipping(10))])
    );
    // The same again changes nothing; another one of the kind takes its place.
    assert_eq!(world.done(alter("t", set_index("value", "a", skipping(10)))), Ok(false));
    assert_eq!(world.done(alter("t", set_index("value", "b", skipping(20)))), Ok(true));
    let index = Index { name: "c".to_owned(), options: skipping(30) };
    let column = "value".to_owned();
    let keep = TableChange::SetIndex { column, index, if_not_exists: true };
    assert_eq!(world.done(alter("t", keep)), Ok(false));
    assert_eq!(
        (version(&world), indexes(&world, "value")),
        (3, vec![("b".to_owned(), skipping(20))])
    );
    // Another kind stands beside it.
    assert_eq!(world.done(alter("t", set_index("value", "i", IndexOptions::Inverted))), Ok(true));
    assert_eq!(world.done(alter("t", drop_index("value", IndexKind::Skipping))), Ok(true));
    assert_eq!(indexes(&world, "value"), [("i".to_owned(), IndexOptions::Inverted)]);
    let missing = world.done(alter("t", drop_index("value", IndexKind::Skipping)));
    assert_eq!(missing, Err(not_found("index", "value (skipping)")));
    let missing = world.done(alter("t", drop_index("nothing", IndexKind::Skipping)));
    assert_eq!(missing, Err(not_found("column", "nothing")));
}

#[test]
fn an_index_has_a_name_of_its_own_and_fits_its_column() {
    let mut world = world_with("t");
    world.done(alter("t", set_index("userid", "i", IndexOptions::Inverted))).unwrap();
    let mut set = |column: &str, name: &str, options| {
        world.done(alter("t", set_index(column, name, options)))
    };
    assert_eq!(set("value", "i", IndexOptions::Inverted), Err(already("index", "i")));
    let skipping = IndexOptions::Skipping(Blooms::default());
    assert_eq!(set("userid", "i", skipping), Err(already("index", "i")));
    assert_eq!(set("nothing", "x", skipping), Err(not_found("column", "nothing")));
    assert!(invalid(set("value", "", skipping)).contains("empty"));
    let fulltext = Fulltext { backend: Backend::Inverted, ..Fulltext::default() };
    let message = invalid(set("value", "f", IndexOptions::Fulltext(fulltext)));
    assert!(message.contains("cannot have a fulltext index"), "{message}");
    let empty = IndexOptions::Skipping(Blooms { granularity: 0, ..Blooms::default() });
    assert!(invalid(set("value", "s", empty)).contains("granularity 0"));
    // The time index may have one: it is of little use, but does no harm.
    assert_eq!(set("ts", "s", skipping), Ok(true));
    // Of a name that is taken, IF NOT EXISTS leaves the index as it is.
    let index = Index { name: "i".to_owned(), options: IndexOptions::Inverted };
    let column = "value".to_owned();
    let keep = TableChange::SetIndex { column, index, if_not_exists: true };
    assert_eq!(world.done(alter("t", keep)), Ok(false));
    assert!(indexes(&world, "value").is_empty());
}

#[test]
fn an_index_stays_with_its_column_and_leaves_with_it() {
    let mut world = world_with("t");
    let index = Index { name: "i".to_owned(), options: IndexOptions::Inverted };
    world.done(alter("t", add(vec![Column { indexes: vec![index], ..field("x") }]))).unwrap();
    let rename = TableChange::RenameColumn { from: "x".to_owned(), to: "y".to_owned() };
    world.done(alter("t", rename)).unwrap();
    assert_eq!(indexes(&world, "y"), [("i".to_owned(), IndexOptions::Inverted)]);
    world.done(alter("t", TableChange::DropColumn("y".to_owned()))).unwrap();
    // Its name is free again.
    assert_eq!(world.done(alter("t", set_index("value", "i", IndexOptions::Inverted))), Ok(true));

    let mut twice = new_table("u");
    let index = |name: &str| Index { name: name.to_owned(), options: IndexOptions::Inverted };
    twice.schema.columns[2].indexes = vec![index("a"), index("b")];
    let message = invalid(world.change(create(twice.clone())));
    assert!(message.contains("more than one inverted index"), "{message}");
    twice.schema.columns[2].indexes = vec![index("a")];
    twice.schema.columns[0].indexes = vec![index("a")];
    let message = invalid(world.change(create(twice)));
    assert_eq!(message, "index \"a\" specified more than once");
}

#[test]
fn append_mode_stays_as_it_was_made_and_excludes_merging() {
    let mut world = world_with("t");
    let mut set = |append_mode, merge_mode| {
        let options = TableOptions { append_mode, merge_mode, ..TableOptions::default() };
        world.done(alter("t", TableChange::SetOptions(Box::new(options))))
    };
    assert_eq!(set(false, MergeMode::LastNonNull), Ok(true));
    assert_eq!(set(false, MergeMode::LastNonNull), Ok(false));
    assert!(invalid(set(true, MergeMode::LastRow)).contains("'append_mode'"));
    let mut log = new_table("log");
    log.schema.options.append_mode = true;
    world.done(create(log)).unwrap();
    let mut set_log = |append_mode, merge_mode| {
        let options = TableOptions { append_mode, merge_mode, ..TableOptions::default() };
        world.done(alter("log", TableChange::SetOptions(Box::new(options))))
    };
    assert!(invalid(set_log(false, MergeMode::LastRow)).contains("'append_mode'"));
    assert!(invalid(set_log(true, MergeMode::LastNonNull)).contains("'merge_mode'"));
    let mut both = new_table("u");
    both.schema.options.append_mode = true;
    both.schema.options.merge_mode = MergeMode::LastNonNull;
    assert!(invalid(world.change(create(both))).contains("'merge_mode'"));
}

#[test]
fn a_wide_table_stays_one_and_keeps_its_rows_together() {
    let mut world = World::new();
    let mut wide = new_table("w");
    wide.schema.columns = partita_proto::wide::columns(ColumnType::String);
    wide.schema.key = (0..4).map(ColumnId).collect();
    wide.schema.next_column = ColumnId(5);
    wide.schema.options.partitioning.keep_together = 1;
    wide.schema.options.wide = Some(partita_proto::wide::Wide::default());
    wide.placement = Placement::Hash { columns: vec![ColumnId(2)] };
    wide.cuts = Vec::new();
    let message = invalid(world.change(create(wide.clone())));
    assert!(message.contains("partitioned by \"row_key\" only"), "{message}");
    wide.placement = Placement::Range;
    world.done(create(wide.clone())).unwrap();
    let mut set = |options| world.done(alter("w", TableChange::SetOptions(Box::new(options))));
    let message = invalid(set(TableOptions::default()));
    assert_eq!(message, "'kind' cannot be changed after CREATE TABLE");
    let mut apart = wide.schema.options.clone();
    apart.partitioning.keep_together = 0;
    assert!(invalid(set(apart)).contains("'keep_together' of a wide table must be 1"));
    let mut options = wide.schema.options.clone();
    let family = Family { name: "f".to_owned(), gc: None, aggregate: None };
    options.wide.get_or_insert_default().families.push(family);
    assert_eq!(set(options), Ok(true));
    // Whoever changes another family changes it among those that there are by then.
    let family = |name: &str| {
        FamilyChange::Create(Family { name: name.to_owned(), gc: None, aggregate: None })
    };
    let mut change = |changes| world.done(alter("w", TableChange::ChangeFamilies(changes)));
    assert_eq!(change(vec![family("g"), family("h")]), Ok(true));
    assert_eq!(change(vec![FamilyChange::Drop("g".to_owned())]), Ok(true));
    let exists = Error::AlreadyExists { kind: "column family", name: "h".to_owned() };
    assert_eq!(change(vec![family("i"), family("h")]), Err(exists));
    let schema = Arc::clone(&world.catalog.table("public", "w").unwrap().schema);
    let families = &schema.options.wide.as_ref().unwrap().families;
    let names: Vec<&str> = families.iter().map(|family| family.name.as_str()).collect();
    assert_eq!(names, ["f", "h"]);
    // The name of a dropped one is free when its cells are removed.
    let version = schema.version;
    let dropped = DroppedFamily { name: "g".to_owned(), version };
    assert_eq!(schema.options.wide.as_ref().unwrap().dropped, std::slice::from_ref(&dropped));
    let mut change = |changes| world.done(alter("w", TableChange::ChangeFamilies(changes)));
    assert_eq!(change(vec![family("g")]).unwrap_err().sqlstate(), "55006");
    assert_eq!(change(vec![FamilyChange::Cleared(dropped.clone())]), Ok(true));
    assert_eq!(change(vec![FamilyChange::Cleared(dropped)]), Ok(false));
    assert_eq!(change(vec![family("g")]), Ok(true));
    let source = world.catalog.table("public", "w").unwrap().id;
    let mut copy = NewTable { name: "c".to_owned(), copy_of: Some(source), ..wide };
    copy.schema.key.reverse();
    let refused = world.change(create(copy)).unwrap_err();
    assert_eq!(refused, Error::Unsupported("a copy of a wide table".to_owned()));
    let column = TableChange::DropColumn("value".to_owned());
    assert!(invalid(world.done(alter("w", column))).contains("the columns of a wide table"));
}

#[test]
fn clients_that_change_options_at_once_do_not_undo_each_other() {
    let mut world = world_with("t");
    let base = world.table("t").schema.options.clone();
    let comment = Some("c".to_owned());
    let commented = TableOptions { comment: comment.clone(), ..base.clone() };
    let ttl = Some(Duration::from_secs(3_600));
    let aged = TableOptions { ttl, ..base.clone() };
    // Both have read the same options.
    let mut change = |next: &TableOptions| {
        let (base, next) = (Box::new(base.clone()), Box::new(next.clone()));
        world.done(alter("t", TableChange::ChangeOptions { base, next }))
    };
    assert_eq!(change(&commented), Ok(true));
    assert_eq!(change(&aged), Ok(true));
    assert_eq!(change(&aged), Ok(false), "sent again, because the answer was lost");
    // As for a change of all options.
    let append_mode = !aged.append_mode;
    let message = invalid(change(&TableOptions { append_mode, ..aged.clone() }));
    assert_eq!(message, "'append_mode' cannot be changed after CREATE TABLE");
    assert_eq!(world.table("t").schema.options, TableOptions { comment, ..aged });
}

#[test]
fn tables_are_renamed_without_telling_nodes() {
    let mut world = world_with("t");
    world.done(create(new_table("u"))).unwrap();
    let rename = |from: &str, to: &str| alter(from, TableChange::Rename(to.to_owned()));
    assert_eq!(world.change(rename("t", "u")), Err(already("table", "u")));
    assert_eq!(world.change(rename("x", "y")), Err(not_found("table", "x")));
    assert!(invalid(world.change(rename("t", ""))).contains("empty"));
    let id = world.table("t").id;
    assert_eq!(world.change(rename("t", "v")), Ok(Reply::Changed { steps: vec![] }));
    assert_eq!(world.catalog.table("public", "v").unwrap().id, id);
    assert!(!world.visible("t"));
    assert_eq!(world.done(create(new_table("t"))), Ok(true));
}

#[test]
fn a_table_takes_the_place_of_another_one() {
    let mut world = world_with("t");
    world.done(create(new_table("u"))).unwrap();
    let mut other = new_table("w");
    other.schema = schema(vec![tag("k"), field("v")]);
    other.cuts = vec![];
    world.done(create(other)).unwrap();
    let (replaced, id) = (world.table("t").id, world.table("u").id);
    let take = |name: &str, replaced| alter(name, TableChange::TakePlace(replaced));
    assert!(invalid(world.change(take("u", id))).contains("does not exist"));
    assert!(invalid(world.change(take("w", replaced))).contains("changed meanwhile"));
    assert_eq!(world.done(take("u", replaced)), Ok(true));
    assert_eq!(world.table("t").id, id);
    assert!(!world.visible("u"));
    assert_eq!(world.state.check(), Ok(()));
    assert!(invalid(world.change(take("t", replaced))).contains("does not exist"));
}

#[test]
fn a_truncate_changes_nothing_that_is_seen() {
    let mut world = world_with("t");
    let truncate = Ddl::TruncateTable { database: "public".to_owned(), name: "t".to_owned() };
    let before = Arc::clone(&world.table("t").schema);
    world.change(truncate.clone()).unwrap();
    assert_eq!(world.phase("t"), Phase::Altering(Work::Truncate));
    assert!(world.visible("t"));
    let (table, step) = world.job("t");
    assert_eq!(world.change(truncate), Ok(Reply::Busy { table, step }));
    world.settle();
    assert_eq!(world.table("t").schema, before);
}

fn database_ttl(ttl: Option<Duration>) -> Ddl {
    Ddl::AlterDatabase { name: "public".to_owned(), ttl }
}

#[test]
fn a_databases_ttl_reaches_the_tables_that_have_none() {
    let mut world = world_with("inherits");
    let mut own = new_table("own");
    own.schema.options.ttl = Some(7 * DAY);
    world.done(create(own)).unwrap();
    let mut timeless = new_table("timeless");
    timeless.schema = schema(vec![tag("k"), field("v")]);
    timeless.cuts = vec![];
    world.done(create(timeless)).unwrap();
    let Ok(Reply::Changed { steps }) = world.change(database_ttl(Some(DAY))) else { panic!() };
    assert_eq!(steps, [world.job("inherits")]);
    world.settle();
    let table = world.table("inherits");
    assert_eq!(table.ordered_ttl, Some(DAY));
    assert_eq!(table.schema.version, SchemaVersion(2));
    assert_eq!(table.schema.options.ttl, None);
    assert_eq!(world.table("own").ordered_ttl, Some(7 * DAY));
    assert_eq!(world.table("timeless").ordered_ttl, None);
    assert_eq!(world.change(database_ttl(Some(DAY))), Ok(Reply::Unchanged));
    assert!(invalid(world.change(database_ttl(Some(Duration::ZERO)))).contains("'ttl'"));
    let nowhere = Ddl::AlterDatabase { name: "nowhere".to_owned(), ttl: None };
    assert_eq!(world.change(nowhere), Err(not_found("database", "nowhere")));
}

#[test]
fn a_table_in_the_middle_of_a_change_learns_of_the_ttl_afterwards() {
    let mut world = world_with("altered");
    world.change(create(new_table("new"))).unwrap();
    world.change(alter("altered", add(vec![field("x")]))).unwrap();
    let Ok(Reply::Changed { steps }) = world.change(database_ttl(Some(DAY))) else { panic!() };
    assert!(steps.is_empty());
    for name in ["altered", "new"] {
        let (table, step) = world.job(name);
        world.command(&Command::Finish { table, step }).unwrap();
        assert!(matches!(world.phase(name), Phase::Altering(Work::Schema(_))));
        assert!(world.visible(name));
    }
    world.settle();
    assert_eq!(world.table("new").ordered_ttl, Some(DAY));
    assert_eq!(world.table("new").schema.version, SchemaVersion(2));
    assert_eq!(world.table("altered").ordered_ttl, Some(DAY));
    assert_eq!(world.table("altered").schema.version, SchemaVersion(3));
}

#[test]
fn a_new_table_starts_with_its_databases_ttl() {
    let mut world = World::new();
    world.done(database_ttl(Some(DAY))).unwrap();
    world.done(create(new_table("t"))).unwrap();
    let table = world.table("t");
    assert_eq!(table.ordered_ttl, Some(DAY));
    assert_eq!(table.schema.version, SchemaVersion(1));
}

#[test]
fn a_column_moves_in_the_order_of_sql_only() {
    let mut world = World::new();
    world.done(create(new_table("t"))).unwrap();
    world.done(alter("t", add(vec![field("a"), field("b")]))).unwrap();
    let names = |world: &World| -> Vec<String> {
        world.table("t").schema.columns.iter().map(|column| column.name.clone()).collect()
    };
    let place = |column: &str, after: Option<&str>| {
        let (column, after) = (column.to_owned(), after.map(str::to_owned));
        alter("t", TableChange::MoveColumn { column, after })
    };
    assert_eq!(names(&world), ["userid", "ts", "value", "a", "b"]);
    let key = world.table("t").schema.key.clone();
    world.done(place("b", None)).unwrap();
    assert_eq!(names(&world), ["b", "userid", "ts", "value", "a"]);
    world.done(place("b", Some("ts"))).unwrap();
    assert_eq!(names(&world), ["userid", "ts", "b", "value", "a"]);
    world.done(place("userid", Some("a"))).unwrap();
    assert_eq!(names(&world), ["ts", "b", "value", "a", "userid"]);
    assert_eq!(world.done(place("a", Some("value"))), Ok(false));
    assert_eq!(world.table("t").schema.key, key);
    assert!(world.change(place("a", Some("a"))).is_err());
    assert!(world.change(place("a", Some("nothing"))).is_err());
}

#[test]
fn a_type_becomes_a_wider_one_and_no_other() {
    let mut world = World::new();
    world.done(create(new_table("t"))).unwrap();
    let of_type = |name: &str, column_type| column(name, column_type, Semantic::Field);
    let added = vec![of_type("n", ColumnType::Int32), of_type("s", ColumnType::String)];
    world.done(alter("t", add(added))).unwrap();
    let set = |column: &str, column_type, length| {
        let column = column.to_owned();
        alter("t", TableChange::SetType { column, column_type, length })
    };
    let column_n = |world: &World| world.table("t").schema.column("n").unwrap().clone();
    let narrow = column_n(&world);
    assert!(world.done(set("n", ColumnType::Int64, None)).unwrap());
    assert_eq!(column_n(&world), Column { column_type: ColumnType::Int64, ..narrow });
    assert!(!world.done(set("n", ColumnType::Int64, None)).unwrap());
    let key = world.table("t").schema.key_columns().next().unwrap().clone();
    let short = Some(TextLength { characters: 9, fixed: false });
    for refused in [
        set("n", ColumnType::Int32, None),
        set("n", ColumnType::Float64, None),
        set("s", ColumnType::String, short),
        set("s", ColumnType::Binary, None),
        set(&key.name, ColumnType::Binary, None),
    ] {
        match world.change(refused) {
            Err(Error::Query { sqlstate, hint: Some(hint), .. }) => {
                assert_eq!(sqlstate, "0A000");
                assert!(hint.contains("CREATE TABLE") && hint.contains("CAST("), "{hint}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(world.change(set("nothing", ColumnType::Int64, None)).is_err());
}

#[test]
fn a_type_stays_that_a_constraint_or_the_placement_depends_on() {
    let mut world = World::new();
    let mut table = new_table("t");
    table.schema.options.append_mode = true;
    world.done(create(table)).unwrap();
    let int = |name: &str| column(name, ColumnType::Int32, Semantic::Field);
    world.done(alter("t", add(vec![int("n"), int("m"), int("o")]))).unwrap();
    let check = Check { name: "positive".to_owned(), expression: "n > 0".to_owned() };
    world.done(alter("t", TableChange::AddCheck(check))).unwrap();
    let widen = |column: &str| {
        let (column, column_type) = (column.to_owned(), ColumnType::Int64);
        alter("t", TableChange::SetType { column, column_type, length: None })
    };
    assert!(invalid(world.change(widen("n"))).contains("positive"));
    let placed_by = world.table("t").schema.column("m").unwrap().id;
    let placement = Placement::Hash { columns: vec![placed_by] };
    let repartition = TableChange::Repartition { placement, cuts: hash_cuts(4) };
    world.done(alter("t", repartition)).unwrap();
    let refused = world.change(widen("m")).unwrap_err().to_string();
    assert!(refused.contains("partition column"), "{refused}");
    // Rows from before the new placement are read in the wider type too.
    let Reply::Changed { steps } = world.change(widen("o")).unwrap() else { panic!("busy") };
    assert_eq!(steps.len(), 2);
    world.settle();
    for name in ["t", "t$former"] {
        let column_type = world.table(name).schema.column("o").unwrap().column_type;
        assert_eq!(column_type, ColumnType::Int64, "{name}");
    }
}

#[test]
fn a_field_may_be_null_from_now_on_and_a_key_may_not() {
    let mut world = World::new();
    let mut table = new_table("t");
    for column in &mut table.schema.columns {
        column.nullable = false;
    }
    world.done(create(table)).unwrap();
    let change = |name: &str| alter("t", TableChange::DropNotNull(name.to_owned()));
    assert!(world.done(change("value")).unwrap());
    assert!(world.table("t").schema.column("value").unwrap().nullable);
    assert!(!world.done(change("value")).unwrap());
    let key = world.table("t").schema.key_columns().next().unwrap().name.clone();
    let refused = world.change(change(&key)).unwrap_err();
    assert_eq!(refused.sqlstate(), "42P16", "{refused}");
}
