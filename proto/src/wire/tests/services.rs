//! Messages between processes, encoded and decoded.

use std::sync::atomic::Ordering;

use arrow::datatypes::{Field, Schema};
use partita_load::{Blamed, Cause, Counters, Intaken, IntakenSecond, Sample, Sketch, Tick};

use super::materialized::ship;
use super::*;
use crate::access::{
    Access, Action, Actions, Grant, GrantEntry, Grantee, Org, Profile, Role, Target,
};
use crate::beat::{FollowerReads, Latency, LoadBeat};
use crate::blame::{
    BlameReport, CAUSES_MAX, SAMPLES_MAX, SECONDS_MAX, STALLS_MAX, Stall, TEXT_BYTES_MAX,
};
use crate::catalog::Catalog;
use crate::domain::{Domain, Domains};
use crate::generation::{Claim, Generation, Renewal, Renewed};
use crate::id::{BOOTSTRAP_ROLE, OrgId, TokenId};
use crate::label::Labels;
use crate::measure::{IndexBuild, PartitionMeasures};
use crate::member::{Heartbeat, Member, Members, Registration};
use crate::probe::{ColumnTest, PROBE_DEPTH_MAX, PROBE_NODES_MAX, Probe};
use crate::route::Route;
use crate::schema::ColumnType;
use crate::service::{
    AdminOrder, FirstByTime, IndexUse, KeyOrder, ReadFrom, ReplicaStatus, ScanRequest, ScanStats,
    WriteRequest,
};

fn any_domain() -> impl Strategy<Value = Domain> {
    let special = prop_oneof![Just(Domain::all()), Just(Domain::none()), Just(Domain::not_null())];
    prop_oneof![1 => special, 6 => arbitrary::column_type().prop_flat_map(samples::domain)]
}

fn domains() -> impl Strategy<Value = Domains> {
    vec((name(), any_domain()), 0..4).prop_map(|columns| {
        let mut domains = Domains::default();
        for (column, domain) in columns {
            domains.restrict(&column, domain);
        }
        domains
    })
}

fn status() -> impl Strategy<Value = ReplicaStatus> {
    let numbers = proptest::array::uniform16(any::<u64>());
    let members = || proptest::collection::btree_set(any::<u64>().prop_map(ReplicaId), 0..4);
    let group = (any::<u64>(), option::of(any::<u64>().prop_map(NodeId)), members(), members());
    (any::<u32>(), any::<bool>(), numbers, option::of(name()), group).prop_map(
        |(table, leader, numbers, failure, (term, leader_node, voters, learners))| {
            let [partition, replica, epoch, rows, file_bytes, files, ..] = numbers;
            let [.., memtable_bytes, rows_written, bytes_written, writes, scans, _, _, _, _] =
                numbers;
            let [.., rows_scanned, rejected, applied, flushed] = numbers;
            ReplicaStatus {
                partition: PartitionId(partition),
                table: TableId(table),
                replica: ReplicaId(replica),
                leader,
                leader_node,
                term,
                voters,
                learners,
                epoch: Epoch(epoch),
                rows,
                file_bytes,
                files,
                memtable_bytes,
                rows_written,
                bytes_written,
                writes,
                scans,
                rows_scanned,
                rejected,
                applied,
                flushed,
                failure,
                series: None,
                measures: None,
            }
        },
    )
}

fn labels() -> impl Strategy<Value = Labels> {
    let pair = ("[a-z]{1,3}", "[A-Za-z0-9_./-]{1,63}");
    proptest::collection::btree_map(pair.0, pair.1, 0..4)
        .prop_map(|labels| Labels::new(labels).unwrap())
}

fn member() -> impl Strategy<Value = Member> {
    (name(), any::<[bool; 2]>(), any::<[u64; 4]>(), labels()).prop_map(
        |(address, [live, draining], [replicas, leaders, bytes, missing], labels)| Member {
            address,
            live,
            draining,
            replicas,
            leaders,
            bytes,
            missing,
            labels,
        },
    )
}

fn members() -> impl Strategy<Value = Members> {
    proptest::collection::btree_map(any::<u64>().prop_map(NodeId), member(), 0..4)
}

fn registration() -> impl Strategy<Value = Registration> {
    let node = option::of(any::<u64>().prop_map(NodeId));
    (any::<u64>(), node, name(), labels()).prop_map(|(identity, node, address, labels)| {
        Registration { identity, node, address, labels }
    })
}

