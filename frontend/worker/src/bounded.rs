//! Bounds on functions whose values may be larger than their arguments.
//!
//! DataFusion's functions allocate the memory for their values outside of every memory pool: `repeat('x', 2000000000)`
//! takes two gigabytes. Functions that can grow without limit are wrapped here. The wrapper computes the sizes of the
//! values from lengths and counts alone, before any value is made, and refuses values beyond the bounds with SQLSTATE
//! 54000, as PostgreSQL does beyond a gigabyte. `folded.rs` adds up the constants of a statement.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{Array, AsArray, StringArray};
use arrow::compute::cast;
use arrow::compute::kernels::length::length;
use arrow::datatypes::{
    DataType, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, lit,
};

use crate::concatenation;
use crate::error::{
    INVALID_PARAMETER_VALUE, INVALID_REGULAR_EXPRESSION, PROGRAM_LIMIT_EXCEEDED, SqlError,
};
use crate::folded;
use crate::functions::builtin;
use crate::inner::like_inner;
use crate::regular;

/// Maximum bytes of one value.
const VALUE_BYTES_MAX: u64 = 32 << 20;
/// Maximum bytes of the values of one call, which has the rows of one batch.
const CALL_BYTES_MAX: u64 = 128 << 20;
/// Maximum bytes of a regular expression: compiled, it takes a thousand times as much, and each thread compiles it.
const PATTERN_BYTES_MAX: u64 = 16 << 10;
/// Maximum bytes of a literal that the function's own simplification may join with others, or compile as a pattern.
const SIMPLIFIED_BYTES_MAX: usize = 16 << 10;
/// Approximate bytes of an element of an array.
const ELEMENT_BYTES: u64 = 16;
/// Bytes of an offset in an array of texts.
const OFFSET_BYTES: u64 = 4;

/// Nanoseconds of an hour.
const HOUR: i128 = 3_600_000_000_000;

/// Functions whose values can grow, and the rule for their size.
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

/// Rule by which the size of a value follows from the arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Growth {
    /// Length of the first argument times the second.
    Times,
    /// As many characters as the second argument.
    Padded,
    /// Sum of the lengths of all arguments.
    Sum,
    /// Sum of the lengths of all arguments, and the first once more for each.
    Joined,
    /// Length of the first argument, with each occurrence of the second replaced by the third.
    Replaced,
    /// Length of the first argument, with each match of a pattern, which may be empty, replaced by the third.
    Matched,
    /// No text; the second argument is a pattern.
    Pattern,
    /// Array of as many elements as the second argument.
    Repeated,
    /// Array of as many elements as the second argument, or as the first has.
    Resized,
    /// Elements of the first argument, with the second between them.
    Delimited,
    /// Array of the steps between the first argument and the second.
    Series,
    /// Array or structure of all arguments.
    Kept,
    /// Array of the parts of the first argument between occurrences of the second.
    Split,
    /// Two characters for each byte of the first argument.
    Twice,
}

/// The wrapped functions, under DataFusion's names.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    GROWING.iter().filter_map(|(name, growth)| {
        let inner = Arc::clone(builtin(name)?);
        Some(ScalarUDF::from(Bounded { inner, growth: *growth }))
    })
}

/// Returns true if the function refuses large values itself, also when all its arguments are constants.
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

    /// Position of the regular expression's flags among the arguments.
    fn flags_at(&self) -> usize {
        match self.inner().name() {
            "regexp_like" | "regexp_match" => 2,
            "regexp_instr" => 5,
            _ => 3,
        }
    }

    /// Arguments with a constant pattern translated to the syntax of the regex crate; `None` if nothing has to be
    /// translated.
    fn with_pattern(&self, args: &[Expr]) -> Option<Vec<Expr>> {
        if !matches!(self.growth, Growth::Matched | Growth::Pattern) {
            return None;
        }
        let text = |position: usize| match args.get(position) {
            Some(Expr::Literal(value, _)) => value.try_as_str().flatten(),
            _ => None,
        };
        let flags = text(self.flags_at()).unwrap_or_default();
        // A malformed pattern is refused when the call runs.
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
        if self.growth == Growth::Resized
            && let Some(lengths) = args.args.get(1)
            && any_number(lengths, |length| length < 0)?
        {
            let message = format!("length of {}() must not be negative", self.name());
            return Err(SqlError::new(INVALID_PARAMETER_VALUE, message).into());
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

    /// Large literals are not joined while the plan is made, where no bound applies.
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
        // A call that remains in the plan translates its pattern when it runs.
        Ok(match self.inner().simplify(written, info)? {
            ExprSimplifyResult::Original(_) => ExprSimplifyResult::Original(args),
            simplified @ ExprSimplifyResult::Simplified(_) => simplified,
        })
    }

    like_inner!();
}

