//! Snapshots of the catalog, for a member of meta's group that the log alone cannot bring up to date: all records
//! in one file, made in memory.
//!
//! Invariant: a received snapshot is checked as a whole before anything of it is stored.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use partita_raft::{Incoming, MachineError, Mark, Offer, Snapshot, SnapshotFile};
use prost::Message;

use crate::error::MetaError;
use crate::machine::CatalogMachine;
use crate::store::Change;

/// Maximum size of an accepted catalog, in bytes; it is read into memory. Ten thousand tables take a hundredth of
/// it.
const CATALOG_BYTES_MAX: u64 = 1 << 30;

/// All records of a catalog, as sent to another member.
#[derive(Clone, PartialEq, Message)]
struct RecordsForm {
    #[prost(message, repeated, tag = "1")]
    records: Vec<RecordForm>,
}

#[derive(Clone, PartialEq, Message)]
struct RecordForm {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

/// Encodes records for snapshots and copies.
pub(crate) fn encode_records(changes: &[Change]) -> Bytes {
    let pairs = changes.iter().filter_map(|change| Some((&change.key, change.value.as_ref()?)));
    let form = |(key, value): (&Vec<u8>, &Vec<u8>)| RecordForm {
        key: Bytes::copy_from_slice(key),
        value: Bytes::copy_from_slice(value),
    };
    let records = pairs.map(form).collect();
    RecordsForm { records }.encode_to_vec().into()
}

/// Decodes the output of [`encode_records`].
///
/// # Errors
/// [`MetaError::Corrupted`] for other bytes.
pub(crate) fn decode_records(bytes: Bytes) -> Result<Vec<(Vec<u8>, Vec<u8>)>, MetaError> {
    let records = slice_records(bytes)?.into_iter();
    Ok(records.map(|(key, value)| (key.to_vec(), value.to_vec())).collect())
}

/// As [`decode_records`], without copies: keys and values are parts of `bytes`.
///
/// # Errors
/// As [`decode_records`].
pub(crate) fn slice_records(bytes: Bytes) -> Result<Vec<(Bytes, Bytes)>, MetaError> {
    let form = RecordsForm::decode(bytes)
        .map_err(|error| MetaError::Corrupted(format!("a catalog does not parse: {error}")))?;
    Ok(form.records.into_iter().map(|record| (record.key, record.value)).collect())
}

/// A snapshot of the catalog.
pub(crate) struct CatalogCopy {
    mark: Mark,
    bytes: Bytes,
}

impl CatalogCopy {
    pub(crate) fn new(mark: Mark, changes: &[Change]) -> Self {
        Self { mark, bytes: encode_records(changes) }
    }
}

#[async_trait]
impl Snapshot for CatalogCopy {
    fn mark(&self) -> Mark {
        self.mark.clone()
    }

    fn state(&self) -> Bytes {
        Bytes::new()
    }

    fn files(&self) -> Vec<SnapshotFile> {
        // Two snapshots at one index have the same bytes: records are in order.
        let name = format!("catalog-{}", self.mark.index());
        vec![SnapshotFile { name, bytes: self.bytes.len() as u64 }]
    }

    async fn read(&self, file: usize, offset: u64, bytes: usize) -> Result<Bytes, MachineError> {
        let start = usize::try_from(offset).ok().filter(|start| *start <= self.bytes.len());
        match start {
            Some(start) if file == 0 => {
                Ok(self.bytes.slice(start..self.bytes.len().min(start + bytes)))
            }
            _ => Err(MachineError(format!(
                "a copy of the catalog has no byte {offset} of file {file}"
            ))),
        }
    }
}

/// A catalog being received.
pub(crate) struct CatalogIncoming {
    machine: Arc<CatalogMachine>,
    mark: Mark,
    bytes: BytesMut,
}

impl CatalogIncoming {
    pub(crate) fn new(machine: Arc<CatalogMachine>, offer: Offer) -> Result<Self, MachineError> {
        if offer.files.len() != 1 {
            return Err(MachineError(format!(
                "a catalog is sent as one file, not as {}",
                offer.files.len()
            )));
        }
        if let Some(file) = offer.files.iter().find(|file| file.bytes > CATALOG_BYTES_MAX) {
            return Err(MachineError(format!("a catalog of {} bytes is too large", file.bytes)));
        }
        Ok(Self { machine, mark: offer.mark, bytes: BytesMut::new() })
    }
}

#[async_trait]
impl Incoming for CatalogIncoming {
    fn have(&self) -> Vec<u64> {
        vec![self.bytes.len() as u64]
    }

    async fn write(&mut self, file: usize, offset: u64, data: Bytes) -> Result<(), MachineError> {
        if file != 0 || offset != self.bytes.len() as u64 {
            return Err(MachineError(format!(
                "byte {offset} of file {file} of a catalog is out of order"
            )));
        }
        self.bytes.extend_from_slice(&data);
        Ok(())
    }

    async fn install(self: Box<Self>) -> Result<(), MachineError> {
        let Self { machine, mark, bytes } = *self;
        let records =
            decode_records(bytes.freeze()).map_err(|error| MachineError(error.to_string()))?;
        let installed = partita_proto::blocking::spawn(move || machine.replace(records, mark));
        let installed = installed.await.map_err(|error| MachineError(error.to_string()))?;
        installed.map_err(|error| MachineError(error.to_string()))
    }
}
