//! Materialized copies: their states, what replaces them, and the changes that they and their sources allow.

use partita_proto::access::{AccessChange, Action, Actions, GrantEntry, Grantee, Secrets, Target};
use partita_proto::history::Reason;
use partita_proto::index::{Index, IndexKind, IndexOptions};
use partita_proto::materialized::{CopyChange, CopyOf, CopyState};
use partita_proto::route::hash_cuts;
use partita_proto::service::MetaService;

use super::model::hex;
use super::trio::Trio;
use super::*;
use crate::record;

fn world() -> World {
    let mut world = World::new();
    world.done(create(new_table("t"))).unwrap();
    world
}

/// A copy of a table in the reverse order of its key.
fn copy_of(world: &World, source: &str, name: &str) -> NewTable {
    let source = world.table(source);
    let mut schema = TableSchema::clone(&source.schema);
    schema.key.reverse();
    NewTable { schema, cuts: vec![], copy_of: Some(source.id), ..new_table(name) }
}

/// A world with table "t" and a copy "c" of it, whose partitions begin at time 5.
fn copied() -> World {
    let mut world = world();
    let cuts = vec![cut(&[Value::Timestamp(5)])];
    let new = NewTable { cuts, ..copy_of(&world, "t", "c") };
    assert!(world.done(create(new)).unwrap());
    world
}

fn state_of(world: &World, copy: &str) -> CopyOf {
    CopyOf::clone(world.table(copy).copy.as_ref().unwrap())
}

fn is_changed(world: &mut World, change: CopyChange) -> bool {
    let reply = world.change(Ddl::Copy(change)).unwrap();
    assert!(!matches!(reply, Reply::Busy { .. }), "{reply:?}");
    reply != Reply::Unchanged
}

fn take(world: &mut World, filler: u64) -> bool {
    let copy = world.table("c").id;
    is_changed(world, CopyChange::Take { copy, filler })
}

fn beat(world: &mut World, filler: u64, beat: u64) -> bool {
    let copy = world.table("c").id;
    is_changed(world, CopyChange::Beat { copy, filler, beat, rows: 0 })
}

fn finish(world: &mut World, filler: u64, partitions: Vec<PartitionId>) -> bool {
    let copy = world.table("c").id;
    is_changed(world, CopyChange::Finish { copy, filler, partitions })
}

fn lose(world: &mut World) -> bool {
    let copy = world.table("c").id;
    is_changed(world, CopyChange::Lose { copy, reason: "a reason".to_owned() })
}

fn replace(world: &mut World, beat: Option<u64>) -> bool {
    let copy = world.table("c").id;
    is_changed(world, CopyChange::Replace { copy, beat })
}

/// Fills the copy "c".
fn fill(world: &mut World) {
    let partitions = world.table("t").partitions.clone();
    assert!(take(world, 7) && finish(world, 7, partitions));
    assert_eq!(state_of(world, "c").state, CopyState::InStep);
}

fn refused(result: Result<impl std::fmt::Debug, Error>) -> (String, String) {
    let error = result.unwrap_err();
    (error.sqlstate().to_owned(), error.to_string())
}

fn truncate(name: &str) -> Ddl {
    Ddl::TruncateTable { database: "public".to_owned(), name: name.to_owned() }
}

fn drop_cascade(name: &str) -> Ddl {
    Ddl::DropTable {
        database: "public".to_owned(),
        name: name.to_owned(),
        if_exists: false,
        cascade: true,
    }
}

