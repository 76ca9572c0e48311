//! Reads of a client: one key from the partition that owns it, or all rows of a table, partition by partition. The leader
//! is asked, or any replica; some reads accept rows of a bounded age.
//!
//! Invariant: every key is read from one partition. If the partitions of an unread range have changed, it is read
//! from their successors; if one of these also owns keys outside the range, the whole read starts over.

use std::time::Duration;

use arrow::array::RecordBatch;
use partita_proto::catalog::Table;
use partita_proto::domain::{Domain, Domains};
use partita_proto::error::Error;
use partita_proto::id::{NodeId, PartitionId};
use partita_proto::key::KeyCodec;
use partita_proto::range::{Bound, KeyRange};
use partita_proto::route::Route;
use partita_proto::service::{Condition, ReadFrom, ScanRequest};
use partita_proto::value::Value;
use tokio::time::Instant;

use super::{AGE_MAX, Client};
use crate::history::Action;
use crate::invariants::rows;
use crate::tables::{self, EVENTS, KEYED};

/// What rows are read for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To be seen as of at most `age_max` ago.
    Look { age_max: Duration },
    /// To be changed.
    Update,
}

/// Reads all acknowledged writes.
pub(super) const LOOK: Purpose = Purpose::Look { age_max: Duration::ZERO };

/// The rows of one partition, and the index of its log up to which they have all writes.
struct Rows {
    batches: Vec<RecordBatch>,
    index: u64,
}

/// The rows with a key, perhaps with others, and the condition under which a write of them replaces these.
pub(super) struct Found {
    pub(super) batches: Vec<RecordBatch>,
    pub(super) condition: (PartitionId, Condition),
}

/// The values of a key, and the condition under which a write of it replaces these.
pub(super) struct Values {
    pub(super) values: Vec<i64>,
    pub(super) condition: (PartitionId, Condition),
}

impl Client {
    /// Replicas to ask for rows. Half of the reads that may not be old go to the leader.
    fn read_from(&self, table: &Table, purpose: Purpose) -> ReadFrom {
        let Purpose::Look { age_max } = purpose else { return ReadFrom::Leader };
        if age_max.is_zero() && self.below(2) == 0 {
            return ReadFrom::Leader;
        }
        ReadFrom::AnyReplica { staleness_max: age_max, schema: table.schema.version }
    }

    /// Requests the rows of one partition once. `None` after a refusal, from which the client has learned the next
    /// node to ask.
    async fn scan(
        &self,
        table: &Table,
        route: &Route,
        (domains, purpose): (&Domains, Purpose),
        deadline: Instant,
    ) -> Result<Option<Rows>, Error> {
        let read_from = self.read_from(table, purpose);
        let request = ScanRequest {
            partition: route.partition,
            epoch: route.epoch,
            columns: table.schema.storage(),
            domains: domains.clone(),
            limit: None,
            parallelism: 2,
            newest_only: false,
            probes: Vec::new(),
            read_from,
            first_by_time: None,
            order: None,
            for_update: purpose == Purpose::Update,
            uncollected: false,
        };
        let node = match read_from {
            ReadFrom::Leader => self.ask_first(route),
            ReadFrom::AnyReplica { .. } => self.any_replica(route),
        };
        let node = node.unwrap_or(NodeId(1));
        let error = match self.service(node).rows(request).await {
            Ok((batches, index)) => return Ok(Some(Rows { batches, index })),
            Err(error) => error,
        };
        self.check_error("scan", &error);
        if Instant::now() >= deadline {
            return Err(error);
        }
        self.learn(route, &error).await;
        Ok(None)
    }

    /// The values of a key: at most one if the cluster works correctly.
    pub(super) async fn values(
        &self,
        key: i64,
        purpose: Purpose,
        patience: Duration,
    ) -> Result<Values, Error> {
        let found = self.rows_at(KEYED, Value::Int(key), purpose, patience).await?;
        let pairs = tables::pairs(&found.batches);
        let values: Vec<i64> = pairs.iter().filter(|row| row.0 == key).map(|row| row.1).collect();
        if values.len() > 1 {
            self.cluster.history.violation(format!("key {key} has {} rows", values.len()));
        }
        Ok(Values { values, condition: found.condition })
    }

