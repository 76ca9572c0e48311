//! The rows of `INSERT ... VALUES`, from text straight into Arrow columns.
//!
//! ```text
//!   (1, 'a', now()), ($1, X'00', DEFAULT), ...
//!    │
//!    cursor ── one literal at a time ── column builder ── batch
//! ```
//!
//! No syntax tree, no planner: a row costs about as much as reading its bytes. Only literals are scanned (numbers,
//! strings of three kinds, TRUE, FALSE, NULL, DEFAULT, `now()` and its synonyms, `$n`, and casts that do not change the
//! column's value). Anything else is [`Stop::NotSimple`], and the statement is planned instead.
//!
//! Invariants:
//! - scanning gives the same rows as planning, or an error where planning would fail or lose something;
//! - no row is visible before all are scanned.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::RecordBatchOptions;
use arrow::datatypes::{Field, Schema};
use arrow::record_batch::RecordBatch;
use datafusion::common::ScalarValue;
use partita_proto::schema::{Column, ColumnType, Unit};
use partita_worker::{UuidFunction, Zone};

use super::column_builder::{ColumnBuilder, Integer, rescale};
use super::cursor::Cursor;
use super::sequence_statement::is_counter;
use super::tokens::Tokens;
use crate::error::{FEATURE_NOT_SUPPORTED, GENERATED_ALWAYS, INVALID_TEXT, SqlError};
use partita_worker::bytes::parse_hex;

/// SQLSTATE of a parameter that does not exist.
const UNDEFINED_PARAMETER: &str = "42P02";

/// The reason why scanning ended before the last row.
#[derive(Debug)]
pub(super) enum Stop {
    /// An expression that only the planner understands.
    NotSimple,
    /// An error, and its byte offset in the text.
    Wrong(Box<SqlError>, usize),
}

/// The time and the time zone of a statement.
#[derive(Clone, Copy, Debug)]
pub struct StatementTime {
    /// Nanoseconds since 1970: the result of `now()`.
    pub now: i64,
    /// The zone of texts without an offset, in columns with a time zone.
    pub zone: Zone,
}

/// The columns of the rows.
#[derive(Clone, Debug)]
pub struct Target<'a> {
    /// In the order of the values.
    pub columns: Vec<&'a Column>,
    /// True if the statement listed them. If not, rows may have fewer values.
    pub listed: bool,
}

/// One literal.
enum Cell<'a> {
    Null,
    Default,
    Bool(bool),
    Integer(Integer),
    /// A number with a point, an exponent or too many digits.
    Number(&'a str),
    Text(Cow<'a, str>),
    Bytes(Vec<u8>),
    Now,
    Today,
    Parameter(usize),
}

/// The type of a cast, and whether it has a precision or a length.
#[derive(Clone, Copy)]
struct Cast {
    to: ColumnType,
    exact: bool,
}

/// A column being filled.
struct Sink<'a> {
    column: &'a Column,
    builder: ColumnBuilder,
    /// Number of DEFAULT values.
    defaults: usize,
}

/// Rows being scanned; several texts, or one text with several sets of parameters, make one batch.
pub(super) struct Rows<'a> {
    target: &'a Target<'a>,
    sinks: Vec<Sink<'a>>,
    /// Values in each row; set by the first row.
    width: Option<usize>,
    count: usize,
    time: StatementTime,
    /// The last cast, as rows usually repeat it.
    cast: Option<(String, Cast)>,
}

impl Stop {
    fn wrong(error: SqlError, offset: usize) -> Self {
        Self::Wrong(Box::new(error), offset)
    }
}

impl<'a> Rows<'a> {
    pub(super) fn new(target: &'a Target<'a>, time: StatementTime) -> Self {
        let sinks = target.columns.iter().map(|column| Sink {
            column,
            builder: ColumnBuilder::new(column.column_type, time.zone),
            defaults: 0,
        });
        Self { target, sinks: sinks.collect(), width: None, count: 0, time, cast: None }
    }

