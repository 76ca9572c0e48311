//! `arrow_cast` and `arrow_try_cast`: DataFusion's, with bounds on the type that their text names.
//!
//! A value of a type with a fixed width takes that width also where it is NULL: the rows of one batch of
//! `arrow_cast(NULL, 'FixedSizeBinary(2000000000)')` would take 16 terabytes, which Arrow allocates at once. The text is
//! read by a parser that calls itself for each type within another. Times have no other zone than UTC.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::error::Result;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature,
};

use crate::error::{PROGRAM_LIMIT_EXCEEDED, STATEMENT_TOO_COMPLEX, SqlError};
use crate::functions::builtin;
use crate::steps::in_utc;

/// Maximum bytes of a value of fixed width: in all rows of a batch, it takes 128 megabytes.
const WIDTH_MAX: u64 = 16 << 10;
/// Maximum number of types within each other.
const DEPTH_MAX: usize = 16;
/// Approximate bytes of a value of any other type.
const VALUE_BYTES: u64 = 16;

/// The wrapped functions, under DataFusion's names.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    ["arrow_cast", "arrow_try_cast"].into_iter().filter_map(|name| {
        let inner = Arc::clone(builtin(name)?);
        Some(ScalarUDF::from(NamedType { inner }))
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct NamedType {
    inner: Arc<ScalarUDF>,
}

impl NamedType {
    fn inner(&self) -> &dyn ScalarUDFImpl {
        self.inner.inner().as_ref()
    }
}

impl ScalarUDFImpl for NamedType {
    fn name(&self) -> &str {
        self.inner().name()
    }

    fn signature(&self) -> &Signature {
        self.inner().signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner().return_type(types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        if let Some(Some(text)) = args.scalar_arguments.get(1)
            && let Some(Some(text)) = text.try_as_str()
        {
            check_depth(text)?;
        }
        let field = self.inner().return_field_from_args(args)?;
        check_width(field.data_type())?;
        check_zones(field.data_type())?;
        Ok(field)
    }

    /// DataFusion writes the call as a cast.
    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        self.inner().simplify(args, info)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.inner().invoke_with_args(args)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner().documentation()
    }
}

/// Refuses the text of a type that has too many types within each other.
fn check_depth(text: &str) -> Result<()> {
    let mut depth = 0_usize;
    for byte in text.bytes() {
        match byte {
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEPTH_MAX {
            return Err(SqlError::new(STATEMENT_TOO_COMPLEX, "type is nested too deeply").into());
        }
    }
    Ok(())
}

/// Refuses a type of times in a zone other than UTC. Arrow panics where the local time of such a value lies beyond its
/// calendar.
fn check_zones(data_type: &DataType) -> Result<()> {
    match data_type {
        DataType::Timestamp(_, zone) if !in_utc(zone.as_deref()) => {
            let error = SqlError::unsupported("a type of times in a zone other than UTC");
            Err(error.with_hint("AT TIME ZONE converts to the local time of a zone").into())
        }
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _)
        | DataType::RunEndEncoded(_, item) => check_zones(item.data_type()),
        DataType::Dictionary(_, values) => check_zones(values),
        DataType::Struct(fields) => {
            fields.iter().try_for_each(|field| check_zones(field.data_type()))
        }
        DataType::Union(fields, _) => {
            fields.iter().try_for_each(|(_, field)| check_zones(field.data_type()))
        }
        _ => Ok(()),
    }
}

/// Refuses a type whose values all take many bytes.
fn check_width(data_type: &DataType) -> Result<()> {
    let width = width(data_type);
    if width <= WIDTH_MAX {
        return Ok(());
    }
    let message = format!("value of the type would take {width} bytes, the limit is {WIDTH_MAX}");
    Err(SqlError::new(PROGRAM_LIMIT_EXCEEDED, message).into())
}

/// Bytes that a value takes in any case. For lists, these are the bytes of one element.
fn width(data_type: &DataType) -> u64 {
    match data_type {
        DataType::FixedSizeBinary(bytes) => u64::try_from(*bytes).unwrap_or(0),
        DataType::FixedSizeList(item, length) => {
            u64::try_from(*length).unwrap_or(0).saturating_mul(width(item.data_type()))
        }
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::Map(item, _)
        | DataType::RunEndEncoded(_, item) => width(item.data_type()),
        DataType::Dictionary(_, values) => width(values),
        DataType::Struct(fields) => {
            fields.iter().map(|field| width(field.data_type())).fold(0, u64::saturating_add)
        }
        DataType::Union(fields, _) => {
            fields.iter().map(|(_, field)| width(field.data_type())).fold(0, u64::saturating_add)
        }
        other => other.primitive_width().map_or(VALUE_BYTES, |width| width as u64),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use super::*;

    /// The type of an expression, or the SQLSTATE of its error.
    async fn answer(expression: &str) -> std::result::Result<String, String> {
        let context = SessionContext::new();
        for function in functions() {
            context.register_udf(function);
        }
        let run = async {
            let sql = format!("SELECT {expression} AS v FROM generate_series(1, 3)");
            let batches = context.sql(&sql).await?.collect().await?;
            Ok::<_, datafusion::error::DataFusionError>(batches[0].schema())
        };
        let schema = run.await.map_err(|error| SqlError::from(error).sqlstate)?;
        Ok(schema.field(0).data_type().to_string())
    }

    #[tokio::test]
    async fn types_that_take_many_bytes_in_any_case_are_refused() {
        for function in ["arrow_cast", "arrow_try_cast"] {
            for wide in [
                "FixedSizeBinary(2000000000)",
                "FixedSizeBinary(16385)",
                "FixedSizeList(2000000000, Int64)",
                "FixedSizeList(2000, FixedSizeList(2000, Int8))",
                "List(FixedSizeBinary(2000000000))",
                "Dictionary(Int32, FixedSizeBinary(2000000000))",
            ] {
                let call = format!("{function}(NULL, '{wide}')");
                assert_eq!(answer(&call).await, Err("54000".to_owned()), "{call}");
            }
            let deep = format!("{}Int8{}", "List(".repeat(100_000), ")".repeat(100_000));
            let call = format!("{function}(NULL, '{deep}')");
            assert_eq!(answer(&call).await, Err("54001".to_owned()), "{function}");
        }
    }

    #[tokio::test]
    async fn types_of_times_in_other_zones_are_refused() {
        for named in [
            "Timestamp(Microsecond, Some(\"+14:00\"))",
            "List(Timestamp(Second, Some(\"Asia/Tokyo\")))",
        ] {
            let call = format!("arrow_cast(NULL, '{named}')");
            assert_eq!(answer(&call).await, Err("0A000".to_owned()), "{call}");
        }
        let utc = "arrow_cast(NULL, 'Timestamp(Microsecond, Some(\"UTC\"))')";
        assert!(answer(utc).await.is_ok());
    }

    #[tokio::test]
    async fn other_types_are_what_they_were() {
        for named in ["Int8", "LargeUtf8", "FixedSizeBinary(16)"] {
            let call = format!("arrow_cast(NULL, '{named}')");
            assert_eq!(answer(&call).await, Ok(named.to_owned()), "{call}");
        }
        assert!(answer("arrow_cast([1.5, 2], 'FixedSizeList(2, Float32)')").await.is_ok());
    }
}
