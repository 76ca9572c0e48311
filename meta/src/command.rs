//! Byte form of meta's log entries, and of the answers to them.
//!
//! An entry is decided again whenever it is replayed, so a later version must decide entries of an older one in the
//! same way: a rule that becomes stricter needs a new kind of entry.

use bytes::Bytes;
use partita_proto::access::Secrets;
use partita_proto::error::Error;
use partita_proto::generation::Renewal;
use partita_proto::history::Reason;
use partita_proto::id::{Epoch, NodeId, PartitionId, ReplicaId, TableId};
use partita_proto::member::Registration;
use partita_proto::range::Bound;
use partita_proto::service::{Ddl, RequestId};
use partita_proto::wire::{Wire, pb};
use prost::{Message, Oneof};

use crate::catalog::Step;
use crate::transition::{Command, Progress, Reply};

#[derive(Clone, PartialEq, Message)]
struct CommandForm {
    #[prost(
        oneof = "CommandKind",
        tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20"
    )]
    kind: Option<CommandKind>,
}

#[derive(Clone, PartialEq, Oneof)]
#[expect(clippy::large_enum_variant, reason = "lives for the moment of encoding only")]
enum CommandKind {
    #[prost(message, tag = "1")]
    Change(ChangeForm),
    #[prost(message, tag = "2")]
    Finish(StepForm),
    #[prost(message, tag = "3")]
    Abort(StepForm),
    #[prost(message, tag = "4")]
    Register(pb::Registration),
    #[prost(message, tag = "5")]
    Drain(pb::Drain),
    #[prost(message, tag = "6")]
    Move(MoveForm),
    #[prost(message, tag = "7")]
    Moved(MovedForm),
    #[prost(message, tag = "8")]
    Split(SplitForm),
    #[prost(message, tag = "9")]
    Merge(MergeForm),
    #[prost(message, tag = "10")]
    Advance(AdvanceForm),
    #[prost(message, tag = "11")]
    RemoveNode(pb::RemoveNode),
    #[prost(message, tag = "12")]
    ReadAlong(StepForm),
    #[prost(message, tag = "13")]
    Fenced(FencedForm),
    #[prost(message, tag = "14")]
    Lead(LeadForm),
    #[prost(message, tag = "15")]
    Meta(MetaForm),
    #[prost(message, tag = "16")]
    Renew(pb::Renewal),
    #[prost(message, tag = "17")]
    RenewMeta(pb::Renewal),
    #[prost(message, tag = "18")]
    Created(MovedForm),
    #[prost(message, tag = "19")]
    Renumber(RenumberForm),
    #[prost(message, tag = "20")]
    Bootstrap(BootstrapForm),
}

#[derive(Clone, Copy, PartialEq, Message)]
struct LeadForm {
    #[prost(fixed64, tag = "1")]
    cluster: u64,
    #[prost(uint64, tag = "2")]
    term: u64,
    #[prost(fixed64, tag = "3")]
    nonce: u64,
}

