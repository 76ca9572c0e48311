//! Functions in FROM that the planner does not accept as they are written.
//!
//! ```text
//!   unnest(a) WITH ORDINALITY AS t (x, n)   (SELECT x, row_number() OVER () AS n FROM unnest(a) AS t (x)) AS t (x, n)
//!   t, unnest(t.a) AS u (x)                 t, LATERAL (SELECT unnest(t.a) AS c0) AS u (x)
//!   t, unnest(ARRAY[t.n]) AS u (x)          t, LATERAL (SELECT unnest(make_array(t.n)) AS c0) AS u (x)
//!   t, generate_series(1, t.n) AS g         t, LATERAL (SELECT unnest(generate_series(1, t.n)) AS c0) AS g (g)
//!   jsonb_array_elements(b) AS e            (SELECT jsonb_array_elements(b) AS c0) AS e (value), and so with other sets
//!   jsonb_each(b) AS e                      (SELECT c0, jsonb_extract_path(b, c0) AS c1 FROM .. its keys) AS e (key, value)
//!   generate_series(1, $1) AS g             (SELECT unnest(generate_series(1, CAST($1 AS BIGINT))) AS value) AS g
//!   generate_series(1, 3) AS n              generate_series(1, 3) AS n (n), if a column is missing otherwise
//! ```
//!
//! The planner evaluates a function in FROM while it plans, before parameters have values. An array has a bounded
//! length instead.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as PlannerStatement;
use datafusion::sql::sqlparser::ast::{
    DataType, Expr, FunctionArg, FunctionArgExpr, Ident, ObjectName, ObjectNamePart, Query,
    SelectItem, SetExpr, Statement, TableAlias, TableAliasColumnDef, TableFactor, Value, Visit,
    VisitMut, Visitor, VisitorMut, visit_expressions_mut,
};
use datafusion::sql::sqlparser::parser::Parser;

use super::dialect::POSTGRES;
use super::identifier::quote;
use super::rewritten::call;
use super::shown_names::folded;
use crate::error::SqlError;

/// Functions of one column that the planner knows in FROM.
const SERIES: [&str; 3] = ["generate_series", "range", "unnest"];

/// A function in FROM in the planner's form; `None` if it stays as it is.
///
/// # Errors
/// When its rows are to be numbered and it refers to columns of other tables, unless it is `unnest`.
pub(super) fn adapted(table: &TableFactor) -> Result<Option<TableFactor>, SqlError> {
    if let Some(elements) = elements_of_columns(table) {
        return Ok(Some(elements));
    }
    if with_ordinality(table) {
        return numbered(table).map(Some);
    }
    Ok(series(table).or_else(|| set(table)))
}

/// Names the column of each function of one column in FROM by the alias of the function, or by the function itself;
/// returns false if there is none. The planner's own name of the column is `value`, which users may have taken over.
pub fn name_function_columns(statement: &mut PlannerStatement) -> bool {
    let mut naming = FunctionColumns { is_changed: false };
    if let PlannerStatement::Statement(tree) = statement {
        let _nothing_breaks = tree.visit(&mut naming);
    }
    naming.is_changed
}

struct FunctionColumns {
    is_changed: bool,
}

impl VisitorMut for FunctionColumns {
    type Break = ();

    fn post_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Derived { subquery, alias: Some(alias), .. } = table {
            self.is_changed |= name_value(subquery, alias);
            return ControlFlow::Continue(());
        }
        let (alias, function) = match table {
            TableFactor::UNNEST { alias, array_exprs, .. } if array_exprs.len() == 1 => {
                (alias, "unnest".to_owned())
            }
            TableFactor::Table { name, args: Some(_), alias, .. }
            | TableFactor::Function { name, alias, .. } => {
                let function = last(name).filter(|name| SERIES.contains(&name.as_str()));
                let Some(function) = function else { return ControlFlow::Continue(()) };
                (alias, function)
            }
            _ => return ControlFlow::Continue(()),
        };
        let alias = alias.get_or_insert_with(|| TableAlias {
            explicit: true,
            name: Ident::with_quote('"', function),
            columns: Vec::new(),
            at: None,
        });
        if alias.columns.is_empty() {
            let name = alias.name.clone();
            alias.columns.push(TableAliasColumnDef { name, data_type: None });
            self.is_changed = true;
        }
        ControlFlow::Continue(())
    }
}

