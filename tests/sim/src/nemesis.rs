//! Faults, chosen by the seed.
//!
//! Every fault is undone after a while; several overlap. The cluster must survive them as the README promises, so
//! no two disks are lost for good, and none at all in a run whose tables may have a single replica.
//!
//! `disks.rs` and `strays.rs` have faults outside the weighted list: disks that come back without data, and messages
//! that no correct node sends.

mod disks;
mod strays;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use partita_proto::error::Error;
use partita_proto::id::NodeId;
use partita_proto::service::{
    AdminOrder, ClusterService, DataService, Ddl, MetaService, TableChange,
};
use partita_raft::transport::memory::Faults;
use tokio::task::JoinSet;

use crate::client::Client;
use crate::cluster::Cluster;
use crate::net::Weather;
use crate::nodes::{self, DataNode, METAS, MetaNode};
use crate::random::Random;
use crate::tables::{self, DATABASE, KEYED};

/// Time limit for waiting for a change of the catalog.
const CHANGE_PATIENCE: Duration = Duration::from_secs(20);

/// A fault that a run may contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// A node loses power in the middle of a write or after it.
    Crash,
    /// A leader crashes and returns before its absence is noticed.
    BounceLeader,
    CrashMeta,
    BounceMeta,
    /// Most replicas of a partition crash at the same moment and return at once.
    BounceMost,
    /// All nodes lose power at once.
    Blackout,
    Isolate,
    IsolateMeta,
    OneWay,
    BadWeather,
    SlowDisk,
    FullDisk,
    /// Syncs of the log fail from now on: the process must end, and is restarted.
    BrokenDisk,
    /// The log has flipped bits when the power returns.
    Rot,
    /// An older copy of the disks is present when the power returns.
    OlderCopy,
    /// No file can be opened or created for a while.
    OutOfFiles,
    ClockJump,
    LoseNode,
    Drain,
    ReplicationFactor,
    MoveReplica,
    TransferLeader,
    Flush,
    OtherTable,
}

const FAULTS: [(Fault, u64); 24] = [
    (Fault::Crash, 5),
    (Fault::BounceLeader, 6),
    (Fault::CrashMeta, 2),
    (Fault::BounceMeta, 2),
    (Fault::BounceMost, 2),
    (Fault::Blackout, 1),
    (Fault::Isolate, 4),
    (Fault::IsolateMeta, 1),
    (Fault::OneWay, 4),
    (Fault::BadWeather, 3),
    (Fault::SlowDisk, 2),
    (Fault::FullDisk, 1),
    (Fault::ClockJump, 1),
    (Fault::LoseNode, 1),
    (Fault::Drain, 2),
    (Fault::ReplicationFactor, 2),
    (Fault::MoveReplica, 3),
    (Fault::TransferLeader, 3),
    (Fault::Flush, 4),
    (Fault::OtherTable, 1),
    (Fault::BrokenDisk, 2),
    (Fault::Rot, 2),
    (Fault::OlderCopy, 2),
    (Fault::OutOfFiles, 2),
];

/// Limits of a run's faults.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Simulated time with faults.
    pub(crate) length: Duration,
    /// Replication factors that tables may get.
    pub(crate) factors: &'static [u32],
    /// True if a disk may be lost for good.
    pub(crate) lose: bool,
}

