//! The frames sent to one watcher of meta.
//!
//! Nothing is queued for it: once it has read the frames sent so far, it gets the difference to the present state. So a
//! slow watcher skips steps, and costs the memory of one change at most.
//!
//! Only a meta that leads serves it, because a follower's catalog may be stale.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use partita_proto::Error;
use partita_proto::catalog::Catalog;
use partita_proto::id::{NodeId, PartitionId};
use partita_proto::member::{Member, Members};
use partita_proto::service::ClusterService;
use partita_proto::wire::{Wire, parts_between, pb, public_parts_between};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Interval at which members are sent when only their sizes change.
const MEMBERS_INTERVAL: Duration = Duration::from_millis(200);

/// State of one watcher.
pub(crate) struct Watcher {
    catalogs: watch::Receiver<Arc<Catalog>>,
    members: watch::Receiver<Arc<Members>>,
    leads: watch::Receiver<bool>,
    stop: CancellationToken,
    /// The version of the watcher's catalog when it connected.
    version: u64,
    /// True if the watcher also gets roles, grants and tokens.
    access: bool,
    /// The watcher's catalog once it has read `parts`.
    sent: Option<Arc<Catalog>>,
    parts: VecDeque<pb::CatalogPart>,
    /// Members that the watcher was sent last, and the time.
    last_sent: Option<(Arc<Members>, Instant)>,
}

impl Watcher {
    /// The watcher that sent a request.
    pub(crate) fn new(
        service: &dyn ClusterService,
        request: pb::WatchRequest,
        stop: CancellationToken,
    ) -> Self {
        Self {
            catalogs: service.catalog(),
            members: service.members(),
            leads: service.leads(),
            stop,
            version: request.version,
            access: request.access,
            sent: None,
            parts: VecDeque::new(),
            last_sent: None,
        }
    }

    /// The next frame, once there is one.
    ///
    /// # Errors
    /// [`Error::NotLeader`] when this meta does not lead (any more), [`Error::Unavailable`] when it stops.
    pub(crate) async fn next(&mut self) -> Result<pb::WatchFrame, Error> {
        loop {
            self.check_leads()?;
            if let Some(part) = self.parts.pop_front() {
                return Ok(frame(pb::watch_frame::Kind::Catalog(part)));
            }
            let time = Instant::now();
            let members = Arc::clone(&self.members.borrow_and_update());
            let due = due(self.last_sent.as_ref(), &members, time);
            if due.is_some_and(|due| due <= time) {
                let message = members.to_wire();
                self.last_sent = Some((members, time));
                return Ok(frame(pb::watch_frame::Kind::Members(message)));
            }
            let catalog = Arc::clone(&self.catalogs.borrow_and_update());
            if self.sent.is_none() && catalog.version == self.version {
                self.sent = Some(Arc::clone(&catalog));
            }
            // Version 0 is the state before anything is known.
            if catalog.version > 0
                && self.sent.as_ref().is_none_or(|previous| previous.version != catalog.version)
            {
                self.parts = difference(self.sent.take(), &catalog, self.access).await?;
                self.sent = Some(catalog);
                continue;
            }
            self.wait(due).await?;
        }
    }

    fn check_leads(&self) -> Result<(), Error> {
        if *self.leads.borrow() {
            Ok(())
        } else {
            Err(Error::NotLeader { partition: PartitionId(0), leader: None })
        }
    }

    /// Waits until there may be something to send.
    async fn wait(&mut self, due: Option<Instant>) -> Result<(), Error> {
        let late = async {
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        let changed = tokio::select! {
            changed = self.catalogs.changed() => changed,
            changed = self.members.changed() => changed,
            changed = self.leads.changed() => changed,
            () = late => return Ok(()),
            () = self.stop.cancelled() => {
                return Err(Error::Unavailable("meta is stopping".to_owned()));
            }
        };
        changed.map_err(|_| Error::Unavailable("meta has stopped".to_owned()))
    }
}

fn frame(kind: pb::watch_frame::Kind) -> pb::WatchFrame {
    pb::WatchFrame { kind: Some(kind) }
}

/// The parts that turn one catalog into another. Computed on a blocking thread: all of ten thousand tables take a tenth
/// of a second.
async fn difference(
    previous: Option<Arc<Catalog>>,
    current: &Arc<Catalog>,
    access: bool,
) -> Result<VecDeque<pb::CatalogPart>, Error> {
    let current = Arc::clone(current);
    let encode = if access { parts_between } else { public_parts_between };
    tokio::task::spawn_blocking(move || encode(previous.as_deref(), &current).into())
        .await
        .map_err(|error| Error::Internal(format!("the catalog was not encoded: {error}")))
}

/// Time at which members are to be sent to a watcher that was `last_sent` these. `None`: not until they change.
pub(crate) fn due(
    last_sent: Option<&(Arc<Members>, Instant)>,
    members: &Arc<Members>,
    time: Instant,
) -> Option<Instant> {
    let Some((previous, sent_at)) = last_sent else { return Some(time) };
    if Arc::ptr_eq(previous, members) || previous == members {
        None
    } else if previous.iter().map(essence).eq(members.iter().map(essence)) {
        Some(*sent_at + MEMBERS_INTERVAL)
    } else {
        Some(time)
    }
}

/// The part of a member whose change is sent at once.
fn essence<'a>((node, member): (&'a NodeId, &'a Member)) -> (NodeId, &'a str, bool, bool) {
    (*node, &member.address, member.live, member.draining)
}
