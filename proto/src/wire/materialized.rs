//! Captures, shipped rows and copies.
//!
//! Rows are encoded as [`super::ipc`] streams, which may fail; so [`Changes`] have functions of their own instead of
//! [`Wire`].

use super::{Wire, ipc, missing, pb};
use crate::error::Error;
use crate::id::{Epoch, PartitionId, TableId};
use crate::materialized::{
    Capture, CaptureOrder, Change, Changes, ChangesRequest, CopyChange, CopyOf, CopyState,
    Position, Ship,
};

impl Wire for Ship {
    type Message = pb::Ship;

    fn to_wire(&self) -> pb::Ship {
        pb::Ship {
            source: self.source.0,
            from_index: self.from.index,
            from_part: self.from.part,
            to_index: self.to.index,
            to_part: self.to.part,
        }
    }

    fn from_wire(message: pb::Ship) -> Result<Self, Error> {
        Ok(Self {
            source: PartitionId(message.source),
            from: Position { index: message.from_index, part: message.from_part },
            to: Position { index: message.to_index, part: message.to_part },
        })
    }
}

impl Wire for CaptureOrder {
    type Message = pb::Capture;

    fn to_wire(&self) -> pb::Capture {
        use pb::capture::Kind;
        let kind = match self.capture {
            Capture::Begin => Kind::Begin(true),
            Capture::Sync => Kind::Sync(true),
            Capture::Shipped(index) => Kind::Shipped(index),
            Capture::End => Kind::End(true),
        };
        pb::Capture { copy: self.copy.0, kind: Some(kind) }
    }

    fn from_wire(message: pb::Capture) -> Result<Self, Error> {
        use pb::capture::Kind;
        let capture = match message.kind.ok_or_else(|| missing("change of a capture"))? {
            Kind::Begin(_) => Capture::Begin,
            Kind::Sync(_) => Capture::Sync,
            Kind::Shipped(index) => Capture::Shipped(index),
            Kind::End(_) => Capture::End,
        };
        Ok(Self { copy: TableId(message.copy), capture })
    }
}

impl Wire for CopyState {
    type Message = u32;

    fn to_wire(&self) -> u32 {
        match self {
            Self::Filling => 1,
            Self::InStep => 2,
            Self::Lost => 3,
        }
    }

    fn from_wire(message: u32) -> Result<Self, Error> {
        Ok(match message {
            1 => Self::Filling,
            2 => Self::InStep,
            3 => Self::Lost,
            _ => return Err(missing("state of a copy")),
        })
    }
}

impl Wire for CopyOf {
    type Message = pb::CopyOf;

    fn to_wire(&self) -> pb::CopyOf {
        pb::CopyOf {
            source: self.source.0,
            state: self.state.to_wire(),
            filler: self.filler,
            beat: self.beat,
            reason: self.reason.clone(),
            fills: self.fills,
        }
    }

    fn from_wire(message: pb::CopyOf) -> Result<Self, Error> {
        Ok(Self {
            source: TableId(message.source),
            state: Wire::from_wire(message.state)?,
            filler: message.filler,
            beat: message.beat,
            reason: message.reason,
            fills: message.fills,
        })
    }
}

impl Wire for CopyChange {
    type Message = pb::CopyChange;

    fn to_wire(&self) -> pb::CopyChange {
        use pb::copy_change::{Beat, Finish, Kind, Lose, Replace, Take};
        let copy = self.copy().0;
        let kind = match self {
            Self::Take { filler, .. } => Kind::Take(Take { copy, filler: *filler }),
            Self::Beat { filler, beat, .. } => {
                Kind::Beat(Beat { copy, filler: *filler, beat: *beat })
            }
            Self::Finish { filler, partitions, .. } => Kind::Finish(Finish {
                copy,
                filler: *filler,
                partitions: partitions.iter().map(|partition| partition.0).collect(),
            }),
            Self::Lose { reason, .. } => Kind::Lose(Lose { copy, reason: reason.clone() }),
            Self::Replace { beat, .. } => Kind::Replace(Replace { copy, beat: *beat }),
        };
        pb::CopyChange { kind: Some(kind) }
    }

    fn from_wire(message: pb::CopyChange) -> Result<Self, Error> {
        use pb::copy_change::Kind;
        Ok(match message.kind.ok_or_else(|| missing("change of a copy"))? {
            Kind::Take(take) => Self::Take { copy: TableId(take.copy), filler: take.filler },
            Kind::Beat(beat) => {
                Self::Beat { copy: TableId(beat.copy), filler: beat.filler, beat: beat.beat }
            }
            Kind::Finish(finish) => Self::Finish {
                copy: TableId(finish.copy),
                filler: finish.filler,
                partitions: finish.partitions.into_iter().map(PartitionId).collect(),
            },
            Kind::Lose(lose) => Self::Lose { copy: TableId(lose.copy), reason: lose.reason },
            Kind::Replace(replace) => {
                Self::Replace { copy: TableId(replace.copy), beat: replace.beat }
            }
        })
    }
}

impl Wire for ChangesRequest {
    type Message = pb::ChangesRequest;

    fn to_wire(&self) -> pb::ChangesRequest {
        pb::ChangesRequest {
            partition: self.partition.0,
            epoch: self.epoch.0,
            copy: self.copy.0,
            after: self.after,
            bytes_max: u64::try_from(self.bytes_max).unwrap_or(u64::MAX),
        }
    }

    fn from_wire(message: pb::ChangesRequest) -> Result<Self, Error> {
        Ok(Self {
            partition: PartitionId(message.partition),
            epoch: Epoch(message.epoch),
            copy: TableId(message.copy),
            after: message.after,
            bytes_max: usize::try_from(message.bytes_max).unwrap_or(usize::MAX),
        })
    }
}

impl Changes {
    /// The message of changes; encodes their rows.
    ///
    /// # Errors
    /// As [`ipc::encode`].
    pub fn to_wire(&self) -> Result<pb::ChangesReply, Error> {
        let entry = |change: &Change| {
            Ok(pb::CapturedChange {
                index: change.index,
                kind: change.kind.to_wire(),
                rows: ipc::encode(std::slice::from_ref(&change.rows))?,
            })
        };
        Ok(pb::ChangesReply {
            to: self.to,
            last: self.last,
            shipped: self.shipped,
            sync: self.sync,
            after: self
                .after
                .map(|(partition, index)| pb::ShipFirst { partition: partition.0, index }),
            entries: self.entries.iter().map(entry).collect::<Result<_, Error>>()?,
        })
    }

    /// The changes of a message. Their rows share the message's bytes wherever these are aligned for it.
    ///
    /// # Errors
    /// [`Error::Corrupted`] when a field is missing or the rows of a change are not one batch.
    pub fn from_wire(message: pb::ChangesReply) -> Result<Self, Error> {
        let change = |entry: pb::CapturedChange| {
            let [rows] = <[_; 1]>::try_from(ipc::decode(entry.rows)?).map_err(|batches| {
                Error::Corrupted(format!(
                    "a change has {} batches of rows instead of one",
                    batches.len()
                ))
            })?;
            Ok(Change { index: entry.index, kind: Wire::from_wire(entry.kind)?, rows })
        };
        Ok(Self {
            to: message.to,
            last: message.last,
            shipped: message.shipped,
            sync: message.sync,
            after: message.after.map(|first| (PartitionId(first.partition), first.index)),
            entries: message.entries.into_iter().map(change).collect::<Result<_, Error>>()?,
        })
    }
}
