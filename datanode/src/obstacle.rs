//! Obstacles to a change of a partition's range, and to requests during such a change.
//!
//! Invariant: a frozen partition can be unfrozen regardless of damage, and requests wait for it for a limited time.

use std::time::Duration;

use partita_proto::error::Error;
use partita_proto::id::PartitionId;
use partita_proto::reshape::Reshape;

/// Maximum time that requests wait for a partition frozen for a merge; meta gives the merge up well before.
pub(crate) const FROZEN_MAX: Duration = Duration::from_secs(45);

/// Reason why an order cannot be carried out, given the damage of each partition: files that cannot be copied would
/// stop the group where the order is applied. Unfreezing a partition, or only raising its epoch, needs no file.
pub(crate) fn obstacle(
    order: &Reshape,
    damage: impl Fn(PartitionId) -> Option<String>,
) -> Option<String> {
    match order {
        Reshape::Freeze(freeze) if !freeze.on => None,
        Reshape::Freeze(freeze) => damage(freeze.partition),
        Reshape::Split(split) => damage(split.partition),
        Reshape::Absorb(absorb) => damage(absorb.partition).or_else(|| damage(absorb.right)),
    }
}

/// Error for a request to a partition that has been frozen for `time`.
pub(crate) fn frozen(partition: PartitionId, time: Duration) -> Error {
    if time < FROZEN_MAX {
        return Error::Unavailable(format!(
            "partition {partition} is being merged with its neighbour"
        ));
    }
    Error::Storage(format!(
        "partition {partition} has been frozen for {} s, because its left neighbour cannot absorb it; \
         \"partita health\" shows why",
        time.as_secs()
    ))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use partita_proto::id::Epoch;
    use partita_proto::range::Bound;
    use partita_proto::reshape::{Absorb, Freeze, Split};

    use super::*;

    const LEFT: PartitionId = PartitionId(7);
    const RIGHT: PartitionId = PartitionId(8);

    fn orders(partition: PartitionId) -> [Reshape; 2] {
        let epoch = Epoch(3);
        let (at, child, replicas) = (Bound::default(), PartitionId(9), BTreeMap::new());
        [
            Reshape::Freeze(Freeze { partition, epoch, on: true }),
            Reshape::Split(Split { partition, epoch, at, child, replicas, leader: None }),
        ]
    }

    #[test]
    fn a_damaged_partition_takes_no_part_in_a_change_and_is_given_free_all_the_same() {
        let absorb = Absorb {
            partition: LEFT,
            epoch: Epoch(3),
            right: RIGHT,
            frozen: 5,
            end: Bound::default(),
        };
        for bad in [LEFT, RIGHT] {
            let damage = |id| (id == bad).then(|| format!("{id} is damaged"));
            for partition in [LEFT, RIGHT] {
                for order in orders(partition) {
                    assert_eq!(obstacle(&order, damage), damage(partition), "{order:?}");
                }
                let free = Reshape::Freeze(Freeze { partition, epoch: Epoch(3), on: false });
                assert_eq!(obstacle(&free, damage), None);
            }
            assert_eq!(obstacle(&Reshape::Absorb(absorb.clone()), damage), damage(bad));
        }
        assert_eq!(obstacle(&Reshape::Absorb(absorb), |_| None), None);
    }

    #[test]
    fn a_merge_that_does_not_end_is_an_error_and_not_a_wait() {
        assert!(frozen(RIGHT, FROZEN_MAX - Duration::from_millis(1)).is_retryable());
        let error = frozen(RIGHT, FROZEN_MAX);
        assert_eq!((error.is_retryable(), error.sqlstate()), (false, "58030"));
        assert!(error.to_string().contains("partition 8"), "{error}");
    }
}
