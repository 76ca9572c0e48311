//! Every encoding decodes to the same rows.

use ::arrow::array::{AsArray, RecordBatch};
use ::arrow::datatypes::{Int64Type, TimestampNanosecondType};

use super::*;
use crate::cpu::{Generator, Spec, hosts};

/// A decoded row: tags, nanoseconds, fields.
type Told = (Vec<String>, i64, Vec<i64>);

fn spec() -> Spec {
    Spec {
        hosts: 13,
        start_ns: 1_456_790_370 * SECOND_NS,
        interval: std::time::Duration::from_secs(10),
        rows: 13 * 40,
        seed: 5,
    }
}

fn rows() -> Rows {
    Generator::new(spec()).next(usize::MAX).unwrap()
}

fn encoded(format: Format) -> Vec<u8> {
    let mut bytes = Vec::new();
    Encoder::new(format, &hosts(&spec())).append(&rows(), &mut bytes);
    bytes
}

fn told() -> Vec<Told> {
    let (rows, hosts) = (rows(), hosts(&spec()));
    let row = |index: usize| {
        let host = &hosts[rows.hosts[index] as usize];
        let tags = host.tags().map(|tag| tag.into_owned()).to_vec();
        (tags, rows.times[index], rows.fields.iter().map(|field| field[index]).collect())
    };
    (0..rows.len()).map(row).collect()
}

#[test]
fn line_protocol_tells_all_rows() {
    let text = String::from_utf8(encoded(Format::LineProtocol)).unwrap();
    let read = |line: &str| -> Told {
        let mut parts = line.split(' ');
        let (series, fields, time) =
            (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
        assert!(parts.next().is_none(), "{line}");
        let tags = series.strip_prefix("cpu,").unwrap().split(',');
        let tags = tags.zip(TAGS).map(|(pair, name)| {
            pair.strip_prefix(name).unwrap().strip_prefix('=').unwrap().to_owned()
        });
        let fields = fields.split(',').zip(FIELDS).map(|(pair, name)| {
            let value = pair.strip_prefix(name).unwrap().strip_prefix('=').unwrap();
            value.strip_suffix('i').unwrap().parse().unwrap()
        });
        (tags.collect(), time.parse().unwrap(), fields.collect())
    };
    assert_eq!(text.lines().map(read).collect::<Vec<_>>(), told());
}

#[test]
fn text_and_csv_tell_all_rows() {
    for (format, separator) in [(Format::CopyText, '\t'), (Format::Csv, ',')] {
        let text = String::from_utf8(encoded(format)).unwrap();
        let read = |line: &str| -> Told {
            let cells: Vec<&str> = line.split(separator).collect();
            assert_eq!(cells.len(), columns().count());
            let tags = cells[..10].iter().map(|tag| (*tag).to_owned()).collect();
            let time = crate::civil::parse(cells[10]).unwrap() * SECOND_NS;
            (tags, time, cells[11..].iter().map(|cell| cell.parse().unwrap()).collect())
        };
        assert_eq!(text.lines().map(read).collect::<Vec<_>>(), told());
    }
}

/// Splits the first bytes off.
fn take<'a>(bytes: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (head, rest) = bytes.split_at(count);
    *bytes = rest;
    head
}

#[test]
fn binary_tells_all_rows() {
    let bytes = encoded(Format::CopyBinary);
    let mut remaining = bytes.as_slice();
    let mut read = Vec::new();
    while !remaining.is_empty() {
        let columns = i16::from_be_bytes(take(&mut remaining, 2).try_into().unwrap());
        assert_eq!(columns, 21);
        let mut cell = || {
            let length = i32::from_be_bytes(take(&mut remaining, 4).try_into().unwrap());
            take(&mut remaining, usize::try_from(length).unwrap())
        };
        let tags = (0..10).map(|_| String::from_utf8(cell().to_vec()).unwrap()).collect();
        let mut number = || i64::from_be_bytes(cell().try_into().unwrap());
        let time = (number() + EPOCH_2000_US) * 1_000;
        read.push((tags, time, (0..10).map(|_| number()).collect()));
    }
    assert_eq!(read, told());
    assert_eq!(BINARY_HEAD.len(), 11 + 4 + 4);
}

fn of_batch(batch: &RecordBatch) -> Vec<Told> {
    let row = |index: usize| {
        let tags = (0..10).map(|tag| batch.column(tag).as_string::<i32>().value(index).to_owned());
        let time = batch.column(10).as_primitive::<TimestampNanosecondType>().value(index);
        let fields =
            (11..21).map(|field| batch.column(field).as_primitive::<Int64Type>().value(index));
        (tags.collect(), time, fields.collect())
    };
    (0..batch.num_rows()).map(row).collect()
}

#[test]
fn arrow_tells_all_rows() {
    let batch = arrow::Batches::new(&hosts(&spec())).of(rows()).unwrap();
    assert_eq!(of_batch(&batch), told());
    let names: Vec<_> = batch.schema().fields().iter().map(|f| f.name().clone()).collect();
    assert!(columns().eq(names.iter().map(String::as_str)));
}
