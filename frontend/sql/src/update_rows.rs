//! The query that finds the rows of an UPDATE, with their new values.
//!
//! ```text
//!   UPDATE t SET v = t.v + o.n FROM other AS o WHERE t.k = o.k
//!   SELECT t.k, t.v, .. , t.v + o.n FROM t, other AS o WHERE t.k = o.k
//! ```

use std::sync::Arc;

use datafusion::sql::parser::Statement as PlannerStatement;
use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, Expr, Ident, SelectItem, SetExpr, TableWithJoins, Value as Literal,
};
use partita_proto::catalog::Table;
use partita_proto::schema::{Column, ColumnType, TableSchema};
use partita_proto::value::Value;

use super::hidden::{check_unnamed, show_hidden};
use super::identifier::quote;
use super::parser::parse_query;
use super::rewritten::exact_rows;
use super::statement::{Delete, Query, Update};
use crate::error::{GENERATED_ALWAYS, SqlError};

/// The SELECT of a query that has nothing else.
pub(super) fn select_of(query: &mut ast::Query) -> Result<&mut ast::Select, SqlError> {
    match query.body.as_mut() {
        SetExpr::Select(select) => Ok(select.as_mut()),
        _ => Err(SqlError::internal("the query of an UPDATE is no SELECT")),
    }
}

/// Parses a SELECT that the program has written.
pub(super) fn parsed(text: &str) -> Result<Box<ast::Query>, SqlError> {
    match parse_query(text, 0)?.statement {
        PlannerStatement::Statement(statement) => match *statement {
            ast::Statement::Query(query) => Ok(query),
            _ => Err(SqlError::internal("the query of an UPDATE is no query")),
        },
        _ => Err(SqlError::internal("the query of an UPDATE is no query")),
    }
}

/// A table in FROM, under its name or an alias.
pub(super) fn from_item(table: &Table, alias: Option<&str>) -> Result<TableWithJoins, SqlError> {
    let mut text = format!("SELECT 1 FROM {}.{}", quote(&table.database), quote(&table.name));
    if let Some(alias) = alias {
        text.push_str(" AS ");
        text.push_str(&quote(alias));
    }
    let item = select_of(parsed(&text)?.as_mut())?.from.pop();
    item.ok_or_else(|| SqlError::internal("a table in FROM was not parsed"))
}

/// A SELECT with these items, tables and predicate.
pub(super) fn source(
    items: Vec<SelectItem>,
    sources: Vec<TableWithJoins>,
    predicate: Option<Expr>,
) -> Result<Box<ast::Query>, SqlError> {
    let mut query = parsed("SELECT 1")?;
    let select = select_of(&mut query)?;
    select.projection = items;
    select.from = sources;
    select.selection = predicate;
    Ok(query)
}

/// True for a constant, also with a sign or a type.
fn is_constant(expr: &Expr) -> bool {
    match expr {
        Expr::Value(_) | Expr::TypedString(_) => true,
        Expr::Nested(expr) | Expr::UnaryOp { expr, .. } | Expr::Cast { expr, .. } => {
            is_constant(expr)
        }
        _ => false,
    }
}

/// Type to which a parameter is cast that is a column's new value; `None` for one that is read as a text.
fn parameter_type(column_type: ColumnType) -> Option<String> {
    match column_type {
        ColumnType::String | ColumnType::Binary => None,
        column_type => Some(column_type.sql()),
    }
}

impl Delete {
    /// The rows to remove, as an UPDATE that sets nothing finds them.
    #[must_use]
    pub fn as_update(&self) -> Update {
        Update {
            text: Arc::clone(&self.text),
            table: self.table.clone(),
            alias: self.alias.clone(),
            columns: Vec::new(),
            values: Vec::new(),
            source: self.source.clone(),
            returning: self.returning.clone(),
        }
    }

    /// The rows to delete; `None` means all.
    #[must_use]
    pub fn predicate(&self) -> Option<&Expr> {
        match self.source.body.as_ref() {
            SetExpr::Select(select) => select.selection.as_ref(),
            _ => None,
        }
    }

    /// What DELETE joins its table with; empty without USING.
    #[must_use]
    pub fn using_tables(&self) -> &[TableWithJoins] {
        tables_of(&self.source)
    }

    /// True if whole rows are found, and removed if nobody has written them since: they are returned, or other tables tell
    /// which they are.
    #[must_use]
    pub fn finds_rows(&self) -> bool {
        self.returning.is_some() || !self.using_tables().is_empty()
    }
}

/// The tables in FROM of a SELECT.
pub(super) fn tables_of(query: &ast::Query) -> &[TableWithJoins] {
    match query.body.as_ref() {
        SetExpr::Select(select) => &select.from,
        _ => &[],
    }
}

