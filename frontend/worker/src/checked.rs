//! Integer arithmetic that does not wrap.
//!
//! DataFusion's `+`, `-` and `*` of integers wrap silently when a result does not fit its type. Here such a statement
//! fails with SQLSTATE 22003, as in PostgreSQL. Once types are known, [`Checked`] replaces each operator by a function,
//! which runs wherever the operator would have run, at a node too.
//!
//! Invariants:
//! - column names and results that do not overflow stay the same;
//! - other types (decimals, intervals, times) are left alone, because arrow checks them.

use std::hash::Hash;
use std::sync::Arc;

use arrow::compute::kernels::numeric;
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, exec_err};
use datafusion::config::ConfigOptions;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, Operator, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr_common::datum::apply;

use crate::error::{CANNOT_COERCE, SqlError};
use crate::functions::REGISTRY;

/// Operators that can overflow.
const OPERATIONS: [Operation; 4] =
    [Operation::Add, Operation::Subtract, Operation::Multiply, Operation::Negate];

/// Functions that replace operators.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    OPERATIONS.into_iter().map(|operation| {
        let signature = Signature::any(operation.arguments(), Volatility::Immutable);
        ScalarUDF::from(Arithmetic { operation, signature })
    })
}

/// Checked operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Operation {
    Add,
    Subtract,
    Multiply,
    Negate,
}

impl Operation {
    fn of(operator: Operator) -> Option<Self> {
        match operator {
            Operator::Plus => Some(Self::Add),
            Operator::Minus => Some(Self::Subtract),
            Operator::Multiply => Some(Self::Multiply),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Add => "checked_add",
            Self::Subtract => "checked_subtract",
            Self::Multiply => "checked_multiply",
            Self::Negate => "checked_negate",
        }
    }

    fn arguments(self) -> usize {
        if self == Self::Negate { 1 } else { 2 }
    }

    /// Returns the operation as DataFusion would display the operator.
    fn written(self, arguments: &[String]) -> Result<String> {
        let sign = match (self, arguments) {
            (Self::Negate, [operand]) => return Ok(format!("(- {operand})")),
            (Self::Add, [_, _]) => '+',
            (Self::Subtract, [_, _]) => '-',
            (Self::Multiply, [_, _]) => '*',
            _ => return exec_err!("{} takes {} arguments", self.name(), self.arguments()),
        };
        Ok(format!("{} {sign} {}", arguments[0], arguments[1]))
    }
}

/// A function that replaces an operator.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Arithmetic {
    operation: Operation,
    signature: Signature,
}

impl ScalarUDFImpl for Arithmetic {
    fn name(&self) -> &str {
        self.operation.name()
    }

    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        let names: Vec<String> =
            arguments.iter().map(|argument| argument.schema_name().to_string()).collect();
        self.operation.written(&names)
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [data_type, rest @ ..]
                if data_type.is_integer() && rest.iter().all(|next| next == data_type) =>
            {
                Ok(data_type.clone())
            }
            _ => exec_err!("{} takes integers of one type, not {types:?}", self.name()),
        }
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let result = match (self.operation, args.args.as_slice()) {
            (Operation::Add, [a, b]) => apply(a, b, numeric::add),
            (Operation::Subtract, [a, b]) => apply(a, b, numeric::sub),
            (Operation::Multiply, [a, b]) => apply(a, b, numeric::mul),
            (Operation::Negate, [ColumnarValue::Array(operand)]) => {
                numeric::neg(operand).map(ColumnarValue::Array).map_err(DataFusionError::from)
            }
            (Operation::Negate, [ColumnarValue::Scalar(operand)]) => {
                operand.arithmetic_negate().map(ColumnarValue::Scalar)
            }
            (operation, _) => {
                exec_err!("{} takes {} arguments", operation.name(), operation.arguments())
            }
        };
        result.map_err(|error| out_of_range(error, args.return_type()))
    }
}

/// Adds the type whose range was exceeded to the message.
fn out_of_range(error: DataFusionError, data_type: &DataType) -> DataFusionError {
    match error.find_root() {
        DataFusionError::ArrowError(arrow, _) => match arrow.as_ref() {
            ArrowError::ArithmeticOverflow(description) => {
                DataFusionError::from(ArrowError::ArithmeticOverflow(format!(
                    "{} out of range: {description}",
                    sql_name(data_type)
                )))
            }
            _ => error,
        },
        _ => error,
    }
}

/// Name of the type in PostgreSQL; Arrow's name for other types.
pub(crate) fn sql_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Int16 => "smallint".to_owned(),
        DataType::Int32 => "integer".to_owned(),
        DataType::Int64 => "bigint".to_owned(),
        _ => data_type.to_string(),
    }
}

/// The error of a cast that does not exist.
pub(crate) fn cannot_cast(source: &DataType, target: &str) -> SqlError {
    let source = sql_name(source);
    SqlError::new(CANNOT_COERCE, format!("cannot cast type {source} to {target}"))
}

/// Replaces operators by the functions; to be applied once types are coerced.
#[derive(Debug)]
pub struct Checked;

