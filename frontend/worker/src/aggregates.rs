//! `avg` and `sum`, as DataFusion has them but for how they accumulate: doubles by runs (`runs.rs`), integers without
//! wrapping (`whole.rs`).
//!
//! Invariant: names, types and rules are DataFusion's; only accumulators and partial states are replaced.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::execution::SessionStateDefaults;
use datafusion::logical_expr::expr::{
    AggregateFunction, AggregateFunctionParams, WindowFunctionParams,
};
use datafusion::logical_expr::function::{
    AccumulatorArgs, AggregateFunctionSimplification, StateFieldsArgs,
};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, Expr, GroupsAccumulator, Operator,
    ReversedUDAF, SetMonotonicity, Signature, StatisticsArgs,
};

use crate::runs::{Runs, State};
use crate::whole::{self, Whole, WholeGroups};

/// The functions of DataFusion that are replaced, under their own names.
pub(crate) fn replaced() -> impl Iterator<Item = Arc<AggregateUDF>> {
    SessionStateDefaults::default_aggregate_functions().into_iter().filter_map(|inner| {
        let state = match inner.name() {
            "avg" => State::CountAndSum,
            "sum" => State::Sum,
            _ => return None,
        };
        Some(Arc::new(AggregateUDF::new_from_impl(Replaced { inner, state })))
    })
}

/// The same over wide numbers.
fn widened(args: AccumulatorArgs<'_>) -> AccumulatorArgs<'_> {
    AccumulatorArgs { return_field: whole::wide(&args.return_field), ..args }
}

/// A function of DataFusion's, which accumulates otherwise.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Replaced {
    inner: Arc<AggregateUDF>,
    state: State,
}

impl Replaced {
    fn inner(&self) -> &dyn AggregateUDFImpl {
        self.inner.inner().as_ref()
    }

    /// The type of a sum of integers, if this is one.
    fn whole(&self, returned: &FieldRef) -> Option<DataType> {
        let to = returned.data_type();
        (self.state == State::Sum && whole::is_whole(to)).then(|| to.clone())
    }
}