    /// Scans the rows of a text: everything after the word VALUES.
    pub(super) fn scan(
        &mut self,
        text: &str,
        parameters: Option<&[ScalarValue]>,
    ) -> Result<(), Stop> {
        let mut cursor = Cursor::new(text);
        loop {
            cursor.skip_blank();
            self.row(&mut cursor, parameters)?;
            cursor.skip_blank();
            if cursor.take(b',') {
                cursor.skip_blank();
                if cursor.at_end() {
                    return Ok(());
                }
            } else if cursor.at_end() {
                return Ok(());
            } else {
                return Err(after_rows(&mut cursor));
            }
        }
    }

    fn row(
        &mut self,
        cursor: &mut Cursor<'_>,
        parameters: Option<&[ScalarValue]>,
    ) -> Result<(), Stop> {
        let begin = cursor.offset();
        if !cursor.take(b'(') {
            return Err(if cursor.at_end() {
                Stop::wrong(
                    SqlError::syntax("syntax error at end of input, expected a row in parentheses"),
                    begin,
                )
            } else {
                Stop::NotSimple
            });
        }
        let mut width = 0;
        loop {
            cursor.skip_blank();
            if cursor.take(b')') {
                // A comma may precede the parenthesis; an empty row is an error below.
                break;
            }
            if width == self.sinks.len() {
                // An error in any case, simple or not: there are too many values.
                return Err(Stop::wrong(
                    SqlError::syntax("INSERT has more expressions than target columns"),
                    cursor.offset(),
                ));
            }
            self.value(cursor, width, parameters)?;
            width += 1;
            cursor.skip_blank();
            if cursor.take(b')') {
                break;
            }
            if !cursor.take(b',') {
                return Err(Stop::NotSimple);
            }
        }
        match self.width {
            Some(previous) if previous != width => Err(Stop::wrong(
                SqlError::syntax("VALUES lists must all be the same length"),
                begin,
            )),
            None if width == 0 => {
                Err(Stop::wrong(SqlError::syntax("a row of VALUES may not be empty"), begin))
            }
            None if self.target.listed && width < self.sinks.len() => Err(Stop::wrong(
                SqlError::syntax("INSERT has more target columns than expressions"),
                begin,
            )),
            _ => {
                self.width = Some(width);
                self.count += 1;
                Ok(())
            }
        }
    }

    /// Scans one value into its column.
    fn value(
        &mut self,
        cursor: &mut Cursor<'_>,
        index: usize,
        parameters: Option<&[ScalarValue]>,
    ) -> Result<(), Stop> {
        let begin = cursor.offset();
        let (cell, cast) = cell(cursor, &mut self.cast)?;
        let sink = &mut self.sinks[index];
        let wrong = |error: SqlError, column: &Column| {
            let error = match error.detail {
                None => error.with_detail(format!("in column \"{}\"", column.name)),
                Some(_) => error,
            };
            Stop::wrong(error, begin)
        };
        // Generated columns take DEFAULT only.
        if sink.column.generated.is_some() && !matches!(cell, Cell::Default) {
            let error = SqlError::new(
                GENERATED_ALWAYS,
                format!("cannot insert a non-DEFAULT value into column \"{}\"", sink.column.name),
            );
            return Err(Stop::wrong(
                error.with_detail(format!("column \"{}\" is generated", sink.column.name)),
                begin,
            ));
        }
        // A cast that would change the value is left to the planner.
        if let Some(cast) = cast
            && !changes_nothing(&cell, cast, sink.column.column_type, self.time.zone)
        {
            return Err(Stop::NotSimple);
        }
        // A default is a literal too; errors name the column.
        if let Cell::Default = cell {
            sink.defaults += 1;
            return append_default(sink, self.time);
        }
        append(&mut sink.builder, &cell, self.time, parameters).map_err(|stop| match stop {
            Stop::Wrong(error, _) => wrong(*error, sink.column),
            Stop::NotSimple => Stop::NotSimple,
        })
    }

