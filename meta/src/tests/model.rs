//! Random histories: the invariants hold after every command (checked by [`World`]), the log reproduces the same
//! catalog, and the records contain all of it.

use std::collections::BTreeMap;
use std::time::Duration;

use partita_proto::generation::{Claim, Generation, Renewal};
use partita_proto::history::Reason;
use partita_proto::id::{Epoch, PartitionId, ReplicaId};
use partita_proto::index::{self, Blooms, Fulltext, IndexOptions};
use partita_proto::label::Labels;
use partita_proto::materialized::{CopyChange, CopyState, Steering};
use partita_proto::member::Registration;
use partita_proto::range::TypedRange;
use partita_proto::service::RequestId;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::*;
use crate::catalog::{Edit, MetaRecord};
use crate::memory_store::MemoryStore;
use crate::record;
use crate::store::StateStore;
use crate::transition::Progress;

#[derive(Clone, Debug)]
enum Event {
    /// A change, with an identity that others may share, and the number of replicas of a new table.
    Change(Ddl, Option<u64>, u64),
    /// All nodes have carried out one of the pending steps.
    Finish(Index),
    /// One of the pending tables has got to the phase in which it is read along.
    ReadAlong(Index),
    /// The executor of a pending step reports the epoch of a partition.
    Fenced(Index, Index, u64),
    /// One of the pending steps could not be carried out.
    Abort(Index),
    /// A late answer about a step of a table.
    Stale(Index, u64),
    /// A data directory, the node id that it asks for, its address, and its zone.
    Register(u64, Option<u64>, String, Option<String>),
    Drain(u64, bool),
    /// An order to remove a node for good.
    Remove(u64),
    /// A partition, the nodes that get a replica, and which of its replicas go; true if the command names no change
    /// in progress.
    Move(Index, Vec<u64>, Vec<Index>, bool),
    /// A group has reached its target.
    Moved(Index),
    /// A late answer of a group about its target.
    StaleMoved(Index, u64),
    Created(Index),
    /// Partition and replica.
    Renumber(Index, Index),
    /// An order to split a partition at a user.
    Split(Index, i64),
    /// An order to merge a partition with the next one of its table, or with some other.
    Merge(Index, bool),
    /// Progress of a partition that is being split or merged.
    Advance(Index, Progress),
    /// A late answer of a group that was split or merged.
    StaleAdvance(Index, u64, Progress),
    /// A copy of one of the tables, under a name; true if it is to take the table's place.
    Copy(Index, String, bool),
    /// A report about one of the copies: a kind of change, and a filler or a beat.
    Report(Index, u8, u64),
}

fn progress() -> impl Strategy<Value = Progress> {
    let epoch = || (1..6_u64).prop_map(Epoch);
    prop_oneof![
        2 => Just(Progress::GiveUp),
        3 => Just(Progress::Cut),
        1 => epoch().prop_map(|epoch| Progress::NotCut { epoch }),
        4 => Just(Progress::Freezing),
        4 => (1..100_u64).prop_map(|index| Progress::Frozen { index }),
        4 => Just(Progress::Absorbed),
        1 => epoch().prop_map(|epoch| Progress::NotAbsorbed { epoch }),
        2 => epoch().prop_map(|epoch| Progress::Thawed { epoch }),
        2 => Just(Progress::Left),
    ]
}

fn database() -> impl Strategy<Value = String> {
    select(vec!["public", "public", "d", "e"]).prop_map(str::to_owned)
}

fn name() -> impl Strategy<Value = String> {
    select(vec!["t", "u", "v", "t", "u", "v", "t$former", "u$next"]).prop_map(str::to_owned)
}

fn column_name() -> impl Strategy<Value = String> {
    select(vec!["value", "x", "y", "value#4", "userid", "host"]).prop_map(str::to_owned)
}

fn ttl() -> impl Strategy<Value = Option<Duration>> {
    select(vec![None, Some(Duration::from_secs(60)), Some(Duration::from_secs(90))])
}

fn placed() -> impl Strategy<Value = (Placement, Vec<Bound>)> {
    select(vec![
        (Placement::Range, vec![]),
        (Placement::Range, new_table("t").cuts),
        (
            Placement::Hash { columns: vec![ColumnId(1)] },
            vec![Bound::placed(100), Bound { key: vec![Value::Int(5)], ..Bound::placed(3000) }],
        ),
    ])
}

