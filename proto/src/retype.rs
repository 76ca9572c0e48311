//! Changes of a column's type under which stored rows stay as they are.
//!
//! Files, log entries and rows in memory keep the type that they were written with, and are cast when they are read. So a
//! type may only become one in which each of its values is the same [`Value`](crate::value::Value): this is what
//! statistics, indexes, hashes and predicates are made of. Keys are encoded by the width of their type, and keep it. Only
//! the estimate of distinct values, for advice, counts a REAL and the DOUBLE that it became as two until their files are
//! rewritten.

use crate::error::Error;
use crate::placement::Placement;
use crate::schema::{Column, ColumnType, TableSchema, TextLength};

impl ColumnType {
    /// True if each value of the type is the same value of the other type: the other one is the same, or wider.
    pub fn widens_to(self, wider: Self) -> bool {
        match (self, wider) {
            (Self::Int8, Self::Int16 | Self::Int32 | Self::Int64)
            | (Self::Int16, Self::Int32 | Self::Int64)
            | (Self::Int32, Self::Int64)
            | (Self::UInt8, Self::UInt16 | Self::UInt32 | Self::UInt64)
            | (Self::UInt16, Self::UInt32 | Self::UInt64)
            | (Self::UInt32, Self::UInt64)
            | (Self::Float32, Self::Float64) => true,
            (Self::Decimal(precision, scale), Self::Decimal(wider_precision, same_scale)) => {
                precision <= wider_precision && scale == same_scale
            }
            _ => self == wider,
        }
    }
}

/// True if all texts of a length are also texts of another one, and equal there when they were.
fn takes_all(length: Option<TextLength>, longer: Option<TextLength>) -> bool {
    match (length, longer) {
        (_, None) => true,
        (None, Some(_)) => false,
        // Blanks at the end are no part of texts of CHAR(n).
        (Some(length), Some(longer)) => {
            length.characters <= longer.characters && (length.fixed || !longer.fixed)
        }
    }
}

/// Checks that stored rows can be read when a column of their table has another type.
///
/// # Errors
/// 0A000 with a hint.
pub fn check_type_change(
    schema: &TableSchema,
    placement: &Placement,
    column: &Column,
    (column_type, length): (ColumnType, Option<TextLength>),
) -> Result<(), Error> {
    let new = Column { column_type, length, json: None, ..column.clone() };
    let refused = |of: &str| {
        let (name, old_type, new_type) = (&column.name, column.type_sql(), new.type_sql());
        Err(Error::Query {
            sqlstate: "0A000".to_owned(),
            message: format!(
                "changing the type of {of} \"{name}\" from {old_type} to {new_type} is not supported"
            ),
            hint: Some(format!(
                "create a table with the other type by CREATE TABLE, and copy the rows: \
                 INSERT INTO new SELECT ..., CAST({name} AS {new_type}) FROM old"
            )),
        })
    };
    let widens = column.column_type.widens_to(column_type) && takes_all(column.length, length);
    if !widens || column.json.is_some() {
        return refused("column");
    }
    if column.column_type == column_type {
        return Ok(());
    }
    let decides = match placement {
        Placement::Range => false,
        Placement::Hash { columns } | Placement::Rules { columns, .. } => {
            columns.contains(&column.id)
        }
    };
    if schema.is_key(column.id) {
        refused("key column")
    } else if decides {
        refused("partition column")
    } else if column.generated.is_some() {
        refused("generated column")
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::ArrayRef;
    use arrow::compute::cast;

    use super::*;
    use crate::array::array_of;
    use crate::hash::hash64;
    use crate::value::Value;

    const TYPES: [ColumnType; 12] = [
        ColumnType::Int8,
        ColumnType::Int16,
        ColumnType::Int32,
        ColumnType::Int64,
        ColumnType::UInt8,
        ColumnType::UInt16,
        ColumnType::UInt32,
        ColumnType::UInt64,
        ColumnType::Float32,
        ColumnType::Float64,
        ColumnType::Decimal(5, 2),
        ColumnType::Decimal(20, 2),
    ];

    /// Values of a type, with those at its ends.
    fn values(column_type: ColumnType) -> Vec<Value> {
        let integers = |ends: [i64; 2]| [ends[0], -5, 0, 5, ends[1]].map(Value::Int).to_vec();
        match column_type {
            ColumnType::Int8 => integers([i8::MIN.into(), i8::MAX.into()]),
            ColumnType::Int16 => integers([i16::MIN.into(), i16::MAX.into()]),
            ColumnType::Int32 => integers([i32::MIN.into(), i32::MAX.into()]),
            ColumnType::Int64 => integers([i64::MIN, i64::MAX]),
            ColumnType::UInt8 => [0, 5, u8::MAX.into()].map(Value::UInt).to_vec(),
            ColumnType::UInt16 => [0, 5, u16::MAX.into()].map(Value::UInt).to_vec(),
            ColumnType::UInt32 => [0, 5, u32::MAX.into()].map(Value::UInt).to_vec(),
            ColumnType::UInt64 => [0, 5, u64::MAX].map(Value::UInt).to_vec(),
            ColumnType::Decimal(..) => [-99_999, 0, 5, 99_999].map(Value::Decimal).to_vec(),
            _ => [0.1_f32, -0.0, 0.0, f32::MAX, f32::INFINITY]
                .map(|value| Value::Float(value.into()))
                .to_vec(),
        }
    }

    #[test]
    fn values_and_hashes_are_the_same_in_a_wider_type() {
        let mut wider_types = 0;
        let pairs = TYPES.iter().flat_map(|narrow| TYPES.iter().map(move |wide| (*narrow, *wide)));
        for (narrow, wide) in pairs {
            if narrow == wide || !narrow.widens_to(wide) {
                continue;
            }
            wider_types += 1;
            assert!(!wide.widens_to(narrow), "{narrow:?} {wide:?}");
            let values = values(narrow);
            let narrow_array = array_of(narrow, &values).unwrap();
            let wide_array: ArrayRef = cast(&narrow_array, &wide.arrow()).unwrap();
            for (row, value) in values.iter().enumerate() {
                let wide_value = Value::from_array(&wide_array, row).unwrap();
                assert_eq!(wide_value, *value, "{narrow:?} {wide:?}");
            }
            let hashes = [narrow_array, wide_array].map(|array| hash64(&[array]).unwrap());
            assert_eq!(hashes[0], hashes[1], "{narrow:?} {wide:?}");
        }
        assert_eq!(wider_types, 14);
        assert!(!ColumnType::Int32.widens_to(ColumnType::Float64));
        assert!(!ColumnType::UInt32.widens_to(ColumnType::Int64));
        assert!(!ColumnType::Decimal(5, 2).widens_to(ColumnType::Decimal(20, 3)));
        assert!(ColumnType::String.widens_to(ColumnType::String));
    }

    #[test]
    fn a_text_may_become_longer_and_keeps_its_blanks() {
        let varying = |characters| Some(TextLength { characters, fixed: false });
        let fixed = |characters| Some(TextLength { characters, fixed: true });
        for (length, longer, expected) in [
            (varying(5), varying(5), true),
            (varying(5), varying(6), true),
            (varying(5), None, true),
            (varying(6), varying(5), false),
            (None, varying(5), false),
            (fixed(5), varying(5), true),
            (fixed(5), fixed(7), true),
            (varying(5), fixed(7), false),
        ] {
            assert_eq!(takes_all(length, longer), expected, "{length:?} {longer:?}");
        }
    }
}
