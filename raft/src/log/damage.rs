//! Extent of the damage to a group's log.
//!
//! Invariant: a group that may lack something that it acknowledged neither serves nor votes. Its entries are kept.

use std::fmt;

use super::record::Position;
use super::recovery::segment_name;

/// Unreadable entries of a group, and whether other records of it may be missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Damage {
    /// The first damaged place that concerns the group, segment and offset; `None` if it is not known.
    pub(crate) place: Option<(u32, u32)>,
    /// Positions of unreadable entries, as blank entries may replace them.
    pub(crate) missing: Vec<Position>,
    /// True if any record may have been written at the damaged place: entries after the last one, or a vote.
    pub(crate) unknown: bool,
    /// True if the entries behind the damaged place continue those before it: then only a vote of this group can have
    /// been written there.
    pub(crate) follows: bool,
}

impl Damage {
    /// True if nothing that matters can be missing: no entry is, and a group with a sole member does not need its
    /// votes.
    pub(crate) fn is_void(&self, sole_member: bool) -> bool {
        sole_member && self.follows && self.missing.is_empty()
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Some((segment, offset)) => {
                write!(f, "{} is damaged at offset {offset}: ", segment_name(segment))?;
            }
            None => f.write_str("the log is damaged: ")?,
        }
        match (self.missing.first(), self.missing.last()) {
            (Some(first), Some(last)) => {
                let (count, first, last) = (self.missing.len(), first.index, last.index);
                write!(f, "{count} of the entries {first} to {last} cannot be read")?;
                if self.unknown {
                    f.write_str(", and later ones may be missing")?;
                }
                Ok(())
            }
            _ => f.write_str("the last entries or a vote may be missing"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_of_one_member_lacks_nothing_when_its_entries_follow_each_other() {
        let damage = |missing: &[u64], follows| Damage {
            place: Some((1, 1728)),
            missing: missing
                .iter()
                .map(|index| Position { index: *index, ..Position::default() })
                .collect(),
            unknown: true,
            follows,
        };
        assert!(damage(&[], true).is_void(true));
        // Others may have been promised a vote that is forgotten.
        assert!(!damage(&[], true).is_void(false));
        // The last entries may be missing, or are known to be.
        assert!(!damage(&[], false).is_void(true));
        assert!(!damage(&[7], true).is_void(true));
    }
}
