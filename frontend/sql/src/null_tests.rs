//! PostgreSQL's `x ISNULL`, which sqlparser takes for an alias, as `x IS NULL`.
//!
//! PostgreSQL takes the word for a name only behind AS, and where an operand cannot have ended. Behind an operand it is
//! the test, unless a parenthesis makes it the call of a function.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// Writes each test of a statement's tokens out. The new tokens have the place of the word.
pub(super) fn written_out(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    if !tokens.iter().any(is_test) {
        return tokens;
    }
    let mut written = Vec::with_capacity(tokens.len() + 1);
    let mut is_behind_operand = false;
    for (index, token) in tokens.iter().enumerate() {
        let mut rest = tokens[index + 1..].iter().filter(|token| is_significant(token));
        if is_behind_operand
            && is_test(token)
            && rest.next().is_none_or(|next| next.token != Token::LParen)
        {
            for word in ["IS", "NULL"] {
                written.push(TokenWithSpan::new(Token::make_keyword(word), token.span));
            }
            continue;
        }
        if is_significant(token) {
            is_behind_operand = ends_operand(&token.token);
        }
        written.push(token.clone());
    }
    written
}

fn is_test(token: &TokenWithSpan) -> bool {
    matches!(&token.token, Token::Word(word)
        if word.quote_style.is_none() && word.value.eq_ignore_ascii_case("isnull"))
}

fn is_significant(token: &TokenWithSpan) -> bool {
    !matches!(token.token, Token::Whitespace(_))
}

/// Returns true if an operand may end with a token.
fn ends_operand(token: &Token) -> bool {
    match token {
        Token::Word(word) => matches!(
            word.keyword,
            Keyword::NoKeyword | Keyword::NULL | Keyword::TRUE | Keyword::FALSE | Keyword::END
        ),
        Token::RParen | Token::RBracket | Token::Number(..) | Token::SingleQuotedString(_) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use crate::{Statement, parse};

    fn parsed(sql: &str) -> String {
        let Some(Statement::Query(query)) = parse(sql).unwrap().pop() else { panic!("{sql}") };
        query.statement.to_string()
    }

    #[test]
    fn behind_an_operand_the_word_is_a_test() {
        for (sql, expected) in [
            ("SELECT v ISNULL FROM t", "SELECT v IS NULL FROM t"),
            ("SELECT (v + 1) isnull, 'x' ISNULL", "SELECT (v + 1) IS NULL, 'x' IS NULL"),
            (
                "SELECT k FROM t WHERE \"V\" isnull AND NULL ISNULL",
                "SELECT k FROM t WHERE \"V\" IS NULL AND NULL IS NULL",
            ),
        ] {
            assert_eq!(parsed(sql), expected);
        }
    }

    #[test]
    fn names_and_calls_stay() {
        for (sql, expected) in [
            ("SELECT v AS isnull FROM t", "SELECT v AS isnull FROM t"),
            ("SELECT isnull, t.isnull FROM t", "SELECT isnull, t.isnull FROM t"),
            ("SELECT k FROM t WHERE isnull(v)", "SELECT k FROM t WHERE ((v) IS NULL)"),
        ] {
            assert_eq!(parsed(sql), expected);
        }
    }
}
