//! The measures of a file's rows as text in its footer: the protobuf message, compressed by zstd, in hexadecimal digits.
//!
//! A text that cannot be read is no damage: the file then counts as one without measures.

use bytes::Bytes;
use partita_proto::measure::TableMeasures;
use partita_proto::wire::Wire;

/// Compression level of zstd: the fastest.
const LEVEL: i32 = 1;
/// Maximum bytes of a message: enough for as many text columns as are measured, with the longest samples.
const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// The text of measures; `None` if they are too large, or compression fails.
pub(crate) fn to_text(measures: &TableMeasures) -> Option<String> {
    let message = measures.encode_wire();
    if message.len() > MESSAGE_BYTES_MAX {
        return None;
    }
    let compressed = zstd::bulk::compress(&message, LEVEL).ok()?;
    Some(compressed.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The measures of a text; `None` if it is not one that this version reads.
pub(crate) fn of_text(text: &str) -> Option<TableMeasures> {
    let digits = text.as_bytes().chunks(2);
    let compressed: Option<Vec<u8>> = digits
        .map(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok())
        .collect();
    let message = zstd::bulk::decompress(&compressed?, MESSAGE_BYTES_MAX).ok()?;
    TableMeasures::decode_wire(Bytes::from(message)).ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, StringViewArray, TimestampMillisecondArray};
    use arrow::record_batch::RecordBatch;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::tests::{append, series_schema};

    /// Rows of the series `x`, with the names under which they are stored.
    fn measured(numbers: std::ops::Range<i64>) -> TableMeasures {
        let schema = series_schema(append());
        let count = usize::try_from(numbers.end - numbers.start).unwrap();
        let texts = numbers.clone().map(|number| Some(format!("text {number}")));
        let columns: [ArrayRef; 4] = [
            Arc::new(StringViewArray::from(vec!["x"; count])),
            Arc::new(TimestampMillisecondArray::from_iter_values(numbers.clone())),
            Arc::new(Int64Array::from_iter_values(numbers)),
            Arc::new(texts.collect::<StringViewArray>()),
        ];
        let names = schema.columns.iter().map(|column| column.storage_name.clone());
        let rows = RecordBatch::try_from_iter(names.zip(columns)).unwrap();
        let mut measures = TableMeasures::default();
        measures.add_rows(&schema, &rows).unwrap();
        measures
    }

    #[test]
    fn measures_come_back_from_their_text() {
        for measures in [TableMeasures::default(), measured(0..100), measured(-5_000..5_000)] {
            let text = to_text(&measures).unwrap();
            assert_eq!(of_text(&text).as_ref(), Some(&measures));
        }
    }

    #[test]
    fn the_text_of_many_rows_is_small() {
        // Four columns, each with at most 4 KiB of registers, before compression and hexadecimal digits.
        let text = to_text(&measured(0..20_000)).unwrap();
        assert!(text.len() < 32 * 1024, "{} bytes", text.len());
    }

    proptest! {
        #[test]
        fn other_texts_are_no_measures(bytes in vec(any::<u8>(), 1..60), text in "\\PC{0,20}") {
            let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            // No panic, whatever comes; random bytes are not compressed data.
            prop_assert_eq!(of_text(&digits), None);
            of_text(&text);
        }
    }
}
