//! Bounds on wide constants, which operators repeat in every row.
//!
//! A constant of a megabyte (a literal, a parameter, a simplified `repeat('x', 1000000)`) costs nothing until an
//! operator expands it to each of the 8,192 rows of a batch: a column of eight gigabytes, in memory that no pool
//! accounts for. [`bounded`] wraps such constants in a function, as the last step before a physical plan is made. The
//! function knows the number of rows, and fails with SQLSTATE 54000 when they would take too much together
//! (`bounded.rs`). Where a constant is compared with rows, or passed to a function that computes its own bounds, it
//! stays one value and is not wrapped.
//!
//! The value of a subquery, and anything computed from it without a column, is a constant too, whose size is known only
//! at run time: an array of a million numbers from `(SELECT array_agg(n) FROM t)` takes gigabytes in the rows of a
//! batch.
//!
//! Invariants: column names and values within the bounds stay the same.

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::exec_err;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{AggregateFunction, ScalarFunction, WindowFunction};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, LogicalPlan, Operator, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::bounded::{bounds_itself, check_total};
use crate::functions::REGISTRY;

/// Name of the function; nodes know it too.
pub(crate) const NAME: &str = "wide_constant";
/// Bytes above which a constant is wide: in all rows of a batch, it reaches the bound of a call.
const WIDE_BYTES: usize = 16 << 10;

/// The function that wraps wide constants.
pub(crate) fn function() -> ScalarUDF {
    // Stable, because the optimizer would evaluate an immutable call once, for one row.
    ScalarUDF::from(WideConstant { signature: Signature::any(1, Volatility::Stable) })
}

/// Wraps each wide constant of a plan that may be expanded to rows.
///
/// # Errors
/// Only those of walking the plan.
pub fn bounded(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| match node {
        // A scan compares constants with columns; rows of VALUES are evaluated one by one.
        LogicalPlan::TableScan(_) | LogicalPlan::Values(_) => Ok(Transformed::no(node)),
        node => node.map_expressions(|expression| expression.transform_up(wrapped)),
    })
    .data()
}

/// Wraps a wide constant, and unwraps constants directly below an expression that takes them as one value.
fn wrapped(expression: Expr) -> Result<Transformed<Expr>> {
    match expression {
        // Constants.
        Expr::Literal(ref value, _) if is_wide(value) => Ok(Transformed::yes(around(expression)?)),
        Expr::ScalarSubquery(ref subquery) if subquery.outer_ref_columns.is_empty() => {
            let field = subquery.subquery.schema().fields().first();
            match field.is_some_and(|field| may_be_wide(field.data_type())) {
                true => Ok(Transformed::yes(around(expression)?)),
                false => Ok(Transformed::no(expression)),
            }
        }
        // Comparisons take their constants as one value.
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if op != Operator::StringConcat => {
            let (left, right) = (Box::new(bare(*left)), Box::new(bare(*right)));
            Ok(Transformed::yes(Expr::BinaryExpr(BinaryExpr { left, op, right })))
        }
        Expr::Like(mut like) => {
            like.expr = Box::new(bare(*like.expr));
            like.pattern = Box::new(bare(*like.pattern));
            Ok(Transformed::yes(Expr::Like(like)))
        }
        Expr::SimilarTo(mut like) => {
            like.expr = Box::new(bare(*like.expr));
            like.pattern = Box::new(bare(*like.pattern));
            Ok(Transformed::yes(Expr::SimilarTo(like)))
        }
        Expr::InList(mut list) => {
            list.list = list.list.into_iter().map(bare).collect();
            Ok(Transformed::yes(Expr::InList(list)))
        }
        Expr::Between(mut between) => {
            between.low = Box::new(bare(*between.low));
            between.high = Box::new(bare(*between.high));
            Ok(Transformed::yes(Expr::Between(between)))
        }
        // Computed once from one value: the result is expanded, not the argument.
        Expr::ScalarFunction(ScalarFunction { func, args })
            if func.name() != NAME
                && args.iter().any(is_wrapped)
                && args.iter().all(is_one_value) =>
        {
            let args = args.into_iter().map(bare).collect();
            let call = Expr::ScalarFunction(ScalarFunction { func, args });
            Ok(Transformed::yes(around(call)?))
        }
        Expr::ScalarFunction(ScalarFunction { func, args })
            if bounds_itself(func.name()) || compares(func.name()) != Compared::None =>
        {
            let args = match compares(func.name()) {
                Compared::Needle => bare_behind_first(args),
                Compared::None | Compared::All => args.into_iter().map(bare).collect(),
            };
            Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args })))
        }
        // Arguments after the first (a delimiter, a distance, a default) must be literals.
        Expr::AggregateFunction(AggregateFunction { func, mut params }) => {
            params.args = bare_behind_first(params.args);
            Ok(Transformed::yes(Expr::AggregateFunction(AggregateFunction { func, params })))
        }
        Expr::WindowFunction(call) => {
            let WindowFunction { fun, mut params } = *call;
            params.args = bare_behind_first(params.args);
            Ok(Transformed::yes(Expr::WindowFunction(Box::new(WindowFunction { fun, params }))))
        }
        expression => Ok(Transformed::no(expression)),
    }
}