fn table() -> impl Strategy<Value = NewTable> {
    let options = (ttl(), any::<bool>());
    (database(), name(), placed(), options).prop_map(
        |(database, name, (placement, cuts), (ttl, append_mode))| {
            let mut schema = readings();
            schema.options.ttl = ttl;
            schema.options.append_mode = append_mode;
            let (owner, copy_of, rekeys) = (BOOTSTRAP_ROLE, None, false);
            NewTable {
                database,
                name,
                schema,
                placement,
                cuts,
                owner,
                copy_of,
                rekeys,
                sequences: Vec::new(),
            }
        },
    )
}

fn index_options() -> impl Strategy<Value = IndexOptions> {
    select(vec![
        IndexOptions::Inverted,
        IndexOptions::Skipping(Blooms::default()),
        // Refused by every table: no block has no rows.
        IndexOptions::Skipping(Blooms { granularity: 0, ..Blooms::default() }),
        // Refused by columns that are no texts.
        IndexOptions::Fulltext(Fulltext::default()),
    ])
}

fn table_change() -> impl Strategy<Value = TableChange> {
    let new = (column_name(), any::<bool>(), any::<bool>());
    prop_oneof![
        4 => (new, any::<bool>()).prop_map(|((name, is_tag, wide), if_not_exists)| {
            let mut column = if is_tag { tag(&name) } else { field(&name) };
            if wide {
                column.column_type = ColumnType::Int64;
            }
            TableChange::AddColumns { columns: vec![column], if_not_exists }
        }),
        3 => column_name().prop_map(TableChange::DropColumn),
        2 => (column_name(), column_name())
            .prop_map(|(from, to)| TableChange::RenameColumn { from, to }),
        1 => (column_name(), any::<bool>()).prop_map(|(column, set)| TableChange::SetDefault {
            column,
            default: set.then(|| "1".to_owned()),
        }),
        3 => (column_name(), index_options(), name(), any::<bool>()).prop_map(
            |(column, options, name, if_not_exists)| {
                let index = index::Index { name, options };
                TableChange::SetIndex { column, index, if_not_exists }
            }
        ),
        2 => (column_name(), index_options()).prop_map(|(column, options)| {
            TableChange::DropIndex { column, kind: options.kind() }
        }),
        1 => (any::<bool>(), ttl()).prop_map(|(append_mode, ttl)| {
            TableChange::SetOptions(Box::new(TableOptions { append_mode, ttl, ..TableOptions::default() }))
        }),
        1 => name().prop_map(TableChange::Rename),
        4 => placed().prop_map(|(placement, cuts)| TableChange::Repartition { placement, cuts }),
    ]
}

