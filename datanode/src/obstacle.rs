//! What is in the way of a change of what a partition owns, and of a request while such a change is under way.
//!
//! Invariant: whatever is damaged, what was frozen can be given free, and nobody waits for it for ever.

use std::time::Duration;

use partita_proto::error::Error;
use partita_proto::id::PartitionId;
use partita_proto::reshape::Reshape;

/// How long a partition that is frozen for a merge is waited for; meta gives the merge up well before.
pub(crate) const FROZEN_MAX: Duration = Duration::from_secs(45);

/// Why an order cannot be carried out, given what is damaged of each partition: files that cannot be copied would stop
/// the group where the order is applied. To give a partition free, or only to raise its epoch, takes no file.
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

/// What a request is answered to a partition that has been frozen for so long.
pub(crate) fn frozen(partition: PartitionId, time: Duration) -> Error {
    if time < FROZEN_MAX {
        return Error::Unavailable(format!(
            "partition {partition} is being merged with its neighbour"
        ));
    }
    Error::Storage(format!(
        "partition {partition} has been frozen for {} s, because its left neighbour was to take it over and cannot; \
         \"partita health\" shows what the neighbour lacks",
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
            Reshape::Split(Split { partition, epoch, at, child, replicas }),
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