fn heartbeat() -> impl Strategy<Value = Heartbeat> {
    let id = any::<[u64; 2]>();
    let cpu_ms = option::of(any::<u64>());
    let loads = (vec(load_beat(), 0..3), vec(follower_reads(), 0..3));
    let tail = (cpu_ms, claim(), any::<bool>());
    (id, name(), vec(status(), 0..3), loads, labels(), tail).prop_map(
        |([node, identity], address, replicas, loads, labels, (cpu_ms, claim, names_leader))| {
            Heartbeat {
                node: NodeId(node),
                identity,
                address,
                replicas,
                loads: loads.0,
                labels,
                cpu_ms,
                claim,
                follower_reads: loads.1,
                names_leader,
            }
        },
    )
}

fn generation() -> impl Strategy<Value = Generation> {
    any::<[u64; 2]>().prop_map(|[number, nonce]| Generation { number, nonce })
}

fn claim() -> impl Strategy<Value = Claim> {
    (option::of(generation()), option::of(generation()))
        .prop_map(|(acknowledged, pending)| Claim { acknowledged, pending })
}

fn renewal() -> impl Strategy<Value = Renewal> {
    let accepted = vec(any::<u64>().prop_map(PartitionId), 0..3);
    (any::<[u64; 2]>(), claim(), any::<bool>(), accepted).prop_map(
        |([node, identity], claim, set_aside, accepted)| Renewal {
            node: NodeId(node),
            identity,
            claim,
            set_aside,
            accepted,
        },
    )
}

fn renewed() -> impl Strategy<Value = Renewed> {
    let alone = vec(any::<u64>().prop_map(PartitionId), 0..3);
    (generation(), alone).prop_map(|(recorded, alone)| Renewed { recorded, alone })
}

fn sketch() -> impl Strategy<Value = Sketch> {
    let key = || vec(any::<u8>(), 0..6).prop_map(Box::<[u8]>::from);
    let sample = (key(), option::of(key()), any::<bool>(), any::<bool>())
        .prop_map(|(key, end, above, below)| Sample { key, end, above, below });
    let tick = (any::<u64>(), any::<u64>(), vec(sample, 0..4))
        .prop_map(|(second, count, samples)| Tick { second, count, samples });
    (vec(tick, 0..3), vec((key(), 0.0..1.0), 0..3), option::of((key(), key())))
        .prop_map(|(ticks, heavy, edges)| Sketch { ticks, heavy, edges })
}

fn counters() -> impl Strategy<Value = Counters> {
    proptest::array::uniform12(any::<u64>()).prop_map(|n| Counters {
        write_rows: n[0],
        write_bytes: n[1],
        write_batches: n[2],
        read_rows: n[3],
        read_bytes: n[4],
        point_reads: n[5],
        range_reads: n[6],
        scans: n[7],
        busy_ns: n[8],
        scan_ns: n[9],
        rejected: n[10],
        throttled_ns: n[11],
    })
}

fn follower_reads() -> impl Strategy<Value = FollowerReads> {
    (any::<u64>(), any::<u64>(), counters()).prop_map(|(partition, since_ms, counters)| {
        FollowerReads { partition: PartitionId(partition), since_ms, counters }
    })
}

fn load_beat() -> impl Strategy<Value = LoadBeat> {
    let latency = |[count, p50, p99, p999, max]: [u64; 5]| Latency { count, p50, p99, p999, max };
    let latency = move || proptest::array::uniform5(any::<u64>()).prop_map(latency);
    let highest = option::of(vec(any::<u8>(), 0..5).prop_map(Bytes::from));
    (
        proptest::array::uniform5(any::<u64>()),
        any::<u32>(),
        counters(),
        latency(),
        latency(),
        highest,
        sketch(),
        sketch(),
    )
        .prop_map(
            |(n, queue_depth, counters, writes, reads, highest, write_keys, read_keys)| LoadBeat {
                partition: PartitionId(n[0]),
                term: n[1],
                since_ms: n[2],
                at_ms: n[3],
                counters,
                size_bytes: n[4],
                queue_depth,
                writes,
                reads,
                highest,
                write_keys,
                read_keys,
            },
        )
}

