//! Bounds on the shape of a statement, checked on its tokens before anything is parsed.
//!
//! Trees of expressions and set operations are walked and dropped recursively, and some of the planner's steps take
//! time that grows with the square of a tree's depth.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan};

use crate::error::{PROGRAM_LIMIT_EXCEEDED, STATEMENT_TOO_COMPLEX, SqlError};

/// Maximum bytes of a statement that is planned. The literals of an INSERT are scanned in place and have no such bound.
const TEXT_BYTES_MAX: usize = 8 << 20;
/// Maximum tokens of a statement; each takes about a hundred bytes, blanks too.
const TOKENS_MAX: usize = 3_000_000;
/// Maximum number of AND and OR between two commas. They become a tree whose depth is their number.
const LINKS_MAX: usize = 1024;
/// Maximum number of UNION, INTERSECT and EXCEPT in one pair of parentheses, likewise: each level is a query, and every
/// step of planning takes a large stack frame for it.
const SET_OPERATIONS_MAX: usize = 256;
/// Maximum number of operators that bind more tightly, likewise. The planner names each level by the text of all levels
/// below it.
const OPERATORS_MAX: usize = 256;
/// Maximum dimensions of an array's type, as in PostgreSQL.
const DIMENSIONS_MAX: usize = 6;
/// Maximum depth of types inside of types.
const TYPES_MAX: usize = 32;

/// Operators counted between two commas, inside of one pair of parentheses.
#[derive(Clone, Copy, Default)]
struct Chain {
    /// AND and OR.
    links: usize,
    /// UNION, INTERSECT and EXCEPT; commas do not end them.
    set_operations: usize,
    /// Operators that bind more tightly, since the last AND or OR: these make a tree of their own.
    operators: usize,
}

/// A bound that a statement exceeds, with the location.
pub(super) struct Excess {
    pub(super) error: Box<SqlError>,
    pub(super) location: Location,
}

/// Checks how many tokens a text may have before it is tokenized: at most as many as it has words and other characters,
/// including those in quotation marks.
///
/// # Errors
/// 54000 when there are too many.
pub(super) fn check_text(text: &str) -> Result<(), SqlError> {
    if text.len() > TEXT_BYTES_MAX {
        let len = text.len();
        let message = format!(
            "a statement of {len} bytes is too long to be planned; the maximum is {TEXT_BYTES_MAX}"
        );
        return Err(SqlError::new(PROGRAM_LIMIT_EXCEEDED, message));
    }
    let of_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii();
    let is_many = || {
        let (mut count, mut in_word) = (0, false);
        for byte in text.bytes() {
            let is_word_byte = of_word(byte);
            count += usize::from(!(is_word_byte && in_word));
            in_word = is_word_byte;
        }
        count > TOKENS_MAX
    };
    if text.len() > TOKENS_MAX && is_many() {
        let message =
            format!("a statement of more than {TOKENS_MAX} tokens is too long to be planned");
        return Err(SqlError::new(PROGRAM_LIMIT_EXCEEDED, message));
    }
    Ok(())
}

/// Checks a statement's tokens.
///
/// # Errors
/// The first bound that is exceeded: 54001, or 54000 for the dimensions of a type.
pub(super) fn check(tokens: &[TokenWithSpan]) -> Result<(), Excess> {
    // One chain for each open parenthesis.
    let mut outer = Vec::new();
    let mut chain = Chain::default();
    let (mut dimensions, mut types) = (0, 0);
    let mut previous = &Token::EOF;
    for token in tokens.iter().filter(|token| !matches!(token.token, Token::Whitespace(_))) {
        let closes_empty = token.token == Token::RBracket && *previous == Token::LBracket;
        match &token.token {
            Token::LParen | Token::LBracket => outer.push(std::mem::take(&mut chain)),
            Token::RParen | Token::RBracket => chain = outer.pop().unwrap_or_default(),
            Token::Comma => {
                chain = Chain { set_operations: chain.set_operations, ..Chain::default() };
            }
            Token::Word(word) => match word.keyword {
                // Each part between CASE and END is an expression of its own.
                Keyword::CASE => outer.push(std::mem::take(&mut chain)),
                Keyword::WHEN | Keyword::THEN | Keyword::ELSE => chain = Chain::default(),
                Keyword::END => chain = outer.pop().unwrap_or_default(),
                keyword => chain = chain.after(keyword),
            },
            Token::Number(..)
            | Token::SingleQuotedString(_)
            | Token::Period
            | Token::Placeholder(_)
            | Token::EOF => {}
            _ => chain.operators += 1,
        }
        match &token.token {
            Token::RBracket if closes_empty => dimensions += 1,
            Token::LBracket => {}
            Token::Lt if is_array(previous) => types += 1,
            _ => dimensions = 0,
        }
        let error = if chain.links > LINKS_MAX {
            joined(LINKS_MAX, "AND or OR")
        } else if chain.set_operations > SET_OPERATIONS_MAX {
            SqlError::new(
                STATEMENT_TOO_COMPLEX,
                format!("a query has more than {SET_OPERATIONS_MAX} set operations"),
            )
        } else if chain.operators > OPERATORS_MAX {
            joined(OPERATORS_MAX, "operators")
        } else if dimensions > DIMENSIONS_MAX {
            SqlError::new(
                PROGRAM_LIMIT_EXCEEDED,
                format!(
                    "number of array dimensions exceeds the maximum allowed ({DIMENSIONS_MAX})"
                ),
            )
        } else if types > TYPES_MAX {
            SqlError::new(STATEMENT_TOO_COMPLEX, "types are nested too deeply")
        } else {
            previous = &token.token;
            continue;
        };
        return Err(Excess { error: Box::new(error), location: token.span.start });
    }
    Ok(())
}

impl Chain {
    /// The chain after a word.
    fn after(self, keyword: Keyword) -> Self {
        match keyword {
            Keyword::AND | Keyword::OR => Self { links: self.links + 1, operators: 0, ..self },
            Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT => {
                Self { set_operations: self.set_operations + 1, ..Self::default() }
            }
            Keyword::NOT
            | Keyword::IS
            | Keyword::COLLATE
            | Keyword::AT
            | Keyword::LIKE
            | Keyword::ILIKE => Self { operators: self.operators + 1, ..self },
            _ => self,
        }
    }
}

fn is_array(token: &Token) -> bool {
    matches!(token, Token::Word(word) if word.keyword == Keyword::ARRAY)
}

fn joined(most: usize, kind: &str) -> SqlError {
    SqlError::new(
        STATEMENT_TOO_COMPLEX,
        format!("the statement joins more than {most} expressions by {kind}"),
    )
    .with_hint("IN (...) takes any number of values")
}

#[cfg(test)]
mod tests {
    use super::check_text;

    #[test]
    fn texts_of_too_many_bytes_or_tokens_are_refused_before_they_are_read() {
        let state = |text: String| check_text(&text).err().map(|error| error.sqlstate);
        assert_eq!(state(format!("SELECT {}1", " ".repeat(5_000_000))), Some("54000".to_owned()));
        assert_eq!(state("(".repeat(3_500_000)), Some("54000".to_owned()));
        assert_eq!(state("x".repeat(9 << 20)), Some("54000".to_owned()));
        assert_eq!(state(format!("SELECT '{}'", "word ".repeat(1 << 20))), None);
        assert_eq!(state(format!("SELECT {}1", " ".repeat(1_000_000))), None);
    }
}
