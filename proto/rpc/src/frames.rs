//! Converts a scan's rows to frames, and frames to rows.
//!
//! Neither side runs ahead: the next batch is requested from the scan when HTTP/2 has room for it, and a frame is read
//! when the caller polls for rows. In flight are one batch and the stream's window.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use arrow::record_batch::RecordBatch;
use futures::{FutureExt, Stream, StreamExt};
use partita_proto::Error;
use partita_proto::service::{RowStream, ScanStats};
use partita_proto::size::batch_bytes;
use partita_proto::wire::{ipc, pb};
use tokio_util::task::AbortOnDropHandle;
use tonic::{Status, Streaming};

use crate::parked::Waiting;
use crate::status::{Peer, from_status, to_status};

/// Bytes above which a batch is cut: half of a stream's window, so that the next piece is made while one is read.
const FRAME_BYTES: usize = 1 << 20;

/// The frames of one of a scan's streams. The last one carries the final counters.
pub(crate) struct Frames {
    header: Option<pb::ScanHeader>,
    waiting: Option<Waiting>,
    rows: Option<RowStream>,
    cut: VecDeque<RecordBatch>,
    stats: Arc<ScanStats>,
}

impl Frames {
    /// Frames of the stream that answers the scan. A scan without streams has none.
    pub(crate) fn first(
        header: pb::ScanHeader,
        waiting: Waiting,
        rows: Option<RowStream>,
        stats: Arc<ScanStats>,
    ) -> Self {
        let (header, waiting) = (Some(header), Some(waiting));
        Self { header, waiting, rows, cut: VecDeque::new(), stats }
    }

    /// Frames of a stream that is fetched.
    pub(crate) fn other(rows: RowStream, stats: Arc<ScanStats>) -> Self {
        Self { header: None, waiting: None, rows: Some(rows), cut: VecDeque::new(), stats }
    }

    /// Ends the stream, after success or an error; the scan's other streams can still be fetched.
    fn end(&mut self) {
        self.rows = None;
        if let Some(waiting) = &mut self.waiting {
            waiting.leave();
        }
    }

    fn frame(&self, batch: &RecordBatch) -> Result<pb::ScanFrame, Status> {
        let rows = ipc::encode(std::slice::from_ref(batch)).map_err(to_status)?;
        Ok(pb::ScanFrame { header: None, rows, stats: Some(self.stats.to_wire()) })
    }
}

impl Stream for Frames {
    type Item = Result<pb::ScanFrame, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(header) = self.header.take() {
            let frame = pb::ScanFrame { header: Some(header), ..pb::ScanFrame::default() };
            return Poll::Ready(Some(Ok(frame)));
        }
        loop {
            if let Some(batch) = self.cut.pop_front() {
                return Poll::Ready(Some(self.frame(&batch)));
            }
            let Some(rows) = &mut self.rows else {
                return Poll::Ready(None);
            };
            match ready!(rows.poll_next_unpin(cx)) {
                Some(Ok(batch)) => cut(batch, FRAME_BYTES, &mut self.cut),
                Some(Err(error)) => {
                    self.end();
                    return Poll::Ready(Some(Err(to_status(error))));
                }
                None => {
                    // Counters are final when the stream is dropped.
                    self.end();
                    let stats = Some(self.stats.to_wire());
                    let frame = pb::ScanFrame { stats, ..pb::ScanFrame::default() };
                    return Poll::Ready(Some(Ok(frame)));
                }
            }
        }
    }
}

/// Cuts a batch into pieces of at most `bytes_max` bytes, unless a piece is one row.
pub(crate) fn cut(batch: RecordBatch, bytes_max: usize, pieces: &mut VecDeque<RecordBatch>) {
    let rows = batch.num_rows();
    if rows == 0 {
        return;
    }
    if rows == 1 || batch_bytes(&batch) <= bytes_max {
        pieces.push_back(batch);
        return;
    }
    let half = rows / 2;
    cut(batch.slice(0, half), bytes_max, pieces);
    cut(batch.slice(half, rows - half), bytes_max, pieces);
}

/// Source of frames.
pub(crate) enum Source {
    /// Requested, not answered yet.
    Asked(AbortOnDropHandle<Result<Streaming<pb::ScanFrame>, Status>>),
    /// Answered.
    Open(Box<Streaming<pb::ScanFrame>>),
    /// The stream has ended.
    Ended,
}

/// The rows of one of a scan's streams, decoded from its frames.
pub(crate) struct Rows {
    source: Source,
    batches: VecDeque<RecordBatch>,
    stats: Arc<ScanStats>,
    peer: Arc<Peer>,
}

impl Rows {
    pub(crate) fn new(source: Source, stats: Arc<ScanStats>, peer: Arc<Peer>) -> Self {
        Self { source, batches: VecDeque::new(), stats, peer }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<pb::ScanFrame, Error>>> {
        loop {
            let answered = match &mut self.source {
                Source::Ended => return Poll::Ready(None),
                Source::Open(frames) => {
                    let frame = ready!(frames.poll_next_unpin(cx));
                    return Poll::Ready(
                        frame.map(|frame| frame.map_err(|status| from_status(&self.peer, status))),
                    );
                }
                Source::Asked(task) => ready!(task.poll_unpin(cx)),
            };
            self.source = match answered {
                Ok(Ok(frames)) => Source::Open(Box::new(frames)),
                Ok(Err(status)) => {
                    return Poll::Ready(Some(Err(from_status(&self.peer, status))));
                }
                Err(error) => {
                    let error = Error::Internal(format!("a scan's stream was lost: {error}"));
                    return Poll::Ready(Some(Err(error)));
                }
            };
        }
    }

    fn absorb(&mut self, frame: pb::ScanFrame) -> Result<(), Error> {
        if let Some(stats) = &frame.stats {
            self.stats.merge_wire(stats);
        }
        if !frame.rows.is_empty() {
            self.batches.extend(ipc::decode(frame.rows)?);
        }
        Ok(())
    }
}

impl Stream for Rows {
    type Item = Result<RecordBatch, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(batch) = self.batches.pop_front() {
                return Poll::Ready(Some(Ok(batch)));
            }
            let result = match ready!(self.poll_frame(cx)) {
                Some(frame) => frame.and_then(|frame| self.absorb(frame)),
                None => {
                    self.source = Source::Ended;
                    return Poll::Ready(None);
                }
            };
            if let Err(error) = result {
                // Nothing follows an error; this also stops the other side.
                self.source = Source::Ended;
                return Poll::Ready(Some(Err(error)));
            }
        }
    }
}