/// Counts with 0 in place of negative ones: DataFusion's functions add them up as unsigned numbers and allocate as many
/// bytes.
fn not_negative(counts: &ColumnarValue) -> Result<ColumnarValue> {
    with_numbers(counts, |count| count.max(0))
}

/// Whole numbers, each of them changed; NULLs stay.
pub(crate) fn with_numbers(
    numbers: &ColumnarValue,
    change: impl Fn(i64) -> i64,
) -> Result<ColumnarValue> {
    Ok(match numbers.cast_to(&DataType::Int64, None)? {
        ColumnarValue::Scalar(ScalarValue::Int64(Some(number))) => {
            ColumnarValue::Scalar(ScalarValue::Int64(Some(change(number))))
        }
        ColumnarValue::Array(numbers) => {
            let numbers = numbers.as_primitive::<Int64Type>();
            ColumnarValue::Array(Arc::new(numbers.unary::<_, Int64Type>(change)))
        }
        null @ ColumnarValue::Scalar(_) => null,
    })
}

/// Returns true if any of the whole numbers passes; NULLs do not.
pub(crate) fn any_number(numbers: &ColumnarValue, passes: impl Fn(i64) -> bool) -> Result<bool> {
    Ok(match numbers.cast_to(&DataType::Int64, None)? {
        ColumnarValue::Scalar(ScalarValue::Int64(number)) => number.is_some_and(passes),
        ColumnarValue::Scalar(_) => false,
        ColumnarValue::Array(numbers) => {
            numbers.as_primitive::<Int64Type>().iter().flatten().any(passes)
        }
    })
}

fn constant_text(argument: &ColumnarValue) -> Option<String> {
    match argument {
        ColumnarValue::Scalar(value) => value.try_as_str().flatten().map(str::to_owned),
        ColumnarValue::Array(_) => None,
    }
}

/// Texts translated to the syntax of the regex crate, in the same text type.
fn texts_written(
    argument: &ColumnarValue,
    write: impl for<'a> Fn(&'a str) -> Result<Cow<'a, str>, SqlError>,
) -> Result<ColumnarValue> {
    let data_type = argument.data_type();
    let constant = matches!(argument, ColumnarValue::Scalar(_));
    let texts = cast(&argument.to_array(1)?, &DataType::Utf8)?;
    let written = texts.as_string::<i32>().iter().map(|text| text.map(&write).transpose());
    let written = cast(&written.collect::<Result<StringArray, SqlError>>()?, &data_type)?;
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
            let message = format!("regular expression exceeds {PATTERN_BYTES_MAX} bytes");
            return Err(SqlError::new(INVALID_REGULAR_EXPRESSION, message).into());
        }
    }
    if growth == Growth::Kept {
        return check_kept(name, args, rows);
    }
    if growth == Growth::Series && !args.args.iter().all(is_whole) {
        return check_times(name, &args.args, rows);
    }
    let Some(sizes) = Sizes::of(growth, &args.args)? else { return Ok(()) };
    check_sizes(name, rows, |row| sizes.at(row))
}

/// Refuses a call whose values, with the given size for each row, would be too large.
pub(crate) fn check_sizes(name: &str, rows: usize, size_at: impl Fn(usize) -> u64) -> Result<()> {
    let mut total = 0_u64;
    for row in 0..rows {
        let size = size_at(row);
        total = total.saturating_add(size);
        check_size(name, size)?;
    }
    check_total(&format!("{name}()"), rows, total)
}

/// Refuses a value of `size` bytes if it is too large.
pub(crate) fn check_size(name: &str, size: u64) -> Result<()> {
    if size <= VALUE_BYTES_MAX {
        return Ok(());
    }
    Err(too_large(format!(
        "value of {name}() would take {size} bytes, the limit is {VALUE_BYTES_MAX}"
    )))
}

