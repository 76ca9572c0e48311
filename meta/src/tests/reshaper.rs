//! Execution of splits and merges by nodes that obey, fail, lag behind, or lose their answers.

use std::time::Duration;

use partita_proto::history::{Cause, PerMille, ReshapeKind, ReshapeOutcome};
use partita_proto::id::{PartitionId, ReplicaId};
use partita_proto::service::{AdminOrder, MetaService};

use super::changes::{hurry, until};
use super::nodes::Kind;
use super::site::{Site, away, merge, replicated, split};
use super::*;
use crate::patience::Patience;

/// Like [`hurry`], with a short time limit for splits and merges.
fn impatient() -> Patience {
    Patience { reshape: Duration::from_secs(1), ..hurry() }
}

#[tokio::test]
async fn a_split_is_carried_out_and_seen_when_it_is_answered() {
    let site = Site::start().await;
    site.change(replicated("t")).await.unwrap();
    let ids = site.partitions("t");
    assert_eq!(site.administer(split(ids[1], 150)).await, Ok(()));
    let after = site.partitions("t");
    assert_eq!((after.len(), after[0], after[1], after[3]), (4, ids[0], ids[1], ids[2]));
    assert!(site.nodes.count(Kind::Flush) >= 3, "memtables are flushed before");
    site.agree().await;
    let event = site.server.meta.reshape_events().pop().unwrap();
    assert_eq!((event.kind, event.outcome), (ReshapeKind::Split, ReshapeOutcome::Done));
    assert_eq!((event.partition, event.other), (ids[1], after[2]));
    assert_eq!((event.reason.cause, event.at_ms), (Cause::ByHand, NOW_MS));
    assert_eq!((event.key, event.stall), (cut(&[Value::Int(150)]), Duration::from_millis(7)));
    assert!(site.server.meta.judge_reshape(event.id, Some(PerMille::new(510)), false));
    assert!(!site.server.meta.judge_reshape(event.id + 1, None, true));
    let event = site.server.meta.reshape_events().pop().unwrap();
    assert_eq!((event.actual_larger, event.in_vain), (Some(PerMille::new(510)), Some(false)));
    site.end().await;
}

#[tokio::test]
async fn a_split_without_a_key_is_made_in_the_middle() {
    let site = Site::start().await;
    site.change(replicated("t")).await.unwrap();
    let first = site.partitions("t")[0];
    let middle = AdminOrder::SplitPartition { partition: first, at: None };
    let why = invalid(site.administer(middle.clone()).await);
    assert!(why.contains("no key that leaves rows on both sides"), "{why}");
    site.nodes.set_middle(first, cut(&[Value::Int(37)]));
    assert_eq!(site.administer(middle).await, Ok(()));
    assert_eq!(site.record(first).unwrap().range.end, cut(&[Value::Int(37)]));
    site.agree().await;
    site.end().await;
}

#[tokio::test]
async fn orders_that_cannot_be_carried_out_are_refused_and_leave_no_trace() {
    let site = Site::start().await;
    site.change(replicated("t")).await.unwrap();
    let ids = site.partitions("t");
    let version = site.server.state().version();
    for order in
        [split(ids[1], 100), split(ids[1], 99), merge(ids[0], ids[2]), merge(ids[1], ids[0])]
    {
        invalid(site.administer(order).await);
    }
    for order in [split(PartitionId(99), 100), merge(ids[0], PartitionId(99))] {
        let refused = site.administer(order).await;
        assert!(matches!(refused, Err(Error::NotFound { kind: "partition", .. })), "{refused:?}");
    }
    assert_eq!(site.server.state().version(), version);
    assert!(site.server.meta.reshape_events().is_empty());
    site.end().await;
}

#[tokio::test]
async fn a_split_whose_answers_get_lost_is_made_once() {
    let site = Site::start().await;
    site.change(replicated("t")).await.unwrap();
    let first = site.partitions("t")[0];
    site.nodes.lose_answers(Kind::Split, 1);
    assert_eq!(site.administer(split(first, 50)).await, Ok(()));
    assert_eq!(site.nodes.group(first).unwrap().log.len(), 1);
    site.agree().await;
    site.end().await;
}

