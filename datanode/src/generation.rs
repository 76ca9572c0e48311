//! Records the generations of a node's data directory with meta: before the node serves, while it runs, and a last time
//! when it stops ([`partita_proto::generation`]).
//!
//! ```text
//!   confirm ── current ──▶ serves, renews
//!      └────── older ────▶ its replicas are refused (`older.rs`) ── begin anew ──▶ serves new replicas, renews
//! ```
//!
//! Invariant: an older directory begins anew only after all replicas in it that may be stale are refused durably.

use std::sync::Arc;
use std::time::Duration;

use partita_proto::blocking;
use partita_proto::error::Error;
use partita_proto::generation::{Claim, Generation, Generations, Renewal, Renewed};
use partita_proto::id::{NodeId, PartitionId};
use tokio::time::Instant;
use tracing::{error, info, warn};

/// Pause before the request to meta is repeated.
const PAUSE: Duration = Duration::from_millis(500);

/// Source of random numbers.
pub type Chance = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Age of a data directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Age {
    /// No later generation is known: the directory is current.
    Current {
        /// Accepted partitions of which this node has the only replica.
        alone: Vec<PartitionId>,
    },
    /// The directory is an older copy.
    Older {
        /// The generation recorded by meta.
        recorded: Generation,
        /// As in [`Age::Current`].
        alone: Vec<PartitionId>,
    },
    /// Unknown: meta runs an earlier version, or does not know the node.
    Unknown,
}

/// The generations of a node's data directory, and the state of recording them with meta.
pub struct GenerationKeeper {
    generations: Arc<Generations>,
    node: NodeId,
    identity: u64,
    chance: Chance,
    interval: Duration,
    renewed: Instant,
}

impl GenerationKeeper {
    /// Creates the keeper; `interval` is the age at which the next generation is made.
    pub fn new(
        generations: Generations,
        (node, identity): (NodeId, u64),
        chance: Chance,
        interval: Duration,
    ) -> Self {
        let generations = Arc::new(generations);
        Self { generations, node, identity, chance, interval, renewed: Instant::now() }
    }

    /// The generations, as heartbeats carry them.
    #[must_use]
    pub fn claim(&self) -> Claim {
        self.generations.claim()
    }

    /// Records a new generation with meta, and waits as long as meta cannot answer; `accepted` are the partitions whose
    /// older replicas the operator accepts.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] when the node was removed; those of the directory.
    pub async fn confirm<F: Future<Output = Result<Renewed, Error>>>(
        &mut self,
        accepted: &[PartitionId],
        ask: impl Fn(Renewal) -> F,
    ) -> Result<Age, Error> {
        let mut warned = String::new();
        loop {
            let claim = self.begin().await?;
            let renewal = Renewal { accepted: accepted.to_vec(), ..self.renewal(claim) };
            match ask(renewal).await {
                Ok(Renewed { recorded, alone: sole_replicas }) => {
                    // Meta has recorded a later generation than this directory knows: it is an older copy.
                    if claim.is_older(Some(recorded)) {
                        error!(
                            node = %self.node,
                            generation = claim.acknowledged.map_or(0, |generation| generation.number),
                            %recorded,
                            "the data directory is an older copy: its replicas are recreated from other nodes"
                        );
                        return Ok(Age::Older { recorded, alone: sole_replicas });
                    }
                    // Otherwise adopt the recorded generation, and repeat the request until both agree.
                    if !self.note(recorded).await? {
                        tokio::time::sleep(PAUSE).await;
                    } else if self.generations.is_settled() {
                        return Ok(Age::Current { alone: sole_replicas });
                    }
                }
                Err(error @ (Error::Unsupported(_) | Error::NotFound { .. })) => {
                    warn!(%error, "cannot determine whether the data directory is an older copy");
                    return Ok(Age::Unknown);
                }
                Err(error) => pause(error, &mut warned).await?,
            }
        }
    }

    /// Records a generation that follows meta's, after all replicas that may be stale were refused.
    ///
    /// # Errors
    /// As [`GenerationKeeper::confirm`].
    pub async fn begin_anew<F: Future<Output = Result<Renewed, Error>>>(
        &mut self,
        mut recorded: Generation,
        ask: impl Fn(Renewal) -> F,
    ) -> Result<(), Error> {
        let mut warned = String::new();
        loop {
            let nonce = (self.chance)();
            let make = move |generations: &Generations| generations.begin_after(recorded, nonce);
            let claim = self.change(make).await?;
            recorded = loop {
                let renewal = Renewal { set_aside: true, ..self.renewal(claim) };
                match ask(renewal).await {
                    Ok(renewed) => break renewed.recorded,
                    Err(error) => pause(error, &mut warned).await?,
                }
            };
            if self.note(recorded).await? {
                info!(node = %self.node, generation = %recorded, "the data directory begins anew");
                return Ok(());
            }
        }
    }