#[derive(Clone, PartialEq, Message)]
struct BootstrapForm {
    #[prost(string, tag = "1")]
    superuser: String,
    #[prost(message, optional, tag = "2")]
    secrets: Option<pb::Secrets>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct MetaForm {
    #[prost(uint64, tag = "1")]
    node: u64,
    #[prost(fixed64, tag = "2")]
    identity: u64,
}

#[derive(Clone, PartialEq, Message)]
struct ChangeForm {
    #[prost(message, optional, tag = "1")]
    ddl: Option<pb::Ddl>,
    /// The node of each partition, if all have one replica; otherwise empty, and `places` is used.
    #[prost(uint64, repeated, tag = "2")]
    nodes: Vec<u64>,
    #[prost(message, optional, tag = "3")]
    id: Option<pb::RequestId>,
    #[prost(message, repeated, tag = "4")]
    places: Vec<NodesForm>,
    #[prost(uint32, optional, tag = "5")]
    tables_max: Option<u32>,
}

/// The nodes of one partition.
#[derive(Clone, PartialEq, Message)]
struct NodesForm {
    #[prost(uint64, repeated, tag = "1")]
    nodes: Vec<u64>,
}

impl NodesForm {
    fn new(nodes: &[NodeId]) -> Self {
        Self { nodes: nodes.iter().map(|node| node.0).collect() }
    }
}

/// The node of each partition, when each has one.
fn single(places: &[Vec<NodeId>]) -> Option<Vec<u64>> {
    let only_node = |nodes: &Vec<NodeId>| match nodes.as_slice() {
        [node] => Some(node.0),
        _ => None,
    };
    places.iter().map(only_node).collect()
}

#[derive(Clone, PartialEq, Message)]
struct MoveForm {
    #[prost(uint64, tag = "1")]
    partition: u64,
    #[prost(uint64, repeated, tag = "2")]
    add: Vec<u64>,
    #[prost(uint64, repeated, tag = "3")]
    remove: Vec<u64>,
    #[prost(uint64, optional, tag = "4")]
    replaces: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct MovedForm {
    #[prost(uint64, tag = "1")]
    partition: u64,
    #[prost(uint64, tag = "2")]
    step: u64,
}

#[derive(Clone, PartialEq, Message)]
struct RenumberForm {
    #[prost(uint64, tag = "1")]
    partition: u64,
    #[prost(uint64, tag = "2")]
    step: u64,
    #[prost(uint64, repeated, tag = "3")]
    replicas: Vec<u64>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct FencedForm {
    #[prost(message, optional, tag = "1")]
    at: Option<StepForm>,
    #[prost(uint64, tag = "2")]
    partition: u64,
    #[prost(uint64, tag = "3")]
    epoch: u64,
}

#[derive(Clone, PartialEq, Message)]
struct SplitForm {
    #[prost(uint64, tag = "1")]
    partition: u64,
    #[prost(message, optional, tag = "2")]
    at: Option<pb::Bound>,
    #[prost(message, optional, tag = "3")]
    reason: Option<pb::Reason>,
    #[prost(uint64, optional, tag = "4")]
    leader: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct MergeForm {
    #[prost(uint64, tag = "1")]
    left: u64,
    #[prost(uint64, tag = "2")]
    right: u64,
    #[prost(message, optional, tag = "3")]
    reason: Option<pb::Reason>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct AdvanceForm {
    #[prost(uint64, tag = "1")]
    partition: u64,
    #[prost(uint64, tag = "2")]
    step: u64,
    #[prost(oneof = "ProgressKind", tags = "3, 4, 5, 6, 7, 8, 9, 10, 11")]
    progress: Option<ProgressKind>,
}

/// `bool` variants are markers and always true; the others hold an epoch or an index.
#[derive(Clone, Copy, PartialEq, Oneof)]
enum ProgressKind {
    #[prost(bool, tag = "3")]
    GiveUp(bool),
    #[prost(bool, tag = "4")]
    Cut(bool),
    #[prost(uint64, tag = "5")]
    NotCut(u64),
    #[prost(bool, tag = "6")]
    Freezing(bool),
    #[prost(uint64, tag = "7")]
    Frozen(u64),
    #[prost(bool, tag = "8")]
    Absorbed(bool),
    #[prost(uint64, tag = "9")]
    NotAbsorbed(u64),
    #[prost(uint64, tag = "10")]
    Thawed(u64),
    #[prost(bool, tag = "11")]
    Left(bool),
}

impl ProgressKind {
    fn new(progress: Progress) -> Self {
        match progress {
            Progress::GiveUp => Self::GiveUp(true),
            Progress::Cut => Self::Cut(true),
            Progress::NotCut { epoch } => Self::NotCut(epoch.0),
            Progress::Freezing => Self::Freezing(true),
            Progress::Frozen { index } => Self::Frozen(index),
            Progress::Absorbed => Self::Absorbed(true),
            Progress::NotAbsorbed { epoch } => Self::NotAbsorbed(epoch.0),
            Progress::Thawed { epoch } => Self::Thawed(epoch.0),
            Progress::Left => Self::Left(true),
        }
    }

    fn progress(self) -> Progress {
        match self {
            Self::GiveUp(_) => Progress::GiveUp,
            Self::Cut(_) => Progress::Cut,
            Self::NotCut(epoch) => Progress::NotCut { epoch: Epoch(epoch) },
            Self::Freezing(_) => Progress::Freezing,
            Self::Frozen(index) => Progress::Frozen { index },
            Self::Absorbed(_) => Progress::Absorbed,
            Self::NotAbsorbed(epoch) => Progress::NotAbsorbed { epoch: Epoch(epoch) },
            Self::Thawed(epoch) => Progress::Thawed { epoch: Epoch(epoch) },
            Self::Left(_) => Progress::Left,
        }
    }
}

/// A table's step; also in records.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct StepForm {
    #[prost(uint32, tag = "1")]
    table: u32,
    #[prost(uint64, tag = "2")]
    step: u64,
}

impl StepForm {
    pub(crate) fn new(table: TableId, step: Step) -> Self {
        Self { table: table.0, step: step.0 }
    }

