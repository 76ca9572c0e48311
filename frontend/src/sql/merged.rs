//! The merged columns of joins with USING.
//!
//! `l FULL JOIN r USING (k)` has one column `k`: that of the side that has a row. The planner takes the left one, which is
//! NULL where only the right side has a row, and shows columns in the order in which the sides have them. Here the column
//! is written as what it is, wherever the SELECT of the join names it without a table, and `*` as the merged columns and
//! what else the sides have.
//!
//! Invariant: what cannot be written so (a NATURAL join, or more than two relations, that keep rows of the right side) is
//! refused by name.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    ExceptSelectItem, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList,
    FunctionArguments, GroupByExpr, Ident, Join, JoinConstraint, JoinOperator, ObjectName,
    ObjectNamePart, OrderByKind, Query, Select, SelectItem, SelectItemQualifiedWildcardKind,
    SetExpr, TableFactor, VisitMut, VisitorMut, WildcardAdditionalOptions,
};

use crate::error::SqlError;

/// Writes the merged columns of a query's joins as what they are.
pub(super) fn rewrite(of: &mut impl VisitMut) -> Result<(), SqlError> {
    match of.visit(&mut Merged) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

struct Merged;

impl VisitorMut for Merged {
    type Break = Box<SqlError>;

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        let SetExpr::Select(select) = query.body.as_mut() else {
            return ControlFlow::Continue(());
        };
        let sides = match sides(select) {
            Ok(Some(sides)) => sides,
            Ok(None) => return ControlFlow::Continue(()),
            Err(error) => return ControlFlow::Break(Box::new(error)),
        };
        // A name that the SELECT gives is what ORDER BY means.
        let given: Vec<Ident> = select.projection.iter().filter_map(shown).collect();
        let named = select.projection.iter().any(|item| matches!(item, SelectItem::Wildcard(_)));
        sides.rewrite_select(select);
        if let Some(order) = &mut query.order_by
            && let OrderByKind::Expressions(keys) = &mut order.kind
        {
            for key in keys {
                let is_given = matches!(&key.expr, Expr::Identifier(name) if named || given.iter().any(|given| same(given, name)));
                if !is_given {
                    sides.replace_in(&mut key.expr);
                }
            }
        }
        ControlFlow::Continue(())
    }
}

/// The name of a column that a SELECT shows.
fn shown(item: &SelectItem) -> Option<Ident> {
    match item {
        SelectItem::UnnamedExpr(Expr::Identifier(name)) => Some(name.clone()),
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => parts.last().cloned(),
        SelectItem::ExprWithAlias { alias, .. } => Some(alias.clone()),
        _ => None,
    }
}

fn same(one: &Ident, other: &Ident) -> bool {
    let folded = |name: &Ident| match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_ascii_lowercase(),
    };
    folded(one) == folded(other)
}

/// The two sides of a join, and the columns that it merges.
struct Sides {
    left: Ident,
    right: Ident,
    /// What stands before `.*` of either side: a table with its database is called so there.
    wholes: [ObjectName; 2],
    /// The right side has rows that the left one lacks, and the other way round.
    keeps: (bool, bool),
    columns: Vec<Ident>,
}

/// The sides of a SELECT's only join with USING; an error for one whose columns would be wrong otherwise.
fn sides(select: &Select) -> Result<Option<Sides>, SqlError> {
    let joins = || select.from.iter().flat_map(|from| &from.joins);
    let merging = |join: &&Join| {
        matches!(
            constraint(&join.join_operator),
            Some((JoinConstraint::Using(_) | JoinConstraint::Natural, _))
        )
    };
    let keeps_right = |join: &Join| {
        constraint(&join.join_operator).is_some_and(|(_, (keeps_right, _))| keeps_right)
    };
    if !joins().any(|join| merging(&join)) {
        return Ok(None);
    }
    let known = match select.from.as_slice() {
        [from] => match from.joins.as_slice() {
            [join] => named(&from.relation)
                .zip(named(&join.relation))
                .zip(Some(([&from.relation, &join.relation], join))),
            _ => None,
        },
        _ => None,
    };
    if let Some(((left, right), (relations, join))) = known
        && let Some((JoinConstraint::Using(names), keeps)) = constraint(&join.join_operator)
    {
        let columns: Option<Vec<Ident>> = names
            .iter()
            .map(|name| match name.0.as_slice() {
                [part] => part.as_ident().cloned(),
                _ => None,
            })
            .collect();
        if let Some(columns) = columns {
            let wholes = [(relations[0], &left), (relations[1], &right)];
            let wholes = wholes.map(|(relation, name)| whole(relation, name));
            return Ok(Some(Sides { left, right, wholes, keeps, columns }));
        }
    }
    if joins().filter(merging).any(keeps_right) {
        let what = "a RIGHT or FULL JOIN that merges columns of more than two tables or by NATURAL";
        return Err(SqlError::unsupported(what)
            .with_hint("write ON a.k = b.k, and coalesce(a.k, b.k) for the column"));
    }
    Ok(None)
}

