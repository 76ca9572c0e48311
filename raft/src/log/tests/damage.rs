//! Torn tails are the end of the log; damage anywhere else is an error that names file and offset.

use super::*;
use crate::log::record;

const A: GroupId = GroupId(1);

/// Small segments: each test opens the log thousands of times.
fn open(disk: &SimulatedDisk) -> Result<Arc<Log>, RaftError> {
    Log::open(Arc::new(disk.clone()), LogOptions { segment_bytes: 4096, ..options() })
}

/// A log of several segments, none of which can be given up.
async fn written() -> SimulatedDisk {
    let disk = SimulatedDisk::default();
    let log = open(&disk).unwrap();
    log.create(A, ReplicaId(10)).await.unwrap();
    for index in 0..85 {
        append(&log, A, vec![entry(1, index, vec![u8::try_from(1 + index % 200).unwrap(); 150])])
            .await
            .unwrap();
    }
    log.close();
    assert!(disk.segments().len() >= 5);
    disk
}

/// Ends of the records of a segment, and their indexes.
fn record_ends(disk: &SimulatedDisk, name: &str) -> Vec<usize> {
    let data = Bytes::from(disk.content(name));
    let number = name.strip_suffix(".log").unwrap().parse().unwrap();
    let mut ends = vec![0];
    while let Some(decoded) = record::decode(&data, *ends.last().unwrap(), number) {
        ends.push(ends.last().unwrap() + decoded.bytes);
    }
    ends
}

#[tokio::test]
async fn every_truncation_of_the_last_segment_leaves_a_prefix() {
    let disk = written().await;
    let name = disk.segments().pop().unwrap();
    let whole = disk.content(&name);
    let ends = record_ends(&disk, &name);
    let end = *ends.last().unwrap();
    let complete = all(&open(&disk.copy()).unwrap(), A).await.len();
    for length in 0..=end {
        let torn = disk.copy();
        let mut content = whole.clone();
        content[length..].fill(0);
        torn.overwrite(&name, content);
        let log = open(&torn).unwrap_or_else(|error| panic!("cut at {length}: {error}"));
        // The first record is the checkpoint, all others are entries. A cut in a record's padding costs nothing.
        let padding = record::record_bytes(150) - record::HEADER_BYTES - 150;
        let lost = ends.iter().skip(2).filter(|record_end| *record_end - padding > length).count();
        let read = all(&log, A).await;
        assert_eq!(read.len(), complete - lost, "cut at {length}");
        // What is written now is what counts, whatever stood there before.
        let next = read.len() as u64;
        append(&log, A, vec![entry(2, next, "after the cut")]).await.unwrap();
        log.close();
        let log = open(&torn).unwrap();
        let again = all(&log, A).await;
        assert_eq!(again.len() as u64, next + 1, "cut at {length}");
        assert_eq!(again.last().unwrap().payload, "after the cut");
        log.close();
    }
}

#[tokio::test]
async fn damage_in_an_earlier_segment_is_an_error_that_names_it() {
    let disk = written().await;
    let names = disk.segments();
    for name in &names[..names.len() - 1] {
        let ends = record_ends(&disk, name);
        for (record, end) in ends.iter().enumerate().skip(1).step_by(7) {
            let damaged = disk.copy();
            let mut content = damaged.content(name);
            // Not in the padding.
            content[end - 8] ^= 1;
            damaged.overwrite(name, content);
            let error = open(&damaged).err().unwrap();
            assert!(matches!(error, RaftError::Corrupted(_)), "{error}");
            let message = error.to_string();
            assert!(message.contains(name.as_str()), "{message}");
            assert!(message.contains(&format!("offset {}", ends[record - 1])), "{message}");
        }
    }
}

#[tokio::test]
async fn damage_that_was_once_synced_is_not_taken_for_a_torn_tail() {
    let disk = written().await;
    let name = disk.segments().pop().unwrap();
    let ends = record_ends(&disk, &name);
    assert!(ends.len() > 4);
    for end in &ends[..ends.len() - 2] {
        let damaged = disk.copy();
        let mut content = damaged.content(&name);
        content[end + record::HEADER_BYTES - 8] ^= 1;
        damaged.overwrite(&name, content);
        let error = open(&damaged).err().unwrap();
        assert!(
            error.to_string().contains(&format!("{name} has a bad record at offset {end}")),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_missing_segment_is_noticed() {
    let disk = written().await;
    let names = disk.segments();
    for name in &names {
        let damaged = disk.copy();
        damaged.lose(name);
        let error = open(&damaged).err().unwrap();
        assert!(matches!(error, RaftError::Corrupted(_)), "without {name}: {error}");
    }
}

#[tokio::test]
async fn an_entry_that_goes_bad_while_the_log_is_open_is_never_served() {
    let disk = written().await;
    let log = open(&disk).unwrap();
    let name = disk.segments().remove(0);
    let ends = record_ends(&disk, &name);
    let mut content = disk.content(&name);
    content[ends[5] - 8] ^= 1;
    disk.overwrite(&name, content);
    let error = log.read(A, 0, 50, u64::MAX).await.unwrap_err();
    assert!(matches!(error, RaftError::Corrupted(_)), "{error}");
    assert!(error.to_string().contains(&name), "{error}");
    log.close();
}

#[tokio::test]
async fn a_directory_of_another_version_is_refused() {
    let disk = written().await;
    disk.overwrite("LOG_FORMAT", b"partita raft log 2\n".to_vec());
    let error = open(&disk).err().unwrap();
    assert!(matches!(error, RaftError::Incompatible(_)), "{error}");
    assert!(error.to_string().contains("partita raft log 2"), "{error}");
    disk.lose("LOG_FORMAT");
    let error = open(&disk).err().unwrap();
    assert!(error.to_string().contains("LOG_FORMAT is missing"), "{error}");
}
