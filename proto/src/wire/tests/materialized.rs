//! Captures, shipped rows and copies, encoded and decoded.

use super::*;
use crate::materialized::{
    Capture, CaptureOrder, Change, Changes, ChangesRequest, CopyChange, CopyOf, CopyState,
    Position, Rekeying, Ship, Steering,
};

fn position() -> impl Strategy<Value = Position> {
    any::<(u64, u64)>().prop_map(|(index, part)| Position { index, part })
}

pub(super) fn ship() -> impl Strategy<Value = Ship> {
    (any::<u64>(), position(), position()).prop_map(|(source, from, to)| Ship {
        source: PartitionId(source),
        from,
        to,
    })
}

pub(super) fn capture_order() -> impl Strategy<Value = CaptureOrder> {
    let capture = prop_oneof![
        Just(Capture::Begin),
        Just(Capture::Sync),
        any::<u64>().prop_map(Capture::Shipped),
        Just(Capture::Close),
        Just(Capture::End),
        Just(Capture::Detach),
        Just(Capture::Reopen),
    ];
    (any::<u32>(), capture)
        .prop_map(|(copy, capture)| CaptureOrder { copy: TableId(copy), capture })
}

fn copy_of() -> impl Strategy<Value = CopyOf> {
    let state = prop_oneof![
        Just(CopyState::Filling),
        Just(CopyState::InStep),
        Just(CopyState::Lost),
        Just(CopyState::Switching),
        Just(CopyState::Reopening),
        Just(CopyState::Retired),
    ];
    let rekeying = any::<(bool, u64, u64)>().prop_map(|(is_paused, rows_per_second, rows)| {
        Rekeying { is_paused, rows_per_second, rows }
    });
    let rest = (option::of(name()), option::of(rekeying));
    (any::<(u32, u64, u64, u32)>(), state, rest).prop_map(
        |((source, filler, beat, fills), state, (reason, rekeying))| CopyOf {
            source: TableId(source),
            state,
            filler,
            beat,
            reason,
            fills,
            rekeying,
        },
    )
}

pub(super) fn copy_change() -> impl Strategy<Value = CopyChange> {
    let copy = || any::<u32>().prop_map(TableId);
    let partitions = || vec(any::<u64>().prop_map(PartitionId), 0..3);
    let steering = prop_oneof![
        Just(Steering::Pause),
        Just(Steering::Resume),
        any::<u64>().prop_map(Steering::Throttle),
        Just(Steering::Cancel),
    ];
    prop_oneof![
        (copy(), any::<u64>()).prop_map(|(copy, filler)| CopyChange::Take { copy, filler }),
        (copy(), any::<(u64, u64, u64)>()).prop_map(|(copy, (filler, beat, rows))| {
            CopyChange::Beat { copy, filler, beat, rows }
        }),
        (copy(), any::<u64>(), partitions()).prop_map(|(copy, filler, partitions)| {
            CopyChange::Finish { copy, filler, partitions }
        }),
        (copy(), name()).prop_map(|(copy, reason)| CopyChange::Lose { copy, reason }),
        (copy(), option::of(any::<u64>()))
            .prop_map(|(copy, beat)| CopyChange::Replace { copy, beat }),
        (copy(), steering).prop_map(|(copy, steering)| CopyChange::Steer { copy, steering }),
        copy().prop_map(|copy| CopyChange::Switch { copy }),
        (copy(), partitions())
            .prop_map(|(copy, partitions)| CopyChange::Exchange { copy, partitions }),
        (copy(), partitions())
            .prop_map(|(copy, partitions)| CopyChange::Reopened { copy, partitions }),
        copy().prop_map(|copy| CopyChange::Discard { copy }),
    ]
}

fn changes_request() -> impl Strategy<Value = ChangesRequest> {
    any::<(u64, u64, u32, u64, u32)>().prop_map(|(partition, epoch, copy, after, bytes_max)| {
        ChangesRequest {
            partition: PartitionId(partition),
            epoch: Epoch(epoch),
            copy: TableId(copy),
            after,
            bytes_max: bytes_max as usize,
        }
    })
}

fn changes() -> impl Strategy<Value = Changes> {
    let kind = prop_oneof![Just(WriteKind::Put), Just(WriteKind::Delete)];
    let change = (any::<u64>(), kind, arbitrary::table_and_rows()).prop_map(
        |(index, kind, (schema, rows))| Change {
            index,
            kind,
            rows: arbitrary::batch(&schema, &rows),
        },
    );
    let after = option::of(any::<(u64, u64)>());
    (any::<(u64, u64, u64, bool)>(), after, vec(change, 0..4)).prop_map(
        |((to, last, shipped, sync), after, entries)| Changes {
            to,
            last,
            shipped,
            sync,
            after: after.map(|(partition, index)| (PartitionId(partition), index)),
            entries,
        },
    )
}

round_trips! {
    ships_survive: ship();
    orders_of_captures_survive: capture_order();
    copies_survive: copy_of();
    changes_of_copies_survive: copy_change();
    requests_for_changes_survive: changes_request();
}

proptest! {
    #[test]
    fn changes_survive_with_their_rows(
        changes in changes(),
        at in any::<prop::sample::Index>(),
        flip in 1..=255_u8,
    ) {
        let message = changes.to_wire().unwrap();
        let again = Changes::from_wire(message.clone()).unwrap();
        prop_assert_eq!(again, changes);
        let mut bytes = message.encode_to_vec();
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            if let Ok(message) = pb::ChangesReply::decode(bytes.as_slice()) {
                drop(Changes::from_wire(message));
            }
        }
    }
}

#[test]
fn a_state_or_a_change_of_a_later_version_is_refused() {
    assert!(CopyState::from_wire(0).is_err() && CopyState::from_wire(7).is_err());
    let without = pb::Capture { copy: 9, kind: None };
    assert!(matches!(CaptureOrder::from_wire(without), Err(Error::Corrupted(_))));
    let without = pb::CopyChange { kind: None };
    assert!(matches!(CopyChange::from_wire(without), Err(Error::Corrupted(_))));
    let steer = pb::copy_change::Steer { copy: 9, steering: None };
    let without = pb::CopyChange { kind: Some(pb::copy_change::Kind::Steer(steer)) };
    assert!(matches!(CopyChange::from_wire(without), Err(Error::Corrupted(_))));
}

#[test]
fn a_change_of_no_batch_or_of_two_is_refused() {
    let schema = arbitrary::table(&[ColumnType::Int64]);
    let batch = arbitrary::batch(&schema, &[vec![Value::Int(1)]]);
    let refused = |rows: Bytes| {
        let entry = pb::CapturedChange { index: 1, kind: WriteKind::Put.to_wire(), rows };
        let message = pb::ChangesReply { entries: vec![entry], ..pb::ChangesReply::default() };
        Changes::from_wire(message).unwrap_err().to_string()
    };
    let two = refused(ipc::encode(&[batch.clone(), batch]).unwrap());
    assert!(two.contains("2 batches"), "{two}");
    assert!(refused(Bytes::new()).contains("corrupted data"));
}
