//! Random operations, a power cut at a random moment, and a model of the possible states afterwards.
//!
//! Confirmed operations must have survived; others may have survived or not, but only as a whole history of operations
//! allows; no other state may be found.

use proptest::prelude::*;

use super::*;
use crate::log::Vote;

/// A budget that is soon exceeded, so that segments are given up and tails are written again.
fn open(disk: &SimulatedDisk) -> Result<Arc<Log>, RaftError> {
    Log::open(
        Arc::new(disk.clone()),
        LogOptions { budget_bytes: 3 * u64::from(SEGMENT), ..options() },
    )
}

#[derive(Clone, Debug)]
enum Step {
    Append {
        group: u64,
        count: u64,
        bytes: usize,
    },
    /// Keeps that many entries in a thousand.
    Truncate {
        group: u64,
        keep: u64,
    },
    Purge {
        group: u64,
        part: u64,
    },
    Vote {
        group: u64,
    },
    Committed {
        group: u64,
    },
    Recreate {
        group: u64,
    },
    /// Begins the group anew, with an entry of that index.
    Seed {
        group: u64,
        index: u64,
    },
    /// Waits until all is on disk.
    Settle,
    /// Closes and opens the log.
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let group = 1..4_u64;
    let step = prop_oneof![
        12 => (group.clone(), 1..12_u64, prop_oneof![0..200_usize, 1000..4000_usize])
            .prop_map(|(group, count, bytes)| Step::Append { group, count, bytes }),
        2 => (group.clone(), 0..1000_u64).prop_map(|(group, keep)| Step::Truncate { group, keep }),
        3 => (group.clone(), 0..1000_u64).prop_map(|(group, part)| Step::Purge { group, part }),
        2 => group.clone().prop_map(|group| Step::Vote { group }),
        1 => group.clone().prop_map(|group| Step::Committed { group }),
        1 => group.clone().prop_map(|group| Step::Recreate { group }),
        1 => (group, 1..500_u64).prop_map(|(group, index)| Step::Seed { group, index }),
        2 => Just(Step::Settle),
        1 => Just(Step::Restart),
    ];
    proptest::collection::vec(step, 1..120)
}

/// State of a group's log as recovery reports it.
#[derive(Clone, Debug, PartialEq)]
struct Found {
    replica: u64,
    vote: Option<Vote>,
    purged: Option<Position>,
    entries: Vec<LogEntry>,
}

/// A group as it should be in memory, and all states that the disk may have.
#[derive(Clone, Debug, Default)]
struct Model {
    now: Option<Found>,
    /// Since the last confirmation; the first one is confirmed.
    possible: Vec<Option<Found>>,
    term: u64,
    incarnation: u64,
    committed: Option<u64>,
}

impl Model {
    fn change(&mut self, change: impl FnOnce(&mut Option<Found>)) {
        change(&mut self.now);
        self.possible.push(self.now.clone());
    }

    fn confirm(&mut self) {
        self.possible = vec![self.now.clone()];
    }

    fn check(&self, found: Option<&Found>) {
        // Votes travel in checkpoints ahead of the entries queued before them, so they are looked at apart.
        let log = |found: &Found| (found.replica, found.purged, found.entries.clone());
        let possible = self.possible.iter().any(|state| state.as_ref().map(log) == found.map(log));
        assert!(possible, "found {found:?}\nexpected one of {:?}", self.possible);
        if let Some(found) = found {
            let mut votes = self.possible.iter().flatten().map(|state| state.vote);
            assert!(votes.any(|vote| vote == found.vote), "found vote {:?}", found.vote);
        }
    }
}

struct Run {
    disk: SimulatedDisk,
    log: Arc<Log>,
    groups: Vec<Model>,
    waiting: Vec<oneshot::Receiver<Result<(), RaftError>>>,
}

impl Run {
    /// Waits for everything that is queued; an error means that the power is off.
    async fn settle(&mut self) -> Result<(), RaftError> {
        for done in self.waiting.drain(..) {
            done.await.expect("the writer answers")?;
        }
        // The last of the queue: whatever was queued before it is on disk too.
        let vote = Vote { term: 0, leader: 0, committed: false };
        self.log.save_vote(GroupId(9), vote).await?;
        for group in &mut self.groups {
            group.confirm();
        }
        Ok(())
    }