fn admin_order() -> impl Strategy<Value = AdminOrder> {
    let node = || any::<u64>().prop_map(NodeId);
    let partition = || any::<u64>().prop_map(PartitionId);
    prop_oneof![
        (node(), any::<bool>()).prop_map(|(node, on)| AdminOrder::Drain { node, on }),
        (partition(), node(), node()).prop_map(|(partition, from, to)| AdminOrder::MoveReplica {
            partition,
            from,
            to
        }),
        (partition(), node())
            .prop_map(|(partition, to)| AdminOrder::TransferLeader { partition, to }),
        (partition(), option::of(bound()))
            .prop_map(|(partition, at)| AdminOrder::SplitPartition { partition, at }),
        (partition(), partition())
            .prop_map(|(left, right)| AdminOrder::MergePartitions { left, right }),
        node().prop_map(|node| AdminOrder::RemoveNode { node }),
    ]
}

round_trips! {
    domains_of_a_column_survive: any_domain();
    domains_of_columns_survive: domains();
    replica_statuses_survive: status();
    members_survive: members();
    registrations_survive: registration();
    heartbeats_survive: heartbeat();
    renewals_survive: renewal();
    answers_to_renewals_survive: renewed();
    admin_orders_survive: admin_order();
    reports_of_causes_survive: blame_report();
    probes_survive: probe();
}

fn blame_report() -> impl Strategy<Value = BlameReport> {
    let cause = (name(), name(), name(), name(), name()).prop_map(
        |(statement, kind, user, application, client)| Cause {
            statement,
            kind,
            user,
            application,
            client,
        },
    );
    let key = option::of(vec(any::<u8>(), 0..6).prop_map(Box::<[u8]>::from));
    let sample =
        (any::<u64>(), key, 0..2_u32, 0.0..1e6).prop_map(|(partition, key, cause, weight)| {
            (partita_load::PartitionId(partition), Blamed { key, cause, weight })
        });
    let second = (any::<u64>(), any::<bool>(), vec(sample, 0..4))
        .prop_map(|(second, read, samples)| IntakenSecond { second, read, samples });
    let stall = (any::<u64>(), any::<u32>(), any::<u32>()).prop_map(|(partition, time, ago)| {
        let us = |us: u32| Duration::from_micros(u64::from(us));
        Stall { partition: PartitionId(partition), time: us(time), ago: us(ago) }
    });
    (any::<u64>(), vec(cause, 2..4), vec(second, 0..3), vec(stall, 0..3)).prop_map(
        |(source, causes, seconds, stalls)| BlameReport {
            source,
            taken: Intaken { causes, seconds },
            stalls,
        },
    )
}

#[test]
fn reports_of_causes_beyond_a_bound_are_refused() {
    let cause = || pb::BlameCause { kind: "INSERT".to_owned(), ..pb::BlameCause::default() };
    let second = |samples: usize, sample: pb::BlameSample| pb::BlameSecond {
        samples: vec![sample; samples],
        ..pb::BlameSecond::default()
    };
    let sample = pb::BlameSample { weight: 1.0, ..pb::BlameSample::default() };
    let within = pb::BlameReport {
        source: 1,
        causes: vec![cause(); CAUSES_MAX],
        seconds: vec![second(SAMPLES_MAX, sample.clone()); SECONDS_MAX],
        stalls: vec![pb::BlameStall::default(); STALLS_MAX],
    };
    assert!(BlameReport::from_wire(within).is_ok());
    let long = pb::BlameCause { user: "u".repeat(TEXT_BYTES_MAX + 1), ..cause() };
    let unknown = pb::BlameSample { cause: 1, ..sample.clone() };
    let endless = pb::BlameSample { weight: f64::INFINITY, ..sample.clone() };
    let of = |causes: Vec<pb::BlameCause>, seconds: Vec<pb::BlameSecond>| pb::BlameReport {
        source: 1,
        causes,
        seconds,
        stalls: vec![],
    };
    let many = pb::BlameReport {
        stalls: vec![pb::BlameStall::default(); STALLS_MAX + 1],
        ..of(vec![cause()], vec![])
    };
    let refused = [
        many,
        of(vec![cause(); CAUSES_MAX + 1], vec![]),
        of(vec![cause()], vec![second(0, sample.clone()); SECONDS_MAX + 1]),
        of(vec![cause()], vec![second(SAMPLES_MAX + 1, sample)]),
        of(vec![long], vec![]),
        of(vec![cause()], vec![second(1, unknown)]),
        of(vec![cause()], vec![second(1, endless)]),
    ];
    for report in refused {
        let refused = BlameReport::from_wire(report);
        assert!(matches!(refused, Err(Error::InvalidInput(_))), "{refused:?}");
    }
}

