//! Tests of the COPY formats: what PostgreSQL's documents say of them, pieces that end anywhere, and
//! rows that come back as they went out.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryViewArray, BooleanArray, Date32Array, Decimal128Array,
    FixedSizeBinaryBuilder, Float32Array, Float64Array, Int32Array, RecordBatch, StringViewArray,
    Time64MicrosecondArray, TimestampMicrosecondArray, UInt64Array,
};
use arrow::compute::concat_batches;
use arrow::datatypes::{Field, Schema};
use partita_proto::catalog::Table;
use partita_worker::Zone;
use proptest::prelude::*;

use super::{CopyDecoder, CopyEncoder};
use crate::error::SqlError;
use crate::statement::{CopyColumns, CopyFormat, CopyHeader, CopyOptions};
use crate::tests::made;

fn two() -> Table {
    made("CREATE TABLE t (a INT PRIMARY KEY, b STRING)")
}

fn names(table: &Table) -> Vec<String> {
    table.schema.columns.iter().map(|column| column.name.clone()).collect()
}

fn decode_pieces(
    table: &Table,
    format: CopyFormat,
    options: &CopyOptions,
    pieces: &[&[u8]],
) -> Result<Vec<RecordBatch>, SqlError> {
    let mut decoder = CopyDecoder::new(table, &names(table), format, options, Zone::UTC)?;
    let mut batches = Vec::new();
    for piece in pieces {
        batches.extend(decoder.push(piece)?);
    }
    batches.extend(decoder.finish()?);
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    assert_eq!(decoder.rows(), rows as u64);
    Ok(batches)
}

/// The rows of `two()` as `a|b` with NULL as `~`.
fn rows(format: CopyFormat, options: &CopyOptions, data: &str) -> Result<Vec<String>, SqlError> {
    let whole = decode_pieces(&two(), format, options, &[data.as_bytes()])?;
    let bytes: Vec<&[u8]> = data.as_bytes().chunks(1).collect();
    let pieces = decode_pieces(&two(), format, options, &bytes)?;
    assert_eq!(whole, pieces);
    let mut rows = Vec::new();
    for batch in whole {
        for row in 0..batch.num_rows() {
            let cell = |column: usize| match batch.column(column) {
                array if array.is_null(row) => "~".to_owned(),
                array => arrow::util::display::array_value_to_string(array, row).unwrap(),
            };
            rows.push(format!("{}|{}", cell(0), cell(1)));
        }
    }
    Ok(rows)
}

fn text(data: &str) -> Result<Vec<String>, SqlError> {
    rows(CopyFormat::Text, &CopyOptions::new(CopyFormat::Text), data)
}

fn csv(data: &str) -> Result<Vec<String>, SqlError> {
    rows(CopyFormat::Csv, &CopyOptions::new(CopyFormat::Csv), data)
}

#[test]
fn text_is_lines_of_fields() {
    assert_eq!(text("1\tx\n2\t\\N\n3\t\n").unwrap(), ["1|x", "2|~", "3|"]);
    assert_eq!(text("1\tx").unwrap(), ["1|x"]);
    assert_eq!(text("1\tx\r\n2\ty\r\n").unwrap(), ["1|x", "2|y"]);
    assert_eq!(text("1\tx\n\\.\nrubbish").unwrap(), ["1|x"]);
    assert_eq!(text("").unwrap(), Vec::<String>::new());
    assert_eq!(text("1\ta\\tb\\nc\\\\d\\N\n").unwrap(), ["1|a\tb\nc\\dN"]);
    assert_eq!(text("1\ta\\\tb\n").unwrap(), ["1|a\tb"]);
    assert_eq!(text("1\ta\\\nb\n2\tc\n").unwrap(), ["1|a\nb", "2|c"]);
    assert_eq!(text("1\t\\101\\x42\\x4\n").unwrap(), ["1|AB\u{4}"]);
    assert_eq!(text("1\t\\\\\n").unwrap(), ["1|\\"]);
    assert_eq!(text("1\t\\\\N\n").unwrap(), ["1|\\N"]);
    assert_eq!(text("1\tü\n").unwrap(), ["1|ü"]);
}

