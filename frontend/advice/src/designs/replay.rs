//! Builds the input of design ranking from meta's samples.
//!
//! Invariants: rows are in the order of their arrival; a sample that stands for more operations is replayed more
//! often; partial keys (bounds of scans) are left out; offered load and capacity are meta's.

use partita_load::{
    Choice, Class, Design, Question, ReadShape, Reads, SampledRow, ShapeCost, advise,
};
use partita_proto::catalog::Table;
use partita_proto::key::KeyCodec;
use partita_proto::load::{KeySample, LoadReport, PartitionLoad};
use partita_proto::placement::Placement;
use partita_proto::range::Bound;
use partita_proto::schema::{ColumnType, TableSchema};

/// Maximum rows that are replayed.
const ROWS_MAX: usize = 4096;
/// Assumed capacity of one partition, in rows per second, if the report says none.
const CAPACITY_ROWS_PER_S: f64 = 20_000.0;
/// Assumed share of a table's time span that a read by time range covers.
const TIME_RANGE_SHARE: f64 = 0.1;

/// Designs and measurements for a table.
#[derive(Clone, Debug)]
pub struct Found {
    /// Designs, the best first; empty if too few keys were sampled.
    pub choices: Vec<Choice>,
    /// For each choice: bounds to cut at, if it is placed by range.
    pub cuts: Vec<Vec<Bound>>,
    /// Rows offered per second, and true if that is a floor, because clients wait.
    pub offered: (f64, bool),
    /// Capacity of one partition in rows per second, and true if it was measured.
    pub capacity: (f64, bool),
    /// Number of replayed keys.
    pub sampled: usize,
}

/// Ranks designs for a table by meta's load report and by the statements that read the table (empty: not known).
pub fn replay(table: &Table, report: &LoadReport, shapes: &[ReadShape]) -> Found {
    let partitions: Vec<&PartitionLoad> =
        report.partitions.iter().filter(|load| load.table == table.id).collect();
    let keys = arrivals(&partitions, table.schema.key.len());
    let rows: Vec<SampledRow> =
        keys.iter().filter_map(|sample| cells(&table.schema, &sample.key)).collect();
    let offered = offered(&partitions);
    let capacity = capacity(&partitions);
    let question = Question {
        rows: &rows,
        columns: table.schema.key.len(),
        time: time_column(&table.schema),
        today: today(table),
        keep_together: table.schema.options.partitioning.keep_together as usize,
        partitions: table.partitions.routes().len(),
        nodes: report.nodes.len().max(1),
        rows_per_s: offered.0,
        capacity_rows_per_s: capacity.0,
        time_range_share: TIME_RANGE_SHARE,
        reads: Reads::default(),
        shapes: shapes.to_vec(),
        hot: hot_class(&partitions),
    };
    let choices = advise(&question);
    let cuts = choices.iter().map(|choice| cuts(choice, &keys)).collect();
    Found { choices, cuts, offered, capacity, sampled: rows.len() }
}

/// Rows offered per second to some partitions, and true if clients wait for one of them. A report without them has the
/// served ones.
fn offered(partitions: &[&PartitionLoad]) -> (f64, bool) {
    let rows = |load: &&PartitionLoad| load.offered.rows_per_s.max(load.rates.write_rows);
    let is_floor = partitions.iter().any(|load| load.offered.is_floor);
    (partitions.iter().map(rows).sum(), is_floor)
}

/// Capacity of a table's partitions as meta reports it with each of them.
fn capacity(partitions: &[&PartitionLoad]) -> (f64, bool) {
    let reported = partitions.iter().map(|load| load.capacity).find(|(rows, _)| *rows > 0.0);
    reported.unwrap_or((CAPACITY_ROWS_PER_S, false))
}

/// Class of the busiest hot partition.
fn hot_class(partitions: &[&PartitionLoad]) -> Option<Class> {
    let hot = partitions.iter().filter(|load| load.is_hot());
    let busiest = hot.max_by(|a, b| a.busiest().total_cmp(&b.busiest()))?;
    busiest.verdict.as_ref().map(|verdict| verdict.class)
}

