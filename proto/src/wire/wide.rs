//! Families of wide tables, and their rules of garbage collection.
//!
//! A rule is a list in which each operation follows its operands, so that no depth of nesting troubles a decoder.

use std::time::Duration;

use super::{Wire, all, missing, pb};
use crate::error::Error;
use crate::id::SchemaVersion;
use crate::wide::{Aggregate, DroppedFamily, Family, FamilyChange, GC_DEPTH_MAX, GcRule, Wide};

impl Wire for Wide {
    type Message = pb::Wide;

    fn to_wire(&self) -> pb::Wide {
        pb::Wide {
            families: self.families.iter().map(Wire::to_wire).collect(),
            row_bytes_warn: self.row_bytes_warn,
            row_bytes_max: self.row_bytes_max,
            dropped: self.dropped.iter().map(Wire::to_wire).collect(),
        }
    }

    fn from_wire(message: pb::Wide) -> Result<Self, Error> {
        Ok(Self {
            families: all(message.families)?,
            dropped: all(message.dropped)?,
            row_bytes_warn: message.row_bytes_warn,
            row_bytes_max: message.row_bytes_max,
        })
    }
}

impl Wire for Family {
    type Message = pb::Family;

    fn to_wire(&self) -> pb::Family {
        let mut nodes = Vec::new();
        if let Some(rule) = &self.gc {
            write_rule(rule, &mut nodes);
        }
        let aggregate = match self.aggregate {
            None => pb::Aggregate::Unspecified,
            Some(Aggregate::Sum) => pb::Aggregate::Sum,
            Some(Aggregate::Min) => pb::Aggregate::Min,
            Some(Aggregate::Max) => pb::Aggregate::Max,
        };
        pb::Family { name: self.name.clone(), gc: nodes, aggregate: aggregate.into() }
    }

    fn from_wire(message: pb::Family) -> Result<Self, Error> {
        let aggregate = match pb::Aggregate::try_from(message.aggregate) {
            Ok(pb::Aggregate::Unspecified) => None,
            Ok(pb::Aggregate::Sum) => Some(Aggregate::Sum),
            Ok(pb::Aggregate::Min) => Some(Aggregate::Min),
            Ok(pb::Aggregate::Max) => Some(Aggregate::Max),
            // Cells that were combined in another way would be spoilt.
            Err(_) => return Err(missing("aggregate of a family")),
        };
        Ok(Self { name: message.name, gc: read_rule(message.gc)?, aggregate })
    }
}

impl Wire for DroppedFamily {
    type Message = pb::DroppedFamily;

    fn to_wire(&self) -> pb::DroppedFamily {
        pb::DroppedFamily { name: self.name.clone(), version: self.version.0 }
    }

    fn from_wire(message: pb::DroppedFamily) -> Result<Self, Error> {
        Ok(Self { name: message.name, version: SchemaVersion(message.version) })
    }
}

impl Wire for FamilyChange {
    type Message = pb::FamilyChange;

    fn to_wire(&self) -> pb::FamilyChange {
        use pb::family_change::Kind;
        let kind = match self {
            Self::Create(family) => Kind::Create(family.to_wire()),
            Self::Update(family) => Kind::Update(family.to_wire()),
            Self::Drop(name) => Kind::Drop(name.clone()),
            Self::Cleared(family) => Kind::Cleared(family.to_wire()),
        };
        pb::FamilyChange { kind: Some(kind) }
    }

    fn from_wire(message: pb::FamilyChange) -> Result<Self, Error> {
        use pb::family_change::Kind;
        Ok(match message.kind.ok_or_else(|| missing("change of a family"))? {
            Kind::Create(family) => Self::Create(Wire::from_wire(family)?),
            Kind::Update(family) => Self::Update(Wire::from_wire(family)?),
            Kind::Drop(name) => Self::Drop(name),
            Kind::Cleared(family) => Self::Cleared(Wire::from_wire(family)?),
        })
    }
}

/// Appends a rule, its operands first.
fn write_rule(rule: &GcRule, nodes: &mut Vec<pb::GcNode>) {
    use pb::gc_node::Kind;
    // More operands than a u32 counts do not fit in memory.
    let count = |rules: &[GcRule]| u32::try_from(rules.len()).unwrap_or(u32::MAX);
    let kind = match rule {
        GcRule::MaxVersions(versions) => Kind::MaxVersions(*versions),
        GcRule::MaxAge(age) => Kind::MaxAge(age.to_wire()),
        GcRule::Union(rules) => {
            rules.iter().for_each(|rule| write_rule(rule, nodes));
            Kind::Union(count(rules))
        }
        GcRule::Intersection(rules) => {
            rules.iter().for_each(|rule| write_rule(rule, nodes));
            Kind::Intersection(count(rules))
        }
    };
    nodes.push(pb::GcNode { kind: Some(kind) });
}

/// The rule that is left when every operation has taken its operands; `None` without any.
fn read_rule(nodes: Vec<pb::GcNode>) -> Result<Option<GcRule>, Error> {
    use pb::gc_node::Kind;
    // Each rule with its depth.
    let mut stack: Vec<(GcRule, usize)> = Vec::new();
    for node in nodes {
        let rule = match node.kind.ok_or_else(|| missing("rule of garbage collection"))? {
            Kind::MaxVersions(versions) => (GcRule::MaxVersions(versions), 1),
            Kind::MaxAge(age) => (GcRule::MaxAge(Duration::from_wire(age)?), 1),
            Kind::Union(count) => {
                let (rules, depth) = operands(&mut stack, count)?;
                (GcRule::Union(rules), depth)
            }
            Kind::Intersection(count) => {
                let (rules, depth) = operands(&mut stack, count)?;
                (GcRule::Intersection(rules), depth)
            }
        };
        stack.push(rule);
    }
    let rule = stack.pop();
    if !stack.is_empty() {
        return Err(Error::Corrupted(
            "a family has several rules of garbage collection".to_owned(),
        ));
    }
    Ok(rule.map(|(rule, _)| rule))
}

/// Pops the operands of an operation; returns them and the depth that the operation has with them.
fn operands(stack: &mut Vec<(GcRule, usize)>, count: u32) -> Result<(Vec<GcRule>, usize), Error> {
    let start = usize::try_from(count).ok().and_then(|count| stack.len().checked_sub(count));
    let start = start.ok_or_else(|| {
        Error::Corrupted(format!(
            "a rule of garbage collection needs {count} operands, but has {}",
            stack.len()
        ))
    })?;
    let popped = stack.split_off(start);
    let depth = popped.iter().map(|(_, depth)| *depth).max().unwrap_or(0) + 1;
    if depth > GC_DEPTH_MAX {
        return Err(Error::Corrupted(format!(
            "a rule of garbage collection is deeper than {GC_DEPTH_MAX}"
        )));
    }
    Ok((popped.into_iter().map(|(rule, _)| rule).collect(), depth))
}