/// Names the column `value` of a function that was written as a subquery.
fn name_value(subquery: &Query, alias: &mut TableAlias) -> bool {
    let SetExpr::Select(select) = subquery.body.as_ref() else { return false };
    let [SelectItem::ExprWithAlias { expr, alias: item }] = select.projection.as_slice() else {
        return false;
    };
    let is_series = matches!(expr, Expr::Function(function)
        if last(&function.name).as_deref() == Some("unnest"));
    let is_value = match alias.columns.as_slice() {
        [] => item.value == "value" && is_series,
        [column] => item.value == "c0" && column.name.value == "value",
        _ => false,
    };
    if is_value {
        alias.columns = vec![TableAliasColumnDef { name: alias.name.clone(), data_type: None }];
    }
    is_value
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
    let outside = names(alias.take().as_ref(), &name, count, true);
    // Several columns may have one name; the inner names are distinct.
    let inside: Vec<String> = (0..count).map(|position| format!("c{position}")).collect();
    let text = format!(
        "SELECT * FROM (SELECT {columns}, row_number() OVER () AS n FROM {plain} AS u ({columns})) AS {outside}",
        columns = inside.join(", "),
    );
    factor_of(&text).ok_or_else(|| SqlError::internal("WITH ORDINALITY was not read again"))
}

/// The arguments of `unnest`; `None` for another function, and for arguments with names.
fn arrays_of(table: &TableFactor) -> Option<Vec<&Expr>> {
    match table {
        TableFactor::UNNEST { array_exprs, .. } => Some(array_exprs.iter().collect()),
        TableFactor::Function { name, args, .. } if last(name).as_deref() == Some("unnest") => {
            let arrays = args.iter().map(|arg| match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(array)) => Some(array),
                _ => None,
            });
            arrays.collect()
        }
        _ => None,
    }
}

/// The elements of arrays of columns of the tables before, numbered if the statement says so.
fn elements_of_columns(table: &TableFactor) -> Option<TableFactor> {
    let arrays = arrays_of(table)?;
    if !is_lateral(table) {
        return None;
    }
    let (TableFactor::UNNEST { with_ordinality, alias, .. }
    | TableFactor::Function { with_ordinality, alias, .. }) = table
    else {
        return None;
    };
    let with_ordinality = *with_ordinality;
    let arrays: Vec<Expr> = arrays.into_iter().map(with_calls).collect();
    let names = names(alias.as_ref(), "unnest", arrays.len(), with_ordinality);
    let columns = arrays.iter().enumerate();
    let mut columns: Vec<String> =
        columns.map(|(position, array)| format!("unnest({array}) AS c{position}")).collect();
    if with_ordinality {
        // The longest array has an element in each row.
        let lengths = arrays.iter().map(|array| format!("CAST(cardinality({array}) AS BIGINT)"));
        let lengths = lengths.collect::<Vec<_>>().join(", ");
        let longest = if arrays.len() == 1 { lengths } else { format!("greatest({lengths})") };
        columns.push(format!("unnest(generate_series(1, {longest})) AS n"));
    }
    factor_of(&format!("SELECT * FROM LATERAL (SELECT {}) AS {names}", columns.join(", ")))
}

/// An array whose literals are calls, in which the planner finds columns of other tables.
fn with_calls(array: &Expr) -> Expr {
    let mut array = array.clone();
    let _: ControlFlow<()> = visit_expressions_mut(&mut array, |part| {
        if let Expr::Array(literal) = part
            && literal.elem.iter().any(|element| finds(element, is_column))
        {
            let elements = std::mem::take(&mut literal.elem);
            *part = call("make_array", elements);
        }
        ControlFlow::Continue(())
    });
    array
}

