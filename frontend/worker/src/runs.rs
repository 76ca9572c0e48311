//! `avg` and `sum` of doubles over adjacent rows of a group.
//!
//! Rows come in key order, so those of one group (a host's rows of one hour) are mostly adjacent. DataFusion adds each
//! row to its group's sum in memory, and each addition waits for the previous one; in the average of many fields that
//! took a quarter of the whole query. Here the rows of a **run**, adjacent rows of one group, are added up first, and
//! DataFusion's own accumulator merges one partial state per run.
//!
//! Invariants:
//! - NULLs, filters, other types and DISTINCT are left to DataFusion: only the sum of a run is computed here;
//! - the order of additions differs from row by row, as it does with partial aggregates of several partitions.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, Float64Array, UInt64Array};
use datafusion::error::Result;
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};

/// Minimum average rows of a run: with fewer, runs cost more than they save.
const ROWS_PER_RUN_MIN: usize = 4;
/// Independent partial sums, so that an addition need not wait for the previous one.
const LANES: usize = 8;

/// Partial state that DataFusion's accumulator merges for a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum State {
    CountAndSum,
    Sum,
}

/// DataFusion's accumulator, fed with runs where there are any.
pub(crate) struct Runs {
    inner: Box<dyn GroupsAccumulator>,
    state: State,
    /// The group of each run of a batch, and the row after its last one; kept to reuse the memory.
    groups: Vec<usize>,
    ends: Vec<usize>,
}

impl Runs {
    pub(crate) fn new(inner: Box<dyn GroupsAccumulator>, state: State) -> Self {
        Self { inner, state, groups: Vec::new(), ends: Vec::new() }
    }

    /// Finds the runs of a batch; returns true if they are long enough to be used.
    fn find(&mut self, groups: &[usize]) -> bool {
        self.groups.clear();
        self.ends.clear();
        let mut end = 0;
        for run in groups.chunk_by(|a, b| a == b) {
            if self.ends.len() >= groups.len() / ROWS_PER_RUN_MIN {
                return false;
            }
            end += run.len();
            self.groups.extend(run.first());
            self.ends.push(end);
        }
        !groups.is_empty()
    }

    /// Partial states of the runs of the batch.
    fn states(&self, values: &[f64]) -> Vec<ArrayRef> {
        let begins = || std::iter::once(0).chain(self.ends.iter().copied());
        let spans = || begins().zip(&self.ends);
        let sums: Float64Array =
            spans().map(|(begin, end)| added_up(&values[begin..*end])).collect::<Vec<_>>().into();
        match self.state {
            State::Sum => vec![Arc::new(sums)],
            State::CountAndSum => {
                let counts: Vec<u64> = spans().map(|(begin, end)| (end - begin) as u64).collect();
                vec![Arc::new(UInt64Array::from(counts)), Arc::new(sums)]
            }
        }
    }
}

/// The sum of some numbers, in independent lanes.
fn added_up(values: &[f64]) -> f64 {
    let (chunks, rest) = values.as_chunks::<LANES>();
    let mut lanes = [0.0; LANES];
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane += value;
        }
    }
    lanes.iter().chain(rest).sum()
}

