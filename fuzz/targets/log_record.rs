//! Records of the log that all Raft groups of a node share.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| partita_raft::fuzzing::log_record(bytes));
