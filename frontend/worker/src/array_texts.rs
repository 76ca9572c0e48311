//! Texts that stand for arrays, as in PostgreSQL: `a = '{1,2}'`, `CAST(text AS INT[])`.
//!
//! ```text
//!   array_in(text)                the array of the texts of its elements
//!   CAST(text AS INT[])           CAST(array_in(text) AS INT[])
//! ```
//!
//! Arrow would make an array of one element, the whole text. Literals are read while a statement is planned, below a
//! cast or where an array stands beside them: in operators, also `||`, in IN, BETWEEN, CASE, COALESCE and the like.
//! Columns of texts are read by the function, which nodes know too.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, StringViewArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{DataType, Field, FieldRef, TimeUnit};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue, exec_err};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::logical_expr::expr::{InList, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{
    Between, BinaryExpr, Case, Cast, ColumnarValue, Expr, ExprSchemable, Operator,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::sql::sqlparser::ast::BinaryOperator;
use partita_proto::schema::UUID;

use crate::blanks::is_blank;
use crate::casts;
use crate::error::{INVALID_TEXT, SqlError};
use crate::functions::REGISTRY;
use crate::uuids::uuids_of;

/// Name of the function.
const NAME: &str = "array_in";
/// Functions whose arguments are arrays of one type if one of them is an array.
const OF_ONE_TYPE: [&str; 7] =
    ["coalesce", "nullif", "greatest", "least", "array_concat", "array_has_all", "array_has_any"];
/// A text that is no element is an error, not NULL.
const STRICT: CastOptions<'static> =
    CastOptions { safe: false, format_options: arrow::util::display::FormatOptions::new() };

/// The function to register.
pub(crate) fn function() -> ScalarUDF {
    ScalarUDF::from(Read { signature: Signature::any(1, Volatility::Immutable) })
}

/// The elements of the text of a one-dimensional array: `{a,"b c",NULL}`.
///
/// # Errors
/// SQLSTATE 22P02 when it is no array, 0A000 when it has several dimensions.
pub fn elements_of(text: &str) -> Result<Vec<Option<String>>, SqlError> {
    let malformed = || SqlError::new(INVALID_TEXT, format!("malformed array literal: \"{text}\""));
    let inner =
        text.trim_matches(is_blank).strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    let inner = inner.ok_or_else(malformed)?;
    let mut elements = Vec::new();
    let mut rest = inner.trim_start_matches(is_blank).chars().peekable();
    if rest.peek().is_none() {
        return Ok(elements);
    }
    // One element and the comma behind it a turn.
    loop {
        while rest.next_if(|c| is_blank(*c)).is_some() {}
        let mut element = String::new();
        let quoted = rest.next_if_eq(&'"').is_some();
        let mut escaped = false;
        loop {
            // Only quotes let separators, braces and blanks into an element.
            match rest.peek() {
                None if quoted => return Err(malformed()),
                Some('"') if quoted => break,
                None | Some(',') if !quoted => break,
                Some('{') if !quoted && !escaped && element.is_empty() => {
                    return Err(SqlError::unsupported("an array of several dimensions"));
                }
                Some('{' | '}' | '"') if !quoted => return Err(malformed()),
                _ => {}
            }
            match rest.next() {
                Some('\\') => {
                    escaped = true;
                    element.push(rest.next().ok_or_else(malformed)?);
                }
                Some(character) => element.push(character),
                None => return Err(malformed()),
            }
        }
        // Only an unquoted, unescaped NULL is NULL.
        if quoted {
            rest.next();
            while rest.next_if(|c| is_blank(*c)).is_some() {}
            elements.push(Some(element));
        } else {
            let element =
                if escaped { element } else { element.trim_end_matches(is_blank).to_owned() };
            if element.is_empty() {
                return Err(malformed());
            }
            let is_null = !escaped && element.eq_ignore_ascii_case("null");
            elements.push((!is_null).then_some(element));
        }
        match rest.next() {
            None => return Ok(elements),
            Some(',') => {}
            Some(_) => return Err(malformed()),
        }
    }
}

/// The item of lists of texts.
fn text_item() -> FieldRef {
    Arc::new(Field::new_list_field(DataType::Utf8View, true))
}