fn ddl() -> impl Strategy<Value = Ddl> {
    prop_oneof![
        2 => (database(), any::<bool>(), ttl())
            .prop_map(|(name, if_not_exists, ttl)| Ddl::CreateDatabase { name, if_not_exists, ttl, owner: BOOTSTRAP_ROLE }),
        1 => database().prop_map(|name| Ddl::MakeExplicit { name }),
        1 => (database(), ttl()).prop_map(|(name, ttl)| Ddl::AlterDatabase { name, ttl }),
        1 => (database(), any::<bool>())
            .prop_map(|(name, if_exists)| Ddl::DropDatabase { name, if_exists }),
        5 => (table(), any::<bool>())
            .prop_map(|(table, if_not_exists)| Ddl::CreateTable { table: Box::new(table), if_not_exists }),
        2 => (database(), name(), any::<bool>(), any::<bool>()).prop_map(
            |(database, name, if_exists, cascade)| {
                Ddl::DropTable { database, name, if_exists, cascade }
            }
        ),
        1 => (database(), name()).prop_map(|(database, name)| Ddl::TruncateTable { database, name }),
        8 => (database(), name(), table_change())
            .prop_map(|(database, name, change)| Ddl::AlterTable { database, name, change }),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (ddl(), prop::option::of(0..12_u64), 1..4_u64)
            .prop_map(|(ddl, id, replicas)| Event::Change(ddl, id, replicas)),
        5 => any::<Index>().prop_map(Event::Finish),
        3 => any::<Index>().prop_map(Event::ReadAlong),
        3 => (any::<Index>(), any::<Index>(), 1..6_u64)
            .prop_map(|(table, partition, epoch)| Event::Fenced(table, partition, epoch)),
        1 => any::<Index>().prop_map(Event::Abort),
        1 => (any::<Index>(), 0_u64..50).prop_map(|(table, step)| Event::Stale(table, step)),
        3 => (
            0..10_u64,
            prop::option::of(0..8_u64),
            select(vec!["a:1", "b:1", ""]),
            prop::option::of(select(vec!["a".to_owned(), "b".to_owned()])),
        )
            .prop_map(|(identity, node, at, zone)| Event::Register(identity, node, at.to_owned(), zone)),
        2 => (0..8_u64).prop_map(Event::Remove),
        1 => (0..8_u64, any::<bool>()).prop_map(|(node, on)| Event::Drain(node, on)),
        3 => (
            any::<Index>(),
            prop::collection::vec(0..8_u64, 0..3),
            prop::collection::vec(any::<Index>(), 0..3),
            prop::bool::weighted(0.2),
        )
            .prop_map(|(partition, add, remove, late)| Event::Move(partition, add, remove, late)),
        2 => any::<Index>().prop_map(Event::Moved),
        1 => (any::<Index>(), 0_u64..50).prop_map(|(at, step)| Event::StaleMoved(at, step)),
        2 => any::<Index>().prop_map(Event::Created),
        1 => (any::<Index>(), any::<Index>())
            .prop_map(|(partition, replica)| Event::Renumber(partition, replica)),
        6 => (any::<Index>(), 0..300_i64).prop_map(|(at, user)| Event::Split(at, user)),
        6 => (any::<Index>(), any::<bool>()).prop_map(|(at, next)| Event::Merge(at, next)),
        16 => (any::<Index>(), progress()).prop_map(|(at, how)| Event::Advance(at, how)),
        1 => (any::<Index>(), 0_u64..50, progress())
            .prop_map(|(at, step, how)| Event::StaleAdvance(at, step, how)),
        4 => (any::<Index>(), name(), any::<bool>())
            .prop_map(|(source, name, rekeys)| Event::Copy(source, name, rekeys)),
        12 => (any::<Index>(), 0..12_u8, 0..3_u64)
            .prop_map(|(copy, kind, number)| Event::Report(copy, kind, number)),
    ]
}

/// Facts that must not change once seen.
#[derive(Default)]
struct History {
    /// Column of each storage name.
    storage: BTreeMap<(TableId, String), ColumnId>,
    /// Table of each partition.
    partitions: BTreeMap<u64, TableId>,
    versions: BTreeMap<TableId, SchemaVersion>,
    /// Partition and node of each replica.
    replicas: BTreeMap<ReplicaId, (PartitionId, NodeId)>,
    /// Random number of each node's data directory.
    nodes: BTreeMap<NodeId, u64>,
    /// Removed nodes.
    removed: BTreeSet<NodeId>,
    /// The highest epoch of each partition.
    epochs: BTreeMap<PartitionId, Epoch>,
    /// Range of each partition at each epoch; an owner of other keys must have another epoch.
    ranges: BTreeMap<(PartitionId, Epoch), TypedRange>,
    /// Copies that were lost.
    lost: BTreeSet<TableId>,
    catalog: u64,
}

/// True if one of two tables is a retired copy of the other: they have exchanged their partitions.
fn are_exchanged(world: &World, a: TableId, b: TableId) -> bool {
    let is_pair = |copy: TableId, source: TableId| {
        let copy = world.state.table(copy).and_then(|table| table.copy.as_ref());
        copy.is_some_and(|copy| copy.state == CopyState::Retired && copy.source == source)
    };
    is_pair(a, b) || is_pair(b, a)
}

