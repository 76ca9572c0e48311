//! Parameters that a statement casts to object ids or JSON.
//!
//! To the planner an object id is an integer like any other, so a parameter `$1::oid[]` would be described as an array
//! of integers. A client that looks up unknown types by such a query (asyncpg) would look up that type first, by the
//! same query, without end. JSON is a text to the planner, and has another binary form. So the types of such parameters are read from the text, as if the client had declared them;
//! the types that it did declare stay.

use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use pgwire::api::Type;
use pgwire::messages::extendedquery::Parse;

/// Longest text that is inspected, in bytes.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// The types that are read from casts, with their arrays.
const TYPES: [(&str, Type, Type); 3] = [
    ("oid", Type::OID, Type::OID_ARRAY),
    ("json", Type::JSON, Type::JSON_ARRAY),
    ("jsonb", Type::JSONB, Type::JSONB_ARRAY),
];

/// Completes the types that a client declared for the parameters of a statement.
pub(crate) fn declare(message: &mut Parse) {
    for (position, parameter_type) in casts(&message.query) {
        if message.type_oids.len() <= position {
            // 0 leaves the choice to the server.
            message.type_oids.resize(position + 1, 0);
        }
        if message.type_oids[position] == 0 {
            message.type_oids[position] = parameter_type.oid();
        }
    }
}

/// The parameters that are cast to one of the types, by position.
fn casts(text: &str) -> Vec<(usize, Type)> {
    // Most texts mention none of the types and are not tokenized.
    let mentions = |name: &[u8]| {
        text.as_bytes().windows(name.len()).any(|bytes| bytes.eq_ignore_ascii_case(name))
    };
    if text.len() > TEXT_BYTES_MAX
        || !text.contains('$')
        || !(mentions(b"oid") || mentions(b"json"))
    {
        return Vec::new();
    }
    let Ok(tokens) = Tokenizer::new(&PostgreSqlDialect {}, text).tokenize() else {
        return Vec::new();
    };
    let tokens: Vec<Token> =
        tokens.into_iter().filter(|token| !matches!(token, Token::Whitespace(_))).collect();
    let token_at = |position: usize| tokens.get(position).unwrap_or(&Token::EOF);
    // A cast is `$1::type` or `CAST($1 AS type)`.
    (0..tokens.len())
        .filter_map(|position| {
            let Token::Placeholder(name) = token_at(position) else { return None };
            let parameter: u16 = name.strip_prefix('$')?.parse().ok()?;
            let cast = match token_at(position + 1) {
                Token::DoubleColon => true,
                next => is_word(next, "as"),
            };
            if !cast {
                return None;
            }
            // The type may have a schema, and brackets after it.
            let mut type_position = position + 2;
            if is_word(token_at(type_position), "pg_catalog")
                && *token_at(type_position + 1) == Token::Period
            {
                type_position += 2;
            }
            let (element, array_type) = TYPES.into_iter().find_map(|(name, element, array)| {
                is_word(token_at(type_position), name).then_some((element, array))
            })?;
            let array = *token_at(type_position + 1) == Token::LBracket
                && *token_at(type_position + 2) == Token::RBracket;
            let parameter_type = if array { array_type } else { element };
            Some((usize::from(parameter.checked_sub(1)?), parameter_type))
        })
        .collect()
}

fn is_word(token: &Token, word: &str) -> bool {
    matches!(token, Token::Word(found) if found.value.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn casts_of_parameters_to_object_numbers_are_found() {
        for (text, expected) in [
            ("SELECT 1 FROM pg_type t WHERE t.oid = any($1::oid[])", vec![(0, Type::OID_ARRAY)]),
            ("SELECT $2 :: OID, $1::int", vec![(1, Type::OID)]),
            ("SELECT CAST($1 AS pg_catalog.oid [ ])", vec![(0, Type::OID_ARRAY)]),
            ("SELECT '$1::oid', \"$1\"::oid, oid FROM t WHERE a = $1", vec![]),
            ("SELECT $1::oidvector", vec![]),
            ("SELECT $1::json, $2::JSONB", vec![(0, Type::JSON), (1, Type::JSONB)]),
            ("SELECT 'oid $1", vec![]),
        ] {
            assert_eq!(casts(text), expected, "{text}");
        }
    }

    #[test]
    fn what_a_client_declared_stays() {
        let query = "SELECT $1::oid, $2::oid[], $3::oid".to_owned();
        let mut message = Parse::new(None, query, vec![20]);
        declare(&mut message);
        assert_eq!(message.type_oids, [20, Type::OID_ARRAY.oid(), Type::OID.oid()]);
    }
}
