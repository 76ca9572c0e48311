//! Signs behind an operator: `a >=-1` and `j->-1`.
//!
//! As in PostgreSQL, an operator of several characters ends in `+` or `-` only if it has one of `~!@#%^&|?` and a
//! backtick. sqlparser takes all characters for one operator.

use datafusion::sql::sqlparser::tokenizer::{Location, Span, Token, TokenWithSpan};

/// Characters of operators that may end in a sign.
const FREE: &[char] = &['~', '!', '@', '#', '%', '^', '&', '|', '`', '?'];

/// Makes tokens of their own of signs behind operators.
pub(super) fn apart(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    if !tokens.iter().any(|token| signed(&token.token).is_some()) {
        return tokens;
    }
    let mut written = Vec::with_capacity(tokens.len() + 1);
    for token in tokens {
        let Some((operator, length, signs)) = signed(&token.token) else {
            written.push(token);
            continue;
        };
        let Location { line, column } = token.span.start;
        let mut start = Location { line, column: column + length };
        written.push(TokenWithSpan::new(operator, Span::new(token.span.start, start)));
        for sign in signs.chars() {
            let end = Location { line, column: start.column + 1 };
            let sign = if sign == '-' { Token::Minus } else { Token::Plus };
            written.push(TokenWithSpan::new(sign, Span::new(start, end)));
            start = end;
        }
    }
    written
}

/// The operator, its length and the signs behind it; `None` for other tokens.
fn signed(token: &Token) -> Option<(Token, u64, &str)> {
    let Token::CustomBinaryOperator(text) = token else { return None };
    if text.contains(FREE) {
        return None;
    }
    let stem = text.trim_end_matches(['+', '-']);
    let (operator, length) = match stem {
        "<>" => (Token::Neq, 2),
        "<=" => (Token::LtEq, 2),
        ">=" => (Token::GtEq, 2),
        "->" => (Token::Arrow, 2),
        "->>" => (Token::LongArrow, 3),
        _ => return None,
    };
    let signs = text.strip_prefix(stem)?;
    (!signs.is_empty()).then_some((operator, length, signs))
}

#[cfg(test)]
mod tests {
    use crate::{Statement, parse};

    fn parsed(sql: &str) -> String {
        let Some(Statement::Query(query)) = parse(sql).unwrap().pop() else { panic!("{sql}") };
        query.statement.to_string()
    }

    #[test]
    fn signs_belong_to_the_operand() {
        for (written, read) in [
            ("a<>-1", "a <> -1"),
            ("a>=-1 AND a<=+1", "a >= -1 AND a <= +1"),
            ("j->-1", "j -> -1"),
            ("j->>-1", "j ->> -1"),
        ] {
            assert_eq!(parsed(&format!("SELECT {written}")), format!("SELECT {read}"), "{written}");
        }
    }
}
