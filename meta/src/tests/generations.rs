//! Generations of data directories: nodes' generations as recorded and as carried by heartbeats, and older copies
//! of the directories of meta's members.

use std::time::Duration;

use partita_proto::generation::{Claim, Generation, Renewal};
use partita_proto::label::Labels;
use partita_proto::member::{Heartbeat, Registration};
use partita_proto::service::ClusterService;
use tokio::time::timeout;

use super::changes::PATIENCE;
use super::trio::Trio;
use super::*;

fn generation(number: u64) -> Generation {
    Generation { number, nonce: number * 11 }
}

/// The claim of a directory with this acknowledged generation, 0 for none, and a pending one.
fn claim(acknowledged: u64, pending: u64) -> Claim {
    let known = Some(generation(acknowledged)).filter(|known| known.number > 0);
    Claim { acknowledged: known, pending: Some(generation(pending)) }
}

fn renewal(node: u64, identity: u64, claim: Claim) -> Renewal {
    Renewal { node: NodeId(node), identity, claim, ..Renewal::default() }
}

fn register(world: &mut World, identity: u64) {
    let (address, labels) = ("a".to_owned(), Labels::default());
    let wish = Registration { identity, node: None, address, labels };
    world.command(&Command::Register(wish)).unwrap();
}

#[test]
fn a_nodes_generations_are_recorded_in_order_and_an_older_copy_changes_nothing() {
    let mut world = World::new();
    register(&mut world, 77);
    let recorded = |world: &World| world.state.node(NodeId(1)).unwrap().generation;
    let changes = |world: &mut World, renewal: Renewal| {
        world.command(&Command::Renew(renewal)).map(|reply| reply != Reply::Unchanged)
    };
    assert_eq!(recorded(&world), None);
    assert_eq!(changes(&mut world, renewal(1, 77, claim(0, 1))), Ok(true));
    assert_eq!(changes(&mut world, renewal(1, 77, claim(0, 1))), Ok(false), "asked twice");
    assert_eq!(changes(&mut world, renewal(1, 77, claim(1, 2))), Ok(true));
    assert_eq!(recorded(&world), Some(generation(2)));
    for older in [claim(0, 1), claim(1, 3), claim(0, 9)] {
        assert_eq!(changes(&mut world, renewal(1, 77, older)), Ok(false), "{older:?}");
    }
    let anew = Renewal { set_aside: true, ..renewal(1, 77, claim(1, 3)) };
    assert_eq!(changes(&mut world, anew.clone()), Ok(true));
    assert_eq!(changes(&mut world, renewal(1, 77, claim(3, 4))), Ok(true));
    assert_eq!(changes(&mut world, anew), Ok(false), "it comes late");
    assert_eq!(recorded(&world), Some(generation(4)));
    for (node, identity) in [(1, 78), (2, 77)] {
        let stranger = changes(&mut world, renewal(node, identity, claim(4, 5)));
        assert!(matches!(stranger, Err(Error::NotFound { kind: "node", .. })), "{stranger:?}");
    }
    // What else is said of the node leaves it alone, and so does its removal of others.
    let (address, labels) = ("b".to_owned(), Labels::default());
    let moved = Registration { identity: 77, node: None, address, labels };
    world.command(&Command::Register(moved)).unwrap();
    assert_eq!(recorded(&world), Some(generation(4)));
    world.command(&Command::RemoveNode { node: NodeId(1) }).unwrap();
    let removed = changes(&mut world, renewal(1, 77, claim(4, 5)));
    assert!(matches!(removed, Err(Error::InvalidInput(_))), "{removed:?}");
}

