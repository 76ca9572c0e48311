//! Converts single values from and to Arrow columns.
//!
//! For bounds, samples, literals and messages; bulk rows stay in columns. An array may have any Arrow type that
//! [`ColumnType::from_arrow`] knows, dictionaries and offset-based strings included; arrays made here have exactly
//! [`ColumnType::arrow`].

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BinaryViewArray, BooleanArray,
    FixedSizeBinaryBuilder, PrimitiveArray, StringViewArray, new_null_array,
};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, Time64MicrosecondType, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};

use crate::error::Error;
use crate::neighbour::{narrow, widen};
use crate::schema::{ColumnType, Unit};
use crate::value::Value;

/// Bytes of a UUID, as Arrow counts them.
const UUID_WIDTH: i32 = 16;

/// The column type of an array, or an error that names its Arrow type.
pub(crate) fn column_type_of(array: &dyn Array) -> Result<ColumnType, Error> {
    ColumnType::from_arrow(array.data_type())
        .ok_or_else(|| Error::Unsupported(format!("a column of Arrow type {}", array.data_type())))
}

/// Internal error for an Arrow kernel that fails although the types fit.
pub(crate) fn arrow_error(error: &arrow::error::ArrowError) -> Error {
    Error::Internal(format!("arrow: {error}"))
}

impl Value {
    /// The value in one row of a column.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a type that no column has, [`Error::Internal`] for a row that is
    /// not there.
    pub fn from_array(array: &dyn Array, row: usize) -> Result<Self, Error> {
        if row >= array.len() {
            return Err(Error::Internal(format!("row {row} of an array of {} rows", array.len())));
        }
        if array.data_type() == &DataType::Null || array.is_null(row) {
            return Ok(Self::Null);
        }
        let column_type = column_type_of(array)?;
        if array.data_type() != &column_type.arrow() {
            // Cast one row to the type's own form; this also unpacks a dictionary.
            let element = cast(&array.slice(row, 1), &column_type.arrow())
                .map_err(|error| arrow_error(&error))?;
            return Self::from_array(element.as_ref(), 0);
        }
        Ok(match column_type {
            ColumnType::Bool => Self::Bool(array.as_boolean().value(row)),
            ColumnType::Int8 => Self::Int(array.as_primitive::<Int8Type>().value(row).into()),
            ColumnType::Int16 => Self::Int(array.as_primitive::<Int16Type>().value(row).into()),
            ColumnType::Int32 => Self::Int(array.as_primitive::<Int32Type>().value(row).into()),
            ColumnType::Int64 => Self::Int(array.as_primitive::<Int64Type>().value(row)),
            ColumnType::UInt8 => Self::UInt(array.as_primitive::<UInt8Type>().value(row).into()),
            ColumnType::UInt16 => Self::UInt(array.as_primitive::<UInt16Type>().value(row).into()),
            ColumnType::UInt32 => Self::UInt(array.as_primitive::<UInt32Type>().value(row).into()),
            ColumnType::UInt64 => Self::UInt(array.as_primitive::<UInt64Type>().value(row)),
            ColumnType::Float32 => {
                Self::Float(widen(array.as_primitive::<Float32Type>().value(row)))
            }
            ColumnType::Float64 => Self::Float(array.as_primitive::<Float64Type>().value(row)),
            ColumnType::Decimal(..) => {
                Self::Decimal(array.as_primitive::<Decimal128Type>().value(row))
            }
            ColumnType::String => Self::String(array.as_string_view().value(row).to_owned()),
            ColumnType::Binary => Self::Binary(array.as_binary_view().value(row).to_vec()),
            ColumnType::Time => Self::Int(array.as_primitive::<Time64MicrosecondType>().value(row)),
            ColumnType::Uuid => Self::Binary(array.as_fixed_size_binary().value(row).to_vec()),
            ColumnType::Date => Self::Date(array.as_primitive::<Date32Type>().value(row)),
            ColumnType::Array(_) | ColumnType::Interval => {
                let message = format!("a single value of type {}", column_type.sql());
                return Err(Error::Unsupported(message));
            }
            ColumnType::Timestamp(unit, _) => Self::Timestamp(match unit {
                Unit::Second => array.as_primitive::<TimestampSecondType>().value(row),
                Unit::Millisecond => array.as_primitive::<TimestampMillisecondType>().value(row),
                Unit::Microsecond => array.as_primitive::<TimestampMicrosecondType>().value(row),
                Unit::Nanosecond => array.as_primitive::<TimestampNanosecondType>().value(row),
            }),
        })
    }
}

