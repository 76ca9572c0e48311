//! Re-keyings: the copy that takes the place of its source, and the changes that both allow meanwhile.

use partita_load::HashOf;
use partita_proto::history::Reason;
use partita_proto::materialized::{CopyChange, CopyState, Rekeying, Steering, with_first_key};
use partita_proto::range::TypedRange;

use super::model::hex;
use super::*;
use crate::load::{Keeper, spreading};
use crate::plan::{Action, orders};

const REKEYED: &str = "t$rekeyed";

/// A table in the reverse order of the key of "t".
fn reversed(world: &World, name: &str, rekeys: bool) -> NewTable {
    let source = world.table("t");
    let mut schema = TableSchema::clone(&source.schema);
    schema.key.reverse();
    let cuts = vec![cut(&[Value::Timestamp(5)])];
    NewTable { schema, cuts, copy_of: Some(source.id), rekeys, ..new_table(name) }
}

/// A world with table "t", which is being re-keyed.
fn rekeyed() -> World {
    let mut world = World::new();
    world.done(create(new_table("t"))).unwrap();
    let new = reversed(&world, REKEYED, true);
    assert!(world.done(create(new)).unwrap());
    world
}

/// True if the change of the re-keying had an effect.
fn changes(world: &mut World, change: impl Fn(TableId) -> CopyChange) -> bool {
    let copy = world.table(REKEYED).id;
    match world.change(Ddl::Copy(change(copy))).unwrap() {
        Reply::Changed { steps } => {
            assert_eq!(steps, [], "nobody waits");
            true
        }
        Reply::Unchanged => false,
        Reply::Busy { .. } => panic!("busy"),
    }
}

fn steer(world: &mut World, steering: Steering) -> bool {
    changes(world, |copy| CopyChange::Steer { copy, steering })
}

fn switch(world: &mut World) -> bool {
    changes(world, |copy| CopyChange::Switch { copy })
}

fn exchange(world: &mut World, partitions: &[PartitionId]) -> bool {
    changes(world, |copy| CopyChange::Exchange { copy, partitions: partitions.to_vec() })
}

fn fill(world: &mut World) {
    let filler = 7;
    let partitions = world.table("t").partitions.clone();
    assert!(changes(world, |copy| CopyChange::Take { copy, filler }));
    assert!(changes(world, |copy| CopyChange::Finish {
        copy,
        filler,
        partitions: partitions.clone()
    }));
}

fn state(world: &World) -> CopyState {
    world.table(REKEYED).copy.as_ref().unwrap().state
}

fn rekeying(world: &World) -> Rekeying {
    world.table(REKEYED).copy.as_ref().unwrap().rekeying.unwrap()
}

fn ranges(world: &World, name: &str) -> Vec<TypedRange> {
    let table = world.table(name);
    world.state.partitions_of(&table).map(|partition| partition.range.clone()).collect()
}

#[test]
fn a_table_without_a_key_gets_its_first_one_and_keeps_its_id() {
    let mut world = World::new();
    let mut keyless = NewTable { cuts: Vec::new(), ..new_table("t") };
    keyless.schema = schema(vec![field("k"), field("v")]);
    let hidden = keyless.schema.next_column;
    keyless.schema.columns.push(Column::of_rows(hidden));
    keyless.schema.key = vec![hidden];
    keyless.schema.next_column = ColumnId(hidden.0 + 1);
    world.done(create(keyless)).unwrap();
    let before = world.table("t");
    let key = vec![before.schema.columns[0].id];
    let new = |rekeys| NewTable {
        schema: with_first_key(&before.schema, &key),
        cuts: Vec::new(),
        copy_of: Some(before.id),
        rekeys,
        ..new_table(REKEYED)
    };
    assert!(world.change(create(new(false))).is_err(), "a copy that stays one needs the key");
    assert!(world.done(create(new(true))).unwrap());
    fill(&mut world);
    assert!(switch(&mut world) && exchange(&mut world, &before.partitions));
    world.settle();
    let after = world.table("t");
    assert_eq!((after.id, &after.schema.key), (before.id, &key));
    assert!(!after.schema.is_keyless() && world.table(REKEYED).schema.is_keyless());
    assert_eq!(world.state.check(), Ok(()));
}

