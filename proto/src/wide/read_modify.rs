//! Requests that make new cells of the newest ones of a row: appending bytes, and adding numbers.

use std::collections::BTreeMap;

use super::aggregate::{number_of, sum};
use super::{CellKey, MUTATIONS_MAX, Wide, check_row_key, invalid};
use crate::error::Error;

/// A request that reads and writes cells of one row, as a whole or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadModify {
    /// Key of the row; of UTF-8 text if the table's row keys are strings.
    pub row_key: Vec<u8>,
    /// Rules, in the order in which they take effect: a later one sees what an earlier one wrote.
    pub rules: Vec<ReadModifyRule>,
}

/// What becomes of the newest cell of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadModifyRule {
    /// Bytes are added at the end; a column without cells has none before.
    Append {
        /// Column family.
        family: String,
        /// Qualifier of the column.
        qualifier: Vec<u8>,
        /// Bytes to add.
        value: Vec<u8>,
    },
    /// A number is added to a counter of eight bytes, big-endian; a column without cells counts as 0.
    Increment {
        /// Column family.
        family: String,
        /// Qualifier of the column.
        qualifier: Vec<u8>,
        /// Number to add.
        amount: i64,
    },
}

impl ReadModifyRule {
    /// Family and qualifier of the column.
    pub fn column(&self) -> (&str, &[u8]) {
        match self {
            Self::Append { family, qualifier, .. } | Self::Increment { family, qualifier, .. } => {
                (family, qualifier)
            }
        }
    }

    /// The value that follows the present one.
    fn apply(&self, present: Option<&[u8]>) -> Result<Vec<u8>, Error> {
        match self {
            Self::Append { value, .. } => {
                Ok([present.unwrap_or_default(), value.as_slice()].concat())
            }
            Self::Increment { amount, qualifier, .. } => {
                let counter = number_of(qualifier, present)?.unwrap_or(0);
                Ok(sum(qualifier, counter, *amount)?.to_be_bytes().to_vec())
            }
        }
    }
}

impl ReadModify {
    /// Checks the request against a table's families and limits.
    ///
    /// # Errors
    /// As [`Wide::check_cell`]; [`Error::InvalidInput`] also for a request without rules or with too many, and for cells of
    /// an aggregate family.
    pub fn check(&self, wide: &Wide) -> Result<(), Error> {
        check_row_key(&self.row_key)?;
        if self.rules.is_empty() || self.rules.len() > MUTATIONS_MAX {
            return invalid(format!("a request must have 1 to {MUTATIONS_MAX} rules"));
        }
        self.rules.iter().try_for_each(|rule| {
            let (family, qualifier) = rule.column();
            wide.check_cell(&self.row_key, family, qualifier, 0)?;
            wide.check_no_aggregate(family)
        })
    }

    /// The cells that the request writes in a row with these cells, of which the newest of each column that it names suffice.
    /// A new cell has the time `now_us`, or that of the newest cell of its column if that is later, so that it is the newest.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] when a value is no counter, or a counter would leave its range.
    pub fn change(
        &self,
        cells: &BTreeMap<CellKey, Vec<u8>>,
        now_us: i64,
    ) -> Result<BTreeMap<CellKey, Vec<u8>>, Error> {
        let mut written: BTreeMap<CellKey, Vec<u8>> = BTreeMap::new();
        for rule in &self.rules {
            let newest = newest(&written, rule).max(newest(cells, rule));
            // What this request wrote replaces what was there at the same time.
            let present = newest.map(|timestamp| key_of(rule, timestamp));
            let present = present.and_then(|key| written.get(&key).or_else(|| cells.get(&key)));
            let value = rule.apply(present.map(Vec::as_slice))?;
            let timestamp = newest.map_or(now_us, |timestamp| timestamp.max(now_us));
            written.insert(key_of(rule, timestamp), value);
        }
        Ok(written)
    }
}

fn key_of(rule: &ReadModifyRule, timestamp: i64) -> CellKey {
    let (family, qualifier) = rule.column();
    CellKey { family: family.to_owned(), qualifier: qualifier.to_vec(), timestamp }
}

/// Timestamp of the newest cell of a rule's column.
fn newest(cells: &BTreeMap<CellKey, Vec<u8>>, rule: &ReadModifyRule) -> Option<i64> {
    let span = key_of(rule, i64::MIN)..=key_of(rule, i64::MAX);
    cells.range(span).next_back().map(|(key, _)| key.timestamp)
}
