//! DataFusion's functions where PostgreSQL's take other arguments, round otherwise, or refuse arguments.
//!
//! ```text
//!   round(double)                                half to even
//!   ln, log, exp, power, acos ..                 an error instead of NaN or an infinity, unless an argument is one
//!   ceil, floor and trunc of a decimal           as many digits as remain, and room for one more before the point
//!   greatest and least of floats                 NaN is the greatest; of 0 and -0 the first
//!   coalesce(timestamptz, 'text')                the text is read as a time
//!   coalesce(bytea, bytea)                       the binary types may differ
//!   concat, concat_ws                            any argument, converted to text
//!   chr                                          not of 0; PostgreSQL's errors
//!   length, octet_length, bit_length             also of bytes
//!   substr, strpos, overlay, btrim ..            also of bytes
//!   substr(text, text [, text])                  by a pattern
//!   array_length, cardinality                    integers; an empty array has no length
//! ```

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryViewArray, Int32Array, UInt64Array};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Field, FieldRef, Float32Type, Float64Type, Int64Type, UInt64Type,
};
use datafusion::common::{DFSchema, ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawFieldAccessExpr};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    Case, ColumnarValue, Documentation, Expr, ExprSchemable, GetFieldAccess, ReturnFieldArgs,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, lit,
};

use crate::bounded;
use crate::digits::{self, Digits};
use crate::error::{
    INVALID_PARAMETER_VALUE, NUMERIC_OUT_OF_RANGE, PROGRAM_LIMIT_EXCEEDED, SqlError,
};
use crate::extremes::{self, End};
use crate::functions::{REGISTRY, builtin};
use crate::plain::{doubles, is_text, wholes};
use crate::similar;

/// Functions that are replaced, and the difference of each from DataFusion's.
const ADJUSTED: &[(&str, Change)] = &[
    ("round", Change::HalfToEven),
    ("ceil", Change::Digits(Digits::Up)),
    ("floor", Change::Digits(Digits::Down)),
    ("trunc", Change::Digits(Digits::Off)),
    ("ln", Change::Logarithm),
    ("log", Change::Logarithm),
    ("log10", Change::Logarithm),
    ("exp", Change::Finite),
    ("power", Change::Power),
    ("acos", Change::Finite),
    ("asin", Change::Finite),
    ("acosh", Change::Finite),
    ("atanh", Change::Finite),
    ("greatest", Change::Extreme(End::Max)),
    ("least", Change::Extreme(End::Min)),
    ("coalesce", Change::Texts),
    ("chr", Change::Character),
    ("concat", Change::AnyText),
    ("concat_ws", Change::AnyText),
    ("character_length", Change::BytesLength(1)),
    ("octet_length", Change::BytesLength(1)),
    ("bit_length", Change::BytesLength(8)),
    ("substr", Change::BytesPart),
    ("strpos", Change::BytesPlace),
    ("overlay", Change::BytesOverlay),
    ("btrim", Change::BytesTrimmed { start: true, end: true }),
    ("ltrim", Change::BytesTrimmed { start: true, end: false }),
    ("rtrim", Change::BytesTrimmed { start: false, end: true }),
    ("array_length", Change::Dimension),
    ("cardinality", Change::Count),
];

/// Difference of a function from DataFusion's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Change {
    HalfToEven,
    Digits(Digits),
    Extreme(End),
    Logarithm,
    Finite,
    Power,
    Character,
    Texts,
    AnyText,
    BytesLength(i32),
    BytesPart,
    BytesPlace,
    BytesOverlay,
    BytesTrimmed { start: bool, end: bool },
    Dimension,
    Count,
}