impl Update {
    /// True if the statement tells nothing about rows but their number: it sets all of them to constants.
    pub fn reads_nothing(&self) -> bool {
        let SetExpr::Select(select) = self.source.body.as_ref() else { return false };
        let is_constant_item =
            |item: &SelectItem| matches!(item, SelectItem::UnnamedExpr(expr) if is_constant(expr));
        self.returning.is_none()
            && select.selection.is_none()
            && select.from.is_empty()
            && select.projection.iter().all(is_constant_item)
    }

    /// True if the statement reads other tables beside the one that changes, by FROM.
    pub fn has_from(&self) -> bool {
        !self.from_tables().is_empty()
    }

    /// What UPDATE joins its table with; empty without FROM.
    pub fn from_tables(&self) -> &[TableWithJoins] {
        tables_of(&self.source)
    }

    /// Columns that the statement sets, with their positions in the schema.
    ///
    /// # Errors
    /// 42703 for an unknown column, 428C9 for a generated one that is set to a value.
    pub fn targets(&self, schema: &TableSchema) -> Result<Vec<usize>, SqlError> {
        let target = |(name, value): (&String, &Option<usize>)| {
            let position = schema
                .index_of(name)
                .filter(|position| !schema.columns[*position].is_hidden())
                .ok_or_else(|| SqlError::undefined_column(name, &self.table.name))?;
            if schema.columns[position].generated.is_some() && value.is_some() {
                return Err(SqlError::new(
                    GENERATED_ALWAYS,
                    format!("column \"{name}\" can only be updated to DEFAULT"),
                )
                .with_detail(format!("column \"{name}\" is a generated column")));
            }
            Ok(position)
        };
        self.columns.iter().zip(&self.values).map(target).collect()
    }

    /// The query that finds the rows: first the table's `columns` as they are, then the new values in the order of
    /// `source`. `condition` restricts it further, in SQL.
    ///
    /// # Errors
    /// As [`Update::targets`], and 42703 for an expression with a hidden column.
    pub fn rows_query(
        &self,
        table: &Table,
        columns: &[&Column],
        condition: Option<&str>,
    ) -> Result<Query, SqlError> {
        let mut query = self.source.clone();
        let select = select_of(&mut query)?;
        let mut target_table = from_item(table, self.alias.as_deref())?;
        if table.schema.is_keyless() {
            check_unnamed(self.source.as_ref(), &table.name)?;
            show_hidden(&mut target_table);
        }
        select.from.insert(0, target_table);
        let qualifier = Ident::with_quote('"', self.alias.as_ref().unwrap_or(&table.name));
        let present = columns.iter().enumerate().map(|(position, column)| {
            let name = Ident::with_quote('"', &column.name);
            SelectItem::ExprWithAlias {
                expr: Expr::CompoundIdentifier(vec![qualifier.clone(), name]),
                alias: Ident::with_quote('"', format!("present {position}")),
            }
        });
        let mut items: Vec<SelectItem> = present.collect();
        let targets = self.targets(&table.schema)?;
        for (position, item) in std::mem::take(&mut select.projection).into_iter().enumerate() {
            let SelectItem::UnnamedExpr(expr) = item else {
                return Err(SqlError::internal("an item of an UPDATE has a name"));
            };
            let mut set = targets.iter().zip(&self.values);
            let target = set.find(|(_, value)| **value == Some(position));
            let expr = match target {
                Some((target, _)) => typed(expr, table.schema.columns[*target].column_type)?,
                None => expr,
            };
            let alias = Ident::with_quote('"', format!("new {position}"));
            items.push(SelectItem::ExprWithAlias { expr, alias });
        }
        select.projection = items;
        if let Some(condition) = condition {
            let mut restricted = parsed(&format!("SELECT 1 WHERE {condition}"))?;
            let condition = select_of(&mut restricted)?.selection.take();
            select.selection = both(select.selection.take(), condition);
        }
        let mut statement = ast::Statement::Query(query);
        exact_rows(&mut statement);
        let statement = PlannerStatement::Statement(Box::new(statement));
        Ok(Query { text: Arc::clone(&self.text), statement })
    }
}

/// Has a query of [`Update::rows_query`] find these columns, too, after all others: each the names of a table of FROM and of
/// its column.
///
/// # Errors
/// None for the query of an UPDATE.
pub fn find_joined(query: &mut Query, columns: &[Vec<String>]) -> Result<(), SqlError> {
    let PlannerStatement::Statement(statement) = &mut query.statement else {
        return Err(SqlError::internal("the query of an UPDATE is no query"));
    };
    let ast::Statement::Query(query) = statement.as_mut() else {
        return Err(SqlError::internal("the query of an UPDATE is no query"));
    };
    let items = columns.iter().enumerate().map(|(position, path)| SelectItem::ExprWithAlias {
        expr: Expr::CompoundIdentifier(
            path.iter().map(|name| Ident::with_quote('"', name)).collect(),
        ),
        alias: Ident::with_quote('"', format!("joined {position}")),
    });
    select_of(query)?.projection.extend(items);
    Ok(())
}

