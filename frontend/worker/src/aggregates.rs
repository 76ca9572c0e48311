//! DataFusion's aggregates with other accumulators: doubles are added by runs (`runs.rs`), integers without wrapping
//! (`whole.rs`), long decimals likewise (`decimals.rs`); in sliding windows `avg` and `sum` do not subtract, and
//! `bool_and` and `bool_or` slide too (`sliding.rs`); `string_agg` and `array_agg` are bounded, and `string_agg` joins
//! bytes too (`gathered.rs`); `max` and `min` use PostgreSQL's order (`extremes.rs`); the digests of approximate
//! percentiles have a maximum size; `avg` takes intervals (`interval_average.rs`).
//!
//! Invariant: names, types and rules are DataFusion's except for bytes and intervals; only accumulators and partial
//! states are replaced.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion::common::{ScalarValue, not_impl_err};
use datafusion::error::Result;
use datafusion::execution::SessionStateDefaults;
use datafusion::logical_expr::expr::{
    AggregateFunction, AggregateFunctionParams, WindowFunctionParams,
};
use datafusion::logical_expr::function::{
    AccumulatorArgs, AggregateFunctionSimplification, StateFieldsArgs,
};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Coercion, ColumnarValue, Documentation, Expr,
    GroupsAccumulator, Operator, ReversedUDAF, SetMonotonicity, Signature, StatisticsArgs,
    TypeSignature, TypeSignatureClass, Volatility,
};

use crate::decimals::{self, Long, LongDistinct, LongGroups};
use crate::error::{INVALID_PARAMETER_VALUE, SqlError};
use crate::extremes::End;
use crate::gathered::{self, Gathered};
use crate::interval_average::IntervalAverage;
use crate::intervals::INTERVAL;
use crate::runs::{Runs, State};
use crate::sliding::{Holds, SlidingDoubles, SlidingTruth};
use crate::whole::{self, Whole, WholeGroups};

/// The aggregate that joins texts, and here bytes too.
const STRING_AGG: &str = "string_agg";
/// Maximum centroids of a digest. DataFusion allocates memory for all of them, outside of every memory pool, each time
/// that a digest takes up a batch.
const CENTROIDS_MAX: i64 = 10_000;

/// DataFusion's aggregates that are replaced, under their own names.
pub(crate) fn replaced() -> impl Iterator<Item = Arc<AggregateUDF>> {
    SessionStateDefaults::default_aggregate_functions().into_iter().filter_map(|inner| {
        let kind = match inner.name() {
            "avg" => Kind::Adds(State::CountAndSum),
            "sum" => Kind::Adds(State::Sum),
            STRING_AGG | "array_agg" => Kind::Gathers,
            "max" => Kind::Extreme(End::Max),
            "min" => Kind::Extreme(End::Min),
            "bool_and" => Kind::Holds(Holds::OfAll),
            "bool_or" => Kind::Holds(Holds::OfAny),
            "approx_percentile_cont" => Kind::Digests { centroids: 2 },
            "approx_percentile_cont_with_weight" => Kind::Digests { centroids: 3 },
            _ => return None,
        };
        Some(Arc::new(AggregateUDF::new_from_impl(Replaced::new(inner, kind))))
    })
}

/// Kind of aggregation, which selects the accumulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    /// Sums values, with this partial state.
    Adds(State),
    /// Collects all values (`gathered.rs`).
    Gathers,
    /// Selects the value at one end of the order (`extremes.rs`).
    Extreme(End),
    /// Combines truth values (`sliding.rs`).
    Holds(Holds),
    /// Summarizes values in a digest.
    Digests {
        /// Position of the argument with the number of centroids; it may be missing.
        centroids: usize,
    },
}

