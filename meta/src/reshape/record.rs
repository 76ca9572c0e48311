//! Byte form of a split or a merge in its partition's record.

use std::collections::BTreeMap;

use partita_proto::error::Error;
use partita_proto::id::{Epoch, NodeId, PartitionId};
use partita_proto::wire::{Wire, pb};
use prost::{Message, Oneof};

use super::state::{Merging, Reshaping, Splitting, Stage};
use crate::catalog::Step;
use crate::record::{replicas, replicas_form, required};

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum ReshapingForm {
    #[prost(message, tag = "7")]
    Split(SplittingForm),
    #[prost(message, tag = "8")]
    Merge(MergingForm),
    #[prost(message, tag = "9")]
    Joins(JoinsForm),
    #[prost(message, tag = "10")]
    Thawing(ThawingForm),
    #[prost(message, tag = "11")]
    Leaving(LeavingForm),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SplittingForm {
    #[prost(uint64, tag = "1")]
    step: u64,
    #[prost(message, optional, tag = "2")]
    at: Option<pb::Bound>,
    #[prost(uint64, tag = "3")]
    child: u64,
    #[prost(btree_map = "uint64, uint64", tag = "4")]
    replicas: BTreeMap<u64, u64>,
    #[prost(bool, tag = "5")]
    given_up: bool,
    #[prost(message, optional, tag = "6")]
    reason: Option<pb::Reason>,
    #[prost(uint64, optional, tag = "7")]
    leader: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct MergingForm {
    #[prost(uint64, tag = "1")]
    step: u64,
    #[prost(uint64, tag = "2")]
    right: u64,
    #[prost(oneof = "StageForm", tags = "3, 4, 5")]
    stage: Option<StageForm>,
    #[prost(bool, tag = "6")]
    given_up: bool,
    #[prost(message, optional, tag = "7")]
    reason: Option<pb::Reason>,
}

#[derive(Clone, Copy, PartialEq, Oneof)]
enum StageForm {
    /// Always true: the variant is the information.
    #[prost(bool, tag = "3")]
    Gathering(bool),
    /// Always true: the variant is the information.
    #[prost(bool, tag = "4")]
    Freezing(bool),
    /// Index at which the right neighbour froze.
    #[prost(uint64, tag = "5")]
    Frozen(u64),
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct JoinsForm {
    #[prost(uint64, tag = "1")]
    left: u64,
    #[prost(uint64, tag = "2")]
    step: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct ThawingForm {
    #[prost(uint64, tag = "1")]
    step: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct LeavingForm {
    #[prost(uint64, tag = "1")]
    by: u64,
    #[prost(uint64, tag = "2")]
    epoch: u64,
    #[prost(uint64, tag = "3")]
    step: u64,
}

impl ReshapingForm {
    pub(crate) fn new(reshaping: &Reshaping) -> Self {
        match reshaping {
            Reshaping::Split(split) => Self::Split(SplittingForm {
                step: split.step.0,
                at: Some(split.at.to_wire()),
                child: split.child.0,
                replicas: replicas_form(&split.replicas),
                given_up: split.given_up,
                reason: Some(split.reason.to_wire()),
                leader: split.leader.map(|node| node.0),
            }),
            Reshaping::Merge(merge) => Self::Merge(MergingForm {
                step: merge.step.0,
                right: merge.right.0,
                stage: Some(match merge.stage {
                    Stage::Gathering => StageForm::Gathering(true),
                    Stage::Freezing => StageForm::Freezing(true),
                    Stage::Frozen(index) => StageForm::Frozen(index),
                }),
                given_up: merge.given_up,
                reason: Some(merge.reason.to_wire()),
            }),
            // The parts of a merge that the right neighbour's record holds.
            Reshaping::Joins { left: owner, step } => {
                Self::Joins(JoinsForm { left: owner.0, step: step.0 })
            }
            Reshaping::Thawing { step } => Self::Thawing(ThawingForm { step: step.0 }),
            Reshaping::Leaving { by: owner, epoch, step } => {
                Self::Leaving(LeavingForm { by: owner.0, epoch: epoch.0, step: step.0 })
            }
        }
    }

    pub(crate) fn reshaping(self) -> Result<Reshaping, Error> {
        Ok(match self {
            Self::Split(form) => Reshaping::Split(Splitting {
                step: Step(form.step),
                at: required(form.at, "the cut")?,
                child: PartitionId(form.child),
                replicas: replicas(form.replicas),
                given_up: form.given_up,
                reason: required(form.reason, "the reason")?,
                leader: form.leader.map(NodeId),
            }),
            Self::Merge(form) => Reshaping::Merge(Merging {
                step: Step(form.step),
                right: PartitionId(form.right),
                stage: match form.stage {
                    Some(StageForm::Gathering(_)) => Stage::Gathering,
                    Some(StageForm::Freezing(_)) => Stage::Freezing,
                    Some(StageForm::Frozen(index)) => Stage::Frozen(index),
                    None => {
                        return Err(Error::Corrupted(
                            "its stage is not known to this version".to_owned(),
                        ));
                    }
                },
                given_up: form.given_up,
                reason: required(form.reason, "the reason")?,
            }),
            // The parts of a merge that the right neighbour's record holds.
            Self::Joins(form) => {
                Reshaping::Joins { left: PartitionId(form.left), step: Step(form.step) }
            }
            Self::Thawing(form) => Reshaping::Thawing { step: Step(form.step) },
            Self::Leaving(form) => Reshaping::Leaving {
                by: PartitionId(form.by),
                epoch: Epoch(form.epoch),
                step: Step(form.step),
            },
        })
    }
}
