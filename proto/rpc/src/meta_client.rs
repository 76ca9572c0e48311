//! Client of the remote meta service.
//!
//! ```text
//!   follow ─▶ one address after another ─▶ the one that leads ─▶ catalog, members, until it ends
//!   ask    ─▶ the followed one, or one after another ─▶ its answer
//! ```
//!
//! Invariants:
//! - the catalog never goes back, regardless of the meta that sends it; without a leader the last one stays;
//! - a change keeps one identity in all attempts, and is repeated only when its outcome is unknown;
//! - when a change has returned, the catalog includes it;
//! - a heartbeat or a report of causes goes to all members, so that followers know the load, too; only the leader's
//!   answer counts, and the others are not awaited.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::join_all;
use partita_proto::Error;
use partita_proto::blame::BlameReport;
use partita_proto::catalog::Catalog;
use partita_proto::generation::{Renewal, Renewed};
use partita_proto::id::{NodeId, TableId};
use partita_proto::load::{HeatmapRequest, LoadReport, LoadRequest};
use partita_proto::materialized::CopyState;
use partita_proto::member::{Heartbeat, Members, MetaMember, MetaStanding, Registration};
use partita_proto::service::{AdminOrder, Changed, ClusterService, Ddl, MetaService, RequestId};
use partita_proto::wire::pb::meta_client::MetaClient as Generated;
use partita_proto::wire::{Follower, Wire, pb};
use partita_tls::{Links, Role};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::transport::Channel;
use tonic::{Response, Status, Streaming};

use crate::MESSAGE_BYTES_MAX;
use crate::channel::channel;
use crate::status::{Peer, from_status};

/// Maximum time of a change. Meta gives up within a minute.
const CHANGE_WAIT: Duration = Duration::from_secs(75);
/// Maximum time of a registration or an order.
const ORDER_WAIT: Duration = Duration::from_secs(30);
/// Maximum time to send a heartbeat; the next one is more current.
const HEARTBEAT_WAIT: Duration = Duration::from_secs(3);
/// Maximum time of a request for load, or for the states of copies.
const LOAD_WAIT: Duration = Duration::from_secs(5);
/// Maximum time for one meta to answer requests that are answered at once.
const ANSWER_WAIT: Duration = Duration::from_secs(2);
/// Minimum and maximum pause before the next address is tried.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Client of the leading member of meta.
pub struct MetaClient {
    shared: Arc<Shared>,
    /// Ends the watch when the client is dropped.
    _stop: DropGuard,
}

struct Shared {
    links: Vec<Link>,
    catalog: watch::Sender<Arc<Catalog>>,
    members: watch::Sender<Arc<Members>>,
    /// The link whose meta is watched: the leader.
    followed: watch::Sender<Option<usize>>,
    /// True while a leader is followed.
    leads: watch::Sender<bool>,
    /// The link that answered last.
    answered: AtomicUsize,
    client: u64,
    sequence: AtomicU64,
    /// True if the catalog is to have roles, grants and tokens.
    access: bool,
}

/// One member of meta.
struct Link {
    peer: Peer,
    client: Generated<Channel>,
    /// Held while a heartbeat or a report to a follower is in flight.
    overhears: Arc<Semaphore>,
}

impl MetaClient {
    /// A client of the metas at these addresses, each `host:port`. It watches until the stop or until it is dropped.
    /// Must be called in a tokio runtime.
    #[must_use]
    pub fn connect(links: &Links, addresses: Vec<String>, stop: CancellationToken) -> Arc<Self> {
        Self::start(links, addresses, true, stop)
    }

    /// As [`MetaClient::connect`], for a process that checks no rights: its catalog has no roles, grants and tokens.
    #[must_use]
    pub fn connect_without_access(
        links: &Links,
        addresses: Vec<String>,
        stop: CancellationToken,
    ) -> Arc<Self> {
        Self::start(links, addresses, false, stop)
    }