    /// The batch of all rows, with columns by their SQL names. Columns with only DEFAULT values and generated columns
    /// are left out: `Frontend::ingest` fills them in.
    pub(super) fn finish(mut self) -> Result<RecordBatch, SqlError> {
        let width = self.width.unwrap_or(0);
        let mut fields = Vec::with_capacity(width);
        let mut arrays = Vec::with_capacity(width);
        for sink in self.sinks.iter_mut().take(width) {
            if sink.defaults == self.count {
                continue;
            }
            if sink.defaults > 0 && sink.column.default.as_deref().is_some_and(is_counter) {
                let message = format!(
                    "DEFAULT of column \"{}\" in some rows of VALUES and values in others is not supported",
                    sink.column.name
                );
                let error = SqlError::new(FEATURE_NOT_SUPPORTED, message);
                return Err(error.with_hint("use an INSERT of its own for the rows with values"));
            }
            // NOT NULL is checked when the batch is complete.
            fields.push(Field::new(&sink.column.name, sink.column.column_type.arrow(), true));
            arrays.push(sink.builder.finish()?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(self.count));
        let schema = Arc::new(Schema::new(fields));
        Ok(RecordBatch::try_new_with_options(schema, arrays, &options)?)
    }
}

/// The reason to stop at a text after the rows, where nothing should follow.
fn after_rows(cursor: &mut Cursor<'_>) -> Stop {
    let begin = cursor.offset();
    let word = cursor.word().map(str::to_ascii_lowercase);
    cursor.skip_blank();
    let next = cursor.word().map(str::to_ascii_lowercase);
    match (word.as_deref(), next.as_deref()) {
        (Some("on"), Some("duplicate")) => Stop::wrong(on_duplicate(), begin),
        _ => Stop::NotSimple,
    }
}

/// The error of MySQL's form of ON CONFLICT.
pub(super) fn on_duplicate() -> SqlError {
    SqlError::unsupported("INSERT ... ON DUPLICATE KEY UPDATE")
        .with_hint("INSERT replaces the row of the same key; ON CONFLICT DO UPDATE changes it")
}

/// Appends a value to a column.
fn append(
    builder: &mut ColumnBuilder,
    cell: &Cell<'_>,
    time: StatementTime,
    parameters: Option<&[ScalarValue]>,
) -> Result<(), Stop> {
    let statement_now = time.now;
    let column_type = builder.column_type();
    let result = match cell {
        Cell::Null | Cell::Default => {
            builder.append_null();
            Ok(())
        }
        Cell::Text(text) => builder.append_text(text, false),
        Cell::Integer(integer) => match column_type {
            ColumnType::String if integer.magnitude != 0 || !integer.negative => {
                let sign = if integer.negative { "-" } else { "" };
                builder.append_text(&format!("{sign}{}", integer.magnitude), false)
            }
            ColumnType::Bool
            | ColumnType::String
            | ColumnType::Binary
            | ColumnType::Date
            | ColumnType::Uuid
            | ColumnType::Time => return Err(Stop::NotSimple),
            _ => builder.append_integer(*integer),
        },
        Cell::Number(text) => match column_type {
            ColumnType::Float32 | ColumnType::Float64 | ColumnType::Decimal(..) => {
                builder.append_number(text)
            }
            // Too many digits for any integer; fractions and exponents are rounded by the planner.
            _ if text.bytes().all(|b| b.is_ascii_digit() || b == b'-')
                && !matches!(
                    column_type,
                    ColumnType::Bool
                        | ColumnType::String
                        | ColumnType::Binary
                        | ColumnType::Date
                        | ColumnType::Uuid
                        | ColumnType::Time
                        | ColumnType::Interval
                        | ColumnType::Array(_)
                ) =>
            {
                builder.append_number(text)
            }
            _ => return Err(Stop::NotSimple),
        },
        Cell::Bool(value) if column_type == ColumnType::Bool => builder.append_bool(*value),
        Cell::Bytes(bytes) if column_type == ColumnType::Binary => builder.append_bytes(bytes),
        Cell::Now => match column_type {
            ColumnType::Timestamp(unit, _) => {
                match rescale(statement_now.into(), Unit::Nanosecond, unit) {
                    Some(ticks) => builder.append_ticks(ticks),
                    None => return Err(Stop::NotSimple),
                }
            }
            _ => return Err(Stop::NotSimple),
        },
        Cell::Today => {
            let seconds = statement_now.div_euclid(NANOS_PER_SECOND);
            let local = seconds + time.zone.offset_at(seconds);
            match (column_type, i32::try_from(local.div_euclid(SECONDS_PER_DAY))) {
                (ColumnType::Date, Ok(day)) => builder.append_day(day),
                _ => return Err(Stop::NotSimple),
            }
        }
        Cell::Parameter(number) => match parameters {
            Some(parameters) => match number.checked_sub(1).and_then(|index| parameters.get(index))
            {
                Some(value) => builder.append_scalar(value),
                None => Err(undefined_parameter(*number)),
            },
            None => Err(undefined_parameter(*number)),
        },
        Cell::Bool(_) | Cell::Bytes(_) => return Err(Stop::NotSimple),
    };
    result.map_err(|error| Stop::wrong(error, 0))
}

const NANOS_PER_SECOND: i64 = 1_000_000_000;
const SECONDS_PER_DAY: i64 = 86_400;

fn undefined_parameter(number: usize) -> SqlError {
    SqlError::new(UNDEFINED_PARAMETER, format!("there is no parameter ${number}"))
}

/// Appends the column's default to it.
fn append_default(sink: &mut Sink<'_>, time: StatementTime) -> Result<(), Stop> {
    let Some(default) = &sink.column.default else {
        sink.builder.append_null();
        return Ok(());
    };
    // A new UUID, made here: a statement may have values in other rows.
    if let Some(function) = UuidFunction::of_default(default) {
        return sink.builder.append_bytes(&function.call()).map_err(|error| Stop::wrong(error, 0));
    }
    // The number comes with the complete row; there is none if another row has a value.
    if is_counter(default) {
        sink.builder.append_null();
        return Ok(());
    }
    let mut cursor = Cursor::new(default);
    cursor.skip_blank();
    let (cell, cast) = cell(&mut cursor, &mut None)?;
    cursor.skip_blank();
    if cast.is_some() || !cursor.at_end() {
        return Err(Stop::NotSimple);
    }
    append(&mut sink.builder, &cell, time, None)
}

/// Returns true if a literal has the same value in a column with the cast and without it.
fn changes_nothing(cell: &Cell<'_>, cast: Cast, column: ColumnType, zone: Zone) -> bool {
    if matches!(cell, Cell::Null | Cell::Parameter(_)) {
        return true;
    }
    if matches!(cell, Cell::Default) {
        return false;
    }
    match (cast.to, column) {
        (
            ColumnType::Timestamp(cast_unit, from_zoned),
            ColumnType::Timestamp(column_unit, to_zoned),
        ) => {
            match cell {
                Cell::Bool(_) => false,
                // In the column's unit, or in that of the cast.
                Cell::Integer(_) => cast_unit == column_unit,
                Cell::Text(_) if from_zoned != to_zoned && !zone.is_utc() => false,
                _ => !cast.exact || cast_unit >= column_unit,
            }
        }
        (ColumnType::Decimal(..), ColumnType::Decimal(..)) => !cast.exact || cast.to == column,
        (ColumnType::String, ColumnType::String) => matches!(cell, Cell::Text(_)) && !cast.exact,
        // Equal types change nothing, and neither does a cast to a wider integer.
        (source, target) if source == target => true,
        (source, target) => match (integer_width(source), integer_width(target)) {
            (Some((from_signed, from_bits)), Some((to_signed, to_bits))) => {
                matches!(cell, Cell::Integer(_) | Cell::Text(_))
                    && match (from_signed, to_signed) {
                        (true, true) | (false, false) => from_bits >= to_bits,
                        (true, false) => from_bits > to_bits,
                        (false, true) => false,
                    }
            }
            _ => false,
        },
    }
}

fn integer_width(column_type: ColumnType) -> Option<(bool, u8)> {
    Some(match column_type {
        ColumnType::Int8 => (true, 8),
        ColumnType::Int16 => (true, 16),
        ColumnType::Int32 => (true, 32),
        ColumnType::Int64 => (true, 64),
        ColumnType::UInt8 => (false, 8),
        ColumnType::UInt16 => (false, 16),
        ColumnType::UInt32 => (false, 32),
        ColumnType::UInt64 => (false, 64),
        _ => return None,
    })
}

/// Reads one literal and its casts.
fn cell<'t>(
    cursor: &mut Cursor<'t>,
    last_cast: &mut Option<(String, Cast)>,
) -> Result<(Cell<'t>, Option<Cast>), Stop> {
    let begin = cursor.offset();
    let (cell, mut cast) = match cursor.peek() {
        Some(b'\'') => (Cell::Text(string(cursor)?), None),
        Some(b'0'..=b'9' | b'.') => (number(cursor, begin)?, None),
        Some(sign @ (b'-' | b'+')) => {
            cursor.take(sign);
            cursor.skip_blank();
            if !matches!(cursor.peek(), Some(b'0'..=b'9' | b'.')) {
                return Err(Stop::NotSimple);
            }
            (signed(number(cursor, begin)?, sign, begin, cursor)?, None)
        }
        Some(b'$') => {
            cursor.take(b'$');
            let digits = cursor.digits();
            let number = digits.parse().map_err(|_| Stop::NotSimple)?;
            if cursor.at_name_byte() {
                return Err(Stop::NotSimple);
            }
            (Cell::Parameter(number), None)
        }
        Some(b'a'..=b'z' | b'A'..=b'Z') => word_cell(cursor, last_cast)?,
        _ => return Err(Stop::NotSimple),
    };
    if cursor.peek() != Some(b':') {
        // The usual end; blanks are skipped later anyway.
        if !matches!(cursor.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            return Ok((cell, cast));
        }
        cursor.skip_blank();
    }
    while cursor.peek() == Some(b':') {
        if cast.is_some() || !cursor.take(b':') || !cursor.take(b':') {
            return Err(Stop::NotSimple);
        }
        cast = Some(cast_type(cursor.type_text(), last_cast)?);
        cursor.skip_blank();
    }
    Ok((cell, cast))
}

