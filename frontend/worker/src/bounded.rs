//! Bounds on functions whose values are larger than what they are made of.
//!
//! DataFusion's functions take the memory for their values from the allocator, past every memory pool: `repeat('x',
//! 2000000000)` takes two gigabytes. Those that can grow without limit are wrapped here. From lengths and counts alone
//! the wrapper computes how large the values will be, before any of them is made, and refuses those beyond the bounds
//! with SQLSTATE 54000, as PostgreSQL does beyond a gigabyte.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{Array, AsArray, StringArray};
use arrow::compute::cast;
use arrow::compute::kernels::length::length;
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, lit,
};

use crate::concatenation;
use crate::error::{INVALID_REGULAR_EXPRESSION, PROGRAM_LIMIT_EXCEEDED, SqlError};
use crate::functions::builtin;
use crate::inner::like_inner;
use crate::regular;

/// Bytes of one value.
const VALUE_BYTES_MAX: u64 = 32 << 20;
/// Bytes of the values of one call, which are those of one batch of rows.
const CALL_BYTES_MAX: u64 = 128 << 20;
/// Bytes of a regular expression: compiled, it takes a thousand times as much, and each thread compiles it.
const PATTERN_BYTES_MAX: u64 = 16 << 10;
/// Bytes of a literal that the function's own simplification may join with others, or take for a pattern.
const SIMPLIFIED_BYTES_MAX: usize = 16 << 10;
/// Bytes of an element of an array, roughly.
const ELEMENT_BYTES: u64 = 16;
/// Bytes by which an array of texts says where one of them ends.
const OFFSET_BYTES: u64 = 4;

/// The functions that can grow, and their laws.
const GROWING: &[(&str, Growth)] = &[
    ("repeat", Growth::Times),
    ("lpad", Growth::Padded),
    ("rpad", Growth::Padded),
    ("concat", Growth::Sum),
    ("concat_ws", Growth::Joined),
    ("replace", Growth::Replaced),
    ("regexp_replace", Growth::Matched),
    ("regexp_like", Growth::Pattern),
    ("regexp_match", Growth::Pattern),
    ("regexp_count", Growth::Pattern),
    ("regexp_instr", Growth::Pattern),
    ("overlay", Growth::Sum),
    ("translate", Growth::Sum),
    ("array_repeat", Growth::Repeated),
    ("array_resize", Growth::Resized),
    ("array_to_string", Growth::Delimited),
    ("array_append", Growth::Kept),
    ("array_concat", Growth::Kept),
    ("array_prepend", Growth::Kept),
    ("make_array", Growth::Kept),
    ("named_struct", Growth::Kept),
    ("struct", Growth::Kept),
    ("string_to_array", Growth::Split),
    ("encode", Growth::Twice),
    ("range", Growth::Series),
    ("generate_series", Growth::Series),
];

/// A law by which the size of a value follows from its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Growth {
    /// The length of the first times the second.
    Times,
    /// As many characters as the second says.
    Padded,
    /// All arguments together.
    Sum,
    /// All arguments together, with the first between them.
    Joined,
    /// The first, with each occurrence of the second replaced by the third.
    Replaced,
    /// The first, with each match of a pattern, which may be empty, replaced by the third.
    Matched,
    /// No text; the second is a pattern.
    Pattern,
    /// An array of as many elements as the second says.
    Repeated,
    /// An array of as many elements as the second says, or as the first has.
    Resized,
    /// The elements of the first, with the second between them.
    Delimited,
    /// An array of the steps between the first and the second.
    Series,
    /// An array or a structure that keeps all arguments, as large as they are.
    Kept,
    /// An array of the parts of the first between occurrences of the second.
    Split,
    /// Two characters for each byte of the first.
    Twice,
}

/// The wrapped functions, under DataFusion's names.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    GROWING.iter().filter_map(|(name, growth)| {
        let inner = Arc::clone(builtin(name)?);
        Some(ScalarUDF::from(Bounded { inner, growth: *growth }))
    })
}