#[test]
fn a_copy_has_the_columns_of_its_source_in_another_order() {
    let mut world = world();
    // Ids and storage names are not those that a new table would get.
    world.done(alter("t", add(vec![field("x")]))).unwrap();
    world.done(alter("t", TableChange::DropColumn("x".to_owned()))).unwrap();
    world.done(alter("t", add(vec![field("x")]))).unwrap();
    let new = copy_of(&world, "t", "c");
    world.change(create(new)).unwrap();
    assert!(!world.visible("c"));
    let id = world.table("c").id;
    assert_eq!(world.state.copy_state(id), Some(CopyState::Filling));
    world.settle();
    let (source, copy) = (world.table("t"), world.table("c"));
    assert_eq!(copy.schema.columns, source.schema.columns);
    assert_eq!(copy.schema.next_column, source.schema.next_column);
    assert_eq!(copy.dropped_names, source.dropped_names);
    assert!(copy.schema.key.iter().rev().eq(&source.schema.key));
    let published = world.catalog.table("public", "c").unwrap();
    let expected = CopyOf::new(source.id, None);
    assert_eq!(published.copy.as_deref(), Some(&expected));
    let copies: Vec<_> = world.catalog.copies_of(source.id).map(|copy| copy.id).collect();
    assert_eq!(copies, [id]);
    assert_eq!(world.state.copy_state(source.id), None);
}

#[test]
fn a_copy_that_does_not_fit_its_source_is_refused() {
    let mut world = copied();
    let new = |world: &World| copy_of(world, "t", "d");
    let mut few = new(&world);
    few.schema.key.pop();
    let (code, text) = refused(world.change(create(few)));
    assert_eq!(code, "42P16");
    assert_eq!(text, "the key of a copy must have the key columns of table \"t\": userid, ts");
    let mut same = new(&world);
    same.schema.key.reverse();
    let (code, text) = refused(world.change(create(same.clone())));
    assert_eq!((code, text), ("42P16".into(), "the key of the copy is that of table \"t\"".into()));
    let of_copy = copy_of(&world, "c", "d");
    let (code, text) = refused(world.change(create(of_copy)));
    assert_eq!(
        (code, text),
        ("0A000".into(), "a copy of a materialized copy is not supported".into())
    );
    let mut stale = new(&world);
    stale.schema.columns.pop();
    let source = world.table("t").id;
    assert_eq!(world.change(create(stale)), Err(Error::StaleSchema { table: source }));
    let nowhere = NewTable { copy_of: Some(TableId(999)), ..new(&world) };
    assert_eq!(refused(world.change(create(nowhere))).0, "42P01");
    world.done(create_database("e")).unwrap();
    let elsewhere = NewTable { database: "e".to_owned(), ..new(&world) };
    assert_eq!(refused(world.change(create(elsewhere))).0, "42P01");
    // The same order with other places is another way to read.
    same.placement = Placement::Hash { columns: vec![ColumnId(1)] };
    same.cuts = hash_cuts(2);
    assert!(world.done(create(same)).unwrap());
    for number in 3..=8 {
        let name = format!("c{number}");
        let more = copy_of(&world, "t", &name);
        world.done(create(more)).unwrap();
    }
    let ninth = copy_of(&world, "t", "c9");
    let (code, text) = refused(world.change(create(ninth)));
    assert_eq!(code, "54000");
    assert_eq!(text, "table \"t\" has 8 materialized copies, which is the limit");
}

#[test]
fn a_table_that_was_repartitioned_has_no_copy_and_one_with_copies_is_not_repartitioned() {
    let mut world = World::new();
    let mut table = new_table("t");
    table.schema.options.append_mode = true;
    world.done(create(table)).unwrap();
    let by_user = TableChange::Repartition {
        placement: Placement::Hash { columns: vec![ColumnId(1)] },
        cuts: hash_cuts(4),
    };
    let new = copy_of(&world, "t", "c");
    world.done(create(new.clone())).unwrap();
    let (code, text) = refused(world.change(alter("t", by_user.clone())));
    assert_eq!(code, "0A000");
    assert_eq!(
        text,
        "repartitioning table \"t\" is not supported while it has materialized copies"
    );
    world.done(drop_table("c")).unwrap();
    world.change(alter("t", by_user)).unwrap();
    // While the successor is being made, a copy waits for it.
    assert!(matches!(world.change(create(new)), Ok(Reply::Busy { .. })));
    world.settle();
    for source in ["t", "t$former"] {
        let new = copy_of(&world, source, "c");
        let (code, text) = refused(world.change(create(new)));
        assert_eq!(code, "0A000");
        assert_eq!(
            text,
            format!("a copy of table \"{source}\", which was repartitioned, is not supported")
        );
    }
}

