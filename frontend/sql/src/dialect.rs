//! sqlparser's PostgreSQL dialect, with a bound on the parser's work.
//!
//! Every method answers as sqlparser's own dialect for PostgreSQL does, for which this dialect also passes
//! (`dialect()`). The grammar differs in these points:
//! - `f(expression => value)` is not parsed, because nothing here accepts it and each argument would be parsed twice
//!   for it. `f(name => value)` is parsed;
//! - the right operand of `a IS [NOT] DISTINCT FROM b` ends at operators that bind less tightly than IS; sqlparser
//!   takes AND and OR into `b`;
//! - `a BETWEEN SYMMETRIC b AND c` is parsed, as `a BETWEEN b AND c OR a BETWEEN c AND b`;
//! - texts in quotes that follow each other on several lines are one text;
//! - `trim(BOTH FROM a)`, `a IN ((SELECT ..), b)` and `substring(a SIMILAR b ESCAPE c)` are parsed.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, TrimWhereField, UnaryOperator};
use datafusion::sql::sqlparser::dialect::{Dialect, PostgreSqlDialect, Precedence};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;

use super::effort;
use super::rewritten::call;

/// sqlparser's dialect of PostgreSQL.
pub(super) static POSTGRES: PostgreSqlDialect = PostgreSqlDialect {};

/// The dialect that statements are parsed with.
#[derive(Debug)]
pub(super) struct Bounded;

/// Forwards methods without arguments to PostgreSQL's dialect.
macro_rules! as_postgres {
    ($($name:ident)*) => {
        $(
            fn $name(&self) -> bool {
                POSTGRES.$name()
            }
        )*
    };
}

impl Dialect for Bounded {
    fn dialect(&self) -> std::any::TypeId {
        POSTGRES.dialect()
    }

    fn identifier_quote_style(&self, identifier: &str) -> Option<char> {
        POSTGRES.identifier_quote_style(identifier)
    }

    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        POSTGRES.is_delimited_identifier_start(ch)
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        POSTGRES.is_identifier_start(ch)
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        POSTGRES.is_identifier_part(ch)
    }

    fn is_reserved_for_identifier(&self, keyword: Keyword) -> bool {
        POSTGRES.is_reserved_for_identifier(keyword)
    }

    fn is_custom_operator_part(&self, ch: char) -> bool {
        POSTGRES.is_custom_operator_part(ch)
    }

    fn parse_prefix(&self, parser: &mut Parser<'_>) -> Option<Result<Expr, ParserError>> {
        if let Some(place) = trim_without_what(parser) {
            return Some(trimmed(parser, place));
        }
        if let Some(part) = similar_part(parser) {
            return Some(part);
        }
        effort::prefix(parser)
    }

    fn parse_infix(
        &self,
        parser: &mut Parser<'_>,
        expression: &Expr,
        _: u8,
    ) -> Option<Result<Expr, ParserError>> {
        if let Some(negated) = symmetric(parser) {
            return Some(between_symmetric(
                parser,
                self.prec_value(Precedence::Between),
                expression,
                negated,
            ));
        }
        if let Some(listed) = list_of_subqueries(parser, expression) {
            return Some(listed);
        }
        let is_distinct = parser.parse_keywords(&[Keyword::IS, Keyword::DISTINCT, Keyword::FROM]);
        let is_not_distinct = !is_distinct
            && parser.parse_keywords(&[
                Keyword::IS,
                Keyword::NOT,
                Keyword::DISTINCT,
                Keyword::FROM,
            ]);
        if !is_distinct && !is_not_distinct {
            return None;
        }
        // Operators that bind less tightly than IS (NOT, AND, OR) end the second operand.
        let operand = parser.parse_subexpr(self.prec_value(Precedence::Is));
        Some(operand.map(|operand| {
            let (first, second) = (Box::new(expression.clone()), Box::new(operand));
            if is_distinct {
                Expr::IsDistinctFrom(first, second)
            } else {
                Expr::IsNotDistinctFrom(first, second)
            }
        }))
    }

    fn get_next_precedence(&self, parser: &Parser<'_>) -> Option<Result<u8, ParserError>> {
        effort::step();
        POSTGRES.get_next_precedence(parser)
    }

    fn prec_value(&self, precedence: Precedence) -> u8 {
        effort::step();
        POSTGRES.prec_value(precedence)
    }

    // sqlparser calls this at the start of every query.
    fn prec_unknown(&self) -> u8 {
        effort::step();
        POSTGRES.prec_unknown()
    }

    // sqlparser calls this at the end of every type.
    fn supports_array_typedef_with_brackets(&self) -> bool {
        effort::step();
        POSTGRES.supports_array_typedef_with_brackets()
    }

    fn supports_named_fn_args_with_expr_name(&self) -> bool {
        false
    }

    fn supports_string_literal_concatenation_with_newline(&self) -> bool {
        true
    }

    as_postgres! {
        supports_unicode_string_literal
        supports_filter_during_aggregation
        supports_group_by_expr
        allow_extract_custom
        allow_extract_single_quotes
        supports_create_index_with_clause
        supports_explain_with_utility_options
        supports_listen_notify
        supports_factorial_operator
        supports_bitwise_shift_operators
        supports_comment_on
        supports_load_extension
        supports_named_fn_args_with_colon_operator
        supports_empty_projections
        supports_nested_comments
        supports_string_escape_constant
        supports_numeric_literal_underscores
        supports_geometric_types
        supports_set_names
        supports_alter_column_type_using
        supports_notnull_operator
        supports_interval_options
        supports_insert_table_alias
        supports_create_table_like_parenthesized
        supports_select_wildcard_with_alias
        supports_comma_separated_trim
        supports_xml_expressions
        supports_comment_optimizer_hint
    }
}

