//! Passes bytes from an encoder to the store: checksummed on the way and in parts, so that at most a few parts of a
//! file are in memory.

use std::io::{self, Write};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt, PutOptions};
use tokio::sync::mpsc;

use crate::error::{EngineError, Result};
use crate::file::store::Lazy;
use crate::sizes::BLOCK_BYTES;

/// Bytes of a part. (S3 requires at least 5 MiB for every part except the last.)
pub(crate) const PART_BYTES: usize = 8 * 1024 * 1024;
/// Maximum parts that wait between encoder and store.
const PARTS_WAITING: usize = 1;

/// Destination of an encoder.
pub(crate) struct Sink {
    parts: mpsc::Sender<Bytes>,
    /// True if the file may take several parts: each waits until the previous one has been taken.
    waits: bool,
    part: BytesMut,
    sums: Sums,
}

/// Running checksums.
#[derive(Default)]
struct Sums {
    length: u64,
    whole: u32,
    blocks: Vec<u32>,
    block: u32,
    block_bytes: usize,
    /// Offset and checksum of the tail, once it has begun.
    tail: Option<(u64, u32)>,
}

/// Size and checksums of a written file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    pub(crate) bytes: u64,
    pub(crate) checksum: u32,
    pub(crate) tail: u64,
    pub(crate) tail_checksum: u32,
}

impl Sums {
    fn add(&mut self, mut bytes: &[u8]) {
        self.length += bytes.len() as u64;
        self.whole = crc32c::crc32c_append(self.whole, bytes);
        if let Some((_, sum)) = &mut self.tail {
            *sum = crc32c::crc32c_append(*sum, bytes);
            return;
        }
        while !bytes.is_empty() {
            let (piece, rest) = bytes.split_at(bytes.len().min(BLOCK_BYTES - self.block_bytes));
            self.block = crc32c::crc32c_append(self.block, piece);
            self.block_bytes += piece.len();
            if self.block_bytes == BLOCK_BYTES {
                self.end_block();
            }
            bytes = rest;
        }
    }

    fn end_block(&mut self) {
        self.blocks.push(std::mem::take(&mut self.block));
        self.block_bytes = 0;
    }
}

impl Sink {
    /// Ends the part that is checked by blocks; the rest has one checksum. Returns the checksums of the blocks.
    pub(crate) fn begin_tail(&mut self) -> Vec<u32> {
        if self.sums.block_bytes > 0 {
            self.sums.end_block();
        }
        self.sums.tail = Some((self.sums.length, 0));
        std::mem::take(&mut self.sums.blocks)
    }

    /// Passes on the remaining bytes.
    pub(crate) fn finish(mut self) -> io::Result<Written> {
        self.send()?;
        let Sums { length, whole, tail, .. } = self.sums;
        let (tail, tail_checksum) = tail.unwrap_or((length, 0));
        Ok(Written { bytes: length, checksum: whole, tail, tail_checksum })
    }

    fn send(&mut self) -> io::Result<()> {
        let part = self.part.split().freeze();
        if self.waits {
            let result = self.parts.blocking_send(part);
            return result.map_err(|_| io::Error::other("the upload has ended"));
        }
        self.parts.try_send(part).map_err(|_| io::Error::other("the file takes a single part"))
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.sums.add(bytes);
        self.part.extend_from_slice(bytes);
        if self.waits && self.part.len() >= PART_BYTES {
            self.send()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes an object with the bytes that `encode` writes into the sink, on a blocking thread. The object exists
/// completely when this returns, and does not exist if it fails. With `lazy` it need not be durable ([`Lazy`]).
pub(crate) async fn write_object<T: Send + 'static>(
    store: &Arc<dyn ObjectStore>,
    path: &Path,
    lazy: bool,
    encode: impl FnOnce(Sink) -> Result<T> + Send + 'static,
) -> Result<T> {
    let (parts, mut received) = mpsc::channel(PARTS_WAITING);
    let sink = Sink { parts, waits: true, part: BytesMut::new(), sums: Sums::default() };
    let encoding = partita_proto::blocking::spawn(move || encode(sink));
    let mut upload: Option<Box<dyn MultipartUpload>> = None;
    let uploaded = upload_parts(store, path, &mut received, &mut upload).await;
    // If the store failed, the encoder finds the channel closed and ends.
    drop(received);
    let encoded = match encoding.await {
        Ok(encoded) => encoded,
        Err(error) => Err(EngineError::Internal(format!("encoding {path} ended: {error}"))),
    };
    let last = match (uploaded, encoded) {
        (Ok(last), Ok(value)) => Ok((last, value)),
        (Err(error), _) | (_, Err(error)) => Err(error),
    };
    let finished = match (last, &mut upload) {
        (Ok((None, value)), Some(upload)) => {
            upload.complete().await.map(|_| value).map_err(|error| EngineError::store(path, &error))
        }
        (Ok((last, value)), None) => {
            put(store, path, lazy, last.unwrap_or_default()).await.map(|()| value)
        }
        (Ok((Some(_), _)), Some(_)) => {
            Err(EngineError::Internal(format!("a part of {path} was not uploaded")))
        }
        (Err(error), _) => Err(error),
    };
    if finished.is_err()
        && let Some(upload) = &mut upload
        && let Err(error) = upload.abort().await
    {
        tracing::debug!(%path, %error, "a failed upload stays until the next start");
    }
    finished
}

/// As [`write_object`], for small objects put as one part: encoded on the current thread.
pub(crate) async fn write_small_object<T>(
    store: &Arc<dyn ObjectStore>,
    path: &Path,
    lazy: bool,
    encode: impl FnOnce(Sink) -> Result<T>,
) -> Result<T> {
    let (parts, mut received) = mpsc::channel(1);
    let value = encode(Sink { parts, waits: false, part: BytesMut::new(), sums: Sums::default() })?;
    put(store, path, lazy, received.try_recv().unwrap_or_default()).await.map(|()| value)
}

async fn put(store: &Arc<dyn ObjectStore>, path: &Path, lazy: bool, bytes: Bytes) -> Result<()> {
    let mut options = PutOptions::default();
    if lazy {
        options.extensions.insert(Lazy);
    }
    let put = store.put_opts(path, bytes.into(), options).await;
    put.map(drop).map_err(|error| EngineError::store(path, &error))
}

/// Uploads parts as they arrive. A single part is returned instead: it needs no multipart upload.
async fn upload_parts(
    store: &Arc<dyn ObjectStore>,
    path: &Path,
    received: &mut mpsc::Receiver<Bytes>,
    upload: &mut Option<Box<dyn MultipartUpload>>,
) -> Result<Option<Bytes>> {
    let failed = |error| EngineError::store(path, &error);
    let mut first = received.recv().await;
    let mut next = received.recv().await;
    while let Some(part) = next {
        if upload.is_none() {
            *upload = Some(store.put_multipart(path).await.map_err(failed)?);
        }
        if let Some(upload) = upload {
            if let Some(first) = first.take() {
                upload.put_part(first.into()).await.map_err(failed)?;
            }
            upload.put_part(part.into()).await.map_err(failed)?;
        }
        next = received.recv().await;
    }
    Ok(first)
}