/// Refuses values of `total` bytes in `rows` rows if they are too large together; `name` says which values they are. While
/// a plan is made, they count as constants of its statement.
pub(crate) fn check_total(name: &str, rows: usize, total: u64) -> Result<()> {
    if total <= CALL_BYTES_MAX {
        return folded::count(total);
    }
    Err(too_large(format!(
        "values of {name} in {rows} rows would take {total} bytes, the limit is {CALL_BYTES_MAX}"
    )))
}

/// Refuses a call that would keep more than `CALL_BYTES_MAX` bytes of its arguments.
fn check_kept(name: &str, args: &ScalarFunctionArgs, rows: usize) -> Result<()> {
    let bytes = |arg: &ColumnarValue| match arg {
        // A slice keeps the whole batch alive, but only its own part is counted.
        ColumnarValue::Array(array) => {
            array.to_data().get_slice_memory_size().unwrap_or(usize::MAX)
        }
        ColumnarValue::Scalar(value) => value.size().saturating_mul(rows),
    };
    let total = args.args.iter().map(bytes).fold(0, usize::saturating_add);
    check_total(&format!("{name}()"), rows, u64::try_from(total).unwrap_or(u64::MAX))
}

/// Refuses a series of dates or times that would have too many elements, or never end.
fn check_times(name: &str, args: &[ColumnarValue], rows: usize) -> Result<()> {
    let [start, stop, step] = args else { return Ok(()) };
    let (Some(starts), Some(stops)) = (instants(start, rows)?, instants(stop, rows)?) else {
        return Ok(());
    };
    if !matches!(step.data_type(), DataType::Interval(_)) {
        return Ok(());
    }
    let of_dates = matches!(start.data_type(), DataType::Date32 | DataType::Date64);
    let steps = cast(&step.to_array(rows)?, &DataType::Interval(IntervalUnit::MonthDayNano))?;
    let steps = steps.as_primitive::<IntervalMonthDayNanoType>();
    let mut sizes = Vec::with_capacity(rows);
    for ((start, stop), step) in starts.into_iter().zip(stops).zip(steps) {
        sizes.push(match (start, stop, step) {
            (Some(start), Some(stop), Some(step)) => {
                let elements = elements_between(start, stop, step, of_dates)?;
                elements.saturating_mul(ELEMENT_BYTES / 2)
            }
            _ => 0,
        });
    }
    check_sizes(name, rows, |row| sizes.get(row).copied().unwrap_or(0))
}

/// Dates or times in nanoseconds since 1970; `None` for values of other types.
fn instants(arg: &ColumnarValue, rows: usize) -> Result<Option<Vec<Option<i128>>>> {
    let tick = match arg.data_type() {
        DataType::Date32 => 24 * HOUR,
        DataType::Timestamp(TimeUnit::Second, _) => 1_000_000_000,
        DataType::Date64 | DataType::Timestamp(TimeUnit::Millisecond, _) => 1_000_000,
        DataType::Timestamp(TimeUnit::Microsecond, _) => 1_000,
        DataType::Timestamp(TimeUnit::Nanosecond, _) => 1,
        _ => return Ok(None),
    };
    let ticks = cast(&arg.to_array(rows)?, &DataType::Int64)?;
    let ticks = ticks.as_primitive::<Int64Type>();
    Ok(Some(ticks.iter().map(|count| Some(i128::from(count?) * tick)).collect()))
}

/// Maximum number of elements of a series of dates or times.
fn elements_between(
    start: i128,
    stop: i128,
    step: IntervalMonthDayNano,
    of_dates: bool,
) -> Result<u64> {
    if (step.months, step.days, step.nanoseconds) == (0, 0, 0) {
        // The function itself refuses such a step.
        return Ok(0);
    }
    // A day has fewer or more hours where clocks change. A date moves by whole days only.
    let (short_day, long_day) =
        if of_dates { (24 * HOUR, 24 * HOUR) } else { (23 * HOUR, 25 * HOUR) };
    let rest = i128::from(step.nanoseconds);
    let rest = if of_dates { rest / short_day * short_day } else { rest };
    // The least and the greatest distance of `count` units.
    let distances = |count: i32, short: i128, long: i128| {
        let (short, long) = (i128::from(count) * short, i128::from(count) * long);
        (short.min(long), short.max(long))
    };
    let months = distances(step.months, 28 * short_day, 31 * long_day);
    let days = distances(step.days, short_day, long_day);
    let (least, greatest) = (months.0 + days.0 + rest, months.1 + days.1 + rest);
    // DataFusion takes the direction of dates from the signs of the months and the days.
    let backward = of_dates && (step.months < 0 || step.days < 0);
    let elements = if least > 0 && !backward {
        stop.checked_sub(start).map(|distance| distance / least)
    } else if greatest < 0 && (backward || !of_dates) {
        start.checked_sub(stop).map(|distance| distance / -greatest)
    } else {
        let error = SqlError::new(INVALID_PARAMETER_VALUE, "step size cannot equal zero");
        let detail = "The parts of the step have opposite signs and may cancel each other.";
        return Err(error.with_detail(detail).into());
    };
    let elements = elements.map_or(i128::MAX, |elements| elements.saturating_add(1)).max(0);
    Ok(u64::try_from(elements).unwrap_or(u64::MAX))
}

