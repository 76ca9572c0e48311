//! Remembers the work that replicas of partitions have by this frontend's scans, and picks the one to ask.
//!
//! ```text
//!   scan ── pick ──> one of the followers, or the leader (choice.rs)
//!     │                      ▲
//!     └── begin ── InFlight ─┴─ in flight, work that the node reports, failures
//! ```
//!
//! Invariants: a scan is in flight until its last stream has ended or was dropped; everything remembered is bounded, and
//! loses its weight within seconds.

mod choice;

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use arrow::record_batch::RecordBatch;
use futures::Stream;
use parking_lot::Mutex;
use partita_proto::Error;
use partita_proto::id::{NodeId, PartitionId};
use partita_proto::route::Route;
use partita_proto::service::{RowStream, ScanReply, ScanStats};
use tokio::time::Instant;

use self::choice::{Candidate, Reads, choose};
use crate::metrics::FrontendMetrics;

/// Maximum partitions remembered; at the bound those without a scan in flight are forgotten.
const REMEMBERED_MAX: usize = 1 << 16;
/// Time over which scans in flight are averaged.
const MEAN_OVER: Duration = Duration::from_secs(2);
/// Time for which the work that a node reported counts.
const REPORT_AGE_MAX: Duration = Duration::from_secs(5);
/// Time for which a replica that failed is left out; doubled with every time that it is tried again in vain.
const LEFT_OUT_FOR: Duration = Duration::from_secs(5);
const LEFT_OUT_MAX: Duration = Duration::from_secs(60);

/// Answers of one replica.
#[derive(Clone, Copy, Debug)]
struct Answers {
    node: NodeId,
    /// Cores of all work and of the reads, and when they were reported.
    cores: f64,
    read_cores: f64,
    reported: Option<Instant>,
    /// Time until which the replica is left out, and for how long that is since its last failure.
    left_out_until: Option<Instant>,
    left_out_for: Duration,
}

impl Answers {
    fn new(node: NodeId) -> Self {
        Self {
            node,
            cores: 0.0,
            read_cores: 0.0,
            reported: None,
            left_out_until: None,
            left_out_for: Duration::ZERO,
        }
    }

    fn is_reported(&self, time: Instant) -> bool {
        let age = self.reported.map(|reported| time.saturating_duration_since(reported));
        age.is_some_and(|age| age < REPORT_AGE_MAX)
    }

    fn is_left_out(&self, time: Instant) -> bool {
        self.left_out_until.is_some_and(|end| time < end)
    }

    /// The replica failed. Scans that were sent before the first one of them failed do not count again.
    fn fail(&mut self, time: Instant) {
        if !self.is_left_out(time) {
            self.left_out_for = (self.left_out_for * 2).clamp(LEFT_OUT_FOR, LEFT_OUT_MAX);
            self.left_out_until = Some(time + self.left_out_for);
        }
    }

    /// The replica answered, with this report of its work.
    fn answer(&mut self, cores: f64, read_cores: f64, time: Instant) {
        (self.cores, self.read_cores, self.reported) = (cores, read_cores, Some(time));
        (self.left_out_until, self.left_out_for) = (None, Duration::ZERO);
    }
}

/// Scans of one partition.
#[derive(Debug)]
struct Scans {
    in_flight: u32,
    mean_in_flight: f64,
    changed: Instant,
    replicas: Vec<Answers>,
}

impl Scans {
    fn new(time: Instant) -> Self {
        Self { in_flight: 0, mean_in_flight: 0.0, changed: time, replicas: Vec::new() }
    }

    /// Mean number of scans in flight at a time: recent moments count more.
    fn mean_in_flight(&self, time: Instant) -> f64 {
        let gap = time.saturating_duration_since(self.changed);
        let weight = (-gap.as_secs_f64() / MEAN_OVER.as_secs_f64()).exp();
        let current = f64::from(self.in_flight);
        current + (self.mean_in_flight - current) * weight
    }

    fn set_in_flight(&mut self, in_flight: u32, time: Instant) {
        self.mean_in_flight = self.mean_in_flight(time);
        self.changed = time;
        self.in_flight = in_flight;
    }