/// True for functions that refuse large values by themselves, constants among their arguments included.
pub(crate) fn bounds_itself(name: &str) -> bool {
    name == concatenation::NAME || GROWING.iter().any(|(growing, _)| *growing == name)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Bounded {
    inner: Arc<ScalarUDF>,
    growth: Growth,
}

impl Bounded {
    fn inner(&self) -> &dyn ScalarUDFImpl {
        self.inner.inner().as_ref()
    }

    /// The place of the flags of a regular expression among the arguments.
    fn flags_at(&self) -> usize {
        match self.inner().name() {
            "regexp_like" | "regexp_match" => 2,
            "regexp_instr" => 5,
            _ => 3,
        }
    }

    /// The arguments with a constant pattern in the words of the regex crate; `None` where it is that already.
    fn with_pattern(&self, args: &[Expr]) -> Option<Vec<Expr>> {
        if !matches!(self.growth, Growth::Matched | Growth::Pattern) {
            return None;
        }
        let text = |place: usize| match args.get(place) {
            Some(Expr::Literal(value, _)) => value.try_as_str().flatten(),
            _ => None,
        };
        let flags = text(self.flags_at()).unwrap_or_default();
        // What is no pattern is refused when the call runs.
        let pattern = regular::pattern(text(1)?, flags).ok()?;
        if text(1) == Some(pattern.as_ref()) {
            return None;
        }
        let pattern = Some(pattern.into_owned());
        let mut args = args.to_vec();
        args[1] = lit(match &args[1] {
            Expr::Literal(ScalarValue::Utf8View(_), _) => ScalarValue::Utf8View(pattern),
            Expr::Literal(ScalarValue::LargeUtf8(_), _) => ScalarValue::LargeUtf8(pattern),
            _ => ScalarValue::Utf8(pattern),
        });
        Some(args)
    }
}

impl ScalarUDFImpl for Bounded {
    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        check(self.name(), self.growth, &args)?;
        if self.growth == Growth::Padded
            && let Some(counts) = args.args.get_mut(1)
        {
            *counts = not_negative(counts)?;
        }
        if matches!(self.growth, Growth::Matched | Growth::Pattern) {
            let flags = args.args.get(self.flags_at()).and_then(constant_text).unwrap_or_default();
            if let Some(pattern) = args.args.get_mut(1) {
                *pattern = texts_written(pattern, |text| regular::pattern(text, &flags))?;
            }
        }
        if self.growth == Growth::Matched
            && let Some(replacement) = args.args.get_mut(2)
        {
            *replacement =
                texts_written(replacement, |text| Ok(regular::replacement(text).into()))?;
        }
        self.inner().invoke_with_args(args)
    }

    /// Large literals are not joined while the plan is made, where nothing bounds them.
    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let is_large = |arg: &Expr| match arg {
            Expr::Literal(value, _) => value.size() > SIMPLIFIED_BYTES_MAX,
            _ => false,
        };
        if args.iter().any(is_large) {
            return Ok(ExprSimplifyResult::Original(args));
        }
        let Some(written) = self.with_pattern(&args) else {
            return self.inner().simplify(args, info);
        };
        // A call that stays one translates the pattern when it runs.
        Ok(match self.inner().simplify(written, info)? {
            ExprSimplifyResult::Original(_) => ExprSimplifyResult::Original(args),
            simplified @ ExprSimplifyResult::Simplified(_) => simplified,
        })
    }

    like_inner!();
}

/// Counts in which 0 stands for negative ones: DataFusion's functions take the sum of these numbers, as numbers without
/// a sign, for the bytes to allocate.
fn not_negative(counts: &ColumnarValue) -> Result<ColumnarValue> {
    Ok(match counts.cast_to(&DataType::Int64, None)? {
        ColumnarValue::Scalar(ScalarValue::Int64(Some(count))) => {
            ColumnarValue::Scalar(ScalarValue::Int64(Some(count.max(0))))
        }
        ColumnarValue::Array(counts) => {
            let counts = counts.as_primitive::<Int64Type>();
            let counts = counts.unary::<_, Int64Type>(|count| count.max(0));
            ColumnarValue::Array(Arc::new(counts))
        }
        null @ ColumnarValue::Scalar(_) => null,
    })
}

fn constant_text(of: &ColumnarValue) -> Option<String> {
    match of {
        ColumnarValue::Scalar(value) => value.try_as_str().flatten().map(str::to_owned),
        ColumnarValue::Array(_) => None,
    }
}

