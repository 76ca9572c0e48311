//! Single values: bounds of ranges, literals of rules and predicates, keys in messages to people.
//!
//! Rows are never transferred as `Value`s; they stay in Arrow columns. Order: NULL first, then by value; floats by
//! total order (`-NaN < -inf < .. < inf < NaN`), strings and bytes by bytes. Two values compare only within one
//! [`ColumnType`](crate::schema::ColumnType).

use std::cmp::Ordering;
use std::fmt;

use serde::{Deserialize, Serialize};

/// One value of a column.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Value {
    /// SQL's NULL; sorts before everything else.
    Null,
    /// BOOLEAN; false before true.
    Bool(bool),
    /// Any signed integer type.
    Int(i64),
    /// Any unsigned integer type.
    UInt(u64),
    /// REAL and DOUBLE.
    Float(f64),
    /// DECIMAL, unscaled, at its column's scale.
    Decimal(i128),
    /// STRING: UTF-8 text.
    String(String),
    /// BINARY: any bytes.
    Binary(Vec<u8>),
    /// DATE: days since 1970-01-01.
    Date(i32),
    /// TIMESTAMP: ticks of the column's unit since 1970-01-01T00:00:00Z.
    Timestamp(i64),
}

impl Value {
    /// True if the value is NULL.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Null => 0,
            Self::Bool(_) => 1,
            Self::Int(_) => 2,
            Self::UInt(_) => 3,
            Self::Float(_) => 4,
            Self::Decimal(_) => 5,
            Self::String(_) => 6,
            Self::Binary(_) => 7,
            Self::Date(_) => 8,
            Self::Timestamp(_) => 9,
        }
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            (Self::Int(a), Self::Int(b)) => a.cmp(b),
            (Self::UInt(a), Self::UInt(b)) => a.cmp(b),
            (Self::Float(a), Self::Float(b)) => a.total_cmp(b),
            (Self::Decimal(a), Self::Decimal(b)) => a.cmp(b),
            (Self::String(a), Self::String(b)) => a.as_bytes().cmp(b.as_bytes()),
            (Self::Binary(a), Self::Binary(b)) => a.cmp(b),
            (Self::Date(a), Self::Date(b)) => a.cmp(b),
            (Self::Timestamp(a), Self::Timestamp(b)) => a.cmp(b),
            // Values of one column have one kind; across kinds any fixed order is fine.
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Value {}

impl fmt::Display for Value {
    /// The text in SQL; timestamps as bare ticks, because the unit is the column's.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("NULL"),
            Self::Bool(v) => v.fmt(f),
            Self::Int(v) | Self::Timestamp(v) => v.fmt(f),
            Self::UInt(v) => v.fmt(f),
            Self::Float(v) => v.fmt(f),
            Self::Decimal(v) => v.fmt(f),
            Self::String(v) => write!(f, "'{}'", v.replace('\'', "''")),
            Self::Binary(v) => {
                f.write_str("X'")?;
                v.iter().try_for_each(|byte| write!(f, "{byte:02X}"))?;
                f.write_str("'")
            }
            Self::Date(v) => v.fmt(f),
        }
    }
}
