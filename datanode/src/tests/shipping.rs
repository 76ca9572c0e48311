//! The rules by which changes of a source reach a copy, without nodes: whatever two shippers do at once, whoever
//! restarts, and whatever is split, the copy gets the rows of the source, each once, and those of a key in order.

use std::collections::{BTreeMap, VecDeque};

use partita_proto::materialized::{Capture, CaptureOrder, Position, Ship};
use proptest::prelude::*;

use super::*;
use crate::capture::{Gap, Tail};
use crate::requests::{Requests, Shipping};

const COPY: TableId = TableId(50);
/// Ids lie below this.
const IDS: i64 = 64;
const BYTES_MAX: usize = 1 << 20;

type Row = (i64, i64);

/// An entry of a source's log.
#[derive(Clone, Debug)]
enum Entry {
    Rows(Vec<Row>),
    Capture(CaptureOrder),
    Split,
}

/// A partition of the source with its log, and what a replica of it has in memory and in files.
struct Source {
    id: PartitionId,
    /// Ids from here on, up to `end`.
    start: i64,
    end: i64,
    /// Index before the log's first entry.
    first: u64,
    log: Vec<Entry>,
    flushed: (u64, bytes::Bytes),
    requests: Requests,
    tail: Tail,
    rows: Vec<Row>,
}

impl Source {
    fn new() -> Self {
        let requests = Requests::default();
        Self {
            id: PARTITION,
            start: 0,
            end: IDS,
            first: 0,
            log: Vec::new(),
            flushed: (0, requests.encode()),
            requests,
            tail: Tail::new(0, 0, BYTES_MAX),
            rows: Vec::new(),
        }
    }

    fn applied(&self) -> u64 {
        self.first + self.log.len() as u64
    }

    fn append(&mut self, entry: Entry) {
        let index = self.applied() + 1;
        apply(&mut self.requests, &mut self.tail, index, &entry);
        if let Entry::Rows(rows) = &entry {
            self.rows.extend(rows);
        }
        self.log.push(entry);
    }

    fn order(&mut self, capture: Capture) {
        self.append(Entry::Capture(CaptureOrder { copy: COPY, capture }));
    }

    /// As a leader flushes.
    fn flush(&mut self) {
        for order in self.requests.captures().unrecorded(self.requests.last_change()) {
            self.append(Entry::Capture(order));
        }
        self.flushed = (self.applied(), self.requests.encode());
    }

    fn restart(&mut self) {
        let (base, state) = self.flushed.clone();
        self.requests = Requests::decode(&state).unwrap();
        self.tail = Tail::new(base, self.requests.last_change(), BYTES_MAX);
        for (index, entry) in (self.first + 1..).zip(&self.log).filter(|(index, _)| *index > base) {
            apply(&mut self.requests, &mut self.tail, index, entry);
        }
    }

    fn split(&mut self, at: i64, child: PartitionId) -> Self {
        self.flush();
        self.append(Entry::Split);
        let index = self.applied();
        let state = self.requests.encode_for_child(self.id, index);
        let requests = Requests::decode(&state).unwrap();
        let tail = Tail::new(index, requests.last_change(), BYTES_MAX);
        self.flushed = (index, self.requests.encode());
        let end = std::mem::replace(&mut self.end, at);
        Self {
            id: child,
            start: at,
            end,
            first: index,
            log: Vec::new(),
            flushed: (index, state),
            requests,
            tail,
            rows: Vec::new(),
        }
    }

    fn shipped(&self) -> u64 {
        self.requests.captures().get(COPY).unwrap().shipped()
    }
}

fn apply(requests: &mut Requests, tail: &mut Tail, index: u64, entry: &Entry) {
    match entry {
        Entry::Rows(rows) => requests.change(tail, index, &[(WriteKind::Put, batch(rows))]),
        Entry::Capture(order) => assert!(requests.capture(tail, *order, index)),
        Entry::Split => {}
    }
}

/// A partition of the copy: its rows in the order in which it took them.
struct Target {
    /// Places from here on, up to where the next one starts.
    start: i64,
    requests: Requests,
    rows: Vec<Row>,
}

/// Place of an id in the copy's order.
fn place(id: i64) -> i64 {
    id * 37 % IDS
}

/// Rows that go to all partitions of the copy before the next ones do.
#[derive(Clone)]
struct Batch {
    ship: Ship,
    /// The rows by their positions.
    entries: Vec<(Position, Vec<Row>)>,
    /// Rows that no partition has acknowledged.
    left: Vec<Row>,
}

impl Batch {
    fn new(source: PartitionId, from: Position, entries: Vec<(Position, Vec<Row>)>) -> Self {
        let to = entries.last().unwrap().0;
        let left = entries.iter().flat_map(|(_, rows)| rows.clone()).collect();
        Self { ship: Ship { source, from, to }, entries, left }
    }

    /// The same rows, one position after the other.
    fn singly(&self) -> Vec<Self> {
        let mut from = self.ship.from;
        let single = |(position, rows): &(Position, Vec<Row>)| {
            let single = Self::new(self.ship.source, from, vec![(*position, rows.clone())]);
            from = *position;
            single
        };
        self.entries.iter().map(single).collect()
    }
}

