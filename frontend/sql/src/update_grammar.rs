//! Grammar of UPDATE.
//!
//! ```text
//! UPDATE [ONLY] table [[AS] alias] SET assignment, .. [FROM table, ..] [WHERE condition] [RETURNING item, ..]
//!   assignment: column = {value | DEFAULT} | (column, ..) = [ROW] ({value | DEFAULT}, ..)
//! ```

use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{Expr, Query, SelectItem, TableWithJoins};
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::counts;
use super::grouped_casts;
use super::joined_subqueries;
use super::refused::check_query;
use super::rewritten::rewrite;
use super::sort_keys;
use super::statement::Update;
use super::table_name::TableName;
use super::tokens::Tokens;
use super::update_rows::source;
use super::weight;
use crate::error::SqlError;

/// Columns and the positions of their values.
#[derive(Default)]
struct Assignments {
    columns: Vec<String>,
    values: Vec<Option<usize>>,
    items: Vec<Expr>,
}

/// Checks and rewrites the query that finds the rows of a statement, as any query is.
pub(super) fn finish(source: &mut Query) -> Result<(), SqlError> {
    sort_keys::drop_repeated(source);
    sort_keys::number_distinct(source);
    grouped_casts::keep_apart(source);
    check_query(source)?;
    counts::check(source)?;
    joined_subqueries::rewrite(source)?;
    rewrite(source)?;
    weight::check(source)
}

impl Tokens<'_> {
    /// Takes an UPDATE statement.
    pub(super) fn update(&mut self) -> Result<Update, SqlError> {
        self.expect("update")?;
        self.take(&["only"]);
        let table = self.table_name()?;
        let has_alias =
            self.take(&["as"]) || (matches!(self.peek().token, Token::Word(_)) && !self.at("set"));
        let alias = has_alias.then(|| self.name("an alias")).transpose()?;
        self.changes(table, alias, true)
    }

    /// Takes UPDATE SET .. of an ON CONFLICT; `text` is that of the INSERT.
    pub(super) fn conflict_update(
        &mut self,
        text: &str,
        table: &TableName,
        alias: Option<&str>,
    ) -> Result<Update, SqlError> {
        self.expect("update")?;
        let update = self.changes(table.clone(), alias.map(str::to_owned), false)?;
        Ok(Update { text: Arc::from(text), ..update })
    }

    /// Takes SET and what follows; FROM and RETURNING only of a statement of its own.
    fn changes(
        &mut self,
        table: TableName,
        alias: Option<String>,
        is_statement: bool,
    ) -> Result<Update, SqlError> {
        self.expect("set")?;
        let mut set = Assignments::default();
        loop {
            self.assignment(&mut set)?;
            if !self.take_mark(&Token::Comma) {
                break;
            }
        }
        let tables = if is_statement && self.take(&["from"]) { self.tables()? } else { Vec::new() };
        let position = self.position();
        let predicate = if self.take(&["where"]) {
            if self.take(&["current", "of"]) {
                return Err(self.unsupported("WHERE CURRENT OF"));
            }
            Some(self.expression()?)
        } else {
            None
        };
        for (word, clause) in [("limit", "UPDATE ... LIMIT"), ("order", "UPDATE ... ORDER BY")] {
            if self.at(word) {
                return Err(self.unsupported(clause));
            }
        }
        let returning = if is_statement { self.returning()? } else { None };
        let items = set.items.into_iter().map(SelectItem::UnnamedExpr).collect();
        let mut source = source(items, tables, predicate)?;
        finish(&mut source).map_err(|error| error.with_position(position))?;
        let (columns, values) = (set.columns, set.values);
        let text = Arc::from(self.text);
        Ok(Update { text, table, alias, columns, values, source, returning })
    }

    /// Takes the tables of FROM or USING.
    pub(super) fn tables(&mut self) -> Result<Vec<TableWithJoins>, SqlError> {
        self.bounded(|parser| parser.parse_comma_separated(Parser::parse_table_and_joins))
    }

    /// Takes an assignment to one column or to several.
    fn assignment(&mut self, set: &mut Assignments) -> Result<(), SqlError> {
        if !matches!(self.peek().token, Token::LParen) {
            self.assigned_column(set)?;
            self.expect_mark(&Token::Eq)?;
            return self.assigned_value(set);
        }
        let first = set.columns.len();
        let start = self.position();
        self.list(|tokens| tokens.assigned_column(set))?;
        let columns = set.columns.len() - first;
        self.expect_mark(&Token::Eq)?;
        self.take(&["row"]);
        if matches!(self.peek().token, Token::LParen)
            && (self.at_nth(1, "select") || self.at_nth(1, "with") || self.at_nth(1, "values"))
        {
            return Err(self
                .unsupported("UPDATE ... SET (...) = (SELECT ...)")
                .with_hint("use FROM (SELECT ...) AS alias"));
        }
        self.list(|tokens| tokens.assigned_value(set))?;
        if columns == 0 || set.values.len() != first + columns {
            let message = "number of columns does not match number of values";
            return Err(SqlError::syntax(message).with_position(start));
        }
        Ok(())
    }

    fn assigned_column(&mut self, set: &mut Assignments) -> Result<(), SqlError> {
        let position = self.position();
        let name = self.name("a column name")?;
        if set.columns.contains(&name) {
            let message = format!("multiple assignments to same column \"{name}\"");
            return Err(SqlError::syntax(message).with_position(position));
        }
        set.columns.push(name);
        Ok(())
    }

    fn assigned_value(&mut self, set: &mut Assignments) -> Result<(), SqlError> {
        if self.take(&["default"]) {
            set.values.push(None);
            return Ok(());
        }
        set.values.push(Some(set.items.len()));
        set.items.push(self.expression()?);
        Ok(())
    }
}
