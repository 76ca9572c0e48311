//! Decides by which columns' hash the new rows of a table are placed, where no cut divides its load.
//!
//! ```text
//!   keys grow, or rotate                    ──▶ hash of the series: each grows by itself
//!   one part of the key bears the load,
//!     and many series have that part        ──▶ hash of the series: the key's next columns divide it
//!     and it is a series, of many rows      ──▶ hash of the whole key: its rows are divided
//!   one full key is written all the time    ──▶ nothing: it has one place
//! ```
//!
//! How many buckets there are to be, and whether there are enough already, is not decided here.
//!
//! Invariants: pure. A row's place depends on its key alone, so all versions of a row have one place.

use crate::facts::{HashOf, TableFacts};
use crate::verdict::{Class, Verdict};

/// Maximum share of the load of what stays together: a bucket has at least that much.
const TOGETHER_MAX: f64 = 0.25;

/// The columns by whose hash a load of writes is spread; `None` if the hash of new rows does not spread it, or the table
/// has that hash.
pub(crate) fn spread_by(verdict: &Verdict, facts: &TableFacts) -> Option<HashOf> {
    if verdict.class.is_spread_by_hash() {
        return Some(HashOf::Series);
    }
    let evidence = &verdict.evidence;
    if verdict.class != Class::HotKey || evidence.reads {
        return None;
    }
    let series_share = evidence.top_prefix.last().copied().unwrap_or(evidence.top_key);
    if series_share <= TOGETHER_MAX {
        return (facts.hash_of < Some(HashOf::Series)).then_some(HashOf::Series);
    }
    let divides = evidence.top_key <= TOGETHER_MAX && !facts.keeps_together;
    (divides && facts.hash_of < Some(HashOf::Key)).then_some(HashOf::Key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Evidence;

    fn hot(series: f64, key: f64) -> Verdict {
        Verdict {
            class: Class::HotKey,
            cut: None,
            divisions: Vec::new(),
            hot_key: Some(Box::from([1])),
            evidence: Evidence {
                top_prefix: vec![0.9, series],
                top_key: key,
                ..Evidence::default()
            },
        }
    }

    #[test]
    fn a_hot_part_of_the_key_is_divided_by_what_follows_it() {
        let facts = TableFacts::default();
        assert_eq!(spread_by(&hot(0.02, 0.001), &facts), Some(HashOf::Series));
        assert_eq!(spread_by(&hot(0.9, 0.001), &facts), Some(HashOf::Key));
        assert_eq!(spread_by(&hot(0.9, 0.9), &facts), None, "one full key has one place");
        let reads = Verdict {
            evidence: Evidence { reads: true, ..hot(0.9, 0.001).evidence },
            ..hot(0.9, 0.001)
        };
        assert_eq!(spread_by(&reads, &facts), None, "the rows are there already");
        // What is kept together is not divided.
        let together = TableFacts { keeps_together: true, ..TableFacts::default() };
        assert_eq!(spread_by(&hot(0.9, 0.001), &together), None);
        // A hash that the table has does not help once more.
        let by = |hash_of| TableFacts { hash_of: Some(hash_of), ..TableFacts::default() };
        assert_eq!(spread_by(&hot(0.9, 0.001), &by(HashOf::Series)), Some(HashOf::Key));
        assert_eq!(spread_by(&hot(0.9, 0.001), &by(HashOf::Key)), None);
        assert_eq!(spread_by(&hot(0.02, 0.001), &by(HashOf::Series)), None);
    }

    #[test]
    fn what_grows_or_rotates_is_spread_by_series() {
        for class in Class::ALL {
            let verdict = Verdict { class, ..hot(0.9, 0.9) };
            let expected = class.is_spread_by_hash().then_some(HashOf::Series);
            assert_eq!(spread_by(&verdict, &TableFacts::default()), expected, "{class}");
        }
    }
}
