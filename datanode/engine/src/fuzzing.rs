//! Decodes private forms from any bytes, for the fuzz targets `manifest_edit` (objects of a manifest) and
//! `index_segment` (segments of indexes). Not part of the interface.

use std::ops::Bound;

use bytes::Bytes;
use partita_proto::domain::Domain;
use partita_proto::index::{Analyzer, Backend, Blooms, Fulltext, IndexOptions};
use partita_proto::value::Value;
use regex::Regex;

use crate::index::{Question, Segment};
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

/// Decodes the bytes as a segment of each kind of index, and asks what decodes for rows.
pub fn index_segment(bytes: &[u8]) {
    let bytes = Bytes::copy_from_slice(bytes);
    let fulltext = |backend| {
        let (analyzer, case_sensitive) = (Analyzer::Chinese, false);
        IndexOptions::Fulltext(Fulltext { analyzer, case_sensitive, backend })
    };
    let blooms = Blooms::default();
    let kinds = [
        IndexOptions::Inverted,
        IndexOptions::Skipping(blooms),
        fulltext(Backend::Inverted),
        fulltext(Backend::Bloom(blooms)),
    ];
    kinds
        .iter()
        .filter_map(|kind| Segment::decode(&bytes, kind).ok())
        .for_each(|segment| ask(&segment));
}

/// Asks a segment every kind of question. An answer may be wrong, as the bytes are; a panic is a mistake.
fn ask(segment: &Segment) {
    let terms = ["a".to_owned()];
    let text = |text: &str| Value::String(text.to_owned());
    let domains = [
        Domain::all(),
        Domain::points([text("a"), Value::Null]),
        Domain::interval(Bound::Excluded(text("a")), Bound::Unbounded),
    ];
    let pattern = Regex::new("a").expect("the pattern is valid");
    let questions = [Question::Pattern(&pattern), Question::Terms { terms: &terms, folded: true }];
    let within = domains.iter().map(Question::Within);
    for question in within.chain(questions) {
        drop(segment.rows(&question));
    }
    segment.bytes();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inputs_that_fuzzing_begins_with_are_segments() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/index_segment");
        for entry in std::fs::read_dir(folder).unwrap() {
            let bytes = std::fs::read(entry.unwrap().path()).unwrap();
            index_segment(&bytes);
            let bytes = Bytes::from(bytes);
            let kinds = [IndexOptions::Inverted, IndexOptions::Skipping(Blooms::default())];
            assert!(kinds.iter().any(|kind| Segment::decode(&bytes, kind).is_ok()));
        }
    }

    #[test]
    fn bytes_that_are_no_segment_are_an_error() {
        index_segment(b"");
        index_segment(&[0xff; 64]);
        index_segment(&[0; 64]);
    }

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