/// The conjunction of two conditions.
fn both(first: Option<Expr>, second: Option<Expr>) -> Option<Expr> {
    let nested = |expr: Expr| Box::new(Expr::Nested(Box::new(expr)));
    match (first, second) {
        (Some(first), Some(second)) => {
            let op = BinaryOperator::And;
            Some(Expr::BinaryOp { left: nested(first), op, right: nested(second) })
        }
        (first, second) => first.or(second),
    }
}

/// A condition in SQL that the rows with these values of key columns satisfy; `table` is the table's name or alias.
/// `None` if there are none, or a value has no plain literal.
pub fn key_condition(table: &str, columns: &[&Column], rows: &[Vec<Value>]) -> Option<String> {
    if columns.is_empty() || rows.is_empty() {
        return None;
    }
    let name = |column: &Column| format!("{}.{}", quote(table), quote(&column.name));
    let is_equal = |(column, value): (&&Column, &Value)| match value {
        Value::Null => Some(format!("{} IS NULL", name(column))),
        value => Some(format!("{} = {}", name(column), literal(value, column.column_type)?)),
    };
    let is_row = |row: &Vec<Value>| {
        let parts = columns.iter().zip(row).map(is_equal).collect::<Option<Vec<_>>>()?;
        Some(format!("({})", parts.join(" AND ")))
    };
    let alternatives = rows.iter().map(is_row).collect::<Option<Vec<_>>>()?;
    Some(format!("({})", alternatives.join(" OR ")))
}

/// A value in SQL, if that is read back as the same value.
fn literal(value: &Value, column_type: ColumnType) -> Option<String> {
    match value {
        Value::Null | Value::Float(_) | Value::Binary(_) => None,
        Value::String(text) if text.contains(char::is_control) => None,
        value => Some(value.display(column_type)),
    }
}

/// A new value; a bare parameter gets the type of its column, so that clients are told it.
fn typed(expr: Expr, column_type: ColumnType) -> Result<Expr, SqlError> {
    let parameter = match &expr {
        Expr::Value(value) => match &value.value {
            Literal::Placeholder(name) => Some(name.clone()),
            _ => None,
        },
        _ => None,
    };
    let Some((name, sql)) = parameter.zip(parameter_type(column_type)) else { return Ok(expr) };
    let mut query = parsed(&format!("SELECT CAST({name} AS {sql})"))?;
    match select_of(&mut query)?.projection.pop() {
        Some(SelectItem::UnnamedExpr(cast)) => Ok(cast),
        _ => Err(SqlError::internal("a cast is no expression")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::Statement;

    fn update(text: &str) -> Update {
        match crate::parse(text).unwrap().pop() {
            Some(Statement::Update(update)) => update,
            statement => panic!("{statement:?}"),
        }
    }

    #[test]
    fn a_statement_that_sets_all_rows_to_constants_reads_nothing() {
        for (text, expected) in [
            ("UPDATE t SET a = 1, b = -2, c = DEFAULT, d = DATE '2020-01-01', e = $1", true),
            ("UPDATE t SET a = 1 WHERE true", false),
            ("UPDATE t SET a = b", false),
            ("UPDATE t SET a = (SELECT 1)", false),
            ("UPDATE t SET a = 1 FROM u", false),
        ] {
            assert_eq!(update(text).reads_nothing(), expected, "{text}");
        }
    }

    #[test]
    fn joined_columns_stand_after_all_others() {
        let Some(Statement::Query(mut query)) = crate::parse("SELECT t.k FROM t, v").unwrap().pop()
        else {
            panic!()
        };
        let column = |path: &[&str]| path.iter().map(|name| (*name).to_owned()).collect();
        find_joined(&mut query, &[column(&["v", "N"]), column(&["d", "v", "k"])]).unwrap();
        assert_eq!(
            query.statement.to_string(),
            "SELECT t.k, \"v\".\"N\" AS \"joined 0\", \"d\".\"v\".\"k\" AS \"joined 1\" FROM t, v"
        );
    }

    #[test]
    fn assignments_are_by_column_in_order() {
        let update = update("UPDATE a.t AS x SET b = 1, (c, \"D\") = ROW (DEFAULT, b + 1)");
        assert_eq!(update.table.database.as_deref(), Some("a"));
        assert_eq!(update.alias.as_deref(), Some("x"));
        assert_eq!(update.columns, ["b", "c", "D"]);
        assert_eq!(update.values, [Some(0), None, Some(1)]);
    }
}