#[tokio::test]
async fn a_split_that_the_leader_refuses_is_given_up_and_can_be_made_later() {
    let site = Site::start().await;
    site.change(replicated("t")).await.unwrap();
    let first = site.partitions("t")[0];
    let why = Error::InvalidInput("the group has other members".to_owned());
    // Another request for a change that can no longer take effect does no harm.
    site.nodes.fail(Kind::Split, 1, why);
    let refused = site.administer(split(first, 50)).await;
    let Err(Error::Unavailable(text)) = &refused else { panic!("{refused:?}") };
    assert!(text.contains("given up") && text.contains("other members"), "{text}");
    site.agree().await;
    assert_eq!(site.partitions("t").len(), 3);
    assert_eq!(site.record(first).unwrap().epoch.0, 2, "what was ordered is void");
    assert!(matches!(site.last_event(), (ReshapeKind::Split, ReshapeOutcome::GivenUp(_))));
    // Another node may lead by now, which has not refused anything yet.
    site.nodes.heal();
    assert_eq!(site.administer(split(first, 50)).await, Ok(()));
    site.agree().await;
    site.end().await;
}

#[tokio::test]
async fn a_split_that_took_effect_before_it_was_given_up_is_done() {
    let site = Site::start_patient(impatient()).await;
    site.change(replicated("t")).await.unwrap();
    let first = site.partitions("t")[0];
    site.nodes.lose_answers(Kind::Split, usize::MAX);
    let order = site.begin(split(first, 50));
    until("it is given up", || {
        let record = site.record(first).unwrap();
        record.splitting().is_some_and(|split| split.given_up)
    })
    .await;
    let answer = order.await.unwrap();
    assert!(
        matches!(&answer, Err(Error::Timeout(text)) if text.contains("still running in the background"))
    );
    site.nodes.heal();
    site.agree().await;
    assert_eq!(site.partitions("t").len(), 4);
    assert_eq!(site.last_event(), (ReshapeKind::Split, ReshapeOutcome::Done));
    site.end().await;
}

#[tokio::test]
async fn a_split_that_nobody_answers_is_given_up_and_an_order_that_comes_late_is_void() {
    let site = Site::start_patient(impatient()).await;
    site.change(replicated("t")).await.unwrap();
    let first = site.partitions("t")[0];
    site.nodes.fail(Kind::Split, usize::MAX, away());
    site.administer(split(first, 50)).await.unwrap_err();
    until("it is given up", || site.nodes.count(Kind::Freeze) > 0).await;
    // The fence has taken effect, and whether the order did is not known yet.
    assert!(site.record(first).unwrap().splitting().is_some());
    site.nodes.heal();
    site.agree().await;
    assert_eq!(site.partitions("t").len(), 3);
    site.end().await;
}

#[tokio::test]
async fn a_merge_is_carried_out_and_the_right_ones_replicas_go() {
    let site = Site::start().await;
    site.change(replicated("t")).await.unwrap();
    let ids = site.partitions("t");
    assert_eq!(site.administer(merge(ids[0], ids[1])).await, Ok(()));
    assert_eq!(site.partitions("t"), [ids[0], ids[2]]);
    site.agree().await;
    assert_eq!(site.record(ids[1]), None);
    let event = site.server.meta.reshape_events().pop().unwrap();
    assert_eq!((event.kind, event.outcome), (ReshapeKind::Merge, ReshapeOutcome::Done));
    assert_eq!((event.partition, event.other), (ids[0], ids[1]));
    assert!(event.stall > Duration::ZERO, "from the freeze on");
    assert_eq!(site.administer(merge(ids[0], ids[2])).await, Ok(()));
    site.agree().await;
    assert_eq!(site.partitions("t"), [ids[0]]);
    site.end().await;
}

