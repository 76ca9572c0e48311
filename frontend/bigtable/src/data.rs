//! The service of rows: reads, mutations, and samples of keys.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::channel::oneshot;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use partita_proto::clock::Clock;
use partita_proto::wide::{CellKey, RowMutation};
use tonic::{Code, Request, Response, Status};

use crate::api::data::bigtable_server::Bigtable;
use crate::api::data::mutate_rows_response::Entry;
use crate::api::data::read_rows_request::RequestStatsView;
use crate::api::data::request_stats::StatsView;
use crate::api::data::{
    self, CheckAndMutateRowRequest, CheckAndMutateRowResponse, FullReadStatsView, MutateRowRequest,
    MutateRowResponse, MutateRowsRequest, MutateRowsResponse, PingAndWarmRequest,
    PingAndWarmResponse, ReadIterationStats, ReadModifyWriteRowRequest, ReadModifyWriteRowResponse,
    ReadRowsRequest, ReadRowsResponse, RequestLatencyStats, RequestStats, RowFilter,
    SampleRowKeysRequest, SampleRowKeysResponse,
};
use crate::api::google::rpc;
use crate::cell::Row;
use crate::chunks::Chunker;
use crate::filter::{Filter, Narrowing, TooManyCopies};
use crate::mutations::{check_count, check_token, read_modify, row_mutation};
use crate::names::{InstanceName, TableName};
use crate::rows::{KeySpan, span, spans, with_prefix};
use crate::store::{Check, KeySample, RowStream, Scan, WideStore, caller_of};

/// Cells of rows up to which they are filtered at once: the work of less than a millisecond by most filters.
const LIGHT_CELLS: usize = 1_024;

/// A stream of responses.
type Responses<T> = BoxStream<'static, Result<T, Status>>;

/// The service google.bigtable.v2.Bigtable.
pub struct Data {
    store: Arc<dyn WideStore>,
    clock: Arc<dyn Clock>,
}

impl Data {
    /// A service of the rows of a store.
    #[must_use]
    pub fn new(store: Arc<dyn WideStore>, clock: Arc<dyn Clock>) -> Self {
        Self { store, clock }
    }

    /// The time in microseconds, with the granularity of cells.
    fn now_us(&self) -> i64 {
        self.clock.now_ms().saturating_mul(1_000)
    }

    /// Compiles the filter of a request. Each request takes samples of its own.
    fn filter(&self, filter: Option<&RowFilter>) -> Result<Option<Filter>, Status> {
        let seed = self.clock.now_ms().unsigned_abs();
        let filter = filter.map(|filter| Filter::new(filter, seed)).transpose();
        filter.map_err(|error| Status::invalid_argument(error.to_string()))
    }
}

#[async_trait]
impl Bigtable for Data {
    type ReadRowsStream = Responses<ReadRowsResponse>;
    type SampleRowKeysStream = Responses<SampleRowKeysResponse>;
    type MutateRowsStream = Responses<MutateRowsResponse>;

    async fn read_rows(
        &self,
        request: Request<ReadRowsRequest>,
    ) -> Result<Response<Self::ReadRowsStream>, Status> {
        let started_ms = self.clock.now_ms();
        let caller = caller_of(&request)?;
        let request = request.into_inner();
        let name = TableName::parse(&request.table_name)?;
        let filter = self.filter(request.filter.as_ref())?;
        let limit = u64::try_from(request.rows_limit)
            .map_err(|_| Status::invalid_argument("rows_limit must not be negative"))?;
        let rows_max = (limit > 0).then_some(limit);
        let narrowing = filter.as_ref().map_or_else(Narrowing::none, Filter::narrowing);
        let scan = Scan {
            spans: with_prefix(&spans(request.rows.as_ref())?, &narrowing.key_prefix),
            narrowing,
            is_reversed: request.reversed,
            // A row for which the filter outputs nothing does not count.
            rows_max: rows_max.filter(|_| filter.is_none()),
        };
        let rows = self.store.scan(caller, &name, scan).await?;
        let reading = Reading {
            store: Arc::clone(&self.store),
            rows,
            filter,
            chunker: Chunker::default(),
            remaining: rows_max,
            has_ended: false,
            stats: ReadIterationStats::default(),
            wants_stats: request.request_stats_view() == RequestStatsView::RequestStatsFull,
            clock: Arc::clone(&self.clock),
            started_ms,
        };
        Ok(Response::new(stream::try_unfold(reading, Reading::next).boxed()))
    }