/// Texts in the words of the regex crate, in their type.
fn texts_written(
    of: &ColumnarValue,
    write: impl for<'a> Fn(&'a str) -> Result<Cow<'a, str>, SqlError>,
) -> Result<ColumnarValue> {
    let to = of.data_type();
    let constant = matches!(of, ColumnarValue::Scalar(_));
    let texts = cast(&of.to_array(1)?, &DataType::Utf8)?;
    let written = texts.as_string::<i32>().iter().map(|text| text.map(&write).transpose());
    let written = cast(&written.collect::<Result<StringArray, SqlError>>()?, &to)?;
    if constant {
        return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&written, 0)?));
    }
    Ok(ColumnarValue::Array(written))
}

/// Refuses a call whose values would be too large.
fn check(name: &str, growth: Growth, args: &ScalarFunctionArgs) -> Result<()> {
    let constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
    let rows = if constant { 1 } else { args.number_rows };
    if matches!(growth, Growth::Matched | Growth::Pattern)
        && let Some(pattern) = args.args.get(1)
    {
        let lengths = Numbers::lengths(pattern)?;
        if (0..rows).any(|row| lengths.at(row) > PATTERN_BYTES_MAX) {
            let message = format!("a regular expression is longer than {PATTERN_BYTES_MAX} bytes");
            return Err(SqlError::new(INVALID_REGULAR_EXPRESSION, message).into());
        }
    }
    if growth == Growth::Kept {
        return check_kept(name, args, rows);
    }
    let Some(sizes) = Sizes::of(growth, &args.args)? else { return Ok(()) };
    check_sizes(name, rows, |row| sizes.at(row))
}

/// Refuses a call whose values, of the sizes given for each row, would be too large.
pub(crate) fn check_sizes(name: &str, rows: usize, size_at: impl Fn(usize) -> u64) -> Result<()> {
    let mut total = 0_u64;
    for row in 0..rows {
        let size = size_at(row);
        total = total.saturating_add(size);
        check_size(name, size)?;
    }
    check_total(&format!("{name}()"), rows, total)
}

/// Refuses one value of `size` bytes that is too large.
pub(crate) fn check_size(name: &str, size: u64) -> Result<()> {
    if size <= VALUE_BYTES_MAX {
        return Ok(());
    }
    Err(too_large(format!(
        "a value of {name}() would take {size} bytes; {VALUE_BYTES_MAX} are the most"
    )))
}

/// Refuses values, of `total` bytes in `rows` rows, that are too large together; `name` is what they are values of.
pub(crate) fn check_total(name: &str, rows: usize, total: u64) -> Result<()> {
    if total <= CALL_BYTES_MAX {
        return Ok(());
    }
    Err(too_large(format!(
        "the values of {name} in {rows} rows would take {total} bytes; {CALL_BYTES_MAX} are the most"
    )))
}

/// Refuses a call that would keep more than a call's bytes of its arguments.
fn check_kept(name: &str, args: &ScalarFunctionArgs, rows: usize) -> Result<()> {
    let bytes = |arg: &ColumnarValue| match arg {
        // A slice of a batch keeps the batch; what it says is its own part.
        ColumnarValue::Array(array) => {
            array.to_data().get_slice_memory_size().unwrap_or(usize::MAX)
        }
        ColumnarValue::Scalar(value) => value.size().saturating_mul(rows),
    };
    let total = args.args.iter().map(bytes).fold(0, usize::saturating_add);
    check_total(&format!("{name}()"), rows, u64::try_from(total).unwrap_or(u64::MAX))
}

fn too_large(message: String) -> datafusion::error::DataFusionError {
    SqlError::new(PROGRAM_LIMIT_EXCEEDED, message).into()
}

/// Numbers of an argument: one for each row, or one for all.
pub(crate) enum Numbers {
    All(u64),
    Each(Vec<u64>),
}

impl Numbers {
    pub(crate) fn at(&self, row: usize) -> u64 {
        match self {
            Self::All(number) => *number,
            Self::Each(numbers) => numbers.get(row).copied().unwrap_or(0),
        }
    }

    /// The lengths of texts in bytes, or of arrays in elements; NULLs and other values have none.
    pub(crate) fn lengths(arg: &ColumnarValue) -> Result<Self> {
        match arg {
            ColumnarValue::Scalar(value) => {
                let array = value.to_array()?;
                Ok(Self::All(lengths_of(&array)?.first().copied().unwrap_or(0)))
            }
            ColumnarValue::Array(array) => Ok(Self::Each(lengths_of(array)?)),
        }
    }