#[derive(Default)]
struct Shipper {
    queue: VecDeque<Batch>,
    /// Reported to the source when the queue is empty.
    goal: Option<(PartitionId, u64)>,
    known: BTreeMap<PartitionId, u64>,
}

struct World {
    sources: Vec<Source>,
    targets: Vec<Target>,
    next_row: i64,
    /// True once a source has told of a gap: the copy is lost.
    lost: bool,
}

fn whole(index: u64) -> Position {
    Position { index, part: u64::MAX }
}

impl World {
    /// A source with rows from before and after its capture began, and a copy that is filled and in sync.
    fn new(before: &[i64]) -> Self {
        let mut world =
            Self { sources: vec![Source::new()], targets: Vec::new(), next_row: 0, lost: false };
        let target = Target { start: 0, requests: Requests::default(), rows: Vec::new() };
        world.targets.push(target);
        before.iter().for_each(|id| world.write(*id, 1));
        world.sources[0].order(Capture::Begin);
        before.iter().for_each(|id| world.write(*id, 2));
        // The fill: the rows as of an index.
        let source = &world.sources[0];
        assert!(source.requests.may_fill(COPY));
        let begin = source.requests.captures().get(COPY).unwrap().begin;
        let index = source.requests.last_change().max(begin);
        let rows = source.rows.chunks(3).map(<[Row]>::to_vec);
        let positions = (1..).map(|part| Position { index, part });
        let entries: Vec<_> = positions.zip(rows).collect();
        if !entries.is_empty() {
            let all = Batch::new(PARTITION, Position::default(), entries);
            let queue = all.singly().into();
            let mut filler = Shipper { queue, ..Shipper::default() };
            while !filler.queue.is_empty() {
                world.deliver(&mut filler, false);
            }
        }
        let source = &mut world.sources[0];
        source.order(Capture::Shipped(index));
        source.order(Capture::Sync);
        world
    }

    fn write(&mut self, id: i64, count: i64) {
        let first = self.next_row;
        let rows: Vec<Row> = (0..count).map(|step| ((id + step * 5) % IDS, first + step)).collect();
        self.next_row += count;
        for source in &mut self.sources {
            let own = |row: &&Row| source.start <= row.0 && row.0 < source.end;
            let own: Vec<Row> = rows.iter().filter(own).copied().collect();
            if !own.is_empty() {
                source.append(Entry::Rows(own));
            }
        }
    }

    fn source(&mut self, id: PartitionId) -> &mut Source {
        self.sources.iter_mut().find(|source| source.id == id).unwrap()
    }

    fn split_source(&mut self, number: usize, at: i64) {
        let child = PartitionId(100 + self.sources.len() as u64);
        let count = self.sources.len();
        let parent = &mut self.sources[number % count];
        if parent.start < at && at < parent.end {
            let child = parent.split(at, child);
            self.sources.push(child);
        }
    }

    fn split_target(&mut self, at: i64) {
        let number = self.targets.iter().rposition(|target| target.start <= at).unwrap();
        let parent = &mut self.targets[number];
        if parent.start == at {
            return;
        }
        let state = parent.requests.encode_for_child(PartitionId(900), 1);
        let rows = parent.rows.iter().copied();
        let (left, right): (Vec<Row>, Vec<Row>) = rows.partition(|row| place(row.0) < at);
        parent.rows = left;
        let requests = Requests::decode(&state).unwrap();
        self.targets.insert(number + 1, Target { start: at, requests, rows: right });
    }

    /// Number of the partition of the copy that owns a row.
    fn route(&self, row: &Row) -> usize {
        self.targets.iter().rposition(|target| target.start <= place(row.0)).unwrap()
    }

    /// One step of a shipper: it sends rows to one partition, reports, or reads changes.
    fn step(&mut self, shipper: &mut Shipper, source: usize, bytes_max: usize, loses: bool) {
        if !shipper.queue.is_empty() {
            self.deliver(shipper, loses);
        } else if let Some((id, index)) = shipper.goal.take() {
            let source = self.source(id);
            assert!(source.requests.report(&mut source.tail, COPY, index));
            shipper.known.insert(id, index);
        } else {
            let count = self.sources.len();
            self.read(shipper, self.sources[source % count].id, bytes_max);
        }
    }

    fn deliver(&mut self, shipper: &mut Shipper, loses: bool) {
        let batch = shipper.queue.front_mut().unwrap();
        let Some(row) = batch.left.first() else {
            shipper.queue.pop_front();
            return;
        };
        let number = self.route(row);
        let is_here = |row: &Row| self.route(row) == number;
        let (here, left): (Vec<Row>, Vec<Row>) = batch.left.iter().copied().partition(is_here);
        let target = &mut self.targets[number];
        match target.requests.ship(&batch.ship) {
            Shipping::Take => target.rows.extend(here),
            Shipping::Taken => {}
            Shipping::Ahead(stored) => {
                assert!(batch.entries.len() > 1, "{stored:?} is within {:?}", batch.ship);
                let singles = batch.singly();
                shipper.queue.pop_front();
                singles.into_iter().rev().for_each(|batch| shipper.queue.push_front(batch));
                return;
            }
        }
        // Without an answer they are sent again.
        if !loses {
            batch.left = left;
        }
    }

