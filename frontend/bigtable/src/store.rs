//! The seam between the API and the tables behind it.

use std::collections::BTreeMap;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use partita_proto::access::Identity;
use partita_proto::wide::{CellKey, Family, FamilyChange, ReadModify, RowMutation, Wide};
use tonic::{Request, Status};

use crate::cell::Row;
use crate::filter::{Filter, Narrowing, TooManyCopies};
use crate::names::TableName;
use crate::rows::KeySpan;

/// Authenticated client. The server of the API puts it into the extensions of each request.
#[derive(Clone, Copy, Debug)]
pub struct Caller(pub Identity);

/// The identity of a request.
///
/// # Errors
/// UNAUTHENTICATED when there is none.
pub(crate) fn caller_of<T>(request: &Request<T>) -> Result<Identity, Status> {
    let caller = request.extensions().get::<Caller>();
    caller
        .map(|caller| caller.0)
        .ok_or_else(|| Status::unauthenticated("authentication is required"))
}

/// A wide table, as a caller sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WideTable {
    /// Name in the catalog.
    pub table: String,
    /// Families and limits.
    pub wide: Wide,
}

/// A key that divides a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySample {
    /// First key after the rows before it; empty: the end of the table.
    pub key: Bytes,
    /// Bytes of the rows before the key, about.
    pub bytes: u64,
}

/// Rows that a read wants.
#[derive(Clone, Debug)]
pub struct Scan {
    /// Spans of keys, in ascending order, which do not overlap.
    pub spans: Vec<KeySpan>,
    /// Cells that are needed; others may come too. Rows without any of them need not come.
    pub narrowing: Narrowing,
    /// Descending order of the rows; the cells of a row are in their order always.
    pub is_reversed: bool,
    /// Rows after which the reader needs no more; `None` for all.
    pub rows_max: Option<u64>,
}

/// Rows of a scan, in its order, each whole, some at a time. The store counts the memory of rows until the next ones are
/// asked for.
pub type RowStream = BoxStream<'static, Result<Vec<Row>, Status>>;

/// Work of a request that may compute for long.
pub type Computation = Box<dyn FnOnce() + Send>;

/// Mutations of a row that depend on its cells.
#[derive(Clone, Debug)]
pub struct Check {
    /// Filter whose output decides; `None`: any cell does.
    pub filter: Option<Filter>,
    /// Mutations for a row for which the filter outputs cells.
    pub matched: Option<RowMutation>,
    /// Mutations for any other row, also for one that does not exist.
    pub unmatched: Option<RowMutation>,
}

impl Check {
    /// Cells that the decision needs.
    #[must_use]
    pub fn narrowing(&self) -> Narrowing {
        self.filter.as_ref().map_or_else(Narrowing::none, Filter::narrowing)
    }

    /// Decides for a row: true if it matches, and the mutations that follow.
    ///
    /// # Errors
    /// When the filter is too costly for the row.
    pub fn decide(&self, row: Row) -> Result<(bool, Option<&RowMutation>), TooManyCopies> {
        let output = match &self.filter {
            Some(filter) => filter.apply(row)?,
            None => row,
        };
        let is_matched = !output.cells.is_empty();
        let mutation = if is_matched { &self.matched } else { &self.unmatched };
        Ok((is_matched, mutation.as_ref()))
    }
}

/// Wide tables. Each method checks the rights of its caller, to whom a table that it may not see does not exist.
///
/// # Errors
/// All methods return statuses for the client: NOT_FOUND, ALREADY_EXISTS, PERMISSION_DENIED, INVALID_ARGUMENT, and
/// UNAVAILABLE for a request that may succeed if it is repeated.
#[async_trait]
pub trait WideStore: Send + Sync {
    /// The wide tables of an instance, by name.
    async fn tables(&self, caller: Identity, instance: &str) -> Result<Vec<WideTable>, Status>;

    /// A table that the caller sees.
    async fn table(&self, caller: Identity, name: &TableName) -> Result<WideTable, Status>;

    /// Creates a table, cut at keys in ascending order.
    async fn create(
        &self,
        caller: Identity,
        name: &TableName,
        families: Vec<Family>,
        cuts: Vec<Bytes>,
    ) -> Result<(), Status>;

    /// Changes the families of a table: all changes, in their order, or none.
    async fn alter(
        &self,
        caller: Identity,
        name: &TableName,
        changes: Vec<FamilyChange>,
    ) -> Result<(), Status>;

    /// Drops a table with all its rows.
    async fn drop_table(&self, caller: Identity, name: &TableName) -> Result<(), Status>;

    /// Deletes the rows of a span of keys.
    async fn drop_rows(
        &self,
        caller: Identity,
        name: &TableName,
        span: KeySpan,
    ) -> Result<(), Status>;

    /// Keys that divide a table, in ascending order, the end of the table last.
    async fn samples(&self, caller: Identity, name: &TableName) -> Result<Vec<KeySample>, Status>;

    /// Changes rows, each as a whole or not at all. The results are in the order of the rows.
    async fn mutate(
        &self,
        caller: Identity,
        name: &TableName,
        rows: Vec<RowMutation>,
    ) -> Result<Vec<Result<(), Status>>, Status>;

    /// Checks a row and then changes it, as one atomic operation. Returns true if the row matched.
    async fn check_and_mutate(
        &self,
        caller: Identity,
        name: &TableName,
        row_key: Bytes,
        check: Check,
    ) -> Result<bool, Status>;

    /// Derives new cells from the newest cells of a row, once. Returns the cells that were written.
    async fn read_modify(
        &self,
        caller: Identity,
        name: &TableName,
        request: ReadModify,
    ) -> Result<BTreeMap<CellKey, Vec<u8>>, Status>;

    /// Reads rows, without the cells that are garbage.
    async fn scan(
        &self,
        caller: Identity,
        name: &TableName,
        scan: Scan,
    ) -> Result<RowStream, Status>;

    /// Does work that may compute for long where it delays no other request, and waits for its end.
    async fn compute(&self, work: Computation) -> Result<(), Status>;
}