#[test]
fn a_copy_waits_for_changes_of_its_source() {
    let mut world = world();
    let new = copy_of(&world, "t", "c");
    world.change(truncate("t")).unwrap();
    assert!(matches!(world.change(create(new.clone())), Ok(Reply::Busy { .. })));
    world.settle();
    let ids = world.table("t").partitions.clone();
    let reason = Reason::by_hand();
    world.command(&Command::Merge { left: ids[0], right: ids[1], reason }).unwrap();
    assert!(matches!(world.change(create(new.clone())), Ok(Reply::Busy { .. })));
    world.settle_reshapings();
    world.change(create(new)).unwrap();
    // And a change of the source for the copy.
    let reply = world.change(alter("t", add(vec![field("x")]))).unwrap();
    let (table, step) = world.job("c");
    assert_eq!(reply, Reply::Busy { table, step });
    assert_eq!(world.change(truncate("t")), Ok(Reply::Busy { table, step }));
}

#[test]
fn one_filler_fills_a_copy_and_proves_every_partition() {
    let mut world = copied();
    let ids = world.table("t").partitions.clone();
    assert!(!beat(&mut world, 7, 1) && !finish(&mut world, 7, ids.clone()));
    assert!(!take(&mut world, 0), "0 is nobody");
    assert!(take(&mut world, 7) && !take(&mut world, 8));
    assert!(beat(&mut world, 7, 1) && !beat(&mut world, 7, 1) && !beat(&mut world, 8, 2));
    assert_eq!((state_of(&world, "c").filler, state_of(&world, "c").beat), (7, 1));
    assert!(!finish(&mut world, 8, ids.clone()));
    assert!(!finish(&mut world, 7, ids[1..].to_vec()), "one is missing");
    // While one is being split, its child may lack the capture.
    let at = cut(&[Value::Int(150)]);
    let split = Command::Split { partition: ids[1], at, reason: Reason::by_hand(), leader: None };
    world.command(&split).unwrap();
    assert!(!finish(&mut world, 7, ids.clone()));
    world.settle_reshapings();
    assert!(!finish(&mut world, 7, ids), "the child is missing");
    let ids = world.table("t").partitions.clone();
    world.change(alter("t", add(vec![field("x")]))).unwrap();
    assert!(!finish(&mut world, 7, ids.clone()), "its source is being altered");
    world.settle();
    let step = world.job("c").1;
    assert!(finish(&mut world, 7, ids.clone()));
    let copy = state_of(&world, "c");
    assert_eq!((copy.state, copy.filler, copy.reason), (CopyState::InStep, 0, None));
    assert_eq!(world.job("c").1, step, "nodes hear nothing of it");
    assert!(!take(&mut world, 8) && !beat(&mut world, 7, 9) && !finish(&mut world, 7, ids));
    assert!(!replace(&mut world, None) && !replace(&mut world, Some(1)));
}

#[test]
fn nobody_takes_a_copy_while_its_source_is_truncated() {
    let mut world = copied();
    world.change(truncate("t")).unwrap();
    let (table, step) = world.job("c");
    world.command(&Command::Finish { table, step }).unwrap();
    assert!(world.visible("c") && !take(&mut world, 7));
    world.settle();
    assert!(take(&mut world, 7));
}

