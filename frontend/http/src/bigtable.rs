//! Bigtable's API: wide tables for Google's own clients.
//!
//! ```text
//!   partita_bigtable: messages, filters, responses ──▶ WideStore ─┬─ scan.rs     queries, by spans of keys (keys.rs)
//!                                                                 ├─ changes.rs  mutations of rows
//!                                                                 └─ tables.rs   the catalog
//! ```
//!
//! An instance is a database, and projects are not told apart. The middleware authenticates every call; sessions and
//! permits check the rights, as for SQL.

mod changes;
mod keys;
mod scan;
mod tables;

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use axum::extract::Request;
use bytes::Bytes;
use partita_bigtable::api::data::bigtable_server::BigtableServer;
use partita_bigtable::api::tables::bigtable_table_admin_server::BigtableTableAdminServer;
use partita_bigtable::rows::KeySpan;
use partita_bigtable::{
    Admin, Caller, Check, Computation, Data, FamilyChange, KeySample, RowStream, Scan, TableName,
    WideStore, WideTable,
};
use partita_frontend::SqlError;
use partita_proto::access::Identity;
use partita_proto::clock::Clock;
use partita_proto::wide::{CellKey, Family, ReadModify, RowMutation};
use tonic::Status;
use tonic::codec::CompressionEncoding;

use crate::door::{Door, now_ns};
use crate::flight::status_of;

/// Application of the sessions, for the log of statements.
const APPLICATION: &str = "bigtable";
/// Maximum size of a request: a cell may have 100 MiB.
pub(crate) const REQUEST_BYTES_MAX: usize = 128 << 20;

/// The wide tables of the frontend, as the services take them.
pub(crate) fn store(door: &Arc<Door>) -> Arc<dyn WideStore> {
    Arc::new(Store { door: Arc::clone(door) })
}

/// The service of rows.
pub(crate) fn data_server(door: &Arc<Door>) -> BigtableServer<Data> {
    BigtableServer::new(Data::new(store(door), Arc::new(SystemClock)))
        .max_decoding_message_size(REQUEST_BYTES_MAX)
        .accept_compressed(CompressionEncoding::Gzip)
}

/// The service of tables.
pub(crate) fn admin_server(door: &Arc<Door>) -> BigtableTableAdminServer<Admin> {
    BigtableTableAdminServer::new(Admin::new(store(door)))
        .accept_compressed(CompressionEncoding::Gzip)
}

/// Gives a request the identity that the middleware authenticated, in the form that the services take.
pub(crate) fn with_caller(mut request: Request) -> Request {
    let caller = request.extensions().get::<crate::caller::Caller>();
    if let Some(identity) = caller.map(|caller| caller.identity) {
        request.extensions_mut().insert(Caller(identity));
    }
    request
}

struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> i64 {
        now_ns() / 1_000_000
    }
}

/// The wide tables of the frontend.
struct Store {
    door: Arc<Door>,
}

fn status(error: SqlError) -> Status {
    status_of(&error)
}

#[async_trait]
impl WideStore for Store {
    async fn tables(&self, caller: Identity, instance: &str) -> Result<Vec<WideTable>, Status> {
        tables::list(&self.door, caller, instance).map_err(status)
    }

    async fn table(&self, caller: Identity, name: &TableName) -> Result<WideTable, Status> {
        let entry = tables::find(&self.door, caller, name).map_err(status)?;
        Ok(WideTable { table: entry.table.name.clone(), wide: entry.wide })
    }

    async fn create(
        &self,
        caller: Identity,
        name: &TableName,
        families: Vec<Family>,
        cuts: Vec<Bytes>,
    ) -> Result<(), Status> {
        tables::create(&self.door, caller, name, families, cuts).await.map_err(status)
    }

    async fn alter(
        &self,
        caller: Identity,
        name: &TableName,
        changes: Vec<FamilyChange>,
    ) -> Result<(), Status> {
        tables::alter(&self.door, caller, name, changes).await.map_err(status)
    }

    async fn drop_table(&self, caller: Identity, name: &TableName) -> Result<(), Status> {
        tables::drop_table(&self.door, caller, name).await.map_err(status)
    }

    async fn drop_rows(
        &self,
        caller: Identity,
        name: &TableName,
        span: KeySpan,
    ) -> Result<(), Status> {
        tables::drop_rows(&self.door, caller, name, &span).await.map_err(status)
    }

    async fn samples(&self, caller: Identity, name: &TableName) -> Result<Vec<KeySample>, Status> {
        tables::samples(&self.door, caller, name).await.map_err(status)
    }

    async fn mutate(
        &self,
        caller: Identity,
        name: &TableName,
        rows: Vec<RowMutation>,
    ) -> Result<Vec<Result<(), Status>>, Status> {
        changes::mutate(&self.door, caller, name, rows).await.map_err(status)
    }

    async fn check_and_mutate(
        &self,
        caller: Identity,
        name: &TableName,
        row_key: Bytes,
        check: Check,
    ) -> Result<bool, Status> {
        changes::check_and_mutate(&self.door, caller, name, &row_key, check).await.map_err(status)
    }

    async fn read_modify(
        &self,
        caller: Identity,
        name: &TableName,
        request: ReadModify,
    ) -> Result<BTreeMap<CellKey, Vec<u8>>, Status> {
        changes::read_modify(&self.door, caller, name, &request).await.map_err(status)
    }

    async fn scan(
        &self,
        caller: Identity,
        name: &TableName,
        scan: Scan,
    ) -> Result<RowStream, Status> {
        let entry = tables::find(&self.door, caller, name).map_err(status)?;
        let session = self.door.session(caller, &name.instance, APPLICATION).map_err(status)?;
        let queries = scan::Names::of(&entry.table).map_err(status)?.queries(&scan);
        let memory = self.door.frontend.claim_memory("wide rows");
        Ok(scan::rows(session, queries, memory))
    }

    async fn compute(&self, work: Computation) -> Result<(), Status> {
        let lane = self.door.frontend.lanes().enter().await;
        let lane = lane.map_err(|refusal| status(refusal.into()))?;
        lane.run(async move { work() }).await.map_err(|error| status(error.into()))
    }
}