    pub(crate) fn table(self) -> TableId {
        TableId(self.table)
    }

    pub(crate) fn step(self) -> Step {
        Step(self.step)
    }
}

#[derive(Clone, PartialEq, Message)]
struct ReplyForm {
    #[prost(oneof = "ReplyKind", tags = "1, 2, 3, 4")]
    kind: Option<ReplyKind>,
}

#[derive(Clone, PartialEq, Oneof)]
enum ReplyKind {
    /// Always true: the variant is the information.
    #[prost(bool, tag = "1")]
    Unchanged(bool),
    #[prost(message, tag = "2")]
    Changed(StepsForm),
    #[prost(message, tag = "3")]
    Busy(StepForm),
    #[prost(message, tag = "4")]
    Refused(pb::Error),
}

#[derive(Clone, PartialEq, Message)]
struct StepsForm {
    #[prost(message, repeated, tag = "1")]
    steps: Vec<StepForm>,
}

impl Command {
    /// Encodes the command as a log entry.
    pub(crate) fn encode(&self) -> Bytes {
        let kind = match self {
            Self::Change { ddl, places, id, tables_max } => CommandKind::Change(ChangeForm {
                ddl: Some(ddl.to_wire()),
                nodes: single(places).unwrap_or_default(),
                id: id.as_ref().map(Wire::to_wire),
                places: match single(places) {
                    Some(_) => Vec::new(),
                    None => places.iter().map(|nodes| NodesForm::new(nodes)).collect(),
                },
                tables_max: *tables_max,
            }),
            // Progress of work on tables.
            Self::Finish { table, step } => CommandKind::Finish(StepForm::new(*table, *step)),
            Self::Abort { table, step } => CommandKind::Abort(StepForm::new(*table, *step)),
            Self::ReadAlong { table, step } => CommandKind::ReadAlong(StepForm::new(*table, *step)),
            Self::Fenced { table, step, partition, epoch } => CommandKind::Fenced(FencedForm {
                at: Some(StepForm::new(*table, *step)),
                partition: partition.0,
                epoch: epoch.0,
            }),
            // Nodes, and meta's own members.
            Self::Register(registration) => CommandKind::Register(registration.to_wire()),
            Self::Drain { node, on: draining } => {
                CommandKind::Drain(pb::Drain { node: node.0, on: *draining })
            }
            Self::Lead { cluster, term, nonce } => {
                CommandKind::Lead(LeadForm { cluster: *cluster, term: *term, nonce: *nonce })
            }
            Self::Bootstrap { superuser, secrets } => CommandKind::Bootstrap(BootstrapForm {
                superuser: superuser.clone(),
                secrets: Some(secrets.to_wire()),
            }),
            Self::Meta { node, identity } => {
                CommandKind::Meta(MetaForm { node: node.0, identity: *identity })
            }
            Self::Renew(renewal) => CommandKind::Renew(renewal.to_wire()),
            Self::RenewMeta(renewal) => CommandKind::RenewMeta(renewal.to_wire()),
            Self::RemoveNode { node } => CommandKind::RemoveNode(pb::RemoveNode { node: node.0 }),
            // Replicas, splits and merges.
            Self::Move { partition, add, remove, replaces } => CommandKind::Move(MoveForm {
                partition: partition.0,
                add: add.iter().map(|node| node.0).collect(),
                remove: remove.iter().map(|replica| replica.0).collect(),
                replaces: replaces.map(|step| step.0),
            }),
            Self::Created { partition, step } => {
                CommandKind::Created(MovedForm { partition: partition.0, step: step.0 })
            }
            Self::Renumber { partition, step, replicas } => CommandKind::Renumber(RenumberForm {
                partition: partition.0,
                step: step.0,
                replicas: replicas.iter().map(|replica| replica.0).collect(),
            }),
            Self::Moved { partition, step } => {
                CommandKind::Moved(MovedForm { partition: partition.0, step: step.0 })
            }
            Self::Split { partition, at: cut, reason, leader } => CommandKind::Split(SplitForm {
                partition: partition.0,
                at: Some(cut.to_wire()),
                reason: Some(reason.to_wire()),
                leader: leader.map(|node| node.0),
            }),
            Self::Merge { left: owner, right, reason } => CommandKind::Merge(MergeForm {
                left: owner.0,
                right: right.0,
                reason: Some(reason.to_wire()),
            }),
            Self::Advance { partition, step, progress } => CommandKind::Advance(AdvanceForm {
                partition: partition.0,
                step: step.0,
                progress: Some(ProgressKind::new(*progress)),
            }),
        };
        CommandForm { kind: Some(kind) }.encode_to_vec().into()
    }