    /// The bytes of values of any type, those within arrays and structures too.
    fn bytes(arg: &ColumnarValue) -> Result<Self> {
        match arg {
            ColumnarValue::Scalar(value) => {
                Ok(Self::All(u64::try_from(value.size()).unwrap_or(u64::MAX)))
            }
            ColumnarValue::Array(array) if array.data_type().is_nested() => {
                let bytes = |row| array.slice(row, 1).to_data().get_slice_memory_size();
                let bytes = (0..array.len()).map(|row| Ok(u64::try_from(bytes(row)?).unwrap_or(0)));
                Ok(Self::Each(bytes.collect::<Result<_>>()?))
            }
            ColumnarValue::Array(array) => Ok(Self::Each(lengths_of(array)?)),
        }
    }

    /// The values of whole numbers; negative ones and NULLs count as none.
    fn counts(arg: &ColumnarValue) -> Result<Self> {
        let positive = |count: i64| u64::try_from(count).unwrap_or(0);
        match arg {
            ColumnarValue::Scalar(value) => match value.cast_to(&DataType::Int64)? {
                ScalarValue::Int64(Some(count)) => Ok(Self::All(positive(count))),
                _ => Ok(Self::All(0)),
            },
            ColumnarValue::Array(array) => {
                let counts = cast(array, &DataType::Int64)?;
                let counts = counts.as_primitive::<Int64Type>();
                Ok(Self::Each(counts.iter().map(|count| count.map_or(0, positive)).collect()))
            }
        }
    }
}

fn lengths_of(array: &dyn Array) -> Result<Vec<u64>> {
    let measurable = matches!(
        array.data_type(),
        DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Utf8View
            | DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::List(_)
            | DataType::LargeList(_)
            | DataType::FixedSizeList(..)
    );
    if !measurable {
        // Numbers and times are short as texts.
        let short = if array.data_type().is_null() { 0 } else { ELEMENT_BYTES };
        return Ok(vec![short; array.len()]);
    }
    let lengths = cast(&length(array)?, &DataType::Int64)?;
    let lengths = lengths.as_primitive::<Int64Type>();
    Ok(lengths
        .iter()
        .map(|length| length.and_then(|l| u64::try_from(l).ok()).unwrap_or(0))
        .collect())
}

/// The sizes of a call's values.
struct Sizes {
    growth: Growth,
    arguments: Vec<Numbers>,
    /// Bytes of one element of a repeated array.
    element: Numbers,
}

impl Sizes {
    /// `None` when the arguments are not those that can grow: the function says what is wrong with them.
    fn of(growth: Growth, args: &[ColumnarValue]) -> Result<Option<Self>> {
        let mut element = Numbers::All(ELEMENT_BYTES);
        let arguments = match (growth, args) {
            (Growth::Times, [text, count]) => {
                vec![Numbers::lengths(text)?, Numbers::counts(count)?]
            }
            (Growth::Padded, [_, count, ..]) => vec![Numbers::counts(count)?],
            (Growth::Repeated, [repeated, count]) => {
                element = Numbers::bytes(repeated)?;
                vec![Numbers::counts(count)?]
            }
            (Growth::Resized, [array, count, fill @ ..]) => {
                if let [fill, ..] = fill {
                    element = Numbers::bytes(fill)?;
                }
                vec![Numbers::lengths(array)?, Numbers::counts(count)?]
            }
            (Growth::Delimited, [array, delimiter, ..]) => {
                let bytes = match array {
                    ColumnarValue::Array(array) => array.get_array_memory_size(),
                    ColumnarValue::Scalar(value) => value.size(),
                };
                let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
                if bytes < VALUE_BYTES_MAX / 64 {
                    element = Numbers::All(0);
                }
                vec![Numbers::lengths(array)?, Numbers::lengths(delimiter)?]
            }
            (Growth::Series, args) if args.iter().all(is_whole) => {
                args.iter().map(signed).collect::<Result<_>>()?
            }
            (Growth::Split, [text, delimiter, ..]) => {
                vec![Numbers::lengths(text)?, Numbers::lengths(delimiter)?]
            }
            (Growth::Twice, [bytes, ..]) => vec![Numbers::lengths(bytes)?],
            (Growth::Sum | Growth::Joined, args) if !args.is_empty() => {
                args.iter().map(Numbers::lengths).collect::<Result<_>>()?
            }
            (Growth::Replaced | Growth::Matched, [text, from, to, ..]) => {
                vec![Numbers::lengths(text)?, Numbers::lengths(from)?, Numbers::lengths(to)?]
            }
            _ => return Ok(None),
        };
        Ok(Some(Self { growth, arguments, element }))
    }

