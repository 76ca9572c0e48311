//! The manifest: the durable record of a partition's configuration, files and place in the log.
//!
//! It is a sequence of edits, each an object of its own (`manifest/<number>.edit`), numbered without
//! a gap. Now and then a checkpoint (`manifest/<number>.checkpoint`) stands for everything up to and
//! including its number, and older objects are removed. An edit is put atomically, so it took effect
//! or it did not; the state of the partition is the newest checkpoint and the edits behind it.
//!
//! Bytes of an object: magic, version, CRC32C of the rest (little-endian), the message.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use partita_proto::id::ColumnId;
use partita_proto::range::Bound;
use partita_proto::service::PartitionSpec;
use partita_proto::wire::Wire;
use prost::Message;

use crate::error::{EngineError, Result};
use crate::file::{FileId, FileMeta};

/// Edits between checkpoints: what a start reads, and what removing old objects is spread over.
const EDITS_MAX: u64 = 64;
/// The first bytes of every object, the last of which is the format's version.
const MAGIC: &[u8; 4] = b"PMF\x01";
const HEADER_BYTES: usize = MAGIC.len() + 4;

/// Where the files' rows end in the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Durable {
    pub(crate) index: u64,
    pub(crate) mark: Bytes,
    pub(crate) state: Bytes,
}

/// A change of the manifest.
#[derive(Clone, Debug, Default)]
pub(crate) struct Edit {
    pub(crate) added: Vec<FileMeta>,
    pub(crate) removed: Vec<FileId>,
    pub(crate) durable: Option<Durable>,
    pub(crate) config: Option<Arc<PartitionSpec>>,
    /// The width of time windows, in ticks of the time index.
    pub(crate) width: Option<i64>,
}

/// What all edits come to.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    pub(crate) config: Arc<PartitionSpec>,
    pub(crate) files: BTreeMap<FileId, FileMeta>,
    pub(crate) durable: Option<Durable>,
    pub(crate) width: Option<i64>,
    /// The next number for a file or a run of files.
    pub(crate) next_id: u64,
}

impl Recorded {
    /// The state of a new partition.
    fn new(config: Arc<PartitionSpec>) -> Self {
        Self { config, files: BTreeMap::new(), durable: None, width: None, next_id: 1 }
    }

    /// The state after an edit.
    fn apply(&mut self, edit: &Edit, next_id: u64) {
        for id in &edit.removed {
            self.files.remove(id);
        }
        for meta in &edit.added {
            self.files.insert(meta.id, meta.clone());
        }
        if let Some(durable) = &edit.durable {
            self.durable = Some(durable.clone());
        }
        if let Some(config) = &edit.config {
            self.config = Arc::clone(config);
        }
        self.width = edit.width.or(self.width);
        self.next_id = self.next_id.max(next_id);
    }

    /// All of it, checksummed: what another replica needs besides the files.
    pub(crate) fn to_bytes(&self) -> Bytes {
        encode(&self.as_edit(), self.next_id)
    }

    /// Reads what [`Recorded::to_bytes`] gave.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let read = parse(bytes).and_then(|(edit, next_id)| {
            let config = edit.config.clone().ok_or_else(|| "has no configuration".to_owned())?;
            let mut recorded = Self::new(config);
            recorded.apply(&edit, next_id);
            Ok(recorded)
        });
        read.map_err(|what| EngineError::Corrupted(format!("the state of a replica: {what}")))
    }

    fn as_edit(&self) -> Edit {
        Edit {
            added: self.files.values().cloned().collect(),
            removed: Vec::new(),
            durable: self.durable.clone(),
            config: Some(Arc::clone(&self.config)),
            width: self.width,
        }
    }
}

/// The manifest of an open partition. One writer at a time.
#[derive(Debug)]
pub(crate) struct Manifest {
    store: Arc<dyn ObjectStore>,
    directory: Path,
    recorded: Recorded,
    /// The number of the last object.
    last: u64,
    /// The number of the last checkpoint.
    checkpoint: u64,
}

impl Manifest {
    /// The manifest of a new partition.
    pub(crate) async fn create(
        store: Arc<dyn ObjectStore>,
        root: &Path,
        config: Arc<PartitionSpec>,
    ) -> Result<Self> {
        let directory = directory(root);
        if !list(&store, &directory).await?.is_empty() {
            return Err(EngineError::AlreadyExists(root.to_string()));
        }
        let recorded = Recorded::new(config);
        let mut manifest = Self { store, directory, recorded, last: 0, checkpoint: 0 };
        manifest.write_checkpoint().await?;
        Ok(manifest)
    }

    /// Reads the manifest of a partition.
    pub(crate) async fn open(store: Arc<dyn ObjectStore>, root: &Path) -> Result<Self> {
        let directory = directory(root);
        let objects = list(&store, &directory).await?;
        let Some(checkpoint) = objects.iter().filter(|o| o.checkpoint).map(|o| o.number).max()
        else {
            return match objects.is_empty() {
                true => Err(EngineError::NotFound(root.to_string())),
                false => {
                    Err(EngineError::Corrupted(format!("manifest {directory} has no checkpoint")))
                }
            };
        };
        let path = object_path(&directory, checkpoint, true);
        let (edit, next_id) = read(&store, &path).await?;
        let config = edit.config.clone().ok_or_else(|| {
            EngineError::Corrupted(format!("checkpoint {path} has no configuration"))
        })?;
        let mut recorded = Recorded::new(config);
        recorded.apply(&edit, next_id);
        let mut last = checkpoint;
        for object in objects.iter().filter(|o| !o.checkpoint && o.number > checkpoint) {
            if object.number != last + 1 {
                return Err(EngineError::Corrupted(format!(
                    "manifest {directory}: edit {} is missing",
                    last + 1
                )));
            }
            let (edit, next_id) =
                read(&store, &object_path(&directory, object.number, false)).await?;
            recorded.apply(&edit, next_id);
            last = object.number;
        }
        Ok(Self { store, directory, recorded, last, checkpoint })
    }

