//! Byte form of the catalog's records: protobuf, so that later versions can read them. Field numbers never change
//! their meaning.
//!
//! Every record is a value of its own in the store, under a key of its kind and id, so that a change rewrites only
//! the records that it touches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use partita_proto::access::{Grant, Org, Role, Secrets, Target as GrantTarget, Token};
use partita_proto::catalog_history::Leadership;
use partita_proto::error::Error;
use partita_proto::generation::Generation;
use partita_proto::id::{
    DatabaseId, Epoch, NodeId, PartitionId, ReplicaId, RoleId, SequenceId, TableId, TaskId,
};
use partita_proto::label::Labels;
use partita_proto::materialized::CopyOf;
use partita_proto::placement::Placement;
use partita_proto::range::TypedRange;
use partita_proto::schema::TableSchema;
use partita_proto::sequence::Sequence;
use partita_proto::service::RequestId;
use partita_proto::task::{Task, TaskState};
use partita_proto::wire::{Wire, pb};
use prost::{Message, Oneof};

use crate::catalog::{
    Counters, DatabaseRecord, Edit, MetaRecord, NodeRecord, PartitionRecord, Phase, Remembered,
    State, Step, TableRecord, Target, Work,
};
use crate::command::StepForm;
use crate::error::MetaError;
use crate::reshape::ReshapingForm;
use crate::store::Change;

/// Kinds of records: the first byte of their keys.
const COUNTERS: u8 = b'c';
const DATABASE: u8 = b'd';
const PARTITION: u8 = b'p';
const TABLE: u8 = b't';
const NODE: u8 = b'n';
/// Removed nodes.
const REMOVED: u8 = b'x';
const REMEMBERED: u8 = b'r';
/// The cluster's random number.
const CLUSTER: u8 = b'i';
const LEADERSHIP: u8 = b'l';
/// Members of meta's own group.
const META: u8 = b'm';
/// Roles: users, and groups of them.
pub(crate) const ROLE: u8 = b'u';
const GRANT: u8 = b'g';
const ORG: u8 = b'o';
/// API tokens: keys.
pub(crate) const TOKEN: u8 = b'k';
/// The cluster's random keys.
const SECRETS: u8 = b's';
/// Definitions of tasks: jobs.
const TASK: u8 = b'j';
/// Progress of tasks.
const TASK_STATE: u8 = b'q';
/// Sequences with their counters: values.
const SEQUENCE: u8 = b'v';

/// First and last kind of the records that a start needs at once: all but roles and tokens, of which there may be many.
pub(crate) const OBJECTS: [(u8, u8); 3] =
    [(u8::MIN, TOKEN - 1), (TOKEN + 1, ROLE - 1), (ROLE + 1, u8::MAX)];

/// Kinds of objects in the keys of grants.
const ON_CLUSTER: u8 = 0;
const ON_DATABASE: u8 = 1;
const ON_TABLE: u8 = 2;
const ON_SEQUENCE: u8 = 3;

#[derive(Clone, PartialEq, Message)]
struct CountersForm {
    #[prost(uint64, tag = "1")]
    version: u64,
    #[prost(uint32, tag = "2")]
    database: u32,
    #[prost(uint32, tag = "3")]
    table: u32,
    #[prost(uint64, tag = "4")]
    partition: u64,
    #[prost(uint64, tag = "5")]
    replica: u64,
    /// Highest node number given so far; the next one is larger by one.
    #[prost(uint64, tag = "6")]
    nodes: u64,
    #[prost(uint64, tag = "7")]
    remembered: u64,
    /// Highest number of a role given so far, without the bootstrap superuser.
    #[prost(uint32, tag = "8")]
    roles: u32,
    #[prost(uint64, tag = "9")]
    access: u64,
    /// Highest number of a task given so far.
    #[prost(uint32, tag = "10")]
    tasks: u32,
    /// Highest number of a sequence given so far.
    #[prost(uint32, tag = "11")]
    sequences: u32,
}

