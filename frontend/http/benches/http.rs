//! What the doors on the HTTP port make of the bytes that come: line protocol and Flight into columns of the table.

use std::hint::black_box;

use arrow::record_batch::RecordBatch;
use arrow_flight::FlightData;
use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::error::FlightError;
use arrow_flight::utils::batches_to_flight_data;
use futures::TryStreamExt;
use partita_bench::sample::{BATCH_ROWS, HOSTS, Sample, catalog, table};
use partita_bench::{CpuTime, cpu, stage};
use partita_http::line_protocol::{Precision, ReadOptions, read};
use partita_proto::catalog::DEFAULT_DATABASE;
use partita_tsbs::cpu::TIME;
use partita_tsbs::encode::Format;
use tokio::runtime::{Builder, Runtime};

type Criterion = criterion::Criterion<CpuTime>;

/// As many hosts as make every line of a batch a series of its own.
const MANY_HOSTS: u32 = 100_000;

fn main() {
    let mut criterion = cpu();
    line_protocol(&mut criterion);
    flight(&mut criterion);
    criterion.final_summary();
}

fn line_protocol(criterion: &mut Criterion) {
    let catalog = catalog(table(1));
    for (name, hosts) in [("line-protocol", HOSTS), ("line-protocol, 100000 hosts", MANY_HOSTS)] {
        let text = Sample::new(hosts).bytes(Format::LineProtocol);
        let text = String::from_utf8(text).expect("the data set is text");
        stage(
            criterion,
            ("decode", name),
            BATCH_ROWS,
            || (),
            |()| {
                let options = ReadOptions {
                    catalog: &catalog,
                    database: DEFAULT_DATABASE,
                    precision: Precision::Nanosecond,
                    now: 0,
                    time_column: TIME,
                    columns_max: 1_000,
                    string_bytes_max: 1 << 20,
                };
                let lines = read(black_box(&text), &options).expect("types of Arrow");
                assert_eq!((lines.accepted, lines.rejected), (BATCH_ROWS, 0));
                lines
            },
        );
    }
}

fn flight(criterion: &mut Criterion) {
    let batch = Sample::new(HOSTS).sent();
    let messages = batches_to_flight_data(&batch.schema(), vec![batch]).expect("types of Arrow");
    let runtime: Runtime = Builder::new_current_thread().build().expect("a runtime");
    stage(
        criterion,
        ("decode", "flight"),
        BATCH_ROWS,
        || messages.clone(),
        |messages| {
            let batches = runtime.block_on(decoded(messages));
            assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), BATCH_ROWS);
            batches
        },
    );
}

/// Decodes messages as DoPut does.
async fn decoded(messages: Vec<FlightData>) -> Vec<RecordBatch> {
    let stream = futures::stream::iter(messages.into_iter().map(Ok::<_, FlightError>));
    let batches = FlightRecordBatchStream::new_from_flight_data(stream);
    batches.try_collect().await.expect("what was encoded")
}
