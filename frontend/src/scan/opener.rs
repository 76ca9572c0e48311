//! Opens partitions: finds their leaders, follows them when they move, and runs fragments there. Where a partition is
//! read much, followers are asked too.
//!
//! Invariants:
//! - the reply of an attempt is used whole or not at all: after a split, the rows come from both halves, each once;
//! - streams of a scan in an order follow each other in it, also those of both halves;
//! - a fragment is retried until its first rows arrive, because most of its work is done by then; a later failure
//!   fails the statement;
//! - a follower that refuses, fails or is slow to open costs one more request: the leader is asked next.

use std::sync::Arc;
use std::time::Duration;

use arrow::record_batch::RecordBatch;
use datafusion::error::{DataFusionError, Result};
use futures::future::try_join_all;
use futures::{Stream, StreamExt, TryStreamExt};
use parking_lot::Mutex;
use partita_proto::Error;
use partita_proto::id::{Epoch, NodeId, PartitionId};
use partita_proto::range::KeyRange;
use partita_proto::route::Route;
use partita_proto::service::{
    DataService, FragmentRequest, ReadFrom, RowStream, ScanReply, ScanRequest, ScanStats,
};
use partita_worker::Fragment;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::spec::{AtData, ScanSpec};
use crate::error::{OUT_OF_MEMORY, SqlError};
use crate::leaders::is_absent;
use crate::view::ClusterView;

/// First pause before a partition is tried again.
const PAUSE: Duration = Duration::from_millis(5);
/// Maximum pause.
const PAUSE_MAX: Duration = Duration::from_millis(200);
/// Maximum time to open a partition of a copy; then the statement is planned over its source.
const COPY_WAIT: Duration = Duration::from_secs(3);
/// Maximum time to open a scan that any replica may answer, at one of them.
const OPEN_WAIT: Duration = Duration::from_secs(2);
/// SQLSTATE of changed routes: another plan may succeed.
const STALE: &str = "40001";
/// Maximum starts of a partition's fragment; then its failure fails the statement.
const BEGINNINGS_MAX: u32 = 4;

/// Place where a fragment runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// At the replica that is read, if it can run it.
    AtData,
    /// In the frontend, over a plain scan.
    Here,
}

/// Replica that is asked for a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Target {
    node: Option<NodeId>,
    /// True for a follower that was picked; false for the leader, as far as it is known.
    is_picked: bool,
    place: Place,
}

/// One partition of a scan.
pub(super) struct Part {
    route: Route,
    opened: OnceCell<Opened>,
    pub(super) stats: Mutex<Vec<Arc<ScanStats>>>,
    /// Partitions that were read for it, each with its epoch and the Raft index of its rows.
    pub(super) positions: Mutex<Vec<(PartitionId, Epoch, u64)>>,
}

impl Part {
    pub(super) fn new(route: Route) -> Self {
        let (stats, positions) = (Mutex::default(), Mutex::default());
        Self { route, opened: OnceCell::new(), stats, positions }
    }
}

/// Streams of an open partition.
pub(super) struct Opened {
    streams: Mutex<Vec<Option<RowStream>>>,
    /// False if the rows are not in the order of the scan.
    in_order: bool,
}

/// Opens partitions.
pub(super) struct Opener {
    pub(super) spec: ScanSpec,
    pub(super) view: Arc<ClusterView>,
    /// True if the rows are read to be written under a condition.
    pub(super) for_update: bool,
}

impl Opener {
    /// One stream of a partition, and true if it is in the order of the scan; empty if the partition has fewer streams.
    pub(super) async fn stream(
        &self,
        part: &Arc<Part>,
        stream: usize,
    ) -> Result<(impl Stream<Item = Result<RecordBatch>> + Send + use<>, bool)> {
        let opened = self.open(part).await?;
        // Streams beyond the requested number are dealt to the first ones again.
        let mine: Vec<RowStream> = {
            let mut streams = opened.streams.lock();
            let count = self.spec.streams;
            (stream..streams.len())
                .step_by(count)
                .filter_map(|index| streams[index].take())
                .collect()
        };
        let table = Arc::clone(&self.spec.table);
        let partition = part.route.partition;
        let in_place = self.spec.in_place_of.is_some();
        let rows = futures::stream::iter(mine).flatten().map_err(move |error| {
            let is_gone = matches!(error, Error::NotFound { .. } | Error::Unavailable(_));
            DataFusionError::from(match in_place && is_gone {
                true => unreadable(&table.name, &error),
                false => placed(error, &table.name, partition),
            })
        });
        Ok((rows, opened.in_order))
    }