    fn start(
        links: &Links,
        addresses: Vec<String>,
        access: bool,
        stop: CancellationToken,
    ) -> Arc<Self> {
        let link = |address: String| Link {
            client: Generated::new(channel(links, Role::Meta, &address))
                .max_decoding_message_size(MESSAGE_BYTES_MAX)
                .max_encoding_message_size(MESSAGE_BYTES_MAX),
            peer: Peer { node: None, address },
            overhears: Arc::new(Semaphore::new(1)),
        };
        let shared = Arc::new(Shared {
            links: addresses.into_iter().map(link).collect(),
            catalog: watch::Sender::default(),
            members: watch::Sender::default(),
            followed: watch::Sender::default(),
            leads: watch::Sender::default(),
            answered: AtomicUsize::new(0),
            client: crate::random(),
            sequence: AtomicU64::new(1),
            access,
        });
        let stop = stop.child_token();
        tokio::spawn(Arc::clone(&shared).follow(stop.clone()));
        Arc::new(Self { shared, _stop: stop.drop_guard() })
    }

    /// Waits for the first catalog.
    pub async fn ready(&self) {
        let mut catalog = self.shared.catalog.subscribe();
        // Cannot fail: the sender is in this client.
        drop(catalog.wait_for(|catalog| catalog.version > 0).await);
    }
}

#[async_trait]
impl MetaService for MetaClient {
    fn catalog(&self) -> watch::Receiver<Arc<Catalog>> {
        self.shared.catalog.subscribe()
    }

    async fn change(&self, ddl: Ddl) -> Result<bool, Error> {
        let sequence = self.shared.sequence.fetch_add(1, Ordering::Relaxed);
        let id = RequestId { client: self.shared.client, sequence };
        self.change_once(id, ddl).await.map(|changed| changed.changed)
    }

    fn members(&self) -> watch::Receiver<Arc<Members>> {
        self.shared.members.subscribe()
    }

    async fn metas(&self) -> Vec<MetaMember> {
        let ask = |link: &Link| {
            let (mut meta, address) = (link.client.clone(), link.peer.address.clone());
            async move {
                let response = timeout(ANSWER_WAIT, meta.standing(pb::StandingRequest {})).await;
                let message = response.ok().and_then(Result::ok).map(Response::into_inner);
                let standing = message.and_then(|message| MetaStanding::from_wire(message).ok());
                MetaMember { address, standing }
            }
        };
        join_all(self.shared.links.iter().map(ask)).await
    }

    async fn administer(&self, order: AdminOrder) -> Result<(), Error> {
        let deadline = Instant::now() + ORDER_WAIT;
        let order = order.to_wire();
        let ask = |mut meta: Generated<Channel>| {
            let order = order.clone();
            async move { meta.administer(order).await }
        };
        self.shared.ask(deadline, ORDER_WAIT, ask).await.map(drop)
    }

    async fn load(&self, request: LoadRequest) -> Result<LoadReport, Error> {
        let deadline = Instant::now() + LOAD_WAIT;
        let message = request.to_wire();
        let ask = |mut meta: Generated<Channel>| async move { meta.load(message).await };
        LoadReport::from_wire(self.shared.ask(deadline, ANSWER_WAIT, ask).await?)
    }

    async fn heatmap(&self, request: HeatmapRequest) -> Result<Bytes, Error> {
        let deadline = Instant::now() + LOAD_WAIT;
        let message = request.to_wire();
        let ask = |mut meta: Generated<Channel>| {
            let message = message.clone();
            async move { meta.picture(message).await }
        };
        Ok(self.shared.ask(deadline, LOAD_WAIT, ask).await?.json)
    }

    async fn confirm(&self, copies: Vec<TableId>) -> Result<Vec<Option<CopyState>>, Error> {
        let deadline = Instant::now() + LOAD_WAIT;
        let copies: Vec<u32> = copies.into_iter().map(|copy| copy.0).collect();
        let count = copies.len();
        let ask = |mut meta: Generated<Channel>| {
            let copies = copies.clone();
            async move { meta.confirm(pb::ConfirmRequest { copies }).await }
        };
        let states = self.shared.ask(deadline, ANSWER_WAIT, ask).await?.states;
        if states.len() != count {
            return Err(Error::Corrupted(format!(
                "meta confirmed {} states of {count} copies",
                states.len()
            )));
        }
        let known = |state: u32| (state != 0).then(|| CopyState::from_wire(state)).transpose();
        states.into_iter().map(known).collect()
    }

