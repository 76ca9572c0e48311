//! Membership of meta's own group: the identities of the members' data directories, and the readmission of a member
//! that lost its data.
//!
//! ```text
//!   voter, wiped ── refused by all ──▶ exits with the reason
//!   voter, wiped, --rejoin ── refused, and noted by the leader
//!        no voter any more (agreed by the others) ─▶ new identity recorded ─▶ learner ─▶ caught up ─▶ voter
//!   voter, older copy of its data ── refused by all that know a later generation ──▶ exits with the reason
//! ```
//!
//! Invariants:
//! - a member is known by the identity of its data directory, recorded in the catalog after the first connection to
//!   it; under another identity its votes and answers do not count, and nothing is sent to it;
//! - a change of the voters that is cut short is completed by the next leader, which needs no greeting for it;
//! - a directory takes over a member's number only after the others have agreed to remove that member: from then
//!   on, votes and acknowledgements of the old directory count for nothing;
//! - a member that knows a later generation of another member's directory than the directory itself has
//!   ([`partita_proto::generation`]) refuses it as an older copy, and the refused process ends. The leader records
//!   the generations that members report when they greet. A member that lags behind may not know the latest; but a
//!   starting member introduces itself to all others.

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
use crate::core::{Core, raft_error};
use crate::leadership::mixed;
use crate::machine::CatalogMachine;
use crate::transition::Command;

/// Interval at which the leader checks the members, and at which a rejoining member greets the others.
const INTERVAL: Duration = Duration::from_secs(1);
/// Time without contact to a member's old directory before the member is removed.
const SILENCE_MIN: Duration = Duration::from_secs(2);
/// Maximum entries by which a learner may lag behind to become a voter.
const LAG_MAX: u64 = 64;

/// The other members, by their latest greetings.
pub(crate) struct MetaPeers {
    machine: Arc<CatalogMachine>,
    met: Mutex<BTreeMap<NodeId, Greeting>>,
    /// Generations of this member's own data directory.
    generations: Option<Arc<Generations>>,
    /// Refusal of this member by another one.
    refusal: watch::Sender<Option<OwnRefusal>>,
}

/// Refusal of this member by another one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OwnRefusal {
    text: String,
    /// True if the data directory is an older copy: such a refusal is never a mistake.
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

    /// Latest greetings of the other members.
    fn met(&self) -> Vec<Greeting> {
        self.met.lock().values().copied().collect()
    }

    /// Waits for a refusal by another member that fulfils `holds`, and returns its text.
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
        let recorded = self.machine.state().meta(peer.node).copied();
        let previous = self.met.lock().insert(peer.node, *peer);
        let decided = judge(recorded, peer);
        if let Err(Refusal { why, .. }) = &decided
            && previous != Some(*peer)
        {
            warn!(member = %peer.node, %why, "refused a member of meta's group");
        }
        decided
    }

    fn refused(&self, member: NodeId, refusal: &Refusal) {
        let why = &refusal.why;
        // This may be a late answer to an earlier greeting.
        let own_claim = self.generations.as_ref().map(|generations| generations.claim());
        let older = refusal.recorded.is_some()
            && own_claim.is_some_and(|claim| claim.is_older(refusal.recorded));
        let refusal =
            OwnRefusal { text: format!("member {member} refuses this one: {why}"), older };
        self.refusal.send_if_modified(|current| {
            let changed = current.as_ref() != Some(&refusal);
            if changed {
                warn!(%member, %why, "another member of meta's group refuses this one");
                *current = Some(refusal);
            }
            changed
        });
    }
}

