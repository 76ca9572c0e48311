//! Changes of a table's placement: the successor, the former table that is read along, and the changes allowed on
//! either.

use std::time::Duration;

use partita_proto::history::Reason;
use partita_proto::id::Epoch;
use partita_proto::index::{Index, IndexKind, IndexOptions};
use partita_proto::route::hash_cuts;

use super::model::hex;
use super::*;
use crate::catalog::Edit;
use crate::record;

fn by_user(partitions: u16) -> TableChange {
    let placement = Placement::Hash { columns: vec![ColumnId(1)] };
    TableChange::Repartition { placement, cuts: hash_cuts(partitions) }
}

fn world() -> World {
    let mut world = World::new();
    let mut table = new_table("t");
    table.schema.options.append_mode = true;
    world.done(create(table)).unwrap();
    world
}

fn unsupported(result: Result<impl std::fmt::Debug, Error>) -> String {
    match result {
        Err(Error::Unsupported(what)) => what,
        other => panic!("expected what is not supported, got {other:?}"),
    }
}

#[test]
fn what_is_written_goes_to_new_partitions_and_what_is_there_stays() {
    let mut world = world();
    let before = world.table("t");
    world.change(alter("t", by_user(4))).unwrap();
    // Nothing of it is visible until the new partitions exist.
    assert_eq!(world.table("t").id, before.id);
    assert_eq!(world.phase("t$next"), Phase::Creating);
    assert!(!world.visible("t$next"));
    world.settle();
    assert!(world.state.pending().next().is_none());
    let (after, former) = (world.table("t"), world.table("t$former"));
    assert_eq!((after.former, former.id), (Some(before.id), before.id));
    assert_eq!((after.partitions.len(), &former.partitions), (4, &before.partitions));
    assert_eq!(former.placement, Placement::Range);
    assert_eq!(after.schema, before.schema);
    let published = world.catalog.table("public", "t").unwrap();
    assert_eq!((published.id, published.former), (after.id, Some(before.id)));
    assert!(!world.visible("t$next"));
}

#[test]
fn until_every_old_partition_has_a_new_epoch_both_are_read_and_the_old_one_is_written() {
    let mut world = world();
    let before = world.table("t");
    world.change(alter("t", by_user(4))).unwrap();
    let (table, step) = world.job("t$next");
    let epochs = |world: &World| -> Vec<u64> {
        let routes = world.catalog.table("public", "t").unwrap().partitions.routes().to_vec();
        routes.iter().map(|route| route.epoch.0).collect()
    };
    let fence = |partition, epoch| Command::Fenced { table, step, partition, epoch: Epoch(epoch) };
    // No new epoch is recorded before the catalog names the table to read along.
    assert_eq!(world.command(&fence(before.partitions[0], 2)), Ok(Reply::Unchanged));
    world.command(&Command::ReadAlong { table, step }).unwrap();
    assert_eq!(world.job("t$next"), (table, step), "who waits for the change goes on waiting");
    let published = world.catalog.table("public", "t").unwrap();
    assert_eq!((published.id, published.former), (before.id, None));
    assert_eq!(world.catalog.read_along(published).map(|next| next.id), Some(table));
    let busy = Ok(Reply::Busy { table, step });
    let (partition, at) = (before.partitions[0], cut(&[Value::Int(50)]));
    let split = Command::Split { partition, at, reason: Reason::by_hand(), leader: None };
    assert_eq!(world.command(&split), busy);
    assert_eq!(world.change(drop_table("t$next")), busy);
    assert_eq!(world.change(alter("t", add(vec![field("x")]))), busy);
    for (at, partition) in before.partitions.iter().enumerate() {
        world.command(&fence(*partition, 2)).unwrap();
        assert_eq!(epochs(&world)[at], 2);
        // The same order again, after the loss of its answer.
        assert_eq!(world.command(&fence(*partition, 2)), Ok(Reply::Unchanged));
    }
    assert_eq!(world.table("t").id, before.id);
    world.command(&Command::Finish { table, step }).unwrap();
    let published = world.catalog.table("public", "t").unwrap();
    assert_eq!((published.id, published.former), (table, Some(before.id)));
    let former = world.catalog.table("public", "t$former").unwrap();
    assert_eq!(former.succeeded_by, Some(table));
    assert!(world.catalog.read_along(former).is_none(), "on its own it is what it was");
}

#[test]
fn a_table_with_a_partition_that_cannot_be_told_can_be_dropped() {
    let mut world = world();
    world.change(alter("t", by_user(4))).unwrap();
    let (table, step) = world.job("t$next");
    assert_eq!(world.change(drop_table("t")), Ok(Reply::Busy { table, step }));
    world.command(&Command::ReadAlong { table, step }).unwrap();
    let Reply::Changed { steps } = world.change(drop_table("t")).unwrap() else { panic!("busy") };
    assert_eq!(steps.len(), 2);
    assert_eq!(world.command(&Command::Finish { table, step }), Ok(Reply::Unchanged));
    world.settle();
    assert_eq!((world.state.table_count(), world.state.partitions().count()), (0, 0));
}

