//! The members of meta's own group: whose data directories they have, and how one that lost its data joins again.
//!
//! ```text
//!   voter, wiped ── refused by all ──▶ ends, and says why
//!   voter, wiped, --rejoin ── refused, and noted by the leader
//!        no voter any more (agreed by the others) ─▶ new identity recorded ─▶ learner ─▶ caught up ─▶ voter
//! ```
//!
//! Invariants:
//! - a member is known by the identity of its data directory, which is recorded in the catalog after the first link to it;
//!   under another identity its votes and answers do not count, and nothing is sent to it;
//! - a directory takes over a member's number only after the others have agreed to do without that member: what the old
//!   directory voted for and acknowledged counts for nothing then.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use partita_proto::error::Error;
use partita_proto::id::{NodeId, ReplicaId};
use partita_raft::{Acquaintances, Greeting, MemberStatus};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::machine::CatalogMachine;
use crate::node::{Core, raft_error};
use crate::transition::Command;

/// How often a leader looks at who is a member, and how often one that is to join again says so.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long nothing has been heard of a member's old directory before it is done without.
const SILENCE_MIN: Duration = Duration::from_secs(2);
/// Entries by which a learner may lag behind when it becomes a voter.
const LAG_MAX: u64 = 64;

/// The other members, as they greeted.
pub(crate) struct MetaPeers {
    machine: Arc<CatalogMachine>,
    met: Mutex<BTreeMap<NodeId, Greeting>>,
    /// Why another member has refused this one.
    refusal: watch::Sender<Option<String>>,
}

impl MetaPeers {
    pub(crate) fn new(machine: Arc<CatalogMachine>) -> Arc<Self> {
        Arc::new(Self { machine, met: Mutex::default(), refusal: watch::Sender::default() })
    }

    /// Those that have greeted, as they did last.
    fn met(&self) -> Vec<Greeting> {
        self.met.lock().values().copied().collect()
    }

    /// Returns when another member has refused this one, with the reason.
    pub(crate) async fn refused(&self) -> String {
        let mut refusal = self.refusal.subscribe();
        let refused = refusal.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
        match refused {
            Some(why) => why,
            None => std::future::pending().await,
        }
    }
}

impl Acquaintances for MetaPeers {
    fn meet(&self, peer: &Greeting) -> Result<(), String> {
        let known = self.machine.state().meta_identity(peer.node);
        let before = self.met.lock().insert(peer.node, *peer);
        let decided = judge(known, peer);
        if let Err(why) = &decided
            && before != Some(*peer)
        {
            warn!(member = %peer.node, %why, "a member of meta's group is refused");
        }
        decided
    }

    fn refused(&self, by: NodeId, why: &str) {
        let text = format!("member {by} refuses this one: {why}");
        self.refusal.send_if_modified(|known| {
            let changed = known.as_ref() != Some(&text);
            if changed {
                warn!(%by, %why, "another member of meta's group refuses this one");
                *known = Some(text);
            }
            changed
        });
    }
}

/// Whether a member under a known identity, or under none, may take part.
fn judge(known: Option<u64>, peer: &Greeting) -> Result<(), String> {
    let node = peer.node;
    match known {
        Some(identity) if identity == peer.identity => Ok(()),
        _ if peer.rejoins => Err(format!(
            "member {node} joins again with a new data directory; the group's leader takes it in as soon as the others have \
             agreed to do without the old one"
        )),
        None => Ok(()),
        Some(identity) => Err(format!(
            "member {node} of meta's group is known by data directory {identity:016x}, this is {:016x}: its data was lost or \
             replaced, so it must not vote under its number. If the old directory is lost for good, start it once with an \
             empty data directory and --rejoin",
            peer.identity
        )),
    }
}

/// What is next for a member that joins again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Readmission {
    /// The group is to do without its old directory.
    Remove,
    /// The new directory is to be known by its number.
    Record,
    /// It is to get everything and decide nothing.
    Learn,
    /// It gets everything, or the old directory is still heard of.
    Wait,
    /// It is to vote.
    Vote,
    /// It is a member like the others.
    Done,
}

/// What is next for a member that greets as one that joins again; `last` is the index of the leader's last entry.
fn next_step(
    greeting: &Greeting,
    known: Option<u64>,
    member: Option<&MemberStatus>,
    last: u64,
) -> Readmission {
    match (known == Some(greeting.identity), member) {
        // The old directory is still in use, whoever says that it is lost.
        (false, Some(member)) if member.silent_for.is_some_and(|silent| silent < SILENCE_MIN) => {
            Readmission::Wait
        }
        (false, Some(_)) => Readmission::Remove,
        (false, None) => Readmission::Record,
        (true, None) => Readmission::Learn,
        (true, Some(member)) if member.voter => Readmission::Done,
        (true, Some(member)) => match member.matched {
            Some(matched) if matched.saturating_add(LAG_MAX) >= last => Readmission::Vote,
            _ => Readmission::Wait,
        },
    }
}

impl Core {
    /// Keeps the members of meta's group known, and takes in those that join again, until `over`.
    pub(crate) async fn keep_members(&self, over: &CancellationToken) {
        let work = async {
            loop {
                if let Err(error) = self.look_after_members().await {
                    warn!(%error, "a change of meta's members was not carried out");
                }
                tokio::time::sleep(INTERVAL).await;
            }
        };
        tokio::select! {
            () = over.cancelled() => {}
            () = work => {}
        }
    }