fn probe() -> impl Strategy<Value = Probe> {
    let test = prop_oneof![
        any_domain().prop_map(ColumnTest::Within),
        name().prop_map(ColumnTest::Like),
        (name(), any::<bool>()).prop_map(|(pattern, case_insensitive)| ColumnTest::Regex {
            pattern,
            case_insensitive,
        }),
        (vec(name(), 0..3), any::<bool>())
            .prop_map(|(terms, folded)| ColumnTest::Terms { terms, folded }),
    ];
    let leaf = (name(), test).prop_map(|(column, test)| Probe::Column { column, test });
    leaf.prop_recursive(4, 16, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Probe::All),
            vec(inner, 0..3).prop_map(Probe::Any)
        ]
    })
}

fn scan_request() -> impl Strategy<Value = ScanRequest> {
    let flags = any::<(bool, bool, bool)>();
    let numbers = (any::<u64>(), any::<u64>(), option::of(any::<usize>()), 0..1024_usize, flags);
    let column = (name(), arbitrary::column_type(), any::<bool>())
        .prop_map(|(name, kind, nullable)| Field::new(name, kind.arrow(), nullable));
    let read_from = option::of((any::<u64>(), any::<u32>())).prop_map(|any_replica| {
        any_replica.map_or(ReadFrom::Leader, |(micros, schema)| ReadFrom::AnyReplica {
            staleness_max: Duration::from_micros(micros),
            schema: SchemaVersion(schema),
        })
    });
    let first = (any::<usize>(), any::<bool>())
        .prop_map(|(rows, descending)| FirstByTime { rows, descending });
    let order = (any::<bool>(), any::<bool>())
        .prop_map(|(descending, nulls_apart)| KeyOrder { descending, nulls_apart });
    let kinds = (read_from, option::of(first), option::of(order));
    (numbers, vec(column, 0..4), domains(), vec(probe(), 0..3), kinds).prop_map(
        |(numbers, columns, domains, probes, (read_from, first_by_time, order))| {
            let (partition, epoch, limit, parallelism, flags) = numbers;
            let (newest_only, for_update, uncollected) = flags;
            ScanRequest {
                partition: PartitionId(partition),
                epoch: Epoch(epoch),
                columns: Arc::new(Schema::new(columns)),
                domains,
                limit,
                parallelism,
                newest_only,
                probes,
                read_from,
                first_by_time,
                order,
                for_update,
                uncollected,
            }
        },
    )
}

fn write_request() -> impl Strategy<Value = WriteRequest> {
    let kind = prop_oneof![Just(WriteKind::Put), Just(WriteKind::Delete)];
    let ids = (any::<u64>(), any::<u64>(), (request_id(), vec(request_id(), 0..3)), kind);
    (ids, arbitrary::table_and_rows(), option::of(ship()), option::of(condition())).prop_map(
        |((partition, epoch, ids, kind), (schema, rows), ship, condition)| WriteRequest {
            partition: PartitionId(partition),
            epoch: Epoch(epoch),
            id: ids.0,
            earlier: ids.1,
            kind,
            rows: arbitrary::batch(&schema, &rows),
            ship,
            condition,
        },
    )
}

/// Flips bits of a message's bytes: what still is a message is decoded, and may be refused.
fn damaged<M: Message + Default>(message: &M, at: prop::sample::Index, flip: u8) -> Option<M> {
    let mut bytes = message.encode_to_vec();
    if bytes.is_empty() {
        return None;
    }
    let at = at.index(bytes.len());
    bytes[at] ^= flip;
    M::decode(bytes.as_slice()).ok()
}

