//! Moves subqueries that the planner does not accept where they are: in ON, and compared with rows.
//!
//! ```text
//!   a JOIN b ON a.k = b.k AND EXISTS (S)        a JOIN b ON a.k = b.k .. WHERE EXISTS (S)
//!   a LEFT JOIN b ON a.k = b.k AND b.y IN (S)   a LEFT JOIN (SELECT * FROM b WHERE b.y IN (S)) AS b ON a.k = b.k
//!   (a, b) IN (S)                               true if S has a row equal to (a, b); NULL if that is unknown
//! ```
//!
//! Invariant: a subquery that cannot be moved is refused by name.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CaseWhen, Expr, GroupByExpr, Ident, Join, JoinConstraint, JoinOperator,
    ObjectNamePart, Query, Select, SelectFlavor, SelectItem, SetExpr, TableAlias,
    TableAliasColumnDef, TableFactor, TableWithJoins, Value, Visit, VisitMut, Visitor, VisitorMut,
    WildcardAdditionalOptions, helpers::attached_token::AttachedToken,
};

use super::rewritten::row;
use super::shown_names::folded;
use crate::error::SqlError;

/// Moves the subqueries of a query, or of an expression, to places that the planner accepts.
///
/// # Errors
/// When one cannot be moved.
pub(super) fn rewrite(tree: &mut impl VisitMut) -> Result<(), SqlError> {
    match tree.visit(&mut Moved) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

struct Moved;

impl VisitorMut for Moved {
    type Break = Box<SqlError>;

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Self::Break> {
        let mut moved = Vec::new();
        for item in &mut select.from {
            match out_of_on(item) {
                Ok(conditions) => moved.extend(conditions),
                Err(error) => return ControlFlow::Break(Box::new(error)),
            }
        }
        let conditions = select.selection.take().into_iter().chain(moved);
        select.selection = conditions.reduce(and);
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        let compared = match expr {
            Expr::InSubquery { expr: operand, subquery, negated } => {
                row(operand).map(|values| in_rows(&values, subquery, *negated))
            }
            Expr::BinaryOp { left, right, .. } => {
                let rows = |first: &Expr, second: &Expr| {
                    row(first).is_some_and(|row| row.len() > 1)
                        && matches!(second, Expr::Subquery(_))
                };
                (rows(left, right) || rows(right, left)).then(|| {
                    Err(SqlError::unsupported("a comparison of a row with a subquery")
                        .with_hint("write (a, b) IN (SELECT ..)"))
                })
            }
            _ => None,
        };
        match compared {
            None => {}
            Some(Ok(compared)) => *expr = compared,
            Some(Err(error)) => return ControlFlow::Break(Box::new(error)),
        }
        ControlFlow::Continue(())
    }
}

/// A condition that is true if a row of values is among the rows of a query (or not among them, if `negated`).
fn in_rows(values: &[Expr], query: &Query, negated: bool) -> Result<Expr, SqlError> {
    const NAME: &str = "__row";
    // PostgreSQL's errors for a wrong number of columns, where it is known.
    if let SetExpr::Select(select) = query.body.as_ref() {
        let plain = select.projection.iter().all(|item| {
            matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. })
        });
        if plain && select.projection.len() < values.len() {
            return Err(SqlError::syntax("subquery has too few columns"));
        }
        if plain && select.projection.len() > values.len() {
            return Err(SqlError::syntax("subquery has too many columns"));
        }
    }
    // The query becomes a table with numbered columns, to which the values are compared.
    let column = |position: usize| Ident::new(format!("column{}", position + 1));
    let equal = values.iter().enumerate().map(|(position, value)| Expr::BinaryOp {
        left: Box::new(Expr::Nested(Box::new(value.clone()))),
        op: BinaryOperator::Eq,
        right: Box::new(Expr::CompoundIdentifier(vec![Ident::new(NAME), column(position)])),
    });
    let equal = equal.reduce(and).unwrap_or_else(|| Expr::Value(Value::Boolean(true).into()));
    let columns = (0..values.len())
        .map(|position| TableAliasColumnDef { name: column(position), data_type: None });
    let rows = TableFactor::Derived {
        lateral: false,
        subquery: Box::new(query.clone()),
        alias: Some(TableAlias {
            explicit: true,
            name: Ident::new(NAME),
            columns: columns.collect(),
            at: None,
        }),
        sample: None,
    };
    // IN is true if a row is equal, NULL if the comparison with some row is, false otherwise.
    let exists = |condition: Expr| {
        let query =
            select(rows.clone(), Expr::Value(Value::Number("1".into(), false).into()), condition);
        Expr::Exists { subquery: Box::new(query), negated: false }
    };
    let value = |value: Value| Expr::Value(value.into());
    let unknown = Expr::IsNull(Box::new(Expr::Nested(Box::new(equal.clone()))));
    Ok(Expr::Nested(Box::new(Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: vec![
            CaseWhen { condition: exists(equal), result: value(Value::Boolean(!negated)) },
            CaseWhen { condition: exists(unknown), result: value(Value::Null) },
        ],
        else_result: Some(Box::new(value(Value::Boolean(negated)))),
    })))
}

