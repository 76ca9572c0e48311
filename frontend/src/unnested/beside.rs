//! LATERAL subqueries without tables, such as `unnest(t.a)`: each row of the outer query is computed on by itself.
//!
//! ```text
//!   SELECT k, u.x FROM t, LATERAL (SELECT unnest(t.a)) AS u (x)
//!
//!   SELECT k, u.x FROM (SELECT k, unnest(a) AS x FROM t)
//! ```

use datafusion::common::{Column, TableReference};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, Join, LogicalPlan, LogicalPlanBuilder, Subquery};

use super::{Domain, UnnestedSubqueries, own_columns};

/// Returns true if a subquery computes on one row and reads no other.
pub(super) fn is_of_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::EmptyRelation(empty) => empty.produce_one_row,
        LogicalPlan::Projection(projection) => is_of_one_row(&projection.input),
        LogicalPlan::Filter(filter) => is_of_one_row(&filter.input),
        LogicalPlan::Unnest(unnest) => is_of_one_row(&unnest.input),
        LogicalPlan::SubqueryAlias(alias) => is_of_one_row(&alias.input),
        _ => false,
    }
}

impl UnnestedSubqueries {
    /// The inner join with a LATERAL subquery of one row: the rows of the outer query are its domain, and are passed
    /// through it.
    pub(super) fn beside(
        &self,
        join: &Join,
        alias: Option<&TableReference>,
        subquery: &Subquery,
    ) -> Result<LogicalPlan> {
        let number = self.number();
        let outer = join.left.schema().columns();
        let names: Vec<String> =
            (0..outer.len()).map(|index| format!("__outer_{number}_{index}")).collect();
        let aliased = outer.iter().zip(&names);
        let aliased = aliased.map(|(column, name)| Expr::Column(column.clone()).alias(name));
        let values = LogicalPlanBuilder::from(join.left.as_ref().clone())
            .project(aliased.collect::<Vec<_>>())?
            .build()?;
        let domain = Domain { number, outer, names, values };
        let mut computed = LogicalPlanBuilder::from(domain.within(&subquery.subquery)?);
        if let Some(alias) = alias {
            computed = computed.alias(alias.clone())?;
        }
        // The columns of the outer query get their names back.
        let outer_columns = domain.outer.iter().zip(&domain.names).map(|(column, name)| {
            Expr::Column(Column::new(alias.cloned(), name))
                .alias_qualified(column.relation.clone(), &column.name)
        });
        let columns: Vec<Expr> = outer_columns.chain(own_columns(join.right.schema())).collect();
        let joined = computed.project(columns)?;
        match &join.filter {
            Some(filter) => joined.filter(filter.clone())?.build(),
            None => joined.build(),
        }
    }
}
