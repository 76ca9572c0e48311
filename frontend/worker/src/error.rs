//! The error that clients of the SQL surface see, and its conversion from every other error.
//!
//! An [`SqlError`] has what a PostgreSQL client expects: a SQLSTATE, a message, and optionally a detail, a hint and a
//! position in the statement. The protocol crates translate it and need to know nothing else.
//!
//! Invariants:
//! - errors of the services keep their SQLSTATE and whether the same request may be retried;
//! - an error that passed through DataFusion as `External` comes out unchanged.

use std::sync::Arc;
use std::{fmt, io};

use arrow::error::ArrowError;
use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::parser::ParserError;
use partita_lanes::{LaneError, Reason, Refusal};
use partita_proto::Error;

/// DataFusion's name for the catalog that holds all databases.
pub const CATALOG: &str = "partita";

/// Syntax error.
pub const SYNTAX_ERROR: &str = "42601";
/// A feature that is not supported.
pub const FEATURE_NOT_SUPPORTED: &str = "0A000";
/// No such table.
pub const UNDEFINED_TABLE: &str = "42P01";
/// No such column.
pub const UNDEFINED_COLUMN: &str = "42703";
/// No such function.
pub const UNDEFINED_FUNCTION: &str = "42883";
/// No such object of another kind.
pub const UNDEFINED_OBJECT: &str = "42704";
/// A column named twice.
pub const DUPLICATE_COLUMN: &str = "42701";
/// A column name that matches several columns.
pub const AMBIGUOUS_COLUMN: &str = "42702";
/// No such database (a schema to PostgreSQL).
pub const INVALID_SCHEMA_NAME: &str = "3F000";
/// Types that do not fit.
pub const DATATYPE_MISMATCH: &str = "42804";
/// NULL in a NOT NULL column.
pub const NOT_NULL_VIOLATION: &str = "23502";
/// A number too large for its type.
pub const NUMERIC_OUT_OF_RANGE: &str = "22003";
/// SQLSTATE of a cast between types that have none.
pub const CANNOT_COERCE: &str = "42846";
/// NULL where a value is required.
pub const NULL_NOT_ALLOWED: &str = "22004";
/// Text that cannot be read as its type.
pub const INVALID_TEXT: &str = "22P02";
/// Text that cannot be read as a date or time.
pub const INVALID_DATETIME: &str = "22007";
/// A date, a time or an interval beyond what its type represents.
pub const DATETIME_OVERFLOW: &str = "22008";
/// Division by zero.
pub const DIVISION_BY_ZERO: &str = "22012";
/// An invalid value of a parameter.
pub const INVALID_PARAMETER_VALUE: &str = "22023";
/// Cancelled, by the user or by a timeout.
pub const QUERY_CANCELED: &str = "57014";
/// Ended by another session, or by the end of the server.
pub const ADMIN_SHUTDOWN: &str = "57P01";
/// A limit on memory, disk or another resource was reached.
pub const OUT_OF_MEMORY: &str = "53200";
/// A regular expression that cannot be used.
pub const INVALID_REGULAR_EXPRESSION: &str = "2201B";
/// The operating system refused a resource.
pub const INSUFFICIENT_RESOURCES: &str = "53000";
/// The disk is full.
pub const DISK_FULL: &str = "53100";
/// The operating system failed to read or write.
pub const IO_ERROR: &str = "58030";
/// A configured limit was reached.
pub const CONFIGURATION_LIMIT_EXCEEDED: &str = "53400";
/// A statement is nested or chained too deeply.
pub const STATEMENT_TOO_COMPLEX: &str = "54001";
/// A limit of the program was reached.
pub const PROGRAM_LIMIT_EXCEEDED: &str = "54000";
/// A value of GENERATED ALWAYS was given.
pub const GENERATED_ALWAYS: &str = "428C9";
/// A bug in Partita.
pub const INTERNAL_ERROR: &str = "XX000";

/// Codes of the operating system when files run out: EMFILE and ENFILE.
const TOO_MANY_FILES: [i32; 2] = [24, 23];