/// Reads a literal that begins with a letter.
fn word_cell<'t>(
    cursor: &mut Cursor<'t>,
    last_cast: &mut Option<(String, Cast)>,
) -> Result<(Cell<'t>, Option<Cast>), Stop> {
    let begin = cursor.offset();
    let word = cursor.word().ok_or(Stop::NotSimple)?;
    let is = |name: &str| word.eq_ignore_ascii_case(name);
    // Strings with a prefix.
    if cursor.peek() == Some(b'\'') {
        if is("e") {
            return Ok((Cell::Text(escape_string(cursor)?), None));
        }
        if is("x") {
            let digits = string(cursor)?;
            let bytes = parse_hex(&digits).ok_or_else(|| {
                Stop::wrong(
                    SqlError::new(
                        INVALID_TEXT,
                        format!("X'{digits}' is not made of pairs of hexadecimal digits"),
                    ),
                    begin,
                )
            })?;
            return Ok((Cell::Bytes(bytes), None));
        }
    }
    // Words that are values.
    if is("null") {
        return Ok((Cell::Null, None));
    }
    if is("true") {
        return Ok((Cell::Bool(true), None));
    }
    if is("false") {
        return Ok((Cell::Bool(false), None));
    }
    if is("default") {
        return Ok((Cell::Default, None));
    }
    // Clock functions.
    for (name, needs_call) in [("now", true), ("current_timestamp", false), ("current_date", false)]
    {
        if is(name) {
            let called = empty_call(cursor)?;
            if needs_call && !called {
                return Err(Stop::NotSimple);
            }
            let cell = if name == "current_date" { Cell::Today } else { Cell::Now };
            return Ok((cell, None));
        }
    }
    // Types before strings, and CAST.
    if ["date", "time", "timestamp", "timestamptz", "uuid"].into_iter().any(is) {
        cursor.skip_blank();
        if cursor.peek() != Some(b'\'') {
            return Err(Stop::NotSimple);
        }
        let text = string(cursor)?;
        return Ok((Cell::Text(text), Some(cast_type(word, last_cast)?)));
    }
    if is("cast") {
        cursor.skip_blank();
        if !cursor.take(b'(') {
            return Err(Stop::NotSimple);
        }
        cursor.skip_blank();
        let (inner, None) = cell(cursor, last_cast)? else { return Err(Stop::NotSimple) };
        cursor.skip_blank();
        if !cursor.word().is_some_and(|word| word.eq_ignore_ascii_case("as")) {
            return Err(Stop::NotSimple);
        }
        let cast = cast_type(cursor.type_text(), last_cast)?;
        return if cursor.take(b')') { Ok((inner, Some(cast))) } else { Err(Stop::NotSimple) };
    }
    Err(Stop::NotSimple)
}