impl GroupsAccumulator for Runs {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        groups_total: usize,
    ) -> Result<()> {
        let doubles = match values {
            [values] => values.as_any().downcast_ref::<Float64Array>(),
            _ => None,
        };
        if let Some(doubles) = doubles
            && filter.is_none()
            && doubles.null_count() == 0
            && self.find(groups)
        {
            let states = self.states(doubles.values());
            return self.inner.merge_batch(&states, &self.groups, groups_total);
        }
        self.inner.update_batch(values, groups, filter, groups_total)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        self.inner.evaluate(emit_to)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.inner.state(emit_to)
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        groups_total: usize,
    ) -> Result<()> {
        self.inner.merge_batch(values, groups, groups_total)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        self.inner.convert_to_state(values, filter)
    }

    fn size(&self) -> usize {
        let indices = self.groups.capacity() + self.ends.capacity();
        self.inner.size() + indices * size_of::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::RecordBatch;
    use arrow::datatypes::{DataType, Field, FieldRef, Schema};
    use arrow::util::pretty::pretty_format_batches;
    use datafusion::datasource::MemTable;
    use datafusion::execution::FunctionRegistry;
    use datafusion::logical_expr::function::AccumulatorArgs;
    use datafusion::prelude::{SessionConfig, SessionContext};
    use proptest::prelude::*;

    use super::*;
    use crate::aggregates;

    const QUERIES: [&str; 5] = [
        "SELECT g, avg(v), sum(v), mean(v), count(v) FROM t GROUP BY g ORDER BY g",
        "SELECT g, avg(v) FILTER (WHERE v > 3), sum(v) FILTER (WHERE v > 3) FROM t GROUP BY g ORDER BY g",
        "SELECT g, avg(DISTINCT v), sum(DISTINCT v), avg(n), sum(n) FROM t GROUP BY g ORDER BY g",
        "SELECT avg(v), sum(v) FROM t",
        "SELECT n, sum(v) OVER (ORDER BY n ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) FROM t ORDER BY n",
    ];

    /// The result of a query with these functions, or with DataFusion's.
    async fn answer(
        rows: &[(i64, Option<i32>)],
        batch_rows: usize,
        own: bool,
        sql: &str,
    ) -> String {
        let schema = Arc::new(Schema::new(vec![
            Field::new("g", DataType::Int64, false),
            Field::new("v", DataType::Float64, true),
            Field::new("n", DataType::Int64, false),
        ]));
        let batch = RecordBatch::try_new(
            Arc::clone(&schema),
            vec![
                Arc::new(rows.iter().map(|row| Some(row.0)).collect::<arrow::array::Int64Array>()),
                // Whole numbers: exact in any order.
                Arc::new(rows.iter().map(|row| row.1.map(f64::from)).collect::<Float64Array>()),
                Arc::new((0..).take(rows.len()).map(Some).collect::<arrow::array::Int64Array>()),
            ],
        )
        .unwrap();
        let config = SessionConfig::new().with_batch_size(batch_rows).with_target_partitions(1);
        let mut state = SessionContext::new_with_config(config).state();
        if own {
            for function in aggregates::replaced() {
                let _replaced = state.register_udaf(function).unwrap();
            }
        }
        let context = SessionContext::new_with_state(state);
        let table = MemTable::try_new(schema, vec![vec![batch]]).unwrap();
        context.register_table("t", Arc::new(table)).unwrap();
        let answer = context.sql(sql).await.unwrap().collect().await.unwrap();
        pretty_format_batches(&answer).unwrap().to_string()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn runs_answer_what_rows_do(
            runs in prop::collection::vec((0_i64..4, 1_usize..40, any::<bool>()), 0..12),
            batch_rows in 1_usize..80,
            values in prop::collection::vec(-1000_i32..1000, 480),
        ) {
            let mut rows = Vec::new();
            for (group, length, with_null) in runs {
                for at in 0..length {
                    let null = with_null && at == length / 2;
                    rows.push((group, (!null).then(|| values[rows.len() % values.len()])));
                }
            }
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            for sql in QUERIES {
                let own = runtime.block_on(answer(&rows, batch_rows, true, sql));
                let theirs = runtime.block_on(answer(&rows, batch_rows, false, sql));
                prop_assert_eq!(own, theirs, "{}", sql);
            }
        }
    }

    #[test]
    fn short_runs_are_left_to_rows() {
        let inner = aggregates::replaced().next().unwrap();
        let field: FieldRef = Arc::new(Field::new("v", DataType::Float64, true));
        let schema = Schema::new(vec![Arc::clone(&field)]);
        let args = AccumulatorArgs {
            return_field: Arc::clone(&field),
            schema: &schema,
            ignore_nulls: false,
            order_bys: &[],
            is_reversed: false,
            name: "avg(v)",
            is_distinct: false,
            exprs: &[],
            expr_fields: &[field],
        };
        let inner = inner.inner().create_groups_accumulator(args).unwrap();
        let mut runs = Runs::new(inner, State::CountAndSum);
        assert!(runs.find(&[3, 3, 3, 3, 1, 1, 1, 1]));
        assert_eq!((runs.groups.as_slice(), runs.ends.as_slice()), (&[3, 1][..], &[4, 8][..]));
        assert!(!runs.find(&[3, 3, 3, 1, 1, 1, 2, 2]));
        assert!(!runs.find(&[]));
    }

    #[test]
    fn lanes_add_up_to_the_sum() {
        for length in 0_u32..40 {
            let values: Vec<f64> = (0..length).map(f64::from).collect();
            assert!((added_up(&values) - values.iter().sum::<f64>()).abs() < f64::EPSILON);
        }
    }
}