    fn replica(&mut self, node: NodeId) -> &mut Answers {
        let position = self.replicas.iter().position(|answers| answers.node == node);
        let position = position.unwrap_or_else(|| {
            self.replicas.push(Answers::new(node));
            self.replicas.len() - 1
        });
        &mut self.replicas[position]
    }

    fn reads(&self, time: Instant) -> Reads {
        let reported = self.replicas.iter().filter(|answers| answers.is_reported(time));
        Reads {
            in_flight: self.mean_in_flight(time),
            cores: reported.map(|answers| answers.read_cores).sum(),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    partitions: HashMap<PartitionId, Scans>,
    /// Scans in flight by node.
    nodes: HashMap<NodeId, u32>,
}

impl State {
    fn scans(&mut self, partition: PartitionId, time: Instant) -> &mut Scans {
        if self.partitions.len() >= REMEMBERED_MAX && !self.partitions.contains_key(&partition) {
            self.partitions.retain(|_, scans| scans.in_flight > 0);
        }
        self.partitions.entry(partition).or_insert_with(|| Scans::new(time))
    }

    /// The node to ask as one of the followers; `None`: the leader is to be asked.
    fn pick(
        &self,
        route: &Route,
        leader: Option<NodeId>,
        draw: u64,
        time: Instant,
    ) -> Option<NodeId> {
        let scans = self.partitions.get(&route.partition)?;
        let candidate = |node: &NodeId| {
            let answers = scans.replicas.iter().find(|answers| answers.node == *node);
            Candidate {
                node: *node,
                leads: leader == Some(*node),
                is_left_out: answers.is_some_and(|answers| answers.is_left_out(time)),
                in_flight: self.nodes.get(node).copied().unwrap_or_default(),
                cores: answers
                    .filter(|answers| answers.is_reported(time))
                    .map_or(0.0, |answers| answers.cores),
            }
        };
        let candidates: Vec<Candidate> = route.replicas.values().map(candidate).collect();
        choose(&scans.reads(time), &candidates, draw)
    }
}

/// Replicas as this frontend knows them by their answers.
#[derive(Debug)]
pub(crate) struct Replicas {
    state: Mutex<State>,
    draws: AtomicU64,
    metrics: Arc<FrontendMetrics>,
}

impl Replicas {
    pub(crate) fn new(metrics: Arc<FrontendMetrics>) -> Self {
        Self { state: Mutex::default(), draws: AtomicU64::new(0), metrics }
    }

    /// The node of a follower that is to be asked for a scan; `None`: the leader is to be asked.
    pub(crate) fn pick(&self, route: &Route, leader: Option<NodeId>) -> Option<NodeId> {
        if route.replicas.len() < 2 {
            return None;
        }
        // Frontends need not draw alike or unlike: a sequence that mixes well is enough.
        let draw = mix(self.draws.fetch_add(1, Ordering::Relaxed));
        self.state.lock().pick(route, leader, draw, Instant::now())
    }

    /// Counts a scan that is sent to a node.
    pub(crate) fn begin(self: &Arc<Self>, partition: PartitionId, node: NodeId) -> InFlight {
        let time = Instant::now();
        let mut state = self.state.lock();
        let scans = state.scans(partition, time);
        scans.set_in_flight(scans.in_flight + 1, time);
        *state.nodes.entry(node).or_default() += 1;
        InFlight { replicas: Arc::clone(self), partition, node, stats: None }
    }

    /// Leaves a replica out for some seconds.
    pub(crate) fn failed(&self, partition: PartitionId, node: NodeId) {
        let time = Instant::now();
        self.state.lock().scans(partition, time).replica(node).fail(time);
    }

    fn end(&self, partition: PartitionId, node: NodeId, stats: Option<&ScanStats>) {
        let time = Instant::now();
        let cores = |millicores: &AtomicU64| millicores.load(Ordering::Relaxed) as f64 / 1e3;
        let mut state = self.state.lock();
        let scans = state.scans(partition, time);
        scans.set_in_flight(scans.in_flight.saturating_sub(1), time);
        if let Some(stats) = stats {
            let (busy, reads) = (cores(&stats.busy_millicores), cores(&stats.read_millicores));
            scans.replica(node).answer(busy, reads, time);
        }
        if let Some(in_flight) = state.nodes.get_mut(&node) {
            *in_flight = in_flight.saturating_sub(1);
            if *in_flight == 0 {
                state.nodes.remove(&node);
            }
        }
    }
}

/// A well mixed number for each number (splitmix64).
fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A scan in flight. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct InFlight {
    replicas: Arc<Replicas>,
    partition: PartitionId,
    node: NodeId,
    /// Counters of the answer, once there is one.
    stats: Option<Arc<ScanStats>>,
}

impl InFlight {
    /// The answer, whose streams keep the scan in flight.
    pub(crate) fn answered(mut self, reply: ScanReply) -> ScanReply {
        self.stats = Some(Arc::clone(&reply.stats));
        let scan = Arc::new(self);
        let streams = reply
            .streams
            .into_iter()
            .map(|rows| -> RowStream { Box::pin(Watched { rows, _scan: Arc::clone(&scan) }) });
        ScanReply { streams: streams.collect(), ..reply }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.replicas.end(self.partition, self.node, self.stats.as_deref());
        let metrics = &self.replicas.metrics;
        match self.stats.as_ref().map(|stats| stats.by_followers.load(Ordering::Relaxed)) {
            Some(0) => metrics.scans_by_leaders.add(1),
            Some(_) => metrics.scans_by_followers.add(1),
            None => {}
        }
    }
}

/// A stream of a scan in flight.
struct Watched {
    rows: RowStream,
    _scan: Arc<InFlight>,
}

impl Stream for Watched {
    type Item = Result<RecordBatch, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.rows.as_mut().poll_next(context)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use arrow::datatypes::Schema;
    use futures::StreamExt;
    use partita_proto::id::{Epoch, ReplicaId};
    use partita_proto::range::{KeyRange, TypedRange};
    use partita_proto::service::KeyOrder;

    use super::*;

    const PARTITION: PartitionId = PartitionId(4);
    const LEADER: Option<NodeId> = Some(NodeId(1));

    fn route(nodes: u64) -> Route {
        let replicas: BTreeMap<_, _> =
            (1..=nodes).map(|node| (ReplicaId(node + 10), NodeId(node))).collect();
        Route {
            partition: PARTITION,
            range: TypedRange::default(),
            keys: KeyRange::all(),
            epoch: Epoch(1),
            replicas,
            leader: None,
        }
    }

    fn reply(streams: usize, by_followers: u64, read_millicores: u64) -> ScanReply {
        let stats = ScanStats::default();
        stats.by_followers.store(by_followers, Ordering::Relaxed);
        stats.busy_millicores.store(read_millicores, Ordering::Relaxed);
        stats.read_millicores.store(read_millicores, Ordering::Relaxed);
        let rows = || -> RowStream {
            let batch = RecordBatch::new_empty(Arc::new(Schema::empty()));
            Box::pin(futures::stream::iter([Ok(batch)]))
        };
        let streams = (0..streams).map(|_| rows()).collect();
        ScanReply { streams, order: Some(KeyOrder::ASCENDING), stats: Arc::new(stats), index: 0 }
    }

    /// Nodes of some picks in a row.
    fn picked(replicas: &Replicas, route: &Route, picks: usize) -> Vec<u64> {
        let pick = |_| replicas.pick(route, LEADER).map_or(1, |node| node.0);
        (0..picks).map(pick).collect()
    }

    #[test]
    fn one_client_stays_at_the_leader_and_many_are_spread() {
        let metrics = Arc::new(FrontendMetrics::default());
        let replicas = Arc::new(Replicas::new(Arc::clone(&metrics)));
        let route = route(3);
        assert_eq!(picked(&replicas, &route, 20), [1; 20], "nothing is known");
        let permit = replicas.begin(PARTITION, NodeId(1));
        assert_eq!(picked(&replicas, &route, 20), [1; 20]);
        // The mean follows within seconds.
        let scans: Vec<_> = (0..30).map(|_| replicas.begin(PARTITION, NodeId(1))).collect();
        {
            let mut state = replicas.state.lock();
            let scans = state.partitions.get_mut(&PARTITION).unwrap();
            scans.changed -= MEAN_OVER;
            assert!(scans.mean_in_flight(Instant::now()) > 10.0, "{scans:?}");
        }
        let nodes = picked(&replicas, &route, 200);
        assert!(!nodes.contains(&1) && nodes.contains(&2) && nodes.contains(&3), "{nodes:?}");
        // A node that fails gets nothing for a while.
        replicas.failed(PARTITION, NodeId(2));
        let nodes = picked(&replicas, &route, 200);
        assert!(!nodes.contains(&2) && nodes.contains(&3), "{nodes:?}");
        drop((permit, scans));
        let state = replicas.state.lock();
        assert_eq!(state.partitions[&PARTITION].in_flight, 0);
        assert!(state.nodes.is_empty());
        assert_eq!(metrics.scans_by_leaders.get(), 0, "none was answered");
    }

    #[test]
    fn partitions_with_one_replica_have_no_choice() {
        let replicas = Arc::new(Replicas::new(Arc::default()));
        let _scans: Vec<_> = (0..30).map(|_| replicas.begin(PARTITION, NodeId(1))).collect();
        assert_eq!(replicas.pick(&route(1), LEADER), None);
    }

    #[tokio::test]
    async fn a_scan_is_in_flight_until_its_last_stream_ends() {
        let metrics = Arc::new(FrontendMetrics::default());
        let replicas = Arc::new(Replicas::new(Arc::clone(&metrics)));
        let in_flight =
            |replicas: &Replicas| replicas.state.lock().partitions[&PARTITION].in_flight;
        let scan = replicas.begin(PARTITION, NodeId(2));
        let mut answer = scan.answered(reply(2, 1, 700));
        assert_eq!(in_flight(&replicas), 1);
        let mut second = answer.streams.pop().unwrap();
        let first = answer.streams.pop().unwrap();
        drop(first);
        assert!(second.next().await.unwrap().is_ok());
        assert_eq!(in_flight(&replicas), 1);
        drop(second);
        assert_eq!(in_flight(&replicas), 0);
        assert_eq!((metrics.scans_by_leaders.get(), metrics.scans_by_followers.get()), (0, 1));
        // A node that reports busy reads makes them many, whoever sends them.
        drop(replicas.begin(PARTITION, NodeId(1)).answered(reply(1, 0, 0)));
        let nodes = picked(&replicas, &route(3), 200);
        assert!(nodes.contains(&3), "{nodes:?}");
        assert_eq!(metrics.scans_by_leaders.get(), 1);
        let instant = Instant::now() + REPORT_AGE_MAX;
        assert_eq!(replicas.state.lock().partitions[&PARTITION].reads(instant).cores, 0.0);
    }

    #[test]
    fn a_replica_that_failed_is_tried_again_after_a_while() {
        let time = Instant::now();
        let mut answers = Answers::new(NodeId(1));
        answers.fail(time);
        answers.fail(time + LEFT_OUT_FOR / 2);
        assert!(answers.is_left_out(time) && !answers.is_left_out(time + LEFT_OUT_FOR));
        let mut end = time + LEFT_OUT_FOR;
        for seconds in [10, 20, 40, 60, 60] {
            answers.fail(end);
            let next = end + Duration::from_secs(seconds);
            assert!(answers.is_left_out(next - Duration::from_millis(1)), "{seconds}");
            assert!(!answers.is_left_out(next), "{seconds}");
            end = next;
        }
        answers.answer(0.1, 0.1, end);
        answers.fail(end);
        assert!(!answers.is_left_out(end + LEFT_OUT_FOR), "an answer makes up for all of it");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut state = State::default();
        let time = Instant::now();
        for partition in 0..(REMEMBERED_MAX as u64 + 10) {
            state.scans(PartitionId(partition), time);
        }
        assert!(state.partitions.len() <= REMEMBERED_MAX);
    }
}
