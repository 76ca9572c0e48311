//! History of splits and merges.

use super::{Wire, missing, narrow, pb, required};
use crate::error::Error;
use crate::history::{Cause, PerMille, Reason, ReshapeEvent, ReshapeKind, ReshapeOutcome};
use crate::id::{PartitionId, TableId};

fn share(thousandths: Option<u32>) -> Result<Option<PerMille>, Error> {
    let share = |thousandths| match narrow::<u16>(thousandths, "share")? {
        number @ 1001.. => Err(Error::Corrupted(format!("a share of {number} thousandths"))),
        thousandths => Ok(PerMille::new(thousandths)),
    };
    thousandths.map(share).transpose()
}

fn thousandths(share: Option<PerMille>) -> Option<u32> {
    share.map(|share| u32::from(share.get()))
}

impl Wire for Reason {
    type Message = pb::Reason;

    fn to_wire(&self) -> pb::Reason {
        let cause = match self.cause {
            Cause::ByHand => pb::Cause::ByHand,
            Cause::Load => pb::Cause::Load,
            Cause::Size => pb::Cause::Size,
            Cause::Idle => pb::Cause::Idle,
            Cause::Forecast => pb::Cause::Forecast,
        };
        let predicted_larger = thousandths(self.predicted_larger);
        let (note, at_ms) = (self.note.clone(), self.at_ms);
        pb::Reason { cause: cause.into(), predicted_larger, note, at_ms }
    }

    fn from_wire(message: pb::Reason) -> Result<Self, Error> {
        let cause = match pb::Cause::try_from(message.cause) {
            Ok(pb::Cause::ByHand) => Cause::ByHand,
            Ok(pb::Cause::Load) => Cause::Load,
            Ok(pb::Cause::Size) => Cause::Size,
            Ok(pb::Cause::Idle) => Cause::Idle,
            Ok(pb::Cause::Forecast) => Cause::Forecast,
            Ok(pb::Cause::Unspecified) | Err(_) => return Err(missing("cause")),
        };
        let predicted_larger = share(message.predicted_larger)?;
        Ok(Self { cause, predicted_larger, note: message.note, at_ms: message.at_ms })
    }
}

impl Wire for ReshapeEvent {
    type Message = pb::ReshapeEvent;

    fn to_wire(&self) -> pb::ReshapeEvent {
        use pb::reshape_event::Outcome;
        let kind = match self.kind {
            ReshapeKind::Split => pb::ReshapeKind::Split,
            ReshapeKind::Merge => pb::ReshapeKind::Merge,
        };
        let outcome = match &self.outcome {
            ReshapeOutcome::UnderWay => Outcome::UnderWay(true),
            ReshapeOutcome::Done => Outcome::Done(true),
            ReshapeOutcome::GivenUp(why) => Outcome::GivenUp(why.clone()),
        };
        pb::ReshapeEvent {
            id: self.id,
            at_ms: self.at_ms,
            table: self.table.0,
            kind: kind.into(),
            partition: self.partition.0,
            other: self.other.0,
            key: Some(self.key.to_wire()),
            reason: Some(self.reason.to_wire()),
            outcome: Some(outcome),
            stall: Some(self.stall.to_wire()),
            duration: Some(self.duration.to_wire()),
            relief: self.relief.map(|relief| relief.to_wire()),
            actual_larger: thousandths(self.actual_larger),
            in_vain: self.in_vain,
        }
    }

    fn from_wire(message: pb::ReshapeEvent) -> Result<Self, Error> {
        use pb::reshape_event::Outcome;
        let kind = match pb::ReshapeKind::try_from(message.kind) {
            Ok(pb::ReshapeKind::Split) => ReshapeKind::Split,
            Ok(pb::ReshapeKind::Merge) => ReshapeKind::Merge,
            Ok(pb::ReshapeKind::Unspecified) | Err(_) => return Err(missing("kind of change")),
        };
        let outcome = match message.outcome.ok_or_else(|| missing("outcome"))? {
            Outcome::UnderWay(_) => ReshapeOutcome::UnderWay,
            Outcome::Done(_) => ReshapeOutcome::Done,
            Outcome::GivenUp(why) => ReshapeOutcome::GivenUp(why),
        };
        Ok(Self {
            id: message.id,
            at_ms: message.at_ms,
            table: TableId(message.table),
            kind,
            partition: PartitionId(message.partition),
            other: PartitionId(message.other),
            key: required(message.key, "key")?,
            reason: required(message.reason, "reason")?,
            outcome,
            stall: required(message.stall, "stall")?,
            duration: required(message.duration, "duration")?,
            relief: message.relief.map(Wire::from_wire).transpose()?,
            actual_larger: share(message.actual_larger)?,
            in_vain: message.in_vain,
        })
    }
}