    async fn blame(&self, report: BlameReport) -> Result<(), Error> {
        let deadline = Instant::now() + HEARTBEAT_WAIT;
        let message = report.to_wire();
        self.shared.let_overhear(|mut meta| {
            let message = message.clone();
            async move { meta.blame(message).await }
        });
        let ask = |mut meta: Generated<Channel>| {
            let message = message.clone();
            async move { meta.blame(message).await }
        };
        self.shared.ask(deadline, ANSWER_WAIT, ask).await.map(drop)
    }
}

#[async_trait]
impl ClusterService for MetaClient {
    /// Watches whether a leader is followed.
    fn leads(&self) -> watch::Receiver<bool> {
        self.shared.leads.subscribe()
    }

    fn standing(&self) -> Result<MetaStanding, Error> {
        Err(Error::Unsupported("a client is no member of meta's group".to_owned()))
    }

    async fn change_once(&self, id: RequestId, ddl: Ddl) -> Result<Changed, Error> {
        let deadline = Instant::now() + CHANGE_WAIT;
        let request = pb::ChangeRequest { id: Some(id.to_wire()), ddl: Some(ddl.to_wire()) };
        let ask = |mut meta: Generated<Channel>| {
            let request = request.clone();
            async move { meta.change(request).await }
        };
        let reply = self.shared.ask(deadline, CHANGE_WAIT, ask).await?;
        let mut catalog = self.shared.catalog.subscribe();
        let published = catalog.wait_for(|catalog| catalog.version >= reply.version);
        match timeout_at(deadline, published).await {
            Ok(_) => Ok(Changed { changed: reply.changed, version: reply.version }),
            Err(_) => Err(Error::Timeout(format!(
                "the change was made, but version {} of the catalog did not arrive in time",
                reply.version
            ))),
        }
    }

    async fn register(&self, registration: Registration) -> Result<NodeId, Error> {
        let deadline = Instant::now() + ORDER_WAIT;
        let message = registration.to_wire();
        let ask = |mut meta: Generated<Channel>| {
            let message = message.clone();
            async move { meta.register(message).await }
        };
        let reply = self.shared.ask(deadline, ANSWER_WAIT, ask).await?;
        Ok(NodeId(reply.node))
    }

    async fn renew(&self, renewal: Renewal) -> Result<Renewed, Error> {
        let deadline = Instant::now() + ORDER_WAIT;
        let message = renewal.to_wire();
        let ask = |mut meta: Generated<Channel>| {
            let message = message.clone();
            async move { meta.renew(message).await }
        };
        Renewed::from_wire(self.shared.ask(deadline, ANSWER_WAIT, ask).await?)
    }

    async fn heartbeat(&self, heartbeat: Heartbeat) -> Result<(), Error> {
        let deadline = Instant::now() + HEARTBEAT_WAIT;
        let message = heartbeat.to_wire();
        self.shared.let_overhear(|mut meta| {
            let message = message.clone();
            async move { meta.beat(message).await }
        });
        let ask = |mut meta: Generated<Channel>| {
            let message = message.clone();
            async move { meta.beat(message).await }
        };
        self.shared.ask(deadline, ANSWER_WAIT, ask).await.map(drop)
    }
}

