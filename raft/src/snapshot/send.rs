//! The leader's side: offers, reads, throttles, sends.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use openraft::errors::{NetworkError, ReplicationClosed, StreamingError, Timeout, Unreachable};
use openraft::network::RPCTypes;
use openraft::raft::SnapshotResponse;
use parking_lot::Mutex;
use partita_proto::wire::pb;
use partita_proto::wire::pb::raft_message::Body;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::machine::{Machine, Snapshot, SnapshotFile};
use crate::peer::{CallError, Lane, Peer, Route};
use crate::sense;
use crate::types::{RaftVoteType, Types};
use crate::wire;

/// Bytes of one chunk: few enough that calls behind it do not wait long.
const CHUNK_BYTES: u64 = 512 << 10;
/// Maximum concurrent transfers.
const TRANSFERS_MAX: usize = 2;
/// Maximum time that the receiver may take to accept a chunk, or to list what it has.
const CHUNK_WAIT: Duration = Duration::from_secs(20);
/// Maximum time that the receiver may take to install the state.
pub(crate) const INSTALL_WAIT: Duration = Duration::from_secs(300);
/// Burst allowed after a pause, as time at the full rate.
const BURST: Duration = Duration::from_millis(100);

/// State shared by all transfers from a node.
pub(crate) struct Outgoing {
    slots: Semaphore,
    throttle: Throttle,
    next_offer: AtomicU64,
}

impl Outgoing {
    pub(crate) fn new(bytes_per_second: u64) -> Self {
        Self {
            slots: Semaphore::new(TRANSFERS_MAX),
            throttle: Throttle::new(bytes_per_second, Instant::now()),
            next_offer: AtomicU64::new(1),
        }
    }
}

/// Spreads bytes over time.
struct Throttle {
    bytes_per_second: u64,
    /// Time at which all bytes admitted so far have been sent at the full rate.
    paid_until: Mutex<Instant>,
}

impl Throttle {
    fn new(bytes_per_second: u64, time: Instant) -> Self {
        Self { bytes_per_second: bytes_per_second.max(1), paid_until: Mutex::new(time) }
    }

    /// Admits `bytes`; returns the time at which they may be sent.
    fn admit(&self, bytes: u64, time: Instant) -> Instant {
        let mut paid_until = self.paid_until.lock();
        let start = (*paid_until).max(time - BURST);
        let micros = bytes.saturating_mul(1_000_000) / self.bytes_per_second;
        *paid_until = start + Duration::from_micros(micros);
        start
    }
}

/// Translates a failure for openraft, which tries again; from an unreachable peer it backs off first.
fn failed(error: CallError, route: Route) -> StreamingError<Types> {
    match error {
        CallError::Unreachable(_) | CallError::Refused(_) => Unreachable::from_string(error).into(),
        CallError::Broken(_) => NetworkError::from_string(error).into(),
        CallError::TimedOut(timeout) => {
            let (id, target) = (route.from.0, route.to.0);
            Timeout { action: RPCTypes::InstallSnapshot, id, target, timeout }.into()
        }
    }
}

/// Sends the machine's durable state, until it is complete or cancelled.
pub(crate) async fn send(
    outgoing: &Outgoing,
    peer: &Peer,
    route: Route,
    machine: &dyn Machine,
    vote: RaftVoteType,
    cancel: impl Future<Output = ReplicationClosed>,
) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
    tokio::select! {
        closed = cancel => Err(closed.into()),
        sent = transfer(outgoing, peer, route, machine, vote) => sent,
    }
}

