//! Every order in which starts, requests, answers, crashes and copies of a directory can follow each other, up to a few
//! of each.

use std::collections::BTreeSet;

use super::*;

const fn generation(number: u64, nonce: u64) -> Generation {
    Generation { number, nonce }
}

fn claim(acknowledged: Option<Generation>, pending: Option<Generation>) -> Claim {
    Claim { acknowledged, pending }
}

#[test]
fn a_directory_is_older_when_the_recorded_generation_is_none_of_its_own_and_not_behind() {
    let (fourth, fifth, other) = (generation(4, 44), generation(5, 55), generation(5, 56));
    let normal = claim(Some(fourth), Some(fifth));
    for recorded in [None, Some(fourth), Some(fifth), Some(generation(3, 33))] {
        assert!(!normal.is_older(recorded), "{recorded:?}");
    }
    for recorded in [other, generation(6, 66), generation(4, 45)] {
        assert!(normal.is_older(Some(recorded)), "{recorded}");
    }
    // From before there were generations.
    assert!(!Claim::default().is_older(None));
    assert!(Claim::default().is_older(Some(generation(1, 11))));
    assert!(claim(None, Some(generation(1, 12))).is_older(Some(generation(1, 11))));
}

#[test]
fn what_is_recorded_rises_and_an_older_copy_begins_anew_only_when_it_was_set_aside() {
    let (fourth, fifth, sixth) = (generation(4, 44), generation(5, 55), generation(6, 66));
    let asks = claim(Some(fourth), Some(fifth));
    let decided = |recorded, claim, set_aside| decide(recorded, claim, set_aside).unwrap();
    assert_eq!(decided(None, &asks, false), Decision::Record(fifth));
    assert_eq!(decided(Some(fourth), &asks, false), Decision::Record(fifth));
    assert_eq!(decided(Some(fifth), &asks, false), Decision::Recorded);
    assert_eq!(decided(Some(sixth), &asks, false), Decision::Older);
    assert_eq!(decided(Some(sixth), &asks, true), Decision::Older, "a request that comes late");
    let anew = claim(Some(fourth), Some(generation(7, 77)));
    assert_eq!(decided(Some(sixth), &anew, false), Decision::Older);
    assert_eq!(decided(Some(sixth), &anew, true), Decision::Record(generation(7, 77)));
    assert!(decide(None, &claim(Some(fourth), None), false).is_err());
    assert!(decide(None, &claim(None, Some(generation(0, 1))), false).is_err());
}

/// Data directories hold this text: it never changes.
#[test]
fn the_text_never_changes() {
    let text = claim(Some(generation(7, u64::MAX)), Some(generation(8, 3))).to_text();
    let (lines, checksum) = text.split_at(text.find("checksum").unwrap());
    assert_eq!(lines, "acknowledged 7 ffffffffffffffff\npending 8 0000000000000003\n");
    assert_eq!(checksum, "checksum 03699f904380878f\n");
}

#[test]
fn the_text_reads_back_and_damage_is_noticed() {
    let (some, other) = (Some(generation(7, u64::MAX)), Some(generation(8, 3)));
    for claim in [claim(some, other), claim(some, None), claim(None, other), Claim::default()] {
        let text = claim.to_text();
        assert_eq!(Claim::from_text(&text), Some(claim));
        for place in 0..text.len() {
            let mut damaged = text.clone().into_bytes();
            damaged[place] ^= 1;
            assert_eq!(Claim::from_text(&String::from_utf8(damaged).unwrap()), None);
            assert_eq!(Claim::from_text(&text[..place]), None);
        }
    }
}

/// A file in memory.
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

#[test]
fn a_generation_that_was_found_pending_settles_nothing() {
    let file = Arc::new(Memory::default());
    let first = Generations::open(Arc::<Memory>::clone(&file) as _).unwrap();
    let asked = first.begin(11).unwrap();
    assert_eq!(asked, claim(None, Some(generation(1, 11))));
    drop(first);
    let second = Generations::open(Arc::<Memory>::clone(&file) as _).unwrap();
    assert_eq!(second.begin(22).unwrap(), asked, "it may be recorded");
    assert!(!second.note_recorded(generation(9, 9)).unwrap());
    assert!(second.note_recorded(generation(1, 11)).unwrap());
    assert!(!second.is_settled());
    let own = second.begin(33).unwrap().pending.unwrap();
    assert_eq!(own, generation(2, 33));
    assert!(second.note_recorded(own).unwrap() && second.is_settled());
    assert_eq!(file.read().unwrap(), claim(Some(own), None));
    // One that is older begins after what is recorded, whatever is pending.
    second.begin(44).unwrap();
    let anew = second.begin_after(generation(9, 9), 55).unwrap();
    assert_eq!(anew, claim(Some(own), Some(generation(10, 55))));
}

