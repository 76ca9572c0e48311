//! Changes by name of objects that were checked, while the name passes to another object.

use partita_proto::id::{DatabaseId, TableId};
use partita_proto::route::hash_cuts;
use partita_proto::service::NamedObject;

use super::*;

fn not_found(kind: &'static str, name: &str) -> Error {
    Error::NotFound { kind, name: name.to_owned() }
}

fn drop_database(name: &str, if_exists: bool) -> Ddl {
    Ddl::DropDatabase { name: name.to_owned(), if_exists }
}

fn drop_if_exists(name: &str) -> Ddl {
    Ddl::DropTable {
        database: "public".to_owned(),
        name: name.to_owned(),
        if_exists: true,
        cascade: false,
    }
}

/// All changes of a table by name.
fn changes_of(name: &str) -> Vec<Ddl> {
    vec![
        alter(name, add(vec![field("y")])),
        Ddl::TruncateTable { database: "public".to_owned(), name: name.to_owned() },
        alter(name, TableChange::Rename("u".to_owned())),
        drop_table(name),
    ]
}

/// A world in which the name belongs to another table than the one returned.
fn world_with_another_table(name: &str) -> (World, NamedObject) {
    let mut world = World::new();
    world.done(create(new_table(name))).unwrap();
    let former = NamedObject::Table(world.table(name).id);
    world.done(drop_table(name)).unwrap();
    world.done(create(new_table(name))).unwrap();
    assert_ne!(former, NamedObject::Table(world.table(name).id));
    (world, former)
}

#[test]
fn a_change_of_a_table_that_was_replaced_is_refused() {
    let (mut world, former) = world_with_another_table("t");
    let version = world.state.version();
    for ddl in changes_of("t") {
        assert_eq!(
            world.change(ddl.clone().checked(former)),
            Err(not_found("table", "t")),
            "{ddl:?}"
        );
    }
    assert_eq!(world.change(drop_if_exists("t").checked(former)), Ok(Reply::Unchanged));
    // Neither is a table a database of the same number.
    let NamedObject::Table(TableId(number)) = former else { panic!("{former:?}") };
    let database = NamedObject::Database(DatabaseId(number));
    assert_eq!(world.change(drop_table("t").checked(database)), Err(not_found("table", "t")));
    assert_eq!(world.state.version(), version);
    // The table that has the name is changed by its own id.
    for ddl in [alter("t", add(vec![field("y")])), drop_if_exists("t")] {
        let present = NamedObject::Table(world.table("t").id);
        assert_eq!(world.done(ddl.checked(present)), Ok(true));
    }
    assert!(!world.visible("t"));
}

#[test]
fn a_change_without_an_object_is_of_whatever_has_the_name() {
    for ddl in changes_of("t") {
        let (mut world, _former) = world_with_another_table("t");
        assert_eq!(world.done(ddl.clone()), Ok(true), "{ddl:?}");
    }
}

#[test]
fn a_change_of_a_database_that_was_replaced_is_refused() {
    let mut world = World::new();
    let id_of = |world: &World| NamedObject::Database(world.catalog.databases["d"].id);
    world.change(create_database("d")).unwrap();
    let former = id_of(&world);
    world.change(drop_database("d", false)).unwrap();
    world.change(create_database("d")).unwrap();
    let present = id_of(&world);
    assert_ne!(former, present);
    let version = world.state.version();
    let ttl = Some(std::time::Duration::from_secs(86_400));
    let alter_database = Ddl::AlterDatabase { name: "d".to_owned(), ttl };
    let explicit = Ddl::MakeExplicit { name: "d".to_owned() };
    let table = create(NewTable { database: "d".to_owned(), ..new_table("t") });
    for ddl in [&alter_database, &explicit, &table, &drop_database("d", false)] {
        let refused = world.change(ddl.clone().checked(former));
        assert_eq!(refused, Err(not_found("database", "d")), "{ddl:?}");
    }
    assert_eq!(world.change(drop_database("d", true).checked(former)), Ok(Reply::Unchanged));
    assert_eq!(world.state.version(), version);
    for ddl in [alter_database, explicit, table, drop_database("d", true)] {
        assert_eq!(world.done(ddl.clone().checked(present)), Ok(true), "{ddl:?}");
    }
    assert_eq!(
        world.change(drop_database("d", false).checked(present)),
        Err(not_found("database", "d"))
    );
}

#[test]
fn a_table_stays_the_same_when_its_rows_are_placed_otherwise() {
    let mut world = World::new();
    let mut table = new_table("t");
    table.schema.options.append_mode = true;
    world.done(create(table)).unwrap();
    let checked = NamedObject::Table(world.table("t").id);
    let placement = Placement::Hash { columns: vec![ColumnId(1)] };
    let change = TableChange::Repartition { placement, cuts: hash_cuts(4) };
    // The id also decides about the change that gives the name to another id.
    world.done(alter("t", change).checked(checked)).unwrap();
    assert_ne!(checked, NamedObject::Table(world.table("t").id));
    assert_eq!(world.done(alter("t", add(vec![field("y")])).checked(checked)), Ok(true));
    // Without its former table it is another one.
    world.done(drop_table("t$former")).unwrap();
    assert_eq!(world.change(drop_table("t").checked(checked)), Err(not_found("table", "t")));
}

#[test]
fn a_renamed_table_is_not_found_by_its_former_name() {
    let mut world = World::new();
    world.done(create(new_table("t"))).unwrap();
    let checked = NamedObject::Table(world.table("t").id);
    world.done(alter("t", TableChange::Rename("u".to_owned())).checked(checked)).unwrap();
    world.done(create(new_table("t"))).unwrap();
    assert_eq!(world.change(drop_table("t").checked(checked)), Err(not_found("table", "t")));
    assert_eq!(world.done(drop_table("u").checked(checked)), Ok(true));
}

#[test]
fn an_entry_bears_the_object_only_if_there_is_one() {
    let entry = |ddl| Command::Change { ddl, places: vec![], id: None, tables_max: None }.encode();
    let (plain, checked) =
        (entry(drop_table("t")), entry(drop_table("t").checked(NamedObject::Table(TableId(7)))));
    // The field of a table's id, in the change of an entry, and the lengths of both.
    let mut expected = plain.to_vec();
    expected.extend([0x60, 7]);
    expected[1] += 2;
    expected[3] += 2;
    assert_eq!(checked, expected);
    let Command::Change { ddl, .. } = Command::decode(checked).unwrap() else { panic!() };
    assert_eq!(ddl, drop_table("t").checked(NamedObject::Table(TableId(7))));
    let Command::Change { ddl, .. } = Command::decode(plain).unwrap() else { panic!() };
    assert_eq!(ddl, drop_table("t"));
}