    fn at(&self, row: usize) -> u64 {
        let argument = |position: usize| self.arguments.get(position).map_or(0, |a| a.at(row));
        match self.growth {
            Growth::Times => argument(0).saturating_mul(argument(1)),
            Growth::Padded => argument(0),
            Growth::Pattern | Growth::Kept => 0,
            Growth::Split => {
                let (text, delimiter) = (argument(0), argument(1).max(1));
                text.saturating_add((text / delimiter).saturating_mul(OFFSET_BYTES))
            }
            Growth::Twice => argument(0).saturating_mul(2),
            Growth::Sum => self.arguments.iter().map(|a| a.at(row)).fold(0, u64::saturating_add),
            Growth::Joined => {
                let all = self.arguments.iter().map(|a| a.at(row)).fold(0, u64::saturating_add);
                all.saturating_add(argument(0).saturating_mul(self.arguments.len() as u64))
            }
            Growth::Replaced => {
                let (text, from, to) = (argument(0), argument(1).max(1), argument(2));
                text.saturating_add((text / from).saturating_mul(to))
            }
            Growth::Matched => {
                let (text, to) = (argument(0), argument(2));
                text.saturating_add(text.saturating_add(1).saturating_mul(to))
            }
            Growth::Repeated => argument(0).saturating_mul(self.element.at(row).max(ELEMENT_BYTES)),
            Growth::Resized => {
                argument(0).max(argument(1)).saturating_mul(self.element.at(row).max(ELEMENT_BYTES))
            }
            Growth::Delimited => argument(0).saturating_mul(argument(1)),
            Growth::Series => self.steps(row).saturating_mul(ELEMENT_BYTES / 2),
        }
    }

    /// The number of steps of a series; its arguments are kept with their sign bit turned, so that they order as
    /// unsigned numbers.
    fn steps(&self, row: usize) -> u64 {
        let argument = |position: usize| self.arguments.get(position).map(|a| a.at(row));
        let zero = 1 << 63;
        let (start, stop) = match (argument(0), argument(1)) {
            (Some(stop), None) => (zero, stop),
            (Some(start), Some(stop)) => (start, stop),
            _ => return 0,
        };
        let step = argument(2).map_or(1, |step| step.abs_diff(zero)).max(1);
        (start.abs_diff(stop) / step).saturating_add(1)
    }
}

fn is_whole(arg: &ColumnarValue) -> bool {
    arg.data_type().is_integer()
}

