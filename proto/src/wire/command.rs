//! Commands in a partition's Raft log.

use std::sync::Arc;

use bytes::Bytes;

use super::service::{kind_from_wire, kind_to_wire};
use super::{Wire, all, missing, pb, required};
use crate::error::Error;
use crate::id::Epoch;
use crate::materialized::{CaptureOrder, Ship};
use crate::reshape::Reshape;
use crate::schema::TableSchema;
use crate::service::{Condition, RequestId, WriteKind};

/// One entry of a partition's log. Its effect depends only on the entries before it, so that all replicas stay equal.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Rows to be written.
    Write(WriteCommand),
    /// A newer schema; ignored when the partition has that version or a newer one.
    Schema(Arc<TableSchema>),
    /// Removes all rows; once per request.
    Truncate(RequestId),
    /// Splits the partition, freezes it, or lets it absorb its neighbour.
    Reshape(Reshape),
    /// Begins, changes or ends the capture of changes for a copy of the partition's table.
    Copy(CaptureOrder),
    /// Keeps the keys of the writes that follow, so that conditions of writes can be decided.
    Track,
}

/// Rows of one or more requests, joined into one entry.
#[derive(Clone, Debug, PartialEq)]
pub struct WriteCommand {
    /// The partition's epoch when the leader accepted them.
    pub epoch: Epoch,
    /// The requests; their rows are concatenated in `rows`, in this order.
    pub parts: Vec<WritePart>,
    /// One Arrow IPC stream: see [`super::ipc`].
    pub rows: Bytes,
}

/// One request's part of a [`WriteCommand`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WritePart {
    /// Identity of the request; if it took effect before, the part is skipped.
    pub id: RequestId,
    /// Requests of which this is a part: if one of them took effect before, the part is skipped too.
    pub earlier: Vec<RequestId>,
    /// Put or delete.
    pub kind: WriteKind,
    /// Number of rows.
    pub rows: u32,
    /// Origin of the rows, in a partition of a copy: the part is skipped if they were taken before, whatever its `id`.
    pub ship: Option<Ship>,
    /// Condition without which the rows have no effect: the part is skipped if it does not hold.
    pub condition: Option<Condition>,
}

impl Command {
    /// Encodes the command for the log.
    pub fn encode(&self) -> Bytes {
        self.encode_wire()
    }

    /// Decodes a command; its rows share the bytes.
    ///
    /// # Errors
    /// [`Error::Corrupted`] when they are not a command that this version knows.
    pub fn decode(bytes: Bytes) -> Result<Self, Error> {
        Self::decode_wire(bytes)
    }
}

impl Wire for Command {
    type Message = pb::Command;

    fn to_wire(&self) -> pb::Command {
        use pb::command::Kind;
        let kind = match self {
            Self::Write(write) => Kind::Write(pb::Write {
                epoch: write.epoch.0,
                parts: write.parts.iter().map(Wire::to_wire).collect(),
                rows: write.rows.clone(),
            }),
            Self::Schema(schema) => Kind::Schema(schema.to_wire()),
            Self::Truncate(id) => Kind::Truncate(id.to_wire()),
            // A version that does not know leaders of splits stops here: it must not take this for a split of old.
            Self::Reshape(Reshape::Split(split)) if split.leader.is_some() => {
                Kind::LedSplit(split.to_wire())
            }
            Self::Reshape(Reshape::Split(split)) => Kind::Split(split.to_wire()),
            Self::Reshape(Reshape::Freeze(freeze)) => Kind::Freeze(freeze.to_wire()),
            Self::Reshape(Reshape::Absorb(absorb)) => Kind::Absorb(absorb.to_wire()),
            Self::Copy(order) => Kind::Capture(order.to_wire()),
            Self::Track => Kind::Track(true),
        };
        pb::Command { kind: Some(kind) }
    }

    fn from_wire(message: pb::Command) -> Result<Self, Error> {
        use pb::command::Kind;
        Ok(match message.kind.ok_or_else(|| missing("command"))? {
            Kind::Write(write) => Self::Write(WriteCommand {
                epoch: Epoch(write.epoch),
                parts: all(write.parts)?,
                rows: write.rows,
            }),
            Kind::Schema(schema) => Self::Schema(Arc::new(Wire::from_wire(schema)?)),
            Kind::Truncate(id) => Self::Truncate(Wire::from_wire(id)?),
            Kind::Split(split) | Kind::LedSplit(split) => {
                Self::Reshape(Reshape::Split(Wire::from_wire(split)?))
            }
            Kind::Freeze(freeze) => Self::Reshape(Reshape::Freeze(Wire::from_wire(freeze)?)),
            Kind::Absorb(absorb) => Self::Reshape(Reshape::Absorb(Wire::from_wire(absorb)?)),
            Kind::Capture(order) => Self::Copy(Wire::from_wire(order)?),
            Kind::Track(_) => Self::Track,
        })
    }
}

impl Wire for WritePart {
    type Message = pb::WritePart;

    fn to_wire(&self) -> pb::WritePart {
        pb::WritePart {
            id: Some(self.id.to_wire()),
            kind: kind_to_wire(self.kind, self.condition.as_ref()),
            rows: self.rows,
            earlier: self.earlier.iter().map(Wire::to_wire).collect(),
            ship: self.ship.as_ref().map(Wire::to_wire),
            condition: self.condition.as_ref().map(Wire::to_wire),
        }
    }

    fn from_wire(message: pb::WritePart) -> Result<Self, Error> {
        let (kind, condition) = kind_from_wire(message.kind, message.condition)?;
        let earlier = all(message.earlier)?;
        let ship = message.ship.map(Ship::from_wire).transpose()?;
        let id = required(message.id, "request id")?;
        Ok(Self { id, earlier, kind, rows: message.rows, ship, condition })
    }
}

impl Wire for RequestId {
    type Message = pb::RequestId;

    fn to_wire(&self) -> pb::RequestId {
        pb::RequestId { client: self.client, sequence: self.sequence }
    }

    fn from_wire(message: pb::RequestId) -> Result<Self, Error> {
        Ok(Self { client: message.client, sequence: message.sequence })
    }
}
