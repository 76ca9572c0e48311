//! Objects of a partition's manifest.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| partita_engine::fuzzing::manifest_edit(bytes));