    async fn sample_row_keys(
        &self,
        request: Request<SampleRowKeysRequest>,
    ) -> Result<Response<Self::SampleRowKeysStream>, Status> {
        let caller = caller_of(&request)?;
        let request = request.into_inner();
        let name = TableName::parse(&request.table_name)?;
        let range = request.row_range.as_ref().map_or_else(|| Ok(KeySpan::all()), span)?;
        let samples = samples_within(self.store.samples(caller, &name).await?, &range);
        let responses = samples.into_iter().map(|sample| {
            let offset_bytes = i64::try_from(sample.bytes).unwrap_or(i64::MAX);
            Ok(SampleRowKeysResponse { row_key: sample.key, offset_bytes })
        });
        Ok(Response::new(stream::iter(responses).boxed()))
    }

    async fn mutate_row(
        &self,
        request: Request<MutateRowRequest>,
    ) -> Result<Response<MutateRowResponse>, Status> {
        let caller = caller_of(&request)?;
        let request = request.into_inner();
        let name = TableName::parse(&request.table_name)?;
        check_token(request.idempotency.as_ref(), &request.mutations)?;
        let table = self.store.table(caller, &name).await?;
        let row = row_mutation(&request.row_key, request.mutations, &table.wide, self.now_us())?;
        let results = self.store.mutate(caller, &name, vec![row]).await?;
        results.into_iter().collect::<Result<(), Status>>()?;
        Ok(Response::new(MutateRowResponse {}))
    }

    async fn mutate_rows(
        &self,
        request: Request<MutateRowsRequest>,
    ) -> Result<Response<Self::MutateRowsStream>, Status> {
        let caller = caller_of(&request)?;
        let request = request.into_inner();
        let name = TableName::parse(&request.table_name)?;
        check_count(request.entries.iter().map(|entry| entry.mutations.len()).sum())?;
        let table = self.store.table(caller, &name).await?;
        let now_us = self.now_us();
        // Entries that are not valid have their errors; the others are stored.
        let mut outcomes = Vec::with_capacity(request.entries.len());
        let mut rows: Vec<RowMutation> = Vec::with_capacity(request.entries.len());
        for entry in request.entries {
            let row = check_token(entry.idempotency.as_ref(), &entry.mutations)
                .and_then(|()| row_mutation(&entry.row_key, entry.mutations, &table.wide, now_us));
            outcomes.push(row.map(|row| rows.push(row)));
        }
        let mut results = self.store.mutate(caller, &name, rows).await?.into_iter();
        for outcome in outcomes.iter_mut().filter(|outcome| outcome.is_ok()) {
            *outcome =
                results.next().unwrap_or_else(|| Err(Status::internal("a row has no result")));
        }
        let entries = (0..).zip(outcomes).map(|(index, outcome)| {
            let (code, message) = match outcome {
                Ok(()) => (Code::Ok, String::new()),
                Err(status) => (status.code(), status.message().to_owned()),
            };
            Entry { index, status: Some(rpc::Status { code: code.into(), message }) }
        });
        let response = MutateRowsResponse { entries: entries.collect() };
        Ok(Response::new(stream::iter([Ok(response)]).boxed()))
    }

