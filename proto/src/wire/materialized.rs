//! Captures, shipped rows and copies.
//!
//! Rows are encoded as [`super::ipc`] streams, which may fail; so [`Changes`] have functions of their own instead of
//! [`Wire`].

use super::{Wire, ipc, missing, pb};
use crate::error::Error;
use crate::id::{Epoch, PartitionId, TableId};
use crate::materialized::{
    Capture, CaptureOrder, Change, Changes, ChangesRequest, CopyChange, CopyOf, CopyState,
    Position, Rekeying, Ship, Steering,
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
            Capture::Close => Kind::Close(true),
            Capture::End => Kind::End(true),
            Capture::Detach => Kind::Detach(true),
            Capture::Reopen => Kind::Reopen(true),
        };
        pb::Capture { copy: self.copy.0, kind: Some(kind) }
    }

    fn from_wire(message: pb::Capture) -> Result<Self, Error> {
        use pb::capture::Kind;
        let capture = match message.kind.ok_or_else(|| missing("change of a capture"))? {
            Kind::Begin(_) => Capture::Begin,
            Kind::Sync(_) => Capture::Sync,
            Kind::Shipped(index) => Capture::Shipped(index),
            Kind::Close(_) => Capture::Close,
            Kind::End(_) => Capture::End,
            Kind::Detach(_) => Capture::Detach,
            Kind::Reopen(_) => Capture::Reopen,
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
            Self::Switching => 4,
            Self::Reopening => 5,
            Self::Retired => 6,
        }
    }

    fn from_wire(message: u32) -> Result<Self, Error> {
        Ok(match message {
            1 => Self::Filling,
            2 => Self::InStep,
            3 => Self::Lost,
            4 => Self::Switching,
            5 => Self::Reopening,
            6 => Self::Retired,
            _ => return Err(missing("state of a copy")),
        })
    }
}

impl Wire for Rekeying {
    type Message = pb::Rekeying;

    fn to_wire(&self) -> pb::Rekeying {
        let Self { is_paused, rows_per_second, rows } = *self;
        pb::Rekeying { is_paused, rows_per_second, rows }
    }

    fn from_wire(message: pb::Rekeying) -> Result<Self, Error> {
        let pb::Rekeying { is_paused, rows_per_second, rows } = message;
        Ok(Self { is_paused, rows_per_second, rows })
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
            rekeying: self.rekeying.as_ref().map(Wire::to_wire),
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
            rekeying: message.rekeying.map(Rekeying::from_wire).transpose()?,
        })
    }
}

impl Wire for CopyChange {
    type Message = pb::CopyChange;

    fn to_wire(&self) -> pb::CopyChange {
        use pb::copy_change::{Beat, Exchange, Finish, Kind, Lose, Reopened, Replace, Steer, Take};
        let copy = self.copy().0;
        let kind = match self {
            Self::Take { filler, .. } => Kind::Take(Take { copy, filler: *filler }),
            Self::Beat { filler, beat, rows, .. } => {
                Kind::Beat(Beat { copy, filler: *filler, beat: *beat, rows: *rows })
            }
            Self::Finish { filler, partitions, .. } => Kind::Finish(Finish {
                copy,
                filler: *filler,
                partitions: partitions.iter().map(|partition| partition.0).collect(),
            }),
            Self::Lose { reason, .. } => Kind::Lose(Lose { copy, reason: reason.clone() }),
            Self::Replace { beat, .. } => Kind::Replace(Replace { copy, beat: *beat }),
            Self::Steer { steering, .. } => {
                Kind::Steer(Steer { copy, steering: Some(steering_form(*steering)) })
            }
            Self::Switch { .. } => Kind::Switch(copy),
            Self::Exchange { partitions, .. } => Kind::Exchange(Exchange {
                copy,
                partitions: partitions.iter().map(|partition| partition.0).collect(),
            }),
            Self::Reopened { partitions, .. } => Kind::Reopened(Reopened {
                copy,
                partitions: partitions.iter().map(|partition| partition.0).collect(),
            }),
            Self::Discard { .. } => Kind::Discard(copy),
        };
        pb::CopyChange { kind: Some(kind) }
    }

    fn from_wire(message: pb::CopyChange) -> Result<Self, Error> {
        use pb::copy_change::Kind;
        Ok(match message.kind.ok_or_else(|| missing("change of a copy"))? {
            Kind::Take(take) => Self::Take { copy: TableId(take.copy), filler: take.filler },
            Kind::Beat(beat) => Self::Beat {
                copy: TableId(beat.copy),
                filler: beat.filler,
                beat: beat.beat,
                rows: beat.rows,
            },
            Kind::Finish(finish) => Self::Finish {
                copy: TableId(finish.copy),
                filler: finish.filler,
                partitions: finish.partitions.into_iter().map(PartitionId).collect(),
            },
            Kind::Lose(lose) => Self::Lose { copy: TableId(lose.copy), reason: lose.reason },
            Kind::Replace(replace) => {
                Self::Replace { copy: TableId(replace.copy), beat: replace.beat }
            }
            Kind::Steer(steer) => {
                let steering = steer.steering.ok_or_else(|| missing("order about a re-keying"))?;
                Self::Steer { copy: TableId(steer.copy), steering: steering_of(steering) }
            }
            Kind::Switch(copy) => Self::Switch { copy: TableId(copy) },
            Kind::Exchange(exchange) => Self::Exchange {
                copy: TableId(exchange.copy),
                partitions: exchange.partitions.into_iter().map(PartitionId).collect(),
            },
            Kind::Reopened(reopened) => Self::Reopened {
                copy: TableId(reopened.copy),
                partitions: reopened.partitions.into_iter().map(PartitionId).collect(),
            },
            Kind::Discard(copy) => Self::Discard { copy: TableId(copy) },
        })
    }
}

fn steering_form(steering: Steering) -> pb::copy_change::steer::Steering {
    use pb::copy_change::steer::Steering as Form;
    match steering {
        Steering::Pause => Form::Pause(true),
        Steering::Resume => Form::Resume(true),
        Steering::Throttle(rows_per_second) => Form::RowsPerSecond(rows_per_second),
        Steering::Cancel => Form::Cancel(true),
    }
}

fn steering_of(form: pb::copy_change::steer::Steering) -> Steering {
    use pb::copy_change::steer::Steering as Form;
    match form {
        Form::Pause(_) => Steering::Pause,
        Form::Resume(_) => Steering::Resume,
        Form::RowsPerSecond(rows_per_second) => Steering::Throttle(rows_per_second),
        Form::Cancel(_) => Steering::Cancel,
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
