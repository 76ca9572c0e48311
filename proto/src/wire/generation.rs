//! Generations of data directories.

use super::{Wire, pb, required};
use crate::error::Error;
use crate::generation::{Claim, Generation, Renewal, Renewed};
use crate::id::{NodeId, PartitionId};

impl Wire for Generation {
    type Message = pb::Generation;

    fn to_wire(&self) -> pb::Generation {
        pb::Generation { number: self.number, nonce: self.nonce }
    }

    fn from_wire(message: pb::Generation) -> Result<Self, Error> {
        Ok(Self { number: message.number, nonce: message.nonce })
    }
}

impl Wire for Claim {
    type Message = pb::Claim;

    fn to_wire(&self) -> pb::Claim {
        pb::Claim {
            acknowledged: self.acknowledged.as_ref().map(Wire::to_wire),
            pending: self.pending.as_ref().map(Wire::to_wire),
        }
    }

    fn from_wire(message: pb::Claim) -> Result<Self, Error> {
        Ok(Self {
            acknowledged: message.acknowledged.map(Wire::from_wire).transpose()?,
            pending: message.pending.map(Wire::from_wire).transpose()?,
        })
    }
}

impl Claim {
    /// The optional message field of the generations; absent if there are none, as before they existed.
    #[must_use]
    pub fn to_field(&self) -> Option<pb::Claim> {
        (*self != Self::default()).then(|| self.to_wire())
    }

    /// The generations of an optional field; none if it is absent.
    ///
    /// # Errors
    /// As for [`Wire::from_wire`].
    pub fn from_field(field: Option<pb::Claim>) -> Result<Self, Error> {
        Ok(field.map(Self::from_wire).transpose()?.unwrap_or_default())
    }
}

impl Wire for Renewal {
    type Message = pb::Renewal;

    fn to_wire(&self) -> pb::Renewal {
        pb::Renewal {
            node: self.node.0,
            identity: self.identity,
            claim: self.claim.to_field(),
            set_aside: self.set_aside,
            accepted: self.accepted.iter().map(|partition| partition.0).collect(),
        }
    }

    fn from_wire(message: pb::Renewal) -> Result<Self, Error> {
        Ok(Self {
            node: NodeId(message.node),
            identity: message.identity,
            claim: Claim::from_field(message.claim)?,
            set_aside: message.set_aside,
            accepted: message.accepted.into_iter().map(PartitionId).collect(),
        })
    }
}

impl Wire for Renewed {
    type Message = pb::Renewed;

    fn to_wire(&self) -> pb::Renewed {
        pb::Renewed {
            recorded: Some(self.recorded.to_wire()),
            alone: self.alone.iter().map(|partition| partition.0).collect(),
        }
    }

    fn from_wire(message: pb::Renewed) -> Result<Self, Error> {
        Ok(Self {
            recorded: required(message.recorded, "recorded generation")?,
            alone: message.alone.into_iter().map(PartitionId).collect(),
        })
    }
}