impl History {
    fn see(&mut self, world: &World) {
        assert!(world.catalog.version >= self.catalog);
        self.catalog = world.catalog.version;
        for table in world.state.tables() {
            let schema = &table.schema;
            let before = self.versions.insert(table.id, schema.version);
            assert!(before.is_none_or(|before| before <= schema.version));
            for column in &schema.columns {
                let key = (table.id, column.storage_name.clone());
                assert_eq!(*self.storage.entry(key).or_insert(column.id), column.id);
            }
            for id in &table.partitions {
                let owner = self.partitions.entry(id.0).or_insert(table.id);
                assert!(*owner == table.id || are_exchanged(world, *owner, table.id));
                *owner = table.id;
            }
            let state = table.copy.as_ref().map(|copy| copy.state);
            if state == Some(CopyState::Lost) {
                self.lost.insert(table.id);
            }
            let came_back = self.lost.contains(&table.id) && state != Some(CopyState::Lost);
            assert!(!came_back, "copy {} came back", table.id);
        }
        for partition in world.state.partitions() {
            let born = partition.splitting().map(|split| (split.child, split.replicas.clone()));
            for (replica, node) in born.iter().flat_map(|(_, replicas)| replicas) {
                let child = born.as_ref().map(|(child, _)| *child).unwrap_or_default();
                let at = (child, *node);
                assert_eq!(*self.replicas.entry(*replica).or_insert(at), at);
            }
            let epoch = self.epochs.entry(partition.id).or_insert(partition.epoch);
            assert!(*epoch <= partition.epoch, "an epoch fell");
            *epoch = partition.epoch;
            for (replica, node) in partition.all_replicas() {
                let at = (partition.id, node);
                assert_eq!(*self.replicas.entry(replica).or_insert(at), at);
            }
        }
        for table in world.catalog.tables.values().flat_map(|tables| tables.values()) {
            for route in table.partitions.routes() {
                let at = (route.partition, route.epoch);
                // A column that is added to the key makes the bounds longer, and what they bound stays.
                let range = self.ranges.entry(at).or_insert_with(|| route.range.clone());
                let same = |a: &Bound, b: &Bound| {
                    a.placement == b.placement && a.key.first() == b.key.first()
                };
                assert!(
                    same(&range.start, &route.range.start) && same(&range.end, &route.range.end)
                );
            }
        }
        for node in world.state.nodes() {
            assert_eq!(*self.nodes.entry(node.id).or_insert(node.identity), node.identity);
        }
        for (node, identity) in &self.nodes {
            let there = world.state.node(*node).is_some();
            assert_ne!(there, world.state.is_removed(*node), "node {node}");
            assert!(!self.removed.contains(node) || !there, "node {node} came back");
            let has = there || world.state.removed_of(*identity) == Some(*node);
            assert!(has, "who node {node} was is forgotten");
        }
        self.removed.extend(world.state.removed().map(|(node, _)| node));
    }
}

fn command(world: &World, event: &Event) -> Option<Command> {
    let pending: Vec<_> = world.state.pending().map(|table| (table.id, table.step)).collect();
    let pick = |index: &Index| (!pending.is_empty()).then(|| *index.get(&pending));
    match event {
        Event::Change(ddl, id, replicas) => {
            let partitions = new_partitions(&world.state, ddl);
            let places = vec![(1..=*replicas).map(NodeId).collect(); partitions];
            let id = id.map(|sequence| RequestId { client: 1, sequence });
            Some(Command::Change { ddl: ddl.clone(), places, id, tables_max: None })
        }
        Event::Finish(index) => pick(index).map(|(table, step)| Command::Finish { table, step }),
        Event::ReadAlong(index) => {
            pick(index).map(|(table, step)| Command::ReadAlong { table, step })
        }
        Event::Fenced(index, at, epoch) => {
            let partitions: Vec<_> = world.state.partitions().map(|one| one.id).collect();
            let (table, step) = pick(index)?;
            let partition = (!partitions.is_empty()).then(|| *at.get(&partitions))?;
            Some(Command::Fenced { table, step, partition, epoch: Epoch(*epoch) })
        }
        Event::Abort(index) => pick(index).map(|(table, step)| Command::Abort { table, step }),
        Event::Stale(index, step) => {
            let tables: Vec<_> = world.state.tables().map(|table| table.id).collect();
            (!tables.is_empty())
                .then(|| Command::Finish { table: *index.get(&tables), step: Step(*step) })
        }
        Event::Register(identity, node, address, zone) => {
            let labels = zone.iter().map(|zone| ("zone".to_owned(), zone.clone()));
            Some(Command::Register(Registration {
                identity: *identity,
                node: node.map(NodeId),
                address: address.clone(),
                labels: Labels::new(labels).unwrap(),
            }))
        }
        Event::Remove(node) => Some(Command::RemoveNode { node: NodeId(*node) }),
        Event::Drain(node, on) => Some(Command::Drain { node: NodeId(*node), on: *on }),
        Event::Move(..)
        | Event::Moved(_)
        | Event::StaleMoved(..)
        | Event::Created(_)
        | Event::Renumber(..) => move_command(world, event),
        Event::Split(..) | Event::Merge(..) | Event::Advance(..) | Event::StaleAdvance(..) => {
            reshape_command(world, event)
        }
        Event::Copy(..) | Event::Report(..) => copy_command(world, event),
    }
}

