//! INSERT, REPLACE and UPSERT: the newest row of a key wins. UPSERT changes an existing row where it would lose columns that
//! the statement does not name.
//!
//! The statement is split without a tokenizer, because the rows after VALUES may be megabytes long: table, columns, and
//! where the rows begin. [`Insert::scan`] turns the rows into a batch; when it returns `None`, [`Insert::values_query`]
//! is the query for the planner.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::DataType;
use arrow::record_batch::RecordBatch;
use datafusion::common::ScalarValue;
use datafusion::sql::parser::Statement as PlannerStatement;
use datafusion::sql::sqlparser::ast::{self, Expr, SetExpr};
use partita_proto::schema::{Column, MergeMode, TableSchema};

use super::conflict::Clauses;
use super::cursor::Cursor;
use super::parser::parse_query;
use super::statement::{Insert, InsertSource, Overriding, Query, TableName};
use super::tokens::Tokens;
use super::values::{Rows, StatementTime, Stop, Target, default_beside_expressions, parameters};
use crate::error::{DUPLICATE_COLUMN, GENERATED_ALWAYS, SqlError, UNDEFINED_COLUMN};

/// Maximum bytes of what follows the rows of VALUES.
const CLAUSE_BYTES_MAX: usize = 16 << 10;

/// Parses a statement that begins with INSERT, REPLACE or UPSERT; `None` for any other.
pub(super) fn parse(text: &str, start: usize) -> Result<Option<Insert>, SqlError> {
    let mut reader = Reader { cursor: Cursor::new(text), text, start, with: "" };
    let keeps = reader.take("upsert");
    if !keeps && !reader.take("insert") && !reader.take("replace") {
        return Ok(None);
    }
    reader.insert(keeps).map(Some)
}

/// Parses an INSERT whose query gets a WITH clause that stands before the statement.
pub(super) fn parse_with(with: &str, text: &str, start: usize) -> Result<Insert, SqlError> {
    let mut reader = Reader { cursor: Cursor::new(text), text, start, with };
    if !reader.take("insert") {
        return Err(reader.unexpected("INSERT"));
    }
    reader.insert(false)
}

/// Offset of ON CONFLICT or RETURNING after the rows of VALUES, which begin at `start`. Rows without such a word near the
/// end of the text are not looked through.
fn clause_after(text: &str, start: usize) -> Option<usize> {
    const WORDS: [&[u8]; 2] = [b"conflict", b"returning"];
    let bytes = text.as_bytes();
    let tail = &bytes[start.max(bytes.len().saturating_sub(CLAUSE_BYTES_MAX))..];
    let has = |word: &[u8]| tail.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word));
    if !WORDS.into_iter().any(has) {
        return None;
    }
    // Skip the rows, with their texts and comments.
    let mut cursor = Cursor::new(text);
    let mut depth = 0_usize;
    while cursor.offset() < start {
        cursor.advance();
    }
    loop {
        cursor.skip_blank();
        let begin = cursor.offset();
        match cursor.peek()? {
            b'\'' => drop(cursor.string()?),
            b'"' | b'`' => drop(cursor.name()?),
            b'(' => {
                depth += 1;
                cursor.advance();
            }
            b')' => {
                depth = depth.checked_sub(1)?;
                cursor.advance();
            }
            // Texts of other forms: the rows are taken for all of the text, and refused by their own parser.
            b'$' if text[begin..].starts_with("$$") => return None,
            byte if byte.is_ascii_alphabetic() || byte == b'_' || !byte.is_ascii() => {
                if matches!(byte, b'e' | b'E') && bytes.get(begin + 1) == Some(&b'\'') {
                    skip_escaped(&mut cursor)?;
                    continue;
                }
                let word = cursor.name()?;
                if depth == 0 && ["on", "returning"].contains(&word.as_str()) {
                    return Some(begin);
                }
            }
            _ => cursor.advance(),
        }
    }
}

/// Moves past `E'..'`, in which a backslash escapes a quote; none when it is not closed.
fn skip_escaped(cursor: &mut Cursor<'_>) -> Option<()> {
    cursor.advance();
    cursor.advance();
    loop {
        match cursor.peek()? {
            b'\\' => {
                cursor.advance();
                cursor.peek()?;
                cursor.advance();
            }
            b'\'' => {
                cursor.advance();
                if !cursor.take(b'\'') {
                    return Some(());
                }
            }
            _ => cursor.advance(),
        }
    }
}

struct Reader<'t> {
    cursor: Cursor<'t>,
    text: &'t str,
    start: usize,
    /// WITH and what it defines, from in front of the statement.
    with: &'t str,
}