#[tokio::test]
async fn a_partition_with_a_known_failure_is_neither_split_nor_merged() {
    let site = Site::start().await;
    site.change(replicated("t")).await.unwrap();
    let ids = site.partitions("t");
    let fail = |failure: Option<&str>| {
        let mut held = site.nodes.one(1).held.lock();
        held.get_mut(&ids[1]).unwrap().failure = failure.map(str::to_owned);
    };
    let is_known = || site.server.meta.core.presence.reports().failed().contains_key(&ids[1]);
    fail(Some("file 4/files/1.parquet: the footer fails its checksum"));
    until("it is known", is_known).await;
    for order in [split(ids[1], 150), merge(ids[0], ids[1]), merge(ids[1], ids[2])] {
        let refused = site.administer(order).await;
        let Err(Error::Storage(why)) = &refused else { panic!("{refused:?}") };
        assert!(why.contains(&format!("partition {}", ids[1])) && why.contains("footer"), "{why}");
    }
    assert!(site.server.meta.reshape_events().is_empty());
    assert_eq!(site.nodes.count(Kind::Freeze), 0);
    fail(None);
    until("it is well again", || !is_known()).await;
    assert_eq!(site.administer(merge(ids[0], ids[1])).await, Ok(()));
    site.agree().await;
    site.end().await;
}

#[tokio::test]
async fn a_merge_that_meets_damage_thaws_what_it_froze() {
    let site = Site::start().await;
    site.change(replicated("t")).await.unwrap();
    let ids = site.partitions("t");
    let damage = Error::Corrupted("the footer fails its checksum".to_owned());
    site.nodes.fail(Kind::Absorb, 1, damage);
    let refused = site.administer(merge(ids[0], ids[1])).await;
    assert!(refused.is_err(), "{refused:?}");
    site.agree().await;
    let group = site.nodes.group(ids[1]).unwrap();
    assert!(!group.frozen && site.partitions("t") == ids);
    let (_, outcome) = site.last_event();
    assert!(
        matches!(&outcome, ReshapeOutcome::GivenUp(why) if why.contains("footer")),
        "{outcome:?}"
    );
    site.end().await;
}

#[tokio::test]
async fn the_right_ones_replicas_come_to_the_left_ones_nodes_first() {
    let site = Site::start().await;
    let mut table = new_table("t");
    table.schema.options.replication_factor = Some(1);
    site.change(create(table)).await.unwrap();
    let ids = site.partitions("t");
    let nodes = |id| site.record(id).unwrap().replicas.values().copied().collect::<Vec<_>>();
    assert_ne!(nodes(ids[0]), nodes(ids[1]));
    let place = nodes(ids[0]);
    assert_eq!(site.administer(merge(ids[0], ids[1])).await, Ok(()));
    assert_eq!(nodes(ids[0]), place);
    assert!(site.nodes.count(Kind::Reconfigure) > 0);
    site.agree().await;
    site.end().await;
}

#[tokio::test]
async fn orders_of_a_merge_whose_answers_get_lost_take_effect_once() {
    let site = Site::start().await;
    site.change(replicated("t")).await.unwrap();
    let ids = site.partitions("t");
    for kind in [Kind::Freeze, Kind::Absorb] {
        site.nodes.lose_answers(kind, 1);
    }
    assert_eq!(site.administer(merge(ids[0], ids[1])).await, Ok(()));
    assert_eq!(site.nodes.group(ids[0]).unwrap().log.len(), 1);
    assert_eq!(site.nodes.group(ids[1]).unwrap().log.len(), 1);
    site.agree().await;
    site.end().await;
}

#[tokio::test]
async fn a_merge_is_given_up_when_a_replica_does_not_come_along_and_both_can_be_used_again() {
    let site = Site::start_patient(impatient()).await;
    site.change(replicated("t")).await.unwrap();
    let ids = site.partitions("t");
    let follower = (1..=3).find(|node| !site.nodes.leads(*node, ids[1])).unwrap();
    site.nodes.one(follower).lag(true);
    let refused = site.administer(merge(ids[0], ids[1])).await;
    assert!(refused.is_err());
    until("it is free again", || {
        site.record(ids[1]).is_some_and(|right| right.reshaping.is_none())
    })
    .await;
    let group = site.nodes.group(ids[1]).unwrap();
    assert!(!group.frozen && group.epoch == site.record(ids[1]).unwrap().epoch);
    let (kind, outcome) = site.last_event();
    let ReshapeOutcome::GivenUp(why) = outcome else { panic!("{outcome:?}") };
    assert!(kind == ReshapeKind::Merge && why.contains("froze at"), "{why}");
    assert_eq!(site.partitions("t"), ids);
    site.nodes.one(follower).lag(false);
    site.insist(merge(ids[0], ids[1]), |site| site.partitions("t").len() == 2).await;
    site.agree().await;
    site.end().await;
}