#[test]
fn csv_is_fields_with_quotes() {
    assert_eq!(csv("1,x\n2,\n3,\"\"\n").unwrap(), ["1|x", "2|~", "3|"]);
    assert_eq!(csv("1,\"a,\"\"b\"\"\nc\"\n2,d").unwrap(), ["1|a,\"b\"\nc", "2|d"]);
    assert_eq!(csv("1,ab\"c,d\"ef\r\n").unwrap(), ["1|abc,def"]);
    assert_eq!(csv("1,x\n\\.\nrubbish,\"").unwrap(), ["1|x"]);
    assert_eq!(csv("\"1\",\\N\n").unwrap(), ["1|\\N"]);
    let mut options = CopyOptions::new(CopyFormat::Csv);
    options.delimiter = b';';
    options.null = "nil".to_owned();
    options.escape = b'\\';
    options.header = CopyHeader::Skip;
    let found =
        rows(CopyFormat::Csv, &options, "x;\"y\nz\"\n1;nil\n2;\"nil\"\n3;\"a\\\"b\\\\c\"\n");
    assert_eq!(found.unwrap(), ["1|~", "2|nil", "3|a\"b\\c"]);
    let mut options = CopyOptions::new(CopyFormat::Csv);
    options.force_null = CopyColumns::All;
    assert_eq!(rows(CopyFormat::Csv, &options, "1,\"\"\n").unwrap(), ["1|~"]);
    let mut options = CopyOptions::new(CopyFormat::Csv);
    options.force_not_null = CopyColumns::Some(vec!["b".to_owned()]);
    assert_eq!(rows(CopyFormat::Csv, &options, "1,\n").unwrap(), ["1|"]);
}

fn ndjson(data: &str) -> Result<Vec<String>, SqlError> {
    rows(CopyFormat::Ndjson, &CopyOptions::new(CopyFormat::Ndjson), data)
}

#[test]
fn ndjson_is_lines_of_objects() {
    let found = ndjson("{\"a\": 1, \"b\": \"x\"}\r\n\n {\"b\":null,\"a\":\"2\"}\n{\"a\":3}");
    assert_eq!(found.unwrap(), ["1|x", "2|~", "3|~"]);
    let found =
        ndjson("{\"a\":1,\"b\":\"\\u00fc\\n\"}\n{\"a\":2,\"b\":[1, {}]}\n{\"a\":3,\"b\":1.50}\n");
    assert_eq!(found.unwrap(), ["1|ü\n", "2|[1, {}]", "3|1.50"]);
    assert_eq!(ndjson("{\"a\":1,\"a\":2}").unwrap(), ["2|~"]);
    for (data, sqlstate, says) in [
        ("{\"a\":1}\n{\"a\":2", "22P04", "invalid JSON object"),
        ("{\"a\":1}\n[1]", "22P04", "an object"),
        ("{\"a\":1}\n{\"a\":2} x", "22P04", "trailing"),
        ("{\"a\":1}\n{\"a\":2,\"c\":1,\"d\":1}", "42703", "\"c\""),
        ("{\"a\":1}\n{\"a\":\"x\"}", "22P02", "x"),
    ] {
        let error = ndjson(data).unwrap_err();
        assert_eq!(error.sqlstate, sqlstate, "{data}: {error:?}");
        assert!(error.message.contains(says), "{data}: {error:?}");
        assert!(error.detail.unwrap().starts_with("COPY t, line 2"), "{data}");
    }
    assert!(ndjson("{\"a\":1,\"b\":\"\\u0000\"}").is_err());
}

#[test]
fn ndjson_writes_numbers_and_texts() {
    let fields = vec![
        Field::new("n", arrow::datatypes::DataType::Decimal128(20, 2), true),
        Field::new("f", arrow::datatypes::DataType::Float64, true),
        Field::new("b", arrow::datatypes::DataType::Boolean, true),
        Field::new("s", arrow::datatypes::DataType::Utf8View, true),
    ];
    let numbers = Decimal128Array::from(vec![Some(12_345_678_901_234_567_890), None]);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(numbers.with_precision_and_scale(20, 2).unwrap()),
        Arc::new(Float64Array::from(vec![0.5, f64::NAN])),
        Arc::new(BooleanArray::from(vec![true, false])),
        Arc::new(StringViewArray::from(vec!["a\"b", ""])),
    ];
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
    let options = CopyOptions::new(CopyFormat::Ndjson);
    let mut encoder =
        CopyEncoder::new(&batch.schema(), CopyFormat::Ndjson, &options, Zone::UTC).unwrap();
    let lines = encoder.encode(&batch).unwrap().concat();
    assert_eq!(
        String::from_utf8(lines).unwrap(),
        "{\"n\":123456789012345678.90,\"f\":0.5,\"b\":true,\"s\":\"a\\\"b\"}\n\
         {\"n\":null,\"f\":\"NaN\",\"b\":false,\"s\":\"\"}\n"
    );
    assert!(encoder.finish().is_none());
}

