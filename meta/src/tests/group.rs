//! Three metas in one process: the leader, the state of the others, and the effects on the cluster's nodes.

use std::collections::BTreeMap;
use std::time::Instant;

use futures::FutureExt;
use partita_proto::id::{PartitionId, ReplicaId};
use partita_proto::label::Labels;
use partita_proto::member::{Members, Registration};
use partita_proto::service::{AdminOrder, ClusterService, DataNodes, MetaService, RequestId};

use super::changes::PATIENCE;
use super::nodes::{FakeNodes, Held, Kind};
use super::trio::{LOST_AFTER, Trio};
use super::*;
use crate::node::Meta;

fn whole(name: &str) -> NewTable {
    NewTable { cuts: vec![], ..new_table(name) }
}

fn truncate(name: &str) -> Ddl {
    Ddl::TruncateTable { database: "public".to_owned(), name: name.to_owned() }
}

/// The first partition of a table with its recorded replicas.
fn places(state: &State, name: &str) -> (PartitionId, BTreeMap<ReplicaId, NodeId>) {
    let database = state.database_named("public").unwrap().id;
    let table = state.table_named(database, name).unwrap();
    let partition = state.partitions_of(table).next().unwrap();
    (partition.id, partition.replicas.clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_leader_ends_another_leads_and_changes_go_on() {
    let mut trio = Trio::start(3).await;
    trio.until("one alone leads", || trio.leading().len() == 1).await;
    assert_eq!(trio.change(create(new_table("t"))).await, Ok(true));
    assert!(trio.nodes.all().iter().all(|node| trio.nodes.one(node.0).held.lock().len() == 3));
    trio.agree().await;
    let first = trio.leader_that_hears().await;
    trio.kill(first).await;
    let second = trio.leader_that_hears().await;
    assert_ne!(first, second);
    trio.until("one alone leads", || trio.leading().len() == 1).await;
    assert!(trio.sees(second, "t"));
    assert_eq!(trio.change(create(new_table("u"))).await, Ok(true));
    assert_eq!(trio.change(alter("t", add(vec![field("x")]))).await, Ok(true));
    trio.open(first).await;
    trio.agree().await;
    assert!(trio.sees(first, "u"));
    // Asked to stop, the second makes way too, and says so.
    let second = trio.leader().await;
    let leads = trio.meta(second).leads();
    trio.stop(second).await;
    assert!(!*leads.borrow());
    assert_eq!(trio.change(drop_table("u")).await, Ok(true));
    trio.open(second).await;
    trio.agree().await;
    assert!(!trio.sees(second, "u") && trio.sees(second, "t"));
    trio.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_cut_off_says_that_it_leads_no_more() {
    let trio = Trio::start(3).await;
    let first = trio.leader_that_hears().await;
    trio.network.isolate(NodeId(first as u64 + 1));
    trio.until("another leads", || trio.leading().iter().any(|at| *at != first)).await;
    trio.until("the first one does not", || !trio.leading().contains(&first)).await;
    let refused = trio.meta(first).change(create(new_table("t"))).await;
    assert!(refused.as_ref().is_err_and(Error::is_retryable), "{refused:?}");
    trio.network.heal();
    assert_eq!(trio.change(create(new_table("t"))).await, Ok(true));
    trio.agree().await;
    trio.end().await;
}

/// True if a follower answers every request with the leader's id and accepts no heartbeat.
async fn says_who_leads(trio: &Trio, at: usize, leader: usize) -> bool {
    fn told<T: std::fmt::Debug>(answer: Result<T, Error>) -> Option<NodeId> {
        match answer {
            Err(Error::NotLeader { partition: PartitionId(0), leader }) => leader,
            // It leads meanwhile.
            Ok(_) => None,
            other => panic!("{other:?}"),
        }
    }
    let meta = trio.meta(at);
    let heard = || {
        let reports = meta.core.presence.reports().reports;
        reports.into_iter().map(|(node, report)| (node, report.at)).collect::<Vec<_>>()
    };
    let before = heard();
    let heartbeat = trio.nodes.heartbeats().remove(0);
    let (address, labels) = ("a".to_owned(), Labels::default());
    let wish = Registration { identity: 99, node: None, address, labels };
    let drain = AdminOrder::Drain { node: NodeId(1), on: false };
    let answers = [
        told(meta.heartbeat(heartbeat).await),
        told(meta.register(wish).await),
        told(meta.change(create(new_table("t"))).await),
        told(meta.administer(drain).await),
    ];
    answers.iter().all(|told| *told == Some(NodeId(leader as u64 + 1))) && heard() == before
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_that_do_not_lead_say_who_does() {
    let trio = Trio::start(3).await;
    // After an election they know a moment later.
    let deadline = Instant::now() + PATIENCE;
    loop {
        let leader = trio.leader_that_hears().await;
        let mut all = true;
        for at in trio.running().into_iter().filter(|at| *at != leader) {
            all &= says_who_leads(&trio, at, leader).await;
        }
        if all {
            break;
        }
        assert!(Instant::now() < deadline, "they do not say who leads");
    }
    // The leader rejects heartbeats of unknown nodes.
    let beat = trio.nodes.heartbeats().remove(0);
    let stranger = partita_proto::member::Heartbeat { identity: 99, ..beat };
    let refused = trio.ask(async |meta| meta.heartbeat(stranger.clone()).await).await;
    assert!(matches!(refused, Err(Error::NotFound { kind: "node", .. })), "{refused:?}");
    trio.end().await;
}

/// A table whose entry takes up space in the log.
fn bulky(name: &str) -> Ddl {
    let mut table = whole(name);
    table.schema.columns[2].comment = Some("x".repeat(50_000));
    create(table)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_was_away_for_longer_than_the_log_reaches_back_gets_the_catalog() {
    let mut trio = Trio::start(3).await;
    let leader = trio.leader_that_hears().await;
    let away = (leader + 1) % 3;
    trio.change(create(whole("old"))).await.unwrap();
    trio.agree().await;
    let applied = trio.meta(away).core.group.status().applied;
    trio.kill(away).await;
    for number in 0..40 {
        let name = format!("t{number}");
        trio.change(bulky(&name)).await.unwrap();
        if number % 4 > 0 {
            trio.change(drop_table(&name)).await.unwrap();
        }
    }
    trio.change(drop_table("old")).await.unwrap();
    // A follower, too, purges the entries that are durable in its store.
    for at in trio.running() {
        let purged = || trio.meta(at).core.group.status().purged;
        trio.until("the log is purged", || purged() > applied).await;
    }
    trio.open(away).await;
    trio.agree().await;
    assert!(trio.sees(away, "t36") && !trio.sees(away, "old"));
    // The entries are nowhere any more, so it was the catalog that came; what it says of its own log may come later.
    let purged = || trio.meta(away).core.group.status().purged;
    trio.until("it did not get the entries", || purged() > applied).await;
    let state = trio.state(away);
    // What it got is on its disk, and of use to others.
    trio.kill(leader).await;
    let second = trio.leader_that_hears().await;
    assert_eq!(apart_from_leading(&trio.state(second)), apart_from_leading(&state));
    assert_eq!(trio.change(create(whole("new"))).await, Ok(true));
    let other = 3 - leader - away;
    trio.kill(away).await;
    trio.kill(other).await;
    trio.open(away).await;
    trio.open(leader).await;
    let third = trio.leader_that_hears().await;
    assert!(trio.sees(third, "new"));
    assert_eq!(trio.change(create(whole("newer"))).await, Ok(true));
    trio.open(other).await;
    trio.agree().await;
    trio.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_keep_their_numbers_when_all_of_meta_ends() {
    let mut trio = Trio::start(3).await;
    let wish = |address: &str| {
        let (address, labels) = (address.to_owned(), Labels::default());
        Registration { identity: 50, node: None, address, labels }
    };
    assert_eq!(trio.register(wish("a:1")).await, Ok(NodeId(4)));
    for at in 0..3 {
        trio.kill(at).await;
    }
    for at in 0..3 {
        trio.open(at).await;
    }
    assert_eq!(trio.register(wish("b:2")).await, Ok(NodeId(4)));
    let other = Registration { identity: 51, ..wish("c:3") };
    assert_eq!(trio.register(other).await, Ok(NodeId(5)));
    trio.agree().await;
    let told = |holds: &dyn Fn(&Members) -> bool| {
        trio.leading().into_iter().any(|at| holds(&trio.meta(at).members().borrow()))
    };
    let moved =
        |members: &Members| members.get(&NodeId(4)).is_some_and(|member| member.address == "b:2");
    trio.until("it is told", || told(&moved)).await;
    // The nodes that speak are live, those that do not are not for long.
    let live = |members: &Members, node| members.get(&NodeId(node)).is_some_and(|one| one.live);
    let silent = |members: &Members| {
        (1..=3).all(|node| live(members, node))
            && members.contains_key(&NodeId(4))
            && !live(members, 4)
    };
    trio.until("nodes are live or not", || told(&silent)).await;
    trio.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_whose_answer_was_lost_is_made_once() {
    let mut trio = Trio::start(3).await;
    let id = |sequence| RequestId { client: 5, sequence };
    let lost = trio.change_once(id(1), create(whole("t"))).await.unwrap();
    trio.change_once(id(2), truncate("t")).await.unwrap();
    // The third is under way when the leader ends.
    trio.nodes.fail(Kind::Truncate, usize::MAX, Error::Unavailable("away".to_owned()));
    let ask = |meta: Arc<Meta>| async move { meta.change_once(id(3), truncate("t")).await }.boxed();
    let (first, third) = trio.begin(Kind::Truncate, ask).await;
    trio.kill(first).await;
    third.abort();
    drop(third.await);
    trio.nodes.heal();
    // The unfinished change comes first: other changes of the table wait for it.
    assert!(trio.change_once(id(3), truncate("t")).await.unwrap().changed);
    let before = trio.known().await;
    let again = trio.change_once(id(1), create(whole("t"))).await.unwrap();
    assert!(again.changed && again.version >= lost.version);
    assert!(trio.change_once(id(2), truncate("t")).await.unwrap().changed);
    let after = apart_from_leading(&trio.known().await);
    assert_eq!(after, apart_from_leading(&before), "nothing was changed again");
    let held = trio.nodes.held();
    assert_eq!(held.len(), 1);
    let truncations: Vec<_> =
        trio.nodes.all().iter().map(|node| truncations(&trio.nodes, node.0)).collect();
    // Its leader got them: each of both once, however often it was told.
    assert_eq!(truncations.iter().max(), Some(&2), "{truncations:?}");
    assert!(trio.change_once(id(4), truncate("t")).await.unwrap().changed);
    assert!(trio.known().await.counters().remembered > before.counters().remembered);
    trio.end().await;
}

fn truncations(nodes: &FakeNodes, node: u64) -> usize {
    nodes.one(node).held.lock().values().map(|held| held.truncated.len()).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_replicas_of_a_node_that_is_lost_are_made_anew_elsewhere() {
    let trio = Trio::start_with(4, LOST_AFTER).await;
    trio.leader_that_hears_of(4).await;
    trio.change(create(whole("t"))).await.unwrap();
    let (partition, before) = places(&trio.known().await, "t");
    let lost = *before.values().next().unwrap();
    let free = (1..=4).map(NodeId).find(|node| !before.values().any(|at| at == node)).unwrap();
    trio.nodes.one(lost.0).silence(true);
    let replaced = |state: &State| {
        let (_, replicas) = places(state, "t");
        let has = |node| replicas.values().any(|at| *at == node);
        has(free) && !has(lost)
    };
    trio.until("the free node has it", || {
        trio.holds(replaced) && trio.nodes.one(free.0).holds(partition)
    })
    .await;
    assert!(trio.nodes.one(free.0).held.lock()[&partition].spec.join, "it joins a group that runs");
    trio.agree().await;
    let route = {
        let catalog = trio.meta(trio.leader().await).catalog();
        let table = Arc::clone(catalog.borrow().table("public", "t").unwrap());
        table.partitions.routes()[0].replicas.clone()
    };
    assert_eq!(route, places(&trio.known().await, "t").1);
    // The node returns with a replica that belongs to no partition now, and does not get it again.
    assert!(trio.nodes.one(lost.0).holds(partition));
    trio.nodes.one(lost.0).silence(false);
    trio.until("it is removed", || !trio.nodes.one(lost.0).holds(partition)).await;
    assert_eq!(places(&trio.known().await, "t").1, route);
    trio.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_is_nobodys_is_removed() {
    let trio = Trio::start(3).await;
    trio.change(create(whole("t"))).await.unwrap();
    let (partition, _) = places(&trio.known().await, "t");
    let known = trio.nodes.one(2).held.lock()[&partition].clone();
    // A replica of a partition that never existed, and a replica of an existing one other than the recorded.
    let mut stranger = Held::clone(&known);
    stranger.spec.partition = PartitionId(77);
    trio.nodes.one(2).held.lock().insert(PartitionId(77), stranger);
    let mut older = known.clone();
    older.spec.replica = ReplicaId(999);
    trio.nodes.one(3).held.lock().insert(partition, older);
    trio.until("both are gone", || {
        !trio.nodes.one(2).holds(PartitionId(77)) && !trio.nodes.one(3).holds(partition)
    })
    .await;
    assert!(trio.nodes.one(2).holds(partition) && trio.nodes.one(1).holds(partition));
    trio.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_drained_is_empty_in_the_end() {
    let mut trio = Trio::start(4).await;
    trio.leader_that_hears_of(4).await;
    for name in ["a", "b", "c"] {
        trio.change(create(new_table(name))).await.unwrap();
    }
    assert!(!trio.nodes.one(1).held.lock().is_empty());
    let drain = |on| AdminOrder::Drain { node: NodeId(1), on };
    trio.administer(drain(true)).await.unwrap();
    // In the middle of it, another takes over.
    let leader = trio.leader().await;
    trio.kill(leader).await;
    trio.leader_that_hears().await;
    trio.until("node 1 is empty", || trio.nodes.one(1).held.lock().is_empty()).await;
    let spread = |state: &State| {
        let nodes = state.partitions().map(|one| one.replicas.values().copied().collect());
        nodes.collect::<Vec<BTreeSet<NodeId>>>()
    };
    for nodes in spread(&trio.known().await) {
        assert_eq!(nodes, BTreeSet::from([NodeId(2), NodeId(3), NodeId(4)]));
    }
    trio.change(create(new_table("d"))).await.unwrap();
    assert!(trio.nodes.one(1).held.lock().is_empty(), "nothing new is put there");
    let nowhere = AdminOrder::Drain { node: NodeId(9), on: true };
    let refused = trio.administer(nowhere).await;
    assert!(matches!(refused, Err(Error::NotFound { kind: "node", .. })), "{refused:?}");
    trio.administer(drain(false)).await.unwrap();
    trio.until("node 1 gets its share", || trio.nodes.one(1).held.lock().len() > 4).await;
    trio.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_moves_a_replica_and_a_leader() {
    let trio = Trio::start(4).await;
    trio.leader_that_hears_of(4).await;
    trio.change(create(whole("t"))).await.unwrap();
    let (partition, before) = places(&trio.known().await, "t");
    let from = *before.values().next().unwrap();
    let to = (1..=4).map(NodeId).find(|node| !before.values().any(|at| at == node)).unwrap();
    let move_it = |from, to| AdminOrder::MoveReplica { partition, from, to };
    for (from, to) in [(to, NodeId(9)), (from, from)] {
        let refused = trio.administer(move_it(from, to)).await;
        assert!(matches!(refused, Err(Error::InvalidInput(_))), "{refused:?}");
    }
    trio.administer(move_it(from, to)).await.unwrap();
    trio.administer(move_it(from, to)).await.expect("asked again, while it is done or after");
    let is_there = |state: &State| places(state, "t").1.values().any(|node| *node == to);
    trio.until("it is there", || trio.holds(is_there)).await;
    trio.until("it is gone", || !trio.nodes.one(from.0).holds(partition)).await;
    let transfer = |to| AdminOrder::TransferLeader { partition, to };
    trio.administer(transfer(to)).await.unwrap();
    assert!(trio.nodes.leads(to.0, partition));
    let refused = trio.administer(transfer(from)).await;
    assert!(matches!(refused, Err(Error::InvalidInput(_))), "{refused:?}");
    trio.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_is_lost_while_it_is_moved_is_created_under_another_number() {
    let trio = Trio::start_with(4, LOST_AFTER).await;
    trio.leader_that_hears_of(4).await;
    trio.change(create(whole("t"))).await.unwrap();
    let (partition, before) = places(&trio.known().await, "t");
    let from = *before.values().next().unwrap();
    let to = (1..=4).map(NodeId).find(|node| !before.values().any(|at| at == node)).unwrap();
    // The group may have taken the new replica in, but its leader never answers.
    trio.nodes.fail(Kind::Reconfigure, usize::MAX, Error::Unavailable("away".to_owned()));
    trio.administer(AdminOrder::MoveReplica { partition, from, to }).await.unwrap();
    let is_created = |state: &State| {
        let target = state.partition(partition).and_then(|record| record.target.clone());
        target.is_some_and(|target| !target.created.is_empty())
    };
    trio.until("it is created", || trio.holds(is_created)).await;
    let lost = trio.nodes.one(to.0).held.lock().remove(&partition).unwrap().spec.replica;
    let number = || trio.nodes.one(to.0).held.lock().get(&partition).map(|held| held.spec.replica);
    trio.until("another is created", || number().is_some_and(|number| number > lost)).await;
    trio.nodes.heal();
    let is_there = |state: &State| places(state, "t").1.values().any(|node| *node == to);
    trio.until("it is a member", || trio.holds(is_there)).await;
    assert_eq!(places(&trio.known().await, "t").1.get(&number().unwrap()), Some(&to));
    trio.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_follow_the_factor_of_their_table() {
    let trio = Trio::start(3).await;
    trio.change(create(whole("t"))).await.unwrap();
    let (partition, _) = places(&trio.known().await, "t");
    let factor = |factor| {
        let options = TableOptions { replication_factor: Some(factor), ..TableOptions::default() };
        alter("t", TableChange::SetOptions(Box::new(options)))
    };
    let holding = || (1..=3).filter(|node| trio.nodes.one(*node).holds(partition)).count();
    for count in [1, 3, 2] {
        trio.change(factor(count)).await.unwrap();
        let recorded = |state: &State| places(state, "t").1.len() == count as usize;
        trio.until("as many as wanted", || trio.holds(recorded) && holding() == count as usize)
            .await;
    }
    trio.end().await;
}
