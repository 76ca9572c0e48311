//! Writes of a client: it divides rows by the table's partitions, sends each part to the leader, and sends an
//! unanswered part again, divided by the newest known partitions.
//!
//! Invariants:
//! - a part that is sent again keeps its identity;
//! - if the rows of one identity are divided, each part gets a new identity and names the earlier ones: a merge may
//!   bring the effect of one part into the partition to which another is still to be sent;
//! - a write under a condition that was refused has had no effect and never will, however often it was sent.

use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::compute::take_record_batch;
use partita_proto::catalog::Table;
use partita_proto::error::Error;
use partita_proto::id::{Epoch, PartitionId};
use partita_proto::key::KeyCodec;
use partita_proto::route::{Cut, Route};
use partita_proto::service::{Condition, DataService, RequestId, WriteKind, WriteRequest};
use partita_proto::value::Value;
use tokio::time::Instant;

use super::Client;
use super::read::Purpose;
use crate::history::Action;
use crate::tables::{self, EVENTS, KEYED};

/// Rows to write under one identity, and the earlier identities that they shared with other rows.
struct Part {
    rows: RecordBatch,
    id: RequestId,
    earlier: Vec<RequestId>,
}

/// A write before it is divided, and the condition of one partition under which it takes effect.
struct Write {
    id: RequestId,
    kind: WriteKind,
    rows: RecordBatch,
    condition: Option<(PartitionId, Condition)>,
}

impl Write {
    /// The condition for a partition. One that was not read can only answer that it has taken the write before.
    fn condition(&self, partition: PartitionId) -> Option<Condition> {
        let (read, condition) = self.condition?;
        Some(match read == partition {
            true => condition,
            false => Condition { epoch: Epoch(0), index: 0, ..condition },
        })
    }
}

impl Client {
    /// Divides rows by the partitions of a table; rows of one partition stay one part with the same identity.
    fn cut(&self, table: &Table, part: Part) -> Result<Vec<(Route, Part)>, Error> {
        let keys = KeyCodec::new(&table.schema, &table.placement)?.encode(&part.rows)?;
        let routes = table.partitions.routes();
        let cut = match table.partitions.cut(&keys) {
            Cut::One(position) => return Ok(vec![(routes[position].clone(), part)]),
            Cut::Many(cut) => cut,
        };
        let earlier: Vec<RequestId> = part.earlier.iter().copied().chain([part.id]).collect();
        let parts = cut.into_iter().map(|(position, rows)| {
            let rows = take_record_batch(&part.rows, &rows)
                .map_err(|error| Error::Internal(error.to_string()))?;
            let part = Part { rows, id: self.identity(), earlier: earlier.clone() };
            Ok((routes[position].clone(), part))
        });
        parts.collect()
    }

    /// Writes rows to their partitions; calls `on_part` with each part that has taken effect.
    async fn write(
        &self,
        table: &str,
        write: Write,
        patience: Duration,
        mut on_part: impl FnMut(&RecordBatch) + Send,
    ) -> Result<(), Error> {
        let deadline = Instant::now() + patience;
        let (id, rows) = (write.id, write.rows.clone());
        let mut waiting = vec![Part { rows, id, earlier: Vec::new() }];
        while let Some(part) = waiting.pop() {
            let newest = self.table(table, deadline).await?;
            let mut parts = self.cut(&newest, part)?;
            let Some((route, part)) = parts.pop() else { continue };
            // Reversed, because `waiting` is a stack: the last part is sent now, the others in the order of their
            // keys.
            waiting.extend(parts.into_iter().rev().map(|(_, part)| part));
            let request = WriteRequest {
                partition: route.partition,
                epoch: route.epoch,
                id: part.id,
                earlier: part.earlier.clone(),
                kind: write.kind,
                rows: part.rows.clone(),
                ship: None,
                condition: write.condition(route.partition),
            };
            let error = match self.ask_first(&route) {
                Some(node) => match self.service(node).write(request).await {
                    Ok(_) => {
                        self.leaders.lock().insert(route.partition, node);
                        on_part(&part.rows);
                        continue;
                    }
                    Err(error @ Error::Changed { .. }) => return Err(error),
                    Err(error) => error,
                },
                None => Error::Unavailable("a partition without replicas".to_owned()),
            };
            self.check_error("write", &error);
            if Instant::now() >= deadline {
                return Err(error);
            }
            self.learn(&route, &error).await;
            waiting.push(part);
        }
        Ok(())
    }

    /// A new value of a key, or sometimes none, with what is to be written.
    fn any_value(
        &self,
        id: RequestId,
        key: i64,
    ) -> Result<(Option<i64>, WriteKind, RecordBatch), Error> {
        let delete = self.below(10) == 0;
        let value = (!delete).then(|| self.number_of(id));
        let padding = 200 + usize::try_from(self.below(1500)).unwrap_or_default();
        let rows = match value {
            Some(value) => tables::rows(&[(key, value)], padding)?,
            None => tables::keys(&[key])?,
        };
        let kind = if delete { WriteKind::Delete } else { WriteKind::Put };
        Ok((value, kind, rows))
    }