#[test]
fn a_table_and_its_copy_exchange_their_partitions_in_one_step() {
    let mut world = rekeyed();
    let (before, copy) = (world.table("t"), world.table(REKEYED));
    let (old_ranges, new_ranges) = (ranges(&world, "t"), ranges(&world, REKEYED));
    assert!(!switch(&mut world), "rows are missing");
    fill(&mut world);
    assert!(!exchange(&mut world, &before.partitions), "nobody may close the partitions yet");
    assert!(switch(&mut world) && !switch(&mut world));
    assert_eq!(state(&world), CopyState::Switching);
    assert!(!exchange(&mut world, &before.partitions[1..]), "one may be open");
    assert!(exchange(&mut world, &before.partitions));
    assert!(!exchange(&mut world, &before.partitions), "done");

    let (after, retired) = (world.table("t"), world.table(REKEYED));
    assert_eq!((after.id, after.owner, &after.name), (before.id, before.owner, &before.name));
    assert_eq!(after.partitions, copy.partitions);
    assert_eq!((ranges(&world, "t"), ranges(&world, REKEYED)), (new_ranges, old_ranges));
    assert!(after.schema.key.iter().rev().eq(&before.schema.key));
    assert!(after.schema.version > before.schema.version && after.copy.is_none());
    assert_eq!((retired.id, &retired.partitions), (copy.id, &before.partitions));
    assert_eq!(state(&world), CopyState::Retired);
    assert_eq!(world.state.copy_state(copy.id), Some(CopyState::Retired));
    assert_eq!(world.state.copies_of(after.id).count(), 0);
    let published = world.catalog.table("public", "t").unwrap();
    assert_eq!(published.partitions.routes().len(), 2);

    // The table is like any other, and may be re-keyed again.
    world.settle();
    world.done(alter("t", add(vec![field("x")]))).unwrap();
    let mut again = reversed(&world, "t$rekeyed2", true);
    again.cuts.clear();
    assert!(world.done(create(again)).unwrap());
    assert!(changes(&mut world, |copy| CopyChange::Discard { copy }));
    world.settle();
    assert!(world.state.table(copy.id).is_none());
    assert!(before.partitions.iter().all(|id| world.state.partition(*id).is_none()));
}

/// Otherwise they would take every read for one that knows more than they do.
#[test]
fn replicas_are_told_of_a_schema_after_the_exchange() {
    let mut world = rekeyed();
    fill(&mut world);
    let (copy, ids) = (world.table(REKEYED), world.table("t").partitions.clone());
    assert!(switch(&mut world) && exchange(&mut world, &ids));
    let exchanged = world.table("t");
    let version = exchanged.schema.version;
    assert!(version > copy.schema.version);
    let orders = orders(&world.state, &exchanged);
    assert_eq!(orders.len(), copy.partitions.len());
    for order in orders {
        assert!(copy.partitions.contains(&order.partition));
        let Action::Alter(schema) = &order.action else { panic!("{order:?}") };
        assert_eq!((schema.version, &schema.key), (version.next(), &exchanged.schema.key));
    }
    // The table is used meanwhile, and can be dropped; other changes of it wait.
    assert!(world.visible("t"));
    let busy = world.change(alter("t", add(vec![field("x")])));
    assert!(matches!(busy, Ok(Reply::Busy { .. })), "{busy:?}");
    world.settle();
    assert_eq!((world.phase("t"), world.table("t").schema.version), (Phase::Ready, version.next()));
    // The closed partitions hear nothing.
    assert_eq!(world.phase(REKEYED), Phase::Ready);
}

