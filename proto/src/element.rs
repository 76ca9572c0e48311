//! Types of the elements of arrays.
//!
//! An array has one dimension and any number of elements, each of which may be NULL. In Arrow it is a list with offsets of
//! 32 bits, whose items have the name that Arrow gives them; so rows of every table have one form of it. Arrays have no
//! place in keys, indexes, placements or statistics: there is no [`Value`](crate::value::Value) of them but NULL.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use serde::{Deserialize, Serialize};

use crate::schema::{ColumnType, Unit};

/// Type of the elements of an array: one of PostgreSQL's base types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Element {
    /// BOOLEAN.
    Bool,
    /// SMALLINT.
    Int16,
    /// INT.
    Int32,
    /// BIGINT.
    Int64,
    /// REAL.
    Float32,
    /// DOUBLE.
    Float64,
    /// DECIMAL(precision, scale).
    Decimal(u8, i8),
    /// Text of any length.
    String,
    /// Days since 1970-01-01.
    Date,
    /// TIMESTAMP at a unit, without (false) or with (true) a time zone.
    Timestamp(Unit, bool),
    /// 128 bits, in the order of their text.
    Uuid,
}

impl Element {
    /// The elements of this type; `None` for types of which there are no arrays.
    pub fn of(column_type: ColumnType) -> Option<Self> {
        Some(match column_type {
            ColumnType::Bool => Self::Bool,
            ColumnType::Int16 => Self::Int16,
            ColumnType::Int32 => Self::Int32,
            ColumnType::Int64 => Self::Int64,
            ColumnType::Float32 => Self::Float32,
            ColumnType::Float64 => Self::Float64,
            ColumnType::Decimal(precision, scale) => Self::Decimal(precision, scale),
            ColumnType::String => Self::String,
            ColumnType::Date => Self::Date,
            ColumnType::Timestamp(unit, utc) => Self::Timestamp(unit, utc),
            ColumnType::Uuid => Self::Uuid,
            _ => return None,
        })
    }

    /// The type of columns of such values.
    pub const fn column_type(self) -> ColumnType {
        match self {
            Self::Bool => ColumnType::Bool,
            Self::Int16 => ColumnType::Int16,
            Self::Int32 => ColumnType::Int32,
            Self::Int64 => ColumnType::Int64,
            Self::Float32 => ColumnType::Float32,
            Self::Float64 => ColumnType::Float64,
            Self::Decimal(precision, scale) => ColumnType::Decimal(precision, scale),
            Self::String => ColumnType::String,
            Self::Date => ColumnType::Date,
            Self::Timestamp(unit, utc) => ColumnType::Timestamp(unit, utc),
            Self::Uuid => ColumnType::Uuid,
        }
    }

    /// The item of a list of such elements.
    pub fn field(self) -> Field {
        Field::new_list_field(self.column_type().arrow(), true)
    }

    /// The Arrow type of arrays.
    pub(crate) fn list(self) -> DataType {
        DataType::List(Arc::new(self.field()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary::TYPES;

    #[test]
    fn arrays_have_one_form_and_no_second_dimension() {
        let mut found = 0;
        for column_type in TYPES {
            let Some(element) = Element::of(column_type) else { continue };
            found += 1;
            assert_eq!(element.column_type(), column_type);
            let array = ColumnType::Array(element);
            assert_eq!(ColumnType::from_arrow(&array.arrow()), Some(array));
            assert_eq!(array.sql(), format!("{}[]", column_type.sql()));
            assert_eq!(Element::of(array), None);
            let nested = DataType::new_list(array.arrow(), true);
            assert_eq!(ColumnType::from_arrow(&nested), None);
        }
        assert_eq!(found, 15);
        // Other forms are stored as this one.
        let texts = ColumnType::Array(Element::String);
        let large = DataType::new_large_list(DataType::Utf8, true);
        assert_eq!(ColumnType::from_arrow(&large), Some(texts));
        assert_eq!(ColumnType::from_arrow(&DataType::new_list(DataType::UInt8, true)), None);
    }
}
