//! The tokens of a statement, and the parser's position in them.
//!
//! [`Tokens`] wraps sqlparser's parser, which parses expressions and queries; all other statements are parsed here word
//! by word. Words of the grammar that are not reserved (`time`, `index`, `ttl`, ...) are compared without regard to
//! case and only if they are unquoted, so that they remain usable as names of columns.
//!
//! Invariant: every error points at the wrong token, as a character position in the client's text.

use datafusion::sql::sqlparser::ast::Expr;
use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer, Word};

use super::aligned_grammar;
use super::dialect::{Bounded, POSTGRES};
use super::effort;
use super::identifier::fold;
use super::null_tests;
use super::shape;
use super::signs;
use super::sort_operators;
use super::statement::TableName;
use super::table_query;
use crate::error::SqlError;

/// The catalog of all databases, the first part of a three-part name.
const CATALOG: &str = "partita";

/// PostgreSQL's lexical rules, with backticks around names as well.
#[derive(Debug)]
struct Lexical;

impl Dialect for Lexical {
    fn dialect(&self) -> std::any::TypeId {
        POSTGRES.dialect()
    }

    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        matches!(ch, '"' | '`')
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        POSTGRES.is_identifier_start(ch)
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        POSTGRES.is_identifier_part(ch)
    }

    fn is_custom_operator_part(&self, ch: char) -> bool {
        ch != '`' && POSTGRES.is_custom_operator_part(ch)
    }

    fn supports_unicode_string_literal(&self) -> bool {
        POSTGRES.supports_unicode_string_literal()
    }

    fn supports_nested_comments(&self) -> bool {
        POSTGRES.supports_nested_comments()
    }

    fn supports_string_escape_constant(&self) -> bool {
        POSTGRES.supports_string_escape_constant()
    }

    fn supports_numeric_literal_underscores(&self) -> bool {
        POSTGRES.supports_numeric_literal_underscores()
    }

    fn supports_geometric_types(&self) -> bool {
        POSTGRES.supports_geometric_types()
    }
}

/// The tokens of a statement, and the position of the parser.
pub(super) struct Tokens<'a> {
    /// sqlparser's parser, for expressions, queries and types of casts.
    pub(super) inner: Parser<'static>,
    /// The statement's text.
    pub(super) text: &'a str,
    /// Position of the text in the client's text, in characters.
    start: usize,
    /// The number of tokens.
    count: usize,
}

impl<'a> Tokens<'a> {
    /// Tokenizes the text of a statement.
    pub(super) fn new(text: &'a str, start: usize) -> Result<Self, SqlError> {
        shape::check_text(text)?;
        let mut tokens =
            Tokenizer::new(&Lexical, text).tokenize_with_location().map_err(|error| {
                let position = position_of(text, start, error.location);
                SqlError::syntax(format!("syntax error: {}", lower_first(&error.message)))
                    .with_position(position)
            })?;
        shape::check(&tokens).map_err(|excess| {
            excess.error.with_position(position_of(text, start, excess.location))
        })?;
        for token in &mut tokens {
            // One kind of quotes from here on: texts of expressions are stored, and parsed again by parsers that only
            // know PostgreSQL's.
            if let Token::Word(word) = &mut token.token
                && word.quote_style == Some('`')
            {
                word.quote_style = Some('"');
            }
        }
        sort_operators::named(&mut tokens);
        let tokens = signs::apart(tokens);
        let tokens = table_query::written_out(null_tests::written_out(tokens));
        let tokens = aligned_grammar::written_out(tokens);
        let count = tokens.len();
        let inner = Parser::new(&Bounded)
            .with_recursion_limit(effort::depth_max())
            .with_tokens_with_locations(tokens);
        Ok(Self { inner, text, start, count })
    }

    /// The tokens from a location on.
    pub(super) fn behind(&self, location: Location) -> Result<Self, SqlError> {
        let offset = offset_of(self.text, location);
        Self::new(&self.text[offset..], self.start + self.text[..offset].chars().count())
    }

    /// Position of the text in the client's text, in characters.
    pub(super) fn start(&self) -> usize {
        self.start
    }

    /// The next token.
    pub(super) fn peek(&self) -> &TokenWithSpan {
        self.inner.peek_token_ref()
    }

    /// The token `n` places ahead; 0 is the next one.
    pub(super) fn peek_nth(&self, n: usize) -> &TokenWithSpan {
        self.inner.peek_nth_token_ref(n)
    }

    /// Takes the next token.
    pub(super) fn next(&mut self) -> TokenWithSpan {
        self.inner.next_token()
    }

    /// Returns true if the next token is this unquoted word.
    pub(super) fn at(&self, word: &str) -> bool {
        self.at_nth(0, word)
    }

