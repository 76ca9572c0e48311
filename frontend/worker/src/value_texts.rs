//! Conversion of values to text in statements, in PostgreSQL's format (`value_text.rs`) where DataFusion's differs.
//!
//! ```text
//!   text_of(value [, zone])       CAST(value AS TEXT), and a value beside a text in `||`
//!   text_out(value [, zone])      like `text_of`, but in the format of output functions: a boolean is `t`
//!   texts_of(array [, zone])      an array of the texts of the elements: CAST(array AS TEXT[])
//!   texts_out(array [, zone])     like `texts_of`, in the format of output functions, with all dimensions flattened
//! ```
//!
//! Statements do not call these functions: [`OutputTexts`] wraps arguments of `concat` and similar functions in them
//! before types are coerced, and the frontend replaces casts by them. Instants are shown in the zone, which defaults to
//! UTC.
//!
//! Invariant: texts are bounded while they are written, like those of other functions (`bounded.rs`).

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, StringBuilder};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field};
use bytes::BytesMut;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue, exec_err};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility, lit,
};
use partita_proto::schema::UUID;

use crate::bounded::{check_size, check_total};
use crate::error::SqlError;
use crate::functions::REGISTRY;
use crate::value_text::{TextColumn, plain};
use crate::zone::Zone;

/// The functions to register.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    Kind::ALL.into_iter().map(|kind| {
        ScalarUDF::from(Texts { kind, signature: Signature::variadic_any(Volatility::Immutable) })
    })
}

/// A call of `text_of`, or of `texts_of` for an array, cast to the target type. `None` where Arrow's cast has
/// PostgreSQL's format.
pub fn text_of(value: &Expr, source: &DataType, target: &DataType, zone: Zone) -> Option<Expr> {
    let kind = match (source, target) {
        (source, target) if target.is_string() && has_own_text(source) => Kind::Text,
        (source, DataType::List(item)) if item.data_type().is_string() => {
            let element = element_of(source)?;
            if !has_own_text(element) || element_of(element).is_some() {
                return None;
            }
            Kind::Texts
        }
        _ => return None,
    };
    let call = kind.call(value.clone(), zone)?;
    Some(if kind.made() == *target {
        call
    } else {
        Expr::Cast(datafusion::logical_expr::Cast::new(Box::new(call), target.clone()))
    })
}

/// Adds the zone in which instants are shown to a call of one of these functions without a zone.
pub fn call_with_zone(call: &ScalarFunction, zone: Zone) -> Option<Expr> {
    let is_own = Kind::ALL.iter().any(|kind| kind.name() == call.func.name());
    let [value] = call.args.as_slice() else { return None };
    let args = vec![value.clone(), lit(zone.to_string())];
    let zoned = ScalarFunction::new_udf(Arc::clone(&call.func), args);
    is_own.then_some(Expr::ScalarFunction(zoned))
}

/// Returns true if Arrow's cast of a type to text differs from PostgreSQL's.
fn has_own_text(data_type: &DataType) -> bool {
    use DataType::{
        Date32, Date64, Dictionary, Duration, Float16, Float32, Float64, Interval, Struct, Time32,
        Time64, Timestamp,
    };
    match data_type {
        Float16 | Float32 | Float64 | Date32 | Date64 | Time32(_) | Time64(_) | Timestamp(..)
        | Interval(_) | Duration(_) | Struct(_) => true,
        &UUID => true,
        Dictionary(_, values) => has_own_text(values),
        _ => element_of(data_type).is_some(),
    }
}