impl Reader<'_> {
    fn insert(mut self, keeps: bool) -> Result<Insert, SqlError> {
        for word in ["overwrite", "ignore", "or"] {
            if self.at(word) {
                return Err(self.unsupported(&format!("INSERT {}", word.to_ascii_uppercase())));
            }
        }
        if !self.take("into") {
            return Err(self.unexpected("INTO"));
        }
        self.take("table");
        let table = self.table()?;
        let alias = match self.take("as") {
            true => Some(self.name("an alias")?),
            false => None,
        };
        let columns = self.columns()?;
        let overriding = self.overriding()?;
        if self.at("set") {
            return Err(self.unsupported("INSERT ... SET"));
        }
        if self.at("partition") {
            return Err(self.unsupported("INSERT ... PARTITION"));
        }
        let (source, Clauses { conflict, returning }) = self.source(&table, alias.as_deref())?;
        let (text, position) = (Arc::from(self.text), self.start);
        Ok(Insert {
            text,
            position,
            table,
            columns,
            alias,
            keeps,
            overriding,
            source,
            conflict,
            returning,
        })
    }

    /// Takes OVERRIDING {SYSTEM | USER} VALUE.
    fn overriding(&mut self) -> Result<Option<Overriding>, SqlError> {
        if !self.take("overriding") {
            return Ok(None);
        }
        let overriding = if self.take("system") {
            Overriding::System
        } else if self.take("user") {
            Overriding::User
        } else {
            return Err(self.unexpected("SYSTEM or USER"));
        };
        match self.take("value") {
            true => Ok(Some(overriding)),
            false => Err(self.unexpected("VALUE")),
        }
    }

    /// Takes the rows, and the clauses after them.
    fn source(
        &mut self,
        table: &TableName,
        alias: Option<&str>,
    ) -> Result<(InsertSource, Clauses), SqlError> {
        self.cursor.skip_blank();
        if !self.with.is_empty() {
            for word in ["values", "value", "default", "with"] {
                if self.at(word) {
                    let word = word.to_ascii_uppercase();
                    return Err(self.unsupported(&format!("WITH before INSERT ... {word}")));
                }
            }
        }
        if self.take("values") || self.take("value") {
            self.cursor.skip_blank();
            let start = self.cursor.offset();
            let Some(end) = clause_after(self.text, start) else {
                return Ok((InsertSource::Values(start..self.text.len()), Clauses::default()));
            };
            let position = self.start + self.text[..end].chars().count();
            let mut tokens = Tokens::new(&self.text[end..], position)?;
            let clauses = tokens.insert_clauses(self.text, table, alias)?;
            return Ok((InsertSource::Values(start..end), clauses));
        }
        if self.take("default") {
            if !self.take("values") {
                return Err(self.unexpected("VALUES"));
            }
            let mut tokens = Tokens::new(self.cursor.rest(), self.position() - 1)?;
            let clauses = tokens.insert_clauses(self.text, table, alias)?;
            return Ok((InsertSource::Default, clauses));
        }
        let query = ["select", "with", "table"].iter().any(|word| self.at(word))
            || self.cursor.peek() == Some(b'(');
        if !query {
            return Err(self.unexpected("VALUES or SELECT"));
        }
        let rest = self.cursor.rest();
        let text: Cow<'_, str> = match self.with {
            "" => rest.into(),
            with => format!("{with}{rest}").into(),
        };
        let start = (self.position() - 1).saturating_sub(self.with.chars().count());
        let mut tokens = Tokens::new(&text, start)?;
        let query = tokens.query()?;
        let clauses = tokens.insert_clauses(self.text, table, alias)?;
        Ok((InsertSource::Query(Box::new(query)), clauses))
    }

    fn table(&mut self) -> Result<TableName, SqlError> {
        let mut parts = vec![self.name("a table name")?];
        while self.take_byte(b'.') {
            parts.push(self.name("a name")?);
        }
        if parts.len() == 3 && parts[0] == crate::error::CATALOG {
            parts.remove(0);
        }
        if parts.len() > 2 {
            return Err(
                self.unsupported(&format!("a table of another catalog (\"{}\")", parts.join(".")))
            );
        }
        let name = parts.pop().unwrap_or_default();
        Ok(TableName { database: parts.pop(), name })
    }

    /// Takes `(column, ..)`; `None` when there is no list, or the parenthesis begins a query.
    fn columns(&mut self) -> Result<Option<Vec<String>>, SqlError> {
        self.cursor.skip_blank();
        if self.cursor.peek() != Some(b'(') {
            return Ok(None);
        }
        let start = self.cursor.clone();
        self.take_byte(b'(');
        let query = ["select", "with", "values", "table"].iter().any(|word| self.at(word));
        self.cursor.skip_blank();
        if query || self.cursor.peek() == Some(b'(') {
            self.cursor = start;
            return Ok(None);
        }
        let mut columns = Vec::new();
        while !self.take_byte(b')') {
            columns.push(self.name("a column name")?);
            if !self.take_byte(b',') {
                if !self.take_byte(b')') {
                    return Err(self.unexpected("\",\" or \")\""));
                }
                break;
            }
        }
        if columns.is_empty() {
            return Err(self.unexpected("a column name"));
        }
        Ok(Some(columns))
    }

    fn name(&mut self, expected: &str) -> Result<String, SqlError> {
        self.cursor.skip_blank();
        self.cursor.name().ok_or_else(|| self.unexpected(expected))
    }

    fn at(&self, word: &str) -> bool {
        let mut ahead = self.cursor.clone();
        ahead.skip_blank();
        ahead.word().is_some_and(|next| next.eq_ignore_ascii_case(word))
    }

    fn take(&mut self, word: &str) -> bool {
        let is_next = self.at(word);
        if is_next {
            self.cursor.skip_blank();
            self.cursor.word();
        }
        is_next
    }

    fn take_byte(&mut self, byte: u8) -> bool {
        self.cursor.skip_blank();
        self.cursor.take(byte)
    }

    /// The position of the next token, in characters from 1.
    fn position(&self) -> usize {
        let mut ahead = self.cursor.clone();
        ahead.skip_blank();
        self.start + self.text[..ahead.offset()].chars().count() + 1
    }

    fn unexpected(&self, expected: &str) -> SqlError {
        let mut ahead = self.cursor.clone();
        ahead.skip_blank();
        let token = match ahead.clone().word() {
            Some(word) => word.to_owned(),
            None => ahead.rest().chars().take(1).collect(),
        };
        let message = if token.is_empty() {
            format!("syntax error at end of input, expected {expected}")
        } else {
            format!("syntax error at or near \"{token}\", expected {expected}")
        };
        SqlError::syntax(message).with_position(self.position())
    }

    fn unsupported(&self, feature: &str) -> SqlError {
        SqlError::unsupported(feature).with_position(self.position())
    }
}