#[test]
fn a_table_that_is_about_to_be_switched_stays_as_it_is() {
    let mut world = rekeyed();
    fill(&mut world);
    let (ids, children) =
        (world.table("t").partitions.clone(), world.table(REKEYED).partitions.clone());
    let split = |partition: PartitionId, key: Value| Command::Split {
        partition,
        at: cut(&[key]),
        reason: Reason::by_hand(),
        leader: None,
    };
    // Not while a partition of either table is being split.
    for (partition, key) in [(ids[0], Value::Int(50)), (children[1], Value::Timestamp(9))] {
        world.command(&split(partition, key)).unwrap();
        assert!(!switch(&mut world));
        world.settle_reshapings();
    }
    world.change(alter("t", add(vec![field("x")]))).unwrap();
    assert!(!switch(&mut world));
    world.settle();
    assert!(switch(&mut world));
    let waits = |result: Result<Reply, Error>| {
        assert!(matches!(result, Err(Error::Unavailable(_))), "{result:?}");
    };
    waits(world.change(alter("t", add(vec![field("y")]))));
    waits(world.change(Ddl::TruncateTable { database: "public".to_owned(), name: "t".to_owned() }));
    waits(world.command(&split(ids[1], Value::Int(150))));
    waits(world.command(&split(children[0], Value::Timestamp(2))));
    waits(world.change(drop_table(REKEYED)));
    for steering in [Steering::Pause, Steering::Throttle(5), Steering::Cancel] {
        assert!(!steer(&mut world, steering), "{steering:?}");
    }
    world.done(alter("t", TableChange::Rename("u".to_owned()))).unwrap();
    let ids = world.table("u").partitions.clone();
    assert!(exchange(&mut world, &ids));
    // The former partitions are not touched any more.
    waits(world.command(&split(ids[1], Value::Int(70))));
    waits(world.change(drop_table(REKEYED)));
    // The table is dropped with them.
    world.done(drop_table("u")).unwrap();
    assert_eq!(world.state.partitions().count(), 0);
}

#[test]
fn a_rekeying_is_paused_bounded_and_cancelled() {
    let mut world = rekeyed();
    assert!(steer(&mut world, Steering::Throttle(1000)) && steer(&mut world, Steering::Pause));
    assert!(changes(&mut world, |copy| CopyChange::Take { copy, filler: 7 }));
    assert!(changes(&mut world, |copy| CopyChange::Beat { copy, filler: 7, beat: 1, rows: 42 }));
    let expected = Rekeying { is_paused: true, rows_per_second: 1000, rows: 42 };
    assert_eq!(rekeying(&world), expected);
    // A new table is filled from the beginning, with the same settings.
    assert!(changes(&mut world, |copy| CopyChange::Lose { copy, reason: "a gap".to_owned() }));
    assert!(changes(&mut world, |copy| CopyChange::Replace { copy, beat: None }));
    world.settle();
    assert_eq!(rekeying(&world), Rekeying { rows: 0, ..expected });
    fill(&mut world);
    assert!(!switch(&mut world), "it is paused");
    assert!(steer(&mut world, Steering::Resume));
    assert!(!rekeying(&world).is_paused);
    assert!(steer(&mut world, Steering::Cancel));
    world.settle();
    assert!(!world.visible(REKEYED) && world.visible("t"));
    assert_eq!(world.table("t").partitions.len(), 3);
}

#[test]
fn a_switch_that_fails_ends_like_any_loss() {
    let mut world = rekeyed();
    fill(&mut world);
    assert!(switch(&mut world));
    assert!(changes(&mut world, |copy| CopyChange::Lose { copy, reason: "silence".to_owned() }));
    let ids = world.table("t").partitions.clone();
    // Partitions may be closed: nothing happens before they are open again.
    assert_eq!(state(&world), CopyState::Reopening);
    assert!(!changes(&mut world, |copy| CopyChange::Lose { copy, reason: "again".to_owned() }));
    assert!(!changes(&mut world, |copy| CopyChange::Replace { copy, beat: None }));
    assert!(!steer(&mut world, Steering::Cancel));
    assert!(matches!(world.change(alter("t", add(vec![field("y")]))), Err(Error::Unavailable(_))));
    let some = ids[1..].to_vec();
    assert!(!changes(&mut world, |copy| CopyChange::Reopened { copy, partitions: some.clone() }));
    assert!(changes(&mut world, |copy| CopyChange::Reopened { copy, partitions: ids.clone() }));
    assert_eq!(state(&world), CopyState::Lost);
    assert!(!exchange(&mut world, &ids) && !switch(&mut world));
    world.done(alter("t", add(vec![field("y")]))).unwrap();
    assert!(changes(&mut world, |copy| CopyChange::Replace { copy, beat: None }));
    world.settle();
    assert_eq!(state(&world), CopyState::Filling);
    // What was exchanged cannot be lost any more.
    fill(&mut world);
    assert!(switch(&mut world) && exchange(&mut world, &ids));
    assert!(!changes(&mut world, |copy| CopyChange::Lose { copy, reason: "late".to_owned() }));
}