/// The functions, under DataFusion's names.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    ADJUSTED.iter().filter_map(|(name, change)| {
        let bounded = bounded::functions().find(|function| function.name() == *name);
        let inner = bounded.map(Arc::new).or_else(|| builtin(name).cloned())?;
        let signature = match change {
            Change::HalfToEven
            | Change::Finite
            | Change::Power
            | Change::Logarithm
            | Change::Character => inner.signature().clone(),
            _ => Signature::user_defined(Volatility::Immutable),
        };
        Some(ScalarUDF::from(Adjusted { inner, change: *change, signature }))
    })
}

/// Plans `SUBSTRING(..)`, `POSITION(..)`, `OVERLAY(..)`, `array[n]` and `array[m:n]`, which SQL's grammar does not parse
/// as calls, as calls of the registered functions; DataFusion would use its own.
#[derive(Debug)]
pub struct AdjustedCalls;

impl ExprPlanner for AdjustedCalls {
    fn plan_substring(&self, args: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        Ok(call_of("substr", args))
    }

    fn plan_position(&self, args: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        Ok(call_of("strpos", args))
    }

    fn plan_overlay(&self, args: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        Ok(call_of("overlay", args))
    }

    fn plan_field_access(
        &self,
        access: RawFieldAccessExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawFieldAccessExpr>> {
        let RawFieldAccessExpr { field_access, expr } = access;
        // DataFusion makes an aggregate of `array_agg(..)[n]`.
        let is_aggregate = matches!(expr, Expr::AggregateFunction(_));
        let (function, positions) = match field_access {
            GetFieldAccess::ListIndex { key }
                if !is_aggregate && !matches!(expr.get_type(schema)?, DataType::Map(..)) =>
            {
                ("array_element", vec![at_least_one(*key, 0, Some(i32::MIN.into()))])
            }
            GetFieldAccess::ListRange { start, stop, stride } if *stride == lit(1_i64) => {
                let bounds =
                    vec![at_least_one(*start, 1, None), at_least_one(*stop, 0, None), *stride];
                ("array_slice", bounds)
            }
            GetFieldAccess::ListRange { start, stop, stride } => {
                ("array_slice", vec![*start, *stop, *stride])
            }
            field_access => {
                return Ok(PlannerResult::Original(RawFieldAccessExpr { field_access, expr }));
            }
        };
        let args = std::iter::once(expr).chain(positions).collect();
        match call_of(function, args) {
            PlannerResult::Planned(call) => Ok(PlannerResult::Planned(call)),
            PlannerResult::Original(_) => exec_err!("there is no function {function}()"),
        }
    }
}

/// A position in an array, or `substitute` if it lies before the array: DataFusion counts it from the end. Positions below
/// `least` stay as they are: the function refuses them.
fn at_least_one(position: Expr, substitute: i64, least: Option<i64>) -> Expr {
    match position {
        Expr::Literal(ScalarValue::Null, _) => position,
        Expr::Literal(ScalarValue::Int64(Some(number)), _) => {
            let is_replaced = number < 1 && least.is_none_or(|least| number >= least);
            if is_replaced { lit(substitute) } else { position }
        }
        position => {
            let mut is_replaced = position.clone().lt(lit(1_i64));
            if let Some(least) = least {
                is_replaced = is_replaced.and(position.clone().gt_eq(lit(least)));
            }
            // A position that is NULL stays so.
            let cases = vec![(Box::new(is_replaced), Box::new(lit(substitute)))];
            Expr::Case(Case::new(None, cases, Some(Box::new(position))))
        }
    }
}

fn call_of(name: &str, args: Vec<Expr>) -> PlannerResult<Vec<Expr>> {
    match REGISTRY.scalar.get(name) {
        Some(function) => PlannerResult::Planned(Expr::ScalarFunction(ScalarFunction::new_udf(
            Arc::clone(function),
            args,
        ))),
        None => PlannerResult::Original(args),
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Adjusted {
    inner: Arc<ScalarUDF>,
    change: Change,
    signature: Signature,
}

impl Adjusted {
    fn inner(&self) -> &dyn ScalarUDFImpl {
        self.inner.inner().as_ref()
    }

    /// Returns true if the call is on bytes, which is evaluated here.
    fn of_bytes(&self, types: &[DataType]) -> bool {
        let takes = matches!(
            self.change,
            Change::BytesLength(_)
                | Change::BytesPart
                | Change::BytesPlace
                | Change::BytesOverlay
                | Change::BytesTrimmed { .. }
        );
        takes && types.first().is_some_and(|data_type| data_type.is_binary())
    }

    /// Returns true if the call takes a part of a text by a pattern.
    fn by_pattern(&self, types: &[DataType]) -> bool {
        self.change == Change::BytesPart
            && matches!(types, [text, pattern, rest @ ..]
                if is_text(text) && pattern.is_string() && rest.iter().all(is_text))
    }

    /// Rounding of a call on decimals that is evaluated here; `None` if DataFusion evaluates the call.
    fn of_decimals(&self, types: &[DataType]) -> Option<Digits> {
        match (self.change, types) {
            (Change::Digits(digits), [DataType::Decimal128(_, 0..)]) => Some(digits),
            (Change::Digits(Digits::Off), [DataType::Decimal128(_, 0..), count])
                if count.is_integer() || count.is_null() =>
            {
                Some(Digits::Off)
            }
            _ => None,
        }
    }

    fn made_of_bytes(&self) -> DataType {
        match self.change {
            Change::BytesLength(_) | Change::BytesPlace => DataType::Int32,
            _ => DataType::BinaryView,
        }
    }

    fn as_inner(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let fields =
            types.iter().map(|data_type| Arc::new(Field::new("argument", data_type.clone(), true)));
        let fields = fields_with_udf(&fields.collect::<Vec<_>>(), self.inner.as_ref())?;
        Ok(fields.iter().map(|field| field.data_type().clone()).collect())
    }
}

impl ScalarUDFImpl for Adjusted {
    fn name(&self) -> &str {
        self.inner().name()
    }

    fn aliases(&self) -> &[String] {
        self.inner().aliases()
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        self.inner().schema_name(args)
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        // Functions of bytes: the other arguments are positions and counts.
        if self.of_bytes(types) {
            let of_bytes = |position: usize| match self.change {
                Change::BytesPlace | Change::BytesTrimmed { .. } => true,
                Change::BytesOverlay => position < 2,
                _ => position == 0,
            };
            let coerced = (0..types.len()).map(|position| {
                if of_bytes(position) { DataType::BinaryView } else { DataType::Int64 }
            });
            return Ok(coerced.collect());
        }
        if self.by_pattern(types) {
            return Ok(vec![DataType::Utf8; types.len()]);
        }
        // Decimals are taken as they are; the optional second argument is a count of digits.
        if self.of_decimals(types).is_some() {
            let mut coerced = types.to_vec();
            coerced.truncate(1);
            coerced.extend(types.get(1).map(|_| DataType::Int64));
            return Ok(coerced);
        }
        // Beside a double a decimal becomes a double: DataFusion would cast both to decimals of 15 places.
        if matches!(self.change, Change::Texts | Change::Extreme(_))
            && types.iter().any(|data_type| data_type.is_floating())
            && types.iter().any(|data_type| data_type.is_decimal())
            && types.iter().all(|data_type| data_type.is_numeric() || data_type.is_null())
        {
            return Ok(vec![DataType::Float64; types.len()]);
        }
        // The remaining changes only widen the arguments that DataFusion's function accepts.
        match self.change {
            Change::AnyText => {
                let types = types.iter().map(|data_type| {
                    if data_type.is_string() || data_type.is_null() {
                        data_type.clone()
                    } else {
                        DataType::Utf8
                    }
                });
                self.as_inner(&types.collect::<Vec<_>>())
            }
            Change::Texts => {
                let typed: Vec<&DataType> = types
                    .iter()
                    .filter(|data_type| !data_type.is_string() && !data_type.is_null())
                    .collect();
                match typed.as_slice() {
                    [first, rest @ ..]
                        if typed.len() < types.len()
                            && rest.iter().all(|data_type| data_type == first) =>
                    {
                        Ok(vec![(*first).clone(); types.len()])
                    }
                    // UUIDs are no bytes.
                    [first, rest @ ..]
                        if matches!(first, DataType::FixedSizeBinary(_))
                            && rest.iter().all(|data_type| data_type == first) =>
                    {
                        Ok(types.to_vec())
                    }
                    bytes
                        if bytes.iter().all(|data_type| data_type.is_binary())
                            && !bytes.is_empty() =>
                    {
                        Ok(vec![DataType::BinaryView; types.len()])
                    }
                    _ => self.as_inner(types),
                }
            }
            _ if self.inner.signature() == &self.signature => self.inner().coerce_types(types),
            _ => self.as_inner(types),
        }
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        if self.of_bytes(types) {
            return Ok(self.made_of_bytes());
        }
        if self.by_pattern(types) {
            return Ok(DataType::Utf8);
        }
        if self.of_decimals(types).is_some() {
            return Ok(digits::type_of(types, None));
        }
        match self.change {
            Change::Dimension | Change::Count => Ok(DataType::Int32),
            _ => self.inner().return_type(types),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let types: Vec<DataType> =
            args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let return_type = if self.of_bytes(&types) {
            Some(self.made_of_bytes())
        } else if self.by_pattern(&types) {
            Some(DataType::Utf8)
        } else if self.of_decimals(&types).is_some() {
            let count = args.scalar_arguments.get(1).copied().flatten();
            Some(digits::type_of(&types, count))
        } else {
            matches!(self.change, Change::Dimension | Change::Count).then_some(DataType::Int32)
        };
        match return_type {
            Some(return_type) => Ok(Arc::new(Field::new(self.name(), return_type, true))),
            None => self.inner().return_field_from_args(args),
        }
    }

    fn is_strict(&self) -> bool {
        self.inner().is_strict()
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        match self.change {
            Change::Texts | Change::AnyText => self.inner().simplify(args, info),
            // DataFusion simplifies the others to its own functions, which would undo the adjustment.
            _ => Ok(ExprSimplifyResult::Original(args)),
        }
    }

    fn short_circuits(&self) -> bool {
        self.inner().short_circuits()
    }

    fn conditional_arguments<'a>(
        &self,
        args: &'a [Expr],
    ) -> Option<(Vec<&'a Expr>, Vec<&'a Expr>)> {
        self.inner().conditional_arguments(args)
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        match self.change {
            Change::Digits(_) => self.inner().output_ordering(inputs),
            _ => Ok(SortProperties::Unordered),
        }
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner().documentation()
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let types: Vec<DataType> = args.args.iter().map(ColumnarValue::data_type).collect();
        // A call on constants is evaluated once, and its value stays a constant.
        let constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { args.number_rows };
        let finish = |array: ArrayRef| {
            Ok(if constant {
                ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?)
            } else {
                ColumnarValue::Array(array)
            })
        };
        // Calls that are evaluated here.
        if self.of_bytes(&types) {
            let arrays: Vec<ArrayRef> =
                args.args.iter().map(|arg| arg.to_array(rows)).collect::<Result<_>>()?;
            return finish(self.bytes(&arrays)?);
        }
        if self.by_pattern(&types) {
            let arrays: Vec<ArrayRef> =
                args.args.iter().map(|arg| arg.to_array(rows)).collect::<Result<_>>()?;
            return finish(similar::part(&arrays)?);
        }
        if let Some(cut) = self.of_decimals(&types) {
            let count = args.args.get(1).map(|count| count.to_array(rows)).transpose()?;
            let numbers = args.args[0].to_array(rows)?;
            return finish(cut.decimals(&numbers, count.as_ref(), args.return_type())?);
        }
        // Calls that DataFusion's function evaluates, with arguments or results adjusted.
        match self.change {
            Change::HalfToEven => match (args.args.as_slice(), types.as_slice()) {
                ([values], [DataType::Float64]) => {
                    let values = values.to_array(rows)?;
                    let values = values.as_primitive::<Float64Type>();
                    finish(Arc::new(values.unary::<_, Float64Type>(f64::round_ties_even)))
                }
                ([values], [DataType::Float32]) => {
                    let values = values.to_array(rows)?;
                    let values = values.as_primitive::<Float32Type>();
                    finish(Arc::new(values.unary::<_, Float32Type>(f32::round_ties_even)))
                }
                _ => self.inner().invoke_with_args(args),
            },
            Change::Extreme(end) if args.return_type().is_floating() => {
                let arrays: Vec<ArrayRef> =
                    args.args.iter().map(|arg| arg.to_array(rows)).collect::<Result<_>>()?;
                finish(extremes::of_floats(end, &arrays, args.return_type())?)
            }
            Change::Logarithm | Change::Finite | Change::Power => {
                let inputs: Vec<ArrayRef> =
                    args.args.iter().map(|arg| arg.to_array(rows)).collect::<Result<_>>()?;
                let outputs = self.inner().invoke_with_args(args)?.to_array(rows)?;
                self.check_values(&inputs, &outputs)?;
                finish(outputs)
            }
            Change::Character => {
                let codes = args.args.iter().map(|arg| arg.to_array(rows));
                codes.collect::<Result<Vec<_>>>()?.iter().try_for_each(check_characters)?;
                self.inner().invoke_with_args(args)
            }
            Change::Dimension | Change::Count => {
                let least = u64::from(self.change == Change::Dimension);
                args.return_field = Arc::new(Field::new(self.name(), DataType::UInt64, true));
                let lengths = self.inner().invoke_with_args(args)?.to_array(rows)?;
                let lengths = cast(&lengths, &DataType::UInt64)?;
                let lengths = lengths.as_primitive::<UInt64Type>().iter();
                let lengths: UInt64Array =
                    lengths.map(|length| length.filter(|length| *length >= least)).collect();
                finish(cast(&lengths, &DataType::Int32)?)
            }
            _ => self.inner().invoke_with_args(args),
        }
    }
}

/// Refuses numbers that are no characters of a text, which PostgreSQL's clients read up to a zero.
fn check_characters(codes: &ArrayRef) -> Result<()> {
    for code in codes.as_primitive::<Int64Type>().iter().flatten() {
        let is_character = u32::try_from(code).ok().and_then(char::from_u32).is_some();
        let (sqlstate, message) = match code {
            0 => (PROGRAM_LIMIT_EXCEEDED, "null character not permitted".to_owned()),
            ..0 => (INVALID_PARAMETER_VALUE, "character number must be positive".to_owned()),
            _ if is_character => continue,
            _ if code > i64::from(u32::from(char::MAX)) => (
                PROGRAM_LIMIT_EXCEEDED,
                format!("requested character too large for encoding: {code}"),
            ),
            _ => (
                PROGRAM_LIMIT_EXCEEDED,
                format!("requested character not valid for encoding: {code}"),
            ),
        };
        return Err(SqlError::new(sqlstate, message).into());
    }
    Ok(())
}

impl Adjusted {
    /// Refuses results that are not finite although all arguments are.
    fn check_values(&self, inputs: &[ArrayRef], outputs: &ArrayRef) -> Result<()> {
        if !outputs.data_type().is_floating() {
            return Ok(());
        }
        let values = doubles(outputs)?;
        // Most batches have finite results only.
        if values.values().iter().all(|value| value.is_finite()) {
            return Ok(());
        }
        let inputs: Vec<_> = inputs.iter().map(doubles).collect::<Result<_>>()?;
        // A result that is not finite is correct if an argument is not finite either.
        for (row, value) in values.iter().enumerate() {
            let Some(value) = value.filter(|value| !value.is_finite()) else { continue };
            let finite = |input: &arrow::array::Float64Array| {
                input.is_valid(row) && input.value(row).is_finite()
            };
            if !inputs.iter().all(finite) {
                continue;
            }
            // PostgreSQL's errors name the cause where the function has a pole.
            let (sqlstate, message) = match self.change {
                Change::Logarithm if value.is_nan() => {
                    ("2201E", "cannot take logarithm of a negative number")
                }
                Change::Logarithm => ("2201E", "cannot take logarithm of zero"),
                Change::Power if value.is_nan() => (
                    "2201F",
                    "a negative number raised to a non-integer power yields a complex result",
                ),
                Change::Power if inputs.first().is_some_and(|base| base.value(row) == 0.0) => {
                    ("2201F", "zero raised to a negative power is undefined")
                }
                _ if value.is_nan() => (NUMERIC_OUT_OF_RANGE, "input is out of range"),
                _ => (NUMERIC_OUT_OF_RANGE, "value out of range: overflow"),
            };
            return Err(SqlError::new(sqlstate, message).into());
        }
        Ok(())
    }

    /// Evaluates a function of bytes.
    fn bytes(&self, arguments: &[ArrayRef]) -> Result<ArrayRef> {
        let bytes = cast(&arguments[0], &DataType::BinaryView)?;
        let bytes = bytes.as_binary_view();
        let narrow = |length: usize| i32::try_from(length).unwrap_or(i32::MAX);
        Ok(match (self.change, arguments) {
            (Change::BytesLength(times), [_]) => {
                let lengths = bytes.iter().map(|bytes| Some(narrow(bytes?.len()) * times));
                Arc::new(lengths.collect::<Int32Array>())
            }
            (Change::BytesPlace, [_, part]) => {
                let part = cast(part, &DataType::BinaryView)?;
                let places = bytes.iter().zip(part.as_binary_view()).map(|(bytes, part)| {
                    let (bytes, part) = bytes.zip(part)?;
                    // An empty part is found at the start.
                    if part.is_empty() {
                        return Some(1);
                    }
                    let index = bytes.windows(part.len()).position(|window| window == part);
                    Some(index.map_or(0, |index| narrow(index + 1)))
                });
                Arc::new(places.collect::<Int32Array>())
            }
            (Change::BytesPart, [_, start, rest @ ..]) => {
                let starts = wholes(start)?;
                let lengths = rest.first().map(wholes).transpose()?;
                let part = |row: usize| {
                    let is_null = |array: &arrow::array::Int64Array| array.is_null(row);
                    if bytes.is_null(row)
                        || starts.is_null(row)
                        || lengths.as_ref().is_some_and(is_null)
                    {
                        return Ok(None);
                    }
                    // Positions begin at 1, and may lie outside of the value.
                    let value = bytes.value(row);
                    let length = i64::try_from(value.len()).unwrap_or(i64::MAX);
                    let start = starts.value(row);
                    let end = match &lengths {
                        Some(lengths) if lengths.value(row) < 0 => {
                            let message = "negative substring length not allowed";
                            return Err(SqlError::new("22011", message));
                        }
                        Some(lengths) => start.saturating_add(lengths.value(row)),
                        None => i64::MAX,
                    };
                    let offset = |place: i64| {
                        usize::try_from(place.saturating_sub(1).clamp(0, length)).unwrap_or(0)
                    };
                    Ok(Some(
                        value
                            .get(offset(start)..offset(end).max(offset(start)))
                            .unwrap_or_default(),
                    ))
                };
                let parts = (0..bytes.len()).map(part);
                Arc::new(parts.collect::<Result<BinaryViewArray, SqlError>>()?)
            }
            (Change::BytesOverlay, [_, part, start, rest @ ..]) => {
                let part = cast(part, &DataType::BinaryView)?;
                overlaid(bytes, part.as_binary_view(), start, rest.first())?
            }
            (Change::BytesTrimmed { start, end }, [_, which]) => {
                let which = cast(which, &DataType::BinaryView)?;
                let which = which.as_binary_view();
                let trimmed = bytes.iter().zip(which).map(|(bytes, which)| {
                    let (mut bytes, which) = bytes.zip(which)?;
                    // The set of bytes to remove applies at either end.
                    while start && bytes.first().is_some_and(|byte| which.contains(byte)) {
                        bytes = &bytes[1..];
                    }
                    while end && bytes.last().is_some_and(|byte| which.contains(byte)) {
                        bytes = &bytes[..bytes.len() - 1];
                    }
                    Some(bytes)
                });
                Arc::new(trimmed.collect::<BinaryViewArray>())
            }
            _ => return exec_err!("unexpected number of arguments for {}()", self.name()),
        })
    }
}

/// Bytes overwritten from a start position on, by as many bytes as the replacement has unless a count is given.
fn overlaid(
    bytes: &BinaryViewArray,
    part: &BinaryViewArray,
    starts: &ArrayRef,
    counts: Option<&ArrayRef>,
) -> Result<ArrayRef> {
    let starts = wholes(starts)?;
    let counts = counts.map(wholes).transpose()?;
    let mut total = 0_u64;
    let overlaid = (0..bytes.len()).map(|row| -> Result<Option<Vec<u8>>> {
        // NULL if any argument is.
        let is_null = bytes.is_null(row)
            || part.is_null(row)
            || starts.is_null(row)
            || counts.as_ref().is_some_and(|counts| counts.is_null(row));
        if is_null {
            return Ok(None);
        }
        let (value, part, start) = (bytes.value(row), part.value(row), starts.value(row));
        if start < 1 {
            return Err(SqlError::new("22011", "negative substring length not allowed").into());
        }
        // Positions begin at 1; bytes beyond the end are ignored.
        let width = i64::try_from(part.len()).unwrap_or(i64::MAX);
        let count = counts.as_ref().map_or(width, |counts| counts.value(row));
        let offset =
            |place: i64| usize::try_from(place.max(0)).unwrap_or(usize::MAX).min(value.len());
        let (head_end, tail_start) = (offset(start - 1), offset((start - 1).saturating_add(count)));
        // The sizes are checked before the value is made.
        let size = (head_end + part.len() + value.len() - tail_start) as u64;
        bounded::check_size("overlay", size)?;
        total = total.saturating_add(size);
        bounded::check_total("overlay()", bytes.len(), total)?;
        Ok(Some([&value[..head_end], part, &value[tail_start..]].concat()))
    });
    let overlaid: Vec<Option<Vec<u8>>> = overlaid.collect::<Result<_>>()?;
    Ok(Arc::new(overlaid.iter().map(Option::as_deref).collect::<BinaryViewArray>()))
}

#[cfg(test)]
mod tests {
    use datafusion::execution::SessionStateBuilder;
    use datafusion::prelude::SessionContext;

    use super::*;

    async fn answer(sql: &str) -> std::result::Result<String, String> {
        let state = SessionStateBuilder::new()
            .with_expr_planners(vec![Arc::new(AdjustedCalls)])
            .with_default_features()
            .build();
        let context = SessionContext::new_with_state(state);
        for function in functions() {
            context.register_udf(function);
        }
        let run = async {
            let batches = context.sql(&format!("SELECT {sql}")).await?.collect().await?;
            let text = arrow::util::display::array_value_to_string(batches[0].column(0), 0)?;
            Ok::<_, datafusion::error::DataFusionError>(text)
        };
        run.await.map_err(|error| SqlError::from(error).sqlstate)
    }

    #[tokio::test]
    async fn functions_answer_as_postgresqls_do() {
        for (sql, expected) in [
            ("round(CAST(2.5 AS DOUBLE))", "2.0"),
            ("round(CAST(-3.5 AS REAL))", "-4.0"),
            ("round(CAST(2.55 AS DOUBLE), 1)", "2.6"),
            ("ln(1.0)", "0.0"),
            ("length(X'00ff')", "2"),
            ("bit_length(X'00ff')", "16"),
            ("length('ab')", "2"),
            ("substr(X'00112233', 2, 2)", "1122"),
            ("strpos(X'0011', X'11')", "2"),
            ("substring('Thomas' FROM '...$')", "mas"),
            ("substr('foobar', 'o(.)b')", "o"),
            ("substring('Thomas' FROM '%#\"o_a#\"_' FOR '#')", "oma"),
            ("substring('abc' FROM 2 FOR 1)", "b"),
            ("overlay(X'00112233' PLACING X'ff' FROM 2)", "00ff2233"),
            ("overlay(X'00112233' PLACING X'ffff' FROM 2 FOR 3)", "00ffff"),
            ("overlay(X'00112233' PLACING X'ff' FROM 9)", "00112233ff"),
            ("overlay('abcd' PLACING 'X' FROM 2)", "aXcd"),
            ("btrim(X'00110000', X'00')", "11"),
            ("ltrim(X'00110000', X'00')", "110000"),
            ("rtrim(X'00110000', X'0011')", ""),
            ("btrim(' ab ')", "ab"),
            ("cardinality([1, 2])", "2"),
            ("array_length([1, 2])", "2"),
            ("coalesce(NULL, 1, 2)", "1"),
            ("coalesce(NULL, X'01', arrow_cast(X'02', 'BinaryView'))", "01"),
            (
                "arrow_typeof(coalesce(arrow_cast(NULL, 'FixedSizeBinary(2)'), arrow_cast(X'0102', 'FixedSizeBinary(2)')))",
                "FixedSizeBinary(2)",
            ),
            ("ceil(CAST(99.99 AS DECIMAL(4, 2)))", "100"),
            ("floor(CAST(-99.99 AS DECIMAL(4, 2)))", "-100"),
            ("trunc(CAST(-99.99 AS DECIMAL(4, 2)))", "-99"),
            ("trunc(CAST(99.99 AS DECIMAL(4, 2)), 1)", "99.9"),
            ("trunc(CAST(99.99 AS DECIMAL(4, 2)), 3)", "99.990"),
            ("trunc(CAST(99.99 AS DECIMAL(4, 2)), -1)", "90"),
            ("trunc(CAST(99.99 AS DECIMAL(4, 2)), v) FROM (VALUES (1)) AS t(v)", "99.90"),
            ("floor(CAST(-1.5 AS DOUBLE))", "-2.0"),
            ("trunc(CAST(-1.5 AS DOUBLE))", "-1.0"),
            ("ceil(CAST(NULL AS DECIMAL(4, 2)))", ""),
            ("concat('a', NULL, 1)", "a1"),
            ("chr(8364)", "€"),
            ("chr(1114111)", "\u{10ffff}"),
            ("chr(v) FROM (VALUES (1)) AS t(v)", "\u{1}"),
            ("chr(NULL)", ""),
        ] {
            assert_eq!(answer(sql).await, Ok(expected.to_owned()), "{sql}");
        }
        for (sql, sqlstate) in [
            ("ln(0)", "2201E"),
            ("ln(-1)", "2201E"),
            ("exp(1000)", "22003"),
            ("acos(2)", "22003"),
            ("power(-1, 0.5)", "2201F"),
            ("substr(X'00', 1, -1)", "22011"),
            ("overlay(X'00' PLACING X'01' FROM 0)", "22011"),
            ("chr(0)", "54000"),
            ("chr(-1)", "22023"),
            ("chr(55296)", "54000"),
            ("chr(1114112)", "54000"),
            ("chr(v) FROM (VALUES (NULL), (65), (0)) AS t(v)", "54000"),
        ] {
            assert_eq!(answer(sql).await, Err(sqlstate.to_owned()), "{sql}");
        }
    }
}
