//! Writers, readers, flush, compaction and truncation at the same time.

use std::sync::atomic::{AtomicBool, AtomicU64};

use futures::future::try_join_all;

use super::*;

const NAMES: [&str; 3] = ["host", "ts", "a"];

/// Entry `n` writes `a = n` to every one of these keys.
const KEYS: i64 = 20;

fn entry(number: i64) -> Vec<Row> {
    (0..KEYS).map(|key| vec![text("h"), ts(key * 1_200_000), int(number)]).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_reader_always_sees_whole_entries_and_never_goes_back() {
    let mut fixture = Fixture::series(last_row()).await;
    fixture.options.compaction_runs = 2;
    fixture.options.compaction_runs_busy = 3;
    fixture.reopen().await;
    fixture.put(&NAMES, &entry(1));
    let partition = &fixture.partition;
    let written = AtomicU64::new(1);
    let done = AtomicBool::new(false);
    let write = async {
        for number in 2..=400 {
            let rows = batch(&partition.config(), &NAMES, &entry(number));
            let index = u64::try_from(number).unwrap();
            partition.apply(index, mark(index), &[(WriteKind::Put, rows)]).unwrap();
            written.store(index, Ordering::Release);
            tokio::task::yield_now().await;
        }
        done.store(true, Ordering::Release);
        Ok::<_, EngineError>(())
    };
    let maintain = async {
        while !done.load(Ordering::Acquire) {
            partition.seal(Bytes::new);
            partition.flush().await?;
            partition.compact(partition.applied().is_multiple_of(3)).await?;
        }
        Ok(())
    };
    let read = async {
        let mut last = 0;
        while !done.load(Ordering::Acquire) {
            let before = i64::try_from(written.load(Ordering::Acquire)).unwrap();
            let rows = fixture.read(&["a"]).await;
            assert_eq!(rows.len(), usize::try_from(KEYS).unwrap());
            let Value::Int(number) = rows[0][0] else { panic!("{rows:?}") };
            assert!(rows.iter().all(|row| row[0] == int(number)), "one entry: {rows:?}");
            assert!(number >= before && number >= last, "{number}, {before}, {last}");
            last = number;
            tokio::task::yield_now().await;
        }
        Ok(())
    };
    let tasks: Vec<futures::future::BoxFuture<'_, _>> =
        vec![Box::pin(write), Box::pin(maintain), Box::pin(read)];
    try_join_all(tasks).await.unwrap();
    partition.verify().await.unwrap();
}

/// A truncation may come at any moment of a flush or a compaction; what it removed stays removed,
/// now and after a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_truncation_during_a_flush_or_a_compaction_removes_everything_before_it() {
    for pause in 0..30 {
        let mut fixture = Fixture::series(last_row()).await;
        for number in 1..4 {
            fixture.put(&NAMES, &entry(number));
            fixture.flush().await.unwrap();
        }
        fixture.put(&NAMES, &entry(4));
        fixture.partition.seal(Bytes::new);
        let partition = Arc::clone(&fixture.partition);
        let maintain = tokio::spawn(async move {
            partition.flush().await?;
            partition.compact(true).await
        });
        tokio::time::sleep(std::time::Duration::from_micros(300 * pause)).await;
        fixture.index += 1;
        let index = fixture.index;
        fixture.partition.apply_truncate(index, mark(index)).unwrap();
        assert!(fixture.read(&NAMES).await.is_empty());
        fixture.put(&["host", "ts", "a"], &[vec![text("new"), ts(0), int(9)]]);
        maintain.await.unwrap().unwrap();
        let left = [vec![text("new"), ts(0), int(9)]];
        assert_eq!(fixture.read(&NAMES).await, left, "after {pause} pauses");
        fixture.flush().await.unwrap();
        assert_eq!(fixture.read(&NAMES).await, left);
        fixture.reopen().await;
        assert_eq!(fixture.read(&NAMES).await, left);
        assert_eq!(fixture.partition.stats().files, 1);
    }
}
