//! Bounds on the memory of operators that repeat values.
//!
//! A join copies a row of one side beside each row of the other side that it is paired with, and `unnest` copies a row
//! beside each element. A batch of 8,192 pairs with one array of 400 kB takes three gigabytes, in memory that no pool
//! accounts for. So the operator and its inputs are wrapped (`guard.rs`):
//!
//! ```text
//!   operator      output batches have fewer rows if values may be wide
//!   ├─ build      the widest row is measured
//!   └─ probe      batches are cut, and memory for the copies is claimed before the operator sees a batch
//! ```
//!
//! Invariants:
//! - rows and their order stay the same;
//! - operators below have batches of the usual size;
//! - narrow rows claim nothing.
//!
//! Texts of tables are views: operators copy their places only, so their lengths do not count.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{Array, AsArray, OffsetSizeTrait};
use arrow::datatypes::{DataType, Schema};
use arrow::record_batch::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::unnest::{ListUnnest, UnnestExec};
use futures::{StreamExt, stream};
use parking_lot::Mutex;

/// Rows of an output batch if values may be wide.
const WIDE_BATCH_ROWS: usize = 128;
/// Bytes of the copies that a cut of a batch makes with one row of the build side, at most.
const CUT_BYTES: usize = 4 << 20;
/// Copies of an output batch that exist at a time: as made, and in the buffer where small batches become one.
const COPIES: usize = 2;
/// Bytes that need no claim.
const FREE_BYTES: usize = 8 << 20;
/// Bytes of a value whose type has no fixed width, apart from what it refers to.
const PLACE_BYTES: usize = 16;

/// The way in which an operator repeats rows.
#[derive(Debug)]
enum Kind {
    /// Each output batch has a row of the build side and a batch of the probe side.
    Cross,
    /// Each output batch has any pairs.
    Pairs,
    /// Each output batch has the elements of lists.
    Unnest(Vec<ListUnnest>),
}

/// State that an operator and its wrapped inputs share.
#[derive(Debug)]
pub(crate) struct Repeats {
    kind: Kind,
    is_wide: bool,
    /// Bytes of the widest row of the build side.
    build_bytes: AtomicUsize,
    /// Context of the operator's latest execution, which is that of the operators below too.
    context: Mutex<Option<Arc<TaskContext>>>,
}

impl Repeats {
    /// The state for an operator; `None` if it does not repeat rows of its inputs.
    pub(crate) fn of(node: &dyn ExecutionPlan) -> Option<Arc<Self>> {
        let kind = match node.downcast_ref::<UnnestExec>() {
            Some(unnest) => Kind::Unnest(unnest.list_column_indices().to_vec()),
            None if node.name() == "CrossJoinExec" => Kind::Cross,
            None if node.name().ends_with("JoinExec") => Kind::Pairs,
            None => return None,
        };
        let is_wide = node.children().iter().any(|input| kind.may_be_wide(&input.schema()));
        let (build_bytes, context) = (AtomicUsize::new(0), Mutex::new(None));
        Some(Arc::new(Self { kind, is_wide, build_bytes, context }))
    }

    /// The context for the operator, with fewer rows in a batch if values may be wide.
    pub(crate) fn enter(&self, context: Arc<TaskContext>) -> Arc<TaskContext> {
        if !self.is_wide || context.session_config().batch_size() <= WIDE_BATCH_ROWS {
            return context;
        }
        *self.context.lock() = Some(Arc::clone(&context));
        let config = context.session_config().clone().with_batch_size(WIDE_BATCH_ROWS);
        Arc::new(TaskContext::new(
            context.task_id(),
            context.session_id(),
            config,
            context.scalar_functions().clone(),
            context.higher_order_functions().clone(),
            context.aggregate_functions().clone(),
            context.window_functions().clone(),
            context.runtime_env(),
        ))
    }

    /// The context for an input of the operator: the one that the operator was given.
    pub(crate) fn leave(&self, context: Arc<TaskContext>) -> Arc<TaskContext> {
        self.context.lock().clone().unwrap_or(context)
    }