fn too_large(message: String) -> datafusion::error::DataFusionError {
    SqlError::new(PROGRAM_LIMIT_EXCEEDED, message).into()
}

/// A number of an argument: one for each row, or one for all rows.
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

    /// Lengths of texts in bytes, or of arrays in elements; NULLs have length 0, other values a small one.
    pub(crate) fn lengths(arg: &ColumnarValue) -> Result<Self> {
        match arg {
            ColumnarValue::Scalar(value) => {
                let array = value.to_array()?;
                Ok(Self::All(lengths_of(&array)?.first().copied().unwrap_or(0)))
            }
            ColumnarValue::Array(array) => Ok(Self::Each(lengths_of(array)?)),
        }
    }

    /// Bytes of values of any type, including those nested in arrays and structures.
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

    /// Values of whole numbers; negative ones and NULLs count as 0.
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
        // Numbers and times are short when written as text.
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

/// Sizes of a call's values, row by row.
struct Sizes {
    growth: Growth,
    arguments: Vec<Numbers>,
    /// Bytes of one element of a repeated array.
    element: Numbers,
}

impl Sizes {
    /// `None` when the arguments do not fit the rule: the function itself reports what is wrong with them.
    fn of(growth: Growth, args: &[ColumnarValue]) -> Result<Option<Self>> {
        let mut element = Numbers::All(ELEMENT_BYTES);
        // Each rule reads the lengths or the values of the arguments that it depends on.
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
                // Short arrays can only grow by their delimiters.
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
            (Growth::Replaced | Growth::Matched, [text, pattern, replacement, ..]) => {
                vec![
                    Numbers::lengths(text)?,
                    Numbers::lengths(pattern)?,
                    Numbers::lengths(replacement)?,
                ]
            }
            _ => return Ok(None),
        };
        Ok(Some(Self { growth, arguments, element }))
    }

    fn at(&self, row: usize) -> u64 {
        // Arguments in the order in which `Sizes::of` collected them; missing ones count as 0.
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
                let total = self.arguments.iter().map(|a| a.at(row)).fold(0, u64::saturating_add);
                total.saturating_add(argument(0).saturating_mul(self.arguments.len() as u64))
            }
            Growth::Replaced => {
                let (text, pattern, replacement) = (argument(0), argument(1).max(1), argument(2));
                text.saturating_add((text / pattern).saturating_mul(replacement))
            }
            Growth::Matched => {
                let (text, replacement) = (argument(0), argument(2));
                text.saturating_add(text.saturating_add(1).saturating_mul(replacement))
            }
            Growth::Repeated => argument(0).saturating_mul(self.element.at(row).max(ELEMENT_BYTES)),
            Growth::Resized => {
                argument(0).max(argument(1)).saturating_mul(self.element.at(row).max(ELEMENT_BYTES))
            }
            Growth::Delimited => argument(0).saturating_mul(argument(1)),
            Growth::Series => self.steps(row).saturating_mul(ELEMENT_BYTES / 2),
        }
    }

    /// Number of steps of a series. The arguments are kept with their sign bit flipped, so that they order as unsigned
    /// numbers.
    fn steps(&self, row: usize) -> u64 {
        let argument = |position: usize| self.arguments.get(position).map(|a| a.at(row));
        let zero = 1 << 63;
        let (start, stop) = match (argument(0), argument(1)) {
            (Some(stop), None) => (zero, stop),
            (Some(start), Some(stop)) => (start, stop),
            _ => return 0,
        };
        // The function itself refuses a step of zero; a series that leads away from its end is empty.
        let step = argument(2).unwrap_or(zero + 1);
        let is_empty = if step > zero { start > stop } else { start < stop };
        if step == zero || is_empty {
            return 0;
        }
        (start.abs_diff(stop) / step.abs_diff(zero)).saturating_add(1)
    }
}

