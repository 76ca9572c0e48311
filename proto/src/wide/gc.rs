//! Rules of garbage collection: which cells of a column are kept.
//!
//! ```text
//!   cells of a column, newest first     max_versions = 3    max_age = 1h    OR (union)    AND (intersection)
//!   #1  5 minutes old
//!   #2  20 minutes old
//!   #3  2 hours old                                         garbage         garbage
//!   #4  3 hours old                     garbage             garbage         garbage       garbage
//! ```
//!
//! Of two cells of a column, the older one has the greater number and the greater age. So what a rule collects is the
//! oldest part of the column: collecting some of it changes neither the numbers nor the ages of the rest, and it does not
//! matter when, or in how many steps, garbage is removed. A property test compares this with a plain model.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Maximum depth of nested rules.
pub const GC_DEPTH_MAX: usize = 20;
/// Maximum number of rules in one, itself included.
const GC_RULES_MAX: usize = 100;

/// A rule by which cells of a column become garbage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GcRule {
    /// All cells but the newest ones, by number.
    MaxVersions(u32),
    /// Cells that are older.
    MaxAge(Duration),
    /// Cells that any of the rules collects.
    Union(Vec<GcRule>),
    /// Cells that all of the rules collect.
    Intersection(Vec<GcRule>),
}

/// A cell among the versions of its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Number of the cell: 1 for the newest one of its column.
    pub number: u64,
    /// Timestamp in microseconds.
    pub timestamp: i64,
}

impl GcRule {
    /// True if a cell is garbage at a time, in microseconds since 1970.
    pub fn collects(&self, cell: Version, now_us: i64) -> bool {
        match self {
            Self::MaxVersions(versions) => cell.number > u64::from(*versions),
            Self::MaxAge(age_max) => {
                let age = i128::from(now_us) - i128::from(cell.timestamp);
                age > i128::try_from(age_max.as_micros()).unwrap_or(i128::MAX)
            }
            Self::Union(rules) => rules.iter().any(|rule| rule.collects(cell, now_us)),
            Self::Intersection(rules) => {
                !rules.is_empty() && rules.iter().all(|rule| rule.collects(cell, now_us))
            }
        }
    }

    /// True if the rule depends on the number of a cell.
    pub fn counts_versions(&self) -> bool {
        match self {
            Self::MaxVersions(_) => true,
            Self::MaxAge(_) => false,
            Self::Union(rules) | Self::Intersection(rules) => {
                rules.iter().any(Self::counts_versions)
            }
        }
    }

    /// Checks that the rule keeps a version, and that it is neither empty nor too deep.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] that names the first violation.
    pub fn check(&self) -> Result<(), Error> {
        let mut rules = 0;
        self.check_part(1, &mut rules)
    }

    fn check_part(&self, depth: usize, rules_before: &mut usize) -> Result<(), Error> {
        let invalid = |message: String| Err(Error::InvalidInput(message));
        *rules_before += 1;
        if depth > GC_DEPTH_MAX || *rules_before > GC_RULES_MAX {
            return invalid(format!(
                "a garbage collection rule may have {GC_RULES_MAX} parts, nested {GC_DEPTH_MAX} deep"
            ));
        }
        match self {
            Self::MaxVersions(0) => invalid("'max_versions' must be 1 or more".to_owned()),
            Self::MaxAge(age) if age.as_millis() == 0 => {
                invalid("'max_age' must be a millisecond or more".to_owned())
            }
            Self::MaxVersions(_) | Self::MaxAge(_) => Ok(()),
            Self::Union(rules) | Self::Intersection(rules) if rules.is_empty() => {
                invalid("a union or intersection of garbage collection rules is empty".to_owned())
            }
            Self::Union(rules) | Self::Intersection(rules) => {
                rules.iter().try_for_each(|rule| rule.check_part(depth + 1, rules_before))
            }
        }
    }
}
