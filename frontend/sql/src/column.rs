//! One column of CREATE TABLE and ADD COLUMN: its type, its options, its default, its expression.
//!
//! Invariants:
//! - a default is a literal of the column's type, `now()`, `current_date()`, `gen_random_uuid()`, `uuidv7()` or
//!   `nextval('sequence')`, in one spelling each, so that readers need not parse anything else;
//! - a generated column's expression depends on columns that are not generated themselves, and on nothing else.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    ColumnOption, DataType, Expr, FunctionArguments, visit_expressions,
};
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;
use partita_proto::index::IndexOptions;
use partita_proto::schema::ColumnType;
use partita_proto::value::Value;
use partita_worker::{UuidFunction, Zone};

use super::column_builder::ColumnBuilder;
use super::identifier::fold;
use super::literal::{Literal, literal, typed};
use super::sequence_statement::{sequence_default, sequence_of};
use super::statement::{CheckDefinition, ColumnDefinition};
use super::tokens::Tokens;
use super::types::Declared;
use crate::error::{FEATURE_NOT_SUPPORTED, SqlError, UNDEFINED_COLUMN};
use crate::notice::Notice;

/// Functions whose result changes between calls; a stored column must not be computed by them.
const VOLATILE: &[&str] = &[
    "now",
    "current_timestamp",
    "current_date",
    "current_time",
    "localtimestamp",
    "localtime",
    "today",
    "random",
    "rand",
    "uuid",
    "gen_random_uuid",
    "uuidv7",
    "current_user",
    "current_database",
    "current_schema",
    "version",
];

/// A column, and those of its options that concern the table.
pub(super) struct ColumnClause {
    /// The column itself.
    pub(super) definition: ColumnDefinition,
    /// True if it is declared PRIMARY KEY.
    pub(super) primary_key: bool,
    /// True if it is declared TIME INDEX.
    pub(super) time_index: bool,
    /// CHECK constraints in its definition.
    pub(super) checks: Vec<CheckDefinition>,
}