/// The arrays of texts, with elements of the item's type.
///
/// # Errors
/// When a text does not parse as an array, or an element does not parse as the type.
pub fn lists_of(texts: &ArrayRef, item: &FieldRef) -> Result<ArrayRef> {
    let texts = cast(texts, &DataType::Utf8View)?;
    let texts = texts.as_string_view();
    let mut elements = Vec::new();
    let mut lengths = Vec::with_capacity(texts.len());
    for text in texts {
        let more = text.map(elements_of).transpose()?.unwrap_or_default();
        lengths.push(more.len());
        elements.extend(more);
    }
    if i32::try_from(elements.len()).is_err() {
        let error = SqlError::new("54000", "the arrays have more than 2147483647 elements");
        return Err(error.into());
    }
    let elements: ArrayRef = Arc::new(elements.into_iter().collect::<StringViewArray>());
    let elements = match item.data_type() {
        &UUID => uuids_of(&elements)?,
        // Arrow's cast would cut the digits.
        data_type @ DataType::Timestamp(TimeUnit::Second | TimeUnit::Millisecond, zone) => {
            let fine = DataType::Timestamp(TimeUnit::Microsecond, zone.clone());
            let fine = cast_with_options(&elements, &fine, &STRICT)?;
            cast(&casts::rounded(&fine, data_type)?, data_type)?
        }
        data_type => cast_with_options(&elements, data_type, &STRICT)?,
    };
    let nulls: NullBuffer = texts.iter().map(|text| text.is_some()).collect();
    let offsets = OffsetBuffer::from_lengths(lengths);
    Ok(Arc::new(ListArray::try_new(Arc::clone(item), offsets, elements, Some(nulls))?))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Read {
    signature: Signature,
}

impl ScalarUDFImpl for Read {
    fn name(&self) -> &'static str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [data_type] if data_type.is_string() => Ok(DataType::List(text_item())),
            _ => exec_err!("{NAME} does not take {types:?}"),
        }
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [argument] = args.args.as_slice() else {
            return exec_err!("{NAME} takes one argument");
        };
        let constant = matches!(argument, ColumnarValue::Scalar(_));
        let texts = argument.to_array(if constant { 1 } else { args.number_rows })?;
        let lists = lists_of(&texts, &text_item())?;
        if constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&lists, 0)?));
        }
        Ok(ColumnarValue::Array(lists))
    }
}

/// Reads texts beside arrays, and texts that are cast to arrays; to be applied before types are coerced.
#[derive(Debug)]
pub struct ArrayTexts;

/// The item of an expression that is an array.
fn item_of(expr: &Expr, schema: &DFSchema) -> Option<FieldRef> {
    match expr.get_type(schema) {
        Ok(DataType::List(item)) => Some(item),
        _ => None,
    }
}

fn is_text(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema).is_ok_and(|data_type| data_type.is_string())
}

/// The array of a literal text; `None` for other expressions, and for elements that are no base type.
fn read(expr: &Expr, item: &FieldRef) -> Result<Option<Expr>> {
    let Expr::Literal(value, _) = expr else { return Ok(None) };
    let Some(text) = value.try_as_str().flatten() else { return Ok(None) };
    if item.data_type().is_nested() {
        return Ok(None);
    }
    let text: ArrayRef = Arc::new(StringViewArray::from(vec![text]));
    let list = ScalarValue::try_from_array(&lists_of(&text, item)?, 0)?;
    Ok(Some(Expr::Literal(list, None)))
}

/// Reads the literals among expressions of which one is an array; true if there are some.
fn read_all(expressions: &mut [&mut Expr], schema: &DFSchema) -> Result<bool> {
    let item = expressions.iter().find_map(|expr| item_of(expr, schema));
    let Some(item) = item else { return Ok(false) };
    let mut is_read = false;
    for expr in expressions {
        if let Some(list) = read(expr, &item)? {
            **expr = list;
            is_read = true;
        }
    }
    Ok(is_read)
}

/// Reads a literal beside an array that is concatenated with it. NULL is an array too, not an element.
fn read_concatenated(raw: &mut RawBinaryExpr, schema: &DFSchema) -> Result<()> {
    read_beside(&mut raw.left, &mut raw.right, schema)?;
    null_beside(&raw.left, &mut raw.right, schema)?;
    null_beside(&raw.right, &mut raw.left, schema)
}