/// Takes `()`; false when no parenthesis comes next.
fn empty_call(cursor: &mut Cursor<'_>) -> Result<bool, Stop> {
    cursor.skip_blank();
    if !cursor.take(b'(') {
        return Ok(false);
    }
    cursor.skip_blank();
    if cursor.take(b')') { Ok(true) } else { Err(Stop::NotSimple) }
}

/// Reads digits, an optional point and an optional exponent.
fn number<'t>(cursor: &mut Cursor<'t>, begin: usize) -> Result<Cell<'t>, Stop> {
    let start = cursor.offset();
    let mut magnitude = 0_u64;
    let mut fits = true;
    // The digits before the point, as far as they fit an integer.
    for digit in cursor.digits().bytes() {
        let next =
            magnitude.checked_mul(10).and_then(|tens| tens.checked_add((digit - b'0').into()));
        fits &= next.is_some();
        magnitude = next.unwrap_or(0);
    }
    let mut whole = true;
    // A point or an exponent makes it no integer.
    if cursor.take(b'.') {
        whole = false;
        let digits_before = cursor.offset() - 1 - start;
        if cursor.digits().is_empty() && digits_before == 0 {
            return Err(Stop::NotSimple);
        }
    }
    if matches!(cursor.peek(), Some(b'e' | b'E')) {
        whole = false;
        cursor.advance();
        let _ = cursor.take(b'-') || cursor.take(b'+');
        if cursor.digits().is_empty() {
            return Err(Stop::NotSimple);
        }
    }
    // A name that follows the digits is left to the planner.
    if cursor.at_name_byte() || cursor.peek() == Some(b'.') {
        return Err(Stop::NotSimple);
    }
    if whole && fits {
        return Ok(Cell::Integer(Integer { negative: false, magnitude }));
    }
    Ok(Cell::Number(cursor.since(begin)))
}

