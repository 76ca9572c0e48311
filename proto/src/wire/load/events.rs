//! Splits, moves, causes and history of load.
//!
//! Invariant: reasons, outcomes and classes are texts in messages, so that each version shows those of every other;
//! they are parsed in this module and its parent only, and an unknown one is no error.

use partita_load::{Cause, Class};

use super::super::{Wire, missing, pb, required};
use super::class_of;
use crate::error::Error;
use crate::history::ReshapeOutcome;
use crate::id::{NodeId, PartitionId, TableId};
use crate::load::{
    BalanceEvent, BalanceKind, ForecastAction, ForecastEvent, HotCause, HotKey, Instant,
    LoadHistory, ShownReason, SplitEvent, TableRotation,
};

impl Wire for SplitEvent {
    type Message = pb::SplitEvent;

    fn to_wire(&self) -> pb::SplitEvent {
        pb::SplitEvent {
            at: self.at.0,
            table: self.table.0,
            partition: self.partition.0,
            children: self.children.iter().map(|child| child.0).collect(),
            merge: self.merge,
            key: self.key.as_ref().map(Wire::to_wire),
            why: self.why.to_string(),
            predicted_share: self.predicted_share,
            actual_share: self.actual_share,
            in_vain: self.in_vain,
            stall: self.stall.as_ref().map(Wire::to_wire),
            took: self.took.as_ref().map(Wire::to_wire),
            outcome: self.outcome.as_ref().map_or_else(String::new, ToString::to_string),
            relief: self.relief.as_ref().map(Wire::to_wire),
        }
    }

    fn from_wire(message: pb::SplitEvent) -> Result<Self, Error> {
        Ok(Self {
            at: Instant(message.at),
            table: TableId(message.table),
            partition: PartitionId(message.partition),
            children: message.children.into_iter().map(PartitionId).collect(),
            merge: message.merge,
            key: message.key.map(Wire::from_wire).transpose()?,
            why: ShownReason::parse(&message.why),
            predicted_share: message.predicted_share,
            actual_share: message.actual_share,
            in_vain: message.in_vain,
            stall: message.stall.map(Wire::from_wire).transpose()?,
            took: message.took.map(Wire::from_wire).transpose()?,
            relief: message.relief.map(Wire::from_wire).transpose()?,
            outcome: ReshapeOutcome::parse(&message.outcome),
        })
    }
}

impl Wire for BalanceEvent {
    type Message = pb::BalanceEvent;

    fn to_wire(&self) -> pb::BalanceEvent {
        let kind = match self.kind {
            BalanceKind::Transfer => pb::BalanceKind::Transfer,
            BalanceKind::Move => pb::BalanceKind::Move,
        };
        pb::BalanceEvent {
            at: self.at.0,
            partition: self.partition.0,
            kind: kind.into(),
            from: self.from.0,
            to: self.to.0,
            why: self.why.clone(),
        }
    }

    fn from_wire(message: pb::BalanceEvent) -> Result<Self, Error> {
        let kind = match pb::BalanceKind::try_from(message.kind) {
            Ok(pb::BalanceKind::Transfer) => BalanceKind::Transfer,
            Ok(pb::BalanceKind::Move) => BalanceKind::Move,
            Ok(pb::BalanceKind::Unspecified) | Err(_) => return Err(missing("kind of balance")),
        };
        Ok(Self {
            at: Instant(message.at),
            partition: PartitionId(message.partition),
            kind,
            from: NodeId(message.from),
            to: NodeId(message.to),
            why: message.why,
        })
    }
}

impl Wire for HotKey {
    type Message = pb::HotKey;

    fn to_wire(&self) -> pb::HotKey {
        pb::HotKey {
            table: self.table.0,
            partition: self.partition.0,
            key: Some(self.key.to_wire()),
            share: self.share,
            per_second: self.per_second,
            read: self.read,
        }
    }

    fn from_wire(message: pb::HotKey) -> Result<Self, Error> {
        Ok(Self {
            table: TableId(message.table),
            partition: PartitionId(message.partition),
            key: required(message.key, "key")?,
            share: message.share,
            per_second: message.per_second,
            read: message.read,
        })
    }
}

impl Wire for HotCause {
    type Message = pb::HotCause;