    /// Reads a key's value and sets or removes it where nobody has written the key since; reads it again after a
    /// refusal.
    pub(crate) async fn exchange(&self, key: i64, patience: Duration) -> bool {
        let history = &self.cluster.history;
        let deadline = Instant::now() + patience;
        loop {
            let remaining = deadline.saturating_duration_since(Instant::now());
            let Ok(read) = self.values(key, Purpose::Update, remaining).await else { return false };
            let id = self.identity();
            let Ok((value, kind, rows)) = self.any_value(id, key) else { return false };
            let (partition, mut condition) = read.condition;
            // As of a statement of many rows, whose keys the partition does not keep.
            condition.bulk = (self.below(4) == 0).then_some((id.client << 32) | id.sequence);
            let previous = read.values.first().copied();
            let action = Action::Exchange(previous, value);
            let place = history.begin(self.number, key, action);
            let write = Write { id, kind, rows, condition: Some((partition, condition)) };
            let remaining = deadline.saturating_duration_since(Instant::now());
            let outcome = self.write(KEYED, write, remaining, |_| ()).await;
            history.note(format_args!(
                "client {} exchange {key}: {previous:?} by {value:?}: {outcome:?}",
                self.number
            ));
            match outcome {
                Ok(()) => {
                    history.end(place, action);
                    return true;
                }
                Err(Error::Changed { .. }) => history.cancel(place),
                Err(_) => return false,
            }
            if Instant::now() >= deadline {
                return false;
            }
        }
    }

    /// Reads the rows with a key and writes what `decide` makes of them where nobody has written them since; reads them
    /// again after a refusal. False if `decide` wants nothing written.
    ///
    /// # Errors
    /// That of the last attempt when `patience` is over: the rows may still be written at any later time.
    pub(super) async fn update(
        &self,
        table: &str,
        key: Value,
        patience: Duration,
        mut decide: impl FnMut(&[RecordBatch]) -> Result<Option<RecordBatch>, Error> + Send,
    ) -> Result<bool, Error> {
        let deadline = Instant::now() + patience;
        loop {
            let remaining = deadline.saturating_duration_since(Instant::now());
            let found = self.rows_at(table, key.clone(), Purpose::Update, remaining).await?;
            let Some(rows) = decide(&found.batches)? else { return Ok(false) };
            let condition = Some(found.condition);
            let write = Write { id: self.identity(), kind: WriteKind::Put, rows, condition };
            let remaining = deadline.saturating_duration_since(Instant::now());
            match self.write(table, write, remaining, |_| ()).await {
                Ok(()) => return Ok(true),
                // Also for a schema that this client does not know yet.
                Err(Error::Changed { .. }) if Instant::now() < deadline => self.refresh().await,
                Err(error) => return Err(error),
            }
        }
    }

    /// Sets or removes a key's value.
    pub(crate) async fn put(&self, key: i64, patience: Duration) -> bool {
        let id = self.identity();
        let Ok((value, kind, rows)) = self.any_value(id, key) else { return false };
        let action = Action::Write(value);
        let place = self.cluster.history.begin(self.number, key, action);
        let write = Write { id, kind, rows, condition: None };
        let outcome = self.write(KEYED, write, patience, |_| ()).await;
        if outcome.is_ok() {
            self.cluster.history.end(place, action);
        }
        self.cluster
            .history
            .note(format_args!("client {} put {key}={value:?}: {outcome:?}", self.number));
        outcome.is_ok()
    }

    /// Appends one to four rows, of one key or of several.
    pub(crate) async fn append(&self, patience: Duration) -> bool {
        let id = self.identity();
        let first = self.number_of(id);
        let count = 1 + i64::try_from(self.below(4)).unwrap_or_default();
        let many_keys = self.below(2) == 0;
        let single_key = self.any_key();
        let pairs: Vec<(i64, i64)> = (first..first + count)
            .map(|number| (if many_keys { self.any_key() } else { single_key }, number))
            .collect();
        let numbers: Vec<i64> = pairs.iter().map(|(_, number)| *number).collect();
        let padding = 200 + usize::try_from(self.below(1500)).unwrap_or_default();
        let Ok(rows) = tables::rows(&pairs, padding) else { return false };
        let history = &self.cluster.history;
        history.attempt(&numbers);
        let acknowledge = |rows: &RecordBatch| {
            let pairs = tables::pairs(std::slice::from_ref(rows));
            let numbers: Vec<i64> = pairs.iter().map(|(_, number)| *number).collect();
            history.acknowledge(&numbers);
        };
        let write = Write { id, kind: WriteKind::Put, rows, condition: None };
        let outcome = self.write(EVENTS, write, patience, acknowledge).await;
        history.note(format_args!("client {} append {pairs:?}: {outcome:?}", self.number));
        outcome.is_ok()
    }
}
