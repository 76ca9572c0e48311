//! The members of meta's own group: whose data directories they have, and how one that lost its data joins again.
//!
//! ```text
//!   voter, wiped ── refused by all ──▶ ends, and says why
//!   voter, wiped, --rejoin ── refused, and noted by the leader
//!        no voter any more (agreed by the others) ─▶ new identity recorded ─▶ learner ─▶ caught up ─▶ voter
//!   voter, older copy of its data ── refused by all who know a later generation ──▶ ends, and says why
//! ```
//!
//! Invariants:
//! - a member is known by the identity of its data directory, which is recorded in the catalog after the first link to it;
//!   under another identity its votes and answers do not count, and nothing is sent to it;
//! - a directory takes over a member's number only after the others have agreed to do without that member: what the old
//!   directory voted for and acknowledged counts for nothing then;
//! - whoever knows a later generation of a member's directory than the directory itself ([`partita_proto::generation`])
//!   refuses it as an older copy, and it ends. The leader records the generations that members greet with. One that lags
//!   behind may not know the latest: the others do, and a member introduces itself to all of them when it starts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use partita_proto::error::Error;
use partita_proto::generation::{Claim, Generations, Renewal};
use partita_proto::id::{NodeId, ReplicaId};
use partita_raft::{Acquaintances, Greeting, MemberStatus, Refusal};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::catalog::MetaRecord;
use crate::leadership::mixed;
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
    /// The generations of this member's own data directory.
    generations: Option<Arc<Generations>>,
    /// Why another member has refused this one.
    refusal: watch::Sender<Option<OwnRefusal>>,
}

/// Why another member has refused this one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OwnRefusal {
    text: String,
    /// Its data directory is an older copy: nobody refuses it by mistake.
    older: bool,
}

impl MetaPeers {
    pub(crate) fn new(
        machine: Arc<CatalogMachine>,
        generations: Option<Arc<Generations>>,
    ) -> Arc<Self> {
        let refusal = watch::Sender::default();
        Arc::new(Self { machine, met: Mutex::default(), generations, refusal })
    }

    /// Those that have greeted, as they did last.
    fn met(&self) -> Vec<Greeting> {
        self.met.lock().values().copied().collect()
    }

    /// Returns when another member has refused this one for a reason that holds, with the reason.
    async fn refused(&self, holds: impl Fn(&OwnRefusal) -> bool) -> String {
        let mut refusal = self.refusal.subscribe();
        let refused = refusal.wait_for(|refusal| refusal.as_ref().is_some_and(&holds)).await;
        match refused.ok().and_then(|refusal| refusal.clone()) {
            Some(refusal) => refusal.text,
            None => std::future::pending().await,
        }
    }
}

impl Acquaintances for MetaPeers {
    fn meet(&self, peer: &Greeting) -> Result<(), Refusal> {
        let known = self.machine.state().meta(peer.node).copied();
        let before = self.met.lock().insert(peer.node, *peer);
        let decided = judge(known, peer);
        if let Err(Refusal { why, .. }) = &decided
            && before != Some(*peer)
        {
            warn!(member = %peer.node, %why, "a member of meta's group is refused");
        }
        decided
    }

    fn refused(&self, by: NodeId, refusal: &Refusal) {
        let why = &refusal.why;
        // An answer to what this one said earlier may come late.
        let own = self.generations.as_ref().map(|generations| generations.claim());
        let older =
            refusal.recorded.is_some() && own.is_some_and(|claim| claim.is_older(refusal.recorded));
        let refusal = OwnRefusal { text: format!("member {by} refuses this one: {why}"), older };
        self.refusal.send_if_modified(|known| {
            let changed = known.as_ref() != Some(&refusal);
            if changed {
                warn!(%by, %why, "another member of meta's group refuses this one");
                *known = Some(refusal);
            }
            changed
        });
    }
}

