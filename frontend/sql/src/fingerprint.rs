//! Shapes of statements: texts without literals, so that statements that differ in them only are counted together.
//!
//! ```text
//!   select * from T where id = 17 and x in (1, 2)   ->   SELECT * FROM t WHERE id = ? AND x IN (?)
//!   INSERT INTO t VALUES (1, 'a'), (2, 'b')         ->   INSERT INTO t VALUES (?)
//! ```
//!
//! A text is scanned without a parser, so that one with errors has a shape too, and so has one that was cut: a list or
//! a row that the end of the text has cut counts as a whole one. Parameters (`$1`) are literals.
//!
//! Invariant: no literal is in a shape.

use super::split::{is_name_byte, skip, skip_comment, skip_line};

/// Text in place of a literal.
const LITERAL: &str = "?";
/// Offset basis and prime of the 64-bit FNV-1a hash.
const FNV: (u64, u64) = (0xcbf2_9ce4_8422_2325, 0x0000_0100_0000_01b3);

/// Words that are written in upper case; the others are names.
const KEYWORDS: &[&str] = &[
    "ALL",
    "ALTER",
    "ANALYZE",
    "AND",
    "ANY",
    "AS",
    "ASC",
    "BETWEEN",
    "BY",
    "CASE",
    "CAST",
    "COPY",
    "CREATE",
    "CROSS",
    "DECLARE",
    "DELETE",
    "DESC",
    "DISTINCT",
    "DROP",
    "ELSE",
    "END",
    "EXCEPT",
    "EXISTS",
    "EXPLAIN",
    "FETCH",
    "FILTER",
    "FOR",
    "FROM",
    "FULL",
    "GROUP",
    "HAVING",
    "ILIKE",
    "IN",
    "INNER",
    "INSERT",
    "INTERSECT",
    "INTERVAL",
    "INTO",
    "IS",
    "JOIN",
    "LATERAL",
    "LEFT",
    "LIKE",
    "LIMIT",
    "NATURAL",
    "NOT",
    "NULL",
    "NULLS",
    "OFFSET",
    "ON",
    "OR",
    "ORDER",
    "OUTER",
    "OVER",
    "PARTITION",
    "RECURSIVE",
    "RETURNING",
    "RIGHT",
    "ROWS",
    "SELECT",
    "SIMILAR",
    "SOME",
    "TABLE",
    "THEN",
    "UNION",
    "UPDATE",
    "USING",
    "VALUES",
    "WHEN",
    "WHERE",
    "WITH",
    "WITHIN",
];

/// The hash of a statement's shape, and the shape.
pub fn fingerprint(text: &str) -> (u64, String) {
    let shape = joined(&without_lists(tokens(text)));
    let (basis, prime) = FNV;
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(prime);
    (shape.bytes().fold(basis, mix), shape)
}

/// The lexical units of a text, with literals replaced.
fn tokens(text: &str) -> Vec<String> {
    let bytes = text.as_bytes();
    let mut tokens: Vec<String> = Vec::new();
    let mut position = 0;
    while position < bytes.len() {
        let start = position;
        let byte = bytes[start];
        let next = bytes.get(start + 1).copied();
        match byte {
            _ if byte.is_ascii_whitespace() => position += 1,
            b'-' if next == Some(b'-') => position = skip_line(bytes, start),
            b'/' if next == Some(b'*') => position = skip_comment(bytes, start),
            b'\'' => {
                position = skip(bytes, start);
                tokens.push(LITERAL.to_owned());
            }
            b'"' | b'`' => {
                position = skip(bytes, start).min(bytes.len());
                tokens.push(text[start..position].to_owned());
            }
            b'$' => {
                let length = bytes[start + 1..].iter().take_while(|byte| byte.is_ascii_digit());
                let parameter_end = start + 1 + length.count();
                let quoted_end = skip(bytes, start);
                position = parameter_end.max(quoted_end);
                let is_literal = position > start + 1;
                tokens.push(if is_literal { LITERAL } else { "$" }.to_owned());
            }
            b'0'..=b'9' => {
                position = number_end(bytes, start);
                push_number(&mut tokens);
            }
            b'.' if next.is_some_and(|byte| byte.is_ascii_digit()) => {
                position = number_end(bytes, start);
                push_number(&mut tokens);
            }
            _ if is_name_byte(byte) => {
                let length = bytes[start..].iter().take_while(|byte| is_name_byte(**byte)).count();
                position += length;
                // E'..', N'..', B'..' and X'..'.
                if length == 1 && bytes.get(position) == Some(&b'\'') {
                    position = skip(bytes, position);
                    tokens.push(LITERAL.to_owned());
                } else {
                    push_word(&mut tokens, &text[start..position]);
                }
            }
            _ => {
                position += operator_length(&bytes[start..]);
                tokens.push(text[start..position].to_owned());
            }
        }
    }
    tokens
}