/// A column of these values, each coerced to the type.
///
/// # Errors
/// As [`Value::coerce`].
pub fn array_of(column_type: ColumnType, values: &[Value]) -> Result<ArrayRef, Error> {
    let values: Vec<Value> =
        values.iter().map(|value| value.clone().coerce(column_type)).collect::<Result<_, _>>()?;
    // After the coercion, a value of another kind can only be NULL.
    Ok(match column_type {
        ColumnType::Bool => {
            let items = values.iter().map(|value| match value {
                Value::Bool(v) => Some(*v),
                _ => None,
            });
            Arc::new(items.collect::<BooleanArray>())
        }
        ColumnType::Int8 => integers::<Int8Type>(&values)?,
        ColumnType::Int16 => integers::<Int16Type>(&values)?,
        ColumnType::Int32 => integers::<Int32Type>(&values)?,
        ColumnType::Int64 => integers::<Int64Type>(&values)?,
        ColumnType::Time => integers::<Time64MicrosecondType>(&values)?,
        ColumnType::UInt8 => integers::<UInt8Type>(&values)?,
        ColumnType::UInt16 => integers::<UInt16Type>(&values)?,
        ColumnType::UInt32 => integers::<UInt32Type>(&values)?,
        ColumnType::UInt64 => integers::<UInt64Type>(&values)?,
        ColumnType::Float32 => Arc::new(
            values.iter().map(|v| float(v).map(narrow)).collect::<PrimitiveArray<Float32Type>>(),
        ),
        ColumnType::Float64 => {
            Arc::new(values.iter().map(float).collect::<PrimitiveArray<Float64Type>>())
        }
        ColumnType::Decimal(precision, scale) => {
            let items = values.iter().map(|value| match value {
                Value::Decimal(v) => Some(*v),
                _ => None,
            });
            let array = items
                .collect::<PrimitiveArray<Decimal128Type>>()
                .with_precision_and_scale(precision, scale)
                .map_err(|error| arrow_error(&error))?;
            Arc::new(array)
        }
        ColumnType::String => {
            let items = values.iter().map(|value| match value {
                Value::String(v) => Some(v.as_str()),
                _ => None,
            });
            Arc::new(items.collect::<StringViewArray>())
        }
        ColumnType::Binary => {
            let items = values.iter().map(|value| match value {
                Value::Binary(v) => Some(v.as_slice()),
                _ => None,
            });
            Arc::new(items.collect::<BinaryViewArray>())
        }
        ColumnType::Uuid => {
            let mut builder = FixedSizeBinaryBuilder::with_capacity(values.len(), UUID_WIDTH);
            for value in &values {
                match value {
                    Value::Binary(v) => {
                        builder.append_value(v).map_err(|error| arrow_error(&error))?;
                    }
                    _ => builder.append_null(),
                }
            }
            Arc::new(builder.finish())
        }
        ColumnType::Date => {
            let items = values.iter().map(|value| match value {
                Value::Date(v) => Some(*v),
                _ => None,
            });
            Arc::new(items.collect::<PrimitiveArray<Date32Type>>())
        }
        // They have no value but NULL.
        ColumnType::Array(_) | ColumnType::Interval => {
            new_null_array(&column_type.arrow(), values.len())
        }
        ColumnType::Timestamp(..) => {
            let items = values.iter().map(|value| match value {
                Value::Timestamp(v) => Some(*v),
                _ => None,
            });
            let ticks: ArrayRef = Arc::new(items.collect::<PrimitiveArray<Int64Type>>());
            cast(&ticks, &column_type.arrow()).map_err(|error| arrow_error(&error))?
        }
    })
}

fn float(value: &Value) -> Option<f64> {
    match value {
        Value::Float(v) => Some(*v),
        _ => None,
    }
}