/// An error as a client of the SQL surface sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlError {
    /// Five characters by which clients tell errors apart.
    pub sqlstate: String,
    /// The fact, in lower case without a full stop.
    pub message: String,
    /// The reason, or more about it.
    pub detail: Option<String>,
    /// Advice on what to do.
    pub hint: Option<String>,
    /// Position in the statement, in characters, starting at 1.
    pub position: Option<usize>,
    /// True if the same statement may succeed when it is retried.
    pub retryable: bool,
}

impl SqlError {
    /// An error with a SQLSTATE.
    pub fn new(sqlstate: &str, message: impl Into<String>) -> Self {
        Self {
            sqlstate: sqlstate.to_owned(),
            message: message.into(),
            detail: None,
            hint: None,
            position: None,
            retryable: false,
        }
    }

    /// Adds a detail.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Adds a hint.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds a position in the statement, in characters, starting at 1.
    #[must_use]
    pub fn with_position(mut self, position: usize) -> Self {
        self.position = Some(position);
        self
    }

    /// A syntax error.
    pub fn syntax(message: impl Into<String>) -> Self {
        Self::new(SYNTAX_ERROR, message)
    }

    /// A feature that is not supported; `what` is a noun phrase such as "UPDATE".
    pub fn unsupported(what: impl fmt::Display) -> Self {
        Self::new(FEATURE_NOT_SUPPORTED, format!("{what} is not supported"))
    }

    /// No such table.
    pub fn undefined_table(name: impl fmt::Display) -> Self {
        Self::new(UNDEFINED_TABLE, format!("relation \"{name}\" does not exist"))
    }

    /// No such column of a table.
    pub fn undefined_column(column: impl fmt::Display, table: impl fmt::Display) -> Self {
        Self::new(
            UNDEFINED_COLUMN,
            format!("column \"{column}\" of relation \"{table}\" does not exist"),
        )
    }

    /// No such database.
    pub fn undefined_database(name: impl fmt::Display) -> Self {
        Self::new(INVALID_SCHEMA_NAME, format!("database \"{name}\" does not exist"))
    }

    /// NULL for a NOT NULL column.
    pub fn not_null(column: impl fmt::Display, table: impl fmt::Display) -> Self {
        Self::new(
            NOT_NULL_VIOLATION,
            format!(
                "null value in column \"{column}\" of relation \"{table}\" violates not-null \
                 constraint"
            ),
        )
    }

    /// A statement that its user canceled.
    pub fn canceled() -> Self {
        Self::new(QUERY_CANCELED, "canceling statement due to user request")
    }

    /// A statement that exceeded its timeout.
    pub fn statement_timeout() -> Self {
        Self::new(QUERY_CANCELED, "canceling statement due to statement timeout")
    }

    /// A bug in Partita.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(INTERNAL_ERROR, message)
    }
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for SqlError {}

impl From<Reason> for SqlError {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::Canceled => Self::canceled(),
            Reason::TimedOut => Self::statement_timeout(),
            Reason::OutOfMemory => Self::new(
                OUT_OF_MEMORY,
                "canceling statement because the server is short of memory",
            )
            .with_hint("select fewer rows, or run fewer statements at a time"),
        }
    }
}

impl From<Refusal> for SqlError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Memory => Self::new(OUT_OF_MEMORY, "the server is short of memory")
                .with_detail("New statements are refused until memory is free again."),
            Refusal::Lanes => {
                Self::new(CONFIGURATION_LIMIT_EXCEEDED, "too many statements are running")
            }
            Refusal::Threads => {
                Self::new(INSUFFICIENT_RESOURCES, "could not start a thread for the statement")
            }
        }
    }
}

impl From<LaneError> for SqlError {
    fn from(error: LaneError) -> Self {
        Self::internal(error.to_string())
    }
}

impl From<SqlError> for DataFusionError {
    fn from(error: SqlError) -> Self {
        Self::External(Box::new(error))
    }
}