#[test]
fn a_lost_copy_stays_lost_until_another_table_replaces_it() {
    let mut world = copied();
    fill(&mut world);
    assert!(!replace(&mut world, None));
    let lost = world.table("c");
    assert!(lose(&mut world) && !lose(&mut world));
    let copy = state_of(&world, "c");
    assert_eq!((copy.state, copy.reason), (CopyState::Lost, Some("a reason".to_owned())));
    assert!(!take(&mut world, 7) && !beat(&mut world, 7, 9));
    let ids = world.table("t").partitions.clone();
    assert!(!finish(&mut world, 7, ids));
    assert_eq!(world.state.copy_state(lost.id), Some(CopyState::Lost));

    assert!(replace(&mut world, None));
    let renewed = world.table("c");
    assert!(renewed.id > lost.id && renewed.phase == Phase::Creating);
    assert_eq!(world.state.copy_state(lost.id), None);
    assert!(!is_changed(&mut world, CopyChange::Lose { copy: lost.id, reason: String::new() }));
    assert!(!is_changed(&mut world, CopyChange::Replace { copy: lost.id, beat: None }));
    world.settle();
    assert!(world.state.table(lost.id).is_none());
    let copy = state_of(&world, "c");
    assert_eq!((copy.state, copy.filler, copy.fills), (CopyState::Filling, 0, 2));
    assert_eq!(copy.reason.as_deref(), Some("a reason"));
    assert_eq!(renewed.schema, lost.schema);
    let range = |world: &World, at: usize| {
        let id = world.table("c").partitions[at];
        world.state.partition(id).unwrap().range.clone()
    };
    assert_eq!(renewed.partitions.len(), 2);
    assert_eq!(range(&world, 1).start, cut(&[Value::Timestamp(5)]));
    assert!(renewed.partitions.iter().all(|id| !lost.partitions.contains(id)));

    // The second time as the first, also while a partition of the copy is being split.
    assert!(lose(&mut world));
    let (partition, at) = (renewed.partitions[0], cut(&[Value::Timestamp(2)]));
    world
        .command(&Command::Split { partition, at, reason: Reason::by_hand(), leader: None })
        .unwrap();
    assert!(replace(&mut world, None));
    world.settle();
    world.settle_reshapings();
    fill(&mut world);
    assert_eq!(state_of(&world, "c").fills, 3);
}

#[test]
fn a_copy_whose_filler_has_gone_is_replaced_and_one_whose_filler_lives_is_not() {
    let mut world = copied();
    assert!(!replace(&mut world, Some(0)), "it waits for a filler");
    assert!(take(&mut world, 7) && beat(&mut world, 7, 4));
    assert!(!replace(&mut world, None) && !replace(&mut world, Some(3)));
    assert!(replace(&mut world, Some(4)));
    world.settle();
    let copy = state_of(&world, "c");
    assert_eq!((copy.filler, copy.beat, copy.fills), (0, 0, 2));
    assert_eq!(copy.reason.as_deref(), Some("its filler has stopped"));
    assert!(!beat(&mut world, 7, 5), "the new table is not that filler's");
}

#[test]
fn a_copy_that_was_split_meanwhile_is_replaced_another_time() {
    let mut world = copied();
    lose(&mut world);
    let copy = world.table("c");
    let places = vec![vec![NodeId(1)]; 1];
    let ddl = Ddl::Copy(CopyChange::Replace { copy: copy.id, beat: None });
    let late = Command::Change { ddl, places, id: None, tables_max: None };
    assert!(matches!(world.command(&late), Err(Error::Unavailable(_))));
    assert_eq!(world.table("c"), copy);
}

#[test]
fn a_copy_that_cannot_be_made_again_is_lost_and_not_forgotten() {
    let mut world = world();
    let new = copy_of(&world, "t", "c");
    world.change(create(new.clone())).unwrap();
    let (table, step) = world.job("c");
    world.command(&Command::Abort { table, step }).unwrap();
    world.settle();
    assert_eq!(world.state.table_count(), 1, "its client was told of the failure");
    world.done(create(new)).unwrap();
    assert!(lose(&mut world) && replace(&mut world, None));
    let (table, step) = world.job("c");
    world.command(&Command::Abort { table, step }).unwrap();
    world.settle();
    assert_eq!(world.table("c").id, table);
    let copy = state_of(&world, "c");
    assert_eq!((copy.state, copy.fills), (CopyState::Lost, 2));
    assert!(replace(&mut world, None));
    world.settle();
    assert_eq!(state_of(&world, "c").state, CopyState::Filling);
}