fn is_whole(arg: &ColumnarValue) -> bool {
    arg.data_type().is_integer()
}

/// Whole numbers with their sign bit flipped.
fn signed(arg: &ColumnarValue) -> Result<Numbers> {
    let flipped = |number: i64| number.cast_unsigned() ^ (1 << 63);
    match arg {
        ColumnarValue::Scalar(value) => match value.cast_to(&DataType::Int64)? {
            ScalarValue::Int64(Some(number)) => Ok(Numbers::All(flipped(number))),
            _ => Ok(Numbers::All(flipped(0))),
        },
        ColumnarValue::Array(array) => {
            let numbers = cast(array, &DataType::Int64)?;
            let numbers = numbers.as_primitive::<Int64Type>();
            Ok(Numbers::Each(numbers.iter().map(|number| flipped(number.unwrap_or(0))).collect()))
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
            "cardinality(generate_series(TIMESTAMP '1970-01-01', TIMESTAMP '2200-01-01', INTERVAL '1 microsecond'))",
            "cardinality(range(TIMESTAMP '2200-01-01', TIMESTAMP '1970-01-01', INTERVAL '-1 second'))",
        ];
        for sql in large {
            let answer = answer(&format!("SELECT {sql}")).await.map(|value| value.len());
            assert_eq!(answer, Err("54000".to_owned()), "{sql}");
        }
        let pattern = "regexp_like('a', repeat('word|', 10000))";
        let answer_of_pattern = answer(&format!("SELECT {pattern}")).await;
        assert_eq!(answer_of_pattern, Err("2201B".to_owned()));
        // Each value is small enough, but not all of a batch.
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
    async fn a_step_that_may_not_move_is_refused() {
        for sql in [
            "generate_series(TIMESTAMP '2024-01-01', TIMESTAMP '2025-01-01', INTERVAL '1 month -31 days')",
            "generate_series(TIMESTAMP '2024-01-01', TIMESTAMP '2025-01-01', INTERVAL '1 day -24 hours')",
            "range(DATE '2024-01-01', DATE '2025-01-01', INTERVAL '1 day -24 hours')",
            "range(DATE '2024-01-01', DATE '2025-01-01', INTERVAL '1 day -72 hours')",
            "range(DATE '2025-01-01', DATE '2024-01-01', INTERVAL '1 month -27 days')",
            "range(1, 9223372036854775807, 0)",
        ] {
            let answer = answer(&format!("SELECT cardinality({sql})")).await;
            assert_eq!(answer, Err("22023".to_owned()), "{sql}");
        }
    }

    #[tokio::test]
    async fn a_negative_length_of_an_array_is_refused() {
        for sql in ["array_resize([1, 2], -1)", "array_resize([1], -9223372036854775808, 0)"] {
            assert_eq!(answer(&format!("SELECT {sql}")).await, Err("22023".to_owned()), "{sql}");
        }
        let rows = "SELECT array_resize([1], n, 0) FROM (VALUES (2), (-1)) AS t (n)";
        assert_eq!(answer(rows).await, Err("22023".to_owned()));
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
            (
                "cardinality(generate_series(TIMESTAMP '2024-01-01', TIMESTAMP '2024-01-02', INTERVAL '1 hour'))",
                "25",
            ),
            (
                "cardinality(generate_series(TIMESTAMP '2024-01-02', TIMESTAMP '2024-01-01', INTERVAL '-1 hour'))",
                "25",
            ),
            ("cardinality(range(DATE '2024-01-01', DATE '2024-03-01', INTERVAL '1 month'))", "2"),
            (
                "coalesce(cardinality(generate_series(TIMESTAMP '2200-01-01', TIMESTAMP '1970-01-01', INTERVAL '1 microsecond')), 0)",
                "0",
            ),
            ("coalesce(cardinality(range(9223372036854775807, 1)), 0)", "0"),
            ("coalesce(cardinality(range(1, 9223372036854775807, -1)), 0)", "0"),
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