    fn read(&mut self, shipper: &mut Shipper, id: PartitionId, bytes_max: usize) {
        let capture = *self.source(id).requests.captures().get(COPY).unwrap();
        if let Some((parent, index)) = capture.parent()
            && self.source(parent).shipped() < index
        {
            return self.read(shipper, parent, bytes_max);
        }
        let start = capture.floor().max(shipper.known.get(&id).copied().unwrap_or_default());
        let source = self.source(id);
        let piece = match source.tail.after(start, bytes_max) {
            Ok(piece) => piece,
            Err(Gap) => {
                let state = Requests::decode(&source.flushed.1).unwrap();
                assert!(state.last_change() > start, "nothing is missing after {start}");
                self.lost = true;
                return;
            }
        };
        shipper.goal = Some((id, piece.cut.unwrap_or(source.applied())));
        let entries: Vec<_> = piece
            .entries
            .iter()
            .map(|change| (whole(change.index), rows_of_batch(&change.rows)))
            .collect();
        if !entries.is_empty() {
            shipper.queue.push_back(Batch::new(id, whole(start), entries));
        }
    }

    /// Ships everything that is left.
    fn drain(&mut self) {
        let mut shipper = Shipper::default();
        let behind = |world: &Self| {
            let behind = |source: &Source| {
                let capture = source.requests.captures().get(COPY).unwrap();
                capture.shipped() < source.requests.last_change()
            };
            world.sources.iter().position(behind)
        };
        while let Some(number) = behind(self).filter(|_| !self.lost) {
            self.step(&mut shipper, number, BYTES_MAX, false);
            while !self.lost && (!shipper.queue.is_empty() || shipper.goal.is_some()) {
                self.step(&mut shipper, number, BYTES_MAX, false);
            }
        }
    }
}

fn rows_of_batch(rows: &RecordBatch) -> Vec<Row> {
    let ids = rows.column(0).as_primitive::<Int64Type>();
    let values = rows.column(1).as_primitive::<Int64Type>();
    ids.values().iter().copied().zip(values.values().iter().copied()).collect()
}

fn by_id(rows: impl Iterator<Item = Row>) -> BTreeMap<i64, Vec<i64>> {
    let mut by_id: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    rows.for_each(|(id, number)| by_id.entry(id).or_default().push(number));
    by_id
}

/// Carries out the actions; true if the copy is complete, false if it is lost.
fn run(before: &[i64], actions: &[(u8, u8, u8)], restarts: bool) -> bool {
    let mut world = World::new(before);
    let mut shippers = [Shipper::default(), Shipper::default()];
    for (action, first, second) in actions {
        let (first_id, number) = (i64::from(*first) % IDS, usize::from(*second));
        let count = world.sources.len();
        match action % 16 {
            0..=3 => world.write(first_id, i64::from(second % 4) + 1),
            4 => world.split_source(number, first_id),
            5 => world.split_target(first_id),
            6 if restarts => world.sources[number % count].restart(),
            7 if restarts => world.sources[number % count].flush(),
            8 => {
                let count = world.targets.len();
                let target = &mut world.targets[number % count];
                target.requests = Requests::decode(&target.requests.encode()).unwrap();
            }
            // A shipper that dies knows nothing afterwards.
            9 => shippers[number % 2] = Shipper::default(),
            _ => {
                let shipper = &mut shippers[number % 2];
                world.step(shipper, number / 2, usize::from(*first) * 40, second % 5 == 0);
            }
        }
        if world.lost {
            return false;
        }
    }
    world.drain();
    if world.lost {
        return false;
    }
    for target in &world.targets {
        let next = |other: &&Target| other.start > target.start;
        let end = world.targets.iter().find(next).map_or(IDS, |next| next.start);
        let places = target.start..end;
        assert!(target.rows.iter().all(|row| places.contains(&place(row.0))));
    }
    let found = by_id(world.targets.iter().flat_map(|target| target.rows.iter().copied()));
    // Parents come before their children, and so do their rows.
    let expected = by_id(world.sources.iter().flat_map(|source| source.rows.iter().copied()));
    assert_eq!(found, expected);
    true
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_copy_has_the_rows_of_its_source_whatever_shippers_do(
        before in proptest::collection::vec(0..IDS, 0..6),
        actions in proptest::collection::vec(any::<(u8, u8, u8)>(), 0..200),
    ) {
        // No process of the source ends, so nothing is ever missing.
        prop_assert!(run(&before, &actions, false));
    }

    #[test]
    fn a_copy_is_complete_or_known_to_be_lost_whoever_restarts(
        before in proptest::collection::vec(0..IDS, 0..6),
        actions in proptest::collection::vec(any::<(u8, u8, u8)>(), 0..200),
    ) {
        run(&before, &actions, true);
    }
}