impl Tokens<'_> {
    /// Takes `name type [option ...]`.
    pub(super) fn column_clause(
        &mut self,
        notices: &mut Vec<Notice>,
    ) -> Result<ColumnClause, SqlError> {
        let name = self.name("a column name")?;
        let (declared, counter) = match self.serial() {
            Some((column_type, counter)) => (Declared::plain(column_type), Some(counter)),
            None => (self.declared_type(notices)?, None),
        };
        let Declared { column_type, length, json } = declared;
        let definition = ColumnDefinition {
            name,
            column_type,
            length,
            json,
            nullable: None,
            default: None,
            generated: None,
            counter,
            indexes: Vec::new(),
            comment: None,
        };
        let checks = Vec::new();
        let mut clause = ColumnClause { definition, primary_key: false, time_index: false, checks };
        while self.column_option(&mut clause)? {}
        self.check_counter(&clause.definition)?;
        if clause.definition.generated.is_some() && clause.definition.default.is_some() {
            return Err(self.located(SqlError::syntax(format!(
                "column \"{}\" is generated and cannot have a DEFAULT",
                clause.definition.name
            ))));
        }
        Ok(clause)
    }

    /// Takes one option of a column; false when none comes next.
    fn column_option(&mut self, clause: &mut ColumnClause) -> Result<bool, SqlError> {
        // The name of any other constraint is accepted and not stored.
        let name = match self.take(&["constraint"]) {
            true => Some(self.name("a constraint's name")?),
            false => None,
        };
        let column = &mut clause.definition;
        // Options that Partita stores.
        if self.at("check") {
            let column = Some(column.name.clone());
            clause.checks.push(self.check_constraint(name, column)?);
        } else if self.take(&["not", "null"]) {
            self.nullability(column, false)?;
        } else if self.take(&["null"]) {
            self.nullability(column, true)?;
        } else if self.take(&["primary", "key"]) {
            clause.primary_key = true;
        } else if self.take(&["time", "index"]) {
            clause.time_index = true;
        } else if self.at("default") {
            column.default = self.default_option(&column.name, column.column_type)?;
        } else if self.take(&["comment"]) {
            self.take_mark(&Token::Eq);
            column.comment = Some(self.string()?).filter(|text| !text.is_empty());
        } else if self.take(&["generated"]) {
            if let Some(counter) = self.identity()? {
                if column.counter.replace(counter).is_some() {
                    return Err(self.repeated_default(column));
                }
                return Ok(true);
            }
            self.expect("always")?;
            self.expect("as")?;
            self.generated(column)?;
        } else if self.at("as") && matches!(self.peek_nth(1).token, Token::LParen) {
            self.next();
            self.generated(column)?;
        } else if let Some(kind) = self.take_index() {
            let (name, options) = self.index_options(kind)?;
            column.add_index(name, options).map_err(|error| self.located(error))?;
        } else {
            // Options of other databases are refused by name.
            return match self.foreign_option() {
                Some(option) => Err(self.unsupported(option)),
                None if name.is_some() => Err(self.unexpected("a constraint")),
                None => Ok(false),
            };
        }
        Ok(true)
    }

    /// Checks that a column that counts has no other source of values.
    fn check_counter(&self, column: &ColumnDefinition) -> Result<(), SqlError> {
        let Some(counter) = &column.counter else { return Ok(()) };
        if column.default.is_some() || column.generated.is_some() {
            return Err(self.repeated_default(column));
        }
        if column.nullable == Some(true) {
            return Err(self.located(SqlError::syntax(format!(
                "conflicting NULL/NOT NULL declarations for column \"{}\"",
                column.name
            ))));
        }
        counter.options(column.column_type).map(drop).map_err(|error| self.located(error))
    }

    fn repeated_default(&self, column: &ColumnDefinition) -> SqlError {
        self.located(SqlError::syntax(format!(
            "multiple default values specified for column \"{}\"",
            column.name
        )))
    }

    fn nullability(&self, column: &mut ColumnDefinition, nullable: bool) -> Result<(), SqlError> {
        if column.nullable.is_some_and(|previous| previous != nullable) {
            return Err(self.located(SqlError::syntax(format!(
                "conflicting NULL/NOT NULL declarations for column \"{}\"",
                column.name
            ))));
        }
        column.nullable = Some(nullable);
        Ok(())
    }

    /// The name of the next option, if only other databases support it.
    fn foreign_option(&self) -> Option<&'static str> {
        [
            ("unique", "UNIQUE"),
            ("references", "REFERENCES"),
            ("collate", "COLLATE"),
            ("auto_increment", "AUTO_INCREMENT"),
            ("autoincrement", "AUTOINCREMENT"),
            ("identity", "IDENTITY"),
            ("family", "FAMILY"),
            ("encode", "ENCODE"),
            ("codec", "CODEC"),
        ]
        .into_iter()
        .find(|(word, _)| self.at(word))
        .map(|(_, option)| option)
    }

    /// Takes `(expression) [STORED]` after AS.
    fn generated(&mut self, column: &mut ColumnDefinition) -> Result<(), SqlError> {
        self.expect_mark(&Token::LParen)?;
        let expression = self.expression()?;
        self.expect_mark(&Token::RParen)?;
        if self.at("virtual") {
            return Err(self.unsupported("a VIRTUAL generated column").with_hint("use STORED"));
        }
        // Without the word it is stored too: its value depends on its row only, so no query sees a difference.
        self.take(&["stored"]);
        column.generated = Some(expression.to_string());
        Ok(())
    }

    /// Takes `DEFAULT expression`; `None` for DEFAULT NULL.
    pub(super) fn default_option(
        &mut self,
        column: &str,
        column_type: ColumnType,
    ) -> Result<Option<String>, SqlError> {
        let position = self.position();
        // sqlparser's own rule knows that the NOT of NOT NULL ends the expression.
        let option = self.bounded(Parser::parse_optional_column_option)?;
        match option {
            Some(ColumnOption::Default(expression)) => {
                default_text(&expression, column, column_type)
                    .map_err(|error| error.with_position(position))
            }
            _ => Err(self.unexpected("an expression")),
        }
    }
}

