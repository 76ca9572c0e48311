//! Filters of Bigtable's API: a filter is refused, or leaves a part of a row that does not depend on what a scan may leave
//! out.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use partita_bigtable::api::data::RowFilter;
use partita_bigtable::filter::Filter;
use partita_bigtable::{Cell, Row};
use prost::Message;

fuzz_target!(|bytes: &[u8]| {
    let Ok(message) = RowFilter::decode(bytes) else { return };
    let Ok(filter) = Filter::new(&message, 1) else { return };
    let mut cells = Vec::new();
    for (family, qualifier) in [("a", ""), ("a", "x"), ("b", "\n")] {
        for (timestamp_us, value) in [(3_000, "one"), (2_000, ""), (1_000, "\n2")] {
            cells.push(Cell {
                family: family.into(),
                qualifier: Bytes::from_static(qualifier.as_bytes()),
                timestamp_us,
                value: Bytes::from_static(value.as_bytes()),
                label: None,
            });
        }
    }
    let whole = Row { key: Bytes::from_static(b"key#1"), cells };
    let narrowing = filter.narrowing();
    let mut part = whole.clone();
    part.cells.retain(|cell| {
        whole.key.starts_with(&narrowing.key_prefix)
            && narrowing.has_column(&cell.family, &cell.qualifier)
            && narrowing.times.contains(cell.timestamp_us)
    });
    // Either may have too many copies.
    if let (Ok(whole), Ok(part)) = (filter.apply(whole), filter.apply(part)) {
        assert_eq!(whole, part);
    }
});
