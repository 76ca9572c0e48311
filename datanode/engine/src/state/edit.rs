//! A change of a partition's manifest, and its form on disk.
//!
//! Bytes of an object: magic, version, CRC32C of the rest (little-endian), the message. Field numbers never change
//! their meaning.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use partita_proto::id::{ColumnId, PartitionId};
use partita_proto::index::IndexOptions;
use partita_proto::range::{Bound, TypedRange};
use partita_proto::service::PartitionSpec;
use partita_proto::wire::Wire;
use prost::Message;

use crate::error::Result;
use crate::file::{FileId, FileMeta, Within};
use crate::index::Indexed;
use crate::rows::memtable::LogPosition;

/// First bytes of every object; the last of them is the version of the format.
const MAGIC: &[u8; 4] = b"PMF\x01";
const HEADER_BYTES: usize = MAGIC.len() + 4;

/// Log position up to which all rows are in files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Durable {
    pub(crate) index: u64,
    pub(crate) mark: Bytes,
    pub(crate) state: Bytes,
}

impl Durable {
    pub(crate) fn position(&self) -> LogPosition {
        LogPosition { index: self.index, mark: self.mark.clone() }
    }
}

/// Parent of a partition that was split off, and the place of the split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Partition that owned the range before.
    pub parent: PartitionId,
    /// Index of the split in the parent's log.
    pub index: u64,
}

/// A change of the manifest.
#[derive(Clone, Debug, Default)]
pub(crate) struct Edit {
    pub(crate) added: Vec<FileMeta>,
    pub(crate) removed: Vec<FileId>,
    pub(crate) durable: Option<Durable>,
    pub(crate) config: Option<Arc<PartitionSpec>>,
    /// Width of time windows, in ticks of the time index.
    pub(crate) width: Option<i64>,
    pub(crate) origin: Option<Origin>,
}

/// Encodes an edit; `next_id` is the next file id.
pub(crate) fn encode(edit: &Edit, next_id: u64) -> Bytes {
    sealed(&EditMessage::from_edit(edit, next_id).encode_to_vec())
}

/// The object that contains a message.
pub(crate) fn sealed(message: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(HEADER_BYTES + message.len());
    bytes.put_slice(MAGIC);
    bytes.put_u32_le(crc32c::crc32c(message));
    bytes.put_slice(message);
    bytes.freeze()
}

/// Decodes the result of [`encode`]; the error text says what is invalid.
pub(crate) fn parse(bytes: &[u8]) -> std::result::Result<(Edit, u64), String> {
    let Some((header, message)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Err("too short".to_owned());
    };
    if header[..3] != MAGIC[..3] {
        return Err("not part of a manifest".to_owned());
    }
    if header[3] != MAGIC[3] {
        return Err(format!("format {} is not one that this version reads", header[3]));
    }
    if header[MAGIC.len()..] != crc32c::crc32c(message).to_le_bytes() {
        return Err("fails its checksum".to_owned());
    }
    let message = EditMessage::decode(message).map_err(|error| error.to_string())?;
    message.into_edit().map_err(|error| error.to_string())
}