impl Insert {
    /// True for an UPSERT by which a row would lose a column that the statement does not name, if its row replaced it.
    /// `names` are the columns of the statement's rows, used when it has no list of its own.
    pub fn loses(&self, schema: &TableSchema, names: &[&str]) -> bool {
        let is_named = |name: &str| match &self.columns {
            Some(listed) => listed.iter().any(|column| column == name),
            None => names.contains(&name),
        };
        let is_lost = |column: &Column| {
            // Where each field keeps its newest value, only a default would overwrite it.
            let is_kept =
                schema.options.merge_mode == MergeMode::LastNonNull && column.default.is_none();
            !is_kept
                && column.generated.is_none()
                && !schema.is_key(column.id)
                && !is_named(&column.name)
        };
        self.keeps && schema.columns.iter().any(is_lost)
    }

    /// The columns that the values are for.
    ///
    /// # Errors
    /// When a column is listed twice or does not exist.
    pub fn target<'a>(&self, schema: &'a TableSchema) -> Result<Target<'a>, SqlError> {
        let Some(names) = &self.columns else {
            return Ok(Target { columns: schema.shown().collect(), listed: false });
        };
        let mut columns = Vec::with_capacity(names.len());
        for (index, name) in names.iter().enumerate() {
            if names[..index].contains(name) {
                return Err(SqlError::new(
                    DUPLICATE_COLUMN,
                    format!("column \"{name}\" specified more than once"),
                ));
            }
            let column = schema.column(name).ok_or_else(|| {
                SqlError::new(
                    UNDEFINED_COLUMN,
                    format!("column \"{name}\" of relation \"{}\" does not exist", self.table.name),
                )
            })?;
            columns.push(column);
        }
        Ok(Target { columns, listed: true })
    }

    /// The rows as a batch of the target's columns by their SQL names, without the columns in which every value is
    /// DEFAULT. `None` when the statement has a query, or values that must be planned.
    ///
    /// # Errors
    /// When a value does not fit its column, or rows are of the wrong length.
    pub fn scan(
        &self,
        target: &Target<'_>,
        time: StatementTime,
        parameters: Option<&[ScalarValue]>,
    ) -> Result<Option<RecordBatch>, SqlError> {
        match parameters {
            None => self.scan_all(target, time, &[None]),
            Some(row) => self.scan_all(target, time, &[Some(row)]),
        }
    }

    /// The rows of the statement for each of several sets of parameters, as one batch.
    ///
    /// # Errors
    /// As [`Insert::scan`].
    pub fn scan_many<'p>(
        &self,
        target: &Target<'_>,
        time: StatementTime,
        sets: impl IntoIterator<Item = &'p [ScalarValue]>,
    ) -> Result<Option<RecordBatch>, SqlError> {
        let sets: Vec<_> = sets.into_iter().map(Some).collect();
        self.scan_all(target, time, &sets)
    }

    fn scan_all(
        &self,
        target: &Target<'_>,
        time: StatementTime,
        sets: &[Option<&[ScalarValue]>],
    ) -> Result<Option<RecordBatch>, SqlError> {
        let values = match &self.source {
            InsertSource::Values(range) => range,
            InsertSource::Query(_) => return Ok(None),
            InsertSource::Default => {
                // One row of defaults for each set.
                let options =
                    arrow::array::RecordBatchOptions::new().with_row_count(Some(sets.len()));
                let schema = Arc::new(arrow::datatypes::Schema::empty());
                return Ok(Some(RecordBatch::try_new_with_options(schema, vec![], &options)?));
            }
        };
        let mut rows = Rows::new(target, time);
        for set in sets {
            match rows.scan(&self.text[values.clone()], *set) {
                Ok(()) => {}
                Err(Stop::NotSimple) => return Ok(None),
                Err(Stop::Wrong(error, offset)) => return Err(self.located(*error, values, offset)),
            }
        }
        rows.finish().map(Some)
    }

    fn located(&self, error: SqlError, values: &Range<usize>, offset: usize) -> SqlError {
        let preceding = self.text.get(..values.start + offset).unwrap_or(&self.text);
        let position = self.position + preceding.chars().count() + 1;
        if error.position.is_some() { error } else { error.with_position(position) }
    }

    /// The types of `$1`, `$2` and so on, as far as their columns determine them. `None` when the statement has a
    /// query, or values that must be planned.
    ///
    /// # Errors
    /// When the statement is wrong in a way that is detected before it runs.
    pub fn parameter_types(
        &self,
        target: &Target<'_>,
    ) -> Result<Option<Vec<Option<DataType>>>, SqlError> {
        let InsertSource::Values(values) = &self.source else {
            return Ok(match self.source {
                InsertSource::Default => Some(Vec::new()),
                _ => None,
            });
        };
        match parameters(&self.text[values.clone()], target) {
            Ok(types) => Ok(Some(types.into_iter().map(|t| t.map(|t| t.arrow())).collect())),
            Err(Stop::NotSimple) => Ok(None),
            Err(Stop::Wrong(error, offset)) => Err(self.located(*error, values, offset)),
        }
    }

    /// The rows as a query, for values that must be planned: its columns are the first ones of the target, in order.
    /// `None` when the statement has no rows of its own.
    ///
    /// # Errors
    /// When the rows do not parse, differ in length, do not fit the target, or hold DEFAULT.
    pub fn values_query(&self, target: &Target<'_>) -> Result<Option<Query>, SqlError> {
        let InsertSource::Values(values) = &self.source else { return Ok(None) };
        let rows = &self.text[values.clone()];
        // The text before the rows is replaced by as many characters, so that positions in errors stay true.
        let text = format!("VALUES {rows}");
        let begin = self.position + self.text[..values.start].chars().count();
        let start = begin.saturating_sub("VALUES ".len());
        let query = parse_query(&text, start)?;
        check_rows(&query, target)?;
        Ok(Some(query))
    }
}

