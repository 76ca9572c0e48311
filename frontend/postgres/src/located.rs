//! Positions of errors about names: the column, table or function that does not exist, in the client's text.
//!
//! The planner names what it does not find, and does not say where. So the name is looked up among the tokens of the
//! statement: for a column or a table where it is not an alias, for a table first behind the words that precede one, for a
//! function before a parenthesis. Of several places the first is taken; psql marks it with a caret.
//!
//! Invariants:
//! - an error that has a position keeps it, and without a matching token there is none;
//! - only an error costs anything, and at most [`TEXT_BYTES_MAX`] of a statement are read.

use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};
use partita_frontend::error::{
    AMBIGUOUS_COLUMN, SqlError, UNDEFINED_COLUMN, UNDEFINED_FUNCTION, UNDEFINED_TABLE,
};
use partita_frontend::sql::statement::Statement;

/// Longest part of a statement that is searched, in bytes.
const TEXT_BYTES_MAX: usize = 64 << 10;
/// Words that precede the name of a table.
const BEFORE_TABLES: &[&str] = &["from", "join", "into", "update", "only", "table"];

/// The name that an error is about.
struct Name {
    kind: Kind,
    qualifier: Option<String>,
    name: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Column,
    Table,
    Function,
}

/// The text of a statement in which names have positions; as in PostgreSQL, COPY and commands have none.
pub(crate) fn text_of(statement: &Statement) -> Option<&str> {
    match statement {
        Statement::CopyFrom(_) => None,
        statement => statement.text(),
    }
}

/// An error of a statement with its position in the client's text, which contains the statement's.
pub(crate) fn located(error: SqlError, text: &str, statement: Option<&str>) -> SqlError {
    if error.position.is_some() {
        return error;
    }
    let position = statement.and_then(|statement| {
        let name = name_of(&error)?;
        let start = text.find(statement)?;
        let offset = offset_of(&statement[..statement.floor_char_boundary(TEXT_BYTES_MAX)], &name)?;
        // Positions are in characters, from 1.
        Some(text[..start + offset].chars().count() + 1)
    });
    match position {
        Some(position) => error.with_position(position),
        None => error,
    }
}

/// The name in an error's message.
fn name_of(error: &SqlError) -> Option<Name> {
    let message = error.message.as_str();
    let (kind, path) = match error.sqlstate.as_str() {
        UNDEFINED_FUNCTION => {
            (Kind::Function, message.strip_prefix("function ")?.split_once('(')?.0)
        }
        UNDEFINED_TABLE => (Kind::Table, quoted(message.strip_prefix("relation ")?)?),
        UNDEFINED_COLUMN | AMBIGUOUS_COLUMN => {
            let rest = message.strip_prefix("column ")?;
            let rest = rest.strip_prefix("reference ").unwrap_or(rest);
            (Kind::Column, quoted(rest).or_else(|| rest.strip_suffix(" does not exist"))?)
        }
        _ => return None,
    };
    // A quoted column is one name, even with a dot.
    let is_path = kind == Kind::Table || !message.contains('"');
    let (qualifier, name) = match path.rsplit_once('.').filter(|_| is_path) {
        Some((qualifier, name)) => (qualifier.rsplit('.').next(), name),
        None => (None, path),
    };
    Some(Name { kind, qualifier: qualifier.map(str::to_owned), name: name.to_owned() })
}

/// The text between the quotes with which another one begins.
fn quoted(text: &str) -> Option<&str> {
    Some(text.strip_prefix('"')?.split_once('"')?.0)
}