#[derive(Clone, PartialEq, Message)]
struct DatabaseForm {
    #[prost(uint32, tag = "1")]
    id: u32,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(message, optional, tag = "3")]
    ttl: Option<pb::Duration>,
    /// 0, the bootstrap superuser, in records of earlier versions.
    #[prost(uint32, tag = "4")]
    owner: u32,
    /// False in records of earlier versions.
    #[prost(bool, tag = "10")]
    explicit: bool,
    #[prost(string, optional, tag = "11")]
    comment: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct TableForm {
    #[prost(uint32, tag = "1")]
    id: u32,
    #[prost(uint32, tag = "2")]
    database: u32,
    #[prost(string, tag = "3")]
    name: String,
    #[prost(oneof = "PhaseForm", tags = "4, 5, 6, 7, 8, 17")]
    phase: Option<PhaseForm>,
    #[prost(uint64, tag = "9")]
    step: u64,
    #[prost(message, optional, tag = "10")]
    schema: Option<pb::TableSchema>,
    #[prost(message, optional, tag = "11")]
    placement: Option<pb::Placement>,
    #[prost(string, repeated, tag = "12")]
    dropped_names: Vec<String>,
    #[prost(message, optional, tag = "13")]
    ordered_ttl: Option<pb::Duration>,
    #[prost(uint64, repeated, tag = "14")]
    partitions: Vec<u64>,
    /// 0 if there is none.
    #[prost(uint32, tag = "15")]
    former: u32,
    /// 0 if there is none.
    #[prost(uint32, tag = "16")]
    succeeded_by: u32,
    /// 0, the bootstrap superuser, in records of earlier versions.
    #[prost(uint32, tag = "18")]
    owner: u32,
    /// Absent if the table is no copy, as in records of earlier versions.
    #[prost(message, optional, tag = "19")]
    copy: Option<pb::CopyOf>,
}

