//! Clients: they find leaders as frontends do, follow partitions through splits and merges, and record their
//! operations and results in the history.
//!
//! Invariant: after a client has given up on a write, the write can still take effect at any later time.

mod count;
mod read;
mod wide;
mod write;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use partita_proto::catalog::{Catalog, Table};
use partita_proto::error::Error;
use partita_proto::id::{NodeId, PartitionId};
use partita_proto::route::Route;
use partita_proto::service::{Ddl, MetaService, RequestId};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cluster::Cluster;
use crate::nodes::METAS;
use crate::random::Random;
use crate::remote::Remote;
use crate::tables::{DATABASE, KEYS};
use crate::workload::Workload;

/// Time limit for one answer.
const CALL_WAIT: Duration = Duration::from_millis(2500);
/// Pause between attempts.
const PAUSE: Duration = Duration::from_millis(20);
/// Age that rows of some reads may have. Longer than a question to a leader takes, shorter than most faults.
const AGE_MAX: Duration = Duration::from_millis(700);
/// Time after which a client gives up on an operation; a frontend gives up on a write after the same half a minute.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A client of the simulated cluster.
pub(crate) struct Client {
    pub(crate) number: u64,
    cluster: Arc<Cluster>,
    random: Mutex<Random>,
    catalog: Mutex<Arc<Catalog>>,
    leaders: Mutex<BTreeMap<PartitionId, NodeId>>,
    next: Mutex<u64>,
}

impl Client {
    pub(crate) fn new(cluster: &Arc<Cluster>, number: u64, seed: u64) -> Arc<Self> {
        let me = Self {
            number,
            cluster: Arc::clone(cluster),
            random: Mutex::new(Random::new(seed, 1000 + number)),
            catalog: Mutex::default(),
            leaders: Mutex::default(),
            next: Mutex::new(1),
        };
        cluster.net.join(me.address());
        Arc::new(me)
    }

    fn address(&self) -> NodeId {
        NodeId(200 + self.number)
    }

    fn below(&self, end: u64) -> u64 {
        self.random.lock().below(end)
    }

    fn identity(&self) -> RequestId {
        let mut next = self.next.lock();
        *next += 1;
        RequestId { client: self.number, sequence: *next }
    }

    /// A number for rows and values that no other request of any client has.
    fn number_of(&self, identity: RequestId) -> i64 {
        i64::try_from(self.number * 1_000_000 + identity.sequence * 10).unwrap_or_default()
    }

    /// Fetches the catalog from a random meta.
    async fn refresh(&self) {
        let member = NodeId(METAS.start() + self.below(3));
        let meta = self.cluster.meta(member);
        let call = self.cluster.net.call(self.address(), member, CALL_WAIT, async move {
            let meta = meta.ok_or_else(|| Error::Unavailable("the meta is down".to_owned()))?;
            Ok(Arc::clone(&meta.catalog().borrow()))
        });
        if let Ok(newer) = call.await {
            let mut catalog = self.catalog.lock();
            if newer.version > catalog.version {
                *catalog = newer;
            }
        }
    }

    /// Has meta make a change, following the hints to the leader, until success, a final error, or the end of
    /// `patience`. True if anything changed.
    pub(crate) async fn change(&self, ddl: Ddl, patience: Duration) -> Result<bool, Error> {
        use partita_proto::service::ClusterService;
        let id = self.identity();
        let deadline = Instant::now() + patience;
        let mut member = *METAS.start() + self.below(3);
        loop {
            let (meta, ddl) = (self.cluster.meta(NodeId(member)), ddl.clone());
            let wait = Duration::from_secs(65);
            let call = self.cluster.net.call(self.address(), NodeId(member), wait, async move {
                let meta = meta.ok_or_else(|| Error::Unavailable("the meta is down".to_owned()))?;
                meta.change_once(id, ddl).await
            });
            let error = match call.await {
                Ok(changed) => return Ok(changed.changed),
                Err(error) => error,
            };
            if !error.is_retryable() || Instant::now() >= deadline {
                return Err(error);
            }
            member = match error {
                Error::NotLeader { leader: Some(leader), .. } => leader.0,
                _ => METAS.start() + (member + 1 - METAS.start()) % 3,
            };
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn table(&self, name: &str, deadline: Instant) -> Result<Arc<Table>, Error> {
        loop {
            let cached = self.catalog.lock().table(DATABASE, name).cloned();
            if let Some(table) = cached {
                return Ok(table);
            }
            if Instant::now() >= deadline {
                return Err(Error::NotFound { kind: "table", name: name.to_owned() });
            }
            self.refresh().await;
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn service(&self, node: NodeId) -> Remote {
        let (cluster, caller) = (Arc::clone(&self.cluster), self.address());
        Remote { cluster, from: caller, to: node, wait: CALL_WAIT, catalog: None }
    }

    /// The node to ask first: the partition's leader if known, else any replica's.
    fn ask_first(&self, route: &Route) -> Option<NodeId> {
        let leader = self.leaders.lock().get(&route.partition).copied();
        leader.or_else(|| self.any_replica(route))
    }

    fn any_replica(&self, route: &Route) -> Option<NodeId> {
        let nodes: Vec<NodeId> = route.replicas.values().copied().collect();
        self.random.lock().pick(&nodes)
    }

    /// Updates the known leader after a refusal.
    async fn learn(&self, route: &Route, error: &Error) {
        let hint = match error {
            Error::NotLeader { leader, .. } => *leader,
            _ => None,
        };
        if let Some(node) = hint.or_else(|| self.any_replica(route)) {
            self.leaders.lock().insert(route.partition, node);
        }
        if !matches!(error, Error::NotLeader { leader: Some(_), .. }) {
            self.refresh().await;
        }
        tokio::time::sleep(PAUSE).await;
    }

    /// Reports errors that no fault may cause as violations.
    fn check_error(&self, operation: &str, error: &Error) {
        if matches!(error, Error::Corrupted(_) | Error::InvalidInput(_) | Error::Unsupported(_)) {
            self.cluster.history.violation(format!("client {}: {operation}: {error}", self.number));
        }
    }

    /// A key of a table, or the number of a counter or a wide row.
    fn any_key(&self) -> i64 {
        i64::try_from(self.below(KEYS.unsigned_abs())).unwrap_or_default()
    }

    /// Does random operations of the workload, one after the other, until `stop`.
    pub(crate) async fn work(self: Arc<Self>, stop: CancellationToken) {
        match self.cluster.workload {
            Workload::Mixed => self.mix(&stop).await,
            Workload::Counters => self.count(&stop).await,
            Workload::Wide => self.change_rows(&stop).await,
        }
    }

    async fn mix(&self, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            let key = self.any_key();
            let _done = match self.below(28) {
                0..7 => self.put(key, PATIENCE).await,
                7..13 => self.get(key, PATIENCE).await,
                13..19 => self.append(PATIENCE).await,
                19..21 => self.read_keyed(PATIENCE).await,
                21..25 => self.exchange(key, PATIENCE).await,
                25..27 => self.read_events(PATIENCE).await,
                _ => self.read_older_events(PATIENCE).await,
            };
            tokio::time::sleep(Duration::from_millis(5 + self.below(120))).await;
        }
    }
}
