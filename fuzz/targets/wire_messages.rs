//! Messages between services and in logs. The first byte chooses the message's type.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use partita_proto::Error;
use partita_proto::catalog::Table;
use partita_proto::catalog_history::CatalogHistory;
use partita_proto::domain::Domains;
use partita_proto::generation::{Renewal, Renewed};
use partita_proto::history::ReshapeEvent;
use partita_proto::load::{LoadHistory, LoadReport};
use partita_proto::member::{Heartbeat, Registration};
use partita_proto::placement::Placement;
use partita_proto::range::{Bound, TypedRange};
use partita_proto::reshape::Reshape;
use partita_proto::schema::TableSchema;
use partita_proto::service::{AdminOrder, Ddl, NewTable, PartitionSpec};
use partita_proto::wire::{Command, Wire};

/// Checks that a decoded value is decoded again from what it encodes to.
fn check<T: Wire>(bytes: Bytes) {
    if let Ok(value) = T::decode_wire(bytes) {
        let again = T::decode_wire(value.encode_wire());
        assert!(again.is_ok(), "a value that was decoded cannot be sent on");
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, message)) = bytes.split_first() else { return };
    let message = Bytes::copy_from_slice(message);
    match kind {
        0 => check::<Command>(message),
        1 => check::<Reshape>(message),
        2 => check::<Bound>(message),
        3 => check::<TypedRange>(message),
        4 => check::<TableSchema>(message),
        5 => check::<Placement>(message),
        6 => check::<PartitionSpec>(message),
        7 => check::<Domains>(message),
        8 => check::<Table>(message),
        9 => check::<NewTable>(message),
        10 => check::<Ddl>(message),
        11 => check::<Registration>(message),
        12 => check::<Heartbeat>(message),
        13 => check::<AdminOrder>(message),
        14 => check::<Renewal>(message),
        15 => check::<Renewed>(message),
        16 => check::<CatalogHistory>(message),
        17 => check::<ReshapeEvent>(message),
        18 => check::<LoadReport>(message),
        19 => check::<LoadHistory>(message),
        20 => check::<Error>(message),
        _ => {}
    }
});
