//! Requests that change one row, and what they make of its cells.
//!
//! A request is a list of mutations in order. Those that set cells say which; those that delete say what of a row goes, so
//! the cells that are there have to be known; those that add numbers depend on the values of the cells that they name. [`RowMutation::change`] turns a request and these cells into the keys that are
//! written and removed: a pure function, so that a request that has to be decided anew gives what it would have given first.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::aggregate::NUMBER_BYTES;
use super::{MUTATIONS_MAX, Wide, check_row_key, invalid};
use crate::error::Error;

/// A request that changes one row, as a whole or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowMutation {
    /// Key of the row; of UTF-8 text if the table's row keys are strings.
    pub row_key: Vec<u8>,
    /// Mutations, in the order in which they take effect.
    pub mutations: Vec<CellMutation>,
}

/// A change of some cells of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CellMutation {
    /// Writes a cell; one with the same timestamp is replaced.
    SetCell {
        /// Column family.
        family: String,
        /// Qualifier of the column.
        qualifier: Vec<u8>,
        /// Timestamp in microseconds; `None`: the time of the server.
        timestamp: Option<i64>,
        /// Bytes of the cell.
        value: Vec<u8>,
    },
    /// Adds a number to a cell of an aggregate family; where there is no cell, the number is its value.
    AddToCell {
        /// Column family.
        family: String,
        /// Qualifier of the column.
        qualifier: Vec<u8>,
        /// Timestamp in microseconds.
        timestamp: i64,
        /// Number to add.
        number: i64,
    },
    /// Deletes the cells of a column whose timestamps lie in a range.
    DeleteFromColumn {
        /// Column family.
        family: String,
        /// Qualifier of the column.
        qualifier: Vec<u8>,
        /// First timestamp, in microseconds; `None`: the oldest.
        start: Option<i64>,
        /// Timestamp behind the last one, in microseconds; `None`: no end.
        end: Option<i64>,
    },
    /// Deletes all cells of a family.
    DeleteFromFamily {
        /// Column family.
        family: String,
    },
    /// Deletes all cells of the row.
    DeleteFromRow,
}

/// Place of a cell in its row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CellKey {
    /// Column family.
    pub family: String,
    /// Qualifier of the column.
    pub qualifier: Vec<u8>,
    /// Timestamp in microseconds.
    pub timestamp: i64,
}

/// Effect of a request on the cells of its row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowChange {
    /// Cells that are written, with their values.
    pub written: BTreeMap<CellKey, Vec<u8>>,
    /// Cells that are deleted and not written.
    pub removed: BTreeSet<CellKey>,
}

impl RowMutation {
    /// Checks the request against a table's families and limits.
    ///
    /// # Errors
    /// As [`Wide::check_cell`]; [`Error::InvalidInput`] also for a request without mutations, for cells of an aggregate family
    /// that are set and for numbers that are added in another one; [`Error::LimitReached`] for too many mutations.
    pub fn check(&self, wide: &Wide) -> Result<(), Error> {
        check_row_key(&self.row_key)?;
        if self.mutations.is_empty() {
            return invalid("a request must have at least one mutation".to_owned());
        }
        if self.mutations.len() > MUTATIONS_MAX {
            return Err(Error::LimitReached {
                message: format!(
                    "{} mutations in one request exceed the limit of {MUTATIONS_MAX}",
                    self.mutations.len()
                ),
                hint: "Send several requests.".to_owned(),
            });
        }
        self.mutations.iter().try_for_each(|mutation| match mutation {
            CellMutation::SetCell { family, qualifier, value, .. } => {
                wide.check_cell(&self.row_key, family, qualifier, value.len())?;
                wide.check_no_aggregate(family)
            }
            CellMutation::AddToCell { family, qualifier, .. } => {
                wide.check_cell(&self.row_key, family, qualifier, NUMBER_BYTES)?;
                wide.aggregate(family).map(|_| ())
            }
            CellMutation::DeleteFromColumn { family, qualifier, start, end } => {
                wide.check_cell(&self.row_key, family, qualifier, 0)?;
                match (start, end) {
                    (Some(start), Some(end)) if start >= end => {
                        invalid(format!("the range of timestamps from {start} to {end} is empty"))
                    }
                    _ => Ok(()),
                }
            }
            CellMutation::DeleteFromFamily { family } => {
                wide.check_cell(&self.row_key, family, &[], 0)
            }
            CellMutation::DeleteFromRow => Ok(()),
        })
    }

    /// The request with the server's time in the cells that want it. Done once, before the request is sent the first
    /// time: repeated, it writes the same cells.
    #[must_use]
    pub fn stamped(mut self, now_us: i64) -> Self {
        for mutation in &mut self.mutations {
            if let CellMutation::SetCell { timestamp, .. } = mutation {
                timestamp.get_or_insert(now_us);
            }
        }
        self
    }

    /// True if cells of the row have to be known: something is deleted, or added to a cell.
    pub fn reads(&self) -> bool {
        self.mutations.iter().any(|mutation| !matches!(mutation, CellMutation::SetCell { .. }))
    }