/// Whole numbers with their sign bit turned.
fn signed(arg: &ColumnarValue) -> Result<Numbers> {
    let turned = |number: i64| number.cast_unsigned() ^ (1 << 63);
    match arg {
        ColumnarValue::Scalar(value) => match value.cast_to(&DataType::Int64)? {
            ScalarValue::Int64(Some(number)) => Ok(Numbers::All(turned(number))),
            _ => Ok(Numbers::All(turned(0))),
        },
        ColumnarValue::Array(array) => {
            let numbers = cast(array, &DataType::Int64)?;
            let numbers = numbers.as_primitive::<Int64Type>();
            Ok(Numbers::Each(numbers.iter().map(|number| turned(number.unwrap_or(0))).collect()))
        }
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use super::*;

    /// The SQLSTATE of a query over these functions, or its only value.
    async fn answer(sql: &str) -> std::result::Result<String, String> {
        let context = SessionContext::new();
        for function in functions() {
            context.register_udf(function);
        }
        let run = async {
            let batches = context.sql(sql).await?.collect().await?;
            let text = arrow::util::display::array_value_to_string(batches[0].column(0), 0)?;
            Ok::<_, datafusion::error::DataFusionError>(text)
        };
        run.await.map_err(|error| SqlError::from(error).sqlstate)
    }

    #[tokio::test]
    async fn values_beyond_the_bound_are_refused_before_they_are_made() {
        let large = [
            "repeat('x', 2000000000)",
            "lpad('x', 2147483647, 'y')",
            "rpad('x', 100000000)",
            "replace(repeat('x', 1000000), 'x', repeat('y', 1000))",
            "regexp_replace(repeat('x', 1000000), '', repeat('y', 1000), 'g')",
            "concat_ws(repeat('x', 20000000), 'a', 'b', 'c')",
            "concat(repeat('x', 20000000), repeat('x', 20000000))",
            "cardinality(array_repeat(1, 2000000000))",
            "cardinality(range(1, 9000000000000000000))",
            "cardinality(range(9000000000000000000))",
            "cardinality(generate_series(-9000000000000000000, 9000000000000000000, 3))",
            "cardinality(array_resize([1], 2000000000, 0))",
            "array_to_string(range(1, 100000), repeat('x', 10000))",
            "cardinality(array_repeat(array_repeat(repeat('x', 1000), 1000), 10000))",
            "cardinality(array_resize(make_array('a'), 1000, repeat('x', 1000000)))",
            "cardinality(range(9223372036854775807, -9223372036854775808, -1))",
            "cardinality(string_to_array(repeat(',', 10000000), ','))",
            "length(encode(CAST(repeat('x', 20000000) AS BYTEA), 'hex'))",
        ];
        for sql in large {
            let answer = answer(&format!("SELECT {sql}")).await.map(|value| value.len());
            assert_eq!(answer, Err("54000".to_owned()), "{sql}");
        }
        let pattern = "regexp_like('a', repeat('word|', 10000))";
        let answer_of_pattern = answer(&format!("SELECT {pattern}")).await;
        assert_eq!(answer_of_pattern, Err("2201B".to_owned()));
        // Not one value, but all of a batch.
        let rows = "SELECT length(max(repeat('x', CAST(value AS BIGINT) * 10000))) FROM generate_series(1, 3000)";
        assert_eq!(answer(rows).await, Err("54000".to_owned()));
        let text = "repeat('x', CAST(value AS BIGINT) * 5000)";
        for kept in [
            format!("make_array({text}, {text})"),
            format!("array_append(make_array({text}), {text})"),
            format!("array_concat(make_array({text}), make_array({text}))"),
            format!("named_struct('a', {text}, 'b', {text})"),
        ] {
            let rows = format!("SELECT count({kept}) FROM generate_series(4000, 8000)");
            assert_eq!(answer(&rows).await, Err("54000".to_owned()), "{kept}");
        }
    }

    #[tokio::test]
    async fn values_within_the_bound_are_what_they_were() {
        for (sql, value) in [
            ("repeat('ab', 3)", "ababab"),
            ("repeat('ab', -3)", ""),
            ("lpad('x', 3, 'yz')", "yzx"),
            ("replace('aXbX', 'X', '--')", "a--b--"),
            ("regexp_replace('aXbX', 'X', '-', 'g')", "a-b-"),
            ("regexp_replace('abc', 'b', '<\\&$1>')", "a<b$1>c"),
            ("regexp_replace('abc', '(b)(c)', '\\2\\1')", "acb"),
            ("concat('a', NULL, 1)", "a1"),
            ("concat_ws('-', 'a', 'b')", "a-b"),
            ("cardinality(range(5, 1, -2))", "2"),
            ("array_to_string([1, 2], ',')", "1,2"),
            ("length(repeat('x', 30000000))", "30000000"),
        ] {
            assert_eq!(answer(&format!("SELECT {sql}")).await, Ok(value.to_owned()), "{sql}");
        }
    }

    #[tokio::test]
    async fn the_least_numbers_as_counts_of_rows_are_counts_like_any_other() {
        let rows =
            "(VALUES (-9223372036854775808), (-9223372036854775807), (-1), (1), (NULL)) AS t (n)";
        for (sql, value) in [
            ("lpad('abc', n, 'y')", "|||a|NULL"),
            ("lpad('äbc', n)", "|||ä|NULL"),
            ("rpad('abc', n, 'y')", "|||a|NULL"),
            ("rpad('äbc', n)", "|||ä|NULL"),
            ("lpad('x', -1, CAST(n AS TEXT))", "||||NULL"),
            ("rpad(CAST(n AS TEXT), -9223372036854775808)", "||||NULL"),
            ("repeat('abc', n)", "|||abc|NULL"),
            ("cardinality(array_repeat('a', n))", "0|0|0|1|NULL"),
        ] {
            let sql = format!("SELECT array_to_string(array_agg({sql}), '|', 'NULL') FROM {rows}");
            assert_eq!(answer(&sql).await, Ok(value.to_owned()), "{sql}");
        }
    }
}