    /// Measures the rows of the build side.
    pub(crate) fn measured(
        self: &Arc<Self>,
        rows: SendableRecordBatchStream,
    ) -> SendableRecordBatchStream {
        let (schema, repeats) = (rows.schema(), Arc::clone(self));
        let rows = rows.inspect(move |batch| {
            if let Ok(batch) = batch {
                let bytes = repeats.kind.row_bytes(batch);
                repeats.build_bytes.fetch_max(bytes, Ordering::Relaxed);
            }
        });
        Box::pin(RecordBatchStreamAdapter::new(schema, rows))
    }

    /// Cuts the batches of the probe side, and claims memory for the copies that the operator makes of each.
    pub(crate) fn claimed(
        self: &Arc<Self>,
        rows: SendableRecordBatchStream,
        batch_rows: usize,
        pool: &Arc<dyn MemoryPool>,
    ) -> SendableRecordBatchStream {
        let schema = rows.schema();
        let claim = Claim {
            repeats: Arc::clone(self),
            batch_rows: if self.is_wide { batch_rows.min(WIDE_BATCH_ROWS) } else { batch_rows },
            memory: MemoryConsumer::new("repeated values").register(pool),
        };
        // Behind the last batch, rows of the build side may follow that have no pair.
        let rows = rows.map(Some).chain(stream::once(ready(None)));
        let rows = rows.flat_map(move |batch| {
            stream::iter(match batch {
                Some(Ok(batch)) => claim.cut(&batch).unwrap_or_else(|error| vec![Err(error)]),
                Some(Err(error)) => vec![Err(error)],
                None => match claim.grow(0, 0, 0) {
                    Ok(()) => Vec::new(),
                    Err(error) => vec![Err(error)],
                },
            })
        });
        Box::pin(RecordBatchStreamAdapter::new(schema, rows))
    }
}

impl Kind {
    /// Returns true if a column is a list that becomes rows.
    fn unnests(&self, column: usize) -> bool {
        matches!(self, Self::Unnest(lists)
            if lists.iter().any(|list| list.index_in_input_schema == column))
    }

    /// Returns true if rows of a schema may have wide values that are copied.
    fn may_be_wide(&self, schema: &Schema) -> bool {
        let mut columns = schema.fields().iter().enumerate();
        columns.any(|(column, field)| !self.unnests(column) && is_copied(field.data_type()))
    }

    /// Bytes of the widest row of a batch, as a copy of it.
    fn row_bytes(&self, batch: &RecordBatch) -> usize {
        let columns = batch.columns().iter().enumerate();
        let copied = columns.filter(|(column, _)| !self.unnests(*column));
        copied.map(|(_, values)| widest(values)).fold(0, usize::saturating_add)
    }

    /// Rows that one row of a batch becomes, at most; of a join zero, since only the other side says how many.
    fn elements(&self, batch: &RecordBatch) -> usize {
        let Self::Unnest(lists) = self else { return 0 };
        let lengths = lists.iter().map(|list| {
            let values = batch.column(list.index_in_input_schema);
            longest(values, &rows_of(values), list.depth)
        });
        lengths.max().unwrap_or(0)
    }
}

/// Memory that is claimed for one stream of a probe side.
struct Claim {
    repeats: Arc<Repeats>,
    /// Rows of an output batch.
    batch_rows: usize,
    memory: MemoryReservation,
}

impl Claim {
    /// Claims memory for a batch, and cuts it.
    fn cut(&self, batch: &RecordBatch) -> Result<Vec<Result<RecordBatch>>> {
        let kind = &self.repeats.kind;
        let (row_bytes, elements) = (kind.row_bytes(batch), kind.elements(batch));
        let build_bytes = self.repeats.build_bytes.load(Ordering::Relaxed);
        let pair_bytes = build_bytes.saturating_add(row_bytes).max(1);
        let rows = (CUT_BYTES / pair_bytes).clamp(1, batch.num_rows().max(1));
        self.grow(row_bytes, rows, elements)?;
        let starts = (0..batch.num_rows().max(1)).step_by(rows);
        Ok(starts.map(|start| Ok(batch.slice(start, rows.min(batch.num_rows() - start)))).collect())
    }