/// An edit on disk. Field numbers never change their meaning.
#[derive(Clone, PartialEq, Message)]
struct EditMessage {
    #[prost(message, repeated, tag = "1")]
    added: Vec<FileMessage>,
    #[prost(uint64, repeated, tag = "2")]
    removed: Vec<u64>,
    #[prost(message, optional, tag = "3")]
    durable: Option<DurableMessage>,
    /// A [`PartitionSpec`].
    #[prost(bytes = "bytes", optional, tag = "4")]
    config: Option<Bytes>,
    #[prost(int64, optional, tag = "5")]
    width: Option<i64>,
    #[prost(uint64, tag = "6")]
    next_id: u64,
    #[prost(message, optional, tag = "7")]
    origin: Option<OriginMessage>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct OriginMessage {
    #[prost(uint64, tag = "1")]
    parent: u64,
    #[prost(uint64, tag = "2")]
    index: u64,
}

#[derive(Clone, PartialEq, Message)]
struct DurableMessage {
    #[prost(uint64, tag = "1")]
    index: u64,
    #[prost(bytes = "bytes", tag = "2")]
    mark: Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    state: Bytes,
}

#[derive(Clone, PartialEq, Message)]
struct SpanMessage {
    #[prost(int64, tag = "1")]
    first: i64,
    #[prost(int64, tag = "2")]
    last: i64,
}

#[derive(Clone, PartialEq, Message)]
struct FileMessage {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    run: u64,
    #[prost(uint64, tag = "3")]
    bytes: u64,
    #[prost(uint64, tag = "4")]
    rows: u64,
    #[prost(fixed32, tag = "5")]
    checksum: u32,
    #[prost(uint64, tag = "6")]
    tail: u64,
    #[prost(fixed32, tag = "7")]
    tail_checksum: u32,
    #[prost(uint32, repeated, tag = "8")]
    key: Vec<u32>,
    /// [`Bound`]s.
    #[prost(bytes = "bytes", tag = "9")]
    first: Bytes,
    #[prost(bytes = "bytes", tag = "10")]
    last: Bytes,
    #[prost(bytes = "bytes", repeated, tag = "11")]
    splits: Vec<Bytes>,
    #[prost(message, optional, tag = "12")]
    time: Option<SpanMessage>,
    #[prost(message, optional, tag = "13")]
    window: Option<SpanMessage>,
    #[prost(uint64, tag = "14")]
    seq_first: u64,
    #[prost(uint64, tag = "15")]
    seq_last: u64,
    #[prost(uint64, tag = "16")]
    tombstones: u64,
    #[prost(bool, tag = "17")]
    has_op: bool,
    #[prost(message, optional, tag = "18")]
    within: Option<WithinMessage>,
    #[prost(message, repeated, tag = "19")]
    indexed: Vec<IndexedMessage>,
    #[prost(uint64, tag = "20")]
    index_bytes: u64,
}

#[derive(Clone, PartialEq, Message)]
struct IndexedMessage {
    #[prost(uint32, tag = "1")]
    column: u32,
    /// [`IndexOptions`].
    #[prost(bytes = "bytes", tag = "2")]
    options: Bytes,
}

#[derive(Clone, PartialEq, Message)]
struct WithinMessage {
    #[prost(uint32, repeated, tag = "1")]
    key: Vec<u32>,
    /// A [`TypedRange`].
    #[prost(bytes = "bytes", tag = "2")]
    range: Bytes,
}

impl EditMessage {
    fn from_edit(edit: &Edit, next_id: u64) -> Self {
        Self {
            added: edit.added.iter().map(FileMessage::from_meta).collect(),
            removed: edit.removed.clone(),
            durable: edit.durable.as_ref().map(|durable| DurableMessage {
                index: durable.index,
                mark: durable.mark.clone(),
                state: durable.state.clone(),
            }),
            config: edit.config.as_ref().map(|config| config.encode_wire()),
            width: edit.width,
            next_id,
            origin: edit
                .origin
                .map(|origin| OriginMessage { parent: origin.parent.0, index: origin.index }),
        }
    }

    fn into_edit(self) -> Result<(Edit, u64)> {
        let config = self.config.map(PartitionSpec::decode_wire).transpose()?;
        let durable = self.durable.map(|durable| Durable {
            index: durable.index,
            mark: durable.mark,
            state: durable.state,
        });
        let edit = Edit {
            added: self.added.into_iter().map(FileMessage::into_meta).collect::<Result<_>>()?,
            removed: self.removed,
            durable,
            config: config.map(Arc::new),
            width: self.width,
            origin: self
                .origin
                .map(|origin| Origin { parent: PartitionId(origin.parent), index: origin.index }),
        };
        Ok((edit, self.next_id))
    }
}

impl FileMessage {
    fn from_meta(meta: &FileMeta) -> Self {
        let span = |span: Option<(i64, i64)>| span.map(|(first, last)| SpanMessage { first, last });
        Self {
            id: meta.id,
            run: meta.run,
            bytes: meta.bytes,
            rows: meta.rows,
            checksum: meta.checksum,
            tail: meta.tail,
            tail_checksum: meta.tail_checksum,
            key: meta.key.iter().map(|id| id.0).collect(),
            first: meta.first.encode_wire(),
            last: meta.last.encode_wire(),
            splits: meta.splits.iter().map(Wire::encode_wire).collect(),
            time: span(meta.time),
            window: span(meta.window),
            seq_first: meta.seq.0,
            seq_last: meta.seq.1,
            tombstones: meta.tombstones,
            has_op: meta.has_op,
            within: meta.within.as_ref().map(|part| WithinMessage {
                key: part.key.iter().map(|id| id.0).collect(),
                range: part.range.encode_wire(),
            }),
            indexed: meta.indexed.iter().map(IndexedMessage::from_indexed).collect(),
            index_bytes: meta.index_bytes,
        }
    }

    fn into_meta(self) -> Result<FileMeta> {
        let span = |span: Option<SpanMessage>| span.map(|span| (span.first, span.last));
        let splits = self.splits.into_iter().map(Bound::decode_wire);
        let part = |message: WithinMessage| -> Result<Within> {
            let key = message.key.into_iter().map(ColumnId).collect();
            Ok(Within { key, range: TypedRange::decode_wire(message.range)? })
        };
        Ok(FileMeta {
            id: self.id,
            run: self.run,
            bytes: self.bytes,
            rows: self.rows,
            checksum: self.checksum,
            tail: self.tail,
            tail_checksum: self.tail_checksum,
            key: self.key.into_iter().map(ColumnId).collect(),
            first: Bound::decode_wire(self.first)?,
            last: Bound::decode_wire(self.last)?,
            splits: splits.collect::<std::result::Result<_, _>>()?,
            time: span(self.time),
            window: span(self.window),
            seq: (self.seq_first, self.seq_last),
            tombstones: self.tombstones,
            has_op: self.has_op,
            within: self.within.map(part).transpose()?,
            indexed: self.indexed.into_iter().filter_map(IndexedMessage::into_indexed).collect(),
            index_bytes: self.index_bytes,
        })
    }
}

impl IndexedMessage {
    fn from_indexed(indexed: &Indexed) -> Self {
        Self { column: indexed.column.0, options: indexed.options.encode_wire() }
    }