/// The name of a function's rows and the names of its columns, `t (x, n)`: those of the alias, and others as PostgreSQL
/// names them. The column of a function of one column is named after the function, or its alias.
fn names(
    alias: Option<&TableAlias>,
    function: &str,
    count: usize,
    with_ordinality: bool,
) -> String {
    let table_name = alias.map_or_else(|| function.to_owned(), |alias| folded(&alias.name));
    let of_alias = |position: usize| {
        let column = alias.and_then(|alias| alias.columns.get(position));
        column.map(|column| folded(&column.name))
    };
    let columns =
        (0..count).map(|position| of_alias(position).unwrap_or_else(|| table_name.clone()));
    let number =
        with_ordinality.then(|| of_alias(count).unwrap_or_else(|| "ordinality".to_owned()));
    let columns: Vec<String> =
        columns.chain(number).map(|name| quote(&name).into_owned()).collect();
    format!("{} ({})", quote(&table_name), columns.join(", "))
}

/// A series with a parameter, or with columns of the tables before, in its bounds and step.
fn series(table: &TableFactor) -> Option<TableFactor> {
    let (name, args, alias) = match table {
        TableFactor::Table { name, args: Some(args), alias, .. } => (name, &args.args, alias),
        TableFactor::Function { name, args, alias, .. } => (name, args, alias),
        _ => return None,
    };
    let is_series = last(name).is_some_and(|name| name == "generate_series");
    let is_lateral = is_lateral(table);
    if !is_series || !(is_lateral || args.iter().any(names_a_parameter)) {
        return None;
    }
    let ends = args.iter().map(|arg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) if is_parameter(value) => {
            format!("CAST({value} AS {})", DataType::BigInt(None))
        }
        arg => arg.to_string(),
    });
    let ends = ends.collect::<Vec<_>>().join(", ");
    if is_lateral {
        let names = names(alias.as_ref(), "generate_series", 1, false);
        return factor_of(&format!(
            "SELECT * FROM LATERAL (SELECT unnest(generate_series({ends})) AS c0) AS {names}"
        ));
    }
    let text = format!(
        "SELECT * FROM (SELECT unnest(generate_series({ends})) AS value) AS {}",
        alias.as_ref().map_or_else(|| quote("generate_series").into_owned(), shown),
    );
    factor_of(&text)
}

/// A function of sets that is known in select lists.
fn set(table: &TableFactor) -> Option<TableFactor> {
    let (name, args, alias) = match table {
        TableFactor::Table { name, args: Some(args), alias, .. } => (name, &args.args, alias),
        TableFactor::Function { name, args, alias, .. } => (name, args, alias),
        _ => return None,
    };
    let function = last(name)?;
    let args: Vec<String> = args.iter().map(ToString::to_string).collect();
    let args = args.join(", ");
    let (rows, columns) = match function.as_str() {
        "json_array_elements"
        | "jsonb_array_elements"
        | "json_array_elements_text"
        | "jsonb_array_elements_text" => {
            (format!("SELECT {function}({args}) AS c0"), vec![Some("value")])
        }
        "json_object_keys"
        | "jsonb_object_keys"
        | "regexp_matches"
        | "regexp_split_to_table"
        | "string_to_table" => (format!("SELECT {function}({args}) AS c0"), vec![None]),
        "json_each" | "jsonb_each" | "json_each_text" | "jsonb_each_text" => {
            let (kind, ending) = function.split_once("_each")?;
            let keys = format!("SELECT {kind}_object_keys({args}) AS c0");
            let value = format!("{kind}_extract_path{ending}({args}, \"keys of it\".c0)");
            (
                format!("SELECT \"keys of it\".c0, {value} AS c1 FROM ({keys}) AS \"keys of it\""),
                vec![Some("key"), Some("value")],
            )
        }
        _ => return None,
    };
    let table_name = alias.as_ref().map_or(function, |alias| folded(&alias.name));
    let alias_names =
        alias.iter().flat_map(|alias| &alias.columns).map(|column| folded(&column.name));
    let defaults = columns.iter().map(|column| column.unwrap_or(&table_name).to_owned());
    let names: Vec<String> = alias_names
        .map(Some)
        .chain(std::iter::repeat(None))
        .zip(defaults)
        .map(|(name, default)| quote(&name.unwrap_or(default)).into_owned())
        .collect();
    let lateral = if is_lateral(table) { "LATERAL " } else { "" };
    factor_of(&format!(
        "SELECT * FROM {lateral}({rows}) AS {} ({})",
        quote(&table_name),
        names.join(", ")
    ))
}