    /// True if all cells of the row have to be known: something is deleted.
    pub fn deletes(&self) -> bool {
        self.mutations.iter().any(CellMutation::deletes)
    }

    /// Cells whose values have to be known: numbers are added to them.
    pub fn added(&self) -> BTreeSet<CellKey> {
        let added = self.mutations.iter().filter_map(|mutation| match mutation {
            CellMutation::AddToCell { family, qualifier, timestamp, .. } => Some(CellKey {
                family: family.clone(),
                qualifier: qualifier.clone(),
                timestamp: *timestamp,
            }),
            _ => None,
        });
        added.collect()
    }

    /// Effect of the request on a row of a table. `cells`: those that are stored, all if something is deleted, otherwise
    /// those to which numbers are added; only the values of these matter. `garbage`: those of them that no query returns;
    /// numbers are not added to them. Cells without a timestamp are written at `now_us`.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] when a sum would leave its range or a family is no aggregate, [`Error::NotFound`] when it does
    /// not exist.
    pub fn change(
        &self,
        wide: &Wide,
        (cells, garbage): (&BTreeMap<CellKey, Vec<u8>>, &BTreeSet<CellKey>),
        now_us: i64,
    ) -> Result<RowChange, Error> {
        let mut change = RowChange::default();
        // Each cell is looked at by one deletion: a request may have as many of these as the row has cells.
        let mut remaining: BTreeSet<&CellKey> = cells.keys().collect();
        for mutation in &self.mutations {
            match mutation {
                CellMutation::SetCell { family, qualifier, timestamp, value } => {
                    let key = CellKey {
                        family: family.clone(),
                        qualifier: qualifier.clone(),
                        timestamp: timestamp.unwrap_or(now_us),
                    };
                    change.write(key, value.clone());
                    continue;
                }
                CellMutation::AddToCell { family, qualifier, timestamp, number } => {
                    let key = CellKey {
                        family: family.clone(),
                        qualifier: qualifier.clone(),
                        timestamp: *timestamp,
                    };
                    let is_present = remaining.contains(&key) && !garbage.contains(&key);
                    let stored = cells.get(&key).filter(|_| is_present);
                    let present = change.written.get(&key).or(stored).map(Vec::as_slice);
                    let value = wide.aggregate(family)?.add(qualifier, present, *number)?;
                    change.write(key, value);
                    continue;
                }
                CellMutation::DeleteFromColumn { .. }
                | CellMutation::DeleteFromFamily { .. }
                | CellMutation::DeleteFromRow => {}
            }
            let Some((first, end)) = mutation.deleted() else { continue };
            let bounds = (first.as_ref(), end.as_ref());
            let deleted: Vec<&CellKey> = remaining.range::<CellKey, _>(bounds).copied().collect();
            for key in deleted {
                remaining.remove(key);
                change.removed.insert(key.clone());
            }
            // A cell that this request wrote may replace one that was there, which is deleted too.
            let rewritten = change.written.range::<CellKey, _>(bounds);
            let rewritten: Vec<CellKey> = rewritten.map(|(key, _)| key.clone()).collect();
            for key in rewritten {
                change.written.remove(&key);
                if cells.contains_key(&key) {
                    change.removed.insert(key);
                }
            }
        }
        Ok(change)
    }
}

impl CellMutation {
    /// True if the mutation deletes cells.
    fn deletes(&self) -> bool {
        !matches!(self, Self::SetCell { .. } | Self::AddToCell { .. })
    }

    /// Bounds of the cells that the mutation deletes; `None` if it deletes none.
    fn deleted(&self) -> Option<(Bound<CellKey>, Bound<CellKey>)> {
        let place = |family: &str, qualifier: &[u8], timestamp| CellKey {
            family: family.to_owned(),
            qualifier: qualifier.to_vec(),
            timestamp,
        };
        match self {
            Self::SetCell { .. } | Self::AddToCell { .. } => None,
            Self::DeleteFromColumn { family, qualifier, start, end } => {
                let first = start.unwrap_or(i64::MIN);
                let last = match end {
                    Some(end) if *end < first => return None,
                    Some(end) => Bound::Excluded(place(family, qualifier, *end)),
                    None => Bound::Included(place(family, qualifier, i64::MAX)),
                };
                Some((Bound::Included(place(family, qualifier, first)), last))
            }
            Self::DeleteFromFamily { family } => {
                // No name lies between one and the same one with a zero behind it.
                let next = format!("{family}\0");
                let first = Bound::Included(place(family, &[], i64::MIN));
                Some((first, Bound::Excluded(place(&next, &[], i64::MIN))))
            }
            Self::DeleteFromRow => Some((Bound::Unbounded, Bound::Unbounded)),
        }
    }
}

impl RowChange {
    /// Adds a cell that is written.
    fn write(&mut self, key: CellKey, value: Vec<u8>) {
        self.removed.remove(&key);
        self.written.insert(key, value);
    }

    /// True if nothing is written or removed.
    pub fn is_empty(&self) -> bool {
        self.written.is_empty() && self.removed.is_empty()
    }
}
