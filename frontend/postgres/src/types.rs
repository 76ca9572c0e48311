//! Arrow's types as PostgreSQL's.
//!
//! PostgreSQL has no unsigned integers: each becomes the smallest signed type that can hold it, the largest a
//! `numeric`. Types without an equivalent in PostgreSQL (structs, maps, unions) are reported as text.

use std::collections::HashMap;

use arrow::datatypes::{DataType, Field};
use partita_frontend::padded::letters;
use partita_proto::schema::{JsonType, TextLength, UUID};
use pgwire::api::Type;
use pgwire::api::results::FieldInfo;

/// Marks a column of `pg_catalog` that holds object ids; the value names the alias type.
const OID_ALIAS: &str = "pg.oid_alias";
/// Marks a column of `pg_catalog` of the one-byte type `"char"`.
const CHAR: &str = "pg.char";

/// Version of the binary format of JSONB, its first byte.
pub(crate) const JSONB_VERSION: u8 = 1;

/// The header size that PostgreSQL includes in type modifiers.
const HEADER: i32 = 4;

/// Marks a column of object ids, or arrays of them.
pub(crate) fn marked_as_oid(field: Field) -> Field {
    field.with_metadata(HashMap::from([(OID_ALIAS.to_owned(), "oid".to_owned())]))
}

/// Marks a column of the one-byte type `"char"`.
pub(crate) fn marked_as_char(field: Field) -> Field {
    field.with_metadata(HashMap::from([(CHAR.to_owned(), "char".to_owned())]))
}

/// The type of a result column.
///
/// A mark counts only on the types that it is put on: casts to other types carry it along.
pub(crate) fn of_field(field: &Field) -> Type {
    let item = item(field.data_type());
    let values = item.unwrap_or(field.data_type());
    let marked = match field.metadata().get(OID_ALIAS).map(String::as_str) {
        Some(kind) if *values == DataType::Int32 => alias(kind),
        _ if field.metadata().contains_key(CHAR) && values.is_string() => Some(Type::CHAR),
        _ => JsonType::of_field(field).or_else(|| JsonType::of_elements(field)).map(of_json),
    };
    match (marked, item) {
        (Some(marked), Some(_)) => array_of(&marked),
        (Some(marked), None) => marked,
        (None, _) if letters(field).is_some() => Type::BPCHAR,
        (None, _) => of_arrow(field.data_type()),
    }
}

/// The alias type of object ids for a mark's value.
fn alias(kind: &str) -> Option<Type> {
    Some(match kind {
        "oid" => Type::OID,
        "regproc" => Type::REGPROC,
        "regclass" => Type::REGCLASS,
        "regtype" => Type::REGTYPE,
        "regnamespace" => Type::REGNAMESPACE,
        "regrole" => Type::REGROLE,
        _ => return None,
    })
}

/// The element type of an array type; `None` for other types.
fn item(data_type: &DataType) -> Option<&DataType> {
    match data_type {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _) => Some(item.data_type()),
        _ => None,
    }
}

/// The element type of one of PostgreSQL's array types.
pub(crate) fn element(array: &Type) -> Option<&Type> {
    match array.kind() {
        postgres_types::Kind::Array(element) => Some(element),
        _ => None,
    }
}

/// PostgreSQL's type for values of an Arrow type.
pub(crate) fn of_arrow(data_type: &DataType) -> Type {
    // Unsigned integers become the next larger signed type.
    match data_type {
        DataType::Boolean => Type::BOOL,
        DataType::Int8 | DataType::Int16 | DataType::UInt8 => Type::INT2,
        DataType::Int32 | DataType::UInt16 => Type::INT4,
        DataType::Int64 | DataType::UInt32 => Type::INT8,
        DataType::UInt64
        | DataType::Decimal32(..)
        | DataType::Decimal64(..)
        | DataType::Decimal128(..)
        | DataType::Decimal256(..) => Type::NUMERIC,
        DataType::Float16 | DataType::Float32 => Type::FLOAT4,
        DataType::Float64 => Type::FLOAT8,
        // Types of time.
        DataType::Timestamp(_, None) => Type::TIMESTAMP,
        DataType::Timestamp(_, Some(_)) => Type::TIMESTAMPTZ,
        DataType::Date32 | DataType::Date64 => Type::DATE,
        DataType::Time32(_) | DataType::Time64(_) => Type::TIME,
        DataType::Interval(_) | DataType::Duration(_) => Type::INTERVAL,
        &UUID => Type::UUID,
        // Encodings of a type are described as the type itself.
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => Type::BYTEA,
        DataType::Dictionary(_, values) => of_arrow(values),
        DataType::RunEndEncoded(_, values) => of_arrow(values.data_type()),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _) => array_of(&of_field(item)),
        _ => Type::TEXT,
    }
}