#[test]
fn a_truncation_replaces_the_copies_of_the_table() {
    let mut world = copied();
    fill(&mut world);
    let before = world.table("c");
    let Reply::Changed { steps } = world.change(truncate("t")).unwrap() else { panic!("busy") };
    assert_eq!(steps, [world.job("t")], "nobody waits for the new copy");
    assert_eq!(world.state.copy_state(before.id), None);
    world.settle();
    let after = world.table("c");
    assert!(after.id != before.id && after.partitions.len() == 2);
    let copy = state_of(&world, "c");
    assert_eq!((copy.state, copy.fills, copy.reason), (CopyState::Filling, 2, None));
    assert_eq!(refused(world.change(truncate("c"))).0, "42809");
}

#[test]
fn a_copy_that_is_made_anew_stays_in_the_catalog_and_may_be_dropped() {
    let mut world = copied();
    fill(&mut world);
    world.change(truncate("t")).unwrap();
    let renewed = world.table("c");
    assert!(renewed.phase == Phase::Creating);
    let published = world.catalog.table("public", "c").unwrap();
    let state = published.copy.as_ref().unwrap().state;
    assert_eq!((published.id, state), (renewed.id, CopyState::Filling));
    assert!(!take(&mut world, 7), "its partitions do not exist yet");
    world.change(drop_table("c")).unwrap();
    assert!(!world.visible("c"));
    world.settle();
    assert!(world.visible("t") && !world.visible("c"));
    assert_eq!(world.state.table_count(), 1);
    // One that is new is seen when it is complete: its statement waits for that.
    let new = copy_of(&world, "t", "c");
    world.change(create(new)).unwrap();
    assert!(!world.visible("c"));
    assert!(matches!(world.change(drop_table("c")), Ok(Reply::Busy { .. })));
}

#[test]
fn a_table_with_copies_is_dropped_with_them_or_not_at_all() {
    let mut world = copied();
    let (code, text) = refused(world.change(drop_table("t")));
    assert_eq!(code, "2BP01");
    assert_eq!(text, "cannot drop table \"t\" because other objects depend on it");
    let Reply::Changed { steps } = world.change(drop_cascade("t")).unwrap() else { panic!("busy") };
    assert_eq!(steps.len(), 2);
    assert!(!world.visible("t") && !world.visible("c"));
    world.settle();
    assert_eq!((world.state.table_count(), world.state.partitions().count()), (0, 0));
    // A copy goes alone, and also one that is being made goes with its source.
    let mut world = copied();
    world.done(drop_table("c")).unwrap();
    assert!(world.visible("t"));
    let new = copy_of(&world, "t", "c");
    world.change(create(new)).unwrap();
    world.change(drop_cascade("t")).unwrap();
    world.settle();
    assert_eq!((world.state.table_count(), world.state.partitions().count()), (0, 0));
    // And all go with their database.
    world.done(create_database("d")).unwrap();
    world.done(create(NewTable { database: "d".to_owned(), ..new_table("t") })).unwrap();
    let source = world.state.tables().next().unwrap();
    let mut schema = TableSchema::clone(&source.schema);
    schema.key.reverse();
    let (database, copy_of) = ("d".to_owned(), Some(source.id));
    let new = NewTable { database, schema, cuts: vec![], copy_of, ..new_table("c") };
    world.done(create(new)).unwrap();
    world.done(Ddl::DropDatabase { name: "d".to_owned(), if_exists: false }).unwrap();
    assert_eq!((world.state.table_count(), world.state.partitions().count()), (0, 0));
}

#[test]
fn partitions_of_both_are_split_and_never_merged() {
    let mut world = copied();
    let merge = |world: &mut World, name: &str| {
        let ids = world.table(name).partitions.clone();
        let (left, right, reason) = (ids[0], ids[1], Reason::by_hand());
        world.command(&Command::Merge { left, right, reason })
    };
    let of_source =
        "merging partitions of table \"t\" is not supported while it has materialized copies";
    assert_eq!(refused(merge(&mut world, "t")), ("0A000".to_owned(), of_source.to_owned()));
    let of_copy = "merging partitions of materialized copy \"c\" is not supported";
    assert_eq!(refused(merge(&mut world, "c")), ("0A000".to_owned(), of_copy.to_owned()));
    for (name, at) in [("t", Value::Int(50)), ("c", Value::Timestamp(3))] {
        let partition = world.table(name).partitions[0];
        let split =
            Command::Split { partition, at: cut(&[at]), reason: Reason::by_hand(), leader: None };
        world.command(&split).unwrap();
        world.settle_reshapings();
    }
    assert_eq!((world.table("t").partitions.len(), world.table("c").partitions.len()), (4, 3));
    // Without its copies it is as before.
    world.done(drop_table("c")).unwrap();
    merge(&mut world, "t").unwrap();
}