/// Type of an array's elements; `None` for other types.
fn element_of(data_type: &DataType) -> Option<&DataType> {
    match data_type {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _) => Some(item.data_type()),
        _ => None,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Text,
    TextOut,
    Texts,
    TextsOut,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Text, Self::TextOut, Self::Texts, Self::TextsOut];

    fn name(self) -> &'static str {
        match self {
            Self::Text => "text_of",
            Self::TextOut => "text_out",
            Self::Texts => "texts_of",
            Self::TextsOut => "texts_out",
        }
    }

    fn made(self) -> DataType {
        match self {
            Self::Text | Self::TextOut => DataType::Utf8,
            Self::Texts | Self::TextsOut => {
                DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true)))
            }
        }
    }

    /// Returns a call of the function; `None` if it is not registered.
    fn call(self, value: Expr, zone: Zone) -> Option<Expr> {
        let function = Arc::clone(REGISTRY.scalar.get(self.name())?);
        let mut args = vec![value];
        if !zone.is_utc() {
            args.push(lit(zone.to_string()));
        }
        Some(Expr::ScalarFunction(ScalarFunction::new_udf(function, args)))
    }

    /// Returns true if booleans are written `true` and not `t`.
    fn spells_booleans(self) -> bool {
        matches!(self, Self::Text | Self::Texts)
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Texts {
    kind: Kind,
    signature: Signature,
}

impl ScalarUDFImpl for Texts {
    fn name(&self) -> &str {
        self.kind.name()
    }

    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        match arguments {
            // Named as a cast would be named.
            [value, ..] => Ok(value.schema_name().to_string()),
            [] => exec_err!("{} takes a value", self.name()),
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match (self.kind, types) {
            (Kind::Texts | Kind::TextsOut, [data_type, ..])
                if element_of(data_type).is_none() && !data_type.is_null() =>
            {
                exec_err!("{} takes an array, not {data_type}", self.name())
            }
            (_, [_] | [_, _]) => Ok(self.kind.made()),
            _ => exec_err!("{} takes a value and a zone", self.name()),
        }
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let (value, zone) = match args.args.as_slice() {
            [value] => (value, Zone::UTC),
            [value, ColumnarValue::Scalar(zone)] => {
                let name = zone.try_as_str().flatten().unwrap_or("UTC");
                let unknown =
                    || SqlError::new("22023", format!("time zone \"{name}\" not recognized"));
                (value, Zone::named(name).ok_or_else(unknown)?)
            }
            _ => return exec_err!("{}: the time zone must be a constant", self.name()),
        };
        let constant = matches!(value, ColumnarValue::Scalar(_));
        let values = value.to_array(if constant { 1 } else { args.number_rows })?;
        let results: ArrayRef = match self.kind {
            _ if values.data_type().is_null() => {
                arrow::array::new_null_array(&self.kind.made(), values.len())
            }
            Kind::Text | Kind::TextOut => {
                Arc::new(texts(&values, self.kind.spells_booleans(), zone)?)
            }
            Kind::Texts | Kind::TextsOut => Arc::new(elements(&values, self.kind, zone)?),
        };
        if constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&results, 0)?));
        }
        Ok(ColumnarValue::Array(results))
    }
}

/// Casts values to TEXT, with instants in the zone; types that Arrow's cast formats correctly stay as they are.
///
/// # Errors
/// When the texts are too large, or Arrow cannot show the type.
pub fn cast_texts(values: &ArrayRef, zone: Zone) -> Result<ArrayRef> {
    if !has_own_text(values.data_type()) {
        return Ok(Arc::clone(values));
    }
    Ok(Arc::new(texts(values, true, zone)?))
}

/// Formats values as text.
pub(crate) fn texts(
    values: &ArrayRef,
    spells_booleans: bool,
    zone: Zone,
) -> Result<arrow::array::StringArray> {
    if spells_booleans && let Some(booleans) = values.as_boolean_opt() {
        let spelt = booleans.iter().map(|value| value.map(|v| if v { "true" } else { "false" }));
        return Ok(spelt.collect());
    }
    let column = TextColumn::new(values, zone)?;
    let mut builder = StringBuilder::with_capacity(values.len(), values.len() * 8);
    let mut text = BytesMut::new();
    let mut total = 0_u64;
    for row in 0..values.len() {
        if column.is_null(row) || values.is_null(row) {
            builder.append_null();
            continue;
        }
        text.clear();
        column.write(row, &mut text)?;
        let size = u64::try_from(text.len()).unwrap_or(u64::MAX);
        check_size("text", size)?;
        total = total.saturating_add(size);
        check_total("text()", values.len(), total)?;
        let text = std::str::from_utf8(&text)
            .map_err(|_| SqlError::internal("a value's text is not UTF-8"))?;
        builder.append_value(text);
    }
    Ok(builder.finish())
}

/// Formats the elements of arrays. Output functions flatten all dimensions.
fn elements(lists: &ArrayRef, kind: Kind, zone: Zone) -> Result<ListArray> {
    let lists = plain(lists)?;
    let lists = lists.as_list::<i32>();
    let field = Arc::new(Field::new_list_field(DataType::Utf8, true));
    let nulls = lists.nulls().cloned();
    if element_of(lists.values().data_type()).is_some() {
        if kind == Kind::Texts {
            return exec_err!("{} takes an array of one dimension", kind.name());
        }
        // The elements of the inner arrays are addressed by the offsets of the outer ones.
        let inner = elements(lists.values(), kind, zone)?;
        let offset = |index: &i32| {
            let index = usize::try_from(*index).unwrap_or(0);
            inner.value_offsets().get(index).copied().unwrap_or(0)
        };
        let offsets: Vec<i32> = lists.value_offsets().iter().map(offset).collect();
        let offsets = OffsetBuffer::new(offsets.into());
        return Ok(ListArray::try_new(field, offsets, Arc::clone(inner.values()), nulls)?);
    }
    let values: ArrayRef = if lists.values().data_type().is_null() {
        arrow::array::new_null_array(&DataType::Utf8, lists.values().len())
    } else {
        Arc::new(texts(lists.values(), kind.spells_booleans(), zone)?)
    };
    Ok(ListArray::try_new(field, lists.offsets().clone(), values, nulls)?)
}