/// `SELECT expr FROM rows WHERE condition`.
fn select(rows: TableFactor, expr: Expr, condition: Expr) -> Query {
    let item = SelectItem::UnnamedExpr(expr);
    let table = TableWithJoins { relation: rows, joins: Vec::new() };
    of_select(vec![item], table, condition)
}

fn of_select(projection: Vec<SelectItem>, item: TableWithJoins, condition: Expr) -> Query {
    // Every field is named: sqlparser's structs have no defaults.
    let select = Select {
        select_token: AttachedToken::empty(),
        optimizer_hints: Vec::new(),
        distinct: None,
        select_modifiers: None,
        top: None,
        top_before_distinct: false,
        projection,
        exclude: None,
        into: None,
        from: vec![item],
        lateral_views: Vec::new(),
        prewhere: None,
        selection: Some(condition),
        connect_by: Vec::new(),
        group_by: GroupByExpr::Expressions(Vec::new(), Vec::new()),
        cluster_by: Vec::new(),
        distribute_by: Vec::new(),
        sort_by: Vec::new(),
        having: None,
        named_window: Vec::new(),
        qualify: None,
        window_before_qualify: false,
        value_table_mode: None,
        flavor: SelectFlavor::Standard,
    };
    Query {
        with: None,
        body: Box::new(SetExpr::Select(Box::new(select))),
        order_by: None,
        limit_clause: None,
        fetch: None,
        locks: Vec::new(),
        for_clause: None,
        settings: None,
        format_clause: None,
        pipe_operators: Vec::new(),
    }
}

/// Takes the conditions with subqueries out of a FROM item's joins; returns those that belong in WHERE.
fn out_of_on(item: &mut TableWithJoins) -> Result<Vec<Expr>, SqlError> {
    let mut moved = Vec::new();
    // A later join that keeps all rows of its right side fills the columns before it with NULL.
    let mut movable = true;
    for join in item.joins.iter_mut().rev() {
        let subqueries = take_subqueries(join);
        if !subqueries.is_empty() {
            match &join.join_operator {
                JoinOperator::Join(_) | JoinOperator::Inner(_) if movable => {
                    moved.extend(subqueries)
                }
                JoinOperator::Left(_) | JoinOperator::LeftOuter(_) => {
                    restrict(&mut join.relation, subqueries)?;
                }
                _ => return Err(SqlError::unsupported("a subquery in ON of RIGHT or FULL JOIN")),
            }
        }
        movable &= !matches!(
            join.join_operator,
            JoinOperator::Right(_) | JoinOperator::RightOuter(_) | JoinOperator::FullOuter(_)
        );
    }
    Ok(moved)
}

/// Takes the conjuncts with subqueries out of ON.
fn take_subqueries(join: &mut Join) -> Vec<Expr> {
    let (JoinOperator::Join(constraint)
    | JoinOperator::Inner(constraint)
    | JoinOperator::Left(constraint)
    | JoinOperator::LeftOuter(constraint)
    | JoinOperator::Right(constraint)
    | JoinOperator::RightOuter(constraint)
    | JoinOperator::FullOuter(constraint)) = &mut join.join_operator
    else {
        return Vec::new();
    };
    let JoinConstraint::On(condition) = constraint else { return Vec::new() };
    if !has_subquery(condition) {
        return Vec::new();
    }
    let (with_subqueries, rest): (Vec<Expr>, Vec<Expr>) =
        conjuncts(condition.clone()).into_iter().partition(has_subquery);
    *condition =
        rest.into_iter().reduce(and).unwrap_or_else(|| Expr::Value(Value::Boolean(true).into()));
    with_subqueries
}

fn conjuncts(condition: Expr) -> Vec<Expr> {
    let mut conjuncts = Vec::new();
    let mut waiting = vec![condition];
    while let Some(next) = waiting.pop() {
        match next {
            Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
                waiting.push(*right);
                waiting.push(*left);
            }
            conjunct => conjuncts.push(conjunct),
        }
    }
    conjuncts
}

fn and(left: Expr, right: Expr) -> Expr {
    let nested = |operand: Expr| match operand {
        Expr::BinaryOp { op: BinaryOperator::Or, .. } => Expr::Nested(Box::new(operand)),
        operand => operand,
    };
    let (left, right) = (Box::new(nested(left)), Box::new(nested(right)));
    Expr::BinaryOp { left, op: BinaryOperator::And, right }
}

fn has_subquery(expr: &Expr) -> bool {
    struct Found;
    impl Visitor for Found {
        type Break = ();

        fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            ControlFlow::Break(())
        }
    }
    expr.visit(&mut Found).is_break()
}

