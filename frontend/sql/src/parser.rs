//! From text to statements.
//!
//! The first word decides: `insert.rs` splits INSERT, REPLACE and UPSERT without a tokenizer, sqlparser parses queries,
//! and all other statements are parsed here and in the neighbouring files, word by word. Features that this version
//! lacks are refused by name (0A000); anything else is a syntax error (42601). Both have a position.

use std::sync::Arc;

use datafusion::common::format::ExplainStatementOptions;
use datafusion::sql::parser::Statement as PlannerStatement;
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::aligned;
use super::counts;
use super::effort;
use super::gap_filled;
use super::grouped_casts;
use super::joined_subqueries;
use super::refused::check_query;
use super::rewritten::rewrite;
use super::sort_keys;
use super::split::{Piece, split, trim_start};
use super::statement::{Explain, Query, Statement};
use super::tokens::Tokens;
use super::weight;
use crate::error::SqlError;

/// One row without columns, which is the meaning of SELECT alone.
const NOTHING: &str = "SELECT FROM (VALUES (1)) AS one";

/// Statements of other databases, with a hint for what to use instead.
const UNSUPPORTED: &[(&str, &str)] = &[
    ("attach", ""),
    ("call", ""),
    ("checkpoint", "ADMIN flush_table('t') writes a table's memtables to files"),
    ("cluster", ""),
    ("do", ""),
    ("import", ""),
    ("install", ""),
    ("kill", "cancel a statement from its client"),
    ("load", ""),
    ("merge", "INSERT replaces the row of the same key"),
    ("optimize", "ADMIN compact_table('t') merges a table's files"),
    ("pragma", ""),
    ("refresh", ""),
    ("reindex", ""),
    ("security", ""),
    ("tql", ""),
    ("unload", ""),
    ("unlock", ""),
];

/// Parses the statements of a text.
///
/// # Errors
/// The first error, with its position in the whole text.
pub fn parse(sql: &str) -> Result<Vec<Statement>, SqlError> {
    let pieces = split(sql);
    let only = pieces.len() == 1;
    let mut statements = Vec::with_capacity(pieces.len());
    let mut counted = (0, 0);
    for Piece { text, start } in pieces {
        let (text, blank) = trim_start(text);
        if text.is_empty() {
            continue;
        }
        // Positions are in characters.
        let start = start + blank;
        counted = (start, counted.1 + sql[counted.0..start].chars().count());
        statements.push(parse_one(text.trim_end(), counted.1)?);
    }
    if statements.is_empty() && only {
        statements.push(Statement::Empty);
    }
    Ok(statements)
}

/// Longest text that is parsed on the thread that received it, in bytes.
const QUICK_BYTES_MAX: usize = 8 << 10;
/// Longest text of an INSERT that is parsed there, in bytes; its literals are only skipped.
const QUICK_INSERT_BYTES_MAX: usize = 256 << 10;

/// Parses the statements of a text if that takes well under a millisecond; `None` if it may take longer.
pub fn parse_quickly(sql: &str) -> Option<Result<Vec<Statement>, SqlError>> {
    let first = sql.trim_start().get(.."insert".len()).unwrap_or_default();
    let most =
        if first.eq_ignore_ascii_case("insert") { QUICK_INSERT_BYTES_MAX } else { QUICK_BYTES_MAX };
    if sql.len() > most {
        return None;
    }
    effort::quickly(|| parse(sql))
}

/// Parses one statement that begins `start` characters into the client's text.
pub(super) fn parse_one(text: &str, start: usize) -> Result<Statement, SqlError> {
    if let Some(insert) = super::insert::parse(text, start)? {
        return Ok(Statement::Insert(insert));
    }
    let mut tokens = Tokens::new(text, start)?;
    let statement = tokens.statement()?;
    tokens.expect_end()?;
    Ok(statement)
}

/// Parses a text that must be a single query.
pub(super) fn parse_query(text: &str, start: usize) -> Result<Query, SqlError> {
    let mut tokens = Tokens::new(text, start)?;
    let query = tokens.query()?;
    tokens.expect_end()?;
    Ok(query)
}

