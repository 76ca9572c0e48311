//! What is known of a group whose log is damaged.
//!
//! Invariant: a group that may lack something that it acknowledged neither serves nor votes. Its entries are kept.

use std::fmt;

use super::record::Position;
use super::recovery::segment_name;

/// Entries of a group that cannot be read, or what else of it may be missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Damage {
    /// The first bad place of the log that concerns the group, segment and offset, where it is known.
    pub(crate) place: Option<(u32, u32)>,
    /// Entries that were there, as they may be replaced by blank ones.
    pub(crate) missing: Vec<Position>,
    /// Anything may have been written at the bad place: entries after the last one, or a vote.
    pub(crate) unknown: bool,
    /// The entries behind the bad place follow those before it: of what was written there, only a vote can have been this
    /// group's.
    pub(crate) follows: bool,
}

impl Damage {
    /// Whether nothing that counts can be missing: no entry is, and a group of one member has no use for votes.
    pub(crate) fn is_void(&self, alone: bool) -> bool {
        alone && self.follows && self.missing.is_empty()
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
