//! The query `TABLE t`, which is short for `SELECT * FROM t`.
//!
//! sqlparser forgets how the name was quoted, and takes words behind it with it. So the words are replaced before it
//! reads them, wherever a query may begin: at the start of a statement, behind a parenthesis, a set operation, the WITH
//! clause, the FOR of a cursor, and the AS of CREATE. A column or an alias called `table` is none of these.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// Words by which a statement begins that is a query or has one.
const FIRST: [Keyword; 10] = [
    Keyword::SELECT,
    Keyword::WITH,
    Keyword::VALUES,
    Keyword::TABLE,
    Keyword::EXPLAIN,
    Keyword::COPY,
    Keyword::DECLARE,
    Keyword::DELETE,
    Keyword::UPDATE,
    Keyword::CREATE,
];
/// Words that may follow the name of the table.
const BEHIND: [Keyword; 11] = [
    Keyword::ORDER,
    Keyword::LIMIT,
    Keyword::OFFSET,
    Keyword::FETCH,
    Keyword::FOR,
    Keyword::UNION,
    Keyword::INTERSECT,
    Keyword::EXCEPT,
    Keyword::ON,
    Keyword::RETURNING,
    Keyword::WITH,
];

/// Writes each `TABLE t` of a statement's tokens out. The new tokens have the place of the word TABLE.
pub(super) fn written_out(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is_table = |token: &TokenWithSpan| keyword(&token.token) == Keyword::TABLE;
    let mut significant = tokens.iter().filter(|token| is_significant(token));
    let first = significant.next().map(|token| &token.token);
    let has_query =
        first.is_some_and(|first| *first == Token::LParen || FIRST.contains(&keyword(first)));
    if !has_query || !tokens.iter().any(is_table) {
        return tokens;
    }
    let is_cursor = first.map(keyword) == Some(Keyword::DECLARE);
    let mut written = Vec::with_capacity(tokens.len() + 2);
    // Before its AS, a CREATE has columns and clauses.
    let mut is_definition = first.map(keyword) == Some(Keyword::CREATE);
    let (mut may_begin, mut is_behind_set, mut has_with) = (!is_definition, false, false);
    for (index, token) in tokens.iter().enumerate() {
        if !is_significant(token) {
            written.push(token.clone());
            continue;
        }
        if may_begin && is_table(token) && names_a_table(&tokens[index + 1..]) {
            for word in [Token::make_keyword("SELECT"), Token::Mul, Token::make_keyword("FROM")] {
                written.push(TokenWithSpan { token: word, span: token.span });
            }
            (may_begin, is_behind_set) = (false, false);
            continue;
        }
        written.push(token.clone());
        let word = keyword(&token.token);
        has_with |= word == Keyword::WITH;
        let is_set = matches!(word, Keyword::UNION | Keyword::INTERSECT | Keyword::EXCEPT);
        // UNION ALL, UNION DISTINCT.
        let is_quantifier = is_behind_set && matches!(word, Keyword::ALL | Keyword::DISTINCT);
        let is_begin = is_definition && word == Keyword::AS;
        is_definition &= !is_begin;
        may_begin = match token.token {
            _ if is_definition => false,
            Token::LParen => true,
            Token::RParen => has_with,
            _ => is_begin || is_set || is_quantifier || (is_cursor && word == Keyword::FOR),
        };
        is_behind_set = is_set;
    }
    written
}

/// Returns true if a name begins the tokens, and a query may end or go on behind it.
fn names_a_table(tokens: &[TokenWithSpan]) -> bool {
    let mut rest = tokens.iter().filter(|token| is_significant(token)).map(|token| &token.token);
    loop {
        if !matches!(rest.next(), Some(Token::Word(_))) {
            return false;
        }
        match rest.next() {
            Some(Token::Period) => {}
            None | Some(Token::RParen | Token::SemiColon) => return true,
            Some(token) => return BEHIND.contains(&keyword(token)),
        }
    }
}

fn is_significant(token: &TokenWithSpan) -> bool {
    !matches!(token.token, Token::Whitespace(_))
}

/// The keyword that a token is.
fn keyword(token: &Token) -> Keyword {
    match token {
        Token::Word(word) if word.quote_style.is_none() => word.keyword,
        _ => Keyword::NoKeyword,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    use super::written_out;

    fn written(sql: &str) -> String {
        let tokens = Tokenizer::new(&PostgreSqlDialect {}, sql).tokenize_with_location().unwrap();
        written_out(tokens).iter().map(|token| token.token.to_string()).collect()
    }

    #[test]
    fn a_table_is_a_query_where_one_may_begin() {
        for (sql, expected) in [
            ("TABLE t", "SELECT*FROM t"),
            ("table other.\"T t\" ORDER BY 1", "SELECT*FROM other.\"T t\" ORDER BY 1"),
            (
                "(TABLE a) UNION ALL TABLE b LIMIT 1",
                "(SELECT*FROM a) UNION ALL SELECT*FROM b LIMIT 1",
            ),
            ("TABLE a EXCEPT TABLE b", "SELECT*FROM a EXCEPT SELECT*FROM b"),
            ("WITH a AS (TABLE t) TABLE a", "WITH a AS (SELECT*FROM t) SELECT*FROM a"),
            ("SELECT k IN (TABLE u) FROM t", "SELECT k IN (SELECT*FROM u) FROM t"),
            ("COPY (TABLE t) TO STDOUT", "COPY (SELECT*FROM t) TO STDOUT"),
            ("DECLARE c CURSOR FOR TABLE t", "DECLARE c CURSOR FOR SELECT*FROM t"),
            ("CREATE TABLE t (a) AS TABLE u", "CREATE TABLE t (a) AS SELECT*FROM u"),
            (
                "CREATE TABLE t AS (TABLE u UNION TABLE v) WITH NO DATA",
                "CREATE TABLE t AS (SELECT*FROM u UNION SELECT*FROM v) WITH NO DATA",
            ),
            ("CREATE TABLE t AS TABLE u WITH DATA", "CREATE TABLE t AS SELECT*FROM u WITH DATA"),
        ] {
            assert_eq!(written(sql), expected);
        }
        for sql in [
            "SELECT table FROM t WHERE (table = 1) AND (table IS NULL)",
            "SELECT count(table), f(1) table FROM t",
            "SELECT \"table\" FROM t WHERE (\"table\") > 1",
            "CREATE TABLE t (table INT)",
            "CREATE TABLE t AS SELECT a AS table, b FROM u",
            "TABLE t WHERE k = 1",
            "TABLE t AS u",
            "TABLE",
        ] {
            assert_eq!(written(sql), sql);
        }
    }
}
