//! Line protocol: lines are accepted or rejected, in one batch per measurement.

#![no_main]

use libfuzzer_sys::fuzz_target;
use partita_http::line_protocol::{Precision, ReadOptions, read};
use partita_proto::catalog::Catalog;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let options = ReadOptions {
        catalog: &Catalog::default(),
        database: "public",
        precision: Precision::Auto,
        now: 1_600_000_000_123_456_789,
        time_column: "time",
        columns_max: 200,
        string_bytes_max: 64 << 10,
    };
    let lines = read(text, &options).expect("columns below 2 GiB");
    let rows: usize = lines.tables.iter().map(|table| table.batch.num_rows()).sum();
    assert_eq!(rows, lines.accepted);
});