#[test]
fn a_database_that_is_dropped_takes_along_both() {
    let mut world = World::new();
    world.done(create_database("d")).unwrap();
    let mut table = new_table("t");
    (table.database, table.schema.options.append_mode) = ("d".to_owned(), true);
    world.done(create(table)).unwrap();
    let change = by_user(4);
    let ddl = Ddl::AlterTable { database: "d".to_owned(), name: "t".to_owned(), change };
    world.change(ddl).unwrap();
    let next = world.state.pending().next().unwrap();
    let (table, step) = (next.id, next.step);
    world.command(&Command::ReadAlong { table, step }).unwrap();
    world.done(Ddl::DropDatabase { name: "d".to_owned(), if_exists: false }).unwrap();
    assert_eq!((world.state.table_count(), world.state.partitions().count()), (0, 0));
}

#[test]
fn a_succession_that_an_earlier_version_recorded_ends_as_it_did_there() {
    let mut world = world();
    let before = world.table("t");
    world.change(alter("t", by_user(4))).unwrap();
    let (table, step) = world.job("t$next");
    world.command(&Command::Finish { table, step }).unwrap();
    assert_eq!((world.table("t").id, world.table("t").former), (table, Some(before.id)));
}

#[test]
fn entries_and_records_of_a_succession_keep_their_form() {
    let mut world = world();
    world.change(alter("t", by_user(4))).unwrap();
    let (table, step) = world.job("t$next");
    let partition = world.table("t").partitions[0];
    let commands = [
        Command::ReadAlong { table, step },
        Command::Fenced { table, step, partition, epoch: Epoch(300) },
    ];
    for command in &commands {
        world.command(command).unwrap();
    }
    let records = [Edit::Table(world.table("t")), Edit::Table(world.table("t$next"))];
    let mut forms = commands.map(|command| hex(&command.encode())).to_vec();
    forms.extend(record::changes(&records).into_iter().map(|change| hex(&change.value.unwrap())));
    let forms = forms.join("\n") + "\n";
    assert_eq!(forms, include_str!("succession.golden"), "got:\n{forms}");
}

#[test]
fn a_table_that_could_not_be_made_leaves_the_old_one_as_it_was() {
    let mut world = world();
    let before = world.table("t");
    world.change(alter("t", by_user(4))).unwrap();
    let (table, step) = world.job("t$next");
    world.command(&Command::Abort { table, step }).unwrap();
    world.settle();
    assert_eq!(world.table("t"), before);
    assert_eq!(world.state.table_count(), 1);
    assert!(world.done(alter("t", by_user(4))).unwrap());
}

#[test]
fn only_tables_that_keep_every_row_are_placed_otherwise_and_once_at_a_time() {
    let mut world = world();
    world.done(create(new_table("dedup"))).unwrap();
    assert!(unsupported(world.change(alter("dedup", by_user(4)))).contains("'append_mode'"));
    let same = TableChange::Repartition { placement: Placement::Range, cuts: Vec::new() };
    assert!(invalid(world.change(alter("t", same))).contains("SPLIT and MERGE"));
    world.done(alter("t", by_user(4))).unwrap();
    let again = TableChange::Repartition { placement: Placement::Range, cuts: Vec::new() };
    let refused = unsupported(world.change(alter("t", again.clone())));
    assert!(refused.contains("DROP TABLE \"t$former\""), "{refused}");
    assert!(invalid(world.change(alter("t$former", by_user(2)))).contains("change \"t\" instead"));
    // After the former partitions are dropped, the table can be repartitioned again.
    world.done(drop_table("t$former")).unwrap();
    assert_eq!(world.table("t").former, None);
    assert!(world.done(alter("t", again)).unwrap());
    assert_eq!(world.table("t$former").placement, Placement::Hash { columns: vec![ColumnId(1)] });
}

#[test]
fn other_changes_wait_until_the_new_table_is_there() {
    let mut world = world();
    world.change(alter("t", by_user(4))).unwrap();
    let next = world.job("t$next");
    let truncate = Ddl::TruncateTable { database: "public".to_owned(), name: "t".to_owned() };
    let rename = alter("t", TableChange::Rename("u".to_owned()));
    for ddl in [truncate, rename, drop_table("t"), alter("t", add(vec![field("x")]))] {
        let reply = world.change(ddl).unwrap();
        assert_eq!(reply, Reply::Busy { table: next.0, step: next.1 });
    }
}