    async fn look_after_members(&self) -> Result<(), Error> {
        let members = self.group.members();
        let own =
            Greeting { node: self.host.node(), identity: self.options.identity, rejoins: false };
        for greeting in self.peers.met().into_iter().chain([own]) {
            let Greeting { node, identity, rejoins } = greeting;
            if identity == 0 {
                continue;
            }
            let known = self.machine.state().meta_identity(node);
            let member = members.iter().find(|member| member.node == node);
            // One that has learned goes on where it was, also after it was started without being told to.
            if rejoins || member.is_some_and(|member| !member.voter) {
                self.readmit(&greeting, known, member, &members).await?;
            } else if known.is_none() && member.is_some() {
                self.know(node, identity).await?;
            }
        }
        Ok(())
    }

    async fn know(&self, node: NodeId, identity: u64) -> Result<(), Error> {
        self.propose(&Command::Meta { node, identity }).await?;
        info!(member = %node, identity = format!("{identity:016x}"), "a member's data directory is known");
        Ok(())
    }

    /// Does the next step for a member that joins again.
    async fn readmit(
        &self,
        greeting: &Greeting,
        known: Option<u64>,
        member: Option<&MemberStatus>,
        members: &[MemberStatus],
    ) -> Result<(), Error> {
        let node = greeting.node;
        // Only who is in the list that all members were given has a number here.
        let configured = self.options.members.iter().find(|(_, at)| **at == node);
        let Some((replica, _)) = configured else { return Ok(()) };
        let last = self.group.status().last_index.unwrap_or_default();
        let step = next_step(greeting, known, member, last);
        let voters = || members.iter().filter(|member| member.voter).map(|member| member.replica);
        match step {
            Readmission::Done | Readmission::Wait => return Ok(()),
            Readmission::Remove if member.is_some_and(|member| member.voter) => {
                let others: BTreeSet<ReplicaId> =
                    voters().filter(|other| other != replica).collect();
                self.group.set_voters(others).await.map_err(raft_error)?;
            }
            Readmission::Remove => {
                let learner = BTreeSet::from([*replica]);
                self.group.remove_learners(learner).await.map_err(raft_error)?;
            }
            Readmission::Record => self.know(node, greeting.identity).await?,
            Readmission::Learn => {
                self.group.add_learner(*replica, node).await.map_err(raft_error)?;
            }
            Readmission::Vote => {
                let all: BTreeSet<ReplicaId> = voters().chain([*replica]).collect();
                self.group.set_voters(all).await.map_err(raft_error)?;
            }
        }
        info!(member = %node, ?step, "a member joins meta's group again");
        Ok(())
    }

    /// Greets the other members for as long as this one is to join again and is no voter yet.
    pub(crate) async fn ask_to_rejoin(&self) {
        if !self.options.rejoins {
            return;
        }
        let own = self.host.node();
        loop {
            let votes = |member: &MemberStatus| member.node == own && member.voter;
            let known = self.machine.state().meta_identity(own);
            let settled = !self.group.is_changing() && self.group.members().iter().any(votes);
            if known == Some(self.options.identity) && settled {
                info!(
                    "this member takes part in meta's group again; --rejoin is not needed any more"
                );
                self.host.set_rejoins(false);
                break;
            }
            for node in self.options.members.values().filter(|node| **node != own) {
                self.host.greet(*node).await;
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// Returns when another member has refused this one, which has never been part of a group that had a leader.
    pub(crate) async fn refused(&self) -> String {
        let why = self.peers.refused().await;
        if self.options.rejoins || self.machine.state().cluster() != 0 {
            return std::future::pending().await;
        }
        why
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(2);

    fn greeting(identity: u64, rejoins: bool) -> Greeting {
        Greeting { node: NODE, identity, rejoins }
    }

    fn member(voter: bool, matched: Option<u64>) -> MemberStatus {
        MemberStatus { replica: ReplicaId(2), node: NODE, voter, matched, silent_for: None }
    }

    #[test]
    fn only_the_directory_that_is_known_takes_part() {
        assert!(judge(None, &greeting(5, false)).is_ok());
        assert!(judge(Some(5), &greeting(5, false)).is_ok());
        assert!(judge(Some(5), &greeting(5, true)).is_ok());
        let refused = judge(Some(5), &greeting(6, false)).unwrap_err();
        assert!(refused.contains("--rejoin"), "{refused}");
        // One that says nothing of itself is not the one that is known.
        assert!(judge(Some(5), &greeting(0, false)).is_err());
        for known in [None, Some(5)] {
            assert!(judge(known, &greeting(6, true)).is_err());
        }
    }

    #[test]
    fn one_that_joins_again_votes_last_and_after_the_others_did_without_it() {
        let joins = greeting(6, true);
        let (voter, learner) = (member(true, Some(100)), member(false, Some(3)));
        let (caught_up, begins) = (member(false, Some(990)), member(false, None));
        let step = |known, member| next_step(&joins, known, member, 1000);
        assert_eq!(step(Some(5), Some(&voter)), Readmission::Remove);
        assert_eq!(step(None, Some(&voter)), Readmission::Remove);
        let speaks = MemberStatus { silent_for: Some(Duration::from_millis(300)), ..voter };
        assert_eq!(step(Some(5), Some(&speaks)), Readmission::Wait);
        assert_eq!(step(Some(5), Some(&learner)), Readmission::Remove);
        assert_eq!(step(Some(5), None), Readmission::Record);
        assert_eq!(step(Some(6), None), Readmission::Learn);
        assert_eq!(step(Some(6), Some(&learner)), Readmission::Wait);
        assert_eq!(step(Some(6), Some(&begins)), Readmission::Wait);
        assert_eq!(step(Some(6), Some(&caught_up)), Readmission::Vote);
        assert_eq!(step(Some(6), Some(&voter)), Readmission::Done);
    }
}
