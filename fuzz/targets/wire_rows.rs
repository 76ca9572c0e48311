//! Rows in logs and between nodes: an Arrow IPC stream. Decoded rows can be encoded again.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use partita_proto::wire::ipc;

fuzz_target!(|bytes: &[u8]| {
    let Ok(batches) = ipc::decode(Bytes::copy_from_slice(bytes)) else { return };
    if batches.is_empty() {
        return;
    }
    let encoded = ipc::encode(&batches).expect("the types are those of tables");
    let again = ipc::decode(encoded).expect("the stream is our own");
    assert_eq!(batches.len(), again.len());
    for (batch, other) in batches.iter().zip(&again) {
        assert_eq!(batch.num_rows(), other.num_rows());
    }
});
