//! Opens partitions: finds their leaders, follows them when they move, and has a fragment run there.
//!
//! Invariants:
//! - what an attempt gave is taken whole or not at all: the rows of a partition that was split come
//!   from its halves, each once;
//! - a fragment is asked for again until its first rows are there, because that is when most of its
//!   work is done; later than that its failure is the statement's.

use std::sync::Arc;
use std::time::Duration;

use arrow::record_batch::RecordBatch;
use datafusion::error::{DataFusionError, Result};
use futures::future::try_join_all;
use futures::{Stream, StreamExt, TryStreamExt};
use parking_lot::Mutex;
use partita_proto::Error;
use partita_proto::id::{NodeId, PartitionId};
use partita_proto::range::KeyRange;
use partita_proto::route::Route;
use partita_proto::service::{DataService, FragmentRequest, RowStream, ScanReply, ScanRequest};
use partita_worker::Fragment;
use tokio::time::Instant;

use super::{Part, ScanSpec};
use crate::at_data::AtData;
use crate::error::{OUT_OF_MEMORY, SqlError};
use crate::router::{Router, is_absent};

/// The pause before a partition is asked again.
const PAUSE: Duration = Duration::from_millis(5);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_millis(200);
/// How often a partition's fragment is begun before its failure is the statement's.
const BEGINNINGS_MAX: u32 = 4;

/// Where a fragment runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// At the partition's leader, if that can do it.
    AtData,
    /// In the frontend, over a plain scan.
    Here,
}

/// Opens partitions.
pub(super) struct Opener {
    pub(super) spec: ScanSpec,
    pub(super) router: Arc<Router>,
}

impl Opener {
    /// One stream of a partition; an empty one if the partition did not need so many.
    pub(super) async fn stream(
        &self,
        part: &Arc<Part>,
        stream: usize,
    ) -> Result<impl Stream<Item = Result<RecordBatch>> + Send + use<>> {
        let opened = self.open(part).await?;
        // What is more than was asked for is dealt to the first ones again.
        let mine: Vec<RowStream> = {
            let mut streams = opened.lock();
            let count = self.spec.streams;
            (stream..streams.len()).step_by(count).filter_map(|at| streams[at].take()).collect()
        };
        let table = Arc::clone(&self.spec.table);
        let partition = part.route.partition;
        Ok(futures::stream::iter(mine)
            .flatten()
            .map_err(move |error| DataFusionError::from(placed(error, &table.name, partition))))
    }

