//! Scalar functions that are defined by types and one computation over arrays.
//!
//! Invariants: a function returns NULL where an argument is NULL, unless its own docs say otherwise; texts that it
//! makes are bounded like those of DataFusion's functions (`bounded.rs`).

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, Int64Array, StringArray, StringBuilder,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};

use crate::bounded::{check_size, check_total};
use crate::error::{SqlError, UNDEFINED_FUNCTION};

/// Definition of a function.
pub(crate) struct Plain {
    /// Name in SQL.
    pub(crate) name: &'static str,
    /// Coerced types of the arguments; `None` when there is no such function.
    pub(crate) takes: fn(&[DataType]) -> Option<Vec<DataType>>,
    /// Type of the result for coerced types.
    pub(crate) gives: fn(&[DataType]) -> DataType,
    /// Computes the result. Every argument has as many rows as the result.
    pub(crate) run: fn(&[ArrayRef]) -> Result<ArrayRef>,
}

impl Plain {
    /// Wraps the definition as a function of DataFusion.
    pub(crate) fn function(&'static self) -> ScalarUDF {
        let takes = vec![TypeSignature::UserDefined, TypeSignature::Nullary];
        let takes = if (self.takes)(&[]).is_some() {
            Signature::one_of(takes, Volatility::Immutable)
        } else {
            Signature::user_defined(Volatility::Immutable)
        };
        ScalarUDF::from(Function { plain: self, signature: takes })
    }
}

struct Function {
    plain: &'static Plain,
    signature: Signature,
}

impl std::fmt::Debug for Function {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Function").field(&self.plain.name).finish()
    }
}

impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        self.plain.name == other.plain.name
    }
}

impl Eq for Function {}

impl Hash for Function {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.plain.name.hash(state);
    }
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        self.plain.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        (self.plain.takes)(types).ok_or_else(|| undefined(self.plain.name, types))
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok((self.plain.gives)(types))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if constant && !args.args.is_empty() { 1 } else { args.number_rows };
        let arrays: Vec<ArrayRef> =
            args.args.iter().map(|arg| arg.to_array(rows)).collect::<Result<_>>()?;
        let values = (self.plain.run)(&arrays)?;
        if constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&values, 0)?));
        }
        Ok(ColumnarValue::Array(values))
    }
}

fn undefined(name: &str, types: &[DataType]) -> datafusion::error::DataFusionError {
    let types: Vec<String> = types.iter().map(crate::checked::sql_name).collect();
    let message = format!("function {name}({}) does not exist", types.join(", "));
    SqlError::new(UNDEFINED_FUNCTION, message)
        .with_hint("No function matches the given name and argument types. You might need to add explicit type casts.")
        .into()
}

/// Returns true if a value of the type can be used as a text without a cast.
pub(crate) fn is_text(data_type: &DataType) -> bool {
    data_type.is_string() || data_type.is_null()
}

/// Returns true if a value of the type can be used as a number.
pub(crate) fn is_number(data_type: &DataType) -> bool {
    data_type.is_numeric() || data_type.is_null()
}

/// Returns true if a value of the type can be used as a whole number.
pub(crate) fn is_whole(data_type: &DataType) -> bool {
    data_type.is_integer() || data_type.is_null()
}

/// Coerces exactly `count` arguments to `target`, if each passes.
pub(crate) fn all(
    types: &[DataType],
    count: usize,
    passes: fn(&DataType) -> bool,
    target: &DataType,
) -> Option<Vec<DataType>> {
    (types.len() == count && types.iter().all(passes)).then(|| vec![target.clone(); count])
}

/// An argument as texts.
pub(crate) fn texts(argument: &ArrayRef) -> Result<StringArray> {
    Ok(cast(argument, &DataType::Utf8)?.as_string::<i32>().clone())
}

/// An argument as whole numbers.
pub(crate) fn wholes(argument: &ArrayRef) -> Result<Int64Array> {
    Ok(cast(argument, &DataType::Int64)?.as_primitive::<Int64Type>().clone())
}

/// An argument as doubles.
pub(crate) fn doubles(argument: &ArrayRef) -> Result<Float64Array> {
    Ok(cast(argument, &DataType::Float64)?.as_primitive::<Float64Type>().clone())
}

/// Applies a function to doubles; each call may fail.
pub(crate) fn of_double(
    argument: &ArrayRef,
    compute: impl Fn(f64) -> Result<f64, SqlError>,
) -> Result<ArrayRef> {
    let values = doubles(argument)?;
    let results = values.iter().map(|value| value.map(&compute).transpose());
    Ok(Arc::new(results.collect::<Result<Float64Array, SqlError>>()?))
}

/// Builder of texts that bounds their size.
pub(crate) struct Texts {
    name: &'static str,
    builder: StringBuilder,
    rows: usize,
    total: u64,
}

impl Texts {
    /// `name` is the function for errors, `rows` the number of values.
    pub(crate) fn new(name: &'static str, rows: usize) -> Self {
        Self { name, builder: StringBuilder::with_capacity(rows, rows * 8), rows, total: 0 }
    }

    /// Adds a value.
    ///
    /// # Errors
    /// When the value, or all values so far, are too large.
    pub(crate) fn push(&mut self, text: Option<impl AsRef<str>>) -> Result<()> {
        let Some(text) = text else {
            self.builder.append_null();
            return Ok(());
        };
        let size = u64::try_from(text.as_ref().len()).unwrap_or(u64::MAX);
        check_size(self.name, size)?;
        self.total = self.total.saturating_add(size);
        check_total(self.name, self.rows, self.total)?;
        self.builder.append_value(text);
        Ok(())
    }

    /// Returns the array of all values.
    pub(crate) fn finish(mut self) -> ArrayRef {
        Arc::new(self.builder.finish())
    }
}

/// Applies a function to texts; each call may fail.
pub(crate) fn text_of_text(
    name: &'static str,
    argument: &ArrayRef,
    make: impl Fn(&str) -> Result<String, SqlError>,
) -> Result<ArrayRef> {
    let values = texts(argument)?;
    let mut results = Texts::new(name, values.len());
    for value in &values {
        results.push(value.map(&make).transpose()?)?;
    }
    Ok(results.finish())
}
