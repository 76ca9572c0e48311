//! Envelopes around operators, for the fuzz target `fragment` and for tests. Not part of the interface.

use bytes::Bytes;
use prost::Message;

use crate::fragment::{Envelope, version};

/// An envelope of this version around encoded operators.
pub fn sealed(plan: Bytes) -> Vec<u8> {
    Envelope { version: version(), plan, time_zone: None, batch_rows: 8192 }.encode_to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fragment;

    #[test]
    fn the_inputs_that_fuzzing_begins_with_are_fragments() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/fragment");
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let decoded = Fragment::decode(&sealed(std::fs::read(&path).unwrap().into()), 2);
            assert!(decoded.is_ok(), "{}: {:?}", path.display(), decoded.err());
        }
    }
}