#[derive(Clone, PartialEq, Oneof)]
#[expect(clippy::large_enum_variant, reason = "lives for the moment of encoding only")]
enum PhaseForm {
    #[prost(message, tag = "4")]
    Creating(Nothing),
    #[prost(message, tag = "5")]
    Ready(Nothing),
    #[prost(message, tag = "6")]
    Schema(pb::TableSchema),
    #[prost(message, tag = "7")]
    Truncate(Nothing),
    #[prost(message, tag = "8")]
    Dropping(Nothing),
    #[prost(message, tag = "17")]
    Succeed(Nothing),
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Nothing {}

#[derive(Clone, PartialEq, Message)]
struct PartitionForm {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint32, tag = "2")]
    table: u32,
    #[prost(message, optional, tag = "3")]
    range: Option<pb::TypedRange>,
    #[prost(uint64, tag = "4")]
    epoch: u64,
    #[prost(btree_map = "uint64, uint64", tag = "5")]
    replicas: BTreeMap<u64, u64>,
    #[prost(message, optional, tag = "6")]
    target: Option<TargetForm>,
    #[prost(oneof = "ReshapingForm", tags = "7, 8, 9, 10, 11")]
    reshaping: Option<ReshapingForm>,
    #[prost(uint64, optional, tag = "12")]
    first_leader: Option<u64>,
    /// Absent in records of earlier versions.
    #[prost(sint64, optional, tag = "13")]
    cut_by_hand_ms: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct TargetForm {
    #[prost(btree_map = "uint64, uint64", tag = "1")]
    replicas: BTreeMap<u64, u64>,
    #[prost(uint64, tag = "2")]
    step: u64,
    #[prost(uint64, repeated, tag = "3")]
    created: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct NodeForm {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(fixed64, tag = "2")]
    identity: u64,
    #[prost(string, tag = "3")]
    address: String,
    #[prost(bool, tag = "4")]
    draining: bool,
    /// Absent if there are none.
    #[prost(message, optional, tag = "5")]
    labels: Option<pb::Labels>,
    /// Absent: not reported yet.
    #[prost(message, optional, tag = "6")]
    generation: Option<pb::Generation>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct RemovedForm {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(fixed64, tag = "2")]
    identity: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct ClusterForm {
    #[prost(fixed64, tag = "1")]
    cluster: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct MetaForm {
    #[prost(uint64, tag = "1")]
    node: u64,
    #[prost(fixed64, tag = "2")]
    identity: u64,
    /// Absent: not reported yet.
    #[prost(message, optional, tag = "3")]
    generation: Option<pb::Generation>,
}

#[derive(Clone, PartialEq, Message)]
struct RememberedForm {
    #[prost(uint64, tag = "1")]
    place: u64,
    #[prost(fixed64, tag = "2")]
    client: u64,
    #[prost(uint64, tag = "3")]
    sequence: u64,
    #[prost(message, repeated, tag = "4")]
    steps: Vec<StepForm>,
}

/// Changes of the store for edits.
pub(crate) fn changes(edits: &[Edit]) -> Vec<Change> {
    edits.iter().map(change).collect()
}

fn change(edit: &Edit) -> Change {
    Change { key: key(edit), value: value(edit) }
}

/// Key of the record that an edit changes.
fn key(edit: &Edit) -> Vec<u8> {
    match edit {
        // Databases, tables and partitions.
        Edit::Counters(_) => vec![COUNTERS],
        Edit::Database(record) => key32(DATABASE, record.id.0),
        Edit::DatabaseGone(id) => key32(DATABASE, id.0),
        Edit::Table(record) => key32(TABLE, record.id.0),
        Edit::TableGone(id) => key32(TABLE, id.0),
        Edit::Partition(record) => key64(PARTITION, record.id.0),
        Edit::PartitionGone(id) => key64(PARTITION, id.0),
        // Nodes, and meta's own group.
        Edit::Node(record) => key64(NODE, record.id.0),
        Edit::NodeGone(id) => key64(NODE, id.0),
        Edit::Removed(id, _) => key64(REMOVED, id.0),
        Edit::Cluster(_) => vec![CLUSTER],
        Edit::Leadership(leadership) => key64(LEADERSHIP, leadership.first),
        Edit::LeadershipGone(first) => key64(LEADERSHIP, *first),
        Edit::Meta(node, _) => key64(META, node.0),
        // Who may do what.
        Edit::Role(role) => key32(ROLE, role.id.0),
        Edit::RoleGone(id) => key32(ROLE, id.0),
        Edit::Grant(grant) => grant_key(grant.target()),
        Edit::GrantGone(target) => grant_key(*target),
        Edit::Org(org) => key64(ORG, org.id.get()),
        Edit::OrgGone(id) => key64(ORG, id.get()),
        Edit::Token(token) => key64(TOKEN, token.id.get()),
        Edit::TokenGone(id) => key64(TOKEN, id.get()),
        Edit::Secrets(_) => vec![SECRETS],
        // Tasks.
        Edit::Task(task) => key32(TASK, task.id.0),
        Edit::TaskGone(id) => key32(TASK, id.0),
        Edit::TaskState(state) => key32(TASK_STATE, state.task.0),
        Edit::TaskStateGone(id) => key32(TASK_STATE, id.0),
        Edit::Sequence(sequence) => key32(SEQUENCE, sequence.id.0),
        Edit::SequenceGone(id) => key32(SEQUENCE, id.0),
        Edit::Remember(place, _) => key64(REMEMBERED, *place),
    }
}

/// New content of the record that an edit changes; `None`: the record is removed.
fn value(edit: &Edit) -> Option<Vec<u8>> {
    Some(match edit {
        // Databases, tables and partitions.
        Edit::Counters(counters) => counters_form(*counters).encode_to_vec(),
        Edit::Database(record) => database_form(record).encode_to_vec(),
        Edit::Table(record) => table_form(record).encode_to_vec(),
        Edit::Partition(record) => partition_form(record).encode_to_vec(),
        // Nodes, and meta's own group.
        Edit::Node(record) => node_form(record).encode_to_vec(),
        Edit::Removed(id, identity) => {
            RemovedForm { id: id.0, identity: *identity }.encode_to_vec()
        }
        Edit::Cluster(cluster) => ClusterForm { cluster: *cluster }.encode_to_vec(),
        Edit::Leadership(leadership) => leadership.to_wire().encode_to_vec(),
        Edit::Meta(node, MetaRecord { identity, generation }) => {
            let generation = generation.as_ref().map(Wire::to_wire);
            MetaForm { node: node.0, identity: *identity, generation }.encode_to_vec()
        }
        // Who may do what.
        Edit::Role(role) => role.to_wire().encode_to_vec(),
        Edit::Grant(grant) => grant.to_wire().encode_to_vec(),
        Edit::Org(org) => org.to_wire().encode_to_vec(),
        Edit::Token(token) => token.to_wire().encode_to_vec(),
        Edit::Secrets(secrets) => secrets.to_wire().encode_to_vec(),
        // Tasks.
        Edit::Task(task) => task.to_wire().encode_to_vec(),
        Edit::TaskState(state) => state.to_wire().encode_to_vec(),
        Edit::Sequence(sequence) => sequence.to_wire().encode_to_vec(),
        Edit::Remember(place, record) => remembered_form(*place, record).encode_to_vec(),
        Edit::DatabaseGone(_)
        | Edit::TableGone(_)
        | Edit::PartitionGone(_)
        | Edit::NodeGone(_)
        | Edit::LeadershipGone(_)
        | Edit::RoleGone(_)
        | Edit::GrantGone(_)
        | Edit::OrgGone(_)
        | Edit::TokenGone(_)
        | Edit::TaskGone(_)
        | Edit::TaskStateGone(_)
        | Edit::SequenceGone(_) => return None,
    })
}

fn key32(kind: u8, id: u32) -> Vec<u8> {
    [&[kind], id.to_be_bytes().as_slice()].concat()
}

fn grant_key(target: GrantTarget) -> Vec<u8> {
    let (kind, id) = match target {
        GrantTarget::Cluster => (ON_CLUSTER, 0),
        GrantTarget::Database(id) => (ON_DATABASE, id.0),
        GrantTarget::Table(id) => (ON_TABLE, id.0),
        GrantTarget::Sequence(id) => (ON_SEQUENCE, id.0),
    };
    [&[GRANT, kind], id.to_be_bytes().as_slice()].concat()
}

fn key64(kind: u8, id: u64) -> Vec<u8> {
    [&[kind], id.to_be_bytes().as_slice()].concat()
}

/// Builds the state from its records.
///
/// # Errors
/// [`MetaError::Corrupted`] or [`MetaError::Incompatible`] for a record that cannot be read, or if the records
/// together break the catalog's invariants.
pub(crate) fn state(records: Vec<(Vec<u8>, Vec<u8>)>) -> Result<State, MetaError> {
    let mut state = State::empty();
    state.apply(&edits(records)?);
    state.check().map_err(MetaError::Corrupted)?;
    Ok(state)
}

/// Builds the state from the records of [`OBJECTS`]; roles and tokens are added and checked later.
///
/// # Errors
/// As [`state`].
pub(crate) fn objects(records: Vec<(Vec<u8>, Vec<u8>)>) -> Result<State, MetaError> {
    let mut state = State::empty();
    state.apply(&edits(records)?);
    state.check_objects().map_err(MetaError::Corrupted)?;
    Ok(state)
}

/// Decodes records, each of which must have the key of its content.
///
/// # Errors
/// As [`state`].
pub(crate) fn edits<B: AsRef<[u8]>>(
    records: impl IntoIterator<Item = (B, B)>,
) -> Result<Vec<Edit>, MetaError> {
    let decoded = records.into_iter().map(|(record_key, content)| {
        let (record_key, content) = (record_key.as_ref(), content.as_ref());
        let edit = edit(record_key, content).map_err(|error| {
            MetaError::Corrupted(format!("record {}: {error}", record_key.escape_ascii()))
        })?;
        if key(&edit) != record_key {
            return Err(MetaError::Corrupted(format!(
                "record {} has the content of another record",
                record_key.escape_ascii()
            )));
        }
        Ok(edit)
    });
    decoded.collect()
}

fn edit(key: &[u8], value: &[u8]) -> Result<Edit, Error> {
    Ok(match key.first() {
        Some(&COUNTERS) => Edit::Counters(counters(&parse(value)?)),
        Some(&DATABASE) => Edit::Database(Arc::new(database(parse(value)?)?)),
        Some(&TABLE) => Edit::Table(Arc::new(table(parse(value)?)?)),
        Some(&PARTITION) => Edit::Partition(Arc::new(partition(parse(value)?)?)),
        Some(&NODE) => Edit::Node(Arc::new(node(parse(value)?)?)),
        Some(&REMOVED) => {
            let form: RemovedForm = parse(value)?;
            Edit::Removed(NodeId(form.id), form.identity)
        }
        Some(&REMEMBERED) => remembered(parse(value)?),
        Some(&CLUSTER) => Edit::Cluster(parse::<ClusterForm>(value)?.cluster),
        Some(&LEADERSHIP) => Edit::Leadership(Leadership::from_wire(parse(value)?)?),
        Some(&META) => {
            let form: MetaForm = parse(value)?;
            let generation = form.generation.map(Generation::from_wire).transpose()?;
            Edit::Meta(NodeId(form.node), MetaRecord { identity: form.identity, generation })
        }
        Some(&ROLE) => Edit::Role(Arc::new(Role::from_wire(parse(value)?)?)),
        Some(&GRANT) => Edit::Grant(Arc::new(Grant::from_wire(parse(value)?)?)),
        Some(&ORG) => Edit::Org(Arc::new(Org::from_wire(parse(value)?)?)),
        Some(&TOKEN) => Edit::Token(Arc::new(Token::from_wire(parse(value)?)?)),
        Some(&SECRETS) => Edit::Secrets(Secrets::from_wire(parse(value)?)?),
        Some(&TASK) => Edit::Task(Arc::new(Task::from_wire(parse(value)?)?)),
        Some(&TASK_STATE) => Edit::TaskState(Arc::new(TaskState::from_wire(parse(value)?)?)),
        Some(&SEQUENCE) => Edit::Sequence(Arc::new(Sequence::from_wire(parse(value)?)?)),
        _ => return Err(Error::Corrupted("its kind is not known to this version".to_owned())),
    })
}

fn parse<M: Message + Default>(bytes: &[u8]) -> Result<M, Error> {
    M::decode(bytes).map_err(|error| Error::Corrupted(error.to_string()))
}

pub(crate) fn required<T: Wire>(field: Option<T::Message>, name: &str) -> Result<T, Error> {
    T::from_wire(field.ok_or_else(|| Error::Corrupted(format!("{name} is missing")))?)
}

fn counters_form(counters: Counters) -> CountersForm {
    CountersForm {
        version: counters.version,
        database: counters.database.0,
        table: counters.table.0,
        partition: counters.partition.0,
        replica: counters.replica.0,
        nodes: counters.node.0 - 1,
        remembered: counters.remembered,
        roles: counters.role.0 - 1,
        access: counters.access,
        tasks: counters.task.0 - 1,
        sequences: counters.sequence.0 - 1,
    }
}

fn counters(form: &CountersForm) -> Counters {
    Counters {
        version: form.version,
        database: DatabaseId(form.database),
        table: TableId(form.table),
        partition: PartitionId(form.partition),
        replica: ReplicaId(form.replica),
        node: NodeId(form.nodes.saturating_add(1)),
        remembered: form.remembered,
        role: RoleId(form.roles.saturating_add(1)),
        access: form.access,
        task: TaskId(form.tasks.saturating_add(1)),
        sequence: SequenceId(form.sequences.saturating_add(1)),
    }
}

fn database_form(record: &DatabaseRecord) -> DatabaseForm {
    DatabaseForm {
        id: record.id.0,
        name: record.name.clone(),
        ttl: record.ttl.map(|ttl| ttl.to_wire()),
        owner: record.owner.0,
        explicit: record.explicit,
        comment: record.comment.clone(),
    }
}

fn database(form: DatabaseForm) -> Result<DatabaseRecord, Error> {
    let ttl = form.ttl.map(Duration::from_wire).transpose()?;
    let (id, owner) = (DatabaseId(form.id), RoleId(form.owner));
    let (explicit, comment) = (form.explicit, form.comment);
    Ok(DatabaseRecord { id, name: form.name, ttl, owner, explicit, comment })
}

fn table_form(record: &TableRecord) -> TableForm {
    let phase = match &record.phase {
        Phase::Creating => PhaseForm::Creating(Nothing {}),
        Phase::Ready => PhaseForm::Ready(Nothing {}),
        Phase::Altering(Work::Schema(schema)) => PhaseForm::Schema(schema.to_wire()),
        Phase::Altering(Work::Truncate) => PhaseForm::Truncate(Nothing {}),
        Phase::Altering(Work::Succeed) => PhaseForm::Succeed(Nothing {}),
        Phase::Dropping => PhaseForm::Dropping(Nothing {}),
    };
    TableForm {
        id: record.id.0,
        database: record.database.0,
        name: record.name.clone(),
        phase: Some(phase),
        step: record.step.0,
        schema: Some(record.schema.to_wire()),
        placement: Some(record.placement.to_wire()),
        dropped_names: record.dropped_names.iter().cloned().collect(),
        ordered_ttl: record.ordered_ttl.map(|ttl| ttl.to_wire()),
        partitions: record.partitions.iter().map(|id| id.0).collect(),
        former: record.former.unwrap_or_default().0,
        succeeded_by: record.succeeded_by.unwrap_or_default().0,
        owner: record.owner.0,
        copy: record.copy.as_deref().map(Wire::to_wire),
    }
}

fn table(form: TableForm) -> Result<TableRecord, Error> {
    let phase = match form.phase {
        Some(PhaseForm::Creating(_)) => Phase::Creating,
        Some(PhaseForm::Ready(_)) => Phase::Ready,
        Some(PhaseForm::Schema(schema)) => {
            Phase::Altering(Work::Schema(Arc::new(TableSchema::from_wire(schema)?)))
        }
        Some(PhaseForm::Truncate(_)) => Phase::Altering(Work::Truncate),
        Some(PhaseForm::Succeed(_)) => Phase::Altering(Work::Succeed),
        Some(PhaseForm::Dropping(_)) => Phase::Dropping,
        None => return Err(Error::Corrupted("its phase is not known to this version".to_owned())),
    };
    let optional_id = |id: u32| Some(TableId(id)).filter(|id| *id != TableId::default());
    Ok(TableRecord {
        id: TableId(form.id),
        database: DatabaseId(form.database),
        name: form.name,
        phase,
        step: Step(form.step),
        schema: Arc::new(required::<TableSchema>(form.schema, "the schema")?),
        placement: required::<Placement>(form.placement, "the placement")?,
        dropped_names: BTreeSet::from_iter(form.dropped_names),
        ordered_ttl: form.ordered_ttl.map(Duration::from_wire).transpose()?,
        partitions: form.partitions.into_iter().map(PartitionId).collect(),
        former: optional_id(form.former),
        succeeded_by: optional_id(form.succeeded_by),
        owner: RoleId(form.owner),
        copy: form.copy.map(CopyOf::from_wire).transpose()?.map(Arc::new),
    })
}

fn partition_form(record: &PartitionRecord) -> PartitionForm {
    PartitionForm {
        id: record.id.0,
        table: record.table.0,
        range: Some(record.range.to_wire()),
        epoch: record.epoch.0,
        replicas: replicas_form(&record.replicas),
        target: record.target.as_ref().map(|target| TargetForm {
            replicas: replicas_form(&target.replicas),
            step: target.step.0,
            created: target.created.iter().map(|replica| replica.0).collect(),
        }),
        reshaping: record.reshaping.as_ref().map(ReshapingForm::new),
        first_leader: record.first_leader.map(|node| node.0),
        cut_by_hand_ms: record.cut_by_hand_ms,
    }
}

pub(crate) fn replicas_form(replicas: &BTreeMap<ReplicaId, NodeId>) -> BTreeMap<u64, u64> {
    replicas.iter().map(|(replica, node)| (replica.0, node.0)).collect()
}

pub(crate) fn replicas(form: BTreeMap<u64, u64>) -> BTreeMap<ReplicaId, NodeId> {
    form.into_iter().map(|(replica, node)| (ReplicaId(replica), NodeId(node))).collect()
}

fn node_form(record: &NodeRecord) -> NodeForm {
    NodeForm {
        id: record.id.0,
        identity: record.identity,
        address: record.address.clone(),
        draining: record.draining,
        labels: record.labels.to_field(),
        generation: record.generation.as_ref().map(Wire::to_wire),
    }
}

fn node(form: NodeForm) -> Result<NodeRecord, Error> {
    Ok(NodeRecord {
        id: NodeId(form.id),
        identity: form.identity,
        address: form.address,
        draining: form.draining,
        labels: Labels::from_field(form.labels)?,
        generation: form.generation.map(Generation::from_wire).transpose()?,
    })
}

fn remembered_form(place: u64, record: &Remembered) -> RememberedForm {
    RememberedForm {
        place,
        client: record.id.client,
        sequence: record.id.sequence,
        steps: record.steps.iter().map(|(table, step)| StepForm::new(*table, *step)).collect(),
    }
}

fn remembered(form: RememberedForm) -> Edit {
    let id = RequestId { client: form.client, sequence: form.sequence };
    let steps = form.steps.into_iter().map(|step| (step.table(), step.step())).collect();
    Edit::Remember(form.place, Arc::new(Remembered { id, steps }))
}

fn partition(form: PartitionForm) -> Result<PartitionRecord, Error> {
    Ok(PartitionRecord {
        id: PartitionId(form.id),
        table: TableId(form.table),
        range: required::<TypedRange>(form.range, "the range")?,
        epoch: Epoch(form.epoch),
        replicas: replicas(form.replicas),
        target: form.target.map(|form| Target {
            replicas: replicas(form.replicas),
            step: Step(form.step),
            created: form.created.into_iter().map(ReplicaId).collect(),
        }),
        reshaping: form.reshaping.map(ReshapingForm::reshaping).transpose()?,
        first_leader: form.first_leader.map(NodeId),
        cut_by_hand_ms: form.cut_by_hand_ms,
    })
}