#[test]
fn changes_of_columns_options_and_indexes_are_for_both() {
    let mut world = copied();
    let set_index = TableChange::SetIndex {
        column: "value".to_owned(),
        index: Index { name: "i".to_owned(), options: IndexOptions::Inverted },
        if_not_exists: false,
    };
    let options =
        TableOptions { ttl: Some(std::time::Duration::from_secs(60)), ..TableOptions::default() };
    for change in [
        add(vec![field("x"), field("y")]),
        TableChange::DropColumn("x".to_owned()),
        TableChange::RenameColumn { from: "y".to_owned(), to: "z".to_owned() },
        TableChange::SetDefault { column: "z".to_owned(), default: Some("1".to_owned()) },
        set_index,
        TableChange::DropIndex { column: "value".to_owned(), kind: IndexKind::Inverted },
        TableChange::SetOptions(Box::new(options.clone())),
    ] {
        let reply = world.change(alter("t", change)).unwrap();
        let Reply::Changed { steps } = reply else { panic!("{reply:?}") };
        assert_eq!(steps.len(), 2);
        world.settle();
        let (source, copy) = (world.table("t"), world.table("c"));
        assert_eq!(copy.schema.columns, source.schema.columns);
        assert_eq!(copy.schema.options, source.schema.options);
        assert_eq!(copy.dropped_names, source.dropped_names);
    }
    assert_eq!(world.table("c").ordered_ttl, options.ttl);
    let (code, text) = refused(world.change(alter("t", add(vec![tag("host")]))));
    assert_eq!(code, "0A000");
    assert_eq!(
        text,
        "adding a key column to table \"t\" is not supported while it has materialized copies"
    );
    // What becomes of rows with one key must not depend on the moment at which a partition is told.
    let append = TableOptions { append_mode: true, ..options.clone() };
    let merge = TableOptions { merge_mode: MergeMode::LastNonNull, ..options };
    for (option, options) in [("append_mode", append), ("merge_mode", merge)] {
        let change = TableChange::SetOptions(Box::new(options));
        let (code, text) = refused(world.change(alter("t", change)));
        let beginning = format!("changing '{option}' of table \"t\"");
        assert!(code == "0A000" && text.starts_with(&beginning), "{text}");
    }
    // On its own a copy gets another name and owner only.
    let (code, text) = refused(world.change(alter("c", add(vec![field("w")]))));
    assert_eq!((code, text), ("42809".into(), "\"c\" is a materialized copy".into()));
    world.done(alter("c", TableChange::Rename("d".to_owned()))).unwrap();
    assert!(world.visible("d") && !world.visible("c"));
}

#[test]
fn a_copy_that_is_replaced_amid_a_change_has_the_schema_after_it() {
    let mut world = copied();
    lose(&mut world);
    world.change(alter("t", add(vec![field("x")]))).unwrap();
    assert!(replace(&mut world, None));
    world.settle();
    assert_eq!(world.table("c").schema.columns, world.table("t").schema.columns);
    assert!(world.table("c").schema.column("x").is_some());
}

#[test]
fn nothing_is_granted_on_a_copy() {
    let mut world = copied();
    let (superuser, secrets) = ("admin".to_owned(), Secrets::default());
    world.command(&Command::Bootstrap { superuser, secrets }).unwrap();
    let entry = GrantEntry {
        grantee: Grantee::Public,
        actions: Actions::of(&[Action::Select]),
        grantable: Actions::NONE,
        grantor: BOOTSTRAP_ROLE,
    };
    let target = Target::Table(world.table("c").id);
    let grant = Ddl::Access(Box::new(AccessChange::Grant { target, entry }));
    assert_eq!(refused(world.change(grant)).0, "42809");
}