/// The array type for an element type; an array of texts if there is none.
pub(crate) fn array_of(element: &Type) -> Type {
    match *element {
        Type::BOOL => Type::BOOL_ARRAY,
        Type::INT2 => Type::INT2_ARRAY,
        Type::INT4 => Type::INT4_ARRAY,
        Type::INT8 => Type::INT8_ARRAY,
        Type::NUMERIC => Type::NUMERIC_ARRAY,
        Type::FLOAT4 => Type::FLOAT4_ARRAY,
        Type::FLOAT8 => Type::FLOAT8_ARRAY,
        Type::TIMESTAMP => Type::TIMESTAMP_ARRAY,
        Type::TIMESTAMPTZ => Type::TIMESTAMPTZ_ARRAY,
        Type::DATE => Type::DATE_ARRAY,
        Type::TIME => Type::TIME_ARRAY,
        Type::INTERVAL => Type::INTERVAL_ARRAY,
        Type::BYTEA => Type::BYTEA_ARRAY,
        Type::UUID => Type::UUID_ARRAY,
        Type::OID => Type::OID_ARRAY,
        Type::REGPROC => Type::REGPROC_ARRAY,
        Type::REGCLASS => Type::REGCLASS_ARRAY,
        Type::REGTYPE => Type::REGTYPE_ARRAY,
        Type::REGNAMESPACE => Type::REGNAMESPACE_ARRAY,
        Type::REGROLE => Type::REGROLE_ARRAY,
        Type::CHAR => Type::CHAR_ARRAY,
        Type::JSON => Type::JSON_ARRAY,
        Type::JSONB => Type::JSONB_ARRAY,
        _ => Type::TEXT_ARRAY,
    }
}

/// The number of characters to which texts of a result column are padded, if it is a CHAR(n).
pub(crate) fn letters_of(column: &FieldInfo) -> Option<usize> {
    let is_padded = *column.datatype() == Type::BPCHAR;
    is_padded.then(|| usize::try_from(column.type_modifier() - HEADER).ok()).flatten()
}

/// The type of a text column with a length, and its modifier.
pub(crate) fn of_text(length: TextLength) -> (Type, i32) {
    let data_type = if length.fixed { Type::BPCHAR } else { Type::VARCHAR };
    let modifier = i32::try_from(length.characters).map_or(-1, |characters| characters + HEADER);
    (data_type, modifier)
}

/// PostgreSQL's type of JSON.
pub(crate) fn of_json(json: JsonType) -> Type {
    match json {
        JsonType::Json => Type::JSON,
        JsonType::Jsonb => Type::JSONB,
    }
}

/// Returns true if values are compared by a collation.
pub(crate) fn is_text(data_type: &Type) -> bool {
    matches!(*data_type, Type::TEXT | Type::VARCHAR | Type::BPCHAR)
}

/// Bytes of a value in the binary format; -1 when they vary.
pub(crate) fn size(data_type: &Type) -> i16 {
    match *data_type {
        Type::BOOL | Type::CHAR => 1,
        Type::INT2 => 2,
        Type::INT4
        | Type::FLOAT4
        | Type::DATE
        | Type::OID
        | Type::REGPROC
        | Type::REGCLASS
        | Type::REGTYPE
        | Type::REGNAMESPACE
        | Type::REGROLE => 4,
        Type::INT8 | Type::FLOAT8 | Type::TIMESTAMP | Type::TIMESTAMPTZ | Type::TIME => 8,
        Type::INTERVAL | Type::UUID => 16,
        _ => -1,
    }
}