/// A directory, the recorder of its generations, and the messages between them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct World {
    directory: (Option<(u64, u64)>, Option<(u64, u64)>),
    recorded: Option<(u64, u64)>,
    process: Option<Process>,
    /// In-flight requests of any process.
    requests: BTreeSet<(Option<(u64, u64)>, Option<(u64, u64)>)>,
    copy: Option<Copied>,
    /// True if the directory was restored from a copy after the original had served something later.
    older: bool,
    /// True if it was restored from a copy at all.
    put_back: bool,
    /// Number of random numbers drawn.
    drawn: u64,
    crashes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Process {
    own_pending: bool,
    serves: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Copied {
    directory: (Option<(u64, u64)>, Option<(u64, u64)>),
    /// True if a process has served since under a generation that the copy does not have.
    outlived: bool,
}

fn pair(generation: Option<Generation>) -> Option<(u64, u64)> {
    generation.map(|Generation { number, nonce }| (number, nonce))
}

fn claim_of((acknowledged, pending): (Option<(u64, u64)>, Option<(u64, u64)>)) -> Claim {
    let generation =
        |pair: Option<(u64, u64)>| pair.map(|(number, nonce)| generation(number, nonce));
    claim(generation(acknowledged), generation(pending))
}

impl World {
    /// Lets the process do something with the real code.
    fn with<T>(&mut self, act: impl FnOnce(&Generations) -> T) -> T {
        let Some(process) = &mut self.process else { panic!("nobody runs") };
        let file = Arc::new(Memory(Mutex::new(claim_of(self.directory))));
        let generations = Generations::open(Arc::<Memory>::clone(&file) as _).unwrap();
        generations.state.lock().own_pending = process.own_pending;
        generations.state.lock().settled = process.serves;
        let done = act(&generations);
        let state = generations.state.lock();
        *process = Process { own_pending: state.own_pending, serves: state.settled };
        let claim = file.read().unwrap();
        self.directory = (pair(claim.acknowledged), pair(claim.pending));
        done
    }

    fn next(&self) -> Vec<Self> {
        let mut next = Vec::new();
        let mut push = |change: &dyn Fn(&mut Self)| {
            let mut world = self.clone();
            change(&mut world);
            next.push(world);
        };
        if self.process.is_none() {
            push(&|world| world.process = Some(Process { own_pending: false, serves: false }));
            if let Some(copy) = self.copy.filter(|_| !self.put_back) {
                push(&|world| {
                    (world.directory, world.put_back) = (copy.directory, true);
                    world.older = copy.outlived;
                });
            }
        } else {
            if self.crashes < 3 {
                push(&|world| {
                    world.process = None;
                    world.crashes += 1;
                });
            }
            if self.drawn < 4 {
                push(&|world| {
                    world.drawn += 1;
                    let nonce = world.drawn;
                    let asked = world.with(|generations| generations.begin(nonce).unwrap());
                    world.requests.insert((pair(asked.acknowledged), pair(asked.pending)));
                });
            }
        }
        if self.copy.is_none() {
            push(&|world| {
                world.copy = Some(Copied { directory: world.directory, outlived: false });
            });
        }
        for request in &self.requests {
            // It arrives; the answer does too, or does not. It may arrive again.
            for answered in [false, true] {
                push(&|world| world.deliver(*request, answered));
            }
        }
        next
    }

    fn deliver(&mut self, request: (Option<(u64, u64)>, Option<(u64, u64)>), answered: bool) {
        let recorded = self.recorded.map(|(number, nonce)| generation(number, nonce));
        let decided = decide(recorded, &claim_of(request), false).unwrap();
        let outdated = self.older && claim_of(request) == claim_of(self.directory);
        assert!(
            !outdated || decided == Decision::Older,
            "an older copy is taken for the directory: {self:#?}"
        );
        let of_now = self.process.is_some() && claim_of(request) == claim_of(self.directory);
        assert!(
            self.put_back || !of_now || decided != Decision::Older,
            "the directory is taken for an older copy: {self:#?}"
        );
        if let Decision::Record(generation) = decided {
            self.recorded = pair(Some(generation));
        }
        if answered
            && self.process.is_some()
            && let Some((number, nonce)) = self.recorded
        {
            self.with(|generations| generations.note_recorded(generation(number, nonce)).unwrap());
            let serves = self.process.is_some_and(|process| process.serves);
            let acknowledged = claim_of(self.directory).acknowledged;
            if let (Some(copy), Some(current), true) = (&mut self.copy, acknowledged, serves) {
                copy.outlived |= !claim_of(copy.directory).has(current);
            }
        }
    }
}

#[test]
fn in_every_order_an_older_copy_is_noticed_and_nothing_else_is_taken_for_one() {
    let mut seen = BTreeSet::new();
    let mut todo = vec![World::default()];
    let mut older = 0;
    while let Some(world) = todo.pop() {
        if !seen.insert(world.clone()) {
            continue;
        }
        older += usize::from(world.older);
        todo.extend(world.next());
    }
    assert!(seen.len() > 1_000 && older > 100, "{} states, {older} of older copies", seen.len());
}