/// Causes faults for a while; returns when all of them are over and undone.
pub(crate) async fn rage(cluster: &Arc<Cluster>, client: &Arc<Client>, seed: u64, limits: Limits) {
    let mut random = Random::new(seed, 2);
    let deadline = tokio::time::Instant::now() + limits.length;
    let mut under_way = JoinSet::new();
    // True if no further disk may be lost.
    let lost = Arc::new(AtomicBool::new(!limits.lose));
    // Runs differ in the kinds of faults: some bugs show only without certain others.
    let muted = random.draw();
    let active: Vec<(Fault, u64)> = (0..)
        .zip(FAULTS)
        .filter(|(index, _)| (muted >> index) & 3 != 0)
        .map(|(_, fault)| fault)
        .collect();
    let weights: u64 = active.iter().map(|(_, weight)| weight).sum();
    // A separate random sequence, so that the course of the other faults stays the same.
    let mut wiping = Random::new(seed, 9);
    if wiping.once_in(3) {
        let (cluster, wait) = (Arc::clone(cluster), wiping.millis(0, millis(limits.length)));
        under_way.spawn(async move {
            tokio::time::sleep(wait).await;
            match wiping.once_in(2) {
                true => wipe(&cluster, wiping).await,
                false => put_back_meta(&cluster, wiping).await,
            }
        });
    }
    // For the same reason, disks that come back without data and messages that no correct node sends have theirs.
    // They come early: a disk that another fault has lost already rules one of them out.
    let early = millis(limits.length) / 4 + 1;
    let mut harming = Random::new(seed, 12);
    if limits.lose && harming.once_in(2) {
        let wait = harming.millis(0, early);
        under_way.spawn(disks::harm(Arc::clone(cluster), harming, wait, Arc::clone(&lost)));
    }
    let mut straying = Random::new(seed, 13);
    let (stray, wait) = (straying.below(4), straying.millis(0, early));
    match stray {
        0 => drop(under_way.spawn(strays::order(Arc::clone(cluster), straying, wait))),
        1 => drop(under_way.spawn(strays::change_terms(Arc::clone(cluster), straying, wait))),
        _ => {}
    }
    while tokio::time::Instant::now() < deadline && weights > 0 {
        tokio::time::sleep(random.millis(100, 2500)).await;
        let mut drawn = random.below(weights);
        let chosen = active.iter().find(|(_, weight)| {
            let is_hit = drawn < *weight;
            drawn = drawn.saturating_sub(*weight);
            is_hit
        });
        let Some((fault, _)) = chosen.copied() else { continue };
        // Rotten or outdated data counts as a lost disk.
        let loses = matches!(fault, Fault::LoseNode | Fault::Rot | Fault::OlderCopy);
        if loses && lost.swap(true, Ordering::Relaxed) {
            continue;
        }
        let mine = Random::new(random.draw(), 3);
        under_way.spawn(happen(
            Arc::clone(cluster),
            Arc::clone(client),
            fault,
            mine,
            limits.factors,
        ));
    }
    while under_way.join_next().await.is_some() {}
    cluster.net.heal();
    cluster.net.set_weather(Weather::FAIR, Faults::default());
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

/// A meta loses its disk. At first the loss is unknown and it returns as a new member: it must not take part in the
/// group. Then it is ordered to rejoin.
async fn wipe(cluster: &Arc<Cluster>, mut random: Random) {
    let meta = NodeId(METAS.start() + random.below(3));
    let patience = tokio::time::Instant::now() + Duration::from_secs(30);
    // Data that the other members lack would be lost.
    while !cluster.metas_are_whole() {
        if tokio::time::Instant::now() > patience {
            cluster.history.note(format_args!("meta {meta} cannot be spared"));
            return;
        }
        tokio::time::sleep(random.millis(20, 200)).await;
    }
    if !nodes::crash_meta(cluster, meta, random.clone()).await {
        return;
    }
    nodes::wipe_meta(cluster, meta, false);
    cluster.history.note(format_args!("meta {meta} lost its disk"));
    tokio::time::sleep(random.millis(5, 2000)).await;
    start_meta(cluster, meta).await;
    tokio::time::sleep(random.millis(500, 4000)).await;
    if let Some(standing) = cluster.meta(meta).and_then(|meta| meta.standing().ok())
        && (standing.applied > 0 || standing.leads)
    {
        cluster.history.violation(format!(
            "meta {meta} takes part in the group without its data: {standing:?}"
        ));
    }
    while !nodes::crash_meta(cluster, meta, random.clone()).await {
        tokio::time::sleep(random.millis(20, 200)).await;
    }
    nodes::wipe_meta(cluster, meta, true);
    cluster.history.note(format_args!("meta {meta} rejoins"));
    start_meta(cluster, meta).await;
}

/// A meta returns with an older copy of its disk: it must not take part in the group. Then it is ordered to
/// rejoin.
async fn put_back_meta(cluster: &Arc<Cluster>, mut random: Random) {
    let meta = NodeId(METAS.start() + random.below(3));
    let Some(copy) = cluster.metas.lock().get(&meta).map(MetaNode::copy) else { return };
    tokio::time::sleep(random.millis(1000, 8000)).await;
    let patience = tokio::time::Instant::now() + Duration::from_secs(30);
    let is_old_enough = || {
        let up = cluster.metas_up();
        up.len() == METAS.count() && up.iter().all(|(_, member)| copy.is_outlived(meta, member))
    };
    // A member that lags behind could not tell that the copy is old.
    while !is_old_enough() || !cluster.metas_are_whole() {
        if tokio::time::Instant::now() > patience {
            cluster.history.note(format_args!("no copy of meta {meta} is old enough"));
            return;
        }
        tokio::time::sleep(random.millis(20, 200)).await;
    }
    if !nodes::crash_meta(cluster, meta, random.clone()).await {
        return;
    }
    if let Some(node) = cluster.metas.lock().get_mut(&meta) {
        node.put_back(copy);
    }
    cluster.history.note(format_args!("meta {meta} has an older copy of its disk"));
    start_meta(cluster, meta).await;
    if let Some(older) = cluster.meta(meta) {
        let refused = tokio::time::timeout(Duration::from_secs(10), older.refused()).await;
        cluster.history.note(format_args!("an older copy of meta {meta}: {refused:?}"));
        if older.standing().is_ok_and(|standing| standing.leads) {
            cluster.history.violation(format!("an older copy of meta {meta} leads"));
        }
    }
    while !nodes::crash_meta(cluster, meta, random.clone()).await {
        tokio::time::sleep(random.millis(20, 200)).await;
    }
    nodes::wipe_meta(cluster, meta, true);
    cluster.history.note(format_args!("meta {meta} rejoins"));
    start_meta(cluster, meta).await;
}

async fn happen(
    cluster: Arc<Cluster>,
    client: Arc<Client>,
    fault: Fault,
    mut random: Random,
    factors: &'static [u32],
) {
    let up: Vec<NodeId> = cluster.data_up().into_iter().map(|(node, _)| node).collect();
    let Some(node) = random.pick(&up) else { return };
    let meta = NodeId(METAS.start() + random.below(3));
    cluster.history.note(format_args!("{fault:?} node {node} or meta {meta}"));
    match fault {
        Fault::Crash => crash(&cluster, node, random).await,
        Fault::BounceLeader => {
            let partition = random.pick(&cluster.partitions());
            let leader = partition.and_then(|partition| cluster.leader_of(partition));
            bounce(&cluster, leader.filter(|leader| up.contains(leader)).unwrap_or(node), random)
                .await;
        }
        Fault::CrashMeta => {
            if nodes::crash_meta(&cluster, meta, random.clone()).await {
                tokio::time::sleep(random.millis(100, 6000)).await;
                start_meta(&cluster, meta).await;
            }
        }
        Fault::BounceMeta => {
            let leader = cluster.leading_meta().map_or(meta, |(leader, _)| leader);
            if nodes::crash_meta(&cluster, leader, random.clone()).await {
                tokio::time::sleep(random.millis(5, 120)).await;
                start_meta(&cluster, leader).await;
            }
        }
        Fault::BounceMost => bounce_most(&cluster, random).await,
        Fault::Blackout => blackout(&cluster, &up, random).await,
        Fault::Isolate => {
            cluster.net.isolate(node);
            tokio::time::sleep(random.millis(300, 8000)).await;
            cluster.net.heal();
        }
        Fault::IsolateMeta => {
            cluster.net.isolate(meta);
            tokio::time::sleep(random.millis(300, 8000)).await;
            cluster.net.heal();
        }
        Fault::OneWay => {
            let peer = random.pick(&up).filter(|peer| *peer != node).unwrap_or(meta);
            cluster.net.cut(node, peer);
            tokio::time::sleep(random.millis(300, 6000)).await;
            cluster.net.heal();
        }
        Fault::BadWeather => {
            let delay_max = random.millis(5, 200);
            let weather = Weather { delay_max, lost: random.below(150) };
            let links = Faults { delay_max: delay_max / 4, breaks: 5000, silences: 1000 };
            cluster.net.set_weather(weather, links);
            tokio::time::sleep(random.millis(300, 6000)).await;
            cluster.net.set_weather(Weather::FAIR, Faults::default());
        }
        Fault::SlowDisk | Fault::FullDisk | Fault::OutOfFiles => {
            trouble(&cluster, node, fault, random).await
        }
        Fault::ClockJump => {
            let offset_ms = i64::try_from(random.below(7_200_000)).unwrap_or_default() - 3_600_000;
            if let Some(node) = cluster.data.lock().get(&node) {
                node.clock.wrong_by_ms.store(offset_ms, Ordering::Relaxed);
            }
        }
        Fault::BrokenDisk => {
            if let Some(node) = cluster.data.lock().get(&node) {
                node.disk.break_syncs();
            }
        }
        Fault::LoseNode => lose(&cluster, node, random).await,
        Fault::Rot => rot(&cluster, node, random).await,
        Fault::OlderCopy => put_back(&cluster, node, random).await,
        Fault::Drain | Fault::MoveReplica | Fault::TransferLeader => {
            administer(&cluster, node, fault, random).await;
        }
        Fault::ReplicationFactor => {
            let factor = random.pick(factors).unwrap_or(3);
            let name = random.pick(cluster.workload.tables()).unwrap_or(KEYED);
            let change = TableChange::SetOptions(Box::new(tables::options(name, factor)));
            let (database, name) = (DATABASE.to_owned(), name.to_owned());
            let outcome =
                client.change(Ddl::AlterTable { database, name, change }, CHANGE_PATIENCE).await;
            cluster.history.note(format_args!("replication factor {factor}: {outcome:?}"));
        }
        Fault::Flush => {
            for (_, node) in cluster.data_up() {
                for partition in cluster.partitions() {
                    // Fails on nodes without the partition and on those that have just lost their power.
                    node.flush_partition(partition).await.ok();
                }
            }
        }
        Fault::OtherTable => other_table(&cluster, &client, random).await,
    }
}

async fn start_data(cluster: &Arc<Cluster>, node: NodeId) {
    if let Err(error) = nodes::start_data(cluster, node).await {
        if matches!(error, Error::Corrupted(_)) {
            cluster.history.violation(format!("node {node} does not start: {error}"));
        }
        cluster.history.note(format_args!("node {node} does not start: {error}"));
    }
}

async fn start_meta(cluster: &Arc<Cluster>, meta: NodeId) {
    if let Err(error) = nodes::start_meta(cluster, meta).await {
        cluster.history.violation(format!("meta {meta} does not start: {error}"));
    }
}

async fn crash(cluster: &Arc<Cluster>, node: NodeId, mut random: Random) {
    if random.once_in(2) {
        // The power goes between any two steps of the log.
        if let Some(node) = cluster.data.lock().get(&node) {
            node.disk.cut_after(random.below(40));
        }
        tokio::time::sleep(random.millis(1, 100)).await;
    }
    if nodes::crash_data(cluster, node, random.clone()).await {
        tokio::time::sleep(random.millis(100, 7000)).await;
        start_data(cluster, node).await;
    }
}

async fn bounce(cluster: &Arc<Cluster>, node: NodeId, mut random: Random) {
    if nodes::crash_data(cluster, node, random.clone()).await {
        tokio::time::sleep(random.millis(5, 120)).await;
        start_data(cluster, node).await;
    }
}

async fn bounce_most(cluster: &Arc<Cluster>, mut random: Random) {
    let tables = cluster.tables();
    let routes: Vec<_> = tables.iter().flat_map(|table| table.partitions.routes()).collect();
    let Some(route) = random.pick(&routes) else { return };
    let mut nodes: Vec<NodeId> = route.replicas.values().copied().collect();
    // With three replicas or more, a random one stays up.
    if nodes.len() > 2 {
        nodes.remove(usize::try_from(random.below(3)).unwrap_or_default());
    }
    let mut next_random = || Random::new(random.draw(), 4);
    let bounced = nodes.iter().map(|node| bounce(cluster, *node, next_random()));
    futures::future::join_all(bounced).await;
}

async fn blackout(cluster: &Arc<Cluster>, up: &[NodeId], mut random: Random) {
    let mut next_random = || Random::new(random.draw(), 4);
    let data: Vec<_> =
        up.iter().map(|node| nodes::crash_data(cluster, *node, next_random())).collect();
    let meta: Vec<_> =
        METAS.map(|meta| nodes::crash_meta(cluster, NodeId(meta), next_random())).collect();
    let (data, meta) =
        futures::future::join(futures::future::join_all(data), futures::future::join_all(meta))
            .await;
    tokio::time::sleep(random.millis(5, 2000)).await;
    for (meta, _) in METAS.zip(meta).filter(|(_, crashed)| *crashed) {
        start_meta(cluster, NodeId(meta)).await;
    }
    for (node, _) in up.iter().zip(data).filter(|(_, crashed)| *crashed) {
        start_data(cluster, *node).await;
    }
}

async fn trouble(cluster: &Arc<Cluster>, node: NodeId, fault: Fault, mut random: Random) {
    let apply = |change: &dyn Fn(&DataNode)| {
        if let Some(node) = cluster.data.lock().get(&node) {
            change(node);
        }
    };
    // Every trouble affects the log's disk and the files alike.
    match fault {
        Fault::SlowDisk => {
            let pause = random.millis(20, 800);
            apply(&|node: &DataNode| {
                node.disk.set_pause(pause);
                node.files.set_pause(pause);
            });
        }
        Fault::OutOfFiles => apply(&|node: &DataNode| {
            node.disk.set_out_of_files(true);
            node.files.set_out_of_files(true);
        }),
        _ => apply(&|node: &DataNode| {
            node.disk.set_space(Some(node.disk.used()));
            node.files.set_full(true);
        }),
    }
    if fault == Fault::OutOfFiles {
        until_refused(cluster, node).await;
    }
    // The trouble lasts for a while and is then undone.
    tokio::time::sleep(random.millis(500, 8000)).await;
    apply(&|node: &DataNode| {
        node.disk.set_pause(Duration::ZERO);
        node.files.set_pause(Duration::ZERO);
        node.disk.set_space(None);
        node.files.set_full(false);
        node.disk.set_out_of_files(false);
        node.files.set_out_of_files(false);
    });
}

/// Waits until the node's log has been refused a file, but not for ever: until then it has a spare file and is not
/// affected.
async fn until_refused(cluster: &Arc<Cluster>, node: NodeId) {
    let refused = || cluster.data.lock().get(&node).map_or(0, |node| node.disk.files_refused());
    let (count, deadline) = (refused(), tokio::time::Instant::now() + Duration::from_secs(20));
    while refused() == count && tokio::time::Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// A disk is lost, and another node takes the lost one's place.
///
/// This waits until every other replica is in its place: a disk lost while another copy is still missing would be
/// one loss more than a cluster promises to survive.
async fn lose(cluster: &Arc<Cluster>, node: NodeId, mut random: Random) {
    if !until_spared(cluster, node, &mut random).await
        || !nodes::crash_data(cluster, node, random.clone()).await
    {
        return;
    }
    replace_node(cluster, node, &mut random).await;
}

/// A new node with empty disks takes the place of one that is down for good.
async fn replace_node(cluster: &Arc<Cluster>, node: NodeId, random: &mut Random) {
    let next = {
        let mut nodes = cluster.data.lock();
        nodes.remove(&node);
        let last = nodes.keys().last().map_or(0, |last| last.0).max(node.0);
        NodeId(last + 1)
    };
    tokio::time::sleep(random.millis(100, 4000)).await;
    cluster.data.lock().insert(next, DataNode::new(next));
    cluster.history.note(format_args!("node {next} takes the place of node {node}"));
    start_data(cluster, next).await;
}

/// A node returns with flipped bits in its log. Other replicas replace what is damaged.
async fn rot(cluster: &Arc<Cluster>, node: NodeId, mut random: Random) {
    if !until_spared(cluster, node, &mut random).await
        || !nodes::crash_data(cluster, node, random.clone()).await
    {
        return;
    }
    if let Some(node) = cluster.data.lock().get_mut(&node) {
        let place = node.disk.rot(|bound| random.below(bound));
        node.rotten = true;
        cluster.history.note(format_args!("node {} has bad bits in {place:?}", node.id));
    }
    tokio::time::sleep(random.millis(5, 3000)).await;
    start_data(cluster, node).await;
}

/// A node returns with an older copy of its disks: it has forgotten later acknowledged writes and votes. The
/// replicas of the copy must not be served; others replace them.
async fn put_back(cluster: &Arc<Cluster>, node: NodeId, mut random: Random) {
    let copy = cluster.data.lock().get(&node).and_then(DataNode::copy);
    let Some(copy) = copy else { return };
    // The copy must be older than a generation that meta has acknowledged; otherwise it cannot be told from the
    // current data.
    tokio::time::sleep(random.millis(500, 10_000)).await;
    let outlived = || cluster.data.lock().get(&node).is_some_and(|node| copy.is_outlived(node));
    let patience = tokio::time::Instant::now() + Duration::from_secs(30);
    while !outlived() {
        if tokio::time::Instant::now() > patience {
            cluster.history.note(format_args!("no copy of node {node} is old enough"));
            return;
        }
        tokio::time::sleep(random.millis(20, 200)).await;
    }
    if !until_spared(cluster, node, &mut random).await
        || !nodes::crash_data(cluster, node, random.clone()).await
    {
        return;
    }
    if let Some(node) = cluster.data.lock().get_mut(&node) {
        node.put_back(&copy);
        cluster.history.note(format_args!("node {} has an older copy of its disks", node.id));
    }
    tokio::time::sleep(random.millis(5, 3000)).await;
    start_data(cluster, node).await;
    // For a while after the start the node must not report a replica of the copy as served.
    for _ in 0..20 {
        let Some(datanode) = cluster.datanode(node) else { return };
        let statuses = datanode.status().await.unwrap_or_default();
        if let Some((partition, replica)) = copy.served(&statuses) {
            cluster.history.violation(format!(
                "node {node} serves replica {replica} of partition {partition} of an older copy"
            ));
            return;
        }
        tokio::time::sleep(random.millis(100, 1000)).await;
    }
}

/// Waits until every other replica is in its place; false if that takes too long.
async fn until_spared(cluster: &Arc<Cluster>, node: NodeId, random: &mut Random) -> bool {
    let patience = tokio::time::Instant::now() + Duration::from_secs(30);
    while !cluster.can_spare(node) {
        if tokio::time::Instant::now() > patience {
            cluster.history.note(format_args!("node {node} cannot be spared"));
            return false;
        }
        tokio::time::sleep(random.millis(20, 200)).await;
    }
    true
}

async fn administer(cluster: &Arc<Cluster>, node: NodeId, fault: Fault, mut random: Random) {
    let Some((_, meta)) = cluster.leading_meta() else { return };
    let routes: Vec<_> =
        cluster.tables().iter().flat_map(|table| table.partitions.routes().to_vec()).collect();
    let choice = usize::try_from(random.below(1000)).unwrap_or_default();
    let order = match fault {
        Fault::Drain => AdminOrder::Drain { node, on: true },
        Fault::MoveReplica => {
            let Some(route) = routes.get(choice % routes.len().max(1)) else { return };
            let holders: Vec<NodeId> = route.replicas.values().copied().collect();
            let Some(source) = random.pick(&holders) else { return };
            AdminOrder::MoveReplica { partition: route.partition, from: source, to: node }
        }
        _ => {
            let Some(route) = routes.get(choice % routes.len().max(1)) else { return };
            AdminOrder::TransferLeader { partition: route.partition, to: node }
        }
    };
    let wait = Duration::from_secs(10);
    let outcome = tokio::time::timeout(wait, meta.administer(order.clone())).await;
    cluster.history.note(format_args!("{order:?}: {outcome:?}"));
    if fault == Fault::Drain {
        tokio::time::sleep(random.millis(1000, 15_000)).await;
        undrain(cluster, node).await;
    }
}

/// Ends the draining of a node.
pub(crate) async fn undrain(cluster: &Arc<Cluster>, node: NodeId) {
    for _ in 0..100 {
        if let Some((_, meta)) = cluster.leading_meta()
            && meta.administer(AdminOrder::Drain { node, on: false }).await.is_ok()
        {
            return;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn other_table(cluster: &Arc<Cluster>, client: &Arc<Client>, mut random: Random) {
    let name = format!("other{}", random.below(1_000_000));
    let outcome = client.change(tables::create(&name, 3, &[3]), CHANGE_PATIENCE).await;
    cluster.history.note(format_args!("create {name}: {outcome:?}"));
    tokio::time::sleep(random.millis(10, 5000)).await;
    let drop = Ddl::DropTable {
        database: DATABASE.to_owned(),
        name: name.clone(),
        if_exists: true,
        cascade: false,
    };
    let dropped = client.change(drop, CHANGE_PATIENCE).await;
    cluster.history.note(format_args!("drop {name}: {dropped:?}"));
}