/// Mean cost of one statement in a design, by the frequencies of statements; `None` without statements.
pub fn mean_cost(shapes: &[ReadShape], choice: &Choice) -> Option<ShapeCost> {
    let total: f64 = shapes.iter().map(|shape| shape.per_s).sum();
    let mean = |figure: fn(&ShapeCost) -> f64| {
        let weighed = shapes.iter().zip(&choice.shapes);
        weighed.map(|(shape, cost)| shape.per_s * figure(cost)).sum::<f64>() / total
    };
    (total > 0.0).then(|| ShapeCost {
        partitions: mean(|cost| cost.partitions),
        rows: mean(|cost| cost.rows),
    })
}

/// Written keys in order of arrival, each repeated in proportion to its weight.
fn arrivals<'r>(partitions: &[&'r PartitionLoad], columns: usize) -> Vec<&'r KeySample> {
    let candidates = partitions.iter().flat_map(|load| &load.samples);
    let mut samples: Vec<&KeySample> = candidates
        .filter(|sample| !sample.read && sample.key.key.len() == columns && sample.weight > 0.0)
        .collect();
    samples.sort_by_key(|sample| sample.at);
    let total: f64 = samples.iter().map(|sample| sample.weight).sum();
    let step = total / samples.len().min(ROWS_MAX) as f64;
    let mut arrivals = Vec::with_capacity(samples.len().min(ROWS_MAX));
    let (mut passed, mut next) = (0.0, step / 2.0);
    for sample in samples {
        passed += sample.weight;
        while next < passed {
            arrivals.push(sample);
            next += step;
        }
    }
    arrivals
}

/// Each key column as bytes that compare like its values; `None` for a key that does not encode.
fn cells(schema: &TableSchema, key: &Bound) -> Option<SampledRow> {
    let codec = KeyCodec::new(schema, &Placement::Range).ok()?;
    let whole = Bound { placement: None, key: key.key.clone() };
    let mut ends = vec![0];
    for columns in 1..=whole.key.len() {
        let prefix = Bound { placement: None, key: whole.key[..columns].to_vec() };
        ends.push(codec.encode_bound(&prefix).ok()?.len());
    }
    let bytes = codec.encode_bound(&whole).ok()?;
    ends.windows(2).map(|end| bytes.get(end[0]..end[1]).map(<[u8]>::to_vec)).collect()
}

fn time_column(schema: &TableSchema) -> Option<usize> {
    let time = schema.time_index().map(|column| column.id);
    let index = schema.key.iter().position(|id| Some(*id) == time);
    index.or_else(|| {
        schema.key_columns().position(|column| {
            matches!(column.column_type, ColumnType::Timestamp(..) | ColumnType::Date)
        })
    })
}

/// The current design of a table. Rules are treated as ranges, since most of them are.
pub fn today(table: &Table) -> Design {
    let order: Vec<usize> = (0..table.schema.key.len()).collect();
    match &table.placement {
        Placement::Range | Placement::Rules { .. } => Design::Range { order },
        Placement::Hash { columns } => {
            let key = &table.schema.key;
            let hashed: Vec<usize> = columns
                .iter()
                .filter_map(|id| key.iter().position(|key_id| key_id == id))
                .collect();
            let buckets = u32::try_from(table.partitions.routes().len()).unwrap_or(u32::MAX);
            Design::Hash {
                of: if hashed.is_empty() { order.clone() } else { hashed },
                buckets,
                order,
            }
        }
    }
}

/// Cuts of a range design between equal parts of the sample, by its first column.
fn cuts(choice: &Choice, keys: &[&KeySample]) -> Vec<Bound> {
    let Design::Range { order } = &choice.design else { return Vec::new() };
    let Some(first) = order.first() else { return Vec::new() };
    let mut values: Vec<_> = keys.iter().filter_map(|sample| sample.key.key.get(*first)).collect();
    values.sort_unstable();
    let count = choice.partitions;
    let mut cuts: Vec<_> =
        (1..count).filter_map(|cut| values.get(cut * values.len() / count)).collect();
    cuts.dedup();
    // A cut at the least value would leave an empty partition below.
    let least = values.first();
    let inner = cuts.into_iter().filter(|cut| Some(*cut) != least);
    inner.map(|value| Bound { placement: None, key: vec![(*value).clone()] }).collect()
}

#[cfg(test)]
mod tests;