/// The type modifier of a result column: that of its type, or the length of a CHAR(n).
pub(crate) fn modifier_of(field: &Field) -> i32 {
    match letters(field).map(i32::try_from) {
        Some(letters) => letters.map_or(-1, |letters| letters.saturating_add(HEADER)),
        None => modifier(field.data_type()),
    }
}

/// PostgreSQL's type modifier: precision and scale of a numeric, fractional digits of a time, -1 for none.
pub(crate) fn modifier(data_type: &DataType) -> i32 {
    match data_type {
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => {
            (i32::from(*precision) << 16) + (i32::from(*scale) & 0x7ff) + HEADER
        }
        DataType::Timestamp(unit, _) => match unit {
            arrow::datatypes::TimeUnit::Second => 0,
            arrow::datatypes::TimeUnit::Millisecond => 3,
            arrow::datatypes::TimeUnit::Microsecond | arrow::datatypes::TimeUnit::Nanosecond => 6,
        },
        // That of the elements.
        DataType::List(item) => modifier(item.data_type()),
        _ => -1,
    }
}

/// SQL's name of a type, with its modifier where it has any.
pub(crate) fn type_name(data_type: &Type, modifier: i32) -> String {
    let is_vector = [Type::INT2_VECTOR, Type::OID_VECTOR].contains(data_type);
    if let Some(element) = element(data_type).filter(|_| !is_vector) {
        return format!("{}[]", type_name(element, modifier));
    }
    let digits = if modifier >= 0 { format!("({modifier})") } else { String::new() };
    match *data_type {
        Type::BOOL => "boolean".to_owned(),
        Type::INT2 => "smallint".to_owned(),
        Type::INT4 => "integer".to_owned(),
        Type::INT8 => "bigint".to_owned(),
        Type::FLOAT4 => "real".to_owned(),
        Type::FLOAT8 => "double precision".to_owned(),
        Type::VARCHAR if modifier >= 4 => format!("character varying({})", modifier - 4),
        Type::BPCHAR if modifier >= 4 => format!("character({})", modifier - 4),
        Type::VARCHAR => "character varying".to_owned(),
        Type::BPCHAR => "character".to_owned(),
        Type::CHAR => "\"char\"".to_owned(),
        Type::NUMERIC if modifier >= 4 => {
            let packed = modifier - 4;
            format!("numeric({},{})", packed >> 16, packed & 0x7ff)
        }
        Type::TIMESTAMP => format!("timestamp{digits} without time zone"),
        Type::TIMESTAMPTZ => format!("timestamp{digits} with time zone"),
        Type::TIME => format!("time{digits} without time zone"),
        Type::TIMETZ => format!("time{digits} with time zone"),
        Type::VARBIT => "bit varying".to_owned(),
        _ => data_type.name().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_counts_for_numbers_and_arrays_of_them() {
        let marked = |of: DataType| of_field(&marked_as_oid(Field::new("x", of, true)));
        let list = |of| DataType::new_list(of, true);
        assert_eq!(marked(DataType::Int32), Type::OID);
        assert_eq!(marked(list(DataType::Int32)), Type::OID_ARRAY);
        // As `oid::text` and `oid::bigint` have it.
        assert_eq!(marked(DataType::Utf8View), Type::TEXT);
        assert_eq!(marked(DataType::Int64), Type::INT8);
        assert_eq!(of_field(&Field::new("x", list(DataType::Int32), true)), Type::INT4_ARRAY);
    }

    #[test]
    fn an_array_has_the_modifier_of_its_elements() {
        let decimal = DataType::Decimal128(10, 2);
        let list = DataType::new_list(decimal.clone(), true);
        assert_eq!(of_arrow(&list), Type::NUMERIC_ARRAY);
        assert_eq!(modifier(&list), modifier(&decimal));
        assert_eq!(modifier(&DataType::new_list(DataType::Int32, true)), -1);
    }

    #[test]
    fn only_16_bytes_are_a_uuid() {
        assert_eq!(of_arrow(&UUID), Type::UUID);
        assert_eq!(of_arrow(&DataType::new_list(UUID, true)), Type::UUID_ARRAY);
        assert_eq!(of_arrow(&DataType::FixedSizeBinary(15)), Type::BYTEA);
        assert_eq!(size(&Type::UUID), 16);
    }
}