impl From<Error> for SqlError {
    fn from(error: Error) -> Self {
        let retryable = error.is_retryable();
        let sqlstate = error.sqlstate();
        let message = match &error {
            Error::NotFound { kind: "table", name } => {
                format!("relation \"{name}\" does not exist")
            }
            Error::AlreadyExists { kind: "table", name } => {
                format!("relation \"{name}\" already exists")
            }
            Error::Cancelled => return Self::canceled(),
            Error::LimitReached { hint, .. } | Error::Dependents { hint, .. } => {
                return Self { hint: Some(hint.clone()), ..Self::new(sqlstate, error.to_string()) };
            }
            Error::Query { hint, .. } => {
                return Self { hint: hint.clone(), ..Self::new(sqlstate, error.to_string()) };
            }
            _ => error.to_string(),
        };
        Self { retryable, ..Self::new(sqlstate, message) }
    }
}

impl From<ParserError> for SqlError {
    fn from(error: ParserError) -> Self {
        from_parser(&error)
    }
}

impl From<ArrowError> for SqlError {
    fn from(error: ArrowError) -> Self {
        from_arrow(&error)
    }
}

impl From<DataFusionError> for SqlError {
    fn from(error: DataFusionError) -> Self {
        from_datafusion(&error)
    }
}

/// The SQLSTATE of an error of one of the libraries. Errors are borrowed, because DataFusion shares them between the
/// streams of a query: the same error has the same SQLSTATE whether or not it is shared.
fn from_datafusion(error: &DataFusionError) -> SqlError {
    match error {
        // Wrappers: the error inside decides.
        DataFusionError::Context(_, inner) => from_datafusion(inner),
        DataFusionError::Shared(inner) => from_datafusion(inner),
        DataFusionError::Diagnostic(diagnostic, inner) => {
            let mut error = from_datafusion(inner);
            if error.hint.is_none() {
                error.hint = diagnostic.helps.first().map(|help| help.message.clone());
            }
            error
        }
        DataFusionError::Collection(errors) => match errors.first() {
            Some(first) => from_datafusion(first),
            None => SqlError::internal("error without a message"),
        },
        // Errors of libraries and Partita's own errors inside of them.
        DataFusionError::ArrowError(inner, _) => from_arrow(inner),
        DataFusionError::SQL(inner, _) => from_parser(inner),
        DataFusionError::External(inner) => from_boxed(inner.as_ref()),
        DataFusionError::SchemaError(inner, _) => from_schema(inner),
        DataFusionError::IoError(inner) => from_io(inner),
        // DataFusion's own errors, most of which are classified by their text.
        DataFusionError::NotImplemented(message) => from_unsupported(message.clone()),
        DataFusionError::Plan(message) => from_plan(message.clone()),
        DataFusionError::Execution(message) => from_execution(message.clone()),
        DataFusionError::Configuration(message) => SqlError::new(UNDEFINED_OBJECT, message),
        DataFusionError::ResourcesExhausted(message) => {
            SqlError::new(OUT_OF_MEMORY, format!("query exceeds its memory limit: {message}"))
                .with_hint("select fewer rows or columns, or raise the frontend's query memory")
        }
        error => SqlError::internal(error.strip_backtrace()),
    }
}

fn from_parser(error: &ParserError) -> SqlError {
    match error {
        ParserError::TokenizerError(message) | ParserError::ParserError(message) => {
            SqlError::syntax(format!("syntax error: {message}"))
        }
        ParserError::RecursionLimitExceeded => {
            SqlError::new(STATEMENT_TOO_COMPLEX, "the statement is nested too deeply")
        }
    }
}

fn from_arrow(error: &ArrowError) -> SqlError {
    match error {
        ArrowError::ExternalError(inner) => from_boxed(inner.as_ref()),
        ArrowError::IoError(_, inner) => from_io(inner),
        ArrowError::MemoryError(message) => SqlError::new(OUT_OF_MEMORY, message),
        ArrowError::DivideByZero => SqlError::new(DIVISION_BY_ZERO, "division by zero"),
        ArrowError::OffsetOverflowError(_) => SqlError::new(
            PROGRAM_LIMIT_EXCEEDED,
            "a batch of values exceeds 2 GiB; select fewer or shorter values",
        ),
        ArrowError::NotYetImplemented(message) => SqlError::new(FEATURE_NOT_SUPPORTED, message),
        // The others are classified by their text.
        error if is_about_pattern(&error.to_string()) => from_other(error.to_string()),
        ArrowError::ArithmeticOverflow(message) => from_overflow(message),
        ArrowError::CastError(message) | ArrowError::ParseError(message) => {
            from_cast(message.clone())
        }
        ArrowError::ComputeError(message) if is_beyond_calendar(message) => {
            SqlError::new(DATETIME_OVERFLOW, message)
        }
        ArrowError::InvalidArgumentError(message) | ArrowError::ComputeError(message) => {
            SqlError::new(INVALID_PARAMETER_VALUE, message)
        }
        error => SqlError::internal(error.to_string()),
    }
}