/// How a join is restricted, and whether rows of the right and of the left side are kept without the other.
fn constraint(operator: &JoinOperator) -> Option<(&JoinConstraint, (bool, bool))> {
    match operator {
        JoinOperator::Join(by) | JoinOperator::Inner(by) => Some((by, (false, false))),
        JoinOperator::Left(by) | JoinOperator::LeftOuter(by) => Some((by, (false, true))),
        JoinOperator::Right(by) | JoinOperator::RightOuter(by) => Some((by, (true, false))),
        JoinOperator::FullOuter(by) => Some((by, (true, true))),
        _ => None,
    }
}

/// The name that a table's columns are qualified by.
fn named(table: &TableFactor) -> Option<Ident> {
    match table {
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. } => Some(alias.name.clone()),
        TableFactor::Table { name, args: None, .. } => {
            name.0.last().and_then(ObjectNamePart::as_ident).cloned()
        }
        _ => None,
    }
}

/// What stands before `.*` of a table.
fn whole(table: &TableFactor, name: &Ident) -> ObjectName {
    match table {
        TableFactor::Table { alias: None, name, .. } => name.clone(),
        _ => ObjectName::from(vec![name.clone()]),
    }
}

impl Sides {
    fn rewrite_select(&self, select: &mut Select) {
        let mut items = Vec::with_capacity(select.projection.len());
        for mut item in std::mem::take(&mut select.projection) {
            match item {
                SelectItem::Wildcard(ref options) if is_plain(options) => {
                    items.extend(self.columns.iter().map(|column| self.merged_item(column)));
                    items.extend(self.wholes.each_ref().map(|whole| self.others(whole)));
                    continue;
                }
                SelectItem::UnnamedExpr(Expr::Identifier(ref name)) => {
                    if let Some(column) = self.column(name) {
                        items.push(self.merged_item(&column));
                        continue;
                    }
                }
                SelectItem::UnnamedExpr(ref mut expr)
                | SelectItem::ExprWithAlias { ref mut expr, .. } => self.replace_in(expr),
                _ => {}
            }
            items.push(item);
        }
        select.projection = items;
        let filters = [&mut select.selection, &mut select.having, &mut select.qualify];
        for filter in filters.into_iter().flatten() {
            self.replace_in(filter);
        }
        if let GroupByExpr::Expressions(keys, _) = &mut select.group_by {
            for key in keys {
                self.replace_in(key);
            }
        }
    }

    fn column(&self, name: &Ident) -> Option<Ident> {
        self.columns.iter().find(|column| same(column, name)).cloned()
    }

    /// A merged column: of the side that has every row, or of the one that has a value.
    fn merged(&self, column: &Ident) -> Expr {
        let of = |side: &Ident| Expr::CompoundIdentifier(vec![side.clone(), column.clone()]);
        match self.keeps {
            (true, true) => coalesce([of(&self.left), of(&self.right)]),
            (true, false) => of(&self.right),
            (false, _) => of(&self.left),
        }
    }

    fn merged_item(&self, column: &Ident) -> SelectItem {
        SelectItem::ExprWithAlias { expr: self.merged(column), alias: column.clone() }
    }

    /// `side.*` without the merged columns.
    fn others(&self, whole: &ObjectName) -> SelectItem {
        let mut columns = self.columns.iter().cloned();
        let except = columns.next().map(|first_element| ExceptSelectItem {
            first_element,
            additional_elements: columns.collect(),
        });
        SelectItem::QualifiedWildcard(
            SelectItemQualifiedWildcardKind::ObjectName(whole.clone()),
            WildcardAdditionalOptions {
                opt_except: except,
                ..WildcardAdditionalOptions::default()
            },
        )
    }

    /// Writes the merged columns in an expression, but not in subqueries, which have columns of their own.
    fn replace_in(&self, expr: &mut Expr) {
        let _nothing_breaks = expr.visit(&mut Replace { sides: self, depth: 0 });
    }
}

fn is_plain(options: &WildcardAdditionalOptions) -> bool {
    options.opt_except.is_none()
        && options.opt_exclude.is_none()
        && options.opt_ilike.is_none()
        && options.opt_replace.is_none()
        && options.opt_rename.is_none()
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
    sides: &'a Sides,
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
            && let Some(column) = self.sides.column(name)
        {
            *expr = self.sides.merged(&column);
        }
        ControlFlow::Continue(())
    }
}