/// An alias as it is written, with the names of its columns.
pub(super) fn shown(alias: &TableAlias) -> String {
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

fn is_column(expr: &Expr) -> bool {
    matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_))
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
pub(super) fn last(name: &ObjectName) -> Option<String> {
    name.0.last().and_then(ObjectNamePart::as_ident).map(folded)
}

/// The table of `SELECT * FROM table`.
pub(super) fn factor_of(text: &str) -> Option<TableFactor> {
    let statement = Parser::parse_sql(&POSTGRES, text).ok()?.pop()?;
    let Statement::Query(query) = statement else { return None };
    let SetExpr::Select(select) = *query.body else { return None };
    select.from.into_iter().next().map(|item| item.relation)
}

#[cfg(test)]
mod tests {
    use super::name_function_columns;
    use crate::adapted::adapt;
    use crate::{Statement, parse};

    fn written(sql: &str) -> (bool, String) {
        let Some(Statement::Query(mut query)) = parse(sql).unwrap().pop() else { panic!("{sql}") };
        let is_changed = name_function_columns(&mut query.statement);
        (is_changed, query.statement.to_string())
    }

    #[test]
    fn columns_of_functions_have_the_name_of_the_alias() {
        for (sql, expected) in [
            (
                "SELECT n FROM generate_series(1, 3) AS n",
                "SELECT n FROM generate_series(1, 3) AS n (n)",
            ),
            (
                "SELECT (SELECT max(e) FROM unnest(ARRAY[1, 2]) AS e) FROM t",
                "SELECT (SELECT max(e) FROM UNNEST(ARRAY[1, 2]) AS e (e)) FROM t",
            ),
            (
                "SELECT generate_series FROM generate_series(1, 3)",
                "SELECT generate_series FROM generate_series(1, 3) AS \"generate_series\" (\"generate_series\")",
            ),
        ] {
            assert_eq!(written(sql), (true, expected.to_owned()));
        }
        let adapted_name = |sql: &str| {
            let Some(Statement::Query(mut query)) = parse(sql).unwrap().pop() else { panic!() };
            adapt(&mut query.statement).unwrap();
            let text = query.statement.to_string();
            (text, name_function_columns(&mut query.statement), query.statement.to_string())
        };
        let (adapted, is_changed, renamed) =
            adapted_name("SELECT e FROM t, jsonb_array_elements(t.b) AS e");
        assert!(adapted.contains(" AS c0) AS e (value)"), "{adapted}");
        assert!(is_changed && renamed.contains(" AS c0) AS e (e)"), "{renamed}");
        let (adapted, is_changed, _) =
            adapted_name("SELECT k, v FROM jsonb_each_text('{}') AS e (k, v)");
        assert!(adapted.contains(" AS e (k, v)") && !is_changed, "{adapted}");
        assert!(!adapted.contains("LATERAL"), "{adapted}");
        for sql in [
            "SELECT x FROM generate_series(1, 3) AS g (x)",
            "SELECT * FROM elsewhere(1) AS e",
            "SELECT a, b FROM UNNEST(ARRAY[1], ARRAY[2]) AS u",
            "SELECT k FROM t AS u",
        ] {
            assert_eq!(written(sql), (false, sql.to_owned()));
        }
    }
}