/// Admits or refuses a greeting member, given its recorded data directory.
fn judge(record: Option<MetaRecord>, peer: &Greeting) -> Result<(), Refusal> {
    let node = peer.node;
    // The recorded directory is refused only if it is older than a known generation; a rejoining one waits for the
    // leader; an unknown member is admitted, and recorded later.
    let (why, recorded) = match record {
        Some(MetaRecord { identity, generation }) if identity == peer.identity => {
            match generation {
                Some(recorded) if peer.claim.is_older(Some(recorded)) => {
                    let presented =
                        peer.claim.acknowledged.map_or(0, |generation| generation.number);
                    let why = format!(
                        "the data directory of member {node} of meta's group is an older copy: it has generation \
                         {presented}, but generation {recorded} is recorded. It lacks votes and changes of the catalog, \
                         so it must not vote; start it once with an empty data directory and --rejoin"
                    );
                    (why, Some(recorded))
                }
                _ => return Ok(()),
            }
        }
        _ if peer.rejoins => {
            let why = format!(
                "member {node} rejoins with a new data directory; the leader readmits it after the other members have \
                 removed the old one from the group"
            );
            (why, None)
        }
        None => return Ok(()),
        Some(MetaRecord { identity, .. }) => {
            let why = format!(
                "member {node} of meta's group is recorded with data directory {identity:016x}, but has {:016x}: its \
                 data was lost or replaced, so it must not vote under its number. If the old directory is lost for good, \
                 start it once with an empty data directory and --rejoin",
                peer.identity
            );
            (why, None)
        }
    };
    Err(Refusal { why, recorded })
}

/// Next step in the readmission of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Readmission {
    /// Remove the old directory from the group.
    Remove,
    /// Record the new directory under the member's number.
    Record,
    /// Add it as a learner, which replicates but does not vote.
    Learn,
    /// Wait: it is catching up, or the old directory is still active.
    Wait,
    /// Make it a voter.
    Vote,
    /// Do nothing: it is a voter.
    Done,
}