/// Errors of the operating system: spilled rows find the disk full, or files run out.
fn from_io(error: &io::Error) -> SqlError {
    if let Some(cause) = error.get_ref().and_then(|inner| known(inner)) {
        return cause;
    }
    let sqlstate = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => DISK_FULL,
        io::ErrorKind::OutOfMemory => OUT_OF_MEMORY,
        _ if error.raw_os_error().is_some_and(|code| TOO_MANY_FILES.contains(&code)) => {
            INSUFFICIENT_RESOURCES
        }
        _ => IO_ERROR,
    };
    SqlError::new(sqlstate, error.to_string())
}

/// Partita's own errors pass through DataFusion and Arrow in boxes.
fn from_boxed(error: &(dyn std::error::Error + Send + Sync + 'static)) -> SqlError {
    known(error).unwrap_or_else(|| from_other(error.to_string()))
}

/// An error by its type; `None` if only its text is known.
fn known(error: &(dyn std::error::Error + 'static)) -> Option<SqlError> {
    // Partita's own errors.
    if let Some(ours) = error.downcast_ref::<SqlError>() {
        return Some(ours.clone());
    }
    if let Some(reason) = error.downcast_ref::<Reason>() {
        return Some((*reason).into());
    }
    if let Some(service) = error.downcast_ref::<Error>() {
        return Some(service.clone().into());
    }
    // Errors of libraries within each other.
    if let Some(inner) = error.downcast_ref::<DataFusionError>() {
        return Some(from_datafusion(inner));
    }
    if let Some(shared) = error.downcast_ref::<Arc<DataFusionError>>() {
        return Some(from_datafusion(shared));
    }
    if let Some(inner) = error.downcast_ref::<ArrowError>() {
        return Some(from_arrow(inner));
    }
    error.downcast_ref::<io::Error>().map(from_io)
}

/// A time or a date that a type cannot represent, for functions of Arrow's kernels; `kind` is "timestamp" or such.
pub(crate) fn datetime_overflow(kind: &str) -> ArrowError {
    let error = SqlError::new(DATETIME_OVERFLOW, format!("{kind} out of range"));
    ArrowError::ExternalError(Box::new(error))
}

/// Functions of this crate name the type that is out of range; Arrow's messages do not.
fn from_overflow(message: &str) -> SqlError {
    if message.contains("out of range") {
        return SqlError::new(NUMERIC_OUT_OF_RANGE, message);
    }
    SqlError::new(NUMERIC_OUT_OF_RANGE, format!("value out of range: {message}"))
}

/// Arrow's messages are "Cannot cast string 'x' to value of Int32 type" for text and "Can't cast value 300 to type
/// Int8" for numbers.
fn from_cast(message: String) -> SqlError {
    if is_beyond_calendar(&message) {
        return SqlError::new(DATETIME_OVERFLOW, message);
    }
    if let Some(text) = text_of_no_time(&message) {
        return out_of_range(text);
    }
    let numeric = message.contains("Can't cast value") || message.contains("overflow");
    let words = ["imestamp", "Date32", "date", "time", "interval"];
    let datetime = words.iter().any(|word| message.contains(word));
    let sqlstate = if numeric {
        NUMERIC_OUT_OF_RANGE
    } else if datetime {
        INVALID_DATETIME
    } else {
        INVALID_TEXT
    };
    SqlError::new(sqlstate, message)
}

/// The text of a date or a timestamp that Arrow could not read although it has all its parts: one of them is out of its
/// range, as in `2023-02-29`.
fn text_of_no_time(message: &str) -> Option<&str> {
    let text = between(message, "Cannot cast string '", "' to value of Date32")
        .or_else(|| between(message, "Cannot cast string '", "' to value of Timestamp"))
        .or_else(|| between(message, "Error parsing timestamp from '", "'"))?;
    let (date, time) = text.trim().split_once([' ', 'T']).unwrap_or((text.trim(), ""));
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|c| c.is_ascii_digit());
    let is_date = date.split('-').count() == 3 && date.split('-').all(is_number);
    let is_time = time.bytes().all(|c| c.is_ascii_digit() || b":.+-Z".contains(&c));
    (is_date && is_time).then_some(text)
}

fn out_of_range(text: &str) -> SqlError {
    let message = format!("date/time field value out of range: \"{text}\"");
    SqlError::new(DATETIME_OVERFLOW, message)
}

/// Returns true for Arrow's messages about a time that its calendar or its type does not have.
fn is_beyond_calendar(message: &str) -> bool {
    message.contains("Failed to convert")
        || message.contains("Failed to create naive time")
        || message.ends_with(" to datetime")
        || message == "Timestamp out of range"
        || message.contains("Date arithmetic overflow")
}

/// An unsupported feature of DataFusion, which names its own node types where a subquery could not be made a join.
fn from_unsupported(message: String) -> SqlError {
    let kinds = ["ScalarSubquery(", "Exists(", "InSubquery(", "SetComparison("];
    if kinds.iter().any(|kind| message.contains(kind)) {
        return SqlError::new(
            FEATURE_NOT_SUPPORTED,
            "this form of correlated subquery is not supported",
        )
        .with_hint("correlate the queries by = only, or rewrite the subquery as a join");
    }
    SqlError::new(FEATURE_NOT_SUPPORTED, message)
}

/// Returns true for a message about a pattern that is malformed or too large when compiled.
fn is_about_pattern(message: &str) -> bool {
    message.contains("Compiled regex exceeds size limit")
        || message.contains("CompiledTooBig")
        || message.contains("regex parse error")
}

/// An error that is known by its text only.
fn from_other(message: String) -> SqlError {
    if is_about_pattern(&message) {
        return SqlError::new(INVALID_REGULAR_EXPRESSION, message);
    }
    SqlError::internal(message)
}

fn from_schema(error: &SchemaError) -> SqlError {
    match error {
        SchemaError::FieldNotFound { field, valid_fields } => {
            let near = valid_fields
                .iter()
                .find(|candidate| candidate.name.eq_ignore_ascii_case(&field.name))
                .map(|candidate| format!("did you mean \"{}\"?", candidate.name));
            let name = match &field.relation {
                Some(relation) => format!("column {}.{}", relation.table(), field.name),
                None => format!("column \"{}\"", field.name),
            };
            let mut error = SqlError::new(UNDEFINED_COLUMN, format!("{name} does not exist"));
            error.hint = near;
            error
        }
        SchemaError::AmbiguousReference { field } => SqlError::new(
            AMBIGUOUS_COLUMN,
            format!("column reference \"{}\" is ambiguous", field.name),
        ),
        SchemaError::DuplicateQualifiedField { name, .. }
        | SchemaError::DuplicateUnqualifiedField { name } => {
            SqlError::new(DUPLICATE_COLUMN, format!("column \"{name}\" specified more than once"))
        }
    }
}

/// SQLSTATE of a sort key that the select list lacks.
const INVALID_COLUMN_REFERENCE: &str = "42P10";

/// DataFusion's planner distinguishes its errors by text only.
fn from_plan(message: String) -> SqlError {
    if let Some(name) = between(&message, "table '", "' not found") {
        // The name is "partita.public.t"; the user wrote its last part or its last two.
        let mut parts: Vec<_> = name.split('.').collect();
        if parts.first() == Some(&CATALOG) {
            parts.remove(0);
        }
        if parts.len() == 2 && parts[0] == partita_proto::catalog::DEFAULT_DATABASE {
            parts.remove(0);
        }
        return SqlError::undefined_table(parts.join("."));
    }
    if let Some(name) = between(&message, "Invalid function '", "'") {
        let error = SqlError::new(UNDEFINED_FUNCTION, format!("function {name}() does not exist"));
        return match between(&message, "Did you mean '", "'") {
            Some(near) => error.with_hint(format!("did you mean {near}()?")),
            None => error,
        };
    }
    if let Some(name) = between(&message, "column '", "' not found") {
        return SqlError::new(UNDEFINED_COLUMN, format!("column \"{name}\" does not exist"));
    }
    if let Some(position) = between(&message, "Order by column out of bounds, specified: ", ",") {
        let message = format!("ORDER BY position {position} is not in select list");
        return SqlError::new(INVALID_COLUMN_REFERENCE, message);
    }
    let contains = |text: &str| message.contains(text);
    if contains("For SELECT DISTINCT, ORDER BY expressions") {
        return SqlError::new(
            INVALID_COLUMN_REFERENCE,
            "for SELECT DISTINCT, ORDER BY expressions must appear in select list",
        );
    }
    let sqlstate = if contains("SELECT DISTINCT ON expressions must match") {
        INVALID_COLUMN_REFERENCE
    } else if contains("must be in GROUP BY")
        || contains("must appear in the GROUP BY")
        || contains("ggregate function calls cannot be nested")
        || contains("ggregate functions are not allowed in")
    {
        "42803"
    } else if contains("No function matches") || contains("table function '") {
        UNDEFINED_FUNCTION
    } else if contains("annot coerce")
        || contains("annot infer common")
        || contains("type mismatch")
    {
        DATATYPE_MISMATCH
    } else if contains("laceholder") {
        "42P02"
    } else {
        SYNTAX_ERROR
    };
    SqlError::new(sqlstate, message)
}

fn from_execution(message: String) -> SqlError {
    let contains = |text: &str| message.contains(text);
    if is_about_pattern(&message) {
        return from_other(message);
    }
    if contains("ivide by zero") || contains("ivision by zero") {
        return SqlError::new(DIVISION_BY_ZERO, "division by zero");
    }
    if let Some(text) = text_of_no_time(&message) {
        return out_of_range(text);
    }
    if contains("Error parsing timestamp") {
        return SqlError::new(INVALID_DATETIME, message);
    }
    if contains("Scalar subquery returned more than one row") {
        let message = "more than one row returned by a subquery used as an expression";
        return SqlError::new("21000", message);
    }
    if contains("verflow") {
        return SqlError::new(NUMERIC_OUT_OF_RANGE, message);
    }
    if contains("In an aggregate with DISTINCT") {
        let message =
            "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument list";
        return SqlError::new(INVALID_COLUMN_REFERENCE, message);
    }
    SqlError::new(INVALID_PARAMETER_VALUE, message)
}

fn between<'a>(text: &'a str, prefix: &str, suffix: &str) -> Option<&'a str> {
    let start = text.find(prefix)? + prefix.len();
    let length = text[start..].find(suffix)?;
    Some(&text[start..start + length])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_errors_survive_the_trip_through_datafusion() {
        let error = SqlError::not_null("v", "t");
        let wrapped = DataFusionError::from(error.clone()).context("somewhere");
        assert_eq!(SqlError::from(wrapped), error);
        let shared = DataFusionError::Shared(Arc::new(error.clone().into()));
        assert_eq!(SqlError::from(shared), error);
        let service = Error::Overloaded("too much".to_owned());
        let wrapped = DataFusionError::External(Box::new(service));
        let arrow = ArrowError::ExternalError(Box::new(wrapped));
        let error = SqlError::from(arrow);
        assert!(error.retryable);
        assert_eq!(error.sqlstate, "53400");
    }

    #[test]
    fn planner_errors_get_their_sqlstate() {
        let state = |message: &str| SqlError::from(DataFusionError::Plan(message.to_owned()));
        let error = state("table 'partita.public.nope' not found");
        assert_eq!(
            (error.sqlstate.as_str(), error.message.as_str()),
            ("42P01", "relation \"nope\" does not exist")
        );
        let error = state("table 'partita.b.nope' not found");
        assert_eq!(error.message, "relation \"b.nope\" does not exist");
        let error = state("Invalid function 'fooo'.\nDid you mean 'foo'?");
        assert_eq!(
            (error.sqlstate.as_str(), error.hint.as_deref()),
            ("42883", Some("did you mean foo()?"))
        );
        let error = state("Order by column out of bounds, specified: 7, max: 2");
        assert_eq!(
            (error.sqlstate.as_str(), error.message.as_str()),
            ("42P10", "ORDER BY position 7 is not in select list")
        );
        let error =
            state("For SELECT DISTINCT, ORDER BY expressions t.v must appear in select list");
        assert_eq!(
            (error.sqlstate.as_str(), error.message.as_str()),
            ("42P10", "for SELECT DISTINCT, ORDER BY expressions must appear in select list")
        );
    }

    #[test]
    fn arrow_errors_get_their_sqlstate() {
        assert_eq!(SqlError::from(ArrowError::DivideByZero).sqlstate, "22012");
        let text = "Cannot cast string 'x' to value of Int32 type".to_owned();
        assert_eq!(SqlError::from(ArrowError::CastError(text)).sqlstate, "22P02");
        let number = "Can't cast value 300 to type Int8".to_owned();
        assert_eq!(SqlError::from(ArrowError::CastError(number)).sqlstate, "22003");
        for (text, sqlstate) in [
            ("Cannot cast string '2023-02-29' to value of Date32 type", "22008"),
            ("Cannot cast string '2023-02-29x' to value of Date32 type", "22007"),
            ("Error parsing timestamp from '2023-02-30 10:00:00': error parsing date", "22008"),
            ("Error parsing timestamp from '2023-02': error parsing date", "22007"),
            ("Invalid input syntax for type interval: \"x\"", "22007"),
        ] {
            let error = SqlError::from(ArrowError::ParseError(text.to_owned()));
            assert_eq!(error.sqlstate, sqlstate, "{text}");
        }
        let beyond =
            "Failed to convert 9223372036854775807 to datetime for Timestamp(s)".to_owned();
        assert_eq!(SqlError::from(ArrowError::CastError(beyond)).sqlstate, "22008");
        let beyond = ArrowError::ComputeError("Timestamp out of range".to_owned());
        assert_eq!(SqlError::from(beyond).sqlstate, "22008");
        assert_eq!(SqlError::from(datetime_overflow("interval")).message, "interval out of range");
    }

    #[test]
    fn an_error_is_the_same_when_it_is_shared() {
        let errors: [fn() -> DataFusionError; 7] = [
            || ArrowError::ExternalError(Box::new(SqlError::not_null("v", "t"))).into(),
            || ArrowError::NotYetImplemented("this".to_owned()).into(),
            || ArrowError::OffsetOverflowError(7).into(),
            || ArrowError::ComputeError("that".to_owned()).into(),
            || DataFusionError::ResourcesExhausted("all of it".to_owned()),
            || io::Error::from(io::ErrorKind::StorageFull).into(),
            || {
                let field = Box::new(datafusion::common::Column::new_unqualified("v"));
                let missing = SchemaError::FieldNotFound { field, valid_fields: Vec::new() };
                DataFusionError::SchemaError(Box::new(missing), Box::new(None))
            },
        ];
        for error in errors {
            let alone = SqlError::from(error());
            assert_ne!(alone.sqlstate, INTERNAL_ERROR, "{alone:?}");
            let shared = DataFusionError::Shared(Arc::new(error()));
            assert_eq!(SqlError::from(shared), alone);
            let boxed = DataFusionError::External(Box::new(Arc::new(error())));
            assert_eq!(SqlError::from(boxed), alone);
        }
    }

    #[test]
    fn errors_of_the_operating_system_get_their_sqlstate() {
        let state = |error: io::Error| SqlError::from(DataFusionError::IoError(error)).sqlstate;
        assert_eq!(state(io::Error::from(io::ErrorKind::StorageFull)), "53100");
        assert_eq!(state(io::Error::from_raw_os_error(24)), "53000");
        assert_eq!(state(io::Error::from_raw_os_error(5)), "58030");
        assert_eq!(state(io::Error::other(SqlError::canceled())), "57014");
    }
}