impl ColumnDefinition {
    /// Adds an index.
    ///
    /// # Errors
    /// When the column has one of the kind.
    pub(super) fn add_index(
        &mut self,
        name: Option<String>,
        options: IndexOptions,
    ) -> Result<(), SqlError> {
        let kind = options.kind();
        if self.indexes.iter().any(|(_, options)| options.kind() == kind) {
            return Err(SqlError::syntax(format!(
                "{} INDEX is specified more than once for column \"{}\"",
                kind.sql(),
                self.name
            )));
        }
        self.indexes.push((name, options));
        Ok(())
    }
}

/// The one spelling of a default; `None` for NULL.
pub(super) fn default_text(
    expression: &Expr,
    column: &str,
    column_type: ColumnType,
) -> Result<Option<String>, SqlError> {
    let mismatch = |default: &str| {
        SqlError::new(
            crate::error::DATATYPE_MISMATCH,
            format!(
                "the default {default} does not fit column \"{column}\" of type {}",
                column_type.sql()
            ),
        )
    };
    match clock_function(expression) {
        Some(Clock::Now) if column_type.is_timestamp() => return Ok(Some("now()".to_owned())),
        Some(Clock::Now) => return Err(mismatch("now()")),
        Some(Clock::Today) if column_type == ColumnType::Date => {
            return Ok(Some("current_date()".to_owned()));
        }
        Some(Clock::Today) => return Err(mismatch("current_date")),
        None => {}
    }
    if let Some(function) = UuidFunction::of_default(&expression.to_string()) {
        let default = function.default_text();
        let is_uuid = column_type == ColumnType::Uuid;
        return if is_uuid { Ok(Some(default)) } else { Err(mismatch(&default)) };
    }
    if let Some(name) = sequence_of(&expression.to_string()) {
        let default = sequence_default(&name);
        let is_whole = matches!(
            column_type,
            ColumnType::Int8
                | ColumnType::Int16
                | ColumnType::Int32
                | ColumnType::Int64
                | ColumnType::UInt8
                | ColumnType::UInt16
                | ColumnType::UInt32
                | ColumnType::UInt64
        );
        return if is_whole { Ok(Some(default)) } else { Err(mismatch(&default)) };
    }
    // The text of a JSON is checked when it becomes a value.
    let expression = match expression {
        Expr::Cast { expr, data_type: DataType::JSON | DataType::JSONB, .. }
            if column_type == ColumnType::String =>
        {
            expr.as_ref()
        }
        _ => expression,
    };
    let array = match column_type {
        ColumnType::Array(_) => array_text(expression)?.map(Literal::Text),
        _ => None,
    };
    let value = array.map_or_else(|| literal(expression), |array| Ok(Some(array)))?;
    if value.is_none() {
        return Err(SqlError::new(
            FEATURE_NOT_SUPPORTED,
            format!("the default `{expression}` of column \"{column}\" is not supported"),
        )
        .with_hint(
            "a default is a literal, now(), current_date, gen_random_uuid(), uuidv7() or \
             nextval('sequence')",
        ));
    }
    if column_type.is_of_fields_only() {
        return match value {
            Some(Literal::Null) => Ok(None),
            Some(Literal::Text(text)) => {
                ColumnBuilder::new(column_type, Zone::UTC)
                    .append_text(&text, false)
                    .map_err(|error| mismatch(&format!("'{text}'")).with_detail(error.message))?;
                Ok(Some(Value::String(text).display(ColumnType::String)))
            }
            _ => Err(mismatch(&expression.to_string())),
        };
    }
    let value = typed(expression, column, column_type)?;
    Ok((!value.is_null()).then(|| value.display(column_type)))
}

/// The text of an array of literals, as in `ARRAY[1, NULL]::INT[]`; `None` for other expressions.
fn array_text(expression: &Expr) -> Result<Option<String>, SqlError> {
    let array = match expression {
        Expr::Nested(inner) | Expr::Cast { expr: inner, .. } => return array_text(inner),
        Expr::Array(array) => array,
        _ => return Ok(None),
    };
    let mut elements = Vec::with_capacity(array.elem.len());
    for element in &array.elem {
        elements.push(match literal(element)? {
            Some(Literal::Null) => "NULL".to_owned(),
            Some(Literal::Bool(value)) => value.to_string(),
            Some(Literal::Number(text) | Literal::Text(text)) => {
                format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
            }
            Some(Literal::Bytes(_)) | None => return Ok(None),
        });
    }
    Ok(Some(format!("{{{}}}", elements.join(","))))
}

