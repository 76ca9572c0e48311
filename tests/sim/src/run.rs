//! One run: the cluster is set up, works under faults, comes to rest, and is checked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use partita_proto::id::NodeId;
use partita_proto::service::{DataService, Ddl};
use partita_raft::RaftError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::client::Client;
use crate::cluster::Cluster;
use crate::history::History;
use crate::invariants::counted;
use crate::invariants::leaders::Leaders;
use crate::invariants::linearizable;
use crate::invariants::ranges::Ranges;
use crate::invariants::replicas::{self, Replicas};
use crate::invariants::rows;
use crate::ledger::Ledger;
use crate::nemesis::{self, Limits};
use crate::net::Net;
use crate::nodes::{self, DataNode, METAS, MetaNode, Sizes};
use crate::random::Random;
use crate::reshapes;
use crate::tables::{self, DATABASE, EVENTS, KEYS, SEQUENCE};
use crate::workload::Workload;
use crate::{Options, PANICS};

/// Time limit for everything to work again after the last fault: repairs, moves and elections have their own
/// timeouts, and some wait for each other.
const REST: Duration = Duration::from_secs(180);
/// Interval of the checks of leaders and the catalog, and of the comparisons of replicas.
const LOOK: Duration = Duration::from_millis(20);
const COMPARE: Duration = Duration::from_millis(1500);
/// Time limit for a process with a failed log to end.
const END_WAIT: Duration = Duration::from_secs(5);

/// The result of a run.
pub(crate) struct Outcome {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) compared: u64,
    pub(crate) acknowledged: usize,
    pub(crate) operations: usize,
    pub(crate) simulated: Duration,
}

/// Parameters of the cluster, from the seed.
struct Plan {
    sizes: Sizes,
    nodes: u64,
    factor: u32,
    limits: Limits,
}

fn plan(seed: u64, length: Duration) -> Plan {
    let mut random = Random::new(seed, 0);
    let segment_bytes = random.pick(&[64 << 10, 128 << 10, 256 << 10]).unwrap_or(128 << 10);
    let sizes = Sizes {
        segment_bytes,
        log_bytes: segment_bytes * (3 + random.below(6)),
        memtable_bytes: random.pick(&[16 << 10, 64 << 10, 1 << 20]).unwrap_or(64 << 10),
    };
    let lose = random.once_in(2);
    let factors: &'static [u32] = if lose { &[3] } else { &[1, 2, 3] };
    let nodes = 3 + random.below(2) + u64::from(lose);
    Plan { sizes, nodes, factor: 3, limits: Limits { length, factors, lose } }
}

/// Runs a seed to the end.
pub(crate) async fn run(options: &Options, length: Duration) -> Outcome {
    let seed = options.seed;
    let start = crate::history::start();
    let plan = plan(seed, length);
    let cluster = Arc::new(Cluster {
        net: Net::new(seed),
        history: History::new(options.trace),
        workload: options.workload,
        ledger: Ledger::default(),
        sizes: plan.sizes,
        data: Mutex::new(
            (1..=plan.nodes).map(|id| (NodeId(id), DataNode::new(NodeId(id)))).collect(),
        ),
        metas: Mutex::new(METAS.map(|id| (NodeId(id), MetaNode::new(NodeId(id)))).collect()),
        ordering: Mutex::default(),
    });
    let compared = Arc::new(Mutex::new(0));
    let watching = tokio::spawn(watch(Arc::clone(&cluster), Arc::clone(&compared)));
    // Consequences of the first violation are rarely of interest and may take very long.
    tokio::select! {
        () = course(&cluster, &plan, seed) => {}
        () = wrong(&cluster), if !options.whole => cluster.history.note("stopped at the first violation"),
    }
    watching.abort();
    let compared = *compared.lock();
    Outcome {
        acknowledged: cluster.history.acknowledged().len(),
        operations: cluster.history.operations().len(),
        simulated: start.elapsed(),
        compared,
        cluster,
    }
}