    fn to_wire(&self) -> pb::HotCause {
        pb::HotCause {
            table: self.table.0,
            partition: self.partition.0,
            read: self.read,
            key: self.key.as_ref().map(Wire::to_wire),
            statement: self.cause.statement.clone(),
            kind: self.cause.kind.clone(),
            user: self.cause.user.clone(),
            application: self.cause.application.clone(),
            client: self.cause.client.clone(),
            share: self.share,
            samples: self.samples,
        }
    }

    fn from_wire(message: pb::HotCause) -> Result<Self, Error> {
        Ok(Self {
            table: TableId(message.table),
            partition: PartitionId(message.partition),
            read: message.read,
            key: message.key.map(Wire::from_wire).transpose()?,
            cause: Cause {
                statement: message.statement,
                kind: message.kind,
                user: message.user,
                application: message.application,
                client: message.client,
            },
            share: message.share,
            samples: message.samples,
        })
    }
}

impl Wire for ForecastEvent {
    type Message = pb::ForecastEvent;

    fn to_wire(&self) -> pb::ForecastEvent {
        let action = match self.action {
            ForecastAction::Cut => pb::ForecastAction::Cut,
            ForecastAction::NoPlace => pb::ForecastAction::NoPlace,
            ForecastAction::Off => pb::ForecastAction::Off,
        };
        pb::ForecastEvent {
            at: self.at.0,
            table: self.table.0,
            range: Some(self.range.to_wire()),
            from: self.from.0,
            until: self.until.0,
            expected: self.expected,
            confidence: self.confidence,
            days: self.days,
            action: action.into(),
            cuts: self.cuts,
            actual: self.actual,
            useful: self.useful,
        }
    }

    fn from_wire(message: pb::ForecastEvent) -> Result<Self, Error> {
        let action = match pb::ForecastAction::try_from(message.action) {
            Ok(pb::ForecastAction::Cut) => ForecastAction::Cut,
            Ok(pb::ForecastAction::NoPlace) => ForecastAction::NoPlace,
            Ok(pb::ForecastAction::Off) => ForecastAction::Off,
            Ok(pb::ForecastAction::Unspecified) | Err(_) => {
                return Err(missing("action of a forecast"));
            }
        };
        Ok(Self {
            at: Instant(message.at),
            table: TableId(message.table),
            range: required(message.range, "range")?,
            from: Instant(message.from),
            until: Instant(message.until),
            expected: message.expected,
            confidence: message.confidence,
            days: message.days,
            action,
            cuts: message.cuts,
            actual: message.actual,
            useful: message.useful,
        })
    }
}

impl Wire for TableRotation {
    type Message = pb::TableRotation;

    fn to_wire(&self) -> pb::TableRotation {
        pb::TableRotation {
            table: self.table.0,
            concentration: self.concentration,
            n_eff_second: self.n_eff_second,
            n_eff_mean: self.n_eff_mean,
            spell_count: self.spells,
            spell_s: self.spell_s,
        }
    }

    fn from_wire(message: pb::TableRotation) -> Result<Self, Error> {
        Ok(Self {
            table: TableId(message.table),
            concentration: message.concentration,
            n_eff_second: message.n_eff_second,
            n_eff_mean: message.n_eff_mean,
            spells: message.spell_count,
            spell_s: message.spell_s,
        })
    }
}

impl Wire for LoadHistory {
    type Message = pb::LoadHistory;

    fn to_wire(&self) -> pb::LoadHistory {
        pb::LoadHistory {
            at: self.at.0,
            span: Some(self.span.to_wire()),
            table: self.table.0,
            partition: self.partition.0,
            leader: self.leader.map(|node| node.0),
            busy: self.busy,
            busy_max: self.busy_max,
            rates: Some(self.rates.to_wire()),
            size_bytes: self.size_bytes,
            class: self.class.map_or("", Class::name).to_owned(),
        }
    }

    fn from_wire(message: pb::LoadHistory) -> Result<Self, Error> {
        Ok(Self {
            at: Instant(message.at),
            span: required(message.span, "span")?,
            table: TableId(message.table),
            partition: PartitionId(message.partition),
            leader: message.leader.map(NodeId),
            busy: message.busy,
            busy_max: message.busy_max,
            rates: required(message.rates, "rates")?,
            size_bytes: message.size_bytes,
            class: (!message.class.is_empty()).then(|| class_of(&message.class)),
        })
    }
}
