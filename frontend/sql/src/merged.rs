//! The merged columns of joins with USING and of NATURAL joins.
//!
//! `l FULL JOIN r USING (k)` has one column `k`: the value of the side that has a row. The planner takes the left
//! column, which is NULL where only the right side has a row, orders columns as the sides have them, and merges no more
//! than two tables. Here such a join is rewritten with ON. Where the join's SELECT names a merged column without a
//! table, the column is replaced by its expression, and `*` by the merged columns and the other columns of both sides:
//!
//! ```text
//!   l JOIN r USING (k) FULL JOIN s USING (k)    l JOIN r ON l.k = r.k FULL JOIN s ON l.k = s.k
//!   k                                           coalesce(l.k, s.k)
//!   *                                           coalesce(l.k, s.k) AS k, then the others of l, of r and of s
//! ```
//!
//! Only the catalog knows which columns a table has; the caller passes them as [`Tables`]. A derived table has those of
//! its SELECT.
//!
//! Invariant: a join whose columns are unknown is refused by name.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as PlannerStatement;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Cte, Distinct, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentList, FunctionArguments, GroupByExpr, Ident, JoinConstraint, JoinOperator,
    ObjectName, ObjectNamePart, OrderByKind, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, TableAlias, TableFactor, TableWithJoins, Value,
    Visit, VisitMut, Visitor, VisitorMut, WildcardAdditionalOptions,
};

use super::shown_names::{folded, given_name};
use crate::error::{AMBIGUOUS_COLUMN, SqlError, UNDEFINED_COLUMN};

/// The columns of the tables in a statement, in order, by the name that the statement uses.
pub type Tables = HashMap<String, Vec<String>>;

/// The tables in a statement whose columns must be looked up: all, if it has a join that merges columns, else none.
pub fn tables(statement: &PlannerStatement) -> Vec<ObjectName> {
    let mut visitor = Named { merges: false, tables: Vec::new() };
    if let PlannerStatement::Statement(tree) = statement {
        let _nothing_breaks = tree.visit(&mut visitor);
    }
    if visitor.merges { visitor.tables } else { Vec::new() }
}

struct Named {
    merges: bool,
    tables: Vec<ObjectName>,
}

impl Visitor for Named {
    type Break = ();

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        self.merges |= select.from.iter().any(merges);
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
        if !self.tables.contains(relation) {
            self.tables.push(relation.clone());
        }
        ControlFlow::Continue(())
    }
}

/// Returns true if a join of a FROM item merges columns.
fn merges(item: &TableWithJoins) -> bool {
    let nested = |factor: &TableFactor| match factor {
        TableFactor::NestedJoin { table_with_joins, .. } => merges(table_with_joins),
        _ => false,
    };
    nested(&item.relation)
        || item.joins.iter().any(|join| {
            let merging = matches!(
                constraint(&join.join_operator),
                Some((JoinConstraint::Using(_) | JoinConstraint::Natural, _))
            );
            merging || nested(&join.relation)
        })
}

/// Replaces the merged columns of a statement's joins by their expressions.
///
/// # Errors
/// When the columns of a join are unknown, missing or ambiguous.
pub fn rewrite(statement: &mut PlannerStatement, tables: &Tables) -> Result<(), SqlError> {
    let PlannerStatement::Statement(tree) = statement else { return Ok(()) };
    match tree.visit(&mut Merged { tables, shared: HashMap::new() }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

struct Merged<'a> {
    tables: &'a Tables,
    /// The columns of the queries of WITH that have been visited.
    shared: HashMap<String, Option<Vec<String>>>,
}

impl VisitorMut for Merged<'_> {
    type Break = Box<SqlError>;

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        match self.rewrite_query(query) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(Box::new(error)),
        }
    }

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        // The columns of a query that was not visited are unknown, and its name hides a table's.
        for cte in query.with.iter().flat_map(|clause| &clause.cte_tables) {
            self.shared.insert(folded(&cte.alias.name), None);
        }
        ControlFlow::Continue(())
    }
}

