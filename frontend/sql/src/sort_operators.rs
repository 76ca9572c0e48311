//! `ORDER BY v USING <` and `USING >`, which sqlparser does not know, as ASC and DESC.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};

/// Replaces the operators behind USING. In another place than a sort key such tokens are a syntax error, and stay one.
pub(super) fn named(tokens: &mut [TokenWithSpan]) {
    let mut using = None;
    let mut operators = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        match &token.token {
            Token::Whitespace(_) => {}
            Token::Word(word) if word.quote_style.is_none() && word.keyword == Keyword::USING => {
                using = Some(index);
            }
            operator => {
                let direction = match operator {
                    Token::Lt => Some("ASC"),
                    Token::Gt => Some("DESC"),
                    _ => None,
                };
                if let (Some(using), Some(direction)) = (using.take(), direction) {
                    operators.push((using, index, direction));
                }
            }
        }
    }
    for (using, operator, direction) in operators {
        tokens[using].token = Token::make_keyword(direction);
        tokens[operator].token = Token::Whitespace(Whitespace::Space);
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
    fn operators_are_directions() {
        assert_eq!(
            parsed("SELECT k FROM t ORDER BY k USING >, v + 1 using /* up */ < NULLS FIRST"),
            "SELECT k FROM t ORDER BY k DESC, v + 1 ASC NULLS FIRST"
        );
        assert_eq!(
            parsed("SELECT max(k) FROM a JOIN b USING (k) WHERE \"using\" < 3"),
            "SELECT max(k) FROM a JOIN b USING(k) WHERE \"using\" < 3"
        );
    }

    #[test]
    fn other_operators_are_refused() {
        for sql in ["SELECT k FROM t ORDER BY k USING <=", "SELECT k FROM a JOIN b USING < k"] {
            assert_eq!(parse(sql).unwrap_err().sqlstate, "42601", "{sql}");
        }
    }
}