/// Next step for a member that greets as rejoining; `last` is the index of the leader's last entry.
fn next_step(
    greeting: &Greeting,
    recorded: Option<u64>,
    member: Option<&MemberStatus>,
    last: u64,
) -> Readmission {
    match (recorded == Some(greeting.identity), member) {
        // The old directory is still active, although the member claims that it is lost.
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
    /// Records the members of meta's group and readmits rejoining ones, until `end` is cancelled.
    pub(crate) async fn keep_members(&self, end: &CancellationToken) {
        let work = async {
            loop {
                if let Err(error) = self.look_after_members().await {
                    warn!(%error, "changing the members of meta's group failed");
                }
                tokio::time::sleep(INTERVAL).await;
            }
        };
        tokio::select! {
            () = end.cancelled() => {}
            () = work => {}
        }
    }

    async fn look_after_members(&self) -> Result<(), Error> {
        let members = self.group.members();
        let generations = self.options.generations.as_ref();
        let own_greeting = Greeting {
            node: self.host.node(),
            identity: self.options.identity,
            rejoins: false,
            claim: generations.map(|generations| generations.claim()).unwrap_or_default(),
        };
        for greeting in self.peers.met().into_iter().chain([own_greeting]) {
            let Greeting { node, identity, rejoins, .. } = greeting;
            if identity == 0 {
                continue;
            }
            let recorded = self.machine.state().meta_identity(node);
            let member = members.iter().find(|member| member.node == node);
            // A learner continues its readmission, even if it was restarted without --rejoin.
            if rejoins || member.is_some_and(|member| !member.voter) {
                self.readmit(&greeting, recorded, member, &members).await?;
            } else if recorded.is_none() && member.is_some() {
                self.know(node, identity).await?;
            }
            self.record_generation(&greeting).await?;
        }
        // A change of voters that an election cut short: until it ends, both the old and the new voters must agree.
        // A lost member that the change would have removed stays until its new directory greets.
        if self.group.is_changing() {
            let voters = self.group.members().into_iter().filter(|member| member.voter);
            let voters: BTreeSet<ReplicaId> = voters.map(|member| member.replica).collect();
            self.group.set_voters(voters).await.map_err(raft_error)?;
            info!("completed a change of meta's voters that was cut short");
        }
        Ok(())
    }

    /// Records the generation of a member's data directory that it reports, if it is newer.
    async fn record_generation(&self, greeting: &Greeting) -> Result<(), Error> {
        let Greeting { node, identity, claim, .. } = *greeting;
        let record = self.machine.state().meta(node).copied();
        let record = record.filter(|record| record.identity == identity);
        let Some(generation) = record.map(|record| record.generation) else { return Ok(()) };
        if claim.pending.is_none() || generation == claim.pending || claim.is_older(generation) {
            return Ok(());
        }
        let renewal = Renewal { node, identity, claim, ..Renewal::default() };
        self.propose_anyway(&Command::RenewMeta(renewal)).await.map(drop)
    }

    /// Renews the generation of this member's data directory regularly, and tells the other members until it is
    /// recorded. Does not return.
    pub(crate) async fn keep_generation(&self) {
        let Some(generations) = &self.options.generations else {
            return std::future::pending().await;
        };
        let (mut renewed, mut count) = (Instant::now(), 0);
        let mut warned = String::new();
        loop {
            let old = renewed.elapsed() >= self.options.renew_every;
            let nonce = mixed(self.options.incarnation).wrapping_add(mixed(count));
            let previous = generations.claim();
            // Each round notes what is recorded, and makes a new generation if one is due.
            match self.next_generation(generations, nonce, old).await {
                Ok(claim) => {
                    if claim.pending.is_some() && claim.pending != previous.pending {
                        (renewed, count) = (Instant::now(), count + 1);
                    }
                    self.host.set_claim(claim);
                    // All members learn of a pending generation: one of them, or this one, leads and records it.
                    if claim.pending.is_some() {
                        let own_node = self.host.node();
                        let peers = self.options.members.values().filter(|node| **node != own_node);
                        let introduced = peers.map(|node| self.host.introduce(*node));
                        futures::future::join_all(introduced).await;
                    }
                }
                Err(error) => {
                    let text = error.to_string();
                    if text != warned {
                        warn!(%error, "making the next generation of the data directory failed");
                        warned = text;
                    }
                }
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// Takes over the recorded generation. Makes the next one, with this nonce, if this process has made none that
    /// is recorded, or if its last one is `old`; none while one is pending.
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
        let result = partita_proto::blocking::spawn(step).await;
        result.map_err(|error| Error::Unavailable(error.to_string()))?
    }

    async fn know(&self, node: NodeId, identity: u64) -> Result<(), Error> {
        self.propose(&Command::Meta { node, identity }).await?;
        info!(member = %node, identity = format!("{identity:016x}"), "recorded the data directory of a member");
        Ok(())
    }

    /// Carries out the next step of a readmission.
    async fn readmit(
        &self,
        greeting: &Greeting,
        recorded: Option<u64>,
        member: Option<&MemberStatus>,
        members: &[MemberStatus],
    ) -> Result<(), Error> {
        let node = greeting.node;
        // Only members of the configured list have a number.
        let configured = self.options.members.iter().find(|(_, holder)| **holder == node);
        let Some((replica, _)) = configured else { return Ok(()) };
        let last = self.group.status().last_index.unwrap_or_default();
        let step = next_step(greeting, recorded, member, last);
        let voters = || members.iter().filter(|member| member.voter).map(|member| member.replica);
        match step {
            Readmission::Done | Readmission::Wait => return Ok(()),
            Readmission::Remove if member.is_some_and(|member| member.voter) => {
                let remaining: BTreeSet<ReplicaId> =
                    voters().filter(|voter| voter != replica).collect();
                self.group.set_voters(remaining).await.map_err(raft_error)?;
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
                let all_voters: BTreeSet<ReplicaId> = voters().chain([*replica]).collect();
                self.group.set_voters(all_voters).await.map_err(raft_error)?;
            }
        }
        info!(member = %node, ?step, "readmitting a member of meta's group");
        Ok(())
    }

    /// Greets the other members until this one is a voter, if it was started to rejoin.
    pub(crate) async fn ask_to_rejoin(&self) {
        if !self.options.rejoins {
            return;
        }
        let own_node = self.host.node();
        loop {
            let votes = |member: &MemberStatus| member.node == own_node && member.voter;
            let recorded = self.machine.state().meta_identity(own_node);
            let settled = !self.group.is_changing() && self.group.members().iter().any(votes);
            if recorded == Some(self.options.identity) && settled {
                info!("this member has rejoined meta's group; --rejoin is no longer needed");
                self.host.set_rejoins(false);
                break;
            }
            for node in self.options.members.values().filter(|node| **node != own_node) {
                self.host.greet(*node).await;
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// Waits for a refusal by another member, and returns its text. Refusals count if this member's data directory
    /// is an older copy, or if it has never been part of a group that had a leader.
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
        // A greeting without an identity does not match the recorded one.
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