/// The kind of time that a clock function returns.
pub(super) enum Clock {
    /// An instant.
    Now,
    /// A day.
    Today,
}

/// The kind of clock that an expression reads, if it is a call of a clock function.
pub(super) fn clock_function(expression: &Expr) -> Option<Clock> {
    let function = match expression {
        Expr::Nested(inner) => return clock_function(inner),
        Expr::Function(function) => function,
        _ => return None,
    };
    let no_arguments = match &function.args {
        FunctionArguments::None => true,
        // A precision, as in current_timestamp(3), adds nothing to the column's type.
        FunctionArguments::List(list) => list.args.len() <= 1 && list.clauses.is_empty(),
        FunctionArguments::Subquery(_) => false,
    };
    if !no_arguments || function.over.is_some() || function.filter.is_some() {
        return None;
    }
    match fold(&function.name.to_string()).as_str() {
        "now" | "current_timestamp" | "localtimestamp" => Some(Clock::Now),
        "current_date" | "today" => Some(Clock::Today),
        _ => None,
    }
}

/// Checks the expressions of generated columns against the columns of their table.
///
/// # Errors
/// When one names a column that does not exist or is generated, or depends on more than columns.
pub(super) fn check_generated(
    generated: &ColumnDefinition,
    columns: &[ColumnDefinition],
) -> Result<(), SqlError> {
    let Some(text) = &generated.generated else { return Ok(()) };
    for name in columns_of(text)? {
        match columns.iter().find(|column| column.name == name) {
            None => {
                return Err(SqlError::new(
                    UNDEFINED_COLUMN,
                    format!(
                        "column \"{name}\" in the expression of column \"{}\" does not exist",
                        generated.name
                    ),
                ));
            }
            Some(column) if column.generated.is_some() => {
                return Err(SqlError::new(
                    "42P17",
                    format!(
                        "cannot use generated column \"{name}\" in the expression of column \
                         \"{}\"",
                        generated.name
                    ),
                ));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// The columns that an expression's text names.
///
/// # Errors
/// When the text does not parse, or holds what a stored column cannot be computed from.
pub(super) fn columns_of(text: &str) -> Result<Vec<String>, SqlError> {
    columns_within(text, "a generated column's expression")
}

/// The same for an expression of another kind, which errors name.
pub(super) fn columns_within(text: &str, kind: &str) -> Result<Vec<String>, SqlError> {
    // The text is parsed whole: nothing may follow the expression.
    let mut tokens = Tokens::new(text, 0)?;
    let expression = tokens.expression()?;
    tokens.expect_end()?;
    let mut columns = Vec::new();
    // Columns are collected in order of appearance; the first part that is not allowed ends the
    // walk.
    let refused = visit_expressions(&expression, |part| {
        let refused = match part {
            Expr::Identifier(name) => {
                let name = match name.quote_style {
                    Some(_) => name.value.clone(),
                    None => fold(&name.value),
                };
                if !columns.contains(&name) {
                    columns.push(name);
                }
                None
            }
            Expr::CompoundIdentifier(_) => Some(format!("the qualified name `{part}`")),
            Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } => {
                Some("a subquery".to_owned())
            }
            Expr::Function(function) if function.over.is_some() => {
                Some("a window function".to_owned())
            }
            Expr::Function(function)
                if VOLATILE.contains(&fold(&function.name.to_string()).as_str()) =>
            {
                Some(format!("`{part}`, which is not immutable,"))
            }
            _ => None,
        };
        match refused {
            Some(part) => ControlFlow::Break(part),
            None => ControlFlow::Continue(()),
        }
    });
    match refused {
        ControlFlow::Continue(()) => Ok(columns),
        ControlFlow::Break(part) => {
            Err(SqlError::new("42P17", format!("{part} cannot be part of {kind}")))
        }
    }
}
