//! Members of meta's group that lose their data and join again; the catalogs that orders are based on.

use std::time::Duration;

use partita_proto::catalog_history::LEADERSHIPS_MAX;
use tokio::time::timeout;

use super::changes::PATIENCE;
use super::trio::Trio;
use super::*;

fn identity_of(state: &State, at: usize) -> Option<u64> {
    state.meta_identity(NodeId(at as u64 + 1))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_lost_its_data_does_not_vote_and_joins_again_when_it_is_told_to() {
    let mut trio = Trio::start(3).await;
    trio.change(create(new_table("before"))).await.unwrap();
    trio.until("all members are known", || trio.holds(|state| state.metas().count() == 3)).await;
    trio.agree().await;
    let leader = trio.leader().await;
    let wiped = (leader + 1) % 3;
    trio.kill(wiped).await;
    trio.wipe(wiped);
    trio.open(wiped).await;
    let why = timeout(PATIENCE, trio.meta(wiped).refused()).await.unwrap();
    assert!(why.contains("must not vote") && why.contains("--rejoin"), "{why}");
    // Without the wiped member there is still a majority of two; without another one there is none, even if it votes.
    trio.kill((leader + 2) % 3).await;
    let status = || trio.meta(wiped).core.group.status();
    for _ in 0..20 {
        assert!(!status().is_leader && status().applied.unwrap_or_default() == 0, "{:?}", status());
        assert!(status().leader.is_none(), "it hears nobody: {:?}", status());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(trio.state(wiped).table_count() == 0);
    trio.open((leader + 2) % 3).await;
    trio.change(create(new_table("without"))).await.unwrap();

    trio.kill(wiped).await;
    trio.wipe(wiped);
    trio.rejoins = true;
    trio.open(wiped).await;
    trio.rejoins = false;
    let identity = trio.identities[wiped];
    let votes = |at: usize| {
        let group = &trio.meta(at).core.group;
        // In the middle of the change the two that were there before have both to be there.
        !group.is_changing() && group.members().iter().filter(|member| member.voter).count() == 3
    };
    trio.until("it is a voter again", || {
        identity_of(&trio.state(wiped), wiped) == Some(identity) && votes(wiped) && votes(leader)
    })
    .await;
    assert!(trio.sees(wiped, "before") && trio.sees(wiped, "without"));
    // Its vote counts: with it alone beside one other there is a majority.
    trio.kill(leader).await;
    trio.leader_that_hears().await;
    trio.change(create(new_table("after"))).await.unwrap();
    trio.open(leader).await;
    trio.agree().await;
    trio.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_voters_that_was_cut_short_is_completed() {
    let trio = Trio::start(3).await;
    trio.until("all members are known", || trio.holds(|state| state.metas().count() == 3)).await;
    let leader = trio.leader().await;
    let group = &trio.meta(leader).core.group;
    let remaining = group.members().into_iter().map(|member| member.replica).take(2).collect();
    // The change is made by two entries; the second one is written only when this future is polled again.
    let mut change = Box::pin(group.set_voters(remaining));
    while !group.is_changing() {
        assert!(futures::poll!(&mut change).is_pending());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(change);
    let votes = |at: usize| {
        let group = &trio.meta(at).core.group;
        !group.is_changing() && group.members().iter().filter(|member| member.voter).count() == 3
    };
    trio.until("all are voters again", || (0..3).all(votes)).await;
    trio.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_bear_the_leadership_that_gives_them() {
    let mut trio = Trio::start(3).await;
    let leader = trio.leader().await;
    let history = trio.meta(leader).core.catalog_history().unwrap();
    history.check().unwrap();
    let known = history.follow(None).unwrap();
    let follower = (leader + 1) % 3;
    assert!(trio.meta(follower).core.catalog_history().is_err(), "it gives no orders");
    trio.change(create(new_table("t"))).await.unwrap();
    trio.kill(leader).await;
    let next = trio.leader().await;
    trio.until("it is recorded", || trio.meta(next).core.catalog_history().is_ok()).await;
    let later = trio.meta(next).core.catalog_history().unwrap();
    assert_eq!(later.cluster, history.cluster);
    assert!(later.version > history.version && later.leaderships.len() > history.leaderships.len());
    let followed = later.follow(Some(&known)).unwrap();
    // What the one before sent, and comes late.
    assert!(history.follow(Some(&followed)).is_err());
    trio.end().await;
}

#[test]
fn leaderships_are_recorded_in_order_and_not_for_ever() {
    let mut world = World::new();
    assert_eq!(world.state.history(), None);
    let lead = |term, nonce| Command::Lead { cluster: 77 + nonce, term, nonce };
    for nonce in 1..=LEADERSHIPS_MAX as u64 + 3 {
        // A term that is older than the one before is recorded as that one.
        let term = if nonce == 5 { 1 } else { nonce };
        world.command(&lead(term, nonce)).unwrap();
    }
    let history = world.state.history().unwrap();
    history.check().unwrap();
    assert_eq!((history.cluster, history.version), (78, world.state.version()));
    assert_eq!(history.leaderships.len(), LEADERSHIPS_MAX);
    assert_eq!(history.leaderships[0].nonce, 4);
    assert_eq!(history.leaderships[1].term, 4);
    let again = decide(&world.state, &Command::Meta { node: NodeId(2), identity: 9 }).unwrap();
    assert_eq!(again.edits.len(), 2);
    world.command(&Command::Meta { node: NodeId(2), identity: 9 }).unwrap();
    let same = decide(&world.state, &Command::Meta { node: NodeId(2), identity: 9 }).unwrap();
    assert!(same.edits.is_empty());
    assert_eq!(world.state.metas().collect::<Vec<_>>(), [(NodeId(2), 9)]);
}
