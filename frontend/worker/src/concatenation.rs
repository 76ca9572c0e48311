//! `||` of texts, within bounds.
//!
//! Each `||` allocates its values outside of every memory pool, and a chain holds two intermediate results at a time:
//! `t || t || ..` of a long text takes gigabytes. Once types are known, [`BoundedConcatenation`] replaces the operator
//! by a function that computes the sizes of the values before it makes them (`bounded.rs`).
//!
//! Invariants: column names and values within the bounds stay the same; DataFusion itself plans `||` of arrays as a
//! function.

use std::hash::Hash;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, exec_err};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, Operator, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{self, Column};

use crate::bounded::{Numbers, check_sizes};
use crate::functions::REGISTRY;

/// Name of the function; nodes know it too.
pub(crate) const NAME: &str = "bounded_concatenation";

/// Function that replaces the operator.
pub(crate) fn function() -> ScalarUDF {
    ScalarUDF::from(Concatenation { signature: Signature::any(2, Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Concatenation {
    signature: Signature,
}

impl ScalarUDFImpl for Concatenation {
    fn name(&self) -> &'static str {
        NAME
    }

    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        match arguments {
            [left, right] => Ok(format!("{} || {}", left.schema_name(), right.schema_name())),
            _ => exec_err!("{NAME} takes two arguments"),
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [left, right] if left.is_string() && left == right => Ok(left.clone()),
            _ => exec_err!("{NAME} takes two texts of one type, not {types:?}"),
        }
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [left, right] = args.args.as_slice() else {
            return exec_err!("{NAME} takes two arguments");
        };
        let constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { args.number_rows };
        let lengths = (Numbers::lengths(left)?, Numbers::lengths(right)?);
        check_sizes("||", rows, |row| lengths.0.at(row).saturating_add(lengths.1.at(row)))?;
        let columns = vec![left.to_array(rows)?, right.to_array(rows)?];
        let fields = columns.iter().zip(["left", "right"]);
        let fields: Vec<Field> = fields
            .map(|(column, name)| Field::new(name, column.data_type().clone(), true))
            .collect();
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?;
        let operator = expressions::BinaryExpr::new(
            Arc::new(Column::new("left", 0)),
            Operator::StringConcat,
            Arc::new(Column::new("right", 1)),
        );
        let array = operator.evaluate(&batch)?.into_array(rows)?;
        if constant {
            let value = datafusion::common::ScalarValue::try_from_array(&array, 0)?;
            return Ok(ColumnarValue::Scalar(value));
        }
        Ok(ColumnarValue::Array(array))
    }
}

/// Replaces the operator by the function; to be applied once types are coerced.
#[derive(Debug)]
pub struct BoundedConcatenation;

impl FunctionRewrite for BoundedConcatenation {
    fn name(&self) -> &'static str {
        NAME
    }

    fn rewrite(
        &self,
        expression: Expr,
        schema: &DFSchema,
        _: &ConfigOptions,
    ) -> Result<Transformed<Expr>> {
        let Expr::BinaryExpr(BinaryExpr { left, op: Operator::StringConcat, right }) = expression
        else {
            return Ok(Transformed::no(expression));
        };
        let types = (left.get_type(schema), right.get_type(schema));
        match types {
            (Ok(left_type), Ok(right_type)) if left_type.is_string() && left_type == right_type => {
            }
            _ => {
                let same = BinaryExpr { left, op: Operator::StringConcat, right };
                return Ok(Transformed::no(Expr::BinaryExpr(same)));
            }
        }
        let Some(function) = REGISTRY.scalar.get(NAME) else {
            return exec_err!("{NAME} is not registered");
        };
        let call = ScalarFunction::new_udf(Arc::clone(function), vec![*left, *right]);
        Ok(Transformed::yes(Expr::ScalarFunction(call)))
    }
}

#[cfg(test)]
mod tests {
    use datafusion::execution::{FunctionRegistry, SessionStateBuilder};
    use datafusion::optimizer::Analyzer;
    use datafusion::optimizer::analyzer::function_rewrite::ApplyFunctionRewrites;
    use datafusion::prelude::SessionContext;

    use super::*;
    use crate::SqlError;

    /// The first column of a query's first batch, and its name; or its SQLSTATE.
    async fn answer(sql: &str, bounded: bool) -> std::result::Result<(String, String), String> {
        let mut state = SessionStateBuilder::new().with_default_features();
        if bounded {
            let mut rules = Analyzer::new().rules;
            let rewrites = ApplyFunctionRewrites::new(vec![Arc::new(BoundedConcatenation)]);
            rules.push(Arc::new(rewrites));
            state = state.with_analyzer_rules(rules);
        }
        let mut state = state.build();
        let _replaced = state.register_udf(Arc::new(function())).unwrap();
        let context = SessionContext::new_with_state(state);
        let run = async {
            let batches = context.sql(sql).await?.collect().await?;
            let batch = &batches[0];
            let texts: Vec<String> = (0..batch.num_rows())
                .map(|row| arrow::util::display::array_value_to_string(batch.column(0), row))
                .collect::<std::result::Result<_, _>>()?;
            Ok::<_, datafusion::error::DataFusionError>((
                batch.schema().field(0).name().clone(),
                texts.join(","),
            ))
        };
        run.await.map_err(|error| SqlError::from(error).sqlstate)
    }

    #[tokio::test]
    async fn texts_beyond_the_bound_are_refused() {
        let doubled = (0..6).fold("t".to_owned(), |sql, _| format!("({sql} || {sql})"));
        let of_one = format!("SELECT length({doubled}) FROM (SELECT repeat('x', 1000000) AS t)");
        assert_eq!(answer(&of_one, true).await, Err("54000".to_owned()));
        let of_many = "SELECT count(t || t) FROM (SELECT repeat('x', 40000) || value AS t
                       FROM generate_series(1, 4000))";
        assert_eq!(answer(of_many, true).await, Err("54000".to_owned()));
    }

    #[tokio::test]
    async fn other_texts_have_the_value_and_the_name_that_they_had() {
        for sql in [
            "SELECT 'a' || 'b'",
            "SELECT 'a' || NULL",
            "SELECT 'a' || 1 || true",
            "SELECT value || '-' || value FROM generate_series(1, 3)",
            "SELECT arrow_cast('a', 'Utf8View') || value FROM generate_series(1, 3)",
            "SELECT arrow_cast('a', 'LargeUtf8') || 'b'",
            "SELECT arrow_cast('a', 'Dictionary(Int32, Utf8)') || 'b'",
            "SELECT count(*) FROM generate_series(1, 30) WHERE value || '' = '1' || '2'",
            "SELECT [1, 2] || [3]",
        ] {
            let plain = answer(sql, false).await;
            assert!(plain.is_ok(), "{sql}: {plain:?}");
            assert_eq!(answer(sql, true).await, plain, "{sql}");
        }
    }
}