proptest! {
    #[test]
    fn scan_requests_survive(
        request in scan_request(),
        at in any::<prop::sample::Index>(),
        flip in 1..=255_u8,
    ) {
        let message = request.to_wire().unwrap();
        let again = ScanRequest::from_wire(message.clone()).unwrap();
        prop_assert_eq!(again.partition, request.partition);
        prop_assert_eq!(again.epoch, request.epoch);
        prop_assert_eq!(again.columns, request.columns);
        prop_assert_eq!(again.domains, request.domains);
        prop_assert_eq!(again.limit, request.limit);
        prop_assert_eq!(again.parallelism, request.parallelism);
        prop_assert_eq!(again.newest_only, request.newest_only);
        prop_assert_eq!(again.probes, request.probes);
        prop_assert_eq!(again.read_from, request.read_from);
        prop_assert_eq!(again.first_by_time, request.first_by_time);
        prop_assert_eq!(again.order, request.order);
        if let Some(message) = damaged(&message, at, flip) {
            drop(ScanRequest::from_wire(message));
        }
    }

    #[test]
    fn write_requests_survive_with_their_rows(
        request in write_request(),
        at in any::<prop::sample::Index>(),
        flip in 1..=255_u8,
    ) {
        let message = request.to_wire().unwrap();
        let again = WriteRequest::from_wire(message.clone()).unwrap();
        prop_assert_eq!(again.partition, request.partition);
        prop_assert_eq!(again.epoch, request.epoch);
        prop_assert_eq!(again.id, request.id);
        prop_assert_eq!(again.kind, request.kind);
        prop_assert_eq!(again.rows, request.rows);
        prop_assert_eq!(again.ship, request.ship);
        if let Some(message) = damaged(&message, at, flip) {
            drop(WriteRequest::from_wire(message));
        }
    }
}

#[test]
fn counters_of_a_scan_only_grow_whatever_order_they_come_in() {
    let stats = ScanStats::default();
    let used = |column: &str, kind, examined, skipped| {
        let column = column.to_owned();
        pb::IndexUse { column, kind, examined, skipped }
    };
    let late = pb::ScanStats {
        rows_scanned: 10,
        files_read: 2,
        by_followers: 1,
        indexes: vec![used("a", 1, 9, 5)],
        ..pb::ScanStats::default()
    };
    // A kind of a later version is not counted.
    let early = pb::ScanStats {
        rows_scanned: 4,
        bytes_scanned: 7,
        indexes: vec![used("b", 3, 6, 0), used("a", 1, 7, 5), used("a", 4, 8, 8)],
        ..pb::ScanStats::default()
    };
    stats.merge_wire(&late);
    stats.merge_wire(&early);
    assert_eq!(stats.rows_scanned.load(Ordering::Relaxed), 10);
    let key = ("a".to_owned(), IndexKind::Inverted);
    assert_eq!(stats.indexes.lock().get(&key), Some(&IndexUse { examined: 9, skipped: 5 }));
    let indexes = vec![used("a", 1, 9, 5), used("b", 3, 6, 0)];
    let expected = pb::ScanStats { bytes_scanned: 7, indexes, ..late };
    assert_eq!(stats.to_wire(), expected);
}

#[test]
fn uses_of_an_index_add_up() {
    let mut sum = IndexUse { examined: 3, skipped: 1 };
    sum.add(&IndexUse { examined: 5, skipped: 5 });
    assert_eq!(sum, IndexUse { examined: 8, skipped: 6 });
}

#[test]
fn measures_of_a_partition_are_sent_with_its_status() {
    let built = IndexBuild {
        column: ColumnId(2),
        kind: IndexKind::Fulltext,
        files: 3,
        files_done: 1,
        bytes: 7,
    };
    let measures = PartitionMeasures {
        indexes: vec![built],
        column_bytes: BTreeMap::from([(ColumnId(1), 5), (ColumnId(2), 6)]),
        folded: 4,
        ..PartitionMeasures::default()
    };
    let status = ReplicaStatus { measures: Some(Arc::new(measures)), ..ReplicaStatus::default() };
    let bytes = status.encode_wire();
    assert_eq!(ReplicaStatus::decode_wire(bytes).unwrap(), status);
}

/// `LIKE` below so many operators.
fn deep_probe(operators: usize) -> Probe {
    let leaf = Probe::Column { column: "c".to_owned(), test: ColumnTest::Like("%".to_owned()) };
    (0..operators).fold(leaf, |probe, _| Probe::Any(vec![probe]))
}