fn integers<T>(values: &[Value]) -> Result<ArrayRef, Error>
where
    T: ArrowPrimitiveType,
    T::Native: TryFrom<i64> + TryFrom<u64>,
{
    let items = values.iter().map(|value| {
        let item = match value {
            Value::Int(v) => T::Native::try_from(*v).ok(),
            Value::UInt(v) => T::Native::try_from(*v).ok(),
            _ => return Ok(None),
        };
        item.map(Some).ok_or_else(|| Error::Internal(format!("{value} was not coerced")))
    });
    Ok(Arc::new(items.collect::<Result<PrimitiveArray<T>, Error>>()?))
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        Date64Array, FixedSizeBinaryArray, GenericListArray, LargeStringArray, NullArray,
        StringDictionaryBuilder,
    };
    use arrow::buffer::OffsetBuffer;
    use arrow::datatypes::Int8Type as Keys;
    use proptest::prelude::*;

    use super::*;
    use crate::arbitrary::{column_type, nullable};
    use crate::schema::Element;

    proptest! {
        #[test]
        fn values_go_into_an_array_and_come_out_again(
            (column_type, values) in column_type().prop_flat_map(|column_type| {
                (Just(column_type), prop::collection::vec(nullable(column_type), 0..10))
            }),
        ) {
            let array = array_of(column_type, &values).unwrap();
            prop_assert_eq!(array.data_type(), &column_type.arrow());
            let found: Result<Vec<Value>, Error> =
                (0..array.len()).map(|row| Value::from_array(array.as_ref(), row)).collect();
            prop_assert_eq!(found.unwrap(), values.clone());
            prop_assert!(Value::from_array(array.as_ref(), values.len()).is_err());
        }
    }

    #[test]
    fn values_come_out_of_other_arrow_types() {
        let text = LargeStringArray::from(vec![None, Some("x")]);
        assert_eq!(Value::from_array(&text, 0).unwrap(), Value::Null);
        assert_eq!(Value::from_array(&text, 1).unwrap(), Value::String("x".to_owned()));
        let mut builder = StringDictionaryBuilder::<Keys>::new();
        builder.extend([Some("x"), None]);
        let coded = builder.finish();
        assert_eq!(Value::from_array(&coded, 0).unwrap(), Value::String("x".to_owned()));
        assert_eq!(Value::from_array(&coded, 1).unwrap(), Value::Null);
        let bytes = FixedSizeBinaryArray::try_from_iter([[1_u8, 2]].iter()).unwrap();
        assert_eq!(Value::from_array(&bytes, 0).unwrap(), Value::Binary(vec![1, 2]));
        let date = Date64Array::from(vec![-86_400_000]);
        assert_eq!(Value::from_array(&date, 0).unwrap(), Value::Date(-1));
        assert_eq!(Value::from_array(&NullArray::new(1), 0).unwrap(), Value::Null);
    }

    #[test]
    fn values_of_another_type_are_refused_by_name() {
        let error = array_of(ColumnType::Int8, &[Value::Int(128)]).unwrap_err();
        assert_eq!(error, Error::InvalidInput("128 is out of range for TINYINT".to_owned()));
        assert!(array_of(ColumnType::Bool, &[Value::Int(1)]).is_err());
    }

    #[test]
    fn an_array_is_no_single_value_unless_it_is_null() {
        let numbers = ColumnType::Array(Element::Int32);
        let nulls = array_of(numbers, &[Value::Null, Value::Null]).unwrap();
        assert_eq!(nulls.data_type(), &numbers.arrow());
        assert_eq!(Value::from_array(nulls.as_ref(), 1).unwrap(), Value::Null);
        assert!(array_of(numbers, &[Value::Int(1)]).is_err());
        let field = Arc::new(Element::Int32.field());
        let empty = GenericListArray::<i32>::new(
            field,
            OffsetBuffer::from_lengths([0]),
            array_of(ColumnType::Int32, &[]).unwrap(),
            None,
        );
        let error = Value::from_array(&empty, 0).unwrap_err();
        assert_eq!(error, Error::Unsupported("a single value of type INT[]".to_owned()));
    }
}