/// The whole course of a run.
async fn course(cluster: &Arc<Cluster>, plan: &Plan, seed: u64) {
    let admin = Client::new(cluster, 50, seed);
    if !begin(cluster, &admin, plan).await {
        return;
    }
    let stop = CancellationToken::new();
    let clients: Vec<_> = (1..=cluster.workload.clients())
        .map(|number| {
            let client = Client::new(cluster, number, seed);
            tokio::spawn(client.work(stop.clone()))
        })
        .collect();
    let faults = nemesis::rage(cluster, &admin, seed, plan.limits);
    futures::future::join(faults, reshapes::go(cluster, seed, plan.limits.length)).await;
    stop.cancel();
    rest(cluster).await;
    if cluster.workload == Workload::Mixed {
        serve(cluster, &admin).await;
    }
    for client in clients {
        if client.await.is_err() {
            cluster.history.violation("a client panicked".to_owned());
        }
    }
    match cluster.workload {
        Workload::Mixed => linearizable::check(&cluster.history),
        Workload::Counters => counted::check_counters(cluster, &admin, REST).await,
        Workload::Wide => counted::check_rows(&admin, REST).await,
    }
}

/// Returns at the first violation or panic.
async fn wrong(cluster: &Cluster) {
    while cluster.history.violations().is_empty() && PANICS.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(LOOK).await;
    }
}

/// Starts all nodes and creates the tables; false if that fails.
async fn begin(cluster: &Arc<Cluster>, admin: &Arc<Client>, plan: &Plan) -> bool {
    let metas: Vec<NodeId> = METAS.map(NodeId).collect();
    for meta in metas {
        if let Err(error) = nodes::start_meta(cluster, meta).await {
            cluster.history.violation(format!("meta {meta} does not start: {error}"));
            return false;
        }
    }
    for node in (1..=plan.nodes).map(NodeId) {
        if let Err(error) = nodes::start_data(cluster, node).await {
            cluster.history.violation(format!("node {node} does not start: {error}"));
            return false;
        }
    }
    for (table, ddl) in cluster.workload.creation(plan.factor) {
        if !create(cluster, admin, table, ddl).await {
            return false;
        }
    }
    if cluster.workload == Workload::Counters {
        let database = cluster.newest_catalog().databases.get(DATABASE).map(|database| database.id);
        let ddl = tables::create_sequence(database.unwrap_or_default());
        if !create(cluster, admin, SEQUENCE, ddl).await {
            return false;
        }
    }
    cluster.history.note("the tables exist");
    true
}

