//! Functions in FROM that the planner does not accept as they are written.
//!
//! ```text
//!   unnest(a) WITH ORDINALITY AS t (x, n)   (SELECT x, row_number() OVER () AS n FROM unnest(a) AS t (x)) AS t (x, n)
//!   generate_series(1, $1) AS g             (SELECT unnest(generate_series(1, CAST($1 AS BIGINT))) AS value) AS g
//! ```
//!
//! The planner evaluates a function in FROM while it plans, before parameters have values. An array has a bounded
//! length instead.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    DataType, Expr, FunctionArg, FunctionArgExpr, ObjectName, ObjectNamePart, SetExpr, Statement,
    TableAlias, TableFactor, Value, Visit, Visitor,
};
use datafusion::sql::sqlparser::parser::Parser;

use super::dialect::POSTGRES;
use super::identifier::quote;
use crate::error::SqlError;

/// A function in FROM in the planner's form; `None` if it stays as it is.
///
/// # Errors
/// When its rows are to be numbered and it refers to columns of other tables.
pub(super) fn adapted(table: &TableFactor) -> Result<Option<TableFactor>, SqlError> {
    if with_ordinality(table) {
        return numbered(table).map(Some);
    }
    Ok(series_of_parameters(table))
}

fn with_ordinality(table: &TableFactor) -> bool {
    matches!(
        table,
        TableFactor::Table { with_ordinality: true, .. }
            | TableFactor::Function { with_ordinality: true, .. }
            | TableFactor::UNNEST { with_ordinality: true, .. }
    )
}

/// The rows of a function, numbered.
fn numbered(table: &TableFactor) -> Result<TableFactor, SqlError> {
    if is_lateral(table) {
        return Err(SqlError::unsupported("WITH ORDINALITY over columns of another table")
            .with_hint("row_number() OVER () numbers rows"));
    }
    let mut plain = table.clone();
    let (alias, count, name) = match &mut plain {
        TableFactor::UNNEST { alias, array_exprs, with_ordinality, .. } => {
            *with_ordinality = false;
            (alias, array_exprs.len(), "unnest".to_owned())
        }
        TableFactor::Function { name, with_ordinality, alias, .. }
        | TableFactor::Table { name, with_ordinality, alias, .. } => {
            *with_ordinality = false;
            (alias, 1, last(name).unwrap_or_default())
        }
        _ => return Err(SqlError::internal("a table without rows to number")),
    };
    let written_alias = alias.take();
    let table_name =
        written_alias.as_ref().map_or_else(|| name.clone(), |alias| alias.name.value.clone());
    let of_alias = |position: usize| {
        let column = written_alias.as_ref().and_then(|alias| alias.columns.get(position));
        column.map(|column| column.name.value.clone())
    };
    // The column of a function of one column is named after the function, or its alias.
    let names: Vec<String> = (0..count)
        .map(|position| of_alias(position).unwrap_or_else(|| table_name.clone()))
        .collect();
    let number = of_alias(count).unwrap_or_else(|| "ordinality".to_owned());
    // Several columns may have one name; the inner names are distinct.
    let inside: Vec<String> = (0..count).map(|position| format!("c{position}")).collect();
    let columns = names.iter().chain([&number]);
    let outer_names: Vec<String> = columns.map(|name| quote(name).into_owned()).collect();
    let text = format!(
        "SELECT * FROM (SELECT {columns}, row_number() OVER () AS n FROM {plain} AS u ({columns})) AS {} ({})",
        quote(&table_name),
        outer_names.join(", "),
        columns = inside.join(", "),
    );
    factor_of(&text).ok_or_else(|| SqlError::internal("WITH ORDINALITY was not read again"))
}

/// A series with a parameter among its bounds and step.
fn series_of_parameters(table: &TableFactor) -> Option<TableFactor> {
    let (name, args, alias) = match table {
        TableFactor::Table { name, args: Some(args), alias, .. } => (name, &args.args, alias),
        TableFactor::Function { name, args, alias, .. } => (name, args, alias),
        _ => return None,
    };
    let is_series = last(name).is_some_and(|name| name == "generate_series");
    if !is_series || !args.iter().any(names_a_parameter) {
        return None;
    }
    let ends = args.iter().map(|arg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) if is_parameter(value) => {
            format!("CAST({value} AS {})", DataType::BigInt(None))
        }
        arg => arg.to_string(),
    });
    let ends: Vec<String> = ends.collect();
    let text = format!(
        "SELECT * FROM (SELECT unnest(generate_series({})) AS value) AS {}",
        ends.join(", "),
        alias.as_ref().map_or_else(|| quote("generate_series").into_owned(), shown),
    );
    factor_of(&text)
}

fn shown(alias: &TableAlias) -> String {
    let columns: Vec<String> = alias.columns.iter().map(ToString::to_string).collect();
    if columns.is_empty() {
        return alias.name.to_string();
    }
    format!("{} ({})", alias.name, columns.join(", "))
}

fn is_parameter(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(value) if matches!(value.value, Value::Placeholder(_)))
}

fn names_a_parameter(arg: &FunctionArg) -> bool {
    finds(arg, is_parameter)
}

/// Returns true if the arguments of a function name columns, which belong to other tables.
fn is_lateral(table: &TableFactor) -> bool {
    let is_column = |expr: &Expr| matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
    match table {
        TableFactor::UNNEST { array_exprs, .. } => {
            array_exprs.iter().any(|array| finds(array, is_column))
        }
        TableFactor::Function { args, .. } => args.iter().any(|arg| finds(arg, is_column)),
        TableFactor::Table { args: Some(args), .. } => {
            args.args.iter().any(|arg| finds(arg, is_column))
        }
        _ => false,
    }
}

fn finds(tree: &impl Visit, predicate: fn(&Expr) -> bool) -> bool {
    struct Finder(fn(&Expr) -> bool);
    impl Visitor for Finder {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            if (self.0)(expr) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }
    tree.visit(&mut Finder(predicate)).is_break()
}

/// The last part of a name, folded.
fn last(name: &ObjectName) -> Option<String> {
    name.0.last().and_then(ObjectNamePart::as_ident).map(super::shown_names::folded)
}

/// The table of `SELECT * FROM table`.
fn factor_of(text: &str) -> Option<TableFactor> {
    let statement = Parser::parse_sql(&POSTGRES, text).ok()?.pop()?;
    let Statement::Query(query) = statement else { return None };
    let SetExpr::Select(select) = *query.body else { return None };
    select.from.into_iter().next().map(|item| item.relation)
}
