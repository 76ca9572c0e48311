//! Clients: they find the leader as frontends do, send again what got no answer under its first identity, and note
//! what they did and saw.
//!
//! Invariants:
//! - a write that is sent again keeps its identity;
//! - a client that gave up counts its write as perhaps to come, for ever.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow::record_batch::RecordBatch;
use parking_lot::Mutex;
use partita_proto::catalog::{Catalog, Table};
use partita_proto::domain::{Domain, Domains};
use partita_proto::error::Error;
use partita_proto::id::{NodeId, PartitionId};
use partita_proto::key::KeyCodec;
use partita_proto::range::Bound;
use partita_proto::route::Route;
use partita_proto::service::{
    DataService, Ddl, MetaService, RequestId, ScanRequest, WriteKind, WriteRequest,
};
use partita_proto::value::Value;
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::history::Action;
use crate::invariants::rows;
use crate::nodes::METAS;
use crate::random::Random;
use crate::remote::Remote;
use crate::tables::{self, DATABASE, EVENTS, KEYED, KEYS};

/// How long a client waits for one answer.
const CALL_WAIT: Duration = Duration::from_millis(2500);
/// Between attempts.
const PAUSE: Duration = Duration::from_millis(20);
/// Frontends give up on a write after half a minute.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A client.
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

    /// A new number of this client, for rows and values: nobody else has it.
    fn number_of(&self, identity: RequestId) -> i64 {
        i64::try_from(self.number * 1_000_000 + identity.sequence * 10).unwrap_or_default()
    }

    /// Asks any meta for the catalog.
    async fn refresh(&self) {
        let to = NodeId(METAS.start() + self.below(3));
        let meta = self.cluster.meta(to);
        let asked = self.cluster.net.call(self.address(), to, CALL_WAIT, async move {
            let meta = meta.ok_or_else(|| Error::Unavailable("it is down".to_owned()))?;
            Ok(Arc::clone(&meta.catalog().borrow()))
        });
        if let Ok(newer) = asked.await {
            let mut catalog = self.catalog.lock();
            if newer.version > catalog.version {
                *catalog = newer;
            }
        }
    }

    /// Has meta make a change; tries the next one when it does not lead.
    pub(crate) async fn change(&self, ddl: Ddl, patience: Duration) -> Result<(), Error> {
        use partita_proto::service::ClusterService;
        let id = self.identity();
        let until = Instant::now() + patience;
        let mut to = *METAS.start() + self.below(3);
        loop {
            let (meta, ddl) = (self.cluster.meta(NodeId(to)), ddl.clone());
            let wait = Duration::from_secs(65);
            let asked = self.cluster.net.call(self.address(), NodeId(to), wait, async move {
                let meta = meta.ok_or_else(|| Error::Unavailable("it is down".to_owned()))?;
                meta.change_once(id, ddl).await
            });
            let Err(error) = asked.await else { return Ok(()) };
            if !error.is_retryable() || Instant::now() >= until {
                return Err(error);
            }
            to = match error {
                Error::NotLeader { leader: Some(leader), .. } => leader.0,
                _ => METAS.start() + (to + 1 - METAS.start()) % 3,
            };
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn table(&self, name: &str, until: Instant) -> Result<Arc<Table>, Error> {
        loop {
            let known = self.catalog.lock().table(DATABASE, name).cloned();
            if let Some(table) = known {
                return Ok(table);
            }
            if Instant::now() >= until {
                return Err(Error::NotFound { kind: "table", name: name.to_owned() });
            }
            self.refresh().await;
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn service(&self, to: NodeId) -> Remote {
        let (cluster, from) = (Arc::clone(&self.cluster), self.address());
        Remote { cluster, from, to, wait: CALL_WAIT }
    }

    /// The node to ask: the leader as far as known, or any replica's.
    fn ask_first(&self, route: &Route) -> Option<NodeId> {
        let known = self.leaders.lock().get(&route.partition).copied();
        known.or_else(|| self.any_replica(route))
    }

    fn any_replica(&self, route: &Route) -> Option<NodeId> {
        let nodes: Vec<NodeId> = route.replicas.values().copied().collect();
        self.random.lock().pick(&nodes)
    }

    /// Learns from a refusal whom to ask next.
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

    /// What must not be answered, whatever goes wrong.
    fn check_error(&self, what: &str, error: &Error) {
        if matches!(error, Error::Corrupted(_) | Error::InvalidInput(_) | Error::Unsupported(_)) {
            self.cluster.history.violation(format!("client {}: {what}: {error}", self.number));
        }
    }

    async fn write(
        &self,
        table: &str,
        (first, kind, rows): (i64, WriteKind, RecordBatch),
        id: RequestId,
        patience: Duration,
    ) -> Result<(), Error> {
        let until = Instant::now() + patience;
        loop {
            let table = self.table(table, until).await?;
            let route = route_of(&table, first)?;
            let Some(to) = self.ask_first(&route) else {
                self.refresh().await;
                continue;
            };
            let request = WriteRequest {
                partition: route.partition,
                epoch: route.epoch,
                id,
                kind,
                rows: rows.clone(),
            };
            let Err(error) = self.service(to).write(request).await else {
                self.leaders.lock().insert(route.partition, to);
                return Ok(());
            };
            self.check_error("write", &error);
            if Instant::now() >= until {
                return Err(error);
            }
            self.learn(&route, &error).await;
        }
    }

    async fn scan(
        &self,
        table: &Table,
        route: &Route,
        domains: Domains,
        until: Instant,
    ) -> Result<Vec<(i64, i64)>, Error> {
        let mut route = route.clone();
        loop {
            let request = ScanRequest {
                partition: route.partition,
                epoch: route.epoch,
                columns: table.schema.storage(),
                domains: domains.clone(),
                limit: None,
                parallelism: 2,
                newest_only: false,
            };
            let to = self.ask_first(&route).unwrap_or(NodeId(1));
            let error = match self.service(to).rows(request).await {
                Ok(rows) => return Ok(tables::pairs(&rows)),
                Err(error) => error,
            };
            self.check_error("scan", &error);
            if Instant::now() >= until {
                return Err(error);
            }
            self.learn(&route, &error).await;
            let newer = self.catalog.lock().table_by_id(table.id).cloned();
            if let Some(newer) =
                newer.and_then(|table| table.partitions.route(route.partition).cloned())
            {
                route = newer;
            }
        }
    }

    /// All rows of a table.
    pub(crate) async fn all(
        &self,
        name: &str,
        patience: Duration,
    ) -> Result<Vec<(i64, i64)>, Error> {
        let until = Instant::now() + patience;
        let table = self.table(name, until).await?;
        let mut rows = Vec::new();
        for route in table.partitions.routes() {
            rows.extend(self.scan(&table, route, Domains::default(), until).await?);
        }
        rows.sort_unstable();
        Ok(rows)
    }

    /// Sets or removes a key's value.
    pub(crate) async fn put(&self, key: i64, patience: Duration) -> bool {
        let id = self.identity();
        let delete = self.below(10) == 0;
        let value = (!delete).then(|| self.number_of(id));
        let padding = 200 + usize::try_from(self.below(1500)).unwrap_or_default();
        let rows = match value {
            Some(value) => tables::rows(&[(key, value)], padding),
            None => tables::keys(&[key]),
        };
        let Ok(rows) = rows else { return false };
        let kind = if delete { WriteKind::Delete } else { WriteKind::Put };
        let action = Action::Write(value);
        let place = self.cluster.history.begin(self.number, key, action);
        let done = self.write(KEYED, (key, kind, rows), id, patience).await;
        if done.is_ok() {
            self.cluster.history.end(place, action);
        }
        self.cluster
            .history
            .note(format_args!("client {} put {key}={value:?}: {done:?}", self.number));
        done.is_ok()
    }

    /// Sees a key's value.
    pub(crate) async fn get(&self, key: i64, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        let Ok(table) = self.table(KEYED, until).await else { return false };
        let Ok(route) = route_of(&table, key) else { return false };
        let mut domains = Domains::default();
        domains.restrict("id", Domain::point(Value::Int(key)));
        let place = self.cluster.history.begin(self.number, key, Action::Read(None));
        let seen = self.scan(&table, &route, domains, until).await;
        let values = seen.as_ref().map(|rows| {
            rows.iter().filter(|row| row.0 == key).map(|row| row.1).collect::<Vec<_>>()
        });
        if let Ok(values) = &values {
            if values.len() > 1 {
                self.cluster.history.violation(format!("key {key} has {} rows", values.len()));
            }
            self.cluster.history.end(place, Action::Read(values.first().copied()));
        }
        self.cluster.history.note(format_args!("client {} get {key}: {values:?}", self.number));
        values.is_ok()
    }

    /// Appends a few rows.
    pub(crate) async fn append(&self, patience: Duration) -> bool {
        let id = self.identity();
        let first = self.number_of(id);
        let count = 1 + i64::try_from(self.below(3)).unwrap_or_default();
        // Rows of one write go to one partition.
        let key = i64::try_from(self.below(u64::try_from(KEYS).unwrap_or(1))).unwrap_or_default();
        let numbers: Vec<i64> = (first..first + count).collect();
        let pairs: Vec<(i64, i64)> = numbers.iter().map(|number| (key, *number)).collect();
        let padding = 200 + usize::try_from(self.below(1500)).unwrap_or_default();
        let Ok(rows) = tables::rows(&pairs, padding) else { return false };
        self.cluster.history.attempt(&numbers);
        let done = self.write(EVENTS, (key, WriteKind::Put, rows), id, patience).await;
        if done.is_ok() {
            self.cluster.history.acknowledge(&numbers);
        }
        self.cluster
            .history
            .note(format_args!("client {} append {numbers:?}: {done:?}", self.number));
        done.is_ok()
    }

    /// Reads all events, and checks what was seen.
    pub(crate) async fn read_events(&self, patience: Duration) -> bool {
        let before = self.cluster.history.acknowledged();
        let seen = self.all(EVENTS, patience).await;
        if let Ok(seen) = &seen {
            rows::check(&self.cluster.history, &before, seen);
        }
        let count = seen.map(|rows| rows.len());
        self.cluster.history.note(format_args!("client {} read events: {count:?}", self.number));
        count.is_ok()
    }

    /// Does one thing or another until told to stop.
    pub(crate) async fn work(self: Arc<Self>, stop: tokio_util::sync::CancellationToken) {
        while !stop.is_cancelled() {
            let key =
                i64::try_from(self.below(u64::try_from(KEYS).unwrap_or(1))).unwrap_or_default();
            let _done = match self.below(20) {
                0..7 => self.put(key, PATIENCE).await,
                7..13 => self.get(key, PATIENCE).await,
                13..19 => self.append(PATIENCE).await,
                _ => self.read_events(PATIENCE).await,
            };
            tokio::time::sleep(Duration::from_millis(5 + self.below(120))).await;
        }
    }
}

fn route_of(table: &Table, key: i64) -> Result<Route, Error> {
    let codec = KeyCodec::new(&table.schema, &table.placement)?;
    let key = codec.encode_bound(&Bound { placement: None, key: vec![Value::Int(key)] })?;
    Ok(table.partitions.find(&key).clone())
}
