//! Torn tails are the end of the log; damage anywhere else is mended or named, with the groups that it concerns.

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
        // A power cut that kept the data of a write in part has kept no mark of it.
        torn.lose("SYNCED");
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

/// Description of the damage that opening the log reports; `None` if there is none.
fn named(disk: &SimulatedDisk) -> Option<String> {
    let log = match open(disk) {
        Ok(log) => log,
        Err(error) => {
            let refused = matches!(error, RaftError::Corrupted(_) | RaftError::Incompatible(_));
            assert!(refused, "{error}");
            return Some(error.to_string());
        }
    };
    let damaged = log.damaged();
    log.close();
    let texts: Vec<_> = damaged.iter().map(|(group, text)| format!("{group}: {text}")).collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

/// Corrupts two bytes of a file: more than one bit, so that they cannot be repaired.
fn spoil(disk: &SimulatedDisk, name: &str, offset: usize) {
    let mut content = disk.content(name);
    content[offset] ^= 0x5a;
    content[offset + 1] ^= 0xc3;
    disk.overwrite(name, content);
}

#[tokio::test]
async fn damage_in_an_earlier_segment_names_file_place_and_entry() {
    let disk = written().await;
    let names = disk.segments();
    let mut index = 0;
    for name in &names[..names.len() - 1] {
        let ends = record_ends(&disk, name);
        // A checkpoint, entries, a seal; before the first entry the group is created.
        let others = if name == &names[0] { 2 } else { 1 };
        for (record, end) in ends.iter().enumerate().take(ends.len() - 1).skip(1 + others) {
            let damaged = disk.copy();
            // Not in the padding.
            spoil(&damaged, name, end - 12);
            let message = named(&damaged).unwrap();
            assert!(message.contains(name.as_str()), "{message}");
            assert!(message.contains(&format!("offset {}", ends[record - 1])), "{message}");
            assert!(message.contains(&format!("entries {index} to {index} ")), "{message}");
            index += 1;
        }
    }
    assert!(index > 60, "{index}");
}

#[tokio::test]
async fn damage_that_was_once_synced_is_not_taken_for_a_torn_tail() {
    let disk = written().await;
    let name = disk.segments().pop().unwrap();
    let ends = record_ends(&disk, &name);
    assert!(ends.len() > 4);
    let spoil_mark = |disk: &SimulatedDisk| {
        spoil(disk, "SYNCED", 16);
        spoil(disk, "SYNCED", 512 + 16);
    };
    let lose_mark = |disk: &SimulatedDisk| disk.lose("SYNCED");
    let keep_mark = |_: &SimulatedDisk| {};
    // Without a whole mark, as an older build leaves it, a later record tells; of the last one nothing does, when its
    // header is bad.
    for (mark, unknown) in
        [(&keep_mark as &dyn Fn(&SimulatedDisk), 0), (&spoil_mark, 1), (&lose_mark, 1)]
    {
        let whole = disk.copy();
        mark(&whole);
        assert_eq!(named(&whole), None);
        for end in &ends[1..ends.len() - 1 - unknown] {
            let damaged = disk.copy();
            mark(&damaged);
            spoil(&damaged, &name, end + record::HEADER_BYTES - 8);
            let message = named(&damaged).unwrap();
            assert!(message.contains(&format!("{name} is damaged at offset {end}")), "{message}");
            // It is named again as long as nobody has accepted it.
            assert_eq!(named(&damaged), Some(message));
        }
    }
}

#[tokio::test]
async fn a_missing_segment_is_noticed() {
    let disk = written().await;
    let names = disk.segments();
    for name in &names {
        let damaged = disk.copy();
        damaged.lose(name);
        assert!(named(&damaged).is_some(), "without {name}");
    }
    for name in &names {
        disk.lose(name);
    }
    let message = named(&disk).unwrap();
    assert!(message.contains(names.last().unwrap()), "{message}");
}

const B: GroupId = GroupId(2);

/// A log of several segments with two groups, as a process that was killed leaves it, and what of it was acknowledged.
async fn killed() -> (SimulatedDisk, [Vec<LogEntry>; 2], crate::log::Vote) {
    let disk = SimulatedDisk::default();
    let log = open(&disk).unwrap();
    log.create(A, ReplicaId(1)).await.unwrap();
    log.create(B, ReplicaId(1)).await.unwrap();
    let mut acknowledged = [Vec::new(), Vec::new()];
    let mut vote = crate::log::Vote { term: 1, leader: 1, committed: true };
    for index in 0..40 {
        let fill = u8::try_from(1 + index % 200).unwrap();
        for (group, entries) in [A, B].into_iter().zip(&mut acknowledged) {
            let next = entry(1, index, vec![fill; 60 + 10 * usize::from(fill % 9)]);
            append(&log, group, vec![next.clone()]).await.unwrap();
            entries.push(next);
        }
        if index % 7 == 0 {
            vote.term += 1;
            log.save_vote(B, vote).await.unwrap();
        }
        if index == 20 {
            log.purge(B, entry(1, 9, "").position).await.unwrap();
            acknowledged[1].drain(..10);
        }
    }
    let crashed = disk.copy();
    log.close();
    assert!(crashed.segments().len() >= 3);
    (crashed, acknowledged, vote)
}

/// Checks that every acknowledged record is present, or reported as missing. True if any was reported.
async fn all_or_named(
    disk: &SimulatedDisk,
    acknowledged: &[Vec<LogEntry>; 2],
    vote: crate::log::Vote,
    place: &str,
) -> bool {
    let log = match open(disk) {
        Ok(log) => log,
        Err(RaftError::Corrupted(_) | RaftError::Incompatible(_)) => return true,
        Err(error) => panic!("{place}: {error}"),
    };
    let damaged: Vec<GroupId> = log.damaged().into_iter().map(|(group, _)| group).collect();
    for (group, entries) in [A, B].into_iter().zip(acknowledged) {
        if !damaged.contains(&group) {
            assert_eq!(&all(&log, group).await, entries, "{place}: group {group}");
            let expected = (group == B).then_some(vote);
            assert_eq!(log.view(group).unwrap().vote, expected, "{place}: group {group}");
        }
    }
    log.close();
    !damaged.is_empty()
}

#[tokio::test]
async fn after_any_flipped_bit_all_that_was_acknowledged_is_there_or_named() {
    let (disk, acknowledged, vote) = killed().await;
    let (mut flips, mut named) = (0, 0);
    for name in disk.names_of_all() {
        let whole = disk.content(&name);
        // A stride without a common factor with anything here.
        for bit in (0..whole.len() * 8).step_by(31) {
            let damaged = disk.copy();
            let mut content = whole.clone();
            content[bit / 8] ^= 1 << (bit % 8);
            damaged.overwrite(&name, content);
            let place = format!("bit {bit} of {name}");
            named += usize::from(all_or_named(&damaged, &acknowledged, vote, &place).await);
            flips += 1;
        }
    }
    assert!(flips >= 2_000, "{flips}");
    // A single bit is mended nearly everywhere.
    assert!(named * 50 < flips, "{named} of {flips}");
}

#[tokio::test]
async fn after_any_spoilt_bytes_all_that_was_acknowledged_is_there_or_named() {
    let (disk, acknowledged, vote) = killed().await;
    let mut named = 0;
    for name in disk.names_of_all() {
        for offset in (0..disk.content(&name).len() - 1).step_by(7) {
            let damaged = disk.copy();
            spoil(&damaged, &name, offset);
            let place = format!("offset {offset} of {name}");
            named += usize::from(all_or_named(&damaged, &acknowledged, vote, &place).await);
        }
    }
    assert!(named > 300, "{named}");
}

#[tokio::test]
async fn a_bad_payload_concerns_its_group_only_and_can_be_accepted() {
    let (disk, acknowledged, _) = killed().await;
    let name = disk.segments().pop().unwrap();
    let ends = record_ends(&disk, &name);
    // The last record is an entry of the second group.
    spoil(&disk, &name, ends[ends.len() - 2] + record::HEADER_BYTES + 8);
    for _ in 0..2 {
        let log = open(&disk).unwrap();
        let damaged = log.damaged();
        assert_eq!(damaged.len(), 1, "{damaged:?}");
        assert!(damaged[0].0 == B && damaged[0].1.contains("entries 39 to 39 "), "{damaged:?}");
        assert_eq!(all(&log, A).await, acknowledged[0]);
        let next = all(&log, A).await.len() as u64;
        append(&log, A, vec![entry(2, next, "goes on")]).await.unwrap();
        log.truncate(A, acknowledged[0].last().map(|entry| entry.position)).await.unwrap();
        log.close();
    }
    let accepted = std::collections::BTreeSet::from([B]);
    let options = LogOptions { segment_bytes: 4096, ..options() };
    let log = Log::open_watched(
        Arc::new(disk.clone()),
        options,
        crate::fault::OnFailure::default(),
        &accepted,
    )
    .unwrap();
    log.close();
    // Once is enough.
    let log = open(&disk).unwrap();
    assert_eq!(log.damaged(), []);
    let found = all(&log, B).await;
    assert_eq!(found.len(), acknowledged[1].len());
    let (blank, kept) = found.split_last().unwrap();
    assert_eq!(kept, &acknowledged[1][..kept.len()]);
    assert_eq!((blank.position.index, blank.kind), (39, EntryKind::Blank));
    append(&log, B, vec![entry(2, 40, "more")]).await.unwrap();
    log.close();
    assert_eq!(named(&disk), None);
}

#[tokio::test]
async fn a_bad_header_concerns_every_group_until_it_is_accepted() {
    let (disk, _, _) = killed().await;
    let name = disk.segments().pop().unwrap();
    let ends = record_ends(&disk, &name);
    spoil(&disk, &name, ends[ends.len() - 2] + 16);
    let log = open(&disk).unwrap();
    let damaged = log.damaged();
    assert_eq!(damaged.iter().map(|(group, _)| *group).collect::<Vec<_>>(), [A, B]);
    // One that is given up and made anew is as good as any other.
    log.destroy(A).await.unwrap();
    log.create(A, ReplicaId(5)).await.unwrap();
    append(&log, A, entries(1, 0, 30)).await.unwrap();
    log.close();
    let log = open(&disk).unwrap();
    assert_eq!(log.damaged().iter().map(|(group, _)| *group).collect::<Vec<_>>(), [B]);
    assert_eq!(all(&log, A).await, entries(1, 0, 30));
    // Also when the bad record has long been left behind.
    for index in 30..120 {
        append(&log, A, vec![entry(1, index, vec![7; 150])]).await.unwrap();
    }
    log.close();
    let log = open(&disk).unwrap();
    assert_eq!(log.damaged().iter().map(|(group, _)| *group).collect::<Vec<_>>(), [B]);
    log.close();
}

#[tokio::test]
async fn entries_behind_a_bad_header_show_whose_it_was() {
    let (disk, _, _) = killed().await;
    let name = disk.segments().pop().unwrap();
    let number = name.strip_suffix(".log").unwrap().parse().unwrap();
    let data = Bytes::from(disk.content(&name));
    let mut starts = record_ends(&disk, &name);
    starts.pop();
    let group_at = |start: usize| match record::decode(&data, start, number).unwrap().record {
        record::Record::Append { group, .. } => Some(group),
        _ => None,
    };
    let bad = *starts.iter().find(|start| group_at(**start) == Some(A)).unwrap();
    let behind: Vec<_> = starts.iter().filter(|start| **start > bad).collect();
    assert!(
        [A, B].iter().all(|group| behind.iter().any(|start| group_at(**start) == Some(*group)))
    );
    spoil(&disk, &name, bad + 16);
    for _ in 0..2 {
        let log = open(&disk).unwrap();
        let damaged: Vec<_> = log.damaged().into_iter().map(|(group, _)| group).collect();
        assert_eq!(damaged, [A, B]);
        assert!(log.is_void_damage(B, true) && !log.is_void_damage(B, false));
        assert!(!log.is_void_damage(A, true), "an entry of it is missing");
        log.forget_damage(B);
        assert_eq!(log.damaged().len(), 1);
        let last = log.view(B).unwrap().last.unwrap();
        append(&log, B, vec![entry(last.term, last.index + 1, "goes on")]).await.unwrap();
        log.close();
    }
    // Also once a later segment does not know of it any more.
    let log = open(&disk).unwrap();
    log.forget_damage(B);
    for _ in 0..60 {
        let last = log.view(B).unwrap().last.unwrap();
        append(&log, B, vec![entry(last.term, last.index + 1, vec![7; 150])]).await.unwrap();
    }
    log.close();
    let log = open(&disk).unwrap();
    let damaged: Vec<_> = log.damaged().into_iter().map(|(group, _)| group).collect();
    assert_eq!(damaged, [A]);
    log.close();
}

#[tokio::test]
async fn a_bad_checkpoint_loses_nothing_while_the_segment_before_it_is_there() {
    let (disk, acknowledged, vote) = killed().await;
    for name in disk.segments() {
        let damaged = disk.copy();
        spoil(&damaged, &name, record::HEADER_BYTES + 1);
        let first = name == disk.segments()[0];
        let named = all_or_named(&damaged, &acknowledged, vote, &name).await;
        assert!(!named || first, "{name}");
    }
}

#[tokio::test]
async fn a_log_of_the_former_build_opens() {
    let (disk, acknowledged, vote) = killed().await;
    for name in disk.segments() {
        let ends = record_ends(&disk, &name);
        let mut content = disk.content(&name);
        for pair in ends.windows(2) {
            let record = &mut content[pair[0]..pair[1]];
            // No checksum of the header.
            record[52..56].fill(0);
            let length = u32::from_le_bytes(record[4..8].try_into().unwrap()) as usize;
            let crc = crc32c::crc32c(&record[4..record::HEADER_BYTES + length]);
            record[..4].copy_from_slice(&crc.to_le_bytes());
        }
        disk.overwrite(&name, content);
    }
    disk.lose("SYNCED");
    assert!(!all_or_named(&disk, &acknowledged, vote, "former build").await);
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
