//! Aggregate families: a cell is a number, with which later ones are combined.

use serde::{Deserialize, Serialize};

use super::{Wide, invalid};
use crate::error::Error;

/// Bytes of a number in a cell: a signed integer, big-endian.
pub(super) const NUMBER_BYTES: usize = 8;

/// How the cells of a family combine the numbers that are added to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Aggregate {
    /// The sum of all numbers.
    Sum,
    /// The least number.
    Min,
    /// The greatest number.
    Max,
}

impl Aggregate {
    /// All aggregates.
    pub const ALL: [Self; 3] = [Self::Sum, Self::Min, Self::Max];

    /// Name in SQL.
    pub fn sql(self) -> &'static str {
        match self {
            Self::Sum => "SUM",
            Self::Min => "MIN",
            Self::Max => "MAX",
        }
    }

    /// Value of a cell of a column after a number was added. `present`: the value before; `None` if there is no cell.
    pub(super) fn add(
        self,
        qualifier: &[u8],
        present: Option<&[u8]>,
        number: i64,
    ) -> Result<Vec<u8>, Error> {
        let combined = match (number_of(qualifier, present)?, self) {
            (None, _) => number,
            (Some(present), Self::Sum) => sum(qualifier, present, number)?,
            (Some(present), Self::Min) => present.min(number),
            (Some(present), Self::Max) => present.max(number),
        };
        Ok(combined.to_be_bytes().to_vec())
    }
}

/// The number in a cell of a column; `None` if there is no cell, or an empty one.
pub(super) fn number_of(qualifier: &[u8], present: Option<&[u8]>) -> Result<Option<i64>, Error> {
    let Some(bytes) = present.filter(|bytes| !bytes.is_empty()) else { return Ok(None) };
    let number = <[u8; NUMBER_BYTES]>::try_from(bytes).map_err(|_| {
        Error::InvalidInput(format!(
            "column \"{}\" has a value of {} bytes, which is not a counter of {NUMBER_BYTES}",
            String::from_utf8_lossy(qualifier),
            bytes.len()
        ))
    })?;
    Ok(Some(i64::from_be_bytes(number)))
}

/// The sum of the number in a cell of a column and another one.
pub(super) fn sum(qualifier: &[u8], present: i64, number: i64) -> Result<i64, Error> {
    let Some(sum) = present.checked_add(number) else {
        let name = String::from_utf8_lossy(qualifier);
        return invalid(format!("the counter in column \"{name}\" is out of range"));
    };
    Ok(sum)
}

impl Wide {
    /// How the cells of an aggregate family combine numbers.
    ///
    /// # Errors
    /// [`Error::NotFound`] for a family that the table does not have, [`Error::InvalidInput`] for one that is no aggregate.
    pub fn aggregate(&self, name: &str) -> Result<Aggregate, Error> {
        let Some(family) = self.family(name) else {
            return Err(Error::NotFound { kind: "column family", name: name.to_owned() });
        };
        family.aggregate.map_or_else(
            || invalid(format!("column family \"{name}\" is not an aggregate family")),
            Ok,
        )
    }

    /// Refuses values that requests set or make of others in an aggregate family, where numbers are added.
    pub(super) fn check_no_aggregate(&self, family: &str) -> Result<(), Error> {
        match self.family(family).and_then(|family| family.aggregate) {
            None => Ok(()),
            Some(_) => invalid(format!(
                "column family \"{family}\" is an aggregate family, to whose cells numbers can be added only"
            )),
        }
    }

    /// Checks the value of a cell that is stored as it is: in an aggregate family it must be a number.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for another value in an aggregate family.
    pub fn check_value(&self, family: &str, value_bytes: usize) -> Result<(), Error> {
        let is_aggregate = self.family(family).is_some_and(|family| family.aggregate.is_some());
        if !is_aggregate || value_bytes == NUMBER_BYTES {
            return Ok(());
        }
        invalid(format!(
            "a cell of the aggregate family \"{family}\" must be a number of {NUMBER_BYTES} bytes, not {value_bytes}"
        ))
    }
}