#[tokio::test]
async fn a_merge_that_was_absorbed_before_it_was_given_up_is_done() {
    let site = Site::start_patient(impatient()).await;
    site.change(replicated("t")).await.unwrap();
    let ids = site.partitions("t");
    site.nodes.lose_answers(Kind::Absorb, usize::MAX);
    site.administer(merge(ids[0], ids[1])).await.unwrap_err();
    site.nodes.heal();
    site.agree().await;
    assert_eq!(site.partitions("t"), [ids[0], ids[2]]);
    assert_eq!(site.last_event(), (ReshapeKind::Merge, ReshapeOutcome::Done));
    site.end().await;
}

#[tokio::test]
async fn the_right_ones_replicas_stay_while_one_of_the_left_ones_lags_behind() {
    let site = Site::start().await;
    site.change(replicated("t")).await.unwrap();
    let ids = site.partitions("t");
    site.nodes.fail(Kind::Absorb, usize::MAX, away());
    let order = site.begin(merge(ids[0], ids[1]));
    until("it is to absorb", || site.nodes.count(Kind::Absorb) > 0).await;
    // It has the freeze in files and does not get the absorption.
    let follower = (1..=3).find(|node| !site.nodes.leads(*node, ids[0])).unwrap();
    site.nodes.one(follower).lag(true);
    site.nodes.heal();
    assert_eq!(order.await.unwrap(), Ok(()));
    assert_eq!(site.partitions("t"), [ids[0], ids[2]]);
    // Many times the interval at which strangers are removed.
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert!(site.record(ids[1]).is_some());
    assert!((1..=3).all(|node| site.nodes.one(node).holds(ids[1])));
    // The partition continues to work meanwhile.
    assert_eq!(site.administer(split(ids[0], 50)).await, Ok(()));
    assert_eq!(site.change(truncate("t")).await, Ok(true));
    site.nodes.one(follower).lag(false);
    site.agree().await;
    assert_eq!(site.record(ids[1]), None);
    site.end().await;
}

fn truncate(name: &str) -> Ddl {
    Ddl::TruncateTable { database: "public".to_owned(), name: name.to_owned() }
}

