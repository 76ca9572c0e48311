//! Tests of sequences: their numbers, bounds and blocks.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn sequence(options: SequenceOptions) -> Sequence {
    let (database, name, owner) = (DatabaseId(1), "s".to_owned(), RoleId(0));
    NewSequence { database, name, owner, options, column: None }.with_id(SequenceId(1))
}

fn big() -> SequenceOptions {
    SequenceOptions::new(SequenceType::Big)
}

/// Numbers of blocks of these sizes, taken one after another.
fn numbers(mut sequence: Sequence, counts: &[u64]) -> Result<Vec<i64>, Error> {
    let mut numbers = Vec::new();
    for count in counts {
        let counter = sequence.counter;
        let block = sequence.block(&counter, *count)?;
        sequence = sequence.allotted(&counter, *count)?.unwrap();
        numbers.extend((0..block.count).map(|position| block.at(position)));
    }
    Ok(numbers)
}

#[test]
fn blocks_follow_each_other() {
    assert_eq!(numbers(sequence(big()), &[2, 3]).unwrap(), [1, 2, 3, 4, 5]);
    let down = SequenceOptions { start: -1, increment: -2, min_value: -6, max_value: -1, ..big() };
    assert_eq!(numbers(sequence(down), &[1, 9]).unwrap(), [-1, -3, -5]);
    let error = numbers(sequence(down), &[1, 9, 1]).unwrap_err();
    let expected = "nextval: reached minimum value of sequence \"s\" (-6)";
    assert!(matches!(error, Error::Query { sqlstate, message, .. }
        if sqlstate == "2200H" && message == expected));
}

#[test]
fn a_sequence_that_cycles_begins_at_its_limit() {
    let options = SequenceOptions { start: 3, max_value: 4, cycle: true, ..big() };
    assert_eq!(numbers(sequence(options), &[9, 9, 2]).unwrap(), [3, 4, 1, 2, 3, 4, 1, 2]);
}

/// The numbers of a supply of at most `count` numbers.
fn supplied(sequence: &Sequence, count: u64) -> Vec<i64> {
    let supply = sequence.supply(&sequence.counter, count).unwrap();
    (0..supply.count()).map(|position| supply.at(position)).collect()
}

#[test]
fn whole_cycles_follow_a_block_that_ends_one() {
    let options = SequenceOptions { max_value: 3, cycle: true, ..big() };
    assert_eq!(supplied(&sequence(options), 8), [1, 2, 3, 1, 2, 3]);
    assert_eq!(supplied(&sequence(options), 5), [1, 2, 3]);
    assert_eq!(supplied(&sequence(options), 2), [1, 2]);
    let down = SequenceOptions { start: 2, increment: -1, ..options };
    assert_eq!(supplied(&sequence(down), 5), [2, 1, 3, 2, 1]);
    // A block that ends elsewhere than a whole cycle does would leave another counter.
    let odd = SequenceOptions { start: 2, increment: 2, max_value: 5, ..options };
    assert_eq!(supplied(&sequence(odd), 32), [2, 4]);
    assert_eq!(supplied(&sequence(SequenceOptions { cycle: false, ..options }), 32), [1, 2, 3]);
    // One command is enough for about as many numbers as are wanted.
    let count = sequence(options).supply(&sequence(options).counter, u64::MAX).unwrap().count();
    assert!((BLOCK_MAX - 3..=BLOCK_MAX).contains(&count));
}

#[test]
fn the_limits_of_the_type_do_not_overflow() {
    let options = SequenceOptions { start: i64::MAX - 1, min_value: i64::MIN, ..big() };
    assert_eq!(numbers(sequence(options), &[9]).unwrap(), [i64::MAX - 1, i64::MAX]);
    assert!(numbers(sequence(options), &[9, 1]).is_err());
    let wide = SequenceOptions { start: i64::MIN, increment: i64::MAX, ..options };
    assert_eq!(numbers(sequence(wide), &[9]).unwrap(), [i64::MIN, -1, i64::MAX - 1]);
    let cycle = SequenceOptions { increment: i64::MIN, start: i64::MAX, cycle: true, ..options };
    assert_eq!(numbers(sequence(cycle), &[1, 1]).unwrap(), [i64::MAX, -1]);
    assert_eq!(supplied(&sequence(cycle), 5), [i64::MAX, -1, i64::MAX, -1]);
    let whole = SequenceOptions { increment: 1, start: i64::MAX, cycle: true, ..options };
    assert_eq!(supplied(&sequence(whole), 5), [i64::MAX]);
}