/// Checks the rows of a VALUES query against the target columns.
fn check_rows(query: &Query, target: &Target<'_>) -> Result<(), SqlError> {
    let PlannerStatement::Statement(statement) = &query.statement else { return Ok(()) };
    let ast::Statement::Query(query) = statement.as_ref() else { return Ok(()) };
    let SetExpr::Values(values) = query.body.as_ref() else { return Ok(()) };
    let columns = target.columns.len();
    // All rows have the length of the first.
    let width = values.rows.first().map_or(0, |row| row.content.len());
    for row in &values.rows {
        let row = &row.content;
        if row.len() != width {
            return Err(SqlError::syntax("VALUES lists must all be the same length"));
        }
        if row.len() > columns {
            return Err(SqlError::syntax("INSERT has more expressions than target columns"));
        }
        if target.listed && row.len() < columns {
            return Err(SqlError::syntax("INSERT has more target columns than expressions"));
        }
        // The planner knows no DEFAULT.
        let default = |value: &Expr| {
            matches!(value, Expr::Identifier(name)
                if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("default"))
        };
        if row.iter().any(default) {
            return Err(default_beside_expressions());
        }
        // Generated columns are computed, never given.
        if let Some(column) = target.columns[..width].iter().find(|c| c.generated.is_some()) {
            return Err(SqlError::new(
                GENERATED_ALWAYS,
                format!("cannot insert a non-DEFAULT value into column \"{}\"", column.name),
            )
            .with_detail(format!("column \"{}\" is generated", column.name)));
        }
    }
    Ok(())
}