    /// Records the next generation when it is due; one attempt.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] when another process has started over a copy of the directory, or the node was removed.
    /// Others are transient.
    pub async fn renew_when_due<F: Future<Output = Result<Renewed, Error>>>(
        &mut self,
        ask: impl Fn(Renewal) -> F,
    ) -> Result<(), Error> {
        let settled = self.generations.is_settled() && self.claim().pending.is_none();
        if settled && self.renewed.elapsed() < self.interval {
            return Ok(());
        }
        self.renew(ask).await
    }

    /// Records the next generation; one attempt. When a process stops, copies made while it ran become older copies by
    /// this.
    ///
    /// # Errors
    /// As [`GenerationKeeper::renew_when_due`].
    pub async fn renew<F: Future<Output = Result<Renewed, Error>>>(
        &mut self,
        ask: impl Fn(Renewal) -> F,
    ) -> Result<(), Error> {
        let claim = self.begin().await?;
        let recorded = match ask(self.renewal(claim)).await {
            Ok(renewed) => renewed.recorded,
            Err(Error::Unsupported(_)) => {
                self.renewed = Instant::now();
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if claim.is_older(Some(recorded)) {
            return Err(Error::InvalidInput(format!(
                "another process has started over a copy of the data directory of node {} (generation {recorded}); this \
                 one must end",
                self.node
            )));
        }
        self.note(recorded).await.map(drop)
    }

    fn renewal(&self, claim: Claim) -> Renewal {
        Renewal { node: self.node, identity: self.identity, claim, ..Renewal::default() }
    }

    async fn begin(&self) -> Result<Claim, Error> {
        let nonce = (self.chance)();
        self.change(move |generations| generations.begin(nonce)).await
    }

    async fn note(&mut self, recorded: Generation) -> Result<bool, Error> {
        let noted = self.change(move |generations| generations.note_recorded(recorded)).await?;
        if noted {
            self.renewed = Instant::now();
        }
        Ok(noted)
    }

    /// Changes the generations on disk.
    async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&Generations) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let generations = Arc::clone(&self.generations);
        let changed = blocking::spawn(move || change(&generations)).await;
        changed.map_err(|error| Error::Unavailable(error.to_string()))?
    }
}