    async fn step(&mut self, step: &Step) -> Result<(), RaftError> {
        match step {
            Step::Append { group, count, bytes } => self.append(*group, *count, *bytes).await,
            Step::Truncate { group, keep } => self.truncate(*group, *keep).await,
            Step::Purge { group, part } => self.purge(*group, *part).await,
            Step::Vote { group } => {
                let model = &mut self.groups[usize::try_from(*group).unwrap()];
                if model.now.is_none() {
                    return Ok(());
                }
                model.term += 1;
                let vote =
                    Vote { term: model.term, leader: 5, committed: model.term.is_multiple_of(2) };
                model.change(|now| now.as_mut().unwrap().vote = Some(vote));
                self.log.save_vote(GroupId(*group), vote).await?;
                self.groups[usize::try_from(*group).unwrap()].confirm();
                Ok(())
            }
            Step::Committed { group } => {
                let model = &mut self.groups[usize::try_from(*group).unwrap()];
                let last = model
                    .now
                    .as_ref()
                    .and_then(|now| now.entries.last())
                    .map(|entry| entry.position);
                if let Some(position) = last {
                    model.committed = Some(position.index);
                    self.log.save_committed(GroupId(*group), last)?;
                }
                Ok(())
            }
            Step::Recreate { group } => self.recreate(*group).await,
            Step::Seed { group, index } => self.seed(*group, *index).await,
            Step::Settle => self.settle().await,
            Step::Restart => {
                self.settle().await?;
                self.log.close();
                self.log = open(&self.disk)?;
                Ok(())
            }
        }
    }

    async fn append(&mut self, group: u64, count: u64, bytes: usize) -> Result<(), RaftError> {
        let model = &mut self.groups[usize::try_from(group).unwrap()];
        let Some(now) = &model.now else { return Ok(()) };
        let next = now
            .entries
            .last()
            .map(|entry| entry.position)
            .or(now.purged)
            .map_or(0, |last| last.index + 1);
        let (term, incarnation) = (model.term, model.incarnation);
        let new: Vec<_> = (next..next + count)
            .map(|index| {
                let mut payload = format!("{group}/{incarnation}/{term}/{index}/").into_bytes();
                payload.resize(payload.len().max(bytes), b'.');
                entry(term, index, payload)
            })
            .collect();
        for entry in &new {
            model.change(|now| now.as_mut().unwrap().entries.push(entry.clone()));
        }
        self.waiting.push(submit(&self.log, GroupId(group), new).await?);
        Ok(())
    }

    async fn truncate(&mut self, group: u64, keep: u64) -> Result<(), RaftError> {
        let model = &mut self.groups[usize::try_from(group).unwrap()];
        let Some(now) = &model.now else { return Ok(()) };
        // What is committed is never truncated, and a group's first entry, its membership, always is.
        let committed = now
            .entries
            .iter()
            .filter(|entry| entry.position.index <= model.committed.unwrap_or(0))
            .count();
        let kept = usize::try_from(now.entries.len() as u64 * keep / 1000).unwrap().max(committed);
        if kept >= now.entries.len() {
            return Ok(());
        }
        let last = now.entries[..kept].last().map(|entry| entry.position).or(now.purged);
        // What comes after a truncation is of a later term.
        model.term += 1;
        model.change(|now| now.as_mut().unwrap().entries.truncate(kept));
        self.log.truncate(GroupId(group), last).await
    }

    async fn purge(&mut self, group: u64, part: u64) -> Result<(), RaftError> {
        // Only what is applied is purged, and so is on disk.
        self.settle().await?;
        let model = &mut self.groups[usize::try_from(group).unwrap()];
        let Some(now) = &model.now else { return Ok(()) };
        let gone = usize::try_from(now.entries.len() as u64 * part / 1000).unwrap();
        let Some(upto) = now.entries[..gone].last().map(|entry| entry.position) else {
            return Ok(());
        };
        model.change(|now| {
            let now = now.as_mut().unwrap();
            now.purged = Some(upto);
            now.entries.drain(..gone);
        });
        self.log.purge(GroupId(group), upto).await
    }

    /// Destroys the group; answers as which replica it is to begin again.
    async fn destroy(&mut self, group: u64) -> Result<u64, RaftError> {
        let at = usize::try_from(group).unwrap();
        if self.groups[at].now.is_some() {
            self.groups[at].change(|now| *now = None);
            self.log.destroy(GroupId(group)).await?;
            self.groups[at].confirm();
        }
        self.groups[at].incarnation += 1;
        self.groups[at].committed = None;
        Ok(self.groups[at].incarnation)
    }