#[test]
fn other_copies_of_the_table_are_filled_anew() {
    let mut world = rekeyed();
    let mut other = reversed(&world, "c", false);
    other.placement = Placement::Hash { columns: vec![ColumnId(1)] };
    other.cuts = partita_proto::route::hash_cuts(2);
    assert!(world.done(create(other)).unwrap());
    let first = world.table("c").id;
    fill(&mut world);
    let ids = world.table("t").partitions.clone();
    assert!(switch(&mut world) && exchange(&mut world, &ids));
    world.settle();
    let renewed = world.table("c");
    let copy = renewed.copy.as_ref().unwrap();
    assert!(renewed.id != first && renewed.partitions.len() == 2);
    assert_eq!((copy.state, copy.fills), (CopyState::Filling, 2));
    assert_eq!(copy.reason.as_deref(), Some("its table was re-keyed"));
    assert_eq!(copy.rekeying, None);
}

#[test]
fn a_rekeying_that_does_not_fit_the_table_is_refused() {
    let mut world = rekeyed();
    let refused = |result: Result<Reply, Error>| {
        let error = result.unwrap_err();
        (error.sqlstate().to_owned(), error.to_string())
    };
    let second = reversed(&world, "t$rekeyed2", true);
    let (code, text) = refused(world.change(create(second)));
    assert_eq!((code.as_str(), text.as_str()), ("55000", "table \"t\" is already being re-keyed"));
    assert!(steer(&mut world, Steering::Cancel));
    world.settle();
    let mut short = reversed(&world, REKEYED, true);
    short.schema.key.pop();
    let (code, text) = refused(world.change(create(short)));
    let message = "the new key must have the key columns of table \"t\": userid, ts";
    assert_eq!((code.as_str(), text.as_str()), ("42P16", message));
    let mut same = reversed(&world, REKEYED, true);
    same.schema.key.reverse();
    same.cuts.clear();
    let (code, text) = refused(world.change(create(same)));
    assert_eq!((code.as_str(), text.as_str()), ("42P16", "the new key is that of table \"t\""));
    // A table that is being re-keyed keeps its key columns, and its drop needs no CASCADE.
    let new = reversed(&world, REKEYED, true);
    world.done(create(new)).unwrap();
    let (code, text) = refused(world.change(alter("t", add(vec![tag("area")]))));
    assert_eq!(code, "0A000");
    assert!(text.ends_with("while it is being re-keyed"), "{text}");
    world.done(drop_table("t")).unwrap();
    assert_eq!(world.state.partitions().count(), 0);
}

#[test]
fn a_load_is_spread_over_a_hash_of_new_rows_or_of_all() {
    let mut world = World::new();
    world.done(create(new_table("t"))).unwrap();
    let (id, owner) = (world.table("t").id, world.table("t").owner);
    let by_series = (4, HashOf::Series);
    let ddl = spreading(&world.state, id, by_series).unwrap();
    assert!(world.done(ddl).unwrap());
    let copy = world.table(REKEYED);
    let placement = Placement::Hash { columns: vec![ColumnId(1)] };
    assert_eq!((&copy.placement, copy.partitions.len()), (&placement, 4));
    assert_eq!((&copy.schema.key, copy.owner), (&world.table("t").schema.key, owner));
    assert!(copy.is_rekeying());
    // One at a time, under a name that is free.
    let second = spreading(&world.state, id, by_series).unwrap();
    assert_eq!(world.change(second).unwrap_err().sqlstate(), "55000");
    fill(&mut world);
    let ids = world.table("t").partitions.clone();
    assert!(switch(&mut world) && exchange(&mut world, &ids));
    world.settle();
    assert_eq!(world.table("t").placement, placement);

    // Rows of a table that keeps every row stay where they are, unless it has copies.
    let mut appended = new_table("u");
    appended.schema.options.append_mode = true;
    world.done(create(appended)).unwrap();
    let source = world.table("u");
    let by_key = |world: &World| spreading(&world.state, source.id, (4, HashOf::Key)).unwrap();
    let Ddl::Checked(checked) = by_key(&world) else { panic!("{:?}", by_key(&world)) };
    let Ddl::AlterTable { change: TableChange::Repartition { placement, cuts }, .. } = &checked.ddl
    else {
        panic!("{checked:?}")
    };
    assert_eq!((placement, cuts.len()), (&Placement::by_key(&source.schema), 3));
    let mut schema = TableSchema::clone(&source.schema);
    schema.key.reverse();
    let copy = NewTable { schema, cuts: vec![], copy_of: Some(source.id), ..new_table("c") };
    world.done(create(copy)).unwrap();
    assert!(world.done(by_key(&world)).unwrap());
    assert!(world.table("u$rekeyed").is_rekeying());
    let missing = spreading(&world.state, TableId(99), by_series);
    assert!(matches!(missing, Err(Error::NotFound { .. })), "{missing:?}");
}

