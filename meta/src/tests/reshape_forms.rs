//! The bytes of splits and merges, in meta's log and in its records.

use std::collections::BTreeMap;

use partita_proto::history::{Cause, PerMille, Reason};
use partita_proto::id::{Epoch, PartitionId, ReplicaId};
use partita_proto::range::TypedRange;

use super::model::hex;
use super::*;
use crate::catalog::{Edit, PartitionRecord};
use crate::record;
use crate::reshape::{Merging, Splitting};

/// As with the other entries and records: this fails if a form changes; then the old bytes belong into a test that
/// reads them.
#[test]
fn splits_and_merges_keep_their_form() {
    let reason = Reason {
        cause: Cause::Load,
        predicted_larger: Some(PerMille::new(480)),
        note: "hot".to_owned(),
        at_ms: None,
    };
    let (partition, step) = (PartitionId(7), Step(300));
    let at = cut(&[Value::Int(150)]);
    let split = Command::Split { partition, at, reason: reason.clone(), leader: None };
    let merge = Command::Merge { left: partition, right: PartitionId(8), reason: reason.clone() };
    let mut forms =
        vec![format!("split {}", hex(&split.encode())), format!("merge {}", hex(&merge.encode()))];
    let all = [
        Progress::GiveUp,
        Progress::Cut,
        Progress::NotCut { epoch: Epoch(300) },
        Progress::Freezing,
        Progress::Frozen { index: 300 },
        Progress::Absorbed,
        Progress::NotAbsorbed { epoch: Epoch(300) },
        Progress::Thawed { epoch: Epoch(300) },
        Progress::Left,
    ];
    forms.extend(all.map(|progress| {
        format!("advance {}", hex(&Command::Advance { partition, step, progress }.encode()))
    }));
    let replicas = BTreeMap::from([(ReplicaId(9), NodeId(1)), (ReplicaId(10), NodeId(2))]);
    let splitting = Splitting {
        step,
        at: cut(&[Value::Int(150)]),
        child: PartitionId(9),
        replicas: replicas.clone(),
        given_up: true,
        reason: reason.clone(),
        leader: None,
    };
    let merging = |stage| {
        let right = PartitionId(8);
        Reshaping::Merge(Merging { step, right, stage, given_up: false, reason: reason.clone() })
    };
    let reshapings = [
        Reshaping::Split(splitting),
        merging(Stage::Gathering),
        merging(Stage::Freezing),
        merging(Stage::Frozen(300)),
        Reshaping::Joins { left: partition, step },
        Reshaping::Thawing { step },
        Reshaping::Leaving { by: partition, epoch: Epoch(300), step },
    ];
    let records = reshapings.map(|reshaping| {
        Edit::Partition(Arc::new(PartitionRecord {
            id: partition,
            table: TableId(2),
            range: TypedRange::default(),
            epoch: Epoch(4),
            replicas: replicas.clone(),
            target: None,
            reshaping: Some(reshaping),
            first_leader: None,
            cut_by_hand_ms: None,
        }))
    });
    let changes = record::changes(&records);
    forms.extend(changes.iter().map(|change| {
        format!("record {} {}", hex(&change.key), hex(change.value.as_ref().unwrap()))
    }));
    let forms = forms.join("\n") + "\n";
    assert_eq!(forms, include_str!("reshape.golden"), "got:\n{forms}");
}