    async fn check_and_mutate_row(
        &self,
        request: Request<CheckAndMutateRowRequest>,
    ) -> Result<Response<CheckAndMutateRowResponse>, Status> {
        let caller = caller_of(&request)?;
        let request = request.into_inner();
        let name = TableName::parse(&request.table_name)?;
        let filter = self.filter(request.predicate_filter.as_ref())?;
        check_count(request.true_mutations.len() + request.false_mutations.len())?;
        let table = self.store.table(caller, &name).await?;
        let now_us = self.now_us();
        let branch = |mutations: Vec<data::Mutation>| {
            let mutations = Some(mutations).filter(|mutations| !mutations.is_empty());
            let row = |mutations| row_mutation(&request.row_key, mutations, &table.wide, now_us);
            mutations.map(row).transpose()
        };
        let check = Check {
            filter,
            matched: branch(request.true_mutations)?,
            unmatched: branch(request.false_mutations)?,
        };
        let matched = self.store.check_and_mutate(caller, &name, request.row_key, check);
        let predicate_matched = matched.await?;
        Ok(Response::new(CheckAndMutateRowResponse { predicate_matched }))
    }

    async fn ping_and_warm(
        &self,
        request: Request<PingAndWarmRequest>,
    ) -> Result<Response<PingAndWarmResponse>, Status> {
        let _caller = caller_of(&request)?;
        InstanceName::parse(&request.get_ref().name)?;
        Ok(Response::new(PingAndWarmResponse {}))
    }

    async fn read_modify_write_row(
        &self,
        request: Request<ReadModifyWriteRowRequest>,
    ) -> Result<Response<ReadModifyWriteRowResponse>, Status> {
        let caller = caller_of(&request)?;
        let request = request.into_inner();
        let name = TableName::parse(&request.table_name)?;
        let table = self.store.table(caller, &name).await?;
        let modify = read_modify(&request.row_key, request.rules, &table.wide)?;
        let written = self.store.read_modify(caller, &name, modify).await?;
        let row = Some(row_message(request.row_key, written));
        Ok(Response::new(ReadModifyWriteRowResponse { row }))
    }
}

/// The samples in a span of keys, with the bytes of the rows from the last one before it.
fn samples_within(samples: Vec<KeySample>, span: &KeySpan) -> Vec<KeySample> {
    let is_end = |sample: &KeySample| sample.key.is_empty();
    let earlier = samples.iter().filter(|sample| !is_end(sample) && sample.key < span.start);
    let offset = earlier.map(|sample| sample.bytes).max().unwrap_or_default();
    let is_within = |sample: &KeySample| match is_end(sample) {
        true => span.end.is_none(),
        false => span.contains(&sample.key),
    };
    let inner = samples.into_iter().filter(is_within);
    inner.map(|sample| KeySample { bytes: sample.bytes.saturating_sub(offset), ..sample }).collect()
}

/// The message of a row with the cells that were written.
fn row_message(key: Bytes, written: BTreeMap<CellKey, Vec<u8>>) -> data::Row {
    let mut families: Vec<data::Family> = Vec::new();
    for (cell, value) in written {
        let CellKey { family, qualifier, timestamp } = cell;
        let qualifier = Bytes::from(qualifier);
        if families.last().is_none_or(|last| last.name != family) {
            families.push(data::Family { name: family, columns: Vec::new() });
        }
        let Some(family) = families.last_mut() else { continue };
        if family.columns.last().is_none_or(|last| last.qualifier != qualifier) {
            family.columns.push(data::Column { qualifier, cells: Vec::new() });
        }
        let Some(column) = family.columns.last_mut() else { continue };
        let cell =
            data::Cell { timestamp_micros: timestamp, value: value.into(), labels: Vec::new() };
        // Newest first.
        column.cells.insert(0, cell);
    }
    data::Row { key, families }
}

/// A read in progress.
struct Reading {
    store: Arc<dyn WideStore>,
    rows: RowStream,
    filter: Option<Filter>,
    chunker: Chunker,
    /// Rows that the client still takes; `None` for all.
    remaining: Option<u64>,
    has_ended: bool,
    stats: ReadIterationStats,
    wants_stats: bool,
    clock: Arc<dyn Clock>,
    started_ms: i64,
}