/// Functions that convert arguments to text as output functions do, and their first such argument.
const OF_OUTPUT: [(&str, usize); 4] =
    [("concat", 0), ("concat_ws", 1), ("format", 1), ("array_to_string", 0)];

/// Converts arguments of `concat` and similar functions to text; to be applied before types are coerced.
#[derive(Debug)]
pub struct OutputTexts;

impl FunctionRewrite for OutputTexts {
    fn name(&self) -> &'static str {
        "output_texts"
    }

    fn rewrite(
        &self,
        expression: Expr,
        schema: &DFSchema,
        _: &ConfigOptions,
    ) -> Result<Transformed<Expr>> {
        let Expr::ScalarFunction(ScalarFunction { func, args }) = expression else {
            return Ok(Transformed::no(expression));
        };
        let start =
            OF_OUTPUT.iter().find(|(name, _)| *name == func.name()).map(|(_, start)| *start);
        let Some(start) = start else {
            return Ok(Transformed::no(Expr::ScalarFunction(ScalarFunction { func, args })));
        };
        let of_elements = func.name() == "array_to_string";
        // Only the array of `array_to_string` is converted; other functions take values of any type.
        let mut changed = false;
        let args = args.into_iter().enumerate().map(|(position, arg)| {
            let Ok(data_type) = arg.get_type(schema) else { return arg };
            let kind = if of_elements {
                let is_other = element_of(&data_type).is_some_and(|element| !element.is_string());
                (position == 0 && is_other).then_some(Kind::TextsOut)
            } else {
                let is_text =
                    data_type.is_string() || data_type.is_null() || data_type.is_integer();
                (position >= start && !is_text).then_some(Kind::TextOut)
            };
            match kind.and_then(|kind| kind.call(arg.clone(), Zone::UTC)) {
                Some(text) => {
                    changed = true;
                    text
                }
                None => arg,
            }
        });
        let args = args.collect();
        let call = Expr::ScalarFunction(ScalarFunction { func, args });
        Ok(if changed { Transformed::yes(call) } else { Transformed::no(call) })
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{BooleanArray, Float64Array};

    use super::*;

    #[test]
    fn values_are_written_as_postgresql_casts_them() {
        let values: ArrayRef = Arc::new(Float64Array::from(vec![Some(1e20), None, Some(1.0)]));
        let written = texts(&values, true, Zone::UTC).unwrap();
        assert_eq!(written.iter().collect::<Vec<_>>(), [Some("1e+20"), None, Some("1")]);
        let values: ArrayRef = Arc::new(BooleanArray::from(vec![Some(true), None]));
        let written = texts(&values, true, Zone::UTC).unwrap();
        assert_eq!(written.iter().collect::<Vec<_>>(), [Some("true"), None]);
        let written = texts(&values, false, Zone::UTC).unwrap();
        assert_eq!(written.iter().collect::<Vec<_>>(), [Some("t"), None]);
    }

    #[test]
    fn arrays_of_texts_have_the_elements_of_all_dimensions() {
        let of = |values: &[bool]| -> ArrayRef { Arc::new(BooleanArray::from(values.to_vec())) };
        let field = Arc::new(Field::new_list_field(DataType::Boolean, true));
        let inner = ListArray::new(
            Arc::clone(&field),
            OffsetBuffer::new(vec![0, 2, 3].into()),
            of(&[true, false, true]),
            None,
        );
        let outer = Arc::new(Field::new_list_field(inner.data_type().clone(), true));
        let outer =
            ListArray::new(outer, OffsetBuffer::new(vec![0, 2].into()), Arc::new(inner), None);
        let outer: ArrayRef = Arc::new(outer);
        let made = elements(&outer, Kind::TextsOut, Zone::UTC).unwrap();
        let first = made.value(0);
        let first: Vec<_> = first.as_string::<i32>().iter().flatten().collect();
        assert_eq!(first, ["t", "f", "t"]);
    }
}