#[test]
fn parquet_needs_a_file() {
    let options = CopyOptions::new(CopyFormat::Parquet);
    let table = two();
    let decoder =
        CopyDecoder::new(&table, &names(&table), CopyFormat::Parquet, &options, Zone::UTC);
    assert_eq!(decoder.err().unwrap().sqlstate, "0A000");
    let schema = Arc::new(Schema::empty());
    let encoder = CopyEncoder::new(&schema, CopyFormat::Parquet, &options, Zone::UTC);
    assert_eq!(encoder.err().unwrap().sqlstate, "0A000");
}

#[test]
fn a_header_may_have_to_match() {
    for (format, good, bad, short) in [
        (CopyFormat::Text, "a\tb\n1\tx\n", "a\tc\n1\tx\n", "a\n"),
        (CopyFormat::Csv, "a,\"b\"\n1,x\n", "b,a\n1,x\n", "a\n"),
    ] {
        let mut options = CopyOptions::new(format);
        options.header = CopyHeader::Match;
        assert_eq!(rows(format, &options, good).unwrap(), ["1|x"]);
        assert_eq!(rows(format, &options, bad).unwrap_err().sqlstate, "22P04");
        assert_eq!(rows(format, &options, short).unwrap_err().sqlstate, "22P04");
    }
}

#[test]
fn errors_say_where() {
    for (found, sqlstate, says, place) in [
        (text("1\tx\n2\n"), "22P04", "missing data for column \"b\"", "COPY t, line 2"),
        (text("1\tx\ty\n"), "22P04", "extra data", "COPY t, line 1"),
        (text("1\tx\nz\ty\n"), "22P02", "\"z\"", "COPY t, line 2, column a"),
        (text("1\ta\\\nb\n99999999999\ty\n"), "22003", "out of range", "COPY t, line 3, column a"),
        (text("1\t\\xff\n"), "22021", "UTF8", "COPY t, line 1"),
        (text("1\ta\0b\n"), "22021", "\"UTF8\": 0x00", "COPY t, line 1"),
        (text("1\tx\n2\ta\\000b\n"), "22021", "\"UTF8\": 0x00", "COPY t, line 2"),
        (text("1\ta\\x0\n"), "22021", "\"UTF8\": 0x00", "COPY t, line 1"),
        (csv("1,\"a\0b\"\n"), "22021", "\"UTF8\": 0x00", "COPY t, line 1"),
        (csv("1,\"x\n\",y\n"), "22P04", "extra data", "COPY t, line 1"),
        (csv("1,\"x\ny\"\nz,\n"), "22P02", "\"z\"", "COPY t, line 3, column a"),
        (csv("1,\"x"), "22P04", "unterminated CSV quoted field", "COPY t, line 1"),
        (csv("1\n"), "22P04", "missing data", "COPY t, line 1"),
    ] {
        let error = found.unwrap_err();
        assert_eq!(error.sqlstate, sqlstate, "{}", error.message);
        assert!(error.message.contains(says), "{}", error.message);
        assert_eq!(error.detail.as_deref(), Some(place));
    }
}

#[test]
fn rows_before_a_wrong_one_are_there() {
    for data in ["1,x\n2,y\nz,\n", "1,x\n2,y\n3\n", "1,x\n2,y\n3,z,\n", "1,x\n2,y\n3,\0\n"] {
        let (table, options) = (two(), CopyOptions::new(CopyFormat::Csv));
        let csv = CopyFormat::Csv;
        let mut decoder =
            CopyDecoder::new(&table, &names(&table), csv, &options, Zone::UTC).unwrap();
        assert!(decoder.push(data.as_bytes()).is_err(), "{data}");
        let batches = decoder.rows_before_error().unwrap();
        let [batch] = batches.as_slice() else { panic!("{batches:?}") };
        assert_eq!(batch.column(0).as_ref(), &Int32Array::from(vec![1, 2]) as &dyn Array);
    }
}