/// A column of a FROM item.
#[derive(Clone)]
struct Column {
    name: String,
    /// The expression for it outside of the join that merged it.
    of: Expr,
    merged: bool,
}

impl Merged<'_> {
    fn rewrite_query(&mut self, query: &mut Query) -> Result<(), SqlError> {
        // WITH precedes the body, whose joins may name it; both are visited before the query's end.
        if let Some(clause) = &query.with {
            for cte in &clause.cte_tables {
                let columns = self.of_shared(cte);
                self.shared.insert(folded(&cte.alias.name), columns);
            }
        }
        let Query { body, order_by, .. } = query;
        let joins = self.rewrite_body(body)?;
        let (SetExpr::Select(select), Some(columns)) = (body.as_ref(), joins) else {
            return Ok(());
        };
        let Some(order) = order_by else { return Ok(()) };
        let OrderByKind::Expressions(keys) = &mut order.kind else { return Ok(()) };
        for key in keys {
            // An output name takes precedence in ORDER BY.
            let is_output = match &key.expr {
                Expr::Identifier(name) => given(select, name)?,
                _ => false,
            };
            if !is_output {
                columns.replace_in(&mut key.expr);
            }
        }
        Ok(())
    }

    /// Rewrites the joins of a query's SELECTs; returns the merged columns if the query is one SELECT.
    fn rewrite_body(&mut self, body: &mut SetExpr) -> Result<Option<Columns>, SqlError> {
        match body {
            SetExpr::Select(select) if select.from.iter().any(merges) => {
                self.rewrite_select(select).map(Some)
            }
            SetExpr::SetOperation { left, right, .. } => {
                self.rewrite_body(left)?;
                self.rewrite_body(right)?;
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    fn rewrite_select(&self, select: &mut Select) -> Result<Columns, SqlError> {
        // The columns of all FROM items.
        let mut joined = Vec::new();
        for item in &mut select.from {
            joined.extend(self.joined(item)?);
        }
        let columns = Columns(joined);
        // In the select list, a merged column keeps its name, and a plain wildcard lists all
        // columns.
        let mut items = Vec::with_capacity(select.projection.len());
        for mut item in std::mem::take(&mut select.projection) {
            match item {
                SelectItem::Wildcard(ref options) if is_plain(options) => {
                    items.extend(columns.0.iter().map(Column::item));
                    continue;
                }
                SelectItem::UnnamedExpr(Expr::Identifier(ref name)) => {
                    if let Some(column) = columns.merged(name) {
                        items.push(column.item());
                        continue;
                    }
                }
                SelectItem::UnnamedExpr(ref mut expr)
                | SelectItem::ExprWithAlias { ref mut expr, .. } => columns.replace_in(expr),
                _ => {}
            }
            items.push(item);
        }
        select.projection = items;
        // In all other clauses, its expression replaces it.
        let filters = [&mut select.selection, &mut select.having, &mut select.qualify];
        for filter in filters.into_iter().flatten() {
            columns.replace_in(filter);
        }
        if let Some(Distinct::On(keys)) = &mut select.distinct {
            keys.iter_mut().for_each(|key| columns.replace_in(key));
        }
        if let GroupByExpr::Expressions(keys, _) = &mut select.group_by {
            keys.iter_mut().for_each(|key| columns.replace_in(key));
        }
        for window in &mut select.named_window {
            let _nothing_breaks = window.visit(&mut Replace { columns: &columns, depth: 0 });
        }
        Ok(columns)
    }

    /// Rewrites the joins of a FROM item with ON; returns its columns.
    fn joined(&self, item: &mut TableWithJoins) -> Result<Vec<Column>, SqlError> {
        let mut left = self.of_factor(&mut item.relation)?;
        for join in &mut item.joins {
            let right = self.of_factor(&mut join.relation)?;
            let Some((constraint, keeps)) = constraint_mut(&mut join.join_operator) else {
                left.extend(right);
                continue;
            };
            let names: Vec<String> = match constraint {
                JoinConstraint::Using(names) => {
                    names.iter().map(using).collect::<Result<_, _>>()?
                }
                JoinConstraint::Natural => {
                    let common = left.iter().filter(|l| right.iter().any(|r| r.name == l.name));
                    common.map(|column| column.name.clone()).collect()
                }
                JoinConstraint::On(condition) => {
                    let names = |column: &Column| {
                        !right.iter().any(|right_column| right_column.name == column.name)
                    };
                    let visible = left.iter().filter(|column| names(column)).cloned().collect();
                    Columns(visible).replace_in(condition);
                    left.extend(right);
                    continue;
                }
                JoinConstraint::None => {
                    left.extend(right);
                    continue;
                }
            };
            let mut merged = Vec::with_capacity(names.len());
            let mut equal: Option<Expr> = None;
            for name in &names {
                let (l, r) = (only(&left, name, "left")?, only(&right, name, "right")?);
                let condition = binary(l.of.clone(), BinaryOperator::Eq, r.of.clone());
                equal = Some(match equal {
                    Some(conditions) => binary(conditions, BinaryOperator::And, condition),
                    None => condition,
                });
                // The column of the side that keeps all rows; of a full join, whichever is not NULL.
                let expr = match keeps {
                    (true, true) => coalesce([l.of.clone(), r.of.clone()]),
                    (true, false) => r.of.clone(),
                    (false, _) => l.of.clone(),
                };
                merged.push(Column { name: name.clone(), of: expr, merged: true });
            }
            *constraint = JoinConstraint::On(
                equal.unwrap_or_else(|| Expr::Value(Value::Boolean(true).into())),
            );
            let unmerged = left.into_iter().chain(right);
            merged.extend(unmerged.filter(|column| !names.contains(&column.name)));
            left = merged;
        }
        Ok(left)
    }

    fn of_factor(&self, factor: &mut TableFactor) -> Result<Vec<Column>, SqlError> {
        // The table's qualifier, its columns as far as they are known, and the alias that may
        // rename them.
        let (qualifier, names, renamed) = match factor {
            TableFactor::NestedJoin { table_with_joins, alias: None } => {
                return self.joined(table_with_joins);
            }
            TableFactor::Table { name, alias, args: None, .. } => {
                let qualifier = match alias {
                    Some(alias) => vec![alias.name.clone()],
                    None => name.0.iter().filter_map(ObjectNamePart::as_ident).cloned().collect(),
                };
                (qualifier, self.of_table(name), alias)
            }
            TableFactor::Derived { subquery, alias: Some(alias), .. } => {
                let names = self.of_query(subquery);
                (vec![alias.name.clone()], names, &mut Some(alias.clone()))
            }
            TableFactor::Table { alias: Some(alias), .. }
            | TableFactor::Function { alias: Some(alias), .. }
            | TableFactor::UNNEST { alias: Some(alias), .. } => {
                (vec![alias.name.clone()], Some(Vec::new()), &mut Some(alias.clone()))
            }
            _ => (Vec::new(), None, &mut None),
        };
        // Without columns nothing can be merged.
        let names = names.map(|names| renamed_by(renamed.as_ref(), names));
        let Some(names) = names.filter(|names| !names.is_empty()) else {
            let feature =
                format!("a join that merges columns with `{factor}`, whose columns are unknown,");
            return Err(SqlError::unsupported(feature)
                .with_hint("write ON a.k = b.k, and coalesce(a.k, b.k) for the column"));
        };
        // Every column is qualified, so that sides with equal names differ.
        let column = |name: String| {
            let mut path = qualifier.clone();
            path.push(Ident::with_quote('"', name.clone()));
            Column { name, of: Expr::CompoundIdentifier(path), merged: false }
        };
        Ok(names.into_iter().map(column).collect())
    }

    fn of_table(&self, name: &ObjectName) -> Option<Vec<String>> {
        if let [ObjectNamePart::Identifier(only)] = name.0.as_slice()
            && let Some(columns) = self.shared.get(&folded(only))
        {
            return columns.clone();
        }
        self.tables.get(&name.to_string()).cloned()
    }

    fn of_shared(&self, cte: &Cte) -> Option<Vec<String>> {
        self.of_query(&cte.query).map(|names| renamed_by(Some(&cte.alias), names))
    }

    /// The names of a query's columns once its joins are rewritten; `None` if one has no name of its own.
    fn of_query(&self, query: &Query) -> Option<Vec<String>> {
        self.of_body(&query.body)
    }

    fn of_body(&self, body: &SetExpr) -> Option<Vec<String>> {
        match body {
            SetExpr::Select(select) => self.of_select(select),
            SetExpr::Query(query) => self.of_query(query),
            SetExpr::SetOperation { left, .. } => self.of_body(left),
            SetExpr::Values(values) => {
                let width = values.rows.first()?.len();
                Some((1..=width).map(|number| format!("column{number}")).collect())
            }
            _ => None,
        }
    }

    fn of_select(&self, select: &Select) -> Option<Vec<String>> {
        let mut names = Vec::new();
        for item in &select.projection {
            match item {
                SelectItem::ExprWithAlias { alias, .. } => names.push(folded(alias)),
                SelectItem::UnnamedExpr(Expr::Identifier(name)) => names.push(folded(name)),
                SelectItem::UnnamedExpr(Expr::CompoundIdentifier(path)) => {
                    names.push(folded(path.last()?));
                }
                // The planner's name differs; the expression's text stands for it.
                SelectItem::UnnamedExpr(expression) => names.push(expression.to_string()),
                SelectItem::Wildcard(options) if is_plain(options) => {
                    for item in &select.from {
                        let mut copy = item.clone();
                        let columns = self.joined(&mut copy).ok()?;
                        names.extend(columns.into_iter().map(|column| column.name));
                    }
                }
                SelectItem::QualifiedWildcard(
                    SelectItemQualifiedWildcardKind::ObjectName(table),
                    options,
                ) if is_plain(options) => {
                    let prefix = format!("{table}.");
                    let mut matches = Vec::new();
                    for item in &select.from {
                        let mut copy = item.clone();
                        let columns = self.joined(&mut copy).ok()?.into_iter();
                        matches.extend(
                            columns
                                .filter(|column| column.of.to_string().starts_with(&prefix))
                                .map(|column| column.name),
                        );
                    }
                    names.extend((!matches.is_empty()).then_some(matches)?);
                }
                _ => return None,
            }
        }
        Some(names)
    }
}

/// Names after an alias has renamed the first of them.
fn renamed_by(alias: Option<&TableAlias>, mut names: Vec<String>) -> Vec<String> {
    for (position, column) in alias.iter().flat_map(|alias| &alias.columns).enumerate() {
        match names.get_mut(position) {
            Some(name) => *name = folded(&column.name),
            None => names.push(folded(&column.name)),
        }
    }
    names
}

fn using(name: &ObjectName) -> Result<String, SqlError> {
    match name.0.as_slice() {
        [ObjectNamePart::Identifier(name)] => Ok(folded(name)),
        _ => Err(SqlError::syntax(format!("USING takes names of columns, not {name}"))),
    }
}

/// The only column with this name on one side of a join.
fn only<'a>(side: &'a [Column], name: &str, which: &str) -> Result<&'a Column, SqlError> {
    let mut candidates = side.iter().filter(|column| column.name == name);
    match (candidates.next(), candidates.next()) {
        (Some(column), None) => Ok(column),
        (None, _) => {
            let message = format!(
                "column \"{name}\" specified in USING clause does not exist in {which} table"
            );
            Err(SqlError::new(UNDEFINED_COLUMN, message))
        }
        _ => {
            let message =
                format!("common column name \"{name}\" appears more than once in {which} table");
            Err(SqlError::new(AMBIGUOUS_COLUMN, message))
        }
    }
}