#[tokio::test]
async fn a_change_of_a_table_waits_for_its_split_and_a_drop_does_not() {
    let site = Site::start().await;
    site.change(replicated("t")).await.unwrap();
    let ids = site.partitions("t");
    site.nodes.fail(Kind::Split, usize::MAX, away());
    let splitting = site.begin(split(ids[0], 50));
    until("it is ordered", || site.nodes.count(Kind::Split) > 0).await;
    let meta = Arc::clone(&site.server.meta);
    let altering =
        tokio::spawn(async move { meta.change(alter("t", add(vec![field("x")]))).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(site.nodes.count(Kind::Alter), 0);
    site.nodes.heal();
    assert_eq!(splitting.await.unwrap(), Ok(()));
    assert_eq!(altering.await.unwrap(), Ok(true));
    // A node that has not cut yet may have been asked first, so that there may be more orders than partitions.
    let told: BTreeSet<PartitionId> = (1..=3)
        .flat_map(|node| site.nodes.one(node).told.lock().clone())
        .filter_map(|(kind, partition)| (kind == Kind::Alter).then_some(partition))
        .collect();
    let all: BTreeSet<PartitionId> = site.partitions("t").into_iter().collect();
    assert_eq!((told.len(), told), (4, all), "the new partition is told too");
    site.agree().await;
    for kind in [Kind::Split, Kind::Freeze] {
        site.nodes.fail(kind, usize::MAX, away());
    }
    let ids = site.partitions("t");
    let orders = [site.begin(split(ids[0], 10)), site.begin(merge(ids[2], ids[3]))];
    until("both are under way", || site.server.state().reshaping().count() == 3).await;
    assert_eq!(site.change(drop_table("t")).await, Ok(true));
    for order in orders {
        order.await.unwrap().unwrap_err();
    }
    site.nodes.heal();
    site.agree().await;
    assert!(site.nodes.held().is_empty());
    site.end().await;
}

#[tokio::test]
async fn a_split_waits_for_a_change_of_its_table() {
    let site = Site::start().await;
    site.change(replicated("t")).await.unwrap();
    let first = site.partitions("t")[0];
    site.nodes.fail(Kind::Alter, 6, away());
    let meta = Arc::clone(&site.server.meta);
    let altering =
        tokio::spawn(async move { meta.change(alter("t", add(vec![field("x")]))).await });
    until("it is ordered", || site.nodes.count(Kind::Alter) > 0).await;
    assert_eq!(site.administer(split(first, 50)).await, Ok(()));
    assert_eq!(altering.await.unwrap(), Ok(true));
    site.agree().await;
    site.end().await;
}

#[tokio::test]
async fn what_waits_for_a_group_that_cannot_decide_keeps_no_others_waiting() {
    let site = Site::start_patient(impatient()).await;
    let cuts = (1..12).map(|at| cut(&[Value::Int(at * 100)])).collect();
    let mut table = NewTable { cuts, ..new_table("t") };
    table.schema.options.replication_factor = Some(3);
    site.change(create(table)).await.unwrap();
    let ids = site.partitions("t");
    until("leaders have been spread", || {
        let leads = |node| ids.iter().filter(|id| site.nodes.leads(node, **id)).count();
        (1..=3).all(|node| leads(node) == 4)
    })
    .await;
    // These partitions have no leader any more.
    for id in &ids[..8] {
        site.nodes.one(1).groups.lock().leaders.insert(*id, NodeId(9));
    }
    let stuck: Vec<_> =
        (0..8_i64).zip(&ids[..8]).map(|(at, id)| site.begin(split(*id, at * 100 + 50))).collect();
    for order in stuck {
        order.await.unwrap().unwrap_err();
    }
    until("all were tried", || {
        let state = site.server.state();
        state.splits_in_progress().filter(|split| split.given_up).count() == 8
    })
    .await;
    site.insist(split(ids[9], 950), |site| site.partitions("t").len() == 13).await;
    site.insist(merge(ids[10], ids[11]), |site| site.partitions("t").len() == 12).await;
    assert_eq!(site.server.state().splits_in_progress().count(), 8, "those still wait");
    for id in &ids[..8] {
        site.nodes.one(1).groups.lock().leaders.insert(*id, NodeId(1));
    }
    site.agree().await;
    site.end().await;
}

#[tokio::test]
async fn what_was_under_way_when_meta_ended_goes_on_after_its_start() {
    // Before an order took effect, and after it, for each kind of order.
    for kind in [Kind::Split, Kind::Freeze, Kind::Absorb] {
        for after in [false, true] {
            let mut site = Site::start().await;
            site.change(replicated("t")).await.unwrap();
            let ids = site.partitions("t");
            if after {
                site.nodes.lose_answers(kind, usize::MAX);
            } else {
                site.nodes.fail(kind, usize::MAX, away());
            }
            let order = if kind == Kind::Split { split(ids[0], 50) } else { merge(ids[0], ids[1]) };
            let order = site.begin(order);
            until("it is ordered", || site.nodes.count(kind) > 0).await;
            order.abort();
            drop(order.await);
            site = site.restart().await;
            site.nodes.heal();
            site.agree().await;
            let expected = if kind == Kind::Split { 4 } else { 2 };
            assert_eq!(site.partitions("t").len(), expected, "{kind:?}, after it: {after}");
            site.end().await;
        }
    }
}

#[tokio::test]
async fn a_child_that_nobody_has_recorded_yet_is_not_removed() {
    let site = Site::start().await;
    site.change(replicated("t")).await.unwrap();
    let first = site.partitions("t")[0];
    site.nodes.lose_answers(Kind::Split, usize::MAX);
    let order = site.begin(split(first, 50));
    until("the child is there", || site.nodes.one(1).held.lock().len() == 4).await;
    let dropped = site.nodes.count(Kind::Drop);
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(site.nodes.count(Kind::Drop), dropped);
    // A stranger on the same nodes goes.
    let mut stranger = site.nodes.one(1).held.lock()[&first].clone();
    stranger.spec.partition = PartitionId(77);
    stranger.spec.replica = ReplicaId(770);
    site.nodes.one(1).held.lock().insert(PartitionId(77), stranger);
    until("the stranger is gone", || !site.nodes.one(1).holds(PartitionId(77))).await;
    site.nodes.heal();
    order.await.unwrap().unwrap();
    site.agree().await;
    site.end().await;
}
