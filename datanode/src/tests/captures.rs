//! Captured changes and the rows of a copy, as a node gives and takes them.

use std::sync::atomic::{AtomicBool, Ordering};

use partita_proto::id::GroupId;
use partita_proto::materialized::{
    Capture, CaptureOrder, Change, Changes, ChangesRequest, Position, Ship,
};
use partita_proto::reshape::Reshape;
use partita_proto::service::WriteReply;
use partita_proto::wire::{Command, WriteCommand, WritePart, ipc};

use super::cluster::{Cluster, others, row, rows_to};
use super::table::Table;
use super::*;

const COPY: TableId = TableId(50);
const CHILD: PartitionId = PartitionId(8);
const FIRST: (PartitionId, Epoch) = (PARTITION, Epoch(1));

type Target = (PartitionId, Epoch);
type Row = (i64, i64);

async fn capture(node: &Datanode, target: Target, capture: Capture) -> Result<u64, Error> {
    node.capture(target.0, target.1, CaptureOrder { copy: COPY, capture }).await
}

async fn changes(node: &Datanode, target: Target, after: u64) -> Result<Changes, Error> {
    let (partition, epoch) = target;
    let bytes_max = 1 << 20;
    node.changes(ChangesRequest { partition, epoch, copy: COPY, after, bytes_max }).await
}

fn request(target: Target, sequence: u64, kind: WriteKind, rows: RecordBatch) -> WriteRequest {
    let (partition, epoch) = target;
    let id = RequestId { client: 1, sequence };
    let earlier = Vec::new();
    WriteRequest { partition, epoch, id, earlier, kind, rows, ship: None, condition: None }
}

async fn put(
    node: &Datanode,
    target: Target,
    sequence: u64,
    rows: &[Row],
) -> Result<WriteReply, Error> {
    node.write(request(target, sequence, WriteKind::Put, batch(rows))).await
}

fn at(index: u64, part: u64) -> Position {
    Position { index, part }
}

/// Rows of partition 3 of a source.
async fn ship(
    node: &Datanode,
    target: Target,
    (from, to): (Position, Position),
    rows: &[Row],
) -> Result<WriteReply, Error> {
    let ship = Some(Ship { source: PartitionId(3), from, to });
    // The identity of such a request does not count.
    let request = WriteRequest { ship, ..request(target, 77, WriteKind::Put, batch(rows)) };
    node.write(request).await
}

fn rows_in(batches: &[RecordBatch]) -> Vec<Row> {
    let row = |batch: &RecordBatch| -> Vec<Row> {
        let ids = batch.column(0).as_primitive::<Int64Type>();
        let values = batch.column(1).as_primitive::<Int64Type>();
        ids.values().iter().copied().zip(values.values().iter().copied()).collect()
    };
    batches.iter().flat_map(row).collect()
}

/// Index, kind and ids of each change.
fn shape(changes: &Changes) -> Vec<(u64, WriteKind, Vec<i64>)> {
    let ids = |change: &Change| {
        change.rows.column_by_name("id").unwrap().as_primitive::<Int64Type>().values().to_vec()
    };
    changes.entries.iter().map(|change| (change.index, change.kind, ids(change))).collect()
}