/// Records and entries that are kept must stay readable.
#[test]
fn entries_and_records_of_copies_keep_their_form() {
    let copy = TableId(300);
    let changes = [
        CopyChange::Take { copy, filler: 7 },
        CopyChange::Beat { copy, filler: 7, beat: 300, rows: 0 },
        CopyChange::Finish { copy, filler: 7, partitions: vec![PartitionId(5), PartitionId(300)] },
        CopyChange::Lose { copy, reason: "a gap".to_owned() },
        CopyChange::Replace { copy, beat: Some(0) },
    ];
    let change = |ddl, places| {
        let command = Command::Change { ddl, places, id: None, tables_max: None };
        hex(&command.encode())
    };
    let mut forms: Vec<String> =
        changes.into_iter().map(|copy| change(Ddl::Copy(copy), vec![])).collect();
    let mut world = world();
    let new = copy_of(&world, "t", "c");
    forms.push(change(create(new.clone()), vec![vec![NodeId(1)]]));
    forms.push(change(drop_cascade("t"), vec![]));
    world.done(create(new)).unwrap();
    take(&mut world, 7);
    beat(&mut world, 7, 300);
    lose(&mut world);
    let records = record::changes(&[Edit::Table(world.table("c"))]);
    forms.extend(records.into_iter().map(|record| hex(&record.value.unwrap())));
    let forms = forms.join("\n") + "\n";
    assert_eq!(forms, include_str!("copies.golden"), "got:\n{forms}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_leader_confirms_what_is_recorded_and_no_other_member_does() {
    let trio = Trio::start(3).await;
    trio.change(create(new_table("t"))).await.unwrap();
    let named = |state: &State, name: &str| {
        let database = state.database_named("public").unwrap().id;
        Arc::clone(state.table_named(database, name).unwrap())
    };
    let source = named(&trio.known().await, "t");
    let mut schema = TableSchema::clone(&source.schema);
    schema.key.reverse();
    let new = NewTable { schema, cuts: vec![], copy_of: Some(source.id), ..new_table("c") };
    assert!(trio.change(create(new)).await.unwrap());
    let copy = named(&trio.known().await, "c");
    let confirmed = async |ids: &[TableId]| {
        trio.ask(async |meta| meta.confirm(ids.to_vec()).await).await.unwrap()
    };
    let asked = [copy.id, source.id, TableId(999)];
    assert_eq!(confirmed(&asked).await, [Some(CopyState::Filling), None, None]);

    let lose = CopyChange::Lose { copy: copy.id, reason: "a gap".to_owned() };
    assert!(trio.change(Ddl::Copy(lose.clone())).await.unwrap());
    assert!(!trio.change(Ddl::Copy(lose)).await.unwrap());
    assert_eq!(confirmed(&[copy.id]).await, [Some(CopyState::Lost)]);
    let replace = CopyChange::Replace { copy: copy.id, beat: None };
    assert!(trio.change(Ddl::Copy(replace)).await.unwrap());
    let renewed = named(&trio.known().await, "c");
    assert_eq!(confirmed(&[copy.id, renewed.id]).await, [None, Some(CopyState::Filling)]);
    // Its nodes are chosen as for a new table, as many as its source has.
    trio.until("the copy is there again", || {
        trio.holds(|state| state.table(renewed.id).is_some_and(|table| table.is_visible()))
    })
    .await;
    let state = trio.known().await;
    let replicas = state.partitions_of(&renewed).map(|partition| partition.replicas.len());
    assert!(replicas.eq([3]));
    assert!(trio.change(truncate("t")).await.unwrap());
    assert_eq!(confirmed(&[renewed.id]).await, [None]);
    assert!(named(&trio.known().await, "c").id > renewed.id);

    let leader = trio.leader().await;
    for follower in (0..3).filter(|at| *at != leader) {
        let answer = trio.meta(follower).confirm(vec![copy.id]).await;
        assert!(matches!(answer, Err(Error::NotLeader { .. })), "{answer:?}");
    }
    trio.end().await;
}