    /// Returns true if the token `n` places ahead is this unquoted word.
    pub(super) fn at_nth(&self, n: usize, word: &str) -> bool {
        is_word(&self.peek_nth(n).token, word)
    }

    /// Takes these unquoted words if all of them come next.
    pub(super) fn take(&mut self, words: &[&str]) -> bool {
        let is_next = words.iter().enumerate().all(|(n, word)| self.at_nth(n, word));
        if is_next {
            words.iter().for_each(|_| self.inner.advance_token());
        }
        is_next
    }

    /// Takes this unquoted word.
    pub(super) fn expect(&mut self, word: &str) -> Result<(), SqlError> {
        if self.take(&[word]) { Ok(()) } else { Err(self.unexpected(&word.to_ascii_uppercase())) }
    }

    /// Takes a punctuation mark if it comes next.
    pub(super) fn take_mark(&mut self, mark: &Token) -> bool {
        self.inner.consume_token(mark)
    }

    /// Takes a punctuation mark.
    pub(super) fn expect_mark(&mut self, mark: &Token) -> Result<(), SqlError> {
        if self.take_mark(mark) { Ok(()) } else { Err(self.unexpected(&format!("\"{mark}\""))) }
    }

    /// Returns true at the end of the statement.
    pub(super) fn at_end(&self) -> bool {
        matches!(self.peek().token, Token::EOF)
    }

    /// Checks that the statement ends here.
    pub(super) fn expect_end(&self) -> Result<(), SqlError> {
        if self.at_end() { Ok(()) } else { Err(self.unexpected("the end of the statement")) }
    }

    /// The error of an unexpected next token.
    pub(super) fn unexpected(&self, expected: &str) -> SqlError {
        let next = self.peek();
        let message = match &next.token {
            Token::EOF => format!("syntax error at end of input, expected {expected}"),
            token => format!("syntax error at or near \"{token}\", expected {expected}"),
        };
        self.located(SqlError::syntax(message))
    }

    /// The error of a next token that begins an unsupported feature.
    pub(super) fn unsupported(&self, feature: impl std::fmt::Display) -> SqlError {
        self.located(SqlError::unsupported(feature))
    }

    /// An error, located at the next token.
    pub(super) fn located(&self, error: SqlError) -> SqlError {
        let position = self.position();
        if error.position.is_some() { error } else { error.with_position(position) }
    }

    /// The character position of the next token in the client's text.
    pub(super) fn position(&self) -> usize {
        let token = self.peek();
        match token.token {
            Token::EOF => self.start + self.text.chars().count() + 1,
            _ => position_of(self.text, self.start, token.span.start),
        }
    }

    /// The byte offset of the next token in the text.
    pub(super) fn offset(&self) -> usize {
        let token = self.peek();
        match token.token {
            Token::EOF => self.text.len(),
            _ => offset_of(self.text, token.span.start),
        }
    }

    /// An error of sqlparser, with its location translated into a position.
    pub(super) fn foreign(&self, error: ParserError) -> SqlError {
        let message = match error {
            ParserError::RecursionLimitExceeded => return error.into(),
            ParserError::TokenizerError(message) | ParserError::ParserError(message) => message,
        };
        let (message, location) = split_location(&message);
        let error = SqlError::syntax(format!("syntax error: {}", lower_first(message)));
        match location {
            Some(location) => error.with_position(position_of(self.text, self.start, location)),
            None => self.located(error),
        }
    }

    /// Takes a name, folded.
    pub(super) fn name(&mut self, expected: &str) -> Result<String, SqlError> {
        match &self.peek().token {
            Token::Word(word) => {
                let name = word_name(word);
                self.inner.advance_token();
                Ok(name)
            }
            _ => Err(self.unexpected(expected)),
        }
    }

    /// Takes `[[catalog.]database.]table`.
    pub(super) fn table_name(&mut self) -> Result<TableName, SqlError> {
        let mut parts = vec![self.name("a table name")?];
        while self.take_mark(&Token::Period) {
            parts.push(self.name("a name")?);
        }
        if parts.len() == 3 && parts[0] == CATALOG {
            parts.remove(0);
        }
        if parts.len() > 2 {
            return Err(
                self.unsupported(format!("a table of another catalog (\"{}\")", parts.join(".")))
            );
        }
        let name = parts.pop().unwrap_or_default();
        Ok(TableName { database: parts.pop(), name })
    }