    pub(crate) fn recorded(&self) -> &Recorded {
        &self.recorded
    }

    /// A number for a file or a run of files.
    pub(crate) fn allocate(&mut self) -> u64 {
        let id = self.recorded.next_id;
        self.recorded.next_id += 1;
        id
    }

    /// Gives out no number before this one any more.
    pub(crate) fn allocate_from(&mut self, id: u64) {
        self.recorded.next_id = self.recorded.next_id.max(id);
    }

    /// Makes an edit durable. When this fails with [`EngineError::DiskFull`] nothing was changed; any
    /// other failure leaves unknown whether the edit took effect.
    pub(crate) async fn record(&mut self, edit: Edit) -> Result<()> {
        let path = object_path(&self.directory, self.last + 1, false);
        write(&self.store, &path, &edit, self.recorded.next_id).await?;
        self.last += 1;
        self.recorded.apply(&edit, self.recorded.next_id);
        if self.last - self.checkpoint >= EDITS_MAX
            && let Err(error) = self.write_checkpoint().await
        {
            // The edits are there; the next one tries again.
            tracing::warn!(manifest = %self.directory, %error, "checkpoint failed");
        }
        Ok(())
    }

    async fn write_checkpoint(&mut self) -> Result<()> {
        let path = object_path(&self.directory, self.last, true);
        write(&self.store, &path, &self.recorded.as_edit(), self.recorded.next_id).await?;
        self.checkpoint = self.last;
        for object in list(&self.store, &self.directory).await? {
            let old =
                object.number < self.last || (object.number == self.last && !object.checkpoint);
            if old {
                let path = object_path(&self.directory, object.number, object.checkpoint);
                delete(&self.store, &path).await?;
            }
        }
        Ok(())
    }
}

/// Deletes an object; it may be gone already.
pub(crate) async fn delete(store: &Arc<dyn ObjectStore>, path: &Path) -> Result<()> {
    match store.delete(path).await {
        Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(EngineError::store(path, &error)),
    }
}

fn directory(root: &Path) -> Path {
    root.clone().join("manifest")
}

fn object_path(directory: &Path, number: u64, checkpoint: bool) -> Path {
    let kind = if checkpoint { "checkpoint" } else { "edit" };
    directory.clone().join(format!("{number:016}.{kind}"))
}

/// An object of the manifest.
struct Object {
    number: u64,
    checkpoint: bool,
}

/// All objects by number.
async fn list(store: &Arc<dyn ObjectStore>, directory: &Path) -> Result<Vec<Object>> {
    let listed: Vec<_> = store
        .list(Some(directory))
        .try_collect()
        .await
        .map_err(|error| EngineError::store(directory, &error))?;
    let mut objects = Vec::with_capacity(listed.len());
    for meta in listed {
        let name = meta.location.filename().unwrap_or_default();
        let parsed = name.split_once('.').and_then(|(number, kind)| {
            let checkpoint = match kind {
                "checkpoint" => true,
                "edit" => false,
                _ => return None,
            };
            Some(Object { number: number.parse().ok()?, checkpoint })
        });
        match parsed {
            Some(object) => objects.push(object),
            None => tracing::warn!(object = %meta.location, "not part of a manifest; left alone"),
        }
    }
    objects.sort_by_key(|object| object.number);
    Ok(objects)
}

fn encode(edit: &Edit, next_id: u64) -> Bytes {
    let message = EditMessage::from_edit(edit, next_id).encode_to_vec();
    let mut bytes = BytesMut::with_capacity(HEADER_BYTES + message.len());
    bytes.put_slice(MAGIC);
    bytes.put_u32_le(crc32c::crc32c(&message));
    bytes.put_slice(&message);
    bytes.freeze()
}

async fn write(store: &Arc<dyn ObjectStore>, path: &Path, edit: &Edit, next_id: u64) -> Result<()> {
    let put = store.put(path, encode(edit, next_id).into()).await;
    put.map(drop).map_err(|error| EngineError::store(path, &error))
}

async fn read(store: &Arc<dyn ObjectStore>, path: &Path) -> Result<(Edit, u64)> {
    let failed = |error| EngineError::store(path, &error);
    let bytes = store.get(path).await.map_err(failed)?.bytes().await.map_err(failed)?;
    parse(&bytes).map_err(|what| EngineError::Corrupted(format!("{path}: {what}")))
}

fn parse(bytes: &[u8]) -> std::result::Result<(Edit, u64), String> {
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

/// An edit on disk. Numbers of fields never change their meaning.
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
        }
    }

    fn into_meta(self) -> Result<FileMeta> {
        let span = |span: Option<SpanMessage>| span.map(|span| (span.first, span.last));
        let splits = self.splits.into_iter().map(Bound::decode_wire);
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
        })
    }
}
