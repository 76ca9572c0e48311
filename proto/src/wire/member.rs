//! Nodes and their reports.

use super::{Wire, all, missing, pb};
use crate::error::Error;
use crate::generation::Claim;
use crate::id::{NodeId, PartitionId};
use crate::label::Labels;
use crate::member::{Heartbeat, Member, Members, MetaStanding, Registration};
use crate::service::AdminOrder;

impl Wire for Labels {
    type Message = pb::Labels;

    fn to_wire(&self) -> pb::Labels {
        let label = |(name, value): (&str, &str)| pb::Label {
            name: name.to_owned(),
            value: value.to_owned(),
        };
        pb::Labels { labels: self.iter().map(label).collect() }
    }

    fn from_wire(message: pb::Labels) -> Result<Self, Error> {
        Self::new(message.labels.into_iter().map(|label| (label.name, label.value)))
    }
}

impl Labels {
    /// The optional message field of the labels; absent if there are none, as before they existed.
    pub fn to_field(&self) -> Option<pb::Labels> {
        (!self.is_empty()).then(|| self.to_wire())
    }

    /// The labels of an optional field; none if it is absent.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] as for [`Labels::new`].
    pub fn from_field(field: Option<pb::Labels>) -> Result<Self, Error> {
        Ok(field.map(Self::from_wire).transpose()?.unwrap_or_default())
    }
}

impl Wire for Members {
    type Message = pb::Members;

    fn to_wire(&self) -> pb::Members {
        let member = |(node, member): (&NodeId, &Member)| pb::Member {
            node: node.0,
            address: member.address.clone(),
            live: member.live,
            draining: member.draining,
            replicas: member.replicas,
            leaders: member.leaders,
            bytes: member.bytes,
            missing: member.missing,
            labels: member.labels.to_field(),
        };
        pb::Members { members: self.iter().map(member).collect() }
    }

    fn from_wire(message: pb::Members) -> Result<Self, Error> {
        let mut members = Self::new();
        for message in message.members {
            let node = NodeId(message.node);
            let member = Member {
                address: message.address,
                live: message.live,
                draining: message.draining,
                replicas: message.replicas,
                leaders: message.leaders,
                bytes: message.bytes,
                missing: message.missing,
                labels: Labels::from_field(message.labels)?,
            };
            if members.insert(node, member).is_some() {
                return Err(Error::Corrupted(format!("node {node} is listed twice")));
            }
        }
        Ok(members)
    }
}

impl Wire for MetaStanding {
    type Message = pb::MetaStanding;

    fn to_wire(&self) -> pb::MetaStanding {
        pb::MetaStanding {
            node: self.node.0,
            leads: self.leads,
            leader: self.leader.map(|leader| leader.0),
            term: self.term,
            applied: self.applied,
        }
    }

    fn from_wire(message: pb::MetaStanding) -> Result<Self, Error> {
        Ok(Self {
            node: NodeId(message.node),
            leads: message.leads,
            leader: message.leader.map(NodeId),
            term: message.term,
            applied: message.applied,
        })
    }
}

impl Wire for AdminOrder {
    type Message = pb::AdminOrder;

    fn to_wire(&self) -> pb::AdminOrder {
        use pb::admin_order::Kind;
        let kind = match self {
            Self::Drain { node, on: draining } => {
                Kind::Drain(pb::Drain { node: node.0, on: *draining })
            }
            Self::MoveReplica { partition, from: source, to: destination } => {
                Kind::MoveReplica(pb::MoveReplica {
                    partition: partition.0,
                    from: source.0,
                    to: destination.0,
                })
            }
            Self::TransferLeader { partition, to: destination } => {
                Kind::TransferLeader(pb::TransferLeader {
                    partition: partition.0,
                    to: destination.0,
                })
            }
            Self::SplitPartition { partition, at: cut } => {
                Kind::SplitPartition(pb::SplitPartition {
                    partition: partition.0,
                    at: cut.as_ref().map(Wire::to_wire),
                })
            }
            Self::MergePartitions { left: owner, right } => {
                Kind::MergePartitions(pb::MergePartitions { left: owner.0, right: right.0 })
            }
            Self::RemoveNode { node } => Kind::RemoveNode(pb::RemoveNode { node: node.0 }),
        };
        pb::AdminOrder { kind: Some(kind) }
    }

    fn from_wire(message: pb::AdminOrder) -> Result<Self, Error> {
        use pb::admin_order::Kind;
        Ok(match message.kind.ok_or_else(|| missing("kind of order"))? {
            Kind::Drain(drain) => Self::Drain { node: NodeId(drain.node), on: drain.on },
            Kind::MoveReplica(order) => Self::MoveReplica {
                partition: PartitionId(order.partition),
                from: NodeId(order.from),
                to: NodeId(order.to),
            },
            Kind::TransferLeader(order) => Self::TransferLeader {
                partition: PartitionId(order.partition),
                to: NodeId(order.to),
            },
            Kind::SplitPartition(order) => Self::SplitPartition {
                partition: PartitionId(order.partition),
                at: order.at.map(Wire::from_wire).transpose()?,
            },
            Kind::MergePartitions(order) => Self::MergePartitions {
                left: PartitionId(order.left),
                right: PartitionId(order.right),
            },
            Kind::RemoveNode(order) => Self::RemoveNode { node: NodeId(order.node) },
        })
    }
}

impl Wire for Registration {
    type Message = pb::Registration;

    fn to_wire(&self) -> pb::Registration {
        pb::Registration {
            identity: self.identity,
            node: self.node.map(|node| node.0),
            address: self.address.clone(),
            labels: self.labels.to_field(),
        }
    }

    fn from_wire(message: pb::Registration) -> Result<Self, Error> {
        Ok(Self {
            identity: message.identity,
            node: message.node.map(NodeId),
            address: message.address,
            labels: Labels::from_field(message.labels)?,
        })
    }
}

impl Wire for Heartbeat {
    type Message = pb::Heartbeat;

    fn to_wire(&self) -> pb::Heartbeat {
        pb::Heartbeat {
            node: self.node.0,
            identity: self.identity,
            address: self.address.clone(),
            replicas: self.replicas.iter().map(Wire::to_wire).collect(),
            loads: self.loads.iter().map(Wire::to_wire).collect(),
            labels: self.labels.to_field(),
            cpu_ms: self.cpu_ms,
            claim: self.claim.to_field(),
            follower_reads: self.follower_reads.iter().map(Wire::to_wire).collect(),
            names_leader: self.names_leader,
        }
    }

    fn from_wire(message: pb::Heartbeat) -> Result<Self, Error> {
        Ok(Self {
            node: NodeId(message.node),
            identity: message.identity,
            address: message.address,
            replicas: all(message.replicas)?,
            loads: all(message.loads)?,
            labels: Labels::from_field(message.labels)?,
            cpu_ms: message.cpu_ms,
            claim: Claim::from_field(message.claim)?,
            follower_reads: all(message.follower_reads)?,
            names_leader: message.names_leader,
        })
    }
}
