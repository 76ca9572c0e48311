//! The form of functions of JSON: types, the mark of the result, and one computation over arrays.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, StringViewArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    TypeSignature, Volatility,
};
use partita_proto::json::JsonType;

use super::normal::normalised;
use crate::error::{INVALID_PARAMETER_VALUE, SqlError, UNDEFINED_FUNCTION};

/// Definition of a function.
pub(super) struct Definition {
    /// Name in SQL.
    pub(super) name: &'static str,
    /// Coerced types of the arguments; `None` when there is no such function.
    pub(super) takes: fn(&[DataType]) -> Option<Vec<DataType>>,
    pub(super) gives: Gives,
    /// Not immutable for functions that see the marks of their arguments.
    pub(super) volatility: Volatility,
    /// Computes the result, which has `rows` rows.
    pub(super) run: fn(&Call<'_>) -> Result<ArrayRef>,
}

/// Type of a result.
#[derive(Clone, Copy)]
pub(super) enum Gives {
    Json(JsonType),
    /// JSON or JSONB as the first argument is.
    LikeFirst,
    /// An array of them.
    ListLikeFirst,
    Text,
    TextList,
    Boolean,
    Int32,
    Int64,
    Float64,
    Bytes,
}

impl Gives {
    fn data_type(self) -> DataType {
        match self {
            // As columns have them, so that marks are not lost to casts.
            Self::Json(_) | Self::LikeFirst | Self::Text => DataType::Utf8View,
            Self::ListLikeFirst | Self::TextList => DataType::new_list(DataType::Utf8, true),
            Self::Boolean => DataType::Boolean,
            Self::Int32 => DataType::Int32,
            Self::Int64 => DataType::Int64,
            Self::Float64 => DataType::Float64,
            Self::Bytes => DataType::BinaryView,
        }
    }
}

/// Arguments of a call; each has as many rows as the result.
pub(super) struct Call<'a> {
    pub(super) name: &'static str,
    pub(super) arguments: &'a [ArrayRef],
    pub(super) fields: &'a [FieldRef],
    pub(super) rows: usize,
}

impl Call<'_> {
    /// An argument as texts.
    pub(super) fn texts(&self, position: usize) -> Result<StringViewArray> {
        Ok(cast(&self.arguments[position], &DataType::Utf8View)?.as_string_view().clone())
    }

    /// The first argument as texts; those of a function of JSONB have the normal form, whatever text it was.
    ///
    /// # Errors
    /// 22P02 for a text that is no JSON and has no normal form.
    pub(super) fn values(&self) -> Result<StringViewArray> {
        let texts = self.texts(0)?;
        let is_normal = JsonType::of_field(&self.fields[0]) == Some(JsonType::Jsonb);
        if is_normal || !self.name.starts_with("jsonb_") {
            return Ok(texts);
        }
        let texts = texts.iter().map(|text| text.map(normalised).transpose());
        Ok(texts.collect::<std::result::Result<_, SqlError>>()?)
    }
}

impl Definition {
    /// Wraps the definition as a function of DataFusion.
    pub(super) fn function(&'static self) -> ScalarUDF {
        let takes = vec![TypeSignature::UserDefined, TypeSignature::Nullary];
        let signature = if (self.takes)(&[]).is_some() {
            Signature::one_of(takes, self.volatility)
        } else {
            Signature::user_defined(self.volatility)
        };
        ScalarUDF::from(Function { definition: self, signature })
    }
}

struct Function {
    definition: &'static Definition,
    signature: Signature,
}

impl std::fmt::Debug for Function {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Function").field(&self.definition.name).finish()
    }
}

impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        self.definition.name == other.definition.name
    }
}

impl Eq for Function {}

impl Hash for Function {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.definition.name.hash(state);
    }
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        self.definition.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        (self.definition.takes)(types).ok_or_else(|| undefined(self.definition.name, types))
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.definition.gives.data_type())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let gives = self.definition.gives;
        let field = Field::new(self.definition.name, gives.data_type(), true);
        let of_first = || {
            let first = args.arg_fields.first();
            first.and_then(|first| JsonType::of_field(first)).unwrap_or(JsonType::Json)
        };
        let json = match gives {
            Gives::Json(json) => Some(json),
            Gives::LikeFirst | Gives::ListLikeFirst => Some(of_first()),
            _ => None,
        };
        Ok(Arc::new(match json {
            Some(json) => json.marked(field),
            None => field,
        }))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { args.number_rows };
        let arguments: Vec<ArrayRef> =
            args.args.iter().map(|arg| arg.to_array(rows)).collect::<Result<_>>()?;
        let call = Call {
            name: self.definition.name,
            arguments: &arguments,
            fields: &args.arg_fields,
            rows,
        };
        let values = cast(&(self.definition.run)(&call)?, &self.definition.gives.data_type())?;
        if constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&values, 0)?));
        }
        Ok(ColumnarValue::Array(values))
    }
}

fn undefined(name: &str, types: &[DataType]) -> DataFusionError {
    let types: Vec<String> = types.iter().map(crate::checked::sql_name).collect();
    let message = format!("function {name}({}) does not exist", types.join(", "));
    SqlError::new(UNDEFINED_FUNCTION, message)
        .with_hint("No function matches the given name and argument types. You might need to add explicit type casts.")
        .into()
}

/// The error of a value that a function does not take.
pub(super) fn refused(message: impl Into<String>) -> SqlError {
    SqlError::new(INVALID_PARAMETER_VALUE, message)
}