/// Returns true if a SELECT has an output of this name; an error if it has several different ones.
fn given(select: &Select, name: &Ident) -> Result<bool, SqlError> {
    let output = folded(name);
    let mut previous: Option<&Expr> = None;
    for item in &select.projection {
        let (expr, item_name) = match item {
            SelectItem::UnnamedExpr(expr) => (expr, given_name(expr)),
            SelectItem::ExprWithAlias { expr, alias } => (expr, Some(folded(alias))),
            _ => continue,
        };
        if item_name.as_deref() != Some(&output) {
            continue;
        }
        match previous {
            Some(earlier) if !same(earlier, expr) => {
                let message = format!("ORDER BY \"{output}\" is ambiguous");
                return Err(SqlError::new(AMBIGUOUS_COLUMN, message));
            }
            _ => previous = Some(expr),
        }
    }
    Ok(previous.is_some())
}

/// Returns true if two expressions differ at most in how names are quoted.
fn same(first: &Expr, second: &Expr) -> bool {
    let path = |expr: &Expr| match expr {
        Expr::CompoundIdentifier(path) => Some(path.iter().map(folded).collect::<Vec<_>>()),
        _ => None,
    };
    match (path(first), path(second)) {
        (Some(first), Some(second)) => first == second,
        _ => first == second,
    }
}

