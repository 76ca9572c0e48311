//! Splits and merges that were made, there and back.

use super::*;
use crate::history::{Cause, PerMille, Reason, ReshapeEvent, ReshapeKind, ReshapeOutcome};

fn share() -> impl Strategy<Value = Option<PerMille>> {
    option::of((0..=1000_u16).prop_map(PerMille::new))
}

fn reason() -> impl Strategy<Value = Reason> {
    let cause = proptest::sample::select(Cause::ALL.to_vec());
    (cause, share(), name(), option::of(any::<i64>())).prop_map(
        |(cause, predicted_larger, note, at_ms)| Reason { cause, predicted_larger, note, at_ms },
    )
}

fn event() -> impl Strategy<Value = ReshapeEvent> {
    let kind = prop_oneof![Just(ReshapeKind::Split), Just(ReshapeKind::Merge)];
    let outcome = prop_oneof![
        Just(ReshapeOutcome::UnderWay),
        Just(ReshapeOutcome::Done),
        name().prop_map(ReshapeOutcome::GivenUp),
    ];
    let numbers = (any::<[u64; 3]>(), any::<i64>(), any::<u32>());
    let times = (duration(), duration(), option::of(duration()));
    let after = (share(), option::of(any::<bool>()));
    (numbers, kind, bound(), reason(), outcome, times, after).prop_map(
        |(([id, partition, other], at_ms, table), kind, key, reason, outcome, times, after)| {
            ReshapeEvent {
                id,
                at_ms,
                table: TableId(table),
                kind,
                partition: PartitionId(partition),
                other: PartitionId(other),
                key,
                reason,
                outcome,
                stall: times.0,
                duration: times.1,
                relief: times.2,
                actual_larger: after.0,
                in_vain: after.1,
            }
        },
    )
}

round_trips! {
    reasons_survive: reason();
    events_survive: event();
}

#[test]
fn a_share_above_the_whole_is_refused() {
    let message = Reason { predicted_larger: Some(PerMille::new(1000)), ..Reason::by_hand() };
    let mut message = message.to_wire();
    assert!(Reason::from_wire(message.clone()).is_ok());
    message.predicted_larger = Some(1001);
    assert!(matches!(Reason::from_wire(message), Err(Error::Corrupted(_))));
}
