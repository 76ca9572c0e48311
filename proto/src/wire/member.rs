//! Nodes, and what they say of themselves.

use super::{Wire, all, pb};
use crate::error::Error;
use crate::id::NodeId;
use crate::member::{Heartbeat, Member, Members, Registration};

impl Wire for Members {
    type Message = pb::Members;

    fn to_wire(&self) -> pb::Members {
        let member = |(node, member): (&NodeId, &Member)| pb::Member {
            node: node.0,
            address: member.address.clone(),
            live: member.live,
            replicas: member.replicas,
            missing: member.missing,
        };
        pb::Members { members: self.iter().map(member).collect() }
    }

    fn from_wire(message: pb::Members) -> Result<Self, Error> {
        let mut members = Self::new();
        for pb::Member { node, address, live, replicas, missing } in message.members {
            let member = Member { address, live, replicas, missing };
            if members.insert(NodeId(node), member).is_some() {
                return Err(Error::Corrupted(format!("node {node} is listed twice")));
            }
        }
        Ok(members)
    }
}

impl Wire for Registration {
    type Message = pb::Registration;

    fn to_wire(&self) -> pb::Registration {
        pb::Registration {
            identity: self.identity,
            node: self.node.map(|node| node.0),
            address: self.address.clone(),
        }
    }

    fn from_wire(message: pb::Registration) -> Result<Self, Error> {
        Ok(Self {
            identity: message.identity,
            node: message.node.map(NodeId),
            address: message.address,
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
        }
    }

    fn from_wire(message: pb::Heartbeat) -> Result<Self, Error> {
        Ok(Self {
            node: NodeId(message.node),
            identity: message.identity,
            address: message.address,
            replicas: all(message.replicas)?,
        })
    }
}