    pub(super) async fn open<'a>(
        &self,
        part: &'a Arc<Part>,
    ) -> Result<&'a Mutex<Vec<Option<RowStream>>>, SqlError> {
        part.opened
            .get_or_try_init(|| async {
                let replies = self.scan(&part.route).await?;
                let mut streams = Vec::new();
                for reply in replies {
                    part.stats.lock().push(reply.stats);
                    streams.extend(reply.streams.into_iter().map(Some));
                }
                Ok(Mutex::new(streams))
            })
            .await
    }

    /// Scans what a route leads to, and if that is an old route, what is there now.
    async fn scan(&self, route: &Route) -> Result<Vec<ScanReply>, SqlError> {
        // Of what is asked next: a fragment may compute for longer than a request may take.
        let mut deadline = Instant::now() + self.router.timeout();
        let mut beginnings = 1;
        let mut place = Place::AtData;
        let mut replies = Vec::new();
        let mut routes = vec![route.clone()];
        while let Some(route) = routes.pop() {
            let version = self.router.catalog().version;
            match self.scan_route(&route, place, deadline).await? {
                Ok(reply) if self.spec.at_data.is_none() => replies.push(reply),
                Ok(reply) => match begun(reply).await {
                    Ok(reply) => {
                        deadline = Instant::now() + self.router.timeout();
                        replies.push(reply);
                    }
                    Err(error) if may_begin_again(&error) && beginnings < BEGINNINGS_MAX => {
                        self.router.metrics().scan_retries.add(1);
                        beginnings += 1;
                        if matches!(error, Error::Query { .. }) {
                            place = Place::Here;
                        }
                        deadline = Instant::now() + self.router.timeout();
                        routes.push(route);
                    }
                    Err(error) => {
                        return Err(placed(error, &self.spec.table.name, route.partition));
                    }
                },
                Err(stale) => {
                    self.router.metrics().scan_retries.add(1);
                    self.router.newer_catalog(version, deadline).await;
                    if Instant::now() >= deadline {
                        return Err(stale.into());
                    }
                    routes.extend(self.newest_routes(&route.keys, stale)?);
                }
            }
        }
        Ok(replies)
    }

    /// The routes that now lead to a range of keys.
    fn newest_routes(&self, keys: &KeyRange, stale: Error) -> Result<Vec<Route>, SqlError> {
        let table = self
            .router
            .newest(&self.spec.table)
            .ok_or_else(|| SqlError::undefined_table(&self.spec.table.name))?;
        if table.schema.version != self.spec.table.schema.version
            || !table.reads_as(&self.spec.table)
        {
            // The columns asked for may not be there any more, or another table's rows are to be read along: the
            // statement is planned again.
            return Err(stale.into());
        }
        let map = &table.partitions;
        let routes: Vec<Route> = map
            .prune(std::slice::from_ref(keys))
            .into_iter()
            .map(|position| map.routes()[position].clone())
            .collect();
        // A partition that now owns more than the range would bring rows that another one of this
        // plan brings too.
        let within = |route: &Route| route.keys.intersect(keys) == route.keys;
        if routes.iter().all(within) { Ok(routes) } else { Err(stale.into()) }
    }

    /// Scans one route's partition, again and again until its leader answers, or the route turns
    /// out to be an old one (the inner error), or time is up.
    async fn scan_route(
        &self,
        route: &Route,
        place: Place,
        deadline: Instant,
    ) -> Result<Result<ScanReply, Error>, SqlError> {
        let leaders = self.router.leaders();
        let mut node = leaders.first(route);
        let mut pause = PAUSE;
        let mut hops = 0;
        loop {
            let error = match self.scan_once(node, route, place, deadline).await {
                Ok(reply) => {
                    leaders.answered(route.partition, node);
                    return Ok(Ok(reply));
                }
                Err(error @ (Error::StaleRoute { .. } | Error::StaleSchema { .. })) => {
                    return Ok(Err(error));
                }
                Err(error) => error,
            };
            let absent = is_absent(&error);
            if absent && self.router.has_changed(&self.spec.table, route) {
                return Ok(Err(error));
            }
            if !(absent || error.is_retryable()) || Instant::now() + pause >= deadline {
                let detail =
                    format!("table \"{}\", partition {}", self.spec.table.name, route.partition);
                let error = self.router.explained(&self.spec.table, route, error);
                return Err(SqlError::from(error).with_detail(detail));
            }
            self.router.metrics().scan_retries.add(1);
            leaders.failed(route.partition, node);
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

    fn next_node(&self, route: &Route, asked: Option<NodeId>, error: &Error) -> Option<NodeId> {
        let newest = self.router.newest(&self.spec.table);
        let found = newest.as_ref().and_then(|table| table.partitions.route(route.partition));
        self.router.leaders().next(found.unwrap_or(route), asked, error)
    }

    async fn scan_once(
        &self,
        node: Option<NodeId>,
        route: &Route,
        place: Place,
        deadline: Instant,
    ) -> Result<ScanReply, Error> {
        let node = node.ok_or_else(|| {
            Error::Unavailable(format!("no node is known to hold partition {}", route.partition))
        })?;
        let service = self.router.nodes().node(node)?;
        let request = ScanRequest {
            partition: route.partition,
            epoch: route.epoch,
            columns: Arc::clone(&self.spec.columns),
            domains: self.spec.domains.clone(),
            limit: self.spec.limit,
            parallelism: self.spec.streams,
            newest_only: self.spec.newest_only,
        };
        let answer = async {
            match &self.spec.at_data {
                Some(at_data) => self.run(node, service.as_ref(), place, at_data, request).await,
                None => service.scan(request).await,
            }
        };
        match tokio::time::timeout_at(deadline, answer).await {
            Ok(reply) => reply,
            Err(_) => Err(Error::Timeout("no answer from the partition's leader".to_owned())),
        }
    }

    /// Has a fragment run where the rows are, or runs it here when that cannot be done: while the
    /// cluster is being upgraded, nodes are of other versions.
    async fn run(
        &self,
        node: NodeId,
        service: &dyn DataService,
        place: Place,
        at_data: &AtData,
        scan: ScanRequest,
    ) -> Result<ScanReply, Error> {
        let fragment = at_data.bytes.clone();
        let answer = match self.router.nodes().fragments(node) {
            _ if place == Place::Here => Err(Error::Unsupported("too little memory".to_owned())),
            Ok(fragments) => fragments.run(FragmentRequest { scan: scan.clone(), fragment }).await,
            Err(error) => Err(error),
        };
        let Err(Error::Unsupported(reason)) = answer else { return answer };
        tracing::debug!(%node, reason, "a part of a query runs here, not at its rows");
        let fragment = Fragment::decode(&at_data.bytes, scan.parallelism)?;
        let columns = Arc::clone(&scan.columns);
        let reply = service.scan(scan).await?;
        fragment.run(reply, &columns, Arc::clone(&at_data.runtime))
    }
}

/// The reply of a fragment once each of its streams has given its first rows, or come to its end.
async fn begun(reply: ScanReply) -> Result<ScanReply, Error> {
    let begun = reply.streams.into_iter().map(|mut rows| async move {
        let first: Option<RecordBatch> = rows.next().await.transpose()?;
        let whole: RowStream = Box::pin(futures::stream::iter(first.map(Ok)).chain(rows));
        Ok(whole)
    });
    Ok(ScanReply { streams: try_join_all(begun).await?, ..reply })
}

/// Whether a fragment that failed before its first rows may do better: elsewhere, later, or here when
/// the node has too little memory for it.
fn may_begin_again(error: &Error) -> bool {
    matches!(error, Error::Query { sqlstate, .. } if sqlstate == OUT_OF_MEMORY)
        || error.is_retryable()
}

/// An error of a partition's rows, with where it was.
fn placed(error: Error, table: &str, partition: PartitionId) -> SqlError {
    let error = SqlError::from(error);
    let place = format!("table \"{table}\", partition {partition}");
    let detail = error.detail.as_ref().map_or(place.clone(), |d| format!("{place}: {d}"));
    error.with_detail(detail)
}