impl Reading {
    /// The next response; `None` after the last one.
    async fn next(mut self) -> Result<Option<(ReadRowsResponse, Self)>, Status> {
        loop {
            if let Some(response) = self.chunker.pop() {
                return Ok(Some((response, self)));
            }
            if self.has_ended {
                return Ok(None);
            }
            let rows = match self.remaining {
                Some(0) => None,
                _ => self.rows.try_next().await?,
            };
            match rows {
                Some(rows) => self = self.take(rows).await?,
                None => self.end(),
            }
        }
    }

    /// Adds rows; many cells where the store computes, because a filter may look at each of them many times.
    async fn take(mut self, rows: Vec<Row>) -> Result<Self, Status> {
        if rows.iter().map(|row| row.cells.len()).sum::<usize>() <= LIGHT_CELLS {
            self.add_all(rows, || false)?;
            return Ok(self);
        }
        let store = Arc::clone(&self.store);
        let (sender, receiver) = oneshot::channel();
        let work = move || {
            let added = self.add_all(rows, || sender.is_canceled()).map(|()| self);
            // The client may be gone.
            sender.send(added).ok();
        };
        store.compute(Box::new(work)).await?;
        receiver.await.map_err(|_| Status::internal("rows were not filtered"))?
    }

    /// Adds rows as far as the client takes them, and as long as it is there.
    fn add_all(&mut self, rows: Vec<Row>, is_gone: impl Fn() -> bool) -> Result<(), Status> {
        for row in rows {
            if self.remaining == Some(0) || is_gone() {
                break;
            }
            self.add(row)?;
        }
        Ok(())
    }

    fn add(&mut self, row: Row) -> Result<(), Status> {
        self.stats.rows_seen_count += 1;
        self.stats.cells_seen_count += count(&row);
        let row = match &self.filter {
            Some(filter) => filter.apply(row).map_err(|error| too_costly(&error))?,
            None => row,
        };
        if !row.cells.is_empty() {
            self.stats.rows_returned_count += 1;
            self.stats.cells_returned_count += count(&row);
            self.remaining = self.remaining.map(|remaining| remaining.saturating_sub(1));
        }
        self.chunker.row(row);
        Ok(())
    }

    fn end(&mut self) {
        self.has_ended = true;
        let stats = self.wants_stats.then(|| {
            let elapsed_ms = self.clock.now_ms().saturating_sub(self.started_ms).max(0);
            let latency = prost_types::Duration {
                seconds: elapsed_ms / 1_000,
                nanos: i32::try_from(elapsed_ms % 1_000 * 1_000_000).unwrap_or_default(),
            };
            let view = FullReadStatsView {
                read_iteration_stats: Some(self.stats),
                request_latency_stats: Some(RequestLatencyStats {
                    frontend_server_latency: Some(latency),
                }),
            };
            RequestStats { stats_view: Some(StatsView::FullReadStatsView(view)) }
        });
        self.chunker.finish(stats);
    }
}

fn too_costly(error: &TooManyCopies) -> Status {
    Status::resource_exhausted(error.to_string())
}

fn count(row: &Row) -> i64 {
    i64::try_from(row.cells.len()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::Cell;
    use crate::memory::Memory;

    /// A clock that stands still.
    struct Still;

    impl Clock for Still {
        fn now_ms(&self) -> i64 {
            1
        }
    }

    #[test]
    fn rows_are_not_filtered_for_a_client_that_is_gone() {
        let mut reading = Reading {
            store: Arc::new(Memory::default()),
            rows: stream::empty().boxed(),
            filter: None,
            chunker: Chunker::default(),
            remaining: None,
            has_ended: false,
            stats: ReadIterationStats::default(),
            wants_stats: false,
            clock: Arc::new(Still),
            started_ms: 0,
        };
        let cell = Cell {
            family: "f".into(),
            qualifier: Bytes::new(),
            timestamp_us: 0,
            value: Bytes::new(),
            label: None,
        };
        let row = Row { key: Bytes::from_static(b"r"), cells: vec![cell] };
        reading.add_all(vec![row.clone()], || true).unwrap();
        assert_eq!(reading.stats.rows_seen_count, 0);
        reading.add_all(vec![row], || false).unwrap();
        assert_eq!(reading.stats.rows_seen_count, 1);
    }
}
