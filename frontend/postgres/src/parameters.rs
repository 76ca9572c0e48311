//! Bound parameters as values.

use arrow::datatypes::DataType;
use arrow_pg::datatypes::df::deserialize_parameters;
use arrow_pg::datatypes::into_pg_type;
use datafusion::common::ParamValues;
use datafusion::scalar::ScalarValue;
use partita_frontend::Prepared;
use pgwire::api::Type;
use pgwire::api::portal::Portal;
use pgwire::error::PgWireResult;
use std::sync::Arc;

use crate::error::protocol;

/// The types that a client declared, as far as they say anything.
pub(crate) fn declared(types: &[Option<Type>]) -> Vec<Option<DataType>> {
    types.iter().map(|declared| declared.as_ref().and_then(to_arrow)).collect()
}

/// The Arrow type of a declared one; `None` leaves the choice to the statement.
fn to_arrow(declared: &Type) -> Option<DataType> {
    use arrow::datatypes::TimeUnit;
    Some(match *declared {
        Type::BOOL => DataType::Boolean,
        Type::INT2 => DataType::Int16,
        Type::INT4 => DataType::Int32,
        Type::INT8 => DataType::Int64,
        Type::FLOAT4 => DataType::Float32,
        Type::FLOAT8 => DataType::Float64,
        Type::VARCHAR | Type::TEXT | Type::BPCHAR | Type::NAME => DataType::Utf8View,
        Type::BYTEA => DataType::BinaryView,
        Type::DATE => DataType::Date32,
        Type::TIMESTAMP => DataType::Timestamp(TimeUnit::Microsecond, None),
        Type::TIMESTAMPTZ => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        _ => return None,
    })
}

/// What the server takes parameters as.
pub(crate) fn types(prepared: &Prepared) -> PgWireResult<Vec<Type>> {
    prepared.parameter_types.iter().map(into_pg_type).collect()
}

/// A portal's parameters.
pub(crate) fn values(portal: &Portal<Arc<Prepared>>) -> PgWireResult<Vec<ScalarValue>> {
    let prepared = &portal.statement.statement;
    let expected = prepared.parameter_types.len();
    if portal.parameter_len() != expected {
        return Err(protocol(
            "08P01",
            format!(
                "bind message supplies {} parameters, but prepared statement \"{}\" requires {expected}",
                portal.parameter_len(),
                portal.statement.id
            ),
        ));
    }
    if expected == 0 {
        return Ok(Vec::new());
    }
    let inferred: Vec<Option<&DataType>> = prepared.parameter_types.iter().map(Some).collect();
    match deserialize_parameters(portal, &inferred)? {
        ParamValues::List(values) => Ok(values.into_iter().map(|value| value.value).collect()),
        ParamValues::Map(_) => Err(protocol("XX000", "parameters came by name")),
    }
}
