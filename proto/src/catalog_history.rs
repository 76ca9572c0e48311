//! Identifies the catalog behind an order, and decides whether it continues the one that a node has followed.
//!
//! ```text
//!   meta:  version 1 ──── 40 ─────────── 97 ───── 120        an order bears the whole list and the version
//!                  leadership a     leadership b
//!
//!   node:  followed version 73 of leadership a    is in it: b began at 97, after 73
//!          followed version 99 of leadership a    is not: version 99 of a was lost, or never was in this catalog
//! ```
//!
//! A node keeps the highest position of the catalog from which it has accepted an order, and refuses orders of a
//! catalog that does not contain that position: one that was restored from an older copy, one that lost committed
//! entries, or one of another cluster. Versions alone are not enough: a restored catalog grows past the version that
//! the node has seen. So each leadership of meta's group first records a random number in the catalog.
//!
//! Invariants:
//! - within one leadership any version is accepted: one process made all decisions, and orders may overtake each other;
//! - a position never decreases.

use crate::error::Error;

/// Maximum number of leaderships that a catalog keeps and an order carries. A node that was away for more of them
/// accepts no order until its operator allows it.
pub const LEADERSHIPS_MAX: usize = 128;

/// One leadership of meta's group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leadership {
    /// Version of the catalog that recorded the leadership; every change under it has a higher one.
    pub first: u64,
    /// Term of meta's group.
    pub term: u64,
    /// A random number, never 0.
    pub nonce: u64,
}

/// History of the catalog on which an order is based.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CatalogHistory {
    /// Random number of the cluster, made when its first catalog began; never 0.
    pub cluster: u64,
    /// Version of the catalog when the order was sent.
    pub version: u64,
    /// The newest leaderships, the oldest first; the last one sends the order.
    pub leaderships: Vec<Leadership>,
}

/// Position of the newest catalog from which a node has accepted an order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CatalogPosition {
    /// Random number of the cluster.
    pub cluster: u64,
    /// Version of the catalog.
    pub version: u64,
    /// Term of meta's group.
    pub term: u64,
    /// Random number of the leadership.
    pub nonce: u64,
}

impl CatalogHistory {
    /// Refuses histories that no meta sends.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for numbers that are zero or out of order, or for too many leaderships.
    pub fn check(&self) -> Result<(), Error> {
        let refused =
            |why: &str| Err(Error::InvalidInput(format!("malformed catalog history: {why}")));
        if self.cluster == 0 {
            return refused("the cluster has no number");
        }
        let Some(last) = self.leaderships.last() else { return refused("no leadership") };
        if self.leaderships.len() > LEADERSHIPS_MAX {
            return refused("too many leaderships");
        }
        if self.leaderships.iter().any(|leadership| leadership.nonce == 0) {
            return refused("a leadership has no number");
        }
        let ascending =
            |pair: &[Leadership]| pair[0].first < pair[1].first && pair[0].term <= pair[1].term;
        if !self.leaderships.windows(2).all(ascending) || last.first > self.version {
            return refused("the leaderships are out of order");
        }
        Ok(())
    }

    /// The new position of a node that accepts an order of this catalog and has `followed` another so far.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] when `followed` belongs to another cluster or is not in this history.
    pub fn follow(&self, followed: Option<&CatalogPosition>) -> Result<CatalogPosition, Error> {
        self.check()?;
        let last = self.leaderships.last().copied().unwrap_or_default();
        let mut position = CatalogPosition {
            cluster: self.cluster,
            version: self.version,
            term: last.term,
            nonce: last.nonce,
        };
        let Some(followed) = followed else { return Ok(position) };
        if followed.cluster != self.cluster {
            return Err(Error::InvalidInput(format!(
                "the order is from cluster {:016x}, this node belongs to cluster {:016x}",
                self.cluster, followed.cluster
            )));
        }
        // Within the leadership that sends the order any version is accepted.
        if followed.nonce == last.nonce {
            position.version = position.version.max(followed.version);
            return Ok(position);
        }
        // Otherwise the followed version must precede the first version of the next leadership; if not, this catalog
        // has lost it.
        let index =
            self.leaderships.iter().position(|leadership| leadership.nonce == followed.nonce);
        let next = index.and_then(|place| self.leaderships.get(place + 1));
        if next.is_some_and(|next| next.first > followed.version) {
            return Ok(position);
        }
        Err(Error::InvalidInput(format!(
            "the order is from a catalog (version {}, term {}) that does not continue the one that this node has followed \
             (version {}, term {}): meta was restored from an older copy or lost committed changes, or the order is late",
            self.version, last.term, followed.version, followed.term
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(version: u64, leaderships: &[(u64, u64, u64)]) -> CatalogHistory {
        let leadership = |(first, term, nonce): &(u64, u64, u64)| Leadership {
            first: *first,
            term: *term,
            nonce: *nonce,
        };
        CatalogHistory {
            cluster: 7,
            version,
            leaderships: leaderships.iter().map(leadership).collect(),
        }
    }

    fn position(version: u64, term: u64, nonce: u64) -> CatalogPosition {
        CatalogPosition { cluster: 7, version, term, nonce }
    }

    #[test]
    fn a_node_follows_the_catalog_from_leadership_to_leadership() {
        let first = history(9, &[(2, 1, 11)]);
        let known = first.follow(None).unwrap();
        assert_eq!(known, position(9, 1, 11));
        let second = history(30, &[(2, 1, 11), (20, 4, 12)]);
        assert_eq!(second.follow(Some(&known)), Ok(position(30, 4, 12)));
    }

    #[test]
    fn orders_of_one_leadership_may_overtake_each_other_and_the_position_stays() {
        let late = history(30, &[(2, 1, 11)]);
        assert_eq!(late.follow(Some(&position(31, 1, 11))), Ok(position(31, 1, 11)));
    }

    #[test]
    fn an_older_catalog_is_refused_also_after_it_has_grown() {
        let known = position(50, 5, 12);
        // A copy from before leadership 12, and one from the middle of it, both led anew and grown.
        for older in [
            history(90, &[(2, 1, 11), (20, 5, 13)]),
            history(90, &[(2, 1, 11), (20, 5, 12), (45, 6, 13)]),
            history(50, &[(2, 1, 11)]),
        ] {
            assert!(matches!(older.follow(Some(&known)), Err(Error::InvalidInput(_))), "{older:?}");
        }
        let continued = history(90, &[(2, 1, 11), (20, 5, 12), (51, 6, 13)]);
        assert!(continued.follow(Some(&known)).is_ok());
    }

    #[test]
    fn another_cluster_is_refused() {
        let known = CatalogPosition { cluster: 8, ..position(1, 1, 11) };
        let error = history(9, &[(2, 1, 11)]).follow(Some(&known)).unwrap_err();
        assert!(error.to_string().contains("belongs to cluster"), "{error}");
    }

    #[test]
    fn what_no_meta_sends_is_refused() {
        let bad = [
            history(9, &[]),
            history(9, &[(2, 1, 0)]),
            history(9, &[(10, 1, 11)]),
            history(9, &[(5, 1, 11), (5, 2, 12)]),
            history(9, &[(2, 3, 11), (5, 2, 12)]),
            CatalogHistory { cluster: 0, ..history(9, &[(2, 1, 11)]) },
            history(900, &(1..200).map(|n| (n, n, n)).collect::<Vec<_>>()),
        ];
        for history in bad {
            assert!(history.check().is_err(), "{history:?}");
            assert!(history.follow(None).is_err(), "{history:?}");
        }
    }
}
