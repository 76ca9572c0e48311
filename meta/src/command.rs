//! What meta's log holds, and what applying it answers, as bytes.
//!
//! An entry is decided again whenever it is replayed, so a later version must decide entries of an
//! older one as that did: a rule that becomes stricter needs a new kind of entry.

use bytes::Bytes;
use partita_proto::error::Error;
use partita_proto::id::{NodeId, PartitionId, ReplicaId, TableId};
use partita_proto::member::Registration;
use partita_proto::service::{Ddl, RequestId};
use partita_proto::wire::{Wire, pb};
use prost::{Message, Oneof};

use crate::catalog::Step;
use crate::transition::{Command, Reply};

#[derive(Clone, PartialEq, Message)]
struct CommandForm {
    #[prost(oneof = "CommandKind", tags = "1, 2, 3, 4, 5, 6, 7")]
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
}

#[derive(Clone, PartialEq, Message)]
struct ChangeForm {
    #[prost(message, optional, tag = "1")]
    ddl: Option<pb::Ddl>,
    /// Of each partition, when they have one replica; else in `places`.
    #[prost(uint64, repeated, tag = "2")]
    nodes: Vec<u64>,
    #[prost(message, optional, tag = "3")]
    id: Option<pb::RequestId>,
    #[prost(message, repeated, tag = "4")]
    places: Vec<NodesForm>,
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
    let one = |nodes: &Vec<NodeId>| match nodes.as_slice() {
        [node] => Some(node.0),
        _ => None,
    };
    places.iter().map(one).collect()
}

#[derive(Clone, PartialEq, Message)]
struct MoveForm {
    #[prost(uint64, tag = "1")]
    partition: u64,
    #[prost(uint64, repeated, tag = "2")]
    add: Vec<u64>,
    #[prost(uint64, repeated, tag = "3")]
    remove: Vec<u64>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct MovedForm {
    #[prost(uint64, tag = "1")]
    partition: u64,
    #[prost(uint64, tag = "2")]
    step: u64,
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
    /// Always true.
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
    /// The command as an entry of the log.
    pub(crate) fn encode(&self) -> Bytes {
        let kind = match self {
            Self::Change { ddl, places, id } => CommandKind::Change(ChangeForm {
                ddl: Some(ddl.to_wire()),
                nodes: single(places).unwrap_or_default(),
                id: id.as_ref().map(Wire::to_wire),
                places: match single(places) {
                    Some(_) => Vec::new(),
                    None => places.iter().map(|nodes| NodesForm::new(nodes)).collect(),
                },
            }),
            Self::Finish { table, step } => CommandKind::Finish(StepForm::new(*table, *step)),
            Self::Abort { table, step } => CommandKind::Abort(StepForm::new(*table, *step)),
            Self::Register(registration) => CommandKind::Register(registration.to_wire()),
            Self::Drain { node, on } => CommandKind::Drain(pb::Drain { node: node.0, on: *on }),
            Self::Move { partition, add, remove } => CommandKind::Move(MoveForm {
                partition: partition.0,
                add: add.iter().map(|node| node.0).collect(),
                remove: remove.iter().map(|replica| replica.0).collect(),
            }),
            Self::Moved { partition, step } => {
                CommandKind::Moved(MovedForm { partition: partition.0, step: step.0 })
            }
        };
        CommandForm { kind: Some(kind) }.encode_to_vec().into()
    }

    /// The command of an entry.
    ///
    /// # Errors
    /// [`Error::Corrupted`] when it is malformed or of a later version.
    pub(crate) fn decode(bytes: Bytes) -> Result<Self, Error> {
        let form = CommandForm::decode(bytes).map_err(malformed)?;
        Ok(match form.kind {
            Some(CommandKind::Change(change)) => {
                let ddl = change.ddl.ok_or_else(unknown)?;
                let one = change.nodes.into_iter().map(|node| vec![NodeId(node)]);
                let several = change.places.into_iter();
                let several = several.map(|form| form.nodes.into_iter().map(NodeId).collect());
                Self::Change {
                    ddl: Ddl::from_wire(ddl)?,
                    places: one.chain(several).collect(),
                    id: change.id.map(RequestId::from_wire).transpose()?,
                }
            }
            Some(CommandKind::Finish(at)) => Self::Finish { table: at.table(), step: at.step() },
            Some(CommandKind::Abort(at)) => Self::Abort { table: at.table(), step: at.step() },
            Some(CommandKind::Register(form)) => Self::Register(Registration::from_wire(form)?),
            Some(CommandKind::Drain(form)) => Self::Drain { node: NodeId(form.node), on: form.on },
            Some(CommandKind::Move(form)) => Self::Move {
                partition: PartitionId(form.partition),
                add: form.add.into_iter().map(NodeId).collect(),
                remove: form.remove.into_iter().map(ReplicaId).collect(),
            },
            Some(CommandKind::Moved(form)) => {
                Self::Moved { partition: PartitionId(form.partition), step: Step(form.step) }
            }
            None => return Err(unknown()),
        })
    }
}

/// The answer to an entry, as bytes: a reply, or why it was refused.
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

/// The answer to an entry.
///
/// # Errors
/// What the entry was refused with, or [`Error::Corrupted`] when the bytes are no reply.
pub(crate) fn decode_reply(bytes: Bytes) -> Result<Reply, Error> {
    let form = ReplyForm::decode(bytes).map_err(malformed)?;
    Ok(match form.kind {
        Some(ReplyKind::Unchanged(_)) => Reply::Unchanged,
        Some(ReplyKind::Changed(changed)) => {
            let steps = changed.steps.into_iter().map(|at| (at.table(), at.step())).collect();
            Reply::Changed { steps }
        }
        Some(ReplyKind::Busy(at)) => Reply::Busy { table: at.table(), step: at.step() },
        Some(ReplyKind::Refused(error)) => return Err(Error::from_wire(error)?),
        None => return Err(unknown()),
    })
}

#[expect(clippy::needless_pass_by_value, reason = "the shape of map_err")]
fn malformed(error: prost::DecodeError) -> Error {
    Error::Corrupted(format!("an entry of meta's log is malformed: {error}"))
}

fn unknown() -> Error {
    Error::Corrupted(
        "an entry of meta's log is of a kind that this version does not know".to_owned(),
    )
}
