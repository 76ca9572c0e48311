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