fn copy_command(world: &World, event: &Event) -> Option<Command> {
    let change = |ddl: Ddl| {
        let places = vec![vec![NodeId(1)]; new_partitions(&world.state, &ddl)];
        Command::Change { ddl, places, id: None, tables_max: None }
    };
    match event {
        Event::Copy(index, name, rekeys) => {
            let tables: Vec<_> = world.state.tables().collect();
            let source = (!tables.is_empty()).then(|| *index.get(&tables))?;
            let database = world.state.database(source.database)?.name.clone();
            let mut schema = TableSchema::clone(&source.schema);
            schema.key.reverse();
            let new = NewTable { database, schema, cuts: vec![], ..new_table(name) };
            Some(change(create(NewTable { copy_of: Some(source.id), rekeys: *rekeys, ..new })))
        }
        Event::Report(index, kind, number) => {
            let copies = world.state.tables().filter(|table| table.copy.is_some());
            let copies: Vec<_> = copies.collect();
            let record = (!copies.is_empty()).then(|| *index.get(&copies))?;
            let (copy, filler) = (record.id, *number);
            let of = record.copy.as_ref()?;
            Some(change(Ddl::Copy(match kind {
                0 => CopyChange::Take { copy, filler },
                1 => CopyChange::Beat { copy, filler: of.filler, beat: *number, rows: *number },
                2 => {
                    let partitions = world.state.table(of.source)?.partitions.clone();
                    CopyChange::Finish { copy, filler: of.filler, partitions }
                }
                3 => CopyChange::Lose { copy, reason: "a reason".to_owned() },
                4 => CopyChange::Replace { copy, beat: Some(of.beat) },
                5 | 6 => CopyChange::Switch { copy },
                7 => {
                    let partitions = world.state.table(of.source)?.partitions.clone();
                    CopyChange::Exchange { copy, partitions }
                }
                8 => CopyChange::Discard { copy },
                9 => {
                    let partitions = world.state.table(of.source)?.partitions.clone();
                    CopyChange::Reopened { copy, partitions }
                }
                _ => {
                    let orders = [Steering::Pause, Steering::Resume, Steering::Cancel];
                    let steering = orders[usize::try_from(*number).unwrap() % orders.len()];
                    CopyChange::Steer { copy, steering }
                }
            })))
        }
        _ => None,
    }
}

fn reshape_command(world: &World, event: &Event) -> Option<Command> {
    let partitions: Vec<_> = world.state.partitions().collect();
    let reshaping: Vec<_> = world.state.reshaping().collect();
    match event {
        Event::Split(index, user) if !partitions.is_empty() => {
            let one = index.get(&partitions);
            let placement = one.range.start.placement.or(one.range.end.placement);
            let at = Bound { placement, key: vec![Value::Int(*user)] };
            Some(Command::Split { partition: one.id, at, reason: Reason::by_hand(), leader: None })
        }
        Event::Merge(index, next) if !partitions.is_empty() => {
            let left = index.get(&partitions);
            let table = world.state.table(left.table)?;
            let position = table.partitions.iter().position(|id| *id == left.id)?;
            let at = if *next { position + 1 } else { position.saturating_sub(1) };
            let right = *table.partitions.get(at)?;
            Some(Command::Merge { left: left.id, right, reason: Reason::by_hand() })
        }
        Event::Advance(index, progress) if !reshaping.is_empty() => {
            let one = index.get(&reshaping);
            let step = one.reshaping.as_ref()?.step();
            Some(Command::Advance { partition: one.id, step, progress: *progress })
        }
        Event::StaleAdvance(index, step, progress) if !partitions.is_empty() => {
            let (partition, step) = (index.get(&partitions).id, Step(*step));
            Some(Command::Advance { partition, step, progress: *progress })
        }
        _ => None,
    }
}