/// The number after a sign.
fn signed<'t>(
    cell: Cell<'t>,
    sign: u8,
    begin: usize,
    cursor: &Cursor<'t>,
) -> Result<Cell<'t>, Stop> {
    match cell {
        Cell::Integer(integer) => Ok(Cell::Integer(Integer { negative: sign == b'-', ..integer })),
        // Blanks or comments between the sign and the digits are left to the planner.
        Cell::Number(_) => {
            let text = cursor.since(begin);
            let text = text.strip_prefix('+').unwrap_or(text);
            let digits = text.strip_prefix('-').unwrap_or(text);
            if digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
                Ok(Cell::Number(text))
            } else {
                Err(Stop::NotSimple)
            }
        }
        _ => Err(Stop::NotSimple),
    }
}

/// Reads `'..'`.
fn string<'t>(cursor: &mut Cursor<'t>) -> Result<Cow<'t, str>, Stop> {
    let begin = cursor.offset();
    cursor.string().ok_or_else(|| unterminated(begin))
}

fn unterminated(begin: usize) -> Stop {
    Stop::wrong(SqlError::syntax("syntax error: unterminated quoted string"), begin)
}

/// Reads `'..'` after an E. Escapes of one letter are decoded here, numeric codes are left to the planner.
fn escape_string<'t>(cursor: &mut Cursor<'t>) -> Result<Cow<'t, str>, Stop> {
    let begin = cursor.offset();
    let raw = cursor.escaped().ok_or_else(|| unterminated(begin))?;
    let mut text = String::with_capacity(raw.len());
    let mut chars = raw.chars();
    while let Some(c) = chars.next() {
        match c {
            // It is doubled: a single quote would have ended the string.
            '\'' => {
                chars.next();
                text.push('\'');
            }
            '\\' => match chars.next() {
                Some('n') => text.push('\n'),
                Some('t') => text.push('\t'),
                Some('r') => text.push('\r'),
                Some('b') => text.push('\u{8}'),
                Some('f') => text.push('\u{c}'),
                Some(c @ ('\\' | '\'' | '"')) => text.push(c),
                _ => return Err(Stop::NotSimple),
            },
            c => text.push(c),
        }
    }
    Ok(Cow::Owned(text))
}

