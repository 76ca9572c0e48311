//! Wide constants, which are not spread over more rows than there is memory for.
//!
//! A constant of a megabyte (a literal, a parameter, what `repeat('x', 1000000)` was computed to) costs nothing until an
//! operator puts it into each of the 8,192 rows of a batch: a column of eight gigabytes, in memory that no pool sees.
//! [`bounded`] puts a function around such constants, the last thing before a plan is made of operators. It knows how
//! many rows it is asked for, and refuses with SQLSTATE 54000 when they would take too much together (`bounded.rs`).
//! Where a constant is compared with rows, or handed to a function that computes its own bounds, it stays one value and
//! is left alone.
//!
//! The value of a subquery, and what is computed from it without a column, is a constant too, whose size is known only when
//! it runs: an array of a million numbers that `(SELECT array_agg(n) FROM t)` gives is gigabytes in the rows of a batch.
//!
//! Invariants: columns are named as they were; what is within the bounds is what it was.

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

/// The name under which the function is found, at a node too.
pub(crate) const NAME: &str = "wide_constant";
/// Bytes beyond which a constant is wide: in as many rows as a batch has, it reaches the bound of a call.
const WIDE_BYTES: usize = 16 << 10;

/// The function around wide constants.
pub(crate) fn function() -> ScalarUDF {
    // Were it immutable, the optimizer would compute it once, for one row.
    ScalarUDF::from(WideConstant { signature: Signature::any(1, Volatility::Stable) })
}

/// Puts the function around each wide constant of a plan that may be spread over rows.
///
/// # Errors
/// None but those of walking the plan.
pub fn bounded(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| match node {
        // A scan compares constants with columns; rows of VALUES are made one by one.
        LogicalPlan::TableScan(_) | LogicalPlan::Values(_) => Ok(Transformed::no(node)),
        node => node.map_expressions(|expression| expression.transform_up(wrapped)),
    })
    .data()
}

/// An expression, wrapped when it is a wide constant; directly below one that takes its constants as they are, not.
fn wrapped(expression: Expr) -> Result<Transformed<Expr>> {
    match expression {
        Expr::Literal(ref value, _) if is_wide(value) => Ok(Transformed::yes(around(expression)?)),
        Expr::ScalarSubquery(ref subquery) if subquery.outer_ref_columns.is_empty() => {
            let field = subquery.subquery.schema().fields().first();
            match field.is_some_and(|field| may_be_wide(field.data_type())) {
                true => Ok(Transformed::yes(around(expression)?)),
                false => Ok(Transformed::no(expression)),
            }
        }
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
        // Computed once from one value: not the value is spread, but the result.
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
        // What stands behind the first argument (a delimiter, a distance, a default) has to be a literal.
        Expr::AggregateFunction(AggregateFunction { func, mut params }) => {
            params.args = bare_behind_first(params.args);
            Ok(Transformed::yes(Expr::AggregateFunction(AggregateFunction { func, params })))
        }
        Expr::WindowFunction(call) => {
            let WindowFunction { fun, mut params } = *call;
            params.args = bare_behind_first(params.args);
            Ok(Transformed::yes(Expr::WindowFunction(Box::new(WindowFunction { fun, params }))))
        }
        other => Ok(Transformed::no(other)),
    }
}

/// An expression with the function around it.
fn around(expression: Expr) -> Result<Expr> {
    let Some(function) = REGISTRY.scalar.get(NAME) else {
        return exec_err!("the function {NAME} is missing");
    };
    let call = ScalarFunction::new_udf(std::sync::Arc::clone(function), vec![expression]);
    Ok(Expr::ScalarFunction(call))
}

fn is_wide(value: &datafusion::common::ScalarValue) -> bool {
    may_be_wide(&value.data_type()) && value.size() > WIDE_BYTES
}

/// Whether an expression has the function around it.
fn is_wrapped(expression: &Expr) -> bool {
    matches!(expression, Expr::ScalarFunction(call) if call.func.name() == NAME)
}

/// Whether an expression has one value for all rows.
fn is_one_value(expression: &Expr) -> bool {
    !expression.any_column_refs() && !expression.is_volatile()
}

/// Whether values of a type differ in size.
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

/// The arguments of a function that stay one value where they are constants.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Compared {
    /// None: constants are spread over the rows of the other arguments.
    None,
    /// The value that is looked for. A constant array that rows' values are looked for in is spread over them.
    Needle,
    /// All.
    All,
}

/// Which arguments stay one value in a function that looks for one in another.
fn compares(function: &str) -> Compared {
    match function {
        "array_has" | "array_position" | "array_positions" => Compared::Needle,
        "array_has_any" | "starts_with" | "ends_with" | "contains" | "strpos" | NAME => {
            Compared::All
        }
        _ => Compared::None,
    }
}

/// An expression without the function around it.
fn bare(expression: Expr) -> Expr {
    match expression {
        Expr::ScalarFunction(ScalarFunction { func, mut args }) if func.name() == NAME => {
            match args.pop() {
                Some(constant) => constant,
                None => Expr::ScalarFunction(ScalarFunction { func, args }),
            }
        }
        other => other,
    }
}

fn bare_behind_first(args: Vec<Expr>) -> Vec<Expr> {
    let bare_behind = |(at, arg)| if at == 0 { arg } else { bare(arg) };
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

    /// The first value of a query's answer over 100,000 numbers, or its SQLSTATE.
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