fn move_command(world: &World, event: &Event) -> Option<Command> {
    let partitions: Vec<_> = world.state.partitions().collect();
    let moving: Vec<_> = world.state.moving().collect();
    match event {
        Event::Move(index, add, remove, late) if !partitions.is_empty() => {
            let partition = index.get(&partitions);
            let replicas: Vec<_> = partition.all_replicas().into_keys().collect();
            Some(Command::Move {
                partition: partition.id,
                add: add.iter().copied().map(NodeId).collect(),
                remove: remove.iter().map(|index| *index.get(&replicas)).collect(),
                replaces: partition.target.as_ref().map(|target| target.step).filter(|_| !late),
            })
        }
        Event::Moved(index) if !moving.is_empty() => {
            let partition = index.get(&moving);
            let step = partition.target.as_ref()?.step;
            Some(Command::Moved { partition: partition.id, step })
        }
        Event::Created(index) if !moving.is_empty() => {
            let partition = index.get(&moving);
            let step = partition.target.as_ref()?.step;
            Some(Command::Created { partition: partition.id, step })
        }
        Event::Renumber(index, lost) if !moving.is_empty() => {
            let partition = index.get(&moving);
            let target = partition.target.as_ref()?;
            let replicas: Vec<_> = target.replicas.keys().copied().collect();
            let replicas = vec![*lost.get(&replicas)];
            Some(Command::Renumber { partition: partition.id, step: target.step, replicas })
        }
        Event::StaleMoved(index, step) if !partitions.is_empty() => {
            Some(Command::Moved { partition: index.get(&partitions).id, step: Step(*step) })
        }
        _ => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_history_keeps_the_invariants_and_can_be_replayed(
        events in proptest::collection::vec(event(), 1..80)
    ) {
        let mut world = World::new();
        let mut history = History::default();
        let store = MemoryStore::default();
        store.commit(&record::changes(&State::first_edits()), None).unwrap();
        for event in &events {
            let Some(command) = command(&world, event) else { continue };
            if let Ok(outcome) = decide(&world.state, &command) {
                store.commit(&record::changes(&outcome.edits), None).unwrap();
            }
            let refused = world.command(&command);
            if let Err(error) = refused {
                prop_assert!(!matches!(error, Error::Internal(_) | Error::Corrupted(_)), "{error}");
            }
            history.see(&world);
        }
        let mut again = World::new();
        for command in &world.commands {
            // What was refused is refused again, and changes nothing.
            let _refused = again.command(command).is_err();
        }
        prop_assert_eq!(&again.state, &world.state);
        prop_assert_eq!(&record::state(store.load().unwrap().records).unwrap(), &world.state);
        world.settle();
        prop_assert!(world.state.pending().next().is_none());
        world.settle_moves();
        prop_assert!(world.state.moving().next().is_none());
        world.settle_reshapings();
        prop_assert!(world.state.reshaping().next().is_none());
        world.settle();
    }

    #[test]
    fn no_bytes_make_decoding_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _command = Command::decode(bytes.clone().into()).is_ok();
        let _reply = crate::command::decode_reply(bytes.clone().into()).is_ok();
        for kind in [&b"c"[..], b"d\0\0\0\x01", b"t\0\0\0\x01", b"p\0\0\0\0\0\0\0\x01", b"n\0\0\0\0\0\0\0\x01", b"x\0\0\0\0\0\0\0\x01", b"r\0\0\0\0\0\0\0\x01", b"u\0\0\0\x01", b"g\x01\0\0\0\x01", b"o\0\0\0\0\0\0\0\x01", b"k\0\0\0\0\0\0\0\x01", b"s"] {
            let _state = record::state(vec![(kind.to_vec(), bytes.clone())]).is_ok();
        }
    }
}

#[test]
fn new_partitions_go_to_the_nodes_with_the_fewest() {
    let mut world = World::new();
    world.done(create(new_table("t"))).unwrap();
    let view = || crate::plan::View::new(&world.state, [NodeId(1), NodeId(2), NodeId(3)]);
    let chosen = view().choose_many(5, 1).unwrap();
    assert_eq!(chosen, [2, 3, 2, 3, 2].map(|node| vec![NodeId(node)]));
    let nobody = crate::plan::View::new(&world.state, []);
    assert!(matches!(nobody.choose_many(1, 1), Err(Error::Unavailable(_))));
}