impl AggregateUDFImpl for Replaced {
    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        if let Some(to) = self.whole(&args.return_field) {
            let inner = self.inner().create_groups_accumulator(widened(args))?;
            return Ok(Box::new(WholeGroups { inner, to }));
        }
        let doubles = args.expr_fields.first().map(|field| field.data_type().clone());
        let plain = !args.is_distinct && doubles == Some(DataType::Float64);
        let inner = self.inner().create_groups_accumulator(args)?;
        if !plain {
            return Ok(inner);
        }
        Ok(Box::new(Runs::new(inner, self.state)))
    }

    fn name(&self) -> &str {
        self.inner().name()
    }

    fn aliases(&self) -> &[String] {
        self.inner().aliases()
    }

    fn schema_name(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.inner().schema_name(params)
    }

    fn human_display(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.inner().human_display(params)
    }

    fn window_function_schema_name(&self, params: &WindowFunctionParams) -> Result<String> {
        self.inner().window_function_schema_name(params)
    }

    fn display_name(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.inner().display_name(params)
    }

    fn window_function_display_name(&self, params: &WindowFunctionParams) -> Result<String> {
        self.inner().window_function_display_name(params)
    }

    fn signature(&self) -> &Signature {
        self.inner().signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner().return_type(types)
    }

    fn return_field(&self, fields: &[FieldRef]) -> Result<FieldRef> {
        self.inner().return_field(fields)
    }

    fn is_nullable(&self) -> bool {
        self.inner().is_nullable()
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        if let Some(to) = self.whole(&args.return_field) {
            let inner = self.inner().accumulator(widened(args))?;
            return Ok(Box::new(Whole { inner, to }));
        }
        self.inner().accumulator(args)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        if self.whole(&args.return_field).is_some() {
            let return_field = whole::wide(&args.return_field);
            return self.inner().state_fields(StateFieldsArgs { return_field, ..args });
        }
        self.inner().state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.inner().groups_accumulator_supported(args)
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        // Of distinct values DataFusion slides over integers only.
        if let Some(to) = self.whole(&args.return_field).filter(|_| !args.is_distinct) {
            let inner = self.inner().create_sliding_accumulator(widened(args))?;
            return Ok(Box::new(Whole { inner, to }));
        }
        self.inner().create_sliding_accumulator(args)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner().order_sensitivity()
    }

    fn simplify(&self) -> Option<AggregateFunctionSimplification> {
        self.inner().simplify()
    }

    fn simplify_expr_op_literal(
        &self,
        function: &AggregateFunction,
        arg: &Expr,
        op: Operator,
        literal: &Expr,
        arg_is_left: bool,
    ) -> Result<Option<Expr>> {
        self.inner().simplify_expr_op_literal(function, arg, op, literal, arg_is_left)
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.inner().reverse_expr()
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner().coerce_types(types)
    }

    fn is_descending(&self) -> Option<bool> {
        self.inner().is_descending()
    }

    fn value_from_stats(&self, args: &StatisticsArgs<'_>) -> Option<ScalarValue> {
        self.inner().value_from_stats(args)
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        self.inner().default_value(data_type)
    }

    fn supports_null_handling_clause(&self) -> bool {
        self.inner().supports_null_handling_clause()
    }

    fn supports_within_group_clause(&self) -> bool {
        self.inner().supports_within_group_clause()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner().documentation()
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.inner().set_monotonicity(data_type)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, AsArray, Int64Array, RecordBatch, UInt64Array};
    use arrow::datatypes::{Field, Int64Type, Schema, UInt64Type};
    use datafusion::datasource::MemTable;
    use datafusion::execution::FunctionRegistry;
    use datafusion::prelude::{SessionConfig, SessionContext};

    use super::*;
    use crate::SqlError;

    /// Each row of what a query of `t` answers, as text; or its SQLSTATE.
    async fn answer(
        sql: &str,
        rows: &[(i64, Option<i64>)],
    ) -> std::result::Result<Vec<String>, String> {
        // Several batches and streams, so that partial states are made and merged.
        let config = SessionConfig::new().with_batch_size(2).with_target_partitions(2);
        let mut state = SessionContext::new_with_config(config).state();
        for function in replaced() {
            let _replaced = state.register_udaf(function).unwrap();
        }
        let context = SessionContext::new_with_state(state);
        let schema = Arc::new(Schema::new(vec![
            Field::new("g", DataType::Int64, false),
            Field::new("n", DataType::Int64, true),
            Field::new("u", DataType::UInt64, true),
        ]));
        let batch = |rows: &[(i64, Option<i64>)]| {
            let groups: Int64Array = rows.iter().map(|row| Some(row.0)).collect();
            let numbers: Int64Array = rows.iter().map(|row| row.1).collect();
            let unsigned: UInt64Array =
                rows.iter().map(|row| row.1.map(|n| n.unsigned_abs().saturating_mul(2))).collect();
            let columns =
                vec![Arc::new(groups) as _, Arc::new(numbers) as _, Arc::new(unsigned) as _];
            RecordBatch::try_new(Arc::clone(&schema), columns).unwrap()
        };
        let streams = rows.chunks(rows.len().div_ceil(2)).map(|rows| vec![batch(rows)]).collect();
        let table = MemTable::try_new(Arc::clone(&schema), streams).unwrap();
        context.register_table("t", Arc::new(table)).unwrap();
        let answered = context.sql(sql).await.unwrap().collect().await;
        let batches = answered.map_err(|error| SqlError::from(error).sqlstate)?;
        let mut told = Vec::new();
        for batch in &batches {
            let column = batch.column(0);
            for row in 0..batch.num_rows() {
                told.push(match column.data_type() {
                    _ if column.is_null(row) => "null".to_owned(),
                    DataType::Int64 => column.as_primitive::<Int64Type>().value(row).to_string(),
                    DataType::UInt64 => column.as_primitive::<UInt64Type>().value(row).to_string(),
                    other => panic!("{other}"),
                });
            }
        }
        Ok(told)
    }

    const SUMS: [&str; 4] = [
        "SELECT sum(n) FROM t",
        "SELECT sum(n) FROM t GROUP BY g",
        "SELECT sum(DISTINCT n) FROM t",
        "SELECT sum(n) OVER (ORDER BY n ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS s FROM t ORDER BY s DESC LIMIT 1",
    ];

    #[tokio::test]
    async fn a_sum_that_does_not_fit_is_an_error() {
        let rows = [(1, Some(i64::MAX)), (1, None), (1, Some(1)), (1, Some(5))];
        for sql in SUMS {
            assert_eq!(answer(sql, &rows).await, Err("22003".to_owned()), "{sql}");
        }
        assert_eq!(answer("SELECT sum(u) FROM t", &rows).await, Err("22003".to_owned()));
    }

    #[tokio::test]
    async fn it_is_the_whole_sum_that_has_to_fit() {
        let rows = [(1, Some(i64::MAX)), (1, Some(7)), (1, Some(-9)), (1, None)];
        let fits = Ok(vec![(i64::MAX - 2).to_string()]);
        for sql in &SUMS[..3] {
            assert_eq!(answer(sql, &rows).await, fits, "{sql}");
        }
        let low = [(1, Some(i64::MIN)), (1, Some(-1)), (1, Some(2))];
        assert_eq!(answer(SUMS[1], &low).await, Ok(vec![(i64::MIN + 1).to_string()]));
    }

    #[tokio::test]
    async fn a_sum_of_nothing_is_null_and_others_are_of_the_type_that_they_were() {
        let rows = [(1, None), (1, None)];
        for sql in SUMS {
            assert_eq!(answer(sql, &rows).await, Ok(vec!["null".to_owned()]), "{sql}");
        }
        let rows = [(1, Some(-3)), (2, Some(4)), (1, Some(5))];
        assert_eq!(answer("SELECT sum(u) FROM t", &rows).await, Ok(vec!["24".to_owned()]));
        let sums = "SELECT sum(n) FILTER (WHERE n < 5) AS s FROM t GROUP BY g ORDER BY s";
        assert_eq!(answer(sums, &rows).await, Ok(vec!["-3".to_owned(), "4".to_owned()]));
        let slid = "SELECT sum(n) OVER (ORDER BY n ROWS 1 PRECEDING) FROM t ORDER BY n";
        assert_eq!(answer(slid, &rows).await, Ok(["-3", "1", "9"].map(str::to_owned).to_vec()));
    }
}
