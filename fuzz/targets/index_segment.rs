//! Segments of the indexes in a partition's files.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| partita_engine::fuzzing::index_segment(bytes));
