//! Sorted runs of a memtable: merged in memory, they hold what all their rows hold when sorted at once.

use std::sync::Arc;

use partita_proto::placement::Placement;
use partita_proto::schema::TableOptions;
use partita_proto::service::WriteKind;
use partita_proto::value::Value;
use proptest::prelude::*;

use super::*;
use crate::rows::fold::{DELETE, PUT, REPLACE};
use crate::rows::layout::{Layout, OP_COLUMN, SEQ_COLUMN};
use crate::rows::run::Run;

/// Content of one write: rows as small numbers that become keys and values, and the columns that it has.
#[derive(Clone, Debug)]
enum Write {
    Put(Vec<(u8, u8, Option<u8>)>, Given),
    Delete(Vec<(u8, u8)>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Given {
    Both,
    A,
    B,
}

/// One version of a row: key, log index, operation, and its fields (`None`: not given, or NULL).
#[derive(Clone, Debug, PartialEq)]
struct Version {
    key: (u8, u8),
    seq: u64,
    op: u8,
    a: Option<u8>,
    b: Option<u8>,
}

fn write() -> impl Strategy<Value = Write> {
    let given = prop_oneof![Just(Given::Both), Just(Given::A), Just(Given::B)];
    // Few hosts and times, so that keys meet; long stretches of one run too, so that slices are taken.
    let row = (0_u8..4, 0_u8..40, prop::option::of(any::<u8>()));
    prop_oneof![
        4 => (prop::collection::vec(row, 1..80), given).prop_map(|(rows, given)| Write::Put(rows, given)),
        1 => prop::collection::vec((0_u8..4, 0_u8..40), 1..20).prop_map(Write::Delete),
    ]
}

/// A text that no view holds by itself.
fn long(value: u8) -> Value {
    text(&format!("a text of more than twelve bytes {value}"))
}

fn run_of(layout: &Layout, config: &PartitionConfig, seq: u64, write: &Write) -> Arc<Run> {
    let key = |host: u8, at: u8| [text(&format!("host-{host}")), ts(i64::from(at))];
    let (kind, rows) = match write {
        Write::Put(rows, given) => {
            let names: &[&str] = match given {
                Given::Both => &["host", "ts", "a", "b"],
                Given::A => &["host", "ts", "a"],
                Given::B => &["host", "ts", "b"],
            };
            let row = |(host, at, value): &(u8, u8, Option<u8>)| {
                let mut row = Row::from(key(*host, *at));
                if *given != Given::B {
                    row.push(value.map_or(Value::Null, |value| int(i64::from(value))));
                }
                if *given != Given::A {
                    row.push(value.map_or(Value::Null, long));
                }
                row
            };
            (WriteKind::Put, batch(config, names, &rows.iter().map(row).collect::<Vec<_>>()))
        }
        Write::Delete(keys) => {
            let rows: Vec<Row> = keys.iter().map(|(host, at)| Row::from(key(*host, *at))).collect();
            (WriteKind::Delete, batch(config, &["host", "ts"], &rows))
        }
    };
    let (run, _) = Run::of_write(layout, seq, kind, &rows).unwrap();
    Arc::new(run)
}

/// The versions that a write brings.
fn versions(seq: u64, write: &Write) -> Vec<Version> {
    match write {
        Write::Put(rows, given) => {
            let version = |(host, at, value): &(u8, u8, Option<u8>)| Version {
                key: (*host, *at),
                seq,
                op: PUT,
                a: value.filter(|_| *given != Given::B),
                b: value.filter(|_| *given != Given::A),
            };
            rows.iter().map(version).collect()
        }
        Write::Delete(keys) => {
            let version = |key: &(u8, u8)| Version { key: *key, seq, op: DELETE, a: None, b: None };
            keys.iter().map(version).collect()
        }
    }
}

/// A version over an older one of the same key.
fn over(options: &TableOptions, older: &Version, newer: Version) -> Version {
    if options.merge_mode != MergeMode::LastNonNull || newer.op != PUT {
        return newer;
    }
    match older.op {
        DELETE => Version { op: REPLACE, ..newer },
        op => Version { op, a: newer.a.or(older.a), b: newer.b.or(older.b), ..newer },
    }
}

/// The versions that a table keeps, given all of them, oldest first: sorted by key, and one row of each key if it
/// folds.
fn kept(options: &TableOptions, mut all: Vec<Version>) -> Vec<Version> {
    all.sort_by_key(|version| version.key);
    if options.append_mode {
        return all;
    }
    let mut kept: Vec<Version> = Vec::new();
    for version in all {
        match kept.pop_if(|last| last.key == version.key) {
            Some(last) => kept.push(over(options, &last, version)),
            None => kept.push(version),
        }
    }
    kept
}

/// The rows of a run, as versions.
fn rows_in(run: &Run, config: &PartitionConfig) -> Vec<Version> {
    let rows = &run.sorted.batch;
    let value = |name: &str, row: usize| {
        let array = rows.column_by_name(name)?;
        Some(Value::from_array(array.as_ref(), row).unwrap())
    };
    let stored = |name: &str| config.schema.column(name).unwrap().storage_name.clone();
    let (host, at, a, b) = (stored("host"), stored("ts"), stored("a"), stored("b"));
    let number =
        |text: &str, before: &str| text.strip_prefix(before).unwrap().parse::<u8>().unwrap();
    (0..rows.num_rows())
        .map(|row| {
            let text_of = |name: &str, before: &str| match value(name, row) {
                Some(Value::String(text)) => Some(number(&text, before)),
                _ => None,
            };
            let Some(Value::Timestamp(at)) = value(&at, row) else { panic!("no time") };
            let a = match value(&a, row) {
                Some(Value::Int(a)) => Some(u8::try_from(a).unwrap()),
                _ => None,
            };
            let seq = rows.column_by_name(SEQ_COLUMN).unwrap();
            let seq = arrow::array::AsArray::as_primitive::<arrow::datatypes::UInt64Type>(seq);
            let op = rows.column_by_name(OP_COLUMN).map_or(PUT, |ops| {
                arrow::array::AsArray::as_primitive::<arrow::datatypes::UInt8Type>(ops).value(row)
            });
            Version {
                key: (text_of(&host, "host-").unwrap(), u8::try_from(at).unwrap()),
                seq: seq.value(row),
                op,
                a,
                b: text_of(&b, "a text of more than twelve bytes "),
            }
        })
        .collect()
}

proptest! {
    #[test]
    fn merging_runs_gives_what_sorting_all_their_rows_gives(
        writes in prop::collection::vec(write(), 1..7),
        policy in 0_u8..3,
        cut in any::<prop::sample::Index>(),
    ) {
        let options = [append(), last_row(), last_non_null()][usize::from(policy)].clone();
        let config = config(series_schema(options.clone()), Placement::Range);
        let layout = Layout::new(Arc::new(config.clone())).unwrap();
        // A table that keeps all versions takes no deletes.
        let writes: Vec<Write> = writes
            .into_iter()
            .filter(|write| !options.append_mode || matches!(write, Write::Put(..)))
            .collect();
        prop_assume!(!writes.is_empty());
        let numbered = || (1_u64..).zip(&writes);
        let runs: Vec<Arc<Run>> =
            numbered().map(|(seq, write)| run_of(&layout, &config, seq, write)).collect();
        let all = numbered().flat_map(|(seq, write)| versions(seq, write)).collect();
        let expected = kept(&options, all);

        let merged = Run::merged(&layout, &runs).unwrap();
        prop_assert_eq!(&rows_in(&merged, &config), &expected);
        // Its keys are those of its rows.
        let keys = layout.codec.encode(&merged.sorted.batch).unwrap();
        prop_assert!(keys.iter().eq(merged.sorted.keys.iter()));

        // Some of them first, then the rest with what came of those.
        let cut = cut.index(runs.len());
        let mut older = runs[..=cut].to_vec();
        older = vec![Arc::new(Run::merged(&layout, &older).unwrap())];
        older.extend_from_slice(&runs[cut + 1..]);
        let merged = Run::merged(&layout, &older).unwrap();
        prop_assert_eq!(&rows_in(&merged, &config), &expected);
    }
}

#[test]
fn of_rows_of_one_key_one_is_kept_and_all_are_counted() {
    let row = |at: i64, value: i64| Row::from([text("host"), ts(at), int(value)]);
    let rows = [row(7, 1), row(3, 2), row(7, 3), row(7, 4)];
    for (options, stored) in [(TableOptions::default(), 2), (append(), 4)] {
        let config = config(series_schema(options), Placement::Range);
        let layout = Layout::new(Arc::new(config.clone())).unwrap();
        let rows = batch(&config, &["host", "ts", "a"], &rows);
        let (run, keys) = Run::of_write(&layout, 1, WriteKind::Put, &rows).unwrap();
        assert_eq!((run.rows(), keys.len()), (stored, 4));
        assert!(keys.is_sorted());
    }
}

#[test]
fn a_run_of_few_rows_of_a_large_batch_keeps_only_these_in_memory() {
    let config = config(series_schema(append()), Placement::Range);
    let layout = Layout::new(Arc::new(config.clone())).unwrap();
    // In the order of keys, and against it.
    for sign in [1, -1] {
        let value = |at: i64| text(&format!("a text of more than twelve bytes {at}"));
        let row = |at: i64| Row::from([text("host"), ts(sign * at), int(at), value(at)]);
        let rows: Vec<Row> = (0..1000).map(row).collect();
        let large = batch(&config, &["host", "ts", "a", "b"], &rows);
        let (run, keys) = Run::of_write(&layout, 1, WriteKind::Put, &large.slice(500, 64)).unwrap();
        assert_eq!(keys.len(), 64);
        let own = crate::rows::run::own_bytes(&run.sorted.batch) + run.sorted.keys.size_bytes();
        assert!(run.bytes <= 2 * own as u64, "{} for {own}", run.bytes);
        let stored = &config.schema.column("b").unwrap().storage_name;
        let column = run.sorted.batch.column_by_name(stored).unwrap();
        let held = (0..64).map(|row| Value::from_array(column.as_ref(), row).unwrap());
        let mut expected: Vec<Value> = (500..564).map(value).collect();
        if sign < 0 {
            expected.reverse();
        }
        assert_eq!(held.collect::<Vec<_>>(), expected);
    }
}