async fn fill(node: &Datanode, target: Target) -> Result<(u64, Vec<Row>), Error> {
    let (partition, epoch) = target;
    let scan = ScanRequest {
        partition,
        epoch,
        columns: schema(false).storage(),
        domains: Domains::default(),
        limit: None,
        parallelism: 4,
        newest_only: false,
        probes: Vec::new(),
        read_from: ReadFrom::Leader,
        first_by_time: None,
        order: None,
        for_update: false,
        uncollected: false,
    };
    let (index, reply) = node.fill(COPY, scan).await?;
    assert_eq!(reply.streams.len(), 1);
    let mut rows = Vec::new();
    for stream in reply.streams {
        let batches: Vec<RecordBatch> = stream.try_collect().await?;
        rows.extend(rows_in(&batches));
    }
    Ok((index, rows))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn captured_are_the_writes_that_took_effect_and_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path()).await;
    let node = &running.node;
    node.open_partition(spec(false)).await.unwrap();
    put(node, FIRST, 1, &[(1, 1)]).await.unwrap();
    let missing = changes(node, FIRST, 0).await.unwrap_err();
    assert!(matches!(missing, Error::NotFound { kind: "capture", .. }), "{missing}");
    let begin = capture(node, FIRST, Capture::Begin).await.unwrap();
    assert_eq!(capture(node, FIRST, Capture::Begin).await, Ok(begin), "it has begun");
    let first = put(node, FIRST, 2, &[(1, 2), (2, 2)]).await.unwrap();
    assert_eq!(put(node, FIRST, 2, &[(1, 2), (2, 2)]).await, Ok(first.clone()));
    // One whose route was changed after it was taken into the log.
    let group = running.host.group(GroupId(PARTITION.0)).unwrap();
    let part = WritePart {
        id: RequestId { client: 1, sequence: 3 },
        earlier: Vec::new(),
        kind: WriteKind::Put,
        rows: 1,
        ship: None,
        condition: None,
    };
    let stale = WriteCommand {
        epoch: Epoch(0),
        parts: vec![part],
        rows: ipc::encode(&[batch(&[(9, 9)])]).unwrap(),
    };
    group.propose(Command::Write(stale).encode()).await.unwrap();
    let ids = batch(&[(1, 0)]).project(&[0]).unwrap();
    let delete = node.write(request(FIRST, 4, WriteKind::Delete, ids)).await.unwrap();
    let found = changes(node, FIRST, 0).await.unwrap();
    let expected =
        [(first.index, WriteKind::Put, vec![1, 2]), (delete.index, WriteKind::Delete, vec![1])];
    assert_eq!(shape(&found), expected);
    assert_eq!((found.last, found.shipped, found.sync), (delete.index, 0, false));
    assert!(found.to >= delete.index && found.after.is_none(), "{found:?}");
    assert_eq!(shape(&changes(node, FIRST, first.index).await.unwrap()), expected[1..]);
    // As many as fit, but never a part of an entry.
    let (partition, epoch) = FIRST;
    let mut ask = ChangesRequest { partition, epoch, copy: COPY, after: begin, bytes_max: 1 };
    let found = node.changes(ask).await.unwrap();
    assert_eq!((shape(&found), found.to), (expected[..1].to_vec(), first.index));
    ask.bytes_max = 0;
    let found = node.changes(ask).await.unwrap();
    assert_eq!((shape(&found), found.to), (vec![], begin));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_is_owed_to_a_copy_in_sync_until_it_is_shipped() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path()).await;
    let node = &running.node;
    node.open_partition(spec(true)).await.unwrap();
    for order in [Capture::Sync, Capture::Shipped(0)] {
        let missing = capture(node, FIRST, order).await.unwrap_err();
        assert!(matches!(missing, Error::NotFound { kind: "capture", .. }), "{missing}");
    }
    capture(node, FIRST, Capture::Begin).await.unwrap();
    let before = put(node, FIRST, 1, &[(1, 1)]).await.unwrap();
    assert_eq!(before.owed, []);
    capture(node, FIRST, Capture::Sync).await.unwrap();
    let reply = put(node, FIRST, 2, &[(2, 2)]).await.unwrap();
    assert_eq!(reply.owed, [COPY]);
    assert_eq!(put(node, FIRST, 2, &[(2, 2)]).await, Ok(reply.clone()), "sent again");
    assert_eq!(put(node, FIRST, 1, &[(1, 1)]).await.unwrap().owed, [COPY], "taken before the sync");
    let early = capture(node, FIRST, Capture::Shipped(reply.index + 1000)).await;
    assert!(matches!(early, Err(Error::InvalidInput(_))), "{early:?}");
    assert_eq!(capture(node, FIRST, Capture::Shipped(reply.index)).await, Ok(reply.index));
    assert_eq!(put(node, FIRST, 2, &[(2, 2)]).await.unwrap().owed, []);
    assert_eq!(put(node, FIRST, 3, &[(3, 3)]).await.unwrap().owed, [COPY]);
    let found = changes(node, FIRST, 0).await.unwrap();
    assert_eq!((found.shipped, found.sync), (reply.index, true));
    assert_eq!(found.entries.len(), 1, "what the copy has is not given again");
    capture(node, FIRST, Capture::End).await.unwrap();
    assert_eq!(put(node, FIRST, 4, &[(4, 4)]).await.unwrap().owed, []);
    // Removing all rows ends captures too.
    capture(node, FIRST, Capture::Begin).await.unwrap();
    let id = RequestId { client: 2, sequence: 1 };
    node.truncate_partition(PARTITION, id).await.unwrap();
    assert!(matches!(changes(node, FIRST, 0).await, Err(Error::NotFound { .. })));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_are_known_after_a_restart_or_known_to_be_lost() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path()).await;
    running.node.open_partition(spec(true)).await.unwrap();
    capture(&running.node, FIRST, Capture::Begin).await.unwrap();
    let first = running.write(1, &[(1, 1)]).await.unwrap();
    let second = running.write(2, &[(2, 2)]).await.unwrap();
    // The log has the first report at once, and the second because the files pass the changes.
    for shipped in [first, second] {
        let told = capture(&running.node, FIRST, Capture::Shipped(shipped)).await;
        assert_eq!(told, Ok(shipped));
    }
    running.node.flush_partition(PARTITION).await.unwrap();
    let third = running.write(3, &[(3, 3)]).await.unwrap();
    running.crash().await;

    let running = Running::start(dir.path()).await;
    let found = changes(&running.node, FIRST, 0).await.unwrap();
    assert_eq!(shape(&found), [(third, WriteKind::Put, vec![3])]);
    assert_eq!((found.shipped, found.last), (second, third));
    // Orderly, with everything shipped.
    capture(&running.node, FIRST, Capture::Shipped(third)).await.unwrap();
    running.stop().await;

    let running = Running::start(dir.path()).await;
    let found = changes(&running.node, FIRST, first).await.unwrap();
    assert_eq!((shape(&found), found.shipped), (vec![], third));
    running.write(4, &[(4, 4)]).await.unwrap();
    running.node.flush_partition(PARTITION).await.unwrap();
    running.crash().await;

    let running = Running::start(dir.path()).await;
    let lost = changes(&running.node, FIRST, third).await;
    assert_eq!(lost, Err(Error::Gap { partition: PARTITION }));
    // Whoever has shipped them without being able to tell so goes on.
    let found = changes(&running.node, FIRST, third + 1000).await.unwrap();
    assert_eq!(shape(&found), []);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shipped_rows_take_effect_once_by_their_position() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path()).await;
    running.node.open_partition(spec(true)).await.unwrap();
    let whole = (at(0, 0), at(7, 1));
    ship(&running.node, FIRST, whole, &[(1, 1), (2, 2)]).await.unwrap();
    let again = ship(&running.node, FIRST, whole, &[(1, 1), (2, 2)]).await.unwrap();
    assert_eq!(again.owed, []);
    assert_eq!(running.rows().await, [(1, 1), (2, 2)]);
    // Before and after a restart, with and without files.
    for flushed in [false, true] {
        if flushed {
            running.node.flush_partition(PARTITION).await.unwrap();
        }
        let overlapping = (at(6, 0), at(8, 0));
        let refused = ship(&running.node, FIRST, overlapping, &[(2, 2), (3, 3)]).await;
        assert_eq!(refused, Err(Error::ShipAhead { stored: at(7, 1) }));
        ship(&running.node, FIRST, whole, &[(1, 1), (2, 2)]).await.unwrap();
    }
    running.crash().await;

    let running = Running::start(dir.path()).await;
    ship(&running.node, FIRST, whole, &[(1, 1), (2, 2)]).await.unwrap();
    ship(&running.node, FIRST, (at(7, 1), at(8, 0)), &[(3, 3)]).await.unwrap();
    assert_eq!(running.rows().await, [(1, 1), (2, 2), (3, 3)]);
    running.stop().await;
}

