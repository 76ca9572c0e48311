//! What meta's log holds, and what applying it answers, as bytes.
//!
//! An entry is decided again whenever it is replayed, so a later version must decide entries of an
//! older one as that did: a rule that becomes stricter needs a new kind of entry.

use bytes::Bytes;
use partita_proto::error::Error;
use partita_proto::id::{NodeId, TableId};
use partita_proto::service::Ddl;
use partita_proto::wire::{Wire, pb};
use prost::{Message, Oneof};

use crate::catalog::Step;
use crate::transition::{Command, Reply};

#[derive(Clone, PartialEq, Message)]
struct CommandForm {
    #[prost(oneof = "CommandKind", tags = "1, 2, 3")]
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
}

#[derive(Clone, PartialEq, Message)]
struct ChangeForm {
    #[prost(message, optional, tag = "1")]
    ddl: Option<pb::Ddl>,
    #[prost(uint64, repeated, tag = "2")]
    nodes: Vec<u64>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct StepForm {
    #[prost(uint32, tag = "1")]
    table: u32,
    #[prost(uint64, tag = "2")]
    step: u64,
}

impl StepForm {
    fn new(table: TableId, step: Step) -> Self {
        Self { table: table.0, step: step.0 }
    }

    fn table(self) -> TableId {
        TableId(self.table)
    }

    fn step(self) -> Step {
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
            Self::Change { ddl, nodes } => CommandKind::Change(ChangeForm {
                ddl: Some(ddl.to_wire()),
                nodes: nodes.iter().map(|node| node.0).collect(),
            }),
            Self::Finish { table, step } => CommandKind::Finish(StepForm::new(*table, *step)),
            Self::Abort { table, step } => CommandKind::Abort(StepForm::new(*table, *step)),
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
                let nodes = change.nodes.into_iter().map(NodeId).collect();
                Self::Change { ddl: Ddl::from_wire(ddl)?, nodes }
            }
            Some(CommandKind::Finish(at)) => Self::Finish { table: at.table(), step: at.step() },
            Some(CommandKind::Abort(at)) => Self::Abort { table: at.table(), step: at.step() },
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
