//! Sequences: their changes, their blocks, and what they go with.

use partita_proto::access::{AccessChange, Action, Actions, GrantEntry, Target};
use partita_proto::id::{ColumnId, DatabaseId, RoleId, SequenceId};
use partita_proto::sequence::{
    Counter, Identity, NewSequence, Sequence, SequenceChange, SequenceOptions, SequenceType,
    TableSequence,
};

use super::access::{access, entry, refused, role, world};
use super::*;
use crate::record;

fn new(name: &str) -> NewSequence {
    NewSequence {
        database: DatabaseId(1),
        name: name.to_owned(),
        owner: RoleId(0),
        options: SequenceOptions::new(SequenceType::Big),
        column: None,
    }
}

fn ddl(change: SequenceChange) -> Ddl {
    Ddl::Sequence(Box::new(change))
}

fn create_sequence(name: &str) -> Ddl {
    ddl(SequenceChange::Create { sequence: new(name), if_not_exists: false })
}

fn sequence(world: &World, id: u32) -> Arc<Sequence> {
    Arc::clone(&world.catalog.sequences[&SequenceId(id)])
}

#[test]
fn a_block_is_given_once() {
    let mut world = world();
    world.change(create_sequence("s")).unwrap();
    assert!(world.change(create_sequence("s")).is_err());
    let known = sequence(&world, 1).counter;
    let allot = |counter: Counter| {
        ddl(SequenceChange::Allot { sequence: SequenceId(1), counter, count: 10 })
    };
    assert!(matches!(world.change(allot(known)), Ok(Reply::Changed { .. })));
    // Another frontend with the same knowledge comes later.
    assert_eq!(world.change(allot(known)), Ok(Reply::Unchanged));
    let taken = sequence(&world, 1).counter;
    assert_eq!((taken.last_value, taken.is_called), (10, true));
    let set = SequenceChange::Set { sequence: SequenceId(1), value: 10, is_called: true };
    world.change(ddl(set)).unwrap();
    assert_eq!(world.change(allot(taken)), Ok(Reply::Unchanged));
    assert_eq!(sequence(&world, 1).counter.generation, taken.generation + 1);
    world.change(ddl(SequenceChange::Drop { sequence: SequenceId(1) })).unwrap();
    assert!(world.catalog.sequences.is_empty());
    assert!(world.change(allot(taken)).is_err());
    // An id is never given again.
    world.change(create_sequence("s")).unwrap();
    assert!(world.catalog.sequences.contains_key(&SequenceId(2)));
}

#[test]
fn a_sequence_and_a_table_share_their_names() {
    let mut world = world();
    world.change(create_sequence("s")).unwrap();
    assert!(world.change(create(new_table("s"))).is_err());
    world.change(create(new_table("t"))).unwrap();
    assert!(world.change(create_sequence("t")).is_err());
    let skip = SequenceChange::Create { sequence: new("t"), if_not_exists: true };
    assert_eq!(world.change(ddl(skip)), Ok(Reply::Unchanged));
}

#[test]
fn the_sequence_of_a_column_comes_and_goes_with_its_table() {
    let mut world = world();
    let of_column = TableSequence {
        name: "t_id_seq".to_owned(),
        column: ColumnId(1),
        identity: Some(Identity::Always),
        options: SequenceOptions::new(SequenceType::Integer),
    };
    let table = NewTable { sequences: vec![of_column], ..new_table("t") };
    world.change(create(table.clone())).unwrap();
    let column = sequence(&world, 1).column.unwrap();
    assert_eq!((column.column, column.identity), (ColumnId(1), Some(Identity::Always)));
    world.settle();
    let (_, held) = world.catalog.tables["public"].iter().next().unwrap();
    assert_eq!((column.table, held.name.as_str()), (held.id, "t"));
    assert!(world.change(create(NewTable { name: "u".to_owned(), ..table })).is_err());
    world.change(drop_table("t")).unwrap();
    assert!(world.catalog.sequences.is_empty());
}

#[test]
fn grants_on_a_sequence_go_with_it_and_with_its_owner() {
    let mut world = world();
    let (ada, bob) = (role(&mut world, "ada"), role(&mut world, "bob"));
    let usage = Actions::of(&[Action::Connect]);
    world.change(create_sequence("s")).unwrap();
    let free = Target::Sequence(SequenceId(1));
    let grant = |target: Target, grantor: RoleId| {
        let entry = GrantEntry { actions: usage, ..entry(grantor, bob) };
        access(AccessChange::Grant { target, entry })
    };
    world.change(grant(free, RoleId(0))).unwrap();
    let (code, message) = refused(world.change(access(AccessChange::DropRole { role: bob })));
    assert_eq!(code, "2BP01");
    assert!(message.contains("privileges for sequence s"), "{message}");
    world.change(access(AccessChange::SetOwner { target: free, owner: ada })).unwrap();
    assert_eq!(sequence(&world, 1).owner, ada);
    let entries = world.catalog.access.grant(free).unwrap().entries().to_vec();
    assert_eq!(entries, [GrantEntry { actions: usage, ..entry(ada, bob) }]);
    world.change(ddl(SequenceChange::Drop { sequence: SequenceId(1) })).unwrap();
    assert_eq!(world.catalog.access.grants().count(), 0);
    assert_eq!(refused(world.change(grant(free, ada))).0, "42P01");
    // The sequence of a column has the owner of its table.
    let of_column = TableSequence {
        name: "t_id_seq".to_owned(),
        column: ColumnId(1),
        identity: None,
        options: SequenceOptions::new(SequenceType::Big),
    };
    world.done(create(NewTable { sequences: vec![of_column], ..new_table("t") })).unwrap();
    let id = *world.catalog.sequences.keys().next().unwrap();
    let owned = Target::Sequence(id);
    world.change(grant(owned, RoleId(0))).unwrap();
    let alone = access(AccessChange::SetOwner { target: owned, owner: ada });
    assert_eq!(refused(world.change(alone)).0, "55000");
    let table = Target::Table(world.table("t").id);
    world.change(access(AccessChange::SetOwner { target: table, owner: ada })).unwrap();
    assert_eq!(world.catalog.access.grant(owned).unwrap().entries()[0].grantor, ada);
    world.change(drop_table("t")).unwrap();
    assert_eq!(world.catalog.access.grants().count(), 0);
}

#[test]
fn the_key_of_a_grant_on_a_sequence_never_changes() {
    let gone = Edit::GrantGone(Target::Sequence(SequenceId(0x0102_0304)));
    let changes = record::changes(&[gone]);
    assert_eq!(changes[0].key, [b'g', 3, 1, 2, 3, 4]);
    assert!(changes[0].value.is_none());
}
