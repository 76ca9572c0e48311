//! The sketch of a file's series as text in its footer: the protobuf message, compressed by zstd, in hexadecimal digits.
//!
//! A text that cannot be read is no damage: the file then counts as one without a sketch.

use bytes::Bytes;
use partita_proto::cardinality::SeriesSketch;
use partita_proto::wire::Wire;

/// Compression level of zstd: the fastest.
const LEVEL: i32 = 1;
/// Maximum bytes of a message. Those of tables with as many tags as a key may have are far smaller.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// The text of a sketch; `None` if it is too large, or compression fails.
pub(crate) fn to_text(sketch: &SeriesSketch) -> Option<String> {
    let message = sketch.encode_wire();
    if message.len() > MESSAGE_BYTES_MAX {
        return None;
    }
    let compressed = zstd::bulk::compress(&message, LEVEL).ok()?;
    Some(compressed.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The sketch of a text; `None` if it is not one that this version reads.
pub(crate) fn of_text(text: &str) -> Option<SeriesSketch> {
    let digits = text.as_bytes().chunks(2);
    let compressed: Option<Vec<u8>> = digits
        .map(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok())
        .collect();
    let message = zstd::bulk::decompress(&compressed?, MESSAGE_BYTES_MAX).ok()?;
    SeriesSketch::decode_wire(Bytes::from(message)).ok()
}

#[cfg(test)]
mod tests {
    use partita_proto::id::ColumnId;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sketches_come_back_from_their_text() {
        let mut sketch = SeriesSketch::default();
        assert_eq!(of_text(&to_text(&sketch).unwrap()).as_ref(), Some(&sketch));
        for value in 0..2_000_u64 {
            let hash = value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            sketch.add(&[(ColumnId(1), Some(hash))], &[ColumnId(2)]);
        }
        assert_eq!(of_text(&to_text(&sketch).unwrap()).as_ref(), Some(&sketch));
    }

    proptest! {
        #[test]
        fn other_texts_are_no_sketches(bytes in vec(any::<u8>(), 1..60), text in "\\PC{0,20}") {
            let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            // No panic, whatever comes; random bytes are not compressed data.
            prop_assert_eq!(of_text(&digits), None);
            of_text(&text);
        }
    }
}