    /// Decodes a log entry.
    ///
    /// # Errors
    /// [`Error::Corrupted`] when it is malformed or of a later version.
    pub(crate) fn decode(bytes: Bytes) -> Result<Self, Error> {
        let form = CommandForm::decode(bytes).map_err(malformed)?;
        Ok(match form.kind {
            Some(CommandKind::Change(change)) => {
                let ddl = change.ddl.ok_or_else(unknown)?;
                // Partitions with one replica each are in `nodes`, others in `places`.
                let singles = change.nodes.into_iter().map(|node| vec![NodeId(node)]);
                let several = change.places.into_iter();
                let several = several.map(|form| form.nodes.into_iter().map(NodeId).collect());
                Self::Change {
                    ddl: Ddl::from_wire(ddl)?,
                    places: singles.chain(several).collect(),
                    id: change.id.map(RequestId::from_wire).transpose()?,
                    tables_max: change.tables_max,
                }
            }
            // Progress of work on tables.
            Some(CommandKind::Finish(form)) => {
                Self::Finish { table: form.table(), step: form.step() }
            }
            Some(CommandKind::Abort(form)) => {
                Self::Abort { table: form.table(), step: form.step() }
            }
            Some(CommandKind::ReadAlong(form)) => {
                Self::ReadAlong { table: form.table(), step: form.step() }
            }
            Some(CommandKind::Fenced(form)) => {
                let table_step = form.at.ok_or_else(unknown)?;
                Self::Fenced {
                    table: table_step.table(),
                    step: table_step.step(),
                    partition: PartitionId(form.partition),
                    epoch: Epoch(form.epoch),
                }
            }
            // Nodes, and meta's own members.
            Some(CommandKind::Register(form)) => Self::Register(Registration::from_wire(form)?),
            Some(CommandKind::Drain(form)) => Self::Drain { node: NodeId(form.node), on: form.on },
            Some(CommandKind::Lead(LeadForm { cluster, term, nonce })) => {
                Self::Lead { cluster, term, nonce }
            }
            Some(CommandKind::Bootstrap(form)) => Self::Bootstrap {
                superuser: form.superuser,
                secrets: Secrets::from_wire(form.secrets.ok_or_else(unknown)?)?,
            },
            Some(CommandKind::Meta(form)) => {
                Self::Meta { node: NodeId(form.node), identity: form.identity }
            }
            Some(CommandKind::Renew(form)) => Self::Renew(Renewal::from_wire(form)?),
            Some(CommandKind::RenewMeta(form)) => Self::RenewMeta(Renewal::from_wire(form)?),
            Some(CommandKind::RemoveNode(form)) => Self::RemoveNode { node: NodeId(form.node) },
            // Replicas, splits and merges.
            Some(CommandKind::Move(form)) => Self::Move {
                partition: PartitionId(form.partition),
                add: form.add.into_iter().map(NodeId).collect(),
                remove: form.remove.into_iter().map(ReplicaId).collect(),
                replaces: form.replaces.map(Step),
            },
            Some(CommandKind::Created(form)) => {
                Self::Created { partition: PartitionId(form.partition), step: Step(form.step) }
            }
            Some(CommandKind::Renumber(form)) => Self::Renumber {
                partition: PartitionId(form.partition),
                step: Step(form.step),
                replicas: form.replicas.into_iter().map(ReplicaId).collect(),
            },
            Some(CommandKind::Moved(form)) => {
                Self::Moved { partition: PartitionId(form.partition), step: Step(form.step) }
            }
            Some(CommandKind::Split(form)) => Self::Split {
                partition: PartitionId(form.partition),
                at: Bound::from_wire(form.at.ok_or_else(unknown)?)?,
                reason: Reason::from_wire(form.reason.ok_or_else(unknown)?)?,
                leader: form.leader.map(NodeId),
            },
            Some(CommandKind::Merge(form)) => Self::Merge {
                left: PartitionId(form.left),
                right: PartitionId(form.right),
                reason: Reason::from_wire(form.reason.ok_or_else(unknown)?)?,
            },
            Some(CommandKind::Advance(form)) => Self::Advance {
                partition: PartitionId(form.partition),
                step: Step(form.step),
                progress: form.progress.ok_or_else(unknown)?.progress(),
            },
            None => return Err(unknown()),
        })
    }
}

/// Encodes the answer to an entry: a reply, or the error that refused it.
pub(crate) fn encode_reply(reply: &Result<Reply, Error>) -> Bytes {
    let kind = match reply {
        Ok(Reply::Unchanged) => ReplyKind::Unchanged(true),
        Ok(Reply::Changed { steps }) => {
            let steps = steps.iter().map(|(table, step)| StepForm::new(*table, *step)).collect();
            ReplyKind::Changed(StepsForm { steps })
        }
        Ok(Reply::Busy { table, step }) => ReplyKind::Busy(StepForm::new(*table, *step)),
        Err(error) => ReplyKind::Refused(error.to_wire()),
    };
    ReplyForm { kind: Some(kind) }.encode_to_vec().into()
}

/// Decodes the answer to an entry.
///
/// The error with which the entry was refused, or [`Error::Corrupted`] if the bytes are not a reply.
pub(crate) fn decode_reply(bytes: Bytes) -> Result<Reply, Error> {
    let form = ReplyForm::decode(bytes).map_err(malformed)?;
    Ok(match form.kind {
        Some(ReplyKind::Unchanged(_)) => Reply::Unchanged,
        Some(ReplyKind::Changed(changed)) => {
            let steps = changed.steps.into_iter().map(|form| (form.table(), form.step())).collect();
            Reply::Changed { steps }
        }
        Some(ReplyKind::Busy(form)) => Reply::Busy { table: form.table(), step: form.step() },
        Some(ReplyKind::Refused(error)) => return Err(Error::from_wire(error)?),
        None => return Err(unknown()),
    })
}

#[expect(clippy::needless_pass_by_value, reason = "the shape of map_err")]
fn malformed(error: prost::DecodeError) -> Error {
    Error::Corrupted(format!("an entry of meta's log is malformed: {error}"))
}

fn unknown() -> Error {
    Error::Corrupted("an entry of meta's log has a kind that this version does not know".to_owned())
}