impl FunctionRewrite for Checked {
    fn name(&self) -> &'static str {
        "checked_arithmetic"
    }

    fn rewrite(
        &self,
        expression: Expr,
        schema: &DFSchema,
        _: &ConfigOptions,
    ) -> Result<Transformed<Expr>> {
        // An expression whose type is not known here (a lambda's variable) is left unchanged.
        let whole =
            |expr: &Expr| expr.get_type(schema).is_ok_and(|data_type| data_type.is_integer());
        let (operation, arguments) = match expression {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => match Operation::of(op) {
                Some(operation) if whole(&left) && whole(&right) => {
                    (operation, vec![*left, *right])
                }
                _ => {
                    let same = BinaryExpr { left, op, right };
                    return Ok(Transformed::no(Expr::BinaryExpr(same)));
                }
            },
            Expr::Negative(operand) if whole(&operand) => (Operation::Negate, vec![*operand]),
            expression => return Ok(Transformed::no(expression)),
        };
        let Some(function) = REGISTRY.scalar.get(operation.name()) else {
            return exec_err!("{} is not registered", operation.name());
        };
        let call = ScalarFunction::new_udf(Arc::clone(function), arguments);
        Ok(Transformed::yes(Expr::ScalarFunction(call)))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, RecordBatch};
    use arrow::datatypes::{Field, Schema};
    use arrow::util::pretty::pretty_format_batches;
    use datafusion::datasource::MemTable;
    use datafusion::execution::{FunctionRegistry, SessionStateBuilder};
    use datafusion::optimizer::Analyzer;
    use datafusion::optimizer::analyzer::function_rewrite::ApplyFunctionRewrites;
    use datafusion::prelude::{SessionConfig, SessionContext};

    use super::*;

    const HIGH: i64 = i64::MAX;

    /// The result of a query of `t` (n: 1, HIGH, null, LOW; small: 1, 2, 3, 4), or its SQLSTATE and message.
    async fn answer(sql: &str, checked: bool) -> std::result::Result<String, (String, String)> {
        let mut state = SessionStateBuilder::new()
            .with_config(SessionConfig::new().with_target_partitions(1))
            .with_default_features();
        if checked {
            let mut rules = Analyzer::new().rules;
            rules.push(Arc::new(ApplyFunctionRewrites::new(vec![Arc::new(Checked)])));
            state = state.with_analyzer_rules(rules);
        }
        let mut state = state.build();
        for function in functions() {
            let _replaced = state.register_udf(Arc::new(function)).unwrap();
        }
        for function in crate::functions::shared_aggregates() {
            let _replaced = state.register_udaf(function).unwrap();
        }
        let context = SessionContext::new_with_state(state);
        let schema = Arc::new(Schema::new(vec![
            Field::new("n", DataType::Int64, true),
            Field::new("small", DataType::Int32, false),
            Field::new("x", DataType::Float64, false),
        ]));
        let batch = RecordBatch::try_new(
            Arc::clone(&schema),
            vec![
                Arc::new(Int64Array::from(vec![Some(1), Some(HIGH), None, Some(i64::MIN)])),
                Arc::new(arrow::array::Int32Array::from(vec![1, 2, 3, 4])),
                Arc::new(arrow::array::Float64Array::from(vec![0.5, 1.5, 2.5, 3.5])),
            ],
        );
        let table = MemTable::try_new(schema, vec![vec![batch.unwrap()]]).unwrap();
        context.register_table("t", Arc::new(table)).unwrap();
        let told = |error: DataFusionError| {
            let error = SqlError::from(error);
            (error.sqlstate, error.message)
        };
        let frame = context.sql(sql).await.map_err(told)?;
        let batches = frame.collect().await.map_err(told)?;
        Ok(pretty_format_batches(&batches).unwrap().to_string())
    }

    #[tokio::test]
    async fn what_does_not_fit_is_an_error_that_names_the_type() {
        for (sql, says) in [
            ("SELECT n + 1 FROM t", "bigint"),
            ("SELECT n - 1 FROM t", "bigint"),
            ("SELECT n * 2 FROM t", "bigint"),
            ("SELECT -n FROM t", "bigint"),
            ("SELECT small * CAST(1000000000 AS INT) FROM t", "integer"),
            ("SELECT 9223372036854775807 + 1", "bigint"),
            ("SELECT count(*) FROM t WHERE n + small > 5", "bigint"),
            ("SELECT n * 3, count(*) FROM t GROUP BY n * 3", "bigint"),
            ("SELECT sum(n + n) FROM t", "bigint"),
            ("SELECT small FROM t ORDER BY n - 2", "bigint"),
            (
                "SELECT small FROM t a WHERE EXISTS (SELECT 1 FROM t b WHERE b.n * 2 = a.n)",
                "bigint",
            ),
        ] {
            let (state, message) = answer(sql, true).await.unwrap_err();
            assert_eq!(state, "22003", "{sql}: {message}");
            assert!(message.contains(says), "{sql}: {message}");
            assert!(answer(sql, false).await.is_ok(), "{sql}: what DataFusion does by itself");
        }
    }

    #[tokio::test]
    async fn what_fits_has_the_value_and_the_name_that_it_had() {
        for sql in [
            "SELECT n + 1, small * 2, -small, 2 - 3 AS a FROM t WHERE n = 1",
            "SELECT small + 1, count(*), sum(small * 2) FROM t GROUP BY small + 1 ORDER BY small + 1",
            "SELECT a.small * 2 AS twice FROM t a JOIN t b ON a.small + 1 = b.small ORDER BY 1",
            "SELECT x * 2, x + small, small % 2, small / 2, - x FROM t ORDER BY small",
            "SELECT n + NULL, NULL * small FROM t",
            "SELECT small - 10, sum(small + 1) OVER (ORDER BY small) FROM t ORDER BY 1",
            "SELECT TIMESTAMP '2024-01-01' + INTERVAL '1 day'",
            "SELECT 1.5 * 3, CAST(3 AS DECIMAL(5, 1)) - 1",
            "SELECT small FROM t WHERE small + 1 IN (SELECT small * 1 FROM t) ORDER BY small",
        ] {
            let plain = answer(sql, false).await;
            assert!(plain.is_ok(), "{sql}: {plain:?}");
            assert_eq!(answer(sql, true).await, plain, "{sql}");
        }
    }
}