    /// The rows of a table with a value in the first column of the key, from the partition of this value.
    pub(super) async fn rows_at(
        &self,
        name: &str,
        key: Value,
        purpose: Purpose,
        patience: Duration,
    ) -> Result<Found, Error> {
        let deadline = Instant::now() + patience;
        loop {
            let table = self.table(name, deadline).await?;
            let codec = KeyCodec::new(&table.schema, &table.placement)?;
            let mut domains = Domains::default();
            for column in table.schema.key_columns().take(1) {
                domains.restrict(&column.storage_name, Domain::point(key.clone()));
            }
            let bound = Bound { placement: None, key: vec![key.clone()] };
            let route = table.partitions.find(&codec.encode_bound(&bound)?).clone();
            let scope = (&domains, purpose);
            let Some(rows) = self.scan(&table, &route, scope, deadline).await? else { continue };
            let (epoch, schema) = (route.epoch, table.schema.version);
            let by_row = table.schema.options.wide.is_some();
            let condition = Condition { epoch, index: rows.index, bulk: None, schema, by_row };
            let condition = (route.partition, condition);
            return Ok(Found { batches: rows.batches, condition });
        }
    }

    /// All rows of a table, sorted.
    pub(crate) async fn all(
        &self,
        name: &str,
        patience: Duration,
    ) -> Result<Vec<(i64, i64)>, Error> {
        self.all_within(name, Duration::ZERO, patience).await
    }

    /// All rows of a table as of at most `age_max` ago, sorted.
    async fn all_within(
        &self,
        name: &str,
        age_max: Duration,
        patience: Duration,
    ) -> Result<Vec<(i64, i64)>, Error> {
        let deadline = Instant::now() + patience;
        'anew: loop {
            let mut rows = Vec::new();
            let mut unread = vec![KeyRange::all()];
            while let Some(keys) = unread.pop() {
                let table = self.table(name, deadline).await?;
                let routes = table.partitions.routes();
                let positions = table.partitions.prune(std::slice::from_ref(&keys));
                let inside = |route: &Route| route.keys.intersect(&keys) == route.keys;
                if !positions.iter().all(|position| inside(&routes[*position])) {
                    continue 'anew;
                }
                for position in positions {
                    let route = &routes[position];
                    let domains = Domains::default();
                    let scope = (&domains, Purpose::Look { age_max });
                    match self.scan(&table, route, scope, deadline).await? {
                        Some(read) => rows.extend(tables::pairs(&read.batches)),
                        None => unread.push(route.keys.clone()),
                    }
                }
            }
            rows.sort_unstable();
            return Ok(rows);
        }
    }

    /// Reads a key's value and records it in the history.
    pub(crate) async fn get(&self, key: i64, patience: Duration) -> bool {
        let place = self.cluster.history.begin(self.number, key, Action::Read(None));
        let values = self.values(key, LOOK, patience).await.map(|read| read.values);
        if let Ok(values) = &values {
            self.cluster.history.end(place, Action::Read(values.first().copied()));
        }
        self.cluster.history.note(format_args!("client {} get {key}: {values:?}", self.number));
        values.is_ok()
    }

    /// Reads all events and checks the rows seen.
    pub(crate) async fn read_events(&self, patience: Duration) -> bool {
        let acknowledged = self.cluster.history.acknowledged();
        let events = self.all(EVENTS, patience).await;
        if let Ok(events) = &events {
            rows::check(&self.cluster.history, &acknowledged, events);
        }
        let count = events.map(|rows| rows.len());
        self.cluster.history.note(format_args!("client {} read events: {count:?}", self.number));
        count.is_ok()
    }

    /// Reads all events as of at most [`AGE_MAX`] ago, and checks that those which were acknowledged before then are seen.
    pub(crate) async fn read_older_events(&self, patience: Duration) -> bool {
        let acknowledged = self.cluster.history.acknowledged();
        tokio::time::sleep(AGE_MAX).await;
        let events = self.all_within(EVENTS, AGE_MAX, patience).await;
        if let Ok(events) = &events {
            rows::check(&self.cluster.history, &acknowledged, events);
        }
        let count = events.map(|rows| rows.len());
        let number = self.number;
        self.cluster.history.note(format_args!("client {number} read older events: {count:?}"));
        count.is_ok()
    }

    /// Reads all keys and checks that none has two values, in any partitions.
    pub(crate) async fn read_keyed(&self, patience: Duration) -> bool {
        let pairs = self.all(KEYED, patience).await;
        if let Ok(pairs) = &pairs {
            for pair in pairs.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
                let violation = format!("key {} has two rows: {pair:?}", pair[0].0);
                self.cluster.history.violation(violation);
            }
        }
        let count = pairs.map(|rows| rows.len());
        self.cluster.history.note(format_args!("client {} read keys: {count:?}", self.number));
        count.is_ok()
    }
}
