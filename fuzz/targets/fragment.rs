//! Fragments of queries: the bytes as an envelope, and as the operators in an envelope of this version.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use partita_worker::{Fragment, fuzzing};

// DataFusion panics on some malformed operators, and the decoder makes errors of these panics. The hook that libfuzzer
// installs would end the process at once; a panic that leaves the decoder still ends it.
fuzz_target!(init: drop(std::panic::take_hook()), |bytes: &[u8]| {
    drop(Fragment::decode(bytes, 2));
    drop(Fragment::decode(&fuzzing::sealed(Bytes::copy_from_slice(bytes)), 2));
});
