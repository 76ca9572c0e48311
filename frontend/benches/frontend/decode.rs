//! COPY's bytes and an INSERT's text into columns of the table.

use std::hint::black_box;

use arrow::record_batch::RecordBatch;
use partita_bench::sample::{BATCH_ROWS, HOSTS, Sample, table};
use partita_bench::stage;
use partita_frontend::sql::StatementTime;
use partita_frontend::sql::copy::CopyDecoder;
use partita_frontend::sql::parse;
use partita_frontend::sql::statement::{CopyFormat, CopyOptions};
use partita_frontend::{Statement, Zone};
use partita_tsbs::encode::{Format, columns};

use crate::Criterion;

/// Bytes of a message of COPY: what clients send at a time.
const MESSAGE_BYTES: usize = 64 << 10;

pub(crate) fn all(criterion: &mut Criterion) {
    copy(criterion, "copy-text", Format::CopyText, CopyFormat::Text);
    copy(criterion, "copy-csv", Format::Csv, CopyFormat::Csv);
    copy(criterion, "copy-binary", Format::CopyBinary, CopyFormat::Binary);
    insert(criterion);
}

fn copy(criterion: &mut Criterion, name: &str, encoded: Format, format: CopyFormat) {
    let table = table(1);
    let names: Vec<String> = columns().map(str::to_owned).collect();
    let bytes = Sample::new(HOSTS).bytes(encoded);
    stage(
        criterion,
        ("decode", name),
        BATCH_ROWS,
        || (),
        |()| {
            let decoder =
                CopyDecoder::new(&table, &names, format, &CopyOptions::new(format), Zone::UTC);
            let mut decoder = decoder.expect("columns of the table");
            let mut batches = Vec::new();
            for message in black_box(&bytes).chunks(MESSAGE_BYTES) {
                batches.extend(decoder.push(message).expect("rows of the table"));
            }
            batches.extend(decoder.finish().expect("whole rows"));
            assert_eq!(decoder.rows(), BATCH_ROWS as u64);
            batches
        },
    );
}

fn insert(criterion: &mut Criterion) {
    let table = table(1);
    let text = Sample::new(HOSTS).insert();
    stage(
        criterion,
        ("decode", "insert-values"),
        BATCH_ROWS,
        || (),
        |()| {
            let batch = inserted(black_box(&text), &table.schema);
            assert_eq!(batch.num_rows(), BATCH_ROWS);
            batch
        },
    );
}

/// The rows of an INSERT, as a session reads them.
fn inserted(text: &str, schema: &partita_proto::schema::TableSchema) -> RecordBatch {
    let statements = parse(text).expect("an INSERT");
    let Some(Statement::Insert(insert)) = statements.into_iter().next() else {
        unreachable!("the text is an INSERT");
    };
    let target = insert.target(schema).expect("columns of the table");
    let time = StatementTime { now: 0, zone: Zone::UTC };
    insert.scan(&target, time, None).expect("rows of the table").expect("nothing but literals")
}
