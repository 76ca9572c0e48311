//! Decodes a manifest's objects from any bytes, for the fuzz target `manifest_edit`. Not part of the interface.

use crate::state::edit::{encode, parse, sealed};
use crate::state::manifest::Recorded;

/// Decodes the bytes as an object of a manifest, then as the message in one with the right checksum, because random
/// bytes never have that.
///
/// # Panics
/// When an edit that was decoded does not survive being encoded.
pub fn manifest_edit(bytes: &[u8]) {
    decode(bytes);
    decode(&sealed(bytes));
}

fn decode(bytes: &[u8]) {
    let Ok((edit, next_id)) = parse(bytes) else { return };
    let encoded = encode(&edit, next_id);
    let (again, again_id) = parse(&encoded).expect("an edit that was encoded");
    assert_eq!(encode(&again, again_id), encoded);
    drop(Recorded::from_bytes(bytes));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inputs_that_fuzzing_begins_with_are_edits() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/manifest_edit");
        for entry in std::fs::read_dir(folder).unwrap() {
            let bytes = std::fs::read(entry.unwrap().path()).unwrap();
            manifest_edit(&bytes);
            assert!(parse(&bytes).is_ok() || parse(&sealed(&bytes)).is_ok());
        }
    }

    #[test]
    fn bytes_that_are_no_edit_are_an_error() {
        manifest_edit(b"");
        manifest_edit(&[0xff; 64]);
    }
}