    pub(super) async fn open<'a>(&self, part: &'a Arc<Part>) -> Result<&'a Opened, SqlError> {
        let wanted_order = self.spec.key_order();
        part.opened
            .get_or_try_init(|| async {
                let replies = self.scan(&part.route).await?;
                let mut streams = Vec::new();
                // NULLs of one half do not follow the rows of the other one.
                let mut in_order =
                    replies.len() <= 1 || !wanted_order.is_some_and(|order| order.nulls_apart);
                for (route, reply) in replies {
                    in_order &= wanted_order.is_none() || reply.order == wanted_order;
                    part.positions.lock().push((route.partition, route.epoch, reply.index));
                    part.stats.lock().push(reply.stats);
                    streams.extend(reply.streams.into_iter().map(Some));
                }
                Ok(Opened { streams: Mutex::new(streams), in_order })
            })
            .await
    }

    /// Maximum time to open a partition.
    fn wait(&self) -> Duration {
        let timeout = self.view.timeout();
        if self.spec.in_place_of.is_some() { timeout.min(COPY_WAIT) } else { timeout }
    }

    /// Scans the partition of a route, or its successors if the route is out of date.
    async fn scan(&self, route: &Route) -> Result<Vec<(Route, ScanReply)>, SqlError> {
        // The deadline is renewed for each request: a fragment may compute for longer than one may take.
        let mut deadline = Instant::now() + self.wait();
        let mut beginnings = 1;
        let mut place = Place::AtData;
        let mut replies = Vec::new();
        let mut routes = vec![route.clone()];
        // A split replaces a route by two, which are scanned in turn.
        while let Some(route) = routes.pop() {
            let version = self.view.catalog().version;
            match self.scan_route(&route, place, deadline).await? {
                Ok((reply, _)) if self.spec.at_data.is_none() => replies.push((route, reply)),
                Ok((reply, node)) => match started(reply).await {
                    Ok(reply) => {
                        deadline = Instant::now() + self.wait();
                        replies.push((route, reply));
                    }
                    Err(error) if may_begin_again(&error) && beginnings < BEGINNINGS_MAX => {
                        self.view.metrics().scan_retries.add(1);
                        self.view.replicas().failed(route.partition, node);
                        beginnings += 1;
                        if matches!(error, Error::Query { .. }) {
                            place = Place::Here;
                        }
                        deadline = Instant::now() + self.wait();
                        routes.push(route);
                    }
                    Err(error) => {
                        return Err(placed(error, &self.spec.table.name, route.partition));
                    }
                },
                Err(stale) => {
                    self.view.metrics().scan_retries.add(1);
                    self.view.newer_catalog(version, deadline).await;
                    if Instant::now() >= deadline {
                        return Err(stale.into());
                    }
                    routes.extend(self.newest_routes(&route.keys, stale)?);
                }
            }
        }
        replies.sort_by(|(a, _), (b, _)| a.keys.start.cmp(&b.keys.start));
        if self.spec.key_order().is_some_and(|order| order.descending) {
            replies.reverse();
        }
        Ok(replies)
    }

    /// The newest routes of a range of keys.
    fn newest_routes(&self, keys: &KeyRange, stale: Error) -> Result<Vec<Route>, SqlError> {
        let table = self.view.newest(&self.spec.table).ok_or_else(|| {
            let name = &self.spec.table.name;
            match self.spec.table.copy {
                Some(_) => unreadable(name, &stale),
                None => SqlError::undefined_table(name),
            }
        })?;
        if table.schema.version != self.spec.table.schema.version
            || !table.reads_as(&self.spec.table)
        {
            // Columns may be missing now, or a former table may have to be included: the statement is planned again.
            return Err(stale.into());
        }
        let map = &table.partitions;
        let routes: Vec<Route> = map
            .prune(std::slice::from_ref(keys))
            .into_iter()
            .map(|position| map.routes()[position].clone())
            .collect();
        // A partition that has grown beyond the range would return rows that another scan of this plan also returns.
        let is_inside = |route: &Route| route.keys.intersect(keys) == route.keys;
        if routes.iter().all(is_inside) { Ok(routes) } else { Err(stale.into()) }
    }

    /// Scans one route's partition, with retries, until its leader or a follower that was picked answers, the route is
    /// out of date (the inner error), or the deadline has passed. Returns the node that answered, too.
    async fn scan_route(
        &self,
        route: &Route,
        place: Place,
        deadline: Instant,
    ) -> Result<Result<(ScanReply, NodeId), Error>, SqlError> {
        let leaders = self.view.leaders();
        // Conditions are about the log of the leader, which knows its end.
        let mut picked = match self.spec.reading.at_followers && !self.for_update {
            true => self.view.replicas().pick(route, leaders.known(route)),
            false => None,
        };
        let mut node = picked.or_else(|| leaders.first(route));
        let mut pause = PAUSE;
        let mut hops = 0;
        loop {
            let target = Target { node, is_picked: picked.is_some(), place };
            let error = match self.scan_once(target, route, deadline).await {
                Ok((reply, node)) => {
                    // Any replica may have answered another request.
                    if self.spec.read_from(target.is_picked) == ReadFrom::Leader {
                        leaders.answered(route.partition, Some(node));
                    }
                    return Ok(Ok((reply, node)));
                }
                Err(error @ (Error::StaleRoute { .. } | Error::StaleSchema { .. })) => {
                    return Ok(Err(error));
                }
                Err(error) => error,
            };
            // The partition was merged, or its table dropped.
            let absent = is_absent(&error);
            if absent && self.view.has_changed(&self.spec.table, route) {
                return Ok(Err(error));
            }
            // If the leader fails as well, its error is the one that counts.
            if let Some(follower) = picked.take() {
                self.view.metrics().scan_retries.add(1);
                self.view.replicas().failed(route.partition, follower);
                node = leaders.first(route);
                continue;
            }
            if !(absent || error.is_retryable()) || Instant::now() + pause >= deadline {
                if self.spec.in_place_of.is_some() {
                    return Err(unreadable(&self.spec.table.name, &error));
                }
                let detail =
                    format!("table \"{}\", partition {}", self.spec.table.name, route.partition);
                let error = self.view.explained(&self.spec.table, route, error);
                return Err(SqlError::from(error).with_detail(detail));
            }
            self.view.metrics().scan_retries.add(1);
            leaders.failed(route.partition, node);
            // Follow a hint to the leader at once, but not in circles; otherwise pause and try the next node.
            if let Error::NotLeader { leader: Some(leader), .. } = &error
                && Some(*leader) != node
                && hops < 3
            {
                hops += 1;
                node = Some(*leader);
                continue;
            }
            hops = 0;
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
            node = self.next_node(route, node, &error);
        }
    }

    fn next_node(&self, route: &Route, last_node: Option<NodeId>, error: &Error) -> Option<NodeId> {
        let newest = self.view.newest(&self.spec.table);
        let newest_route =
            newest.as_ref().and_then(|table| table.partitions.route(route.partition));
        self.view.leaders().next(newest_route.unwrap_or(route), last_node, error)
    }

    async fn scan_once(
        &self,
        target: Target,
        route: &Route,
        deadline: Instant,
    ) -> Result<(ScanReply, NodeId), Error> {
        let node = target.node.ok_or_else(|| {
            Error::Unavailable(format!("no node is known to hold partition {}", route.partition))
        })?;
        let service = self.view.nodes().node(node)?;
        let request = ScanRequest {
            partition: route.partition,
            epoch: route.epoch,
            columns: Arc::clone(&self.spec.columns),
            domains: self.spec.domains.clone(),
            limit: self.spec.request_limit(),
            parallelism: self.spec.streams,
            newest_only: self.spec.newest_only,
            probes: self.spec.probes.clone(),
            read_from: self.spec.read_from(target.is_picked),
            first_by_time: self.spec.first_by_time,
            order: self.spec.key_order(),
            for_update: self.for_update,
            uncollected: self.spec.reading.uncollected,
        };
        // Where other replicas may answer as well, none is waited for until the end.
        let (deadline, replica) = match self.spec.read_from(target.is_picked) {
            ReadFrom::AnyReplica { .. } => (deadline.min(Instant::now() + OPEN_WAIT), "replica"),
            ReadFrom::Leader => (deadline, "leader"),
        };
        let in_flight = self.view.replicas().begin(route.partition, node);
        let place = target.place;
        let answer = async {
            match &self.spec.at_data {
                Some(at_data) => self.run(node, service.as_ref(), place, at_data, request).await,
                None => plain(service.as_ref(), request).await,
            }
        };
        match tokio::time::timeout_at(deadline, answer).await {
            Ok(reply) => Ok((in_flight.answered(reply?), node)),
            Err(_) => Err(Error::Timeout(format!("no answer from the partition's {replica}"))),
        }
    }

    /// Runs a fragment at a partition's node, or here if the node cannot: during an upgrade, nodes may have other
    /// versions.
    async fn run(
        &self,
        node: NodeId,
        service: &dyn DataService,
        place: Place,
        at_data: &AtData,
        scan: ScanRequest,
    ) -> Result<ScanReply, Error> {
        let fragment = at_data.bytes.clone();
        let answer = match self.view.nodes().fragments(node) {
            _ if place == Place::Here => Err(Error::Unsupported("too little memory".to_owned())),
            Ok(fragments) => fragments.run(FragmentRequest { scan: scan.clone(), fragment }).await,
            Err(error) => Err(error),
        };
        let Err(Error::Unsupported(reason)) = answer else { return answer };
        tracing::debug!(%node, reason, "running a query fragment at the frontend");
        let fragment = Fragment::decode(&at_data.bytes, scan.parallelism)?;
        let columns = Arc::clone(&scan.columns);
        let reply = service.scan(scan).await?;
        fragment.run(reply, &columns, Arc::clone(&at_data.runtime))
    }
}