/// Wraps an expression in the function.
fn around(expression: Expr) -> Result<Expr> {
    let Some(function) = REGISTRY.scalar.get(NAME) else {
        return exec_err!("{NAME} is not registered");
    };
    let call = ScalarFunction::new_udf(std::sync::Arc::clone(function), vec![expression]);
    Ok(Expr::ScalarFunction(call))
}

fn is_wide(value: &datafusion::common::ScalarValue) -> bool {
    may_be_wide(&value.data_type()) && value.size() > WIDE_BYTES
}

/// Returns true if an expression is a call of the function.
fn is_wrapped(expression: &Expr) -> bool {
    matches!(expression, Expr::ScalarFunction(call) if call.func.name() == NAME)
}

/// Returns true if an expression has one value for all rows.
fn is_one_value(expression: &Expr) -> bool {
    !expression.any_column_refs() && !expression.is_volatile()
}

/// Returns true if values of a type differ in size.
fn may_be_wide(data_type: &DataType) -> bool {
    data_type.is_nested()
        || matches!(
            data_type,
            DataType::Utf8
                | DataType::LargeUtf8
                | DataType::Utf8View
                | DataType::Binary
                | DataType::LargeBinary
                | DataType::BinaryView
        )
}

/// Arguments of a function that stay one value where they are constants.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Compared {
    /// None of them: constants are expanded to the rows of the other arguments.
    None,
    /// The value that is searched for. A constant array that is searched is expanded to the rows.
    Needle,
    /// All arguments.
    All,
}

/// Arguments of a search function that stay one value.
fn compares(function: &str) -> Compared {
    match function {
        "array_has" | "array_position" | "array_positions" => Compared::Needle,
        "array_has_any" | "starts_with" | "ends_with" | "contains" | "strpos" | NAME => {
            Compared::All
        }
        _ => Compared::None,
    }
}

/// Removes the function around an expression.
fn bare(expression: Expr) -> Expr {
    match expression {
        Expr::ScalarFunction(ScalarFunction { func, mut args }) if func.name() == NAME => {
            match args.pop() {
                Some(constant) => constant,
                None => Expr::ScalarFunction(ScalarFunction { func, args }),
            }
        }
        expression => expression,
    }
}