/// One node with a table of one partition, rows up to 50.
async fn alone(seed: u64, append_mode: bool) -> (Cluster, Table) {
    let cluster = Cluster::new(1, seed).await;
    cluster.open(1, &[1], append_mode, false).await.unwrap();
    let table = Table::new(&[1]);
    table.write(&cluster, 1, &rows_to(50)).await;
    (cluster, table)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_halves_of_a_partition_of_a_copy_know_the_rows_that_were_taken() {
    let (cluster, table) = alone(61, true).await;
    let node = cluster.node(1);
    let whole = (at(0, 0), at(7, 1));
    let rows = [row(20), row(40)];
    ship(node, FIRST, whole, &rows).await.unwrap();
    table.split(&cluster, PARTITION, 30, CHILD.0).await;
    let child = (CHILD, Epoch(2));
    cluster.anywhere("a scan", async |_, node| rows_of(&node, child).await).await;
    // The part for each half, cut again.
    ship(node, (PARTITION, Epoch(2)), whole, &rows[..1]).await.unwrap();
    ship(node, child, whole, &rows[1..]).await.unwrap();
    let overlapping = (at(6, 0), at(8, 0));
    let refused = ship(node, child, overlapping, &rows[1..]).await;
    assert_eq!(refused, Err(Error::ShipAhead { stored: at(7, 1) }));
    ship(node, child, (at(7, 1), at(8, 0)), &[row(45)]).await.unwrap();
    let mut expected = [rows_to(50), vec![row(20), row(40), row(45)]].concat();
    expected.sort_unstable();
    let mut found = table.rows(&cluster).await;
    found.sort_unstable();
    assert_eq!(found, expected);
    // Positions of two halves cannot be joined.
    let (_, absorb) = table.merge_orders(PARTITION);
    let refused = node.reshape(Reshape::Absorb(absorb)).await;
    assert!(
        matches!(&refused, Err(Error::InvalidInput(why)) if why.contains("materialized copies")),
        "{refused:?}"
    );
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_of_a_child_wait_for_those_of_its_parent() {
    let (cluster, table) = alone(62, false).await;
    let node = cluster.node(1);
    let begin = capture(node, FIRST, Capture::Begin).await.unwrap();
    let (filled, rows) = fill(node, FIRST).await.unwrap();
    assert_eq!((filled, rows.len()), (begin, 50));
    capture(node, FIRST, Capture::Sync).await.unwrap();
    put(node, FIRST, 2, &[row(20), row(40)]).await.unwrap();
    let split = table.split(&cluster, PARTITION, 30, CHILD.0).await.index;
    let (parent, child) = ((PARTITION, Epoch(2)), (CHILD, Epoch(2)));
    cluster.anywhere("a scan", async |_, node| rows_of(&node, child).await).await;
    let refused = changes(node, FIRST, 0).await.unwrap_err();
    assert!(matches!(refused, Error::StaleRoute { .. }), "{refused}");
    let found = changes(node, parent, 0).await.unwrap();
    assert_eq!((found.entries.len(), found.after), (1, None), "the rows of both halves");
    let found = changes(node, child, 0).await.unwrap();
    assert_eq!((found.after, found.sync), (Some((PARTITION, split)), true));
    assert_eq!((found.entries.len(), found.last), (0, 0));
    assert_eq!(capture(node, child, Capture::Begin).await, Ok(0), "it goes on");
    let refused = fill(node, child).await;
    assert_eq!(refused, Err(Error::Gap { partition: CHILD }));
    let reply = put(node, child, 3, &[row(45)]).await.unwrap();
    assert_eq!(reply.owed, [COPY]);
    // A write that the parent took is owed by the child too.
    let again = put(node, child, 2, &[row(40)]).await.unwrap();
    assert!(again.owed == [COPY] && again.index < reply.index, "{again:?}");
    let found = changes(node, child, 0).await.unwrap();
    assert_eq!(shape(&found), [(reply.index, WriteKind::Put, vec![45])]);
    capture(node, child, Capture::Shipped(found.to)).await.unwrap();
    let found = changes(node, child, 0).await.unwrap();
    assert_eq!((found.after, found.entries.len()), (None, 0));
    assert_eq!(put(node, child, 2, &[row(40)]).await.unwrap().owed, []);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_that_was_split_after_its_capture_began_fills_no_copy() {
    let (cluster, table) = alone(63, false).await;
    let node = cluster.node(1);
    capture(node, FIRST, Capture::Begin).await.unwrap();
    table.split(&cluster, PARTITION, 30, CHILD.0).await;
    let refused = fill(node, FIRST).await.unwrap_err();
    assert!(matches!(refused, Error::StaleRoute { .. }), "{refused}");
    let refused = fill(node, (PARTITION, Epoch(2))).await;
    assert_eq!(refused, Err(Error::Gap { partition: PARTITION }));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn that_a_copy_has_the_rows_is_known_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path()).await;
    running.node.open_partition(spec(true)).await.unwrap();
    capture(&running.node, FIRST, Capture::Begin).await.unwrap();
    let last = running.write(1, &[(1, 1)]).await.unwrap();
    let (index, rows) = fill(&running.node, FIRST).await.unwrap();
    assert_eq!((index, rows), (last, vec![(1, 1)]));
    assert_eq!(capture(&running.node, FIRST, Capture::Shipped(index)).await, Ok(index));
    running.crash().await;

    // The change that the rows include is not given again: the copy could take it twice.
    let running = Running::start(dir.path()).await;
    let found = changes(&running.node, FIRST, 0).await.unwrap();
    assert_eq!((shape(&found), found.shipped), (vec![], index));
    let again = fill(&running.node, FIRST).await;
    assert_eq!(again, Err(Error::Gap { partition: PARTITION }));
    running.stop().await;
}

/// Fills a copy of a table and follows it while rows are written; the copy's rows and the table's.
async fn follow(append_mode: bool) -> [Vec<Row>; 2] {
    let dir = tempfile::tempdir().unwrap();
    let running = Arc::new(Running::start(dir.path()).await);
    running.node.open_partition(spec(append_mode)).await.unwrap();
    running.write(1, &[(1, 1), (2, 2)]).await.unwrap();
    running.node.flush_partition(PARTITION).await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let writers = (1..=3u64).map(|writer| {
        let (running, stop) = (Arc::clone(&running), Arc::clone(&stop));
        tokio::spawn(async move {
            let mut number = 0;
            while !stop.load(Ordering::Acquire) {
                number += 1;
                let sequence = (writer << 32) | number;
                let id = i64::try_from(number % 40).unwrap();
                let value = sequence.cast_signed();
                running.write(sequence, &[(id, value), (id + 1, value)]).await.unwrap();
                if number % 50 == 0 {
                    running.node.flush_partition(PARTITION).await.unwrap();
                }
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    capture(&running.node, FIRST, Capture::Begin).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    let (mut index, mut copy) = fill(&running.node, FIRST).await.unwrap();
    let mut ending = false;
    loop {
        let found = changes(&running.node, FIRST, index).await.unwrap();
        copy.extend(
            found.entries.iter().flat_map(|change| rows_in(std::slice::from_ref(&change.rows))),
        );
        capture(&running.node, FIRST, Capture::Shipped(found.to)).await.unwrap();
        index = found.to;
        if ending && found.last <= index {
            break;
        }
        if copy.len() > 1000 && !ending {
            stop.store(true, Ordering::Release);
            ending = true;
        }
    }
    for writer in writers {
        writer.await.unwrap();
    }
    // What was written since the last look.
    let found = changes(&running.node, FIRST, index).await.unwrap();
    copy.extend(
        found.entries.iter().flat_map(|change| rows_in(std::slice::from_ref(&change.rows))),
    );
    let rows = running.rows().await;
    Arc::into_inner(running).unwrap().stop().await;
    [copy, rows]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rows_at_an_index_and_the_changes_after_it_are_all_rows() {
    let [mut copy, rows] = follow(true).await;
    copy.sort_unstable();
    assert_eq!(copy, rows);
    let [copy, rows] = follow(false).await;
    let newest: BTreeMap<i64, i64> = copy.into_iter().collect();
    assert_eq!(newest.into_iter().collect::<Vec<_>>(), rows);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn captures_outlive_their_leader_and_reach_a_replica_that_gets_files() {
    let mut cluster = Cluster::of_three(3, 64, true).await;
    let order = async |_, node: Arc<Datanode>| capture(&node, FIRST, Capture::Begin).await;
    let begin = cluster.anywhere("a capture", order).await;
    assert!(begin > 0);
    let order = async |_, node: Arc<Datanode>| capture(&node, FIRST, Capture::Sync).await;
    cluster.anywhere("a capture", order).await;
    cluster.converge(&[1, 2, 3]).await;
    let away = others(cluster.leader().await)[0];
    cluster.kill(away).await;
    cluster.outgrow_the_log(&others(away)).await;
    // Everything is shipped, and the log has that with the files.
    let ask = async |_, node: Arc<Datanode>| {
        let shipped = changes(&node, FIRST, u64::MAX >> 1).await?.last;
        capture(&node, FIRST, Capture::Shipped(shipped)).await
    };
    let shipped = cluster.anywhere("a report", ask).await;
    let recorded = async || {
        // Who is told may lead no longer when it flushes.
        cluster.anywhere("a report", ask).await;
        let mut all = true;
        for id in others(away) {
            cluster.flush(id).await;
            let replica = cluster.node(id).replica(PARTITION).unwrap();
            let stored = crate::machine::remembered(&replica.partition().state()).unwrap();
            all &= stored.captures().get(COPY).unwrap().shipped() >= shipped;
        }
        all
    };
    cluster.until("the report is not in the files", recorded).await;
    cluster.start(away).await;
    cluster.until_purged(away).await;
    cluster.lead(away).await;
    let ask = async |_, node: Arc<Datanode>| changes(&node, FIRST, 0).await;
    let found = cluster.anywhere("changes", ask).await;
    assert_eq!((shape(&found), found.sync), (vec![], true));
    assert!(found.shipped >= shipped, "{found:?}");
    let index = cluster.write(1 << 41, &[(-7, 7)]).await;
    let found = cluster.anywhere("changes", ask).await;
    assert_eq!(shape(&found), [(index, WriteKind::Put, vec![-7])]);
    // Another replica has kept the same changes.
    let next = others(away)[0];
    cluster.lead(next).await;
    let found = cluster.anywhere("changes", ask).await;
    assert_eq!(shape(&found), [(index, WriteKind::Put, vec![-7])]);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_partition_gives_its_changes_and_tells_what_it_took() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path()).await;
    let node = &running.node;
    node.open_partition(spec(false)).await.unwrap();
    let missing = capture(node, FIRST, Capture::Close).await.unwrap_err();
    assert!(matches!(missing, Error::NotFound { kind: "capture", .. }), "{missing}");
    capture(node, FIRST, Capture::Begin).await.unwrap();
    capture(node, FIRST, Capture::Sync).await.unwrap();
    let reply = put(node, FIRST, 1, &[(1, 1)]).await.unwrap();
    let closed = capture(node, FIRST, Capture::Close).await.unwrap();
    assert!(capture(node, FIRST, Capture::Close).await.unwrap() > closed, "idempotent");
    // A write that was taken is answered, at any epoch; others have no effect.
    assert_eq!(put(node, FIRST, 1, &[(1, 1)]).await, Ok(reply.clone()));
    assert_eq!(put(node, (PARTITION, Epoch(0)), 1, &[(1, 1)]).await, Ok(reply));
    let refused = put(node, FIRST, 2, &[(2, 2)]).await;
    assert_eq!(refused, Err(Error::NeverTaken { partition: PARTITION }));
    let unread = rows_of(node, FIRST).await;
    assert!(matches!(unread, Err(Error::StaleSchema { .. })), "{unread:?}");
    // Its changes are still given and shipped.
    let found = changes(node, FIRST, 0).await.unwrap();
    assert!(found.to >= closed && found.entries.len() == 1, "{found:?}");
    assert_eq!(capture(node, FIRST, Capture::Shipped(found.to)).await, Ok(found.to));
    assert_eq!(put(node, FIRST, 1, &[(1, 1)]).await.unwrap().owed, []);
    capture(node, FIRST, Capture::End).await.unwrap();
    let refused = put(node, FIRST, 2, &[(2, 2)]).await;
    assert_eq!(refused, Err(Error::NeverTaken { partition: PARTITION }));
    capture(node, FIRST, Capture::Reopen).await.unwrap();
    put(node, FIRST, 2, &[(2, 2)]).await.unwrap();
    assert_eq!(running.rows().await, [(1, 1), (2, 2)]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_of_a_table_that_was_a_copy_takes_no_rows_by_their_positions() {
    let (cluster, table) = alone(63, true).await;
    let node = cluster.node(1);
    ship(node, FIRST, (at(0, 0), at(7, 1)), &[row(20)]).await.unwrap();
    capture(node, FIRST, Capture::Detach).await.unwrap();
    put(node, FIRST, 900, &[row(21)]).await.unwrap();
    // Rows that come late were taken before.
    ship(node, FIRST, (at(0, 0), at(7, 1)), &[row(20)]).await.unwrap();
    let mut expected = [rows_to(50), vec![row(20), row(21)]].concat();
    expected.sort_unstable();
    let mut found = table.rows(&cluster).await;
    found.sort_unstable();
    assert_eq!(found, expected);
    cluster.stop().await;
}
