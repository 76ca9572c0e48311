//! Placements, rules, bounds, ranges and specifications of replicas.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Wire, all, missing, narrow, pb, required};
use crate::error::Error;
use crate::id::{ColumnId, Epoch, NodeId, PartitionId, ReplicaId, TableId};
use crate::placement::Placement;
use crate::range::{Bound, TypedRange};
use crate::rule::{Comparison, Rule};
use crate::service::PartitionSpec;

/// Maximum depth of a rule. SQL's parser stops at 50; the bound is here because rules are walked and dropped by
/// recursion, so that the bytes of a chain of a million ANDs would overflow the stack.
const RULE_DEPTH_MAX: usize = 256;

impl Wire for Comparison {
    type Message = pb::Compare;

    /// Only the operator is set.
    fn to_wire(&self) -> pb::Compare {
        let comparison = match self {
            Self::Equal => pb::Comparison::Equal,
            Self::NotEqual => pb::Comparison::NotEqual,
            Self::Less => pb::Comparison::Less,
            Self::LessOrEqual => pb::Comparison::LessOrEqual,
            Self::Greater => pb::Comparison::Greater,
            Self::GreaterOrEqual => pb::Comparison::GreaterOrEqual,
        };
        pb::Compare { comparison: comparison.into(), ..pb::Compare::default() }
    }

    fn from_wire(message: pb::Compare) -> Result<Self, Error> {
        Ok(match pb::Comparison::try_from(message.comparison) {
            Ok(pb::Comparison::Equal) => Self::Equal,
            Ok(pb::Comparison::NotEqual) => Self::NotEqual,
            Ok(pb::Comparison::Less) => Self::Less,
            Ok(pb::Comparison::LessOrEqual) => Self::LessOrEqual,
            Ok(pb::Comparison::Greater) => Self::Greater,
            Ok(pb::Comparison::GreaterOrEqual) => Self::GreaterOrEqual,
            Ok(pb::Comparison::Unspecified) | Err(_) => return Err(missing("comparison")),
        })
    }
}

impl Wire for Rule {
    type Message = pb::Rule;

    fn to_wire(&self) -> pb::Rule {
        let mut nodes = Vec::new();
        write_rule(self, &mut nodes);
        pb::Rule { nodes }
    }

    fn from_wire(message: pb::Rule) -> Result<Self, Error> {
        use pb::rule_node::Kind;
        // Operands so far, each with its depth.
        let mut stack: Vec<(Self, usize)> = Vec::new();
        for node in message.nodes {
            let element = match node.kind.ok_or_else(|| missing("rule node"))? {
                Kind::Compare(compare) => {
                    let column = ColumnId(compare.column);
                    let value = required(compare.value.clone(), "literal")?;
                    let comparison = Comparison::from_wire(compare)?;
                    (Self::Compare { column, comparison, value }, 1)
                }
                Kind::And(count) => {
                    let (operands, depth) = operands(&mut stack, count)?;
                    (Self::And(operands), depth)
                }
                Kind::Or(count) => {
                    let (operands, depth) = operands(&mut stack, count)?;
                    (Self::Or(operands), depth)
                }
            };
            stack.push(element);
        }
        match (stack.pop(), stack.is_empty()) {
            (Some((rule, _)), true) => Ok(rule),
            _ => Err(Error::Corrupted("a rule is not one expression".to_owned())),
        }
    }
}

fn write_rule(rule: &Rule, nodes: &mut Vec<pb::RuleNode>) {
    use pb::rule_node::Kind;
    // More operands than a u32 counts do not fit in memory.
    let count = |rules: &[Rule]| u32::try_from(rules.len()).unwrap_or(u32::MAX);
    let kind = match rule {
        Rule::Compare { column, comparison, value } => Kind::Compare(pb::Compare {
            column: column.0,
            value: Some(value.to_wire()),
            ..comparison.to_wire()
        }),
        Rule::And(rules) => {
            rules.iter().for_each(|rule| write_rule(rule, nodes));
            Kind::And(count(rules))
        }
        Rule::Or(rules) => {
            rules.iter().for_each(|rule| write_rule(rule, nodes));
            Kind::Or(count(rules))
        }
    };
    nodes.push(pb::RuleNode { kind: Some(kind) });
}

/// Pops the operands of an operator; returns them and the depth that the operator has with them.
fn operands(stack: &mut Vec<(Rule, usize)>, count: u32) -> Result<(Vec<Rule>, usize), Error> {
    let start = usize::try_from(count).ok().and_then(|count| stack.len().checked_sub(count));
    let start = start.ok_or_else(|| {
        Error::Corrupted(format!("a rule needs {count} operands, but has {}", stack.len()))
    })?;
    let popped = stack.split_off(start);
    let depth = popped.iter().map(|(_, depth)| *depth).max().unwrap_or(0) + 1;
    if depth > RULE_DEPTH_MAX {
        return Err(Error::Corrupted(format!("a rule is deeper than {RULE_DEPTH_MAX}")));
    }
    Ok((popped.into_iter().map(|(rule, _)| rule).collect(), depth))
}

