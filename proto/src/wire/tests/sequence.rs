//! Forms of sequences and of their changes.

use super::*;
use crate::catalog::Catalog;
use crate::id::SequenceId;
use crate::sequence::{
    Counter, Identity, NewSequence, Sequence, SequenceChange, SequenceColumn, SequenceOptions,
    SequenceType, TableSequence,
};

fn options() -> impl Strategy<Value = SequenceOptions> {
    let data_type = prop_oneof![
        Just(SequenceType::Small),
        Just(SequenceType::Integer),
        Just(SequenceType::Big)
    ];
    let increment = any::<i64>().prop_filter("not zero", |increment| *increment != 0);
    let numbers = (any::<i64>(), increment, any::<i64>(), any::<i64>(), any::<u64>());
    (data_type, numbers, any::<bool>()).prop_map(
        |(data_type, (start, increment, min_value, max_value, cache), cycle)| SequenceOptions {
            data_type,
            start,
            increment,
            min_value,
            max_value,
            cache,
            cycle,
        },
    )
}

fn identity() -> impl Strategy<Value = Option<Identity>> {
    option::of(prop_oneof![Just(Identity::Always), Just(Identity::ByDefault)])
}

fn owned() -> impl Strategy<Value = SequenceColumn> {
    (any::<u32>(), any::<u32>(), identity()).prop_map(|(table, column, identity)| SequenceColumn {
        table: TableId(table),
        column: ColumnId(column),
        identity,
    })
}

fn new_sequence() -> impl Strategy<Value = NewSequence> {
    (any::<(u32, u32)>(), name(), options(), option::of(owned())).prop_map(
        |((database, owner), name, options, column)| NewSequence {
            database: DatabaseId(database),
            name,
            owner: RoleId(owner),
            options,
            column,
        },
    )
}

fn counter() -> impl Strategy<Value = Counter> {
    any::<(i64, bool, u64)>().prop_map(|(last_value, is_called, generation)| Counter {
        last_value,
        is_called,
        generation,
    })
}

fn a_sequence() -> impl Strategy<Value = Sequence> {
    (new_sequence(), any::<u32>(), counter())
        .prop_map(|(new, id, counter)| Sequence { counter, ..new.with_id(SequenceId(id)) })
}

/// A sequence of a column of a new table.
pub(super) fn of_table() -> impl Strategy<Value = TableSequence> {
    (name(), any::<u32>(), identity(), options()).prop_map(|(name, column, identity, options)| {
        TableSequence { name, column: ColumnId(column), identity, options }
    })
}

/// A change of a sequence.
pub(super) fn change() -> impl Strategy<Value = SequenceChange> {
    let id = || any::<u32>().prop_map(SequenceId);
    prop_oneof![
        (new_sequence(), any::<bool>()).prop_map(|(sequence, if_not_exists)| {
            SequenceChange::Create { sequence, if_not_exists }
        }),
        (id(), options(), option::of(any::<i64>()), option::of(option::of(owned()))).prop_map(
            |(sequence, options, restart, column)| SequenceChange::Alter {
                sequence,
                options,
                restart,
                column,
            }
        ),
        id().prop_map(|sequence| SequenceChange::Drop { sequence }),
        (id(), counter(), any::<u64>()).prop_map(|(sequence, counter, count)| {
            SequenceChange::Allot { sequence, counter, count }
        }),
        (id(), any::<i64>(), any::<bool>()).prop_map(|(sequence, value, is_called)| {
            SequenceChange::Set { sequence, value, is_called }
        }),
    ]
}

proptest! {
    #[test]
    fn sequences_survive(sequence in a_sequence()) {
        prop_assert_eq!(Sequence::decode_wire(sequence.encode_wire()), Ok(sequence));
    }
}

#[test]
fn frontends_follow_sequences_and_other_processes_do_not_get_them() {
    let new = NewSequence {
        database: DatabaseId(1),
        name: "s".to_owned(),
        owner: RoleId(0),
        options: SequenceOptions::new(SequenceType::Big),
        column: None,
    };
    let mut follower = Follower::default();
    let mut follow = |previous: Option<&Catalog>, current: &Catalog| {
        let mut newest = None;
        for part in parts_between(previous, current) {
            newest = follower.take(part).unwrap().or(newest);
        }
        newest.unwrap()
    };
    let mut catalog = Catalog { version: 1, ..Catalog::default() };
    assert!(follow(None, &catalog).sequences.is_empty());
    let mut previous = catalog.clone();
    let mut sequence = new.with_id(SequenceId(7));
    for version in 2..5_u64 {
        sequence = sequence.allotted(&sequence.counter, version).unwrap().unwrap();
        catalog.version = version;
        Arc::make_mut(&mut catalog.sequences).insert(sequence.id, Arc::new(sequence.clone()));
        assert_eq!(follow(Some(&previous), &catalog).sequences, catalog.sequences);
        previous = catalog.clone();
    }
    let public = public_parts_between(None, &catalog);
    assert!(public.iter().all(|part| part.sequences.is_empty()));
    catalog.version = 5;
    Arc::make_mut(&mut catalog.sequences).clear();
    assert!(follow(Some(&previous), &catalog).sequences.is_empty());
}
