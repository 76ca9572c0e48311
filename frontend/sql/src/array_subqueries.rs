//! `ARRAY(query)`: the values of a query of one column as an array, which the planner knows as an aggregate only.
//!
//! ```text
//!   ARRAY(SELECT v FROM t)                     coalesce((SELECT array_agg(v) FROM (..) AS r (v)), make_array())
//!   ARRAY(SELECT v FROM t ORDER BY w LIMIT 3)  .. array_agg(v ORDER BY n) FROM (SELECT v, row_number() OVER (ORDER BY w) AS n
//!                                                 FROM t ORDER BY w LIMIT 3) AS r
//!   ARRAY(SELECT DISTINCT v FROM t ORDER BY v) .. array_agg(v ORDER BY v) FROM (..) AS r (v)
//! ```
//!
//! Without rows the array is empty, not NULL. An aggregate ignores the order of its subquery, so it gets that order
//! itself.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Distinct, Expr, Function, FunctionArguments, GroupByExpr, Ident, OrderByExpr, OrderByKind,
    OrderByOptions, Query, SelectItem, SetExpr, TableFactor, Value, VisitMut, VisitorMut,
    WindowSpec, WindowType,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

use super::rewritten::call;
use crate::error::SqlError;

/// Column of the values.
const VALUE: &str = "array_value";
/// Column of the places of the values.
const NUMBER: &str = "array_number";

/// `ARRAY(query)` as an aggregate over the query; `None` for other calls.
///
/// # Errors
/// When the order of the query cannot be given to an aggregate.
pub(super) fn collected(function: &Function) -> Result<Option<Expr>, SqlError> {
    let FunctionArguments::Subquery(query) = &function.args else { return Ok(None) };
    let [name] = function.name.0.as_slice() else { return Ok(None) };
    if !name.as_ident().is_some_and(|name| name.value.eq_ignore_ascii_case("array")) {
        return Ok(None);
    }
    let mut rows = Query::clone(query);
    let (order, columns) = match place(&mut rows)? {
        Order::None => (String::new(), format!(" ({VALUE})")),
        Order::ByNumber => (format!(" ORDER BY {NUMBER}"), String::new()),
        Order::ByValue(options) => {
            (format!(" ORDER BY {VALUE}{}", shown(options)), format!(" ({VALUE})"))
        }
    };
    let template = format!(
        "coalesce((SELECT array_agg({VALUE}{order}) FROM (SELECT 1) AS array_rows{columns}), make_array())"
    );
    let mut parser = Parser::new(&PostgreSqlDialect {})
        .try_with_sql(&template)
        .map_err(|error| SqlError::internal(error.to_string()))?;
    let mut array = parser.parse_expr().map_err(|error| SqlError::internal(error.to_string()))?;
    // The first derived table is that of the template, whatever the query has.
    let _visited = array.visit(&mut Rows(Some(rows)));
    Ok(Some(array))
}

/// Order of the elements.
enum Order {
    /// Any.
    None,
    /// By the number of each row.
    ByNumber,
    /// By the value itself.
    ByValue(OrderByOptions),
}

/// Takes the order out of a query, and numbers its rows where that is necessary.
fn place(rows: &mut Query) -> Result<Order, SqlError> {
    let Some(order) = &rows.order_by else { return Ok(Order::None) };
    let refusal = || SqlError::unsupported("this ORDER BY in ARRAY(SELECT ...)");
    let OrderByKind::Expressions(keys) = &order.kind else { return Err(refusal()) };
    let mut keys = keys.clone();
    let column = column_of(&rows.body);
    if !is_numbered(&rows.body) {
        let [key] = keys.as_slice() else { return Err(refusal()) };
        // The planner refuses other keys of a set operation.
        let is_value = match &column {
            Some(column) => column.is_meant_by(&key.expr),
            None => matches!(rows.body.as_ref(), SetExpr::SetOperation { .. }),
        };
        return if is_value { Ok(Order::ByValue(key.options)) } else { Err(refusal()) };
    }
    let (SetExpr::Select(select), Some(column)) = (rows.body.as_mut(), column) else {
        return Err(refusal());
    };
    for key in &mut keys {
        if column.is_meant_by(&key.expr) {
            key.expr = column.value.clone();
        }
    }
    let number = row_number(keys.clone()).ok_or_else(refusal)?;
    select.projection = vec![named(column.value, VALUE), named(number, NUMBER)];
    // A LIMIT takes the first rows in the order.
    let has_limit = rows.limit_clause.is_some() || rows.fetch.is_some();
    if !has_limit {
        rows.order_by = None;
    } else if let Some(order) = &mut rows.order_by {
        order.kind = OrderByKind::Expressions(keys);
    }
    Ok(Order::ByNumber)
}