    /// Takes the text of a string.
    pub(super) fn string(&mut self) -> Result<String, SqlError> {
        let text = match &self.peek().token {
            Token::SingleQuotedString(text)
            | Token::EscapedStringLiteral(text)
            | Token::NationalStringLiteral(text)
            | Token::UnicodeStringLiteral(text) => text.clone(),
            Token::DollarQuotedString(quoted) => quoted.value.clone(),
            _ => return Err(self.unexpected("a string")),
        };
        self.inner.advance_token();
        Ok(text)
    }

    /// Takes an unsigned whole number.
    pub(super) fn unsigned(&mut self, expected: &str) -> Result<u64, SqlError> {
        if let Token::Number(text, _) = &self.peek().token
            && let Ok(number) = text.parse()
        {
            self.inner.advance_token();
            return Ok(number);
        }
        Err(self.unexpected(expected))
    }

    /// Takes `(item, item, ...)`; a comma after the last item is allowed.
    pub(super) fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, SqlError>,
    ) -> Result<Vec<T>, SqlError> {
        self.expect_mark(&Token::LParen)?;
        let mut items = Vec::new();
        while !self.take_mark(&Token::RParen) {
            items.push(item(self)?);
            if !self.take_mark(&Token::Comma) {
                self.expect_mark(&Token::RParen)?;
                break;
            }
        }
        Ok(items)
    }

    /// Takes `(column, column, ...)`, at least one.
    pub(super) fn columns(&mut self) -> Result<Vec<String>, SqlError> {
        let columns = self.list(|tokens| tokens.name("a column name"))?;
        if columns.is_empty() {
            return Err(self.located(SqlError::syntax("a list of columns may not be empty")));
        }
        Ok(columns)
    }

    /// Takes an expression.
    pub(super) fn expression(&mut self) -> Result<Expr, SqlError> {
        self.bounded(Parser::parse_expr)
    }

    /// Runs one of sqlparser's own parsers, within the budget.
    pub(super) fn bounded<T>(
        &mut self,
        parse: impl FnOnce(&mut Parser<'static>) -> Result<T, ParserError>,
    ) -> Result<T, SqlError> {
        let parsed = effort::within(self.count, || parse(&mut self.inner));
        if matches!(parsed, effort::Outcome::Done(Err(ParserError::RecursionLimitExceeded))) {
            effort::insufficient();
        }
        parsed.complete()?.map_err(|error| self.foreign(error))
    }

    /// Takes `IF NOT EXISTS`.
    pub(super) fn if_not_exists(&mut self) -> bool {
        self.take(&["if", "not", "exists"])
    }

    /// Takes `IF EXISTS`.
    pub(super) fn if_exists(&mut self) -> bool {
        self.take(&["if", "exists"])
    }
}

/// Returns true if a token is this unquoted word.
pub(super) fn is_word(token: &Token, word: &str) -> bool {
    matches!(token, Token::Word(found) if found.quote_style.is_none() && found.value.eq_ignore_ascii_case(word))
}

/// The name that a word stands for. The tokenizer has already removed doubled quotes.
pub(super) fn word_name(word: &Word) -> String {
    if word.quote_style.is_some() { word.value.clone() } else { fold(&word.value) }
}

/// Splits off sqlparser's " at Line: 1, Column: 7" at the end of a message.
fn split_location(message: &str) -> (&str, Option<Location>) {
    let Some(end) = message.rfind(" at Line: ") else { return (message, None) };
    let mut numbers = message[end + " at Line: ".len()..].split(", Column: ");
    let number = |part: Option<&str>| part.and_then(|text| text.trim().parse::<u64>().ok());
    match (number(numbers.next()), number(numbers.next())) {
        (Some(line), Some(column)) => (&message[..end], Some(Location { line, column })),
        _ => (message, None),
    }
}

/// The character position, from 1, of a line and column in a text that begins at `start`.
fn position_of(text: &str, start: usize, location: Location) -> usize {
    start + text[..offset_of(text, location)].chars().count() + 1
}

/// The byte offset of a line and column (both from 1, columns in characters); the end of the text when there is no such
/// place.
fn offset_of(text: &str, location: Location) -> usize {
    let line = usize::try_from(location.line).unwrap_or(usize::MAX).saturating_sub(1);
    let column = usize::try_from(location.column).unwrap_or(usize::MAX).saturating_sub(1);
    let mut begin = 0;
    for _ in 0..line {
        match text[begin..].find('\n') {
            Some(offset) => begin += offset + 1,
            None => return text.len(),
        }
    }
    text[begin..].char_indices().nth(column).map_or(text.len(), |(offset, _)| begin + offset)
}

fn lower_first(message: &str) -> String {
    let mut chars = message.chars();
    match chars.next() {
        Some(first) => first.to_ascii_lowercase().to_string() + chars.as_str(),
        None => String::new(),
    }
}
