//! Requests that are repeated after the partition has forgotten that it accepted them.

use partita_proto::id::GroupId;
use partita_proto::wire::{Command, WriteCommand, WritePart, ipc};

use super::*;
use crate::REQUESTS_MAX;

/// Requests of another client, one row each.
const OTHERS: u64 = 9;
/// So many in one entry.
const JOINED: u64 = 4096;

/// Lets the partition take as many requests of another client as it remembers.
async fn busy(running: &Running) {
    let most = REQUESTS_MAX as u64;
    for first in (0..most).step_by(usize::try_from(JOINED).unwrap()) {
        let sequences = first..(first + JOINED).min(most);
        let part = |sequence| WritePart {
            id: RequestId { client: OTHERS, sequence },
            earlier: Vec::new(),
            kind: WriteKind::Put,
            rows: 1,
            ship: None,
            condition: None,
        };
        let rows: Vec<(i64, i64)> = sequences.clone().map(|_| (100, 0)).collect();
        let command = Command::Write(WriteCommand {
            epoch: Epoch(1),
            parts: sequences.map(part).collect(),
            rows: ipc::encode(&[batch(&rows)]).unwrap(),
        });
        let group = running.host.group(GroupId(PARTITION.0)).unwrap();
        group.propose(command.encode()).await.unwrap();
    }
}

async fn below_100(running: &Running) -> Vec<(i64, i64)> {
    running.rows().await.into_iter().filter(|(id, _)| *id < 100).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_comes_again_after_it_was_forgotten_is_refused_and_not_done_twice() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = Running::start(dir.path()).await;
    running.node.open_partition(spec(true)).await.unwrap();
    running.write(5, &[(1, 10)]).await.unwrap();
    busy(&running).await;
    let remembered = running.write(6, &[(2, 20)]).await.unwrap();
    for flushed in [false, true] {
        let [forgotten, part] = [5, 8].map(|sequence| RequestId { client: 1, sequence });
        for identities in [(forgotten, Vec::new()), (part, vec![forgotten])] {
            let to = (PARTITION, Epoch(1));
            let late = write_part(&running.node, to, identities, &[(1, 10)]).await;
            assert!(matches!(late, Err(Error::Timeout(_))), "{late:?}");
        }
        assert_eq!(running.write(6, &[(2, 20)]).await, Ok(remembered));
        assert_eq!(below_100(&running).await, [(1, 10), (2, 20)]);
        if flushed {
            running.node.flush_partition(PARTITION).await.unwrap();
        }
        running.stop().await;
        running = Running::start(dir.path()).await;
    }
    running.write(9, &[(4, 40)]).await.unwrap();
    assert_eq!(below_100(&running).await, [(1, 10), (2, 20), (4, 40)]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_to_truncate_that_comes_again_after_it_was_forgotten_removes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path()).await;
    running.node.open_partition(spec(true)).await.unwrap();
    running.write(1, &[(1, 10)]).await.unwrap();
    let [order, next] = [3, 4].map(|sequence| RequestId { client: 0, sequence });
    running.node.truncate_partition(PARTITION, order).await.unwrap();
    running.write(2, &[(2, 20)]).await.unwrap();
    busy(&running).await;
    running.node.truncate_partition(PARTITION, order).await.unwrap();
    assert_eq!(below_100(&running).await, [(2, 20)]);
    running.node.truncate_partition(PARTITION, next).await.unwrap();
    assert_eq!(running.rows().await, []);
    running.stop().await;
}