    /// `None` for an index of a kind that this version does not know: nobody asks for it.
    fn into_indexed(self) -> Option<Indexed> {
        let options = IndexOptions::decode_wire(self.options).ok()?;
        Some(Indexed { column: ColumnId(self.column), options })
    }
}

#[cfg(test)]
mod tests {
    use partita_proto::id::Epoch;
    use partita_proto::id::{NodeId, ReplicaId, SchemaVersion, TableId};
    use partita_proto::index::{Analyzer, Backend, Blooms, Fulltext};
    use partita_proto::placement::Placement;
    use partita_proto::schema::{TableOptions, TableSchema};
    use partita_proto::value::Value;

    use super::*;

    fn bound(key: Vec<Value>) -> Bound {
        Bound { placement: Some(300), key }
    }

    fn file() -> FileMeta {
        FileMeta {
            id: 3,
            run: 4,
            bytes: 70_000,
            rows: 1000,
            checksum: 0x0102_0304,
            tail: 900,
            tail_checksum: 0x0506_0708,
            key: vec![ColumnId(1), ColumnId(2)],
            first: bound(vec![Value::String("a".to_owned())]),
            last: bound(vec![Value::String("z".to_owned()), Value::Timestamp(-5)]),
            splits: vec![bound(vec![Value::Int(7)])],
            time: Some((-5, 5)),
            window: Some((-100, 100)),
            seq: (10, 20),
            tombstones: 2,
            has_op: true,
            within: Some(Within {
                key: vec![ColumnId(1)],
                range: TypedRange { start: bound(vec![]), end: bound(vec![Value::Int(9)]) },
            }),
            indexed: Vec::new(),
            index_bytes: 0,
        }
    }

    /// An edit with every field. Manifests of users are made of these bytes: one that differs is a mistake, or needs
    /// another version in the header.
    #[test]
    fn an_edit_never_changes_its_bytes() {
        let config = PartitionSpec {
            partition: PartitionId(7),
            table: TableId(5),
            epoch: Epoch(2),
            replica: ReplicaId(11),
            members: [(ReplicaId(11), NodeId(1))].into(),
            range: TypedRange { start: bound(vec![]), end: bound(vec![Value::Int(9)]) },
            placement: Placement::Hash { columns: vec![ColumnId(1)] },
            schema: Arc::new(TableSchema {
                version: SchemaVersion(1),
                columns: Vec::new(),
                key: vec![ColumnId(1)],
                options: TableOptions::default(),
                next_column: ColumnId(3),
                schema_on_write: false,
                checks: Vec::new(),
                view: None,
            }),
            join: false,
        };
        let edit = Edit {
            added: vec![file(), FileMeta { within: None, time: None, window: None, ..file() }],
            removed: vec![1, 2],
            durable: Some(Durable {
                index: 42,
                mark: Bytes::from_static(b"mark"),
                state: Bytes::from_static(b"state"),
            }),
            config: Some(Arc::new(config)),
            width: Some(3600),
            origin: Some(Origin { parent: PartitionId(6), index: 41 }),
        };
        let bytes = encode(&edit, 5);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, include_str!("edit.golden").trim(), "got:\n{hex}");
        let (back, next_id) = parse(&bytes).unwrap();
        assert_eq!((encode(&back, next_id), next_id), (bytes, 5));
    }

    /// As above, for what files with indexes have besides.
    #[test]
    fn an_edit_of_a_file_with_indexes_never_changes_its_bytes() {
        let options = [
            IndexOptions::Inverted,
            IndexOptions::Skipping(Blooms { granularity: 10_240, false_positives_ppm: 10_000 }),
            IndexOptions::Fulltext(Fulltext {
                analyzer: Analyzer::Chinese,
                case_sensitive: true,
                backend: Backend::Inverted,
            }),
            IndexOptions::Fulltext(Fulltext {
                analyzer: Analyzer::English,
                case_sensitive: false,
                backend: Backend::Bloom(Blooms { granularity: 1, false_positives_ppm: 2 }),
            }),
        ];
        let indexed = options.map(|options| Indexed { column: ColumnId(300), options });
        let meta = FileMeta { indexed: indexed.to_vec(), index_bytes: 70_000, ..file() };
        let edit = Edit { added: vec![meta.clone()], ..Edit::default() };
        let bytes = encode(&edit, 5);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, include_str!("edit_indexed.golden").trim(), "got:\n{hex}");
        assert_eq!(parse(&bytes).unwrap().0.added, [meta]);
    }

    #[test]
    fn an_index_of_an_unknown_kind_is_left_out() {
        let unknown = IndexedMessage { column: 3, options: Bytes::from_static(&[0x7a, 0]) };
        let message = FileMessage { indexed: vec![unknown], ..FileMessage::from_meta(&file()) };
        assert_eq!(message.into_meta().unwrap(), file());
    }
}