impl Tokens<'_> {
    /// Takes a statement.
    fn statement(&mut self) -> Result<Statement, SqlError> {
        // A parenthesis begins a query.
        let first = match &self.peek().token {
            Token::LParen => return self.select(),
            Token::EOF => return Ok(Statement::Empty),
            Token::Word(word) if word.quote_style.is_none() => word.value.to_ascii_lowercase(),
            _ => return Err(self.unexpected("a statement")),
        };
        // Statements of other databases are refused by name.
        if let Some((word, hint)) = UNSUPPORTED.iter().find(|(word, _)| *word == first) {
            let error = self.unsupported(word.to_ascii_uppercase());
            return Err(if hint.is_empty() { error } else { error.with_hint(*hint) });
        }
        // Every statement has a parser of its own.
        match first.as_str() {
            "select" if matches!(self.peek_nth(1).token, Token::EOF) => {
                self.skip_all();
                let query = parse_query(NOTHING, 0)?;
                Ok(Statement::Query(Query { text: Arc::from(self.text), ..query }))
            }
            "select" | "with" => self.select(),
            "values" | "table" => self.query().map(Statement::Query),
            "explain" if self.at_nth(1, "hotspot") => {
                self.take(&["explain", "hotspot"]);
                self.table_name().map(Statement::ExplainHotspot)
            }
            "explain" => self.explain().map(Statement::Explain),
            "delete" => self.delete().map(Statement::Delete),
            "update" => self.update().map(Statement::Update),
            "copy" => self.copy(),
            "comment" => self.comment(),
            "create" => self.create(),
            "alter" => self.alter(),
            "drop" => self.drop(),
            "truncate" => self.truncate(),
            "use" => self.use_database(),
            "show" if self.at_nth(1, "grants") || self.at_nth(1, "tokens") => self.show_access(),
            "show" if self.shows_series_cardinality() => {
                self.series_cardinality().map(Statement::SeriesCardinality)
            }
            "show" if self.at_nth(1, "tasks") => self.show_tasks(),
            "show" => self.show().map(Statement::Show),
            "desc" | "describe" => self.describe(),
            "set" => self.set(),
            "reset" => self.reset(),
            "begin" | "start" | "commit" | "end" | "rollback" | "abort" | "savepoint"
            | "release" => self.transaction(),
            "prepare" => self.prepare(),
            "execute" => self.execute(),
            "deallocate" => self.deallocate(),
            "declare" => self.declare(),
            "fetch" | "move" => self.fetch(),
            "close" => self.close(),
            "discard" => self.discard(),
            "admin" => self.admin(),
            "advise" => self.advise(),
            "grant" => self.grant(),
            "revoke" => self.revoke(),
            "reassign" => self.reassign(),
            "listen" => self.listen(),
            "lock" => self.lock(),
            "notify" => self.notify(),
            "unlisten" => self.unlisten(),
            "vacuum" | "analyze" | "analyse" => self.vacuum(),
            _ => Err(self.unexpected("a statement")),
        }
    }

    /// Takes a query up to its end.
    pub(super) fn query(&mut self) -> Result<Query, SqlError> {
        let (position, offset) = (self.position(), self.offset());
        let query = self.parsed_query()?;
        self.checked_query(query, position, offset)
    }

    /// Takes a query as it is written.
    pub(super) fn parsed_query(&mut self) -> Result<Box<ast::Query>, SqlError> {
        self.bounded(Parser::parse_query)
    }

    /// A parsed query that began at a position and an offset and ends here, checked and rewritten for the planner.
    pub(super) fn checked_query(
        &self,
        mut query: Box<ast::Query>,
        position: usize,
        offset: usize,
    ) -> Result<Query, SqlError> {
        let end = self.offset();
        let text = &self.text[offset..end];
        aligned::rewrite(text, &mut query)
            .and_then(|()| gap_filled::rewrite(text, &mut query))
            .map_err(|error| error.with_position(position))?;
        sort_keys::drop_repeated(&mut query);
        sort_keys::number_distinct(&mut query);
        grouped_casts::keep_apart(&mut query);
        check_query(&query)
            .and_then(|()| counts::check(&mut query))
            .and_then(|()| joined_subqueries::rewrite(&mut query))
            .and_then(|()| rewrite(&mut query))
            .and_then(|()| weight::check(&query))
            .map_err(|error| error.with_position(position))?;
        Ok(Query {
            text: Arc::from(text.trim_end()),
            statement: PlannerStatement::Statement(Box::new(ast::Statement::Query(query))),
        })
    }

    /// Takes an EXPLAIN statement.
    fn explain(&mut self) -> Result<Explain, SqlError> {
        self.expect("explain")?;
        let begins_query =
            |n| self.at_nth(n, "select") || self.at_nth(n, "with") || self.at_nth(n, "values");
        let listed = matches!(self.peek().token, Token::LParen)
            && !begins_query(1)
            && !matches!(self.peek_nth(1).token, Token::LParen);
        let options = if listed {
            let position = self.position();
            let raw = self.bounded(Parser::parse_utility_options)?;
            ExplainStatementOptions::from_utility_options(&raw).map_err(|error| {
                SqlError::syntax(error.strip_backtrace()).with_position(position)
            })?
        } else {
            let mut options = ExplainStatementOptions::default();
            loop {
                if self.take(&["analyze"]) || self.take(&["analyse"]) {
                    options.analyze = true;
                } else if self.take(&["verbose"]) {
                    options.verbose = true;
                } else if self.take(&["format"]) {
                    let error = self.unexpected("INDENT, TREE, PGJSON or GRAPHVIZ");
                    let format = match self.string() {
                        Ok(format) => format,
                        Err(_) => self.name("a format")?,
                    };
                    options.format = Some(format.parse().map_err(|_| error)?);
                } else {
                    break options;
                }
            }
        };
        let position = self.position();
        let offset = self.offset();
        let text = &self.text[offset..];
        // Positions inside count from the whole text too: the first character is 1.
        let statement = parse_one(text, position - 1)?;
        if !statement.is_explainable() {
            return Err(SqlError::unsupported(format!("EXPLAIN {}", statement.tag()))
                .with_position(position));
        }
        self.skip_all();
        Ok(Explain { text: Arc::from(self.text), options, statement: Box::new(statement) })
    }

    /// Takes all remaining tokens.
    pub(super) fn skip_all(&mut self) {
        while !self.at_end() {
            self.inner.advance_token();
        }
    }
}

impl Explain {
    /// A query under this EXPLAIN, as DataFusion plans it: the explained one, or the one that finds the rows of another
    /// statement.
    pub fn planned(&self, query: &Query) -> PlannerStatement {
        PlannerStatement::Explain(datafusion::sql::parser::ExplainStatement {
            options: self.options.clone(),
            statement: Box::new(query.statement.clone()),
        })
    }
}
