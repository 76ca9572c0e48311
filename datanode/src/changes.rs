//! A replica's part in materialized copies: it begins and ends captures, gives the rows and the changes for a copy, and
//! notes how far these are shipped.
//!
//! Invariants:
//! - rows and changes are given by a leader that has applied every acknowledged write;
//! - the rows for a copy are those of all entries up to an index, and the changes after this index are all others;
//! - a report that a copy has changes is used at once, and put into the log before the files pass the changes, if
//!   possible: if it is lost, the changes are shipped again, or the copy is filled anew;
//! - the report that a copy has the rows is in the log before it is answered: it is never lost, so that the changes up to
//!   their index, which the rows include, are not shipped by a later leader.

use std::time::Duration;

use partita_engine::Scan;
use partita_proto::domain::Domains;
use partita_proto::error::Error;
use partita_proto::id::{Epoch, TableId};
use partita_proto::materialized::{Capture, CaptureOrder, Changes, ChangesRequest};
use partita_proto::service::{ScanReply, ScanRequest};
use partita_proto::wire::Command;
use tracing::debug;

use crate::capture::{CaptureState, Gap};
use crate::group_error;
use crate::machine::no_capture;
use crate::replica::Replica;
use crate::reply::Outcome;

/// Maximum time that a flush, or a change of the leader, waits until the log has a report.
const RECORD_WAIT: Duration = Duration::from_secs(1);

impl Replica {
    /// Changes the capture for a copy. Returns the index of the change; for a beginning that of the entry with which the
    /// capture began, or 0 if it was inherited from the partition's parent; for a report the index that it tells.
    pub(crate) async fn capture(&self, epoch: Epoch, order: CaptureOrder) -> Result<u64, Error> {
        if let Capture::Shipped(shipped) = order.capture
            && !self.note_shipped(order.copy, shipped).await?
        {
            return Ok(shipped);
        }
        self.check_epoch(epoch, self.partition().config().epoch)?;
        self.check_files()?;
        self.check_free()?;
        let applied = self.group.propose(Command::Copy(order).encode()).await;
        let applied = applied.map_err(|error| group_error(&self.group, error))?;
        match Outcome::decode(&applied.reply)? {
            Outcome::At(indexes) => Ok(match order.capture {
                Capture::Shipped(shipped) => shipped,
                Capture::Begin
                | Capture::Sync
                | Capture::Close
                | Capture::End
                | Capture::Reopen
                | Capture::Detach => indexes.first().copied().flatten().unwrap_or_default(),
            }),
            Outcome::Absent => Err(no_capture(order.copy)),
            outcome => Err(outcome.refused(self.id(), epoch)),
        }
    }

    /// Notes that a copy has all changes up to an index. The log gets it later; returns true if it must get it now.
    async fn note_shipped(&self, copy: TableId, shipped: u64) -> Result<bool, Error> {
        if !self.leads() || self.machine.report(copy, shipped).is_err() {
            // A new leader may not have applied the whole log yet.
            self.read_barrier().await?;
            self.machine.report(copy, shipped)?;
        }
        let requests = self.machine.requests.lock();
        Ok(requests.captures().get(copy).is_some_and(CaptureState::awaits_rows))
    }

    /// The changes for a copy after an index, without those that it has already.
    pub(crate) async fn changes(&self, request: &ChangesRequest) -> Result<Changes, Error> {
        self.read_barrier().await?;
        let requests = self.machine.requests.lock();
        self.check_epoch(request.epoch, self.partition().config().epoch)?;
        let copy = request.copy;
        let capture = requests.captures().get(copy).ok_or_else(|| no_capture(copy))?;
        let start = request.after.max(capture.floor());
        let piece = self.machine.tail.lock().after(start, request.bytes_max);
        let piece = piece.map_err(|Gap| Error::Gap { partition: self.id() })?;
        Ok(Changes {
            // Entries without changes are covered too.
            to: piece.cut.unwrap_or_else(|| self.partition().applied().max(start)),
            last: requests.last_change(),
            shipped: capture.shipped(),
            sync: capture.sync,
            after: capture.parent(),
            entries: piece.entries,
        })
    }

    /// All rows for a copy whose capture has begun, with the index up to which they include all changes. Only the
    /// partition and the epoch of the request count.
    pub(crate) async fn fill(
        &self,
        copy: TableId,
        request: &ScanRequest,
    ) -> Result<(u64, ScanReply), Error> {
        self.give_way_if_damaged().await?;
        self.read_barrier().await?;
        // No entry is applied, and no other state installed, between the index and the rows.
        let (index, source) = {
            let requests = self.machine.requests.lock();
            self.check_epoch(request.epoch, self.partition().config().epoch)?;
            let capture = requests.captures().get(copy).ok_or_else(|| no_capture(copy))?;
            if !requests.may_fill(copy) {
                return Err(Error::Gap { partition: self.id() });
            }
            (requests.last_change().max(capture.begin), self.partition().pinned_scan())
        };
        self.check_free()?;
        let scanned = source.scan(Scan {
            // The sender may not know the newest columns yet.
            columns: source.config().schema.storage(),
            domains: Domains::default(),
            limit: None,
            parallelism: 1,
            range: None,
            newest_only: false,
            probes: Vec::new(),
            first_by_time: None,
            order: None,
            uncollected: false,
        });
        let scanned = scanned.map_err(|error| self.scan_error(error))?;
        Ok((index, self.reply(scanned)))
    }

    /// True if the log lacks reports that matter after a restart, and this replica leads.
    pub(crate) fn has_reports(&self) -> bool {
        self.leads() && !self.unrecorded().is_empty()
    }

    /// Puts the reports that copies have changes into the log, if this replica leads. Does without it if the log takes
    /// nothing.
    pub(crate) async fn record_reports(&self) {
        if !self.leads() {
            return;
        }
        for order in self.unrecorded() {
            let recorded = self.propose(Command::Copy(order));
            match tokio::time::timeout(RECORD_WAIT, recorded).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    debug!(partition = %self.id(), %error, "a report of a copy is not in the log yet");
                    return;
                }
                Err(_) => return,
            }
        }
    }

    fn unrecorded(&self) -> Vec<CaptureOrder> {
        let requests = self.machine.requests.lock();
        requests.captures().unrecorded(requests.last_change())
    }
}