/// Gives a NULL without a type the type of the array beside it.
fn null_beside(array: &Expr, other: &mut Expr, schema: &DFSchema) -> Result<()> {
    if matches!(other, Expr::Literal(ScalarValue::Null, _))
        && let Some(item) = item_of(array, schema)
    {
        *other = Expr::Literal(ScalarValue::try_from(&DataType::List(item))?, None);
    }
    Ok(())
}

/// Reads literals among the arguments of a function that takes arrays of one type.
fn read_arguments(call: &mut ScalarFunction, schema: &DFSchema) -> Result<bool> {
    match (call.func.name(), call.args.as_mut_slice()) {
        (name, arguments) if OF_ONE_TYPE.contains(&name) => {
            read_all(&mut arguments.iter_mut().collect::<Vec<_>>(), schema)
        }
        // DataFusion casts no text to a UUID.
        ("array_has", [array, element]) => {
            let Some(item) = item_of(array, schema) else { return Ok(false) };
            let Expr::Literal(value, _) = &*element else { return Ok(false) };
            let Some(text) = value.try_as_str().flatten() else { return Ok(false) };
            if *item.data_type() != UUID {
                return Ok(false);
            }
            let text: ArrayRef = Arc::new(StringViewArray::from(vec![text]));
            let value = ScalarValue::try_from_array(&uuids_of(&text)?, 0)?;
            *element = Expr::Literal(value, None);
            Ok(true)
        }
        _ => Ok(false),
    }
}

/// Reads the literal on one side of an array; true if there is one.
fn read_beside(left: &mut Expr, right: &mut Expr, schema: &DFSchema) -> Result<bool> {
    let (text, item) = match (item_of(left, schema), item_of(right, schema)) {
        (Some(item), None) => (right, item),
        (None, Some(item)) => (left, item),
        _ => return Ok(false),
    };
    let list = read(text, &item)?;
    let is_read = list.is_some();
    if let Some(list) = list {
        *text = list;
    }
    Ok(is_read)
}

/// Makes a concatenation of `array || $1` where the parameter is an array: the planner took it for an element, whose
/// type it did not know.
fn concatenate(call: &mut ScalarFunction, schema: &DFSchema) -> Result<bool> {
    let ("array_append" | "array_prepend", [left, right]) =
        (call.func.name(), call.args.as_slice())
    else {
        return Ok(false);
    };
    let (Some(left), Some(right)) = (item_of(left, schema), item_of(right, schema)) else {
        return Ok(false);
    };
    if left.data_type().is_nested() || right.data_type().is_nested() {
        return Ok(false);
    }
    let Some(function) = REGISTRY.scalar.get("array_concat") else {
        return exec_err!("array_concat is not registered");
    };
    call.func = Arc::clone(function);
    Ok(true)
}

/// Reads literals among the results of a CASE, and among the values that its operand is compared with.
fn read_case(case: &mut Case, schema: &DFSchema) -> Result<bool> {
    let mut results = Vec::with_capacity(case.when_then_expr.len() + 1);
    let mut compared: Vec<&mut Expr> = case.expr.as_deref_mut().into_iter().collect();
    for (when, then) in &mut case.when_then_expr {
        results.push(then.as_mut());
        // Without an operand it is a condition.
        if !compared.is_empty() {
            compared.push(when.as_mut());
        }
    }
    results.extend(case.else_expr.as_deref_mut());
    let is_read = read_all(&mut results, schema)?;
    Ok(read_all(&mut compared, schema)? || is_read)
}