/// Scans a partition. If its rows come in another order than that of the request, a limit has left out any of them: then
/// all of them are requested.
async fn plain(service: &dyn DataService, request: ScanRequest) -> Result<ScanReply, Error> {
    if request.order.is_none() || request.limit.is_none() {
        return service.scan(request).await;
    }
    let reply = service.scan(request.clone()).await?;
    if reply.order == request.order {
        return Ok(reply);
    }
    drop(reply);
    service.scan(ScanRequest { order: None, limit: None, ..request }).await
}

/// A fragment's reply, once each of its streams has returned its first rows or has ended.
async fn started(reply: ScanReply) -> Result<ScanReply, Error> {
    let streams = reply.streams.into_iter().map(|mut rows| async move {
        let first: Option<RecordBatch> = rows.next().await.transpose()?;
        let whole: RowStream = Box::pin(futures::stream::iter(first.map(Ok)).chain(rows));
        Ok::<RowStream, Error>(whole)
    });
    Ok(ScanReply { streams: try_join_all(streams).await?, ..reply })
}

/// Returns true if a fragment that failed before its first rows should be tried again: at another node, later, or
/// here if the node has too little memory.
fn may_begin_again(error: &Error) -> bool {
    matches!(error, Error::Query { sqlstate, .. } if sqlstate == OUT_OF_MEMORY)
        || error.is_retryable()
}

/// Error of a copy that cannot be read: it is replaced now and then, and its source has the same rows.
fn unreadable(copy: &str, cause: &Error) -> SqlError {
    let message = format!("materialized copy \"{copy}\" cannot be read: {cause}");
    SqlError { retryable: true, ..SqlError::new(STALE, message) }
}

/// Adds table and partition to an error.
fn placed(error: Error, table: &str, partition: PartitionId) -> SqlError {
    let error = SqlError::from(error);
    let place = format!("table \"{table}\", partition {partition}");
    let detail = error.detail.as_ref().map_or(place.clone(), |d| format!("{place}: {d}"));
    error.with_detail(detail)
}
