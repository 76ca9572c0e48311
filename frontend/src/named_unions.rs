//! Inputs of a union that have the names of its columns.
//!
//! ```text
//!   SELECT a FROM t WHERE false UNION ALL (SELECT b FROM u ORDER BY 1 LIMIT 3)
//!     Union  a
//!       Projection  a
//!       Limit       b          Projection  b AS a
//!                                Limit       b
//! ```
//!
//! A union takes the columns of its inputs by their positions and has the names of the first input. DataFusion renames
//! the columns of an input only where it is a projection, but rules look for them by the names of the union: where all
//! other inputs are empty, the column `a` of a limit does not exist, and columns that have exchanged their names are
//! exchanged themselves. [`NamedUnions`] renames the columns of all other inputs.

use std::sync::Arc;

use datafusion::common::DFSchema;
use datafusion::common::tree_node::Transformed;
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, Projection};
use datafusion::optimizer::AnalyzerRule;

/// Renames the columns of the inputs of unions; see the head of the file. Apply it once types are coerced.
#[derive(Debug)]
pub(crate) struct NamedUnions;

impl AnalyzerRule for NamedUnions {
    fn name(&self) -> &'static str {
        "named_unions"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let plan = plan.transform_up_with_subqueries(|node| {
            let LogicalPlan::Union(mut union) = node else { return Ok(Transformed::no(node)) };
            let mut changed = false;
            for input in &mut union.inputs {
                if let Some(renamed) = renamed(input, &union.schema)? {
                    *input = Arc::new(renamed);
                    changed = true;
                }
            }
            Ok(Transformed::new_transformed(LogicalPlan::Union(union), changed))
        })?;
        Ok(plan.data)
    }
}

/// An input with the names of the union's columns; `None` if it has them.
fn renamed(input: &Arc<LogicalPlan>, union: &DFSchema) -> Result<Option<LogicalPlan>> {
    let mut changed = false;
    let columns = input.schema().columns().into_iter().zip(union.fields());
    let columns = columns.map(|(column, field)| {
        if column.name == *field.name() {
            return Expr::Column(column);
        }
        changed = true;
        Expr::Column(column).alias(field.name())
    });
    let columns: Vec<Expr> = columns.collect();
    if !changed {
        return Ok(None);
    }
    let projection = Projection::try_new(columns, Arc::clone(input))?;
    Ok(Some(LogicalPlan::Projection(projection)))
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{LogicalPlanBuilder, col, lit};

    use super::*;

    fn one(name: &str) -> LogicalPlanBuilder {
        LogicalPlanBuilder::empty(true).project([lit(1_i64).alias(name)]).unwrap()
    }

    #[test]
    fn inputs_have_the_names_of_the_union() {
        let limited = one("b").limit(0, Some(3)).unwrap().build().unwrap();
        let union = one("a").union(limited).unwrap().build().unwrap();
        let LogicalPlan::Union(named) = NamedUnions.analyze(union, &ConfigOptions::new()).unwrap()
        else {
            panic!("a union stays one");
        };
        let names: Vec<_> = named.inputs.iter().map(|input| input.schema().field_names()).collect();
        assert_eq!(names, [["a"], ["a"]]);
        let LogicalPlan::Projection(projection) = named.inputs[1].as_ref() else {
            panic!("{:?}", named.inputs[1]);
        };
        assert_eq!(projection.expr, [col("b").alias("a")]);
    }
}