/// Arguments of the same accumulator over wide numbers.
fn widened(args: AccumulatorArgs<'_>) -> AccumulatorArgs<'_> {
    AccumulatorArgs { return_field: whole::wide(&args.return_field), ..args }
}

/// Arguments of the same accumulator over halves of long decimals.
fn halved(args: AccumulatorArgs<'_>) -> AccumulatorArgs<'_> {
    AccumulatorArgs { return_field: decimals::half(&args.return_field), ..args }
}

/// An aggregate of DataFusion with another accumulator.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Replaced {
    inner: Arc<AggregateUDF>,
    kind: Kind,
    aliases: Vec<String>,
    signature: Signature,
}

impl Replaced {
    fn new(inner: Arc<AggregateUDF>, kind: Kind) -> Self {
        let mut aliases = inner.aliases().to_vec();
        if kind == Kind::Holds(Holds::OfAll) {
            // `AggregateUDF::with_aliases` of DataFusion would lose the sliding accumulator.
            aliases.push("every".to_owned());
        }
        let signature = match kind {
            _ if inner.name() == STRING_AGG => Signature::user_defined(Volatility::Immutable),
            Kind::Adds(State::CountAndSum) => {
                let interval = Coercion::new_exact(TypeSignatureClass::Interval);
                let mut signatures = match inner.signature().type_signature.clone() {
                    TypeSignature::OneOf(signatures) => signatures,
                    signature => vec![signature],
                };
                signatures.push(TypeSignature::Coercible(vec![interval]));
                Signature::one_of(signatures, Volatility::Immutable)
            }
            _ => inner.signature().clone(),
        };
        Self { inner, kind, aliases, signature }
    }

    fn inner(&self) -> &dyn AggregateUDFImpl {
        self.inner.inner().as_ref()
    }

    /// Returns true if it joins values of a type, and they are bytes (`gathered.rs`).
    fn joins_bytes(&self, data_type: Option<&DataType>) -> bool {
        self.inner.name() == STRING_AGG && data_type.is_some_and(DataType::is_binary)
    }

    /// Returns true if it is the average of intervals.
    fn averages_intervals(&self, data_type: Option<&DataType>) -> bool {
        self.kind == Kind::Adds(State::CountAndSum) && data_type == Some(&INTERVAL)
    }

    /// The accumulator for an average of intervals, in windows too.
    fn interval_average(&self, args: &AccumulatorArgs<'_>) -> Result<Option<Box<dyn Accumulator>>> {
        if !self.averages_intervals(Some(args.return_field.data_type())) {
            return Ok(None);
        }
        if args.is_distinct {
            return not_impl_err!("avg(DISTINCT) of intervals is not supported");
        }
        Ok(Some(Box::new(IntervalAverage::default())))
    }

    /// Type of the sum if it is a sum of integers.
    fn whole(&self, returned: &FieldRef) -> Option<DataType> {
        let sum_type = returned.data_type();
        (self.kind == Kind::Adds(State::Sum) && whole::is_whole(sum_type)).then(|| sum_type.clone())
    }

    /// Type of the sum if it is a sum of long decimals.
    fn long(&self, returned: &FieldRef) -> Option<DataType> {
        let sum_type = returned.data_type();
        (self.kind == Kind::Adds(State::Sum) && decimals::is_long(sum_type))
            .then(|| sum_type.clone())
    }
}

impl Replaced {
    /// Returns the accumulator, with a bound on its values if it collects them.
    fn within_bounds(&self, inner: Box<dyn Accumulator>) -> Box<dyn Accumulator> {
        match self.kind {
            Kind::Gathers => Box::new(Gathered::new(inner, self.inner().name())),
            Kind::Adds(_) | Kind::Extreme(_) | Kind::Holds(_) | Kind::Digests { .. } => inner,
        }
    }

    /// Refuses a digest of too many centroids.
    fn check_centroids(&self, args: &AccumulatorArgs<'_>) -> Result<()> {
        let Kind::Digests { centroids } = self.kind else { return Ok(()) };
        let Some(argument) = args.exprs.get(centroids) else { return Ok(()) };
        let no_rows = RecordBatch::new_empty(Arc::new(Schema::empty()));
        // DataFusion itself refuses NULL, and an argument that is not a constant.
        let Ok(ColumnarValue::Scalar(count)) = argument.evaluate(&no_rows) else { return Ok(()) };
        if count.is_null() {
            return Ok(());
        }
        match count.cast_to(&DataType::Int64) {
            Ok(ScalarValue::Int64(Some(1..=CENTROIDS_MAX))) => Ok(()),
            _ => {
                let message = format!("number of centroids must be between 1 and {CENTROIDS_MAX}");
                Err(SqlError::new(INVALID_PARAMETER_VALUE, message).into())
            }
        }
    }

    /// End of the order, for `max` and `min`.
    fn end(&self) -> Option<End> {
        match self.kind {
            Kind::Extreme(end) => Some(end),
            Kind::Adds(_) | Kind::Gathers | Kind::Holds(_) | Kind::Digests { .. } => None,
        }
    }

    /// Returns true if the call adds doubles, duplicates included.
    fn adds_doubles(&self, args: &AccumulatorArgs<'_>) -> bool {
        let data_type = args.expr_fields.first().map(|field| field.data_type());
        matches!(self.kind, Kind::Adds(_))
            && !args.is_distinct
            && data_type == Some(&DataType::Float64)
    }

    /// The partial state of a sum of long decimals.
    fn halves_of_state(&self, args: &StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let mut state = Vec::with_capacity(2);
        for half in ["upper", "lower"] {
            let fields = self.inner().state_fields(StateFieldsArgs {
                name: args.name,
                input_fields: args.input_fields,
                return_field: decimals::half(&args.return_field),
                ordering_fields: args.ordering_fields,
                is_distinct: false,
            })?;
            state.extend(fields.into_iter().map(|field| -> FieldRef {
                let name = format!("{}[{half}]", field.name());
                Arc::new(field.as_ref().clone().with_name(name))
            }));
        }
        Ok(state)
    }
}

impl AggregateUDFImpl for Replaced {
    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        if let Some(sum_type) = self.whole(&args.return_field) {
            let inner = self.inner().create_groups_accumulator(widened(args))?;
            return Ok(Box::new(WholeGroups { inner, sum_type }));
        }
        if let Some(sum_type) = self.long(&args.return_field) {
            let upper = self.inner().create_groups_accumulator(halved(args.clone()))?;
            let lower = self.inner().create_groups_accumulator(halved(args))?;
            return Ok(Box::new(LongGroups { upper, lower, sum_type }));
        }
        if let Some(groups) = self.end().and_then(|end| end.groups(args.return_field.data_type())) {
            return Ok(groups);
        }
        let doubles = self.adds_doubles(&args);
        let inner = self.inner().create_groups_accumulator(args)?;
        match self.kind {
            Kind::Adds(state) if doubles => Ok(Box::new(Runs::new(inner, state))),
            _ => Ok(inner),
        }
    }

    fn name(&self) -> &str {
        self.inner().name()
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
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
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        if self.joins_bytes(types.first()) {
            return Ok(DataType::BinaryView);
        }
        if self.averages_intervals(types.first()) {
            return Ok(INTERVAL);
        }
        self.inner().return_type(types)
    }

    /// Collected values keep their field's metadata (`pg.oid_alias`), which names the PostgreSQL type of the elements.
    fn return_field(&self, fields: &[FieldRef]) -> Result<FieldRef> {
        let returned = self.inner().return_field(fields)?;
        if self.joins_bytes(fields.first().map(|field| field.data_type())) {
            let returned = returned.as_ref().clone();
            return Ok(Arc::new(returned.with_data_type(DataType::BinaryView)));
        }
        if self.averages_intervals(fields.first().map(|field| field.data_type())) {
            return Ok(Arc::new(returned.as_ref().clone().with_data_type(INTERVAL)));
        }
        match (self.kind, fields.first()) {
            (Kind::Gathers, Some(values)) if !values.metadata().is_empty() => {
                let returned = returned.as_ref().clone();
                Ok(Arc::new(returned.with_metadata(values.metadata().clone())))
            }
            _ => Ok(returned),
        }
    }

    fn is_nullable(&self) -> bool {
        self.inner().is_nullable()
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        self.check_centroids(&args)?;
        if let Some(average) = self.interval_average(&args)? {
            return Ok(average);
        }
        if let Some(sum_type) = self.whole(&args.return_field) {
            let inner = self.inner().accumulator(widened(args))?;
            return Ok(Box::new(Whole { inner, sum_type }));
        }
        if let Some(sum_type) = self.long(&args.return_field) {
            if args.is_distinct {
                let return_field = decimals::wide(&args.return_field);
                let inner = self.inner().accumulator(AccumulatorArgs { return_field, ..args })?;
                return Ok(Box::new(LongDistinct { inner, sum_type }));
            }
            let upper = self.inner().accumulator(halved(args.clone()))?;
            let lower = self.inner().accumulator(halved(args))?;
            return Ok(Box::new(Long { upper, lower, sum_type }));
        }
        if let Some(total) = self.end().and_then(|end| end.total(args.return_field.data_type())) {
            return Ok(total);
        }
        if self.joins_bytes(Some(args.return_field.data_type())) {
            let inner = gathered::of_bytes(args, |args| self.inner().accumulator(args))?;
            return Ok(self.within_bounds(inner));
        }
        let inner = self.inner().accumulator(args)?;
        Ok(self.within_bounds(inner))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        if self.whole(&args.return_field).is_some() {
            let return_field = whole::wide(&args.return_field);
            return self.inner().state_fields(StateFieldsArgs { return_field, ..args });
        }
        if self.long(&args.return_field).is_some() {
            if args.is_distinct {
                let return_field = decimals::wide(&args.return_field);
                return self.inner().state_fields(StateFieldsArgs { return_field, ..args });
            }
            return self.halves_of_state(&args);
        }
        if self.joins_bytes(Some(args.return_field.data_type())) {
            let input_fields = &gathered::as_texts(args.input_fields);
            let return_field = gathered::as_text(&args.return_field);
            return self.inner().state_fields(StateFieldsArgs {
                input_fields,
                return_field,
                ..args
            });
        }
        self.inner().state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        let returned = Some(args.return_field.data_type());
        if self.joins_bytes(returned) || self.averages_intervals(returned) {
            return false;
        }
        let supported =
            self.end().is_some_and(|end| end.groups(args.return_field.data_type()).is_some());
        supported || self.inner().groups_accumulator_supported(args)
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        self.check_centroids(&args)?;
        if let Some(average) = self.interval_average(&args)? {
            return Ok(average);
        }
        // DataFusion's sliding accumulators of distinct values take integers only.
        if let Some(sum_type) = self.whole(&args.return_field).filter(|_| !args.is_distinct) {
            let inner = self.inner().create_sliding_accumulator(widened(args))?;
            return Ok(Box::new(Whole { inner, sum_type }));
        }
        if let Some(sum_type) = self.long(&args.return_field).filter(|_| !args.is_distinct) {
            let upper = self.inner().create_sliding_accumulator(halved(args.clone()))?;
            let lower = self.inner().create_sliding_accumulator(halved(args))?;
            return Ok(Box::new(Long { upper, lower, sum_type }));
        }
        if let Some(end) = self.end().and_then(|end| end.sliding(args.return_field.data_type())) {
            return Ok(end);
        }
        if let Kind::Holds(holds) = self.kind {
            return Ok(Box::new(SlidingTruth::new(holds)));
        }
        if self.adds_doubles(&args) {
            let average = self.kind == Kind::Adds(State::CountAndSum);
            return Ok(Box::new(SlidingDoubles::new(average)));
        }
        if self.joins_bytes(Some(args.return_field.data_type())) {
            let sliding = |args: AccumulatorArgs<'_>| self.inner().create_sliding_accumulator(args);
            return Ok(self.within_bounds(gathered::of_bytes(args, sliding)?));
        }
        let inner = self.inner().create_sliding_accumulator(args)?;
        Ok(self.within_bounds(inner))
    }

    fn with_beneficial_ordering(
        self: Arc<Self>,
        beneficial_ordering: bool,
    ) -> Result<Option<Arc<dyn AggregateUDFImpl>>> {
        let inner = self.inner.as_ref().clone().with_beneficial_ordering(beneficial_ordering)?;
        Ok(inner.map(|inner| -> Arc<dyn AggregateUDFImpl> {
            Arc::new(Self::new(Arc::new(inner), self.kind))
        }))
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
        match (self.kind, self.inner().reverse_expr()) {
            (Kind::Gathers, ReversedUDAF::Reversed(inner)) => {
                let reversed = Self::new(inner, Kind::Gathers);
                ReversedUDAF::Reversed(Arc::new(AggregateUDF::new_from_impl(reversed)))
            }
            (_, reversed) => reversed,
        }
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        if self.inner.name() != STRING_AGG {
            return self.inner().coerce_types(types);
        }
        if types.len() == 2 && self.joins_bytes(types.first()) {
            return Ok(vec![DataType::BinaryView; 2]);
        }
        let fields =
            types.iter().map(|data_type| Arc::new(Field::new("argument", data_type.clone(), true)));
        let fields = fields_with_udf(&fields.collect::<Vec<_>>(), self.inner.as_ref())?;
        Ok(fields.iter().map(|field| field.data_type().clone()).collect())
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
    use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Int64Array, UInt64Array};
    use arrow::datatypes::{Int64Type, UInt64Type};
    use datafusion::datasource::MemTable;
    use datafusion::execution::FunctionRegistry;
    use datafusion::prelude::{SessionConfig, SessionContext};

    use super::*;

    /// A multiple of ten to the power of 37: a decimal of 38 digits for one digit.
    fn long(n: i64) -> i128 {
        i128::from(n % 10) * 10_i128.pow(37)
    }

    /// The rows of a query of `t` as texts, or its SQLSTATE.
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
            Field::new("d", DataType::Decimal128(38, 0), true),
        ]));
        let batch = |rows: &[(i64, Option<i64>)]| {
            let groups: Int64Array = rows.iter().map(|row| Some(row.0)).collect();
            let numbers: Int64Array = rows.iter().map(|row| row.1).collect();
            let unsigned: UInt64Array =
                rows.iter().map(|row| row.1.map(|n| n.unsigned_abs().saturating_mul(2))).collect();
            let decimals: Decimal128Array = rows.iter().map(|row| row.1.map(long)).collect();
            let decimals = decimals.with_precision_and_scale(38, 0).unwrap();
            let columns: Vec<ArrayRef> =
                vec![Arc::new(groups), Arc::new(numbers), Arc::new(unsigned), Arc::new(decimals)];
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
                    DataType::Utf8 => column.as_string::<i32>().value(row).to_owned(),
                    DataType::Utf8View => column.as_string_view().value(row).to_owned(),
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

    const LONG_SUMS: [&str; 4] = [
        "SELECT CAST(sum(d) AS STRING) FROM t",
        "SELECT CAST(sum(d) AS STRING) FROM t GROUP BY g",
        "SELECT CAST(sum(DISTINCT d) AS STRING) FROM t",
        "SELECT CAST(sum(d) OVER (ORDER BY n NULLS FIRST ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) \
         AS STRING) AS s FROM t ORDER BY n DESC NULLS LAST LIMIT 1",
    ];

    #[tokio::test]
    async fn a_sum_of_long_decimals_that_does_not_fit_is_an_error_and_never_another_number() {
        for sql in LONG_SUMS {
            // One digit too many, and more than 128 bits hold.
            for sums in [&[4, 6][..], &[9, 8], &[9, 1, 7, 8], &[-9, -8, -7]] {
                let rows: Vec<_> = sums.iter().map(|n| (1, Some(*n))).collect();
                assert_eq!(answer(sql, &rows).await, Err("22003".to_owned()), "{sql} {sums:?}");
            }
            for sums in [&[4, 5][..], &[-4, -5], &[9, 8, -9], &[9, -8, 7], &[-1, 1]] {
                let rows: Vec<_> = sums.iter().map(|n| (1, Some(*n))).chain([(1, None)]).collect();
                let sum = long(sums.iter().sum()).to_string();
                assert_eq!(answer(sql, &rows).await, Ok(vec![sum]), "{sql} {sums:?}");
            }
        }
        let nothing = Ok(vec!["null".to_owned()]);
        assert_eq!(answer(LONG_SUMS[1], &[(1, None)]).await, nothing);
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

    #[tokio::test]
    async fn a_digest_of_too_many_centroids_is_refused_before_it_is_made() {
        let rows: Vec<_> = (0..8).map(|n| (n % 3, Some(n))).collect();
        let calls = |count: &str| {
            [
                format!("approx_percentile_cont(n, 0.5, {count})"),
                format!("approx_percentile_cont(0.5, {count}) WITHIN GROUP (ORDER BY n)"),
                format!("approx_percentile_cont_with_weight(n, g, 0.5, {count})"),
            ]
        };
        for count in ["2000000000", "10001", "9223372036854775807", "-1", "0"] {
            for call in calls(count) {
                for rest in ["FROM t", "FROM t GROUP BY g", "FROM t WHERE n > 100"] {
                    let sql = format!("SELECT CAST({call} AS BIGINT) {rest}");
                    assert_eq!(answer(&sql, &rows).await, Err("22023".to_owned()), "{sql}");
                }
            }
            let call = &calls(count)[0];
            let sql = format!("SELECT CAST({call} OVER (PARTITION BY g) AS BIGINT) FROM t");
            assert_eq!(answer(&sql, &rows).await, Err("22023".to_owned()), "{sql}");
        }
        for count in ["1", "100", "10000"] {
            for call in calls(count) {
                let sql = format!("SELECT CAST({call} AS BIGINT) FROM t");
                assert!(answer(&sql, &rows).await.is_ok(), "{sql}");
            }
        }
        let without = "SELECT CAST(approx_percentile_cont(n, 1.0) AS BIGINT) FROM t";
        assert_eq!(answer(without, &rows).await, Ok(vec!["7".to_owned()]));
    }
}
