//! The load of partitions as it is told, drawn and explained.

use partita_heatmap::{Metric, View};
use partita_load::{
    Blamed, Cause, Counters as LoadCounters, Intaken, IntakenSecond, Sample, Sketch, Standing, Tick,
};
use partita_proto::beat::{FollowerReads, LoadBeat};
use partita_proto::blame::BlameReport;
use partita_proto::service::MetaService;

use super::trio::Trio;
use super::*;
use crate::load::Keeper;

const START_S: u64 = 1_700_000_000;
const START_MS: u64 = START_S * 1_000;

/// A keeper that knows a table of 16 partitions.
fn keeper() -> (Keeper, Vec<PartitionId>) {
    let mut world = World::new();
    let cuts = (1..16).map(|sensor| cut(&[Value::Int(sensor * 10)])).collect();
    world.done(create(NewTable { cuts, ..new_table("t") })).unwrap();
    let mut keeper = Keeper::new(1);
    keeper.learn(&world.state, |_| true, START_MS);
    (keeper, world.state.partitions().map(|partition| partition.id).collect())
}

fn beat(partition: PartitionId, at_ms: u64, counters: LoadCounters) -> LoadBeat {
    LoadBeat { partition, term: 1, since_ms: START_MS, at_ms, counters, ..LoadBeat::default() }
}

#[test]
fn idle_partitions_are_idle_and_busy_reads_are_hot() {
    let (mut keeper, ids) = keeper();
    for second in 1..=20_u64 {
        let now_ms = START_MS + second * 1_000;
        let mut beats: Vec<LoadBeat> =
            ids.iter().map(|id| beat(*id, now_ms, LoadCounters::default())).collect();
        // The lane of the second is idle, and a core reads from it nearly all the time.
        beats[1].counters = LoadCounters {
            point_reads: second * 1_000,
            read_rows: second * 1_000,
            scan_ns: second * 900_000_000,
            ..LoadCounters::default()
        };
        beats[2].counters = LoadCounters {
            write_rows: second * 100,
            busy_ns: second * 20_000_000,
            ..LoadCounters::default()
        };
        keeper.heard(NodeId(1), &beats, now_ms);
        keeper.tick(now_ms);
    }
    let now_ms = START_MS + 20_500;
    let standings: Vec<Standing> = ids.iter().map(|id| keeper.standing(*id, now_ms)).collect();
    let mut expected = vec![Standing::Idle; 16];
    expected[1] = Standing::Hot;
    expected[2] = Standing::Healthy;
    assert_eq!(standings, expected);
}

/// Rows written per second in each second from `first` to before `end`, as drawn.
fn drawn(keeper: &Keeper, table: TableId, first: u64, end: u64) -> Vec<f32> {
    let (history, _) = keeper.pictures.of(table).unwrap();
    let view = View {
        table: "t".to_owned(),
        metric: Metric::WriteRows,
        from: START_S + first,
        to: START_S + end,
        columns_max: 100,
        rows_max: 20,
        keys: None,
        capacity: None,
    };
    let heatmap = history.lock().view(&view, |_| String::new());
    let column = |index: usize| heatmap.cells.iter().map(|row| row[index]).sum::<f32>();
    (0..heatmap.times.len()).map(column).collect()
}