#[test]
fn probes_too_deep_or_too_many_are_left_out_by_the_sender_and_refused_by_the_receiver() {
    let request = |probes| ScanRequest {
        partition: PartitionId(1),
        epoch: Epoch(1),
        columns: Arc::new(Schema::empty()),
        domains: Domains::default(),
        limit: None,
        parallelism: 1,
        newest_only: false,
        probes,
        read_from: ReadFrom::Leader,
        first_by_time: None,
        order: None,
        for_update: false,
        uncollected: false,
    };
    let deepest = deep_probe(PROBE_DEPTH_MAX - 1);
    let largest = Probe::All(vec![deep_probe(0); PROBE_NODES_MAX - 1]);
    for probe in [deepest.clone(), largest.clone()] {
        let message = request(vec![probe.clone()]).to_wire().unwrap();
        assert_eq!(ScanRequest::from_wire(message).unwrap().probes, [probe]);
    }
    let too_deep = deep_probe(PROBE_DEPTH_MAX);
    // Both together have too many nodes; the first one alone has not.
    let sent = request(vec![too_deep.clone(), largest.clone(), deepest.clone()]).to_wire().unwrap();
    assert_eq!(ScanRequest::from_wire(sent).unwrap().probes, std::slice::from_ref(&largest));

    let mut message = request(Vec::new()).to_wire().unwrap();
    message.probes = vec![too_deep.to_wire()];
    let error = ScanRequest::from_wire(message.clone()).unwrap_err();
    assert!(error.to_string().contains("deeper than 16"), "{error}");
    message.probes = vec![largest.to_wire(), deepest.to_wire()];
    let error = ScanRequest::from_wire(message).unwrap_err();
    assert!(error.to_string().contains("more than 10000 probes"), "{error}");
    assert!(matches!(Probe::from_wire(pb::Probe::default()), Err(Error::Corrupted(_))));
}

/// A change of a catalog: which database and table, and what becomes of them.
#[derive(Clone, Debug)]
enum Change {
    Put {
        database: usize,
        table: usize,
        id: u32,
        partitions: u64,
    },
    Drop {
        database: usize,
        table: usize,
    },
    Database {
        database: usize,
        ttl: Option<Duration>,
    },
    DropDatabase {
        database: usize,
    },
    /// A role, and a token of its own; `None` drops it.
    Role {
        id: u32,
        name: Option<u32>,
    },
}

fn catalog_change() -> impl Strategy<Value = Change> {
    prop_oneof![
        4 => (0..3_usize, 0..3_usize, any::<u32>(), 1..4_u64).prop_map(
            |(database, table, id, partitions)| Change::Put { database, table, id, partitions }
        ),
        2 => (0..3_usize, 0..3_usize).prop_map(|(database, table)| Change::Drop { database, table }),
        2 => (0..3_usize, option::of(duration()))
            .prop_map(|(database, ttl)| Change::Database { database, ttl }),
        1 => (0..3_usize).prop_map(|database| Change::DropDatabase { database }),
        3 => (1..4_u32, option::of(0..3_u32)).prop_map(|(id, name)| Change::Role { id, name }),
    ]
}

fn a_table(database: &str, name: &str, id: u32, partitions: u64) -> Table {
    let schema = samples::schema(&[ColumnType::Int64]);
    let codec = KeyCodec::new(&schema, &Placement::Range).unwrap();
    let cut = |at: u64| Bound { placement: None, key: vec![Value::Int(at.cast_signed())] };
    let cuts: Vec<Bound> = (1..partitions).map(cut).collect();
    let ids = (u64::from(id)..).map(PartitionId);
    let map = PartitionMap::from_cuts(&codec, &cuts, ids, Epoch(1)).unwrap();
    let routes: Vec<Route> = map.routes().to_vec();
    Table {
        id: TableId(id),
        database: database.to_owned(),
        name: name.to_owned(),
        schema: Arc::new(schema),
        placement: Placement::Range,
        partitions: Arc::new(PartitionMap::new(routes).unwrap()),
        former: None,
        succeeded_by: None,
        owner: BOOTSTRAP_ROLE,
        copy: None,
    }
}