/// The only column of a query.
struct OnlyColumn {
    value: Expr,
    alias: Option<Ident>,
}

impl OnlyColumn {
    /// True if a key of ORDER BY is the column: its number, its name or the same expression.
    fn is_meant_by(&self, key: &Expr) -> bool {
        let is_shown = match key {
            Expr::Value(number) => matches!(&number.value, Value::Number(text, _) if text == "1"),
            Expr::Identifier(name) => {
                let alias = self.alias.as_ref();
                alias.is_some_and(|alias| alias.value.eq_ignore_ascii_case(&name.value))
            }
            _ => false,
        };
        is_shown || *key == self.value
    }
}

fn column_of(body: &SetExpr) -> Option<OnlyColumn> {
    let SetExpr::Select(select) = body else { return None };
    match select.projection.as_slice() {
        [SelectItem::UnnamedExpr(value)] => Some(OnlyColumn { value: value.clone(), alias: None }),
        [SelectItem::ExprWithAlias { expr, alias }] => {
            Some(OnlyColumn { value: expr.clone(), alias: Some(alias.clone()) })
        }
        _ => None,
    }
}

/// True if the rows of a query can be numbered. Grouped queries, DISTINCT ones and set operations cannot: they are
/// ordered by their column only.
fn is_numbered(body: &SetExpr) -> bool {
    let SetExpr::Select(select) = body else { return false };
    let is_grouped = match &select.group_by {
        GroupByExpr::Expressions(groups, _) => !groups.is_empty(),
        GroupByExpr::All(_) => true,
    };
    !is_grouped
        && select.having.is_none()
        && !matches!(select.distinct, Some(Distinct::Distinct | Distinct::On(_)))
}

fn row_number(order_by: Vec<OrderByExpr>) -> Option<Expr> {
    let Expr::Function(mut function) = call("row_number", Vec::new()) else { return None };
    function.over = Some(WindowType::WindowSpec(WindowSpec {
        window_name: None,
        partition_by: Vec::new(),
        order_by,
        window_frame: None,
    }));
    Some(Expr::Function(function))
}

fn named(expr: Expr, name: &str) -> SelectItem {
    SelectItem::ExprWithAlias { expr, alias: Ident::new(name) }
}

fn shown(options: OrderByOptions) -> String {
    let direction = match options.asc {
        Some(false) => " DESC",
        _ => "",
    };
    let nulls = match options.nulls_first {
        Some(true) => " NULLS FIRST",
        Some(false) => " NULLS LAST",
        None => "",
    };
    format!("{direction}{nulls}")
}

/// Puts the query in the place of the first derived table.
struct Rows(Option<Query>);

impl VisitorMut for Rows {
    type Break = ();

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        if let (TableFactor::Derived { subquery, .. }, Some(rows)) = (table, self.0.take()) {
            **subquery = rows;
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use crate::parser::parse;
    use crate::statement::Statement;

    fn written(expression: &str) -> String {
        let parsed = parse(&format!("SELECT {expression}")).unwrap().pop();
        let Some(Statement::Query(query)) = parsed else { panic!("{expression}") };
        query.statement.to_string()
    }

    #[test]
    fn a_query_becomes_an_aggregate_in_its_order() {
        let plain = written("ARRAY(SELECT v FROM t)");
        assert!(plain.contains("array_agg(array_value) FROM (SELECT v FROM t)"), "{plain}");
        let ordered = written("ARRAY(SELECT v AS x FROM t ORDER BY x DESC, w LIMIT 3)");
        for part in [
            "array_agg(array_value ORDER BY array_number)",
            "row_number() OVER (ORDER BY v DESC, w) AS array_number",
            "ORDER BY v DESC, w LIMIT 3",
        ] {
            assert!(ordered.contains(part), "{part}: {ordered}");
        }
        let distinct = written("ARRAY(SELECT DISTINCT v FROM t ORDER BY 1 DESC)");
        assert!(
            distinct.contains("array_agg(array_value ORDER BY array_value DESC)"),
            "{distinct}"
        );
        // Arrays of elements are others.
        assert!(written("ARRAY[1, 2]").contains("[1, 2]"));
    }
}