#[test]
fn columns_are_renamed_and_dropped_in_both_tables() {
    let mut world = world();
    world.done(alter("t", by_user(4))).unwrap();
    world.done(alter("t", add(vec![field("x"), tag("y")]))).unwrap();
    assert!(world.table("t$former").schema.column("x").is_none());
    let rename = |from: &str, to: &str| {
        alter("t", TableChange::RenameColumn { from: from.to_owned(), to: to.to_owned() })
    };
    let drop_column = |name: &str| alter("t", TableChange::DropColumn(name.to_owned()));
    let column = |world: &World, table: &str, name: &str| -> Option<(ColumnId, String)> {
        let table = world.table(table);
        table.schema.column(name).map(|column| (column.id, column.storage_name.clone()))
    };
    let value = column(&world, "t", "value");
    let Reply::Changed { steps } = world.change(rename("value", "v")).unwrap() else {
        panic!("busy")
    };
    assert_eq!(steps.len(), 2);
    // Each of the tables has its new name when its own partitions have it.
    assert_eq!(world.state.check(), Ok(()));
    world.settle();
    for table in ["t", "t$former"] {
        assert_eq!(column(&world, table, "v"), value);
        assert_eq!(column(&world, table, "value"), None);
    }
    // One that was added since is in the new table only.
    let Reply::Changed { steps } = world.change(rename("x", "value")).unwrap() else {
        panic!("busy")
    };
    assert_eq!(steps.len(), 1);
    world.settle();
    assert_eq!(column(&world, "t$former", "value"), None);
    for name in ["v", "value"] {
        world.done(drop_column(name)).unwrap();
        assert_eq!([column(&world, "t", name), column(&world, "t$former", name)], [None, None]);
    }
    assert!(world.table("t$former").dropped_names.contains("value"));
    let ended = TableChange::SetOptions(Box::default());
    assert!(unsupported(world.change(alter("t", ended))).contains("\"t$former\""));
    let told = invalid(world.change(alter("t$former", add(vec![field("z")]))));
    assert!(told.contains("change \"t\" instead"), "{told}");
    world.done(drop_table("t$former")).unwrap();
    world.done(rename("y", "z")).unwrap();
    assert_eq!(world.state.check(), Ok(()));
}

#[test]
fn a_ttl_a_truncation_and_a_drop_are_for_both() {
    let mut world = world();
    world.done(alter("t", by_user(4))).unwrap();
    let ttl = Some(Duration::from_secs(60));
    let options = TableOptions { append_mode: true, ttl, ..TableOptions::default() };
    world.done(alter("t", TableChange::SetOptions(Box::new(options)))).unwrap();
    assert_eq!([world.table("t").ordered_ttl, world.table("t$former").ordered_ttl], [ttl, ttl]);
    let truncate = Ddl::TruncateTable { database: "public".to_owned(), name: "t".to_owned() };
    let Reply::Changed { steps } = world.change(truncate).unwrap() else { panic!("busy") };
    assert_eq!(steps.len(), 2);
    world.settle();
    let Reply::Changed { steps } = world.change(drop_table("t")).unwrap() else { panic!("busy") };
    assert_eq!(steps.len(), 2);
    world.settle();
    assert_eq!((world.state.table_count(), world.state.partitions().count()), (0, 0));
}

#[test]
fn an_index_is_for_both_unless_its_column_was_added_later() {
    let mut world = world();
    world.done(alter("t", by_user(4))).unwrap();
    world.done(alter("t", add(vec![field("later")]))).unwrap();
    let set = |column: &str| {
        let (name, options) = (format!("i_{column}"), IndexOptions::Inverted);
        let (column, index) = (column.to_owned(), Index { name, options });
        alter("t", TableChange::SetIndex { column, index, if_not_exists: false })
    };
    let remove = |column: &str| {
        let (column, kind) = (column.to_owned(), IndexKind::Inverted);
        alter("t", TableChange::DropIndex { column, kind })
    };
    let indexed = |world: &World, table: &str| -> Vec<String> {
        let schema = &world.table(table).schema;
        let columns = schema.columns.iter().filter(|column| !column.indexes.is_empty());
        columns.map(|column| column.name.clone()).collect()
    };
    let former_version = world.table("t$former").schema.version;
    let Reply::Changed { steps } = world.change(set("value")).unwrap() else { panic!("busy") };
    assert_eq!(steps.len(), 2);
    world.settle();
    assert_eq!(world.table("t$former").schema.version, former_version.next());
    let Reply::Changed { steps } = world.change(set("later")).unwrap() else { panic!("busy") };
    assert_eq!(steps.len(), 1);
    world.settle();
    assert_eq!(indexed(&world, "t"), ["value", "later"]);
    assert_eq!(indexed(&world, "t$former"), ["value"]);
    let Reply::Changed { steps } = world.change(remove("value")).unwrap() else { panic!("busy") };
    assert_eq!(steps.len(), 2);
    world.settle();
    world.done(remove("later")).unwrap();
    assert_eq!(indexed(&world, "t"), Vec::<String>::new());
    assert_eq!(indexed(&world, "t$former"), Vec::<String>::new());
}

#[test]
fn a_renamed_table_keeps_what_was_before() {
    let mut world = world();
    world.done(alter("t", by_user(4))).unwrap();
    world.done(alter("t", TableChange::Rename("u".to_owned()))).unwrap();
    assert_eq!(world.table("u").former, Some(world.table("t$former").id));
    // Its name is free for another, which finds another name for what it was before.
    let mut table = new_table("t");
    table.schema.options.append_mode = true;
    world.done(create(table)).unwrap();
    world.done(alter("t", by_user(2))).unwrap();
    assert_eq!(world.table("t").former, Some(world.table("t$former2").id));
}
