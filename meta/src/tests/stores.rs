//! The store on disk against the one in memory.

use bytes::Bytes;
use proptest::prelude::*;

use crate::error::MetaError;
use crate::memory_store::MemoryStore;
use crate::sled_store::SledStore;
use crate::store::{Applied, Change, StateStore};

#[derive(Clone, Debug)]
enum Step {
    Commit(Vec<Change>, Option<u64>),
    Sync,
    Reopen,
}

fn change() -> impl Strategy<Value = Change> {
    // Lengths around the borders of chunks, and keys that are prefixes of one another.
    let length = prop_oneof![0_usize..40, 4090_usize..4100, 8188_usize..8196, Just(20_000_usize)];
    let value = prop_oneof![
        Just(None),
        (length, any::<u8>()).prop_map(|(length, byte)| Some(vec![byte; length])),
    ];
    let key = proptest::sample::select(vec![&b"c"[..], b"d1", b"d11", b"t\0\0", b"t\0\x01", b"p"]);
    (key, value).prop_map(|(key, value)| Change { key: key.to_vec(), value })
}

fn step() -> impl Strategy<Value = Step> {
    let commit = (proptest::collection::vec(change(), 0..5), any::<Option<u64>>());
    prop_oneof![
        6 => commit.prop_map(|(changes, applied)| Step::Commit(once_each(changes), applied)),
        1 => Just(Step::Sync),
        2 => Just(Step::Reopen),
    ]
}

fn once_each(mut changes: Vec<Change>) -> Vec<Change> {
    changes.sort_by(|a, b| a.key.cmp(&b.key));
    changes.dedup_by(|a, b| a.key == b.key);
    changes
}

/// Opens the store. sled releases its lock only when its last thread has ended, a moment after the store was
/// closed.
pub(super) fn open(dir: &std::path::Path) -> SledStore {
    for _ in 0..6000 {
        match SledStore::open(dir) {
            Ok(store) => return store,
            Err(MetaError::Io { .. }) => {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the store stays locked");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn the_store_on_disk_holds_what_the_one_in_memory_holds(
        steps in proptest::collection::vec(step(), 1..30)
    ) {
        let dir = tempfile::tempdir().unwrap();
        let memory = MemoryStore::default();
        let mut disk = open(dir.path());
        for step in steps {
            match step {
                Step::Commit(changes, index) => {
                    let applied = index.map(|index| {
                        let mark = Bytes::copy_from_slice(&index.to_le_bytes());
                        Applied { index, mark }
                    });
                    memory.commit(&changes, applied.as_ref()).unwrap();
                    disk.commit(&changes, applied.as_ref()).unwrap();
                }
                Step::Sync => disk.sync().unwrap(),
                Step::Reopen => {
                    drop(disk);
                    disk = open(dir.path());
                }
            }
            prop_assert_eq!(disk.load().unwrap(), memory.load().unwrap());
        }
    }
}

#[test]
fn damage_to_any_part_of_a_record_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let record = Change { key: b"t1".to_vec(), value: Some(vec![7; 10_000]) };
    store.commit(&[record], None).unwrap();
    drop(store);
    let chunks = {
        let db = raw(dir.path());
        db.scan_prefix(b"t1").map(Result::unwrap).collect::<Vec<_>>()
    };
    assert_eq!(chunks.len(), 3);
    for (number, (key, value)) in chunks.iter().enumerate() {
        for damaged in [flipped(value), value[..value.len() - 1].to_vec(), Vec::new()] {
            raw(dir.path()).insert(key, damaged).unwrap();
            let error = open(dir.path()).load().unwrap_err();
            assert!(matches!(error, MetaError::Corrupted(_)), "chunk {number}: {error:?}");
        }
        raw(dir.path()).remove(key).unwrap();
        assert!(open(dir.path()).load().is_err(), "without chunk {number}");
        raw(dir.path()).insert(key, value).unwrap();
        assert!(open(dir.path()).load().is_ok());
    }
}

fn flipped(value: &[u8]) -> Vec<u8> {
    let mut value = value.to_vec();
    *value.last_mut().unwrap() ^= 0x80;
    value
}

pub(super) fn raw(dir: &std::path::Path) -> sled::Db {
    for _ in 0..6000 {
        if let Ok(db) = sled::open(dir) {
            return db;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("the store stays locked");
}