impl Shared {
    /// Sends a request to the leader, until there is a definite answer or the deadline has passed. One attempt may take
    /// `patience`.
    async fn ask<R, F: Future<Output = Result<Response<R>, Status>>>(
        &self,
        deadline: Instant,
        patience: Duration,
        request: impl Fn(Generated<Channel>) -> F,
    ) -> Result<R, Error> {
        let mut next = self.answered.load(Ordering::Relaxed);
        let mut failed = None;
        let mut unknown = false;
        for attempt in 0.. {
            // Prefer the meta that is followed, unless it has just failed; otherwise go around.
            let followed = *self.followed.borrow();
            let index = followed.filter(|_| followed != failed).unwrap_or(next);
            let link = self.link(index)?;
            let attempt_deadline = deadline.min(Instant::now() + patience);
            let error =
                match self.attempt(index, attempt_deadline, request(link.client.clone())).await {
                    Ok(reply) => {
                        self.answered.store(index, Ordering::Relaxed);
                        return Ok(reply.into_inner());
                    }
                    Err(error) if !is_passing(&error) => return Err(error),
                    Err(error) => error,
                };
            // Only "not leader" is sure to have had no effect.
            unknown |= !matches!(error, Error::NotLeader { .. });
            failed = Some(index);
            next = (index + 1) % self.links.len();
            let pause = pause(attempt / self.links.len(), crate::random());
            if Instant::now() + pause >= deadline {
                return Err(if unknown {
                    Error::Timeout(format!("no answer from meta; the last failure: {error}"))
                } else {
                    Error::Unavailable("no meta leads".to_owned())
                });
            }
            tokio::time::sleep(pause).await;
        }
        Err(Error::Internal("attempts ran out".to_owned()))
    }

    /// Sends a request to one meta. Ends early when another one becomes the leader.
    async fn attempt<R>(
        &self,
        index: usize,
        deadline: Instant,
        answer: impl Future<Output = Result<Response<R>, Status>>,
    ) -> Result<Response<R>, Error> {
        let peer = &self.link(index)?.peer;
        let mut followed = self.followed.subscribe();
        let moved = async {
            // Only changes from now on count: the present leader was chosen, or failed before.
            while followed.changed().await.is_ok() {
                if followed.borrow_and_update().is_some_and(|followed| followed != index) {
                    return;
                }
            }
            std::future::pending().await
        };
        tokio::select! {
            answer = timeout_at(deadline, answer) => match answer {
                Ok(answer) => answer.map_err(|status| from_status(peer, status)),
                Err(_) => Err(Error::Timeout(format!("{peer} did not answer"))),
            },
            () = moved => Err(Error::Unavailable(format!("{peer} does not lead any more"))),
        }
    }

    /// Sends a heartbeat or a report of causes to all members except the leader, if it is known.
    fn let_overhear<F>(&self, tell: impl Fn(Generated<Channel>) -> F)
    where
        F: Future<Output = Result<Response<pb::Done>, Status>> + Send + 'static,
    {
        let Some(leads) = *self.followed.borrow() else { return };
        for (_, link) in self.links.iter().enumerate().filter(|(index, _)| *index != leads) {
            // A member that takes longer than the interval of beats misses some.
            let Ok(turn) = Arc::clone(&link.overhears).try_acquire_owned() else { continue };
            let answer = tell(link.client.clone());
            tokio::spawn(async move {
                // The expected answer is that it does not lead.
                drop(timeout(ANSWER_WAIT, answer).await);
                drop(turn);
            });
        }
    }

    fn link(&self, index: usize) -> Result<&Link, Error> {
        let unknown = || Error::Unavailable("no address of meta is known".to_owned());
        self.links.get(index).ok_or_else(unknown)
    }

    /// Watches the leading meta, until the stop.
    async fn follow(self: Arc<Self>, stop: CancellationToken) {
        let mut following = pin!(self.follow_forever());
        tokio::select! {
            () = &mut following => {}
            () = stop.cancelled() => {}
        }
    }

