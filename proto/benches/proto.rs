//! What becomes of a batch between its door and the log: keys, partitions, the entry's bytes.
//!
//! | group | a row costs |
//! |---|---|
//! | keys | its key, in order of time (100 hosts: series repeat) and with 100,000 hosts (none does) |
//! | cut | its placement, its key, its partition, and being copied to the rows that go there too |
//! | entry | its place among the bytes of a log entry, and being found there again |
//! | measures | being counted in the measures of its file's columns, whenever a file is written |

use std::hint::black_box;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::take_record_batch;
use arrow::datatypes::{DataType, Field, Schema};
use partita_bench::sample::{BATCH_ROWS, HOSTS, Sample, schema, table};
use partita_bench::{CpuTime, cpu, stage};
use partita_proto::catalog::Table;
use partita_proto::key::{KeyCodec, PLACEMENT_COLUMN};
use partita_proto::measure::TableMeasures;
use partita_proto::placement::Placement;
use partita_proto::route::Cut;
use partita_proto::wire::ipc;

type Criterion = criterion::Criterion<CpuTime>;

/// As many hosts as make every row of a batch a series of its own.
const MANY_HOSTS: u32 = 100_000;
/// Batches of a file whose columns are measured: the counts of distinct values become estimates after the first one.
const FILE_BATCHES: usize = 20;

fn main() {
    let mut criterion = cpu();
    keys(&mut criterion);
    cut(&mut criterion);
    entry(&mut criterion);
    measures(&mut criterion);
    criterion.final_summary();
}

fn keys(criterion: &mut Criterion) {
    let codec = KeyCodec::new(&schema(), &Placement::Range).expect("the key is one");
    for (name, hosts) in [("100 hosts", HOSTS), ("100000 hosts", MANY_HOSTS)] {
        let batch = Sample::new(hosts).batch();
        stage(
            criterion,
            ("keys", name),
            BATCH_ROWS,
            || (),
            |()| codec.encode(black_box(&batch)).expect("rows of the table"),
        );
    }
}

fn cut(criterion: &mut Criterion) {
    for (name, partitions) in [("1 partition", 1), ("8 partitions", 8), ("64 partitions", 64)] {
        let table = table(partitions);
        let codec = KeyCodec::new(&table.schema, &table.placement).expect("the key is one");
        let batch = Sample::new(HOSTS).batch();
        stage(
            criterion,
            ("cut", name),
            BATCH_ROWS,
            || batch.clone(),
            |batch| parts(&table, &codec, batch),
        );
    }
}

/// Cuts rows as the frontend's router does.
fn parts(table: &Table, codec: &KeyCodec, rows: RecordBatch) -> Vec<(usize, RecordBatch)> {
    let placed = table.placement.place(&table.schema, &rows).expect("rows of the table");
    let rows = match placed {
        None => rows,
        Some(placed) => {
            let field = Arc::new(Field::new(PLACEMENT_COLUMN, DataType::UInt16, false));
            let fields = [field].into_iter().chain(rows.schema_ref().fields().iter().cloned());
            let placed: ArrayRef = Arc::new(placed);
            let columns = [placed].into_iter().chain(rows.columns().iter().cloned());
            let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
            RecordBatch::try_new(schema, columns.collect()).expect("as many columns")
        }
    };
    let keys = codec.encode(&rows).expect("rows of the table");
    match table.partitions.cut(&keys) {
        Cut::One(position) => vec![(position, rows)],
        Cut::Many(positions) => positions
            .into_iter()
            .map(|(position, places)| {
                (position, take_record_batch(&rows, &places).expect("places of these rows"))
            })
            .collect(),
    }
}

fn entry(criterion: &mut Criterion) {
    let batch = Sample::new(HOSTS).batch();
    stage(
        criterion,
        ("entry", "encode"),
        BATCH_ROWS,
        || (),
        |()| ipc::encode(std::slice::from_ref(black_box(&batch))).expect("types of tables"),
    );
    let bytes = ipc::encode(&[batch]).expect("types of tables");
    stage(
        criterion,
        ("entry", "decode"),
        BATCH_ROWS,
        || bytes.clone(),
        |bytes| ipc::decode(bytes).expect("what was encoded"),
    );
}

fn measures(criterion: &mut Criterion) {
    let schema = schema();
    // In a file rows are in the order of the key: those of a batch are of one host or two.
    let mut sample = Sample::new(1);
    let batches: Vec<RecordBatch> = (0..FILE_BATCHES).map(|_| sample.batch()).collect();
    stage(
        criterion,
        ("measures", "batch"),
        BATCH_ROWS * FILE_BATCHES,
        TableMeasures::default,
        |mut measures| {
            for batch in &batches {
                measures.add_rows(&schema, black_box(batch)).expect("rows of the table");
            }
            measures
        },
    );
}
