//! Decodes log records from any bytes, for the fuzz target `log_record`. Not part of the interface.

use bytes::Bytes;

use super::checkpoint;
use super::record::{self, HEADER_BYTES, Record};

/// Number of the segment that the records belong to.
const SEGMENT: u32 = 5;
/// Longest input that is searched for a flipped bit: the time of the search grows with the square of the length.
const SEARCHED_BYTES_MAX: usize = 256;

/// Decodes the bytes as a record, then once more with the length, the segment and both checksums corrected, because
/// random bytes never have these.
///
/// # Panics
/// When a record that was decoded does not survive being encoded.
pub fn log_record(bytes: &[u8]) {
    decode(bytes);
    if let Some(corrected) = corrected(bytes) {
        decode(&corrected);
    }
}

fn decode(bytes: &[u8]) {
    let data = Bytes::copy_from_slice(bytes);
    if let Some((_, length)) = record::lost(bytes, 0, SEGMENT) {
        assert!(length >= HEADER_BYTES, "a record shorter than its header");
    }
    let Some(decoded) = record::decode(&data, 0, SEGMENT) else {
        if bytes.len() <= SEARCHED_BYTES_MAX {
            drop(record::repaired(bytes, 0, SEGMENT));
        }
        return;
    };
    assert!(record::claims(bytes, 0, SEGMENT), "a record that does not look like one");
    let mut buffer = Vec::new();
    let encoded = decoded.record.encode(SEGMENT, decoded.durable, &mut buffer);
    encoded.expect("a record that was decoded is short enough");
    let again = record::decode(&buffer.into(), 0, SEGMENT).expect("a record that was encoded");
    assert_eq!(again.record, decoded.record);
    if let Record::Checkpoint(payload) = &decoded.record {
        drop(checkpoint::decode(payload, "an input"));
    }
}

/// The bytes as a record of [`SEGMENT`] that fills them; `None` if they are too short for a header.
fn corrected(bytes: &[u8]) -> Option<Vec<u8>> {
    let length = u32::try_from(bytes.len().checked_sub(HEADER_BYTES)?).ok()?;
    let mut record = bytes.to_vec();
    record[4..8].copy_from_slice(&length.to_le_bytes());
    record[8..12].copy_from_slice(&SEGMENT.to_le_bytes());
    let check = crc32c::crc32c(&record[4..52]);
    record[52..56].copy_from_slice(&check.to_le_bytes());
    let crc = crc32c::crc32c(&record[4..]);
    record[..4].copy_from_slice(&crc.to_le_bytes());
    Some(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inputs_that_fuzzing_begins_with_are_records() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus/log_record");
        for entry in std::fs::read_dir(folder).unwrap() {
            let bytes = std::fs::read(entry.unwrap().path()).unwrap();
            log_record(&bytes);
            let corrected = corrected(&bytes).unwrap();
            assert!(record::decode(&corrected.into(), 0, SEGMENT).is_some());
        }
    }

    #[test]
    fn bytes_that_are_no_record_are_none() {
        log_record(b"");
        log_record(&[0; HEADER_BYTES - 1]);
        log_record(&[0xff; 2 * HEADER_BYTES]);
    }
}