    /// Claims memory for output with rows of the probe side of a width.
    fn grow(&self, row_bytes: usize, rows: usize, elements: usize) -> Result<()> {
        let output_rows = match self.repeats.kind {
            Kind::Cross => rows,
            Kind::Pairs => self.batch_rows.max(rows),
            Kind::Unnest(_) => self.batch_rows.max(elements),
        };
        let build_bytes = self.repeats.build_bytes.load(Ordering::Relaxed);
        let bytes = build_bytes.saturating_add(row_bytes).saturating_mul(output_rows);
        let claim = bytes.saturating_mul(COPIES).saturating_sub(FREE_BYTES);
        // The operator may still have the batch before.
        if claim > self.memory.size() { self.memory.try_resize(claim) } else { Ok(()) }
    }
}

/// Returns true for types whose values have any size and are copied with their rows.
fn is_copied(data_type: &DataType) -> bool {
    data_type.is_nested()
        || matches!(
            data_type,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary
        )
}

/// Bytes of the widest value of an array, as a copy of it.
fn widest(values: &dyn Array) -> usize {
    match values.data_type().primitive_width() {
        Some(width) => width,
        None => widest_span(values, &rows_of(values)),
    }
}

/// Bounds of spans of one value each.
fn rows_of(values: &dyn Array) -> Vec<usize> {
    (0..=values.len()).collect()
}

/// Bytes of the widest span of values between two neighbours of `bounds`.
fn widest_span(values: &dyn Array, bounds: &[usize]) -> usize {
    match values.data_type() {
        DataType::Utf8 => widest_step(values.as_string::<i32>().value_offsets(), bounds),
        DataType::LargeUtf8 => widest_step(values.as_string::<i64>().value_offsets(), bounds),
        DataType::Binary => widest_step(values.as_binary::<i32>().value_offsets(), bounds),
        DataType::LargeBinary => widest_step(values.as_binary::<i64>().value_offsets(), bounds),
        DataType::List(_) => {
            let lists = values.as_list::<i32>();
            widest_span(lists.values(), &places(lists.value_offsets(), bounds))
        }
        DataType::LargeList(_) => {
            let lists = values.as_list::<i64>();
            widest_span(lists.values(), &places(lists.value_offsets(), bounds))
        }
        DataType::Map(..) => {
            let maps = values.as_map();
            widest_span(maps.entries(), &places(maps.value_offsets(), bounds))
        }
        DataType::Struct(_) => {
            let fields = values.as_struct().columns().iter();
            fields.map(|field| widest_span(field, bounds)).fold(0, usize::saturating_add)
        }
        data_type => {
            let width = data_type.primitive_width().unwrap_or(PLACE_BYTES);
            largest_step(bounds).saturating_mul(width)
        }
    }
}

/// Elements of the list, `depth` lists deep, that has the most between two neighbours of `bounds`.
fn longest(lists: &dyn Array, bounds: &[usize], depth: usize) -> usize {
    let (elements, bounds) = match lists.data_type() {
        DataType::List(_) if depth > 0 => {
            let lists = lists.as_list::<i32>();
            (lists.values(), places(lists.value_offsets(), bounds))
        }
        DataType::LargeList(_) if depth > 0 => {
            let lists = lists.as_list::<i64>();
            (lists.values(), places(lists.value_offsets(), bounds))
        }
        _ => return largest_step(bounds),
    };
    longest(elements, &bounds, depth - 1)
}

/// Bounds of spans of values as bounds of what they consist of.
fn places<O: OffsetSizeTrait>(offsets: &[O], bounds: &[usize]) -> Vec<usize> {
    bounds.iter().map(|bound| offsets[*bound].as_usize()).collect()
}

fn widest_step<O: OffsetSizeTrait>(offsets: &[O], bounds: &[usize]) -> usize {
    largest_step(&places(offsets, bounds))
}