/// Takes `trim([BOTH | LEADING | TRAILING] FROM` if it comes next, and returns where to trim.
fn trim_without_what(parser: &mut Parser<'_>) -> Option<Option<TrimWhereField>> {
    let keyword = |parser: &Parser<'_>, nth: usize| match parser.peek_nth_token_ref(nth).token {
        Token::Word(ref word) if word.quote_style.is_none() => word.keyword,
        _ => Keyword::NoKeyword,
    };
    if keyword(parser, 0) != Keyword::TRIM || parser.peek_nth_token_ref(1).token != Token::LParen {
        return None;
    }
    let place = match keyword(parser, 2) {
        Keyword::BOTH => Some(TrimWhereField::Both),
        Keyword::LEADING => Some(TrimWhereField::Leading),
        Keyword::TRAILING => Some(TrimWhereField::Trailing),
        _ => None,
    };
    let length = if place.is_some() { 4 } else { 3 };
    if keyword(parser, length - 1) != Keyword::FROM {
        return None;
    }
    for _ in 0..length {
        parser.advance_token();
    }
    Some(place)
}

/// Maximum number of tokens of `substring(.. SIMILAR ..)` that are searched for SIMILAR; tokens are searched again for
/// each nested call.
const SIMILAR_TOKENS_MAX: usize = 200;

/// Parses `substring(a SIMILAR b ESCAPE c)`, if it comes next, as a call of `similar_part`.
fn similar_part(parser: &mut Parser<'_>) -> Option<Result<Expr, ParserError>> {
    let is = |nth: usize, keyword: Keyword| {
        matches!(&parser.peek_nth_token_ref(nth).token, Token::Word(word)
            if word.keyword == keyword && word.quote_style.is_none())
    };
    let begins = is(0, Keyword::SUBSTRING) && parser.peek_nth_token_ref(1).token == Token::LParen;
    // SIMILAR may stand anywhere in the argument: it is searched for first, so that nothing is parsed twice.
    let is_similar = begins && {
        let mut depth = 0_usize;
        let mut nth = 1;
        loop {
            if nth > SIMILAR_TOKENS_MAX {
                break false;
            }
            match &parser.peek_nth_token_ref(nth).token {
                Token::LParen => depth += 1,
                Token::RParen if depth == 1 => break false,
                Token::RParen => depth -= 1,
                Token::Word(word) if depth == 1 && word.keyword == Keyword::SIMILAR => {
                    let next = &parser.peek_nth_token_ref(nth + 1).token;
                    break !matches!(next, Token::Word(word) if word.keyword == Keyword::TO);
                }
                Token::Comma if depth == 1 => break false,
                Token::EOF | Token::SemiColon => break false,
                _ => {}
            }
            nth += 1;
        }
    };
    if !is_similar {
        return None;
    }
    parser.advance_token();
    parser.advance_token();
    let read = |parser: &mut Parser<'_>| -> Result<Expr, ParserError> {
        // SIMILAR binds as LIKE does.
        let text = parser.parse_subexpr(POSTGRES.prec_value(Precedence::Like))?;
        parser.expect_keyword_is(Keyword::SIMILAR)?;
        let pattern = parser.parse_expr()?;
        parser.expect_keyword_is(Keyword::ESCAPE)?;
        let escape = parser.parse_expr()?;
        parser.expect_token(&Token::RParen)?;
        Ok(call("similar_part", vec![text, pattern, escape]))
    };
    Some(read(parser))
}

/// Parses the rest of a call after `trim(.. FROM`.
fn trimmed(
    parser: &mut Parser<'_>,
    trim_where: Option<TrimWhereField>,
) -> Result<Expr, ParserError> {
    let expr = Box::new(parser.parse_expr()?);
    parser.expect_token(&Token::RParen)?;
    Ok(Expr::Trim { expr, trim_where, trim_what: None, trim_characters: None })
}