fn make(catalog: &mut Catalog, change: &Change) {
    let name = |number: usize| format!("n{number}");
    match *change {
        Change::Put { database, table, id, partitions } => {
            let made = a_table(&name(database), &name(table), id, partitions);
            let tables = catalog.tables.entry(name(database)).or_default();
            tables.insert(name(table), Arc::new(made));
        }
        Change::Drop { database, table } => {
            if let Some(tables) = catalog.tables.get_mut(&name(database)) {
                tables.remove(&name(table));
                if tables.is_empty() {
                    catalog.tables.remove(&name(database));
                }
            }
        }
        Change::Database { database, ttl } => {
            let id = DatabaseId(u32::try_from(database).unwrap());
            let (owner, explicit) = (BOOTSTRAP_ROLE, false);
            let made = Database { id, name: name(database), ttl, owner, explicit, comment: None };
            catalog.databases.insert(name(database), Arc::new(made));
        }
        Change::DropDatabase { database } => {
            catalog.databases.remove(&name(database));
            catalog.tables.remove(&name(database));
        }
        Change::Role { id, name: number } => {
            make_role(Arc::make_mut(&mut catalog.access), RoleId(id), number);
        }
    }
    catalog.version += 1;
}

/// Makes or drops a role and what it has; no two roles get one name.
fn make_role(access: &mut Access, id: RoleId, number: Option<u32>) {
    access.version += 1;
    let target = Target::Table(TableId(id.0));
    let token_id = TokenId::new(u64::from(id.0)).unwrap();
    let org = OrgId::new(u64::from(id.0)).unwrap();
    let Some(number) = number else {
        access.drop_role(id);
        access.drop_grant(target);
        access.drop_token(token_id);
        access.drop_org(org);
        return;
    };
    let name = format!("r{number}");
    if access.role_by_name(&name).is_some_and(|role| role.id != id) {
        return;
    }
    access.put_role(Role::new(id, name.clone()));
    let (grantee, actions) = (Grantee::Role(id), Actions::of(&[Action::Select]));
    let mut grant = Grant::new(target);
    let (grantable, grantor) = (Actions::NONE, BOOTSTRAP_ROLE);
    grant.grant(BOOTSTRAP_ROLE, GrantEntry { grantee, actions, grantable, grantor }).unwrap();
    access.put_grant(grant);
    access.put_org(Org { id: org, name, series_max: None, profile: Profile::Free });
    let mut token = access::full_token();
    (token.id, token.owner, token.enabled) = (token_id, id, number == 0);
    token.sha256[0] = u8::try_from(id.0).unwrap();
    access.put_token(token);
}

fn follow(follower: &mut Follower, parts: Vec<pb::CatalogPart>) -> Catalog {
    let count = parts.len();
    let mut whole = None;
    for (number, part) in parts.into_iter().enumerate() {
        assert!(whole.is_none(), "a catalog was whole before its last part");
        let sent = pb::CatalogPart::decode(part.encode_to_vec().as_slice()).unwrap();
        whole = follower.take(sent).unwrap();
        assert_eq!(whole.is_some(), number + 1 == count);
    }
    whole.unwrap()
}

fn assert_equal(a: &Catalog, b: &Catalog) {
    assert_eq!(a.version, b.version);
    assert_eq!(a.databases, b.databases);
    assert_eq!(a.tables, b.tables);
    assert_eq!(a.access, b.access);
    assert_eq!(a.tasks, b.tasks);
    let names = |catalog: &Catalog| -> Vec<Option<RoleId>> {
        let found = |number| catalog.access.role_by_name(&format!("r{number}")).map(|role| role.id);
        (0..3).map(found).collect()
    };
    assert_eq!(names(a), names(b));
}

proptest! {
    #[test]
    fn whoever_follows_a_catalog_has_the_same_one(
        rounds in vec(vec(catalog_change(), 1..6), 1..6),
    ) {
        let mut catalog = Catalog { version: 1, ..Catalog::default() };
        let mut follower = Follower::default();
        assert_equal(&follow(&mut follower, parts_between(None, &catalog)), &catalog);
        for changes in rounds {
            let before = catalog.clone();
            changes.iter().for_each(|change| make(&mut catalog, change));
            let parts = parts_between(Some(&before), &catalog);
            assert_equal(&follow(&mut follower, parts), &catalog);
            // And a watcher that comes now, with any earlier catalog.
            let mut fresh = Follower::of(&before);
            assert_equal(&follow(&mut fresh, parts_between(None, &catalog)), &catalog);
        }
    }
}