#[test]
fn former_partitions_are_dropped_before_rows_are_placed_otherwise() {
    let mut world = World::new();
    let mut appended = new_table("t");
    appended.schema.options.append_mode = true;
    world.done(create(appended)).unwrap();
    let new = reversed(&world, REKEYED, true);
    world.done(create(new)).unwrap();
    fill(&mut world);
    let ids = world.table("t").partitions.clone();
    assert!(switch(&mut world) && exchange(&mut world, &ids));
    world.settle();
    let placed = || {
        let placement = Placement::Hash { columns: vec![ColumnId(1)] };
        let cuts = partita_proto::route::hash_cuts(2);
        alter("t", TableChange::Repartition { placement, cuts })
    };
    assert!(matches!(world.change(placed()), Err(Error::Unavailable(_))));
    assert!(changes(&mut world, |copy| CopyChange::Discard { copy }));
    world.settle();
    assert!(world.done(placed()).unwrap());
}

#[test]
fn boundaries_of_a_new_key_are_pinned_like_those_of_a_new_table() {
    let mut world = rekeyed();
    let before = world.table("t").partitions.clone();
    fill(&mut world);
    assert!(switch(&mut world) && exchange(&mut world, &before));
    let table = world.table("t");
    let partitions = world.state.partitions_of(&table);
    let pins: Vec<_> = partitions.map(|partition| partition.cut_by_hand_ms).collect();
    assert_eq!(pins, [None, Some(0)]);
}

#[test]
fn what_is_known_of_the_load_of_partitions_goes_with_them() {
    let mut world = World::new();
    world.done(create(NewTable { cuts: vec![], ..new_table("t") })).unwrap();
    let new = NewTable { cuts: vec![], ..reversed(&world, REKEYED, true) };
    world.done(create(new)).unwrap();
    let (table, copy) = (world.table("t"), world.table(REKEYED));
    let mut keeper = Keeper::new(1);
    keeper.learn(&world.state, |_| true, 1_000);
    fill(&mut world);
    assert!(switch(&mut world) && exchange(&mut world, &table.partitions));
    keeper.learn(&world.state, |_| true, 2_000);
    // Both ranges are everything, and do not tell them apart.
    let owner = |id: &PartitionId| keeper.watched(*id).unwrap().table;
    assert_eq!(owner(&copy.partitions[0]), table.id);
    assert_eq!(owner(&table.partitions[0]), copy.id);
}

/// Records and entries that are kept must stay readable.
#[test]
fn entries_and_records_of_rekeyings_keep_their_form() {
    let copy = TableId(300);
    let changes = [
        CopyChange::Steer { copy, steering: Steering::Pause },
        CopyChange::Steer { copy, steering: Steering::Resume },
        CopyChange::Steer { copy, steering: Steering::Throttle(300) },
        CopyChange::Steer { copy, steering: Steering::Cancel },
        CopyChange::Switch { copy },
        CopyChange::Exchange { copy, partitions: vec![PartitionId(5), PartitionId(300)] },
        CopyChange::Discard { copy },
        CopyChange::Reopened { copy, partitions: vec![PartitionId(5)] },
    ];
    let form = |copy| {
        let ddl = Ddl::Copy(copy);
        let command = Command::Change { ddl, places: vec![], id: None, tables_max: None };
        hex(&command.encode())
    };
    let forms: Vec<String> = changes.into_iter().map(form).collect();
    let expected = [
        "0a0b0a096a07320508ac021001",
        "0a0b0a096a07320508ac021801",
        "0a0c0a0a6a08320608ac0220ac02",
        "0a0b0a096a07320508ac022801",
        "0a070a056a0338ac02",
        "0a0e0a0c6a0a420808ac02120305ac02",
        "0a070a056a0348ac02",
        "0a0c0a0a6a08520608ac02120105",
    ];
    assert_eq!(forms, expected);
}
