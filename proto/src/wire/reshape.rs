//! Splits and merges.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Wire, missing, pb, required};
use crate::error::Error;
use crate::id::{Epoch, NodeId, PartitionId, ReplicaId};
use crate::reshape::{Absorb, Freeze, Reshape, Reshaped, Split};

impl Wire for Split {
    type Message = pb::Split;

    fn to_wire(&self) -> pb::Split {
        let replica = |(node, replica): (&NodeId, &ReplicaId)| pb::Replica {
            replica: replica.0,
            node: node.0,
        };
        pb::Split {
            partition: self.partition.0,
            epoch: self.epoch.0,
            at: Some(self.at.to_wire()),
            child: self.child.0,
            replicas: self.replicas.iter().map(replica).collect(),
            leader: self.leader.map(|node| node.0),
        }
    }

    fn from_wire(message: pb::Split) -> Result<Self, Error> {
        let mut replicas = BTreeMap::new();
        for replica in message.replicas {
            if replicas.insert(NodeId(replica.node), ReplicaId(replica.replica)).is_some() {
                return Err(Error::Corrupted(format!(
                    "node {} is listed twice in a split",
                    replica.node
                )));
            }
        }
        Ok(Self {
            partition: PartitionId(message.partition),
            epoch: Epoch(message.epoch),
            at: required(message.at, "the cut")?,
            child: PartitionId(message.child),
            replicas,
            leader: message.leader.map(NodeId),
        })
    }
}

impl Wire for Freeze {
    type Message = pb::Freeze;

    fn to_wire(&self) -> pb::Freeze {
        pb::Freeze { partition: self.partition.0, epoch: self.epoch.0, on: self.on }
    }

    fn from_wire(message: pb::Freeze) -> Result<Self, Error> {
        let (partition, epoch) = (PartitionId(message.partition), Epoch(message.epoch));
        Ok(Self { partition, epoch, on: message.on })
    }
}

impl Wire for Absorb {
    type Message = pb::Absorb;

    fn to_wire(&self) -> pb::Absorb {
        pb::Absorb {
            partition: self.partition.0,
            epoch: self.epoch.0,
            right: self.right.0,
            frozen: self.frozen,
            end: Some(self.end.to_wire()),
        }
    }

    fn from_wire(message: pb::Absorb) -> Result<Self, Error> {
        Ok(Self {
            partition: PartitionId(message.partition),
            epoch: Epoch(message.epoch),
            right: PartitionId(message.right),
            frozen: message.frozen,
            end: required(message.end, "the end")?,
        })
    }
}

impl Wire for Reshape {
    type Message = pb::ReshapeOrder;

    fn to_wire(&self) -> pb::ReshapeOrder {
        use pb::reshape_order::Kind;
        let kind = match self {
            Self::Split(split) => Kind::Split(split.to_wire()),
            Self::Freeze(freeze) => Kind::Freeze(freeze.to_wire()),
            Self::Absorb(absorb) => Kind::Absorb(absorb.to_wire()),
        };
        pb::ReshapeOrder { kind: Some(kind) }
    }

    fn from_wire(message: pb::ReshapeOrder) -> Result<Self, Error> {
        use pb::reshape_order::Kind;
        Ok(match message.kind.ok_or_else(|| missing("kind of order"))? {
            Kind::Split(split) => Self::Split(Wire::from_wire(split)?),
            Kind::Freeze(freeze) => Self::Freeze(Wire::from_wire(freeze)?),
            Kind::Absorb(absorb) => Self::Absorb(Wire::from_wire(absorb)?),
        })
    }
}

impl Wire for Reshaped {
    type Message = pb::Reshaped;

    fn to_wire(&self) -> pb::Reshaped {
        let stall_nanos = u64::try_from(self.stall.as_nanos()).unwrap_or(u64::MAX);
        pb::Reshaped { index: self.index, stall_nanos }
    }

    fn from_wire(message: pb::Reshaped) -> Result<Self, Error> {
        Ok(Self { index: message.index, stall: Duration::from_nanos(message.stall_nanos) })
    }
}