fn largest_step(bounds: &[usize]) -> usize {
    bounds.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array, ListArray, StringArray, StringViewArray};
    use arrow::buffer::OffsetBuffer;
    use arrow::datatypes::{Field, Int64Type};
    use datafusion::execution::memory_pool::GreedyMemoryPool;

    use super::*;

    fn lists(lengths: &[usize]) -> ArrayRef {
        let lists = lengths.iter().map(|length| Some(vec![Some(1_i64); *length]));
        Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists))
    }

    fn claim(kind: Kind, build_bytes: usize, pool_bytes: usize) -> Claim {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(pool_bytes));
        let (is_wide, build_bytes) = (true, AtomicUsize::new(build_bytes));
        let repeats = Repeats { kind, is_wide, build_bytes, context: Mutex::new(None) };
        Claim {
            repeats: Arc::new(repeats),
            batch_rows: WIDE_BATCH_ROWS,
            memory: MemoryConsumer::new("repeated values").register(&pool),
        }
    }

    fn numbers(rows: i64) -> RecordBatch {
        let values: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
        RecordBatch::try_from_iter([("n", values)]).unwrap()
    }

    #[test]
    fn only_what_is_copied_counts() {
        assert_eq!(widest(&lists(&[3, 50, 0])), 400);
        assert_eq!(widest(&lists(&[3, 50, 0]).slice(0, 1)), 24);
        assert_eq!(widest(&StringArray::from(vec!["x", "four"])), 4);
        let long = "x".repeat(1_000);
        assert_eq!(widest(&StringViewArray::from(vec![long.as_str()])), PLACE_BYTES);
        assert_eq!(widest(&lists(&[])), 0);
        let texts = StringArray::from(vec!["four", "sixteen letters."]);
        let item = Arc::new(Field::new_list_field(DataType::Utf8, true));
        let offsets = OffsetBuffer::from_lengths([1, 0, 1]);
        let lists_of_texts = ListArray::new(item, offsets, Arc::new(texts), None);
        assert_eq!(widest(&lists_of_texts), 16);
    }

    #[test]
    fn narrow_rows_are_neither_cut_nor_claimed() {
        let claim = claim(Kind::Pairs, 100, 1);
        let cuts = claim.cut(&numbers(8_192)).unwrap();
        assert_eq!(cuts.len(), 1);
        assert_eq!(claim.memory.size(), 0);
    }

    #[test]
    fn pairs_with_a_wide_row_are_cut_and_claimed() {
        let claim = claim(Kind::Pairs, 400_000, 200 << 20);
        let cuts: Vec<_> =
            claim.cut(&numbers(100)).unwrap().into_iter().map(Result::unwrap).collect();
        assert!(cuts.iter().all(|cut| cut.num_rows() <= 10), "{} cuts", cuts.len());
        assert_eq!(cuts.iter().map(RecordBatch::num_rows).sum::<usize>(), 100);
        assert_eq!(claim.memory.size(), 128 * 400_008 * 2 - FREE_BYTES);
        // One row of the build side beside each cut.
        let cross = self::claim(Kind::Cross, 400_000, 1);
        assert_eq!(cross.cut(&numbers(100)).unwrap().len(), 10);
    }

    #[test]
    fn wider_rows_than_the_pool_are_refused() {
        let error = claim(Kind::Pairs, 4_000_000, 200 << 20).cut(&numbers(1)).unwrap_err();
        assert!(error.to_string().contains("repeated values"), "{error}");
    }

    #[test]
    fn elements_repeat_the_other_columns() {
        let list = ListUnnest { index_in_input_schema: 0, depth: 1 };
        let item = Field::new("list", lists(&[]).data_type().clone(), true);
        let kind = Kind::Unnest(vec![list]);
        assert!(!kind.may_be_wide(&Schema::new(vec![item])));
        let text: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(1_000)]));
        let row =
            RecordBatch::try_from_iter([("list", lists(&[100_000])), ("text", text)]).unwrap();
        assert!(kind.may_be_wide(&row.schema()));
        assert_eq!((kind.row_bytes(&row), kind.elements(&row)), (1_000, 100_000));
        assert!(claim(kind, 0, 100 << 20).cut(&row).is_err());
    }
}