async fn transfer(
    outgoing: &Outgoing,
    peer: &Peer,
    route: Route,
    machine: &dyn Machine,
    vote: RaftVoteType,
) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
    let local = |error: &dyn std::fmt::Display| -> StreamingError<Types> {
        tracing::warn!(group = %route.group, to = %route.to, %error, "cannot send a snapshot");
        Unreachable::from_string(error).into()
    };
    let _slot = outgoing.slots.acquire().await.map_err(|error| local(&error))?;
    // Pin the state and offer it; the receiver answers with the bytes that it has of each file.
    let snapshot = machine.snapshot().await.map_err(|error| local(&error))?;
    let offer = outgoing.next_offer.fetch_add(1, Ordering::Relaxed);
    let files = snapshot.files();
    let call = async |lane, body, wait| {
        peer.call(lane, route, body, wait).await.map_err(|error| failed(error, route))
    };
    let reply = call(Lane::Bulk, offered(offer, snapshot.as_ref(), &files), CHUNK_WAIT).await?;
    let Body::Wanted(progress) = reply else {
        return Err(local(&"the receiver did not list the bytes that it has"));
    };
    if progress.have.len() != files.len() {
        return Err(local(&"the receiver listed another number of files"));
    }
    // Send the rest of each file, at the rate that all transfers of the node share.
    let started = Instant::now();
    let mut sent_bytes = 0;
    for ((number, file), mut offset) in (0..).zip(&files).zip(progress.have) {
        while offset < file.bytes {
            let bytes = (file.bytes - offset).min(CHUNK_BYTES);
            tokio::time::sleep_until(outgoing.throttle.admit(bytes, Instant::now())).await;
            let chunk = read(offer, snapshot.as_ref(), number, offset, bytes).await;
            let chunk = Body::Chunk(chunk.map_err(|error| local(&error))?);
            call(Lane::Bulk, chunk, CHUNK_WAIT).await?;
            offset += bytes;
            sent_bytes += bytes;
        }
    }
    // Have the receiver install it; the answer is its vote.
    let end = Body::End(pb::RaftSnapshotEnd { offer, vote: Some(wire::vote_out(&vote)) });
    let reply = call(Lane::Bulk, end, INSTALL_WAIT).await?;
    sense::check(&reply, wire::vote_out(&vote).term).map_err(|error| local(&error))?;
    let follows = wire::voted_in(reply).map_err(|error| local(&error))?.vote;
    let (files, took) = (files.len(), started.elapsed());
    tracing::info!(group = %route.group, to = %route.to, files, sent_bytes, ?took, "snapshot sent");
    Ok(SnapshotResponse::new(follows))
}

fn offered(offer: u64, snapshot: &dyn Snapshot, files: &[SnapshotFile]) -> Body {
    let file =
        |file: &SnapshotFile| pb::RaftSnapshotFile { name: file.name.clone(), bytes: file.bytes };
    Body::Offer(pb::RaftSnapshotOffer {
        offer,
        mark: snapshot.mark().to_bytes(),
        state: snapshot.state(),
        files: files.iter().map(file).collect(),
    })
}

async fn read(
    offer: u64,
    snapshot: &dyn Snapshot,
    file: u32,
    offset: u64,
    bytes: u64,
) -> Result<pb::RaftSnapshotChunk, String> {
    let bytes = usize::try_from(bytes).map_err(|error| error.to_string())?;
    let data =
        snapshot.read(file as usize, offset, bytes).await.map_err(|error| error.to_string())?;
    if data.len() != bytes {
        return Err(format!("file {file} ends before its size: {} of {bytes} bytes", data.len()));
    }
    Ok(pb::RaftSnapshotChunk { offer, file, offset, checksum: crc32c::crc32c(&data), data })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_spread_over_time_but_a_pause_is_not_made_up_for() {
        let begun = Instant::now();
        let throttle = Throttle::new(1_000_000, begun);
        let after = |bytes, now| throttle.admit(bytes, now).saturating_duration_since(begun);
        assert_eq!(after(500_000, begun), Duration::ZERO);
        assert_eq!(after(500_000, begun), Duration::from_millis(500));
        assert_eq!(after(500_000, begun), Duration::from_millis(1000));
        let later = begun + Duration::from_secs(60);
        assert!(after(500_000, later) <= Duration::from_secs(60));
        assert!(after(500_000, later) > Duration::from_secs(60));
    }
}