#[test]
fn numbers_in_timestamp_columns_are_ticks() {
    let table = made("CREATE TABLE t (ts TIMESTAMP(6) TIME INDEX)");
    let options = CopyOptions::new(CopyFormat::Csv);
    let data: &[u8] = b"1700000000000000\n2023-11-14 22:13:20\n";
    let batches = decode_pieces(&table, CopyFormat::Csv, &options, &[data]).unwrap();
    let expected = TimestampMicrosecondArray::from(vec![1_700_000_000_000_000_i64; 2]);
    assert_eq!(batches[0].column(0).as_ref(), &expected as &dyn Array);
}

#[test]
fn batches_are_bounded() {
    let data: String = (0..20_000).map(|n| format!("{n}\tx\n")).collect();
    let options = CopyOptions::new(CopyFormat::Text);
    let batches = decode_pieces(&two(), CopyFormat::Text, &options, &[data.as_bytes()]).unwrap();
    let sizes: Vec<_> = batches.iter().map(RecordBatch::num_rows).collect();
    assert_eq!(sizes, [8192, 8192, 3616]);
}

fn binary(rows: &[u8]) -> Vec<u8> {
    [&super::binary::header(), rows].concat()
}

#[test]
fn binary_data_must_be_whole() {
    let options = CopyOptions::new(CopyFormat::Binary);
    let decode = |data: &[u8]| {
        let bytes: Vec<&[u8]> = data.chunks(1).collect();
        decode_pieces(&two(), CopyFormat::Binary, &options, &bytes)
    };
    let row = [0, 2, 0, 0, 0, 4, 0, 0, 0, 7, 0, 0, 0, 1, b'x'];
    let end = [0xff, 0xff];
    let good = decode(&binary(&[&row[..], &end].concat())).unwrap();
    assert_eq!(good[0].num_rows(), 1);
    let state = |data: &[u8]| decode(data).unwrap_err().sqlstate;
    assert_eq!(state(b"not a copy"), "22P04");
    assert_eq!(state(&binary(&row)), "22P04");
    assert_eq!(state(&binary(&row[..10])), "22P04");
    assert_eq!(state(&binary(&[&end[..], &[0]].concat())), "22P04");
    assert_eq!(state(&binary(&[0, 3])), "22P04");
    assert_eq!(state(&binary(&[0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0])), "22P03");
    assert_eq!(state(&binary(&[0, 2, 0, 0, 0, 4, 0, 0, 0, 7, 0, 0, 0, 1, 0])), "22021");
    assert_eq!(state(&binary(&[0, 2, 0xff, 0, 0, 0])), "22P04");
    assert_eq!(state(&[&b"PGCOPY\n\xff\r\n\0"[..], &[0, 1, 0, 0, 0, 0, 0, 0]].concat()), "22P04");
}

const WIDE: &str = "CREATE TABLE t (k INT PRIMARY KEY, b BOOLEAN, u UINT64, f4 REAL, f8 DOUBLE, \
    d DECIMAL(20, 4), s STRING, y BYTEA, dt DATE, ts TIMESTAMP(6), \
    tm TIME, id UUID)";

type Row = (
    (Option<i32>, Option<bool>, Option<u64>, Option<f32>, Option<f64>),
    (Option<i64>, Option<String>, Option<Vec<u8>>, Option<i32>, Option<i64>),
    (Option<i64>, Option<[u8; 16]>),
);