#[test]
fn a_large_catalog_comes_in_parts_and_a_change_of_it_in_one() {
    let mut catalog = Catalog { version: 1, ..Catalog::default() };
    for number in 0..100 {
        let table = a_table("d", &format!("t{number}"), number, 400);
        let tables = catalog.tables.entry("d".to_owned()).or_default();
        tables.insert(table.name.clone(), Arc::new(table));
    }
    let parts = parts_between(None, &catalog);
    assert!(parts.len() > 2, "{} parts", parts.len());
    assert!(parts.iter().all(|part| part.encoded_len() < 512 << 10));
    assert_eq!(parts.iter().filter(|part| part.reset).count(), 1);
    let mut follower = Follower::default();
    assert_equal(&follow(&mut follower, parts), &catalog);

    let before = catalog.clone();
    make(&mut catalog, &Change::Put { database: 0, table: 0, id: 999, partitions: 1 });
    let parts = parts_between(Some(&before), &catalog);
    assert_eq!(parts.len(), 1);
    assert_eq!(parts[0].tables.len(), 1);
    assert_equal(&follow(&mut follower, parts), &catalog);
}

#[test]
fn only_what_changed_of_the_access_is_sent() {
    let mut catalog = Catalog { version: 1, ..Catalog::default() };
    for id in 1..=3 {
        make(&mut catalog, &Change::Role { id, name: Some(id - 1) });
    }
    let before = catalog.clone();
    make(&mut catalog, &Change::Database { database: 0, ttl: None });
    let parts = parts_between(Some(&before), &catalog);
    assert!(parts.iter().all(|part| part.access.is_none()), "no role has changed");
    let before = catalog.clone();
    make(&mut catalog, &Change::Role { id: 2, name: None });
    let access = Arc::make_mut(&mut catalog.access);
    access.put_role(Role { login: true, ..Role::new(RoleId(3), "r2") });
    let parts = parts_between(Some(&before), &catalog);
    let part = parts[0].access.as_ref().unwrap();
    let ids: Vec<u32> = part.roles.iter().map(|role| role.id).collect();
    assert_eq!((parts.len(), part.roles_gone.as_slice(), ids), (1, &[2_u32][..], vec![3]));
    assert_eq!((part.tokens_gone.as_slice(), part.tokens.len()), (&[2_u64][..], 0));
    assert_eq!((part.grants_gone.len(), part.grants.len()), (1, 0));
    assert_equal(&follow(&mut Follower::of(&before), parts), &catalog);
}

#[test]
fn a_write_of_no_batch_or_of_two_is_refused() {
    let schema = arbitrary::table(&[ColumnType::Int64]);
    let batch = arbitrary::batch(&schema, &[vec![Value::Int(1)]]);
    let message = pb::WriteRequest {
        id: Some(RequestId { client: 1, sequence: 1 }.to_wire()),
        kind: WriteKind::Put.to_wire(),
        rows: ipc::encode(&[batch.clone(), batch]).unwrap(),
        ..pb::WriteRequest::default()
    };
    let error = WriteRequest::from_wire(message).unwrap_err();
    assert!(error.to_string().contains("2 batches"), "{error}");
    let empty = pb::WriteRequest::default();
    assert!(matches!(WriteRequest::from_wire(empty), Err(Error::Corrupted(_))));
}

#[test]
fn a_scan_into_absurdly_many_streams_is_refused() {
    let message = pb::ScanRequest {
        domains: Some(pb::Domains::default()),
        parallelism: u32::MAX,
        ..pb::ScanRequest::default()
    };
    let error = ScanRequest::from_wire(message).unwrap_err();
    assert!(error.to_string().contains("4294967295 streams"), "{error}");
}

#[test]
fn an_interval_that_ends_at_null_is_refused() {
    use pb::limit::Kind;
    let limit = |kind| Some(pb::Limit { kind: Some(kind) });
    let interval = pb::Interval {
        low: limit(Kind::Included(Value::Null.to_wire())),
        high: limit(Kind::Unbounded(true)),
    };
    let domain = pb::Domain { null: false, intervals: vec![interval] };
    assert!(matches!(Domain::from_wire(domain), Err(Error::Corrupted(_))));
    let open = pb::Interval { low: None, high: limit(Kind::Unbounded(true)) };
    let domain = pb::Domain { null: false, intervals: vec![open] };
    let error = Domain::from_wire(domain).unwrap_err();
    assert!(error.to_string().contains("low end"), "{error}");
}