/// Waits before the request to meta is repeated; returns the error if repeating is useless.
async fn pause(error: Error, warned: &mut String) -> Result<(), Error> {
    if matches!(error, Error::InvalidInput(_)) {
        return Err(error);
    }
    let text = error.to_string();
    if text != *warned {
        warn!(%error, "waiting for meta to record a generation of the data directory");
        *warned = text;
    }
    tokio::time::sleep(PAUSE).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use parking_lot::Mutex;
    use partita_proto::generation::{ClaimFile, Decision, decide};

    use super::*;

    const NODE: NodeId = NodeId(3);

    #[derive(Default)]
    struct Memory(Mutex<Claim>);

    impl ClaimFile for Memory {
        fn read(&self) -> Result<Claim, Error> {
            Ok(*self.0.lock())
        }

        fn write(&self, claim: &Claim) -> Result<(), Error> {
            *self.0.lock() = *claim;
            Ok(())
        }
    }

    /// A meta that answers like the real one, after the errors in `first`.
    #[derive(Default)]
    struct FakeMeta {
        recorded: Mutex<Option<Generation>>,
        first: Mutex<Vec<Error>>,
        asked: Mutex<Vec<Renewal>>,
    }

    impl FakeMeta {
        async fn renew(&self, renewal: Renewal) -> Result<Renewed, Error> {
            let mut recorded = self.recorded.lock();
            self.asked.lock().push(renewal.clone());
            let failure = self.first.lock().pop();
            // After a time-out the request has taken effect all the same.
            let lost = matches!(failure, Some(Error::Timeout(_)));
            if failure.is_none() || lost {
                let decision = decide(*recorded, &renewal.claim, renewal.set_aside)?;
                if let Decision::Record(generation) = decision {
                    *recorded = Some(generation);
                }
            }
            match failure {
                Some(error) => Err(error),
                None => {
                    Ok(Renewed { recorded: recorded.unwrap_or_default(), alone: renewal.accepted })
                }
            }
        }
    }

    fn keeper(file: &Arc<Memory>) -> GenerationKeeper {
        static NONCES: AtomicU64 = AtomicU64::new(1);
        let generations = Generations::open(Arc::<Memory>::clone(file) as _).unwrap();
        let chance = Arc::new(|| NONCES.fetch_add(1, Ordering::Relaxed));
        GenerationKeeper::new(generations, (NODE, 77), chance, Duration::from_secs(60))
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_waits_until_its_generation_is_recorded_also_when_answers_get_lost() {
        let (file, meta) = (Arc::new(Memory::default()), FakeMeta::default());
        let lost = || Error::Timeout("lost".to_owned());
        *meta.first.lock() = vec![lost(), Error::Unavailable("nobody leads".to_owned()), lost()];
        let accepted = [PartitionId(7)];
        let alone = accepted.to_vec();
        let mut first = keeper(&file);
        let age = first.confirm(&accepted, |renewal| meta.renew(renewal)).await.unwrap();
        assert_eq!(age, Age::Current { alone });
        assert_eq!(meta.asked.lock().len(), 4);
        assert_eq!(file.read().unwrap().acknowledged, *meta.recorded.lock());
        assert!(meta.asked.lock().iter().all(|asked| (asked.node, asked.identity) == (NODE, 77)));
        // One that ended before it knew.
        *meta.first.lock() = vec![lost()];
        assert!(first.renew(|renewal| meta.renew(renewal)).await.is_err());
        drop(first);
        let found = file.read().unwrap();
        assert!(found.pending.is_some() && found.pending == *meta.recorded.lock());
        let mut second = keeper(&file);
        let age = second.confirm(&[], |renewal| meta.renew(renewal)).await.unwrap();
        assert_eq!(age, Age::Current { alone: vec![] });
        assert!(file.read().unwrap().acknowledged.unwrap().number > found.pending.unwrap().number);
    }

    #[tokio::test(start_paused = true)]
    async fn an_older_copy_is_told_begins_anew_and_ends_who_ran_before() {
        let (file, meta) = (Arc::new(Memory::default()), FakeMeta::default());
        let renew = |renewal| meta.renew(renewal);
        let mut running = keeper(&file);
        running.confirm(&[], renew).await.unwrap();
        let copy = Arc::new(Memory(Mutex::new(file.read().unwrap())));
        tokio::time::advance(Duration::from_secs(59)).await;
        running.renew_when_due(renew).await.unwrap();
        assert_eq!(file.read(), copy.read(), "it is not time yet");
        tokio::time::advance(Duration::from_secs(1)).await;
        running.renew_when_due(renew).await.unwrap();
        assert_ne!(file.read(), copy.read());
        let mut older = keeper(&copy);
        let recorded = meta.recorded.lock().unwrap();
        let age = older.confirm(&[], renew).await.unwrap();
        assert_eq!(age, Age::Older { recorded, alone: vec![] });
        // As often as it starts.
        assert_eq!(keeper(&copy).confirm(&[], renew).await.unwrap(), age);
        *meta.first.lock() = vec![Error::Timeout("lost".to_owned())];
        older.begin_anew(recorded, renew).await.unwrap();
        assert_eq!(copy.read().unwrap().acknowledged, *meta.recorded.lock());
        let told = running.renew(renew).await.unwrap_err();
        assert!(matches!(&told, Error::InvalidInput(why) if why.contains("another process")));
        assert!(keeper(&copy).confirm(&[], renew).await.unwrap() != age, "it is current now");
    }

    #[tokio::test(start_paused = true)]
    async fn a_meta_that_cannot_tell_keeps_no_node_from_starting_and_one_that_removed_it_does() {
        let (file, meta) = (Arc::new(Memory::default()), FakeMeta::default());
        let renew = |renewal| meta.renew(renewal);
        let unknown = Error::NotFound { kind: "node", name: "3".to_owned() };
        for error in [Error::Unsupported("renew".to_owned()), unknown] {
            *meta.first.lock() = vec![error];
            assert_eq!(keeper(&file).confirm(&[], renew).await, Ok(Age::Unknown));
        }
        let removed = Error::InvalidInput("removed".to_owned());
        *meta.first.lock() = vec![removed.clone()];
        assert_eq!(keeper(&file).confirm(&[], renew).await, Err(removed));
    }
}
