//! Statements about sequences, and the clauses that they share with columns. Their grammar is in `sequence_grammar.rs`.

use partita_proto::schema::ColumnType;
use partita_proto::sequence::{CACHE_DEFAULT, Identity, Sequence, SequenceOptions, SequenceType};

use super::cursor::Cursor;
use super::identifier::quote_string;
use super::table_name::TableName;
use crate::error::{CATALOG, INVALID_PARAMETER_VALUE, SqlError};

/// A statement about sequences.
#[derive(Clone, Debug)]
pub enum SequenceStatement {
    /// CREATE SEQUENCE.
    Create {
        /// Name of the new sequence.
        name: TableName,
        /// True to succeed when it exists.
        if_not_exists: bool,
        /// Clauses after the name.
        clauses: SequenceClauses,
    },
    /// ALTER SEQUENCE.
    Alter {
        /// Sequence to change.
        name: TableName,
        /// True to skip a sequence that does not exist.
        if_exists: bool,
        /// Clauses after the name.
        clauses: SequenceClauses,
    },
    /// DROP SEQUENCE of one or more sequences.
    Drop {
        /// Sequences to drop.
        names: Vec<TableName>,
        /// True to skip sequences that do not exist.
        if_exists: bool,
    },
}

impl SequenceStatement {
    /// PostgreSQL's command tag.
    pub fn tag(&self) -> &'static str {
        match self {
            Self::Create { .. } => "CREATE SEQUENCE",
            Self::Alter { .. } => "ALTER SEQUENCE",
            Self::Drop { .. } => "DROP SEQUENCE",
        }
    }
}

/// Clauses of a sequence, as far as they were given. NO MINVALUE is `Some(None)`, and so are RESTART without a number and
/// OWNED BY NONE.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SequenceClauses {
    /// AS type.
    pub data_type: Option<SequenceType>,
    /// INCREMENT BY.
    pub increment: Option<i64>,
    /// MINVALUE, NO MINVALUE.
    pub min_value: Option<Option<i64>>,
    /// MAXVALUE, NO MAXVALUE.
    pub max_value: Option<Option<i64>>,
    /// START WITH.
    pub start: Option<i64>,
    /// RESTART WITH.
    pub restart: Option<Option<i64>>,
    /// CACHE: numbers of a block.
    pub cache: Option<u64>,
    /// CYCLE, NO CYCLE.
    pub cycle: Option<bool>,
    /// OWNED BY table.column, NONE.
    pub owned_by: Option<Option<(TableName, String)>>,
    /// SEQUENCE NAME of an identity column.
    pub name: Option<TableName>,
}

impl SequenceClauses {
    /// Options of a new sequence; `data_type` is that of its column.
    ///
    /// # Errors
    /// 22023 when they do not fit each other.
    pub fn options(&self, data_type: SequenceType) -> Result<SequenceOptions, SqlError> {
        let data_type = self.data_type.unwrap_or(data_type);
        let increment = self.increment.unwrap_or(1);
        let (low, high) = default_limits(data_type, increment);
        let min_value = self.min_value.flatten().unwrap_or(low);
        let max_value = self.max_value.flatten().unwrap_or(high);
        let begin = if increment < 0 { max_value } else { min_value };
        let options = SequenceOptions {
            data_type,
            start: self.start.unwrap_or(begin),
            increment,
            min_value,
            max_value,
            cache: self.cache.unwrap_or(CACHE_DEFAULT),
            cycle: self.cycle.unwrap_or(false),
        };
        options.validate()?;
        Ok(options)
    }

    /// Options of a sequence that is altered, and the number with which it restarts.
    pub fn altered(&self, sequence: &Sequence) -> (SequenceOptions, Option<i64>) {
        let present = sequence.options;
        let data_type = self.data_type.unwrap_or(present.data_type);
        let increment = self.increment.unwrap_or(present.increment);
        let (low, high) = default_limits(data_type, increment);
        // A limit that is that of the type follows the type.
        let (type_low, type_high) = present.data_type.bounds();
        let bound =
            |clause: Option<Option<i64>>, value: i64, of_type: i64, default: i64| match clause {
                Some(limit) => limit.unwrap_or(default),
                None if data_type != present.data_type && value == of_type => default,
                None => value,
            };
        let start = self.start.unwrap_or(present.start);
        let options = SequenceOptions {
            data_type,
            start,
            increment,
            min_value: bound(self.min_value, present.min_value, type_low, low),
            max_value: bound(self.max_value, present.max_value, type_high, high),
            cache: self.cache.unwrap_or(present.cache),
            cycle: self.cycle.unwrap_or(present.cycle),
        };
        (options, self.restart.map(|restart| restart.unwrap_or(start)))
    }
}