/// The constraint of a join, and whether rows without a match are kept: of the right side, of the left side.
fn constraint(operator: &JoinOperator) -> Option<(&JoinConstraint, (bool, bool))> {
    match operator {
        JoinOperator::Join(constraint) | JoinOperator::Inner(constraint) => {
            Some((constraint, (false, false)))
        }
        JoinOperator::Left(constraint) | JoinOperator::LeftOuter(constraint) => {
            Some((constraint, (false, true)))
        }
        JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) => {
            Some((constraint, (true, false)))
        }
        JoinOperator::FullOuter(constraint) => Some((constraint, (true, true))),
        _ => None,
    }
}

fn constraint_mut(operator: &mut JoinOperator) -> Option<(&mut JoinConstraint, (bool, bool))> {
    match operator {
        JoinOperator::Join(constraint) | JoinOperator::Inner(constraint) => {
            Some((constraint, (false, false)))
        }
        JoinOperator::Left(constraint) | JoinOperator::LeftOuter(constraint) => {
            Some((constraint, (false, true)))
        }
        JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) => {
            Some((constraint, (true, false)))
        }
        JoinOperator::FullOuter(constraint) => Some((constraint, (true, true))),
        _ => None,
    }
}

/// The columns of a SELECT's joins.
struct Columns(Vec<Column>);

