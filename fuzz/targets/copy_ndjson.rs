//! COPY in NDJSON form. The first byte is the length of the pieces in which the data arrives.

#![no_main]

use libfuzzer_sys::fuzz_target;
use partita_sql::statement::CopyFormat;

fuzz_target!(|bytes: &[u8]| partita_fuzz::copy(bytes, CopyFormat::Ndjson));