/// Limits of a sequence that names none.
fn default_limits(data_type: SequenceType, increment: i64) -> (i64, i64) {
    let (low, high) = data_type.bounds();
    if increment < 0 { (low, -1) } else { (1, high) }
}

/// The counter of a SERIAL or IDENTITY column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnCounter {
    /// Kind of an identity column; `None` for SERIAL.
    pub identity: Option<Identity>,
    /// Clauses in parentheses.
    pub clauses: SequenceClauses,
}

impl ColumnCounter {
    /// Options of the sequence of a column.
    ///
    /// # Errors
    /// 22023 when the column's type cannot be counted in, or the clauses do not fit each other.
    pub fn options(&self, column_type: ColumnType) -> Result<SequenceOptions, SqlError> {
        let data_type = match column_type {
            ColumnType::Int16 => SequenceType::Small,
            ColumnType::Int32 => SequenceType::Integer,
            ColumnType::Int64 => SequenceType::Big,
            _ => {
                let message = "identity column type must be smallint, integer, or bigint";
                return Err(SqlError::new(INVALID_PARAMETER_VALUE, message));
            }
        };
        self.clauses.options(data_type)
    }
}

/// The default of a column whose values a sequence gives.
pub fn sequence_default(name: &TableName) -> String {
    format!("nextval({})", quote_string(&name.to_string()))
}

/// The sequence that a default, `nextval('name')`, takes its values from; `None` for any other default. Without a
/// database the name is in that of the column's table.
pub fn sequence_of(default: &str) -> Option<TableName> {
    let mut cursor = Cursor::new(default);
    let is_word = |word: Option<&str>, expected: &str| {
        word.is_some_and(|word| word.eq_ignore_ascii_case(expected))
    };
    let begins = is_word(cursor.word(), "nextval");
    cursor.skip_blank();
    if !begins || !cursor.take(b'(') {
        return None;
    }
    cursor.skip_blank();
    let text = if cursor.peek() == Some(b'\'') { cursor.string()? } else { return None };
    cursor.skip_blank();
    if cursor.take(b':') && !(cursor.take(b':') && is_word(cursor.word(), "regclass")) {
        return None;
    }
    cursor.skip_blank();
    let is_closed = cursor.take(b')');
    cursor.skip_blank();
    if is_closed && cursor.at_end() { sequence_name(&text).ok() } else { None }
}

/// True if a sequence gives the values of a column with this default.
pub fn is_counter(default: &str) -> bool {
    default.starts_with("nextval(")
}

/// True if a query may call a function that changes a sequence, or ends statements of others.
pub(super) fn may_change(query: &str) -> bool {
    let lower = query.to_ascii_lowercase();
    let names = ["nextval", "setval", "pg_cancel_backend", "pg_terminate_backend"];
    names.iter().any(|name| lower.contains(name))
}

/// The name of a sequence in a text, as the argument of `nextval`.
///
/// # Errors
/// 42602 when the text is no name.
pub fn sequence_name(text: &str) -> Result<TableName, SqlError> {
    let invalid = || SqlError::new("42602", "invalid name syntax");
    let mut cursor = Cursor::new(text);
    let mut parts = Vec::new();
    loop {
        cursor.skip_blank();
        parts.push(cursor.name().ok_or_else(invalid)?);
        cursor.skip_blank();
        if !cursor.take(b'.') {
            break;
        }
    }
    if parts.len() == 3 && parts[0] == CATALOG {
        parts.remove(0);
    }
    let name = parts.pop().filter(|name| !name.is_empty());
    match name {
        Some(name) if cursor.at_end() && parts.len() <= 1 => {
            Ok(TableName { database: parts.pop(), name })
        }
        _ => Err(invalid()),
    }
}