/// Has meta create a table or a sequence; false if that fails.
async fn create(cluster: &Arc<Cluster>, admin: &Arc<Client>, name: &str, ddl: Ddl) -> bool {
    let deadline = Instant::now() + REST;
    loop {
        let created = admin.change(ddl.clone(), Duration::from_secs(30)).await;
        let Err(error) = created else { return true };
        if Instant::now() >= deadline {
            cluster.history.violation(format!("{name} was not created: {error}"));
            return false;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Checks the invariants that must hold at all times.
async fn watch(cluster: Arc<Cluster>, compared: Arc<Mutex<u64>>) {
    let (mut leaders, mut ranges, mut replicas) =
        (Leaders::default(), Ranges::default(), Replicas::default());
    let mut next = Instant::now() + COMPARE;
    loop {
        tokio::time::sleep(LOOK).await;
        leaders.look(&cluster);
        ranges.look(&cluster);
        if Instant::now() >= next {
            replicas.look(&cluster).await;
            *compared.lock() = replicas.compared;
            next = Instant::now() + COMPARE;
        }
    }
}

/// Ends the faults and waits until everything is in order again.
async fn rest(cluster: &Arc<Cluster>) {
    cluster.history.note("no more faults");
    revive(cluster).await;
    // Repairs and elections take their time.
    let deadline = Instant::now() + REST;
    loop {
        let Some(why) = unrest(cluster).await else { break };
        if Instant::now() >= deadline {
            cluster
                .history
                .violation(format!("the cluster is not at rest after {} s: {why}", REST.as_secs()));
            break;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    cluster.history.note("at rest");
}

/// Checks that at rest every key and the events can be written and read.
async fn serve(cluster: &Arc<Cluster>, admin: &Arc<Client>) {
    for key in 0..KEYS {
        if !admin.put(key, REST).await
            || !admin.exchange(key, REST).await
            || !admin.get(key, REST).await
        {
            cluster.history.violation(format!("key {key} cannot be written and read at rest"));
        }
    }
    if !admin.append(REST).await {
        cluster.history.violation("no event can be written at rest".to_owned());
    }
    // The last check of acknowledged rows: none is lost, none appears twice.
    let acknowledged = cluster.history.acknowledged();
    match admin.all(EVENTS, REST).await {
        Ok(events) => rows::check(&cluster.history, &acknowledged, &events),
        Err(error) => cluster.history.violation(format!("events cannot be read at rest: {error}")),
    }
    if !admin.read_keyed(REST).await {
        cluster.history.violation("the keys cannot be read at rest".to_owned());
    }
}

/// Starts nodes that are down, and restarts those with stopped groups. A process whose log has failed must have
/// ended by itself.
async fn revive(cluster: &Arc<Cluster>) {
    tokio::time::sleep(END_WAIT).await;
    for (node, host) in cluster.hosts() {
        // A log without space was closed or continues: no failure of this kind.
        if let Some(error @ RaftError::Io { .. }) = host.log_failure() {
            cluster
                .history
                .violation(format!("node {node} continues although its log failed: {error}"));
        }
    }
    for node in unsynced(cluster) {
        cluster.history.violation(format!("node {node} continues although its log was not synced"));
    }
    let mut stopped = Vec::new();
    for (node, host) in cluster.hosts() {
        let mut groups = host.known_groups().into_iter();
        let failed = groups.find_map(|(group, _)| host.group(group)?.status().stopped);
        stopped.extend(failed.map(|why| (node, why)));
    }
    for (node, why) in stopped {
        cluster.history.note(format_args!("node {node} had stopped: {why}"));
        if METAS.contains(&node.0) {
            nodes::crash_meta(cluster, node, Random::new(node.0, 7)).await;
        } else {
            nodes::crash_data(cluster, node, Random::new(node.0, 7)).await;
        }
    }
    let metas: Vec<NodeId> = METAS.map(NodeId).collect();
    for meta in metas {
        if let Err(error) = nodes::start_meta(cluster, meta).await {
            cluster.history.violation(format!("meta {meta} does not start: {error}"));
        }
    }
    let ids: Vec<NodeId> = cluster.data.lock().keys().copied().collect();
    for node in &ids {
        if let Err(error) = nodes::start_data(cluster, *node).await {
            cluster.history.violation(format!("node {node} does not start: {error}"));
        }
    }
    for node in ids {
        nemesis::undrain(cluster, node).await;
    }
}

/// The datanodes that are up although a sync of their log has failed.
fn unsynced(cluster: &Cluster) -> Vec<NodeId> {
    let nodes = cluster.data.lock();
    let unsynced = nodes.values().filter(|node| node.up.is_some() && node.disk.syncs_failed() > 0);
    unsynced.map(|node| node.id).collect()
}

/// The first thing that is not in order yet; `None` at rest.
async fn unrest(cluster: &Arc<Cluster>) -> Option<String> {
    // Meta comes first: repairs of replicas need a leader and its whole group.
    if cluster.leading_meta().is_none() {
        return Some("no meta leads".to_owned());
    }
    if !cluster.metas_are_whole() {
        return Some("a member of meta's group is missing".to_owned());
    }
    for table in cluster.tables() {
        // Each partition must have all replicas, a leader, and equal contents.
        for route in table.partitions.routes() {
            let id = route.partition;
            let factor = table.schema.options.replication_factor.unwrap_or(3);
            let count = usize::try_from(factor).unwrap_or(3).min(cluster.data_up().len());
            if route.replicas.len() != count {
                return Some(format!("partition {id} has replicas {:?}", route.replicas));
            }
            if cluster.leader_of(id).is_none() {
                return Some(format!("partition {id} has no leader"));
            }
            let mut contents = BTreeMap::new();
            for node in route.replicas.values() {
                let Some(content) = replicas::read(cluster, *node, id).await else {
                    return Some(format!("node {node} does not hold partition {id}"));
                };
                contents.insert(*node, content);
            }
            let mut values = contents.values();
            let first = values.next().copied();
            if values.any(|value| Some(*value) != first) {
                return Some(format!("replicas of partition {id} differ: {contents:?}"));
            }
        }
    }
    stranger(cluster).await
}

/// A replica of a partition in no table: left over from a merge, or created for a partition that never began.
async fn stranger(cluster: &Cluster) -> Option<String> {
    let partitions = cluster.partitions();
    for (node, datanode) in cluster.data_up() {
        let Ok(replicas) = datanode.status().await else {
            return Some(format!("node {node} does not report its replicas"));
        };
        if let Some(replica) =
            replicas.iter().find(|replica| !partitions.contains(&replica.partition))
        {
            return Some(format!(
                "node {node} holds partition {}, which belongs to no table",
                replica.partition
            ));
        }
    }
    None
}