/// `[NOT] IN ((SELECT ..), ..)`: a list whose first element is a subquery. A single subquery in parentheses is left to
/// sqlparser.
fn list_of_subqueries(
    parser: &mut Parser<'_>,
    expression: &Expr,
) -> Option<Result<Expr, ParserError>> {
    // Only tokens are compared, so that other expressions are not parsed twice.
    let is = |nth: usize, keyword: Keyword| matches!(&parser.peek_nth_token_ref(nth).token, Token::Word(word) if word.keyword == keyword);
    let negated = is(0, Keyword::NOT);
    let offset = usize::from(negated);
    let opens = |nth: usize| parser.peek_nth_token_ref(nth).token == Token::LParen;
    let begins = is(offset, Keyword::IN)
        && opens(offset + 1)
        && opens(offset + 2)
        && (is(offset + 3, Keyword::SELECT) || is(offset + 3, Keyword::WITH));
    if !begins {
        return None;
    }
    // Without a comma behind the subquery the parser rewinds, and reads it in its own way.
    let list = parser.maybe_parse(|parser| {
        for _ in 0..offset + 2 {
            parser.advance_token();
        }
        let first = parser.parse_expr()?;
        parser.expect_token(&Token::Comma)?;
        let mut list = vec![first];
        list.extend(parser.parse_comma_separated(Parser::parse_expr)?);
        parser.expect_token(&Token::RParen)?;
        Ok(list)
    });
    match list {
        Ok(Some(list)) => {
            Some(Ok(Expr::InList { expr: Box::new(expression.clone()), list, negated }))
        }
        Ok(None) => None,
        Err(error) => Some(Err(error)),
    }
}

/// Takes `[NOT] BETWEEN SYMMETRIC` if it comes next; the result is true with NOT.
fn symmetric(parser: &mut Parser<'_>) -> Option<bool> {
    if parser.parse_keywords(&[Keyword::BETWEEN, Keyword::SYMMETRIC]) {
        return Some(false);
    }
    let negated = parser.parse_keywords(&[Keyword::NOT, Keyword::BETWEEN, Keyword::SYMMETRIC]);
    negated.then_some(true)
}

/// Parses the bounds after `BETWEEN SYMMETRIC`.
fn between_symmetric(
    parser: &mut Parser<'_>,
    precedence: u8,
    operand: &Expr,
    negated: bool,
) -> Result<Expr, ParserError> {
    let first = parser.parse_subexpr(precedence)?;
    parser.expect_keyword_is(Keyword::AND)?;
    let second = parser.parse_subexpr(precedence)?;
    let in_bounds = |low: Expr, high: Expr| {
        let (low, high) = (Box::new(low), Box::new(high));
        Box::new(Expr::Between { expr: Box::new(operand.clone()), negated: false, low, high })
    };
    let ascending = in_bounds(first.clone(), second.clone());
    let either =
        Expr::BinaryOp { left: ascending, op: BinaryOperator::Or, right: in_bounds(second, first) };
    let either = Expr::Nested(Box::new(either));
    if !negated {
        return Ok(either);
    }
    Ok(Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(either) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// sqlparser's default answers, to see which of them its PostgreSQL changes.
    #[derive(Debug)]
    struct Plain;

    impl Dialect for Plain {
        fn is_identifier_start(&self, _: char) -> bool {
            false
        }

        fn is_identifier_part(&self, _: char) -> bool {
            false
        }
    }

    #[test]
    fn questions_about_features_are_answered_as_for_postgresql() {
        macro_rules! same {
            ($($name:ident)*) => {
                $(assert_eq!(Bounded.$name(), POSTGRES.$name(), stringify!($name));)*
            };
        }
        // Those that no dialect above names: the default must be PostgreSQL's answer, too.
        same! {
            supports_string_literal_backslash_escape
            supports_within_after_array_aggregation
            supports_group_by_with_modifier
            supports_left_associative_joins_without_parens
            supports_connect_by
            supports_match_recognize
            supports_in_empty_list
            supports_start_transaction_modifier
            supports_parenthesized_set_variables
            supports_select_wildcard_except
            convert_type_before_value
            supports_triple_quoted_string
            supports_trailing_commas
            supports_projection_trailing_commas
            supports_lambda_functions
            supports_limit_comma
            supports_from_first_select
            supports_select_wildcard_exclude
            supports_values_as_table_factor
            supports_pipe_operator
            supports_parens_around_table_factor
            supports_array_typedef_without_element_type
        }
        assert!(
            POSTGRES.supports_named_fn_args_with_expr_name() && !Plain.supports_lambda_functions()
        );
        assert_eq!(Bounded.dialect(), POSTGRES.dialect());
    }
}