fn compares(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

impl ExprPlanner for ArrayTexts {
    fn plan_binary_op(
        &self,
        mut raw: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        use BinaryOperator::{ArrowAt, AtArrow, Eq, Gt, GtEq, Lt, LtEq, NotEq, StringConcat};
        if raw.op == StringConcat {
            read_concatenated(&mut raw, schema)?;
        } else if matches!(raw.op, Eq | NotEq | Lt | LtEq | Gt | GtEq | AtArrow | ArrowAt) {
            read_beside(&mut raw.left, &mut raw.right, schema)?;
        }
        Ok(PlannerResult::Original(raw))
    }
}

impl FunctionRewrite for ArrayTexts {
    fn name(&self) -> &'static str {
        "array_texts"
    }

    fn rewrite(
        &self,
        expression: Expr,
        schema: &DFSchema,
        _: &ConfigOptions,
    ) -> Result<Transformed<Expr>> {
        Ok(match expression {
            Expr::BinaryExpr(BinaryExpr { mut left, op, mut right }) if compares(op) => {
                let is_read = read_beside(&mut left, &mut right, schema)?;
                let binary = Expr::BinaryExpr(BinaryExpr { left, op, right });
                Transformed::new_transformed(binary, is_read)
            }
            Expr::ScalarFunction(mut call) => {
                let is_read = read_arguments(&mut call, schema)? || concatenate(&mut call, schema)?;
                Transformed::new_transformed(Expr::ScalarFunction(call), is_read)
            }
            Expr::Case(mut case) => {
                let is_read = read_case(&mut case, schema)?;
                Transformed::new_transformed(Expr::Case(case), is_read)
            }
            Expr::InList(InList { mut expr, mut list, negated }) => {
                let mut operands = vec![expr.as_mut()];
                operands.extend(&mut list);
                let is_read = read_all(&mut operands, schema)?;
                let list = Expr::InList(InList { expr, list, negated });
                Transformed::new_transformed(list, is_read)
            }
            Expr::Between(Between { mut expr, negated, mut low, mut high }) => {
                let is_read = read_all(&mut [expr.as_mut(), low.as_mut(), high.as_mut()], schema)?;
                let between = Expr::Between(Between { expr, negated, low, high });
                Transformed::new_transformed(between, is_read)
            }
            Expr::Cast(Cast { expr, field })
                if field.data_type().is_list() && is_text(&expr, schema) =>
            {
                let DataType::List(item) = field.data_type() else {
                    return Ok(Transformed::no(Expr::Cast(Cast { expr, field })));
                };
                if let Some(list) = read(&expr, item)? {
                    return Ok(Transformed::yes(list));
                }
                if *item.data_type() == UUID {
                    let error = SqlError::unsupported("a cast of computed texts to UUID[]");
                    return Err(error.into());
                }
                let Some(function) = REGISTRY.scalar.get(NAME) else {
                    return exec_err!("{NAME} is not registered");
                };
                let call = ScalarFunction::new_udf(Arc::clone(function), vec![*expr]);
                let call = Box::new(Expr::ScalarFunction(call));
                Transformed::yes(Expr::Cast(Cast { expr: call, field }))
            }
            expression => Transformed::no(expression),
        })
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Int32Array;

    use super::*;

    #[test]
    fn texts_become_arrays_of_their_elements() {
        let texts: ArrayRef =
            Arc::new(StringViewArray::from(vec![Some("{1,NULL}"), None, Some("{}"), Some("{3}")]));
        let item = Arc::new(Field::new_list_field(DataType::Int32, true));
        let lists = lists_of(&texts, &item).unwrap();
        let lists = lists.as_list::<i32>();
        assert_eq!(lists.value_offsets(), [0, 2, 2, 2, 3]);
        assert!(lists.is_null(1) && lists.is_valid(2));
        let expected: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None, Some(3)]));
        assert_eq!(lists.values(), &expected);
        let wrong: ArrayRef = Arc::new(StringViewArray::from(vec!["{one}"]));
        assert!(lists_of(&wrong, &item).is_err());
    }

    #[test]
    fn the_text_of_an_array_is_read_as_postgresql_reads_it() {
        let some = |texts: &[&str]| texts.iter().map(|text| Some((*text).to_owned())).collect();
        for (text, expected) in [
            ("{}", Vec::new()),
            (" { a , b } ", some(&["a", "b"])),
            ("{\"a,\\\"b\\\"\", \"\"}", some(&["a,\"b\"", ""])),
            ("{null,\"null\",\\null}", vec![None, Some("null".into()), Some("null".into())]),
            ("{\u{85}, \u{a0}x\u{2003} ,\u{b}y}", some(&["\u{85}", "\u{a0}x\u{2003}", "y"])),
        ] {
            assert_eq!(elements_of(text).unwrap(), expected, "{text}");
        }
        for text in ["", "a", "{a", "{a,}", "{,a}", "{a{b}}", "{\"a}", "{\"a\"b}"] {
            assert_eq!(elements_of(text).unwrap_err().sqlstate, "22P02", "{text}");
        }
        assert_eq!(elements_of("{ {a},{b}}").unwrap_err().sqlstate, "0A000");
    }
}