    async fn seed(&mut self, group: u64, index: u64) -> Result<(), RaftError> {
        let replica = self.destroy(group).await?;
        let model = &mut self.groups[usize::try_from(group).unwrap()];
        model.term += 1;
        let first = entry(model.term, index, format!("seed {replica}"));
        let Position { term, leader, .. } = first.position;
        let seeded = Found {
            replica,
            vote: Some(Vote { term, leader, committed: true }),
            purged: Some(Position { index: index - 1, ..first.position }),
            entries: vec![first.clone()],
        };
        // All of it at once, or nothing.
        model.change(|now| *now = Some(seeded));
        self.log.seed(GroupId(group), ReplicaId(replica), first).await?;
        self.groups[usize::try_from(group).unwrap()].confirm();
        Ok(())
    }

    async fn recreate(&mut self, group: u64) -> Result<(), RaftError> {
        let replica = self.destroy(group).await?;
        let at = usize::try_from(group).unwrap();
        let fresh = Found { replica, vote: None, purged: None, entries: Vec::new() };
        self.groups[at].change(|now| *now = Some(fresh));
        self.log.create(GroupId(group), ReplicaId(replica)).await?;
        self.groups[at].confirm();
        Ok(())
    }
}

async fn found(log: &Log, group: GroupId) -> Option<Found> {
    let view = log.view(group).ok()?;
    let entries = all(log, group).await;
    assert_eq!(view.last, entries.last().map(|entry| entry.position).or(view.purged));
    assert!(view.committed <= view.last);
    Some(Found {
        replica: log.replica(group).unwrap().0,
        vote: view.vote,
        purged: view.purged,
        entries,
    })
}

async fn check(log: &Log, groups: &[Model]) {
    for (group, model) in (0..).map(GroupId).zip(groups) {
        model.check(found(log, group).await.as_ref());
    }
}

/// Runs the steps until the power cut, then checks the surviving state.
async fn run(steps: Vec<Step>, power: Option<u64>, seed: u64) {
    let disk = SimulatedDisk::default();
    let log = open(&disk).unwrap();
    log.create(GroupId(9), ReplicaId(9)).await.unwrap();
    let groups = vec![Model { possible: vec![None], ..Model::default() }; 4];
    let mut run = Run { disk: disk.clone(), log, groups, waiting: Vec::new() };
    for group in 1..4 {
        run.recreate(group).await.unwrap();
    }
    if let Some(operations) = power {
        disk.cut_after(operations);
    }
    let mut off = false;
    for step in &steps {
        if let Err(error) = run.step(step).await {
            assert!(power.is_some(), "nothing fails while there is power: {error}");
            off = true;
            break;
        }
    }
    if !off {
        if power.is_none() {
            // In memory everything is exactly as it should be.
            for (group, model) in (0..).map(GroupId).zip(&run.groups) {
                assert_eq!(found(&run.log, group).await, model.now);
            }
        }
        disk.cut();
    }
    run.log.close();

    let mut random = seed;
    let survivor = disk.survivor(|| {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        random >> 63 == 1
    });
    let log = open(&survivor).unwrap();
    check(&log, &run.groups).await;
    // The log is as good as any: it takes more, and keeps what was found through another restart.
    let mut after = Vec::new();
    for group in 1..4 {
        let id = GroupId(group);
        if let Some(found) = found(&log, id).await {
            let next = found
                .entries
                .last()
                .map(|entry| entry.position)
                .or(found.purged)
                .map_or(0, |last| last.index + 1);
            append(&log, id, vec![entry(u64::MAX, next, "afterwards")]).await.unwrap();
        }
        let now = found(&log, id).await;
        after.push(now);
    }
    log.close();
    let log = open(&survivor).unwrap();
    for (group, expected) in (1..).map(GroupId).zip(after) {
        assert_eq!(found(&log, group).await, expected);
    }
    log.close();
}

fn block_on(future: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_power_cut_loses_nothing_confirmed_and_invents_nothing(
        steps in steps(),
        power in proptest::option::weighted(0.8, 0..600_u64),
        seed in any::<u64>(),
    ) {
        block_on(run(steps, power, seed));
    }
}