#[test]
fn the_directory_of_a_member_of_metas_group_has_generations_of_its_own() {
    let mut world = World::new();
    let (node, first, second) = (NodeId(2), 9, 10);
    let renew = |identity, claim| Command::RenewMeta(renewal(2, identity, claim));
    let unknown = world.command(&renew(first, claim(0, 1)));
    assert!(matches!(unknown, Err(Error::NotFound { .. })), "{unknown:?}");
    world.command(&Command::Meta { node, identity: first }).unwrap();
    world.command(&renew(first, claim(0, 1))).unwrap();
    world.command(&renew(first, claim(1, 2))).unwrap();
    assert_eq!(world.state.meta(node).unwrap().generation, Some(generation(2)));
    // Another directory begins at its beginning.
    world.command(&Command::Meta { node, identity: second }).unwrap();
    assert_eq!(world.state.meta(node).unwrap().generation, None);
    assert!(world.command(&renew(first, claim(2, 3))).is_err());
    world.command(&renew(second, claim(0, 1))).unwrap();
    assert_eq!(world.state.meta(node).unwrap().generation, Some(generation(1)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_over_whose_directory_another_process_has_started_is_told_to_end() {
    let trio = Trio::start(3).await;
    let leader = Arc::clone(trio.meta(trio.leader().await));
    let asked = Renewal { accepted: vec![], ..renewal(1, 1, claim(0, 1)) };
    let renewed = trio.ask(async |meta| meta.renew(asked.clone()).await).await.unwrap();
    assert_eq!(renewed.recorded, generation(1));
    let asked = renewal(1, 1, claim(1, 2));
    trio.ask(async |meta| meta.renew(asked.clone()).await).await.unwrap();
    let older = renewal(1, 1, claim(1, 5));
    let told = trio.ask(async |meta| meta.renew(older.clone()).await).await.unwrap();
    assert_eq!(told.recorded, generation(2), "nothing was recorded for an older copy");
    let beat = |claim| Heartbeat { claim, ..trio.nodes.heartbeats().remove(0) };
    for claim in [claim(1, 2), claim(2, 3), Claim::default()] {
        let heard = leader.heartbeat(beat(claim)).await;
        assert!(!matches!(heard, Err(Error::InvalidInput(_))), "{heard:?}");
    }
    let told = trio.ask(async |meta| meta.heartbeat(beat(claim(1, 5))).await).await.unwrap_err();
    assert!(matches!(&told, Error::InvalidInput(why) if why.contains("another process")), "{told}");
    trio.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_over_an_older_copy_does_not_vote_and_joins_again_when_it_is_told_to() {
    let mut trio = Trio::start_aging(3).await;
    let known = |trio: &Trio, at: usize| {
        let generation = |by: usize| trio.meta(by).generation_of(NodeId(at as u64 + 1));
        trio.running().into_iter().map(generation).min_by_key(|one| one.map(|one| one.number))
    };
    let number = |trio: &Trio, at: usize| known(trio, at).flatten().map_or(0, |one| one.number);
    trio.until("all generations are known", || (0..3).all(|at| number(&trio, at) > 0)).await;
    trio.change(create(new_table("before"))).await.unwrap();
    trio.agree().await;
    let leader = trio.leader().await;
    let (older, other) = ((leader + 1) % 3, (leader + 2) % 3);
    trio.kill(older).await;
    let copied = trio.copy(older);
    let before = number(&trio, older);
    trio.open(older).await;
    trio.until("the next one is known", || number(&trio, older) > before).await;
    trio.change(create(new_table("since"))).await.unwrap();
    trio.agree().await;
    trio.kill(older).await;
    trio.put_back(older, copied);
    trio.open(older).await;
    let why = timeout(PATIENCE, trio.meta(older).refused()).await.unwrap();
    assert!(why.contains("older copy") && why.contains("--rejoin"), "{why}");
    // With another member down there is no majority, even if the older copy votes.
    trio.kill(other).await;
    for _ in 0..20 {
        assert!(!trio.meta(older).core.group.status().is_leader);
        assert!(!trio.sees(older, "since"));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    trio.open(other).await;
    trio.kill(older).await;
    trio.wipe(older);
    trio.rejoins = true;
    trio.open(older).await;
    trio.rejoins = false;
    trio.until("it has everything", || trio.sees(older, "since")).await;
    trio.until("its generation is known", || number(&trio, older) > 0).await;
    trio.end().await;
}