fn bare_behind_first(args: Vec<Expr>) -> Vec<Expr> {
    let bare_behind = |(position, arg)| if position == 0 { arg } else { bare(arg) };
    args.into_iter().enumerate().map(bare_behind).collect()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct WideConstant {
    signature: Signature,
}

impl ScalarUDFImpl for WideConstant {
    fn name(&self) -> &'static str {
        NAME
    }

    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        match arguments {
            [constant] => Ok(constant.schema_name().to_string()),
            _ => exec_err!("{NAME} takes one argument"),
        }
    }

    fn display_name(&self, arguments: &[Expr]) -> Result<String> {
        self.schema_name(arguments)
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [constant] => Ok(constant.clone()),
            _ => exec_err!("{NAME} takes one argument"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        match args.arg_fields {
            [constant] => Ok(std::sync::Arc::clone(constant)),
            _ => exec_err!("{NAME} takes one argument"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let Ok([constant]) = <[ColumnarValue; 1]>::try_from(args.args) else {
            return exec_err!("{NAME} takes one argument");
        };
        if let ColumnarValue::Scalar(value) = &constant {
            let total = value.size().saturating_mul(rows);
            check_total("a constant", rows, u64::try_from(total).unwrap_or(u64::MAX))?;
        }
        Ok(constant)
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use super::*;
    use crate::SqlError;

    /// The first value of a query over 100,000 numbers, or its SQLSTATE.
    async fn answer(sql: &str) -> String {
        let context = SessionContext::new();
        for function in crate::functions::shared() {
            context.register_udf(function);
        }
        for function in crate::functions::shared_aggregates() {
            context.register_udaf(function.as_ref().clone());
        }
        let run = async {
            let state = context.state();
            let plan = state.create_logical_plan(sql).await?;
            let names = plan.schema().field_names();
            let plan = bounded(state.optimize(&plan)?)?;
            assert_eq!(plan.schema().field_names(), names, "{sql}");
            let plan = state.query_planner().create_physical_plan(&plan, &state).await?;
            datafusion::physical_plan::collect(plan, context.task_ctx()).await
        };
        match run.await {
            Ok(batches) => {
                let first = batches.iter().find(|batch| batch.num_rows() > 0).unwrap();
                let value = datafusion::common::ScalarValue::try_from_array(first.column(0), 0);
                value.unwrap().to_string()
            }
            Err(error) => SqlError::from(error).sqlstate,
        }
    }

    #[tokio::test]
    async fn wide_constants_are_refused_where_rows_would_hold_them() {
        let rows = "FROM generate_series(1, 100000) AS t(value)";
        let wide = "repeat('x', 1000000)";
        for sql in [
            format!("SELECT max(s) FROM (SELECT {wide} AS s, value {rows}) AS d"),
            format!("SELECT count(DISTINCT CASE WHEN value > 3 THEN {wide} ELSE 'a' END) {rows}"),
            format!("SELECT max(coalesce(nullif('a', 'a'), {wide} || value)) {rows}"),
            format!("SELECT max(greatest({wide}, 'a')) {rows} WHERE value > 0"),
            format!(
                "SELECT max(n) FROM (SELECT lag({wide}) OVER (ORDER BY value) AS n {rows}) AS d"
            ),
            format!(
                "SELECT count(s) FROM (SELECT string_agg({wide}, ',') OVER (ORDER BY value) AS s {rows}) AS d"
            ),
            format!("SELECT {wide} AS s, value {rows} ORDER BY value"),
            format!("SELECT (SELECT array_agg(value) {rows}) AS a, value {rows}"),
            format!("SELECT array_append((SELECT array_agg(value) {rows}), 1) AS a, value {rows}"),
            format!(
                "SELECT (SELECT string_agg(value::text, ',') {rows}) || 'x' AS a, value {rows}"
            ),
            format!("SELECT array_append((SELECT array_agg(value) {rows}), value) AS a {rows}"),
            format!(
                "SELECT count(*) {rows} WHERE array_has((SELECT array_agg(value) {rows}), value)"
            ),
        ] {
            assert_eq!(answer(&sql).await, "54000", "{sql}");
        }
    }

    #[tokio::test]
    async fn wide_constants_are_what_they_were_where_there_is_room() {
        let rows = "FROM generate_series(1, 100000) AS t(value)";
        let wide = "repeat('x', 1000000)";
        assert_eq!(answer(&format!("SELECT length({wide})")).await, "1000000");
        assert_eq!(answer(&format!("SELECT {wide}")).await.len(), 1_000_000);
        assert_eq!(
            answer(&format!("SELECT count(*) {rows} WHERE value::text = {wide}")).await,
            "0"
        );
        assert_eq!(
            answer(&format!("SELECT count(*) {rows} WHERE value::text LIKE {wide}")).await,
            "0"
        );
        let few =
            format!("SELECT max(length(s)) FROM (SELECT {wide} AS s {rows} WHERE value < 50) AS d");
        assert_eq!(answer(&few).await, "1000000");
        for (sql, expected) in [
            ("SELECT max(cardinality((SELECT array_agg(value) ROWS))) ROWS", "100000"),
            ("SELECT max(length((SELECT string_agg(value::text, ',') ROWS))) ROWS", "588894"),
            ("SELECT count(*) ROWS WHERE array_has((SELECT array_agg(value) ROWS), 5)", "100000"),
            (
                "SELECT count(*) ROWS WHERE value < 9 AND array_has_any([value], (SELECT array_agg(value) ROWS))",
                "8",
            ),
            (
                "SELECT count(*) ROWS WHERE value::text = (SELECT string_agg(value::text, ',') ROWS)",
                "0",
            ),
            ("SELECT cardinality((SELECT array_agg(value) ROWS))", "100000"),
        ] {
            assert_eq!(answer(&sql.replace("ROWS", rows)).await, expected, "{sql}");
        }
        let list = (1..20_000).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
        let among = format!("SELECT count(*) {rows} WHERE array_has([{list}], value)");
        assert_eq!(answer(&among).await, "19999");
    }

    #[tokio::test]
    async fn texts_that_grow_from_row_to_row_of_a_window_are_bounded() {
        let rows = "FROM generate_series(1, 100000) AS t(value)";
        for aggregate in ["string_agg(value::text, ',')", "array_agg(value)"] {
            let sql = format!(
                "SELECT count(s) FROM (SELECT {aggregate} OVER (ORDER BY value) AS s {rows}) AS d"
            );
            assert_eq!(answer(&sql).await, "54000", "{sql}");
            let few = format!("{sql} WHERE true").replace("100000", "500");
            assert_eq!(answer(&few).await, "500", "{few}");
        }
        for order in ["value DESC", "value DESC NULLS LAST"] {
            let gathered = format!(
                "SELECT array_to_string(array_agg(value ORDER BY {order}), ',') {rows} WHERE value < 4"
            );
            assert_eq!(answer(&gathered).await, "3,2,1");
        }
        let gathered = format!(
            "SELECT string_agg(value::text, ',' ORDER BY value DESC) {rows} WHERE value < 4"
        );
        assert_eq!(answer(&gathered).await, "3,2,1");
        assert_eq!(
            answer(&format!("SELECT length(string_agg(value::text, ',')) {rows}")).await,
            "588894"
        );
    }
}