fn batch(rows: Vec<Row>) -> RecordBatch {
    macro_rules! column {
        ($array:ty, $half:tt, $at:tt) => {
            Arc::new(rows.iter().map(|row| row.$half.$at.clone()).collect::<$array>()) as ArrayRef
        };
    }
    let mut uuids = FixedSizeBinaryBuilder::new(16);
    for row in &rows {
        match row.2.1 {
            Some(uuid) => uuids.append_value(uuid).unwrap(),
            None => uuids.append_null(),
        }
    }
    let decimals: Decimal128Array = rows.iter().map(|row| row.1.0.map(i128::from)).collect();
    let arrays = vec![
        column!(Int32Array, 0, 0),
        column!(BooleanArray, 0, 1),
        column!(UInt64Array, 0, 2),
        column!(Float32Array, 0, 3),
        column!(Float64Array, 0, 4),
        Arc::new(decimals.with_precision_and_scale(20, 4).unwrap()) as ArrayRef,
        column!(StringViewArray, 1, 1),
        column!(BinaryViewArray, 1, 2),
        column!(Date32Array, 1, 3),
        column!(TimestampMicrosecondArray, 1, 4),
        column!(Time64MicrosecondArray, 2, 0),
        Arc::new(uuids.finish()) as ArrayRef,
    ];
    let names = names(&made(WIDE));
    let fields: Vec<_> = names
        .iter()
        .zip(&arrays)
        .map(|(name, array)| Field::new(name, array.data_type().clone(), true))
        .collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap()
}

/// Years that a calendar of four digits knows.
const MICROS: std::ops::Range<i64> = -62_000_000_000_000_000..250_000_000_000_000_000;
const DAYS: std::ops::Range<i32> = -700_000..2_900_000;

fn rows_strategy() -> impl Strategy<Value = Vec<Row>> {
    use prop::option::of;
    let string = prop_oneof!["[a-z,\"'\\\\\t\n\r.N]{0,6}", "[^\\x00\n]{0,6}"];
    let first =
        (of(any::<i32>()), of(any::<bool>()), of(any::<u64>()), of(any::<f32>()), of(any::<f64>()));
    let second = (of(any::<i64>()), of(string), of(any::<Vec<u8>>()), of(DAYS), of(MICROS));
    let third = (of(0..86_400_000_000_i64), of(any::<[u8; 16]>()));
    prop::collection::vec((first, second, third), 0..12)
}