    async fn follow_forever(&self) {
        let mut index = 0;
        let mut failures = 0;
        while let Ok(link) = self.link(index) {
            let error = match Box::pin(self.watch(link, index)).await {
                Ok(never) => match never {},
                Err(error) => error,
            };
            if self.followed.send_replace(None).is_some() {
                self.leads.send_replace(false);
                failures = 0;
                tracing::info!(meta = %link.peer, %error, "no longer following meta");
            } else if is_passing(&error) {
                tracing::debug!(meta = %link.peer, %error, "cannot follow meta");
            } else {
                tracing::warn!(meta = %link.peer, %error, "cannot follow meta");
            }
            tokio::time::sleep(pause(failures / self.links.len(), crate::random())).await;
            failures += 1;
            index = (index + 1) % self.links.len();
        }
        tracing::warn!("no address of meta is known");
    }

    /// Watches one meta for as long as it leads.
    async fn watch(&self, link: &Link, index: usize) -> Result<std::convert::Infallible, Error> {
        let failed = |status| from_status(&link.peer, status);
        let current = Arc::clone(&self.catalog.borrow());
        let mut meta = link.client.clone();
        let first = async {
            let request = pb::WatchRequest { version: current.version, access: self.access };
            let frames = meta.watch(request).await;
            let mut frames = frames.map_err(failed)?.into_inner();
            let first = self.frame(&mut frames, &link.peer).await?;
            Ok::<_, Error>((frames, first))
        };
        let silent = |_| Error::Timeout(format!("{} does not answer", link.peer));
        let (mut frames, mut frame) = timeout(ANSWER_WAIT, first).await.map_err(silent)??;
        self.answered.store(index, Ordering::Relaxed);
        self.followed.send_replace(Some(index));
        self.leads.send_replace(true);
        tracing::info!(meta = %link.peer, "following meta");
        let mut follower = Follower::of(&current);
        drop(current);
        let mut back = false;
        loop {
            match frame.kind {
                Some(pb::watch_frame::Kind::Catalog(part)) => {
                    if let Some(catalog) = follower.take(part)? {
                        self.publish(catalog, &link.peer, &mut back);
                    }
                }
                Some(pb::watch_frame::Kind::Members(message)) => {
                    let members = Members::from_wire(message)?;
                    self.members.send_if_modified(|current| {
                        let changed = **current != members;
                        if changed {
                            *current = Arc::new(members);
                        }
                        changed
                    });
                }
                // A frame of a newer meta that this version does not know.
                None => {}
            }
            frame = self.frame(&mut frames, &link.peer).await?;
        }
    }

    async fn frame(
        &self,
        frames: &mut Streaming<pb::WatchFrame>,
        peer: &Peer,
    ) -> Result<pb::WatchFrame, Error> {
        let frame = frames.message().await.map_err(|status| from_status(peer, status))?;
        frame.ok_or_else(|| Error::Unavailable(format!("{peer} ended the watch")))
    }

    /// Publishes a catalog, if it is newer than the present one.
    fn publish(&self, catalog: Catalog, peer: &Peer, back: &mut bool) {
        let version = catalog.version;
        let mut current_version = 0;
        let newer = self.catalog.send_if_modified(|current| {
            current_version = current.version;
            let newer = version > current_version;
            if newer {
                *current = Arc::new(catalog);
            }
            newer
        });
        if !newer && version < current_version && !std::mem::replace(back, true) {
            tracing::error!(
                meta = %peer,
                version,
                current_version,
                "meta's catalog is older than before, as after a restore; it is ignored until it is newer"
            );
        }
    }
}

/// True if the error calls for another attempt, perhaps with another meta. The request may or may not have taken
/// effect.
fn is_passing(error: &Error) -> bool {
    matches!(error, Error::NotLeader { .. } | Error::Unavailable(_) | Error::Timeout(_))
}

/// Pause before the next attempt, after this many rounds through all addresses: random, so that not all clients come at
/// once.
pub(crate) fn pause(rounds: usize, random: u64) -> Duration {
    let doublings = u32::try_from(rounds).unwrap_or(u32::MAX).saturating_add(1).min(10);
    let longest = PAUSE_MIN.saturating_mul(1 << doublings).min(PAUSE_MAX);
    let span = u64::try_from((longest - PAUSE_MIN).as_millis()).unwrap_or(0) + 1;
    PAUSE_MIN + Duration::from_millis(random % span)
}
