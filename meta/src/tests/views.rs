//! Views: what they read stays while they do, and they have no partitions.

use partita_proto::stored_view::{RelationName, ViewDefinition};

use super::*;

fn read(name: &str) -> RelationName {
    RelationName { database: "public".to_owned(), name: name.to_owned() }
}

fn definition(query: &str, reads: &[&str]) -> ViewDefinition {
    ViewDefinition {
        query: query.to_owned(),
        database: "public".to_owned(),
        reads: reads.iter().copied().map(read).collect(),
    }
}

fn new_view(name: &str, query: &str, reads: &[&str]) -> NewTable {
    let mut view_schema = schema(vec![field("value")]);
    view_schema.options.append_mode = true;
    view_schema.view = Some(definition(query, reads));
    NewTable { schema: view_schema, cuts: Vec::new(), ..new_table(name) }
}

fn drop_with_views(name: &str) -> Ddl {
    Ddl::DropTable {
        database: "public".to_owned(),
        name: name.to_owned(),
        if_exists: false,
        cascade: true,
    }
}

/// A table `t`, a view `v` of it, and a view `w` of that.
fn world_with_views() -> World {
    let mut world = World::new();
    world.done(create(new_table("t"))).unwrap();
    world.done(create(new_view("v", "SELECT value FROM t", &["t"]))).unwrap();
    world.done(create(new_view("w", "SELECT * FROM v", &["v"]))).unwrap();
    world
}

fn sqlstate(result: Result<Reply, Error>) -> String {
    result.unwrap_err().sqlstate().to_owned()
}

#[test]
fn a_view_is_a_table_without_partitions() {
    let world = world_with_views();
    let view = &world.catalog.tables["public"]["v"];
    assert!(view.partitions.routes().is_empty());
    assert!(world.table("v").partitions.is_empty());
    assert_eq!(view.schema.view, Some(definition("SELECT value FROM t", &["t"])));
}

#[test]
fn what_a_view_reads_must_exist_and_must_not_be_the_view() {
    let mut world = world_with_views();
    let version = world.state.version();
    let missing = world.change(create(new_view("x", "SELECT value FROM gone", &["gone"])));
    assert_eq!(sqlstate(missing), "42P01");
    let columns = world.table("v").schema.columns.clone();
    let itself = TableChange::SetView {
        columns,
        definition: Box::new(definition("SELECT value FROM w", &["w"])),
    };
    assert_eq!(sqlstate(world.change(alter("v", itself))), "42P17");
    assert_eq!(world.state.version(), version);
}

#[test]
fn a_table_that_is_rekeyed_is_read_by_views_and_its_rekeying_is_not() {
    let mut world = world_with_views();
    let source = world.table("t");
    let mut schema = TableSchema::clone(&source.schema);
    schema.key.reverse();
    let copy_of = Some(source.id);
    let copy =
        NewTable { schema, cuts: Vec::new(), copy_of, rekeys: true, ..new_table("t$rekeyed") };
    world.done(create(copy)).unwrap();
    let view = new_view("x", "SELECT value FROM \"t$rekeyed\"", &["t$rekeyed"]);
    assert_eq!(sqlstate(world.change(create(view))), "0A000");
    assert!(world.done(create(new_view("x", "SELECT value FROM t", &["t"]))).unwrap());
}

#[test]
fn what_views_read_can_be_neither_dropped_nor_renamed() {
    let mut world = world_with_views();
    let version = world.state.version();
    for ddl in [
        drop_table("t"),
        drop_table("v"),
        alter("t", TableChange::Rename("u".to_owned())),
        alter("t", TableChange::DropColumn("value".to_owned())),
        alter("t", TableChange::RenameColumn { from: "value".to_owned(), to: "other".to_owned() }),
    ] {
        assert_eq!(sqlstate(world.change(ddl.clone())), "2BP01", "{ddl:?}");
    }
    assert_eq!(world.state.version(), version);
    // A column that no view names may go.
    world.done(alter("t", add(vec![field("y")]))).unwrap();
    world.done(alter("t", TableChange::DropColumn("y".to_owned()))).unwrap();
    world.done(drop_with_views("t")).unwrap();
    assert!(!world.visible("t") && !world.visible("v") && !world.visible("w"));
    assert_eq!(world.state.check(), Ok(()));
}

#[test]
fn a_view_that_is_replaced_keeps_its_columns() {
    let mut world = world_with_views();
    let columns = world.table("v").schema.columns.clone();
    let replace = |columns: Vec<Column>| {
        let definition = Box::new(definition("SELECT value, userid FROM t", &["t"]));
        alter("v", TableChange::SetView { columns, definition })
    };
    let mut more = columns.clone();
    more.push(tag("userid"));
    world.done(replace(more)).unwrap();
    let view = &world.catalog.tables["public"]["v"];
    assert_eq!(view.schema.columns.len(), 2);
    assert_eq!(view.schema.view.as_ref().unwrap().query, "SELECT value, userid FROM t");
    assert_eq!(sqlstate(world.change(replace(columns))), "42P16");
    let mut renamed = world.table("v").schema.columns.clone();
    renamed[0].name = "other".to_owned();
    assert_eq!(sqlstate(world.change(replace(renamed))), "42P16");
}

#[test]
fn a_view_refuses_changes_of_tables_and_a_table_those_of_views() {
    let mut world = world_with_views();
    for change in [add(vec![field("y")]), TableChange::DropColumn("value".to_owned())] {
        assert_eq!(sqlstate(world.change(alter("v", change.clone()))), "42809", "{change:?}");
    }
    let set_view = TableChange::SetView {
        columns: world.table("t").schema.columns.clone(),
        definition: Box::new(definition("SELECT 1", &[])),
    };
    assert_eq!(sqlstate(world.change(alter("t", set_view))), "42809");
    let comment = Some("measured".to_owned());
    for name in ["t", "v"] {
        let change =
            TableChange::SetComment { column: "value".to_owned(), comment: comment.clone() };
        world.done(alter(name, change)).unwrap();
        let table = &world.catalog.tables["public"][name];
        assert_eq!(table.schema.column("value").unwrap().comment, comment);
    }
}