/// The byte offset of a name in a statement, with its qualifiers.
fn offset_of(statement: &str, name: &Name) -> Option<usize> {
    let tokens = Tokenizer::new(&PostgreSqlDialect {}, statement).tokenize_with_location().ok()?;
    let tokens: Vec<TokenWithSpan> = tokens
        .into_iter()
        .filter(|token| !matches!(token.token, Token::Whitespace(_) | Token::EOF))
        .collect();
    let token_at = |position: usize| tokens.get(position).map_or(&Token::EOF, |token| &token.token);
    let previous = |position: usize, count: usize| match position.checked_sub(count) {
        Some(position) => token_at(position),
        None => &Token::EOF,
    };
    // Where a path begins whose last name is at a position.
    let start_of = |mut position: usize| {
        while *previous(position, 1) == Token::Period
            && matches!(previous(position, 2), Token::Word(_))
        {
            position -= 2;
        }
        position
    };
    let is_match = |position: &usize| {
        let position = *position;
        let is_qualified = name.qualifier.as_deref().is_none_or(|qualifier| {
            *previous(position, 1) == Token::Period && is_name(previous(position, 2), qualifier)
        });
        let next = token_at(position + 1);
        let is_call = *next == Token::LParen;
        let fits = match name.kind {
            Kind::Column => !is_call && *next != Token::Period,
            // The columns of an INSERT follow its table.
            Kind::Table => *next != Token::Period,
            Kind::Function => is_call,
        };
        is_name(token_at(position), &name.name)
            && is_qualified
            && fits
            && !is_word(previous(position, 1), "as")
    };
    let mut matches = (0..tokens.len()).filter(is_match).map(start_of);
    let first = matches.next()?;
    let is_of_table =
        |start: &usize| BEFORE_TABLES.iter().any(|word| is_word(previous(*start, 1), word));
    let start = match name.kind {
        Kind::Table if !is_of_table(&first) => matches.find(is_of_table).unwrap_or(first),
        Kind::Table | Kind::Column | Kind::Function => first,
    };
    byte_of(statement, tokens.get(start)?.span.start)
}

/// True if a token is a name as the planner has it: folded unless it is quoted.
fn is_name(token: &Token, name: &str) -> bool {
    match token {
        Token::Word(word) if word.quote_style.is_some() => word.value == name,
        Token::Word(word) => word.value.to_lowercase() == name,
        _ => false,
    }
}

fn is_word(token: &Token, expected: &str) -> bool {
    matches!(token, Token::Word(word)
        if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(expected))
}

/// The byte offset of a line and column, both from 1; columns are in characters.
fn byte_of(text: &str, location: Location) -> Option<usize> {
    let line = usize::try_from(location.line.checked_sub(1)?).ok()?;
    let column = usize::try_from(location.column.checked_sub(1)?).ok()?;
    let begin = match line.checked_sub(1) {
        Some(breaks) => text.match_indices('\n').nth(breaks)?.0 + 1,
        None => 0,
    };
    let (offset, _) = text[begin..].char_indices().nth(column)?;
    Some(begin + offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rest of a text from the position of an error.
    fn rest(error: SqlError, text: &str, statement: Option<&str>) -> Option<String> {
        let position = located(error, text, statement).position?;
        Some(text.chars().skip(position - 1).collect())
    }

    #[test]
    fn names_are_found_where_postgres_marks_them() {
        let column = |path: &str| SqlError::new("42703", format!("column {path} does not exist"));
        for (error, text, expected) in [
            (column("\"nope\""), "SELECT 1 AS nope,\n 'ä', nope FROM t", "nope FROM t"),
            (column("t.nope"), "SELECT u.nope, T . Nope FROM t, u", "T . Nope FROM t, u"),
            (column("\"No\""), "SELECT no, \"No\" FROM t", "\"No\" FROM t"),
            (column("\"nope\""), "SELECT nope(1), nope FROM t", "nope FROM t"),
            (
                SqlError::new("42703", "column \"z\" of relation \"t\" does not exist"),
                "INSERT INTO t (k, z) VALUES (1, 2)",
                "z) VALUES (1, 2)",
            ),
            (SqlError::undefined_table("nope"), "SELECT nope.a FROM nope", "nope"),
            (SqlError::undefined_table("d.nope"), "SELECT 1 FROM t, d.nope", "d.nope"),
            (
                SqlError::undefined_table("nope"),
                "INSERT INTO nope(a) VALUES (1)",
                "nope(a) VALUES (1)",
            ),
            (
                SqlError::new("42883", "function nope() does not exist"),
                "SELECT nope, pg_catalog.nope(1)",
                "pg_catalog.nope(1)",
            ),
        ] {
            assert_eq!(rest(error, text, Some(text)).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn positions_count_from_the_whole_text() {
        let error = || SqlError::new("42703", "column \"b\" does not exist");
        let text = "SELECT 'ö' AS b; SELECT b";
        assert_eq!(rest(error(), text, Some("SELECT b")).as_deref(), Some("b"));
        // Without a token, a statement or a name there is none, and a position stays.
        for (error, statement) in [
            (error(), Some("SELECT 'ö' AS b")),
            (error(), None),
            (SqlError::new("42601", "syntax error"), Some("SELECT b")),
        ] {
            assert_eq!(rest(error, text, statement), None, "{statement:?}");
        }
        let placed = located(error().with_position(3), text, Some("SELECT b"));
        assert_eq!(placed.position, Some(3));
    }
}