/// End of a number that begins here.
fn number_end(bytes: &[u8], start: usize) -> usize {
    let mut end = start;
    while let Some(byte) = bytes.get(end) {
        let is_exponent_sign = matches!(byte, b'+' | b'-')
            && end > start
            && matches!(bytes[end - 1], b'e' | b'E')
            && bytes.get(end + 1).is_some_and(u8::is_ascii_digit);
        if !(is_name_byte(*byte) || *byte == b'.' || is_exponent_sign) {
            break;
        }
        end += 1;
    }
    end
}

/// Adds a number, with its sign if it has one: a sign after an operand is an operator.
fn push_number(tokens: &mut Vec<String>) {
    if let [head @ .., sign] = tokens.as_slice()
        && matches!(sign.as_str(), "-" | "+")
        && !head.last().is_some_and(|token| is_operand_end(token))
    {
        tokens.pop();
    }
    tokens.push(LITERAL.to_owned());
}

/// Returns true if an operand may end with a token.
fn is_operand_end(token: &str) -> bool {
    let is_name =
        token.starts_with(|c: char| c == '"' || c == '`' || c == '_' || c.is_alphabetic());
    matches!(token, LITERAL | ")" | "]") || (is_name && !is_keyword(token))
}

/// Adds a word: a keyword, a name, or a literal that is a word.
fn push_word(tokens: &mut Vec<String>, word: &str) {
    let upper = word.to_ascii_uppercase();
    let follows_test =
        tokens.last().is_some_and(|token| matches!(token.as_str(), "IS" | "NOT" | "NULLS"));
    if matches!(upper.as_str(), "NULL" | "TRUE" | "FALSE") && !follows_test {
        tokens.push(LITERAL.to_owned());
    } else if is_keyword(&upper) {
        tokens.push(upper);
    } else {
        tokens.push(word.to_lowercase());
    }
}

fn is_keyword(word: &str) -> bool {
    KEYWORDS.binary_search(&word).is_ok()
}

/// Length of the operator or other mark that some bytes begin with.
fn operator_length(bytes: &[u8]) -> usize {
    const LONG: [&[u8]; 17] = [
        b"->>", b"!~*", b"#>>", b"->", b"~*", b"!~", b"#>", b"::", b"<=", b">=", b"<>", b"!=",
        b"||", b"@@", b"@>", b"<@", b"&&",
    ];
    let long = LONG.iter().find(|operator| bytes.starts_with(operator));
    long.map_or(1, |operator| operator.len())
}

/// Tokens in which a list of literals is one literal, and rows alike that follow each other are one row.
fn without_lists(tokens: Vec<String>) -> Vec<String> {
    let mut output: Vec<String> = Vec::with_capacity(tokens.len());
    // Positions of the parentheses that are open.
    let mut opens = Vec::new();
    for token in tokens {
        if token == "(" {
            opens.push(output.len());
        }
        let is_end = token == ")";
        output.push(token);
        if is_end && let Some(open) = opens.pop() {
            let end = output.len() - 1;
            if is_list(&output[open + 1..end]) {
                output.truncate(open + 1);
                output.extend([LITERAL.to_owned(), ")".to_owned()]);
            }
            let (head, group) = output.split_at(open);
            if let [rows @ .., comma] = head
                && comma == ","
                && rows.ends_with(group)
            {
                output.truncate(open - 1);
            }
        }
    }
    // The end of the text may have cut a row or a list.
    for open in opens {
        let is_row = matches!(&output[..open], [.., end, comma] if end == ")" && comma == ",");
        if is_row {
            output.truncate(open - 1);
            break;
        }
        if is_list(&output[open + 1..]) {
            output.truncate(open + 1);
            output.extend([LITERAL.to_owned(), ")".to_owned()]);
            break;
        }
    }
    while output.last().is_some_and(|token| matches!(token.as_str(), "," | ";")) {
        output.pop();
    }
    output
}

/// Returns true for literals with commas between, and maybe after them.
fn is_list(tokens: &[String]) -> bool {
    let is_expected = |(position, token): (usize, &String)| {
        token == if position % 2 == 0 { LITERAL } else { "," }
    };
    !tokens.is_empty() && tokens.iter().enumerate().all(is_expected)
}