#[test]
fn only_the_known_counter_gives_a_block() {
    let first = sequence(big());
    let second = first.allotted(&first.counter, 5).unwrap().unwrap();
    assert_eq!(second.allotted(&first.counter, 5).unwrap(), None);
    assert_eq!(second.counter.generation, first.counter.generation);
    // The same numbers in another generation are another counter.
    let set = second.set(1, false).unwrap();
    assert_eq!(set.allotted(&first.counter, 5).unwrap(), None);
    assert_eq!(numbers(set, &[2]).unwrap(), [1, 2]);
    let set = second.set(10, true).unwrap();
    assert_eq!(numbers(set, &[2]).unwrap(), [11, 12]);
    assert!(second.set(0, true).is_err());
}

#[test]
fn options_are_checked_in_the_words_of_postgresql() {
    for (options, message) in [
        (SequenceOptions { increment: 0, ..big() }, "INCREMENT must not be zero"),
        (
            SequenceOptions { min_value: 5, max_value: 5, start: 5, ..big() },
            "MINVALUE (5) must be less than MAXVALUE (5)",
        ),
        (SequenceOptions { start: 0, ..big() }, "START value (0) cannot be less than MINVALUE (1)"),
        (
            SequenceOptions { start: 9, max_value: 8, ..big() },
            "START value (9) cannot be greater than MAXVALUE (8)",
        ),
        (
            SequenceOptions { max_value: 40_000, ..SequenceOptions::new(SequenceType::Small) },
            "MAXVALUE (40000) is out of range for sequence data type smallint",
        ),
        (SequenceOptions { cache: 0, ..big() }, "CACHE (0) must be between 1 and 1048576"),
    ] {
        let error = options.validate().unwrap_err();
        assert_eq!(error.to_string(), message);
    }
    let called = sequence(big()).set(50, true).unwrap();
    let narrow = SequenceOptions { max_value: 10, ..big() };
    let error = called.altered(narrow, None).unwrap_err();
    assert_eq!(error.to_string(), "RESTART value (50) cannot be greater than MAXVALUE (10)");
    let restarted = called.altered(narrow, Some(3)).unwrap();
    assert_eq!(numbers(restarted, &[1]).unwrap(), [3]);
}

proptest! {
    #[test]
    fn a_supply_has_the_numbers_of_consecutive_blocks(
        start in -5_i64..5,
        increment in prop_oneof![-7_i64..0, 1_i64..7],
        before in 1_u64..20,
        count in 1_u64..100,
    ) {
        let options =
            SequenceOptions { start, increment, min_value: -5, max_value: 5, cycle: true, ..big() };
        let first = sequence(options);
        let taken = first.allotted(&first.counter, before).unwrap().unwrap();
        let supply = supplied(&taken, count);
        let mut after = taken.clone();
        let mut expected = Vec::new();
        while expected.len() < supply.len() {
            let block = after.block(&after.counter, count).unwrap();
            expected.extend((0..block.count).map(|position| block.at(position)));
            after = after.allotted(&after.counter, count).unwrap().unwrap();
        }
        prop_assert_eq!(supply, expected);
        prop_assert_eq!(after, taken.allotted(&taken.counter, count).unwrap().unwrap());
    }

    #[test]
    fn no_number_comes_twice(
        start in -50_i64..50,
        increment in prop_oneof![-7_i64..0, 1_i64..7],
        counts in proptest::collection::vec(1_u64..40, 1..10),
    ) {
        let options =
            SequenceOptions { start, increment, min_value: -1_000, max_value: 1_000, ..big() };
        let mut taken = sequence(options);
        let mut seen = BTreeSet::new();
        for count in counts {
            let counter = taken.counter;
            let Ok(block) = taken.block(&counter, count) else { break };
            taken = taken.allotted(&counter, count).unwrap().unwrap();
            for number in (0..block.count).map(|position| block.at(position)) {
                prop_assert!((-1_000..=1_000).contains(&number));
                prop_assert!(seen.insert(number));
            }
        }
    }
}