fn options_strategy() -> impl Strategy<Value = (CopyFormat, CopyOptions)> {
    let formats = [CopyFormat::Text, CopyFormat::Csv, CopyFormat::Binary, CopyFormat::Ndjson];
    let format = prop::sample::select(formats.to_vec());
    (format, any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(format, header, odd, force)| {
            let mut options = CopyOptions::new(format);
            if matches!(format, CopyFormat::Text | CopyFormat::Csv) {
                if header {
                    options.header = CopyHeader::Match;
                }
                if odd {
                    options.delimiter = b'|';
                    options.null = "nil".to_owned();
                }
            }
            if format == CopyFormat::Csv {
                if odd {
                    options.quote = b'\'';
                    options.escape = b'\\';
                }
                if force {
                    options.force_quote = CopyColumns::All;
                }
            }
            (format, options)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn rows_come_back_as_they_went_out(
        rows in rows_strategy(),
        (format, options) in options_strategy(),
        size in 1..40_usize,
    ) {
        let table = made(WIDE);
        let batch = batch(rows);
        let mut encoder = CopyEncoder::new(&batch.schema(), format, &options, Zone::UTC).unwrap();
        let messages = encoder.encode(&batch).unwrap();
        prop_assert_eq!(messages.len(), batch.num_rows());
        let mut data = messages.concat();
        data.extend(encoder.finish().iter().flatten());
        if format == CopyFormat::Binary {
            data.extend([0xff, 0xff]);
        }
        let pieces: Vec<&[u8]> = data.chunks(size).collect();
        let found = match decode_pieces(&table, format, &options, &pieces) {
            Ok(found) => found,
            Err(error) => return Err(TestCaseError::fail(format!(
                "{error:?} in {:?}", String::from_utf8_lossy(&data)))),
        };
        let found = concat_batches(&batch.schema(), &found).unwrap();
        for (found, sent) in found.columns().iter().zip(batch.columns()) {
            prop_assert_eq!(found.to_data(), sent.to_data(), "{}", String::from_utf8_lossy(&data));
        }
    }

    #[test]
    fn any_bytes_are_rows_or_an_error(
        (format, options) in options_strategy(),
        junk in prop::collection::vec(any::<u8>(), 0..80),
        marks in "[\\\\\"'|,\t\n\r.N0-9a]{0,40}",
        size in 1..20_usize,
    ) {
        let table = made(WIDE);
        let options = CopyOptions { header: CopyHeader::None, ..options };
        for data in [junk.clone(), marks.into_bytes(), binary(&junk)] {
            let pieces: Vec<&[u8]> = data.chunks(size).collect();
            drop(decode_pieces(&table, format, &options, &pieces));
            drop(decode_pieces(&two(), format, &options, &pieces));
        }
    }
}

const ARRAYS: &str = "CREATE TABLE t (k INT PRIMARY KEY, n INT[], s STRING[], f DOUBLE[])";

/// Rows of `ARRAYS`, as texts of their arrays.
fn arrays(rows: &[[Option<String>; 3]]) -> RecordBatch {
    let table = made(ARRAYS);
    let line = |(number, row): (usize, &[Option<String>; 3])| {
        let cell = |text: &Option<String>| match text {
            Some(text) => format!("\"{}\"", text.replace('"', "\"\"")),
            None => String::new(),
        };
        let cells: Vec<String> = row.iter().map(cell).collect();
        format!("{number},{}\n", cells.join(","))
    };
    let lines = rows.iter().enumerate().map(line).collect::<Vec<_>>().concat();
    let options = CopyOptions::new(CopyFormat::Csv);
    let batches = decode_pieces(&table, CopyFormat::Csv, &options, &[lines.as_bytes()]).unwrap();
    concat_batches(&batches[0].schema(), &batches).unwrap()
}

/// The text of an array.
fn array_text(elements: &[Option<String>]) -> String {
    let element = |element: &Option<String>| match element {
        Some(text) => format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")),
        None => "NULL".to_owned(),
    };
    format!("{{{}}}", elements.iter().map(element).collect::<Vec<_>>().join(","))
}

proptest! {
    #[test]
    fn arrays_come_back_as_they_went_out(
        rows in prop::collection::vec(
            (
                prop::option::of(prop::collection::vec(prop::option::of(any::<i32>()), 0..4)),
                prop::option::of(prop::collection::vec(
                    prop::option::of("[a-z,\"'\\\\\t {}NUL]{0,6}"), 0..4)),
                prop::option::of(prop::collection::vec(prop::option::of(any::<f64>()), 0..4)),
            ),
            1..8,
        ),
        (format, options) in options_strategy(),
    ) {
        let texts = |elements: Vec<Option<String>>| array_text(&elements);
        let rows: Vec<[Option<String>; 3]> = rows
            .into_iter()
            .map(|(numbers, words, floats)| {
                let written = |number: Option<i32>| number.map(|number| number.to_string());
                let numbers = numbers.map(|all| all.into_iter().map(written).collect());
                let written = |number: Option<f64>| number.map(|number| number.to_string());
                let floats = floats.map(|all| all.into_iter().map(written).collect());
                [numbers.map(texts), words.map(texts), floats.map(texts)]
            })
            .collect();
        let sent = arrays(&rows);
        let mut encoder = CopyEncoder::new(&sent.schema(), format, &options, Zone::UTC).unwrap();
        let mut data = encoder.encode(&sent).unwrap().concat();
        data.extend(encoder.finish().iter().flatten());
        if format == CopyFormat::Binary {
            data.extend([0xff, 0xff]);
        }
        let found = decode_pieces(&made(ARRAYS), format, &options, &[&data]).unwrap();
        prop_assert_eq!(concat_batches(&sent.schema(), &found).unwrap(), sent);
    }
}

#[test]
fn arrays_have_postgresql_s_binary_form() {
    let row = [Some("{7,NULL}".to_owned()), Some("{}".to_owned()), None];
    let batch = arrays(&[row]);
    let options = CopyOptions::new(CopyFormat::Binary);
    let mut encoder =
        CopyEncoder::new(&batch.schema(), CopyFormat::Binary, &options, Zone::UTC).unwrap();
    let data = encoder.encode(&batch).unwrap().concat();
    let numbers = [
        [0, 0, 0, 32],
        // Dimensions, whether there is a NULL, the type, elements, the number of the first.
        [0, 0, 0, 1],
        [0, 0, 0, 1],
        [0, 0, 0, 23],
        [0, 0, 0, 2],
        [0, 0, 0, 1],
        [0, 0, 0, 4],
        [0, 0, 0, 7],
        [0xff; 4],
    ]
    .concat();
    let texts = [[0, 0, 0, 12], [0; 4], [0; 4], [0, 0, 0, 25]].concat();
    let expected: Vec<u8> = [numbers, texts, vec![0xff; 4]].concat();
    assert!(data.ends_with(&expected), "{data:?}");
    // An array that ends early, one that goes on, and one of two dimensions.
    let state = |array: &[u8]| {
        let length = u8::try_from(array.len()).unwrap();
        let before = [0, 4, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, length];
        let row = [&before[..], array, &[0xff; 8]].concat();
        let result = decode_pieces(&made(ARRAYS), CopyFormat::Binary, &options, &[&binary(&row)]);
        result.unwrap_err().sqlstate
    };
    let words =
        |words: &[u8]| -> Vec<u8> { words.iter().flat_map(|word| [0, 0, 0, *word]).collect() };
    assert_eq!(state(&words(&[1, 0, 23, 2, 1, 4, 7])), "22P03");
    assert_eq!(state(&words(&[1, 0, 23, 1, 1, 4, 7, 0])), "22P03");
    assert_eq!(state(&words(&[2, 0, 23, 1, 1, 1, 1, 4, 7])), "0A000");
    assert_eq!(state(&words(&[1])), "22P03");
}

#[test]
fn json_has_arrays_of_its_own_for_arrays() {
    let lines = "{\"k\": 1, \"n\": [1, null, -3], \"s\": [\"a\\nb\", \"\"], \"f\": \"{1.5}\"}\n";
    let options = CopyOptions::new(CopyFormat::Ndjson);
    let decoded = |lines: &str| {
        decode_pieces(&made(ARRAYS), CopyFormat::Ndjson, &options, &[lines.as_bytes()])
    };
    let found = decoded(lines).unwrap();
    let shown = |column: usize| {
        arrow::util::display::array_value_to_string(found[0].column(column), 0).unwrap()
    };
    assert_eq!(shown(1), "[1, , -3]");
    assert_eq!(shown(2), "[a\nb, ]");
    assert_eq!(shown(3), "[1.5]");
    assert_eq!(decoded("{\"k\": 1, \"n\": [[1]]}\n").unwrap_err().sqlstate, "22P02");
}

#[test]
fn values_are_printed_as_postgresql_prints_them() {
    let row = |f4: f32, f8: f64, micros: i64| -> Row {
        (
            (Some(1), Some(true), None, Some(f4), Some(f8)),
            (Some(-5), Some("a\tb".into()), Some(vec![0xde]), Some(0), Some(micros)),
            (Some(3_723_500_000), Some([0xa0; 16])),
        )
    };
    let batch = batch(vec![
        row(0.1, 1.0, 500_000),
        row(f32::NAN, f64::NEG_INFINITY, 0),
        row(1e20, 1e-5, -1),
    ]);
    let options = CopyOptions::new(CopyFormat::Text);
    let mut encoder =
        CopyEncoder::new(&batch.schema(), CopyFormat::Text, &options, Zone::UTC).unwrap();
    let lines: Vec<_> = encoder
        .encode(&batch)
        .unwrap()
        .iter()
        .map(|line| String::from_utf8(line.to_vec()).unwrap())
        .collect();
    let rest = "\t01:02:03.5\ta0a0a0a0-a0a0-a0a0-a0a0-a0a0a0a0a0a0\n";
    assert_eq!(
        lines,
        [
            format!(
                "1\tt\t\\N\t0.1\t1\t-0.0005\ta\\tb\t\\\\xde\t1970-01-01\t1970-01-01 00:00:00.5{rest}"
            ),
            format!(
                "1\tt\t\\N\tNaN\t-Infinity\t-0.0005\ta\\tb\t\\\\xde\t1970-01-01\t1970-01-01 00:00:00{rest}"
            ),
            format!(
                "1\tt\t\\N\t1e+20\t1e-05\t-0.0005\ta\\tb\t\\\\xde\t1970-01-01\t1969-12-31 23:59:59.999999{rest}"
            ),
        ]
    );
}