/// Tokens as a text, with blanks where people write them.
fn joined(tokens: &[String]) -> String {
    let mut text = String::new();
    let mut previous = "(";
    for token in tokens {
        let is_call = token == "(" && is_operand_end(previous) && previous != LITERAL;
        let is_close = matches!(token.as_str(), ")" | "]" | "," | "." | ";" | "::")
            || matches!(previous, "(" | "[" | "." | "::");
        if !is_call && !is_close {
            text.push(' ');
        }
        text.push_str(token);
        previous = token;
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shape(text: &str) -> String {
        fingerprint(text).1
    }

    #[test]
    fn the_list_of_words_is_sorted() {
        assert!(KEYWORDS.is_sorted());
    }

    #[test]
    fn hashes_are_those_of_the_algorithm() {
        assert_eq!(fingerprint("").0, 0xcbf2_9ce4_8422_2325);
        assert_eq!(fingerprint("a").0, 0xaf63_dc4c_8601_ec8c);
    }

    #[test]
    fn literals_are_replaced_and_nothing_else() {
        for (text, expected) in [
            ("select * from T where id = 17", "SELECT * FROM t WHERE id = ?"),
            ("SELECT 'it''s', E'a\\'b', $1, $tag$x$tag$, X'00'", "SELECT ?, ?, ?, ?, ?"),
            ("SELECT -1.5e-3, a-1, a - -1, (-2)", "SELECT ?, a - ?, a - ?, (?)"),
            ("SELECT t1.a2, \"T 1\".b FROM t1", "SELECT t1.a2, \"T 1\".b FROM t1"),
            ("SELECT count( * ) FROM t -- all\nLIMIT 10;", "SELECT count(*) FROM t LIMIT ?"),
            ("SELECT a /* b /* c */ */ FROM t", "SELECT a FROM t"),
            ("WHERE a IS NOT NULL AND b = NULL", "WHERE a IS NOT NULL AND b = ?"),
            ("WHERE msg ~* 'x' AND t>=now()", "WHERE msg ~* ? AND t >= now()"),
            ("WHERE ts > '2026-01-01'::timestamp", "WHERE ts > ?::timestamp"),
            ("WHERE ts > now() - INTERVAL '1 hour'", "WHERE ts > now() - INTERVAL ?"),
            ("WHERE a[1] = 2", "WHERE a [?] = ?"),
        ] {
            assert_eq!(shape(text), expected, "{text}");
        }
    }

    #[test]
    fn lists_and_rows_of_any_length_are_alike() {
        for (text, expected) in [
            ("WHERE a IN (1, 2, 3)", "WHERE a IN (?)"),
            ("WHERE a IN ('x')", "WHERE a IN (?)"),
            ("WHERE (a, b) IN ((1, 2), (3, 4))", "WHERE (a, b) IN ((?))"),
            ("INSERT INTO t VALUES (1, 'a')", "INSERT INTO t VALUES (?)"),
            ("INSERT INTO t VALUES (1, 'a'), (2, NULL), (-3, 'c')", "INSERT INTO t VALUES (?)"),
            ("INSERT INTO t VALUES (1, now()), (2, now())", "INSERT INTO t VALUES (?, now())"),
            // Cut by the end of the text.
            ("INSERT INTO t VALUES (1, 'a'), (2, 'b", "INSERT INTO t VALUES (?)"),
            ("INSERT INTO t VALUES (1, 'a'), (2,", "INSERT INTO t VALUES (?)"),
            ("INSERT INTO t VALUES (1, 'a'), (", "INSERT INTO t VALUES (?)"),
            ("INSERT INTO t VALUES (1, 'a'),", "INSERT INTO t VALUES (?)"),
            ("INSERT INTO t VALUES (1, now()), (2, now(", "INSERT INTO t VALUES (?, now())"),
            ("WHERE a IN (1, 2, 3", "WHERE a IN (?)"),
        ] {
            assert_eq!(shape(text), expected, "{text}");
        }
    }

    #[test]
    fn statements_of_another_shape_have_another_fingerprint() {
        let texts = ["SELECT a FROM t", "SELECT b FROM t", "SELECT a FROM t WHERE a = 1", "a"];
        let hashes: std::collections::BTreeSet<u64> =
            texts.iter().map(|text| fingerprint(text).0).collect();
        assert_eq!(hashes.len(), texts.len());
        assert_eq!(fingerprint("select A from T"), fingerprint("SELECT  a\nFROM t;"));
    }

    proptest! {
        #[test]
        fn any_text_has_a_shape(text in "[-a-zA-Z0-9 '$().,;*/ä\\\\]{0,60}") {
            let (hash, shape) = fingerprint(&text);
            prop_assert_eq!(fingerprint(&text).0, hash);
            prop_assert!(!shape.contains('\''), "{}", shape);
        }

        #[test]
        fn literals_do_not_matter(number in any::<i32>(), text in "[a-z0-9 ;()-]{0,20}", more in any::<u8>()) {
            let sql = format!("SELECT * FROM t WHERE a = {number} AND b LIKE '{text}' OR c IN ({more}, 'x')");
            prop_assert_eq!(shape(&sql), "SELECT * FROM t WHERE a = ? AND b LIKE ? OR c IN (?)");
        }
    }
}