impl Columns {
    /// The merged column with this name.
    fn merged(&self, name: &Ident) -> Option<&Column> {
        let name = folded(name);
        self.0.iter().find(|column| column.merged && column.name == name)
    }

    /// Replaces the merged columns in an expression, but not in subqueries, which have columns of their own.
    fn replace_in(&self, expr: &mut Expr) {
        let _nothing_breaks = expr.visit(&mut Replace { columns: self, depth: 0 });
    }
}

impl Column {
    fn item(&self) -> SelectItem {
        if !self.merged {
            return SelectItem::UnnamedExpr(self.of.clone());
        }
        let alias = Ident::with_quote('"', self.name.clone());
        SelectItem::ExprWithAlias { expr: self.of.clone(), alias }
    }
}

fn is_plain(options: &WildcardAdditionalOptions) -> bool {
    options.opt_except.is_none()
        && options.opt_exclude.is_none()
        && options.opt_ilike.is_none()
        && options.opt_replace.is_none()
        && options.opt_rename.is_none()
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }
}

fn coalesce(arguments: [Expr; 2]) -> Expr {
    let args =
        arguments.map(|argument| FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))).to_vec();
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new("coalesce")]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args,
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

struct Replace<'a> {
    columns: &'a Columns,
    depth: usize,
}