/// Stops at names that are not columns of a table.
struct Named<'a> {
    table: &'a Ident,
    depth: usize,
}
impl Visitor for Named<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        let is_of_table = match expr {
            // Names in a subquery are resolved by the subquery, or fail.
            _ if self.depth > 0 => true,
            Expr::Identifier(_) => false,
            Expr::CompoundIdentifier(path) => match path.as_slice() {
                [table, _] => folded(table) == folded(self.table),
                _ => false,
            },
            _ => true,
        };
        if is_of_table { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

/// Replaces a table by those of its rows that satisfy conditions, if these name columns of no other table.
fn restrict(relation: &mut TableFactor, conditions: Vec<Expr>) -> Result<(), SqlError> {
    let refused = || {
        SqlError::unsupported("a subquery in ON of LEFT JOIN, unless all is of the right table,")
            .with_hint("name the columns with the right table's name, t.column")
    };
    // Columns are recognized by the table's name.
    let name = match &*relation {
        TableFactor::Table { alias: Some(alias), args: None, .. }
        | TableFactor::Derived { alias: Some(alias), .. } => alias.name.clone(),
        TableFactor::Table { name, alias: None, args: None, .. } => {
            let last = name.0.last().and_then(ObjectNamePart::as_ident);
            last.cloned().ok_or_else(refused)?
        }
        _ => return Err(refused()),
    };
    let is_local =
        |condition: &Expr| condition.visit(&mut Named { table: &name, depth: 0 }).is_continue();
    if !conditions.iter().all(is_local) {
        return Err(refused());
    }
    // The table becomes a subquery of the same name.
    let Some(condition) = conditions.into_iter().reduce(and) else { return Ok(()) };
    let item = TableWithJoins { relation: relation.clone(), joins: Vec::new() };
    let wildcard = vec![SelectItem::Wildcard(WildcardAdditionalOptions::default())];
    *relation = TableFactor::Derived {
        lateral: false,
        subquery: Box::new(of_select(wildcard, item, condition)),
        alias: Some(TableAlias { explicit: true, name, columns: Vec::new(), at: None }),
        sample: None,
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::statement::Statement;
    use crate::parser::parse;

    /// A query with its subqueries moved, or the error's SQLSTATE.
    fn moved(sql: &str) -> Result<String, String> {
        match parse(sql).map_err(|error| error.sqlstate)?.pop() {
            Some(Statement::Query(query)) => Ok(query.statement.to_string()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn subqueries_leave_on() {
        for (written, meant) in [
            (
                "SELECT * FROM a JOIN b ON a.k = b.k AND EXISTS (SELECT 1 FROM c WHERE c.k = b.k) WHERE x = 1 OR y = 2",
                "SELECT * FROM a JOIN b ON a.k = b.k WHERE (x = 1 OR y = 2) AND EXISTS (SELECT 1 FROM c WHERE c.k = b.k)",
            ),
            (
                "SELECT * FROM a JOIN b ON b.k = (SELECT max(k) FROM c) LEFT JOIN d ON d.k = b.k",
                "SELECT * FROM a JOIN b ON true LEFT JOIN d ON d.k = b.k WHERE b.k = (SELECT max(k) FROM c)",
            ),
            (
                "SELECT * FROM a LEFT JOIN b ON a.k = b.k AND b.y IN (SELECT y FROM c)",
                "SELECT * FROM a LEFT JOIN (SELECT * FROM b WHERE b.y IN (SELECT y FROM c)) AS b ON a.k = b.k",
            ),
        ] {
            assert_eq!(moved(written).unwrap(), meant, "{written}");
        }
        for refused in [
            "SELECT * FROM a LEFT JOIN b ON a.k IN (SELECT k FROM c)",
            "SELECT * FROM a FULL JOIN b ON a.k = b.k AND b.k IN (SELECT k FROM c)",
            "SELECT * FROM a JOIN b ON b.k IN (SELECT k FROM c) RIGHT JOIN d ON d.k = b.k",
            "SELECT * FROM a WHERE (k, x) = (SELECT k, x FROM b)",
        ] {
            assert_eq!(moved(refused), Err("0A000".to_owned()), "{refused}");
        }
    }

    #[test]
    fn rows_are_looked_for_by_column() {
        assert_eq!(
            moved("SELECT (a, b) IN (SELECT c, d FROM t) FROM s").unwrap(),
            "SELECT (CASE WHEN EXISTS (SELECT 1 FROM (SELECT c, d FROM t) AS __row (column1, column2) \
             WHERE (a) = __row.column1 AND (b) = __row.column2) THEN true \
             WHEN EXISTS (SELECT 1 FROM (SELECT c, d FROM t) AS __row (column1, column2) \
             WHERE ((a) = __row.column1 AND (b) = __row.column2) IS NULL) THEN NULL ELSE false END) FROM s"
        );
        assert_eq!(moved("SELECT (a, b) IN (SELECT c FROM t) FROM s"), Err("42601".to_owned()));
    }
}