/// Whether a member whose data directory is known, or is not, may take part.
fn judge(known: Option<MetaRecord>, peer: &Greeting) -> Result<(), Refusal> {
    let node = peer.node;
    let (why, recorded) = match known {
        Some(MetaRecord { identity, generation }) if identity == peer.identity => {
            match generation {
                Some(recorded) if peer.claim.is_older(Some(recorded)) => {
                    let own = peer.claim.acknowledged.map_or(0, |generation| generation.number);
                    let why = format!(
                        "the data directory of member {node} of meta's group is an older copy, of generation {own}, and generation \
                     {recorded} is known: it has forgotten votes and changes of the catalog, so it must not vote. Start it \
                     once with an empty data directory and --rejoin"
                    );
                    (why, Some(recorded))
                }
                _ => return Ok(()),
            }
        }
        _ if peer.rejoins => {
            let why = format!(
                "member {node} joins again with a new data directory; the group's leader takes it in as soon as the others \
                 have agreed to do without the old one"
            );
            (why, None)
        }
        None => return Ok(()),
        Some(MetaRecord { identity, .. }) => {
            let why = format!(
                "member {node} of meta's group is known by data directory {identity:016x}, this is {:016x}: its data was \
                 lost or replaced, so it must not vote under its number. If the old directory is lost for good, start it \
                 once with an empty data directory and --rejoin",
                peer.identity
            );
            (why, None)
        }
    };
    Err(Refusal { why, recorded })
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
        let generations = self.options.generations.as_ref();
        let own = Greeting {
            node: self.host.node(),
            identity: self.options.identity,
            rejoins: false,
            claim: generations.map(|generations| generations.claim()).unwrap_or_default(),
        };
        for greeting in self.peers.met().into_iter().chain([own]) {
            let Greeting { node, identity, rejoins, .. } = greeting;
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
            self.record_generation(&greeting).await?;
        }
        Ok(())
    }

    /// Records the generation that a member's data directory has come to, if that is not known.
    async fn record_generation(&self, greeting: &Greeting) -> Result<(), Error> {
        let Greeting { node, identity, claim, .. } = *greeting;
        let known = self.machine.state().meta(node).copied();
        let known = known.filter(|known| known.identity == identity);
        let Some(generation) = known.map(|known| known.generation) else { return Ok(()) };
        if claim.pending.is_none() || generation == claim.pending || claim.is_older(generation) {
            return Ok(());
        }
        let renewal = Renewal { node, identity, claim, ..Renewal::default() };
        self.propose_anyway(&Command::RenewMeta(renewal)).await.map(drop)
    }

    /// Keeps the generation of this member's data directory young: makes one after another, and tells the other members
    /// of it until it is recorded. Does not end.
    pub(crate) async fn keep_generation(&self) {
        let Some(generations) = &self.options.generations else {
            return std::future::pending().await;
        };
        let (mut renewed, mut made) = (Instant::now(), 0);
        let mut warned = String::new();
        loop {
            let old = renewed.elapsed() >= self.options.renew_every;
            let nonce = mixed(self.options.incarnation).wrapping_add(mixed(made));
            let before = generations.claim();
            match self.next_generation(generations, nonce, old).await {
                Ok(claim) => {
                    if claim.pending.is_some() && claim.pending != before.pending {
                        (renewed, made) = (Instant::now(), made + 1);
                    }
                    self.host.set_claim(claim);
                    if claim.pending.is_some() {
                        let own = self.host.node();
                        let others = self.options.members.values().filter(|node| **node != own);
                        let introduced = others.map(|node| self.host.introduce(*node));
                        futures::future::join_all(introduced).await;
                    }
                }
                Err(error) => {
                    let text = error.to_string();
                    if text != warned {
                        warn!(%error, "the next generation of the data directory was not made");
                        warned = text;
                    }
                }
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// Takes note of the generation that is recorded, and makes the next one, with this nonce, when this process has made
    /// none that is recorded or when its last one is `old`, unless one is pending.
    async fn next_generation(
        &self,
        generations: &Arc<Generations>,
        nonce: u64,
        old: bool,
    ) -> Result<Claim, Error> {
        let recorded = self.machine.state().meta(self.host.node()).copied();
        let recorded = recorded.filter(|record| record.identity == self.options.identity);
        let recorded = recorded.and_then(|record| record.generation);
        let generations = Arc::clone(generations);
        let step = move || {
            if let Some(recorded) = recorded {
                generations.note_recorded(recorded)?;
            }
            let due = old || !generations.is_settled();
            if due { generations.begin(nonce) } else { Ok(generations.claim()) }
        };
        let made = partita_proto::blocking::spawn(step).await;
        made.map_err(|error| Error::Unavailable(error.to_string()))?
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

    /// Returns when another member has refused this one, which has never been part of a group that had a leader, or
    /// whose data directory is an older copy.
    pub(crate) async fn refused(&self) -> String {
        let never = || !self.options.rejoins && self.machine.state().cluster() == 0;
        self.peers.refused(|refusal| refusal.older || never()).await
    }
}

#[cfg(test)]
mod tests {
    use partita_proto::generation::Generation;

    use super::*;

    const NODE: NodeId = NodeId(2);

    fn greeting(identity: u64, rejoins: bool) -> Greeting {
        Greeting { node: NODE, identity, rejoins, claim: Claim::default() }
    }

    fn known(identity: u64) -> Option<MetaRecord> {
        Some(MetaRecord { identity, generation: None })
    }

    fn member(voter: bool, matched: Option<u64>) -> MemberStatus {
        MemberStatus { replica: ReplicaId(2), node: NODE, voter, matched, silent_for: None }
    }

    #[test]
    fn only_the_directory_that_is_known_takes_part() {
        assert!(judge(None, &greeting(5, false)).is_ok());
        assert!(judge(known(5), &greeting(5, false)).is_ok());
        assert!(judge(known(5), &greeting(5, true)).is_ok());
        let refused = judge(known(5), &greeting(6, false)).unwrap_err();
        assert!(refused.why.contains("--rejoin") && refused.recorded.is_none(), "{refused:?}");
        // One that says nothing of itself is not the one that is known.
        assert!(judge(known(5), &greeting(0, false)).is_err());
        for known in [None, known(5)] {
            assert!(judge(known, &greeting(6, true)).is_err());
        }
    }

    #[test]
    fn an_older_copy_of_the_directory_that_is_known_takes_no_part() {
        let generation = |number| Some(Generation { number, nonce: number * 11 });
        let known = Some(MetaRecord { identity: 5, generation: generation(7) });
        let comes = |acknowledged, pending| Greeting {
            claim: Claim { acknowledged, pending },
            ..greeting(5, false)
        };
        for claim in [(generation(7), generation(8)), (generation(6), generation(7))] {
            assert!(judge(known, &comes(claim.0, claim.1)).is_ok());
        }
        // Who decides may lag behind.
        assert!(judge(known, &comes(generation(8), None)).is_ok());
        for claim in [(generation(6), generation(9)), (generation(6), None), (None, None)] {
            let refused = judge(known, &comes(claim.0, claim.1)).unwrap_err();
            assert!(refused.why.contains("--rejoin"), "{refused:?}");
            assert_eq!(refused.recorded, generation(7));
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