#[test]
fn a_picture_is_dark_when_the_load_has_ended() {
    let (mut keeper, ids) = keeper();
    let table = keeper.watched(ids[3]).unwrap().table;
    let key = keeper.watched(ids[3]).unwrap().range.start.to_vec();
    // A thousand rows in each of the seconds from 1 to 10.
    let tick = |second: u64| Tick {
        second: START_S + second,
        count: 1_000,
        samples: vec![Sample { key: key.clone().into(), end: None, above: false, below: false }],
    };
    for second in 1..=20_u64 {
        let at_ms = START_MS + second * 1_000 + 300;
        let ended = second.saturating_sub(4).max(1)..second.min(11);
        let written_ms = (at_ms - START_MS - 1_000).min(10_000);
        let counters = LoadCounters { write_rows: written_ms, ..LoadCounters::default() };
        let write_keys = Sketch { ticks: ended.map(tick).collect(), ..Sketch::default() };
        let beat = LoadBeat { write_keys, ..beat(ids[3], at_ms, counters) };
        keeper.heard(NodeId(1), &[beat], at_ms + 50);
        keeper.tick(at_ms + 100);
    }
    let drawn = drawn(&keeper, table, 3, 20);
    assert_eq!(drawn.len(), 17);
    let expected = (3..20).map(|second| if second <= 10 { 1_000.0 } else { 0.0 });
    for (second, (rows, expected)) in (3..).zip(drawn.iter().zip(expected)) {
        let difference: f32 = rows - expected;
        assert!(difference.abs() <= 50.0, "second {second}: {drawn:?}");
    }
}

#[test]
fn a_partition_that_its_followers_read_for_the_leader_is_hot_too() {
    let (mut keeper, ids) = keeper();
    for second in 1..=20_u64 {
        let now_ms = START_MS + second * 1_000;
        let reads = |nanos: u64| LoadCounters {
            point_reads: second * 300,
            read_rows: second * 300,
            scan_ns: second * nanos,
            ..LoadCounters::default()
        };
        for node in [2, 3] {
            let counters = reads(300_000_000);
            let report = FollowerReads { partition: ids[1], since_ms: START_MS, counters };
            keeper.heard_followers(NodeId(node), &[report]);
        }
        keeper.heard(NodeId(1), &[beat(ids[1], now_ms, reads(200_000_000))], now_ms);
        keeper.tick(now_ms);
    }
    let now_ms = START_MS + 20_500;
    assert_eq!(keeper.standing(ids[1], now_ms), Standing::Hot, "a fifth of a core at the leader");
    let [_, read_rows, ..] = keeper.watched(ids[1]).unwrap().rates_before(START_S + 20);
    assert!((read_rows - 900.0).abs() < 1e-6, "{read_rows}");
}

#[test]
fn a_silent_leader_draws_nothing() {
    let (mut keeper, ids) = keeper();
    for second in 1..=5_u64 {
        let at_ms = START_MS + second * 1_000;
        let counters = LoadCounters { write_rows: second * 500, ..LoadCounters::default() };
        keeper.heard(NodeId(1), &[beat(ids[0], at_ms, counters)], at_ms);
    }
    let watched = keeper.watched(ids[0]).unwrap();
    let [rows, ..] = watched.rates_before(START_S + 6);
    assert!((rows - 500.0).abs() < 1e-6, "{rows}");
    assert_eq!(watched.rates_before(START_S + 9), [0.0; 4]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_member_keeps_what_frontends_tell_of_causes() {
    let trio = Trio::start(3).await;
    trio.leader().await;
    let now_s = u64::try_from(NOW_MS).unwrap() / 1_000;
    let cause = Cause {
        statement: "INSERT INTO t VALUES (?)".to_owned(),
        kind: "INSERT".to_owned(),
        user: "app".to_owned(),
        application: String::new(),
        client: "10.0.0.7".to_owned(),
    };
    let partition = partita_load::PartitionId(7);
    let sample = (partition, Blamed { key: None, cause: 0, weight: 1.0 });
    let second = IntakenSecond { second: now_s - 1, read: false, samples: vec![sample; 30] };
    let taken = Intaken { causes: vec![cause.clone()], seconds: vec![second] };
    for at in trio.running() {
        let report = BlameReport { source: 5, taken: taken.clone(), stalls: Vec::new() };
        match trio.meta(at).blame(report).await {
            Ok(()) | Err(Error::NotLeader { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        let keeper = trio.meta(at).core.load.lock();
        let causes = keeper.blame.causes(partition, false, None, now_s);
        assert_eq!(causes, [(cause.clone(), 1.0)], "member {at}");
    }
    trio.end().await;
}
