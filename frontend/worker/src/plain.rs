//! Scalar functions that are written down as types and one computation over arrays.
//!
//! Invariants: a function is NULL where an argument is, unless it says otherwise; texts that it makes are bounded as those
//! of DataFusion's functions are (`bounded.rs`).

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

/// A function.
pub(crate) struct Plain {
    /// Its name.
    pub(crate) name: &'static str,
    /// The types that arguments of these types become; `None` when there is no such function.
    pub(crate) takes: fn(&[DataType]) -> Option<Vec<DataType>>,
    /// The type of its values, of arguments of those types.
    pub(crate) gives: fn(&[DataType]) -> DataType,
    /// Its values. Every argument is as long as the result has to be.
    pub(crate) run: fn(&[ArrayRef]) -> Result<ArrayRef>,
}

impl Plain {
    /// The function, as DataFusion has it.
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
        let made = (self.plain.run)(&arrays)?;
        if constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&made, 0)?));
        }
        Ok(ColumnarValue::Array(made))
    }
}

fn undefined(name: &str, types: &[DataType]) -> datafusion::error::DataFusionError {
    let types: Vec<String> = types.iter().map(crate::checked::sql_name).collect();
    let message = format!("function {name}({}) does not exist", types.join(", "));
    SqlError::new(UNDEFINED_FUNCTION, message)
        .with_hint("No function matches the given name and argument types. You might need to add explicit type casts.")
        .into()
}

/// Whether a value of the type may stand for a text without a cast.
pub(crate) fn is_text(of: &DataType) -> bool {
    of.is_string() || of.is_null()
}

/// Whether a value of the type may stand for a number.
pub(crate) fn is_number(of: &DataType) -> bool {
    of.is_numeric() || of.is_null()
}

/// Whether a value of the type may stand for a whole number.
pub(crate) fn is_whole(of: &DataType) -> bool {
    of.is_integer() || of.is_null()
}

/// `count` arguments of `to`, when `of` are so many and each passes.
pub(crate) fn all(
    of: &[DataType],
    count: usize,
    passes: fn(&DataType) -> bool,
    to: &DataType,
) -> Option<Vec<DataType>> {
    (of.len() == count && of.iter().all(passes)).then(|| vec![to.clone(); count])
}

/// An argument as texts.
pub(crate) fn texts(of: &ArrayRef) -> Result<StringArray> {
    Ok(cast(of, &DataType::Utf8)?.as_string::<i32>().clone())
}

/// An argument as whole numbers.
pub(crate) fn wholes(of: &ArrayRef) -> Result<Int64Array> {
    Ok(cast(of, &DataType::Int64)?.as_primitive::<Int64Type>().clone())
}

/// An argument as doubles.
pub(crate) fn doubles(of: &ArrayRef) -> Result<Float64Array> {
    Ok(cast(of, &DataType::Float64)?.as_primitive::<Float64Type>().clone())
}

/// Doubles of doubles, each of which may be an error.
pub(crate) fn of_double(
    of: &ArrayRef,
    compute: impl Fn(f64) -> Result<f64, SqlError>,
) -> Result<ArrayRef> {
    let values = doubles(of)?;
    let made = values.iter().map(|value| value.map(&compute).transpose());
    Ok(Arc::new(made.collect::<Result<Float64Array, SqlError>>()?))
}

/// Texts that are made one by one, within bounds.
pub(crate) struct Texts {
    name: &'static str,
    made: StringBuilder,
    rows: usize,
    total: u64,
}

impl Texts {
    /// For the values of a function in so many rows.
    pub(crate) fn new(name: &'static str, rows: usize) -> Self {
        Self { name, made: StringBuilder::with_capacity(rows, rows * 8), rows, total: 0 }
    }

    /// Adds a value.
    ///
    /// # Errors
    /// When it is too large, or those so far are together.
    pub(crate) fn push(&mut self, text: Option<impl AsRef<str>>) -> Result<()> {
        let Some(text) = text else {
            self.made.append_null();
            return Ok(());
        };
        let size = u64::try_from(text.as_ref().len()).unwrap_or(u64::MAX);
        check_size(self.name, size)?;
        self.total = self.total.saturating_add(size);
        check_total(self.name, self.rows, self.total)?;
        self.made.append_value(text);
        Ok(())
    }

    /// All values.
    pub(crate) fn finish(mut self) -> ArrayRef {
        Arc::new(self.made.finish())
    }
}

/// The text that is made of each text.
pub(crate) fn text_of_text(
    name: &'static str,
    of: &ArrayRef,
    make: impl Fn(&str) -> Result<String, SqlError>,
) -> Result<ArrayRef> {
    let values = texts(of)?;
    let mut made = Texts::new(name, values.len());
    for value in &values {
        made.push(value.map(&make).transpose()?)?;
    }
    Ok(made.finish())
}