/// Data written by earlier versions must stay readable. This test fails when a form changes; then the old bytes
/// belong into a test that reads them.
#[test]
fn entries_and_records_keep_their_form() {
    let finish = Command::Finish { table: TableId(7), step: Step(300) };
    let abort = Command::Abort { table: TableId(7), step: Step(300) };
    let change = Command::Change {
        ddl: create(new_table("t")),
        places: vec![vec![NodeId(1)]; 3],
        id: None,
        tables_max: None,
    };
    let mut forms = vec![
        format!("finish {}", hex(&finish.encode())),
        format!("abort {}", hex(&abort.encode())),
        format!("change {}", hex(&change.encode())),
    ];
    let known = RequestId { client: 9, sequence: 300 };
    let id = Some(known);
    let places = vec![vec![NodeId(1), NodeId(2)], vec![NodeId(3)]];
    let once = Command::Change { ddl: drop_table("t"), places, id, tables_max: None };
    let (address, labels) = ("a:1".to_owned(), Labels::default());
    let wish = Registration { identity: 77, node: Some(NodeId(4)), address, labels };
    let (partition, step) = (PartitionId(7), Step(300));
    let (to, from) = (vec![NodeId(4), NodeId(5)], vec![ReplicaId(3), ReplicaId(9)]);
    let a_move = Command::Move { partition, add: to.clone(), remove: from.clone(), replaces: None };
    let instead = Command::Move { partition, add: to, remove: from, replaces: Some(step) };
    forms.extend([
        format!("once {}", hex(&once.encode())),
        format!("register {}", hex(&Command::Register(wish.clone()).encode())),
        format!("drain {}", hex(&Command::Drain { node: NodeId(4), on: true }.encode())),
        format!("move {}", hex(&a_move.encode())),
        format!("move instead of another {}", hex(&instead.encode())),
        format!("moved {}", hex(&Command::Moved { partition, step }.encode())),
    ]);
    let mut world = World::new();
    world.done(create(new_table("t"))).unwrap();
    world.change(alter("t", add(vec![field("x")]))).unwrap();
    let edits = [
        Edit::Counters(world.state.counters()),
        Edit::Database(Arc::clone(world.state.database_named("public").unwrap())),
        Edit::Table(world.table("t")),
        Edit::Partition(Arc::clone(world.state.partitions().nth(1).unwrap())),
    ];
    world.command(&Command::Register(wish)).unwrap();
    world.command(&Command::Drain { node: NodeId(4), on: true }).unwrap();
    let third = world.state.partitions().nth(2).unwrap().id;
    let (partition, add) = (third, vec![NodeId(4)]);
    world.command(&Command::Move { partition, add, remove: vec![], replaces: None }).unwrap();
    let truncate = Ddl::TruncateTable { database: "public".to_owned(), name: "u".to_owned() };
    world.done(create(new_table("u"))).unwrap();
    world
        .command(&Command::Change { ddl: truncate, places: vec![], id, tables_max: None })
        .unwrap();
    let remembered = world.state.remembered(known).unwrap();
    let edits = edits.into_iter().chain([
        Edit::Counters(world.state.counters()),
        Edit::Node(Arc::clone(world.state.node(NodeId(4)).unwrap())),
        Edit::Partition(Arc::clone(world.state.partition(third).unwrap())),
        Edit::Remember(0, Arc::clone(remembered)),
    ]);
    let records = |edits: &[Edit]| -> Vec<String> {
        let record = |change: crate::store::Change| {
            format!("record {} {}", hex(&change.key), hex(&change.value.unwrap()))
        };
        record::changes(edits).into_iter().map(record).collect()
    };
    let edits: Vec<_> = edits.collect();
    forms.extend(records(&edits));
    let generation = |number| Some(Generation { number, nonce: 0x0102_0304_0506_0708 });
    let claim = Claim { acknowledged: generation(6), pending: generation(7) };
    let renewal = Renewal { node: NodeId(4), identity: 77, claim, ..Renewal::default() };
    let renew = Command::Renew(renewal.clone());
    let of_meta = Command::RenewMeta(renewal);
    world.command(&renew).unwrap();
    let meta = |generation| Edit::Meta(NodeId(2), MetaRecord { identity: 9, generation });
    let node = Edit::Node(Arc::clone(world.state.node(NodeId(4)).unwrap()));
    forms.extend([&renew, &of_meta].map(|renew| format!("renew {}", hex(&renew.encode()))));
    forms.extend(records(&[node, meta(None), meta(generation(7))]));
    let forms = forms.join("\n") + "\n";
    assert_eq!(forms, include_str!("forms.golden"), "got:\n{forms}");
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