impl Wire for Placement {
    type Message = pb::Placement;

    fn to_wire(&self) -> pb::Placement {
        use pb::placement::Kind;
        let ids = |columns: &[ColumnId]| columns.iter().map(|id| id.0).collect();
        let kind = match self {
            Self::Range => Kind::Range(pb::RangePlacement {}),
            Self::Hash { columns } => Kind::Hash(pb::HashPlacement { columns: ids(columns) }),
            Self::Rules { columns, rules } => Kind::Rules(pb::RulesPlacement {
                columns: ids(columns),
                rules: rules.iter().map(Wire::to_wire).collect(),
            }),
        };
        pb::Placement { kind: Some(kind) }
    }

    fn from_wire(message: pb::Placement) -> Result<Self, Error> {
        use pb::placement::Kind;
        let ids = |columns: Vec<u32>| columns.into_iter().map(ColumnId).collect();
        Ok(match message.kind.ok_or_else(|| missing("placement"))? {
            Kind::Range(_) => Self::Range,
            Kind::Hash(hash) => Self::Hash { columns: ids(hash.columns) },
            Kind::Rules(rules) => {
                Self::Rules { columns: ids(rules.columns), rules: all(rules.rules)? }
            }
        })
    }
}

impl Wire for Bound {
    type Message = pb::Bound;

    fn to_wire(&self) -> pb::Bound {
        pb::Bound {
            placement: self.placement.map(u32::from),
            key: self.key.iter().map(Wire::to_wire).collect(),
        }
    }

    fn from_wire(message: pb::Bound) -> Result<Self, Error> {
        let placement = message.placement.map(|number| narrow(number, "placement")).transpose()?;
        Ok(Self { placement, key: all(message.key)? })
    }
}

impl Wire for TypedRange {
    type Message = pb::TypedRange;

    fn to_wire(&self) -> pb::TypedRange {
        pb::TypedRange { start: Some(self.start.to_wire()), end: Some(self.end.to_wire()) }
    }

    fn from_wire(message: pb::TypedRange) -> Result<Self, Error> {
        Ok(Self { start: required(message.start, "start")?, end: required(message.end, "end")? })
    }
}

/// Replicas and their nodes.
pub(super) fn replicas_to_wire(replicas: &BTreeMap<ReplicaId, NodeId>) -> Vec<pb::Replica> {
    let replica =
        |(replica, node): (&ReplicaId, &NodeId)| pb::Replica { replica: replica.0, node: node.0 };
    replicas.iter().map(replica).collect()
}

/// The inverse of [`replicas_to_wire`].
pub(super) fn replicas_from_wire(
    messages: Vec<pb::Replica>,
) -> Result<BTreeMap<ReplicaId, NodeId>, Error> {
    let mut replicas = BTreeMap::new();
    for message in messages {
        if replicas.insert(ReplicaId(message.replica), NodeId(message.node)).is_some() {
            return Err(Error::Corrupted(format!("replica {} is listed twice", message.replica)));
        }
    }
    Ok(replicas)
}

/// Maximum of partition ids, epochs and replica ids: they grow by one at a time, and must have a successor.
const NUMBER_MAX: u64 = 1 << 62;

impl Wire for PartitionSpec {
    type Message = pb::PartitionSpec;

    fn to_wire(&self) -> pb::PartitionSpec {
        pb::PartitionSpec {
            partition: self.partition.0,
            table: self.table.0,
            epoch: self.epoch.0,
            replica: self.replica.0,
            members: replicas_to_wire(&self.members),
            range: Some(self.range.to_wire()),
            placement: Some(self.placement.to_wire()),
            schema: Some(self.schema.to_wire()),
            join: self.join,
        }
    }

    fn from_wire(message: pb::PartitionSpec) -> Result<Self, Error> {
        let numbers = [message.partition, message.epoch, message.replica];
        if let Some(number) = numbers.into_iter().find(|number| *number > NUMBER_MAX) {
            return Err(Error::Corrupted(format!(
                "a partition's number, epoch or replica is {number}"
            )));
        }
        Ok(Self {
            partition: PartitionId(message.partition),
            table: TableId(message.table),
            epoch: Epoch(message.epoch),
            replica: ReplicaId(message.replica),
            members: replicas_from_wire(message.members)?,
            range: required(message.range, "range")?,
            placement: required(message.placement, "placement")?,
            schema: Arc::new(required(message.schema, "schema")?),
            join: message.join,
        })
    }
}