/// The type of a cast, from its text; the planner knows more types.
fn cast_type(text: &str, last_cast: &mut Option<(String, Cast)>) -> Result<Cast, Stop> {
    if let Some((last_text, cast)) = last_cast
        && last_text == text
    {
        return Ok(*cast);
    }
    let mut tokens = Tokens::new(text, 0).map_err(|_| Stop::NotSimple)?;
    let target = tokens.column_type(&mut Vec::new()).map_err(|_| Stop::NotSimple)?;
    if !tokens.at_end() {
        return Err(Stop::NotSimple);
    }
    // `timestamp_s` has a precision without parentheses.
    let exact = text.contains('(') || text.contains('_');
    let cast = Cast { to: target, exact };
    *last_cast = Some((text.to_owned(), cast));
    Ok(cast)
}

/// Finds the column of each parameter in a text, row by row; a cast determines the type itself.
pub(super) fn parameters(text: &str, target: &Target<'_>) -> Result<Vec<Option<ColumnType>>, Stop> {
    let mut types: Vec<Option<ColumnType>> = Vec::new();
    let mut cursor = Cursor::new(text);
    let mut last_cast = None;
    // One row a turn, as in `Rows::scan`.
    loop {
        cursor.skip_blank();
        if !cursor.take(b'(') {
            return if cursor.at_end() { Ok(types) } else { Err(Stop::NotSimple) };
        }
        let mut columns = target.columns.iter();
        loop {
            cursor.skip_blank();
            if cursor.take(b')') {
                break;
            }
            // The first use of a parameter determines its type.
            let column = columns.next();
            let begin = cursor.offset();
            let (cell, cast) = cell(&mut cursor, &mut last_cast)?;
            if let (Cell::Parameter(number), Some(column)) = (cell, column) {
                let index = number.checked_sub(1).filter(|index| *index < PARAMETERS_MAX);
                let index = index.ok_or_else(|| Stop::wrong(undefined_parameter(number), begin))?;
                if types.len() <= index {
                    types.resize(index + 1, None);
                }
                types[index].get_or_insert(cast.map_or(column.column_type, |cast| cast.to));
            }
            cursor.skip_blank();
            if cursor.take(b')') {
                break;
            }
            if !cursor.take(b',') {
                return Err(Stop::NotSimple);
            }
        }
        cursor.skip_blank();
        if !cursor.take(b',') {
            return if cursor.at_end() { Ok(types) } else { Err(after_rows(&mut cursor)) };
        }
    }
}

/// Maximum number of parameters of a statement: PostgreSQL's protocol counts them in 16 bits.
const PARAMETERS_MAX: usize = 65_535;

/// The error of DEFAULT in rows that need the planner, which does not support it.
pub(super) fn default_beside_expressions() -> SqlError {
    SqlError::new(FEATURE_NOT_SUPPORTED, "DEFAULT beside an expression in VALUES is not supported")
        .with_hint("leave the column out of the list")
}