impl VisitorMut for Replace<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if self.depth == 0
            && let Expr::Identifier(name) = expr
            && let Some(column) = self.columns.merged(name)
        {
            *expr = column.of.clone();
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::statement::Statement;
    use super::*;
    use crate::parser::parse;

    /// A query with its joins written out, or the error's SQLSTATE.
    fn written(sql: &str) -> Result<String, String> {
        let Some(Statement::Query(query)) = parse(sql).unwrap().pop() else { panic!("{sql}") };
        let mut statement = query.statement;
        let mut known = Tables::new();
        for name in tables(&statement) {
            let columns: &[&str] = match name.to_string().as_str() {
                "a" => &["k", "x"],
                "b" => &["k", "y"],
                "c" => &["k", "z"],
                "d" => &["y", "w"],
                _ => continue,
            };
            known.insert(name.to_string(), columns.iter().map(|c| (*c).to_owned()).collect());
        }
        rewrite(&mut statement, &known).map_err(|error| error.sqlstate)?;
        Ok(statement.to_string().replace('"', ""))
    }

    #[test]
    fn joins_are_written_with_on() {
        for (sql, meant) in [
            (
                "SELECT * FROM a JOIN b USING (k)",
                "SELECT a.k AS k, a.x, b.y FROM a JOIN b ON a.k = b.k",
            ),
            (
                "SELECT k FROM a FULL JOIN b USING (k) FULL JOIN c USING (k) WHERE k > 1 ORDER BY k",
                "SELECT coalesce(coalesce(a.k, b.k), c.k) AS k FROM a FULL JOIN b ON a.k = b.k \
                 FULL JOIN c ON coalesce(a.k, b.k) = c.k WHERE coalesce(coalesce(a.k, b.k), c.k) > 1 ORDER BY k",
            ),
            (
                "SELECT * FROM a JOIN b USING (k) JOIN d USING (y)",
                "SELECT b.y AS y, a.k AS k, a.x, d.w FROM a JOIN b ON a.k = b.k JOIN d ON b.y = d.y",
            ),
            (
                "SELECT * FROM a NATURAL RIGHT JOIN b",
                "SELECT b.k AS k, a.x, b.y FROM a RIGHT JOIN b ON a.k = b.k",
            ),
            (
                "SELECT * FROM a JOIN (b JOIN d USING (y)) USING (k)",
                "SELECT a.k AS k, a.x, b.y AS y, d.w FROM a JOIN (b JOIN d ON b.y = d.y) ON a.k = b.k",
            ),
            (
                "WITH e AS (SELECT * FROM a) SELECT * FROM e NATURAL JOIN (SELECT z, k FROM c) AS f",
                "WITH e AS (SELECT * FROM a) SELECT e.k AS k, e.x, f.z FROM e \
                 JOIN (SELECT z, k FROM c) AS f ON e.k = f.k",
            ),
            (
                "SELECT k FROM a t JOIN b USING (k) WHERE EXISTS (SELECT k FROM c WHERE c.k = t.k)",
                "SELECT t.k AS k FROM a t JOIN b ON t.k = b.k WHERE EXISTS (SELECT k FROM c WHERE c.k = t.k)",
            ),
            ("SELECT * FROM a NATURAL JOIN d", "SELECT a.k, a.x, d.y, d.w FROM a JOIN d ON true"),
            ("SELECT * FROM a JOIN b ON a.k = b.k", "SELECT * FROM a JOIN b ON a.k = b.k"),
        ] {
            assert_eq!(written(sql).unwrap().replace(" NATURAL", ""), meant, "{sql}");
        }
    }

    #[test]
    fn what_is_not_known_or_not_clear_is_refused() {
        for (sql, sqlstate) in [
            ("SELECT * FROM a NATURAL JOIN elsewhere", "0A000"),
            ("SELECT * FROM a JOIN d USING (k)", "42703"),
            ("SELECT * FROM a JOIN b ON a.k = b.k JOIN c USING (k)", "42702"),
            ("SELECT k, b.k FROM a JOIN b USING (k) ORDER BY k", "42702"),
        ] {
            assert_eq!(written(sql), Err(sqlstate.to_owned()), "{sql}");
        }
        assert!(written("SELECT k, a.k FROM a JOIN b USING (k) ORDER BY k").is_ok());
    }
}
